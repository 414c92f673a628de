//! `organism replay`: makes each decision of the pump again, from the recorded input, and names the
//! first record that differs from the new decision.

use std::process::ExitCode;

use serde::Serialize;

use crate::audit::ChainBreak;
use crate::ids::Position;
use crate::journal::{Error, at_position};
use crate::organism;
use crate::organism::replay::{
    DecisionDifference, ReplayReport, ReplayVerdict, ReplayedEpoch, UndecidedReason, replay,
};
use crate::plural::form;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget};
use super::missing_partitions::noted_partitions_in;
use super::render::{RenderOutput, clean, count, progress_bar, put, put_json, put_visible_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Write one JSON value for each partition.
    #[arg(long)]
    json: bool,
}

/// Maximum number of epochs in the text for people. There is one epoch for each start of a pump.
/// JSON output contains all epochs.
const EPOCHS_SHOWN: usize = 20;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let data = journal_target::data_dir(&args.place)?;
    let mut exit = CommandExit::Done;
    for (partition, journal) in noted_partitions_in(&data) {
        let bar = progress_bar("", args.json);
        let replayed = replay(&journal, partition.unwrap_or_default(), &mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
        });
        bar.finish_and_clear();

        let found = match replayed {
            Ok(report) => {
                show(partition, &report, args.json)?;
                exit_of(report.verdict())
            }
            Err(organism::Error::Journal(Error::Broken { position, detail })) => {
                show_break(partition, ChainBreak { position, detail }, args.json)?;
                CommandExit::ChainBroken
            }
            Err(organism::Error::Journal(error)) => {
                return Err(journal_target::failed(error.in_journal(journal.display())));
            }
            Err(error) => return Err(error.into()),
        };
        exit = worse(exit, found);
    }

    Ok(exit.into())
}

fn exit_of(verdict: ReplayVerdict) -> CommandExit {
    match verdict {
        ReplayVerdict::Equal => CommandExit::Done,
        ReplayVerdict::Undecided => CommandExit::NotProved,
        ReplayVerdict::Differs => CommandExit::DecisionDiffers,
    }
}

/// Returns the worse of two exit codes. From worst to best, the order is: broken hash chain,
/// different decision, decisions that could not be made again, success.
fn worse(one: CommandExit, other: CommandExit) -> CommandExit {
    let order = [CommandExit::ChainBroken, CommandExit::DecisionDiffers, CommandExit::NotProved];
    order.into_iter().find(|exit| *exit == one || *exit == other).unwrap_or(CommandExit::Done)
}

/// The JSON output for the replay of one partition.
#[derive(Serialize)]
struct PartitionReplay<'r, R: Serialize> {
    #[serde(rename = "partition", skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(rename = "verdict")]
    verdict: &'static str,
    #[serde(flatten)]
    report: &'r R,
}

fn show(partition: Option<u32>, report: &ReplayReport, json: bool) -> anyhow::Result<()> {
    if json {
        let verdict = match report.verdict() {
            ReplayVerdict::Equal => "equal",
            ReplayVerdict::Undecided => "not-proved",
            ReplayVerdict::Differs => "differs",
        };
        return put_visible_json(&serde_json::to_value(PartitionReplay {
            partition,
            verdict,
            report,
        })?);
    }

    let output = RenderOutput::stdout(false);
    put(&format!("{}{}", title(&output, partition), summary(&output, report)))
}

fn show_break(partition: Option<u32>, broken: ChainBreak, json: bool) -> anyhow::Result<()> {
    if json {
        return put_json(&PartitionReplay { partition, verdict: "broken", report: &broken });
    }

    let output = RenderOutput::stdout(false);
    let at = at_position(broken.position);
    let text =
        format!("BROKEN{at}: {}; `organism verify` shows the whole proof", clean(&broken.detail));
    put(&format!("{}{}\n", title(&output, partition), output.red(&text)))
}

fn title(output: &RenderOutput, partition: Option<u32>) -> String {
    let title = partition.map(|partition| output.bold(&format!("partition {partition}")));
    title.map(|title| format!("{title}\n")).unwrap_or_default()
}

fn summary(output: &RenderOutput, report: &ReplayReport) -> String {
    let mut lines = vec![
        format!("journal      {}", report.journal),
        format!(
            "records      {} checked and folded, {} of them decided again",
            report.records,
            report.decided()
        ),
        format!(
            "epochs       {}, {} of them decided in full",
            report.epochs.len(),
            report.epochs.iter().filter(|epoch| epoch.folded == 0).count()
        ),
    ];
    if report.refusals > 0 {
        lines.push(format!(
            "refusals     {} taken as recorded: a refusal keeps only the first bytes of its payload",
            report.refusals
        ));
    }
    if report.redacted > 0 {
        let all = count(report.redacted, "payload");
        lines.push(format!("redacted     {all}, compared by digest"));
    }

    let undecided = report.epochs.iter().filter(|epoch| epoch.reason.is_some());
    lines.extend(undecided.clone().take(EPOCHS_SHOWN).map(|epoch| output.yellow(&line_of(epoch))));
    let hidden = undecided.count().saturating_sub(EPOCHS_SHOWN);
    if hidden > 0 {
        lines
            .push(format!("             and {}; --json lists them", count(hidden as u64, "epoch")));
    }

    lines.push(verdict_line(output, report));
    lines.push(String::new());
    lines.join("\n")
}

/// Draws a line about the decisions of one epoch that could not be made again: their number, and
/// the reason.
fn line_of(epoch: &ReplayedEpoch) -> String {
    let ReplayedEpoch { from, to, core_version, decided, folded, .. } = epoch;
    let reason = match &epoch.reason {
        Some(UndecidedReason::CoreVersion { program }) => {
            format!("its core has version {core_version}, and this program decides as {program}")
        }
        Some(UndecidedReason::Config { detail }) => clean(detail),
        Some(UndecidedReason::Redacted { position }) => {
            format!("a payload that position {position} needs was redacted")
        }
        Some(UndecidedReason::ZoneRules { position, zone }) => format!(
            "from position {position} on, a schedule was planned with other rules of {} than those of \
             this machine",
            clean(zone)
        ),
        Some(UndecidedReason::NoBoot) => "no boot stands before these records".to_owned(),
        None => String::new(),
    };
    let number = epoch.epoch;
    format!(
        "not decided  {folded} of {} in epoch {number} (positions {from} to {to}): {reason}",
        count(decided + folded, "record")
    )
}

fn verdict_line(output: &RenderOutput, report: &ReplayReport) -> String {
    match &report.difference {
        Some(difference) => output.red(&difference_text(difference)),
        None if report.verdict() == ReplayVerdict::Equal => output.green("equal"),
        None if report.records == 0 => output.yellow("NOT PROVED: the journal has no records"),
        None => output.yellow(&format!(
            "NOT PROVED: no difference was found, but {} {} not decided again",
            count(report.folded(), "record"),
            form(report.folded(), "was", "were")
        )),
    }
}

fn difference_text(difference: &DecisionDifference) -> String {
    let DecisionDifference { position, thread, part, recorded, decided } = difference;
    let shown = |value: &str| match value {
        "" => "nothing".to_owned(),
        value => clean(value),
    };
    if *position == Position(0) {
        return format!("DIFFERS: {part}");
    }
    format!(
        "DIFFERS at position {position} of {thread}, {part}\n  recorded: {}\n  decided:  {}",
        shown(recorded),
        shown(decided)
    )
}
