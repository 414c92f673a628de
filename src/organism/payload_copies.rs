//! Finds records that still have the bytes of a redacted payload, such as those of forks and of
//! operators' retries.

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use super::Error;
use crate::contract::run_definition_name;
use crate::envelope::Message;
use crate::ids::{Digest, PayloadName, Position, ThreadId};
use crate::journal::sqlite::{self, JournalReader};
use crate::journal::{HashedRecord, TreeHeads};
use crate::system;

/// A payload of a record whose bytes equal those of a redacted payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PayloadCopy {
    #[serde(rename = "name")]
    pub name: PayloadName,
    /// Thread of the first message of the record with this payload.
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "position")]
    pub position: Position,
}

/// Finds the records of the journal in `data` that still have the bytes of a payload that is
/// redacted in another record. Compares digests, so a payload that only contains the text of a
/// redacted one is not found. Leaves out payloads without a text of their own, such as `ack`,
/// because they are equal in most threads.
pub(super) fn copies_of_redacted(data: &Path) -> Result<Vec<PayloadCopy>, Error> {
    let reader = JournalReader::open(data)?;
    let last = reader.last()?;
    let mut digests = HashSet::new();
    sqlite::scan(&reader, last, &mut TreeHeads::default(), &mut |sealed, _| {
        digests.extend(redacted_digests(&sealed));
        Ok(())
    })?;
    if digests.is_empty() {
        return Ok(Vec::new());
    }

    let mut copies = Vec::new();
    sqlite::scan(&reader, last, &mut TreeHeads::default(), &mut |sealed, _| {
        copies.extend(copies_in(&sealed, &digests));
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

/// Returns one copy for each name of payloads in the record.
fn copies_in(sealed: &HashedRecord, digests: &HashSet<Digest>) -> Vec<PayloadCopy> {
    let position = sealed.record.position;
    let mut copies: Vec<PayloadCopy> = Vec::new();
    for message in sealed.record.accepted_messages() {
        let is_copy = digests.contains(&message.payload.digest) && !message.payload.is_redacted();
        if is_copy && copies.iter().all(|copy| copy.name != message.name) {
            let name = message.name.clone();
            copies.push(PayloadCopy { name, thread: message.thread.clone(), position });
        }
    }
    copies
}
