//! Names of the protocol's headers (docs/PROTOCOL.md, section 12), and of the environment variable
//! that makes a program serve listeners on NATS.

/// Environment variable with the address of a NATS server. If the variable is set, the kits serve
/// listeners on NATS. Child processes never inherit the variable.
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

/// Header of an agent delivery: last journal position that the agent may read.
pub const POSITION: &str = "Organism-Position";
/// Header of an agent delivery: digest of the config that renders the agent's prompt.
pub const CONFIG: &str = "Organism-Config";

/// Header of a request from an agent host: kind of the request.
pub const ASK: &str = "Organism-Ask";
/// Header: offset in bytes at which the part in the body begins in the whole text.
pub const OFFSET: &str = "Organism-Offset";
/// Header of a request for a thread: journal position up to which the host has the thread. Header
/// of the response: position after which the transferred part begins.
pub const AFTER: &str = "Organism-After";
/// Header of the response to a request for a thread: digest that identifies the transferred part of
/// the thread. The host sends the digest, together with [`AFTER`], in its next request for the
/// thread.
pub const THREAD_MARK: &str = "Organism-Thread-Mark";
/// Header: size in bytes of a whole text that is sent in parts.
pub const SIZE: &str = "Organism-Size";

/// Header of a keep-alive: states that the handler is running.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
/// Header: number of seconds for which the replica counts as alive.
pub const LEASE: &str = "Organism-Lease";
/// Header: state of an agent's model call, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";
/// Header of a model state: states that the host sends texts to a pump that requests them.
pub const STREAMS: &str = "Organism-Streams";
/// Header of a text that a model has written: part of the answer, `answer` or `reasoning`.
pub const MODEL_TEXT: &str = "Organism-Model-Text";
/// Header of a text: number of lost texts before this text.
pub const LOST: &str = "Organism-Lost";
/// Header of a request for texts: the token that identifies the requesting pump in its reply
/// subjects.
pub const LIVE: &str = "Organism-Live";

/// Header of an answer: subject for the next delivery of the call. The replica that answered
/// listens on this subject, because it remembers the messages of the call.
pub const REMEMBERS: &str = "Organism-Remembers";

/// Header: error of a NATS service.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
