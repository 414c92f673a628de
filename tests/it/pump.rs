//! The core of the pump, which takes one step for each event, with the real gate and real schemas:
//! sections 4 to 6 of the design.

mod absent;
mod allotments;
mod approvals;
mod bound;
mod bounds;
mod budgets;
mod calls;
mod cancel;
mod clients;
mod clock;
mod context;
mod control_socket;
mod core_words;
mod delegations;
mod driver;
mod durable;
mod failures;
mod fairness;
mod fork_groups;
mod fork_order;
mod forks;
mod forward;
mod full_disk;
mod goals;
mod groups;
mod humans;
mod limits;
mod lost;
mod model_waits;
mod operator;
mod pauses;
mod plain_core;
mod preview_simulation;
mod previews;
mod reloads;
mod renewals;
mod replay;
mod restart;
mod resting;
mod retries;
mod rounds;
mod schedules;
mod signed;
mod simulation;
mod slow_disk;
mod streams;
mod threads;
mod timer_limits;
mod timers;
mod traces;
mod undo;
mod waiting;
mod wall_time;
pub mod world;

/// Tests whose records have facts and inputs that the simulation does not reach. Each test has the
/// name under which its journal is stored.
pub const WITH_RARE_RECORDS: [(&str, fn()); 8] = [
    ("a-request-renews-its-budgets", renewals::a_restart_renews_nothing_and_forgets_no_renewal),
    (
        "the-time-of-a-thread-is-over",
        allotments::a_thread_ends_when_its_time_is_over_with_everything_beneath_it,
    ),
    (
        "an-operator-acts-between-two-runs",
        operator::an_operator_action_between_two_runs_is_replayed_like_any_other_step,
    ),
    (
        "an-operator-signs-a-decision",
        signed::a_decision_is_recorded_by_the_operator_whom_its_signature_proves,
    ),
    ("a-schedule-is-refused", schedules::a_refused_request_ends_its_run_on_record),
    (
        "a-schedule-leaves-the-config",
        schedules::a_schedule_that_leaves_the_config_is_cancelled_and_its_run_goes_on,
    ),
    (
        "an-operator-pauses",
        pauses::after_the_kill_switch_nothing_is_in_flight_and_nothing_is_handed_over_twice,
    ),
    ("a-client-is-busy", bounds::a_count_of_busy_answers_is_replayed_like_any_other_step),
];
