//! Limits of the leases of partitions, and of the standbys that wait for them.

use std::time::Duration;

/// Interval at which a pump renews the lease of its partition.
pub const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_millis(400);
/// Timeout of one lease renewal. The time is short, so that the pump can try again before the lease
/// lapses, and one lost response does not lose the lease.
pub const LEASE_RENEWAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without a renewal after which a lease has lapsed.
pub const LEASE_LAPSE: Duration = Duration::from_secs(2);
/// Maximum age of the note that a copy of a stream is complete. With an older note, the copy counts
/// as out of date. The pump renews the note with its lease, and a standby with each read.
pub const COPY_AGE_MAX: Duration = Duration::from_secs(5);
/// Maximum age of a pump's proof that it leads its partition. With an older proof, the pump must
/// not deliver. The age is much shorter than [`LEASE_LAPSE`], after which another pump may take
/// over.
pub const LEAD_PROOF_VALIDITY: Duration = Duration::from_millis(500);
/// Time for which a released lease is reserved for the heir that its last holder chose.
pub const LEASE_RESERVED_FOR_HEIR: Duration = Duration::from_secs(2);
/// Interval at which a standby checks whether the lease of its partition is free.
pub const STANDBY_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which a standby reads new records from the stream.
pub const STANDBY_READ_INTERVAL: Duration = Duration::from_millis(500);
/// Delay before a standby contacts an unreachable server again.
pub const STANDBY_RETRY: Duration = Duration::from_millis(500);
/// Maximum delay before a standby tries again to follow the stream, after the disk was full or the
/// standby refused the stream.
pub const STANDBY_RETRY_MAX: Duration = Duration::from_secs(10);
/// Factor for the delay before a standby again reads a stream that it has refused: the delay is
/// this many times as long as the previous read.
pub const STANDBY_READ_SHARE: u32 = 10;

const _: () = assert!(
    LEASE_RENEWAL_INTERVAL.as_millis() * 2 + LEASE_RENEWAL_TIMEOUT.as_millis()
        < LEASE_LAPSE.as_millis()
);
const _: () = assert!(LEAD_PROOF_VALIDITY.as_millis() * 2 < LEASE_LAPSE.as_millis());
// A lease that is renewed in time keeps the copy of the pump up to date.
const _: () = assert!(LEASE_LAPSE.as_millis() * 2 < COPY_AGE_MAX.as_millis());
const _: () = assert!(STANDBY_READ_INTERVAL.as_millis() * 2 < COPY_AGE_MAX.as_millis());
