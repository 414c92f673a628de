//! Previews: texts about the effects that a call would have, for the person who decides on the
//! call. Writes no file.
//!
//! The text of a preview contains the digest of each file before and after the change. So the text
//! differs whenever a byte of a file differs, even if the diff is cut.

use organism::ids::Digest;

use crate::action::{CommandStep, ProposalSet};
use crate::change::FileChange;
use crate::diff;
use crate::failure::ActionFailure;
use crate::package;

/// Preview of a call that changes nothing.
pub const READS_ONLY: &str = "would change nothing: it only reads";

/// Returns the preview of a set of edits. `planned` contains the changes that the edits would make
/// now.
pub fn of_set(set: &ProposalSet, planned: &Result<Vec<FileChange>, ActionFailure>) -> String {
    let mut text = String::new();
    match planned {
        Err(failure) => return of_failure(failure),
        Ok(changes) if !set.edits.is_empty() => text.push_str(&of_changes(changes)),
        Ok(_) => {}
    }

    for step in &set.steps {
        text.push_str(&of_step(step));
    }

    if set.edits.is_empty() && set.steps.is_empty() {
        return READS_ONLY.to_owned();
    }

    text
}

/// Returns the preview of a call that changes files.
pub fn of_changes(changes: &[FileChange]) -> String {
    if changes.is_empty() {
        return "would change no file\n".to_owned();
    }

    let count = changes.len();
    let files = if count == 1 { "file" } else { "files" };
    let mut text = format!("would change {count} {files}:\n");
    let digest = |content: &Option<Vec<u8>>| match content {
        Some(bytes) => Digest::of(bytes).to_string(),
        None => "no file".to_owned(),
    };
    for change in changes {
        let before = digest(&change.before);
        let after = digest(&change.after);
        text.push_str(&format!("{}\n  now  {before}\n  then {after}\n", change.place));
    }

    let diff = diff::of(changes);
    text.push_str(&diff.text);
    if diff.is_cut() {
        text.push_str(&format!("the diff is cut: it has {} bytes\n", diff.bytes));
    }

    text
}

pub fn of_failure(failure: &ActionFailure) -> String {
    format!("would change nothing and fail: {}: {failure}\n", failure.code.as_str())
}

/// Returns the preview of a call that runs a package installation, which was proposed in an earlier
/// call.
pub fn of_command(command: &[String]) -> String {
    format!("would run this, whose effects are not known before:\n{}\n", package::shown(command))
}

fn of_step(step: &CommandStep) -> String {
    match step {
        CommandStep::Command { directory, text, .. } => {
            let directory = directory.as_deref().unwrap_or(".");
            format!("would run in `{directory}`, with effects that are not known before:\n{text}\n")
        }
        CommandStep::Packages { language, list } => match package::install(language, list) {
            Ok(install) => {
                format!("would propose or run:\n{}\n", package::shown(&install.command))
            }
            Err(failure) => of_failure(&failure),
        },
    }
}
