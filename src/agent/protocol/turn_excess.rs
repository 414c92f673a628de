//! Bounds the number of parts of one turn. A model that repeats itself may write thousands of
//! elements in one turn, and each refusal stays in the thread as a message.
//!
//! All parts beyond the limits are merged into one refusal at the end of the turn.

use super::parse_turn::ParsedTurn;
use crate::envelope::BrokenPayload;
use crate::limits;
use crate::xml::findings::{Finding, TextLocation};

/// Code of the finding about the parts of a turn beyond the limits.
const EXCESS: &str = "turn-excess";

/// Code of the finding about a closed element that has no namespace and an unknown name, or about a
/// call that a server left in the text.
pub(super) const UNKNOWN_ACTION: &str = "unknown-action";

/// The parts of a turn beyond the limits.
#[derive(Default)]
struct MergedParts {
    count: usize,
    /// Texts of the parts, one after another.
    text: String,
}

impl MergedParts {
    fn add(&mut self, text: &str) {
        self.count += 1;
        if self.text.len() + text.len() <= limits::TURN_BYTES_MAX {
            self.text.push_str(text);
        }
    }

    /// Returns the refusal of all the parts. `index` is its index among the actions of the turn.
    fn refusal(self, index: usize) -> BrokenPayload {
        let parts = match self.count {
            1 => "1 more part of this response was".to_owned(),
            count => format!("{count} more parts of this response were"),
        };
        let message = format!(
            "{parts} not acted on: of one response, at most {most} notes and actions are taken, \
             and of the refused ones, at most {} elements of unknown names without a namespace \
             and {most} others are listed one by one; write less in one response",
            limits::TURN_REFUSALS_MAX + 1,
            most = limits::OUTCOME_PAYLOADS_MAX,
        );
        let finding = Finding::new(EXCESS, TextLocation::default(), message);
        BrokenPayload { index, attempt: self.text, finding }
    }
}

/// Decides which refusals of one kind are kept: all of them if there are at most `max`, or else the
/// first ones and the last one. The last one may state that the answer was cut off.
struct KeptRefusals {
    seen: usize,
    total: usize,
    /// Maximum refusals, including the one refusal of all merged parts.
    max: usize,
}

impl KeptRefusals {
    fn keeps_next(&mut self) -> bool {
        self.seen += 1;
        self.total <= self.max || self.seen + 1 < self.max || self.seen == self.total
    }
}

/// Merges the parts of a turn beyond the limits into one last refusal. Keeps:
///
/// - at most [`limits::OUTCOME_PAYLOADS_MAX`] notes and actions together: the first ones of both
///   kinds, and at least half of this number of each kind, if there are that many,
/// - at most [`limits::TURN_REFUSALS_MAX`] refusals of unknown elements without a namespace; if
///   there is exactly one more than that, all of them,
/// - at most [`limits::OUTCOME_PAYLOADS_MAX`] other refusals.
///
/// Replaces findings of the feedback beyond [`limits::TURN_REFUSALS_MAX`] by one finding that
/// states their number, if there are at least two.
pub(super) fn merge(turn: &mut ParsedTurn) {
    merge_feedback(&mut turn.feedback);

    let most = limits::OUTCOME_PAYLOADS_MAX;
    let notes_max = most - turn.actions.len().min(most / 2);
    let notes_kept = turn.notes.len().min(notes_max);
    let actions_max = most - notes_kept;

    let mut merged = MergedParts::default();
    for note in turn.notes.drain(notes_kept..) {
        merged.add(&String::from_utf8_lossy(&note));
    }

    let is_unknown = |refusal: &BrokenPayload| refusal.finding.code == UNKNOWN_ACTION;
    let elements = turn.broken.iter().filter(|refusal| is_unknown(refusal)).count();
    let max = limits::TURN_REFUSALS_MAX + 1;
    let mut unknown = KeptRefusals { seen: 0, total: elements, max };
    let mut others = KeptRefusals { seen: 0, total: turn.broken.len() - elements, max: most };

    // An index counts actions and refusals together, so each merged part shifts the later indices.
    let total = turn.actions.len() + turn.broken.len();
    let mut actions = std::mem::take(&mut turn.actions).into_iter();
    let mut refusals = std::mem::take(&mut turn.broken).into_iter().peekable();

    for index in 0..total {
        if let Some(mut refusal) = refusals.next_if(|refusal| refusal.index == index) {
            let kind = if is_unknown(&refusal) { &mut unknown } else { &mut others };
            if kind.keeps_next() {
                refusal.index = turn.actions.len() + turn.broken.len();
                turn.broken.push(refusal);
            } else {
                merged.add(&refusal.attempt);
            }
        } else if let Some(action) = actions.next() {
            if turn.actions.len() < actions_max {
                turn.actions.push(action);
            } else {
                merged.add(&String::from_utf8_lossy(&action.payload));
            }
        }
    }

    if merged.count > 0 {
        turn.broken.push(merged.refusal(turn.actions.len() + turn.broken.len()));
    }
}

fn merge_feedback(feedback: &mut Vec<Finding>) {
    let most = limits::TURN_REFUSALS_MAX;
    if feedback.len() <= most + 1 {
        return;
    }

    let count = feedback.len() - most;
    feedback.truncate(most);
    let message = format!("{count} more findings about this response; write less in one response");
    feedback.push(Finding::new(EXCESS, TextLocation::default(), message));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::parse_turn::TurnAction;
    use crate::envelope::RefusalRule;
    use crate::ids::PayloadName;
    use crate::xml::shape::QName;

    fn action(text: &str) -> TurnAction {
        let name = PayloadName::from(&QName::new(Some("urn:example"), "a"));
        TurnAction { name, payload: text.as_bytes().to_vec() }
    }

    fn refusal(index: usize, attempt: &str) -> BrokenPayload {
        refusal_with(UNKNOWN_ACTION, index, attempt)
    }

    fn refusal_with(code: &str, index: usize, attempt: &str) -> BrokenPayload {
        let finding = Finding::new(code, TextLocation::default(), "refused");
        BrokenPayload { index, attempt: attempt.to_owned(), finding }
    }

    #[test]
    fn a_turn_within_the_limits_stays_as_it_is() {
        let most = limits::OUTCOME_PAYLOADS_MAX;
        let refusals = (0..=limits::TURN_REFUSALS_MAX).map(|index| refusal(index, "<x/>"));
        let feedback = Finding::new("progress-suppressed", TextLocation::default(), "no");
        let turn = ParsedTurn {
            notes: vec![b"<n/>".to_vec(); 400],
            actions: vec![action("<a/>"); most - 400],
            broken: refusals.collect(),
            feedback: vec![feedback; limits::TURN_REFUSALS_MAX + 1],
            ..ParsedTurn::default()
        };
        let mut merged = turn.clone();
        merge(&mut merged);
        assert_eq!(merged, turn);
    }

    #[test]
    fn payloads_beyond_the_limit_are_one_refusal() {
        let most = limits::OUTCOME_PAYLOADS_MAX;
        for (notes, actions, expected) in [
            (0, most + 1, (0, most)),
            (0, most + 7, (0, most)),
            (most + 6, 1, (most - 1, 1)),
            (401, 606, (401, most - 401)),
            (most, most, (most / 2, most / 2)),
        ] {
            let mut turn = ParsedTurn {
                notes: vec![b"<n/>".to_vec(); notes],
                actions: vec![action("<a/>"); actions],
                ..ParsedTurn::default()
            };
            merge(&mut turn);
            assert_eq!((turn.notes.len(), turn.actions.len()), expected);
            let [refused] = turn.broken.as_slice() else { panic!("{:?}", turn.broken) };
            assert_eq!(refused.index, turn.actions.len());
            let count = notes + actions - most;
            let parts = if count == 1 { "part of" } else { "parts of" };
            assert!(refused.finding.message.starts_with(&format!("{count} more {parts}")));
            assert_eq!(refused.attempt.len(), 4 * count);
        }
    }

    #[test]
    fn refused_elements_are_merged_around_the_actions() {
        let mut turn = ParsedTurn { actions: vec![action("<a/>"); 2], ..ParsedTurn::default() };
        let places = (0..32).filter(|place| ![3, 20].contains(place));
        turn.broken = places.map(|place| refusal(place, &format!("<x{place}/>"))).collect();
        merge(&mut turn);

        let kept: Vec<_> = turn.broken.iter().map(|broken| broken.index).collect();
        let expected: Vec<usize> = (0..3).chain(4..16).chain([17, 18]).collect();
        assert_eq!(kept, expected);
        assert_eq!(turn.actions.len(), 2);
        let [.., last, merged] = turn.broken.as_slice() else { panic!("{:?}", turn.broken) };
        assert_eq!(last.attempt, "<x31/>");
        assert!(merged.finding.message.starts_with("14 more parts"), "{:?}", merged.finding);
        assert_eq!(
            (merged.finding.code.as_str(), merged.rule()),
            (EXCESS, RefusalRule::ExcessAction)
        );
        assert!(merged.attempt.starts_with("<x16/><x17/>"), "{}", merged.attempt);
    }

    #[test]
    fn refusals_of_known_actions_stay_beside_merged_elements() {
        let known = |index: usize| index.is_multiple_of(2);
        let refusals = (0..80).map(|index| {
            let code = if known(index) { "unknown-param" } else { UNKNOWN_ACTION };
            refusal_with(code, index, "<x/>")
        });
        let mut turn = ParsedTurn { broken: refusals.collect(), ..ParsedTurn::default() };
        merge(&mut turn);
        let count = |code: &str| turn.broken.iter().filter(|one| one.finding.code == code).count();
        assert_eq!(count("unknown-param"), 40);
        assert_eq!(count(UNKNOWN_ACTION), limits::TURN_REFUSALS_MAX);
        assert!(turn.broken.iter().map(|one| one.index).eq(0..turn.broken.len()));
        let merged = turn.broken.last().unwrap();
        assert!(merged.finding.message.starts_with("24 more parts"), "{:?}", merged.finding);

        let most = limits::OUTCOME_PAYLOADS_MAX;
        let refusals = (0..=most).map(|index| refusal_with("unknown-param", index, "<x/>"));
        let mut turn = ParsedTurn { broken: refusals.collect(), ..ParsedTurn::default() };
        merge(&mut turn);
        assert_eq!(turn.broken.len(), most);
        let merged = turn.broken.last().unwrap();
        assert!(merged.finding.message.starts_with("2 more parts"), "{:?}", merged.finding);
    }

    #[test]
    fn feedback_beyond_the_limit_is_one_finding() {
        let finding = Finding::new("progress-suppressed", TextLocation::default(), "no");
        let feedback = vec![finding; limits::TURN_REFUSALS_MAX + 5];
        let mut turn = ParsedTurn { feedback, ..ParsedTurn::default() };
        merge(&mut turn);
        assert_eq!(turn.feedback.len(), limits::TURN_REFUSALS_MAX + 1);
        assert!(turn.feedback.last().unwrap().message.starts_with("5 more findings"));
    }
}
