//! Clients that wait for the completion of a call that was accepted earlier, such as those that
//! repeat a key.

use std::sync::Arc;

use dashmap::DashMap;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use crate::ids::{CallId, ThreadId};
use crate::pump::driver::{CallCompletion, Handle, PumpStopped};

/// One query of the pump, which all waiters of a call share.
type SharedCompletion = Shared<BoxFuture<'static, Result<Option<CallCompletion>, PumpStopped>>>;

/// The waiters of one pump, by call. However many clients wait for a call, the pump has one waiter
/// for it, and none once all clients have left.
///
/// A concurrent table: each client registers and leaves on a task of its own.
#[derive(Clone)]
pub struct CallWaiters {
    pump: Handle,
    calls: Arc<DashMap<CallId, AwaitedCall>>,
}

struct AwaitedCall {
    clients: usize,
    completion: SharedCompletion,
}

impl CallWaiters {
    pub fn new(pump: Handle) -> Self {
        Self { pump, calls: Arc::default() }
    }

    /// Waits for the completion of a call in `thread`. `None` if it had completed before: its
    /// result, if any, is recorded.
    pub async fn completion(
        &self,
        thread: &ThreadId,
        call: CallId,
    ) -> Result<Option<CallCompletion>, PumpStopped> {
        let (completion, _registered) = self.register(thread, call);
        completion.await
    }

    fn register(
        &self,
        thread: &ThreadId,
        call: CallId,
    ) -> (SharedCompletion, RegisteredWaiter<'_>) {
        let query = || {
            let (pump, thread) = (self.pump.clone(), thread.clone());
            async move { pump.completion(thread, call).await }.boxed().shared()
        };

        // Lock: the shard stays locked to the end of this block, so that a client that leaves
        // meanwhile cannot remove the query that this one joins.
        let mut awaited = self
            .calls
            .entry(call)
            .or_insert_with(|| AwaitedCall { clients: 0, completion: query() });
        awaited.clients += 1;

        (awaited.completion.clone(), RegisteredWaiter { table: self, call })
    }

    /// Number of awaited calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// Registration of a client in the table, until it has its answer or leaves.
struct RegisteredWaiter<'t> {
    table: &'t CallWaiters,
    call: CallId,
}

impl Drop for RegisteredWaiter<'_> {
    fn drop(&mut self) {
        self.table.calls.remove_if_mut(&self.call, |_, awaited| {
            awaited.clients -= 1;
            awaited.clients == 0
        });
    }
}
