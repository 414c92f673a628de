//! Recorded runs: their requests and definitions.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::envelope::{Message, MessageKind};
use crate::ids::{Digest, MessageId, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::memory::tree_with_history;
use crate::thread::Fact;
use crate::workflow::{
    GoalId, RunRetry, WorkflowDefinition, latest_run, read_compiled, redacted_definition,
};

use super::super::exit::{CommandExit, CommandFailure};
use super::super::journal_target::{self, JournalTarget, unknown};

/// The latest run in a thread.
pub struct RecordedRun {
    reader: JournalReader,
    /// Request that opened the run.
    pub request: Arc<Message>,
    pub digest: Digest,
    /// All messages of the thread, oldest first. In a fork, the messages of its source up to the
    /// fork point come first.
    pub messages: Vec<Arc<Message>>,
    /// Client keys of the requests in the thread. In a fork, leaves out the keys of requests before
    /// the fork point, because these keys belong to the source.
    keys: HashMap<MessageId, String>,
    /// Position of the latest record of the run's tree.
    pub last: Position,
}

impl RecordedRun {
    /// Returns the directory of the journal that contains the run. If the organism has several
    /// partitions, this is the journal of the run's partition.
    pub fn data(&self) -> &Path {
        self.reader.data()
    }

    /// Returns the definition that the run follows until its end.
    pub fn definition(&self) -> anyhow::Result<WorkflowDefinition> {
        let Self { reader, digest, .. } = self;
        let failed = |error| journal_target::failed_in(reader, error);
        let bytes = reader.blob(*digest).map_err(failed)?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let read = text.ok_or("the journal does not hold it".to_owned());
        let read = read.and_then(|text| read_compiled(&text).map_err(|error| error.to_string()));
        read.map_err(|reason| {
            let thread = &self.request.thread;
            let message = format!("the definition {digest} of the run {thread}: {reason}");
            CommandFailure::new(CommandExit::InvalidData, message).into()
        })
    }

    /// Finds the retry that the client of this run has requested with the client key `key`, from
    /// the goal `from`. Sets this value back to the run before the retry, and returns the retry.
    /// Changes nothing and returns `None` if there is no such retry, or if the client has requested
    /// a new run in the thread after the retry.
    pub fn go_back_to_retry(&mut self, key: &str, from: Option<&str>) -> Option<RunRetry> {
        let has_key = |message: &Message| self.keys.get(&message.id).is_some_and(|own| own == key);
        let requests = self.messages.iter().enumerate().rev();
        let (index, retry) = requests
            .filter(|(_, message)| message.from == self.request.from && has_key(message))
            .find_map(|(index, request)| {
                Some((index, RunRetry::read(request, &request.to)?.ok()?))
            })?;
        if retry.from.as_ref().map(GoalId::as_str) != from {
            return None;
        }

        let (earlier, later) = self.messages.split_at(index);
        let is_new_run = |message: &Message| {
            message.kind == MessageKind::Call
                && message.from == self.request.from
                && RunRetry::read(message, &message.to).is_none()
        };
        if later.iter().any(|message| is_new_run(message)) {
            return None;
        }
        let (request, digest) = latest_run(earlier)?;
        self.digest = digest?;
        self.request = request;
        self.messages.truncate(index);
        Some(retry)
    }
}

/// Finds the latest run in a thread. In a fork, the run may be in the fork's history.
pub fn run_on_record(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<RecordedRun> {
    let mut is_thread = false;
    for reader in journal_target::readers_of(place, thread)? {
        let failed = |error| journal_target::failed_in(&reader, error);
        let Some(last) = reader.head(&thread.root()).map_err(failed)? else { continue };
        let records = tree_with_history(&reader, last).map_err(failed)?;
        let mut messages = Vec::new();
        let mut keys = HashMap::new();
        let first_own = records.iter().rposition(|record| record.fork_source().is_some());
        for (index, record) in records.into_iter().enumerate() {
            let is_own = first_own.is_none_or(|first| index >= first);
            for fact in record.facts {
                if let Fact::Accepted { message, key, .. } = fact
                    && message.thread == *thread
                {
                    keys.extend(key.filter(|_| is_own).map(|key| (message.id, key)));
                    messages.push(message);
                }
            }
        }

        is_thread |= !messages.is_empty();
        let Some((request, digest)) = latest_run(&messages) else { continue };
        let Some(digest) = digest else {
            return Err(without_definition(&request, &messages).into());
        };
        return Ok(RecordedRun { reader, request, digest, messages, keys, last });
    }

    if !is_thread {
        return Err(unknown(place, thread).into());
    }
    let message = format!(
        "no run in {thread} has recorded its definition: it is no thread of a workflow, its \
         run has not begun, or an earlier version of the program did not record the definition"
    );
    Err(CommandFailure::usage(message).into())
}

/// Makes the error of a command that needs the definition of a run, if the definition is not on
/// record, or if its record was redacted. `messages` are all messages of the thread.
fn without_definition(request: &Message, messages: &[Arc<Message>]) -> CommandFailure {
    let Message { thread, id, .. } = request;
    let redacted = redacted_definition(request, messages).map(|record| record.id);
    let message = match redacted {
        Some(record) => format!(
            "the definition of the latest run in {thread}, message {id}, is not known, because \
             message {record}, which records it, was redacted; look at its calls with `organism \
             thread {thread}`, and send a new request in place of a retry"
        ),
        None => format!(
            "the latest run in {thread}, message {id}, has not recorded its definition: it has not \
             begun, or an earlier version of the program did not record it; send its request again \
             in place of a retry"
        ),
    };
    CommandFailure::usage(message)
}
