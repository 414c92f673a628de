//! Beside the pump, a thread that renews its lease and looks whether the stream is still the one
//! it was: nobody writes to a journal that is gone without hearing of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::journal::Error;
use crate::limits;

use super::Options;
use super::api::{Api, code};
use super::lease::{Beat, Lease};
use super::publish::lost;
use super::settings::differences;

/// Why the pump must not go on.
#[derive(Debug, Clone)]
enum Trouble {
    Taken,
    Lost(String),
}

/// Stops with a last look when it is dropped, and lets go of the lease.
#[derive(Debug)]
pub struct Watch {
    trouble: Arc<Mutex<Option<Trouble>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Watcher {
    api: Api,
    options: Options,
    lease: Arc<Lease>,
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

impl Watch {
    pub fn start(
        api: &Api,
        options: &Options,
        lease: Arc<Lease>,
        created: String,
        last: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        let trouble = Arc::new(Mutex::new(None));
        let (stop, stopped) = channel();
        let (api, options) = (api.clone(), options.clone());
        let mut watcher = Watcher { api, options, lease, created, last, doubt: Doubt::default() };
        let found = Arc::clone(&trouble);
        let thread = std::thread::Builder::new().name("journal-watch".to_owned());
        let watch = move || {
            while stopped.recv_timeout(limits::LEASE_BEAT) == Err(RecvTimeoutError::Timeout) {
                if let Some(trouble) = watcher.look() {
                    *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
                    return;
                }
            }
            watcher.lease.let_go();
        };
        let thread = thread.spawn(watch).map_err(Error::io("starting the journal's watch"))?;
        Ok(Self { trouble, stop: Some(stop), thread: Some(thread) })
    }

    /// What keeps the pump from going on; `ours` is its epoch.
    pub fn check(&self, ours: u32) -> Result<(), Error> {
        match self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            None => Ok(()),
            // Whoever has the lease now writes, or will, with the next epoch.
            Some(Trouble::Taken) => Err(Error::Fenced { ours, theirs: ours + 1 }),
            Some(Trouble::Lost(detail)) => Err(Error::broken(0, detail)),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What went wrong in there, it has logged.
            thread.join().ok();
        }
    }
}

impl Watcher {
    fn look(&mut self) -> Option<Trouble> {
        match self.lease.renew() {
            Beat::Taken => {
                tracing::error!(stream = self.options.stream(), "another pump took the lease");
                return Some(Trouble::Taken);
            }
            // The next beat is what matters now.
            Beat::Unheard | Beat::Denied(_) => return None,
            Beat::Renewed => {}
        }
        let wrong = self.changed();
        let detail = self.doubt.lasting(wrong, Instant::now())?;
        tracing::error!("{detail}");
        Some(Trouble::Lost(detail))
    }

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
        let mut look = |wrong: bool, beats: u32| {
            let wrong = wrong.then(|| "it is gone".to_owned());
            doubt.lasting(wrong, begun + beats * limits::LEASE_BEAT).is_some()
        };
        assert!(!look(true, 0), "an election may go on");
        assert!(!look(true, 1));
        assert!(!look(false, 2), "it is there again");
        assert!(!look(true, 3) && !look(true, 4) && !look(true, 5), "and the time runs anew");
        assert!(look(true, 6));
        // Well within five seconds of it.
        assert!(
            limits::STREAM_GONE_AFTER + 2 * limits::LEASE_BEAT < std::time::Duration::from_secs(4)
        );
    }
}
