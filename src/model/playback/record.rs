//! Recording: writes every answer of a live run to a file that playback can play. Also writes the
//! rejections of requests, because an agent gets a rejection as feedback and continues.
//!
//! A recording identifies a turn by agent, thread labels and turn number, without the root thread.
//! Turns of several root threads may have the same three values. Therefore, a recording contains
//! the turns of one root thread: the one that the recorder was created for, or else the first one
//! that takes a turn. In place of a nonce, the recording contains a placeholder, because each run
//! has other nonces.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::recording_file::{RecordedStop, RecordedTurn, RecordingFile};
use super::{PROVIDER, nonce};
use crate::durable_file;
use crate::ids::ThreadId;
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
    /// Path of the temporary file. A recording is first written to this file, which is then renamed
    /// to `path`. It has a name of its own, so that no other file is lost.
    unfinished: PathBuf,
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
    /// The root thread whose turns are recorded; `None` until it is known.
    root: Option<ThreadId>,
    /// Recorded turns by agent, thread labels and turn number.
    turns: BTreeMap<(String, String, u32), CollectedTurn>,
    model: Option<String>,
    skipped: usize,
    /// Whether the file has been written at least once.
    is_written: bool,
    /// Why the file lacks turns: the error of the last write. `None` if that write succeeded.
    failure: Option<RecordingFailure>,
}

#[derive(Debug)]
struct CollectedTurn {
    /// Whether the answer was played from a recording, so that no live model was called.
    is_played: bool,
    turn: RecordedTurn,
}

/// Error of a write of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingFailure {
    pub kind: std::io::ErrorKind,
    pub message: String,
}

impl From<std::io::Error> for RecordingFailure {
    fn from(error: std::io::Error) -> Self {
        Self { kind: error.kind(), message: error.to_string() }
    }
}

/// Result of a recording: the numbers of kept and skipped turns, and whether the file is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecorderSummary {
    pub turns: usize,
    /// Number of turns that were not kept, because they belong to another root thread.
    pub skipped: usize,
    /// Whether the file has been written at least once.
    pub is_written: bool,
    /// Reason why the file lacks turns, or `None` if it is complete.
    pub failure: Option<RecordingFailure>,
}

impl TurnRecorder {
    /// Creates a recorder for the recording file `path`, and checks that this file can be written.
    /// The recorder writes the file from the first turn on, so that a run without a turn keeps an
    /// existing recording.
    pub fn create(path: &Path, recorded: &str) -> std::io::Result<Self> {
        if path.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let mut unfinished = path.to_owned().into_os_string();
        unfinished.push(format!(".{}.part", Uuid::now_v7().simple()));
        let recorder = Self {
            path: path.to_owned(),
            unfinished: unfinished.into(),
            recorded: recorded.to_owned(),
            states_models: false,
            collected: Mutex::default(),
        };
        File::create_new(&recorder.unfinished)?;
        std::fs::remove_file(&recorder.unfinished)?;
        Ok(recorder)
    }

    /// Makes the recorder keep only the turns of the root thread `root` and of its subthreads.
    pub fn of_thread(self, root: ThreadId) -> Self {
        locked(&self.collected).root = Some(root);
        self
    }

    /// Makes the recorder state in the recording's description which models answered: live models,
    /// recorded turns, or both.
    pub fn with_models_stated(mut self) -> Self {
        self.states_models = true;
        self
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

        let turns = collected.turns.len();
        let skipped = collected.skipped;
        let is_written = collected.is_written;
        let failure = collected.failure.clone();
        RecorderSummary { turns, skipped, is_written, failure }
    }

    /// Adds a turn to the recording, or skips it if it belongs to another root thread than the
    /// recorded one. A turn with the same agent, thread labels and turn number replaces the earlier
    /// one. `route` answered the request or rejected it.
    fn keep(&self, request: &ModelRequest, turn: RecordedTurn, route: &ModelRoute) {
        let root = request.origin.thread.root();
        let key = (turn.agent.to_string(), turn.thread.clone(), turn.turn);
        let mut collected = locked(&self.collected);
        if *collected.root.get_or_insert_with(|| root.clone()) != root {
            collected.skipped += 1;
            return;
        }

        let is_played = route.provider == PROVIDER;
        collected.turns.insert(key, CollectedTurn { is_played, turn });
        collected.model.get_or_insert_with(|| route.to_string());
        self.save(&mut collected);
    }

    /// Writes the whole recording, and keeps the error if the write fails.
    fn save(&self, collected: &mut CollectedTurns) {
        let failure = self.write(collected).err();
        if let Some(error) = &failure {
            tracing::error!("{}: {error}", self.path.display());
        }
        collected.is_written |= failure.is_none();
        collected.failure = failure.map(RecordingFailure::from);
    }

    /// Writes the whole recording, and replaces the old file atomically. Leaves no temporary file
    /// if the write fails.
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
        // The name is this recorder's own, so a file with it is left from a write that failed, and
        // whose removal failed, too.
        let mut file = File::create(&self.unfinished)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&self.unfinished, &self.path));
        if written.is_err() {
            // The first error is the one to report.
            durable_file::remove(&self.unfinished).ok();
        }
        written
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
                // The route that decides whether a retry may help can be another one.
                let route = error.rejection().and_then(Error::route);
                if let (Some(message), Some(route)) = (error.feedback(), route) {
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
    use crate::ids::ListenerName;
    use crate::model::RequestOrigin;

    /// Records the rejection of a request of the turn `turn` in `thread`.
    fn keep(recorder: &TurnRecorder, thread: &str, turn: u32) {
        let agent = ListenerName::core();
        let thread = ThreadId::parse(thread).unwrap();
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
    }

    fn names_in(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_recording_is_complete_as_soon_as_a_write_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.toml");
        let recorder = TurnRecorder::create(&path, "a test").unwrap();
        let turns_in_file = || std::fs::read_to_string(&path).unwrap().matches("[[turn]]").count();

        // A directory in place of the temporary file makes each write fail.
        std::fs::create_dir(&recorder.unfinished).unwrap();
        keep(&recorder, "sess-aaaaaaaa", 1);
        let summary = recorder.summary();
        assert_eq!(summary.turns, 1);
        assert!(!summary.is_written);
        let failure = summary.failure.unwrap();
        assert_eq!(failure.kind, std::io::ErrorKind::IsADirectory, "{failure:?}");

        std::fs::remove_dir(&recorder.unfinished).unwrap();
        keep(&recorder, "sess-aaaaaaaa", 2);
        assert_eq!(turns_in_file(), 2);
        assert_eq!(recorder.summary().failure, None);

        // A file that a failed write has left is replaced.
        std::fs::write(&recorder.unfinished, "the beginning of a longer text").unwrap();
        keep(&recorder, "sess-aaaaaaaa", 2);
        assert_eq!(turns_in_file(), 2);
        assert_eq!(recorder.summary().failure, None);

        // The last write failed, so the summary writes again.
        std::fs::create_dir(&recorder.unfinished).unwrap();
        keep(&recorder, "sess-aaaaaaaa", 3);
        std::fs::remove_dir(&recorder.unfinished).unwrap();
        assert_eq!(recorder.summary().failure, None);
        assert!(recorder.summary().is_written);
        assert_eq!(turns_in_file(), 3);
    }

    #[test]
    fn a_recording_changes_no_other_file_and_leaves_none_if_its_write_fails() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.toml");
        let other = directory.path().join("out.toml.part");
        std::fs::write(&other, "another file").unwrap();
        let recorder = TurnRecorder::create(&path, "a test").unwrap();
        // A directory in place of the recording makes each rename fail.
        std::fs::create_dir(&path).unwrap();
        keep(&recorder, "sess-aaaaaaaa", 1);
        assert!(recorder.summary().failure.is_some());
        assert_eq!(names_in(directory.path()), ["out.toml", "out.toml.part"]);

        std::fs::remove_dir(&path).unwrap();
        assert_eq!(recorder.summary().failure, None);
        assert_eq!(names_in(directory.path()), ["out.toml", "out.toml.part"]);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "another file");
    }

    #[test]
    fn a_recording_contains_the_turns_of_one_root_thread() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.toml");
        let root = ThreadId::parse("sess-bbbbbbbb").unwrap();
        let recorders = [
            TurnRecorder::create(&path, "a test").unwrap(),
            TurnRecorder::create(&path, "a test").unwrap().of_thread(root),
        ];
        let threads =
            ["sess-aaaaaaaa", "sess-bbbbbbbb.part", "sess-aaaaaaaa", "sess-aaaaaaaa.part"];
        for (recorder, turns) in recorders.into_iter().zip([3, 1]) {
            for (turn, thread) in (1..).zip(threads) {
                keep(&recorder, thread, turn);
            }
            let summary = recorder.summary();
            assert_eq!((summary.turns, summary.skipped), (turns, 4 - turns), "{summary:?}");
        }
    }
}
