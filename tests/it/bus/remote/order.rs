//! Messages are sent in the order in which they were queued, also in large numbers.

use std::sync::atomic::Ordering;

use organism::envelope::MessageKind;

use super::Meeting;
use crate::bus::harness::message;
use crate::nats::{Server, Settings};
use crate::organism::until;

/// Number of deliveries, more than a connection queues before it writes: async-nats queues 2048
/// commands.
const DELIVERIES: u32 = 5000;
/// Size of each message in bytes. All messages together exceed the buffers of the sockets.
const EACH_BYTES: usize = 4000;

#[tokio::test]
async fn a_cancel_never_overtakes_its_delivery() {
    let server = Server::start_with(Settings { jetstream: None, more: "" });
    let meeting = Meeting::at(&server);
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&format!("organism.{}.>", meeting.organism)).await;
    let mut pinged = stranger.hears(&meeting.subjects.ping()).await;
    let mut ear = meeting.ear();
    // The ping of the host at its start must not be counted as a delivery.
    pinged.next().await;
    let sent = || meeting.wire.client().statistics().out_messages.load(Ordering::Relaxed);
    let text = "x".repeat(EACH_BYTES);
    let before = sent();
    // The server reads nothing, so the sender blocks in the middle of a write.
    server.signal("-STOP");
    let put = |_| ear.put(vec![message(1, MessageKind::Call, &text)], 1);
    let last = (0..DELIVERIES).map(put).last().unwrap();
    ear.host.flush();
    until("something is sent", || (sent() != before).then_some(()));
    ear.cancel(last);
    server.signal("-CONT");
    let mut came = Vec::new();
    for _ in 0..=DELIVERIES {
        let message = all.next().await;
        let headers = message.headers.unwrap();
        let attempt = headers.get("Organism-Attempt").unwrap().to_string();
        came.push((message.subject.to_string(), attempt));
    }
    let (deliveries, cancels) = (meeting.subjects.deliveries(), meeting.subjects.cancels());
    let mut put: Vec<_> = (1..=last).map(|n| (deliveries.clone(), format!("1.{n}"))).collect();
    put.push((cancels, format!("1.{last}")));
    let wrong = came.iter().zip(&put).position(|(came, put)| came != put);
    let wrong = wrong.map(|at| (at, &came[at], &put[at]));
    assert_eq!(wrong, None, "the first that is not where it was put");
}
