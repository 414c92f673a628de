//! Reads an event stream of the messages API. The terminator of the stream is the event
//! `message_stop`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::opaque_blocks::OpaqueBlock;
use crate::limits;
use crate::model::answer::{StopReason, ToolCall, is_whole_json, remove_cut_call};
use crate::model::estimate::{ReportedUsage, plausible};
use crate::model::remote::{
    AnswerReader, AnswerWriter, ReadProgress, StreamFault, StreamSummary, TextJoiner, TextPiece,
    check_call_id,
};
use crate::model::sse;

/// Any event of the stream. The event's type decides which keys are present.
#[derive(Deserialize)]
struct AnthropicEvent<'a> {
    #[serde(rename = "type", borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(rename = "index", default)]
    index: Option<u64>,
    #[serde(rename = "message", borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(rename = "content_block", borrow, default)]
    content_block: Option<&'a RawValue>,
    #[serde(rename = "delta", borrow, default)]
    delta: Option<AnthropicDelta<'a>>,
    #[serde(rename = "usage", borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(rename = "error", borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct AnthropicDelta<'a> {
    #[serde(rename = "type", borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(rename = "text", borrow, default)]
    text: TextPiece<'a>,
    #[serde(rename = "thinking", borrow, default)]
    thinking: TextPiece<'a>,
    #[serde(rename = "signature", borrow, default)]
    signature: Cow<'a, str>,
    #[serde(rename = "partial_json", borrow, default)]
    partial_json: TextPiece<'a>,
    #[serde(rename = "stop_reason", borrow, default)]
    stop_reason: Option<&'a RawValue>,
}

/// A content block whose end has not arrived yet.
enum PartialBlock {
    Text,
    Call {
        call: ToolCall,
        /// Joiner of the pieces of the call's arguments.
        joiner: TextJoiner,
        /// Input of the call, as the first event of the block states it. Ignored if later events
        /// contain the input in pieces.
        input: String,
    },
    Thinking {
        text: usize,
        calls: usize,
        block: serde_json::Map<String, Json>,
    },
    /// A block that only Anthropic can read, kept verbatim.
    Own {
        text: usize,
        calls: usize,
        json: String,
    },
    Unknown,
}

impl PartialBlock {
    /// Whether the block becomes a part of the answer only at its end. Text is passed on as it
    /// arrives.
    const fn is_kept_whole(&self) -> bool {
        matches!(self, Self::Call { .. } | Self::Thinking { .. } | Self::Own { .. })
    }

    /// Whether the block is a call whose arguments are complete. Only its end is missing then.
    fn is_complete_call(&self) -> bool {
        let Self::Call { call, input, .. } = self else { return false };
        match call.arguments.as_str() {
            "" => !matches!(input.as_str(), "" | "{}" | "null"),
            arguments => is_whole_json(arguments),
        }
    }
}

/// Token counts as the events of a stream state them; `None` for a count that no event stated. The
/// API states the tokens of the prompt in three separate counts.
#[derive(Default)]
struct StatedCounts {
    /// Tokens of the prompt, in this order: tokens neither read from the cache nor written to it,
    /// tokens read from the cache, and tokens written to the cache.
    input: [Option<u64>; 3],
    output: Option<u64>,
}

/// Reader of one event stream of the messages API.
#[derive(Default)]
pub(super) struct AnthropicReader {
    /// Joiner of the pieces of text.
    text: TextJoiner,
    /// Joiner of the pieces of reasoning.
    thought: TextJoiner,
    growing: BTreeMap<u64, PartialBlock>,
    /// Index of the block that began last.
    last_begun: Option<u64>,
    calls: Vec<ToolCall>,
    /// Input of the last call, as stated in the first event of the call's block. `None` if later
    /// events of the block contained the input. The input is added to the call when the next block
    /// or the end of the stream follows. Exception: if the answer may be cut short, an empty input
    /// is not added at the end, because the real input may have been in events that are missing.
    unfilled: Option<String>,
    own: Vec<String>,
    stop: Option<String>,
    counts: StatedCounts,
    /// Name of the model as the stream states it; `None` if the stream has not stated it.
    model: Option<String>,
}

impl AnthropicReader {
    fn begin(
        &mut self,
        event: &AnthropicEvent<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        let Some(raw) = event.content_block else { return Ok(()) };
        self.fill_call();
        if let Some(last) = self.last_begun {
            self.end_texts(last, out)?;
        }

        if self.growing.len() >= limits::PROVIDER_BLOCKS_MAX {
            return Err(StreamFault::TooLong);
        }

        let block: serde_json::Map<String, Json> = serde_json::from_str(raw.get())
            .map_err(|error| StreamFault::Unreadable { detail: error.to_string() })?;
        let text = |key: &str| block.get(key).and_then(Json::as_str).unwrap_or_default();
        let before = out.text_bytes();
        let calls = self.calls.len();
        let growing = match text("type") {
            "text" => {
                out.text(text("text"))?;
                PartialBlock::Text
            }
            "tool_use" => {
                let call = ToolCall {
                    id: text("id").to_owned(),
                    name: text("name").to_owned(),
                    arguments: String::new(),
                };
                let input = block.get("input").map(Json::to_string).unwrap_or_default();
                out.count(call.id.len() + call.name.len() + input.len())?;
                check_call_id(&call.id)?;
                PartialBlock::Call { call, joiner: TextJoiner::default(), input }
            }
            "thinking" => {
                out.reasoning(text("thinking"))?;
                // The whole block is recorded, also the parts that are no text.
                out.count(raw.get().len().saturating_sub(text("thinking").len()))?;
                PartialBlock::Thinking { text: before, calls, block }
            }
            "redacted_thinking" => {
                out.count(raw.get().len())?;
                PartialBlock::Own { text: before, calls, json: raw.get().to_owned() }
            }
            _ => PartialBlock::Unknown,
        };

        let index = event.index.unwrap_or_default();
        self.last_begun = Some(index);
        match self.growing.insert(index, growing) {
            Some(replaced) if replaced.is_kept_whole() => Err(StreamFault::Unreadable {
                detail: format!("content block {index} begins again before its end"),
            }),
            _ => Ok(()),
        }
    }

    fn grow(
        &mut self,
        event: &AnthropicEvent<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        let Some(delta) = &event.delta else { return Ok(()) };
        let index = event.index.unwrap_or_default();
        match (delta.r#type.as_ref(), self.growing.get_mut(&index)) {
            // Nothing in a block of reasoning is text of the answer, because text can be acted on. A
            // block of an unknown type may be one.
            (
                "text_delta",
                Some(
                    PartialBlock::Thinking { .. }
                    | PartialBlock::Own { .. }
                    | PartialBlock::Unknown,
                ),
            ) => out.reasoning(&self.thought.push(&delta.text)),
            (_, Some(PartialBlock::Unknown)) => Ok(()),
            // Some servers send white space while a block of another kind is open.
            ("text_delta", _) => out.text(&self.text.push(&delta.text)),
            ("input_json_delta", Some(PartialBlock::Call { call, joiner, .. })) => {
                call.arguments.push_str(&joiner.push(&delta.partial_json));
                out.count(delta.partial_json.len())
            }
            ("thinking_delta", Some(PartialBlock::Thinking { block, .. })) => {
                let text = self.thought.push(&delta.thinking);
                append(block, "thinking", &text);
                out.reasoning(&text)
            }
            ("signature_delta", Some(PartialBlock::Thinking { block, .. })) => {
                // A signature arrives in one piece. If there are several, the last one counts, as
                // in the provider's own library.
                block.insert("signature".to_owned(), delta.signature.as_ref().into());
                out.count(delta.signature.len())
            }
            ("thinking_delta", _) => out.reasoning(&self.thought.push(&delta.thinking)),
            ("input_json_delta", _) if !delta.partial_json.is_blank() => {
                let detail = format!("arguments for content block {index}, which is no call");
                Err(StreamFault::Unreadable { detail })
            }
            _ => Ok(()),
        }
    }

    /// Fails if a block whose content would be lost has no end. An answer that may be cut short may
    /// lack the end of the block that began last. If its stop reason is unknown, this is so only if
    /// the block is no complete call.
    fn check_ends(&self) -> Result<(), StreamFault> {
        let stop = self.stop();
        let is_cut = |block: &PartialBlock| {
            stop.is_cut() || (stop.may_be_cut() && !block.is_complete_call())
        };
        let lost = self.growing.iter().find(|(index, block)| {
            block.is_kept_whole() && !(Some(**index) == self.last_begun && is_cut(block))
        });
        let Some((index, _)) = lost else { return Ok(()) };
        let detail = format!("the answer ends before the end of content block {index}");
        Err(StreamFault::Unreadable { detail })
    }

    /// Passes on the rest of the text and of the reasoning at the end of the block `index`.
    fn end_texts(&mut self, index: u64, out: &mut AnswerWriter<'_>) -> Result<(), StreamFault> {
        let reasoning = self.thought.finish();
        if let Some(PartialBlock::Thinking { block, .. }) = self.growing.get_mut(&index)
            && !reasoning.is_empty()
        {
            append(block, "thinking", reasoning);
        }

        out.reasoning(reasoning)?;
        out.text(self.text.finish())
    }

    fn end_block(&mut self, index: u64, out: &mut AnswerWriter<'_>) -> Result<(), StreamFault> {
        self.end_texts(index, out)?;
        match self.growing.remove(&index) {
            Some(PartialBlock::Call { mut call, mut joiner, input }) => {
                call.arguments.push_str(joiner.finish());
                if self.calls.len() >= limits::NATIVE_CALLS_MAX {
                    return Err(StreamFault::TooLong);
                }
                self.unfilled = call.arguments.is_empty().then_some(input);
                self.calls.push(call);
            }
            Some(PartialBlock::Thinking { text, calls, block }) => {
                self.keep(text, calls, &Json::Object(block).to_string())?;
            }
            Some(PartialBlock::Own { text, calls, json }) => self.keep(text, calls, &json)?,
            Some(PartialBlock::Text | PartialBlock::Unknown) | None => {}
        }

        Ok(())
    }

    /// Adds to the last call the input that the first event of the call's block stated. Does
    /// nothing if later events contained the input.
    fn fill_call(&mut self) {
        if let Some(input) = self.unfilled.take()
            && let Some(call) = self.calls.last_mut()
        {
            call.arguments = input;
        }
    }

    fn keep(&mut self, text: usize, calls: usize, json: &str) -> Result<(), StreamFault> {
        if self.own.len() >= limits::PROVIDER_BLOCKS_MAX {
            return Err(StreamFault::TooLong);
        }

        let block = serde_json::from_str::<&RawValue>(json);
        let block = block.map_err(|error| StreamFault::Unreadable { detail: error.to_string() })?;
        self.own.push(OpaqueBlock { text, calls, block }.write());
        Ok(())
    }

    fn stop(&self) -> StopReason {
        match self.stop.as_deref() {
            Some("end_turn" | "stop_sequence") => StopReason::Normal,
            Some("tool_use") => StopReason::Calls,
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("refusal") => StopReason::Refused,
            // The terminator shows that the answer is complete.
            None => StopReason::Normal,
            // `pause_turn` concerns tools that the provider runs itself, which are never requested.
            Some(_) => StopReason::Unknown,
        }
    }
}

impl StatedCounts {
    /// Updates the counts from `usage`. The counts of a stream are cumulative. So the tokens of the
    /// prompt are replaced only if the new total is not lower than the old one: some servers later
    /// repeat `input_tokens` as 0, or leave out the tokens of the cache. A new count of the output
    /// always replaces the old one, because the first count is stated before the answer.
    fn update(&mut self, usage: &Json) {
        let stated = |key: &str| plausible(usage.get(key));
        let keys = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let input = keys.map(stated);
        if input[0].is_some() && total(&input) >= total(&self.input) {
            self.input = input;
        }

        if usage.get("output_tokens").is_some() {
            self.output = stated("output_tokens");
        }
    }

    fn usage(&self) -> ReportedUsage {
        let [uncached, cached, cache_written] = self.input;
        ReportedUsage {
            tokens_in: uncached.map(|_| total(&self.input)),
            tokens_out: self.output,
            cached,
            cache_written,
        }
    }
}

fn total(input: &[Option<u64>; 3]) -> u64 {
    input.iter().flatten().sum()
}

impl AnswerReader for AnthropicReader {
    fn event(
        &mut self,
        event: sse::SseEvent<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<ReadProgress, StreamFault> {
        let read: AnthropicEvent<'_> =
            event.json().map_err(|error| StreamFault::json(&error, event))?;
        match read.r#type.as_ref() {
            "content_block_delta" => self.grow(&read, out)?,
            "content_block_start" => self.begin(&read, out)?,
            "content_block_stop" => {
                self.end_block(read.index.unwrap_or_default(), out)?;
            }
            "message_start" => {
                let message: Json = read
                    .message
                    .and_then(|m| serde_json::from_str(m.get()).ok())
                    .unwrap_or_default();
                self.counts.update(message.get("usage").unwrap_or(&Json::Null));
                self.model = message.get("model").and_then(Json::as_str).map(str::to_owned);
            }
            "message_delta" => {
                if let Some(reason) = read.delta.as_ref().and_then(|delta| delta.stop_reason) {
                    self.stop = Some(reason.get().trim_matches('"').to_owned());
                }
                let usage = read.usage.and_then(|u| serde_json::from_str(u.get()).ok());
                self.counts.update(&usage.unwrap_or(Json::Null));
            }
            "message_stop" => {
                self.end_texts(self.last_begun.unwrap_or_default(), out)?;
                self.check_ends()?;
                return Ok(ReadProgress::Done);
            }
            "error" => {
                let error = read.error.map_or("{}", RawValue::get).to_owned();
                return Err(StreamFault::Reported { error });
            }
            // `ping`, and event types that are introduced later.
            _ => {}
        }

        Ok(ReadProgress::More)
    }

    fn finish(&mut self) -> StreamSummary {
        let stop = self.stop();
        let may_be_cut = stop.may_be_cut();
        // The first event of a block states an empty input if the input follows in pieces.
        let is_stated =
            self.unfilled.as_deref().is_some_and(|input| !matches!(input, "{}" | "null"));
        if !may_be_cut || is_stated {
            self.fill_call();
        }

        let mut calls = std::mem::take(&mut self.calls);
        if may_be_cut {
            remove_cut_call(&mut calls);
        }
        let own = std::mem::take(&mut self.own);
        let counted = self.counts.usage();
        StreamSummary { stop, counted, calls, own, model: self.model.take() }
    }
}

fn append(block: &mut serde_json::Map<String, Json>, key: &str, piece: &str) {
    match block.get_mut(key) {
        Some(Json::String(text)) => text.push_str(piece),
        _ => {
            block.insert(key.to_owned(), piece.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_later_event_without_the_counts_of_the_cache_leaves_them() {
        let begin = json!({"input_tokens": 10, "cache_read_input_tokens": 50_000,
            "cache_creation_input_tokens": 200, "output_tokens": 1});
        let ends = [
            json!({"output_tokens": 20}),
            json!({"input_tokens": 10, "output_tokens": 20}),
            json!({"input_tokens": 10, "cache_read_input_tokens": null,
                "cache_creation_input_tokens": null, "output_tokens": 20}),
            json!({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 20}),
        ];
        for end in ends {
            let mut counts = StatedCounts::default();
            counts.update(&begin);
            counts.update(&end);
            let expected = ReportedUsage {
                tokens_in: Some(50_210),
                tokens_out: Some(20),
                cached: Some(50_000),
                cache_written: Some(200),
            };
            assert_eq!(counts.usage(), expected, "{end}");
        }
    }

    #[test]
    fn a_later_count_of_the_input_replaces_a_smaller_one() {
        let mut counts = StatedCounts::default();
        counts.update(&json!({"input_tokens": 0, "output_tokens": 0}));
        counts
            .update(&json!({"input_tokens": 30, "cache_read_input_tokens": 4, "output_tokens": 2}));

        let usage = counts.usage();
        assert_eq!((usage.tokens_in, usage.tokens_out), (Some(34), Some(2)));
    }

    #[test]
    fn a_prompt_whose_cached_tokens_are_stated_later_counts_once() {
        let mut counts = StatedCounts::default();
        counts.update(&json!({"input_tokens": 1_000}));
        counts.update(&json!({"input_tokens": 10, "cache_read_input_tokens": 990}));
        let usage = counts.usage();
        assert_eq!((usage.tokens_in, usage.cached), (Some(1_000), Some(990)));
    }
}
