//! Reads the section `[payloads]`, which declares each payload in a short form: as a list of its
//! fields with their types.

use crate::schema::{FieldCount, ShortField, ShortType, is_element_name};
use crate::xml::escape::is_xml_char;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::{self, nearest};
use super::source_text::SourceRange;
use super::tree::{ExpandedText, TomlNode, TomlTable, TomlValue};

/// The payloads that the section `[payloads]` declares.
#[derive(Default)]
pub(super) struct DeclaredPayloads {
    pub types: Vec<(String, ShortType)>,
    /// Range of the section `[payloads]` in the config's text; `None` if the config has no such
    /// section.
    pub place: Option<SourceRange>,
    /// Whether any payload is left out because its declaration has a problem. The problem is
    /// already reported, and references to the payload are not reported as unknown.
    pub has_unread: bool,
}

/// Reads the section `[payloads]` from `root`, the table of the whole config.
/// `is_stored` states whether the config comes from a journal. Such a config may have words that a
/// config in a file may not have, because earlier versions permitted them.
pub(super) fn read(
    root: &TomlTable,
    is_stored: bool,
    problems: &mut ConfigProblems,
) -> DeclaredPayloads {
    let section = keys::PAYLOADS.name;
    let Some(entry) = root.entries.iter().find(|entry| entry.key.value == section) else {
        return DeclaredPayloads::default();
    };

    let place = Some(entry.key.place.clone());
    let TomlValue::Table(table) = &entry.node.value else {
        let message = format!("`{section}` must be a section, not {}", entry.node.kind());
        let problem = ConfigProblem::new(ProblemCode::WrongType, &entry.node.place, message);
        problems.push(problem.help("write [payloads.some-name] and a field a line beneath it"));
        return DeclaredPayloads { types: Vec::new(), place, has_unread: true };
    };

    let mut reader = ShortTypeReader { is_stored, problems };
    let types = reader.named_types(table, "payload");
    let has_unread = types.len() < table.entries.len();
    DeclaredPayloads { types, place, has_unread }
}

/// Reads the type in `node` for an element that must occur exactly once. If the type is invalid,
/// optional or a list, reports a problem and returns `None`. `is_stored` states whether the config
/// comes from a journal.
pub(super) fn of_table(
    node: &TomlNode,
    what: &str,
    is_stored: bool,
    problems: &mut ConfigProblems,
) -> Option<ShortType> {
    let mut reader = ShortTypeReader { is_stored, problems };
    let (occurs, short_type) = reader.field(node, what)?;
    if occurs != FieldCount::Once {
        let message = format!("{what} is one element, neither a list nor optional");
        let help = "write a table with the list or the optional field in it";
        reader.report(node, message, help.to_owned());
        return None;
    }

    Some(short_type)
}

/// Reader of types that reports each problem at the place of the faulty value.
struct ShortTypeReader<'a> {
    /// Whether the config comes from a journal.
    is_stored: bool,
    problems: &'a mut ConfigProblems,
}

impl ShortTypeReader<'_> {
    /// Reads payloads with their types. Leaves out payloads that have a problem.
    fn named_types(&mut self, table: &TomlTable, noun: &str) -> Vec<(String, ShortType)> {
        let mut types = Vec::new();
        for entry in &table.entries {
            let name = &entry.key.value;
            let is_name = self.check_name(name, &entry.key.place, noun);
            let Some((occurs, short_type)) = self.field(&entry.node, &format!("{noun} `{name}`"))
            else {
                continue;
            };

            if occurs != FieldCount::Once {
                let message =
                    format!("{noun} `{name}` is one element, neither a list nor optional");
                let help = "write a table with the list or the optional field in it";
                self.report(&entry.node, message, help.to_owned());
            } else if is_name {
                types.push((name.clone(), short_type));
            }
        }

        types
    }

    fn check_name(&mut self, name: &str, place: &SourceRange, noun: &str) -> bool {
        let is_name = is_element_name(name);
        if !is_name {
            let message = format!("`{name}` cannot be the name of a {noun}");
            let help = "names become elements: a letter or _, then up to 63 letters, digits, -, _ \
                        and .";
            self.problems.push(ConfigProblem::new(ProblemCode::BadName, place, message).help(help));
        }

        is_name
    }

    fn field(&mut self, node: &TomlNode, what: &str) -> Option<(FieldCount, ShortType)> {
        match &node.value {
            // The unset variables of the text are reported already.
            TomlValue::Text(text) if text.failed => None,
            TomlValue::Text(text) => self.written_type(node, text, what),
            TomlValue::Table(table) => {
                let fields = self.fields(table, what)?;
                Some((FieldCount::Once, ShortType::Fields(fields)))
            }
            TomlValue::List(items) => {
                let short_type = self.item(node, items, what)?;
                Some((FieldCount::AnyNumber, short_type))
            }
            _ => {
                let message = format!("the type of {what} must be text, not {}", node.kind());
                let problem = ConfigProblem::new(ProblemCode::WrongType, &node.place, message);
                self.problems.push(problem.help(type_rule()));
                None
            }
        }
    }

    /// Reads all fields of a table; `None` if any of them has a problem.
    fn fields(&mut self, table: &TomlTable, what: &str) -> Option<Vec<ShortField>> {
        let mut fields = Vec::new();
        for entry in &table.entries {
            let name = &entry.key.value;
            let is_name = self.check_name(name, &entry.key.place, "field");
            let field = self.field(&entry.node, &format!("`{name}` of {what}"));
            if let Some((occurs, short_type)) = field.filter(|_| is_name) {
                fields.push(ShortField { name: name.clone(), occurs, short_type });
            }
        }

        (fields.len() == table.entries.len()).then_some(fields)
    }

    /// Reads the type of a list's items. If `items` does not contain exactly one type, or if this
    /// type is invalid, reports a problem and returns `None`.
    fn item(&mut self, node: &TomlNode, items: &[TomlNode], what: &str) -> Option<ShortType> {
        let [item] = items else {
            let message = format!("a list of {what} has {} types and needs one", items.len());
            let help = "write [\"text\"], or [{ FIELD = \"text\" }]";
            self.report(node, message, help.to_owned());
            return None;
        };

        let (occurs, short_type) = self.field(item, &format!("an item of {what}"))?;
        if occurs != FieldCount::Once {
            let message = format!("an item of {what} is neither optional nor a list itself");
            let help =
                "a list may be empty; a list of lists is a list of tables with a list in each";
            self.report(item, message, help.to_owned());
            return None;
        }

        Some(short_type)
    }

    fn written_type(
        &mut self,
        node: &TomlNode,
        text: &ExpandedText,
        what: &str,
    ) -> Option<(FieldCount, ShortType)> {
        let (name, occurs) = match text.value.trim().strip_suffix('?') {
            Some(name) => (name.trim_end(), FieldCount::AtMostOnce),
            None => (text.value.trim(), FieldCount::Once),
        };
        if let Some(short_type) = ShortType::named(name) {
            return Some((occurs, short_type));
        }

        if name.contains('|') {
            return Some((occurs, self.words(node, name, what)?));
        }

        // The value of a variable may be a secret: the text is quoted as it is written, or not at
        // all.
        let quoted = if node.private { "this".to_owned() } else { format!("`{}`", text.written) };
        let near = if node.private { None } else { nearest(name, ShortType::names()) };
        let help = near.map_or_else(type_rule, |near| format!("did you mean \"{near}\"?"));
        self.report(node, format!("{quoted} is not a type, in {what}"), help);
        None
    }

    fn words(&mut self, node: &TomlNode, written: &str, what: &str) -> Option<ShortType> {
        let words: Vec<_> = written.split('|').map(|word| word.trim().to_owned()).collect();
        let is_type = |word: &str| ShortType::named(word).is_some();
        let fault = |(at, word): (usize, &String)| match word {
            word if word.is_empty() => Some("an empty word"),
            word if word.contains(char::is_whitespace) => Some("a word with a blank in it"),
            word if !word.chars().all(is_xml_char) => Some("a word that XML cannot hold"),
            word if words.iter().take(at).any(|before| before == word) => Some("a word twice"),
            word if !self.is_stored && is_type(word) => Some("the name of a type among them"),
            word if !self.is_stored && word.ends_with('?') => Some("a word that ends in `?`"),
            _ => None,
        };
        if let Some(reason) = words.iter().enumerate().find_map(fault) {
            let message = format!("the words of {what} have {reason}");
            let help = "write one type, or words without blanks, each once, such as \
                        \"ship | revise\"; `?` stands once, at the end; a word such as `text` needs \
                        an XSD";
            self.report(node, message, help.to_owned());
            return None;
        }

        Some(ShortType::Words(words))
    }

    fn report(&mut self, node: &TomlNode, message: String, help: String) {
        let problem = ConfigProblem::new(ProblemCode::BadType, &node.place, message);
        self.problems.push(problem.help(help));
    }
}

fn type_rule() -> String {
    let names: Vec<_> = ShortType::names().map(|name| format!("\"{name}\"")).collect();
    format!(
        "one of {}; \"ship | revise\" for one of these words; \"text?\" where it may be absent; \
         {{ FIELD = TYPE }} for children; [TYPE] for a list",
        names.join(", ")
    )
}
