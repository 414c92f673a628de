//! Listeners with several replicas, and listeners without a replica.

use std::io::{BufRead as _, BufReader, Write as _};

use organism::envelope::AttemptFailure;

use super::{Kit, Meeting};
use crate::bus::harness::{SinkEvent, done};
use crate::bus::kit_language::KitLanguage;
use crate::nats::shared;

/// Environment variable that sets the duration of a lease in seconds to the minimum.
const LEASE: (&str, &str) = ("ORGANISM_BUS_LEASE", "1");

async fn a_replica_killed_during_a_delivery_is_detected_and_another_continues(
    language: KitLanguage,
) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let mut doomed = Kit::start(language, &meeting, &[LEASE]);
    let number = ear.tell("stuck");
    ear.expect(SinkEvent::Beat(number)).await;
    let _other = Kit::start(language, &meeting, &[LEASE]);
    doomed.kill();
    match ear.next().await {
        SinkEvent::Failed(n, failure @ AttemptFailure::Crashed { .. }) if n == number => {
            assert!(failure.to_string().contains("no keep-alive for 1 s"), "{failure}");
        }
        other => panic!("expected a crash, heard {other:?}"),
    }
    let number = ear.tell("echo again");
    ear.expect(SinkEvent::Answer(number, vec![done("again")])).await;
}

async fn a_replica_busy_for_longer_than_its_lease_keeps_its_delivery(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[LEASE, ("ORGANISM_BUS_WORKERS", "2")]);
    let long = ear.tell("wait");
    ear.expect(SinkEvent::Beat(long)).await;
    // Three leases, measured by the kit's clock.
    let other = ear.tell("sleep 3");
    ear.expect(SinkEvent::Answer(other, vec![done("slept")])).await;
    ear.cancel(long);
    ear.expect(SinkEvent::Answer(long, vec![done("gone")])).await;
}

async fn a_missing_listener_is_reported_once_and_its_arrival_once(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    for round in 0..2 {
        let first = ear.tell("echo lost");
        let left = ear.next().await;
        assert!(matches!(&left, SinkEvent::Left(why) if why.contains("no replica")), "{left:?}");
        for number in [first, ear.tell("echo lost, too")] {
            let failed = ear.next().await;
            let SinkEvent::Failed(n, failure @ AttemptFailure::Unreachable { .. }) = &failed else {
                panic!("expected a failure, heard {failed:?}");
            };
            assert!(*n == number && failure.is_retried(), "{failed:?}");
        }
        let mut kit = Kit::start(language, &meeting, &[]);
        ear.expect(SinkEvent::Joined).await;
        assert_eq!(ear.ask("echo found").await, "found", "round {round}");
        assert!(kit.terminate().success());
    }
}

/// If a request finds no responder, the host forgets the announcements of all replicas. A replica
/// does not necessarily notice this failure. So the host requests new announcements as soon as a
/// replica answers again.
#[tokio::test]
async fn a_returning_listener_is_probed_for_its_lease() {
    let meeting = Meeting::at(shared());
    let stranger = meeting.stranger().await;
    let mut pings = stranger.hears(&meeting.subjects.ping()).await;
    // Other organisms publish to the same subject.
    let mut asked =
        async || while *pings.next().await.reply.unwrap() != *meeting.subjects.here() {};
    let mut ear = meeting.ear();
    asked().await;
    ear.tell("echo lost");
    assert!(matches!(ear.next().await, SinkEvent::Left(_)));
    assert!(matches!(ear.next().await, SinkEvent::Failed(..)));
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("echo found");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[], &done("found")).await;
    ear.expect(SinkEvent::Joined).await;
    ear.expect(SinkEvent::Answer(number, vec![done("found")])).await;
    asked().await;
}

/// A replica without a lease may have taken the delivery, after a replica with one has left.
#[tokio::test]
async fn a_delivery_without_any_keep_alive_has_the_announced_lease_checked() {
    let meeting = Meeting::at(shared());
    let stranger = meeting.stranger().await;
    let mut pings = stranger.hears(&meeting.subjects.ping()).await;
    let mut asked =
        async || while *pings.next().await.reply.unwrap() != *meeting.subjects.here() {};
    let mut ear = meeting.ear();
    asked().await;
    let _deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    stranger.say(&meeting.subjects.here(), &[("Organism-Lease", "1")], "").await;
    ear.tell("echo lost");
    match ear.next().await {
        SinkEvent::Failed(_, failure @ AttemptFailure::Crashed { .. }) => {
            let failure = failure.to_string();
            assert!(failure.contains("for 1 s, and none since the delivery"), "{failure}");
        }
        other => panic!("expected a crash, heard {other:?}"),
    }
    asked().await;
}

/// A stopping replica continues to send heartbeats for its deliveries. Such a heartbeat does not
/// show that the listener is back.
#[tokio::test]
async fn a_sign_of_life_of_an_earlier_delivery_is_no_return_of_the_listener() {
    let meeting = Meeting::at(shared());
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut ear = meeting.ear();
    let held = ear.tell("echo held");
    let reply = deliveries.next().await.reply.unwrap();
    drop(deliveries);
    stranger.0.request("$SRV.PING.nobody", "".into()).await.unwrap_err();

    ear.tell("echo lost");
    assert!(matches!(ear.next().await, SinkEvent::Left(_)));
    assert!(matches!(ear.next().await, SinkEvent::Failed(..)));
    stranger.say(&reply, &[("Organism-Heartbeat", "1")], "").await;
    ear.expect(SinkEvent::Beat(held)).await;
    ear.tell("echo lost, too");
    assert!(matches!(ear.next().await, SinkEvent::Failed(..)));
    stranger.say(&reply, &[], &done("held")).await;
    ear.expect(SinkEvent::Answer(held, vec![done("held")])).await;

    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let taken = ear.tell("echo found");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[("Organism-Heartbeat", "1")], "").await;
    ear.expect(SinkEvent::Joined).await;
    ear.expect(SinkEvent::Beat(taken)).await;
}

/// Any user with a publish right can forge a `no responders` message. Such a message does not make
/// a listener leave.
#[tokio::test]
async fn a_listener_cannot_be_made_to_leave_by_a_message() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap().to_string();
    let (own, _) = reply.rsplit_once('.').unwrap();
    let guessed = format!("{own}.0123456789abcdef0123456789abcdef");
    let server = meeting.address.trim_start_matches("nats://").to_owned();
    let mut raw = std::net::TcpStream::connect(server).unwrap();
    let options =
        r#"{"verbose":false,"headers":true,"no_responders":true,"lang":"raw","version":"0"}"#;
    write!(raw, "CONNECT {options}\r\nHPUB {guessed} 16 16\r\nNATS/1.0 503\r\n\r\n\r\nPING\r\n")
        .unwrap();
    let mut told = BufReader::new(raw).lines().map(Result::unwrap);
    assert!(told.any(|line| line == "PONG"), "the server has it");
    stranger.say(&reply, &[], &done("still here")).await;
    ear.expect(SinkEvent::Answer(number, vec![done("still here")])).await;
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

async fn a_stopping_replica_ends_its_deliveries_first(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let mut kit = Kit::start(language, &meeting, &[]);
    let numbers = [ear.tell("wait"), ear.tell("echo last")];
    ear.expect(SinkEvent::Beat(numbers[0])).await;
    ear.cancel(numbers[0]);
    let ended = tokio::task::spawn_blocking(move || kit.terminate());
    ear.expect(SinkEvent::Answer(numbers[0], vec![done("gone")])).await;
    ear.expect(SinkEvent::Answer(numbers[1], vec![done("last")])).await;
    assert!(ended.await.unwrap().success());
}

each_kit!(
    a_replica_killed_during_a_delivery_is_detected_and_another_continues
    a_replica_busy_for_longer_than_its_lease_keeps_its_delivery
    a_missing_listener_is_reported_once_and_its_arrival_once
    a_stopping_replica_ends_its_deliveries_first
);
