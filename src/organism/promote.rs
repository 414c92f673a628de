//! Moving the journal of an organism from its file to JetStream.

use crate::config::{Config, StorageConfig};
use crate::journal::jetstream;

use super::Error;
use super::access::refuse_hosted_start;

pub use crate::journal::jetstream::{Phase, Promoted};

/// Result of a promotion.
#[derive(Debug)]
pub enum PromotionResult {
    Moved(Promoted),
    /// The journal follows a stream already.
    NothingToDo,
    /// The config does not name a place to move it to.
    NowhereToGo,
}

/// Moves it to where the config says that it is; nothing else may run meanwhile.
pub fn promote(
    config: &Config,
    progress: &mut dyn FnMut(Phase, u64, u64),
) -> Result<PromotionResult, Error> {
    refuse_hosted_start(config)?;
    let StorageConfig::JetStream { servers, journal } = &config.storage else {
        return Ok(PromotionResult::NowhereToGo);
    };
    let moved = jetstream::promote(servers, journal, &config.data, &config.state, progress)?;
    Ok(moved.map_or(PromotionResult::NothingToDo, PromotionResult::Moved))
}
