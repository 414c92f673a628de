//! Playback: a provider that plays recorded turns. It finds a turn by agent, thread labels and turn
//! number.
//!
//! A recorded text may contain placeholders (see `placeholders`). Playback fills them from the
//! request's conversation, so that a played answer quotes the results of the current run.
//! `docs/AGENTS.md` describes the file format.

mod nonce;
mod placeholders;
mod record;
mod recording_file;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use record::{RecorderSummary, RecordingFailure, TurnRecorder};
use recording_file::{RecordedTurn, RecordingFile};

use super::estimate::ReportedUsage;
use super::{
    AnswerChunk, CallFuture, ChatRole, Error, ModelProvider, ModelRequest, ModelRoute, OnChunk,
    StreamEnd,
};
use crate::ids::ListenerName;
use crate::{durable_file, limits};

/// Reason why a recording cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the recording {path} cannot be read: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("the recording {path} is not in the form of docs/AGENTS.md: {source}")]
    Form { path: String, source: toml::de::Error },
    #[error("the recording {path} holds agent `{agent}`, thread `{thread}`, turn {turn} twice")]
    Twice { path: String, agent: String, thread: String, turn: u32 },
}

impl LoadError {
    /// Returns the reason why the recording cannot be loaded, in one line. Leaves out the path of
    /// the recording, and quotes no line of its file.
    pub fn reason(&self) -> String {
        match self {
            Self::Io { source, .. } => source.to_string(),
            Self::Form { source, .. } => {
                let whole = source.to_string();
                format!("{}: {}", whole.lines().next().unwrap_or_default(), source.message())
            }
            Self::Twice { agent, thread, turn, .. } => {
                format!("it holds agent `{agent}`, thread `{thread}`, turn {turn} twice")
            }
        }
    }
}

/// HTTP status of a played rejection. A recording does not contain the status of the original
/// rejection.
const REJECTED_STATUS: u16 = 400;

/// Name of this provider in the routes of answers.
const PROVIDER: &str = "playback";

type TurnKey = (ListenerName, String, u32);

/// A provider that plays recorded turns. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PlaybackModel {
    shelf: Arc<RecordedTurns>,
    /// Pause before each chunk of a played answer.
    chunk_delay: Duration,
}

#[derive(Debug)]
struct RecordedTurns {
    path: String,
    recorded: String,
    model: String,
    turns: HashMap<TurnKey, RecordedTurn>,
}

impl PlaybackModel {
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let shown = path.display().to_string();
        let text = durable_file::open_regular(path)
            .and_then(std::io::read_to_string)
            .map_err(|source| LoadError::Io { path: shown.clone(), source })?;
        Self::parse(&shown, &text)
    }

    /// Parses a recording; `path` is only used in error messages.
    pub fn parse(path: &str, text: &str) -> Result<Self, LoadError> {
        let path = path.to_owned();
        let recording: RecordingFile = toml::from_str(text)
            .map_err(|source| LoadError::Form { path: path.clone(), source })?;
        let mut turns = HashMap::new();

        for turn in recording.turns {
            let key = (turn.agent.clone(), turn.thread.clone(), turn.turn);
            if let Some(first) = turns.insert(key, turn) {
                let agent = first.agent.to_string();
                let thread = first.thread;
                return Err(LoadError::Twice { path, agent, thread, turn: first.turn });
            }
        }

        let recorded = recording.recorded;
        let model = recording.model;
        let shelf = Arc::new(RecordedTurns { path, recorded, model, turns });
        Ok(Self { shelf, chunk_delay: Duration::ZERO })
    }

    /// Sets the pause before each chunk of an answer, so that playback imitates the pace of a live
    /// model.
    pub fn paced(mut self, chunk_delay: Duration) -> Self {
        self.chunk_delay = chunk_delay;
        self
    }

    /// Returns an agent that has a recorded turn with the number 0. Such a turn can never be
    /// played, because the first turn of an agent has the number 1. Returns `None` if there is no
    /// such turn.
    pub fn agent_of_turn_zero(&self) -> Option<&ListenerName> {
        let keys = self.shelf.turns.keys();
        keys.filter(|(_, _, turn)| *turn == 0).map(|(agent, ..)| agent).min()
    }

    /// Returns the description of the recording, as its file states it.
    pub fn recorded(&self) -> &str {
        &self.shelf.recorded
    }

    async fn play(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
    ) -> Result<StreamEnd, Error> {
        let turn = self.find(request)?;
        if let Some(message) = &turn.rejected {
            let route = self.route();
            let message = message.clone();
            return Err(Error::Rejected { route, status: REJECTED_STATUS, message });
        }

        let messages = request.messages.iter().filter(|message| message.role == ChatRole::User);
        let nonce = nonce::nonce_of(request);
        let text = match (turn.verbatim, nonce) {
            (true, Some(nonce)) => turn.text.replace(nonce::PLACEHOLDER, nonce),
            (true, None) => turn.text.clone(),
            (false, _) => {
                placeholders::fill(&turn.text, nonce, messages.flat_map(|message| message.texts()))
            }
        };

        let reasoning = turn.reasoning.as_deref().unwrap_or_default();
        let thought = chunks(reasoning).map(AnswerChunk::Reasoning);

        for chunk in thought.chain(chunks(&text).map(AnswerChunk::Text)) {
            if !self.chunk_delay.is_zero() {
                tokio::time::sleep(self.chunk_delay).await;
            }
            on_chunk(chunk);
        }

        let Some(stop) = turn.stop.reason() else {
            return Err(Error::Cut { route: self.route(), bytes: text.len() });
        };

        let RecordedTurn { tokens_in, tokens_out, cached, cache_written, .. } = *turn;
        let counted = ReportedUsage { tokens_in, tokens_out, cached, cache_written };
        let usage = counted.or_estimate(request, text.len());
        let calls = turn.calls.iter().map(Into::into).collect();
        let own = turn.own.iter().map(Into::into).collect();
        let route = self.route();
        Ok(StreamEnd { stop, usage, calls, own, route, settings: None, model: None })
    }

    fn find(&self, request: &ModelRequest) -> Result<&RecordedTurn, Error> {
        let origin = &request.origin;
        let key = (origin.agent.clone(), origin.labels().to_owned(), origin.turn);
        self.shelf.turns.get(&key).ok_or_else(|| Error::NotRecorded {
            agent: origin.agent.to_string(),
            thread: match origin.labels() {
                "" => "the root thread".to_owned(),
                labels => format!("thread `{labels}`"),
            },
            turn: origin.turn,
            recording: self.shelf.path.clone(),
        })
    }
}

impl ModelProvider for PlaybackModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(self.play(request, on_chunk))
    }

    fn route(&self) -> ModelRoute {
        ModelRoute { provider: PROVIDER.to_owned(), model: self.shelf.model.clone() }
    }
}

/// Splits a text into pieces of at most [`limits::PLAYBACK_CHUNK_BYTES`], at character boundaries.
fn chunks(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = limits::PLAYBACK_CHUNK_BYTES.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (chunk, after) = rest.split_at(end);
        rest = after;
        Some(chunk)
    })
}
