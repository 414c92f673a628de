//! Turns proposed edits into changes: the content of each file before and after the edits. Reads
//! files and writes none.

use std::collections::HashMap;

use crate::action::{EditKind, FileEdit};
use crate::change::FileChange;
use crate::edit;
use crate::failure::{ActionFailure, FailureCode};
use crate::limits;
use crate::place::WorkspacePath;
use crate::root::WorkspaceRoot;
use crate::self_running;

/// Returns the changes that `edits` make, ordered by the first edit of each file. A later edit
/// applies to the result of earlier edits. If one edit fails, no change is returned.
///
/// `is_approved` states whether a person has approved all edits. Without approval, an edit fails if
/// other programs execute the edited file automatically.
pub fn changes(
    root: &WorkspaceRoot,
    edits: &[FileEdit],
    is_approved: bool,
) -> Result<Vec<FileChange>, ActionFailure> {
    let mut plan = ChangePlan::default();
    for edit in edits {
        let place = WorkspacePath::file(&edit.path, root.path())?;
        if !is_approved {
            hold(&place)?;
        }
        let change = plan.change(root, place)?;
        let shown = change.place.to_string();
        let after = made(&shown, change.after.as_deref(), &edit.kind)?;
        if after.len() > limits::FILE_BYTES_MAX {
            let message =
                format!("`{shown}` would be larger than {} bytes", limits::FILE_BYTES_MAX);
            return Err(ActionFailure::new(FailureCode::TooLarge, message));
        }
        change.after = Some(after);
    }

    let bytes: usize = plan.changes.iter().map(FileChange::bytes).sum();
    if bytes > limits::SET_BYTES_MAX {
        let message = format!(
            "the files of this set have {bytes} bytes before and after; at most {} are taken at once",
            limits::SET_BYTES_MAX
        );
        return Err(ActionFailure::new(FailureCode::TooLarge, message));
    }

    Ok(plan.changes.into_iter().filter(FileChange::is_one).collect())
}

/// Fails if other programs execute the file automatically.
pub fn hold(place: &WorkspacePath) -> Result<(), ActionFailure> {
    let Some(name) = self_running::find(place.names()) else { return Ok(()) };
    let message = format!(
        "`{place}` is dangerous to write: other programs run what they find in `{name}` by themselves. \
         Nothing was written. Propose the whole file with replace-dangerous-file, which waits for a person's approval"
    );
    Err(ActionFailure::new(FailureCode::Dangerous, message))
}

#[derive(Default)]
struct ChangePlan {
    changes: Vec<FileChange>,
    known: HashMap<WorkspacePath, usize>,
    ids: HashMap<(u64, u64), WorkspacePath>,
}

impl ChangePlan {
    fn change(
        &mut self,
        root: &WorkspaceRoot,
        place: WorkspacePath,
    ) -> Result<&mut FileChange, ActionFailure> {
        let index = match self.known.get(&place) {
            Some(index) => *index,
            None => {
                self.look(root, &place)?;
                self.known.insert(place, self.changes.len() - 1);
                self.changes.len() - 1
            }
        };

        Ok(self.changes.get_mut(index).expect("what is known has been looked at"))
    }

    fn look(&mut self, root: &WorkspaceRoot, place: &WorkspacePath) -> Result<(), ActionFailure> {
        if self.changes.len() >= limits::SET_FILES_MAX {
            let message = format!("a set changes at most {} files", limits::SET_FILES_MAX);
            return Err(ActionFailure::new(FailureCode::TooMany, message));
        }

        let found = root.read(place)?;
        let mut others = self.changes.iter().map(|change| &change.place);
        if let Some(other) = others.find(|other| is_within(other, place) || is_within(place, other))
        {
            let message = format!(
                "`{other}` and `{place}`: a file of a set cannot be a directory of it, too"
            );
            return Err(ActionFailure::new(FailureCode::NotADirectory, message));
        }

        if let Some(found) = &found
            && let Some(other) = self.ids.insert(found.id, place.clone())
        {
            let message = format!("`{other}` and `{place}` are the same file; call it by one name");
            return Err(ActionFailure::new(FailureCode::SameFile, message));
        }

        let (bytes, owner) = match found {
            Some(found) => (Some(found.bytes), Some(found.owner)),
            None => (None, None),
        };

        let after = bytes.clone();
        self.changes.push(FileChange { place: place.clone(), before: bytes, after, owner });
        Ok(())
    }
}

/// Whether `place` is beneath a directory with the path `directory`.
fn is_within(place: &WorkspacePath, directory: &WorkspacePath) -> bool {
    place.split().0.starts_with(directory.names())
}

/// Applies one edit to the content `now` of a file, and returns the new content.
fn made(path: &str, now: Option<&[u8]>, kind: &EditKind) -> Result<Vec<u8>, ActionFailure> {
    let existing = || {
        let message = format!("there is no file `{path}`");
        now.ok_or_else(|| ActionFailure::new(FailureCode::NotFound, message))
    };

    match kind {
        EditKind::Substring { old, new } => edit::replace_substring(path, existing()?, old, new),
        EditKind::Insert { line, body } => edit::insert(path, existing()?, line, body),
        EditKind::Replace { body } => Ok(edit::replace(now, body)),
        EditKind::Create { body } if now.is_none() => Ok(body.as_bytes().to_vec()),
        EditKind::Create { .. } => {
            let message = format!("`{path}` exists; change it, or replace it as a whole");
            Err(ActionFailure::new(FailureCode::Exists, message))
        }
    }
}
