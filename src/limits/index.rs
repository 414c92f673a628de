//! Limits of the index, and of the queries that read it.

use std::time::Duration;

/// Maximum number of records that an index adds in one commit.
pub const INDEX_COMMIT_RECORDS: u64 = 20_000;
/// Maximum number of records by which an index may lag behind its journal for a command to use the
/// index. If the index lacks more records, the command reads the journal instead.
pub const INDEX_NEAR_RECORDS: u64 = 5_000;
/// Minimum number of records in a tree for which a command reads the first page of a thread's
/// events from the index. In a smaller tree, the command reads the journal.
pub const INDEX_PAGE_RECORDS: u64 = 3_000;
/// Maximum rows of each kind that a writer of an index keeps in memory between commits.
pub const INDEX_ROWS_KEPT: usize = 10_000;
/// Maximum rows of each kind that the writer of an index keeps in memory between commits, while the
/// index lacks only recent records (fewer than [`INDEX_COMMIT_RECORDS`]).
pub const INDEX_LIVE_ROWS_KEPT: usize = 2_000;
/// Maximum names that the writer of an index keeps in memory for one tree, so that it writes each
/// of these names only once.
pub const INDEX_TREE_NAMES_KEPT: usize = 32;
/// Maximum number of messages for which a search of trees by words collects all trees with matching
/// messages, and then sorts them. If more messages match, the search tests one tree after another,
/// newest first, because it then soon finds enough matching trees.
pub const INDEX_RARE_MATCHES: u64 = 10_000;
/// Maximum number of trees for which a search by a property collects all trees with the property,
/// and then sorts them. If more trees have the property, the search tests one tree after another,
/// newest first, because it then soon finds enough matching trees.
pub const INDEX_RARE_TREES: u64 = 5_000;
/// Page cache of the writer of an index, in KiB.
pub const INDEX_CACHE_KIB: u32 = 24 << 10;
/// Maximum number of records that an index adds in one commit while it lacks only recent records.
/// The number is smaller than [`INDEX_COMMIT_RECORDS`], because the words of these records stay in
/// memory until the commit.
pub const INDEX_LIVE_COMMIT_RECORDS: u64 = 4_000;
/// Page cache in KiB of the writer of an index, while the index lacks only recent records (fewer
/// than [`INDEX_COMMIT_RECORDS`]).
pub const INDEX_LIVE_CACHE_KIB: u32 = 6 << 10;
/// Maximum bytes of words that a writer of an index keeps in memory between commits.
pub const INDEX_WORDS_BYTES: u32 = 16 << 20;
/// Number of segments on one level of the full-text table at which SQLite merges all segments of
/// this level in one write. SQLite's default of 16 is too small: already a backlog of 16 commits
/// would cause such a merge.
pub const INDEX_SEGMENTS_MAX: u32 = 64;
/// Number of database pages that the writer of an index merges after a commit. In this way, the
/// writer makes up for the merges that it left out while the index was far behind its journal.
pub const INDEX_MERGED_PAGES: u32 = 1_000;
/// Minimum number of records in a journal for which a missing index is made by a first build. A
/// first build writes all rows before it makes the SQL indexes. For a shorter journal, the SQL
/// indexes are made first.
pub const INDEX_BUILD_RECORDS: u64 = 4_000;
/// Maximum number of open calls, and of messages in flight, that a first build of an index keeps in
/// memory between commits. If there are more, the build looks them up in the database later.
pub const INDEX_BUILD_CALLS_KEPT: usize = 100_000;
/// Page cache, in KiB, of the database into which the first build of a journal's index writes its
/// rows.
pub const INDEX_BUILD_CACHE_KIB: u32 = 16 << 10;
/// Number of records after which a first build of an index commits its work.
pub const INDEX_BUILD_COMMIT_RECORDS: u64 = 100_000;
/// Number of bytes of texts that a first build of an index collects before it passes these texts to
/// the OS thread that writes words.
pub const INDEX_WORD_BATCH_BYTES: usize = 64 << 10;
/// Interval at which the first build of an index checks whether it must stop, while it makes the
/// SQL indexes at its end.
pub const INDEX_STOP_CHECK: Duration = Duration::from_millis(50);
/// Maximum batches of texts that a first build of an index queues for the OS thread that writes
/// words.
pub const INDEX_WORD_BATCHES: usize = 64;
/// Time limit for the exact matching of equal events in two compared threads. Afterwards, the
/// remaining events are matched only roughly, so equal events may appear as differences.
pub const COMPARISON_TIME: Duration = Duration::from_secs(5);
/// Time limit for the exact matching of equal lines in all texts that one page or one output
/// compares. Lines that are not matched by then appear as differences.
pub const LINE_COMPARISON_TIME: Duration = Duration::from_secs(2);
/// Default maximum number of threads that `organism try` runs; `--max` overrides this number.
pub const TRIAL_THREADS_DEFAULT: usize = 100;
/// Maximum pairs of prompts that a comparison of two threads rebuilds. Each pair has one prompt
/// from each thread. The comparison looks for the first pair whose prompts differ in more than ids
/// and dates.
pub const COMPARED_PROMPTS_MAX: usize = 100;
/// Maximum time that a query waits while another process brings the index up to date.
pub const INDEX_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that a command waits while another process brings the index up to date, if the
/// index lacks at most [`INDEX_NEAR_RECORDS`] records. The limit is high, because the writer of the
/// index gets little time on a busy machine, and a complete answer is worth the wait.
pub const INDEX_NEAR_WAIT: Duration = Duration::from_secs(5);
/// Maximum open readers of indexes that a web view keeps between its queries.
pub const INDEX_READERS_KEPT: usize = 8;
/// Number of items that a query first reads on its own OS thread. Only then may it start further OS
/// threads for the other items.
pub const SHARE_ITEMS_FIRST: usize = 32;
/// Time limit for reading the first items of a query. If the limit is exceeded, and many items are
/// left, further OS threads read the other items. If the first items are in the page cache, reading
/// them takes a third of this time.
pub const SHARE_PATIENCE: Duration = Duration::from_millis(5);
/// Maximum OS threads that read the items of one query at once.
pub const SHARES_MAX: usize = 8;
/// Minimum number of items for each OS thread that reads items of a query. Each OS thread must open
/// its own reader, and that takes as long as reading several items.
pub const SHARE_ITEMS_MIN: usize = 50;
/// Time for which the index follower waits for further records of a journal before it adds all of
/// them to the index in one commit.
pub const INDEX_COLLECT_TIME: Duration = Duration::from_millis(200);
/// Time for which the index follower keeps the lock of the index after it has caught up.
pub const INDEX_IDLE_TIME: Duration = Duration::from_millis(500);
/// Delay before the index follower tries again after its first failure. The delay doubles with each
/// further failure.
pub const INDEX_RETRY: Duration = Duration::from_secs(1);
/// Maximum delay before the index follower tries again after a failure.
pub const INDEX_RETRY_MAX: Duration = Duration::from_secs(60);
/// Niceness of the index follower. At this niceness, the index follower gets about a tenth of a
/// core while other OS threads are busy.
pub const INDEX_FOLLOWER_NICENESS: i32 = 10;
/// Size of an index in bytes up to which the structure of the index is checked before use. In a
/// larger index, damage is found only when the damaged page is read.
pub const INDEX_CHECKED_BYTES_MAX: u64 = 8 << 20;
/// Bytes of rows that `organism sql` collects while the reader of its output is busy. With more rows,
/// the query waits for the reader.
pub const SQL_OUTPUT_BYTES: usize = 64 << 10;
/// Minimum time that the reader of the output of `organism sql` has after the end of the query.
/// After a failed query, also the maximum.
pub const SQL_OUTPUT_GRACE: Duration = Duration::from_secs(1);
/// Number up to which a search counts its results exactly.
pub const SEARCH_COUNT_MAX: u64 = 10_000;
/// Number of newest rows that a search in a tree reads first, in the case that very many rows
/// match. A row is a message or a refusal. With a larger number, the search would read more matches
/// than it shows.
pub const SEARCH_WINDOW: i64 = 16_384;
/// Maximum payloads that a search by substring or XPath takes from the index in one query.
pub const SEARCH_PAGE: usize = 256;
/// Maximum payloads that a search by substring or XPath reads.
pub const SEARCH_PAYLOADS_MAX: usize = 10_000;
/// Maximum length of the chain of causes of a message that the index follows. The chain consists of
/// the message's cause, the cause of that cause, and so on. The number is larger than the maximum
/// depth of nested calls.
pub const CAUSES_MAX: usize = 1_000;
/// Maximum messages of a journal that `organism retry` lists, and that `organism retry --all` reads
/// from the index at once.
pub const RETRIES_MAX: usize = 1_000;
/// Maximum number of failed calls, and of refusals, that a search examines to find requests for
/// which no retry can succeed. The search examines the oldest first.
pub const RETRIES_TESTED: i64 = 10_000;
/// Maximum number of messages that a command lists for an ambiguous id. An id is ambiguous if
/// several ids begin with the given digits.
pub const CANDIDATES_MAX: usize = 10;
/// Maximum rows of each kind that are shown for one message: attempts, failures, waits for a
/// person, decisions and refusals.
pub const MESSAGE_ROWS_MAX: usize = 50;
/// Maximum characters of a thread's first text that the index keeps.
pub const FIRST_WORDS_CHARS_MAX: usize = 80;
/// Maximum characters that the index keeps of the text of a fault, or of a failed workflow run.
pub const FAULT_CHARS_MAX: usize = 1_000;
