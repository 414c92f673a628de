//! Counts calls by their client and their listener.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Core;
use crate::ids::{CallId, ListenerName};
use crate::thread::{Call, Map};

/// Open calls that may wait for a long time, counted for each client and listener. The core has one
/// such table for held calls, and another for calls with timers. Both are rebuilt from the state
/// after every boot.
///
/// **Invariant:** `counts` maps each key to the number of its calls in `by_call`, and has no entry
/// for zero.
#[derive(Debug, Clone, Default)]
pub(super) struct CallsByClient {
    /// The key of each call. To save memory, the keys are shared with `counts`: there may be a
    /// million calls.
    by_call: Map<CallId, Arc<ClientAndListener>>,
    counts: Map<Arc<ClientAndListener>, usize>,
}

/// A client and a listener. The waiting calls of each such pair are counted together, and their
/// number is bounded. A call may wait for weeks, so the bound keeps capacity free for other
/// clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientAndListener {
    /// The client that opened the call's tree.
    pub client: ListenerName,
    /// The listener to which the call goes.
    pub listener: ListenerName,
}

impl CallsByClient {
    /// Adds a call, unless it is counted already.
    pub fn insert(&mut self, call: CallId, key: ClientAndListener) {
        if let Entry::Vacant(place) = self.by_call.entry(call) {
            let shared = self.counts.get_key_value(&key).map(|(shared, _)| Arc::clone(shared));
            let key = shared.unwrap_or_else(|| Arc::new(key));
            *self.counts.entry(Arc::clone(&key)).or_default() += 1;
            place.insert(key);
        }
    }

    pub fn remove(&mut self, call: CallId) {
        let Some(key) = self.by_call.remove(&call) else { return };

        if let Entry::Occupied(mut count) = self.counts.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub fn contains(&self, call: CallId) -> bool {
        self.by_call.contains_key(&call)
    }

    /// Returns the number of all counted calls.
    pub fn len(&self) -> usize {
        self.by_call.len()
    }

    /// Returns the ids of all counted calls, in order.
    pub fn ids(&self) -> Vec<CallId> {
        let mut ids: Vec<_> = self.by_call.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the number of counted calls of this client to this listener.
    pub fn count(&self, key: &ClientAndListener) -> usize {
        self.counts.get(key).copied().unwrap_or_default()
    }
}

impl Core {
    /// Returns the client and the listener for which an open call is counted. Returns `None` if the
    /// state does not contain the call's tree.
    pub(super) fn client_and_listener(&self, open: &Call) -> Option<ClientAndListener> {
        let root = self.state.thread(&open.thread.root())?;
        Some(ClientAndListener { client: root.by.clone(), listener: open.callee.clone() })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::MessageId;

    fn call(n: u128) -> CallId {
        CallId(MessageId(Uuid::from_u128(n)))
    }

    fn key(client: &str, listener: &str) -> ClientAndListener {
        let [client, listener] = [client, listener].map(|name| ListenerName::parse(name).unwrap());
        ClientAndListener { client, listener }
    }

    #[test]
    fn calls_count_for_their_own_client_and_listener_and_once() {
        let mut calls = CallsByClient::default();
        for n in [1, 2, 2] {
            calls.insert(call(n), key("desk", "boss"));
        }

        calls.insert(call(3), key("desk", "lawyer"));
        calls.insert(call(4), key("other", "boss"));

        assert_eq!(calls.count(&key("desk", "boss")), 2);
        assert_eq!(calls.count(&key("desk", "lawyer")), 1);
        assert_eq!(calls.count(&key("other", "boss")), 1);
        assert_eq!(calls.len(), 4);
    }

    #[test]
    fn a_removed_call_gives_its_place_back_once() {
        let mut calls = CallsByClient::default();
        for n in [1, 2] {
            calls.insert(call(n), key("desk", "boss"));
        }

        calls.remove(call(1));
        calls.remove(call(1));
        assert_eq!(calls.count(&key("desk", "boss")), 1);

        calls.remove(call(2));
        assert_eq!(calls.len(), 0);
        assert!(calls.counts.is_empty());
    }
}
