//! `organism listener install --update`: shows how an installed listener differs from the version
//! in this program, and replaces the installed listener if the user confirms this.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path};
use std::process::ExitCode;

use super::super::confirmation;
use super::super::exit::{CommandExit, CommandFailure};
use super::super::output::put;
use crate::config::in_shell;
use crate::ids::Digest;
use crate::io_reason::io_reason;
use crate::limits;
use crate::plural::count;
use crate::shipped::{ListenerManifest, MANIFEST, ShippedListener, VERSION, WrittenFile};
use crate::xml::invisible_characters::visible;

/// An installed file that differs from the shipped file.
struct ChangedFile {
    file: WrittenFile,
    /// Content of the installed file; `None` if the directory has no such file.
    installed_bytes: Option<Vec<u8>>,
}

pub fn run(
    listener: &ShippedListener,
    directory: &Path,
    is_confirmed: bool,
) -> anyhow::Result<ExitCode> {
    let installed = manifest(listener, directory)?;
    let mut changed = Vec::new();
    for file in listener.written_files() {
        let path = directory.join(&file.path);
        let installed_bytes = read(&path)?;
        let is_same = installed_bytes.as_deref() == Some(file.text.as_bytes());
        if !is_same || is_executable_lost(&file, &path) {
            changed.push(ChangedFile { file, installed_bytes });
        }
    }

    let shown = visible(&directory.display().to_string());
    if changed.is_empty() {
        note!("{shown} is {} {VERSION}; nothing differs", listener.name);
        return Ok(CommandExit::Done.into());
    }

    for change in &changed {
        show(change, &installed)?;
    }
    show_left_over(listener, directory, &installed)?;
    note!("\n{shown} is {} {}; this program has {VERSION}", installed.name, installed.version);
    if !is_confirmed {
        confirm(listener, directory)?;
    }

    // The manifest is the last: after an interruption, the directory still counts as the old
    // version.
    for (replaced, change) in changed.iter().enumerate() {
        let of_all = format!("replaced {replaced} of {}", count(changed.len(), "file"));
        replace(directory, change, &of_all)?;
    }
    note!("updated {} in {shown}", count(changed.len(), "file"));
    Ok(CommandExit::Done.into())
}

/// Reads the manifest in the directory. Fails if the manifest names another listener.
fn manifest(listener: &ShippedListener, directory: &Path) -> anyhow::Result<ListenerManifest> {
    let path = directory.join(MANIFEST);
    let shown = visible(&path.display().to_string());
    let Some(text) = read(&path)? else {
        let next = match existing(listener, directory).as_slice() {
            [] => "without --update, it is".to_owned(),
            names => other_directory(names),
        };
        let text = format!("no {shown}: no listener was installed there; {next}");
        return Err(CommandFailure::usage(text).into());
    };

    let parsed = ListenerManifest::parse(&String::from_utf8_lossy(&text));
    let manifest = parsed.map_err(|error| {
        let next = other_directory(&existing(listener, directory));
        let reason = visible(&error.to_string());
        CommandFailure::usage(format!("{shown}: {reason}; nothing was changed, {next}"))
    })?;
    if manifest.name != listener.name {
        let text = format!(
            "{} is the listener {}, not {}; nothing was changed, choose another directory",
            visible(&directory.display().to_string()),
            manifest.name,
            listener.name
        );
        return Err(CommandFailure::usage(text).into());
    }
    Ok(manifest)
}

/// Returns the names of those files of the listener that exist in the directory.
fn existing(listener: &ShippedListener, directory: &Path) -> Vec<String> {
    let paths = listener.written_files().into_iter().map(|file| file.path);
    paths.filter(|path| directory.join(path).symlink_metadata().is_ok()).collect()
}

fn other_directory(existing: &[String]) -> String {
    format!("choose another directory, or remove these files: {}", existing.join(", "))
}

/// Reads the content of a file; `None` if the file does not exist.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    content(path).map_err(|reason| {
        let shown = visible(&path.display().to_string());
        let text = format!("cannot read {shown}: {reason}; nothing was changed");
        CommandFailure::new(CommandExit::Unavailable, text).into()
    })
}

/// Reads the content of a file as [`read`] does, but returns an error as text. Returns `Ok(None)`
/// if the file does not exist.
fn content(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let about = match std::fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    // Reading another kind of file, such as a pipe, may never end.
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if about.len() > limits::SCHEMA_BYTES_MAX as u64 {
        return Err(format!("it is larger than {} bytes", limits::SCHEMA_BYTES_MAX));
    }
    std::fs::read(path).map(Some).map_err(|error| error.to_string())
}

/// Whether `file` is a program of the listener, but the installed file at `path` is not executable.
fn is_executable_lost(file: &WrittenFile, path: &Path) -> bool {
    let mode = std::fs::metadata(path).map(|about| about.permissions().mode());
    file.is_executable && mode.is_ok_and(|mode| mode & 0o111 == 0)
}

/// Prints how an installed file differs from the shipped file.
fn show(change: &ChangedFile, installed: &ListenerManifest) -> anyhow::Result<()> {
    let file = &change.file;
    let path = &file.path;
    let Some(bytes) = change.installed_bytes.as_deref() else {
        let lines = file.text.lines().count();
        return put(&format!("{path}: is new, {}\n", count(lines, "line")));
    };

    if bytes == file.text.as_bytes() {
        return put(&format!("{path}: cannot be executed any more\n"));
    }

    let recorded = installed.files.get(path);
    let is_own = recorded.is_some_and(|digest| *digest != Digest::of(bytes).to_string());
    if is_own {
        put(&format!(
            "{path}: was changed here after its installation; the change will be lost\n"
        ))?;
    }

    let old = String::from_utf8_lossy(bytes);
    let diff = similar::TextDiff::from_lines(old.as_ref(), &file.text);
    let from = format!("{path} (here)");
    let to = format!("{path} ({VERSION})");
    put(&visible(&diff.unified_diff().context_radius(3).header(&from, &to).to_string()))
}

/// Lists the installed files that do not belong to this version of the listener, so that the user
/// can decide whether to remove them.
fn show_left_over(
    listener: &ShippedListener,
    directory: &Path,
    installed: &ListenerManifest,
) -> anyhow::Result<()> {
    for path in installed.files.keys() {
        let is_shipped = listener.files().iter().any(|file| file.path == path);
        let mut parts = Path::new(path).components();
        let is_beneath = parts.all(|part| matches!(part, Component::Normal(_)));
        if !is_shipped && is_beneath && directory.join(path).symlink_metadata().is_ok() {
            let shown = visible(path);
            put(&format!("{shown}: no longer comes with {}; remove it yourself\n", listener.name))?;
        }
    }
    Ok(())
}

/// Asks whether to continue. A `no` ends the command.
fn confirm(listener: &ShippedListener, directory: &Path) -> anyhow::Result<()> {
    if !confirmation::has_terminal() {
        let text = format!(
            "nothing was changed, as there is no terminal to ask on: organism listener install {} \
             {} --update --yes",
            listener.name,
            in_shell(&directory.display().to_string())
        );
        return Err(CommandFailure::usage(text).into());
    }

    if confirmation::ask("replace these files?")? {
        return Ok(());
    }
    Err(CommandFailure::usage("nothing was changed").into())
}

/// Replaces a file in one step: a reader sees either the whole old file or the whole new one.
fn replace(directory: &Path, change: &ChangedFile, of_all: &str) -> anyhow::Result<()> {
    let path = directory.join(&change.file.path);
    let shown = visible(&path.display().to_string());
    if content(&path).ok().as_ref() != Some(&change.installed_bytes) {
        let text =
            format!("{shown} was changed after it was shown; {of_all}, run the same command again");
        return Err(CommandFailure::new(CommandExit::TryAgain, text).into());
    }

    write(&path, &change.file).map_err(|error| {
        let reason = io_reason(&error);
        let text = format!("cannot write {shown}: {reason}; {of_all}, run the same command again");
        CommandFailure::new(CommandExit::Unavailable, text).into()
    })
}

fn write(path: &Path, file: &WrittenFile) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }

    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mode = if file.is_executable { 0o755 } else { 0o644 };
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(mode).open(&new)?;
    let written = out.write_all(file.text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // An error here is ignored, because the first error is reported.
        std::fs::remove_file(&new).ok();
    }
    written
}
