//! Watches for the signals that stop a command, so that the command can clean up before it ends.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::exit::CommandExit;

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
