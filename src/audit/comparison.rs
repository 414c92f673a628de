//! Compares two threads and everything beneath them. The events of the threads are compared by
//! content, and the differences are listed in order.

use std::ops::Range;
use std::time::Instant;

use serde::{Serialize, Serializer};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::event_content::{ContentReader, EventContent};
use super::event_pairs::{pair_events, remove_common_results};
use super::event_scope::{EventScope, origin_in, recorded_of};
use super::finals::{last_results, messages_of};
use super::threads::{ThreadPhase, is_open_phase};
use super::timeline::{ThreadTimeline, TimelineEntry, TimelineEvent};
use super::views::MessageView;
use crate::clock::Time;
use crate::contract::run_definition_name;
use crate::envelope::SpendingTotals;
use crate::ids::{Digest, ListenerName, MessageId, Position, ThreadId};
use crate::index::HoldCount;
use crate::limits;
use crate::system;
use crate::xml::element::Element;

/// The differences between two threads, and the number of their equal events.
pub struct ThreadComparison {
    /// Differences, in the order of the left thread's events.
    pub differences: Vec<ThreadDifference>,
    /// Number of events of the left thread that have an equal event in the right thread.
    pub equal: u64,
    /// Pairs of corresponding turns whose requests to the model differ, in the order of the turns.
    pub prompts: Vec<PromptPair>,
    pub left: ThreadTotals,
    pub right: ThreadTotals,
    /// Whether one of the threads is a fork or a trial of the other.
    pub is_with_fork: bool,
    has_equal_results: bool,
    left_ids: ContentReader,
    right_ids: ContentReader,
}

/// A difference between two threads: two corresponding events with different content, or an event
/// that only one of the threads has.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadDifference {
    /// Position by which differences are sorted. This is the position of the left thread's event,
    /// or of the first compared event beneath it if it is a subthread. If the left thread lacks the
    /// event, it is the position of the left thread's event before which the difference is listed:
    /// the first one whose counterpart comes later in the right thread, or the first one after
    /// everything that corresponds. The highest position if there is no such event.
    #[serde(skip)]
    pub order: Position,
    #[serde(rename = "a")]
    pub left: Option<ComparedEvent>,
    #[serde(rename = "b")]
    pub right: Option<ComparedEvent>,
}

/// An event of one of the compared threads, at a place where the two threads differ.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedEvent {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "position")]
    pub position: Position,
    /// `seq` of the message. For an event that is no message, the `seq` of the last message before
    /// it.
    #[serde(rename = "seq")]
    pub seq: u64,
    /// Id of the message; `None` if the event is no message.
    #[serde(rename = "message")]
    pub message: Option<MessageId>,
    /// Kind of the event, with the listeners involved.
    #[serde(rename = "what")]
    pub title: String,
    /// Content of the event in lines for people. Each id of a message or a thread is replaced by
    /// its place in the thread, such as `thread#3`.
    #[serde(rename = "content")]
    pub lines: Vec<String>,
}

/// Two corresponding turns, one of each compared thread.
#[derive(Debug, Clone)]
pub struct PromptPair {
    pub order: Position,
    pub left: ComparedTurn,
    pub right: ComparedTurn,
}

/// A turn of one of the compared threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedTurn {
    pub thread: ThreadId,
    pub agent: ListenerName,
    /// Number of the turn among all turns of the agent in the thread, counted from 1.
    pub turn: u32,
    pub position: Position,
    pub prompt: Digest,
    /// The agent's environment in the turn's prompt, with the date; `None` if the turn's note does
    /// not state it. Prompts that differ only in the environment count as equal.
    pub environment: Option<String>,
}

/// Totals of a thread and everything beneath it.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadTotals {
    #[serde(rename = "thread")]
    pub thread: ThreadId,
    #[serde(rename = "status")]
    pub status: ThreadPhase,
    /// The calls that wait for a person.
    #[serde(skip)]
    pub waits: HoldCount,
    /// Payloads of the replies and faults that are the result of a request to the thread. This
    /// request is the latest one that has a result. A redacted payload is `None`.
    #[serde(rename = "result", serialize_with = "serialize_results")]
    pub results: Vec<Option<String>>,
    /// Digest of the workflow definition; `None` if the thread is no run of a workflow.
    #[serde(rename = "definition")]
    pub definition: Option<String>,
    #[serde(rename = "messages")]
    pub messages: u64,
    #[serde(rename = "turns")]
    pub turns: u64,
    #[serde(rename = "refusals")]
    pub refusals: u64,
    #[serde(rename = "failed_attempts")]
    pub failed_attempts: u64,
    #[serde(rename = "subthreads")]
    pub subthreads: u64,
    #[serde(rename = "spent")]
    pub spent: SpendingTotals,
    /// Currency of the money in `spent`; `None` if it is unknown, or if there are several.
    #[serde(rename = "currency")]
    pub currency: Option<String>,
    /// Milliseconds from the opening of the thread to its last event.
    #[serde(rename = "ms")]
    pub ms: u64,
}

/// Writes the payloads of a result, one after another. Writes null if all payloads were redacted,
/// or if there is no payload.
fn serialize_results<S: Serializer>(
    results: &[Option<String>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if results.iter().all(Option::is_none) {
        return serializer.serialize_none();
    }
    let texts = results.iter().map(|result| result.as_deref().unwrap_or("[redacted]"));
    serializer.serialize_some(&texts.collect::<Vec<_>>().join("\n"))
}

/// Compares the events and prompts of two threads, including everything beneath the threads.
pub fn compare_threads(left: &ThreadTimeline, right: &ThreadTimeline) -> ThreadComparison {
    let mut comparer = ThreadComparer {
        left: ContentReader::beside(left, right),
        right: ContentReader::beside(right, left),
        left_scope: EventScope::of(left, right),
        right_scope: EventScope::of(right, left),
        // The deadline limits threads without common events, which would otherwise take quadratic
        // time.
        deadline: Instant::now() + limits::COMPARISON_TIME,
        differences: Vec::new(),
        equal: 0,
        prompts: Vec::new(),
    };
    comparer.compare(left, right, Position(u64::MAX));

    let ThreadComparer { left: left_ids, right: right_ids, mut differences, mut prompts, .. } =
        comparer;
    // The sort is stable: an event that only the right thread has stays before the event whose
    // position it has.
    differences.sort_by_key(|difference| difference.order);
    prompts.sort_by_key(|pair| pair.order);
    ThreadComparison {
        differences,
        equal: comparer.equal,
        prompts,
        left: ThreadTotals::of(left),
        right: ThreadTotals::of(right),
        is_with_fork: origin_in(left, right).or(origin_in(right, left)).is_some(),
        has_equal_results: left.status == right.status
            && has_same_results((left, &left_ids), (right, &right_ids)),
        left_ids,
        right_ids,
    }
}

impl ThreadComparison {
    /// Whether both threads have the same status, and have results with the same content.
    pub fn has_equal_results(&self) -> bool {
        self.has_equal_results
    }

    /// Whether at least one of the two threads has not ended.
    pub fn is_open(&self) -> bool {
        [&self.left, &self.right].iter().any(|side| is_open_phase(side.status.as_str()))
    }

    /// States whether the results are equal, or which thread has not ended. `names` are the names
    /// of the two threads.
    pub fn result_verdict(&self, names: [&str; 2]) -> String {
        let sides = names.into_iter().zip([&self.left, &self.right]);
        let open = sides.filter(|(_, side)| is_open_phase(side.status.as_str()));
        let open: Vec<&str> = open.map(|(name, _)| name).collect();
        let unknown = "the results cannot be compared yet";
        match open.as_slice() {
            [] if self.has_equal_results => "the results are equal".to_owned(),
            [] => "the results are different".to_owned(),
            [one] => format!("{one} has not ended: {unknown}"),
            several => format!("{} have not ended: {unknown}", several.join(" and ")),
        }
    }

    /// Returns the pairs of turns whose prompts differ and which come before the first event that
    /// differs between the threads. That event cannot be the reason why their prompts differ.
    pub fn prompts_before_difference(&self) -> impl Iterator<Item = &PromptPair> {
        let first = self.differences.first();
        let is_before = move |pair: &&PromptPair| {
            first.is_none_or(|first| match &first.left {
                // The turn of the pair may be the event that differs.
                Some(_) => pair.order <= first.order,
                // The event that only the right thread has may be a consequence of the turn.
                None => {
                    let right = first.right.as_ref();
                    pair.order <= first.order
                        && right.is_some_and(|right| pair.right.position <= right.position)
                }
            })
        };
        self.prompts.iter().take_while(is_before)
    }

    /// Returns the requests of the two turns in a form that can be compared. Ids are replaced by
    /// places in the thread, and times that the core has stated, such as those of timers, by the
    /// word `TIME`. Both requests show the environment of the left turn, which includes the date.
    pub fn comparable_prompts(&self, pair: &PromptPair, left: &str, right: &str) -> [String; 2] {
        let right = match (&pair.left.environment, &pair.right.environment) {
            (Some(one), Some(other)) if !other.is_empty() => right.replace(other, one),
            _ => right.to_owned(),
        };
        let left = self.left_ids.without_ids_and_times(left);
        let right = self.right_ids.without_ids_and_times(&right);
        [left, right]
    }
}

struct ThreadComparer<'t> {
    left: ContentReader,
    right: ContentReader,
    left_scope: EventScope<'t>,
    right_scope: EventScope<'t>,
    deadline: Instant,
    differences: Vec<ThreadDifference>,
    equal: u64,
    prompts: Vec<PromptPair>,
}

/// An event of a compared thread, with its content.
pub(super) struct EventOf<'t> {
    thread: &'t ThreadId,
    pub entry: &'t TimelineEntry,
    /// Content of the event; `None` for a subthread, which is compared event by event.
    content: Option<EventContent>,
    /// Digest of the content or, for a subthread, of the text by which subthreads are paired.
    pub key: Digest,
    /// Whether the event is a result for a run of a workflow, whose place among the other events is
    /// no content.
    pub is_run_result: bool,
    /// Position by which the events of a thread are sorted: that of the event, or for a subthread,
    /// that of the first compared event beneath it. A subthread that a fork has taken over was
    /// opened elsewhere than in the source.
    pub order: Position,
    /// Number of the event among the compared events of its thread, counted from 0.
    number: usize,
    /// In the right thread, the `order` that the next common result for a run of a workflow has in
    /// the left thread. `None` if no such result follows.
    pub next_result: Option<Position>,
}

/// The events of the left thread that are compared in order.
struct LeftEvents<'t> {
    events: Vec<EventOf<'t>>,
    /// The `order` of each compared event of the thread, in ascending order. Contains those of
    /// common results for runs of workflows, which `events` lacks.
    orders: Vec<Position>,
    /// Position by which events that only the right thread has at its end are sorted.
    end: Position,
}

impl<'t> ThreadComparer<'t> {
    /// Compares the events of two threads in order, except results for runs of workflows that both
    /// threads have. Subthreads are compared in pairs. `end` is the position by which events that
    /// only the right thread has at its end are sorted.
    fn compare(&mut self, left: &'t ThreadTimeline, right: &'t ThreadTimeline, end: Position) {
        let mut before = events_of(left, &self.left, &self.left_scope);
        let mut after = events_of(right, &self.right, &self.right_scope);
        let orders = before.iter().map(|event| event.order).collect();
        self.equal += remove_common_results(&mut before, &mut after);
        let before = LeftEvents { events: before, orders, end };

        let keys =
            |events: &[EventOf<'_>]| events.iter().map(|event| event.key).collect::<Vec<_>>();
        let operations = capture_diff_slices_deadline(
            Algorithm::Myers,
            &keys(&before.events),
            &keys(&after),
            Some(self.deadline),
        );

        for operation in operations {
            let (_, old, new) = operation.as_tag_tuple();
            let new = after.get(new).unwrap_or_default();
            match operation {
                DiffOp::Equal { .. } => {
                    for (at, new) in old.zip(new) {
                        self.compare_pair(&before, at, new);
                    }
                }
                _ => self.compare_ranges(&before, old, new),
            }
        }
    }

    /// Compares two corresponding events: the event `at` of the left thread's events `before`, and
    /// `right`. For two subthreads, compares their events. For the notes of two turns, compares the
    /// prompts of the turns.
    fn compare_pair(&mut self, before: &LeftEvents<'t>, at: usize, right: &EventOf<'t>) {
        let Some(left) = before.events.get(at) else { return };
        match (&left.entry.what, &right.entry.what) {
            (TimelineEvent::Subthread(one), TimelineEvent::Subthread(other)) => {
                // The recursion is bounded, because the depth of threads is bounded.
                self.compare(one, other, before.end_beneath(left));
            }
            (TimelineEvent::Message(one), TimelineEvent::Message(other)) => {
                self.equal += 1;
                self.compare_prompts(one, other);
            }
            _ => self.equal += 1,
        }
    }

    /// Compares two ranges of events, in which the diff of the threads has found no equal events:
    /// `old` of the left thread's events `before`, and `new` of the right thread. Pairs events as
    /// [`pair_events`] does. If both events of a pair are subthreads, these are compared event by
    /// event. Every other pair, and every event without a partner, is a difference. An event that
    /// only the right thread has is listed before the left events whose partners follow it. If
    /// there is none, it is listed before the left event that comes after the range, or at the end.
    fn compare_ranges(&mut self, before: &LeftEvents<'t>, old: Range<usize>, new: &[EventOf<'t>]) {
        let after_range = old.end;
        let left_range = before.events.get(old.clone()).unwrap_or_default();
        let (partners, only_right) = pair_events(left_range, new);
        let mut only_right = only_right.into_iter().peekable();

        for ((number, at), right) in old.enumerate().zip(partners) {
            let Some(left) = before.events.get(at) else { continue };
            while let Some((_, added)) = only_right.next_if(|(next, _)| *next <= number) {
                self.add(before.order_of_added(added, at), None, Some(added));
            }
            let Some(right) = right else {
                self.add(left.order, Some(left), None);
                continue;
            };
            match (&left.entry.what, &right.entry.what) {
                (TimelineEvent::Subthread(one), TimelineEvent::Subthread(other)) => {
                    self.compare(one, other, before.end_beneath(left));
                    continue;
                }
                (TimelineEvent::Message(one), TimelineEvent::Message(other)) => {
                    self.compare_prompts(one, other);
                }
                _ => {}
            }
            self.add(left.order, Some(left), Some(right));
        }

        for (_, added) in only_right {
            self.add(before.order_of_added(added, after_range), None, Some(added));
        }
    }

    fn compare_prompts(&mut self, left: &MessageView, right: &MessageView) {
        if left.name != system::name(system::MODEL_TURN) {
            return;
        }
        // A turn that replays the answer of the other turn had the same prompt.
        let is_same = |(own, other): (&MessageView, &MessageView)| {
            recorded_of(own).is_some_and(|recorded| recorded == other.id.to_string())
        };
        if is_same((left, right)) || is_same((right, left)) {
            return;
        }
        let turns = turn_of(left).zip(turn_of(right));
        if let Some((left, right)) = turns.filter(|(left, right)| left.prompt != right.prompt) {
            self.prompts.push(PromptPair { order: left.position, left, right });
        }
    }

    fn add(&mut self, order: Position, left: Option<&EventOf<'_>>, right: Option<&EventOf<'_>>) {
        let left = left.map(EventOf::compared);
        let right = right.map(EventOf::compared);
        self.differences.push(ThreadDifference { order, left, right });
    }
}

impl EventOf<'_> {
    pub fn title(&self) -> &str {
        self.content.as_ref().map_or("subthread", |content| &content.title)
    }

    fn compared(&self) -> ComparedEvent {
        let message = match &self.entry.what {
            TimelineEvent::Message(message) => Some(message.id),
            _ => None,
        };
        let subthread = match &self.entry.what {
            TimelineEvent::Subthread(child) => Some(format!("subthread of {}", child.opened_by)),
            _ => None,
        };

        ComparedEvent {
            thread: self.thread.clone(),
            position: self.entry.position,
            seq: self.entry.seq,
            message,
            title: subthread.unwrap_or_else(|| self.title().to_owned()),
            lines: self.content.as_ref().map(EventContent::lines).unwrap_or_default(),
        }
    }
}

impl LeftEvents<'_> {
    /// Returns the position by which events are sorted that only the right side has at the end of a
    /// subthread. `subthread` is the left subthread. The returned position is that of its parent's
    /// next event after everything beneath the subthread, or `end` if there is no such event.
    fn end_beneath(&self, subthread: &EventOf<'_>) -> Position {
        let last = match &subthread.entry.what {
            TimelineEvent::Subthread(child) => last_position(child),
            _ => Position(0),
        };
        let mut orders = self.orders.iter().skip(subthread.number + 1).copied();
        orders.find(|position| *position >= last).unwrap_or(self.end)
    }

    /// Returns the position by which an event is sorted that only the right thread has, and that is
    /// listed before the left event `next`. If a common result for a run of a workflow follows the
    /// right event, and stands directly before `next` in the left thread, the event comes before
    /// this result.
    fn order_of_added(&self, added: &EventOf<'_>, next: usize) -> Position {
        let order = self.events.get(next).map_or(self.end, |event| event.order);
        let previous = next.checked_sub(1).and_then(|previous| self.events.get(previous));
        let begin = previous.map_or(Position(0), |event| event.order);
        added.next_result.filter(|result| (begin..order).contains(result)).unwrap_or(order)
    }
}

/// Returns the position of the last event of a thread and of everything beneath it; 0 if there is
/// no event.
fn last_position(timeline: &ThreadTimeline) -> Position {
    let positions = timeline.items.iter().map(|item| match &item.what {
        // The recursion is bounded, because the depth of threads is bounded.
        TimelineEvent::Subthread(child) => last_position(child).max(item.position),
        _ => item.position,
    });
    positions.max().unwrap_or_default()
}

/// Returns the events of the thread itself that are in the scope, with each subthread as one event,
/// at the place of the first compared event beneath it. Leaves out events without content, such as
/// counts of submissions that were refused as `busy`.
fn events_of<'t>(
    timeline: &'t ThreadTimeline,
    reader: &ContentReader,
    scope: &EventScope<'t>,
) -> Vec<EventOf<'t>> {
    let events = scope.events(timeline).filter_map(|entry| {
        let content = reader.read(&entry.what);
        let named = match (&entry.what, &content) {
            (TimelineEvent::Subthread(child), _) => opening(child, reader, scope),
            (_, Some(content)) => format!("{}\0{}", content.title, content.text),
            _ => return None,
        };
        let key = Digest::of(named.as_bytes());
        let is_run_result = match &entry.what {
            TimelineEvent::Message(message) => reader.is_run_result(message),
            _ => false,
        };
        let order = first_position(entry, reader, scope).unwrap_or(entry.position);
        let thread = &timeline.thread;
        let next_result = None;
        Some(EventOf { thread, entry, content, key, is_run_result, order, number: 0, next_result })
    });

    let mut events: Vec<EventOf<'t>> = events.collect();
    events.sort_by_cached_key(|event| match &event.entry.what {
        // At one position, the subthreads come last, in the order in which they were opened. The
        // number in a longer place is higher.
        TimelineEvent::Subthread(child) => {
            let place = reader.place(&child.thread).unwrap_or_default();
            (event.order, place.len(), place.to_owned())
        }
        _ => (event.order, 0, String::new()),
    });
    for (number, event) in events.iter_mut().enumerate() {
        event.number = number;
    }
    events
}

/// Returns the position of the event, or of the first compared event beneath it if it is a
/// subthread. Returns `None` if there is no content.
fn first_position<'t>(
    entry: &'t TimelineEntry,
    reader: &ContentReader,
    scope: &EventScope<'t>,
) -> Option<Position> {
    let TimelineEvent::Subthread(child) = &entry.what else {
        return reader.has_content(&entry.what).then_some(entry.position);
    };
    // The recursion is bounded, because the depth of threads is bounded.
    scope.events(child).filter_map(|item| first_position(item, reader, scope)).min()
}

/// Returns the key by which subthreads are paired: the listener that opened the subthread, and the
/// subthread's first event.
fn opening<'t>(
    timeline: &'t ThreadTimeline,
    reader: &ContentReader,
    scope: &EventScope<'t>,
) -> String {
    let first = scope.events(timeline).find_map(|item| reader.read(&item.what));
    let text = first.map(|first| format!("{}\0{}", first.title, first.text)).unwrap_or_default();
    format!("subthread\0{}\0{text}", timeline.opened_by)
}

/// Whether the latest requests with a result have the same results in the two threads. If only one
/// of the threads is a fork, and the fork has a result, some results of the other thread are
/// ignored: those of peers without a result in the fork. The reason is that a call that ended
/// before the fork began has its result only in the source.
fn has_same_results(
    (left, left_ids): (&ThreadTimeline, &ContentReader),
    (right, right_ids): (&ThreadTimeline, &ContentReader),
) -> bool {
    let mut before = last_results(left);
    let mut after = last_results(right);
    match (is_fork(left), is_fork(right)) {
        (false, true) if !after.is_empty() => {
            before.retain(|(request, _)| has_result_of(&after, &request.to));
        }
        (true, false) if !before.is_empty() => {
            after.retain(|(request, _)| has_result_of(&before, &request.to));
        }
        _ => {}
    }

    let before = before.iter().map(|(_, message)| left_ids.message(message));
    let after = after.iter().map(|(_, message)| right_ids.message(message));
    before.eq(after)
}

fn is_fork(timeline: &ThreadTimeline) -> bool {
    messages_of(timeline)
        .any(|message| message.from.is_core() && message.name == system::name("fork"))
}

fn has_result_of(results: &[(&MessageView, &MessageView)], listener: &ListenerName) -> bool {
    results.iter().any(|(request, _)| request.to == *listener)
}

fn turn_of(message: &MessageView) -> Option<ComparedTurn> {
    let note = Element::read(message.payload.as_deref()?)?;
    Some(ComparedTurn {
        thread: message.thread.clone(),
        agent: message.to.clone(),
        turn: note.attribute("turn")?.parse().ok()?,
        position: message.position,
        prompt: Digest::parse(note.attribute("prompt")?).ok()?,
        environment: note.child("environment").map(Element::text),
    })
}

impl ThreadTotals {
    fn of(timeline: &ThreadTimeline) -> Self {
        let mut totals = Self {
            thread: timeline.thread.clone(),
            status: timeline.status,
            waits: timeline.waits,
            results: Vec::new(),
            definition: None,
            messages: 0,
            turns: 0,
            refusals: 0,
            failed_attempts: 0,
            subthreads: 0,
            spent: timeline.spent.clone(),
            currency: timeline.spent.money.currency().map(str::to_owned),
            ms: 0,
        };
        let end = totals.add(timeline);
        let micros = end.0.saturating_sub(timeline.opened.0);
        totals.ms = u64::try_from(micros / 1_000).unwrap_or_default();

        totals.definition = messages_of(timeline).find_map(|message| {
            let payload = message.payload.as_deref()?;
            let definition = (message.name == run_definition_name())
                .then(|| Element::head(payload))
                .flatten()?;
            definition.attribute("digest").map(str::to_owned)
        });
        let results = last_results(timeline).into_iter();
        totals.results = results.map(|(_, message)| message.payload.clone()).collect();
        totals
    }

    /// Adds the events of a thread and of everything beneath it. Returns the time of the last of
    /// these events.
    fn add(&mut self, timeline: &ThreadTimeline) -> Time {
        let mut last = timeline.updated;
        for item in &timeline.items {
            match &item.what {
                TimelineEvent::Message(message) => {
                    self.messages += 1;
                    self.turns += u64::from(message.name == system::name(system::MODEL_TURN));
                }
                TimelineEvent::Refused(_) => self.refusals += 1,
                TimelineEvent::AttemptFailed { .. } => self.failed_attempts += 1,
                TimelineEvent::Subthread(child) => {
                    self.subthreads += 1;
                    last = last.max(self.add(child));
                }
                _ => {}
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::super::fork_origin::TreeOrigin;
    use super::super::views::RefusalView;
    use super::*;
    use crate::envelope::{AttemptFailure, MessageKind, Refusal, RefusalRule};
    use crate::ids::{Attempt, CallId};
    use crate::thread::{DecisionOrigin, ForkSource};

    /// Returns a thread with two messages of the core: about a timer, and about an approval.
    fn timed(thread: &str, timer: u128, time: &str, label: &str) -> ThreadTimeline {
        let thread = ThreadId::parse(thread).unwrap();
        let mut timeline = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        let timer = uuid::Uuid::from_u128(timer);
        let attributes = format!("timer_id=\"{timer}\" fires_at=\"{time}\" label=\"{label}\"");
        let payloads = [
            ("timer-set", attributes),
            ("approval-requested", format!("listener=\"ledger\" until=\"{time}\"")),
        ];
        for (seq, (word, attributes)) in (1..).zip(payloads) {
            let payload = format!("<{word} xmlns=\"{}\" {attributes}/>", system::NAMESPACE);
            add_message(&mut timeline, (Position(seq), seq), word, payload);
        }
        timeline
    }

    /// Adds a message of the core to a thread.
    fn add_message(
        timeline: &mut ThreadTimeline,
        (position, seq): (Position, u64),
        word: &str,
        payload: String,
    ) {
        let what = TimelineEvent::Message(MessageView {
            position,
            id: MessageId(uuid::Uuid::now_v7()),
            thread: timeline.thread.clone(),
            seq,
            kind: MessageKind::System,
            from: ListenerName::core(),
            to: ListenerName::parse("writer").unwrap(),
            cause: None,
            call: None,
            time: Time(0).to_string(),
            at: Time(0),
            name: system::name(word),
            digest: Digest::of(payload.as_bytes()),
            payload: Some(payload),
            disposition: None,
            hold: None,
            is_handed_over: None,
        });
        timeline.items.push(TimelineEntry { position, at: Time(0), seq, what });
    }

    #[test]
    fn the_events_of_one_record_that_one_thread_lacks_are_listed_in_their_order() {
        let thread = ThreadId::parse("sess-abcdefgh").unwrap();
        let left = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        let mut right = left.clone();
        for (seq, word) in (1..).zip(["a", "b", "c", "d", "e", "f", "g"]) {
            let payload = format!("<{word} xmlns=\"{}\"/>", system::NAMESPACE);
            add_message(&mut right, (Position(1), seq), word, payload);
        }

        let differences = compare_threads(&left, &right).differences;
        let listed = differences.iter().map(|own| own.right.as_ref().map(|event| event.seq));
        let listed: Option<Vec<u64>> = listed.collect();
        assert_eq!(listed, Some((1..=7).collect()));
    }

    /// Adds a message to a thread, and returns its id.
    fn add_sent(
        timeline: &mut ThreadTimeline,
        (position, kind): (u64, MessageKind),
        (from, to): (&str, &str),
        cause: Option<MessageId>,
        payload: &str,
    ) -> MessageId {
        let seq = timeline.items.len() as u64 + 1;
        add_message(timeline, (Position(position), seq), "ack", payload.to_owned());
        let added = timeline.items.last_mut().map(|item| &mut item.what);
        let Some(TimelineEvent::Message(message)) = added else { panic!("it was just added") };
        message.kind = kind;
        message.from = ListenerName::parse(from).unwrap();
        message.to = ListenerName::parse(to).unwrap();
        message.cause = cause;
        message.id
    }

    /// Returns a thread in which a client has sent a request to the peers `a` and `b`. `results`
    /// are the results of the peers, in the order in which they came. `is_first` states whether
    /// the first reply is enough.
    fn gathered(is_first: bool, results: &[(&str, MessageKind, &str)]) -> ThreadTimeline {
        let thread = ThreadId::parse("sess-abcdefgh").unwrap();
        let mut timeline = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        timeline.status = ThreadPhase::Completed;
        let mut requests = HashMap::new();
        for peer in ["a", "b"] {
            let call = (1, MessageKind::Call);
            let id = add_sent(&mut timeline, call, ("me", peer), None, "<ask xmlns=\"urn:t\"/>");
            requests.insert(peer, id);
        }
        if is_first {
            timeline.first_requests.extend(requests.values());
        }
        for (position, (peer, kind, payload)) in (2..).zip(results) {
            let cause = requests.get(peer).copied();
            add_sent(&mut timeline, (position, *kind), (peer, "me"), cause, payload);
        }
        timeline
    }

    #[test]
    fn a_fork_without_a_result_is_not_equal_to_a_source_that_has_one() {
        let paid = ("a", MessageKind::Reply, "<done xmlns=\"urn:t\">100</done>");
        let both = [paid, ("b", MessageKind::Reply, "<done xmlns=\"urn:t\">b</done>")];
        let source = gathered(false, &both);
        let fork_with = |results: &[_]| {
            let mut fork = gathered(false, results);
            let note = (9, MessageKind::Note);
            add_sent(&mut fork, note, (ListenerName::CORE, "me"), None, "<fork/>");
            let Some(TimelineEvent::Message(message)) =
                fork.items.last_mut().map(|item| &mut item.what)
            else {
                panic!("it was just added")
            };
            message.name = system::name("fork");
            fork
        };
        let with_one = fork_with(&[paid]);
        let without = fork_with(&[]);
        let is_equal = |left, right| compare_threads(left, right).has_equal_results();
        assert!(is_equal(&source, &with_one), "the other peer ended before the fork");
        assert!(!is_equal(&source, &without));
        assert!(!is_equal(&without, &source));
    }

    #[test]
    fn the_results_of_all_peers_are_compared_whatever_the_order_of_their_ends() {
        let paid = "<done xmlns=\"urn:t\">100</done>";
        let other = "<done xmlns=\"urn:t\">999</done>";
        let fault = "<failed xmlns=\"urn:t\"/>";
        let reply = MessageKind::Reply;
        let system = MessageKind::System;
        let is_equal = |left: &ThreadTimeline, right: &ThreadTimeline| {
            compare_threads(left, right).has_equal_results()
        };

        let left = gathered(false, &[("a", reply, paid), ("b", reply, fault)]);
        let right = gathered(false, &[("a", reply, other), ("b", reply, fault)]);
        assert!(!is_equal(&left, &right), "the result that came first differs");
        let right = gathered(false, &[("b", reply, fault), ("a", reply, paid)]);
        assert!(is_equal(&left, &right));
        let totals = compare_threads(&left, &right).right;
        assert_eq!(totals.results, [paid, fault].map(|payload| Some(payload.to_owned())));

        let several = gathered(false, &[("a", reply, paid), ("a", reply, fault)]);
        let changed = gathered(false, &[("a", reply, other), ("a", reply, fault)]);
        assert!(!is_equal(&several, &changed), "one listener has replied with two payloads");

        let left = gathered(true, &[("a", system, fault), ("b", reply, paid)]);
        let right = gathered(true, &[("b", reply, paid)]);
        assert!(is_equal(&left, &right), "the client gets no fault beside the first reply");
        let left = gathered(false, &[("a", system, fault), ("b", reply, paid)]);
        assert!(!is_equal(&left, &right), "the client gets all results");
    }

    fn last_message(timeline: &mut ThreadTimeline) -> &mut MessageView {
        match timeline.items.last_mut().map(|item| &mut item.what) {
            Some(TimelineEvent::Message(message)) => message,
            _ => panic!("the last event is no message"),
        }
    }

    /// Returns a thread in which the workflow `flow` has a run. Two messages end the thread, and
    /// the second contains the id of the first. If `waiting` names a listener, this listener waits
    /// before these two messages.
    fn run_of_flow(waiting: Option<&str>) -> ThreadTimeline {
        let name = |name: &str| ListenerName::parse(name).unwrap();
        let thread = ThreadId::parse("sess-abcdefgh").unwrap();
        let mut timeline = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        add_message(&mut timeline, (Position(1), 1), "ack", String::new());
        let definition = last_message(&mut timeline);
        definition.name = run_definition_name();
        definition.from = name("flow");
        definition.to = name("flow");

        let core = |word: &str| format!("<{word} xmlns=\"{}\"/>", system::NAMESPACE);
        if let Some(listener) = waiting {
            add_message(&mut timeline, (Position(2), 2), "wait", core("wait"));
            last_message(&mut timeline).from = name(listener);
            last_message(&mut timeline).to = ListenerName::core();
            add_message(&mut timeline, (Position(2), 3), "waiting", core("waiting"));
            last_message(&mut timeline).to = name(listener);
        }

        add_message(&mut timeline, (Position(3), 4), "ack", core("ack"));
        let about = last_message(&mut timeline).id;
        let ack = format!("<ack xmlns=\"{}\" about=\"{about}\"/>", system::NAMESPACE);
        add_message(&mut timeline, (Position(3), 5), "ack", ack);
        timeline
    }

    /// Returns a thread with one message of the core for each pair of a position and a name.
    fn thread_of(thread: &str, messages: &[(u64, &str, &str)]) -> ThreadTimeline {
        let thread = ThreadId::parse(thread).unwrap();
        let mut timeline = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        for (seq, (position, word, text)) in (1..).zip(messages) {
            let payload = format!("<{word} xmlns=\"{}\">{text}</{word}>", system::NAMESPACE);
            add_message(&mut timeline, (Position(*position), seq), word, payload);
        }
        timeline
    }

    /// Returns the titles of all differences in their order, each with the sides that have it.
    fn listed(left: &ThreadTimeline, right: &ThreadTimeline) -> Vec<String> {
        let side = |event: &Option<ComparedEvent>| {
            event.as_ref().and_then(|event| event.title.rsplit(' ').next().map(str::to_owned))
        };
        let differences = compare_threads(left, right).differences;
        let listed = differences.iter().map(|one| match (side(&one.left), side(&one.right)) {
            (Some(title), None) => format!("{title} -"),
            (None, Some(title)) => format!("- {title}"),
            (Some(title), Some(_)) => title,
            (None, None) => String::new(),
        });
        listed.collect()
    }

    #[test]
    fn an_event_that_only_one_thread_has_comes_before_what_it_changed() {
        let short = thread_of("sess-abcdefgh", &[(1, "call", ""), (2, "reply", "1")]);
        let events = [(1, "call", ""), (2, "failed", ""), (3, "reply", "2"), (3, "other", "")];
        let long = thread_of("sess-ijklmnop", &events);
        assert_eq!(listed(&short, &long), ["- failed", "reply", "- other"]);
        assert_eq!(listed(&long, &short), ["failed -", "reply", "other -"]);
    }

    /// Returns a refusal of a payload of the core, at the first position.
    fn refused_event(timeline: &ThreadTimeline, payload: &str) -> TimelineEntry {
        let refusal = Refusal::new(RefusalRule::SchemaInvalid, "no", payload.as_bytes());
        let sender = &timeline.opened_by;
        let refused = RefusalView::new(Position(1), Time(0), sender, None, &refusal);
        let what = TimelineEvent::Refused(refused);
        TimelineEntry { position: Position(1), at: Time(0), seq: 0, what }
    }

    #[test]
    fn a_refusal_before_another_pair_is_no_counterpart_of_a_message_after_this_pair() {
        let accepting = thread_of("sess-abcdefgh", &[(1, "call", "1"), (2, "call", "5")]);
        let mut refusing = thread_of("sess-ijklmnop", &[(2, "call", "2")]);
        let refused = refused_event(&refusing, "<call/>");
        refusing.items.insert(0, refused);

        let expected = ["- schema-invalid", "call", "call -"];
        assert_eq!(listed(&accepting, &refusing), expected);
        let expected = ["schema-invalid -", "call", "- call"];
        assert_eq!(listed(&refusing, &accepting), expected);
    }

    #[test]
    fn a_message_that_the_other_thread_refused_is_one_difference_with_both_sides() {
        let accepted = thread_of("sess-abcdefgh", &[(1, "call", ""), (2, "reply", "1")]);
        let mut refusing = thread_of("sess-ijklmnop", &[]);
        for text in ["<other/>", "<call/>"] {
            let refused = refused_event(&refusing, text);
            refusing.items.push(refused);
        }

        for (left, right) in [(&accepted, &refusing), (&refusing, &accepted)] {
            let differences = compare_threads(left, right).differences;
            let both: Vec<_> = differences
                .iter()
                .filter_map(|one| Some([one.left.as_ref()?, one.right.as_ref()?]))
                .collect();
            let [[one, other]] = both.as_slice() else { panic!("{differences:?}") };
            let titles = [one.title.as_str(), other.title.as_str()];
            assert!(titles.contains(&"refused core by schema-invalid"), "{titles:?}");
            assert!(titles.iter().any(|title| title.ends_with(" call")), "{titles:?}");
            assert_eq!(differences.len(), 3, "{differences:?}");
        }
    }

    /// The parent opens both subthreads before one of them ends.
    #[test]
    fn an_event_at_the_end_of_one_subthread_comes_before_the_next_event_of_its_parent() {
        let subthread = |name: &str, added: Option<(u64, &str, &str)>| {
            let own = [(3, "ask", name), (6, "answer", name)];
            thread_of(name, &own.into_iter().chain(added).collect::<Vec<_>>())
        };
        let tree = |added: Option<(u64, &'static str, &'static str)>, result: &str| {
            let all = [(1, "call", ""), (8, "reply", result), (9, "end", result)];
            let mut timeline = thread_of("sess-abcdefgh", &all);
            let children =
                [subthread("sess-abcdefgh.a", added), subthread("sess-abcdefgh.b", None)];
            let entries = (2..).zip(children).map(|(position, child)| TimelineEntry {
                position: Position(position),
                at: Time(0),
                seq: 1,
                what: TimelineEvent::Subthread(child),
            });
            timeline.items.splice(1..1, entries);
            timeline
        };

        let short = tree(None, "1");
        let long = tree(Some((7, "extra", "")), "2");
        assert_eq!(listed(&short, &long), ["- extra", "reply", "end"]);
        assert_eq!(listed(&long, &short), ["extra -", "reply", "end"]);
    }

    #[test]
    fn a_prompt_after_an_added_event_is_not_listed_before_this_event() {
        let turn = |prompt: &str, raw: &str| {
            let digest = Digest::of(prompt.as_bytes());
            let name = system::MODEL_TURN;
            format!(
                "<{name} xmlns=\"{}\" turn=\"1\" prompt=\"{digest}\"><raw>{raw}</raw></{name}>",
                system::NAMESPACE
            )
        };
        let with_turn = |messages: &[(u64, &str, &str)], prompt: &str| {
            let mut timeline = thread_of("sess-abcdefgh", messages);
            let payload = turn(prompt, "yes");
            add_message(&mut timeline, (Position(5), 5), system::MODEL_TURN, payload);
            timeline
        };
        let left = with_turn(&[(1, "call", "")], "one");
        let right = with_turn(&[(1, "call", ""), (2, "added", "")], "other");
        let comparison = compare_threads(&left, &right);
        assert_eq!(comparison.prompts.len(), 1);
        assert_eq!(comparison.prompts_before_difference().count(), 0);

        // The record of the turn contains the added event, so that the prompt comes first.
        let with_result = |added: &[&str]| {
            let mut timeline =
                with_turn(&[(1, "call", "")], if added.is_empty() { "one" } else { "other" });
            for (seq, word) in (6..).zip(added.iter().chain(&["result"])) {
                let payload = format!("<{word} xmlns=\"{}\"/>", system::NAMESPACE);
                add_message(&mut timeline, (Position(5), seq), word, payload);
            }
            timeline
        };
        let comparison = compare_threads(&with_result(&[]), &with_result(&["added"]));
        assert_eq!(comparison.differences.len(), 1);
        assert_eq!(comparison.prompts_before_difference().count(), 1);

        // Without the added event, the prompt is the first difference.
        let right = with_turn(&[(1, "call", "")], "other");
        let comparison = compare_threads(&left, &right);
        assert_eq!(comparison.prompts_before_difference().count(), 1);
    }

    #[test]
    fn the_waits_of_workflows_are_no_difference_and_those_of_agents_are() {
        let left = run_of_flow(None);
        let same = compare_threads(&left, &run_of_flow(Some("flow")));
        assert_eq!((same.differences.len(), same.equal), (0, 3));

        let other = compare_threads(&left, &run_of_flow(Some("writer")));
        let added = other.differences.iter().filter(|difference| difference.left.is_none());
        assert_eq!(added.count(), 2);
    }

    /// Returns a run of the workflow `flow`, which acts at the positions 3 and 5. `results` are
    /// results for `call` of the listener `receiver`, each with its position. The last message
    /// names the first act.
    fn run_with_results(
        (receiver, call): (&str, Option<CallId>),
        results: &[(u64, &str)],
    ) -> ThreadTimeline {
        let mut about = None;
        let mut timeline = run_of_flow(None);
        timeline.items.truncate(1);
        let acts = [(3, "spawn-thread", "a"), (5, "spawn-thread", "b")];
        let results = results.iter().map(|(position, text)| (*position, "thread-result", *text));
        let mut events: Vec<_> = acts.into_iter().chain(results).collect();
        events.sort_by_key(|(position, ..)| *position);
        for (seq, (position, word, text)) in (2..).zip(events) {
            let payload = format!("<{word} xmlns=\"{}\">{text}</{word}>", system::NAMESPACE);
            add_message(&mut timeline, (Position(position), seq), word, payload);
            if text == "a" {
                about = Some(last_message(&mut timeline).id);
            }
        }
        address_results(&mut timeline, receiver, call);

        let about = about.unwrap();
        let ack = format!("<ack xmlns=\"{}\" about=\"{about}\"/>", system::NAMESPACE);
        add_message(&mut timeline, (Position(7), 9), "ack", ack);
        timeline
    }

    /// Addresses the replies and the results of threads in a thread to `receiver`, in its call.
    fn address_results(timeline: &mut ThreadTimeline, receiver: &str, call: Option<CallId>) {
        for item in &mut timeline.items {
            let TimelineEvent::Message(message) = &mut item.what else { continue };
            if matches!(&*message.name.local, "reply" | "thread-result") {
                message.to = ListenerName::parse(receiver).unwrap();
                message.call = call;
            }
            if &*message.name.local == "reply" {
                message.kind = MessageKind::Reply;
            }
        }
    }

    fn some_call() -> Option<CallId> {
        Some(CallId(MessageId(uuid::Uuid::now_v7())))
    }

    #[test]
    fn the_place_of_a_result_for_a_workflow_is_no_difference_and_the_result_is_one() {
        let run = ("flow", some_call());
        let left = run_with_results(run, &[(2, "1"), (4, "2")]);
        let same = compare_threads(&left, &run_with_results(run, &[(1, "1"), (2, "2")]));
        assert_eq!((same.differences.len(), same.equal), (0, 6));

        for (results, expected) in [
            (&[(1, "1"), (4, "3")][..], "thread-result"),
            (&[(2, "1")], "thread-result -"),
            (&[(2, "1"), (4, "2"), (6, "2")], "- thread-result"),
        ] {
            assert_eq!(listed(&left, &run_with_results(run, results)), [expected]);
        }

        // An agent may act otherwise, and a goal records its reply to the run in its own thread.
        for receiver in [("writer", some_call()), ("flow", None)] {
            let left = run_with_results(receiver, &[(2, "1"), (4, "2")]);
            let right = run_with_results(receiver, &[(2, "1"), (2, "2")]);
            assert!(!listed(&left, &right).is_empty(), "{receiver:?}");
        }
    }

    /// Two goals of a workflow run at the same time, and the second one ends otherwise.
    #[test]
    fn an_event_before_a_common_result_of_a_goal_comes_before_later_differences() {
        type Messages = &'static [(u64, &'static str, &'static str)];
        let tree = |in_goal: Messages, in_run: Messages, end: &'static str| {
            let first = [&[(2, "ask", "a"), (6, "reply", "a")][..], in_goal].concat();
            let second = vec![(3, "ask", "b"), (7, "answer", end), (8, "reply", end)];
            let mut timeline = run_of_flow(None);
            timeline.items.truncate(1);
            for (thread, messages) in [("sess-abcdefgh.a", first), ("sess-abcdefgh.b", second)] {
                let mut goal = thread_of(thread, &messages);
                address_results(&mut goal, "flow", None);
                let what = TimelineEvent::Subthread(goal);
                timeline.items.push(TimelineEntry {
                    position: Position(2),
                    at: Time(0),
                    seq: 1,
                    what,
                });
            }

            let results = [(6, "thread-result", "a"), (8, "thread-result", end)];
            for (seq, (position, word, text)) in (2..).zip(in_run.iter().chain(&results)) {
                let payload = format!("<{word} xmlns=\"{}\">{text}</{word}>", system::NAMESPACE);
                add_message(&mut timeline, (Position(*position), seq), word, payload);
            }
            address_results(&mut timeline, "flow", some_call());
            timeline
        };

        let left = tree(&[], &[], "1");
        let early = ["- extra", "answer", "reply", "thread-result"];
        assert_eq!(listed(&left, &tree(&[(5, "extra", "")], &[], "2")), early);
        assert_eq!(listed(&left, &tree(&[(7, "extra", "")], &[], "2")), early);
        assert_eq!(listed(&left, &tree(&[], &[(5, "extra", "")], "2")), early);
        let late = ["answer", "reply", "- extra", "thread-result"];
        assert_eq!(listed(&left, &tree(&[], &[(7, "extra", "")], "2")), late);
    }

    #[test]
    fn failed_attempts_of_calls_that_a_fork_answers_from_the_record_are_no_difference() {
        let thread = ThreadId::parse("sess-abcdefgh").unwrap();
        let mut fork = ThreadTimeline::new(thread, ListenerName::core(), Time(0));
        let mut source = fork.clone();
        let call = CallId(MessageId(uuid::Uuid::now_v7()));
        let what = TimelineEvent::AttemptFailed {
            call,
            listener: None,
            attempt: Attempt { epoch: 1, n: 1 },
            failure: AttemptFailure::Crashed { detail: "exited with code 3".to_owned() },
        };
        source.items.push(TimelineEntry { position: Position(1), at: Time(0), seq: 1, what });
        assert_eq!(compare_threads(&source, &fork).differences.len(), 1);

        fork.recalled.insert(call);
        assert_eq!(compare_threads(&source, &fork).differences.len(), 0);
        assert_eq!(compare_threads(&fork, &source).differences.len(), 0);
    }

    /// Makes `timeline` a fork of the thread `source`, of which it has taken over the records up to
    /// `history`. In a trial, `journal` is the journal of the source.
    fn make_fork(
        timeline: &mut ThreadTimeline,
        source: &ThreadTimeline,
        (history, journal): (u64, Option<uuid::Uuid>),
        copies: &[(MessageId, MessageId)],
    ) {
        let source = ForkSource {
            thread: source.thread.clone(),
            message: MessageId(uuid::Uuid::now_v7()),
            seq: 1,
            record: Position(history + 1),
            hash: Digest::ZERO,
            history: Position(history),
            unpinned: false,
            journal,
        };
        let copies = copies.iter().copied().collect();
        timeline.origin = Some(Arc::new(TreeOrigin { source, copies }));
    }

    #[test]
    fn the_history_that_a_fork_has_taken_over_is_no_difference() {
        let own = [(1, "call", ""), (2, "open", ""), (3, "early", ""), (4, "late", "")];
        let mut source = thread_of("sess-abcdefgh", &own);
        let mut fork = thread_of("sess-ijklmnop", &[(9, "open", ""), (10, "late", "")]);
        let child = thread_of("sess-abcdefgh.done", &[(2, "call", ""), (3, "reply", "")]);
        let what = TimelineEvent::Subthread(child);
        let entry = TimelineEntry { position: Position(2), at: Time(0), seq: 2, what };
        source.items.insert(2, entry);

        let id_at = |timeline: &ThreadTimeline, position: u64| {
            let mut messages = messages_of(timeline);
            messages.find(|message| message.position == Position(position)).unwrap().id
        };
        let copy = (id_at(&fork, 9), id_at(&source, 2));
        // The last message of each thread names a message of the history and a later one.
        for (timeline, open, late) in [(&mut source, 2, 4), (&mut fork, 9, 10)] {
            let named = [open, late].map(|position| id_at(timeline, position).to_string());
            let payload = format!("<end xmlns=\"urn:t\">{}</end>", named.join(" "));
            add_message(timeline, (Position(20), 5), "end", payload);
        }
        assert!(!listed(&source, &fork).is_empty());

        make_fork(&mut fork, &source, (3, None), &[copy]);
        assert_eq!(listed(&source, &fork), [""; 0]);
        assert_eq!(listed(&fork, &source), [""; 0]);
        assert_eq!(compare_threads(&source, &fork).equal, 2);
    }

    /// A fork has no message that opened a subthread of its history, so each such subthread stands
    /// behind the first record of the fork, sorted by its name.
    #[test]
    fn a_subthread_that_a_fork_continues_stands_where_it_goes_on() {
        let subthread = |root: &str, label: &str, opened: u64, asked: &[u64]| {
            let events: Vec<_> = asked.iter().map(|position| (*position, "ask", label)).collect();
            let child = thread_of(&format!("{root}.{label}"), &events);
            let what = TimelineEvent::Subthread(child);
            TimelineEntry { position: Position(opened), at: Time(0), seq: 1, what }
        };
        // The subthreads continue in one record, and in two.
        for apart in [0, 1] {
            let events = [(1, "call", "1"), (10, "call", "2"), (15, "end", "")];
            let mut source = thread_of("sess-abcdefgh", &events);
            let root = "sess-abcdefgh";
            let opened =
                [subthread(root, "b", 2, &[3, 12]), subthread(root, "a", 4, &[5, 12 + apart])];
            source.items.splice(1..1, opened);
            let mut fork = thread_of("sess-ijklmnop", &[(20, "call", "2"), (25, "end", "")]);
            let root = "sess-ijklmnop";
            let opened = [subthread(root, "a", 20, &[22 + apart]), subthread(root, "b", 20, &[22])];
            fork.items.splice(1..1, opened);

            make_fork(&mut fork, &source, (9, None), &[]);
            assert_eq!(listed(&source, &fork), [""; 0]);
            assert_eq!(listed(&fork, &source), [""; 0]);
            assert_eq!(compare_threads(&source, &fork).equal, 4);

            // A fork with another request continues no subthread.
            let mut edited = thread_of("sess-ijklmnop", &[(20, "call", "3"), (25, "end", "3")]);
            make_fork(&mut edited, &source, (9, None), &[]);
            assert_eq!(listed(&source, &edited), ["call", "core -", "core -", "end"]);
        }
    }

    /// The core informs the caller of an approval, and states what an operator did. A listener
    /// previews a call for an approval.
    #[test]
    fn notes_about_decisions_are_no_difference_between_a_thread_and_its_trial() {
        let notes = [
            "approval-requested",
            "approval-granted",
            "approval-refused",
            "operator-action",
            system::STALE_PREVIEW,
            system::PREVIEW,
        ];
        let mut source = thread_of("sess-abcdefgh", &[(1, "call", "")]);
        let mut trial = source.clone();
        for (seq, word) in (2..).zip(notes) {
            let payload = format!("<{word} xmlns=\"{}\"/>", system::NAMESPACE);
            add_message(&mut source, (Position(seq), seq), word, payload);
            if [system::PREVIEW, system::STALE_PREVIEW].contains(&word) {
                last_message(&mut source).from = ListenerName::parse("files").unwrap();
            }
        }
        // The last message names the one before it, by the same place in both threads.
        for timeline in [&mut source, &mut trial] {
            add_message(timeline, (Position(8), 8), "late", "<late xmlns=\"urn:t\"/>".to_owned());
            let late = last_message(timeline).id;
            let payload = format!("<end xmlns=\"urn:t\">{late}</end>");
            add_message(timeline, (Position(9), 9), "end", payload);
        }
        assert_eq!(listed(&source, &trial).len(), 7);

        make_fork(&mut trial, &source, (0, Some(uuid::Uuid::now_v7())), &[]);
        assert_eq!(listed(&source, &trial), [""; 0]);
        assert_eq!(listed(&trial, &source), [""; 0]);
    }

    /// A trial sends the accepted requests of a client, and people decide nothing in it. A turn
    /// that it has from the record stands for all attempts at this turn.
    #[test]
    fn events_that_no_trial_can_repeat_are_no_difference() {
        let call = CallId(MessageId(uuid::Uuid::now_v7()));
        let note = |timeline: &mut ThreadTimeline, position: u64, recorded: Option<MessageId>| {
            let recorded = recorded.map(|id| format!(" recorded=\"{id}\"")).unwrap_or_default();
            let word = system::MODEL_TURN;
            let namespace = system::NAMESPACE;
            let payload = format!("<{word} xmlns=\"{namespace}\" call=\"{}\"{recorded}/>", call.0);
            add_message(timeline, (Position(position), 1), word, payload);
            last_message(timeline).id
        };
        let failed = |position: u64| {
            let what = TimelineEvent::AttemptFailed {
                call,
                listener: None,
                attempt: Attempt { epoch: 1, n: 1 },
                failure: AttemptFailure::Crashed { detail: "it was killed".to_owned() },
            };
            TimelineEntry { position: Position(position), at: Time(0), seq: 1, what }
        };

        let mut source = thread_of("sess-abcdefgh", &[(1, "call", "")]);
        let refusal = Refusal::new(RefusalRule::SchemaInvalid, "no".to_owned(), b"<x/>");
        let sender = source.opened_by.clone();
        let refused = RefusalView::new(Position(2), Time(0), &sender, None, &refusal);
        let decision = TimelineEvent::Decision {
            verb: "cancel",
            by: ListenerName::operator(),
            origin: DecisionOrigin::default(),
            signed: None,
            message: None,
            details: Vec::new(),
        };
        let operator = ListenerName::operator();
        let not_waiting = Refusal::new(RefusalRule::NotWaiting, "ended".to_owned(), b"");
        let undecided = RefusalView::new(Position(3), Time(0), &operator, None, &not_waiting);
        let files = ListenerName::parse("files").unwrap();
        let no_preview = RefusalView::new(Position(2), Time(0), &files, None, &refusal);
        let no_preview = RefusalView { is_of_preview: true, ..no_preview };
        let refusals = [refused, no_preview, undecided];
        let [refused, no_preview, undecided] = refusals.map(TimelineEvent::Refused);
        for (position, what) in [(2, refused), (2, no_preview), (3, decision), (3, undecided)] {
            let position = Position(position);
            source.items.push(TimelineEntry { position, at: Time(0), seq: 1, what });
        }
        source.items.push(failed(3));
        let first = note(&mut source, 4, None);

        let mut trial = thread_of("sess-abcdefgh", &[(1, "call", "")]);
        note(&mut trial, 2, Some(first));
        assert_eq!(listed(&source, &trial).len(), 5);
        make_fork(&mut trial, &source, (0, Some(uuid::Uuid::now_v7())), &[]);
        assert_eq!(listed(&source, &trial), [""; 0]);
        assert_eq!(listed(&trial, &source), [""; 0]);

        // In a fork of the same journal, people decide and clients send what they want.
        make_fork(&mut trial, &source, (0, None), &[]);
        assert_eq!(listed(&source, &trial).len(), 4);

        // A model of the trial takes the next turn, so the failed attempt is a difference.
        make_fork(&mut trial, &source, (0, Some(uuid::Uuid::now_v7())), &[]);
        source.items.push(failed(5));
        note(&mut source, 6, None);
        note(&mut trial, 7, None);
        assert_eq!(listed(&source, &trial), ["failed -"]);
    }

    #[test]
    fn the_times_of_timers_and_approvals_are_no_difference_of_events_and_prompts() {
        let left = timed("sess-abcdefgh", 1, "2026-11-28T18:24:00.126827Z", "tea");
        let right = timed("sess-ijklmnop", 2, "2026-11-28T18:44:37.200411Z", "tea");
        let comparison = compare_threads(&left, &right);
        assert_eq!((comparison.differences.len(), comparison.equal), (0, 2));

        let turn = |timeline: &ThreadTimeline| ComparedTurn {
            thread: timeline.thread.clone(),
            agent: ListenerName::core(),
            turn: 1,
            position: Position(1),
            prompt: Digest::ZERO,
            environment: None,
        };
        let pair = PromptPair { order: Position(1), left: turn(&left), right: turn(&right) };
        let [left_text, right_text] = [&left, &right].map(|timeline| {
            let messages = messages_of(timeline).filter_map(|message| message.payload.clone());
            messages.collect::<String>()
        });
        assert_ne!(left_text, right_text);
        let [left_text, right_text] = comparison.comparable_prompts(&pair, &left_text, &right_text);
        assert_eq!(left_text, right_text);

        let other = timed("sess-ijklmnop", 2, "2026-11-28T18:44:37.200411Z", "coffee");
        assert_eq!(compare_threads(&left, &other).differences.len(), 1);
    }

    #[test]
    fn the_date_of_the_environment_and_ids_are_no_difference_of_prompts() {
        let thread = ThreadId::parse("sess-abcdefgh").unwrap();
        let timeline = ThreadTimeline::new(thread.clone(), ListenerName::core(), Time(0));
        let comparison = compare_threads(&timeline, &timeline);
        let turn = |date: &str| ComparedTurn {
            thread: thread.clone(),
            agent: ListenerName::core(),
            turn: 1,
            position: Position(1),
            prompt: Digest::of(date.as_bytes()),
            environment: Some(format!("Date: {date}")),
        };
        let pair = PromptPair { order: Position(1), left: turn("Monday"), right: turn("Tuesday") };

        let text = |date: &str, word: &str| format!("{word}\nDate: {date}\nsess-abcdefgh");
        let compared = |word: &str| {
            comparison.comparable_prompts(&pair, &text("Monday", "Hello"), &text("Tuesday", word))
        };
        let [left, right] = compared("Hello");
        assert_eq!(left, "Hello\nDate: Monday\nthread");
        assert_eq!(left, right);
        let [left, right] = compared("Goodbye");
        assert_ne!(left, right);
    }
}
