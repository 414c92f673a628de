//! Checks in the proof of a journal that do not need the intermediate state of the proof. If
//! several violations are found, this module chooses the one to report.

use std::ops::ControlFlow;
use std::path::Path;

use uuid::Uuid;

use crate::ids::{Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Checkpoint, Error, damaged_watermark};
use crate::plural::count;
use crate::thread::{Input, OperatorAction};

use super::report::RecordedLoss;

/// Returns the reason why the watermark of `journal` in the directory `state` proves nothing.
/// Returns `None` if the watermark is intact or missing.
pub fn watermark_damage(state: &Path, journal: Uuid) -> Result<Option<String>, Error> {
    let damaged = damaged_watermark(state, journal)?;
    Ok(damaged.map(|file| {
        format!(
            "the watermark {} is damaged, so a loss of records after the last checkpoint would not \
             show: the next start replaces it",
            file.display()
        )
    }))
}

/// Returns the actions that operators took on the organism and that are recorded after `end`,
/// newest first. The records of such actions form a tree of their own. Only the hash chain of this
/// tree verifies them. If a record of this tree is missing or broken, all older actions are left
/// out.
pub fn actions_behind(reader: &JournalReader, end: Position) -> Vec<OperatorAction> {
    let mut actions = Vec::new();
    let head = reader.head(&ThreadId::organism()).ok().flatten().unwrap_or_default();
    let walked = reader.walk_back(head, |walked| {
        let record = walked.record();
        if record.position <= end {
            return Ok(ControlFlow::Break(()));
        }

        if let Input::Operator(action) = &record.input {
            actions.push(action.clone());
        }
        Ok(ControlFlow::Continue(()))
    });
    // The journal is known to be broken, so an error of the walk adds nothing.
    walked.ok();
    actions
}

/// Whether one of `actions` states that an operator has accepted the record at `position`, although
/// no valid MAC covers the record.
pub fn is_accepted(actions: &[OperatorAction], position: Position) -> bool {
    let mut accepted = actions.iter().filter_map(OperatorAction::accepted_records);
    accepted.any(|(first, last)| first <= position && position <= last)
}

/// Returns the loss of records that an operator has accepted with `action`; `None` for any other
/// action.
pub fn recorded_loss(action: &OperatorAction) -> Option<RecordedLoss> {
    let loss = action.accepted_loss()?;
    let mut details = action.details.iter();
    Some(RecordedLoss {
        kept: loss.kept,
        acknowledged: loss.acknowledged,
        journal: loss.journal,
        is_fork: details.any(|detail| detail.name == OperatorAction::GIVEN_UP_FROM),
    })
}

/// Returns an error if the journal ends at `last`, although later records are known to have
/// existed. Evidence of later records is `mark`, the position of the last acknowledged record, or a
/// checkpoint in the journal itself.
pub fn judge_end(last: Position, mark: Position, checkpoints: &[Checkpoint]) -> Result<(), Error> {
    if mark > last {
        return Err(ends_early(last, &format!("records up to {mark} were acknowledged")));
    }

    match checkpoints.iter().find(|checkpoint| checkpoint.position > last) {
        Some(beyond) => {
            let detail = format!("a checkpoint speaks of position {}", beyond.position);
            Err(ends_early(last, &detail))
        }
        None => Ok(()),
    }
}

/// Returns the error in `checks` that is to be reported. Returns `Ok` if no check failed. If
/// several checks failed, returns the first error in this order:
/// - an error that is no violation, because the proof then has no result,
/// - the violation with the lowest position,
/// - a violation of the journal as a whole, which has the position 0.
pub fn first_violation(checks: Vec<Result<(), Error>>) -> Result<(), Error> {
    let errors = checks.into_iter().filter_map(Result::err);
    let first = errors.min_by_key(|error| match error {
        Error::Broken { position: 0, .. } => (true, 0),
        Error::Broken { position, .. } => (false, *position),
        _ => (false, 0),
    });
    first.map_or(Ok(()), Err)
}

/// Returns the reason why the records after `covered` up to `last` are not proved: no available key
/// covers them. `denied` is the error message if this user may not read the key of this host.
/// `has_unknown_key` states whether a key that is not trusted signed these records or made MACs of
/// them.
pub fn uncovered_reason(
    covered: Position,
    last: Position,
    denied: Option<&str>,
    has_unknown_key: bool,
) -> String {
    let records = count(last.0 - covered.0, "record");
    let first = covered.0 + 1;
    let advice = match denied {
        Some(denied) => format!(" ({denied})"),
        None if has_unknown_key => {
            "; name the public key with `--key HEX` if you trust an unknown key".to_owned()
        }
        None => "; a public key proves no record behind the last checkpoint: compare with a later \
                 one with `--checkpoint FILE`, or verify where `state/key` is"
            .to_owned(),
    };
    format!("under no key at hand: {records}, from {first} on{advice}")
}

fn ends_early(last: Position, known: &str) -> Error {
    Error::Broken { position: last.0 + 1, detail: format!("it ends here, but {known}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_violation_with_the_lowest_position_counts_and_no_position_comes_last() {
        let broken = |position: u64| Err(Error::broken(position, "changed"));
        let first = |checks| match first_violation(checks) {
            Err(Error::Broken { position, .. }) => Some(position),
            _ => None,
        };
        assert_eq!(first(vec![broken(0), broken(300), Ok(()), broken(20)]), Some(20));
        assert_eq!(first(vec![Ok(()), broken(0)]), Some(0));
        assert_eq!(first(vec![Ok(())]), None);

        let missing = Err(Error::Missing { path: "data".to_owned() });
        let checks = vec![broken(20), missing];
        assert!(matches!(first_violation(checks), Err(Error::Missing { .. })));
    }

    #[test]
    fn a_journal_that_ends_before_its_watermark_or_a_checkpoint_is_broken_behind_its_end() {
        assert!(judge_end(Position(7), Position(7), &[]).is_ok());
        let error = judge_end(Position(7), Position(9), &[]).unwrap_err();
        assert!(matches!(error, Error::Broken { position: 8, .. }), "{error}");
    }
}
