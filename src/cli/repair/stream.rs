//! `organism repair` of a journal on JetStream.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::exit::{self, CommandExit, CommandFailure};
use crate::cli::render::{put, put_json};
use crate::config::Config;
use crate::journal::jetstream::{RepairSource, StreamRepair};
use crate::organism;
use crate::organism::repair::AcceptedDamage;
use crate::organism::repair_stream::{
    AcceptedStreamDamage, StreamResult, accept_stream_damage, repair_stream,
};

use super::{copy_lines, last_line};

/// The side that a repair keeps if a JetStream stream differs from this host's projection, which is
/// the host's copy of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RepairSide {
    /// Publish again the records that the stream lacks, from this host's projection (its copy of
    /// the stream).
    Projection,
    /// Keep the stream as it is, and move this host's projection aside.
    Stream,
}

/// Repairs the streams of `partitions`, and prints each repair. If some partitions could not be
/// repaired, then fails with their errors.
pub fn run(
    config: &Config,
    partitions: &[u32],
    from: Option<RepairSide>,
    note: &str,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let from = from.map(|from| match from {
        RepairSide::Projection => RepairSource::Projection,
        RepairSide::Stream => RepairSource::Stream,
    });
    let results = repair_stream(config, partitions, from, note)?;
    let (repairs, failure) = split_failures(results);
    if failure.is_none() || !repairs.is_empty() {
        print_repairs(&repairs, is_json)?;
    }

    exit_code(failure)
}

/// Separates the partitions for which a command succeeded from the failure about the others; `None`
/// if there are no others.
fn split_failures<T>(results: Vec<StreamResult<T>>) -> (Vec<(String, T)>, Option<CommandFailure>) {
    let mut done = Vec::new();
    let mut errors = Vec::new();
    for StreamResult { stream, result } in results {
        match result {
            Ok(result) => done.push((stream, result)),
            Err(error) => errors.push(error),
        }
    }

    (done, failure_of(errors))
}

fn exit_code(failure: Option<CommandFailure>) -> anyhow::Result<ExitCode> {
    match failure {
        Some(failure) => Err(failure.into()),
        None => Ok(CommandExit::Done.into()),
    }
}

/// Prints the finished repairs, each with the name of its stream.
fn print_repairs(repairs: &[(String, StreamRepair)], is_json: bool) -> anyhow::Result<()> {
    if is_json {
        let row = |(stream, repair): &(String, StreamRepair)| json!({ "stream": stream, "repair": repair });
        return put_json(&json!({ "repaired": repairs.iter().map(row).collect::<Vec<_>>() }));
    }

    if repairs.is_empty() {
        put("the stream has every record of this host; nothing was done, and nothing recorded\n")?;
    }

    for (stream, repair) in repairs {
        put(&summary(stream, repair))?;
    }

    Ok(())
}

/// Returns the failure of a command that could not repair some partitions, with all their errors.
/// Returns `None` if there are no errors. The exit code is that of the first error that a retry
/// cannot remedy. If a retry may remedy all errors, the exit code is 75.
fn failure_of(errors: Vec<organism::Error>) -> Option<CommandFailure> {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let exits: Vec<CommandExit> =
        errors.into_iter().map(|error| exit::code(&anyhow::Error::from(error))).collect();
    let lasting = exits.iter().find(|exit| **exit != CommandExit::TryAgain);
    let exit = lasting.or(exits.first())?;
    Some(CommandFailure::new(*exit, texts.join("\n")))
}

/// Accepts damage of streams, and prints the result. Records that no message authentication code
/// (MAC) covers stay in the stream, but cannot be verified; the output names them. If the damage of
/// some partitions could not be recorded, then fails with their errors.
pub fn accept(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let results = accept_stream_damage(config, accepted, note)?;
    let (partitions, failure) = split_failures(results);
    if failure.is_none() || !partitions.is_empty() {
        print_accepted(config, &partitions, accepted, is_json)?;
    }

    exit_code(failure)
}

/// The advice about records that still have a redacted payload. In a stream, several steps are
/// necessary.
const STREAM_ADVICE: &str = "take out those with the text that must go, in the steps of \
                             docs/OPERATIONS.md, Taking a payload out";

/// Prints the accepted damage of each stream.
fn print_accepted(
    config: &Config,
    partitions: &[(String, AcceptedStreamDamage)],
    accepted: AcceptedDamage,
    is_json: bool,
) -> anyhow::Result<()> {
    if is_json {
        let rows: Vec<_> = partitions.iter().map(accepted_json).collect();
        return put_json(&json!({ "repaired": rows }));
    }

    if partitions.is_empty() {
        put(nothing_accepted(accepted))?;
    }

    for (stream, AcceptedStreamDamage { damage, copies }) in partitions {
        let mut lines = Vec::new();
        if let Some((first, last)) = damage.unproved().filter(|_| accepted.key) {
            lines.push(format!("accepted     records {first} to {last}, without a proof"));
        }
        if accepted.redaction && !damage.redacted.is_empty() {
            let positions: Vec<_> = damage.redacted.iter().map(ToString::to_string).collect();
            lines.push(format!("taken out    payloads of records {}", positions.join(", ")));
        }
        let is_recorded = !lines.is_empty();
        lines.insert(0, format!("stream       {stream}"));
        lines.extend(copy_lines(copies, STREAM_ADVICE));
        lines.push(last_line(config, is_recorded, nothing_accepted(accepted)));
        put(&lines.join("\n"))?;
    }

    Ok(())
}

/// Returns the output of a repair that found no damage of the kinds in `accepted`. If the operator
/// wanted to accept a key, the output also explains how hosts get to know a new key. On JetStream,
/// a MAC with an earlier key of this host is no damage: it counts as a MAC of another host.
fn nothing_accepted(accepted: AcceptedDamage) -> &'static str {
    if accepted.key {
        "no such damage to accept; nothing was recorded. A new key of this host needs no repair on \
         JetStream: name the earlier public key in `known_keys` under [journal], and make the new \
         one known to the other hosts (docs/OPERATIONS.md, Keys)\n"
    } else {
        "no such damage to accept; nothing was recorded\n"
    }
}

fn accepted_json((stream, accepted): &(String, AcceptedStreamDamage)) -> serde_json::Value {
    let AcceptedStreamDamage { damage, copies } = accepted;
    let unproved = damage.unproved();
    json!({
        "stream": stream,
        "from": unproved.map(|(first, _)| first),
        "to": unproved.map(|(_, last)| last),
        "redacted": damage.redacted,
        "copies": copies,
    })
}

fn summary(stream: &str, repair: &StreamRepair) -> String {
    let first = repair.kept.0 + 1;
    let last = repair.acknowledged;
    let mut lines = vec![format!("stream       {stream}")];
    match repair.from {
        RepairSource::Projection if first > last.0 => {
            lines.push("published    what the stream lacked beside records".to_owned());
        }
        RepairSource::Projection => {
            lines.push(format!("published    records {first} to {last} again"));
        }
        RepairSource::Stream => {
            lines.push(format!("kept         the stream, up to record {}", repair.kept));
            lines.push(match repair.forked_at {
                Some(first) => {
                    format!("given up     other records, from {first} up to {last}")
                }
                None => format!("given up     what was acknowledged up to record {last}"),
            });
        }
    }

    if let Some(aside) = &repair.aside {
        lines.push(format!("set aside    the projection, in {}", aside.display()));
    }

    lines.push("on record    in sess-organism, and signed; start the organism\n".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal;

    #[test]
    fn a_key_that_needs_no_acceptance_is_to_be_made_known() {
        let key = AcceptedDamage { key: true, ..AcceptedDamage::default() };
        assert!(nothing_accepted(key).contains("`known_keys`"));
        let redaction = AcceptedDamage { redaction: true, ..AcceptedDamage::default() };
        assert!(!nothing_accepted(redaction).contains("known_keys"));
    }

    #[test]
    fn a_repair_of_some_partitions_names_the_others_and_ends_with_the_worst_of_their_codes() {
        let in_use = || {
            let path = "ORGANISM-a-0".to_owned();
            journal::Error::InUse { path, holder: "process 7 on attic".to_owned() }
        };
        let ahead = || {
            let stream = "ORGANISM-a-1".to_owned();
            journal::Error::OtherHostAhead { stream, reason: "process 8 has more".to_owned() }
        };

        assert!(failure_of(Vec::new()).is_none());
        let both = failure_of(vec![in_use().into(), ahead().into()]).unwrap();
        assert_eq!(both.exit, CommandExit::ChainBroken);
        for text in ["process 7 on attic", "ORGANISM-a-1 was not repaired", "process 8 has more"] {
            assert!(both.message.contains(text), "{}", both.message);
        }
        let waits = failure_of(vec![in_use().into()]).unwrap();
        assert_eq!(waits.exit, CommandExit::TryAgain);
    }
}
