//! Changes a config file atomically: replaces the whole file or nothing.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use crate::limits;
use crate::organism::operator::this_user;

use super::super::exit::{CommandExit, CommandFailure};

/// A config file, locked against other commands that change config files.
#[derive(Debug)]
pub struct ConfigFile {
    /// Path of the file, with all symbolic links resolved.
    path: PathBuf,
    text: String,
    metadata: Metadata,
    /// The open directory of the file. The lock is on this directory, because a lock on the file
    /// would be lost when a command replaces the file.
    directory: File,
}

impl ConfigFile {
    /// Reads the file, and locks it against other commands that change config files.
    pub fn lock(given: &Path) -> anyhow::Result<Self> {
        let failed = |text: String| {
            let text = format!("{} {text}; nothing was changed", given.display());
            CommandFailure::usage(text)
        };
        let cannot = |error: std::io::Error| failed(format!("cannot be changed: {error}"));
        // A symbolic link stays, and the file behind it is replaced.
        let path = given.canonicalize().map_err(cannot)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = File::open(parent).map_err(cannot)?;
        directory.lock().map_err(cannot)?;

        let metadata = path.metadata().map_err(cannot)?;
        check(&path, &metadata).map_err(failed)?;
        let mut text = String::new();
        let most = limits::CONFIG_BYTES_MAX;
        let file = File::open(&path).map_err(cannot)?;
        file.take(most).read_to_string(&mut text).map_err(cannot)?;
        Ok(Self { path, text, metadata, directory })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the file by a new one with this text and the same permissions. After a crash,
    /// either the old file or the new one exists.
    pub fn replace(self, text: &str) -> anyhow::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let beside = self.path.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let written = self.write(&beside, text);
        let written = written.and_then(|()| std::fs::rename(&beside, &self.path));
        if let Err(error) = written {
            // The new file may not exist.
            std::fs::remove_file(&beside).ok();
            let text =
                format!("{} cannot be written: {error}; nothing was changed", self.path.display());
            return Err(CommandFailure::usage(text).into());
        }
        self.directory.sync_all().map_err(|error| {
            let text = format!("{} is written, but not synced: {error}", self.path.display());
            CommandFailure::new(CommandExit::Unavailable, text)
        })?;
        Ok(())
    }

    fn write(&self, path: &Path, text: &str) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        if file.metadata()?.gid() != self.metadata.gid() {
            fchown(&file, None, Some(self.metadata.gid()))?;
        }
        file.set_permissions(self.metadata.permissions())?;
        file.sync_all()
    }
}

/// Fails if the file must not be replaced. The error is the reason:
///
/// - The file is not a regular file, or is read-only.
/// - A replacement would change the owner of the file.
/// - The file has further names (hard links), under which the old text would remain.
fn check(path: &Path, metadata: &Metadata) -> Result<(), String> {
    if !metadata.is_file() {
        return Err("is no regular file".to_owned());
    }
    let shown = path.display();
    if metadata.permissions().readonly() {
        return Err(format!("is read-only; `chmod u+w {shown}` permits the change"));
    }
    if metadata.nlink() > 1 {
        return Err(format!(
            "has {} names (hard links), and only one of them would get the new text; write the line \
             by hand",
            metadata.nlink()
        ));
    }
    let user = this_user().uid;
    if user.is_some_and(|user| user != metadata.uid()) {
        return Err(format!(
            "belongs to the user {}; run this command as that user, so that the file stays theirs",
            metadata.uid()
        ));
    }
    Ok(())
}
