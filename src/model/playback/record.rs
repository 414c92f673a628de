//! Recording: writes every answer of a live run to a file that playback can play. Also writes the
//! rejections of requests, because an agent gets a rejection as feedback and continues.
//!
//! A recording identifies a turn by agent, thread labels and turn number, without the root thread.
//! Turns of several root threads may have the same three values. The recording then keeps only one
//! of them: the turn of the root thread whose turn was recorded first. In place of a nonce, the
//! recording contains a placeholder, because each run has other nonces.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::recording_file::{RecordedStop, RecordedTurn, RecordingFile};
use super::{PROVIDER, nonce};
use crate::locks::locked;
use crate::model::answer::{AnswerChunk, ModelRoute, StreamEnd};
use crate::model::request::ModelRequest;
use crate::model::{
    CallAdmission, CallFuture, Error, ModelProvider, OnChunk, SharedModel, WireSettings,
};

/// Recorder that wraps models and records their answers.
#[derive(Debug)]
pub struct TurnRecorder {
    path: PathBuf,
    /// Description of the recording, written into its file.
    recorded: String,
    /// Whether the recorder states in the description which models answered: live models, recorded
    /// turns, or both.
    states_models: bool,
    /// The turns collected so far. The lock is also held while the file is written. Otherwise an
    /// older state of the turns could replace a newer one in the file.
    collected: Mutex<CollectedTurns>,
}

#[derive(Debug, Default)]
struct CollectedTurns {
    /// Recorded turns by agent, thread labels and turn number.
    turns: BTreeMap<(String, String, u32), CollectedTurn>,
    model: Option<String>,
    skipped: usize,
    /// Why the file lacks turns: the error of the last write. `None` if that write succeeded.
    failure: Option<String>,
}

#[derive(Debug)]
struct CollectedTurn {
    root: String,
    /// Whether the answer was played from a recording, so that no live model was called.
    is_played: bool,
    turn: RecordedTurn,
}

/// Result of a recording: the numbers of kept and skipped turns, and whether the file is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecorderSummary {
    pub turns: usize,
    /// Number of turns that were not kept, because the recording already had a turn of another root
    /// thread with the same agent, thread labels and turn number.
    pub skipped: usize,
    /// Reason why the file is incomplete, or `None` if it is complete.
    pub failure: Option<String>,
}

impl TurnRecorder {
    /// Creates a recorder for the recording file `path`, and checks that this file can be written.
    /// The recorder writes the file from the first turn on, so that a run without a turn keeps an
    /// existing recording.
    pub fn create(path: &Path, recorded: &str) -> std::io::Result<Self> {
        if path.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let recorder = Self {
            path: path.to_owned(),
            recorded: recorded.to_owned(),
            states_models: false,
            collected: Mutex::default(),
        };
        let beside = recorder.beside();
        std::fs::File::create(&beside)?;
        std::fs::remove_file(&beside)?;
        Ok(recorder)
    }

    /// Makes the recorder state in the recording's description which models answered: live models,
    /// recorded turns, or both.
    pub fn with_models_stated(mut self) -> Self {
        self.states_models = true;
        self
    }

    /// Returns the path of the temporary file. A recording is first written to this file, which is
    /// then renamed to the recording's own path.
    fn beside(&self) -> PathBuf {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".part");
        beside.into()
    }

    /// Wraps `model` so that each of its answers is recorded.
    pub fn around(self: &Arc<Self>, model: SharedModel) -> SharedModel {
        Arc::new(RecordingModel { model, recorder: Arc::clone(self) })
    }

    /// Returns the result so far. If the last write of the file failed, first writes it again.
    pub fn summary(&self) -> RecorderSummary {
        let mut collected = locked(&self.collected);
        if collected.failure.is_some() {
            self.save(&mut collected);
        }

        let failure = collected.failure.clone();
        RecorderSummary { turns: collected.turns.len(), skipped: collected.skipped, failure }
    }

    /// Adds a turn to the recording. The recording may already have a turn with the same agent,
    /// thread labels and turn number. If both turns belong to the same root thread, the new turn
    /// replaces the earlier one. If not, the new turn is skipped. `route` answered the request or
    /// rejected it.
    fn keep(&self, request: &ModelRequest, turn: RecordedTurn, route: &ModelRoute) {
        let origin = &request.origin;
        let root = origin.thread.as_str().split('.').next().unwrap_or_default().to_owned();
        let key = (turn.agent.to_string(), turn.thread.clone(), turn.turn);
        let mut collected = locked(&self.collected);
        if collected.turns.get(&key).is_some_and(|kept| kept.root != root) {
            collected.skipped += 1;
            return;
        }

        let is_played = route.provider == PROVIDER;
        collected.turns.insert(key, CollectedTurn { root, is_played, turn });
        collected.model.get_or_insert_with(|| route.to_string());
        self.save(&mut collected);
    }

    /// Writes the whole recording, and keeps the error if the write fails.
    fn save(&self, collected: &mut CollectedTurns) {
        let failure = self.write(collected).err();
        if let Some(error) = &failure {
            tracing::error!("{}: {error}", self.path.display());
        }
        collected.failure = failure.map(|error| error.to_string());
    }

    /// Writes the whole recording, and replaces the old file atomically.
    fn write(&self, collected: &CollectedTurns) -> std::io::Result<()> {
        let mut recorded = self.recorded.clone();
        if self.states_models {
            recorded.push_str(collected.models());
        }

        let recording = RecordingFile {
            recorded,
            model: collected.model.clone().unwrap_or_else(|| "recorded".to_owned()),
            turns: collected.turns.values().map(|kept| kept.turn.clone()).collect(),
        };

        let text = toml::to_string_pretty(&recording).map_err(std::io::Error::other)?;
        let beside = self.beside();
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)
    }
}

impl CollectedTurns {
    /// Returns the end of the recording's description. It states the sources of the answers: live
    /// models, played turns, or both.
    fn models(&self) -> &'static str {
        let played = self.turns.values().filter(|kept| kept.is_played).count();
        match self.turns.len() - played {
            0 => " with played turns",
            _ if played == 0 => " with live models",
            _ => " with live models and played turns",
        }
    }
}

#[derive(Debug, Default)]
struct AnswerText {
    text: String,
    reasoning: String,
}

impl AnswerText {
    fn take(&mut self, chunk: AnswerChunk<'_>) {
        match chunk {
            AnswerChunk::Text(text) => self.text.push_str(text),
            AnswerChunk::Reasoning(text) => self.reasoning.push_str(text),
            AnswerChunk::Withheld(_)
            | AnswerChunk::Begun
            | AnswerChunk::Waiting(..)
            | AnswerChunk::Queued
            | AnswerChunk::Failed(_) => {}
            AnswerChunk::Restart => *self = Self::default(),
        }
    }

    fn turn(self, request: &ModelRequest, end: &StreamEnd) -> RecordedTurn {
        let origin = &request.origin;
        let counted = |tokens: u64| (!end.usage.estimated).then_some(tokens);
        let some = |tokens: u64| (tokens > 0).then_some(tokens);

        RecordedTurn {
            agent: origin.agent.clone(),
            thread: origin.labels().to_owned(),
            turn: origin.turn,
            reasoning: (!self.reasoning.is_empty()).then_some(self.reasoning),
            verbatim: self.text.contains("{{"),
            text: match nonce::nonce_of(request) {
                Some(nonce) => self.text.replace(nonce, nonce::PLACEHOLDER),
                None => self.text,
            },
            rejected: None,
            stop: end.stop.into(),
            tokens_in: counted(end.usage.tokens_in),
            tokens_out: counted(end.usage.tokens_out),
            cached: some(end.usage.cached),
            cache_written: some(end.usage.cache_written),
            calls: end.calls.iter().map(Into::into).collect(),
            own: end.own.iter().map(Into::into).collect(),
        }
    }
}

/// Makes the turn for a request that the provider rejected with `message`.
fn rejected_turn(request: &ModelRequest, message: &str) -> RecordedTurn {
    let origin = &request.origin;
    RecordedTurn {
        agent: origin.agent.clone(),
        thread: origin.labels().to_owned(),
        turn: origin.turn,
        reasoning: None,
        text: String::new(),
        rejected: Some(message.to_owned()),
        verbatim: false,
        stop: RecordedStop::Unknown,
        tokens_in: None,
        tokens_out: None,
        cached: None,
        cache_written: None,
        calls: Vec::new(),
        own: Vec::new(),
    }
}

/// A model whose answers are recorded.
#[derive(Debug)]
struct RecordingModel {
    model: SharedModel,
    recorder: Arc<TurnRecorder>,
}

impl RecordingModel {
    async fn record(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
        admission: Option<&dyn CallAdmission>,
    ) -> Result<StreamEnd, Error> {
        let mut answer = AnswerText::default();
        let mut take = |chunk: AnswerChunk<'_>| {
            answer.take(chunk);
            on_chunk(chunk);
        };

        let end = match admission {
            Some(admission) => self.model.call_admitted(request, &mut take, admission).await,
            None => self.model.call(request, &mut take).await,
        };

        match &end {
            Ok(end) => self.recorder.keep(request, answer.turn(request, end), &end.route),
            // The rejection of an agent's first request ends the call and is no turn.
            Err(error) if request.origin.turn > 1 => {
                if let (Some(message), Some(route)) = (error.feedback(), error.route()) {
                    self.recorder.keep(request, rejected_turn(request, message), route);
                }
            }
            Err(_) => {}
        }

        end
    }
}

impl ModelProvider for RecordingModel {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(self.record(request, on_chunk, None))
    }

    fn call_admitted<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_chunk: OnChunk<'a>,
        admission: &'a dyn CallAdmission,
    ) -> CallFuture<'a> {
        Box::pin(self.record(request, on_chunk, Some(admission)))
    }

    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        self.model.settings(route)
    }

    fn route(&self) -> ModelRoute {
        self.model.route()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListenerName, ThreadId};
    use crate::model::RequestOrigin;

    #[test]
    fn a_recording_is_complete_as_soon_as_a_write_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.toml");
        let recorder = TurnRecorder::create(&path, "a test").unwrap();
        let keep = |turn: u32| {
            let agent = ListenerName::core();
            let thread = ThreadId::organism();
            let request = ModelRequest {
                origin: RequestOrigin { agent, thread, turn, trace: None },
                system: String::new(),
                messages: Vec::new(),
                tools: Vec::new(),
                tool_choice: None,
                one_call: false,
                max_tokens: None,
                default_max_tokens: None,
            };
            let route = ModelRoute { provider: "fake".to_owned(), model: "m".to_owned() };
            recorder.keep(&request, rejected_turn(&request, "no"), &route);
        };
        let turns_in_file = || std::fs::read_to_string(&path).unwrap().matches("[[turn]]").count();

        // A directory in place of the temporary file makes each write fail.
        std::fs::create_dir(recorder.beside()).unwrap();
        keep(1);
        let summary = recorder.summary();
        assert_eq!(summary.turns, 1);
        assert!(summary.failure.is_some());

        std::fs::remove_dir(recorder.beside()).unwrap();
        keep(2);
        assert_eq!(turns_in_file(), 2);
        assert_eq!(recorder.summary().failure, None);

        // The last write failed, so the summary writes again.
        std::fs::create_dir(recorder.beside()).unwrap();
        keep(3);
        std::fs::remove_dir(recorder.beside()).unwrap();
        assert_eq!(recorder.summary().failure, None);
        assert_eq!(turns_in_file(), 3);
    }
}
