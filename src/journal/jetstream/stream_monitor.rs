//! Beside the pump, a thread that renews its lease, and one that looks whether the stream is still
//! the one it was: nobody writes to a journal that is gone without hearing of it.
//!
//! They are two, so that no look that takes its time keeps the lease from being renewed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::journal::Error;
use crate::limits;

use super::Options;
use super::api::{JetStreamApi, code};
use super::bounds::AcknowledgedMark;
use super::lease::{Lease, LeaseHandover, RenewalResult};
use super::publish::lost;
use super::settings::differences;

/// Why the pump must not go on.
#[derive(Debug, Clone)]
enum FatalCondition {
    Taken,
    Lost(String),
}

#[derive(Debug, Clone, Default)]
struct FoundCondition(Arc<Mutex<Option<FatalCondition>>>);

impl FoundCondition {
    fn trouble(&self) -> MutexGuard<'_, Option<FatalCondition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of the lease when it is dropped.
#[derive(Debug)]
pub struct LeadershipWatch {
    // In this order: the lease goes last.
    _looking: PeriodicThread,
    renewal: LeaseRenewal,
}

/// Keeps the lease, and lets go of it when it is dropped.
#[derive(Debug)]
pub struct LeaseRenewal {
    found: FoundCondition,
    lease: Arc<Lease>,
    _renewing: PeriodicThread,
}

/// Something that is done again and again by a thread of its own.
#[derive(Debug)]
struct PeriodicThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct StreamMonitor {
    api: JetStreamApi,
    options: Options,
    created: String,
    /// The last message that is known to be there.
    last: Arc<AtomicU64>,
    doubt: SuspectSince,
}

/// Since when something has been wrong: between two leaders of a cluster a stream may look shorter
/// than it is.
#[derive(Debug, Default)]
struct SuspectSince(Option<Instant>);

impl SuspectSince {
    /// What is wrong, once something was for a while.
    fn lasting(&mut self, wrong: Option<String>, now: Instant) -> Option<String> {
        let Some(detail) = wrong else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        (now.saturating_duration_since(since) >= limits::STREAM_GONE_AFTER).then_some(detail)
    }
}

impl LeaseRenewal {
    /// From the moment on in which the lease is ours: what is done before the first record is written
    /// may take its time.
    pub fn start(options: &Options, lease: Arc<Lease>) -> Result<Self, Error> {
        let (found, stream) = (FoundCondition::default(), options.stream());
        let (renewed, taken) = (Arc::clone(&lease), found.clone());
        let renew = move || {
            let is_taken = renewed.renew() == RenewalResult::Taken;
            if is_taken {
                tracing::error!(stream, "another pump took the lease");
                *taken.trouble() = Some(FatalCondition::Taken);
            }
            !is_taken
        };

        let let_go = Arc::clone(&lease);
        let renewing =
            PeriodicThread::start("journal-lease", limits::LEASE_BEAT, renew, move || {
                let_go.let_go();
            })?;
        Ok(Self { found, lease, _renewing: renewing })
    }
}

impl LeaseRenewal {
    /// How far the journal went, as far as the lease shows it.
    pub fn acknowledged(&self) -> Option<AcknowledgedMark> {
        self.lease.acknowledged()
    }

    /// The next renewal says so.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        self.lease.acknowledge(acknowledged);
    }

    /// The lease says so when this returns.
    pub fn acknowledge_now(&self, acknowledged: AcknowledgedMark) -> Result<(), Error> {
        self.lease.acknowledge(acknowledged);
        match self.lease.renew() {
            RenewalResult::Renewed => Ok(()),
            RenewalResult::Denied(denied) => Err(Error::Denied(denied)),
            RenewalResult::Taken | RenewalResult::Unheard => {
                Err(Error::Away { detail: "the lease was not confirmed".to_owned() })
            }
        }
    }

    /// The next renewal shows nothing of how far the journal went.
    pub fn forget(&self) {
        self.lease.forget();
    }
}

impl LeadershipWatch {
    pub fn start(
        api: &JetStreamApi,
        options: &Options,
        renewal: LeaseRenewal,
        created: String,
        last: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        let (api, options) = (api.clone(), options.clone());
        let mut watcher =
            StreamMonitor { api, options, created, last, doubt: SuspectSince::default() };
        let lost = renewal.found.clone();
        let look = move || {
            let wrong = watcher.changed();
            let Some(detail) = watcher.doubt.lasting(wrong, Instant::now()) else { return true };
            tracing::error!("{detail}");
            lost.trouble().get_or_insert(FatalCondition::Lost(detail));
            false
        };

        let looking = PeriodicThread::start("journal-watch", limits::STREAM_LOOK, look, || {})?;
        Ok(Self { _looking: looking, renewal })
    }

    /// Who gets the lease when it is let go of.
    pub fn bequest(&self) -> LeaseHandover {
        LeaseHandover::of(&self.renewal.lease)
    }

    /// The next renewal of the lease says so.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        self.renewal.acknowledge(acknowledged);
    }

    /// What keeps the pump from going on; `ours` is its epoch.
    pub fn check(&self, ours: u32) -> Result<(), Error> {
        match self.renewal.found.trouble().clone() {
            None => Ok(()),
            // Whoever has the lease now writes, or will, with the next epoch.
            Some(FatalCondition::Taken) => Err(Error::Fenced { ours, theirs: ours + 1 }),
            Some(FatalCondition::Lost(detail)) => Err(Error::broken(0, detail)),
        }
    }
}

impl PeriodicThread {
    /// Until `again` says that it was the last time, or this is dropped: then `last` is done.
    fn start(
        name: &str,
        every: Duration,
        mut again: impl FnMut() -> bool + Send + 'static,
        last: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Error> {
        let (stop, stopped) = channel();
        let go_round = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if !again() {
                    return;
                }
            }
            last();
        };

        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(go_round);
        let thread = thread.map_err(Error::io(format!("starting the thread {name}")))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for PeriodicThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What went wrong in there, it has logged.
            thread.join().ok();
        }
    }
}

impl StreamMonitor {
    /// What is wrong with the stream now.
    fn changed(&self) -> Option<String> {
        let stream = self.options.stream();
        // Read before the stream is: what is acknowledged later is no loss.
        let known = self.last.load(Ordering::Acquire);
        let info = match self.api.info(&stream) {
            Ok(info) => info,
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => {
                return Some(format!("the stream {stream} is gone; it holds the journal"));
            }
            Err(_) => return None,
        };

        if info.created != self.created {
            let (now, then) = (&info.created, &self.created);
            return Some(format!(
                "the stream {stream} is another one, made at {now}; the journal's was made at {then}"
            ));
        }

        if info.state.last_seq < known {
            return Some(lost(&stream, known, info.state.last_seq).to_string());
        }

        if info.state.messages != info.state.last_seq {
            let missing = info.state.last_seq - info.state.messages;
            return Some(format!("{missing} messages were taken out of the stream {stream}"));
        }

        let differences = differences(&self.options, &info.config);
        (!differences.is_empty()).then(|| {
            format!(
                "the stream {stream} was changed and may lose records: {}",
                differences.join("; ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_lost_when_it_was_for_a_while_and_not_between_two_leaders() {
        let (begun, mut doubt) = (Instant::now(), SuspectSince::default());
        let mut look = |wrong: bool, looks: u32| {
            let wrong = wrong.then(|| "it is gone".to_owned());
            doubt.lasting(wrong, begun + looks * limits::STREAM_LOOK).is_some()
        };

        assert!(!look(true, 0), "an election may go on");
        assert!(!look(true, 1));
        assert!(!look(false, 2), "it is there again");
        assert!(!look(true, 3) && !look(true, 4) && !look(true, 5), "and the time runs anew");
        assert!(look(true, 6));
        // Well within five seconds of it.
        assert!(
            limits::STREAM_GONE_AFTER + 2 * limits::STREAM_LOOK < std::time::Duration::from_secs(4)
        );
    }
}
