//! Finds the private ranges in a config's text, which must never be quoted.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::is_private;

/// Adds the ranges of the values of private keys in a parsed table.
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

/// Whether the value of a private key may be quoted nevertheless: an address without credentials
/// and query, or the name of a variable.
fn is_shown(key: &str, value: Option<&str>) -> bool {
    let Some(value) = value else { return false };
    let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    match key.trim_matches('"') {
        "base_url" | "url" | "endpoint" => !value.contains(['@', '?', '#', '$']),
        "api_key_env" | "password_env" | "secret_env" => value.bytes().all(is_name),
        _ => false,
    }
}

/// Adds the ranges of all values beneath a private key, except names of files.
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

/// Guesses the private ranges line by line, for a text that is no valid TOML.
pub(super) fn by_lines(text: &str) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut inside = false;
    let mut start = 0;

    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let key = line.split_once('=').map(|(key, _)| key.trim());
        let header = line.trim().strip_prefix('[').and_then(|line| line.split_once(']'));
        if let Some((header, _)) = header.filter(|(name, _)| is_header(name)) {
            inside = header.split('.').any(|part| is_private(part) == Some(true));
        } else if let Some(key) = key {
            let last = key.rsplit('.').next().unwrap_or(key);
            let value = line.split_once('=').map(|(_, value)| value.trim().trim_matches('"'));
            let is_secret = key.split('.').any(|part| is_private(part) == Some(true));
            if inside || (is_secret && !is_shown(last, value)) {
                out.push(start + line.find('=').map_or(0, |at| at + 1)..end);
            }
        } else if inside {
            out.push(start..end);
        }
        start = end;
    }

    out
}

fn is_header(name: &str) -> bool {
    let part = |b: u8| b.is_ascii_alphanumeric() || b"-_.\"".contains(&b);
    name.bytes().all(part)
}
