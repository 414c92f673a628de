//! The servers deny a pump the answers of its listener while the pump runs.

use organism::envelope::AttemptFailure;

use super::Meeting;
use crate::bus::harness::{SinkEvent, done};
use crate::nats::DenyingServer;

/// The host retries a denied subscription every 5 seconds, so its answers stay denied for longer
/// than the lease of the replica. Afterwards, the host still takes the answer to a delivery from
/// before the denial.
#[tokio::test]
async fn a_pump_delivers_nothing_while_its_answers_are_denied_and_takes_them_again_afterwards() {
    let rights = DenyingServer::start(None, "of.no.use");
    let meeting = Meeting::at(&rights.server);
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let early = ear.tell("early");
    let early_reply = deliveries.next().await.reply.unwrap();
    stranger.say(&early_reply, &[("Organism-Lease", "4")], "").await;
    stranger.say(&early_reply, &[("Organism-Heartbeat", "1")], "").await;
    ear.expect(SinkEvent::Beat(early)).await;

    rights.deny("organism.*.re.>");
    let denied = ear.next().await;
    let SinkEvent::AnswersDenied(Some(why)) = &denied else {
        panic!("expected the missing right, heard {denied:?}");
    };
    assert!(why.contains("subscribe to `organism.") && why.contains(".re.tested."), "{why}");
    let refused = ear.tell("meanwhile");
    let detail = why.clone();
    ear.expect(SinkEvent::Failed(refused, AttemptFailure::Unreachable { detail })).await;

    rights.deny("of.no.use");
    ear.expect(SinkEvent::AnswersDenied(None)).await;
    stranger.say(&early_reply, &[], &done("early")).await;
    ear.expect(SinkEvent::Answer(early, vec![done("early")])).await;
    let late = ear.tell("late");
    let delivery = deliveries.next().await;
    assert_eq!(&*delivery.payload, b"<do xmlns=\"urn:test\">late</do>");
    stranger.say(&delivery.reply.unwrap(), &[], &done("late")).await;
    ear.expect(SinkEvent::Answer(late, vec![done("late")])).await;
}
