//! The driver: one thread that takes events, steps the core, makes the records durable, and only
//! then performs the effects.
//!
//! All ready events are stepped and committed together, so that one write to the disk serves them
//! all. While the disk is full, the order of commits is kept: new submissions are refused, and
//! decided records are written as soon as there is space.

mod alarms;
mod arrivals;
mod busy;
mod clerk;
mod completions;
mod counts;
mod handle;
mod intake;
mod lead;
mod meter;
mod notices;
mod pulse;
mod queries;
mod sink;
mod spans;
mod watch;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

pub use completions::Completions;
pub use counts::{Counts, Unready, WaitsFor};
pub use handle::{CallCompletion, Handle, PumpStopped};
pub use notices::{Notice, Wait};
pub use queries::HeldRequest;
pub use sink::PumpSink;

use crate::bus::{Delivery, Host};
use crate::clock::{Time, since_boot};
use crate::envelope::Rule;
use crate::failpoint::failpoint;
use crate::ids::{Digest, ListenerName, Position};
use crate::journal::{Error, Journal};
use crate::limits;
use crate::mutant::{self, mutant};
use crate::pump::core::{Core, Effect, Event, Step};
use crate::pump::gate::Gate;
use crate::thread::Map;
use crate::trace::SpanTracer;
use alarms::Alarms;
use arrivals::Arrivals;
use busy::BusyCounter;
use clerk::Clerk;
use lead::LeadProof;
use meter::{Lifetime, Meter};
use queries::PumpQuery;
use sink::Beats;
use watch::Watch;

/// Messages to the pump's thread.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all letters are events; a box would cost each an allocation"
)]
pub(super) enum Letter {
    Event(Event),
    Submit(Box<handle::Submit>),
    Decide(Box<handle::Decide>),
    Cancel(Box<handle::Cancel>),
    Reserve(Box<handle::Reserve>),
    ModelState(Box<notices::ModelReport>),
    Act(Box<handle::Act>),
    /// Deadlines have passed. Placed in the inbox behind everything that came before.
    Deadlines,
    Query(Box<PumpQuery>, intake::InboxPlace),
    /// Accept no more submissions; respond when no delivery is in flight any more.
    Drain {
        reason: String,
        done: tokio::sync::oneshot::Sender<()>,
    },
    /// End now.
    Stop,
}

/// A pump before its run: the state is rebuilt, and the journal is its own.
pub struct Pump {
    core: Core,
    journal: Box<dyn Journal>,
    gate: Gate,
    hosts: Map<ListenerName, Arc<dyn Host>>,
    /// Hosts with deliveries since their last flush.
    told: Vec<Arc<dyn Host>>,
    inbox: Receiver<Letter>,
    handle: Handle,
    alarms: Alarms,
    /// Whether [`Letter::Deadlines`] is in the inbox.
    is_deadline_queued: bool,
    clerk: Clerk,
    /// Queries of this batch, until its records are durable.
    queries: Vec<PumpQuery>,
    watch: Watch,
    beats: Beats,
    arrivals: Arrivals,
    busy: BusyCounter,
    /// Position of the last durable record. A value and not a queue: a slow follower holds up
    /// nothing, and the next position covers those that it missed.
    recorded: tokio::sync::watch::Sender<Position>,
    lead: LeadProof,
    meter: Meter,
    /// Inputs of this batch's turns, which are stored before their records.
    inputs: Vec<String>,
    /// Digests of inputs that are stored already.
    kept: HashSet<Digest>,
    /// Digests of the texts that the organism uses, until the boot lists them.
    blobs: Vec<Digest>,
}

impl Pump {
    pub fn new(core: Core, journal: Box<dyn Journal>, gate: Gate) -> Self {
        let (outbox, inbox) = channel();
        let busy = BusyCounter::default();
        let last = Position(journal.next().0.saturating_sub(1));
        let (recorded, follow) = tokio::sync::watch::channel(last);
        let handle = Handle::new(outbox, gate.clone(), busy.clone(), follow);
        let alarms = Alarms::default();
        let clerk = Clerk::default();
        let hosts = Map::default();
        let told = Vec::new();
        let watch = Watch::start(core.state().time);
        let beats = Beats::default();
        let meter = Meter::new(Arc::new(Counts::new(&gate.contracts)));
        Self {
            core,
            journal,
            gate,
            hosts,
            told,
            inbox,
            handle,
            alarms,
            is_deadline_queued: false,
            clerk,
            queries: Vec::new(),
            watch,
            beats,
            arrivals: Arrivals::default(),
            busy,
            recorded,
            lead: LeadProof::default(),
            meter,
            inputs: Vec::new(),
            kept: HashSet::new(),
            blobs: Vec::new(),
        }
    }

    /// Makes the boot list these blobs, which the journal holds already.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Vec<Digest>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Sends its spans to this tracer.
    #[must_use]
    pub fn traced(mut self, tracer: SpanTracer) -> Self {
        self.meter.trace(&tracer, &self.gate.contracts, self.core.state());
        self.handle.trace(tracer);
        self
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The sink that hosts report to.
    pub fn sink(&self) -> Arc<PumpSink> {
        let outbox = self.handle.outbox();
        let beats = self.beats.clone();
        let arrivals = self.arrivals.clone();
        Arc::new(PumpSink::new(self.gate.clone(), outbox, beats, arrivals, self.counts()))
    }

    /// Metrics of the pump, which remain after its end.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(self.meter.counts())
    }

    pub fn host(&mut self, listener: ListenerName, host: Arc<dyn Host>) {
        self.hosts.insert(listener, host);
    }

    /// Runs until it is stopped. Returns early only if it could not keep a promise: the disk
    /// failed, or another pump took over.
    pub fn run(mut self, detail: &str) -> Result<(), Error> {
        let journal = self.journal.id();
        let epoch = self.journal.epoch();
        let blobs = std::mem::take(&mut self.blobs);
        let boot = Event::Boot { journal, epoch, detail: detail.to_owned(), blobs };
        if let Some(mutant) = mutant::active() {
            tracing::error!(mutant, "a safety rule is switched off; this pump is for tests only");
        }

        let _lifetime = Lifetime(self.counts());
        failpoint("before-boot");
        // What passed before this start is in the boot.
        self.watch.now();
        self.watch.standstill();
        let mut batch = vec![Letter::Event(boot)];

        loop {
            let now = self.watch.now();
            // First, so that nothing is judged by time that is not counted.
            if let Some(standstill) = self.watch.standstill() {
                batch.insert(0, Letter::Event(Event::Standstill(standstill)));
            }
            self.meter.begins_to_step();
            let steps = self.step_all(now, batch.drain(..));
            self.meter.stepped();
            failpoint("stepped");
            self.commit(steps)?;
            self.answer_queries();
            self.meter.stands(&self.core, &*self.journal);
            if self.clerk.is_to_stop(self.core.handed_over()) {
                let left = self.core.left_open();
                if !left.is_empty() {
                    tracing::warn!("left open: {left}; it goes on at the next start");
                }
                let now = self.watch.now();
                let counts = self.busy.take_all().into_iter();
                let steps = self.step_all(now, counts.map(|busy| Letter::Event(Event::Busy(busy))));
                self.commit(steps)?;
                return self.journal.close(now);
            }
            if !self.gather(&mut batch) {
                self.journal.checkpoint_if_due(now)?;
            }
        }
    }

    /// Waits for a message and takes all that are ready, up to the maximum of one commit.
    fn gather(&mut self, batch: &mut Vec<Letter>) -> bool {
        let now = self.watch.now();
        let deadline = self.core.next_deadline().map(|(at, _)| at);
        let next = [deadline, self.alarms.next(), self.busy.next()].into_iter().flatten().min();
        let rest = self.journal.rest();
        let patience = next.map_or(rest, |at| at.since(now)).min(rest);
        let next_up = self.clerk.take_put_off().map_or_else(|| self.inbox.try_recv(), Ok);
        let first = match next_up {
            Ok(letter) => Ok(letter),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => self.inbox.recv_timeout(patience),
        };

        match first {
            Ok(letter) => batch.push(letter),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => batch.push(Letter::Stop),
        }

        while batch.len() < limits::GROUP_COMMIT_MAX {
            let letter = self.clerk.take_put_off().or_else(|| self.inbox.try_recv().ok());
            let Some(letter) = letter else { break };
            batch.push(letter);
        }

        let now = self.watch.now();
        let due = self.alarms.due(now);
        batch.extend(due.into_iter().map(|alarm| Letter::Event(Event::Alarm(alarm))));
        let counts = self.busy.take_due(now);
        batch.extend(counts.into_iter().map(|busy| Letter::Event(Event::Busy(busy))));
        self.queue_deadlines(now);
        !batch.is_empty()
    }

    /// Queues passed deadlines behind all messages in the inbox. An answer that was read in time
    /// wins over its deadline while the gate still checks it: it is not late because the pump was.
    fn queue_deadlines(&mut self, now: Time) {
        let has_passed = self.core.next_deadline().is_some_and(|(at, _)| at <= now);
        if has_passed && !self.is_deadline_queued {
            self.is_deadline_queued = self.handle.outbox().send(Letter::Deadlines).is_ok();
        }
    }

    fn step_all(&mut self, now: Time, letters: impl Iterator<Item = Letter>) -> Vec<Step> {
        let mut position = self.journal.next();
        let mut steps = Vec::new();
        for letter in letters {
            match letter {
                Letter::ModelState(report) => {
                    self.clerk.watchers.report(self.core.state(), *report);
                }
                Letter::Deadlines => {
                    self.is_deadline_queued = false;
                    for ((listener, call, attempt), at) in self.arrivals.all() {
                        self.core.answer_arrived(&listener, call, attempt, at);
                    }
                    // All of them in one commit.
                    for alarm in self.core.due_deadlines(now, limits::GROUP_COMMIT_MAX) {
                        steps.push(self.step(&mut position, now, Event::Alarm(alarm)));
                    }
                }
                Letter::Query(query, place) => {
                    drop(place);
                    self.queries.push(*query);
                }
                letter => {
                    if let Some(event) = self.clerk.open(letter) {
                        steps.push(self.step(&mut position, now, event));
                    }
                }
            }
        }

        steps
    }

    /// Steps one event. `position` is that of the next record.
    fn step(&mut self, position: &mut Position, now: Time, mut event: Event) -> Step {
        match &event {
            Event::Heartbeat { call, attempt } => self.beats.heard(*call, *attempt),
            Event::Outcome { listener, call, attempt, .. }
            | Event::Failed { listener, call, attempt, .. } => {
                self.arrivals.stepped(listener, *call, *attempt);
            }
            _ => {}
        }

        if let Event::Outcome { turn: Some(turn), .. } = &mut event {
            self.inputs.extend(turn.inputs.take());
        }

        let step = self.core.step(*position, now, event);
        if step.record.is_some() {
            position.0 += 1;
        }

        step
    }

    /// Makes the steps durable, then performs their effects in order. Only deliveries to hosts that
    /// do not read the journal are sent before the records are readable.
    fn commit(&mut self, steps: Vec<Step>) -> Result<(), Error> {
        let mut records = Vec::with_capacity(steps.len());
        let mut effects = Vec::new();
        for mut step in steps {
            effects.append(&mut step.effects);
            records.extend(step.into_record());
        }

        if mutant("deliver-before-durable") {
            self.perform_all(std::mem::take(&mut effects))?;
        }

        if !records.is_empty() {
            self.keep_inputs()?;
            // Before the first attempt: a later one may find what an earlier one wrote, and prove
            // nothing about the time since.
            let requested_at = since_boot();
            self.persist(|journal| journal.write(&mut records).map(drop))?;
            self.lead.acknowledged(requested_at);
            self.meter.written(&records, self.core.state());
            let early = |effect: &mut Effect| self.is_early(effect);
            let early: Vec<_> = effects.extract_if(.., early).collect();
            self.perform_all(early)?;
            self.persist(|journal| journal.show(&records))?;
            self.recorded.send_replace(Position(self.journal.next().0.saturating_sub(1)));
            self.meter.committed(&records);
        }

        self.perform_all(effects)
    }

    /// Stores the inputs of turns, each text once, before the records that name them.
    fn keep_inputs(&mut self) -> Result<(), Error> {
        for inputs in std::mem::take(&mut self.inputs) {
            let digest = Digest::of(inputs.as_bytes());
            if self.kept.contains(&digest) {
                continue;
            }
            self.persist(|journal| journal.put_blob(inputs.as_bytes()).map(drop))?;
            if self.kept.len() >= limits::INPUTS_REMEMBERED_MAX {
                self.kept.clear();
            }
            self.kept.insert(digest);
        }

        Ok(())
    }

    fn perform_all(&mut self, effects: Vec<Effect>) -> Result<(), Error> {
        for effect in effects {
            if matches!(effect, Effect::Deliver(_)) {
                failpoint("before-deliver");
                self.verify_lead()?;
            }
            self.perform(effect);
        }

        self.told.drain(..).for_each(|host| host.flush());
        Ok(())
    }

    fn is_early(&self, effect: &Effect) -> bool {
        let (Effect::Deliver(Delivery { listener, .. }) | Effect::Withdraw { listener, .. }) =
            effect
        else {
            return false;
        };
        self.hosts.get(listener).is_some_and(|host| !host.reads_journal())
    }

    /// Writes the records. Waits while the disk is full or the journal's server is unreachable,
    /// unless the pump is stopped: no effect of these records was performed yet.
    fn persist(
        &mut self,
        mut attempt: impl FnMut(&mut dyn Journal) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let since = Instant::now();
        let mut has_waited = false;
        loop {
            match attempt(&mut *self.journal) {
                Ok(()) => break,
                Err(error) if error.is_passing() && !self.clerk.is_told_to_stop() => {
                    has_waited = true;
                    self.meter.counts().waits(Some(&error));
                    self.wait_out(&error);
                }
                Err(error) => return Err(error),
            }
        }

        if has_waited {
            self.meter.counts().waits(None);
            self.watch.was_kept(since);
        }

        Ok(())
    }

    /// Refuses new submissions until the journal may accept records again. Everything else keeps
    /// its place.
    fn wait_out(&mut self, error: &Error) {
        tracing::error!("nothing is accepted for now: {error}");
        let until = Instant::now() + ROOM_RETRY;
        while !self.clerk.is_told_to_stop() {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(Letter::Submit(submit)) if !mutant("take-while-full") => {
                    let client = submit.submission.client.clone();
                    if submit.turn_away(error) == Rule::Busy {
                        self.busy.count(&client, self.watch.now());
                    }
                }
                Ok(Letter::Stop) => self.clerk.stop(),
                Ok(letter) => self.clerk.put_off(letter),
                Err(_) => return,
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        self.meter.performs(&effect, self.core.state());
        match effect {
            Effect::Deliver(delivery) => {
                match self.hosts.get(&delivery.listener) {
                    Some(host) => {
                        host.deliver(delivery);
                        tell(&mut self.told, host);
                    }
                    None => self.handle.unhosted(&delivery),
                }
                failpoint("after-deliver");
            }
            Effect::Withdraw { listener, call, attempt } => {
                if let Some(host) = self.hosts.get(&listener) {
                    host.cancel(call, attempt);
                    tell(&mut self.told, host);
                }
            }
            Effect::Receipt { submission, receipt } => {
                failpoint("before-receipt");
                self.clerk.receipt(submission, receipt);
                failpoint("after-receipt");
            }
            Effect::CountBusy { client } => self.busy.count(&client, self.watch.now()),
            Effect::Result { call, how, messages } => {
                failpoint("before-result");
                self.clerk.complete(&CallCompletion { call, how, messages });
                failpoint("after-result");
            }
            Effect::Held { call, thread, listener, hold } => {
                let wait = Wait::Held(hold);
                self.clerk.watchers.notify(&Notice { thread, call, listener, wait });
            }
            Effect::Ruled { ticket, ruling } => self.clerk.ruled(ticket, ruling),
            Effect::Reserved { call, attempt, answer } => {
                self.clerk.reserved(call, attempt, answer);
            }
            Effect::Alarm { at, alarm } => self.alarms.set(at, alarm),
        }
    }
}

fn tell(told: &mut Vec<Arc<dyn Host>>, host: &Arc<dyn Host>) {
    if !told.iter().any(|known| Arc::ptr_eq(known, host)) {
        told.push(Arc::clone(host));
    }
}

/// Interval of retries on a full disk or an unreachable server.
const ROOM_RETRY: Duration = Duration::from_millis(500);
