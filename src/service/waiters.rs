//! Clients that wait for the completion of a call that the pump accepted before their request. For
//! example, a client has repeated a submission with the same client key.

use std::sync::Arc;

use dashmap::DashMap;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};

use crate::ids::{CallId, ThreadId};
use crate::pump::driver::{CallCompletion, Handle, PumpStopped};

/// One query to the pump for the completion of a call. All waiters of the call share this query.
type SharedCompletion = Shared<BoxFuture<'static, Result<Option<CallCompletion>, PumpStopped>>>;

/// A call, and the root of the thread in which a client waits for the call.
type AwaitedKey = (ThreadId, CallId);

/// The clients that wait for calls of one pump, by tree and call. All clients that wait for the same
/// call in the same tree share one query to the pump. The query ends when the last of these clients
/// has left.
///
/// The pump checks in each query that the tree contains the call. A client proves only its right to
/// the tree, so a client that names another tree must not share the query.
///
/// The table of clients is concurrent, because each client registers and leaves in a task of its
/// own.
#[derive(Clone)]
pub struct CallWaiters {
    pump: Handle,
    calls: Arc<DashMap<AwaitedKey, AwaitedCall>>,
}

struct AwaitedCall {
    clients: usize,
    completion: SharedCompletion,
}

impl CallWaiters {
    pub fn new(pump: Handle) -> Self {
        Self { pump, calls: Arc::default() }
    }

    /// Waits for the completion of a call in `thread`. Returns `None` if the call was already
    /// completed; its result, if it has one, is then in the journal.
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
            let pump = self.pump.clone();
            let thread = thread.clone();
            async move { pump.completion(thread, call).await }.boxed().shared()
        };

        let key = (thread.root(), call);

        // Lock: the shard of the table stays locked to the end of this block. Otherwise, a client
        // that leaves meanwhile could remove the query that this client is about to share.
        let mut awaited = self
            .calls
            .entry(key.clone())
            .or_insert_with(|| AwaitedCall { clients: 0, completion: query() });
        awaited.clients += 1;

        (awaited.completion.clone(), RegisteredWaiter { table: self, key })
    }

    /// Returns the number of shared queries, one for each tree and call for which clients wait.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// The registration of one client as a waiter. Dropping it removes the client from the waiters.
struct RegisteredWaiter<'t> {
    table: &'t CallWaiters,
    key: AwaitedKey,
}

impl Drop for RegisteredWaiter<'_> {
    fn drop(&mut self) {
        self.table.calls.remove_if_mut(&self.key, |_, awaited| {
            awaited.clients -= 1;
            awaited.clients == 0
        });
    }
}
