//! Detects cycles: calls that would wait for themselves. An agent handles only one call of a thread
//! at a time. So a new call to the agent waits for the agent's current call, and the current call
//! may in turn wait for the new call.

use std::collections::HashSet;

use super::Core;
use crate::ids::{CallId, ListenerName, ThreadId};

/// Whether a call from `caller` to `agent` in `thread` would close a cycle. The call closes a cycle
/// if the agent's current call in `thread` waits for `caller`, directly or through other calls. A
/// call that closes a cycle could never be answered.
pub(super) fn closes(core: &Core, caller: CallId, agent: &ListenerName, thread: &ThreadId) -> bool {
    let mut seen = HashSet::new();
    let mut next: Vec<_> = core.scheduler.holder(agent, thread).into_iter().collect();
    while let Some(id) = next.pop() {
        if id == caller {
            return true;
        }
        let Some(call) = core.state.call(id).filter(|_| seen.insert(id)) else { continue };
        next.extend(call.awaiting.iter().flat_map(|awaited| awaited.open.iter().map(|leg| leg.0)));
        // If another call occupies the agent in this thread, the call waits for that other call.
        next.extend(core.scheduler.holder(&call.callee, &call.thread));
    }

    false
}
