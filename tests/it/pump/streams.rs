//! The records that a pump makes, written to a JetStream stream and read back. One test runs for
//! each area that `.ci/conformance` does not repeat on JetStream.

use super::*;
use crate::journal::substrate;

/// One test of each area. The kind of journal affects only where the records of a test are stored.
const TESTS: [fn(); 41] = [
    absent::calls_that_wait_for_an_absent_listener_end_after_their_time_out_too,
    allotments::a_thread_ends_when_its_time_is_over_with_everything_beneath_it,
    approvals::a_restart_keeps_what_is_held_and_what_was_approved,
    bound::a_bound_thread_survives_a_restart_and_still_ends_with_its_call,
    budgets::a_reservation_of_an_earlier_run_is_charged_whole_after_the_start,
    calls::a_listener_is_woken_once_with_results_in_the_order_of_its_calls,
    cancel::cancelling_a_root_takes_the_whole_tree_and_tells_the_client,
    clients::the_same_key_again_gets_the_recorded_answer_also_after_a_restart,
    clock::a_timer_fires_on_time_when_the_pump_stood_still_or_there_was_none,
    context::a_second_clearing_counts_what_the_first_one_left,
    core_words::a_wait_of_a_plain_listener_survives_a_restart,
    delegations::what_is_delegated_further_counts_for_the_goal,
    failures::a_crash_is_tried_again_until_the_attempts_are_used_up,
    fairness::a_cancelled_and_reopened_thread_gets_no_second_turn,
    fork_groups::a_leg_without_a_result_waits_for_the_recorded_reply_of_its_group,
    fork_order::a_timer_of_a_fork_fires_where_it_fired_in_the_source,
    forks::a_fork_takes_the_threads_of_its_source_over_and_leaves_it_untouched,
    forward::a_call_forwarded_to_a_group_gives_all_its_parts_at_once,
    goals::a_late_answer_to_a_goal_is_recorded_for_goals_alone,
    groups::a_client_gets_the_faults_of_a_first_group_only_when_every_leg_failed_also_after_a_restart,
    humans::a_question_waits_for_its_answer_and_both_are_ordinary_payloads,
    limits::a_spent_message_budget_warns_agents_and_fails_the_calls_of_others,
    lost::a_hand_over_in_the_record_of_another_tree_counts_too,
    pauses::after_the_kill_switch_nothing_is_in_flight_and_nothing_is_handed_over_twice,
    previews::a_preview_that_was_out_when_the_pump_died_is_requested_again,
    reloads::a_held_call_keeps_its_limit_over_a_reload_and_a_restart,
    renewals::a_restart_renews_nothing_and_forgets_no_renewal,
    replay::whatever_the_pump_refused_is_refused_again,
    restart::calls_that_waited_their_turn_keep_their_order,
    retries::a_message_is_retried_once_also_after_a_restart,
    rounds::a_pause_that_a_restart_cuts_short_loses_no_result,
    schedules::a_schedule_that_leaves_the_config_is_cancelled_and_its_run_goes_on,
    signed::a_decision_is_recorded_by_the_operator_whom_its_signature_proves,
    simulation::a_seed_gives_the_same_run_every_time,
    threads::a_payload_sent_into_a_descendant_opens_a_call_there,
    timer_limits::messages_that_wait_for_a_timer_are_counted_apart_until_it_fires,
    timers::closing_a_call_cancels_its_timers_on_record,
    traces::a_trace_outlives_a_restart_and_another_attempt_is_another_span,
    undo::a_call_that_undoes_another_is_handed_over_once,
    waiting::calls_and_a_wait_of_one_outcome_are_both_waited_for,
    wall_time::wall_time_runs_while_a_call_waits_for_a_timer_too,
];

#[test]
fn the_records_of_each_area_come_back_from_a_stream() {
    for test in TESTS {
        let worlds = substrate::collect(test);
        assert!(!worlds.is_empty(), "a test without records");
        for records in worlds {
            substrate::comes_back_streamed(&records);
        }
    }
}
