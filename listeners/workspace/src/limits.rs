//! Every bound of this listener, with its unit.

use std::time::Duration;

use organism::limits::{FRAME_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Of a file that is changed, before and after.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Of one set of changes.
pub const SET_FILES_MAX: usize = 100;
/// Of all its files, before and after together.
pub const SET_BYTES_MAX: usize = 32 << 20;
/// Commands and packages of one set.
pub const SET_COMMANDS_MAX: usize = 10;
pub const PATH_BYTES_MAX: usize = 4096;
pub const PATH_PARTS_MAX: usize = 64;
/// What every file system allows for one name.
pub const NAME_BYTES_MAX: usize = 255;

/// Sets of changes that can still be shown and taken back; older ones are forgotten.
pub const SETS_KEPT: usize = 100;
/// Of all that is kept of them.
pub const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Answers that are given again when a message comes again, and proposals that can be run.
pub const ANSWERS_KEPT: usize = 10_000;

/// Of one diff in an answer, cut at a line.
pub const DIFF_BYTES_MAX: usize = 96 << 10;
/// After this long a diff is finished less neatly.
pub const DIFF_TIME_MAX: Duration = Duration::from_millis(500);
/// Matches of an ambiguous text whose lines are told, and how many are counted.
pub const LINES_TOLD: usize = 20;
pub const MATCHES_COUNTED_MAX: usize = 1_000;

/// Of standard output and standard error each: half from the beginning, half from the end.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// A command that writes more than this to either is stopped.
pub const OUTPUT_READ_BYTES_MAX: u64 = 64 << 20;
/// Of one command; Linux takes twice that.
pub const COMMAND_BYTES_MAX: usize = 64 << 10;
pub const COMMAND_TIME_DEFAULT: Duration = Duration::from_secs(120);
pub const COMMAND_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often a running command is looked after.
pub const COMMAND_TICK: Duration = Duration::from_millis(50);
/// How long its processes may take to be gone once they are killed.
pub const STOP_GRACE: Duration = Duration::from_secs(3);
/// Rounds in which processes are looked for that a command has left behind.
pub const SWEEPS_MAX: usize = 1_000;

pub const PACKAGES_MAX: usize = 50;
pub const PACKAGE_BYTES_MAX: usize = 200;

/// Escaping makes a byte at most five; an answer must still fit a payload, with room for names.
const _: () = assert!(DIFF_BYTES_MAX * 5 + (256 << 10) < PAYLOAD_BYTES_MAX);
const _: () = assert!(OUTPUT_BYTES_MAX * 5 * 2 + (256 << 10) < PAYLOAD_BYTES_MAX);
const _: () = assert!((SET_COMMANDS_MAX + 1) * PAYLOAD_BYTES_MAX < FRAME_BYTES_MAX);
