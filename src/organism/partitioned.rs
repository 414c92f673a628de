//! An organism whose threads several pumps share, as far as this process runs it: a keeper for
//! each partition, which pumps it or stands by, and one door for all.

mod keeper;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::control::{self, Ask, Gone, Said};
use super::exchange::{Exchange, changing_hands};
use super::route::partition_of;
use super::station::Station;
use super::watcher::{Watched, Watcher};
use super::{Error, exporter, farewell, open_door, refuse_without_keys, tracer, with_core_words};
use crate::config::{Config, Storage};
use crate::journal;
use crate::journal::sqlite::{DATABASE, Lock, hold};
use crate::limits;
use crate::telemetry::Exporter;
use keeper::Keeper;

/// How a partition stands in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is none of this process's.
    Foreign,
    /// It was not looked at yet.
    Starting,
    /// It is pumped elsewhere, by this one; this process stands by.
    Elsewhere(String),
    Here,
    /// It is being handed over.
    Leaving,
    /// It is not pumped here any more, and a person must see why.
    Broken(String),
}

/// A running part of an organism.
pub struct Partitioned {
    name: Arc<str>,
    table: Arc<Table>,
    keepers: Vec<JoinHandle<Result<(), Error>>>,
    stop: watch::Sender<Option<String>>,
    control: Option<control::Server>,
    exporter: Option<Exporter>,
    // Last, so that the directory is let go of when everything in it is.
    _lock: Lock,
}

impl Partitioned {
    /// Starts in this order: the directory is locked, the servers are connected, each of these
    /// partitions gets a keeper (its journal is proved and followed; once its lease is free its
    /// hosts are made, its pump runs, its subject is listened to), and last the door is opened.
    pub async fn start(config: Config, partitions: &[u32]) -> Result<Self, Error> {
        refuse_without_keys(&config)?;
        let config = Arc::new(with_core_words(config)?);
        let lock = lock(&config)?;
        let Storage::JetStream { servers, .. } = &config.storage else {
            return Err(Error::Divided { partitions: config.partitions() });
        };
        let exchange = Exchange::open(servers, &config.name).await?;
        let table = Arc::new(Table::new(config.partitions(), partitions, exchange));
        let (stop, stopped) = watch::channel(None);
        let exporter = exporter(&config);
        let tracer = tracer(exporter.as_ref());
        let keeper = |partition: &u32| {
            let config = Arc::new(config.of_partition(*partition));
            let (table, stopped) = (Arc::clone(&table), stopped.clone());
            let keeper = Keeper::new(config, *partition, table, stopped, tracer.clone());
            tokio::spawn(keeper.keep())
        };
        let keepers = partitions.iter().map(keeper).collect();
        let name = config.name.as_str().into();
        let control = None;
        let mut organism = Self { name, table, keepers, stop, control, exporter, _lock: lock };
        let desk = control::Desk::of_several(Arc::clone(&organism.table), limits::CONTROL_PATIENCE);
        match open_door(&config, desk) {
            Ok(control) => organism.control = Some(control),
            Err(error) => {
                return organism.stop("the door cannot be opened").await.and(Err(error));
            }
        }
        Ok(organism)
    }

    /// Every partition there is, in order.
    pub fn standings(&self) -> Vec<Standing> {
        self.table.standings()
    }

    /// What tells how it is, for as long as anybody asks.
    pub fn watcher(&self) -> Watcher {
        Watcher::of_several(&self.name, Arc::clone(&self.table), &tracer(self.exporter.as_ref()))
    }

    /// Whether no partition is kept any more, each of them being broken.
    pub fn has_ended(&self) -> bool {
        self.keepers.iter().all(JoinHandle::is_finished)
    }

    /// Stops in this order: nothing comes in; of each partition what is handed over ends, the
    /// hosts end, the journal is closed and its lease is given back. Who waits for an answer over
    /// NATS is told whom to ask then.
    pub async fn stop(mut self, reason: &str) -> Result<(), Error> {
        if let Some(control) = self.control.take() {
            control.close();
        }
        // Without a keeper left there is nobody to tell.
        self.stop.send(Some(reason.to_owned())).ok();
        self.join().await
    }

    /// Waits until nothing is kept any more; the first error, where there was one.
    pub async fn join(self) -> Result<(), Error> {
        let mut first = Ok(());
        for keeper in self.keepers {
            let ended = keeper.await.unwrap_or(Err(Error::Stopped));
            first = first.and(ended);
        }
        farewell(self.exporter).await;
        first
    }
}

/// The right to run partitions in the data directory: a process has one door.
fn lock(config: &Config) -> Result<Lock, Error> {
    let Config { data, state, .. } = config;
    if data.join(DATABASE).exists() {
        let detail = "holds a journal that is not divided: name another directory, or take \
                      `partitions` out";
        let path = data.display().to_string();
        return Err(journal::Error::Strange { path, detail: detail.to_owned() }.into());
    }
    Ok(hold(data, state)?)
}

/// Where each partition is.
pub struct Table {
    places: Mutex<Vec<Place>>,
    /// Numbers of the pumps that run here, by partition.
    watched: Mutex<BTreeMap<u32, Watched>>,
    exchange: Exchange,
}

#[derive(Clone)]
enum Place {
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
    fn new(partitions: u32, ours: &[u32], exchange: Exchange) -> Self {
        let place = |partition| match ours.contains(&partition) {
            true => Place::Starting,
            false => Place::Foreign,
        };
        let places = Mutex::new((0..partitions).map(place).collect());
        Self { places, watched: Mutex::default(), exchange }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standings(&self) -> Vec<Standing> {
        self.all().iter().map(Place::standing).collect()
    }

    /// Numbers of the pumps that run here, by partition.
    pub(super) fn watched(&self) -> MutexGuard<'_, BTreeMap<u32, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, partition: u32, place: Place) {
        if let Some(found) = self.all().get_mut(partition as usize) {
            *found = place;
        }
    }

    fn place(&self, partition: u32) -> Place {
        self.all().get(partition as usize).cloned().unwrap_or(Place::Foreign)
    }

    /// Answers, here or by asking whoever pumps the partition that it is about.
    pub(super) async fn answer(&self, ask: Ask, tell: mpsc::Sender<Said>) -> Result<(), Error> {
        let partitions = u32::try_from(self.all().len()).unwrap_or(1);
        let partition = match &ask {
            Ask::Send(parcel) => partition_of(parcel, partitions),
            Ask::Cancel { thread, .. } | Ask::Results { thread, .. } => {
                thread.partition(partitions)
            }
            Ask::Where { partition, .. } => *partition,
            Ask::Decide(matter) => matter.partition.unwrap_or_default(),
        };
        match self.place(partition) {
            Place::Here(_) | Place::Leaving => self.answer_here(partition, ask, tell).await,
            // What is broken here may be whole elsewhere.
            Place::Foreign | Place::Starting | Place::Elsewhere(_) | Place::Broken(_) => {
                self.exchange.ask(partition, &ask, &tell).await
            }
        }
    }

    /// Answers for a partition that is pumped here.
    pub(super) async fn answer_here(
        &self,
        partition: u32,
        ask: Ask,
        tell: mpsc::Sender<Said>,
    ) -> Result<(), Error> {
        let said = match self.place(partition) {
            Place::Here(station) => match answer(&station, ask, tell.clone()).await {
                Err(Error::Stopped) => {
                    let detail = "its pump ended".to_owned();
                    Said::Gone(Gone { detail, soon: true, unsure: true })
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

async fn answer(station: &Station, ask: Ask, tell: mpsc::Sender<Said>) -> Result<(), Error> {
    if let Ask::Cancel { thread, .. } = &ask
        && !station.knows(thread).await?
    {
        tell.send(Said::Unknown).await.ok();
        return Ok(());
    }
    station.answer(ask, tell).await
}
