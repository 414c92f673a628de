//! A program of a listener publishes messages whose headers the pump's NATS client cannot parse.

use organism::envelope::AttemptFailure;

use super::{Meeting, publish_headers};
use crate::bus::harness::{SinkEvent, done};
use crate::nats::shared;

/// A malformed header makes the task of the pump's NATS client panic. The host reports this, the
/// delivery in flight is lost, and the next delivery goes over a new client.
#[tokio::test]
async fn a_host_whose_client_has_ended_reports_it_and_delivers_with_a_new_client() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let lost = ear.tell("lost");
    deliveries.next().await;

    let subject = meeting.subjects.denied();
    publish_headers(&meeting.address, &subject, "NATS/1.0\r\nA: x\ry\r\n\r\n");
    let denied = ear.next().await;
    let SinkEvent::AnswersDenied(Some(why)) = &denied else {
        panic!("expected the end of the connection, heard {denied:?}");
    };
    assert!(why.contains("`tested`") && why.contains("made anew"), "{why}");
    ear.expect(SinkEvent::AnswersDenied(None)).await;
    let failed = ear.next().await;
    let SinkEvent::Failed(number, AttemptFailure::Lost { .. }) = &failed else {
        panic!("expected a failure, heard {failed:?}");
    };
    assert_eq!(*number, lost);

    let again = ear.tell("again");
    let delivery = deliveries.next().await;
    assert_eq!(&*delivery.payload, b"<do xmlns=\"urn:test\">again</do>");
    stranger.say(&delivery.reply.unwrap(), &[], &done("again")).await;
    ear.expect(SinkEvent::Answer(again, vec![done("again")])).await;
}
