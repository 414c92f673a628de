//! Threads as plain state: calls, waits, timers, budgets, and the facts that change them.
//!
//! State changes by [`Fact`]s alone, so what is rebuilt from the journal is what was live.
//! Must not know I/O, clocks or channels.

mod fact;
mod record;

pub use fact::{Closing, Fact, Opener, Opening, TimerEnd};
pub use record::{Input, Record, Verdict};
