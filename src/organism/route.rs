//! From a door to the pump of the right partition, wherever that runs: through the organism on
//! this machine, or over NATS. Whoever loses its pump in between is led to the next one.

use std::path::PathBuf;
use std::time::Instant;

use tokio::sync::{OnceCell, mpsc};
use uuid::Uuid;

use super::Error;
use super::control::Client;
use super::door::{Due, cancelled, lost};
use super::exchange::Exchange;
use super::handshake::Handshake;
use super::signing::OperatorSigner;
use super::station::held_in;
use crate::config::{Config, Storage};
use crate::envelope::{Refusal, Rule};
use crate::ids::{CallId, Digest, MessageId, ThreadId};
use crate::journal::jetstream::{self, identity};
use crate::journal::{self, partitions_in};
use crate::limits;
use crate::nats;
use crate::service::{
    DecisionRequest, PartitionUnavailable, ServiceRequest, ServiceResponse, SubmitRequest,
    SubmitUpdate,
};

/// The way to every partition of an organism.
pub struct Route {
    name: String,
    data: PathBuf,
    handshake: Handshake,
    state: PathBuf,
    servers: nats::Options,
    journal: jetstream::Options,
    partitions: u32,
    exchange: OnceCell<Exchange>,
}

/// Which partition a parcel belongs to. Of text that is no thread's id the first one says so.
pub(super) fn partition_of(parcel: &SubmitRequest, partitions: u32) -> u32 {
    let named = parcel.thread.as_ref().or(parcel.suggested.as_ref());
    let thread = named.and_then(|id| ThreadId::parse(id).ok());
    thread.map_or(0, |thread| thread.partition(partitions))
}

/// Gives a parcel what it needs to find its way, also a second time: a thread and a key. The same
/// key of the same client leads to the same partition.
pub(super) fn address(parcel: &mut SubmitRequest) {
    if parcel.thread.is_none() && parcel.suggested.is_none() {
        let digest = match &parcel.key {
            Some(key) => {
                Digest::of_parts(&[parcel.client.as_str().as_bytes(), b"\0", key.as_bytes()])
            }
            None => Digest::of(Uuid::now_v7().as_bytes()),
        };
        parcel.suggested = Some(ThreadId::root_of(&digest).to_string());
    }
    parcel.key.get_or_insert_with(|| format!("{OWN_KEY}{}", Uuid::now_v7().simple()));
}

/// How a key begins that was made here.
const OWN_KEY: &str = "door-";

impl Route {
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let Storage::JetStream { servers, journal } = &config.storage else {
            return Err(Error::Divided { partitions: config.partitions() });
        };
        Ok(Self {
            state: config.state.clone(),
            journal: journal.clone(),
            name: config.name.clone(),
            data: config.data.clone(),
            handshake: Handshake::of(config),
            servers: (**servers).clone(),
            partitions: config.partitions(),
            exchange: OnceCell::new(),
        })
    }

    /// Hands in a parcel; `on_sent` gets what becomes of it.
    pub async fn send(
        &self,
        mut parcel: SubmitRequest,
        mut on_sent: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let own_key = parcel.key.is_none();
        address(&mut parcel);
        let partition = partition_of(&parcel, self.partitions);
        let mut due = Due::Receipt { wait: parcel.wait };
        let mut owed: Option<(ThreadId, Vec<CallId>)> = None;
        let mut patience = Patience::new(partition);
        loop {
            let ask = match &owed {
                None => ServiceRequest::Submit(parcel.clone()),
                Some((thread, calls)) => {
                    ServiceRequest::AwaitResults { thread: thread.clone(), calls: calls.clone() }
                }
            };
            let (mut gone, mut failed, mut accepted) = (None, None, false);
            let heard = |said| match said {
                ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, .. })
                    if refusal.rule == Rule::Draining =>
                {
                    gone = Some(PartitionUnavailable {
                        detail: refusal.to_string(),
                        soon: true,
                        unsure: false,
                    });
                }
                ServiceResponse::SubmitUpdate(mut sent) => {
                    due.told(&sent);
                    match &mut sent {
                        SubmitUpdate::Accepted { thread, calls, again, .. } => {
                            // Known from the attempt before this one, and to nobody else.
                            *again &= !own_key;
                            owed = Some((thread.clone(), calls.clone()));
                            accepted = true;
                        }
                        SubmitUpdate::Result { call, .. } => {
                            if let Some((_, calls)) = &mut owed {
                                calls.retain(|owed| owed != call);
                            }
                        }
                        _ => {}
                    }
                    on_sent(sent);
                }
                ServiceResponse::Unavailable(why) => gone = Some(why),
                ServiceResponse::Failed(detail) => failed = Some(Error::Control { detail }),
                _ => {}
            };
            self.once(partition, &ask, heard).await?;
            patience.unsure |= accepted;
            match failed {
                _ if due.is_nothing() => return Ok(()),
                Some(error) => return Err(error),
                None => patience.wait(gone).await?,
            }
        }
    }

    /// Cancels whatever is open in a thread and beneath it; the refusal, where nothing was.
    pub async fn cancel(
        &self,
        mut cancel: ServiceRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        let ServiceRequest::Cancel { thread, .. } = &cancel else { return Ok(None) };
        let (thread, partition) = (thread.clone(), thread.partition(self.partitions));
        self.sign(&mut cancel, partition, Some(&thread), signer).await?;
        match self.until_answered(partition, &cancel).await? {
            // It may be this very cancellation, whose answer was lost, which came before.
            (ServiceResponse::Ruled(Some(refusal)), true)
                if matches!(refusal.rule, Rule::NotWaiting | Rule::NotSigned) =>
            {
                Err(Error::Lost)
            }
            (said, _) => cancelled(said, &cancel),
        }
    }

    /// Signs a decision, if there is a key, for the journal of the partition that it is about.
    async fn sign(
        &self,
        ask: &mut ServiceRequest,
        partition: u32,
        thread: Option<&ThreadId>,
        signer: Option<&OperatorSigner>,
    ) -> Result<(), Error> {
        let (Some(signer), Some(thread)) = (signer, thread) else { return Ok(()) };
        match self.until_answered(partition, &ServiceRequest::JournalId { partition }).await?.0 {
            ServiceResponse::JournalId(journal) => signer.sign(ask, journal, thread),
            other => return Err(strange(&other)),
        }
        Ok(())
    }

    /// Has something decided; the refusal, where that was not to be.
    pub async fn decide(
        &self,
        matter: DecisionRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        // A call that nobody holds is refused by the first partition, on the record.
        let thread = self.find(matter.message).await?;
        let partition = thread.as_ref().map_or(0, |thread| thread.partition(self.partitions));
        let mut ask =
            ServiceRequest::Decide(DecisionRequest { partition: Some(partition), ..matter });
        self.sign(&mut ask, partition, thread.as_ref(), signer).await?;
        match self.until_answered(partition, &ask).await? {
            // It may be that very decision, whose answer was lost, which came before this one.
            (ServiceResponse::Ruled(Some(refusal)), true)
                if matches!(refusal.rule, Rule::NotWaiting | Rule::NotSigned) =>
            {
                Err(Error::Lost)
            }
            (ServiceResponse::Ruled(refusal), _) => Ok(refusal.map(|refusal| *refusal)),
            (other, _) => Err(strange(&other)),
        }
    }

    /// The thread of a call that waits for a person: from what is known here, else from whoever
    /// has it.
    async fn find(&self, message: MessageId) -> Result<Option<ThreadId>, Error> {
        let data = self.data.clone();
        let look = move || {
            let here = partitions_in(&data).into_iter();
            here.filter_map(|(_, journal)| held_in(&journal, message).ok().flatten()).next()
        };
        let here = tokio::task::spawn_blocking(look).await.map_err(|_| Error::Stopped)?;
        if here.is_some() {
            return Ok(here);
        }
        for partition in 0..self.partitions {
            match self
                .until_answered(partition, &ServiceRequest::HeldThread { message, partition })
                .await?
                .0
            {
                ServiceResponse::HeldThread(Some(thread)) => return Ok(Some(thread)),
                ServiceResponse::HeldThread(None) => {}
                other => return Err(strange(&other)),
            }
        }
        Ok(None)
    }

    /// The one line that answers, and whether an earlier answer may have been lost.
    async fn until_answered(
        &self,
        partition: u32,
        ask: &ServiceRequest,
    ) -> Result<(ServiceResponse, bool), Error> {
        let mut patience = Patience::new(partition);
        loop {
            let (mut gone, mut answer) = (None, None);
            let heard = |said| match said {
                ServiceResponse::Unavailable(why) => gone = Some(why),
                other => answer = Some(other),
            };
            self.once(partition, ask, heard).await?;
            match answer {
                Some(ServiceResponse::Failed(detail)) => return Err(Error::Control { detail }),
                Some(said) => return Ok((said, patience.unsure)),
                None => patience.wait(gone).await?,
            }
        }
    }

    /// Asks whoever is there now. An answer that breaks off is one that says nothing more.
    async fn once(
        &self,
        partition: u32,
        ask: &ServiceRequest,
        mut heard: impl FnMut(ServiceResponse),
    ) -> Result<(), Error> {
        if let Some(client) = Client::find(&self.data, self.handshake.clone()).await? {
            return match client.ask(ask, heard).await.map_err(lost) {
                Err(Error::Lost) => Ok(()),
                other => other,
            };
        }
        let exchange = match self.exchange.get_or_try_init(|| self.open_exchange()).await {
            Err(Error::Journal(journal::Error::Away { detail })) => {
                heard(ServiceResponse::Unavailable(PartitionUnavailable {
                    detail,
                    soon: false,
                    unsure: false,
                }));
                return Ok(());
            }
            exchange => exchange?,
        };
        let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
        let asking = async move { exchange.ask(partition, ask, &tell).await };
        let telling = async {
            while let Some(said) = told.recv().await {
                heard(said);
            }
        };
        tokio::join!(asking, telling).0
    }
}

impl Route {
    /// Organisms are asked by their names: it is looked at first whether this one's journal is the
    /// one on the server.
    async fn open_exchange(&self) -> Result<Exchange, Error> {
        let (servers, journal) = (self.servers.clone(), self.journal.clone());
        let (data, state) = (self.data.clone(), self.state.clone());
        let check = move || identity::check(&servers, &journal, &data, &state);
        tokio::task::spawn_blocking(check).await.map_err(|_| Error::Stopped)??;
        Exchange::open(&self.servers, &self.name).await
    }
}

pub(super) fn strange(said: &ServiceResponse) -> Error {
    Error::Control { detail: format!("its answer was to something else: {said:?}") }
}

/// How long a partition that nobody has is waited for.
struct Patience {
    partition: u32,
    until: Instant,
    /// Something may have been done already.
    unsure: bool,
}

impl Patience {
    fn new(partition: u32) -> Self {
        let until = Instant::now() + limits::PARTITION_PATIENCE;
        Self { partition, until, unsure: false }
    }

    /// Returns when it is time to ask again. An answer that broke off without a word came from
    /// somebody who ended meanwhile.
    async fn wait(&mut self, gone: Option<PartitionUnavailable>) -> Result<(), Error> {
        let broke_off = || PartitionUnavailable {
            detail: "its process ended".to_owned(),
            soon: true,
            unsure: true,
        };
        let PartitionUnavailable { detail, soon, unsure } = gone.unwrap_or_else(broke_off);
        self.unsure |= unsure;
        let now = Instant::now();
        if soon {
            self.until = now + limits::PARTITION_PATIENCE;
        }
        match now > self.until {
            true if self.unsure => Err(Error::Lost),
            true => Err(Error::Nobody { partition: self.partition, detail }),
            false => {
                tokio::time::sleep(limits::PARTITION_RETRY).await;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerName;

    fn parcel(client: &str, key: Option<&str>) -> SubmitRequest {
        let mut parcel = SubmitRequest {
            client: ListenerName::parse(client).unwrap(),
            thread: None,
            suggested: None,
            key: key.map(str::to_owned),
            payload: Vec::new(),
            wait: true,
            trace: None,
            secret: None,
        };
        address(&mut parcel);
        parcel
    }

    #[test]
    fn a_clients_key_leads_to_one_thread_and_no_other_clients_or_other_keys_does() {
        let one = parcel("desk", Some("7"));
        assert_eq!(one.suggested, parcel("desk", Some("7")).suggested);
        assert_ne!(one.suggested, parcel("desk", Some("8")).suggested);
        assert_ne!(one.suggested, parcel("desk7", Some("")).suggested);
        assert_eq!(one.key.as_deref(), Some("7"));
    }

    #[test]
    fn without_a_key_every_parcel_has_a_thread_and_a_key_of_its_own() {
        let (one, other) = (parcel("desk", None), parcel("desk", None));
        assert!(one.suggested != other.suggested && one.key != other.key);
        assert!(one.key.is_some_and(|key| key.len() <= limits::CLIENT_KEY_BYTES_MAX));
        ThreadId::parse(&one.suggested.unwrap()).unwrap();
    }
}
