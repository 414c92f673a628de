//! `organism verify`: verifies the hash chains and signatures of the journal, or reports where the
//! verification fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::audit::{self, OutsideVerdict, ProofReport, ProofVerdict, RecordedLoss, VerifyOptions};
use crate::config::{self, ConfigEnvironment, StorageConfig};
use crate::ids::Position;
use crate::io_reason::io_reason;
use crate::journal::{Error, KeyId, at_position, jetstream, partitions_in, readable_key_warning};
use crate::nats;

use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::missing_in;
use super::render::{RenderOutput, clean, count, one_line, progress_bar, put, put_json};
use super::startup;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of a copy that `organism backup` made. The command verifies this copy instead of
    /// the journal, with the key of this organism.
    #[arg(value_name = "DIR", conflicts_with_all = ["data", "state", "stream"])]
    directory: Option<PathBuf>,
    #[command(flatten)]
    place: JournalTarget,
    /// File with copies of checkpoints, which are signed statements of how far the journal went.
    /// The command compares the journal with these copies. May be given several times.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// Public key whose signatures the command trusts. If this option is given, the command trusts
    /// no other keys. May be given several times.
    #[arg(long, value_name = "HEX")]
    key: Vec<String>,
    /// Ignore the copies of checkpoints in the state directory. They are stored beside the signing
    /// key, so an owner of the key could have changed these copies and signed them again.
    #[arg(long)]
    distrust_state: bool,
    /// Also compare this host's projection, which is its copy of the JetStream stream, with the
    /// stream.
    #[arg(long)]
    stream: bool,
    /// Write one JSON value for each partition.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = match &args.directory {
        Some(directory) => directory.join("data"),
        None => journal_target::data_dir(&args.place)?,
    };

    // A copy may be proved on a machine without a config.
    let around = ConfigEnvironment::of_process();
    let is_found = config::locate(args.place.config.as_deref(), &around).is_ok();
    let key_state = if args.directory.is_some() && !is_found {
        None
    } else {
        journal_target::state_dir(&args.place)?
    };

    if let Some(warning) = key_state.as_deref().and_then(readable_key_warning) {
        note!("note: {warning}");
    }
    require_copies(&args.checkpoint)?;
    let settings = journal_target::proof_settings(&args.place)?;
    if let Some(key) = args.key.iter().find(|key| !config::is_public_key(key)) {
        let text = format!(
            "`{key}` is not a public key: --key takes the 64 hexadecimal digits that `organism key \
             show` prints"
        );
        return Err(CommandFailure::usage(text).into());
    }

    let options = VerifyOptions {
        state: args.directory.as_ref().map(|copy| copy.join("state")).or(key_state.clone()),
        key_state,
        copies: args.checkpoint.clone(),
        keys: args.key.clone(),
        known_keys: settings.known_keys,
        checkpoints: settings.checkpoints,
        is_backup: args.directory.is_some(),
        distrust_state: args.distrust_state,
    };

    let streams = if args.stream { Some(ComparedStreams::of(&args.place)?) } else { None };

    let journals = partitions_in(&data);
    let mut broken = Vec::new();
    let mut verdict = ProofVerdict::Proved;

    for (partition, journal) in &journals {
        let mut report = prove(journal, &options, args.json)?;
        if let Some(streams) = &streams {
            streams.compare(partition.unwrap_or_default(), journal, &mut report)?;
        }
        print_report(*partition, &report, args.json)?;
        verdict = worse(verdict, report.verdict);
        if report.verdict == ProofVerdict::Broken {
            let number = partition.map(|partition| partition.to_string());
            broken.push(number.unwrap_or_default());
        }
    }

    if !broken.is_empty() && journals.len() > 1 {
        note!("broken: partition {} of the {} here", broken.join(", "), journals.len());
    }

    let missing = verdict_on_missing(&data, options.state.as_deref())?;
    Ok(match worse(verdict, missing) {
        ProofVerdict::Proved => CommandExit::Done,
        ProofVerdict::NotProved => CommandExit::NotProved,
        ProofVerdict::Broken => CommandExit::ChainBroken,
    }
    .into())
}

/// Prints a line about each partition without a journal in `data`. Returns the worst verdict on
/// these partitions. The verdict on a partition is `Broken` if the state directory shows that this
/// host has lost the partition's journal, and otherwise `NotProved`.
fn verdict_on_missing(data: &Path, state: Option<&Path>) -> anyhow::Result<ProofVerdict> {
    let mut verdict = ProofVerdict::Proved;
    for missing in missing_in(data, state)? {
        let (own, text) = match missing.lost {
            Some(_) => (ProofVerdict::Broken, "BROKEN"),
            None => (ProofVerdict::NotProved, "NOT PROVED"),
        };
        note!("{text}: {}", missing.explanation());
        verdict = worse(verdict, own);
    }
    Ok(verdict)
}

fn worse(one: ProofVerdict, other: ProofVerdict) -> ProofVerdict {
    match (one, other) {
        (ProofVerdict::Broken, _) | (_, ProofVerdict::Broken) => ProofVerdict::Broken,
        (ProofVerdict::NotProved, _) | (_, ProofVerdict::NotProved) => ProofVerdict::NotProved,
        (ProofVerdict::Proved, ProofVerdict::Proved) => ProofVerdict::Proved,
    }
}

/// Fails if one of the `files` with copies of checkpoints does not exist or is not accessible.
/// Without this check, such a file would count as a copy that contradicts the journal, although a
/// missing file proves nothing.
fn require_copies(files: &[PathBuf]) -> anyhow::Result<()> {
    for file in files {
        std::fs::metadata(file).map_err(|error| {
            let reason = io_reason(&error);
            let text = format!("the checkpoints in {} cannot be read: {reason}", file.display());
            CommandFailure::new(CommandExit::Unavailable, text)
        })?;
    }
    Ok(())
}

/// Access to the JetStream streams of the journal, with which `--stream` compares this host's
/// copies (its projections).
struct ComparedStreams {
    servers: nats::Options,
    journal: jetstream::Options,
}

impl ComparedStreams {
    fn of(place: &JournalTarget) -> anyhow::Result<Self> {
        match startup::storage(place.config.as_deref())? {
            StorageConfig::JetStream { servers, journal } => {
                Ok(Self { servers: *servers, journal })
            }
            StorageConfig::Embedded => {
                let text = "--stream is for a journal on JetStream, and the journal of this config \
                            is in a file";
                Err(CommandFailure::usage(text).into())
            }
        }
    }

    fn compare(&self, partition: u32, data: &Path, report: &mut ProofReport) -> anyhow::Result<()> {
        let journal = jetstream::Options { partition, ..self.journal.clone() };
        match jetstream::compare_with_stream(&self.servers, &journal, data) {
            Ok(agreement) => report.stream_agrees(agreement.ahead),
            Err(Error::Broken { position, detail }) => report.stream_differs(position, detail),
            Err(error) => return Err(journal_target::failed(error)),
        }

        Ok(())
    }
}

fn prove(data: &Path, options: &VerifyOptions, json: bool) -> anyhow::Result<ProofReport> {
    let bar = progress_bar("", json);
    let report = audit::verify_with(data, options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report.map_err(|error| match error {
        Error::Missing { .. } if options.is_backup => {
            let text = format!("{error}; name the directory of a copy that `organism backup` made");
            CommandFailure::new(CommandExit::Unavailable, text).into()
        }
        error => journal_target::failed(error),
    })
}

fn print_report(partition: Option<u32>, report: &ProofReport, json: bool) -> anyhow::Result<()> {
    let output = RenderOutput::stdout(false);
    match partition {
        None if json => put_json(report),
        None => put(&summary(&output, report)),
        Some(partition) if json => put_json(&PartitionProof { partition, report }),
        Some(partition) => {
            let title = output.bold(&format!("partition {partition}"));
            put(&format!("{title}\n{}\n", summary(&output, report)))
        }
    }
}

/// The JSON output for the verification of one partition.
#[derive(Serialize)]
struct PartitionProof<'r> {
    #[serde(rename = "partition")]
    partition: u32,
    #[serde(flatten)]
    report: &'r ProofReport,
}

fn summary(output: &RenderOutput, report: &ProofReport) -> String {
    let tally = report.messages;
    let mut lines = vec![match report.journal {
        Some(journal) => format!("journal      {journal}, epoch {}", report.epoch),
        None => "journal      its id and its epoch cannot be read".to_owned(),
    }];
    // A proof that fails early has no counts to show.
    if report.broken.is_none() || report.records > 0 {
        let with_organism = if report.trees > 0 { ", with sess-organism" } else { "" };
        lines.extend([
            format!(
                "records      {} in {} of {}{with_organism}",
                report.records,
                count(report.trees as u64, "tree"),
                count(report.threads as u64, "thread")
            ),
            format!(
                "messages     {} accepted = {} settled + {} in flight; {} refused",
                tally.accepted, tally.settled, report.in_flight, tally.refused
            ),
            format!("checkpoints  {}{}", report.checkpoints, outside(report)),
        ]);
    }
    let keys = report.keys.iter();
    let keys = keys.map(|key| format!("signed by    {key} (id {})", KeyId::of(key)));
    lines.extend(keys.map(|line| output.dim(&line)));
    if !report.redacted.is_empty() {
        let all = count(report.redacted.len() as u64, "payload");
        lines.push(format!("redacted     {all}, proved by digest"));
    }

    let copies = report.copies.iter().map(|path| one_line(&path.display().to_string()));
    lines.extend(copies.map(|path| format!("compared     {path}")));
    if report.vouched > Position(0) {
        lines.push(format!("vouched for  up to record {}, by a copy elsewhere", report.vouched));
    }

    lines.extend(key_lines(report));
    let losses = report.losses.iter();
    lines.extend(losses.map(loss_line));

    let accepted = report.accepted.iter();
    lines.extend(accepted.map(|records| {
        let first = records.first;
        let last = records.last;
        let macs = match records.keys.as_slice() {
            [] => "which no MAC of a pump covers".to_owned(),
            [key] => format!("whose MACs name the key id {key}"),
            keys => format!("whose MACs name the key ids {}", keys.join(" and ")),
        };
        format!("accepted     records {first} to {last}, {macs}, by an operator")
    }));
    if report.broken.is_some() {
        let reasons = report.unproved.iter();
        lines.extend(reasons.map(|reason| format!("not proved   {}", clean(reason))));
    }
    lines.push(match &report.broken {
        None if report.verdict == ProofVerdict::Proved => output.green("ok"),
        None => {
            let reasons = report.unproved.iter().map(|reason| clean(reason));
            output.yellow(&format!("NOT PROVED: {}", reasons.collect::<Vec<_>>().join("; ")))
        }
        Some(broken) => {
            let at = at_position(broken.position);
            output.red(&format!("BROKEN{at}: {}", clean(&broken.detail)))
        }
    });
    lines.push(String::new());
    lines.join("\n")
}

/// Returns the line about a loss of records that an operator has accepted.
fn loss_line(loss: &RecordedLoss) -> String {
    let RecordedLoss { kept, acknowledged, journal, is_fork } = loss;
    if *is_fork {
        let first = kept.0 + 1;
        return format!(
            "given up     records {first} to {acknowledged} of another copy, in whose place the \
             journal has others; accepted by an operator"
        );
    }

    let journal = journal.map(|journal| format!(" of the journal {journal}"));
    let journal = journal.unwrap_or_default();
    format!(
        "lost         records after {kept} up to {acknowledged}{journal}, accepted by an operator"
    )
}

/// Draws one line for each change of the signing key. Then draws one line for each unavailable key
/// that signed checkpoints or made MACs.
fn key_lines(report: &ProofReport) -> Vec<String> {
    let changes = report.key_changes.windows(2).filter_map(|pair| match pair {
        [(_, before), (at, after)] => {
            let before = KeyId::of(before);
            let after = KeyId::of(after);
            Some(format!("key changed  at {at}: id {before} to id {after}"))
        }
        _ => None,
    });
    let unknown = report.unknown_keys.iter().map(|key| format!("unknown key  id {key}"));
    changes.chain(unknown).collect()
}

fn outside(report: &ProofReport) -> &'static str {
    match report.outside {
        OutsideVerdict::NotCompared => "",
        OutsideVerdict::Missing => {
            ", none outside the journal: a rewritten journal would not be detected"
        }
        OutsideVerdict::StateAgrees => ", those in the state directory agree",
        OutsideVerdict::Agrees => ", those outside agree",
        OutsideVerdict::Disagrees => ", and one outside disagrees",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn records_line(trees: usize) -> String {
        let report = ProofReport {
            verdict: ProofVerdict::Proved,
            unproved: Vec::new(),
            journal: Some(uuid::Uuid::nil()),
            epoch: 1,
            records: trees as u64,
            trees,
            threads: trees,
            messages: Default::default(),
            in_flight: 0,
            redacted: Vec::new(),
            blobs: 0,
            checkpoints: 0,
            outside: OutsideVerdict::NotCompared,
            vouched: Position(0),
            copies: Vec::new(),
            covered: Position(0),
            keys: BTreeSet::new(),
            key_changes: Vec::new(),
            unknown_keys: BTreeSet::new(),
            losses: Vec::new(),
            accepted: Vec::new(),
            broken: None,
        };
        let text = summary(&RenderOutput::stdout(false), &report);
        text.lines().find(|line| line.starts_with("records")).unwrap_or_default().to_owned()
    }

    #[test]
    fn the_counts_of_an_empty_journal_do_not_name_the_thread_of_the_organism() {
        assert_eq!(records_line(0), "records      0 in 0 trees of 0 threads");
        assert_eq!(records_line(1), "records      1 in 1 tree of 1 thread, with sess-organism");
    }
}
