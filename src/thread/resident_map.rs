//! A map whose values can leave memory and be kept elsewhere.

use std::collections::HashSet;
use std::hash::Hash;

use super::state::Map;

/// A map whose values can leave memory. A value outside memory must be restored before it is looked
/// up. If not, the lookup finds no value or, with debug assertions, panics.
#[derive(Debug, Clone)]
pub struct ResidentMap<K, V> {
    /// The values in memory. Each value is boxed, so that the entries of the map are small: a hash
    /// map reserves room for up to twice as many entries as it holds.
    values: Map<K, Box<V>>,
    /// Keys of the values that have left memory. Always empty without debug assertions.
    absent: HashSet<K, foldhash::fast::RandomState>,
}

impl<K, V> Default for ResidentMap<K, V> {
    fn default() -> Self {
        Self { values: Map::default(), absent: HashSet::default() }
    }
}

/// Compares the keys and values of two maps. Ignores the values that have left memory.
impl<K: Eq + Hash, V: PartialEq> PartialEq for ResidentMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl<K: Eq + Hash, V: Eq> Eq for ResidentMap<K, V> {}

impl<K: Clone + Eq + Hash, V> ResidentMap<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        self.check(key);
        self.resident(key)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value of `key` if this value is in memory. Returns `None` both for a value that
    /// has left memory and for a value that does not exist.
    pub fn resident(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|value| &**value)
    }

    /// Returns the values in memory.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|value| &**value)
    }

    /// Returns the values in memory, with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, value)| (key, &**value))
    }

    /// Returns the number of values in memory.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.check(key);
        self.values.get_mut(key).map(|value| &mut **value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.values_mut().map(|value| &mut **value)
    }

    pub(super) fn entry_or(&mut self, key: K, value: V) -> &mut V {
        self.check(&key);
        self.values.entry(key).or_insert_with(|| Box::new(value))
    }

    /// Removes the value of `key` from the map. A value that has left memory must be restored
    /// first.
    pub(super) fn remove(&mut self, key: &K) {
        self.check(key);
        self.values.remove(key);
    }

    /// Removes a value from memory. The caller must keep the value elsewhere.
    pub(super) fn release(&mut self, key: &K) {
        if self.values.remove(key).is_some() && cfg!(debug_assertions) {
            self.absent.insert(key.clone());
        }
    }

    /// Puts a value that has left memory back into memory.
    pub(super) fn restore(&mut self, key: K, value: V) {
        self.absent.remove(&key);
        self.values.insert(key, Box::new(value));
    }

    fn check(&self, key: &K) {
        debug_assert!(
            self.absent.is_empty() || !self.absent.contains(key),
            "a value that has left memory is looked up"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_was_restored_is_found_again() {
        let mut map = ResidentMap::default();
        map.entry_or("key", 7);
        map.release(&"key");
        assert_eq!(map.resident(&"key"), None);
        map.restore("key", 7);
        assert_eq!(map.get(&"key"), Some(&7));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "has left memory"))]
    fn a_value_that_has_left_memory_is_not_taken_for_an_unknown_one() {
        let mut map = ResidentMap::default();
        map.entry_or("key", 7);
        map.release(&"key");
        assert_eq!(map.get(&"key"), None);
    }
}
