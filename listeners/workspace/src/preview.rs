//! Previews: texts about the effects that a call would have, for the person who decides on the
//! call. Writes no file.
//!
//! The text of a preview contains the digest of each file before and after the change. So the text
//! differs whenever a byte of a file differs, even if the diff is cut. A text that is too long for
//! a preview is cut, and begins with a digest of the whole text.

use organism::ids::Digest;
use organism::xml::escape::escape_text;

use crate::action::{CommandStep, ProposalSet};
use crate::change::FileChange;
use crate::diff;
use crate::failure::ActionFailure;
use crate::limits;
use crate::package;

/// Preview of a call that changes nothing.
pub const READS_ONLY: &str = "would change nothing: it only reads";

/// Returns the preview of a set of edits and steps. `changes` are the changes that the edits would
/// make now. `check` fails for a step that can never succeed. It returns the failure that the
/// step would have now, and that another program may prevent before the call.
pub fn of_set(
    set: &ProposalSet,
    changes: &[FileChange],
    check: impl Fn(usize, &CommandStep) -> Result<Option<ActionFailure>, ActionFailure>,
) -> String {
    if set.edits.is_empty() && set.steps.is_empty() {
        return READS_ONLY.to_owned();
    }

    let mut parts = if set.edits.is_empty() { Vec::new() } else { change_parts(changes) };
    for (index, step) in set.steps.iter().enumerate() {
        let checked = check(index, step);
        match checked.and_then(|present| Ok((present, of_step(step)?))) {
            // The command and those after it are shown, too: another program may make the directory
            // before the call.
            Ok((Some(present), text)) => {
                let code = present.code.as_str();
                parts.push(format!("would fail now, and run nothing: {code}: {present}\n{text}"));
            }
            Ok((None, text)) => parts.push(text),
            Err(failure) if parts.is_empty() => return of_failure(&failure),
            Err(failure) => {
                let code = failure.code.as_str();
                parts.push(format!("would fail then, and run nothing more: {code}: {failure}\n"));
                break;
            }
        }
    }

    fitted(parts)
}

/// Returns the preview of a call that changes files.
pub fn of_changes(changes: &[FileChange]) -> String {
    fitted(change_parts(changes))
}

/// Returns the parts of a preview of changes: the files with their digests, and the diff.
fn change_parts(changes: &[FileChange]) -> Vec<String> {
    if changes.is_empty() {
        return vec!["would change no file\n".to_owned()];
    }

    let count = changes.len();
    let files = if count == 1 { "file" } else { "files" };
    let mut list = format!("would change {count} {files}:\n");
    let digest = |content: &Option<Vec<u8>>| match content {
        Some(bytes) => Digest::of(bytes).to_string(),
        None => "no file".to_owned(),
    };
    for change in changes {
        let before = digest(&change.before);
        let after = digest(&change.after);
        list.push_str(&format!("{}\n  now  {before}\n  then {after}\n", change.place));
    }

    let diff = diff::of(changes);
    let note = diff.is_cut().then(|| format!("the diff is cut: it has {} bytes\n", diff.bytes));
    let mut parts = vec![list, diff.text];
    parts.extend(note);
    parts
}

pub fn of_failure(failure: &ActionFailure) -> String {
    let code = failure.code.as_str();
    fitted(vec![format!("would change nothing and fail: {code}: {failure}\n")])
}

/// Returns the preview of a call that runs a package installation, which was proposed in an earlier
/// call.
pub fn of_command(command: &[String]) -> String {
    format!("would run this, whose effects are not known before:\n{}\n", package::shown(command))
}

fn of_step(step: &CommandStep) -> Result<String, ActionFailure> {
    match step {
        CommandStep::Command { directory, text, .. } => {
            let directory = directory.as_deref().unwrap_or(".");
            Ok(format!(
                "would run in `{directory}`, with effects that are not known before:\n{text}\n"
            ))
        }
        CommandStep::Packages { language, list } => {
            let install = package::install(language, list)?;
            Ok(format!("would propose or run:\n{}\n", package::shown(&install.command)))
        }
    }
}

/// Joins the parts of a preview. If they are too long for a preview, the longest parts are cut, and
/// the digest of the whole text comes first.
fn fitted(mut parts: Vec<String>) -> String {
    let whole = parts.concat();
    if escaped_bytes(&whole) <= limits::PREVIEW_TEXT_BYTES_MAX {
        return whole;
    }

    // Short parts leave what they do not need of their share to the longer ones.
    let mut left = limits::PREVIEW_TEXT_BYTES_MAX;
    let mut parts_left = parts.len();
    let mut shortest_first: Vec<&mut String> = parts.iter_mut().collect();
    shortest_first.sort_by_key(|part| escaped_bytes(part));
    for part in shortest_first {
        let share = left / parts_left;
        left -= escaped_bytes(part).min(share);
        parts_left -= 1;
        cut(part, share);
    }

    let bytes = whole.len();
    let digest = Digest::of(whole.as_bytes());
    format!(
        "this preview is cut: it has {bytes} bytes, and the SHA-256 {digest}\n{}",
        parts.concat()
    )
}

/// Cuts a text so that it has at most `most` bytes when it is escaped, and a note.
fn cut(text: &mut String, most: usize) {
    let mut bytes = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        bytes += escaped_bytes(c.encode_utf8(&mut [0; 4]));
        (bytes > most).then_some(at)
    });

    if let Some(end) = end {
        let hidden = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[cut: {hidden} bytes more]\n"));
    }
}

fn escaped_bytes(text: &str) -> usize {
    escape_text(text).len()
}
