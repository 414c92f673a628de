//! The directory of the workspace. All access to its files goes through this module.
//!
//! Each path is opened name by name from an open handle of the directory, without following links.
//! So nothing that has been opened can be exchanged afterwards.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, fsync, mkdirat,
    openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::failure::{Code, Failure};
use crate::limits;
use crate::place::Place;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags for reading. `NONBLOCK` keeps the open from waiting if the file is a pipe after all.
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
/// The bits of a file's mode that are kept. The system drops the other bits as well when a file is
/// written.
const MODE_KEPT: u32 = 0o1777;

#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
}

/// The content of a regular file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub bytes: Vec<u8>,
    pub owner: Owner,
    /// Device and inode: what it is, whatever it is called.
    pub id: (u64, u64),
}

/// Mode and owner of a file, which stay when its content changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    #[serde(rename = "mode")]
    pub mode: u32,
    #[serde(rename = "uid")]
    pub uid: u32,
    #[serde(rename = "gid")]
    pub gid: u32,
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let dir = rustix::fs::open(&path, DIRECTORY, Mode::empty())?;
        Ok(Self { dir, path })
    }

    /// Path of the workspace: absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An open handle of a directory.
    pub fn directory(&self, place: &Place) -> Result<OwnedFd, Failure> {
        self.walk(place, place.names())?
            .ok_or_else(|| Failure::new(Code::NotFound, format!("there is no directory `{place}`")))
    }

    /// The directory a file stands in; none where it does not exist.
    pub fn parent(&self, place: &Place) -> Result<Option<OwnedFd>, Failure> {
        self.walk(place, place.split().0)
    }

    fn walk(&self, place: &Place, names: &[String]) -> Result<Option<OwnedFd>, Failure> {
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

    fn top(&self, place: &Place) -> Result<OwnedFd, Failure> {
        let failed = |error| Failure::of(error, "open the workspace for", place);
        openat(&self.dir, ".", DIRECTORY, Mode::empty()).map_err(failed)
    }

    /// The directories that a file needs and that are not there, from the top.
    pub fn missing(&self, place: &Place) -> Result<Vec<String>, Failure> {
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

    /// The directory a file stands in, made where it does not exist.
    pub fn make_parent(&self, place: &Place) -> Result<OwnedFd, Failure> {
        let failed = |error| Failure::of(error, "make the directory of", place);
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

    /// Takes away a directory if there is nothing in it.
    pub fn remove_directory(&self, place: &Place) {
        let (_, name) = place.split();
        if let Ok(Some(parent)) = self.parent(place) {
            // The removal fails if the directory is in use by now, which is right.
            let _ = unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }

    /// A file's content; none where there is no such file.
    pub fn read(&self, place: &Place) -> Result<Option<Found>, Failure> {
        match self.parent(place)? {
            Some(dir) => read_in(&dir, place.split().1, place),
            None => Ok(None),
        }
    }
}

/// A regular file in an open directory. `place` is what it is called in messages.
pub fn read_in(dir: &OwnedFd, name: &str, place: &Place) -> Result<Option<Found>, Failure> {
    let failed = |error| Failure::of(error, "read", place);
    // Looked at first, since to open a device may already be to do something to it.
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
    let mut bytes = Vec::new();
    let most = limits::FILE_BYTES_MAX;
    let mut file = File::from(file).take(most as u64 + 1);
    file.read_to_end(&mut bytes).map_err(|e| Failure::io(&e, &format!("cannot read `{place}`")))?;
    if bytes.len() > most {
        let message = format!("`{place}` is larger than {most} bytes");
        return Err(Failure::new(Code::TooLarge, message));
    }

    let owner = Owner { mode: stat.st_mode & MODE_KEPT, uid: stat.st_uid, gid: stat.st_gid };
    Ok(Some(Found { bytes, owner, id: (stat.st_dev, stat.st_ino) }))
}

/// Writes a new file and syncs it to disk.
pub fn create_in(
    dir: &OwnedFd,
    name: &str,
    bytes: &[u8],
    owner: Option<Owner>,
    place: &Place,
) -> Result<(), Failure> {
    let failed = |error| Failure::of(error, "write", place);
    // A new file gets the mode of the umask; one that stands in for another is closed until it
    // has that one's.
    let mode = if owner.is_some() { 0o600 } else { 0o666 };
    let file = openat(dir, name, CREATE, Mode::from_raw_mode(mode)).map_err(failed)?;
    let mut file = File::from(file);
    let written = file.write_all(bytes);
    written.map_err(|e| Failure::io(&e, &format!("cannot write `{place}`")))?;
    if let Some(owner) = owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        // Only root can change the owner. For other users, the file belongs to the writing user.
        let _ = fchown(file.as_fd(), Some(uid), Some(gid));
        fchmod(file.as_fd(), Mode::from_raw_mode(owner.mode)).map_err(failed)?;
    }

    file.sync_all().map_err(|e| Failure::io(&e, &format!("cannot write `{place}`")))
}

/// Exchanges the files `new` and `old`. If the file system cannot exchange files, `new` replaces
/// `old`.
pub fn exchange(dir: &OwnedFd, new: &str, old: &str) -> Result<(), Errno> {
    match renameat_with(dir, new, dir, old, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(dir, new, dir, old),
        other => other,
    }
}

/// Renames a file. Fails if the new name is taken.
pub fn rename_free(dir: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
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

fn regular(kind: FileType, place: &Place) -> Result<(), Failure> {
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => {
            let message = format!("`{place}` is a symbolic link; links are not followed");
            return Err(Failure::new(Code::Link, message));
        }
        FileType::Directory => "is a directory",
        _ => "is a device, a pipe or a socket",
    };

    Err(Failure::new(Code::NotAFile, format!("`{place}` {what}, not a file")))
}

/// Why a name cannot be walked through.
fn no_directory(dir: &OwnedFd, name: &str, place: &Place, error: Errno) -> Failure {
    let kind = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .map(|stat| FileType::from_raw_mode(stat.st_mode));
    let (code, what) = match kind {
        Ok(FileType::Symlink) => (Code::Link, "a symbolic link; links are not followed"),
        Ok(FileType::Directory) | Err(_) => return Failure::of(error, "open", place),
        Ok(_) => (Code::NotADirectory, "not a directory"),
    };

    Failure::new(code, format!("in `{place}`, `{name}` is {what}"))
}
