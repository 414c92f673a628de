//! The page that compares two threads: their first difference, their results and their totals, as
//! `organism diff` finds them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::diff_text::changed_lines;
use super::journals::PartitionAnswer;
use super::layout::{grouped, inline, length, moment, shown, table};
use super::payload_text::{Excerpt, PageRoom, excerpt};
use super::thread::path as thread_path;
use super::url_query::UrlQuery;
use super::{ViewState, record_entry, thread_status};
use crate::audit::amounts::duration;
use crate::audit::{
    ComparedEvent, ComparedTurn, ThreadComparison, ThreadDifference, ThreadTimeline, ThreadTotals,
    compare_threads, is_open_phase, thread_timeline,
};
use crate::clock::Time;
use crate::ids::ThreadId;
use crate::index::{self, IndexReader, ListedTree, TreeFilter};
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::organism::{
    ComparedSide, DifferentPrompts, PromptPreview, PromptSearch, TurnOnRecord,
    first_different_prompts, unified_diff,
};
use crate::plural::count;

pub(super) const PATH: &str = "/compare";

/// Maximum number of threads that the page offers for a comparison. The page offers the newest
/// threads.
const OFFERED_THREADS: usize = 20;

/// A thread with the journal that contains it.
struct FoundThread {
    journal: PathBuf,
    timeline: ThreadTimeline,
    /// Time since which a call in the thread or beneath it waits for a person; `None` if no call
    /// waits.
    waits_since: Option<Time>,
}

/// The part of the page that comes from one journal: the compared threads in this journal, and the
/// newest trees of the journal.
struct JournalShare {
    left: Option<FoundThread>,
    right: Option<FoundThread>,
    newest: Vec<ListedTree>,
}

/// Returns the path of the page on which a person chooses a thread to compare with `thread`.
pub(super) fn path(thread: &str) -> String {
    UrlQuery::default().with("a", Some(thread)).link(PATH)
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, query: UrlQuery) -> Response {
    let sides = ["a", "b"].map(|side| query.get(side).map(read_thread).transpose());
    let [left, right] = match sides {
        [Ok(left), Ok(right)] => [left, right],
        [Err(problem), _] | [_, Err(problem)] => {
            return refused(&view, &query, StatusCode::BAD_REQUEST, &problem);
        }
    };

    let wanted = [left.clone(), right.clone()];
    let find = move |_, index: &mut IndexReader| find(index, &wanted);
    view.respond(find, move |view, answers| draw(view, &query, [left, right], answers)).await
}

fn read_thread(text: &str) -> Result<ThreadId, String> {
    ThreadId::parse(text).map_err(|_| format!("`{text}` is no id of a thread"))
}

fn refused(view: &ViewState, query: &UrlQuery, status: StatusCode, problem: &str) -> Response {
    let content = html! {
        h1 { "Compare" }
        (form(query))
        p.problem role="alert" { (shown(problem)) }
    };
    (status, view.page("Compare", PATH, &content)).into_response()
}

fn find(index: &IndexReader, wanted: &[Option<ThreadId>; 2]) -> Result<JournalShare, index::Error> {
    let [left, right] = wanted;
    let is_complete = left.is_some() && right.is_some();
    let found = |thread: &Option<ThreadId>| match thread {
        Some(thread) if is_complete => read(index, thread),
        _ => Ok(None),
    };
    let newest = if is_complete {
        Vec::new()
    } else {
        let filter = TreeFilter { is_without_organism: true, ..TreeFilter::default() };
        index.trees(&filter, OFFERED_THREADS)?
    };
    Ok(JournalShare { left: found(left)?, right: found(right)?, newest })
}

/// Reads all events of a thread. Returns `None` if the journal does not have the thread. A thread
/// with too many records is refused, because all records are read at once.
fn read(index: &IndexReader, thread: &ThreadId) -> Result<Option<FoundThread>, index::Error> {
    let records = index.journal().records_of(&thread.root())?;
    if records > limits::WEB_PAST_RECORDS {
        let detail = format!(
            "the thread {thread} has {records} records, which are too many for a page; `organism \
             diff` compares it"
        );
        return Err(index::Error::Query { detail });
    }
    let journal = index.journal().data().to_owned();
    let timeline = thread_timeline(index.journal(), thread, None)?;
    // The first of these calls has waited longest.
    let waits_since = index.waiting_beneath(thread, 1)?.first().map(|call| call.since);
    Ok(timeline.map(|timeline| FoundThread { journal, timeline, waits_since }))
}

fn draw(
    view: &ViewState,
    query: &UrlQuery,
    wanted: [Option<ThreadId>; 2],
    answers: Vec<PartitionAnswer<JournalShare>>,
) -> Response {
    let mut found = [None, None];
    let mut newest = Vec::new();
    for share in answers.into_iter().map(|found| found.answer) {
        let [left, right] = &mut found;
        *left = left.take().or(share.left);
        *right = right.take().or(share.right);
        newest.extend(share.newest);
    }

    let [Some(left_id), Some(right_id)] = wanted else {
        newest.sort_by_key(|tree: &ListedTree| std::cmp::Reverse(tree.updated));
        newest.truncate(OFFERED_THREADS);
        return view.page("Compare", PATH, &choice(query, &newest));
    };
    match found {
        [Some(left), Some(right)] => view.page("Compare", PATH, &content(query, &left, &right)),
        [left, _] => {
            let missing = if left.is_none() { left_id } else { right_id };
            let (status, problem) =
                view.describe_absence(&format!("thread `{missing}`"), Some(&missing));
            refused(view, query, status, &problem)
        }
    }
}

fn form(query: &UrlQuery) -> Markup {
    html! {
        form.filters method="get" action=(PATH) role="search" aria-label="Threads to compare" {
            @for (name, label) in [("a", "Thread A"), ("b", "Thread B")] {
                div {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(query.get(name).unwrap_or_default())
                        placeholder="sess-…" autocomplete="off" required;
                }
            }
            button type="submit" { "Compare" }
            a href=(PATH) { "Clear" }
        }
    }
}

/// Draws the form for the two threads to compare, and a list of the newest threads. Each thread in
/// the list has a link that enters this thread in the first empty field of the form.
fn choice(query: &UrlQuery, newest: &[ListedTree]) -> Markup {
    let first = query.get("a");
    let (side, name) = if first.is_some() { ("b", "Compare with it") } else { ("a", "Choose") };
    let others = newest.iter().filter(|tree| Some(tree.thread.as_str()) != first);
    let row = |tree: &ListedTree| {
        vec![
            html! { a data-entry href=(thread_path(&tree.thread)) { (inline(&tree.thread)) } },
            html! {
                a href=(query.with(side, Some(&tree.thread)).link(PATH)) {
                    (name) span.unseen { " " (inline(&tree.thread)) }
                }
            },
            thread_status::of_tree(tree),
            moment(tree.updated),
            inline(tree.request_local.as_deref().unwrap_or_default()),
            inline(tree.first_words.as_deref().unwrap_or_default()),
        ]
    };
    let rows: Vec<_> = others.map(row).collect();
    let headers = ["Thread", "Action", "Status", "Changed", "Asked", "First words"];
    html! {
        h1 { "Compare" }
        (form(query))
        @if rows.is_empty() {
            p.empty { "There are no threads to choose." }
        } @else {
            @if let Some(first) = first {
                p { "Thread A is " code { (inline(first)) } ". Choose thread B:" }
            } @else {
                p { "Choose thread A, or write two ids:" }
            }
            (table("Newest threads", &headers, &rows))
        }
    }
}

fn content(query: &UrlQuery, left: &FoundThread, right: &FoundThread) -> Markup {
    let comparison = compare_threads(&left.timeline, &right.timeline);
    let prompts = first_different_prompts(&comparison, |side, turn| match side {
        ComparedSide::Left => rebuild(left, turn),
        ComparedSide::Right => rebuild(right, turn),
    });
    let room = PageRoom::new();
    let deadline = Instant::now() + limits::LINE_COMPARISON_TIME;
    html! {
        h1 { "Compare" }
        (form(query))
        p.summary { (summary(&comparison, &prompts)) }
        (differences(&comparison, &prompts, &room, deadline))
        (results(&comparison, &room))
        h2 { "Totals" }
        (totals([(&comparison.left, left), (&comparison.right, right)]))
        @if room.omitted() > 0 {
            p.problem role="status" {
                "The page is full: " (count(room.omitted(), "text")) " left out. "
                code { "organism diff --all --full" } " shows them."
            }
        }
    }
}

fn rebuild(thread: &FoundThread, turn: &ComparedTurn) -> Result<PromptPreview, String> {
    let reader = JournalReader::open(&thread.journal).map_err(|error| error.to_string())?;
    let found = TurnOnRecord::at(reader, &turn.agent, turn.position);
    let found = found.map_err(|error| error.to_string())?;
    let found = found.ok_or("the record has no note of this turn")?;
    found.preview_from_journal().map_err(|error| error.to_string())
}

fn summary(comparison: &ThreadComparison, prompts: &PromptSearch<String>) -> Markup {
    let equal = count(comparison.equal, "event");
    let different = comparison.differences.len() as u64 + u64::from(prompts.first.is_some());
    html! {
        @if different == 0 {
            "The events of both threads are equal: " (equal) "."
        } @else {
            (equal) " in common, " (count(different, "difference"))
            "; " b { (comparison.result_verdict(["A", "B"])) } "."
        }
        @if prompts.uncompared > 0 {
            " " (count(prompts.uncompared, "later prompt")) " not compared: the "
            (limits::COMPARED_PROMPTS_MAX) " before differ only in ids and dates."
        }
    }
}

/// Draws the first difference, and the further differences in a collapsed section. Looks for equal
/// lines in two different texts only until `deadline`. Lines that have not been compared by then
/// appear as differences.
fn differences(
    comparison: &ThreadComparison,
    prompts: &PromptSearch<String>,
    room: &PageRoom,
    deadline: Instant,
) -> Markup {
    let mut events = comparison.differences.iter();
    let first = match &prompts.first {
        Some(prompts) => prompt_difference(prompts, room),
        None => match events.next() {
            Some(difference) => event_difference(difference, room, deadline),
            None => return html! {},
        },
    };
    let left = events.len().saturating_sub(limits::WEB_PAGE_ROWS) as u64;
    html! {
        section.difference aria-labelledby="first" {
            h2 #first { "First difference" }
            (first)
        }
        @if events.len() > 0 {
            details {
                summary { (count(events.len() as u64, "further difference")) }
                @for difference in events.take(limits::WEB_PAGE_ROWS) {
                    section.difference { (event_difference(difference, room, deadline)) }
                }
                @if left > 0 {
                    p.more { "… " (grouped(left)) " more; " code { "organism diff --all" } " shows them." }
                }
            }
        }
    }
}

fn prompt_difference(prompts: &DifferentPrompts<String>, room: &PageRoom) -> Markup {
    let turn = |sign: &str, side: &ComparedTurn| {
        html! {
            p.head {
                (sign) " prompt of turn " (side.turn) " of " (inline(side.agent.as_str())) " in "
                a data-entry href=(thread_path(side.thread.as_str())) {
                    (inline(side.thread.as_str()))
                }
                ", sha256 " code.digest { (side.prompt) }
            }
        }
    };
    html! {
        (turn("A:", &prompts.pair.left))
        (turn("B:", &prompts.pair.right))
        @match &prompts.diff {
            Ok(diff) => (changed_lines(diff, room)),
            Err(problem) => p.note { "One of the prompts cannot be rebuilt: " (inline(problem)) },
        }
    }
}

fn event_difference(difference: &ThreadDifference, room: &PageRoom, deadline: Instant) -> Markup {
    let ThreadDifference { left, right, .. } = difference;
    html! {
        @for (sign, side) in [("A:", left), ("B:", right)] {
            p.head {
                (sign) " "
                @if let Some(event) = side { (event_head(event)) } @else { "has no such event" }
            }
        }
        @match (left, right) {
            (Some(left), Some(right)) => {
                @let [one, other] = [left, right].map(|side| format!("{}\n", side.lines.join("\n")));
                @if one == other {
                    p.note { "The payloads differ only in white space or namespaces." }
                } @else {
                    (changed_lines(&unified_diff(&one, &other, deadline), room))
                }
            }
            (Some(only), None) | (None, Some(only)) => {
                @if room.claim_room() {
                    pre.body { (room.take(excerpt(only.lines.clone()).text())) }
                }
            }
            (None, None) => {}
        }
    }
}

fn event_head(event: &ComparedEvent) -> Markup {
    html! {
        @if let Some(message) = event.message {
            a.payload data-entry href=(super::message::path(message)) { (inline(&event.title)) }
        } @else {
            b { (inline(&event.title)) }
        }
        " in " (inline(event.thread.as_str())) ", message " (grouped(event.seq)) ", "
        (record_entry::link(event.position))
    }
}

fn results(comparison: &ThreadComparison, room: &PageRoom) -> Markup {
    let side = |name: &str, totals: &ThreadTotals| {
        html! {
            div {
                h3 { "Result of " (name) }
                @for result in &totals.results {
                    @match result {
                        Some(result) if room.claim_room() => {
                            pre.body { (room.take(Excerpt::of_payload(result, None).text())) }
                        }
                        Some(_) => p.more { "left out" },
                        None => p.empty { "The payload was redacted." },
                    }
                }
                @if totals.results.is_empty() {
                    @if is_open_phase(totals.status.as_str()) {
                        p.empty { "No result yet: the thread has not ended." }
                    } @else {
                        p.empty { "No result." }
                    }
                }
            }
        }
    };
    html! {
        h2 {
            @if comparison.is_open() { "Results" }
            @else if comparison.has_equal_results() { "Equal results" }
            @else { "Different results" }
        }
        div.sides { (side("A", &comparison.left)) (side("B", &comparison.right)) }
    }
}

/// Writes the time that a closed thread took, or the age of an open thread. If calls of an open
/// thread wait for a person, also writes the longest of these waits.
fn time(totals: &ThreadTotals, found: &FoundThread) -> Markup {
    if !is_open_phase(totals.status.as_str()) {
        return html! { (duration(Duration::from_millis(totals.ms))) };
    }
    let now = Time::now();
    html! {
        "open " (length(now.since(found.timeline.opened)))
        @if let Some(since) = found.waits_since {
            ", of which " (length(now.since(since))) " waiting for a person"
        }
    }
}

/// Draws the totals of the two compared threads side by side, with the differences emphasised.
fn totals(sides: [(&ThreadTotals, &FoundThread); 2]) -> Markup {
    let times = sides.map(|(totals, found)| time(totals, found));
    let found = sides.map(|(_, found)| found);
    let sides = sides.map(|(totals, _)| totals);
    let row = |name: &str, [left, right]: [Markup; 2]| {
        let is_equal = left.0 == right.0;
        let right = html! { @if is_equal { (right) } @else { b { (right) } } };
        vec![html! { (name) }, left, right]
    };
    let compared =
        |name: &str, value: &dyn Fn(&ThreadTotals) -> Markup| row(name, sides.map(value));
    let number = |name: &str, value: &dyn Fn(&ThreadTotals) -> u64| {
        compared(name, &|side| html! { (grouped(value(side))) })
    };
    let mut rows = vec![
        row("Status", found.map(|side| thread_status::of_thread(&side.timeline))),
        compared("Cost", &|side| inline(&side.spent.money.to_string())),
        number("Tokens", &|side| side.spent.tokens),
        row("Time", times),
        number("Turns", &|side| side.turns),
        number("Messages", &|side| side.messages),
        number("Refusals", &|side| side.refusals),
        number("Failed attempts", &|side| side.failed_attempts),
        number("Subthreads", &|side| side.subthreads),
    ];
    if sides.iter().any(|side| side.definition.is_some()) {
        rows.push(compared("Definition", &|side| {
            let digest = side.definition.as_deref().and_then(|digest| digest.get(..12));
            inline(digest.unwrap_or("none"))
        }));
    }

    let [left, right] = sides.map(|side| side.thread.as_str());
    let row = |name: &str, thread: &str| {
        html! {
            div { dt { (name) } dd { a href=(thread_path(thread)) { code { (inline(thread)) } } } }
        }
    };
    html! {
        dl.facts { (row("A", left)) (row("B", right)) }
        (table("Totals of both threads", &["Property", ">A", ">B"], &rows))
    }
}
