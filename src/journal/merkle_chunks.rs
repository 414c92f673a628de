//! A Merkle tree whose leaves are held in chunks. Chunks without recent changes can leave memory.

use std::collections::BTreeMap;

use crate::ids::Digest;
use crate::limits::MERKLE_CHUNK_LEAVES;
use crate::thread::Map;

use super::merkle::MerkleTree;

/// A Merkle tree over leaves with the numbers 0, 1, 2, and so on. Its root equals the root of a
/// [`MerkleTree`] over the same leaves.
#[derive(Debug, Default, Clone)]
pub struct MerkleChunks {
    /// The tree over the roots of all chunks. It is always in memory.
    top: MerkleTree,
    resident: Map<usize, MerkleChunk>,
    /// Number of chunks that are full.
    full: usize,
}

/// Consecutive leaves, [`MERKLE_CHUNK_LEAVES`] of them unless the chunk is the last one.
#[derive(Debug, Default, Clone)]
struct MerkleChunk {
    tree: MerkleTree,
    /// Number of calls of [`MerkleChunks::hold`] for this chunk whose effect no call of
    /// [`MerkleChunks::release`] has ended yet.
    holders: usize,
    /// Whether a leaf of this chunk changed since the last call of [`MerkleChunks::stored`].
    is_changed: bool,
}

impl MerkleChunks {
    /// Creates the tree from the roots of its chunks. The leaves of the chunks are not in memory.
    pub fn from_roots(roots: Vec<Digest>, leaves: usize) -> Self {
        let mut top = MerkleTree::default();
        let changed = (0..roots.len()).collect();
        roots.into_iter().enumerate().for_each(|(chunk, root)| top.set(chunk, root));
        top.update(changed);
        Self { top, resident: Map::default(), full: leaves / MERKLE_CHUNK_LEAVES }
    }

    /// Returns the Merkle root of each chunk of leaves, in the order of the chunks.
    pub fn roots(&self) -> &[Digest] {
        self.top.leaves()
    }

    /// Returns the chunk with the leaf `number`.
    pub fn chunk_of(number: usize) -> usize {
        number / MERKLE_CHUNK_LEAVES
    }

    pub fn is_resident(&self, chunk: usize) -> bool {
        self.resident.contains_key(&chunk)
    }

    /// Puts the leaves of a chunk back into memory. Returns false if `leaves` do not give the root
    /// of the chunk.
    pub fn restore(&mut self, chunk: usize, leaves: Vec<Digest>) -> bool {
        let mut tree = MerkleTree::default();
        let changed = (0..leaves.len()).collect();
        leaves.into_iter().enumerate().for_each(|(at, leaf)| tree.set(at, leaf));
        tree.update(changed);
        if self.roots().get(chunk) != Some(&tree.root()) {
            return false;
        }

        self.resident.insert(chunk, MerkleChunk { tree, ..MerkleChunk::default() });
        true
    }

    /// Returns the leaf `number`; `None` if the chunk of this leaf is not in memory, or if there is
    /// no such leaf.
    pub fn leaf(&self, number: usize) -> Option<Digest> {
        let chunk = self.resident.get(&Self::chunk_of(number))?;
        chunk.tree.leaves().get(number % MERKLE_CHUNK_LEAVES).copied()
    }

    /// Keeps the chunk of the leaf `number` in memory until [`MerkleChunks::release`]. The chunk
    /// must be in memory, unless this leaf is the first leaf of a new chunk.
    pub fn hold(&mut self, number: usize) {
        self.resident.entry(Self::chunk_of(number)).or_default().holders += 1;
    }

    /// Ends the effect of one call of [`MerkleChunks::hold`].
    pub fn release(&mut self, number: usize) {
        if let Some(chunk) = self.resident.get_mut(&Self::chunk_of(number)) {
            chunk.holders = chunk.holders.saturating_sub(1);
        }
    }

    /// Sets leaves and updates the root. The caller must have called [`MerkleChunks::hold`] for
    /// each leaf, and must pass the leaves in rising order of their numbers. New leaves must follow
    /// the last leaf without a gap.
    pub fn set(&mut self, leaves: impl Iterator<Item = (usize, Digest)>) {
        let mut changed = BTreeMap::<usize, Vec<usize>>::new();
        for (number, leaf) in leaves {
            let at = number % MERKLE_CHUNK_LEAVES;
            let index = Self::chunk_of(number);
            let chunk = self.resident.entry(index).or_default();
            chunk.tree.set(at, leaf);
            chunk.is_changed = true;
            changed.entry(index).or_default().push(at);
            self.full = self.full.max((number + 1) / MERKLE_CHUNK_LEAVES);
        }

        let mut chunks = Vec::with_capacity(changed.len());
        for (index, leaves) in changed {
            let Some(chunk) = self.resident.get_mut(&index) else { continue };
            chunk.tree.update(leaves);
            self.top.set(index, chunk.tree.root());
            chunks.push(index);
        }
        self.top.update(chunks);
    }

    pub fn root(&self) -> Digest {
        self.top.root()
    }

    /// Returns the root that the tree would have with `leaves` set. Does not change the tree. The
    /// caller must have called [`MerkleChunks::hold`] for each leaf that exists already. New leaves
    /// must follow the last leaf without a gap.
    pub fn root_with(&self, leaves: &BTreeMap<usize, Digest>) -> Digest {
        let mut chunks = BTreeMap::<usize, BTreeMap<usize, Digest>>::new();
        for (number, leaf) in leaves {
            let chunk = chunks.entry(Self::chunk_of(*number)).or_default();
            chunk.insert(number % MERKLE_CHUNK_LEAVES, *leaf);
        }

        let empty = MerkleChunk::default();
        let root_of = |(index, leaves): (usize, BTreeMap<usize, Digest>)| {
            let chunk = self.resident.get(&index).unwrap_or(&empty);
            (index, chunk.tree.root_with(leaves))
        };
        self.top.root_with(chunks.into_iter().map(root_of).collect())
    }

    /// Iterates over the chunks in memory that changed since the last call of
    /// [`MerkleChunks::stored`].
    pub fn changed(&self) -> impl Iterator<Item = (usize, &[Digest])> {
        let changed = self.resident.iter().filter(|(_, chunk)| chunk.is_changed);
        changed.map(|(index, chunk)| (*index, chunk.tree.leaves()))
    }

    /// Marks all changed chunks as stored, after the caller has stored them. Full chunks that no
    /// caller holds then leave memory. The last chunk stays, because it may get a new leaf.
    pub fn stored(&mut self) {
        let full = self.full;
        self.resident.retain(|index, chunk| {
            chunk.is_changed = false;
            chunk.holders > 0 || *index >= full
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(n: usize) -> Digest {
        Digest::of(&n.to_le_bytes())
    }

    fn whole(leaves: &[Digest]) -> Digest {
        let mut tree = MerkleTree::default();
        leaves.iter().enumerate().for_each(|(n, leaf)| tree.set(n, *leaf));
        tree.update((0..leaves.len()).collect());
        tree.root()
    }

    fn set(chunks: &mut MerkleChunks, number: usize, leaf: Digest) {
        chunks.hold(number);
        chunks.set([(number, leaf)].into_iter());
        chunks.release(number);
    }

    #[test]
    fn the_root_is_that_of_the_tree_over_all_leaves() {
        let mut chunks = MerkleChunks::default();
        let mut leaves = Vec::new();
        for n in 0..3 * MERKLE_CHUNK_LEAVES + 5 {
            leaves.push(leaf(n));
            let ahead = BTreeMap::from([(n, leaf(n))]);
            assert_eq!(chunks.root_with(&ahead), whole(&leaves), "ahead at {n}");
            set(&mut chunks, n, leaf(n));
            assert_eq!(chunks.root(), whole(&leaves), "{n}");
        }
    }

    #[test]
    fn a_chunk_that_left_memory_comes_back_only_with_its_own_leaves() {
        let count = 2 * MERKLE_CHUNK_LEAVES + 1;
        let mut chunks = MerkleChunks::default();
        (0..count).for_each(|n| set(&mut chunks, n, leaf(n)));
        let stored: Map<usize, Vec<Digest>> =
            chunks.changed().map(|(index, leaves)| (index, leaves.to_vec())).collect();
        chunks.stored();
        assert!(!chunks.is_resident(0) && !chunks.is_resident(1), "full chunks leave");
        assert!(chunks.is_resident(2), "the last chunk stays");

        let mut other = stored[&0].clone();
        other[3] = leaf(count);
        assert!(!chunks.restore(0, other));
        assert!(chunks.restore(0, stored[&0].clone()));
        set(&mut chunks, 3, leaf(1000));
        let mut leaves: Vec<_> = (0..count).map(leaf).collect();
        leaves[3] = leaf(1000);
        assert_eq!(chunks.root(), whole(&leaves));
    }

    #[test]
    fn a_tree_that_was_read_back_goes_on_as_before() {
        for count in [1, MERKLE_CHUNK_LEAVES, MERKLE_CHUNK_LEAVES + 3] {
            let mut chunks = MerkleChunks::default();
            (0..count).for_each(|n| set(&mut chunks, n, leaf(n)));
            let stored: Map<usize, Vec<Digest>> =
                chunks.changed().map(|(index, leaves)| (index, leaves.to_vec())).collect();
            let mut read = MerkleChunks::from_roots(chunks.roots().to_vec(), count);
            assert_eq!(read.root(), chunks.root());

            let last = MerkleChunks::chunk_of(count);
            if let Some(leaves) = stored.get(&last) {
                assert!(read.restore(last, leaves.clone()));
            }
            set(&mut read, count, leaf(count));
            set(&mut chunks, count, leaf(count));
            assert_eq!(read.root(), chunks.root(), "{count}");
        }
    }
}
