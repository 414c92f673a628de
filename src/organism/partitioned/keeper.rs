//! The keeper of one partition: stands by until its lease is free, pumps it, and stands by again
//! when another pump took over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use super::{Place, Table};
use crate::clock::Time;
use crate::config::{Config, Storage};
use crate::journal::jetstream::{self, Office, Standby};
use crate::journal::{self, Sealed};
use crate::limits;
use crate::organism::works::Works;
use crate::organism::{Error, core};
use crate::pump::core::Core;
use crate::trace::Tracer;

pub(super) struct Keeper {
    /// Of this partition.
    config: Arc<Config>,
    partition: u32,
    table: Arc<Table>,
    /// Why everything stops.
    stop: watch::Receiver<Option<String>>,
    tracer: Tracer,
}

/// A journal that is ours to write, and what decides, which has heard all of it.
type Won = (Core, jetstream::Journal);

impl Keeper {
    pub fn new(
        config: Arc<Config>,
        partition: u32,
        table: Arc<Table>,
        stop: watch::Receiver<Option<String>>,
        tracer: Tracer,
    ) -> Self {
        Self { config, partition, table, stop, tracer }
    }

    /// Until it is told to stop, or the partition must not be pumped any more.
    pub async fn keep(mut self) -> Result<(), Error> {
        let kept = self.in_turns().await;
        if let Err(error) = &kept {
            tracing::error!(partition = self.partition, "it is not pumped here any more: {error}");
            self.table.put(self.partition, Place::Broken(error.to_string()));
        }
        kept
    }

    async fn in_turns(&mut self) -> Result<(), Error> {
        while let Some((core, journal)) = self.stand_by().await? {
            let (journal, natives) = (Box::new(journal), HashMap::new());
            let works = Works::start(&self.config, core, journal, natives, &self.tracer).await?;
            if self.pump(works).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits for the lease. None when it is told to stop.
    async fn stand_by(&mut self) -> Result<Option<Won>, Error> {
        let (_let_go, released) = channel();
        let (tell, told) = oneshot::channel();
        let (config, table, partition) =
            (Arc::clone(&self.config), Arc::clone(&self.table), self.partition);
        let wait = move || {
            let report = |place: Place| table.put(partition, place);
            tell.send(wait_for_turn(&config, &released, &report)).ok();
        };
        let name = format!("standby-{partition}");
        let thread = std::thread::Builder::new().name(name).spawn(wait);
        thread.map_err(Error::io("starting a standby's thread"))?;
        let mut told = told;
        tokio::select! {
            won = &mut told => return won.unwrap_or(Err(Error::Stopped)),
            _ = self.stop.wait_for(Option::is_some) => {}
        }
        drop(_let_go);
        if let Some((_, journal)) = told.await.unwrap_or(Ok(None))? {
            // It came at the same moment; the lease goes back.
            let closing = move || journal.close(Time::now());
            tokio::task::spawn_blocking(closing).await.map_err(|_| Error::Stopped)??;
        }
        Ok(None)
    }

    /// Whether it was told to stop; false where another pump took over.
    async fn pump(&mut self, works: Works) -> Result<bool, Error> {
        let serving = self.table.exchange.serve(&self.table, self.partition).await?;
        self.table.watched().insert(self.partition, works.watched());
        self.table.put(self.partition, Place::Here(works.station()));
        let told = tokio::select! {
            () = works.ended() => None,
            told = self.stop.wait_for(Option::is_some) => {
                Some(told.ok().and_then(|why| why.clone()).unwrap_or_default())
            }
        };
        self.table.put(self.partition, Place::Leaving);
        let ended = match &told {
            Some(reason) => works.drain(reason).await,
            None => works.bury().await,
        };
        self.table.watched().remove(&self.partition);
        serving.farewell().await;
        match ended {
            Ok(()) => Ok(true),
            Err(Error::Journal(error)) if is_passing(&error) => {
                tracing::warn!(partition = self.partition, "it is pumped elsewhere now: {error}");
                Ok(told.is_some())
            }
            Err(error) => Err(error),
        }
    }
}

/// What another try may get past.
fn is_passing(error: &journal::Error) -> bool {
    use journal::Error;
    matches!(
        error,
        Error::Held { .. }
            | Error::Fenced { .. }
            | Error::Away { .. }
            | Error::Full { .. }
            | Error::Nats(_)
    )
}

fn wait_for_turn(
    config: &Config,
    released: &Receiver<()>,
    report: &dyn Fn(Place),
) -> Result<Option<Won>, Error> {
    let mut warned = String::new();
    loop {
        let error = match follow(config, released, report) {
            Err(Error::Journal(error)) if is_passing(&error) => error.to_string(),
            other => return other,
        };
        report(Place::Elsewhere(error.clone()));
        if error != warned {
            tracing::warn!("standing by, and trying again: {error}");
            warned = error;
        }
        if released.recv_timeout(limits::STANDBY_RETRY) != Err(RecvTimeoutError::Timeout) {
            return Ok(None);
        }
    }
}

/// Follows the stream until the lease is free, then takes it.
fn follow(
    config: &Config,
    released: &Receiver<()>,
    report: &dyn Fn(Place),
) -> Result<Option<Won>, Error> {
    let Config { data, state, storage, .. } = config;
    let Storage::JetStream { servers, journal } = storage else { return Ok(None) };
    let mut core = core(config);
    let mut replay = |sealed: Sealed| {
        core.replay(&sealed.record);
        Ok(())
    };
    let mut standby = Standby::begin(servers, journal, data, state)?;
    let mut followed: Option<Instant> = None;
    loop {
        standby = match standby.look()? {
            Office::Ours(elect) => {
                let journal = elect.lead(&mut replay)?;
                return Ok(Some((core, journal)));
            }
            Office::Held(standby, holder) => {
                report(Place::Elsewhere(holder));
                standby
            }
        };
        if followed.is_none_or(|at| at.elapsed() >= limits::STANDBY_FOLLOW) {
            standby = standby.follow(&mut replay)?;
            followed = Some(Instant::now());
        }
        if released.recv_timeout(limits::STANDBY_LOOK) != Err(RecvTimeoutError::Timeout) {
            return Ok(None);
        }
    }
}
