//! Models that are reached over the network: one HTTP call, whose response is read as a stream in
//! the provider's wire format.
//!
//! This module contains what all wire formats share. It sends the request, maps a body that is no
//! stream to an error, and treats a stream without its terminator as cut off. It does not retry:
//! the router does.

mod body;
mod error_response;
mod preset;
pub(super) mod sanitize_calls;
mod stream_output;
mod text_joiner;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

pub use preset::{BoundKey, OpenAiQuirks, PRESETS, ProviderPreset, WireFormat};
pub(super) use stream_output::{AnswerWriter, ReadProgress, StreamFault, check_call_id};
pub(super) use text_joiner::{TextJoiner, TextPiece};

use super::answer::{AnswerChunk, ModelRoute, OwnBlock, StopReason, StreamEnd, ToolCall};
use super::error::Error;
use super::estimate::ReportedUsage;
use super::http::{HttpClient, HttpError, HttpResponse, HttpTimeouts, ProviderEndpoint};
use super::key::ProviderKey;
use super::request::ModelRequest;
use super::wire::WireSettings;
use super::{CallFuture, ModelProvider, OnChunk, anthropic, openai, sse};
use crate::limits;
use crate::mutant::mutant;

/// Settings for one model of one provider.
#[derive(Debug, Clone)]
pub struct Options {
    pub preset: &'static ProviderPreset,
    /// Name of the model at its provider.
    pub model: String,
    pub endpoint: ProviderEndpoint,
    pub key: Option<ProviderKey>,
    pub timeouts: HttpTimeouts,
    pub answer: AnswerSettings,
}

/// Settings that apply to every answer. An absent setting leaves the provider's default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerSettings {
    /// Maximum tokens of an answer; `None` if the config sets none. A request may set a smaller
    /// maximum.
    #[serde(rename = "max_tokens")]
    pub max_tokens: Option<u32>,
    #[serde(rename = "temperature")]
    pub temperature: Option<f64>,
    #[serde(rename = "top_p")]
    pub top_p: Option<f64>,
    /// Reasoning effort as a word, such as `low`; `None` if the config sets none.
    #[serde(rename = "reasoning_effort")]
    pub reasoning_effort: Option<String>,
    /// Maximum tokens of reasoning; `None` if the config sets none.
    #[serde(rename = "thinking_tokens")]
    pub thinking_tokens: Option<u32>,
}

impl Options {
    /// Returns all settings that determine how a request is written.
    pub fn settings(&self) -> WireSettings {
        WireSettings {
            provider: self.preset.name.to_owned(),
            model: self.model.clone(),
            wire: self.preset.wire.for_model(&self.model),
            answer: self.answer.clone(),
        }
    }
}

impl AnswerSettings {
    /// Returns the maximum tokens of one answer including reasoning, or `None` if unbounded.
    pub fn answer(&self) -> Option<u32> {
        let bounded = self.max_tokens.is_some() || self.thinking_tokens.is_some();
        let most = self.max_tokens.unwrap_or(limits::ANSWER_TOKENS_DEFAULT);
        bounded.then(|| most.saturating_add(self.thinking_tokens.unwrap_or_default()))
    }
}

/// Wire format of a provider.
pub(super) trait WireDialect: Debug + Send + Sync {
    fn headers(&self, key: Option<&ProviderKey>) -> Vec<(&'static str, String)>;

    fn reader(&self) -> Box<dyn AnswerReader>;
}

/// Reader of the events of one stream.
pub(super) trait AnswerReader: Send {
    fn event(
        &mut self,
        event: sse::SseEvent<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<ReadProgress, StreamFault>;

    /// Returns the result of the whole stream. Must be called after the terminator of the stream
    /// was read.
    fn finish(&mut self) -> StreamSummary;
}

/// Contents of a complete stream except its text.
pub(super) struct StreamSummary {
    pub stop: StopReason,
    pub counted: ReportedUsage,
    pub calls: Vec<ToolCall>,
    /// Blocks that only the provider of this stream can read, as JSON texts.
    pub own: Vec<String>,
    /// Name of the model as the stream states it; `None` if the stream states none.
    pub model: Option<String>,
}

/// A model that is reached over the network.
#[derive(Debug)]
pub struct RemoteModel {
    options: Options,
    dialect: Box<dyn WireDialect>,
    client: HttpClient,
}

impl RemoteModel {
    pub fn new(options: Options, client: HttpClient) -> Self {
        let dialect: Box<dyn WireDialect> = match options.preset.wire {
            WireFormat::OpenAi(quirks) => Box::new(openai::ChatCompletions { quirks }),
            WireFormat::Anthropic => Box::new(anthropic::AnthropicFormat),
        };
        Self { options, dialect, client }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    async fn stream(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
    ) -> Result<StreamEnd, Error> {
        let options = &self.options;
        let mut headers = self.dialect.headers(options.key.as_ref());
        headers.extend(request.origin.trace.map(|trace| ("traceparent", trace.to_string())));
        let mut answer = self
            .client
            .post(
                &options.endpoint,
                options.preset.wire.path(),
                &headers,
                options.settings().body(request),
                options.timeouts,
            )
            .await
            .map_err(|failed| self.failed(failed, 0))?;
        let is_stream = body::is_stream(&answer);
        if answer.status() == 200
            && let Some(coding) = body::coding(&answer)
        {
            // The provider worked on the request if it sent a stream, so the request is charged.
            if is_stream {
                on_chunk(AnswerChunk::Begun);
            }
            return Err(self.compressed(coding));
        }

        if !is_stream && !body::is_mislabelled_stream(&mut answer).await {
            return Err(self.no_stream(&mut answer).await);
        }

        let mut out = AnswerWriter::new(on_chunk, options.key.as_ref());
        let mut reader = self.dialect.reader();
        let read = self.read(&mut answer, reader.as_mut(), &mut out).await;
        let bytes = out.finish();
        read?;
        Ok(self.end(reader.finish(), request, bytes))
    }

    /// Reads the stream of an answer up to its terminator.
    async fn read(
        &self,
        answer: &mut HttpResponse,
        reader: &mut dyn AnswerReader,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), Error> {
        let mut decoder = sse::SseDecoder::default();
        let mut head = body::AnswerHead::default();
        let mut bytes = 0usize;
        let mut has_begun = false;

        loop {
            let piece = match answer.chunk().await {
                Ok(piece) => piece,
                Err(HttpError::Broken) => {
                    // The last event before the break may state the provider's reason for it.
                    let last = decoder.unfinished().ok().flatten();
                    let fault = last.and_then(|event| reader.event(event, out).err());
                    return Err(match fault {
                        Some(fault @ StreamFault::Reported { .. }) => self.fault(fault),
                        _ => self.failed(HttpError::Broken, bytes),
                    });
                }
                Err(failed) => return Err(self.failed(failed, bytes)),
            };
            let Some(mut rest) = piece else { break };
            bytes = bytes.saturating_add(rest.len());
            if bytes > limits::STREAM_BYTES_MAX {
                return Err(Error::TooLong { route: self.route(), max: limits::STREAM_BYTES_MAX });
            }
            head.keep(rest);
            while let Some(event) =
                decoder.next(&mut rest).map_err(|_| self.fault(out.overlong()))?
            {
                head.forget();
                let progress = reader.event(event, out).map_err(|fault| self.fault(fault))?;
                if !std::mem::replace(&mut has_begun, true) {
                    out.begin();
                }
                if progress == ReadProgress::Done {
                    return Ok(());
                }
            }
        }

        // The last line may lack its line break, but is complete otherwise.
        let last = decoder.unfinished().map_err(|_| self.fault(out.overlong()))?;
        match last.map(|event| reader.event(event, out)) {
            Some(Ok(ReadProgress::Done)) => return Ok(()),
            Some(Err(fault @ (StreamFault::Reported { .. } | StreamFault::TooLong))) => {
                return Err(self.fault(fault));
            }
            // The end of an event that cannot be read may be missing.
            Some(Ok(_) | Err(StreamFault::Unreadable { .. })) | None => {}
        }

        if mutant("accept-a-cut-answer") && head.instead().is_none() {
            return Ok(());
        }

        Err(self.ended(answer, head, bytes))
    }

    fn end(&self, summary: StreamSummary, request: &ModelRequest, bytes: usize) -> StreamEnd {
        let hidden = |text: String| match &self.options.key {
            Some(key) if key.filter().is_some() => key.hide_in(&text),
            _ => text,
        };
        let hidden_in_json = |json: String| match &self.options.key {
            Some(key) if key.filter().is_some() => key.hide_in_json(&json),
            _ => json,
        };

        let provider = self.options.preset.name.to_owned();
        let own = summary.own.into_iter().map(|json| {
            let provider = provider.clone();
            let json = hidden_in_json(json);
            OwnBlock { provider, json }
        });
        let calls = summary.calls.into_iter().map(|call| ToolCall {
            id: hidden(call.id),
            name: recorded_name(hidden(call.name)),
            arguments: hidden_in_json(call.arguments),
        });
        StreamEnd {
            stop: summary.stop,
            usage: summary.counted.without_false_zeros(bytes).or_estimate(request, bytes),
            calls: calls.collect(),
            own: own.collect(),
            route: self.route(),
            settings: Some(self.options.settings()),
            model: summary.model.map(hidden),
        }
    }

    fn failed(&self, failed: HttpError, bytes: usize) -> Error {
        let route = self.route();
        match failed {
            HttpError::Connect { host, detail, advice } => {
                Error::Connect { route, host, detail: self.clean(&detail), advice }
            }
            HttpError::NoResponse { detail, is_request_sent } => {
                let host = self.options.endpoint.authority();
                Error::NoResponse { route, host, detail, is_request_sent }
            }
            HttpError::Timeout { phase, after } => Error::Timeout { route, phase, after },
            HttpError::Broken => Error::Cut { route, bytes },
        }
    }
}

/// Returns the part of a native call's name that is recorded. No tool has a longer name, so a call
/// whose name is cut is refused. Expects a name without the key, because a part of the key could
/// not be found.
fn recorded_name(mut name: String) -> String {
    let mut end = limits::NATIVE_NAME_BYTES_MAX.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}

impl ModelProvider for RemoteModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(self.stream(request, on_chunk))
    }

    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        if *route != self.route() {
            return Vec::new();
        }

        let current = self.options.settings();
        let earlier = WireSettings { wire: current.wire.without_result_rules(), ..current.clone() };
        if earlier == current { vec![current] } else { vec![current, earlier] }
    }

    fn route(&self) -> ModelRoute {
        ModelRoute {
            provider: self.options.preset.name.to_owned(),
            model: self.options.model.clone(),
        }
    }
}
