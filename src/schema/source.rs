//! One schema document: decoded, checked and parsed.
//!
//! This module must not know the other documents to which the document refers.

use std::path::{Path, PathBuf};

use super::libxml2::ParsedDocument;
use super::schema_problem::SchemaProblem;
use super::xsd::{SchemaElement, XSD};
use crate::xml::element::Element;
use crate::xml::findings::TextLocation;
use crate::xml::scan::excess;
use crate::{durable_file, limits};

/// A schema document. `text` is UTF-8 without byte order mark and XML declaration, and has the same
/// line numbers as the file.
#[derive(Debug, Clone)]
pub struct SchemaDocument {
    /// Name by which errors and findings refer to the document.
    pub label: String,
    /// Path of the file; `None` for a built-in or generated document.
    pub path: Option<PathBuf>,
    /// Whether the journal stores the text of the document. False if the document is part of the
    /// program.
    pub is_recorded: bool,
    pub text: String,
    pub root: Element,
}

impl SchemaDocument {
    pub fn read(path: &Path, label: &str) -> Result<Self, SchemaProblem> {
        let problem = |code: &str, message: String| SchemaProblem::new(label, 0, code, message);
        let unreadable = |error: std::io::Error| {
            problem("schema-unreadable", format!("the schema cannot be read: {error}"))
        };

        let about = std::fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() {
            return Err(problem("schema-unreadable", "the schema is not a regular file".into()));
        }

        if about.len() > limits::SCHEMA_BYTES_MAX as u64 {
            return Err(too_large(label));
        }

        let bytes = durable_file::read_regular(path).map_err(unreadable)?;
        Self::parse(&bytes, label, Some(path.to_owned()))
    }

    pub fn parse(bytes: &[u8], label: &str, path: Option<PathBuf>) -> Result<Self, SchemaProblem> {
        if bytes.len() > limits::SCHEMA_BYTES_MAX {
            return Err(too_large(label));
        }

        let problem = |place: &TextLocation, code: &str, message: String| {
            let problem = SchemaProblem::new(label, place.line, code, message);
            SchemaProblem { column: place.column, ..problem }
        };

        let text = decode(bytes).ok_or_else(|| {
            let message = "the schema is neither UTF-8 nor UTF-16 text; save it as UTF-8";
            SchemaProblem::new(label, 1, "schema-encoding", message)
        })?;
        if let Some(offset) = doctype(&text) {
            let message = "a schema may have no DOCTYPE; remove it, and entities with it";
            let place = TextLocation::at(text.as_bytes(), offset);
            return Err(problem(&place, "schema-doctype", message.into()));
        }

        if let Some(offset) = excess(&text) {
            let message = format!(
                "more than {} attributes on one element, or {} namespaces in scope",
                limits::XML_ATTRIBUTES_MAX,
                limits::XML_NAMESPACES_MAX
            );
            let place = TextLocation::at(text.as_bytes(), offset);
            return Err(problem(&place, "schema-too-complex", message));
        }

        if let Err(diagnostics) = ParsedDocument::parse(text.as_bytes()) {
            let place = diagnostics.first().map_or_else(TextLocation::default, |d| TextLocation {
                line: d.line,
                column: d.column,
                ..TextLocation::default()
            });
            let message = diagnostics.into_iter().next().map(|d| d.message).unwrap_or_default();
            let message = super::libxml2_messages::one_line(&message);
            return Err(problem(&place, "schema-not-well-formed", message));
        }

        Self::of_text(text, label, path)
    }

    /// Reads a document that is part of the program. The tests of the program make the checks of
    /// [`SchemaDocument::parse`] on it, so that a start need not repeat them.
    pub fn builtin(text: &str, label: &str) -> Result<Self, SchemaProblem> {
        Self::of_text(decode(text.as_bytes()).unwrap_or_default(), label, None)
    }

    fn of_text(text: String, label: &str, path: Option<PathBuf>) -> Result<Self, SchemaProblem> {
        let root = Element::read_document(&text).ok_or_else(|| {
            let message = "the schema could not be read as XML 1.0 with namespaces";
            SchemaProblem::new(label, 1, "schema-not-well-formed", message)
        })?;
        if !root.is("schema") {
            let message = format!(
                "the root is `{}`; a schema's root is `schema` in {}",
                root.name.local, XSD
            );
            let line = TextLocation::at(text.as_bytes(), root.origin.tag.start).line;
            return Err(SchemaProblem::new(label, line, "schema-not-a-schema", message));
        }

        let is_recorded = path.is_some();
        Ok(Self { label: label.to_owned(), path, is_recorded, text, root })
    }

    pub fn target(&self) -> &str {
        self.root.attribute("targetNamespace").unwrap_or_default()
    }

    /// Returns the location of the start tag of `element`.
    pub fn place(&self, element: &Element) -> TextLocation {
        TextLocation::at(self.text.as_bytes(), element.origin.tag.start)
    }

    pub fn problem(
        &self,
        element: &Element,
        code: &str,
        message: impl Into<String>,
    ) -> SchemaProblem {
        let place = self.place(element);
        let problem = SchemaProblem::new(&self.label, place.line, code, message);
        SchemaProblem { column: place.column, ..problem }
    }
}

fn too_large(label: &str) -> SchemaProblem {
    let message = format!("the schema is larger than {} bytes", limits::SCHEMA_BYTES_MAX);
    SchemaProblem::new(label, 0, "schema-too-large", message)
}

/// Decodes a document: as UTF-8 or UTF-16 if it begins with a byte order mark, otherwise as Latin-1
/// if its XML declaration names Latin-1, and otherwise as UTF-8. Removes the byte order mark and
/// the XML declaration. Returns `None` if the document is invalid in this encoding, or if the XML
/// declaration is incomplete.
fn decode(bytes: &[u8]) -> Option<String> {
    let utf16 = |rest: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.as_chunks::<2>().0.iter().map(|pair| read(*pair)).collect();
        String::from_utf16(&units).ok()
    };

    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok()?,
        _ => match String::from_utf8(bytes.to_vec()) {
            Ok(text) if !declares_latin1(&text) => text,
            _ if declares_latin1(&String::from_utf8_lossy(bytes)) => {
                bytes.iter().copied().map(char::from).collect()
            }
            _ => return None,
        },
    };

    let Some(declaration) =
        text.strip_prefix("<?xml").filter(|r| r.starts_with([' ', '\t', '\n', '\r']))
    else {
        return Some(text);
    };

    let (head, rest) = declaration.split_once("?>")?;
    // Line breaks in place of the XML declaration keep the line numbers.
    let breaks = head.bytes().filter(|b| *b == b'\n').count();
    Some(format!("{}{rest}", "\n".repeat(breaks)))
}

fn declares_latin1(text: &str) -> bool {
    let head = text.split_once("?>").map_or("", |(head, _)| head).to_ascii_lowercase();
    head.starts_with("<?xml") && head.contains("iso-8859-1")
}

/// Returns the offset of the document type declaration; `None` if there is none. Only searches
/// before the root element, where such a declaration must be.
fn doctype(text: &str) -> Option<usize> {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let end = if rest.starts_with("<!--") {
            rest.find("-->")? + 3
        } else if rest.starts_with("<?") {
            rest.find("?>")? + 2
        } else {
            return rest.starts_with("<!").then_some(text.len() - rest.len());
        };
        rest = rest.get(end..)?;
    }
}
