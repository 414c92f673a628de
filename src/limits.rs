//! Every bound of the product, with its unit, and the default of each bound that a config may set.

use std::time::Duration;

// Text at the gate.
/// Maximum bytes of a message with its envelope.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of [`MESSAGE_BYTES_MAX`] that are reserved for the envelope.
pub const ENVELOPE_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
/// Maximum size of a payload that the core writes: the record of a model's turn contains all its
/// text, escaped.
pub const CORE_WORD_BYTES_MAX: usize = 8 << 20;
pub const XML_DEPTH_MAX: usize = 128;
/// Maximum depth of nested elements in a text that is read as a tree. libxml2 has the same limit.
pub const XML_TREE_DEPTH_MAX: usize = 256;
pub const XML_ATTRIBUTES_MAX: usize = 256;
/// Maximum attributes of one element.
/// Maximum namespace declarations on one element, and maximum namespaces in scope at one element.
pub const XML_NAMESPACES_MAX: usize = 64;
pub const XML_NAME_BYTES_MAX: usize = 1 << 10;
pub const XML_ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
pub const XML_ELEMENTS_MAX: usize = 100_000;
/// Maximum elements of one payload.
/// Maximum findings reported for one text; all further findings are only counted.
pub const FINDINGS_MAX: usize = 16;
/// Maximum bytes of the message of a finding.
pub const FINDING_BYTES_MAX: usize = 1 << 10;
/// Number of leading bytes of a refused text that the journal record keeps.
pub const REFUSAL_HEAD_BYTES: usize = 4 << 10;
/// Maximum bytes of an example in the answer to a refused payload. A longer example is left out.
pub const REFUSAL_EXAMPLE_BYTES_MAX: usize = 4 << 10;

// Model text.
pub const TURN_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a model turn's text.
pub const LEAF_BYTES_MAX: usize = 512 << 10;
/// Maximum bytes of one text-only value in a model turn.
/// Number of turn inputs whose digests the pump keeps in memory as already stored. Every other turn
/// input is looked up in the journal.
pub const INPUTS_REMEMBERED_MAX: usize = 10_000;
/// Bytes of a turn that the extractor may search for missing close tags before it stops searching.
pub const LOOKAHEAD_BYTES_MAX: usize = 16 << 20;
/// Maximum names of unknown root elements that the extractor remembers for one turn.
pub const UNKNOWN_ROOTS_MAX: usize = 64;

// Schemas.
pub const SCHEMA_BYTES_MAX: usize = 4 << 20;
pub const SCHEMA_DOCUMENTS_MAX: usize = 64;
/// Maximum processor time of one schema compilation.
pub const SCHEMA_COMPILE_TIMEOUT: Duration = Duration::from_secs(2);
/// Wall time of one compilation, for a machine that is too busy to grant the processor time.
pub const SCHEMA_COMPILE_PATIENCE: Duration = Duration::from_secs(10);
/// Limits of the compiling child process: memory in KiB, and processor time in seconds.
pub const SCHEMA_COMPILE_MEMORY_KIB: u64 = 1 << 20;
pub const SCHEMA_COMPILE_CPU_SECONDS: u64 = 30;
/// Number of schemas that one child process compiles before a new child process replaces it.
/// Maximum processor time of the child process that compiles schemas, in seconds.
pub const SCHEMAS_PER_CHILD_MAX: usize = 64;
/// Maximum particles of one content model after all group references are expanded.
pub const SCHEMA_PARTICLES_MAX: u64 = 20_000;
/// Maximum product of the bounded `maxOccurs` values that are nested in one content model.
pub const SCHEMA_OCCURS_MAX: u64 = 1_000_000;
pub const PATTERN_BYTES_MAX: usize = 16 << 10;
pub const PATTERN_DEPTH_MAX: usize = 64;
/// Maximum product of the bounded repetitions that are nested in one pattern facet.
pub const PATTERN_REPEATS_MAX: u64 = 10_000;
/// Bytes that one libxml2 parser context reads before a new context replaces it. A context keeps
/// every name that it has read, so its memory grows.
pub const PARSER_BYTES: usize = 4 << 20;
/// Maximum compiled schemas that one thread keeps.
pub const GRAMMARS_MAX: usize = 1_024;
/// Maximum elements of a generated example.
pub const EXAMPLE_ELEMENTS_MAX: usize = 2_000;
pub const OUTLINE_DEPTH_MAX: usize = 24;

/// Maximum depth of nested types that descriptions and examples of a schema follow.
// Names and ids.
pub const NAME_BYTES_MAX: usize = 64;
pub const LABEL_CHARS_MAX: usize = 64;
/// Minimum characters after `sess-` in the id of a root thread.
pub const ROOT_CHARS_MIN: usize = 8;
pub const ROOT_CHARS_MAX: usize = 59;
/// Characters after `sess-` in a root thread's id that is derived from a digest; enough to exclude
/// collisions.
pub const ROOT_CHARS_DERIVED: usize = 20;
pub const THREAD_ID_BYTES_MAX: usize = 64 + (LABEL_CHARS_MAX + 1) * THREAD_DEPTH_CEILING;
pub const ID_ECHO_CHARS_MAX: usize = 80;
pub const CLIENT_KEY_BYTES_MAX: usize = 256;
/// Minimum hex digits of a payload hash in an approval; enough to identify the payload that the
/// operator has read.
pub const HASH_CHARS_MIN: usize = 8;
pub const HASH_CHARS_MAX: usize = 64;
/// Maximum characters of the reason that an operator gives for an action.
pub const REASON_CHARS_MAX: usize = 1_000;
/// Maximum details in one recorded operator action.
pub const ACTION_DETAILS_MAX: usize = 64;
pub const ACTION_NAME_CHARS_MAX: usize = 64;
/// Maximum characters of a detail's value in a recorded operator action; enough for a file path.
pub const ACTION_VALUE_CHARS_MAX: usize = 4_096;

// Trees of threads. A config may lower each default, or raise it to its ceiling.
pub const THREAD_DEPTH_CEILING: usize = 64;
pub const THREAD_DEPTH_DEFAULT: u32 = 16;
pub const CHILDREN_DEFAULT: u32 = 64;
pub const THREADS_DEFAULT: u32 = 1_000;
pub const MESSAGES_DEFAULT: u64 = 10_000;
/// Maximum characters after `sess-` in the id of a root thread. With this length, the id of the
/// deepest child still fits into [`THREAD_ID_BYTES_MAX`].
pub const MODEL_CALLS_DEFAULT: u64 = 1_000;
pub const TOKENS_DEFAULT: u64 = 10_000_000;
/// Highest configurable money budget, in the currency unit of the configured prices.
pub const MONEY_CEILING: f64 = 1e9;
/// Maximum characters of an invalid id that an error message repeats.
pub const WALL_TIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);
pub const CHILDREN_CEILING: u32 = 10_000;
pub const THREADS_CEILING: u32 = 1_000_000;
pub const MESSAGES_CEILING: u64 = 100_000_000;
/// Maximum hex digits of a payload hash in an approval.
pub const MODEL_CALLS_CEILING: u64 = 10_000_000;
pub const TOKENS_CEILING: u64 = 1_000_000_000_000;
pub const WALL_TIME_CEILING: Duration = Duration::from_secs(366 * 24 * 3600);
/// Share of a budget, in percent, at which a budget warning is recorded.
pub const BUDGET_WARNING_PERCENT: u64 = 80;

// Listeners.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
pub const ATTEMPTS_DEFAULT: u32 = 3;
pub const CONCURRENCY_DEFAULT: u32 = 8;
pub const INSTANCES_DEFAULT: u32 = 1;
/// Default number of calls that may wait for one listener before further callers get `busy`.
pub const BACKLOG_DEFAULT: usize = 10_000;
pub const TIMEOUT_CEILING: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest configurable time for which a call waits for a person.
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
/// Default maximum of consecutive rounds of one call in which every result is a failure.
pub const ROUNDS_FAILED_DEFAULT: u32 = 20;
pub const ROUNDS_FAILED_CEILING: u32 = 10_000;
/// Number of consecutive failed rounds of a call after which its listener gets further results with
/// backoff. Agents are exempt.
pub const ROUNDS_FAILED_BACKOFF: u32 = 3;
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Delay before the first probe of a listener that did not take a delivery. The delay doubles with
/// each probe.
pub const PROBE_FIRST: Duration = Duration::from_millis(100);
pub const PROBE_MAX: Duration = Duration::from_secs(5);
/// A probe that was not returned within this time counts as taken.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(1);
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a listener may keep its instance busy after its call was cancelled.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Maximum threads with open calls that are listed when an organism stops.
pub const LEFT_OPEN_SHOWN: usize = 8;
/// How long a child process may take to exit after its standard input was closed, and again after
/// SIGTERM.
pub const EXIT_GRACE: Duration = Duration::from_secs(2);
/// Time from a heartbeat to the new deadline of its attempt, for listeners that make no model
/// calls.
/// Answers of one process that name another attempt than its own; the last one allowed restarts the
/// Maximum restarts of a child process within [`RESTART_WINDOW`].
/// process.
pub const STRAYS_MAX: u32 = 3;
/// Passes at a start that look for processes of earlier pumps; each pass ends what the one before
/// left.
pub const LEFTOVER_PASSES_MAX: usize = 5;
pub const STDERR_LINE_BYTES_MAX: usize = 8 << 10;
/// Characters of a process's last line on standard error that are kept with its crash.
pub const LAST_WORDS_CHARS_MAX: usize = 200;

// Agents.
pub const ITERATIONS_DEFAULT: u32 = 10;
pub const ACTIONS_PER_TURN_DEFAULT: u32 = 1;
/// Maximum delay between two probes of a listener that did not take a delivery.
pub const ITERATIONS_CEILING: u32 = 1_000;
pub const ACTIONS_PER_TURN_CEILING: u32 = 100;
/// Bytes of a streaming turn that are scanned together, because each scan has a fixed cost.
pub const READ_AT_ONCE_BYTES: usize = 2 << 10;
/// Maximum characters of a native tool's name. Every provider accepts names of this length.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

// Configs.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Maximum bytes of the chunks in which playback streams a recorded turn, so that tests read a real
/// stream.
pub const PLAYBACK_CHUNK_BYTES: usize = 24;

// Models.
/// Interval at which a call that waits for a rate limit checks it again.
pub const LIMITER_LOOK: Duration = Duration::from_secs(1);
pub const MODEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from a model request to the first byte of its response. Providers read a long
/// prompt before they respond.
pub const MODEL_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time between two bytes of a model response.
pub const MODEL_STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub const MODEL_TOTAL_TIMEOUT: Duration = Duration::from_secs(600);
pub const MODEL_TIMEOUT_CEILING: Duration = Duration::from_secs(24 * 3600);
/// How long one address of a host is tried if there are others.
pub const ADDRESS_PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of one line, and of one event, of a stream.
pub const STREAM_LINE_BYTES_MAX: usize = 1 << 20;
pub const STREAM_EVENT_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of text, reasoning and native calls together in one response of a model.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes on the wire for one response of a model.
pub const STREAM_BYTES_MAX: usize = 1 << 30;
pub const NATIVE_CALLS_MAX: usize = 256;
/// Provider-specific blocks in one response.
pub const OWN_BLOCKS_MAX: usize = 256;
/// Bytes read of a response that is not a stream, and characters shown of a server's error.
pub const ERROR_BODY_BYTES_MAX: usize = 16 << 10;
pub const ERROR_MESSAGE_CHARS_MAX: usize = 400;
/// Maximum bytes of an HTTP response's head, and of each line between the chunks of its body.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;
pub const HTTP_HEADERS_MAX: usize = 128;
/// Bytes of the read buffer for HTTP responses.
pub const HTTP_READ_BYTES: usize = 16 << 10;
/// Maximum bytes of a proxy's response to a request for a tunnel.
pub const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Minimum bytes of an API key that is removed from model answers. A shorter key is often a common
/// word, such as `ollama`, that an answer may contain by chance.
pub const KEY_BYTES_HIDDEN_IN_ANSWERS: usize = 16;
pub const KEY_BYTES_HIDDEN_IN_ERRORS: usize = 4;
/// Default maximum tokens of an answer, for wire formats that require a number.
pub const ANSWER_TOKENS_DEFAULT: u32 = 8_192;
/// Maximum bytes of one event of an event stream.
/// Tokens that count for the framing around each message, each tool and the prompt.
pub const FRAMING_TOKENS: u64 = 8;
/// Percentage that is added to the token count of OpenAI's vocabulary of 2024 for models with
/// another vocabulary. That vocabulary is larger than most and counts fewer tokens.
pub const ESTIMATE_MARGIN_PERCENT: u64 = 20;
/// Tokens that count for a stub in place of an oversized result.
pub const STUB_TOKENS: u64 = 64;
/// Minimum configurable thinking tokens; providers refuse smaller numbers.
pub const THINKING_TOKENS_MIN: u32 = 1_024;
pub const ANSWER_TOKENS_CEILING: u32 = 10_000_000;
/// Maximum characters of a server's error message that organism shows.
/// Highest configurable price of a million tokens.
pub const PRICE_CEILING: f64 = 1e6;
pub const CONTEXT_TOKENS_CEILING: u64 = 1_000_000_000;
/// Default number of rounds over the routes of a model before the error of the last request is
/// reported.
pub const MODEL_ATTEMPTS_DEFAULT: u32 = 3;
pub const MODEL_ATTEMPTS_CEILING: u32 = 20;
pub const MODEL_BACKOFF_FIRST: Duration = Duration::from_millis(500);
pub const MODEL_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest `Retry-After` of a provider for which a request waits. A longer one counts as a refusal.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);
pub const MODEL_CONCURRENCY_DEFAULT: u32 = 64;
/// Minimum bytes of an API key that is removed from error messages.
pub const MODEL_CONCURRENCY_CEILING: u32 = 10_000;
pub const TOKENS_PER_MINUTE_CEILING: u64 = 1_000_000_000;
/// Lowest rate, in percent of the configured rate, to which the rate limiter adapts.
pub const TOKENS_PER_MINUTE_FLOOR_PERCENT: u64 = 5;
pub const ROUTES_MAX: usize = 32;

// Pump and journal.
/// Maximum bytes of a submission. A submission between the limit of a payload and this limit is
/// refused on the record.
pub const SUBMISSION_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of a Unix socket's path that every operating system accepts.
pub const SOCKET_NAME_BYTES: usize = 100;
/// Maximum submissions of one client into one thread that the pump handles at once; further
/// submissions wait.
pub const SUBMISSIONS_AT_ONCE: usize = 8;
/// Maximum submissions of one client into new threads that the pump handles at once; further
/// submissions get `busy`.
pub const NEW_THREADS_AT_ONCE: usize = 1_024;
/// Maximum requests (submissions, decisions, queries) that wait in the inbox of a pump; further
/// submissions and decisions get `busy`.
pub const INBOX_REQUESTS_MAX: usize = 4_096;
/// Maximum connections that the control socket serves at once; further connections get `busy`.
pub const CONTROL_CONNECTIONS_MAX: usize = 256;
/// Maximum connections that the control socket answers with `busy` at once; further connections
/// wait to be accepted.
pub const CONTROL_REFUSALS_AT_ONCE: usize = 16;
/// Delay after which a client should send again a request that got `busy`.
pub const BUSY_RETRY: Duration = Duration::from_millis(500);
/// How long a command waits for an organism that is starting or ending, and how often it checks.
pub const DOOR_PATIENCE: Duration = Duration::from_secs(5);
pub const DOOR_RETRY: Duration = Duration::from_millis(20);
/// Connections to a socket before a command reports that another process serves it.
pub const SOCKET_TRIES: usize = 5;
/// How long a command waits for the socket of an organism that has announced itself.
pub const ANNOUNCED_PATIENCE: Duration = Duration::from_secs(60);
/// How long a command at the control socket may take to send its request, and to read a line of the
/// response.
pub const CONTROL_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time of a connection without a request before a client uses it; less than
/// [`CONTROL_PATIENCE`].
pub const IDLE_CONNECTION: Duration = Duration::from_secs(10);
/// Timeout for the held calls of an organism; the command then reads the journal.
pub const HELD_PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for the query which config runs, for a command that only displays data.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Queued responses for one command at the control socket.
pub const CONTROL_LINES_MAX: usize = 64;
/// How long to try for a journal's lock before its holder is reported.
pub const LOCK_PATIENCE: Duration = Duration::from_millis(400);
pub const LOCK_RETRY: Duration = Duration::from_millis(10);
pub const GROUP_COMMIT_MAX: usize = 256;
/// Longer times in which a pump did not run count for no timeout: the process was stopped, the
/// machine slept, or the clock was set forward.
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Interval at which a pump checks whether its process was stopped.
pub const PULSE: Duration = Duration::from_millis(250);
pub const IN_FLIGHT_MAX: usize = 100_000;
/// Interval for which all `busy` refusals of one client are recorded as one count.
pub const BUSY_INTERVAL: Duration = Duration::from_secs(10);
pub const CHECKPOINT_RECORDS: u64 = 1_000;
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before the copy of a checkpoint is tried again after a failure.
pub const CHECKPOINT_COPY_RETRY: Duration = Duration::from_secs(10);
/// How long closing a journal, or verifying one in use, waits for copies of its checkpoints.
pub const CHECKPOINT_COPY_PATIENCE: Duration = Duration::from_secs(2);
/// Checkpoints that wait to be copied; beyond this, the oldest are dropped.
pub const CHECKPOINT_COPIES_WAITING_MAX: usize = 10_000;
/// Number of records after which the table of thread trees in SQLite is updated. Readers scan the
/// records that are not in the table yet.
pub const TREES_REFRESH_RECORDS: u64 = 10_000;
/// Bytes of SQLite's write-ahead log after which its contents are moved into the database file.
pub const WAL_BYTES: usize = 40 << 20;
/// Bytes of SQLite's write-ahead log after which the journal's writer waits until the log has been
/// moved into the database file.
pub const WAL_BYTES_MAX: usize = 4 * WAL_BYTES;
/// Maximum bytes of the encoding buffers that the journal keeps from one commit to the next.
pub const ROWS_KEPT_BYTES: usize = 1 << 20;
pub const JOURNAL_PAGE_BYTES: usize = 8 << 10;
/// Maximum pump commands that one group commit carries out.
/// How long a commit waits while another program's SQL statement locks the journal.
pub const JOURNAL_BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum records that a journal scan reads in one transaction, so that no reader holds back the
/// write-ahead log.
pub const SCAN_RECORDS: u64 = 1_000;
/// Number of records that a journal scan passes from reading to parsing at once; few enough for the
/// processor's caches.
pub const SCAN_CHUNK_RECORDS: u64 = 128;
/// Maximum chunks of records queued by each worker of a journal scan.
pub const SCAN_CHUNKS_AHEAD: usize = 8;
pub const SCAN_WORKERS_MAX: usize = 8;

/// Number of records after which a checkpoint is due.
/// Maximum notices queued for one waiting client; further notices are dropped.
/// Time after which a checkpoint is due if records have been written.
pub const NOTICES_MAX: usize = 64;
/// Duration of a model call after which waiting clients get a notice about the call.
pub const NOTICE_AFTER: Duration = Duration::from_secs(2);
pub const NOTICE_LOOK: Duration = Duration::from_millis(500);
/// Longest pause that a provider may request, and the interval of checks during it.
pub const MODEL_REST_MAX: Duration = Duration::from_secs(24 * 60 * 60);
pub const MODEL_REST_LOOK: Duration = Duration::from_millis(250);
/// Interval of progress reports of a model call; an eighth of the timeout if that is shorter.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

// HTTP.
/// Maximum open connections to the HTTP server for health and metrics; further connections wait to
/// be accepted.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// How long the head of a request may take, and how long an idle connection is kept.
pub const HTTP_HEAD_PATIENCE: Duration = Duration::from_secs(10);

// Telemetry.
/// Maximum spans that wait for export; further spans are dropped and counted.
pub const SPANS_QUEUED_MAX: usize = 8_192;
/// Maximum spans in one request to the trace collector.
pub const SPANS_SENT_MAX: usize = 512;
/// How long the first span of an export request waits for further spans.
pub const SPANS_WAIT: Duration = Duration::from_secs(1);
/// Timeout for name resolution, TCP and TLS handshake with the trace collector.
pub const COLLECTOR_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// First delay before spans are sent again that the trace collector refused.
pub const COLLECTOR_BACKOFF_FIRST: Duration = Duration::from_millis(250);
pub const COLLECTOR_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Maximum bytes that are read of the trace collector's response.
pub const COLLECTOR_ANSWER_BYTES_MAX: usize = 16 << 10;
/// How long the export of the last spans may take when the organism ends.
pub const SPANS_FAREWELL: Duration = Duration::from_secs(3);
/// Characters of a model's name, as its provider states it.
pub const MODEL_NAME_CHARS_MAX: usize = 128;

// Listeners that remember.
/// Maximum calls whose messages a listener with `remembers = true` keeps between deliveries.
pub const REMEMBERED_CALLS_MAX: usize = 1_024;
pub const REMEMBERED_BYTES_MAX: usize = 16 << 20;

// NATS.
/// Maximum message size in bytes that generated NATS server configs set.
pub const NATS_PAYLOAD_BYTES: usize = 8 << 20;
pub const NATS_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of NATS pings. A server that leaves two pings unanswered counts as unreachable, and the
/// client connects to another server; a frozen server would otherwise keep the connection.
pub const NATS_PING_INTERVAL: Duration = Duration::from_millis(700);
pub const NATS_BACKOFF_FIRST: Duration = Duration::from_millis(10);
pub const NATS_BACKOFF_MAX: Duration = Duration::from_millis(500);
/// How long after the last blocking caller its connection's own thread takes over.
pub const LINK_REST: Duration = Duration::from_millis(5);
/// How long a kit's listener handles received deliveries before it polls for more.
pub const KIT_BUSY: Duration = Duration::from_millis(1);
/// Poll interval for the stop flag while the connection's send buffer is full.
pub const KIT_LOOK: Duration = Duration::from_millis(250);
/// Answers up to this size are checked on the thread that receives for all listeners.
pub const NATS_JUDGED_AT_ONCE_BYTES: usize = 64 << 10;
/// Timeout of a whole request to the trace collector.
/// Interval at which a host checks for silent listeners.
pub const NATS_LOOK: Duration = Duration::from_millis(250);
/// How long a replica counts as alive after its last announcement; it announces itself three times
/// Longest delay before spans are sent again that the trace collector refused.
/// as often.
pub const NATS_LEASE: Duration = Duration::from_secs(5);
pub const NATS_LEASE_MIN: Duration = Duration::from_secs(1);
/// Maximum recent permission errors kept for each NATS connection.
pub const NATS_DENIALS_MAX: usize = 64;
/// Timeout of the round trip that reveals the permission errors of a NATS connection.
pub const NATS_ROUND_TRIP: Duration = Duration::from_secs(2);
/// How long a NATS connection does not publish to a subject after a permission error for that
/// subject.
pub const NATS_DENIED_PAUSE: Duration = Duration::from_secs(60);
/// Maximum attempts of one NATS listener that the pump remembers after they ended without an
/// answer, because an answer may still come.
pub const NATS_LATE_MAX: usize = 1_000;
/// Maximum bytes of the messages that a listener with `remembers = true` keeps between deliveries.

// Agents in processes of their own.
/// Maximum bytes of a thread, or of an answer, in one NATS message between an agent's host and the
/// pump.
pub const NATS_PAGE_BYTES: usize = 512 << 10;
/// Timeout of a request from an agent's host to the pump.
pub const NATS_ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before such a request is repeated if no pump answers or all are busy.
pub const NATS_ASK_RETRY: Duration = Duration::from_millis(250);
/// Total time for such a request: a restarted pump has delivered the turn again by then.
pub const NATS_ASK_PATIENCE: Duration = Duration::from_secs(30);
/// Concurrent requests from the hosts of one agent.
pub const NATS_ASKS_MAX: usize = 64;
/// Findings of one turn, and characters of an attempt's failure, that an agent's host reports.
pub const TURN_FINDINGS_MAX: usize = 10_000;
pub const FAILURE_CHARS_MAX: usize = 16 << 10;
/// Maximum bytes of an agent's answer over NATS: the note of its turn and its payloads, escaped for
/// JSON.
pub const NATS_ANSWER_BYTES_MAX: usize = 32 << 20;

/// How long a host with another config than the pump keeps a delivery before it goes to another
/// host.
pub const NATS_OTHER_CONFIG_REST: Duration = Duration::from_secs(5);
/// How long a host waits for the server to confirm its subscriptions.
pub const NATS_ARRIVAL_PATIENCE: Duration = Duration::from_secs(2);

// The journal on JetStream.
/// Timeout of a JetStream request.
pub const STREAM_PATIENCE: Duration = Duration::from_secs(2);
/// Timeout of JetStream requests while a journal is opened.
/// Shortest lease that a replica on NATS may announce.
pub const STREAM_START_PATIENCE: Duration = Duration::from_secs(6);
/// Timeout of a small request that probes whether any server answers.
pub const STREAM_PROBE: Duration = Duration::from_millis(300);
/// Bytes of a JetStream message that are reserved for its headers.
pub const STREAM_HEADER_BYTES: usize = 1 << 10;
/// Maximum JetStream messages requested at once while a stream is read.
pub const STREAM_READ_AHEAD: u64 = 32;
/// Maximum bytes of JetStream messages requested at once; a NATS connection buffers no more.
pub const STREAM_READ_BYTES: u64 = 16 << 20;
/// Interval of lease renewals.
pub const LEASE_BEAT: Duration = Duration::from_millis(400);
/// Timeout of a renewal: a lost response must not lose the lease.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(1);
/// A lease without a change for this long has lapsed.
pub const LEASE_LAPSE: Duration = Duration::from_secs(2);
/// Maximum age of a leadership proof on which a pump delivers. Much shorter than [`LEASE_LAPSE`],
/// after which another pump may take over.
pub const LEAD_PROOF_VALIDITY: Duration = Duration::from_millis(500);
pub const LEASE_LOOK: Duration = Duration::from_millis(50);
/// How long a lease that was released for an heir is reserved for it.
pub const LEASE_BEQUEST: Duration = Duration::from_secs(2);
/// Interval at which a pump checks that its stream still exists and is the same.
pub const STREAM_LOOK: Duration = Duration::from_millis(700);
/// How long a stream must be missing before it counts as lost: while a cluster starts, its servers
/// Maximum characters of an attempt's failure that an agent's host reports.
/// may not know it yet.
pub const STREAM_GONE_AFTER: Duration = Duration::from_secs(2);
/// Total timeout for collecting the bounds of a stream from all sources.
pub const BOUNDS_PATIENCE: Duration = Duration::from_secs(2);
/// Approximate size of a message while a journal is moved into a stream.
pub const PROMOTION_GROUP_BYTES: usize = 256 << 10;
/// How long a move waits for a server that is unreachable or full. A later run resumes it.
pub const PROMOTION_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum replicas of a stream in a cluster.
pub const STREAM_REPLICAS_CEILING: u32 = 5;
pub const STREAM_NAME_BYTES_MAX: usize = 100;

// Several pumps.
pub const PARTITIONS_MAX: u32 = 64;
/// Interval at which a standby checks whether the lease is free.
pub const STANDBY_LOOK: Duration = Duration::from_millis(100);
/// Interval at which a standby reads new records.
pub const STANDBY_FOLLOW: Duration = Duration::from_millis(500);
/// Delay before a standby tries an unreachable server again.
pub const STANDBY_RETRY: Duration = Duration::from_millis(500);
/// Delay before a standby whose disk is full tries to write again.
pub const STANDBY_RETRY_FULL: Duration = Duration::from_secs(10);
/// Timeout while a partition has no pump: slightly longer than a takeover.
pub const PARTITION_PATIENCE: Duration = Duration::from_secs(10);
pub const PARTITION_RETRY: Duration = Duration::from_millis(50);
/// Interval at which a process announces its partitions, and the time after which a silent process
/// counts as gone.
pub const ROLL_BEAT: Duration = Duration::from_millis(500);
pub const ROLL_LAPSE: Duration = Duration::from_secs(2);
/// How recently a process must have been seen for a new leader to wait for its report. Shorter than
/// a lease, so that nothing waits for the process that is replaced.
pub const MEMBER_FRESH: Duration = Duration::from_millis(1_500);
/// Maximum number of known processes.
pub const ROLL_MAX: usize = 256;
/// Minimum time without a change of ownership before a handover, so that members act on current
/// state.
pub const BALANCE_CALM: Duration = Duration::from_millis(1_500);
/// How long a process that hands over waits until its heir has the partition.
pub const HANDOVER_PATIENCE: Duration = Duration::from_secs(10);
/// How long no partition is handed to a process that did not take the last one.
pub const HANDOVER_AGAIN: Duration = Duration::from_secs(60);
/// How long deliveries in flight may take to end before their partition is handed over without
/// them.
pub const HANDOVER_DRAIN: Duration = Duration::from_secs(30);
/// Interval of keep-alives of a pump that answers over NATS, and the time after which a silent pump
/// counts as gone.
pub const EXCHANGE_BEAT: Duration = Duration::from_secs(1);
pub const EXCHANGE_SILENCE: Duration = Duration::from_secs(3);
/// Timeout of the first keep-alive of a response, which is sent at once.
pub const EXCHANGE_GREETING: Duration = Duration::from_secs(1);
/// How long one request over NATS is served. A client that waits longer repeats it, so that no pump
/// serves clients that are gone.
pub const EXCHANGE_TURN: Duration = Duration::from_secs(30);
/// Requests over NATS that one partition serves at once.
pub const EXCHANGES_MAX: usize = 10_000;
/// Incomplete requests in chunks that are kept, and how long their rest may take.
pub const EXCHANGE_HALVES_MAX: usize = 64;
pub const EXCHANGE_HALF_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a chunk of a request or response over NATS.
pub const EXCHANGE_PIECE_BYTES: usize = 512 << 10;
/// How long a stopping pump may take to send its last responses.
pub const EXCHANGE_FAREWELL: Duration = Duration::from_secs(2);
/// How long an operator's signature is valid.
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(5 * 60);
/// Maximum time by which the clock of an operator's host may be ahead of the pump's clock.
pub const SIGNATURE_AHEAD_MAX: Duration = Duration::from_secs(60);
/// Minimum characters of the passphrase that encrypts an operator's key.
pub const PASSPHRASE_CHARS_MIN: usize = 8;
/// Minimum entropy of a client's secret, in bits.
pub const SECRET_BITS_MIN: u32 = 128;
/// Minimum number of different characters in the secret of a client.
pub const SECRET_CHARS_MIN: usize = 8;
pub const TIMERS_PER_CALL_MAX: usize = 64;
pub const TIMER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

const _: () = assert!(SCHEMA_COMPILE_TIMEOUT.as_secs() <= SCHEMA_COMPILE_PATIENCE.as_secs());
const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
// A submission crosses the control socket in base64; one MiB is for the JSON around the base64.
const _: () = assert!(SUBMISSION_BYTES_MAX / 3 * 4 + (1 << 20) <= FRAME_BYTES_MAX);
const _: () = assert!(REFUSAL_HEAD_BYTES < PAYLOAD_BYTES_MAX);
const _: () = assert!(XML_ATTRIBUTE_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(LEAF_BYTES_MAX <= TURN_BYTES_MAX);
const _: () =
    assert!(LEASE_BEAT.as_millis() * 2 + LEASE_PATIENCE.as_millis() < LEASE_LAPSE.as_millis());
// One client alone cannot fill the inbox.
const _: () = assert!(NEW_THREADS_AT_ONCE * 2 <= INBOX_REQUESTS_MAX);
const _: () = assert!(LEAD_PROOF_VALIDITY.as_millis() * 2 < LEASE_LAPSE.as_millis());
const _: () = assert!(STREAM_LINE_BYTES_MAX <= STREAM_EVENT_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX <= ANSWER_BYTES_MAX && ANSWER_BYTES_MAX <= STREAM_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX * 6 <= CORE_WORD_BYTES_MAX);
const _: () = assert!(2 * (CORE_WORD_BYTES_MAX + 2 * TURN_BYTES_MAX) <= NATS_ANSWER_BYTES_MAX);
const _: () = assert!(THREAD_DEPTH_DEFAULT as usize <= THREAD_DEPTH_CEILING);
/// Maximum timers that one call may have.
