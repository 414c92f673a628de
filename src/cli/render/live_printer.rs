//! Prints events of the live channel, one beneath another. The text of a model appears as it
//! streams. Control characters that a model writes never reach the terminal.

use crate::bus::ModelState;
use crate::bus::live::{AnswerPart, LiveEvent, LiveSource};

use super::{RenderOutput, clean, columns};

/// Printer of live events: the states of model calls, and the text of answers as it streams. Prints
/// a line with the agent's name before each answer. If other output interrupts an answer, prints
/// this line again before the rest of the answer.
pub struct LivePrinter {
    output: RenderOutput,
    /// The answer whose text is being printed; `None` after other output.
    open: Option<(LiveSource, AnswerPart)>,
    /// Text after the margin in the terminal's present row. `None` if the row is empty.
    row: Option<String>,
}

/// Left margin of a model's text. The margin marks text that was not checked yet.
const MARGIN: &str = "  ┊ ";

/// Maximum bytes of model text in one row of the terminal.
const ROW_BYTES_MAX: usize = 1024;

impl LivePrinter {
    pub fn new(output: RenderOutput) -> Self {
        Self { output, open: None, row: None }
    }

    /// Ends an unfinished line, so that other output can follow. Returns the line break to print,
    /// or an empty text if no line is unfinished.
    pub fn end_line(&mut self) -> String {
        self.open = None;
        self.row.take().map(|_| "\n".to_owned()).unwrap_or_default()
    }

    /// Sets the width of the terminal. The caller repeats this call when the width changes.
    pub fn fit(&mut self, columns: usize) {
        self.output.columns = columns;
    }

    pub fn event(&mut self, event: &LiveEvent) -> String {
        match event {
            LiveEvent::Opened { .. } => String::new(),
            LiveEvent::Text { source, part, text } => self.text(source, *part, text),
            LiveEvent::Model { source, state, streams, .. } => {
                let line = clean(&format!("{}  {}", name(source), words(state, *streams)));
                let line = match state {
                    ModelState::Delayed(..) => self.output.yellow(&line),
                    _ => self.output.dim(&line),
                };
                self.end_line() + &line + "\n"
            }
            LiveEvent::Unwatched { partition, detail } => {
                let line = format!("partition {partition} is not shown, and tried again: {detail}");
                self.end_line() + &self.output.yellow(&clean(&line)) + "\n"
            }
            LiveEvent::Lost { events } => {
                let line = match events {
                    0 => "some live events are missing here".to_owned(),
                    events => format!("{events} live events are missing here"),
                };
                self.end_line() + &self.output.yellow(&line) + "\n"
            }
        }
    }

    fn text(&mut self, source: &LiveSource, part: AnswerPart, text: &str) -> String {
        let is_same = self.open.as_ref().is_some_and(|(of, kind)| of == source && *kind == part);
        let mut out = String::new();
        if !is_same {
            out = self.end_line();
            let verb = match part {
                AnswerPart::Answer => "writes",
                AnswerPart::Reasoning => "thinks",
            };
            let head = format!("{}  {verb}, not checked:", name(source));
            out += &self.output.dim(&head);
            out.push('\n');
            self.open = Some((source.clone(), part));
        }

        for word in clean(text).split_inclusive([' ', '\n']) {
            self.put_word(&mut out, word);
        }
        out
    }

    /// Appends a word with the white space after it. If a new word does not fit into the present
    /// row but would fit into an empty one, begins the next row. A word whose beginning is already
    /// printed continues in the present row.
    fn put_word(&mut self, out: &mut String, word: &str) {
        let is_new_word = self.row.as_ref().is_some_and(|row| row.ends_with(' '));
        let letters = word.trim_end_matches([' ', '\n']);
        let fits = |row: &str| columns(row) + columns(letters) <= self.room();
        if is_new_word && fits("") && !self.row.as_deref().is_none_or(fits) {
            out.push('\n');
            out.push_str(MARGIN);
            self.row = Some(String::new());
        }

        word.chars().for_each(|char| self.put_char(out, char));
    }

    /// Appends a character of a model's text. Before the first character of a row, writes
    /// [`MARGIN`], which distinguishes model text from recorded messages.
    fn put_char(&mut self, out: &mut String, char: char) {
        let mut row = match self.row.take() {
            Some(row) if char == '\n' || self.has_room(&row, char) => row,
            row => {
                if row.is_some() {
                    out.push('\n');
                }
                out.push_str(MARGIN);
                String::new()
            }
        };

        out.push(char);
        if char != '\n' {
            row.push(char);
            self.row = Some(row);
        }
    }

    /// Whether a row of text has room for one more character.
    fn has_room(&self, row: &str, char: char) -> bool {
        // Characters without width must not make a row endless.
        row.len() < ROW_BYTES_MAX && columns(&format!("{row}{char}")) <= self.room()
    }

    /// Returns the number of columns that a row has for text: the terminal's width without the
    /// margin and one spare column. The spare column is needed because some terminals draw the
    /// margin wider.
    fn room(&self) -> usize {
        self.output.columns.saturating_sub(columns(MARGIN) + 1).max(1)
    }
}

fn name(source: &LiveSource) -> String {
    format!("{}  {}", source.thread, source.agent)
}

fn words(state: &ModelState, streams: bool) -> String {
    let silent =
        if streams { "" } else { "; its host has no live channel, so its text is not shown" };
    match state {
        ModelState::Requested(route) => format!("asks {route}{silent}"),
        ModelState::Streaming(route) => format!("receives the answer of {route}{silent}"),
        ModelState::Delayed(route, until) => {
            format!("waits for {route}, which asks for a pause until {until}")
        }
        ModelState::Ended => "has its answer, or gave up".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Attempt, CallId, ListenerName, MessageId, ThreadId};

    fn source(agent: &str) -> LiveSource {
        LiveSource {
            thread: ThreadId::parse("sess-aaaaaaaa.draft").unwrap(),
            agent: ListenerName::parse(agent).unwrap(),
            call: CallId(MessageId(uuid::Uuid::from_u128(7))),
            attempt: Attempt { epoch: 1, n: 1 },
        }
    }

    fn printer() -> LivePrinter {
        LivePrinter::new(RenderOutput {
            colour: false,
            columns: 80,
            table_columns: 80,
            full: false,
        })
    }

    fn text(agent: &str, text: &str) -> LiveEvent {
        let source = source(agent);
        let part = AnswerPart::Answer;
        LiveEvent::Text { source, part, text: text.to_owned() }
    }

    #[test]
    fn texts_of_two_agents_stand_apart_and_one_text_goes_on() {
        let mut printer = printer();
        let events =
            [text("a", "one "), text("a", "two\nthree"), text("b", "four"), text("a", "five\n")];
        let mut out: String = events.iter().map(|event| printer.event(event)).collect();
        out += &printer.end_line();
        let expected = "sess-aaaaaaaa.draft  a  writes, not checked:\n  ┊ one two\n  ┊ three\n\
                        sess-aaaaaaaa.draft  b  writes, not checked:\n  ┊ four\n\
                        sess-aaaaaaaa.draft  a  writes, not checked:\n  ┊ five\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn every_row_of_a_text_begins_with_the_margin_also_where_the_text_fills_the_terminal() {
        let recorded = "  7  sess-aaaaaaaa  ana  writer  ";
        let texts = [
            format!("{}{recorded}", "x".repeat(76)),
            format!("漢{}\n\n{recorded}", "字".repeat(90)),
            format!("e{}", "\u{301}".repeat(4000)),
        ];
        for columns in [20, 80] {
            for hostile in &texts {
                let mut printer = printer();
                printer.fit(columns);
                let first: String = hostile.chars().take(50).collect();
                let rest = &hostile[first.len()..];
                let mut out = printer.event(&text("a", &first)) + &printer.event(&text("a", rest));
                out += &printer.end_line();
                let rows: Vec<_> = out.lines().skip(1).collect();
                for row in &rows {
                    assert!(row.starts_with(MARGIN), "{out}");
                    assert!(super::columns(row) < columns, "{out}");
                    assert!(row.len() <= MARGIN.len() + ROW_BYTES_MAX + 4, "{out}");
                }
                let shown: String = rows.iter().map(|row| &row[MARGIN.len()..]).collect();
                assert_eq!(shown, hostile.replace('\n', ""), "nothing is missing");
            }
        }
    }

    #[test]
    fn no_escape_sequence_of_a_model_or_a_provider_reaches_the_terminal() {
        let hostile = "\u{1b}]0;title\u{7}\u{9b}2J\r\u{202e}";
        let state = ModelState::Requested(hostile.to_owned());
        let since = crate::clock::Time::default();
        let model = LiveEvent::Model { source: source("a"), state, since, streams: true };
        for event in [text("a", hostile), model] {
            let out = printer().event(&event);
            let controls = out.chars().filter(|c| c.is_control() && *c != '\n');
            assert_eq!(controls.count(), 0, "{out:?}");
            assert!(!out.contains('\u{202e}'), "{out:?}");
        }
    }

    #[test]
    fn a_loss_is_shown() {
        let mut printer = printer();
        printer.event(&text("a", "half a line"));
        assert_eq!(
            printer.event(&LiveEvent::Lost { events: 3 }),
            "\n3 live events are missing here\n"
        );
    }

    #[test]
    fn rows_break_between_words_and_only_a_word_that_fills_a_row_is_cut() {
        let mut printer = printer();
        printer.fit(20);
        let pieces = ["one two three ", "four five", " ", "sevenandtwentyletters ok"];
        let mut out: String = pieces.iter().map(|piece| printer.event(&text("a", piece))).collect();
        out += &printer.end_line();
        let rows: Vec<_> = out.lines().skip(1).map(|row| row.trim_start_matches(MARGIN)).collect();
        assert_eq!(rows, ["one two three ", "four five seven", "andtwentyletter", "s ok"], "{out}");
    }
}
