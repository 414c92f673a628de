//! The heads of all trees: the last record of each, in order of first appearance. Checks that each
//! next record follows from the heads.

use std::collections::{BTreeMap, HashMap};

use crate::clock::Time;
use crate::ids::{Digest, Position, ThreadId};
use crate::thread::{Map, Record};

use super::merkle::MerkleTree;
use super::{Error, HashedRecord};

/// The last record of one tree.
#[derive(Debug, Clone)]
pub struct TreeHead {
    pub root: ThreadId,
    pub first: Position,
    pub position: Position,
    pub hash: Digest,
    pub records: u64,
    pub opened: Time,
    pub updated: Time,
    /// Whether the head changed since the last update of the Merkle tree.
    pub(super) unsummed: bool,
    /// Whether the head changed since the last call of [`TreeHeads::saved`].
    pub(super) unsaved: bool,
}

/// The heads of all trees of a journal.
#[derive(Debug, Default, Clone)]
pub struct TreeHeads {
    all: Vec<TreeHead>,
    by_root: Map<ThreadId, usize>,
    merkle: MerkleTree,
    unsummed: Vec<usize>,
    unsaved: Vec<usize>,
    last: Position,
    last_hash: Digest,
}

impl TreeHeads {
    /// Creates the heads after the record at `last` with the hash `last_hash`. `all` has the head
    /// of each tree, in order of first appearance. Verifies nothing.
    pub(super) fn from_rows(all: Vec<TreeHead>, last: Position, last_hash: Digest) -> Self {
        let by_root = all.iter().enumerate().map(|(at, head)| (head.root.clone(), at)).collect();
        let unsummed = (0..all.len()).collect();
        let unsaved = (0..all.len()).collect();
        Self { all, by_root, unsummed, unsaved, last, last_hash, ..Self::default() }
    }

    pub fn get(&self, root: &ThreadId) -> Option<&TreeHead> {
        self.by_root.get(root).and_then(|index| self.all.get(*index))
    }

    /// Iterates over the heads in order of first appearance.
    pub fn iter(&self) -> impl Iterator<Item = &TreeHead> {
        self.all.iter()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the position of the journal's last record; 0 if the journal is empty. Positions are
    /// dense, so this is also the number of records.
    pub fn last(&self) -> Position {
        self.last
    }

    pub fn last_hash(&self) -> Digest {
        self.last_hash
    }

    /// Advances to the next record. Returns an error if the record does not follow from these
    /// heads.
    pub fn follow(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        let record = &sealed.record;
        let expected = self.last.0 + 1;
        if record.position.0 != expected {
            return Err(Error::broken(expected, format!("found position {}", record.position)));
        }

        let (position, hash) =
            self.get(&record.tree).map_or_else(Default::default, |head| (head.position, head.hash));
        if record.previous != position {
            let detail = format!(
                "it says the previous record of {} is {}, but that is {position}",
                record.tree, record.previous
            );
            return Err(Error::broken(expected, detail));
        }

        if record.previous_hash != hash {
            let detail = format!("its tree's hash before it is {hash}, not what it says");
            return Err(Error::broken(expected, detail));
        }

        self.advance(record, sealed.hash);
        Ok(())
    }

    /// Advances to a record that is known to follow from these heads.
    pub(super) fn advance(&mut self, record: &Record, hash: Digest) {
        self.last = record.position;
        self.last_hash = hash;
        let index = match self.by_root.get(&record.tree) {
            Some(index) => *index,
            None => self.add(record),
        };

        let Some(head) = self.all.get_mut(index) else { return };
        head.position = record.position;
        head.hash = hash;
        head.records += 1;
        head.updated = record.time;
        if !std::mem::replace(&mut head.unsummed, true) {
            self.unsummed.push(index);
        }

        if !std::mem::replace(&mut head.unsaved, true) {
            self.unsaved.push(index);
        }
    }

    fn add(&mut self, record: &Record) -> usize {
        let index = self.all.len();
        self.by_root.insert(record.tree.clone(), index);
        self.all.push(TreeHead {
            root: record.tree.clone(),
            first: record.position,
            position: record.position,
            hash: Digest::ZERO,
            records: 0,
            opened: record.time,
            updated: record.time,
            unsummed: false,
            unsaved: false,
        });
        index
    }

    /// Returns the Merkle root over all heads. Its cost depends on the number of heads that changed
    /// since the last call.
    pub fn merkle_root(&mut self) -> Digest {
        let mut changed = std::mem::take(&mut self.unsummed);
        changed.sort_unstable();
        for index in &changed {
            let Some(head) = self.all.get_mut(*index) else { continue };
            head.unsummed = false;
            self.merkle.set(*index, leaf(&head.root, head.hash));
        }

        self.merkle.update(changed);
        self.merkle.root()
    }

    /// Returns the Merkle root as it will be after `records`, each with its hash. The cost does not
    /// depend on the number of trees.
    pub(super) fn merkle_root_after<'r>(
        &mut self,
        records: impl Iterator<Item = (&'r Record, Digest)>,
    ) -> Digest {
        self.merkle_root();
        let mut added = HashMap::new();
        let mut leaves = BTreeMap::new();
        for (record, hash) in records {
            let root = &record.tree;
            let next = self.all.len() + added.len();
            let known = self.by_root.get(root).copied();
            let index = known.unwrap_or_else(|| *added.entry(root).or_insert(next));
            leaves.insert(index, leaf(root, hash));
        }

        self.merkle.root_with(leaves)
    }

    /// Returns the heads of the trees that changed since the last call of [`TreeHeads::saved`].
    pub(super) fn unsaved(&self) -> impl Iterator<Item = &TreeHead> {
        self.unsaved.iter().filter_map(|index| self.all.get(*index))
    }

    /// Returns the heads of [`TreeHeads::unsaved`]. Each comes with the number of its tree in the
    /// order of first appearance.
    pub(super) fn unsaved_numbered(&self) -> impl Iterator<Item = (usize, &TreeHead)> {
        self.unsaved.iter().filter_map(|index| Some((*index, self.all.get(*index)?)))
    }

    pub(super) fn saved(&mut self) {
        for index in std::mem::take(&mut self.unsaved) {
            if let Some(head) = self.all.get_mut(index) {
                head.unsaved = false;
            }
        }
    }
}

/// Returns the Merkle leaf of the tree `root`, whose last record has the hash `head`.
fn leaf(root: &ThreadId, head: Digest) -> Digest {
    Digest::of_parts(&[b"\0", root.as_str().as_bytes(), b"\0", &head.0])
}
