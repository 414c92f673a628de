//! Kills of an organism during paid work: model calls are cancelled, agents and groups get requests
//! with repeated keys, listeners repeat their answers, and the clock is set meanwhile.
//!
//! Afterwards each key has one result, each reservation is charged once, and no answer has reached
//! another caller.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use organism::envelope::Spending;
use organism::ids::{Attempt, CallId};
use organism::thread::{Fact, Input, Record};

use super::super::model_calls::{CONFIG, records};
use super::super::provider::{Provider, ScriptedResponse, WORD};
use super::super::{numbered, say, talk_reply, until, until_within};
use super::{Choices, House, PATIENCE, Running, choices, kills};
use crate::campaign::Campaign;

/// Two listeners that get every `ping`, and repeat their answers.
const TWINS: &str = r#"
[listeners.solo]
command = ["./repeater.py", "named"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 50

[listeners.twin]
command = ["./repeater.py", "named"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
attempts = 50
"#;

const HOUR_MICROS: i64 = 3_600_000_000;

/// Number of words in each answer of the model. The model takes 20 ms for a word.
const WORDS: usize = 25;

struct PaidWork {
    house: House,
    provider: Provider,
    /// Key and payload of each request.
    requests: Vec<(String, String)>,
    cancelled: u64,
}

impl PaidWork {
    fn new() -> Self {
        let answer = format!("<said xmlns=\"{}\">paid</said>", super::TALK);
        let provider = Provider::start(vec![ScriptedResponse::Slowly(WORDS, answer)]);
        let config = CONFIG.replace("[\"writer\"]", "[\"writer\", \"solo\", \"twin\"]");
        let house = House::with(&format!("{config}{}{TWINS}", provider.model("live", "")));
        house.copy("repeater.py");
        Self { house, provider, requests: Vec::new(), cancelled: 0 }
    }

    /// Sets the clock up to an hour forward or back, and starts the organism.
    fn start(&self, choices: &mut Choices) -> Running {
        let skew = HOUR_MICROS - choices.below(2 * HOUR_MICROS as u64) as i64;
        // Written atomically, so that the organism reads no part.
        self.house.write("skew.new", skew.to_string());
        std::fs::rename(self.house.path("skew.new"), self.house.path("skew")).unwrap();

        let before = self.house.log().len();
        let path = self.house.path("log");
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        let mut command = self.house.command(&["run"]);
        command.env("ORGANISM_CLOCK_SKEW", self.house.path("skew"));
        let mut running =
            Running { child: command.stdout(Stdio::null()).stderr(log).spawn().unwrap() };
        until_within(PATIENCE, "the organism is ready", || {
            let log = self.house.log();
            assert_eq!(running.child.try_wait().unwrap(), None, "{log}");
            log[before..].contains("is ready").then_some(())
        });
        running
    }

    /// Sends requests to the agent and to the group, cancels some of the agent's calls, and kills
    /// the organism.
    fn round(&mut self, number: u64, choices: &mut Choices) {
        let mut running = self.start(choices);
        for part in 0..3 {
            let id = format!("{number:03}{part}");
            let thread = format!("sess-paid{id}");
            let words = self.provider.seen().words;
            self.send(format!("agent-{id}"), say("write"), &["--new", &thread]);
            self.send(format!("group-{id}"), numbered("ping", &id), &[]);
            if choices.below(3) == 0 {
                self.provider.sends(words + 1);
                // The call may be over already.
                let cancelled = self.house.organism(&["cancel", &thread]);
                self.cancelled += u64::from(cancelled.code == Some(0));
            }
        }

        let due = Instant::now() + Duration::from_millis(choices.below(250));
        until("it is time", || (Instant::now() >= due).then_some(()));
        running.child.kill().unwrap();
        running.child.wait().unwrap();
    }

    fn send(&mut self, key: String, payload: String, arguments: &[&str]) {
        let arguments = [&["--no-wait", "--key", &key], arguments].concat();
        let sent = self.house.send_text(&payload, &arguments);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        self.requests.push((key, payload));
    }

    /// Sends each request two more times with its key. The two results must be equal, and contain
    /// only answers to this request.
    fn repeat_all(&self) {
        for (key, payload) in &self.requests {
            let first = self.house.send_text(payload, &["--key", key]);
            let again = self.house.send_text(payload, &["--key", key]);
            assert_eq!((first.code, &first.out), (again.code, &again.out), "{key}");
            assert!(matches!(first.code, Some(0 | 1)), "{key}: {first:?}");
            if key.starts_with("agent-") && first.code == Some(0) {
                assert_eq!(first.out, talk_reply("paid"), "{key}");
            }
            if let Some(id) = key.strip_prefix("group-") {
                assert_eq!(first.code, Some(0), "{key}: {first:?}");
                assert_eq!(first.out.matches("<pong").count(), 2, "{key}: {first:?}");
                assert_eq!(first.out.matches(&format!("<n>{id}</n>")).count(), 2, "{first:?}");
            }
        }
    }

    fn judge(&self) {
        self.house.verified();
        let records = records(&self.house);
        let is_in_order = records.iter().is_sorted_by_key(|record| record.time);
        assert!(is_in_order, "the time of the record runs backwards");

        let bill = Bill::of(&records);
        // An attempt that was cancelled before its model call has neither reserved nor spent.
        let charges = bill.charged.iter();
        let charges = charges
            .filter(|(at, spent)| bill.reserved.contains(at) || **spent != Spending::default());
        assert_eq!(bill.reserved, charges.map(|(at, _)| *at).collect(), "reserved, and charged");
        let total: u64 = bill.charged.values().map(|spent| spent.tokens).sum();
        let sent = self.provider.seen().words * WORD.len() / 4;
        // A closed stream may hold words that the agent has not read.
        let unread = self.cancelled * WORDS as u64;
        assert!(total + unread >= sent as u64, "{total} tokens charged for {sent} sent");

        let exported = self.house.organism(&["export", "--format", "jsonl"]).out;
        assert!(exported.contains("stray-answer"), "no answer was a stray");
    }
}

type Place = (CallId, Attempt);

/// Reservations and charges of model calls on record.
#[derive(Default)]
struct Bill {
    reserved: BTreeSet<Place>,
    charged: BTreeMap<Place, Spending>,
}

impl Bill {
    fn of(records: &[Record]) -> Self {
        let mut bill = Self::default();
        for record in records {
            for fact in &record.facts {
                bill.add(record, fact);
            }
        }
        bill
    }

    fn add(&mut self, record: &Record, fact: &Fact) {
        match fact {
            Fact::Reserved { call, attempt, .. } => {
                self.reserved.insert((*call, *attempt));
            }
            Fact::Charged { call, attempt, spending, .. } => {
                self.charge((*call, *attempt), *spending);
            }
            Fact::AttemptFailed { call, attempt, failure } => {
                if let Some(spent) = failure.spent() {
                    self.charge((*call, *attempt), spent);
                }
            }
            Fact::Used { call, tokens_in, tokens_out, money, .. } => {
                let Input::Outcome { attempt, .. } = &record.input else {
                    panic!("{call} used tokens in {:?}", record.input);
                };
                let spent = Spending { tokens: tokens_in + tokens_out, money: *money };
                self.charge((*call, *attempt), spent);
            }
            _ => {}
        }
    }

    fn charge(&mut self, place: Place, spent: Spending) {
        let before = self.charged.insert(place, spent);
        assert_eq!(before, None, "{place:?} is charged twice");
    }
}

#[test]
fn after_kills_at_paid_work_each_key_has_one_result_and_each_reservation_one_charge() {
    let mut report = Campaign::new("kills at paid work");
    let mut choices = choices();
    let rounds = (kills() / 5).clamp(4, 100);
    let mut work = PaidWork::new();
    for number in 0..rounds {
        work.round(number, &mut choices);
    }

    let running = work.start(&mut choices);
    work.repeat_all();
    assert_eq!(running.stop(), Some(0), "{}", work.house.log());
    work.judge();
    let (sent, cancelled) = (work.requests.len(), work.cancelled);
    report.note(format!("{rounds} kills, {sent} requests, {cancelled} of them cancelled"));
}
