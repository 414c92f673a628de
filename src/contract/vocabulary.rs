//! The vocabulary of a sender: every payload name that the sender may write. Each name has exactly
//! one meaning. A name with two meanings, such as a call that is also a reply, is a config error.

use std::collections::HashMap;

use super::peers::add_peers;
use super::{Contract, Gather, NameMap, Role, goal_answer, run_definition_name};
use crate::ids::{ListenerName, PayloadName};

/// The meaning of a payload name in the vocabulary of one sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// A primitive, such as `wait`, that the sender's contract allows.
    Primitive,
    /// A note (`thinking`, `progress` or `todo-until`), which is recorded and not delivered.
    Note,
    /// A payload that the sender sends to itself, to continue its current call instead of opening
    /// another call. An agent may send itself each payload that it accepts. A workflow may send
    /// itself only the payload with which a run records its definition.
    Own,
    /// A call to every listed peer, usually one. With `forward`, the call's result becomes the
    /// sender's own result, and is not delivered to the sender.
    Call { peers: Vec<ListenerName>, gather: Gather, forward: bool },
    /// A declared reply, or the declared final payload of an agent.
    Reply,
    /// An agent's answer to a goal. The pump accepts this payload only in a call that gives the
    /// agent a goal, and only if this goal must be answered with this payload name.
    GoalAnswer,
    /// A preview: the listener's description of the effect of a call that waits for a person. The
    /// pump accepts this payload only in the response to a preview request.
    Preview,
    /// A listener's refusal to carry out a call, because the preview that a person approved is no
    /// longer valid. The pump accepts this payload only as the answer to a call whose preview a
    /// person has approved.
    StalePreview,
    /// An agent's call that delegates a task to another agent in a role. The call goes to the
    /// workflow that gave the agent its goal.
    Delegate { workflow: ListenerName },
}

impl Meaning {
    /// Whether the payload opens a call that may go to `callee`.
    pub fn may_call(&self, callee: &ListenerName) -> bool {
        matches!(self, Self::Call { peers, .. } if peers.contains(callee))
    }

    /// Makes `callee` the only receiver of the call that the payload opens. Returns false, without
    /// a change, if the call may not go to `callee`.
    #[must_use]
    pub fn restrict_to(&mut self, callee: &ListenerName) -> bool {
        let may_call = self.may_call(callee);
        if let Self::Call { peers, .. } = self
            && may_call
        {
            peers.retain(|peer| peer == callee);
        }
        may_call
    }
}

/// Config error: a payload name is ambiguous, because it would have two meanings or two receivers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VocabularyError {
    #[error("`{sender}` may both call a peer with {name} and reply with it")]
    CallOrReply { sender: ListenerName, name: PayloadName },
    #[error("{name} is accepted by agents `{first}` and `{second}`")]
    TwoAgents { name: PayloadName, first: ListenerName, second: ListenerName },
    #[error("`{sender}` may write two payloads called `{local}`: {first} and {second}")]
    AmbiguousLocal { sender: ListenerName, local: String, first: PayloadName, second: PayloadName },
}

/// Every payload name that one sender may write, with its meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vocabulary {
    names: NameMap<PayloadName, Meaning>,
    has_goals: bool,
    typed_answers: Vec<PayloadName>,
    delegates: Vec<PayloadName>,
}

impl Vocabulary {
    pub fn meaning(&self, name: &PayloadName) -> Option<&Meaning> {
        self.names.get(name)
    }

    /// Removes listeners from the calls in this vocabulary: each listener for which `is_kept`
    /// returns false. Then removes the payload names that no remaining listener accepts.
    pub(super) fn retain_callees(&mut self, is_kept: impl Fn(&PayloadName, &ListenerName) -> bool) {
        self.names.retain(|name, meaning| match meaning {
            Meaning::Call { peers, .. } => {
                peers.retain(|peer| is_kept(name, peer));
                !peers.is_empty()
            }
            Meaning::Delegate { workflow } => is_kept(name, workflow),
            _ => true,
        });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&PayloadName, &Meaning)> {
        self.names.iter()
    }

    /// Returns the payloads that answer typed goals. An agent may send one of these payloads only
    /// in a call whose goal requires exactly this payload as its answer.
    pub fn typed_answers(&self) -> &[PayloadName] {
        &self.typed_answers
    }

    /// Returns the payloads with which an agent delegates tasks. The agent may send one of these
    /// payloads only in a call whose goal permits delegation with exactly this payload.
    pub fn delegates(&self) -> &[PayloadName] {
        &self.delegates
    }

    /// Whether an agent with this vocabulary can receive goals.
    pub fn has_goals(&self) -> bool {
        self.has_goals
    }
}

pub(super) fn agents_sharing_a_name(contracts: &[Contract]) -> Vec<VocabularyError> {
    let mut seen: HashMap<&PayloadName, &ListenerName> = HashMap::new();
    let mut errors = Vec::new();
    for agent in contracts.iter().filter(|c| c.role == Role::Agent) {
        for name in &agent.accepts {
            if let Some(first) = seen.insert(name, &agent.name) {
                let first = first.clone();
                let second = agent.name.clone();
                errors.push(VocabularyError::TwoAgents { name: name.clone(), first, second });
            }
        }
    }

    errors
}

/// Builds the vocabulary of one sender. First adds the names that do not depend on other listeners,
/// such as primitives and notes. Then adds the payload names of the sender's peers, and last the
/// sender's replies. `callable` must contain all contracts but those of clients.
pub(super) fn vocabulary_of(
    sender: &Contract,
    callable: &[&Contract],
    errors: &mut Vec<VocabularyError>,
) -> Vocabulary {
    let mut names: NameMap<PayloadName, Meaning> = NameMap::default();
    for word in sender.core_words() {
        names.insert(crate::system::name(word), Meaning::Primitive);
    }
    if sender.role == Role::Agent {
        for word in crate::system::NOTES {
            names.insert(crate::system::name(word), Meaning::Note);
        }
        names.extend(sender.accepts.iter().map(|name| (name.clone(), Meaning::Own)));
    }

    if sender.previews.is_some() {
        names.insert(crate::system::name(crate::system::PREVIEW), Meaning::Preview);
        names.insert(crate::system::name(crate::system::STALE_PREVIEW), Meaning::StalePreview);
    }

    if sender.role == Role::Workflow {
        names.insert(run_definition_name(), Meaning::Own);
    }

    add_peers(&mut names, sender, callable);

    let of_delegations = sender.delegation_replies();
    let replies = sender.replies.iter().chain(&of_delegations);
    for name in replies.chain(sender.answers_to_workflows(callable)) {
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

    let has_goals = sender.is_sent_goals(callable);
    if has_goals {
        names.entry(goal_answer()).or_insert(Meaning::GoalAnswer);
    }

    let typed_answers = if has_goals { sender.typed_answers(callable) } else { Vec::new() };
    for name in &typed_answers {
        match names.entry(name.clone()).or_insert(Meaning::GoalAnswer) {
            Meaning::GoalAnswer | Meaning::Reply => {}
            _ => errors.push(VocabularyError::CallOrReply {
                sender: sender.name.clone(),
                name: name.clone(),
            }),
        }
    }

    let mut delegates = Vec::new();
    for (name, workflow) in sender.delegations(callable) {
        let workflow = workflow.clone();
        names.insert(name.clone(), Meaning::Delegate { workflow });
        delegates.push(name.clone());
    }
    delegates.sort();
    delegates.dedup();

    if sender.role == Role::Agent {
        errors.extend(ambiguous_locals(sender, &names));
    }

    Vocabulary { names, has_goals, typed_answers, delegates }
}

/// Returns errors for payload names that have the same local name. An agent may write a name
/// without its namespace, so the same local name could stand for two payloads. Two payloads that
/// answer goals may share a local name, because each call permits only one of them. The same
/// applies to two payloads that delegate tasks.
fn ambiguous_locals(
    sender: &Contract,
    names: &NameMap<PayloadName, Meaning>,
) -> Vec<VocabularyError> {
    let mut sorted: Vec<_> = names.keys().collect();
    sorted.sort_by(|a, b| (&a.local, &a.namespace).cmp(&(&b.local, &b.namespace)));
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs
        .filter(|(a, b)| a.local == b.local)
        .filter(|(a, b)| !(is_answer(names, a) && is_answer(names, b)))
        .filter(|(a, b)| !(is_delegate(names, a) && is_delegate(names, b)))
        .map(|(a, b)| VocabularyError::AmbiguousLocal {
            sender: sender.name.clone(),
            local: a.local.to_string(),
            first: (*a).clone(),
            second: (*b).clone(),
        })
        .collect()
}

fn is_delegate(names: &NameMap<PayloadName, Meaning>, name: &PayloadName) -> bool {
    matches!(names.get(name), Some(Meaning::Delegate { .. }))
}

fn is_answer(names: &NameMap<PayloadName, Meaning>, name: &PayloadName) -> bool {
    matches!(names.get(name), Some(Meaning::GoalAnswer))
}
