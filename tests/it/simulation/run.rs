//! One run from one seed. Requests arrive, and faults occur from time to time at every boundary. In
//! the end, faults stop, so that all work must end.

use std::fmt;
use std::time::Duration;

use organism::bus::Delivery;
use organism::contract::Gather;
use organism::envelope::{
    AttemptFailure, Message, NotReserved, Refusal, RefusalRule, Spending, Turn,
};
use organism::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use organism::pump::core::{
    CallDecision, Cancellation, Effect, Event, GatedAnswer, OperatorRuling, PauseChange, Receipt,
    Submission, Target,
};
use organism::thread::{
    Decision, Hold, PauseAction, PauseTarget, PauseVerb, Record, client_result,
};
use uuid::Uuid;

use super::bill;
use super::faults::{Dice, Fault, Tally};
use super::judge::{Judge, NOT_LOOKED_AT, forged_by};
use super::listeners::{NAMES, PERSON, QUESTIONS, SINGLE, gate, is_agent, script};
use super::machine::Machine;
use super::neighbour::Neighbour;
use crate::pump::world::{core, name, word};

const JOURNAL: Uuid = Uuid::from_u128(7);
const TURNS: usize = 120;
const SUBMISSIONS: usize = 8;

/// The result of a run.
pub struct Run {
    pub records: Vec<Record>,
    pub tally: Tally,
    pub totals: Totals,
}

/// Counts of the faults of a run, for its output.
#[derive(Default)]
pub struct Totals {
    records: usize,
    effects: usize,
    starts: usize,
    /// Number of submissions that were refused because the disk was full.
    pub turned_away: usize,
    /// Number of model calls that were charged after the call of their agent had ended.
    pub charged_after: usize,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.effects += other.effects;
        self.starts += other.starts;
        self.turned_away += other.turned_away;
        self.charged_after += other.charged_after;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, effects, starts, turned_away, charged_after } = self;
        write!(f, "{records} records, {effects} effects, {starts} starts, ")?;
        write!(f, "{turned_away} submissions turned away, ")?;
        write!(f, "{charged_after} model calls charged after their calls")
    }
}

/// A delivery that a listener handles.
struct InHand {
    delivery: Delivery,
    /// Number of the pump start after which the delivery was handed over.
    run: usize,
    /// Whether the call was withdrawn while its handler continues. The host reports the end of the
    /// handler all the same.
    withdrawn: bool,
    /// Cost of the agent's model call so far; `None` if no reservation was granted.
    stream: Option<Spending>,
}

impl InHand {
    fn is_of(&self, call: CallId, attempt: Attempt) -> bool {
        (self.delivery.call, self.delivery.attempt) == (call, attempt)
    }
}

/// A submission. The client keeps it until the client knows the outcome.
struct Sent {
    key: String,
    question: &'static str,
}

struct Simulation {
    machine: Machine,
    neighbour: Neighbour,
    judge: Judge,
    dice: Dice,
    /// Events that have arrived and that the core has not processed yet. A crash of the pump loses
    /// them.
    inbox: Vec<Event>,
    in_hand: Vec<InHand>,
    /// Deliveries that will never be answered.
    silent: Vec<InHand>,
    /// Listeners whose program does not run at present.
    absent: Vec<&'static str>,
    sent: Vec<Sent>,
    /// Calls whose key a client has repeated before the call had a result.
    awaited: Vec<(CallId, String)>,
    /// Submissions whose receipts have not arrived yet.
    under_way: Vec<(MessageId, String)>,
    /// Threads in which work was accepted.
    threads: Vec<ThreadId>,
    ids: u32,
    starts: usize,
    /// The random numbers that decide about pauses. Faults use separate random numbers.
    pauses: Dice,
}

/// Runs a seed. In half of the seeds, trees at rest leave memory at random.
pub fn run(seed: u64) -> Run {
    run_with(seed, is_resting(seed))
}

/// Whether trees at rest leave memory in the run of a seed.
pub const fn is_resting(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// Runs a seed. `is_resting` states whether trees at rest leave memory.
pub fn run_with(seed: u64, is_resting: bool) -> Run {
    let mut dice = Dice::new(seed);
    let residency = is_resting.then(|| Dice::new(!seed));
    let gather = if dice.one_in(2) { Gather::First } else { Gather::All };
    let mut simulation = Simulation {
        machine: Machine::new(gate(gather), JOURNAL, residency),
        neighbour: Neighbour::new(gate(gather)),
        judge: Judge::default(),
        dice,
        inbox: Vec::new(),
        in_hand: Vec::new(),
        silent: Vec::new(),
        absent: Vec::new(),
        sent: Vec::new(),
        awaited: Vec::new(),
        under_way: Vec::new(),
        threads: Vec::new(),
        ids: 0,
        starts: 0,
        pauses: Dice::new(seed.rotate_left(32) + 1),
    };
    simulation.start();
    for _ in 0..TURNS {
        simulation.turn();
    }
    simulation.drain();
    simulation.judge.verdict();
    let spent = simulation.machine.spent();
    simulation.judge.bill.verdict(spent);
    let Simulation { machine, judge, dice, starts, .. } = simulation;
    let (records, effects) = (machine.records.len(), judge.effects());
    let (turned_away, charged_after) = (judge.turned_away_so_far(), judge.bill.after_the_call());
    let totals = Totals { records, effects, starts, turned_away, charged_after };
    crate::journal::substrate::comes_back(&machine.records);
    Run { records: machine.records, tally: dice.tally, totals }
}

impl Simulation {
    fn turn(&mut self) {
        match self.dice.below(14) {
            0 | 1 if self.sent.len() < SUBMISSIONS => self.submit_new(),
            1 => self.repeat_key(),
            2 => self.submit_again(),
            3 => self.machine.wait(),
            4 => self.jump(),
            11 if self.dice.one_in(4) => self.cancel_one(),
            11 if self.dice.one_in(3) => self.neighbour_errs(),
            11 => self.submit_forged(),
            5 => self.listener_dies(),
            6 if self.has_single() && self.dice.strikes(Fault::KilledWithSingle) => self.die(),
            6 if self.dice.strikes(Fault::Killed) => self.die(),
            6 => self.come_or_go(),
            7..=10 => self.answer_one(),
            12 | 13 => self.decide_one(),
            _ => {}
        }
        self.pause_or_resume();
        self.step();
    }

    /// An operator pauses or resumes everything, a listener or a thread.
    fn pause_or_resume(&mut self) {
        if !self.pauses.one_in(12) {
            return;
        }
        let target = match self.pauses.below(3) {
            0 => PauseTarget::All,
            1 => PauseTarget::Listener(name(NAMES[self.pauses.below(NAMES.len())])),
            _ if self.threads.is_empty() => return,
            _ => PauseTarget::Thread(self.threads[self.pauses.below(self.threads.len())].clone()),
        };
        let verb = match self.pauses.below(5) {
            0 | 1 => PauseVerb::Pause,
            2 => PauseVerb::PauseAndCancel,
            _ => PauseVerb::Resume,
        };
        self.inbox.push(pause(verb, target));
    }

    /// Whether the deliveries in flight include one that must not be repeated.
    fn has_single(&self) -> bool {
        let mut out = self.in_hand.iter().chain(&self.silent);
        out.any(|held| held.run == self.starts && held.delivery.listener.as_str() == SINGLE)
    }

    /// Ends or starts the program of a listener, with or without an announcement.
    fn come_or_go(&mut self) {
        if self.dice.strikes(Fault::Absent) {
            self.absent.push(NAMES[self.dice.below(NAMES.len())]);
        } else if !self.absent.is_empty() && self.dice.one_in(2) {
            let who = self.absent.remove(0);
            if self.dice.one_in(2) {
                let (listener, detail) = (name(who), "it is back".to_owned());
                self.inbox.push(Event::Joined { listener, detail });
            }
        }
    }

    /// Lets the core process some of the events that have arrived.
    fn step(&mut self) {
        let take = (1 + self.dice.below(4)).min(self.inbox.len());
        let mut events: Vec<Event> = self.inbox.drain(..take).collect();
        self.machine.notice_arrivals(&self.inbox);
        let due = self.machine.due();
        self.judge.due(due.as_ref(), &self.inbox);
        events.extend(due);
        if events.is_empty() {
            return;
        }
        let decided = self.machine.decide(events);
        if decided.is_to_be_recorded() && self.dice.strikes(Fault::DiskFull) {
            self.wait_for_room();
        }
        let done = self.machine.commit(decided, &mut self.dice, &mut self.judge);
        self.perform(done.effects);
        if done.dead {
            self.die();
        }
    }

    /// Waits while the disk is full, after a group was decided. As in the driver, new submissions
    /// are refused, and all other events keep their order.
    fn wait_for_room(&mut self) {
        for _ in 0..self.dice.below(6) {
            match self.dice.below(3) {
                0 if self.sent.len() < SUBMISSIONS => self.submit_new(),
                1 => self.submit_again(),
                _ => self.answer_one(),
            }
        }
        let (submitted, kept) =
            self.inbox.drain(..).partition(|event| matches!(event, Event::Submit(_)));
        self.inbox = kept;
        for event in submitted {
            let Event::Submit(submission) = event else { continue };
            let id = submission.id;
            self.judge.turned_away(id);
            let refusal = Refusal::new(RefusalRule::StorageFull, "the disk is full", b"");
            let retry_after = Some(Duration::from_millis(500));
            let receipt = Receipt::Refused { refusal, retry_after };
            self.perform(vec![Effect::Receipt { submission: id, receipt }]);
        }
        self.machine.stand_still(Duration::from_secs(self.dice.below(20) as u64));
    }

    fn start(&mut self) {
        self.starts += 1;
        let effects = self.machine.start(&mut self.dice, &mut self.judge);
        self.perform(effects);
    }

    /// Kills the pump, which loses everything that it had not recorded. Listeners may survive the
    /// pump's death and answer.
    fn die(&mut self) {
        self.inbox.clear();
        self.under_way.clear();
        self.silent.clear();
        let dice = &mut self.dice;
        self.in_hand.retain(|_| dice.strikes(Fault::AnswerOfAnotherRun));
        self.start();
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Deliver(delivery) => self.hand_over(delivery),
                Effect::Withdraw { call, attempt, .. } => self.withdraw(call, attempt),
                Effect::Receipt { submission, receipt } if self.judge.is_forged(submission) => {
                    let is_refused = matches!(receipt, Receipt::Refused { .. });
                    assert!(is_refused, "{submission} is forged: {receipt:?}");
                }
                Effect::Receipt { submission, receipt } => {
                    let at = self.under_way.iter().position(|(id, _)| *id == submission);
                    let Some(at) = at else { continue };
                    let (_, key) = self.under_way.remove(at);
                    if let Receipt::Accepted { thread, .. } = &receipt {
                        self.threads.push(thread.clone());
                    }
                    if !self.dice.strikes(Fault::ReceiptLost) {
                        self.judge.record_receipt(&key, receipt.clone());
                        self.read_results(&key, receipt);
                    }
                }
                Effect::Result { call, how, messages } => {
                    if !self.dice.strikes(Fault::ResultLost) {
                        let payloads = messages.iter().map(|message| text_of(message));
                        self.judge.result(call, how, payloads.collect());
                    }
                }
                // No client waits for a cancellation.
                Effect::Ruled { ticket, .. } if ticket.is_nil() => {}
                Effect::Ruled { ticket, ruling: OperatorRuling::Plain(ruling) } => {
                    if !self.dice.strikes(Fault::RulingLost) {
                        self.judge.ruled(CallId(MessageId(ticket)), ruling.is_ok());
                    }
                }
                Effect::Ruled { .. } | Effect::Recall(_) => {}
                Effect::Reserved { call, attempt, answer } => {
                    self.may_request(call, attempt, answer);
                }
                Effect::Alarm { .. }
                | Effect::Alarms(_)
                | Effect::Held { .. }
                | Effect::CountBusy { .. } => {}
            }
        }
    }

    /// Withdraws a call that has ended. A listener that continues may still answer; otherwise its
    /// host reports the end.
    fn withdraw(&mut self, call: CallId, attempt: Attempt) {
        let is_meant = |held: &InHand| held.is_of(call, attempt);
        if let Some(at) = self.silent.iter().position(is_meant) {
            let held = self.silent.remove(at);
            return self.died(&held.delivery);
        }
        let Some(at) = self.in_hand.iter().position(is_meant) else { return };
        if self.dice.strikes(Fault::CancelLost) {
            self.in_hand[at].withdrawn = true;
            return;
        }
        let held = self.in_hand.remove(at);
        match held.stream {
            Some(took) => self.close_stream(&held.delivery, took),
            None => self.died(&held.delivery),
        }
    }

    fn hand_over(&mut self, delivery: Delivery) {
        self.judge.handed_over(&delivery);
        let run = self.starts;
        if self.dice.strikes(Fault::DeliveryLost) {
            let (withdrawn, stream) = (false, None);
            return self.silent.push(InHand { delivery, run, withdrawn, stream });
        }
        let is_absent = self.absent.iter().any(|who| *who == delivery.listener.as_str());
        if is_absent || self.dice.strikes(Fault::Unreachable) {
            let Delivery { listener, call, attempt, .. } = delivery;
            let detail = "nobody there".to_owned();
            return self.inbox.push(Event::NotTaken { listener, call, attempt, detail });
        }
        let (call, attempt, is_agent) = (delivery.call, delivery.attempt, is_agent(&delivery));
        self.in_hand.push(InHand { delivery, run, withdrawn: false, stream: None });
        if is_agent {
            self.ask_to_request(call, attempt);
        }
    }

    fn submit_new(&mut self) {
        let key = format!("k{}", self.sent.len());
        let question = QUESTIONS[self.dice.below(QUESTIONS.len())];
        self.judge.sent(&key);
        self.sent.push(Sent { key, question });
        self.submit(self.sent.len() - 1);
    }

    /// Chooses a submission that got no response, and repeats it with the same key.
    fn submit_again(&mut self) {
        let untold = self.judge.untold();
        if untold.is_empty() {
            return;
        }
        let key = &untold[self.dice.below(untold.len())];
        let at = self.sent.iter().position(|sent| sent.key == *key).unwrap();
        self.submit(at);
    }

    /// Acts for a client whose request an agent or a group has accepted. Repeats the request, or
    /// sends another request with the same key.
    fn repeat_key(&mut self) {
        let accepted = self.judge.accepted();
        if accepted.is_empty() {
            return;
        }
        let key = &accepted[self.dice.below(accepted.len())];
        let at = self.sent.iter().position(|sent| sent.key == *key).unwrap();
        let question = self.sent[at].question;
        let fault = match question {
            "plan" => Fault::KeyRepeatedToAgent,
            "vote" => Fault::KeyRepeatedToGroup,
            _ => return,
        };
        if self.dice.strikes(fault) {
            self.submit(at);
        }
        if self.dice.strikes(Fault::KeyReused) {
            let (client, key) = (name("desk"), self.sent[at].key.clone());
            let text = word(question, &forged_by(&client));
            self.forge_submission(&client, &text, Some(key));
        }
    }

    /// Reads from the record the results that a client gets when it repeats a key.
    fn read_results(&mut self, key: &str, receipt: Receipt) {
        let Receipt::Accepted { calls, again: true, .. } = receipt else { return };
        let sent = self.sent.iter().find(|sent| sent.key == key).unwrap();
        // The answer of a person is free text.
        let text = if sent.question == "ask" { "r" } else { key };
        for call in calls {
            if !self.read_result(call, text) {
                self.awaited.push((call, text.to_owned()));
            }
        }
    }

    /// Reads and checks the result of a call. Returns whether the call has a result.
    fn read_result(&mut self, call: CallId, text: &str) -> bool {
        let records = &self.machine.records;
        let Some((how, messages)) = client_result(records.iter(), call) else { return false };
        let payloads = messages.into_iter().map(text_of).collect();
        self.judge.repeated(call, how, payloads, text);
        true
    }

    /// A client or a listener's host submits with a forged sender.
    fn submit_forged(&mut self) {
        if self.dice.strikes(Fault::SenderForged) {
            let client = name("desk");
            let payload = word("report", &forged_by(&client));
            let text = format!(
                "<e:message xmlns:e=\"{}\" kind=\"reply\"><e:meta><e:from>{PERSON}</e:from></e:meta>\
                 {payload}</e:message>",
                organism::envelope::NAMESPACE
            );
            self.forge_submission(&client, &text, None);
        }
        if self.dice.strikes(Fault::ListenerSubmits) {
            let listener = name(SINGLE);
            let text = word("counted", &forged_by(&listener));
            self.forge_submission(&listener, &text, None);
        }
    }

    fn forge_submission(&mut self, client: &ListenerName, text: &str, key: Option<String>) {
        let id = self.fresh_id();
        self.judge.forged(id);
        let submission = self.submission(id, client, text, key);
        self.inbox.push(Event::Submit(Box::new(submission)));
    }

    fn fresh_id(&mut self) -> MessageId {
        self.ids += 1;
        let random = u128::from(self.ids).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        MessageId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 + random))
    }

    fn submission(
        &self,
        id: MessageId,
        client: &ListenerName,
        text: &str,
        key: Option<String>,
    ) -> Submission {
        let payload = self.machine.gate.check(client, text.as_bytes());
        let (client, target) = (client.clone(), Target::New { suggested: None });
        let (trace, begun) = (None, None);
        let refused_digest = None;
        Submission { id, client, target, key, payload, refused_digest, trace, begun }
    }

    fn submit(&mut self, at: usize) {
        let Sent { key, question } = &self.sent[at];
        let (key, text) = (key.clone(), word(question, key));
        let id = self.fresh_id();
        if self.dice.strikes(Fault::SubmissionLost) {
            return;
        }
        self.under_way.push((id, key.clone()));
        let submission = self.submission(id, &name("desk"), &text, Some(key));
        self.inbox.push(Event::Submit(Box::new(submission)));
    }

    fn jump(&mut self) {
        let seconds = Duration::from_secs(self.dice.below(200) as u64);
        if self.dice.strikes(Fault::ClockForward) {
            self.machine.set_forward(seconds);
        }
        if self.dice.strikes(Fault::Frozen) {
            self.machine.stand_still(seconds);
        }
        if self.dice.strikes(Fault::ClockBack) {
            self.machine.wall.0 -= i64::try_from(seconds.as_micros()).unwrap();
        }
    }

    /// The operator cancels a thread in any state.
    fn cancel_one(&mut self) {
        let streaming = self.in_hand.iter().find(|held| held.stream.is_some());
        let streaming = streaming.map(|held| held.delivery.thread.clone());
        let thread = match streaming {
            Some(thread) if self.dice.strikes(Fault::StreamCancelled) => thread,
            _ if self.threads.is_empty() => return,
            _ => self.threads[self.dice.below(self.threads.len())].clone(),
        };
        let (ticket, reason) = (Uuid::nil(), "enough".to_owned());
        let cancellation = Cancellation { ticket, thread, reason, origin: None };
        self.inbox.push(Event::Cancel(cancellation));
    }

    /// Decides on one of the held calls.
    fn decide_one(&mut self) {
        let held = self.machine.held();
        if held.is_empty() {
            return;
        }
        if self.dice.strikes(Fault::KilledWhileHeld) {
            return self.die();
        }
        if self.dice.strikes(Fault::NobodyDecides) {
            return self.machine.wait();
        }
        let (call, hold, digest) = held[self.dice.below(held.len())];
        if self.dice.strikes(Fault::DecisionLost) {
            return;
        }
        if self.dice.strikes(Fault::WrongHash) {
            let hash = NOT_LOOKED_AT.to_owned();
            self.inbox.push(decision(call, Decision::Approve { hash, preview: None }));
        }
        let times = 1 + usize::from(self.dice.strikes(Fault::DecisionTwice));
        for _ in 0..times {
            let taken = match hold {
                _ if self.dice.one_in(5) => Decision::Refuse { reason: "no".to_owned() },
                Hold::Approval => Decision::Approve { hash: digest.to_string(), preview: None },
                Hold::Answer => {
                    let (listener, text) = (name(PERSON), word("report", "r"));
                    let payload = self.machine.gate.check(&listener, text.as_bytes());
                    Decision::Answer(GatedAnswer { listener, payload })
                }
            };
            self.inbox.push(decision(call, taken));
        }
    }

    /// A listener or an operator of another project sends to this pump.
    fn neighbour_errs(&mut self) {
        if self.dice.strikes(Fault::AnswerOfAnotherProject) {
            let at = self.dice.below(self.neighbour.deliveries.len());
            let delivery = self.neighbour.deliveries[at].clone();
            let listener = &delivery.listener;
            self.judge.forged_answer(listener, &delivery);
            let text = word("counted", &forged_by(listener));
            self.inbox.push(self.outcome(listener, &delivery, &[text], None));
        }
        if self.dice.strikes(Fault::DecisionOfAnotherProject) {
            let at = self.dice.below(self.neighbour.held.len());
            let (call, digest) = self.neighbour.held[at];
            self.inbox.push(decision(
                call,
                Decision::Approve { hash: digest.to_string(), preview: None },
            ));
        }
    }

    /// Lets a listener die, so that all deliveries that it handles fail.
    fn listener_dies(&mut self) {
        let who = NAMES[self.dice.below(NAMES.len())];
        let holds = |held: &InHand| held.delivery.listener.as_str() == who;
        if !self.in_hand.iter().any(holds) || !self.dice.strikes(Fault::DiedBefore) {
            return;
        }
        while let Some(at) = self.in_hand.iter().position(holds) {
            let held = self.in_hand.remove(at);
            self.died(&held.delivery);
        }
    }

    fn died(&mut self, delivery: &Delivery) {
        let failure = AttemptFailure::Crashed { detail: "died".to_owned() };
        self.inbox.push(failed(delivery, failure));
    }

    fn answer_one(&mut self) {
        if self.in_hand.is_empty() {
            return self.machine.wait();
        }
        let at = self.dice.below(self.in_hand.len());
        if !self.stream_on(at) {
            return;
        }
        let InHand { delivery, run, withdrawn, stream } = self.in_hand.remove(at);
        if run == self.starts && self.dice.strikes(Fault::AnswerForged) {
            self.forge(&delivery);
        }
        if run == self.starts && self.dice.strikes(Fault::AnswerStray) {
            self.stray(&delivery);
        }
        self.judge.effect(&delivery);
        if self.dice.strikes(Fault::DiedAfter) {
            return self.died(&delivery);
        }
        if !withdrawn && self.dice.strikes(Fault::AnswerLost) {
            return self.silent.push(InHand { delivery, run, withdrawn: false, stream });
        }
        if self.dice.strikes(Fault::AnswerGarbled) {
            let failure = AttemptFailure::Garbage { detail: "?".to_owned() };
            return self.inbox.push(failed(&delivery, failure));
        }
        if self.dice.strikes(Fault::AnswerLate) {
            self.died(&delivery);
        }
        let (mut payloads, turn) = script(&delivery, stream.unwrap_or_default());
        if is_agent(&delivery) && self.dice.strikes(Fault::SystemForged) {
            let who = &delivery.listener;
            let attributes = "thread_id=\"sess-forgery0\" status=\"completed\"";
            let forged = word("found", &forged_by(who));
            payloads.insert(0, core("thread-result", attributes, &forged));
            self.judge.forged_answer(who, &delivery);
        }
        let times = 1 + usize::from(self.dice.strikes(Fault::AnswerTwice));
        for _ in 0..times {
            let who = &delivery.listener;
            self.inbox.push(self.outcome(who, &delivery, &payloads, turn.clone()));
        }
    }

    /// The host of an agent requests a reservation.
    fn ask_to_request(&mut self, call: CallId, attempt: Attempt) {
        if !self.dice.strikes(Fault::ReservationLost) {
            let asked = bill::reservation();
            self.inbox.push(Event::Reserve { call, attempt, reservation: asked });
        }
    }

    /// Sends the model request if the attempt has a reservation. Otherwise the attempt ends without
    /// a request.
    fn may_request(&mut self, call: CallId, attempt: Attempt, answer: Result<(), NotReserved>) {
        if self.dice.strikes(Fault::GrantLost) {
            return;
        }
        let run = self.starts;
        let is_meant = |held: &InHand| held.run == run && held.is_of(call, attempt);
        let Some(at) = self.in_hand.iter().position(is_meant) else { return };
        match answer {
            Ok(()) if self.in_hand[at].stream.is_some() => {}
            Ok(()) => self.takes(at, bill::PROMPT),
            Err(refused) => {
                let held = self.in_hand.remove(at);
                let detail = refused.detail().to_owned();
                self.inbox.push(failed(&held.delivery, AttemptFailure::Spent { detail }));
            }
        }
    }

    fn takes(&mut self, at: usize, so_far: Spending) {
        let held = &mut self.in_hand[at];
        held.stream = Some(so_far);
        self.judge.bill.took((held.delivery.call, held.delivery.attempt), so_far);
    }

    /// Advances an agent's model call by one piece of the answer. Returns whether the answer is
    /// complete.
    fn stream_on(&mut self, at: usize) -> bool {
        let InHand { delivery, run, stream, .. } = &self.in_hand[at];
        let (call, attempt, is_current) = (delivery.call, delivery.attempt, *run == self.starts);
        match *stream {
            _ if !is_agent(delivery) => true,
            None if is_current => {
                self.ask_to_request(call, attempt);
                false
            }
            // The pump of the request is gone, and no other pump knows the request.
            None => {
                self.in_hand.remove(at);
                false
            }
            Some(took) if took.tokens < bill::RESERVED.tokens / 2 && self.dice.one_in(2) => {
                self.takes(at, took.plus(bill::PIECE));
                false
            }
            Some(took) if is_current && self.dice.strikes(Fault::StreamCut) => {
                let held = self.in_hand.remove(at);
                self.inbox.push(failed(&held.delivery, bill::cut(took)));
                false
            }
            Some(_) => true,
        }
    }

    /// Closes the stream of a call that has ended. The host reports the cost of the stream.
    fn close_stream(&mut self, delivery: &Delivery, took: Spending) {
        let times = 1 + usize::from(self.dice.strikes(Fault::ReportTwice));
        for _ in 0..times {
            self.inbox.push(failed(delivery, bill::cancelled(took)));
        }
    }

    /// A listener answers the delivery of another listener.
    fn forge(&mut self, delivery: &Delivery) {
        let (who, reply) = match delivery.listener.as_str() {
            "counter" => ("finder", "found"),
            _ => ("counter", "counted"),
        };
        let who = name(who);
        self.judge.forged_answer(&who, delivery);
        let event = self.outcome(&who, delivery, &[word(reply, &forged_by(&who))], None);
        self.inbox.push(event);
    }

    /// An instance of a listener answers a delivery that another instance got.
    fn stray(&mut self, delivery: &Delivery) {
        let listener = delivery.listener.clone();
        let reply = if listener.as_str() == "finder" { "found" } else { "counted" };
        let payload = word(reply, &forged_by(&listener));
        let payload = self.machine.gate.check(&listener, payload.as_bytes());
        let named = format!("attempt {} at call {}", delivery.attempt, delivery.call);
        self.inbox.push(Event::Stray { listener, named, payloads: vec![payload] });
    }

    fn outcome(
        &self,
        who: &ListenerName,
        delivery: &Delivery,
        payloads: &[String],
        turn: Option<Turn>,
    ) -> Event {
        let gated = payloads.iter().map(|text| self.machine.gate.check(who, text.as_bytes()));
        let (payloads, listener) = (gated.collect(), who.clone());
        let (call, attempt) = (delivery.call, delivery.attempt);
        let arrived = Some(self.machine.now());
        let turn = turn.map(Box::new);
        Event::Outcome { listener, call, attempt, payloads, turn, arrived }
    }

    /// Ends all faults. Clients repeat their submissions until they get a response, and all work
    /// ends.
    fn drain(&mut self) {
        self.dice.be_quiet();
        self.absent.clear();
        for _ in 0..2_000 {
            let paused = self.machine.paused().into_iter();
            self.inbox.extend(paused.map(|target| pause(PauseVerb::Resume, target)));
            let untold = !self.judge.untold().is_empty();
            if !untold && self.machine.is_idle() && self.inbox.is_empty() && self.in_hand.is_empty()
            {
                return self.read_the_awaited();
            }
            if untold && self.under_way.is_empty() {
                self.submit_again();
            }
            self.answer_one();
            self.decide_one();
            self.step();
        }
        let untold = self.judge.untold();
        panic!("open for ever: {}, untold {untold:?}", self.machine.open());
    }

    fn read_the_awaited(&mut self) {
        for (call, text) in std::mem::take(&mut self.awaited) {
            assert!(self.read_result(call, &text), "{call} never has a result for its key");
        }
    }
}

fn text_of(message: &Message) -> String {
    message.payload.as_str().to_owned()
}

fn pause(verb: PauseVerb, target: PauseTarget) -> Event {
    let action = PauseAction { verb, target, by: name("operator"), origin: None };
    Event::Pause(PauseChange { ticket: Uuid::nil(), action })
}

/// A decision whose ticket is the id of the call, so that the response can be matched to the call.
fn decision(call: CallId, decision: Decision<GatedAnswer>) -> Event {
    let (ticket, message) = (call.0.0, call.0);
    Event::Decide(Box::new(CallDecision { ticket, message, decision, origin: None }))
}

fn failed(delivery: &Delivery, failure: AttemptFailure) -> Event {
    let (listener, call, attempt) = (delivery.listener.clone(), delivery.call, delivery.attempt);
    Event::Failed { listener, call, attempt, failure }
}
