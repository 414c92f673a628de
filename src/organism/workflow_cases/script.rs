//! Tracks which answers of a test case the runner has already given.

use std::collections::HashMap;

use crate::config::{CaseAnswer, CaseFault, CaseTurn};
use crate::ids::CallId;

/// The answers of a test case. Each answer is a list of turns. A turn is the text or the fault for
/// one delivery. The script counts how many turns of each answer are used up.
pub struct CaseScript<'a> {
    answers: Vec<ScriptedAnswer<'a>>,
}

struct ScriptedAnswer<'a> {
    answer: &'a CaseAnswer,
    /// Number of turns of this answer that are used up. A turn is the text or the fault for one
    /// delivery.
    given: usize,
    /// Faults that calls have taken from this answer: for each such call, the index of the fault's
    /// turn. All attempts of a call get the same fault. There may be several entries, because
    /// several calls may wait at the answer's path at once.
    faults: HashMap<CallId, usize>,
}

impl<'a> ScriptedAnswer<'a> {
    /// Returns the turn for `call`: the fault that the call has already taken, or the next turn of
    /// this answer. If the next turn is a fault, the call takes this fault.
    fn turn(&mut self, call: CallId) -> Option<&'a CaseTurn> {
        if let Some(taken) = self.faults.get(&call) {
            return self.answer.turns.get(*taken);
        }

        let turn = self.answer.turns.get(self.given)?;
        if matches!(turn, CaseTurn::Fault { .. }) {
            self.faults.insert(call, self.given);
            self.given += 1;
        }
        Some(turn)
    }
}

impl<'a> CaseScript<'a> {
    pub fn new(answers: &'a [CaseAnswer]) -> Self {
        let begun = |answer| ScriptedAnswer { answer, given: 0, faults: HashMap::new() };
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
        self.answer_at(path)?.turn(call)
    }

    fn answer_at(&mut self, path: &str) -> Option<&mut ScriptedAnswer<'a>> {
        self.answers.iter_mut().find(|scripted| scripted.answer.path.text == path)
    }

    /// Records that `call` waits for the scripted answer at `path`. If the next turn of that answer
    /// is a fault, the fault is used up for `call` now. It stays used up if the run cancels `call`
    /// before the call has failed.
    pub fn reach(&mut self, path: &str, call: CallId) {
        if let Some(scripted) = self.answer_at(path) {
            scripted.turn(call);
        }
    }

    /// Returns the fault that `call` has taken from the scripted answer at `path`; `None` if it has
    /// taken none.
    pub fn fault(&self, path: &str, call: CallId) -> Option<CaseFault> {
        let scripted = self.answers.iter().find(|scripted| scripted.answer.path.text == path)?;
        match scripted.answer.turns.get(*scripted.faults.get(&call)?)? {
            CaseTurn::Fault { fault, .. } => Some(*fault),
            CaseTurn::Answer(_) => None,
        }
    }

    /// Marks the next turn of the scripted answer at `path` as used up. Must be called when the
    /// text of the turn is given to the run. Must not be called for a turn that is a fault, because
    /// [`Self::reach`] has already used up that turn.
    pub fn give(&mut self, path: &str) {
        if let Some(scripted) = self.answer_at(path) {
            scripted.given += 1;
        }
    }

    /// Returns each answer of the test case that has turns which no call has taken, together with
    /// the first of these turns.
    pub fn unused(&self) -> impl Iterator<Item = (&'a CaseAnswer, &'a CaseTurn)> {
        self.answers.iter().filter_map(|scripted| {
            Some((scripted.answer, scripted.answer.turns.get(scripted.given)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::config::{CaseText, ConfigSource, SourceRange};
    use crate::ids::MessageId;

    #[test]
    fn each_of_several_calls_at_one_path_takes_a_fault_of_its_own() {
        let place = SourceRange::start(&ConfigSource::new("cases.toml", ""));
        let turn = |fault: CaseFault| {
            let place = place.clone();
            CaseTurn::Fault { fault, reason: None, place }
        };
        let turns = vec![turn(CaseFault::Timeout), turn(CaseFault::ListenerFailed)];
        let path = CaseText { text: "draft/back".to_owned(), place: place.clone() };
        let answers = [CaseAnswer { path, turns }];
        let mut script = CaseScript::new(&answers);
        let call = |number: u128| CallId(MessageId(Uuid::from_u128(number)));

        for _ in 0..2 {
            for (number, expected) in [(1, CaseFault::Timeout), (2, CaseFault::ListenerFailed)] {
                script.reach("draft/back", call(number));
                let fault = match script.next("draft/back", call(number)) {
                    Some(CaseTurn::Fault { fault, .. }) => Some(*fault),
                    _ => None,
                };
                assert_eq!(fault, Some(expected), "call {number}");
            }
        }
        assert!(script.unused().next().is_none());
    }
}
