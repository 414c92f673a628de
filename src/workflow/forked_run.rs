//! Runs in forks: a run begins with the definition that the source's run recorded, so that it takes
//! the same course.

use std::sync::Arc;

use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName};
use crate::thread::ForkSource;

use super::run_definition::recorded_definition;
use super::run_retry::RunArchive;

/// The definition that the source of a fork recorded for the run of `request`: for the run of an
/// equal request, otherwise for the first run after the place of the fork. `None` if there is none.
///
/// # Errors
/// The reason why the journal cannot be read.
pub fn source_definition(
    archive: &dyn RunArchive,
    workflow: &ListenerName,
    request: &Message,
    source: &ForkSource,
) -> Result<Option<Digest>, String> {
    let Some(thread) = request.thread.under(&source.thread) else { return Ok(None) };
    let messages = archive.messages(&thread)?;
    // In a subthread, the place of the fork has no number.
    let is_after = |own: &Message| !thread.is_root() || own.seq >= source.seq;
    let requests = messages
        .iter()
        .filter(|own| own.kind == MessageKind::Call && own.to == *workflow && is_after(own));
    let requests: Vec<&Arc<Message>> = requests.collect();
    let equal = requests.iter().filter(|own| own.payload.digest == request.payload.digest);

    let mut candidates = equal.chain(&requests);
    Ok(candidates.find_map(|run| {
        let call = Some(CallId(run.id));
        let own = messages.iter().filter(|message| message.call == call);
        own.filter_map(|message| recorded_definition(message, workflow)).next()
    }))
}
