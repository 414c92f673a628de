//! Environment variables that override keys of the config: `ORGANISM_<SECTION>__<NAME>__<KEY>`.
//!
//! Names are written in capitals, with `_` for `-`. An override may change a member that the file
//! declares, such as an agent, but adds no member. It may add names to `env`, `headers` and
//! `prompt`. Two parts of the config are more restricted: the section `[payloads]`, and keys with
//! nested tables or lists, such as `goals` of a workflow and `undo` of a listener. There, an
//! override only replaces an existing value. An override that matches nothing is reported as a
//! problem, so that typos are noticed.

use std::sync::Arc;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::{KeyKind, KnownSection, SECTIONS, is_private, nearest};
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located, TomlEntry, TomlNode, TomlTable, TomlValue};

const PREFIX: &str = "ORGANISM_";

/// Applies every override of the environment to `root`, the config in the file `file`.
pub(super) fn apply(
    root: &mut TomlTable,
    file: &Arc<ConfigSource>,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    let mut variables: Vec<_> = around.variables.iter().collect();
    // Only a name in capitals can stand for an entry of `env` in another spelling. The overrides
    // that spell the name of their entry go first, so that no other takes this entry.
    variables.sort_by_key(|(variable, _)| shouted(variable) == **variable);

    for (variable, value) in variables {
        let Some(path) = variable.strip_prefix(PREFIX).filter(|path| is_override(path)) else {
            continue;
        };
        if set(root, file, (variable, path), value).is_none() {
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

/// Sets the value that the environment variable `variable` overrides. `path` is the variable's name
/// without `ORGANISM_`. Returns `None` if the variable overrides nothing in this config.
fn set(
    root: &mut TomlTable,
    file: &Arc<ConfigSource>,
    (variable, path): (&str, &str),
    value: &str,
) -> Option<()> {
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
            let free = table_at(table, &key, &source, true)?;
            let name = free_name(&names_of(free, file), &key, inner);
            let private = is_private(&name).unwrap_or(key != "prompt");
            put_free(free, file, &name, node(&source, KeyKind::Text, value, private));
        }
    }

    Some(())
}

/// Returns the names of the entries in `table` that the config's file wrote, and that no override
/// has replaced.
fn names_of<'t>(table: &'t TomlTable, file: &Arc<ConfigSource>) -> Vec<&'t str> {
    let of_file = table.entries.iter().filter(|entry| is_of_file(entry, file));
    of_file.map(|entry| entry.key.value.as_str()).collect()
}

fn is_of_file(entry: &TomlEntry, file: &Arc<ConfigSource>) -> bool {
    Arc::ptr_eq(&entry.node.place.source, file)
}

/// Returns the name that an override sets in a table in which the author of the config chooses the
/// names. The file has the entries `names` there. `key` is the key of this table: `env`, `headers`
/// or `prompt`. `written` is the name as the variable spells it. The first of these rules that fits
/// applies:
///
/// - The table has an entry that [`exact_name`] finds.
/// - The table has an entry with this name in another spelling.
/// - The table has a value with this name without `_FILE`, which the content of a file replaces.
///   This rule is not for `env`, where the name with `_FILE` may be another variable.
/// - The table has a file for this name, `NAME_file`, which a value replaces.
/// - The name is new in the table.
fn free_name(names: &[&str], key: &str, written: &str) -> String {
    if let Some(name) = exact_name(names, written) {
        return name;
    }

    // Names of variables may differ in case alone, so `env` has them as they are written.
    let is_env = key == "env";
    let wanted = if is_env { written.to_owned() } else { shouted(written) };
    let named = |text: &str| names.iter().find(|name| shouted(name) == text);
    if let Some(name) = named(&wanted) {
        return (*name).to_owned();
    }

    let by_value = wanted.strip_suffix("_FILE").filter(|_| !is_env);
    if let Some(name) = by_value.and_then(named) {
        return format!("{name}_file");
    }

    let mut by_file = names.iter().filter_map(|name| name.strip_suffix("_file"));
    if let Some(name) = by_file.find(|name| shouted(name) == wanted) {
        return name.to_owned();
    }

    let lower = written.to_ascii_lowercase();
    match (key, lower.strip_suffix("_file")) {
        ("headers", Some(header)) => format!("{}_file", header.replace('_', "-")),
        ("headers", None) => lower.replace('_', "-"),
        _ if is_env => written.to_owned(),
        _ => lower,
    }
}

/// Returns the name that an override sets if `names` has its name in the same spelling: `written`
/// itself, a file or a value of this name, or `NAME_file` for `NAME_FILE`.
fn exact_name(names: &[&str], written: &str) -> Option<String> {
    let by_file = format!("{written}_file");
    if names.contains(&written) || names.contains(&by_file.as_str()) {
        return Some(written.to_owned());
    }

    let file = written.strip_suffix("_FILE").map(|name| format!("{name}_file"));
    if let Some(file) = file.filter(|file| names.contains(&file.as_str())) {
        return Some(file);
    }

    let text = written.strip_suffix("_file")?;
    names.contains(&text).then(|| written.to_owned())
}

/// Replaces the entry `name` that the file wrote, and its twin: the entry that sets the same by
/// file instead of by value, or the reverse. Otherwise adds an entry, even if another override has
/// set this name, so that the reader of the table can report both.
fn put_free(table: &mut TomlTable, file: &Arc<ConfigSource>, name: &str, node: TomlNode) {
    let twin = match name.strip_suffix("_file") {
        Some(text) => text.to_owned(),
        None => format!("{name}_file"),
    };
    table.entries.retain(|entry| entry.key.value != twin || !is_of_file(entry, file));

    let mut entries = table.entries.iter_mut();
    match entries.find(|entry| entry.key.value == name && is_of_file(entry, file)) {
        Some(entry) => entry.node = node,
        None => add(table, name, node),
    }
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
fn source_of(variable: &str, value: &str) -> Arc<ConfigSource> {
    // The names of sections and keys count in any case.
    let upper = variable.to_ascii_uppercase();
    let is_in_table = ["__ENV__", "__HEADERS__"].iter().any(|part| upper.contains(part));
    let key = upper.rsplit("__").next().unwrap_or_default();

    if is_in_table || is_private(key) == Some(true) {
        ConfigSource::hidden(variable, value)
    } else {
        ConfigSource::new(variable, value)
    }
}

fn shouted(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// Returns the table under `key`, or `None` if there is no such table. If the key is missing and
/// `make` is true, creates the table first.
fn table_at<'t>(
    table: &'t mut TomlTable,
    key: &str,
    source: &Arc<ConfigSource>,
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
        None => add(table, key, node),
    }
}

fn add(table: &mut TomlTable, key: &str, node: TomlNode) {
    let key = Located { value: key.to_owned(), place: node.place.clone() };
    table.entries.push(TomlEntry { key, node });
}

/// Parses the value of a variable according to the type of the key that the variable overrides. A
/// value that cannot be parsed stays a string, and is reported later, when the key is read.
fn node(source: &Arc<ConfigSource>, kind: KeyKind, value: &str, private: bool) -> TomlNode {
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
