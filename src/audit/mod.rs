//! Questions to the record: what happened in a thread, who said what, and whether all of it can
//! be proved. Reads journals; knows nothing of terminals.
//!
//! **Invariant:** nothing here writes to a journal, and every answer comes from its records alone.

mod copies;
mod export;
mod held;
mod ledger;
mod report;
mod said;
mod search;
mod story;
mod threads;
mod verify;

pub use export::{Format, export};
pub use held::{HeldCall, held};
pub use ledger::{Ledger, Tally};
pub use report::{Break, OutsideState, ProofVerdict, RecordedLoss, Redacted, Report};
pub use said::{BusyRefusals, Refused, Said};
pub use search::search;
pub use story::{Item, SignedBy, Story, What, story};
pub use threads::{Status, Summary, is_recorded, summaries};
pub use verify::{VerifyOptions, verify, verify_with};
