//! Every bound of the product, with its unit. What may be configured has its default here.

use std::time::Duration;

// Text at the gate.
/// A message with its envelope stays under 1 MiB; the envelope gets 4 KiB of it.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
pub const ENVELOPE_BYTES_MAX: usize = 4 << 10;
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
pub const XML_DEPTH_MAX: usize = 128;
pub const XML_ATTRIBUTES_MAX: usize = 256;
/// Namespace declarations on one element, and in scope at one place.
pub const XML_NAMESPACES_MAX: usize = 64;
pub const XML_NAME_BYTES_MAX: usize = 1 << 10;
pub const XML_ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
pub const XML_ELEMENTS_MAX: usize = 100_000;
/// Findings reported for one text; the rest are counted.
pub const FINDINGS_MAX: usize = 16;
/// How much of a refused text the record keeps.
pub const REFUSAL_HEAD_BYTES: usize = 4 << 10;

// Model text.
pub const TURN_BYTES_MAX: usize = 1 << 20;
pub const LEAF_BYTES_MAX: usize = 512 << 10;
/// Bytes of a turn read in search of close tags that are not there, before the rest is left.
pub const LOOKAHEAD_BYTES_MAX: usize = 16 << 20;
/// Unknown root names remembered of one turn.
pub const UNKNOWN_ROOTS_MAX: usize = 64;

// Schemas.
pub const SCHEMA_BYTES_MAX: usize = 4 << 20;
pub const SCHEMA_DOCUMENTS_MAX: usize = 64;
pub const SCHEMA_COMPILE_TIMEOUT: Duration = Duration::from_secs(2);

// Names and ids.
pub const NAME_BYTES_MAX: usize = 64;
pub const LABEL_CHARS_MAX: usize = 64;
pub const ROOT_CHARS_MIN: usize = 8;
pub const THREAD_ID_BYTES_MAX: usize = 64 + 65 * THREAD_DEPTH_CEILING;
pub const ID_ECHO_CHARS_MAX: usize = 80;
pub const CLIENT_KEY_BYTES_MAX: usize = 256;

// Trees; the config may lower these defaults or raise them to the ceilings.
pub const THREAD_DEPTH_CEILING: usize = 64;
pub const THREAD_DEPTH_DEFAULT: u32 = 16;
pub const CHILDREN_DEFAULT: u32 = 64;
pub const THREADS_DEFAULT: u32 = 1_000;
pub const MESSAGES_DEFAULT: u64 = 10_000;
pub const MODEL_CALLS_DEFAULT: u64 = 1_000;
pub const TOKENS_DEFAULT: u64 = 10_000_000;
pub const WALL_TIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// A warning is recorded when this share of a budget is gone.
pub const BUDGET_WARNING_PERCENT: u64 = 80;

// Listeners.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
pub const ATTEMPTS_DEFAULT: u32 = 3;
pub const CONCURRENCY_DEFAULT: u32 = 8;
pub const INSTANCES_DEFAULT: u32 = 1;
/// Deliveries waiting for one listener before callers hear `busy`.
pub const BACKLOG_DEFAULT: usize = 10_000;
pub const OUTCOME_PAYLOADS_MAX: usize = 1_000;
pub const FRAME_BYTES_MAX: usize = 16 << 20;
pub const HEARTBEAT_EXTENDS: Duration = Duration::from_secs(30);
pub const RESTARTS_MAX: u32 = 5;
pub const RESTART_WINDOW: Duration = Duration::from_secs(60);
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
pub const STDERR_LINE_BYTES_MAX: usize = 8 << 10;

// Agents.
pub const ITERATIONS_DEFAULT: u32 = 10;
pub const ACTIONS_PER_TURN_DEFAULT: u32 = 1;

// Pump and journal.
pub const GROUP_COMMIT_MAX: usize = 256;
pub const IN_FLIGHT_MAX: usize = 100_000;
pub const CHECKPOINT_RECORDS: u64 = 1_000;
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
pub const TIMERS_PER_CALL_MAX: usize = 64;
pub const TIMER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(REFUSAL_HEAD_BYTES < PAYLOAD_BYTES_MAX);
const _: () = assert!(XML_ATTRIBUTE_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(LEAF_BYTES_MAX <= TURN_BYTES_MAX);
const _: () = assert!(THREAD_DEPTH_DEFAULT as usize <= THREAD_DEPTH_CEILING);
