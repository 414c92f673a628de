//! The task that collects the exit codes of orphans.

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use crate::{blocking_work, children, limits};

/// Collects the exit codes of processes that have detached themselves from a listener.
pub(super) async fn reap_orphans() {
    let mut ended = match signal(SignalKind::child()) {
        Ok(ended) => ended,
        Err(error) => {
            return tracing::warn!(
                "could not watch for ended child processes, so orphans remain zombies: {error}"
            );
        }
    };

    while ended.recv().await.is_some() {
        // The task that waits for this child collects its exit code first. One search covers the
        // ends of many children.
        tokio::time::sleep(limits::ORPHAN_REAP_DELAY).await;
        // Also without a thread, because zombies count against the same limit as threads.
        blocking_work::start(&Handle::current(), children::reap_orphans).await.ok();
    }
}
