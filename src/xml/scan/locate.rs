//! Finds tags by their position in the document, without parsing their content. The search takes
//! linear time and bounded memory.

use super::BrokenRule;
use super::markup::{MarkupKind, MarkupLexer};
use super::tag::StartTag;
use crate::limits;

/// Returns the byte offset of the start tag at each path in `ways`; `None` for each path that no
/// element has. A path leads from the root down. It contains the position of each element among its
/// siblings, counted from 0.
pub fn locate(text: &str, ways: &[Vec<u32>]) -> Vec<Option<usize>> {
    let mut found: Vec<Option<usize>> = vec![None; ways.len()];
    let mut here: Vec<u32> = vec![0];
    for piece in MarkupLexer::new(text, 0).map_while(Result::ok) {
        if piece.opens() {
            for (way, place) in ways.iter().zip(&mut found) {
                if place.is_none() && *way == here {
                    *place = Some(piece.start);
                }
            }
            if found.iter().all(Option::is_some) {
                break;
            }
        }
        match piece.kind {
            MarkupKind::Start => here.push(0),
            MarkupKind::End => {
                here.pop();
            }
            MarkupKind::Empty
            | MarkupKind::Comment
            | MarkupKind::Cdata
            | MarkupKind::Instruction => {}
        }
        if matches!(piece.kind, MarkupKind::Empty | MarkupKind::End) {
            let Some(last) = here.last_mut() else { break };
            *last += 1;
        }
    }

    found
}

/// Returns the byte offset of the first start tag that has more attributes, or more namespaces in
/// scope, than the limits allow; `None` if there is no such tag. libxml2 takes quadratic time for
/// such tags.
pub fn excess(text: &str) -> Option<usize> {
    let mut tag = StartTag::default();
    let mut declared: Vec<usize> = Vec::new();
    let mut in_scope = 0;

    for piece in MarkupLexer::new(text, 0) {
        let piece = match piece {
            Ok(piece) => piece,
            Err(cut) => return (cut.breach == BrokenRule::Complexity).then_some(cut.offset),
        };
        if piece.opens() {
            tag.read(text, &piece);
            let own = tag.attributes.iter().filter(|a| a.declares().is_some()).count();
            if in_scope + own > limits::XML_NAMESPACES_MAX {
                return Some(piece.start);
            }
            if piece.kind == MarkupKind::Start {
                in_scope += own;
                declared.push(own);
            }
        } else if piece.kind == MarkupKind::End {
            in_scope -= declared.pop().unwrap_or_default();
        }
    }

    None
}
