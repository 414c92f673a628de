//! The definition of a workflow as its author wrote it: goals, forms and settings as plain values.
//!
//! This module knows neither TOML nor threads. The config makes these values, and a [`PlaceId`]
//! records the place of each value in the text of the config.

use std::fmt;
use std::time::Duration;

use crate::contract::{Budget, GoalRoles, WORKFLOW_NAMESPACE, delegate_name};
use crate::ids::{ListenerName, PayloadName};
use crate::schema::ShortType;

/// Id of the place that a value has in the text of the config. The config maps the id to a range of
/// this text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlaceId(pub usize);

/// A value with the id of its place in the text of the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    pub value: T,
    pub place: PlaceId,
}

impl<T> Placed<T> {
    pub fn new(value: T, place: PlaceId) -> Self {
        Self { value, place }
    }
}

/// The name of a goal, unique in its workflow. It has the same format as a [`ListenerName`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GoalId(String);

impl GoalId {
    /// Names that no goal may have, because they mean something else in an expression or a policy.
    pub const RESERVED: [&str; 7] = ["input", "item", "request", "reply", "stop", "skip", "undo"];

    /// Reads an id; returns `None` if the text does not have the format of an id.
    pub fn parse(text: &str) -> Option<Self> {
        ListenerName::parse(text).is_ok().then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GoalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A workflow definition as its author wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowDefinition {
    pub name: Placed<ListenerName>,
    pub description: String,
    pub input: WorkflowInput,
    pub output: WorkflowOutput,
    /// Peers that the workflow addresses only to undo calls that agents beneath it have made.
    pub peers: Vec<Placed<ListenerName>>,
    /// Failure policy of each goal that has no policy of its own.
    pub on_failure: FailurePolicy,
    /// The human who gets the list of the calls that a failed run did not undo; `None` if no human
    /// gets the list.
    pub report_to: Option<Placed<ListenerName>>,
    /// Time limit of one run; `None` if the definition sets no limit.
    pub timeout: Option<Duration>,
    pub budget: Budget,
    /// All goals, in the order of the config file.
    pub goals: Vec<GoalDefinition>,
}

impl WorkflowDefinition {
    pub fn goal(&self, id: &GoalId) -> Option<&GoalDefinition> {
        self.goals.iter().find(|goal| goal.id.value == *id)
    }

    /// Returns the namespace of the payloads that are generated for the workflow.
    pub fn namespace(&self) -> String {
        format!("{}/{}", WORKFLOW_NAMESPACE, self.name.value)
    }
}

/// The input that a run of the workflow requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowInput {
    /// A payload whose schema the program generates. The payload has the name of the workflow. This
    /// value states the children of the payload and their types.
    Types(ShortType),
    /// A payload that the workflow's own schema declares.
    Payload(Placed<PayloadName>),
}

/// The form of a run's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowOutput {
    /// The run returns the output of the last goal in the file.
    LastGoal,
    One(Placed<String>),
    /// The output has one child element for each pair of a name and an expression.
    Table(Vec<(String, Placed<String>)>),
}

/// One goal with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalDefinition {
    pub id: Placed<GoalId>,
    pub form: GoalForm,
    /// Goals that must have ended before this goal starts. `None` if the order in the config
    /// decides:
    /// - a member of a loop or branch starts after the members before it in the list;
    /// - any other goal starts after the nearest goal above it in the file, not counting goals that
    ///   are members of another goal.
    pub needs: Option<Vec<Placed<GoalId>>>,
    /// Goals whose outputs appear in the context document of this goal. `None` means all goals that
    /// this goal depends on.
    pub context: Option<Vec<Placed<GoalId>>>,
    pub output: GoalOutput,
    /// Maximum number of further runs of the goal after a failure.
    pub retry: u32,
    pub on_failure: Option<FailurePolicy>,
    /// Time limit of one run of the goal; `None` if the goal sets no limit.
    pub timeout: Option<Duration>,
    pub budget: Budget,
    /// Place of the budget in the text of the config; the place of the goal if the goal has no
    /// budget.
    pub budget_place: PlaceId,
    pub supervision: Option<Supervision>,
    pub roles: Option<DelegatedRoles>,
}

/// The form of a goal: how it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalForm {
    /// One agent, listener or workflow carries out the goal.
    Run(GoalTarget),
    /// Several agents carry out the goal at once. Without `vote`, the outputs of all agents count.
    /// With `vote`, the expression computes a vote from each output, and only one output counts:
    /// the first one with a vote that more than half of the agents share.
    All {
        agents: Vec<Placed<ListenerName>>,
        prompt: Placed<String>,
        vote: Option<Placed<String>>,
    },
    /// Several agents carry out the goal at once. Only the first output counts.
    First {
        agents: Vec<Placed<ListenerName>>,
        prompt: Placed<String>,
    },
    Each(Box<EachItem>),
    Loop {
        members: Vec<Placed<GoalId>>,
        until: GoalCondition,
        max: u32,
        at_max: LoopEnd,
    },
    Choose(Vec<ChooseBranch>),
    Ask {
        human: Placed<ListenerName>,
        prompt: Placed<String>,
        form: AskForm,
    },
}

impl GoalForm {
    /// Whether a goal of this form has an output. Loops and choices have none.
    pub fn has_output(&self) -> bool {
        !matches!(self, Self::Loop { .. } | Self::Choose(_))
    }

    /// Returns the key in the config that selects this form of a goal.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Run(target) => target.key(),
            Self::All { .. } => "all",
            Self::First { .. } => "first",
            Self::Each(_) => "each",
            Self::Loop { .. } => "loop",
            Self::Choose(_) => "choose",
            Self::Ask { .. } => "ask",
        }
    }
}

/// The agent, listener or workflow that carries out a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalTarget {
    Agent {
        agent: Placed<ListenerName>,
        prompt: Placed<String>,
    },
    Listener {
        listener: Placed<ListenerName>,
        payload: Option<Placed<PayloadName>>,
        with: Mapping,
    },
    /// A workflow carries out the goal. `payload` is the name of the payload that this workflow
    /// accepts. The author of the definition does not write this name, because it is in the
    /// workflow's contract.
    Workflow {
        workflow: Placed<ListenerName>,
        payload: Option<Placed<PayloadName>>,
        with: Mapping,
    },
}

impl GoalTarget {
    pub fn key(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent",
            Self::Listener { .. } => "listener",
            Self::Workflow { .. } => "workflow",
        }
    }

    pub fn name(&self) -> &Placed<ListenerName> {
        match self {
            Self::Agent { agent, .. } => agent,
            Self::Listener { listener, .. } => listener,
            Self::Workflow { workflow, .. } => workflow,
        }
    }
}

/// How the payload of a call is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapping {
    /// The name of each child and attribute of the payload, with the expression that selects its
    /// value. Names of attributes begin with `@`. The config later puts the entries into the order
    /// of the payload's schema. It also adds the namespace to a name, as `{NAMESPACE}name`, in two
    /// cases:
    /// - The name is that of an attribute with a namespace.
    /// - The name is that of a child whose namespace differs from that of the payload.
    Fields(Vec<(String, Placed<String>)>),
    /// The payload is the element that this expression selects.
    Element(Placed<String>),
}

/// The settings of a goal that runs once for each item that the expression `items` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EachItem {
    pub items: Placed<String>,
    pub target: GoalTarget,
    pub max_items: u32,
    pub concurrency: u32,
    pub on_item_failure: ItemFailure,
    pub verify: Option<ItemVerification>,
    /// Expression whose value is the role of the agent that works on an item; `None` if the agent
    /// has no role.
    pub role: Option<Placed<String>>,
}

/// The rule by which another goal judges the output of each item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemVerification {
    pub goal: Placed<GoalId>,
    /// Expression that decides whether the output of an item is accepted; true means yes.
    pub accept: Placed<String>,
}

/// How the failure of one item affects the goal and the other items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ItemFailure {
    /// The other items are cancelled, and the goal fails.
    #[default]
    Stop,
    /// The failed item is left out of the results of the goal.
    Skip,
    /// The results of the goal contain the failed item as a failure.
    Collect,
}

impl ItemFailure {
    pub const WORDS: [(&'static str, Self); 3] =
        [("stop", Self::Stop), ("skip", Self::Skip), ("collect", Self::Collect)];
}

/// How a loop ends if its condition is still false after the last permitted pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoopEnd {
    #[default]
    Fail,
    Continue,
}

impl LoopEnd {
    pub const WORDS: [(&'static str, Self); 2] =
        [("fail", Self::Fail), ("continue", Self::Continue)];
}

/// One branch of a goal with the form `choose`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChooseBranch {
    /// The condition of the branch. `None` for a branch without a condition, which is taken if no
    /// earlier branch is taken.
    pub when: Option<GoalCondition>,
    pub run: Vec<Placed<GoalId>>,
    pub place: PlaceId,
}

/// A condition that decides whether a branch is taken, or whether a loop ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalCondition {
    XPath(Placed<String>),
    /// A judge, which is an agent, decides the condition with yes or no.
    Judge {
        agent: Placed<ListenerName>,
        prompt: Placed<String>,
    },
}

/// The form of a human's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskForm {
    /// The answer is a verdict: continue or stop. If `about` names a goal, the person may also
    /// answer that this goal must be corrected.
    Verdict { about: Option<Placed<GoalId>> },
    /// The answer is the output of the goal.
    Output,
}

/// The type of a goal's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalOutput {
    Text,
    /// A payload whose schema the program generates. The payload has the id of the goal as its
    /// name. This value states the children of the payload and their types.
    Types(ShortType),
    /// A payload that the workflow's own schema declares.
    Payload(Placed<PayloadName>),
}

/// The reaction of a run to a goal that has failed and is not retried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    #[default]
    Stop,
    Skip,
    Undo,
    /// The goal with this id runs instead of the failed goal.
    Goal(Placed<GoalId>),
}

/// The supervision of a goal: an agent or a human judges the goal's output before it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervision {
    pub supervisor: Placed<ListenerName>,
    /// Whether the supervisor is a human of the config. If false, the supervisor is an agent.
    pub is_human: bool,
    /// Faults that the supervisor looks for.
    pub supervise: String,
    pub corrections: u32,
}

/// The setting that lets an agent of a goal delegate tasks. Another agent carries out these tasks
/// in a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatedRoles {
    pub agent: Placed<ListenerName>,
    /// Maximum number of delegations in one run of the goal.
    pub max: u32,
    /// Maximum number of levels of delegation beneath the goal.
    pub depth: u32,
    /// The roles in which tasks may be delegated; empty if every role is allowed.
    pub names: Vec<String>,
}

impl DelegatedRoles {
    /// Returns the part of the delegation settings that the request to a goal's agent contains.
    /// `goal` is the id of the goal in the workflow `workflow`.
    pub fn of_goal(&self, workflow: &ListenerName, goal: &GoalId) -> GoalRoles {
        GoalRoles {
            payload: delegate_name(workflow, goal.as_str()),
            to: self.agent.value.clone(),
            max: Some(self.max),
            depth: self.depth,
        }
    }
}

/// Definitions of workflows for unit tests. All settings have their simplest values.
#[cfg(test)]
pub mod examples {
    use super::*;

    pub fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    pub fn placed<T>(value: T) -> Placed<T> {
        Placed::new(value, PlaceId::default())
    }

    /// Makes a goal with two attempts.
    pub fn goal(id: &str, form: GoalForm) -> GoalDefinition {
        GoalDefinition {
            id: placed(GoalId::parse(id).unwrap()),
            form,
            needs: None,
            context: None,
            output: GoalOutput::Text,
            retry: 1,
            on_failure: None,
            timeout: None,
            budget: Budget::default(),
            budget_place: PlaceId::default(),
            supervision: None,
            roles: None,
        }
    }

    /// Makes the workflow `flow`, which stops when a goal fails.
    pub fn workflow(goals: Vec<GoalDefinition>) -> WorkflowDefinition {
        WorkflowDefinition {
            name: placed(name("flow")),
            description: String::new(),
            input: WorkflowInput::Types(ShortType::Fields(Vec::new())),
            output: WorkflowOutput::LastGoal,
            peers: Vec::new(),
            on_failure: FailurePolicy::Stop,
            report_to: None,
            timeout: None,
            budget: Budget::default(),
            goals,
        }
    }
}
