//! Repairs a journal on JetStream. The stream of such a journal may have lost acknowledged records,
//! may have forked, or may contain unproved records, which are records without a valid MAC.

use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::Position;
use crate::journal::jetstream::{self, RepairSource, StreamContent, StreamDamage, StreamRepair};
use crate::thread::{ActionDetail, OperatorAction, OperatorVerb};

use super::access::refuse_hosted_start;
use super::repair::AcceptedDamage;
use super::{Error, core, open_stream, operator};

/// Result of the repair of one partition's stream.
#[derive(Debug)]
pub struct PartitionRepair {
    pub stream: String,
    /// The repair, which is on record; or the error that prevented the repair or its record.
    pub result: Result<StreamRepair, Error>,
}

/// Repairs the streams of `partitions` that need a repair, and records each repair as an action. If
/// the stream and the projection (the local copy of the stream) differ, `from` states which of them
/// is kept. If `from` is `None`:
///
/// - An interrupted repair continues, with the same choice between stream and projection.
/// - A new repair publishes again the records that the stream has lost and the projection still
///   has. It gives up no records.
///
/// A partition that cannot be repaired does not prevent the repair of the others. The result omits
/// partitions in which nothing needs repair.
pub fn repair_stream(
    config: &Config,
    partitions: &[u32],
    from: Option<RepairSource>,
    note: &str,
) -> Result<Vec<PartitionRepair>, Error> {
    refuse_hosted_start(config)?;
    let mut due = Vec::new();
    for partition in partitions {
        let config = config.of_partition(*partition);
        let StorageConfig::JetStream { servers, journal } = &config.storage else {
            return Err(Error::NotOnJetStream);
        };
        let repaired = jetstream::repair(servers, journal, &config.data, &config.state, from);
        let repaired = repaired.map_err(Error::from).transpose();
        due.extend(repaired.map(|result| (*partition, journal.stream(), result)));
    }

    // Ordering rule: all partitions are repaired before the first repair is recorded. Recording
    // needs a start, which fails while another source shows more records than the stream of a
    // partition has.
    let mut repairs = Vec::new();
    for (partition, stream, result) in due {
        let config = config.of_partition(partition);
        let result = result.and_then(|repair| record(&config, repair, note));
        repairs.push(PartitionRepair { stream, result });
    }

    Ok(repairs)
}

/// Records a finished repair in the journal of a partition. Then removes the file in the state
/// directory that notes the repair.
fn record(config: &Config, repair: StreamRepair, note: &str) -> Result<StreamRepair, Error> {
    let StorageConfig::JetStream { journal, .. } = &config.storage else {
        return Err(Error::NotOnJetStream);
    };

    let action = operator::action(OperatorVerb::Repair, note, details(&repair))?;
    operator::record_offline(config, None, action, AcceptedDamage::default())?;
    jetstream::recorded(journal, &config.state)?;
    Ok(repair)
}

/// Damage in one partition's stream that an operator has accepted by a recorded action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedPartition {
    pub stream: String,
    pub damage: StreamDamage,
}

/// Accepts the damage that makes a start refuse a stream. In each damaged partition, records an
/// action that names the unproved records, and writes a checkpoint. Removes no records, because a
/// stream does not permit the removal. Returns the partitions with damage of the accepted kinds.
pub fn accept_stream_damage(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
) -> Result<Vec<AcceptedPartition>, Error> {
    refuse_hosted_start(config)?;
    if accepted.loss {
        return Err(Error::NotEmbedded);
    }

    let mut partitions = Vec::new();
    for partition in 0..config.partitions() {
        let config = config.of_partition(partition);
        let StorageConfig::JetStream { servers, journal } = &config.storage else {
            return Err(Error::NotOnJetStream);
        };
        if jetstream::stream_content(servers, journal)? == StreamContent::NoRecords {
            continue;
        }

        let stream = journal.stream();
        let mut core = core(&config);
        let mut journal = open_stream(&config, None, accepted.acceptance(), &mut core)?;
        let damage = journal.damage().clone();
        let actions = damage_actions(&damage, accepted, note, journal.public_key())?;
        if !actions.is_empty() {
            operator::append_actions(&mut core, &mut journal, &config.texts(), actions)?;
            partitions.push(AcceptedPartition { stream, damage });
        }
        journal.close(Time::now())?;
    }

    Ok(partitions)
}

/// Makes the actions that record the accepted damage of a stream.
pub(super) fn damage_actions(
    damage: &StreamDamage,
    accepted: AcceptedDamage,
    note: &str,
    key: &str,
) -> Result<Vec<OperatorAction>, Error> {
    let mut actions = Vec::new();
    if let Some((first, last)) = damage.unproved().filter(|_| accepted.key) {
        let details = vec![
            ActionDetail::new("accepted", "key"),
            ActionDetail::new("key", key),
            ActionDetail::new("from", first),
            ActionDetail::new("to", last),
        ];
        actions.push(operator::action(OperatorVerb::Repair, note, details)?);
    }

    if accepted.redaction && !damage.redacted.is_empty() {
        let redacted = damage.redacted.iter();
        let details = redacted.map(|at| ActionDetail::new("redacted", at)).collect();
        actions.push(operator::action(OperatorVerb::Repair, note, details)?);
    }

    Ok(actions)
}

fn details(repair: &StreamRepair) -> Vec<ActionDetail> {
    let StreamRepair { from, kept, acknowledged, forked_at, aside } = repair;
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
            match forked_at {
                Some(first) => {
                    details.push(ActionDetail::new(OperatorAction::GIVEN_UP_FROM, first));
                    details.push(ActionDetail::new("given-up-to", acknowledged));
                }
                None => details.push(ActionDetail::new("acknowledged-up-to", acknowledged)),
            }
        }
    }

    if let Some(aside) = aside {
        details.push(ActionDetail::new("set-aside", aside.display()));
    }

    details
}
