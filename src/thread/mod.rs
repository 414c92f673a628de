//! Threads as plain state: calls, waits, timers, budgets, and the facts that change them.
//!
//! Only a [`Fact`] changes the state. So the state that is rebuilt from the journal equals the live
//! state. This module must not know I/O, clocks or channels.

mod account;
mod allotments;
mod apply;
mod awaited_answers;
mod decision;
mod delegations;
mod fact;
mod failed_rounds;
mod first_group_faults;
mod fork;
mod message_text;
mod operator;
mod pauses;
mod rare_list;
mod record;
mod record_by_call;
mod reopened;
mod request_counts;
mod reservations;
mod resident_map;
mod resting;
mod result;
mod retry;
mod schedules;
mod signature;
mod small_map;
mod state;
pub mod text;
mod uncounted_time;
mod wall_time;

pub use allotments::{Allotment, AllotmentUsage, InheritedAllotment};
pub use awaited_answers::{AwaitedAction, PendingMessage, ReplyOrder};
pub use decision::{Decision, RecordedAnswer};
pub use fact::{Closing, Fact, Hold, Opener, Opening, TimerEnd, WarningStatus};
pub use fork::{ForkAction, ForkSource, ForkedRequest, InheritedThread, TreeLineage, fork_text};
pub use operator::{
    AcceptedLoss, ActionDetail, DecisionOrigin, OperatorAction, OperatorIdentity, OperatorVerb,
    check_action_text,
};
pub use pauses::{Pause, PauseAction, PauseTarget, PauseVerb, Pauses};
pub use rare_list::RareList;
pub use record::{Input, RecalledResult, Record, Verdict};
pub use record_by_call::RecordByCall;
pub use reopened::{
    ReopenedCall, ReopenedCalls, ReopenedKind, ReopenedMessage, ReopenedNames, reopened_id,
};
pub use request_counts::{REQUEST_MONEY, REQUEST_TOKENS, Renewal, budget_name};
pub use reservations::ModelReservation;
pub use resident_map::ResidentMap;
pub use resting::CommonState;
pub use result::{client_result, has_reply};
pub use retry::{RetryAction, retry_text};
pub use schedules::{PlannedSchedule, ScheduledRun};
pub use signature::{DecisionSignature, DecisionStatement, OperatorKeys, OperatorPublicKey};
pub use small_map::{SmallMap, SmallSet};
pub use state::{
    ByListener, Call, CallPreview, ClientKey, Held, KeptFault, KeyUse, Map, StandstillTime, State,
    Thread, Timer, Tree, Usage,
};
pub use uncounted_time::{UncountedTime, UncountedTotal, uncounted_at};
