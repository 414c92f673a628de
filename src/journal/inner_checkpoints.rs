//! The checkpoints inside a journal, compared with its records in order.

use crate::ids::Position;

use super::external_marks::agree;
use super::{Checkpoint, Error, TreeHeads};

/// Checkpoints inside a journal. Each is compared with the journal's records when the records are
/// read.
#[derive(Debug, Clone, Default)]
pub struct InnerCheckpoints {
    /// Checkpoints that are not compared yet, in descending order of position.
    lines: Vec<Checkpoint>,
}

impl InnerCheckpoints {
    /// Returns the checkpoints of `lines` after `position`. `lines` must be in order of position.
    pub fn after(position: Position, mut lines: Vec<Checkpoint>) -> Self {
        lines.retain(|line| line.position > position);
        lines.reverse();
        Self { lines }
    }

    /// Returns the checkpoint at `position`, the last record of `heads`; `None` if no checkpoint is
    /// there. Refuses a checkpoint that covers other records than `heads` does.
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
