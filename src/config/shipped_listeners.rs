//! Notes about installed listeners whose version differs from the version that this program ships.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::limits;
use crate::shipped::{self, ListenerManifest, MANIFEST, SCHEMA_PREFIX};
use crate::xml::invisible_characters::visible;

use super::file;
use super::members::DeclaredMember;
use super::shell_word::in_shell;

/// Returns one note for each installed listener whose version differs from the shipped version.
pub(super) fn notes(members: &[DeclaredMember], directory: &Path) -> Vec<String> {
    let mut folders = BTreeSet::new();
    for member in members {
        folders.extend(folders_of(member));
    }
    folders.iter().filter_map(|folder| note(folder, directory)).collect()
}

/// Returns the directories that may contain the manifest of this member's listener, or of the kit
/// that the listener uses: the directories of the listener's program and schemas, the parents of
/// these directories, and the directories in the listener's `PYTHONPATH`. The paths are relative to
/// the config.
fn folders_of(member: &DeclaredMember) -> BTreeSet<PathBuf> {
    let schemas = member.schema.iter().map(|schema| schema.value.value.as_str());
    let of_process = member.process.iter().flat_map(|process| &process.command);
    let words = of_process.map(|word| word.value.value.as_str());
    let is_path = |text: &&str| text.contains('/') && !text.starts_with(SCHEMA_PREFIX);

    let mut folders = BTreeSet::new();
    for path in schemas.chain(words).filter(is_path) {
        let above = Path::new(path).ancestors().skip(1).take(2);
        folders.extend(above.filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned));
    }

    let variables = member.process.iter().flat_map(|process| &process.env);
    for (_, paths) in variables.filter(|(name, _)| name.value == "PYTHONPATH") {
        let kits = paths.value.value.split(':').filter(|path| !path.is_empty());
        // Drops a `/` at the end, which messages and commands would repeat.
        folders.extend(kits.map(|path| Path::new(path).components().collect::<PathBuf>()));
    }
    folders
}

fn note(folder: &Path, directory: &Path) -> Option<String> {
    let path = directory.join(folder).join(MANIFEST);
    let about = std::fs::metadata(&path).ok()?;
    if !about.is_file() || about.len() > limits::SCHEMA_BYTES_MAX as u64 {
        return None;
    }

    let shown = visible(&folder.display().to_string());
    let text = match file::text(&path) {
        Ok(text) => text,
        Err(reason) => return Some(format!("{shown}/{MANIFEST} cannot be read: {reason}")),
    };
    let manifest = match ListenerManifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(_) if ListenerManifest::is_foreign(&text) => return None,
        Err(error) => {
            let reason = visible(&error.to_string());
            return Some(format!("{shown}/{MANIFEST} is ignored: {reason}"));
        }
    };

    let ListenerManifest { name, version, .. } = &manifest;
    let Some(listener) = shipped::listener(name) else {
        return Some(format!(
            "{shown} is the listener {name} {version}, which does not come with this organism ({})",
            shipped::VERSION
        ));
    };

    let shipped_manifest = ListenerManifest::of(listener);
    if shipped_manifest == manifest {
        return None;
    }

    let shipped_version = if shipped_manifest.version == *version {
        format!("another build of {version}")
    } else {
        shipped_manifest.version
    };
    let word = in_shell(&folder.display().to_string());
    Some(format!(
        "{shown} is the listener {name} {version}, and this organism comes with {shipped_version}; \
         `organism listener install {name} {word} --update` shows the difference, from the config's directory"
    ))
}
