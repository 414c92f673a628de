//! A stream of chat completion chunks. Its terminator is `[DONE]`.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::Value as Json;
use serde_json::value::RawValue;

use super::calls::{Calls, Piece, Text};
use crate::model::answer::StopReason;
use crate::model::estimate::{Counted, plausible};
use crate::model::remote::{Fault, Out, Progress, Quirks, Reader, Told};
use crate::model::sse::Event;

/// What is not known here is skipped.
#[derive(serde::Deserialize)]
struct Chunk<'a> {
    #[serde(rename = "choices", borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
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
struct Choice<'a> {
    #[serde(rename = "index", borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(rename = "delta", borrow, default)]
    delta: Option<Delta<'a>>,
    #[serde(rename = "finish_reason", borrow, default)]
    finish_reason: Option<&'a RawValue>,
    #[serde(rename = "error", borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Delta<'a> {
    #[serde(rename = "content", borrow, default)]
    content: Option<Content<'a>>,
    /// DeepSeek's name for it, and vLLM's.
    #[serde(rename = "reasoning_content", borrow, default)]
    reasoning_content: Option<Text<'a>>,
    /// Everybody else's.
    #[serde(rename = "reasoning", borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(rename = "reasoning_details", borrow, default)]
    reasoning_details: Option<&'a RawValue>,
    #[serde(rename = "refusal", borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(rename = "tool_calls", borrow, default)]
    tool_calls: Option<Vec<Piece<'a>>>,
}

/// A text, or a list of parts.
enum Content<'a> {
    Text(Text<'a>),
    Parts(Vec<Part<'a>>),
}

/// A part of a content that is a list.
#[derive(serde::Deserialize)]
struct Part<'a> {
    #[serde(rename = "text", borrow, default)]
    text: Option<Text<'a>>,
    /// Mistral's reasoning.
    #[serde(rename = "thinking", borrow, default)]
    thinking: Option<Vec<Part<'a>>>,
}

/// One stream.
pub(super) struct Stream {
    quirks: Quirks,
    calls: Calls,
    finish: Option<String>,
    has_refused: bool,
    counted: Counted,
    /// Who it says it is.
    model: Option<String>,
    /// Kept where the provider wants it back.
    reasoning: String,
    /// As JSON texts.
    details: Vec<String>,
}

impl Stream {
    pub fn new(quirks: Quirks) -> Self {
        Self {
            quirks,
            calls: Calls::default(),
            finish: None,
            has_refused: false,
            counted: Counted::default(),
            model: None,
            reasoning: String::new(),
            details: Vec::new(),
        }
    }

    fn choice(&mut self, choice: &Choice<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
        if choice.index.is_some_and(|index| index.get() != "0") {
            return Ok(());
        }
        if let Some(error) = choice.error {
            return Err(Fault::Told { error: error.get().to_owned() });
        }
        if let Some(delta) = &choice.delta {
            self.delta(delta, out)?;
        }
        if let Some(reason) = choice.finish_reason {
            self.finish = Some(reason.get().trim_matches('"').to_owned());
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Delta<'_>, out: &mut Out<'_>) -> Result<(), Fault> {
        // Some send the same reasoning under both names.
        if let Some(reasoning) = delta.reasoning_content.as_ref().or(delta.reasoning.as_ref()) {
            self.think(&reasoning.0, out)?;
        }
        if let Some(details) = delta.reasoning_details {
            self.keep_details(details, out)?;
        }
        match &delta.content {
            Some(Content::Text(text)) => out.text(&text.0)?,
            Some(Content::Parts(parts)) => self.parts(parts, out)?,
            None => {}
        }
        if let Some(Text(refusal)) = &delta.refusal {
            self.has_refused |= !refusal.is_empty();
            out.text(refusal)?;
        }
        for piece in delta.tool_calls.iter().flatten() {
            self.calls.add(piece, out)?;
        }
        Ok(())
    }

    fn think(&mut self, text: &str, out: &mut Out<'_>) -> Result<(), Fault> {
        if self.quirks.wants_reasoning_back {
            self.reasoning.push_str(text);
        }
        out.reasoning(text)
    }

    fn parts(&mut self, parts: &[Part<'_>], out: &mut Out<'_>) -> Result<(), Fault> {
        for part in parts {
            for thought in part.thinking.iter().flatten() {
                self.think(thought.text.as_ref().map_or("", |text| &text.0), out)?;
            }
            out.text(part.text.as_ref().map_or("", |text| &text.0))?;
        }
        Ok(())
    }

    fn keep_details(&mut self, details: &RawValue, out: &mut Out<'_>) -> Result<(), Fault> {
        // Where it is no list, there is nothing to send back.
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(details.get()) else {
            return Ok(());
        };
        for item in items {
            out.count(item.get().len())?;
            self.details.push(item.get().to_owned());
        }
        Ok(())
    }

    fn stop(&self) -> StopReason {
        match self.finish.as_deref() {
            _ if self.has_refused => StopReason::Refused,
            Some("stop" | "eos" | "end_turn" | "stop_sequence") => StopReason::Normal,
            Some("tool_calls" | "function_call") => StopReason::Calls,
            Some("length" | "max_tokens" | "model_length") => StopReason::Length,
            Some("content_filter" | "refusal") => StopReason::Refused,
            _ => StopReason::Unknown,
        }
    }

    fn own(&self, has_calls: bool) -> Vec<String> {
        if !self.details.is_empty() {
            return vec![format!("{{\"reasoning_details\":[{}]}}", self.details.join(","))];
        }
        if has_calls && !self.reasoning.is_empty() {
            let text = Json::from(self.reasoning.as_str());
            return vec![format!("{{\"reasoning_content\":{text}}}")];
        }
        Vec::new()
    }
}

impl Reader for Stream {
    fn event(&mut self, event: Event<'_>, out: &mut Out<'_>) -> Result<Progress, Fault> {
        if event.data.trim_ascii() == b"[DONE]" {
            return Ok(Progress::Done);
        }
        let chunk: Chunk<'_> = event.json().map_err(|error| Fault::json(&error, event))?;
        if let Some(error) = chunk.error {
            return Err(Fault::Told { error: error.get().to_owned() });
        }
        if event.name == "error" || chunk.object.is_some_and(|o| o.get() == "\"error\"") {
            let error = String::from_utf8_lossy(event.data).into_owned();
            return Err(Fault::Told { error });
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
        Ok(Progress::More)
    }

    fn finish(&mut self) -> Told {
        let stop = self.stop();
        let calls = self.calls.finish(stop);
        let stop = match stop {
            StopReason::Normal if !calls.is_empty() => StopReason::Calls,
            stop => stop,
        };
        let own = self.own(!calls.is_empty());
        Told { stop, counted: self.counted, calls, own, model: self.model.take() }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TextOrParts)
    }
}

struct TextOrParts;

impl<'de> Visitor<'de> for TextOrParts {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of its parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Self::Value, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(parts)).map(Content::Parts)
    }
}

fn counted(usage: &RawValue) -> Counted {
    let usage: Json = serde_json::from_str(usage.get()).unwrap_or_default();
    let tokens_in = plausible(usage.get("prompt_tokens"));
    let details = usage.get("prompt_tokens_details").and_then(|d| d.get("cached_tokens"));
    let cached = plausible(details.or_else(|| usage.get("prompt_cache_hit_tokens")));
    Counted {
        tokens_in,
        tokens_out: plausible(usage.get("completion_tokens")),
        cached: cached.filter(|cached| Some(*cached) <= tokens_in),
        cache_written: None,
    }
}
