//! Abuse: malicious listeners, agents, clients and texts. Every accepted message is accounted for,
//! and uninvolved clients are served.
//!
//! `ORGANISM_TORTURE=1` makes the attacks larger.

mod attacker;
mod bombs;
mod foreign;
mod forged;
mod hostile;

pub mod judge;
mod listeners;
mod loops;
mod producers;
mod restarts;
mod stage;
mod streams;

/// Returns `torture` if `ORGANISM_TORTURE` requests a long campaign, and otherwise `quick`.
fn size(quick: usize, torture: usize) -> usize {
    if std::env::var_os("ORGANISM_TORTURE").is_some() { torture } else { quick }
}
