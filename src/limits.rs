//! Every bound of the product, with its unit. What may be configured has its default here.

use std::time::Duration;

// Text at the gate.
/// A message with its envelope stays under 1 MiB; the envelope gets 4 KiB of it.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
pub const ENVELOPE_BYTES_MAX: usize = 4 << 10;
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
/// A word the core writes: the record of a model's turn holds all its text, escaped.
pub const CORE_WORD_BYTES_MAX: usize = 8 << 20;
pub const XML_DEPTH_MAX: usize = 128;
/// Levels of elements that are read as a tree; libxml2 reads as many.
pub const XML_TREE_DEPTH_MAX: usize = 256;
pub const XML_ATTRIBUTES_MAX: usize = 256;
/// Namespace declarations on one element, and in scope at one place.
pub const XML_NAMESPACES_MAX: usize = 64;
pub const XML_NAME_BYTES_MAX: usize = 1 << 10;
pub const XML_ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
pub const XML_ELEMENTS_MAX: usize = 100_000;
/// Findings reported for one text; the rest are counted.
pub const FINDINGS_MAX: usize = 16;
/// Of one finding's message, in bytes.
pub const FINDING_BYTES_MAX: usize = 1 << 10;
/// How much of a refused text the record keeps.
pub const REFUSAL_HEAD_BYTES: usize = 4 << 10;
/// An example longer than this is not sent along with a refusal.
pub const REFUSAL_EXAMPLE_BYTES_MAX: usize = 4 << 10;

// Model text.
pub const TURN_BYTES_MAX: usize = 1 << 20;
pub const LEAF_BYTES_MAX: usize = 512 << 10;
/// Digests of what turns were sent that a pump remembers to have kept; it looks the others up.
pub const INPUTS_REMEMBERED_MAX: usize = 10_000;
/// Bytes of a turn read in search of close tags that are not there, before the rest is left.
pub const LOOKAHEAD_BYTES_MAX: usize = 16 << 20;
/// Unknown root names remembered of one turn.
pub const UNKNOWN_ROOTS_MAX: usize = 64;

// Schemas.
pub const SCHEMA_BYTES_MAX: usize = 4 << 20;
pub const SCHEMA_DOCUMENTS_MAX: usize = 64;
/// Of processor time.
pub const SCHEMA_COMPILE_TIMEOUT: Duration = Duration::from_secs(2);
/// By the clock, where the machine is too busy to give a compilation its processor time.
pub const SCHEMA_COMPILE_PATIENCE: Duration = Duration::from_secs(10);
/// For the compiling child process, in KiB and in seconds of processor time.
pub const SCHEMA_COMPILE_MEMORY_KIB: u64 = 1 << 20;
pub const SCHEMA_COMPILE_CPU_SECONDS: u64 = 30;
/// Schemas one compiling child works through before another takes its place.
pub const SCHEMAS_PER_CHILD_MAX: usize = 64;
/// Particles of one content model, groups expanded.
pub const SCHEMA_PARTICLES_MAX: u64 = 20_000;
/// Bounded `maxOccurs` inside one another in one content model, multiplied.
pub const SCHEMA_OCCURS_MAX: u64 = 1_000_000;
pub const PATTERN_BYTES_MAX: usize = 16 << 10;
pub const PATTERN_DEPTH_MAX: usize = 64;
/// Bounded repetitions inside one another in one pattern, multiplied.
pub const PATTERN_REPEATS_MAX: u64 = 10_000;
/// Of text that one parser context reads before another takes its place: it keeps every name.
pub const PARSER_BYTES: usize = 4 << 20;
/// Grammars a thread keeps compiled.
pub const GRAMMARS_MAX: usize = 1_024;
/// Elements of a generated example, and how deep descriptions and examples follow types.
pub const EXAMPLE_ELEMENTS_MAX: usize = 2_000;
pub const OUTLINE_DEPTH_MAX: usize = 24;

// Names and ids.
pub const NAME_BYTES_MAX: usize = 64;
pub const LABEL_CHARS_MAX: usize = 64;
/// Of a root's id after `sess-`: with the deepest child, it is still a thread id.
pub const ROOT_CHARS_MIN: usize = 8;
pub const ROOT_CHARS_MAX: usize = 59;
/// Of an id made from a digest: so many that no two meet.
pub const ROOT_CHARS_DERIVED: usize = 20;
pub const THREAD_ID_BYTES_MAX: usize = 64 + (LABEL_CHARS_MAX + 1) * THREAD_DEPTH_CEILING;
pub const ID_ECHO_CHARS_MAX: usize = 80;
pub const CLIENT_KEY_BYTES_MAX: usize = 256;
/// Of a payload's hash, so that an approval says what was looked at.
pub const HASH_CHARS_MIN: usize = 8;
pub const HASH_CHARS_MAX: usize = 64;
/// Of what an operator gives as a reason.
pub const REASON_CHARS_MAX: usize = 1_000;
/// Details of one recorded operator action.
pub const ACTION_DETAILS_MAX: usize = 64;
pub const ACTION_NAME_CHARS_MAX: usize = 64;
/// A path fits.
pub const ACTION_VALUE_CHARS_MAX: usize = 4_096;

// Trees; the config may lower these defaults or raise them to the ceilings.
pub const THREAD_DEPTH_CEILING: usize = 64;
pub const THREAD_DEPTH_DEFAULT: u32 = 16;
pub const CHILDREN_DEFAULT: u32 = 64;
pub const THREADS_DEFAULT: u32 = 1_000;
pub const MESSAGES_DEFAULT: u64 = 10_000;
pub const MODEL_CALLS_DEFAULT: u64 = 1_000;
pub const TOKENS_DEFAULT: u64 = 10_000_000;
/// In units of whatever currency prices are in.
pub const MONEY_CEILING: f64 = 1e9;
pub const WALL_TIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);
pub const CHILDREN_CEILING: u32 = 10_000;
pub const THREADS_CEILING: u32 = 1_000_000;
pub const MESSAGES_CEILING: u64 = 100_000_000;
pub const MODEL_CALLS_CEILING: u64 = 10_000_000;
pub const TOKENS_CEILING: u64 = 1_000_000_000_000;
pub const WALL_TIME_CEILING: Duration = Duration::from_secs(366 * 24 * 3600);
/// A warning is recorded when this share of a budget is gone.
pub const BUDGET_WARNING_PERCENT: u64 = 80;

// Listeners.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
pub const ATTEMPTS_DEFAULT: u32 = 3;
pub const CONCURRENCY_DEFAULT: u32 = 8;
pub const INSTANCES_DEFAULT: u32 = 1;
/// Deliveries waiting for one listener before callers hear `busy`.
pub const BACKLOG_DEFAULT: usize = 10_000;
pub const TIMEOUT_CEILING: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a call may be told to wait for a person.
pub const PATIENCE_CEILING: Duration = Duration::from_secs(366 * 24 * 3600);
pub const ATTEMPTS_CEILING: u32 = 100;
pub const CONCURRENCY_CEILING: u32 = 1_000;
pub const INSTANCES_CEILING: u32 = 256;
pub const BACKLOG_CEILING: u64 = 1_000_000;
pub const OUTCOME_PAYLOADS_MAX: usize = 1_000;
pub const FRAME_BYTES_MAX: usize = 16 << 20;
pub const HEARTBEAT_EXTENDS: Duration = Duration::from_secs(30);
pub const RESTARTS_MAX: u32 = 5;
pub const RESTART_WINDOW: Duration = Duration::from_secs(60);
/// Rounds of a call in a row in which every result was a failure.
pub const ROUNDS_FAILED_DEFAULT: u32 = 20;
pub const ROUNDS_FAILED_CEILING: u32 = 10_000;
/// After so many failed rounds in a row, a listener that is no agent gets the results with backoff.
pub const ROUNDS_FAILED_BACKOFF: u32 = 3;
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Between probes of a listener that took nothing, doubling from the first to the last.
pub const PROBE_FIRST: Duration = Duration::from_millis(100);
pub const PROBE_MAX: Duration = Duration::from_secs(5);
/// A probe that did not come back within this time was taken.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(1);
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a listener whose caller is gone may keep its instance busy.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Threads that are named when an organism ends with calls still open.
pub const LEFT_OPEN_SHOWN: usize = 8;
/// How long a process may take to end once its input is closed, and again after SIGTERM.
pub const EXIT_GRACE: Duration = Duration::from_secs(2);
/// Answers of one process that name another attempt than its own; the last one replaces it.
pub const STRAYS_MAX: u32 = 3;
/// Looks for processes of earlier pumps at a start; each ends what the one before left over.
pub const LEFTOVER_PASSES_MAX: usize = 5;
pub const STDERR_LINE_BYTES_MAX: usize = 8 << 10;
/// Of the last line a process wrote to standard error: kept with its crash.
pub const LAST_WORDS_CHARS_MAX: usize = 200;

// Agents.
pub const ITERATIONS_DEFAULT: u32 = 10;
pub const ACTIONS_PER_TURN_DEFAULT: u32 = 1;
pub const ITERATIONS_CEILING: u32 = 1_000;
pub const ACTIONS_PER_TURN_CEILING: u32 = 100;
/// Of a turn that streams: so much is read for actions at once, as a look costs more than a byte.
pub const READ_AT_ONCE_BYTES: usize = 2 << 10;
/// Of a native tool, in the letters that every provider takes.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

// Configs.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// A played turn streams in pieces of this size, so that every run reads a real stream.
pub const PLAYBACK_CHUNK_BYTES: usize = 24;

// Models.
/// How often a call that waits for others to end looks whether they have.
pub const LIMITER_LOOK: Duration = Duration::from_secs(1);
pub const MODEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// From the request to the first byte of the answer: a long prompt is read before it is answered.
pub const MODEL_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two bytes of an answer.
pub const MODEL_STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub const MODEL_TOTAL_TIMEOUT: Duration = Duration::from_secs(600);
pub const MODEL_TIMEOUT_CEILING: Duration = Duration::from_secs(24 * 3600);
/// How long one address of a host is tried while there are others.
pub const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
/// One line, and one event, of a stream.
pub const STREAM_LINE_BYTES_MAX: usize = 1 << 20;
pub const STREAM_EVENT_BYTES_MAX: usize = 4 << 20;
/// Everything a model says in one answer: text, reasoning and calls.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Everything a provider sends for one answer.
pub const STREAM_BYTES_MAX: usize = 1 << 30;
pub const NATIVE_CALLS_MAX: usize = 256;
/// Blocks of a provider's own in one answer.
pub const OWN_BLOCKS_MAX: usize = 256;
/// What is read of an answer that is no stream, and shown of what a server says is wrong.
pub const ERROR_BODY_BYTES_MAX: usize = 16 << 10;
pub const ERROR_MESSAGE_CHARS_MAX: usize = 400;
/// The head of an answer, and any other line in it that is not its body.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;
pub const HTTP_HEADERS_MAX: usize = 128;
/// Room for what is read of an answer in one go.
pub const HTTP_READ_BYTES: usize = 16 << 10;
/// Of a proxy's answer to the request for a tunnel.
pub const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Shorter keys are words, such as `ollama`, that an answer may well hold.
pub const KEY_BYTES_HIDDEN_IN_ANSWERS: usize = 16;
pub const KEY_BYTES_HIDDEN_IN_ERRORS: usize = 4;
/// Asked for where the wire format demands a number and the config has none.
pub const ANSWER_TOKENS_DEFAULT: u32 = 8_192;
/// What stands around a message, a tool or the prompt itself, in tokens.
pub const FRAMING_TOKENS: u64 = 8;
/// By so much an estimate is above what OpenAI's vocabulary of 2024 counts, which is larger than
/// most.
pub const ESTIMATE_MARGIN_PERCENT: u64 = 20;
/// What a stub takes in place of what it stands for, in tokens.
pub const STUB_TOKENS: u64 = 64;
/// Less is refused by those who count thinking in tokens.
pub const THINKING_TOKENS_MIN: u32 = 1_024;
pub const ANSWER_TOKENS_CEILING: u32 = 10_000_000;
/// Of a million tokens.
pub const PRICE_CEILING: f64 = 1e6;
pub const CONTEXT_TOKENS_CEILING: u64 = 1_000_000_000;
/// Rounds over the routes of a model before its error is told.
pub const MODEL_ATTEMPTS_DEFAULT: u32 = 3;
pub const MODEL_ATTEMPTS_CEILING: u32 = 20;
pub const MODEL_BACKOFF_FIRST: Duration = Duration::from_millis(500);
pub const MODEL_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A provider that wants to be left alone for longer than this has refused.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);
pub const MODEL_CONCURRENCY_DEFAULT: u32 = 64;
pub const MODEL_CONCURRENCY_CEILING: u32 = 10_000;
pub const TOKENS_PER_MINUTE_CEILING: u64 = 1_000_000_000;
/// The rate adapts down to this share of what is configured, and no further.
pub const TOKENS_PER_MINUTE_FLOOR_PERCENT: u64 = 5;
pub const ROUTES_MAX: usize = 32;

// Pump and journal.
/// What a client may hand in at all; what is over a payload's limit is refused on the record.
pub const SUBMISSION_BYTES_MAX: usize = 8 << 20;
/// Of the shortest socket name that every system takes.
pub const SOCKET_NAME_BYTES: usize = 100;
/// Submissions of one client into one thread that are with the pump at once; others wait.
pub const SUBMISSIONS_AT_ONCE: usize = 8;
/// Submissions of one client into new threads that are with the pump at once; further ones get `busy`.
pub const NEW_THREADS_AT_ONCE: usize = 1_024;
/// Requests from outside (submissions, decisions, queries) that wait in the inbox of a pump; further
/// submissions and decisions get `busy`.
pub const INBOX_REQUESTS_MAX: usize = 4_096;
/// Connections that the control socket serves at once; further ones get `busy`.
pub const CONTROL_CONNECTIONS_MAX: usize = 256;
/// Connections that are answered with `busy` at once; further ones wait to be accepted.
pub const CONTROL_REFUSALS_AT_ONCE: usize = 16;
/// When to try again after `busy`.
pub const BUSY_RETRY: Duration = Duration::from_millis(500);
/// How long a command waits for an organism that is starting or ending, and how often it looks.
pub const DOOR_PATIENCE: Duration = Duration::from_secs(5);
pub const DOOR_RETRY: Duration = Duration::from_millis(20);
/// Connections to a socket before a command reports that another process serves it.
pub const SOCKET_TRIES: usize = 5;
/// How long a command waits for the socket of an organism that has announced itself.
pub const ANNOUNCED_PATIENCE: Duration = Duration::from_secs(60);
/// How long a command at the control socket may take to ask, and to read a line of the answer.
pub const CONTROL_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum age of a connection at its first request; less than [`CONTROL_PATIENCE`].
pub const FOUND_CONNECTION: Duration = Duration::from_secs(10);
/// Timeout for the held calls of an organism; the command then reads the journal.
pub const HELD_PATIENCE: Duration = Duration::from_secs(5);
/// How long a command that only looks waits to learn which config runs.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Answers on their way to one command over the control socket.
pub const CONTROL_LINES_MAX: usize = 64;
/// How long a journal's lock is asked for before its holder is named.
pub const LOCK_PATIENCE: Duration = Duration::from_millis(400);
pub const LOCK_RETRY: Duration = Duration::from_millis(10);
pub const GROUP_COMMIT_MAX: usize = 256;
/// From here on, time in which a pump did not run is nobody's: a process that was stopped, a machine
/// that slept, a clock that was set forward.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Between looks of a pump at whether its process runs.
pub const PULSE: Duration = Duration::from_millis(250);
pub const IN_FLIGHT_MAX: usize = 100_000;
/// `busy` refusals of one client are recorded as one count for each interval.
pub const BUSY_INTERVAL: Duration = Duration::from_secs(10);
pub const CHECKPOINT_RECORDS: u64 = 1_000;
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before checkpoints are copied again that could not be copied.
pub const CHECKPOINT_COPY_RETRY: Duration = Duration::from_secs(10);
/// How long a journal that is closed, and a proof of one in use, wait for copies of its checkpoints.
pub const CHECKPOINT_COPY_PATIENCE: Duration = Duration::from_secs(2);
/// Checkpoints that wait to be copied; the oldest go first.
pub const CHECKPOINT_COPIES_WAITING_MAX: usize = 10_000;
/// Records after which the table of trees is brought up to date; readers scan the rest.
pub const TREES_REFRESH_RECORDS: u64 = 10_000;
/// Bytes in SQLite's write-ahead log after which they are moved into the journal file.
pub const WAL_BYTES: usize = 40 << 20;
/// Bytes in the log after which the writer waits for them to be moved.
pub const WAL_BYTES_MAX: usize = 4 * WAL_BYTES;
/// Of the buffers that commits are encoded in, between two of them.
pub const ROWS_KEPT_BYTES: usize = 1 << 20;
pub const JOURNAL_PAGE_BYTES: usize = 8 << 10;
/// How long a commit waits for a person's own SQL to let go of the journal.
pub const JOURNAL_BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Records read in one go, so that no reader holds back the write-ahead log.
pub const SCAN_RECORDS: u64 = 1_000;
/// Records handed from reading to rebuilding in one go: so few that they stay in the caches.
pub const SCAN_CHUNK_RECORDS: u64 = 128;
/// Chunks that wait for each worker's turn.
pub const SCAN_CHUNKS_AHEAD: usize = 8;
pub const SCAN_WORKERS_MAX: usize = 8;

/// Notices on their way to one waiting client; more are dropped.
pub const NOTICES_MAX: usize = 64;
/// How long a model is waited for before a waiting client is notified, and how often that is looked
/// at.
pub const NOTICE_AFTER: Duration = Duration::from_secs(2);
pub const NOTICE_LOOK: Duration = Duration::from_millis(500);
/// How long a provider that asks for a pause is left alone at most, and between two looks at it.
pub const MODEL_REST_MAX: Duration = Duration::from_secs(24 * 60 * 60);
pub const MODEL_REST_LOOK: Duration = Duration::from_millis(250);
/// Between two reports of progress of one model call; an eighth of a shorter time-out.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

// HTTP.
/// Connections to the server of health and metrics; more wait to be accepted.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// How long a request's head may take to come, and an idle connection is kept.
pub const HTTP_HEAD_PATIENCE: Duration = Duration::from_secs(10);

// Telemetry.
/// Spans that wait to be exported; more are dropped and counted.
pub const SPANS_QUEUED_MAX: usize = 8_192;
/// Spans in one request to the collector.
pub const SPANS_SENT_MAX: usize = 512;
/// How long the first of them waits for others.
pub const SPANS_WAIT: Duration = Duration::from_secs(1);
/// Name, TCP and TLS of the way to the collector, and one request altogether.
pub const COLLECTOR_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a collector that takes nothing is left alone.
pub const COLLECTOR_BACKOFF_FIRST: Duration = Duration::from_millis(250);
pub const COLLECTOR_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Of what it answers, and of what is shown of that.
pub const COLLECTOR_ANSWER_BYTES_MAX: usize = 16 << 10;
/// How long the last spans may take to be exported when the organism ends.
pub const SPANS_FAREWELL: Duration = Duration::from_secs(3);
/// Of a model's name, as its provider says it.
pub const MODEL_NAME_CHARS_MAX: usize = 128;

// Listeners that remember.
/// Calls whose messages a program of the kits remembers between their deliveries, and their bytes.
pub const REMEMBERED_CALLS_MAX: usize = 1_024;
pub const REMEMBERED_BYTES_MAX: usize = 16 << 20;

// NATS.
/// Of one message, as the servers that we configure are told.
pub const NATS_PAYLOAD_BYTES: usize = 8 << 20;
pub const NATS_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that answers none of two of these is taken for gone, and another one tried: one that is
/// frozen keeps its connections open.
pub const NATS_PING_INTERVAL: Duration = Duration::from_millis(700);
pub const NATS_BACKOFF_FIRST: Duration = Duration::from_millis(10);
pub const NATS_BACKOFF_MAX: Duration = Duration::from_millis(500);
/// For how long a connection is left to those who ask over it, after the last one did.
pub const LINK_REST: Duration = Duration::from_millis(5);
/// For how long a listener of the kit handles what has come before it looks for more.
pub const KIT_BUSY: Duration = Duration::from_millis(1);
/// How often one whose connection takes no more looks whether it is to leave.
pub const KIT_LOOK: Duration = Duration::from_millis(250);
/// Answers up to this are judged on the thread that hears all listeners.
pub const NATS_JUDGED_AT_ONCE_BYTES: usize = 64 << 10;
/// How often a host looks for listeners that have fallen silent.
pub const NATS_LOOK: Duration = Duration::from_millis(250);
/// For how long replicas say that they are alive; they say so thrice as often.
pub const NATS_LEASE: Duration = Duration::from_secs(5);
pub const NATS_LEASE_MIN: Duration = Duration::from_secs(1);
/// What servers did not let a connection do, kept for whom it concerns.
pub const NATS_DENIALS_MAX: usize = 64;
/// How long the answer to a first question may take that shows what a connection may not do.
pub const NATS_ROUND_TRIP: Duration = Duration::from_secs(2);
/// After a denial, for how long nothing is published to what was denied, on the same connection.
pub const NATS_DENIED_PAUSE: Duration = Duration::from_secs(60);
/// Attempts of one listener that ended without an answer and may still get one.
pub const NATS_LATE_MAX: usize = 1_000;

// Agents in processes of their own.
/// Of a thread, or of an answer, in one message.
pub const NATS_PAGE_BYTES: usize = 512 << 10;
/// What the host of an agent asks the pump is asked again after this long,
pub const NATS_ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// and so often where nobody is there to be asked, or everybody is busy,
pub const NATS_ASK_RETRY: Duration = Duration::from_millis(250);
/// until so much time has passed: a pump that was restarted has handed the turn over again then.
pub const NATS_ASK_PATIENCE: Duration = Duration::from_secs(30);
/// Questions of one agent's hosts that are dealt with at the same time.
pub const NATS_ASKS_MAX: usize = 64;
/// Things that were wrong with one turn, and characters of why an attempt failed, as an agent's host
/// tells them.
pub const TURN_FINDINGS_MAX: usize = 10_000;
pub const FAILURE_CHARS_MAX: usize = 16 << 10;
/// Of an agent's answer: its turn's note, and its payloads, escaped for JSON.
pub const NATS_ANSWER_BYTES_MAX: usize = 32 << 20;

/// How long a host with another config than the pump keeps a delivery, before somebody else gets it.
pub const NATS_OTHER_CONFIG_REST: Duration = Duration::from_secs(5);
/// How long a host waits to hear that the server has its subscriptions.
pub const NATS_ARRIVAL_PATIENCE: Duration = Duration::from_secs(2);

// The journal on JetStream.
/// How long a question to JetStream may take to be answered.
pub const STREAM_PATIENCE: Duration = Duration::from_secs(2);
/// How long JetStream is waited for by who opens a journal.
pub const STREAM_START_PATIENCE: Duration = Duration::from_secs(6);
/// How long a small question may take while somebody is looked for who answers at all.
pub const STREAM_PROBE: Duration = Duration::from_millis(300);
/// Of a message's size, what its headers may take up.
pub const STREAM_HEADER_BYTES: usize = 1 << 10;
/// Messages of the tail that are asked for at once.
pub const STREAM_READ_AHEAD: u64 = 32;
/// And in bytes, however large the messages may be: a connection holds no more.
pub const STREAM_READ_BYTES: u64 = 16 << 20;
/// How often a pump says that it lives.
pub const LEASE_BEAT: Duration = Duration::from_millis(400);
/// For the answer to a beat: one that is lost is no reason to lose the lease.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(1);
/// A lease that did not change for so long belongs to nobody any more.
pub const LEASE_LAPSE: Duration = Duration::from_secs(2);
/// A pump that delivers has proved within this time that no other pump took over. Much shorter than
/// [`LEASE_LAPSE`], after which another one may.
pub const LEAD_PROOF_VALIDITY: Duration = Duration::from_millis(500);
pub const LEASE_LOOK: Duration = Duration::from_millis(50);
/// How long a lease that was let go of for somebody is left to them.
pub const LEASE_BEQUEST: Duration = Duration::from_secs(2);
/// How often a pump looks whether its stream is still there, and the one it was.
pub const STREAM_LOOK: Duration = Duration::from_millis(700);
/// How long a stream must be gone to be called lost: while a cluster starts, its servers may not
/// know it yet.
pub const STREAM_GONE_AFTER: Duration = Duration::from_secs(2);
/// How long all places together may take that are asked how far a stream went.
pub const BOUNDS_PATIENCE: Duration = Duration::from_secs(2);
/// About what a message has when a journal is moved into a stream.
pub const PROMOTION_GROUP_BYTES: usize = 256 << 10;
/// A move waits so long for a server that is away or full; run again, it goes on.
pub const PROMOTION_PATIENCE: Duration = Duration::from_secs(30);
/// The copies of a stream that a cluster can keep.
pub const STREAM_REPLICAS_CEILING: u32 = 5;
pub const STREAM_NAME_BYTES_MAX: usize = 100;

// Several pumps.
pub const PARTITIONS_MAX: u32 = 64;
/// How often a pump that stands by looks whether the lease it waits for is free.
pub const STANDBY_LOOK: Duration = Duration::from_millis(100);
/// How often it hears what the pump in office wrote meanwhile.
pub const STANDBY_FOLLOW: Duration = Duration::from_millis(500);
/// How long it leaves a server alone that is away.
pub const STANDBY_RETRY: Duration = Duration::from_millis(500);
/// How long it waits for room on its own disk before it looks again.
pub const STANDBY_RETRY_FULL: Duration = Duration::from_secs(10);
/// How long somebody is waited for who pumps a partition: a little longer than a takeover takes.
pub const PARTITION_PATIENCE: Duration = Duration::from_secs(10);
pub const PARTITION_RETRY: Duration = Duration::from_millis(50);
/// How often a process says which partitions it has, and how long one is believed to live that
/// says nothing.
pub const ROLL_BEAT: Duration = Duration::from_millis(500);
pub const ROLL_LAPSE: Duration = Duration::from_secs(2);
/// For how long after it was heard of a process is waited for by who is about to lead: less than a
/// lease lapses in, so that nobody waits for the process that is replaced.
pub const MEMBER_FRESH: Duration = Duration::from_millis(1_500);
/// Processes that are known at the same time.
pub const ROLL_MAX: usize = 256;
/// How long nobody's partitions must have changed before one is handed over: what everybody knows
/// of each other is old news otherwise.
pub const BALANCE_CALM: Duration = Duration::from_millis(1_500);
/// How long a process that hands over waits until the other one has it.
pub const HANDOVER_PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing is given to whoever did not take it.
pub const HANDOVER_AGAIN: Duration = Duration::from_secs(60);
/// How long what is out may take to end before its partition is handed over without it.
pub const HANDOVER_DRAIN: Duration = Duration::from_secs(30);
/// How often a pump that answers over NATS says that it is still at it, and how long one that
/// says nothing is believed to be.
pub const EXCHANGE_BEAT: Duration = Duration::from_secs(1);
pub const EXCHANGE_SILENCE: Duration = Duration::from_secs(3);
/// How long the first word of an answer may take: it is said at once.
pub const EXCHANGE_GREETING: Duration = Duration::from_secs(1);
/// How long one question over NATS is answered; who waits longer asks again, so that nobody is
/// answered for long who is not there any more.
pub const EXCHANGE_TURN: Duration = Duration::from_secs(30);
/// Questions over NATS that one partition answers at the same time.
pub const EXCHANGES_MAX: usize = 10_000;
/// Questions that came in pieces and are not whole yet, and how long their rest is waited for.
pub const EXCHANGE_HALVES_MAX: usize = 64;
pub const EXCHANGE_HALF_PATIENCE: Duration = Duration::from_secs(10);
/// Of a question or an answer over NATS, in one message.
pub const EXCHANGE_PIECE_BYTES: usize = 512 << 10;
/// How long the last answers of a pump that stops may take to be handed over.
pub const EXCHANGE_FAREWELL: Duration = Duration::from_secs(2);
/// How long after it was made an operator's signature holds.
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(5 * 60);
/// How far the clock of an operator's host may be ahead of the pump's.
pub const SIGNATURE_AHEAD_MAX: Duration = Duration::from_secs(60);
/// Of the passphrase that encrypts an operator's key.
pub const PASSPHRASE_CHARS_MIN: usize = 8;
/// Bits that a client's secret has at least.
pub const SECRET_BITS_MIN: u32 = 128;
/// Different characters that a client's secret has at least.
pub const SECRET_CHARS_MIN: usize = 8;
pub const TIMERS_PER_CALL_MAX: usize = 64;
pub const TIMER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

const _: () = assert!(SCHEMA_COMPILE_TIMEOUT.as_secs() <= SCHEMA_COMPILE_PATIENCE.as_secs());
const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
// A submission crosses the control socket in base64, with room for the words around it.
const _: () = assert!(SUBMISSION_BYTES_MAX / 3 * 4 + (1 << 20) <= FRAME_BYTES_MAX);
const _: () = assert!(REFUSAL_HEAD_BYTES < PAYLOAD_BYTES_MAX);
const _: () = assert!(XML_ATTRIBUTE_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(LEAF_BYTES_MAX <= TURN_BYTES_MAX);
const _: () =
    assert!(LEASE_BEAT.as_millis() * 2 + LEASE_PATIENCE.as_millis() < LEASE_LAPSE.as_millis());
// One client cannot fill the inbox alone.
const _: () = assert!(NEW_THREADS_AT_ONCE * 2 <= INBOX_REQUESTS_MAX);
const _: () = assert!(LEAD_PROOF_VALIDITY.as_millis() * 2 < LEASE_LAPSE.as_millis());
const _: () = assert!(STREAM_LINE_BYTES_MAX <= STREAM_EVENT_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX <= ANSWER_BYTES_MAX && ANSWER_BYTES_MAX <= STREAM_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX * 6 <= CORE_WORD_BYTES_MAX);
const _: () = assert!(2 * (CORE_WORD_BYTES_MAX + 2 * TURN_BYTES_MAX) <= NATS_ANSWER_BYTES_MAX);
const _: () = assert!(THREAD_DEPTH_DEFAULT as usize <= THREAD_DEPTH_CEILING);
