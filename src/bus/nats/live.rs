//! The live channel for agents on other machines (docs/PROTOCOL.md, section 13). It shows people
//! the states of model calls, and the text that models write. While an operator reads this text,
//! the pump requests it repeatedly. An agent host sends text only to pumps with a recent request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::time::{sleep, timeout};

use super::agent_host::RemoteSink;
use super::host::NatsShared;
use super::tokens::AttemptToken;
use super::{connection, header_names};
use crate::bus::ModelState;
use crate::bus::live::{AnswerPart, LiveChannel, LiveEvent, LiveFilter, LiveReader, LiveSource};
use crate::clock::Time;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::locks::locked;
use crate::nats::{HeaderMap, HeaderName, Message};

/// Values of the header [`header_names::MODEL_TEXT`]. Each value stands for one part of an answer.
const PARTS: [(&str, AnswerPart); 2] =
    [("answer", AnswerPart::Answer), ("reasoning", AnswerPart::Reasoning)];

impl NatsShared {
    /// Requests the text that models write, from every host of the agent. Repeats the request as
    /// long as an operator reads such text at this pump.
    pub(super) async fn ask_for_texts(self: Arc<Self>) {
        let Some(mut watched) = self.sink().live().map(|live| live.watched()) else { return };
        while watched.wait_for(|is_watched| *is_watched).await.is_ok() {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(header_names::LIVE), self.name().to_owned());
            let unsent = |unsent: connection::SendError| {
                tracing::debug!("could not ask the hosts of an agent for texts: {}", unsent.detail);
            };

            let subject = self.subjects().cancels();
            let reply = None;
            let body = Vec::new();
            let unsent = Box::new(unsent);
            self.wire.put(connection::OutboundPublish { subject, reply, headers, body, unsent });
            self.wire.send();
            sleep(limits::LIVE_INTEREST_INTERVAL).await;
        }
    }

    /// Passes the state of a model call, which an agent host has reported, to the live channel and
    /// to the sink. Does nothing if the attempt with `token` is not in flight.
    pub(super) fn show_model_state(
        &self,
        token: AttemptToken,
        state: ModelState,
        message: &Message,
    ) {
        let Some(source) = self.live_source(token) else { return };
        let headers = message.headers.as_ref();
        let streams =
            headers.is_some_and(|head| header_names::value(head, header_names::STREAMS).is_some());
        if let Some(live) = self.sink().live() {
            live.model_state(&source, &state, streams);
        }
        self.sink().model_state(&source, state);
    }

    /// Returns whether `message` contains a piece of a model's text. If it does, and the attempt
    /// with `token` is in flight, passes the text to the live channel.
    pub(super) fn show_model_text(&self, token: Option<AttemptToken>, message: &Message) -> bool {
        let Some(headers) = &message.headers else { return false };
        let Some(part) = header_names::value(headers, header_names::MODEL_TEXT) else {
            return false;
        };

        let part = PARTS.iter().find(|(name, _)| *name == part).map(|(_, part)| *part);
        let text = std::str::from_utf8(&message.payload).ok();
        let text = text.filter(|text| text.len() <= limits::LIVE_TEXT_BYTES);
        let source = token.and_then(|token| self.live_source(token));
        let (Some(source), Some(live)) = (source, self.sink().live()) else { return true };

        let lost =
            header_names::value(headers, header_names::LOST).and_then(|lost| lost.parse().ok());
        if let Some(lost) = lost {
            live.lost(&source, lost);
        }
        if let (Some(part), Some(text)) = (part, text) {
            live.text(&source, part, text);
        }
        true
    }

    fn live_source(&self, token: AttemptToken) -> Option<LiveSource> {
        let (call, attempt) = self.holder(token)?;
        let thread = self.remote_agents()?.thread_of(token)?;
        Some(LiveSource { thread, agent: self.options.listener.clone(), call, attempt })
    }
}

/// The states and texts of model calls at an agent host, and the pumps that requested the texts.
#[derive(Debug, Default)]
pub(super) struct HostTexts {
    pub channel: Arc<LiveChannel>,
    /// Pumps that requested the text of models, and the relay that sends the text to these pumps.
    /// Never locked across an await.
    watchers: Mutex<TextWatchers>,
    /// State that was reported last for each running model call, and the reply subject to which it
    /// was sent. Never locked across an await.
    reported: Mutex<HashMap<(CallId, Attempt), (String, ModelState)>>,
    /// Number of lost events that were not reported to a pump yet. The lock is also held while
    /// events are taken from the queue and published, so that the events stay in order.
    lost: tokio::sync::Mutex<u64>,
}

#[derive(Debug, Default)]
struct TextWatchers {
    /// Time at which each pump last requested the text of models. The key is the token of the pump
    /// in the reply subjects of its deliveries.
    pumps: HashMap<String, Instant>,
    /// The running relay to the pumps that requested the text of models; `None` if there is none.
    relay: Option<Arc<LiveRelay>>,
}

impl TextWatchers {
    /// Removes pumps whose last request for text is older than [`limits::LIVE_INTEREST_VALIDITY`].
    fn remove_expired(&mut self) {
        self.pumps.retain(|_, since| since.elapsed() < limits::LIVE_INTEREST_VALIDITY);
    }
}

/// A subscription of an agent host to its own live events. A task sends these events to the pumps
/// that requested the text of models.
#[derive(Debug)]
struct LiveRelay {
    reader: LiveReader,
    /// Time at which this relay started. States from before this time may already have been sent to
    /// the pump without the relay.
    opened: Time,
}

impl HostTexts {
    /// Whether a relay runs. A running relay sends all events to the pumps, so that states of model
    /// calls need not be sent directly.
    pub fn is_relaying(&self) -> bool {
        locked(&self.watchers).relay.is_some()
    }

    /// Whether the pump behind the reply subject `reply` requested the text of models during the
    /// last [`limits::LIVE_INTEREST_VALIDITY`].
    fn is_watched_at(&self, reply: &str) -> bool {
        let watchers = locked(&self.watchers);
        let last_request = reply.rsplit('.').nth(1).and_then(|pump| watchers.pumps.get(pump));
        last_request.is_some_and(|since| since.elapsed() < limits::LIVE_INTEREST_VALIDITY)
    }

    /// Records that `pump` requested the text of models. If no relay runs, returns a new relay, and
    /// the caller must start the task that sends the events of this relay. Returns `None` if a
    /// relay runs already.
    fn watch(&self, pump: &str) -> Option<Arc<LiveRelay>> {
        let mut watchers = locked(&self.watchers);
        watchers.remove_expired();
        let is_known = watchers.pumps.contains_key(pump);
        if is_known || watchers.pumps.len() < limits::LIVE_PUMPS_MAX {
            watchers.pumps.insert(pump.to_owned(), Instant::now());
        }
        if watchers.relay.is_some() {
            return None;
        }

        // The reader is open before `is_relaying` holds, so that it misses no state that the
        // agents leave to it.
        let opened = Time::now();
        let reader = self.channel.open(LiveFilter { within: None, text: true });
        let relay = Arc::new(LiveRelay { reader, opened });
        watchers.relay = Some(Arc::clone(&relay));
        Some(relay)
    }

    /// Ends the relay if no pump has requested the text of models recently, and returns whether the
    /// relay has ended. Before the end, calls `take_over`, which must report the states that are
    /// still in the relay's queue. All later states are reported without the relay, so the queued
    /// states must come first.
    fn end_relay(&self, take_over: impl FnOnce()) -> bool {
        let mut watchers = locked(&self.watchers);
        watchers.remove_expired();
        if !watchers.pumps.is_empty() {
            return false;
        }

        take_over();
        watchers.relay = None;
        true
    }

    /// Whether the last report about this attempt was `state`, sent to the subject `reply`.
    fn was_reported(&self, source: &LiveSource, reply: &str, state: &ModelState) -> bool {
        let reported = locked(&self.reported);
        let last = reported.get(&(source.call, source.attempt));
        last.is_some_and(|(subject, last)| subject == reply && last == state)
    }

    /// Records that a state of an attempt was reported. Also forgets each attempt for which
    /// `is_held` returns false, because this host no longer handles it.
    fn note_report(
        &self,
        source: &LiveSource,
        reply: &str,
        state: &ModelState,
        is_held: impl Fn((CallId, Attempt)) -> bool,
    ) {
        let mut reported = locked(&self.reported);
        reported.retain(|key, _| is_held(*key));
        let key = (source.call, source.attempt);
        if *state == ModelState::Ended {
            reported.remove(&key);
        } else {
            reported.insert(key, (reply.to_owned(), state.clone()));
        }
    }
}

impl RemoteSink {
    /// Returns whether `message` requests the text of models. If so, records which pump sent it.
    pub(in crate::bus::nats) fn note_watcher(&self, message: &Message) -> bool {
        let pump =
            message.headers.as_ref().and_then(|head| header_names::value(head, header_names::LIVE));
        let Some(pump) = pump else { return false };

        if let Some(relay) = self.texts().watch(pump) {
            let sink = self.clone();
            self.runtime().spawn(async move { sink.relay_events(&relay).await });
        }
        true
    }

    /// Sends events to the pumps that requested the text of models. Returns when no pump has a
    /// recent request.
    async fn relay_events(&self, relay: &LiveRelay) {
        loop {
            timeout(limits::LIVE_INTEREST_INTERVAL, relay.reader.filled()).await.ok();
            self.relay_queued_of(relay).await;
            let _order = self.texts().lost.lock().await;
            if self.texts().end_relay(|| self.relay_last_states(relay)) {
                return;
            }
        }
    }

    /// Queues the model states that are still in the queue of a relay at its end. Drops the texts
    /// there, because no pump has requested them recently.
    fn relay_last_states(&self, relay: &LiveRelay) {
        while let Some(event) = relay.reader.next_queued() {
            if let LiveEvent::Model { source, state, since, .. } = event {
                self.relay_state(relay, &source, &state, since);
            }
        }
    }

    /// Sends every queued event. Called before an answer is sent, so that the answer does not
    /// overtake the text of its turn.
    pub(super) async fn relay_queued(&self) {
        let relay = locked(&self.texts().watchers).relay.clone();
        if let Some(relay) = relay {
            self.relay_queued_of(&relay).await;
        }
    }

    async fn relay_queued_of(&self, relay: &LiveRelay) {
        let mut lost = self.texts().lost.lock().await;

        // Bounded, because other attempts may queue events at the same time.
        for _ in 0..limits::LIVE_EVENTS_MAX {
            match relay.reader.next_queued() {
                Some(LiveEvent::Text { source, part, text }) => {
                    self.relay_text(&source, part, text, &mut lost).await;
                }
                Some(LiveEvent::Lost { events }) => *lost = lost.saturating_add(events.max(1)),
                Some(LiveEvent::Model { source, state, since, .. }) => {
                    self.relay_state(relay, &source, &state, since);
                    // Later texts must not overtake the state.
                    self.flush_states().await;
                }
                Some(LiveEvent::Opened { .. } | LiveEvent::Unwatched { .. }) => {}
                None => return,
            }
        }
    }

    /// Queues a state of a model call for the pump of its attempt. Does nothing if this state was
    /// set before the relay started, and was already reported to the pump.
    fn relay_state(&self, relay: &LiveRelay, source: &LiveSource, state: &ModelState, since: Time) {
        let Some(reply) = self.reply((source.call, source.attempt)) else { return };
        if since <= relay.opened && self.texts().was_reported(source, &reply, state) {
            return;
        }
        self.queue_state(source, state);
    }

    async fn relay_text(
        &self,
        source: &LiveSource,
        part: AnswerPart,
        text: String,
        lost: &mut u64,
    ) {
        let reply = self.reply((source.call, source.attempt));
        let Some(reply) = reply.filter(|reply| self.texts().is_watched_at(reply)) else { return };
        let name = PARTS.iter().find(|(_, known)| *known == part).map_or("", |(name, _)| *name);

        let mut headers = HeaderMap::new();
        headers.insert(header_names::MODEL_TEXT, name);
        if *lost > 0 {
            headers.insert(header_names::LOST, std::mem::take(lost).to_string());
        }
        // A lost text has no effect but a gap in the live channel.
        self.client().publish_with_headers(reply, headers, text.into()).await.ok();
    }

    /// Returns the subject and the headers of a message that reports a state to the attempt's pump,
    /// and records that this state is reported. Returns `None` if this host no longer handles the
    /// attempt.
    pub(super) fn state_message(
        &self,
        source: &LiveSource,
        state: &ModelState,
    ) -> Option<(String, HeaderMap)> {
        let reply = self.reply((source.call, source.attempt))?;
        self.texts().note_report(source, &reply, state, |key| self.reply(key).is_some());
        let state = serde_json::to_string(state).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(header_names::MODEL_STATE, state);
        headers.insert(header_names::STREAMS, "1");
        Some((reply, headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListenerName, MessageId, ThreadId};

    const REPLY: &str = "answers.pump-a.token";

    fn source() -> LiveSource {
        LiveSource {
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            agent: ListenerName::parse("writer").unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n: 1 },
        }
    }

    fn streaming() -> ModelState {
        ModelState::Streaming("a/b".to_owned())
    }

    /// Returns the states in the queue of a relay.
    fn queued(relay: &LiveRelay) -> Vec<(ModelState, Time)> {
        let events = std::iter::from_fn(|| relay.reader.next_queued());
        let states = events.filter_map(|event| match event {
            LiveEvent::Model { state, since, .. } => Some((state, since)),
            _ => None,
        });
        states.collect()
    }

    #[test]
    fn a_relay_knows_which_running_calls_their_pump_has_the_state_of() {
        let texts = HostTexts::default();
        texts.channel.model_state(&source(), &streaming(), true);
        texts.note_report(&source(), REPLY, &streaming(), |_| true);

        let relay = texts.watch("pump-a").unwrap();
        let snapshot = queued(&relay);
        let [(state, since)] = snapshot.as_slice() else { panic!("{snapshot:?}") };
        assert!(*since <= relay.opened);
        assert!(texts.was_reported(&source(), REPLY, state));
        assert!(!texts.was_reported(&source(), "answers.pump-b.token", state));
        assert!(!texts.was_reported(&source(), REPLY, &ModelState::Requested("a/b".to_owned())));

        let other = LiveSource { attempt: Attempt { epoch: 1, n: 2 }, ..source() };
        texts.note_report(&other, REPLY, &streaming(), |key| key.1 != source().attempt);
        assert!(!texts.was_reported(&source(), REPLY, state), "its attempt has ended");
        texts.note_report(&other, REPLY, &ModelState::Ended, |_| true);
        assert!(locked(&texts.reported).is_empty());
    }

    #[test]
    fn a_relay_hands_over_its_states_before_it_ends() {
        let texts = HostTexts::default();
        let first = texts.watch("pump-a").unwrap();
        assert!(texts.watch("pump-b").is_none(), "one relay serves all pumps");
        assert!(!texts.end_relay(|| panic!("the relay goes on")), "pumps watch");
        texts.channel.model_state(&source(), &streaming(), true);
        texts.channel.model_state(&source(), &ModelState::Ended, true);

        locked(&texts.watchers).pumps.clear();
        let mut left = Vec::new();
        assert!(texts.end_relay(|| left = queued(&first)));
        assert!(!texts.is_relaying());
        let second = texts.watch("pump-a").unwrap();
        assert!(texts.is_relaying());
        assert!(queued(&second).is_empty());

        let left: Vec<ModelState> = left.into_iter().map(|(state, _)| state).collect();
        assert_eq!(left, [streaming(), ModelState::Ended]);
    }
}
