//! Everything that the journal records about one message: its envelope and bytes, its place in the
//! chain of records, its causes and effects, the decisions about it, and the config and schemas
//! that checked it.

use serde::Serialize;

use crate::config::{BootConfig, RecordedSchema, StoredConfigError, schemas_of};
use crate::envelope::MessageKind;
use crate::ids::{Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::index::{
    Error, IndexReader, IndexedAttempt, IndexedCall, IndexedError, IndexedHold, IndexedMessage,
    IndexedTurn, MessageSelector,
};
use crate::journal::HashedRecord;
use crate::limits;
use crate::system;
use crate::thread::{Decision, DecisionOrigin, Fact, Input, Verdict};
use crate::xml::scan::attributes;

use super::held::CallPreviewView;
use super::timeline::{SignedBy, signed_by};
use super::views::{MessageView, RefusalView};

/// A message with everything that the journal records about it.
#[derive(Debug, Clone, Serialize)]
pub struct MessageReport {
    #[serde(skip)]
    pub row: IndexedMessage,
    #[serde(flatten)]
    pub message: MessageView,
    #[serde(rename = "bytes")]
    pub bytes: usize,
    #[serde(rename = "record")]
    pub record: ChainedRecord,
    /// Position of the record that contains the message's disposition; `None` if the message has
    /// none.
    #[serde(rename = "disposed_position")]
    pub disposed: Option<Position>,
    /// The call that the message opened; `None` if it opened no call.
    #[serde(rename = "opened_call")]
    pub call: Option<IndexedCall>,
    #[serde(rename = "gate")]
    pub gate: GateVerdict,
    /// Payloads of this message's sender that were refused in the record of the message.
    #[serde(rename = "refused_beside")]
    pub refused_beside: Vec<RefusalView>,
    /// Refusals of payloads that the recipient of this message returned while it handled the call
    /// that the message opened.
    #[serde(rename = "refused_in_call")]
    pub refused_in_call: RefusalSummary,
    /// The model call in which the message was written; `None` if no model wrote the message.
    #[serde(rename = "turn")]
    pub turn: Option<IndexedTurn>,
    #[serde(rename = "config")]
    pub config: Option<RecordedConfig>,
    /// Schemas that declare the payload. Empty if the journal does not store them, for one of these
    /// reasons: the program contains the schema, the program generates it from the config, or the
    /// journal is older than stored configs.
    #[serde(rename = "schemas")]
    pub schemas: Vec<RecordedSchema>,
    /// The chain of causes that led to the message, from its direct cause to the client's message.
    #[serde(rename = "causes")]
    pub causes: Vec<IndexedMessage>,
    #[serde(rename = "caused")]
    pub effects: CausedMessages,
    #[serde(rename = "holds")]
    pub holds: Vec<MessageHold>,
    #[serde(rename = "previews")]
    pub previews: Vec<MessagePreview>,
    /// People's decisions about the call, in the order of the journal. If there are too many
    /// decisions, the list leaves out the oldest ones among those that the organism refused.
    #[serde(rename = "decisions")]
    pub decisions: Vec<MessageDecision>,
    /// Number of all decisions, including those that `decisions` leaves out.
    #[serde(rename = "decisions_total")]
    pub decisions_total: u64,
    #[serde(rename = "attempts")]
    pub attempts: Vec<IndexedAttempt>,
    #[serde(rename = "errors")]
    pub errors: Vec<IndexedError>,
}

/// The record that contains a message, and its neighbours in the chain of the tree's records.
#[derive(Debug, Clone, Serialize)]
pub struct ChainedRecord {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "hash")]
    pub hash: Digest,
    #[serde(rename = "tree")]
    pub tree: ThreadId,
    /// Position of the previous record of the tree; 0 for the first record.
    #[serde(rename = "previous")]
    pub previous: Position,
    #[serde(rename = "previous_hash")]
    pub previous_hash: Digest,
    /// Position of the last record of the tree.
    #[serde(rename = "head")]
    pub head: Position,
    #[serde(rename = "head_hash")]
    pub head_hash: Digest,
}

/// Way in which the payload of a message passed the gate, which checks every payload before it
/// becomes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum GateVerdict {
    #[serde(rename = "passed")]
    Passed,
    /// The gate accepted another payload. Either the other payload contains the payload of this
    /// message, or the core made this message from the other payload.
    #[serde(rename = "passed-within")]
    PassedWithin,
    /// The core wrote the message.
    #[serde(rename = "written-by-core")]
    WrittenByCore,
}

/// Refusals and their total number. If there are too many refusals, the list contains only some of
/// them.
#[derive(Debug, Clone, Serialize)]
pub struct RefusalSummary {
    #[serde(rename = "total")]
    pub total: u64,
    #[serde(rename = "refusals")]
    pub refusals: Vec<RefusalView>,
}

/// The messages that one message caused. If there are more messages than the caller's limit,
/// `messages` contains only the first and the last messages, half of the limit each.
#[derive(Debug, Clone, Serialize)]
pub struct CausedMessages {
    #[serde(rename = "total")]
    pub total: u64,
    /// Whether there are more caused messages than `total`. If true, the counting stopped at
    /// `total`.
    #[serde(rename = "more")]
    pub is_more: bool,
    #[serde(rename = "messages")]
    pub messages: Vec<IndexedMessage>,
}

/// The config in force when a message was recorded.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedConfig {
    #[serde(rename = "digest")]
    pub digest: Digest,
    #[serde(rename = "core_version")]
    pub core_version: u32,
    /// Position of the start or reload that put the config in force.
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "epoch")]
    pub epoch: u32,
}

/// A hold of a call, and the reason for the hold. During a hold, the call waits for a person.
#[derive(Debug, Clone, Serialize)]
pub struct MessageHold {
    #[serde(flatten)]
    pub hold: IndexedHold,
    #[serde(rename = "why")]
    pub why: Option<String>,
}

/// A preview of a held call.
#[derive(Debug, Clone, Serialize)]
pub struct MessagePreview {
    #[serde(rename = "position")]
    pub position: Position,
    #[serde(rename = "id")]
    pub id: MessageId,
    #[serde(rename = "preview")]
    pub preview: CallPreviewView,
}

/// The parts of a recorded call's request that a decision about the call names.
#[derive(Debug, Clone)]
pub struct DecidedRequest {
    pub to: ListenerName,
    pub name: PayloadName,
    /// SHA-256 of the payload.
    pub sha256: Digest,
    /// SHA-256 of the newest preview; `None` if the call has no recorded preview.
    pub preview_sha256: Option<Digest>,
}

/// A person's decision about a held call.
#[derive(Debug, Clone, Serialize)]
pub struct MessageDecision {
    #[serde(rename = "position")]
    pub position: Position,
    /// Time of the decision, in RFC 3339.
    #[serde(rename = "time")]
    pub time: String,
    #[serde(rename = "action")]
    pub action: &'static str,
    #[serde(rename = "by")]
    pub by: ListenerName,
    /// Whether the decision was accepted and carried out. False if it was refused.
    #[serde(rename = "accepted")]
    pub accepted: bool,
    /// Digest of the payload that the person has seen. May be shortened to its first digits. `None`
    /// if the decision is no approval.
    #[serde(rename = "saw_payload")]
    pub payload: Option<String>,
    /// Digest of the preview that the person has seen; `None` if the decision names no preview.
    #[serde(rename = "saw_preview")]
    pub preview: Option<String>,
    #[serde(rename = "reason")]
    pub reason: Option<String>,
    #[serde(rename = "origin")]
    pub origin: Option<DecisionOrigin>,
    #[serde(rename = "signed")]
    pub signed: Option<SignedBy>,
}

/// Result of a search for a message by the first characters of its id.
#[derive(Debug)]
pub enum FoundMessage {
    None,
    One(Box<MessageReport>),
    /// Several messages, whose ids all begin with the wanted characters.
    Several(Vec<IndexedMessage>),
}

/// Reports on the message whose id begins with `prefix`. The report lists at most `effects_max` of
/// the messages that this message caused. Reads the index, and also reads from the journal each
/// record that the report quotes.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn message_report(
    index: &IndexReader,
    prefix: &MessageSelector,
    effects_max: usize,
) -> Result<FoundMessage, Error> {
    let found = index.messages_with_id(prefix, limits::CANDIDATES_MAX)?;
    match found.as_slice() {
        [] => Ok(FoundMessage::None),
        [message] => {
            let report = report(index, message, effects_max)?;
            Ok(report.map_or(FoundMessage::None, |report| FoundMessage::One(Box::new(report))))
        }
        _ => Ok(FoundMessage::Several(found)),
    }
}

/// Returns the request of the call that `message` opened, whether the call is over or not. Returns
/// `None` if the journal has no such call.
pub fn recorded_request(
    index: &IndexReader,
    message: MessageId,
) -> Result<Option<DecidedRequest>, Error> {
    let Some(selector) = MessageSelector::parse(&message.to_string()) else { return Ok(None) };
    let Some(row) = index.messages_with_id(&selector, 1)?.pop() else { return Ok(None) };
    if index.opened_call(&row)?.is_none() {
        return Ok(None);
    }

    let sealed = index.journal().existing_record(row.position)?;
    let Some(request) = message_of(&sealed, &row) else { return Ok(None) };
    let mut previews = previews(index, &row)?.into_iter().rev();
    let preview_sha256 = previews.find_map(|preview| preview.preview.sha256());
    let MessageView { to, name, digest: sha256, .. } = request;
    Ok(Some(DecidedRequest { to, name, sha256, preview_sha256 }))
}

fn report(
    index: &IndexReader,
    row: &IndexedMessage,
    effects_max: usize,
) -> Result<Option<MessageReport>, Error> {
    let sealed = index.journal().existing_record(row.position)?;
    let Some(message) = message_of(&sealed, row) else { return Ok(None) };
    let boot = boot_of(index, row.position)?;
    let (schemas, config) = match &boot {
        Some(boot) => (schemas(index, boot, &message.name)?, Some(RecordedConfig::of(boot))),
        None => (Vec::new(), None),
    };
    let (messages, total) = index.effects(row, effects_max)?;
    let effects = CausedMessages { total: total.number(), is_more: !total.is_exact(), messages };
    let turn = index.turn_at(row.position)?.filter(|turn| is_by(turn, &message));
    let (decisions, decisions_total) = decisions(index, row)?;

    Ok(Some(MessageReport {
        bytes: message_bytes(&sealed, row.id),
        record: ChainedRecord::of(index, &sealed)?,
        disposed: row.disposed,
        call: index.opened_call(row)?,
        gate: gate_verdict(&sealed, &message),
        refused_beside: refused_beside(&sealed, &message),
        refused_in_call: refused_in_call(index, row)?,
        turn,
        config,
        schemas,
        causes: index.causes(row)?,
        effects,
        holds: holds(index, row)?,
        previews: previews(index, row)?,
        decisions,
        decisions_total,
        attempts: index.attempts(row)?,
        errors: index.errors_of(row)?,
        row: row.clone(),
        message,
    }))
}

fn message_of(sealed: &HashedRecord, row: &IndexedMessage) -> Option<MessageView> {
    let is_meant = |fact: &Fact| match fact {
        Fact::Accepted { message, .. } if message.id == row.id => {
            Some(MessageView::new(sealed.record.position, message))
        }
        _ => None,
    };
    let mut message = sealed.record.facts.iter().find_map(is_meant)?;
    message.disposition = row.disposition;
    Some(message)
}

fn message_bytes(sealed: &HashedRecord, id: MessageId) -> usize {
    let length = |fact: &Fact| match fact {
        Fact::Accepted { message, .. } if message.id == id => Some(message.payload.len()),
        _ => None,
    };
    sealed.record.facts.iter().find_map(length).unwrap_or_default()
}

impl ChainedRecord {
    fn of(index: &IndexReader, sealed: &HashedRecord) -> Result<Self, Error> {
        let HashedRecord { record, hash, .. } = sealed;
        let journal = index.journal();
        let head = journal.head(&record.tree)?.unwrap_or(record.position);
        let head_hash =
            if head == record.position { *hash } else { journal.existing_record(head)?.hash };
        Ok(Self {
            position: record.position,
            hash: *hash,
            tree: record.tree.clone(),
            previous: record.previous,
            previous_hash: record.previous_hash,
            head,
            head_hash,
        })
    }
}

impl MessageReport {
    /// Returns the number of decisions that the report leaves out: the oldest decisions that the
    /// organism refused.
    pub fn decisions_left_out(&self) -> u64 {
        self.decisions_total.saturating_sub(self.decisions.len() as u64)
    }
}

impl RecordedConfig {
    fn of(boot: &BootConfig) -> Self {
        Self {
            digest: boot.config,
            core_version: boot.core_version,
            position: boot.position,
            epoch: boot.epoch,
        }
    }
}

/// Whether the message belongs to `turn`. True if the message is the `model-turn` note of the turn,
/// or if the agent that took the turn sent it.
fn is_by(turn: &IndexedTurn, message: &MessageView) -> bool {
    turn.note == message.id || turn.agent == message.from.as_str()
}

fn boot_of(index: &IndexReader, position: Position) -> Result<Option<BootConfig>, Error> {
    let Some(boot) = index.boot_before(position)? else { return Ok(None) };
    let sealed = index.journal().existing_record(boot)?;
    Ok(BootConfig::of_record(&sealed.record))
}

fn schemas(
    index: &IndexReader,
    boot: &BootConfig,
    name: &PayloadName,
) -> Result<Vec<RecordedSchema>, Error> {
    match schemas_of(index.journal(), boot, name) {
        Err(StoredConfigError::Journal(error)) => Err(error.into()),
        // Journals that are older than stored configs name no schema.
        other => Ok(other.unwrap_or_default()),
    }
}

fn gate_verdict(sealed: &HashedRecord, message: &MessageView) -> GateVerdict {
    let mut verdicts = sealed.record.input.verdicts().iter();
    if verdicts.any(|verdict| matches!(verdict, Verdict::Passed(of) if *of == message.digest)) {
        GateVerdict::Passed
    } else if message.from.is_core() {
        GateVerdict::WrittenByCore
    } else {
        GateVerdict::PassedWithin
    }
}

fn refused_beside(sealed: &HashedRecord, message: &MessageView) -> Vec<RefusalView> {
    let mut refusals = refusals_of(sealed);
    refusals.retain(|refusal| refusal.sender == message.from);
    refusals
}

fn refusals_of(sealed: &HashedRecord) -> Vec<RefusalView> {
    let record = &sealed.record;
    let view = |fact: &Fact| match fact {
        Fact::Refused { sender, thread, refusal, .. } => {
            let thread = thread.as_ref();
            Some(RefusalView::new(record.position, record.time, sender, thread, refusal))
        }
        _ => None,
    };
    record.facts.iter().filter_map(view).collect()
}

fn refused_in_call(index: &IndexReader, row: &IndexedMessage) -> Result<RefusalSummary, Error> {
    let (records, total) = index.refusals_in_call(row)?;
    let mut refusals = Vec::new();
    for position in records {
        refusals.extend(refusals_of(&index.journal().existing_record(position)?));
    }
    refusals.truncate(limits::MESSAGE_ROWS_MAX);
    Ok(RefusalSummary { total, refusals })
}

fn holds(index: &IndexReader, row: &IndexedMessage) -> Result<Vec<MessageHold>, Error> {
    let mut holds = Vec::new();
    for hold in index.holds(row)? {
        let sealed = index.journal().existing_record(hold.position)?;
        holds.push(MessageHold { why: reason_of_hold(&sealed, row.id), hold });
    }
    Ok(holds)
}

/// Returns the reason for the hold of the call `held`, as the core states it in the record
/// `sealed`. Returns `None` if the record states no reason.
fn reason_of_hold(sealed: &HashedRecord, held: MessageId) -> Option<String> {
    let requested = system::name("approval-requested");
    sealed.record.facts.iter().find_map(|fact| {
        let Fact::Accepted { message, .. } = fact else { return None };
        let is_request = message.kind == MessageKind::Note || message.kind == MessageKind::System;
        if !is_request || message.name != requested {
            return None;
        }

        let values = attributes(message.payload.as_str());
        let get = |name: &str| values.iter().find(|(called, _)| *called == name);
        let (_, of) = get("message_id")?;
        let (_, why) = get("why")?;
        (of.parse() == Ok(held)).then(|| why.to_string())
    })
}

fn previews(index: &IndexReader, row: &IndexedMessage) -> Result<Vec<MessagePreview>, Error> {
    let name = system::name(system::PREVIEW).to_string();
    let mut previews = Vec::new();
    for note in index.previews(row, &name)? {
        let sealed = index.journal().existing_record(note.position)?;
        previews.extend(sealed.record.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.id == note.id => Some(MessagePreview {
                position: note.position,
                id: note.id,
                preview: CallPreviewView::recorded(message),
            }),
            _ => None,
        }));
    }
    Ok(previews)
}

/// Returns people's decisions about a call, and the number of all these decisions. If there are too
/// many decisions, the list leaves out the oldest ones among those that the organism refused.
fn decisions(
    index: &IndexReader,
    row: &IndexedMessage,
) -> Result<(Vec<MessageDecision>, u64), Error> {
    let (found, total) = index.decisions(row)?;
    let mut decisions = Vec::new();
    for (position, accepted) in found {
        let sealed = index.journal().existing_record(position)?;
        decisions.extend(decision(&sealed, accepted));
    }
    Ok((decisions, total))
}

fn decision(sealed: &HashedRecord, accepted: bool) -> Option<MessageDecision> {
    let record = &sealed.record;
    let Input::Decided { by, decision, origin, .. } = &record.input else { return None };
    let mut payload = None;
    let mut preview = None;
    let mut reason = None;
    match decision {
        Decision::Approve { hash, preview: seen } => {
            payload = Some(hash.clone());
            preview.clone_from(seen);
        }
        Decision::Refuse { reason: stated } => reason = Some(stated.clone()),
        Decision::Answer(_) => {}
    }

    Some(MessageDecision {
        position: record.position,
        time: record.time.to_string(),
        action: decision.verb(),
        by: by.clone(),
        accepted,
        payload,
        preview,
        reason,
        signed: origin.as_ref().and_then(|origin| signed_by(record, origin)),
        origin: origin.clone(),
    })
}
