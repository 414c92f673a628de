//! `organism repair` of a journal on JetStream.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::exit::CommandExit;
use crate::cli::render::{put, put_json};
use crate::config::Config;
use crate::journal::jetstream::RepairSource;
use crate::organism::repair::AcceptedDamage;
use crate::organism::repair_stream::{
    AcceptedPartition, PartitionRepair, accept_stream_damage, repair_stream,
};

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

pub fn run(
    config: &Config,
    from: Option<RepairSide>,
    note: &str,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let from = from.map(|from| match from {
        RepairSide::Projection => RepairSource::Projection,
        RepairSide::Stream => RepairSource::Stream,
    });
    let repairs = repair_stream(config, from, note)?;
    if is_json {
        let row = |PartitionRepair { stream, repair }: &PartitionRepair| json!({ "stream": stream, "repair": repair });
        put_json(&json!({ "repaired": repairs.iter().map(row).collect::<Vec<_>>() }))?;
        return Ok(CommandExit::Done.into());
    }

    if repairs.is_empty() {
        put("the stream has every record of this host; nothing was done, and nothing recorded\n")?;
    }

    for PartitionRepair { stream, repair } in &repairs {
        put(&summary(stream, repair))?;
    }

    Ok(CommandExit::Done.into())
}

/// Accepts damage of streams, and prints the result. Records that no message authentication code
/// (MAC) covers stay in the stream, but cannot be verified; the output names them.
pub fn accept(
    config: &Config,
    accepted: AcceptedDamage,
    note: &str,
    is_json: bool,
) -> anyhow::Result<ExitCode> {
    let partitions = accept_stream_damage(config, accepted, note)?;
    if is_json {
        put_json(&json!({ "repaired": partitions.iter().map(accepted_json).collect::<Vec<_>>() }))?;
        return Ok(CommandExit::Done.into());
    }

    if partitions.is_empty() {
        put(nothing_accepted(accepted))?;
    }

    for AcceptedPartition { stream, damage } in &partitions {
        let mut lines = vec![format!("stream       {stream}")];
        if let Some((first, last)) = damage.unproved().filter(|_| accepted.key) {
            lines.push(format!("accepted     records {first} to {last}, without a proof"));
        }
        if accepted.redaction {
            let positions: Vec<_> = damage.redacted.iter().map(ToString::to_string).collect();
            lines.push(format!("taken out    payloads of records {}", positions.join(", ")));
        }
        lines.push("on record    in sess-organism, and signed; start the organism\n".to_owned());
        put(&lines.join("\n"))?;
    }

    Ok(CommandExit::Done.into())
}

/// Returns the output for streams that have no damage of the accepted kinds. On JetStream, a MAC
/// with an earlier key of this host is no damage, because it counts as a MAC of another host.
fn nothing_accepted(accepted: AcceptedDamage) -> &'static str {
    if accepted.key {
        "no such damage to accept; nothing was recorded. A new key of this host needs no repair on \
         JetStream: name the earlier public key in `known_keys` under [journal], and make the new \
         one known to the other hosts (docs/OPERATIONS.md, Keys)\n"
    } else {
        "no such damage to accept; nothing was recorded\n"
    }
}

fn accepted_json(partition: &AcceptedPartition) -> serde_json::Value {
    let AcceptedPartition { stream, damage } = partition;
    let unproved = damage.unproved();
    json!({
        "stream": stream,
        "from": unproved.map(|(first, _)| first),
        "to": unproved.map(|(_, last)| last),
        "redacted": damage.redacted,
    })
}

fn summary(stream: &str, repair: &crate::journal::jetstream::StreamRepair) -> String {
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
            lines.push(format!("given up     what was acknowledged up to record {last}"));
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

    #[test]
    fn a_key_that_needs_no_acceptance_is_to_be_made_known() {
        let key = AcceptedDamage { key: true, ..AcceptedDamage::default() };
        assert!(nothing_accepted(key).contains("`known_keys`"));
        let redaction = AcceptedDamage { redaction: true, ..AcceptedDamage::default() };
        assert!(!nothing_accepted(redaction).contains("known_keys"));
    }
}
