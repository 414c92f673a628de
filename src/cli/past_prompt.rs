//! Rebuilds the prompts of recorded turns, for the commands that show or compare prompts.

use crate::config::StoredConfigError;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::organism::{PromptPreview, TurnOnRecord};
use crate::system;
use crate::thread::Fact;

use super::exit::CommandFailure;
use super::journal_target::{
    JournalTarget, failed_in, failed_stored, readers_of, require_thread, unknown,
};
use super::startup::ConfigArg;

/// Rebuilds the prompt of a recorded turn from the inputs that are stored with the turn. If the
/// turn has no stored inputs, renders the prompt with the config that was in force at the turn. If
/// that config was not stored, renders the prompt with the present config.
pub fn past_prompt(
    place: &JournalTarget,
    agent: &ListenerName,
    thread: &ThreadId,
    number: u32,
) -> anyhow::Result<PromptPreview> {
    if readers_of(place, thread)?.is_empty() {
        return Err(unknown(place, thread).into());
    }

    // A fork has the turns of its history by reference, so they are in the record of its source.
    let mut redacted = 0;
    let mut next = Some((thread.clone(), None));
    while let Some((thread, up_to)) = next {
        for reader in readers_of(place, &thread)? {
            let turn = TurnOnRecord::find(reader, agent, &thread, number, up_to)?;
            if let Some(turn) = turn {
                return rebuilt(place, &turn);
            }
        }
        redacted += redacted_turns(place, agent, &thread, up_to)?;
        next = inherited_from(place, &thread)?;
    }

    require_thread(place, thread)?;
    let text = if redacted > 0 {
        format!(
            "{thread} has no readable turn {number} of {agent}; redacted turns have no number any \
             more, and {agent} has {redacted} of them there"
        )
    } else {
        format!("{agent} took no turn {number} in {thread}; `organism thread` shows them")
    };
    Err(CommandFailure::usage(text).into())
}

/// If `thread` belongs to a fork, returns the source thread whose history `thread` continues, and
/// the position at which this history ends. Returns `None` if the thread belongs to no fork, or to
/// a fork of a thread in another journal.
fn inherited_from(
    place: &JournalTarget,
    thread: &ThreadId,
) -> anyhow::Result<Option<(ThreadId, Option<Position>)>> {
    for reader in readers_of(place, thread)? {
        let records = reader.tree(&thread.root(), None);
        let records = records.map_err(|error| failed_in(&reader, error))?;
        let source = records.first().and_then(|first| first.record.fork_source());
        let Some(source) = source.filter(|source| source.journal.is_none()) else { continue };
        let inherited = thread.under(&source.thread);
        return Ok(inherited.map(|inherited| (inherited, Some(source.history))));
    }
    Ok(None)
}

/// Counts the redacted turns of `agent` in a thread, in the records up to and including the
/// position `up_to`; if `up_to` is `None`, in all records. Does not count those that a fork
/// inherits.
fn redacted_turns(
    place: &JournalTarget,
    agent: &ListenerName,
    thread: &ThreadId,
    up_to: Option<Position>,
) -> anyhow::Result<u64> {
    let is_redacted_turn = |fact: &&Fact| match fact {
        Fact::Accepted { message, .. } => {
            message.thread == *thread
                && message.to == *agent
                && message.name == system::name(system::MODEL_TURN)
                && message.payload.is_redacted()
        }
        _ => false,
    };
    let mut turns = 0;
    for reader in readers_of(place, thread)? {
        let records = reader.tree(&thread.root(), up_to);
        for sealed in &records.map_err(|error| failed_in(&reader, error))? {
            turns += sealed.record.facts.iter().filter(is_redacted_turn).count() as u64;
        }
    }
    Ok(turns)
}

fn rebuilt(place: &JournalTarget, turn: &TurnOnRecord) -> anyhow::Result<PromptPreview> {
    match turn.config() {
        Ok(then) if turn.has_inputs() => Ok(turn.preview(Some(&then.config))?),
        Ok(then) => Ok(turn.preview_with(&then.config)?),
        Err(StoredConfigError::NotStored { .. }) if turn.has_inputs() => Ok(turn.preview(None)?),
        Err(StoredConfigError::NotStored { .. }) => {
            let config = ConfigArg { config: place.config.clone() }.load_to_read()?;
            Ok(turn.preview_with(&config)?)
        }
        Err(error) if turn.has_inputs() => {
            note!("note: the config of this turn cannot be compared: {error}");
            Ok(turn.preview(None)?)
        }
        Err(error) => Err(failed_stored(error)),
    }
}
