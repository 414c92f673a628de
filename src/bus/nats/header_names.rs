//! The headers of the protocol (docs/PROTOCOL.md, section 12), and the variable that makes a
//! program speak it.

/// Where it is set, the kits serve NATS; a child process never has it.
pub const URL_VARIABLE: &str = "ORGANISM_BUS_URL";

/// Of a delivery: which call and attempt, where, and what it holds.
pub const CALL: &str = "Organism-Call";
pub const ATTEMPT: &str = "Organism-Attempt";
pub const THREAD: &str = "Organism-Thread";
pub const FROM: &str = "Organism-From";
pub const MESSAGE: &str = "Organism-Message";
pub const SEQ: &str = "Organism-Seq";
pub const TIME: &str = "Organism-Time";
/// In seconds.
pub const TIMEOUT: &str = "Organism-Timeout";
/// What it is in a trace, where it belongs to one: as W3C has it.
pub const TRACE: &str = "traceparent";
/// How many messages the body holds; there only where it is a `<delivery>` frame.
pub const MESSAGES: &str = "Organism-Messages";

/// Of a delivery to an agent: the thread up to here is its memory, and the config whose prompt it
/// is to be sent.
pub const POSITION: &str = "Organism-Position";
pub const CONFIG: &str = "Organism-Config";

/// What the host of an agent asks the pump for, and which part of it: bytes from here on, of so
/// many.
pub const ASK: &str = "Organism-Ask";
pub const OFFSET: &str = "Organism-Offset";
pub const SIZE: &str = "Organism-Size";

/// What a listener says beside its answer: that it works, and for how many seconds it is to be
/// taken for alive.
pub const HEARTBEAT: &str = "Organism-Heartbeat";
pub const LEASE: &str = "Organism-Lease";
/// What the model call of an agent waits for, as JSON.
pub const MODEL_STATE: &str = "Organism-Model-State";

/// The subject at which the replica that answers, and remembers the messages of the call, takes the
/// next delivery of the call.
pub const REMEMBERS: &str = "Organism-Remembers";

/// As NATS services say that they failed.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
