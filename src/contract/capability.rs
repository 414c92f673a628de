//! The four capabilities that set listeners apart. Each question of the core is one of these, and
//! never what kind of listener a contract is of.

use super::{Contract, Role};
use crate::mutant::mutant;
use crate::system::Primitive;

impl Contract {
    /// Whether it has one open call per thread. Further calls wait until that call is closed, and a
    /// call from beneath it is refused.
    pub fn is_serial(&self) -> bool {
        self.role == Role::Agent
    }

    /// The words of the core that it may use: those that its config names, where it names any.
    /// Without a word from the config, an agent may use all of them, and any other listener none.
    pub fn core_words(&self) -> impl Iterator<Item = &'static str> {
        let is_agent = self.role == Role::Agent;
        Self::core_words_of(self.role).filter(move |word| match &self.core {
            Some(_) if mutant("ignore-the-core-words") => true,
            Some(words) => words.iter().any(|named| named == word),
            None => is_agent,
        })
    }

    /// The words of the core that a config may allow a listener of this kind. What moves the window
    /// of a prompt is for agents alone.
    pub fn core_words_of(role: Role) -> impl Iterator<Item = &'static str> {
        Primitive::WORDS.into_iter().filter(move |word| match role {
            Role::Agent => true,
            Role::Listener => *word != "clear-context",
            Role::Client | Role::Human => false,
        })
    }

    /// Whether each of its turns makes a model call, which takes tokens and money of the tree.
    pub fn spends(&self) -> bool {
        self.role == Role::Agent
    }

    /// Whether each payload of its outcome is judged alone, and a refused one is answered. The outcome
    /// of any other listener is taken as a whole.
    pub fn receives_refusals(&self) -> bool {
        self.role == Role::Agent
    }
}
