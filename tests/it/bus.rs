//! Hosts: one suite for every kind, and failures that only processes can cause.

mod conformance;
mod core_words;
mod examples;
mod exits;
mod faults;
pub mod harness;
pub mod kit;
pub mod kit_language;
mod kit_output;
mod launch;
mod memory;
mod mines;
mod names;
mod packages;
mod protocol_page;
pub mod remote;
mod remote_agents;
mod suite;

macro_rules! listener_suite {
    ($($host:ident)|+) => { $(
        mod $host {
            use super::{harness::HostHarness, suite};
            listener_suite!(@ $host 1:
                a_delivery_is_answered_once
                a_handler_sees_every_message_and_which_are_new
                an_empty_answer_has_no_payloads
                two_payloads_come_in_order
                a_thousand_payloads_come_in_order
                a_crash_is_retried_and_the_next_delivery_is_served
                heartbeats_come_before_the_answer
                a_cancelled_handler_may_still_answer
                a_handler_deaf_to_cancel_is_stopped_and_the_next_delivery_is_served
                what_will_not_end_is_stopped_when_the_host_is_drained
                nothing_is_taken_after_a_drain
            );
            listener_suite!(@ $host 3:
                deliveries_run_in_parallel
                what_runs_may_end_when_the_host_is_drained
            );
        }
    )+ };
    (@ $host:ident $instances:literal: $($claim:ident)+) => { $(
        #[tokio::test]
        async fn $claim() {
            let host = |sink| suite::fixture::$host($instances, sink);
            suite::$claim(HostHarness::hosting(host)).await;
        }
    )+ };
}

listener_suite!(native | process | process_typescript | nats | nats_typescript);
