//! One run from one seed: work comes in, everything that can fail fails now and then, and in the
//! end nothing does, so that all work must come to its end.

use std::fmt;
use std::time::Duration;

use organism::bus::Delivery;
use organism::contract::Gather;
use organism::envelope::{Failure, Refusal, Rule, Turn};
use organism::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};
use organism::pump::core::{
    CallDecision, Cancellation, Effect, Event, GatedAnswer, Receipt, Submission, Target,
};
use organism::thread::{Decision, Hold};
use uuid::Uuid;

use super::faults::{Dice, Fault, Tally};
use super::judge::{Judge, NOT_LOOKED_AT};
use super::listeners::{NAMES, PERSON, QUESTIONS, SINGLE, gate, script};
use super::machine::Machine;
use crate::pump::world::{name, word};

const TURNS: usize = 120;
const SUBMISSIONS: usize = 8;
const FORGED: &str = "forged";

/// What a run left behind.
pub struct Run {
    pub records: String,
    pub tally: Tally,
    pub totals: Totals,
}

/// What was gone through, for whoever reads the output.
#[derive(Default)]
pub struct Totals {
    records: usize,
    effects: usize,
    starts: usize,
    /// Submissions that were refused as the disk was full.
    pub turned_away: usize,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.effects += other.effects;
        self.starts += other.starts;
        self.turned_away += other.turned_away;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, effects, starts, turned_away } = self;
        write!(f, "{records} records, {effects} effects, {starts} starts, ")?;
        write!(f, "{turned_away} submissions turned away")
    }
}

/// A delivery in a listener's hands.
struct InHand {
    delivery: Delivery,
    /// Which start of the pump handed it over.
    run: usize,
    /// Its caller is gone, and it goes on all the same. However it ends, its host says so.
    withdrawn: bool,
}

/// A submission as its client keeps it until it knows what became of it.
struct Sent {
    key: String,
    question: &'static str,
}

struct Simulation {
    machine: Machine,
    judge: Judge,
    dice: Dice,
    /// What has come in and is not stepped yet; lost when the pump dies.
    inbox: Vec<Event>,
    in_hand: Vec<InHand>,
    /// Deliveries that will never be answered.
    silent: Vec<InHand>,
    /// Listeners that no program runs for now.
    absent: Vec<&'static str>,
    sent: Vec<Sent>,
    /// Which submission an id on its way belongs to.
    under_way: Vec<(MessageId, String)>,
    /// Where work was accepted.
    threads: Vec<ThreadId>,
    ids: u32,
    starts: usize,
}

pub fn run(seed: u64) -> Run {
    let mut dice = Dice::new(seed);
    let gather = if dice.one_in(2) { Gather::First } else { Gather::All };
    let mut simulation = Simulation {
        machine: Machine::new(gate(gather)),
        judge: Judge::default(),
        dice,
        inbox: Vec::new(),
        in_hand: Vec::new(),
        silent: Vec::new(),
        absent: Vec::new(),
        sent: Vec::new(),
        under_way: Vec::new(),
        threads: Vec::new(),
        ids: 0,
        starts: 0,
    };
    simulation.start();
    for _ in 0..TURNS {
        simulation.turn();
    }
    simulation.drain();
    simulation.judge.verdict(FORGED);
    let Simulation { machine, judge, dice, starts, .. } = simulation;
    let (records, effects) = (machine.records.len(), judge.effects());
    let totals = Totals { records, effects, starts, turned_away: judge.turned_away_so_far() };
    crate::journal::substrate::comes_back(&machine.records);
    let records = serde_json::to_string(&machine.records).unwrap();
    Run { records, tally: dice.tally, totals }
}

impl Simulation {
    fn turn(&mut self) {
        match self.dice.below(14) {
            0 | 1 if self.sent.len() < SUBMISSIONS => self.submit_new(),
            2 => self.submit_again(),
            3 => self.machine.wait(),
            4 => self.jump(),
            11 if self.dice.one_in(4) => self.cancel_one(),
            5 => self.listener_dies(),
            6 if self.has_single() && self.dice.strikes(Fault::KilledWithSingle) => self.die(),
            6 if self.dice.strikes(Fault::Killed) => self.die(),
            6 => self.come_or_go(),
            7..=10 => self.answer_one(),
            12 | 13 => self.decide_one(),
            _ => {}
        }
        self.step();
    }

    /// Whether a delivery is out that may not be repeated.
    fn has_single(&self) -> bool {
        let mut out = self.in_hand.iter().chain(&self.silent);
        out.any(|held| held.run == self.starts && held.delivery.listener.as_str() == SINGLE)
    }

    /// A listener's program ends, or one is started; whether it says so or not.
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

    /// The pump takes some of what has come in.
    fn step(&mut self) {
        let take = (1 + self.dice.below(4)).min(self.inbox.len());
        let mut events: Vec<Event> = self.inbox.drain(..take).collect();
        events.extend(self.machine.due());
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

    /// The disk is full with a group decided. As the driver does, new submissions are turned away
    /// and everything else keeps its place.
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
            let Event::Submit(Submission { id, .. }) = event else { continue };
            self.judge.turned_away(id);
            let refusal = Refusal::new(Rule::StorageFull, "the disk is full", b"");
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

    /// Whatever the pump had not recorded is gone with it. Listeners may outlive it, and answer.
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
                Effect::Receipt { submission, receipt } => {
                    let at = self.under_way.iter().position(|(id, _)| *id == submission);
                    let Some(at) = at else { continue };
                    let (_, key) = self.under_way.remove(at);
                    if let Receipt::Accepted { thread, .. } = &receipt {
                        self.threads.push(thread.clone());
                    }
                    if !self.dice.strikes(Fault::ReceiptLost) {
                        self.judge.told(&key, receipt);
                    }
                }
                Effect::Result { call, how, .. } => {
                    if !self.dice.strikes(Fault::ResultLost) {
                        self.judge.result(call, how);
                    }
                }
                // Nobody waits for a cancellation.
                Effect::Ruled { ticket, .. } if ticket.is_nil() => {}
                Effect::Ruled { ticket, ruling } => {
                    if !self.dice.strikes(Fault::RulingLost) {
                        self.judge.ruled(CallId(MessageId(ticket)), ruling.is_ok());
                    }
                }
                Effect::Alarm { .. } | Effect::Held { .. } | Effect::Reserved { .. } => {}
            }
        }
    }

    /// A listener that works on may answer all the same; for one that never will, its host has
    /// the last word.
    fn withdraw(&mut self, call: CallId, attempt: Attempt) {
        let is_meant =
            |held: &InHand| (held.delivery.call, held.delivery.attempt) == (call, attempt);
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
        self.died(&held.delivery);
    }

    fn hand_over(&mut self, delivery: Delivery) {
        self.judge.handed_over(&delivery);
        let run = self.starts;
        if self.dice.strikes(Fault::DeliveryLost) {
            return self.silent.push(InHand { delivery, run, withdrawn: false });
        }
        let is_absent = self.absent.iter().any(|who| *who == delivery.listener.as_str());
        if is_absent || self.dice.strikes(Fault::Unreachable) {
            let Delivery { listener, call, attempt, .. } = delivery;
            let detail = "nobody there".to_owned();
            return self.inbox.push(Event::NotTaken { listener, call, attempt, detail });
        }
        self.in_hand.push(InHand { delivery, run, withdrawn: false });
    }

    fn submit_new(&mut self) {
        let key = format!("k{}", self.sent.len());
        let question = QUESTIONS[self.dice.below(QUESTIONS.len())];
        self.judge.sent(&key);
        self.sent.push(Sent { key, question });
        self.submit(self.sent.len() - 1);
    }

    /// Whoever was told nothing asks again, under the same key.
    fn submit_again(&mut self) {
        let untold = self.judge.untold();
        if untold.is_empty() {
            return;
        }
        let key = &untold[self.dice.below(untold.len())];
        let at = self.sent.iter().position(|sent| sent.key == *key).unwrap();
        self.submit(at);
    }

    fn submit(&mut self, at: usize) {
        let Sent { key, question } = &self.sent[at];
        let (key, text) = (key.clone(), word(question, key));
        self.ids += 1;
        let random = u128::from(self.ids).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = MessageId(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0000 + random));
        if self.dice.strikes(Fault::SubmissionLost) {
            return;
        }
        let client = name("desk");
        let payload = self.machine.gate.check(&client, text.as_bytes());
        self.under_way.push((id, key.clone()));
        let target = Target::New { suggested: None };
        let (trace, begun) = (None, None);
        let key = Some(key);
        let submission = Submission { id, client, target, key, payload, trace, begun };
        self.inbox.push(Event::Submit(submission));
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

    /// The operator ends a thread, whatever goes on in it.
    fn cancel_one(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        let thread = self.threads[self.dice.below(self.threads.len())].clone();
        let (ticket, reason) = (Uuid::nil(), "enough".to_owned());
        let cancellation = Cancellation { ticket, thread, reason, origin: None };
        self.inbox.push(Event::Cancel(cancellation));
    }

    /// Somebody looks at what waits, and decides about one of it.
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
            self.inbox.push(decision(call, Decision::Approve { hash }));
        }
        let times = 1 + usize::from(self.dice.strikes(Fault::DecisionTwice));
        for _ in 0..times {
            let taken = match hold {
                _ if self.dice.one_in(5) => Decision::Refuse { reason: "no".to_owned() },
                Hold::Approval => Decision::Approve { hash: digest.to_string() },
                Hold::Answer => {
                    let (listener, text) = (name(PERSON), word("report", "r"));
                    let payload = self.machine.gate.check(&listener, text.as_bytes());
                    Decision::Answer(GatedAnswer { listener, payload })
                }
            };
            self.inbox.push(decision(call, taken));
        }
    }

    /// All that one listener has in hand fails with it.
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
        let failure = Failure::Crashed { detail: "died".to_owned() };
        self.inbox.push(failed(delivery, failure));
    }

    fn answer_one(&mut self) {
        if self.in_hand.is_empty() {
            return self.machine.wait();
        }
        let at = self.dice.below(self.in_hand.len());
        let InHand { delivery, run, withdrawn } = self.in_hand.remove(at);
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
            return self.silent.push(InHand { delivery, run, withdrawn: false });
        }
        if self.dice.strikes(Fault::AnswerGarbled) {
            let failure = Failure::Garbage { detail: "?".to_owned() };
            return self.inbox.push(failed(&delivery, failure));
        }
        if self.dice.strikes(Fault::AnswerLate) {
            self.died(&delivery);
        }
        let (payloads, turn) = script(&delivery);
        let times = 1 + usize::from(self.dice.strikes(Fault::AnswerTwice));
        for _ in 0..times {
            let who = &delivery.listener;
            self.inbox.push(self.outcome(who, &delivery, &payloads, turn.clone()));
        }
    }

    /// A listener answers what another one was asked.
    fn forge(&mut self, delivery: &Delivery) {
        let (who, reply) = match delivery.listener.as_str() {
            "counter" => ("finder", "found"),
            _ => ("counter", "counted"),
        };
        let event = self.outcome(&name(who), delivery, &[word(reply, FORGED)], None);
        self.inbox.push(event);
    }

    /// An instance answers under the name of a delivery that another instance has.
    fn stray(&mut self, delivery: &Delivery) {
        let listener = delivery.listener.clone();
        let reply = if listener.as_str() == "finder" { "found" } else { "counted" };
        let payload = self.machine.gate.check(&listener, word(reply, FORGED).as_bytes());
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
        Event::Outcome { listener, call, attempt, payloads, turn }
    }

    /// From here on nothing fails: clients ask until they are told, and all work ends.
    fn drain(&mut self) {
        self.dice.be_quiet();
        self.absent.clear();
        for _ in 0..2_000 {
            let untold = !self.judge.untold().is_empty();
            if !untold && self.machine.is_idle() && self.inbox.is_empty() && self.in_hand.is_empty()
            {
                return;
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
}

/// The ticket is the call's own id, so that whoever is told knows what of.
fn decision(call: CallId, decision: Decision<GatedAnswer>) -> Event {
    let (ticket, message) = (call.0.0, call.0);
    Event::Decide(CallDecision { ticket, message, decision, origin: None })
}

fn failed(delivery: &Delivery, failure: Failure) -> Event {
    let (listener, call, attempt) = (delivery.listener.clone(), delivery.call, delivery.attempt);
    Event::Failed { listener, call, attempt, failure }
}
