//! The short form of a schema: elements with fields and types, from which the program generates an
//! XSD.
//!
//! A config declares payloads in this form (`[payloads.NAME]`). This module must not know TOML: the
//! config converts its tables to these values.

use std::fmt::Write as _;

use super::xsd::XSD;
use crate::xml::escape::escape_attribute;

/// Namespace of the payloads that a config declares in the short form.
pub const NAMESPACE: &str = "https://xml-pipeline.org/ns/payloads/v1";

/// The type of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShortType {
    Text,
    Integer,
    Decimal,
    Boolean,
    Date,
    /// An enumeration of these words.
    Words(Vec<String>),
    /// A sequence of these child elements.
    Fields(Vec<ShortField>),
}

/// A field of a payload: one child element, with its name and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortField {
    /// Local name of the element.
    pub name: String,
    pub occurs: FieldCount,
    pub short_type: ShortType,
}

/// Number of times that a child element may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldCount {
    Once,
    AtMostOnce,
    AnyNumber,
}

impl ShortType {
    /// Returns the type with this name, as a config writes it. `None` if there is no such type.
    pub fn named(name: &str) -> Option<Self> {
        let (_, short_type) = NAMED.iter().find(|(known, _)| *known == name)?;
        Some(short_type.clone())
    }

    /// Returns the names of all built-in types that a config may use for a field of a payload.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// Returns the name of the type in a config; `None` for a type without a name, such as an
    /// enumeration.
    pub fn name(&self) -> Option<&'static str> {
        NAMED.iter().find(|(_, known)| known == self).map(|(name, _)| *name)
    }

    /// Returns the corresponding built-in type of XSD; `None` for enumerations and sequences.
    fn built_in(&self) -> Option<&'static str> {
        match self {
            Self::Text => Some("xs:string"),
            Self::Integer => Some("xs:integer"),
            Self::Decimal => Some("xs:decimal"),
            Self::Boolean => Some("xs:boolean"),
            Self::Date => Some("xs:date"),
            Self::Words(_) | Self::Fields(_) => None,
        }
    }
}

const NAMED: [(&str, ShortType); 5] = [
    ("text", ShortType::Text),
    ("integer", ShortType::Integer),
    ("decimal", ShortType::Decimal),
    ("boolean", ShortType::Boolean),
    ("date", ShortType::Date),
];

/// Whether the short form of schemas in a config (`[payloads.NAME]`) can declare an element with
/// this name.
pub fn is_element_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.len() <= crate::limits::NAME_BYTES_MAX && name.starts_with(first) && name.chars().all(rest)
}

/// Returns the XSD that declares `elements` in `namespace`.
pub fn xsd(namespace: &str, elements: &[(&str, &ShortType)]) -> String {
    let namespace = escape_attribute(namespace);
    let mut out = format!(
        "<xs:schema xmlns:xs=\"{XSD}\" targetNamespace=\"{namespace}\" \
         elementFormDefault=\"qualified\">\n"
    );
    for (name, short_type) in elements {
        write_element(&mut out, name, FieldCount::Once, short_type, 1);
    }

    out.push_str("</xs:schema>\n");
    out
}

fn write_element(
    out: &mut String,
    name: &str,
    occurs: FieldCount,
    short_type: &ShortType,
    depth: usize,
) {
    let indent = "  ".repeat(depth);
    let occurs = match occurs {
        FieldCount::Once => "",
        FieldCount::AtMostOnce => " minOccurs=\"0\"",
        FieldCount::AnyNumber => " minOccurs=\"0\" maxOccurs=\"unbounded\"",
    };

    let _ = write!(out, "{indent}<xs:element name=\"{name}\"");
    if let Some(built_in) = short_type.built_in() {
        let _ = writeln!(out, " type=\"{built_in}\"{occurs}/>");
        return;
    }

    let _ = writeln!(out, "{occurs}>");
    match short_type {
        ShortType::Words(words) => write_words(out, words, depth + 1),
        ShortType::Fields(fields) => write_fields(out, fields, depth + 1),
        _ => {}
    }
    let _ = writeln!(out, "{indent}</xs:element>");
}

fn write_words(out: &mut String, words: &[String], depth: usize) {
    let indent = "  ".repeat(depth);
    let _ = writeln!(out, "{indent}<xs:simpleType>");
    let _ = writeln!(out, "{indent}  <xs:restriction base=\"xs:string\">");
    for word in words {
        let word = escape_attribute(word);
        let _ = writeln!(out, "{indent}    <xs:enumeration value=\"{word}\"/>");
    }

    let _ = writeln!(out, "{indent}  </xs:restriction>");
    let _ = writeln!(out, "{indent}</xs:simpleType>");
}

fn write_fields(out: &mut String, fields: &[ShortField], depth: usize) {
    let indent = "  ".repeat(depth);
    if fields.is_empty() {
        let _ = writeln!(out, "{indent}<xs:complexType/>");
        return;
    }

    let _ = writeln!(out, "{indent}<xs:complexType>");
    let _ = writeln!(out, "{indent}  <xs:sequence>");
    for field in fields {
        write_element(out, &field.name, field.occurs, &field.short_type, depth + 2);
    }

    let _ = writeln!(out, "{indent}  </xs:sequence>");
    let _ = writeln!(out, "{indent}</xs:complexType>");
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ids::PayloadName;
    use crate::schema::{SchemaCompiler, SchemaFile, SchemaVerdict};

    fn field(name: &str, occurs: FieldCount, short_type: ShortType) -> ShortField {
        ShortField { name: name.to_owned(), occurs, short_type }
    }

    fn invoice() -> ShortType {
        let words = vec!["EUR".to_owned(), "CHF".to_owned()];
        let line = ShortType::Fields(vec![
            field("text", FieldCount::Once, ShortType::Text),
            field("amount", FieldCount::Once, ShortType::Decimal),
        ]);
        ShortType::Fields(vec![
            field("number", FieldCount::Once, ShortType::Integer),
            field("due", FieldCount::AtMostOnce, ShortType::Date),
            field("currency", FieldCount::Once, ShortType::Words(words)),
            field("line", FieldCount::AnyNumber, line),
        ])
    }

    fn generated(text: &str) -> SchemaFile {
        let file = SchemaFile::generated(&mut SchemaCompiler::default(), "test", text);
        file.expect("the generated schema compiles")
    }

    #[test]
    fn fields_and_types_become_an_xsd() {
        let text = xsd("urn:t", &[("invoice", &invoice()), ("paid", &ShortType::Boolean)]);
        expect![[r#"
            <xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t" elementFormDefault="qualified">
              <xs:element name="invoice">
                <xs:complexType>
                  <xs:sequence>
                    <xs:element name="number" type="xs:integer"/>
                    <xs:element name="due" type="xs:date" minOccurs="0"/>
                    <xs:element name="currency">
                      <xs:simpleType>
                        <xs:restriction base="xs:string">
                          <xs:enumeration value="EUR"/>
                          <xs:enumeration value="CHF"/>
                        </xs:restriction>
                      </xs:simpleType>
                    </xs:element>
                    <xs:element name="line" minOccurs="0" maxOccurs="unbounded">
                      <xs:complexType>
                        <xs:sequence>
                          <xs:element name="text" type="xs:string"/>
                          <xs:element name="amount" type="xs:decimal"/>
                        </xs:sequence>
                      </xs:complexType>
                    </xs:element>
                  </xs:sequence>
                </xs:complexType>
              </xs:element>
              <xs:element name="paid" type="xs:boolean"/>
            </xs:schema>
        "#]]
        .assert_eq(&text);
    }

    #[test]
    fn the_xsd_accepts_what_the_types_say_and_nothing_else() {
        let text = xsd("urn:t", &[("invoice", &invoice())]);
        let file = generated(&text);
        let name = PayloadName::new("urn:t", "invoice");
        let judge = |content: &str| {
            let text = format!("<invoice xmlns=\"urn:t\">{content}</invoice>");
            file.validate(Some(&name), text.as_bytes()) == SchemaVerdict::Valid
        };

        let head = "<number>7</number>";
        let line = "<line><text>a</text><amount>1.50</amount></line>";
        assert!(judge(&format!("{head}<currency>EUR</currency>")));
        assert!(judge(&format!("{head}<due>2026-01-31</due><currency>CHF</currency>{line}{line}")));
        assert!(!judge("<currency>EUR</currency>"));
        assert!(!judge(&format!("{head}<currency>USD</currency>")));
        assert!(!judge(&format!("{head}<due>soon</due><currency>EUR</currency>")));
        assert!(!judge(&format!("{head}<currency>EUR</currency><line><text>a</text></line>")));
        assert!(!judge(&format!("{head}<currency>EUR</currency><other/>")));
    }

    #[test]
    fn an_example_of_the_short_form_is_valid() {
        let text = xsd("urn:t", &[("invoice", &invoice())]);
        let file = generated(&text);
        let name = PayloadName::new("urn:t", "invoice");
        assert!(file.example(&name).is_some());
    }

    #[test]
    fn a_table_without_fields_is_an_empty_element() {
        let text = xsd("urn:t", &[("ping", &ShortType::Fields(Vec::new()))]);
        let file = generated(&text);
        let name = PayloadName::new("urn:t", "ping");
        assert_eq!(file.validate(Some(&name), b"<ping xmlns='urn:t'/>"), SchemaVerdict::Valid);
        assert_ne!(
            file.validate(Some(&name), b"<ping xmlns='urn:t'>x</ping>"),
            SchemaVerdict::Valid
        );
    }

    #[test]
    fn a_name_of_an_element_has_no_prefix_and_no_blank() {
        for name in ["a", "_a", "due-date", "a.b", "A1"] {
            assert!(is_element_name(name), "{name}");
        }
        for name in ["", "1a", "-a", "a b", "a:b", "é", &"a".repeat(65)] {
            assert!(!is_element_name(name), "{name}");
        }
    }
}
