//! Contracts: what each listener accepts and may answer, and which peers it may address. The
//! vocabulary of every sender follows from them. Pure values.

mod approval;
mod budget;
mod capability;
mod peers;

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ListenerName, PayloadName};
use crate::limits;

pub use approval::Approval;
pub use budget::{Budget, TreeLimits};

/// The kind of party behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// A listener whose handler is a model: may address itself, spawn, wait.
    #[serde(rename = "agent")]
    Agent,
    /// Any other listener.
    #[serde(rename = "listener")]
    Listener,
    /// A program outside that speaks first; receives nothing.
    #[serde(rename = "client")]
    Client,
    /// A person, who answers at any time; no process runs meanwhile.
    #[serde(rename = "human")]
    Human,
}

/// How the answers of several peers that accept one payload name become one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Gather {
    /// Each peer's reply or fault, in config order.
    #[default]
    #[serde(rename = "all")]
    All,
    /// The first reply; the faults only when every peer failed.
    #[serde(rename = "first")]
    First,
}

/// The contract of a listener or client, which the pump enforces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    #[serde(rename = "name")]
    pub name: ListenerName,
    #[serde(rename = "role")]
    pub role: Role,
    #[serde(rename = "description")]
    pub description: String,
    /// Payload names it handles. An agent's own name is the first of them.
    #[serde(rename = "accepts")]
    pub accepts: Vec<PayloadName>,
    /// Payload names it may answer with; an agent's finals.
    #[serde(rename = "replies")]
    pub replies: Vec<PayloadName>,
    #[serde(rename = "peers")]
    pub peers: Vec<ListenerName>,
    /// Whether a name that fits both a peer and a reply is a call whose result becomes the
    /// listener's own result.
    #[serde(rename = "forward")]
    pub forward: bool,
    #[serde(rename = "gather")]
    pub gather: Gather,
    /// Timeout of an attempt, from hand-over.
    #[serde(rename = "timeout")]
    pub timeout: Duration,
    #[serde(rename = "attempts")]
    pub attempts: u32,
    /// Maximum deliveries in flight.
    #[serde(rename = "concurrency")]
    pub concurrency: u32,
    #[serde(rename = "serial_per_thread")]
    pub serial_per_thread: bool,
    /// Deliveries that may wait before callers get `busy`.
    #[serde(rename = "backlog")]
    pub backlog: usize,
    /// For agents: maximum actions of one turn; the rest are refused visibly.
    #[serde(rename = "actions_per_turn")]
    pub actions_per_turn: u32,
    /// Which calls to it need an operator's approval.
    #[serde(rename = "approval", default, skip_serializing_if = "Approval::is_never")]
    pub approval: Approval,
    /// How long a call waits for a person, operator or human listener; without it, for ever.
    #[serde(rename = "patience", default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Duration>,
    /// For agents: what one may use in a tree, within the limits of the tree.
    #[serde(rename = "budget", default, skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// For listeners: the one client that its processes may send as.
    #[serde(rename = "client", default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ListenerName>,
    /// Core words that the config names; without them, the default of its kind.
    #[serde(rename = "core", default, skip_serializing_if = "Option::is_none")]
    pub core: Option<Vec<String>>,
}

impl Contract {
    /// A contract with default values.
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
            actions_per_turn: limits::ACTIONS_PER_TURN_DEFAULT,
            approval: Approval::Never,
            patience: None,
            budget: Budget::default(),
            client: None,
            core: None,
        }
    }

    pub fn is_human(&self) -> bool {
        self.role == Role::Human
    }
}

/// Meaning of a payload name from a given sender, by the sender's vocabulary only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A primitive of the core, which the contract allows.
    Primitive,
    /// `thinking`, `progress` or `todo-until`: recorded, but not delivered.
    Note,
    /// The agent's own name: it continues its own call.
    Own,
    /// A call to every listed peer; one peer is the usual case. `forward`: the result becomes
    /// the sender's own result without waking it.
    Call { peers: Vec<ListenerName>, gather: Gather, forward: bool },
    /// A declared reply, or an agent's declared final.
    Reply,
}

/// Two readings of one payload name in one vocabulary: a config error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    #[error("`{sender}` may both call a peer with {name} and reply with it")]
    CallOrReply { sender: ListenerName, name: PayloadName },
    #[error("{name} is accepted by agents `{first}` and `{second}`")]
    TwoAgents { name: PayloadName, first: ListenerName, second: ListenerName },
    #[error("`{sender}` may write two payloads called `{local}`: {first} and {second}")]
    AmbiguousLocal { sender: ListenerName, local: String, first: PayloadName, second: PayloadName },
}

/// Everything one sender may write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocabulary {
    names: HashMap<PayloadName, Meaning>,
}

impl Vocabulary {
    pub fn meaning(&self, name: &PayloadName) -> Option<&Meaning> {
        self.names.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&PayloadName, &Meaning)> {
        self.names.iter()
    }
}

/// All contracts of an organism, with the vocabulary of every sender.
#[derive(Debug, Clone, Default)]
pub struct Contracts {
    by_name: HashMap<ListenerName, (Contract, Vocabulary)>,
    order: Vec<ListenerName>,
}

impl Contracts {
    /// Builds every vocabulary, or returns all conflicts.
    pub fn new(contracts: Vec<Contract>) -> Result<Self, Vec<VocabularyError>> {
        let order: Vec<_> = contracts.iter().map(|c| c.name.clone()).collect();
        let mut errors = agents_sharing_a_name(&contracts);
        let mut by_name = HashMap::new();
        for contract in &contracts {
            let vocabulary = vocabulary_of(contract, &contracts, &mut errors);
            by_name.insert(contract.name.clone(), (contract.clone(), vocabulary));
        }

        if errors.is_empty() { Ok(Self { by_name, order }) } else { Err(errors) }
    }

    pub fn get(&self, name: &ListenerName) -> Option<&Contract> {
        self.by_name.get(name).map(|(contract, _)| contract)
    }

    pub fn vocabulary(&self, sender: &ListenerName) -> Option<&Vocabulary> {
        self.by_name.get(sender).map(|(_, vocabulary)| vocabulary)
    }

    /// Iterates in config order.
    pub fn iter(&self) -> impl Iterator<Item = &Contract> {
        self.order.iter().filter_map(|name| self.get(name))
    }
}

fn agents_sharing_a_name(contracts: &[Contract]) -> Vec<VocabularyError> {
    let mut seen: HashMap<&PayloadName, &ListenerName> = HashMap::new();
    let mut errors = Vec::new();
    for agent in contracts.iter().filter(|c| c.role == Role::Agent) {
        for name in &agent.accepts {
            if let Some(first) = seen.insert(name, &agent.name) {
                let (first, second) = (first.clone(), agent.name.clone());
                errors.push(VocabularyError::TwoAgents { name: name.clone(), first, second });
            }
        }
    }

    errors
}

/// Builds a vocabulary: own names, then peers' names, then replies; for agents also core names and
/// notes.
fn vocabulary_of(
    sender: &Contract,
    contracts: &[Contract],
    errors: &mut Vec<VocabularyError>,
) -> Vocabulary {
    let mut names: HashMap<PayloadName, Meaning> = HashMap::new();
    for word in sender.core_words() {
        names.insert(crate::system::name(word), Meaning::Primitive);
    }
    if sender.role == Role::Agent {
        for word in crate::system::NOTES {
            names.insert(crate::system::name(word), Meaning::Note);
        }
        names.extend(sender.accepts.iter().map(|name| (name.clone(), Meaning::Own)));
    }

    peers::add_peers(&mut names, sender, contracts);

    for name in &sender.replies {
        match names.get_mut(name) {
            None => {
                names.insert(name.clone(), Meaning::Reply);
            }
            Some(Meaning::Call { forward, .. }) if sender.forward => *forward = true,
            Some(Meaning::Reply) => {}
            Some(_) => errors.push(VocabularyError::CallOrReply {
                sender: sender.name.clone(),
                name: name.clone(),
            }),
        }
    }

    if sender.role == Role::Agent {
        errors.extend(ambiguous_locals(sender, &names));
    }

    Vocabulary { names }
}

/// Agents may write names bare, so a local name must mean one thing.
fn ambiguous_locals(
    sender: &Contract,
    names: &HashMap<PayloadName, Meaning>,
) -> Vec<VocabularyError> {
    let mut sorted: Vec<_> = names.keys().collect();
    sorted.sort_by(|a, b| (&a.local, &a.namespace).cmp(&(&b.local, &b.namespace)));
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs
        .filter(|(a, b)| a.local == b.local)
        .map(|(a, b)| VocabularyError::AmbiguousLocal {
            sender: sender.name.clone(),
            local: a.local.to_string(),
            first: (*a).clone(),
            second: (*b).clone(),
        })
        .collect()
}
