//! `organism threads`: lists the trees of threads, from the index.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::audit::{PageCursor, PagedTree, ThreadPhase, TreePage, thread_state};
use crate::envelope::Money;
use crate::ids::Position;
use crate::index::{ListedTree, PausedPart, TreeFilter, check_words};

use super::exit::{CommandExit, CommandFailure};
use super::indexed;
use super::journal_target::JournalTarget;
use super::render::{RenderOutput, clean, duration, put, put_json, second_of, table};
use super::{startup, thread_query};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: JournalTarget,
    /// List only trees with a message that contains these words, in the syntax of `organism
    /// search`.
    #[arg(value_name = "WORDS")]
    words: Vec<String>,
    /// List only trees with this status: idle, running, draining, completed, failed or cancelled.
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// List only trees with records from this moment on, such as 2026-11-20 or
    /// 2026-11-20T10:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List only trees that were opened before this moment.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// List only trees in which this listener was called.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// List only trees in which this agent took a turn.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// List only trees that contain this payload, named with or without its {namespace}.
    #[arg(long, value_name = "NAME")]
    payload: Option<String>,
    /// List only trees whose model calls cost more than this amount, in the currency of the
    /// config's prices. Costs that were recorded in earlier currencies are compared as plain
    /// numbers.
    #[arg(
        long,
        value_name = "AMOUNT",
        value_parser = thread_query::amount,
        allow_negative_numbers = true
    )]
    cost_over: Option<Money>,
    /// List only trees in which an attempt or a call failed.
    #[arg(long)]
    errors: bool,
    /// List only trees in which a call waits for a person.
    #[arg(long)]
    needs_you: bool,
    /// Also show refusals, tokens, cost, first words and the reasons of failures.
    #[arg(long)]
    wide: bool,
    /// Maximum number of trees; those with the newest records are listed, newest last.
    #[arg(
        long,
        default_value_t = 20,
        value_name = "N",
        value_parser = startup::at_least_one,
        allow_negative_numbers = true
    )]
    limit: usize,
    /// List the next older page of trees. CURSOR is the value that the output of the newer page
    /// names: a position such as 1200, or with several partitions the position of each, such as
    /// 0:1200,1:800.
    #[arg(long, value_name = "CURSOR", value_parser = BeforeArg::parse)]
    before: Option<BeforeArg>,
    /// List all trees, including the organism's own thread.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Write one line of JSON for each tree. To list the next older page, pass the `cursor` of the
    /// first line to --before.
    #[arg(long)]
    json: bool,
}

/// The value of `--before`.
#[derive(Debug, Clone)]
enum BeforeArg {
    /// A position in the only journal.
    Position(Position),
    /// A position in the journal of each partition.
    Cursor(PageCursor),
}

impl BeforeArg {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(position) = text.parse() {
            return Ok(Self::Position(Position(position)));
        }
        let cursor = PageCursor::parse(text).map(Self::Cursor);
        cursor.ok_or_else(|| {
            "write a position such as 1200, or with several partitions the position of each, such \
             as 0:1200,1:800"
                .to_owned()
        })
    }

    /// Returns the cursor for the journals of `partitions`. Fails if the cursor comes from a list
    /// of other journals, because it would select a wrong page.
    fn cursor(&self, partitions: &[u32]) -> anyhow::Result<PageCursor> {
        let usage = |text: String| Err(CommandFailure::usage(text).into());
        match (self, partitions) {
            (Self::Position(position), [only]) => Ok(PageCursor::of_one(*only, *position)),
            (Self::Position(position), _) => usage(format!(
                "--before {position}: with {} partitions, a cursor has a position of each, such as \
                 0:1200,1:800; pass the one that the output of the newer page names",
                partitions.len()
            )),
            (Self::Cursor(cursor), _) => {
                match cursor.partitions().find(|named| !partitions.contains(named)) {
                    Some(absent) => usage(format!(
                        "--before {cursor}: there is no partition {absent} here; pass the cursor \
                         that the output of the newer page names"
                    )),
                    None => Ok(cursor.clone()),
                }
            }
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let filter = filter(&args)?;
    let partitions = indexed::partitions(&args.place)?;
    let is_one = partitions.len() == 1;
    let cursor = match &args.before {
        Some(before) => before.cursor(&partitions)?,
        None => PageCursor::default(),
    };
    let limit = if args.all { usize::MAX } else { args.limit };
    let page = read_page(&args.place, &filter, cursor, limit)?;
    // The newest trees are the last lines.
    let listed = page.trees.iter().rev();

    if args.json {
        listed.map(|paged| json_line(paged, is_one)).try_for_each(|line| put_json(&line))?;
        return Ok(CommandExit::Done.into());
    }
    if page.trees.is_empty() {
        let is_filtered =
            filter != TreeFilter { is_without_organism: !args.all, ..TreeFilter::default() };
        if args.before.is_some() {
            note!("no threads before this cursor; `organism threads` alone lists the newest");
        } else if is_filtered {
            note!("no thread matches these conditions; `organism threads` alone lists the newest");
        } else {
            note!("no threads to list; `organism send` starts one");
        }
        return Ok(CommandExit::Done.into());
    }

    let mut headers = vec!["thread", "status", "opened", ">took", ">messages", "asked"];
    if args.wide {
        headers.extend([">refused", ">tokens", ">cost", "first words", "failed because"]);
    }
    let rows: Vec<_> = listed.map(|paged| row(&paged.tree, args.wide)).collect();
    put(&table(&RenderOutput::stdout(false), &headers, &rows))?;
    if page.has_more
        && let Some(last) = page.trees.last()
    {
        note!("there are older threads; see them with --before {}", cursor_text(last, is_one));
    }
    Ok(CommandExit::Done.into())
}

/// Reads the page that begins at `cursor`, with at most `limit` trees of all partitions together.
fn read_page(
    place: &JournalTarget,
    filter: &TreeFilter,
    cursor: PageCursor,
    limit: usize,
) -> anyhow::Result<TreePage> {
    // One more tree shows whether there is an older page.
    let wanted = limit.saturating_add(1);
    let found = indexed::read_partitions(place, &mut |partition, reader| {
        let filter = TreeFilter { before: cursor.before(partition), ..filter.clone() };
        reader.trees(&filter, wanted)
    })?;
    Ok(TreePage::merge(found, cursor, limit))
}

/// Returns the cursor of the page that follows the tree `paged`. If there is a single partition,
/// the cursor is one position. Otherwise, it has a position for each partition.
fn cursor_text(paged: &PagedTree, is_one: bool) -> String {
    if is_one { paged.tree.head.to_string() } else { paged.next.to_string() }
}

fn filter(args: &Args) -> anyhow::Result<TreeFilter> {
    args.status.as_deref().map(known_status).transpose()?;
    let words = args.words.join(" ");
    check_words(&words).map_err(|error| {
        let text = format!("{error}; `organism search --substring` finds other texts");
        CommandFailure::usage(text)
    })?;

    let moment = |text: &Option<String>| text.as_deref().map(indexed::moment).transpose();
    Ok(TreeFilter {
        status: args.status.clone(),
        since: moment(&args.since)?,
        until: moment(&args.until)?,
        listener: args.listener.clone(),
        agent: args.agent.clone(),
        payload: args.payload.clone(),
        cost_over: args.cost_over,
        has_errors: args.errors,
        needs_person: args.needs_you,
        words,
        is_without_organism: !args.all,
        before: None,
    })
}

/// Returns an error if `status` is not the name of a thread status.
pub(super) fn known_status(status: &str) -> anyhow::Result<()> {
    if ThreadPhase::parse(status).is_some() {
        return Ok(());
    }
    let all = ThreadPhase::ALL.map(ThreadPhase::as_str).join(", ");
    let text = format!("--status {status}: write one of {all}");
    Err(CommandFailure::usage(text).into())
}

fn row(tree: &ListedTree, is_wide: bool) -> Vec<String> {
    let opened = second_of(&tree.opened.to_string());
    let open = tree.messages.saturating_sub(tree.settled);
    let held = tree.waits.calls;
    let messages = match (held, open.saturating_sub(held)) {
        (0, 0) => tree.messages.to_string(),
        (0, _) => format!("{} ({open} unsettled)", tree.messages),
        (held, 0) => format!("{} ({held} held)", tree.messages),
        (held, _) => format!("{} ({open} unsettled, {held} held)", tree.messages),
    };
    let state = thread_state(&tree.status, tree.waits);
    let mut row = vec![
        tree.thread.clone(),
        tree.pause.map_or_else(|| state.to_owned(), |part| format!("{state}, {}", part.describe())),
        opened,
        duration(tree.worked.since(tree.opened)),
        messages,
        tree.request_local.clone().unwrap_or_default(),
    ];
    if is_wide {
        row.push(tree.refusals.to_string());
        row.push((tree.tokens_in + tree.tokens_out + tree.tokens_charged).to_string());
        row.push(tree.costs.to_string());
        row.push(clean(tree.first_words.as_deref().unwrap_or_default()));
        row.push(clean(tree.fault.as_deref().unwrap_or_default()));
    }
    row
}

fn json_line(paged: &PagedTree, is_one: bool) -> Value {
    let tree = &paged.tree;
    let cursor = if is_one { json!(tree.head) } else { json!(paged.next.to_string()) };
    json!({
        "thread": tree.thread,
        "status": tree.status,
        "subthreads": tree.subthreads,
        "messages": {
            "accepted": tree.messages,
            "settled": tree.settled,
            "refused": tree.refusals,
        },
        "in_flight": tree.messages.saturating_sub(tree.settled),
        "records": tree.records,
        "opened": tree.opened.to_string(),
        "updated": tree.updated.to_string(),
        "asked_by": tree.requested_by,
        "asked": tree.request,
        "first_words": tree.first_words,
        "fault": tree.fault,
        "errors": tree.errors,
        "waiting": tree.waits.calls,
        "pause": tree.pause.map(PausedPart::as_str),
        "turns": tree.turns,
        "tokens_in": tree.tokens_in,
        "tokens_out": tree.tokens_out,
        "tokens_charged": tree.tokens_charged,
        "cost_nano": tree.costs.sum(),
        "costs": tree.costs,
        "cursor": cursor,
    })
}
