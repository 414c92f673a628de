//! The state directory beside the workspace: sets of changes with the replaced contents, the answer
//! to each message, and proposals of installations.
//!
//! ```text
//! lock              held while files are changed
//! root              the workspace that the state belongs to
//! open/             the set that is being made; taken back after a crash
//! sets/<n>/         sets that were made: manifest.json, <i>.before, <i>.after, clean
//! answers/<id>      the answer to a message; <id>.<i>.begun if a command has started
//! proposals/<name>  installations that were proposed; <name>.used if they were requested
//! pip/run-pip.py    the program that starts pip; alone in its directory, where Python takes
//!                   modules from
//! ```
//!
//! Must not know the files of the workspace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use organism::failpoint::failpoint;
use rustix::fs::{FlockOperation, flock};

use crate::change::FileChange;
use crate::failure::ActionFailure;
use crate::limits;
use crate::manifest::{ContentSide, SetManifest};

#[derive(Debug)]
pub struct WorkspaceState {
    dir: PathBuf,
}

/// The lock under which files are changed. One process at a time holds it.
#[derive(Debug)]
#[must_use = "the lock is let go of when this is dropped"]
pub struct StateLock(#[expect(dead_code, reason = "an open file is what holds the lock")] File);

impl WorkspaceState {
    /// Opens the directory, and creates it if it does not exist. A state directory serves one
    /// workspace only.
    pub fn open(dir: &Path, workspace: &Path) -> io::Result<Self> {
        for folder in ["sets", "answers", "proposals"] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join(folder))?;
        }

        let state = Self { dir: dir.to_owned() };
        let _lock = state.locked()?;
        let owner = state.dir.join("root");

        match fs::read(&owner) {
            Ok(path) if path == workspace.as_os_str().as_bytes() => {}
            Ok(path) => {
                let other = String::from_utf8_lossy(&path).into_owned();
                let why = format!("the state belongs to another workspace, {other}");
                return Err(io::Error::other(why));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                write(&owner, workspace.as_os_str().as_bytes())?;
            }
            Err(error) => return Err(error),
        }

        // Sets that cannot be deleted take up disk space and do no other harm.
        state.delete_incomplete_sets().ok();
        state.forget()?;
        Ok(state)
    }

    /// Returns the path of the program that starts `pip` without modules of the working directory.
    /// Writes the program if it is missing.
    pub fn pip_starter(&self) -> io::Result<PathBuf> {
        let folder = self.dir.join("pip");
        let starter = folder.join("run-pip.py");
        if fs::read(&starter).ok().as_deref() != Some(PIP_STARTER) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            write(&starter, PIP_STARTER)?;
        }

        Ok(starter)
    }

    pub fn lock(&self) -> Result<StateLock, ActionFailure> {
        self.locked().map_err(|error| ActionFailure::io(&error, "cannot lock the workspace"))
    }

    fn locked(&self) -> io::Result<StateLock> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(self.dir.join("lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(StateLock(file))
    }

    // Sets of changes.

    /// Returns the numbers of the stored sets, in rising order. A directory without a manifest
    /// counts as absent: its process died while it deleted the set.
    pub fn sets(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for number in self.set_directories()? {
            if self.is_stored(number)? {
                numbers.push(number);
            }
        }

        Ok(numbers)
    }

    /// Returns the numbers of all directories of sets, in rising order.
    fn set_directories(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(self.dir.join("sets"))? {
            numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn is_stored(&self, number: u64) -> io::Result<bool> {
        self.folder(number).join(MANIFEST).try_exists()
    }

    pub fn set(&self, number: u64) -> io::Result<SetManifest> {
        manifest(&self.folder(number))
    }

    fn folder(&self, number: u64) -> PathBuf {
        self.dir.join("sets").join(number.to_string())
    }

    fn open_folder(&self) -> PathBuf {
        self.dir.join("open")
    }

    /// Returns the set of changes that a dead process has left unfinished; `None` if there is no
    /// such set.
    pub fn unfinished(&self) -> io::Result<Option<SetManifest>> {
        match manifest(&self.open_folder()) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a set of changes: first the contents of its files, then its manifest. After this
    /// call, the set can be undone.
    pub fn begin(&self, manifest: &SetManifest, changes: &[FileChange]) -> io::Result<()> {
        self.abandon()?;
        let folder = self.open_folder();
        fs::DirBuilder::new().mode(0o700).create(&folder)?;

        for (index, change) in changes.iter().enumerate() {
            let sides =
                [(ContentSide::Before, &change.before), (ContentSide::After, &change.after)];
            for (side, content) in sides {
                if let Some(content) = content {
                    write(&folder.join(SetManifest::kept(index, side)), content)?;
                }
            }
        }

        write(&folder.join(MANIFEST), &serde_json::to_vec(manifest)?)?;
        sync(&self.dir)
    }

    /// Marks the set of changes as made. From then on, it is undone only if a caller requests this.
    pub fn finish(&self, number: u64) -> io::Result<()> {
        let open = self.open_folder();
        let folder = self.folder(number);
        fs::rename(&open, &folder)?;
        let synced = sync(&self.dir.join("sets")).and_then(|()| sync(&self.dir));
        if synced.is_err() {
            // The rename may not be on disk, so the set does not count as made.
            fs::rename(&folder, &open)?;
        }

        synced
    }

    /// Deletes the unfinished set of changes. Its manifest is deleted first, because a set without
    /// a manifest counts as absent.
    pub fn abandon(&self) -> io::Result<()> {
        let folder = self.open_folder();
        absent(fs::remove_file(folder.join(MANIFEST)))?;
        absent(fs::remove_dir_all(folder))
    }

    /// Whether the temporary files and directories of a set of changes have been removed.
    pub fn is_clean(&self, number: u64) -> bool {
        self.folder(number).join("clean").exists()
    }

    pub fn mark_clean(&self, number: u64) -> io::Result<()> {
        File::create(self.folder(number).join("clean")).map(drop)
    }

    /// Returns the stored content of the file at `index` in a set of changes. `side` selects the
    /// content before the set or the content after it. `set` is the number of the set, or `None`
    /// for the set that is being made.
    pub fn kept(&self, set: Option<u64>, index: usize, side: ContentSide) -> io::Result<Vec<u8>> {
        let folder = set.map_or_else(|| self.open_folder(), |number| self.folder(number));
        fs::read(folder.join(SetManifest::kept(index, side)))
    }

    /// Deletes the oldest sets of changes until the remaining sets are within the limits. Never
    /// deletes the last set. Also deletes the rest of a set whose deletion a dead process has left
    /// unfinished.
    pub fn forget_sets(&self) -> io::Result<()> {
        let mut count = 0;
        let mut bytes = 0;
        let mut superfluous = Vec::new();
        for number in self.set_directories()?.into_iter().rev() {
            let folder = self.folder(number);
            if !self.is_stored(number)? {
                // The rest takes up disk space and does no other harm.
                fs::remove_dir_all(folder).ok();
                continue;
            }

            bytes += size(&folder)?;
            count += 1;
            if count > limits::SETS_KEPT || (count > 1 && bytes > limits::KEPT_BYTES_MAX) {
                superfluous.push(folder);
            }
        }

        // The oldest first: an undo needs all later sets.
        superfluous.into_iter().rev().try_for_each(|folder| delete_set(&folder))
    }

    /// Deletes the sets up to the last one with a manifest that names a missing content: the
    /// deletion of this set did not end. Never deletes the last set of all, because its number
    /// would be given again.
    fn delete_incomplete_sets(&self) -> io::Result<()> {
        let mut numbers = self.sets()?;
        numbers.pop();
        let is_incomplete = |number: &u64| lacks_contents(&self.folder(*number));
        let count = numbers.iter().rposition(is_incomplete).map_or(0, |last| last + 1);
        numbers.iter().take(count).try_for_each(|number| delete_set(&self.folder(*number)))
    }

    // Answers to messages.

    fn answer_file(&self, message: &str) -> PathBuf {
        self.dir.join("answers").join(message)
    }

    pub fn answer(&self, message: &str) -> Option<String> {
        fs::read_to_string(self.answer_file(message)).ok()
    }

    pub fn remember(&self, message: &str, answer: &str) -> io::Result<()> {
        write(&self.answer_file(message), answer.as_bytes())?;
        (0..limits::SET_COMMANDS_MAX)
            .try_for_each(|index| absent(fs::remove_file(self.begun_file(message, index))))
    }

    fn begun_file(&self, message: &str, index: usize) -> PathBuf {
        self.answer_file(&format!("{message}.{index}.begun"))
    }

    pub fn has_begun(&self, message: &str, index: usize) -> bool {
        self.begun_file(message, index).exists()
    }

    /// Records that a command of this message is about to run. After a crash, the record is the
    /// only sign that the command may have had effects.
    pub fn begin_command(&self, message: &str, index: usize) -> io::Result<()> {
        write(&self.begun_file(message, index), b"")
    }

    /// Deletes the oldest stored answers if there are more than the limit permits. Does the same
    /// for stored proposals.
    fn forget(&self) -> io::Result<()> {
        for folder in ["answers", "proposals"] {
            let mut known = Vec::new();
            for entry in fs::read_dir(self.dir.join(folder))? {
                let entry = entry?;
                known.push((entry.metadata()?.modified()?, entry.path()));
            }
            known.sort();
            let old = known.len().saturating_sub(limits::ANSWERS_KEPT);
            known.iter().take(old).try_for_each(|(_, path)| fs::remove_file(path))?;
        }

        Ok(())
    }

    // Proposals of installations.

    fn proposal_file(&self, name: &str) -> Option<PathBuf> {
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
        is_name.then(|| self.dir.join("proposals").join(name))
    }

    pub fn propose(&self, name: &str, command: &[String]) -> io::Result<()> {
        let Some(file) = self.proposal_file(name) else { return Ok(()) };
        write(&file, &serde_json::to_vec(command)?)
    }

    /// Returns the command of a proposed installation. Returns `None` if the proposal is unknown or
    /// was already used.
    pub fn proposal(&self, name: &str) -> io::Result<Option<Vec<String>>> {
        let Some(file) = self.proposal_file(name) else { return Ok(None) };
        match fs::read(&file) {
            Ok(command) => Ok(Some(serde_json::from_slice(&command)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks a proposal as used, on disk. Returns `false` if the proposal is unknown or was already
    /// used.
    pub fn take_proposal(&self, name: &str) -> io::Result<bool> {
        let Some(file) = self.proposal_file(name) else { return Ok(false) };
        match fs::rename(&file, file.with_extension("used")) {
            Ok(()) => sync(&self.dir.join("proposals")).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

const MANIFEST: &str = "manifest.json";
/// Name of the failpoint before each step of the deletion of an old set.
const FORGET: &str = "workspace-forget";

/// Source of the program that starts `pip`. Python takes modules from the directory of a program in
/// place of the working directory.
const PIP_STARTER: &[u8] = b"\
import runpy

runpy.run_module(\"pip\", run_name=\"__main__\", alter_sys=True)
";

/// Deletes a set. Its manifest is deleted first and on disk, because a set without a manifest
/// counts as absent. What remains of the set then does no harm.
fn delete_set(folder: &Path) -> io::Result<()> {
    failpoint(FORGET);
    fs::remove_file(folder.join(MANIFEST))?;
    sync(folder)?;
    failpoint(FORGET);
    fs::remove_dir_all(folder).ok();
    Ok(())
}

/// Whether a content that the manifest of the set names is missing. A manifest or a content that
/// cannot be read counts as there, and is reported when the set is used.
fn lacks_contents(folder: &Path) -> bool {
    let Ok(manifest) = manifest(folder) else { return false };
    let is_missing = |index, side| {
        let content = folder.join(SetManifest::kept(index, side));
        matches!(content.try_exists(), Ok(false))
    };
    manifest.files.iter().enumerate().any(|(index, entry)| {
        (entry.before.is_some() && is_missing(index, ContentSide::Before))
            || (entry.after.is_some() && is_missing(index, ContentSide::After))
    })
}

fn manifest(folder: &Path) -> io::Result<SetManifest> {
    Ok(serde_json::from_slice(&fs::read(folder.join(MANIFEST))?)?)
}

/// Writes a file atomically and syncs it to disk.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The rest of a failed write would only take up disk space.
        let _ = fs::remove_file(&temporary);
    }

    written?;
    path.parent().map_or(Ok(()), sync)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
