//! Blanked payloads that no operator's record explains.

use std::collections::BTreeSet;

use crate::envelope::Payload;
use crate::ids::Position;
use crate::journal::{Error, HashedRecord};
use crate::mutant::mutant;
use crate::thread::Input;

use super::OperatorAcceptance;

/// Records with blanked payloads, while the records go by.
#[derive(Debug, Default)]
pub struct RedactedRecords {
    blanked: BTreeSet<Position>,
    accepted: BTreeSet<Position>,
}

impl RedactedRecords {
    pub fn take(&mut self, sealed: &HashedRecord) {
        if sealed.record.payloads().any(Payload::is_redacted) {
            self.blanked.insert(sealed.record.position);
        }
        if let Input::Operator(action) = &sealed.record.input {
            self.accepted.extend(action.redacted());
        }
    }

    /// Blanked, and accepted by nobody yet.
    pub fn unrecorded(&self) -> impl Iterator<Item = Position> {
        self.blanked.difference(&self.accepted).copied()
    }

    /// Refuses them, unless an operator is about to accept something: then each in its turn.
    pub fn judge(&self, accept: OperatorAcceptance) -> Result<(), Error> {
        match self.unrecorded().next() {
            Some(at)
                if accept == OperatorAcceptance::default() && !mutant("trust-blank-payloads") =>
            {
                let detail = "a payload of it was blanked, and no operator's record says so; restore \
                              a backup, or record it with `organism repair --accept-redaction`";
                Err(Error::broken(at.0, detail))
            }
            _ => Ok(()),
        }
    }
}
