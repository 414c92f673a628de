//! Capabilities in which the kinds of listeners differ. The pump's core decides by these
//! capabilities, and never by the kind of a listener.

use super::{Contract, Role};
use crate::mutant::mutant;
use crate::system::Primitive;

impl Contract {
    /// Whether the listener works on at most one call of a thread at a time. The next call of the
    /// thread waits until the call in progress has ended.
    ///
    /// Such a wait could never end if the call in progress already waits, directly or indirectly,
    /// for the sender of the next call. In this case, the pump refuses the next call.
    pub fn is_serial(&self) -> bool {
        self.role == Role::Agent
    }

    /// Whether both contracts describe the same kind of listener. The state of a call with a
    /// delivery in flight depends on this kind.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        self.role == other.role && self.serial_per_thread == other.serial_per_thread
    }

    /// Returns the names of the primitives that the listener may use. If the config has a list for
    /// the listener, these are the primitives in the list. Otherwise, agents and workflows may use
    /// every primitive that fits their role, and other listeners may use none.
    pub fn core_words(&self) -> impl Iterator<Item = &'static str> {
        let has_all = matches!(self.role, Role::Agent | Role::Workflow);
        Self::core_words_of(self.role).filter(move |word| match &self.core {
            Some(_) if mutant("ignore-the-core-words") => true,
            Some(words) => words.iter().any(|named| named == word),
            None => has_all,
        })
    }

    /// Returns the names of the primitives that the config may allow for listeners of this role.
    /// Only agents may use `clear-context`, which removes earlier messages from the agent's prompt.
    /// Clients and people may use no primitive.
    pub fn core_words_of(role: Role) -> impl Iterator<Item = &'static str> {
        Primitive::WORDS.into_iter().filter(move |word| match role {
            Role::Agent => true,
            Role::Listener | Role::Workflow => *word != "clear-context",
            Role::Client | Role::Human => false,
        })
    }

    /// Whether each turn of the listener makes a model call, which uses tokens and money of the
    /// tree.
    pub fn spends(&self) -> bool {
        self.role == Role::Agent
    }

    /// Whether the listener gets every refusal of its payloads.
    ///
    /// If false, the listener gets only those refusals on which it can act. In this case, the pump
    /// accepts or refuses each outcome of the listener as a whole: if the pump refuses one payload
    /// of an outcome, it refuses all of them.
    pub fn receives_refusals(&self) -> bool {
        matches!(self.role, Role::Agent | Role::Workflow)
    }

    /// Whether the pump ends a call of the listener after too many consecutive failed rounds. A
    /// round consists of the results that the listener receives in one delivery. False only for
    /// workflows. The number of their failed rounds is already limited: each failure ends a goal
    /// run, and a run of a workflow has a limited number of goal runs.
    pub fn has_bounded_rounds(&self) -> bool {
        self.role != Role::Workflow
    }
}
