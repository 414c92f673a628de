//! A pump that does not pump yet: its projection follows the stream, whoever writes that, so that
//! it can go on from there as soon as the lease is free.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use crate::ids::Position;
use crate::journal::log::LogMark;
use crate::journal::sqlite::{Following, Opening};
use crate::journal::{Error, Sealed};
use crate::mutant::mutant;
use crate::nats;

use super::align::{Alignment, Projection};
use super::api::{Api, Failed, code};
use super::bounds::{Bounds, Directories, hash_at};
use super::identity::Member;
use super::lease::{Holder, Lease, Seen, Vacancy};
use super::open::{connect, found, strange};
use super::tail::{self, StreamProgress};
use super::{Journal, Options, refused};

/// A host that may lead a stream, with its connection.
pub(super) struct StreamHost {
    pub servers: nats::Options,
    pub api: Api,
    pub options: Options,
    pub directories: Directories,
}

/// Waits for its turn.
pub struct Standby {
    host: StreamHost,
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
    host: StreamHost,
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
        let directories =
            Directories { data: member.data.to_owned(), state: member.state.to_owned() };
        let (servers, options) = (servers.clone(), options.clone());
        let host = StreamHost { servers, api, options, directories };
        Ok(Self { host, lease, seen: Seen::default(), followed })
    }

    /// Waits for the lease until whoever has it is seen to live.
    pub(super) fn wait(self) -> Result<Elect, Error> {
        let free = self.lease.wait_until_free(&self.host.options)?;
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
        self.lease.take(free, &self.host.options)?;
        let Self { host, lease, followed, .. } = self;
        Ok(Elect { host, lease: Arc::new(lease), followed })
    }

    /// Hears what was written since the last time, as far as the server is there to tell, and
    /// hands every new record to `visit`. The first time, the projection is proved and all of it
    /// handed over.
    pub fn follow(self, visit: &mut dyn FnMut(Sealed) -> Result<(), Error>) -> Result<Self, Error> {
        let Self { host, lease, seen, followed } = self;
        let name = host.options.stream();
        let last = match host.api.info(&name) {
            Ok(info) => info.state.last_seq,
            // It is for whoever pumps to make it, or to miss it.
            Err(failed) if failed.is(code::STREAM_NOT_FOUND) => 0,
            // What was heard so far need not be heard again.
            Err(Failed::Away(_)) => 0,
            Err(failed) => return Err(refused(&format!("the stream {name}"), failed)),
        };

        if last == 0 {
            return Ok(Self { host, lease, seen, followed });
        }

        let before = followed.found()?;
        let mut warm = followed.warm(&host, before.as_ref(), None, visit)?;
        match warm.catch_up(&host, last, visit) {
            Ok(()) | Err(Error::Away { .. }) => {}
            Err(error) => return Err(error),
        }

        let followed = Followed::Warm(Box::new(warm));
        Ok(Self { host, lease, seen, followed })
    }
}

impl Elect {
    /// Begins to pump, with a new epoch. Every record that was not handed over yet goes to
    /// `visit`.
    pub fn lead(
        self,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<Journal, Error> {
        Journal::lead(&self.host, self.lease, self.followed, visit)
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
    progress: StreamProgress,
    pub following: Following,
}

impl Followed {
    /// Whose journal it is of, and how far it goes; None where there is no projection yet.
    pub fn found(&self) -> Result<Option<(Uuid, LogMark)>, Error> {
        match self {
            Self::Cold(opening) => found(opening),
            Self::Warm(warm) => Ok(Some((warm.journal, warm.progress.mark))),
        }
    }

    /// Proves what is here, and that the stream is the one it came from; `before` is what was
    /// [found](Self::found), `bounds` what else is known of the stream, for a refusal.
    pub fn warm(
        self,
        host: &StreamHost,
        before: Option<&(Uuid, LogMark)>,
        bounds: Option<&Bounds>,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<Warm, Error> {
        let opening = match self {
            Self::Cold(opening) => *opening,
            Self::Warm(mut warm) => {
                let place = place_of(host, warm.progress.mark, bounds)?;
                (warm.progress.mark, warm.progress.known) = place;
                return Ok(*warm);
            }
        };

        let journal = tail::journal(&host.api, &host.options)?;
        match before {
            None => opening.create(journal, Some(LogMark::default()))?,
            Some((found, _)) if *found != journal => {
                let what = "follows another journal than the one in";
                return Err(strange(opening.data(), &host.options, what));
            }
            Some(_) => {}
        }

        let mark = before.map(|(_, mark)| *mark).unwrap_or_default();
        let (mark, known) = place_of(host, mark, bounds)?;
        let following = opening.follow(visit)?;
        Ok(Warm { journal, progress: StreamProgress { mark, known }, following })
    }
}

/// The last message that a projection need not hear again, and the records that may follow it and
/// stand in the projection already.
fn place_of(
    host: &StreamHost,
    mark: LogMark,
    bounds: Option<&Bounds>,
) -> Result<(LogMark, Position), Error> {
    let StreamHost { api, options, directories: Directories { data, .. }, .. } = host;
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
    pub fn catch_up(
        &mut self,
        host: &StreamHost,
        last: u64,
        visit: &mut dyn FnMut(Sealed) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let StreamHost { api, options, .. } = host;
        tail::read(api, options, &mut self.progress, last, &mut self.following, visit)
    }

    /// Refuses a stream that is shorter than any place shows, or differs from what it shows. All
    /// of it was read, up to message `seq`.
    pub fn check(&self, bounds: &Bounds, data: &Path, seq: u64) -> Result<(), Error> {
        bounds.check(self.journal, seq, self.following.last(), &|at| hash_at(data, at))
    }
}
