//! Payloads as lines of text, limited so that no payload makes a page slow.

use std::cell::Cell;

use maud::{Markup, html};

use super::layout::{cut, inline, shown};
use crate::audit::{core_words, payload_lines};
use crate::envelope::Payload;
use crate::ids::{Digest, MessageId};
use crate::index::{self, IndexReader, IndexedMessage, MessageSelector};
use crate::limits;
use crate::thread::{Fact, Record};

/// Beginning of a line in payloads that the pump itself writes. The line names the person who has
/// approved, refused or answered a call.
const PERSON_LINE: &str = "by: ";
/// Maximum number of characters of a payload in a row of a table.
const LINE_CHARS: usize = 100;

/// The number of bytes that one page may still use for recorded texts. When no bytes are left, the
/// page omits further texts.
#[derive(Debug)]
pub(super) struct PageRoom {
    bytes: Cell<usize>,
    omitted: Cell<u64>,
}

impl PageRoom {
    pub fn new() -> Self {
        Self { bytes: Cell::new(limits::WEB_PAGE_BYTES), omitted: Cell::new(0) }
    }

    pub fn is_full(&self) -> bool {
        self.bytes.get() == 0
    }

    /// Whether there is room for another text. If there is no room, counts the text as omitted.
    pub fn claim_room(&self) -> bool {
        let has_room = !self.is_full();
        if !has_room {
            self.omitted.set(self.omitted.get() + 1);
        }
        has_room
    }

    /// Subtracts the length of a text from the remaining room, and returns the text.
    pub fn take(&self, text: Markup) -> Markup {
        self.bytes.set(self.bytes.get().saturating_sub(text.0.len()));
        text
    }

    /// Returns the number of texts that the page has omitted for lack of room.
    pub fn omitted(&self) -> u64 {
        self.omitted.get()
    }
}

/// The first lines of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Excerpt {
    lines: Vec<String>,
    /// Number of lines of the whole text, not only of the excerpt.
    all: u64,
    is_cut: bool,
}

/// Returns the beginning of the text that consists of `lines`: at most
/// [`limits::WEB_EXCERPT_LINES`] lines and [`limits::WEB_EXCERPT_CHARS`] characters in all.
pub(super) fn excerpt(lines: Vec<String>) -> Excerpt {
    let all = lines.len() as u64;
    let mut room = limits::WEB_EXCERPT_CHARS;
    let mut kept = Vec::new();
    let mut is_cut = lines.len() > limits::WEB_EXCERPT_LINES;
    for line in lines.into_iter().take(limits::WEB_EXCERPT_LINES) {
        let (beginning, more) = cut(&line, room);
        if more.is_empty() {
            room -= line.chars().count();
            kept.push(line);
            continue;
        }
        is_cut = true;
        kept.push(format!("{beginning}{more}"));
        break;
    }
    Excerpt { lines: kept, all, is_cut }
}

impl Excerpt {
    /// Creates the excerpt of a payload. `core_name` is the name of the payload if the pump itself
    /// wrote it, and otherwise `None`.
    pub fn of_payload(payload: &str, core_name: Option<&str>) -> Self {
        // A very long payload is shown unformatted, because parsing its elements takes long.
        if payload.len() > limits::WEB_READ_BYTES {
            let head =
                payload.char_indices().nth(limits::WEB_EXCERPT_CHARS).map_or(0, |(at, _)| at);
            let lines = payload.get(..head).unwrap_or_default().lines().map(str::to_owned);
            let all = payload.lines().count() as u64;
            return Self { all, is_cut: true, ..excerpt(lines.collect()) };
        }
        match core_name {
            Some(name) => excerpt(core_words::lines(name, payload)),
            None => excerpt(payload_lines::lines(payload)),
        }
    }

    /// Creates an excerpt that shows the payload as written, without formatting. Most payloads fit
    /// into it as a whole.
    pub fn as_written(payload: &str) -> Self {
        let (written, more) = cut(payload, limits::WEB_RAW_CHARS);
        let all = payload.lines().count() as u64;
        Self { lines: vec![written.to_owned()], all, is_cut: !more.is_empty() }
    }

    /// Replaces the name in the first line that begins with `by: `. The new name is `person`, the
    /// person who approved, refused or answered the call. Changes nothing if there is no such line,
    /// or if `person` is `None`.
    #[must_use]
    pub fn with_person(mut self, person: Option<&str>) -> Self {
        let lines = self.lines.iter_mut().filter(|line| line.starts_with(PERSON_LINE));
        for (line, person) in lines.zip(person) {
            *line = format!("{PERSON_LINE}{person}");
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the number of lines of the whole text.
    pub fn all(&self) -> u64 {
        self.all
    }

    pub fn text(&self) -> Markup {
        shown(&self.lines.join("\n"))
    }
}

/// The beginning of a recorded payload on one line, and the digest of the whole payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PayloadLine {
    /// The beginning of the payload; `None` if the payload was redacted.
    text: Option<String>,
    pub digest: Digest,
}

impl PayloadLine {
    /// Returns the beginning of the payload of the message `id`; `None` if the record does not
    /// contain this message.
    pub fn in_record(record: &Record, id: MessageId) -> Option<Self> {
        record.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message, .. } if message.id == id => Some(Self::of(&message.payload)),
            _ => None,
        })
    }

    fn of(payload: &Payload) -> Self {
        let text = (!payload.is_redacted()).then(|| payload_line(payload.as_str()));
        Self { text, digest: payload.digest }
    }

    pub fn draw(&self) -> Markup {
        match &self.text {
            Some(text) => html! { span.wraps { (inline(text)) } },
            None => html! { span.hint { "the payload was redacted" } },
        }
    }
}

/// A message on record, with the beginning of its payload.
#[derive(Debug, Clone)]
pub(super) struct MessageWithPayload {
    pub message: IndexedMessage,
    /// The beginning of the payload; `None` if the journal has no record of the message.
    pub payload: Option<PayloadLine>,
}

impl MessageWithPayload {
    /// Reads the message with this id; returns `None` if the index has no such message.
    pub fn find(index: &IndexReader, id: MessageId) -> Result<Option<Self>, index::Error> {
        let Some(selector) = MessageSelector::parse(&id.to_string()) else { return Ok(None) };
        let Some(message) = index.messages_with_id(&selector, 1)?.pop() else { return Ok(None) };
        let sealed = index.journal().record(message.position)?;
        let payload = sealed.and_then(|sealed| PayloadLine::in_record(&sealed.record, id));
        Ok(Some(Self { message, payload }))
    }

    /// Draws the sender, the addressee and the payload name.
    pub fn title(&self) -> Markup {
        let message = &self.message;
        html! {
            (inline(&message.from)) " → " (inline(&message.to)) " " (inline(self.local_name()))
        }
    }

    pub fn local_name(&self) -> &str {
        let name = &*self.message.name;
        name.rsplit_once('}').map_or(name, |(_, local)| local)
    }

    /// Draws the beginning of the payload; draws nothing if the journal has no record of it.
    pub fn payload(&self) -> Markup {
        html! { @if let Some(payload) = &self.payload { (payload.draw()) } }
    }
}

/// Returns the beginning of a recorded payload on one line. Returns `[redacted]` for a redacted
/// payload, whose bytes are NULs.
pub(super) fn recorded_line(payload: &Payload) -> String {
    if payload.is_redacted() {
        return "[redacted]".to_owned();
    }
    payload_line(payload.as_str())
}

/// Returns the beginning of a payload on one line.
pub(super) fn payload_line(payload: &str) -> String {
    let excerpt = Excerpt::of_payload(payload, None);
    let lines: Vec<_> = excerpt.lines.iter().map(|line| line.trim()).collect();
    let line = lines.join("; ");
    let (beginning, more) = cut(&line, LINE_CHARS);
    format!("{beginning}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_payload_is_one_short_line() {
        assert_eq!(payload_line("<a><b>1</b><c>2</c></a>"), "b: 1; c: 2");
        let long = payload_line(&format!("<a>{}</a>", "漢".repeat(10 * LINE_CHARS)));
        assert_eq!(long.chars().count(), LINE_CHARS + 1);
        assert!(!payload_line("<a>one\ntwo</a>").contains('\n'));
    }

    #[test]
    fn the_line_of_a_redacted_payload_shows_no_nuls() {
        let payload = Payload::new("<a><b>1</b></a>");
        assert_eq!(recorded_line(&payload), "b: 1");
        let redacted = Payload::recorded(payload.digest, &"\0".repeat(payload.len())).unwrap();
        assert_eq!(recorded_line(&redacted), "[redacted]");
    }

    #[test]
    fn a_page_has_room_for_texts_until_it_is_full() {
        let room = PageRoom::new();
        let text = "<".repeat(limits::WEB_RAW_CHARS);
        let mut bytes = 0;
        let mut texts = 0;
        while room.claim_room() {
            bytes += room.take(shown(&text)).0.len();
            texts += 1;
        }
        assert_eq!((texts, room.omitted()), (6, 1));
        assert!(bytes < limits::WEB_PAGE_BYTES + 4 * limits::WEB_RAW_CHARS, "{bytes}");
        assert!(!room.claim_room());
        assert_eq!(room.omitted(), 2);
    }

    #[test]
    fn no_payload_is_longer_than_its_excerpt() {
        let one_line = format!("<a>{}</a>", "x".repeat(1 << 20));
        let siblings = format!("<a>{}</a>", "<b>1</b>".repeat(10_000));
        let lines = format!("<a>{}</a>", "line\n".repeat(100));
        for payload in [&one_line, &siblings, &lines] {
            let shown = Excerpt::of_payload(payload, None);
            assert!(shown.is_cut());
            assert!(shown.lines.len() <= limits::WEB_EXCERPT_LINES);
            assert!(shown.text().into_string().len() <= 2 * limits::WEB_EXCERPT_CHARS);
        }

        let short = Excerpt::of_payload("<a><b>1</b><c>2</c></a>", None);
        assert_eq!((short.lines.join("|").as_str(), short.is_cut()), ("b: 1|c: 2", false));
        let cut_in_a_character = excerpt(vec!["漢".repeat(limits::WEB_EXCERPT_CHARS + 1)]);
        assert!(cut_in_a_character.is_cut());
    }
}
