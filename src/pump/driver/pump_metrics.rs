//! Metrics of a pump: written by the pump's OS thread, and readable from any other.
//! Label values come from the config or from closed lists, never from external input.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use crate::clock::since_boot;
use crate::contract::{Contracts, Role};
use crate::envelope::{AttemptFailure, Disposition, MessageKind, RefusalRule};
use crate::ids::{ListenerName, Position};
use crate::journal::{Error, ProofProgress};
use crate::locks::locked;
use crate::metrics::{
    Counter, GROUPS, Gauge, Histogram, LabelledCounters, MetricFamily, MetricUnit, MetricsPage,
};
use crate::system::{ErrorCode, ScheduleEvent};
use crate::thread::{Closing, Map};

/// Metrics of one pump since the start of this pump.
#[derive(Debug)]
pub struct PumpMetrics {
    life: PumpPhase,
    pub(super) records: Counter,
    pub(super) messages: LabelledCounters<{ MessageKind::ALL.len() }>,
    pub(super) dispositions: LabelledCounters<{ Disposition::ALL.len() }>,
    pub(super) refusals: LabelledCounters<{ RefusalRule::ALL.len() }>,
    pub(super) errors: LabelledCounters<{ ErrorCode::ALL.len() }>,
    pub(super) opened: Counter,
    pub(super) closed: LabelledCounters<{ CLOSINGS.len() }>,
    pub(super) schedule_events: LabelledCounters<{ ScheduleEvent::WORDS.len() }>,
    pub(super) open: Gauge,
    pub(super) in_flight: Gauge,
    pub(super) pauses: Gauge,
    pub(super) position: Gauge,
    pub(super) epoch: Gauge,
    /// Time at which this run of the pump signed its last checkpoint, in microseconds since the
    /// boot of the machine. Before the first checkpoint, the value is the time of the run's first
    /// record, or 0 if the run has no record. The value does not depend on the times in the
    /// records, which may be ahead of this machine's clock.
    pub(super) checked_at: Gauge,
    pub(super) copy_failures: Gauge,
    pub(super) copies_waiting: Gauge,
    /// Progress of the background proof, which verifies the records before the snapshot from which
    /// the pump started. `None` if the pump started without a snapshot.
    proof: Option<Arc<ProofProgress>>,
    pub(super) step: Histogram,
    pub(super) commit: Histogram,
    pub(super) group: Histogram,
    listeners: Vec<(ListenerName, ListenerMetrics)>,
    /// Listeners whose answers NATS servers deny to this pump, each with the reason. Lock: hosts
    /// set the reasons, and readers of the pump's health read them.
    denied_answers: Mutex<BTreeMap<ListenerName, String>>,
    index: Map<ListenerName, usize>,
}

/// Metrics of one listener.
#[derive(Debug)]
pub(super) struct ListenerMetrics {
    pub ended: LabelledCounters<{ ENDINGS.len() }>,
    pub failures: LabelledCounters<{ FAILURES.len() }>,
    pub took: Histogram,
    pub under_way: Gauge,
    pub backlog: Gauge,
    pub restarts: Counter,
}

impl ListenerMetrics {
    fn new() -> Self {
        Self {
            ended: LabelledCounters::default(),
            failures: LabelledCounters::default(),
            took: Histogram::of_time(),
            under_way: Gauge::default(),
            backlog: Gauge::default(),
            restarts: Counter::default(),
        }
    }
}

/// Phase of a pump's life: it has started, it drains, or it has ended. `waits_for` is the obstacle
/// that keeps the pump from writing records, if there is one.
#[derive(Debug, Default)]
struct PumpPhase {
    begun: AtomicBool,
    draining: AtomicBool,
    ended: AtomicBool,
    waits_for: AtomicU8,
}

/// Reason why a pump cannot write records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteObstacle {
    Disk = 1,
    Server = 2,
    /// The journal's servers are reached, and deny the pump the right to write.
    Denied = 3,
}

impl WriteObstacle {
    /// Returns the obstacle that an error of the journal shows. The error must be one after which
    /// the pump tries to write again.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Unavailable { .. } => Self::Server,
            Error::Denied(_) => Self::Denied,
            _ => Self::Disk,
        }
    }

    /// Returns the rule under which the pump refuses requests while this obstacle lasts.
    pub fn rule(self) -> RefusalRule {
        match self {
            Self::Disk => RefusalRule::StorageFull,
            Self::Server | Self::Denied => RefusalRule::Busy,
        }
    }
}

impl std::fmt::Display for WriteObstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Disk => "the disk is full",
            Self::Server => "the journal's server is unavailable",
            Self::Denied => "the journal's server denies writes",
        })
    }
}

/// Reason why a pump refuses submissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpNotReady {
    Starting,
    Waits(WriteObstacle),
    Draining,
    Ended,
}

const CLOSINGS: [(Closing, &str); 3] = [
    (Closing::Completed, "completed"),
    (Closing::Failed, "failed"),
    (Closing::Cancelled, "cancelled"),
];

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryEnd {
    Answered,
    Failed,
    TimedOut,
    /// The delivery was withdrawn, because nothing waited for its result any more.
    Withdrawn,
    /// No listener took the delivery.
    NotTaken,
}

const ENDINGS: [&str; 5] = ["answered", "failed", "timed-out", "withdrawn", "not-taken"];
pub(super) const FAILURES: [&str; 9] = AttemptFailure::WORDS;

/// Returns the time since the boot of the machine, in microseconds.
pub(super) fn micros_since_boot() -> u64 {
    u64::try_from(since_boot().as_micros()).unwrap_or(u64::MAX)
}

impl PumpMetrics {
    /// Returns the number of deliveries in flight.
    pub fn under_way(&self) -> u64 {
        self.listeners.iter().map(|(_, own)| own.under_way.get()).sum()
    }

    /// Returns two positions that enclose the records that are not verified yet, or `None` if all
    /// are verified. The first position is the upper bound: from this record on, the pump itself
    /// verified all records at its start. The second position is the lower bound: the last record
    /// that the background proof has verified so far.
    pub fn unproved(&self) -> Option<(Position, Position)> {
        let proof = self.proof.as_ref()?;
        Some((proof.proved_from()?, proof.proved()))
    }

    pub(super) fn new(contracts: &Contracts, proof: Option<Arc<ProofProgress>>) -> Self {
        let names = contracts.iter().filter(|contract| contract.role != Role::Client);
        let names: Vec<_> = names.map(|contract| contract.name.clone()).collect();
        let index = names.iter().cloned().enumerate().map(|(at, name)| (name, at)).collect();

        Self {
            life: PumpPhase::default(),
            records: Counter::default(),
            messages: LabelledCounters::default(),
            dispositions: LabelledCounters::default(),
            refusals: LabelledCounters::default(),
            errors: LabelledCounters::default(),
            opened: Counter::default(),
            closed: LabelledCounters::default(),
            schedule_events: LabelledCounters::default(),
            open: Gauge::default(),
            in_flight: Gauge::default(),
            pauses: Gauge::default(),
            position: Gauge::default(),
            epoch: Gauge::default(),
            checked_at: Gauge::default(),
            copy_failures: Gauge::default(),
            copies_waiting: Gauge::default(),
            proof,
            step: Histogram::of_time(),
            commit: Histogram::of_time(),
            group: Histogram::new(GROUPS),
            listeners: names.into_iter().map(|name| (name, ListenerMetrics::new())).collect(),
            denied_answers: Mutex::default(),
            index,
        }
    }

    /// Returns the index of a listener's metrics, or `None` for an unknown listener.
    pub(super) fn index(&self, listener: &ListenerName) -> Option<usize> {
        self.index.get(listener).copied()
    }

    pub(super) fn at(&self, index: usize) -> Option<&ListenerMetrics> {
        self.listeners.get(index).map(|(_, own)| own)
    }

    pub(super) fn of(&self, listener: &ListenerName) -> Option<&ListenerMetrics> {
        self.at(self.index(listener)?)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &(ListenerName, ListenerMetrics)> {
        self.listeners.iter()
    }

    pub(super) fn begins(&self) {
        self.life.begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn drains(&self) {
        self.life.draining.store(true, Ordering::Relaxed);
    }

    pub(super) fn ends(&self) {
        self.life.ended.store(true, Ordering::Relaxed);
    }

    /// Records whether the journal accepts records. `error` is the reason why the journal accepts
    /// none, or `None` if the journal accepts records.
    pub(super) fn set_obstacle(&self, error: Option<&Error>) {
        let what = error.map(WriteObstacle::of);
        self.life.waits_for.store(what.map_or(0, |what| what as u8), Ordering::Relaxed);
    }

    pub fn waits_for(&self) -> Option<WriteObstacle> {
        match self.life.waits_for.load(Ordering::Relaxed) {
            0 => None,
            2 => Some(WriteObstacle::Server),
            3 => Some(WriteObstacle::Denied),
            _ => Some(WriteObstacle::Disk),
        }
    }

    pub fn has_ended(&self) -> bool {
        self.life.ended.load(Ordering::Relaxed)
    }

    /// Sets the reason why NATS servers deny this pump the answers of a listener; `None` if the
    /// servers permit these answers.
    pub(super) fn set_answers_denied(&self, listener: &ListenerName, why: Option<String>) {
        let mut denied = locked(&self.denied_answers);
        match why {
            Some(why) => denied.insert(listener.clone(), why),
            None => denied.remove(listener),
        };
    }

    /// Returns the reasons why NATS servers deny this pump the answers of listeners. Each reason
    /// names the NATS subject of one listener.
    pub fn denied_answers(&self) -> Vec<String> {
        locked(&self.denied_answers).values().cloned().collect()
    }

    /// Returns all reasons why the pump refuses submissions; an empty list if the pump accepts
    /// submissions.
    pub fn unready(&self) -> Vec<PumpNotReady> {
        let starting = !self.life.begun.load(Ordering::Relaxed);
        let draining = self.life.draining.load(Ordering::Relaxed);
        let all = [
            starting.then_some(PumpNotReady::Starting),
            self.waits_for().map(PumpNotReady::Waits),
            draining.then_some(PumpNotReady::Draining),
            self.has_ended().then_some(PumpNotReady::Ended),
        ];
        all.into_iter().flatten().collect()
    }

    /// Returns the number of failed attempts to copy checkpoints, and the number of checkpoints
    /// that wait to be copied.
    pub fn copies(&self) -> (u64, u64) {
        (self.copy_failures.get(), self.copies_waiting.get())
    }

    /// Appends all metrics of the pump to `page`.
    pub fn write(&self, page: &mut MetricsPage) {
        self.write_record(page);
        each(
            page.counters("organism_schedule_events_total", "Events of schedules, by event."),
            "event",
            ScheduleEvent::WORDS.into_iter(),
            &self.schedule_events,
        );
        self.write_journal(page);
        self.write_listeners(page);
    }

    fn write_record(&self, page: &mut MetricsPage) {
        page.counters("organism_records_total", "Records made durable, a step each.")
            .counter(&[], &self.records);

        let kinds = MessageKind::ALL.iter().map(|kind| kind.as_str());
        each(
            page.counters("organism_messages_total", "Messages accepted, by kind."),
            "kind",
            kinds,
            &self.messages,
        );

        let dispositions = Disposition::ALL.iter().map(|how| how.as_str());
        each(
            page.counters("organism_dispositions_total", "Messages settled, by how they ended."),
            "how",
            dispositions,
            &self.dispositions,
        );

        each(
            page.counters("organism_refusals_total", "Payloads refused, by rule."),
            "rule",
            RefusalRule::ALL.iter().map(|rule| rule.as_str()),
            &self.refusals,
        );

        each(
            page.counters("organism_system_errors_total", "Results with a system error, by code."),
            "code",
            ErrorCode::ALL.iter().map(|code| code.as_str()),
            &self.errors,
        );

        page.counters("organism_calls_opened_total", "Calls opened.").counter(&[], &self.opened);
        each(
            page.counters("organism_calls_closed_total", "Calls closed, by how they ended."),
            "how",
            CLOSINGS.iter().map(|(_, word)| *word),
            &self.closed,
        );

        page.gauges("organism_calls_open", "Open calls.").sample(&[], self.open.get());
        page.gauges("organism_messages_in_flight", "Accepted messages that are not settled.")
            .sample(&[], self.in_flight.get());
        page.gauges("organism_pauses", "Pauses in force.").sample(&[], self.pauses.get());
    }

    fn write_journal(&self, page: &mut MetricsPage) {
        page.gauges("organism_journal_position", "Position of the last record in the journal.")
            .sample(&[], self.position.get());

        let unproved = self.unproved().map_or(0, |(from, proved)| from.0 - 1 - proved.0);
        page.gauges(
            "organism_journal_unproved_records",
            "Records before the snapshot of the start that are not proved yet.",
        )
        .sample(&[], unproved);

        page.gauges("organism_epoch", "Epoch of this pump, which grows with every start.")
            .sample(&[], self.epoch.get());

        let at = self.checked_at.get();
        if at > 0 {
            let age = micros_since_boot().saturating_sub(at);
            page.gauges(
                "organism_checkpoint_age_seconds",
                "Seconds since the last signed checkpoint.",
            )
            .decimal(&[], age, 6);
        }

        page.counters(
            "organism_checkpoint_copy_failures_total",
            "Attempts to copy checkpoints elsewhere that failed.",
        )
        .sample(&[], self.copy_failures.get());

        page.gauges("organism_checkpoint_copies_waiting", "Checkpoints that wait to be copied.")
            .sample(&[], self.copies_waiting.get());

        let waits_for = self.waits_for();
        let is_disk = waits_for == Some(WriteObstacle::Disk);
        let is_server = waits_for.is_some() && !is_disk;
        page.gauges("organism_waiting", "1 while the journal accepts no records, by the reason.")
            .sample(&[("for", "disk")], u64::from(is_disk))
            .sample(&[("for", "server")], u64::from(is_server));

        page.gauges("organism_draining", "1 once the pump accepts no new submissions.")
            .sample(&[], u64::from(self.life.draining.load(Ordering::Relaxed)));
        page.gauges("organism_pump_running", "0 once the pump has ended.")
            .sample(&[], u64::from(!self.has_ended()));

        page.histograms(
            "organism_step_seconds",
            "Seconds to decide the effects of one group of events.",
        )
        .histogram(&[], &self.step, MetricUnit::Seconds);
        page.histograms("organism_commit_seconds", "Seconds to make one group of records durable.")
            .histogram(&[], &self.commit, MetricUnit::Seconds);
        page.histograms("organism_commit_records", "Records in one group that was made durable.")
            .histogram(&[], &self.group, MetricUnit::One);
    }

    fn write_listeners(&self, page: &mut MetricsPage) {
        let mut family = page.counters(
            "organism_deliveries_total",
            "Deliveries that ended, by listener and outcome.",
        );
        for (name, own) in &self.listeners {
            for (outcome, count) in ENDINGS.iter().zip(own.ended.all()) {
                family.counter(&[("listener", name.as_str()), ("outcome", outcome)], count);
            }
        }

        let mut family = page.counters(
            "organism_attempt_failures_total",
            "Attempts that failed, by listener and kind of failure.",
        );

        for (name, own) in &self.listeners {
            for (kind, count) in FAILURES.iter().zip(own.failures.all()) {
                family.counter(&[("listener", name.as_str()), ("kind", kind)], count);
            }
        }

        let mut family = page.histograms(
            "organism_delivery_seconds",
            "Seconds from hand-over to the end of a delivery.",
        );
        for (name, own) in &self.listeners {
            family.histogram(&[("listener", name.as_str())], &own.took, MetricUnit::Seconds);
        }

        let mut gauge = |name, help, of: fn(&ListenerMetrics) -> u64| {
            let mut family = page.gauges(name, help);
            for (name, own) in &self.listeners {
                family.sample(&[("listener", name.as_str())], of(own));
            }
        };

        gauge(
            "organism_deliveries_under_way",
            "Deliveries in flight: handed over and not ended.",
            |own| own.under_way.get(),
        );
        gauge("organism_backlog", "Calls that wait for a listener.", |own| own.backlog.get());
        let mut family =
            page.counters("organism_restarts_total", "Processes of a listener started again.");
        for (name, own) in &self.listeners {
            family.counter(&[("listener", name.as_str())], &own.restarts);
        }
    }
}

/// Writes one sample for each possible value of the label `label`. `words` contains these values.
fn each<'w, const N: usize>(
    mut family: MetricFamily<'_>,
    label: &'static str,
    words: impl Iterator<Item = &'w str>,
    counters: &LabelledCounters<N>,
) {
    for (word, counter) in words.zip(counters.all()) {
        family.counter(&[(label, word)], counter);
    }
}
