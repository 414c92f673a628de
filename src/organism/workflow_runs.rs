//! Definitions of open runs, read from the journal.
//!
//! A run keeps the definition with which it began. At the start of an organism, the definitions of
//! all open runs are read from the journal. The definition of an ended run is read when a retry
//! continues that run.
//!
//! The config may no longer have the workflow of an open run. Such a workflow still gets a
//! contract, which accepts no requests, and allows only those peers that still exist.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::{add_goals, fork_recalls, joined};
use crate::config::Config;
use crate::contract::{Budget, Contract, Contracts, Role};
use crate::envelope::Message;
use crate::ids::{CallId, Digest, ListenerName, PayloadName, Position, ThreadId};
use crate::journal;
use crate::journal::sqlite::JournalReader;
use crate::memory::JournalMemory;
use crate::pump::ResidentCore;
use crate::schema::{SchemaCompiler, SchemaProblem};
use crate::thread::{Call, Fact, Record, State, Tree};
use crate::workflow::{
    HandedOverAttempts, IdentifiedDefinition, RunArchive, RunDefinitions, WorkflowDefinition,
    compile, delegate_schemas, delegations, failed_name, generated_answer, goal_schema,
    has_verdicts, is_undo_report, output_name, peers_of, question_name, question_schema,
    read_compiled, recorded_definition, run_schema, typed_answers, verdict_name, verdict_schema,
    workflow_questions,
};

/// The definitions for new runs and for the runs that are open in the journal. All these runs can
/// continue under `config`.
pub(super) struct WorkflowRuns {
    /// The config, extended by the contracts and schemas of workflows that only open runs still
    /// use.
    pub config: Arc<Config>,
    pub definitions: BTreeMap<ListenerName, RunDefinitions>,
}

/// Maximum records in memory while the journal is searched.
const RECORDS_AT_ONCE: u64 = 1_000;

/// Source of the ended runs that the journal contains.
pub struct JournalRuns {
    pub(super) data: PathBuf,
    pub(super) memory: Arc<JournalMemory>,
    /// Data directories of the journals that may contain the source threads of forks.
    pub(super) sources: Vec<PathBuf>,
}

impl JournalRuns {
    pub fn new(data: PathBuf) -> Self {
        let memory = Arc::new(JournalMemory::new(data.clone()));
        let sources = vec![data.clone()];
        Self { data, memory, sources }
    }

    /// Searches the records from `from` to `up_to`, and returns those of `calls` that were handed
    /// over to their listeners. A fork may have answered a call with the recorded result of a call
    /// in the fork's source. Such a call counts as handed over if the call in the source was handed
    /// over.
    fn search_hand_overs(
        &self,
        reader: &JournalReader,
        calls: &HashSet<CallId>,
        (from, up_to): (Position, Position),
    ) -> Result<HashSet<CallId>, journal::Error> {
        let mut hand_overs = HandedOverAttempts::default();
        let mut found = HashSet::new();
        let mut next = from;
        while next <= up_to && !calls.iter().all(|call| hand_overs.is_settled(*call)) {
            let last = Position(next.0 + RECORDS_AT_ONCE - 1).min(up_to);
            for sealed in reader.records(next, last)? {
                for fact in &sealed.record.facts {
                    hand_overs.read(fact, |call| calls.contains(&call));
                    if let Fact::Recalled { call, source } = fact
                        && calls.contains(call)
                        && self.was_source_handed_over(reader, &sealed.record.tree, *source)?
                    {
                        found.insert(*call);
                    }
                }
            }
            next = Position(last.0 + 1);
        }

        found.extend(calls.iter().filter(|call| hand_overs.was_handed_over(**call)));
        Ok(found)
    }

    /// Whether `call` was handed over to its listener. `call` is in the source of the fork `fork`,
    /// and `reader` reads the journal of this fork. False if no journal has the source.
    fn was_source_handed_over(
        &self,
        reader: &JournalReader,
        fork: &ThreadId,
        call: CallId,
    ) -> Result<bool, journal::Error> {
        let fork = reader.tree(fork, None)?;
        let first = fork.first().map(|first| &first.record);
        let Some(source) = first.and_then(Record::fork_source) else { return Ok(false) };

        let source_reader = fork_recalls::source_reader(&self.sources, &source.thread)?;
        let Some(reader) = source_reader else { return Ok(false) };

        let records = reader.tree(&source.thread, None)?;
        let opens_call =
            |record: &Record| record.accepted_messages().any(|message| CallId(message.id) == call);
        let opened = records.iter().find(|sealed| opens_call(&sealed.record));
        let Some(opened) = opened else { return Ok(false) };

        // The recursion over forks of forks ends, because a source is older than its fork.
        let range = (opened.record.position, reader.last()?);
        let found = self.search_hand_overs(&reader, &HashSet::from([call]), range)?;
        Ok(found.contains(&call))
    }
}

impl RunArchive for JournalRuns {
    fn messages(&self, thread: &ThreadId) -> Result<Vec<Arc<Message>>, String> {
        let records = self.memory.thread(thread).map_err(|error| error.to_string())?;
        let facts = records.into_iter().flat_map(|record| record.facts);
        let messages = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.thread == *thread => Some(message),
            _ => None,
        });
        Ok(messages.collect())
    }

    fn definition(&self, digest: Digest) -> Result<Arc<WorkflowDefinition>, String> {
        let reader = JournalReader::open(&self.data).map_err(|error| error.to_string())?;
        definition(&reader, digest).map(Arc::new)
    }

    fn tree_records(&self, up_to: Position) -> Result<Vec<Record>, String> {
        self.memory.tree(up_to).map_err(|error| error.to_string())
    }

    fn handed_over(
        &self,
        calls: &HashSet<CallId>,
        from: Position,
        up_to: Position,
    ) -> Result<HashSet<CallId>, String> {
        let search = || {
            let reader = JournalReader::open(&self.data)?;
            self.search_hand_overs(&reader, calls, (from, up_to))
        };
        search().map_err(|error: journal::Error| error.to_string())
    }
}

/// Recorded definitions, by workflow and by digest. The record of a run contains the digest of its
/// definition.
type RecordedDefinitions = BTreeMap<ListenerName, BTreeMap<Digest, Arc<WorkflowDefinition>>>;

/// Collects the definitions of the workflows in the config. Leaves out definitions that only open
/// runs still use.
pub(super) fn of_config(config: &Config) -> BTreeMap<ListenerName, RunDefinitions> {
    let definitions = config.workflows.iter().map(|workflow| {
        let definition = Arc::new(workflow.definition.clone());
        let current = IdentifiedDefinition { digest: workflow.compiled.digest, definition };
        let name = workflow.definition.name.value.clone();
        (name, RunDefinitions { current: Some(current), ..Default::default() })
    });
    definitions.collect()
}

/// Collects the definitions of the config and of the open runs.
pub(super) fn at_start(config: &Arc<Config>, open: OpenDefinitions) -> WorkflowRuns {
    let mut definitions = of_config(config);
    let is_known = |name: &ListenerName, digest: Digest| {
        let known: Option<&RunDefinitions> = definitions.get(name);
        known.is_some_and(|known| known.of_digest(digest).is_some())
    };
    let unknown = open.0.into_iter().filter(|(name, digest)| !is_known(name, *digest)).collect();
    let recorded = recorded(config, unknown);
    if recorded.is_empty() {
        return WorkflowRuns { config: Arc::clone(config), definitions };
    }

    let (config, recorded) = match extended(config, &recorded) {
        Ok(extended) => (extended, recorded),
        Err(_) => extended_as_far_as_possible(config, recorded),
    };
    for (name, recorded) in recorded {
        let is_workflow =
            config.contracts.get(&name).is_some_and(|contract| contract.role == Role::Workflow);
        if is_workflow {
            definitions.entry(name).or_default().recorded = recorded;
        }
    }
    WorkflowRuns { config, definitions }
}

/// The definitions of the open runs. Each is named by its workflow and by the digest that the run
/// recorded.
#[derive(Debug, Default)]
pub(super) struct OpenDefinitions(BTreeSet<(ListenerName, Digest)>);

impl OpenDefinitions {
    /// Returns the definitions of the open runs in a state.
    pub fn of(state: &State) -> Self {
        let mut open = Self::default();
        state.trees.values().flat_map(Tree::open_calls).for_each(|call| open.add(call));
        open
    }

    /// Returns the definitions of all open runs, including runs in trees that have left the memory
    /// of the pump.
    ///
    /// # Errors
    ///
    /// Returns the reason if a call in such a tree cannot be read.
    pub fn also_outside(core: &ResidentCore) -> Result<Self, journal::Error> {
        let mut open = Self::of(core.state());
        core.visit_calls_outside(|call| open.add(call))?;
        Ok(open)
    }

    fn add(&mut self, call: &Call) {
        let pending = call.pending.iter().map(|pending| &pending.message);
        let mut messages = call.handled.iter().chain(pending);
        let digest = messages.find_map(|message| recorded_definition(message, &call.callee));
        self.0.extend(digest.map(|digest| (call.callee.clone(), digest)));
    }
}

/// Reads definitions from the journal. If a definition cannot be read, logs the error and leaves
/// the definition out; the runs of this definition then fail.
fn recorded(config: &Config, wanted: BTreeSet<(ListenerName, Digest)>) -> RecordedDefinitions {
    let mut found = RecordedDefinitions::new();
    if wanted.is_empty() {
        return found;
    }

    let reader = match JournalReader::open(&config.data) {
        Ok(reader) => reader,
        Err(error) => {
            tracing::error!("no definition of an open run can be read: {error}");
            return found;
        }
    };
    for (name, digest) in wanted {
        match definition(&reader, digest) {
            Ok(definition) => {
                let of_workflow = found.entry(name).or_default();
                of_workflow.insert(digest, Arc::new(definition));
            }
            Err(reason) => tracing::error!(
                "open runs of `{name}` cannot go on: their definition {digest}: {reason}"
            ),
        }
    }
    found
}

/// Reads the definition with this digest from the journal. Returns the reason if the journal lacks
/// it, or if this program cannot read it.
fn definition(reader: &JournalReader, digest: Digest) -> Result<WorkflowDefinition, String> {
    let bytes = reader.blob(digest).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or("the journal does not hold it")?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    read_compiled(&text).map_err(|error| error.to_string())
}

/// Extends the config by everything that open runs need, one recorded definition after another.
/// Leaves out a definition that does not fit the config, and logs the reason. Returns the extended
/// config and the definitions that fit.
fn extended_as_far_as_possible(
    config: &Arc<Config>,
    recorded: RecordedDefinitions,
) -> (Arc<Config>, RecordedDefinitions) {
    let mut found = (Arc::clone(config), RecordedDefinitions::new());
    let definitions = recorded.into_iter().flat_map(|(name, definitions)| {
        let of_workflow = definitions.into_iter();
        of_workflow.map(move |(digest, definition)| (name.clone(), digest, definition))
    });

    for (name, digest, definition) in definitions {
        let mut with_this = found.1.clone();
        with_this.entry(name.clone()).or_default().insert(digest, definition);
        match extended(config, &with_this) {
            Ok(extended) => found = (extended, with_this),
            Err(reason) => tracing::error!(
                "open runs of `{name}` cannot go on: their definition {digest} does not fit this \
                 config: {reason}"
            ),
        }
    }
    found
}

/// Returns a copy of the config with everything that open runs of `definition` need in addition.
///
/// # Errors
///
/// Returns the reason if the definition does not fit the config.
pub fn with_runs_of(
    config: &Config,
    definition: &WorkflowDefinition,
) -> Result<Arc<Config>, String> {
    let of_workflow = BTreeMap::from([(compile(definition).digest, Arc::new(definition.clone()))]);
    let name = definition.name.value.clone();
    extended(config, &RecordedDefinitions::from([(name, of_workflow)]))
}

/// Returns a copy of the config with everything that open runs need in addition. `recorded`
/// contains the definitions of these runs.
fn extended(config: &Config, recorded: &RecordedDefinitions) -> Result<Arc<Config>, String> {
    let mut config = config.clone();
    let mut contracts: Vec<Contract> = config.contracts.iter().cloned().collect();
    let mut compiler = SchemaCompiler::default();
    for (name, definitions) in recorded {
        let known = contracts.iter_mut().find(|contract| contract.name == *name);
        let contract = match known {
            None => {
                let label = format!("runs of {name}");
                let schema = run_schema(name);
                config.schemas.replace_generated(&mut compiler, &label, &schema).map_err(joined)?;
                let contract = closed_contract(name, definitions, &config.contracts);
                contracts.push(contract);
                contracts.last_mut()
            }
            Some(contract) if contract.role == Role::Workflow => Some(contract),
            // The name now belongs to another kind of member, which cannot continue the runs.
            Some(_) => None,
        };
        let Some(contract) = contract else { continue };
        for definition in definitions.values() {
            add_missing(&mut contract.answers, typed_answers(definition));
            add_missing(&mut contract.questions, workflow_questions(definition));
            add_missing(&mut contract.delegations, delegations(definition));
            add_typed_goals(&mut config, &mut compiler, definition).map_err(joined)?;
        }
    }

    config.contracts = Contracts::new(contracts).map_err(joined)?;
    // Some agents get goals only from a workflow that the config no longer has.
    add_goals(&mut config).map_err(joined)?;
    Ok(Arc::new(config))
}

/// Adds those of the `items` that `list` does not contain yet.
fn add_missing<T: PartialEq>(list: &mut Vec<T>, items: impl IntoIterator<Item = T>) {
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

/// Adds to `config` the schemas that `definition` needs and `config` lacks: for the payloads of
/// outputs, questions, answers, verdicts and delegations.
fn add_typed_goals(
    config: &mut Config,
    compiler: &mut SchemaCompiler,
    definition: &WorkflowDefinition,
) -> Result<(), Vec<SchemaProblem>> {
    let is_new = |name: &PayloadName| !config.schemas.contains(name);

    let mut gone = definition.clone();
    gone.goals
        .retain(|goal| generated_answer(definition, goal).is_some_and(|answer| is_new(&answer)));

    let questions = workflow_questions(definition);
    let mut requested = definition.clone();
    requested.goals.retain(|goal| {
        let name = question_name(definition, goal);
        name.is_some_and(|name| is_new(&name))
    });

    if let Some(report) = questions.iter().find(|pair| is_undo_report(&pair.question.local)) {
        gone.report_to.take_if(|_| !is_new(&report.answer));
        requested.report_to.take_if(|_| !is_new(&report.question));
    }

    let lacks_verdicts = has_verdicts(definition) && is_new(&verdict_name());
    let verdicts = lacks_verdicts.then(verdict_schema);

    let name = &definition.name.value;
    let goals = goal_schema(&gone).map(|schema| (format!("goals of {name}"), schema));
    let questions =
        question_schema(&requested).map(|schema| (format!("questions of {name}"), schema));
    let verdicts = verdicts.map(|schema| (format!("verdicts of {name}"), schema));
    let delegates = delegate_schemas(definition).into_iter().filter(|(name, _)| is_new(name));
    let delegates: Vec<_> = delegates.map(|(name, schema)| (name.to_string(), schema)).collect();

    for (label, schema) in goals.into_iter().chain(questions).chain(verdicts).chain(delegates) {
        config.schemas.add_generated(compiler, &label, &schema)?;
    }

    Ok(())
}

/// Makes the contract of a workflow that the config no longer has. Its budget has the smallest
/// limits of the recorded definitions, because one contract applies to all runs of a workflow.
fn closed_contract(
    name: &ListenerName,
    definitions: &BTreeMap<Digest, Arc<WorkflowDefinition>>,
    contracts: &Contracts,
) -> Contract {
    let peers: BTreeSet<_> =
        definitions.values().flat_map(|definition| peers_of(definition)).collect();
    let budgets = definitions.values().map(|definition| definition.budget);
    Contract {
        budget: budgets.fold(Budget::default(), Budget::least),
        replies: vec![output_name(name), failed_name(name)],
        peers: peers.into_iter().filter(|peer| contracts.get(peer).is_some()).collect(),
        ..Contract::new(name.clone(), Role::Workflow)
    }
}
