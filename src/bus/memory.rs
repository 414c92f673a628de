//! Memory of calls between deliveries. A kit keeps the messages of a call. A host keeps which
//! program remembers which call (docs/PROTOCOL.md, section 3).

use crate::bounded_cache::BoundedCache;
use crate::ids::{CallId, MessageId};

use super::Delivery;

/// Values by call.
pub(crate) type CallMemory<V> = BoundedCache<CallId, V>;

/// The point in a call up to which a listener remembers all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryMark {
    count: usize,
    last: MessageId,
}

impl MemoryMark {
    /// Returns the mark after the last message of this delivery.
    pub fn after(delivery: &Delivery) -> Option<Self> {
        let last = delivery.messages.last()?.id;
        Some(Self { count: delivery.messages.len(), last })
    }

    /// Returns the number of this delivery's messages that the listener remembers, if the mark lies
    /// directly before the delivery's new messages. Returns `None` for a retry: it repeats
    /// messages, so it must be complete.
    pub fn known_of(&self, delivery: &Delivery) -> Option<usize> {
        let known = delivery.messages.len().checked_sub(delivery.fresh)?;
        let last = delivery.messages.get(known.checked_sub(1)?)?;
        let is_next = known == self.count && last.id == self.last && delivery.fresh > 0;
        is_next.then_some(known)
    }
}
