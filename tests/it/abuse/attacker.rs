//! An agent whose model makes hundreds of hostile turns. The agent does only what its config
//! permits, within the limits of its tree and with a person's approval, and receives feedback on
//! every refusal.
//!
//! The test runs the real organism with a provider behind a socket. `ORGANISM_TORTURE=1` raises the
//! number of turns to ten thousand.

mod script;
mod verdict;
mod wire;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use organism::agent::ActionTransport;
use organism::bus::Delivery;
use organism::ids::{ListenerName, MessageId, Position};
use organism::journal::sqlite::JournalReader;
use organism::organism::NativeHostBuilder;
use organism::pump::core::Target;
use organism::pump::driver::Handle;
use organism::thread::{Decision, Fact, Hold};

use super::stage::{Stage, name, native};
use super::{judge, size};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::pump::world::word;
use script::VICTIM;
use verdict::Evidence;
use wire::Attacker;

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
model_calls = 24
threads = 6
children = 3
depth = 2
messages = 90
tokens = 1000000000

[clients.desk]
peers = ["mind"]

[clients.other]
peers = ["stranger"]

[models.worst]
provider = "openai-compatible"
model = "worst"
base_url = "http://127.0.0.1:PORT/v1"
attempts = 1

[agents.mind]
schema = "words.xsd"
accepts = ["plan"]
final = "answer"
final_format = "text"
peers = ["tool", "vault", "shell"]
model = "worst"
transport = "SPOKEN"
max_iterations = 12
max_actions_per_turn = 2
attempts = 1

[listeners.tool]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["look"]
replies = ["found"]

[listeners.vault]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["secret"]
replies = ["report"]
approval = "always"
approval_timeout = "30s"

[listeners.shell]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["run"]
replies = ["ran"]
approval = "dangerous"
approval_timeout = "30s"

[listeners.stranger]
command = ["./player.pl"]
schema = "words.xsd"
accepts = ["vote"]
replies = ["ballot"]
"#;

/// Number of trees that are open at once.
const ASKERS: usize = 3;

/// Deliveries that listeners received: listener, message and text.
type Delivered = Arc<Mutex<Vec<(ListenerName, MessageId, String)>>>;

fn listeners(delivered: &Delivered) -> Vec<(ListenerName, NativeHostBuilder)> {
    let answers =
        [("tool", "found"), ("vault", "report"), ("shell", "ran"), ("stranger", "ballot")];
    let listener = |(who, answer): (&'static str, &'static str)| {
        let delivered = Arc::clone(delivered);
        native(who, move |delivery: &Delivery| {
            let asked = delivery.messages.last().unwrap();
            let text = asked.payload.as_str().to_owned();
            delivered.lock().unwrap().push((name(who), asked.id, text));
            vec![word(answer, "here you are")]
        })
    };
    answers.map(listener).into_iter().collect()
}

/// A person who decides on held calls, and uses all kinds of decisions one after another.
struct Operator {
    handle: Handle,
    data: std::path::PathBuf,
    read: Position,
    decided: usize,
    approved: Arc<Mutex<HashSet<MessageId>>>,
}

impl Operator {
    async fn work(mut self) {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        loop {
            looks.tick().await;
            for (message, digest) in self.held() {
                self.decided += 1;
                let verb = match self.decided % 3 {
                    1 => {
                        self.approved.lock().unwrap().insert(message);
                        Decision::Approve { hash: digest, preview: None }
                    }
                    _ => Decision::Refuse { reason: "not today".to_owned() },
                };
                // The call may have ended in the meantime.
                let _ = self.handle.decide(message, verb, None).await;
            }
        }
    }

    /// Calls that were held since this function last read the journal.
    fn held(&mut self) -> Vec<(MessageId, String)> {
        let reader = JournalReader::open(&self.data).unwrap();
        let last = reader.last().unwrap();
        let records = reader.records(Position(self.read.0 + 1), last).unwrap();
        self.read = last;
        let mut held = Vec::new();
        for sealed in records {
            let facts = &sealed.record.facts;
            for fact in facts {
                let Fact::Held { call, hold: Hold::Approval, .. } = fact else { continue };
                let digest = facts.iter().find_map(|fact| match fact {
                    Fact::Accepted { message, .. } if message.id == call.0 => {
                        Some(message.payload.digest.to_string())
                    }
                    _ => None,
                });
                held.push((call.0, digest.unwrap()));
            }
        }
        held
    }
}

/// Submits requests until the attacker has taken all its turns.
async fn keep_asking(stage: &Stage, attacker: &Attacker, turns: usize) {
    while attacker.turns() < turns {
        stage.ask("desk", &word("plan", "go")).await;
    }
}

async fn campaign(transport: ActionTransport, seed: u64) {
    let mut campaign = Campaign::new(format!("an attacker, {}", transport.as_str()));
    // The guard of a mutant needs as many: with half of them, trees end before their limits.
    let turns = if transport == ActionTransport::Xml { size(200, 3_334) } else { size(100, 3_334) };
    let attacker = Attacker::start(transport, seed).await;
    let config = CONFIG.replace("PORT", &attacker.port.to_string());
    let house = House::with(&config.replace("SPOKEN", transport.as_str()));
    let delivered = Delivered::default();
    let stage = Stage::start(house, listeners(&delivered)).await;
    // A thread of another client, for the attacker to guess.
    let theirs = Target::New { suggested: Some(VICTIM.to_owned()) };
    let (_, mut results) = stage.submit("other", theirs, word("vote", "mine").as_bytes()).await;
    while let Some(done) = results.next().await {
        done.unwrap();
    }
    let approved = Arc::new(Mutex::new(HashSet::new()));
    let (handle, data) = (stage.organism.handle(), stage.house.data());
    let operator =
        Operator { handle, data, read: Position(0), decided: 0, approved: approved.clone() };
    let operator = tokio::spawn(operator.work());
    let asking = || keep_asking(&stage, &attacker, turns);
    let _: [(); ASKERS] = tokio::join!(asking(), asking(), asking()).into();
    // The threads that the attacker spawned continue for a while.
    judge::quiet(&stage.house);
    operator.abort();
    let (house, tally) = stage.end().await;
    let (approved, delivered) =
        (approved.lock().unwrap().clone(), delivered.lock().unwrap().clone());
    let records = judge::records(&house);
    let evidence = Evidence { records, played: attacker.played(), approved, delivered };
    let found = evidence.judge();
    campaign.note(format!("{tally:?}, {}", found.transcript));
    assert!(found.wrong.is_empty(), "{}:\n{}", found.wrong.len(), found.shown());
}

// T1 T8 T14 A13
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_model_in_xml_has_no_forbidden_effect_and_gets_feedback() {
    campaign(ActionTransport::Xml, 1).await;
}

// F2 F3 F8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_model_in_native_calls_has_no_forbidden_effect_and_gets_feedback() {
    campaign(ActionTransport::Native, 2).await;
}

// F2 F10 F11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_model_in_xml_final_has_no_forbidden_effect_and_gets_feedback() {
    campaign(ActionTransport::XmlFinal, 3).await;
}
