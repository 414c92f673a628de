//! Finds the kind and the end of one piece of top-level markup. A search for a tag uses the pieces
//! to skip code, quotations, reasoning and the values of actions. The scanner, and not this module,
//! finds the items of the turn.

use std::ops::Range;

use super::close_tags::TurnWalk;
use super::grammar::RootMeaning;
use super::markdown_code::TickRun;
use super::scanner::DraftItem;
use super::tag::TagOpening;
use super::turn_bytes::{CDATA_START, COMMENT_START, NeedMoreBytes};

/// A piece of top-level markup.
pub(super) enum TopLevelPiece {
    /// A piece of text without further tags: characters, code, a comment, a quotation or an empty
    /// element.
    Literal { end: usize },
    /// A reasoning block, or an empty reasoning element.
    Reasoning { end: usize },
    /// A complete action.
    Action { end: usize },
    /// An open tag that begins neither a complete action nor a reasoning block. `next` is the
    /// offset after the tag.
    Open { name: Range<usize>, next: usize },
    /// A close tag. `next` is the offset after the tag.
    Close { name: Range<usize>, next: usize },
}

impl TurnWalk<'_> {
    /// Returns the piece at `at`, which must be a `<`, a backtick or a tilde. `floor` is the offset
    /// at which the current text outside of actions begins.
    pub fn piece(&mut self, at: usize, floor: usize) -> Result<TopLevelPiece, NeedMoreBytes> {
        let source = self.source;
        if source.byte(at) != Some(b'<') {
            return Ok(match self.ticks(at, floor)? {
                TickRun::Text(end) | TickRun::Fence(end) | TickRun::Inline(end) => {
                    TopLevelPiece::Literal { end }
                }
            });
        }

        if let Some(end) = self.quote_block_end(at, floor)? {
            return Ok(TopLevelPiece::Literal { end });
        }

        match source.byte(at + 1) {
            Some(b'!') if source.starts(at, COMMENT_START)? => {
                let end = source.comment_end(at + 4)?.unwrap_or(source.len());
                Ok(TopLevelPiece::Literal { end })
            }
            Some(b'!') if source.starts(at, CDATA_START)? => {
                let end = source.cdata_end(at + 9)?.unwrap_or(source.len());
                Ok(TopLevelPiece::Literal { end })
            }
            Some(b'/') => Ok(match source.closing(at)? {
                Some((name, next)) => TopLevelPiece::Close { name, next },
                None => TopLevelPiece::Literal { end: at + 1 },
            }),
            _ => self.open_piece(at, floor),
        }
    }

    fn open_piece(&mut self, at: usize, floor: usize) -> Result<TopLevelPiece, NeedMoreBytes> {
        let tag = match self.source.opening(at)? {
            TagOpening::Tag(tag) => tag,
            _ => return Ok(TopLevelPiece::Literal { end: at + 1 }),
        };

        let (root, scope, bare) = self.meaning(&tag);
        let action = match root {
            RootMeaning::Reasoning if self.is_quoted(tag.start, tag.end, floor)? => {
                return Ok(TopLevelPiece::Literal { end: tag.end });
            }
            RootMeaning::Reasoning if tag.empty => {
                return Ok(TopLevelPiece::Reasoning { end: tag.end });
            }
            RootMeaning::Reasoning => {
                let end = self.reasoning_end(&tag)?.unwrap_or(self.source.len());
                return Ok(TopLevelPiece::Reasoning { end });
            }
            RootMeaning::Action(id) => Some(self.root(&tag, id, scope, bare)?),
            RootMeaning::Reserved | RootMeaning::Unknown => None,
        };

        Ok(match action {
            Some(step) if matches!(step.item, Some(DraftItem::Action(_))) => {
                TopLevelPiece::Action { end: step.end }
            }
            _ if tag.empty => TopLevelPiece::Literal { end: tag.end },
            _ => TopLevelPiece::Open { name: tag.name, next: tag.end },
        })
    }
}
