//! The last messages of a drained host.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures_util::FutureExt as _;
use organism::bus::nats::Options;
use organism::bus::{Host as _, Outcome, Sink};
use organism::envelope::AttemptFailure;
use organism::ids::{Attempt, CallId, ListenerName};

use super::Meeting;
use crate::bus::harness::{HostHarness, SinkEvent};
use crate::nats::shared;

/// A sink that blocks at the end of each attempt until the test releases it.
struct Slow {
    reports: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Sink for Slow {
    fn ended(&self, _: &ListenerName, _: CallId, _: Attempt, _: Result<Outcome, AttemptFailure>) {
        self.reports.send(()).unwrap();
        self.go_on.lock().unwrap().recv().unwrap();
    }
    fn heartbeat(&self, _: &ListenerName, _: CallId, _: Attempt) {}
    fn joined(&self, _: &ListenerName, _: &str) {}
    fn left(&self, _: &ListenerName, _: &str) {}
}

#[tokio::test]
async fn a_host_is_drained_when_its_last_answer_is_with_the_pump_and_not_before() {
    let meeting = Meeting::at(shared());
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let ((told, is_told), (go, go_on)) = (channel(), channel());
    let slow = Arc::new(Slow { reports: told, go_on: Mutex::new(go_on) });
    let host = Arc::new(meeting.host_with(meeting.options(), slow));
    let mut ear = HostHarness::hosting(|_| host.clone());
    ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    stranger.say(&reply, &[], "<a/>").await;
    tokio::task::spawn_blocking(move || is_told.recv().unwrap()).await.unwrap();
    // The answer has left the in-flight table, and the sink has not returned yet.
    assert!(host.drain().now_or_never().is_none(), "drained before its answer was told");
    go.send(()).unwrap();
    host.drain().await;
}

#[tokio::test]
async fn an_answer_during_the_drain_of_a_host_is_reported() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.tell("anything");
    let reply = deliveries.next().await.reply.unwrap();
    let host = ear.host.clone();
    let drained = tokio::spawn(async move { host.drain().await });
    stranger.say(&reply, &[], "<a/>").await;
    drained.await.unwrap();
    ear.expect(SinkEvent::Answer(number, vec!["<a/>".to_owned()])).await;
}

#[tokio::test]
async fn a_drain_cancels_the_deliveries_that_it_gives_up() {
    let meeting = Meeting::at(shared());
    let options = Options { drain_timeout: Duration::from_millis(50), ..meeting.options() };
    let mut ear = HostHarness::hosting(|sink| Arc::new(meeting.host_with(options.clone(), sink)));
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut cancels = stranger.hears(&meeting.subjects.cancels()).await;
    let number = ear.tell("anything");
    let delivery = deliveries.next().await.headers.unwrap();
    ear.host.drain().await;

    let cancel = cancels.next().await.headers.unwrap();
    for header in ["Organism-Call", "Organism-Attempt"] {
        assert_eq!(cancel.get(header), delivery.get(header));
        assert!(cancel.get(header).is_some(), "{cancel:?}");
    }
    let detail = "did not answer before the organism stopped".to_owned();
    ear.expect(SinkEvent::Failed(number, AttemptFailure::Crashed { detail })).await;
}
