//! The NATS side of an agent that runs on another machine than the pump (docs/PROTOCOL.md, section
//! 13). This module receives the deliveries of one agent over NATS, passes them to the agent's host
//! in this process, and sends keep-alives for each delivery in progress.

mod configured_hosts;
mod remote_sink;

use std::pin::{Pin, pin};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{OptionFuture, join_all};
use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::task::unconstrained;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::bus::{Delivery, DeliveryPreview, Host, Sink as _};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, Digest, ListenerName, Position, ThreadId};
use crate::limits;
use crate::nats::{HeaderMap, Message, Subscriber};

use super::agent_requests::{AGENT_PROTOCOL_VERSION, version_difference, version_of};
use super::service::{Service, ServiceVerb};
use super::{Error, header_names};
pub use configured_hosts::ConfiguredHosts;
pub use remote_sink::RemoteSink;

/// Stream of discovery requests for NATS services. Each request comes with the kind of discovery
/// that its subject names: ping, info or stats.
type DiscoveryRequests =
    SelectAll<Pin<Box<dyn Stream<Item = (ServiceVerb, Message)> + Send + Sync>>>;

/// The NATS side of one agent that runs on another machine than the pump.
pub struct RemoteAgentHost {
    listener: ListenerName,
    relay: RemoteSink,
    hosts: ConfiguredHosts,
    service: Service,
    deliveries: Subscriber,
    cancels: Subscriber,
    questions: DiscoveryRequests,
    /// Number of the connection on which the agent's presence was last announced. Each reconnect
    /// begins a connection with a higher number.
    announced_on: u64,
}

impl std::fmt::Debug for RemoteAgentHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "agent host of {}", self.listener)
    }
}

impl RemoteAgentHost {
    /// Subscribes to the deliveries of `listener`. Deliveries for the config `config` go to `host`,
    /// which sends its reports through `relay`. Deliveries for another config are accepted as soon
    /// as a host for that config is added.
    pub async fn open(
        organism: &str,
        listener: ListenerName,
        config: Digest,
        relay: RemoteSink,
        host: Arc<dyn Host>,
    ) -> Result<Self, Error> {
        let service = Service::new(organism, &listener, limits::NATS_LEASE, "agent");
        let client = relay.client();
        let failed = |subject: String, detail: String| move || Error::Subscribe { subject, detail };
        let subscribe_to = async |subject: String, group: Option<String>| {
            let subscribed = match group {
                Some(group) => client.queue_subscribe(subject.clone(), group).await,
                None => client.subscribe(subject.clone()).await,
            };
            subscribed.map_err(|error| failed(subject, error.to_string())())
        };

        let cancels = subscribe_to(relay.subjects().cancels(), None).await?;
        let mut streams: Vec<Pin<Box<dyn Stream<Item = _> + Send + Sync>>> = Vec::new();
        for (verb, subject) in service.subjects() {
            let questions = subscribe_to(subject, None).await?;
            streams.push(Box::pin(questions.map(move |message| (verb, message))));
        }

        // The subscription to deliveries comes last, so that everything that a delivery may need is
        // subscribed by then.
        let deliveries =
            subscribe_to(relay.subjects().deliveries(), Some(listener.to_string())).await?;
        let questions = select_all(streams);
        relay.wait_until_arrived().await;
        Ok(Self {
            listener,
            relay,
            hosts: ConfiguredHosts::new(config, host),
            service,
            deliveries,
            cancels,
            questions,
            announced_on: 0,
        })
    }

    /// Returns the hosts that receive the deliveries.
    pub fn hosts(&self) -> ConfiguredHosts {
        self.hosts.clone()
    }

    /// Serves deliveries until `stopped` completes. Then refuses new deliveries, and returns when
    /// all running deliveries are answered.
    pub async fn serve(mut self, stopped: impl Future<Output = ()>) {
        let mut stopped = pin!(stopped.fuse());
        let mut beat = interval(limits::NATS_LEASE / 3);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leave_by: Option<Instant> = None;
        let mut ending: OptionFuture<Pin<Box<dyn Future<Output = ()> + Send>>> = None.into();
        let mut is_ending = false;

        loop {
            let patience = async {
                match leave_by {
                    Some(by) => sleep_until(by).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Deliveries are read first, so that a cancellation finds the delivery that it
                // concerns. They cannot starve the other branches, because the pump has no more of
                // them in flight than the agent's concurrency.
                biased;
                message = self.deliveries.next(), if !is_ending => match message {
                    Some(message) => self.take(&message),
                    // The client has ended, so no answer of a running turn can reach the pump.
                    None if leave_by.is_none() => {
                        let hosts = self.hosts.hosts();
                        join_all(hosts.iter().map(|host| host.stop())).await;
                        return;
                    }
                    None => (is_ending, ending) = (true, self.end()),
                },
                () = patience, if !is_ending => (is_ending, ending) = (true, self.end()),
                Some(()) = &mut ending, if is_ending => return,
                _ = beat.tick() => {
                    // A lost connection eventually accepts no more messages. The time limit keeps
                    // this loop going.
                    let living = self.live(leave_by.is_some());
                    timeout(limits::NATS_LEASE / 3, living).await.ok();
                }
                Some(cancel) = self.cancels.next() => {
                    if !is_ending {
                        self.take_waiting();
                    }
                    self.cancel(&cancel);
                }
                Some((verb, message)) = self.questions.next(), if leave_by.is_none() => {
                    self.explain(verb, message).await;
                }
                () = &mut stopped, if leave_by.is_none() => {
                    leave_by = Some(Instant::now() + limits::CANCEL_GRACE);
                    // Without a connection the drain cannot finish, but then no more deliveries can
                    // arrive.
                    timeout(limits::CANCEL_GRACE, self.deliveries.drain()).await.ok();
                }
            }
        }
    }

    /// Returns a future that ends when all running deliveries have ended, and their answers have
    /// reached the pump.
    fn end(&self) -> OptionFuture<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let relay = self.relay.clone();
        let hosts = self.hosts.hosts();
        let ending: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            join_all(hosts.iter().map(|host| host.drain())).await;
            relay.idle().await;
            timeout(limits::CANCEL_GRACE, relay.client().flush()).await.map(drop).ok();
        });
        Some(ending).into()
    }

    /// Takes the deliveries that have already arrived. Called before a cancellation is handled,
    /// because the cancellation may concern one of these deliveries.
    fn take_waiting(&mut self) {
        while let Some(Some(message)) = unconstrained(self.deliveries.next()).now_or_never() {
            self.take(&message);
        }
    }

    fn take(&self, message: &Message) {
        let (Some(reply), Some(headers)) = (&message.reply, &message.headers) else { return };
        let theirs = version_of(headers);
        let (delivery, config) = match delivery(&self.listener, headers) {
            Ok(read) => read,
            Err(why) => {
                return tracing::error!(
                    "ignored a delivery of version {theirs} of the agent protocol that cannot be \
                     decoded: {why}"
                );
            }
        };

        let call = delivery.call;
        let attempt = delivery.attempt;
        self.relay.hold((call, attempt), reply.to_string());
        let detail = if theirs == AGENT_PROTOCOL_VERSION {
            let Err(newest) = self.hosts.deliver(&config, delivery) else { return };
            format!(
                "its host has another config than the pump, {newest} and not {config}: give both \
                 the same config file, the same prompt and schema files, and the same variables, \
                 and send the host SIGHUP or restart it"
            )
        } else {
            version_difference(AGENT_PROTOCOL_VERSION, theirs)
        };
        tracing::error!(agent = %self.listener, "{detail}");
        let relay = self.relay.clone();
        let listener = self.listener.clone();
        tokio::spawn(async move {
            // Another agent host may soon have the right config and the right program: a rolling
            // upgrade does not restart the pump and all hosts at once.
            sleep(limits::NATS_OTHER_CONFIG_DELAY).await;
            relay.ended(&listener, call, attempt, Err(AttemptFailure::Unreachable { detail }));
        });
    }

    /// Handles a message that was sent to all hosts of the agent. It is either the cancellation of
    /// a delivery, or a pump's request for the text that the agent's models write.
    fn cancel(&self, message: &Message) {
        if self.relay.note_watcher(message) {
            return;
        }

        let Some(head) = message.headers.as_ref().map(DeliveryHeaders) else { return };
        if let (Ok(call), Ok(attempt)) =
            (head.parsed(header_names::CALL), head.parsed(header_names::ATTEMPT))
        {
            self.hosts.cancel(CallId(call), attempt);
        }
    }

    /// Sends a keep-alive for each delivery in progress. If `is_leaving` is false, also announces
    /// the agent's presence, once on each connection.
    async fn live(&mut self, is_leaving: bool) {
        let connection = self.relay.client().statistics().connects.load(Ordering::Relaxed);
        let mut subjects = self.relay.replies();
        let is_new = self.announced_on != connection && !is_leaving;
        if is_new {
            subjects.push(self.relay.subjects().here());
        }

        for subject in subjects {
            self.relay.publish_headers(subject, lease()).await;
        }

        if is_new {
            self.announced_on = connection;
        }
    }

    /// Answers a discovery request for NATS services (ADR-32).
    async fn explain(&self, verb: ServiceVerb, message: Message) {
        let Some(reply) = message.reply else { return };
        if !self.relay.subjects().may_ask(&reply) {
            return;
        }

        let text = self.service.answer(verb).to_string();
        let client = self.relay.client();
        client.publish_with_headers(reply, lease(), text.into()).await.ok();
    }
}

fn lease() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header_names::LEASE, limits::NATS_LEASE.as_secs_f64().to_string());
    headers
}

struct DeliveryHeaders<'h>(&'h HeaderMap);

impl DeliveryHeaders<'_> {
    fn text(&self, name: &'static str) -> Result<&str, String> {
        let value = self.0.get(name).map(|value| value.as_str());
        value.ok_or_else(|| format!("it has no header `{name}`"))
    }

    fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("`{text}` is not a valid `{name}`"))
    }
}

/// Decodes a delivery and the digest of its config from headers. The delivery has no messages yet.
fn delivery(listener: &ListenerName, headers: &HeaderMap) -> Result<(Delivery, String), String> {
    let head = DeliveryHeaders(headers);
    let seconds: f64 = head.parsed(header_names::TIMEOUT)?;
    let attempt: Attempt = head.parsed(header_names::ATTEMPT)?;
    let delivery = Delivery {
        listener: listener.clone(),
        call: CallId(head.parsed(header_names::CALL)?),
        thread: ThreadId::parse(head.text(header_names::THREAD)?).map_err(|e| e.to_string())?,
        attempt,
        messages: Vec::new(),
        fresh: 0,
        position: Position(head.parsed(header_names::POSITION)?),
        timeout: Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?,
        trace: headers.get(header_names::TRACE).and_then(|text| text.as_str().parse().ok()),
        preview: DeliveryPreview::None,
        source: None,
        uncounted: Vec::new(),
    };

    Ok((delivery, head.text(header_names::CONFIG)?.to_owned()))
}
