//! Decides which records and problems raise an alert, and when the cause of an alert has ended. The
//! rules are pure: they read no clock, because every input carries its time.
//!
//! **Invariant:** one cause raises one alert. Repetitions are counted in the alert that is already
//! raised, also after a restart ([`AlertRules::recall`]).

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use super::bursts::Burst;
use super::call_requests::{CallRequest, FindRequest, OpenRequests};
use crate::clock::Time;
use crate::config::AlertRulesConfig;
use crate::ids::{CallId, ListenerName, Position, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::system::{ALL_OTHERS, AlertEvent, AlertId, AlertKind, AlertReport};
use crate::thread::{Closing, Fact, Hold, Input, Record, WarningStatus};

/// Kind and subject of an alert.
type AlertKey = (AlertKind, String);

/// Returns the key of the collective alert about calls that wait for a person.
fn all_waiting() -> AlertKey {
    (AlertKind::Waiting, ALL_OTHERS.to_owned())
}

/// Whether the cause of an alert can end. The use of a budget never falls, so an alert about one
/// budget does not end. Only the collective alert about budgets ends.
fn has_end(report: &AlertReport) -> bool {
    report.kind != AlertKind::Budgets || report.subject == ALL_OTHERS
}

/// Whether alerts of this kind are raised in the order of the records that cause them. False for
/// alerts about calls that wait for a person, and about problems of the journal: the passage of
/// time raises these alerts.
const fn is_counted_by_position(kind: AlertKind) -> bool {
    match kind {
        AlertKind::Refusals | AlertKind::Failures | AlertKind::Budgets => true,
        AlertKind::Waiting | AlertKind::Record => false,
    }
}

/// An alert whose cause has not ended.
#[derive(Debug, Clone)]
struct OpenAlert {
    report: AlertReport,
    /// Time at which the cause was last seen.
    last: Time,
}

/// A call that waits for a person.
#[derive(Debug, Clone)]
struct UndecidedCall {
    since: Time,
    /// Time from which the wait counts. Initially equal to `since`. If the system clock is set
    /// forward during the wait, this time moves forward by the same amount.
    counted_from: Time,
    cause: Position,
    hold: Hold,
    request: Option<CallRequest>,
    is_alerted: bool,
    /// Whether the collective alert about waiting calls counts this call (see [`ALL_OTHERS`]).
    is_collective: bool,
}

impl UndecidedCall {
    fn new(
        (since, cause): (Time, Position),
        hold: Hold,
        request: Option<CallRequest>,
        is_alerted: bool,
    ) -> Self {
        let counted_from = since;
        Self { since, counted_from, cause, hold, request, is_alerted, is_collective: false }
    }
}

/// One occurrence of the cause of an alert.
struct Occurrence {
    kind: AlertKind,
    subject: String,
    count: u64,
    position: Position,
    time: Time,
    /// Time up to which the cause counts as present: usually equal to `time`. Later for a cause
    /// whose occurrences are recorded only at the end of an interval.
    seen: Time,
    thread: Option<ThreadId>,
    detail: String,
}

/// Counters for one problem of the journal: consecutive checks that found the problem, and
/// consecutive checks that did not find it.
#[derive(Debug, Default)]
struct ProblemChecks {
    seen: u32,
    missed: u32,
}

/// State of the alerts of one pump.
///
/// All times that the rules get are of one clock: the times of records, and the times of
/// [`AlertRules::tick`] and of [`AlertRules::check_problems`].
#[derive(Debug)]
pub struct AlertRules {
    config: AlertRulesConfig,
    open: BTreeMap<AlertKey, OpenAlert>,
    bursts: BTreeMap<AlertKey, Burst>,
    waiting: BTreeMap<CallId, UndecidedCall>,
    requests: OpenRequests,
    problems: BTreeMap<String, ProblemChecks>,
    /// For each kind of alert, the times at which alerts were raised within the time window of the
    /// config.
    raised: BTreeMap<AlertKind, VecDeque<Time>>,
    /// Ids of alerts that earlier runs of the organism raised and recorded.
    known: HashSet<AlertId>,
    /// For causes of the kinds that are counted by position: the last position that an ended or
    /// recalled alert has counted.
    counted: BTreeMap<AlertKey, Position>,
    /// The reports that [`AlertRules::take_reports`] has not returned yet, in order.
    reports: Vec<AlertReport>,
}

impl AlertRules {
    pub fn new(config: AlertRulesConfig) -> Self {
        Self {
            config,
            open: BTreeMap::new(),
            bursts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            requests: OpenRequests::default(),
            problems: BTreeMap::new(),
            raised: BTreeMap::new(),
            known: HashSet::new(),
            counted: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// Replaces the settings. Raised alerts stay open until their cause has ended.
    pub fn configure(&mut self, config: AlertRulesConfig) {
        self.config = config;
    }

    /// Removes and returns the reports that the rules have made so far.
    pub fn take_reports(&mut self) -> Vec<AlertReport> {
        std::mem::take(&mut self.reports)
    }

    /// Applies a report that an earlier run recorded. The caller must pass all reports of earlier
    /// runs, in the order of their records, before the first call of [`AlertRules::take`].
    pub fn recall(&mut self, report: &AlertReport, time: Time) {
        if mutant("alert-again") {
            return;
        }
        let key = (report.kind, report.subject.clone());
        match report.event {
            AlertEvent::Raised => {
                self.known.insert(report.id());
                self.note_counted(&key, report.through);
                if has_end(report) {
                    self.open.insert(key, OpenAlert { report: report.clone(), last: time });
                }
            }
            AlertEvent::Ended => {
                self.note_counted(&key, report.through);
                self.open.remove(&key);
            }
            AlertEvent::Sent | AlertEvent::NotSent => {}
        }
    }

    /// Whether an earlier run of the organism raised and recorded this alert.
    pub fn is_known(&self, id: &AlertId) -> bool {
        self.known.contains(id)
    }

    /// Adds a call that waits for a person. Needed if the wait began before the first record that
    /// [`AlertRules::take`] gets.
    pub fn recall_waiting(
        &mut self,
        call: CallId,
        hold: Hold,
        (since, cause): (Time, Position),
        request: CallRequest,
    ) {
        let is_alerted = self.open.contains_key(&(AlertKind::Waiting, call.to_string()));
        let request = Some(request);
        let waiting = UndecidedCall::new((since, cause), hold, request, is_alerted);
        self.waiting.entry(call).or_insert(waiting);
    }

    /// Ends the alerts about calls that no longer wait for a person. Must be called once, when all
    /// records from before the start have been processed.
    pub fn end_recalled(&mut self) {
        let open = self.open.keys().filter(|(kind, _)| *kind == AlertKind::Waiting);
        let calls: HashSet<String> = self.waiting.keys().map(ToString::to_string).collect();
        let gone: Vec<_> = open.filter(|(_, subject)| !calls.contains(subject)).cloned().collect();
        for key in gone.into_iter().filter(|(_, subject)| subject != ALL_OTHERS) {
            self.end(&key, "no decision is needed any more");
        }

        let Some(all) = self.open.get_mut(&all_waiting()) else { return };
        // The records do not name the calls that the collective alert counts.
        let mut others = 0;
        for waiting in self.waiting.values_mut().filter(|waiting| !waiting.is_alerted) {
            waiting.is_alerted = true;
            waiting.is_collective = true;
            others += 1;
        }
        all.report.count = all.report.count.max(others);
        self.end_all_waiting();
    }

    /// Ends the collective alert about calls that wait for a person, if none of the calls that it
    /// counts is still waiting.
    fn end_all_waiting(&mut self) {
        if !self.waiting.values().any(|waiting| waiting.is_collective) {
            self.end(&all_waiting(), "no decision is needed any more");
        }
    }

    fn is_on(&self, kind: AlertKind) -> bool {
        self.config.on.contains(&kind)
    }

    /// Processes the next record of the journal.
    pub fn take(&mut self, record: &Record, find: FindRequest<'_>) {
        if let Input::Busy { client, count, .. } = &record.input {
            self.refused(record, client, *count, "busy");
        }

        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. } => self.requests.add(message),
                Fact::Refused { sender, refusal, .. } => {
                    self.refused(record, sender, 1, refusal.rule.as_str());
                }
                Fact::CallClosed { call, how } => {
                    self.stop_waiting(*call);
                    if *how == Closing::Failed && !record.input.is_decision() {
                        self.failed(record, *call, find);
                    }
                    self.requests.remove(*call);
                }
                Fact::Released { call, .. } => self.stop_waiting(*call),
                Fact::Held { call, hold, .. } => self.wait(record, *call, *hold, find),
                // The record of an unsent warning raises the alert, so the later one raises none.
                Fact::Warned { budget, status, .. } if *status != WarningStatus::SentLater => {
                    self.warned(record, budget);
                }
                _ => {}
            }
        }
    }

    fn refused(&mut self, record: &Record, sender: &ListenerName, count: u64, rule: &str) {
        if !self.is_on(AlertKind::Refusals) {
            return;
        }
        let detail = format!("payloads of `{sender}` are refused; the last one by the rule {rule}");
        // The next sum of `busy` refusals is recorded at the end of its interval.
        let seen = match record.input {
            Input::Busy { .. } => record.time.plus(limits::BUSY_INTERVAL),
            _ => record.time,
        };
        self.occur(Occurrence {
            kind: AlertKind::Refusals,
            subject: sender.to_string(),
            count,
            position: record.position,
            time: record.time,
            seen,
            thread: None,
            detail,
        });
    }

    fn failed(&mut self, record: &Record, call: CallId, find: FindRequest<'_>) {
        if !self.is_on(AlertKind::Failures) {
            return;
        }
        let request = self.requests.request_of(record, call, find);
        let subject = request.as_ref().map_or("unknown".to_owned(), |r| r.listener.to_string());
        let detail = format!("calls to `{subject}` end as failed; the last one is {call}");
        self.occur(Occurrence {
            kind: AlertKind::Failures,
            subject,
            count: 1,
            position: record.position,
            time: record.time,
            seen: record.time,
            thread: request.map(|request| request.thread),
            detail,
        });
    }

    fn warned(&mut self, record: &Record, budget: &str) {
        if !self.is_on(AlertKind::Budgets) {
            return;
        }
        let tree = &record.tree;
        let report = AlertReport {
            event: AlertEvent::Raised,
            kind: AlertKind::Budgets,
            subject: format!("{budget} in {tree}"),
            cause: record.position,
            through: record.position,
            since: record.time,
            count: 1,
            thread: Some(tree.clone()),
            detail: format!("four fifths of the budget `{budget}` of {tree} are used"),
        };
        if !self.known.contains(&report.id()) {
            self.raise(report, record.time, record.time);
        }
    }

    fn wait(&mut self, record: &Record, call: CallId, hold: Hold, find: FindRequest<'_>) {
        let request = self.requests.request_of(record, call, find);
        let is_alerted = self.open.contains_key(&(AlertKind::Waiting, call.to_string()));
        let begin = (record.time, record.position);
        self.waiting.insert(call, UndecidedCall::new(begin, hold, request, is_alerted));
    }

    fn stop_waiting(&mut self, call: CallId) {
        let Some(stopped) = self.waiting.remove(&call) else { return };
        if stopped.is_collective {
            self.end_all_waiting();
        } else if stopped.is_alerted {
            let key = (AlertKind::Waiting, call.to_string());
            self.end(&key, "no decision is needed any more");
        }
    }

    /// Counts an occurrence of a cause. Raises an alert if the time window of the config contains
    /// enough occurrences.
    fn occur(&mut self, found: Occurrence) {
        let key = (found.kind, found.subject.clone());
        if self.counted.get(&key).is_some_and(|counted| found.position <= *counted) {
            return;
        }

        if let Some(open) = self.open.get_mut(&key).filter(|_| !mutant("alert-for-each")) {
            open.report.count += found.count;
            open.report.through = found.position;
            open.last = found.seen;
            return;
        }

        let burst = self.bursts.entry(key.clone()).or_default();
        burst.add(found.time, found.position, found.count, self.config.window);
        let count = burst.count();
        let enough = match found.kind {
            AlertKind::Refusals => self.config.refusals,
            _ => self.config.failures,
        };
        let Some(first) = burst.first().filter(|_| count >= enough) else { return };

        self.bursts.remove(&key);
        let report = AlertReport {
            event: AlertEvent::Raised,
            kind: found.kind,
            subject: found.subject,
            cause: first.position,
            through: found.position,
            since: first.since,
            count,
            thread: found.thread,
            detail: found.detail,
        };
        self.raise(report, found.time, found.seen);
    }

    /// Raises the alert of `report`, with two exceptions:
    ///
    /// - If the collective alert of its kind is open (see [`ALL_OTHERS`]), only increases the count
    ///   of the collective alert.
    /// - If too many alerts of the kind were raised within the time window of the config, raises
    ///   the collective alert instead.
    ///
    /// `seen` is the time up to which the cause counts as present.
    fn raise(&mut self, report: AlertReport, now: Time, seen: Time) {
        let window = self.config.window;
        let raised = self.raised.entry(report.kind).or_default();
        while raised.front().is_some_and(|time| now.since(*time) >= window) {
            raised.pop_front();
        }

        let all = (report.kind, ALL_OTHERS.to_owned());
        // An earlier run has counted this cause in its collective alert.
        let counted = self.counted.get(&all).filter(|_| is_counted_by_position(report.kind));
        if counted.is_some_and(|counted| report.through <= *counted) {
            return;
        }

        if let Some(open) = self.open.get_mut(&all) {
            open.report.count += 1;
            open.report.through = report.through;
            open.last = seen;
            return;
        }

        let is_flood = raised.len() >= limits::ALERTS_PER_WINDOW_MAX;
        raised.push_back(now);
        let report = if is_flood {
            let most = limits::ALERTS_PER_WINDOW_MAX;
            let until = match report.kind {
                AlertKind::Waiting => "until none of them waits",
                _ => "until there is none for as long",
            };
            let detail = format!(
                "more than {most} alerts about {} within {window:?}; the others are counted here, \
                 {until}",
                report.kind.as_str()
            );
            AlertReport { subject: ALL_OTHERS.to_owned(), count: 1, detail, ..report }
        } else {
            report
        };

        let key = (report.kind, report.subject.clone());
        self.reports.push(report.clone());
        if has_end(&report) {
            self.open.insert(key, OpenAlert { report, last: seen });
        }
    }

    fn end(&mut self, key: &AlertKey, why: &str) {
        let Some(open) = self.open.remove(key) else { return };
        self.note_counted(key, open.report.through);
        let times = open.report.count;
        let detail = format!("{why}; since {} it occurred {times} times", open.report.since);
        let detail = if times == 1 { why.to_owned() } else { detail };
        // After several occurrences, the thread of one of them is left out: it says nothing about
        // the others.
        let thread = open.report.thread.clone().filter(|_| times == 1);
        self.reports.push(AlertReport { event: AlertEvent::Ended, detail, thread, ..open.report });
    }

    /// Notes that an alert has counted the occurrences of its cause up to `through`. Keeps nothing
    /// for kinds that are not counted by position, because each call that waits for a person has an
    /// alert of its own.
    fn note_counted(&mut self, key: &AlertKey, through: Position) {
        if is_counted_by_position(key.0) {
            self.counted.insert(key.clone(), through);
        }
    }

    /// Whether an alert of this kind and subject ends once its cause has not occurred for the whole
    /// time window of the config:
    ///
    /// - Alerts about refusals and failures end in this way.
    /// - Alerts about calls that wait for a person do not: they end with the last decision.
    /// - For any other kind, only the collective alert ends in this way.
    fn ends_by_quiet((kind, subject): &AlertKey) -> bool {
        match kind {
            AlertKind::Refusals | AlertKind::Failures => true,
            AlertKind::Waiting => false,
            _ => subject == ALL_OTHERS,
        }
    }

    /// Applies the passage of time. Raises alerts about calls that wait for too long. Ends alerts
    /// whose cause did not occur again within the time window of the config.
    pub fn tick(&mut self, now: Time) {
        let window = self.config.window;
        let quiet = self
            .open
            .iter()
            .filter(|(key, open)| Self::ends_by_quiet(key) && now.since(open.last) >= window);
        let quiet: Vec<_> = quiet.map(|(key, _)| key.clone()).collect();
        for key in quiet {
            self.end(&key, "it has not occurred any more");
        }

        self.bursts.retain(|_, burst| !burst.is_old(now, window));
        self.raise_waiting(now);
    }

    /// Handles a jump of the clock, which was set forward by `step`. `before` is the time just
    /// before the jump. The jump counts neither for waits that began before it nor for time
    /// windows. Must be called before [`AlertRules::take`] gets the first record after the jump.
    pub fn pass_step(&mut self, before: Time, step: Duration) {
        let open = self.open.values_mut().map(|open| &mut open.last);
        for time in open.chain(self.raised.values_mut().flatten()) {
            *time = time.plus(step);
        }
        for burst in self.bursts.values_mut() {
            burst.pass_step(step);
        }

        // The pump sends the list of waiting calls, so a call may be from after the jump.
        for waiting in self.waiting.values_mut() {
            if waiting.counted_from <= before {
                waiting.counted_from = waiting.counted_from.plus(step);
            }
        }
    }

    fn raise_waiting(&mut self, now: Time) {
        if !self.is_on(AlertKind::Waiting) {
            return;
        }

        for waiting in self.waiting.values_mut() {
            // A fork inherits requests whose times may be of another, later clock.
            waiting.counted_from = waiting.counted_from.min(now);
        }

        let patience = self.config.waiting;
        let is_late = |waiting: &UndecidedCall| {
            !waiting.is_alerted && now.since(waiting.counted_from) >= patience
        };
        let late = self.waiting.iter_mut().filter(|(_, waiting)| is_late(waiting));
        let late = late.map(|(call, waiting)| {
            waiting.is_alerted = true;
            (*call, waiting.clone())
        });
        let late: Vec<_> = late.collect();

        for (call, waiting) in late {
            let listener = waiting.request.as_ref().map(|request| request.listener.to_string());
            let listener = listener.unwrap_or_else(|| "unknown".to_owned());
            let since = waiting.since;
            let decision = match waiting.hold {
                Hold::Approval => "approval",
                Hold::Answer => "answer",
            };
            let detail =
                format!("the call {call} to `{listener}` waits for an {decision} since {since}");
            let report = AlertReport {
                event: AlertEvent::Raised,
                kind: AlertKind::Waiting,
                subject: call.to_string(),
                cause: waiting.cause,
                through: waiting.cause,
                since,
                count: 1,
                thread: waiting.request.map(|request| request.thread),
                detail,
            };
            self.raise(report, now, now);

            let own = (AlertKind::Waiting, call.to_string());
            let is_collective = !self.open.contains_key(&own);
            if let Some(waiting) = self.waiting.get_mut(&call) {
                waiting.is_collective = is_collective;
            }
        }
    }

    /// Processes the result of one check for problems of the journal and of its copies. `found`
    /// contains the name and the explanation of each problem. An alert about a problem is raised,
    /// or ends, only after several consecutive checks with the same result. If the config turns
    /// such alerts off, none is raised, but those that are open still end.
    pub fn check_problems(&mut self, found: &[(&str, String)], last: Position, now: Time) {
        let is_on = self.is_on(AlertKind::Record);
        let open = self.open.keys().filter(|(kind, _)| *kind == AlertKind::Record);
        let open: Vec<String> = open.map(|(_, subject)| subject.clone()).collect();
        for subject in open.into_iter().chain(found.iter().map(|(name, _)| (*name).to_owned())) {
            self.problems.entry(subject).or_default();
        }

        let mut begun = Vec::new();
        let mut ended = Vec::new();
        for (subject, checks) in &mut self.problems {
            let problem = found.iter().find(|(name, _)| name == subject);
            checks.seen = if problem.is_some() { checks.seen + 1 } else { 0 };
            checks.missed = if problem.is_some() { 0 } else { checks.missed + 1 };
            let is_open = self.open.contains_key(&(AlertKind::Record, subject.clone()));
            if let Some((_, detail)) = problem
                && is_on
                && !is_open
                && checks.seen >= limits::ALERT_CHECKS
            {
                begun.push((subject.clone(), detail.clone()));
            }
            if is_open && checks.missed >= limits::ALERT_CHECKS {
                ended.push(subject.clone());
            }
        }
        self.problems.retain(|_, checks| checks.missed < limits::ALERT_CHECKS);

        for subject in ended {
            self.end(&(AlertKind::Record, subject), "the problem is gone");
        }
        for (subject, detail) in begun {
            self.raise(
                AlertReport {
                    event: AlertEvent::Raised,
                    kind: AlertKind::Record,
                    subject,
                    cause: last,
                    through: last,
                    since: now,
                    count: 1,
                    thread: None,
                    detail,
                },
                now,
                now,
            );
        }
    }

    /// Returns the next time at which [`AlertRules::tick`] must be called, because an alert may be
    /// raised or end at that time. Returns `None` if time alone changes no alert.
    pub fn next_tick(&self) -> Option<Time> {
        let window = self.config.window;
        let quiet = self.open.iter().filter(|(key, _)| Self::ends_by_quiet(key));
        let quiet = quiet.map(|(_, open)| open.last.plus(window));
        let waiting = self.waiting.values().filter(|waiting| !waiting.is_alerted);
        let patience = self.config.waiting;
        let waiting = waiting.filter(|_| self.is_on(AlertKind::Waiting));
        quiet.chain(waiting.map(|waiting| waiting.counted_from.plus(patience))).min()
    }

    /// Returns the number of alerts whose cause has not ended.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::envelope::{Message, MessageKind, Payload};
    use crate::ids::{Digest, MessageId, PayloadName};
    use crate::organism::alerts::alert_clock::AlertClock;
    use crate::thread::{Opener, Opening};

    const SECOND: i64 = 1_000_000;

    fn rules() -> AlertRules {
        AlertRules::new(AlertRulesConfig {
            on: vec![AlertKind::Waiting],
            window: Duration::from_secs(10),
            waiting: Duration::from_secs(5),
            refusals: 1,
            failures: 1,
        })
    }

    /// Returns rules that raise alerts of this kind only.
    fn rules_on(kind: AlertKind) -> AlertRules {
        let mut rules = rules();
        rules.configure(AlertRulesConfig { on: vec![kind], ..rules.config.clone() });
        rules
    }

    /// Processes a record with this fact. Each position has another tree. The rules find no request
    /// when they search the journal.
    fn take(rules: &mut AlertRules, position: u64, fact: Fact) {
        take_at(Time(0), rules, position, fact);
    }

    /// Processes a record as [`take`] does, with the time of the record.
    fn take_at(time: Time, rules: &mut AlertRules, position: u64, fact: Fact) {
        let record = Record {
            position: Position(position),
            tree: ThreadId::parse(&format!("sess-tree{position:04}")).unwrap(),
            previous: Position(0),
            previous_hash: Digest::ZERO,
            time,
            input: Input::Standstill { stood_micros: 0, stepped_micros: 0 },
            facts: vec![fact],
        };
        rules.take(&record, &mut |_, _| None);
    }

    fn call(n: u64) -> CallId {
        CallId(MessageId(Uuid::from_u128(u128::from(n))))
    }

    /// Adds calls with the numbers up to `count` that have waited for a person since `Time(0)`.
    fn wait_for_all(rules: &mut AlertRules, count: u64) {
        for n in 1..=count {
            let listener = ListenerName::parse("boss").unwrap();
            let request = CallRequest { listener, thread: ThreadId::organism() };
            rules.recall_waiting(call(n), Hold::Approval, (Time(0), Position(n)), request);
        }
        rules.end_recalled();
    }

    fn ended(rules: &mut AlertRules) -> Vec<(String, u64)> {
        let reports = rules.take_reports();
        let ended = reports.into_iter().filter(|report| report.event == AlertEvent::Ended);
        ended.map(|report| (report.subject, report.count)).collect()
    }

    #[test]
    fn a_collective_alert_about_waiting_calls_ends_with_the_last_decision() {
        let most = limits::ALERTS_PER_WINDOW_MAX as u64;
        let mut rules = rules();
        wait_for_all(&mut rules, most + 2);
        rules.tick(Time(6 * SECOND));
        let raised = rules.take_reports();
        assert_eq!(raised.len() as u64, most + 1, "the last alert is collective");
        let collective = raised.last().unwrap();
        assert_eq!(collective.subject, ALL_OTHERS);
        assert_eq!(rules.next_tick(), None, "only a decision ends one of them");

        rules.tick(Time(600 * SECOND));
        assert_eq!(ended(&mut rules), [], "all of them still wait");
        rules.stop_waiting(call(most + 1));
        assert_eq!(ended(&mut rules), []);

        // Another run of the organism finds the rest.
        let mut restarted = self::rules();
        raised.iter().for_each(|report| restarted.recall(report, Time(6 * SECOND)));
        wait_for_all(&mut restarted, most);
        assert_eq!(ended(&mut restarted), [(ALL_OTHERS.to_owned(), 1)], "each has its own alert");

        rules.stop_waiting(call(most + 2));
        assert_eq!(ended(&mut rules), [(ALL_OTHERS.to_owned(), 2)]);
        rules.stop_waiting(call(1));
        assert_eq!(ended(&mut rules), [(call(1).to_string(), 1)]);
    }

    #[test]
    fn a_burst_that_is_recorded_in_sums_raises_one_alert() {
        let mut rules = rules();
        let kinds = vec![AlertKind::Refusals];
        rules.configure(AlertRulesConfig { on: kinds, ..rules.config.clone() });
        let client = ListenerName::parse("cron").unwrap();
        let times = [1, 11, 21].map(|seconds| Time(seconds * SECOND));
        for (position, time) in (1..).zip(times) {
            let record = Record {
                position: Position(position),
                tree: ThreadId::organism(),
                previous: Position(0),
                previous_hash: Digest::ZERO,
                time,
                input: Input::Busy { client: client.clone(), since: time, count: 30 },
                facts: Vec::new(),
            };
            rules.tick(time);
            rules.take(&record, &mut |_, _| None);
        }
        assert_eq!(rules.take_reports().len(), 1, "the burst goes on");
        rules.tick(Time(40 * SECOND));
        assert_eq!(ended(&mut rules), []);
        rules.tick(Time(41 * SECOND));
        assert_eq!(ended(&mut rules), [("cron".to_owned(), 90)]);
    }

    #[test]
    fn only_time_that_has_passed_counts_as_a_wait() {
        let hour = Duration::from_secs(3600);
        let mut rules = rules();
        wait_for_all(&mut rules, 1);
        rules.pass_step(Time(2 * SECOND), hour);
        rules.tick(Time(2 * SECOND).plus(hour));
        assert_eq!(rules.take_reports(), [], "the clock was set forward");
        rules.tick(Time(5 * SECOND).plus(hour));
        let since: Vec<_> = rules.take_reports().iter().map(|report| report.since).collect();
        assert_eq!(since, [Time(0)]);

        let mut rules = self::rules();
        wait_for_all(&mut rules, 1);
        rules.pass_step(Time(0), hour);
        rules.tick(Time(SECOND));
        assert_eq!(rules.take_reports(), [], "the clock is right again");
        rules.tick(Time(6 * SECOND));
        assert_eq!(rules.take_reports().len(), 1);
    }

    /// The records are an hour ahead of the system clock, which was ahead for a moment.
    #[test]
    fn an_alert_ends_after_its_window_while_the_times_of_records_are_ahead() {
        let hour = Duration::from_secs(3600);
        let mut clock = AlertClock::start(Time(0), hour);
        let mut rules = rules_on(AlertKind::Failures);
        let mut pass = |rules: &mut AlertRules, seconds: u64| {
            clock.reach(Time(0).plus(hour), hour + Duration::from_secs(seconds));
            rules.tick(clock.time());
        };

        let failed = Fact::CallClosed { call: call(1), how: Closing::Failed };
        take_at(Time(0).plus(hour), &mut rules, 1, failed);
        pass(&mut rules, 0);
        assert_eq!(rules.take_reports().len(), 1);
        pass(&mut rules, 9);
        assert_eq!(rules.take_reports(), []);
        pass(&mut rules, 10);
        assert_eq!(ended(&mut rules), [("unknown".to_owned(), 1)]);
        assert_eq!(rules.next_tick(), None);
    }

    #[test]
    fn a_clock_that_is_set_forward_ends_no_alert_and_drops_no_occurrence() {
        let hour = Duration::from_secs(3600);
        let failed = || Fact::CallClosed { call: call(1), how: Closing::Failed };
        let mut rules = rules_on(AlertKind::Failures);
        take_at(Time(0), &mut rules, 1, failed());
        assert_eq!(rules.take_reports().len(), 1);
        rules.pass_step(Time(2 * SECOND), hour);
        rules.tick(Time(2 * SECOND).plus(hour));
        assert_eq!(rules.take_reports(), []);
        rules.tick(Time(10 * SECOND).plus(hour));
        assert_eq!(ended(&mut rules).len(), 1);

        let mut rules = rules_on(AlertKind::Failures);
        rules.configure(AlertRulesConfig { failures: 2, ..rules.config.clone() });
        take_at(Time(0), &mut rules, 1, failed());
        rules.pass_step(Time(2 * SECOND), hour);
        rules.tick(Time(2 * SECOND).plus(hour));
        take_at(Time(3 * SECOND).plus(hour), &mut rules, 2, failed());
        let reports = rules.take_reports();
        let raised: Vec<_> = reports.iter().map(|report| (report.since, report.count)).collect();
        assert_eq!(raised, [(Time(0), 2)]);
    }

    #[test]
    fn an_ended_alert_about_a_waiting_call_leaves_nothing_behind() {
        let mut rules = rules();
        wait_for_all(&mut rules, 3);
        rules.tick(Time(6 * SECOND));
        let raised = rules.take_reports();
        assert_eq!(raised.len(), 3);
        (1..=3).for_each(|n| rules.stop_waiting(call(n)));
        assert_eq!(ended(&mut rules).len(), 3);
        raised.iter().for_each(|report| rules.recall(report, Time(6 * SECOND)));
        assert!(rules.counted.is_empty(), "{:?}", rules.counted);
    }

    #[test]
    fn a_restart_raises_no_alert_again_that_a_collective_alert_counts() {
        let most = limits::ALERTS_PER_WINDOW_MAX as u64;
        let mut before = rules();
        wait_for_all(&mut before, most + 2);
        before.tick(Time(6 * SECOND));

        let mut rules = rules();
        let raised = before.take_reports();
        raised.iter().for_each(|report| rules.recall(report, Time(6 * SECOND)));
        wait_for_all(&mut rules, most + 2);
        rules.tick(Time(600 * SECOND));
        assert_eq!(rules.take_reports(), []);
        rules.stop_waiting(call(most + 1));
        rules.stop_waiting(call(most + 2));
        assert_eq!(ended(&mut rules), [(ALL_OTHERS.to_owned(), 2)]);
    }

    #[test]
    fn a_restart_raises_no_budget_again_that_a_collective_alert_counts() {
        let most = limits::ALERTS_PER_WINDOW_MAX as u64;
        let warn_all = |rules: &mut AlertRules| {
            for position in 1..=most + 6 {
                let budget = "messages".to_owned();
                let status = WarningStatus::Unsent;
                take(rules, position, Fact::Warned { budget, limit: Some(100), status });
                let budget = "messages".to_owned();
                let status = WarningStatus::SentLater;
                take(rules, position + 100, Fact::Warned { budget, limit: Some(100), status });
            }
        };
        let mut before = rules_on(AlertKind::Budgets);
        warn_all(&mut before);
        let raised = before.take_reports();
        assert_eq!(raised.len() as u64, most + 1);

        let mut rules = rules_on(AlertKind::Budgets);
        raised.iter().for_each(|report| rules.recall(report, Time(0)));
        warn_all(&mut rules);
        assert_eq!(rules.take_reports(), []);
        rules.tick(Time(20 * SECOND));
        assert_eq!(ended(&mut rules), [(ALL_OTHERS.to_owned(), 6)]);
    }

    /// Lets a call fail whose request cannot be found by a search of the journal. This happens to a
    /// call with very many records. The alert must use the request that the rules have processed.
    #[test]
    fn an_alert_names_the_listener_and_the_thread_of_a_failed_call_of_any_length() {
        let thread = ThreadId::parse("sess-longcall").unwrap();
        let client = ListenerName::parse("cron").unwrap();
        let message = Message {
            id: MessageId(call(7).0.0),
            kind: MessageKind::Call,
            from: client.clone(),
            to: ListenerName::parse("loop").unwrap(),
            thread: thread.clone(),
            seq: 1,
            cause: None,
            call: Some(call(7)),
            time: Time(0),
            name: PayloadName::new("urn:test", "go"),
            payload: Payload::new("<go/>"),
        };
        let opening =
            Opening { opener: Opener::Client { name: client }, group: None, forward: false };
        let message = Arc::new(message);
        let opened = Fact::Accepted { message, opening: Some(opening), key: None };

        let mut rules = rules_on(AlertKind::Failures);
        take(&mut rules, 1, opened);
        take(&mut rules, 2, Fact::CallClosed { call: call(7), how: Closing::Failed });
        let raised = rules.take_reports();
        assert_eq!(raised[0].subject, "loop");
        assert_eq!(raised[0].thread, Some(thread));
        assert!(rules.requests.is_empty());
    }

    #[test]
    fn an_open_alert_about_the_record_ends_although_the_config_turns_the_kind_off() {
        let check = |rules: &mut AlertRules, found: &[(&str, String)]| {
            for _ in 0..limits::ALERT_CHECKS {
                rules.check_problems(found, Position(1), Time(0));
            }
        };
        let full = [("disk", "the disk is full".to_owned())];
        let mut rules = rules_on(AlertKind::Record);
        check(&mut rules, &full);
        assert_eq!(rules.take_reports().len(), 1);

        let on = vec![AlertKind::Waiting];
        rules.configure(AlertRulesConfig { on, ..rules.config.clone() });
        check(&mut rules, &[]);
        assert_eq!(ended(&mut rules), [("disk".to_owned(), 1)]);
        check(&mut rules, &full);
        assert_eq!(rules.take_reports(), [], "the kind is off");
    }
}
