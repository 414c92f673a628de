//! Facts about the present that every page shows around its content: whether an organism runs, which
//! records this host may lack, whether everything is paused, and how many calls wait for a person.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::ViewState;
use crate::audit::{self, PartitionCopies};
use crate::index::IndexedPause;
use crate::journal::sqlite::{LockHolder, lock_holder};
use crate::limits;
use crate::locks::locked;
use crate::thread::PauseTarget;

/// Facts about the present that every page shows: whether an organism runs, which records this host
/// may lack, whether everything is paused, and how many calls wait for a person. A regular check
/// determines whether an organism runs, and which records may be missing. The last query of the indexes determines the pause and the number of calls. Some confirmed
/// actions also change these two facts at once, because the indexes lag behind the journals.
#[derive(Debug)]
pub(super) struct PresentFacts {
    data: PathBuf,
    /// Time of the last check for a running organism; `None` before the first check. Lock: held
    /// only to read or set the time.
    looked: Mutex<Option<Instant>>,
    is_stopped: AtomicBool,
    /// The gaps in the journals that the pages show; no gaps before the first check. Lock: held only
    /// to read or set the value.
    copies: Mutex<Arc<PartitionCopies>>,
    /// Number of partitions, once a journal has shown it.
    partition_count: OnceLock<u32>,
    waiting: AtomicU64,
    /// The pause of everything, if one is in force. Lock: held only to read or set the pause.
    pause: Mutex<Option<PauseOfAll>>,
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
        let copies = Mutex::default();
        let partition_count = OnceLock::new();
        let waiting = AtomicU64::new(0);
        let pause = Mutex::new(None);
        Self { data, looked, is_stopped, copies, partition_count, waiting, pause }
    }

    /// Whether no organism ran on this machine at the last check.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns the gaps in the journals that the pages show, as the last check found them.
    pub fn copies(&self) -> Arc<PartitionCopies> {
        Arc::clone(&locked(&self.copies))
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

    /// Checks whether an organism runs, and which records the journals may lack.
    async fn look(&self) {
        let is_stopped = is_stopped(&self.data);
        self.is_stopped.store(is_stopped, Ordering::Relaxed);

        let data = self.data.clone();
        let known = self.partition_count.get().copied();
        let read = move || {
            let recorded = || audit::recorded_partition_count(&data);
            let count = known.or_else(recorded).or_else(|| audit::noted_partition_count(&data));
            (count, PartitionCopies::read(&data, count))
        };
        let Ok((count, copies)) = tokio::task::spawn_blocking(read).await else { return };
        if let Some(count) = count {
            self.partition_count.get_or_init(|| count);
        }
        *locked(&self.copies) = Arc::new(copies);
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
