//! Rebuilds the model requests of recorded turns, byte for byte.
//!
//! A model request is made from the thread and from inputs of the turn, such as the prompt. The
//! journal stores these inputs, and the record of the turn contains their digests. So the request
//! can be rebuilt without a config. The config that was in force at the turn can also render the
//! request. If both requests are equal, the request is known to come from this config.

use std::sync::Arc;

use super::prompt_preview::{delivery, made, nothing, rendered, spec_of};
use super::{Error, PromptComparison, PromptPreview, with_core_words};
use crate::agent::{
    AgentEnvironment, ModelAgent, PastTurn, RendererVersion, TurnInputs, UnseenMessage,
};
use crate::config::{
    BootConfig, Config, ConfigHistory, ExtractedConfig, StoredConfig, StoredConfigError,
};
use crate::ids::{Digest, ListenerName, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::memory::{JournalMemory, ThreadHistory as _};
use crate::model::{ModelRequest, ModelTerms};
use crate::system;
use crate::thread::{Fact, Input, Record};

/// Maximum records in memory while the journal is searched for the record in which the pump
/// delivered a turn's call to the agent.
const RECORDS_AT_ONCE: u64 = 1_000;

/// A turn on record, with the journal that contains it.
#[derive(Debug)]
pub struct TurnOnRecord {
    reader: JournalReader,
    thread: ThreadId,
    note: PastTurn,
    /// The boot or reload whose config was in force when the pump delivered the turn's call to the
    /// agent. `None` if the journal has no boot before the turn.
    boot: Option<BootConfig>,
}

impl TurnOnRecord {
    /// Finds a turn of `agent` in a thread by its number `turn`, which counts from 1. Searches the
    /// records up to and including the position `up_to`; if `up_to` is `None`, all records. Returns
    /// `None` if these records contain no such turn.
    pub fn find(
        reader: JournalReader,
        agent: &ListenerName,
        thread: &ThreadId,
        turn: u32,
        up_to: Option<Position>,
    ) -> Result<Option<Self>, Error> {
        let records = reader.tree(&thread.root(), up_to)?;
        for sealed in &records {
            let mut notes = turns_of(&sealed.record).filter(|(of, _)| *of == thread);
            let note = notes.find(|(_, note)| note.agent == *agent && note.turn == turn);
            if let Some((_, note)) = note {
                let boot = config_of_turn(&reader, &note, &sealed.record)?;
                return Ok(Some(Self { reader, thread: thread.clone(), note, boot }));
            }
        }

        Ok(None)
    }

    /// Finds the turn of `agent` whose answer the record at `position` contains. Returns `None` if
    /// this record contains no turn of `agent`.
    pub fn at(
        reader: JournalReader,
        agent: &ListenerName,
        position: Position,
    ) -> Result<Option<Self>, Error> {
        let Some(sealed) = reader.record(position)? else { return Ok(None) };
        let found = turns_of(&sealed.record).find(|(_, note)| note.agent == *agent);
        let Some((thread, note)) = found else { return Ok(None) };
        let thread = thread.clone();
        let boot = config_of_turn(&reader, &note, &sealed.record)?;
        Ok(Some(Self { reader, thread, note, boot }))
    }

    /// Rebuilds the request of the turn from the journal alone.
    ///
    /// # Errors
    ///
    /// - If the turn has stored inputs: the errors of [`Self::preview`].
    /// - If it has none: the errors of [`Self::preview_with`], or an error if the stored config,
    ///   which such a turn needs, is missing or unreadable.
    pub fn preview_from_journal(&self) -> Result<PromptPreview, Error> {
        match self.config() {
            Ok(then) if self.has_inputs() => self.preview(Some(&then.config)),
            Ok(then) => self.preview_with(&then.config),
            Err(_) if self.has_inputs() => self.preview(None),
            Err(error) => Err(nothing(error.to_string())),
        }
    }

    /// Returns the journal position up to which the prompt of the turn contains messages of the
    /// thread.
    pub const fn position(&self) -> Position {
        self.note.position
    }

    /// Whether the journal has the inputs that the turn sent in addition to the thread.
    pub fn has_inputs(&self) -> bool {
        self.note.inputs.is_some()
    }

    /// Loads the config that was in force at the turn.
    ///
    /// # Errors
    ///
    /// [`StoredConfigError::NotStored`] if the turn is from a time at which journals did not store
    /// configs yet.
    pub fn config(&self) -> Result<ExtractedConfig, StoredConfigError> {
        let Some(boot) = &self.boot else {
            let config = Digest::ZERO;
            return Err(StoredConfigError::NotStored { position: Position(0), config });
        };
        StoredConfig::read(&self.reader, boot)?.extract()
    }

    /// Rebuilds the request of the turn from the turn's stored inputs. `config` is the config in
    /// force at the turn, if it is known.
    ///
    /// # Errors
    ///
    /// [`Error::Preview`] if the turn has no stored inputs, or if the rebuilt request differs from
    /// the request that the turn recorded.
    pub fn preview(&self, config: Option<&Config>) -> Result<PromptPreview, Error> {
        let PastTurn { agent, turn, .. } = &self.note;
        let Some(stored) = self.note.inputs else {
            return Err(nothing(format!("turn {turn} of {agent} stored no inputs")));
        };

        let inputs = self.inputs(stored)?;
        let history = self.history();
        let records = history.records(&self.thread, Position(0), self.note.position)?;
        let request = inputs.request(&records, &self.thread, &self.note);
        let request = request.ok_or_else(|| self.no_renderer(&inputs.renderer))?;
        let wire = inputs.wire(&request);
        let digest = Digest::of(wire.as_bytes());
        self.check(digest, "the thread has changed")?;

        let provider = inputs.native.as_deref();
        let again = config.map(|config| self.render(config, provider));
        let mut terms = ModelTerms::default();
        let mut comparison = None;
        match again {
            Some(Ok((agent, again))) => {
                terms = agent.terms().clone();
                comparison = Some(compare(&request, &again.request));
            }
            Some(Err(_)) => comparison = Some(PromptComparison::Differs { part: "agent" }),
            None => {}
        }

        Ok(PromptPreview {
            request,
            position: self.note.position,
            wire,
            digest,
            terms,
            notice: self.note.notice.clone(),
            recorded: self.note.prompt,
            config: self.boot.as_ref().map(|boot| boot.config),
            comparison,
            has_ended: false,
        })
    }

    /// Renders the request of a turn that has no stored inputs, with the config `config`. Returns
    /// the request only if its digest equals the digest that the turn recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Preview`] if `config` cannot reproduce the request.
    pub fn preview_with(&self, config: &Config) -> Result<PromptPreview, Error> {
        let now = config.digest;
        let (_, preview) = self.render(config, None)?;
        let digest = ModelAgent::digest(&preview.request);
        let why = format!(
            "it is from before turns stored what they send, and the config, the schemas or the \
             prompt files are no longer what they were (the config is {now} now)"
        );
        self.check(digest, &why)?;

        let config = self.boot.as_ref().map(|boot| boot.config);
        Ok(PromptPreview { digest, recorded: self.note.prompt, config, ..preview })
    }

    /// Returns the messages that precede the turn in its thread, but that the turn's request does
    /// not show. Returns `None` if the turn stored no inputs.
    ///
    /// # Errors
    ///
    /// [`Error::Preview`] if the stored inputs or the thread cannot be read.
    pub fn unseen(&self) -> Result<Option<Vec<UnseenMessage>>, Error> {
        let Some(stored) = self.note.inputs else { return Ok(None) };
        let inputs = self.inputs(stored)?;
        let records = self.history().records(&self.thread, Position(0), self.note.position)?;
        let unseen = inputs.unseen(&records, &self.thread, &self.note);
        unseen.map(Some).ok_or_else(|| self.no_renderer(&inputs.renderer))
    }

    /// Reads the stored inputs of the turn.
    fn inputs(&self, stored: Digest) -> Result<TurnInputs, Error> {
        let PastTurn { agent, turn, .. } = &self.note;
        let text = self.reader.blob(stored)?;
        let text = text.ok_or_else(|| {
            nothing(format!(
                "the request of turn {turn} of {agent} is not in the journal: {stored}"
            ))
        })?;

        TurnInputs::read(&text).map_err(|error| {
            nothing(format!(
                "the request of turn {turn} of {agent} cannot be decoded ({stored}): {error}"
            ))
        })
    }

    /// Renders the turn's request with a config. Uses the renderer version and the environment that
    /// the turn recorded. The request has the form for `provider`, or for the agent's first route
    /// if `provider` is `None`.
    fn render(
        &self,
        config: &Config,
        provider: Option<&str>,
    ) -> Result<(ModelAgent, PromptPreview), Error> {
        let config = with_core_words(config.clone())?;
        let spec = spec_of(&config, &self.note.agent)?;
        let agent = made(&config, spec, Arc::new(self.history()))?;
        // The turn may have been taken on another machine, so its recorded environment is used.
        let agent = match self.note.environment.as_deref() {
            Some(around) => agent.within(AgentEnvironment::read(around)),
            None => agent,
        };
        let version = RendererVersion::parse(&self.note.renderer);
        let version = version.ok_or_else(|| self.no_renderer(&self.note.renderer))?;
        let agent = agent.in_version(version);

        let PastTurn { call, position, .. } = self.note;
        let delivery = delivery(&self.note.agent, &self.thread, call, position);
        let preview = rendered(&agent, &delivery, provider, &config)?;
        Ok((agent, preview))
    }

    fn history(&self) -> JournalMemory {
        JournalMemory::new(self.reader.data().to_owned())
    }

    /// Compares `digest`, the digest of the rebuilt request, with the digest that the turn
    /// recorded. If they differ, returns an error that states the reason `why`. Accepts any request
    /// if the turn recorded no digest.
    fn check(&self, digest: Digest, why: &str) -> Result<(), Error> {
        let PastTurn { agent, turn, prompt, .. } = &self.note;
        match prompt {
            Some(sent) if *sent != digest => Err(nothing(format!(
                "turn {turn} of {agent} cannot be shown as it was sent: {why}. Its prompt had the \
                 SHA-256 {sent}, and what can be made now has {digest}"
            ))),
            _ => Ok(()),
        }
    }

    fn no_renderer(&self, version: &str) -> Error {
        nothing(format!(
            "turn {} of {} was rendered by version `{version}`, which this program does not have",
            self.note.turn, self.note.agent
        ))
    }
}

/// Returns the turns that a record contains, each with its thread.
pub(super) fn turns_of(record: &Record) -> impl Iterator<Item = (&ThreadId, PastTurn)> {
    record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.name == system::name(system::MODEL_TURN) => {
            Some((&message.thread, PastTurn::read(message.payload.as_str())?))
        }
        _ => None,
    })
}

/// Returns the config that was in force when the pump delivered the turn's call to the agent. A
/// reload may have replaced this config before the turn's answer. Returns `None` if the journal has
/// no boot before the turn.
fn config_of_turn(
    reader: &JournalReader,
    note: &PastTurn,
    answer: &Record,
) -> Result<Option<BootConfig>, Error> {
    let history = ConfigHistory::read(reader)?;
    let at_answer = history.at(answer.position);
    let Input::Outcome { call, attempt, .. } = &answer.input else { return Ok(at_answer.cloned()) };
    if at_answer.is_none_or(|config| config.position <= note.position) {
        return Ok(at_answer.cloned());
    }

    // The turn may read its thread up to a record long before its hand-over.
    let mut next = note.position;
    while next <= answer.position {
        let last = Position(next.0 + RECORDS_AT_ONCE - 1).min(answer.position);
        for sealed in reader.records(next, last)? {
            let is_hand_over = |fact: &Fact| match fact {
                Fact::HandedOver { call: of, attempt: own } => of == call && own == attempt,
                _ => false,
            };
            if sealed.record.facts.iter().any(is_hand_over) {
                return Ok(history.at(sealed.record.position).cloned());
            }
        }
        next = Position(last.0 + 1);
    }

    Ok(at_answer.cloned())
}

/// Compares the request `sent` of a turn with `again`, the request that the stored config renders
/// for the same turn.
fn compare(sent: &ModelRequest, again: &ModelRequest) -> PromptComparison {
    let parts = [
        ("system prompt", sent.system == again.system),
        ("tools", sent.tools == again.tools),
        ("tool choice", sent.tool_choice == again.tool_choice),
        ("number of calls in a turn", sent.one_call == again.one_call),
        ("limit of tokens", [again.max_tokens, again.answer_bound()].contains(&sent.max_tokens)),
        ("messages", sent.messages == again.messages),
    ];
    let differs = parts.into_iter().find(|(_, is_equal)| !is_equal);
    differs.map_or(PromptComparison::Equal, |(part, _)| PromptComparison::Differs { part })
}
