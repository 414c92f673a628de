//! The model calls of a run that are in progress, computed from the events of the live channel. The
//! live channel carries the present state and the streamed text of each model call.

use std::collections::BTreeMap;

use crate::bus::ModelState;
use crate::bus::live::{AnswerPart, LiveEvent, LiveSource};
use crate::clock::Time;
use crate::ids::{CallId, ThreadId};
use crate::limits;

use super::run_tree::{ActivityKind, RunActivity};

#[derive(Debug, Clone)]
struct LiveCall {
    source: LiveSource,
    state: ModelState,
    since: Time,
    streams: bool,
    text: String,
    part: AnswerPart,
}

/// The running model call of each call to an agent.
#[derive(Debug, Default)]
pub(super) struct LiveCalls {
    calls: BTreeMap<CallId, LiveCall>,
}

impl LiveCalls {
    /// Applies a live event. Returns whether the event has changed the state or the text of a model
    /// call.
    pub fn take(&mut self, event: &LiveEvent) -> bool {
        match event {
            LiveEvent::Opened { .. } | LiveEvent::Unwatched { .. } => false,
            // A new subscription begins with the model calls that still run.
            LiveEvent::Lost { events: 0 } => self.forget(),
            LiveEvent::Lost { .. } => {
                self.calls.values_mut().for_each(|call| call.text.push_str(" … "));
                true
            }
            LiveEvent::Model { source, state: ModelState::Ended, .. } => self.end(source),
            LiveEvent::Model { source, state, since, streams } => {
                self.set_state(source, state, *since, *streams);
                true
            }
            LiveEvent::Text { source, part, text } => self.add_text(source, *part, text),
        }
    }

    /// Removes every model call. Returns whether there was any.
    pub fn forget(&mut self) -> bool {
        let has_calls = !self.calls.is_empty();
        self.calls.clear();
        has_calls
    }

    /// Removes the model call that belongs to `call`, because `call` is closed.
    pub fn close(&mut self, call: CallId) {
        self.calls.remove(&call);
    }

    /// Returns the thread of each call with a running model call.
    pub fn threads(&self) -> impl Iterator<Item = &ThreadId> {
        self.calls.values().map(|call| &call.source.thread)
    }

    /// Returns the present activity of each call with a running model call.
    pub fn activities(&self) -> impl Iterator<Item = RunActivity> + '_ {
        self.calls.values().map(|call| {
            let LiveCall { source, state, since, streams, text, part } = call.clone();
            let what = ActivityKind::Model { state, since, streams, text, part };
            RunActivity { thread: source.thread, listener: source.agent, what }
        })
    }

    /// Removes the model call that `source` names, because it has ended. Ignores the end of an
    /// attempt that another attempt has replaced, because this event may arrive late. Returns
    /// whether a model call was removed.
    fn end(&mut self, source: &LiveSource) -> bool {
        let known = self.calls.get(&source.call);
        if known.is_none_or(|known| known.source.attempt != source.attempt) {
            return false;
        }

        self.calls.remove(&source.call);
        true
    }

    fn set_state(&mut self, source: &LiveSource, state: &ModelState, since: Time, streams: bool) {
        let known = self.calls.remove(&source.call);
        let known = known.filter(|known| known.source.attempt == source.attempt);
        // A new request voids the text so far.
        let keeps_text = matches!(state, ModelState::Streaming(_));
        let text = known.filter(|_| keeps_text).map(|known| known.text).unwrap_or_default();

        let source = source.clone();
        let state = state.clone();
        let part = AnswerPart::Answer;
        let call = LiveCall { source, state, since, streams, text, part };
        self.calls.insert(call.source.call, call);
    }

    fn add_text(&mut self, source: &LiveSource, part: AnswerPart, text: &str) -> bool {
        let known = self.calls.get_mut(&source.call);
        let Some(call) = known.filter(|call| call.source.attempt == source.attempt) else {
            return false;
        };

        if call.part != part {
            call.text.clear();
            call.part = part;
        }
        call.text.push_str(text);
        keep_end(&mut call.text);
        true
    }
}

/// Cuts a text to its last `limits::LIVE_SHOWN_BYTES` bytes, if it is longer than twice this
/// number.
fn keep_end(text: &mut String) {
    if text.len() <= 2 * limits::LIVE_SHOWN_BYTES {
        return;
    }

    let mut from = text.len() - limits::LIVE_SHOWN_BYTES;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.drain(..from);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Attempt, ListenerName, MessageId};

    fn source(n: u32) -> LiveSource {
        LiveSource {
            thread: ThreadId::parse("sess-aaaaaaaa.draft").unwrap(),
            agent: ListenerName::parse("writer").unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n },
        }
    }

    fn model(n: u32, state: ModelState) -> LiveEvent {
        LiveEvent::Model { source: source(n), state, since: Time::default(), streams: true }
    }

    fn requested(n: u32) -> LiveEvent {
        model(n, ModelState::Requested("a/b".to_owned()))
    }

    fn text(n: u32, text: &str) -> LiveEvent {
        LiveEvent::Text { source: source(n), part: AnswerPart::Answer, text: text.to_owned() }
    }

    /// Returns the texts of the running model calls after these events.
    fn texts(events: &[LiveEvent]) -> Vec<String> {
        let mut calls = LiveCalls::default();
        for event in events {
            calls.take(event);
        }
        let texts = calls.activities().filter_map(|activity| match activity.what {
            ActivityKind::Model { text, .. } => Some(text),
            ActivityKind::Person { .. } => None,
        });
        texts.collect()
    }

    #[test]
    fn a_call_shows_its_text_until_it_ends_and_a_new_request_voids_the_text() {
        let streaming = model(1, ModelState::Streaming("a/b".to_owned()));
        let begun = [requested(1), streaming.clone(), text(1, "one "), text(1, "two")];
        assert_eq!(texts(&begun), ["one two"]);
        assert_eq!(texts(&[begun.as_slice(), &[streaming]].concat()), ["one two"]);
        assert_eq!(texts(&[begun.as_slice(), &[requested(1)]].concat()), [""]);
        let ended = model(1, ModelState::Ended);
        assert_eq!(texts(&[begun.as_slice(), &[ended]].concat()), [] as [&str; 0]);
    }

    #[test]
    fn an_end_and_a_text_of_an_earlier_attempt_change_nothing() {
        let late = [text(1, "late"), model(1, ModelState::Ended)];
        let mut calls = LiveCalls::default();
        calls.take(&requested(2));
        for event in &late {
            assert!(!calls.take(event), "{event:?}");
        }
        assert_eq!(texts(&[[requested(2), text(2, "new")].as_slice(), &late].concat()), ["new"]);
    }

    #[test]
    fn a_loss_is_marked_and_a_new_subscription_begins_anew() {
        let begun = [requested(1), text(1, "one")];
        let lost = |events| [begun.as_slice(), &[LiveEvent::Lost { events }]].concat();
        assert_eq!(texts(&lost(3)), ["one … "]);
        assert_eq!(texts(&lost(0)), [] as [&str; 0]);
    }

    #[test]
    fn only_the_end_of_a_long_text_is_kept() {
        let long = "é".repeat(2 * limits::LIVE_SHOWN_BYTES);
        let [kept] = texts(&[requested(1), text(1, &long)]).try_into().unwrap();
        assert!(kept.len() <= limits::LIVE_SHOWN_BYTES, "{}", kept.len());
        assert!(!kept.is_empty());
    }
}
