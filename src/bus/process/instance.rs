//! Runs one instance of a process listener: starts its process, serves deliveries, and restarts the
//! process within the limits of the restart policy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_core::RngCore as _;

use super::Options;
use super::child::{Child, SpawnError};
use super::child_frames::{ChildExit, ChildIo};
use super::dispatch::InstanceHandle;
use super::restarts::{RestartDecision, Restarts};

/// Runs one instance of a process listener until the host is drained or dropped.
pub(super) async fn run(options: Arc<Options>, mut handle: InstanceHandle) {
    let mut restarts = Restarts::new(options.restarts);

    loop {
        let next = match Child::start(&options, handle.instance).await {
            Ok((child, pipes)) => {
                handle.up();
                let ended = ChildIo::new(&options, &mut handle, child, pipes).hold().await;
                let leaving = handle.leave();
                match ended {
                    _ if leaving => return,
                    ChildExit::Drained => return,
                    ChildExit::AfterCancel => continue,
                    ChildExit::Fault(reason) => fault(&options, &handle, &reason, &mut restarts),
                }
            }
            // An immediate restart would not find the program either.
            Err(error @ SpawnError::NotFound(_)) => {
                handle.down(&error.to_string());
                RestartDecision::RestFor(options.restarts.rest)
            }
            Err(error) => fault(&options, &handle, &error.to_string(), &mut restarts),
        };

        let (RestartDecision::After(wait) | RestartDecision::RestFor(wait)) = next;
        if !handle.rest(wait).await {
            handle.leave();
            return;
        }
        handle.starts_again();
    }
}

/// Cuts a duration to whole milliseconds, so that a log line is easy to read.
fn in_milliseconds(wait: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

fn fault(
    options: &Options,
    handle: &InstanceHandle,
    reason: &str,
    restarts: &mut Restarts,
) -> RestartDecision {
    let listener = &options.listener;
    let instance = handle.instance;
    let [chance, ..] = rand_core::OsRng.next_u32().to_le_bytes();
    let next = restarts.next(Instant::now(), chance);

    match next {
        RestartDecision::After(wait) => {
            let wait = in_milliseconds(wait);
            tracing::warn!(
                %listener, instance,
                "the process of `{listener}` failed: {reason}; restarting it in {wait:?}"
            );
        }
        RestartDecision::RestFor(wait) => {
            let wait = in_milliseconds(wait);
            tracing::error!(
                %listener, instance,
                "the process of `{listener}` failed: {reason}; all restarts are used, so the next \
                 start waits {wait:?}"
            );
            match options.restarts.max {
                0 => handle.down(reason),
                _ => handle.down(&format!("restarts are used up; {reason}")),
            }
        }
    }

    next
}
