//! Every limit of this program with its unit, and the default values of limits that a config may
//! set.

mod index;
mod lease;
mod schema;

use std::time::Duration;

pub use index::*;
pub use lease::*;
pub use schema::*;

// Text at the gate.
/// Maximum bytes of a message with its envelope.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Bytes of [`MESSAGE_BYTES_MAX`] that are reserved for the envelope.
pub const ENVELOPE_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
/// Maximum bytes of a payload that the core writes. Such a payload may record a model turn, and
/// then contains the whole text of the turn, escaped.
pub const CORE_PAYLOAD_BYTES_MAX: usize = 8 << 20;
/// Maximum depth of nested elements in a payload.
pub const XML_DEPTH_MAX: usize = 128;
/// Maximum depth of nested elements in a text that is parsed to a tree. libxml2 has the same limit.
pub const XML_TREE_DEPTH_MAX: usize = 256;
/// Maximum attributes of one element, including its namespace declarations.
pub const XML_ATTRIBUTES_MAX: usize = 256;
/// Maximum namespace declarations on one element. Also the maximum namespaces that may be in scope
/// at one element.
pub const XML_NAMESPACES_MAX: usize = 64;
/// Maximum bytes of the name of an element or attribute, including its prefix.
pub const XML_NAME_BYTES_MAX: usize = 1 << 10;
/// Maximum bytes of a start tag of a payload, from `<` to `>`. In a model turn, the maximum bytes
/// of the value of one attribute.
pub const XML_TAG_BYTES_MAX: usize = 64 << 10;
/// Maximum elements of one payload.
pub const XML_ELEMENTS_MAX: usize = 100_000;
/// Maximum findings reported for one text. Further findings are only counted.
pub const FINDINGS_MAX: usize = 16;
/// Maximum bytes of the message of a finding.
pub const FINDING_BYTES_MAX: usize = 1 << 10;
/// Maximum bytes that the record of a refusal keeps from the beginning of the refused text.
pub const REFUSAL_HEAD_BYTES: usize = 4 << 10;
/// Maximum bytes of the example payload in the response to a refused payload. If the example is
/// longer, the response contains no example.
pub const REFUSAL_EXAMPLE_BYTES_MAX: usize = 4 << 10;

// Model text.
/// Maximum bytes of a model turn's text.
pub const TURN_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the decoded text of one text-only element in a model turn.
pub const LEAF_BYTES_MAX: usize = 512 << 10;
/// Maximum number of digests of model inputs that the pump keeps in memory. If the digest of an
/// input is in memory, the pump knows that the journal contains the input. If not, the pump queries
/// the journal.
pub const INPUTS_REMEMBERED_MAX: usize = 10_000;
/// Maximum total bytes that all unsuccessful searches for close tags in one turn may read. Beyond
/// this number, the rest of the turn is not parsed.
pub const LOOKAHEAD_BYTES_MAX: usize = 16 << 20;
/// Maximum unknown elements without a namespace in one turn whose refusals the agent gets one by
/// one, if one further refusal states the number of the others. That refusal replaces at least two,
/// so the agent may get one more of them one by one. The same applies to the findings of a protocol
/// in the feedback on one turn.
pub const TURN_REFUSALS_MAX: usize = 16;
/// Maximum names of unknown root elements in one turn that the parser of model text remembers.
pub const UNKNOWN_ROOTS_MAX: usize = 64;

// Expressions of workflows.
pub const XPATH_BYTES_MAX: usize = 4 << 10;
/// Maximum depth of brackets and parentheses in an XPath expression. The depth is limited because
/// libxml2 recurses for each level.
pub const XPATH_DEPTH_MAX: usize = 32;
/// Maximum operations of one evaluation of an XPath expression, as libxml2 counts them.
pub const XPATH_OPERATIONS_MAX: u64 = 1_000_000;
/// Number of bytes of text that count as one operation of an XPath expression. This applies to text
/// that one of organism's own XPath functions reads.
pub const XPATH_BYTES_PER_OPERATION: usize = 64;
/// Maximum nodes that one XPath expression selects.
pub const XPATH_NODES_MAX: usize = 100_000;
/// Maximum total bytes of the text in the nodes that one XPath expression selects.
pub const XPATH_TEXT_BYTES_MAX: usize = 4 << 20;

/// Default maximum number of items for a workflow goal that runs once for each item of a list
/// (config key `each`).
pub const EACH_ITEMS_DEFAULT: u32 = 100;
pub const EACH_ITEMS_CEILING: u32 = 100_000;
/// Default maximum number of items that a workflow goal with the config key `each` processes at the
/// same time.
pub const EACH_CONCURRENCY_DEFAULT: u32 = 8;
pub const LOOP_PASSES_CEILING: u32 = 10_000;
/// Default maximum number of corrections that a supervisor may request for the output of one goal.
pub const CORRECTIONS_DEFAULT: u32 = 2;
pub const CORRECTIONS_CEILING: u32 = 100;
/// Highest configurable depth of delegations: the number of levels of delegated tasks below one
/// goal. An agent delegates a task by giving it to another agent.
pub const ROLES_DEPTH_CEILING: u32 = 8;

// Names and ids.
pub const NAME_BYTES_MAX: usize = 64;
pub const LABEL_CHARS_MAX: usize = 64;
/// Minimum characters after `sess-` in the id of a root thread.
pub const ROOT_CHARS_MIN: usize = 8;
/// Maximum characters after `sess-` in the id of a root thread. With this length, the id of the
/// deepest child still fits into [`THREAD_ID_BYTES_MAX`].
pub const ROOT_CHARS_MAX: usize = 59;
/// Number of characters after `sess-` in the id of a root thread that is derived from a digest. The
/// number is large enough to exclude collisions.
pub const ROOT_CHARS_DERIVED: usize = 20;
pub const THREAD_ID_BYTES_MAX: usize = 64 + (LABEL_CHARS_MAX + 1) * THREAD_DEPTH_CEILING;
/// Maximum characters of an invalid id that an error message repeats.
pub const ID_ECHO_CHARS_MAX: usize = 80;
pub const CLIENT_KEY_BYTES_MAX: usize = 256;
/// Minimum hex digits of the payload hash in an approval. This many digits are enough to identify
/// the payload that the operator has read.
pub const HASH_CHARS_MIN: usize = 8;
/// Maximum hex digits of a payload hash in an approval.
pub const HASH_CHARS_MAX: usize = 64;
/// Default time limit for a preview: the text in which a listener describes what a held call would
/// do.
pub const PREVIEW_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Highest configurable time limit for a preview.
pub const PREVIEW_TIMEOUT_CEILING: Duration = Duration::from_secs(3600);
/// Maximum bytes of a preview, which a person has to read.
pub const PREVIEW_BYTES_MAX: usize = 256 << 10;
/// Maximum characters of the reason that an operator gives for an action.
pub const REASON_CHARS_MAX: usize = 1_000;
/// Maximum number of paused threads in one partition. A pause is an operator's action that keeps
/// calls from being handed over to listeners.
pub const PAUSES_MAX: usize = 1_000;
/// Maximum details, which are pairs of name and value, in one recorded operator action.
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
pub const MODEL_CALLS_DEFAULT: u64 = 1_000;
pub const TOKENS_DEFAULT: u64 = 10_000_000;
/// Highest configurable money budget, in the currency unit of the configured prices.
pub const MONEY_CEILING: f64 = 1e9;
pub const WALL_TIME_DEFAULT: Duration = Duration::from_secs(24 * 3600);
pub const CHILDREN_CEILING: u32 = 10_000;
pub const THREADS_CEILING: u32 = 1_000_000;
pub const MESSAGES_CEILING: u64 = 100_000_000;
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
/// Default maximum number of calls that wait for one listener; further callers get `busy`.
pub const BACKLOG_DEFAULT: usize = 10_000;
pub const TIMEOUT_CEILING: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest configurable time for which a call waits for a person.
pub const PATIENCE_CEILING: Duration = Duration::from_secs(366 * 24 * 3600);
pub const CLIENT_KEY_TIME_CEILING: Duration = Duration::from_secs(10 * 366 * 24 * 3600);
pub const ATTEMPTS_CEILING: u32 = 100;
pub const CONCURRENCY_CEILING: u32 = 1_000;
pub const INSTANCES_CEILING: u32 = 256;
pub const BACKLOG_CEILING: u64 = 1_000_000;
pub const OUTCOME_PAYLOADS_MAX: usize = 1_000;
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Maximum bytes that an error message quotes from an unreadable answer.
pub const ANSWER_EXCERPT_BYTES_MAX: usize = 200;
/// Minimum time from a heartbeat of a listener to the time-out of the listener's running attempt.
/// For a listener that makes model calls, this time is the listener's own timeout instead.
pub const HEARTBEAT_EXTENDS: Duration = Duration::from_secs(30);
/// Maximum restarts of a child process within [`RESTART_WINDOW`].
pub const RESTARTS_MAX: u32 = 5;
pub const RESTART_WINDOW: Duration = Duration::from_secs(60);
/// Time for which a listener's process is not started after its program was missing, or after
/// [`RESTARTS_MAX`] restarts. This time is at most half of [`TIMEOUT_DEFAULT`]. So if a call with
/// the default time-out waits for the start, at least half of its time-out remains.
pub const RESTART_REST: Duration = Duration::from_secs(30);
/// Default maximum number of consecutive failed rounds of one call. A round is the set of results,
/// for example of further calls, that one delivery gives to the call's listener. A round has failed
/// if every result in it is a failure.
pub const ROUNDS_FAILED_DEFAULT: u32 = 20;
pub const ROUNDS_FAILED_CEILING: u32 = 10_000;
/// Number of consecutive failed rounds of a call (see [`ROUNDS_FAILED_DEFAULT`]). After this
/// number, organism delays further deliveries of results to the call's listener. This does not
/// apply to agents.
pub const ROUNDS_FAILED_BACKOFF: u32 = 3;
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Time after the last failure to accept a connection on a socket. From then on, an accepted
/// connection ends the series of failures, and a failure begins a new one.
pub const ACCEPT_FAILURES_END: Duration = Duration::from_secs(5);
/// Delay before the first probe of a listener that did not accept a delivery. A probe is a further
/// attempt to deliver. The delay doubles with each probe.
pub const PROBE_FIRST: Duration = Duration::from_millis(100);
/// Maximum delay between two probes of a listener that did not accept a delivery. See
/// [`PROBE_FIRST`].
pub const PROBE_MAX: Duration = Duration::from_secs(5);
/// Time limit of a probe, which is a delivery to a listener that did not accept an earlier one. A
/// probe counts as accepted if it is not returned as undeliverable within this time.
pub const ABSENT_PROBE_TIMEOUT: Duration = Duration::from_secs(1);
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that a stopping pump waits until its agents have reported what their interrupted
/// model calls have used. Also the maximum time in which the cancellations of this pump's
/// unfinished deliveries must reach the NATS server.
pub const STOPPED_TURNS_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for which a listener may continue to handle a call that was cancelled.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// Maximum number of threads with open calls that an organism lists when it stops.
pub const LEFT_OPEN_SHOWN: usize = 8;
/// Maximum time that a child process may take to exit after its standard input was closed. If the
/// process does not exit, it gets SIGTERM, and again as much time to exit.
pub const EXIT_GRACE: Duration = Duration::from_secs(2);
/// Time between the end of a child process and the search for orphans, which are detached processes
/// that have become children of this program. An orphan that has ended stays a zombie until this
/// search.
pub const ORPHAN_REAP_DELAY: Duration = Duration::from_millis(100);
/// Time in which a child process may exit by itself after unsolicited output. Then it is killed.
/// If the process exits in time, its exit code and its last line on standard error describe
/// the failure. The time is enough for an interpreted program that printed an error, and hardly
/// delays the replacement of a program that keeps running.
pub const UNSOLICITED_EXIT_GRACE: Duration = Duration::from_millis(100);
/// Number of stray answers at which a child process is replaced, or an attempt on NATS counts as
/// crashed. An attempt is one hand-over of a call.
///
/// - An answer of a child process is stray if it does not name the attempt that the process
///   handles.
/// - An answer on NATS is stray if it does not name the attempt to whose subject it was sent.
pub const STRAY_ANSWERS_MAX: u32 = 3;
/// Number of frames that a host reads in a row from a child process before it checks for commands,
/// such as a cancellation.
pub const CHILD_FRAMES_IN_ROW_MAX: u32 = 64;
/// Maximum passes that end the leftover processes of an earlier pump at start-up. Each pass after
/// the first ends the processes that survived the previous pass.
pub const LEFTOVER_PASSES_MAX: usize = 5;
/// Maximum time in which the end of the program ends the processes that listeners have detached.
/// Each generation of these processes takes one look at all processes of the machine.
pub const ORPHANS_END_TIMEOUT: Duration = Duration::from_secs(10);
pub const STDERR_LINE_BYTES_MAX: usize = 8 << 10;
/// Maximum characters of a crashed process's last line on standard error, as the failure report
/// contains it.
pub const LAST_STDERR_LINE_CHARS_MAX: usize = 200;

// Agents.
pub const ITERATIONS_DEFAULT: u32 = 10;
pub const ACTIONS_PER_TURN_DEFAULT: u32 = 1;
pub const ITERATIONS_CEILING: u32 = 1_000;
pub const ACTIONS_PER_TURN_CEILING: u32 = 100;
/// Number of bytes of a streaming turn that are collected and then scanned together. The bytes are
/// collected because each scan has a fixed cost.
pub const READ_AT_ONCE_BYTES: usize = 2 << 10;
/// Maximum characters of a native tool's name. Every provider accepts names of this length.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

// Configs.
pub const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Number of bytes at the start of a program in which the kernel looks for its interpreter.
pub const INTERPRETER_LINE_BYTES: u64 = 256;
/// Maximum bytes of a recording that is copied into a stored config. A recording contains the turns
/// that a playback model plays. If the recording is larger, the stored config contains only its
/// digest.
pub const STORED_RECORDING_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of one chunk of a recorded turn that playback streams. The chunks are small, so
/// that tests get a stream of several chunks.
pub const PLAYBACK_CHUNK_BYTES: usize = 24;
pub const PLAYBACK_CHUNK_DELAY_MAX: Duration = Duration::from_secs(10);

// Models.
pub const MODEL_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from a model request to the first byte of its response. Providers read a long
/// prompt before they respond.
pub const MODEL_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum time between two bytes of a model response.
pub const MODEL_STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub const MODEL_TOTAL_TIMEOUT: Duration = Duration::from_secs(600);
pub const MODEL_TIMEOUT_CEILING: Duration = Duration::from_secs(24 * 3600);
/// Time limit for a connection to one address of a host name that has several addresses. The last
/// address has no such limit.
pub const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum bytes of one line of an event stream. A server may send a whole answer as one line.
pub const STREAM_LINE_BYTES_MAX: usize = STREAM_EVENT_BYTES_MAX;
/// Maximum bytes of one event of an event stream. Escapes in JSON make an event longer than its
/// part of the answer, so this maximum is twice [`ANSWER_BYTES_MAX`].
pub const STREAM_EVENT_BYTES_MAX: usize = 2 * ANSWER_BYTES_MAX;
/// Maximum bytes of text, reasoning and native calls together in one response of a model.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes on the wire for one response of a model.
pub const STREAM_BYTES_MAX: usize = 1 << 30;
pub const NATIVE_CALLS_MAX: usize = 256;
/// Maximum bytes of the name of a native call that are recorded.
pub const NATIVE_NAME_BYTES_MAX: usize = 1 << 10;
/// Maximum bytes of the id of a native call, written as an attribute in XML. Some gateways add the
/// signature of the model's reasoning to the id. The note of a turn holds the id and the name in
/// one tag. An escape of the name has up to six bytes, and a KiB is left for the rest of the tag.
pub const NATIVE_ID_BYTES_MAX: usize = XML_TAG_BYTES_MAX - 6 * NATIVE_NAME_BYTES_MAX - (1 << 10);
/// Maximum provider-specific blocks in one response of a model.
pub const PROVIDER_BLOCKS_MAX: usize = 256;
/// Maximum bytes that are read from an HTTP response that is no event stream.
pub const ERROR_BODY_BYTES_MAX: usize = 16 << 10;
/// Maximum routes whose errors the error of a model call states, beside the route that decides
/// whether a retry may help.
pub const OTHER_ROUTES_SHOWN: usize = 2;
/// Maximum characters of a server's error message that organism shows.
pub const ERROR_MESSAGE_CHARS_MAX: usize = 400;
/// Maximum bytes of an HTTP response's head, and of each line between the chunks of its body.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 << 10;
pub const HTTP_HEADERS_MAX: usize = 128;
/// Bytes of the read buffer for HTTP responses.
pub const HTTP_READ_BYTES: usize = 16 << 10;
/// Maximum bytes of a proxy's response to a request for a tunnel.
pub const PROXY_HEAD_BYTES_MAX: usize = 8 << 10;
pub const KEY_BYTES_MAX: usize = 8 << 10;
/// Minimum bytes of an API key that is removed from model answers. A shorter key is not removed,
/// because it is often a common word, such as `ollama`, that an answer may contain by chance.
pub const KEY_BYTES_HIDDEN_IN_ANSWERS: usize = 16;
/// Minimum bytes of an API key that is removed from error messages. A shorter key is not removed.
pub const KEY_BYTES_HIDDEN_IN_ERRORS: usize = 4;
/// Maximum tokens of the answer to a test call of `organism models --try`. The number leaves room
/// for the reasoning before a short answer, because OpenAI refuses a call whose reasoning alone
/// reaches the maximum. The model's setting `thinking_tokens` adds its tokens.
pub const PROBE_ANSWER_TOKENS_MAX: u32 = 1_024;
/// Default maximum tokens of an answer, for wire formats that require a maximum.
pub const ANSWER_TOKENS_DEFAULT: u32 = 8_192;
/// Estimated tokens that a model API adds to the input of a model: once for each message, once for
/// each tool, and once for the system prompt.
pub const FRAMING_TOKENS: u64 = 8;
/// Percentage added to an estimated number of tokens if organism lacks the vocabulary of the model.
/// The estimate then uses OpenAI's vocabulary of 2024. Most other vocabularies are smaller, and so
/// split a text into more tokens.
pub const ESTIMATE_MARGIN_PERCENT: u64 = 20;
/// Estimated tokens of the short text that replaces an oversized result in a prompt.
pub const STUB_TOKENS: u64 = 64;
/// Minimum configurable number of thinking tokens; providers refuse smaller numbers.
pub const THINKING_TOKENS_MIN: u32 = 1_024;
pub const ANSWER_TOKENS_CEILING: u32 = 10_000_000;
/// Highest configurable price of a million tokens.
pub const PRICE_CEILING: f64 = 1e6;
pub const CONTEXT_TOKENS_CEILING: u64 = 1_000_000_000;
/// Maximum tokens of one attempt, in its prompts and answers together. An attempt may make several
/// requests to its model, and a provider may report up to [`TOKENS_CEILING`] for each one.
pub const ATTEMPT_TOKENS_MAX: u64 = TOKENS_CEILING * MODEL_RESERVATIONS_MAX as u64;
/// Maximum cost of one attempt, in billionths of the currency unit.
pub const ATTEMPT_MONEY_NANO_MAX: u64 = MONEY_CEILING as u64 * 1_000_000_000;
/// Default number of rounds in which a call tries the routes of a model. If all rounds fail, the
/// call reports the error of its last request.
pub const MODEL_ATTEMPTS_DEFAULT: u32 = 3;
pub const MODEL_ATTEMPTS_CEILING: u32 = 20;
/// Maximum reservations of one attempt of a call. Each one is a record. A correct agent reserves
/// before each request to its model, and so makes fewer: it tries each route in each round.
pub const MODEL_RESERVATIONS_MAX: u32 = 1_000;
pub const MODEL_BACKOFF_FIRST: Duration = Duration::from_millis(500);
pub const MODEL_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest wait that a provider may request with `Retry-After`. A response that requests a longer
/// wait counts as a refusal.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);
pub const MODEL_CONCURRENCY_DEFAULT: u32 = 64;
pub const MODEL_CONCURRENCY_CEILING: u32 = 10_000;
pub const TOKENS_PER_MINUTE_CEILING: u64 = 1_000_000_000;
/// Lowest rate, in percent of the configured rate, to which the rate limiter adapts.
pub const TOKENS_PER_MINUTE_FLOOR_PERCENT: u64 = 5;
pub const ROUTES_MAX: usize = 32;

// Pump and journal.
/// Maximum bytes of a submission. A submission below this limit may still be too large for a
/// payload. The pump then refuses the submission and records the refusal.
pub const SUBMISSION_BYTES_MAX: usize = 8 << 20;
/// Maximum bytes of a Unix socket's path that every operating system accepts.
pub const SOCKET_NAME_BYTES: usize = 100;
/// Maximum submissions of one client into one thread that the pump handles at once; further
/// submissions wait.
pub const SUBMISSIONS_AT_ONCE: usize = 8;
/// Maximum submissions of one client into new threads that the pump handles at once; further
/// submissions get `busy`.
pub const NEW_THREADS_AT_ONCE: usize = 1_024;
/// Maximum requests (submissions, decisions, queries) that wait in the inbox of a pump. If the
/// inbox is full, further submissions and decisions get `busy`, and further queries wait for room.
pub const INBOX_REQUESTS_MAX: usize = 4_096;
/// Maximum connections that the control socket serves at once; further connections get `busy`.
pub const CONTROL_CONNECTIONS_MAX: usize = 256;
/// Number of file descriptors that each process of a listener takes: its three standard streams,
/// and on Linux one that refers to the process.
pub const LISTENER_FILES: u64 = 4;
/// Number of file descriptors that an organism takes beside those of its listeners, with some
/// connections.
pub const ORGANISM_FILES: u64 = 64;
/// Maximum connections at the control socket that all hosted processes have at once. The number is
/// less than [`CONTROL_CONNECTIONS_MAX`], so that connections of listeners do not prevent commands
/// from connecting. Further connections are closed.
pub const HOSTED_CONNECTIONS_MAX: usize = CONTROL_CONNECTIONS_MAX / 2;
/// Maximum connections at the control socket that the processes of one listener have at once. The
/// number is less than [`HOSTED_CONNECTIONS_MAX`], so that one listener does not prevent the other
/// listeners from connecting. Further connections are closed.
pub const LISTENER_CONNECTIONS_MAX: usize = HOSTED_CONNECTIONS_MAX / 2;
/// Maximum number of connections to which the control socket answers `busy` at the same time. While
/// so many are open, further connections wait to be accepted.
pub const CONTROL_REFUSALS_AT_ONCE: usize = 16;
/// Delay after which a client should repeat a request that got the response `busy`.
pub const BUSY_RETRY: Duration = Duration::from_millis(500);
/// Maximum time that a command waits for an organism that is starting or stopping. This time is
/// longer than the time for which a stopping organism waits for its deliveries in flight.
pub const ORGANISM_WAIT_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval at which a command checks for an organism that is starting or stopping.
pub const ORGANISM_WAIT_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which a running organism checks whether the file of its control socket is still
/// there.
pub const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which a long-running command, such as `organism run` or `organism host`, checks
/// whether its organism or its agents have ended.
pub const HOST_END_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time for which a command connects again to a control socket in order to reach the
/// process that holds the journal's lock. While a pump takes over the journal, another process may
/// serve the socket: a process whose pump has failed serves it until it has noticed this, at most
/// [`HOST_END_POLL_INTERVAL`] later. After this time, the command reports that the wrong process
/// serves the socket.
pub const SOCKET_TAKEOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time that a command waits for the control socket of an organism that has announced its
/// start.
pub const ANNOUNCED_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a command at the control socket to send its request. The same limit applies to
/// reading each line of the response.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that a pump may take to answer a query, or an operator's request such as a pause.
/// After this time, the sender gets an error, and an operator's request is withdrawn unless the
/// pump has already taken it.
pub const PUMP_RULING_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a response on the control socket after which a command checks for the first time
/// whether the organism still responds to other requests.
pub const SOCKET_SILENCE_FIRST: Duration = Duration::from_secs(3);
/// Maximum interval between two checks of whether the organism still responds, while a request on
/// the control socket gets no response. The interval doubles after each check.
pub const SOCKET_SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time-out of a check of whether the organism still responds. An organism that does not respond in
/// this time counts as stopped.
pub const SOCKET_PROBE_TIMEOUT: Duration = Duration::from_secs(7);
/// Time-out of a check of whether the organism still responds, if the organism has already
/// responded to the command's request. The organism may then have accepted the request. So this
/// time-out is longer than `SOCKET_PROBE_TIMEOUT`, and allows for a machine that stands still for
/// some time, for example for a backup.
pub const SOCKET_PROBE_LATER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time to read why the organism has closed a control connection without taking the
/// request. A connection that has broken contains no reason.
pub const SOCKET_REASON_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum idle time of a control connection that a client reuses. The time is shorter than
/// [`CONTROL_TIMEOUT`], after which the server closes the connection.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(10);
/// Maximum time for which each step of a test case waits until the run is idle.
pub const CASE_STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a command's query for held calls. If the query times out, the command reads the
/// journal instead. The timeout is longer than [`PARTITION_TIMEOUT`], so that the query can still
/// state why no pump responds.
pub const HELD_CALLS_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum time that a command waits for new records if the organism has several partitions. After
/// this time, the command looks for new records itself, because the organism's process on this host
/// reports only the records of the partitions that it follows.
pub const PARTITIONED_WAIT_MAX: Duration = Duration::from_secs(1);
/// Timeout of a query for the running config. Commands that only display data send this query.
/// They wait as long, in place of [`SOCKET_TAKEOVER_TIMEOUT`], for a pump that takes over.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum copies of redacted payloads that a repair names on a terminal. JSON names all of them.
pub const COPIES_SHOWN_MAX: usize = 50;
/// Maximum response lines queued for one command at the control socket.
pub const CONTROL_LINES_MAX: usize = 64;
/// Maximum time that a process tries to lock a journal before it reports the holder of the lock.
pub const LOCK_TIMEOUT: Duration = Duration::from_millis(400);
pub const LOCK_RETRY: Duration = Duration::from_millis(10);
/// Maximum commands from the inbox of a pump that the pump handles together in one group commit.
pub const GROUP_COMMIT_MAX: usize = 256;
/// Minimum length of a standstill that a pump records. The recorded time does not count towards
/// time-outs. A pump stands still if its process is suspended or the machine sleeps. Setting the
/// clock forward has the same effect.
pub const STANDSTILL_MIN: Duration = Duration::from_secs(1);
/// Interval at which a pump checks whether it stood still (see [`STANDSTILL_MIN`]).
pub const STANDSTILL_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum number of awaited calls at which a pump removes the entries of clients that have stopped
/// waiting. An awaited call is one for whose end at least one client waits.
pub const WAITERS_SWEEP_MIN: usize = 1_024;
/// Maximum number of unsettled messages in one pump. A message is unsettled until the journal
/// records how it ended. Two kinds of messages do not count:
///
/// - the requests of held calls,
/// - some messages of trees whose open calls all wait for persons or timers: see
///   [`WAITING_MESSAGES_PER_CALL_MAX`].
pub const IN_FLIGHT_MAX: usize = 100_000;
/// Number of messages that do not count towards [`IN_FLIGHT_MAX`], for each call that is held or
/// has a timer. This applies only to trees whose open calls all wait for persons or timers. Further
/// messages of such a tree count, so that a listener cannot collect messages without bound before
/// it waits.
pub const WAITING_MESSAGES_PER_CALL_MAX: usize = 16;
/// Maximum timers that fire in one group commit.
pub const TIMERS_PER_COMMIT_MAX: usize = 256;
/// Interval at which a pump with too many unsettled messages nevertheless fires some of the due
/// timers. The pump must fire them, because the unsettled messages may wait for a timer.
pub const TIMERS_WHILE_FULL_INTERVAL: Duration = Duration::from_millis(500);
/// Length of the period in which a pump records all `busy` refusals of one client as one count.
pub const BUSY_INTERVAL: Duration = Duration::from_secs(10);
/// Number of records after which a checkpoint is due.
pub const CHECKPOINT_RECORDS: u64 = 1_000;
/// Time after which a checkpoint is due if records have been written.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which a pump stops if its journal's file was moved away from its path, removed or
/// replaced, and is not back by then.
pub const JOURNAL_DISPLACED_AFTER: Duration = Duration::from_secs(2);
/// Maximum checkpoints that a reader of a journal's records keeps in memory to compare with them.
pub const INNER_CHECKPOINTS_READ: usize = 1_000;
/// Maximum bytes of a line in a checkpoint file. The bytes of a line after these are dropped, so a
/// longer line counts as damaged or blank.
pub const CHECKPOINT_LINE_BYTES_MAX: u64 = 4_096;
/// Bytes of a checkpoint file that are read at once.
pub const CHECKPOINT_BLOCK_BYTES: usize = 64 * 1024;
/// Maximum bytes that a start reads from the end of a file with copied checkpoints. They contain
/// some 2,600 checkpoints.
pub const CHECKPOINT_COPIES_END_BYTES: u64 = 1024 * 1024;
/// Total time that a start waits for the copied checkpoints before the end of their file. After this
/// time, it does not compare the journal with the rest of them.
pub const EARLIER_COPIES_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum copied checkpoints after the end of a projection that are kept in memory. They are
/// compared with the records while the projection catches up with its stream.
pub const COPIES_AHEAD_MAX: usize = 10_000;
/// Delay after a failure to copy a checkpoint, before the copy is tried again.
pub const CHECKPOINT_COPY_RETRY: Duration = Duration::from_secs(10);
/// Maximum time to wait for the copies of checkpoints when a journal is closed, or when a journal
/// that a pump uses is verified.
pub const CHECKPOINT_COPY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum checkpoints that wait to be copied. Beyond this number, the oldest of them leaves the
/// queue without a copy.
pub const CHECKPOINT_COPIES_WAITING_MAX: usize = 10_000;
/// Number of records after which the table of trees in SQLite is updated. Readers must scan all
/// records that are newer than the table.
pub const TREES_REFRESH_RECORDS: u64 = 10_000;
/// Size of SQLite's write-ahead log, in bytes, at which the contents of the log are moved into the
/// database file.
pub const WAL_BYTES: usize = 40 << 20;
/// Size of SQLite's write-ahead log, in bytes, at which the journal's writer waits until the log is
/// moved into the database file.
pub const WAL_BYTES_MAX: usize = 4 * WAL_BYTES;
/// Maximum capacity in bytes that each encoding buffer of the journal keeps for the next commit. A
/// larger buffer is shrunk after its commit.
pub const ROWS_KEPT_BYTES: usize = 1 << 20;
pub const JOURNAL_PAGE_BYTES: usize = 8 << 10;
/// Maximum time that a commit waits while another program's SQL statement locks the journal.
pub const JOURNAL_BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum records that a journal scan reads in one transaction. During a longer transaction,
/// SQLite could not empty the write-ahead log.
pub const SCAN_RECORDS: u64 = 1_000;
/// Number of records that a journal scan reads, parses and checks as one chunk. These records fit
/// into the processor's caches.
pub const SCAN_CHUNK_RECORDS: u64 = 128;
/// Maximum chunks of records queued by each worker of a journal scan.
pub const SCAN_CHUNKS_AHEAD: usize = 8;
pub const SCAN_WORKERS_MAX: usize = 8;

/// Maximum queued reports to one client about waiting calls of a tree. A client gets such reports
/// while it waits for a call of this tree. Further reports are dropped.
pub const CALL_WAITS_MAX: usize = 64;
/// Minimum time that a model call is in one state before the pump reports this state to clients.
/// The report goes to the clients that wait for a call of the tree to which the model call belongs.
pub const CALL_WAIT_REPORT_AFTER: Duration = Duration::from_secs(2);
/// Delay before the pump first checks for stalled calls: calls that are ready but not handed over.
/// The pump reports stalled calls to the waiting clients. The delay doubles with each check, up to
/// [`STALLED_CALL_LOOK_MAX`].
pub const STALLED_CALL_LOOK_FIRST: Duration = Duration::from_secs(2);
/// Maximum delay between two checks for stalled calls, which are ready but not handed over.
pub const STALLED_CALL_LOOK_MAX: Duration = Duration::from_secs(16);
/// Interval at which the pump looks for model calls that have reached [`CALL_WAIT_REPORT_AFTER`],
/// so that it can inform the waiting clients.
pub const CALL_WAIT_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum events of the live channel that are queued for one reader; at most half of them may be
/// text. Further events are dropped.
pub const LIVE_EVENTS_MAX: usize = 512;
/// Maximum bytes of the events queued for one reader of the live channel. Text may take at most
/// half of these bytes.
pub const LIVE_QUEUE_BYTES: usize = 512 << 10;
/// Maximum bytes of text in one event of the live channel.
pub const LIVE_TEXT_BYTES: usize = 4 << 10;
/// Maximum bytes of a model's text that a view of a run keeps, from the end of the text.
pub const LIVE_SHOWN_BYTES: usize = 4 << 10;
/// Interval at which the view of a run is redrawn while events arrive.
pub const RUN_VIEW_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time that a reader of the live channel waits for each further event after the organism
/// has ended. Also the maximum time by which an agent's host delays an answer in order to send the
/// model's queued texts first.
pub const LIVE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum delay before a reader of the live channel repeats a subscription that the pump of a
/// partition refused.
pub const LIVE_REFUSED_RETRY_MAX: Duration = Duration::from_secs(60);
/// Interval at which a pump repeats its request for the texts that models stream. While its live
/// channel has readers, the pump sends this request to the hosts of its agents.
pub const LIVE_INTEREST_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum pumps to which one host of agents sends the texts that models stream.
pub const LIVE_PUMPS_MAX: usize = 256;
/// Validity of a pump's request for the texts that models stream. A host of agents sends texts to
/// the pump until this time has passed without another request.
pub const LIVE_INTEREST_VALIDITY: Duration = Duration::from_secs(4);
/// Longest pause that a provider can request for a model route.
pub const MODEL_PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Interval at which a model call checks for the end of a provider's pause.
pub const MODEL_PAUSE_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest interval between two reports about the progress of a model call. The interval is an
/// eighth of the call's timeout, if that is shorter.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

// HTTP.
/// Maximum open connections to the HTTP server for health and metrics; further connections wait to
/// be accepted.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// Maximum time for a client of the HTTP server for health and metrics to send the head of a
/// request. Also the maximum idle time of a connection.
pub const HTTP_HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for which a response to a client of the HTTP server or of the web view may wait for
/// room in the send buffer. The time is long, because a full buffer has room only after the client
/// has taken about a third of it.
pub const HTTP_WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for which bytes from the HTTP server or the web view may stay unacknowledged, or
/// wait for room on the client's machine. After this time, the connection ends, because the
/// client's network may be gone. The time is not less than [`HTTP_WRITE_TIMEOUT`], because the
/// machine of a slow client may have no room for that long.
pub const HTTP_ACK_TIMEOUT: Duration = HTTP_WRITE_TIMEOUT;
/// Maximum concurrent queries of the web view to indexes; further queries wait.
pub const WEB_QUERIES_MAX: usize = 4;
/// Maximum number of calls that the web view skips to show a later page of its list of waiting
/// calls. The web view cannot show calls further down the list.
pub const WEB_WAITING_MAX: usize = 1_000_000;
/// Default number of rows of a list in the web view; the URL may state another number.
pub const WEB_PAGE_ROWS: usize = 100;
/// Number of threads that the page of costs in the web view lists, costliest first.
pub const WEB_COSTLIEST_THREADS: usize = 20;
/// Maximum rows of a list in the web view. Browsers draw longer lists slowly.
pub const WEB_ROWS_MAX: usize = 500;
/// Default number of messages on a page of a thread in the web view; the URL may state another
/// number.
pub const WEB_PAGE_MESSAGES: usize = 200;
/// Number of earlier messages that a page shows before a message, if a link to the message opened
/// the page.
pub const WEB_CONTEXT_MESSAGES: u64 = 20;
/// Maximum lines of a payload that a conversation in the web view shows.
pub const WEB_EXCERPT_LINES: usize = 40;
/// Maximum characters of a payload that a conversation in the web view shows.
pub const WEB_EXCERPT_CHARS: usize = 4_000;
/// Maximum attempts of one call that a timeline of the web view shows. The same maximum applies to
/// the call's turns, and to the periods in which the call waited for a person.
pub const WEB_CALL_SPANS: usize = 200;
/// Maximum findings that the web view shows beneath one line of a model's text.
pub const WEB_LINE_FINDINGS: usize = 20;
/// Length of the period, up to the present, in which the web view counts messages to show the
/// message rate of each listener.
pub const WEB_RATE_TIME: Duration = Duration::from_secs(600);
/// Maximum messages that the web view counts to show the message rates of listeners.
pub const WEB_RATE_MESSAGES: u64 = 50_000;
/// Maximum open calls that the web view counts to show how many calls a pause, a cancellation or a
/// resume would concern.
pub const WEB_OPEN_CALLS_COUNTED: u64 = 2_000;
/// Maximum failures at the top of the web view's page of refusals and failures.
pub const WEB_LAST_FAILURES: usize = 20;
/// Maximum length, in characters, of the failure reason that a list in the web view shows.
pub const WEB_REASON_CHARS: usize = 300;
/// Maximum time for which the web view uses a config that it has loaded, if the config's own files
/// are unchanged. The web view notices changes of other files only after this time.
pub const WEB_CONFIG_AGE: Duration = Duration::from_secs(10);
/// Maximum number of records that the web view reads, from the end of a journal, to find the record
/// of an action that a person has just sent.
pub const WEB_RECEIPT_RECORDS: u64 = 200;
/// Maximum number of records to which the receipt of an action links. An action that sends several
/// requests has a record for each.
pub const WEB_RECEIPT_LINKS: usize = 5;
/// Maximum refused payloads that the web view shows with a held call. The refused payloads come
/// from the same turn of the model as the call.
pub const WEB_TURN_REFUSALS: usize = 3;
/// Maximum refusals that the page of the listeners shows.
pub const WEB_LAST_REFUSALS: usize = 20;
/// Maximum number of expanded branches in a tree of threads on a page of the web view.
pub const WEB_OPEN_BRANCHES: usize = 50;
/// Maximum number of goals of a workflow that the web view draws as a graph. For a workflow with
/// more goals, the page shows only the table of goals.
pub const WEB_DRAWN_GOALS: usize = 300;
/// Maximum number of links that a page of the web view shows to the threads of one goal.
pub const WEB_GOAL_THREADS: usize = 20;
/// Maximum lanes of a sequence diagram in the web view; further listeners share the last lane.
pub const WEB_LANES_MAX: usize = 24;
/// Maximum characters of a name in a drawing of the web view.
pub const WEB_LABEL_CHARS: usize = 24;
/// Maximum lines of a diff in the web view.
pub const WEB_DIFF_LINES: usize = 200;
/// Maximum bytes of a payload that the web view parses into elements.
pub const WEB_READ_BYTES: usize = 256 << 10;
/// Maximum characters of an unformatted payload in the web view.
pub const WEB_RAW_CHARS: usize = 100_000;
/// Maximum number of calls waiting for a person that the web view counts. If at least this many
/// calls wait, the frame of each page shows `99+`.
pub const WEB_WAITING_COUNTED: u64 = 100;
/// Minimum interval at which the web view looks for an organism on the same machine.
pub const WEB_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum records of a tree for three views: an earlier state of a thread, a graph of goals, and a
/// comparison of threads. To show such a view, the web view reads all records of the tree. For a
/// tree with more records, it shows none of the three views.
pub const WEB_PAST_RECORDS: u64 = 20_000;
/// Maximum records of a journal that the web view itself verifies. For a longer journal, the web
/// view names the commands that verify it.
pub const WEB_PROOF_RECORDS: u64 = 1_000_000;
/// Niceness of the OS thread that verifies the journals for the web view. On a busy machine, the
/// verification gets hardly any processor time.
pub const WEB_PROOF_NICENESS: i32 = 19;
/// Minimum time between two verifications of the journals by the web view.
pub const WEB_PROOF_AGE: Duration = Duration::from_secs(60);
/// Maximum number of records from a thread's oldest waiting call to the end of the journal. If
/// there are more, the page of the thread does not show the contents of the thread's held calls.
pub const WEB_HELD_RECORDS: u64 = 20_000;
/// Maximum calls waiting for a person that the page of a thread lists at its top.
pub const WEB_NEEDS_YOU_MAX: usize = 10;
/// Maximum bytes of HTML on one page for payloads, prompts and reasons. Texts beyond this size are
/// left out.
pub const WEB_PAGE_BYTES: usize = 2 << 20;
/// Maximum open connections to the web view. Each live page occupies one connection. Further
/// connections wait to be accepted.
pub const WEB_CONNECTIONS_MAX: usize = 128;
/// Maximum live pages of a web view; further pages do not update by themselves.
pub const WEB_LIVE_PAGES_MAX: usize = 64;
const _: () = assert!(WEB_LIVE_PAGES_MAX * 2 <= WEB_CONNECTIONS_MAX);
/// Maximum number of live pages of one browser. A browser opens at most six connections to a host,
/// and each live page occupies one connection. The other connections stay free to load pages.
pub const WEB_LIVE_PAGES_OF_BROWSER_MAX: usize = 4;
/// Minimum time between two updates of a live page. The web view updates live pages when the
/// journals have grown.
pub const WEB_LIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before the web view looks again for a running organism, while a live page is open.
pub const WEB_LIVE_RETRY: Duration = Duration::from_secs(1);
/// Interval of keep-alive lines on the connection of a quiet live page.
pub const WEB_LIVE_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum drawn pages that the web view keeps. Live pages with the same address share one drawn
/// page.
pub const WEB_SHARED_PAGES_MAX: usize = 128;
/// Number of OS threads that serve the connections of a web view. Queries run on other OS threads.
pub const WEB_THREADS: usize = 2;
/// Niceness of a web view's OS threads. It is so high that a web view slows a pump on a busy
/// machine only a little.
pub const WEB_NICENESS: i32 = 10;
/// Maximum bytes of a certificate file or key file of the web view.
pub const WEB_TLS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum host names under which the web view can be reached.
pub const WEB_HOSTS_MAX: usize = 64;
/// Maximum bytes of an unsent form that the page for the token keeps. A form is unsent if it came
/// without a session.
pub const WEB_UNSENT_FORM_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a form with an action, such as an answer. The limit leaves room for the escapes
/// of the form's encoding.
pub const WEB_ACTION_BYTES_MAX: usize = 4 << 20;
/// Maximum number of fields in a payload for which the web view shows a form. If the payload has
/// more fields, a person must write XML.
pub const WEB_FORM_FIELDS_MAX: usize = 200;
/// Maximum actions that wait for a confirmation in the web view. Beyond this number, the oldest
/// action of the browser that has the most of them is dropped.
pub const WEB_PENDING_ACTIONS_MAX: usize = 32;
/// Time for which an action in the web view waits for its confirmation.
pub const WEB_CONFIRMATION_VALIDITY: Duration = Duration::from_secs(30 * 60);

// Telemetry.
/// Maximum spans that wait for export; further spans are dropped and counted.
pub const SPANS_QUEUED_MAX: usize = 8_192;
/// Maximum spans in one request to the trace collector.
pub const SPANS_SENT_MAX: usize = 512;
/// Number of full requests that a trace collector must accept before the next requests have twice
/// as many spans. Where the larger ones are always too large, only few requests are refused.
pub const SPANS_GROWTH_AFTER: usize = 16;
/// Maximum time that the first span of an export request waits for more spans.
pub const SPANS_WAIT: Duration = Duration::from_secs(1);
/// Timeout for name resolution, TCP and TLS handshake with the trace collector.
pub const COLLECTOR_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a whole request to the trace collector.
pub const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// First delay before the export repeats a request that the trace collector refused.
pub const COLLECTOR_BACKOFF_FIRST: Duration = Duration::from_millis(250);
/// Maximum delay before the export repeats a request that the trace collector refused.
pub const COLLECTOR_BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Maximum bytes that are read from the trace collector's response.
pub const COLLECTOR_ANSWER_BYTES_MAX: usize = 16 << 10;
/// Maximum time for the export of the last spans when the organism stops.
pub const SPANS_FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum characters of a model's name in a provider's response.
pub const MODEL_NAME_CHARS_MAX: usize = 128;

// Memory of agents and workflows.
/// Maximum trees for which a process keeps an index of the tree's records in memory. With this
/// index, the process can read one thread for a listener without a walk through the whole tree.
pub const MEMORY_TREES_MAX: usize = 10_000;
/// Maximum total bytes of the indexes of trees' records that a process keeps in memory. The index
/// that was read most recently stays in memory even if it alone exceeds this number.
pub const MEMORY_INDEX_BYTES_MAX: usize = 32 << 20;
/// Maximum shared records that the index of a tree keeps in memory. A record is shared if it opened
/// several threads, and was not yet read for all of them.
pub const MEMORY_SHARED_RECORDS_MAX: usize = 8;
/// Maximum total bytes of the shared records that the index of a tree keeps in memory. A record is
/// shared if it opened several threads, and was not yet read for all of them.
pub const MEMORY_SHARED_BYTES_MAX: usize = 8 << 20;
/// Maximum idle journal readers that are kept open to read threads for listeners.
pub const MEMORY_READERS_MAX: usize = 4;
/// Page cache, in KiB, of each journal reader that reads threads for listeners. The cache is small,
/// because each record is read about once.
pub const MEMORY_READER_CACHE_KIB: u32 = 128;
/// Maximum handlers that may block on the disk at the same time, such as handlers that read the
/// journal.
pub const BLOCKING_HANDLERS_MAX: usize = 4;
/// Maximum threads whose messages agents keep between turns.
pub const MEMORY_THREADS_MAX: usize = 1_024;
/// Maximum bytes of the messages that agents keep between turns. The messages of the thread with
/// the most recent turn are kept even if they alone exceed this number.
pub const MEMORY_THREADS_BYTES_MAX: usize = 32 << 20;

// Listeners that remember.
/// Maximum calls whose messages a listener with `remembers = true` keeps between deliveries.
pub const REMEMBERED_CALLS_MAX: usize = 1_024;
/// Maximum bytes of the messages that a listener with `remembers = true` keeps between deliveries.
pub const REMEMBERED_BYTES_MAX: usize = 16 << 20;

// Trees at rest.
/// Maximum trees at rest that a pump keeps in memory. A tree is at rest while it has no open call,
/// message or timer.
pub const RESTING_TREES_MAX: usize = 1_024;
/// Maximum number of threads that all trees at rest in a pump's memory have together.
pub const RESTING_THREADS_MAX: usize = 16_384;
/// Maximum number of waiting trees that a pump keeps in memory. A tree is waiting if all its open
/// calls wait for persons or timers. Further waiting trees move to the working file. The number is
/// much higher than [`RESTING_TREES_MAX`], because each query for all held calls must read the
/// trees in the working file.
pub const WAITING_TREES_MAX: usize = 16_384;
/// Maximum client keys that a pump keeps in memory. A client key is the key under which a client
/// may repeat a submission.
pub const RESTING_KEYS_MAX: usize = 4_096;
/// Number of trees, or of client keys, by which a pump may exceed a limit such as
/// [`RESTING_TREES_MAX`]. If the excess becomes larger, the pump moves all trees or keys above the
/// limit out of memory together.
pub const RESTING_BATCH: usize = 256;
/// Maximum held calls that a pump reads for one query. Longer lists take several queries.
pub const HELD_CALLS_BATCH: usize = 256;
/// Maximum trees, and maximum client keys, that a pump moves between its memory and the working
/// file at once.
pub const RESTING_ROUND_MAX: usize = 4096;
/// SQLite page cache of each working file, in KiB. A working file is a temporary database for data
/// that a pump moves out of its memory.
pub const RESTING_CACHE_KIB: usize = 1_024;
/// Number of latest uses of heads that decide which heads stay in memory. A head is the last record
/// of a tree. A use of a head is a new record of the head's tree, or the loading of the head into
/// memory. A head stays in memory if it has at least one of these latest uses.
pub const RESIDENT_HEADS: usize = 16_384;
/// Number of uses of heads, in addition to [`RESIDENT_HEADS`], after which a journal moves heads to
/// a working file. The journal then moves each head that has none of the latest [`RESIDENT_HEADS`]
/// uses. The number is large, so that each move writes many heads together.
pub const RESIDENT_HEADS_BATCH: usize = 1_024;
/// Maximum changed heads that a journal lists for the next update of the table of trees. If more
/// heads have changed, the update writes the whole table.
pub const UNSAVED_HEADS_MAX: usize = 131_072;
/// Number of leaves of a Merkle tree that enter and leave memory together.
pub const MERKLE_CHUNK_LEAVES: usize = 32;
/// Bytes of the Bloom filter that makes most lookups in a working file unnecessary.
pub const RESTING_FILTER_BYTES: usize = 1 << 20;
/// Maximum OS threads that hash a snapshot.
pub const SNAPSHOT_THREADS_MAX: usize = 8;
/// Number of bytes of a snapshot that are hashed as one block.
pub const SNAPSHOT_BLOCK_BYTES: usize = 1 << 20;
/// Maximum number of consecutive snapshots that are each made from the previous one. The next
/// snapshot is then made from every record.
pub const SNAPSHOT_GENERATIONS: u32 = 16;
/// Number of bytes of encoded trees and client keys that the writer of a snapshot collects before
/// it stores them in one transaction.
pub const SNAPSHOT_ROUND_BYTES: usize = 4 << 20;
/// Factor for the pause between two snapshots: the pause is this many times as long as the making
/// of the previous snapshot.
pub const SNAPSHOT_PAUSE: u32 = 4;
/// Interval at which an OS thread that waits for the background verification of a journal checks
/// whether it must stop.
pub const PROOF_WAIT_INTERVAL: Duration = Duration::from_millis(50);
/// Default number of records between two snapshots.
pub const SNAPSHOT_RECORDS: u64 = 100_000;
/// Highest configurable number of records between two snapshots.
pub const SNAPSHOT_RECORDS_CEILING: u64 = 1_000_000_000_000;

// NATS.
/// Maximum message size in bytes that generated NATS server configs set.
pub const NATS_PAYLOAD_BYTES: usize = 8 << 20;
/// Interval of a NATS server's pings that generated server configs set.
pub const NATS_SERVER_PING_INTERVAL: Duration = Duration::from_secs(5);
/// Number of unanswered pings that generated NATS server configs permit. With the next ping that is
/// due, the server disconnects the client.
pub const NATS_SERVER_PINGS_MAX: u32 = 2;
pub const NATS_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of NATS pings. A server that leaves two pings unanswered counts as unreachable, and the
/// client connects to another server. Without pings, the client would stay connected to a frozen
/// server.
pub const NATS_PING_INTERVAL: Duration = Duration::from_millis(700);
pub const NATS_BACKOFF_FIRST: Duration = Duration::from_millis(10);
pub const NATS_BACKOFF_MAX: Duration = Duration::from_millis(500);
/// Time without a blocking call on a NATS connection after which the connection's background OS
/// thread takes over the network traffic.
pub const NATS_IDLE_TAKEOVER: Duration = Duration::from_millis(5);
/// Maximum time for which a listener of the Rust kit handles queued deliveries before it uses its
/// NATS connection again.
pub const KIT_BATCH_TIME: Duration = Duration::from_millis(1);
/// Interval at which a listener of the Rust kit checks its stop flag while the send buffer of its
/// NATS connection is full.
pub const KIT_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a kit takes a subject as subscribed if no server responds that it has no
/// subscriber.
pub const KIT_PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum bytes of a listener's answer that a NATS host checks in the task that receives messages.
/// A longer answer is checked on another OS thread, so that it does not delay the messages of other
/// listeners.
pub const NATS_INLINE_CHECK_BYTES: usize = 64 << 10;
/// Interval at which the NATS host checks for silent listeners.
pub const NATS_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which a replica on NATS counts as alive after its last announcement. A replica
/// announces itself three times in this period.
pub const NATS_LEASE: Duration = Duration::from_secs(5);
/// Shortest lease that a replica on NATS may announce.
pub const NATS_LEASE_MIN: Duration = Duration::from_secs(1);
/// Time for which the host of a listener on NATS collects the lease lengths that the replicas
/// announce. The host begins to collect when a replica announces a shorter lease than the longest
/// known one, or when an attempt ends by that lease without any keep-alive. It then pings the
/// replicas, so that all of them announce their leases. After this time, the longest lease that the
/// host has collected applies, or none.
pub const NATS_LEASE_SURVEY: Duration = Duration::from_secs(60);
/// Maximum recent permission errors kept for each NATS connection.
pub const NATS_DENIALS_MAX: usize = 64;
/// Maximum number of distinct operations that one record about denied operations names. A denied
/// operation is one that the NATS servers did not permit to the pump or to a listener's programs.
pub const NATS_DENIED_OPERATIONS_MAX: usize = 8;
/// Maximum bytes of the subject in a report of a denied operation.
pub const NATS_DENIED_SUBJECT_BYTES_MAX: usize = 256;
/// Maximum number of different reasons that are logged for one outage of a NATS connection.
pub const NATS_OUTAGE_REASONS_MAX: usize = 32;
/// Timeout of a round trip to the NATS server, with which a client waits for the permission errors
/// of all its earlier operations.
pub const NATS_ROUND_TRIP: Duration = Duration::from_secs(2);
/// Pause between the messages of a round trip to the NATS server. A permission error that arrived
/// before a message is recorded in this time.
pub const NATS_SETTLE_PAUSE: Duration = Duration::from_millis(5);
/// Interval at which a process repeats a subscription that the servers deny.
pub const SUBSCRIBE_RETRY: Duration = Duration::from_secs(5);
/// Time for which a NATS connection does not publish to a subject after a permission error for that
/// subject.
pub const NATS_DENIED_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of ended attempts that the pump remembers for one NATS listener: this many without
/// an answer, and this many that were answered. The pump recognizes late and repeated answers to
/// these attempts only.
pub const NATS_LATE_MAX: usize = 1_000;

// Agents in separate processes.
/// Maximum bytes of one part of a thread or of an answer. An agent's host and the pump exchange
/// threads and answers in parts, with one part in each NATS message.
pub const NATS_PAGE_BYTES: usize = 512 << 10;
/// Timeout of one request from an agent's host to the pump.
pub const NATS_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before an agent's host repeats a request that no pump answered or that got `busy`.
pub const NATS_REQUEST_RETRY: Duration = Duration::from_millis(250);
/// Total time for which an agent's host repeats a request to the pump before the host gives up. The
/// agent's work is not lost in this case: if a pump was restarted during this time, it has
/// delivered the agent's call again.
pub const NATS_REQUEST_TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum concurrent requests that the pump serves from the hosts of one agent.
pub const NATS_REQUESTS_MAX: usize = 64;
/// Maximum findings of one turn that an agent's host reports.
pub const TURN_FINDINGS_MAX: usize = 10_000;
/// Maximum characters of the text in which an agent's host reports the failure of an attempt.
pub const FAILURE_CHARS_MAX: usize = 16 << 10;
/// Maximum bytes of an agent's answer over NATS. An answer consists of payloads and a note about
/// the model turn, escaped for JSON.
pub const NATS_ANSWER_BYTES_MAX: usize = 32 << 20;

/// Time for which a host of agents keeps a delivery whose config the host lacks. After this time,
/// the host returns the delivery, because another host may have the config by then.
pub const NATS_OTHER_CONFIG_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of configs for which a process that hosts agents accepts deliveries: the present
/// config, and the configs that the latest reloads replaced.
pub const AGENT_HOST_CONFIGS_MAX: usize = 4;
/// Maximum time that a NATS host waits for the server to confirm its subscriptions.
pub const NATS_SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

// The journal on JetStream.
/// Timeout of a JetStream request.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which the opening of a journal is repeated while JetStream is unavailable.
pub const STREAM_OPEN_TIMEOUT: Duration = Duration::from_secs(6);
/// Timeout of the small request that probes whether any NATS server responds.
pub const STREAM_PROBE: Duration = Duration::from_millis(300);
/// Bytes of a JetStream message that are reserved for its headers.
pub const STREAM_HEADER_BYTES: usize = 1 << 10;
/// Maximum number of JetStream messages that a reader of a stream requests at once.
pub const STREAM_READ_AHEAD: u64 = 32;
/// Maximum bytes of the JetStream messages that a reader of a stream requests at once. A NATS
/// connection does not buffer more.
pub const STREAM_READ_BYTES: u64 = 16 << 20;
/// Delay before the journal repeats a JetStream operation that has not succeeded, such as taking a
/// lease.
pub const STREAM_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a pump checks that its stream still exists and was not replaced.
pub const STREAM_CHECK_INTERVAL: Duration = Duration::from_millis(700);
/// Time for which a stream must be missing before it counts as lost. The servers of a cluster that
/// is starting may not know the stream yet.
pub const STREAM_GONE_AFTER: Duration = Duration::from_secs(2);
/// Maximum time to wait until other processes report the last records of their projections. Each
/// report is a lower bound for the length of a stream. Also the maximum time to read a block of the
/// copied checkpoints; the last of them is a lower bound, too.
pub const BOUNDS_TIMEOUT: Duration = Duration::from_secs(2);
/// Approximate size in bytes of a message with which `organism promote` copies records of a journal
/// into a stream.
pub const PROMOTION_GROUP_BYTES: usize = 256 << 10;
/// Maximum time that the move of a journal into a stream waits for a server that is unreachable or
/// full. A later run resumes the move.
pub const PROMOTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum replicas of a stream in a JetStream cluster.
pub const STREAM_REPLICAS_CEILING: u32 = 5;
pub const STREAM_NAME_BYTES_MAX: usize = 100;

// Several pumps.
pub const PARTITIONS_MAX: u32 = 64;
/// Maximum time that a request waits for a partition without a pump. The time is slightly longer
/// than a takeover takes.
pub const PARTITION_TIMEOUT: Duration = Duration::from_secs(10);
pub const PARTITION_RETRY: Duration = Duration::from_millis(50);
/// Interval at which a process announces its partitions to the other processes.
pub const MEMBER_ANNOUNCE_INTERVAL: Duration = Duration::from_millis(500);
/// Time without an announcement after which a process counts as gone.
pub const MEMBER_LAPSE: Duration = Duration::from_secs(2);
/// Maximum age of a process's latest announcement for which the process counts as running. A new
/// leader waits for a report from each running process. The age is less than [`LEASE_LAPSE`], so
/// that the leader does not wait for a dead process whose lease has lapsed.
pub const MEMBER_FRESH: Duration = Duration::from_millis(1_500);
/// Maximum processes that the membership table holds.
pub const MEMBERS_MAX: usize = 256;
/// Minimum time without a change in the processes or their partitions before a rebalance. In this
/// time, every process learns of the last change.
pub const REBALANCE_QUIET_TIME: Duration = Duration::from_millis(1_500);
/// Maximum time that a process waits for the heir of a partition to take the partition.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which no partition is offered to a process that failed to take over an offered
/// partition.
pub const HANDOVER_RETRY: Duration = Duration::from_secs(60);
/// Maximum time that a handover waits for the partition's deliveries in flight to end.
pub const HANDOVER_DRAIN: Duration = Duration::from_secs(30);
/// Interval of the keep-alives that a pump sends while it serves a request over NATS.
pub const SERVICE_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without a keep-alive after which a pump that serves a request over NATS counts as dead.
pub const SERVICE_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Timeout for the first keep-alive of a response over NATS. A pump sends the first keep-alive at
/// once.
pub const SERVICE_FIRST_KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a pump serves one request over NATS, so that it does not go on serving clients
/// that have left. A client that still waits after this time repeats its request.
pub const SERVICE_REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum requests over NATS that one partition serves at once.
pub const SERVICE_REQUESTS_MAX: usize = 10_000;
/// Maximum incomplete requests over NATS whose chunks a pump keeps.
pub const SERVICE_PARTIAL_REQUESTS_MAX: usize = 64;
/// Maximum time that a pump waits for the missing chunks of a request over NATS.
pub const SERVICE_PARTIAL_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of one chunk of a request or response over NATS.
pub const SERVICE_CHUNK_BYTES: usize = 512 << 10;
/// Maximum time for which a stopping organism waits, after its pump has ended, until the connections
/// of its control socket have sent their last responses.
pub const LAST_RESPONSES_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time that a stopping pump may take to send its last responses over NATS.
pub const SERVICE_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which an operator's signature is valid.
pub const SIGNATURE_VALIDITY: Duration = Duration::from_secs(5 * 60);
/// Maximum time by which the clock of an operator's machine may be ahead of the pump's clock.
pub const SIGNATURE_AHEAD_MAX: Duration = Duration::from_secs(60);
/// Smallest difference at which the pump's clock counts as ahead of the host's clock. If it is
/// ahead, the pump judges the time of a signature by the host's clock; otherwise, by its own clock.
pub const CLOCK_DIFFERENCE_MIN: Duration = Duration::from_secs(1);
/// Number of used signatures above which a pump forgets the expired ones. Up to this number, the
/// pump also remembers expired signatures. Otherwise, it could accept such a signature a second
/// time after the host's clock is set back.
pub const USED_SIGNATURES_KEPT: usize = 1_000;
/// Minimum characters of the passphrase that encrypts an operator's key.
pub const PASSPHRASE_CHARS_MIN: usize = 8;
/// Binary logarithm of the cost `N` of scrypt, which derives the key of an operator's file from the
/// passphrase. A guess takes 16 MiB. OpenSSL and Node refuse files that need more than 32 MiB.
pub const PASSPHRASE_SCRYPT_LOG_N: u8 = 14;
/// Block size `r` of scrypt for an operator's file.
pub const PASSPHRASE_SCRYPT_R: u32 = 8;
/// Parameter `p` of scrypt for an operator's file: how often scrypt repeats its work for one guess.
/// A guess then takes as long as with `N` = 2^17 and `p` = 1, which the pkcs8 crate recommends.
pub const PASSPHRASE_SCRYPT_P: u32 = 8;
/// Minimum entropy of a client's secret, in bits.
pub const SECRET_BITS_MIN: u32 = 128;
/// Minimum number of different characters in the secret of a client.
pub const SECRET_CHARS_MIN: usize = 8;
/// Maximum timers that one call may have.
pub const TIMERS_PER_CALL_MAX: usize = 64;
pub const TIMER_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

// Schedules.
/// Minimum time between the runs of a schedule.
pub const SCHEDULE_INTERVAL_MIN: Duration = Duration::from_secs(1);
pub const SCHEDULE_INTERVAL_CEILING: Duration = TIMER_MAX;
/// Maximum time by which a running pump may be late for a planned time of a schedule, for example
/// because its process was frozen or the clock was set forward. If the pump is later, it records
/// the planned time as missed.
pub const SCHEDULE_LATE_MAX: Duration = Duration::from_secs(60);
/// Highest configurable number of concurrent runs of one schedule.
pub const SCHEDULE_RUNS_CEILING: u32 = 1_000;

// Alerts.
pub const ALERT_COUNT_CEILING: u64 = 1_000_000;
/// Default number of refused payloads of one sender that raise an alert.
pub const ALERT_REFUSALS_DEFAULT: u64 = 20;
/// Default number of failed calls to one listener that raise an alert.
pub const ALERT_FAILURES_DEFAULT: u64 = 1;
pub const ALERT_WINDOW_DEFAULT: Duration = Duration::from_secs(5 * 60);
pub const ALERT_WINDOW_CEILING: Duration = Duration::from_secs(24 * 3600);
/// Default time for which a held call waits for a person before it raises an alert.
pub const ALERT_WAITING_DEFAULT: Duration = Duration::from_secs(15 * 60);
pub const ALERT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
pub const ALERT_TIMEOUT_CEILING: Duration = Duration::from_secs(5 * 60);
/// Maximum alerts of one kind that are raised within the time window that the config sets. Causes
/// beyond this number raise only one further alert, which counts them.
pub const ALERTS_PER_WINDOW_MAX: usize = 20;
/// Maximum concurrent commands of alerts in each pump.
pub const ALERT_COMMANDS_MAX: usize = 4;
/// Maximum reports of alerts that wait in each pump until the alert command runs for them. For
/// reports beyond this number, the command never runs.
pub const ALERTS_QUEUED_MAX: usize = 256;
/// Maximum bytes of an alert command's output that are kept for the log. The rest is discarded.
pub const ALERT_OUTPUT_BYTES_MAX: usize = 4 << 10;
/// Maximum time for which organism still reads the output of an alert command after the command has
/// ended. The output may stay open if the command started another process.
pub const ALERT_OUTPUT_WAIT: Duration = Duration::from_millis(200);
/// Maximum time for which a command waits at its end for blocking tasks, such as the read of a file
/// on a server that does not respond.
pub const RUNTIME_END_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for which a log line delays the work of a command that runs for long. After this
/// time, nothing seems to read the log, and lines are queued. If the queue is full, a line waits at
/// most as long for room there.
pub const STDERR_LINE_WAIT: Duration = Duration::from_millis(100);
/// Maximum bytes of the log lines that are queued while nothing reads the log.
pub const STDERR_QUEUE_BYTES_MAX: usize = 1 << 20;
/// Maximum time for which a command waits at its end until its queued log lines are written.
pub const STDERR_END_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that a stopping pump waits for the commands of alerts.
pub const ALERT_STOP_WAIT: Duration = Duration::from_secs(2);
/// Interval at which the organism checks for problems of its journal and of the journal's copies.
pub const ALERT_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Number of consecutive checks that must find a problem of the journal before an alert is raised.
/// The alert ends after the same number of consecutive checks without the problem.
pub const ALERT_CHECKS: u32 = 2;
/// Minimum lag of an index behind its journal that counts as a problem of the journal.
pub const ALERT_INDEX_LAG: Duration = Duration::from_secs(60);
/// Maximum number of records that a pump reads at its start to restore the raised alerts. These
/// records are in a reserved thread for records that belong to no tree.
pub const ALERT_RECALL_RECORDS_MAX: usize = 10_000;
/// Maximum number of earlier records from which a pump counts causes of alerts at its start.
pub const ALERT_LOOK_BACK_RECORDS_MAX: u64 = 100_000;
/// Maximum number of records that are read at once to find alerts.
pub const ALERT_PAGE_RECORDS: u64 = 500;
/// Maximum number of records of a tree that are read to find the request of a call.
pub const ALERT_REQUEST_RECORDS_MAX: usize = 1_000;

const STOP_SECONDS: u64 = DRAIN_TIMEOUT.as_secs() + 2 * STOPPED_TURNS_TIMEOUT.as_secs();
const _: () = assert!(ROUTES_MAX as u32 * MODEL_ATTEMPTS_CEILING <= MODEL_RESERVATIONS_MAX);
const _: () = assert!(STOP_SECONDS < ORGANISM_WAIT_TIMEOUT.as_secs());
const _: () = assert!(RESTART_REST.as_secs() * 2 <= TIMEOUT_DEFAULT.as_secs());
const _: () = assert!(SCHEMA_COMPILE_TIMEOUT.as_secs() <= SCHEMA_COMPILE_WALL_TIMEOUT.as_secs());
const _: () = assert!(PAYLOAD_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
// A submission crosses the control socket in base64. One MiB is added for the JSON around it.
const _: () = assert!(SUBMISSION_BYTES_MAX / 3 * 4 + (1 << 20) <= FRAME_BYTES_MAX);
const _: () = assert!(REFUSAL_HEAD_BYTES < PAYLOAD_BYTES_MAX);
const _: () = assert!(XML_TAG_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(TOOL_NAME_CHARS_MAX <= NATIVE_NAME_BYTES_MAX);
const _: () = assert!(LEAF_BYTES_MAX <= TURN_BYTES_MAX);
// The submissions of one client into new threads cannot fill the inbox of the pump.
const _: () = assert!(NEW_THREADS_AT_ONCE * 2 <= INBOX_REQUESTS_MAX);
const _: () = assert!(STREAM_LINE_BYTES_MAX <= STREAM_EVENT_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX <= ANSWER_BYTES_MAX && ANSWER_BYTES_MAX <= STREAM_BYTES_MAX);
const _: () = assert!(TURN_BYTES_MAX * 6 <= CORE_PAYLOAD_BYTES_MAX);
const _: () = assert!(2 * (CORE_PAYLOAD_BYTES_MAX + 2 * TURN_BYTES_MAX) <= NATS_ANSWER_BYTES_MAX);
const _: () = assert!(THREAD_DEPTH_DEFAULT as usize <= THREAD_DEPTH_CEILING);
