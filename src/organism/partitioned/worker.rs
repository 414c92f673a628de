//! The worker of one partition. The worker follows the partition's stream as a standby, and runs
//! the partition's pump while it holds the lease. When another pump takes over, the worker becomes
//! a standby again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::membership::PartitionHeir;
use super::{PartitionLocation, PartitionMap};
use crate::blocking_work;
use crate::clock::Time;
use crate::config::{Config, StorageConfig};
use crate::ids::Position;
use crate::journal;
use crate::journal::jetstream::{self, LeaseCheck, LeaseHandover, Standby};
use crate::limits;
use crate::mutant::mutant;
use crate::organism::alerts::report_failed_start;
use crate::organism::pump_runtime::{PumpRuntime, StartPurpose};
use crate::organism::reload::ReloadService;
use crate::organism::{Error, core};
use crate::pump::ResidentCore;
use crate::pump::driver::WriteObstacle;
use crate::trace::SpanTracer;

pub(super) struct PartitionWorker {
    /// Config of this partition, with which the next pump of the partition starts.
    config: Arc<Config>,
    partition: u32,
    map: Arc<PartitionMap>,
    reloader: ReloadService,
    /// Receives the process to which the partition must be handed over.
    hand_over: mpsc::Receiver<PartitionHeir>,
    /// Receives the reason for the stop when this process must stop all of its workers.
    stop: watch::Receiver<Option<String>>,
    tracer: SpanTracer,
    /// Whether the worker stands by. If so, no pump of this process watches the journal for alerts,
    /// and the worker itself reports an error of the journal.
    stands_by: bool,
}

/// Reason why a running pump must stop.
enum WorkerStop {
    Stop(String),
    HandOver(PartitionHeir),
}

/// The core of the partition's pump, and the journal to which this process may now append. The core
/// contains the rules of the pump, and the state after all records of the partition's stream.
type AcquiredJournal = (ResidentCore, jetstream::StreamJournal);

impl PartitionWorker {
    pub fn new(
        partition: u32,
        map: Arc<PartitionMap>,
        reloader: ReloadService,
        hand_over: mpsc::Receiver<PartitionHeir>,
        stop: watch::Receiver<Option<String>>,
        tracer: SpanTracer,
    ) -> Self {
        let config = Arc::new(reloader.config().borrow().of_partition(partition));
        let stands_by = true;
        Self { config, partition, map, reloader, hand_over, stop, tracer, stands_by }
    }

    /// Runs until the worker is stopped, or the partition is broken.
    pub async fn run(mut self) -> Result<(), Error> {
        let result = self.run_terms().await;
        if let Err(error) = &result {
            tracing::error!(partition = self.partition, "stopped pumping the partition: {error}");
            self.map.put(self.partition, PartitionLocation::Broken(error.to_string()));
        }
        if self.stands_by
            && let Err(Error::Journal(error)) = &result
        {
            report_failed_start(&self.config, error).await;
        }
        result
    }

    async fn run_terms(&mut self) -> Result<(), Error> {
        while !self.is_stopping() {
            self.stands_by = true;
            // If no journal is returned, the config was reloaded, or the worker must stop.
            let Some((core, journal)) = self.stand_by_for_term().await? else { continue };
            self.stands_by = false;
            let handover = journal.handover();
            let journal = Box::new(journal);
            let natives = HashMap::new();
            let purpose = StartPurpose::Service;
            let runtime =
                PumpRuntime::start(&self.config, core, journal, natives, purpose, &self.tracer)
                    .await;
            let runtime = runtime.and_then(|mut runtime| {
                runtime.follow_index()?;
                runtime.watch_alerts(&self.config)?;
                Ok(runtime)
            });

            let is_over = match runtime {
                Err(error) if is_passing_at_start(&error) => {
                    tracing::warn!(
                        partition = self.partition,
                        "could not start to pump the partition: {error}"
                    );
                    self.map.put(self.partition, location_after_start(&error));
                    // Another process may be able to pump the partition, and this process may
                    // succeed later.
                    sleep(limits::STANDBY_RETRY).await;
                    false
                }
                runtime => self.pump(runtime?, &handover).await?,
            };

            if is_over {
                return Ok(());
            }
        }

        Ok(())
    }

    fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some() || self.stop.has_changed().is_err()
    }

    /// Adopts the config in force for the partition's next pump, then waits for the lease. Returns
    /// the core and the journal with which this process can run that pump. Returns `None` if the
    /// config was reloaded during the wait, or if the worker must stop.
    async fn stand_by_for_term(&mut self) -> Result<Option<AcquiredJournal>, Error> {
        let in_force = self.reloader.config().borrow().of_partition(self.partition);
        self.config = Arc::new(in_force);
        self.stand_by().await
    }

    /// Waits as standby for the lease. Returns `None` if the worker must stop, or if the config was
    /// reloaded during the wait.
    async fn stand_by(&mut self) -> Result<Option<AcquiredJournal>, Error> {
        let (release, released) = channel();
        let (sender, mut acquired) = oneshot::channel();
        let config = Arc::clone(&self.config);
        let map = Arc::clone(&self.map);
        let partition = self.partition;
        let in_force = self.reloader.config();
        let runtime = Handle::current();
        let wait = move || {
            let released = &released;
            let map = &map;
            let waiting = LeaseWait { config, in_force, released, map, partition, runtime };
            sender.send(waiting.wait_for_turn()).ok();
        };

        let name = format!("standby-{partition}");
        let thread = std::thread::Builder::new().name(name).spawn(wait);
        thread.map_err(Error::io("starting a standby's thread"))?;
        tokio::select! {
            result = &mut acquired => return result.unwrap_or(Err(Error::Stopped)),
            _ = self.stop.wait_for(Option::is_some) => {}
        }

        drop(release);
        if let Some((_, journal)) = acquired.await.unwrap_or(Ok(None))? {
            // The stop came at the moment when the lease was acquired, so the lease is released
            // again.
            let closing = move || journal.close(Time::now());
            blocking_work::run(closing).await??;
        }

        Ok(None)
    }

    /// Runs the pump. Returns true if the worker must stop. Returns false if the worker must stand
    /// by again, for example because another pump has taken over.
    async fn pump(
        &mut self,
        runtime: PumpRuntime,
        handover: &LeaseHandover,
    ) -> Result<bool, Error> {
        let mut serving = match self.map.rpc.serve(&self.map, self.partition).await {
            Ok(serving) => serving,
            Err(error) => {
                // Without the subscription, no client can reach this pump. Another pump serves
                // clients better.
                runtime.drain("no client can be answered over NATS").await?;
                return Err(error);
            }
        };

        // From here on, the pump takes part in every reload.
        match self.reloader.join(self.partition, &self.config, &runtime).await {
            // A pump that has stopped ends below, with its own error.
            Ok(true) | Err(Error::Stopped) => {}
            joined => {
                serving.stop();
                runtime.drain("the config was reloaded while the pump started").await?;
                serving.drain().await;
                return joined;
            }
        }

        self.map.watched().insert(self.partition, runtime.health());
        // Discard requests for handovers that came before this pump started.
        while self.hand_over.try_recv().is_ok() {}

        self.map.put(self.partition, PartitionLocation::Here(Box::new(runtime.service())));
        // A pump continues to record during a stop or a handover, so its position is followed until
        // it has ended.
        let recorded = runtime.handle().recorded();
        let publishing =
            tokio::spawn(publish_recorded(Arc::clone(&self.map), self.partition, recorded));
        let stop_reason = tokio::select! {
            () = runtime.ended() => None,
            stop_reason = self.stop.wait_for(Option::is_some) => {
                Some(WorkerStop::Stop(stop_reason.ok().and_then(|why| why.clone()).unwrap_or_default()))
            }
            Some(heir) = self.hand_over.recv() => Some(WorkerStop::HandOver(heir)),
        };

        self.map.put(self.partition, PartitionLocation::Leaving);
        self.reloader.leave(self.partition);
        let over = runtime.end();
        let ending = async {
            match &stop_reason {
                Some(WorkerStop::Stop(reason)) => runtime.drain(reason).await,
                Some(WorkerStop::HandOver(heir)) => {
                    handover.to(heir.id);
                    let reason = format!("handed over to {}", heir.holder);
                    runtime.hand_over(&reason, self.wait_for_deliveries()).await
                }
                None => runtime.finish_detached().await,
            }
        };

        // Responding stops as soon as the pump has ended: the next pump responds as soon as it can,
        // and its responses would contradict those of this one.
        let (ended, ()) = tokio::join!(ending, async {
            over.await;
            serving.stop();
        });

        self.map.watched().remove(&self.partition);
        serving.drain().await;
        publishing.await.ok();
        let is_stop = matches!(stop_reason, Some(WorkerStop::Stop(_)));

        match ended {
            Ok(()) => Ok(!matches!(stop_reason, Some(WorkerStop::HandOver(_)))),
            Err(Error::Journal(error)) if is_passing(&error) || is_of_server(&error) => {
                after_term(self.partition, error, is_stop)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for [`limits::HANDOVER_DRAIN`], so that deliveries in flight can end before a planned
    /// handover. If this process must stop, waits at most [`limits::DRAIN_TIMEOUT`] after the
    /// request to stop.
    async fn wait_for_deliveries(&self) {
        if mutant("leave-what-is-out") {
            return;
        }

        let mut stop = self.stop.clone();
        let stopping = async {
            drop(stop.wait_for(Option::is_some).await);
            sleep(limits::DRAIN_TIMEOUT).await;
        };

        tokio::select! {
            () = sleep(limits::HANDOVER_DRAIN) => {}
            () = stopping => {}
        }
    }
}

/// Keeps the last recorded position of a partition's pump in `map` up to date, until the pump has
/// ended.
async fn publish_recorded(
    map: Arc<PartitionMap>,
    partition: u32,
    mut recorded: watch::Receiver<Position>,
) {
    loop {
        map.set_recorded(partition, *recorded.borrow_and_update());
        if recorded.changed().await.is_err() {
            return;
        }
    }
}

/// Whether a further start of a pump may succeed after a start that failed with `error`. A start
/// begins when the lease is acquired, and includes connecting the listeners.
fn is_passing_at_start(error: &Error) -> bool {
    match error {
        Error::Journal(error) => is_passing(error),
        Error::Nats(_) => true,
        _ => false,
    }
}

/// Whether a retry may succeed after this error of the journal.
fn is_passing(error: &journal::Error) -> bool {
    use journal::Error;
    matches!(
        error,
        Error::InUse { .. }
            | Error::Fenced { .. }
            | Error::Unavailable { .. }
            | Error::Denied(_)
            | Error::Nats(_)
            | Error::UnprovedStream { .. }
    ) || error.is_disk_full()
}

/// Whether the error is about a server or a stream that may lose records. An operator can make the
/// server or the stream safe while this process runs.
fn is_of_server(error: &journal::Error) -> bool {
    matches!(error, journal::Error::UnsafeServer { .. })
}

/// Returns the location of a partition whose pump could not start because of the temporary error
/// `error`.
fn location_after_start(error: &Error) -> PartitionLocation {
    match error {
        Error::Journal(error) => location_after(error),
        other => {
            PartitionLocation::Waiting { obstacle: WriteObstacle::Server, why: other.to_string() }
        }
    }
}

/// Handles the temporary journal error `error` that ended the pump of a partition. `is_stop` states
/// whether the worker must stop.
///
/// - If another process has taken over the partition, returns `is_stop`.
/// - Otherwise, if the worker must stop, returns the error, because the journal could not be
///   closed, and the worker does not retry the closing.
/// - Otherwise, returns false, so that the worker tries again to run the pump.
///
/// Does not record the location of the partition. The wait for the lease records it, because only
/// that wait learns the name of the process that now pumps the partition.
fn after_term(partition: u32, error: journal::Error, is_stop: bool) -> Result<bool, Error> {
    match location_after(&error) {
        PartitionLocation::Elsewhere(_) => {
            tracing::warn!(partition, "another process took over the partition: {error}");
        }
        _ if is_stop => return Err(error.into()),
        _ => tracing::warn!(partition, "the pump of the partition ended; retrying: {error}"),
    }

    Ok(is_stop)
}

/// Translates the temporary journal error `error`, which keeps this process from running the pump
/// of a partition, into a location of the partition.
///
/// - If another process has the partition, returns `Elsewhere`, with the name of that process if
///   `error` contains it.
/// - Otherwise, returns `Waiting`, with the obstacle and the text of `error`.
fn location_after(error: &journal::Error) -> PartitionLocation {
    use journal::Error;
    let obstacle = match error {
        Error::InUse { holder, .. } => return PartitionLocation::Elsewhere(holder.clone()),
        // The error does not name the process. The next look at the lease does.
        Error::Fenced { .. } | Error::UnprovedStream { .. } => {
            return PartitionLocation::Elsewhere("another process".to_owned());
        }
        error if error.is_disk_full() => WriteObstacle::Disk,
        Error::Denied(_) => WriteObstacle::Denied,
        _ => WriteObstacle::Server,
    };
    PartitionLocation::Waiting { obstacle, why: error.to_string() }
}

/// A standby's wait for the lease, on an OS thread of its own. The wait ends when the lease is
/// acquired, or when the channel `released` closes.
struct LeaseWait<'a> {
    config: Arc<Config>,
    in_force: watch::Receiver<Arc<Config>>,
    released: &'a Receiver<()>,
    map: &'a PartitionMap,
    partition: u32,
    /// The runtime on which alert commands run.
    runtime: Handle,
}

impl LeaseWait<'_> {
    fn wait_for_turn(&self) -> Result<Option<AcquiredJournal>, Error> {
        let mut warned = String::new();
        let mut is_reported = false;
        loop {
            let begun = Instant::now();
            let error = match self.follow() {
                Err(Error::Journal(error)) if is_passing(&error) || self.may_recover(&error) => {
                    error
                }
                other => return other,
            };
            self.passing(&error, &mut warned);
            // Each attempt reads the whole projection again, so some errors need a longer pause.
            let pause = match error {
                _ if error.is_disk_full() => limits::STANDBY_RETRY_MAX,
                // An operator has to act first, and each attempt reads the whole stream.
                journal::Error::UnprovedStream { .. } | journal::Error::UnsafeServer { .. } => {
                    (limits::STANDBY_READ_SHARE * begun.elapsed())
                        .clamp(limits::STANDBY_RETRY, limits::STANDBY_RETRY_MAX)
                }
                _ => limits::STANDBY_RETRY,
            };
            if is_of_server(&error) && !is_reported {
                is_reported = true;
                self.report(&error);
            }
            if self.is_released_within(pause) {
                return Ok(None);
            }
        }
    }

    /// Runs the alert command for `error`, because no pump of the partition runs that could report
    /// the error. Blocks until the command has ended, so that the next pump finds the alert in the
    /// file of unrecorded alerts and ends the alert.
    ///
    /// Must be called only once in a wait for the lease. The text of an error names the connected
    /// server, so the same problem would raise another alert after each change of the server.
    fn report(&self, error: &journal::Error) {
        self.runtime.block_on(report_failed_start(&self.config, error));
    }

    /// Whether `error` is about an unsafe server or stream, and the worker must wait until an
    /// operator has made it safe. A worker that is still starting must not wait: the error ends the
    /// worker, so that a wrong config shows at once.
    fn may_recover(&self, error: &journal::Error) -> bool {
        is_of_server(error) && !self.map.is_starting(self.partition)
    }

    /// Follows the stream until the lease is free, and then takes the lease. Returns `None` if the
    /// wait was stopped, or if a reload changed the config during the wait.
    fn follow(&self) -> Result<Option<AcquiredJournal>, Error> {
        let Config { data, state, storage, .. } = &*self.config;
        let StorageConfig::JetStream { servers, journal } = storage else { return Ok(None) };
        // This core is the standby's state. An error discards it: the next attempt begins with the
        // newest snapshot of the projection.
        let mut core = core(&self.config);
        self.map.set_ready(self.partition, false);
        let mut standby = Standby::begin(servers, journal, data, state)?;
        // The begin has compared the number of partitions with that of the journal.
        self.map.confirm_partition_count();
        let mut followed = None::<Instant>;
        let mut warned = String::new();

        loop {
            // This standby's pump would begin its work with a config that is no longer in force.
            if self.in_force.borrow().digest != self.config.digest {
                return Ok(None);
            }
            standby = match standby.look()? {
                LeaseCheck::Ours(elect) => {
                    self.map.arrives(self.partition);
                    let journal = elect.lead_recovering(&mut core)?;
                    return Ok(Some((core, journal)));
                }
                LeaseCheck::Held(standby, holder) => {
                    self.map.put(self.partition, PartitionLocation::Elsewhere(holder));
                    standby
                }
                LeaseCheck::Left(standby) => standby,
                LeaseCheck::Unavailable(standby, error) => {
                    self.passing(&error, &mut warned);
                    standby
                }
            };
            if followed.is_none_or(|at| at.elapsed() >= limits::STANDBY_READ_INTERVAL) {
                standby = standby.follow_recovering(&mut core)?;
                self.map.set_recorded(self.partition, standby.followed_to());
                self.map.set_ready(self.partition, standby.is_ready());
                followed = Some(Instant::now());
            }
            if self.is_released_within(limits::STANDBY_CHECK_INTERVAL) {
                return Ok(None);
            }
        }
    }

    fn passing(&self, error: &journal::Error, warned: &mut String) {
        self.map.put(self.partition, location_after(error));
        let error = error.to_string();
        if error != *warned {
            tracing::warn!("could not become a standby; retrying: {error}");
            *warned = error;
        }
    }

    fn is_released_within(&self, patience: std::time::Duration) -> bool {
        self.released.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use rusqlite::ffi::{self, SQLITE_FULL, SQLITE_READONLY};

    use super::*;

    #[test]
    fn a_full_disk_ends_no_worker_whatever_file_had_no_room() {
        let io = |kind: ErrorKind| {
            let context = "the data directory".to_owned();
            journal::Error::Io { context, source: kind.into() }
        };
        let sqlite = |code| {
            let context = "the journal".to_owned();
            let source = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            journal::Error::Sqlite { context, source }
        };
        assert!(is_passing(&io(ErrorKind::StorageFull)));
        assert!(is_passing(&io(ErrorKind::QuotaExceeded)));
        assert!(is_passing(&journal::Error::Full { detail: String::new() }));
        assert!(is_passing(&sqlite(SQLITE_FULL)));
        assert!(!is_passing(&sqlite(SQLITE_READONLY)));
        assert!(!is_passing(&io(ErrorKind::PermissionDenied)));
    }

    #[test]
    fn a_worker_stops_with_the_error_that_kept_its_pump_from_closing_the_journal() {
        let full = || journal::Error::Full { detail: String::new() };
        let away = || journal::Error::Unavailable { detail: String::new() };
        let taken = || {
            let stream = String::new();
            journal::Error::UnprovedStream { stream, detail: String::new() }
        };
        for error in [full(), away()] {
            assert!(matches!(location_after(&error), PartitionLocation::Waiting { .. }));
        }
        assert!(matches!(location_after(&taken()), PartitionLocation::Elsewhere(_)));

        for error in [full(), away()] {
            assert!(matches!(after_term(0, error, true), Err(Error::Journal(_))));
        }
        for error in [full(), away(), taken()] {
            assert!(matches!(after_term(0, error, false), Ok(false)));
        }
        assert!(matches!(after_term(0, taken(), true), Ok(true)));
    }
}
