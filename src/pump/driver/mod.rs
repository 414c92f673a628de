//! The driver: one OS thread that takes events, lets the core process them, makes the records
//! durable, and only then performs the effects.
//!
//! All events that are ready are processed and committed together, so that one disk write serves
//! them all. While the disk is full, the driver refuses new submissions. As soon as there is space,
//! it writes the records of the steps that it has already processed, and then performs their
//! effects.

mod alarm_queue;
mod arrivals;
mod busy_counter;
mod call_waits;
mod completions;
mod failed_attempts;
mod group_commit;
mod handle;
mod leadership;
mod metrics_recorder;
mod pump_clock;
mod pump_metrics;
mod queries;
mod refused_payloads;
mod reload;
mod shared_gate;
mod sink;
mod spans;
mod standstill_detector;
mod submission_limit;
mod waiters;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

pub use call_waits::{CallWait, CallWaitReason, WaitSender};
pub use completions::Completions;
pub use handle::{CallCompletion, Handle, PumpStopped, PumpUnavailable};
pub use pump_metrics::{PumpMetrics, PumpNotReady, WriteObstacle};
pub(crate) use queries::{DeliveryInFlight, TimePassage};
pub use queries::{HeldCalls, HeldPreview, HeldRequest};
pub(crate) use reload::{ConfigExchange, RetireHost};
pub use sink::PumpSink;

use uuid::Uuid;

use crate::bus::{Delivery, Host};
use crate::clock::Time;
use crate::contract::Contract;
use crate::failpoint::{failpoint, failpoint_in};
use crate::ids::{Attempt, CallId, Digest, ListenerName, Position};
use crate::journal::{Error, Journal};
use crate::limits;
use crate::mutant;
use crate::pump::ResidentCore;
use crate::pump::core::{Alarm, Core, Effect, Event, ForkSearch, Step};
use crate::pump::gate::Gate;
use crate::pump::snapshot_maker::SnapshotMaker;
use crate::thread::Map;
use crate::trace::SpanTracer;
use alarm_queue::AlarmQueue;
use arrivals::Arrivals;
use busy_counter::BusyCounter;
use leadership::LeadershipProof;
use metrics_recorder::{Lifetime, MetricsRecorder};
use pump_clock::{PumpClock, warn_of_step};
use queries::PumpQuery;
use reload::RetiringHost;
use shared_gate::SharedGate;
use sink::PendingHeartbeats;
use waiters::Waiters;

/// Commands to the pump's thread.
pub(super) enum PumpCommand {
    Event(Event),
    Submit(Box<handle::Submit>),
    /// Processes a request whose sender waits for the pump's ruling.
    Operate(Box<handle::OperatorRequest>),
    Reserve(Box<handle::Reserve>),
    ModelState(Box<call_waits::ModelReport>),
    /// Handles the deadlines that have passed. The pump sends itself this command when a deadline
    /// passes, so that it first processes everything that is already in the inbox.
    Deadlines,
    Query(Box<PumpQuery>, submission_limit::InboxPermit),
    /// Makes the pump refuse new submissions. The pump reports through `done` as soon as no
    /// delivery is in flight.
    Drain {
        reason: String,
        /// Whether another process continues the work of this pump at once.
        is_handover: bool,
        done: tokio::sync::oneshot::Sender<()>,
    },
    /// Replaces the config. The command is the last of its batch, and the pump replaces the config
    /// after the batch.
    Reload(Box<reload::Reload>),
    /// Stops the pump at once.
    Stop,
}

/// A pump that is ready to run. The state is rebuilt, and the pump is the only writer of the
/// journal.
pub struct Pump {
    core: ResidentCore,
    /// Maker of snapshots; `None` for a pump without snapshots.
    // Ordering rule: dropped before the journal, whose lock also keeps others from its snapshots.
    snapshots: Option<SnapshotMaker>,
    journal: Box<dyn Journal>,
    gate: Gate,
    /// The gate with which clients and hosts check payloads on their own OS threads, before they
    /// send the payloads to the pump.
    gates: SharedGate,
    hosts: Map<ListenerName, Arc<dyn Host>>,
    /// Hosts that got deliveries since their last flush.
    unflushed_hosts: Vec<Arc<dyn Host>>,
    /// Hosts that a reload has replaced and that still have deliveries.
    retiring: Vec<RetiringHost>,
    has_reloaded: bool,
    /// Attempts with a recorded turn that waits in its fork, if there was a reload. The earlier gate
    /// of such an attempt is kept until its turn takes effect.
    recorded_turns: Vec<(CallId, Attempt)>,
    /// The reload to carry out after the present batch of commands; `None` if none was requested.
    reload: Option<Box<reload::Reload>>,
    inbox: Receiver<PumpCommand>,
    /// Channel for orders to search the source of a fork for the recorded result of a call, or for
    /// the firing of a timer. The source is the thread from which the fork was made. `None` for a
    /// pump that serves no forks.
    recalls: Option<tokio::sync::mpsc::UnboundedSender<ForkSearch>>,
    handle: Handle,
    alarms: AlarmQueue,
    /// Whether [`PumpCommand::Deadlines`] is in the inbox.
    is_deadline_queued: bool,
    waiters: Waiters,
    /// Queries of the present batch of commands, which the pump answers when the batch's records
    /// are durable.
    queries: Vec<PumpQuery>,
    clock: PumpClock,
    heartbeats: PendingHeartbeats,
    arrivals: Arrivals,
    busy: BusyCounter,
    /// Position of the last durable record. Readers of the channel see only the latest position, so
    /// a slow reader delays nothing.
    recorded: tokio::sync::watch::Sender<Position>,
    proof: LeadershipProof,
    metrics: MetricsRecorder,
    logged_reasons: failed_attempts::LoggedReasons,
    /// Inputs of the model calls in the present batch, such as system prompts. The pump stores them
    /// before the records of the batch.
    inputs: Vec<String>,
    /// Digests of recently stored model inputs, which the pump does not store a second time.
    kept: HashSet<Digest>,
    /// Digests of the config's documents, such as the config file and the schemas, for the boot
    /// record. The documents are stored in the journal. Empty after the boot.
    blobs: Vec<Digest>,
    /// Whether ids are derived from [`SAME_IDS`] instead of the journal's id, so that every run of
    /// a test case gets the same ids.
    has_same_ids: bool,
    /// Position of the last record before this pump, if the pump reports at its end only the open
    /// work of trees that it has changed. `None` if it reports all open work.
    reports_after: Option<Position>,
    /// Partition of the journal, for the log; `None` without partitions.
    partition: Option<u32>,
}

/// A constant from which ids are derived in place of the journal's id. Only pumps with
/// [`Pump::with_same_ids`] use it.
const SAME_IDS: Uuid = Uuid::from_u128(0x6f72_6761_6e69_8000_8000_6361_7365_0001);

impl Pump {
    pub fn new(core: impl Into<ResidentCore>, journal: Box<dyn Journal>, gate: Gate) -> Self {
        let core = core.into();
        let (outbox, inbox) = channel();
        let busy = BusyCounter::default();
        let last = Position(journal.next().0.saturating_sub(1));
        let (recorded, follow) = tokio::sync::watch::channel(last);
        let gates = SharedGate::new(gate.clone());
        let counts = Arc::new(PumpMetrics::new(&gate.contracts, journal.proof()));
        let handle = Handle::new(outbox, gates.clone(), busy.clone(), follow, Arc::clone(&counts));

        let alarms = AlarmQueue::default();
        let waiters = Waiters::default();
        let hosts = Map::default();
        let unflushed_hosts = Vec::new();
        let clock = PumpClock::start(core.state().time);
        let heartbeats = PendingHeartbeats::default();
        let metrics = MetricsRecorder::new(counts);

        Self {
            core,
            journal,
            gate,
            gates,
            hosts,
            unflushed_hosts,
            retiring: Vec::new(),
            has_reloaded: false,
            recorded_turns: Vec::new(),
            reload: None,
            inbox,
            recalls: None,
            handle,
            alarms,
            is_deadline_queued: false,
            waiters,
            queries: Vec::new(),
            clock,
            heartbeats,
            arrivals: Arrivals::default(),
            busy,
            recorded,
            proof: LeadershipProof::default(),
            metrics,
            logged_reasons: failed_attempts::LoggedReasons::default(),
            inputs: Vec::new(),
            kept: HashSet::new(),
            snapshots: None,
            blobs: Vec::new(),
            has_same_ids: false,
            reports_after: None,
            partition: None,
        }
    }

    /// Reports at the end of the pump only the open work of trees that this pump has changed.
    #[must_use]
    pub fn reporting_own_work(self) -> Self {
        let last = Position(self.journal.next().0.saturating_sub(1));
        Self { reports_after: Some(last), ..self }
    }

    /// Sets the partition of the pump's journal, for its log. `None` without partitions.
    #[must_use]
    pub fn of_partition(self, partition: Option<u32>) -> Self {
        Self { partition, ..self }
    }

    /// Logs the work that is open when the pump stops. The process to which the partition is handed
    /// over continues this work at once, so that is no reason for a warning.
    fn log_open_work(&self) {
        let left = match self.reports_after {
            Some(position) => self.core.left_open_after(position),
            None => self.core.left_open(),
        };
        let partition = self.partition;
        if left.is_empty() {
            return;
        }
        if self.waiters.is_handing_over() {
            tracing::info!(partition, "handed over with open work: {left}");
        } else {
            tracing::warn!(
                partition,
                "stopped with open work: {left}; this work continues at the next start"
            );
        }
    }

    /// Sets the digests of the config's documents, which the boot record lists. The journal must
    /// already contain the documents.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Vec<Digest>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Sets the channel on which the pump requests searches for recorded events. Each search looks
    /// in the source of a fork for the result of one call of the fork, or for the firing of one of
    /// the fork's timers.
    #[must_use]
    pub fn with_recalls(self, recalls: tokio::sync::mpsc::UnboundedSender<ForkSearch>) -> Self {
        Self { recalls: Some(recalls), ..self }
    }

    /// Makes snapshots of the state with `maker` while the pump runs.
    #[must_use]
    pub fn with_snapshots(self, maker: SnapshotMaker) -> Self {
        Self { snapshots: Some(maker), ..self }
    }

    /// Makes the pump drain from its start on: it takes requests of operators, and hands nothing
    /// over.
    #[must_use]
    pub(crate) fn draining_from_boot(self) -> Self {
        Self { core: self.core.map(Core::draining_from_boot), ..self }
    }

    /// Freezes the pump's clock, for test cases of workflows. Only [`Handle::pass_time`] advances a
    /// frozen clock.
    #[must_use]
    pub(crate) fn with_frozen_clock(mut self) -> Self {
        self.clock.freeze();
        self
    }

    /// Derives all ids from a constant instead of the journal's id, for test cases of workflows.
    /// Ids influence the jitter of retries and the order of simultaneous deadlines. With the same
    /// ids, every run of a test case behaves in the same way.
    #[must_use]
    pub(crate) fn with_same_ids(mut self) -> Self {
        self.has_same_ids = true;
        self
    }

    /// Sends the pump's spans to this tracer.
    #[must_use]
    pub fn traced(mut self, tracer: SpanTracer) -> Self {
        self.metrics.trace(&tracer, &self.gate.contracts, self.core.state());
        self.handle.trace(tracer);
        self
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns the sink to which hosts report.
    pub fn sink(&self) -> Arc<PumpSink> {
        let outbox = self.handle.outbox();
        let heartbeats = self.heartbeats.clone();
        let arrivals = self.arrivals.clone();
        let watched = (self.counts(), Arc::clone(self.handle.live()));
        Arc::new(PumpSink::new(self.gates.clone(), outbox, heartbeats, arrivals, watched))
    }

    /// Returns the metrics of the pump. They remain readable after the pump's end.
    pub fn counts(&self) -> Arc<PumpMetrics> {
        Arc::clone(self.metrics.counts())
    }

    pub fn host(&mut self, listener: ListenerName, host: Arc<dyn Host>) {
        self.hosts.insert(listener, host);
    }

    /// Runs until the pump is stopped. Returns an error if the journal fails for good, or if
    /// another pump takes over.
    pub fn run(mut self, detail: &str) -> Result<(), Error> {
        let journal = if self.has_same_ids { SAME_IDS } else { self.journal.id() };
        let epoch = self.journal.epoch();
        let blobs = std::mem::take(&mut self.blobs);
        let boot = Event::Boot { journal, epoch, detail: detail.to_owned(), blobs };
        if let Some(mutant) = mutant::active() {
            tracing::error!(mutant, "a safety rule is switched off; this pump is for tests only");
        }

        self.warn_of_pauses();
        let _lifetime = Lifetime(self.counts());
        failpoint("before-boot");
        // Discard uncounted time from before this start: the boot record accounts for it.
        self.clock.now();
        self.clock.standstill();
        let mut batch = vec![PumpCommand::Event(boot)];
        if self.core.drains_from_boot() {
            let reason = "the organism was started for a cancellation alone".to_owned();
            batch.push(PumpCommand::Event(Event::Shutdown { reason }));
        }

        loop {
            let now = self.clock.now();
            self.warn_of_clock(now);
            // The standstill is stepped first, so that uncounted time expires no deadline.
            if let Some(standstill) = self.clock.standstill() {
                warn_of_step(standstill);
                batch.insert(0, PumpCommand::Event(Event::Standstill(standstill)));
            }
            self.metrics.begins_to_step();
            let steps = self.step_all(now, batch.drain(..))?;
            self.metrics.record_step();
            failpoint("stepped");
            self.commit(steps)?;
            self.answer_queries()?;
            self.reload_if_requested()?;
            self.release_gates();
            // Ordering rule: after the effects of the batch, which read the state.
            self.core.let_rest();
            self.metrics.update_gauges(&self.core, &*self.journal);
            if let Some(snapshots) = &mut self.snapshots {
                snapshots.announce(self.journal.last_checkpoint());
            }
            self.waiters.finish_drain_if_idle(self.core.handed_over());
            if self.waiters.is_stopping() {
                self.log_open_work();
                let now = self.clock.now();
                let counts = self.busy.take_all((Instant::now(), now)).into_iter();
                let counts = counts.map(|busy| PumpCommand::Event(Event::Busy(busy)));
                let steps = self.step_all(now, counts)?;
                self.commit(steps)?;
                // Ordering rule: a reader holds back the write-ahead log, which a close moves.
                self.snapshots = None;
                return self.journal.close(now);
            }
            self.collect_batch(&mut batch);
            // Clients that wait query the pump again and again, and models report their state. Both
            // record nothing.
            let records_nothing = |command: &PumpCommand| {
                matches!(command, PumpCommand::Query(..) | PumpCommand::ModelState(_))
            };
            if batch.iter().all(records_nothing) {
                self.journal.checkpoint_if_due(now)?;
            }
        }
    }

    /// Logs the pauses in force when the pump starts, so that an operator sees why calls are not
    /// handed over.
    fn warn_of_pauses(&self) {
        for pause in self.core.state().pauses.iter() {
            tracing::warn!(
                "paused since {} by {}: {}; nothing of it is handed over until `organism resume`",
                pause.since,
                pause.by,
                pause.target
            );
        }
    }

    /// Logs that the records are ahead of this machine's clock, once each time they get ahead. They
    /// are ahead at the start if another pump had a wrong clock, and later if the clock is set back.
    fn warn_of_clock(&mut self, now: Time) {
        if let Some(system) = self.clock.begin_lead(now) {
            let ahead = now.since(system).as_secs();
            tracing::warn!(
                "the journal is {ahead} s ahead of this machine's clock, {system}: its times go on \
                 from there, and `at` of schedules comes early by that, until the organism was \
                 stopped for {ahead} s in sum; check the clocks here and on the other hosts"
            );
        }
    }

    fn step_all(
        &mut self,
        now: Time,
        commands: impl Iterator<Item = PumpCommand>,
    ) -> Result<Vec<Step>, Error> {
        let mut position = self.journal.next();
        let mut steps = Vec::new();
        for command in commands {
            match command {
                PumpCommand::ModelState(report) => {
                    let source = &report.source;
                    // A host on another machine may report a state after the end of its attempt.
                    if self.metrics.listener_of(source.call, source.attempt).is_some() {
                        self.waiters.watchers.report(*report);
                    }
                }
                PumpCommand::Deadlines => {
                    self.is_deadline_queued = false;
                    for ((listener, call, attempt), at) in self.arrivals.all() {
                        self.core.answer_arrived(&listener, call, attempt, at);
                    }
                    // All passed deadlines go into one commit.
                    for alarm in self.core.due_deadlines(now, limits::GROUP_COMMIT_MAX) {
                        steps.push(self.step(&mut position, now, Event::Alarm(alarm))?);
                    }
                }
                PumpCommand::Query(query, permit) => {
                    // The query leaves the inbox here: it waits for the commit outside the inbox's
                    // bound.
                    drop(permit);
                    self.queries.push(*query);
                }
                // The shutdown of a pump that drains is on record already.
                PumpCommand::Drain { done, .. } if self.core.is_draining() => {
                    self.waiters.await_drain(done);
                }
                mut command => {
                    if let PumpCommand::Submit(submit) = &mut command {
                        self.recheck_submission(&mut submit.submission, submit.generation);
                    }
                    if let Some(event) = self.waiters.open(command) {
                        steps.push(self.step(&mut position, now, event)?);
                    }
                }
            }
        }

        Ok(steps)
    }

    /// Lets the core process one event, and returns the step. `position` is the position of the
    /// next record. If the event leads to a record, `position` advances by one.
    fn step(
        &mut self,
        position: &mut Position,
        now: Time,
        mut event: Event,
    ) -> Result<Step, Error> {
        match &event {
            Event::Heartbeat { call, attempt } => self.heartbeats.remove(*call, *attempt),
            Event::Outcome { listener, call, attempt, .. }
            | Event::Failed { listener, call, attempt, .. } => {
                self.arrivals.remove(listener, *call, *attempt);
            }
            _ => {}
        }

        if let Event::Alarm(Alarm::ScheduledRun { request }) = event {
            event = Event::SendScheduled { request, begun: self.handle.begin_trace(request) };
        }

        if let Event::Outcome { turn: Some(turn), .. } = &mut event {
            self.inputs.extend(turn.inputs.take());
        }

        // Set for every signed decision, because the request of a client may state a time, too.
        if let Some(signature) = event.signature_mut() {
            signature.judged_at = self.clock.system_time_if_behind(now);
        }

        let event = if self.has_reloaded { self.recheck(event) } else { event };
        let step = self.core.step(*position, now, event)?;
        if step.record.is_some() {
            position.0 += 1;
        }

        Ok(step)
    }

    fn perform_all(&mut self, effects: Vec<Effect>) -> Result<(), Error> {
        for effect in effects {
            if let Effect::Deliver(delivery) = &effect {
                failpoint_in("before-deliver", delivery.thread.as_str());
                self.verify_lead()?;
            }
            self.perform(effect);
        }

        self.unflushed_hosts.drain(..).for_each(|host| host.flush());
        Ok(())
    }

    fn perform(&mut self, effect: Effect) {
        self.metrics.record_effect(&effect, self.core.state());

        match effect {
            Effect::Deliver(delivery) => {
                let thread = delivery.thread.clone();
                self.hand_over(delivery);
                failpoint_in("after-deliver", thread.as_str());
            }
            Effect::Withdraw { listener, call, attempt } => {
                let host = self.retiring_host(call, attempt).cloned();
                if let Some(host) = host.as_ref().or_else(|| self.hosts.get(&listener)) {
                    host.cancel(call, attempt);
                    keep_unflushed(&mut self.unflushed_hosts, host);
                }
            }
            Effect::Receipt { submission, receipt } => {
                failpoint("before-receipt");
                self.waiters.send_receipt(submission, receipt);
                failpoint("after-receipt");
            }
            Effect::CountBusy { client } => self.busy.count(&client, Instant::now()),
            Effect::Result { call, how, messages } => {
                failpoint("before-result");
                self.waiters.complete(&CallCompletion { call, how, messages });
                failpoint("after-result");
            }
            Effect::Held { call, thread, listener, hold } => {
                let reason = CallWaitReason::Held(hold);
                self.waiters.watchers.notify(&CallWait { thread, call, listener, reason });
            }
            Effect::Ruled { ticket, ruling } => self.waiters.send_ruling(ticket, ruling),
            Effect::Recall(order) => self.recall(order),
            Effect::Reserved { call, attempt, answer } => {
                self.waiters.answer_reservation(call, attempt, answer);
            }
            Effect::Alarm { at, alarm } => self.alarms.set(at, alarm),
            Effect::Alarms(alarms) => {
                alarms.into_iter().for_each(|(at, alarm)| self.alarms.set(at, alarm));
            }
        }
    }
}

impl Pump {
    /// Hands a delivery over to the host of its listener. If a payload that the listener needs is
    /// redacted, fails the attempt instead, because no host may act on an incomplete delivery. An
    /// agent needs only the first payload of the call and the new payloads.
    fn hand_over(&mut self, delivery: Delivery) {
        let contract = self.gate.contracts.get(&delivery.listener);
        let is_for_agent = contract.is_some_and(Contract::spends);
        if let Some(redacted) = delivery.redacted_message(is_for_agent) {
            return self.handle.withheld(&delivery, redacted.id);
        }

        match self.hosts.get(&delivery.listener) {
            Some(host) => {
                host.deliver(delivery);
                keep_unflushed(&mut self.unflushed_hosts, host);
            }
            None => self.handle.unhosted(&delivery),
        }
    }

    /// Orders a search in the source of a fork. The search runs on another OS thread.
    fn recall(&self, order: ForkSearch) {
        let Some(recalls) = &self.recalls else {
            return tracing::warn!("this pump serves no forks; one waits for a search: {order:?}");
        };
        // The send fails while the pump stops; the next boot searches again.
        recalls.send(order).ok();
    }
}

fn keep_unflushed(unflushed: &mut Vec<Arc<dyn Host>>, host: &Arc<dyn Host>) {
    if !unflushed.iter().any(|known| Arc::ptr_eq(known, host)) {
        unflushed.push(Arc::clone(host));
    }
}
