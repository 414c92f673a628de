//! The prolog of a document: a BOM and an XML declaration.

use super::{BrokenRule, ScanViolation, quoted};

/// The prolog of a text. A wrong encoding is stored apart from other defects of the XML
/// declaration, because different stages of the scan report them.
pub(super) struct DocumentProlog {
    /// Byte offset of the text after the prolog.
    pub end: usize,
    pub encoding: Option<ScanViolation>,
    pub form: Option<ScanViolation>,
}

const BOM: &str = "\u{FEFF}";

pub(super) fn without_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(BOM.as_bytes()).unwrap_or(text)
}

pub(super) fn read(text: &str) -> DocumentProlog {
    let start = if text.starts_with(BOM) { BOM.len() } else { 0 };
    let rest = text.get(start..).unwrap_or_default();
    let mut prolog = DocumentProlog { end: start, encoding: None, form: None };
    let Some(body) = rest.strip_prefix("<?xml").filter(|b| b.starts_with(is_space)) else {
        return prolog;
    };

    let Some(length) = body.find("?>") else {
        prolog.form = Some(ScanViolation::form(start, "an XML declaration that is not closed"));
        return prolog;
    };

    prolog.end = start + "<?xml".len() + length + "?>".len();
    let declaration = body.get(..length).unwrap_or_default();
    match pseudo_attributes(declaration) {
        Some(list) => check_declaration(&list, start, &mut prolog),
        None => prolog.form = Some(ScanViolation::form(start, "a malformed XML declaration")),
    }

    prolog
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Parses a list of ` name = "value"`, each with white space before it. Returns `None` if the text
/// is no such list, or if the list has more than three items.
fn pseudo_attributes(mut rest: &str) -> Option<Vec<(&str, &str)>> {
    let mut list = Vec::new();
    loop {
        let trimmed = rest.trim_start_matches(is_space);
        if trimmed.is_empty() {
            return Some(list);
        }
        if trimmed.len() == rest.len() || list.len() == 3 {
            return None;
        }
        let (name, after) = trimmed.split_once('=')?;
        let after = after.trim_start_matches(is_space);
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (value, after) = after.get(1..)?.split_once(quote)?;
        list.push((name.trim_end_matches(is_space), value));
        rest = after;
    }
}

fn check_declaration(list: &[(&str, &str)], at: usize, prolog: &mut DocumentProlog) {
    let names: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    let known: &[&[&str]] = &[
        &["version"],
        &["version", "encoding"],
        &["version", "standalone"],
        &["version", "encoding", "standalone"],
    ];
    if !known.contains(&names.as_slice()) {
        prolog.form = Some(ScanViolation::form(at, "a malformed XML declaration"));
    }

    for (name, value) in list {
        match *name {
            "version" if *value != "1.0" => {
                let message = format!("XML version {}, where 1.0 was expected", quoted(value));
                prolog.form = Some(ScanViolation::form(at, message));
            }
            "encoding" if !value.eq_ignore_ascii_case("utf-8") => {
                let message =
                    format!("declared encoding {}, where UTF-8 was expected", quoted(value));
                prolog.encoding = Some(ScanViolation::new(BrokenRule::Encoding, at, message));
            }
            "standalone" if !matches!(*value, "yes" | "no") => {
                prolog.form = Some(ScanViolation::form(at, "a malformed XML declaration"));
            }
            _ => {}
        }
    }
}
