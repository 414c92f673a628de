//! Processor time of the workflow engine alone. The engine handles the deliveries of a recorded run
//! a second time, without pump and journal.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use organism::bus::{Delivery, DeliveryPreview};
use organism::config::Config;
use organism::envelope::Message;
use organism::ids::{Attempt, CallId, Digest, Position, ThreadId};
use organism::journal::sqlite::JournalReader;
use organism::thread::{Fact, Record};
use organism::workflow::{
    IdentifiedDefinition, RunArchive, RunDefinitions, WorkflowDefinition, WorkflowHandler,
};

use super::cpu;
use super::figures::{Bench, median};
use super::floor::directory;
use super::relay::listener;
use super::workflows::{Shape, chain_of, each_of, organism_of, run_once};

const GOALS: usize = 2_000;
/// Number of goals of the short run, whose cost per goal is the floor for the run of `GOALS` goals.
const FEW_GOALS: usize = 200;

/// Adds two figures. Each is the engine's processor time per goal in a run of 2,000 goals, compared
/// with a run of 200 goals. In the first figure, the goals are the items of one list; in the
/// second, the goals run one after the other.
pub fn goals(bench: &mut Bench) {
    for (name, shape) in
        [("engine_items", each_of as fn(usize) -> Shape), ("engine_chain", chain_of)]
    {
        let many = of(shape(GOALS), GOALS, bench.runs);
        let few = of(shape(FEW_GOALS), FEW_GOALS, bench.runs);
        bench.figures.add(name, many, "us CPU", Some(few));
    }
}

/// Returns the median processor time of the engine per goal, in microseconds.
fn of(shape: Shape, goals: usize, runs: usize) -> f64 {
    let place = directory("flow");
    let config = organism_of(&place, &shape.turns, Duration::ZERO, &shape.text);
    run_once(config.clone(), &shape);

    let messages = messages(&place);
    assert!(messages.len() > goals, "{} messages", messages.len());
    median(runs, || play(&handler(&config), &messages) / goals as f64)
}

/// Returns the messages of the only call of the workflow, from the journal in `place`.
fn messages(place: &Path) -> Vec<Arc<Message>> {
    let reader = JournalReader::open(&place.join("data")).unwrap();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let facts = records.into_iter().flat_map(|sealed| sealed.record.facts);
    let all: Vec<Arc<Message>> = facts
        .filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.to == listener("fan") => Some(message),
            _ => None,
        })
        .collect();
    let call = all[0].call;
    all.into_iter().filter(|message| message.call == call).collect()
}

fn handler(config: &Config) -> WorkflowHandler {
    let workflow = &config.workflows[0];
    let definition = Arc::new(workflow.definition.clone());
    let current = IdentifiedDefinition { digest: workflow.compiled.digest, definition };
    let definitions = RunDefinitions { current: Some(current), ..RunDefinitions::default() };
    let (contracts, schemas) = (&config.contracts, &config.schemas);
    WorkflowHandler::new(listener("fan"), definitions, contracts, schemas, Arc::new(NoRuns))
}

/// Delivers the messages one by one: each delivery contains one new message and all earlier ones.
/// Returns the processor time of the handler in microseconds.
fn play(handler: &WorkflowHandler, messages: &[Arc<Message>]) -> f64 {
    let mut micros = 0.0;
    for count in 1..=messages.len() {
        let delivery = Delivery {
            listener: listener("fan"),
            call: messages[0].call.unwrap(),
            thread: messages[0].thread.clone(),
            attempt: Attempt { epoch: 1, n: 1 },
            messages: messages[..count].to_vec(),
            fresh: 1,
            position: Position(count as u64),
            timeout: Duration::from_secs(60),
            trace: None,
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        };
        micros += cpu::micros(|| drop(handler.outcome(&delivery).unwrap()));
    }
    micros
}

/// A source of earlier runs that contains no run.
struct NoRuns;

impl RunArchive for NoRuns {
    fn messages(&self, _: &ThreadId) -> Result<Vec<Arc<Message>>, String> {
        Err("there are no earlier runs".to_owned())
    }

    fn definition(&self, _: Digest) -> Result<Arc<WorkflowDefinition>, String> {
        Err("there are no earlier runs".to_owned())
    }

    fn tree_records(&self, _: Position) -> Result<Vec<Record>, String> {
        Err("there are no earlier runs".to_owned())
    }

    fn handed_over(
        &self,
        _: &HashSet<CallId>,
        _: Position,
        _: Position,
    ) -> Result<HashSet<CallId>, String> {
        Ok(HashSet::new())
    }
}
