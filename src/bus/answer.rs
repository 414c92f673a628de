//! Parses an answer of a listener. An answer contains payloads, and may name the call that it
//! answers (docs/PROTOCOL.md, section 4).

use std::ops::Range;

use crate::envelope;
use crate::ids::{Attempt, CallId};
use crate::limits;
use crate::xml::element::Element;
use crate::xml::findings::TextLocation;
use crate::xml::invisible_characters::{visible, visible_line};
use crate::xml::scan::{BrokenRule, split};

/// Maximum number of bytes at the beginning of an incomplete answer that are searched for its first
/// tag. The search is repeated while the answer arrives.
const HEAD_BYTES: usize = 1024;

/// The mark that some programs write at the beginning of their output.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The call and the attempt that an answer names, as unparsed strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedAttempt {
    call: String,
    attempt: String,
}

impl NamedAttempt {
    pub fn is(&self, call: CallId, attempt: Attempt) -> bool {
        self.call == call.to_string() && self.attempt == attempt.to_string()
    }
}

impl std::fmt::Display for NamedAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |text: &str| {
            let short: String = text.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
            visible_line(&short)
        };
        write!(f, "attempt {} at call {}", short(&self.attempt), short(&self.call))
    }
}

/// An answer's statement about the listener's memory of the call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ClaimedMemory {
    /// The answer does not state whether the listener remembers the call.
    #[default]
    Nothing,
    /// The listener remembers every message of the call so far.
    Kept,
    /// The listener does not remember all messages of earlier deliveries, although it should. The
    /// answer requests a delivery with all messages of the call, and the attempt continues.
    Missing,
}

/// A parsed answer of a listener.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListenerAnswer {
    /// The attempt that the answer names; `None` if the answer names no attempt.
    pub named: Option<NamedAttempt>,
    pub memory: ClaimedMemory,
    /// The payloads, or the reason why the answer cannot be split into payloads.
    pub payloads: Result<Vec<Vec<u8>>, String>,
}

/// Parses the answer in a frame or a NATS message. The bytes may be anything, even if they are not
/// UTF-8 or XML.
pub(super) fn read(frame: &[u8]) -> ListenerAnswer {
    let frame = without_byte_order_mark(frame);

    match root(frame) {
        None => {
            let payloads = payloads(frame, 0..frame.len());
            ListenerAnswer { named: None, memory: ClaimedMemory::Nothing, payloads }
        }
        Some(AnswerRoot { named, memory, content }) => {
            let payloads = content.and_then(|content| payloads(frame, content));
            ListenerAnswer { named: Some(named), memory, payloads }
        }
    }
}

pub(super) fn without_byte_order_mark(frame: &[u8]) -> &[u8] {
    frame.strip_prefix(BYTE_ORDER_MARK.as_bytes()).unwrap_or(frame)
}

/// Whether `beginning` may be the beginning of an answer that names its attempt. True for:
/// - white space only,
/// - an XML declaration or a comment,
/// - a start tag, perhaps incomplete, of an `<answer>` or `<missing-memory>` element.
pub(super) fn may_name_attempt(beginning: &[u8]) -> bool {
    let head = without_byte_order_mark(beginning);
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The bytes end inside a character.
        Err(error) if error.error_len().is_none() => {
            let valid = head.get(..error.valid_up_to()).unwrap_or_default();
            std::str::from_utf8(valid).unwrap_or_default()
        }
        Err(_) => return false,
    };

    if let Some(root) = Element::head(text) {
        return named_attempt(&root).is_some();
    }

    let text = text.trim_start();
    let Some(tag) = text.strip_prefix('<') else { return text.is_empty() };
    // An XML declaration or a comment may precede the start tag.
    if tag.starts_with(['?', '!']) {
        return true;
    }
    match tag.split_once(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>')) {
        Some((name, _)) => {
            let local = name.rsplit(':').next().unwrap_or_default();
            matches!(local, "answer" | "missing-memory")
        }
        // The name itself is not complete yet.
        None => true,
    }
}

fn payloads(frame: &[u8], content: Range<usize>) -> Result<Vec<Vec<u8>>, String> {
    let start = content.start;
    let content = frame.get(content).unwrap_or_default();
    let ranges = split(content).map_err(|violation| {
        let place = TextLocation::at(frame, start + violation.offset);
        let reason = visible_line(&format!("{violation} at {place} of the answer"));
        if violation.breach != BrokenRule::Roots {
            return reason;
        }

        let found = content.get(violation.offset..).unwrap_or_default();
        // The next element is a payload, whose content does not belong in the log.
        let end = memchr::memchr_iter(b'<', found).find(|at| *at > 0).unwrap_or(found.len());
        let found = excerpt(found.get(..end).unwrap_or_default().trim_ascii_end());
        format!("{reason}: `{found}`")
    })?;
    Ok(ranges.into_iter().filter_map(|range| content.get(range)).map(<[u8]>::to_vec).collect())
}

/// Description of a heartbeat that a program wrote while it had no delivery to answer.
pub(super) const UNSOLICITED_HEARTBEAT: &str = "a heartbeat; stop the heartbeats before the answer";

/// Description of an answer that a program wrote while it had no delivery to answer.
pub(super) const UNSOLICITED_ANSWER: &str = "an answer; answer each delivery once";

/// Added after the attempt's name in a text about a stray answer, if the listener has already
/// answered this attempt.
pub(crate) const ALREADY_ANSWERED: &str = " (already answered)";

/// Returns a description of output that a program wrote while it had no delivery to answer. The
/// description states what the program should do instead. The description quotes text outside of
/// elements. For an element, it quotes only the name, because the content of a payload does not
/// belong in the log.
pub(super) fn unsolicited_description(output: &[u8]) -> String {
    let output = without_byte_order_mark(output).trim_ascii_start();
    match output.strip_prefix(b"<") {
        // An XML declaration or a comment precedes the element.
        Some([b'?' | b'!', ..]) => UNSOLICITED_ANSWER.to_owned(),
        Some(tag) => {
            let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"/><\0".contains(byte);
            let length = tag.iter().position(is_end).unwrap_or(tag.len());
            let name = excerpt(tag.get(..length).unwrap_or_default());
            if name.rsplit(':').next() == Some("heartbeat") {
                return UNSOLICITED_HEARTBEAT.to_owned();
            }
            format!("`<{name}`; answer each delivery once")
        }
        None => {
            let is_end = |byte: &u8| b"<\0".contains(byte);
            let length = output.iter().position(is_end).unwrap_or(output.len());
            let text = excerpt(output.get(..length).unwrap_or_default().trim_ascii_end());
            format!("`{text}`; write diagnostics to standard error")
        }
    }
}

/// Returns the beginning of `text` as one line for an error message. `text` is outside of any
/// payload. A kit writes text outside of payloads if it cannot send an answer.
fn excerpt(text: &[u8]) -> String {
    let head = text.get(..limits::ANSWER_EXCERPT_BYTES_MAX).unwrap_or(text);
    let line = String::from_utf8_lossy(head);
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    visible(&line)
}

/// The root element of a frame, if it is an `<answer>` or `<missing-memory>` element.
struct AnswerRoot {
    named: NamedAttempt,
    memory: ClaimedMemory,
    /// Range of the bytes between the tags. Otherwise, the reason why there is no end tag, or why
    /// the XML declaration before the element is refused.
    content: Result<Range<usize>, String>,
}

/// Finds the root element of a frame, if it is an `<answer>` or `<missing-memory>` element that
/// names an attempt. Returns `None` for any other frame, which counts as a sequence of payloads.
fn root(frame: &[u8]) -> Option<AnswerRoot> {
    // The beginning of most other frames is enough to tell them apart.
    if !may_name_attempt(frame) {
        return None;
    }
    let text = std::str::from_utf8(frame).ok()?;
    let head = Element::head(text)?;
    let (named, memory) = named_attempt(&head)?;
    let start = head.origin.tag.start;
    let begin = head.origin.end;
    let tag = text.get(head.origin.tag)?;
    let end = if tag.ends_with("/>") {
        text.get(begin..)?.trim_ascii().is_empty().then_some(begin)
    } else {
        let name = tag.trim_matches(['<', '>']).split_ascii_whitespace().next()?;
        end_of_content(text, name).filter(|end| *end >= begin)
    };

    let unclosed = || "its <answer> does not end where the frame does".to_owned();
    let content = end.map(|end| begin..end).ok_or_else(unclosed);
    // White space between frames is permitted. After it, the same is permitted before the element
    // as before the payloads of an answer without a name.
    let prolog = text.len() - text.trim_ascii_start().len();
    let content = payloads(frame, prolog..start).and(content);
    Some(AnswerRoot { named, memory, content })
}

/// If a start tag is `<answer>` or `<missing-memory>` and names an attempt, returns this attempt,
/// and what the tag states about the memory of the listener. Otherwise, returns `None`.
fn named_attempt(head: &Element) -> Option<(NamedAttempt, ClaimedMemory)> {
    if head.name.namespace() != envelope::NAMESPACE {
        return None;
    }

    let value = |name: &str| head.attribute(name).map(str::to_owned);
    let memory = match head.local_name() {
        "missing-memory" => ClaimedMemory::Missing,
        "answer" if head.attribute("remembers") == Some("true") => ClaimedMemory::Kept,
        "answer" => ClaimedMemory::Nothing,
        _ => return None,
    };

    let named = NamedAttempt { call: value("call")?, attempt: value("attempt")? };
    Some((named, memory))
}

/// Returns the offset of the end tag of the element `name`. Returns `None` if the text does not end
/// with this tag.
fn end_of_content(text: &str, name: &str) -> Option<usize> {
    let rest = text.trim_end().strip_suffix('>')?.trim_end();
    Some(rest.strip_suffix(name)?.strip_suffix("</")?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NS: &str = "https://xml-pipeline.org/ns/envelope/v1";

    fn texts(payloads: Result<Vec<Vec<u8>>, String>) -> Result<Vec<String>, String> {
        payloads.map(|all| all.into_iter().map(|p| String::from_utf8(p).unwrap()).collect())
    }

    #[track_caller]
    fn named(frame: &str, payloads: &[&str]) {
        let answer = read(frame.as_bytes());
        let name = NamedAttempt { call: "a-b".to_owned(), attempt: "1.2".to_owned() };
        assert_eq!(answer.named, Some(name), "{frame}");
        let expected = payloads.iter().map(|payload| (*payload).to_owned()).collect();
        assert_eq!(texts(answer.payloads), Ok(expected), "{frame}");
    }

    #[test]
    fn an_answer_names_its_call_under_any_prefix() {
        let one = "<q xmlns=\"urn:x\">1</q>";
        let name = "call=\"a-b\" attempt='1.2'";
        named(&format!("<answer xmlns=\"{NS}\" {name}>{one}</answer>"), &[one]);
        named(&format!("<e:answer {name} xmlns:e='{NS}'>{one} {one}</e:answer >\n"), &[one, one]);
        named(&format!("<?xml version=\"1.0\"?>\n<answer xmlns=\"{NS}\" {name}/>"), &[]);
        named(&format!("\u{feff}<e:answer xmlns:e=\"{NS}\" {name}>{one}</e:answer>"), &[one]);
        named(&format!("<answer xmlns=\"{NS}\" {name}></answer>"), &[]);
        // A program that ends each frame with a line break after the NUL.
        named(&format!("\n<?xml version=\"1.0\"?><answer xmlns=\"{NS}\" {name}/>"), &[]);
        let comment = "x".repeat(2 * HEAD_BYTES);
        named(&format!("<!-- {comment} --><answer xmlns=\"{NS}\" {name}>{one}</answer>"), &[one]);
        let nested = format!("<answer xmlns=\"{NS}\" call=\"c\" attempt=\"d\"/>");
        named(&format!("<answer xmlns=\"{NS}\" {name}>{nested}</answer>"), &[&nested]);
    }

    #[test]
    fn a_declaration_is_refused_before_a_named_answer_as_before_an_unnamed_one() {
        let refused = |frame: String| {
            let answer = read(frame.as_bytes());
            (answer.named.is_some(), answer.payloads.unwrap_err())
        };
        let one = "<q xmlns=\"urn:x\">1</q>";
        let named = format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\">{one}</answer>");
        for (declaration, reason) in [
            ("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>", "declared encoding ISO-8859-1"),
            ("\u{feff}<?xml version='1.0' encoding='UTF-16'?>", "declared encoding UTF-16"),
            ("<?xml version=\"1.1\"?>", "XML version 1.1"),
            ("<!-- c --><?xml version=\"1.0\"?>", "markup outside of any payload"),
        ] {
            let (is_named, of_named) = refused(format!("{declaration}{named}"));
            assert!(is_named, "{declaration}");
            assert!(of_named.contains(reason), "{declaration}: {of_named}");
            let (is_named, of_unnamed) = refused(format!("{declaration}{one}"));
            assert!(!is_named, "{declaration}");
            assert_eq!(of_named, of_unnamed, "{declaration}");
        }
    }

    #[test]
    fn the_beginning_of_an_answer_shows_whether_the_answer_can_name_its_call() {
        let named = format!("\u{feff}\n<?xml version=\"1.0\"?><e:answer xmlns:e=\"{NS}\"");
        let whole = format!("{named} call=\"a-b\" attempt=\"1.2\">");
        for end in 0..=whole.len() {
            let beginning = whole.as_bytes().get(..end).unwrap();
            assert!(may_name_attempt(beginning), "{end} bytes of {whole}");
        }
        let missing = format!("<missing-memory xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/>");
        assert!(may_name_attempt(missing.as_bytes()));

        for unnamed in
            ["ready\n", "<done ", "<done>", "<answer>", "<answers ", "<heartbeat/>", "\0"]
        {
            assert!(!may_name_attempt(unnamed.as_bytes()), "{unnamed}");
        }
        assert!(!may_name_attempt(b"<answer \xff"));
        assert!(!may_name_attempt(format!("{named} call=\"a-b\">").as_bytes()));
    }

    #[test]
    fn an_answer_says_what_its_listener_remembers() {
        let name = "call=\"a-b\" attempt=\"1.2\"";
        let cases = [
            (format!("<answer xmlns=\"{NS}\" {name}/>"), ClaimedMemory::Nothing),
            (
                format!("<answer xmlns=\"{NS}\" {name} remembers=\"false\"/>"),
                ClaimedMemory::Nothing,
            ),
            (format!("<answer xmlns=\"{NS}\" {name} remembers=\"true\"/>"), ClaimedMemory::Kept),
            (format!("<missing-memory xmlns=\"{NS}\" {name}/>"), ClaimedMemory::Missing),
        ];
        for (frame, memory) in cases {
            assert_eq!(read(frame.as_bytes()).memory, memory, "{frame}");
            named(&frame, &[]);
        }
    }

    #[test]
    fn the_names_in_an_answer_are_shown_on_one_line() {
        let frame =
            format!("<answer xmlns=\"{NS}\" call=\"a&#10;WARN &#x202e;b\" attempt=\"1&#9;2\"/>");
        let named = read(frame.as_bytes()).named.unwrap();
        assert_eq!(named.to_string(), "attempt 1\\u{9}2 at call a\\u{a}WARN \\u{202e}b");
    }

    #[test]
    fn output_without_a_delivery_is_described_without_the_content_of_payloads() {
        for (output, expected) in [
            ("listening...\n<e:answer", "`listening...`; write diagnostics to standard error"),
            ("two\nlines\0", "`two lines`; write diagnostics to standard error"),
            ("<e:heartbeat ", UNSOLICITED_HEARTBEAT),
            ("<?xml version=\"1.0\"?><greeting", UNSOLICITED_ANSWER),
            ("over\u{202e}ride", "`over\\u{202e}ride`; write diagnostics to standard error"),
            (" <greeting xmlns=\"urn:private\">private", "`<greeting`; answer each delivery once"),
        ] {
            assert_eq!(unsolicited_description(output.as_bytes()), expected);
        }
        let long = unsolicited_description(&[b'x'; 10_000]);
        assert!(long.len() < limits::ANSWER_EXCERPT_BYTES_MAX + 100, "{long}");
    }

    #[test]
    fn any_other_root_is_a_payload() {
        for frame in [
            "<answer/>".to_owned(),
            "<answer xmlns=\"urn:mine\" call=\"a-b\" attempt=\"1.2\"/>".to_owned(),
            format!("<answer xmlns=\"{NS}\" call=\"a-b\"/>"),
            format!("<missing-memory xmlns=\"{NS}\"/>"),
            "<missing-memory call=\"a-b\" attempt=\"1.2\"/>".to_owned(),
            format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\" call=\"c\"/>"),
            format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\" p:q=\"c\"/>"),
            format!("<e:answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/>"),
            format!("<answers xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/>"),
            format!("<q><answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/></q>"),
        ] {
            let answer = read(frame.as_bytes());
            assert_eq!(answer.named, None, "{frame}");
            assert_eq!(texts(answer.payloads), Ok(vec![frame.clone()]), "{frame}");
        }
    }

    #[test]
    fn a_text_outside_of_any_payload_is_quoted() {
        let open = format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\">");
        let reason = |text: &str| {
            let answer = read(format!("{open}{text}</answer>").as_bytes());
            answer.payloads.unwrap_err()
        };
        let short = reason("no\nanswer");
        assert!(short.ends_with("of the answer: `no answer`"), "{short}");
        let long = reason(&"x".repeat(10_000));
        assert!(long.len() < limits::ANSWER_EXCERPT_BYTES_MAX + 100, "{long}");
        let before = reason("debug <q>private</q>");
        assert!(before.ends_with("of the answer: `debug`"), "{before}");
        let between = reason("<q>private</q>debug <q>private</q>");
        assert!(between.ends_with("of the answer: `debug`"), "{between}");
        let unclosed = reason("<q>private");
        assert!(!unclosed.contains("private"), "{unclosed}");
    }

    #[test]
    fn an_answer_that_is_not_one_element_cannot_be_read() {
        let open = format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\">");
        for frame in [
            open.clone(),
            format!("{open}<q/>"),
            format!("{open}<q/></answer><q/>"),
            format!("{open}<q/></answer>{open}<q/></answer>"),
            format!("{open}<q></answer>"),
            format!("{open}text</answer>"),
            format!("{open}<q/></other>"),
            format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/><q/></answer>"),
            format!("<answer xmlns=\"{NS}\" call=\"a-b\" attempt=\"1.2\"/><q/>"),
        ] {
            let answer = read(frame.as_bytes());
            assert!(answer.named.is_some(), "{frame}");
            assert!(answer.payloads.is_err(), "{frame}");
        }
    }
}
