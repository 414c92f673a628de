//! The sink of an agent host on another machine than the pump. It sends each request to the reply
//! subject of a delivery, so that the pump recognizes the delivery. It repeats each request until
//! the pump responds.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::runtime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::bus::live::{LiveChannel, LiveSource};
use crate::bus::nats::ListenerSubjects;
use crate::bus::nats::agent_requests::{self, AgentRequest, RequestRefusal, ThreadMark};
use crate::bus::nats::header_names;
use crate::bus::nats::in_flight::AttemptKey;
use crate::bus::nats::live::HostTexts;
use crate::bus::nats::remote_agents::ThreadTransfer;
use crate::bus::{Delivery, ModelState, Outcome, Reserved, Sink};
use crate::envelope::{AttemptFailure, NotReserved, Reservation};
use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::locks::locked;
use crate::nats::{Client, HeaderMap, Message, Request, RequestErrorKind};

/// A [`Sink`] that reports to a pump over NATS. Cheap to clone.
#[derive(Clone)]
pub struct RemoteSink(Arc<SharedSink>);

struct SharedSink {
    client: Client,
    subjects: ListenerSubjects,
    runtime: runtime::Handle,
    /// Reply subject of each delivery whose answer has not reached the pump yet. Never locked
    /// across an await.
    held: Mutex<HashMap<AttemptKey, String>>,
    /// Notified when the pump has received the answers to all deliveries.
    idle: Notify,
    texts: HostTexts,
    states: mpsc::UnboundedSender<QueuedState>,
}

/// Entry in the queue from which states of model calls are sent to pumps. One task sends all
/// entries, so that each pump gets the states of a call in order.
enum QueuedState {
    Report {
        subject: String,
        headers: HeaderMap,
    },
    /// Marker in the queue. When all earlier entries are sent, the sending task reports this
    /// through the channel.
    Flush(oneshot::Sender<()>),
}

/// Sends the queued states of model calls until the `RemoteSink` that fills the queue is dropped.
async fn send_states(client: Client, mut states: mpsc::UnboundedReceiver<QueuedState>) {
    while let Some(state) = states.recv().await {
        match state {
            QueuedState::Report { subject, headers } => {
                // A lost state has no effect but on what people see.
                client.publish_with_headers(subject, headers, "".into()).await.ok();
            }
            // The send fails if the waiting task has reached its time limit.
            QueuedState::Flush(done) => drop(done.send(())),
        }
    }
}

impl std::fmt::Debug for RemoteSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a relay to {}", self.0.subjects.answers())
    }
}

impl RemoteSink {
    /// Makes a sink over `client`. The inbox prefix of `client` must be
    /// [`ListenerSubjects::inbox`].
    pub fn new(client: Client, subjects: ListenerSubjects, runtime: runtime::Handle) -> Self {
        let held = Mutex::default();
        let idle = Notify::new();
        let texts = HostTexts::default();
        let (states, queued) = mpsc::unbounded_channel();
        runtime.spawn(send_states(client.clone(), queued));
        Self(Arc::new(SharedSink { client, subjects, runtime, held, idle, texts, states }))
    }

    pub(in crate::bus::nats) fn texts(&self) -> &HostTexts {
        &self.0.texts
    }

    pub(in crate::bus::nats) fn runtime(&self) -> &runtime::Handle {
        &self.0.runtime
    }

    pub(in crate::bus::nats) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(super) fn subjects(&self) -> &ListenerSubjects {
        &self.0.subjects
    }

    /// Returns the reply subjects of all deliveries in progress.
    pub(super) fn replies(&self) -> Vec<String> {
        locked(&self.0.held).values().cloned().collect()
    }

    pub(super) fn hold(&self, key: AttemptKey, reply: String) {
        locked(&self.0.held).insert(key, reply);
    }

    pub(in crate::bus::nats) fn reply(&self, key: AttemptKey) -> Option<String> {
        locked(&self.0.held).get(&key).cloned()
    }

    /// Waits until the pump has received the answers to all deliveries. Does not wait for answers
    /// that the pump has rejected or that could not be sent.
    pub(super) async fn idle(&self) {
        let mut notified = pin!(self.0.idle.notified());
        loop {
            notified.as_mut().enable();
            if locked(&self.0.held).is_empty() {
                return;
            }
            notified.as_mut().await;
            notified.set(self.0.idle.notified());
        }
    }

    /// Downloads the part of a thread that this host lacks, up to the last position that the
    /// delivery permits this agent to read. `known` is the part that this host already has.
    ///
    /// # Errors
    ///
    /// [`AttemptFailure::Unreachable`] if the pump does not send the thread.
    pub async fn thread(
        &self,
        delivery: &Delivery,
        known: Option<ThreadMark>,
    ) -> Result<ThreadTransfer, AttemptFailure> {
        let unread = |detail: String| AttemptFailure::Unreachable {
            detail: format!("the thread cannot be read: {detail}"),
        };

        let reply = self.reply((delivery.call, delivery.attempt));
        let reply = reply.ok_or_else(|| unread("its delivery is not here any more".to_owned()))?;
        let mut whole = Vec::new();
        let mut begun = None;

        loop {
            let ask = AgentRequest::Thread { known, offset: whole.len() };
            let response = self.ask(&reply, &ask, Vec::new()).await;
            let response = response.map_err(|refused| unread(refused.detail))?;
            whole.extend_from_slice(&response.payload);
            // A pump of an earlier version sends the whole thread, and no mark.
            let mark = response.headers.as_ref().and_then(agent_requests::position_and_mark);
            let mark = mark.unwrap_or_default();
            if *begun.get_or_insert(mark) != mark {
                return Err(unread("another pump sent the rest of it".to_owned()));
            }
            let size =
                response.headers.as_ref().and_then(|headers| headers.get(header_names::SIZE));
            let size: Option<usize> = size.and_then(|size| size.as_str().parse().ok());
            match size {
                Some(size) if whole.len() == size => {
                    let (after, mark) = mark;
                    return Ok(ThreadTransfer { after, text: whole, mark });
                }
                Some(size) if whole.len() < size && !response.payload.is_empty() => {}
                _ => return Err(unread("its parts do not fit together".to_owned())),
            }
        }
    }

    /// Sends a request, and repeats it until the pump responds. Gives up when
    /// [`limits::NATS_REQUEST_TOTAL_TIMEOUT`] has passed.
    async fn ask(
        &self,
        reply: &str,
        ask: &AgentRequest,
        part: Vec<u8>,
    ) -> Result<Message, RequestRefusal> {
        let until = Instant::now() + limits::NATS_REQUEST_TOTAL_TIMEOUT;
        let body = match ask {
            AgentRequest::Answer { .. } => part,
            _ => ask.body(),
        };

        loop {
            let request = Request::new()
                .headers(ask.headers())
                .payload(body.clone().into())
                .timeout(Some(limits::NATS_REQUEST_TIMEOUT));
            let request = self.0.client.send_request(reply.to_owned(), request);
            // A connection that has been lost for long accepts no more requests, so sending may
            // block and needs a time limit, too.
            let Ok(answer) = timeout(2 * limits::NATS_REQUEST_TIMEOUT, request).await else {
                return Err(RequestRefusal::new(
                    RequestRefusal::LATER,
                    "the connection accepts no more requests",
                ));
            };
            let silent = match answer {
                Ok(response) => match RequestRefusal::of(&response) {
                    None => return Ok(response),
                    Some(refused) if refused.code != RequestRefusal::LATER => return Err(refused),
                    Some(refused) => refused,
                },
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    RequestRefusal::new(RequestRefusal::LATER, "its pump is gone")
                }
                Err(error) => RequestRefusal::new(RequestRefusal::LATER, error.to_string()),
            };
            if Instant::now() >= until {
                return Err(silent);
            }
            sleep(limits::NATS_REQUEST_RETRY).await;
        }
    }

    /// Sends an answer to the pump in parts, each of which fits into one message.
    async fn answer(&self, reply: &str, whole: &[u8]) -> Result<(), RequestRefusal> {
        let room = self.0.client.max_payload().saturating_sub(limits::ENVELOPE_BYTES_MAX);
        let most = limits::NATS_PAGE_BYTES.min(room);
        let size = whole.len();
        let mut offset = 0;

        while let Some(part) =
            agent_requests::part(whole, offset, most).filter(|part| !part.is_empty())
        {
            self.ask(reply, &AgentRequest::Answer { offset, size }, part.to_vec()).await?;
            offset += part.len();
        }

        Ok(())
    }

    async fn put_answer(&self, key: AttemptKey, answer: Result<Outcome, AttemptFailure>) {
        let Some(reply) = self.reply(key) else { return };
        let mut whole = agent_requests::write(answer);
        if whole.len() > limits::NATS_ANSWER_BYTES_MAX {
            let detail = format!("an answer of {} bytes", whole.len());
            whole = agent_requests::write(Err(AttemptFailure::Garbage { detail }));
        }

        let mut taken = self.answer(&reply, &whole).await;
        if matches!(&taken, Err(refused) if refused.code == RequestRefusal::OUT_OF_ORDER) {
            // The response to a part was lost and the part was repeated, so the pump found it out
            // of order. Start again.
            taken = self.answer(&reply, &whole).await;
        }

        match taken {
            Ok(()) => {}
            Err(refused) if refused.code == RequestRefusal::GONE => {
                tracing::info!("the pump dropped an answer, because its attempt had already ended");
            }
            Err(refused) => {
                tracing::warn!("the pump rejected an answer, so the turn will be repeated: {}", {
                    refused.detail
                });
            }
        }

        locked(&self.0.held).remove(&key);
        self.0.idle.notify_waiters();
    }

    async fn put_reservation(
        &self,
        key: AttemptKey,
        reservation: Reservation,
    ) -> Option<Result<(), NotReserved>> {
        let reply = self.reply(key)?;
        match self.ask(&reply, &AgentRequest::Reserve(reservation), Vec::new()).await {
            Ok(_) => Some(Ok(())),
            Err(RequestRefusal { code: RequestRefusal::SPENT, detail }) => {
                Some(Err(NotReserved::Spent(detail)))
            }
            Err(RequestRefusal { code: RequestRefusal::EXHAUSTED, detail }) => {
                Some(Err(NotReserved::Exhausted(detail)))
            }
            Err(refused) => {
                tracing::warn!(
                    "the pump rejected the reservation of a model call, so the call is not made: \
                     {}",
                    refused.detail
                );
                None
            }
        }
    }

    /// Queues a state of a model call for the pump of the attempt.
    pub(in crate::bus::nats) fn queue_state(&self, source: &LiveSource, state: &ModelState) {
        let Some((subject, headers)) = self.state_message(source, state) else { return };
        // The send fails only while the runtime shuts down.
        self.0.states.send(QueuedState::Report { subject, headers }).ok();
    }

    /// Waits until all states that were queued before this call are sent.
    pub(in crate::bus::nats) async fn flush_states(&self) {
        let (done, flushed) = oneshot::channel();
        self.0.states.send(QueuedState::Flush(done)).ok();
        flushed.await.ok();
    }

    /// Waits until the server has received all earlier messages of this sink. For this purpose,
    /// sends a request on a subject without subscribers. The server itself responds to this
    /// request, and only after it has received all earlier messages.
    pub(super) async fn wait_until_arrived(&self) {
        let request = Request::new().timeout(Some(limits::NATS_SUBSCRIBE_TIMEOUT));
        let subject = self.0.subjects.answer("arrived");
        // If another client subscribes to the subject, no reply comes and the request times out.
        self.0.client.send_request(subject, request).await.ok();
    }

    /// Publishes a message with the given headers and an empty body.
    pub(in crate::bus::nats) async fn publish_headers(&self, subject: String, headers: HeaderMap) {
        // If the message is lost, the pump notices that no keep-alive arrives.
        self.0.client.publish_with_headers(subject, headers, "".into()).await.ok();
    }
}

impl Sink for RemoteSink {
    fn ended(
        &self,
        _: &ListenerName,
        call: CallId,
        attempt: Attempt,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.0.texts.channel.attempt_ended(call, attempt);
        let relay = self.clone();
        self.0.runtime.spawn(async move {
            // States and texts are sent before the answer, because the pump shows none of an
            // answered attempt.
            let sent = async {
                relay.flush_states().await;
                relay.relay_queued().await;
            };
            timeout(limits::LIVE_DRAIN_TIMEOUT, sent).await.ok();
            relay.put_answer((call, attempt), result).await;
        });
    }

    fn heartbeat(&self, _: &ListenerName, call: CallId, attempt: Attempt) {
        let Some(reply) = self.reply((call, attempt)) else { return };
        let mut headers = HeaderMap::new();
        headers.insert(header_names::HEARTBEAT, "1");
        let relay = self.clone();
        self.0.runtime.spawn(async move { relay.publish_headers(reply, headers).await });
    }

    fn model_state(&self, source: &LiveSource, state: ModelState) {
        // The task that relays texts also queues this state, in its place between the texts.
        if self.texts().is_relaying() {
            return;
        }

        self.queue_state(source, &state);
    }

    fn reserve(&self, call: CallId, attempt: Attempt, reservation: Reservation) -> Reserved {
        let (answer, reserved) = oneshot::channel();
        let relay = self.clone();
        self.0.runtime.spawn(async move {
            if let Some(response) = relay.put_reservation((call, attempt), reservation).await {
                // The send fails if the requesting attempt was cancelled.
                answer.send(response).ok();
            }
        });
        reserved
    }

    fn live(&self) -> Option<&Arc<LiveChannel>> {
        Some(&self.0.texts.channel)
    }

    fn joined(&self, _: &ListenerName, _: &str) {}

    fn left(&self, _: &ListenerName, _: &str) {}
}
