//! Finds the private ranges in a config's text. Error messages must not quote these ranges.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::is_private;
use super::unclosed::continuation_lines;

/// Adds the range of each private value in a parsed table. The config key of a value decides
/// whether the value is private.
pub(super) fn by_table(table: &DeTable<'_>, out: &mut Vec<Range<usize>>) {
    for (key, value) in table {
        match is_private(key.get_ref()) {
            Some(true) if !is_shown(key.get_ref(), value.get_ref().as_str()) => {
                values(value.get_ref(), value.span(), out);
            }
            Some(true) => {}
            Some(false) => {}
            None => match value.get_ref() {
                DeValue::Table(table) => by_table(table, out),
                DeValue::Array(items) => {
                    items.iter().filter_map(|item| item.get_ref().as_table()).for_each(|table| {
                        by_table(table, out);
                    });
                }
                _ => {}
            },
        }
    }
}

/// Whether error messages may quote the value of a private config key. Returns true in two cases:
///
/// - The key takes an address, and the value is an address that cannot contain a secret.
/// - The key takes the name of an environment variable, and the value is certainly such a name.
fn is_shown(key: &str, value: Option<&str>) -> bool {
    let Some(value) = value else { return false };
    match key.trim_matches('"') {
        "base_url" | "url" | "endpoint" => is_plain_address(value),
        "api_key_env" | "password_env" | "secret_env" => is_variable(value),
        _ => false,
    }
}

/// Whether a value is `scheme://host:port/v1`; the port and the path may be missing. A value with
/// any other path may contain a secret token.
fn is_plain_address(value: &str) -> bool {
    let Some((scheme, rest)) = value.split_once("://") else { return false };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_version = |digits: &str| digits.len() <= 2 && is_number(digits);
    let is_path = path.is_empty() || path.strip_prefix('v').is_some_and(is_version);

    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_port = port.is_none_or(|port| port.len() <= 5 && is_number(port));

    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-';
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(host) => host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.'),
        None => host.bytes().all(is_name),
    };

    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_lowercase());
    is_scheme && !host.is_empty() && is_host && is_port && is_path
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a value is certainly the name of an environment variable. The name must contain an
/// underscore, because a name without an underscore could be a secret.
pub(super) fn is_variable(value: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    value.contains('_') && value.bytes().all(is_name)
}

/// Adds the range of a private value. If the value is a table, adds the ranges of the values in it,
/// except values that name files.
fn values(value: &DeValue<'_>, span: Range<usize>, out: &mut Vec<Range<usize>>) {
    let Some(table) = value.as_table() else {
        out.push(span);
        return;
    };

    for (key, value) in table {
        if is_private(key.get_ref()) != Some(false) {
            values(value.get_ref(), value.span(), out);
        }
    }
}

/// Guesses the private ranges of a text that is not valid TOML, line by line. After a config key
/// with a private value, the whole rest of the line counts as private, because the end of the value
/// is unknown. So do the further lines of a value that has several lines.
pub(super) fn by_lines(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut inside = false;
    let mut value_is_private = false;
    let mut private_lines = 0_usize;
    let mut start = 0;

    for (line, is_continuation) in text.split_inclusive('\n').zip(continuation_lines(text)) {
        let end = start + line.len();
        value_is_private &= is_continuation;

        let header = line.trim().strip_prefix('[').and_then(|line| line.split_once(']'));
        let header = header.filter(|(name, _)| is_header(name));
        if value_is_private || private_lines > 0 {
            private_lines = private_lines.saturating_sub(1);
            out.push(start..end);
        } else if let Some((header, _)) = header {
            inside = header.split('.').any(|part| is_private(part) == Some(true));
        } else if line.contains('=') {
            let mut signs = line.match_indices('=').map(|(at, _)| at);
            let private = signs.find(|at| inside || ends_in_private_key(&line[..*at]));
            value_is_private = private.is_some();
            if value_is_private {
                // An earlier mistake may have opened a string that this line closes. So the lines
                // of the value are also determined from this line alone.
                let rest = text.get(start..).unwrap_or_default();
                private_lines = continuation_lines(rest).skip(1).take_while(|is| *is).count();
            }
            out.extend(private.map(|at| start + at + 1..end));
        } else if inside {
            out.push(start..end);
        }
        start = end;
    }

    out
}

/// Whether the text ends with a config key whose value is private. The value of a dotted key is
/// private if one of the key's parts is the name of a private key.
fn ends_in_private_key(text: &str) -> bool {
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-_.\"' \t".contains(c);
    let key = text.rsplit(|c| !is_key(c)).next().unwrap_or(text).trim();
    let parts = key.split(['.', ' ', '\t']).map(|part| part.trim_matches(['"', '\'']));
    parts.map(is_private).any(|private| private == Some(true))
}

fn is_header(name: &str) -> bool {
    let part = |b: u8| b.is_ascii_alphanumeric() || b"-_.\"".contains(&b);
    name.bytes().all(part)
}
