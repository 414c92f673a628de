//! The capabilities that distinguish kinds of listeners. The core asks for one of these
//! capabilities and never for the kind of a listener.

use super::{Contract, Role};
use crate::mutant::mutant;
use crate::system::Primitive;

impl Contract {
    /// Whether the listener has at most one open call per thread. Further calls wait until that
    /// call is closed. A call to the listener from beneath its own open call is refused.
    pub fn is_serial(&self) -> bool {
        self.role == Role::Agent
    }

    /// The core words that the listener may use. The config may list them. Without a list, an agent
    /// or a workflow may use all of them that its kind may have, and any other listener none.
    pub fn core_words(&self) -> impl Iterator<Item = &'static str> {
        let has_all = matches!(self.role, Role::Agent | Role::Workflow);
        Self::core_words_of(self.role).filter(move |word| match &self.core {
            Some(_) if mutant("ignore-the-core-words") => true,
            Some(words) => words.iter().any(|named| named == word),
            None => has_all,
        })
    }

    /// The core words that a config may allow a listener of this kind. Only an agent may use the
    /// words that move the window of a prompt.
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

    /// Whether the pump judges each payload of an outcome alone and answers a refused payload. The
    /// outcome of a listener without this capability is accepted or refused as a whole.
    pub fn receives_refusals(&self) -> bool {
        matches!(self.role, Role::Agent | Role::Workflow)
    }

    /// Whether a number of consecutive failed rounds ends a call of the listener. The goals of a workflow
    /// may fail or be refused one after the other; each failure settles a step, so that a run ends
    /// by itself.
    pub fn has_bounded_rounds(&self) -> bool {
        self.role != Role::Workflow
    }
}
