//! Draws a thread's timeline for people.

use crate::audit::amounts::offset;
use crate::audit::{
    BusyRefusals, EventClass, MessageView, RecordedMoment, RefusalView, SignedBy, ThreadPhase,
    ThreadTimeline, TimelineEntry, TimelineEvent, TimelineRest, core_words, event_text,
    payload_lines, thread_state,
};
use crate::clock::Time;
use crate::envelope::MessageKind;
use crate::system::{self, MODEL_TURN};
use crate::thread::TimerEnd;

use super::table::cut;
use super::{RenderOutput, clean, columns, count, duration, wrap};

/// Maximum number of lines that a timeline shows of a payload. `--full` shows all lines.
const LINES_MAX: usize = 8;
/// Maximum size in bytes of a payload whose lines a timeline counts. If a payload is larger, the
/// timeline lays out only the lines that it shows. It then states the size of the payload in place
/// of the number of omitted lines.
const COUNTED_BYTES_MAX: usize = 64 << 10;
/// Maximum number of characters of a line that a timeline lays out, if the payload is larger than
/// `COUNTED_BYTES_MAX`. After a longer line, the timeline shows nothing more of the payload.
const CHARS_MAX: usize = 4_000;
/// Maximum number of levels of subthreads that are indented. All deeper levels have the same
/// indentation as the last of these levels.
const INDENTED_MAX: usize = 8;
/// Number of columns of a time in whole seconds.
const SECOND_COLUMNS: usize = "2026-11-20T10:00:00Z".len();
/// Number of columns of a time of day.
const CLOCK_COLUMNS: usize = "10:00:00".len();

/// Options that add columns to a timeline, or change the content of columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimelineColumns {
    /// Whether to show the position of each event, and the sequence number and id of each message.
    pub ids: bool,
    /// Whether to show times with date and zone, instead of the time since the thread was opened.
    pub absolute: bool,
}

/// The part of a thread that a timeline shows.
#[derive(Debug, Clone, Default)]
pub struct ThreadPart {
    /// Moment at which the timeline shows the thread; `None` for the present.
    pub at: Option<RecordedMoment>,
    /// Classes of the shown events; empty for all classes.
    pub only: Vec<EventClass>,
    /// Command-line option with which another command reads the same journal, preceded by a space.
    /// Empty if another command needs no such option.
    pub journal: String,
}

impl ThreadPart {
    /// Returns the command-line options with which `organism thread` shows this part of a thread. A
    /// space precedes each option. If the user gave a time before now, such as `2h`, the options
    /// contain the resulting fixed time. A later command therefore shows the same state.
    fn options(&self) -> String {
        let mut options = clean(&self.journal);
        match self.at {
            Some(RecordedMoment::Position(position)) => {
                options.push_str(&format!(" --at {position}"));
            }
            Some(RecordedMoment::Time(time)) => options.push_str(&format!(" --at {time}")),
            None => {}
        }
        if !self.only.is_empty() {
            let classes: Vec<_> = self.only.iter().map(|class| class.as_str()).collect();
            options.push_str(&format!(" --only {}", classes.join(",")));
        }
        options
    }
}

/// Draws a timeline. A subthread is drawn beneath the message that spawned it. `part` is the part
/// of the thread that the timeline shows.
pub fn draw_timeline(
    output: &RenderOutput,
    timeline: &ThreadTimeline,
    shown: TimelineColumns,
    part: &ThreadPart,
) -> String {
    let time = if shown.absolute { "2026-11-20T10:00:00.000Z" } else { "+99.999s " };
    let mut page = TimelinePage::new(output, time.len(), timeline.opened);
    page.shown = shown;
    page.options = part.options();
    page.title(timeline);
    page.items(timeline);
    page.total(timeline);
    page.text
}

/// Draws a single message, for `tail` and `search`.
pub fn draw_message(output: &RenderOutput, message: &MessageView) -> String {
    let mut page = TimelinePage::new(output, SECOND_COLUMNS, message.at);
    page.message(message, &second_of(&message.time), Some(message.thread.as_str()));
    page.text
}

/// Draws a single refusal, for `tail` and `search`.
pub fn refused(output: &RenderOutput, refused: &RefusalView) -> String {
    let mut page = TimelinePage::new(output, SECOND_COLUMNS, Time(0));
    page.refused(refused, &second_of(&refused.time));
    page.text
}

/// Draws how many requests of one client were refused with `busy`, for `tail` and `search`.
pub fn busy(output: &RenderOutput, busy: &BusyRefusals) -> String {
    let mut page = TimelinePage::new(output, SECOND_COLUMNS, Time(0));
    page.busy(busy, &second_of(&busy.time));
    page.text
}

/// Cuts a UTC time in the format of RFC 3339 to whole seconds. Keeps the zone `Z`: a person may
/// pass the result as an option to a command on another machine, which may have another time zone.
pub fn second_of(time: &str) -> String {
    time.get(..19).map_or_else(|| time.to_owned(), |second| format!("{second}Z"))
}

struct TimelinePage<'p> {
    output: &'p RenderOutput,
    /// Width of the column with the times, which is the first column.
    time_columns: usize,
    began: Time,
    depth: usize,
    shown: TimelineColumns,
    /// Command-line options with which `organism thread` shows the same part of the thread as this
    /// page. A space precedes each option.
    options: String,
    /// Position and id of the event that is being drawn. The next drawn heading takes them, and
    /// writes them on the line beneath itself. `None` if they are already written, or if ids are
    /// not shown.
    under_head: Option<String>,
    text: String,
}

impl<'p> TimelinePage<'p> {
    fn new(output: &'p RenderOutput, time_columns: usize, began: Time) -> Self {
        Self {
            output,
            time_columns,
            began,
            depth: 0,
            shown: TimelineColumns::default(),
            options: String::new(),
            under_head: None,
            text: String::new(),
        }
    }

    fn margin(&self) -> String {
        "│ ".repeat(self.depth.min(INDENTED_MAX))
    }

    fn room(&self) -> usize {
        self.output.columns - columns(&self.margin())
    }

    fn line(&mut self, line: &str) {
        let margin = self.margin();
        let margin = if margin.is_empty() { margin } else { self.output.dim(&margin) };
        let line = format!("{margin}{line}");
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn title(&mut self, timeline: &ThreadTimeline) {
        let rest = format!(
            "{}  {}",
            duration(timeline.updated.since(timeline.opened)),
            count(timeline.messages, "message")
        );
        let state = thread_state(timeline.status.as_str(), timeline.waits);
        let status = if state == timeline.status.as_str() {
            status(self.output, timeline.status)
        } else {
            self.output.yellow(state)
        };
        let taken = columns(&rest) + columns(state) + 4;
        let thread = cut(timeline.thread.as_str(), self.room().saturating_sub(taken).max(16));
        let line = format!("{}  {status}  {}", self.output.bold(&thread), self.output.dim(&rest));
        self.line(&line);
    }

    fn items(&mut self, timeline: &ThreadTimeline) {
        if timeline.before > 0 {
            let earlier = count(timeline.before, "earlier event");
            self.line(&self.output.dim(&format!("… {earlier}: --from-seq 0")));
        }

        for item in &timeline.items {
            self.item(item);
        }

        if let Some(TimelineRest { events, from_seq }) = timeline.rest {
            let more = count(events, "more event");
            let thread = &timeline.thread;
            let options = &self.options;
            let command = format!("organism thread {thread}{options} --from-seq {from_seq}");
            self.line(&self.output.dim(&format!("… {more}: {command}")));
        }
    }

    /// Writes the tokens and money that the whole thread has used. Writes nothing if the thread has
    /// used none.
    fn total(&mut self, timeline: &ThreadTimeline) {
        let spent = &timeline.spent;
        if spent.is_zero() {
            return;
        }

        let mut total = format!("in all  {}", count(spent.tokens, "token"));
        if !spent.money.is_zero() {
            total.push_str(&format!("  {}", clean(&spent.money.to_string())));
        }
        self.line(&self.output.dim(&total));
    }

    fn item(&mut self, item: &TimelineEntry) {
        let time =
            if self.shown.absolute { absolute(item.at) } else { offset(item.at.since(self.began)) };
        self.under_head = self.shown.ids.then(|| ids(item));

        match &item.what {
            TimelineEvent::Message(message) => self.message(message, &time, None),
            TimelineEvent::Refused(refused) => self.refused(refused, &time),
            TimelineEvent::Busy(busy) => self.busy(busy, &time),
            TimelineEvent::Findings { by, findings } => {
                let head = format!("{by}  {}", count(findings.len() as u64, "finding"));
                self.head(&time, &self.output.yellow(&head));
                for finding in findings {
                    self.body(&finding.to_string(), |output, line| output.yellow(line));
                }
            }
            TimelineEvent::AttemptFailed { listener, attempt, failure, .. } => {
                let who = listener.as_ref().map_or("listener", |listener| listener.as_str());
                self.head(&time, &self.output.red(&format!("{who}  attempt {attempt} failed")));
                for line in event_text::failure_lines(failure) {
                    self.body(&line, |output, line| output.red(line));
                }
            }
            TimelineEvent::Charged { listener, attempt, spending, .. } => {
                let head = format!("{listener}  model call of attempt {attempt}");
                self.head(&time, &self.output.yellow(&head));
                let text = event_text::charge_text(spending);
                self.body(&text, |output, line| output.yellow(line));
            }
            // The message of the timer, which follows, shows the same.
            TimelineEvent::TimerEnded { how: TimerEnd::Fired, .. } => {}
            TimelineEvent::TimerEnded { timer, how } => {
                let how = format!("{how:?}").to_lowercase();
                self.head(&time, &self.output.dim(&format!("timer {how}  {timer}")));
            }
            TimelineEvent::Decision { verb, by, origin, signed, message, details } => {
                let login = origin.who.login.as_deref().unwrap_or("unknown");
                let uid = origin.who.uid.map_or_else(String::new, |uid| format!(", uid {uid}"));
                let host =
                    origin.who.host.as_deref().map_or_else(String::new, |h| format!(" on {h}"));
                let who = format!("{verb} by {by}: {login}{uid}{host}");

                self.head(&time, &self.output.dim(&who));
                if let Some(message) = message {
                    let call = format!("about the call {message}");
                    self.body(&call, RenderOutput::dim);
                }
                if let Some(signed) = signed {
                    self.signature(signed);
                }
                for detail in details {
                    self.body(&format!("{}: {}", detail.name, detail.value), |_, line| {
                        line.to_owned()
                    });
                }
                self.body(&origin.note, |_, line| line.to_owned());
            }
            TimelineEvent::Cancelled { by, reason } => {
                self.head(&time, &self.output.red(&format!("cancelled by {by}")));
                self.body(reason, |_, line| line.to_owned());
            }
            TimelineEvent::Subthread(timeline) => self.subthread(timeline),
        }
    }

    fn signature(&mut self, signed: &SignedBy) {
        let text = event_text::signature_text(signed);
        let paint: fn(&RenderOutput, &str) -> String =
            if signed.holds { RenderOutput::dim } else { RenderOutput::red };
        self.body(&text, paint);
    }

    fn subthread(&mut self, timeline: &ThreadTimeline) {
        self.depth += 1;
        self.title(timeline);
        self.items(timeline);
        self.depth -= 1;
    }

    fn message(&mut self, message: &MessageView, time: &str, thread: Option<&str>) {
        let output = self.output;
        let from = message.from.as_str();
        let to = message.to.as_str();
        let name = &*message.name.local;
        let mut head = match message.kind {
            MessageKind::Note => output.dim(&format!("{from}  {name}")),
            MessageKind::Own => format!("{from} ↻  {}", output.cyan(name)),
            MessageKind::System => {
                format!("{from} → {to}  {}", output.yellow(&format!("⚙ {name}")))
            }
            MessageKind::Call => format!("{from} → {to}  {}", output.cyan(name)),
            MessageKind::Reply => format!("{from} → {to}  {}", output.green(name)),
        };

        if let Some(gist) = core_gist(message) {
            let plain = match message.kind {
                MessageKind::Note => format!("{from}  {name}    "),
                _ => format!("{from} → {to}  ⚙ {name}    "),
            };
            // The row of a single message ends with the id of its thread, so it may exceed the
            // width of the output. The gist therefore gets as many columns as beside a shorter time
            // of day.
            let time_room = match thread {
                Some(_) => CLOCK_COLUMNS,
                None => self.time_columns.max(columns(time)),
            };
            let taken = time_room + columns(&plain);
            let room = self.room().saturating_sub(taken).max(16);
            // The cost and the time of a model turn are shown nowhere else.
            let room = if *message.name.local == *MODEL_TURN { usize::MAX } else { room };
            head = format!("{head}  {}", output.dim(&cut(&clean(&gist), room)));
        }

        if let Some(mark) = unusual(message, thread.is_some()) {
            head = format!("{head}  {}", output.red(mark));
        }

        if let Some(thread) = thread {
            let plain = format!("{time}  {from} → {to}  {name}  ");
            let room = output.columns.saturating_sub(columns(&plain) + 2).max(13);
            head = format!("{head}  {}", output.dim(&cut(thread, room)));
        }

        self.head(time, &head);
        self.payload(message);
    }

    fn payload(&mut self, message: &MessageView) {
        let limit = if self.output.full { usize::MAX } else { LINES_MAX };
        let paint = |output: &RenderOutput, line: &str| match message.kind {
            MessageKind::Note => output.dim(line),
            _ => line.to_owned(),
        };

        let Some(text) = message.payload.as_deref() else {
            return self.body("[redacted]", |output, line| output.dim(line));
        };

        let lines = if is_core(message) && !self.output.full {
            core_words::lines(&message.name.local, text)
        } else {
            payload_lines::lines(text)
        };

        let length: usize = lines.iter().map(String::len).sum();
        let is_counted = self.output.full || length <= COUNTED_BYTES_MAX;
        let room = self.body_room();
        let mut wrapped: Vec<String> = Vec::new();
        for line in &lines {
            let shown = if is_counted { line } else { beginning(line, CHARS_MAX) };
            wrapped.extend(wrap(shown, room));
            // Nothing is shown behind what is left out.
            if !is_counted && (shown.len() < line.len() || wrapped.len() >= limit) {
                wrapped.truncate(limit);
                break;
            }
        }
        // One more line takes no more room than a note that one line was left out.
        let one_more = wrapped.len() == limit.saturating_add(1);
        let shown = limit.saturating_add(usize::from(one_more));
        for line in wrapped.iter().take(shown) {
            self.body_line(&paint(self.output, line));
        }

        let hidden = wrapped.len().saturating_sub(shown);
        if !is_counted {
            let more = format!("… more, of {} bytes in all (--full)", text.len());
            self.body_line(&self.output.dim(&more));
        } else if hidden > 0 {
            let more = format!("… {} (--full)", count(hidden as u64, "more line"));
            self.body_line(&self.output.dim(&more));
        }
    }

    fn refused(&mut self, refused: &RefusalView, time: &str) {
        let head = format!("{}  refused: {}", refused.sender, refused.rule);
        self.head(time, &self.output.red(&head));
        self.body(&refused.located_message(), |output, line| output.red(line));
        let head: String = refused.head.split_whitespace().collect::<Vec<_>>().join(" ");
        let room = if self.output.full { usize::MAX } else { self.body_room() };
        self.body(&cut(&head, room), |output, line| output.dim(line));
    }

    fn busy(&mut self, busy: &BusyRefusals, time: &str) {
        let times = count(busy.count, "time");
        let since = second_of(&busy.since);
        let head = format!("{}  busy: refused {times} since {since}", busy.client);
        self.head(time, &self.output.yellow(&head));
    }

    fn head(&mut self, time: &str, head: &str) {
        let gap = " ".repeat(self.time_columns.saturating_sub(columns(time)));
        let line = format!("{gap}{}  {head}", self.output.dim(time));
        self.line(&line);
        if let Some(ids) = self.under_head.take() {
            self.body_line(&self.output.dim(&ids));
        }
    }

    fn body_room(&self) -> usize {
        self.room().saturating_sub(self.time_columns + 2)
    }

    fn body(&mut self, text: &str, paint: impl Fn(&RenderOutput, &str) -> String) {
        for line in wrap(text, self.body_room()) {
            self.body_line(&paint(self.output, &line));
        }
    }

    fn body_line(&mut self, line: &str) {
        let line = format!("{}{line}", " ".repeat(self.time_columns + 2));
        self.line(&line);
    }
}

/// Formats the position of an event. For a message, adds its sequence number and id.
fn ids(item: &TimelineEntry) -> String {
    match &item.what {
        TimelineEvent::Message(message) => {
            format!("position {}  seq {}  id {}", item.position, message.seq, message.id)
        }
        _ => format!("position {}", item.position),
    }
}

/// Formats a time with date and zone, in milliseconds.
fn absolute(time: Time) -> String {
    let text = time.to_string();
    text.get(..23).map_or_else(|| text.clone(), |date| format!("{date}Z"))
}

/// Returns the first `chars` characters of a text.
fn beginning(text: &str, chars: usize) -> &str {
    let end = text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default()
}

fn is_core(message: &MessageView) -> bool {
    &*message.name.namespace == system::NAMESPACE
}

fn core_gist(message: &MessageView) -> Option<String> {
    core_words::gist(&message.name.local, message.payload.as_deref().filter(|_| is_core(message))?)
}

/// Returns the state of a message if the state is unusual, so that people should notice it. Returns
/// `None` for the usual states, `handled` and `recorded`. If `unknown` is true, also returns `None`
/// for a message without a disposition.
fn unusual(message: &MessageView, unknown: bool) -> Option<&'static str> {
    let is_unknown = unknown && message.disposition.is_none();
    message.unusual_state().filter(|_| !is_unknown)
}

pub fn status(output: &RenderOutput, status: ThreadPhase) -> String {
    let text = status.as_str();
    match status {
        ThreadPhase::Completed => output.green(text),
        ThreadPhase::Failed | ThreadPhase::Cancelled => output.red(text),
        ThreadPhase::Running | ThreadPhase::Draining => output.cyan(text),
        ThreadPhase::Idle => output.dim(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Digest, ListenerName, MessageId, PayloadName, Position, ThreadId};

    /// Draws a message of the core with the payload name `name` in 80 columns.
    fn drawn(name: &str, payload: &str) -> String {
        let output = RenderOutput { colour: false, columns: 80, table_columns: 80, full: false };
        let researcher = ListenerName::parse("researcher").unwrap();
        let message = MessageView {
            position: Position(1),
            id: MessageId(uuid::Uuid::from_u128(7)),
            thread: ThreadId::parse("sess-spent0001").unwrap(),
            seq: 1,
            kind: MessageKind::Note,
            from: researcher.clone(),
            to: researcher,
            cause: None,
            call: None,
            time: Time(0).to_string(),
            at: Time(0),
            name: PayloadName::parse(&format!("{{{}}}{name}", system::NAMESPACE)).unwrap(),
            payload: Some(payload.to_owned()),
            digest: Digest::of(payload.as_bytes()),
            disposition: None,
            hold: None,
            is_handed_over: None,
        };
        draw_message(&output, &message)
    }

    /// Draws a model turn and a timer in 80 columns. The heading of the timer is cut with `…`. The
    /// text of the turn must contain its tokens, cost and time in full, because auditors read the
    /// cost there, and no other line shows the cost.
    #[test]
    fn the_cost_and_the_time_of_a_model_turn_are_never_cut() {
        let turn = "<t agent=\"researcher\" turn=\"1\" iteration=\"1\" stop=\"normal\" \
                    tokens_in=\"1169\" tokens_out=\"11\" latency_ms=\"1234\" cost=\"0.001191\" \
                    currency=\"EUR\"/>";
        let text = drawn("model-turn", turn);
        assert!(text.contains("1169 + 11 tokens  0.001191 EUR"), "{text}");
        assert!(text.lines().next().unwrap().contains("1234 ms"), "{text}");

        let text = drawn("timer-set", &format!("<t timer_id=\"1\" label=\"{}\"/>", "x".repeat(90)));
        assert!(text.lines().next().unwrap().contains('…'), "{text}");
    }
}
