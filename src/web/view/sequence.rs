//! The messages of a thread's page as arrows between listeners, drawn as SVG without its own style
//! or script.

use maud::{Markup, html};

use super::layout::{label, shown};
use super::message::path as message_path;
use super::payload_text::PageRoom;
use super::person::ActingPerson;
use super::thread::path as thread_path;
use crate::audit::amounts::{count, offset};
use crate::audit::{MessageView, ThreadTimeline, TimelineEntry, TimelineEvent, payload_lines};
use crate::envelope::MessageKind;
use crate::ids::ListenerName;
use crate::limits;
use crate::system;

/// Width of a lane, in units of the drawing. `TIMES` is the width of the time column, `ROW` the
/// height of a row, and `NAMES` the height of the header.
const LANE: usize = 170;
const TIMES: usize = 84;
const ROW: usize = 30;
const NAMES: usize = 26;
/// Length of an arrowhead.
const HEAD: usize = 8;
/// Maximum characters of a payload that an arrow shows on demand.
const HINT_CHARS: usize = 160;

/// Listeners in the order in which they first take part. The last lane may stand for several
/// listeners.
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

    /// Returns the middle of a listener's lane.
    fn middle(&self, name: &str) -> usize {
        let lane = self.names.iter().position(|known| *known == name);
        TIMES + LANE * lane.unwrap_or(self.names.len()) + LANE / 2
    }

    fn width(&self) -> usize {
        // The texts beside marks of the last lane need room as well.
        TIMES + LANE * self.len().max(1) + LANE / 2
    }
}

/// Draws the diagram of a page.
pub(super) fn diagram(timeline: &ThreadTimeline, room: &PageRoom) -> Markup {
    let lanes = SequenceLanes::of(timeline);
    let shown: Vec<_> = timeline.items.iter().filter(|item| is_drawn(item)).collect();
    let width = lanes.width();
    let height = ROW * shown.len() + ROW / 2;
    html! {
        div.scroll.sequence tabindex="0" role="region" aria-label="Sequence diagram" {
            svg.lanes width=(width) height=(NAMES) viewBox=(format!("0 0 {width} {NAMES}"))
                role="group" aria-label="Listeners" {
                @for name in &lanes.names {
                    text x=(lanes.middle(name)) y="18" text-anchor="middle" { (label(name)) }
                }
                @if lanes.is_shared {
                    text x=(lanes.middle("")) y="18" text-anchor="middle" { "others" }
                }
            }
            svg width=(width) height=(height) viewBox=(format!("0 0 {width} {height}"))
                role="group" aria-label="Messages" {
                @for lane in 0..lanes.len() {
                    @let x = TIMES + LANE * lane + LANE / 2;
                    line.lane x1=(x) y1="0" x2=(x) y2=(height) {}
                }
                @for (row, item) in shown.iter().enumerate() {
                    (entry(item, timeline, &lanes, ROW * row + ROW - 8, room))
                }
            }
        }
        (legend())
    }
}

fn legend() -> Markup {
    let kinds = [
        ("call", "call"),
        ("reply", "reply"),
        ("system", "of the core"),
        ("note", "note"),
        ("failed", "refused or failed"),
        ("subthread", "subthread"),
    ];
    html! {
        p.hint.legend {
            @for (kind, name) in kinds {
                span {
                    svg width="26" height="10" viewBox="0 0 26 10" aria-hidden="true" {
                        g data-kind=(kind) {
                            @match kind {
                                "failed" => path.cross d="M9 1l8 8m0 -8l-8 8" {},
                                "subthread" => rect.head x="8" width="10" height="10" {},
                                _ => line.arrow x1="1" y1="5" x2="25" y2="5" {},
                            }
                        }
                    }
                    " " (name)
                }
            }
        }
    }
}

/// Whether an event has a row in the diagram. Ends of timers and counts of busy refusals appear
/// only in the conversation.
const fn is_drawn(item: &TimelineEntry) -> bool {
    !matches!(item.what, TimelineEvent::TimerEnded { .. } | TimelineEvent::Busy(_))
}

fn entry(
    item: &TimelineEntry,
    timeline: &ThreadTimeline,
    lanes: &SequenceLanes<'_>,
    y: usize,
    room: &PageRoom,
) -> Markup {
    let time = html! {
        text.time x=(TIMES - 8) y=(y + 4) text-anchor="end" {
            (offset(item.at.since(timeline.opened)))
        }
    };
    let at = |name: &str| lanes.middle(name);
    let opener = timeline.opened_by.as_str();
    let drawn = match &item.what {
        TimelineEvent::Message(message) => self::message(message, lanes, y, room),
        TimelineEvent::Refused(refused) => {
            let text = format!("refused: {}", refused.rule);
            mark("failed", at(refused.sender.as_str()), y, &text)
        }
        TimelineEvent::Findings { by, findings } => {
            mark("failed", at(by.as_str()), y, &count(findings.len() as u64, "finding"))
        }
        TimelineEvent::AttemptFailed { listener, attempt, .. } => {
            let by = listener.as_ref().map_or(opener, |listener| listener.as_str());
            mark("failed", at(by), y, &format!("attempt {attempt} failed"))
        }
        TimelineEvent::Charged { listener, .. } => {
            mark("failed", at(listener.as_str()), y, "lost model call charged")
        }
        TimelineEvent::Decision { verb, by, origin, signed } => {
            // The mark has no room for the person's role.
            let person = ActingPerson::of_decision(by, Some(origin), signed.as_ref(), false);
            mark("decision", at(ListenerName::OPERATOR), y, &format!("{verb} by {}", person.name()))
        }
        // The mark of the decision, which precedes, names the person.
        TimelineEvent::Cancelled { .. } => {
            mark("failed", at(ListenerName::OPERATOR), y, "cancelled")
        }
        TimelineEvent::Subthread(child) => subthread(child, at(child.opened_by.as_str()), y),
        TimelineEvent::TimerEnded { .. } | TimelineEvent::Busy(_) => html! {},
    };
    html! { (time) (drawn) }
}

fn message(message: &MessageView, lanes: &SequenceLanes<'_>, y: usize, room: &PageRoom) -> Markup {
    let is_core = &*message.name.namespace == system::NAMESPACE;
    let kind =
        if is_core && message.kind != MessageKind::Note { "system" } else { message.kind.as_str() };
    let [from, to] = [&message.from, &message.to].map(|name| lanes.middle(name.as_str()));
    // A note concerns only its recipient, so it starts at the recipient's lane.
    let from = if message.kind == MessageKind::Note { to } else { from };
    let local = label(&message.name.local);
    let state = message.unusual_state();
    let hint = if room.has_room() {
        room.take(hint(message))
    } else {
        html! {}
    };
    html! {
        g data-kind=(kind) id=(format!("seq-{}", message.seq)) {
            a data-entry href=(message_path(message.id)) {
                title.hint { (hint) }
                (hit(from, to, y))
                @if from == to {
                    (stop(from, y))
                    (beside(from, y, &html! { (local) @if let Some(state) = state { ", " (state) } }))
                } @else {
                    (arrow(from, to, y))
                    text x=((from + to) / 2) y=(y - 5) text-anchor="middle" {
                        (local) @if let Some(state) = state { ", " (state) }
                    }
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

/// Draws the area of a link, as high as its row.
fn hit(from: usize, to: usize, y: usize) -> Markup {
    let left = from.min(to);
    let width = if from == to { LANE / 2 } else { from.abs_diff(to) };
    html! {
        rect.hit x=(left.saturating_sub(HEAD)) y=(y.saturating_sub(ROW / 2 + 5))
            width=(width + HEAD) height=(ROW - 4) {}
    }
}

fn arrow(from: usize, to: usize, y: usize) -> Markup {
    let head = if to > from { to - HEAD } else { to + HEAD };
    html! {
        line.arrow x1=(from) y1=(y) x2=(head) y2=(y) {}
        path.head d=(format!("M{to} {y}L{head} {}L{head} {}Z", y - 4, y + 4)) {}
    }
}

/// Draws a point on a lane.
fn stop(x: usize, y: usize) -> Markup {
    html! { circle.head cx=(x) cy=(y) r="4" {} }
}

/// Draws a text beside a point on a lane.
fn beside(x: usize, y: usize, text: &Markup) -> Markup {
    html! { text x=(x + 9) y=(y + 4) { (text) } }
}

/// Draws an event other than a message, on the lane of the event's listener.
fn mark(kind: &str, x: usize, y: usize, text: &str) -> Markup {
    html! {
        g data-kind=(kind) {
            path.cross d=(format!("M{} {}l8 8m0 -8l-8 8", x - 4, y - 4)) {}
            (beside(x, y, &label(text)))
        }
    }
}

fn subthread(child: &ThreadTimeline, x: usize, y: usize) -> Markup {
    let id = child.thread.as_str();
    let own = id.rsplit_once('.').map_or(id, |(_, own)| own);
    html! {
        g data-kind="subthread" {
            a data-entry href=(thread_path(id)) {
                (hit(x, x, y))
                rect.head x=(x - 5) y=(y - 5) width="10" height="10" {}
                (beside(x, y, &html! { (label(own)) ", " (child.status.as_str()) }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_listeners_share_the_last_lane() {
        let names: Vec<_> = (0..100).map(|n| format!("listener-{n}")).collect();
        let mut lanes = SequenceLanes { names: Vec::new(), is_shared: false };
        names.iter().for_each(|name| lanes.add(name));
        assert_eq!(lanes.len(), limits::WEB_LANES_MAX + 1);
        assert_eq!(lanes.middle("listener-99"), lanes.middle("listener-24"));
        assert!(lanes.middle("listener-99") < lanes.width());
    }
}
