//! What the config says of proving the record: keys of other hosts.

use std::path::Path;

use super::problem::{Code, Problem, Problems};
use super::read::Reader;
use super::surroundings::Surroundings;

/// Bytes of a public key in hexadecimal.
const KEY_DIGITS: usize = 64;

/// What a proof of the record relies on beside the state of this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProofSettings {
    /// Public keys of the other hosts of this organism, in hexadecimal.
    pub known_keys: Vec<String>,
}

/// Reads the keys of `[journal]` that are about proofs.
pub(super) fn read(read: &mut Reader<'_>) -> ProofSettings {
    let mut known_keys = Vec::new();
    for text in read.list("known_keys") {
        let key = text.value.value.as_str();
        let is_key = key.len() == KEY_DIGITS
            && key.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if is_key {
            known_keys.push(key.to_owned());
            continue;
        }
        let message = format!("`{}` is no public key of a host", text.value.written);
        let help = "64 hexadecimal digits, as `organism key show` prints them on that host";
        read.problem(Problem::new(Code::BadName, &text.place, message).help(help));
    }
    ProofSettings { known_keys }
}

/// What the config at `path` says of proofs, whatever else may be wrong with it.
pub fn proof_settings(path: &Path, around: &Surroundings) -> Result<ProofSettings, Problems> {
    let mut problems = Problems::default();
    let (sections, _) = super::read(path, around, &mut problems)?;
    Ok(sections.storage.proof)
}
