//! Capabilities in which the kinds of listeners differ. The pump's core decides by these
//! capabilities, and never by the kind of a listener.

use super::{Contract, Role};
use crate::mutant::mutant;
use crate::system::Primitive;

impl Contract {
    /// Whether the listener works on at most one call of a thread at a time. Other calls of the
    /// thread wait until this call has ended.
    ///
    /// The pump refuses a new call if the present call waits for the sender of the new call,
    /// directly or through other calls, because neither call could ever end.
    pub fn is_serial(&self) -> bool {
        self.role == Role::Agent
    }

    /// Returns the names of the primitives that the listener may use: those that the config lists
    /// for it. If the config has no list, agents and workflows may use every primitive that fits
    /// their role, and other listeners may use none.
    pub fn core_words(&self) -> impl Iterator<Item = &'static str> {
        let has_all = matches!(self.role, Role::Agent | Role::Workflow);
        Self::core_words_of(self.role).filter(move |word| match &self.core {
            Some(_) if mutant("ignore-the-core-words") => true,
            Some(words) => words.iter().any(|named| named == word),
            None => has_all,
        })
    }

    /// Returns the names of the primitives that the config may allow for a listener of this kind.
    /// Only agents may use `clear-context`, which removes earlier messages from the agent's prompt.
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
    /// If false, the listener gets only refusals on which it can act. The pump also accepts or
    /// refuses each outcome of this listener as a whole: if one payload of an outcome is refused,
    /// all of them are.
    pub fn receives_refusals(&self) -> bool {
        matches!(self.role, Role::Agent | Role::Workflow)
    }

    /// Whether the pump ends a call of the listener after too many consecutive failed rounds. A
    /// round consists of the results that the listener receives in one delivery. False for
    /// workflows, because each failed goal ends a step of the run, so that rounds cannot fail
    /// without end.
    pub fn has_bounded_rounds(&self) -> bool {
        self.role != Role::Workflow
    }
}
