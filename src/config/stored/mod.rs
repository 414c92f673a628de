//! Stored configs: the form in which the journal stores the config of each boot, so that the config
//! can be loaded again.
//!
//! The record of a boot lists texts, called blobs, by their digests. The first blob is the
//! effective config. The second is a manifest ([`ConfigManifest`]), which lists the digests of the
//! config file's text and of all files that the config names. Early versions of the program stored
//! no manifest. In their journals, the second blob is another text, and the configs cannot be
//! loaded again.

mod diff;
mod file_keys;
mod history;
mod load;
pub(super) mod portable;
mod render;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::ids::Digest;
use crate::journal::sqlite::JournalReader;

use super::environment::ConfigEnvironment;
use super::sections::DeclaredSections;
pub use diff::{ComparedConfig, ConfigChange, config_changes, effective_of};
pub(super) use diff::{effective_changes, in_order};
pub use history::{BootConfig, ConfigHistory};
pub use load::{ExtractedConfig, StoredConfigError};
pub use portable::CONFIG_NAME;
use render::RenderedConfig;
pub use schemas::{RecordedSchema, schemas_of};

/// Version of the manifest's format.
const MANIFEST_VERSION: u32 = 1;

/// Manifest of a stored config. Lists every text of the config by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigManifest {
    /// Version of the manifest's format. A blob that lacks this field is not a manifest.
    #[serde(rename = "organism_config")]
    version: u32,
    /// Digest of the effective config.
    #[serde(rename = "config")]
    pub config: Digest,
    /// File name of the config, without its directory.
    #[serde(rename = "file")]
    pub file: String,
    /// Digest of the config as TOML.
    #[serde(rename = "toml")]
    toml: Digest,
    /// Digests of the stored files that the config names. Each key is the portable name of a file.
    #[serde(rename = "files")]
    files: BTreeMap<String, Digest>,
    /// Directories that the config names.
    #[serde(rename = "directories", default, skip_serializing_if = "BTreeSet::is_empty")]
    directories: BTreeSet<String>,
    /// Digests of the playback recordings that were too large to be stored, by their portable
    /// names.
    #[serde(rename = "left_out", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, Digest>,
    /// Config keys whose secret values were replaced by placeholders.
    #[serde(rename = "withheld", default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// Environment variables that the config needs.
    #[serde(rename = "variables", default, skip_serializing_if = "BTreeSet::is_empty")]
    pub variables: BTreeSet<String>,
}

/// A config with all its files, as texts without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredConfig {
    pub manifest: ConfigManifest,
    manifest_text: String,
    /// TOML text of the config in force, with overrides applied and variables filled in. Secrets
    /// remain references to variables.
    pub toml: String,
    /// Texts of the stored files that the config names. Each key is the portable name of a file.
    pub files: BTreeMap<String, String>,
}

/// Converts the sections of a config to the texts that the journal stores. `documents` contains the
/// schema documents of the config.
pub(super) fn render(
    sections: &DeclaredSections,
    documents: BTreeMap<String, String>,
    directory: &Path,
    around: &ConfigEnvironment,
) -> RenderedConfig {
    let workflows = sections.workflows.as_ref();
    render::render(&sections.root, workflows, documents, directory, around)
}

impl StoredConfig {
    /// Makes the stored form of a config. `path` is the path of the config file, `effective` is the
    /// effective config, and `rendered` contains the texts of the config and of its files.
    pub(super) fn new(effective: &str, path: &Path, rendered: RenderedConfig) -> Self {
        let RenderedConfig { toml, files, directories, left_out, withheld, variables } = rendered;
        let digests = files.iter().map(|(name, text)| (name.clone(), Digest::of(text.as_bytes())));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(CONFIG_NAME);
        let manifest = ConfigManifest {
            version: MANIFEST_VERSION,
            config: Digest::of(effective.as_bytes()),
            file: name.to_owned(),
            toml: Digest::of(toml.as_bytes()),
            files: digests.collect(),
            directories,
            left_out,
            withheld,
            variables,
        };

        let manifest_text = serde_json::to_string_pretty(&manifest);
        let manifest_text = manifest_text.expect("plain data without maps of odd keys is JSON");
        Self { manifest, manifest_text, toml, files }
    }

    /// Makes a stored config from the text of its config file and the texts of its other files.
    #[cfg(test)]
    pub fn of_texts(toml: String, files: BTreeMap<String, String>) -> Self {
        let rendered = RenderedConfig { toml, files, ..RenderedConfig::default() };
        Self::new("", Path::new(CONFIG_NAME), rendered)
    }

    /// Returns the texts of the stored config: the manifest, the config as TOML, and the files that
    /// the config names. The journal stores each text as a blob, after the effective config.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let own = [self.manifest_text.as_str(), self.toml.as_str()];
        own.into_iter().chain(self.files.values().map(String::as_str))
    }

    /// Reads the stored config of a boot or reload from the journal.
    ///
    /// # Errors
    ///
    /// Returns [`StoredConfigError::NotStored`] if an early version of the program, which did not
    /// store configs, recorded the boot.
    pub fn read(reader: &JournalReader, boot: &BootConfig) -> Result<Self, StoredConfigError> {
        let not_stored =
            || StoredConfigError::NotStored { position: boot.position, config: boot.config };
        let listed = boot.blobs.get(1).ok_or_else(not_stored)?;
        let manifest_text = text_of(reader, *listed)?;
        let manifest = read_manifest(&manifest_text)?;
        let manifest = manifest.filter(|manifest| manifest.config == boot.config);
        let manifest = manifest.ok_or_else(not_stored)?;

        let toml = text_of(reader, manifest.toml)?;
        let files = manifest.files.iter().map(|(name, digest)| {
            let text = text_of(reader, *digest)?;
            Ok((name.clone(), text))
        });
        let files = files.collect::<Result<_, StoredConfigError>>()?;
        Ok(Self { manifest, manifest_text, toml, files })
    }

    /// Returns the path and the text of each file of this stored config. Each path is relative to
    /// the directory to which the files are written.
    pub fn all_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        std::iter::once((CONFIG_NAME, self.toml.as_str())).chain(files)
    }

    /// Returns the directories that must exist besides the files of this stored config, outer
    /// directories first. Each path is relative to the directory to which the files are written.
    pub fn directories(&self) -> impl Iterator<Item = &str> {
        let own = self.manifest.directories.iter().map(String::as_str);
        own.filter(|name| *name != ".")
    }
}

/// Parses the manifest in a blob. Returns `None` if the blob is not a manifest.
fn read_manifest(text: &str) -> Result<Option<ConfigManifest>, StoredConfigError> {
    #[derive(Deserialize)]
    struct Marked {
        #[serde(rename = "organism_config")]
        version: u32,
    }

    let Ok(Marked { version }) = serde_json::from_str(text) else { return Ok(None) };
    if version != MANIFEST_VERSION {
        return Err(StoredConfigError::Version { version });
    }

    let manifest: ConfigManifest = serde_json::from_str(text)
        .map_err(|error| StoredConfigError::Damaged { detail: error.to_string() })?;
    let names = manifest.files.keys().chain(manifest.left_out.keys());
    let directories = manifest.directories.iter().filter(|name| *name != ".");
    for name in names.chain(directories) {
        if !portable::is_safe(name) || name == CONFIG_NAME {
            let detail = format!("its file name {name:?} is not one that this program writes");
            return Err(StoredConfigError::Damaged { detail });
        }
    }

    Ok(Some(manifest))
}

fn text_of(reader: &JournalReader, digest: Digest) -> Result<String, StoredConfigError> {
    let missing = |what: &str| StoredConfigError::Damaged { detail: format!("{what} {digest}") };
    let bytes = reader.blob(digest)?.ok_or_else(|| missing("the journal lacks its text"))?;
    String::from_utf8(bytes).map_err(|_| missing("a text of it is not UTF-8:"))
}
