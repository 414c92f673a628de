//! The live channel. It shows people the state of each running model call, and the text that the
//! model writes. The states and the text are never recorded.
//!
//! **Invariant:** a sender never waits for a reader. Each reader has a bounded queue. If the queue
//! is full, further events are lost, and the reader gets their number instead. Without a reader,
//! the channel keeps no text, but only the state of each running model call for later readers.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use super::ModelState;
use crate::clock::Time;
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::limits;
use crate::locks::locked;

/// The source of live events: one attempt of an agent to handle a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSource {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "agent")]
    pub agent: ListenerName,
    #[serde(rename = "call")]
    pub call: CallId,
    #[serde(rename = "attempt")]
    pub attempt: Attempt,
}

/// The part of a model's answer to which a piece of text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnswerPart {
    #[serde(rename = "answer")]
    Answer,
    #[serde(rename = "reasoning")]
    Reasoning,
}

/// An event of the live channel. The text of an event comes directly from a model, and the gate has
/// not checked it. Therefore, a payload in this text does not count as sent or accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "live")]
pub enum LiveEvent {
    /// The first event that a reader gets. `text` states whether the reader also gets text.
    #[serde(rename = "opened")]
    Opened {
        #[serde(rename = "text")]
        text: bool,
    },
    /// State of a model call. The state [`ModelState::Requested`] invalidates all earlier text of
    /// the call.
    #[serde(rename = "model")]
    Model {
        #[serde(flatten)]
        source: LiveSource,
        #[serde(rename = "state")]
        state: ModelState,
        #[serde(rename = "since")]
        since: Time,
        /// Whether the agent's host sends the text that the model writes. False if the host runs an
        /// older version of this program.
        #[serde(rename = "streams")]
        streams: bool,
    },
    #[serde(rename = "text")]
    Text {
        #[serde(flatten)]
        source: LiveSource,
        #[serde(rename = "part")]
        part: AnswerPart,
        #[serde(rename = "text")]
        text: String,
    },
    /// The reader gets no events from this partition. `detail` is the reason. The program
    /// repeatedly tries to subscribe. After the next successful subscription, the reader gets a
    /// `Lost` event with an unknown number of events.
    #[serde(rename = "unwatched")]
    Unwatched {
        #[serde(rename = "partition")]
        partition: u32,
        #[serde(rename = "detail")]
        detail: String,
    },
    /// Number of events that are missing at this point of the stream; 0 if the number is unknown.
    #[serde(rename = "lost")]
    Lost {
        #[serde(rename = "events")]
        events: u64,
    },
}

impl LiveEvent {
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Text { text, .. } | Self::Unwatched { detail: text, .. } => text.len(),
            _ => 0,
        };
        text + size_of::<Self>()
    }
}

/// Filter for the events that one reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFilter {
    /// The thread to watch, with everything beneath it; `None` for all threads.
    pub within: Option<ThreadId>,
    pub text: bool,
}

impl LiveFilter {
    fn fits(&self, thread: &ThreadId) -> bool {
        self.within.as_ref().is_none_or(|within| thread.is_within(within))
    }
}

/// A bounded queue of live events for one reader. Consecutive pieces of text are merged into one
/// event if they belong to the same part of an answer.
#[derive(Debug, Default)]
pub struct LiveQueue {
    /// Queued events. Never locked across an await.
    pending: Mutex<PendingEvents>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct PendingEvents {
    events: VecDeque<LiveEvent>,
    bytes: usize,
    /// Number of events that were dropped since the last event was queued.
    lost: u64,
}

impl PendingEvents {
    /// Appends the text of `event` to the last queued event, if both belong to the same part of the
    /// same answer. Returns whether the text was appended. Appends nothing if the merged text would
    /// be too long, or if an event between these two events was lost.
    fn extends_last(&mut self, event: &LiveEvent) -> bool {
        let LiveEvent::Text { source, part, text } = event else { return false };
        let Some(LiveEvent::Text { source: of, part: kind, text: known }) = self.events.back_mut()
        else {
            return false;
        };
        let fits = of == source && kind == part && self.lost == 0;
        if !fits || known.len() + text.len() > limits::LIVE_TEXT_BYTES {
            return false;
        }

        known.push_str(text);
        self.bytes += text.len();
        true
    }

    fn push(&mut self, event: LiveEvent) {
        // Texts may fill only half of the queue, because a reader needs states more.
        let (most, bytes_most) = match event {
            LiveEvent::Text { .. } => (limits::LIVE_EVENTS_MAX / 2, limits::LIVE_QUEUE_BYTES / 2),
            _ => (limits::LIVE_EVENTS_MAX, limits::LIVE_QUEUE_BYTES),
        };
        let bytes = event.bytes();
        // One place is reserved for the event that reports a loss.
        if self.events.len() + 1 >= most || self.bytes + bytes > bytes_most {
            let lost = match event {
                LiveEvent::Lost { events } => events.max(1),
                _ => 1,
            };
            // A host on another machine may report any number, so the sum could overflow.
            self.lost = self.lost.saturating_add(lost);
            return;
        }
        if self.extends_last(&event) {
            return;
        }

        if let Some(lost) = self.take_lost() {
            self.bytes += lost.bytes();
            self.events.push_back(lost);
        }
        self.bytes += bytes;
        self.events.push_back(event);
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.lost == 0
    }

    fn take_lost(&mut self) -> Option<LiveEvent> {
        let events = std::mem::take(&mut self.lost);
        (events > 0).then_some(LiveEvent::Lost { events })
    }

    fn pop(&mut self) -> Option<LiveEvent> {
        let Some(event) = self.events.pop_front() else { return self.take_lost() };
        self.bytes = self.bytes.saturating_sub(event.bytes());
        Some(event)
    }
}

impl LiveQueue {
    /// Queues an event. If the queue is full, counts the event as lost instead. Returns
    /// immediately.
    pub fn push(&self, event: LiveEvent) {
        locked(&self.pending).push(event);
        self.arrived.notify_waiters();
    }

    /// Queues `text` as one or more events. Each event contains at most [`limits::LIVE_TEXT_BYTES`]
    /// bytes of the text.
    fn push_text(&self, source: &LiveSource, part: AnswerPart, text: &str) {
        let mut pending = locked(&self.pending);
        for text in pieces(text) {
            let source = source.clone();
            let text = text.to_owned();
            pending.push(LiveEvent::Text { source, part, text });
        }
        drop(pending);
        self.arrived.notify_waiters();
    }

    /// Waits for the next event and returns it. Cancel-safe: if the future is dropped, no event is
    /// lost.
    pub async fn next(&self) -> LiveEvent {
        self.wait_for(PendingEvents::pop).await
    }

    /// Calls `take` on the queue, at first immediately, and then after each new event, until `take`
    /// returns a value. Returns this value.
    async fn wait_for<T>(&self, mut take: impl FnMut(&mut PendingEvents) -> Option<T>) -> T {
        let mut arrived = pin!(self.arrived.notified());
        loop {
            // Registers before the queue is read, so that an event queued in between is not missed.
            arrived.as_mut().enable();
            if let Some(taken) = take(&mut locked(&self.pending)) {
                return taken;
            }
            arrived.as_mut().await;
            arrived.set(self.arrived.notified());
        }
    }
}

/// Splits `text` into pieces of at most [`limits::LIVE_TEXT_BYTES`] bytes.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(limits::LIVE_TEXT_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A running model call.
#[derive(Debug, Clone)]
struct RunningCall {
    source: LiveSource,
    state: ModelState,
    since: Time,
    streams: bool,
}

impl RunningCall {
    fn event(&self) -> LiveEvent {
        let Self { source, state, since, streams } = self.clone();
        LiveEvent::Model { source, state, since, streams }
    }
}

#[derive(Debug, Default)]
struct ChannelState {
    running: HashMap<(CallId, Attempt), RunningCall>,
    readers: Vec<(LiveFilter, Arc<LiveQueue>)>,
}

/// The live channel of one pump, or of one program that hosts agents.
#[derive(Debug)]
pub struct LiveChannel {
    /// Number of readers that get text. An atomic, because the number is read for each piece of
    /// text, and a lock would cost too much.
    text_readers: AtomicUsize,
    /// Number of running model calls. An atomic, because the number is read at the end of each
    /// delivery, and a lock would cost too much.
    running: AtomicUsize,
    /// The readers and the running model calls. Never locked across an await, or while a reader
    /// waits for an event.
    state: Mutex<ChannelState>,
    /// Announces whether at least one reader gets the text that models write.
    watched: watch::Sender<bool>,
}

impl Default for LiveChannel {
    fn default() -> Self {
        Self {
            text_readers: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            state: Mutex::default(),
            watched: watch::Sender::new(false),
        }
    }
}

impl LiveChannel {
    /// Whether any reader gets text. Cheap, because it takes no lock.
    pub fn has_text_readers(&self) -> bool {
        self.text_readers.load(Ordering::Relaxed) > 0
    }

    /// Returns a receiver that shows whether any reader of this channel gets text. Its value is
    /// always up to date.
    pub fn watched(&self) -> watch::Receiver<bool> {
        self.watched.subscribe()
    }

    /// Reports a new state of a model call. `streams` is true if the agent's host also sends the
    /// text of the call to this channel.
    pub fn model_state(&self, source: &LiveSource, state: &ModelState, streams: bool) {
        let key = (source.call, source.attempt);
        let source = source.clone();
        let call = RunningCall { source, state: state.clone(), since: Time::now(), streams };

        let mut channel = locked(&self.state);
        send(&channel.readers, &call.source.thread, || call.event());
        if *state == ModelState::Ended {
            channel.running.remove(&key);
        } else {
            channel.running.insert(key, call);
        }
        self.running.store(channel.running.len(), Ordering::Relaxed);
    }

    /// Reports the end of an attempt's model call. Does nothing if the agent has already reported
    /// this end.
    pub fn attempt_ended(&self, call: CallId, attempt: Attempt) {
        if self.running.load(Ordering::Relaxed) == 0 {
            return;
        }

        let mut channel = locked(&self.state);
        let Some(mut ended) = channel.running.remove(&(call, attempt)) else { return };
        ended.state = ModelState::Ended;
        ended.since = Time::now();
        send(&channel.readers, &ended.source.thread, || ended.event());
        self.running.store(channel.running.len(), Ordering::Relaxed);
    }

    /// Sends a new piece of a model's answer or reasoning to each reader that gets text and follows
    /// the thread of `source`.
    pub fn text(&self, source: &LiveSource, part: AnswerPart, text: &str) {
        if !self.has_text_readers() {
            return;
        }

        for (filter, queue) in &locked(&self.state).readers {
            if filter.text && filter.fits(&source.thread) {
                queue.push_text(source, part, text);
            }
        }
    }

    /// Reports to the readers that `events` live events of the call of `source` were lost before
    /// they reached this channel.
    pub fn lost(&self, source: &LiveSource, events: u64) {
        for (filter, queue) in &locked(&self.state).readers {
            if filter.text && filter.fits(&source.thread) {
                // 0 would announce a new subscription.
                queue.push(LiveEvent::Lost { events: events.max(1) });
            }
        }
    }

    /// Adds a reader. The reader first gets events that describe the running model calls.
    pub fn open(self: &Arc<Self>, filter: LiveFilter) -> LiveReader {
        let queue = Arc::new(LiveQueue::default());
        queue.push(LiveEvent::Opened { text: filter.text });

        let mut channel = locked(&self.state);
        let running = channel.running.values();
        running.filter(|call| filter.fits(&call.source.thread)).for_each(|call| {
            queue.push(call.event());
        });
        let text = usize::from(filter.text);
        channel.readers.push((filter, Arc::clone(&queue)));
        self.text_readers.fetch_add(text, Ordering::Relaxed);
        self.watched.send_replace(self.has_text_readers());
        drop(channel);

        LiveReader { channel: Arc::clone(self), queue }
    }
}

fn send(
    readers: &[(LiveFilter, Arc<LiveQueue>)],
    thread: &ThreadId,
    event: impl Fn() -> LiveEvent,
) {
    for (filter, queue) in readers {
        if filter.fits(thread) {
            queue.push(event());
        }
    }
}

/// A subscription to a [`LiveChannel`]. Dropping this value ends the subscription.
#[derive(Debug)]
pub struct LiveReader {
    channel: Arc<LiveChannel>,
    queue: Arc<LiveQueue>,
}

impl LiveReader {
    /// Waits for the next event and returns it. Cancel-safe: if the future is dropped, no event is
    /// lost.
    pub async fn next(&self) -> LiveEvent {
        self.queue.next().await
    }

    /// Returns the next event, or `None` if the queue is empty. Does not wait.
    pub fn next_queued(&self) -> Option<LiveEvent> {
        locked(&self.queue.pending).pop()
    }

    /// Waits until the queue of this reader contains an event. Leaves the event in the queue.
    pub async fn filled(&self) {
        let is_filled = |pending: &mut PendingEvents| !pending.is_empty();
        self.queue.wait_for(|pending| is_filled(pending).then_some(())).await;
    }
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        let mut channel = locked(&self.channel.state);
        let own = channel.readers.iter().position(|(_, queue)| Arc::ptr_eq(queue, &self.queue));
        let Some(own) = own else { return };
        let (filter, _) = channel.readers.swap_remove(own);
        self.channel.text_readers.fetch_sub(usize::from(filter.text), Ordering::Relaxed);
        self.channel.watched.send_replace(self.channel.has_text_readers());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::ids::MessageId;

    fn source(thread: &str) -> LiveSource {
        LiveSource {
            thread: ThreadId::parse(thread).unwrap(),
            agent: ListenerName::parse("writer").unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n: 1 },
        }
    }

    fn all(text: bool) -> LiveFilter {
        LiveFilter { within: None, text }
    }

    fn read(reader: &LiveReader) -> Vec<LiveEvent> {
        std::iter::from_fn(|| reader.next().now_or_never()).collect()
    }

    #[test]
    fn texts_of_one_answer_arrive_joined_and_those_of_another_thread_do_not() {
        let channel = Arc::new(LiveChannel::default());
        let within = Some(ThreadId::parse("sess-aaaaaaaa.draft").unwrap());
        let reader = channel.open(LiveFilter { within, text: true });
        let source_of_draft = source("sess-aaaaaaaa.draft");
        for text in ["one ", "two"] {
            channel.text(&source_of_draft, AnswerPart::Answer, text);
            channel.text(&source("sess-aaaaaaaa.drafts"), AnswerPart::Answer, "another");
        }

        let text = "one two".to_owned();
        let joined = LiveEvent::Text { source: source_of_draft, part: AnswerPart::Answer, text };
        assert_eq!(read(&reader), [LiveEvent::Opened { text: true }, joined]);
    }

    #[test]
    fn a_reader_of_states_gets_no_text_and_nothing_is_kept_for_it() {
        let channel = Arc::new(LiveChannel::default());
        let reader = channel.open(all(false));
        assert!(!channel.has_text_readers());
        channel.text(&source("sess-aaaaaaaa"), AnswerPart::Answer, "secret");
        assert_eq!(read(&reader), [LiveEvent::Opened { text: false }]);
    }

    #[test]
    fn a_reader_that_does_not_keep_up_loses_text_and_learns_how_much() {
        let channel = Arc::new(LiveChannel::default());
        let reader = channel.open(all(true));
        let source = source("sess-aaaaaaaa");
        let most = 4 * limits::LIVE_QUEUE_BYTES;
        channel.text(&source, AnswerPart::Answer, &"x".repeat(most));
        let held = locked(&reader.queue.pending).bytes;
        assert!(held <= limits::LIVE_QUEUE_BYTES, "{held}");
        channel.model_state(&source, &ModelState::Ended, true);

        let events = read(&reader);
        let texts = events.iter().filter(|event| matches!(event, LiveEvent::Text { .. })).count();
        let pieces = most.div_ceil(limits::LIVE_TEXT_BYTES);
        let lost = u64::try_from(pieces - texts).unwrap();
        let [.., before, last] = events.as_slice() else { panic!("{events:?}") };
        assert!(lost > 0);
        assert_eq!(*before, LiveEvent::Lost { events: lost });
        assert!(matches!(last, LiveEvent::Model { state: ModelState::Ended, .. }), "{last:?}");
        assert_eq!(locked(&reader.queue.pending).bytes, 0);

        channel.text(&source, AnswerPart::Answer, &"x".repeat(most));
        let last = read(&reader).pop();
        assert!(
            matches!(last, Some(LiveEvent::Lost { .. })),
            "also without a later event: {last:?}"
        );
    }

    #[test]
    fn a_late_reader_sees_the_running_calls_until_their_attempts_end() {
        let channel = Arc::new(LiveChannel::default());
        let source = source("sess-aaaaaaaa");
        channel.model_state(&source, &ModelState::Requested("a/b".to_owned()), true);
        let states = |reader: &LiveReader| {
            let states = read(reader).into_iter().filter_map(|event| match event {
                LiveEvent::Model { state, .. } => Some(state),
                _ => None,
            });
            states.collect::<Vec<_>>()
        };
        let reader = channel.open(all(false));
        assert_eq!(states(&reader), [ModelState::Requested("a/b".to_owned())]);

        channel.attempt_ended(source.call, Attempt { epoch: 1, n: 2 });
        assert_eq!(states(&reader), [], "of another attempt");
        channel.attempt_ended(source.call, source.attempt);
        channel.attempt_ended(source.call, source.attempt);
        assert_eq!(states(&reader), [ModelState::Ended]);
        assert_eq!(states(&channel.open(all(false))), []);
    }

    #[test]
    fn a_reader_that_leaves_is_forgotten() {
        let channel = Arc::new(LiveChannel::default());
        let mut watched = channel.watched();
        let reader = channel.open(all(true));
        assert!(*watched.borrow_and_update());
        drop(reader);
        assert!(!*watched.borrow_and_update());
        assert!(!channel.has_text_readers());
        assert!(locked(&channel.state).readers.is_empty());
    }
}
