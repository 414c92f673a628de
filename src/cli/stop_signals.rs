//! Watches for the signals that stop a command, so that the command can clean up before it ends.

use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::limits;

use super::exit::CommandExit;
use super::startup;

/// A signal that stops a command whose organism must be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped on {}", self.name())]
pub enum DrainSignal {
    Interrupt,
    Terminate,
    /// The terminal was closed.
    Hangup,
}

impl DrainSignal {
    const ALL: [Self; 3] = [Self::Interrupt, Self::Terminate, Self::Hangup];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }

    /// Returns the exit code of a command that this signal has stopped. A shell reports the same
    /// code for a process that the signal has killed.
    pub const fn exit(self) -> CommandExit {
        match self {
            Self::Interrupt => CommandExit::Interrupted,
            Self::Terminate => CommandExit::Terminated,
            Self::Hangup => CommandExit::HungUp,
        }
    }

    const fn kind(self) -> SignalKind {
        match self {
            Self::Interrupt => SignalKind::interrupt(),
            Self::Terminate => SignalKind::terminate(),
            Self::Hangup => SignalKind::hangup(),
        }
    }
}

/// The last signal that was received for a command whose organism must be drained.
pub type ReceivedSignal = watch::Receiver<Option<DrainSignal>>;

/// Watches for the signals that stop a command whose organism must be drained. The first signal
/// sets the value of all receivers. A second signal ends the process at once. If no receiver is
/// left, even the first signal ends the process, after the processes that listeners have detached.
/// Signals that were ignored when this process started stay ignored.
pub fn watch_drain_signals() -> std::io::Result<ReceivedSignal> {
    // One watch for all organisms that a command starts one after another.
    static STOP: OnceLock<watch::Sender<Option<DrainSignal>>> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.subscribe());
    }

    let stop = STOP.get_or_init(|| watch::Sender::new(None));
    let received = stop.subscribe();
    for (awaited, signals) in drain_signals()? {
        tokio::spawn(publish_signal(stop, awaited, signals));
    }
    Ok(received)
}

/// Begins to receive the signals that stop a command. Leaves out those that this process was
/// started to ignore.
fn drain_signals() -> std::io::Result<Vec<(DrainSignal, Signal)>> {
    let ignored = ignored_signals();
    let received = DrainSignal::ALL.into_iter().filter(|awaited| {
        let number = awaited.kind().as_raw_value();
        ignored >> (number - 1) & 1 == 0
    });
    received.map(|awaited| Ok((awaited, signal(awaited.kind())?))).collect()
}

/// Returns the signals that were ignored when this process started: the bit N - 1 stands for the
/// signal N. For example, `nohup` starts a process with an ignored signal, and so does a script
/// that starts a process in the background. Returns 0 if the system does not list these signals.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default()
}

async fn publish_signal(
    stop: &watch::Sender<Option<DrainSignal>>,
    awaited: DrainSignal,
    mut signals: Signal,
) {
    while signals.recv().await.is_some() {
        // Ordering rule: looked at before the value is set, because a receiver that has the value is
        // dropped.
        let has_receiver = !stop.is_closed();
        let is_first = stop.send_replace(Some(awaited)).is_none();
        if is_first && has_receiver {
            continue;
        }
        if is_first {
            startup::end_orphans();
        }
        std::process::exit(awaited.exit() as i32);
    }
}

/// Prints that an organism stops because of the signal `reason`.
pub fn report_stopping(reason: &str) {
    let patience = limits::DRAIN_TIMEOUT;
    note!(
        "stopping on {reason}: deliveries in flight may end within {patience:?}, waiting calls \
         remain in the journal"
    );
}

/// Watches for the signals that stop a command. The first signal sets the returned value to true. A
/// second signal ends the process at once with the exit code `exit`. A signal that this process was
/// started to ignore stays ignored.
pub fn watch_stop_signals(exit: CommandExit) -> anyhow::Result<watch::Receiver<bool>> {
    let (stop, stopped) = watch::channel(false);
    for (_, mut signals) in drain_signals()? {
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.send_replace(true) {
                    std::process::exit(exit as i32);
                }
            }
        });
    }

    // The channel stays open also where all signals are ignored.
    tokio::spawn(async move { stop.closed().await });
    Ok(stopped)
}
