//! A pump that does not pump yet: its projection follows the stream, whoever writes that, so that
//! it can go on from there as soon as the lease is free.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::log::LogMark;
use crate::journal::sqlite::{self, Evidence, Following, Opening};
use crate::journal::{Error, Sealed};
use crate::mutant::mutant;
use crate::nats;

use super::align::{Alignment, Projection};
use super::api::{Api, Failed, code};
use super::bounds::{Bounds, Directories, hash_at};
use super::identity::Member;
use super::lease::{Holder, Lease, Seen, Vacancy};
use super::open::{connect, found, strange};
use super::tail::{self, Heard};
use super::{Journal, Options, refused};

/// Waits for its turn.
pub struct Standby {
    servers: nats::Options,
    api: Api,
    options: Options,
    host: Directories,
    lease: Lease,
    seen: Seen,
    followed: Followed,
}

/// What came of looking at the lease.
pub enum Office {
    /// Somebody else pumps, who is named.
    Held(Standby, String),
    /// Somebody else is about to have it.
    Left(Standby),
    /// Nobody says who has it.
    Unheard(Standby, Error),
    /// The lease is ours now.
    Ours(Elect),
}

/// Has the lease, and has not begun to pump.
pub struct Elect {
    servers: nats::Options,
    api: Api,
    options: Options,
    host: Directories,
    lease: Arc<Lease>,
    followed: Followed,
}

impl Standby {
    /// Locks `data` and connects. Nothing is read yet.
    pub fn begin(
        servers: &nats::Options,
        options: &Options,
        data: &Path,
        state: &Path,
    ) -> Result<Self, Error> {
        Self::begin_as(servers, options, &Member::new(data, state))
    }

    pub(super) fn begin_as(
        servers: &nats::Options,
        options: &Options,
        member: &Member<'_>,
    ) -> Result<Self, Error> {
        let opening = Opening::begin(member.data, member.state)?;
        let opening = opening.with_copies(options.checkpoints.as_deref());
        let api = connect(servers, options)?;
        let lease = Lease::of(&api, options, Holder::here(member.data), member)?;
        let followed = Followed::Cold(Box::new(opening));
        let (servers, options, seen) = (servers.clone(), options.clone(), Seen::default());
        let host = Directories { data: member.data.to_owned(), state: member.state.to_owned() };
        Ok(Self { servers, api, options, host, lease, seen, followed })
    }

    /// Waits for the lease until whoever has it is seen to live.
    pub(super) fn wait(self) -> Result<Elect, Error> {
        let free = self.lease.wait_until_free(&self.options)?;
        self.elect(free)
    }

    /// Takes the lease if it is free.
    pub fn look(mut self) -> Result<Office, Error> {
        match self.lease.look(&mut self.seen) {
            Ok(Vacancy::Free(revision)) => Ok(Office::Ours(self.elect(revision)?)),
            Ok(Vacancy::Held(holder) | Vacancy::Lives(holder)) => Ok(Office::Held(self, holder)),
            Ok(Vacancy::Left) => Ok(Office::Left(self)),
            Err(error @ Error::Away { .. }) => Ok(Office::Unheard(self, error)),
            Err(error) => Err(error),
        }
    }

    /// Whether it has heard what there was to hear when it last followed.
    pub fn is_ready(&self) -> bool {
        matches!(self.followed, Followed::Warm(_))
    }

    fn elect(self, free: u64) -> Result<Elect, Error> {
        self.lease.take(free, &self.options)?;
        let Self { servers, api, options, host, lease, followed, .. } = self;
        Ok(Elect { servers, api, options, host, lease: Arc::new(lease), followed })
    }

    /// Hears what was written since the last time, as far as the server is there to tell, and
    /// hands every new record to `visit`. The first time, the projection is proved and all of it
    /// handed over.
    pub fn follow(self, visit: &mut dyn FnMut(Sealed) -> Result<(), Error>) -> Result<Self, Error> {
        let Self { servers, api, options, host, lease, seen, followed } = self;
        let name = options.stream();
        let last = match api.info(&name) {
            Ok(info) => info.state.last_seq,
            // It is for whoever pumps to make it, or to miss it.
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => 0,
            // What was heard so far need not be heard again.
            Err(Failed::Away(_)) => 0,
            Err(failed) => return Err(refused(&format!("the stream {name}"), failed)),
        };
        if last == 0 {
            return Ok(Self { servers, api, options, host, lease, seen, followed });
        }
        let before = followed.found()?;
        let mut warm = followed.warm(&api, &options, before.as_ref(), None, visit)?;
        match warm.hear(&api, &options, last, visit) {
            Ok(()) | Err(Error::Away { .. }) => {}
            Err(error) => return Err(error),
        }
        let followed = Followed::Warm(Box::new(warm));
        Ok(Self { servers, api, options, host, lease, seen, followed })
    }
}

impl Elect {
    /// Begins to pump, with a new epoch. Every record that was not handed over yet goes to
    /// `visit`.
    pub fn lead(
        self,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<Journal, Error> {
        let Self { servers, api, options, host, lease, followed } = self;
        Journal::lead(&servers, &api, &options, &host, lease, followed, visit)
    }
}

/// A projection, and how far it followed its stream.
pub(super) enum Followed {
    /// It was not looked at yet.
    Cold(Box<Opening>),
    Warm(Box<Warm>),
}

pub(super) struct Warm {
    journal: Uuid,
    heard: Heard,
    following: Following,
}

impl Followed {
    /// Whose journal it is of, and how far it goes; None where there is no projection yet.
    pub fn found(&self) -> Result<Option<(Uuid, LogMark)>, Error> {
        match self {
            Self::Cold(opening) => found(opening),
            Self::Warm(warm) => Ok(Some((warm.journal, warm.heard.mark))),
        }
    }

    /// Proves what is here, and that the stream is the one it came from; `before` is what was
    /// [found](Self::found), `bounds` what else is known of the stream, for a refusal.
    pub fn warm(
        self,
        api: &Api,
        options: &Options,
        before: Option<&(Uuid, LogMark)>,
        bounds: Option<&Bounds>,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<Warm, Error> {
        let opening = match self {
            Self::Cold(opening) => *opening,
            Self::Warm(mut warm) => {
                let data = warm.following.data().to_owned();
                let place = place_of(api, options, &data, warm.heard.mark, bounds)?;
                (warm.heard.mark, warm.heard.known) = place;
                return Ok(*warm);
            }
        };
        let journal = tail::journal(api, options)?;
        match before {
            None => opening.create(journal, Some(LogMark::default()))?,
            Some((found, _)) if *found != journal => {
                let what = "follows another journal than the one in";
                return Err(strange(opening.data(), options, what));
            }
            Some(_) => {}
        }
        let mark = before.map(|(_, mark)| *mark).unwrap_or_default();
        let (mark, known) = place_of(api, options, opening.data(), mark, bounds)?;
        let following = opening.follow(visit)?;
        let heard = Heard { mark, epoch: following.epoch(), known };
        Ok(Warm { journal, heard, following })
    }
}

/// The last message that a projection need not hear again, and the records that may follow it and
/// stand in the projection already.
fn place_of(
    api: &Api,
    options: &Options,
    data: &Path,
    mark: LogMark,
    bounds: Option<&Bounds>,
) -> Result<(LogMark, Position), Error> {
    if tail::is_there(api, options, &mark)? || mutant("ignore-the-projection") {
        return Ok((mark, Position(0)));
    }
    let name = options.stream();
    let info = api.info(&name).map_err(|f| refused(&format!("the stream {name}"), f))?;
    let alignment = Projection::open(data)?.compare(api, options, info.state.last_seq)?.alignment;
    let alone;
    let bounds = match bounds {
        Some(bounds) => bounds,
        None => {
            alone = Bounds::of_projection(options, data)?;
            &alone
        }
    };
    match alignment {
        Alignment::Whole { mark, last } => Ok((mark, last)),
        Alignment::Shorter(last) => Err(bounds.shorter(Some(last))),
        Alignment::Forked(_) if mutant("lead-a-fork") => Ok((mark, Position(0))),
        Alignment::Forked(position) => Err(bounds.forked(position)),
    }
}

impl Warm {
    /// Up to message `last` of the stream.
    pub fn hear(
        &mut self,
        api: &Api,
        options: &Options,
        last: u64,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        tail::read(api, options, &mut self.heard, last, &mut self.following, visit)
    }

    /// Refuses a stream that is shorter than any place shows, or differs from what it shows. All
    /// of it was heard, up to message `seq`.
    pub fn check(&self, bounds: &Bounds, host: &Directories, seq: u64) -> Result<(), Error> {
        bounds.check(self.journal, seq, self.following.last(), &|at| hash_at(&host.data, at))
    }

    /// Of whoever wrote last.
    pub fn epoch(&self) -> u32 {
        self.heard.epoch
    }

    /// What the stream showed of who wrote it.
    pub fn evidence(&self) -> Evidence<'_> {
        self.following.evidence()
    }

    pub fn caught_up(self, epoch: u32) -> Result<sqlite::Journal, Error> {
        self.following.caught_up(epoch)
    }
}
