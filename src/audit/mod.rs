//! Queries about what the journal records: threads, messages, refusals, and the proof of a whole
//! journal. The code in this module must not depend on a terminal.
//!
//! **Invariant:** no function here writes to a journal. Every answer comes from the journal's
//! records, or from the index that is made from them.

pub mod amounts;
mod checkpoint_copies;
mod comparison;
pub mod core_words;
mod event_content;
mod event_pairs;
mod event_scope;
pub mod event_text;
mod export;
mod finals;
mod fork_obstacle;
mod fork_origin;
mod fork_point;
mod held;
mod ledger;
mod mac_ranges;
mod message_report;
mod message_state;
mod partition_copies;
pub mod past_time;
pub mod payload_lines;
mod proof_checks;
mod proof_keys;
mod report;
mod result_pairs;
mod retry_filter;
mod retry_messages;
mod retry_source;
mod search;
mod starting_request;
mod stats;
mod stats_columns;
mod thread_page;
mod threads;
mod timeline;
mod timeline_first_page;
mod timeline_page;
mod tree_page;
mod turn_text;
mod verify;
mod views;

pub use comparison::{
    ComparedEvent, ComparedTurn, PromptPair, ThreadComparison, ThreadDifference, ThreadTotals,
    compare_threads,
};
pub use event_scope::listeners_called_anew;
pub use export::{ExportFilter, ExportFormat, export};
pub use finals::has_equal_finals;
pub use fork_obstacle::ForkObstacle;
pub use fork_origin::{ForkOrigin, TreeOrigin};
pub use fork_point::{
    ForkPoint, PointRequest, PointTurn, answered_listeners, client_calls, is_answered_from_record,
    retry_of_one_call,
};
pub use held::{CallPreviewView, HeldCall, HeldPage, held, held_in, held_of};
pub use ledger::{MessageLedger, ThreadCounts};
pub use message_report::{
    CausedMessages, ChainedRecord, DecidedRequest, FoundMessage, GateVerdict, MessageDecision,
    MessageHold, MessagePreview, MessageReport, RecordedConfig, RefusalSummary, message_report,
    recorded_request,
};
pub use message_state::MessageState;
pub use partition_copies::{
    CopyEnd, IncompleteCopy, PARTITION_COUNT_FILE, PartitionCopies, noted_partition_count,
    recorded_partition_count, unfollowed_partitions,
};
pub use report::{
    AcceptedRecords, ChainBreak, OutsideVerdict, ProofReport, ProofVerdict, RecordedLoss,
    RedactedPayload,
};
pub use result_pairs::{ResultPair, UnpairedResults, pair_results};
pub use retry_filter::{UnknownFilterValue, unknown_filter_values};
pub use retry_messages::{
    EarlierAttempt, RetryMessage, RetryMessagePage, earlier_attempts, retry_message_page,
    retry_messages, retry_messages_with_id,
};
pub use retry_source::{RetryError, RetrySource, SubmissionRefusal, UNKNOWN_OUTCOME};
pub use search::{SearchRequest, SearchResult, SearchedItem, check_xpath, search};
pub use starting_request::{StartingRequest, starting_request};
pub use stats::{Stats, StatsKey, StatsQuery, stats};
pub use stats_columns::{StatsColumn, stats_columns};
pub use thread_page::{ThreadPage, earlier_decisions, thread_page};
pub use threads::{ThreadPhase, TreeSummary, is_open_phase, is_recorded, summaries, thread_state};
pub use timeline::{
    RecordedMoment, SignedBy, ThreadTimeline, TimelineEntry, TimelineEvent, signed_by,
    thread_timeline,
};
pub use timeline_first_page::first_page;
pub use timeline_page::{EventClass, TimelineRest};
pub use tree_page::{PageCursor, PagedTree, TreePage};
pub use turn_text::{TurnFinding, TurnText, turn_text};
pub use verify::{VerifyOptions, verify, verify_with};
pub use views::{BusyRefusals, MessageView, RefusalView, element_name};
