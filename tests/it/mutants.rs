//! Mutation tests: each mutant breaks one safety rule on purpose. The tests that guard this rule
//! must then fail, and must pass without the mutant.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use organism::mutant::MUTANTS;

use crate::campaign::Campaign;
use crate::organism::kill::torture;
use crate::organism::{Running, until_within};

const SIMULATION: &str =
    "simulation::whatever_fails_nothing_is_lost_or_doubled_and_every_call_has_its_result";

const ATTACKER: &str =
    "abuse::attacker::a_hostile_model_in_xml_has_no_forbidden_effect_and_gets_feedback";

const MUTATED_TURNS: &str =
    "extract::mutated::no_mutated_turn_acts_on_a_draft_a_quotation_or_the_inside_of_something_else";

const SIMULATED_PUMP: &str =
    "pump::simulation::whatever_happens_the_promises_hold_and_the_work_ends";

const REPEATED_KEYS: &str =
    "organism::repeated_keys::a_repeated_key_gets_every_kind_of_result_byte_for_byte";

const SIGNED_HANDOVER: &str = "organism::partitions::shares::a_partition_that_is_handed_over_ends_with_a_checkpoint_of_its_pump";

const STRAY_ANSWERS: &str =
    "organism::stray_answers::an_answer_that_is_repeated_with_its_name_is_recorded_as_stray";

/// Guards that take a second or longer to fail, although another guard of the same mutant may fail
/// at once. The simulation is one of them, because it may run many seeds until one shows the
/// mutant.
const DEAR_GUARDS: [&str; 6] =
    [SIMULATION, ATTACKER, SIMULATED_PUMP, REPEATED_KEYS, SIGNED_HANDOVER, STRAY_ANSWERS];

/// Each mutant with the tests that must fail because of it. A test of this list is called a guard.
/// If all guards of a mutant are dear, the cheapest one comes first.
const GUARDS: &[(&str, &str)] = &[
    (
        "check-by-the-new-schemas",
        "organism::reloads::work_in_flight_ends_with_its_own_schemas_while_new_work_follows_the_new_config",
    ),
    (
        "wait-for-a-removed-listener",
        "organism::reloads::a_removed_listener_may_end_its_work_and_gets_no_more",
    ),
    ("no-lock", "journal::suite::sqlite::a_second_pump_is_refused_at_once_with_the_holders_name"),
    ("no-fence", "journal::damage::a_pump_that_lost_its_journal_to_another_is_fenced_and_stops"),
    (
        "no-fence",
        "journal::streamed::fences::a_foreign_write_into_the_stream_fences_the_pump_whatever_the_lease_contains",
    ),
    ("trust-the-tail", "journal::damage::a_tail_cut_at_any_byte_is_never_taken_for_the_end"),
    (
        "trust-any-journal",
        "organism::losses::another_journal_in_place_of_an_acknowledged_one_starts_nothing_until_accepted",
    ),
    (
        "trust-any-snapshot",
        "organism::snapshots::a_snapshot_that_cannot_be_used_is_ignored_and_made_again",
    ),
    (
        "forget-a-live-tree",
        "organism::snapshots::a_start_continues_from_a_snapshot_with_its_open_calls_and_its_keys",
    ),
    (
        "trust-the-past",
        "organism::snapshots::a_proof_that_fails_stops_the_pump_as_it_would_have_stopped_the_start",
    ),
    (
        "trust-no-copy",
        "journal::copies::a_record_that_was_rewritten_with_the_key_starts_nothing_beside_its_copies",
    ),
    (
        "trust-the-state",
        "journal::copies::copies_elsewhere_prove_a_record_that_the_state_alone_does_not",
    ),
    (
        "know-every-key",
        "journal::streamed::attacks::a_host_that_does_not_know_a_key_names_it_and_takes_no_checkpoint_of_it_for_proof",
    ),
    (
        "trust-blank-payloads",
        "organism::ways_on::a_payload_that_is_blanked_starts_nothing_until_it_is_on_record",
    ),
    (
        "trust-blank-payloads",
        "journal::streamed::attacks::a_blanked_payload_of_a_stream_is_taken_by_no_host_until_an_operator_accepts_it",
    ),
    (
        "miss-no-checkpoint",
        "organism::ways_on::checkpoints_that_are_gone_start_nothing_until_they_are_put_back",
    ),
    (
        "miss-no-blob",
        "organism::blobs::a_blob_that_a_boot_lists_and_the_journal_has_lost_is_a_break",
    ),
    ("sign-what-is-due", "journal::suite::sqlite::each_decision_of_an_operator_is_signed_at_once"),
    ("sign-what-is-due", SIGNED_HANDOVER),
    ("trust-the-hash", "journal::damage::every_flipped_bit_in_a_record_is_found_at_its_position"),
    ("trust-the-mac", "journal::attacks::an_attack_without_the_key_is_never_proved"),
    (
        "trust-the-mac",
        "journal::streamed::attacks::no_host_writes_a_record_of_a_stream_before_a_mac_or_an_operator_covers_it",
    ),
    (
        "deliver-unverified",
        "organism::pumps::a_pump_that_was_frozen_and_replaced_delivers_nothing_when_it_wakes",
    ),
    ("alert-again", "organism::alerts::a_cause_alerts_once_whatever_is_killed"),
    (
        "alert-for-each",
        "organism::alerts::each_burst_raises_one_alert_which_states_its_count_and_its_end",
    ),
    ("overlook-the-past", "organism::alerts::a_cause_alerts_once_whatever_is_killed"),
    (
        "forget-an-unsent-alert",
        "organism::alerts::a_command_that_its_pump_did_not_outlive_runs_again",
    ),
    (
        "wait-for-the-alert-command",
        "organism::alerts::a_command_that_does_not_do_its_work_blocks_nothing",
    ),
    (
        "hand-over-the-paused",
        "pump::pauses::work_in_flight_finishes_and_nothing_new_is_handed_over",
    ),
    ("hand-over-the-paused", SIMULATION),
    (
        "retry-the-stopped",
        "pump::pauses::an_attempt_that_ends_before_its_cancellation_is_not_repeated",
    ),
    (
        "continue-as-another-kind",
        "pump::reloads::a_listener_of_another_kind_does_not_continue_the_calls_of_a_removed_one",
    ),
    ("retry-twice", "pump::retries::a_message_is_retried_once_also_after_a_restart"),
    (
        "retry-a-used-key",
        "pump::retries::the_retry_of_a_refused_submission_and_its_client_share_a_key",
    ),
    ("retry-unconfirmed", "pump::retries::work_that_may_have_been_done_needs_a_confirmation"),
    ("trust-a-lineage", "audit::lineage::verify_follows_the_lineage_of_a_fork"),
    (
        "take-the-record-as-it-comes",
        "pump::forks::results_on_record_come_in_the_order_of_the_source",
    ),
    (
        "fire-passed-timers-at-once",
        "pump::forks::a_timer_of_the_source_does_not_overtake_what_a_fork_can_go_on_with",
    ),
    (
        "go-on-with-a-spawned-thread",
        "pump::forks::a_spawned_thread_that_still_ran_ends_in_the_fork",
    ),
    (
        "repeat-an-effect-in-a-fork",
        "pump::forks::a_fork_gets_the_recorded_results_and_no_listener_is_given_its_calls",
    ),
    (
        "start-a-leg-beside-a-recorded-reply",
        "pump::fork_groups::a_leg_without_a_result_waits_for_the_recorded_reply_of_its_group",
    ),
    (
        "count-the-time-of-a-pause",
        "pump::pauses::no_time_counts_against_a_call_that_waits_for_an_absent_listener",
    ),
    (
        "pause-only-in-memory",
        "pump::resting::a_pause_and_its_end_leave_the_trees_that_wait_outside_memory",
    ),
    ("deliver-before-durable", "pump::durable::effects_of_a_record_happen_after_it_is_on_disk"),
    (
        "export-what-was-said",
        "telemetry::tree::a_whole_tree_is_one_trace_of_calls_deliveries_turns_and_model_calls",
    ),
    (
        "take-while-full",
        "pump::full_disk::a_full_disk_turns_away_what_is_new_and_keeps_what_was_taken_in_its_order",
    ),
    (
        "forget-failed-rounds",
        "pump::rounds::a_call_ends_with_its_twentieth_round_of_failures_in_a_row",
    ),
    (
        "ignore-the-core-words",
        "pump::core_words::a_plain_listener_without_a_core_word_may_not_write_it",
    ),
    (
        "acknowledge-too-early",
        "pump::core_words::an_empty_answer_waits_while_a_thread_of_the_call_runs",
    ),
    ("forget-a-schedule", "pump::schedules::a_planned_time_survives_a_restart_and_is_planned_once"),
    ("forget-a-run", "pump::schedules::a_run_is_sent_once_though_the_pump_dies_before_or_after"),
    (
        "miss-nothing",
        "organism::schedules::times_without_an_organism_are_missed_on_record_and_made_up_once",
    ),
    (
        "make-up-what-is-skipped",
        "organism::schedules::times_without_an_organism_are_skipped_where_the_schedule_says_so",
    ),
    (
        "overlap-runs",
        "pump::schedules::a_time_that_comes_while_a_run_is_open_is_passed_over_on_record",
    ),
    (
        "let-bound-threads-run",
        "pump::bound::a_bound_thread_ends_with_its_call_however_the_call_ends",
    ),
    (
        "wake-what-is-closed",
        "pump::cancel::a_cancelled_call_ends_as_cancelled_whatever_else_would_end_it",
    ),
    (
        "reach-any-thread",
        "pump::bound::cancelling_any_thread_but_a_descendant_answers_with_the_same_bytes",
    ),
    (
        "answer-with-a-finding",
        "agent::text_answers::a_text_with_an_action_in_any_state_is_no_answer",
    ),
    (
        "take-goals-from-anybody",
        "pump::goals::a_goal_of_any_other_sender_is_refused_like_an_unknown_payload",
    ),
    ("answer-anything-as-a-goal", "pump::goals::the_answer_to_a_goal_ends_no_other_call"),
    ("undo-once-more", "pump::undo::a_call_that_undoes_another_is_handed_over_once"),
    (
        "forget-an-undo",
        "organism::workflow_kills::a_run_with_every_part_ends_once_as_an_undisturbed_one",
    ),
    (
        "overlook-handovers",
        "organism::workflow_undo::races::a_cancelled_booking_that_another_run_made_room_for_is_listed",
    ),
    (
        "undo-again",
        "organism::workflow_undo::a_call_that_a_workflow_beneath_has_undone_is_not_undone_again",
    ),
    (
        "delegate-without-end",
        "pump::delegations::a_goal_is_delegated_as_often_as_it_says_and_no_more",
    ),
    ("delegate-any-goal", "pump::delegations::nobody_delegates_out_of_a_goal_with_roles"),
    (
        "answer-another-question",
        "pump::humans::the_question_of_a_workflow_takes_its_own_answer_alone",
    ),
    (
        "stand-still-beside-work",
        "pump::wall_time::wall_time_runs_while_any_listener_of_the_tree_is_busy",
    ),
    (
        "overdraw-an-allotment",
        "pump::allotments::a_model_call_that_an_allotment_does_not_cover_is_refused_before_it_is_made",
    ),
    (
        "overdraw-a-run",
        "pump::allotments::agents_of_one_run_of_a_workflow_spend_its_budget_together",
    ),
    (
        "forget-the-time-of-a-thread",
        "pump::allotments::a_thread_ends_when_its_time_is_over_with_everything_beneath_it",
    ),
    ("renew-for-anybody", "pump::renewals::a_request_of_a_listeners_own_client_renews_nothing"),
    ("renew-while-it-runs", "pump::renewals::a_request_while_an_earlier_one_runs_renews_nothing"),
    ("skip-the-reservation", "pump::budgets::model_calls_side_by_side_cannot_spend_the_same_twice"),
    (
        "count-no-call-under-way",
        "pump::limits::model_calls_that_are_repeated_after_a_restart_stay_within_the_limit",
    ),
    (
        "forget-a-reservation",
        "pump::budgets::a_reservation_of_an_earlier_run_is_charged_whole_after_the_start",
    ),
    ("forget-a-reservation", SIMULATION),
    ("forget-a-closed-stream", SIMULATION),
    ("charge-a-stream-twice", SIMULATION),
    (
        "retry-in-every-layer",
        "pump::budgets::requests_of_a_model_call_are_limited_on_each_route_over_all_attempts",
    ),
    (
        "let-the-stream-run",
        "organism::model_calls::a_cancelled_call_closes_its_stream_and_is_charged_for_what_it_received",
    ),
    (
        "send-under-any-config",
        "organism::project::a_changed_config_stops_new_submissions_and_every_other_command_notes_it",
    ),
    (
        "take-any-service-version",
        "organism::versions::a_request_of_another_version_is_refused_with_both_versions",
    ),
    (
        "trust-the-socket",
        "organism::project::a_socket_of_another_process_than_the_holder_of_the_journal_gets_nothing",
    ),
    (
        "trust-any-stream",
        "organism::streams::a_stream_that_another_project_began_is_refused_until_it_is_adopted",
    ),
    (
        "ignore-the-announced",
        "organism::announced::no_command_starts_a_pump_while_an_organism_is_announced",
    ),
    (
        "end-with-the-reader",
        "organism::pipes::every_file_of_a_directory_is_sent_although_the_reader_has_gone",
    ),
    (
        "trust-any-project",
        "organism::project::a_journal_of_another_path_is_refused_to_every_command_until_it_is_adopted",
    ),
    (
        "adopt-from-anybody",
        "organism::project::a_journal_is_taken_from_a_project_that_is_still_there_only_by_its_name",
    ),
    (
        "cancel-what-ended",
        "pump::cancel::cancelling_what_has_ended_is_refused_on_the_record_and_adds_no_message",
    ),
    (
        "forget-the-arrival",
        "pump::failures::an_answer_that_came_in_time_wins_over_a_deadline_that_is_due",
    ),
    (
        "cut-a-live-stream",
        "pump::failures::progress_of_an_agent_extends_its_deadline_by_its_own_time_out",
    ),
    (
        "notify-the-thread-alone",
        "organism::waits::a_waiting_client_is_notified_of_a_hold_deep_in_its_tree",
    ),
    ("trust-from", SIMULATION),
    ("trust-from", "pump::calls::an_outcome_of_another_listener_is_refused_under_its_true_sender"),
    ("record-the-claimed-name", SIMULATION),
    ("drop-a-refusal", SIMULATION),
    ("trust-any-attempt", SIMULATION),
    (
        "remember-for-another",
        "bus::memory::of_two_instances_the_one_that_remembers_gets_the_call_and_the_other_all_of_it",
    ),
    (
        "publish-anywhere",
        "bus::remote::memory::nothing_is_published_to_a_subject_that_is_no_inbox_of_the_listener",
    ),
    ("trust-any-attempt", "pump::failures::an_answer_to_an_outdated_attempt_is_refused_visibly"),
    (
        "take-any-token",
        "bus::remote::strangers::an_answer_with_a_wrong_name_or_without_an_attempt_is_not_delivered",
    ),
    (
        "grant-too-much",
        "organism::nats_config::probe::every_key_opens_what_is_its_own_and_nothing_else",
    ),
    (
        "remember-for-strangers",
        "organism::hosted::strangers::a_thread_is_sent_only_to_the_host_of_its_open_turn",
    ),
    (
        "tell-the-whole-tree",
        "organism::hosted::strangers::a_transfer_holds_only_the_thread_of_the_turn",
    ),
    (
        "tell-anybody",
        "organism::hosted::strangers::responses_to_an_agent_host_go_to_its_inbox_and_nowhere_else",
    ),
    (
        "believe-the-note",
        "organism::hosted::strangers::a_turn_whose_note_states_another_turn_is_refused",
    ),
    ("reuse-the-attempt", SIMULATION),
    ("count-every-time", "pump::clock::a_clock_that_is_set_forward_ends_no_tree_and_no_attempt"),
    (
        "turn-back-the-clock",
        "organism::clock::record_time_never_decreases_when_the_clock_was_set_back",
    ),
    (
        "count-what-nobody-took",
        "pump::absent::a_hand_over_that_was_taken_back_is_not_lost_with_its_pump",
    ),
    ("probe-for-ever", "pump::absent::one_call_of_an_absent_listener_is_tried_and_the_others_wait"),
    (
        "forget-a-probe",
        "pump::absent::a_probe_that_was_in_flight_during_a_standstill_releases_the_others_too",
    ),
    (
        "forget-the-hand-over",
        "pump::lost::a_single_attempt_that_was_out_when_the_pump_died_is_never_delivered_again",
    ),
    (
        "deliver-what-was-lost",
        "pump::lost::a_delivery_that_ends_its_pump_each_time_is_not_handed_over_at_every_start",
    ),
    (
        "deliver-what-was-lost",
        "pump::reloads::a_call_that_has_failed_as_often_as_a_new_config_permits_is_not_delivered_again",
    ),
    ("forget-a-disposition", SIMULATION),
    ("forget-the-key", SIMULATION),
    (
        "expire-a-key-in-use",
        "pump::clients::a_key_does_not_expire_while_the_call_that_it_began_is_open",
    ),
    (
        "forget-a-tree-at-rest",
        "pump::resting::a_finished_tree_that_has_left_memory_is_answered_as_before_also_after_a_restart",
    ),
    ("forget-a-tree-at-rest", "pump::clients::a_completed_thread_continues_with_its_history"),
    ("forget-a-key-at-rest", "pump::clients::a_key_used_for_another_payload_is_refused_on_record"),
    ("repeat-what-led-there", SIMULATION),
    ("repeat-what-led-there", REPEATED_KEYS),
    (
        "forget-a-timer",
        "pump::timers::a_timer_survives_a_restart_and_fires_even_if_its_time_passed_meanwhile",
    ),
    ("leave-calls-open", SIMULATION),
    (
        "leave-calls-open",
        "pump::calls::a_call_that_ends_takes_what_is_beneath_with_it_and_answers_are_late",
    ),
    ("drop-a-refusal", "pump::clients::refusals_of_the_gate_are_recorded_under_their_client"),
    ("answer-a-fault", "pump::failures::a_fault_never_answers_a_fault"),
    (
        "give-faults-beside-a-reply",
        "pump::groups::a_client_gets_the_first_reply_of_a_group_and_no_fault_beside_it",
    ),
    (
        "skip-the-cycle-check",
        "pump::limits::agents_that_would_wait_for_each_other_get_cycle_refusals",
    ),
    (
        "skip-the-budget",
        "pump::limits::a_spent_message_budget_warns_agents_and_fails_the_calls_of_others",
    ),
    ("skip-the-vocabulary", "gate::rules::unknown_and_forbidden_answer_with_the_same_bytes"),
    ("skip-the-reserved-names", "gate::rules::names_only_the_core_writes_are_reserved"),
    ("skip-the-xsd", "gate::rules::schema_violations_are_refused_with_their_location"),
    (
        "leave-memory-open",
        "organism::hidden::no_other_process_of_the_user_looks_into_one_that_may_hold_keys",
    ),
    (
        "hide-the-caller",
        "organism::approvals::a_held_call_is_shown_approved_by_its_hash_and_then_done",
    ),
    (
        "take-any-secret",
        "organism::access::a_caller_that_nothing_shows_needs_the_secret_of_its_client",
    ),
    (
        "take-any-sender-over-nats",
        "organism::partitions::proved::over_nats_a_client_with_a_secret_needs_it",
    ),
    (
        "trust-the-name",
        "organism::access::a_decision_is_on_record_with_the_user_that_the_system_names",
    ),
    (
        "show-text-to-clients",
        "organism::live::a_client_sees_states_of_its_own_threads_and_texts_only_with_steps",
    ),
    (
        "watch-any-thread",
        "organism::live::a_client_sees_states_of_its_own_threads_and_texts_only_with_steps",
    ),
    (
        "take-any-grant",
        "organism::partitions::live::a_pump_takes_no_judgement_of_a_host_that_it_does_not_know",
    ),
    (
        "show-text-to-anybody",
        "organism::live::a_caller_that_nothing_shows_needs_the_key_of_an_operator",
    ),
    (
        "let-unknown-callers-decide",
        "organism::signed::a_caller_that_nothing_shows_decides_with_the_signature_of_an_operator_alone",
    ),
    (
        "take-unsigned-decisions",
        "pump::signed::an_unsigned_decision_changes_nothing_where_there_are_operators",
    ),
    ("take-any-signature", "pump::signed::a_signature_of_anything_else_is_refused"),
    ("take-signatures-of-other-threads", "pump::signed::a_signature_of_anything_else_is_refused"),
    ("take-old-signatures", "pump::signed::a_signature_holds_for_five_minutes"),
    ("use-a-signature-twice", "pump::signed::a_signature_is_used_once_also_after_a_restart"),
    #[cfg(target_os = "linux")]
    (
        "let-a-client-operate",
        "web::view::operate::attacks::a_view_without_a_named_operator_changes_nothing",
    ),
    ("act-without-a-confirmation", "web::view::operate::attacks::no_forged_confirmation_decides"),
    ("act-twice", "web::view::operate::a_pause_a_resume_and_the_kill_switch_reach_the_organism"),
    (
        "retry-twice-in-the-browser",
        "web::view::operate::retries::work_that_may_be_done_twice_needs_a_confirmation_of_its_own",
    ),
    ("approve-another-hash", "web::view::operate::attacks::no_forged_confirmation_decides"),
    (
        "act-with-the-key-of-another",
        "web::view::operate::signed::a_decision_that_must_be_signed_needs_the_key_of_the_person",
    ),
    ("trust-the-browser", "web::view::hosted::a_hosted_process_gets_no_page_even_with_the_cookie"),
    #[cfg(target_os = "linux")]
    (
        "trust-what-nobody-shows",
        "web::view::hosted::a_hosted_process_gets_no_page_even_with_the_cookie",
    ),
    (
        "answer-any-host",
        "web::view::access::a_rebound_name_a_strange_origin_and_another_site_get_no_page",
    ),
    (
        "answer-any-origin",
        "web::view::access::a_rebound_name_a_strange_origin_and_another_site_get_no_page",
    ),
    (
        "answer-without-token",
        "web::view::access::nothing_is_shown_without_the_token_and_its_cookie",
    ),
    (
        "serve-without-tls",
        "web::view::access::the_view_listens_on_loopback_alone_and_for_a_person_of_the_config",
    ),
    (
        "take-an-open-key",
        "web::view::live::beyond_loopback_the_view_needs_tls_and_a_name_and_then_answers_a_real_client",
    ),
    ("trust-the-process", "organism::access::a_hosted_process_uses_no_verb_of_the_control_socket"),
    #[cfg(target_os = "linux")]
    (
        "leave-orphans",
        "organism::access::a_process_that_detached_from_its_listener_is_still_refused",
    ),
    #[cfg(target_os = "linux")]
    (
        "keep-leftovers",
        "organism::orphans::processes_of_listeners_end_at_a_stop_and_at_the_start_after_a_kill",
    ),
    ("accept-a-wrong-hash", SIMULATION),
    (
        "accept-a-wrong-hash",
        "pump::approvals::an_approval_holds_for_its_own_bytes_and_says_enough_of_them",
    ),
    (
        "approve-without-the-preview",
        "pump::previews::an_approval_that_does_not_name_the_recorded_preview_is_refused",
    ),
    (
        "deliver-without-the-preview",
        "pump::previews::a_call_whose_approved_preview_nobody_compares_is_not_delivered",
    ),
    (
        "believe-a-late-stale-preview",
        "pump::previews::a_stale_preview_after_a_failed_attempt_has_an_unknown_outcome",
    ),
    (
        "count-a-preview",
        "pump::previews::a_preview_is_no_attempt_and_the_approved_delivery_names_it",
    ),
    ("hand-over-the-held", "pump::approvals::a_held_call_continues_once_its_bytes_are_approved"),
    ("hand-over-the-held", ATTACKER),
    ("skip-the-vocabulary", ATTACKER),
    ("skip-the-budget", ATTACKER),
    (
        "record-every-busy",
        "organism::busy::refusals_as_busy_are_one_count_on_record_and_not_a_record_each",
    ),
    ("drop-a-refusal", ATTACKER),
    ("forget-the-inputs", "agent::preview::the_prompt_of_a_turn_on_record_is_shown_as_it_was_sent"),
    (
        "forget-the-config",
        "organism::past_turns::a_turn_is_shown_as_it_was_sent_whatever_the_config_is_now",
    ),
    ("let-a-result-close", "agent::injections::a_result_in_xml_is_exactly_the_listeners_payload"),
    ("count-the-held", "pump::humans::calls_that_wait_for_people_leave_other_clients_their_room"),
    (
        "count-the-waiting",
        "pump::timer_limits::calls_that_wait_for_timers_leave_other_clients_their_room",
    ),
    (
        "let-timers-pile-up",
        "pump::timer_limits::a_client_whose_calls_wait_for_timers_is_busy_and_no_other_client_is",
    ),
    (
        "wave-old-calls-through",
        "pump::approvals::a_config_with_a_new_approval_holds_only_calls_that_were_not_begun",
    ),
    ("approve-twice", SIMULATION),
    (
        "approve-twice",
        "pump::approvals::an_approval_is_used_once_and_the_second_operator_is_refused",
    ),
    (
        "first-close-extraction",
        "extract::corpus::every_case_of_the_corpus_passes_under_every_chunk_plan",
    ),
    ("merge-two-elements", MUTATED_TURNS),
    ("act-on-drafts", MUTATED_TURNS),
    ("end-reasoning-in-code", MUTATED_TURNS),
    ("act-on-quotations", MUTATED_TURNS),
    ("act-inside-unknown-elements", MUTATED_TURNS),
    ("dispatch-the-incomplete", "extract::rules::an_incomplete_or_open_element_is_never_an_action"),
    ("accept-a-cut-answer", "model::suite::openai::a_stream_without_its_terminator_is_cut"),
    ("mix-two-answers", "model::router::an_answer_that_broke_off_is_void_before_the_next_begins"),
    ("show-the-key", "model::suite::anthropic::a_key_that_is_echoed_is_hidden"),
    ("one-nonce-for-all", "agent::xml_final::a_slot_of_an_earlier_turn_is_no_slot"),
    (
        "take-xml-beside-calls",
        "agent::native::xml_of_a_tool_beside_native_calls_gets_feedback_and_the_calls_still_run",
    ),
    ("guess-the-format", "agent::xml_final::a_report_in_another_than_its_one_format_gets_feedback"),
    ("answer-anywhere", "organism::partitions::a_response_goes_only_to_the_inbox_of_the_request"),
    (
        "answer-any-organism",
        "organism::streams::an_organism_answers_no_request_of_another_one_of_its_name",
    ),
    (
        "admit-any-member",
        "organism::streams::an_organism_answers_no_request_of_another_one_of_its_name",
    ),
    (
        "trust-the-config",
        "organism::nats_config::durable::servers_that_sync_later_than_the_config_says_are_refused_by_name",
    ),
    (
        "drain-too-early",
        "bus::remote::drain::a_host_is_drained_when_its_last_answer_is_with_the_pump_and_not_before",
    ),
    (
        "trust-the-count",
        "organism::partitions::another_number_of_partitions_than_the_journals_is_refused_with_both",
    ),
    (
        "ignore-the-projection",
        "journal::streamed::bounds::a_stream_that_is_shorter_than_the_projection_gets_no_leader",
    ),
    (
        "ignore-the-state",
        "journal::streamed::bounds::a_stream_that_is_shorter_than_the_state_shows_gets_no_leader",
    ),
    (
        "ignore-the-lease",
        "journal::streamed::bounds::a_stream_that_is_shorter_than_the_lease_shows_gets_no_leader",
    ),
    (
        "ignore-the-members",
        "journal::streamed::bounds::a_stream_that_is_shorter_than_another_hosts_projection_gets_no_leader",
    ),
    (
        "ignore-the-members",
        "journal::streamed::bounds::a_repair_publishes_nothing_while_another_process_has_later_records",
    ),
    (
        "write-after-a-lapse",
        "journal::streamed::bounds::a_pump_whose_lease_lapsed_writes_nothing_while_another_projection_goes_farther",
    ),
    (
        "publish-for-another-host",
        "journal::streamed::bounds::records_of_another_hosts_pump_are_published_again_only_on_request",
    ),
    (
        "forget-the-repair",
        "organism::pumps::shorter::a_killed_repair_continues_and_is_recorded_once",
    ),
    (
        "lead-a-fork",
        "journal::streamed::bounds::a_stream_that_another_host_continued_is_a_fork_without_a_leader",
    ),
    (
        "lead-a-fork",
        "journal::streamed::bounds::another_record_in_another_hosts_projection_is_a_fork_without_a_leader",
    ),
    (
        "leave-what-is-out",
        "organism::partitions::shares::a_partition_is_handed_over_when_what_is_out_has_ended",
    ),
    (
        "watch-only-the-pipe",
        "bus::exits::a_process_that_ends_has_crashed_although_its_child_holds_its_output",
    ),
    (
        "free-the-thread-early",
        "pump::fairness::serial_per_thread_waits_for_a_handler_that_was_timed_out_or_cancelled",
    ),
    ("free-the-thread-early", SIMULATED_PUMP),
    (
        "trust-the-order",
        "bus::names::a_stale_answer_reaches_no_other_caller_and_the_third_replaces_the_process",
    ),
    ("trust-the-order", STRAY_ANSWERS),
    #[cfg(target_os = "linux")]
    ("skip-the-fsync", "journal::sync::every_record_is_synced_before_it_is_acknowledged"),
];

/// Time-out of a guard. A guard that runs longer waits for something that its mutant removed.
const GUARD_TIME_MAX: Duration = Duration::from_secs(600);

/// Runs one test in a separate process.
fn is_green(test: &str, mutant: Option<&str>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).stderr(Stdio::null());
    // Small campaigns, large enough to detect each mutant.
    command.env("SIMULATION_SEEDS", "150").env_remove("SIMULATION_SEED");
    command.env("RUST_BACKTRACE", "0").env_remove("ORGANISM_CAMPAIGNS");
    command.env_remove("ORGANISM_TORTURE");
    match mutant {
        Some(mutant) => command.env("ORGANISM_MUTANT", mutant),
        None => command.env_remove("ORGANISM_MUTANT"),
    };
    let mut log = tempfile::NamedTempFile::new().unwrap();
    let child = command.stdout(log.reopen().unwrap()).spawn().unwrap();
    let mut running = Running { child };
    let end = format!("{test} with the mutant {mutant:?} ends");
    let status = until_within(GUARD_TIME_MAX, &end, || running.child.try_wait().unwrap());
    let mut output = String::new();
    log.read_to_string(&mut output).unwrap();
    assert!(output.contains("running 1 test\n"), "there is no test {test}:\n{output}");
    status.success()
}

/// The guards of a mutant.
fn guards_of(mutant: &str) -> impl Iterator<Item = &'static str> {
    let of_mutant = GUARDS.iter().filter(move |(other, _)| *other == mutant);
    of_mutant.map(|(_, guard)| *guard)
}

/// Returns the guards to run, each with its mutant. With `ORGANISM_TORTURE`, these are all guards,
/// and each guard once more without a mutant. A short run leaves out a dear guard if its mutant has
/// a cheaper one. In a short run, the test suite itself runs the guards without mutants.
fn runs() -> Vec<(&'static str, Option<&'static str>)> {
    let broken = GUARDS.iter().map(|(mutant, guard)| (*guard, Some(*mutant)));
    if torture() {
        let guards: BTreeSet<_> = GUARDS.iter().map(|(_, guard)| *guard).collect();
        return guards.into_iter().map(|guard| (guard, None)).chain(broken).collect();
    }

    let is_dear = |guard: &str| DEAR_GUARDS.contains(&guard);
    let is_needed = |guard: &str, mutant: &str| {
        let has_cheaper = guards_of(mutant).any(|other| !is_dear(other));
        !is_dear(guard) || (!has_cheaper && guards_of(mutant).next() == Some(guard))
    };
    broken.filter(|(guard, mutant)| is_needed(guard, mutant.unwrap_or_default())).collect()
}

#[test]
fn each_broken_rule_turns_its_guard_red_and_only_then() {
    let mut campaign = Campaign::new("mutants");
    campaign.note(format!("{} mutants, {} runs of their guards", MUTANTS.len(), runs().len()));
    let queue = Mutex::new(runs());
    let wrong = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((guard, mutant)) = queue.lock().unwrap().pop() else { break };
                    let begun = Instant::now();
                    // Under load, a guard may miss a mutant whose effect depends on timing. A
                    // mutant lives if three runs miss it.
                    let looks = if mutant.is_some() { 3 } else { 1 };
                    let green = (0..looks).all(|_| is_green(guard, mutant));
                    let colour = if green { "green" } else { "red" };
                    let took = begun.elapsed().as_secs_f64();
                    let line =
                        format!("{:24} {colour:5} {took:5.1} s  {guard}", mutant.unwrap_or("-"));
                    println!("{line}");
                    if green != mutant.is_none() {
                        wrong.lock().unwrap().push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "mutants that live, and guards that are red:\n{}", wrong.join("\n"));
}

/// The text of all Rust files in a folder.
fn text_of(folder: &Path) -> String {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => text_of(&path),
        false => std::fs::read_to_string(path).unwrap_or_default(),
    };
    paths.map(text).collect()
}

#[test]
fn every_mutant_has_its_place_and_its_guard() {
    let guarded: BTreeSet<_> = GUARDS.iter().map(|(mutant, _)| *mutant).collect();
    let known: BTreeSet<_> = MUTANTS.iter().map(|(mutant, _)| *mutant).collect();
    let unguarded: Vec<_> = known.difference(&guarded).collect();
    assert!(unguarded.is_empty() || !cfg!(target_os = "linux"), "no guard for {unguarded:?}");
    assert!(guarded.is_subset(&known), "guards against what nobody breaks");
    let source = text_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let places = source.split("mutant(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let placed: BTreeSet<_> = places.collect();
    assert_eq!(placed, known, "each mutant of the list breaks a rule, and no other does");
}
