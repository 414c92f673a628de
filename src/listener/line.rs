//! What a handler can say and ask while it works, whichever way its delivery came.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::ids::CallId;

/// Says once that the handler is alive, from whichever thread.
pub(super) type Beat = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

pub(super) trait Line: Debug {
    /// Whether the caller of `call` is gone.
    fn is_cancelled(&self, call: CallId) -> bool;

    fn beat(&self) -> Beat;
}
