//! Counts the entries that a record adds to timelines (`src/audit/timeline.rs`). With these counts,
//! a page of a long thread can state how many entries follow the page, without reading them.

use crate::ids::{CallId, ThreadId};
use crate::thread::{Fact, Input, PauseAction, PauseTarget, Record};

use super::fold::IndexFold;

/// Returns the value for the parameter `thread` of [`count`]: the number of the thread to which the
/// input of `record` refers, directly or by a call. Returns `None` if the input refers to no known
/// thread or call.
///
/// Must be called before the facts of `record` are applied to the index, because these facts may
/// close the call.
pub fn thread_of(fold: &mut IndexFold<'_>, record: &Record) -> rusqlite::Result<Option<i64>> {
    let call = match &record.input {
        Input::Outcome { call, .. }
        | Input::Failed { call, .. }
        | Input::Lost { call, .. }
        | Input::Unsettled { call, .. }
        | Input::Stop { call, .. }
        | Input::Deadline { call, .. } => *call,
        Input::Decided { message, .. } => CallId(*message),
        Input::Cancel { thread, .. }
        | Input::Pause(PauseAction { target: PauseTarget::Thread(thread), .. }) => {
            return fold.threads.find(thread);
        }
        _ => return Ok(None),
    };
    fold.thread_of_call(call)
}

/// Counts the timeline entries of a record. Each entry counts for one thread:
///
/// - An entry about a certain thread, such as a message, counts for this thread. A new subthread
///   counts for its parent thread.
/// - A refusal without a thread counts for the root of the tree. A refusal for a thread that does
///   not exist is not counted.
/// - Any other entry counts for `thread` or, if this is `None`, for the root of the tree.
pub fn count(
    fold: &mut IndexFold<'_>,
    record: &Record,
    thread: Option<i64>,
) -> rusqlite::Result<()> {
    let mut own = of_input(record);
    let mut are_work = is_work_of_input(record);
    for fact in &record.facts {
        match fact {
            Fact::Accepted { message, .. } => {
                let n = fold.threads.number(&message.thread, None, record)?;
                fold.threads.count_events(n, record, 1, true)?;
            }
            Fact::Refused { thread: named, .. } => {
                // A refusal that names a thread that does not exist appears in no timeline.
                if let Some(n) = fold.threads.find(named.as_ref().unwrap_or(&record.tree))? {
                    fold.threads.count_events(n, record, 1, false)?;
                }
            }
            Fact::AttemptFailed { .. } | Fact::Charged { .. } | Fact::TimerEnded { .. } => {
                own += 1;
                are_work = true;
            }
            Fact::ThreadOpened { thread, .. } => count_subthread(fold, record, thread)?,
            Fact::Forked { threads, .. } => {
                for inherited in threads {
                    count_subthread(fold, record, &inherited.thread)?;
                }
            }
            _ => {}
        }
    }

    if own == 0 {
        return Ok(());
    }
    let n = match thread {
        Some(n) => n,
        None => fold.threads.number(&record.tree, None, record)?,
    };
    fold.threads.count_events(n, record, own, are_work)
}

/// Counts a new subthread as an entry in the timeline of its parent thread. Does nothing for a root
/// thread.
fn count_subthread(
    fold: &mut IndexFold<'_>,
    record: &Record,
    thread: &ThreadId,
) -> rusqlite::Result<()> {
    let Some(parent) = thread.parent() else { return Ok(()) };
    let n = fold.threads.number(&parent, None, record)?;
    fold.threads.count_events(n, record, 1, true)
}

/// Whether the timeline entries for the input of a record count as work of the thread. Entries
/// about the findings of a turn, and about a cancellation, count as work. All other entries for
/// inputs do not, because they are about actions of persons or about refusals.
fn is_work_of_input(record: &Record) -> bool {
    match &record.input {
        Input::Outcome { .. } => true,
        Input::Cancel { .. } => !record.is_cancel_refused(),
        _ => false,
    }
}

/// Returns the number of timeline entries for the input of a record.
fn of_input(record: &Record) -> i64 {
    let is_shown = match &record.input {
        Input::Fork(action) => action.origin.is_some(),
        Input::OperatorRetry(action) => action.origin.is_some(),
        Input::Decided { origin, .. } | Input::Pause(PauseAction { origin, .. }) => {
            origin.is_some()
        }
        // The decision counts if a person made it, and the cancellation counts if it was not
        // refused.
        Input::Cancel { origin, .. } => {
            return i64::from(origin.is_some()) + i64::from(!record.is_cancel_refused());
        }
        Input::Busy { .. } => true,
        Input::Outcome { turn: Some(turn), .. } => !turn.findings.is_empty(),
        _ => false,
    };
    i64::from(is_shown)
}
