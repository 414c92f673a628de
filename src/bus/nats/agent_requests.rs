//! Codec of the requests that an agent host sends to the pump during a delivery, and of the pump's
//! responses. Each request and each response is one message. The host and the pump both use this
//! codec.

use serde::{Deserialize, Serialize};

use crate::bus::Outcome;
use crate::envelope::{AttemptFailure, Money, Reservation, RouteLimit, Spending, Turn};
use crate::ids::{Digest, Position};
use crate::limits;
use crate::nats::{HeaderMap, Message};
use crate::shorten::truncate_chars;

use super::header_names;

/// Version of the agent protocol, which pumps and agent hosts speak. Increase the version with each
/// change after which an older and a newer program could misread each other's messages. Such a
/// change makes a rolling upgrade impossible.
///
/// The test `tests/it/fixtures/wire_versions.rs` fails if the version stays the same, but one of
/// these changes: the definitions of the JSON in the messages, the names of headers, or the
/// constants of this file. The test does not notice other changes, such as which headers a message
/// has.
pub const AGENT_PROTOCOL_VERSION: u32 = 1;

/// Version of a message that names no version.
const UNNAMED_VERSION: u32 = 1;

/// Returns the version of the agent protocol that the sender of a message speaks. Returns 0 if the
/// header with the version contains no number.
pub(super) fn version_of(headers: &HeaderMap) -> u32 {
    let stated = headers.get(header_names::AGENT_PROTOCOL);
    stated.map_or(UNNAMED_VERSION, |stated| stated.as_str().parse().unwrap_or_default())
}

/// Returns the refusal for a pump and an agent host that speak different versions of the agent
/// protocol.
pub(super) fn version_difference(host: u32, pump: u32) -> String {
    format!(
        "the agent host speaks version {host} of the agent protocol, and the pump version {pump}: \
         run `organism host` and `organism run` with the same program"
    )
}

/// A request of an agent host during a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AgentRequest {
    /// Requests the delivery's thread, without the part `known`, which the host already has. The
    /// pump encodes the remaining part, and sends its bytes from `offset` on.
    Thread { known: Option<ThreadMark>, offset: usize },
    /// Requests a reservation for a model call.
    Reserve(Reservation),
    /// Sends a part of an answer: the bytes from `offset` on. The whole answer has `size` bytes.
    Answer { offset: usize, size: usize },
}

/// The part of a thread that an agent host already has: everything up to `position`. `mark` is a
/// digest that the pump sent with this part. Only the pump can interpret the digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadMark {
    pub position: Position,
    pub mark: Digest,
}

const THREAD: &str = "thread";
const RESERVE: &str = "reserve";
const ANSWER: &str = "answer";

/// A reservation for a model call, in its JSON form.
#[derive(Serialize, Deserialize)]
struct WireReservation {
    #[serde(rename = "tokens")]
    tokens: u64,
    #[serde(rename = "money")]
    money: Money,
    #[serde(rename = "counted")]
    counted: bool,
    #[serde(rename = "request", default)]
    request: u32,
    #[serde(rename = "limit", default, skip_serializing_if = "Option::is_none")]
    limit: Option<RouteLimit>,
}

/// Refusal of a request. `code` is a status code as in HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestRefusal {
    pub code: u16,
    pub detail: String,
}

impl RequestRefusal {
    pub const UNREADABLE: u16 = 400;
    /// Status code of a refused reservation: a budget has too little left for the reservation.
    pub const SPENT: u16 = 402;
    /// Status code of a refused reservation: the model call has already sent the maximum number of
    /// requests.
    pub const EXHAUSTED: u16 = 429;
    /// Status code for a part of an answer that does not begin at the end of the previous part.
    pub const OUT_OF_ORDER: u16 = 409;
    /// Status code for a request about an attempt that is unknown or no longer in flight.
    pub const GONE: u16 = 410;
    pub const TOO_LARGE: u16 = 413;
    /// Status code if the pump cannot handle the request now. The agent host may repeat the request
    /// later.
    pub const LATER: u16 = 503;

    pub fn new(code: u16, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub fn gone() -> Self {
        Self::new(Self::GONE, "this attempt is not open")
    }

    pub fn headers(&self) -> HeaderMap {
        let line: String = self.detail.chars().take(limits::LAST_STDERR_LINE_CHARS_MAX).collect();
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut headers = HeaderMap::new();
        headers.insert(header_names::ERROR_CODE, self.code.to_string());
        headers.insert(header_names::ERROR, line);
        headers
    }

    /// Parses a refusal. Returns `None` if the message is no refusal.
    pub fn of(message: &Message) -> Option<Self> {
        let headers = message.headers.as_ref()?;
        let code = headers.get(header_names::ERROR_CODE)?.as_str().parse().unwrap_or(Self::LATER);
        let detail = headers.get(header_names::ERROR).map(|text| text.as_str()).unwrap_or_default();
        Some(Self::new(code, detail))
    }
}

/// Parses a request. Returns `None` if the message is no request.
pub(super) fn read(message: &Message) -> Option<Result<AgentRequest, RequestRefusal>> {
    let headers = message.headers.as_ref()?;
    let what = headers.get(header_names::ASK)?.as_str();
    let number = |name: &'static str| {
        let value = headers.get(name).and_then(|value| value.as_str().parse::<usize>().ok());
        value.ok_or_else(|| {
            RequestRefusal::new(RequestRefusal::UNREADABLE, format!("`{name}` is not a number"))
        })
    };

    let theirs = version_of(headers);
    Some(match what {
        // A host requests the thread first, so a host of another version begins no turn.
        THREAD if theirs != AGENT_PROTOCOL_VERSION => Err(RequestRefusal::new(
            RequestRefusal::UNREADABLE,
            version_difference(theirs, AGENT_PROTOCOL_VERSION),
        )),
        THREAD => number(header_names::OFFSET)
            .and_then(|offset| Ok(AgentRequest::Thread { known: known(headers)?, offset })),
        RESERVE => reservation(&message.payload),
        ANSWER => number(header_names::OFFSET).and_then(|offset| {
            Ok(AgentRequest::Answer { offset, size: number(header_names::SIZE)? })
        }),
        other => Err(RequestRefusal::new(
            RequestRefusal::UNREADABLE,
            format!("unknown request `{other}`"),
        )),
    })
}

/// Reads the [`ThreadMark`] in the headers of a request for a thread. Returns `None` if the agent
/// host has no part of the thread.
fn known(headers: &HeaderMap) -> Result<Option<ThreadMark>, RequestRefusal> {
    if headers.get(header_names::AFTER).is_none() {
        return Ok(None);
    }
    let (position, mark) = position_and_mark(headers).ok_or_else(|| {
        let names = format!("`{}` and `{}`", header_names::AFTER, header_names::THREAD_MARK);
        let detail = format!("{names} are not a position and a mark");
        RequestRefusal::new(RequestRefusal::UNREADABLE, detail)
    })?;
    Ok(Some(ThreadMark { position, mark }))
}

/// Returns the position and the digest of the [`ThreadMark`] in the headers of a request for a
/// thread, or of the response to such a request. Returns `None` if the position or the digest is
/// missing.
pub(super) fn position_and_mark(headers: &HeaderMap) -> Option<(Position, Digest)> {
    let position = headers.get(header_names::AFTER)?.as_str().parse().ok()?;
    let mark = Digest::parse(headers.get(header_names::THREAD_MARK)?.as_str()).ok()?;
    Some((Position(position), mark))
}

fn reservation(body: &[u8]) -> Result<AgentRequest, RequestRefusal> {
    let wire: WireReservation = serde_json::from_slice(body).map_err(|error| {
        RequestRefusal::new(
            RequestRefusal::UNREADABLE,
            format!("the reservation cannot be decoded: {error}"),
        )
    })?;
    let WireReservation { tokens, money, counted, request, limit: route } = wire;
    let spending = Spending { tokens, money };
    if !spending.is_possible() {
        let detail = "the reservation exceeds the maximum tokens or the maximum cost of an attempt";
        return Err(RequestRefusal::new(RequestRefusal::UNREADABLE, detail));
    }

    Ok(AgentRequest::Reserve(Reservation { spending, counted, request, route }))
}

impl AgentRequest {
    pub fn headers(&self) -> HeaderMap {
        let (what, numbers): (_, &[(&'static str, usize)]) = match self {
            Self::Thread { offset, .. } => (THREAD, &[(header_names::OFFSET, *offset)]),
            Self::Reserve(_) => (RESERVE, &[]),
            Self::Answer { offset, size } => {
                (ANSWER, &[(header_names::OFFSET, *offset), (header_names::SIZE, *size)])
            }
        };

        let mut headers = HeaderMap::new();
        headers.insert(header_names::ASK, what);
        if let Self::Thread { .. } = self {
            headers.insert(header_names::AGENT_PROTOCOL, AGENT_PROTOCOL_VERSION.to_string());
        }
        numbers.iter().for_each(|(name, number)| headers.insert(*name, number.to_string()));
        if let Self::Thread { known: Some(known), .. } = self {
            headers.insert(header_names::AFTER, known.position.to_string());
            headers.insert(header_names::THREAD_MARK, known.mark.to_string());
        }
        headers
    }

    /// Returns the body of the request: JSON for a reservation, otherwise nothing. For an
    /// [`AgentRequest::Answer`], the sender does not use this body, but sends a part of the answer
    /// instead.
    pub fn body(&self) -> Vec<u8> {
        let Self::Reserve(reservation) = self else { return Vec::new() };
        let Reservation { spending, counted, request, route: limit } = reservation.clone();
        let Spending { tokens, money } = spending;
        let wire = WireReservation { tokens, money, counted, request, limit };
        serde_json::to_vec(&wire).expect("plain data is JSON")
    }
}

/// An agent's answer to a delivery, in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum WireOutcome {
    #[serde(rename = "outcome")]
    Outcome {
        #[serde(rename = "payloads")]
        payloads: Vec<String>,
        #[serde(rename = "turn")]
        turn: Box<Turn>,
    },
    #[serde(rename = "failure")]
    Failure(AttemptFailure),
}

pub(super) fn write(answer: Result<Outcome, AttemptFailure>) -> Vec<u8> {
    let garbage =
        |detail: &str| WireOutcome::Failure(AttemptFailure::Garbage { detail: detail.to_owned() });
    let written = match answer {
        Ok(Outcome { payloads, turn: Some(turn), .. }) => {
            let texts = payloads.into_iter().map(String::from_utf8).collect();
            match texts {
                Ok(payloads) => WireOutcome::Outcome { payloads, turn: Box::new(turn) },
                Err(_) => garbage("a payload is not UTF-8"),
            }
        }
        Ok(Outcome { turn: None, .. }) => garbage("an answer without its turn"),
        Err(failure) => WireOutcome::Failure(failure),
    };

    serde_json::to_vec(&written).expect("plain data is JSON")
}

/// Decodes an answer. Returns a failure of the attempt if the JSON is invalid.
pub(super) fn answer(bytes: &[u8]) -> Result<Outcome, AttemptFailure> {
    let unusable = |why: &str| {
        Err(AttemptFailure::Garbage {
            detail: format!("the answer of the agent cannot be decoded: {why}"),
        })
    };

    match serde_json::from_slice(bytes) {
        Ok(WireOutcome::Outcome { turn, .. }) if !is_bounded(&turn) => {
            unusable("the findings of the turn exceed the limit of a turn")
        }
        // Without the note, neither the turn's text nor its cost would be recorded.
        Ok(WireOutcome::Outcome { turn, .. }) if turn.note.is_empty() => {
            unusable("its turn has no note")
        }
        Ok(WireOutcome::Outcome { payloads, turn }) => {
            let payloads = payloads.into_iter().map(String::into_bytes).collect();
            Ok(Outcome { payloads, turn: Some(*turn), ..Outcome::default() })
        }
        Ok(WireOutcome::Failure(failure))
            if failure.spent().is_some_and(|spent| !spent.is_possible()) =>
        {
            unusable("its failure exceeds the maximum tokens or the maximum cost of an attempt")
        }
        Ok(WireOutcome::Failure(failure)) => Err(shortened(failure)),
        Err(error) => unusable(&error.to_string()),
    }
}

/// Whether the strings in a turn are short enough to be recorded completely.
fn is_bounded(turn: &Turn) -> bool {
    let Turn { findings, broken, written, inputs, .. } = turn;
    let found = findings.iter().chain(broken.iter().map(|broken| &broken.finding));
    let lengths = found.map(|finding| {
        let path = finding.place.path.as_ref().map_or(0, String::len);
        finding.code.len() + finding.message.len() + path
    });
    let attempts: usize = broken.iter().map(|broken| broken.attempt.len()).sum();
    let expected = written.iter().filter_map(|one| one.expected.as_ref());
    let expected: usize = expected.map(String::len).sum();
    let inputs = inputs.as_ref().map_or(0, String::len);
    findings.len() + broken.len() <= limits::TURN_FINDINGS_MAX
        && lengths.sum::<usize>() + attempts + expected <= 4 * limits::TURN_BYTES_MAX
        && inputs <= 4 * limits::TURN_BYTES_MAX
        && broken.is_sorted_by_key(|broken| broken.index)
}

/// Shortens the description of a failure to the maximum length in a record.
fn shortened(mut failure: AttemptFailure) -> AttemptFailure {
    let (AttemptFailure::Crashed { detail }
    | AttemptFailure::Unreachable { detail }
    | AttemptFailure::Lost { detail }
    | AttemptFailure::Refused { detail }
    | AttemptFailure::CutShort { detail, .. }
    | AttemptFailure::Model { detail, .. }
    | AttemptFailure::Spent { detail }
    | AttemptFailure::TooLarge { detail }
    | AttemptFailure::Garbage { detail }) = &mut failure;
    truncate_chars(detail, limits::FAILURE_CHARS_MAX);
    failure
}

/// Returns the part of `all` that begins at `offset` and has at most `most` bytes. Returns `None`
/// if `offset` is beyond the end of `all`.
pub(super) fn part(all: &[u8], offset: usize, most: usize) -> Option<&[u8]> {
    let end = offset.saturating_add(most.max(1)).min(all.len());
    all.get(offset..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::BrokenPayload;
    use crate::xml::findings::{Finding, TextLocation};

    fn message(ask: &AgentRequest) -> Message {
        Message {
            subject: "organism.desk.re.researcher.0f".into(),
            reply: None,
            payload: ask.body().into(),
            headers: Some(ask.headers()),
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let mark = ThreadMark { position: Position(9), mark: Digest::of(b"a record") };
        let spending = Spending { tokens: 70_000, money: Money(12) };
        let route = Some(RouteLimit { route: "openai/m-1".to_owned(), most: 3 });
        for ask in [
            AgentRequest::Thread { known: None, offset: 524_288 },
            AgentRequest::Thread { known: Some(mark), offset: 0 },
            AgentRequest::Reserve(Reservation { spending, counted: true, request: 0, route: None }),
            AgentRequest::Reserve(Reservation { spending, counted: false, request: 2, route }),
            AgentRequest::Answer { offset: 0, size: 1 },
        ] {
            assert_eq!(read(&message(&ask)), Some(Ok(ask)));
        }

        for (tokens, money) in [(u64::MAX, 12), (70_000, u64::MAX)] {
            let spending = Spending { tokens, money: Money(money) };
            let reservation = Reservation { spending, counted: true, request: 1, route: None };
            let refused = read(&message(&AgentRequest::Reserve(reservation)));
            assert_eq!(refused.unwrap().unwrap_err().code, RequestRefusal::UNREADABLE);
        }

        let mut odd = message(&AgentRequest::Thread { known: Some(mark), offset: 0 });
        odd.headers.as_mut().unwrap().insert(header_names::OFFSET, "-1");
        assert_eq!(read(&odd).unwrap().unwrap_err().code, RequestRefusal::UNREADABLE);
        odd.headers.as_mut().unwrap().insert(header_names::OFFSET, "0");
        odd.headers.as_mut().unwrap().insert(header_names::AFTER, "x");
        assert_eq!(read(&odd).unwrap().unwrap_err().code, RequestRefusal::UNREADABLE);
        odd.headers.as_mut().unwrap().insert(header_names::ASK, "everything");
        assert_eq!(read(&odd).unwrap().unwrap_err().code, RequestRefusal::UNREADABLE);
        odd.headers = None;
        assert_eq!(read(&odd), None);
    }

    #[test]
    fn a_request_for_a_thread_by_a_host_of_another_version_is_refused_with_both_versions() {
        let request = AgentRequest::Thread { known: None, offset: 0 };
        for (stated, theirs) in [("9", 9), ("x", 0)] {
            let mut asked = message(&request);
            let headers = asked.headers.as_mut().unwrap();
            headers.insert(header_names::AGENT_PROTOCOL, stated);
            let refused = read(&asked).unwrap().unwrap_err();
            assert_eq!(refused.code, RequestRefusal::UNREADABLE);
            let detail = version_difference(theirs, AGENT_PROTOCOL_VERSION);
            assert_eq!(refused.detail, detail);
            assert!(detail.contains(&format!("speaks version {theirs} of the agent protocol")));
        }

        let mut headers = HeaderMap::new();
        headers.insert(header_names::ASK, THREAD);
        headers.insert(header_names::OFFSET, "0");
        let unnamed = Message { headers: Some(headers), ..message(&request) };
        assert_eq!(read(&unnamed), Some(Ok(request)));
    }

    #[test]
    fn an_answer_comes_through_whole_or_is_one_that_cannot_be_used() {
        let turn = Turn { note: "<n>\"\u{e9}\n</n>".to_owned(), tokens_in: 7, ..Turn::default() };
        let outcome =
            Outcome { payloads: vec![b"<a/>".to_vec()], turn: Some(turn), ..Outcome::default() };
        assert_eq!(answer(&write(Ok(outcome.clone()))), Ok(outcome));
        let spent = Spending { tokens: 3, money: Money(9) };
        let failure =
            AttemptFailure::CutShort { detail: "stalled".to_owned(), spent, retried: true };
        assert_eq!(answer(&write(Err(failure.clone()))), Err(failure));

        for (tokens, money) in [(u64::MAX, 9), (3, u64::MAX)] {
            let spent = Spending { tokens, money: Money(money) };
            let detail = "stalled".to_owned();
            let failure = AttemptFailure::CutShort { detail, spent, retried: true };
            let unusable = answer(&write(Err(failure)));
            assert!(matches!(unusable, Err(AttemptFailure::Garbage { .. })), "{unusable:?}");
        }

        let detail = "\u{e9}".repeat(limits::FAILURE_CHARS_MAX + 1);
        let Err(AttemptFailure::Crashed { detail }) =
            answer(&write(Err(AttemptFailure::Crashed { detail })))
        else {
            panic!("it is another failure")
        };

        assert_eq!(detail.chars().count(), limits::FAILURE_CHARS_MAX);
        for unusable in [&b"<a/>"[..], b"{}", b"{\"outcome\":{\"payloads\":[]}}"] {
            assert!(
                matches!(answer(unusable), Err(AttemptFailure::Garbage { .. })),
                "{unusable:?}"
            );
        }
    }

    #[test]
    fn a_turn_without_a_note_is_none() {
        let of = |note: &str| Outcome {
            turn: Some(Turn { note: note.to_owned(), ..Turn::default() }),
            ..Outcome::default()
        };

        assert!(answer(&write(Ok(of("<n/>")))).is_ok());
        let unusable = answer(&write(Ok(of(""))));
        assert!(matches!(unusable, Err(AttemptFailure::Garbage { .. })), "{unusable:?}");
    }

    #[test]
    fn a_turn_with_more_wrong_than_it_can_hold_is_none() {
        let broken = |index, attempt: &str| BrokenPayload {
            index,
            attempt: attempt.to_owned(),
            finding: Finding::new("unclosed", TextLocation::default(), "not closed"),
        };

        let large = "x".repeat(4 * limits::TURN_BYTES_MAX);
        for (broken, good) in [
            (vec![broken(0, "<a"), broken(0, "<b"), broken(2, "<c")], true),
            (vec![broken(2, "<a"), broken(0, "<b")], false),
            (vec![broken(0, &large)], false),
            (vec![broken(0, ""); limits::TURN_FINDINGS_MAX + 1], false),
        ] {
            let turn = Turn { note: "<n/>".to_owned(), broken, ..Turn::default() };
            let written = write(Ok(Outcome { turn: Some(turn), ..Outcome::default() }));
            assert_eq!(answer(&written).is_ok(), good);
        }
    }

    #[test]
    fn parts_are_everything_once() {
        let all: Vec<u8> = (0..=255).collect();
        let mut put = Vec::new();
        while put.len() < all.len() {
            put.extend_from_slice(part(&all, put.len(), 100).unwrap());
        }

        assert_eq!(put, all);
        assert_eq!(part(&all, 257, 100), None);
    }
}
