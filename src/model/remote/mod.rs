//! Models behind a network: one call over HTTP, read as it streams, in whichever wire format the
//! provider speaks.
//!
//! What both formats share is here: the request goes out, what is no stream becomes an error, a
//! stream that ends without its terminator is cut. No retries; those are the router's.

pub(super) mod back;
mod body;
mod preset;
mod refused;
mod said;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

pub use preset::{BoundKey, PRESETS, Preset, Quirks, Wire};
pub(super) use said::{Fault, Out, Progress};

use super::answer::{End, OwnBlock, Route, StopReason, ToolCall};
use super::error::Error;
use super::estimate::Counted;
use super::http::{Answer, Client, Endpoint, Failed, HttpTimeouts};
use super::key::Key;
use super::request::Request;
use super::wire::WireSettings;
use super::{Calling, OnChunk, Provider, anthropic, openai, sse};
use crate::limits;
use crate::mutant::mutant;

/// Everything about one model of one provider.
#[derive(Debug, Clone)]
pub struct Options {
    pub preset: &'static Preset,
    /// What the provider calls it.
    pub model: String,
    pub endpoint: Endpoint,
    pub key: Option<Key>,
    pub timeouts: HttpTimeouts,
    pub asked: Asked,
}

/// What the config asks of every answer; what it leaves out is the provider's own default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// Where the request has none.
    #[serde(rename = "max_tokens")]
    pub max_tokens: Option<u32>,
    #[serde(rename = "temperature")]
    pub temperature: Option<f64>,
    #[serde(rename = "top_p")]
    pub top_p: Option<f64>,
    /// How long it is to think: a word, such as `low`.
    #[serde(rename = "reasoning_effort")]
    pub reasoning_effort: Option<String>,
    /// How long it is to think, in tokens.
    #[serde(rename = "thinking_tokens")]
    pub thinking_tokens: Option<u32>,
}

impl Options {
    /// Everything that decides how a request is written.
    pub fn settings(&self) -> WireSettings {
        WireSettings {
            provider: self.preset.name.to_owned(),
            model: self.model.clone(),
            wire: self.preset.wire,
            asked: self.asked.clone(),
        }
    }
}

impl Asked {
    /// Tokens of one answer, thinking included, where they are bounded.
    pub fn answer(&self) -> Option<u32> {
        let bounded = self.max_tokens.is_some() || self.thinking_tokens.is_some();
        let most = self.max_tokens.unwrap_or(limits::ANSWER_TOKENS_DEFAULT);
        bounded.then(|| most.saturating_add(self.thinking_tokens.unwrap_or_default()))
    }
}

/// One wire format.
pub(super) trait Dialect: Debug + Send + Sync {
    /// Beneath the base address.
    fn path(&self) -> &'static str;

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)>;

    fn reader(&self) -> Box<dyn Reader>;
}

/// Reads one stream, event by event.
pub(super) trait Reader: Send {
    fn event(&mut self, event: sse::Event<'_>, out: &mut Out<'_>) -> Result<Progress, Fault>;

    /// What it amounts to, after the terminator.
    fn finish(&mut self) -> Told;
}

/// What a stream amounted to.
pub(super) struct Told {
    pub stop: StopReason,
    pub counted: Counted,
    pub calls: Vec<ToolCall>,
    /// As JSON texts.
    pub own: Vec<String>,
    /// Who it says it is.
    pub model: Option<String>,
}

/// A model behind a network.
#[derive(Debug)]
pub struct Remote {
    options: Options,
    dialect: Box<dyn Dialect>,
    client: Client,
}

impl Remote {
    pub fn new(options: Options, client: Client) -> Self {
        let dialect: Box<dyn Dialect> = match options.preset.wire {
            Wire::OpenAi(quirks) => Box::new(openai::ChatCompletions { quirks }),
            Wire::Anthropic => Box::new(anthropic::Messages),
        };
        Self { options, dialect, client }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    async fn stream(&self, request: &Request, on_chunk: OnChunk<'_>) -> Result<End, Error> {
        let options = &self.options;
        let mut headers = self.dialect.headers(options.key.as_ref());
        headers.extend(request.origin.trace.map(|trace| ("traceparent", trace.to_string())));
        let mut answer = self
            .client
            .post(
                &options.endpoint,
                self.dialect.path(),
                &headers,
                options.settings().body(request),
                options.timeouts,
            )
            .await
            .map_err(|failed| self.failed(failed, 0))?;
        if !body::is_stream(&answer) {
            return Err(self.no_stream(&mut answer).await);
        }
        let mut out = Out::new(on_chunk, options.key.as_ref());
        let mut reader = self.dialect.reader();
        let read = self.read(&mut answer, reader.as_mut(), &mut out).await;
        let bytes = out.finish();
        read?;
        Ok(self.end(reader.finish(), request, bytes))
    }

    /// Reads up to the terminator.
    async fn read(
        &self,
        answer: &mut Answer,
        reader: &mut dyn Reader,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let mut decoder = sse::Decoder::default();
        let mut head = body::Head::default();
        let mut bytes = 0usize;
        loop {
            let piece = answer.chunk().await.map_err(|failed| self.failed(failed, bytes))?;
            let Some(mut rest) = piece else { break };
            bytes = bytes.saturating_add(rest.len());
            if bytes > limits::STREAM_BYTES_MAX {
                return Err(Error::TooLong { route: self.route(), max: limits::STREAM_BYTES_MAX });
            }
            head.keep(rest);
            while let Some(event) = decoder.next(&mut rest).map_err(|e| self.unreadable(&e))? {
                head.forget();
                let progress = reader.event(event, out).map_err(|fault| self.fault(fault))?;
                if progress == Progress::Done {
                    return Ok(());
                }
            }
        }
        // Its last line may lack its end, if only all of it is there.
        let last = decoder.unfinished().map_err(|e| self.unreadable(&e))?;
        if let Some(event) = last
            && let Ok(Progress::Done) = reader.event(event, out)
        {
            return Ok(());
        }
        if mutant("accept-a-cut-answer") && head.instead().is_none() {
            return Ok(());
        }
        Err(self.ended(answer, head, bytes))
    }

    fn end(&self, told: Told, request: &Request, bytes: usize) -> End {
        let hidden = |text: String| match &self.options.key {
            Some(key) if key.filter().is_some() => key.hide_in(&text),
            _ => text,
        };
        let provider = self.options.preset.name.to_owned();
        let own = told.own.into_iter().map(|json| {
            let (provider, json) = (provider.clone(), hidden(json));
            OwnBlock { provider, json }
        });
        let calls = told.calls.into_iter().map(|call| ToolCall {
            id: hidden(call.id),
            name: hidden(call.name),
            arguments: hidden(call.arguments),
        });
        End {
            stop: told.stop,
            usage: told.counted.or_estimate(request, bytes),
            calls: calls.collect(),
            own: own.collect(),
            route: self.route(),
            model: told.model.map(hidden),
        }
    }

    fn failed(&self, failed: Failed, bytes: usize) -> Error {
        let route = self.route();
        match failed {
            Failed::Connect { host, detail } => {
                Error::Connect { route, host, detail: self.clean(&detail) }
            }
            Failed::Timeout { phase, after } => Error::Timeout { route, phase, after },
            Failed::Broken => Error::Cut { route, bytes },
        }
    }
}

impl Provider for Remote {
    fn call<'a>(&'a self, request: &'a Request, on_chunk: OnChunk<'a>) -> Calling<'a> {
        Box::pin(self.stream(request, on_chunk))
    }

    fn settings(&self, route: &Route) -> Option<WireSettings> {
        (*route == self.route()).then(|| self.options.settings())
    }

    fn route(&self) -> Route {
        Route { provider: self.options.preset.name.to_owned(), model: self.options.model.clone() }
    }
}
