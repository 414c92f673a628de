//! Limits of schemas: their size, their compilation, and the matching of their patterns.

use std::time::Duration;

pub const SCHEMA_BYTES_MAX: usize = 4 << 20;
pub const SCHEMA_DOCUMENTS_MAX: usize = 64;
/// Maximum processor time of one schema compilation.
pub const SCHEMA_COMPILE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum wall time of one schema compilation. On a busy machine, a compilation may reach this
/// limit although it uses little processor time.
pub const SCHEMA_COMPILE_WALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum memory of the child process that compiles schemas, in KiB.
pub const SCHEMA_COMPILE_MEMORY_KIB: u64 = 1 << 20;
/// Maximum processor time of the child process that compiles schemas, in seconds.
pub const SCHEMA_COMPILE_CPU_SECONDS: u64 = 30;
/// Number of schemas that one child process compiles before a new child process replaces it.
pub const SCHEMAS_PER_CHILD_MAX: usize = 64;
/// Maximum length of a schema that this process may compile without a trial in a child process.
pub const SMALL_SCHEMA_BYTES_MAX: usize = 16 << 10;
/// Maximum particles of one content model in a schema that this process may compile without a trial
/// in a child process. The cost of a compilation grows with the third power of this number.
pub const SMALL_SCHEMA_PARTICLES_MAX: usize = 64;
/// Maximum particles of one content model, after all group references are expanded.
pub const SCHEMA_PARTICLES_MAX: u64 = 20_000;
/// Maximum product of the `maxOccurs` values of particles that are nested in one content model.
/// Unbounded values do not count.
pub const SCHEMA_OCCURS_MAX: u64 = 1_000_000;
pub const PATTERN_BYTES_MAX: usize = 16 << 10;
pub const PATTERN_DEPTH_MAX: usize = 64;
/// Maximum product of the counts of repetitions, such as `{2,5}`, that are nested in one pattern
/// facet.
pub const PATTERN_REPEATS_MAX: u64 = 10_000;
/// Maximum total steps that libxml2 may need to match all values of one payload against costly
/// patterns. This number of steps takes about 0.3 s.
pub const PATTERN_STEPS_MAX: u64 = 20_000_000;
/// Maximum work that organism spends on one payload to compute how many steps libxml2 needs to
/// match the payload's values. This amount of work takes about 0.5 s.
pub const PATTERN_COMPARISON_WORK_MAX: usize = 60_000_000;
/// Maximum nesting of types that refer to one another, for the computation of how many steps
/// libxml2 needs to match a value.
pub const COMPARED_TYPES_DEPTH_MAX: usize = 200;
/// Length of values, in characters, for which every pattern must be cheap to match. A pattern is
/// refused as too costly if matching a value of this length, or a shorter one, may take more than
/// [`PATTERN_STEPS_MAX`] steps.
pub const PATTERN_LENGTH_MIN: usize = 64;
/// Maximum length of values, in characters, for which the analysis of a pattern computes the steps
/// for each length separately.
pub const PATTERN_LENGTHS_MAX: usize = 1 << 16;
/// Maximum size of a counted repetition that the analysis of a pattern expands into copies: the
/// size of the repeated part, times the count.
pub const PATTERN_REPEATS_WRITTEN_OUT: usize = 256;
pub const PATTERN_STATES_MAX: usize = 20_000;
pub const PATTERN_TRANSITIONS_MAX: usize = 200_000;
/// Maximum work of one analysis of a pattern. This amount of work takes about 0.1 s.
pub const PATTERN_WORK_MAX: usize = 3_000_000;
/// Maximum total work of analyzing all patterns of one schema.
pub const SCHEMA_PATTERN_WORK_MAX: usize = 12_000_000;
/// Bytes that one libxml2 parser context reads before a new context replaces it. A context keeps
/// every name that it has read, so its memory grows.
pub const PARSER_BYTES: usize = 4 << 20;
/// Maximum compiled schemas that one OS thread keeps.
pub const GRAMMARS_MAX: usize = 1_024;
/// Maximum elements of an example payload that is generated from a schema.
pub const EXAMPLE_ELEMENTS_MAX: usize = 2_000;
/// Maximum depth to which descriptions and examples of a schema follow nested types.
pub const OUTLINE_DEPTH_MAX: usize = 24;
/// Maximum named groups, one in another, to which the description of an element follows.
pub const OUTLINE_GROUPS_MAX: usize = 32;
/// Maximum bytes of an example that a prompt shows for a payload.
pub const EXAMPLE_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of an outline that a prompt shows for a payload.
pub const OUTLINE_BYTES_MAX: usize = 12 << 10;
/// Maximum bytes of the JSON Schema that describes a payload for native tool calls.
pub const TOOL_SCHEMA_BYTES_MAX: usize = 16 << 10;
