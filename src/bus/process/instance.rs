//! The life of one instance: starts its process, serves deliveries, and restarts it within the
//! limits.

use std::sync::Arc;
use std::time::Instant;

use rand_core::RngCore as _;

use super::Options;
use super::child::{Child, SpawnError};
use super::conversation::{Conversation, Ended};
use super::dispatch::Desk;
use super::restarts::{Next, Restarts};

/// Runs the instance until the host is drained or dropped.
pub(super) async fn run(options: Arc<Options>, mut desk: Desk) {
    let mut restarts = Restarts::new(options.restarts);
    loop {
        let next = match Child::start(&options, desk.seat).await {
            Ok((child, pipes)) => {
                desk.up();
                let ended = Conversation::new(&options, &mut desk, child, pipes).hold().await;
                let leaving = desk.leave();
                match ended {
                    _ if leaving => return,
                    Ended::Drained => return,
                    Ended::Killed => continue,
                    Ended::Fault(reason) => fault(&options, &desk, &reason, &mut restarts),
                }
            }
            // Trying again at once would find no more than now.
            Err(error @ SpawnError::NotFound(_)) => {
                desk.down(&error.to_string());
                Next::RestFor(options.restarts.window)
            }
            Err(error) => fault(&options, &desk, &error.to_string(), &mut restarts),
        };
        let (Next::After(wait) | Next::RestFor(wait)) = next;
        if !desk.rest(wait).await {
            desk.leave();
            return;
        }
        desk.starts_again();
    }
}

fn fault(options: &Options, desk: &Desk, reason: &str, restarts: &mut Restarts) -> Next {
    let (listener, instance) = (&options.listener, desk.seat);
    let [chance, ..] = rand_core::OsRng.next_u32().to_le_bytes();
    let next = restarts.next(Instant::now(), chance);
    match next {
        Next::After(wait) => {
            tracing::warn!(%listener, instance, ?wait, "{reason}; starting it again");
        }
        Next::RestFor(wait) => {
            tracing::error!(%listener, instance, ?wait, "{reason}; it rests, restarts are used up");
            match options.restarts.max {
                0 => desk.down(reason),
                _ => desk.down(&format!("restarts are used up; {reason}")),
            }
        }
    }
    next
}
