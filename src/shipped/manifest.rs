//! The manifest of an installed listener: the name, version and files of the listener.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ShippedListener, VERSION};
use crate::ids::Digest;

/// Name of the manifest in the directory of an installed listener.
pub const MANIFEST: &str = "listener.toml";

/// Name, version and files of a listener at the time of its installation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListenerManifest {
    #[serde(rename = "name")]
    pub name: String,
    #[serde(rename = "version")]
    pub version: String,
    /// SHA-256 of each file as it was installed, by path.
    #[serde(rename = "files")]
    pub files: BTreeMap<String, String>,
}

/// Reason why a text is no manifest.
#[derive(Debug, thiserror::Error)]
#[error("not a manifest of a listener: {0}")]
pub struct ManifestError(String);

impl ListenerManifest {
    /// Returns the manifest of a listener as this program ships it.
    pub fn of(listener: &ShippedListener) -> Self {
        let digest = |text: &str| Digest::of(text.as_bytes()).to_string();
        let files = listener.files().iter().map(|file| (file.path.to_owned(), digest(file.text)));
        Self { name: listener.name.to_owned(), version: VERSION.to_owned(), files: files.collect() }
    }

    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let parsed = toml::from_str(text);
        let manifest: Self =
            parsed.map_err(|error: toml::de::Error| ManifestError(error.message().to_owned()))?;
        for (key, word) in [("name", &manifest.name), ("version", &manifest.version)] {
            let fits = |c: char| c.is_ascii_alphanumeric() || ".+_-".contains(c);
            if word.is_empty() || !word.chars().all(fits) {
                let text = format!("`{key}` has other characters than A-Z a-z 0-9 . + _ -");
                return Err(ManifestError(text));
            }
        }
        Ok(manifest)
    }

    /// Whether `text` comes from a file that has the name of the manifest, but was written by
    /// another program. Such a text is valid TOML, but lacks the key `name`, `version` or `files`.
    pub fn is_foreign(text: &str) -> bool {
        let table = toml::from_str::<toml::Table>(text);
        let keys = ["name", "version", "files"];
        table.is_ok_and(|table| !keys.iter().all(|key| table.contains_key(*key)))
    }

    pub fn to_text(&self) -> String {
        let mut out = format!(
            "# Written by `organism listener install`. `organism check` compares the version with the\n\
             # program's, and `organism listener install {} DIR --update` shows what differs.\n\
             name = \"{}\"\nversion = \"{}\"\n\n[files]\n",
            self.name, self.name, self.version
        );
        for (path, digest) in &self.files {
            out.push_str(&format!("\"{path}\" = \"{digest}\"\n"));
        }
        out
    }
}
