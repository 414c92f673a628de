//! A ledger of sent messages, responses and effects. It is kept outside the pump, and compared with
//! the record.

use std::collections::{BTreeMap, HashMap, HashSet};

use std::time::Duration;

use organism::bus::Delivery;
use organism::clock::Time;
use organism::contract::Gather;
use organism::envelope::{Disposition, Message, MessageKind};
use organism::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use organism::pump::core::{Alarm, Event, Receipt};
use organism::thread::{Closing, Decision, Fact, Input, Opener, Opening, PauseTarget, Record};

use super::bill::Bill;
use super::listeners::{PERSON, SINGLE, TIMEOUT};

/// Text in every payload with a forged sender, and in no other payload.
const FORGED: &str = "forged by ";

/// The text of a forged payload. It names the true sender of the payload.
pub fn forged_by(sender: &ListenerName) -> String {
    format!("{FORGED}{sender}")
}

/// A hash that differs from the hash of every payload in a simulation. An approval with this hash
/// must not release a call.
pub const NOT_LOOKED_AT: &str = "0000000000000000";

#[derive(Default)]
pub struct Judge {
    /// Submissions by key, with the responses that their clients got.
    submissions: BTreeMap<String, SubmissionFate>,
    /// Effects by message and attempt.
    effects: HashSet<(MessageId, Attempt)>,
    touched: HashSet<MessageId>,
    /// Attempts that have carried out an action that must not be repeated, by the message of the
    /// request.
    single: HashMap<MessageId, Attempt>,
    /// Time of the last hand-over of each call, by a clock that never jumps.
    offered: HashMap<CallId, Time>,
    /// Time of the latest record.
    time: Time,
    /// For each call that was handed over, its last attempt.
    handed: HashMap<CallId, Attempt>,
    /// Result of each call: how the call ended, and the payloads. A client gets a result directly,
    /// or when it repeats a key.
    results: HashMap<CallId, (Closing, Vec<String>)>,
    /// Calls whose clients got the result when the call ended.
    notified: HashSet<CallId>,
    /// Answers with a forged name, each with its true sender.
    forged_answers: HashSet<(ListenerName, CallId, Attempt)>,
    forged_submissions: HashSet<MessageId>,
    /// Calls with a decision that the organism has confirmed to a person.
    ruled: HashSet<CallId>,
    /// Messages that had a disposition before the present group of steps. A delivery must not
    /// contain one of these as a new message. Messages of the present group do not count, because a
    /// group may hand a delivery over and then withdraw it.
    settled: HashSet<MessageId>,
    /// Submissions that were refused because the disk was full.
    turned_away: HashSet<MessageId>,
    pub bill: Bill,
    record: Recorded,
}

/// The knowledge of a client about one submission.
#[derive(Default, Debug)]
struct SubmissionFate {
    accepted: Option<Vec<CallId>>,
    refused: bool,
}

/// The content of the records, updated with each record.
#[derive(Default)]
struct Recorded {
    /// The pauses in force.
    paused: Vec<PauseTarget>,
    messages: BTreeMap<MessageId, Message>,
    disposed: HashMap<MessageId, Disposition>,
    /// Messages that got their disposition in the latest group.
    fresh: Vec<MessageId>,
    seqs: HashMap<ThreadId, u64>,
    keys: HashMap<String, Vec<MessageId>>,
    calls: BTreeMap<CallId, Opening>,
    closed: HashMap<CallId, Closing>,
    held: HashSet<CallId>,
    released: HashSet<CallId>,
    outcomes: HashMap<CallId, Attempt>,
}

impl Judge {
    pub fn sent(&mut self, key: &str) {
        self.submissions.entry(key.to_owned()).or_default();
    }

    /// Submissions whose clients do not know the outcome.
    pub fn untold(&self) -> Vec<String> {
        let untold =
            self.submissions.iter().filter(|(_, told)| told.accepted.is_none() && !told.refused);
        untold.map(|(key, _)| key.clone()).collect()
    }

    /// Accepted submissions whose clients know of the acceptance.
    pub fn accepted(&self) -> Vec<String> {
        let accepted = self.submissions.iter().filter(|(_, told)| told.accepted.is_some());
        accepted.map(|(key, _)| key.clone()).collect()
    }

    pub fn record_receipt(&mut self, key: &str, receipt: Receipt) {
        let told = self.submissions.get_mut(key).unwrap();
        match receipt {
            Receipt::Accepted { calls, .. } => {
                let before = told.accepted.replace(calls.clone());
                assert!(before.is_none_or(|before| before == calls), "{key} was told two things");
                assert!(!told.refused, "{key} was refused and accepted");
            }
            // Only these refusals are final; after `busy`, the client tries again.
            Receipt::Refused { refusal, retry_after: None } => panic!("{key}: {refusal:?}"),
            Receipt::Refused { .. } => {}
            Receipt::NoThread { answer } => panic!("{key}: {answer}"),
        }
    }

    pub fn turned_away(&mut self, submission: MessageId) {
        self.turned_away.insert(submission);
    }

    pub fn turned_away_so_far(&self) -> usize {
        self.turned_away.len()
    }

    pub fn result(&mut self, call: CallId, how: Closing, payloads: Vec<String>) {
        let recorded = self.record.closed.get(&call);
        assert_eq!(recorded, Some(&how), "told what is not on record");
        assert!(self.notified.insert(call), "a second result for {call}");
        self.same_result(call, how, payloads);
    }

    /// Checks the result that a client gets when it repeats a key. The result must belong to the
    /// first request with this key, and must equal the first result byte for byte. Every listener's
    /// answer to that request contains `text`.
    pub fn repeated(&mut self, call: CallId, how: Closing, payloads: Vec<String>, text: &str) {
        let text = format!("<text>{text}</text>");
        let is_own = how != Closing::Completed || payloads.iter().all(|own| own.contains(&text));
        assert!(is_own, "{payloads:?} is no answer with {text}");
        let is_first = matches!(self.record.calls[&call].group, Some((_, Gather::First)));
        assert!(is_first || !payloads.is_empty(), "{call} has no result");
        self.same_result(call, how, payloads);
    }

    fn same_result(&mut self, call: CallId, how: Closing, payloads: Vec<String>) {
        let told = (how, payloads);
        let before = self.results.insert(call, told.clone());
        assert!(before.is_none_or(|before| before == told), "{call} has two results: {told:?}");
    }

    /// Notes a submission that names a forged sender, or that uses the key of another request.
    pub fn forged(&mut self, submission: MessageId) {
        self.forged_submissions.insert(submission);
    }

    pub fn is_forged(&self, submission: MessageId) -> bool {
        self.forged_submissions.contains(&submission)
    }

    pub fn forged_answer(&mut self, sender: &ListenerName, delivery: &Delivery) {
        let answer = (sender.clone(), delivery.call, delivery.attempt);
        self.forged_answers.insert(answer);
    }

    /// Checks that at most one decision about a call takes effect, even if several persons decide.
    pub fn ruled(&mut self, call: CallId, counts: bool) {
        assert!(!counts || self.record.calls.contains_key(&call), "{call} is of another project");
        assert!(!counts || self.ruled.insert(call), "two decisions about {call} count");
    }

    /// Checks that all messages of a delivery that is handed over are on record and in flight.
    pub fn handed_over(&mut self, delivery: &Delivery) {
        let (call, attempt) = (delivery.call, delivery.attempt);
        let before = self.handed.insert(call, attempt);
        assert!(!self.record.held.contains(&call), "{call} is handed over and held");
        assert!(before < Some(attempt), "attempt {attempt} at {call} after {before:?}");
        for message in &delivery.messages {
            assert!(self.record.messages.contains_key(&message.id), "delivered, not recorded");
        }
        let fresh = delivery.messages.len() - delivery.fresh;
        for message in &delivery.messages[fresh..] {
            assert!(!self.settled.contains(&message.id), "{} was settled before", message.id);
        }
    }

    /// Records the effect of an attempt by a listener.
    pub fn effect(&mut self, delivery: &Delivery) {
        if delivery.listener.as_str() == SINGLE {
            let before = self.single.insert(delivery.call.0, delivery.attempt);
            assert_eq!(before, None, "{} was done twice", delivery.call);
        }
        let fresh = delivery.messages.len() - delivery.fresh;
        for message in &delivery.messages[fresh..] {
            let once = self.effects.insert((message.id, delivery.attempt));
            assert!(once, "{} was done twice in attempt {}", message.id, delivery.attempt);
            self.touched.insert(message.id);
        }
    }

    pub fn effects(&self) -> usize {
        self.effects.len()
    }

    pub fn in_flight(&self) -> usize {
        self.record.messages.len() - self.record.disposed.len()
    }

    pub fn begin_group(&mut self) {
        self.settled.extend(std::mem::take(&mut self.record.fresh));
    }

    /// Checks a record. `uncounted` is the total time so far that counts for no time-out.
    pub fn recorded(&mut self, record: &Record, uncounted: Duration) {
        assert!(record.time >= self.time, "record time runs backwards");
        self.time = record.time;
        let counted = Time(record.time.0 - i64::try_from(uncounted.as_micros()).unwrap());
        if let Input::Deadline { call, .. } = &record.input {
            let waited = counted.since(self.offered[call]);
            assert!(waited >= TIMEOUT, "{call} timed out after {waited:?}");
        }
        if let Input::Decided { decision: Decision::Approve { hash, .. }, .. } = &record.input {
            let released = record.facts.iter().any(|fact| matches!(fact, Fact::Released { .. }));
            assert!(!released || hash != NOT_LOOKED_AT, "approved by a wrong hash");
        }
        self.bill.recorded(record, |call| self.record.closed.contains_key(&call));
        self.true_names(record);
        for fact in &record.facts {
            self.record.take(fact);
            if let Fact::HandedOver { call, .. } = fact {
                self.offered.insert(*call, counted);
            }
            let decided = matches!(record.input, Input::Decided { .. });
            if let Fact::OutcomeReceived { call, attempt } = fact
                && !decided
            {
                assert_eq!(self.handed.get(call), Some(attempt), "heard, but not the last attempt");
            }
        }
    }

    /// Checks that a payload with a forged name is refused on record, under the name of its true
    /// sender.
    fn true_names(&self, record: &Record) {
        let sender = match &record.input {
            Input::Submitted { id, client, .. } => self.is_forged(*id).then_some(client),
            Input::Outcome { listener, call, attempt, .. } => {
                let answer = (listener.clone(), *call, *attempt);
                self.forged_answers.contains(&answer).then_some(listener)
            }
            _ => None,
        };
        let refused = record.facts.iter().filter_map(|fact| match fact {
            Fact::Refused { sender, refusal, .. } => Some((sender, &refusal.head)),
            _ => None,
        });
        let mut found = refused.filter(|(_, head)| head.contains(FORGED)).peekable();
        let is_refused = found.peek().is_some();
        assert!(sender.is_none() || is_refused, "no refusal of {sender:?} in {record:#?}");
        for (sender, head) in found {
            let text = format!("{}<", forged_by(sender));
            assert!(head.contains(&text), "{head:?} is on record as sent by {sender}");
        }
    }

    /// Checks that no deadline fires while an answer that arrived in time still waits for the core.
    pub fn due(&self, due: Option<&Event>, inbox: &[Event]) {
        let Some(Event::Alarm(Alarm::Deadline { call, attempt })) = due else { return };
        let deadline = self.offered[call].plus(TIMEOUT);
        let callee = &self.record.messages[&call.0].to;
        let is_in_time = |event: &Event| match event {
            Event::Outcome { listener, call: own, attempt: its, arrived: Some(at), .. } => {
                (listener, own, its) == (callee, call, attempt) && *at < deadline
            }
            _ => false,
        };
        assert!(!inbox.iter().any(is_in_time), "{call} has its answer, and its deadline fires");
    }

    /// Compares the whole ledger with the whole record after all work has ended.
    pub fn verdict(&self) {
        assert_eq!(self.in_flight(), 0, "accepted without a disposition");
        self.submissions_are_recorded_once();
        for (call, opening) in &self.record.calls {
            self.one_result(*call, opening);
        }
        self.first_groups_have_one_reply_or_every_fault();
        for (id, message) in &self.record.messages {
            let text = message.payload.as_str();
            // The true sender gets the refusal.
            let is_shown = &*message.name.local == "huh" && text.contains(&forged_by(&message.to));
            let is_forged = text.contains(FORGED) && !(message.from.is_core() && is_shown);
            assert!(!is_forged, "a forged answer was taken: {text}");
            assert!(!self.turned_away.contains(id), "{id} was turned away and taken");
            let done = self.record.disposed.get(id) == Some(&Disposition::Handled);
            let to_listener = message.kind == MessageKind::Call
                && !message.to.is_core()
                && message.to.as_str() != PERSON;
            assert!(!done || !to_listener || self.touched.contains(id), "handled by nobody: {id}");
        }
    }

    fn submissions_are_recorded_once(&self) {
        for (key, told) in &self.submissions {
            let recorded = self.record.keys.get(key).map_or(0, Vec::len);
            let due = told.accepted.as_ref().map_or(0, Vec::len);
            assert_eq!(recorded, due, "records of {key}, {told:?}");
        }
        for key in self.record.keys.keys() {
            assert!(self.submissions.contains_key(key), "nobody sent {key}");
        }
    }

    /// Checks the groups of clients that gather only the first reply. Such a client gets one reply,
    /// or the fault of each leg.
    fn first_groups_have_one_reply_or_every_fault(&self) {
        let mut groups: HashMap<CallId, Vec<CallId>> = HashMap::new();
        for (call, opening) in &self.record.calls {
            let of_client = matches!(opening.opener, Opener::Client { .. });
            if let Some((group, Gather::First)) = opening.group.filter(|_| of_client) {
                groups.entry(group).or_default().push(*call);
            }
        }
        for legs in groups.values() {
            let results: Vec<_> = legs.iter().filter_map(|leg| self.results.get(leg)).collect();
            let given = results.iter().filter(|(_, payloads)| !payloads.is_empty()).count();
            let is_reply = |payload: &String| payload.starts_with("<ballot");
            let is_won = results.iter().any(|(_, payloads)| payloads.iter().any(is_reply));
            let is_whole = given == results.len() || given == 0;
            assert!(if is_won { given == 1 } else { is_whole }, "{legs:?} gave {results:?}");
        }
    }

    /// Checks that a call is closed once, and that its opener gets the replies or one payload of
    /// the core. If a call is cancelled together with its parent call, nothing receives a result.
    fn one_result(&self, call: CallId, opening: &Opening) {
        let how = self.record.closed.get(&call);
        assert!(how.is_some(), "{call} is open for ever");
        let parts = self.record.messages.values().filter(|message| {
            let own_thread = self.record.messages[&call.0].thread == message.thread;
            message.cause == Some(call.0)
                && own_thread
                && message.to == *opening.opener.name()
                && matches!(message.kind, MessageKind::Reply | MessageKind::System)
                && self.record.disposed.get(&message.id) != Some(&Disposition::Late)
        });
        let parts: Vec<_> = parts.collect();
        let systems = parts.iter().filter(|message| message.kind == MessageKind::System).count();
        let of_client = matches!(opening.opener, Opener::Client { .. });
        let is_superfluous = matches!(opening.group, Some((_, Gather::First)));
        match (how, parts.len()) {
            (Some(Closing::Cancelled), 0) if !of_client || is_superfluous => {}
            (_, 0) => panic!("no result of {call}, which is {how:?}"),
            (_, n) => assert!(systems == 0 || n == 1, "{n} results of {call}: {parts:#?}"),
        }
    }
}

impl Recorded {
    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted { message, opening, key } => {
                let seq = self.seqs.entry(message.thread.clone()).or_default();
                *seq += 1;
                assert_eq!(message.seq, *seq, "dense in {}", message.thread);
                let twice = self.messages.insert(message.id, Message::clone(message));
                assert!(twice.is_none(), "one id, two messages");
                if let Some(opening) = opening {
                    self.calls.insert(CallId(message.id), opening.clone());
                }
                if let Some(key) = key {
                    self.keys.entry(key.clone()).or_default().push(message.id);
                }
            }
            Fact::Disposed { message, how } => {
                self.fresh.push(*message);
                assert!(self.messages.contains_key(message), "disposed of the unknown");
                assert!(self.disposed.insert(*message, *how).is_none(), "one disposition each");
            }
            Fact::OutcomeReceived { call, attempt } => {
                let before = self.outcomes.insert(*call, *attempt);
                assert!(before < Some(*attempt), "attempts rise");
            }
            Fact::Paused { target, .. } => self.paused.push(target.clone()),
            Fact::Resumed { target } => self.paused.retain(|paused| paused != target),
            Fact::HandedOver { call, .. } => {
                let request = &self.messages[&call.0];
                let is_covered = |target: &PauseTarget| target.covers(&request.thread, &request.to);
                assert!(!self.paused.iter().any(is_covered), "{call} is handed over and paused");
            }
            Fact::Held { call, .. } => {
                assert!(self.held.insert(*call), "{call} is held twice");
            }
            Fact::Released { call, .. } => {
                assert!(self.held.remove(call), "{call} is released and was not held");
                assert!(self.released.insert(*call), "{call} is released twice");
            }
            Fact::CallClosed { call, how } => {
                self.held.remove(call);
                assert!(self.closed.insert(*call, *how).is_none(), "{call} is closed twice");
            }
            _ => {}
        }
    }
}
