//! The messages of a thread's page as a conversation, with the events between them. Subthreads
//! appear as links with their totals.

use std::collections::HashMap;

use maud::{Markup, html};

use super::fork_history;
use super::layout::{grouped, inline, label, took};
use super::payload_text::{Excerpt, PageRoom, excerpt};
use super::person::{self, ActingPerson};
use super::record_entry;
use super::thread::path;
use super::thread_status;
use super::url_query::UrlQuery;
use crate::audit::amounts::offset;
use crate::audit::{
    BusyRefusals, MessageState, MessageView, RefusalView, SignedBy, ThreadPage, ThreadPhase,
    ThreadTimeline, TimelineEntry, TimelineEvent, core_words, event_text, is_open_phase,
};
use crate::envelope::{MessageKind, located_message};
use crate::ids::{ListenerName, Position};
use crate::limits;
use crate::plural::count;
use crate::system;
use crate::thread::{DecisionOrigin, TimerEnd};

/// Local name of the payload with which the core reports an action of an operator.
const ACTION_REPORT: &str = "operator-action";

/// Maximum number of lines of an expanded payload, if the payload opens a subthread. A longer
/// payload of this kind is shown collapsed.
const GOAL_LINES_OPEN: u64 = 12;

/// Draws the messages and events of a page.
pub(super) fn conversation(page: &ThreadPage, room: &PageRoom) -> Markup {
    let conversation = ConversationPage::new(page, room);
    let items = page.timeline.items.iter();
    html! {
        ol.events #live-events {
            @if let Some(fork) = &page.fork { (fork_history::head(page, fork, &conversation)) }
            @for item in items.filter(|item| !fork_history::is_in_head(page, item)) {
                (conversation.entry(item))
            }
        }
    }
}

/// A person's decision, as a page shows it.
#[derive(Clone, Copy)]
struct ShownDecision<'t> {
    item: &'t TimelineEntry,
    verb: &'static str,
    by: &'t ListenerName,
    origin: &'t DecisionOrigin,
    signed: Option<&'t SignedBy>,
}

impl<'t> ShownDecision<'t> {
    fn of(item: &'t TimelineEntry) -> Option<Self> {
        match &item.what {
            TimelineEvent::Decision { verb, by, origin, signed, .. } => {
                Some(Self { item, verb, by, origin, signed: signed.as_ref() })
            }
            _ => None,
        }
    }

    fn person(&self, timeline: &ThreadTimeline) -> ActingPerson<'t> {
        let is_refused = person::is_refused(timeline, self.item.position);
        ActingPerson::of_decision(self.by, Some(self.origin), self.signed, is_refused)
    }
}

/// The events of a page, and the decisions of people that led to some of these events.
pub(super) struct ConversationPage<'t> {
    timeline: &'t ThreadTimeline,
    /// Position of the record that opened the thread.
    opened_at: Position,
    room: &'t PageRoom,
    /// Decisions of people, by the positions of their records.
    decisions: HashMap<Position, ShownDecision<'t>>,
}

impl<'t> ConversationPage<'t> {
    fn new(page: &'t ThreadPage, room: &'t PageRoom) -> Self {
        let timeline = &page.timeline;
        let decisions = page.earlier_decisions.iter().chain(&timeline.items);
        let decisions = decisions.filter_map(ShownDecision::of);
        let decisions = decisions.map(|decision| (decision.item.position, decision)).collect();
        Self { timeline, opened_at: page.opened_at, room, decisions }
    }

    /// Describes the person who made the decision in the record at `position`. Returns `None` if
    /// the page has no such decision.
    pub fn person(&self, position: Position) -> Option<String> {
        let decision = self.decisions.get(&position)?;
        Some(decision.person(self.timeline).describe())
    }

    /// Whether the record at `position` contains the turn of a model.
    fn has_turn(&self, position: Position) -> bool {
        let name = system::name(system::MODEL_TURN);
        self.timeline.items.iter().any(|item| {
            item.position == position
                && matches!(&item.what, TimelineEvent::Message(message) if message.name == name)
        })
    }

    /// Draws the time from the beginning of the thread to the event `item`.
    pub fn time(&self, item: &TimelineEntry) -> Markup {
        html! {
            time datetime=(item.at) title=(item.at) {
                (offset(item.at.since(self.timeline.opened)))
            }
        }
    }

    pub fn entry(&self, item: &TimelineEntry) -> Markup {
        let time = self.time(item);
        let room = self.room;
        match &item.what {
            TimelineEvent::Message(message) => {
                let person = self.person(item.position);
                let context = MessageContext::Thread { person: person.as_deref() };
                self::message(message, &time, context, room)
            }
            TimelineEvent::Refused(refusal) => {
                let person = self.person(item.position);
                let person = person.filter(|_| refusal.sender == ListenerName::operator());
                let is_in_turn = self.has_turn(item.position);
                refused(refusal, is_in_turn, person.as_deref(), &time, room)
            }
            TimelineEvent::Busy(busy) => self::busy(busy, &time, room),
            TimelineEvent::Findings { by, findings } => {
                let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
                let head =
                    html! { (inline(by.as_str())) " " (count(findings.len() as u64, "finding")) };
                event("finding", &time, &head, &text.join("\n"), room)
            }
            TimelineEvent::AttemptFailed { listener, attempt, failure, .. } => {
                let who = listener.as_ref().map_or("listener", |listener| listener.as_str());
                let head = html! { (inline(who)) " " b { "attempt " (attempt) " failed" } };
                let text = event_text::failure_lines(failure).join("\n");
                event("failed", &time, &head, &text, room)
            }
            TimelineEvent::Charged { listener, attempt, spending, .. } => {
                let head =
                    html! { (inline(listener.as_str())) " model call of attempt " (attempt) };
                event("failed", &time, &head, &event_text::charge_text(spending), room)
            }
            // The message of the timer, which follows, shows the same event.
            TimelineEvent::TimerEnded { how: TimerEnd::Fired, .. } => html! {},
            TimelineEvent::TimerEnded { timer, how } => {
                let head = html! { "timer " (format!("{how:?}").to_lowercase()) " " (timer) };
                event("note", &time, &head, "", room)
            }
            TimelineEvent::Decision { .. } => self.decided(item),
            TimelineEvent::Cancelled { by, reason } => self.cancelled(item, by, reason),
            TimelineEvent::Subthread(child) => subthread(child, &time),
        }
    }

    /// Draws a decision. Draws nothing for a cancellation that was carried out, because the page
    /// draws the event of the cancellation instead.
    fn decided(&self, item: &TimelineEntry) -> Markup {
        let is_cancelled = |other: &TimelineEntry| {
            other.position == item.position && matches!(other.what, TimelineEvent::Cancelled { .. })
        };
        match ShownDecision::of(item) {
            Some(decision) if !self.timeline.items.iter().any(is_cancelled) => {
                self.decision("decision", &decision, "")
            }
            _ => html! {},
        }
    }

    fn cancelled(&self, item: &TimelineEntry, by: &ListenerName, reason: &str) -> Markup {
        match self.decisions.get(&item.position) {
            Some(decision) => self.decision("failed", decision, reason),
            None => {
                let head = html! { b { "cancel" } " by " (inline(by.as_str())) };
                event("failed", &self.time(item), &head, reason, self.room)
            }
        }
    }

    fn decision(&self, kind: &str, decision: &ShownDecision<'_>, reason: &str) -> Markup {
        let position = decision.item.position;
        let before = position.0.saturating_sub(1).to_string();
        // The last page has the call that the decision is about, or the latest messages before it.
        let before = UrlQuery::default().with("at", Some(&before)).with("from", Some("last"));
        let head = html! {
            b { (decision.verb) } " by " (decision.person(self.timeline).draw())
            // A decision such as a retry may have opened the thread.
            @if position > self.opened_at {
                " " a href=(before.link(&path(self.timeline.thread.as_str()))) { "the thread before" }
            }
        };
        event(kind, &self.time(decision.item), &head, &decision.text(reason), self.room)
    }
}

impl ShownDecision<'_> {
    /// Writes `reason`, followed by the signature and the note of the decision.
    fn text(&self, reason: &str) -> String {
        let signed = self.signed.map(event_text::signature_text).unwrap_or_default();
        let parts = [reason, &signed, &self.origin.note];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// Returns the signature and the note of the decision that an event contains. Returns `None` if the
/// event is no decision, or if the decision has neither a signature nor a note.
pub(super) fn decision_text(item: &TimelineEntry) -> Option<String> {
    ShownDecision::of(item).map(|decision| decision.text("")).filter(|text| !text.is_empty())
}

fn event(kind: &str, time: &Markup, head: &Markup, text: &str, room: &PageRoom) -> Markup {
    let lines = excerpt(text.lines().map(str::to_owned).collect());
    html! {
        li.event data-kind=(kind) {
            (time)
            div { p.head { (head) } (body(&lines, None, room)) }
        }
    }
}

/// The kind of page on which a message is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageContext<'p> {
    /// The page of the thread that contains the message. On this page, the message has an anchor to
    /// which links can lead. `person` describes the person whose decision is in the same record;
    /// `None` if there is no such decision.
    Thread { person: Option<&'p str> },
    /// A page with search results. Search results do not state how a message ended.
    Search,
}

pub(super) fn message(
    message: &MessageView,
    time: &Markup,
    context: MessageContext<'_>,
    room: &PageRoom,
) -> Markup {
    let is_in_thread = context != MessageContext::Search;
    let person = match context {
        MessageContext::Thread { person } => person,
        MessageContext::Search => None,
    };
    let anchor = is_in_thread.then(|| format!("seq-{}", message.seq));
    let mark = message.unusual_state().filter(|_| is_in_thread);
    // The page's script loads entries with this attribute again, because their state may change.
    let is_open = !matches!(message.state(), MessageState::Settled(_));
    let is_core = &*message.name.namespace == system::NAMESPACE;
    // Only the core writes the person of a decision into its payloads. The record may contain
    // payloads of others, too, such as the request of a fork.
    let person = person.filter(|_| is_core);
    let local = &*message.name.local;
    let payload = message.payload.as_deref();
    let is_short = |payload: &&str| payload.len() <= limits::WEB_READ_BYTES;
    let gist = payload.filter(|_| is_core).filter(is_short);
    let gist = gist.and_then(|payload| core_words::gist(local, payload));
    let lines = match payload {
        Some(_) if room.is_full() => excerpt(vec!["…".to_owned()]),
        Some(payload) => Excerpt::of_payload(payload, is_core.then_some(local)).with_person(person),
        None => {
            excerpt(vec!["The payload was redacted: its digest alone is on record.".to_owned()])
        }
    };

    let path = super::message::path(message.id);
    let is_own = message.kind == MessageKind::Own;
    let head = html! {
        @if is_in_thread { a.seq href={ "#seq-" (message.seq) } { "#" (grouped(message.seq)) } " " }
        (inline(message.from.as_str()))
        @if is_own { " ↻" } @else if message.kind != MessageKind::Note {
            " → " (inline(message.to.as_str()))
        }
        " " a.payload data-entry href=(path) { (inline(local)) }
        @if let Some(gist) = gist { " " span.gist { (inline(&gist)) } }
        @if is_in_thread && is_core && local == system::MODEL_TURN {
            " " a href=(super::prompt::path(message.id)) { "the prompt" }
        }
        @if let Some(mark) = mark { " " span.mark data-open[is_open] { (mark) } }
    };

    // Notes are folded, because few readers need what a model thought, or what a model call took.
    // So is the report of an action, because the entry of the action stands above it.
    let is_note = message.kind == MessageKind::Note || (person.is_some() && local == ACTION_REPORT);
    // A long goal of a subthread stands in the subthread, too.
    let is_goal = is_core && local == "spawn-thread" && lines.all() > GOAL_LINES_OPEN;
    let is_folded = is_goal || (is_note && !lines.is_empty() && local != "todo-until");
    html! {
        li.event id=[anchor] data-kind=(message.kind.as_str())
            data-core[is_core] {
            (time)
            @if is_folded {
                div {
                    p.head { (head) }
                    details {
                        summary { (count(lines.all(), "line")) }
                        (body(&lines, Some(&path), room))
                    }
                }
            } @else {
                div { p.head { (head) } (body(&lines, Some(&path), room)) }
            }
        }
    }
}

/// Draws the lines of an event. If some lines are left out, also draws the link `whole` to the
/// complete text.
fn body(lines: &Excerpt, whole: Option<&str>, room: &PageRoom) -> Markup {
    if lines.is_empty() {
        return html! {};
    }
    if !room.claim_room() {
        return match whole {
            Some(path) => html! { p.more { a href=(path) { "The payload" } } },
            None => html! {},
        };
    }
    html! {
        pre.body { (room.take(lines.text())) }
        @if lines.is_cut() {
            @if let Some(path) = whole {
                p.more { a href=(path) { "The whole payload (" (count(lines.all(), "line")) ")" } }
            } @else {
                p.more { "… " (count(lines.all(), "line")) " in all" }
            }
        }
    }
}

/// Writes the name of the payload that the gate refused, or `a text` if the refused text is no
/// payload.
pub(super) fn refused_payload(refusal: &RefusalView) -> Markup {
    match &refusal.payload {
        Some(name) => html! { code { bdi { (label(name)) } } },
        None => html! { "a text" },
    }
}

/// Draws a refusal. `is_in_turn` states whether the refused text is part of a model's turn. If the
/// refused text is a person's decision, `person` describes this person.
pub(super) fn refused(
    refusal: &RefusalView,
    is_in_turn: bool,
    person: Option<&str>,
    time: &Markup,
    room: &PageRoom,
) -> Markup {
    let place = refusal.place.as_ref().filter(|place| place.is_known());
    let text_of = if is_in_turn { " of the raw text of the turn" } else { "" };
    let message = match place {
        Some(place) => located_message(&refusal.message, &format!("{place}{text_of}")),
        None => refusal.message.clone(),
    };
    let record = record_entry::path(refusal.position);
    let head = html! {
        @if person.is_some() || refusal.is_of_action() {
            "the organism refused "
            a.payload data-entry href=(record) { "the action" }
            " of " (inline(person.unwrap_or(refusal.sender.as_str())))
        } @else {
            "the gate refused " a.payload data-entry href=(record) { (refused_payload(refusal)) }
            " of " (inline(refusal.sender.as_str()))
        }
        ": " code { (refusal.rule) }
    };
    let text = format!("{message}\n{}", refusal.head);
    event("refused", time, &head, &text, room)
}

fn busy(busy: &BusyRefusals, time: &Markup, room: &PageRoom) -> Markup {
    let head = html! {
        (inline(busy.client.as_str())) " busy: refused " (count(busy.count, "time"))
        " since " (busy.since)
    };
    event("refused", time, &head, "", room)
}

fn subthread(child: &ThreadTimeline, time: &Markup) -> Markup {
    let id = child.thread.as_str();
    let tokens = child.spent.tokens;
    let is_open = is_open_phase(child.status.as_str()) || child.status == ThreadPhase::Idle;
    html! {
        li.event data-kind="subthread" data-open[is_open] {
            (time)
            div {
                p.head {
                    "subthread " a data-entry href=(path(id)) { (inline(id)) }
                    " " (thread_status::of_thread(child))
                    " " (count(child.messages, "message")) ", "
                    (took(child.opened, child.updated, false))
                    @if tokens > 0 { ", " (grouped(tokens)) " tokens" }
                    @if !child.spent.money.is_zero() {
                        ", cost " (inline(&child.spent.money.to_string()))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::ids::ThreadId;

    /// Draws a retry by an operator, recorded at `position`, in a thread that was opened at 5.
    fn retry_at(position: u64) -> String {
        let operator = ListenerName::operator();
        let what = TimelineEvent::Decision {
            verb: "retry",
            by: operator.clone(),
            origin: DecisionOrigin::default(),
            signed: None,
            message: None,
            details: Vec::new(),
        };
        let thread = ThreadId::parse("sess-retried01").unwrap();
        let mut timeline = ThreadTimeline::new(thread, operator, Time(0));
        timeline.items =
            vec![TimelineEntry { position: Position(position), at: Time(0), seq: 0, what }];
        let page = ThreadPage {
            timeline,
            opened_at: Position(5),
            from_seq: 0,
            previous_seq: None,
            next_seq: None,
            is_cut: false,
            earlier_decisions: Vec::new(),
            fork: None,
        };
        conversation(&page, &PageRoom::new()).into_string()
    }

    #[test]
    fn a_decision_that_opened_its_thread_has_no_link_to_the_thread_before() {
        let opening = retry_at(5);
        assert!(opening.contains("<b>retry</b> by ") && !opening.contains("at="), "{opening}");
        let later = retry_at(6);
        let link = "href=\"/threads/sess-retried01?at=5&amp;from=last\">the thread before</a>";
        assert!(later.contains(link), "{later}");
    }
}
