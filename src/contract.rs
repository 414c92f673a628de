//! Contracts: the payload names that each listener accepts and may answer with, and the peers that
//! it may address. The contracts determine the vocabulary of each sender, which is the set of all
//! payload names that the sender may write.

mod approval;
mod budget;
mod capability;
mod delegation;
mod goal;
mod peers;
mod question;
mod schedule;
mod undo;
mod vocabulary;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ListenerName, PayloadName};
use crate::limits;

pub use approval::Approval;
pub use budget::{Budget, TreeLimits};
pub use delegation::{
    GoalDelegation, GoalRoles, delegate_failed_name, delegate_name, delegate_output_name,
    delegated_goal,
};
pub use goal::{
    AGENT_NAMESPACE, RUN_FAILED, TypedAnswer, WORKFLOW_NAMESPACE, goal_answer, goal_name,
    goal_schema, is_goal_of, is_run_failure, read_goal, read_goal_answer, retry_name,
    run_definition_name, write_goal, write_goal_request, write_typed_goal,
};
pub use question::WorkflowQuestion;
pub use schedule::{DailyTime, MissedPolicy, PassedTimes, Schedule, ScheduleTimes, WEEKDAYS};
pub use undo::UndoRule;
pub use vocabulary::{Meaning, Vocabulary, VocabularyError};
use vocabulary::{agents_sharing_a_name, vocabulary_of};

/// A map whose keys are names that the config declares. Its hasher is fast, because the pump looks
/// up several names for each message.
type NameMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The kind of a listener or client that the config declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A listener whose handler is a model. An agent may send messages to itself, spawn threads and
    /// wait.
    #[serde(rename = "agent")]
    Agent,
    /// A listener that is neither an agent nor a person nor a workflow.
    #[serde(rename = "listener")]
    Listener,
    /// A program outside the organism that sends requests. The pump delivers nothing to a client.
    #[serde(rename = "client")]
    Client,
    /// A person who answers questions at any time. No process runs for a person.
    #[serde(rename = "human")]
    Human,
    /// A listener that runs a workflow definition. A workflow may send goals to agents, spawn
    /// threads and wait.
    #[serde(rename = "workflow")]
    Workflow,
}

/// The way in which the replies of several peers become the one result of a call. A call goes to
/// all peers that accept its payload name. The calls of a workflow's goals are an exception: each
/// goes only to the listener that the definition names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Gather {
    /// The result contains one entry for each peer, in config order: the peer's reply or, if the
    /// peer failed, an error.
    #[default]
    #[serde(rename = "all")]
    All,
    /// The first reply is the result. If every peer failed, the result contains all errors.
    #[serde(rename = "first")]
    First,
}

/// The contract of a listener or client. The pump enforces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    #[serde(rename = "name")]
    pub name: ListenerName,
    #[serde(rename = "role")]
    pub role: Role,
    #[serde(rename = "description")]
    pub description: String,
    /// Payload names that the listener accepts. An agent can also send itself a payload with one of
    /// these names, to continue its own call.
    #[serde(rename = "accepts")]
    pub accepts: Vec<PayloadName>,
    /// Payload names that the listener may answer with. For an agent, these are the final payloads,
    /// which end its call.
    #[serde(rename = "replies")]
    pub replies: Vec<PayloadName>,
    #[serde(rename = "peers")]
    pub peers: Vec<ListenerName>,
    /// Whether the listener forwards answers. If true, an answer becomes a call to the peers that
    /// accept the answer's name, provided that `replies` contains this name. The result of the call
    /// becomes the result of the listener.
    #[serde(rename = "forward")]
    pub forward: bool,
    #[serde(rename = "gather")]
    pub gather: Gather,
    /// Time after which an attempt times out, counted from the hand-over of its delivery.
    /// Heartbeats of the listener extend this time.
    #[serde(rename = "timeout")]
    pub timeout: Duration,
    #[serde(rename = "attempts")]
    pub attempts: u32,
    /// Maximum number of deliveries that the listener handles at once.
    #[serde(rename = "concurrency")]
    pub concurrency: u32,
    #[serde(rename = "serial_per_thread")]
    pub serial_per_thread: bool,
    /// Maximum number of calls in the listener's queue. The pump refuses further calls as `busy`.
    #[serde(rename = "backlog")]
    pub backlog: usize,
    /// Maximum number of actions in one turn of an agent. Each further action is refused, and the
    /// agent gets the refusal.
    #[serde(rename = "actions_per_turn")]
    pub actions_per_turn: u32,
    /// Which calls to the listener need an operator's approval.
    #[serde(rename = "approval", default, skip_serializing_if = "Approval::is_never")]
    pub approval: Approval,
    /// Maximum time that a held call waits for an operator, or a question waits for a human
    /// listener; `None` if there is no maximum.
    #[serde(rename = "patience", default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Duration>,
    /// Maximum time that the listener takes for a preview, which describes the effect of a call
    /// before a person approves the call. `None` if the listener gives no previews.
    #[serde(rename = "previews", default, skip_serializing_if = "Option::is_none")]
    pub previews: Option<Duration>,
    /// Time for which the pump remembers a client key after the key's first use. A client that
    /// repeats a submission with a remembered key starts no new work. A request with an expired key
    /// counts as new.
    ///
    /// A key does not expire while a call is open in the thread tree of the request that first used
    /// the key. If this time is `None`, the key is remembered as long as this thread tree.
    #[serde(rename = "keys_for", default, skip_serializing_if = "Option::is_none")]
    pub keys_for: Option<Duration>,
    /// Tokens and money that the agent may use in one thread tree, within the limits of the tree.
    #[serde(rename = "budget", default, skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// Whether the agent's model, or any model to which the agent's model routes calls, has no
    /// price. An amount of money cannot limit the calls of a model without a price. This value is
    /// not part of the effective config, which already contains the prices.
    #[serde(skip)]
    pub has_unpriced_model: bool,
    /// The client in whose name the processes of this listener may send requests to the pump;
    /// `None` if these processes may send no requests.
    #[serde(rename = "client", default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ListenerName>,
    /// Names of the core's primitives, such as `wait`, that the config permits this listener to
    /// use. `None` if the config has no such list; the listener's role then decides.
    #[serde(rename = "core", default, skip_serializing_if = "Option::is_none")]
    pub core: Option<Vec<String>>,
    /// Payloads with which agents answer the typed goals of this workflow. A goal is typed if the
    /// config declares the type of its output.
    #[serde(rename = "answers", default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<TypedAnswer>,
    /// Questions that a workflow may put to people.
    #[serde(rename = "questions", default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<WorkflowQuestion>,
    /// Agents that may delegate tasks of this workflow's goals.
    #[serde(rename = "delegations", default, skip_serializing_if = "Vec::is_empty")]
    pub delegations: Vec<GoalDelegation>,
    /// Rules for undoing completed calls to this listener. Each rule names the payload that undoes
    /// a call.
    #[serde(rename = "undo", default, skip_serializing_if = "Vec::is_empty")]
    pub undo: Vec<UndoRule>,
}

impl Contract {
    /// Creates a contract with default values.
    pub fn new(name: ListenerName, role: Role) -> Self {
        Self {
            name,
            role,
            description: String::new(),
            accepts: Vec::new(),
            replies: Vec::new(),
            peers: Vec::new(),
            forward: false,
            gather: Gather::All,
            timeout: limits::TIMEOUT_DEFAULT,
            attempts: limits::ATTEMPTS_DEFAULT,
            concurrency: limits::CONCURRENCY_DEFAULT,
            serial_per_thread: role == Role::Agent,
            backlog: limits::BACKLOG_DEFAULT,
            actions_per_turn: match role {
                // The definition of a workflow bounds the number of its actions.
                Role::Workflow => u32::MAX,
                _ => limits::ACTIONS_PER_TURN_DEFAULT,
            },
            approval: Approval::Never,
            patience: None,
            previews: None,
            keys_for: None,
            budget: Budget::default(),
            has_unpriced_model: false,
            client: None,
            core: None,
            answers: Vec::new(),
            questions: Vec::new(),
            delegations: Vec::new(),
            undo: Vec::new(),
        }
    }

    pub fn is_human(&self) -> bool {
        self.role == Role::Human
    }
}

/// The contracts of all listeners and clients of an organism. Also contains the vocabulary of each
/// listener and client, which is the set of payload names that it may write.
#[derive(Debug, Clone, Default)]
pub struct Contracts {
    by_name: NameMap<ListenerName, (Arc<Contract>, Vocabulary)>,
    order: Vec<ListenerName>,
}

impl Contracts {
    /// Builds the vocabulary of every sender.
    ///
    /// # Errors
    ///
    /// Returns each payload name that would have two meanings or would be ambiguous.
    pub fn new(contracts: Vec<Contract>) -> Result<Self, Vec<VocabularyError>> {
        let order: Vec<_> = contracts.iter().map(|c| c.name.clone()).collect();
        let mut errors = agents_sharing_a_name(&contracts);
        // An organism may have many clients, and no sender can call one.
        let callable: Vec<_> = contracts.iter().filter(|c| c.role != Role::Client).collect();
        let mut by_name = NameMap::default();
        for contract in &contracts {
            let vocabulary = vocabulary_of(contract, &callable, &mut errors);
            by_name.insert(contract.name.clone(), (Arc::new(contract.clone()), vocabulary));
        }

        if errors.is_empty() { Ok(Self { by_name, order }) } else { Err(errors) }
    }

    /// Whether a fork takes the results of calls to the listener `name` from the record instead of
    /// repeating the calls. True for every listener that is neither an agent nor a workflow. A fork
    /// is a thread that continues the recorded history of another thread.
    pub fn is_answered_in_forks(&self, name: &ListenerName) -> bool {
        let role = self.get(name).map(|contract| contract.role);
        !matches!(role, Some(Role::Agent | Role::Workflow))
    }

    pub fn get(&self, name: &ListenerName) -> Option<&Contract> {
        self.by_name.get(name).map(|(contract, _)| &**contract)
    }

    /// Returns the contract of the listener `name`; `None` if no listener has this name. The result
    /// shares ownership and does not borrow from `self`, so the caller can change the pump's state
    /// while it uses the contract.
    pub fn shared(&self, name: &ListenerName) -> Option<Arc<Contract>> {
        self.by_name.get(name).map(|(contract, _)| Arc::clone(contract))
    }

    /// Returns the contract of the listener `name` as an [`Arc`], which the caller can clone.
    /// Returns `None` if no listener has this name.
    pub fn entry(&self, name: &ListenerName) -> Option<&Arc<Contract>> {
        self.by_name.get(name).map(|(contract, _)| contract)
    }

    /// Returns a copy of these contracts for work that began before the config changed to
    /// `current`. The copy does not permit calls to listeners that are gone in `current`, or that
    /// no longer accept the payload of the call.
    #[must_use]
    pub fn restricted_to(&self, current: &Self) -> Self {
        let mut restricted = self.clone();
        for (_, vocabulary) in restricted.by_name.values_mut() {
            vocabulary.retain_callees(|name, callee| {
                let accepted = |contract: &Contract| contract.accepts.contains(name);
                let accepts_no_more = self.get(callee).is_some_and(accepted)
                    && !current.get(callee).is_some_and(accepted);
                current.get(callee).is_some() && !accepts_no_more
            });
        }
        restricted
    }

    pub fn vocabulary(&self, sender: &ListenerName) -> Option<&Vocabulary> {
        self.by_name.get(sender).map(|(_, vocabulary)| vocabulary)
    }

    /// Returns the agents to which workflows may send goals, in config order.
    pub fn agents_with_goals(&self) -> impl Iterator<Item = &ListenerName> {
        let has_goals = |name: &&ListenerName| {
            self.vocabulary(name).is_some_and(|vocabulary| vocabulary.has_goals())
        };
        self.order.iter().filter(has_goals)
    }

    /// Whether `sender`, or a listener that can be called beneath a thread of `sender`, is an agent
    /// whose model has no price. If true, an amount of money cannot limit the threads of `sender`.
    pub fn has_unpriced_beneath(&self, sender: &ListenerName) -> bool {
        let mut found = vec![sender];
        let mut at = 0;
        while let Some(contract) = found.get(at).map(|name| self.get(name)) {
            at += 1;
            let Some(contract) = contract else { continue };
            if contract.has_unpriced_model {
                return true;
            }
            for peer in &contract.peers {
                if !found.contains(&peer) {
                    found.push(peer);
                }
            }
        }

        false
    }

    /// Iterates over the contracts in config order.
    pub fn iter(&self) -> impl Iterator<Item = &Contract> {
        self.order.iter().filter_map(|name| self.get(name))
    }
}
