//! Workflow runs in forks. A fork is a thread that continues the history of another thread, its
//! source. A run in a fork uses the definition of a run in the source, so that both runs take the
//! same course.

use std::sync::Arc;

use crate::envelope::{Message, MessageKind};
use crate::ids::{CallId, Digest, ListenerName};
use crate::thread::ForkSource;

use super::run_definition::recorded_definition;
use super::run_retry::RunArchive;

/// Returns the digest of the definition that a run in the source of a fork recorded. Takes the
/// first run whose request equals `request`. If there is none, takes the first run with any
/// request. Ignores runs without a recorded definition and, in a root thread, runs before the fork
/// point. Returns `None` if no run is left.
///
/// # Errors
///
/// Returns the reason why the journal cannot be read.
pub fn source_definition(
    archive: &dyn RunArchive,
    workflow: &ListenerName,
    request: &Message,
    source: &ForkSource,
) -> Result<Option<Digest>, String> {
    let Some(thread) = request.thread.under(&source.thread) else { return Ok(None) };
    let messages = archive.messages(&thread)?;
    // In a subthread, the fork point has no `seq` to compare with.
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
