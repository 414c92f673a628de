//! The door: how a payload from outside gets in, and its result out, whether the organism runs
//! already or is started for it.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::access::refuse_hosted_start;
use super::announcement;
use super::control::Client;
use super::handshake::Handshake;
use super::route::{Route, strange};
use super::signing::OperatorSigner;
use super::station::{held_in, journal_in};
use super::{Error, Organism};
use crate::audit;
use crate::config::Config;
use crate::envelope::Refusal;
use crate::ids::ThreadId;
use crate::journal::sqlite::Reader;
use crate::journal::{self, partitions_in};
use crate::limits;
use crate::service::{
    DecisionRequest, ServiceRequest, ServiceResponse, SubmitRequest, SubmitUpdate,
};

/// Where payloads go in.
pub enum Door {
    /// An organism that runs in another process.
    Running(Client),
    /// One started for this occasion.
    Own(Box<Organism>),
    /// Whoever pumps the partition that it is about.
    Routed(Box<Route>),
}

impl Door {
    /// Finds the running organism of this config, or starts it. One that is just starting, or
    /// ending, is waited for. Of one with several partitions nothing is started.
    pub async fn open(config: Config) -> Result<Self, Error> {
        Self::open_within(config, limits::ANNOUNCED_PATIENCE).await
    }

    /// As [`Door::open`]. `patience`: how long an organism is waited for that has announced itself.
    pub async fn open_within(config: Config, patience: Duration) -> Result<Self, Error> {
        if config.partitions() > 1 {
            return Ok(Self::Routed(Box::new(Route::of(&config)?)));
        }
        let announced_until = Instant::now() + patience;
        let mut held_until = Instant::now() + limits::DOOR_PATIENCE;
        loop {
            if let Some(client) = Client::find(&config.data, Handshake::of(&config)).await? {
                return Ok(Self::Running(client));
            }
            // Its pump has gone: it must not outlive that and be a stranger to the next one.
            refuse_hosted_start(&config)?;
            if announcement::is_announced(&config.data) {
                if Instant::now() >= announced_until {
                    let process = announcement::announced_process(&config.data);
                    return Err(Error::NotUp { process, waited: patience });
                }
                held_until = Instant::now() + limits::DOOR_PATIENCE;
                tokio::time::sleep(limits::DOOR_RETRY).await;
                continue;
            }
            match Organism::start_for_command(config.clone()).await {
                Err(Error::Journal(journal::Error::Held { .. })) if Instant::now() < held_until => {
                    tokio::time::sleep(limits::DOOR_RETRY).await;
                }
                started => return Ok(Self::Own(Box::new(started?))),
            }
        }
    }

    /// The organism that runs on the journal in `data`, whatever its config says by now.
    pub async fn of_running(data: &Path, handshake: Handshake) -> Result<Self, Error> {
        let client = Client::find(data, handshake).await?;
        client.map(Self::Running).ok_or(Error::Lost)
    }

    /// Hands in one parcel; `on_sent` gets what becomes of it as it becomes known.
    pub async fn send(
        &self,
        parcel: SubmitRequest,
        mut on_sent: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        match self {
            Self::Running(client) => {
                let mut failed = None;
                let mut due = Due::Receipt { wait: parcel.wait };
                let on_line = |said| match said {
                    ServiceResponse::SubmitUpdate(sent) => {
                        due.told(&sent);
                        on_sent(sent);
                    }
                    ServiceResponse::Failed(detail) => failed = Some(Error::Control { detail }),
                    _ => {}
                };
                client.ask(&ServiceRequest::Submit(parcel), on_line).await.map_err(lost)?;
                match failed {
                    Some(error) => Err(error),
                    None if due.is_nothing() => Ok(()),
                    None => Err(Error::Lost),
                }
            }
            Self::Own(organism) => {
                let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
                let station = organism.works.station();
                let sending = station.answer(ServiceRequest::Submit(parcel), tell);
                let telling = async {
                    while let Some(said) = told.recv().await {
                        if let ServiceResponse::SubmitUpdate(sent) = said {
                            on_sent(sent);
                        }
                    }
                };
                tokio::join!(sending, telling).0
            }
            Self::Routed(route) => route.send(parcel, on_sent).await,
        }
    }

    /// Has something decided, signed where there is a key; the refusal, where that was not to be.
    pub async fn decide(
        &self,
        mut matter: DecisionRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        if let (Some(signer), Some(data)) = (signer, self.data()) {
            matter = signed(matter, signer, data)?;
        }
        match self {
            Self::Running(client) => {
                let mut ruled = Err(Error::Lost);
                let on_line = |said| match said {
                    ServiceResponse::Ruled(refusal) => ruled = Ok(refusal.map(|refusal| *refusal)),
                    ServiceResponse::Failed(detail) => ruled = Err(Error::Control { detail }),
                    _ => {}
                };
                client.ask(&ServiceRequest::Decide(matter), on_line).await.map_err(lost)?;
                ruled
            }
            Self::Own(organism) => {
                matter.submit(&organism.handle()).await.map_err(|_| Error::Stopped)
            }
            Self::Routed(route) => route.decide(matter, signer).await,
        }
    }

    /// As [`Door::decide`], for a cancellation.
    pub async fn cancel(
        &self,
        mut cancel: ServiceRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        if let (Some(signer), Some(data)) = (signer, self.data())
            && let ServiceRequest::Cancel { thread, .. } = &cancel
        {
            let thread = thread.clone();
            let mut journals = partitions_in(data).into_iter().map(|(_, journal)| journal);
            let journal = journals.find(|journal| knows(journal, &thread));
            if let Some(journal) = journal {
                signer.sign(&mut cancel, journal_in(&journal)?, &thread);
            }
        }
        match self {
            Self::Running(client) => {
                let mut ruled = Err(Error::Lost);
                let on_line = |said| ruled = cancelled(said, &cancel);
                client.ask(&cancel, on_line).await.map_err(lost)?;
                ruled
            }
            Self::Own(organism) => {
                let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
                organism.works.station().answer(cancel.clone(), tell).await?;
                let said = told.recv().await.ok_or(Error::Stopped)?;
                cancelled(said, &cancel)
            }
            Self::Routed(route) => route.cancel(cancel, signer).await,
        }
    }

    /// Where its journal is, if it has one alone.
    fn data(&self) -> Option<&Path> {
        match self {
            Self::Running(client) => Some(client.data()),
            Self::Own(organism) => Some(&organism.config.data),
            Self::Routed(_) => None,
        }
    }

    /// Stops what was started here; a running organism goes on.
    pub async fn close(self) -> Result<(), Error> {
        match self {
            Self::Running(_) | Self::Routed(_) => Ok(()),
            Self::Own(organism) => organism.stop_when_served("the command is done").await,
        }
    }
}

/// Whether the journal in `data` has this thread.
fn knows(data: &Path, thread: &ThreadId) -> bool {
    let known = Reader::open(data).and_then(|reader| audit::is_recorded(&reader, thread));
    known.unwrap_or_default()
}

/// What a line says of a cancellation.
pub(super) fn cancelled(
    said: ServiceResponse,
    cancel: &ServiceRequest,
) -> Result<Option<Refusal>, Error> {
    match (said, cancel) {
        (ServiceResponse::Cancelled, _) => Ok(None),
        (ServiceResponse::Ruled(refusal), _) => Ok(refusal.map(|refusal| *refusal)),
        (ServiceResponse::UnknownThread, ServiceRequest::Cancel { thread, .. }) => {
            Err(Error::NoThread { thread: thread.clone() })
        }
        (ServiceResponse::Failed(detail), _) => Err(Error::Control { detail }),
        (other, _) => Err(strange(&other)),
    }
}

/// Signs a decision for the journal in `data`. Where nothing waits for it, it is left as it is, and
/// refused as such.
fn signed(
    matter: DecisionRequest,
    signer: &OperatorSigner,
    data: &Path,
) -> Result<DecisionRequest, Error> {
    let mut journals = partitions_in(data).into_iter().map(|(_, journal)| journal);
    let held = journals.find_map(|journal| {
        let thread = held_in(&journal, matter.message).ok().flatten()?;
        Some((journal, thread))
    });
    let Some((journal, thread)) = held else { return Ok(matter) };
    let mut ask = ServiceRequest::Decide(matter);
    signer.sign(&mut ask, journal_in(&journal)?, &thread);
    match ask {
        ServiceRequest::Decide(matter) => Ok(matter),
        other => Err(Error::Control { detail: format!("no decision: {other:?}") }),
    }
}

/// What a running organism still owes to a sender.
pub(super) enum Due {
    Receipt { wait: bool },
    Results(usize),
}

impl Due {
    pub(super) fn told(&mut self, sent: &SubmitUpdate) {
        if matches!(sent, SubmitUpdate::Waits(_)) {
            return;
        }
        *self = match (&*self, sent) {
            (Self::Receipt { wait: true }, SubmitUpdate::Accepted { calls, .. }) => {
                Self::Results(calls.len())
            }
            (Self::Results(due), SubmitUpdate::Result { .. }) => {
                Self::Results(due.saturating_sub(1))
            }
            _ => Self::Results(0),
        };
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Results(0))
    }
}

/// A socket that breaks is an organism that died.
pub(super) fn lost(error: Error) -> Error {
    match error {
        Error::Io { .. } => Error::Lost,
        other => other,
    }
}
