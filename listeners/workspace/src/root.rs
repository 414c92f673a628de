//! The directory of the workspace. All access to files of the workspace goes through this module.
//!
//! A path is opened one name after another. Each name is opened from the open handle of the
//! directory above, and links are not followed. So no other process can exchange a directory or
//! file that has been opened.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, fchown, fstat, fsync, mkdirat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::failure::{ActionFailure, FailureCode};
use crate::limits;
use crate::place::WorkspacePath;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags for opening a file to read. With `NONBLOCK`, opening does not wait even if the file is a
/// pipe.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Mode bits that a file keeps when its content changes. The operating system clears all other mode
/// bits whenever a file is written.
const MODE_KEPT: u32 = 0o1777;

#[derive(Debug)]
pub struct WorkspaceRoot {
    dir: OwnedFd,
    path: PathBuf,
}

/// A regular file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    pub bytes: Vec<u8>,
    pub owner: FileOwner,
    /// Device and inode, which identify the file under every name.
    pub id: (u64, u64),
}

/// Mode and owner of a file. A change of the file's content keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileOwner {
    #[serde(rename = "mode")]
    pub mode: u32,
    #[serde(rename = "uid")]
    pub uid: u32,
    #[serde(rename = "gid")]
    pub gid: u32,
}

impl WorkspaceRoot {
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = rustix::fs::open(&path, DIRECTORY, Mode::empty())?;
        Ok(Self { dir, path })
    }

    /// Path of the workspace: absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory of the workspace.
    pub fn directory(&self, place: &WorkspacePath) -> Result<OwnedFd, ActionFailure> {
        self.walk(place, place.names())?.ok_or_else(|| {
            ActionFailure::new(FailureCode::NotFound, format!("there is no directory `{place}`"))
        })
    }

    /// Opens the directory that contains a file. Returns `None` if the directory does not exist.
    pub fn parent(&self, place: &WorkspacePath) -> Result<Option<OwnedFd>, ActionFailure> {
        self.walk(place, place.split().0)
    }

    fn walk(
        &self,
        place: &WorkspacePath,
        names: &[String],
    ) -> Result<Option<OwnedFd>, ActionFailure> {
        let mut dir = self.top(place)?;
        for name in names {
            dir = match openat(&dir, name, DIRECTORY, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(no_directory(&dir, name, place, error)),
            };
        }

        Ok(Some(dir))
    }

    fn top(&self, place: &WorkspacePath) -> Result<OwnedFd, ActionFailure> {
        let failed = |error| ActionFailure::of(error, "open the workspace for", place);
        openat(&self.dir, ".", DIRECTORY, Mode::empty()).map_err(failed)
    }

    /// Returns the missing directories on the path of a file, outermost first.
    pub fn missing(&self, place: &WorkspacePath) -> Result<Vec<String>, ActionFailure> {
        let (names, _) = place.split();
        let mut missing = Vec::new();
        for count in 1..=names.len() {
            let names = names.get(..count).unwrap_or_default();
            if !missing.is_empty() || self.walk(place, names)?.is_none() {
                missing.push(names.join("/"));
            }
        }

        Ok(missing)
    }

    /// Opens the directory that contains a file, and creates the directory if it does not exist.
    pub fn make_parent(&self, place: &WorkspacePath) -> Result<OwnedFd, ActionFailure> {
        let failed = |error| ActionFailure::of(error, "make the directory of", place);
        let mut dir = self.top(place)?;
        for name in place.split().0 {
            match mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => fsync(&dir).map_err(failed)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
            dir = openat(&dir, name, DIRECTORY, Mode::empty())
                .map_err(|error| no_directory(&dir, name, place, error))?;
        }

        Ok(dir)
    }

    /// Removes a directory if it is empty.
    pub fn remove_directory(&self, place: &WorkspacePath) {
        let (_, name) = place.split();
        if let Ok(Some(parent)) = self.parent(place) {
            // The removal fails if the directory is in use by now. It must stay then.
            let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }

    /// Reads a file. Returns `None` if the file does not exist.
    pub fn read(&self, place: &WorkspacePath) -> Result<Option<FoundFile>, ActionFailure> {
        match self.parent(place)? {
            Some(dir) => read_in(&dir, place.split().1, place),
            None => Ok(None),
        }
    }
}

/// Reads a regular file in an open directory. Error messages use the path `place` for the file.
pub fn read_in(
    dir: &OwnedFd,
    name: &str,
    place: &WorkspacePath,
) -> Result<Option<FoundFile>, ActionFailure> {
    let failed = |error| ActionFailure::of(error, "read", place);
    // The type is checked before opening, because opening a device may already have an effect.
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => regular(FileType::from_raw_mode(stat.st_mode), place)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    }

    let file = match openat(dir, name, READ, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };

    let stat = fstat(&file).map_err(failed)?;
    regular(FileType::from_raw_mode(stat.st_mode), place)?;
    let unreadable = |e: io::Error| ActionFailure::io(&e, &format!("cannot read `{place}`"));
    let file = File::from(file);
    // The fields of `stat` have other types on other systems, and those of `metadata` have not.
    let metadata = file.metadata().map_err(unreadable)?;
    let mut bytes = Vec::new();
    let most = limits::FILE_BYTES_MAX;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > most {
        let message = format!("`{place}` is larger than {most} bytes");
        return Err(ActionFailure::new(FailureCode::TooLarge, message));
    }

    let mode = metadata.mode() & MODE_KEPT;
    let owner = FileOwner { mode, uid: metadata.uid(), gid: metadata.gid() };
    Ok(Some(FoundFile { bytes, owner, id: (metadata.dev(), metadata.ino()) }))
}

/// Writes a new file and syncs it to disk.
pub fn create_in(
    dir: &OwnedFd,
    name: &str,
    bytes: &[u8],
    owner: Option<FileOwner>,
    place: &WorkspacePath,
) -> Result<(), ActionFailure> {
    let failed = |error| ActionFailure::of(error, "write", place);
    // A new file gets the mode of the umask. A file that replaces another one is private until it
    // gets the other's mode.
    let mode = if owner.is_some() { 0o600 } else { 0o666 };
    let file = openat(dir, name, CREATE, Mode::from_raw_mode(mode)).map_err(failed)?;
    let unwritten = |e: io::Error| ActionFailure::io(&e, &format!("cannot write `{place}`"));
    let mut file = File::from(file);
    file.write_all(bytes).map_err(unwritten)?;
    if let Some(owner) = owner {
        let uid = Uid::from_raw(owner.uid);
        let gid = Gid::from_raw(owner.gid);
        // Only root can change the owner. For any other user, the file belongs to that user.
        let _ = fchown(file.as_fd(), Some(uid), Some(gid));
        file.set_permissions(Permissions::from_mode(owner.mode)).map_err(unwritten)?;
    }

    file.sync_all().map_err(unwritten)
}

/// Exchanges the files `new` and `old`. If the file system cannot exchange files, `new` replaces
/// `old`.
pub fn exchange(dir: &OwnedFd, new: &str, old: &str) -> Result<(), Errno> {
    match renameat_with(dir, new, dir, old, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => renameat(dir, new, dir, old),
        other => other,
    }
}

/// Renames a file. Fails if the new name is taken.
pub fn rename_free(dir: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        other => return other,
    }

    match statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(dir, from, dir, to),
        Err(error) => Err(error),
        Ok(_) => Err(Errno::EXIST),
    }
}

/// Removes a file if it exists.
pub fn remove_in(dir: &OwnedFd, name: &str) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn regular(kind: FileType, place: &WorkspacePath) -> Result<(), ActionFailure> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => {
            let message = format!("`{place}` is a symbolic link; links are not followed");
            return Err(ActionFailure::new(FailureCode::Link, message));
        }
        FileType::Directory => "is a directory",
        _ => "is a device, a pipe or a socket",
    };

    Err(ActionFailure::new(FailureCode::NotAFile, format!("`{place}` {what}, not a file")))
}

/// Returns the reason why a directory on a path could not be opened.
fn no_directory(dir: &OwnedFd, name: &str, place: &WorkspacePath, error: Errno) -> ActionFailure {
    let kind = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .map(|stat| FileType::from_raw_mode(stat.st_mode));
    let (code, what) = match kind {
        Ok(FileType::Symlink) => (FailureCode::Link, "a symbolic link; links are not followed"),
        Ok(FileType::Directory) | Err(_) => return ActionFailure::of(error, "open", place),
        Ok(_) => (FailureCode::NotADirectory, "not a directory"),
    };

    ActionFailure::new(code, format!("in `{place}`, `{name}` is {what}"))
}
