//! Header names of the protocol (docs/PROTOCOL.md, section 12), and the variable that makes a
//! program use it.

/// Environment variable with the server's address. If it is set, the kits serve NATS. Child
/// processes never get it.
pub const URL_VARIABLE: &str = "ORGANISM_BUS_URL";

/// Id of the call, in a delivery.
pub const CALL: &str = "Organism-Call";
/// Number of the attempt, in a delivery.
pub const ATTEMPT: &str = "Organism-Attempt";
/// Thread of the call, in a delivery.
pub const THREAD: &str = "Organism-Thread";
/// Sender of the message in the body.
pub const FROM: &str = "Organism-From";
/// Id of the message in the body.
pub const MESSAGE: &str = "Organism-Message";
/// Place of the message in its thread.
pub const SEQ: &str = "Organism-Seq";
/// Time of the message in the body.
pub const TIME: &str = "Organism-Time";
/// Time-out of the attempt in seconds.
pub const TIMEOUT: &str = "Organism-Timeout";
/// Trace context of the delivery, if it has one, in W3C form.
pub const TRACE: &str = "traceparent";
/// Number of messages in the body. Only if the body is a `<delivery>` frame.
pub const MESSAGES: &str = "Organism-Messages";

/// Last journal position that an agent may read for this delivery.
pub const POSITION: &str = "Organism-Position";
/// Digest of the config that renders the agent's prompt.
pub const CONFIG: &str = "Organism-Config";

/// Kind of a request from an agent host.
pub const ASK: &str = "Organism-Ask";
/// Offset of a part, in bytes.
pub const OFFSET: &str = "Organism-Offset";
/// Size of the whole of which a part is sent, in bytes.
pub const SIZE: &str = "Organism-Size";

/// Marks a keep-alive: the handler is running.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
/// Seconds for which the replica counts as alive.
pub const LEASE: &str = "Organism-Lease";
/// State of an agent's model call, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";

/// Subject on which the answering replica takes the next delivery of the call, because it remembers
/// the messages.
pub const REMEMBERS: &str = "Organism-Remembers";

/// Error of a NATS service.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
