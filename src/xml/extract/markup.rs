//! One piece of markup at the top level and how far it reaches, without judging it: for searches
//! that must not look into code, quotations, reasoning and the values of actions.

use std::ops::Range;

use super::ends::Walk;
use super::grammar::Root;
use super::quoted::Ticks;
use super::source::{CDATA_START, COMMENT_START, More};
use super::step::Draft;
use super::tag::Opening;

/// A piece of markup.
pub(super) enum Piece {
    /// Nothing in it is a tag: characters, code, a comment, a quotation, an empty element.
    Literal { end: usize },
    /// A reasoning block, or what stands in place of one.
    Reasoning { end: usize },
    /// A complete action.
    Action { end: usize },
    /// The open tag of anything else; the place behind it.
    Open { name: Range<usize>, next: usize },
    /// A close tag; the place behind it.
    Close { name: Range<usize>, next: usize },
}

impl Walk<'_> {
    /// The piece at `at`, a `<`, backtick or tilde. `floor` is where the text around actions
    /// last began.
    pub fn piece(&mut self, at: usize, floor: usize) -> Result<Piece, More> {
        let source = self.source;
        if source.byte(at) != Some(b'<') {
            return Ok(match self.ticks(at, floor)? {
                Ticks::Text(end) | Ticks::Fence(end) | Ticks::Inline(end) => Piece::Literal { end },
            });
        }
        if let Some(end) = self.quote_block_end(at, floor)? {
            return Ok(Piece::Literal { end });
        }
        match source.byte(at + 1) {
            Some(b'!') if source.starts(at, COMMENT_START)? => {
                let end = source.comment_end(at + 4)?.unwrap_or(source.len());
                Ok(Piece::Literal { end })
            }
            Some(b'!') if source.starts(at, CDATA_START)? => {
                let end = source.cdata_end(at + 9)?.unwrap_or(source.len());
                Ok(Piece::Literal { end })
            }
            Some(b'/') => Ok(match source.closing(at)? {
                Some((name, next)) => Piece::Close { name, next },
                None => Piece::Literal { end: at + 1 },
            }),
            _ => self.open_piece(at, floor),
        }
    }

    fn open_piece(&mut self, at: usize, floor: usize) -> Result<Piece, More> {
        let tag = match self.source.opening(at)? {
            Opening::Tag(tag) => tag,
            _ => return Ok(Piece::Literal { end: at + 1 }),
        };
        let (root, scope, bare) = self.meaning(&tag);
        let action = match root {
            Root::Reasoning if self.is_quoted(tag.start, tag.end, floor)? => {
                return Ok(Piece::Literal { end: tag.end });
            }
            Root::Reasoning if tag.empty => return Ok(Piece::Reasoning { end: tag.end }),
            Root::Reasoning => {
                let end = self.reasoning_end(&tag)?.unwrap_or(self.source.len());
                return Ok(Piece::Reasoning { end });
            }
            Root::Action(id) => Some(self.root(&tag, id, scope, bare)?),
            Root::Reserved | Root::Unknown => None,
        };
        Ok(match action {
            Some(step) if matches!(step.item, Some(Draft::Action(_))) => {
                Piece::Action { end: step.end }
            }
            _ if tag.empty => Piece::Literal { end: tag.end },
            _ => Piece::Open { name: tag.name, next: tag.end },
        })
    }
}
