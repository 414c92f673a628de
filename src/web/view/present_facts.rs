//! Facts about the present that every page shows around its content: whether an organism runs,
//! whether everything is paused, and how many calls wait for a person.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::ViewState;
use crate::clock::Time;
use crate::index::IndexedPause;
use crate::journal::partitions_in;
use crate::journal::sqlite::{JournalReader, LockHolder, lock_holder};
use crate::limits;
use crate::locks::locked;
use crate::thread::PauseTarget;

/// Facts about the present that every page shows: whether an organism runs, whether everything is
/// paused, and how many calls wait for a person. A regular check determines whether an organism
/// runs. The last query of the indexes determines the pause and the number of calls. Some confirmed
/// actions also change these two facts at once, because the indexes lag behind the journals.
#[derive(Debug)]
pub(super) struct PresentFacts {
    data: PathBuf,
    /// Time of the last check for a running organism; `None` before the first check. Lock: held
    /// only to read or set the time.
    looked: Mutex<Option<Instant>>,
    is_stopped: AtomicBool,
    /// The copies of streams among the journals that the pages show; `None` if there are none, or
    /// before the first check. Lock: held only to read or set the value.
    copies: Mutex<Option<StreamCopies>>,
    waiting: AtomicU64,
    /// The pause of everything, if one is in force. Lock: held only to read or set the pause.
    pause: Mutex<Option<PauseOfAll>>,
}

/// Journals that are copies of streams. Organisms on other hosts may write to these streams while
/// no organism runs on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamCopies {
    /// Time of the newest record in the copies; `None` if they have no records.
    pub newest: Option<Time>,
}

impl StreamCopies {
    /// Reads the copies of streams among the journals in `data`. Returns `None` if there are none.
    fn read(data: &Path) -> Option<Self> {
        let readers = partitions_in(data).into_iter();
        let readers = readers.filter_map(|(_, journal)| JournalReader::open(&journal).ok());
        let copies: Vec<_> =
            readers.filter(|reader| reader.is_projection().unwrap_or_default()).collect();
        let time = |reader: &JournalReader| {
            let last = reader.record(reader.last().ok()?).ok()??;
            Some(last.record.time)
        };
        let newest = copies.iter().filter_map(time).max();
        (!copies.is_empty()).then_some(Self { newest })
    }
}

/// A pause of everything, and the number of partitions in which it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PauseOfAll {
    pub pause: IndexedPause,
    /// Number of partitions in which everything is paused, and number of all partitions.
    pub partitions: (usize, usize),
}

impl PauseOfAll {
    /// Returns the oldest pause of everything, and the number of partitions with such a pause. Each
    /// list in `partitions` contains the pauses in force in one partition. Returns `None` if no
    /// partition has a pause of everything.
    pub fn find(partitions: &[Vec<IndexedPause>]) -> Option<Self> {
        let paused = partitions.iter().flatten().filter(|pause| pause.target == PauseTarget::All);
        let pause = paused.clone().min_by_key(|pause| pause.since)?.clone();
        Some(Self { pause, partitions: (paused.count(), partitions.len()) })
    }
}

impl PresentFacts {
    pub fn new(data: PathBuf) -> Self {
        let looked = Mutex::new(None);
        let is_stopped = AtomicBool::new(false);
        let copies = Mutex::new(None);
        let pause = Mutex::new(None);
        Self { data, looked, is_stopped, copies, waiting: AtomicU64::new(0), pause }
    }

    /// Whether no organism ran on this machine at the last check.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the copies of streams among the journals that the pages show, as the last check
    /// found them. Returns `None` before the first check, or if none of these journals is a copy.
    pub fn copies(&self) -> Option<StreamCopies> {
        *locked(&self.copies)
    }

    /// Returns the number of calls that wait for a person, at most [`limits::WEB_WAITING_COUNTED`].
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn set_waiting(&self, calls: u64) {
        self.waiting.store(calls.min(limits::WEB_WAITING_COUNTED), Ordering::Relaxed);
    }

    /// Returns the pause whose target is everything, as the last query of the indexes found it.
    /// Returns `None` if there was no such pause, or if a person has since resumed everything.
    pub fn pause(&self) -> Option<PauseOfAll> {
        locked(&self.pause).clone()
    }

    pub fn set_pause(&self, pause: Option<PauseOfAll>) {
        *locked(&self.pause) = pause;
    }

    /// Whether a check for a running organism is due. A check is due if the last one is at least
    /// [`limits::WEB_LOOK_INTERVAL`] old, or if there was none. If a check is due, the present time
    /// is recorded as the time of the check, and the caller must then make the check.
    fn begin_check_if_due(&self) -> bool {
        let now = Instant::now();
        let mut looked = locked(&self.looked);
        if looked.is_some_and(|time| now.duration_since(time) < limits::WEB_LOOK_INTERVAL) {
            return false;
        }
        *looked = Some(now);
        true
    }

    /// Checks whether an organism runs, and which journals are copies of streams.
    async fn look(&self) {
        let is_stopped = is_stopped(&self.data);
        self.is_stopped.store(is_stopped, Ordering::Relaxed);

        // While an organism runs, no page states how new the copies are.
        if is_stopped || self.copies().is_none() {
            let data = self.data.clone();
            let copies = tokio::task::spawn_blocking(move || StreamCopies::read(&data)).await;
            *locked(&self.copies) = copies.ok().flatten();
        }
    }
}

/// Whether no organism runs on the journals in `data`. An organism that runs but cannot be reached,
/// for example because its socket is busy, counts as running.
pub(super) fn is_stopped(data: &Path) -> bool {
    lock_holder(data) == LockHolder::Nobody
}

/// Runs before a page is drawn. If a check for a running organism is due, makes this check. In a
/// view with actions, then also loads the facts of the config that pages need, such as the person's
/// public keys.
pub(super) async fn look(
    State(view): State<Arc<ViewState>>,
    request: Request,
    next: Next,
) -> Response {
    if view.present.begin_check_if_due() {
        view.present.look().await;
        if let Some(access) = &view.operate {
            access.config_facts().await;
        }
    }
    next.run(request).await
}
