//! Assembles the reasoning details of an answer from the pieces in which OpenRouter streams them.
//!
//! The details must be sent back as the model's provider made them. If the provider signed a block
//! of reasoning, the signature is valid only for the whole text of the block.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::model::remote::{TextJoiner, TextPiece};

/// Types of the details that are streamed in pieces, each with the key of the text that the pieces
/// contain. Details of other types, such as encrypted ones, are whole.
const STREAMED: [(&str, &str); 2] = [("reasoning.text", "text"), ("reasoning.summary", "summary")];

/// The reasoning details of one answer, in their order.
#[derive(Default)]
pub(super) struct DetailAssembler(Vec<ReasoningDetail>);

enum ReasoningDetail {
    /// JSON text of a detail that has no pieces.
    Whole(String),
    Streamed(StreamedDetail),
}

/// A detail that may continue in the next piece.
struct StreamedDetail {
    /// Type of the detail and key of its text: an entry of [`STREAMED`].
    kind: (&'static str, &'static str),
    text: String,
    /// Joiner of the pieces of the text.
    joiner: TextJoiner,
    /// JSON texts of all other fields. Of several values, the last one that is not null counts.
    fields: BTreeMap<String, String>,
}

impl DetailAssembler {
    /// Adds an item of a streamed list of details.
    pub fn add(&mut self, item: &RawValue) {
        let Some((kind, text, fields)) = streamed_piece(item) else {
            return self.0.push(ReasoningDetail::Whole(item.get().to_owned()));
        };

        match self.0.last_mut() {
            Some(ReasoningDetail::Streamed(last)) if last.is_continued(kind, &text, &fields) => {
                last.grow(&text, fields);
            }
            _ => {
                let joiner = TextJoiner::default();
                let known = BTreeMap::new();
                let mut begun = StreamedDetail { kind, text: String::new(), joiner, fields: known };
                begun.grow(&text, fields);
                self.0.push(ReasoningDetail::Streamed(begun));
            }
        }
    }

    /// Returns the details as a JSON list. Returns `None` if there are none, or if one of them
    /// contains half of a surrogate pair, because many servers reject a request with such a text.
    pub fn finish(&mut self) -> Option<String> {
        let details = std::mem::take(&mut self.0);
        let items: Vec<_> = details.into_iter().map(ReasoningDetail::into_json).collect();
        let is_sent_back = !items.is_empty() && !items.iter().any(|item| has_half_pair(item));
        is_sent_back.then(|| format!("[{}]", items.join(",")))
    }
}

impl ReasoningDetail {
    fn into_json(self) -> String {
        let StreamedDetail { kind: (_, key), mut text, mut joiner, mut fields } = match self {
            Self::Whole(json) => return json,
            Self::Streamed(detail) => detail,
        };

        text.push_str(joiner.finish());
        // Some details consist of a signature alone.
        if !text.is_empty() {
            fields.insert(key.to_owned(), Json::from(text).to_string());
        }

        let fields = fields.into_iter().map(|(key, json)| format!("{}:{json}", Json::from(key)));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }
}

impl StreamedDetail {
    /// Whether a piece continues this detail: its type and index are the same, and its id is not
    /// another one. Text or another signature after a signature begins the next detail, because
    /// some streams have the same index for all details, and the signature is the end of a detail.
    fn is_continued(
        &self,
        kind: (&str, &str),
        text: &TextPiece<'_>,
        fields: &BTreeMap<String, &RawValue>,
    ) -> bool {
        let own = |key: &str| self.fields.get(key).map(String::as_str).filter(|json| is_set(json));
        let stated = |key: &str| fields.get(key).map(|raw| raw.get()).filter(|json| is_set(json));
        let is_other_id = own("id").zip(stated("id")).is_some_and(|(own, other)| own != other);
        let is_over = own("signature").is_some_and(|own| {
            !text.is_empty() || stated("signature").is_some_and(|other| other != own)
        });
        self.kind == kind && own("index") == stated("index") && !is_other_id && !is_over
    }

    fn grow(&mut self, text: &TextPiece<'_>, fields: BTreeMap<String, &RawValue>) {
        self.text.push_str(&self.joiner.push(text));
        for (key, raw) in fields {
            if is_set(raw.get()) || !self.fields.contains_key(&key) {
                self.fields.insert(key, raw.get().to_owned());
            }
        }
    }
}

/// A piece of a streamed detail: an entry of [`STREAMED`], the text, and all fields.
type StreamedPiece<'a> =
    ((&'static str, &'static str), TextPiece<'a>, BTreeMap<String, &'a RawValue>);

/// Reads an item as a piece of a streamed detail. Returns `None` if the item is none.
fn streamed_piece(item: &RawValue) -> Option<StreamedPiece<'_>> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(item.get()).ok()?;
    let stated: String = serde_json::from_str(fields.get("type")?.get()).ok()?;
    let kind = STREAMED.into_iter().find(|(kind, _)| *kind == stated)?;
    let text = match fields.get(kind.1) {
        Some(raw) if is_set(raw.get()) => TextPiece::of_json(raw).ok()?,
        _ => TextPiece::default(),
    };
    Some((kind, text, fields))
}

fn is_set(json: &str) -> bool {
    json != "null" && json != "\"\""
}

/// Whether a text in the JSON document contains half of a surrogate pair without the other half.
fn has_half_pair(json: &str) -> bool {
    let has_surrogate = json.contains("\\ud") || json.contains("\\uD");
    has_surrogate && serde_json::from_str::<Json>(json).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(items: &[&str]) -> Option<String> {
        let mut details = DetailAssembler::default();
        for item in items {
            details.add(&RawValue::from_string((*item).to_owned()).unwrap());
        }
        details.finish()
    }

    #[test]
    fn pieces_of_a_streamed_detail_are_one_detail_again() {
        let text = |rest: &str| format!(r#"{{"type":"reasoning.text",{rest}}}"#);
        let summary = |rest: &str| format!(r#"{{"type":"reasoning.summary",{rest}}}"#);
        let cases = [
            // A signed block of Anthropic: the last piece has the signature and no text.
            (
                vec![
                    text(r#""text":"Let","signature":null,"index":0"#),
                    text(r#""text":" me \"see\" ü","format":"f","index":0"#),
                    text(r#""signature":"Et8=","format":"f","index":0"#),
                ],
                r#"[{"format":"f","index":0,"signature":"Et8=","text":"Let me \"see\" ü","type":"reasoning.text"}]"#,
            ),
            // Two signed blocks with the same index.
            (
                vec![
                    text(r#""text":"A","index":0"#),
                    text(r#""signature":"s1","index":0"#),
                    text(r#""text":"B","index":0"#),
                    text(r#""signature":"s2","index":0"#),
                ],
                r#"[{"index":0,"signature":"s1","text":"A","type":"reasoning.text"},{"index":0,"signature":"s2","text":"B","type":"reasoning.text"}]"#,
            ),
            // The second block is a signature alone.
            (
                vec![
                    text(r#""text":"A","index":0"#),
                    text(r#""signature":"s1","index":0"#),
                    text(r#""signature":"s2","index":0"#),
                ],
                r#"[{"index":0,"signature":"s1","text":"A","type":"reasoning.text"},{"index":0,"signature":"s2","type":"reasoning.text"}]"#,
            ),
            // Summaries of OpenAI, each before its encrypted detail.
            (
                vec![
                    summary(r#""summary":"A","index":0"#),
                    summary(r#""summary":"B","index":0"#),
                    r#"{"type":"reasoning.encrypted","data":"x","id":"rs_1","index":1}"#.to_owned(),
                    summary(r#""summary":"C","index":2"#),
                ],
                r#"[{"index":0,"summary":"AB","type":"reasoning.summary"},{"type":"reasoning.encrypted","data":"x","id":"rs_1","index":1},{"index":2,"summary":"C","type":"reasoning.summary"}]"#,
            ),
            // Encrypted details are whole, even if all have the same index.
            (
                vec![
                    r#"{"type":"reasoning.encrypted","data":"x","index":0}"#.to_owned(),
                    r#"{"type":"reasoning.encrypted","data":"y","index":0}"#.to_owned(),
                ],
                r#"[{"type":"reasoning.encrypted","data":"x","index":0},{"type":"reasoning.encrypted","data":"y","index":0}]"#,
            ),
            // Another index, or another id.
            (
                vec![
                    text(r#""text":"A","index":0"#),
                    text(r#""text":"B","index":1"#),
                    text(r#""text":"C","index":1,"id":"r1""#),
                    text(r#""text":"D","index":1,"id":"r2""#),
                ],
                r#"[{"index":0,"text":"A","type":"reasoning.text"},{"id":"r1","index":1,"text":"BC","type":"reasoning.text"},{"id":"r2","index":1,"text":"D","type":"reasoning.text"}]"#,
            ),
            // The halves of a surrogate pair.
            (
                vec![text(r#""text":"A\ud83e""#), text(r#""text":"\udd80""#)],
                r#"[{"text":"A🦀","type":"reasoning.text"}]"#,
            ),
        ];
        for (items, expected) in cases {
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            assert_eq!(assembled(&items).as_deref(), Some(expected));
        }

        assert_eq!(assembled(&[]), None);
        assert_eq!(assembled(&[r#"{"text":"A\ud83e"}"#]), None);
    }
}
