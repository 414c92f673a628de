//! Bounds the connections at the control socket.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// The limits for simultaneous connections: for connections that are served, and for connections
/// that are being refused.
pub(super) struct ConnectionBound {
    served: Arc<Semaphore>,
    refused: Arc<Semaphore>,
}

impl Default for ConnectionBound {
    fn default() -> Self {
        Self {
            served: Arc::new(Semaphore::new(limits::CONTROL_CONNECTIONS_MAX)),
            refused: Arc::new(Semaphore::new(limits::CONTROL_REFUSALS_AT_ONCE)),
        }
    }
}

impl ConnectionBound {
    /// Whether a new connection would exceed the maximum number of connections.
    pub fn is_full(&self) -> bool {
        self.served.available_permits() == 0
    }

    /// Returns a permit for a new connection, and whether the connection exceeds the maximum number
    /// of connections. A connection beyond the maximum gets a permit, too, but the number of such
    /// permits is limited. If all of them are in use, waits until one of these connections is
    /// closed.
    pub async fn permit(&self) -> (Option<OwnedSemaphorePermit>, bool) {
        match Arc::clone(&self.served).try_acquire_owned() {
            Ok(permit) => (Some(permit), false),
            Err(_) => (Arc::clone(&self.refused).acquire_owned().await.ok(), true),
        }
    }
}
