//! Every bound of this listener, with its unit.

/// Matching lines given in one answer; the rest are counted.
pub const MATCHES_MAX: usize = 200;
/// Matching lines counted before the search stops.
pub const MATCHES_COUNTED_MAX: usize = 100_000;
/// Of one matching line.
pub const LINE_BYTES_MAX: usize = 400;
/// Kept before the match when a long line is cut.
pub const LINE_LEAD_BYTES: usize = 80;
/// Files beyond this are not read.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
pub const QUERY_BYTES_MAX: usize = 1_000;
/// Comparisons of a pattern with one place of a file.
pub const QUERY_STEPS_MAX: usize = 20_000;
/// Given in one extract.
pub const EXTRACT_LINES_MAX: usize = 600;
pub const EXTRACT_BYTES_MAX: usize = 96 << 10;
/// Given before and after a single line that is asked for.
pub const SURROUNDING_LINES: usize = 10;
/// Names listed when a symbol is not found.
pub const SUGGESTIONS_MAX: usize = 20;

const _: () = assert!(LINE_LEAD_BYTES < LINE_BYTES_MAX);
/// Escaping makes a byte at most six; an answer must still fit a payload.
const _: () = assert!(EXTRACT_BYTES_MAX * 6 < organism::limits::PAYLOAD_BYTES_MAX);
const _: () = assert!(MATCHES_MAX * LINE_BYTES_MAX * 6 < organism::limits::PAYLOAD_BYTES_MAX);
