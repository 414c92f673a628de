//! Bounded memory of calls between deliveries. A kit keeps the messages of a call. A host keeps
//! which program has them (docs/PROTOCOL.md, section 3).

use std::collections::{HashMap, VecDeque};

use crate::ids::{CallId, MessageId};
use crate::limits;

use super::Delivery;

/// Values by call. If a bound is exceeded, the oldest values are forgotten.
#[derive(Debug)]
pub(crate) struct CallMemory<V> {
    calls: HashMap<CallId, RememberedCall<V>, foldhash::fast::RandomState>,
    /// One entry for each `put`, oldest first. An entry is outdated if its call was taken or put
    /// again since.
    order: VecDeque<(u64, CallId)>,
    bytes: usize,
    next_place: u64,
}

#[derive(Debug)]
struct RememberedCall<V> {
    value: V,
    bytes: usize,
    place: u64,
}

impl<V> Default for CallMemory<V> {
    fn default() -> Self {
        Self { calls: HashMap::default(), order: VecDeque::new(), bytes: 0, next_place: 0 }
    }
}

impl<V> CallMemory<V> {
    /// Stores a value of this size. Returns false if the value alone exceeds the bound.
    pub fn put(&mut self, call: CallId, value: V, bytes: usize) -> bool {
        self.take(call);
        if bytes > limits::REMEMBERED_BYTES_MAX {
            return false;
        }

        let place = self.next_place;
        self.next_place += 1;
        self.bytes += bytes;
        self.order.push_back((place, call));
        self.calls.insert(call, RememberedCall { value, bytes, place });

        while self.calls.len() > limits::REMEMBERED_CALLS_MAX
            || self.bytes > limits::REMEMBERED_BYTES_MAX
        {
            let Some((place, oldest)) = self.order.pop_front() else { break };
            if self.is_current(place, oldest) {
                self.take(oldest);
            }
        }

        self.drop_outdated_entries();
        true
    }

    fn is_current(&self, place: u64, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|remembered| remembered.place == place)
    }

    /// Removes outdated entries from `order` once they outnumber the current ones, so that `order`
    /// stays proportional to the number of calls.
    fn drop_outdated_entries(&mut self) {
        if self.order.len() <= 2 * self.calls.len() + 16 {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain(|(place, call)| self.is_current(*place, *call));
        self.order = order;
    }

    pub fn get(&self, call: CallId) -> Option<&V> {
        self.calls.get(&call).map(|remembered| &remembered.value)
    }

    pub fn take(&mut self, call: CallId) -> Option<V> {
        let RememberedCall { value, bytes, .. } = self.calls.remove(&call)?;
        self.bytes -= bytes;
        Some(value)
    }

    /// Forgets the calls whose values `is_kept` rejects.
    pub fn retain(&mut self, is_kept: impl Fn(&V) -> bool) {
        let left = self.calls.iter().filter(|(_, remembered)| !is_kept(&remembered.value));
        let left: Vec<_> = left.map(|(call, _)| *call).collect();
        for call in left {
            self.take(call);
        }
    }
}

/// The point in a call up to which a listener remembers all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryMark {
    count: usize,
    last: MessageId,
}

impl MemoryMark {
    /// The mark after all messages of this delivery.
    pub fn after(delivery: &Delivery) -> Option<Self> {
        let last = delivery.messages.last()?.id;
        Some(Self { count: delivery.messages.len(), last })
    }

    /// Number of messages of this delivery that lie before the mark, if all later ones are new to
    /// the listener. Returns `None` for a retry, which repeats messages and must be complete.
    pub fn known_of(&self, delivery: &Delivery) -> Option<usize> {
        let known = delivery.messages.len().checked_sub(delivery.fresh)?;
        let last = delivery.messages.get(known.checked_sub(1)?)?;
        let is_next = known == self.count && last.id == self.last && delivery.fresh > 0;
        is_next.then_some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u128) -> CallId {
        CallId(MessageId(uuid::Uuid::from_u128(number)))
    }

    #[test]
    fn the_call_that_was_put_in_first_is_forgotten_beyond_the_number() {
        let mut memory = CallMemory::default();
        let most = u128::try_from(limits::REMEMBERED_CALLS_MAX).unwrap();
        for number in 0..most {
            assert!(memory.put(call(number), number, 1));
        }

        memory.put(call(0), 0, 1);
        memory.put(call(most), most, 1);
        assert_eq!(memory.get(call(0)), Some(&0));
        assert_eq!(memory.get(call(1)), None);
        assert_eq!(memory.get(call(2)), Some(&2));
        assert_eq!(memory.calls.len(), limits::REMEMBERED_CALLS_MAX);
        assert!(memory.order.len() <= 2 * limits::REMEMBERED_CALLS_MAX + 16);
    }

    #[test]
    fn calls_are_forgotten_beyond_the_bytes() {
        let mut memory = CallMemory::default();
        let half = limits::REMEMBERED_BYTES_MAX / 2;
        assert!(memory.put(call(1), "first", half));
        assert!(memory.put(call(2), "second", half));
        assert!(memory.put(call(3), "third", 1));
        assert_eq!(memory.get(call(1)), None);
        assert_eq!(memory.get(call(2)), Some(&"second"));
        assert_eq!(memory.bytes, half + 1);

        assert!(!memory.put(call(3), "too large", limits::REMEMBERED_BYTES_MAX + 1));
        assert_eq!(memory.get(call(3)), None);
        memory.retain(|value| *value != "second");
        assert_eq!(memory.bytes, 0);
    }
}
