//! A file as it is and as it shall be.

use crate::place::Place;
use crate::root::Owner;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub place: Place,
    /// None where there is no file.
    pub before: Option<Vec<u8>>,
    /// None where there shall be none.
    pub after: Option<Vec<u8>>,
    /// What a content that takes the place of another keeps of it.
    pub owner: Option<Owner>,
}

impl Change {
    pub fn is_one(&self) -> bool {
        self.before != self.after
    }

    /// Of both contents.
    pub fn bytes(&self) -> usize {
        let length = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, Vec::len);
        length(&self.before) + length(&self.after)
    }

    pub fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "created",
            (Some(_), None) => "deleted",
            (Some(_), Some(_)) => "changed",
        }
    }
}
