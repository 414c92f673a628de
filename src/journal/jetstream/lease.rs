//! The lease on a partition is a key in a bucket. The pump of the partition renews the lease while
//! the pump lives. The lease avoids needless work and informs people, but it does not ensure that
//! only one pump writes. The server ensures this: every message states the number of the message
//! before it, and the server refuses a message that states a wrong number.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::clock::Time;
use crate::journal::Error;
use crate::limits;
use crate::locks::locked;
use crate::nats::{NoResponse, PermissionError};

use super::Options;
use super::acknowledged_bounds::AcknowledgedMark;
use super::api::{ApiFailure, JetStreamApi, StoredMessage, code};
use super::identity::JoiningHost;
use super::partition_count;

/// Id of a process that can run the pump of a partition. Other processes refer to the process by
/// this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(Uuid);

impl MemberId {
    /// Returns the id of this process.
    pub fn here() -> Self {
        static HERE: OnceLock<MemberId> = OnceLock::new();
        *HERE.get_or_init(Self::new)
    }

    /// Returns a new unique id.
    #[expect(clippy::new_without_default, reason = "no two of them are the same")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The entry in the bucket of leases after the holder has released the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HandoverMark {
    /// The process that the last holder chose as the next holder; `None` if it chose no process.
    #[serde(rename = "heir", default, skip_serializing_if = "Option::is_none")]
    heir: Option<MemberId>,
    /// The last acknowledged record at the time of the handover; `None` if no such record was
    /// known.
    #[serde(rename = "acknowledged", default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<AcknowledgedMark>,
}

/// A handle for choosing the next holder of a lease. The choice is possible until the lease is
/// released.
#[derive(Debug, Clone)]
pub struct LeaseHandover(Arc<Lease>);

impl LeaseHandover {
    pub(super) fn of(lease: &Arc<Lease>) -> Self {
        Self(Arc::clone(lease))
    }

    /// Sets `heir` as the next holder, unless a next holder is already set.
    pub fn to(&self, heir: MemberId) {
        self.0.heir.set(heir).ok();
    }
}

/// The entry in the bucket of leases while a lease is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEntry {
    /// Unique id of this run of the pump.
    #[serde(rename = "id")]
    id: Uuid,
    /// Name of the holder, shown to people.
    #[serde(rename = "holder")]
    holder: String,
    /// Machine and directory of the holder. A holder locks this directory while it runs. If another
    /// process has this lock, the holder has therefore ended.
    #[serde(rename = "home")]
    home: String,
    #[serde(rename = "beat")]
    beat: u64,
    /// The last acknowledged record when this entry was written; `None` if no such record was
    /// known. The next leader must find at least this record in the stream.
    #[serde(rename = "acknowledged", default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<AcknowledgedMark>,
}

impl LeaseEntry {
    /// Returns the entry of this process, which holds the lock on `home`.
    pub fn here(home: &std::path::Path) -> Self {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let host = host();
        let machine = machine.trim();
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let holder = this_process();
        let home = format!("{host} {machine} {} {}", home.display(), own_name(&home));
        Self { id: Uuid::now_v7(), holder, home, beat: 0, acknowledged: None }
    }
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

/// Returns the name of this process in texts for people.
pub fn this_process() -> String {
    format!("process {} on {}", std::process::id(), host())
}

/// Returns an id that is stored in `home`. The id distinguishes two containers that have the same
/// host name and the same path to their journals.
fn own_name(home: &std::path::Path) -> String {
    let path = home.join("home");
    let read = || std::fs::read_to_string(&path).ok().filter(|name| !name.is_empty());
    read().unwrap_or_else(|| {
        let name = Uuid::now_v7().to_string();
        match std::fs::write(&path, &name) {
            Ok(()) => name,
            // No process will recognise this id, so our lease must lapse like any other.
            Err(_) => Uuid::now_v7().to_string(),
        }
    })
}

#[derive(Debug)]
pub struct Lease {
    api: JetStreamApi,
    options: Options,
    bucket: String,
    /// Time at which the server created the present bucket, as the server writes it. If this time
    /// changes, the earlier bucket was lost together with all its leases. The holders of these
    /// leases may still run.
    created: Mutex<String>,
    subject: String,
    mine: LeaseEntry,
    first_id: Uuid,
    /// Revision of the lease's key after the last write by this process. Each write states this
    /// revision as the expected one. If another process has taken the lease, the revision differs,
    /// and the server refuses the write.
    revision: AtomicU64,
    heir: OnceLock<MemberId>,
    /// Time at which this process took the lease; unset before. A standby may take the lease days
    /// after the start of its process.
    taken_at: OnceLock<Time>,
    /// The last acknowledged record, which every renewal writes into the bucket. Before this pump
    /// leads, this is the record from the previous holder's lease. The bucket thus keeps that
    /// record if this pump never leads. Once this pump leads, this is the last record that this
    /// pump has acknowledged.
    acknowledged: Mutex<Option<AcknowledgedMark>>,
    /// Lock: renewals run one at a time. Each renewal reads the last acknowledged record only after
    /// the previous renewal has ended, so no renewal replaces a record in the bucket by an older
    /// one.
    renewing: Mutex<()>,
}

/// Result of a renewal of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalResult {
    Renewed,
    /// Another process wrote the lease's key.
    Taken,
    /// The server did not confirm the renewal, for the contained reason.
    Unavailable(String),
    /// The servers do not permit this process to write the lease's key.
    Denied(PermissionError),
}

/// Result of checking whether the lease is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAvailability {
    /// The lease is free. The number is the revision of the lease's key.
    Free(u64),
    /// The process with this name is the last known holder of the lease, and may have ended.
    Held(String),
    /// The process with this name holds the lease and is alive.
    Lives(String),
    /// The lease is reserved for a while. It is reserved for the heir that the last holder chose
    /// or, if the entry of the lease was lost, for the last holder itself.
    Left,
    /// The bucket of the leases does not exist any more.
    BucketGone,
}

/// The revision of the lease at the last check, and the time since which the revision has not
/// changed.
#[derive(Debug, Default)]
pub struct LastSeen(Option<(u64, Instant)>);

impl LastSeen {
    /// Returns the value for a bucket that was just created in place of a lost one. The new bucket
    /// has no lease yet, so the revision is 0.
    pub fn in_new_bucket() -> Self {
        Self(Some((0, Instant::now())))
    }
}

impl Lease {
    /// Creates a lease that is not held yet.
    pub fn of(
        api: &JetStreamApi,
        options: &Options,
        mine: LeaseEntry,
        member: &JoiningHost<'_>,
    ) -> Result<Self, Error> {
        let bucket = format!("KV_{}", options.bucket());
        let subject = options.lease();
        let created = Mutex::new(make(api, &bucket, options)?);
        let organism = partition_count::agree(api, options, &bucket, member)?;
        let first_id = member.first_id(options, organism);
        let revision = AtomicU64::default();
        let heir = OnceLock::new();
        let taken_at = OnceLock::new();
        let api = api.clone();
        let options = options.clone();
        let acknowledged = Mutex::default();
        let renewing = Mutex::default();
        Ok(Self {
            api,
            options,
            bucket,
            created,
            subject,
            mine,
            first_id,
            revision,
            heir,
            taken_at,
            acknowledged,
            renewing,
        })
    }

    /// Returns the last acknowledged record that this lease states; `None` if it states none.
    pub fn acknowledged(&self) -> Option<AcknowledgedMark> {
        *locked(&self.acknowledged)
    }

    /// Removes the last acknowledged record from this lease, because an operator accepted the loss
    /// of that record.
    pub fn forget(&self) {
        *locked(&self.acknowledged) = None;
    }

    /// Sets the last acknowledged record. All later renewals of the lease write this record into
    /// the lease's entry.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        *locked(&self.acknowledged) = Some(acknowledged);
    }

    /// Returns the id for a new journal. The journal gets this id if the stream is still empty when
    /// the holder of this lease begins to write to the stream.
    pub fn first_id(&self) -> Uuid {
        self.first_id
    }

    /// Waits until the lease is free, and returns its revision. If the holder is known to be alive,
    /// returns at once an error that names the holder.
    pub fn wait_until_free(&self, options: &Options) -> Result<u64, Error> {
        let mut seen = LastSeen::default();
        loop {
            match self.look(&mut seen)? {
                LeaseAvailability::Free(revision) => return Ok(revision),
                LeaseAvailability::Lives(_) => return Err(self.held(options)),
                LeaseAvailability::BucketGone => return Err(self.bucket_gone()),
                LeaseAvailability::Held(_) | LeaseAvailability::Left => {
                    std::thread::sleep(limits::STREAM_RETRY_INTERVAL)
                }
            }
        }
    }

    /// Takes the lease, which was found free at the revision `free`.
    pub fn take(&self, free: u64, options: &Options) -> Result<(), Error> {
        self.revision.store(free, Ordering::Release);
        self.taken_at.get_or_init(Time::now);
        match self.renew() {
            RenewalResult::Renewed => Ok(()),
            RenewalResult::Taken => Err(self.held(options)),
            RenewalResult::Denied(denied) => Err(Error::Denied(denied)),
            RenewalResult::Unavailable(why) => Err(unconfirmed(&why)),
        }
    }

    /// Checks whether the lease is free. `seen` keeps the results of earlier checks. The lease is
    /// free in these cases:
    /// - No process has ever held it: it has no entry, and the stream is empty.
    /// - The last holder has released it, and has chosen this process or no process as the heir.
    /// - The last holder has released it, and has chosen another process as the heir. The heir has
    ///   not taken it within [`limits::LEASE_RESERVED_FOR_HEIR`] after this process noticed the
    ///   release.
    /// - The holder is an earlier process with the same directory as this process.
    /// - The holder has not renewed it for [`limits::LEASE_LAPSE`].
    /// - The entry of the lease was lost, perhaps together with its bucket, and
    ///   [`limits::LEASE_LAPSE`] has passed since this process noticed the loss.
    pub fn look(&self, seen: &mut LastSeen) -> Result<LeaseAvailability, Error> {
        let found = match self.api.last(&self.bucket, &self.subject) {
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => {
                return Ok(LeaseAvailability::BucketGone);
            }
            found => found.map_err(|failed| self.failed(&failed)),
        };
        // Time without access to the server does not count: the holder may renew the lease
        // meanwhile.
        let Some(found) = found.inspect_err(|_| seen.0 = None)? else {
            return self.look_without_entry(seen);
        };
        let Ok(theirs) = serde_json::from_slice::<LeaseEntry>(&found.body) else {
            let left = serde_json::from_slice::<HandoverMark>(&found.body).ok();
            left.as_ref().and_then(|left| left.acknowledged).into_iter().for_each(|known| {
                self.acknowledge(known);
            });
            return Ok(vacancy(&found, left.and_then(|left| left.heir), seen));
        };

        if let Some(known) = theirs.acknowledged {
            self.acknowledge(known);
        }

        let (first, since) = *seen.0.get_or_insert((found.seq, Instant::now()));
        if found.seq != first {
            seen.0 = Some((found.seq, Instant::now()));
            return Ok(LeaseAvailability::Lives(theirs.holder));
        }

        let gone = theirs.home == self.mine.home;
        if gone || since.elapsed() >= limits::LEASE_LAPSE {
            tracing::info!("taking over the lease from {}", theirs.holder);
            return Ok(LeaseAvailability::Free(found.seq));
        }

        Ok(LeaseAvailability::Held(theirs.holder))
    }

    /// Checks whether a lease without an entry in the bucket is free.
    /// - If the stream is empty, and the bucket is the one that this process already knew, no
    ///   process has ever held the lease. The lease is free.
    /// - Otherwise, the entry was lost, perhaps together with its bucket. The holder may still run,
    ///   and then takes the lease again with its next renewal. So the lease is free only when
    ///   [`limits::LEASE_LAPSE`] has passed since this process noticed the loss.
    fn look_without_entry(&self, seen: &mut LastSeen) -> Result<LeaseAvailability, Error> {
        let found = self.api.info(&self.bucket).map_err(|failed| self.failed(&failed))?;
        let is_new = self.record_bucket(found.created);
        let is_waiting = matches!(seen.0, Some((0, _)));
        if is_new || !is_waiting && !partition_count::is_empty(&self.api, &self.options)? {
            *seen = LastSeen::in_new_bucket();
        }

        match seen.0 {
            Some((0, since)) if since.elapsed() < limits::LEASE_LAPSE => {
                Ok(LeaseAvailability::Left)
            }
            _ => Ok(LeaseAvailability::Free(0)),
        }
    }

    /// Records the creation time of the bucket that is now on the server. Returns true if this
    /// bucket is not the one that was known before.
    fn record_bucket(&self, created: String) -> bool {
        let mut known = locked(&self.created);
        let is_new = *known != created;
        *known = created;
        is_new
    }

    /// Returns the error for a bucket that does not exist any more.
    fn bucket_gone(&self) -> Error {
        Error::Unavailable { detail: format!("the bucket {} with the leases is gone", self.bucket) }
    }

    /// Returns the name of this process. If this process has taken the lease, the text also states
    /// the time at which it did so.
    pub fn holder(&self) -> String {
        match self.taken_at.get() {
            Some(taken_at) => format!("{}, since {taken_at}", self.mine.holder),
            None => self.mine.holder.clone(),
        }
    }

    fn held(&self, options: &Options) -> Error {
        let found = self.found().ok().flatten();
        let theirs = found.and_then(|found| serde_json::from_slice::<LeaseEntry>(&found.body).ok());
        let holder = theirs.map_or_else(|| "another process".to_owned(), |theirs| theirs.holder);
        Error::InUse { path: options.stream(), holder }
    }

    fn found(&self) -> Result<Option<StoredMessage>, Error> {
        self.api.last(&self.bucket, &self.subject).map_err(|failed| self.failed(&failed))
    }

    fn failed(&self, failed: &ApiFailure) -> Error {
        super::unavailable(&format!("the lease in {}", self.bucket), failed)
    }

    /// Renews the lease, or takes a free lease: writes the entry of this process, with the last
    /// acknowledged record, to the lease's key.
    pub fn renew(&self) -> RenewalResult {
        let _turn = locked(&self.renewing);
        let revision = self.revision.load(Ordering::Acquire);
        let acknowledged = self.acknowledged();
        let holder = self.holder();
        let mine = LeaseEntry { holder, beat: revision, acknowledged, ..self.mine.clone() };
        let value = serde_json::to_vec(&mine).expect("plain data is JSON");

        match self.write(revision, &[], value) {
            Ok(seq) => {
                self.revision.store(seq, Ordering::Release);
                RenewalResult::Renewed
            }
            Err(failed) if failed.is(code::WRONG_LAST_SEQUENCE) => self.whose(),
            Err(ApiFailure::NoResponse(NoResponse::Denied(denied))) => {
                RenewalResult::Denied(denied)
            }
            Err(failed @ ApiFailure::NoResponse(NoResponse::NoResponders(_))) => {
                RenewalResult::Unavailable(self.begin_again(&failed.to_string()))
            }
            Err(failed) => RenewalResult::Unavailable(format!("{}: {failed}", self.bucket)),
        }
    }

    /// Determines which process holds the lease, after the server refused a renewal because the
    /// lease's key had changed. If an earlier renewal by this process has changed the key, and only
    /// its response was lost, the lease counts as renewed.
    fn whose(&self) -> RenewalResult {
        let found = match self.api.last(&self.bucket, &self.subject) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let why = self.begin_again("the entry of the lease is gone");
                // The next renewal creates the entry, unless another process creates it first.
                self.revision.store(0, Ordering::Release);
                return RenewalResult::Unavailable(why);
            }
            Err(failed) => {
                return RenewalResult::Unavailable(format!("{}: {failed}", self.bucket));
            }
        };
        match serde_json::from_slice::<LeaseEntry>(&found.body) {
            Ok(holder) if holder.id == self.mine.id => {
                self.revision.store(found.seq, Ordering::Release);
                RenewalResult::Renewed
            }
            _ => RenewalResult::Taken,
        }
    }

    /// Handles a failed renewal of the lease, which may mean that the bucket is gone. If the bucket
    /// is missing, creates it again; the next renewal then takes the lease in the new bucket.
    /// Returns a description of the cause. If the server still has the bucket that this process
    /// knows, the description contains `why`.
    fn begin_again(&self, why: &str) -> String {
        let created = match make(&self.api, &self.bucket, &self.options) {
            Ok(created) => created,
            Err(error) => return error.to_string(),
        };
        if !self.record_bucket(created) {
            return format!("{}: {why}", self.bucket);
        }

        self.revision.store(0, Ordering::Release);
        let bucket = &self.bucket;
        tracing::warn!("the bucket {bucket} with the leases was gone; there is a new one");
        format!("the bucket {bucket} is a new one")
    }

    /// Releases the lease, so that the next pump need not wait until the lease lapses.
    pub fn let_go(&self) {
        let revision = self.revision.load(Ordering::Acquire);
        let headers = [("KV-Operation", "DEL")];
        let left =
            HandoverMark { heir: self.heir.get().copied(), acknowledged: self.acknowledged() };
        let value = match (left.heir, left.acknowledged) {
            (None, None) => Vec::new(),
            _ => serde_json::to_vec(&left).expect("plain data is JSON"),
        };

        if let Err(failed) = self.write(revision, &headers, value) {
            tracing::debug!("could not release the lease, so it expires by itself: {failed}");
        }
    }

    fn write(
        &self,
        after: u64,
        headers: &[(&str, &str)],
        value: Vec<u8>,
    ) -> Result<u64, ApiFailure> {
        let after = after.to_string();
        let mut all = vec![("Nats-Expected-Last-Subject-Sequence", after.as_str())];
        all.extend_from_slice(headers);
        self.api.publish_within(limits::LEASE_RENEWAL_TIMEOUT, &self.subject, &all, value)
    }
}

/// Returns the availability of a released lease. The lease is free at once if it has no heir, or if
/// this process is the heir. If another process is the heir and does not take the lease, the lease
/// becomes free [`limits::LEASE_RESERVED_FOR_HEIR`] after this process noticed the release. `seen`
/// keeps the time at which this process noticed the release.
fn vacancy(
    found: &StoredMessage,
    heir: Option<MemberId>,
    seen: &mut LastSeen,
) -> LeaseAvailability {
    let Some(heir) = heir else { return LeaseAvailability::Free(found.seq) };
    if heir == MemberId::here() {
        return LeaseAvailability::Free(found.seq);
    }

    let (first, since) = *seen.0.get_or_insert((found.seq, Instant::now()));
    if found.seq != first {
        seen.0 = Some((found.seq, Instant::now()));
    } else if since.elapsed() >= limits::LEASE_RESERVED_FOR_HEIR {
        return LeaseAvailability::Free(found.seq);
    }

    LeaseAvailability::Left
}

/// Returns the error for a lease whose renewal the server did not confirm.
pub(super) fn unconfirmed(why: &str) -> Error {
    Error::Unavailable { detail: format!("the lease was not confirmed: {why}") }
}

/// Creates a key-value bucket by creating the stream that stores the bucket. NATS clients create
/// buckets with another request, but older servers refuse that request. If the bucket already
/// exists, keeps it. Returns the time at which the server created the bucket, as the server writes
/// it.
fn make(api: &JetStreamApi, bucket: &str, options: &Options) -> Result<String, Error> {
    let config = json!({
        "name": bucket,
        "description": "who pumps an organism",
        "subjects": [format!("$KV.{}.>", options.bucket())],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "storage": "file",
        "num_replicas": options.replicas,
        "deny_delete": true,
        "allow_rollup_hdrs": true,
    });
    let made = match api.info(bucket) {
        Err(failed) if failed.is(code::STREAM_NOT_FOUND) => api.create(bucket, &config),
        other => other,
    };
    let made = match made {
        // Another process created it at the same moment.
        Err(failed) if failed.is(code::STREAM_NAME_IN_USE) => api.info(bucket),
        other => other,
    };

    made.map(|bucket| bucket.created).map_err(|failed| {
        super::creation_failed(api.link.server(), &format!("the bucket {bucket}"), failed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXTURE: &str = include_str!("../../../tests/data/fixtures/lease.txt");

    #[test]
    fn a_lease_is_written_in_the_bytes_of_its_fixture() {
        let id = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
        let holder = LeaseEntry {
            id,
            holder: "process 12 on host, since 2026-11-20T10:00:00.000000Z".to_owned(),
            home: "host 0123 /data 0197".to_owned(),
            beat: 41,
            acknowledged: None,
        };

        let left = HandoverMark { heir: Some(MemberId(id)), acknowledged: None };
        let position = crate::ids::Position(75);
        let hash = crate::ids::Digest::of(b"75");
        let acknowledged = Some(AcknowledgedMark { journal: id, seq: 80, position, hash });
        let bounded = LeaseEntry { acknowledged, ..holder.clone() };
        let handed_over = HandoverMark { acknowledged, ..left.clone() };
        let for_anybody = HandoverMark { heir: None, acknowledged };

        let mut written = String::new();
        for (name, holder) in [("held", holder), ("held with a bound", bounded)] {
            written += &format!("{name}\t{}\n", serde_json::to_string(&holder).unwrap());
        }

        let left =
            [("left", left), ("left with a bound", handed_over), ("left for anybody", for_anybody)];
        for (name, left) in left {
            written += &format!("{name}\t{}\n", serde_json::to_string(&left).unwrap());
        }

        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };

        assert_eq!(sorted(&written), sorted(FIXTURE));
    }

    #[test]
    fn a_lease_of_a_fixture_is_read() {
        for line in FIXTURE.lines() {
            let (name, value) = line.split_once('\t').unwrap();
            let is_holder = serde_json::from_str::<LeaseEntry>(value).is_ok();
            let left = serde_json::from_str::<HandoverMark>(value).unwrap();
            assert_eq!(is_holder, name.starts_with("held"), "{name}");
            assert_eq!(
                left.heir.is_some(),
                ["left", "left with a bound"].contains(&name),
                "{name}"
            );
            let is_bounded = name.ends_with("bound") || name.ends_with("anybody");
            assert_eq!(left.acknowledged.is_some(), is_bounded, "{name}");
        }
    }

    #[test]
    fn a_directory_is_known_again_and_another_one_under_its_path_is_not() {
        let above = tempfile::tempdir().unwrap();
        let home = above.path().join("data");
        let home_of = |home: &std::path::Path| {
            std::fs::create_dir_all(home).unwrap();
            LeaseEntry::here(home).home
        };

        let first = home_of(&home);
        assert_eq!(home_of(&home), first, "whoever has its lock knows that the holder is gone");
        // Another directory at the same path, as in another container.
        std::fs::remove_dir_all(&home).unwrap();
        let other = home_of(&home);
        assert_ne!(other, first, "two containers may call it the same");
        std::fs::write(home.join("home"), "").unwrap();
        assert!(home_of(&home) != other, "a name that was cut short is none");
    }
}
