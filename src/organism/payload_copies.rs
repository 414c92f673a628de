//! Finds records that still have the bytes of a redacted payload, such as those of forks and of
//! operators' retries.

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use super::Error;
use crate::contract::run_definition_name;
use crate::envelope::Message;
use crate::ids::{Digest, Position, ThreadId};
use crate::journal::sqlite::{self, JournalReader};
use crate::journal::{HashedRecord, TreeHeads};
use crate::system;

/// A record with a payload whose bytes equal those of a redacted payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PayloadCopy {
    /// Thread of the first message with such a payload.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "position")]
    pub position: Position,
}

/// Finds the records of the journal in `data` that still have the bytes of a payload that is
/// redacted in the records at `redacted`. Compares digests, so a payload that only contains the
/// text of a redacted one is not found. Leaves out payloads without a text of their own, such as
/// `ack`, because they are equal in most threads.
pub(super) fn copies_of_redacted(
    data: &Path,
    redacted: &[Position],
) -> Result<Vec<PayloadCopy>, Error> {
    if redacted.is_empty() {
        return Ok(Vec::new());
    }

    let reader = JournalReader::open(data)?;
    let mut digests = HashSet::new();
    for position in redacted {
        let sealed = reader.record(*position)?;
        digests.extend(sealed.iter().flat_map(redacted_digests));
    }

    let last = reader.last()?;
    let mut copies = Vec::new();
    sqlite::scan(&reader, last, &mut TreeHeads::default(), &mut |sealed, _| {
        copies.extend(copy_in(&sealed, &digests));
        Ok(())
    })?;
    Ok(copies)
}

fn redacted_digests(sealed: &HashedRecord) -> impl Iterator<Item = Digest> {
    let messages = sealed.record.accepted_messages();
    let redacted = messages.filter(|message| message.payload.is_redacted() && has_text(message));
    redacted.map(|message| message.payload.digest)
}

/// Whether the payload of `message` may have a text that comes from a listener or a person.
fn has_text(message: &Message) -> bool {
    let is_of_core = *message.name.namespace == *system::NAMESPACE;
    let is_bare = is_of_core && matches!(&*message.name.local, "ack" | "wait" | "waiting");
    !is_bare && message.name != run_definition_name()
}

fn copy_in(sealed: &HashedRecord, digests: &HashSet<Digest>) -> Option<PayloadCopy> {
    let mut messages = sealed.record.accepted_messages();
    let copy = messages.find(|message| {
        digests.contains(&message.payload.digest) && !message.payload.is_redacted()
    })?;
    Some(PayloadCopy { thread: copy.thread.clone(), position: sealed.record.position })
}
