//! Writes several new files: either all of them or none.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::exit::{self, CommandFailure};

/// Files and directories that a command has created. Dropping this value removes all of them, so
/// that an error in the middle leaves nothing behind. [`NewFiles::keep`] prevents the removal.
pub struct NewFiles {
    directory: PathBuf,
    /// Created paths, in the order of their creation.
    created: Vec<CreatedPath>,
}

enum CreatedPath {
    File(PathBuf),
    Directory(PathBuf),
}

impl NewFiles {
    /// Prepares to write files beneath `directory`. Creates the directory if it is missing.
    pub fn in_directory(directory: &Path) -> anyhow::Result<Self> {
        let mut files = Self { directory: directory.to_owned(), created: Vec::new() };
        files.create_missing(directory)?;
        Ok(files)
    }

    /// Writes a new file and creates the missing directories above it. Fails if the file exists.
    pub fn write(&mut self, path: &str, text: &str, is_executable: bool) -> anyhow::Result<()> {
        let path = self.directory.join(path);
        if let Some(parent) = path.parent() {
            self.create_missing(parent)?;
        }

        let mode = if is_executable { 0o755 } else { 0o644 };
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(mode).open(&path);
        let mut file = opened.map_err(|error| cannot("write", &path, &error))?;
        self.created.push(CreatedPath::File(path.clone()));
        file.write_all(text.as_bytes()).map_err(|error| cannot("write", &path, &error).into())
    }

    /// Creates a directory. Fails if the directory exists.
    pub fn create_directory(&mut self, path: &str) -> anyhow::Result<()> {
        let path = self.directory.join(path);
        std::fs::create_dir(&path).map_err(|error| cannot("make", &path, &error))?;
        self.created.push(CreatedPath::Directory(path));
        Ok(())
    }

    /// Creates a directory with the directories above it. Does nothing if the directory exists.
    pub fn ensure_directory(&mut self, path: &str) -> anyhow::Result<()> {
        let path = self.directory.join(path);
        self.create_missing(&path)
    }

    /// Keeps all created files and directories, which would otherwise be removed on drop.
    pub fn keep(mut self) {
        self.created.clear();
    }

    /// Creates the directory and all missing directories above it.
    fn create_missing(&mut self, directory: &Path) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        for above in directory.ancestors() {
            if above.as_os_str().is_empty() || above.is_dir() {
                break;
            }
            if above.symlink_metadata().is_ok() {
                let text = format!("{} is no directory; nothing was written", above.display());
                return Err(CommandFailure::usage(text).into());
            }
            if above.ends_with("..") {
                let text = format!(
                    "{} leads through a directory that is missing; nothing was written",
                    directory.display()
                );
                return Err(CommandFailure::usage(text).into());
            }
            missing.push(above);
        }

        for path in missing.into_iter().rev() {
            std::fs::create_dir(path).map_err(|error| cannot("make", path, &error))?;
            self.created.push(CreatedPath::Directory(path.to_owned()));
        }
        Ok(())
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        while let Some(created) = self.created.pop() {
            let removed = match &created {
                CreatedPath::File(path) => std::fs::remove_file(path),
                // Fails and keeps the directory if another program has put something into it.
                CreatedPath::Directory(path) => std::fs::remove_dir(path),
            };
            if let Err(error) = removed {
                let (CreatedPath::File(path) | CreatedPath::Directory(path)) = &created;
                note!("{} could not be removed again: {error}", path.display());
            }
        }
    }
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> CommandFailure {
    let path = path.display();
    let text = format!("cannot {verb} {path}: {error}; no file of this command was kept");
    CommandFailure::new(exit::of_written_file(error), text)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::super::CommandExit;
    use super::*;

    #[test]
    fn a_full_disk_is_named_as_a_reason_to_try_again() {
        let exit_of = |kind: ErrorKind| cannot("write", Path::new("a"), &Error::from(kind)).exit;
        assert_eq!(exit_of(ErrorKind::StorageFull), CommandExit::TryAgain);
        assert_eq!(exit_of(ErrorKind::PermissionDenied), CommandExit::Usage);
    }
}
