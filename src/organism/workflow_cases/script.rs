//! Tracks which answers of a test case the runner has already given.

use crate::config::{CaseAnswer, CaseTurn};
use crate::ids::CallId;

/// The answers of a test case. An answer consists of turns, and each turn is the text or the fault
/// for one delivery. Each answer is stored with the number of its turns that are used up.
pub struct CaseScript<'a> {
    answers: Vec<ScriptedAnswer<'a>>,
}

struct ScriptedAnswer<'a> {
    answer: &'a CaseAnswer,
    /// Number of turns of this answer that are used up. A turn is the text or the fault for one
    /// delivery.
    given: usize,
    /// The call that gets the fault, if the next turn of the answer is a fault. All attempts of
    /// this call get the same fault. `None` if the next turn is no fault, or if no call has reached
    /// it.
    failing: Option<CallId>,
}

impl<'a> CaseScript<'a> {
    pub fn new(answers: &'a [CaseAnswer]) -> Self {
        let begun = |answer| ScriptedAnswer { answer, given: 0, failing: None };
        Self { answers: answers.iter().map(begun).collect() }
    }

    /// Returns the index of a path's answer in the case file; `None` if the path has no answer.
    pub fn place_in_file(&self, path: &str) -> Option<usize> {
        self.answers.iter().position(|scripted| scripted.answer.path.text == path)
    }

    pub fn answer(&self, path: &str) -> Option<&'a CaseAnswer> {
        self.answers.iter().map(|scripted| scripted.answer).find(|answer| answer.path.text == path)
    }

    /// Returns the next turn for `call` from the answer at `path`. Returns `None` if the test case
    /// has no answer at `path`, or no further turn of this answer.
    pub fn next(&mut self, path: &str, call: CallId) -> Option<&'a CaseTurn> {
        let scripted =
            self.answers.iter_mut().find(|scripted| scripted.answer.path.text == path)?;
        if scripted.failing.is_some_and(|failing| failing != call) {
            scripted.failing = None;
            scripted.given += 1;
        }

        let turn = scripted.answer.turns.get(scripted.given)?;
        if matches!(turn, CaseTurn::Fault { .. }) {
            scripted.failing = Some(call);
        }
        Some(turn)
    }

    /// Marks the next turn of the answer at `path` as used up. The caller calls this method for a
    /// turn with a text, when it gives the text to the run. The caller does not call it for a
    /// fault: [`CaseScript::next`] marks a fault as used up when another call needs a turn of the
    /// same answer.
    pub fn give(&mut self, path: &str) {
        if let Some(scripted) =
            self.answers.iter_mut().find(|scripted| scripted.answer.path.text == path)
        {
            scripted.given += 1;
        }
    }

    /// Returns each answer of the test case with turns that no call has taken, together with the
    /// first of these turns.
    pub fn unused(&self) -> impl Iterator<Item = (&'a CaseAnswer, &'a CaseTurn)> {
        self.answers.iter().filter_map(|scripted| {
            let given = scripted.given + usize::from(scripted.failing.is_some());
            Some((scripted.answer, scripted.answer.turns.get(given)?))
        })
    }
}
