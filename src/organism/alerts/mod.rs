//! Alerts: runs the alert command that the config names, so that an operator learns of problems.
//!
//! A follower ([`follower`]) reads the records of one pump on an OS thread of its own, and finds
//! the causes of alerts ([`rules`]). The pump records each alert before the follower runs the
//! command for the alert ([`command`]). Only for alerts of the kind [`AlertKind::Record`], the
//! command may run before the alert is recorded. The pump never waits for the follower.
//!
//! **Invariant:** without `[alerts]` in the config, neither the follower nor a command runs.

mod alert_clock;
mod bursts;
mod call_requests;
mod command;
mod follower;
mod recorded_reports;
mod rules;
mod unrecorded;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime;
use tokio::sync::{Mutex, watch};

use super::Error;
use super::index_follower::IndexLag;
use crate::blocking_work;
use crate::bus::process::PumpMark;
use crate::clock::Time;
use crate::config::Config;
use crate::ids::Position;
use crate::journal;
use crate::metrics::{Gauge, LabelledCounters, MetricsPage};
use crate::pump::driver::{Handle, PumpMetrics};
use crate::system::{AlertEvent, AlertKind};
use command::AlertCommand;
use follower::{AlertFollower, AlertStart};
pub(super) use unrecorded::report_failed_start;

/// Everything that is needed to watch one pump for alerts.
#[derive(Clone)]
pub(super) struct AlertSource {
    pub pump: Handle,
    /// Runtime on which the alert commands run.
    pub runtime: runtime::Handle,
    pub data: PathBuf,
    pub state: PathBuf,
    pub health: Arc<PumpMetrics>,
    /// Receiver of a channel that closes when the pump has ended.
    pub ended: watch::Receiver<()>,
    pub mark: PumpMark,
    /// Time of the last record before the start of the organism.
    pub last_time: Time,
}

/// Counts of the alerts of one pump.
#[derive(Debug, Default)]
pub(super) struct AlertMetrics {
    /// Counts of reports, by kind of alert and by the event that a report states, such as the
    /// beginning or the end of the cause.
    reports: [LabelledCounters<{ AlertEvent::ALL.len() }>; AlertKind::ALL.len()],
    open: Gauge,
}

impl AlertMetrics {
    fn count(&self, kind: AlertKind, event: AlertEvent) {
        if let Some(events) = self.reports.get(kind as usize) {
            events.increment(event as usize);
        }
    }

    pub fn write(&self, page: &mut MetricsPage) {
        let mut reports =
            page.counters("organism_alerts_total", "Reports about alerts, by kind and event.");
        for (kind, events) in AlertKind::ALL.iter().zip(&self.reports) {
            for (event, count) in AlertEvent::ALL.iter().zip(events.all()) {
                reports.counter(&[("kind", kind.as_str()), ("event", event.as_str())], count);
            }
        }

        page.gauges("organism_alerts_open", "Alerts whose cause has not ended.")
            .sample(&[], self.open.get());
    }
}

/// The watch for alerts of one pump: an OS thread that finds causes of alerts, if the config
/// declares alerts. A reload of the config starts, changes or ends this OS thread.
pub(super) struct AlertWatch {
    source: AlertSource,
    metrics: Arc<AlertMetrics>,
    running: Mutex<RunningWatch>,
}

#[derive(Default)]
struct RunningWatch {
    follower: Option<RunningFollower>,
    index: Option<Arc<IndexLag>>,
}

struct RunningFollower {
    thread: JoinHandle<()>,
    /// Sends the alert command of each new config to the follower. Dropping this sender ends the
    /// follower.
    command: watch::Sender<AlertCommand>,
}

impl AlertWatch {
    pub fn new(source: AlertSource) -> Self {
        Self { source, metrics: Arc::default(), running: Mutex::default() }
    }

    pub fn metrics(&self) -> &Arc<AlertMetrics> {
        &self.metrics
    }

    /// Starts the watch if the config has alerts. `index` is the progress of the index of this
    /// pump's journal; `None` if this process does not write that index.
    pub fn configure(&self, config: &Config, index: Option<Arc<IndexLag>>) -> Result<(), Error> {
        // Lock: nothing else holds it before the start has ended.
        let mut running = self.running.try_lock().map_err(|_| Error::Stopped)?;
        running.index = index;
        running.follower = self.start(config, running.index.clone(), AlertStart::Window)?;
        Ok(())
    }

    fn start(
        &self,
        config: &Config,
        index: Option<Arc<IndexLag>>,
        start: AlertStart,
    ) -> Result<Option<RunningFollower>, Error> {
        let Some(command) = AlertCommand::of(config, Some(&self.source.mark)) else {
            return Ok(None);
        };
        let (command, commands) = watch::channel(command);
        let metrics = Arc::clone(&self.metrics);
        let follower = AlertFollower::new(self.source.clone(), start, index, commands, metrics);
        let timer = runtime::Builder::new_current_thread().enable_time().build();
        let timer = timer.map_err(Error::io("starting the timer of alerts"))?;
        let thread = std::thread::Builder::new().name("alerts".to_owned());
        let thread = thread.spawn(move || follower.run(&timer));
        let thread = thread.map_err(Error::io("starting the thread of alerts"))?;
        Ok(Some(RunningFollower { thread, command }))
    }

    /// Starts, changes or ends the watch for alerts, as a new config requires. A watch that a reload
    /// starts raises no alert about earlier records.
    pub async fn reconfigure(&self, config: &Config) -> Result<(), Error> {
        // Lock: held for a whole change, so that changes are made one after the other.
        let mut running = self.running.lock().await;
        match (running.follower.take(), AlertCommand::of(config, Some(&self.source.mark))) {
            (Some(follower), Some(command)) => {
                follower.command.send_replace(command);
                running.follower = Some(follower);
            }
            (Some(follower), None) => end(follower).await,
            (None, Some(_)) => {
                let last: Position = *self.source.pump.recorded().borrow();
                let start = AlertStart::After(last);
                running.follower = self.start(config, running.index.clone(), start)?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Stops the watch for alerts. Waits for running commands, but only for a limited time.
    pub async fn stop(&self) {
        let follower = self.running.lock().await.follower.take();
        if let Some(follower) = follower {
            end(follower).await;
        }
    }

    /// Runs the alert command for the error that ended the pump, if the error is a problem of the
    /// journal. Blocks until the command has ended.
    pub fn report_fatal(&self, error: &journal::Error) {
        let running = self.running.blocking_lock();
        let Some(follower) = &running.follower else { return };
        let command = follower.command.borrow().clone();
        drop(running);
        unrecorded::report(&command, &self.source.data, &self.source.state, error);
    }
}

async fn end(follower: RunningFollower) {
    let RunningFollower { thread, command } = follower;
    drop(command);
    if !matches!(blocking_work::run(move || thread.join()).await, Ok(Ok(()))) {
        tracing::error!("the thread of alerts panicked, or could not be awaited");
    }
}
