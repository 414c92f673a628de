//! Follows the records of one pump on an OS thread of its own, and raises alerts. The pump records
//! an alert before the follower runs the alert command that the config names. For an alert of the
//! kind [`AlertKind::Record`], the command does not wait for the record, because the journal may
//! take no records.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::alert_clock::{AlertClock, ClockJump};
use super::call_requests::CallRequest;
use super::command::AlertCommand;
use super::recorded_reports::{older_alerts, recent_reports};
use super::rules::AlertRules;
use super::unrecorded::{JOURNAL, UnrecordedAlert, UnrecordedAlertFile};
use super::{AlertMetrics, AlertSource};
use crate::clock::{Time, since_boot};
use crate::ids::{CallId, Position, ThreadId};
use crate::journal::Error;
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::mutant::mutant;
use crate::organism::index_follower::IndexLag;
use crate::plural;
use crate::pump::driver::{Handle, HeldRequest, PumpStopped, PumpUnavailable, WriteObstacle};
use crate::system::{AlertEvent, AlertId, AlertKind, AlertReport};
use crate::thread::{Fact, Record};
use crate::thread_priority;

/// Result of a task that the follower has started.
enum AlertTaskResult {
    /// The pump has recorded a report, or has stopped before the report was recorded.
    Recorded(AlertReport, AfterRecord, Result<(), PumpStopped>),
    /// The command for this report has ended.
    Run(AlertReport, Result<(), String>),
    /// The pump has sent a part of its list of calls that wait for a person.
    Waiting(Vec<HeldRequest>),
    /// The pump has sent the whole list of calls that waited for a person when the follower began.
    AllWaitingSent,
}

/// Next action of the follower after the pump has recorded a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterRecord {
    RunCommand,
    Nothing,
}

/// The records from which a follower counts causes of alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlertStart {
    /// Those of the last time window before the start of the organism, and all later ones. So a
    /// cause whose pump was killed before the alert raises the alert.
    Window,
    /// Only those after this position. So a reload that adds the section `[alerts]` raises no alert
    /// about earlier records.
    After(Position),
}

pub(super) struct AlertFollower {
    source: AlertSource,
    start: AlertStart,
    index: Option<Arc<IndexLag>>,
    command: watch::Receiver<AlertCommand>,
    metrics: Arc<AlertMetrics>,
    rules: AlertRules,
    reader: Option<JournalReader>,
    /// Why the records could not be read at the last attempt; `None` if the records could be read.
    read_failure: Option<String>,
    /// Position of the last record that was processed.
    read: Position,
    /// Whether the pump has sent its list of calls that wait for a person. Until then, the follower
    /// processes no records, because a record may end a wait that is still unknown to the follower.
    knows_waiting: bool,
    /// Whether the follower has processed all records from before the start of the organism.
    has_caught_up: bool,
    /// Recorded reports for which the alert command has not run yet.
    queue: VecDeque<AlertReport>,
    running: BTreeMap<AlertId, JoinHandle<()>>,
    /// Number of reports that the pump has not recorded yet.
    unrecorded: usize,
    results: (mpsc::UnboundedSender<AlertTaskResult>, mpsc::UnboundedReceiver<AlertTaskResult>),
    /// Number of failed attempts to copy a checkpoint, as it was when a check last found no
    /// checkpoint that waits to be copied. If a later check finds such checkpoints and a higher
    /// number, the follower reports that checkpoints cannot be copied.
    copy_failures: u64,
    clock: AlertClock,
}

impl AlertFollower {
    pub fn new(
        source: AlertSource,
        start: AlertStart,
        index: Option<Arc<IndexLag>>,
        command: watch::Receiver<AlertCommand>,
        metrics: Arc<AlertMetrics>,
    ) -> Self {
        let rules = AlertRules::new(command.borrow().config().rules.clone());
        Self {
            source,
            start,
            index,
            command,
            metrics,
            rules,
            reader: None,
            read_failure: None,
            read: Position(0),
            knows_waiting: false,
            has_caught_up: false,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            unrecorded: 0,
            // The channel needs no bound: each report has at most one result, and the rules bound
            // the reports.
            results: mpsc::unbounded_channel(),
            copy_failures: 0,
            clock: AlertClock::start(Time::now(), since_boot()),
        }
    }

    /// Follows the pump's records until the pump has ended or the watch for alerts is stopped.
    pub fn run(mut self, timer: &Runtime) {
        thread_priority::lower(limits::INDEX_FOLLOWER_NICENESS, "the thread of alerts");

        timer.block_on(async {
            self.follow().await;
            self.finish().await;
        });
    }

    async fn follow(&mut self) {
        let mut check = interval(limits::ALERT_CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = self.source.ended.clone();
        loop {
            let has_more = self.take_records();
            if !has_more && self.has_caught_up {
                self.tick();
            }
            self.send_reports();
            self.start_commands();
            self.metrics.open.set(u64::try_from(self.rules.open()).unwrap_or(u64::MAX));

            let mut recorded = self.source.pump.recorded();
            let read = self.read;
            let can_grow = self.read_failure.is_none() && self.knows_waiting;
            let more = async {
                if has_more {
                    return;
                }
                let grown = recorded.wait_for(|last| *last > read).await.is_ok();
                if !grown || !can_grow {
                    // The pump is about to end, or the next check reads again.
                    pending::<()>().await;
                }
                sleep(limits::INDEX_COLLECT_TIME).await;
            };

            tokio::select! {
                biased;
                // No value is ever sent. The channel closes when the pump has ended.
                _ = ended.changed() => return,
                changed = self.command.changed() => match changed {
                    Ok(()) => {
                        let rules = self.command.borrow_and_update().config().rules.clone();
                        self.rules.configure(rules);
                    }
                    Err(_) => return,
                },
                Some(result) = self.results.1.recv() => self.take_result(result),
                () = until(self.rules.next_tick(), self.clock.time()), if self.has_caught_up => {}
                _ = check.tick() => self.check_problems(),
                () = more => {}
            }
        }
    }

    /// Applies the passage of time to the rules.
    fn tick(&mut self) {
        self.clock.advance(since_boot());
        self.rules.tick(self.clock.time());
    }

    /// Processes the next records of the journal. Returns whether the journal has further records.
    fn take_records(&mut self) -> bool {
        let taken = self.try_take_records();
        if let Err(error) = &taken
            && self.read_failure.is_none()
        {
            tracing::warn!("the records could not be read for alerts: {error}");
        }
        self.read_failure = taken.as_ref().err().map(ToString::to_string);
        taken.unwrap_or(false)
    }

    fn try_take_records(&mut self) -> Result<bool, Error> {
        let last = *self.source.pump.recorded().borrow();
        if self.reader.is_none() {
            let reader = JournalReader::open(&self.source.data)?;
            self.recall(&reader, last)?;
            self.reader = Some(reader);
        }
        let Some(reader) = self.reader.as_ref().filter(|_| self.knows_waiting) else {
            return Ok(false);
        };
        if last <= self.read {
            self.catch_up();
            return Ok(false);
        }

        let to = last.min(Position(self.read.0 + limits::ALERT_PAGE_RECORDS));
        let mut find = |record: &Record, call: CallId| request_of(reader, record, call);
        for sealed in reader.records(Position(self.read.0 + 1), to)? {
            // Before the record: what the rules know already is from before the jump.
            let jump = self.clock.reach(sealed.record.time, since_boot());
            if let Some(ClockJump { before, step }) = jump {
                self.rules.pass_step(before, step);
            }
            self.rules.take(&sealed.record, &mut find);
        }

        self.read = to;
        if to == last {
            self.catch_up();
        }
        Ok(to < last)
    }

    fn catch_up(&mut self) {
        if !self.has_caught_up {
            self.has_caught_up = true;
            self.rules.end_recalled();
        }
    }

    /// Restores the alerts that earlier runs of the organism recorded. Then chooses the position
    /// from which the follower searches the records for new causes of alerts.
    fn recall(&mut self, reader: &JournalReader, last: Position) -> Result<(), Error> {
        let first_read = self.first_read(reader, last)?;
        let (recorded, unread) = recent_reports(reader)?;
        if let Some(before) = unread {
            for (report, time) in older_alerts(reader, before, first_read) {
                self.rules.recall(&report, time);
            }
        }

        let mut unsent: BTreeMap<AlertId, VecDeque<AlertReport>> = BTreeMap::new();
        for (report, time) in recorded {
            self.rules.recall(&report, time);
            let reports = unsent.entry(report.id()).or_default();
            if report.event.is_for_command() {
                reports.push_back(report);
            } else {
                reports.pop_front();
            }
        }
        if !mutant("forget-an-unsent-alert") {
            self.queue.extend(unsent.into_values().flatten());
        }

        if let Some(sealed) = reader.record(last)? {
            self.clock.begin_after(sealed.record.time, since_boot());
        }
        self.read = first_read;
        if mutant("overlook-the-past") {
            self.read = last;
        }

        self.recall_waiting();
        self.unrecorded_file().reserve();
        self.record_unrecorded();
        Ok(())
    }

    /// Returns the position after which this follower searches the records for causes of alerts.
    /// `last` is the position of the last record.
    fn first_read(&self, reader: &JournalReader, last: Position) -> Result<Position, Error> {
        let first = match self.start {
            AlertStart::After(position) => position.0,
            AlertStart::Window => {
                let window = self.command.borrow().config().rules.window;
                reader.first_since(self.source.last_time.minus(window))?.0.saturating_sub(1)
            }
        };
        let nearest = last.0.saturating_sub(limits::ALERT_LOOK_BACK_RECORDS_MAX);
        Ok(Position(first.max(nearest).min(last.0)))
    }

    /// Requests from the pump a list of the calls that wait for a person now. Waits that begin
    /// later appear in the records.
    fn recall_waiting(&mut self) {
        let pump = self.source.pump.clone();
        let results = self.results.0.clone();
        drop(tokio::spawn(async move {
            while let Err(PumpUnavailable::Waits(_)) = send_waiting(&pump, &results).await {
                sleep(limits::ALERT_CHECK_INTERVAL).await;
            }
        }));
    }

    fn unrecorded_file(&self) -> UnrecordedAlertFile {
        let AlertSource { data, state, .. } = &self.source;
        UnrecordedAlertFile::new(data, state, self.command.borrow().partition())
    }

    /// Lets the pump record the alerts that an earlier run of the organism raised but could not
    /// record. An alert about the journal as a whole has ended, because the organism runs again.
    /// All other alerts stay open until the checks find their problems gone.
    fn record_unrecorded(&mut self) {
        let file = self.unrecorded_file();
        for UnrecordedAlert { report, failure, is_pending } in file.read() {
            let id = report.id();
            let is_journal = report.subject == JOURNAL;
            if !is_journal && self.rules.is_known(&id) {
                // The earlier run ended between the record of the alert and the removal.
                file.remove(&id);
                continue;
            }

            let ended = AlertReport {
                event: AlertEvent::Ended,
                detail: "the organism runs again".to_owned(),
                ..report.clone()
            };
            if !is_journal {
                self.rules.recall(&report, report.since);
            }
            if is_pending {
                // The journal may still take no records, so the command does not wait for them.
                self.enqueue(report.clone());
                self.record(report, AfterRecord::Nothing);
            } else {
                let result = result_of(&report, failure.map_or(Ok(()), Err));
                self.record(report, AfterRecord::Nothing);
                self.record(result, AfterRecord::Nothing);
            }
            if is_journal {
                self.record(ended, AfterRecord::RunCommand);
            }
        }
    }

    fn send_reports(&mut self) {
        for report in self.rules.take_reports() {
            tracing::warn!("alert {} {}: {}", report.id(), report.event.as_str(), report.detail);
            // A journal that takes no records must not keep this alert back.
            if report.kind == AlertKind::Record {
                if report.event == AlertEvent::Raised {
                    let report = report.clone();
                    let alert = UnrecordedAlert { report, failure: None, is_pending: true };
                    self.unrecorded_file().add(alert);
                }
                self.enqueue(report.clone());
                self.record(report, AfterRecord::Nothing);
            } else {
                self.record(report, AfterRecord::RunCommand);
            }
        }
    }

    fn record(&mut self, report: AlertReport, after: AfterRecord) {
        self.metrics.count(report.kind, report.event);
        let recorded = self.source.pump.record_alert(report.clone());
        let results = self.results.0.clone();
        self.unrecorded += 1;
        drop(tokio::spawn(async move {
            let recorded = recorded.await;
            // The send fails if the follower has ended. The next one finds the report on record, or
            // in the file of unrecorded alerts.
            results.send(AlertTaskResult::Recorded(report, after, recorded)).ok();
        }));
    }

    fn enqueue(&mut self, report: AlertReport) {
        if self.queue.len() < limits::ALERTS_QUEUED_MAX {
            self.queue.push_back(report);
        } else {
            let failure = "too many alerts wait for the command".to_owned();
            self.note_result(&report, Err(failure));
        }
    }

    fn take_result(&mut self, result: AlertTaskResult) {
        match result {
            AlertTaskResult::Recorded(report, after, recorded) => {
                self.unrecorded -= 1;
                if recorded.is_err() {
                    return;
                }
                // The alert about the journal as a whole is recorded together with its end.
                let last =
                    if report.subject == JOURNAL { AlertEvent::Ended } else { AlertEvent::Raised };
                if report.kind == AlertKind::Record && report.event == last {
                    self.unrecorded_file().remove(&report.id());
                }
                if after == AfterRecord::RunCommand {
                    self.enqueue(report);
                }
            }
            AlertTaskResult::Run(report, result) => {
                self.running.remove(&report.id());
                self.note_result(&report, result);
            }
            AlertTaskResult::Waiting(held) => {
                for HeldRequest { request, hold, .. } in held {
                    let found = CallRequest::of(&request);
                    let call = CallId(request.id);
                    let reader = self.reader.as_ref();
                    let held = reader.and_then(|reader| hold_of(reader, &request.thread, call));
                    let since = held.unwrap_or((request.time, self.read));
                    self.rules.recall_waiting(call, hold, since, found);
                }
            }
            AlertTaskResult::AllWaitingSent => self.knows_waiting = true,
        }
    }

    fn note_result(&mut self, report: &AlertReport, result: Result<(), String>) {
        if let Err(failure) = &result {
            tracing::error!("the command of the alert {} failed: {failure}", report.id());
        }
        if report.kind == AlertKind::Record && report.event == AlertEvent::Raised {
            self.unrecorded_file().note_result(&report.id(), &result);
        }
        self.record(result_of(report, result), AfterRecord::Nothing);
    }

    /// Starts the alert command for the oldest reports in the queue. Never runs the command for two
    /// reports about the same alert at the same time.
    fn start_commands(&mut self) {
        while self.running.len() < limits::ALERT_COMMANDS_MAX {
            let next =
                self.queue.iter().position(|report| !self.running.contains_key(&report.id()));
            let Some(report) = next.and_then(|next| self.queue.remove(next)) else { return };
            let command = self.command.borrow().clone();
            let results = self.results.0.clone();
            let id = report.id();
            let run = self.source.runtime.spawn(async move {
                let result = command.run(&report).await;
                // The send fails if the follower has ended. The next one runs the command again.
                results.send(AlertTaskResult::Run(report, result)).ok();
            });
            self.running.insert(id, run);
        }
    }

    fn check_problems(&mut self) {
        let health = &self.source.health;
        let mut found: Vec<(&str, String)> = Vec::new();
        match health.waits_for() {
            Some(WriteObstacle::Disk) => {
                found.push(("disk", "the disk is full; the journal takes no records".to_owned()));
            }
            Some(WriteObstacle::Server) => {
                let detail = "the journal's server is unavailable; the journal takes no records";
                found.push(("journal-server", detail.to_owned()));
            }
            Some(WriteObstacle::Denied) => {
                let detail = "the journal's server denies writes; the journal takes no records";
                found.push(("journal-server", detail.to_owned()));
            }
            None => {}
        }

        let (failures, waiting) = health.copies();
        if waiting == 0 {
            self.copy_failures = failures;
        } else if failures > self.copy_failures {
            let detail = format!(
                "{} could not be copied; the log has the reason",
                plural::count(waiting, "checkpoint")
            );
            found.push(("checkpoint-copies", detail));
        }

        if let Some(index) = &self.index {
            if index.has_ended() {
                found.push(("index", "the thread that writes the index has ended".to_owned()));
            } else if index.time() >= limits::ALERT_INDEX_LAG {
                let lag = index.time().as_secs();
                found.push(("index", format!("the index lacks records of the last {lag} s")));
            }
        }

        if let Some(failure) = &self.read_failure {
            found.push(("reading", format!("the records cannot be read: {failure}")));
        }
        self.clock.advance(since_boot());
        self.rules.check_problems(&found, self.read, self.clock.time());
    }

    /// Waits until the running commands have ended and all reports are recorded, but only for a
    /// bounded time.
    async fn finish(&mut self) {
        let waiting = async {
            while !self.running.is_empty() || self.unrecorded > 0 {
                let Some(result) = self.results.1.recv().await else { return };
                self.take_result(result);
            }
        };
        drop(timeout(limits::ALERT_STOP_WAIT, waiting).await);
        if !self.running.is_empty() {
            tracing::warn!("commands of alerts were stopped; they run again at the next start");
        }
        if self.unrecorded > 0 {
            tracing::warn!(
                "{} about alerts {} not on record",
                plural::count(self.unrecorded, "report"),
                plural::form(self.unrecorded, "is", "are")
            );
        }
        for run in self.running.values() {
            run.abort();
        }
    }
}

/// Sends to `results` the list of the calls that wait for a person now, as the pump returns it.
async fn send_waiting(
    pump: &Handle,
    results: &mpsc::UnboundedSender<AlertTaskResult>,
) -> Result<(), PumpUnavailable> {
    let mut held = pump.held_calls().await?;
    // A send fails if the follower has ended.
    while let Some(batch) = held.next_batch().await? {
        results.send(AlertTaskResult::Waiting(batch)).ok();
    }
    results.send(AlertTaskResult::AllWaitingSent).ok();
    Ok(())
}

/// Makes the alert report that states whether the alert command for the earlier report `report`
/// succeeded.
fn result_of(report: &AlertReport, result: Result<(), String>) -> AlertReport {
    let (event, detail) = match result {
        Ok(()) => (AlertEvent::Sent, "the command took it".to_owned()),
        Err(failure) => (AlertEvent::NotSent, failure),
    };
    AlertReport { event, detail, ..report.clone() }
}

/// Waits until a clock that shows `now` reaches `time`. Without a `time`, waits for ever.
async fn until(time: Option<Time>, now: Time) {
    match time {
        Some(time) => sleep(time.since(now)).await,
        None => pending().await,
    }
}

/// Searches the records of a call's tree for the request of the call. Begins with `record` and goes
/// back. Returns `None` if the search does not find the request (see [`search_back`]).
fn request_of(reader: &JournalReader, record: &Record, call: CallId) -> Option<CallRequest> {
    search_back(reader, record.position, |record| {
        record.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.id == call.0 => {
                Some(CallRequest::of(message))
            }
            _ => None,
        })
    })
}

/// Returns the time and the position of the record that began the hold of `call`, a held call in
/// `thread`. Returns `None` if the search does not find this record (see [`search_back`]).
fn hold_of(reader: &JournalReader, thread: &ThreadId, call: CallId) -> Option<(Time, Position)> {
    let head = reader.head(&thread.root()).ok()??;
    search_back(reader, head, |record| {
        let is_hold = |fact: &Fact| matches!(fact, Fact::Held { call: held, .. } if *held == call);
        record.facts.iter().any(is_hold).then_some((record.time, record.position))
    })
}

/// Returns the first value that `look` finds in the record at `head` or in an earlier record of the
/// same tree, from the newest to the oldest. Reads at most [`limits::ALERT_REQUEST_RECORDS_MAX`]
/// records. Returns `None` if these records do not contain the value, or if one of them cannot be
/// read.
fn search_back<T>(
    reader: &JournalReader,
    head: Position,
    look: impl Fn(&Record) -> Option<T>,
) -> Option<T> {
    let mut found = None;
    let mut visited = 0;
    let walked = reader.walk_back(head, |walked| {
        found = look(walked.record());
        visited += 1;
        let is_over = found.is_some() || visited >= limits::ALERT_REQUEST_RECORDS_MAX;
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    if let Err(error) = walked {
        tracing::debug!("the records of a call could not be read for alerts: {error}");
    }
    found
}
