//! A list for struct fields that are usually empty: an empty list takes little memory.

use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list that takes one machine word while it is empty. It is serialised like a vector.
// The vector is boxed, because a vector without a box takes three words even while it is empty.
#[expect(clippy::box_collection, reason = "an empty list is to take one word")]
#[derive(Debug, Clone)]
pub struct RareList<T>(Option<Box<Vec<T>>>);

impl<T> RareList<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn push(&mut self, element: T) {
        self.0.get_or_insert_default().push(element);
    }

    pub fn retain(&mut self, is_kept: impl FnMut(&T) -> bool) {
        let Some(elements) = &mut self.0 else { return };
        elements.retain(is_kept);
        if elements.is_empty() {
            self.0 = None;
        }
    }
}

impl<T> Default for RareList<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for RareList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> DerefMut for RareList<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}

impl<T: PartialEq> PartialEq for RareList<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for RareList<T> {}

impl<T> From<Vec<T>> for RareList<T> {
    fn from(elements: Vec<T>) -> Self {
        Self((!elements.is_empty()).then(|| Box::new(elements)))
    }
}

impl<T: Serialize> Serialize for RareList<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for RareList<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(d)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_has_become_empty_equals_a_new_one() {
        let mut list = RareList::default();
        list.push(1);
        list.push(2);
        assert_eq!(*list, [1, 2]);
        list.retain(|element| *element > 2);
        assert!(list.is_empty());
        assert_eq!(list, RareList::default());
    }

    #[test]
    fn an_empty_list_takes_one_word() {
        assert_eq!(size_of::<RareList<[u64; 9]>>(), size_of::<usize>());
    }
}
