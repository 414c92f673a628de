//! Recorded runs: their requests and definitions.

use std::path::Path;
use std::sync::Arc;

use crate::envelope::Message;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::sqlite::JournalReader;
use crate::memory::tree_with_history;
use crate::thread::Fact;
use crate::workflow::{WorkflowDefinition, latest_run, read_compiled};

use super::super::exit::{CommandExit, CommandFailure};
use super::super::journal_target::{self, JournalTarget, unknown};

/// The latest run in a thread.
pub struct RecordedRun {
    reader: JournalReader,
    /// Request that opened the run.
    pub request: Arc<Message>,
    pub digest: Digest,
    /// All messages of the thread, oldest first. In a fork, the messages of its history come first.
    pub messages: Vec<Arc<Message>>,
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
}

/// Finds the latest run in a thread. In a fork, the run may be in the fork's history.
pub fn run_on_record(place: &JournalTarget, thread: &ThreadId) -> anyhow::Result<RecordedRun> {
    let mut is_thread = false;
    for reader in journal_target::readers_of(place, thread)? {
        let failed = |error| journal_target::failed_in(&reader, error);
        let Some(last) = reader.head(&thread.root()).map_err(failed)? else { continue };
        let records = tree_with_history(&reader, last).map_err(failed)?;
        let facts = records.iter().flat_map(|record| &record.facts);
        let messages = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.thread == *thread => {
                Some(Arc::clone(message))
            }
            _ => None,
        });
        let messages: Vec<_> = messages.collect();
        is_thread |= !messages.is_empty();
        let Some((request, digest)) = latest_run(&messages) else { continue };
        let Some(digest) = digest else { return Err(without_definition(&request).into()) };
        return Ok(RecordedRun { reader, request, digest, messages, last });
    }

    if !is_thread {
        return Err(unknown(place.data.as_deref(), thread).into());
    }
    let message = format!(
        "no run in {thread} has recorded its definition: it is no thread of a workflow, its \
         run has not begun, or an earlier version of the program did not record the definition"
    );
    Err(CommandFailure::usage(message).into())
}

/// Makes the error of a command that needs the definition of a run, if the run has not recorded it.
fn without_definition(request: &Message) -> CommandFailure {
    let message = format!(
        "the latest run in {}, message {}, has not recorded its definition: it has not begun, or an \
         earlier version of the program did not record it; send its request again in place of a retry",
        request.thread, request.id
    );
    CommandFailure::usage(message)
}
