//! Where each partition is, as this process knows it, and the way there for whoever asks at its door.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, mpsc};

use super::Standing;
use crate::journal::jetstream::{Candidate, this_process};
use crate::limits;
use crate::organism::Error;
use crate::organism::access::{AccessRules, Denied};
use crate::organism::exchange::{Exchange, changing_hands};
use crate::organism::route::{address, partition_of};
use crate::organism::station::Station;
use crate::organism::watcher::Watched;
use crate::service::{PartitionUnavailable, ServiceRequest, ServiceResponse};

/// Where each partition is.
pub struct Table {
    places: Mutex<Vec<Place>>,
    poise: Mutex<Poise>,
    /// Woken whenever one is somewhere else than before.
    arrivals: Notify,
    /// Numbers of the pumps that run here, by partition.
    watched: Mutex<BTreeMap<u32, Watched>>,
    /// Processes of this organism that were heard of lately, as people know them.
    members: Mutex<BTreeMap<Candidate, (String, Instant)>>,
    begun: Instant,
    pub(super) exchange: Exchange,
    /// What is asked over NATS is judged by these.
    pub(in crate::organism) rules: Arc<AccessRules>,
}

/// What of the partitions that are not here will be.
#[derive(Default)]
struct Poise {
    /// They could be taken over at any time.
    ready: BTreeSet<u32>,
    /// Their leases are ours, and they will be here soon.
    arriving: BTreeSet<u32>,
}

/// What a table says of its process: which partitions it has, which it could take over, and
/// whether one is coming or going.
pub(super) type Posture = (BTreeSet<u32>, BTreeSet<u32>, bool);

#[derive(Clone)]
pub(super) enum Place {
    Foreign,
    Starting,
    Elsewhere(String),
    Here(Station),
    Leaving,
    Broken(String),
}

impl Place {
    fn standing(&self) -> Standing {
        match self {
            Self::Foreign => Standing::Foreign,
            Self::Starting => Standing::Starting,
            Self::Elsewhere(holder) => Standing::Elsewhere(holder.clone()),
            Self::Here(_) => Standing::Here,
            Self::Leaving => Standing::Leaving,
            Self::Broken(why) => Standing::Broken(why.clone()),
        }
    }
}

impl Table {
    pub(super) fn new(
        partitions: u32,
        ours: &[u32],
        exchange: Exchange,
        rules: Arc<AccessRules>,
    ) -> Self {
        let place = |partition| match ours.contains(&partition) {
            true => Place::Starting,
            false => Place::Foreign,
        };
        let places = Mutex::new((0..partitions).map(place).collect());
        Self {
            places,
            poise: Mutex::default(),
            arrivals: Notify::new(),
            watched: Mutex::default(),
            members: Mutex::default(),
            begun: Instant::now(),
            exchange,
            rules,
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::organism) fn standings(&self) -> Vec<Standing> {
        self.all().iter().map(Place::standing).collect()
    }

    /// Numbers of the pumps that run here, by partition.
    pub(in crate::organism) fn watched(&self) -> MutexGuard<'_, BTreeMap<u32, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes that were heard of lately, this one included. Empty until every process has had
    /// the time to be heard of.
    pub(super) fn members(&self) -> BTreeMap<Candidate, String> {
        if self.begun.elapsed() < 2 * limits::ROLL_BEAT {
            return BTreeMap::new();
        }
        let known = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |at: &Instant| at.elapsed() < limits::MEMBER_FRESH;
        let fresh = known.iter().filter(|(_, (_, at))| is_fresh(at));
        let mut members: BTreeMap<_, _> =
            fresh.map(|(id, (holder, _))| (*id, holder.clone())).collect();
        members.insert(Candidate::here(), this_process());
        members
    }

    pub(super) fn set_members(&self, members: BTreeMap<Candidate, (String, Instant)>) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    fn poise(&self) -> MutexGuard<'_, Poise> {
        self.poise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_ready(&self, partition: u32, ready: bool) {
        match ready {
            true => self.poise().ready.insert(partition),
            false => self.poise().ready.remove(&partition),
        };
    }

    pub(super) fn arrives(&self, partition: u32) {
        let mut poise = self.poise();
        poise.ready.remove(&partition);
        poise.arriving.insert(partition);
    }

    /// What other processes are to know of this one.
    pub(super) fn posture(&self) -> Posture {
        let (places, poise) = (self.all(), self.poise());
        let of = |fits: fn(&Place) -> bool| {
            let fitting = (0..).zip(places.iter()).filter(move |(_, place)| fits(place));
            fitting.map(|(partition, _)| partition)
        };
        let leaving = of(|place| matches!(place, Place::Leaving)).next().is_some();
        let here = of(|place| matches!(place, Place::Here(_) | Place::Leaving));
        let has = here.chain(poise.arriving.iter().copied()).collect();
        (has, poise.ready.clone(), leaving || !poise.arriving.is_empty())
    }

    pub(super) fn put(&self, partition: u32, place: Place) {
        self.poise().arriving.remove(&partition);
        if let Some(found) = self.all().get_mut(partition as usize) {
            *found = place;
        }
        self.arrivals.notify_waiters();
    }

    fn place(&self, partition: u32) -> Place {
        self.all().get(partition as usize).cloned().unwrap_or(Place::Foreign)
    }

    /// Has a refusal recorded by a pump that runs here, if any does.
    pub(in crate::organism) async fn record_denied(&self, denied: &Denied) {
        let station = self.all().iter().find_map(|place| match place {
            Place::Here(station) => Some(station.clone()),
            _ => None,
        });
        match station {
            Some(station) => station.record_denied(denied).await,
            None => tracing::warn!("refused, and no pump is here to record it: {}", denied.refusal),
        }
    }

    /// Answers, here or by asking whoever pumps the partition that it is about.
    pub(in crate::organism) async fn answer(
        &self,
        mut ask: ServiceRequest,
        tell: mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        if let ServiceRequest::Submit(parcel) = &mut ask {
            // Whoever asks here in their own words finds the same way as everybody else.
            address(parcel);
        }
        let partitions = u32::try_from(self.all().len()).unwrap_or(1);
        let partition = match &ask {
            ServiceRequest::Submit(parcel) => partition_of(parcel, partitions),
            ServiceRequest::Cancel { thread, .. } | ServiceRequest::AwaitResults { thread, .. } => {
                thread.partition(partitions)
            }
            ServiceRequest::HeldThread { partition, .. }
            | ServiceRequest::JournalId { partition } => *partition,
            ServiceRequest::Status => return Ok(()),
            ServiceRequest::Decide(matter) => matter.partition.unwrap_or_default(),
        };
        match self.place(partition) {
            Place::Here(_) | Place::Leaving => self.answer_here(partition, ask, tell).await,
            // What is broken here may be whole elsewhere.
            Place::Foreign | Place::Starting | Place::Elsewhere(_) | Place::Broken(_) => {
                tokio::select! {
                    answered = self.exchange.ask(partition, &ask, &tell) => answered,
                    () = self.arrival_of(partition) => {
                        // Whoever was asked before says nothing more.
                        let detail = "it is here now".to_owned();
                        let gone = PartitionUnavailable { detail, soon: true, unsure: true };
                        tell.send(ServiceResponse::Unavailable(gone)).await.ok();
                        Ok(())
                    }
                }
            }
        }
    }

    async fn arrival_of(&self, partition: u32) {
        loop {
            let arrived = self.arrivals.notified();
            if matches!(self.place(partition), Place::Here(_)) {
                return;
            }
            arrived.await;
        }
    }

    /// Answers for a partition that is pumped here.
    pub(in crate::organism) async fn answer_here(
        &self,
        partition: u32,
        ask: ServiceRequest,
        tell: mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        let said = match self.place(partition) {
            Place::Here(station) => match answer(&station, ask, tell.clone()).await {
                Err(Error::Stopped) => {
                    let detail = "its pump ended".to_owned();
                    ServiceResponse::Unavailable(PartitionUnavailable {
                        detail,
                        soon: true,
                        unsure: true,
                    })
                }
                other => return other,
            },
            _ => changing_hands(),
        };
        // Whoever asked may have gone.
        tell.send(said).await.ok();
        Ok(())
    }
}

async fn answer(
    station: &Station,
    ask: ServiceRequest,
    tell: mpsc::Sender<ServiceResponse>,
) -> Result<(), Error> {
    if let ServiceRequest::Cancel { thread, .. } = &ask
        && !station.knows(thread).await?
    {
        tell.send(ServiceResponse::UnknownThread).await.ok();
        return Ok(());
    }
    station.answer(ask, tell).await
}
