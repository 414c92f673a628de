//! `organism repair`: accepts damage of a journal, and records the acceptance. Without the
//! acceptance, the organism refuses to start on the damaged journal.

mod stream;

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;

use crate::config::{Config, StorageConfig};
use crate::ids::{PayloadName, ThreadId};
use crate::journal::sqlite::FoundJournal;
use crate::limits;
use crate::organism::repair::{AcceptedDamage, AcceptedKind, RepairedJournal, repair};
use crate::organism::{PayloadCopy, project};
use crate::plural::form;

use super::action_text::ActionText;
use super::exit::CommandExit;
use super::render::{count, put, put_json};
use super::startup::{self, ConfigArg};

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("accepted").multiple(true)))]
pub struct Args {
    #[command(flatten)]
    config: ConfigArg,
    /// Accept that records are lost. Also remove records at the end of the journal that no message
    /// authentication code (MAC) covers.
    #[arg(long, group = "accepted")]
    accept_loss: bool,
    /// Accept records that were not signed with this host's key, such as records of another host.
    /// On JetStream, also keep records that no message authentication code (MAC) covers.
    #[arg(long, group = "accepted")]
    accept_key: bool,
    /// Accept payloads as redacted if their bytes were overwritten with zeros.
    #[arg(long, group = "accepted", conflicts_with_all = ["accept_loss", "accept_key"])]
    accept_redaction: bool,
    /// On JetStream, the side to keep if this host's projection (its copy of the stream) has
    /// records that the stream lacks. Default: keep the projection, and publish its records again.
    /// Required if no MAC covers these records, or if projection and stream have different records
    /// at one position.
    #[arg(long, value_enum, conflicts_with = "accepted")]
    from: Option<stream::RepairSide>,
    /// On JetStream, the partitions whose streams may be repaired, such as 0,2. Default: all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "accepted")]
    partitions: Vec<u32>,
    /// Reason for the repair, which goes on record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: ActionText,
    /// Write one JSON value.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = args.config.load_to_repair()?;
    let note = args.note.as_str();
    let accepts = args.accept_loss || args.accept_key || args.accept_redaction;
    if !accepts {
        let partitions = startup::partitions(&config, args.partitions)?;
        return stream::run(&config, &partitions, args.from, note, args.json);
    }

    let accepted = AcceptedDamage {
        loss: args.accept_loss,
        redaction: args.accept_redaction,
        key: args.accept_key,
    };

    if let StorageConfig::JetStream { .. } = config.storage {
        return stream::accept(&config, accepted, note, args.json);
    }

    let repaired = repair(&config, accepted, note)?;

    match &repaired {
        None if args.json => put_json(&json!({ "repaired": null }))?,
        None => put(NOTHING_RECORDED)?,
        Some(repaired) if args.json => put_json(&json!({
            "repaired": {
                "kept_up_to": repaired.found.last,
                "acknowledged_up_to": repaired.found.loss.acknowledged,
                "journal_before": repaired.found.loss.journal,
                "checkpoints_put_back": repaired.found.put_back,
                "set_aside": repaired.found.set_aside,
                "redacted": repaired.redacted,
                "copies": repaired.copies,
                "covered_up_to": repaired.found.covered,
                "taken_out_to": repaired.found.taken_out.as_ref().map(|file| file.file.clone()),
            }
        }))?,
        Some(repaired) => put(&summary(&config, accepted, repaired))?,
    }

    Ok(CommandExit::Done.into())
}

const NOTHING_RECORDED: &str = "no such loss to accept; nothing was recorded\n";

fn summary(config: &Config, accepted: AcceptedDamage, repaired: &RepairedJournal) -> String {
    let found = &repaired.found;
    let mut lines = Vec::new();
    for kind in repaired.kinds(accepted) {
        match kind {
            AcceptedKind::Loss => lines.extend(loss_lines(found)),
            AcceptedKind::Redaction => {
                let positions: Vec<_> = repaired.redacted.iter().map(ToString::to_string).collect();
                lines.push(format!("taken out    payloads of records {}", positions.join(", ")));
            }
            AcceptedKind::Key => {
                let first = found.covered.0 + 1;
                let last = found.last;
                lines.push(format!(
                    "accepted     records {first} to {last}, kept with {}",
                    found.key
                ));
            }
        }
    }

    let is_recorded = !lines.is_empty();
    lines.extend(copy_lines(&repaired.copies, "take out those with the text that must go"));
    lines.push(last_line(config, is_recorded, NOTHING_RECORDED));
    lines.join("\n")
}

/// Returns the last line of the output of a repair. If nothing was recorded, returns `nothing`.
fn last_line(config: &Config, is_recorded: bool, nothing: &str) -> String {
    if !is_recorded {
        return nothing.to_owned();
    }

    // A journal that names no project may be repaired before its adoption.
    let next = match project::check(&config.directories()) {
        Err(project::Error::NoProject { .. }) => "run `organism adopt`, and then start",
        _ => "start",
    };
    format!("on record    in sess-organism, and signed; {next} the organism\n")
}

/// Makes lines that name the records with copies of redacted payloads, and what to do with them.
/// `advice` states how to take out a payload. Names at most [`limits::COPIES_SHOWN_MAX`] copies.
fn copy_lines(copies: &[PayloadCopy], advice: &str) -> Vec<String> {
    let (shown, rest) = copies.split_at(copies.len().min(limits::COPIES_SHOWN_MAX));
    let mut places: BTreeMap<(&ThreadId, &PayloadName), Vec<String>> = BTreeMap::new();
    for PayloadCopy { name, thread, position } in shown {
        places.entry((thread, name)).or_default().push(position.to_string());
    }

    let mut lines: Vec<_> = places
        .iter()
        .map(|((thread, name), positions)| {
            let positions = positions.join(", ");
            format!("still there  an equal <{}>, in records {positions} of {thread}", name.local)
        })
        .collect();
    if !rest.is_empty() {
        let more = rest.len();
        let copies = form(more, "copy", "copies");
        lines.push(format!("             and {more} more {copies}; `--json` lists all of them"));
    }
    if !lines.is_empty() {
        lines.push(format!("             look at these records, and {advice}"));
    }
    lines
}

fn loss_lines(found: &FoundJournal) -> Vec<String> {
    let mut lines = Vec::new();
    let loss = &found.loss;
    lines.push(format!("kept         records up to {}", found.last));

    match loss.journal {
        Some(journal) => lines.push(format!(
            "lost         the journal {journal}, with {}",
            count(loss.acknowledged.0, "record")
        )),
        None if loss.acknowledged > found.last => {
            let first = found.last.0 + 1;
            lines.push(format!("lost         records {first} to {}", loss.acknowledged));
        }
        None => {}
    }

    if let Some(out) = &found.taken_out {
        let file = out.file.display();
        lines.push(format!("taken out    records {} to {}, kept in {file}", out.first, out.last));
    }

    if found.put_back > 0 {
        lines.push(format!("put back     {}", count(found.put_back as u64, "checkpoint")));
    }

    if let Some(file) = &found.set_aside {
        lines.push(format!("set aside    {}", file.display()));
    }

    lines
}
