//! Splits a frame into its payloads. A frame is a text that may contain several payloads.

use std::ops::Range;

use super::markup::{MarkupKind, MarkupLexer};
use super::tag::is_space;
use super::{BrokenRule, ScanViolation, forbidden, prolog, utf8};
use crate::limits;

/// Finds the root elements of a frame, which contains any number of them, with white space and
/// comments in between. Only counts tags, because the scan checks each payload later.
pub fn split(frame: &[u8]) -> Result<Vec<Range<usize>>, ScanViolation> {
    let text = utf8(frame)?;
    let prolog = prolog::read(text);
    if let Some(violation) = prolog.encoding.or(prolog.form) {
        return Err(violation);
    }

    let mut roots = Vec::new();
    let mut depth = 0_usize;
    let mut root = 0;
    let mut end = prolog.end;

    for piece in MarkupLexer::new(text, prolog.end) {
        // Forbidden markup, such as a DOCTYPE, is unknown to the lexer.
        let piece =
            piece.map_err(|unknown| forbidden::check(text, prolog.end).err().unwrap_or(unknown))?;
        let at = piece.start;
        if depth == 0 {
            only_space(text, end..at)?;
            root = at;
        }
        end = piece.end;
        depth = match piece.kind {
            MarkupKind::Start => depth + 1,
            MarkupKind::Empty => depth,
            MarkupKind::End if depth > 0 => depth - 1,
            MarkupKind::Comment => continue,
            MarkupKind::Cdata | MarkupKind::Instruction if depth > 0 => continue,
            MarkupKind::End | MarkupKind::Cdata | MarkupKind::Instruction => {
                return Err(beside(at, "markup outside of any payload"));
            }
        };
        if depth == 0 {
            roots.push(root..end);
        }
        if roots.len() > limits::OUTCOME_PAYLOADS_MAX {
            let max = limits::OUTCOME_PAYLOADS_MAX;
            return Err(ScanViolation::complexity(at, format!("more than {max} payloads")));
        }
    }

    if depth > 0 {
        return Err(ScanViolation::form(root, "a payload that is not closed"));
    }

    only_space(text, end..text.len())?;
    Ok(roots)
}

fn only_space(text: &str, range: Range<usize>) -> Result<(), ScanViolation> {
    let start = range.start;
    let between = text.get(range).unwrap_or_default();
    match between.bytes().position(|b| !is_space(b)) {
        Some(at) => Err(beside(start + at, "text outside of any payload")),
        None => Ok(()),
    }
}

fn beside(at: usize, message: &str) -> ScanViolation {
    ScanViolation::new(BrokenRule::Roots, at, message)
}
