//! Proving a journal, from what stands in it and from the checkpoints outside it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use serde::Serialize;
use uuid::Uuid;

use crate::ids::{Digest, MessageId, Position};
use crate::journal::checkpoint::Outside;
use crate::journal::sqlite::{Reader, acknowledged, scan};
use crate::journal::{Checkpoint, Error, Heads, Sealed};
use crate::limits;
use crate::thread::Fact;

use super::ledger::{Ledger, Tally};

/// The first thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Break {
    /// 0 where it is about the journal as a whole.
    pub position: u64,
    pub detail: String,
}

/// A payload that was taken out of the record; the chain still proves what it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Redacted {
    pub position: Position,
    pub message: MessageId,
}

/// How the checkpoints outside compare with those inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutsideState {
    /// Nobody said where they are kept.
    NotCompared,
    /// There are none: a rewritten log could not be told from this one.
    Missing,
    Agrees,
}

/// What was proved, up to the first break.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub journal: Uuid,
    pub epoch: u32,
    pub records: u64,
    pub trees: usize,
    pub threads: usize,
    pub messages: Tally,
    pub in_flight: u64,
    pub redacted: Vec<Redacted>,
    pub blobs: usize,
    pub checkpoints: usize,
    pub outside: OutsideState,
    /// Public keys that signed checkpoints, in hexadecimal.
    pub keys: BTreeSet<String>,
    pub broken: Option<Break>,
}

/// Reads the whole journal in `data` and holds it to every law; `state` is where its checkpoints
/// are kept outside. `progress` hears how many records of how many are done.
///
/// A broken journal is a report, not an error.
pub fn verify(
    data: &Path,
    state: Option<&Path>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Error> {
    let mut proof = Proof::default();
    let broken = match proof.run(data, state, progress) {
        Ok(()) => None,
        Err(Error::Broken { position, detail }) => Some(Break { position, detail }),
        Err(error) => return Err(error),
    };
    Ok(proof.report(broken))
}

fn ends_early(last: Position, known: &str) -> Error {
    Error::Broken { position: last.0 + 1, detail: format!("it ends here, but {known}") }
}

#[derive(Default)]
struct Proof {
    journal: Uuid,
    epoch: u32,
    heads: Heads,
    ledger: Ledger,
    redacted: Vec<Redacted>,
    blobs: usize,
    checkpoints: usize,
    outside: Option<OutsideState>,
    keys: BTreeSet<String>,
}

impl Proof {
    fn run(
        &mut self,
        data: &Path,
        state: Option<&Path>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        // What is said about the journal is read before the journal, which may go on growing.
        let mark = acknowledged(data)?;
        let reader = Reader::open(data)?;
        let about = reader.about()?;
        (self.journal, self.epoch) = (about.journal, about.epoch);
        let outside = state.map(|state| Outside::new(state, about.journal).read()).transpose()?;
        let checkpoints = reader.checkpoints()?;
        let last = reader.last()?;
        if mark.0 > last {
            return Err(ends_early(last, &format!("records up to {} were acknowledged", mark.0)));
        }
        reader.check_structure()?;
        self.compare_outside(outside.as_deref(), &checkpoints)?;
        self.read_all(data, last, mark, &checkpoints, progress)?;
        if let Some(beyond) = checkpoints.iter().find(|checkpoint| checkpoint.position > last) {
            let detail = format!("a checkpoint speaks of position {}", beyond.position);
            return Err(ends_early(last, &detail));
        }
        self.check_trees(&reader, last)?;
        self.check_blobs(&reader)
    }

    fn read_all(
        &mut self,
        data: &Path,
        last: Position,
        mark: (Position, Digest),
        checkpoints: &[Checkpoint],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let mut due: HashMap<Position, &Checkpoint> =
            checkpoints.iter().map(|checkpoint| (checkpoint.position, checkpoint)).collect();
        let mut heads = std::mem::take(&mut self.heads);
        let result = scan(data, last, &mut heads, &mut |sealed, heads| {
            let position = sealed.record.position;
            if position == mark.0 && sealed.hash != mark.1 {
                let detail = "it is not the record that was acknowledged".to_owned();
                return Err(Error::Broken { position: position.0, detail });
            }
            self.take(&sealed)?;
            if let Some(checkpoint) = due.remove(&position) {
                self.hold_to(checkpoint, heads)?;
            }
            if position.0 % limits::SCAN_RECORDS == 0 || position == last {
                progress(position.0, last.0);
            }
            Ok(())
        });
        self.heads = heads;
        result
    }

    fn take(&mut self, sealed: &Sealed) -> Result<(), Error> {
        let position = sealed.record.position;
        let broken = |detail| Error::Broken { position: position.0, detail };
        self.ledger.take(&sealed.record).map_err(broken)?;
        for fact in &sealed.record.facts {
            match fact {
                Fact::Accepted { message, .. } if message.payload.is_redacted() => {
                    self.redacted.push(Redacted { position, message: message.id });
                }
                Fact::Booted { epoch, .. } if *epoch > self.epoch => {
                    let detail = format!("a pump started with epoch {epoch}, beyond the journal's");
                    return Err(broken(detail));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn hold_to(&mut self, checkpoint: &Checkpoint, heads: &mut Heads) -> Result<(), Error> {
        let position = checkpoint.position.0;
        let broken = |detail: &str| Error::Broken { position, detail: detail.to_owned() };
        if checkpoint.journal != self.journal || checkpoint.count != position {
            return Err(broken("its checkpoint is another journal's"));
        }
        if !checkpoint.is_genuine() {
            return Err(broken("its checkpoint has a false signature"));
        }
        if checkpoint.merkle_root != heads.merkle_root() {
            return Err(broken("the records up to here are not those of its checkpoint"));
        }
        self.checkpoints += 1;
        self.keys.insert(checkpoint.key.clone());
        Ok(())
    }

    /// Every line outside must stand inside too; the newest inside may not be outside yet.
    fn compare_outside(
        &mut self,
        outside: Option<&[Checkpoint]>,
        inside: &[Checkpoint],
    ) -> Result<(), Error> {
        let state = match outside {
            None => OutsideState::NotCompared,
            Some([]) => OutsideState::Missing,
            Some(_) => OutsideState::Agrees,
        };
        self.outside = Some(state);
        for line in outside.unwrap_or_default() {
            let found = inside.binary_search_by_key(&line.position, |inside| inside.position);
            let same =
                found.ok().and_then(|at| inside.get(at)).is_some_and(|inside| inside == line);
            if !same {
                let detail = "the checkpoint outside is not the one in the journal".to_owned();
                return Err(Error::Broken { position: line.position.0, detail });
            }
        }
        Ok(())
    }

    /// The table of trees is derived, but readers rely on it.
    fn check_trees(&self, reader: &Reader, last: Position) -> Result<(), Error> {
        reader.check_refreshed()?;
        let trees = reader.trees()?;
        for tree in &trees {
            let right = self.heads.get(&tree.root).is_some_and(|head| {
                (head.first, head.position, head.records, head.opened, head.updated)
                    == (tree.first, tree.head, tree.records, tree.opened, tree.updated)
            });
            // A tree that grew meanwhile is not held against the heads of before.
            if !right && tree.head <= last {
                let detail = format!("the table of trees is wrong about {}", tree.root);
                return Err(Error::Broken { position: tree.head.0, detail });
            }
        }
        if trees.len() < self.heads.len() {
            let detail = "trees are missing from the table of trees".to_owned();
            return Err(Error::Broken { position: 0, detail });
        }
        Ok(())
    }

    fn check_blobs(&mut self, reader: &Reader) -> Result<(), Error> {
        for digest in reader.blobs()? {
            reader.blob(digest)?;
            self.blobs += 1;
        }
        Ok(())
    }

    fn report(self, broken: Option<Break>) -> Report {
        let messages = self.ledger.total();
        Report {
            journal: self.journal,
            epoch: self.epoch,
            records: self.heads.last().0,
            trees: self.heads.len(),
            threads: self.ledger.threads().count(),
            in_flight: messages.in_flight(),
            messages,
            redacted: self.redacted,
            blobs: self.blobs,
            checkpoints: self.checkpoints,
            outside: self.outside.unwrap_or(OutsideState::NotCompared),
            keys: self.keys,
            broken,
        }
    }
}
