//! Repairing a journal that a start refuses: what an operator accepts is recorded.

use std::collections::BTreeSet;
use std::path::Path;

use crate::clock::Time;
use crate::config::{Config, Storage};
use crate::envelope::Payload;
use crate::ids::Position;
use crate::journal::Heads;
use crate::journal::sqlite::{self, Acceptance, Found, Reader, TakenOut};
use crate::limits;
use crate::thread::{ActionDetail, Input, OperatorVerb};

use super::access::refuse_hosted_start;
use super::{Error, core, operator};

/// What the operator accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Records that are gone, or that no MAC covers.
    Loss,
    /// Payloads that were blanked.
    Redaction,
    /// What stands there counts under this host's key, whatever key it was kept with.
    Key,
}

/// How a journal was found, and what was taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    pub found: Found,
    /// Records whose blanked payloads were accepted, at most [`limits::ACTION_DETAILS_MAX`] at once.
    pub redacted: Vec<Position>,
}

/// Accepts what a start of `config` refuses, as a recorded action that a checkpoint follows. None
/// where there is nothing of that kind to accept; nothing is recorded then. What is accepted takes
/// effect with the commit of the action.
pub fn repair(config: &Config, accepted: Accepted, note: &str) -> Result<Option<Repaired>, Error> {
    refuse_hosted_start(config)?;
    let Storage::Embedded = config.storage else { return Err(Error::NotEmbedded) };
    let accept = match accepted {
        Accepted::Loss => Acceptance { loss: true, ..Acceptance::default() },
        Accepted::Redaction => Acceptance::default(),
        Accepted::Key => Acceptance { key: true, ..Acceptance::default() },
    };
    let redacted = match accepted {
        Accepted::Redaction => blanked(&config.data)?,
        Accepted::Loss | Accepted::Key => Vec::new(),
    };
    let mut core = core(config);
    let mut journal = operator::open_accepting(config, &mut core, accept)?;
    let found = journal.found().clone();
    let repaired = Repaired { found, redacted };
    if repaired.is_nothing(accepted) {
        journal.close(Time::now())?;
        return Ok(None);
    }
    let details = repaired.details(accepted, journal.public_key());
    let action = operator::action(OperatorVerb::Repair, note, details)?;
    operator::append_action(&mut core, &mut journal, &config.texts(), action)?;
    journal.close(Time::now())?;
    Ok(Some(repaired))
}

/// Records with blanked payloads that no operator has accepted yet.
fn blanked(data: &Path) -> Result<Vec<Position>, Error> {
    let reader = Reader::open(data)?;
    let last = reader.last()?;
    let (mut blanked, mut accepted) = (BTreeSet::new(), BTreeSet::new());
    sqlite::scan(data, last, &mut Heads::default(), &mut |sealed, _| {
        if sealed.record.payloads().any(Payload::is_redacted) {
            blanked.insert(sealed.record.position);
        }
        if let Input::Operator(action) = &sealed.record.input {
            accepted.extend(action.redacted());
        }
        Ok(())
    })?;
    Ok(blanked.difference(&accepted).copied().take(limits::ACTION_DETAILS_MAX).collect())
}

impl Repaired {
    fn is_nothing(&self, accepted: Accepted) -> bool {
        let Found { covered, last, loss, taken_out, .. } = &self.found;
        match accepted {
            Accepted::Loss => {
                taken_out.is_none() && loss.journal.is_none() && loss.acknowledged <= *last
            }
            Accepted::Redaction => self.redacted.is_empty(),
            Accepted::Key => covered == last,
        }
    }

    fn details(&self, accepted: Accepted, key: &str) -> Vec<ActionDetail> {
        let Found { covered, last, loss, taken_out, .. } = &self.found;
        let mut details = Vec::new();
        match accepted {
            Accepted::Loss => {
                details.push(ActionDetail::new("accepted", "loss"));
                details.extend(loss.details());
                if let Some(TakenOut { first, last, file }) = taken_out {
                    details.push(ActionDetail::new("taken-out-from", first));
                    details.push(ActionDetail::new("taken-out-to", last));
                    details.push(ActionDetail::new("taken-out-file", file.display()));
                }
            }
            Accepted::Redaction => {
                let each = self.redacted.iter().map(|at| ActionDetail::new("redacted", at));
                details.extend(each);
            }
            Accepted::Key => {
                details.push(ActionDetail::new("accepted", "key"));
                details.push(ActionDetail::new("key-before", &self.found.key));
                details.push(ActionDetail::new("key", key));
                details.push(ActionDetail::new("from", Position(covered.0 + 1)));
                details.push(ActionDetail::new("to", last));
            }
        }
        details
    }
}
