//! Writes the config that is in force as one TOML text: overrides are applied, variables are filled
//! in, and no secret is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::ids::Digest;
use crate::xml::invisible_characters::is_hidden;
use crate::{durable_file, limits};

use super::super::environment::ConfigEnvironment;
use super::super::tree::{ExpandedText, TomlEntry, TomlNode, TomlTable, TomlValue};
use super::super::{ConfigProblems, file, keys, mask, tree, variables};
use super::portable;

/// A config as TOML text, with the files, directories and variables that it names.
#[derive(Debug, Default)]
pub struct RenderedConfig {
    pub toml: String,
    /// Texts of the files that the config names, by their portable names.
    pub files: BTreeMap<String, String>,
    /// Directories that must exist, even if they are empty.
    pub directories: BTreeSet<String>,
    /// Digests of the playback recordings that are too large to be stored, by their portable names.
    pub left_out: BTreeMap<String, Digest>,
    /// Config keys whose secret values were replaced by placeholders.
    pub withheld: Vec<String>,
    /// Environment variables that the TOML text refers to without giving a default.
    pub variables: BTreeSet<String>,
}

/// The form in which a string of the config is stored.
enum TextRule {
    /// The string is stored with its variables filled in.
    Value,
    /// The string is stored with its references to variables, not with the values of these
    /// variables. The values may be secret, or may be valid only on this machine.
    Written,
    /// A secret. The string is stored only if it consists of a single reference to a variable,
    /// without a default. Otherwise, a placeholder is stored.
    Secret,
    /// An address. The address is stored if it cannot contain a secret. Otherwise, a placeholder is
    /// stored.
    Address,
    /// The name of a variable. If the string does not look like such a name, a placeholder is
    /// stored, because the author may have written a secret by mistake.
    VariableName,
    File,
    Recording,
    Directory,
}

fn rule_of(path: &[&str]) -> TextRule {
    match path {
        ["organism", "catalogue"] => TextRule::Directory,
        ["organism", "data" | "state"] | ["journal", "checkpoints"] => TextRule::Written,
        ["agents", _, "final_schema"] | ["schedules", _, "send"] => TextRule::File,
        ["models", _, "recording"] => TextRule::Recording,
        ["agents" | "listeners" | "humans" | "workflows", _, "schema"] => TextRule::File,
        ["agents", _, "prompt", name] if name.ends_with("_file") => TextRule::File,
        ["workflows", .., "prompt_file"] => TextRule::File,
        ["nats", "password_env"] | ["clients", _, "secret_env"] | ["models", _, "api_key_env"] => {
            TextRule::VariableName
        }
        ["telemetry", "endpoint"] | ["models", _, "base_url"] => TextRule::Address,
        ["listeners", _, "env", name] | ["alerts", "env", name] if !name.ends_with("_file") => {
            TextRule::Secret
        }
        ["telemetry", "headers", name] if !name.ends_with("_file") => TextRule::Secret,
        ["listeners", _, "command" | "env", ..]
        | ["alerts", "command" | "env", ..]
        | ["telemetry", "headers", _] => TextRule::Written,
        ["nats" | "clients" | "models", .., name] if name.ends_with("_file") => TextRule::Written,
        _ => TextRule::Value,
    }
}

/// Writes the sections in `root` and the section `workflows` as the TOML text of one config.
/// `documents` are the config's schema documents, by their portable names.
pub fn render(
    root: &TomlTable,
    workflows: Option<&TomlEntry>,
    documents: BTreeMap<String, String>,
    directory: &Path,
    around: &ConfigEnvironment,
) -> RenderedConfig {
    let rendered = RenderedConfig { files: documents, ..RenderedConfig::default() };
    let mut renderer = ConfigRenderer { directory, around, rendered };
    let entries = root.entries.iter().chain(workflows);
    for entry in entries {
        renderer.section(entry);
    }

    renderer.rendered
}

struct ConfigRenderer<'a> {
    directory: &'a Path,
    around: &'a ConfigEnvironment,
    rendered: RenderedConfig,
}

impl ConfigRenderer<'_> {
    /// Writes a section. If all entries of a section with members are tables, writes one table for
    /// each member. Otherwise, writes the section as one table.
    fn section(&mut self, section: &TomlEntry) {
        let name = section.key.value.as_str();
        let TomlValue::Table(table) = &section.node.value else { return };
        let known = keys::SECTIONS.into_iter().find(|known| known.name == name);
        let has_members = known.is_some_and(|known| known.member.is_some());
        let is_table = |entry: &TomlEntry| matches!(entry.node.value, TomlValue::Table(_));
        // A payload in the short form may be one text, which stands in the section itself.
        if !has_members || table.entries.is_empty() || !table.entries.iter().all(is_table) {
            return self.table(&[name], table);
        }

        for member in &table.entries {
            if let TomlValue::Table(table) = &member.node.value {
                self.member([name, member.key.value.as_str()], table);
            }
        }
    }

    /// Writes the table of a member. If a workflow's table only names a file, writes the definition
    /// from this file in place of the file's name.
    fn member(&mut self, path: [&str; 2], table: &TomlTable) {
        let file = table.get("file").filter(|_| path[0] == keys::WORKFLOWS.name);
        let Some(TomlValue::Text(file)) = file.map(|node| &node.value) else {
            return self.table(&path, table);
        };

        let text = file::text(&self.directory.join(&file.value)).unwrap_or_default();
        let mut problems = ConfigProblems::default();
        if let Ok((table, _)) = tree::parse(&file.written, &text, self.around, &mut problems) {
            self.table(&path, &table);
        }
    }

    fn table(&mut self, path: &[&str], table: &TomlTable) {
        let header: Vec<_> = path.iter().map(|part| written_key(part)).collect();
        let gap = if self.rendered.toml.is_empty() { "" } else { "\n" };
        self.rendered.toml.push_str(&format!("{gap}[{}]\n", header.join(".")));

        for entry in &table.entries {
            let key = entry.key.value.as_str();
            let path = [path, &[key]].concat();
            let value = self.node(&path, &entry.node);
            self.rendered.toml.push_str(&format!("{} = {value}\n", written_key(key)));
        }
    }

    fn node(&mut self, path: &[&str], node: &TomlNode) -> String {
        match &node.value {
            TomlValue::Text(text) => self.text(path, text),
            TomlValue::Integer(number) => number.unwrap_or_default().to_string(),
            TomlValue::Number(number) => format!("{number:?}"),
            TomlValue::Flag(flag) => flag.to_string(),
            TomlValue::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.node(path, item)).collect();
                let is_long = items.iter().map(String::len).sum::<usize>() > LINE_BYTES;
                if is_long {
                    format!("[\n    {},\n]", items.join(",\n    "))
                } else {
                    format!("[{}]", items.join(", "))
                }
            }
            TomlValue::Table(table) => {
                let entries = table.entries.iter().map(|entry| {
                    let key = entry.key.value.as_str();
                    let path = [path, &[key]].concat();
                    format!("{} = {}", written_key(key), self.node(&path, &entry.node))
                });
                let entries: Vec<_> = entries.collect();
                if entries.is_empty() {
                    "{}".to_owned()
                } else {
                    format!("{{ {} }}", entries.join(", "))
                }
            }
            TomlValue::Other => "\"\"".to_owned(),
        }
    }

    fn text(&mut self, path: &[&str], text: &ExpandedText) -> String {
        let is_literal = text.value == text.written;
        match rule_of(path) {
            TextRule::Value => value(&text.value),
            TextRule::Written if is_literal => value(&text.value),
            TextRule::Written => self.reference(&text.written),
            TextRule::Secret if !is_literal && is_reference(&text.written) => {
                self.reference(&text.written)
            }
            TextRule::Secret => self.withhold(path, "withheld"),
            TextRule::Address if is_harmless_address(&text.value) => value(&text.value),
            TextRule::Address => self.withhold(path, "https://withheld.invalid"),
            TextRule::VariableName if mask::is_variable(&text.value) => value(&text.value),
            TextRule::VariableName => {
                self.rendered.withheld.push(path.join("."));
                value("WITHHELD_NAME")
            }
            TextRule::File => value(&self.file(&text.value)),
            TextRule::Recording => value(&self.recording(&text.value)),
            TextRule::Directory => {
                let name = portable::directory_name(&text.value);
                self.rendered.directories.insert(name.clone());
                value(&name)
            }
        }
    }

    /// Writes a string with its references to variables. Adds each variable without a default to
    /// the variables that the config needs.
    fn reference(&mut self, written: &str) -> String {
        let without_default = variables::named_without_default(written).map(str::to_owned);
        self.rendered.variables.extend(without_default);
        quoted(written)
    }

    /// Writes a reference to an environment variable in place of the secret at `path`. The
    /// reference has `instead` as its default.
    fn withhold(&mut self, path: &[&str], instead: &str) -> String {
        let name = path.join("_").to_ascii_uppercase();
        let is_letter = |c: char| c.is_ascii_alphanumeric();
        let name: String = name.chars().map(|c| if is_letter(c) { c } else { '_' }).collect();
        self.rendered.withheld.push(path.join("."));
        quoted(&format!("${{WITHHELD_{name}:-{instead}}}"))
    }

    /// Adds the text of the file at `path` to the rendered config, and returns the file's portable
    /// name.
    fn file(&mut self, path: &str) -> String {
        let name = portable::file_name(path);
        if !self.rendered.files.contains_key(&name)
            && let Ok(text) = file::text(&self.directory.join(path))
        {
            self.rendered.files.insert(name.clone(), text);
        }

        name
    }

    /// Adds the text of a recording as [`ConfigRenderer::file`] does. If the recording is too large
    /// to be stored, adds only its digest.
    fn recording(&mut self, path: &str) -> String {
        let name = portable::file_name(path);
        let file = durable_file::open_regular(&self.directory.join(path));
        let Ok(text) = file.and_then(std::io::read_to_string) else { return name };
        if text.len() > limits::STORED_RECORDING_BYTES_MAX {
            self.rendered.left_out.insert(name.clone(), Digest::of(text.as_bytes()));
        } else {
            self.rendered.files.insert(name.clone(), text);
        }

        name
    }
}

/// Maximum total bytes of the items in a list that is written on one line. A longer list has one
/// item on each line.
const LINE_BYTES: usize = 80;

/// Whether a text consists of exactly one variable reference without a default.
fn is_reference(written: &str) -> bool {
    let inner = written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// Whether an address has no part that could be secret: no user, no query and no fragment.
fn is_harmless_address(address: &str) -> bool {
    !address.contains(['@', '?', '#'])
}

/// Writes a text as a TOML string, with each `${` escaped so that it is not read as a variable.
fn value(text: &str) -> String {
    quoted(&text.replace("${", "$${"))
}

/// Writes a text as a TOML string. A text of several lines becomes a string of several lines.
fn quoted(text: &str) -> String {
    let is_long = text.contains('\n');
    let mut out = String::from(if is_long { "\"\"\"\n" } else { "\"" });
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push('\n'),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || is_hidden(c) => {
                out.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }

    out.push_str(if is_long { "\"\"\"" } else { "\"" });
    out
}

fn written_key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !key.is_empty() && key.bytes().all(is_bare) {
        return key.to_owned();
    }

    // A key must stand on one line.
    quoted(key).replace("\"\"\"\n", "\"").replace("\"\"\"", "\"").replace('\n', "\\n")
}
