//! Forks of every message of the examples' runs, requested in this process of one organism for each
//! example (issue 18).
//!
//! Each message has its place at which a fork begins. Forks at the same place are the same, so there is
//! one for each place; `ORGANISM_TORTURE=1` makes one for each message.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;

use organism::audit::ForkPoint;
use organism::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};
use organism::journal::sqlite::JournalReader;
use organism::service::handshake::Handshake;
use organism::service::{ForkRequest, ServiceClient, SubmitUpdate};
use organism::thread::{Fact, Record};
use serde_json::Value as Json;

use super::super::{PATIENCE, Running, until};
use super::{Example, THREAD};

/// An organism of an example that has run, to which forks are requested.
struct ForkedExample {
    example: Example,
    data: PathBuf,
    client: ServiceClient,
    /// Agents and workflows, which run anew in a fork.
    anew: BTreeSet<String>,
    /// The result of the run.
    result: String,
    running: Running,
}

impl ForkedExample {
    async fn start(name: &'static str) -> Self {
        let example = Example::new(name);
        let result = example.run().out.trim_end().to_owned();
        let config: toml::Table = toml::from_str(&example.config()).unwrap();
        let tables =
            ["agents", "workflows"].into_iter().filter_map(|key| config.get(key)?.as_table());
        let anew = tables.flat_map(|table| table.keys().cloned()).collect();

        let log = example.place.path().join("log");
        let mut command = example.command(&["run"]);
        command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
        let mut running = Running { child: command.spawn().unwrap() };
        until("the organism is ready", || {
            let log = std::fs::read_to_string(&log).unwrap();
            assert_eq!(running.child.try_wait().unwrap(), None, "{log}");
            log.contains("is ready").then_some(())
        });

        let checked: Json =
            serde_json::from_str(&example.organism(&["check", "--json"]).out).unwrap();
        let text = |key: &str| checked[key].as_str().unwrap().to_owned();
        let data = PathBuf::from(text("data"));
        let config = Digest::parse(&text("digest")).unwrap();
        let handshake = Handshake { project: Some(text("project")), config: Some(config) };
        let client = ServiceClient::find(&data, handshake).await.unwrap().unwrap();
        Self { example, data, client, anew, result, running }
    }

    fn records(&self, root: &ThreadId) -> Vec<Record> {
        let reader = JournalReader::open(&self.data).unwrap();
        let records = reader.tree(root, None).unwrap();
        records.into_iter().map(|sealed| sealed.record).collect()
    }

    /// The place of each message of a tree at which a fork begins.
    fn places(&self, root: &ThreadId) -> Vec<(MessageId, ForkPoint)> {
        let reader = JournalReader::open(&self.data).unwrap();
        let records = self.records(root);
        let messages = records.iter().flat_map(messages);
        let places = messages.map(|(position, id)| {
            let is_answered = |name: &ListenerName| !self.anew.contains(name.as_str());
            let point = ForkPoint::find(&reader, position, id, is_answered).unwrap();
            (id, point.unwrap_or_else(|| panic!("no fork can begin at {id}")))
        });
        places.collect()
    }

    /// Forks at the places of all messages of a tree. Returns the forks.
    async fn fork_all(&self, root: &ThreadId) -> Vec<ThreadId> {
        let is_torture = std::env::var_os("ORGANISM_TORTURE").is_some();
        let mut places = BTreeSet::new();
        let mut forks = Vec::new();
        for (_, point) in self.places(root) {
            if places.insert(point.source.message) || is_torture {
                forks.push(self.fork(&point).await);
            }
        }
        forks
    }

    /// Forks at a place, and waits for the result of the source.
    async fn fork(&self, point: &ForkPoint) -> ThreadId {
        let request = ForkRequest::at(point, self.client.fork_id(&point.source.thread));
        let at = point.source.message;
        let forked = self.client.fork(request, None).await.unwrap();
        let forked = forked.unwrap_or_else(|refusal| panic!("{at}: {refusal}"));

        let mut results = Vec::new();
        let waiting = self.client.fork_results(&forked, |update| {
            if let SubmitUpdate::Result { replies, .. } = update {
                results.extend(replies.into_iter().map(|reply| reply.payload));
            }
        });
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let shown = || format!("no result, forked at {at}: {}", self.shown(&forked.thread));
        waited.unwrap_or_else(|_| panic!("{}", shown())).unwrap();
        if !forked.calls.is_empty() {
            assert_eq!(results, [self.source_result()], "{}, forked at {at}", forked.thread);
        }
        forked.thread
    }

    /// The timeline of a thread and everything beneath it.
    fn shown(&self, thread: &ThreadId) -> String {
        self.example.organism(&["thread", thread.as_str(), "--ids"]).out
    }

    /// The payload with which the run has ended.
    fn source_result(&self) -> String {
        let records = self.records(&ThreadId::parse(THREAD).unwrap());
        let facts = records.iter().flat_map(|record| &record.facts);
        let mut to_client = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.to.as_str() == "desk" => {
                Some(message.payload.as_str().to_owned())
            }
            _ => None,
        });
        to_client.next_back().unwrap()
    }

    /// Asserts that no listener was given anything in a fork, and that no model has answered there.
    fn has_no_effect(&self, fork: &ThreadId) {
        let records = self.records(fork);
        let facts = || records.iter().flat_map(|record| &record.facts);
        let mut callees = BTreeMap::new();
        for fact in facts() {
            match fact {
                Fact::Accepted { message, opening, .. } => {
                    if opening.is_some() {
                        callees.insert(CallId(message.id), message.to.to_string());
                    }
                    let text = message.payload.as_str();
                    let is_turn = &*message.name.local == "model-turn";
                    assert!(!is_turn || text.contains(" recorded=\""), "{fork}: {text}");
                }
                Fact::HandedOver { call, .. } => {
                    let callee = &callees[call];
                    assert!(self.anew.contains(callee), "{fork}: {callee} was given a call");
                }
                _ => {}
            }
        }
    }

    fn stop(self) {
        assert_eq!(self.running.stop(), Some(0));
        let verified = self.example.organism(&["verify"]);
        assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
        let replayed = self.example.organism(&["replay"]);
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
    }
}

/// The messages of a record, each with the position of the record.
fn messages(record: &Record) -> impl Iterator<Item = (Position, MessageId)> {
    record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some((record.position, message.id)),
        _ => None,
    })
}

/// Forks at every message of an example's run, and at every message of one of these forks.
async fn assert_every_message_is_forked(name: &'static str) {
    let forked = ForkedExample::start(name).await;
    let source = ThreadId::parse(THREAD).unwrap();
    let before = forked.records(&source);
    let ledger = forked.example.ledger();
    assert!(!forked.result.is_empty());

    let forks = forked.fork_all(&source).await;
    assert!(forks.len() > 1, "{}", forks.len());
    let middle = &forks[forks.len() / 2];
    let again = forked.fork_all(middle).await;
    for fork in forks.iter().chain(&again) {
        forked.has_no_effect(fork);
    }
    assert_eq!(forked.records(&source), before, "the source is untouched");
    assert_eq!(forked.example.ledger(), ledger, "nothing was booked again");
    forked.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_crew_is_forked() {
    assert_every_message_is_forked("crew").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_essay_is_forked() {
    assert_every_message_is_forked("essay").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_decision_is_forked() {
    assert_every_message_is_forked("decision").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_code_review_is_forked() {
    assert_every_message_is_forked("code-review").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_research_is_forked() {
    assert_every_message_is_forked("research").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_booking_is_forked() {
    assert_every_message_is_forked("booking").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_documents_is_forked() {
    assert_every_message_is_forked("documents").await;
}
