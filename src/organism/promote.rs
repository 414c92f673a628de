//! Promotes the embedded journal of an organism to JetStream.

use crate::config::{Config, StorageConfig};
use crate::journal::jetstream;

use super::access::refuse_hosted_start;
use super::{Error, project};

pub use crate::journal::jetstream::{PromotedJournal, PromotionPhase};

/// Result of a promotion.
#[derive(Debug)]
pub enum PromotionResult {
    Moved(PromotedJournal),
    /// The journal is already on JetStream.
    NothingToDo,
    /// The config does not place the journal on JetStream, so no stream exists to which the journal
    /// could be promoted.
    NowhereToGo,
}

/// Promotes the journal to the stream that the config states. No other process may use the journal
/// during the promotion.
pub fn promote(
    config: &Config,
    progress: &mut dyn FnMut(PromotionPhase, u64, u64),
) -> Result<PromotionResult, Error> {
    refuse_hosted_start(config)?;
    let StorageConfig::JetStream { servers, journal } = &config.storage else {
        return Ok(PromotionResult::NowhereToGo);
    };
    // The journal of a moved project is still in the directory of the project's earlier path.
    project::check_to_read(&config.directories())?;
    let moved = jetstream::promote(servers, journal, &config.data, &config.state, progress)?;
    Ok(moved.map_or(PromotionResult::NothingToDo, PromotionResult::Moved))
}
