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
use super::api::{Api, code};
use super::bounds::Acknowledged;
use super::lease::{Beat, Bequest, Lease};
use super::publish::lost;
use super::settings::differences;

/// Why the pump must not go on.
#[derive(Debug, Clone)]
enum Trouble {
    Taken,
    Lost(String),
}

#[derive(Debug, Clone, Default)]
struct Found(Arc<Mutex<Option<Trouble>>>);

impl Found {
    fn trouble(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of the lease when it is dropped.
#[derive(Debug)]
pub struct Watch {
    // In this order: the lease goes last.
    _looking: Round,
    renewal: Renewal,
}

/// Keeps the lease, and lets go of it when it is dropped.
#[derive(Debug)]
pub struct Renewal {
    found: Found,
    lease: Arc<Lease>,
    _renewing: Round,
}

/// Something that is done again and again by a thread of its own.
#[derive(Debug)]
struct Round {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Watcher {
    api: Api,
    options: Options,
    created: String,
    /// The last message that is known to be there.
    last: Arc<AtomicU64>,
    doubt: Doubt,
}

/// Since when something has been wrong: between two leaders of a cluster a stream may look shorter
/// than it is.
#[derive(Debug, Default)]
struct Doubt(Option<Instant>);

impl Doubt {
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

impl Renewal {
    /// From the moment on in which the lease is ours: what is done before the first record is written
    /// may take its time.
    pub fn start(options: &Options, lease: Arc<Lease>) -> Result<Self, Error> {
        let (found, stream) = (Found::default(), options.stream());
        let (renewed, taken) = (Arc::clone(&lease), found.clone());
        let renew = move || {
            let is_taken = renewed.renew() == Beat::Taken;
            if is_taken {
                tracing::error!(stream, "another pump took the lease");
                *taken.trouble() = Some(Trouble::Taken);
            }
            !is_taken
        };

        let let_go = Arc::clone(&lease);
        let renewing = Round::start("journal-lease", limits::LEASE_BEAT, renew, move || {
            let_go.let_go();
        })?;
        Ok(Self { found, lease, _renewing: renewing })
    }
}

impl Renewal {
    /// How far the journal went, as far as the lease shows it.
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.lease.acknowledged()
    }

    /// The next renewal says so.
    pub fn acknowledge(&self, acknowledged: Acknowledged) {
        self.lease.acknowledge(acknowledged);
    }

    /// The lease says so when this returns.
    pub fn acknowledge_now(&self, acknowledged: Acknowledged) -> Result<(), Error> {
        self.lease.acknowledge(acknowledged);
        match self.lease.renew() {
            Beat::Renewed => Ok(()),
            Beat::Denied(denied) => Err(Error::Denied(denied)),
            Beat::Taken | Beat::Unheard => {
                Err(Error::Away { detail: "the lease was not confirmed".to_owned() })
            }
        }
    }

    /// The next renewal shows nothing of how far the journal went.
    pub fn forget(&self) {
        self.lease.forget();
    }
}

impl Watch {
    pub fn start(
        api: &Api,
        options: &Options,
        renewal: Renewal,
        created: String,
        last: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        let (api, options) = (api.clone(), options.clone());
        let mut watcher = Watcher { api, options, created, last, doubt: Doubt::default() };
        let lost = renewal.found.clone();
        let look = move || {
            let wrong = watcher.changed();
            let Some(detail) = watcher.doubt.lasting(wrong, Instant::now()) else { return true };
            tracing::error!("{detail}");
            lost.trouble().get_or_insert(Trouble::Lost(detail));
            false
        };

        let looking = Round::start("journal-watch", limits::STREAM_LOOK, look, || {})?;
        Ok(Self { _looking: looking, renewal })
    }

    /// Who gets the lease when it is let go of.
    pub fn bequest(&self) -> Bequest {
        Bequest::of(&self.renewal.lease)
    }

    /// The next renewal of the lease says so.
    pub fn acknowledge(&self, acknowledged: Acknowledged) {
        self.renewal.acknowledge(acknowledged);
    }

    /// What keeps the pump from going on; `ours` is its epoch.
    pub fn check(&self, ours: u32) -> Result<(), Error> {
        match self.renewal.found.trouble().clone() {
            None => Ok(()),
            // Whoever has the lease now writes, or will, with the next epoch.
            Some(Trouble::Taken) => Err(Error::Fenced { ours, theirs: ours + 1 }),
            Some(Trouble::Lost(detail)) => Err(Error::broken(0, detail)),
        }
    }
}

impl Round {
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

impl Drop for Round {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What went wrong in there, it has logged.
            thread.join().ok();
        }
    }
}

impl Watcher {
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
        let (begun, mut doubt) = (Instant::now(), Doubt::default());
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
