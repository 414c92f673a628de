//! Names of the protocol's headers (docs/PROTOCOL.md, section 12), and of the environment variable
//! that makes a program serve listeners on NATS.

use crate::nats::{HeaderMap, HeaderValue};

/// Environment variable with the addresses of the NATS servers. If the variable is set, a
/// listener's program gets its deliveries over NATS.
pub const URL_VARIABLE: &str = "ORGANISM_BUS_URL";

/// Header of a delivery: id of the call.
pub const CALL: &str = "Organism-Call";
/// Header of a delivery: number of the attempt.
pub const ATTEMPT: &str = "Organism-Attempt";
/// Header of a delivery: thread of the call.
pub const THREAD: &str = "Organism-Thread";
/// Header: sender of the message in the body.
pub const FROM: &str = "Organism-From";
/// Header: id of the message in the body.
pub const MESSAGE: &str = "Organism-Message";
/// Header: `seq` of the message in the body.
pub const SEQ: &str = "Organism-Seq";
/// Header: time of the message in the body.
pub const TIME: &str = "Organism-Time";
/// Header of a delivery: time-out of the attempt in seconds.
pub const TIMEOUT: &str = "Organism-Timeout";
/// Header of a delivery: trace context in W3C form, if the delivery has one.
pub const TRACE: &str = "traceparent";
/// Header of a delivery: SHA-256 of the preview that a person approved with the call.
pub const APPROVED_PREVIEW: &str = "Organism-Approved-Preview";
/// Header of a delivery: number of messages in the body, if the body is a `<delivery>` frame.
pub const MESSAGES: &str = "Organism-Messages";

/// Header of a delivery to an agent: last journal position that the agent may read.
pub const POSITION: &str = "Organism-Position";
/// Header of a delivery to an agent: digest of the config from which the agent's prompt is
/// rendered.
pub const CONFIG: &str = "Organism-Config";

/// Header of a delivery to an agent, and of an agent host's request for a thread: version of the
/// agent protocol that the sender speaks.
pub const AGENT_PROTOCOL: &str = "Organism-Agent-Protocol";

/// Header of a request from an agent host: kind of the request.
pub const ASK: &str = "Organism-Ask";
/// Header with the offset in bytes at which a part of a thread or of an answer begins.
pub const OFFSET: &str = "Organism-Offset";
/// Header with a journal position. In a request, it is the position up to which the agent host
/// already has the thread. In the response, it is the position after which the sent part begins.
pub const AFTER: &str = "Organism-After";
/// Header of the response to a request for a thread: digest of the thread up to the end of the sent
/// part. In its next request for the thread, the agent host sends this digest back, together with
/// [`AFTER`].
pub const THREAD_MARK: &str = "Organism-Thread-Mark";
/// Header with the size in bytes of a whole thread or answer that is sent in parts.
pub const SIZE: &str = "Organism-Size";

/// Header of a keep-alive: states that the handler is running.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
/// Header: number of seconds for which the replica counts as alive.
pub const LEASE: &str = "Organism-Lease";
/// Header: state of an agent's model call, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";
/// Header of a message with the state of a model call. If this header is present, the agent host
/// also sends the text of models to the pumps that request the text.
pub const STREAMS: &str = "Organism-Streams";
/// Header of a message with a piece of the text that a model writes. The value is the part of the
/// answer to which the piece belongs: `answer` or `reasoning`.
pub const MODEL_TEXT: &str = "Organism-Model-Text";
/// Header of a message with a piece of a model's text: number of live events that were lost before
/// this piece.
pub const LOST: &str = "Organism-Lost";
/// Header of a request for the text that models write: the token that the requesting pump uses in
/// its reply subjects.
pub const LIVE: &str = "Organism-Live";

/// Header of an answer: NATS subject for the next delivery of the call. The replica that answered
/// listens on this subject, and remembers the messages of the call.
pub const REMEMBERS: &str = "Organism-Remembers";

/// Header of an error response: description of the error. The name of the header comes from the
/// protocol of NATS services.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";

/// Returns the value of the header with this name. Ignores case, as HTTP does, because clients of
/// NATS differ in the case in which they send a name. NATS itself distinguishes case, so a message
/// may have the same name in several cases. The exact name has precedence.
pub fn value<'m>(headers: &'m HeaderMap, name: &'static str) -> Option<&'m str> {
    let without_case = || {
        let mut all = headers.iter();
        let (_, values) = all.find(|(sent, _)| {
            let sent: &str = sent.as_ref();
            sent.eq_ignore_ascii_case(name)
        })?;
        values.first()
    };
    headers.get(name).or_else(without_case).map(HeaderValue::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_name_of_a_header_has_precedence() {
        let mut headers = HeaderMap::new();
        let others = ["organism-lease", "ORGANISM-LEASE", "Organism-lease", "organism-Lease"];
        others.into_iter().for_each(|name| headers.insert(name, "9"));
        assert_eq!(value(&headers, LEASE), Some("9"));
        headers.insert(LEASE, "5");
        assert_eq!(value(&headers, LEASE), Some("5"));
        assert_eq!(value(&headers, HEARTBEAT), None);
    }
}
