//! Setup of one agent: contracts, schemas, a thread and played turns.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use organism::agent::{self, AgentEnvironment, AgentOptions, ModelAgent, TurnServices};
use organism::bus::{Delivery, DeliveryPreview, Outcome};
use organism::contract::{Contract, Contracts, Role};
use organism::envelope::{AttemptFailure, MessageKind, NotReserved, Reservation};
use organism::ids::{Attempt, CallId, MessageId, PayloadName};
use organism::model::{PlaybackModel, SharedModel};
use organism::schema::Schemas;
use organism::system;

use super::story::{ROOT, Story, listener, story_message, thread};

pub const TOOLS: &str = "https://xml-pipeline.org/ns/test-tools/v1";
pub const RESEARCH_NAMESPACE: &str = "https://xml-pipeline.org/ns/research-desk/v1";

/// Returns the schemas of these tests. They are compiled once, because each compilation starts a
/// child process.
pub fn schemas() -> Schemas {
    static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
    SCHEMAS.get_or_init(compiled).clone()
}

fn compiled() -> Schemas {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut schemas = Schemas::default();
    schemas.add_builtin("core.xsd", system::SCHEMA).unwrap();
    schemas.add_builtin("agent.xsd", agent::SCHEMA).unwrap();
    for file in ["tests/data/agent/tools.xsd", "config/research-desk/research-desk.xsd"] {
        schemas.add_file(&root.join(file)).unwrap();
    }
    schemas
}

/// Contracts of a researcher that has three tools. The researcher ends its call with
/// `attempt_completion` or with the payload `answer`.
pub fn contracts() -> Arc<Contracts> {
    let names = |ns: &str, locals: &[&str]| {
        locals.iter().map(|local| PayloadName::new(ns, local)).collect::<Vec<_>>()
    };
    let mut replies = names(RESEARCH_NAMESPACE, &["answer"]);
    replies.push(agent::attempt_completion());
    let researcher = Contract {
        description: "Answers questions.".to_owned(),
        accepts: names(RESEARCH_NAMESPACE, &["question"]),
        replies,
        peers: vec![listener("code")],
        ..Contract::new(listener("researcher"), Role::Agent)
    };
    let code = Contract {
        description: "knows the code".to_owned(),
        accepts: names(TOOLS, &["search", "extract", "query"]),
        replies: names(TOOLS, &["found"]),
        ..Contract::new(listener("code"), Role::Listener)
    };
    Arc::new(Contracts::new(vec![researcher, code]).unwrap())
}

pub fn options() -> AgentOptions {
    let contracts = contracts();
    let contract = contracts.get(&listener("researcher")).unwrap().clone();
    let environment = AgentEnvironment {
        os: "linux".to_owned(),
        shell: "bash".to_owned(),
        runtime: "organism 0.1.0".to_owned(),
        date: None,
    };
    AgentOptions { environment, ..AgentOptions::new(contract, contracts, schemas()) }
}

/// Options of an agent that ends its call with one of the given payloads.
pub fn options_with_finals(finals: &[PayloadName]) -> AgentOptions {
    let mut options = options();
    options.contract.replies = finals.to_vec();
    let mut all: Vec<Contract> = options.contracts.iter().cloned().collect();
    for contract in all.iter_mut().filter(|contract| contract.name == options.contract.name) {
        contract.replies = finals.to_vec();
    }
    options.contracts = Arc::new(Contracts::new(all).unwrap());
    options
}

/// A model that writes `raw` as the agent's turn number `turn`.
pub fn says(turn: u32, raw: &str, stop: &str) -> SharedModel {
    let raw = toml::Value::String(raw.to_owned());
    let recording = format!(
        "recorded = \"a test\"\n[[turn]]\nagent = \"researcher\"\nturn = {turn}\nstop = \"{stop}\"\ntext = {raw}\n"
    );
    Arc::new(PlaybackModel::parse("test.toml", &recording).unwrap())
}

/// A thread that begins with a question of the client.
pub fn question_thread() -> (Story, MessageId) {
    let mut story = Story::default();
    let question =
        format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>where?</part></question>");
    let call = story.say(story_message("desk", "researcher", MessageKind::Call, &question));
    (story, call)
}

pub fn delivery(story: &Story, call: MessageId) -> Delivery {
    Delivery {
        listener: listener("researcher"),
        call: CallId(call),
        thread: thread(ROOT),
        attempt: Attempt { epoch: 1, n: 1 },
        messages: Vec::new(),
        fresh: 0,
        position: story.position(),
        timeout: Duration::from_secs(60),
        trace: None,
        preview: DeliveryPreview::None,
        source: None,
        uncounted: Vec::new(),
    }
}

/// A call context without budgets, where no call is cancelled.
struct Alone;

impl TurnServices for Alone {
    async fn reserve(&self, _: Reservation) -> Option<Result<(), NotReserved>> {
        Some(Ok(()))
    }

    async fn cancelled(&self) {
        std::future::pending().await
    }

    fn progress(&self) {}
}

pub fn take(agent: &ModelAgent, delivery: &Delivery) -> Result<Outcome, AttemptFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(agent.turn(delivery, &Alone))
}

/// Returns the outcome of a call's first turn, in which the model writes `raw`.
pub fn turn(raw: &str) -> Outcome {
    let (story, call) = question_thread();
    let agent = ModelAgent::new(options(), says(1, raw, "normal"), Arc::new(story.clone()));
    take(&agent, &delivery(&story, call)).unwrap()
}

pub fn payloads(outcome: &Outcome) -> Vec<String> {
    outcome.payloads.iter().map(|bytes| String::from_utf8(bytes.clone()).unwrap()).collect()
}
