//! The content of a thread's events, for comparing two threads. Ids, times, positions and durations
//! are no content, because they differ even if the same events happen again.

use std::collections::{BTreeSet, HashMap};

use super::event_scope::{is_trial_of, origin_in};
use super::fork_origin::TreeOrigin;
use super::payload_lines::{leave_out, lines, take_children};
use super::timeline::{ThreadTimeline, TimelineEvent};
use super::views::MessageView;
use crate::contract::run_definition_name;
use crate::envelope::MessageKind;
use crate::ids::{ListenerName, Position, ThreadId};
use crate::system;
use crate::xml::element::{Element, Node};

/// Number of characters of a UUID.
const UUID_CHARS: usize = 36;
/// Offsets of the hyphens in a UUID.
const UUID_HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Attributes of a turn's note whose values differ each time the same turn is taken.
const MEASURED: [&str; 14] = [
    "call",
    "cost",
    "currency",
    "estimated",
    "inputs",
    "iteration",
    "latency_ms",
    "nonce",
    "position",
    "prompt",
    "recorded",
    "renderer",
    "tokens_in",
    "tokens_out",
];

/// Attributes with times in payloads of the core, by the name of the payload. The times differ each
/// time the same events happen again.
const TIMES: [(&str, &[&str]); 3] = [
    ("timer-set", &["fires_at"]),
    ("approval-requested", &["until"]),
    ("schedule-event", &["due", "until", "next"]),
];

/// Names of the core's payloads about decisions of people.
const DECISION_NOTES: [&str; 4] =
    ["approval-requested", "approval-granted", "approval-refused", "operator-action"];

/// Names of the payloads with which a listener previews an approved call, or states that its
/// preview is no longer valid.
const PREVIEWS: [&str; 2] = [system::PREVIEW, system::STALE_PREVIEW];

/// Names of the core's payloads with results for a run of a workflow.
const RUN_RESULTS: [&str; 3] = ["system-error", "thread-result", "timer-fired"];

/// Title and text of one event, without ids, times and measured values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EventContent {
    /// Kind of the event, with the listeners involved.
    pub title: String,
    /// The rest of the event's content, which may differ between events with the same title.
    pub text: String,
}

impl EventContent {
    /// Returns the content as lines for people.
    pub fn lines(&self) -> Vec<String> {
        lines(&self.text)
    }
}

/// Reader of the content of the events in one tree of threads. Replaces each id of a thread or a
/// message by its place in the tree, such as `thread.1#2`, and each id of a timer by its number.
pub(super) struct ContentReader {
    root: String,
    threads: HashMap<String, String>,
    messages: HashMap<String, String>,
    timers: HashMap<String, String>,
    /// Times that payloads of the core state in the tree, as texts.
    times: BTreeSet<String>,
    /// The workflows that have a run in the tree.
    workflows: BTreeSet<ListenerName>,
    /// For each numbered thread, what is numbered in it.
    counts: HashMap<ThreadId, NumberCounts>,
    /// Whether the tree is compared with a trial of it, in which people decide nothing.
    is_tried: bool,
}

/// Numbers of the messages and subthreads of one thread.
#[derive(Debug, Clone, Copy, Default)]
struct NumberCounts {
    /// Messages, except results for runs of workflows.
    messages: usize,
    /// Results for runs of workflows. These are counted apart, because their places among the other
    /// messages are no content.
    results: usize,
    subthreads: usize,
}

impl ContentReader {
    /// Creates the reader of a tree that is compared with the tree of `other`. If the tree is a
    /// fork of the other one, its numbers continue those of the history that it has taken over. So
    /// an event has the same place in both trees.
    pub fn beside(timeline: &ThreadTimeline, other: &ThreadTimeline) -> Self {
        let mut reader = Self {
            root: timeline.thread.root().as_str().to_owned(),
            threads: HashMap::new(),
            messages: HashMap::new(),
            timers: HashMap::new(),
            times: BTreeSet::new(),
            workflows: BTreeSet::new(),
            counts: HashMap::new(),
            is_tried: is_trial_of(other, timeline),
        };
        let origin = origin_in(timeline, other);
        let place = || "thread".to_owned();

        reader.add_workflows(timeline);
        if let Some(origin) = origin {
            reader.add_workflows(other);
            reader.number(other, place(), None, origin.source.history);
        }
        reader.number(timeline, place(), origin, Position(u64::MAX));
        reader
    }

    /// Remembers the workflows that have a run in a thread or beneath it. Recognizes a run by the
    /// message with which it has recorded its definition.
    fn add_workflows(&mut self, timeline: &ThreadTimeline) {
        for item in &timeline.items {
            match &item.what {
                TimelineEvent::Message(message) if message.name == run_definition_name() => {
                    self.workflows.insert(message.from.clone());
                }
                // The recursion is bounded, because the depth of threads is bounded.
                TimelineEvent::Subthread(child) => self.add_workflows(child),
                _ => {}
            }
        }
    }

    /// Numbers the messages, timers and subthreads of a thread, up to the record at `last`. The
    /// subthreads are numbered in the order in which they were opened. `name` is the thread's place
    /// in the tree. In a fork, `origin` is its origin, whose history must be numbered before.
    fn number(
        &mut self,
        timeline: &ThreadTimeline,
        name: String,
        origin: Option<&TreeOrigin>,
        last: Position,
    ) {
        let in_source = |thread: &ThreadId| thread.under(&origin?.source.thread);
        let inherited = in_source(&timeline.thread);
        let inherited = inherited.and_then(|thread| self.counts.get(&thread).copied());
        let mut counts = inherited.unwrap_or_default();

        for item in timeline.items.iter().filter(|item| item.position <= last) {
            match &item.what {
                TimelineEvent::Message(message) if self.is_content(message) => {
                    let copied = origin.and_then(|origin| origin.copies.get(&message.id));
                    let place = match copied {
                        Some(copied) => self.messages.get(&copied.to_string()).cloned(),
                        None => None,
                    };
                    let place = place.unwrap_or_else(|| {
                        if self.is_run_result(message) {
                            counts.results += 1;
                            format!("{name}#result {}", counts.results)
                        } else {
                            counts.messages += 1;
                            format!("{name}#{}", counts.messages)
                        }
                    });
                    self.messages.insert(message.id.to_string(), place);
                    self.take_times(message);
                }
                TimelineEvent::Subthread(child) => {
                    let known = in_source(&child.thread);
                    let known = known.and_then(|known| self.threads.get(known.as_str()).cloned());
                    let place = known.unwrap_or_else(|| {
                        counts.subthreads += 1;
                        format!("{name}.{}", counts.subthreads)
                    });
                    // The recursion is bounded, because the depth of threads is bounded.
                    self.number(child, place, origin, last);
                }
                _ => {}
            }
        }
        self.counts.insert(timeline.thread.clone(), counts);
        self.threads.insert(timeline.thread.as_str().to_owned(), name);
    }

    /// Remembers the timer and the times that `message` states, if the core has sent this message.
    fn take_times(&mut self, message: &MessageView) {
        let Some(attributes) = time_attributes(message) else { return };
        let Some(payload) = message.payload.as_deref().and_then(Element::head) else { return };
        if let Some(timer) = payload.attribute("timer_id") {
            let number = self.timers.len() + 1;
            self.timers.insert(timer.to_owned(), format!("timer {number}"));
        }
        let times = attributes.iter().filter_map(|name| payload.attribute(name));
        self.times.extend(times.filter(|time| !time.is_empty()).map(str::to_owned));
    }

    /// Returns the place of a thread of this tree, such as `thread.1`; `None` if the thread is not
    /// numbered.
    pub fn place(&self, thread: &ThreadId) -> Option<&str> {
        self.threads.get(thread.as_str()).map(String::as_str)
    }

    /// Whether an event has content. False for a subthread.
    pub fn has_content(&self, event: &TimelineEvent) -> bool {
        match event {
            TimelineEvent::Message(message) => self.is_content(message),
            // The record that a thread is a fork is no content, so that a fork can equal its
            // source.
            TimelineEvent::Decision { verb, .. } => *verb != "fork",
            TimelineEvent::Subthread(_) | TimelineEvent::Busy(_) => false,
            _ => true,
        }
    }

    /// Returns the content of an event; `None` for a subthread or an event without content.
    pub fn read(&self, event: &TimelineEvent) -> Option<EventContent> {
        if !self.has_content(event) {
            return None;
        }
        let (title, text) = match event {
            TimelineEvent::Message(message) => return Some(self.message(message)),
            TimelineEvent::Subthread(_) | TimelineEvent::Busy(_) => return None,
            TimelineEvent::Refused(refused) => {
                let title = format!("refused {} by {}", refused.sender, refused.rule);
                (title, format!("{}\n{}", refused.message, refused.head))
            }
            TimelineEvent::Findings { by, findings } => {
                let texts = findings.iter().map(ToString::to_string);
                (format!("findings in a turn of {by}"), texts.collect::<Vec<_>>().join("\n"))
            }
            TimelineEvent::AttemptFailed { listener, failure, .. } => {
                let by = listener.as_ref().map_or("a listener", |name| name.as_str());
                (format!("attempt of {by} failed"), failure.to_string())
            }
            TimelineEvent::Charged { listener, .. } => {
                (format!("lost model call of {listener} charged"), String::new())
            }
            TimelineEvent::TimerEnded { how, .. } => (format!("timer {how:?}"), String::new()),
            TimelineEvent::Decision { verb, by, .. } => (format!("{verb} by {by}"), String::new()),
            TimelineEvent::Cancelled { by, reason } => {
                (format!("cancelled by {by}"), reason.clone())
            }
        };
        Some(EventContent { title, text: self.without_ids(&text) })
    }

    /// Whether a message is content. False for:
    /// - the notes that state that the thread is a fork,
    /// - in a tree that is compared with a trial of it, the notes about decisions of people, and
    ///   the answers of listeners with the previews for these decisions,
    /// - each `wait` of a workflow, and the core's answer to it.
    ///
    /// A workflow waits at the end of each delivery, and the number of its deliveries depends on
    /// when the results arrived. The `wait` of an agent is content, because the agent's model has
    /// decided to wait.
    fn is_content(&self, message: &MessageView) -> bool {
        let is_core = &*message.name.namespace == system::NAMESPACE;
        let is_workflow_wait = match &*message.name.local {
            "wait" => is_core && self.workflows.contains(&message.from),
            "waiting" => is_core && self.workflows.contains(&message.to),
            _ => false,
        };
        let is_preview = is_core && PREVIEWS.contains(&&*message.name.local);
        let is_left_out = self.is_tried && (is_decision_note(message) || is_preview);
        !is_workflow_wait && !is_left_out && !is_lineage(message)
    }

    /// Whether a message is a result that a run of a workflow receives: a reply, a fault, the
    /// result of a thread, or the end of a timer. False for the result that the thread of a goal
    /// records for the run, because no call receives that message.
    pub fn is_run_result(&self, message: &MessageView) -> bool {
        let is_core = &*message.name.namespace == system::NAMESPACE;
        let is_result = match message.kind {
            MessageKind::Reply => true,
            MessageKind::System => is_core && RUN_RESULTS.contains(&&*message.name.local),
            _ => false,
        };
        is_result && message.call.is_some() && self.workflows.contains(&message.to)
    }

    pub fn message(&self, message: &MessageView) -> EventContent {
        let MessageView { kind, from, to, name, payload, digest, .. } = message;
        let title = format!("{} {from} > {to} {}", kind.as_str(), name.local);
        let text = match payload {
            Some(payload) if *name == system::name(system::MODEL_TURN) => turn_text(payload),
            // The definition is no content: it shows in the actions of the run, and its digest is
            // in the totals.
            Some(_) if *name == run_definition_name() => String::new(),
            Some(payload) => match time_attributes(message) {
                Some(attributes) => without_attributes(payload, attributes),
                None => payload.clone(),
            },
            None => format!("redacted: sha256 {digest}"),
        };
        let is_core = &*name.namespace == system::NAMESPACE;
        EventContent { title, text: self.replace_ids(&text, is_core) }
    }

    /// Replaces ids and times in `text`, so that the texts of two trees can be compared:
    /// - The id of a thread or message of this tree becomes the place of that thread or message in
    ///   the tree.
    /// - The id of a timer becomes the number of that timer.
    /// - A time that the core has stated in this tree becomes the word `TIME`.
    pub fn without_ids_and_times(&self, text: &str) -> String {
        let times = self.times.iter();
        let text = times.fold(text.to_owned(), |text, time| text.replace(time.as_str(), "TIME"));
        self.without_ids(&text)
    }

    /// Replaces the ids of this tree in `text`. The id of a thread or message becomes the place of
    /// that thread or message. The id of a timer becomes the number of that timer.
    pub fn without_ids(&self, text: &str) -> String {
        self.replace_ids(text, false)
    }

    /// Replaces each id of a thread or message of this tree in `text` by the place of that thread
    /// or message. If `is_core` is true, `text` is a payload of the core. Each further UUID in it,
    /// such as the id of a call or timer, is then replaced by the word `id`. Otherwise, each id of
    /// a timer is replaced by the number of that timer.
    fn replace_ids(&self, text: &str, is_core: bool) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (length, replacement) = self.id_at(rest, is_core);
            if length == 0 {
                out.push(first);
                rest = rest.split_at(first.len_utf8()).1;
            } else {
                out.push_str(replacement);
                rest = rest.split_at(length).1;
            }
        }
        out
    }

    /// Returns the length of the id at the beginning of `text`, and the replacement of this id.
    /// Recognizes the ids of this tree and, if `is_core` is true, any UUID. The length is 0 if
    /// `text` does not begin with such an id.
    fn id_at(&self, text: &str, is_core: bool) -> (usize, &str) {
        if text.starts_with(&self.root) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let mut id = text.split(|c| !is_part(c)).next().unwrap_or_default();
            loop {
                if let Some(name) = self.threads.get(id) {
                    return (id.len(), name);
                }
                match id.rsplit_once('.') {
                    Some((shorter, _)) => id = shorter,
                    // The id names a thread above the compared one.
                    None => return (self.root.len(), "root"),
                }
            }
        }

        let id = text.get(..UUID_CHARS).filter(|id| is_uuid(id));
        match id.map(|id| self.messages.get(id)) {
            Some(Some(place)) => (UUID_CHARS, place),
            Some(None) if is_core => (UUID_CHARS, "id"),
            _ => match id.and_then(|id| self.timers.get(id)) {
                Some(number) => (UUID_CHARS, number),
                None => (0, ""),
            },
        }
    }
}

/// Whether the message is a note of the core which states that the thread is a fork.
pub(super) fn is_lineage(message: &MessageView) -> bool {
    let is_action = || {
        let payload = message.payload.as_deref().unwrap_or_default();
        message.name == system::name("operator-action") && payload.contains(" action=\"fork\"")
    };
    message.from.is_core() && (message.name == system::name("fork") || is_action())
}

/// Whether the message is a note of the core about a decision of a person: about an approval that
/// was requested, granted or refused, or about an action of an operator.
pub(super) fn is_decision_note(message: &MessageView) -> bool {
    let is_core = message.from.is_core() && &*message.name.namespace == system::NAMESPACE;
    is_core && DECISION_NOTES.contains(&&*message.name.local)
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match byte {
        b'-' => UUID_HYPHENS.contains(&at),
        _ => byte.is_ascii_hexdigit() && !UUID_HYPHENS.contains(&at),
    })
}

/// Returns the attributes of `message` that contain times; `None` if `message` is not from the
/// core, or has no attributes of this kind.
fn time_attributes(message: &MessageView) -> Option<&'static [&'static str]> {
    let found = TIMES.iter().find(|(word, _)| **word == *message.name.local);
    let is_core = message.from.is_core() && &*message.name.namespace == system::NAMESPACE;
    found.filter(|_| is_core).map(|(_, attributes)| *attributes)
}

fn without_attributes(payload: &str, attributes: &[&str]) -> String {
    let Some(mut payload) = Element::read(payload) else { return payload.to_owned() };
    leave_out(&mut payload, attributes);
    payload.to_xml()
}

/// Returns the text of the note `payload` of a turn, without the parts that may differ each time
/// the same turn is taken, such as measured values, ids of calls and the turn's environment.
fn turn_text(payload: &str) -> String {
    let Some(mut note) = Element::read(payload) else { return payload.to_owned() };
    let nonce = note.attribute("nonce").unwrap_or_default().to_owned();
    leave_out(&mut note, &MEASURED);
    take_children(&mut note, "environment");
    // Requests that failed before the answer depend on the providers at that time.
    take_children(&mut note, "tried");
    // Providers sign their blocks, and ids of calls are random.
    take_children(&mut note, "block");
    let calls = take_children(&mut note, "call");
    note.content.extend(calls.into_iter().map(|mut call| {
        leave_out(&mut call, &["id"]);
        Node::Element(call)
    }));

    // The notice and the answer contain the random nonce of the slot, too.
    let text = note.to_xml();
    if nonce.is_empty() { text } else { text.replace(&nonce, "NONCE") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_that_differ_in_their_nonce_and_failed_requests_alone_are_equal() {
        let turn = |nonce: &str, tried: &str| {
            let notice = format!("<notice>answer in slot-{nonce}</notice>");
            let raw = format!("<raw>&lt;slot-{nonce}&gt;yes</raw>");
            turn_text(&format!("<model-turn nonce=\"{nonce}\">{tried}{notice}{raw}</model-turn>"))
        };
        let tried = "<tried route=\"a\" reason=\"cut\"/>";
        assert_eq!(turn("k3v9", tried), turn("x7q2", ""));
        assert!(turn("k3v9", "").contains("slot-NONCE"), "{}", turn("k3v9", ""));
    }

    #[test]
    fn ids_of_the_tree_are_replaced_by_their_places() {
        let id = "01a2097f-a808-77a8-9d61-273e12f1877a";
        let reader = ContentReader {
            root: "sess-abcdefgh".to_owned(),
            threads: [
                ("sess-abcdefgh".to_owned(), "thread".to_owned()),
                ("sess-abcdefgh.draft".to_owned(), "thread.1".to_owned()),
            ]
            .into(),
            messages: [(id.to_owned(), "thread#3".to_owned())].into(),
            timers: HashMap::new(),
            times: BTreeSet::new(),
            workflows: BTreeSet::new(),
            counts: HashMap::new(),
            is_tried: false,
        };
        let text = format!("sess-abcdefgh.draft.x, `sess-abcdefgh` é {id}{}", &id[..8]);
        assert_eq!(reader.without_ids(&text), "thread.1.x, `thread` é thread#301a2097f");
        let other = "11a2097f-a808-77a8-9d61-273e12f1877a 11a2097f-a808-77a8-9d61-273e12f187";
        assert_eq!(reader.replace_ids(other, true), "id 11a2097f-a808-77a8-9d61-273e12f187");
        assert_eq!(reader.without_ids(other), other);
    }

    #[test]
    fn a_turn_keeps_what_the_model_wrote_and_who_it_was() {
        let turn = r#"<model-turn xmlns="urn:c" agent="a" turn="1" position="22" model="m" tokens_in="8" prompt="05"><environment>Date: today</environment><raw>hello</raw></model-turn>"#;
        let text = turn_text(turn);
        assert!(text.contains(r#"model="m""#) && text.contains("<raw>hello</raw>"), "{text}");
        assert!(!text.contains("Date") && !text.contains("prompt"), "{text}");
    }
}
