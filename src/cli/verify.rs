//! `organism verify`: proves the record, or says where it breaks.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::audit::{self, OutsideState, Report};
use crate::journal::partitions_in;

use super::exit::Exit;
use super::place::{self, Place};
use super::render::{Paper, clean, count, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// One JSON value, or one a line for each partition.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (data, state) = (place::data_dir(&args.place)?, place::state_dir(&args.place)?);
    let journals = partitions_in(&data);
    let mut broken = Vec::new();
    for (partition, journal) in &journals {
        let report = prove(journal, state.as_deref(), args.json)?;
        tell(*partition, &report, args.json)?;
        if report.broken.is_some() {
            broken.push(partition.map_or_else(String::new, |partition| partition.to_string()));
        }
    }
    if broken.is_empty() {
        return Ok(Exit::Done.into());
    }
    if journals.len() > 1 {
        eprintln!("broken: partition {} of the {} here", broken.join(", "), journals.len());
    }
    Ok(Exit::ChainBroken.into())
}

fn prove(data: &Path, state: Option<&Path>, json: bool) -> anyhow::Result<Report> {
    let bar = progress_bar(json);
    let report = audit::verify(data, state, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    report.map_err(place::failed)
}

fn tell(partition: Option<u32>, report: &Report, json: bool) -> anyhow::Result<()> {
    let paper = Paper::stdout(false);
    match partition {
        None if json => put_json(report),
        None => put(&summary(&paper, report)),
        Some(partition) if json => put_json(&InPartition { partition, report }),
        Some(partition) => {
            let title = paper.bold(&format!("partition {partition}"));
            put(&format!("{title}\n{}\n", summary(&paper, report)))
        }
    }
}

/// A line of JSON for each partition.
#[derive(Serialize)]
struct InPartition<'r> {
    partition: u32,
    #[serde(flatten)]
    report: &'r Report,
}

fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} records, {eta} left");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn summary(paper: &Paper, report: &Report) -> String {
    let tally = report.messages;
    let mut lines = vec![
        format!("journal      {}, epoch {}", report.journal, report.epoch),
        format!(
            "records      {} in {} of {}",
            report.records,
            count(report.trees as u64, "tree"),
            count(report.threads as u64, "thread")
        ),
        format!(
            "messages     {} accepted = {} settled + {} in flight; {} refused",
            tally.accepted, tally.settled, report.in_flight, tally.refused
        ),
        format!("checkpoints  {}{}", report.checkpoints, outside(report)),
    ];
    let keys = report.keys.iter().map(|key| format!("signed by    {key}"));
    lines.extend(keys.map(|line| paper.dim(&line)));
    if !report.redacted.is_empty() {
        let all = count(report.redacted.len() as u64, "payload");
        lines.push(format!("redacted     {all}, proved by digest"));
    }
    lines.push(match &report.broken {
        None => paper.green("ok"),
        Some(broken) => paper.red(&match broken.position {
            0 => format!("BROKEN: {}", clean(&broken.detail)),
            at => format!("BROKEN at position {at}: {}", clean(&broken.detail)),
        }),
    });
    lines.push(String::new());
    lines.join("\n")
}

fn outside(report: &Report) -> &'static str {
    match report.outside {
        OutsideState::NotCompared => "",
        OutsideState::Missing => ", none kept outside: a rewritten journal would not show",
        OutsideState::Agrees => ", those outside agree",
    }
}
