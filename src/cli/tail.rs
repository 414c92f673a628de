//! `organism tail`: shows messages as they are recorded.

mod live;
mod thread_calls;

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::audit::{BusyRefusals, MessageView, RefusalView};
use crate::clock::Time;
use crate::ids::{Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::limits;
use crate::service::{BearerSecret, LiveRequest};
use crate::thread::Fact;

use super::decision;
use super::exit::{CommandExit, CommandFailure};
use super::journal_target::{self, JournalTarget, known};
use super::missing_partitions;
use super::organism_reach;
use super::output;
use super::render::{self, RenderOutput, put, put_json};
use super::startup::{self, ConfigArg};
use crate::audit::past_time;
use thread_calls::ThreadCalls;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// Show only this thread and its subthreads.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Start with the last N records of the journal, or with the last N records before the time of
    /// --until. With several partitions, N records of each.
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    lines: u64,
    /// Start with the first record of this time or later. Forms: 2026-11-20, 2026-11-20T10:00, or
    /// 2h for two hours ago.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse, conflicts_with = "lines")]
    since: Option<Time>,
    /// Show what was recorded before this time, and stop.
    #[arg(long, value_name = "TIME", value_parser = past_time::parse, conflicts_with = "live")]
    until: Option<Time>,
    /// Stop after the last present record. Without this option, the command stops when the organism
    /// ends.
    #[arg(long)]
    no_follow: bool,
    /// Also show what model calls do now, and the text of models as it streams. The command waits
    /// until an organism runs, and ends with the organism or, with --thread, when the thread is
    /// over. Permitted for operators, and for clients in trees that they have opened.
    #[arg(long, conflicts_with = "no_follow")]
    live: bool,
    /// Client in whose name the command watches. The client must have opened the tree of the
    /// thread. Needed if the command cannot prove that it acts for an operator.
    #[arg(long = "as", value_name = "CLIENT", requires = "live", requires = "thread")]
    #[arg(conflicts_with = "sign")]
    client: Option<String>,
    /// File with an operator's key, which signs the request to watch. Needed if the organism does
    /// not recognise the sender of the request as an operator, for example over NATS.
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
    let is_following = !args.no_follow && args.until.is_none();
    let mut tail = JournalTail { args, data, within, output, seen: BTreeMap::new(), calls: None };
    tail.look_for_thread(is_following)?;

    match tail.show_new() {
        // This host may have no journal of the organism; `--live` watches its pumps on other hosts.
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
    /// Open calls of the watched thread; the command ends when none is left. `None` if the command
    /// does not track them: without `--live`, without a thread, or without a readable journal.
    calls: Option<ThreadCalls>,
}

impl JournalTail {
    /// Looks for the thread to show. If no record of the thread exists, a command that follows the
    /// journal prints a note, because the thread may begin later. Any other command fails, because
    /// nothing would be shown, and so does each command for a thread of a partition that is missing
    /// here. With `--live`, does nothing: [`Self::follow_calls`] looks for the thread.
    fn look_for_thread(&self, is_following: bool) -> anyhow::Result<()> {
        let Some(thread) = self.within.as_ref().filter(|_| !self.args.live) else { return Ok(()) };
        if journal_target::has_thread(&self.args.place, thread)? {
            return Ok(());
        }

        let place = &self.args.place;
        if is_following && !missing_partitions::is_missing(thread, &self.data) {
            note!("{thread} is not on record yet");
            return Ok(());
        }
        Err(journal_target::unknown(place, thread).into())
    }

    /// Shows new records until the organism ends or the watched thread is over.
    fn follow(&mut self) -> anyhow::Result<()> {
        let data = self.data.clone();
        if self.args.live {
            let signer = self.args.sign.as_deref().map(decision::signer_of).transpose()?;
            let request = self.live_request()?;
            let client = organism_reach::watching_client(&self.args.place, &data)?;
            // The organism may just have created the journal. Records after this read reach
            // `calls` through `show_new`.
            if let Err(error) = self.show_new() {
                tracing::debug!("no journal is read here: {error:#}");
            }
            self.follow_calls()?;
            if self.is_over() {
                note!("{} has ended; `organism thread {0}` shows it", request.signed_thread());
            } else {
                live::follow(self, &client, request, signer.as_ref())?;
            }
        } else {
            self.follow_records()?;
        }
        if output::is_closed() {
            return Ok(());
        }

        if self.is_over() {
            return Ok(());
        }

        // The last records may have come after the last read.
        self.show_new()?;
        organism_reach::note_read_once(&data, None);
        Ok(())
    }

    /// Makes the request for live events that the command's arguments describe.
    fn live_request(&self) -> anyhow::Result<LiveRequest> {
        let request = LiveRequest { thread: self.within.clone(), ..LiveRequest::default() };
        let Some(name) = self.args.client.as_deref() else { return Ok(request) };
        if self.args.place.data.is_some() {
            let message =
                "--as needs the config, which has the clients: name it in place of --data";
            return Err(CommandFailure::usage(message).into());
        }

        let config = ConfigArg { config: self.args.place.config.clone() }.load_without_keys()?;
        let client = startup::client(&config, Some(name))?;
        let secret = config.secret_of(&client).as_ref().map(BearerSecret::of);
        Ok(LiveRequest { client: Some(client), secret, ..request })
    }

    /// Begins to track the open calls of the watched thread, so that the command ends with the
    /// thread. Tracks nothing if this machine has no readable journal; the command then does not
    /// notice the end of the thread.
    fn follow_calls(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.within.clone() else { return Ok(()) };
        let mut calls = ThreadCalls::new(thread.clone());
        let Ok(readers) = journal_target::readers_in(&self.args.place, &self.data) else {
            return Ok(());
        };
        for (_, reader) in &readers {
            let records = reader.tree(&thread.root(), None);
            let records = records.map_err(|error| journal_target::failed_in(reader, error))?;
            records.iter().for_each(|sealed| calls.take(&sealed.record));
        }
        if !calls.is_known() {
            note!("{thread} is not on record yet; waiting for it");
        }
        self.calls = Some(calls);
        Ok(())
    }

    /// Whether the watched thread is over. Always false if the command does not track the open
    /// calls of the thread.
    fn is_over(&self) -> bool {
        self.calls.as_ref().is_some_and(ThreadCalls::is_over)
    }

    fn follow_records(&mut self) -> anyhow::Result<()> {
        let mut shown = Ok(());
        let data = self.data.clone();
        organism_reach::follow(&data, |partition, position| {
            if !self.has_shown(partition, position) {
                shown = self.show_new();
            }
            if shown.is_err() || output::is_closed() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        shown
    }

    /// Whether the command has already shown the records up to this position.
    fn has_shown(&self, partition: u32, position: Position) -> bool {
        self.seen.get(&partition).is_some_and(|seen| *seen >= position)
    }

    /// Shows every record that the command has not shown yet, in the order of time. Stops early if
    /// the reader of the output has closed it.
    fn show_new(&mut self) -> anyhow::Result<()> {
        // Opened for each read, because a reader that stays open delays the pump's checkpoints of
        // the database.
        let readers = journal_target::readers_in(&self.args.place, &self.data)?;
        for (partition, reader) in &readers {
            if !self.seen.contains_key(partition) {
                let begin = self.begin(reader);
                let begin = begin.map_err(|error| journal_target::failed_in(reader, error))?;
                self.seen.insert(*partition, begin);
            }
        }

        let with_queue = |(partition, reader)| (partition, reader, VecDeque::new());
        let mut journals: Vec<_> = readers.into_iter().map(with_queue).collect();
        while !output::is_closed() {
            for (partition, reader, read) in &mut journals {
                if read.is_empty()
                    && let Some(seen) = self.seen.get_mut(partition)
                {
                    read.extend(after(reader, seen, self.args.until)?);
                }
            }
            journals.retain(|(_, _, read)| !read.is_empty());

            // The records of one journal keep their order, even where their times do not increase.
            let next = journals.iter_mut().map(|(_, _, read)| read);
            let next = next.min_by_key(|read| read.front().map(|sealed| sealed.record.time));
            let Some(sealed) = next.and_then(VecDeque::pop_front) else { break };
            if let Some(calls) = &mut self.calls {
                calls.take(&sealed.record);
            }
            show(&sealed, self.within.as_ref(), &self.output, self.args.json)?;
        }
        Ok(())
    }

    /// Returns the position after which the output begins.
    fn begin(&self, reader: &JournalReader) -> Result<Position, Error> {
        if let Some(since) = self.args.since {
            return Ok(Position(reader.first_since(since)?.0.saturating_sub(1)));
        }
        let end = end_of(reader, self.args.until)?;
        Ok(Position(end.0.saturating_sub(self.args.lines)))
    }
}

/// Returns the position of the last record before `until`. Without `until`, returns the last
/// position of the journal.
fn end_of(reader: &JournalReader, until: Option<Time>) -> Result<Position, Error> {
    match until {
        Some(until) => Ok(Position(reader.first_since(until)?.0.saturating_sub(1))),
        None => reader.last(),
    }
}

/// Reads the records after the position `seen` and, if `until` is given, before this time. Reads at
/// most `limits::SCAN_RECORDS` records, so that they fit into memory. Sets `seen` to the position
/// of the last record that was read.
fn after(
    reader: &JournalReader,
    seen: &mut Position,
    until: Option<Time>,
) -> anyhow::Result<Vec<HashedRecord>> {
    let last = end_of(reader, until);
    let last = last.map_err(|error| journal_target::failed_in(reader, error))?;
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
    let inside = |thread: &ThreadId| within.is_none_or(|of| thread.is_within(of));
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
