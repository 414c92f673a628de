//! Prints the updates of a submission for `send` and `fork`.

use crate::envelope::Refusal;
use crate::ids::ThreadId;
use crate::service::SubmitUpdate;

use super::decision;
use super::exit::CommandExit;
use super::output::{put_json_line, put_recorded_line};

/// Returns the exit code of a command that makes a submission. `sent` is the last update about the
/// submission. If `wait` is false, the command does not wait for the result, and the exit code also
/// states whether the call waits for an approval.
pub fn exit_of(sent: &SubmitUpdate, wait: bool) -> CommandExit {
    match sent {
        SubmitUpdate::Accepted { held: true, .. } if !wait => CommandExit::ApprovalPending,
        SubmitUpdate::Accepted { .. } | SubmitUpdate::Waits(_) => CommandExit::Done,
        SubmitUpdate::Refused { refusal, .. } => decision::exit_of_refusal(refusal),
        SubmitUpdate::NoThread { .. } => CommandExit::InvalidData,
        SubmitUpdate::Result { .. } if sent.is_failure() => CommandExit::WorkflowFailed,
        SubmitUpdate::Result { .. } => CommandExit::Done,
    }
}

pub fn worse(a: CommandExit, b: CommandExit) -> CommandExit {
    if a == CommandExit::Done { b } else { a }
}

/// Prints one update of a submission. The result goes to stdout, as does the payload of
/// [`SubmitUpdate::NoThread`]. Any other update goes to stderr. `wait` states whether the command
/// waits for the result. If `is_group` is true, the request went to a group of listeners, and each
/// reply is printed with the name of its sender. A fault is printed without a name, because the
/// text of the fault names the listener.
pub fn print_plain(sent: &SubmitUpdate, wait: bool, is_group: bool) {
    match sent {
        SubmitUpdate::Accepted { thread, again: false, .. } => note!("thread {thread}"),
        SubmitUpdate::Accepted { thread, again: true, .. } if wait => {
            note!(
                "thread {thread}; this key was used before: nothing is sent again, and the result \
                 of the first request follows"
            );
        }
        SubmitUpdate::Accepted { thread, again: true, .. } => {
            note!(
                "thread {thread}; this key was used before: nothing is sent again; `organism \
                 thread {thread}` shows how far the first request is"
            );
        }
        SubmitUpdate::Refused { refusal, .. } => print_refusal(refusal),
        SubmitUpdate::NoThread { payload } => put_recorded_line(payload),
        SubmitUpdate::Waits(wait) => note!("{wait}"),
        SubmitUpdate::Result { replies, .. } => {
            for reply in replies {
                if is_group && !reply.from.is_core() {
                    note!("from {}:", reply.from);
                }
                put_recorded_line(reply.text());
            }
        }
    }

    if let SubmitUpdate::Accepted { thread, held: true, .. } = sent {
        note!("{}", approval_note(thread));
    }
}

/// Returns a note that a new call in `thread` waits for an approval.
pub fn approval_note(thread: &ThreadId) -> String {
    format!("a call waits for an approval; `organism approvals --all-from {thread}` shows it")
}

/// Prints a refusal of a payload and, if the refusal contains one, the example of a valid payload.
pub fn print_refusal(refusal: &Refusal) {
    note!("refused: {refusal}");
    if let Some(expected) = &refusal.expected {
        note!("expected, for example:");
        expected.lines().for_each(|line| note!("  {line}"));
    }
}

pub fn print_json(file: Option<&str>, sent: &SubmitUpdate) {
    let mut line = serde_json::json!(sent);
    if let (Some(file), Some(line)) = (file, line.as_object_mut()) {
        line.insert("file".to_owned(), file.into());
    }
    put_json_line(&line.to_string());
}

/// Prints the line for a file that was not sent because of `error`.
pub fn print_unsent_json(file: &str, error: &str) {
    let line = serde_json::json!({"file": file, "sent": "not-sent", "error": error});
    put_json_line(&line.to_string());
}
