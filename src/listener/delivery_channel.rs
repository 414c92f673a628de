//! Channel from a running handler to the pump, for any transport.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::ids::CallId;

/// Sends one heartbeat, from any thread.
pub(super) type HeartbeatFn = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

pub(super) trait DeliveryChannel: Debug {
    /// Whether `call` was cancelled.
    fn is_cancelled(&self, call: CallId) -> bool;

    fn beat(&self) -> HeartbeatFn;
}
