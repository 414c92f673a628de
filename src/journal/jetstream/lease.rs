//! Who pumps a partition: a key in a bucket, renewed as long as its pump lives. It saves effort
//! and tells people; what keeps two pumps apart is the expected sequence of every message.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use crate::clock::Time;
use crate::journal::Error;
use crate::limits;
use crate::nats::{NoResponse, PermissionError};

use super::Options;
use super::api::{ApiFailure, JetStreamApi, StoredMessage, code};
use super::bounds::AcknowledgedMark;
use super::identity::JoiningHost;

/// A process that may pump, as others know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemberId(Uuid);

impl MemberId {
    /// This process.
    pub fn here() -> Self {
        static HERE: OnceLock<MemberId> = OnceLock::new();
        *HERE.get_or_init(Self::new)
    }

    /// One that nobody else is.
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

/// What stands in the bucket where the lease was let go of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HandoverMark {
    /// Who is to have it next, where that was said.
    #[serde(rename = "heir", default, skip_serializing_if = "Option::is_none")]
    heir: Option<MemberId>,
    /// Where the journal is handed over.
    #[serde(rename = "acknowledged", default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<AcknowledgedMark>,
}

/// Who gets a lease that is let go of, where that was said before.
#[derive(Debug, Clone)]
pub struct LeaseHandover(Arc<Lease>);

impl LeaseHandover {
    pub(super) fn of(lease: &Arc<Lease>) -> Self {
        Self(Arc::clone(lease))
    }

    /// The first one that is named stays.
    pub fn to(&self, heir: MemberId) {
        self.0.heir.set(heir).ok();
    }
}

/// What stands in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEntry {
    /// Of this run of the pump.
    #[serde(rename = "id")]
    id: Uuid,
    /// For people.
    #[serde(rename = "holder")]
    holder: String,
    /// The machine and the directory: whoever has that directory's lock knows that it is gone.
    #[serde(rename = "home")]
    home: String,
    #[serde(rename = "beat")]
    beat: u64,
    /// How far the journal went when this was written: a lower bound for whoever leads next.
    #[serde(rename = "acknowledged", default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<AcknowledgedMark>,
}

impl LeaseEntry {
    /// This process, with the lock on `home` in its hands.
    pub fn here(home: &std::path::Path) -> Self {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let (host, machine) = (host(), machine.trim());
        let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
        let holder = format!("{}, since {}", this_process(), Time::now());
        let home = format!("{host} {machine} {} {}", home.display(), own_name(&home));
        Self { id: Uuid::now_v7(), holder, home, beat: 0, acknowledged: None }
    }

    pub fn shown(&self) -> &str {
        &self.holder
    }
}

fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_owned()
}

/// For people.
pub fn this_process() -> String {
    format!("process {} on {}", std::process::id(), host())
}

/// What tells a directory from all others: two containers may have the same name, and keep their
/// journals under the same path.
fn own_name(home: &std::path::Path) -> String {
    let path = home.join("home");
    let read = || std::fs::read_to_string(&path).ok().filter(|name| !name.is_empty());
    read().unwrap_or_else(|| {
        let name = Uuid::now_v7().to_string();
        match std::fs::write(&path, &name) {
            Ok(()) => name,
            // Nobody will know this place again, and a lease of ours is waited for like any other.
            Err(_) => Uuid::now_v7().to_string(),
        }
    })
}

#[derive(Debug)]
pub struct Lease {
    api: JetStreamApi,
    bucket: String,
    subject: String,
    mine: LeaseEntry,
    first_id: Uuid,
    /// The key's revision, as it was last written here.
    revision: AtomicU64,
    heir: OnceLock<MemberId>,
    /// As it was found in the bucket, until this pump leads; then as this pump wrote. It goes into
    /// every renewal, so that a candidate that does not lead hands the bound on.
    acknowledged: Mutex<Option<AcknowledgedMark>>,
    /// One renewal after another: what is acknowledged before one begins stands in it.
    renewing: Mutex<()>,
}

/// What a renewal came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalResult {
    Renewed,
    /// Somebody else wrote the key.
    Taken,
    /// Nobody answered.
    Unheard,
    /// The servers do not let it be written.
    Denied(PermissionError),
}

/// Whether the lease can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAvailability {
    /// Nobody has it; the revision of that.
    Free(u64),
    /// This one has it, as far as is known.
    Held(String),
    /// This one has it and was seen to live.
    Lives(String),
    /// It was let go of, for somebody else.
    Left,
}

/// How the lease looked when it was last looked at, and since when.
#[derive(Debug, Default)]
pub struct LastSeen(Option<(u64, Instant)>);

impl Lease {
    /// Nobody's yet.
    pub fn of(
        api: &JetStreamApi,
        options: &Options,
        mine: LeaseEntry,
        member: &JoiningHost<'_>,
    ) -> Result<Self, Error> {
        let bucket = format!("KV_{}", options.bucket());
        let subject = options.lease();
        make(api, &bucket, options)?;
        let organism = super::partition_count::agree(api, options, &bucket, member)?;
        let first_id = member.first_id(options, organism);
        let (revision, heir) = (AtomicU64::default(), OnceLock::new());
        let (api, acknowledged, renewing) = (api.clone(), Mutex::default(), Mutex::default());
        Ok(Self { api, bucket, subject, mine, first_id, revision, heir, acknowledged, renewing })
    }

    /// How far the journal went, as far as this lease shows it.
    pub fn acknowledged(&self) -> Option<AcknowledgedMark> {
        *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operator accepted that what it showed is lost.
    pub fn forget(&self) {
        *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The next renewal says so.
    pub fn acknowledge(&self, acknowledged: AcknowledgedMark) {
        *self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner) = Some(acknowledged);
    }

    /// Id of the journal that begins under this lease, where the stream is empty.
    pub fn first_id(&self) -> Uuid {
        self.first_id
    }

    /// Waits until the lease is free, or names who has it: at once where that one is seen to live.
    pub fn wait_until_free(&self, options: &Options) -> Result<u64, Error> {
        let mut seen = LastSeen::default();
        loop {
            match self.look(&mut seen)? {
                LeaseAvailability::Free(revision) => return Ok(revision),
                LeaseAvailability::Lives(_) => return Err(self.held(options)),
                LeaseAvailability::Held(_) | LeaseAvailability::Left => {
                    std::thread::sleep(limits::LEASE_LOOK)
                }
            }
        }
    }

    /// Takes a lease that was free under that revision.
    pub fn take(&self, free: u64, options: &Options) -> Result<(), Error> {
        self.revision.store(free, Ordering::Release);
        match self.renew() {
            RenewalResult::Renewed => Ok(()),
            RenewalResult::Taken => Err(self.held(options)),
            RenewalResult::Denied(denied) => Err(Error::Denied(denied)),
            RenewalResult::Unheard => {
                Err(Error::Away { detail: "the lease was not confirmed".to_owned() })
            }
        }
    }

    /// Whether it is free now: let go of, or not renewed for as long as it was looked at.
    pub fn look(&self, seen: &mut LastSeen) -> Result<LeaseAvailability, Error> {
        // Where nobody can look, nobody can say that they live, either: that time does not count.
        let found = self.found().inspect_err(|_| seen.0 = None)?;
        let Some(found) = found else { return Ok(LeaseAvailability::Free(0)) };
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
            tracing::info!("taking over from {}", theirs.holder);
            return Ok(LeaseAvailability::Free(found.seq));
        }

        Ok(LeaseAvailability::Held(theirs.holder))
    }

    pub fn holder(&self) -> &str {
        self.mine.shown()
    }

    fn held(&self, options: &Options) -> Error {
        let found = self.found().ok().flatten();
        let theirs = found.and_then(|found| serde_json::from_slice::<LeaseEntry>(&found.body).ok());
        let holder = theirs.map_or_else(|| "another process".to_owned(), |theirs| theirs.holder);
        Error::Held { path: options.stream(), holder }
    }

    fn found(&self) -> Result<Option<StoredMessage>, Error> {
        self.api.last(&self.bucket, &self.subject).map_err(|failed| self.failed(&failed))
    }

    fn failed(&self, failed: &ApiFailure) -> Error {
        super::away(&format!("the lease in {}", self.bucket), failed)
    }

    /// Says that this pump lives.
    pub fn renew(&self) -> RenewalResult {
        let _turn = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = self.revision.load(Ordering::Acquire);
        let acknowledged = self.acknowledged();
        let mine = LeaseEntry { beat: revision, acknowledged, ..self.mine.clone() };
        let value = serde_json::to_vec(&mine).expect("plain data is JSON");

        match self.write(revision, &[], value) {
            Ok(seq) => {
                self.revision.store(seq, Ordering::Release);
                RenewalResult::Renewed
            }
            Err(failed) if failed.is(code::WRONG_LAST_SEQUENCE) => self.whose(),
            Err(ApiFailure::Away(NoResponse::Denied(denied))) => RenewalResult::Denied(denied),
            Err(_) => RenewalResult::Unheard,
        }
    }

    /// A renewal whose answer was lost is still ours.
    fn whose(&self) -> RenewalResult {
        let Ok(Some(found)) = self.found() else { return RenewalResult::Unheard };
        match serde_json::from_slice::<LeaseEntry>(&found.body) {
            Ok(holder) if holder.id == self.mine.id => {
                self.revision.store(found.seq, Ordering::Release);
                RenewalResult::Renewed
            }
            _ => RenewalResult::Taken,
        }
    }

    /// The next pump need not wait.
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
            tracing::debug!("the lease is left to lapse: {failed}");
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
        self.api.publish_within(limits::LEASE_PATIENCE, &self.subject, &all, value)
    }
}

/// A lease that was let go of by whoever had it last is free, at once for its heir where it has
/// one. Should that one not come, it is anybody's.
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
    } else if since.elapsed() >= limits::LEASE_BEQUEST {
        return LeaseAvailability::Free(found.seq);
    }

    LeaseAvailability::Left
}

/// A bucket as the `nats` command knows them, made by hand: what clients send to make one, older
/// servers refuse.
fn make(api: &JetStreamApi, bucket: &str, options: &Options) -> Result<(), Error> {
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

    match made {
        Err(failed) if !failed.is(code::STREAM_NAME_IN_USE) => {
            Err(super::unfit(api.link.server(), &format!("the bucket {bucket}"), failed))
        }
        _ => Ok(()),
    }
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
        let (position, hash) = (crate::ids::Position(75), crate::ids::Digest::of(b"75"));
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
        let of = |home: &std::path::Path| {
            std::fs::create_dir_all(home).unwrap();
            LeaseEntry::here(home).home
        };

        let first = of(&home);
        assert_eq!(of(&home), first, "whoever has its lock knows that the holder is gone");
        // As in another container.
        std::fs::remove_dir_all(&home).unwrap();
        let other = of(&home);
        assert_ne!(other, first, "two containers may call it the same");
        std::fs::write(home.join("home"), "").unwrap();
        assert!(of(&home) != other, "a name that was cut short is none");
    }
}
