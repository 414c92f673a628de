//! Reads an event stream of chat completion chunks. The terminator of the stream is `[DONE]`.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::calls::{AssembledCall, CallAssembler, CallDelta};
use super::reasoning_details::DetailAssembler;
use crate::model::answer::StopReason;
use crate::model::estimate::{ReportedUsage, plausible};
use crate::model::remote::{
    AnswerReader, AnswerWriter, OpenAiQuirks, ReadProgress, StreamFault, StreamSummary, TextJoiner,
    TextPiece,
};
use crate::model::sse::SseEvent;

/// Values of `finish_reason` for an answer that the server has aborted. The sources are DeepSeek
/// (`insufficient_system_resource`, `aborted`), vLLM and SGLang (`abort`), OpenRouter and Mistral
/// (`error`), and Z.ai (`network_error`).
const BROKEN_OFF: [&str; 5] =
    ["insufficient_system_resource", "aborted", "abort", "error", "network_error"];

/// One chunk of the stream. Unknown keys are ignored.
#[derive(serde::Deserialize)]
struct OpenAiChunk<'a> {
    #[serde(rename = "choices", borrow, default)]
    choices: Option<Vec<OpenAiChoice<'a>>>,
    #[serde(rename = "usage", borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(rename = "error", borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(rename = "object", borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(rename = "model", borrow, default)]
    model: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct OpenAiChoice<'a> {
    #[serde(rename = "index", borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(rename = "delta", borrow, default)]
    delta: Option<OpenAiDelta<'a>>,
    #[serde(rename = "finish_reason", borrow, default)]
    finish_reason: Option<&'a RawValue>,
    #[serde(rename = "error", borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct OpenAiDelta<'a> {
    #[serde(rename = "content", borrow, default)]
    content: Option<DeltaContent<'a>>,
    /// Reasoning text, under the key that DeepSeek and vLLM use; `None` if this key is absent.
    #[serde(rename = "reasoning_content", borrow, default)]
    reasoning_content: Option<TextPiece<'a>>,
    /// Reasoning text, under the key that some other providers use; `None` if this key is absent.
    #[serde(rename = "reasoning", borrow, default)]
    reasoning: Option<TextPiece<'a>>,
    #[serde(rename = "reasoning_details", borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(rename = "refusal", borrow, default)]
    refusal: Option<TextPiece<'a>>,
    #[serde(rename = "tool_calls", borrow, default)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

/// Content of a streamed piece: either a text or a list of parts.
enum DeltaContent<'a> {
    Text(TextPiece<'a>),
    Parts(Vec<ContentPart<'a>>),
}

/// One part of a content list.
#[derive(serde::Deserialize)]
struct ContentPart<'a> {
    #[serde(rename = "text", borrow, default)]
    text: Option<TextPiece<'a>>,
    /// Reasoning text, under the key that Mistral uses; `None` if this key is absent.
    #[serde(rename = "thinking", borrow, default)]
    thinking: Option<Vec<ContentPart<'a>>>,
}

/// Reader of one stream of chat completion chunks.
pub(super) struct OpenAiReader {
    quirks: OpenAiQuirks,
    /// Joiner of the pieces of text.
    text: TextJoiner,
    /// Joiner of the pieces of reasoning.
    thought: TextJoiner,
    calls: CallAssembler,
    /// Latest `finish_reason` of the stream, as [`finish_word`] returns it; `None` if the stream
    /// has stated none.
    finish: Option<String>,
    has_refused: bool,
    counted: ReportedUsage,
    /// Name of the model as the stream states it; `None` if the stream has stated none.
    model: Option<String>,
    /// Reasoning text so far, for providers that require it in later requests.
    reasoning: String,
    details: DetailAssembler,
}

impl OpenAiReader {
    pub fn new(quirks: OpenAiQuirks) -> Self {
        Self {
            quirks,
            text: TextJoiner::default(),
            thought: TextJoiner::default(),
            calls: CallAssembler::default(),
            finish: None,
            has_refused: false,
            counted: ReportedUsage::default(),
            model: None,
            reasoning: String::new(),
            details: DetailAssembler::default(),
        }
    }

    fn choice(
        &mut self,
        choice: &OpenAiChoice<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        if choice.index.is_some_and(|index| index.get() != "0") {
            return Ok(());
        }

        if let Some(error) = choice.error {
            return Err(StreamFault::Reported { error: error.get().to_owned() });
        }

        if let Some(delta) = &choice.delta {
            self.delta(delta, out)?;
        }

        let reason = choice.finish_reason.map(|reason| finish_word(reason.get()));
        let Some(reason) = reason.filter(|reason| !reason.is_empty()) else { return Ok(()) };
        if BROKEN_OFF.contains(&reason.as_str()) {
            let error = json!({ "type": reason, "message": "stated as finish_reason" });
            return Err(StreamFault::Reported { error: error.to_string() });
        }

        self.finish = Some(reason);
        Ok(())
    }

    fn delta(
        &mut self,
        delta: &OpenAiDelta<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        // Some providers send the same reasoning under both keys, others leave one of them empty.
        let mut texts = [&delta.reasoning_content, &delta.reasoning].into_iter().flatten();
        if let Some(text) = texts.find(|text| !text.is_empty()) {
            self.think(text, out)?;
        }

        if let Some(details) = delta.reasoning_details {
            self.keep_details(details, out)?;
        }

        match &delta.content {
            Some(DeltaContent::Text(text)) => out.text(&self.text.push(text))?,
            Some(DeltaContent::Parts(parts)) => self.parts(parts, out)?,
            None => {}
        }

        if let Some(refusal) = &delta.refusal {
            self.has_refused |= !refusal.is_empty();
            out.text(&self.text.push(refusal))?;
        }

        for (place, piece) in delta.tool_calls.iter().flatten().enumerate() {
            self.calls.add(piece, place, out)?;
        }

        Ok(())
    }

    fn think(
        &mut self,
        piece: &TextPiece<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        let text = self.thought.push(piece);
        self.add_reasoning(&text, out)
    }

    /// Passes on the rest of the text and of the reasoning at the end of the stream.
    fn end_texts(&mut self, out: &mut AnswerWriter<'_>) -> Result<(), StreamFault> {
        let reasoning = self.thought.finish();
        self.add_reasoning(reasoning, out)?;
        out.text(self.text.finish())
    }

    fn add_reasoning(&mut self, text: &str, out: &mut AnswerWriter<'_>) -> Result<(), StreamFault> {
        if self.quirks.wants_reasoning_back {
            self.reasoning.push_str(text);
        }
        out.reasoning(text)
    }

    fn parts(
        &mut self,
        parts: &[ContentPart<'_>],
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        for part in parts {
            for thought in part.thinking.iter().flatten().filter_map(|part| part.text.as_ref()) {
                self.think(thought, out)?;
            }

            if let Some(text) = &part.text {
                out.text(&self.text.push(text))?;
            }
        }

        Ok(())
    }

    fn keep_details(
        &mut self,
        details: &RawValue,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        // Details that are no list cannot be sent back.
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(details.get()) else {
            return Ok(());
        };

        for item in items {
            out.count(item.get().len())?;
            self.details.add(item);
        }

        Ok(())
    }

    fn stop(&self) -> StopReason {
        match self.finish.as_deref() {
            _ if self.has_refused => StopReason::Refused,
            // Some servers and gateways state no reason. The terminator shows that the answer is
            // complete.
            None => StopReason::Normal,
            Some("stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence") => StopReason::Normal,
            Some("tool_calls" | "tool_call" | "function_call" | "tool_use") => StopReason::Calls,
            Some("length" | "max_tokens" | "model_length" | "model_context_window_exceeded") => {
                StopReason::Length
            }
            Some("content_filter" | "refusal" | "sensitive") => StopReason::Refused,
            // Gemini's own reasons, which its endpoint for OpenAI's format may pass on.
            Some("safety" | "recitation" | "blocklist" | "prohibited_content" | "spii") => {
                StopReason::Refused
            }
            Some(_) => StopReason::Unknown,
        }
    }

    /// Returns the data that the provider requires back in later requests: a list with one JSON
    /// object. The list is empty if the provider requires nothing back.
    fn own(&mut self, calls: &[AssembledCall]) -> Vec<String> {
        let mut fields = Vec::new();
        if let Some(details) = self.details.finish() {
            fields.push(format!("\"reasoning_details\":{details}"));
        } else if !calls.is_empty() && !self.reasoning.is_empty() {
            fields.push(format!("\"reasoning_content\":{}", Json::from(self.reasoning.as_str())));
        }

        let extras = calls.iter().filter_map(|assembled| {
            let extra = assembled.extra_content.as_ref()?;
            Some(format!("{}:{extra}", Json::from(assembled.call.id.as_str())))
        });
        let extras: Vec<_> = extras.collect();
        if !extras.is_empty() {
            fields.push(format!("\"extra_content\":{{{}}}", extras.join(",")));
        }

        if fields.is_empty() { Vec::new() } else { vec![format!("{{{}}}", fields.join(","))] }
    }
}

impl AnswerReader for OpenAiReader {
    fn event(
        &mut self,
        event: SseEvent<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<ReadProgress, StreamFault> {
        if event.data.trim_ascii() == b"[DONE]" {
            self.end_texts(out)?;
            return Ok(ReadProgress::Done);
        }

        let chunk: OpenAiChunk<'_> =
            event.json().map_err(|error| StreamFault::json(&error, event))?;
        if let Some(error) = chunk.error {
            return Err(StreamFault::Reported { error: error.get().to_owned() });
        }

        if event.name == "error" || chunk.object.is_some_and(|o| o.get() == "\"error\"") {
            let error = String::from_utf8_lossy(event.data).into_owned();
            return Err(StreamFault::Reported { error });
        }

        if self.model.is_none() {
            self.model = chunk.model.and_then(|model| serde_json::from_str(model.get()).ok());
        }

        for choice in chunk.choices.iter().flatten() {
            self.choice(choice, out)?;
        }

        if let Some(usage) = chunk.usage {
            self.counted = counted(usage);
        }

        Ok(ReadProgress::More)
    }

    fn finish(&mut self) -> StreamSummary {
        let stop = self.stop();
        let calls = self.calls.finish(stop.may_be_cut());
        let stop = match stop {
            StopReason::Normal if !calls.is_empty() => StopReason::Calls,
            stop => stop,
        };

        let own = self.own(&calls);
        let calls = calls.into_iter().map(|assembled| assembled.call).collect();
        StreamSummary { stop, counted: self.counted, calls, own, model: self.model.take() }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for DeltaContent<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(d)?;
        let content = if json.get().starts_with('"') {
            TextPiece::of_json(json).map(DeltaContent::Text)
        } else {
            serde_json::from_str(json.get()).map(DeltaContent::Parts)
        };
        content.map_err(Error::custom)
    }
}

/// Returns a `finish_reason` in lower case, without a colon and the text after it. Gemini states
/// `content_filter: RECITATION`, for example.
fn finish_word(json: &str) -> String {
    let word = json.trim_matches('"').split(':').next().unwrap_or_default();
    word.trim().to_ascii_lowercase()
}

/// Reads the token counts of an answer. The number of output tokens is the larger of two numbers:
/// `completion_tokens`, and `total_tokens` minus `prompt_tokens`. If only one of the two numbers is
/// known, this number is used. xAI charges reasoning as output, as other providers do, but counts
/// reasoning only in `total_tokens`.
fn counted(usage: &RawValue) -> ReportedUsage {
    let usage: Json = serde_json::from_str(usage.get()).unwrap_or_default();
    let tokens_in = plausible(usage.get("prompt_tokens"));
    let total = plausible(usage.get("total_tokens"));
    let beside_prompt = total.zip(tokens_in).map(|(total, prompt)| total.saturating_sub(prompt));
    let completion = plausible(usage.get("completion_tokens"));
    let details = usage.get("prompt_tokens_details").and_then(|d| d.get("cached_tokens"));
    let cached = plausible(details.or_else(|| usage.get("prompt_cache_hit_tokens")));
    ReportedUsage {
        tokens_in,
        // `None` is less than every number.
        tokens_out: completion.max(beside_prompt),
        cached: cached.filter(|cached| Some(*cached) <= tokens_in),
        cache_written: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::remote::BoundKey;

    #[test]
    fn details_that_are_cut_in_a_surrogate_pair_are_not_sent_back() {
        let call = r#"[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]"#;
        let cases = [
            ([r"Hm \ud83e", r"\udd80"], r#"{"reasoning_content":"Hm 🦀"}"#.to_owned()),
            (
                ["Hm ", r"\ud83e\udd80"],
                r#"{"reasoning_details":[{"text":"Hm "},{"text":"\ud83e\udd80"}]}"#.to_owned(),
            ),
        ];
        for (texts, own) in cases {
            let mut ignore = |_: crate::model::AnswerChunk<'_>| {};
            let mut out = AnswerWriter::new(&mut ignore, None);
            let mut reader = OpenAiReader::new(OpenAiQuirks {
                max_tokens: BoundKey::MaxTokens,
                asks_for_usage: true,
                takes_one_call: false,
                wants_reasoning_back: true,
                names_results: false,
                has_mistral_rules: false,
            });
            let deltas = texts.map(|text| {
                format!(r#""reasoning":"{text}","reasoning_details":[{{"text":"{text}"}}]"#)
            });
            for delta in deltas.into_iter().chain([format!(r#""tool_calls":{call}"#)]) {
                let chunk = format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#);
                let event = SseEvent { name: "", data: chunk.as_bytes() };
                assert!(reader.event(event, &mut out).is_ok(), "{chunk}");
            }
            assert_eq!(reader.finish().own, [own]);
        }
    }

    #[test]
    fn reasoning_that_only_the_total_contains_counts_as_output() {
        let cases = [
            // xAI: reasoning only in the total.
            (
                json!({"prompt_tokens": 10_120, "completion_tokens": 1_499, "total_tokens": 14_428}),
                4_308,
            ),
            // OpenAI: reasoning in the completion.
            (json!({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 444}), 424),
            (json!({"prompt_tokens": 20, "completion_tokens": 424}), 424),
            (json!({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": 3}), 424),
            (json!({"completion_tokens": 424, "total_tokens": 1_016}), 424),
            (json!({"prompt_tokens": 20, "completion_tokens": 424, "total_tokens": null}), 424),
            (json!({"prompt_tokens": 20, "total_tokens": 1_016}), 996),
        ];
        for (usage, tokens_out) in cases {
            let raw = RawValue::from_string(usage.to_string()).unwrap();
            assert_eq!(counted(&raw).tokens_out, Some(tokens_out), "{usage}");
        }
    }
}
