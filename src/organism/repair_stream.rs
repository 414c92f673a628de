//! Repairs a journal on JetStream. The stream of such a journal may have lost acknowledged records,
//! may have forked, or may contain unproved records, which are records without a valid MAC.

use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::Position;
use crate::journal::jetstream::{self, RepairSource, StreamContent, StreamDamage, StreamRepair};
use crate::journal::{RedactedRecords, may_have_journal};
use crate::thread::{ActionDetail, OperatorAction, OperatorVerb};

use super::access::refuse_hosted_start;
use super::payload_copies::{PayloadCopy, copies_of_redacted};
use super::repair::{AcceptedDamage, redaction_details, redactions, remove_words};
use super::{Error, JournalOpening, core, open_stream, operator};

/// Result of a repair, or of the acceptance of damage, in one partition's stream.
#[derive(Debug)]
pub struct StreamResult<T> {
    pub stream: String,
    /// The repair or the accepted damage, which is on record; or the error that prevented it or its
    /// record.
    pub result: Result<T, Error>,
}

/// Damage of one partition's stream that an operator has accepted.
#[derive(Debug)]
pub struct AcceptedStreamDamage {
    pub damage: StreamDamage,
    /// Payloads of other records of the partition that have the bytes of a redacted payload. Counts
    /// all redacted payloads, also those that earlier repairs accepted. Empty unless redactions are
    /// accepted.
    pub copies: Vec<PayloadCopy>,
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
) -> Result<Vec<StreamResult<StreamRepair>>, Error> {
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
        repairs.push(StreamResult { stream, result });
    }

    Ok(repairs)
}

/// Records a finished repair in the journal of a partition. Then removes the note of the repair, a
/// file in the state directory.
fn record(config: &Config, repair: StreamRepair, note: &str) -> Result<StreamRepair, Error> {
    let StorageConfig::JetStream { journal, .. } = &config.storage else {
        return Err(Error::NotOnJetStream);
    };

    let action = operator::action(OperatorVerb::Repair, note, details(&repair))?;
    operator::record_offline(config, None, action, AcceptedDamage::default())?;
    jetstream::recorded(journal, &config.state)?;
    Ok(repair)
}

/// Accepts the damage that makes a start refuse a stream. In each damaged partition, records
/// actions that name the unproved records, and writes a checkpoint. Removes no records, because a
/// stream does not permit the removal. A partition that fails does not prevent the acceptance in
/// the others. The result omits partitions without damage of the accepted kinds, except those with
/// copies of redacted payloads.
///
/// A redaction is accepted only if the payload is blanked in the stream, too. Also deletes the
/// index, and writes the projection's file anew, as the repair of an embedded journal does.
pub fn accept_stream_damage(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
) -> Result<Vec<StreamResult<AcceptedStreamDamage>>, Error> {
    refuse_hosted_start(config)?;
    if accepted.loss {
        return Err(Error::NotEmbedded);
    }

    let mut partitions = Vec::new();
    for partition in 0..config.partitions() {
        let config = config.of_partition(partition);
        let StorageConfig::JetStream { journal, .. } = &config.storage else {
            return Err(Error::NotOnJetStream);
        };
        let stream = journal.stream();
        let result = accept_in_partition(&config, accepted, note).transpose();
        partitions.extend(result.map(|result| StreamResult { stream, result }));
    }

    Ok(partitions)
}

/// Accepts the damage of one partition, and records it. Returns `None` if there is no damage of the
/// accepted kinds, and no copy of a redacted payload.
fn accept_in_partition(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
) -> Result<Option<AcceptedStreamDamage>, Error> {
    let StorageConfig::JetStream { servers, journal: options } = &config.storage else {
        return Err(Error::NotOnJetStream);
    };
    if jetstream::stream_content(servers, options)? == StreamContent::NoRecords {
        return Ok(None);
    }

    let redactions = if accepted.redaction && may_have_journal(&config.data) {
        redactions(&config.data)?
    } else {
        RedactedRecords::default()
    };
    // Ordering rule: before the journal is opened, because that writes to the stream.
    jetstream::refuse_payloads_in_stream(servers, options, &config.data, redactions.blanked())?;

    let mut core = core(config);
    let opening = JournalOpening::offline(None, accepted.acceptance());
    let mut journal = open_stream(config, opening, &mut core)?;
    if accepted.redaction {
        // Ordering rule: before the record, so that a repair that ends in between is demanded
        // again.
        remove_words(&config.data)?;
    }
    if redactions.has_any() {
        journal.rewrite_file()?;
    }

    let damage = journal.damage().clone();
    let copies = if accepted.redaction { copies_of_redacted(&config.data)? } else { Vec::new() };
    let actions = damage_actions(&damage, accepted, note, journal.public_key())?;
    let is_damaged = !actions.is_empty();
    if is_damaged {
        operator::append_actions(&mut core, &mut journal, &config.texts(), actions)?;
    }
    journal.close(Time::now())?;
    let is_found = is_damaged || !copies.is_empty();
    Ok(is_found.then_some(AcceptedStreamDamage { damage, copies }))
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

    if accepted.redaction {
        for details in redaction_details(&damage.redacted) {
            actions.push(operator::action(OperatorVerb::Repair, note, details)?);
        }
    }

    Ok(actions)
}

fn details(repair: &StreamRepair) -> Vec<ActionDetail> {
    let StreamRepair { from, kept, acknowledged, forked_at, aside, .. } = repair;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redactions_beyond_the_details_of_one_action_are_recorded_by_further_actions() {
        let redacted: Vec<_> = (1..=100).map(Position).collect();
        let damage = StreamDamage { redacted: redacted.clone(), ..StreamDamage::default() };
        let accepted = AcceptedDamage { redaction: true, ..AcceptedDamage::default() };
        let actions = damage_actions(&damage, accepted, "privacy", "key").unwrap();
        let shortened = actions.into_iter().map(OperatorAction::shortened);
        let recorded: Vec<_> =
            shortened.flat_map(|action| action.redacted().collect::<Vec<_>>()).collect();
        assert_eq!(recorded, redacted);
    }
}
