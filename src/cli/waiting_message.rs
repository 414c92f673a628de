//! Finds the call that a decision is about. The command line names the call by the id of its
//! message, or by the beginning of this id.

use std::collections::BTreeSet;
use std::path::Path;

use crate::audit::{self, DecidedRequest};
use crate::ids::MessageId;
use crate::index::{IndexReader, MessageSelector};
use crate::journal::may_have_journal;
use crate::thread::Hold;

use super::decision::SoughtCalls;
use super::exit::{CommandExit, CommandFailure};
use super::journal_target::JournalTarget;
use super::missing_partitions::noted_partitions_in;
use super::{decision, indexed};

/// Returns the message of the call that `id` names. A whole id is returned unchanged. If `id` is
/// only the beginning of an id, considers the calls that wait for a decision of a kind in `holds`.
/// Fails unless exactly one of these calls has an id with this beginning.
pub fn find(data: &Path, id: &str, holds: &[Hold]) -> anyhow::Result<MessageId> {
    if let Ok(message) = id.parse() {
        return Ok(message);
    }
    if MessageSelector::parse(id).is_none() {
        let text = format!(
            "`{id}` is no id of a call that waits: write at least its first {} hexadecimal digits; \
             `organism approvals --all` and `organism answer --all` show ids",
            MessageSelector::DIGITS_MIN
        );
        return Err(CommandFailure::usage(text).into());
    }

    let mut waiting = Vec::new();
    let mut unknown = BTreeSet::new();
    for hold in holds {
        let found = decision::waiting(data, *hold, SoughtCalls::ALL)?;
        waiting.extend(found.page.calls.into_iter().map(|call| call.message));
        unknown.extend(found.unknown);
    }
    if !waiting.iter().any(|message| begins_with(*message, id)) {
        refuse_other_hold(data, id, holds)?;
    }
    only_of(id, waiting, &Vec::from_iter(unknown))
}

/// Returns the request of the call that `message` opened, whether the call waits or not. Returns
/// `None` if no journal on this host has such a call. Fails if a journal cannot be read and no
/// other journal has the call.
pub fn recorded_request(data: &Path, message: MessageId) -> anyhow::Result<Option<DecidedRequest>> {
    let place = JournalTarget { data: Some(data.to_owned()), ..JournalTarget::default() };
    let mut failed = None;
    for (_, journal) in noted_partitions_in(data) {
        // A journal that does not exist has no calls.
        if !may_have_journal(&journal) {
            continue;
        }

        let query = &mut |index: &mut IndexReader| audit::recorded_request(index, message);
        match indexed::read(&place, &journal, query) {
            Ok(Some(request)) => return Ok(Some(request)),
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Fails if a call whose id begins with the digits of `id` waits for a decision of a kind that is
/// not in `holds`. The error names the command for this decision.
pub fn refuse_other_hold(data: &Path, id: &str, holds: &[Hold]) -> anyhow::Result<()> {
    for hold in Hold::ALL {
        if holds.contains(&hold) {
            continue;
        }
        let calls = decision::waiting(data, hold, SoughtCalls::ALL)?.page.calls;
        let mut waiting = calls.iter().map(|call| call.message);
        if let Some(message) = waiting.find(|message| begins_with(*message, id)) {
            let command = hold.command();
            let text = format!("{message} {}: `organism {command} {message}`", hold.state());
            return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
        }
    }
    Ok(())
}

/// Whether the id of a message begins with the digits of `id`.
fn begins_with(message: MessageId, id: &str) -> bool {
    let digits = id.replace('-', "").to_lowercase();
    message.0.simple().to_string().starts_with(&digits)
}

/// Returns the only message in `waiting` whose id begins with the digits of `id`. For the error
/// message, `unknown` lists the partitions whose waiting calls are unknown.
fn only_of(id: &str, waiting: Vec<MessageId>, unknown: &[u32]) -> anyhow::Result<MessageId> {
    let named: Vec<_> = waiting.into_iter().filter(|message| begins_with(*message, id)).collect();
    match named.as_slice() {
        [only] => Ok(*only),
        [] => {
            let text = format!(
                "no call that waits has an id that begins with {id}; `organism approvals --all` \
                 and `organism answer --all` list those that wait, and `organism message {id}` \
                 shows a call that no longer waits"
            );
            Err(decision::not_found(unknown, text))
        }
        several => {
            let several: Vec<_> = several.iter().map(ToString::to_string).collect();
            let text = format!(
                "several calls that wait begin with {id}; write more digits of one: {}",
                several.join(", ")
            );
            Err(CommandFailure::usage(text).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_names_a_call_if_it_is_the_only_one() {
        let ids = ["0197c0de-0000-7000-8000-00000000000a", "0197c0de-0000-7000-8000-0000000000b0"];
        let ids = ids.map(|id| id.parse::<MessageId>().unwrap());
        let only = |id: &str| only_of(id, ids.to_vec(), &[]);
        assert_eq!(only("0197c0de-0000-7000-8000-0000000000B").unwrap(), ids[1]);
        for (id, exit, text) in [
            ("0197c0de", CommandExit::Usage, "several calls that wait begin with 0197c0de"),
            ("0197c0df", CommandExit::InvalidData, "no call that waits has an id that begins"),
        ] {
            let error = only(id).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!(error.downcast_ref::<CommandFailure>().unwrap().exit, exit);
        }

        let error = only_of("0197c0df", ids.to_vec(), &[2]).unwrap_err();
        let exit = error.downcast_ref::<CommandFailure>().unwrap().exit;
        assert_eq!(exit, CommandExit::Unavailable, "the call may wait in partition 2");
    }
}
