//! The heads of all trees of a journal: the last record of each tree. With the heads, each new
//! record is checked: it must follow from the last record of its tree.
//!
//! The memory for the heads of a running pump does not grow with the number of trees. The pump
//! moves the heads of trees without recent records to a working file, which is a temporary database
//! on disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use crate::clock::Time;
use crate::ids::{Digest, Position, ThreadId};
use crate::limits;
use crate::thread::{Map, Record};

use super::merkle_chunks::MerkleChunks;
use super::sqlite::{HeadStore, HeadsSummary};
use super::{Error, HashedRecord};

/// The last record of one tree.
#[derive(Debug, Clone)]
pub struct TreeHead {
    pub root: ThreadId,
    /// Number of trees that appeared before this one.
    pub(super) number: usize,
    pub first: Position,
    pub position: Position,
    pub hash: Digest,
    pub records: u64,
    pub opened: Time,
    pub updated: Time,
    /// Whether the Merkle tree contains the present hash of this head.
    pub(super) is_summed: bool,
    /// Whether the head is unchanged since the last call of [`TreeHeads::saved`].
    pub(super) is_saved: bool,
    /// Whether the present state of this head is stored in the working file, a temporary database
    /// for heads that leave memory.
    pub(super) is_stored: bool,
}

/// The heads of all trees of a journal.
#[derive(Debug, Default)]
pub struct TreeHeads {
    /// The heads in memory. All other heads are in the working file on disk, or in a database of a
    /// snapshot.
    resident: Map<ThreadId, TreeHead>,
    trees: usize,
    merkle: MerkleChunks,
    /// Roots of the trees whose present heads are not in the Merkle tree yet. These heads are in
    /// memory.
    unsummed: Vec<ThreadId>,
    unsaved: UnsavedHeads,
    absent: Option<AbsentHeads>,
    last: Position,
    last_hash: Digest,
}

/// The trees whose heads changed since the last call of [`TreeHeads::saved`].
#[derive(Debug)]
enum UnsavedHeads {
    Some(Vec<ThreadId>),
    /// Every tree, because so many heads have changed that a list of them would be too long.
    All,
}

/// The store for heads that are not in memory, and the data that decides which heads leave memory.
#[derive(Debug)]
struct AbsentHeads {
    /// Directory of the working file, a temporary database for heads that leave memory.
    directory: PathBuf,
    /// The working file; `None` until a head is stored in it. Most organisms never need this file.
    store: Option<HeadStore>,
    /// Uses of the heads in memory, oldest first. An entry contains the root of a tree, and the
    /// position of the tree's last record at the time of the use. When the tree gets another
    /// record, a new entry is added, and the older entry no longer counts.
    used: VecDeque<(ThreadId, Position)>,
    bounds: HeadBounds,
    /// Number of entries in `used` at which the least recently used heads leave memory.
    full_at: usize,
}

/// Limits that decide which heads leave memory, as numbers of uses. A head is used when its tree
/// gets a record, and when the head is loaded into memory.
#[derive(Debug, Clone, Copy)]
struct HeadBounds {
    /// Number of the latest uses that keep their heads in memory. Because a head may be used
    /// several times, fewer heads than this number may stay.
    kept: usize,
    /// Number of uses beyond `kept` that are collected before heads leave memory. When `kept` +
    /// `batch` uses are collected, all heads that are not among the latest `kept` uses leave memory
    /// together.
    batch: usize,
}

impl HeadBounds {
    fn full_at(self) -> usize {
        self.kept + self.batch
    }
}

impl Default for HeadBounds {
    fn default() -> Self {
        Self { kept: limits::RESIDENT_HEADS, batch: limits::RESIDENT_HEADS_BATCH }
    }
}

impl TreeHeads {
    /// Creates the heads of an empty journal. Once there are too many heads for memory, some of
    /// them move to a working file in `directory`.
    pub fn in_directory(directory: &Path) -> Self {
        let absent = Some(AbsentHeads::new(directory, None));
        Self { absent, ..Self::default() }
    }

    /// Creates the heads of an empty journal, with the new file `file` as their working file. A
    /// later call of [`TreeHeads::store_all`] writes all heads to this file.
    pub(super) fn in_new_file(file: &Path) -> Result<Self, Error> {
        let store = HeadStore::create_file(file)?;
        let directory = file.parent().unwrap_or(file);
        let absent = Some(AbsentHeads::new(directory, Some(store)));
        Ok(Self { absent, ..Self::default() })
    }

    /// Opens the heads that are stored in `file`; `None` if the file is damaged. `last` and
    /// `last_hash` are the position and the hash of one record: the record that was the journal's
    /// last one when the heads were stored.
    ///
    /// Reads and checks only a small part of the file, so the caller must compare the Merkle root
    /// of the heads with the Merkle root in the snapshot's checkpoint.
    pub(super) fn in_file(
        file: &Path,
        last: Position,
        last_hash: Digest,
    ) -> Result<Option<Self>, Error> {
        Self::stored(HeadStore::open(file)?, file, last, last_hash)
    }

    /// Opens the heads of a snapshot as [`TreeHeads::in_file`] does, but never writes to `file`.
    /// Returns `None` if the file is damaged. Heads that leave memory go to a separate working file
    /// in the directory of `file`.
    pub(super) fn over_file(
        file: &Path,
        last: Position,
        last_hash: Digest,
    ) -> Result<Option<Self>, Error> {
        Self::stored(HeadStore::open_over(file)?, file, last, last_hash)
    }

    fn stored(
        store: Option<(HeadStore, HeadsSummary)>,
        file: &Path,
        last: Position,
        last_hash: Digest,
    ) -> Result<Option<Self>, Error> {
        let Some((store, summary)) = store else { return Ok(None) };
        let trees = summary.trees;
        let mut merkle = MerkleChunks::from_roots(summary.roots, trees);
        let chunk = MerkleChunks::chunk_of(trees);
        if chunk < merkle.roots().len() && !merkle.restore(chunk, store.leaves(chunk)?) {
            return Ok(None);
        }

        let directory = file.parent().unwrap_or(file);
        let absent = Some(AbsentHeads::new(directory, Some(store)));
        Ok(Some(Self { trees, merkle, absent, last, last_hash, ..Self::default() }))
    }

    /// Returns an independent copy of these heads.
    pub(super) fn duplicate(&self) -> Result<Self, Error> {
        let absent = self.absent.as_ref().map(AbsentHeads::duplicate).transpose()?;
        Ok(Self {
            resident: self.resident.clone(),
            trees: self.trees,
            merkle: self.merkle.clone(),
            unsummed: self.unsummed.clone(),
            unsaved: UnsavedHeads::All,
            absent,
            last: self.last,
            last_hash: self.last_hash,
        })
    }

    /// Returns the head of the tree `root` if the head is in memory; `None` otherwise.
    pub fn resident(&self, root: &ThreadId) -> Option<&TreeHead> {
        self.resident.get(root)
    }

    /// Returns the head of the tree `root`, from memory or from the store on disk; `None` if the
    /// journal has no record of this tree.
    pub fn find(&self, root: &ThreadId) -> Result<Option<TreeHead>, Error> {
        match (self.resident.get(root), &self.absent) {
            (Some(head), _) => Ok(Some(head.clone())),
            (None, Some(AbsentHeads { store: Some(store), .. })) => store.get(root),
            (None, _) => Ok(None),
        }
    }

    /// Loads the head of the tree `root` into memory, unless the head is already in memory. Must be
    /// called before each change of the head.
    pub(super) fn recall(&mut self, root: &ThreadId) -> Result<(), Error> {
        if self.resident.contains_key(root) {
            return Ok(());
        }

        let Some(absent) = &mut self.absent else { return Ok(()) };
        let Some(store) = &absent.store else { return Ok(()) };
        let Some(head) = store.get(root)? else { return Ok(()) };
        let chunk = MerkleChunks::chunk_of(head.number);
        let is_restored =
            self.merkle.is_resident(chunk) || self.merkle.restore(chunk, store.leaves(chunk)?);
        if !is_restored || self.merkle.leaf(head.number) != Some(leaf(root, head.hash)) {
            let name = format!("the head of the tree {root}");
            let detail = "the working file contradicts the Merkle tree".to_owned();
            return Err(Error::Resting { name, detail });
        }

        self.merkle.hold(head.number);
        absent.used.push_back((root.clone(), head.position));
        self.resident.insert(root.clone(), head);
        Ok(())
    }

    /// Whether the head of the tree `root` may be lost, because the working file was damaged. Must
    /// be called after [`TreeHeads::recall`], which loads a stored head into memory. Returns true
    /// if the head is then still not in memory, but may have been stored.
    pub(super) fn may_have_lost(&self, root: &ThreadId) -> bool {
        let store = self.absent.as_ref().and_then(|absent| absent.store.as_ref());
        !self.resident.contains_key(root) && store.is_some_and(|store| store.may_have(root))
    }

    /// Moves all heads to the working file, and then deletes the row of the tree `root` from that
    /// file, to simulate damage.
    #[cfg(test)]
    pub(super) fn lose(&mut self, root: &ThreadId) {
        let absent = self.absent.as_mut().expect("these heads can leave memory");
        absent.bounds = HeadBounds { kept: 0, batch: 0 };
        absent.full_at = 0;
        self.let_leave();
        let store = self.absent.as_mut().and_then(|absent| absent.store.as_mut());
        store.expect("heads were stored").lose(root);
    }

    /// Returns the number of trees.
    pub fn len(&self) -> usize {
        self.trees
    }

    pub fn is_empty(&self) -> bool {
        self.trees == 0
    }

    /// Returns the position of the journal's last record; 0 if the journal is empty. Positions are
    /// dense, so this is also the number of records.
    pub fn last(&self) -> Position {
        self.last
    }

    pub fn last_hash(&self) -> Digest {
        self.last_hash
    }

    /// Updates the heads with the next record. Returns an error if the record does not follow from
    /// these heads.
    pub fn follow(&mut self, sealed: &HashedRecord) -> Result<(), Error> {
        let record = &sealed.record;
        let expected = self.last.0 + 1;
        if record.position.0 != expected {
            return Err(Error::broken(expected, format!("found position {}", record.position)));
        }

        self.recall(&record.tree)?;
        let head = self.resident(&record.tree);
        let (position, hash) = head.map(|head| (head.position, head.hash)).unwrap_or_default();
        if record.previous != position && self.may_have_lost(&record.tree) {
            let name = format!("the head of the tree {}", record.tree);
            let detail = "the working file may have lost it; start again".to_owned();
            return Err(Error::Resting { name, detail });
        }

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
        self.let_leave();
        Ok(())
    }

    /// Updates the heads with a record that is known to follow from them. The head of the record's
    /// tree must be in memory.
    pub(super) fn advance(&mut self, record: &Record, hash: Digest) {
        self.last = record.position;
        self.last_hash = hash;
        let Self { resident, trees, merkle, .. } = self;
        let head = resident.entry(record.tree.clone()).or_insert_with(|| {
            let number = *trees;
            merkle.hold(number);
            *trees += 1;
            new_head(record, number)
        });

        head.position = record.position;
        head.hash = hash;
        head.records += 1;
        head.updated = record.time;
        head.is_stored = false;
        if std::mem::take(&mut head.is_summed) {
            self.unsummed.push(record.tree.clone());
        }

        if std::mem::take(&mut head.is_saved) {
            self.unsaved.push(&record.tree);
        }

        if let Some(absent) = &mut self.absent {
            absent.used.push_back((record.tree.clone(), record.position));
        }
    }

    /// Moves the heads without a recent use from memory to the working file, once enough uses have
    /// been collected. If the working file cannot be written, the heads stay in memory, and the
    /// move is tried again after further uses.
    pub(super) fn let_leave(&mut self) {
        let Some(absent) = &self.absent else { return };
        if absent.used.len() < absent.full_at {
            return;
        }

        self.merkle_root();
        let Self { resident, merkle, absent: Some(absent), .. } = self else { return };
        let beyond = absent.used.len().saturating_sub(absent.bounds.kept);
        let is_last_use = |(root, position): &(ThreadId, Position)| {
            resident.get(root).is_some_and(|head| head.position == *position)
        };
        let leaving: Vec<ThreadId> =
            absent.used.drain(..beyond).filter(is_last_use).map(|(root, _)| root).collect();

        if leaving.is_empty() {
            return;
        }

        let heads = leaving.iter().filter_map(|root| resident.get(root));
        let unstored = heads.filter(|head| !head.is_stored);
        let stored = absent.store().and_then(|store| store.put(unstored, merkle.changed()));
        if let Err(error) = stored {
            tracing::warn!("heads of trees stay in memory; retrying later: {error}");
            let positions = leaving.into_iter().filter_map(|root| {
                let position = resident.get(&root)?.position;
                Some((root, position))
            });
            absent.used.extend(positions);
            absent.full_at = absent.used.len() + absent.used.len() / 2;
            return;
        }

        absent.full_at = absent.bounds.full_at();
        for root in &leaving {
            if let Some(head) = resident.remove(root) {
                merkle.release(head.number);
            }
        }
        merkle.stored();
    }

    /// Stores all heads in the working file, with a summary that [`TreeHeads::in_file`] reads.
    pub(super) fn store_all(&mut self) -> Result<(), Error> {
        self.merkle_root();
        let Self { resident, merkle, absent: Some(absent), trees, .. } = self else {
            return Ok(());
        };
        let store = absent.store()?;
        let mut unstored: Vec<_> = resident.values().filter(|head| !head.is_stored).collect();
        unstored.sort_unstable_by(|one, other| one.root.cmp(&other.root));
        // In parts, because a transaction holds every page that it changes in memory.
        for part in unstored.chunks(limits::RESIDENT_HEADS_BATCH) {
            store.put(part.iter().copied(), std::iter::empty())?;
        }
        store.put(std::iter::empty(), merkle.changed())?;
        store.write_summary(*trees, merkle.roots())?;
        resident.values_mut().for_each(|head| head.is_stored = true);
        merkle.stored();
        Ok(())
    }

    /// Returns the Merkle root over all heads. The cost of a call depends on the number of heads
    /// that changed since the last call.
    pub fn merkle_root(&mut self) -> Digest {
        let mut changed = Vec::with_capacity(self.unsummed.len());
        for root in self.unsummed.drain(..) {
            let Some(head) = self.resident.get_mut(&root) else { continue };
            head.is_summed = true;
            changed.push((head.number, leaf(&root, head.hash)));
        }

        changed.sort_unstable_by_key(|(number, _)| *number);
        self.merkle.set(changed.into_iter());
        self.merkle.root()
    }

    /// Returns the Merkle root that the heads will have after `records`. Each record comes with its
    /// hash, and the head of its tree must be in memory. The cost does not depend on the number of
    /// trees.
    pub(super) fn merkle_root_after<'r>(
        &mut self,
        records: impl Iterator<Item = (&'r Record, Digest)>,
    ) -> Digest {
        self.merkle_root();
        let mut added = HashMap::new();
        let mut leaves = BTreeMap::new();
        for (record, hash) in records {
            let root = &record.tree;
            let next = self.trees + added.len();
            let known = self.resident.get(root).map(|head| head.number);
            let number = known.unwrap_or_else(|| *added.entry(root).or_insert(next));
            leaves.insert(number, leaf(root, hash));
        }

        self.merkle.root_with(&leaves)
    }

    /// Marks the head of the tree `root` as changed since the last call of [`TreeHeads::saved`].
    pub(super) fn note_unsaved(&mut self, root: &ThreadId) {
        self.unsaved.push(root);
    }

    /// Calls `visit` for each head that changed since the last call of [`TreeHeads::saved`]. If so
    /// many heads changed that no list of them was kept, calls `visit` for every head.
    pub(super) fn each_unsaved(
        &self,
        visit: &mut dyn FnMut(&TreeHead) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let UnsavedHeads::Some(roots) = &self.unsaved else { return self.each(visit) };
        for root in roots {
            if let Some(head) = self.find(root)? {
                visit(&head)?;
            }
        }
        Ok(())
    }

    /// Passes all heads to `visit`.
    pub(super) fn each(
        &self,
        visit: &mut dyn FnMut(&TreeHead) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.resident.values().try_for_each(&mut *visit)?;
        let Some(AbsentHeads { store: Some(store), .. }) = &self.absent else { return Ok(()) };
        store.for_each(&mut |head| match self.resident.get(&head.root) {
            Some(_) => Ok(()),
            None => visit(head),
        })
    }

    pub(super) fn saved(&mut self) {
        if let UnsavedHeads::Some(roots) = std::mem::take(&mut self.unsaved) {
            for root in roots {
                if let Some(head) = self.resident.get_mut(&root) {
                    head.is_saved = true;
                }
            }
        } else {
            self.resident.values_mut().for_each(|head| head.is_saved = true);
        }
    }
}

impl Default for UnsavedHeads {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

impl UnsavedHeads {
    fn push(&mut self, root: &ThreadId) {
        match self {
            Self::Some(roots) if roots.len() < limits::UNSAVED_HEADS_MAX => {
                roots.push(root.clone());
            }
            _ => *self = Self::All,
        }
    }
}

impl AbsentHeads {
    fn new(directory: &Path, store: Option<HeadStore>) -> Self {
        let bounds = HeadBounds::default();
        let full_at = bounds.full_at();
        Self { directory: directory.to_owned(), store, used: VecDeque::new(), bounds, full_at }
    }

    fn store(&mut self) -> Result<&mut HeadStore, Error> {
        match &mut self.store {
            Some(store) => Ok(store),
            none => Ok(none.insert(HeadStore::create(&self.directory)?)),
        }
    }

    fn duplicate(&self) -> Result<Self, Error> {
        let store = self.store.as_ref().map(|store| store.duplicate(&self.directory));
        let store = store.transpose()?;
        let Self { directory, used, bounds, full_at, .. } = self;
        Ok(Self {
            directory: directory.clone(),
            store,
            used: used.clone(),
            bounds: *bounds,
            full_at: *full_at,
        })
    }
}

fn new_head(record: &Record, number: usize) -> TreeHead {
    TreeHead {
        root: record.tree.clone(),
        number,
        first: record.position,
        position: record.position,
        hash: Digest::ZERO,
        records: 0,
        opened: record.time,
        updated: record.time,
        is_summed: true,
        is_saved: true,
        is_stored: false,
    }
}

/// Returns the Merkle leaf of the tree `root`, whose last record has the hash `head`.
fn leaf(root: &ThreadId, head: Digest) -> Digest {
    Digest::of_parts(&[b"\0", root.as_str().as_bytes(), b"\0", &head.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::record_hash;
    use crate::thread::Input;

    /// Creates the heads of an empty journal. At most 12 heads stay in memory, and the others move
    /// to a working file in `directory`.
    fn small(directory: &Path) -> TreeHeads {
        let mut heads = TreeHeads::in_directory(directory);
        let absent = heads.absent.as_mut().unwrap();
        absent.bounds = HeadBounds { kept: 8, batch: 4 };
        absent.full_at = absent.bounds.full_at();
        heads
    }

    /// Creates a record of tree `n` that follows from `heads`.
    fn next(heads: &TreeHeads, n: usize) -> HashedRecord {
        let tree = ThreadId::parse(&format!("sess-tree{n:04}")).unwrap();
        let head = heads.find(&tree).unwrap();
        let (previous, previous_hash) =
            head.map(|head| (head.position, head.hash)).unwrap_or_default();
        let position = Position(heads.last().0 + 1);
        let time = Time(position.0 as i64);
        let input = Input::Standstill { stood_micros: 0, stepped_micros: 0 };
        let record =
            Record { position, tree, previous, previous_hash, time, input, facts: Vec::new() };
        let hash = record_hash(&(&record).into(), b"");
        HashedRecord { record, hash, mac: None }
    }

    /// Returns the tree numbers of 500 records. Some records begin a new tree, some continue a
    /// recent tree, and some continue an old tree.
    fn trees() -> impl Iterator<Item = usize> {
        (0..500_usize).map(|n| match n % 5 {
            0 | 1 => n / 2,
            2 => (n * 7919) % (n / 2 + 1),
            _ => (n / 2).saturating_sub(n % 3),
        })
    }

    fn assert_same(few: &mut TreeHeads, all: &mut TreeHeads) {
        assert_eq!(few.merkle_root(), all.merkle_root());
        assert_eq!((few.len(), few.last()), (all.len(), all.last()));
        let shown = |heads: &TreeHeads| {
            let mut shown = BTreeMap::new();
            let mut visit = |head: &TreeHead| {
                let head = (head.number, head.first, head.position, head.hash, head.records);
                assert!(shown.insert(format!("{head:?}"), ()).is_none(), "passed twice");
                Ok(())
            };
            heads.each(&mut visit).unwrap();
            shown
        };
        assert_eq!(shown(few), shown(all));
    }

    #[test]
    fn heads_outside_memory_are_followed_like_heads_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let mut few = small(directory.path());
        let mut all = TreeHeads::default();
        for n in trees() {
            let sealed = next(&all, n);
            few.follow(&sealed).unwrap();
            all.follow(&sealed).unwrap();
            assert!(few.resident.len() <= 12, "{} are in memory", few.resident.len());
            if n % 7 == 0 {
                assert_eq!(few.merkle_root(), all.merkle_root(), "tree {n}");
            }
        }

        assert_same(&mut few, &mut all);
        let again = HashedRecord { ..next(&all, 3) };
        let mut forged = HashedRecord { ..next(&all, 3) };
        forged.record.previous_hash = Digest::ZERO;
        assert!(few.follow(&forged).is_err(), "the hash of an absent head is compared");
        few.follow(&again).unwrap();
    }

    #[test]
    fn a_root_ahead_counts_absent_and_new_trees() {
        let directory = tempfile::tempdir().unwrap();
        let mut heads = small(directory.path());
        for n in trees() {
            heads.follow(&next(&heads, n)).unwrap();
        }

        let sealed = [next(&heads, 1), next(&heads, 900)];
        for one in &sealed {
            heads.recall(&one.record.tree).unwrap();
        }
        let ahead = heads.merkle_root_after(sealed.iter().map(|one| (&one.record, one.hash)));
        sealed.iter().for_each(|one| heads.advance(&one.record, one.hash));
        assert_eq!(heads.merkle_root(), ahead);
    }

    #[test]
    fn heads_that_were_read_back_from_their_file_go_on_as_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("heads.db");
        let mut all = TreeHeads::default();
        let mut stored = TreeHeads::in_new_file(&file).unwrap();
        for n in trees().take(200) {
            let sealed = next(&all, n);
            stored.follow(&sealed).unwrap();
            all.follow(&sealed).unwrap();
        }
        stored.store_all().unwrap();
        drop(stored);

        let (last, hash) = (all.last(), all.last_hash());
        let mut read = TreeHeads::in_file(&file, last, hash).unwrap().unwrap();
        let mut copy = read.duplicate().unwrap();
        for n in trees().skip(200) {
            let sealed = next(&all, n);
            read.follow(&sealed).unwrap();
            all.follow(&sealed).unwrap();
        }
        assert_same(&mut read, &mut all);

        copy.follow(&next(&copy, 5)).unwrap();
        assert_eq!(copy.last(), Position(last.0 + 1), "a duplicate changes apart");
    }

    #[test]
    fn each_unsaved_head_is_passed_also_from_the_working_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut heads = small(directory.path());
        (0..50).for_each(|n| heads.follow(&next(&heads, n)).unwrap());
        heads.saved();
        (0..40).step_by(2).for_each(|n| heads.follow(&next(&heads, n)).unwrap());

        let mut unsaved = Vec::new();
        let mut visit = |head: &TreeHead| {
            unsaved.push(head.number);
            Ok(())
        };
        heads.each_unsaved(&mut visit).unwrap();
        assert_eq!(unsaved, (0..40).step_by(2).collect::<Vec<_>>());
        heads.saved();
        heads.each_unsaved(&mut |_| panic!("all are saved")).unwrap();
    }

    #[test]
    fn a_lost_head_is_a_fault_of_the_working_file_and_not_of_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let mut heads = small(directory.path());
        heads.follow(&next(&heads, 1)).unwrap();
        let sealed = next(&heads, 1);
        heads.lose(&sealed.record.tree);
        let error = heads.follow(&sealed).unwrap_err();
        assert!(matches!(error, Error::Resting { .. }), "{error}");
    }

    #[test]
    fn more_unsaved_heads_than_are_listed_are_all_heads() {
        let mut heads = TreeHeads::default();
        (0..3).for_each(|n| heads.follow(&next(&heads, n)).unwrap());
        heads.saved();
        let root = next(&heads, 0).record.tree;
        (0..=limits::UNSAVED_HEADS_MAX).for_each(|_| heads.note_unsaved(&root));

        let mut passed = 0;
        let mut visit = |_: &TreeHead| {
            passed += 1;
            Ok(())
        };
        heads.each_unsaved(&mut visit).unwrap();
        assert_eq!(passed, 3);
    }
}
