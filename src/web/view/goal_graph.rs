//! The page with the goals of a workflow run as a graph, coloured by the state of the run. A goal
//! links to its subthread.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::ViewState;
use super::goal_layout::{GoalBox, GoalLayout};
use super::layout::{inline, label, length, rows_left, table, unless_zero};
use super::thread::{ThreadHeader, cost, path as thread_path};
use crate::clock::Time;
use crate::config::{ConfigHistory, ExtractedConfig, StoredConfig};
use crate::envelope::{Message, SpendingTotals};
use crate::ids::{CallId, Position, ThreadId};
use crate::index::{self, IndexReader};
use crate::limits;
use crate::memory::with_history;
use crate::organism::JournalRuns;
use crate::plural::count;
use crate::thread::{Fact, Record};
use crate::workflow::{
    ActivityKind, GoalForm, GoalGraph, GoalId, GoalStatus, RowKind, RunRow, RunTree, UndoRules,
    UndoSource, WorkflowDefinition, called_once, latest_run, read_compiled, run_rules_of,
};

/// Returns the path of the page with the graph of a run.
pub(super) fn path(thread: &str) -> String {
    format!("{}/goals", thread_path(thread))
}

/// The goals of the latest run in a thread, computed from the thread's records.
struct RecordedGoals {
    definition: WorkflowDefinition,
    rows: Vec<RunRow>,
    /// Threads that the run opened for each goal, in the order of the goals' rows.
    threads: Vec<Vec<ThreadId>>,
}

/// A run with its recorded messages.
struct GraphedRun<'a> {
    request: &'a Message,
    /// All messages of the run's call, in their order.
    messages: &'a [Arc<Message>],
    /// The messages of the thread before the request that began the run.
    earlier: Vec<Arc<Message>>,
}

pub(super) async fn show(State(view): State<Arc<ViewState>>, Path(id): Path<String>) -> Response {
    let Ok(thread) = ThreadId::parse(&id) else { return super::thread::missing(&view, &id) };
    let find = move |index: &mut IndexReader| match ThreadHeader::find(index, &thread)? {
        Some(header) => Ok(Some(find(index, &thread)?.map(|goals| (header, goals)))),
        None => Ok(None),
    };
    view.respond_found(find, move |view, found| match found {
        Some(Ok((header, goals))) => {
            let page = html! { (header.draw(view)) (content(&id, &goals)) };
            view.page(&id, "/threads", &page)
        }
        Some(Err(problem)) => view.failed(StatusCode::NOT_FOUND, "No graph of goals", &problem),
        None => super::thread::missing(view, &id),
    })
    .await
}

fn find(
    index: &IndexReader,
    thread: &ThreadId,
) -> Result<Result<RecordedGoals, String>, index::Error> {
    let journal = index.journal();
    refuse_long(index, thread)?;
    let own = journal.tree(&thread.root(), None)?.into_iter().map(|sealed| sealed.record);
    let own: Vec<Record> = own.collect();
    let all = with_history(journal, own.clone())?;
    let mut messages: Vec<_> = messages_in(&all, thread).cloned().collect();
    let (request, digest) = match latest_run(&messages) {
        Some((request, Some(digest))) => (request, digest),
        Some((_, None)) => {
            let problem = "has no readable record of its definition: it has not begun, an earlier \
                 version of the program did not record it, or the record was redacted";
            return Ok(Err(format!("The latest run in the thread `{thread}` {problem}.")));
        }
        None => {
            let problem = format!("The thread `{thread}` has no run that recorded its definition.");
            return Ok(Err(problem));
        }
    };
    let of_run =
        messages.iter().filter(|message| message.call == request.call && message.to == request.to);
    let of_run: Vec<_> = of_run.cloned().collect();
    messages.retain(|message| message.seq < request.seq);
    let text = journal.blob(digest)?.and_then(|bytes| String::from_utf8(bytes).ok());
    let definition = text.ok_or("the journal does not have it".to_owned());
    let definition =
        definition.and_then(|text| read_compiled(&text).map_err(|error| error.to_string()));
    let definition = match definition {
        Ok(definition) => definition,
        Err(reason) => return Ok(Err(format!("The definition {digest} of the run: {reason}."))),
    };
    let run = GraphedRun { request: &request, messages: &of_run, earlier: messages };
    // A run that goes on in a fork begins with the first record of the fork, which has the run's
    // messages. So the graph leaves out the time between the source and the fork.
    let is_own = messages_in(&own, thread).any(|message| message.id == request.id);
    let records = if is_own { own } else { all };
    let (rows, threads) = progress(&definition, run, &records, index)?;
    Ok(Ok(RecordedGoals { definition, rows, threads }))
}

fn messages_in<'r>(
    records: &'r [Record],
    thread: &ThreadId,
) -> impl Iterator<Item = &'r Arc<Message>> {
    let facts = records.iter().flat_map(|record| &record.facts);
    facts.filter_map(move |fact| match fact {
        Fact::Accepted { message, .. } if message.thread == *thread => Some(message),
        _ => None,
    })
}

/// Fails if a thread has too many records for a graph. In a fork, the records of its source count,
/// too.
fn refuse_long(index: &IndexReader, thread: &ThreadId) -> Result<(), index::Error> {
    let journal = index.journal();
    let mut records = 0;
    let mut next = Some(thread.root());
    while let Some(root) = next {
        records += journal.records_of(&root)?;
        if records > limits::WEB_PAST_RECORDS {
            let detail =
                format!("the thread has {records} records, which are too many for its graph");
            return Err(index::Error::Query { detail });
        }
        let opened = index.opened_at(&root)?;
        let first = opened.map(|position| journal.existing_record(position)).transpose()?;
        let source = first.as_ref().and_then(|first| first.record.fork_source());
        let source = source.filter(|source| source.history > Position(0));
        next = source.map(|source| source.thread.clone());
    }
    Ok(())
}

/// Returns the config that was in force when the thread was opened. Returns `None` if the index
/// does not contain the thread, or if the config cannot be read from the journal.
fn config_of(
    index: &IndexReader,
    thread: &ThreadId,
) -> Result<Option<ExtractedConfig>, index::Error> {
    let history = ConfigHistory::read(index.journal())?;
    let boot = index.opened_at(thread)?.and_then(|opened| history.at(opened).cloned());
    let stored = boot.and_then(|boot| StoredConfig::read(index.journal(), &boot).ok());
    Ok(stored.and_then(|stored| stored.extract().ok()))
}

/// Computes the rows that show the state of a run, and the threads that the run opened for each
/// goal. `records` must contain all messages of the run.
fn progress(
    definition: &WorkflowDefinition,
    run: GraphedRun<'_>,
    records: &[Record],
    index: &IndexReader,
) -> Result<(Vec<RunRow>, Vec<Vec<ThreadId>>), index::Error> {
    let GraphedRun { request, messages, earlier } = run;
    let stored = config_of(index, &request.thread)?;
    let config = stored.as_ref().map(|stored| &stored.config);
    let once = config.map(|config| called_once(&config.contracts)).unwrap_or_default();
    let rules = config.map(|config| UndoRules::new(&config.contracts, &config.schemas));
    let rules = rules.unwrap_or_default();
    let archive = JournalRuns::new(index.journal().data().to_owned());
    let up_to = records.last().map_or(Position(0), |record| record.position);
    let undo = UndoSource { rules: &rules, archive: &archive, up_to };

    let (graph, _) = GoalGraph::new(definition);
    let tree = RunTree::new(definition, &graph, &once).after(earlier, undo);
    let mut tree = tree.with_rules(run_rules_of(messages));
    if let Some(call) = request.call {
        tree.begin(request.thread.clone(), call);
    }
    for record in records {
        tree.take(record);
    }
    let now = time_of_rows(records, request.call, Time::now());
    let threads_of = |goal| tree.threads_of_goal(goal).into_iter().cloned().collect();
    let threads = (0..graph.len()).map(threads_of).collect();
    Ok((tree.rows(now), threads))
}

/// Returns the time up to which the duration of a running goal is counted. If the call of the run
/// is not known or has ended, this is the time of the last record. Otherwise, this is `now`, but
/// not earlier than the last record.
fn time_of_rows(records: &[Record], call: Option<CallId>, now: Time) -> Time {
    let last = records.last().map_or(Time(0), |record| record.time);
    let is_open = |call: CallId| !records.iter().any(|record| record.closes(call));
    if call.is_some_and(is_open) { now.max(last) } else { last }
}

fn content(id: &str, goals: &RecordedGoals) -> Markup {
    let workflow = goals.definition.name.value.as_str();
    let (graph, _) = GoalGraph::new(&goals.definition);
    html! {
        (super::thread_tree::tabs(id, "Goals", true))
        h2 { "Goals of " (inline(workflow)) }
        @if graph.len() <= limits::WEB_DRAWN_GOALS {
            (drawing(&graph, goals))
        } @else {
            p.note { "The workflow has too many goals for a drawing." }
        }
        (rows(id, &graph, goals))
        p.hint { "Each row counts the goal with everything beneath it." }
    }
}

/// Returns the rows that show goals, in the order of the workflow's file. Leaves out the rows of
/// delegations and undos.
fn goal_rows(goals: &RecordedGoals) -> Vec<&RunRow> {
    let numbered = goals.rows.iter().filter_map(|row| match &row.kind {
        RowKind::Goal(goal) => Some((goal.number, row)),
        _ => None,
    });
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, row)| row).collect()
}

fn drawing(graph: &GoalGraph<'_>, goals: &RecordedGoals) -> Markup {
    let layout = GoalLayout::new(graph);
    let rows = goal_rows(goals);
    let [width, height] = [layout.width + 4, layout.height + 4];
    html! {
        div.scroll.goals tabindex="0" role="region" aria-label="Graph of the goals" {
            svg width=(width) height=(height) viewBox=(format!("-2 -2 {width} {height}"))
                role="group" aria-label="Goals" {
                @for found in &layout.boxes { (goal(found, graph, goals, rows.get(found.goal))) }
                @for (from, to) in &layout.edges {
                    @if let Some((from, to)) = layout.of(*from).zip(layout.of(*to)) {
                        (edge(from, to))
                    }
                }
                @for (last, first) in &layout.ways_back {
                    @if let Some((last, first)) = layout.of(*last).zip(layout.of(*first)) {
                        (way_back(last, first))
                    }
                }
            }
        }
    }
}

fn goal(
    place: &GoalBox,
    graph: &GoalGraph<'_>,
    goals: &RecordedGoals,
    row: Option<&&RunRow>,
) -> Markup {
    let GoalBox { x, y, width, height, .. } = place;
    let name = graph.goal(place.goal).map_or("", |goal| goal.id.value.as_str());
    let owner = judged_goal(graph, place.goal);
    let state = match owner {
        Some(owner) => format!("judges {owner}"),
        None => {
            let rounds = rounds_of(graph, goals, place.goal);
            row.map(|row| state_of(row, rounds)).unwrap_or_default()
        }
    };
    let phase = row.filter(|_| owner.is_none()).map_or("judge", |row| row.phase.as_str());
    let time = row.and_then(|row| row.time).map(length);
    let thread = goals.threads.get(place.goal).and_then(|threads| threads.last());
    let drawn = html! {
        rect.goal x=(x) y=(y) width=(width) height=(height) rx="4" {}
        text.name x=(x + 9) y=(y + 18) { (label(name)) }
        text x=(x + 9) y=(y + 35) { (label(&state)) }
        @if let Some(time) = time { text.took x=(x + 9) y=(y + 51) { (time) } }
    };
    html! {
        g data-phase=(phase) {
            @if let Some(thread) = thread {
                a data-entry href=(thread_path(thread.as_str())) { (drawn) }
            } @else {
                (drawn)
            }
        }
    }
}

/// Returns the goal whose output is judged by the goal `goal`; `None` if `goal` judges no other
/// goal. The judged goal runs once for each item of a list. An item counts only after `goal` has
/// accepted the output for this item.
fn judged_goal<'g>(graph: &GoalGraph<'g>, goal: usize) -> Option<&'g GoalId> {
    let owner = graph.membership(goal)?.owner;
    let judged = graph.goal(owner).filter(|_| graph.verifier(owner) == Some(goal));
    judged.map(|judged| &judged.id.value)
}

fn edge(from: &GoalBox, to: &GoalBox) -> Markup {
    let (x, y) = from.bottom();
    let (to_x, to_y) = to.top();
    let end = to_y.saturating_sub(6);
    let middle = y.midpoint(end);
    html! {
        path.edge d=(format!("M{x} {y}C{x} {middle} {to_x} {middle} {to_x} {end}")) {}
        path.edge-head d=(format!("M{to_x} {to_y}L{} {end}L{} {end}Z", to_x - 4, to_x + 4)) {}
    }
}

/// Draws the line from the last member of a loop back to the first, at the right side of the boxes.
fn way_back(last: &GoalBox, first: &GoalBox) -> Markup {
    let (x, y) = last.right();
    let (to_x, to_y) = first.right();
    // The loop's box has this much room beside its members.
    let outside = x.max(to_x) + 10;
    let begin = to_x + 6;
    html! {
        path.edge.back d=(format!("M{x} {y}C{outside} {y} {outside} {to_y} {begin} {to_y}")) {}
        path.edge-head d=(format!("M{to_x} {to_y}L{begin} {}L{begin} {}Z", to_y - 4, to_y + 4)) {}
    }
}

/// Returns the number of rounds that a loop has begun; 0 for a goal that is no loop.
fn rounds_of(graph: &GoalGraph<'_>, goals: &RecordedGoals, goal: usize) -> u64 {
    let is_loop =
        |of: usize| graph.goal(of).is_some_and(|goal| matches!(goal.form, GoalForm::Loop { .. }));
    if !is_loop(goal) {
        return 0;
    }

    let rows = goal_rows(goals);
    let passes = graph.members(goal).into_iter().filter_map(|member| rows.get(member));
    let passes = passes.map(|row| row.passes);
    // While the loop runs, its row has the number of the round.
    let present = rows.get(goal).and_then(|row| match &row.kind {
        RowKind::Goal(status) => Some(status.iteration),
        _ => None,
    });
    u64::from(passes.chain(present).max().unwrap_or_default())
}

/// Returns the spending of each goal, in the order of the workflow's file. The spending of a goal
/// includes its delegated tasks, the goals beneath it, and the delegated tasks of those goals.
fn spent_by_goal(graph: &GoalGraph<'_>, goals: &RecordedGoals) -> Vec<SpendingTotals> {
    let mut own = vec![SpendingTotals::default(); graph.len()];
    let mut number = 0;
    for row in &goals.rows {
        match &row.kind {
            RowKind::Goal(goal) => number = goal.number,
            // The tasks of a goal follow the goal.
            RowKind::Delegation { .. } => {}
            RowKind::Undo { .. } | RowKind::Elsewhere => continue,
        }
        if let Some(goal) = own.get_mut(number) {
            goal.add_all(&row.spent);
        }
    }

    let with_beneath = |(goal, spent): (usize, &SpendingTotals)| {
        let beneath = graph.beneath(goal);
        let beneath = beneath.into_iter().chain(graph.verifier(goal)).chain(graph.fallback(goal));
        let beneath: HashSet<usize> = beneath.collect();
        let beneath = beneath.into_iter().filter_map(|of| own.get(of));
        SpendingTotals::sum_of(beneath.chain([spent]))
    };
    own.iter().enumerate().map(with_beneath).collect()
}

/// Describes the state of a row: its phase, and then the numbers that apply to the row:
/// - For a loop, `rounds`: the number of rounds that it has begun.
/// - For a goal inside a loop, the number of the loop's present round, shown as `pass`.
/// - For a goal with several agents or items, the number of agents or items that have a result, and
///   the number of all agents or items.
/// - After the first attempt, the number of the attempt.
fn state_of(row: &RunRow, rounds: u64) -> String {
    let mut text = row.phase.as_str().to_owned();
    if rounds > 0 {
        text.push_str(&format!(", {}", count(rounds, "round")));
    }
    if let RowKind::Goal(goal) = &row.kind {
        if goal.iteration > 0 && rounds == 0 {
            text.push_str(&format!(", pass {}", goal.iteration));
        }
        if goal.parts.1 > 0 {
            text.push_str(&format!(", {} of {}", goal.parts.0, goal.parts.1));
        }
    }
    if row.attempt > 1 {
        text.push_str(&format!(", attempt {}", row.attempt));
    }
    text
}

/// Draws the graph's content as a table, with the threads of each goal. `id` is the thread of the
/// run.
fn rows(id: &str, graph: &GoalGraph<'_>, goals: &RecordedGoals) -> Markup {
    let spent_by_goal = spent_by_goal(graph, goals);
    let row = |row: &RunRow| {
        let mut threads: Vec<&ThreadId> = row.thread.iter().collect();
        let mut judged = None;
        let mut spent = &row.spent;
        let mut rounds = 0;
        if let RowKind::Goal(GoalStatus { number, .. }) = &row.kind {
            judged = judged_goal(graph, *number);
            spent = spent_by_goal.get(*number).unwrap_or(spent);
            rounds = rounds_of(graph, goals, *number);
            threads.extend(goals.threads.get(*number).into_iter().flatten());
        }
        vec![
            inline(&name_of(row)),
            match judged {
                Some(judged) => html! { "judges " (inline(judged.as_str())) },
                None => html! {
                    span.status data-status=(row.phase.as_str()) { (inline(&state_of(row, rounds))) }
                },
            },
            html! { (row.time.map(length).unwrap_or_default()) },
            html! { (unless_zero(spent.tokens)) },
            html! { (cost(spent)) },
            waits(row),
            links(&threads),
        ]
    };
    let rows: Vec<_> = goals.rows.iter().take(limits::WEB_ROWS_MAX).map(row).collect();
    let left = goals.rows.len() - rows.len();
    let headers = ["Goal", "State", ">Took", ">Tokens", ">Cost", "Waits for", "Threads"];
    html! {
        (table("Goals of the run", &headers, &rows))
        (rows_left(left, &html! {
            "the " a href=(super::thread_tree::path(id)) { "tree" }
            " has the threads of all goals, delegations and undos"
        }))
    }
}

fn name_of(row: &RunRow) -> String {
    let indent = "· ".repeat(row.depth);
    format!("{indent}{}", row.name())
}

/// Draws the goals or people for which the work of a row waits.
fn waits(row: &RunRow) -> Markup {
    let goals = match &row.kind {
        RowKind::Goal(goal) => goal.waits_for.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let people = row.now.iter().filter_map(|activity| match &activity.what {
        ActivityKind::Person { message, .. } => Some(*message),
        ActivityKind::Model { .. } => None,
    });
    html! {
        (inline(&goals.join(", ")))
        @for message in people {
            " " a href=(super::message::path(message)) { "a person" }
        }
    }
}

/// Draws links to the first threads of a goal.
fn links(threads: &[&ThreadId]) -> Markup {
    let left = threads.len().saturating_sub(limits::WEB_GOAL_THREADS) as u64;
    html! {
        @for (at, thread) in threads.iter().take(limits::WEB_GOAL_THREADS).enumerate() {
            @if at > 0 { ", " }
            a data-entry href=(thread_path(thread.as_str())) { (inline(thread.label())) }
        }
        @if left > 0 { ", " (count(left, "more thread")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Digest, MessageId};
    use crate::thread::{Closing, Input};
    use crate::workflow::{GoalPhase, definition_examples};

    #[test]
    fn a_running_goal_counts_until_now_and_in_a_run_that_has_ended_until_the_last_record() {
        let call = CallId(MessageId(uuid::Uuid::from_u128(7)));
        let record = |facts: Vec<Fact>| Record {
            position: Position(1),
            tree: ThreadId::parse("sess-goals001").unwrap(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time: Time(5),
            input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
            facts,
        };
        let closed = Fact::CallClosed { call, how: Closing::Cancelled };
        assert_eq!(time_of_rows(&[record(Vec::new())], Some(call), Time(9)), Time(9));
        assert_eq!(time_of_rows(&[record(vec![closed])], Some(call), Time(9)), Time(5));
        assert_eq!(time_of_rows(&[record(Vec::new())], None, Time(9)), Time(5));
    }

    #[test]
    fn a_full_table_states_what_it_leaves_out() {
        let row = RunRow {
            kind: RowKind::Elsewhere,
            thread: None,
            depth: 0,
            phase: GoalPhase::Done,
            attempt: 1,
            passes: 1,
            time: None,
            spent: SpendingTotals::default(),
            now: Vec::new(),
        };
        let definition = definition_examples::workflow(Vec::new());
        let rows = vec![row.clone(); limits::WEB_ROWS_MAX];
        let mut goals = RecordedGoals { definition, rows, threads: Vec::new() };
        let shown = content("sess-goals001", &goals).into_string();
        assert!(!shown.contains("more row"), "{shown}");
        goals.rows.push(row);
        let shown = content("sess-goals001", &goals).into_string();
        let hint = "1 more row; the <a href=\"/threads/sess-goals001/tree\">tree</a>";
        assert!(shown.contains(hint), "{shown}");
    }
}
