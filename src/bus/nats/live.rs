//! The live channel of agents on other machines (docs/PROTOCOL.md, section 13). While a pump has
//! readers of text, it asks the hosts of its agents for the texts of their models, again and again.
//! A host sends texts only to pumps that have asked lately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::time::{sleep, timeout};

use super::agent_host::RemoteSink;
use super::host::NatsShared;
use super::tokens::AttemptToken;
use super::{connection, header_names};
use crate::bus::ModelState;
use crate::bus::live::{AnswerPart, LiveChannel, LiveEvent, LiveFilter, LiveReader, LiveSource};
use crate::limits;
use crate::nats::{HeaderMap, HeaderName, Message};

/// Values of the header that states the part of an answer.
const PARTS: [(&str, AnswerPart); 2] =
    [("answer", AnswerPart::Answer), ("reasoning", AnswerPart::Reasoning)];

fn header<'m>(headers: &'m HeaderMap, name: &'static str) -> Option<&'m str> {
    headers.get(name).map(|value| value.as_str())
}

impl NatsShared {
    /// Asks every host of the agent for texts as long as this pump has readers.
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

    /// Shows the state of a model call, which a host has reported for this attempt.
    pub(super) fn show_model_state(
        &self,
        token: AttemptToken,
        state: ModelState,
        message: &Message,
    ) {
        let Some(source) = self.live_source(token) else { return };
        let headers = message.headers.as_ref();
        let streams = headers.is_some_and(|head| header(head, header_names::STREAMS).is_some());
        if let Some(live) = self.sink().live() {
            live.model_state(&source, &state, streams);
        }
        self.sink().model_state(&source, state);
    }

    /// Shows a text, if it belongs to an attempt that is in flight. Returns whether the message is
    /// such a text, also if it is dropped.
    pub(super) fn show_model_text(&self, token: Option<AttemptToken>, message: &Message) -> bool {
        let Some(headers) = &message.headers else { return false };
        let Some(part) = header(headers, header_names::MODEL_TEXT) else { return false };

        let part = PARTS.iter().find(|(name, _)| *name == part).map(|(_, part)| *part);
        let text = std::str::from_utf8(&message.payload).ok();
        let text = text.filter(|text| text.len() <= limits::LIVE_TEXT_BYTES);
        let source = token.and_then(|token| self.live_source(token));
        let (Some(source), Some(live)) = (source, self.sink().live()) else { return true };

        let lost = header(headers, header_names::LOST).and_then(|lost| lost.parse().ok());
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

/// The live channel of an agent host, and the pumps that have asked for its texts.
#[derive(Debug, Default)]
pub(super) struct HostTexts {
    pub channel: Arc<LiveChannel>,
    /// Never held across an await.
    watchers: Mutex<TextWatchers>,
    /// Held while events are taken from the queue and published, so that they keep their order.
    relay: tokio::sync::Mutex<Option<LiveRelay>>,
}

#[derive(Debug, Default)]
struct TextWatchers {
    /// Time of the last request of each pump for texts, by the token of the pump in its reply
    /// subjects.
    pumps: HashMap<String, Instant>,
    /// Whether a task relays events.
    is_relaying: bool,
}

impl TextWatchers {
    /// Removes pumps that have not asked lately.
    fn remove_expired(&mut self) {
        self.pumps.retain(|_, since| since.elapsed() < limits::LIVE_INTEREST_VALIDITY);
    }
}

/// The events that wait to be sent to the pumps that watch.
#[derive(Debug)]
struct LiveRelay {
    reader: Arc<LiveReader>,
    /// Lost events that no pump knows of yet.
    lost: u64,
}

impl HostTexts {
    fn watchers(&self) -> MutexGuard<'_, TextWatchers> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task relays all events, states among them.
    pub fn is_relaying(&self) -> bool {
        self.watchers().is_relaying
    }

    /// Whether the pump behind this reply subject has asked lately.
    fn is_watched_at(&self, reply: &str) -> bool {
        let watchers = self.watchers();
        let last_request = reply.rsplit('.').nth(1).and_then(|pump| watchers.pumps.get(pump));
        last_request.is_some_and(|since| since.elapsed() < limits::LIVE_INTEREST_VALIDITY)
    }

    /// Removes pumps that have not asked lately. Without pumps the task that relays has to end.
    fn update_relaying(&self) -> bool {
        let mut watchers = self.watchers();
        watchers.remove_expired();
        watchers.is_relaying = !watchers.pumps.is_empty();
        watchers.is_relaying
    }
}

impl RemoteSink {
    /// Notes that a pump wants texts. Returns whether the message is such a request.
    pub(in crate::bus::nats) fn note_watcher(&self, message: &Message) -> bool {
        let pump = message.headers.as_ref().and_then(|head| header(head, header_names::LIVE));
        let Some(pump) = pump else { return false };

        let mut watchers = self.texts().watchers();
        watchers.remove_expired();
        let is_known = watchers.pumps.contains_key(pump);
        if is_known || watchers.pumps.len() < limits::LIVE_PUMPS_MAX {
            watchers.pumps.insert(pump.to_owned(), Instant::now());
        }
        if !std::mem::replace(&mut watchers.is_relaying, true) {
            let relay = self.clone();
            self.runtime().spawn(async move { relay.relay_events().await });
        }
        true
    }

    /// Sends events to the pumps that watch, until none does any more.
    async fn relay_events(&self) {
        let filter = LiveFilter { within: None, text: true };
        let reader = Arc::new(self.texts().channel.open(filter));
        let relay = LiveRelay { reader: Arc::clone(&reader), lost: 0 };
        *self.texts().relay.lock().await = Some(relay);

        while self.texts().update_relaying() {
            timeout(limits::LIVE_INTEREST_INTERVAL, reader.filled()).await.ok();
            self.relay_queued().await;
        }

        // States that were queued before the end have no other way.
        self.relay_queued().await;
        let mut relay = self.texts().relay.lock().await;
        // A pump may have asked again, so that the next task has begun.
        if relay.as_ref().is_some_and(|relay| Arc::ptr_eq(&relay.reader, &reader)) {
            *relay = None;
        }
    }

    /// Sends every queued event. An answer waits for this, so that it does not overtake its texts.
    pub(super) async fn relay_queued(&self) {
        let mut relay = self.texts().relay.lock().await;
        let Some(LiveRelay { reader, lost }) = relay.as_mut() else { return };

        // Bounded, because other attempts write on meanwhile.
        for _ in 0..limits::LIVE_EVENTS_MAX {
            match reader.next_queued() {
                Some(LiveEvent::Text { source, part, text }) => {
                    self.relay_text(&source, part, text, lost).await;
                }
                Some(LiveEvent::Lost { events }) => *lost = lost.saturating_add(events.max(1)),
                Some(LiveEvent::Model { source, state, .. }) => {
                    if let Some((reply, headers)) = self.state_message(&source, &state) {
                        self.publish_headers(reply, headers).await;
                    }
                }
                Some(LiveEvent::Opened { .. } | LiveEvent::Unwatched { .. }) => {}
                None => return,
            }
        }
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

    /// The message that reports a state to the pump of an attempt.
    pub(super) fn state_message(
        &self,
        source: &LiveSource,
        state: &ModelState,
    ) -> Option<(String, HeaderMap)> {
        let reply = self.reply((source.call, source.attempt))?;
        let state = serde_json::to_string(state).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(header_names::MODEL_STATE, state);
        headers.insert(header_names::STREAMS, "1");
        Some((reply, headers))
    }
}
