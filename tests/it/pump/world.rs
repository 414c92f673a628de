//! A pump without a disk or a clock: scripted listeners, simulated time, and a check of the safety
//! properties after every step.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use organism::bus::Delivery;
use organism::clock::Time;
use organism::contract::{Contract, Contracts, Role, Schedule, TreeLimits, goal_schema};
use organism::envelope::{
    AttemptFailure, Disposition, Message, MessageKind, Money, NotReserved, Payload, Refusal,
    Reservation, Spending, Turn,
};
use organism::ids::{
    Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, Position, ThreadId, TimerId,
};
use organism::journal::StateRecovery as _;
use organism::journal::sqlite::RestingStore;
use organism::pump::core::replay::{event_of, reload_of};
use organism::pump::core::{
    Alarm, CallDecision, CallRecollection, Cancellation, Core, CoreConfig, Effect, Event,
    ForkOrder, ForkRuling, ForkSearch, GatedAnswer, OperatorRuling, PauseChange, PauseRuling,
    Receipt, ReloadRequest, ResultSearch, RetryOrder, RetryRuling, Schedules, Submission, Target,
    TimerSearch,
};
use organism::pump::gate::{Checked, Gate, payload_digest};
use organism::pump::{ResidencyLimits, ResidentCore};
use organism::schema::{SchemaCompiler, Schemas};
use organism::thread::text::{InternedNames, read};
use organism::thread::{
    Allotment, Closing, Decision, DecisionOrigin, Fact, ForkAction, ForkSource, ForkedRequest,
    Input, OperatorAction, OperatorIdentity, OperatorKeys, OperatorVerb, PauseAction, PauseTarget,
    PauseVerb, Record, RetryAction, State, Tree, Verdict, reopened_id,
};
use organism::trace::TraceParent;
use uuid::Uuid;

pub const NS: &str = "urn:test:words";

/// A payload of the tests: `<LOCAL xmlns="urn:test:words"><text>…</text></LOCAL>`.
pub fn word(local: &str, text: &str) -> String {
    format!("<{local} xmlns=\"{NS}\"><text>{text}</text></{local}>")
}

/// A core payload as an agent would send it, with the given attributes and content.
pub fn core(local: &str, attributes: &str, content: &str) -> String {
    format!("<{local} xmlns=\"{}\" {attributes}>{content}</{local}>", organism::system::NAMESPACE)
}

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

pub fn names(locals: &[&str]) -> Vec<PayloadName> {
    locals.iter().map(|local| PayloadName::new(NS, local)).collect()
}

/// A contract of a listener, so that a test can declare it in one line.
pub fn listener(who: &str, accepts: &[&str], replies: &[&str], peers: &[&str]) -> Contract {
    contract(who, Role::Listener, accepts, replies, peers)
}

pub fn agent(who: &str, accepts: &[&str], replies: &[&str], peers: &[&str]) -> Contract {
    let mut agent = contract(who, Role::Agent, accepts, replies, peers);
    agent.actions_per_turn = 16;
    agent
}

pub fn workflow(who: &str, accepts: &[&str], replies: &[&str], peers: &[&str]) -> Contract {
    contract(who, Role::Workflow, accepts, replies, peers)
}

pub fn client(who: &str, peers: &[&str]) -> Contract {
    contract(who, Role::Client, &[], &[], peers)
}

fn contract(who: &str, role: Role, accepts: &[&str], replies: &[&str], peers: &[&str]) -> Contract {
    let mut contract = Contract::new(name(who), role);
    contract.accepts = names(accepts);
    contract.replies = names(replies);
    contract.peers = peers.iter().map(|peer| name(peer)).collect();
    contract
}

/// Arguments of [`World::retry`]: the call that an operator retries, and how.
#[derive(Clone, Copy)]
pub struct RetriedCall<'a> {
    pub message: MessageId,
    pub source: &'a ThreadId,
    pub thread: &'a ThreadId,
    pub who: &'a str,
    pub to: Option<&'a str>,
    pub text: &'a str,
    pub key: Option<&'a str>,
    pub again: bool,
    pub unknown: bool,
}

pub struct World {
    /// The pump's core. Everything at rest leaves memory before each step and comes back
    /// afterwards, so that each test also proves that no event mistakes a tree at rest for an
    /// unknown tree.
    pub core: ResidentCore,
    pub gate: Gate,
    pub now: Time,
    pub records: Vec<Record>,
    pub deliveries: VecDeque<Delivery>,
    pub withdrawn: Vec<CallId>,
    pub results: HashMap<CallId, (Closing, Vec<Arc<Message>>)>,
    pub alarms: Vec<(Time, Alarm)>,
    /// Clients whose submissions were refused as `busy`, in order.
    pub busy: Vec<ListenerName>,
    limits: TreeLimits,
    operators: OperatorKeys,
    config: Digest,
    /// The state that follows from the records alone. Each new record updates it.
    shadow: Core,
    seen: Seen,
    /// Schedules of the config; `None` for a pump that does not run schedules.
    schedules: Option<Vec<Schedule>>,
    /// Gate, limits, config and schedules of every start, in order.
    starts: Vec<(Gate, TreeLimits, Digest, Option<Vec<Schedule>>)>,
    /// Positions of the boots that began a drain.
    draining_boots: Vec<Position>,
    /// Gate and config of every reload, in order.
    reloads: Vec<(Gate, CoreConfig)>,
    submissions: u32,
    /// Trace that submissions carry.
    pub trace: Option<TraceParent>,
    /// Trace that a submission begins if it does not belong to a trace already.
    pub begun: Option<TraceParent>,
    receipt: Option<Receipt>,
    ruling: Option<Result<(), Refusal>>,
    pause_ruling: Option<PauseRuling>,
    fork_ruling: Option<ForkRuling>,
    /// Limits of the next forks.
    pub fork_limits: Option<Allotment>,
    retry_ruling: Option<RetryRuling>,
    /// Orders to search the source of a fork for the result of a call.
    pub recalls: VecDeque<ResultSearch>,
    /// Positions at which timers fired in the source of a fork, each with the label of the timer.
    /// If the core searches for another timer, the search finds nothing.
    pub fired_in_source: Vec<(&'static str, Position)>,
    /// Whether searches for timers stay in progress until [`World::end_timer_search`] is called.
    pub holds_timer_searches: bool,
    /// The searches for timers that are in progress, in order.
    pub timer_searches: VecDeque<TimerSearch>,
    reserved: Option<Result<(), NotReserved>>,
}

/// Facts of earlier records, for properties that span several steps.
#[derive(Default)]
struct Seen {
    seqs: HashMap<ThreadId, u64>,
    accepted: HashSet<MessageId>,
    disposed: HashSet<MessageId>,
    attempts: HashMap<CallId, Attempt>,
    /// Calls that are known to their clients.
    known_to_clients: HashSet<CallId>,
    /// Credit of each tree for checks: the number of its calls, messages and threads that the next
    /// check may read.
    credit: HashMap<ThreadId, usize>,
}

/// Increase of a tree's credit for checks in each step. A tree up to this size is checked after
/// every step, a larger tree less often. If a tree of 10,000 messages were checked after every
/// step, the checks would take quadratic time.
const LOOKED_THROUGH: usize = 500;

/// Returns the schemas of all worlds. They are compiled once, because each compilation starts a
/// child process.
fn schemas() -> Schemas {
    static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
    SCHEMAS.get_or_init(compiled).clone()
}

fn compiled() -> Schemas {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pump");
    let mut schemas = Schemas::default();
    schemas.add_file(&data.join("words.xsd")).unwrap();
    schemas.add_file(&data.join("loose.xsd")).unwrap();
    schemas.add_builtin("core.xsd", organism::system::SCHEMA).unwrap();
    schemas.add_builtin("agent.xsd", organism::agent::SCHEMA).unwrap();
    schemas.add_builtin("workflow.xsd", organism::workflow::SCHEMA).unwrap();
    schemas
}

impl World {
    pub fn new(contracts: Vec<Contract>) -> Self {
        Self::with_limits(contracts, TreeLimits::default())
    }

    pub fn with_limits(contracts: Vec<Contract>, limits: TreeLimits) -> Self {
        let mut schemas = schemas();
        let mut compiler = SchemaCompiler::default();
        let contracts = Arc::new(Contracts::new(contracts).unwrap());
        for agent in contracts.agents_with_goals() {
            schemas.add_generated(&mut compiler, "goals", &goal_schema(agent)).unwrap();
        }
        let delegations = contracts.iter().flat_map(|contract| &contract.delegations);
        for delegate in delegations.map(|one| &one.payload) {
            if schemas.contains(delegate) {
                continue;
            }
            let text = format!(
                "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                 targetNamespace=\"{}\"><xs:element name=\"{}\"><xs:complexType mixed=\"true\">\
                 <xs:attribute name=\"role\"/></xs:complexType></xs:element></xs:schema>",
                delegate.namespace, delegate.local
            );
            schemas.add_generated(&mut compiler, "roles", &text).unwrap();
        }
        let config = Digest::of(b"config");
        let core = || Core::new(contracts.clone(), limits, config);
        let mut world = Self {
            core: resident(core()),
            shadow: core(),
            config,
            seen: Seen::default(),
            schedules: None,
            starts: Vec::new(),
            draining_boots: Vec::new(),
            reloads: Vec::new(),
            gate: Gate::new(contracts, schemas),
            now: Time(1_700_000_000_000_000),
            records: Vec::new(),
            deliveries: VecDeque::new(),
            withdrawn: Vec::new(),
            results: HashMap::new(),
            alarms: Vec::new(),
            busy: Vec::new(),
            limits,
            operators: OperatorKeys::default(),
            submissions: 0,
            trace: None,
            begun: None,
            receipt: None,
            ruling: None,
            pause_ruling: None,
            fork_ruling: None,
            fork_limits: None,
            retry_ruling: None,
            recalls: VecDeque::new(),
            fired_in_source: Vec::new(),
            holds_timer_searches: false,
            timer_searches: VecDeque::new(),
            reserved: None,
        };
        world.boot();
        world
    }

    /// Requires the signature of one of these operators for each further decision.
    pub fn takes_decisions_of(&mut self, operators: OperatorKeys) {
        self.operators = operators;
        let core = Core::clone(&self.core).with_operators(self.operators.clone());
        self.core = resident(core);
    }

    pub fn boot(&mut self) {
        let epoch = self.core.state().epoch + 1;
        let journal = Uuid::from_u128(7);
        let schedules = self.schedules.clone();
        self.starts.push((self.gate.clone(), self.limits, self.config, schedules));
        self.step(Event::Boot { journal, epoch, detail: "test".to_owned(), blobs: Vec::new() });
        let is_lost = |(_, alarm): &mut (Time, Alarm)| matches!(alarm, Alarm::Lost { .. });
        let lost: Vec<_> = self.alarms.extract_if(.., is_lost).collect();
        for (_, alarm) in lost {
            self.step(Event::Alarm(alarm));
        }
    }

    /// Kills the pump and restarts it from its records alone.
    pub fn restart(&mut self) {
        self.restart_with_core(|core| core);
    }

    /// Kills the pump and restarts it as for a cancellation: it drains from its boot on.
    pub fn restart_draining(&mut self) {
        self.draining_boots.push(Position(self.records.len() as u64 + 1));
        self.restart_with_core(Core::draining_from_boot);
        self.step(Event::Shutdown { reason: "test".to_owned() });
    }

    fn restart_with_core(&mut self, change: impl FnOnce(Core) -> Core) {
        self.core = self.rebuilt(&self.records).map(change);
        assert_eq!(self.core.state(), self.shadow.state(), "rebuilt state is live state");
        self.shadow = Core::clone(&self.rebuilt(&self.records));
        self.deliveries.clear();
        self.recalls.clear();
        self.timer_searches.clear();
        self.alarms.clear();
        self.boot();
        self.check_waiting();
    }

    /// Kills the pump and restarts it from its records after the test has changed their payloads.
    /// Does not compare the state before and after.
    pub fn blind_restart(&mut self) {
        self.core = self.rebuilt(&self.records);
        self.shadow = Core::clone(&self.rebuilt(&self.records));
        self.boot();
    }

    /// Kills the pump and restarts it with another config.
    pub fn restart_with(&mut self, contracts: Vec<Contract>) {
        let contracts = Arc::new(Contracts::new(contracts).unwrap());
        self.gate = Gate::new(contracts, self.gate.schemas.clone());
        self.config = Digest::of(b"another config");
        self.restart();
    }

    /// Puts another config in force without a restart. The config has no schedules.
    pub fn reload(&mut self, contracts: Vec<Contract>) {
        let contracts = Arc::new(Contracts::new(contracts).unwrap());
        self.gate = Gate::new(Arc::clone(&contracts), self.gate.schemas.clone());
        self.config = Digest::of(format!("config {}", self.reloads.len()).as_bytes());
        let config =
            CoreConfig { contracts, limits: self.limits, schedules: None, digest: self.config };
        self.reloads.push((self.gate.clone(), config.clone()));
        let gate = Arc::new(self.gate.clone());
        let without_result = self.core.check_recorded_again(&gate, |_, _| Arc::clone(&gate));

        let action = OperatorAction {
            verb: OperatorVerb::Reload,
            by: name("operator"),
            who: OperatorIdentity::default(),
            note: String::new(),
            details: Vec::new(),
        };
        let request = ReloadRequest { ticket: Uuid::nil(), action, config, blobs: Vec::new() };
        self.step(Event::Reload(Box::new(request)));
        self.ruling.take().unwrap().unwrap();
        for call in without_result {
            self.step(Event::Searched { call, result: None });
        }
    }

    /// Kills the pump and restarts it with these schedules.
    pub fn restart_scheduled(&mut self, schedules: Option<Vec<Schedule>>) {
        self.schedules = schedules;
        self.restart();
    }

    /// Rebuilds the core from the records: makes a snapshot from the first half of them, and
    /// continues from it with the other half. Every tree at rest leaves memory meanwhile.
    pub fn rebuilt(&self, records: &[Record]) -> ResidentCore {
        self.rebuilt_over(records, records.len() / 2)
    }

    /// Rebuilds the core from the records: makes a snapshot from the first `snapshot` records, and
    /// continues from it with the other records.
    fn rebuilt_over(&self, records: &[Record], snapshot: usize) -> ResidentCore {
        let core = || {
            let core = Core::new(self.gate.contracts.clone(), self.limits, self.config);
            let core = core.with_operators(self.operators.clone());
            resident(scheduled(core, self.schedules.as_deref(), &self.gate))
        };

        let (earlier, later) = records.split_at(snapshot);
        let mut before = core();
        earlier.iter().for_each(|record| before.replay(record).unwrap());
        let mut core = core();
        core.restore(before.into_stored().unwrap()).unwrap();
        later.iter().for_each(|record| core.replay(record).unwrap());
        core.recall_all().unwrap();
        core
    }

    /// Asserts that a start from a snapshot gives the present state. Tries snapshots at about
    /// eight positions.
    fn check_snapshots(&self) {
        let distance = self.records.len().div_ceil(8).max(1);
        for snapshot in (0..=self.records.len()).step_by(distance) {
            let core = self.rebuilt_over(&self.records, snapshot);
            let (resumed, live) = (core.state(), self.shadow.state());
            assert_eq!(resumed, live, "a snapshot after {snapshot} records");
        }
    }

    /// Feeds the inputs of the records to new pumps, and asserts that they write the same records,
    /// byte for byte.
    pub fn check_replay(&self) {
        let mut starts = self.starts.iter();
        let mut reloads = self.reloads.iter();
        let mut again: Vec<Record> = Vec::new();
        let mut pump = None;
        for record in &self.records {
            if matches!(record.input, Input::Boot { .. }) {
                let start = starts.next().expect("a start for every boot");
                let (gate, limits, config, schedules) = start;
                let core = Core::new(gate.contracts.clone(), *limits, *config);
                let core = core.with_operators(self.operators.clone());
                let core = scheduled(core, schedules.as_deref(), gate);
                let is_draining = self.draining_boots.contains(&record.position);
                let mut core = if is_draining { core.draining_from_boot() } else { core };
                again.iter().for_each(|record| core.replay(record));
                pump = Some((core, gate));
            }
            let (core, gate) = pump.as_mut().expect("a boot comes first");
            let is_reload = |fact: &Fact| matches!(fact, Fact::Reloaded { .. });
            let event = if record.facts.iter().any(is_reload) {
                let (reloaded, config) = reloads.next().expect("a config for every reload");
                *gate = reloaded;
                reload_of(record, config.clone())
            } else {
                event_of(record, gate)
            };
            let event = event.unwrap_or_else(|| panic!("not recoverable: {record:#?}"));
            let made = core.step(record.position, record.time, event).into_record();
            let made = made.unwrap_or_else(|| panic!("no record came of {:#?}", record.input));
            let (was, is) = (serde_json::to_string(record), serde_json::to_string(&made));
            if was.unwrap() != is.unwrap() {
                assert_eq!(format!("{made:#?}"), format!("{record:#?}"), "replayed, recorded");
            }
            again.push(made);
        }
    }

    pub fn step(&mut self, event: Event) {
        self.now = self.now.plus(Duration::from_millis(1));
        let position = Position(self.records.len() as u64 + 1);
        self.core.let_rest();
        let mut step = self.core.step(position, self.now, event).unwrap();
        self.core.recall_all().unwrap();
        for effect in std::mem::take(&mut step.effects) {
            match effect {
                Effect::Deliver(delivery) => self.deliveries.push_back(delivery),
                Effect::Withdraw { call, .. } => self.withdrawn.push(call),
                Effect::Receipt { receipt, .. } => {
                    if let Receipt::Accepted { calls, .. } = &receipt {
                        self.seen.known_to_clients.extend(calls);
                    }
                    self.receipt = Some(receipt);
                }
                Effect::Result { call, how, messages } => {
                    assert!(
                        self.seen.known_to_clients.contains(&call),
                        "a result before its receipt"
                    );
                    let twice = self.results.insert(call, (how, messages));
                    assert!(twice.is_none(), "a second result for {call}");
                }
                Effect::Ruled { ruling, .. } => self.take_ruling(ruling),
                Effect::Recall(ForkSearch::Result(order)) => self.recalls.push_back(order),
                Effect::Recall(ForkSearch::Timer(order)) => self.timer_searches.push_back(order),
                Effect::Reserved { answer, .. } => self.reserved = Some(answer),
                Effect::CountBusy { client } => self.busy.push(client),
                Effect::Held { .. } => {}
                Effect::Alarm { at, alarm } => self.alarms.push((at, alarm)),
                Effect::Alarms(alarms) => self.alarms.extend(alarms),
            }
        }
        if let Some(record) = step.into_record() {
            self.shadow.replay(&reread(&record));
            self.check_record(&record);
            self.check_tree(&record.tree);
            self.records.push(record);
        }
        while !self.holds_timer_searches && !self.timer_searches.is_empty() {
            self.end_timer_search(0);
        }
    }

    /// Ends a search for a timer. `index` is the index of the search in `timer_searches`.
    pub fn end_timer_search(&mut self, index: usize) {
        let order = self.timer_searches.remove(index).expect("a search for a timer");
        let TimerSearch { timer, call, .. } = order;
        let fired = self.fired_in_source(timer);
        self.step(Event::TimerSearched { timer, call, fired });
    }

    fn fired_in_source(&self, timer: TimerId) -> Option<Position> {
        let facts = self.records.iter().flat_map(|record| &record.facts);
        let mut labels = facts.filter_map(|fact| match fact {
            Fact::TimerSet { timer: own, label, .. } if *own == timer => label.as_deref(),
            _ => None,
        });
        let label = labels.next()?;
        let fired = self.fired_in_source.iter().find(|(own, _)| *own == label);
        fired.map(|(_, position)| *position)
    }

    fn take_ruling(&mut self, ruling: OperatorRuling) {
        match ruling {
            OperatorRuling::Plain(ruling) => self.ruling = Some(ruling),
            OperatorRuling::Pause(ruling) => self.pause_ruling = Some(ruling),
            OperatorRuling::Fork(ruling) => {
                if let ForkRuling::Forked { calls, .. } = &ruling {
                    self.seen.known_to_clients.extend(calls);
                }
                self.fork_ruling = Some(ruling);
            }
            OperatorRuling::Retry(ruling) => {
                if let RetryRuling::Retried { calls, .. } = &ruling {
                    self.seen.known_to_clients.extend(calls);
                }
                self.retry_ruling = Some(ruling);
            }
        }
    }

    /// Checks the properties of a record: those of the record alone, and those of the record
    /// together with the earlier records.
    fn check_record(&mut self, record: &Record) {
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, .. } => {
                    let seq = self.seen.seqs.entry(message.thread.clone()).or_default();
                    *seq += 1;
                    assert_eq!(message.seq, *seq, "dense seq in {}", message.thread);
                    assert!(self.seen.accepted.insert(message.id), "one message, one id");
                    if message.from.is_core() {
                        let valid = self.gate.check_core(message.payload.as_str().as_bytes());
                        let text = message.payload.as_str();
                        assert!(valid.is_ok(), "the core wrote {text}: {}", valid.unwrap_err());
                    }
                }
                Fact::Disposed { message, .. } => {
                    assert!(self.seen.accepted.contains(message), "disposed of the unknown");
                    assert!(self.seen.disposed.insert(*message), "one disposition each");
                }
                Fact::Forked { threads, .. } => {
                    let seqs = threads.iter().map(|own| (own.thread.clone(), own.seq));
                    self.seen.seqs.extend(seqs);
                }
                Fact::OutcomeReceived { call, attempt } => {
                    let before = self.seen.attempts.insert(*call, *attempt);
                    assert!(before < Some(*attempt), "attempts rise");
                }
                _ => {}
            }
        }
    }

    /// Checks the properties that hold after every step. Checking one tree is enough, because a
    /// record changes only its own tree.
    fn check_tree(&mut self, tree: &ThreadId) {
        let [state, shadow] = [&*self.core, &self.shadow].map(Core::state);
        let open = self.seen.accepted.len() - self.seen.disposed.len();
        assert_eq!(open, state.in_flight, "conservation");
        assert_eq!(shadow.schedules, state.schedules, "rebuilt schedules are live schedules");
        let size = state.trees.get(tree).map_or(0, |tree| {
            let heard = tree.calls.values().map(|call| 1 + call.handled.len()).sum::<usize>();
            tree.threads.len() + tree.in_flight.len() + heard
        });
        let credit = self.seen.credit.entry(tree.clone()).or_default();
        *credit += LOOKED_THROUGH;
        if *credit < size {
            return;
        }
        *credit = 0;
        assert_eq!(shadow.trees.get(tree), state.trees.get(tree), "rebuilt state is live state");
        let Some(tree) = state.trees.get(tree) else { return };
        let pending = tree.calls.iter().flat_map(|(id, call)| {
            call.pending.iter().map(move |pending| (pending.message.id, *id))
        });
        let pending: HashSet<(MessageId, CallId)> = pending.collect();
        for (message, call) in tree.in_flight.iter() {
            let waits = call.is_some_and(|call| pending.contains(&(*message, call)));
            assert!(waits, "{message} waits for nobody");
        }
        for (id, call) in tree.calls.iter() {
            let timers = tree.timers.values().filter(|timer| timer.call == *id).count();
            assert_eq!(call.timers, timers, "timers of {id}");
        }
        let held = tree.calls.values().filter(|call| call.held.is_some()).count();
        assert_eq!(tree.held, held as u64, "held calls");
        let awaited = tree.calls.values().flat_map(|call| &call.awaiting);
        for (leg, _) in awaited.flat_map(|awaited| &awaited.open) {
            assert!(tree.calls.contains_key(leg), "{leg} is awaited and closed");
        }
    }

    /// Asserts that the core's numbers of waiting messages and of calls with timers agree with the
    /// state that follows from the records.
    fn check_waiting(&self) {
        let trees = || self.shadow.state().trees.values();
        let waiting: usize = trees().map(Tree::waiting_messages).sum();
        assert_eq!(self.core.waiting_messages(), waiting, "messages that wait");
        let timed = trees().flat_map(Tree::open_calls).filter(|call| call.timers > 0).count();
        assert_eq!(self.core.calls_with_timers(), timed, "calls with timers");
    }

    pub fn submit_to(
        &mut self,
        who: &str,
        target: Target,
        key: Option<&str>,
        text: &str,
    ) -> Receipt {
        self.submissions += 1;
        let id = MessageId(Uuid::from_u128(
            0x0197_0000_0000_7000_8000_0000_0000_0000
                + u128::from(self.submissions) * 0x9e37_79b9_7f4a_7c15,
        ));
        let payload = self.gate.check(&name(who), text.as_bytes());
        let key = key.map(str::to_owned);
        let client = name(who);
        let (trace, begun) = (self.trace, self.begun);
        let refused_digest = payload.is_err().then(|| payload_digest(text.as_bytes())).flatten();
        let submission =
            Submission { id, client, target, key, payload, refused_digest, trace, begun };
        self.step(Event::Submit(Box::new(submission)));
        self.receipt.take().unwrap()
    }

    /// Opens a new thread with one call.
    pub fn open(&mut self, who: &str, text: &str) -> (ThreadId, CallId) {
        match self.submit_to(who, Target::New { suggested: None }, None, text) {
            Receipt::Accepted { thread, calls, .. } => (thread, calls[0]),
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Returns the next delivery, which must be for `who`.
    pub fn delivery(&mut self, who: &str) -> Delivery {
        let next = self.deliveries.pop_front();
        let next = next.unwrap_or_else(|| panic!("nothing is handed over to {who}"));
        assert_eq!(next.listener.as_str(), who, "handed over to");
        next
    }

    /// Returns the first delivery in flight that is for `who`.
    pub fn delivery_for(&mut self, who: &str) -> Delivery {
        let at = self.deliveries.iter().position(|d| d.listener.as_str() == who);
        let at = at.unwrap_or_else(|| panic!("nothing is handed over to {who}"));
        self.deliveries.remove(at).unwrap()
    }

    pub fn answer(&mut self, delivery: &Delivery, payloads: &[String]) {
        self.answer_turn(delivery, payloads, None);
    }

    pub fn answer_turn(&mut self, delivery: &Delivery, payloads: &[String], turn: Option<Turn>) {
        let gated =
            payloads.iter().map(|text| self.gate.check(&delivery.listener, text.as_bytes()));
        let payloads = gated.collect();
        let (listener, call, attempt) =
            (delivery.listener.clone(), delivery.call, delivery.attempt);
        let arrived = Some(self.now);
        let turn = turn.map(Box::new);
        self.step(Event::Outcome { listener, call, attempt, payloads, turn, arrived });
    }

    /// Gives the core an answer that names the call and attempt of this delivery, but comes from
    /// another instance of the listener.
    pub fn stray(&mut self, delivery: &Delivery, payloads: &[String]) {
        let listener = delivery.listener.clone();
        let gated = payloads.iter().map(|text| self.gate.check(&listener, text.as_bytes()));
        let payloads = gated.collect();
        let named = format!("attempt {} at call {}", delivery.attempt, delivery.call);
        self.step(Event::Stray { listener, named, payloads });
    }

    /// Takes the next delivery, which must be for `who`, and answers it.
    pub fn play(&mut self, who: &str, payloads: &[String]) -> Delivery {
        let delivery = self.delivery(who);
        self.answer(&delivery, payloads);
        delivery
    }

    pub fn fail(&mut self, delivery: &Delivery, failure: AttemptFailure) {
        let (listener, call, attempt) =
            (delivery.listener.clone(), delivery.call, delivery.attempt);
        self.step(Event::Failed { listener, call, attempt, failure });
    }

    /// Reports to the core that no listener took this delivery.
    pub fn not_taken(&mut self, delivery: &Delivery) {
        let Delivery { listener, call, attempt, .. } = delivery.clone();
        let detail = "nobody there".to_owned();
        self.step(Event::NotTaken { listener, call, attempt, detail });
    }

    /// Lets time pass. Meanwhile the core handles the alarms and deadlines that come due, in order.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now.plus(time);
        loop {
            let alarm = self.alarms.iter().copied().min();
            let deadline = self.core.next_deadline();
            let Some((at, alarm)) = [alarm, deadline].into_iter().flatten().min() else { break };
            if at > until {
                break;
            }
            self.alarms.retain(|set| *set != (at, alarm));
            self.now = self.now.max(at);
            self.step(Event::Alarm(alarm));
        }
        self.now = self.now.max(until);
    }

    /// Every message of a thread as `seq kind from>to name text`, with its disposition.
    pub fn transcript(&self, thread: &ThreadId) -> String {
        let facts = || self.records.iter().flat_map(|record| &record.facts);
        let fates: HashMap<MessageId, Disposition> = facts()
            .filter_map(|fact| match fact {
                Fact::Disposed { message, how } => Some((*message, *how)),
                _ => None,
            })
            .collect();
        let mut lines = String::new();
        for fact in facts() {
            match fact {
                Fact::Accepted { message, .. } if message.thread == *thread => {
                    let fate = fates.get(&message.id).map_or("in flight", |how| how.as_str());
                    lines.push_str(&format!(
                        "{} {} {}>{} {} [{fate}]\n",
                        message.seq,
                        message.kind.as_str(),
                        message.from,
                        message.to,
                        gist(message),
                    ));
                }
                Fact::Refused { sender, thread: Some(at), refusal, .. } if at == thread => {
                    lines.push_str(&format!("- refused {sender} {}\n", refusal.rule));
                }
                _ => {}
            }
        }
        lines
    }

    /// Submits `text` as the client `who` into an existing thread of this client. Returns the new
    /// call.
    pub fn say(&mut self, who: &str, thread: &ThreadId, text: &str) -> CallId {
        let target = Target::Thread { id: thread.to_string() };
        match self.submit_to(who, target, None, text) {
            Receipt::Accepted { calls, .. } => calls[0],
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub fn cancel(&mut self, thread: &ThreadId) {
        self.cancel_as(thread, None).unwrap();
    }

    pub fn cancel_as(
        &mut self,
        thread: &ThreadId,
        origin: Option<DecisionOrigin>,
    ) -> Result<(), Refusal> {
        let (ticket, thread, reason) = (Uuid::nil(), thread.clone(), "enough".to_owned());
        self.step(Event::Cancel(Cancellation { ticket, thread, reason, origin }));
        self.ruling.take().unwrap()
    }

    /// Pauses or resumes `target` as an operator without a key.
    pub fn pause(&mut self, verb: PauseVerb, target: &PauseTarget) -> PauseRuling {
        self.pause_as(verb, target, None)
    }

    pub fn pause_as(
        &mut self,
        verb: PauseVerb,
        target: &PauseTarget,
        origin: Option<DecisionOrigin>,
    ) -> PauseRuling {
        let by = name("whoever");
        let action = PauseAction { verb, target: target.clone(), by, origin };
        self.step(Event::Pause(PauseChange { ticket: Uuid::nil(), action }));
        self.pause_ruling.take().unwrap()
    }

    /// Forks the tree of `source` after the record at `history`, for the client `who`. If `text` is
    /// given, the client sends it in the fork.
    pub fn fork(
        &mut self,
        source: &ThreadId,
        history: Position,
        (who, text): (&str, Option<&str>),
        live: &[&str],
    ) -> ForkRuling {
        self.fork_at((source, history, None), (who, text), live)
    }

    /// Forks a tree for the client `who`, as [`Self::fork`] does. `place` contains the source, the
    /// history, and a call if the fork begins at a turn of this call.
    pub fn fork_at(
        &mut self,
        place: (&ThreadId, Position, Option<CallId>),
        (who, text): (&str, Option<&str>),
        live: &[&str],
    ) -> ForkRuling {
        self.fork_with(place, who, (who, text), live)
    }

    /// Forks the tree of `source` at a turn of `agent`. In the fork, the agent sends `text` in
    /// place of this turn.
    pub fn edit_turn(
        &mut self,
        (source, history, turn): (&ThreadId, Position, CallId),
        who: &str,
        (agent, text): (&str, &str),
    ) -> ForkRuling {
        self.fork_with((source, history, Some(turn)), who, (agent, Some(text)), &[])
    }

    fn fork_with(
        &mut self,
        (source, history, turn): (&ThreadId, Position, Option<CallId>),
        who: &str,
        (sender, text): (&str, Option<&str>),
        live: &[&str],
    ) -> ForkRuling {
        let mut past = State::default();
        let mut at = Time::default();
        for record in self.records.iter().filter(|record| record.tree == *source) {
            if record.position <= history {
                at = record.time;
                record.facts.iter().for_each(|fact| past.apply(source, record.time, fact));
            }
        }
        self.submissions += 1;
        let thread = ThreadId::parse(&format!("sess-fork{:04}", self.submissions)).unwrap();
        let checked = text.map(|text| self.gate.check(&name(sender), text.as_bytes()));
        let edited = turn.map(|turn| CallId(reopened_id(&thread, turn.0)));
        let digest = |checked: &Result<Checked, Refusal>| match checked {
            Ok(checked) => Verdict::Passed(checked.payload().digest),
            Err(refusal) => Verdict::Refused(refusal.digest),
        };
        let request = checked.as_ref().map(|checked| ForkedRequest {
            id: MessageId(Uuid::from_u128(0xf0f0_0000 + u128::from(self.submissions))),
            sender: name(sender),
            verdict: digest(checked),
            call: edited.filter(|_| sender != who),
        });
        let source = ForkSource {
            thread: source.clone(),
            message: MessageId(Uuid::from_u128(1)),
            seq: 1,
            record: history,
            hash: Digest::of(b"record"),
            history,
            unpinned: false,
            journal: None,
        };
        let action = ForkAction {
            thread: thread.clone(),
            source: source.clone(),
            client: name(who),
            live: live.iter().map(|listener| name(listener)).collect(),
            allotment: self.fork_limits,
            request,
            by: name("whoever"),
            origin: None,
        };
        let contracts = Arc::clone(&self.gate.contracts);
        let is_answered = |name: &ListenerName| contracts.is_answered_in_forks(name);
        let place = (&source.thread, &thread);
        let work = turn.map(|turn| past.reopened_work(place, turn, is_answered).unwrap());
        let work = work.unwrap_or_default();
        let threads = past.inherited_threads(place, at);
        let ticket = Uuid::nil();
        let order = ForkOrder { ticket, action, threads, work, payload: checked };
        self.step(Event::Fork(Box::new(order)));
        self.fork_ruling.take().unwrap()
    }

    /// Retries a message as an operator. The fields of `retried` name the message, its tree, its
    /// sender, its recipient and its payload.
    pub fn retry(&mut self, retried: &RetriedCall<'_>) -> RetryRuling {
        let checked = self.gate.check(&name(retried.who), retried.text.as_bytes());
        self.retry_checked(retried, checked)
    }

    /// Retries a message as [`World::retry`] does, with `checked` as the result of the gate. A
    /// replay passes the recorded refusal here.
    pub fn retry_checked(
        &mut self,
        retried: &RetriedCall<'_>,
        checked: Result<Checked, Refusal>,
    ) -> RetryRuling {
        self.submissions += 1;
        let RetriedCall { message, source, thread, who, to, key, again, unknown, .. } = *retried;
        let verdict = match &checked {
            Ok(checked) => Verdict::Passed(checked.payload().digest),
            Err(refusal) => Verdict::Refused(refusal.digest),
        };
        let action = RetryAction {
            message,
            record: Position(1),
            source: source.clone(),
            thread: thread.clone(),
            id: MessageId(Uuid::from_u128(0xe0e0_0000 + u128::from(self.submissions))),
            sender: name(who),
            to: to.map(name),
            key: key.map(str::to_owned),
            is_unknown: unknown,
            is_confirmed: again,
            verdict,
            by: name("whoever"),
            origin: None,
        };
        let order = RetryOrder { ticket: Uuid::nil(), action, payload: checked };
        self.step(Event::RetryMessage(Box::new(order)));
        self.retry_ruling.take().unwrap()
    }

    /// Answers the next order to search the source of a fork for the result of a call. The answer
    /// is a reply of the called listener, a system payload of the core, or nothing.
    pub fn recall(&mut self, found: Option<(MessageKind, &str)>) -> ResultSearch {
        self.recall_at(None, found)
    }

    /// Answers the next search of a fork's source with `found`. `position` is the position of the
    /// result's record in the source.
    pub fn recall_at(
        &mut self,
        position: Option<Position>,
        found: Option<(MessageKind, &str)>,
    ) -> ResultSearch {
        let order = self.recalls.pop_front().expect("a source is searched");
        let result = found.map(|(kind, text)| {
            let payload = Payload::new(text);
            let local = text.trim_start_matches('<').split([' ', '>']).next().unwrap();
            let space = if kind == MessageKind::Reply { NS } else { organism::system::NAMESPACE };
            let name = PayloadName::new(space, local);
            let how = match kind {
                MessageKind::Reply => Closing::Completed,
                _ => Closing::Failed,
            };
            let listener = order.listener.clone();
            let source = CallId(MessageId(Uuid::from_u128(2)));
            CallRecollection {
                source,
                listener,
                how,
                payloads: vec![(kind, name, payload)],
                position,
            }
        });
        self.step(Event::Searched { call: order.call, result });
        order
    }

    /// Submits a decision of an operator or of a human listener. Returns the violated rule, if any.
    pub fn decide(&mut self, call: CallId, decision: Decision<GatedAnswer>) -> Result<(), String> {
        self.decide_as(call, decision, None).map_err(|refusal| refusal.rule.to_string())
    }

    pub fn decide_as(
        &mut self,
        call: CallId,
        decision: Decision<GatedAnswer>,
        origin: Option<DecisionOrigin>,
    ) -> Result<(), Refusal> {
        let (ticket, message) = (Uuid::nil(), call.0);
        let decision = CallDecision { ticket, message, decision, origin };
        self.step(Event::Decide(Box::new(decision)));
        self.ruling.take().unwrap()
    }

    pub fn approve(&mut self, call: CallId, hash: &str) -> Result<(), String> {
        self.decide(call, Decision::Approve { hash: hash.to_owned(), preview: None })
    }

    pub fn refuse(&mut self, call: CallId, reason: &str) -> Result<(), String> {
        self.decide(call, Decision::Refuse { reason: reason.to_owned() })
    }

    pub fn answer_question(&mut self, call: CallId, who: &str, text: &str) -> Result<(), String> {
        let (listener, payload) = (name(who), self.gate.check(&name(who), text.as_bytes()));
        self.decide(call, Decision::Answer(GatedAnswer { listener, payload }))
    }

    /// Reserves an amount for the model call of this delivery. Returns the reason if the call may
    /// not be made.
    pub fn reserve(
        &mut self,
        delivery: &Delivery,
        tokens: u64,
        money: Money,
    ) -> Result<(), String> {
        self.ask_for(delivery, reservation(Spending { tokens, money }))
    }

    pub fn ask_for(&mut self, delivery: &Delivery, asked: Reservation) -> Result<(), String> {
        let (call, attempt) = (delivery.call, delivery.attempt);
        self.step(Event::Reserve { call, attempt, reservation: asked });
        let answer = self.reserved.take().unwrap();
        answer.map_err(|refused| refused.detail().to_owned())
    }

    /// Plays one turn of a model with these tokens and these payloads.
    pub fn turn(&mut self, who: &str, tokens: u64, payloads: &[String]) -> Delivery {
        let delivery = self.delivery(who);
        let note = core("model-turn", "", "");
        let turn = Turn { note, tokens_in: tokens, ..Turn::default() };
        self.answer_turn(&delivery, payloads, Some(turn));
        delivery
    }

    /// Listeners with an open delivery, in the order of hand-over.
    pub fn handed(&self) -> Vec<String> {
        self.deliveries.iter().map(|delivery| delivery.listener.to_string()).collect()
    }

    /// The rules of all refusals on record, in order.
    pub fn refusals(&self) -> Vec<String> {
        let facts = self.records.iter().flat_map(|record| &record.facts);
        let rules = facts.filter_map(|fact| match fact {
            Fact::Refused { sender, refusal, .. } => Some(format!("{sender} {}", refusal.rule)),
            _ => None,
        });
        rules.collect()
    }

    /// The result that a client has for its call, as `how: payloads`; `none` if there is no result.
    pub fn result(&self, call: CallId) -> String {
        match self.results.get(&call) {
            None => "none".to_owned(),
            Some((how, messages)) => {
                let gists: Vec<_> = messages.iter().map(|message| gist(message)).collect();
                format!("{how:?}: {}", gists.join(", ")).to_lowercase()
            }
        }
    }
}

/// A core with memory limits of 0: everything that may leave memory leaves it.
pub fn resident(core: Core) -> ResidentCore {
    let limits = ResidencyLimits { trees: 0, threads: 0, waiting: 0, keys: 0, batch: 0 };
    ResidentCore::with_store(core, RestingStore::in_memory(), limits)
}

/// Gives a core these schedules. The core runs all of them, because its partition is the only one.
fn scheduled(core: Core, schedules: Option<&[Schedule]>, gate: &Gate) -> Core {
    match schedules {
        Some(schedules) => core.with_schedules(Schedules::new(schedules, gate, (0, 1)).unwrap()),
        None => core,
    }
}

/// Replays the scenario when the world is dropped. Asserts that the state of the core is the state
/// that follows from the records.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.shadow.state(), self.core.state(), "rebuilt state is live state");
            self.check_waiting();
            self.check_replay();
            self.check_snapshots();
            crate::journal::substrate::comes_back(&self.records);
        }
    }
}

/// Summary of a message: `local(text)` for a payload of the tests, and the name with its main
/// attributes for a core payload.
pub fn gist(message: &Message) -> String {
    let text = message.payload.as_str();
    let local = &message.name.local;
    if message.kind != MessageKind::System && !message.name.namespace.starts_with("https:") {
        let inner = text.split_once("<text>").and_then(|(_, rest)| rest.split_once("</text>"));
        return format!("{local}({})", inner.map_or("", |(inner, _)| inner));
    }
    let telling = [
        "code",
        "status",
        "assigned_id",
        "unknown_id",
        "kept_messages",
        "label",
        "for",
        "budget",
        "from",
    ];
    let start = text.split_once('>').map_or(text, |(start, _)| start);
    let attributes = telling.iter().filter_map(|name| {
        let (_, rest) = start.split_once(&format!(" {name}=\""))?;
        let (value, _) = rest.split_once('"')?;
        Some(format!(" {value}"))
    });
    let first: String = attributes.take(2).collect();
    format!("{local}{first}")
}

/// Summaries of the new messages in a delivery.
pub fn fresh(delivery: &Delivery) -> Vec<String> {
    let skip = delivery.messages.len() - delivery.fresh;
    delivery.messages[skip..].iter().map(|message| gist(message)).collect()
}

/// A reservation for a prompt whose tokens were counted. The route has no limit for the number of
/// requests.
pub fn reservation(spending: Spending) -> Reservation {
    Reservation { spending, counted: true, request: 0, route: None }
}

/// The record as a journal returns it: from its text and the bytes of its payloads.
pub fn reread(record: &Record) -> Record {
    let mut text = Vec::new();
    record.write_text(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let payloads: String = record.payloads().map(|payload| payload.as_str()).collect();
    let mut names = InternedNames::default();
    let mut read = |text: &str| {
        let (input, facts) = read(text, Some(&payloads), &record.tree, record.time, &mut names)
            .unwrap_or_else(|error| panic!("{error}: {text}"));
        Record { input, facts, ..record.clone() }
    };
    let reread = read(&text);
    assert_eq!(reread, *record, "{text}");
    // Another spelling of the same JSON gives the same record.
    assert_eq!(read(&format!(" {text}")), *record, "{text}");
    reread
}
