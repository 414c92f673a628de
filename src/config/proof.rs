//! Settings for verifying that the journal was not changed: the public keys of the other machines
//! that run this organism, and the directory for copies of checkpoints. The module also reads the
//! interval between two snapshots of the pump's state.

use std::path::{Path, PathBuf};

use crate::limits;

use super::ProjectFolders;
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::file;
use super::project::path_of;
use super::read::TableReader;
use super::tree::{ExpandedText, Located};

/// Number of hexadecimal digits of a public key.
const KEY_DIGITS: usize = 64;

/// All settings for verifying that a journal was not changed, except the path of the state
/// directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProofSettings {
    /// Public keys of the other machines that run this organism, and earlier keys of this machine,
    /// in hexadecimal.
    pub known_keys: Vec<String>,
    /// Directory for copies of checkpoints, apart from `data` and `state`; `None` if checkpoints
    /// are not copied.
    pub checkpoints: Option<PathBuf>,
}

/// The settings for verifying the journal, as the config declares them.
pub(super) struct DeclaredProof {
    pub known_keys: Vec<String>,
    checkpoints: Option<Located<ExpandedText>>,
    /// Number of records between two snapshots of the pump's state.
    pub snapshot_records: u64,
}

impl DeclaredProof {
    /// Returns the directory for copies of checkpoints; `None` if checkpoints are not copied. A
    /// relative path is resolved against `directory`, the directory of the config.
    pub fn checkpoints(&self, directory: &Path) -> Option<PathBuf> {
        self.checkpoints.as_ref().map(|text| path_of(Path::new(&text.value.value), directory))
    }

    /// Reports a problem if the directory for copies of checkpoints is inside one of the project's
    /// own directories, `own`. An attacker who can rewrite the records there could also rewrite the
    /// copies.
    pub fn check(&self, own: &ProjectFolders, directory: &Path, problems: &mut ConfigProblems) {
        let Some(text) = &self.checkpoints else { return };
        let Some(copies) = self.checkpoints(directory) else { return };
        for (name, kept) in [("data", &own.data), ("state", &own.state)] {
            if !is_inside(&copies, &path_of(kept, directory)) {
                continue;
            }
            let message = format!(
                "`{}` lies in the `{name}` directory {}: an attacker who rewrites the record \
                 there can rewrite the copies as well",
                text.value.written,
                kept.display()
            );
            let help = "name a directory elsewhere, best on another machine or disk";
            problems.push(
                ConfigProblem::new(ProblemCode::CheckpointsInside, &text.place, message).help(help),
            );
        }
    }
}

/// Whether `inner` is `outer` or beneath it. Compares the paths both as written and with symbolic
/// links resolved.
fn is_inside(inner: &Path, outer: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    inner.starts_with(outer) || real(inner).starts_with(real(outer))
}

/// Reads the settings for verifying the journal from the section `[journal]`.
pub(super) fn read(read: &mut TableReader<'_>) -> DeclaredProof {
    let mut known_keys = Vec::new();
    for text in read.list("known_keys") {
        let key = text.value.value.as_str();
        if is_public_key(key) {
            known_keys.push(key.to_owned());
            continue;
        }
        let message = format!("`{}` is no public key of a host", text.value.written);
        let help = "64 hexadecimal digits, as `organism key show` prints them on that host";
        read.problem(ConfigProblem::new(ProblemCode::BadKey, &text.place, message).help(help));
    }

    let snapshot_records = read.count("snapshot_records", limits::SNAPSHOT_RECORDS_CEILING);
    DeclaredProof {
        known_keys,
        checkpoints: read.text("checkpoints"),
        snapshot_records: snapshot_records.unwrap_or(limits::SNAPSHOT_RECORDS),
    }
}

/// Whether a text is a public key in the form that `organism key show` prints.
pub fn is_public_key(text: &str) -> bool {
    text.len() == KEY_DIGITS && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Reads the settings for verifying the journal from the config at `path`, even if other parts of
/// the config are invalid.
pub fn proof_settings(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<ProofSettings, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, _) = super::load::read(path, around, false, &mut problems)?;
    let proof = &sections.storage.proof;
    let checkpoints = proof.checkpoints(&file::directory(path, around));
    Ok(ProofSettings { known_keys: proof.known_keys.clone(), checkpoints })
}
