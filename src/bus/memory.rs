//! The memory of calls between deliveries. The program of a listener can keep the messages of a
//! call. The host notes which program has which messages, and then sends the program only the new
//! ones (docs/PROTOCOL.md, section 3).

use crate::bounded_cache::BoundedCache;
use crate::ids::{CallId, MessageId};

use super::Delivery;

/// A bounded cache with one value for each call.
pub(crate) type CallMemory<V> = BoundedCache<CallId, V>;

/// The messages of a call that a listener remembers: its first `count` messages, up to the one with
/// the id `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryMark {
    count: usize,
    last: MessageId,
}

impl MemoryMark {
    /// Returns the mark of a listener that remembers all messages of this delivery. Returns `None`
    /// if the delivery has no messages.
    pub fn after(delivery: &Delivery) -> Option<Self> {
        let last = delivery.messages.last()?.id;
        Some(Self { count: delivery.messages.len(), last })
    }

    /// Returns how many messages of this delivery the listener remembers. Only the other messages
    /// must then be sent. Returns `None` if all messages must be sent, because the listener's
    /// memory does not end exactly where the new messages of the delivery begin. An example is a
    /// retry.
    pub fn known_of(&self, delivery: &Delivery) -> Option<usize> {
        let known = delivery.messages.len().checked_sub(delivery.fresh)?;
        let last = delivery.messages.get(known.checked_sub(1)?)?;
        let is_next = known == self.count && last.id == self.last && delivery.fresh > 0;
        is_next.then_some(known)
    }
}
