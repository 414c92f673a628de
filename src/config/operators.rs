//! Operators: people who sign their decisions. Each has a public key.

use crate::ids::ListenerName;
use crate::thread::{OperatorKeys, OperatorPublicKey};

use super::config_problem::{ConfigProblem, ProblemCode};
use super::members::member_name;
use super::read::TableReader;
use super::tree::{ExpandedText, Located};
use super::variables;

/// The declared operators whose keys could be read.
#[derive(Default)]
pub(super) struct DeclaredOperators {
    keys: Vec<(ListenerName, OperatorPublicKey)>,
    /// Environment variables from which the operators' keys are read.
    pub variables: Vec<String>,
}

const MAKE: &str = "`organism operator key FILE` makes a key and prints this line";

impl DeclaredOperators {
    pub fn keys(&self) -> OperatorKeys {
        OperatorKeys::new(self.keys.iter().cloned())
    }

    pub fn read(&mut self, name: &Located<String>, read: &mut TableReader<'_>) {
        let name = member_name(name, read);
        let Some(text) = read.required_text("key", "\"ed25519:…\"") else { return };
        let browser = read.text("browser_key");
        for text in [Some(text), browser].into_iter().flatten() {
            self.add(name.as_ref(), &text, read);
        }
    }

    fn add(
        &mut self,
        name: Option<&Located<ListenerName>>,
        text: &Located<ExpandedText>,
        read: &mut TableReader<'_>,
    ) {
        self.variables.extend(variables::named(&text.value.written).map(str::to_owned));
        if text.value.failed {
            return;
        }

        let Some(key) = OperatorPublicKey::parse(&text.value.value) else {
            let message = "this is no public key of an operator";
            let problem = ConfigProblem::new(ProblemCode::OperatorKey, &text.place, message);
            return read.problem(problem.help(MAKE));
        };

        if let Some((other, _)) = self.keys.iter().find(|(_, known)| *known == key) {
            let message = format!("this is the key of the operator `{other}`");
            let problem = ConfigProblem::new(ProblemCode::OperatorKey, &text.place, message);
            return read.problem(problem.help("give each operator a key of their own"));
        }

        self.keys.extend(name.map(|name| (name.value.clone(), key)));
    }
}
