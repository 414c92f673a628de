//! The pure step: from one event, the core makes at most one record, and a list of effects.
//!
//! **Invariant:** no clock, no I/O, no async, no randomness. A step reads only its event and the
//! state, so the same events give the same records, ids included.

mod absent_listeners;
mod actions;
mod actions_per_turn;
mod alarms;
mod allotments;
mod approvals;
mod bound;
mod budgets;
mod call_table;
mod calls_by_client;
mod client_keys;
mod close;
mod cycle;
mod dispatch;
mod edited_turns;
mod event;
mod failures;
mod fork_timers;
mod forks;
mod goals;
mod groups;
mod holds;
mod in_flight_limit;
mod kept_back;
mod last_turn;
mod lifecycle;
mod lost_attempts;
mod message;
mod open_work;
mod orphans;
mod outcome;
mod pauses;
mod previews;
mod primitives;
mod recorded_events;
mod refusals;
mod reload;
mod reopened_calls;
pub mod replay;
mod reservations;
mod residency;
mod retries;
mod scheduler;
mod schedules;
mod signatures;
mod stalled_calls;
mod step;
mod submit;
mod thread_labels;
mod timeouts;
mod timers;
mod tree_times;
mod trials;
mod undelivered_messages;
mod version;

use std::collections::HashSet;
use std::sync::Arc;

pub use event::{
    Alarm, BusyCount, CallDecision, Cancellation, CoreConfig, Effect, Event, GatedAnswer,
    OperatorRuling, Receipt, ReloadRequest, Standstill, Submission, Target,
};
pub use fork_timers::{ForkSearch, TimerSearch};
pub use forks::{CallRecollection, ForkOrder, ForkRuling, ResultSearch};
pub use open_work::OpenWork;
pub use pauses::{PauseChange, PauseRuling};
pub use retries::{RetryOrder, RetryRuling};
pub use schedules::Schedules;
pub use stalled_calls::StallReason;
pub use step::Step;
pub use version::CORE_VERSION;

use crate::clock::Time;
use crate::contract::{Contracts, TreeLimits};
use crate::ids::{Attempt, CallId, Digest, ListenerName, Position};
use crate::mutant::mutant;
use crate::thread::{OperatorKeys, Record, State};
use allotments::ThreadTimeAlarms;
use budgets::Budgets;
use call_table::CallTable;
use calls_by_client::CallsByClient;
use in_flight_limit::WaitingMessages;
use outcome::AttemptSource;
use previews::Previews;
use recorded_events::RecordedEvents;
use reload::RemovedListeners;
use scheduler::Scheduler;
use timeouts::Timeouts;
use tree_times::TreeTimes;

/// State of the pump, and the rules that change it.
#[derive(Debug, Clone)]
pub struct Core {
    state: State,
    /// Attempts in flight, and deliveries that are still in progress after their call closed. The
    /// fields from `calls` to `recorded` are rebuilt after every boot and never recorded.
    calls: CallTable,
    scheduler: Scheduler,
    timeouts: Timeouts,
    tree_times: TreeTimes,
    thread_alarms: ThreadTimeAlarms,
    holds: CallsByClient,
    /// The open calls with timers.
    timed: CallsByClient,
    waiting: WaitingMessages,
    previews: Previews,
    recorded: RecordedEvents,
    contracts: Arc<Contracts>,
    /// The contracts of the listeners that a reload has removed. They apply to work that these
    /// listeners still have.
    removed: RemovedListeners,
    /// Keys of operators. If there are none, decisions need no signature.
    operators: OperatorKeys,
    /// Schedules of this pump; `None` for a pump that does not run schedules.
    schedules: Option<Arc<Schedules>>,
    budgets: Budgets,
    config: Digest,
    draining: bool,
    /// Whether the boot begins a drain, so that this core hands nothing over from its start on.
    drains_from_boot: bool,
    /// The call whose outcome is being processed; `None` at other times. All payloads of the
    /// outcome are processed before the next delivery of this call is queued.
    outcome_call: Option<CallId>,
    /// Calls that this step has closed or is about to close. The step queues none of them, so that
    /// the end of one call does not queue another call that is about to close.
    closing: HashSet<CallId, foldhash::fast::RandomState>,
}

impl Core {
    pub fn new(contracts: Arc<Contracts>, limits: TreeLimits, config: Digest) -> Self {
        Self {
            state: State::default(),
            calls: CallTable::default(),
            scheduler: Scheduler::default(),
            timeouts: Timeouts::default(),
            tree_times: TreeTimes::default(),
            thread_alarms: ThreadTimeAlarms::default(),
            holds: CallsByClient::default(),
            timed: CallsByClient::default(),
            waiting: WaitingMessages::default(),
            previews: Previews::default(),
            recorded: RecordedEvents::default(),
            contracts,
            removed: RemovedListeners::default(),
            operators: OperatorKeys::default(),
            schedules: None,
            budgets: Budgets::new(limits),
            config,
            draining: false,
            drains_from_boot: false,
            outcome_call: None,
            closing: HashSet::default(),
        }
    }

    /// Sets the contracts. Must be called before the boot.
    pub fn with_contracts(self, contracts: Arc<Contracts>) -> Self {
        Self { contracts, ..self }
    }

    /// Makes the boot begin a drain: the core takes requests of operators, and hands nothing over.
    /// Must be called before the boot. No record states this, so the shutdown must be the next
    /// event after the boot. Its record shows a replay that the boot began a drain.
    #[must_use]
    pub fn draining_from_boot(self) -> Self {
        Self { drains_from_boot: true, ..self }
    }

    pub fn drains_from_boot(&self) -> bool {
        self.drains_from_boot
    }

    /// Sets the recorded state. Must be called before the boot.
    #[must_use]
    pub fn with_state(self, state: State) -> Self {
        Self { state, ..self }
    }

    /// Returns a core with the recorded state of this core but with another config, as after a
    /// restart. The returned core still has to process a boot before any other event.
    #[must_use]
    pub fn restarted(&self, contracts: Arc<Contracts>, limits: TreeLimits, config: Digest) -> Self {
        Self { state: self.state.clone(), ..Self::new(contracts, limits, config) }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the number of deliveries in flight. Includes requests for previews, and deliveries
    /// whose call is closed.
    pub fn handed_over(&self) -> usize {
        self.calls.handed_over() + self.previews.in_flight()
    }

    /// Returns all deliveries in flight, in no fixed order. Includes requests for previews, and
    /// deliveries whose call is closed.
    pub fn deliveries_in_flight(&self) -> impl Iterator<Item = (CallId, Attempt, &ListenerName)> {
        self.calls.handed_over_deliveries().chain(self.previews.deliveries())
    }

    /// Returns the total number of calls in the queues of all listeners.
    pub fn waiting(&self) -> usize {
        self.scheduler.waiting()
    }

    /// Returns the number of calls that are queued for `listener`.
    pub fn backlog(&self, listener: &ListenerName) -> usize {
        self.scheduler.backlog(listener)
    }

    /// Applies the facts of a record to the state. A recovery calls this method for every record,
    /// in order.
    pub fn replay(&mut self, record: &Record) {
        for fact in &record.facts {
            self.state.apply(&record.tree, record.time, fact);
        }
        self.state.finish_record(&record.tree, record.position);
    }

    /// Processes one event as the step at `position`. The returned step has a record only if
    /// something must be recorded.
    pub fn step(&mut self, position: Position, now: Time, event: Event) -> Step {
        let mut step = Step::new(position, now, self.state.journal);
        match event {
            Event::Boot { journal, epoch, detail, blobs } => {
                self.boot(&mut step, journal, epoch, detail, blobs);
            }
            Event::Submit(submission) => self.submit(&mut step, *submission),
            Event::Outcome { listener, call, attempt, payloads, turn, arrived } => {
                let source = AttemptSource { listener, call, attempt };
                if attempt.is_preview() {
                    self.preview_outcome(&mut step, &source, payloads);
                } else {
                    self.outcome(&mut step, source, payloads, turn, arrived);
                }
            }
            Event::Failed { listener, call, attempt, failure } => {
                self.handle_failure(&mut step, &AttemptSource { listener, call, attempt }, failure);
            }
            Event::NotTaken { listener, call, attempt, detail } => {
                self.handle_returned_delivery(
                    &mut step,
                    &AttemptSource { listener, call, attempt },
                    detail,
                );
            }
            Event::Stray { listener, named, payloads } => {
                self.stray(&mut step, listener, named, payloads);
            }
            Event::Heartbeat { call, attempt } => self.heartbeat(&mut step, call, attempt),
            Event::Reserve { call, attempt, reservation } => {
                self.reserve(&mut step, call, attempt, reservation);
            }
            Event::Alarm(alarm) => self.alarm(&mut step, alarm),
            Event::SendScheduled { request, begun } => {
                self.send_scheduled(&mut step, request, begun);
            }
            Event::Decide(decision) => self.decide(&mut step, *decision),
            Event::Cancel(cancellation) => self.cancel(&mut step, cancellation),
            Event::Pause(request) => self.change_pause(&mut step, request),
            Event::Fork(order) => self.fork(&mut step, *order),
            Event::RetryMessage(order) => self.retry_message(&mut step, *order),
            Event::Searched { call, result } => self.searched(&mut step, call, result),
            Event::Recalled { call, result } => self.take_recalled(&mut step, call, result),
            Event::TimerSearched { timer, call, fired } => {
                self.timer_searched(&mut step, (timer, call), fired);
            }
            Event::TimerFired { timer, call } => self.fire_timer(&mut step, timer, call),
            Event::Joined { listener, detail } => self.handle_join(&mut step, listener, detail),
            Event::Left { listener, detail } => self.left(&mut step, listener, detail),
            Event::Denied { listener, operations, count } => {
                self.denied(&mut step, listener, operations, count);
            }
            Event::Standstill(standstill) => self.standstill(&mut step, standstill),
            Event::Busy(count) => Self::record_busy(&mut step, count),
            Event::Alert { ticket, report } => self.record_alert(&mut step, ticket, report),
            Event::Shutdown { reason } => self.shutdown(&mut step, reason),
            Event::Operator { ticket, action } => self.operator_action(&mut step, ticket, action),
            Event::Reload(request) => self.reload(&mut step, *request),
        }
        self.end_removed_call(&mut step);
        self.warn_at_end_of_step(&mut step);
        self.finish_step(&mut step, position);
        step
    }

    /// Starts the deliveries that the step's event made possible. Then updates everything that
    /// depends on the whole record: the time limits of the tree, the next event or timer of a fork,
    /// and the number of waiting messages.
    fn finish_step(&mut self, step: &mut Step, position: Position) {
        if let Some((tree, _)) = &step.record {
            self.state.set_head(tree, position);
        }

        self.dispatch(step);
        self.follow_hand_overs(step);
        // Runs after the dispatch, because whether a call can continue depends on this record's
        // deliveries, too. A replay has these deliveries as well.
        if let Some((tree, _)) = &step.record {
            self.state.follow_people(tree);
            self.follow_tree_time(tree);
        }
        self.follow_closed_calls(step);
        self.follow_fork(step);
        self.follow_all_forks(step);
        if let Some((tree, _)) = &step.record {
            self.state.end_scheduled_run(tree);
            self.count_waiting_messages(tree);
        }

        let is_closed = |call: &CallId| self.state.call(*call).is_none();
        debug_assert!(
            self.closing.iter().all(is_closed) || mutant("leave-calls-open"),
            "all closed"
        );
        self.closing.clear();
        debug_assert_eq!(self.timeouts.len(), self.calls.running_count(), "one deadline each");
    }
}
