//! Translates messages of libxml2 into organism's own codes and sentences.

use libxml::bindings as c;

use super::libxml2::bounded;
use super::libxml2_diagnostic::{Diagnostic, DiagnosticDomain, DiagnosticLevel, LocationStep};
use super::link;
use super::load::SchemaBundle;
use super::schema_problem::SchemaProblem;
use super::xsd::XSD;
use crate::limits;
use crate::xml::findings::{Finding, TextLocation};
use crate::xml::scan::locate;

/// Error codes of libxml2 for invalid texts, each with the code of organism's finding.
const CODES: &[(u32, &str)] = &[
    (c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_1, "schema-datatype"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_2, "schema-datatype"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_DATATYPE_VALID_1_2_3, "schema-datatype"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_TYPE_3_1_1, "schema-attribute"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_TYPE_3_1_2, "schema-element"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_FACET_VALID, "schema-facet"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_LENGTH_VALID, "schema-length"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MINLENGTH_VALID, "schema-length"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MAXLENGTH_VALID, "schema-length"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MININCLUSIVE_VALID, "schema-range"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MAXINCLUSIVE_VALID, "schema-range"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MINEXCLUSIVE_VALID, "schema-range"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_MAXEXCLUSIVE_VALID, "schema-range"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_TOTALDIGITS_VALID, "schema-digits"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_FRACTIONDIGITS_VALID, "schema-digits"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_PATTERN_VALID, "schema-pattern"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ENUMERATION_VALID, "schema-enumeration"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_2_1, "schema-not-empty"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_2_2, "schema-element"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_2_3, "schema-text"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_2_4, "schema-element"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_1, "schema-root"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_2, "schema-abstract"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_3_1, "schema-nil"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_3_2_1, "schema-nil"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_4_1, "schema-type"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_4_2, "schema-type"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_4_3, "schema-type"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_1, "schema-fixed"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ELT_5_2_2_2_2, "schema-fixed"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_ATTRIBUTE_4, "schema-fixed"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_AU, "schema-fixed"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_3_2_1, "schema-attribute"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_3_2_2, "schema-attribute"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_COMPLEX_TYPE_4, "schema-attribute-missing"),
    (c::xmlParserErrors_XML_SCHEMAV_ELEMENT_CONTENT, "schema-element"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_TYPE_2, "schema-abstract"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_IDC, "schema-key"),
    (c::xmlParserErrors_XML_SCHEMAV_CVC_WILDCARD, "schema-wildcard"),
];

/// Maximum number of digits of a number, without leading zeros. `None` from version 2.13 of libxml2
/// on, which reads numbers of any length.
const NUMBER_DIGITS_MAX: Option<usize> = if c::LIBXML_VERSION < 21_300 { Some(24) } else { None };

/// Types of XSD whose values are integers of any length.
const INTEGERS: &[&str] = &[
    "xs:integer",
    "xs:nonNegativeInteger",
    "xs:nonPositiveInteger",
    "xs:positiveInteger",
    "xs:negativeInteger",
];

/// Returns findings for a text that libxml2 could not parse.
pub fn unreadable(text: &[u8], diagnostics: &[Diagnostic]) -> Vec<Finding> {
    let finding = |d: &Diagnostic| {
        let code = match d.domain {
            DiagnosticDomain::Namespace => "not-namespace-well-formed",
            _ => "not-well-formed",
        };
        let place = TextLocation::at(text, offset(text, d.line, d.column));
        Finding::new(code, place, one_line(&d.message))
    };

    diagnostics.iter().map(finding).collect()
}

/// Returns the byte offset of a position given as a line and a column in characters.
fn offset(text: &[u8], line: u32, column: u32) -> usize {
    let line = usize::try_from(line.max(1)).unwrap_or(usize::MAX);
    let start = match line {
        1 => 0,
        _ => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(text.len(), |at| at + 1),
    };

    let column = usize::try_from(column.max(1)).unwrap_or(usize::MAX) - 1;
    let rest = text.get(start..).unwrap_or_default();
    let starts = rest.iter().enumerate().filter(|(_, byte)| (**byte & 0xC0) != 0x80);
    let within = starts.map(|(at, _)| at).nth(column).unwrap_or(rest.len());
    start + within
}

/// Returns findings for a text that the schema does not permit. `namespaces` are the namespaces of
/// the schema.
pub fn invalid(text: &[u8], diagnostics: &[Diagnostic], namespaces: &[String]) -> Vec<Finding> {
    let mut kept: Vec<&Diagnostic> = Vec::new();
    let own: Vec<&Diagnostic> = diagnostics.iter().filter(|d| is_about_libxml2(d)).collect();
    // If libxml2 refuses a text only for its own state, the text gets a finding of its own.
    let is_explained = own.len() < diagnostics.len();
    for diagnostic in diagnostics {
        if is_explained && is_about_libxml2(diagnostic) {
            continue;
        }

        // After an internal failure, each calling function of libxml2 reports the failure again.
        if is_internal(diagnostic) && kept.iter().any(|known| is_internal(known)) {
            continue;
        }

        let same = |other: &&Diagnostic| {
            other.steps == diagnostic.steps
                && other.line == diagnostic.line
                && other.message == diagnostic.message
        };
        if kept.iter().any(same) {
            continue;
        }

        // libxml2 reports a violated facet twice: as the facet, and as an invalid type.
        let again = code_of(diagnostic) == "schema-datatype"
            && kept
                .last()
                .is_some_and(|last| last.steps == diagnostic.steps && is_facet(last.code));
        if !again {
            kept.push(diagnostic);
        }
    }

    let ways: Vec<Vec<u32>> = kept.iter().map(|d| way(&d.steps)).collect();
    let places = locate(std::str::from_utf8(text).unwrap_or_default(), &ways);
    let finding = |(d, start): (&&Diagnostic, Option<usize>)| {
        let place = TextLocation::at(text, start.unwrap_or_else(|| offset(text, d.line, 1)));
        let path = (!d.steps.is_empty()).then(|| path(&d.steps));
        let place = TextLocation { path, ..place };
        if is_about_libxml2(d) {
            let (code, message) = own_failure(d);
            return Finding::new(code, place, message);
        }
        let message = sentence(&d.message, namespaces);
        let mut message = bounded(message, limits::FINDING_BYTES_MAX);
        message.push_str(&digits_note(d).unwrap_or_default());
        Finding::new(code_of(d), place, message)
    };

    kept.iter().zip(places).map(finding).collect()
}

/// Returns a note that states the maximum number of digits, if the diagnostic refuses a number with
/// more digits. Returns `None` for any other diagnostic. If the diagnostic names no built-in type
/// of XSD, the type's own rules may be the reason for the refusal. The note then begins with the
/// condition `if its type permits more digits`.
fn digits_note(diagnostic: &Diagnostic) -> Option<String> {
    let most = NUMBER_DIGITS_MAX.filter(|_| code_of(diagnostic) == "schema-datatype")?;
    let (_, end) = diagnostic.message.rsplit_once("' is not ")?;
    let value = diagnostic.value.trim();
    let number = value.strip_prefix(['-', '+']).unwrap_or(value);
    let condition = match end.rsplit('\'').nth(1).filter(|name| name.starts_with("xs:")) {
        Some("xs:decimal") => "",
        Some(name) if INTEGERS.contains(&name) && !number.contains('.') => "",
        None if !end.contains(" list type") => "if its type permits more digits: ",
        _ => return None,
    };

    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    let exceeds = is_digits(whole) && is_digits(fraction) && digits > most;
    exceeds.then(|| format!("; {condition}this build takes numbers of at most {most} digits"))
}

/// Whether a diagnostic reports a warning or an internal failure of libxml2 instead of a defect of
/// the text. Depends as little as possible on the message, because the message may quote the
/// sender's text.
fn is_about_libxml2(diagnostic: &Diagnostic) -> bool {
    match diagnostic.code {
        _ if diagnostic.level == DiagnosticLevel::Warning => true,
        c::xmlParserErrors_XML_SCHEMAV_INTERNAL => true,
        c::xmlParserErrors_XML_SCHEMAV_CVC_IDC => is_key_without_value(&diagnostic.message),
        _ => false,
    }
}

/// Whether a message about a violated key only states that libxml2 had no value to compare. In that
/// case, a field of the key has an invalid value, and another diagnostic reports this value.
/// Returns false if the message ends in a quotation, because the sender may have written the quoted
/// text.
fn is_key_without_value(message: &str) -> bool {
    let detail = message.rsplit_once("': ").map_or("", |(_, detail)| detail);
    detail.starts_with("Warning: No precomputed value available") && !detail.contains('\'')
}

/// Returns the code and the message of the finding for a failure of libxml2 itself.
fn own_failure(diagnostic: &Diagnostic) -> (&'static str, &'static str) {
    if !is_internal(diagnostic) {
        let message = "a value could not be compared with the keys of the document";
        return (code_of(diagnostic), message);
    }

    if diagnostic.message.contains("validating against a pattern facet") {
        let message = "matching this value against the pattern of its type takes too many steps; \
                       shorten the value";
        return ("schema-pattern-length", message);
    }

    (code_of(diagnostic), "this value could not be checked, because libxml2 failed")
}

fn is_internal(diagnostic: &Diagnostic) -> bool {
    diagnostic.code == c::xmlParserErrors_XML_SCHEMAV_INTERNAL
}

fn is_facet(code: u32) -> bool {
    (c::xmlParserErrors_XML_SCHEMAV_CVC_FACET_VALID
        ..=c::xmlParserErrors_XML_SCHEMAV_CVC_ENUMERATION_VALID)
        .contains(&code)
}

fn code_of(diagnostic: &Diagnostic) -> &'static str {
    let known = CODES.iter().find(|(code, _)| *code == diagnostic.code);
    known.map_or("schema-invalid", |(_, ours)| ours)
}

fn way(steps: &[LocationStep]) -> Vec<u32> {
    steps.iter().filter(|s| !s.attribute).map(|s| s.position).collect()
}

fn path(steps: &[LocationStep]) -> String {
    let mut out = String::new();
    for step in steps {
        out.push('/');
        if step.attribute {
            out.push('@');
        }
        out.push_str(&step.name);
        if step.same > 0 {
            out.push_str(&format!("[{}]", step.same));
        }
    }

    out
}

/// Returns problems for a schema that libxml2 refused or warned about.
pub fn refused(bundle: &SchemaBundle, diagnostics: &[Diagnostic]) -> Vec<SchemaProblem> {
    let namespaces = namespaces(bundle);
    let problem = |d: &Diagnostic| {
        let main = bundle.main().map_or("schema", |s| s.label.as_str());
        let source = d.document.and_then(|index| bundle.sources.get(index));
        let label = source.map_or(main, |s| s.label.as_str());
        let code = match (d.level, d.code) {
            (_, c::xmlParserErrors_XML_SCHEMAP_WARN_SKIP_SCHEMA) => "schema-import-skipped",
            (_, c::xmlParserErrors_XML_SCHEMAP_WARN_UNLOCATED_SCHEMA) => "schema-import-missing",
            (DiagnosticLevel::Warning, _) => "schema-warning",
            (DiagnosticLevel::Error, _) => "schema-compile",
        };
        SchemaProblem::new(label, d.line, code, sentence(&d.message, &namespaces))
    };

    diagnostics.iter().map(problem).collect()
}

/// Returns all target namespaces of the schema's documents.
pub fn namespaces(bundle: &SchemaBundle) -> Vec<String> {
    let mut out: Vec<String> = vec![XSD.to_owned()];
    out.extend(bundle.sources.iter().map(|s| s.target().to_owned()));
    out.extend(
        bundle
            .links
            .iter()
            .filter(|l| l.kind == link::LinkKind::Import)
            .map(|l| l.namespace.clone()),
    );
    out.sort();
    out.dedup();
    out.retain(|ns| !ns.is_empty());
    out
}

/// Puts a message of libxml2 on one line, with a lower-case first letter unless it begins with an
/// abbreviation. Removes the name of a violated facet. Also removes namespaces in braces, unless a
/// wrong namespace is the defect that the message reports.
fn sentence(message: &str, namespaces: &[String]) -> String {
    let mut text = message.to_owned();
    for namespace in namespaces {
        text = text.replace(&format!("{{{namespace}}}"), "");
    }

    let mut text = one_line(&text);
    if expects_itself(&text) {
        // The namespace is the defect here, so the message must show it.
        text = one_line(message);
    }

    let Some((subject, detail)) = text.split_once("': ") else { return text };
    let detail = match detail.strip_prefix("[facet '").and_then(|rest| rest.split_once("'] ")) {
        Some((_, detail)) => detail,
        None => detail,
    };

    format!("{subject}': {}", one_line(detail))
}

/// Whether a message refuses an element and lists an element of the same name as expected. The two
/// elements then differ only in their namespaces.
fn expects_itself(text: &str) -> bool {
    let named = text.strip_prefix("element '").and_then(|rest| rest.split_once('\''));
    let (Some((name, _)), Some((_, expected))) = (named, text.split_once("; expected is")) else {
        return false;
    };
    expected.split([' ', ',', '(', ')']).any(|word| word == name)
}

/// Formats a message on one line, in lower case and without a full stop.
pub fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let text = words.join(" ");
    let text = text.trim_end_matches('.').replace(". Expected is", "; expected is");
    let mut chars = text.chars();

    match chars.next() {
        // An abbreviation such as "PCDATA" keeps its upper case.
        Some(first) if !chars.clone().next().is_some_and(char::is_uppercase) => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn internal(function: &str, message: &str) -> Diagnostic {
        Diagnostic {
            level: DiagnosticLevel::Error,
            domain: DiagnosticDomain::Instance,
            code: c::xmlParserErrors_XML_SCHEMAV_INTERNAL,
            line: 1,
            column: 0,
            message: format!("Internal error: {function}, {message}.\n"),
            value: String::new(),
            document: None,
            steps: Vec::new(),
        }
    }

    #[test]
    fn a_pattern_beyond_the_limit_of_libxml2_is_stated_once_and_truly() {
        let diagnostics = [
            internal("xmlSchemaValidateFacets", "validating against a pattern facet"),
            internal("xmlSchemaVCheckCVCSimpleType", "validating facets of atomic simple type"),
            internal("xmlSchemaValidatorPopElem", "calling xmlSchemaVCheckCVCSimpleType()"),
            internal("xmlSchemaVDocWalk", "calling xmlSchemaValidatorPopElem()"),
        ];
        let findings = invalid(b"<p/>", &diagnostics, &[]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].code, "schema-pattern-length");
        assert!(findings[0].message.contains("the pattern of its type"), "{}", findings[0].message);

        let other = invalid(b"<p/>", &diagnostics[2..], &[]);
        assert_eq!(other.len(), 1);
        assert_eq!(other[0].code, "schema-invalid");
        assert!(!other[0].message.contains("keys"), "{}", other[0].message);
    }
}
