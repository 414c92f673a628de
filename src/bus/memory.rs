//! Memory of calls between deliveries. A kit keeps the messages of a call. A host keeps which
//! program remembers which call (docs/PROTOCOL.md, section 3).

use crate::bounded_cache::BoundedCache;
use crate::ids::{CallId, MessageId};

use super::Delivery;

/// A cache of values by call.
pub(crate) type CallMemory<V> = BoundedCache<CallId, V>;

/// Identifies the messages of a call that a listener remembers: all messages up to the message with
/// the id `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryMark {
    count: usize,
    last: MessageId,
}

impl MemoryMark {
    /// Returns the mark for a listener that remembers all messages of this delivery.
    pub fn after(delivery: &Delivery) -> Option<Self> {
        let last = delivery.messages.last()?.id;
        Some(Self { count: delivery.messages.len(), last })
    }

    /// Returns how many of this delivery's messages the listener remembers. The remembered messages
    /// must end directly before the new ones. Otherwise returns `None`, and the delivery must be
    /// complete, as in a retry.
    pub fn known_of(&self, delivery: &Delivery) -> Option<usize> {
        let known = delivery.messages.len().checked_sub(delivery.fresh)?;
        let last = delivery.messages.get(known.checked_sub(1)?)?;
        let is_next = known == self.count && last.id == self.last && delivery.fresh > 0;
        is_next.then_some(known)
    }
}
