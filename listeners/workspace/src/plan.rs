//! Turns proposals into changes: the content of each file before and after. Reads files and writes
//! none.

use std::collections::HashMap;

use crate::action::{Edit, EditKind};
use crate::change::Change;
use crate::edit;
use crate::failure::{Code, Failure};
use crate::limits;
use crate::place::Place;
use crate::root::Root;
use crate::self_running;

/// The changes that `edits` make, in the order in which files are first named. A later edit sees
/// the result of earlier edits. If one edit fails, all fail.
///
/// `is_approved`: whether a person has seen each of them, so that files that other programs run by
/// themselves may be among them.
pub fn changes(root: &Root, edits: &[Edit], is_approved: bool) -> Result<Vec<Change>, Failure> {
    let mut plan = Plan::default();
    for edit in edits {
        let place = Place::file(&edit.path, root.path())?;
        if !is_approved {
            hold(&place)?;
        }
        let change = plan.change(root, place)?;
        let shown = change.place.to_string();
        let after = made(&shown, change.after.as_deref(), &edit.kind)?;
        if after.len() > limits::FILE_BYTES_MAX {
            let message =
                format!("`{shown}` would be larger than {} bytes", limits::FILE_BYTES_MAX);
            return Err(Failure::new(Code::TooLarge, message));
        }
        change.after = Some(after);
    }

    let bytes: usize = plan.changes.iter().map(Change::bytes).sum();
    if bytes > limits::SET_BYTES_MAX {
        let message = format!(
            "the files of this set have {bytes} bytes before and after; at most {} are taken at once",
            limits::SET_BYTES_MAX
        );
        return Err(Failure::new(Code::TooLarge, message));
    }

    Ok(plan.changes.into_iter().filter(Change::is_one).collect())
}

/// Refuses a place that other programs run by themselves.
fn hold(place: &Place) -> Result<(), Failure> {
    let Some(name) = self_running::find(place.names()) else { return Ok(()) };
    let message = format!(
        "`{place}` is dangerous to write: other programs run what they find in `{name}` by themselves. \
         Nothing was written. Propose the whole file with replace-dangerous-file, which waits for a person's approval"
    );
    Err(Failure::new(Code::Dangerous, message))
}

#[derive(Default)]
struct Plan {
    changes: Vec<Change>,
    known: HashMap<Place, usize>,
    ids: HashMap<(u64, u64), Place>,
}

impl Plan {
    fn change(&mut self, root: &Root, place: Place) -> Result<&mut Change, Failure> {
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

    fn look(&mut self, root: &Root, place: &Place) -> Result<(), Failure> {
        if self.changes.len() >= limits::SET_FILES_MAX {
            let message = format!("a set changes at most {} files", limits::SET_FILES_MAX);
            return Err(Failure::new(Code::TooMany, message));
        }

        let found = root.read(place)?;
        if let Some(found) = &found
            && let Some(other) = self.ids.insert(found.id, place.clone())
        {
            let message = format!("`{other}` and `{place}` are the same file; call it by one name");
            return Err(Failure::new(Code::SameFile, message));
        }

        let (bytes, owner) = match found {
            Some(found) => (Some(found.bytes), Some(found.owner)),
            None => (None, None),
        };

        let after = bytes.clone();
        self.changes.push(Change { place: place.clone(), before: bytes, after, owner });
        Ok(())
    }
}

/// What one edit makes of a content.
fn made(path: &str, now: Option<&[u8]>, kind: &EditKind) -> Result<Vec<u8>, Failure> {
    let there = || {
        let message = format!("there is no file `{path}`");
        now.ok_or_else(|| Failure::new(Code::NotFound, message))
    };

    match kind {
        EditKind::Substring { old, new } => edit::replace_substring(path, there()?, old, new),
        EditKind::Insert { line, body } => edit::insert(path, there()?, line, body),
        EditKind::Replace { body } => Ok(edit::replace(now, body)),
        EditKind::Create { body } if now.is_none() => Ok(body.as_bytes().to_vec()),
        EditKind::Create { .. } => {
            let message = format!("`{path}` exists; change it, or replace it as a whole");
            Err(Failure::new(Code::Exists, message))
        }
    }
}
