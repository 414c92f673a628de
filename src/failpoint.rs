//! Named places where a test can have the process die, `ORGANISM_FAILPOINT=place[:nth]`, or have a
//! thread wait until there is a file, with `ORGANISM_FAILPOINT_UNTIL=path` beside it.
//!
//! Knows nothing of ours. Unset, a place costs one load.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The journal's places, in the order a commit passes them.
pub const JOURNAL: [&str; 9] = [
    "epoch-raised",
    "during-recovery",
    "before-append",
    "before-checkpoint",
    "before-commit",
    "after-commit",
    "after-checkpoint",
    "after-outside-line",
    "after-append",
];

/// What a journal on JetStream passes beside these.
pub const JETSTREAM: [&str; 2] = ["before-publish", "after-publish"];

/// What the move of a journal into a stream passes beside these.
pub const PROMOTION: [&str; 3] = ["before-comparing", "compared", "promoted"];

/// What the repair of a stream passes beside these.
pub const REPAIR: [&str; 3] = ["repair-noted", "repair-publishing", "repair-published"];

/// The pump's places: around what it does once a record is durable, and where an answer has come
/// in that no record has yet.
pub const PUMP: [&str; 9] = [
    "before-boot",
    "before-receipt",
    "after-receipt",
    "before-deliver",
    "after-deliver",
    "before-result",
    "after-result",
    "answered",
    "stepped",
];

struct ArmedFailpoint {
    place: String,
    passes_left: AtomicU64,
    /// The file that is waited for; without one, the process aborts.
    until: Option<PathBuf>,
}

static ARMED: OnceLock<Option<ArmedFailpoint>> = OnceLock::new();

/// Aborts the process, or waits for a file, when this place is armed and has now been passed often enough.
pub fn failpoint(place: &str) {
    let Some(armed) = ARMED.get_or_init(armed_by_environment) else { return };
    if armed.place == place && armed.passes_left.fetch_sub(1, Ordering::Relaxed) == 1 {
        let Some(file) = &armed.until else { std::process::abort() };
        tracing::warn!(place, "a test has this thread wait");
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn armed_by_environment() -> Option<ArmedFailpoint> {
    let text = std::env::var("ORGANISM_FAILPOINT").ok()?;
    let (place, nth) = match text.split_once(':') {
        Some((place, nth)) => (place, nth.parse().ok()?),
        None => (text.as_str(), 1),
    };
    let until = std::env::var_os("ORGANISM_FAILPOINT_UNTIL").map(PathBuf::from);
    Some(ArmedFailpoint { place: place.to_owned(), passes_left: AtomicU64::new(nth), until })
}
