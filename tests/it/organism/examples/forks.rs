//! Forks at every message of the examples' runs (issue 18). Each example has one organism, from
//! which this process requests the forks. Each fork must have the result of its source, and must do
//! no work again.
//!
//! Each message has a fork point, and forks at the same point are equal. By default, the tests fork
//! at every second point of an example's run, and at every eighth point of a fork. With
//! `ORGANISM_TORTURE=1`, they fork at each message.

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

use super::super::kill::torture;
use super::super::{PATIENCE, Running, until};
use super::{Example, THREAD};

/// An organism that was started from an example and still runs. The run that the test forks has
/// ended.
struct ForkedExample {
    example: Example,
    data: PathBuf,
    client: ServiceClient,
    /// Names of the agents and workflows. A fork calls these again, and answers calls to other
    /// listeners from the record.
    anew: BTreeSet<String>,
    running: Running,
}

impl ForkedExample {
    async fn start(name: &'static str) -> Self {
        let example = Example::new(name);
        example.run_source();
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
        let handshake =
            Handshake { project: Some(text("project")), config: Some(config), partitions: None };
        let client = ServiceClient::find(&data, handshake).await.unwrap().unwrap();
        Self { example, data, client, anew, running }
    }

    fn records(&self, root: &ThreadId) -> Vec<Record> {
        let reader = JournalReader::open(&self.data).unwrap();
        let records = reader.tree(root, None).unwrap();
        records.into_iter().map(|sealed| sealed.record).collect()
    }

    /// The fork point of each message of a tree.
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

    /// Forks at the fork points of all messages of a tree, or in a short run at one in `step` fork
    /// points, and at least at two. Each fork must have this result. Returns the forks.
    async fn fork_all(&self, root: &ThreadId, result: &str, step: usize) -> Vec<ThreadId> {
        let mut places = self.places(root);
        if !torture() {
            let mut seen = BTreeSet::new();
            places.retain(|(_, point)| seen.insert(point.source.message));
        }
        let step = if torture() { 1 } else { step.min(places.len() / 2).max(1) };
        let mut forks = Vec::new();
        for (_, point) in places.iter().step_by(step) {
            forks.push(self.fork(point, result).await);
        }
        forks
    }

    /// Forks at a fork point, and waits for the results of the fork. If the fork has open calls and
    /// ended no unfinished work of its source, its only result must be `result`. Returns the thread
    /// of the fork.
    async fn fork(&self, point: &ForkPoint, result: &str) -> ThreadId {
        let request = ForkRequest::at(point, self.client.fork_id(&point.source.thread));
        let at = point.source.message;
        let forked = self.client.fork(request, None).await.unwrap();
        let forked = forked.unwrap_or_else(|refusal| panic!("{at}: {refusal}"));

        let mut results = Vec::new();
        let waiting = self.client.fork_results(&forked, |update| {
            if let SubmitUpdate::Result { replies, .. } = update {
                results.extend(replies.into_iter().filter_map(|reply| reply.payload));
            }
        });
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        let shown = || format!("no result, forked at {at}: {}", self.shown(&forked.thread));
        waited.unwrap_or_else(|_| panic!("{}", shown())).unwrap();
        // Work of a spawned thread that cannot be opened again has ended.
        if !forked.calls.is_empty() && !self.has_ended_work(&forked.thread) {
            assert_eq!(results, [result], "{}, forked at {at}", forked.thread);
        }
        forked.thread
    }

    /// The timeline of a thread, with everything beneath it.
    fn shown(&self, thread: &ThreadId) -> String {
        self.example.organism(&["thread", thread.as_str(), "--ids"]).out
    }

    /// Whether a fork ended unfinished work of its source with the fault `forked`.
    fn has_ended_work(&self, fork: &ThreadId) -> bool {
        let records = self.records(fork);
        let mut facts = records.iter().flat_map(|record| &record.facts);
        facts.any(|fact| match fact {
            Fact::Accepted { message, .. } => message.payload.as_str().contains(" code=\"forked\""),
            _ => false,
        })
    }

    /// The payload that ended the work on a client's request.
    fn result(&self, root: &ThreadId) -> String {
        let records = self.records(root);
        let facts = || records.iter().flat_map(|record| &record.facts);
        let client = facts().find_map(|fact| match fact {
            Fact::ThreadOpened { thread, by, .. } if thread == root => Some(by.clone()),
            _ => None,
        });
        let client = client.unwrap();
        let mut to_client = facts().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.to == client => {
                Some(message.payload.as_str().to_owned())
            }
            _ => None,
        });
        to_client.next_back().unwrap()
    }

    /// Asserts that a fork handed calls over only to agents and workflows, and held no call. Each
    /// turn must get its recorded answer. Exceptions are forks with other prompts than the source:
    /// prompts that lack the preview of an approval, or that state that work has ended.
    fn has_no_effect(&self, fork: &ThreadId) {
        let has_other_prompts = self.example.has_approvals() || self.has_ended_work(fork);
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
                    let is_turn = &*message.name.local == "model-turn" && !has_other_prompts;
                    assert!(!is_turn || text.contains(" recorded=\""), "{fork}: {text}");
                }
                Fact::Held { .. } => panic!("{fork}: a call waits that its source has: {fact:?}"),
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

impl ForkedExample {
    /// Forks at every message of an example's run, and at every message of one of the forks.
    async fn forked_everywhere(name: &'static str) -> Self {
        let forked = Self::start(name).await;
        let sources = forked.example.roots();
        let effects = forked.example.effects();

        let mut forks = Vec::new();
        for source in &sources {
            let before = forked.records(source);
            let result = forked.result(source);
            let of_source = forked.fork_all(source, &result, 2).await;
            assert!(of_source.len() > 1, "{of_source:?}");
            assert_eq!(forked.records(source), before, "the source is untouched");
            forks.extend(of_source.into_iter().map(|fork| (fork, result.clone())));
        }
        let (middle, result) = &forks[forks.len() / 2];
        let again = forked.fork_all(middle, result, 8).await;
        for fork in forks.iter().map(|(fork, _)| fork).chain(&again) {
            forked.has_no_effect(fork);
        }
        assert_eq!(forked.example.effects(), effects, "nothing was done again");
        forked
    }

    /// Forks at the first turn of an agent. In the fork, `payload` replaces the call of this turn.
    /// The new call waits for an approval, because the source has no such call.
    async fn holds_another_call(&self, agent: &str, payload: &str) {
        let source = ThreadId::parse(THREAD).unwrap();
        let is_of_agent = |point: &ForkPoint| {
            point.turn.as_ref().is_some_and(|turn| turn.agent.as_str() == agent)
        };
        let places = self.places(&source).into_iter().map(|(_, point)| point);
        let point = places.into_iter().find(is_of_agent).unwrap();
        let effects = self.example.effects();

        let request = ForkRequest {
            payload: Some(payload.to_owned()),
            ..ForkRequest::at(&point, self.client.fork_id(&source))
        };
        let forked = self.client.fork(request, None).await.unwrap().unwrap();
        let fork = forked.thread.as_str();
        let held = until("the call waits", || {
            let held = self.example.organism(&["approvals", "--json"]).json();
            held.into_iter().find(|call| call["thread"] == fork)
        });
        assert_eq!(held["hold"], "approval", "{held}");
        assert_eq!(held["from"], agent, "{held}");
        assert_eq!(self.example.effects(), effects, "nothing was done");
        let cancelled = self.example.organism(&["cancel", fork]);
        assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_crew_is_forked() {
    ForkedExample::forked_everywhere("crew").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_essay_is_forked() {
    ForkedExample::forked_everywhere("essay").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_decision_is_forked() {
    ForkedExample::forked_everywhere("decision").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_code_review_is_forked() {
    ForkedExample::forked_everywhere("code-review").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_research_is_forked() {
    ForkedExample::forked_everywhere("research").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_booking_is_forked() {
    ForkedExample::forked_everywhere("booking").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_documents_is_forked() {
    ForkedExample::forked_everywhere("documents").await.stop();
}

/// In a fork of the coder, a call that the source also made gets the recorded result without an
/// approval. Every other call waits for an approval.
#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_coder_is_forked_and_another_call_waits() {
    let forked = ForkedExample::forked_everywhere("coder").await;
    let another = "<proposed_shell_command xmlns=\"https://xml-pipeline.org/ns/actions/v1\" \
                   working_directory=\".\" is_dangerous=\"false\">touch by-a-fork\
                   </proposed_shell_command>";
    forked.holds_another_call("coder", another).await;
    forked.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_code_reader_is_forked() {
    ForkedExample::forked_everywhere("code-reader").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_the_researcher_is_forked() {
    ForkedExample::forked_everywhere("research-desk").await.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_of_a_few_invoices_is_forked() {
    ForkedExample::forked_everywhere("intake").await.stop();
}
