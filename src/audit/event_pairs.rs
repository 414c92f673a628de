//! Pairs the events of two compared threads that stand between events that are equal.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::comparison::EventOf;
use super::timeline::TimelineEvent;
use crate::ids::{Digest, Position};

/// An event that only the right thread has, after the number of the left event before which it is
/// listed.
type AddedEvent<'e, 't> = (usize, &'e EventOf<'t>);

/// Removes the results for runs of workflows that both threads have, and returns their number. A
/// result may stand elsewhere in the other thread, because the time at which it comes depends on
/// what else is running. A result that one thread has more often stays as often as the other thread
/// lacks it. The remaining right events keep the place of the next removed result.
pub(super) fn remove_common_results<'t>(
    left: &mut Vec<EventOf<'t>>,
    right: &mut Vec<EventOf<'t>>,
) -> u64 {
    let mut in_right: HashMap<Digest, u64> = HashMap::new();
    for event in right.iter().filter(|event| event.is_run_result) {
        *in_right.entry(event.key).or_default() += 1;
    }

    let mut removed = 0;
    let mut places: HashMap<Digest, VecDeque<Position>> = HashMap::new();
    left.retain(|event| match in_right.get_mut(&event.key) {
        Some(count) if event.is_run_result && *count > 0 => {
            *count -= 1;
            removed += 1;
            places.entry(event.key).or_default().push_back(event.order);
            false
        }
        _ => true,
    });

    for event in std::mem::take(right) {
        let places = places.get_mut(&event.key).filter(|_| event.is_run_result);
        match places.and_then(VecDeque::pop_front) {
            Some(place) => {
                let before = right.iter_mut().rev();
                let before = before.take_while(|event| event.next_result.is_none());
                before.for_each(|event| event.next_result = Some(place));
            }
            None => right.push(event),
        }
    }
    removed
}

/// Pairs events that have the same title, in their order. Then pairs the other events: a message of
/// one side with the refusal of a payload with the same name and sender on the other side. Does not
/// pair these two if another pair has one event before and one event after them.
///
/// Returns the partner of each left event, or `None` for a left event without a partner. Also
/// returns the right events without a partner, in their order, each with the number of a left
/// event: the first one whose partner follows the right event. This number is the number of all
/// left events if no partner follows.
pub(super) fn pair_events<'e, 't>(
    left: &[EventOf<'t>],
    right: &'e [EventOf<'t>],
) -> (Vec<Option<&'e EventOf<'t>>>, Vec<AddedEvent<'e, 't>>) {
    let mut by_title: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (number, event) in right.iter().enumerate() {
        by_title.entry(event.title()).or_default().push_back(number);
    }
    let take = |event: &EventOf<'t>| by_title.get_mut(event.title()).and_then(VecDeque::pop_front);
    let mut partners: Vec<Option<usize>> = left.iter().map(take).collect();

    let mut unpaired: Vec<usize> = by_title.into_values().flatten().collect();
    unpaired.sort_unstable();
    let mut by_submission: HashMap<PairedSubmission<'_>, VecDeque<usize>> = HashMap::new();
    for number in unpaired {
        if let Some(submission) = right.get(number).and_then(PairedSubmission::of) {
            by_submission.entry(submission).or_default().push_back(number);
        }
    }

    // Ordering rule: if a message comes before another pair, and the refusal after it, the two are
    // unrelated. As a pair, they would hide that the refusal is the first event of its thread.
    let ends = partners_after(&partners, right.len());
    let mut begin = 0;
    for ((partner, event), end) in partners.iter_mut().zip(left).zip(ends) {
        if partner.is_none() {
            let counterpart = PairedSubmission::of(event).map(PairedSubmission::counterpart);
            let found = counterpart.and_then(|counterpart| by_submission.get_mut(&counterpart));
            *partner = found.and_then(|numbers| take_within(numbers, begin..end));
        }
        begin = partner.map_or(begin, |partner| begin.max(partner + 1));
    }

    let paired = partners.iter().enumerate();
    let paired: HashMap<usize, usize> =
        paired.filter_map(|(number, partner)| Some(((*partner)?, number))).collect();
    let mut next = left.len();
    let mut added = Vec::new();
    for (number, event) in right.iter().enumerate().rev() {
        match paired.get(&number) {
            Some(partner) => next = next.min(*partner),
            None => added.push((next, event)),
        }
    }
    added.reverse();

    let partners = partners.into_iter().map(|partner| right.get(partner?)).collect();
    (partners, added)
}

/// Returns for each left event the first right event that is the partner of a later left event, or
/// `end` if no later left event has a partner.
fn partners_after(partners: &[Option<usize>], end: usize) -> Vec<usize> {
    let mut first = end;
    let mut after = Vec::new();
    for partner in partners.iter().rev() {
        after.push(first);
        first = partner.map_or(first, |partner| first.min(partner));
    }
    after.reverse();
    after
}

/// Removes the first number that is in `range` from `numbers`, and returns it. `numbers` must be
/// ascending. Also removes the numbers before the range.
fn take_within(numbers: &mut VecDeque<usize>, range: Range<usize>) -> Option<usize> {
    while numbers.front().is_some_and(|number| *number < range.start) {
        numbers.pop_front();
    }
    if numbers.front().is_some_and(|number| *number < range.end) {
        numbers.pop_front()
    } else {
        None
    }
}

/// A payload that was accepted as a message, or refused.
#[derive(PartialEq, Eq, Hash)]
struct PairedSubmission<'t> {
    sender: &'t str,
    /// Local name of the payload.
    name: &'t str,
    is_refused: bool,
}

impl<'t> PairedSubmission<'t> {
    /// Returns the submission that an event records; `None` for any other event.
    fn of(event: &EventOf<'t>) -> Option<Self> {
        match &event.entry.what {
            TimelineEvent::Message(message) => {
                let name = &*message.name.local;
                Some(Self { sender: message.from.as_str(), name, is_refused: false })
            }
            TimelineEvent::Refused(refused) => {
                let name = refused.payload.as_deref()?;
                Some(Self { sender: refused.sender.as_str(), name, is_refused: true })
            }
            _ => None,
        }
    }

    /// Returns the submission with the same sender and name for which the gate decided otherwise.
    fn counterpart(self) -> Self {
        Self { is_refused: !self.is_refused, ..self }
    }
}
