//! The client of an organism. It sends requests over a transport, and repeats a request if that is
//! safe. After a repetition, it recognises responses that it has already received.

mod fork;
mod live;
mod pause;
mod retry;
mod signature_place;
mod submission;

pub use fork::OpenedFork;
pub use pause::{PauseError, failed_partitions};
pub use submission::new_root_thread;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, OnceCell};

use self::signature_place::{is_signed, refusal_of_unsigned};
use super::handshake::Handshake;
use super::pump_service::held_in;
use super::signing::OperatorSigner;
use super::{
    DecisionRequest, Error, NatsTransport, PartitionUnavailable, ReloadReport, RetryReport,
    ServiceRequest, ServiceResponse, ServiceTransport, SocketTransport, response_queue,
};
use crate::audit::HeldCall;
use crate::config::{Config, StorageConfig};
use crate::envelope::{Refusal, RefusalRule};
use crate::ids::{MessageId, Position, ThreadId};
use crate::journal::jetstream::identity;
use crate::journal::{self, may_have_journal, partitions_in};
use crate::limits;
use crate::nats;
use crate::thread::DecisionOrigin;

pub struct ServiceClient {
    /// Directory of the journal, or of the journals of several partitions.
    data: PathBuf,
    transports: Transports,
}

enum Transports {
    /// The transport to one running organism. If this organism has ended, the client does not look
    /// for an organism on another machine. `partitions` is the number of the organism's partitions;
    /// `None` if it has a single pump, or if the number is unknown.
    One { transport: ServiceTransport, partitions: Option<u32> },
    /// The transports to the partitions of an organism. The client chooses a transport for each
    /// attempt, because partitions move between processes. If an organism on this machine responds,
    /// the client uses the socket of this organism. Otherwise, the client uses NATS.
    Partitioned {
        config: Box<Config>,
        local: SocketTransport,
        nats: OnceCell<ServiceTransport>,
        /// Whether the organism on this machine has not responded. The client then uses NATS,
        /// because a process on another machine may have taken over.
        is_local_silent: AtomicBool,
    },
}

impl ServiceClient {
    /// Creates a client of the organism that `transport` reaches. The organism's journal is in
    /// `data`.
    pub fn new(data: &Path, transport: ServiceTransport) -> Self {
        let transports = Transports::One { transport, partitions: None };
        Self { data: data.to_owned(), transports }
    }

    /// Creates a client of the organism that `socket` reaches. Needs no config of this organism.
    /// Determines the number of partitions, so that the client can address all of them. The
    /// organism's journals are in `data`.
    pub async fn of_running(data: &Path, socket: SocketTransport) -> Result<Self, Error> {
        // A journal that is not divided has a single pump.
        let is_undivided = may_have_journal(data);
        let partitions = if is_undivided { None } else { socket.partitions().await? };
        let transport = ServiceTransport::Socket(socket);
        let transports = Transports::One { transport, partitions };
        Ok(Self { data: data.to_owned(), transports })
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
        let is_local_silent = AtomicBool::default();
        Self { data, transports: Transports::Partitioned { config, local, nats, is_local_silent } }
    }

    /// Returns the number of partitions; `None` if the organism has a single pump, or if the client
    /// does not know the number.
    pub fn partitions(&self) -> Option<u32> {
        match &self.transports {
            Transports::One { partitions, .. } => *partitions,
            Transports::Partitioned { config, .. } => Some(config.partitions()),
        }
    }

    fn partition_of(&self, thread: &ThreadId) -> u32 {
        self.partitions().map_or(0, |partitions| thread.partition(partitions))
    }

    /// Makes the organism load its config file again and put the config in force. Returns the
    /// refusal if the organism does not accept a reload from this process.
    pub async fn reload(
        &self,
        origin: DecisionOrigin,
    ) -> Result<Result<ReloadReport, Refusal>, Error> {
        let request = ServiceRequest::Reload { origin: Some(origin) };
        match self.response(0, &request).await? {
            ServiceResponse::Reloaded(report) => Ok(Ok(report)),
            ServiceResponse::Ruled(Some(refusal)) => Ok(Err(*refusal)),
            other => Err(unexpected(&other)),
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
        let partition = self.partition_of(thread);
        self.sign(&mut request, signer).await?;
        self.rule(partition, &request).await
    }

    /// Submits a decision about a held call. Returns the refusal if the pump refuses the decision,
    /// and otherwise `None`. With a `signer`, a decision about a held call is sent only if it could
    /// be signed.
    pub async fn decide(
        &self,
        mut decision: DecisionRequest,
        signer: Option<&OperatorSigner>,
    ) -> Result<Option<Refusal>, Error> {
        let is_partitioned = self.partitions().is_some();
        let held = if is_partitioned || signer.is_some() {
            self.held_thread(decision.message).await?
        } else {
            None
        };
        let is_held = held.is_some();
        // The call may have been decided since the signature was made.
        let thread = held.or_else(|| Some(decision.signature()?.thread.clone()));

        // The pump of the first partition refuses a decision about an unknown call, and records the
        // refusal.
        let partition = thread.as_ref().map_or(0, |thread| self.partition_of(thread));
        if is_partitioned {
            decision.partition = Some(partition);
        }

        // The refusal is recorded under the name of the operator whose signature proves it. A pump
        // accepts any thread in the signature of a decision about a call that does not wait.
        let thread = thread.unwrap_or_else(ThreadId::organism);
        let mut request = ServiceRequest::Decide(decision);
        self.sign_in_thread(&mut request, &thread, signer).await?;
        // Without operators in the config, an unsigned decision about a held call would count.
        if is_held && signer.is_some() && !is_signed(&request) {
            return refusal_of_unsigned(&request).map(Some);
        }
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
            (ServiceResponse::Cancelled, ServiceRequest::Cancel { .. }) => Ok(None),
            (ServiceResponse::Ruled(refusal), _) => Ok(refusal.map(|refusal| *refusal)),
            (ServiceResponse::UnknownThread, ServiceRequest::Cancel { thread, .. }) => {
                Err(Error::NoThread { thread: thread.clone() })
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Finds the thread of the held call that `message` opened. If a pump has this call, returns
    /// its thread. If all pumps respond and none has the call, returns `None`. If some pump does
    /// not respond and no other pump has the call, searches the journals on this machine. If these
    /// journals do not contain the call, either, returns an error.
    async fn held_thread(&self, message: MessageId) -> Result<Option<ThreadId>, Error> {
        let queries = (0..self.partitions().unwrap_or(1)).map(async |partition| {
            let query = ServiceRequest::HeldThread { message, partition };
            match self.response(partition, &query).await? {
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
    /// such call. Requests only this call from the pump, not all held calls.
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

    /// Follows the journals of all partitions on this machine. Calls `on_recorded` with the number
    /// of a partition and the position of its last record: once at the start, and again each time
    /// the journal of the partition has grown. Returns when `on_recorded` returns
    /// `ControlFlow::Break`, or when the organism ends.
    ///
    /// If the organism has too many connections, repeats the request for a limited time, and then
    /// returns an error.
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
                ServiceResponse::Unavailable(why) => unavailable = Some(why),
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

            let Some(PartitionUnavailable { detail, failed, .. }) = unavailable else {
                return Ok(());
            };
            if failed || Instant::now() >= until {
                return Err(Error::NotReady { detail });
            }
            tokio::time::sleep(limits::BUSY_RETRY).await;
        }
    }

    /// Sends a request and returns its only response. A pump may have carried out an earlier
    /// attempt whose response was lost, and may then refuse a later attempt. If the response may
    /// come from such a pump, returns an error that leaves open whether the request was carried
    /// out.
    async fn response(
        &self,
        partition: u32,
        request: &ServiceRequest,
    ) -> Result<ServiceResponse, Error> {
        let (mut responses, is_unsure) = self.responses(partition, request, |_| true).await?;
        let response = responses.pop().ok_or(Error::Lost)?;
        if is_unsure { result_of_repetition(request, response) } else { Ok(response) }
    }

    /// Sends a request, and returns all responses to it. Also returns whether a pump may have
    /// carried out an earlier attempt whose response was lost.
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
            if let Err(error) = self.attempt(partition, request, on_response).await {
                // A pump may have carried out an earlier attempt, whatever refused this one.
                let is_undecided = retries.is_unsure && !request.is_query();
                return Err(if is_undecided { error.undecided(partition) } else { error });
            }

            match received.last() {
                Some(ServiceResponse::Failed(detail)) => return Err(Error::failed(detail)),
                Some(last) if is_last(last) => return Ok((received, retries.is_unsure)),
                _ => retries.wait(unavailable).await?,
            }
        }
    }

    /// Sends a request once, and passes each response to `on_response`. Returns `Ok` even if the
    /// connection breaks, so the caller must check whether the last expected response has come.
    pub async fn attempt(
        &self,
        partition: u32,
        request: &ServiceRequest,
        mut on_response: impl FnMut(ServiceResponse),
    ) -> Result<(), Error> {
        let socket;
        let transport = match &self.transports {
            Transports::One { transport, .. } => transport,
            Transports::Partitioned { config, local, nats, is_local_silent } => {
                if is_reached(local, is_local_silent).await? {
                    socket = ServiceTransport::Socket(local.clone());
                    &socket
                } else {
                    match nats.get_or_try_init(|| connect(config)).await {
                        Ok(transport) => transport,
                        Err(error) => {
                            let detail = reason_to_retry(error)?;
                            let why = PartitionUnavailable::lasting(detail);
                            on_response(ServiceResponse::Unavailable(why));
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

        let sent = tokio::join!(sending, receiving).0;
        match sent {
            Err(Error::Lost) => {}
            // The organism on this machine does not respond.
            Err(Error::NotReady { detail }) => {
                on_response(ServiceResponse::Unavailable(self.silent(detail)));
                return Ok(());
            }
            Err(Error::Undecided { detail, .. }) => {
                on_response(ServiceResponse::Unavailable(self.silent(detail).unsure()));
                return Ok(());
            }
            other => return other,
        }

        // Without a config, no other way leads to the pumps of the other partitions.
        if matches!(self.transports, Transports::One { partitions: Some(_), .. }) {
            let why = PartitionUnavailable::lasting("the organism on this host ended").unsure();
            on_response(ServiceResponse::Unavailable(why));
        }
        Ok(())
    }

    /// Returns a report that the organism on this machine does not respond, with the reason
    /// `detail`. If this client can also send requests over NATS, records the silence, so that the
    /// next attempt goes over NATS.
    fn silent(&self, detail: String) -> PartitionUnavailable {
        match &self.transports {
            Transports::One { .. } => PartitionUnavailable::lasting(detail),
            Transports::Partitioned { is_local_silent, .. } => {
                is_local_silent.store(true, Ordering::Relaxed);
                PartitionUnavailable::passing(detail)
            }
        }
    }

    /// Whether requests go over NATS because the organism on this machine has not responded.
    fn is_local_silent(&self) -> bool {
        match &self.transports {
            Transports::One { .. } => false,
            Transports::Partitioned { is_local_silent, .. } => {
                is_local_silent.load(Ordering::Relaxed)
            }
        }
    }

    fn retries(&self, partition: u32) -> RetryDeadline {
        let until = Instant::now() + limits::PARTITION_TIMEOUT;
        let is_allowed = self.partitions().is_some();
        RetryDeadline { partition, is_allowed, until, is_unsure: false }
    }
}

/// Whether requests can be sent to the organism on this machine. False if no organism runs here, if
/// `is_silent` is set, or if the organism takes no connection. In the last case, sets `is_silent`,
/// so that requests go over NATS: a process on another machine may have taken over.
async fn is_reached(local: &SocketTransport, is_silent: &AtomicBool) -> Result<bool, Error> {
    if is_silent.load(Ordering::Relaxed) {
        return Ok(false);
    }

    match local.locate().await {
        Err(Error::NotReady { .. }) => {
            is_silent.store(true, Ordering::Relaxed);
            Ok(false)
        }
        found => found,
    }
}

/// Connects to the pumps of the partitions over NATS. First checks that the NATS server has the
/// expected journal, so that a command of a project that has not joined the journal is refused.
async fn connect(config: &Config) -> Result<ServiceTransport, Error> {
    let StorageConfig::JetStream { servers, journal } = config.storage.clone() else {
        return Err(Error::failed("an embedded journal has no partitions"));
    };

    let data = config.data.clone();
    let state = config.state.clone();
    let options = servers.clone();
    let stream = journal.stream.clone();
    let check = move || identity::check(&options, &journal, &data, &state);
    tokio::task::spawn_blocking(check).await.map_err(|_| Error::Stopped)??;

    NatsTransport::connect(&servers, &config.name, &stream).await.map(ServiceTransport::Nats)
}

/// Decides whether a request may be repeated after `error`. If no NATS server responded, the
/// request was not sent and may be repeated: returns the text of `error`. Otherwise, returns
/// `error` unchanged as `Err`, for example if the server refused the credentials.
fn reason_to_retry(error: Error) -> Result<String, Error> {
    use nats::Error::Connect;

    match error {
        Error::Journal(journal::Error::Unavailable { detail }) => Ok(detail),
        // The check of the journal makes the first connection, and the client the second.
        Error::Journal(journal::Error::Nats(error @ Connect { is_passing: true, .. }))
        | Error::Nats(error @ Connect { is_passing: true, .. }) => Ok(error.to_string()),
        error => Err(error),
    }
}

/// Returns the response to a repeated request if it also is the result of all earlier attempts, and
/// an error if an earlier attempt may have been carried out.
fn result_of_repetition(
    request: &ServiceRequest,
    response: ServiceResponse,
) -> Result<ServiceResponse, Error> {
    match response {
        ServiceResponse::Ruled(Some(refusal)) if may_follow_success(request, &refusal) => {
            Err(Error::Lost)
        }
        // The earlier attempt may be the retry that the response names.
        ServiceResponse::Retried(RetryReport::AlreadyRetried { retry }) => {
            Err(Error::MaybeRetried { retry })
        }
        response => Ok(response),
    }
}

/// Whether a pump may refuse a repeated `request` with `refusal` although it has carried out an
/// earlier attempt of the same request.
fn may_follow_success(request: &ServiceRequest, refusal: &Refusal) -> bool {
    match refusal.rule {
        RefusalRule::NotSigned | RefusalRule::Busy | RefusalRule::StorageFull => true,
        // The earlier attempt has decided or cancelled the call.
        RefusalRule::NotWaiting => {
            matches!(request, ServiceRequest::Decide(_) | ServiceRequest::Cancel { .. })
        }
        // The earlier attempt has opened the thread of the fork.
        RefusalRule::BadLabel => matches!(request, ServiceRequest::Fork(_)),
        _ => false,
    }
}

fn unexpected(response: &ServiceResponse) -> Error {
    Error::failed(format_args!("unexpected response: {response:?}"))
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
    /// Waits until the request may be repeated. Returns an error if it must not be repeated any
    /// more, also because it failed inside the organism. `unavailable` is the received reason why
    /// the partition does not answer; `None` if the responding process has ended and sent no
    /// reason.
    async fn wait(&mut self, unavailable: Option<PartitionUnavailable>) -> Result<(), Error> {
        let has_failed = unavailable.as_ref().is_some_and(|why| why.failed);
        if !self.is_allowed || has_failed {
            return Err(match unavailable {
                Some(PartitionUnavailable { detail, unsure, .. }) if unsure || self.is_unsure => {
                    Error::Undecided { detail, failed: has_failed }
                }
                Some(PartitionUnavailable { detail, .. }) => Error::NotReady { detail },
                None => Error::Lost,
            });
        }

        let broke_off = || PartitionUnavailable::passing("its process ended").unsure();

        let PartitionUnavailable { detail, soon, unsure, .. } =
            unavailable.unwrap_or_else(broke_off);
        self.is_unsure |= unsure;

        let now = Instant::now();
        if soon {
            self.until = now + limits::PARTITION_TIMEOUT;
        }

        if now <= self.until {
            tokio::time::sleep(limits::PARTITION_RETRY).await;
            return Ok(());
        }

        let partition = self.partition;
        Err(if self.is_unsure {
            Error::Unanswered { partition, detail }
        } else {
            Error::NoPump { partition, detail }
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_deadline_that_has_passed_names_the_last_reason() {
        let error_of = async |is_unsure| {
            let until = Instant::now();
            let mut retries = RetryDeadline { partition: 3, is_allowed: true, until, is_unsure };
            let why = || Some(PartitionUnavailable::lasting("the servers of NATS do not respond"));
            loop {
                if let Err(error) = retries.wait(why()).await {
                    return error.to_string();
                }
            }
        };
        for (is_unsure, other) in [(true, "may have been carried out"), (false, "try again")] {
            let error = error_of(is_unsure).await;
            for part in ["partition 3", "the servers of NATS do not respond", other] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    /// The pump that carried out the retry has died before its response, and the next pump finds
    /// the retry on record.
    #[test]
    fn a_repeated_retry_that_was_retried_before_may_have_been_carried_out() {
        let retry = MessageId(Uuid::from_u128(7));
        let report = RetryReport::AlreadyRetried { retry };
        let result =
            result_of_repetition(&ServiceRequest::Status, ServiceResponse::Retried(report));
        let error = result.unwrap_err();
        assert!(matches!(error, Error::MaybeRetried { retry: found } if found == retry));
        assert!(error.to_string().contains(&retry.to_string()), "{error}");

        let report = RetryReport::Unconfirmed { reason: "it may be done twice".to_owned() };
        let result =
            result_of_repetition(&ServiceRequest::Status, ServiceResponse::Retried(report));
        assert!(matches!(result, Ok(ServiceResponse::Retried(RetryReport::Unconfirmed { .. }))));
    }

    #[tokio::test]
    async fn a_request_that_failed_inside_the_organism_is_not_repeated() {
        for (is_unsure, was_unsure) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let until = Instant::now() + limits::PARTITION_TIMEOUT;
            let mut retries =
                RetryDeadline { partition: 3, is_allowed: true, until, is_unsure: was_unsure };
            let why = PartitionUnavailable::failed("it failed");
            let why = if is_unsure { why.unsure() } else { why };
            let error = retries.wait(Some(why)).await.unwrap_err();
            if is_unsure || was_unsure {
                assert!(matches!(error, Error::Undecided { failed: true, .. }), "{error:?}");
            } else {
                assert!(matches!(error, Error::NotReady { .. }), "{error:?}");
            }
            // Other requests to the partition are still sent.
            assert!(!error.is_without_result(), "{error:?}");
        }
    }
}
