//! The pump's side of an agent on another machine. This module answers the requests that the agent
//! host sends during a delivery. Responses go to the agent host's own inbox.
//!
//! A request contains the token of an attempt, but does not name a thread. So the agent host can
//! only read the thread of this attempt, up to the position of the delivery.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{OnceCell, Semaphore};

use crate::blocking_work;
use crate::bus::Delivery;
use crate::envelope::{NotReserved, Reservation};
use crate::ids::{Digest, Position, ThreadId};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::nats::{HeaderMap, HeaderName, Message};

use super::agent_requests::{
    self, AGENT_PROTOCOL_VERSION, AgentRequest, RequestRefusal, ThreadMark,
};
use super::connection::{OutboundPublish, SendError};
use super::encode::{self, EncodedDelivery};
use super::header_names;
use super::host::NatsShared;
use super::in_flight::AttemptStatus;
use super::responses::ListenerResponse;
use super::tokens::AttemptToken;

/// Source of an agent's threads, for a pump whose agent runs on another machine.
pub trait ThreadSource: Send + Sync + 'static {
    /// Encodes the part of a thread that the agent host lacks. The part ends at the position
    /// `up_to`, because the agent may read no later records. May block on the disk.
    ///
    /// # Errors
    ///
    /// A description of the journal's error.
    fn thread(
        &self,
        thread: &ThreadId,
        known: Option<ThreadMark>,
        up_to: Position,
    ) -> Result<ThreadTransfer, String>;
}

/// An encoded part of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadTransfer {
    /// Position after which this part begins: the end of the records that the agent host already
    /// has. If the host has none, or if the pump does not recognize them, the position is 0, and
    /// the part begins at the start of the thread.
    pub after: Position,
    pub text: Vec<u8>,
    /// Digest of the thread up to the end of the part. The agent host sends this digest with its
    /// next request for the thread.
    pub mark: Digest,
}

/// Settings of an agent that runs on another machine.
#[derive(Clone)]
pub struct RemoteAgentOptions {
    pub memory: Arc<dyn ThreadSource>,
    /// The config with which the agent's prompts are rendered.
    pub config: PromptConfig,
}

/// Digest of the config with which the prompts of remote agents are rendered in new deliveries. All
/// clones share the digest.
#[derive(Debug, Clone)]
pub struct PromptConfig(Arc<Mutex<Digest>>);

impl PromptConfig {
    pub fn new(config: Digest) -> Self {
        Self(Arc::new(Mutex::new(config)))
    }

    /// Sets the config with which the prompts of later deliveries are rendered.
    pub fn set(&self, config: Digest) {
        *locked(&self.0) = config;
    }

    fn digest(&self) -> Digest {
        *locked(&self.0)
    }
}

impl std::fmt::Debug for RemoteAgentOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an agent of the config {}", self.config.digest())
    }
}

/// Attempts of an agent on another machine. For each attempt, the pump sends a thread to the
/// agent's host and receives an answer, both in parts.
pub(super) struct RemoteAgentAttempts {
    options: RemoteAgentOptions,
    /// Open attempts. Never locked while a thread is read or an answer is parsed, because both take
    /// long.
    open: Mutex<HashMap<AttemptToken, RemoteAttempt>>,
    /// Semaphore that limits the number of slow requests that run at the same time.
    permits: Arc<Semaphore>,
}

/// An attempt of a remote agent: the thread that the pump sends to the agent host, and the answer
/// that the agent host sends to the pump in parts.
#[derive(Default)]
struct RemoteAttempt {
    about: Option<(ThreadId, Position)>,
    /// The part of the thread that the host already has, and the encoded remaining part. The
    /// remaining part is empty until the host requests it.
    transfer: (Option<ThreadMark>, Arc<OnceCell<Arc<ThreadTransfer>>>),
    /// The bytes of the answer that have arrived so far.
    answer: Vec<u8>,
    /// Time at which the latest part of the answer arrived; `None` if no part has arrived.
    came: Option<Instant>,
    /// The last part of the answer; `None` before the answer is complete.
    last_part: Option<ReceivedPart>,
}

/// A part of an answer: the bytes from `offset` on, of the `size` bytes of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReceivedPart {
    offset: usize,
    size: usize,
    digest: Digest,
}

impl ReceivedPart {
    /// Whether `part` repeats a part of the answer that ends with this part. Only its last part is
    /// compared by content, because no answer is complete without its last part.
    fn is_repeated_by(&self, part: &Self) -> bool {
        part == self || (part.size == self.size && part.offset < self.offset)
    }
}

/// How a part of an answer was taken.
#[derive(Debug, PartialEq, Eq)]
enum TakenPart {
    /// Further parts are missing.
    Partial,
    /// The part completes this answer.
    Complete(Vec<u8>),
    /// The answer is complete, and contains this part.
    Repeated,
    /// The answer is complete, and the part belongs to another one.
    Foreign,
}

/// Response to a request of an agent host.
#[derive(Default)]
struct AgentResponse {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl RemoteAgentAttempts {
    pub fn new(remote: RemoteAgentOptions) -> Self {
        let permits = Arc::new(Semaphore::new(limits::NATS_REQUESTS_MAX));
        Self { options: remote, open: Mutex::default(), permits }
    }

    /// Adds an attempt that is about to be published, and encodes its delivery. The encoded
    /// delivery contains no messages, because the agent host requests the thread instead.
    pub fn take(&self, token: AttemptToken, delivery: &Delivery) -> EncodedDelivery {
        let about = Some((delivery.thread.clone(), delivery.position));
        locked(&self.open).insert(token, RemoteAttempt { about, ..RemoteAttempt::default() });
        let mut headers = encode::headers(delivery);
        let mut put = |name, value: String| headers.insert(HeaderName::from_static(name), value);
        put(header_names::AGENT_PROTOCOL, AGENT_PROTOCOL_VERSION.to_string());
        put(header_names::POSITION, delivery.position.to_string());
        put(header_names::CONFIG, self.options.config.digest().to_string());
        EncodedDelivery { headers, body: Vec::new() }
    }

    /// Returns the thread of an attempt, or `None` if the attempt is not open.
    pub fn thread_of(&self, token: AttemptToken) -> Option<ThreadId> {
        let open = locked(&self.open);
        open.get(&token)?.about.as_ref().map(|(thread, _)| thread.clone())
    }

    /// Returns the position of an attempt's delivery, or `None` if the attempt is not open.
    pub fn position_of(&self, token: AttemptToken) -> Option<Position> {
        let open = locked(&self.open);
        open.get(&token)?.about.as_ref().map(|(_, position)| *position)
    }

    /// Removes each attempt for which `status` returns [`AttemptStatus::Unknown`]. Also frees
    /// memory of each attempt that was given up or answered:
    /// - The encoded thread of the attempt is dropped at once.
    /// - The received parts of its answer are dropped if the attempt was answered, or when no
    ///   further part has arrived for [`limits::NATS_REQUEST_TOTAL_TIMEOUT`].
    pub fn keep(&self, status: impl Fn(AttemptToken) -> AttemptStatus) {
        locked(&self.open).retain(|token, open| {
            let status = status(*token);
            if matches!(status, AttemptStatus::GivenUp | AttemptStatus::Answered) {
                open.transfer = Default::default();
                let is_stale = |at: Instant| at.elapsed() >= limits::NATS_REQUEST_TOTAL_TIMEOUT;
                if status == AttemptStatus::Answered || open.came.is_none_or(is_stale) {
                    open.answer = Vec::new();
                }
            }
            status != AttemptStatus::Unknown
        });
    }
}

impl RemoteAgentAttempts {
    /// Adds a part of an answer. A part after the last one changes nothing.
    fn part(
        &self,
        token: AttemptToken,
        offset: usize,
        size: usize,
        part: &[u8],
    ) -> Result<TakenPart, RequestRefusal> {
        if size > limits::NATS_ANSWER_BYTES_MAX {
            let most = limits::NATS_ANSWER_BYTES_MAX;
            let detail = format!("the answer has {size} bytes, and at most {most} are accepted");
            return Err(RequestRefusal::new(RequestRefusal::TOO_LARGE, detail));
        }

        let mut open = locked(&self.open);
        let open = open.entry(token).or_default();
        if let Some(last) = &open.last_part {
            let part = ReceivedPart { offset, size, digest: Digest::of(part) };
            let is_repeated = last.is_repeated_by(&part);
            return Ok(if is_repeated { TakenPart::Repeated } else { TakenPart::Foreign });
        }

        open.came = Some(Instant::now());
        let kept = &mut open.answer;
        if offset == 0 {
            kept.clear();
        }

        if offset != kept.len() || offset + part.len() > size {
            let detail = format!("the next part must begin at byte {}", kept.len());
            return Err(RequestRefusal::new(RequestRefusal::OUT_OF_ORDER, detail));
        }

        kept.extend_from_slice(part);
        if kept.len() < size {
            return Ok(TakenPart::Partial);
        }

        open.last_part = Some(ReceivedPart { offset, size, digest: Digest::of(part) });
        Ok(TakenPart::Complete(std::mem::take(kept)))
    }

    /// Whether the answer to an attempt is complete.
    fn is_complete(&self, token: AttemptToken) -> bool {
        locked(&self.open).get(&token).is_some_and(|open| open.last_part.is_some())
    }
}

impl NatsShared {
    /// Handles a request of an agent host. `at` is the token of the attempt that the subject of the
    /// request names; `None` if the subject names none. The attempt with this token may be unknown.
    pub(super) fn handle_request(
        self: &Arc<Self>,
        remote_agents: &Arc<RemoteAgentAttempts>,
        at: Option<AttemptToken>,
        m: &Message,
    ) {
        let Some(request) = agent_requests::read(m) else { return };
        let prefix = format!("{}.", self.subjects().inbox());
        let inbox = m.reply.as_ref().map(|inbox| inbox.as_str()).unwrap_or_default();
        let fits = inbox.starts_with(&prefix) && !inbox.contains(['*', '>', ' ']);
        if !fits && !mutant("tell-anybody") {
            return self.count_refused_request(inbox);
        }

        let inbox = inbox.to_owned();
        let is_complete = at.is_some_and(|token| remote_agents.is_complete(token));
        let Some(token) = at.filter(|token| self.knows(*token) || is_complete) else {
            self.stray(m);
            return self.send_response(inbox, Err(RequestRefusal::gone()));
        };

        if !is_complete {
            self.mark_alive(token);
        }

        match request {
            Ok(AgentRequest::Answer { offset, size }) => {
                let response = match remote_agents.part(token, offset, size, &m.payload) {
                    Ok(TakenPart::Complete(whole)) => {
                        return self.finish_answer(token, whole, inbox, m.clone());
                    }
                    // A host repeats a part whose response did not arrive in time.
                    Ok(TakenPart::Partial | TakenPart::Repeated) => Ok(AgentResponse::default()),
                    Ok(TakenPart::Foreign) => {
                        self.stray(m);
                        Err(RequestRefusal::gone())
                    }
                    Err(refused) => Err(refused),
                };
                self.send_response(inbox, response);
            }
            _ if is_complete => self.send_response(inbox, Err(RequestRefusal::gone())),
            Ok(AgentRequest::Thread { known, offset }) => {
                let shared = Arc::clone(self);
                let attempts = Arc::clone(remote_agents);
                let page = async move { shared.page(&attempts, token, known, offset).await };
                self.aside(remote_agents, inbox, page);
            }
            Ok(AgentRequest::Reserve(request)) => {
                let shared = Arc::clone(self);
                self.aside(
                    remote_agents,
                    inbox,
                    async move { shared.set_aside(token, request).await },
                );
            }
            Err(refused) => self.send_response(inbox, Err(refused)),
        }
    }

    /// Runs a slow request on a separate task, and sends the response to `inbox`. If too many such
    /// tasks run, sends a refusal instead.
    fn aside(
        self: &Arc<Self>,
        remote_agents: &RemoteAgentAttempts,
        inbox: String,
        response: impl Future<Output = Result<AgentResponse, RequestRefusal>> + Send + 'static,
    ) {
        let Ok(permit) = Arc::clone(&remote_agents.permits).try_acquire_owned() else {
            let busy = RequestRefusal::new(RequestRefusal::LATER, "too many questions at once");
            return self.send_response(inbox, Err(busy));
        };

        let shared = Arc::clone(self);
        self.runtime().spawn(async move {
            let response = response.await;
            shared.send_response(inbox, response);
            drop(permit);
        });
    }

    fn send_response(&self, inbox: String, response: Result<AgentResponse, RequestRefusal>) {
        let refusal = |refused: RequestRefusal| AgentResponse {
            headers: refused.headers(),
            body: Vec::new(),
        };

        let AgentResponse { headers, body } = response.unwrap_or_else(refusal);
        let unsent = |unsent: SendError| {
            tracing::warn!("could not send a response to the host of an agent: {}", unsent.detail);
        };

        let subject = inbox;
        let unsent = Box::new(unsent);
        self.wire.put(OutboundPublish { subject, reply: None, headers, body, unsent });
        self.wire.send();
    }

    /// Returns a response with the part of an open attempt's thread that begins at the byte
    /// `offset` of the encoded thread. The encoded thread leaves out `known`, the part that the
    /// agent host already has.
    async fn page(
        &self,
        remote_agents: &RemoteAgentAttempts,
        token: AttemptToken,
        known: Option<ThreadMark>,
        offset: usize,
    ) -> Result<AgentResponse, RequestRefusal> {
        let transfer = self.thread(remote_agents, token, known).await?;
        let whole = &transfer.text;
        // The attempt may have ended while the journal was read.
        self.require_open(token)?;
        let room = self.client().max_payload().saturating_sub(limits::ENVELOPE_BYTES_MAX);
        let part = agent_requests::part(whole, offset, limits::NATS_PAGE_BYTES.min(room));
        let beyond = || {
            RequestRefusal::new(RequestRefusal::UNREADABLE, format!("it has {} bytes", whole.len()))
        };

        let mut headers = HeaderMap::new();
        headers.insert(header_names::SIZE, whole.len().to_string());
        headers.insert(header_names::AFTER, transfer.after.to_string());
        headers.insert(header_names::THREAD_MARK, transfer.mark.to_string());
        Ok(AgentResponse { headers, body: part.ok_or_else(beyond)?.to_vec() })
    }

    fn require_open(&self, token: AttemptToken) -> Result<(), RequestRefusal> {
        let is_open = self.holder(token).is_some() || mutant("remember-for-strangers");
        if is_open { Ok(()) } else { Err(RequestRefusal::gone()) }
    }

    async fn thread(
        &self,
        remote_agents: &RemoteAgentAttempts,
        token: AttemptToken,
        known: Option<ThreadMark>,
    ) -> Result<Arc<ThreadTransfer>, RequestRefusal> {
        self.require_open(token)?;
        let open = locked(&remote_agents.open).get_mut(&token).map(|open| {
            if open.transfer.0 != known {
                open.transfer = (known, Arc::default());
            }
            (open.about.clone(), Arc::clone(&open.transfer.1))
        });
        let ((thread, up_to), transfer) = match open {
            Some((Some(about), transfer)) => (about, transfer),
            _ => return Err(RequestRefusal::gone()),
        };

        // Requests that come while the thread is being read share this one read.
        let read = async || {
            let memory = Arc::clone(&remote_agents.options.memory);
            let read = move || memory.thread(&thread, known, up_to);
            let read = tokio::task::spawn_blocking(read).await;
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            let failed = |detail| {
                RequestRefusal::new(RequestRefusal::LATER, format!("the thread: {detail}"))
            };
            read.map(Arc::new).map_err(failed)
        };

        transfer.get_or_try_init(read).await.cloned()
    }

    async fn set_aside(
        &self,
        token: AttemptToken,
        request: Reservation,
    ) -> Result<AgentResponse, RequestRefusal> {
        let (call, attempt) = self.holder(token).ok_or_else(RequestRefusal::gone)?;
        match self.sink().reserve(call, attempt, request).await {
            Ok(Ok(())) => Ok(AgentResponse::default()),
            Ok(Err(NotReserved::Spent(detail))) => {
                Err(RequestRefusal::new(RequestRefusal::SPENT, detail))
            }
            Ok(Err(NotReserved::Exhausted(detail))) => {
                Err(RequestRefusal::new(RequestRefusal::EXHAUSTED, detail))
            }
            Err(_) => Err(RequestRefusal::new(RequestRefusal::LATER, "the pump has stopped")),
        }
    }

    /// Ends an attempt whose answer is complete. Parses a long answer on another task, so that
    /// parsing does not delay messages of other listeners.
    fn finish_answer(
        self: &Arc<Self>,
        token: AttemptToken,
        whole: Vec<u8>,
        inbox: String,
        last: Message,
    ) {
        let shared = Arc::clone(self);
        let is_short = whole.len() <= limits::NATS_INLINE_CHECK_BYTES;
        let end = move || {
            shared.handle_response(
                token,
                ListenerResponse::Answer(agent_requests::answer(&whole)),
                &last,
            );
            shared.send_response(inbox, Ok(AgentResponse::default()));
        };
        if is_short { end() } else { drop(blocking_work::start(self.runtime(), end)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NothingToSend;

    impl ThreadSource for NothingToSend {
        fn thread(
            &self,
            _: &ThreadId,
            _: Option<ThreadMark>,
            _: Position,
        ) -> Result<ThreadTransfer, String> {
            Ok(ThreadTransfer { after: Position(0), text: Vec::new(), mark: Digest::ZERO })
        }
    }

    fn remote_agents() -> RemoteAgentAttempts {
        let config = PromptConfig::new(Digest::of(b"config"));
        RemoteAgentAttempts::new(RemoteAgentOptions { memory: Arc::new(NothingToSend), config })
    }

    /// The parts of a long answer may be sent again while another task parses the answer.
    #[test]
    fn a_repeated_part_of_a_complete_answer_is_taken_and_a_part_of_another_answer_is_not() {
        let remote_agents = remote_agents();
        let part = |offset, size, part: &[u8]| remote_agents.part(1, offset, size, part);
        assert_eq!(part(0, 9, b"first"), Ok(TakenPart::Partial));
        assert!(!remote_agents.is_complete(1));
        assert_eq!(part(5, 9, b"last"), Ok(TakenPart::Complete(b"firstlast".to_vec())));
        assert!(remote_agents.is_complete(1));

        for status in [AttemptStatus::Out, AttemptStatus::GivenUp, AttemptStatus::Answered] {
            assert_eq!(part(5, 9, b"last"), Ok(TakenPart::Repeated), "{status:?}");
            assert_eq!(part(0, 9, b"first"), Ok(TakenPart::Repeated), "{status:?}");
            assert_eq!(part(5, 9, b"lost"), Ok(TakenPart::Foreign), "{status:?}");
            assert_eq!(part(0, 4, b"last"), Ok(TakenPart::Foreign), "{status:?}");
            remote_agents.keep(|_| status);
        }

        remote_agents.keep(|_| AttemptStatus::Unknown);
        assert!(!remote_agents.is_complete(1));
    }

    #[test]
    fn of_a_turn_that_was_given_up_only_an_answer_is_kept_that_still_comes() {
        let remote_agents = remote_agents();
        for token in [1, 2, 3] {
            assert_eq!(remote_agents.part(token, 0, 9, b"part"), Ok(TakenPart::Partial));
            let mut open = locked(&remote_agents.open);
            let transfer = NothingToSend.thread(&ThreadId::organism(), None, Position(9)).unwrap();
            open.get_mut(&token).unwrap().transfer.1.set(Arc::new(transfer)).unwrap();
        }

        let long_ago = Instant::now().checked_sub(limits::NATS_REQUEST_TOTAL_TIMEOUT);
        locked(&remote_agents.open).get_mut(&2).unwrap().came = long_ago;
        remote_agents.keep(|token| match token {
            3 => AttemptStatus::Out,
            _ => AttemptStatus::GivenUp,
        });
        let kept = |token| {
            let open = locked(&remote_agents.open);
            let open = open.get(&token).unwrap();
            (open.transfer.1.initialized(), open.answer.len())
        };

        assert_eq!([kept(1), kept(2), kept(3)], [(false, 4), (false, 0), (true, 4)]);
        remote_agents.keep(|_| AttemptStatus::Unknown);
        assert!(locked(&remote_agents.open).is_empty());
    }
}
