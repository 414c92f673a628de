//! Describes the pauses in force on the pages of the web view, and determines which threads a pause
//! covers.

use std::collections::BTreeMap;

use super::person::ActingPerson;
use crate::ids::{ListenerName, ThreadId};
use crate::index::IndexedPause;
use crate::thread::PauseTarget;

/// Path of the page that resumes everything.
pub(super) const RESUME_ALL_PATH: &str = "/operate/pause?verb=resume&target=all";

/// Returns the pauses of several journals, each pause only once. A pause of everything, or of a
/// listener, is recorded in each journal.
pub(super) fn distinct<'p>(
    pauses: impl Iterator<Item = &'p IndexedPause>,
) -> Vec<&'p IndexedPause> {
    let pauses: BTreeMap<_, _> = pauses.map(|pause| (&pause.target, pause)).collect();
    pauses.into_values().collect()
}

/// Returns the person who requested a pause.
pub(super) fn person(pause: &IndexedPause) -> ActingPerson<'_> {
    // Only an operator can pause. The record names an operator who signed the pause.
    ActingPerson {
        by: &pause.person,
        is_signed: pause.person != ListenerName::OPERATOR,
        is_refused: false,
        login: pause.login.as_deref(),
        uid: None,
        host: pause.host.as_deref(),
    }
}

/// Describes a pause in a sentence.
pub(super) fn describe(pause: &IndexedPause) -> String {
    let since = pause.since.to_string();
    let since = since.get(..19).unwrap_or(&since).replace('T', " ");
    let note = if pause.note.is_empty() { String::new() } else { format!(" ({})", pause.note) };
    format!("Paused since {since}Z by {}: {}{note}.", person(pause).describe(), pause.target)
}

/// Whether exactly this thread is the target of a pause. Returns false for a pause of a thread
/// above it.
pub(super) fn is_of(pause: &IndexedPause, thread: &ThreadId) -> bool {
    matches!(&pause.target, PauseTarget::Thread(paused) if paused == thread)
}

/// Whether a pause stops the hand-over of a thread's calls. True if the target of the pause is
/// everything, the thread itself, or a thread above it. False for a pause of a listener.
pub(super) fn holds(pause: &IndexedPause, thread: &ThreadId) -> bool {
    match &pause.target {
        PauseTarget::All => true,
        PauseTarget::Thread(paused) => thread.is_within(paused),
        PauseTarget::Listener(_) => false,
    }
}
