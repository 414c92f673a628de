//! Judges the record of a killed run: the calls of the run with their attempts, and the states of
//! the run at the kills.

use std::collections::{BTreeMap, BTreeSet};

use organism::ids::{Attempt, CallId};
use organism::journal::jetstream::{Options, Standby};
use organism::nats;
use organism::thread::{Closing, Fact, Record};
use tempfile::TempDir;

use super::super::House;
use super::super::bookings::ledger;
use super::super::model_calls::records;
use super::super::workflow::messages;
use crate::journal::streamed;
use crate::nats::{copy_directory, substrate};

/// Thread of the run.
const RUN: &str = "sess-grandrun.";
const AGENTS: [&str; 3] = ["writer", "critic", "reader"];
const WORKFLOWS: [&str; 2] = ["grand", "trip"];

/// A call of the run, according to its recorded facts.
struct CallHistory {
    callee: String,
    /// Labels of the call's thread, without the labels of the run's thread.
    label: String,
    /// Local name of the call's request.
    request: String,
    /// Local name of the call's reply.
    reply: Option<String>,
    handed_over: BTreeSet<Attempt>,
    /// Number of attempts that have ended, with a result or without one.
    ended: usize,
    lost: BTreeSet<Attempt>,
    reserved: BTreeSet<Attempt>,
    charged: BTreeSet<Attempt>,
    closed: Option<Closing>,
}

impl CallHistory {
    fn is_in_flight(&self) -> bool {
        self.handed_over.len() > self.ended
    }

    fn is_completed(&self) -> bool {
        self.closed == Some(Closing::Completed)
    }
}

/// The state of a run at a kill: the labels of the threads with a call in flight, and the labels of
/// the threads with a completed call.
#[derive(Default)]
pub struct DeathState {
    pub in_flight: BTreeSet<String>,
    pub completed: BTreeSet<String>,
}

/// The history of one run, according to the record.
pub struct RunHistory {
    calls: BTreeMap<CallId, CallHistory>,
    /// The state of the run at each kill: the state before each recorded start except the first.
    pub deaths: Vec<DeathState>,
}

impl RunHistory {
    pub fn of(house: &House) -> Self {
        let mut history = Self { calls: BTreeMap::new(), deaths: Vec::new() };
        let mut has_booted = false;
        for record in streamed_records(house).unwrap_or_else(|| records(house)) {
            let boots = record.facts.iter().any(|fact| matches!(fact, Fact::Booted { .. }));
            if boots && has_booted {
                history.deaths.push(history.present_state());
            }
            has_booted |= boots;
            history.read(record);
        }
        history
    }

    fn present_state(&self) -> DeathState {
        let mut state = DeathState::default();
        for call in self.calls.values() {
            if call.is_in_flight() {
                state.in_flight.insert(call.label.clone());
            }
            if call.is_completed() {
                state.completed.insert(call.label.clone());
            }
        }
        state
    }

    fn read(&mut self, record: Record) {
        for fact in record.facts {
            match fact {
                Fact::Accepted { message, opening: Some(_), .. } => {
                    let thread = message.thread.as_str();
                    let call = CallHistory {
                        callee: message.to.to_string(),
                        label: thread.strip_prefix(RUN).unwrap_or_default().to_owned(),
                        request: message.name.local.to_string(),
                        reply: None,
                        handed_over: BTreeSet::new(),
                        ended: 0,
                        lost: BTreeSet::new(),
                        reserved: BTreeSet::new(),
                        charged: BTreeSet::new(),
                        closed: None,
                    };
                    self.calls.insert(CallId(message.id), call);
                }
                Fact::Accepted { message, opening: None, .. } => {
                    if let Some(call) = message.cause.and_then(|id| self.calls.get_mut(&CallId(id)))
                    {
                        call.reply.get_or_insert(message.name.local.to_string());
                    }
                }
                Fact::HandedOver { call, attempt } => {
                    let history = self.call(call);
                    assert_eq!(history.closed, None, "{} was handed over again", history.label);
                    assert!(history.handed_over.insert(attempt), "{call} {attempt}");
                }
                Fact::OutcomeReceived { call, .. } => self.call(call).ended += 1,
                Fact::AttemptFailed { call, attempt, .. } => {
                    let history = self.call(call);
                    history.ended += 1;
                    history.lost.insert(attempt);
                }
                Fact::Reserved { call, attempt, .. } => {
                    self.call(call).reserved.insert(attempt);
                }
                Fact::Charged { call, attempt, .. } => {
                    self.call(call).charged.insert(attempt);
                }
                Fact::CallClosed { call, how } => self.call(call).closed = Some(how),
                _ => {}
            }
        }
    }

    fn call(&mut self, call: CallId) -> &mut CallHistory {
        self.calls.get_mut(&call).unwrap()
    }

    fn of_agents(&self) -> impl Iterator<Item = &CallHistory> {
        self.calls.values().filter(|call| AGENTS.contains(&&*call.callee))
    }

    /// Number of turns of agents that were repeated because the result of the earlier attempt was
    /// lost.
    pub fn repeated_turns(&self) -> usize {
        self.of_agents().map(|call| call.lost.len()).sum()
    }

    /// Number of model calls that were charged although their results were lost.
    pub fn charged_turns(&self) -> usize {
        self.of_agents().map(|call| call.charged.len()).sum()
    }

    /// Whether the next kill could end a workflow's last attempt. A workflow has three attempts.
    pub fn has_workflow_at_last_attempt(&self) -> bool {
        let lost = |call: &CallHistory| call.lost.len() + usize::from(call.is_in_flight());
        self.calls.values().any(|call| WORKFLOWS.contains(&&*call.callee) && lost(call) >= 2)
    }

    /// Asserts that a call which must not be repeated was handed over at most once, and that the
    /// end of each attempt is on record.
    pub fn assert_attempts(&self) {
        for call in self.calls.values() {
            let CallHistory { callee, label, handed_over, .. } = call;
            if matches!(&**callee, "hotel" | "bank") {
                assert!(handed_over.len() <= 1, "{callee} was given {label} twice");
            }
            assert!(handed_over.len() <= call.ended, "{callee}: {label} has not ended");
        }
    }

    /// Asserts that each model call whose result was lost is charged, and that `organism thread`
    /// shows such a charge.
    pub fn assert_charged_and_shown(&self, house: &House) {
        for call in self.of_agents() {
            let lost: BTreeSet<_> = call.lost.intersection(&call.reserved).copied().collect();
            assert_eq!(call.charged, lost, "{}", call.label);
        }
        if let Some(charged) = self.of_agents().find(|call| !call.charged.is_empty()) {
            let shown = house.organism(&["thread", &format!("{RUN}{}", charged.label)]);
            assert!(shown.out.contains("its result is lost"), "{shown:?}");
        }
    }

    /// Asserts that each completed booking was cancelled exactly once. The failed workflow must
    /// list as not undone each booking whose cancellation was lost and each other call that may
    /// have been carried out. It must list nothing else.
    pub fn assert_undone(&self, house: &House) {
        let lines = ledger(house);
        let mut expected = BTreeSet::new();
        for (id, call) in self.calls.iter().filter(|(_, call)| call.label.starts_with("trip.")) {
            let label = format!("trip.undo_{id}");
            let undos: Vec<_> = self.calls.values().filter(|undo| undo.label == label).collect();
            let is_booking = call.request == "book" && call.is_completed();
            if !is_booking {
                assert!(undos.is_empty(), "{} is no completed booking, and was undone", call.label);
                let is_left = !call.lost.is_empty() && !call.label.starts_with("trip.undo_");
                expected.extend(is_left.then(|| call.label.clone()));
                continue;
            }

            let [undo] = &undos[..] else { panic!("{} undos of {}", undos.len(), call.label) };
            if undo.lost.is_empty() {
                assert_eq!(undo.reply.as_deref(), Some("cancelled"), "{}", call.label);
            } else {
                expected.insert(call.label.clone());
            }
        }

        let done = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        let is_cancelled = |call: &&CallHistory| call.request == "cancel" && call.lost.is_empty();
        assert!(done("cancel ") >= self.calls.values().filter(is_cancelled).count(), "{lines:?}");
        assert!(done("cancel ") <= done("book "), "{lines:?}");
        assert_eq!(listed(house), expected, "{lines:?}");
    }
}

/// Labels of the threads whose calls the failed workflow lists as not undone.
fn listed(house: &House) -> BTreeSet<String> {
    let failed = messages(house, "trip-failed");
    let [failed] = &failed[..] else { panic!("{failed:?}") };
    let payload = failed["payload"].as_str().unwrap();
    let threads = payload.split("<thread>").skip(1).map(|rest| rest.split('<').next().unwrap());
    threads.map(|thread| thread.strip_prefix(RUN).unwrap().to_owned()).collect()
}

/// Records in the stream of an organism that does not run. Its projection may lack the last of
/// them, and stays as it is. `None` if the journal is embedded.
fn streamed_records(house: &House) -> Option<Vec<Record>> {
    let environment: BTreeMap<_, _> = substrate(house.directory.path()).into_iter().collect();
    let stream = environment.get("ORGANISM_JOURNAL__STREAM")?.clone();
    let servers = nats::Options {
        servers: vec![environment["ORGANISM_NATS__URL"].clone()],
        credentials: nats::NatsCredentials::Anonymous,
        ca: None,
    };
    let options = Options { stream, ..streamed::options("talk") };

    let copy = TempDir::new().unwrap();
    let [data, state] = ["data", "state"].map(|name| copy.path().join(name));
    copy_directory(&house.data(), &data);
    copy_directory(&house.state(), &state);
    let mut records = Vec::new();
    let standby = Standby::begin(&servers, &options, &data, &state).unwrap();
    let followed = standby.follow(&mut |sealed| {
        records.push(sealed.record);
        Ok(())
    });
    assert!(followed.unwrap().is_ready(), "the server does not respond");
    Some(records)
}
