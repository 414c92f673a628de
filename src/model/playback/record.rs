//! Recording: every answer of a live run, written as a file that can be played.
//!
//! A recording knows turns by agent, labels and number, and not by root thread: of several runs
//! of the same work, the first is kept. The nonce of a turn is another one in every run: its
//! placeholder is written in its place.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::form::{RecordedTurn, Recording};
use super::nonce;
use crate::model::answer::{Chunk, End, Route};
use crate::model::request::Request;
use crate::model::{Admission, Calling, Error, Model, OnChunk, Provider, WireSettings};

/// Writes down what models answer.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// What the file says of itself.
    recorded: String,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    /// By agent, labels and turn.
    turns: BTreeMap<(String, String, u32), Kept>,
    model: Option<String>,
    skipped: usize,
    failure: Option<String>,
}

#[derive(Debug)]
struct Kept {
    root: String,
    turn: RecordedTurn,
}

/// What a recorder has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    pub turns: usize,
    /// Turns of other root threads that have the place of a recorded one.
    pub skipped: usize,
    /// Why the file does not hold everything.
    pub failure: Option<String>,
}

impl Recorder {
    /// Starts a file with no turns in it.
    pub fn create(path: &Path, recorded: &str) -> std::io::Result<Self> {
        let (path, recorded) = (path.to_owned(), recorded.to_owned());
        let recorder = Self { path, recorded, shelf: Mutex::default() };
        recorder.write(&recorder.shelf())?;
        Ok(recorder)
    }

    /// `model`, with every answer of it written down.
    pub fn around(self: &Arc<Self>, model: Model) -> Model {
        Arc::new(Overheard { model, recorder: Arc::clone(self) })
    }

    pub fn so_far(&self) -> Recorded {
        let shelf = self.shelf();
        let failure = shelf.failure.clone();
        Recorded { turns: shelf.turns.len(), skipped: shelf.skipped, failure }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn that is taken again has the place of the one before.
    fn keep(&self, request: &Request, said: Said, end: &End) {
        let origin = &request.origin;
        let root = origin.thread.as_str().split('.').next().unwrap_or_default().to_owned();
        let turn = said.turn(request, end);
        let key = (turn.agent.to_string(), turn.thread.clone(), turn.turn);
        let mut shelf = self.shelf();
        if shelf.turns.get(&key).is_some_and(|kept| kept.root != root) {
            shelf.skipped += 1;
            return;
        }
        shelf.turns.insert(key, Kept { root, turn });
        shelf.model.get_or_insert_with(|| end.route.to_string());
        if let Err(error) = self.write(&shelf) {
            tracing::error!("{}: {error}", self.path.display());
            shelf.failure = Some(error.to_string());
        }
    }

    /// The whole file, in the place of the old one at once.
    fn write(&self, shelf: &Shelf) -> std::io::Result<()> {
        let recording = Recording {
            recorded: self.recorded.clone(),
            model: shelf.model.clone().unwrap_or_else(|| "recorded".to_owned()),
            turns: shelf.turns.values().map(|kept| kept.turn.clone()).collect(),
        };
        let text = toml::to_string_pretty(&recording).map_err(std::io::Error::other)?;
        let mut beside = self.path.clone().into_os_string();
        beside.push(".part");
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)
    }
}

#[derive(Debug, Default)]
struct Said {
    text: String,
    reasoning: String,
}

impl Said {
    fn hear(&mut self, chunk: Chunk<'_>) {
        match chunk {
            Chunk::Text(text) => self.text.push_str(text),
            Chunk::Reasoning(text) => self.reasoning.push_str(text),
            Chunk::Withheld(_) | Chunk::Waiting(..) | Chunk::Failed(_) => {}
            Chunk::Restart => *self = Self::default(),
        }
    }

    fn turn(self, request: &Request, end: &End) -> RecordedTurn {
        let origin = &request.origin;
        let counted = |tokens: u64| (!end.usage.estimated).then_some(tokens);
        let some = |tokens: u64| (tokens > 0).then_some(tokens);
        RecordedTurn {
            agent: origin.agent.clone(),
            thread: origin.labels().to_owned(),
            turn: origin.turn,
            reasoning: (!self.reasoning.is_empty()).then_some(self.reasoning),
            verbatim: self.text.contains("{{"),
            text: match nonce::told(request) {
                Some(nonce) => self.text.replace(nonce, nonce::PLACEHOLDER),
                None => self.text,
            },
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

/// A model whose answers are written down.
#[derive(Debug)]
struct Overheard {
    model: Model,
    recorder: Arc<Recorder>,
}

impl Overheard {
    async fn record(
        &self,
        request: &Request,
        on_chunk: OnChunk<'_>,
        admission: Option<&dyn Admission>,
    ) -> Result<End, Error> {
        let mut said = Said::default();
        let mut hear = |chunk: Chunk<'_>| {
            said.hear(chunk);
            on_chunk(chunk);
        };

        let end = match admission {
            Some(admission) => self.model.call_admitted(request, &mut hear, admission).await,
            None => self.model.call(request, &mut hear).await,
        };
        if let Ok(end) = &end {
            self.recorder.keep(request, said, end);
        }
        end
    }
}

impl Provider for Overheard {
    fn call<'a>(&'a self, request: &'a Request, on_chunk: OnChunk<'a>) -> Calling<'a> {
        Box::pin(self.record(request, on_chunk, None))
    }

    fn call_admitted<'a>(
        &'a self,
        request: &'a Request,
        on_chunk: OnChunk<'a>,
        admission: &'a dyn Admission,
    ) -> Calling<'a> {
        Box::pin(self.record(request, on_chunk, Some(admission)))
    }

    fn settings(&self, route: &Route) -> Option<WireSettings> {
        self.model.settings(route)
    }

    fn route(&self) -> Route {
        self.model.route()
    }
}
