//! A cache with a maximum number of values and a maximum number of bytes.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use crate::limits;

/// A map with limits for the number of its values and for their bytes. If a limit is exceeded, the
/// values that were stored first are removed.
#[derive(Debug)]
pub struct BoundedCache<K, V> {
    values: HashMap<K, CachedValue<V>, foldhash::fast::RandomState>,
    /// One entry for each call of `put`, oldest first. An entry is outdated if the value of this
    /// call was removed or replaced later.
    order: VecDeque<(u64, K)>,
    values_max: usize,
    bytes_max: usize,
    bytes: usize,
    next_place: u64,
}

#[derive(Debug)]
struct CachedValue<V> {
    value: V,
    bytes: usize,
    place: u64,
}

impl<K: Clone + Eq + Hash, V> Default for BoundedCache<K, V> {
    /// Creates a cache with the default limits. A listener that keeps the messages of its calls
    /// between deliveries uses these limits.
    fn default() -> Self {
        Self::new(limits::REMEMBERED_CALLS_MAX, limits::REMEMBERED_BYTES_MAX)
    }
}

impl<K: Clone + Eq + Hash, V> BoundedCache<K, V> {
    /// Creates a cache of at most `values_max` values with at most `bytes_max` bytes in total.
    pub fn new(values_max: usize, bytes_max: usize) -> Self {
        let values = HashMap::default();
        let order = VecDeque::new();
        Self { values, order, values_max, bytes_max, bytes: 0, next_place: 0 }
    }

    /// Stores a value of `bytes` bytes, and returns true. The value replaces the key's present
    /// value. If the cache then exceeds a limit, removes its oldest values. If `bytes` alone
    /// exceeds the maximum of the cache, only removes the key's present value, stores nothing, and
    /// returns false.
    pub fn put(&mut self, key: K, value: V, bytes: usize) -> bool {
        self.take(&key);
        if bytes > self.bytes_max {
            return false;
        }

        let place = self.next_place;
        self.next_place += 1;
        self.bytes += bytes;
        self.order.push_back((place, key.clone()));
        self.values.insert(key, CachedValue { value, bytes, place });

        while self.values.len() > self.values_max || self.bytes > self.bytes_max {
            let Some((place, oldest)) = self.order.pop_front() else { break };
            if self.is_current(place, &oldest) {
                self.take(&oldest);
            }
        }

        self.drop_outdated_entries();
        true
    }

    fn is_current(&self, place: u64, key: &K) -> bool {
        self.values.get(key).is_some_and(|cached| cached.place == place)
    }

    /// Removes outdated entries from `order` if there are too many, so that `order` does not become
    /// much longer than the number of values.
    fn drop_outdated_entries(&mut self) {
        if self.order.len() <= 2 * self.values.len() + 16 {
            return;
        }
        let mut order = std::mem::take(&mut self.order);
        order.retain(|(place, key)| self.is_current(*place, key));
        self.order = order;
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|cached| &cached.value)
    }

    pub fn take(&mut self, key: &K) -> Option<V> {
        let CachedValue { value, bytes, .. } = self.values.remove(key)?;
        self.bytes -= bytes;
        Some(value)
    }

    /// Returns the total number of bytes of the values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes the values for which `is_kept` returns false.
    pub fn retain(&mut self, is_kept: impl Fn(&V) -> bool) {
        let rejected = self.values.iter().filter(|(_, cached)| !is_kept(&cached.value));
        let rejected: Vec<K> = rejected.map(|(key, _)| key.clone()).collect();
        for key in rejected {
            self.take(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_that_was_put_first_is_forgotten_beyond_the_number() {
        let mut cache = BoundedCache::new(1_000, 1 << 20);
        for number in 0..1_000 {
            assert!(cache.put(number, number, 1));
        }

        cache.put(0, 0, 1);
        cache.put(1_000, 1_000, 1);
        assert_eq!(cache.get(&0), Some(&0));
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&2), Some(&2));
        assert_eq!(cache.values.len(), 1_000);
        assert!(cache.order.len() <= 2 * 1_000 + 16);
    }

    #[test]
    fn values_are_forgotten_beyond_the_bytes() {
        let mut cache = BoundedCache::new(10, 100);
        assert!(cache.put(1, "first", 50));
        assert!(cache.put(2, "second", 50));
        assert!(cache.put(3, "third", 1));
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&2), Some(&"second"));
        assert_eq!(cache.bytes, 51);

        assert!(!cache.put(3, "too large", 101));
        assert_eq!(cache.get(&3), None);
        cache.retain(|value| *value != "second");
        assert_eq!(cache.bytes, 0);
    }
}
