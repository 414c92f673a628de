//! The control socket of a running organism. The socket lies in the journal's directory, and only
//! the owner of the socket can connect.
//!
//! A client sends one request line and receives response lines ([`encoding`]): first a receipt,
//! then a result for every call that the client waits for. The connection ends after the last
//! response, unless the request states that the client may send another request.

mod connection_bound;
mod orphan_reaper;
mod socket_place;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::access::{DeniedCaller, HostedConnections, SocketCaller};
use super::partitioned::PartitionMap;
use super::reload::{ReloadService, RulesInForce, SharedRules};
use super::request_lines::LineBuffer;
use crate::accept_failures::AcceptFailures;
use crate::children;
use crate::envelope::{Refusal, RefusalRule};
use crate::limits;
use crate::pump::driver::Handle;
use crate::service::encoding;
use crate::service::handshake::{Handshake, SocketRequest};
use crate::service::{
    Error, PartitionUnavailable, PumpService, ReloadReport, ResponseSender, ServiceRequest,
    ServiceResponse, SubmitUpdate, response_queue,
};
use crate::thread::DecisionOrigin;
use connection_bound::ConnectionBound;
use orphan_reaper::reap_orphans;
use socket_place::SocketPlace;

/// Minimum size of one read in bytes. Most requests fit into one read. A larger buffer would cost
/// memory, because each client that waits for results keeps its buffer.
const READ_BYTES_MIN: usize = 2 << 10;

const TOO_MANY_CONNECTIONS: &str =
    "too many commands are connected to this organism; try again in a moment";
const TOO_MANY_HOSTED: &str =
    "too many commands of this listener, or of all listeners, are connected; try again in a moment";

/// Everything with which the control socket serves requests: pumps, access rules and time-outs.
#[derive(Clone)]
pub struct ControlContext {
    pumps: PumpBackend,
    rules: Arc<SharedRules>,
    /// Service that reloads the config; `None` for a program that embeds the pump and has no config
    /// file.
    reloader: Option<ReloadService>,
    /// Time-out for reading a request, and for writing each line of a response.
    patience: Duration,
    /// Whether this context serves a connection beyond the maximum number of connections. If so,
    /// the context refuses requests that could occupy the connection for a long time.
    is_busy: bool,
}

/// The pumps to which the control socket passes requests on.
#[derive(Clone)]
enum PumpBackend {
    One(Arc<PumpService>),
    /// The pumps of all partitions, in this process or elsewhere.
    Several(Arc<PartitionMap>),
}

impl ControlContext {
    /// Makes the context for a single pump. `handle` reaches the pump, and `data` is the directory
    /// of the pump's journal.
    pub fn new(handle: Handle, data: PathBuf, patience: Duration) -> Self {
        let pumps = PumpBackend::One(Arc::new(PumpService::new(handle, data)));
        Self { pumps, rules: Arc::default(), reloader: None, patience, is_busy: false }
    }

    pub(super) fn of(
        service: PumpService,
        rules: Arc<SharedRules>,
        reloader: ReloadService,
    ) -> Self {
        Self {
            reloader: Some(reloader),
            ..Self::serving(PumpBackend::One(Arc::new(service)), rules)
        }
    }

    pub(super) fn of_several(table: Arc<PartitionMap>, reloader: ReloadService) -> Self {
        let rules = Arc::clone(&table.rules);
        Self { reloader: Some(reloader), ..Self::serving(PumpBackend::Several(table), rules) }
    }

    fn serving(pumps: PumpBackend, rules: Arc<SharedRules>) -> Self {
        let patience = limits::CONTROL_TIMEOUT;
        Self { pumps, rules, reloader: None, patience, is_busy: false }
    }

    /// Makes the context for a connection beyond the maximum number of connections. A request that
    /// could occupy the connection for a long time is refused. Any other request, such as a
    /// decision, is handled as usual, because it may let a waiting connection finish. The time-out
    /// for reading a request is short.
    fn refusing(&self) -> Self {
        let patience = self.patience.min(limits::STANDSTILL_MIN);
        Self { is_busy: true, patience, ..self.clone() }
    }

    /// Identifies the process at the other end of a connection. Must be called at once, while this
    /// process still exists.
    fn caller(&self, stream: &UnixStream) -> SocketCaller {
        self.rules.in_force().rules.caller(stream)
    }

    /// Records a refusal in the journal of a pump of this process. If no pump runs here, logs the
    /// refusal.
    async fn record_denied(&self, denied: &DeniedCaller) {
        match &self.pumps {
            PumpBackend::One(pump) => pump.record_refusal(&denied.sender, &denied.refusal).await,
            PumpBackend::Several(table) => table.record_denied(denied).await,
        }
    }

    /// Makes the response to a request that is refused because there are too many connections.
    fn busy(&self, request: &ServiceRequest) -> ServiceResponse {
        if let ServiceRequest::Submit(submission) = request {
            match &self.pumps {
                PumpBackend::One(pump) => pump.count_busy(&submission.client),
                PumpBackend::Several(table) => table.count_busy(submission),
            }
        }
        try_again(request, TOO_MANY_CONNECTIONS)
    }

    /// Returns the response to a request that must not reach the pump. Returns `None` if the pump
    /// must handle the request.
    async fn judge(
        &self,
        caller: &SocketCaller,
        request: &ServiceRequest,
        handshake: &Handshake,
    ) -> Option<ServiceResponse> {
        let RulesInForce { rules, identity } = &*self.rules.in_force();
        if let Err(denied) = rules.judge(caller, request) {
            if denied.refusal.rule == RefusalRule::Busy {
                return Some(try_again(request, &denied.refusal.message));
            }
            // Read-only queries are refused, too, but not recorded: a command begins with them, and
            // its actual request is recorded.
            if !is_look(request) {
                self.record_denied(&denied).await;
            }
            return Some(refused(request, denied.refusal));
        }
        if let Some(judged) = identity.as_ref().and_then(|own| own.judge(request, handshake)) {
            return Some(match &self.pumps {
                PumpBackend::One(_) => judged,
                PumpBackend::Several(table) => table.refusal_or_unavailable(judged),
            });
        }

        // Decisions and queries are carried out even beyond the bound, because they let waiting
        // connections finish.
        (self.is_busy && request.occupies_connection()).then(|| self.busy(request))
    }

    async fn respond(
        &self,
        request: ServiceRequest,
        responses: ResponseSender,
    ) -> Result<(), Error> {
        // Futures of other requests are boxed, so that they add nothing to each waiting client.
        if let ServiceRequest::Reload { origin } = request {
            let reloading = Box::pin(self.reload_in_time(origin.unwrap_or_default()));
            responses.send(reloading.await).await.ok();
            return Ok(());
        }

        match &self.pumps {
            PumpBackend::One(pump) => pump.respond(request, &responses).await,
            PumpBackend::Several(table) => Box::pin(table.respond(request, &responses)).await,
        }
    }
}

impl ControlContext {
    /// Reloads the config. If the reload takes long because a pump cannot write to its journal,
    /// responds that the result of the reload is not known yet. The reload then continues on its
    /// own task.
    async fn reload_in_time(&self, origin: DecisionOrigin) -> ServiceResponse {
        let context = self.clone();
        let mut reloading = tokio::spawn(async move { context.reload(origin).await });

        loop {
            match timeout(limits::PUMP_RULING_TIMEOUT, &mut reloading).await {
                Ok(Ok(response)) => return response,
                Ok(Err(error)) => return unanswered(&error, false),
                Err(_) => {}
            }
            let obstacle = self.reloader.as_ref().and_then(ReloadService::waits_for);
            if let Some(obstacle) = obstacle {
                let why = PartitionUnavailable::lasting(obstacle.to_string()).unsure();
                return ServiceResponse::Unavailable(why);
            }
        }
    }

    async fn reload(&self, origin: DecisionOrigin) -> ServiceResponse {
        let Some(reloader) = &self.reloader else {
            return ServiceResponse::failed(super::Error::NotReloadable);
        };

        match reloader.reload(origin).await {
            Ok(report) => {
                if let ReloadReport::Applied { before, config, .. } = &report {
                    tracing::info!(target: "config", "the config {config} is in force, in place of {before}");
                }
                ServiceResponse::Reloaded(report)
            }
            Err(super::Error::Service(Error::NotReady { detail })) => {
                ServiceResponse::Unavailable(PartitionUnavailable::lasting(detail))
            }
            Err(super::Error::Service(error @ Error::Panicked)) => {
                ServiceResponse::Unavailable(PartitionUnavailable::failed(error.to_string()))
            }
            Err(error) => ServiceResponse::failed(error),
        }
    }
}

pub struct ControlServer {
    place: Arc<SocketPlace>,
    closing: watch::Sender<bool>,
    reaping: Option<JoinHandle<()>>,
    served: mpsc::Receiver<()>,
}

impl ControlServer {
    /// Opens the socket, and replaces the socket of a pump that has ended. The caller must hold the
    /// journal's lock, which proves that no other pump runs. If the socket's file is removed
    /// later, the server makes it again.
    pub fn open(path: &Path, context: ControlContext) -> io::Result<Self> {
        let (place, listener) = SocketPlace::open(path)?;
        let place = Arc::new(place);
        // Every connection holds a sender of this channel, so the channel closes when all
        // connections have ended.
        let (serving, served) = mpsc::channel(1);
        let (closing, closed) = watch::channel(false);
        tokio::spawn(accept(Arc::clone(&place), listener, context, serving, closed));
        let reaping = children::is_subreaper().then(|| tokio::spawn(reap_orphans()));
        Ok(Self { place, closing, reaping, served })
    }

    /// Stops accepting connections. Returns the connections that are still open.
    pub fn close(self) -> OpenConnections {
        if let Some(reaping) = &self.reaping {
            reaping.abort();
        }

        // The path is removed first: clients that have connected by then are served, and no others
        // can connect.
        self.place.close();
        self.closing.send(true).ok();
        OpenConnections(self.served)
    }
}

/// Serves each connection on its own task, until `closed` reports that the control socket is
/// closed. Then serves the connections that still wait to be accepted, because their clients expect
/// a response, and returns.
///
/// If the sender of `closed` is dropped, the pump has ended without closing the socket. In this
/// case, returns at once, and the waiting connections get no response.
///
/// If the socket's file is missing, continues with a new one.
async fn accept(
    place: Arc<SocketPlace>,
    mut listener: UnixListener,
    context: ControlContext,
    serving: mpsc::Sender<()>,
    mut closed: watch::Receiver<bool>,
) {
    let connections = ConnectionBound::default();
    let mut hosted = HostedConnections::default();
    let mut failures = AcceptFailures::new("a connection on the control socket");
    let mut checks = interval(limits::SOCKET_CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            // Checks for the close first: clients that still wait are served after the loop.
            biased;
            closed = closed.changed() => match closed {
                Ok(()) => break,
                Err(_) => return,
            },
            accepted = listener.accept() => accepted,
            _ = checks.tick() => {
                if let Some(restored) = place.restore() {
                    let removed = std::mem::replace(&mut listener, restored);
                    serve_waiting(removed, &context, &serving, &closed);
                }
                continue;
            }
        };
        match accepted {
            Ok((stream, _)) => {
                failures.end();
                let caller = context.caller(&stream);
                let Ok(hosted_permits) = hosted.permits(&caller) else {
                    tokio::spawn(turn_away(stream));
                    continue;
                };
                // The places beyond the maximum are for the decisions of operators.
                let is_hosted = !hosted_permits.is_empty();
                if is_hosted && connections.is_full() {
                    tokio::spawn(turn_away(stream));
                    continue;
                }
                let (permit, is_busy) = connections.permit().await;
                let context = if is_busy { context.refusing() } else { context.clone() };
                let serving = serving.clone();
                let closed = closed.clone();
                tokio::spawn(async move {
                    serve(stream, caller, context, serving, closed).await;
                    drop(permit);
                    drop(hosted_permits);
                });
            }
            Err(error) => failures.wait_after(&error).await,
        }
    }

    serve_waiting(listener, &context, &serving, &closed);
}

/// Serves the connections that still wait to be accepted by a listener to which no client can
/// connect any more.
fn serve_waiting(
    listener: UnixListener,
    context: &ControlContext,
    serving: &mpsc::Sender<()>,
    closed: &watch::Receiver<bool>,
) {
    // Accepts directly from the system, because the runtime may not have noticed the last
    // connections yet.
    let Ok(listener) = listener.into_std() else { return };

    while let Ok((stream, _)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let Ok(stream) = stream else { continue };
        let caller = context.caller(&stream);
        tokio::spawn(serve(stream, caller, context.clone(), serving.clone(), closed.clone()));
    }
}

/// The connections that were open when the socket was closed.
pub struct OpenConnections(mpsc::Receiver<()>);

impl OpenConnections {
    /// Waits until every connection has sent its last response.
    pub async fn all(&mut self) {
        while self.0.recv().await.is_some() {}
    }

    /// Waits as [`OpenConnections::all`] does, but for a limited time: a client may have sent no
    /// request, or may read no response. Call this function when the pump has ended: the process
    /// could end before a response is sent that the pump has made.
    pub async fn end(mut self) {
        timeout(limits::LAST_RESPONSES_TIMEOUT, self.all()).await.ok();
    }
}

/// Refuses a connection because hosted processes have too many connections. Sends this reason to
/// the client before the connection is closed.
async fn turn_away(mut stream: UnixStream) {
    let why = PartitionUnavailable::lasting(TOO_MANY_HOSTED);
    let Ok(mut line) = encoding::encode(&ServiceResponse::Unavailable(why)) else { return };
    line.push(b'\n');
    // A client that is gone needs no reason.
    stream.write_all(&line).await.ok();
}

async fn serve(
    stream: UnixStream,
    caller: SocketCaller,
    context: ControlContext,
    serving: mpsc::Sender<()>,
    closed: watch::Receiver<bool>,
) {
    let (read, write) = stream.into_split();
    let writer = ResponseWriter { write, patience: context.patience };
    let read = RequestReader { read, lines: LineBuffer::default() };
    let mut connection = ControlConnection { read, writer, serving: Some(serving), closed };
    // A client that has left gets no responses, and a request of an operator lapses.
    if let Err(error) = connection.serve(&context, &caller).await {
        tracing::debug!("a control connection ended early: {error}");
    }
}

struct ControlConnection {
    read: RequestReader,
    writer: ResponseWriter,
    /// Sender that exists while the connection is served. An orderly stop of the server waits
    /// until this sender is dropped. `None` if the stop must not wait for this connection.
    serving: Option<mpsc::Sender<()>>,
    /// True once the socket is closed. From then on, the connection reads no further request.
    closed: watch::Receiver<bool>,
}

impl ControlConnection {
    /// Responds to the first request of the connection. If that request keeps the connection open,
    /// responds to the next one, and so on.
    async fn serve(&mut self, context: &ControlContext, caller: &SocketCaller) -> io::Result<()> {
        // A time-out, because a client that sends nothing or reads nothing would delay an orderly
        // stop.
        let Ok(received) = timeout(context.patience, self.read.next_line()).await else {
            return self.writer.fail("no request came in time").await;
        };

        let mut line = received?;
        while self.respond(&line, context, caller).await? {
            let mut closed = self.closed.clone();
            line = tokio::select! {
                // A request that has arrived is served even if the socket closes at the same
                // moment.
                biased;
                received = timeout(context.patience, self.read.next_line()) => match received {
                    Ok(Ok(next)) if !next.is_empty() => next,
                    _ => return Ok(()),
                },
                // The client may connect again to the organism that runs then.
                _ = closed.wait_for(|closed| *closed) => return Ok(()),
            };
        }

        Ok(())
    }

    /// Responds to one request. Returns whether the connection takes a further request.
    async fn respond(
        &mut self,
        line: &[u8],
        context: &ControlContext,
        caller: &SocketCaller,
    ) -> io::Result<bool> {
        let SocketRequest { mut request, handshake, keep } = match encoding::decode_request(line) {
            Ok(request) => request,
            Err(refusal) => {
                self.writer.write_line(refusal).await?;
                return Ok(false);
            }
        };

        // A connection beyond the bound is closed after its response, to release its permit. So is
        // one whose process was not examined, because only a new connection is examined again.
        let is_kept = keep && !context.is_busy && caller.is_examined();
        match context.judge(caller, &request, &handshake).await {
            Some(response) => self.writer.write(&response).await?,
            None => {
                context.rules.in_force().rules.vouch_for(caller, &mut request);
                self.pass_on(request, is_kept, context).await?;
            }
        }

        if is_kept {
            self.writer.write(&ServiceResponse::End).await?;
        }
        Ok(is_kept)
    }
}

/// Whether the request is a query that a command may send before its actual request. Such a query
/// changes nothing.
fn is_look(request: &ServiceRequest) -> bool {
    matches!(
        request,
        ServiceRequest::Status | ServiceRequest::HeldCalls { .. } | ServiceRequest::FollowJournals
    )
}

/// Makes the response to a request that its sender may repeat in a moment. `why` is the reason.
fn try_again(request: &ServiceRequest, why: &str) -> ServiceResponse {
    let ServiceRequest::Submit(submission) = request else {
        return ServiceResponse::Unavailable(PartitionUnavailable::lasting(why));
    };

    let refusal = Refusal::new(RefusalRule::Busy, why, &submission.payload);
    let retry_after_ms = u64::try_from(limits::BUSY_RETRY.as_millis()).ok();
    ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, retry_after_ms })
}

/// Makes the response that reports a refusal of a request.
pub(super) fn refused(request: &ServiceRequest, refusal: Refusal) -> ServiceResponse {
    match request {
        ServiceRequest::Submit(_) | ServiceRequest::AwaitResults(_) => {
            ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, retry_after_ms: None })
        }
        ServiceRequest::Decide(_)
        | ServiceRequest::Cancel { .. }
        | ServiceRequest::Pause(_)
        | ServiceRequest::Fork(_)
        | ServiceRequest::Retry(_)
        | ServiceRequest::Reload { .. } => ServiceResponse::Ruled(Some(Box::new(refusal))),
        ServiceRequest::HeldThread { .. }
        | ServiceRequest::HeldCalls { .. }
        | ServiceRequest::JournalId { .. }
        | ServiceRequest::FollowJournals
        | ServiceRequest::FollowLive(_)
        | ServiceRequest::Status => ServiceResponse::Failed(refusal.to_string()),
    }
}

impl ControlConnection {
    /// Carries out a request. If the client disconnects meanwhile:
    ///
    /// - Withdraws a request of an operator, such as a pause, unless the pump has already taken it.
    /// - Still carries out any other request, such as a submission.
    /// - No longer waits for the results of calls, so that the connection soon stops counting
    ///   towards the maximum number of connections.
    async fn pass_on(
        &mut self,
        request: ServiceRequest,
        is_kept: bool,
        context: &ControlContext,
    ) -> io::Result<()> {
        let (responses, mut received) = response_queue();
        let context = context.clone();
        let is_query = request.is_query();
        let lapses = request.lapses_with_sender();
        // The client may have given up while this process stood still.
        if lapses && self.read.has_left() {
            return Ok(());
        }

        // A follower of the journals or of the live channel gets no last response that an orderly
        // stop could wait for. It also gets the records that are written during the stop, until the
        // pump has ended.
        let is_follower = request.is_follower();
        if is_follower {
            self.serving = None;
        }

        let responding = tokio::spawn(async move { context.respond(request, responses).await });
        let left = self.read.wait_until_left(is_kept);
        tokio::pin!(left);
        loop {
            let response = tokio::select! {
                // Responses first, so that a client that leaves does not discard one that is ready.
                biased;
                response = received.recv() => response,
                () = &mut left => {
                    drop(received);
                    if lapses {
                        responding.abort();
                    }
                    responding.await.ok();
                    return Ok(());
                }
            };
            let Some(response) = response else { break };
            self.writer.write(&response).await?;
        }
        match responding.await {
            Ok(Ok(())) => Ok(()),
            // The request may be recorded. A connection that ends without a response does not claim
            // otherwise.
            Ok(Err(Error::Stopped)) if is_follower || !is_query => Err(aborted()),
            Ok(Err(error)) => self.writer.fail(error).await,
            Err(error) => {
                let response = unanswered(&error, is_query);
                if is_follower || (error.is_cancelled() && !is_query) {
                    return Err(aborted());
                }
                self.writer.write(&response).await
            }
        }
    }
}

/// Makes the last response to a request whose task ended without one. Does not use the text of
/// `error`, which means nothing to a client. After a panic, the organism still runs, and a request
/// that is no query may have been carried out.
pub(super) fn unanswered(error: &JoinError, is_query: bool) -> ServiceResponse {
    if !error.is_panic() {
        return ServiceResponse::failed(Error::Stopped);
    }

    tracing::error!("a request was not answered: {error}");
    let why = PartitionUnavailable::failed(Error::Panicked.to_string());
    ServiceResponse::Unavailable(if is_query { why } else { why.unsure() })
}

/// Makes the error that ends a connection without a last response.
fn aborted() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Reader of the requests of one connection.
struct RequestReader {
    read: OwnedReadHalf,
    /// Bytes that have arrived after the last complete request.
    lines: LineBuffer,
}

impl RequestReader {
    /// Returns the next line. If the line is too long, or if the client disconnects before the
    /// line's end, returns the part that has arrived.
    async fn next_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(line) = self.lines.take_line() {
                return Ok(line);
            }

            let is_full = self.lines.len() >= limits::FRAME_BYTES_MAX;
            if is_full || self.fill().await? == 0 {
                return Ok(self.lines.take_rest());
            }
        }
    }

    /// Whether the client has disconnected. Queries the operating system, because this process may
    /// not have noticed the disconnect yet.
    fn has_left(&self) -> bool {
        let stream: &UnixStream = self.read.as_ref();
        let mut polled = [PollFd::new(stream, PollFlags::HUP)];
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        // After an error of the poll, the client counts as present.
        poll(&mut polled, Some(&no_wait)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until the client has disconnected, or has sent too many bytes before the response.
    /// Reads from the connection, because only a read shows a disconnect. If `is_kept` is true,
    /// keeps the bytes for the next request; if false, discards them.
    async fn wait_until_left(&mut self, is_kept: bool) {
        loop {
            if !is_kept {
                self.lines.clear();
            }
            let is_full = self.lines.len() >= limits::FRAME_BYTES_MAX;
            if is_full || matches!(self.fill().await, Ok(0) | Err(_)) {
                return;
            }
        }
    }

    /// Reads more bytes and returns their number. Cancel-safe: dropping the future loses no byte.
    async fn fill(&mut self) -> io::Result<usize> {
        let room = READ_BYTES_MIN.max(self.lines.len());
        self.read.read_buf(self.lines.room(room)).await
    }
}

/// Writer of the responses of one connection. A write fails if the client does not read in time.
struct ResponseWriter {
    write: OwnedWriteHalf,
    patience: Duration,
}

impl ResponseWriter {
    async fn fail(&mut self, detail: impl std::fmt::Display) -> io::Result<()> {
        self.write(&ServiceResponse::failed(detail)).await
    }

    async fn write(&mut self, response: &ServiceResponse) -> io::Result<()> {
        self.write_line(encoding::encode(response)?).await
    }

    async fn write_line(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        timeout(self.patience, self.write.write_all(&line)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_task_is_reported_without_the_text_of_the_runtime() {
        let task = tokio::spawn(std::future::pending::<()>());
        task.abort();
        let cancelled = task.await.unwrap_err();
        let response = unanswered(&cancelled, false);
        let ServiceResponse::Failed(detail) = response else { panic!("{response:?}") };
        assert_eq!(detail, Error::Stopped.to_string());
    }

    #[tokio::test]
    async fn a_task_that_panicked_is_not_reported_as_the_end_of_the_organism() {
        let task: JoinHandle<()> = tokio::spawn(async { panic!("no thread is left") });
        let panicked = task.await.unwrap_err();
        for is_query in [false, true] {
            let response = unanswered(&panicked, is_query);
            let ServiceResponse::Unavailable(why) = response else { panic!("{response:?}") };
            assert!(why.detail.starts_with("the request failed inside the organism"), "{why:?}");
            assert_eq!(why.unsure, !is_query);
            assert!(why.failed, "a client repeats it: {why:?}");
        }
    }

    #[tokio::test]
    async fn a_listener_with_too_many_connections_gets_the_reason_for_the_end_of_a_further_one() {
        let (server, mut client) = UnixStream::pair().unwrap();
        turn_away(server).await;
        let mut line = Vec::new();
        client.read_to_end(&mut line).await.unwrap();
        let response = encoding::decode(line.strip_suffix(b"\n").unwrap()).unwrap();
        let ServiceResponse::Unavailable(why) = response else { panic!("{response:?}") };
        assert_eq!(why.detail, TOO_MANY_HOSTED);
        assert!(!why.unsure, "nothing was carried out");
    }
}
