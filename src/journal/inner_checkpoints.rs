//! The checkpoints inside a journal. A reader of the journal compares each checkpoint with the
//! records up to the checkpoint's position.

use crate::ids::Position;

use super::external_marks::agree;
use super::{Checkpoint, Error, TreeHeads};

/// Checkpoints inside a journal that are still to be compared with the journal's records.
#[derive(Debug, Clone, Default)]
pub struct InnerCheckpoints {
    /// Checkpoints that have not been compared with the journal's records yet, in descending order
    /// of position.
    lines: Vec<Checkpoint>,
}

impl InnerCheckpoints {
    /// Creates the list from those checkpoints in `lines` that come after `position`. `lines` must
    /// be in ascending order of position.
    pub fn after(position: Position, mut lines: Vec<Checkpoint>) -> Self {
        lines.retain(|line| line.position > position);
        lines.reverse();
        Self { lines }
    }

    /// Returns the checkpoint at `position`; `None` if the journal has none there. Returns an error
    /// if the signature of the checkpoint is invalid, or if its Merkle root differs from that of
    /// `heads`, the last records of all trees at that position.
    pub fn agreed(
        &mut self,
        position: Position,
        heads: &mut TreeHeads,
    ) -> Result<Option<Checkpoint>, Error> {
        let Some(line) = self.lines.pop_if(|line| line.position == position) else {
            return Ok(None);
        };
        agree(&line, heads)?;
        Ok(Some(line))
    }
}
