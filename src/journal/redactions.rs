//! Records with blanked payloads, and the recorded actions in which operators accept that these
//! payloads were blanked.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::envelope::Payload;
use crate::ids::Position;
use crate::mutant::mutant;
use crate::thread::Input;

use super::judge::OperatorAcceptance;
use super::{Error, HashedRecord};

/// Records with blanked payloads, and those records whose blanked payloads an operator accepted.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedactedRecords {
    #[serde(rename = "blanked", default, skip_serializing_if = "BTreeSet::is_empty")]
    blanked: BTreeSet<Position>,
    #[serde(rename = "accepted", default, skip_serializing_if = "BTreeSet::is_empty")]
    accepted: BTreeSet<Position>,
}

impl RedactedRecords {
    /// Reads the next record. If one of its payloads is blanked, adds the record. If the record is
    /// an action in which an operator accepts blanked payloads of other records, adds these
    /// acceptances.
    pub fn take(&mut self, sealed: &HashedRecord) {
        if sealed.record.payloads().any(Payload::is_redacted) {
            self.blanked.insert(sealed.record.position);
        }
        if let Input::Operator(action) = &sealed.record.input {
            self.accepted.extend(action.redacted());
        }
    }

    /// Returns the positions of all records with blanked payloads.
    pub fn blanked(&self) -> &BTreeSet<Position> {
        &self.blanked
    }

    /// Whether a payload of any record was blanked.
    pub fn has_any(&self) -> bool {
        !self.blanked.is_empty()
    }

    /// Adds the redactions that operators accepted in the records of `later`, for example in the
    /// records after a snapshot.
    pub fn add_accepted(&mut self, later: &Self) {
        self.accepted.extend(&later.accepted);
    }

    /// Returns the positions of records with blanked payloads, except the records whose redaction
    /// an operator accepted in a recorded action.
    pub fn unrecorded(&self) -> impl Iterator<Item = Position> {
        self.blanked.difference(&self.accepted).copied()
    }

    /// Refuses a journal with a blanked payload that no operator accepted in a recorded action.
    /// `accept` contains the kinds of damage that an operator accepts with the present command. If
    /// there is at least one, no journal is refused, so that the operator can accept one kind of
    /// damage after another.
    pub fn judge(&self, accept: OperatorAcceptance) -> Result<(), Error> {
        refuse_blanked(self.unrecorded().next(), accept)
    }
}

/// Refuses a journal with blanked payloads that no operator accepted in a recorded action. `first`
/// is the first record with such a payload, or `None`. `accept` contains the kinds of damage that
/// an operator accepts with the present command. If there is at least one, no journal is refused,
/// so that the operator can accept one kind of damage after another.
pub fn refuse_blanked(first: Option<Position>, accept: OperatorAcceptance) -> Result<(), Error> {
    match first {
        Some(at) if accept == OperatorAcceptance::default() && !mutant("trust-blank-payloads") => {
            let detail = "a payload of it was blanked, and no operator's record says so; restore a \
                          backup, or record it with `organism repair --accept-redaction`";
            Err(Error::broken(at.0, detail))
        }
        _ => Ok(()),
    }
}
