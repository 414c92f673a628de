//! Every bound of this listener, with its unit.

use std::time::Duration;

/// Maximum time of one search or query. After this time, the answer contains the matches found so
/// far.
pub const SEARCH_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum time for which a search or query sends heartbeats. Afterwards, the time-out ends the
/// call. The limit is needed because a regular expression may take very long for one very long
/// line.
pub const HEARTBEAT_TIME_MAX: Duration = Duration::from_secs(45);
/// Minimum bytes of a piece of a file. A file is searched piece by piece, and the search checks its
/// deadline between two pieces.
pub const PIECE_BYTES: usize = 16 << 10;
/// Maximum bytes of a compiled regular expression, as by default in the crate `regex`.
pub const REGEX_BYTES_MAX: usize = 10 << 20;
/// Maximum bytes of the states that a regular expression caches while it searches.
pub const REGEX_CACHE_BYTES: usize = 8 << 20;
/// Number of positions in a file at which a pattern is tried between two checks of the deadline.
pub const POSITIONS_PER_LOOK: usize = 64;
/// Maximum matching lines in one answer. Further lines are only counted.
pub const MATCHES_MAX: usize = 200;
/// Maximum matching lines that are counted before the search stops.
pub const MATCHES_COUNTED_MAX: usize = 100_000;
/// Maximum bytes of one matching line.
pub const LINE_BYTES_MAX: usize = 400;
/// Number of bytes that are kept before the match when a long line is cut.
pub const LINE_LEAD_BYTES: usize = 80;
/// Maximum bytes of a file. A larger file is not read.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
pub const QUERY_BYTES_MAX: usize = 1_000;
/// Maximum comparison steps for matching a pattern at one position in a file.
pub const QUERY_STEPS_MAX: usize = 20_000;
/// Maximum lines of one extract.
pub const EXTRACT_LINES_MAX: usize = 600;
pub const EXTRACT_BYTES_MAX: usize = 96 << 10;
/// Number of lines that an extract shows before and after a single line.
pub const SURROUNDING_LINES: usize = 10;
/// Maximum names that are suggested when a symbol is not found.
pub const SUGGESTIONS_MAX: usize = 20;
/// Maximum further definitions of a symbol that an extract names by line.
pub const OTHER_DEFINITIONS_MAX: usize = 20;

const _: () = assert!(LINE_LEAD_BYTES < LINE_BYTES_MAX);
const _: () = assert!(SEARCH_TIME_MAX.as_millis() < HEARTBEAT_TIME_MAX.as_millis());
/// Asserts that an answer fits into a payload, even if escaping makes six bytes of each byte.
const _: () = assert!(EXTRACT_BYTES_MAX * 6 < organism::limits::PAYLOAD_BYTES_MAX);
const _: () = assert!(MATCHES_MAX * LINE_BYTES_MAX * 6 < organism::limits::PAYLOAD_BYTES_MAX);
