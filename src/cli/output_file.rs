//! The file that a command writes its output to. The file appears with its whole content, so that a
//! command that fails leaves an earlier file as it was.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::durable_file;
use crate::io_reason::io_reason;

/// A file that is being written. [`OutputFile::finish`] gives the file its name. If this value is
/// dropped earlier, nothing is left of the file.
///
/// These are written directly: a pipe, a device, a file that the process has open, such as
/// `/dev/stdout`, and a link to a file that does not exist.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// The names of a file that is not written directly; `None` as soon as it has its own name.
    names: Option<FileNames>,
}

#[derive(Debug)]
struct FileNames {
    /// Name of the file while it is written. No other file has this name.
    unfinished: PathBuf,
    whole: PathBuf,
}

impl OutputFile {
    /// Creates the file with a temporary name, in the directory of the file `path`. Fails if an
    /// earlier file with the name `path` may not be written. The file gets the owner and the
    /// permissions of the earlier one.
    pub fn create(path: &Path) -> Result<Self> {
        let earlier = match std::fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_special = earlier.as_ref().is_some_and(|earlier| !earlier.is_file());
        // A link to a file that is not there yet stays, too.
        let leads_on = earlier.is_none() && path.is_symlink();
        if is_open_file(path) || is_special || leads_on {
            return Ok(Self { file: File::create(path)?, names: None });
        }

        let whole = match &earlier {
            Some(_) => {
                // A rename would replace a file that is protected from changes.
                OpenOptions::new().write(true).open(path)?;
                // A link stays, and its target is replaced.
                path.canonicalize()?
            }
            None => std::path::absolute(path)?,
        };
        let mut unfinished = whole.clone().into_os_string();
        unfinished.push(format!(".{}.part", Uuid::now_v7().simple()));
        let unfinished = PathBuf::from(unfinished);
        let file = create_beside(&unfinished, earlier.is_some())?;
        let created = Self { file, names: Some(FileNames { unfinished, whole }) };
        if let Some(earlier) = &earlier {
            keep_access(&created.file, earlier)?;
        }
        Ok(created)
    }

    /// Gives the file its name in place of an earlier file, after its content is durable.
    pub fn finish(mut self) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        self.file.sync_all()?;
        std::fs::rename(&names.unfinished, &names.whole)?;
        self.names = None;
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(FileNames { unfinished, .. }) = &self.names
            && let Err(error) = durable_file::remove(unfinished)
        {
            note!("{} could not be removed again: {error}", unfinished.display());
        }
    }
}

/// Creates the file `unfinished`, which does not exist yet. With `is_private`, only this user may
/// open it. The error names the directory.
fn create_beside(unfinished: &Path, is_private: bool) -> Result<File> {
    let mode = if is_private { 0o600 } else { 0o666 };
    let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(unfinished);
    created.map_err(|error| {
        let directory = unfinished.parent().unwrap_or(unfinished).display();
        Error::new(error.kind(), format!("its directory {directory}: {}", io_reason(&error)))
    })
}

/// Gives `file` the owner, the group and the permissions of `earlier`.
fn keep_access(file: &File, earlier: &Metadata) -> Result<()> {
    let created = file.metadata()?;
    if (created.uid(), created.gid()) != (earlier.uid(), earlier.gid()) {
        fchown(file, Some(earlier.uid()), Some(earlier.gid())).map_err(|error| {
            let text = format!("the new file cannot have the owner of the earlier one: {error}");
            Error::new(error.kind(), text)
        })?;
    }
    file.set_permissions(earlier.permissions())
}

/// Whether `path` names a file that this process has open. It may be a regular file, to which
/// standard output goes.
fn is_open_file(path: &Path) -> bool {
    let open = ["/dev/stdout", "/dev/stderr", "/dev/fd"];
    open.iter().any(|open| path.starts_with(open))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["file", "link"].map(|name| directory.path().join(name));
        std::fs::write(&path, "one").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let written = |path: &Path| {
            let mut file = OutputFile::create(path).unwrap();
            file.write_all(b"two").unwrap();
            file
        };

        drop(written(&link));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(names_in(directory.path()), ["file", "link"]);

        written(&link).finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());

        // The link leads to a file that is not there.
        std::fs::remove_file(&path).unwrap();
        written(&link).finish().unwrap();
        assert!(link.is_symlink() && path.is_file());

        written(&directory.path().join("new")).finish().unwrap();
        assert_eq!(names_in(directory.path()), ["file", "link", "new"]);
        let missing = OutputFile::create(&directory.path().join("no/file")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_pipe_and_a_device_are_written_directly() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;

        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        let mut file = OutputFile::create(Path::new(&path)).unwrap();
        file.write_all(b"text").unwrap();
        file.finish().unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");

        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        OutputFile::create(&link).unwrap().finish().unwrap();
        assert!(link.is_symlink());
    }
}
