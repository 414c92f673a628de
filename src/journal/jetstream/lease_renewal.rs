//! Lease renewal: an OS thread beside the pump that renews the pump's lease, and releases the lease
//! at the end.
//!
//! The stream's monitor has an OS thread of its own, so that a slow check of the stream delays no
//! renewal.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use crate::clock::since_boot;
use crate::journal::Error;
use crate::journal::followed_copy::PumpedCopy;
use crate::limits;
use crate::locks::locked;

use super::Options;
use super::acknowledged_bounds::AcknowledgedMark;
use super::lease::{Lease, RenewalResult, unconfirmed};
use super::lease_lapse::LeaseLapses;
use super::periodic_thread::PeriodicThread;

/// Why the pump must stop.
#[derive(Debug, Clone)]
pub(super) enum FatalCondition {
    Taken,
    /// The stream has lost acknowledged messages.
    Lost(String),
    /// The stream has every message, but its settings were changed so that it may lose some.
    Unsafe(String),
}

/// The reason why the pump must stop; `None` while there is no reason. The lease renewal and the
/// stream's monitor set this value. The writer reads it before each append.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundCondition(Arc<Mutex<Option<FatalCondition>>>);

impl FoundCondition {
    // Lock: the data is a single value, so it is valid even if a holder panicked.
    pub fn fatal(&self) -> MutexGuard<'_, Option<FatalCondition>> {
        locked(&self.0)
    }
}

/// Renews the lease on a separate OS thread. Dropping this value releases the lease.
#[derive(Debug)]
pub struct LeaseRenewal {
    pub(super) found: FoundCondition,
    pub(super) lease: Arc<Lease>,
    pub(super) lapses: LeaseLapses,
    /// The pump's copy of the stream, which is complete while the lease is renewed.
    pub(super) copy: Arc<PumpedCopy>,
    _renewing: PeriodicThread,
}

impl LeaseRenewal {
    /// Starts to renew a lease that this process has just acquired. Must be called before the first
    /// write is prepared, because the preparations may take longer than the lease lasts.
    pub fn start(options: &Options, lease: Arc<Lease>) -> Result<Self, Error> {
        let found = FoundCondition::default();
        let stream = options.stream();
        let renewed = Arc::clone(&lease);
        let taken = found.clone();
        let lapses = LeaseLapses::since(since_boot());
        let noted = lapses.clone();
        let copy = Arc::<PumpedCopy>::default();
        let pumped = Arc::clone(&copy);
        let renew = move || {
            let requested_at = since_boot();
            let asked_at = SystemTime::now();
            match renewed.renew() {
                RenewalResult::Renewed => {
                    // Until this request, no other pump can have written to the stream.
                    pumped.set_exclusive_until(asked_at);
                    if noted.record_renewal(requested_at, since_boot()) {
                        tracing::warn!(stream, "the lease is renewed again");
                    }
                }
                RenewalResult::Taken => {
                    tracing::error!(stream, "another pump took the lease; this pump stops");
                    *taken.fatal() = Some(FatalCondition::Taken);
                    return false;
                }
                RenewalResult::Unavailable(why) => report_lapse(&noted, &stream, &why),
                RenewalResult::Denied(denied) => report_lapse(&noted, &stream, &denied.to_string()),
            }
            true
        };

        let let_go = Arc::clone(&lease);
        let renewing = PeriodicThread::start(
            "journal-lease",
            limits::LEASE_RENEWAL_INTERVAL,
            renew,
            move || {
                let_go.let_go();
            },
        )?;
        Ok(Self { found, lease, lapses, copy, _renewing: renewing })
    }

    /// Returns the last acknowledged record that the next renewal writes into the lease; `None` if
    /// the next renewal writes no such record.
    pub fn acknowledged(&self) -> Option<AcknowledgedMark> {
        self.lease.acknowledged()
    }

    /// Sets the last acknowledged record. All later renewals of the lease write this record into
    /// the lease's entry.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        self.lease.acknowledge(acknowledged);
    }

    /// Renews the lease now, and states `acknowledged` in it as the last acknowledged record.
    /// Returns an error if the server does not confirm the renewal.
    pub fn acknowledge_now(&self, acknowledged: AcknowledgedMark) -> Result<(), Error> {
        self.lease.acknowledge(acknowledged);
        match self.lease.renew() {
            RenewalResult::Renewed => Ok(()),
            RenewalResult::Denied(denied) => Err(Error::Denied(denied)),
            RenewalResult::Taken => Err(unconfirmed("another pump took it")),
            RenewalResult::Unavailable(why) => Err(unconfirmed(&why)),
        }
    }

    /// Removes the last acknowledged record from the lease, so that later renewals do not write it.
    pub fn forget(&self) {
        self.lease.forget();
    }
}

/// Logs that the lease was not renewed for [`limits::LEASE_LAPSE`]. Logs each lapse only once.
fn report_lapse(lapses: &LeaseLapses, stream: &str, why: &str) {
    if lapses.take_report(since_boot()) {
        tracing::warn!(
            stream,
            "the lease was not renewed for {} s; this pump goes on, but another may take over: {why}",
            limits::LEASE_LAPSE.as_secs()
        );
    }
}
