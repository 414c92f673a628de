//! Changes several files, all or none of them, even if the process or the machine dies.
//!
//! A set of changes is made in four steps. First, the set is stored with the contents that it
//! replaces. Second, each new content is written beside its file. Third, each new content replaces
//! its file in one step. Fourth, the set is marked as made. A set that was stored but not marked is
//! undone before any other change.

use organism::failpoint::failpoint;
use rustix::fs::fsync;
use rustix::io::Errno;

use crate::change::FileChange;
use crate::failure::{ActionFailure, FailureCode};
use crate::manifest::{ContentHash, ContentSide, FileEntry, SetManifest};
use crate::place::WorkspacePath;
use crate::root::{self, FoundFile, WorkspaceRoot};
use crate::state::{StateLock, WorkspaceState};

/// Name of the failpoint that comes before each step with an effect outside this process. Tests
/// crash the process at this failpoint.
const STEP: &str = "workspace-step";

/// The properties of a set of changes, without the content of the changed files.
#[derive(Debug, Clone, Default)]
pub struct SetDescription {
    pub message: String,
    pub summary: Option<String>,
    pub undoes: Option<u64>,
}

/// The files of the workspace and the stored sets of changes. A lock keeps other processes from
/// changing them.
pub struct ChangeSets<'a> {
    root: &'a WorkspaceRoot,
    state: &'a WorkspaceState,
    _lock: StateLock,
}

impl<'a> ChangeSets<'a> {
    /// Waits for the lock of the workspace. If a dead process has left a set of changes unfinished,
    /// undoes that set.
    pub fn open(root: &'a WorkspaceRoot, state: &'a WorkspaceState) -> Result<Self, ActionFailure> {
        let sets = Self { root, state, _lock: state.lock()? };
        sets.recover()?;
        Ok(sets)
    }

    /// Waits for the lock of the workspace, for a caller that only reads. Fails if a set of changes
    /// is unfinished, because the next [`Self::open`] undoes that set.
    pub fn read(root: &'a WorkspaceRoot, state: &'a WorkspaceState) -> Result<Self, ActionFailure> {
        let sets = Self { root, state, _lock: state.lock()? };
        if sets.state.unfinished().map_err(remembering)?.is_some() {
            let message = "a set of changes is unfinished; it is taken back before the next one";
            return Err(ActionFailure::new(FailureCode::ChangedMeanwhile, message));
        }

        Ok(sets)
    }

    fn recover(&self) -> Result<(), ActionFailure> {
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

    /// Returns all stored sets of changes, oldest first.
    pub fn all(&self) -> Result<Vec<SetManifest>, ActionFailure> {
        self.numbers()?.into_iter().map(|number| self.manifest(number)).collect()
    }

    pub fn manifest(&self, number: u64) -> Result<SetManifest, ActionFailure> {
        self.state.set(number).map_err(remembering)
    }

    fn numbers(&self) -> Result<Vec<u64>, ActionFailure> {
        self.state.sets().map_err(remembering)
    }

    /// Returns the set of changes that was already made for a message, if there is one.
    pub fn made_for(&self, message: &str) -> Result<Option<SetManifest>, ActionFailure> {
        for number in self.numbers()?.into_iter().rev() {
            let manifest = self.manifest(number)?;
            if manifest.message == message {
                return Ok(Some(manifest));
            }
        }

        Ok(None)
    }

    /// Returns the content that a file had before or after a set of changes. Returns `None` if the
    /// file did not exist then.
    pub fn kept(
        &self,
        manifest: &SetManifest,
        index: usize,
        side: ContentSide,
    ) -> Result<Option<Vec<u8>>, ActionFailure> {
        let entry = manifest.files.get(index);
        let content = entry.and_then(|entry| match side {
            ContentSide::Before => entry.before.as_ref(),
            ContentSide::After => entry.after.as_ref(),
        });
        if content.is_none() {
            return Ok(None);
        }

        self.state.kept(Some(manifest.set), index, side).map(Some).map_err(remembering)
    }

    /// Makes the changes of a set. `answer` is called with the number of the set, and returns the
    /// answer to the caller.
    pub fn make(
        &self,
        changes: &[FileChange],
        about: SetDescription,
        answer: impl FnOnce(u64) -> String,
    ) -> Result<String, ActionFailure> {
        let set = self.numbers()?.last().copied().unwrap_or(0) + 1;
        let mut directories: Vec<String> = Vec::new();
        for change in changes.iter().filter(|change| change.after.is_some()) {
            let missing = self.root.missing(&change.place)?;
            directories.extend(
                missing.into_iter().filter(|path| !directories.contains(path)).collect::<Vec<_>>(),
            );
        }

        let manifest = SetManifest {
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
                Err(second) => Err(ActionFailure::new(
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

    fn carry_out(
        &self,
        manifest: &SetManifest,
        changes: &[FileChange],
    ) -> Result<(), ActionFailure> {
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

    /// Replaces a file by its new content. Fails if another program has changed the file since the
    /// change was planned.
    fn swap(&self, temporary: &str, change: &FileChange) -> Result<(), ActionFailure> {
        let place = &change.place;
        let (_, name) = place.split();
        let meanwhile = || {
            ActionFailure::new(
                FailureCode::ChangedMeanwhile,
                format!("`{place}` was changed meanwhile by another program; nothing was changed"),
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
            Err(error) => return Err(ActionFailure::of(error, "write", place)),
        }

        // The old content has the temporary name now, so a change that another program made to it
        // is visible from here on.
        let was = read(&dir, temporary, place);
        if change.before.is_some() && was.is_some() && was != change.before {
            let back = match change.after {
                Some(_) => root::exchange(&dir, temporary, name),
                None => root::rename_free(&dir, temporary, name),
            };
            back.map_err(|error| ActionFailure::of(error, "put back", place))?;
            return Err(meanwhile());
        }

        fsync(&dir).map_err(|error| ActionFailure::of(error, "write", place))
    }

    /// Takes back the changes of an unfinished set. Skips files that another program has changed
    /// since.
    fn take_back(&self, manifest: &SetManifest) -> Result<(), ActionFailure> {
        for (index, entry) in manifest.files.iter().enumerate().rev() {
            let place = WorkspacePath::recorded(&entry.path, self.root.path())?;
            self.restore(manifest, index, entry, &place)?;
        }
        self.remove_directories(manifest);
        self.state.abandon().map_err(remembering)
    }

    fn restore(
        &self,
        manifest: &SetManifest,
        index: usize,
        entry: &FileEntry,
        place: &WorkspacePath,
    ) -> Result<(), ActionFailure> {
        let dir = match self.root.parent(place) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Ok(()),
            // Another program has put something else in place of the directory.
            Err(failure)
                if matches!(failure.code, FailureCode::Link | FailureCode::NotADirectory) =>
            {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };

        let (_, name) = place.split();
        let temporary = manifest.temporary(index);
        let failed = |error| ActionFailure::of(error, "put back", place);
        let content = |name: &str| read(&dir, name, place).map(|bytes| ContentHash::of(&bytes));
        let now = content(name);
        if now == entry.after && now != entry.before {
            match &entry.before {
                None => root::remove_in(&dir, name).map_err(failed)?,
                // The old file itself. Moving it back needs no disk space.
                Some(before) if content(&temporary).as_ref() == Some(before) => {
                    rustix::fs::renameat(&dir, &temporary, &dir, name).map_err(failed)?;
                }
                Some(_) => {
                    let bytes =
                        self.state.kept(None, index, ContentSide::Before).map_err(remembering)?;
                    root::remove_in(&dir, &temporary).map_err(failed)?;
                    root::create_in(&dir, &temporary, &bytes, entry.owner, place)?;
                    rustix::fs::renameat(&dir, &temporary, &dir, name).map_err(failed)?;
                }
            }
        }

        root::remove_in(&dir, &temporary).map_err(failed)?;
        fsync(&dir).map_err(failed)
    }

    /// Removes the temporary files of a finished set. If the set was undone, also removes the
    /// directories that it had created.
    fn clear(&self, manifest: &SetManifest) {
        for (index, entry) in manifest.files.iter().enumerate() {
            let place = WorkspacePath::recorded(&entry.path, self.root.path());
            if let Ok(place) = place
                && let Ok(Some(dir)) = self.root.parent(&place)
                && root::remove_in(&dir, &manifest.temporary(index)).is_err()
            {
                // The next set tries the removal again.
                return;
            }
        }

        if let Some(undone) = manifest.undoes.and_then(|number| self.state.set(number).ok()) {
            self.remove_directories(&undone);
        }

        // Without the mark, the next set repeats the removal, which is harmless.
        let _ = self.state.mark_clean(manifest.set);
    }

    fn remove_directories(&self, manifest: &SetManifest) {
        for path in manifest.directories.iter().rev() {
            if let Ok(place) = WorkspacePath::recorded(path, self.root.path()) {
                self.root.remove_directory(&place);
            }
        }
    }
}

fn entry(change: &FileChange) -> FileEntry {
    FileEntry {
        path: change.place.to_string(),
        before: change.before.as_deref().map(ContentHash::of),
        after: change.after.as_deref().map(ContentHash::of),
        owner: change.owner,
    }
}

/// Reads a file. Returns `None` if `name` is no regular file or cannot be read.
fn read(dir: &std::os::fd::OwnedFd, name: &str, place: &WorkspacePath) -> Option<Vec<u8>> {
    let found: Option<FoundFile> = root::read_in(dir, name, place).ok().flatten();
    found.map(|found| found.bytes)
}

fn remembering(error: std::io::Error) -> ActionFailure {
    ActionFailure::io(&error, "cannot write to the state directory")
}
