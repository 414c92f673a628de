//! Watches for the signals that stop a command, so that the command can clean up before it ends.

use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::limits;

use super::exit::CommandExit;

/// A signal that stops a command whose organism must be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DrainSignal {
    #[error("stopped on SIGINT")]
    Interrupt,
    #[error("stopped on SIGTERM")]
    Terminate,
}

impl DrainSignal {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Returns the exit code of a command that this signal has stopped. A shell reports the same
    /// code for a process that the signal has killed.
    pub const fn exit(self) -> CommandExit {
        match self {
            Self::Interrupt => CommandExit::Interrupted,
            Self::Terminate => CommandExit::Terminated,
        }
    }
}

/// The last signal that was received for a command whose organism must be drained.
pub type ReceivedSignal = watch::Receiver<Option<DrainSignal>>;

/// Watches for the signals that stop a command whose organism must be drained. The first signal
/// sets the value of all receivers. A second signal ends the process at once, and so does the first
/// one if no receiver is left.
pub fn watch_drain_signals() -> std::io::Result<ReceivedSignal> {
    // One watch for all organisms that a command starts one after another.
    static STOP: OnceLock<watch::Sender<Option<DrainSignal>>> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.subscribe());
    }

    let interrupt = signal(SignalKind::interrupt())?;
    let terminate = signal(SignalKind::terminate())?;
    let stop = STOP.get_or_init(|| watch::Sender::new(None));
    let received = stop.subscribe();
    tokio::spawn(publish_signals(stop, interrupt, terminate));
    Ok(received)
}

async fn publish_signals(
    stop: &watch::Sender<Option<DrainSignal>>,
    mut interrupt: Signal,
    mut terminate: Signal,
) {
    loop {
        let signal = tokio::select! {
            _ = interrupt.recv() => DrainSignal::Interrupt,
            _ = terminate.recv() => DrainSignal::Terminate,
        };
        if stop.is_closed() || stop.send_replace(Some(signal)).is_some() {
            std::process::exit(signal.exit() as i32);
        }
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
/// second signal ends the process at once with the exit code `exit`.
pub fn watch_stop_signals(exit: CommandExit) -> anyhow::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if stop.send_replace(true) {
                std::process::exit(exit as i32);
            }
        }
    });
    Ok(stopped)
}
