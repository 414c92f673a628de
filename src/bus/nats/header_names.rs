//! The headers of the protocol (docs/PROTOCOL.md, section 12), and the variable that makes a
//! program speak it.

/// Where it is set, the kits serve NATS; a child process never has it.
pub const URL_VARIABLE: &str = "ORGANISM_BUS_URL";

/// Headers of a delivery: call, attempt, thread, and metadata of the message in the body.
pub const CALL: &str = "Organism-Call";
pub const ATTEMPT: &str = "Organism-Attempt";
pub const THREAD: &str = "Organism-Thread";
pub const FROM: &str = "Organism-From";
pub const MESSAGE: &str = "Organism-Message";
pub const SEQ: &str = "Organism-Seq";
pub const TIME: &str = "Organism-Time";
/// In seconds.
pub const TIMEOUT: &str = "Organism-Timeout";
/// Trace context of the delivery, if it has one, in W3C form.
pub const TRACE: &str = "traceparent";
/// How many messages the body holds; there only where it is a `<delivery>` frame.
pub const MESSAGES: &str = "Organism-Messages";

/// Headers of an agent delivery: last journal position it may read, and digest of the config that
/// renders its prompt.
pub const POSITION: &str = "Organism-Position";
pub const CONFIG: &str = "Organism-Config";

/// Headers of a request from an agent host: its kind, the offset of a part in bytes, and the whole
/// size in bytes.
pub const ASK: &str = "Organism-Ask";
pub const OFFSET: &str = "Organism-Offset";
pub const SIZE: &str = "Organism-Size";

/// Headers of a keep-alive: the handler is at work, and how many seconds the replica counts as
/// alive.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
pub const LEASE: &str = "Organism-Lease";
/// State of an agent's model call, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";

/// The subject at which the replica that answers, and remembers the messages of the call, takes the
/// next delivery of the call.
pub const REMEMBERS: &str = "Organism-Remembers";

/// As NATS services say that they failed.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
