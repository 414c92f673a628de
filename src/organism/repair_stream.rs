//! Repairs a journal on JetStream whose stream has lost acknowledged records or has forked.

use crate::config::{Config, StorageConfig};
use crate::ids::Position;
use crate::journal::jetstream::{self, RepairSource, StreamRepair};
use crate::thread::{ActionDetail, OperatorVerb};

use super::access::refuse_hosted_start;
use super::repair::AcceptedDamage;
use super::{Error, operator};

/// Repair of one partition's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRepair {
    pub stream: String,
    pub repair: StreamRepair,
}

/// Repairs each partition that needs a repair, and records each repair as an action. Without
/// `from`, it only publishes those records again that a projection still has, and gives up none.
pub fn repair_stream(
    config: &Config,
    from: Option<RepairSource>,
    note: &str,
) -> Result<Vec<PartitionRepair>, Error> {
    refuse_hosted_start(config)?;
    let mut repairs = Vec::new();
    for partition in 0..config.partitions() {
        let config = config.of_partition(partition);
        let StorageConfig::JetStream { servers, journal } = &config.storage else {
            return Err(Error::NotOnJetStream);
        };
        let repair = jetstream::repair(servers, journal, &config.data, &config.state, from)?;
        let Some(repair) = repair else { continue };
        let action = operator::action(OperatorVerb::Repair, note, details(&repair))?;
        operator::record_offline(&config, None, action, AcceptedDamage::default())?;
        jetstream::recorded(journal, &config.state)?;
        repairs.push(PartitionRepair { stream: journal.stream(), repair });
    }

    Ok(repairs)
}

fn details(repair: &StreamRepair) -> Vec<ActionDetail> {
    let StreamRepair { from, kept, acknowledged, aside } = repair;
    let first = Position(kept.0 + 1);
    let mut details = Vec::new();

    match from {
        RepairSource::Projection => {
            details.push(ActionDetail::new("published-from", first));
            details.push(ActionDetail::new("published-to", acknowledged));
        }
        RepairSource::Stream => {
            details.push(ActionDetail::new("accepted", "loss"));
            details.push(ActionDetail::new("kept-up-to", kept));
            details.push(ActionDetail::new("acknowledged-up-to", acknowledged));
        }
    }

    if let Some(aside) = aside {
        details.push(ActionDetail::new("set-aside", aside.display()));
    }

    details
}
