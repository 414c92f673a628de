//! The events of a tree that are compared with another tree. If one tree is a fork of the other,
//! leaves out the history that the two share, and the events of the source that the fork cannot
//! repeat.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use super::fork_origin::TreeOrigin;
use super::timeline::{ThreadTimeline, TimelineEntry, TimelineEvent};
use super::views::MessageView;
use crate::envelope::MessageKind;
use crate::ids::{CallId, ListenerName, MessageId, Position};
use crate::system;
use crate::xml::element::Element;

/// Selects the events of one tree that are compared with another tree.
pub(super) struct EventScope<'t> {
    /// Position of the last record that the other tree has taken over as its history. 0 if the
    /// other tree is no fork of this one.
    history: Position,
    /// The origin of this tree, if it is a fork of the other one.
    origin: Option<&'t TreeOrigin>,
    /// Whether the other tree is a trial of this one.
    is_tried: bool,
    /// Calls whose recorded results became results of calls in the other tree.
    recalled: HashSet<CallId>,
    /// For each call with turns, the positions of these turns. The value of a position is true if
    /// the other tree has this turn from the record. Empty if the other tree is no fork of this
    /// one.
    turns: HashMap<CallId, BTreeMap<Position, bool>>,
    /// Positions of the records with decisions of people. Empty if the other tree is no fork of
    /// this one.
    decisions: HashSet<Position>,
}

impl<'t> EventScope<'t> {
    /// Creates the scope of the events of `own`, which are compared with those of `other`.
    pub fn of(own: &'t ThreadTimeline, other: &ThreadTimeline) -> Self {
        let mut scope = Self {
            history: Position(0),
            origin: origin_in(own, other),
            is_tried: false,
            recalled: HashSet::new(),
            turns: HashMap::new(),
            decisions: HashSet::new(),
        };
        add_recalled(&mut scope.recalled, other);

        if let Some(TreeOrigin { source, .. }) = origin_in(other, own) {
            scope.history = source.history;
            scope.is_tried = is_trial_of(other, own);
            let mut repeated = HashSet::new();
            add_repeated(&mut repeated, other);
            scope.add_events(own, &repeated);
        }
        scope
    }

    /// Adds the turns and the decisions in a thread and in everything beneath it. `repeated`
    /// contains the ids of the notes of the turns that the other tree has from the record.
    fn add_events(&mut self, timeline: &ThreadTimeline, repeated: &HashSet<String>) {
        for item in &timeline.items {
            match &item.what {
                TimelineEvent::Message(note) => {
                    if let Some(call) = call_of_turn(note) {
                        let is_repeated = repeated.contains(&note.id.to_string());
                        self.turns.entry(call).or_default().insert(note.position, is_repeated);
                    }
                }
                TimelineEvent::Decision { .. } => {
                    self.decisions.insert(item.position);
                }
                // The recursion is bounded, because the depth of threads is bounded.
                TimelineEvent::Subthread(child) => self.add_events(child, repeated),
                _ => {}
            }
        }
    }

    /// Returns the events of the thread that are compared, with each subthread as one event. Leaves
    /// out:
    /// - subthreads without any event that is compared,
    /// - in the source of a fork, the history that the fork has taken over, and in the fork, the
    ///   messages of this history that the fork has recorded again,
    /// - in the source of a fork, the failed attempts of each call whose result the fork got from
    ///   the record, and of each turn that the fork got from the record, with their charges,
    /// - in the source of a trial, the decisions of people with the refusals of such decisions, the
    ///   refused answers to requests for previews, and the refused requests of the client that
    ///   opened the thread.
    pub fn events(
        &self,
        timeline: &'t ThreadTimeline,
    ) -> impl Iterator<Item = &'t TimelineEntry> + use<'_, 't> {
        timeline.items.iter().filter(|entry| self.contains(timeline, entry))
    }

    fn contains(&self, timeline: &ThreadTimeline, entry: &TimelineEntry) -> bool {
        match &entry.what {
            // The recursion is bounded, because the depth of threads is bounded.
            TimelineEvent::Subthread(child) => {
                child.items.iter().any(|item| self.contains(child, item))
            }
            _ if entry.position <= self.history => false,
            TimelineEvent::Message(message) => {
                self.origin.is_none_or(|origin| !origin.copies.contains_key(&message.id))
            }
            TimelineEvent::AttemptFailed { call, .. } | TimelineEvent::Charged { call, .. } => {
                !self.recalled.contains(call) && !self.is_turn_repeated(*call, entry.position)
            }
            TimelineEvent::Refused(refused) => {
                let is_request = timeline.thread.is_root() && refused.sender == timeline.opened_by;
                let is_decision = self.decisions.contains(&entry.position);
                !(self.is_tried && (is_request || is_decision || refused.is_of_preview))
            }
            TimelineEvent::Decision { .. } => !self.is_tried,
            _ => true,
        }
    }

    /// Whether the call has a turn after the record at `position`, and the other tree has the first
    /// of these turns from the record.
    fn is_turn_repeated(&self, call: CallId, position: Position) -> bool {
        let later = (Bound::Excluded(position), Bound::Unbounded);
        let next = self.turns.get(&call).and_then(|turns| turns.range(later).next());
        next.is_some_and(|(_, is_repeated)| *is_repeated)
    }
}

/// Returns the origin of the thread `fork` if it continues the thread `source`, as a fork or a
/// trial. Otherwise, returns `None`.
pub(super) fn origin_in<'t>(
    fork: &'t ThreadTimeline,
    source: &ThreadTimeline,
) -> Option<&'t TreeOrigin> {
    let origin = fork.origin.as_deref()?;
    let continued = fork.thread.under(&origin.source.thread)?;
    // All trials of a thread have its id, so two of them are no source of each other.
    let is_sibling = source.origin.as_ref().is_some_and(|other| other.source == origin.source);
    (continued == source.thread && !is_sibling).then_some(origin)
}

/// Whether the thread `trial` is a trial of the thread `source`.
pub(super) fn is_trial_of(trial: &ThreadTimeline, source: &ThreadTimeline) -> bool {
    origin_in(trial, source).is_some_and(|origin| origin.source.journal.is_some())
}

/// Returns the id of the note whose recorded answer a turn of a fork has used. This note belongs to
/// a turn in the fork's source, and `message` is the note of the fork's turn. Returns `None` if a
/// model answered, or if `message` is no note of a turn.
pub(super) fn recorded_of(message: &MessageView) -> Option<String> {
    let note = Element::head(message.payload.as_deref()?)?;
    note.attribute("recorded").map(str::to_owned)
}

/// Returns the call in which an agent took a turn. Returns `None` if `message` is no note of a
/// turn, or if the note is redacted.
fn call_of_turn(message: &MessageView) -> Option<CallId> {
    if message.name != system::name(system::MODEL_TURN) {
        return None;
    }
    let note = Element::head(message.payload.as_deref()?)?;
    note.attribute("call")?.parse::<MessageId>().ok().map(CallId)
}

/// Adds the calls whose results a thread, and everything beneath it, got from the record.
fn add_recalled(recalled: &mut HashSet<CallId>, timeline: &ThreadTimeline) {
    recalled.extend(&timeline.recalled);
    for item in &timeline.items {
        if let TimelineEvent::Subthread(child) = &item.what {
            // The recursion is bounded, because the depth of threads is bounded.
            add_recalled(recalled, child);
        }
    }
}

/// Returns the listeners that got calls in the thread `fork`, or beneath it, for which the record
/// of its source has no result.
pub fn listeners_called_anew(
    fork: &ThreadTimeline,
    source: &ThreadTimeline,
) -> HashSet<ListenerName> {
    let mut recalled = HashSet::new();
    add_recalled(&mut recalled, fork);
    let mut from_record = HashMap::new();
    count_calls(&mut from_record, source, &|call| recalled.contains(&CallId(call.id)));
    let mut called = HashMap::new();
    count_calls(&mut called, fork, &|_| true);

    let is_anew = |(name, calls): &(&ListenerName, usize)| {
        *calls > from_record.get(*name).copied().unwrap_or_default()
    };
    called.into_iter().filter(is_anew).map(|(name, _)| name.clone()).collect()
}

/// Counts the calls in a thread, and in everything beneath it, for which `is_counted` returns true,
/// by listener.
fn count_calls<'t>(
    counts: &mut HashMap<&'t ListenerName, usize>,
    timeline: &'t ThreadTimeline,
    is_counted: &dyn Fn(&MessageView) -> bool,
) {
    for item in &timeline.items {
        match &item.what {
            TimelineEvent::Message(message)
                if message.kind == MessageKind::Call && is_counted(message) =>
            {
                *counts.entry(&message.to).or_default() += 1;
            }
            // The recursion is bounded, because the depth of threads is bounded.
            TimelineEvent::Subthread(child) => count_calls(counts, child, is_counted),
            _ => {}
        }
    }
}

/// Adds the ids of the notes whose turns a thread, and everything beneath it, got from the record.
fn add_repeated(repeated: &mut HashSet<String>, timeline: &ThreadTimeline) {
    for item in &timeline.items {
        match &item.what {
            TimelineEvent::Message(message) if call_of_turn(message).is_some() => {
                repeated.extend(recorded_of(message));
            }
            // The recursion is bounded, because the depth of threads is bounded.
            TimelineEvent::Subthread(child) => add_repeated(repeated, child),
            _ => {}
        }
    }
}
