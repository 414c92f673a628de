//! Every bound of this listener, with its unit.

use std::time::Duration;

use organism::limits::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX, PREVIEW_BYTES_MAX};

/// Maximum bytes of a changed file. Applies to the content before the change and to the content
/// after it.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Maximum files of one set of changes.
pub const SET_FILES_MAX: usize = 100;
/// Maximum bytes of all files of a set. Counts the old content and the new content of each file.
pub const SET_BYTES_MAX: usize = 32 << 20;
/// Maximum commands and installations of one set.
pub const SET_COMMANDS_MAX: usize = 10;
pub const PATH_BYTES_MAX: usize = 4096;
pub const PATH_PARTS_MAX: usize = 64;
/// Maximum bytes of a file name. Every file system permits names of this length.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum number of stored sets of changes. Older sets are deleted, and can then no longer be
/// shown or undone.
pub const SETS_KEPT: usize = 100;
/// Maximum bytes of all stored sets.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of stored answers, and of stored proposals. If a message is repeated, its stored
/// answer is sent again.
pub const ANSWERS_KEPT: usize = 10_000;

/// Maximum bytes of a diff in an answer. A longer diff is cut at the end of a line.
pub const DIFF_BYTES_MAX: usize = 96 << 10;
/// Maximum bytes of the text of a preview when it is escaped. A longer text is cut.
pub const PREVIEW_TEXT_BYTES_MAX: usize = 240 << 10;
/// Maximum total bytes of the elements that name changed files in an answer. The same maximum
/// applies to the elements that name sets of changes. Further elements are left out.
pub const LIST_BYTES_MAX: usize = 96 << 10;
/// Maximum comparison steps for the minimal diff of a file. If it takes more steps, the change is
/// shown as one block: the old lines, and then the new lines. The limit counts steps and not time,
/// because the same change must always have the same diff.
pub const DIFF_STEPS_MAX: usize = 500_000;
/// Maximum number of line numbers that an error message lists if a text occurs several times in a
/// file.
pub const LINES_NAMED_MAX: usize = 20;
pub const MATCHES_COUNTED_MAX: usize = 1_000;

/// Maximum bytes of a command's standard output in an answer. The same maximum applies to its
/// standard error. If an output is longer, the answer contains its beginning and its end. Each of
/// the two parts gets half of the maximum.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes that a command may write to standard output or to standard error before it is
/// stopped.
pub const OUTPUT_READ_BYTES_MAX: u64 = 64 << 20;
/// Maximum bytes of one command. Linux permits twice as much.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;
pub const COMMAND_TIME_DEFAULT: Duration = Duration::from_secs(120);
pub const COMMAND_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Interval at which a running command is checked.
pub const COMMAND_TICK: Duration = Duration::from_millis(50);
/// How long the processes of a command may take to end after they have been killed.
pub const STOP_GRACE: Duration = Duration::from_secs(3);
/// Maximum rounds in which the supervisor searches for running processes of a command that has
/// ended.
pub const SWEEPS_MAX: usize = 1_000;
/// Pause between two rounds of the search for processes of an ended command. The supervisor makes
/// the pause only if no process that it killed in the last round has ended yet.
pub const SWEEP_PAUSE: Duration = Duration::from_millis(1);

pub const PACKAGES_MAX: usize = 50;
pub const PACKAGE_BYTES_MAX: usize = 200;

/// Asserts that an answer with a diff and file names fits into a payload, even if escaping makes
/// five bytes of each byte.
const _: () = assert!(DIFF_BYTES_MAX * 5 + LIST_BYTES_MAX * 2 + (64 << 10) < PAYLOAD_BYTES_MAX);
/// Asserts that a preview fits with a note for each part that was cut.
const _: () =
    assert!(PREVIEW_TEXT_BYTES_MAX + (SET_COMMANDS_MAX + 4) * (1 << 10) < PREVIEW_BYTES_MAX);
const _: () = assert!(OUTPUT_BYTES_MAX * 5 * 2 + (256 << 10) < PAYLOAD_BYTES_MAX);
const _: () = assert!((SET_COMMANDS_MAX + 1) * PAYLOAD_BYTES_MAX < FRAME_BYTES_MAX);
