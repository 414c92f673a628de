//! Compares two configs by their meaning: key by key, whatever their files look like.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde_json::Value as Json;
use similar::TextDiff;

use crate::ids::Digest;
use crate::journal::{self, sqlite::JournalReader};
use crate::limits;

use super::super::{Config, duration};
use super::file_keys::{file_key, split_values};
use super::{BootConfig, StoredConfig, StoredConfigError};

/// Sections that the effective config leaves out, because the pump's decisions do not depend on
/// them.
const SECTIONS_APART: [&str; 6] = ["organism", "journal", "nats", "http", "telemetry", "alerts"];
/// Settings of members that the effective config leaves out: the section, and the setting.
const SETTINGS_APART: [(&str, &str); 7] = [
    ("clients", "secret_env"),
    ("clients", "secret_file"),
    ("listeners", "env"),
    ("models", "api_key_env"),
    ("models", "api_key_file"),
    ("models", "chunk_delay"),
    ("models", "insecure"),
];
/// Number of unchanged lines around each change of a text.
const CONTEXT_LINES: usize = 3;

/// One of two configs that are compared.
pub struct ComparedConfig {
    /// Digest of the effective config.
    pub digest: Digest,
    /// Values of the effective config by their keys.
    values: BTreeMap<String, String>,
    /// Values that the config file sets and the effective config does not contain, by their keys in
    /// the file. `None` if the config was recorded by a boot of an early version, which stored only
    /// the effective config.
    values_apart: Option<BTreeMap<String, String>>,
    /// Texts of the config by their digests. Texts that are missing from the journal are left out.
    texts: BTreeMap<Digest, String>,
}

/// A difference between two configs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    /// Key of the changed value in the config file, such as `agents.writer.max_iterations`. If no
    /// key of the file sets the value alone, as for the digest of a schema, this is the value's key
    /// in the effective config.
    pub path: String,
    /// Value in the first config; `None` if only the second config has the key.
    pub before: Option<String>,
    /// Value in the second config; `None` if only the first config has the key.
    pub after: Option<String>,
    /// Unified diff of the changed lines; `None` if neither value is a text of several lines.
    pub diff: Option<String>,
}

impl ConfigChange {
    /// Names the changed value by its key in the config file. `before` and `after` are the compared
    /// configs.
    pub fn named_by_file(self, before: &ComparedConfig, after: &ComparedConfig) -> Self {
        let configs = if self.after.is_some() { [after, before] } else { [before, after] };
        let roles_of =
            |name: &str| configs.iter().filter_map(|own| own.role(name).cloned()).collect();
        let is_set_anew = self.before.is_none() || self.after.is_none();
        Self { path: file_key(&self.path, roles_of, is_set_anew), ..self }
    }
}

impl ComparedConfig {
    /// Prepares a config that was loaded from a file, so that it can be compared.
    pub fn of_config(config: &Config) -> Self {
        let texts = config.texts().into_iter().map(|text| (digest_of(text), text.to_owned()));
        let values = effective_values(&config.text);
        let values_apart = Some(values_apart(&config.stored.toml));
        Self { digest: config.digest, values, values_apart, texts: texts.collect() }
    }

    /// Reads the config that a boot recorded. For a boot of an early version, which did not store
    /// configs, reads only the effective config.
    pub fn of_boot(reader: &JournalReader, boot: &BootConfig) -> Result<Self, StoredConfigError> {
        let effective = effective_of(reader, boot)?;
        let values_apart = match StoredConfig::read(reader, boot) {
            Ok(stored) => Some(values_apart(&stored.toml)),
            Err(StoredConfigError::NotStored { .. }) => None,
            Err(error) => return Err(error),
        };

        let mut texts = BTreeMap::new();
        for digest in &boot.blobs {
            let bytes = reader.blob(*digest)?;
            if let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
                texts.insert(*digest, text);
            }
        }
        let values = effective_values(&effective);
        Ok(Self { digest: boot.config, values, values_apart, texts })
    }

    /// Whether this config and `other` can be compared only by their effective configs, because one
    /// of them was recorded by a boot of an early version. If true, a comparison finds no
    /// differences in the sections and settings that the effective config leaves out.
    pub const fn is_effective_only(&self, other: &Self) -> bool {
        self.values_apart.is_none() || other.values_apart.is_none()
    }

    /// Returns the values of this config that are compared with the values of `other`, by their
    /// keys.
    fn compared_values(&self, other: &Self) -> BTreeMap<&String, &String> {
        let apart = self.values_apart.as_ref().filter(|_| !self.is_effective_only(other));
        self.values.iter().chain(apart.into_iter().flatten()).collect()
    }

    /// Returns the role of the member `name`, such as `agent`; `None` if the config has no such
    /// member.
    fn role(&self, name: &str) -> Option<&String> {
        self.values.get(&format!("contracts.{name}.role"))
    }

    /// Returns the text whose digest is `value`; `None` if `value` is no digest, or the text is
    /// unknown.
    fn text(&self, value: &str) -> Option<&str> {
        let digest = Digest::parse(value).ok()?;
        self.texts.get(&digest).map(String::as_str)
    }
}

/// Reads the effective config of a boot from the journal, as JSON.
pub fn effective_of(
    reader: &JournalReader,
    boot: &BootConfig,
) -> Result<String, StoredConfigError> {
    let config = boot.config;
    let detail = format!("the journal lacks the effective config {config}");
    let bytes: Option<Vec<u8>> = reader.blob(config).map_err(journal_error)?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or(StoredConfigError::Damaged { detail })
}

fn journal_error(error: journal::Error) -> StoredConfigError {
    StoredConfigError::Journal(error)
}

fn digest_of(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

/// Returns every difference between two configs, in order of keys. Returns an empty list for
/// configs that mean the same. If [`ComparedConfig::is_effective_only`] is true, compares only the
/// effective configs.
pub fn config_changes(before: &ComparedConfig, after: &ComparedConfig) -> Vec<ConfigChange> {
    let changes = effective_changes(before, after).into_iter();
    in_order(changes.map(|change| change.named_by_file(before, after)).collect())
}

/// Sorts changes by their keys, and keeps only the first of several changes of a key.
pub fn in_order(mut changes: Vec<ConfigChange>) -> Vec<ConfigChange> {
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    changes.dedup_by(|later, kept| later.path == kept.path);
    changes
}

/// Returns every difference between two configs as [`config_changes`] does. However, each value of
/// the effective config is named by its key in the effective config, not by its key in the file.
pub fn effective_changes(before: &ComparedConfig, after: &ComparedConfig) -> Vec<ConfigChange> {
    let old_values = before.compared_values(after);
    let new_values = after.compared_values(before);
    let mut paths: Vec<_> = old_values.keys().chain(new_values.keys()).copied().collect();
    paths.sort();
    paths.dedup();

    let changed = paths.into_iter().filter(|path| old_values.get(path) != new_values.get(path));
    let deadline = Instant::now() + limits::LINE_COMPARISON_TIME;
    let changes = changed.map(|path| {
        let old = old_values.get(path).copied();
        let new = new_values.get(path).copied();
        ConfigChange {
            path: path.clone(),
            before: old.cloned(),
            after: new.cloned(),
            diff: old.zip(new).and_then(|(old, new)| {
                let old = before.text(old).unwrap_or(old);
                let new = after.text(new).unwrap_or(new);
                text_diff(old, new, deadline)
            }),
        }
    });
    changes.collect()
}

/// Returns the unified diff of two texts; `None` if neither text has several lines. The search for
/// equal lines ends at `deadline`, because it takes quadratic time for two long texts without equal
/// lines.
fn text_diff(old: &str, new: &str, deadline: Instant) -> Option<String> {
    if !old.contains('\n') && !new.contains('\n') {
        return None;
    }

    let diff = TextDiff::configure().deadline(deadline).diff_lines(old, new);
    Some(diff.unified_diff().context_radius(CONTEXT_LINES).to_string())
}

/// Returns the values of an effective config by their keys.
fn effective_values(effective: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    if let Ok(effective) = serde_json::from_str::<Json>(effective) {
        add_values("", &effective, &mut values);
    }
    split_values(&mut values);
    values
}

/// Returns those values of the config file `toml` that the effective config does not contain, by
/// their keys in the file, such as `clients.NAME.secret_env`.
fn values_apart(toml: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (name, section) in toml.parse::<toml::Table>().into_iter().flatten() {
        let Ok(section) = serde_json::to_value(section) else { continue };
        if SECTIONS_APART.contains(&name.as_str()) {
            add_values(&name, &section, &mut values);
        } else {
            add_settings_apart(&name, &section, &mut values);
        }
    }

    values
}

fn add_settings_apart(section: &str, members: &Json, out: &mut BTreeMap<String, String>) {
    for (member, settings) in members.as_object().into_iter().flatten() {
        for (_, setting) in SETTINGS_APART.iter().filter(|(apart, _)| *apart == section) {
            if let Some(value) = settings.get(setting) {
                add_values(&format!("{section}.{member}.{setting}"), value, out);
            }
        }
    }
}

fn add_values(path: &str, value: &Json, out: &mut BTreeMap<String, String>) {
    let beneath = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };

    match value {
        Json::Object(members) if !members.is_empty() => {
            if let Ok(length) = Duration::deserialize(value) {
                out.insert(path.to_owned(), duration::show(length));
                return;
            }
            for (name, member) in members {
                add_values(&beneath(name), member, out);
            }
        }
        Json::Array(items) => match named(items) {
            Some(named) => named.into_iter().for_each(|(name, item)| {
                add_values(&beneath(name), item, out);
            }),
            None => drop(out.insert(path.to_owned(), value.to_string())),
        },
        Json::String(text) => drop(out.insert(path.to_owned(), text.clone())),
        _ => drop(out.insert(path.to_owned(), value.to_string())),
    }
}

/// Returns each item of a list with its name, for example each member of the config. Returns `None`
/// if the list is empty or an item has no name.
fn named(items: &[Json]) -> Option<Vec<(&str, &Json)>> {
    let named: Option<Vec<_>> = items.iter().map(named_item).collect();
    named.filter(|named| !named.is_empty())
}

fn named_item(item: &Json) -> Option<(&str, &Json)> {
    match item {
        Json::Object(members) => Some((members.get("name")?.as_str()?, item)),
        Json::Array(pair) => match pair.as_slice() {
            [Json::String(name), text @ Json::String(_)] => Some((name.as_str(), text)),
            _ => None,
        },
        _ => None,
    }
}
