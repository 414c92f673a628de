//! An agent on a real pump, without a disk. Its model and its peers are scripted, and the agent
//! reads the records of the pump.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use organism::agent::{ActionTransport, AgentOptions, ModelAgent, PastTurn};
use organism::bus::Delivery;
use organism::clock::Time;
use organism::contract::{
    Contract, Contracts, GoalDelegation, GoalRoles, Role, TreeLimits, TypedAnswer, delegate_name,
    delegate_output_name, goal_schema, write_goal_request,
};
use organism::envelope::{Message, Turn};
use organism::ids::{Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use organism::journal;
use organism::memory::ThreadHistory;
use organism::model::SharedModel;
use organism::pump::core::{Core, Effect, Event, Submission, Target};
use organism::pump::gate::Gate;
use organism::schema::{SchemaCompiler, Schemas};
use organism::thread::{Closing, Fact, Record};
use organism::xml::element::Element;
use organism::xml::shape::QName;
use uuid::Uuid;

use super::scripted::{Says, Scripted};
use super::setup::{RESEARCH_NAMESPACE, TOOLS, options, schemas};
use super::story::listener;

/// The records of the journal. The pump appends records, and the agent reads them.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<Record>>>);

impl ThreadHistory for Records {
    fn records(
        &self,
        _: &ThreadId,
        after: Position,
        up_to: Position,
    ) -> Result<Vec<Record>, journal::Error> {
        let records = self.0.lock().unwrap();
        Ok(records
            .iter()
            .filter(|record| record.position > after && record.position <= up_to)
            .cloned()
            .collect())
    }
}

/// Function that returns the payloads with which a peer answers a message.
type Answers = Box<dyn Fn(&ListenerName, &Message) -> Vec<Vec<u8>>>;

pub struct Stage {
    core: Core,
    gate: Gate,
    agent: ModelAgent,
    options: AgentOptions,
    model: SharedModel,
    records: Records,
    answers: Answers,
    now: Time,
    deliveries: VecDeque<Delivery>,
    submissions: u128,
    /// How each call of the client ended, with its result.
    pub results: Vec<(Closing, Vec<String>)>,
    /// Turns of the agent, in order.
    pub turns: Vec<Turn>,
}

/// The contracts of a client, the researcher, and its peers. Two of the peers can search.
fn contracts(mut researcher: Contract) -> Arc<Contracts> {
    researcher.peers = vec![listener("code"), listener("web")];
    let base = super::setup::contracts();
    let mut code = base.get(&listener("code")).unwrap().clone();
    let names = |locals: &[&str]| {
        let named = |local: &&str| organism::ids::PayloadName::new(TOOLS, local);
        locals.iter().map(named).collect::<Vec<_>>()
    };
    code.replies = names(&["found", "search-error"]);
    let web = Contract {
        description: "knows the web".to_owned(),
        accepts: names(&["search"]),
        replies: code.replies.clone(),
        ..Contract::new(listener("web"), Role::Listener)
    };
    let client = Contract {
        peers: vec![listener("researcher")],
        ..Contract::new(listener("desk"), Role::Client)
    };
    Arc::new(Contracts::new(vec![client, researcher, code, web]).unwrap())
}

/// The default answer of a peer.
fn found(peer: &ListenerName, asked: &Message) -> Vec<Vec<u8>> {
    let found = format!("<found xmlns=\"{TOOLS}\">{peer} on {}</found>", asked.name.local);
    vec![found.into_bytes()]
}

/// The researcher of these tests, with the given transport.
pub fn researcher(transport: ActionTransport) -> AgentOptions {
    let mut options = options();
    options.contract.actions_per_turn = 8;
    options.contract.replies = vec![organism::agent::attempt_completion()];
    options.transport = transport;
    options
}

/// Schema of the delegate payload, as a workflow generates it for a goal with roles.
const DELEGATE_SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:d="NAMESPACE" targetNamespace="NAMESPACE">
  <xs:element name="delegate">
    <xs:annotation><xs:documentation>Gives a task to another agent in a role.</xs:documentation></xs:annotation>
    <xs:complexType><xs:simpleContent><xs:extension base="xs:token">
      <xs:attribute name="role" type="xs:token" use="required"/>
    </xs:extension></xs:simpleContent></xs:complexType>
  </xs:element>
</xs:schema>"#;

impl Stage {
    pub fn new(transport: ActionTransport, turns: Vec<Says>) -> (Self, Arc<Scripted>) {
        let model = Scripted::new(transport, turns);
        (Self::with(researcher(transport), model.clone()), model)
    }

    pub fn with(options: AgentOptions, model: SharedModel) -> Self {
        let contracts = contracts(options.contract.clone());
        Self::of(contracts, schemas(), options, model)
    }

    /// Creates a stage with a workflow that sends `document` to the researcher as a goal. The reply
    /// of the workflow is a `found` payload with the text of the researcher's answer.
    pub fn with_goal(document: &str, options: AgentOptions, model: SharedModel) -> Self {
        Self::with_goal_for(document, None, options, model)
    }

    /// Creates a stage with a goal for the researcher. With `answer`, only this payload answers the
    /// goal.
    pub fn with_goal_for(
        document: &str,
        answer: Option<PayloadName>,
        options: AgentOptions,
        model: SharedModel,
    ) -> Self {
        Self::with_goal_of(document, answer, None, options, model)
    }

    /// Creates a stage with a goal for the researcher. The researcher may delegate tasks of this
    /// goal to agents in roles.
    pub fn with_roles(document: &str, options: AgentOptions, model: SharedModel) -> Self {
        let roles = GoalRoles {
            payload: delegate_name(&listener("flow"), "report"),
            to: listener("researcher"),
            max: Some(3),
            depth: 1,
        };
        Self::with_goal_of(document, None, Some(roles), options, model)
    }

    fn with_goal_of(
        document: &str,
        answer: Option<PayloadName>,
        roles: Option<GoalRoles>,
        mut options: AgentOptions,
        model: SharedModel,
    ) -> Self {
        let agent = listener("researcher");
        let mut all: Vec<_> = contracts(options.contract.clone()).iter().cloned().collect();
        all[0].peers.push(listener("flow"));
        let names = |local: &str| vec![organism::ids::PayloadName::new(TOOLS, local)];
        all.push(Contract {
            accepts: names("query"),
            replies: names("found"),
            peers: vec![agent.clone()],
            answers: answer
                .iter()
                .map(|payload| TypedAnswer { agent: agent.clone(), payload: payload.clone() })
                .collect(),
            delegations: roles
                .iter()
                .map(|roles| GoalDelegation {
                    agent: agent.clone(),
                    payload: roles.payload.clone(),
                    to: roles.to.clone(),
                })
                .collect(),
            ..Contract::new(listener("flow"), Role::Workflow)
        });
        let contracts = Arc::new(Contracts::new(all).unwrap());
        let mut with_goals = schemas();
        with_goals
            .add_generated(&mut SchemaCompiler::default(), "goals", &goal_schema(&agent))
            .unwrap();
        if let Some(roles) = &roles {
            let namespace = &roles.payload.namespace;
            let schema = DELEGATE_SCHEMA.replace("NAMESPACE", namespace);
            let mut compiler = SchemaCompiler::default();
            with_goals.add_generated(&mut compiler, "roles", &schema).unwrap();
            with_goals.add_builtin("workflow.xsd", organism::workflow::SCHEMA).unwrap();
        }
        options.schemas = with_goals.clone();
        let goal = write_goal_request(&agent, document, answer.as_ref(), roles.as_ref());
        let goal = goal.into_bytes();
        Self::of(contracts, with_goals, options, model).answering(move |peer, asked| match &*asked
            .name
            .local
        {
            _ if peer.as_str() != "flow" => found(peer, asked),
            "query" => vec![goal.clone()],
            "delegate" => {
                let task = Element::read(asked.payload.as_str()).unwrap();
                let role = task.attribute("role").unwrap().to_owned();
                let output = Element::new(QName::from(&delegate_output_name()));
                let output = output.with_attribute("role", role).with_text(task.text());
                vec![output.to_xml().into_bytes()]
            }
            _ => {
                let answer = Element::read(asked.payload.as_str()).unwrap().text();
                let answer = organism::xml::escape::escape_text(&answer);
                let local = &asked.name.local;
                vec![format!("<found xmlns=\"{TOOLS}\">{local}: {answer}</found>").into_bytes()]
            }
        })
    }

    fn of(
        contracts: Arc<Contracts>,
        schemas: Schemas,
        mut options: AgentOptions,
        model: SharedModel,
    ) -> Self {
        options.contract = contracts.get(&listener("researcher")).unwrap().clone();
        options.contracts = contracts.clone();
        let (limits, config) = (TreeLimits::default(), Digest::of(b"config"));
        let records = Records::default();
        let mut stage = Self {
            core: Core::new(contracts.clone(), limits, config),
            gate: Gate::new(contracts, schemas),
            agent: ModelAgent::new(options.clone(), model.clone(), Arc::new(records.clone())),
            options,
            model,
            records,
            answers: Box::new(found),
            now: Time(1_700_000_000_000_000),
            deliveries: VecDeque::new(),
            submissions: 0,
            results: Vec::new(),
            turns: Vec::new(),
        };
        let journal = Uuid::from_u128(7);
        stage.step(Event::Boot { journal, epoch: 1, detail: "test".to_owned(), blobs: Vec::new() });
        stage
    }

    /// Sets the answers of the peers.
    pub fn answering(
        mut self,
        answers: impl Fn(&ListenerName, &Message) -> Vec<Vec<u8>> + 'static,
    ) -> Self {
        self.answers = Box::new(answers);
        self
    }

    /// Continues the thread with another model or another config.
    pub fn recast(&mut self, mut options: AgentOptions, model: SharedModel) {
        options.contracts = self.gate.contracts.clone();
        options.contract = options.contracts.get(&listener("researcher")).unwrap().clone();
        self.options = options;
        self.model = model;
        self.agent = self.new_agent();
    }

    /// Makes an agent with the options of this stage. The agent has not read the thread yet.
    fn new_agent(&self) -> ModelAgent {
        let records = Arc::new(self.records.clone());
        ModelAgent::new(self.options.clone(), self.model.clone(), records)
    }

    fn step(&mut self, event: Event) {
        self.now = self.now.plus(Duration::from_millis(1));
        let position = Position(self.records.0.lock().unwrap().len() as u64 + 1);
        let mut step = self.core.step(position, self.now, event);
        for effect in std::mem::take(&mut step.effects) {
            match effect {
                Effect::Deliver(delivery) => self.deliveries.push_back(delivery),
                Effect::Result { how, messages, .. } => {
                    let texts = messages.iter().map(|m| m.payload.as_str().to_owned());
                    self.results.push((how, texts.collect()));
                }
                Effect::Withdraw { .. }
                | Effect::Receipt { .. }
                | Effect::Alarm { .. }
                | Effect::Alarms(_)
                | Effect::Held { .. }
                | Effect::CountBusy { .. }
                | Effect::Reserved { .. }
                | Effect::Recall(_)
                | Effect::Ruled { .. } => {}
            }
        }
        if let Some(record) = step.into_record() {
            self.records.0.lock().unwrap().push(record);
        }
    }

    /// Submits a request and runs until no delivery is open.
    pub fn ask(&mut self) -> &mut Self {
        self.ask_in(Target::New { suggested: Some("sess-stage0001".to_owned()) })
    }

    /// Submits another request of the client in the same thread.
    pub fn ask_again(&mut self) -> &mut Self {
        self.ask_in(Target::Thread { id: "sess-stage0001".to_owned() })
    }

    /// Submits a request of the client to the workflow.
    pub fn start_workflow(&mut self) -> &mut Self {
        let query = format!("<query xmlns=\"{TOOLS}\">go</query>");
        self.submit(Target::New { suggested: Some("sess-stage0002".to_owned()) }, &query)
    }

    /// Submits a first request of the client that consists of `text`.
    pub fn ask_about(&mut self, text: &str) -> &mut Self {
        let question =
            format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>{text}</part></question>");
        self.submit(Target::New { suggested: Some("sess-stage0001".to_owned()) }, &question)
    }

    fn ask_in(&mut self, target: Target) -> &mut Self {
        let question =
            format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>where?</part></question>");
        self.submit(target, &question)
    }

    fn submit(&mut self, target: Target, question: &str) -> &mut Self {
        self.submissions += 1;
        let client = listener("desk");
        let payload = self.gate.check(&client, question.as_bytes());
        let id = 0x0197_0000_0000_7000_8000_0000_0000_0000 + self.submissions;
        let id = MessageId(Uuid::from_u128(id));
        let (key, trace, begun) = (None, None, None);
        let refused_digest = None;
        let submission =
            Submission { id, client, target, key, payload, refused_digest, trace, begun };
        self.step(Event::Submit(Box::new(submission)));
        while let Some(delivery) = self.deliveries.pop_front() {
            self.work(&delivery);
        }
        self
    }

    fn work(&mut self, delivery: &Delivery) {
        if delivery.listener.as_str() == "researcher" {
            // An agent that has kept the thread asks for exactly what another one would ask for.
            let requests = [&self.agent, &self.new_agent()].map(|agent| agent.rendered(delivery));
            assert_eq!(requests[0], requests[1]);
        }
        let (payloads, turn) = match delivery.listener.as_str() {
            "researcher" => match super::setup::take(&self.agent, delivery) {
                Ok(outcome) => {
                    self.turns.extend(outcome.turn.clone());
                    (outcome.payloads, outcome.turn)
                }
                Err(failure) => {
                    let (listener, call) = (delivery.listener.clone(), delivery.call);
                    let attempt = delivery.attempt;
                    return self.step(Event::Failed { listener, call, attempt, failure });
                }
            },
            _ => {
                let asked = delivery.messages.last().unwrap();
                ((self.answers)(&delivery.listener, asked), None)
            }
        };
        let gated = payloads.iter().map(|text| self.gate.check(&delivery.listener, text));
        let payloads = gated.collect();
        let (listener, call, attempt) =
            (delivery.listener.clone(), delivery.call, delivery.attempt);
        let turn = turn.map(Box::new);
        self.step(Event::Outcome { listener, call, attempt, payloads, turn, arrived: None });
    }

    fn facts(&self) -> Vec<Fact> {
        let records = self.records.0.lock().unwrap();
        records.iter().flat_map(|record| record.facts.clone()).collect()
    }

    pub fn messages(&self) -> Vec<Message> {
        let of = |fact| match fact {
            Fact::Accepted { message, .. } => Some(Message::clone(&message)),
            _ => None,
        };
        self.facts().into_iter().filter_map(of).collect()
    }

    /// All records of the thread except the turns: one line for each message or refusal.
    pub fn transcript(&self) -> String {
        let core = ListenerName::core();
        let lines = self.facts().into_iter().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if &*message.name.local == "model-turn" => None,
            Fact::Accepted { message, .. } if message.thread == ThreadId::organism() => None,
            Fact::Accepted { message, .. } => {
                let Message { kind, from, to, payload, .. } = &*message;
                let bare = payload.as_str().replace(&format!(" xmlns=\"{TOOLS}\""), "");
                let bare = bare.replace(&format!(" xmlns=\"{RESEARCH_NAMESPACE}\""), "");
                let bare = bare.replace(&format!(" xmlns=\"{}\"", organism::system::NAMESPACE), "");
                let bare = bare.replace(&format!(" xmlns=\"{}\"", organism::agent::NAMESPACE), "");
                let from = if *from == core { "core".to_owned() } else { from.to_string() };
                Some(format!("{} {from}>{to} {bare}\n", kind.as_str()))
            }
            Fact::Refused { refusal, .. } => Some(format!("- refused {}\n", refusal.rule)),
            _ => None,
        });
        lines.collect()
    }

    /// The notes of the agent's turns.
    pub fn notes(&self) -> Vec<String> {
        self.turns.iter().map(|turn| turn.note.clone()).collect()
    }

    pub fn past(&self) -> Vec<PastTurn> {
        self.notes().iter().map(|note| PastTurn::read(note).unwrap()).collect()
    }

    /// Digests of the agent's accepted payloads, and of the refused payloads.
    pub fn digests(&self) -> (Vec<Digest>, Vec<Digest>) {
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for fact in self.facts() {
            match fact {
                Fact::Accepted { message, .. } if message.from == listener("researcher") => {
                    accepted.push(message.payload.digest);
                }
                Fact::Refused { refusal, .. } => refused.push(refusal.digest),
                _ => {}
            }
        }
        (accepted, refused)
    }
}
