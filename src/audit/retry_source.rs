//! Finds the message that an operator wants to retry, with all data that a retry needs.

use crate::envelope::{Message, MessageKind, Refusal, RefusalRule};
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, HashedRecord};
use crate::system;
use crate::thread::{Closing, Fact, Input, Map, Record};
use crate::xml::scan::attributes;

/// Code of the `system-error` of a call whose last attempt was lost.
pub const UNKNOWN_OUTCOME: &str = "unknown-outcome";

/// A message that can be retried: a call that failed or was cancelled, or a refused submission of a
/// client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrySource {
    pub message: MessageId,
    pub record: Position,
    /// Root of the tree that contains the message's record.
    pub tree: ThreadId,
    /// Root of the tree in which the message is retried. `None` if the message is a submission that
    /// was refused before it got a tree.
    pub thread: Option<ThreadId>,
    pub sender: ListenerName,
    /// The recipient of the call; `None` for a refused submission.
    pub to: Option<ListenerName>,
    /// The key by which a repetition of the client's submission is recognized. `None` for a call,
    /// for a submission without a key, and for a submission that was refused because its key was in
    /// use.
    pub key: Option<String>,
    pub payload: String,
    /// Whether it is unknown how far a listener handled this call. If this call is a retry, also
    /// true if one of the calls that it repeats has an unknown outcome.
    pub is_unknown: bool,
}

/// Why a message cannot be retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    #[error("no such message is on record there")]
    Missing,
    #[error("it opened no call: only a call is retried, and a submission that was refused")]
    NoCall,
    #[error("its call is open; it may still succeed, or end it with `organism cancel`")]
    Open,
    #[error(
        "its call ended with its result; `organism fork` tries another course, and \
         `organism send` sends it once more"
    )]
    Completed,
    #[error("its payload is redacted, and cannot be sent again")]
    Redacted,
    #[error(
        "the record has only the first {} bytes of what was refused; send it again with \
         `organism send`",
        crate::limits::REFUSAL_HEAD_BYTES
    )]
    Incomplete,
    #[error("every gate refuses this text, whatever the config is: {0}; send it in a correct form")]
    Text(RefusalRule),
    #[error("nothing on record tells which client sent it; give the command again")]
    NoClient,
}

impl RetryError {
    /// Returns why no retry of `message` can ever succeed, or `None` if a retry may succeed.
    /// `record` is the record of the message.
    pub(super) fn lasting(record: &Record, message: MessageId) -> Option<Self> {
        if let Some(refused) = SubmissionRefusal::find(record, message) {
            return refused.lasting_error();
        }
        let (call, _) = accepted(record, message)?;
        (!call.payload.is_intact()).then_some(Self::Redacted)
    }
}

/// A refused submission of a client and its refusal, read from their record.
pub struct SubmissionRefusal<'r> {
    key: &'r Option<String>,
    pub sender: &'r ListenerName,
    pub thread: Option<&'r ThreadId>,
    pub refusal: &'r Refusal,
}

impl<'r> SubmissionRefusal<'r> {
    /// Returns the refusal of the submission whose message has the id `message`. Returns `None` if
    /// the record contains no such refusal.
    pub fn find(record: &'r Record, message: MessageId) -> Option<Self> {
        let key = match &record.input {
            Input::Submitted { id, key, .. } if *id == message => key,
            _ => return None,
        };
        record.facts.iter().find_map(|fact| match fact {
            Fact::Refused { sender, thread, refusal, .. } => {
                Some(Self { key, sender, thread: thread.as_ref(), refusal })
            }
            _ => None,
        })
    }

    /// Returns why no retry of the submission can ever succeed, or `None` if a retry may succeed.
    fn lasting_error(&self) -> Option<RetryError> {
        let rule = self.refusal.rule;
        if rule.has_no_client() {
            Some(RetryError::NoClient)
        } else if rule.is_of_text() {
            // The record has such a text in another form if the text is not UTF-8.
            Some(RetryError::Text(rule))
        } else if !self.is_whole() {
            Some(RetryError::Incomplete)
        } else {
            None
        }
    }

    /// Whether the record contains the whole text of the submission.
    fn is_whole(&self) -> bool {
        Digest::of(self.refusal.head.as_bytes()) == self.refusal.digest
    }
}

impl RetrySource {
    /// Finds a message for a retry by its id and the position of its record. The outer error is an
    /// error of the journal, and the inner error states why the message cannot be retried.
    pub fn find(
        reader: &JournalReader,
        position: Position,
        message: MessageId,
    ) -> Result<Result<Self, RetryError>, Error> {
        let Some(sealed) = reader.record(position)? else { return Ok(Err(RetryError::Missing)) };
        let record = &sealed.record;
        if let Some(refused) = SubmissionRefusal::find(record, message) {
            if let Some(error) = refused.lasting_error() {
                return Ok(Err(error));
            }
            let SubmissionRefusal { key, sender, thread, refusal } = refused;
            return Ok(Ok(Self {
                message,
                record: position,
                tree: record.tree.clone(),
                thread: thread.map(ThreadId::root),
                sender: sender.clone(),
                to: None,
                key: key.clone().filter(|_| refusal.rule != RefusalRule::KeyReused),
                payload: refusal.head.clone(),
                is_unknown: false,
            }));
        }

        let Some((call, is_call)) = accepted(record, message) else {
            return Ok(Err(RetryError::Missing));
        };
        if !is_call {
            return Ok(Err(RetryError::NoCall));
        }
        let records = reader.tree(&record.tree, None)?;
        Ok(Self::of_call(record, call, &records))
    }

    fn of_call(
        record: &Record,
        call: &Message,
        records: &[HashedRecord],
    ) -> Result<Self, RetryError> {
        match closing(records, call.id) {
            None => return Err(RetryError::Open),
            Some(Closing::Completed) => return Err(RetryError::Completed),
            Some(Closing::Failed | Closing::Cancelled) => {}
        }
        if !call.payload.is_intact() {
            return Err(RetryError::Redacted);
        }

        Ok(Self {
            message: call.id,
            record: record.position,
            tree: record.tree.clone(),
            thread: Some(record.tree.clone()),
            sender: call.from.clone(),
            to: Some(call.to.clone()),
            key: None,
            payload: call.payload.as_str().to_owned(),
            is_unknown: has_unknown_outcome(records, call.id),
        })
    }
}

/// Returns the message with the id `id` in a record, and whether it opened a call. Returns `None`
/// if the record accepted no such message.
fn accepted(record: &Record, id: MessageId) -> Option<(&Message, bool)> {
    record.facts.iter().find_map(|fact| match fact {
        Fact::Accepted { message, opening, .. } if message.id == id => {
            Some((&**message, opening.is_some()))
        }
        _ => None,
    })
}

fn closing(records: &[HashedRecord], call: MessageId) -> Option<Closing> {
    let mut facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    facts.find_map(|fact| match fact {
        Fact::CallClosed { call: closed, how } if closed.0 == call => Some(*how),
        _ => None,
    })
}

/// Whether the call ended as `unknown-outcome`, because its last attempt was lost. If the call is a
/// retry, also true if one of the calls that it repeats ended this way.
fn has_unknown_outcome(records: &[HashedRecord], call: MessageId) -> bool {
    let mut sources = Map::default();
    for sealed in records {
        for fact in &sealed.record.facts {
            if let Fact::Retried { message, retry } = fact {
                // One retry may have opened several legs.
                let legs = sealed.record.facts.iter().filter_map(|fact| match fact {
                    Fact::Accepted { message, opening: Some(_), .. } => Some(message.id),
                    _ => None,
                });
                sources.extend(legs.chain([*retry]).map(|leg| (leg, *message)));
            }
        }
    }

    let mut chain = std::iter::successors(Some(call), |id| sources.get(id).copied());
    chain.any(|id| records.iter().any(|sealed| ended_unknown(&sealed.record, CallId(id))))
}

fn ended_unknown(record: &Record, call: CallId) -> bool {
    let Some((_, messages)) = record.result_of(call) else { return false };
    messages.iter().any(|message| {
        message.kind == MessageKind::System
            && message.name == system::name("system-error")
            && attributes(message.payload.as_str())
                .iter()
                .any(|(name, value)| *name == "code" && *value == UNKNOWN_OUTCOME)
    })
}
