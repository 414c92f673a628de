//! Failpoints: named places in the code where a test can stop the program. With
//! `ORGANISM_FAILPOINT=place[:nth]`, the process aborts when it passes `place` for the nth time, by
//! default for the first time. If `ORGANISM_FAILPOINT_UNTIL=path` is set too, the process does not
//! abort: the OS thread at `place` waits until the file `path` exists.
//!
//! Some places handle a message of one conversation thread. For such a place,
//! `ORGANISM_FAILPOINT=place@thread` counts a pass only if the id of the conversation thread begins
//! with `thread`.
//!
//! This module must not know other modules. If `ORGANISM_FAILPOINT` is not set, a failpoint costs
//! one atomic load.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Failpoints of the journal, in the order in which a commit passes them.
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

/// Failpoints of a journal on JetStream, besides those in [`JOURNAL`].
pub const JETSTREAM: [&str; 2] = ["before-publish", "after-publish"];

/// Failpoint of a host that begins a journal on JetStream: after it has chosen an id for the journal,
/// and before it sends the id to the servers.
pub const BEGINNING: [&str; 1] = ["journal-chosen"];

/// Failpoints of the move of a journal from its file into a stream on NATS.
pub const PROMOTION: [&str; 3] = ["before-comparing", "compared", "promoted"];

/// Failpoints of the repair of a stream that stores a journal.
pub const REPAIR: [&str; 3] = ["repair-noted", "repair-publishing", "repair-published"];

/// Failpoints of a command that brings an index up to date.
pub const INDEX: [&str; 2] = ["index-before-commit", "index-after-commit"];

/// Failpoints of the first build of an index. The build passes each of them once, after it has
/// committed the rows of all records.
pub const INDEX_BUILD: [&str; 2] = ["index-sorted", "index-complete"];

/// Failpoints while a snapshot is made.
pub const SNAPSHOT: [&str; 3] = ["snapshot-filled", "snapshot-renamed", "snapshot-written"];

/// Failpoint in the background verification of the records before a snapshot.
pub const PROOF: [&str; 1] = ["during-proof"];

/// Failpoint while directories are bound to a project: after the check that they are not bound yet,
/// and before this process locks the data directory.
pub const PROJECT: [&str; 1] = ["directory-unbound"];

/// Failpoints of the pump. Most of them are directly before or after an action that follows a
/// durable record, such as a delivery. `answered` and `stepped` are between the arrival of a
/// listener's answer and the durable record of this answer.
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
    /// Beginning of a conversation thread's id. If set, the failpoint counts only passes for
    /// threads whose id has this beginning. If `None`, it counts every pass.
    thread: Option<String>,
    passes_left: AtomicU64,
    /// Path of a file. If set, the OS thread that the failpoint stops waits until this file exists.
    /// If `None`, the process aborts at the failpoint.
    until: Option<PathBuf>,
}

static ARMED: OnceLock<Option<ArmedFailpoint>> = OnceLock::new();

/// Marks the failpoint `place`. If `ORGANISM_FAILPOINT` selects this pass of the failpoint, the
/// process aborts. If `ORGANISM_FAILPOINT_UNTIL` names a file, the OS thread instead waits until
/// the file exists.
pub fn failpoint(place: &str) {
    pass(place, None);
}

/// Marks a failpoint as [`failpoint`] does, in code that works for the conversation thread
/// `thread`. A test can limit the failpoint to certain conversation threads.
pub fn failpoint_in(place: &str, thread: &str) {
    pass(place, Some(thread));
}

fn pass(place: &str, thread: Option<&str>) {
    let Some(armed) = ARMED.get_or_init(armed_by_environment) else { return };
    let is_meant = armed.is_meant(place, thread);
    if is_meant && armed.passes_left.fetch_sub(1, Ordering::Relaxed) == 1 {
        let Some(file) = &armed.until else { std::process::abort() };
        tracing::warn!(place, "this thread waits at a failpoint of a test");
        while !file.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl ArmedFailpoint {
    fn is_meant(&self, place: &str, thread: Option<&str>) -> bool {
        let begins = |begin: &str| thread.is_some_and(|thread| thread.starts_with(begin));
        self.place == place && self.thread.as_deref().is_none_or(begins)
    }
}

fn armed_by_environment() -> Option<ArmedFailpoint> {
    let text = std::env::var("ORGANISM_FAILPOINT").ok()?;
    let (place, nth) = match text.split_once(':') {
        Some((place, nth)) => (place, nth.parse().ok()?),
        None => (text.as_str(), 1),
    };
    let (place, thread) = match place.split_once('@') {
        Some((place, thread)) => (place, Some(thread.to_owned())),
        None => (place, None),
    };

    let place = place.to_owned();
    let passes_left = AtomicU64::new(nth);
    let until = std::env::var_os("ORGANISM_FAILPOINT_UNTIL").map(PathBuf::from);
    Some(ArmedFailpoint { place, thread, passes_left, until })
}
