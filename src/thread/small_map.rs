//! Maps and sets that take little memory while they have few entries. A thread tree has several
//! such maps, most of them with one entry, and there may be a million trees.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum number of entries in a sorted slice. It is small, because every insertion or removal
/// allocates a new slice.
const FEW_MAX: usize = 12;

/// An ordered map. While it has few entries, it takes only the memory of these entries. It is
/// serialised like any other map.
#[derive(Clone)]
pub struct SmallMap<K, V>(Entries<K, V>);

#[derive(Clone)]
enum Entries<K, V> {
    /// At most [`FEW_MAX`] entries, sorted by key.
    Few(Box<[(K, V)]>),
    #[expect(clippy::box_collection, reason = "a map in place would make every small one larger")]
    Many(Box<BTreeMap<K, V>>),
}

use Entries::{Few, Many};

impl<K: Ord, V> SmallMap<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.0 {
            Few(few) => Some(&few.get(find(few, key).ok()?)?.1),
            Many(many) => many.get(key),
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.0 {
            Few(few) => Some(&mut few.get_mut(find(few, key).ok()?)?.1),
            Many(many) => many.get_mut(key),
        }
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a value. Returns the previous value of `key`, or `None` if the map did not contain
    /// `key`.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match &mut self.0 {
            Many(many) => many.insert(key, value),
            Few(few) => match find(few, &key) {
                Ok(at) => {
                    let (_, own) = few.get_mut(at)?;
                    Some(std::mem::replace(own, value))
                }
                Err(at) => {
                    self.insert_at(at, key, value);
                    None
                }
            },
        }
    }

    /// Removes `key` and returns its value. Returns `None` if the map does not contain `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match &mut self.0 {
            Few(few) => {
                let at = find(few, key).ok()?;
                let mut entries = std::mem::take(few).into_vec();
                let (_, value) = entries.remove(at);
                *few = entries.into_boxed_slice();
                Some(value)
            }
            Many(many) => {
                let value = many.remove(key);
                // Half of the bound, so that alternating changes do not convert the map each time.
                if many.len() <= FEW_MAX / 2 {
                    self.0 = Few(std::mem::take(&mut **many).into_iter().collect());
                }
                value
            }
        }
    }

    fn insert_at(&mut self, at: usize, key: K, value: V) {
        let Few(few) = &mut self.0 else { return };
        let mut entries = std::mem::take(few).into_vec();
        if entries.len() < FEW_MAX {
            entries.reserve_exact(1);
            entries.insert(at, (key, value));
            *few = entries.into_boxed_slice();
        } else {
            entries.push((key, value));
            self.0 = Many(Box::new(entries.into_iter().collect()));
        }
    }
}

impl<K, V> SmallMap<K, V> {
    pub fn len(&self) -> usize {
        match &self.0 {
            Few(few) => few.len(),
            Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + Clone {
        let (few, many) = match &self.0 {
            Few(few) => (&**few, None),
            Many(many) => (&[][..], Some(&**many)),
        };
        few.iter().map(|(key, value)| (key, value)).chain(many.into_iter().flatten())
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> + Clone {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> + Clone {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the entries in the order of their keys. The values of the entries can be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        let (few, many) = match &mut self.0 {
            Few(few) => (&mut **few, None),
            Many(many) => (&mut [][..], Some(&mut **many)),
        };
        few.iter_mut().map(|(key, value)| (&*key, value)).chain(many.into_iter().flatten())
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

/// Returns the index of `key`, or the index at which an entry with this key would be inserted.
fn find<K: Ord, V>(entries: &[(K, V)], key: &K) -> Result<usize, usize> {
    entries.binary_search_by(|(own, _)| own.cmp(key))
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self(Few(Box::default()))
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SmallMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for SmallMap<K, V> {}

impl<K: std::fmt::Debug, V: std::fmt::Debug> std::fmt::Debug for SmallMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let all: BTreeMap<K, V> = entries.into_iter().collect();
        if all.len() <= FEW_MAX {
            Self(Few(all.into_iter().collect()))
        } else {
            Self(Many(Box::new(all)))
        }
    }
}

impl<K: Serialize, V: Serialize> Serialize for SmallMap<K, V> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter())
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for SmallMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::deserialize(d)?.into_iter().collect())
    }
}

/// An ordered set. While it has few elements, it takes only the memory of these elements. It is
/// serialised like any other set.
#[derive(Clone, PartialEq, Eq)]
pub struct SmallSet<T>(SmallMap<T, ()>);

impl<T: Ord> SmallSet<T> {
    /// Adds an element. Returns `false` if the set already contained this element.
    pub fn insert(&mut self, element: T) -> bool {
        self.0.insert(element, ()).is_none()
    }

    /// Removes an element. Returns `false` if the set did not contain this element.
    pub fn remove(&mut self, element: &T) -> bool {
        self.0.remove(element).is_some()
    }

    pub fn contains(&self, element: &T) -> bool {
        self.0.contains_key(element)
    }
}

impl<T> SmallSet<T> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the elements in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.0.keys()
    }
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        Self(SmallMap::default())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for SmallSet<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<T: Ord> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self(elements.into_iter().map(|element| (element, ())).collect())
    }
}

impl<T: Serialize> Serialize for SmallSet<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

impl<'de, T: Ord + Deserialize<'de>> Deserialize<'de> for SmallSet<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(d)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers that look random, the same in every run.
    fn numbers() -> impl Iterator<Item = u32> {
        std::iter::successors(Some(7_u32), |last| {
            Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
        })
        .map(|number| number >> 16)
    }

    #[test]
    fn a_small_map_behaves_as_an_ordered_map_however_many_entries_it_has() {
        let mut small = SmallMap::default();
        let mut model = BTreeMap::new();
        let mut kinds = std::collections::BTreeSet::new();
        for (turn, number) in numbers().take(4_000).enumerate() {
            let key = number % 40;
            // The share of removals rises and falls, so that the map grows and shrinks.
            if number / 40 % 8 < 2 + u32::from(turn / 500 % 2 == 1) * 4 {
                assert_eq!(small.remove(&key), model.remove(&key));
            } else {
                assert_eq!(small.insert(key, turn), model.insert(key, turn));
            }

            assert_eq!(small.get(&key), model.get(&key));
            assert_eq!(small.len(), model.len());
            assert!(small.iter().eq(model.iter()));
            kinds.insert(matches!(small.0, Many(_)));
        }

        assert_eq!(kinds.len(), 2, "both forms are in use");
    }

    #[test]
    fn the_serialised_forms_are_those_of_any_map_and_set() {
        for many in [0, 1, 3, 50] {
            let model: BTreeMap<String, u32> = numbers()
                .take(many)
                .enumerate()
                .map(|(at, number)| (format!("{number} {at}"), number))
                .collect();
            let text = serde_json::to_string(&model).unwrap();
            let small: SmallMap<String, u32> = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&small).unwrap(), text);

            let keys: Vec<_> = model.keys().cloned().collect();
            let text = serde_json::to_string(&keys).unwrap();
            let set: SmallSet<String> = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&set).unwrap(), text);
        }
    }

    #[test]
    fn an_empty_map_takes_two_words() {
        assert_eq!(size_of::<SmallMap<u64, String>>(), 2 * size_of::<usize>());
    }
}
