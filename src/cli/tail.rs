//! `organism tail`: shows messages as they are recorded.

use std::process::ExitCode;

use crate::audit::{BusyRefusals, MessageView, RefusalView};
use crate::ids::{Position, ThreadId};
use crate::journal::Sealed;
use crate::journal::sqlite::Reader;
use crate::limits;
use crate::thread::Fact;

use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget, known};
use super::output;
use super::render::{self, RenderOutput, put, put_json};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Show only this thread and its subthreads.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Number of records before the current end to start with.
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: u64,
    /// Stop at the current end.
    #[arg(long)]
    no_follow: bool,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one line of JSON for each message or refusal.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let within = args.thread.as_deref().map(known).transpose()?;
    let paper = RenderOutput::stdout(args.full);
    // Of each journal, how far it was shown.
    let mut seen: Vec<Position> = Vec::new();

    loop {
        // Opened anew each time: a reader that lingers would hold back the pump's housekeeping.
        let readers = journal_target::readers(&args.place)?;
        for reader in readers.iter().skip(seen.len()) {
            let last = reader.last().map_err(|error| journal_target::failed_in(reader, error))?;
            seen.push(Position(last.0.saturating_sub(args.lines)));
        }
        loop {
            let mut news = Vec::new();
            for (reader, seen) in readers.iter().zip(&mut seen) {
                news.extend(after(reader, seen)?);
            }
            if news.is_empty() {
                break;
            }
            if readers.len() > 1 {
                news.sort_by_key(|sealed| sealed.record.time);
            }
            for sealed in &news {
                show(sealed, within.as_ref(), &paper, args.json)?;
            }
        }
        if args.no_follow || output::is_closed() {
            return Ok(CommandExit::Done.into());
        }
        drop(readers);
        std::thread::sleep(limits::TAIL_INTERVAL);
    }
}

/// Reads the next batch of a journal's records. The batch is bounded so that other journals get
/// their turn.
fn after(reader: &Reader, seen: &mut Position) -> anyhow::Result<Vec<Sealed>> {
    let last = reader.last().map_err(|error| journal_target::failed_in(reader, error))?;
    if *seen >= last {
        return Ok(Vec::new());
    }

    let to = Position(last.0.min(seen.0 + limits::SCAN_RECORDS));
    let records = reader.records(Position(seen.0 + 1), to);
    let records = records.map_err(|error| journal_target::failed_in(reader, error))?;
    *seen = to;
    Ok(records)
}

fn show(
    Sealed { record, .. }: &Sealed,
    within: Option<&ThreadId>,
    paper: &RenderOutput,
    json: bool,
) -> anyhow::Result<()> {
    let inside = |thread: &ThreadId| within.is_none_or(|of| thread == of || thread.is_beneath(of));
    if let Some(busy) = BusyRefusals::of(record).filter(|_| inside(&record.tree)) {
        if json { put_json(&busy)? } else { put(&render::busy(paper, &busy))? }
    }
    for fact in &record.facts {
        match fact {
            Fact::Accepted { message, .. } if inside(&message.thread) => {
                let said = MessageView::new(record.position, message);
                if json { put_json(&said)? } else { put(&render::said(paper, &said))? }
            }
            Fact::Refused { sender, thread, refusal, .. }
                if inside(thread.as_ref().unwrap_or(&record.tree)) =>
            {
                let at = record.position;
                let time = record.time;
                let refused = RefusalView::new(at, time, sender, thread.as_ref(), refusal);
                if json { put_json(&refused)? } else { put(&render::refused(paper, &refused))? }
            }
            _ => {}
        }
    }
    Ok(())
}
