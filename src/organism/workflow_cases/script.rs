//! The answers of a case, and which of them were given.

use crate::config::{CaseAnswer, CaseTurn};
use crate::ids::CallId;

/// The answers of a case while it runs.
pub struct CaseScript<'a> {
    answers: Vec<ScriptedAnswer<'a>>,
}

struct ScriptedAnswer<'a> {
    answer: &'a CaseAnswer,
    /// Turns that were given.
    given: usize,
    /// The call that the fault at the next turn meets: each of its attempts meets it.
    failing: Option<CallId>,
}

impl<'a> CaseScript<'a> {
    pub fn new(answers: &'a [CaseAnswer]) -> Self {
        let begun = |answer| ScriptedAnswer { answer, given: 0, failing: None };
        Self { answers: answers.iter().map(begun).collect() }
    }

    /// Place of the answer of a path in the file; `None` if there is none.
    pub fn place_in_file(&self, path: &str) -> Option<usize> {
        self.answers.iter().position(|one| one.answer.path.text == path)
    }

    pub fn answer(&self, path: &str) -> Option<&'a CaseAnswer> {
        self.answers.iter().map(|one| one.answer).find(|answer| answer.path.text == path)
    }

    /// The next turn at a path for `call`; `None` if there is no further one.
    pub fn next(&mut self, path: &str, call: CallId) -> Option<&'a CaseTurn> {
        let one = self.answers.iter_mut().find(|one| one.answer.path.text == path)?;
        if one.failing.is_some_and(|failing| failing != call) {
            one.failing = None;
            one.given += 1;
        }

        let turn = one.answer.turns.get(one.given)?;
        if matches!(turn, CaseTurn::Fault { .. }) {
            one.failing = Some(call);
        }
        Some(turn)
    }

    /// Counts the next answer at a path as given. A fault stays until its call has ended.
    pub fn give(&mut self, path: &str) {
        if let Some(one) = self.answers.iter_mut().find(|one| one.answer.path.text == path) {
            one.given += 1;
        }
    }

    /// Every path with its first turn that was not given.
    pub fn unused(&self) -> impl Iterator<Item = (&'a CaseAnswer, &'a CaseTurn)> {
        self.answers.iter().filter_map(|one| {
            let given = one.given + usize::from(one.failing.is_some());
            Some((one.answer, one.answer.turns.get(given)?))
        })
    }
}
