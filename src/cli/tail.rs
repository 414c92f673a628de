//! `organism tail`: shows messages as they are recorded.

mod live;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::audit::{BusyRefusals, MessageView, RefusalView};
use crate::ids::{Position, ThreadId};
use crate::journal::HashedRecord;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::thread::Fact;

use super::decision;
use super::exit::CommandExit;
use super::journal_target::{self, JournalTarget, known};
use super::organism_reach;
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
    /// Stop at the current end; without it, at the end of the organism.
    #[arg(long)]
    no_follow: bool,
    /// Show what model calls do now, and text as it streams. For operators.
    #[arg(long, conflicts_with = "no_follow")]
    live: bool,
    /// Prove an operator with this key, where nothing else does.
    #[arg(long, value_name = "FILE", requires = "live")]
    sign: Option<PathBuf>,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one line of JSON for each message or refusal.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let within = args.thread.as_deref().map(known).transpose()?;
    let data = journal_target::data_dir(&args.place)?;
    let output = RenderOutput::stdout(args.full);
    let is_following = !args.no_follow;
    let mut tail = JournalTail { args, data, within, output, seen: BTreeMap::new() };

    match tail.show_new() {
        // On a host without a journal of the organism, its pumps elsewhere are watched.
        Err(error) if tail.args.live => note!("messages are not shown: {error:#}"),
        shown => shown?,
    }
    if is_following && !output::is_closed() {
        tail.follow()?;
    }
    Ok(CommandExit::Done.into())
}

struct JournalTail {
    args: Args,
    data: PathBuf,
    within: Option<ThreadId>,
    output: RenderOutput,
    /// For each partition, the position up to which its journal was shown.
    seen: BTreeMap<u32, Position>,
}

impl JournalTail {
    /// Shows new records as long as an organism runs that writes them.
    fn follow(&mut self) -> anyhow::Result<()> {
        let data = self.data.clone();
        match self.args.live {
            true => {
                let signer = self.args.sign.as_deref().map(decision::signer_of).transpose()?;
                let client = organism_reach::watching_client(&self.args.place, &data)?;
                live::follow(self, &client, signer.as_ref())?;
            }
            false => self.follow_records()?,
        }
        if output::is_closed() {
            return Ok(());
        }

        // The last records may have come after the last read.
        self.show_new()?;
        organism_reach::note_read_once(&data, None);
        Ok(())
    }

    fn follow_records(&mut self) -> anyhow::Result<()> {
        let mut shown = Ok(());
        let data = self.data.clone();
        organism_reach::follow(&data, |partition, position| {
            if !self.has_shown(partition, position) {
                shown = self.show_new();
            }
            match shown.is_err() || output::is_closed() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        shown
    }

    /// Whether an earlier read has shown the records up to this position.
    fn has_shown(&self, partition: u32, position: Position) -> bool {
        self.seen.get(&partition).is_some_and(|seen| *seen >= position)
    }

    /// Shows every record that has not been shown yet.
    fn show_new(&mut self) -> anyhow::Result<()> {
        // Opened for each read, because a reader that stays open delays the pump's checkpoints of
        // the database.
        let readers = journal_target::readers_in(&self.args.place, &self.data)?;
        for (partition, reader) in &readers {
            if !self.seen.contains_key(partition) {
                let last =
                    reader.last().map_err(|error| journal_target::failed_in(reader, error))?;
                let begin = Position(last.0.saturating_sub(self.args.lines));
                self.seen.insert(*partition, begin);
            }
        }
        loop {
            let mut records = Vec::new();
            for (partition, reader) in &readers {
                if let Some(seen) = self.seen.get_mut(partition) {
                    records.extend(after(reader, seen)?);
                }
            }
            if records.is_empty() {
                return Ok(());
            }

            if readers.len() > 1 {
                records.sort_by_key(|sealed| sealed.record.time);
            }
            for sealed in &records {
                show(sealed, self.within.as_ref(), &self.output, self.args.json)?;
            }
        }
    }
}

/// Reads the next batch of records. The size of a batch is bounded, so that the other journals get
/// their turn.
fn after(reader: &JournalReader, seen: &mut Position) -> anyhow::Result<Vec<HashedRecord>> {
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
    HashedRecord { record, .. }: &HashedRecord,
    within: Option<&ThreadId>,
    output: &RenderOutput,
    json: bool,
) -> anyhow::Result<()> {
    let inside = |thread: &ThreadId| within.is_none_or(|of| thread == of || thread.is_beneath(of));
    if let Some(busy) = BusyRefusals::of(record).filter(|_| inside(&record.tree)) {
        if json { put_json(&busy)? } else { put(&render::busy(output, &busy))? }
    }
    for fact in &record.facts {
        match fact {
            Fact::Accepted { message, .. } if inside(&message.thread) => {
                let view = MessageView::new(record.position, message);
                if json { put_json(&view)? } else { put(&render::draw_message(output, &view))? }
            }
            Fact::Refused { sender, thread, refusal, .. }
                if inside(thread.as_ref().unwrap_or(&record.tree)) =>
            {
                let at = record.position;
                let time = record.time;
                let refused = RefusalView::new(at, time, sender, thread.as_ref(), refusal);
                if json { put_json(&refused)? } else { put(&render::refused(output, &refused))? }
            }
            _ => {}
        }
    }
    Ok(())
}
