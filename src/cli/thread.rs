//! `organism thread`: shows one thread and its subthreads for people.

use std::process::ExitCode;

use crate::audit::{self, EventClass, RecordedMoment, ThreadTimeline};
use crate::ids::{Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::journal::sqlite::JournalReader;
use crate::limits;

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::{self, JournalTarget, known, unknown};
use super::named_config;
use super::render::{RenderOutput, ThreadPart, TimelineColumns, draw_timeline, put, put_json};
use super::startup;
use crate::audit::past_time;

/// Number of events on a page if `--limit` states no other number.
const PAGE_EVENTS: usize = 500;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// The thread. Default: the newest.
    #[arg(value_name = "ID")]
    thread: Option<String>,
    /// Show the thread as it was after this position, or at this time, such as 2026-11-20T10:00, or
    /// 2h for two hours ago.
    #[arg(long, value_name = "MOMENT")]
    at: Option<String>,
    /// Begin at the message with this sequence number.
    #[arg(long, value_name = "N")]
    from_seq: Option<u64>,
    /// Show a page of about N events, including those of subthreads. The number is not exact,
    /// because each further page begins with a message. Default: 500 events, or all events with
    /// --json.
    #[arg(
        long,
        value_name = "N",
        value_parser = startup::at_least_one,
        allow_negative_numbers = true
    )]
    limit: Option<usize>,
    /// Show the last page.
    #[arg(long, conflicts_with = "from_seq")]
    last: bool,
    /// Show all events.
    #[arg(long, conflicts_with_all = ["limit", "last"])]
    all: bool,
    /// Show only events of these classes, separated by commas: calls, replies, self, notes, system,
    /// refused, model, failed, decisions, timers.
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', value_parser = event_class)]
    only: Vec<EventClass>,
    /// Show the position of each event, and the id of each message.
    #[arg(long)]
    ids: bool,
    /// Show times with date and zone.
    #[arg(long)]
    absolute: bool,
    /// Show whole payloads.
    #[arg(long)]
    full: bool,
    /// Write one JSON value. For sess-organism, which each partition has, write one for each
    /// partition.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let thread = match &args.thread {
        Some(text) => known(text)?,
        None => newest(&journal_target::readers(&args.place)?)?.ok_or_else(|| {
            let text = "no thread is on record yet; `organism send` starts one";
            CommandFailure::usage(text)
        })?,
    };
    let at = args.at.as_deref().map(moment).transpose()?;
    if let Some(RecordedMoment::Position(position)) = at {
        require_position(&args.place, &thread, position)?;
    }

    let mut found = false;
    let readers = journal_target::partition_readers_of(&args.place, &thread)?;
    let is_of_several = readers.len() > 1;
    for (partition, reader) in readers {
        let page = first_page(&args, &reader, &thread);
        let timeline = match page {
            Some(page) => page,
            None => {
                let timeline = audit::thread_timeline(&reader, &thread, at);
                let timeline =
                    timeline.map_err(|error| journal_target::failed_in(&reader, error))?;
                let Some(mut timeline) = timeline else { continue };
                select(&args, &mut timeline);
                timeline
            }
        };
        found = true;
        indexed::note_pauses_in(reader.data());

        if args.json {
            put_json(&timeline)?;
        } else {
            let shown = TimelineColumns { ids: args.ids, absolute: args.absolute };
            let journal = named_config::option_or_data(args.place.data.as_deref());
            let part = ThreadPart { at, only: args.only.clone(), journal };
            if is_of_several {
                put(&format!("partition {partition}\n"))?;
            }
            put(&draw_timeline(&RenderOutput::stdout(args.full), &timeline, shown, &part))?;
        }
    }

    match at {
        _ if found => Ok(CommandExit::Done.into()),
        Some(_) => Err(not_yet(&args, &thread)?.into()),
        None => Err(unknown(&args.place, &thread).into()),
    }
}

/// Reads the first page of a long thread from the index. Returns `None` in these cases:
///
/// - The arguments do not select exactly this page.
/// - The thread is so short that the index would save no time.
/// - The index is unusable, or lacks many records.
fn first_page(args: &Args, reader: &JournalReader, thread: &ThreadId) -> Option<ThreadTimeline> {
    let is_first = args.at.is_none()
        && args.from_seq.is_none()
        && args.only.is_empty()
        && !(args.all || args.last);
    let limit = args.limit.or((!args.json).then_some(PAGE_EVENTS)).filter(|_| is_first)?;
    let records = reader.records_of(&thread.root()).ok()?;
    if records < limits::INDEX_PAGE_RECORDS {
        return None;
    }

    let mut make = |index: &mut IndexReader| audit::first_page(index, thread, limit);
    index::read_if_current(reader.data(), &mut make).flatten()
}

/// Removes the parts of a timeline that the arguments do not select.
fn select(args: &Args, timeline: &mut ThreadTimeline) {
    if !args.only.is_empty() {
        timeline.restrict(&args.only);
    }

    let default = if args.json { usize::MAX } else { PAGE_EVENTS };
    let limit = if args.all { usize::MAX } else { args.limit.unwrap_or(default) };
    if args.last {
        timeline.keep_last(args.limit.unwrap_or(PAGE_EVENTS));
    } else {
        timeline.keep_page(args.from_seq.unwrap_or_default(), limit);
    }
}

/// Makes the failure for a thread that had no record yet at the moment of `--at`.
fn not_yet(args: &Args, thread: &ThreadId) -> anyhow::Result<CommandFailure> {
    for reader in journal_target::readers_of(&args.place, thread)? {
        let timeline = audit::thread_timeline(&reader, thread, None);
        let timeline = timeline.map_err(|error| journal_target::failed_in(&reader, error))?;
        let first = timeline.as_ref().and_then(|timeline| timeline.items.first());
        if let Some(first) = first {
            let text = format!(
                "thread {thread} was opened later: its first record is at position {}, {}",
                first.position, first.at
            );
            return Ok(CommandFailure::usage(text));
        }
    }

    Ok(unknown(&args.place, thread))
}

/// Parses a moment, which is either a position of the journal or a time.
fn moment(text: &str) -> anyhow::Result<RecordedMoment> {
    if let Ok(position) = text.parse() {
        return Ok(RecordedMoment::Position(Position(position)));
    }

    let time = past_time::parse(text).map_err(|_| {
        let text = format!("`{text}` is no moment; write a position, {}", past_time::FORMS);
        CommandFailure::usage(text)
    })?;
    Ok(RecordedMoment::Time(time))
}

/// Fails if `position` lies beyond the end of all journals that may have records of the thread. If
/// the partition of the thread is missing here, or its copy is not kept up to date, the end of its
/// journal is unknown, and the error states that.
fn require_position(
    place: &JournalTarget,
    thread: &ThreadId,
    position: Position,
) -> anyhow::Result<()> {
    let readers = journal_target::readers_of(place, thread)?;
    let mut last = Position(0);
    for reader in &readers {
        let here = reader.last().map_err(|error| journal_target::failed_in(reader, error))?;
        last = last.max(here);
    }
    if readers.is_empty() || position <= last {
        return Ok(());
    }

    if let Some(gap) = journal_target::explain_gap(place, thread) {
        let text = format!("position {position} is not in the journals here; {gap}");
        return Err(CommandFailure::new(CommandExit::Unavailable, text).into());
    }
    let text = format!("position {position} is not on record; the last is {last}");
    Err(CommandFailure::usage(text).into())
}

fn event_class(text: &str) -> Result<EventClass, String> {
    EventClass::parse(text).ok_or_else(|| {
        format!("no such class; there are {}", EventClass::ALL.map(EventClass::as_str).join(", "))
    })
}

fn newest(readers: &[JournalReader]) -> anyhow::Result<Option<ThreadId>> {
    let mut trees = Vec::new();
    for reader in readers {
        let here = reader.trees().map_err(|error| journal_target::failed_in(reader, error))?;
        trees.extend(here);
    }

    trees.retain(|tree| tree.root != ThreadId::organism());
    let newest = match readers {
        [_] => trees.into_iter().max_by_key(|tree| tree.first),
        _ => trees.into_iter().max_by_key(|tree| tree.opened),
    };

    Ok(newest.map(|tree| tree.root))
}
