//! Environment variables that override keys of the config: `ORGANISM_<SECTION>__<NAME>__<KEY>`.
//!
//! Names are written in capitals, with `_` for `-`. An override may change a member that the file
//! declares, such as an agent, but adds no member. Two parts of the config are more restricted: the
//! section `[payloads]`, and keys with nested tables or lists, such as `goals` of a workflow and
//! `undo` of a listener. There, an override only replaces an existing value. An override that
//! matches nothing is reported as a problem, so that typos are noticed.

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::{KeyKind, KnownSection, SECTIONS, is_private, nearest};
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located, TomlEntry, TomlNode, TomlTable, TomlValue};

const PREFIX: &str = "ORGANISM_";

/// Applies every override of the environment to `root`.
pub(super) fn apply(
    root: &mut TomlTable,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    for (variable, value) in &around.variables {
        let Some(path) = variable.strip_prefix(PREFIX).filter(|path| is_override(path)) else {
            continue;
        };
        if set(root, variable, path, value).is_none() {
            problems.push(unknown(root, variable, value));
        }
    }
}

/// Whether an environment variable is meant as an override of a config key. `path` is the
/// variable's name without `ORGANISM_`. Returns true in two cases:
///
/// - `path` contains `__`, which separates the parts of an override.
/// - `path` begins with the name of a section and a single `_`. This is a typo, which the caller
///   reports.
fn is_override(path: &str) -> bool {
    let first = path.split('_').next().unwrap_or_default().to_ascii_lowercase();
    path.contains("__") || path.contains('_') && SECTIONS.iter().any(|s| s.name == first)
}

fn set(root: &mut TomlTable, variable: &str, path: &str, value: &str) -> Option<()> {
    let mut parts = path.split("__");
    let section_name = parts.next()?.to_ascii_lowercase();
    let section = SECTIONS.into_iter().find(|section| section.name == section_name)?;
    let source = source_of(variable, value);
    if section.keys.is_empty() {
        return replace_value(root.get_mut(section.name)?, parts, variable, value);
    }

    let mut table = table_at(root, section.name, &source, section.member.is_none())?;
    if section.member.is_some() {
        let member = parts.next()?;
        let name = table.entries.iter().find(|e| shouted(&e.key.value) == member)?;
        let name = name.key.value.clone();
        table = table_at(table, &name, &source, false)?;
    }

    let key = parts.next()?.to_ascii_lowercase();
    let kind = section.kind(&key)?;
    if kind == KeyKind::Nested {
        return replace_value(table.get_mut(&key)?, parts, variable, value);
    }

    let inner = parts.next();
    if parts.next().is_some() || inner.is_some() != (kind == KeyKind::Free) {
        return None;
    }

    match inner {
        None => put(table, &key, node(&source, kind, value, false)),
        Some(inner) => {
            let inner = if key == "prompt" { inner.to_ascii_lowercase() } else { inner.to_owned() };
            let free = table_at(table, &key, &source, true)?;
            let private = is_private(&inner).unwrap_or(key != "prompt");
            let twin = match inner.strip_suffix("_file") {
                Some(text) => text.to_owned(),
                None => format!("{inner}_file"),
            };
            free.entries.retain(|entry| entry.key.value != twin);
            put(free, &inner, node(&source, KeyKind::Text, value, private));
        }
    }

    Some(())
}

/// Replaces the value at `path` beneath `node`. This function is for the parts of the config in
/// which the author chooses the keys: an override may replace values there, but not add keys.
/// Returns `None` if there is no value at `path`, or if an override cannot replace this value.
fn replace_value<'p>(
    mut node: &mut TomlNode,
    path: impl Iterator<Item = &'p str>,
    variable: &str,
    value: &str,
) -> Option<()> {
    for part in path {
        let TomlValue::Table(table) = &mut node.value else { return None };
        let entry = table.entries.iter_mut().find(|entry| shouted(&entry.key.value) == part)?;
        node = &mut entry.node;
    }

    let kind = replaceable_kind(&node.value, value)?;
    let source = if node.private {
        ConfigSource::hidden(variable, value)
    } else {
        source_of(variable, value)
    };
    *node = self::node(&source, kind, value, node.private);
    Some(())
}

/// Returns the type of the value that the override `new` puts in place of `old`. Returns `None` if
/// no override can replace `old`, for example because `old` is a table or a list of tables.
fn replaceable_kind(old: &TomlValue, new: &str) -> Option<KeyKind> {
    match old {
        TomlValue::Text(_) => Some(KeyKind::Text),
        TomlValue::Integer(_) | TomlValue::Number(_) if new.parse::<i64>().is_ok() => {
            Some(KeyKind::Integer)
        }
        TomlValue::Integer(_) | TomlValue::Number(_) => Some(KeyKind::Number),
        TomlValue::Flag(_) => Some(KeyKind::Flag),
        TomlValue::List(items) => {
            let is_text = |item: &TomlNode| matches!(item.value, TomlValue::Text(_));
            items.iter().all(is_text).then_some(KeyKind::List)
        }
        TomlValue::Table(_) | TomlValue::Other => None,
    }
}

/// Returns the environment variable as a [`ConfigSource`], to which error messages can point. Hides
/// the variable's value if it may be private.
fn source_of(variable: &str, value: &str) -> std::sync::Arc<ConfigSource> {
    let private = ["__ENV__", "__HEADERS__", "__API_KEY_ENV", "__BASE_URL"];
    let public = !private.iter().any(|part| variable.contains(part));
    if public { ConfigSource::new(variable, value) } else { ConfigSource::hidden(variable, value) }
}

fn shouted(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Returns the table under `key`, or `None` if there is no such table. If the key is missing and
/// `make` is true, creates the table first.
fn table_at<'t>(
    table: &'t mut TomlTable,
    key: &str,
    source: &std::sync::Arc<ConfigSource>,
    make: bool,
) -> Option<&'t mut TomlTable> {
    if table.get(key).is_none() && make {
        let place = SourceRange::start(source);
        put(
            table,
            key,
            TomlNode { place, private: false, value: TomlValue::Table(TomlTable::default()) },
        );
    }

    match &mut table.get_mut(key)?.value {
        TomlValue::Table(table) => Some(table),
        _ => None,
    }
}

fn put(table: &mut TomlTable, key: &str, node: TomlNode) {
    match table.get_mut(key) {
        Some(old) => *old = node,
        None => {
            let key = Located { value: key.to_owned(), place: node.place.clone() };
            table.entries.push(TomlEntry { key, node });
        }
    }
}

/// Parses the value of a variable according to the type of the key that the variable overrides. A
/// value that cannot be parsed stays a string, and is reported later, when the key is read.
fn node(
    source: &std::sync::Arc<ConfigSource>,
    kind: KeyKind,
    value: &str,
    private: bool,
) -> TomlNode {
    let place = SourceRange::new(source, 0..value.len());
    let text = |text: &str| TomlValue::Text(ExpandedText::plain(text));
    let list = |value: &str| {
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let item = |part| TomlNode { place: place.clone(), private, value: text(part) };
        TomlValue::List(parts.map(item).collect())
    };

    let value = match kind {
        KeyKind::Integer => {
            value.parse().map_or_else(|_| text(value), |i| TomlValue::Integer(Some(i)))
        }
        KeyKind::Number => {
            let number = value.parse().ok().filter(|n: &f64| n.is_finite());
            number.map_or_else(|| text(value), TomlValue::Number)
        }
        KeyKind::Flag => value.parse().map_or_else(|_| text(value), TomlValue::Flag),
        KeyKind::List | KeyKind::OneOrMore => list(value),
        KeyKind::Text | KeyKind::Duration | KeyKind::Free | KeyKind::Nested => text(value),
    };

    TomlNode { place, private, value }
}

fn unknown(root: &TomlTable, variable: &str, value: &str) -> ConfigProblem {
    let place = SourceRange::start(&ConfigSource::hidden(variable, value));
    let known = all(root);
    let near = nearest(variable, known.iter().map(String::as_str));
    let help = match near {
        Some(near) => format!("did you mean {near}?"),
        None => format!(
            "an override is {PREFIX}<SECTION>__<NAME>__<KEY>, in capitals, of a section and name \
             that the file has"
        ),
    };

    let message = format!("the variable {variable} overrides nothing in this config");
    ConfigProblem::new(ProblemCode::UnknownOverride, &place, message).help(help)
}

/// Returns the names of all environment variables that could override a key of this config.
fn all(root: &TomlTable) -> Vec<String> {
    let sections = SECTIONS.into_iter().flat_map(|section| {
        let before = format!("{PREFIX}{}", shouted(section.name));
        if section.member.is_none() {
            return keys(section, &before);
        }
        match root.get(section.name).map(|node| &node.value) {
            Some(TomlValue::Table(table)) if section.keys.is_empty() => values(table, &before),
            Some(TomlValue::Table(table)) => {
                let members = table.entries.iter();
                members.flat_map(|member| keys_of_member(section, member, &before)).collect()
            }
            _ => Vec::new(),
        }
    });
    sections.collect()
}

/// Returns the names of the environment variables that override the keys of a section or of one of
/// its members. All names begin with `before`, which stands for the section or the member.
fn keys(section: &KnownSection, before: &str) -> Vec<String> {
    let keys = section.keys.iter().filter(|(_, kind)| *kind != KeyKind::Nested);
    keys.map(|(key, _)| format!("{before}__{}", shouted(key))).collect()
}

/// Returns the names of the environment variables that override a key of a member, or a value
/// within such a key. All names begin with `before`, which stands for the member's section.
fn keys_of_member(section: &KnownSection, member: &TomlEntry, before: &str) -> Vec<String> {
    let before = format!("{before}__{}", shouted(&member.key.value));
    let mut names = keys(section, &before);
    if let TomlValue::Table(table) = &member.node.value {
        let is_nested =
            |entry: &&TomlEntry| section.kind(&entry.key.value) == Some(KeyKind::Nested);
        let nested = table.entries.iter().filter(is_nested);
        names.extend(nested.flat_map(|entry| values_of(entry, &before)));
    }

    names
}

/// Returns the names of the environment variables that override the values in `table` and in the
/// tables within it. All names begin with `before`, which stands for `table`.
fn values(table: &TomlTable, before: &str) -> Vec<String> {
    table.entries.iter().flat_map(|entry| values_of(entry, before)).collect()
}

fn values_of(entry: &TomlEntry, before: &str) -> Vec<String> {
    let name = format!("{before}__{}", shouted(&entry.key.value));
    match &entry.node.value {
        TomlValue::Table(inner) => values(inner, &name),
        value if replaceable_kind(value, "").is_some() => vec![name],
        _ => Vec::new(),
    }
}
