//! The channel from a running handler to the pump. It has one implementation for pipes and one for
//! NATS.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::ids::CallId;

/// A function that sends one heartbeat. Any thread may call the function.
pub(super) type HeartbeatFn = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

pub(super) trait DeliveryChannel: Debug {
    /// Whether the pump has cancelled `call`.
    fn is_cancelled(&self, call: CallId) -> bool;

    fn heartbeat_fn(&self) -> HeartbeatFn;
}
