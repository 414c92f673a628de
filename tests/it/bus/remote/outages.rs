//! The server goes away, and comes back.

use organism::envelope::Failure;

use super::{Kit, Meeting};
use crate::bus::ear::{Heard, done};
use crate::nats::{Server, Settings};

fn server() -> Server {
    Server::start_with(Settings { jetstream: None, more: "" })
}

#[tokio::test]
async fn what_a_stranger_had_when_the_connection_broke_is_asked_for_again() {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    deliveries.next().await;
    server.kill();
    server.restart();
    let failed = ear.next().await;
    let Heard::Failed(n, failure @ Failure::Unreachable { .. }) = &failed else {
        panic!("expected a failure, heard {failed:?}");
    };
    assert!(*n == number && failure.to_string().contains("broke"), "{failed:?}");
}

#[tokio::test]
async fn a_kit_that_works_through_an_outage_answers_after_it() {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let _kit = Kit::start(&meeting, &[]);
    let number = ear.tell("wait");
    ear.expect(Heard::Beat(number)).await;
    let stranger = meeting.stranger().await;
    server.kill();
    server.restart();
    let mut here = stranger.hears(&meeting.subjects.here()).await;
    here.next().await;
    ear.cancel(number);
    ear.expect(Heard::Answer(number, vec![done("gone")])).await;
    assert_eq!(ear.ask("echo as before").await, "as before");
}

#[tokio::test]
async fn what_is_delivered_during_an_outage_is_answered_after_it() {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let _kit = Kit::start(&meeting, &[("ORGANISM_BUS_LEASE", "1")]);
    assert_eq!(ear.ask("echo before").await, "before");
    server.kill();
    let number = ear.tell("echo during");
    server.restart();
    // As a pump would, where the listener was slower to come back than the host.
    let mut pending = number;
    loop {
        match ear.next().await {
            Heard::Answer(n, payloads) if n == pending => {
                return assert_eq!(payloads, [done("during")]);
            }
            Heard::Failed(n, failure) if n == pending && failure.is_retried() => {
                pending = ear.tell("echo during");
            }
            Heard::Left(_) | Heard::Joined => {}
            other => panic!("expected an answer, heard {other:?}"),
        }
    }
}
