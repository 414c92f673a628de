//! Decodes one NATS message of a listener.

use std::time::Duration;

use crate::bus::answer::{self, ClaimedMemory, ListenerAnswer, NamedAttempt};
use crate::bus::{ModelState, Outcome};
use crate::envelope::AttemptFailure;
use crate::limits;
use crate::nats::{HeaderMap, Message, StatusCode};

use super::header_names;

#[derive(Debug, PartialEq)]
pub(super) enum ListenerResponse {
    /// The server reports that the subject has no subscriber.
    NoResponders,
    Heartbeat,
    /// New state of an agent's model call.
    ModelState(ModelState),
    /// The replica that handles the attempt is alive, and counts as alive for this duration.
    Lease(Duration),
    Answer(Result<Outcome, AttemptFailure>),
    /// An `<answer>` element: the attempt that the answer names, and the content of the answer.
    Named(NamedAttempt, Result<Outcome, AttemptFailure>),
    /// The replica lacks messages that it should remember from earlier deliveries.
    MissingMemory(NamedAttempt),
    /// The message cannot be decoded. An example is a keep-alive without a valid duration.
    Unreadable,
}

/// Whether the message is the server's notice of a subject without subscribers.
pub(super) fn is_no_responders(message: &Message) -> bool {
    message.status == Some(StatusCode::NO_RESPONDERS)
}

/// Whether the message only states that a handler is alive, or how far its model call is.
pub(super) fn is_sign_of_life(message: &Message) -> bool {
    let names = [header_names::LEASE, header_names::MODEL_STATE, header_names::HEARTBEAT];
    let headers = message.headers.as_ref();
    message.payload.is_empty() && names.into_iter().any(|name| header(headers, name).is_some())
}

pub(super) fn read(message: &Message) -> ListenerResponse {
    if is_no_responders(message) {
        return ListenerResponse::NoResponders;
    }

    let headers = message.headers.as_ref();
    if header(headers, header_names::LEASE).is_some() {
        return match headers.and_then(lease) {
            Some(lease) => ListenerResponse::Lease(lease),
            // A message with an invalid lease must not count as an empty answer, which
            // acknowledges.
            None => ListenerResponse::Unreadable,
        };
    }

    if let Some(state) = header(headers, header_names::MODEL_STATE) {
        return serde_json::from_str(state)
            .map_or(ListenerResponse::Unreadable, ListenerResponse::ModelState);
    }

    if header(headers, header_names::HEARTBEAT).is_some() {
        return ListenerResponse::Heartbeat;
    }

    let code = header(headers, header_names::ERROR_CODE);
    let reason = header(headers, header_names::ERROR);
    if code.is_some() || reason.is_some() {
        let code = code.unwrap_or_default();
        let detail = reason.unwrap_or("no reason was given");
        return ListenerResponse::Answer(Err(failure(code, detail)));
    }

    if message.payload.len() > limits::FRAME_BYTES_MAX {
        let detail = format!("an answer of more than {} bytes", limits::FRAME_BYTES_MAX);
        return ListenerResponse::Answer(Err(AttemptFailure::Garbage { detail }));
    }

    answered(&message.payload)
}

/// Returns the duration for which a replica claims to be alive. Returns `None` if the headers
/// contain no valid duration.
pub(super) fn lease(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = header(Some(headers), header_names::LEASE)?.parse().ok()?;
    if seconds.is_nan() {
        return None;
    }

    let most = limits::TIMEOUT_CEILING.as_secs_f64();
    let lease = Duration::try_from_secs_f64(seconds.min(most)).ok()?;
    Some(lease.max(limits::NATS_LEASE_MIN))
}

fn header<'m>(headers: Option<&'m HeaderMap>, name: &'static str) -> Option<&'m str> {
    header_names::value(headers?, name)
}

/// Maps an error code of a listener to a failure. As in HTTP, a 4xx code is final, and any other
/// code allows a retry, as does a failure without a code. The codes 413 and 422 become [`AttemptFailure::Garbage`]. With these two
/// codes, a kit states that the handler has already acted, but that its answer cannot be sent.
fn failure(code: &str, detail: &str) -> AttemptFailure {
    let detail: String = detail.chars().take(limits::LAST_STDERR_LINE_CHARS_MAX).collect();
    match code.parse::<u16>() {
        Ok(413 | 422) => AttemptFailure::Garbage { detail },
        Ok(400..=499) => AttemptFailure::Refused { detail },
        _ => AttemptFailure::Crashed { detail },
    }
}

fn answered(body: &[u8]) -> ListenerResponse {
    if memchr::memchr(0, body).is_some() {
        let detail = "a NUL in an answer: on NATS, the message ends the answer".to_owned();
        return ListenerResponse::Answer(Err(AttemptFailure::Garbage { detail }));
    }

    let ListenerAnswer { named, memory, payloads } = answer::read(body);
    let outcome = match payloads {
        Ok(payloads) => Ok(Outcome { payloads, turn: None, ..Outcome::default() }),
        Err(detail) => Err(AttemptFailure::Garbage { detail }),
    };

    match named {
        Some(named) if memory == ClaimedMemory::Missing => ListenerResponse::MissingMemory(named),
        Some(named) => ListenerResponse::Named(named, outcome),
        None => ListenerResponse::Answer(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: &[(&'static str, &str)], body: &str) -> Message {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        Message {
            subject: "organism.desk.re.search.0f".into(),
            reply: None,
            payload: body.to_owned().into(),
            headers: Some(map),
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn a_message_says_one_thing() {
        let answer = |payloads: &[&str]| {
            let payloads = payloads.iter().map(|text| text.as_bytes().to_vec()).collect();
            ListenerResponse::Answer(Ok(Outcome { payloads, turn: None, ..Outcome::default() }))
        };

        let crashed = |detail: &str| AttemptFailure::Crashed { detail: detail.to_owned() };
        let refused = AttemptFailure::Refused { detail: "no".to_owned() };
        let unsent = AttemptFailure::Garbage { detail: "too large".to_owned() };
        let with_nul = AttemptFailure::Garbage {
            detail: "a NUL in an answer: on NATS, the message ends the answer".to_owned(),
        };
        let too_large = [(header_names::ERROR_CODE, "413"), (header_names::ERROR, "too large")];
        let cases = [
            (message(&[], ""), answer(&[])),
            (message(&[], " <a/>\n<b>1</b>"), answer(&["<a/>", "<b>1</b>"])),
            (message(&[(header_names::HEARTBEAT, "")], ""), ListenerResponse::Heartbeat),
            (
                message(&[(header_names::LEASE, "1.5")], ""),
                ListenerResponse::Lease(Duration::from_millis(1500)),
            ),
            (message(&[(header_names::LEASE, "5s")], ""), ListenerResponse::Unreadable),
            (message(&[(header_names::LEASE, "-1")], ""), ListenerResponse::Unreadable),
            (message(&[(header_names::LEASE, "nan")], ""), ListenerResponse::Unreadable),
            (
                message(&[(header_names::ERROR_CODE, "404"), (header_names::ERROR, "no")], "<a/>"),
                ListenerResponse::Answer(Err(refused.clone())),
            ),
            (message(&too_large, ""), ListenerResponse::Answer(Err(unsent))),
            (
                message(&[("nats-service-error-CODE", "404"), ("NATS-Service-Error", "no")], ""),
                ListenerResponse::Answer(Err(refused)),
            ),
            (
                message(&[(header_names::ERROR, "no")], ""),
                ListenerResponse::Answer(Err(crashed("no"))),
            ),
            (message(&[("organism-heartbeat", "1")], ""), ListenerResponse::Heartbeat),
            (
                message(&[("organism-lease", "5")], ""),
                ListenerResponse::Lease(Duration::from_secs(5)),
            ),
            (message(&[], "<a/>\0"), ListenerResponse::Answer(Err(with_nul))),
            (
                message(&[(header_names::ERROR_CODE, "odd")], ""),
                ListenerResponse::Answer(Err(crashed("no reason was given"))),
            ),
        ];
        for (message, response) in cases {
            assert_eq!(read(&message), response, "{message:?}");
        }
    }

    #[test]
    fn a_sign_of_life_has_its_header_and_no_body() {
        let names = [header_names::LEASE, header_names::MODEL_STATE, header_names::HEARTBEAT];
        for name in names {
            assert!(is_sign_of_life(&message(&[(name, "1")], "")), "{name}");
            assert!(!is_sign_of_life(&message(&[(name, "1")], "<a/>")), "{name}");
        }
        assert!(!is_sign_of_life(&message(&[], "")));
        assert!(!is_sign_of_life(&message(&[(header_names::ERROR_CODE, "500")], "")));
    }

    #[test]
    fn what_is_not_elements_cannot_be_used() {
        let response = read(&message(&[], "<a>"));
        assert!(
            matches!(response, ListenerResponse::Answer(Err(AttemptFailure::Garbage { .. }))),
            "{response:?}"
        );
    }

    #[test]
    fn no_lease_is_shorter_than_the_clock_is_good_for_or_longer_than_any_call() {
        for (seconds, expected) in
            [("0", limits::NATS_LEASE_MIN), ("1e300", limits::TIMEOUT_CEILING)]
        {
            let headers = message(&[(header_names::LEASE, seconds)], "").headers.unwrap();
            assert_eq!(lease(&headers), Some(expected), "{seconds}");
        }
    }
}
