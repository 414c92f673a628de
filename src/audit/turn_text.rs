//! Reads the note of a turn: the raw text of the turn, findings about this text, and the messages
//! that placeholders replaced in the prompt.

use crate::agent::PastTurn;
use crate::ids::{MessageId, Position};
use crate::index::{Error, IndexReader};
use crate::thread::Fact;
use crate::xml::element::Element;

/// The raw text of a turn, the findings about this text, and the messages that the turn's prompt
/// replaced by placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnText {
    /// The model's text, byte for byte.
    pub raw: String,
    /// Findings about the text, sorted by line and column.
    pub findings: Vec<TurnFinding>,
    /// Messages that are replaced by placeholders in this turn's prompt and in later prompts.
    pub left_out: Vec<MessageId>,
}

/// A finding about the text of a turn.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TurnFinding {
    /// Line of the text, counted from 1; 0 if the location is not known.
    pub line: usize,
    pub column: usize,
    pub code: String,
    pub message: String,
    /// Whether the finding is about a payload that was accepted in spite of its mistake.
    pub is_accepted: bool,
}

/// Reads the note of a turn from the record at `position`. Returns `None` if the note was redacted.
///
/// # Errors
///
/// Returns errors of the journal.
pub fn turn_text(
    index: &IndexReader,
    position: Position,
    note: MessageId,
) -> Result<Option<TurnText>, Error> {
    let sealed = index.journal().existing_record(position)?;
    let payload = sealed.record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.id == note => Some(message.payload.as_str()),
        _ => None,
    });
    Ok(payload.and_then(TurnText::read))
}

impl TurnText {
    fn read(payload: &str) -> Option<Self> {
        let turn = PastTurn::read(payload)?;
        let note = Element::read(payload)?;
        let findings = note.children().filter(|child| child.local_name() == "finding");
        let number = |finding: &Element, name: &str| {
            let number = finding.attribute(name).and_then(|number| number.parse().ok());
            number.unwrap_or_default()
        };
        let findings = findings.map(|finding| TurnFinding {
            line: number(finding, "line"),
            column: number(finding, "column"),
            code: finding.attribute("code").unwrap_or_default().to_owned(),
            message: finding.text(),
            is_accepted: finding.attribute("accepted") == Some("true"),
        });
        let mut findings: Vec<_> = findings.collect();
        findings.sort();
        Some(Self { raw: turn.raw, findings, left_out: turn.left_out })
    }
}
