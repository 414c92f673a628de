//! The progress of a workflow run, as it is shown to people. It is computed from the records of the
//! run's tree and the live events of its agents. Each goal is a row with its time, its cost and its
//! present activities.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::bus::ModelState;
use crate::bus::live::{AnswerPart, LiveEvent};
use crate::clock::Time;
use crate::envelope::{Message, MessageKind, Spending, SpendingTotals};
use crate::ids::{CallId, ListenerName, MessageId, PayloadName, ThreadId};
use crate::thread::{Closing, Fact, Hold, Record};
use crate::xml::element::Element;

use super::call_fold::{UndoSource, is_failure};
use super::definition::WorkflowDefinition;
use super::delegation::delegate_schemas;
use super::graph::GoalGraph;
use super::live_calls::LiveCalls;
use super::run_definition::RunRules;
use super::run_state::GoalPhase;
use super::run_watch::{GoalStatus, RunWatch};
use super::undo::{REPORT_LABEL, is_undo_label};

/// The goal, task or call that a row of the progress shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowKind {
    Goal(GoalStatus),
    /// A task that an agent has delegated to another agent in a role.
    Delegation {
        role: String,
        agent: ListenerName,
    },
    /// A call with which the run undoes another call. If `is_report` is set, the call instead sends
    /// a person the list of calls that the run could not undo.
    Undo {
        listener: ListenerName,
        payload: String,
        is_report: bool,
    },
    /// Activities in threads that belong to no known goal.
    Elsewhere,
}

/// One row in the progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    pub kind: RowKind,
    /// The thread of a delegated task or of an undo; `None` for other rows.
    pub thread: Option<ThreadId>,
    pub depth: usize,
    pub phase: GoalPhase,
    /// Number of the latest attempt; 0 if no attempt has begun.
    pub attempt: u32,
    /// Number of times that the goal, task or call of the row has started. `time` and `spent` are
    /// sums over all these starts.
    pub passes: u32,
    /// Time that the goal, task or call has taken so far; `None` before its first start.
    pub time: Option<Duration>,
    pub spent: SpendingTotals,
    pub now: Vec<RunActivity>,
}

impl RunRow {
    /// Returns the text that names the goal, task or call of the row.
    pub fn name(&self) -> String {
        match &self.kind {
            RowKind::Goal(goal) => goal.goal.to_string(),
            RowKind::Delegation { role, agent } => format!("{agent} as {role}"),
            RowKind::Undo { listener, is_report: true, .. } => format!("report to {listener}"),
            RowKind::Undo { listener, payload, .. } => format!("undo {payload} at {listener}"),
            RowKind::Elsewhere => "agents".to_owned(),
        }
    }
}

/// The present activity of a call beneath a goal, with the thread and the listener of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunActivity {
    pub thread: ThreadId,
    pub listener: ListenerName,
    pub what: ActivityKind,
}

/// Present activity of a call beneath a goal, or the reason why the call waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivityKind {
    Model {
        state: ModelState,
        since: Time,
        streams: bool,
        /// The end of the text that the model has streamed so far. The payloads in this text are
        /// not checked yet.
        text: String,
        part: AnswerPart,
    },
    /// The call waits for a person, who has to approve or answer this message.
    Person { hold: Hold, message: MessageId, since: Time },
}

/// A thread beneath the run.
#[derive(Debug, Default)]
struct ThreadNode {
    /// Number of the goal for which the run opened the thread; `None` for any other thread.
    goal: Option<usize>,
    attempt: u32,
    role: Option<String>,
    /// The first call of the thread: its id, its listener, and the local name of its payload.
    /// `None` until the call is recorded.
    call: Option<(CallId, ListenerName, String)>,
    opened: Time,
    ended: Option<(Time, Closing)>,
    /// Whether the first call of the thread has a reply whose name reports a failure. Such a reply
    /// completes the call, so `ended` does not show the failure.
    has_failed_reply: bool,
}

/// The progress of one run, computed from the records of the run's tree and from live events.
pub struct RunTree<'a> {
    watch: RunWatch<'a>,
    run: Option<(ThreadId, CallId)>,
    /// All messages of the run's call, in order. Empty after the end of the run.
    messages: Vec<Arc<Message>>,
    goals: Vec<GoalStatus>,
    /// The clock of each goal, by the number of the goal.
    times: BTreeMap<usize, GoalClock>,
    threads: BTreeMap<ThreadId, ThreadNode>,
    /// Thread and listener of each call.
    calls: HashMap<CallId, (ThreadId, ListenerName)>,
    /// Names of the payloads that delegate a task.
    delegating: HashSet<PayloadName>,
    delegations: HashMap<CallId, String>,
    held: BTreeMap<CallId, (Hold, Time)>,
    spent: HashMap<ThreadId, SpendingTotals>,
    live: LiveCalls,
}

impl<'a> RunTree<'a> {
    pub fn new(
        definition: &'a WorkflowDefinition,
        graph: &'a GoalGraph<'a>,
        once: &'a HashSet<ListenerName>,
    ) -> Self {
        let delegating = delegate_schemas(definition).into_iter().map(|(name, _)| name);
        Self {
            watch: RunWatch::new(definition, graph, once),
            delegating: delegating.collect(),
            run: None,
            messages: Vec::new(),
            goals: Vec::new(),
            times: BTreeMap::new(),
            threads: BTreeMap::new(),
            calls: HashMap::new(),
            delegations: HashMap::new(),
            held: BTreeMap::new(),
            spent: HashMap::new(),
            live: LiveCalls::default(),
        }
    }

    /// Sets the data that only a retry needs: the messages that the thread had before the run, and
    /// the data for the undo of the earlier runs.
    #[must_use]
    pub fn after(mut self, messages: Vec<Arc<Message>>, undo: UndoSource<'a>) -> Self {
        self.watch = self.watch.after(messages, undo);
        self
    }

    /// Sets the rules that the run follows. Required only for a run that an earlier version of the
    /// program may have begun.
    #[must_use]
    pub fn with_rules(mut self, rules: RunRules) -> Self {
        self.watch = self.watch.with_rules(rules);
        self
    }

    /// Begins to follow the run that `call` opened in `thread`. [`Self::take`] ignores all records
    /// until `begin` is called.
    pub fn begin(&mut self, thread: ThreadId, call: CallId) {
        self.run = Some((thread, call));
    }

    /// Applies the next record of the run's tree. Returns whether the state of a row has changed.
    pub fn take(&mut self, record: &Record) -> bool {
        let Some((run, call)) = self.run.clone() else { return false };
        let is_end = record.closes(call);
        let known = self.messages.len();
        let mut is_changed = false;
        for fact in &record.facts {
            if let Fact::Accepted { message, .. } = fact
                && message.thread == run
                && message.call == Some(call)
                && message.to != ListenerName::core()
            {
                self.messages.push(Arc::clone(message));
                if is_end {
                    self.watch.take_unhandled(message);
                } else {
                    self.watch.take(message);
                }
            }
            is_changed |= self.take_fact(fact, record, &run);
        }
        if is_end {
            self.end_run(record, known);
        } else if self.messages.len() == known {
            return is_changed;
        }

        for (thread, goal, attempt) in self.watch.new_threads() {
            let node = self.threads.entry(thread).or_default();
            node.goal = goal;
            node.attempt = attempt;
        }
        let goals = self.watch.goals();
        is_changed |= goals != self.goals;
        self.goals = goals;
        self.note_times(record.time);
        is_changed
    }

    /// Ends the run, whose call ends in `record`. The first `known` messages of the run were
    /// recorded before, and are already part of the state. If the run has not handled one of them,
    /// computes the state anew, without the failure policies that this message triggered.
    fn end_run(&mut self, record: &Record, known: usize) {
        let messages = std::mem::take(&mut self.messages);
        let mut unhandled: HashSet<_> = record.unhandled_messages().collect();
        let was_ahead = messages.iter().take(known).any(|message| unhandled.contains(&message.id));
        if was_ahead {
            unhandled.extend(messages.iter().skip(known).map(|message| message.id));
            self.watch.take_again(&messages, &unhandled);
        }
        self.watch.end();
        if was_ahead {
            self.forget_unstarted();
        }
    }

    /// Removes the clocks of goals that were shown as running, although the run never started them.
    fn forget_unstarted(&mut self) {
        let skipped =
            self.watch.goals().into_iter().filter(|goal| goal.phase == GoalPhase::Skipped);
        let skipped: HashSet<_> = skipped.map(|goal| goal.number).collect();
        let shown = self.goals.iter().filter(|goal| goal.phase == GoalPhase::Running);
        for goal in shown.filter(|goal| skipped.contains(&goal.number)) {
            self.times.remove(&goal.number);
        }
    }

    /// Applies a fact of a record. Returns whether the fact has changed the row of a delegated task
    /// or of an undo.
    fn take_fact(&mut self, fact: &Fact, record: &Record, run: &ThreadId) -> bool {
        let now = record.time;
        match fact {
            Fact::ThreadOpened { thread, bound, .. } if thread.is_beneath(run) => {
                let role = bound.and_then(|call| self.delegations.get(&call).cloned());
                let node = self.threads.entry(thread.clone()).or_default();
                node.opened = now;
                node.role = role;
                return node.has_row(thread);
            }
            Fact::Accepted { message, opening: Some(_), .. } => return self.take_call(message),
            Fact::Accepted { message, .. } => return self.take_reply(message),
            Fact::CallClosed { call, how } => {
                self.held.remove(call);
                self.live.close(*call);
                let Some((thread, _)) = self.calls.get(call) else { return false };
                let node = self.threads.get_mut(thread);
                if let Some(node) = node.filter(|node| node.is_begun_by(*call)) {
                    node.ended = Some((now, *how));
                    return node.has_row(thread);
                }
            }
            Fact::Held { call, hold, .. } => {
                self.held.insert(*call, (*hold, now));
            }
            Fact::Released { call, .. } => {
                self.held.remove(call);
            }
            Fact::Used { call, tokens_in, tokens_out, money, .. } => {
                let tokens = tokens_in.saturating_add(*tokens_out);
                let spent = Spending { tokens, money: *money };
                self.spend(*call, record.turn_currency().as_deref(), spent);
            }
            Fact::Charged { call, spending, .. } => self.spend(*call, None, *spending),
            _ => {}
        }
        false
    }

    fn take_call(&mut self, message: &Message) -> bool {
        let call = CallId(message.id);
        self.calls.insert(call, (message.thread.clone(), message.to.clone()));
        let local = message.name.local.to_string();
        if self.delegating.contains(&message.name) {
            let role = Element::head(message.payload.as_str());
            let role = role.and_then(|head| head.attribute("role").map(str::to_owned));
            self.delegations.insert(call, role.unwrap_or_default());
        }
        let Some(node) = self.threads.get_mut(&message.thread) else { return false };
        node.call.get_or_insert_with(|| (call, message.to.clone(), local));
        node.has_row(&message.thread)
    }

    /// Handles a reply that reports the failure of a call. If the call is the first one in its
    /// thread, marks the thread as failed. Returns whether the thread is marked and has a row.
    /// Returns false for any other message.
    fn take_reply(&mut self, message: &Message) -> bool {
        if message.kind != MessageKind::Reply || !is_failure(&message.name.local) {
            return false;
        }

        let Some(call) = message.cause.map(CallId) else { return false };
        let Some((thread, _)) = self.calls.get(&call) else { return false };
        let Some(node) = self.threads.get_mut(thread) else { return false };
        node.has_failed_reply |= node.is_begun_by(call);
        node.has_failed_reply && node.has_row(thread)
    }

    fn spend(&mut self, call: CallId, currency: Option<&str>, spent: Spending) {
        if let Some((thread, _)) = self.calls.get(&call) {
            self.spent.entry(thread.clone()).or_default().add(currency, spent);
        }
    }

    fn note_times(&mut self, now: Time) {
        for goal in &self.goals {
            if goal.phase == GoalPhase::Running || self.times.contains_key(&goal.number) {
                self.times.entry(goal.number).or_default().note((goal.phase, goal.iteration), now);
            }
        }
    }

    /// Applies a live event. Returns whether the event has changed what a row shows.
    pub fn take_live(&mut self, event: &LiveEvent) -> bool {
        self.live.take(event)
    }

    /// Returns the tokens and the money that all model calls beneath the run have used.
    pub fn spent(&self) -> SpendingTotals {
        let inside =
            |thread: &ThreadId| self.run.as_ref().is_some_and(|(run, _)| thread.is_beneath(run));
        let spent = self.spent.iter().filter(|(thread, _)| inside(thread));
        SpendingTotals::sum_of(spent.map(|(_, spent)| spent))
    }

    /// Returns the threads that the run opened for a goal, in the order in which it opened them.
    pub fn threads_of_goal(&self, number: usize) -> Vec<&ThreadId> {
        let threads = self.threads.iter().filter(|(_, node)| node.goal == Some(number));
        in_opening_order(threads.map(|(thread, node)| (thread, node.opened)))
    }

    /// Returns the rows of the run. Each goal is followed by the tasks that were delegated in it,
    /// and then by its members. The undos come last.
    pub fn rows(&self, now: Time) -> Vec<RunRow> {
        let mut members: BTreeMap<usize, Vec<&ThreadId>> = BTreeMap::new();
        for thread in self.threads.keys() {
            if let Some(goal) = self.goal_of(thread) {
                members.entry(goal).or_default().push(thread);
            }
        }

        let mut rows = Vec::new();
        for goal in &self.goals {
            let number = goal.number;
            let threads = members.remove(&number).unwrap_or_default();
            let nodes = threads.iter().filter_map(|thread| self.threads.get(*thread));
            let attempt = nodes.map(|node| node.attempt).max().unwrap_or_default();
            let (delegated, own): (Vec<_>, Vec<_>) =
                threads.into_iter().partition(|thread| self.is_delegated(thread));
            rows.push(RunRow {
                kind: RowKind::Goal(goal.clone()),
                thread: None,
                depth: goal.depth,
                phase: goal.phase,
                attempt,
                passes: self.times.get(&number).map_or(0, |clock| clock.passes),
                time: self.times.get(&number).map(|clock| clock.total(now)),
                spent: self.spent_in(&own),
                now: self.activities(&own),
            });
            rows.extend(self.delegations(&delegated, goal.depth, now));
        }
        rows.extend(self.undo_rows(now));
        rows
    }

    /// Returns the number of the goal for which the thread, or a thread above it, was opened;
    /// `None` if no such goal is known.
    fn goal_of(&self, thread: &ThreadId) -> Option<usize> {
        thread.upwards().find_map(|thread| self.threads.get(&thread)?.goal)
    }

    /// Whether the thread belongs to a delegated task.
    fn is_delegated(&self, thread: &ThreadId) -> bool {
        self.task_of(thread).is_some()
    }

    /// Returns the thread of the delegated task to which `thread` belongs; `None` if `thread`
    /// belongs to no delegated task.
    fn task_of(&self, thread: &ThreadId) -> Option<ThreadId> {
        for thread in thread.upwards() {
            if self.threads.get(&thread)?.role.is_some() {
                return Some(thread);
            }
        }
        None
    }

    fn delegations(&self, threads: &[&ThreadId], depth: usize, now: Time) -> Vec<RunRow> {
        let mut by_task: BTreeMap<ThreadId, Vec<&ThreadId>> = BTreeMap::new();
        for thread in threads {
            if let Some(task) = self.task_of(thread) {
                by_task.entry(task).or_default().push(thread);
            }
        }
        let rows = by_task.iter().filter_map(|(task, threads)| {
            let node = self.threads.get(task)?;
            let (_, agent, _) = node.call.as_ref()?;
            let role = node.role.clone().unwrap_or_default();
            let kind = RowKind::Delegation { role, agent: agent.clone() };
            let row = self.row_of(kind, node, (depth + 1, now), threads);
            Some(RunRow { thread: Some(task.clone()), ..row })
        });
        rows.collect()
    }

    fn undo_rows(&self, now: Time) -> Vec<RunRow> {
        let Some((run, _)) = &self.run else { return Vec::new() };
        let is_own = |thread: &ThreadId| thread.parent().as_ref() == Some(run);
        let threads = self.threads.iter().filter(|(thread, _)| is_own(thread));
        let rows = threads.filter_map(|(thread, node)| {
            let is_report = thread.label().starts_with(REPORT_LABEL);
            if !is_report && !is_undo_label(thread.label()) {
                return None;
            }
            let (_, listener, payload) = node.call.clone()?;
            let kind = RowKind::Undo { listener, payload, is_report };
            let row = self.row_of(kind, node, (0, now), &[thread]);
            Some((node.opened, RunRow { thread: Some(thread.clone()), ..row }))
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(opened, _)| *opened);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn row_of(
        &self,
        kind: RowKind,
        node: &ThreadNode,
        (depth, now): (usize, Time),
        threads: &[&ThreadId],
    ) -> RunRow {
        let phase = match node.ended {
            None => GoalPhase::Running,
            Some((_, Closing::Completed)) if !node.has_failed_reply => GoalPhase::Done,
            Some(_) => GoalPhase::Failed,
        };
        let until = node.ended.map_or(now, |(at, _)| at);
        let time = Some(until.since(node.opened));
        let spent = self.spent_in(threads);
        let now = self.activities(threads);
        RunRow { kind, thread: None, depth, phase, attempt: 1, passes: 1, time, spent, now }
    }

    /// Returns a row for the present activities in threads that belong to no known goal; `None` if
    /// there are no such activities. The goal of a thread is not known if live events report the
    /// activities, but no readable journal states the goal.
    pub fn elsewhere(&self) -> Option<RunRow> {
        let threads = self.live.threads();
        let threads: Vec<_> = threads.filter(|thread| self.goal_of(thread).is_none()).collect();
        let now = self.activities(&threads);
        (!now.is_empty()).then_some(RunRow {
            kind: RowKind::Elsewhere,
            thread: None,
            depth: 0,
            phase: GoalPhase::Running,
            attempt: 0,
            passes: 0,
            time: None,
            spent: SpendingTotals::default(),
            now,
        })
    }

    fn spent_in(&self, threads: &[&ThreadId]) -> SpendingTotals {
        SpendingTotals::sum_of(threads.iter().filter_map(|thread| self.spent.get(*thread)))
    }

    fn activities(&self, threads: &[&ThreadId]) -> Vec<RunActivity> {
        let is_in = |thread: &ThreadId| threads.contains(&thread);
        let held = self.held.iter().filter_map(|(call, (hold, since))| {
            let (thread, listener) = self.calls.get(call).filter(|(thread, _)| is_in(thread))?;
            let hold = *hold;
            let message = call.0;
            let since = *since;
            let what = ActivityKind::Person { hold, message, since };
            Some(RunActivity { thread: thread.clone(), listener: listener.clone(), what })
        });
        let live = self.live.activities().filter(|activity| is_in(&activity.thread));
        held.chain(live).collect()
    }
}

/// The running time of a goal, summed over all passes of its loop and all its corrections.
#[derive(Debug, Default)]
struct GoalClock {
    passes: u32,
    /// Total length of the ended periods in which the goal ran. A new period begins with each pass
    /// of the goal's loop, and after each correction.
    ended: Duration,
    /// Start of the present pass, and number of the pass in the loop; `None` while the goal does
    /// not run.
    running: Option<(Time, u32)>,
}

impl GoalClock {
    /// Updates the running time of a goal after a record that was written at the time `now`.
    /// `phase` and `iteration` are the goal's phase and the pass of its loop after this record.
    /// Time counts only in the phase [`GoalPhase::Running`].
    fn note(&mut self, (phase, iteration): (GoalPhase, u32), now: Time) {
        let is_running = phase == GoalPhase::Running;
        let is_same_pass = self.running.is_some_and(|(_, running)| running == iteration);
        if is_running && is_same_pass {
            return;
        }

        if let Some((since, _)) = self.running.take() {
            self.ended += now.since(since);
        }
        if is_running {
            self.passes += 1;
            self.running = Some((now, iteration));
        }
    }

    fn total(&self, now: Time) -> Duration {
        let running = self.running.map(|(since, _)| now.since(since));
        self.ended + running.unwrap_or_default()
    }
}

impl ThreadNode {
    /// Whether the thread has a row of its own. True if the thread belongs to a delegated task,
    /// undoes a call, or reports the calls that were not undone.
    fn has_row(&self, thread: &ThreadId) -> bool {
        let label = thread.label();
        self.role.is_some() || is_undo_label(label) || label.starts_with(REPORT_LABEL)
    }

    fn is_begun_by(&self, call: CallId) -> bool {
        self.call.as_ref().is_some_and(|(first, ..)| *first == call)
    }
}

/// Sorts threads with the times at which they were opened. Threads that were opened together, as
/// for the items of a list, are in the order of their numbers.
fn in_opening_order<'t>(threads: impl Iterator<Item = (&'t ThreadId, Time)>) -> Vec<&'t ThreadId> {
    let mut threads: Vec<_> = threads.collect();
    threads.sort_by_key(|(thread, opened)| (*opened, thread.as_str().len(), *thread));
    threads.into_iter().map(|(thread, _)| thread).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::definition::examples::{name, workflow};
    use super::*;
    use crate::envelope::Payload;
    use crate::ids::{Digest, Position};
    use crate::thread::{Input, Opener, Opening};

    fn message(id: u128, kind: MessageKind, cause: Option<u128>, local: &str) -> Arc<Message> {
        let id_of = |number: u128| MessageId(Uuid::from_u128(number));
        Arc::new(Message {
            id: id_of(id),
            kind,
            from: name("flow"),
            to: name("store"),
            thread: ThreadId::parse("sess-aaaaaaaa.undo_1").unwrap(),
            seq: 1,
            cause: cause.map(id_of),
            call: Some(CallId(id_of(1))),
            time: Time(0),
            name: PayloadName::new("urn:test", local),
            payload: Payload::new(format!("<{local} xmlns=\"urn:test\"/>")),
        })
    }

    /// Returns the facts of an undo that is completed with the reply `local`.
    fn undo_with_reply(local: &str) -> Vec<Fact> {
        let request = message(1, MessageKind::Call, None, "cancel");
        let call = CallId(request.id);
        let opener = Opener::Client { name: name("flow") };
        let opening = Some(Opening { opener, group: None, forward: false });
        let thread = request.thread.clone();
        let reply = message(2, MessageKind::Reply, Some(1), local);
        vec![
            Fact::ThreadOpened { thread, by: name("flow"), bound: None, allotment: None },
            Fact::Accepted { message: request, opening, key: None },
            Fact::Accepted { message: reply, opening: None, key: None },
            Fact::CallClosed { call, how: Closing::Completed },
        ]
    }

    #[test]
    fn an_undo_with_a_reply_that_reports_a_failure_has_failed() {
        let run = ThreadId::parse("sess-aaaaaaaa").unwrap();
        let definition = workflow(Vec::new());
        let (graph, _) = GoalGraph::new(&definition);
        let once = HashSet::new();
        for (reply, phase) in [("cancelled", GoalPhase::Done), ("cancel-failed", GoalPhase::Failed)]
        {
            let mut tree = RunTree::new(&definition, &graph, &once);
            tree.begin(run.clone(), CallId(MessageId(Uuid::from_u128(9))));
            tree.take(&Record {
                position: Position(1),
                tree: run.clone(),
                previous: Position(0),
                previous_hash: Digest::ZERO,
                time: Time(0),
                input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
                facts: undo_with_reply(reply),
            });
            let rows = tree.rows(Time(0));
            assert_eq!(rows.len(), 1, "{rows:?}");
            assert_eq!(rows[0].phase, phase, "{rows:?}");
        }
    }

    #[test]
    fn the_threads_of_a_goal_are_in_the_order_in_which_they_were_opened() {
        let opened = [("work_1", 1), ("work_10", 1), ("work_11", 0), ("work_2", 1)];
        let opened = opened.map(|(label, time)| {
            let thread = ThreadId::parse(&format!("sess-abcdefgh.{label}"));
            (thread.expect("it is a thread"), Time(time))
        });
        let sorted = in_opening_order(opened.iter().map(|(thread, time)| (thread, *time)));
        let labels: Vec<_> = sorted.into_iter().map(ThreadId::label).collect();
        assert_eq!(labels, ["work_11", "work_1", "work_2", "work_10"]);
    }

    #[test]
    fn a_goal_of_a_loop_counts_the_time_of_its_own_passes() {
        let second = |n: i64| Time(n * 1_000_000);
        let seconds = Duration::from_secs;
        let mut clock = GoalClock::default();
        clock.note((GoalPhase::Running, 1), second(10));
        clock.note((GoalPhase::Running, 1), second(11));
        assert_eq!(clock.total(second(12)), seconds(2));
        clock.note((GoalPhase::Done, 0), second(14));
        assert_eq!(clock.total(second(60)), seconds(4));

        // The other goals of the loop run meanwhile.
        clock.note((GoalPhase::Waiting, 0), second(60));
        clock.note((GoalPhase::Running, 2), second(70));
        assert_eq!(clock.total(second(71)), seconds(5));
        assert_eq!(clock.passes, 2);

        // One record ends the only goal of a loop, and starts its next pass.
        clock.note((GoalPhase::Running, 3), second(72));
        assert_eq!(clock.total(second(72)), seconds(6));
        assert_eq!(clock.passes, 3);
        clock.note((GoalPhase::Failed, 0), second(73));
        assert_eq!(clock.total(second(99)), seconds(7));
    }
}
