//! Header names of the protocol (docs/PROTOCOL.md, section 12), and the variable that makes a
//! program use it.

/// Environment variable with the server's address. If it is set, the kits serve NATS. Child
/// processes never get it.
pub const URL_VARIABLE: &str = "ORGANISM_BUS_URL";

/// Header of a delivery with the id of its call. The headers of attempt, thread and message
/// metadata follow.
pub const CALL: &str = "Organism-Call";
pub const ATTEMPT: &str = "Organism-Attempt";
pub const THREAD: &str = "Organism-Thread";
pub const FROM: &str = "Organism-From";
pub const MESSAGE: &str = "Organism-Message";
pub const SEQ: &str = "Organism-Seq";
pub const TIME: &str = "Organism-Time";
/// Time-out of the attempt in seconds.
pub const TIMEOUT: &str = "Organism-Timeout";
/// Trace context of the delivery, if it has one, in W3C form.
pub const TRACE: &str = "traceparent";
/// Number of messages in the body. Only if the body is a `<delivery>` frame.
pub const MESSAGES: &str = "Organism-Messages";

/// Last journal position that an agent may read for this delivery. The next header has the digest
/// of the config that renders its prompt.
pub const POSITION: &str = "Organism-Position";
pub const CONFIG: &str = "Organism-Config";

/// Kind of a request from an agent host. The next headers have the offset of a part and the whole
/// size, in bytes.
pub const ASK: &str = "Organism-Ask";
pub const OFFSET: &str = "Organism-Offset";
pub const SIZE: &str = "Organism-Size";

/// Marks a keep-alive: the handler is running. The next header has the seconds for which the
/// replica counts as alive.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
pub const LEASE: &str = "Organism-Lease";
/// State of an agent's model call, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";

/// Subject on which the answering replica takes the next delivery of the call, because it remembers
/// the messages.
pub const REMEMBERS: &str = "Organism-Remembers";

/// Error of a NATS service.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
