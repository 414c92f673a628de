//! Finds the late answers of a recorded thread that a trial cannot repeat. A late answer came after
//! its call had ended. In a trial, a call gets the result with which the recorded call ended, and
//! nothing that came later.

use std::collections::{HashMap, HashSet};

use crate::agent::history::UnseenReason;
use crate::envelope::Message;
use crate::ids::{CallId, Digest, ListenerName, MessageId, Position};
use crate::journal::HashedRecord;
use crate::journal::sqlite::JournalReader;
use crate::organism::turn_on_record::turns_of;
use crate::organism::{Error, TurnOnRecord};
use crate::thread::{Closing, Fact, Input, Record};

/// Finds a late answer that a trial cannot repeat, and that the prompt of a later turn shows.
/// `records` are all records of a thread tree. Returns a message of the answer, or `None` if there
/// is no such answer.
pub(super) fn shown_late_answer(
    reader: &JournalReader,
    records: &[HashedRecord],
) -> Result<Option<MessageId>, Error> {
    let mut search = LateAnswerSearch::default();
    for HashedRecord { record, .. } in records {
        let shown = search.shown_in(reader, record)?;
        if shown.is_some() {
            return Ok(shown);
        }
        search.read(record);
    }
    Ok(None)
}

/// The late answers in the records that were read so far.
#[derive(Default)]
struct LateAnswerSearch<'r> {
    ended: HashMap<CallId, Closing>,
    /// The messages of late answers, each with the position of its record.
    late: Vec<(Position, &'r Message)>,
    /// The messages that were looked for in a prompt of an agent, with the inputs of the prompt. If
    /// a prompt did not show a message, no later prompt with the same inputs shows this message.
    searched: HashSet<(ListenerName, Option<Digest>, MessageId)>,
}

impl<'r> LateAnswerSearch<'r> {
    fn read(&mut self, record: &'r Record) {
        let is_late = self.is_late(record);
        for fact in &record.facts {
            match fact {
                Fact::Accepted { message, .. } if is_late => {
                    self.late.push((record.position, &**message));
                }
                Fact::CallClosed { call, how } => {
                    self.ended.insert(*call, *how);
                }
                _ => {}
            }
        }
    }

    /// Whether a record contains a late answer that a trial cannot repeat. False for a late turn of
    /// an agent whose call was cancelled, for example by the first reply of a group. A trial
    /// repeats such a turn, because the agent runs again, and turns and replies take effect in
    /// their recorded order.
    fn is_late(&self, record: &Record) -> bool {
        let Input::Outcome { call, turn, .. } = &record.input else { return false };
        match self.ended.get(call) {
            Some(Closing::Cancelled) => turn.is_none(),
            Some(Closing::Completed | Closing::Failed) => true,
            None => false,
        }
    }

    /// Returns a message of a late answer that the prompt of a turn shows. `record` is the record
    /// of the turn. Returns `None` if there is no such message, or if the record has no turn.
    fn shown_in(
        &mut self,
        reader: &JournalReader,
        record: &Record,
    ) -> Result<Option<MessageId>, Error> {
        if self.late.is_empty() {
            return Ok(None);
        }

        for (thread, turn) in turns_of(record) {
            let earlier = self.late.iter().filter(|(position, message)| {
                *position <= turn.position
                    && message.thread == *thread
                    && self.searched.insert((turn.agent.clone(), turn.inputs, message.id))
            });
            let earlier: Vec<MessageId> = earlier.map(|(_, message)| message.id).collect();
            if earlier.is_empty() {
                continue;
            }

            let hidden = hidden_messages(reader, &turn.agent, record.position)?;
            let shown = earlier.into_iter().find(|message| !hidden.contains(message));
            if shown.is_some() {
                return Ok(shown);
            }
        }
        Ok(None)
    }
}

/// Returns the messages before a turn that the turn's prompt does not show, not even as
/// placeholders. `position` is the position of the turn's record. Returns no message if the prompt
/// cannot be rebuilt, because the prompt may then show every message.
fn hidden_messages(
    reader: &JournalReader,
    agent: &ListenerName,
    position: Position,
) -> Result<HashSet<MessageId>, Error> {
    let reader = JournalReader::open(reader.data())?;
    let turn = TurnOnRecord::at(reader, agent, position)?;
    let unseen = match turn.map(|turn| turn.unseen()) {
        None | Some(Err(Error::Preview { .. })) => None,
        Some(unseen) => unseen?,
    };

    let unseen = unseen.unwrap_or_default().into_iter();
    let hidden = unseen.filter(|unseen| unseen.reason != UnseenReason::DidNotFit);
    Ok(hidden.map(|unseen| unseen.message.id).collect())
}
