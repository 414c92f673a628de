//! The four capabilities that set listeners apart. Each question of the core is one of these, and
//! never what kind of listener a contract is of.

use super::{Contract, Role};
use crate::system::Primitive;

impl Contract {
    /// Whether it has one open call per thread. Further calls wait until that call is closed, and a
    /// call from beneath it is refused.
    pub fn is_serial(&self) -> bool {
        self.role == Role::Agent
    }

    /// The words of the core that it may use.
    pub fn core_words(&self) -> impl Iterator<Item = &'static str> {
        let is_agent = self.role == Role::Agent;
        Primitive::WORDS.into_iter().filter(move |_| is_agent)
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
