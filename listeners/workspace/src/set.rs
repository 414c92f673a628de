//! Changes several files, all or none of them, even if the process or the machine dies.
//!
//! A set is stored with the contents that it replaces. Then each new content is written beside its
//! file. Then each new content replaces its file in one step. Then the set is marked as made. A set
//! that was stored and never marked is taken back before anything else is done.

use organism::failpoint::failpoint;
use rustix::fs::fsync;
use rustix::io::Errno;

use crate::change::Change;
use crate::failure::{Code, Failure};
use crate::manifest::{Content, Entry, Manifest, Side};
use crate::place::Place;
use crate::root::{self, Found, Root};
use crate::state::{Lock, State};

/// Failpoint of tests. Passed before each step whose effect can be seen from outside.
const STEP: &str = "workspace-step";

/// Data of a set apart from its files.
#[derive(Debug, Clone, Default)]
pub struct About {
    pub message: String,
    pub summary: Option<String>,
    pub undoes: Option<u64>,
}

/// Files and what is remembered of them; nobody else changes either in the meantime.
pub struct Sets<'a> {
    root: &'a Root,
    state: &'a State,
    _lock: Lock,
}

impl<'a> Sets<'a> {
    /// Waits for whoever is at work, and takes back what a dead process left unfinished.
    pub fn open(root: &'a Root, state: &'a State) -> Result<Self, Failure> {
        let sets = Self { root, state, _lock: state.lock()? };
        sets.recover()?;
        Ok(sets)
    }

    fn recover(&self) -> Result<(), Failure> {
        match self.state.unfinished().map_err(remembering)? {
            Some(manifest) => self.take_back(&manifest)?,
            None => self.state.abandon().map_err(remembering)?,
        }

        if let Some(last) = self.numbers()?.last().copied()
            && !self.state.is_clean(last)
        {
            self.clear(&self.manifest(last)?);
        }

        Ok(())
    }

    /// Every set that is kept, oldest first.
    pub fn all(&self) -> Result<Vec<Manifest>, Failure> {
        self.numbers()?.into_iter().map(|number| self.manifest(number)).collect()
    }

    pub fn manifest(&self, number: u64) -> Result<Manifest, Failure> {
        self.state.set(number).map_err(remembering)
    }

    fn numbers(&self) -> Result<Vec<u64>, Failure> {
        self.state.sets().map_err(remembering)
    }

    /// The set that a message has already led to.
    pub fn made_for(&self, message: &str) -> Result<Option<Manifest>, Failure> {
        for number in self.numbers()?.into_iter().rev() {
            let manifest = self.manifest(number)?;
            if manifest.message == message {
                return Ok(Some(manifest));
            }
        }

        Ok(None)
    }

    /// The content of a file before or after a set.
    pub fn kept(
        &self,
        manifest: &Manifest,
        index: usize,
        side: Side,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let entry = manifest.files.get(index);
        let content = entry.and_then(|entry| match side {
            Side::Before => entry.before.as_ref(),
            Side::After => entry.after.as_ref(),
        });
        if content.is_none() {
            return Ok(None);
        }

        self.state.kept(Some(manifest.set), index, side).map(Some).map_err(remembering)
    }

    /// Makes the changes of a set. `answer` gets the number of the set and returns the answer to
    /// the caller.
    pub fn make(
        &self,
        changes: &[Change],
        about: About,
        answer: impl FnOnce(u64) -> String,
    ) -> Result<String, Failure> {
        let set = self.numbers()?.last().copied().unwrap_or(0) + 1;
        let mut directories: Vec<String> = Vec::new();
        for change in changes.iter().filter(|change| change.after.is_some()) {
            let missing = self.root.missing(&change.place)?;
            directories.extend(
                missing.into_iter().filter(|path| !directories.contains(path)).collect::<Vec<_>>(),
            );
        }

        let manifest = Manifest {
            set,
            message: about.message,
            summary: about.summary,
            undoes: about.undoes,
            files: changes.iter().map(entry).collect(),
            directories,
            answer: answer(set),
        };

        failpoint(STEP);
        let begun = self.state.begin(&manifest, changes);
        let made = begun.map_err(remembering).and_then(|()| self.carry_out(&manifest, changes));
        if let Err(failure) = made {
            failpoint(STEP);
            // A set that cannot be taken back now is taken back before the next set begins.
            return match self.take_back(&manifest) {
                Ok(()) => Err(failure),
                Err(second) => Err(Failure::new(
                    second.code,
                    format!("{failure}; and it could not be taken back yet: {second}"),
                )),
            };
        }

        self.clear(&manifest);
        // Old sets that cannot be deleted take up disk space and do no other harm.
        let _ = self.state.forget_sets();
        Ok(manifest.answer)
    }

    fn carry_out(&self, manifest: &Manifest, changes: &[Change]) -> Result<(), Failure> {
        for (index, change) in changes.iter().enumerate() {
            failpoint(STEP);
            if let Some(after) = &change.after {
                let dir = self.root.make_parent(&change.place)?;
                let name = manifest.temporary(index);
                root::create_in(&dir, &name, after, change.owner, &change.place)?;
            }
        }

        for (index, change) in changes.iter().enumerate() {
            failpoint(STEP);
            self.swap(&manifest.temporary(index), change)?;
        }

        failpoint(STEP);
        self.state.finish(manifest.set).map_err(remembering)?;
        failpoint(STEP);
        Ok(())
    }

    /// Puts one new content in its place, if the old one is still what it was.
    fn swap(&self, temporary: &str, change: &Change) -> Result<(), Failure> {
        let place = &change.place;
        let (_, name) = place.split();
        let meanwhile = || {
            Failure::new(
                Code::ChangedMeanwhile,
                format!("`{place}` has just been changed by somebody else; nothing was changed"),
            )
        };

        let Some(dir) = self.root.parent(place)? else { return Err(meanwhile()) };
        let swapped = match (&change.before, &change.after) {
            (None, _) => root::rename_free(&dir, temporary, name),
            (Some(_), Some(_)) => {
                if read(&dir, name, place).as_deref() != change.before.as_deref() {
                    return Err(meanwhile());
                }
                root::exchange(&dir, temporary, name)
            }
            (Some(_), None) => root::rename_free(&dir, name, temporary),
        };

        match swapped {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::EXIST) => return Err(meanwhile()),
            Err(error) => return Err(Failure::of(error, "write", place)),
        }

        // The old content now has the temporary name, so its changes show from here on.
        let was = read(&dir, temporary, place);
        if change.before.is_some() && was.is_some() && was != change.before {
            let back = match change.after {
                Some(_) => root::exchange(&dir, temporary, name),
                None => root::rename_free(&dir, temporary, name),
            };
            back.map_err(|error| Failure::of(error, "put back", place))?;
            return Err(meanwhile());
        }

        fsync(&dir).map_err(|error| Failure::of(error, "write", place))
    }

    /// Undoes as much of a set as was made. A file that somebody else has changed since is left
    /// as it is.
    fn take_back(&self, manifest: &Manifest) -> Result<(), Failure> {
        for (index, entry) in manifest.files.iter().enumerate().rev() {
            let place = Place::file(&entry.path, self.root.path())?;
            self.restore(manifest, index, entry, &place)?;
        }
        self.remove_directories(manifest);
        self.state.abandon().map_err(remembering)
    }

    fn restore(
        &self,
        manifest: &Manifest,
        index: usize,
        entry: &Entry,
        place: &Place,
    ) -> Result<(), Failure> {
        let dir = match self.root.parent(place) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(()),
            // Somebody has put something else in its directory's place.
            Err(failure) if matches!(failure.code, Code::Link | Code::NotADirectory) => {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };

        let (_, name) = place.split();
        let temporary = manifest.temporary(index);
        let failed = |error| Failure::of(error, "put back", place);
        let content = |name: &str| read(&dir, name, place).map(|bytes| Content::of(&bytes));
        let now = content(name);
        if now == entry.after && now != entry.before {
            match &entry.before {
                None => root::remove_in(&dir, name).map_err(failed)?,
                // The old file itself. Moving it back needs no disk space.
                Some(before) if content(&temporary).as_ref() == Some(before) => {
                    rustix::fs::renameat(&dir, &temporary, &dir, name).map_err(failed)?;
                }
                Some(_) => {
                    let bytes = self.state.kept(None, index, Side::Before).map_err(remembering)?;
                    root::remove_in(&dir, &temporary).map_err(failed)?;
                    root::create_in(&dir, &temporary, &bytes, entry.owner, place)?;
                    rustix::fs::renameat(&dir, &temporary, &dir, name).map_err(failed)?;
                }
            }
        }

        root::remove_in(&dir, &temporary).map_err(failed)?;
        fsync(&dir).map_err(failed)
    }

    /// Clears away what a finished set leaves: old contents, and directories of an undone set.
    fn clear(&self, manifest: &Manifest) {
        for (index, entry) in manifest.files.iter().enumerate() {
            let place = Place::file(&entry.path, self.root.path());
            if let Ok(place) = place
                && let Ok(Some(dir)) = self.root.parent(&place)
                && root::remove_in(&dir, &manifest.temporary(index)).is_err()
            {
                // The next set tries again.
                return;
            }
        }

        if let Some(undone) = manifest.undoes.and_then(|number| self.state.set(number).ok()) {
            self.remove_directories(&undone);
        }

        // Without the mark, the next set repeats the removal, which does no harm.
        let _ = self.state.mark_clean(manifest.set);
    }

    fn remove_directories(&self, manifest: &Manifest) {
        for path in manifest.directories.iter().rev() {
            if let Ok(place) = Place::parse(path, self.root.path()) {
                self.root.remove_directory(&place);
            }
        }
    }
}

fn entry(change: &Change) -> Entry {
    Entry {
        path: change.place.to_string(),
        before: change.before.as_deref().map(Content::of),
        after: change.after.as_deref().map(Content::of),
        owner: change.owner,
    }
}

/// A content, or none where there is no regular file that can be read.
fn read(dir: &std::os::fd::OwnedFd, name: &str, place: &Place) -> Option<Vec<u8>> {
    let found: Option<Found> = root::read_in(dir, name, place).ok().flatten();
    found.map(|found| found.bytes)
}

fn remembering(error: std::io::Error) -> Failure {
    Failure::io(&error, "cannot write to the state directory")
}
