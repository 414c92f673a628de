//! `organism listener install --update`: shows how an installed listener differs from that of this
//! program, and replaces it after a yes.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::output::put;
use crate::ids::Digest;
use crate::shipped::{ListenerManifest, MANIFEST, ShippedListener, VERSION, WrittenFile};

pub fn run(
    listener: &ShippedListener,
    directory: &Path,
    is_confirmed: bool,
) -> anyhow::Result<ExitCode> {
    let installed = manifest(listener, directory)?;
    let mut changed = Vec::new();
    for file in listener.written_files() {
        let there = read(&directory.join(&file.path))?;
        if there.as_deref() != Some(file.text.as_bytes()) {
            changed.push((file, there));
        }
    }

    let shown = directory.display();
    if changed.is_empty() {
        note!("{shown} is {} {VERSION}; nothing differs", listener.name);
        return Ok(CommandExit::Done.into());
    }

    for (file, there) in &changed {
        show(file, there.as_deref(), &installed)?;
    }
    note!("\n{shown} is {} {}; this program has {VERSION}", installed.name, installed.version);
    if !is_confirmed {
        confirm(listener, directory)?;
    }

    // The manifest is the last: after an interruption, the directory still counts as the old version.
    for (file, _) in &changed {
        replace(directory, file)?;
    }
    note!("updated {} files in {shown}", changed.len());
    Ok(CommandExit::Done.into())
}

/// The manifest in the directory, which must be of this listener.
fn manifest(listener: &ShippedListener, directory: &Path) -> anyhow::Result<ListenerManifest> {
    let path = directory.join(MANIFEST);
    let usage = |text: String| CommandFailure::new(CommandExit::Usage, text);
    let Some(text) = read(&path)? else {
        let text = format!(
            "no {}: no listener was installed there; without --update, it is",
            path.display()
        );
        return Err(usage(text).into());
    };

    let parsed = ListenerManifest::parse(&String::from_utf8_lossy(&text));
    let manifest = parsed.map_err(|error| usage(format!("{}: {error}", path.display())))?;
    if manifest.name != listener.name {
        let text = format!(
            "{} is the listener {}, not {}; nothing was changed",
            directory.display(),
            manifest.name,
            listener.name
        );
        return Err(usage(text).into());
    }
    Ok(manifest)
}

/// The content of a file; `None` if there is none.
fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let text = format!("cannot read {}: {error}; nothing was changed", path.display());
            Err(CommandFailure::new(CommandExit::Unavailable, text).into())
        }
    }
}

/// Prints the difference of one file.
fn show(
    file: &WrittenFile,
    there: Option<&[u8]>,
    installed: &ListenerManifest,
) -> anyhow::Result<()> {
    let path = &file.path;
    let Some(there) = there else {
        let lines = file.text.lines().count();
        return put(&format!("{path}: is new, {lines} lines\n"));
    };

    let recorded = installed.files.get(path);
    let is_own = recorded.is_some_and(|digest| *digest != Digest::of(there).to_string());
    if is_own {
        put(&format!(
            "{path}: was changed here after its installation; the change will be lost\n"
        ))?;
    }

    let old = String::from_utf8_lossy(there);
    let diff = similar::TextDiff::from_lines(old.as_ref(), &file.text);
    let from = format!("{path} (here)");
    let to = format!("{path} ({VERSION})");
    put(&diff.unified_diff().context_radius(3).header(&from, &to).to_string())
}

/// Asks whether to go on. Anything but a yes ends the command.
fn confirm(listener: &ShippedListener, directory: &Path) -> anyhow::Result<()> {
    let usage = |text: String| CommandFailure::new(CommandExit::Usage, text);
    if !std::io::stdin().is_terminal() {
        let text = format!(
            "nothing was changed, as there is no terminal to ask on: organism listener install {} \
             {} --update --yes",
            listener.name,
            directory.display()
        );
        return Err(usage(text).into());
    }

    note_part!("replace these files? yes or no: ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    Err(usage("nothing was changed".to_owned()).into())
}

/// Replaces a file in one step, so that no half of it is ever there.
fn replace(directory: &Path, file: &WrittenFile) -> anyhow::Result<()> {
    let path = directory.join(&file.path);
    let say = || format!("cannot write {}; run the same command again", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(say)?;
    }

    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mode = if file.is_executable { 0o755 } else { 0o644 };
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(&new);
    let written = opened.and_then(|mut out| {
        out.write_all(file.text.as_bytes())?;
        std::fs::rename(&new, &path)
    });
    if written.is_err() {
        // A file that was never made cannot be removed.
        std::fs::remove_file(&new).ok();
    }
    written.with_context(say)
}
