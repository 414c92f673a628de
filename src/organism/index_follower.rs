//! Keeps the index of a pump's journal up to date, on an OS thread of its own.
//!
//! The pump never waits for this thread and never learns of its failures. The thread has a low
//! priority, so that it takes little processor time from the pump on a machine that is fully busy.

use std::future::{Future, pending};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::Error;
use crate::clock::Time;
use crate::ids::Position;
use crate::index::{self, FollowResult, follow};
use crate::limits;
use crate::metrics::{Counter, Gauge, MetricsPage};
use crate::thread_priority;

/// Progress of the index of a journal.
#[derive(Debug)]
pub(super) struct IndexLag {
    /// Receives the last journal position that can be read.
    recorded: watch::Receiver<Position>,
    position: Gauge,
    /// Last time at which the index contained every record, in microseconds since 1970.
    complete_at: AtomicI64,
    failures: Counter,
    has_ended: AtomicBool,
}

impl IndexLag {
    fn new(recorded: watch::Receiver<Position>) -> Self {
        let complete_at = AtomicI64::new(Time::now().0);
        let position = Gauge::default();
        let failures = Counter::new();
        Self { recorded, position, complete_at, failures, has_ended: AtomicBool::new(false) }
    }

    fn records(&self) -> u64 {
        self.recorded.borrow().0.saturating_sub(self.position.get())
    }

    /// Returns how long ago the index last contained every record.
    pub fn time(&self) -> Duration {
        if self.records() == 0 {
            return Duration::ZERO;
        }
        let since = Time::now().0.saturating_sub(self.complete_at.load(Ordering::Relaxed));
        Duration::from_micros(u64::try_from(since).unwrap_or_default())
    }

    /// Whether the thread that writes the index has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub fn write(&self, page: &mut MetricsPage) {
        page.gauges("organism_index_position", "The last record that the index holds.")
            .sample(&[], self.position.get());

        page.gauges("organism_index_lag_records", "Records that the index lacks.")
            .sample(&[], self.records());

        let micros = u64::try_from(self.time().as_micros()).unwrap_or(u64::MAX);
        page.gauges("organism_index_lag_seconds", "Seconds since the index held every record.")
            .decimal(&[], micros, 6);

        page.counters(
            "organism_index_failures_total",
            "Failed attempts to bring the index up to date.",
        )
        .counter(&[], &self.failures);
    }
}

/// The thread that writes the index of one journal.
pub(super) struct IndexFollower {
    thread: JoinHandle<()>,
    lag: Arc<IndexLag>,
}

impl IndexFollower {
    /// Starts the thread that follows the journal in `data`. The thread ends after `ended` has
    /// closed.
    pub fn start(
        data: PathBuf,
        recorded: watch::Receiver<Position>,
        ended: watch::Receiver<()>,
    ) -> Result<Self, Error> {
        let lag = Arc::new(IndexLag::new(recorded.clone()));
        let timer = Builder::new_current_thread().enable_time().build();
        let timer = timer.map_err(Error::io("starting the timer of the index"))?;
        let seen = (Position(0), Time::now().0);
        let follower = FollowerThread { data, timer, recorded, ended, lag: Arc::clone(&lag), seen };

        let thread = std::thread::Builder::new().name("index".to_owned());
        let noted = IndexThreadEnd(Arc::clone(&lag));
        let run = move || {
            let _noted = noted;
            follower.run();
        };
        let thread = thread.spawn(run);
        let thread = thread.map_err(Error::io("starting the thread of the index"))?;
        Ok(Self { thread, lag })
    }

    pub fn lag(&self) -> Arc<IndexLag> {
        Arc::clone(&self.lag)
    }

    /// Waits until the thread has ended. The thread ends when its pump ends.
    pub fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the thread that writes the index panicked");
        }
    }
}

/// Guard of the index thread. Dropping the guard records that the thread has ended, even after a
/// panic.
struct IndexThreadEnd(Arc<IndexLag>);

impl Drop for IndexThreadEnd {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

struct FollowerThread {
    data: PathBuf,
    timer: Runtime,
    recorded: watch::Receiver<Position>,
    ended: watch::Receiver<()>,
    lag: Arc<IndexLag>,
    /// Position of the journal's last record at the thread's latest check, and the time of this
    /// check in microseconds since 1970.
    seen: (Position, i64),
}

impl FollowerThread {
    fn run(mut self) {
        thread_priority::lower(limits::INDEX_FOLLOWER_NICENESS, "the thread of the index");

        let mut failures = 0;
        while self.wait_for_growth(None) {
            let data = self.data.clone();
            let ended = self.ended.clone();
            let mut is_stopped = || ended.has_changed().is_err();
            let result = follow(&data, &mut is_stopped, &mut |reached| self.next(reached));
            match result {
                Ok(FollowResult::Ended) => {
                    if failures > 0 {
                        tracing::warn!("the index is up to date again");
                    }
                    failures = 0;
                }
                // A command is writing the index, which grows meanwhile.
                Ok(FollowResult::Busy) => {}
                Err(error) => {
                    self.count_failure(&error, failures);
                    self.pause(retry_after(failures));
                    failures += 1;
                }
            }
        }
    }

    fn count_failure(&self, error: &index::Error, failures: u32) {
        self.lag.failures.increment();
        if failures > 0 {
            tracing::debug!("the index could not be brought up to date: {error}");
            return;
        }
        tracing::warn!(
            "the index could not be brought up to date; the organism goes on without it, and tries \
             again: {error}"
        );
    }

    /// Stores that the index contains all records up to `reached`, and waits for further records.
    /// Returns the position up to which the index must be extended next. Returns `None` if no
    /// record comes for some time, or if the pump has ended.
    fn next(&mut self, reached: Position) -> Option<Position> {
        self.lag.position.set(reached.0);
        let (seen, at) = self.seen;
        if reached >= seen {
            self.lag.complete_at.store(at, Ordering::Relaxed);
            self.see();
        }

        let missing = self.lag.records();
        if missing >= limits::INDEX_COMMIT_RECORDS {
            let has_ended = self.ended.has_changed().is_err();
            return (!has_ended).then(|| self.last());
        }
        self.wait_for_growth(Some(limits::INDEX_IDLE_TIME)).then(|| self.last())
    }

    /// Waits until the journal has records that the index lacks. Then waits a short time for more,
    /// so that one commit of the index includes many records. Returns false if the pump has ended,
    /// or if no record comes within `patience`.
    fn wait_for_growth(&mut self, patience: Option<Duration>) -> bool {
        let position = Position(self.lag.position.get());
        if self.last() <= position {
            let mut recorded = self.recorded.clone();
            let grown = async move {
                if recorded.wait_for(|last| *last > position).await.is_err() {
                    // The pump is about to end.
                    pending::<()>().await;
                }
            };
            if !self.is_in_time(grown, patience) {
                return false;
            }
            // Until this moment, the index held every record.
            self.see();
            self.lag.complete_at.store(self.seen.1, Ordering::Relaxed);
        }
        self.pause(limits::INDEX_COLLECT_TIME)
    }

    fn last(&self) -> Position {
        *self.recorded.borrow()
    }

    fn see(&mut self) {
        self.seen = (self.last(), Time::now().0);
    }

    /// Waits for the duration `span`. Returns false if the pump ends during the wait.
    fn pause(&self, span: Duration) -> bool {
        self.is_in_time(async move { tokio::time::sleep(span).await }, None)
    }

    /// Whether `future` completes within `patience`, and before the pump ends.
    fn is_in_time(&self, future: impl Future<Output = ()>, patience: Option<Duration>) -> bool {
        let mut ended = self.ended.clone();
        let patience = patience.unwrap_or(Duration::MAX);
        self.timer.block_on(async {
            tokio::select! {
                biased;
                // No value is ever sent. The channel closes when the pump has ended.
                _ = ended.changed() => false,
                () = future => true,
                () = tokio::time::sleep(patience) => false,
            }
        })
    }
}

/// Returns the delay of the index thread after a failure. `failures` is the number of consecutive
/// failures before this one.
fn retry_after(failures: u32) -> Duration {
    let factor = 2u32.saturating_pow(failures);
    limits::INDEX_RETRY.saturating_mul(factor).min(limits::INDEX_RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_maximum() {
        let waits: Vec<u64> = (0..8).map(|failures| retry_after(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(retry_after(u32::MAX), limits::INDEX_RETRY_MAX);
    }
}
