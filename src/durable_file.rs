//! Reads, writes, durably replaces and removes small files.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use uuid::Uuid;

/// Reads a file; `None` if it does not exist.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file exists. Fails if this process cannot determine it, for example because this user
/// may not search the directory. So a denied permission is never taken for a missing file.
pub fn exists(path: &Path) -> Result<bool> {
    match path.try_exists() {
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        found => found,
    }
}

/// Whether a file may exist. Also true if this process cannot determine whether the file exists.
pub fn may_exist(path: &Path) -> bool {
    exists(path).unwrap_or(true)
}

/// Opens a regular file for reading. Fails for any other kind of file, such as a named pipe,
/// because the opening of such a file could block forever. There are two exceptions:
/// - Files that this process already has open, such as `/dev/stdin` and `/dev/fd/3`, may also be
///   pipes.
/// - `/dev/null` is permitted, and is read as an empty file.
pub fn open_regular(path: &Path) -> Result<File> {
    let is_own = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|own| path.starts_with(own));
    if is_own {
        return File::open(path);
    }

    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Ordering rule: the file is opened first and then judged through its handle, so that a change
    // of its path has no effect.
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if metadata.is_file() || is_null_device(&metadata) {
        Ok(file)
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Whether the metadata belongs to the device `/dev/null`. The path that was opened may be a link
/// to this device.
fn is_null_device(metadata: &Metadata) -> bool {
    metadata.file_type().is_char_device()
        && std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == metadata.rdev())
}

/// Reads the whole content of a regular file. Fails for the files that [`open_regular`] refuses.
pub fn read_regular(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    unless_missing(path, std::fs::remove_file(path))
}

/// Returns the result of the removal of a file. An error counts as success if the file is missing:
/// a read-only file system refuses a removal before it looks for the file.
fn unless_missing(path: &Path, removed: Result<()>) -> Result<()> {
    let is_missing = |error: &Error| error.kind() == ErrorKind::NotFound;
    match removed {
        Err(error) if is_missing(&error) => Ok(()),
        Err(_) if path.symlink_metadata().is_err_and(|error| is_missing(&error)) => Ok(()),
        removed => removed,
    }
}

/// Renames a file, if it exists.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates an empty file that only its owner may read and write. Leaves an existing file as it is.
/// If the file becomes a database, SQLite gives the same permissions to the files that it creates
/// beside the database.
pub fn create_private(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file that only its owner may read and write. Replaces an existing file together with
/// its permissions.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    remove(path)?;
    write_new_private(path, bytes)
}

/// Writes a new file that only its owner may read and write. Fails if the file exists. If the write
/// fails, removes the incomplete file, so that the next attempt can succeed.
pub fn write_new_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first error is the one to report.
        remove(path).ok();
    }
    written
}

/// Creates a file durably that only its owner may read and write. The file appears with its whole
/// content. If it exists, returns `false` and leaves it as it is. So of several processes that call
/// this at the same time, one creates the file. Also removes incomplete files that crashes have
/// left.
pub fn create_whole_private(path: &Path, bytes: &[u8]) -> Result<bool> {
    let id = Uuid::now_v7();
    let unfinished = path.with_extension(format!("{id}.new"));
    write_new_private(&unfinished, bytes)?;
    let renamed = rename_to_new(&unfinished, path);
    remove(&unfinished)?;

    let is_created = match renamed {
        Ok(()) => true,
        // Another process was faster. It may also have removed `unfinished`.
        Err(_) if exists(path)? => false,
        Err(error) => return Err(error),
    };

    // The process that created the file may not have synced its directory entry yet.
    sync_parent(path)?;
    if is_created {
        remove_unfinished(path)?;
    }
    Ok(is_created)
}

/// Renames a file, and fails if `to` exists.
pub fn rename_to_new(from: &Path, to: &Path) -> Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // The file system may not support the flag.
        Err(_) => link_to_new(from, to),
    }
}

/// Gives a file the name `to`, and fails if `to` exists. The file may keep its first name, too. If
/// the file system has no hard links, renames the file. In this case only, the file may replace one
/// that another process creates at the same moment.
fn link_to_new(from: &Path, to: &Path) -> Result<()> {
    if std::fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    if exists(to)? {
        return Err(ErrorKind::AlreadyExists.into());
    }
    std::fs::rename(from, to)
}

/// Removes the incomplete files that crashes have left during the creation of `path`.
fn remove_unfinished(path: &Path) -> Result<()> {
    let Some(directory) = path.parent() else { return Ok(()) };
    let whole = path.file_name().unwrap_or_default().to_string_lossy();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let rest = name.strip_prefix(&*whole).and_then(|rest| rest.strip_suffix(".new"));
        let id = rest.and_then(|rest| rest.strip_prefix('.'));
        // Earlier versions gave the file no id.
        if rest == Some("") || id.is_some_and(|id| id.parse::<Uuid>().is_ok()) {
            remove(&entry.path())?;
        }
    }

    Ok(())
}

/// Replaces a file durably. Writes the new content to the file `unfinished` first and then renames
/// that file, so that a crash leaves no half-written file.
pub fn replace(path: &Path, unfinished: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(unfinished, path)?;
    sync_parent(path)
}

/// Replaces a file durably, as [`replace`] does, by a file that only its owner may read and write.
pub fn replace_private(path: &Path, unfinished: &Path, bytes: &[u8]) -> Result<()> {
    write_private(unfinished, bytes)?;
    std::fs::rename(unfinished, path)?;
    sync_parent(path)
}

/// Makes the directory entry of a file durable.
pub fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_named_pipe_is_refused_without_waiting_for_its_writer() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&*pipe, directory.path(), Path::new("/dev/zero")] {
            let error = read_regular(path).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", path.display());
        }

        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_regular(&file).unwrap(), b"text");
        let missing = read_regular(&directory.path().join("none")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_exists_is_not_created_again_and_incomplete_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let others = ["key.organism.new", "key.pub", "keys.new"];
        let id = Uuid::now_v7();
        for name in others.into_iter().chain(["key.new", &format!("key.{id}.new")]) {
            std::fs::write(directory.path().join(name), "unfinished").unwrap();
        }

        assert!(create_whole_private(&path, b"one").unwrap());
        assert!(!create_whole_private(&path, b"two").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let entries = std::fs::read_dir(directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["key", "key.organism.new", "key.pub", "keys.new"]);
    }

    #[test]
    fn a_removal_that_is_refused_fails_only_for_a_file_that_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let refused = || Err(ErrorKind::ReadOnlyFilesystem.into());
        unless_missing(&path, refused()).unwrap();

        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        let error = unless_missing(&path, refused()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }

    #[test]
    fn a_rename_to_a_new_name_replaces_nothing_also_without_hard_links() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // No file system has hard links to directories, and a rename replaces an empty directory.
        for rename in [rename_to_new, link_to_new] {
            for name in ["first", "second"] {
                std::fs::create_dir(at(name)).unwrap();
            }
            let inode = at("second").metadata().unwrap().ino();

            let refused = rename(&at("first"), &at("second")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert_eq!(at("second").metadata().unwrap().ino(), inode);
            rename(&at("second"), &at("third")).unwrap();
            assert_eq!(at("third").metadata().unwrap().ino(), inode);
            assert!(!at("second").exists());

            std::fs::remove_dir(at("first")).unwrap();
            std::fs::remove_dir(at("third")).unwrap();
        }

        // Where the flag is supported, a crash leaves no second name of the file.
        std::fs::write(at("file"), "text").unwrap();
        rename_to_new(&at("file"), &at("new")).unwrap();
        assert!(!at("file").exists());
    }

    #[test]
    fn the_null_device_is_read_as_an_empty_file() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert_eq!(read_regular(Path::new("/dev/null")).unwrap(), b"");
        assert_eq!(read_regular(&link).unwrap(), b"");
    }

    #[test]
    fn a_pipe_that_the_process_has_open_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);

        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_regular(Path::new(&path)).unwrap(), b"text");
    }
}
