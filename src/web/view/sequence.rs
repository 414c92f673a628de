//! The messages of a thread's page as arrows between listeners, drawn as SVG without its own style
//! or script.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::layout::{label, shown};
use super::message::path as message_path;
use super::payload_text::PageRoom;
use super::person::ActingPerson;
use super::record_entry;
use super::thread::path as thread_path;
use crate::audit::amounts::offset;
use crate::audit::{
    MessageState, MessageView, RefusalView, ThreadTimeline, TimelineEntry, TimelineEvent,
    payload_lines, thread_state,
};
use crate::envelope::MessageKind;
use crate::ids::ListenerName;
use crate::limits;
use crate::plural::count;
use crate::system;

/// Height of a row, in pixels. `NAMES` is the height of the header above all rows.
const ROW: usize = 34;
const NAMES: usize = 26;
/// Maximum number of characters that a narrow window shows of the listener's name above a lane.
const SHORT_NAME_CHARS: usize = 9;
/// End of the arrow of a held call, as a fraction of the way to the recipient's lane.
const HELD_WAY: f64 = 0.7;
/// End of the arrow of a message in flight, as a fraction of the way to the recipient's lane.
const FLIGHT_WAY: f64 = 0.85;
/// End of the arrow of a queued message, as a fraction of the way to the recipient's lane.
const QUEUED_WAY: f64 = 0.6;
/// Maximum number of characters of a payload in the tooltip of an arrow.
const HINT_CHARS: usize = 160;

/// The lanes of the diagram: one for each listener, in the order of their first appearance. If
/// there are more than [`limits::WEB_LANES_MAX`] listeners, the further listeners share one more
/// lane.
struct SequenceLanes<'t> {
    names: Vec<&'t str>,
    is_shared: bool,
}

impl<'t> SequenceLanes<'t> {
    fn of(timeline: &'t ThreadTimeline) -> Self {
        let mut lanes = Self { names: Vec::new(), is_shared: false };
        for item in &timeline.items {
            match &item.what {
                TimelineEvent::Message(message) => {
                    lanes.add(message.from.as_str());
                    lanes.add(message.to.as_str());
                }
                TimelineEvent::Refused(refused) => lanes.add(refused.sender.as_str()),
                TimelineEvent::Findings { by, .. } => lanes.add(by.as_str()),
                TimelineEvent::AttemptFailed { listener: Some(listener), .. } => {
                    lanes.add(listener.as_str());
                }
                TimelineEvent::Charged { listener, .. } => lanes.add(listener.as_str()),
                TimelineEvent::Subthread(child) => lanes.add(child.opened_by.as_str()),
                TimelineEvent::Decision { .. } | TimelineEvent::Cancelled { .. } => {
                    lanes.add(ListenerName::OPERATOR);
                }
                _ => {}
            }
        }
        lanes
    }

    fn add(&mut self, name: &'t str) {
        if self.names.contains(&name) {
            return;
        }
        if self.names.len() < limits::WEB_LANES_MAX {
            self.names.push(name);
        } else {
            self.is_shared = true;
        }
    }

    /// Returns the number of lanes.
    fn len(&self) -> usize {
        self.names.len() + usize::from(self.is_shared)
    }

    /// Returns the horizontal place of a listener's lane, in percent of the drawing's width. The
    /// column before the first lane shows the times, and is as wide as a lane.
    fn place(&self, name: &str) -> f64 {
        let lane = self.names.iter().position(|known| *known == name);
        self.place_of(lane.unwrap_or(self.names.len()))
    }

    fn place_of(&self, lane: usize) -> f64 {
        (lane + 1) as f64 * self.pitch()
    }

    /// Returns the distance between two neighbouring lanes, in percent of the drawing's width.
    fn pitch(&self) -> f64 {
        100.0 / (self.len().max(1) + 1) as f64
    }
}

/// Writes a place between 0 and 100 as a percentage.
fn percent(place: f64) -> String {
    format!("{place:.2}%")
}

/// The form of an arrow or a mark in the diagram. The legend explains each form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrawnForm {
    Call,
    Reply,
    System,
    Note,
    Held,
    Queued,
    InFlight,
    Unsettled,
    Failed,
    Decision,
    Subthread,
}

impl DrawnForm {
    /// Returns the value of the attribute `data-kind`, by which the style sheet chooses the colour
    /// of the arrow or mark.
    const fn kind(self) -> &'static str {
        match self {
            Self::Call | Self::Queued | Self::InFlight | Self::Unsettled => "call",
            Self::Reply => "reply",
            Self::System => "system",
            Self::Note => "note",
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Decision => "decision",
            Self::Subthread => "subthread",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Reply => "reply",
            Self::System => "of the core",
            Self::Note => "note",
            Self::Held => "waits for a person",
            Self::Queued => MessageState::Queued.as_str(),
            Self::InFlight => MessageState::InFlight.as_str(),
            Self::Unsettled => MessageState::Unsettled.as_str(),
            Self::Failed => "refused or failed",
            Self::Decision => "decision of a person",
            Self::Subthread => "subthread",
        }
    }

    /// Returns the form of a message's arrow. The form depends on the kind of the message, and not
    /// on whether the recipient has handled the message.
    fn of(message: &MessageView) -> Self {
        let is_core = &*message.name.namespace == system::NAMESPACE;
        match message.kind {
            MessageKind::Note => Self::Note,
            _ if is_core => Self::System,
            MessageKind::Reply => Self::Reply,
            MessageKind::System => Self::System,
            _ => Self::Call,
        }
    }

    /// Returns the forms of the arrows and marks that the diagram uses for an event. The legend
    /// explains these forms.
    fn all_of(item: &TimelineEntry) -> Vec<Self> {
        match &item.what {
            TimelineEvent::Message(message) => {
                let state = match message.state() {
                    MessageState::Settled(_) => None,
                    MessageState::Held(_) => Some(Self::Held),
                    MessageState::Queued => Some(Self::Queued),
                    MessageState::InFlight => Some(Self::InFlight),
                    MessageState::Unsettled => Some(Self::Unsettled),
                };
                [Some(Self::of(message)).filter(|_| state != Some(Self::Held)), state]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            TimelineEvent::Decision { .. } => vec![Self::Decision],
            TimelineEvent::Subthread(_) => vec![Self::Subthread],
            _ => vec![Self::Failed],
        }
    }
}

/// Draws the diagram of a page. The drawing is as wide as the window. If its lanes would then be
/// too narrow, the drawing is wider.
pub(super) fn diagram(timeline: &ThreadTimeline, room: &PageRoom) -> Markup {
    let lanes = SequenceLanes::of(timeline);
    let shown: Vec<_> = timeline.items.iter().filter(|item| is_drawn(item)).collect();
    let forms: BTreeSet<_> = shown.iter().flat_map(|item| DrawnForm::all_of(item)).collect();
    let height = ROW * shown.len() + ROW / 2;
    let size = format!("lanes-{}", lanes.len());
    html! {
        div.scroll.sequence tabindex="0" role="region" aria-label="Sequence diagram" {
            svg.lanes.(size) width="100%" height=(NAMES) role="group" aria-label="Listeners" {
                @for name in &lanes.names { (header(name, lanes.place(name))) }
                @if lanes.is_shared { (header("others", lanes.place(""))) }
            }
            svg.(size) width="100%" height=(height) role="group" aria-label="Messages" {
                @for lane in 0..lanes.len() {
                    @let x = percent(lanes.place_of(lane));
                    line.lane x1=(x) y1="0" x2=(x) y2=(height) {}
                }
                @for (row, item) in shown.iter().enumerate() {
                    @let row = DrawnRow { lanes: &lanes, y: ROW * row + ROW - 10 };
                    (row.entry(item, timeline, room))
                }
            }
        }
        (legend(&forms))
    }
}

/// Draws the name of a listener above its lane. A long name has a short form for narrow windows.
fn header(name: &str, place: f64) -> Markup {
    let x = percent(place);
    let is_long = name.chars().count() > SHORT_NAME_CHARS;
    let short: String = name.chars().take(SHORT_NAME_CHARS - 1).collect();
    html! {
        text.long[is_long] x=(x) y="18" text-anchor="middle" { (label(name)) }
        @if is_long {
            text.short x=(x) y="18" text-anchor="middle" { (label(&format!("{short}…"))) }
        }
    }
}

fn legend(forms: &BTreeSet<DrawnForm>) -> Markup {
    html! {
        p.hint.legend {
            @for form in forms {
                span {
                    svg width="30" height="12" aria-hidden="true" {
                        g data-kind=(form.kind()) {
                            @match form {
                                DrawnForm::Failed | DrawnForm::Decision => (at("15", 6, &cross())),
                                DrawnForm::Subthread => rect.head x="10" y="1" width="10" height="10" {},
                                DrawnForm::Held => {
                                    line.arrow x1="1" y1="6" x2="20" y2="6" {}
                                    (at("24", 6, &pause()))
                                }
                                DrawnForm::Queued => {
                                    line.arrow x1="1" y1="6" x2="11" y2="6" {}
                                    (at("19", 6, &open_head(true)))
                                }
                                DrawnForm::InFlight | DrawnForm::Unsettled => {
                                    line.arrow x1="1" y1="6" x2="20" y2="6" {}
                                    (at("28", 6, &open_head(true)))
                                }
                                _ => line.arrow x1="1" y1="6" x2="29" y2="6" {},
                            }
                        }
                    }
                    " " (form.title())
                }
            }
        }
    }
}

/// Draws `mark` at a point of the drawing. The coordinate `x` may be in percent, but the mark
/// itself is drawn in pixels.
fn at(x: &str, y: usize, mark: &Markup) -> Markup {
    html! { svg.point x=(x) y=(y) width="1" height="1" { (mark) } }
}

fn cross() -> Markup {
    html! { path.cross d="M-4 -4l8 8m0 -8l-8 8" {} }
}

fn pause() -> Markup {
    html! { path.cross d="M0 -5v10M5 -5v10" {} }
}

fn solid_head(is_right: bool) -> Markup {
    let back = if is_right { -8 } else { 8 };
    html! { path.head d=(format!("M0 0L{back} -4L{back} 4Z")) {} }
}

fn open_head(is_right: bool) -> Markup {
    let back = if is_right { -8 } else { 8 };
    html! { path.cross d=(format!("M{back} -4L0 0L{back} 4")) {} }
}

/// Whether an event has a row in the diagram. Two kinds of events have no row: the end of a timer,
/// and a count of `busy` refusals to a client. Only the conversation view shows such events.
const fn is_drawn(item: &TimelineEntry) -> bool {
    !matches!(item.what, TimelineEvent::TimerEnded { .. } | TimelineEvent::Busy(_))
}

/// A row of the diagram. The row draws one event.
struct DrawnRow<'l> {
    lanes: &'l SequenceLanes<'l>,
    y: usize,
}

impl DrawnRow<'_> {
    fn entry(&self, item: &TimelineEntry, timeline: &ThreadTimeline, room: &PageRoom) -> Markup {
        let opener = timeline.opened_by.as_str();
        let drawn = match &item.what {
            TimelineEvent::Message(message) => self.message(message, room),
            TimelineEvent::Refused(refused) => self.refused(refused),
            TimelineEvent::Findings { by, findings } => {
                self.mark("failed", by.as_str(), &count(findings.len() as u64, "finding"))
            }
            TimelineEvent::AttemptFailed { listener, attempt, .. } => {
                let by = listener.as_ref().map_or(opener, |listener| listener.as_str());
                self.mark("failed", by, &format!("attempt {attempt} failed"))
            }
            TimelineEvent::Charged { listener, .. } => {
                self.mark("failed", listener.as_str(), "lost model call charged")
            }
            TimelineEvent::Decision { verb, by, origin, signed, .. } => {
                // The mark has no room for the person's role.
                let person = ActingPerson::of_decision(by, Some(origin), signed.as_ref(), false);
                let text = format!("{verb} by {}", person.name());
                self.mark("decision", ListenerName::OPERATOR, &text)
            }
            // The mark of the decision, which precedes, names the person.
            TimelineEvent::Cancelled { .. } => {
                self.mark("failed", ListenerName::OPERATOR, "cancelled")
            }
            TimelineEvent::Subthread(child) => self.subthread(child),
            TimelineEvent::TimerEnded { .. } | TimelineEvent::Busy(_) => html! {},
        };
        html! {
            text.time x="0" y=(self.y + 4) { (offset(item.at.since(timeline.opened))) }
            (drawn)
        }
    }

    fn message(&self, message: &MessageView, room: &PageRoom) -> Markup {
        let form = DrawnForm::of(message);
        let is_held = matches!(message.state(), MessageState::Held(_));
        let kind = if is_held { DrawnForm::Held.kind() } else { form.kind() };
        let [from, to] = [&message.from, &message.to].map(|name| self.lanes.place(name.as_str()));
        // A note concerns only its recipient, so it starts at the recipient's lane.
        let from = if message.kind == MessageKind::Note { to } else { from };
        let local = label(&message.name.local);
        let text = html! {
            (local) @if let Some(state) = message.unusual_state() { ", " (state) }
        };
        let hint = if room.claim_room() {
            room.take(hint(message))
        } else {
            html! {}
        };
        html! {
            g data-kind=(kind) id=(format!("seq-{}", message.seq)) {
                a data-entry href=(message_path(message.id)) {
                    title.hint { (hint) }
                    @if from == to {
                        (self.hit(from, from))
                        (at(&percent(from), self.y, &html! { circle.head r="4" {} }))
                        (self.beside(from, &text))
                    } @else {
                        (self.hit(from, to))
                        (self.arrow(from, to, message))
                        text x=(percent((from + to) / 2.0)) y=(self.y - 6) text-anchor="middle" {
                            (text)
                        }
                    }
                }
            }
        }
    }

    /// Draws the arrow of a message. The arrow of an unsettled message, which is held, queued or in
    /// flight, ends before the recipient's lane.
    fn arrow(&self, from: f64, to: f64, message: &MessageView) -> Markup {
        let is_right = to > from;
        let way = |part: f64| percent(from + (to - from) * part);
        let short = |part: f64| (way(part - 0.08), at(&way(part), self.y, &open_head(is_right)));
        let (end, head) = match message.state() {
            MessageState::Held(_) => (way(HELD_WAY), at(&way(HELD_WAY), self.y, &pause())),
            MessageState::Queued => short(QUEUED_WAY),
            MessageState::InFlight | MessageState::Unsettled => short(FLIGHT_WAY),
            MessageState::Settled(_) => {
                (percent(to), at(&percent(to), self.y, &solid_head(is_right)))
            }
        };
        html! {
            line.arrow x1=(percent(from)) y1=(self.y) x2=(end) y2=(self.y) {}
            (head)
        }
    }

    /// Draws the area in which a click opens the row's link. The area is as high as the row.
    fn hit(&self, from: f64, to: f64) -> Markup {
        let pitch = self.lanes.pitch();
        let (left, width) = match (from == to, self.is_left(from)) {
            (false, _) => (from.min(to), (to - from).abs()),
            (true, false) => (from - 1.0, pitch),
            (true, true) => (from - pitch, pitch + 1.0),
        };
        html! {
            rect.hit x=(percent(left)) y=(self.y.saturating_sub(20)) width=(percent(width))
                height=(ROW - 4) {}
        }
    }

    /// Whether a text beside the lane at `place` belongs on the left side of the lane, because the
    /// right side has no room.
    fn is_left(&self, place: f64) -> bool {
        place > 50.0
    }

    /// Draws a text beside a point on a lane.
    fn beside(&self, place: f64, text: &Markup) -> Markup {
        let (x, anchor) = if self.is_left(place) { ("-9", "end") } else { ("9", "start") };
        at(&percent(place), self.y, &html! { text x=(x) y="4" text-anchor=(anchor) { (text) } })
    }

    /// Draws an event other than a message, on the lane of the event's listener.
    fn mark(&self, kind: &str, listener: &str, text: &str) -> Markup {
        let place = self.lanes.place(listener);
        html! {
            g data-kind=(kind) {
                (at(&percent(place), self.y, &cross()))
                (self.beside(place, &label(text)))
            }
        }
    }

    fn refused(&self, refusal: &RefusalView) -> Markup {
        let place = self.lanes.place(refusal.sender.as_str());
        let by = if refusal.is_of_action() { "organism" } else { "gate" };
        let payload = match &refusal.payload {
            _ if refusal.is_of_action() => "an action",
            Some(payload) => payload,
            None => "a text",
        };
        let text = html! {
            tspan.long { (by) " " } "refused " (label(payload)) ": " (refusal.rule)
        };
        html! {
            g data-kind="failed" {
                a data-entry href=(record_entry::path(refusal.position)) {
                    title.hint {
                        "the " (by) " refused " (label(payload)) " of " (shown(refusal.sender.as_str()))
                        ": " (refusal.rule)
                    }
                    (self.hit(place, place))
                    (at(&percent(place), self.y, &cross()))
                    (self.beside(place, &text))
                }
            }
        }
    }

    fn subthread(&self, child: &ThreadTimeline) -> Markup {
        let id = child.thread.as_str();
        let own = id.rsplit_once('.').map_or(id, |(_, own)| own);
        let place = self.lanes.place(child.opened_by.as_str());
        let state = thread_state(child.status.as_str(), child.waits);
        html! {
            g data-kind="subthread" {
                a data-entry href=(thread_path(id)) {
                    title.hint { "subthread " (label(own)) ", " (state) }
                    (self.hit(place, place))
                    (at(&percent(place), self.y, &html! {
                        rect.head x="-5" y="-5" width="10" height="10" {}
                    }))
                    (self.beside(place, &html! { (label(own)) ", " (state) }))
                }
            }
        }
    }
}

/// Writes the sender, the recipient and the name of a message, and the beginning of its payload.
fn hint(message: &MessageView) -> Markup {
    let payload = message.payload.as_deref().unwrap_or("redacted");
    let is_short = payload.len() <= limits::WEB_READ_BYTES;
    let text =
        if is_short { payload_lines::lines(payload).join(" · ") } else { payload.to_owned() };
    let text: String = text.chars().take(HINT_CHARS).collect();
    let title = format!("{} → {}: {}", message.from, message.to, message.name.local);
    html! { (shown(&title)) ". " (shown(&text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Time;
    use crate::envelope::Disposition;
    use crate::ids::{Digest, MessageId, Position, ThreadId};
    use crate::thread::Hold;

    #[test]
    fn many_listeners_share_the_last_lane() {
        let names: Vec<_> = (0..100).map(|n| format!("listener-{n}")).collect();
        let mut lanes = SequenceLanes { names: Vec::new(), is_shared: false };
        names.iter().for_each(|name| lanes.add(name));
        assert_eq!(lanes.len(), limits::WEB_LANES_MAX + 1);
        assert_eq!(lanes.place("listener-99"), lanes.place("listener-24"));
        assert!(lanes.place("listener-99") < 100.0);
    }

    /// Draws one call from `desk` to `ledger`.
    fn drawn(
        disposition: Option<Disposition>,
        hold: Option<Hold>,
        is_handed_over: Option<bool>,
    ) -> String {
        let name = |name: &str| ListenerName::parse(name).unwrap();
        let thread = ThreadId::parse("sess-arrows001").unwrap();
        let message = MessageView {
            position: Position(1),
            id: MessageId(uuid::Uuid::from_u128(7)),
            thread: thread.clone(),
            seq: 1,
            kind: MessageKind::Call,
            from: name("desk"),
            to: name("ledger"),
            cause: None,
            call: None,
            time: Time(0).to_string(),
            at: Time(0),
            name: crate::ids::PayloadName::parse("{urn:example}say").unwrap(),
            payload: None,
            digest: Digest::of(b""),
            disposition,
            hold,
            is_handed_over,
        };
        let mut timeline = ThreadTimeline::new(thread, name("desk"), Time(0));
        let what = TimelineEvent::Message(message);
        timeline.items.push(TimelineEntry { position: Position(1), at: Time(0), seq: 1, what });
        diagram(&timeline, &PageRoom::new()).into_string()
    }

    #[test]
    fn an_arrow_reaches_its_recipient_only_after_the_delivery() {
        let ledger = "x2=\"66.67%\"";
        let handled = drawn(Some(Disposition::Handled), None, Some(false));
        assert!(handled.contains(ledger), "{handled}");
        assert!(handled.contains("M0 0L-8 -4L-8 4Z"), "{handled}");

        let held = drawn(None, Some(Hold::Approval), Some(false));
        assert!(held.contains("data-kind=\"held\""), "{held}");
        assert!(held.contains("say, waits for an approval"), "{held}");
        assert!(held.contains("waits for a person"), "{held}");
        let queued = drawn(None, None, Some(false));
        assert!(queued.contains("say, queued") && !queued.contains("in flight"), "{queued}");
        let in_flight = drawn(None, None, Some(true));
        assert!(
            in_flight.contains("say, in flight") && !in_flight.contains("queued"),
            "{in_flight}"
        );
        let past = drawn(None, None, None);
        assert!(past.contains("say, unsettled"), "{past}");
        for drawn in [held, queued, in_flight, past] {
            let arrow = drawn.split("<line class=\"arrow\"").nth(1).unwrap();
            let arrow = arrow.split('>').next().unwrap();
            assert!(!arrow.contains(ledger), "{arrow}");
            assert!(!drawn.contains("class=\"head\""), "{drawn}");
        }
    }
}
