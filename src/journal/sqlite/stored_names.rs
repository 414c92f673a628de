//! A Bloom filter of the names in a store, so that a search for a new name rarely reads a file.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;

use crate::limits;

/// A Bloom filter of the names in a store. The filter reports every name that was added, and by
/// mistake also some others. Each mistake costs a search in the store's file. The filter's size is
/// fixed, so mistakes become more frequent as names are added.
#[derive(Debug)]
pub struct StoredNames {
    words: Vec<u64>,
}

impl Default for StoredNames {
    fn default() -> Self {
        Self { words: vec![0; limits::RESTING_FILTER_BYTES / size_of::<u64>()] }
    }
}

impl StoredNames {
    /// Returns the two bits of the filter that stand for `name`. A bit is given as the index of a
    /// word of the filter, and a mask for this word.
    fn bits(&self, name: &str) -> [(usize, u64); 2] {
        // A fixed seed, because snapshots contain filters. A client that chooses names for their
        // bits only makes searches read the file.
        let hash = FixedState::default().hash_one(name);
        let bit = |half: u64| {
            let words = self.words.len() as u64;
            let index = usize::try_from((half >> 6) % words).unwrap_or_default();
            (index, 1 << (half & 63))
        };
        [bit(hash & 0xffff_ffff), bit(hash >> 32)]
    }

    pub fn add(&mut self, name: &str) {
        for (index, mask) in self.bits(name) {
            if let Some(word) = self.words.get_mut(index) {
                *word |= mask;
            }
        }
    }

    /// Whether the name may have been added. If false, the name was certainly not added.
    pub fn may_have(&self, name: &str) -> bool {
        let is_set = |(index, mask): (usize, u64)| {
            self.words.get(index).is_some_and(|word| word & mask != 0)
        };
        self.bits(name).into_iter().all(is_set)
    }

    /// Returns the filter as bytes, for [`StoredNames::from_bytes`]: the number of its words, then
    /// the index and the value of each word that is not zero. So a filter of few names is short.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (self.words.len() as u64).to_le_bytes().to_vec();
        for (index, word) in (0_u64..).zip(&self.words).filter(|(_, word)| **word != 0) {
            bytes.extend(index.to_le_bytes());
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// Restores the filter that [`StoredNames::to_bytes`] has written as `bytes`. Returns `None` if
    /// the bytes are invalid, or if the filter in them has another size than a new filter.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut filter = Self::default();
        if !rest.is_empty() || numbers.next() != Some(filter.words.len() as u64) {
            return None;
        }

        while let Some(index) = numbers.next() {
            let index = usize::try_from(index).ok()?;
            *filter.words.get_mut(index)? = numbers.next()?;
        }
        Some(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_knows_every_name_and_few_others() {
        let mut names = StoredNames::default();
        (0..10_000).for_each(|n| names.add(&format!("sess-{n}")));
        let read = StoredNames::from_bytes(&names.to_bytes()).unwrap();
        for names in [names, read] {
            assert!((0..10_000).all(|n| names.may_have(&format!("sess-{n}"))));
            let others = (0..10_000).filter(|n| names.may_have(&format!("other-{n}"))).count();
            assert!(others < 100, "{others} of 10,000");
        }
    }

    #[test]
    fn a_filter_of_another_size_is_not_read() {
        let mut names = StoredNames::default();
        names.add("sess-one");
        let bytes = names.to_bytes();
        assert!(bytes.len() <= 40, "{} bytes for one name", bytes.len());
        for cut in [1, 8] {
            assert!(StoredNames::from_bytes(&bytes[cut..]).is_none());
            assert!(StoredNames::from_bytes(&bytes[..bytes.len() - cut]).is_none());
        }
    }
}
