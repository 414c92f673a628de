//! `[workflows.NAME]`: definitions of workflows, read from their tables and checked.

mod goals;
mod places;
mod report;
mod resolve;

use std::path::Path;

use crate::contract::{Budget, Contract, Contracts, Role};
use crate::ids::{ListenerName, PayloadName};
use crate::limits;
use crate::schema::ShortType;
use crate::workflow::{
    FailurePolicy, GoalId, Mapping, Placed, WorkflowDefinition, WorkflowInput, WorkflowOutput,
    compile, delegate_schemas, delegations, exceeded_limits, failed_name, generated_schema,
    goal_schema, has_verdicts, input_name, listeners_beneath, mapping_notes, missing_undo_room,
    nesting_note, output_name, peers_of, peers_of_goal, question_schema, single_braces,
    typed_answers, verdict_schema, workflow_questions,
};
use crate::xml::scan::is_ncname;

use super::ConfiguredWorkflow;

use super::budgets::{self, WorkflowBudget};
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys;
use super::members::{check_callee_name, token};
use super::payloads::{KnownPayloads, PayloadResolver};
use super::read::TableReader;
use super::sections::DeclaredSections;
use super::short_types;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located, TomlEntry, TomlNode, TomlTable, TomlValue};
use super::{file, tree};

use places::PlaceTable;
pub(super) use report::code_of;

/// Reads every workflow definition of a config.
pub(super) fn read(
    sections: &DeclaredSections,
    payloads: &mut PayloadResolver,
    (directory, around, is_stored): (&Path, &ConfigEnvironment, bool),
    problems: &mut ConfigProblems,
) -> DeclaredWorkflows {
    let Some(section) = &sections.workflows else { return DeclaredWorkflows::default() };
    let humans = sections.members.iter().filter(|member| member.role == Role::Human);
    let mut reader = WorkflowReader {
        directory,
        is_stored,
        around,
        payloads,
        places: PlaceTable::default(),
        humans: humans.map(|member| member.name.value.clone()).collect(),
        money: Vec::new(),
    };
    let workflows = reader.read(section, problems);
    DeclaredWorkflows { workflows, places: reader.places }
}

/// The workflow definitions of a config, before names are resolved.
#[derive(Default)]
pub(super) struct DeclaredWorkflows {
    workflows: Vec<DeclaredWorkflow>,
    places: PlaceTable,
}

impl DeclaredWorkflows {
    /// Builds the contract of each workflow. Also registers the payloads that are generated for the
    /// workflows. Leaves out workflows that have a problem, unless `is_stored` states that the
    /// config comes from a journal.
    pub fn contracts(
        &self,
        (sections, is_stored): (&DeclaredSections, bool),
        payloads: &mut PayloadResolver,
        problems: &mut ConfigProblems,
    ) -> Vec<Contract> {
        self.declare_verdicts(payloads, problems);
        let known = self.workflows.iter().filter(|workflow| {
            let name = &workflow.definition.name.value;
            let is_invalid = workflow.is_partial() || sections.invalid.contains(name.as_str());
            // Earlier versions of the program ran a definition without goals of an unknown type.
            is_stored || !is_invalid
        });
        let contracts = known.map(|workflow| {
            let definition = &workflow.definition;
            let name = &definition.name;
            let label = format!("[workflows.{}]", name.value);
            payloads.notes.extend(single_braces(definition));

            let of_goals = goal_schema(definition).map(|text| (format!("{label} goals"), text));
            let of_questions =
                question_schema(definition).map(|text| (format!("{label} questions"), text));
            let delegates = delegate_schemas(definition).into_iter();
            let of_roles = delegates.map(|(name, text)| (format!("{label} {name}"), text));
            let of_roles: Vec<_> = of_roles.collect();

            let generated = [(label, generated_schema(definition))].into_iter();
            for (label, text) in generated.chain(of_goals).chain(of_questions).chain(of_roles) {
                let Err(found) = payloads.add_generated(&label, &text) else { continue };
                let place = self.places.range(name.place);
                let message = format!("the payloads of the workflow have no schema: {found}");
                problems.push(ConfigProblem::new(ProblemCode::SchemaBroken, &place, message));
            }

            Contract {
                description: definition.description.clone(),
                accepts: vec![input_name(definition)],
                replies: vec![output_name(&name.value), failed_name(&name.value)],
                peers: peers_of(definition),
                answers: typed_answers(definition),
                budget: definition.budget,
                questions: workflow_questions(definition),
                delegations: delegations(definition),
                ..Contract::new(name.value.clone(), Role::Workflow)
            }
        });
        contracts.collect()
    }

    /// Registers the schema of supervisors' and judges' answers, if any definition has a supervisor
    /// or a judge.
    fn declare_verdicts(&self, payloads: &mut PayloadResolver, problems: &mut ConfigProblems) {
        let first = self.workflows.iter().find(|workflow| has_verdicts(&workflow.definition));
        let Some(first) = first else { return };
        if let Err(found) = payloads.add_generated("[workflows] verdicts", &verdict_schema()) {
            let place = self.places.range(first.definition.name.place);
            let message = format!("the answers of supervisors have no schema: {found}");
            problems.push(ConfigProblem::new(ProblemCode::SchemaBroken, &place, message));
        }
    }

    /// Resolves the names of members and payloads in the definitions, and checks the definitions.
    /// `is_stored` states whether the config comes from a journal.
    pub fn configured(
        mut self,
        sections: &DeclaredSections,
        (contracts, is_stored): (Option<&Contracts>, bool),
        payloads: &mut PayloadResolver,
        problems: &mut ConfigProblems,
    ) -> Vec<ConfiguredWorkflow> {
        let Self { workflows, places } = &self;
        let context = (contracts, is_stored);
        let notes =
            report::check(workflows, places, sections, context, &payloads.schemas, problems);
        payloads.notes.extend(notes);
        if let Some(contracts) = contracts.filter(|_| !is_stored) {
            let budgets = workflows.iter().flat_map(|workflow| workflow.budgets(contracts));
            let budgets: Vec<_> = budgets.collect();
            budgets::check_workflows(&budgets, sections, problems);
        }
        for workflow in &mut self.workflows {
            let definition = &mut workflow.definition;
            if let Some(contracts) = contracts {
                let notes = mapping_notes(definition, contracts, &payloads.schemas);
                payloads.notes.extend(notes);
            }
            resolve::payloads(definition, &self.places, contracts, &payloads.schemas, problems);
        }
        if let Some(contracts) = contracts {
            let definitions = self.workflows.iter().map(|workflow| &workflow.definition);
            let definitions: Vec<_> = definitions.collect();
            let limits = &sections.limits;
            for definition in &definitions {
                payloads.notes.extend(exceeded_limits(definition, &definitions, limits, contracts));
                payloads.notes.extend(missing_undo_room(definition, limits, contracts));
                payloads.notes.extend(nesting_note(definition, &definitions, limits.depth));
            }
        }

        let configured = self.workflows.into_iter().map(|workflow| ConfiguredWorkflow {
            compiled: compile(&workflow.definition),
            definition: workflow.definition,
        });
        configured.collect()
    }
}

/// Reports a key of a table `output` that cannot be the name of an element.
fn check_output_name(name: &Located<String>, read: &mut TableReader<'_>) {
    if is_ncname(&name.value) {
        return;
    }

    let message = format!("`{}` cannot be the name of an output", name.value);
    let problem = ConfigProblem::new(ProblemCode::BadName, &name.place, message);
    let help = "names become elements: a letter or _, then letters, digits, -, _ and .";
    read.problem(problem.help(help));
}

/// Returns the names of the fields that a table `input` declares.
fn input_fields(read: &TableReader<'_>) -> Vec<Located<String>> {
    match read.node("input").map(|node| &node.value) {
        Some(TomlValue::Table(table)) => {
            table.entries.iter().map(|entry| entry.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

/// A workflow definition as the config declares it, before names are resolved.
pub(super) struct DeclaredWorkflow {
    pub definition: WorkflowDefinition,
    /// Names of goals that have a problem, which is already reported. References to these goals are
    /// not reported as unknown.
    pub unread: Vec<String>,
    /// Whether a value in the table of the workflow has a problem. The definition may then lack
    /// this value.
    pub has_problem: bool,
    /// Names of the fields of the workflow's input, if the config declares the input as fields.
    /// Empty if the input is a payload from a schema.
    pub inputs: Vec<Located<String>>,
    /// The keys `money` of the workflow itself and of its goals.
    pub money: Vec<MoneyKey>,
}

impl DeclaredWorkflow {
    /// Whether the definition may lack a part that could not be read.
    pub fn is_partial(&self) -> bool {
        self.has_problem || !self.unread.is_empty()
    }

    /// Returns one budget for each key `money` of the workflow and of its goals. A budget includes
    /// the listeners that may spend its money, which `contracts` determine.
    fn budgets<'a>(&'a self, contracts: &'a Contracts) -> Vec<WorkflowBudget<'a>> {
        let goals = &self.definition.goals;
        let budgets = self.money.iter().map(|MoneyKey { goal, place }| {
            let spending = goals.iter().filter(|candidate| {
                goal.as_ref().is_none_or(|name| candidate.id.value.as_str() == name.as_str())
            });
            let beneath = listeners_beneath(spending.flat_map(peers_of_goal), contracts);
            WorkflowBudget { place, beneath }
        });
        budgets.collect()
    }
}

/// A key `money` in the section of a workflow.
pub(super) struct MoneyKey {
    /// Name of the goal that has the key; `None` if the key belongs to the workflow itself.
    pub goal: Option<String>,
    pub place: SourceRange,
}

/// A reader of workflow definitions from their tables in the config.
pub(super) struct WorkflowReader<'a> {
    pub directory: &'a Path,
    /// Whether the config comes from a journal.
    pub is_stored: bool,
    pub around: &'a ConfigEnvironment,
    pub payloads: &'a mut PayloadResolver,
    pub places: PlaceTable,
    pub humans: Vec<ListenerName>,
    /// The keys `money` in the section of the workflow that is being read.
    pub money: Vec<MoneyKey>,
}

impl WorkflowReader<'_> {
    /// Reads every workflow definition of the section `workflows`.
    pub fn read(
        &mut self,
        section: &TomlEntry,
        problems: &mut ConfigProblems,
    ) -> Vec<DeclaredWorkflow> {
        let TomlValue::Table(table) = &section.node.value else {
            let message = format!("`workflows` must be a section, not {}", section.node.kind());
            let problem = ConfigProblem::new(ProblemCode::WrongType, &section.node.place, message);
            problems.push(problem.help("write [workflows.some-name]"));
            return Vec::new();
        };

        let mut workflows = Vec::new();
        for entry in &table.entries {
            let TomlValue::Table(table) = &entry.node.value else {
                let message =
                    format!("`{}` must be a workflow, not {}", entry.key.value, entry.node.kind());
                let problem =
                    ConfigProblem::new(ProblemCode::WrongType, &entry.node.place, message);
                problems.push(problem.help("write [workflows.some-name] and the keys beneath it"));
                continue;
            };
            workflows.extend(self.workflow(&entry.key, table, problems));
        }

        workflows
    }

    fn workflow(
        &mut self,
        name: &Located<String>,
        table: &TomlTable,
        problems: &mut ConfigProblems,
    ) -> Option<DeclaredWorkflow> {
        let what = format!("workflow `{}`", name.value);
        let mut read =
            TableReader::new(&keys::WORKFLOWS, table, what.clone(), name.place.clone(), problems);
        let Some(path) = read.text("file") else {
            return self.definition(name, &mut read);
        };

        read.only(&["file"], "a workflow with a file of its own");

        let code = ProblemCode::FileMissing;
        let text = file::named_text(&path, self.directory, "workflow", code, problems)?;
        let (mut table, source) =
            match tree::parse(&path.value.written, &text, self.around, problems) {
                Ok(parsed) => parsed,
                Err(found) => {
                    problems.also(found);
                    return None;
                }
            };

        if let Some(entry) = table.take("file") {
            let message = format!("the file of {what} names another `file`, which is not read");
            let problem = ConfigProblem::new(ProblemCode::UnknownKey, &entry.key.place, message);
            problems.push(problem.help("take it out, or name the other file in the config"));
        }

        let place = SourceRange::start(&source);
        let mut read = TableReader::new(&keys::WORKFLOW_FILE, &table, what, place, problems);
        self.definition(name, &mut read)
    }

    fn definition(
        &mut self,
        name: &Located<String>,
        read: &mut TableReader<'_>,
    ) -> Option<DeclaredWorkflow> {
        if !self.is_stored {
            check_callee_name(&name.value, &name.place, read.problems);
        }
        let name = token(name, read.problems);
        let description = read.text("description").map(|text| text.value.value).unwrap_or_default();
        let schema = read.one_or_more("schema");
        let known = self.payloads.known_of(&schema, !read.has_problem(), read.problems);

        let input = self.input(&known, read);
        let inputs = input_fields(read);
        let output = self.output(read);
        let peers = self.names(read.list("peers"), read.problems);
        let on_failure = match self.policy("on_failure", read) {
            Some(FailurePolicy::Goal(goal)) => {
                let place = self.places.range(goal.place);
                let message = "the policy of a whole workflow names no goal";
                let problem = ConfigProblem::new(ProblemCode::UnknownChoice, &place, message);
                read.problem(problem.help("one of \"stop\", \"skip\", \"undo\""));
                FailurePolicy::Stop
            }
            policy => policy.unwrap_or_default(),
        };

        let report_to = self.name("report_to", read);
        let timeout = read.duration("timeout", limits::WALL_TIME_CEILING);
        let budget = Budget {
            tokens: read.count("tokens", limits::TOKENS_CEILING),
            money: read.money("money"),
        };
        self.money.clear();
        self.note_money(None, budget, read);

        let mut unread = Vec::new();
        if input.is_none() {
            unread.push("input".to_owned());
        }
        let nothing = WorkflowInput::Types(ShortType::Fields(Vec::new()));
        let input = input.unwrap_or(nothing);
        let goals = self.goals(&known, read, &mut unread);
        let has_problem = read.has_problem();
        let name = name?;
        let place = self.places.add(&name.place);

        let definition = WorkflowDefinition {
            name: Placed::new(name.value, place),
            description,
            input,
            output,
            peers,
            on_failure,
            report_to,
            timeout,
            budget,
            goals,
        };
        let money = std::mem::take(&mut self.money);
        Some(DeclaredWorkflow { definition, unread, has_problem, inputs, money })
    }

    /// Adds the key `money` to the workflow's keys if `budget` limits money. `goal` is the goal
    /// that has the key, or `None` if the workflow itself has it.
    fn note_money(&mut self, goal: Option<&str>, budget: Budget, read: &TableReader<'_>) {
        let key = format!("`money` of {}", read.description());
        self.payloads.notes.extend(budgets::note_of_zero(&key, budget.money));
        if budget.money.is_some() {
            let goal = goal.map(str::to_owned);
            self.money.push(MoneyKey { goal, place: read.place_of("money") });
        }
    }

    /// Reads the input of a workflow from its table. If there are problems, reports all of them and
    /// returns `None`.
    fn input(
        &mut self,
        known: &KnownPayloads,
        read: &mut TableReader<'_>,
    ) -> Option<WorkflowInput> {
        read.required("input", "{ topic = \"text\" }");
        let node = read.node("input")?;
        match &node.value {
            TomlValue::Text(_) => {
                let payload = read.text("input").and_then(|text| self.payload(known, &text, read));
                payload.map(WorkflowInput::Payload)
            }
            _ => {
                let types = short_types::of_table(node, "the input", self.is_stored, read.problems);
                types.map(WorkflowInput::Types)
            }
        }
    }

    fn output(&mut self, read: &mut TableReader<'_>) -> WorkflowOutput {
        let Some(node) = read.node("output") else { return WorkflowOutput::LastGoal };
        match &node.value {
            TomlValue::Table(table) => {
                table.entries.iter().for_each(|entry| check_output_name(&entry.key, read));
                WorkflowOutput::Table(self.expressions("output", read))
            }
            _ => match self.expression("output", read) {
                Some(expression) => WorkflowOutput::One(expression),
                None => WorkflowOutput::LastGoal,
            },
        }
    }

    /// Resolves the payload name in `text` and stores its place. If the name cannot be resolved,
    /// reports the reason and returns `None`.
    fn payload(
        &mut self,
        known: &KnownPayloads,
        text: &Located<ExpandedText>,
        read: &mut TableReader<'_>,
    ) -> Option<Placed<PayloadName>> {
        let name = known.resolve_name(text, read.problems)?;
        Some(Placed::new(name, self.places.add(&text.place)))
    }

    fn expression(&mut self, key: &str, read: &mut TableReader<'_>) -> Option<Placed<String>> {
        let text = read.text(key)?;
        Some(self.placed(text))
    }

    /// Returns the entries of the table `key`, each as a name and an expression. Stores the places
    /// of the expressions.
    fn expressions(
        &mut self,
        key: &str,
        read: &mut TableReader<'_>,
    ) -> Vec<(String, Placed<String>)> {
        let entries = read.free(key);
        entries.into_iter().map(|(name, text)| (name.value, self.placed(text))).collect()
    }

    fn placed(&mut self, text: Located<ExpandedText>) -> Placed<String> {
        Placed::new(text.value.value, self.places.add(&text.place))
    }

    fn mapping(&mut self, read: &mut TableReader<'_>) -> Option<Mapping> {
        let node = read.node("with")?;
        match &node.value {
            TomlValue::Table(_) => Some(Mapping::Fields(self.expressions("with", read))),
            _ => self.expression("with", read).map(Mapping::Element),
        }
    }

    fn name(&mut self, key: &str, read: &mut TableReader<'_>) -> Option<Placed<ListenerName>> {
        let text = read.text(key)?;
        self.names(vec![text], read.problems).pop()
    }

    fn names(
        &mut self,
        texts: Vec<Located<ExpandedText>>,
        problems: &mut ConfigProblems,
    ) -> Vec<Placed<ListenerName>> {
        let names = texts.into_iter().filter_map(|text| {
            let name = token(&text.map(|text| text.value), problems)?;
            Some(Placed::new(name.value, self.places.add(&name.place)))
        });
        names.collect()
    }

    fn goal_ids(
        &mut self,
        texts: Vec<Located<ExpandedText>>,
        problems: &mut ConfigProblems,
    ) -> Vec<Placed<GoalId>> {
        let ids = texts.into_iter().filter_map(|text| self.goal_id(text, problems));
        ids.collect()
    }

    fn goal_id(
        &mut self,
        text: Located<ExpandedText>,
        problems: &mut ConfigProblems,
    ) -> Option<Placed<GoalId>> {
        let name = token(&text.map(|text| text.value), problems)?;
        let id = GoalId::parse(name.value.as_str())?;
        Some(Placed::new(id, self.places.add(&name.place)))
    }

    fn policy(&mut self, key: &str, read: &mut TableReader<'_>) -> Option<FailurePolicy> {
        let text = read.text(key)?;
        match text.value.value.as_str() {
            "stop" => Some(FailurePolicy::Stop),
            "skip" => Some(FailurePolicy::Skip),
            "undo" => Some(FailurePolicy::Undo),
            _ => self.goal_id(text, read.problems).map(FailurePolicy::Goal),
        }
    }

    /// Reads the prompt of a goal: the text in the key `prompt`, or the file that `prompt_file`
    /// names. If both keys are set, if neither is set, or if the file cannot be read, reports this
    /// and returns `None`.
    fn prompt(&mut self, read: &mut TableReader<'_>) -> Option<Placed<String>> {
        let text = read.text("prompt");
        let path = read.text("prompt_file");

        match (text, path) {
            (Some(_), Some(path)) => {
                let message = "the prompt is written twice, as text and as a file";
                let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &path.place, message);
                read.problem(problem.help("keep one of prompt and prompt_file"));
                None
            }
            (Some(text), None) => Some(self.placed(text)),
            (None, Some(path)) => {
                let place = (self.directory, self.is_stored);
                let text = super::agents::prompt_file(&path, place, read.problems)?;
                // A mistake in an expression is shown in the file of the prompt.
                let source = ConfigSource::new(&path.value.written, &text);
                let range = SourceRange::new(&source, 0..text.len());
                Some(Placed::new(text, self.places.add(&range)))
            }
            (None, None) => {
                if !read.has("prompt_file") {
                    read.required("prompt", "\"the task\", or prompt_file = \"prompt.md\"");
                }
                None
            }
        }
    }
}

/// Returns the table that `node` contains; `None` if `node` is not a table.
fn table_of(node: &TomlNode) -> Option<&TomlTable> {
    match &node.value {
        TomlValue::Table(table) => Some(table),
        _ => None,
    }
}
