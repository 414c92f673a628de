//! The client of an organism. It sends requests over a transport, and repeats a request if that is
//! safe. It recognises responses that it has already received for an earlier attempt of the
//! request.

mod fork;
mod live;
mod pause;
mod retry;
mod signature_place;

pub use fork::OpenedFork;
pub use pause::PauseError;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

use super::handshake::Handshake;
use super::pump_service::{held_in, journal_in};
use super::signing::OperatorSigner;
use super::{
    DecisionRequest, Error, NatsTransport, PartitionUnavailable, ReloadReport, ServiceRequest,
    ServiceResponse, ServiceTransport, SocketTransport, SubmitRequest, SubmitUpdate, TreeWait,
    response_queue,
};
use crate::audit::{self, HeldCall};
use crate::config::{Config, StorageConfig};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{CallId, Digest, MessageId, Position, ThreadId};
use crate::journal::jetstream::identity;
use crate::journal::sqlite::JournalReader;
use crate::journal::{self, partitions_in};
use crate::limits;
use crate::nats;
use crate::thread::DecisionOrigin;

pub struct ServiceClient {
    /// Directory of the journal, or of the journals of several partitions.
    data: PathBuf,
    transports: Transports,
}

enum Transports {
    /// The transport to one running organism. When this organism has ended, the client does not
    /// look for another one.
    One(ServiceTransport),
    /// The transports to the partitions of an organism. Partitions move between processes, so the
    /// client chooses a transport for each attempt: the socket of an organism on this machine or,
    /// if none runs here, NATS.
    Partitioned { config: Box<Config>, local: SocketTransport, nats: OnceCell<ServiceTransport> },
}

impl ServiceClient {
    /// Creates a client of the organism that `transport` reaches. The organism's journal is in
    /// `data`.
    pub fn new(data: &Path, transport: ServiceTransport) -> Self {
        Self { data: data.to_owned(), transports: Transports::One(transport) }
    }

    /// Creates a client of the organism that runs on the journal in `data`. Returns `None` if no
    /// organism runs on this journal.
    pub async fn find(data: &Path, handshake: Handshake) -> Result<Option<Self>, Error> {
        let found = SocketTransport::find(data, handshake).await?;
        Ok(found.map(|socket| Self::new(data, ServiceTransport::Socket(socket))))
    }

    /// Creates a client of an organism with several partitions. `local` is the socket through which
    /// an organism on this machine is reached.
    pub fn of_partitions(config: Config, local: SocketTransport) -> Self {
        let data = config.data.clone();
        let config = Box::new(config);
        let nats = OnceCell::new();
        Self { data, transports: Transports::Partitioned { config, local, nats } }
    }

    /// Returns the number of partitions; `None` if the client has one transport for all requests.
    fn partitions(&self) -> Option<u32> {
        match &self.transports {
            Transports::One(_) => None,
            Transports::Partitioned { config, .. } => Some(config.partitions()),
        }
    }

    fn partition_of(&self, thread: &ThreadId) -> u32 {
        self.partitions().map_or(0, |partitions| thread.partition(partitions))
    }

    /// Submits a payload. Calls `on_update` with the receipt. If the request waits for results,
    /// also calls `on_update` with each result, and with each reason why the submission's threads
    /// make no progress.
    pub async fn submit(
        &self,
        mut request: SubmitRequest,
        mut on_update: impl FnMut(SubmitUpdate),
    ) -> Result<(), Error> {
        let is_own_key = request.key.is_none();
        let partition = self.partitions().map_or(0, |partitions| {
            request.assign_thread_and_key();
            request.partition(partitions)
        });

        let mut expected = ExpectedReplies::Receipt { wait: request.wait };
        let mut accepted: Option<(ThreadId, Vec<CallId>)> = None;
        let mut waits = ReportedWaits::default();
        let mut retries = self.retries(partition);

        loop {
            let request = match &accepted {
                None => ServiceRequest::Submit(request.clone()),
                Some((thread, calls)) => {
                    ServiceRequest::AwaitResults { thread: thread.clone(), calls: calls.clone() }
                }
            };
            let mut unavailable = None;
            let mut failed = None;
            let mut has_receipt = false;
            waits.begin_attempt();
            let on_response = |response| match response {
                ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, .. })
                    if refusal.rule == RefusalRule::Draining && self.partitions().is_some() =>
                {
                    let detail = refusal.to_string();
                    unavailable = Some(PartitionUnavailable { detail, soon: true, unsure: false });
                }
                // An earlier attempt may be recorded, so this refusal may not be the answer to the
                // submission.
                ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, .. })
                    if matches!(refusal.rule, RefusalRule::Busy | RefusalRule::StorageFull)
                        && retries.is_unsure =>
                {
                    let detail = refusal.to_string();
                    unavailable = Some(PartitionUnavailable { detail, soon: false, unsure: true });
                }
                ServiceResponse::SubmitUpdate(SubmitUpdate::Waits(wait)) if !waits.add(&wait) => {}
                ServiceResponse::SubmitUpdate(mut update) => {
                    expected.subtract(&update);
                    match &mut update {
                        SubmitUpdate::Accepted { thread, calls, again, .. } => {
                            // Only an earlier attempt of this submission can have used a key that
                            // the client generated.
                            *again &= !(is_own_key && self.partitions().is_some());
                            accepted = Some((thread.clone(), calls.clone()));
                            has_receipt = true;
                        }
                        SubmitUpdate::Result { call, .. } => {
                            if let Some((_, calls)) = &mut accepted {
                                calls.retain(|expected| expected != call);
                            }
                        }
                        _ => {}
                    }
                    on_update(update);
                }
                ServiceResponse::Unavailable(why) => unavailable = Some(why),
                ServiceResponse::Failed(detail) => failed = Some(Error::Failed { detail }),
                _ => {}
            };
            self.attempt(partition, &request, on_response).await?;

            retries.is_unsure |= has_receipt;
            match failed {
                _ if expected.is_nothing() => return Ok(()),
                Some(error) => return Err(error),
                None => retries.wait(unavailable).await?,
            }
        }
    }

    /// Makes the organism load its config file again and put the config in force.
    pub async fn reload(&self, origin: DecisionOrigin) -> Result<ReloadReport, Error> {
        let request = ServiceRequest::Reload { origin: Some(origin) };
        match self.response(0, &request).await? {
            (ServiceResponse::Reloaded(report), _) => Ok(report),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Cancels every open call in a thread and in the threads beneath it. Returns the refusal if
    /// the pump refuses the cancellation, and otherwise `None`.
    pub async fn cancel(
        &self,
        mut request: ServiceRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        let ServiceRequest::Cancel { thread, .. } = &request else { return Ok(None) };
        let thread = thread.clone();
        self.sign(&mut request, Some(&thread), signer).await?;
        self.rule(self.partition_of(&thread), &request).await
    }

    /// Submits a decision about a held call. Returns the refusal if the pump refuses the decision,
    /// and otherwise `None`.
    pub async fn decide(
        &self,
        mut decision: DecisionRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        let is_partitioned = self.partitions().is_some();
        let thread = if is_partitioned || signer.is_some() {
            self.held_thread(decision.message).await?
        } else {
            None
        };

        // The pump of the first partition refuses a decision about an unknown call, and records the
        // refusal.
        let partition = thread.as_ref().map_or(0, |thread| self.partition_of(thread));
        if is_partitioned {
            decision.partition = Some(partition);
        }

        let mut request = ServiceRequest::Decide(decision);
        self.sign(&mut request, thread.as_ref(), signer).await?;
        self.rule(partition, &request).await
    }

    /// Sends a decision or a cancellation. Returns the refusal if the pump refuses the request, and
    /// otherwise `None`.
    async fn rule(
        &self,
        partition: u32,
        request: &ServiceRequest,
    ) -> Result<Option<Refusal>, Error> {
        match (self.response(partition, request).await?, request) {
            // An earlier attempt with a lost response may have been carried out, and may be the
            // cause of this refusal.
            ((ServiceResponse::Ruled(Some(refusal)), true), _)
                if matches!(
                    refusal.rule,
                    RefusalRule::NotWaiting | RefusalRule::NotSigned | RefusalRule::Busy
                ) =>
            {
                Err(Error::Lost)
            }
            ((ServiceResponse::Cancelled, _), ServiceRequest::Cancel { .. }) => Ok(None),
            ((ServiceResponse::Ruled(refusal), _), _) => Ok(refusal.map(|refusal| *refusal)),
            ((ServiceResponse::UnknownThread, _), ServiceRequest::Cancel { thread, .. }) => {
                Err(Error::NoThread { thread: thread.clone() })
            }
            ((other, _), _) => Err(unexpected(&other)),
        }
    }

    /// Signs a request about `thread` with `signer`. The request stays unsigned if there is no
    /// `signer`. A request about an unknown thread also stays unsigned, because the pump refuses it
    /// anyway.
    async fn sign(
        &self,
        request: &mut ServiceRequest,
        thread: Option<&ThreadId>,
        signer: Option<&OperatorSigner>,
    ) -> Result<(), Error> {
        let (Some(signer), Some(thread)) = (signer, thread) else { return Ok(()) };
        if let Some(journal) = self.journal_of(thread).await? {
            signer.sign(request, journal, thread);
        }
        Ok(())
    }

    /// Returns the id of the journal of the partition to which `thread` belongs. A client with one
    /// transport searches the journals in its data directory for the thread. If none of these
    /// journals contains the thread, returns `None`.
    async fn journal_of(&self, thread: &ThreadId) -> Result<Option<Uuid>, Error> {
        if self.partitions().is_none() {
            let mut journals = partitions_in(&self.data).into_iter().map(|(_, journal)| journal);
            let journal = journals.find(|journal| has_thread(journal, thread));
            return journal.map(|journal| journal_in(&journal)).transpose();
        }

        self.journal_in_partition(self.partition_of(thread)).await.map(Some)
    }

    /// Finds the thread of the held call that the message `message` opened. Queries all pumps. If
    /// no pump returns the call and a pump does not respond, reads the journals on this machine.
    /// Returns `None` if all pumps respond and none of them has the call.
    async fn held_thread(&self, message: MessageId) -> Result<Option<ThreadId>, Error> {
        let queries = (0..self.partitions().unwrap_or(1)).map(async |partition| {
            let query = ServiceRequest::HeldThread { message, partition };
            match self.response(partition, &query).await?.0 {
                ServiceResponse::HeldThread(thread) => Ok(thread),
                other => Err(unexpected(&other)),
            }
        });
        // The queries run concurrently, so that an unreachable pump does not delay a decision about
        // a call of another pump.
        let mut queries: FuturesUnordered<_> = queries.collect();
        let mut unanswered = None;

        while let Some(answer) = queries.next().await {
            match answer {
                Ok(Some(thread)) => return Ok(Some(thread)),
                Ok(None) => {}
                Err(error) => unanswered = Some(error),
            }
        }

        let Some(error) = unanswered else { return Ok(None) };

        let data = self.data.clone();
        let look = move || {
            let journals = partitions_in(&data).into_iter();
            journals.filter_map(|(_, journal)| held_in(&journal, message).ok().flatten()).next()
        };

        let held = tokio::task::spawn_blocking(look).await.map_err(|_| Error::Stopped)?;
        held.map(Some).ok_or(error)
    }

    /// Returns all held calls of a partition, which are the calls that wait for a person's
    /// decision. The call that has waited longest comes first.
    pub async fn held_calls(&self, partition: u32) -> Result<Vec<HeldCall>, Error> {
        self.held(partition, None).await
    }

    /// Returns the held call that `message` opened in a partition; `None` if the partition has no
    /// such call. Does not transfer the other held calls of the partition.
    pub async fn held_call(
        &self,
        partition: u32,
        message: MessageId,
    ) -> Result<Option<HeldCall>, Error> {
        let mut held = self.held(partition, Some(message)).await?.into_iter();
        Ok(held.find(|call| call.message == message))
    }

    async fn held(
        &self,
        partition: u32,
        message: Option<MessageId>,
    ) -> Result<Vec<HeldCall>, Error> {
        let query = ServiceRequest::HeldCalls { partition, message };
        let is_last =
            |response: &ServiceResponse| !matches!(response, ServiceResponse::HeldCall(_));
        let (responses, _) = self.responses(partition, &query, is_last).await?;

        let calls = responses.into_iter().filter_map(|response| match response {
            ServiceResponse::HeldCall(call) => Some(*call),
            _ => None,
        });
        let mut calls: Vec<_> = calls.collect();
        HeldCall::sort(&mut calls);
        Ok(calls)
    }

    /// Follows the journals on this machine. Calls `on_recorded` at once and after every growth of
    /// a journal, with the partition and the position of the last journal record. Returns when
    /// `on_recorded` returns `ControlFlow::Break` or the organism ends. If the organism refuses the
    /// request because it has too many connections, sends the request again for a limited time, and
    /// then returns an error.
    pub async fn follow(
        &self,
        mut on_recorded: impl FnMut(u32, Position) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let until = Instant::now() + limits::PARTITION_TIMEOUT;
        loop {
            let leave = Notify::new();
            let mut has_left = false;
            let mut unavailable = None;
            let mut failed = None;
            let on_response = |response| match response {
                // The client has left or the request has failed, and this response was already on
                // its way.
                _ if has_left || failed.is_some() => {}
                ServiceResponse::Recorded { partition, position } => {
                    has_left = on_recorded(partition, position).is_break();
                    if has_left {
                        leave.notify_one();
                    }
                }
                ServiceResponse::Unavailable(why) => unavailable = Some(why.detail),
                ServiceResponse::Failed(detail) => failed = Some(Error::failed(detail)),
                other => failed = Some(unexpected(&other)),
            };

            let ended = tokio::select! {
                () = leave.notified() => Ok(()),
                ended = self.attempt(0, &ServiceRequest::FollowJournals, on_response) => ended,
            };
            if has_left {
                return Ok(());
            }
            failed.map_or(ended, Err)?;

            let Some(detail) = unavailable else { return Ok(()) };
            if Instant::now() >= until {
                return Err(Error::failed(detail));
            }
            tokio::time::sleep(limits::BUSY_RETRY).await;
        }
    }

    /// Returns the only response to a request, and whether a response to an earlier attempt of the
    /// request may have been lost.
    async fn response(
        &self,
        partition: u32,
        request: &ServiceRequest,
    ) -> Result<(ServiceResponse, bool), Error> {
        let (mut responses, is_unsure) = self.responses(partition, request, |_| true).await?;
        responses.pop().map(|response| (response, is_unsure)).ok_or(Error::Lost)
    }

    /// Returns all responses to a request, and whether responses to an earlier attempt of the
    /// request may have been lost.
    async fn responses(
        &self,
        partition: u32,
        request: &ServiceRequest,
        is_last: impl Fn(&ServiceResponse) -> bool,
    ) -> Result<(Vec<ServiceResponse>, bool), Error> {
        let mut retries = self.retries(partition);
        loop {
            let mut unavailable = None;
            let mut received = Vec::new();
            let on_response = |response| match response {
                ServiceResponse::Unavailable(why) => unavailable = Some(why),
                other => received.push(other),
            };
            self.attempt(partition, request, on_response).await?;

            match received.last() {
                Some(ServiceResponse::Failed(detail)) => return Err(Error::failed(detail)),
                Some(last) if is_last(last) => return Ok((received, retries.is_unsure)),
                _ => retries.wait(unavailable).await?,
            }
        }
    }

    /// Makes one attempt to send a request, and passes each response to `on_response`. If the
    /// connection breaks, returns `Ok` as well. So the caller must check whether the last expected
    /// response has come.
    pub async fn attempt(
        &self,
        partition: u32,
        request: &ServiceRequest,
        mut on_response: impl FnMut(ServiceResponse),
    ) -> Result<(), Error> {
        let socket;
        let transport = match &self.transports {
            Transports::One(transport) => transport,
            Transports::Partitioned { config, local, nats } => {
                if local.locate().await? {
                    socket = ServiceTransport::Socket(local.clone());
                    &socket
                } else {
                    match nats.get_or_try_init(|| connect(config)).await {
                        Ok(transport) => transport,
                        Err(error) => {
                            let detail = reason_to_retry(error)?;
                            on_response(ServiceResponse::unavailable(detail, false, false));
                            return Ok(());
                        }
                    }
                }
            }
        };

        let (responses, mut received) = response_queue();
        let sending = async move { transport.send(partition, request, responses).await };
        let receiving = async {
            while let Some(response) = received.recv().await {
                on_response(response);
            }
        };

        match tokio::join!(sending, receiving).0 {
            Err(Error::Lost) => Ok(()),
            other => other,
        }
    }

    fn retries(&self, partition: u32) -> RetryDeadline {
        let until = Instant::now() + limits::PARTITION_TIMEOUT;
        let is_allowed = self.partitions().is_some();
        RetryDeadline { partition, is_allowed, until, is_unsure: false }
    }
}

/// The reasons for waiting that were reported to the client of a submission. Each new attempt of
/// the submission's request finds the same reasons again, but the client must get each reason only
/// once.
#[derive(Default)]
struct ReportedWaits {
    /// Reasons for waiting that the previous attempt of the submission has found.
    earlier: Vec<TreeWait>,
    current: Vec<TreeWait>,
}

impl ReportedWaits {
    fn begin_attempt(&mut self) {
        self.earlier = std::mem::take(&mut self.current);
    }

    /// Adds a reason for waiting that the present attempt of the submission has found. Returns
    /// whether the reason is new: false if the previous attempt has found the same reason.
    fn add(&mut self, wait: &TreeWait) -> bool {
        self.current.push(wait.clone());
        !self.earlier.contains(wait)
    }
}

/// Connects to the pumps of the partitions over NATS. First checks that the NATS server has the
/// expected journal. This check is necessary because NATS subjects contain only the name of the
/// organism, and another organism may have the same name.
async fn connect(config: &Config) -> Result<ServiceTransport, Error> {
    let StorageConfig::JetStream { servers, journal } = config.storage.clone() else {
        return Err(Error::failed("an embedded journal has no partitions"));
    };

    let data = config.data.clone();
    let state = config.state.clone();
    let options = servers.clone();
    let check = move || identity::check(&options, &journal, &data, &state);
    tokio::task::spawn_blocking(check).await.map_err(|_| Error::Stopped)??;

    NatsTransport::connect(&servers, &config.name).await.map(ServiceTransport::Nats)
}

/// Decides whether a request may be repeated after `error`. If NATS could not be reached, no
/// request was sent, and a repetition is safe: returns the text of `error` as `Ok`. Returns every
/// other error unchanged as `Err`.
fn reason_to_retry(error: Error) -> Result<String, Error> {
    match error {
        Error::Journal(journal::Error::Unavailable { detail }) => Ok(detail),
        Error::Nats(error @ nats::Error::Connect { .. }) => Ok(error.to_string()),
        error => Err(error),
    }
}

impl SubmitRequest {
    /// Returns the partition of the request's thread. For an invalid thread id, returns the first
    /// partition, because the pump of any partition refuses the id.
    pub fn partition(&self, partitions: u32) -> u32 {
        let named = self.thread.as_ref().or(self.suggested.as_ref());
        let thread = named.and_then(|id| ThreadId::parse(id).ok());
        thread.map_or(0, |thread| thread.partition(partitions))
    }

    /// Assigns a thread and a client key to the submission, if they are missing. So every attempt
    /// reaches the same partition, and all attempts count as one submission. A missing thread is
    /// derived from the client's key, if there is one. So the same key of the same client always
    /// gives the same thread.
    pub fn assign_thread_and_key(&mut self) {
        if self.thread.is_none() && self.suggested.is_none() {
            let digest = match &self.key {
                Some(key) => {
                    Digest::of_parts(&[self.client.as_str().as_bytes(), b"\0", key.as_bytes()])
                }
                None => Digest::of(Uuid::now_v7().as_bytes()),
            };
            self.suggested = Some(ThreadId::root_of(&digest).to_string());
        }

        self.key.get_or_insert_with(|| format!("{OWN_KEY}{}", Uuid::now_v7().simple()));
    }
}

/// Prefix of client keys that this client generates.
const OWN_KEY: &str = "door-";

/// Whether the journal in `data` contains the thread.
fn has_thread(data: &Path, thread: &ThreadId) -> bool {
    let known = JournalReader::open(data).and_then(|reader| audit::is_recorded(&reader, thread));
    known.unwrap_or_default()
}

fn unexpected(response: &ServiceResponse) -> Error {
    Error::failed(format_args!("unexpected response: {response:?}"))
}

/// The responses for which a submission still waits.
enum ExpectedReplies {
    Receipt { wait: bool },
    Results(usize),
}

impl ExpectedReplies {
    fn subtract(&mut self, update: &SubmitUpdate) {
        *self = match (&*self, update) {
            (_, SubmitUpdate::Waits(_)) => return,
            (Self::Receipt { wait: true }, SubmitUpdate::Accepted { calls, .. }) => {
                Self::Results(calls.len())
            }
            (Self::Results(missing), SubmitUpdate::Result { .. }) => {
                Self::Results(missing.saturating_sub(1))
            }
            _ => Self::Results(0),
        };
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Results(0))
    }
}

/// The time limit for repeating a request to a partition that has no pump at present.
struct RetryDeadline {
    partition: u32,
    is_allowed: bool,
    until: Instant,
    /// Whether a pump may have carried out an earlier attempt of the request.
    is_unsure: bool,
}

impl RetryDeadline {
    /// Waits until the request may be repeated. `unavailable` states why the partition does not
    /// answer. `None` means that the responses ended too early, because the process that sent them
    /// has ended.
    async fn wait(&mut self, unavailable: Option<PartitionUnavailable>) -> Result<(), Error> {
        if !self.is_allowed {
            return Err(Error::Lost);
        }

        let broke_off = || PartitionUnavailable {
            detail: "its process ended".to_owned(),
            soon: true,
            unsure: true,
        };

        let PartitionUnavailable { detail, soon, unsure } = unavailable.unwrap_or_else(broke_off);
        self.is_unsure |= unsure;

        let now = Instant::now();
        if soon {
            self.until = now + limits::PARTITION_TIMEOUT;
        }

        if now <= self.until {
            tokio::time::sleep(limits::PARTITION_RETRY).await;
            return Ok(());
        }

        if self.is_unsure {
            Err(Error::Lost)
        } else {
            Err(Error::NoPump { partition: self.partition, detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerName;
    use crate::service::WaitKind;

    fn submission(client: &str, key: Option<&str>) -> SubmitRequest {
        let mut request = SubmitRequest {
            client: ListenerName::parse(client).unwrap(),
            thread: None,
            suggested: None,
            key: key.map(str::to_owned),
            payload: Vec::new(),
            wait: true,
            trace: None,
            secret: None,
        };

        request.assign_thread_and_key();
        request
    }

    #[test]
    fn one_key_of_one_client_leads_to_one_thread_and_no_other_key_or_client_does() {
        let one = submission("desk", Some("7"));
        assert_eq!(one.suggested, submission("desk", Some("7")).suggested);
        assert_ne!(one.suggested, submission("desk", Some("8")).suggested);
        assert_ne!(one.suggested, submission("desk7", Some("")).suggested);
        assert_eq!(one.key.as_deref(), Some("7"));
    }

    #[test]
    fn without_a_key_every_submission_has_a_thread_and_a_key_of_its_own() {
        let one = submission("desk", None);
        let other = submission("desk", None);
        assert_ne!(one.suggested, other.suggested);
        assert_ne!(one.key, other.key);
        assert!(one.key.is_some_and(|key| key.len() <= limits::CLIENT_KEY_BYTES_MAX));
        ThreadId::parse(&one.suggested.unwrap()).unwrap();
    }

    #[test]
    fn a_wait_that_the_previous_attempt_has_reported_is_not_new() {
        let wait = |target: &str| TreeWait {
            thread: ThreadId::parse("sess-waits0001").unwrap(),
            listener: ListenerName::parse("solo").unwrap(),
            wait: WaitKind::Paused { target: target.to_owned() },
        };
        let mut waits = ReportedWaits::default();
        waits.begin_attempt();
        assert!(waits.add(&wait("all")));
        waits.begin_attempt();
        assert!(!waits.add(&wait("all")));
        assert!(waits.add(&wait("solo")));

        // A wait that one attempt has not found is new when a later one finds it.
        waits.begin_attempt();
        waits.begin_attempt();
        assert!(waits.add(&wait("all")));
    }
}
