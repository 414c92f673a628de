//! Monitors the stream of a running pump. A separate OS thread checks whether the stream was
//! replaced and whether it still has every acknowledged message, so that no pump continues to write
//! to a lost journal.
//!
//! Lease renewal has another OS thread, so that a slow check of the stream delays no renewal.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use crate::clock::since_boot;
use crate::journal::Error;
use crate::limits;
use crate::mutant::mutant;
use crate::plural;

use super::Options;
use super::acknowledged_bounds::{AcknowledgedMark, StreamBounds};
use super::api::{JetStreamApi, StreamDescription, code};
use super::lease::LeaseHandover;
use super::lease_renewal::{FatalCondition, LeaseRenewal};
use super::periodic_thread::PeriodicThread;
use super::publish::lost;
use super::settings;
use super::unavailable;

/// Monitors the stream and renews the lease. Dropping this value releases the lease.
#[derive(Debug)]
pub struct LeadershipWatch {
    // Ordering rule: fields drop in this order. The monitor stops before the lease is released.
    _looking: PeriodicThread,
    renewal: LeaseRenewal,
    api: JetStreamApi,
    options: Options,
}

struct StreamMonitor {
    api: JetStreamApi,
    options: Options,
    created: String,
    /// Number of the last message that is known to be in the stream.
    last: Arc<AtomicU64>,
    doubt: SuspectSince,
}

/// Time since which every check has found a problem; `None` without a problem. A problem counts
/// only if it lasts, because during an election a stream may look shorter than it is.
#[derive(Debug, Default)]
struct SuspectSince(Option<Instant>);

impl SuspectSince {
    /// Takes the result of one check: a problem, or `None`. Returns the problem if all checks
    /// during the last [`limits::STREAM_GONE_AFTER`] found a problem. Otherwise, returns `None`.
    fn lasting<P>(&mut self, problem: Option<P>, now: Instant) -> Option<P> {
        let Some(problem) = problem else {
            self.0 = None;
            return None;
        };
        let since = *self.0.get_or_insert(now);
        (now.saturating_duration_since(since) >= limits::STREAM_GONE_AFTER).then_some(problem)
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
        let api = api.clone();
        let options = options.clone();
        let mut watcher = StreamMonitor {
            api: api.clone(),
            options: options.clone(),
            created,
            last,
            doubt: SuspectSince::default(),
        };
        let lost = renewal.found.clone();
        let copy = Arc::clone(&renewal.copy);
        let look = move || {
            copy.renew_note();
            let changed = watcher.changed();
            let Some(change) = watcher.doubt.lasting(changed, Instant::now()) else { return true };
            if let FatalCondition::Lost(detail) | FatalCondition::Unsafe(detail) = &change {
                tracing::error!("{detail}");
            }
            lost.fatal().get_or_insert(change);
            false
        };

        let looking =
            PeriodicThread::start("journal-watch", limits::STREAM_CHECK_INTERVAL, look, || {})?;
        Ok(Self { _looking: looking, renewal, api, options })
    }

    /// Returns a handle with which the next holder of the lease can be set.
    pub fn handover(&self) -> LeaseHandover {
        LeaseHandover::of(&self.renewal.lease)
    }

    /// Sets the last acknowledged record. All later renewals of the lease write this record into
    /// the lease's entry.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        self.renewal.acknowledge(acknowledged);
    }

    /// Notes that the copy of the stream in `data` had every record at the time `at`. From now on,
    /// the note is renewed while the lease is.
    pub fn note_copy(&self, data: &Path, at: SystemTime) {
        self.renewal.copy.complete(data, at);
    }

    /// Returns an error if a fatal condition was found. `ours` is the epoch of this pump. If the
    /// lease was renewed after a lapse, first compares the stream with the projections of the other
    /// processes.
    pub fn check(&self, ours: u32) -> Result<(), Error> {
        if self.renewal.lapses.is_comparison_due()
            && let Err(error) = self.compare_with_members()
        {
            // The next append or delivery compares again.
            tracing::debug!("could not compare the stream after a lapse of the lease: {error}");
        }

        self.check_fatal(ours)
    }

    /// Compares the stream with the projections of the other processes if the lease may have lapsed
    /// since the last comparison. Returns an error if a fatal condition was found, or if no
    /// comparison is possible. Must be called directly before each append and delivery, when
    /// nothing else is being written.
    pub fn verify_after_lapse(&self, ours: u32) -> Result<(), Error> {
        if self.renewal.lapses.may_have_lapsed(since_boot()) && !mutant("write-after-a-lapse") {
            self.compare_with_members()?;
        }

        self.check_fatal(ours)
    }

    /// Compares the stream with the projections of the other processes. If a projection has a
    /// record after this pump's last record, another pump has taken over meanwhile, and the servers
    /// have lost the records of that pump. In this case, sets the fatal condition.
    fn compare_with_members(&self) -> Result<(), Error> {
        // During an outage, the callers of the pump do not wait long for an error.
        if !self.api.link.is_connected() {
            let detail = "there is no connection to the servers".to_owned();
            return Err(Error::Unavailable { detail });
        }

        let requested_at = since_boot();
        let Some(known) = self.renewal.acknowledged() else { return Ok(()) };
        if self.last_of_stream()? != known.seq {
            // The server refuses the next message, or the monitor finds the loss.
            return Ok(());
        }

        let position = known.position;
        // While no renewal succeeds, a comparison is made again whenever the previous one is too
        // old. Only the first one waits for other processes, so that a pump without any does not
        // stand still again and again.
        let waits = !self.renewal.lapses.was_compared();
        match StreamBounds::members_beyond(&self.api, &self.options, position, waits) {
            // The later record of another process may come from a commit of this pump that arrived
            // late.
            Some(_) if self.last_of_stream()? != known.seq => {}
            Some(sources) => {
                let stream = self.options.stream();
                tracing::error!(
                    stream,
                    "the stream ends at record {position}, and more was acknowledged while the \
                     lease of this pump had lapsed: {sources}; this pump stops"
                );
                *self.renewal.found.fatal() = Some(FatalCondition::Taken);
            }
            None => self.renewal.lapses.record_comparison(requested_at),
        }
        Ok(())
    }

    /// Returns the sequence number of the stream's last message.
    fn last_of_stream(&self) -> Result<u64, Error> {
        let stream = self.options.stream();
        let info = self.api.info(&stream);
        let info = info.map_err(|failed| unavailable(&format!("the stream {stream}"), &failed))?;
        Ok(info.state.last_seq)
    }

    fn check_fatal(&self, ours: u32) -> Result<(), Error> {
        match self.renewal.found.fatal().clone() {
            None => Ok(()),
            // The new holder of the lease writes with the next epoch, now or soon.
            Some(FatalCondition::Taken) => Err(Error::Fenced { ours, theirs: ours + 1 }),
            Some(FatalCondition::Lost(detail)) => Err(Error::broken(0, detail)),
            Some(FatalCondition::Unsafe(detail)) => {
                Err(Error::UnsafeServer { server: self.api.link.server(), detail })
            }
        }
    }
}

impl StreamMonitor {
    /// Returns a harmful change of the stream, such as lost messages; `None` if there is no such
    /// change.
    fn changed(&self) -> Option<FatalCondition> {
        let stream = self.options.stream();
        // Ordering rule: read before the stream's state, so that messages acknowledged in between
        // do not look lost.
        let known = self.last.load(Ordering::Acquire);
        let info = match self.api.info(&stream) {
            Ok(info) => info,
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => {
                let gone = format!("the stream {stream} is gone; it holds the journal");
                return Some(FatalCondition::Lost(with_advice(&gone)));
            }
            Err(_) => return None,
        };

        let loss = self.loss(&info, known).map(FatalCondition::Lost);
        loss.or_else(|| settings::fault(&self.options, &info.config).map(FatalCondition::Unsafe))
    }

    /// Returns the description of the loss of acknowledged messages; `None` if the stream has every
    /// message up to `known`.
    fn loss(&self, info: &StreamDescription, known: u64) -> Option<String> {
        let stream = self.options.stream();
        if info.created != self.created {
            let now = &info.created;
            let then = &self.created;
            return Some(with_advice(&format!(
                "the stream {stream} is another one, made at {now}; the journal's was made at {then}"
            )));
        }

        if info.state.last_seq < known {
            return Some(with_advice(&lost(&stream, known, info.state.last_seq)));
        }

        let missing = info.state.last_seq.saturating_sub(info.state.messages);
        (missing > 0).then(|| messages_missing(&stream, missing))
    }
}

/// Describes the loss of `missing` messages within the stream.
pub(super) fn messages_missing(stream: &str, missing: u64) -> String {
    let were = plural::form(missing, "was", "were");
    format!("{} {were} taken out of the stream {stream}", plural::count(missing, "message"))
}

/// Adds advice for the operator to `detail`, which states that the stream lost acknowledged
/// messages. The advice is a repair from the projection and not from a backup, because a backup has
/// fewer records.
fn with_advice(detail: &str) -> String {
    format!(
        "{detail}. Keep the projection: it has every acknowledged record. If the servers cannot \
         bring the stream back, run `organism repair` where the projection goes farthest, which \
         publishes the rest again (docs/errors/stream-shorter.md)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_a_lost_stream_is_a_repair_from_the_projection_and_no_backup() {
        let gone = Error::broken(0, with_advice("the stream ORGANISM-a-0 is gone"));
        let text = gone.in_journal("ORGANISM-a-0").to_string();
        assert!(text.contains("is gone. Keep the projection"), "{text}");
        assert!(text.contains("`organism repair`"), "{text}");
        assert!(!text.contains("backup"), "{text}");
    }

    #[test]
    fn a_stream_is_lost_when_it_was_for_a_while_and_not_between_two_leaders() {
        let begun = Instant::now();
        let mut doubt = SuspectSince::default();
        let mut look = |wrong: bool, looks: u32| {
            let wrong = wrong.then(|| "it is gone".to_owned());
            doubt.lasting(wrong, begun + looks * limits::STREAM_CHECK_INTERVAL).is_some()
        };

        assert!(!look(true, 0), "an election may go on");
        assert!(!look(true, 1));
        assert!(!look(false, 2), "it is there again");
        assert!(!look(true, 3) && !look(true, 4) && !look(true, 5), "and the time runs anew");
        assert!(look(true, 6));
        // Well within five seconds of the loss.
        assert!(
            limits::STREAM_GONE_AFTER + 2 * limits::STREAM_CHECK_INTERVAL
                < std::time::Duration::from_secs(4)
        );
    }
}
