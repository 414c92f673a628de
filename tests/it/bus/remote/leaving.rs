//! A stopping listener no longer announces itself, and still answers its deliveries.

use std::io::Read as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use organism::envelope::AttemptFailure;
use organism::nats::RequestErrorKind;
use tokio::time::timeout;

use super::kits::{Rust, ping_answer};
use super::{Kit, Meeting, Stranger};
use crate::bus::harness::{HostHarness, SinkEvent, done, script};
use crate::bus::kit_language::KitLanguage;
use crate::nats::{Server, Settings, shared};
use crate::organism::PATIENCE;

/// Maximum time until a stopping listener ends without its server. The kits wait for the server for
/// five seconds.
const END_MAX: Duration = Duration::from_secs(45);

/// Function that waits until a stopping program has ended.
pub type Ending = Box<dyn FnOnce() + Send>;

fn rust_ends(rust: Rust) -> Ending {
    let thread = rust.ask_to_end();
    Box::new(move || assert_eq!(thread.join().unwrap(), Ok(())))
}

fn program_ends(mut kit: Kit) -> Ending {
    kit.ask_to_end();
    Box::new(move || assert!(kit.ended().success()))
}

/// Waits until no listener takes deliveries any more.
async fn is_leaving(meeting: &Meeting, stranger: &Stranger) {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "it still takes what is delivered");
        let asked = stranger.0.request(meeting.subjects.deliveries(), "".into());
        // A delivery that a listener takes waits for its turn and gets no answer.
        match timeout(Duration::from_millis(100), asked).await {
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => return,
            _ => {}
        }
    }
}

/// Starts a delivery whose handler runs until the delivery is cancelled.
async fn waits(ear: &mut HostHarness) -> u32 {
    let number = ear.tell("wait");
    ear.expect(SinkEvent::Beat(number)).await;
    number
}

/// Checks that a stopping listener answers no discovery requests, even after its last delivery is
/// cancelled. `answer` is its answer to that delivery.
pub async fn is_silent_after_cancel(
    meeting: &Meeting,
    mut ear: HostHarness,
    answer: &str,
    ask_to_end: impl FnOnce() -> Ending,
) {
    let number = waits(&mut ear).await;
    let id = ping_answer(meeting).await["id"].as_str().unwrap().to_owned();
    let stranger = meeting.stranger().await;
    let has_ended = ask_to_end();
    is_leaving(meeting, &stranger).await;
    let inbox = stranger.0.new_inbox();
    let (mut said, here) = (stranger.hears(&inbox).await, meeting.subjects.here());
    let mut announced = stranger.hears(&here).await;
    for verb in ["PING", "INFO", "STATS"] {
        let asked = format!("$SRV.{verb}.tested.{id}");
        for reply in [&inbox, &here] {
            stranger.0.publish_with_reply(asked.clone(), reply.clone(), "".into()).await.unwrap();
        }
    }
    stranger.0.flush().await.unwrap();
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![answer.to_owned()])).await;
    tokio::task::spawn_blocking(has_ended).await.unwrap();
    // All earlier answers have arrived by now, so the next one belongs to this test.
    for (heard, subject) in [(&mut said, &inbox), (&mut announced, &here)] {
        stranger.say(subject, &[], "nothing").await;
        loop {
            let message = heard.next().await;
            // The server reports that there is no responder.
            if message.status.is_none() {
                assert_eq!(str::from_utf8(&message.payload), Ok("nothing"), "{message:?}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_leaving_rust_kit_ignores_discovery_requests() {
    let meeting = Meeting::at(shared());
    let rust = Rust::start(&meeting);
    is_silent_after_cancel(&meeting, meeting.ear(), &done("gone"), || rust_ends(rust)).await;
}

async fn a_leaving_kit_ignores_discovery_requests(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let kit = Kit::start(language, &meeting, &[]);
    is_silent_after_cancel(&meeting, meeting.ear(), &done("gone"), || program_ends(kit)).await;
}

/// Checks that a listener which is stopping does not announce itself on a new connection.
pub async fn is_silent_on_a_new_connection(
    server: &Server,
    meeting: &Meeting,
    mut ear: HostHarness,
    answer: &str,
    ask_to_end: impl FnOnce() -> Ending,
) {
    let number = waits(&mut ear).await;
    let stranger = meeting.stranger().await;
    let has_ended = ask_to_end();
    is_leaving(meeting, &stranger).await;
    let mut answers = stranger.hears(&meeting.subjects.answers()).await;
    server.kill();
    server.restart();
    stranger.0.flush().await.unwrap();
    // A connection is announced at the latest with its first keep-alive.
    let mut signs = 0;
    while signs < 2 {
        let message = answers.next().await;
        let is_here = message.subject.as_str() == meeting.subjects.here();
        assert!(!is_here || message.status.is_some(), "{message:?}");
        signs += usize::from(!is_here);
    }
    is_leaving(meeting, &stranger).await;
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![answer.to_owned()])).await;
    tokio::task::spawn_blocking(has_ended).await.unwrap();
}

pub fn server() -> Server {
    Server::start_with(Settings { jetstream: None, more: "" })
}

#[tokio::test]
async fn a_rust_kit_that_leaves_announces_no_new_connection() {
    let server = server();
    let meeting = Meeting::at(&server);
    let rust = Rust::start(&meeting);
    let ear = meeting.ear();
    is_silent_on_a_new_connection(&server, &meeting, ear, &done("gone"), || rust_ends(rust)).await;
}

async fn a_kit_that_leaves_announces_no_new_connection(language: KitLanguage) {
    let server = server();
    let meeting = Meeting::at(&server);
    let kit = Kit::start(language, &meeting, &[("ORGANISM_BUS_LEASE", "1")]);
    let ear = meeting.ear();
    is_silent_on_a_new_connection(&server, &meeting, ear, &done("gone"), || program_ends(kit))
        .await;
}

/// Checks that a program ends soon if the server is down when the stop signal arrives.
fn ends_without_a_server(server: &Server, ask_to_end: impl FnOnce() -> Ending) {
    server.kill();
    ends_soon(ask_to_end());
}

fn ends_soon(ending: Ending) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        ending();
        tell.send(())
    });
    let told = told.recv_timeout(END_MAX);
    assert_ne!(told, Err(RecvTimeoutError::Timeout), "it waits for a server that is away");
    // A process that ended unexpectedly has printed the reason.
    thread.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_rust_kit_stops_on_request_while_its_server_is_down() {
    let server = server();
    let rust = Rust::start(&Meeting::at(&server));
    ends_without_a_server(&server, || rust_ends(rust));
}

async fn a_kit_stops_on_request_while_its_server_is_down(language: KitLanguage) {
    let server = server();
    let kit = Kit::start(language, &Meeting::at(&server), &[]);
    ends_without_a_server(&server, || program_ends(kit));
}

/// A Python listener ends even if its client loses the cancellation and continues to reconnect.
/// `asyncio.run` cancels each task only once.
#[tokio::test]
async fn a_python_kit_ends_whose_client_loses_a_cancellation() {
    let server = server();
    let kit = Kit::running(&script("losing.py"), &Meeting::at(&server), &[]);
    ends_without_a_server(&server, || program_ends(kit));
}

#[tokio::test]
async fn a_rust_kit_ends_that_has_more_to_say_than_its_connection_takes() {
    let server = server();
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let rust = Rust::start(&meeting);
    let number = ear.tell("beat 1000000");
    ear.expect(SinkEvent::Beat(number)).await;
    ends_without_a_server(&server, || rust_ends(rust));
}

/// Checks that a listener which is stopped during an outage still sends its answer when the server
/// returns.
async fn answers_when_its_server_is_back(
    server: &Server,
    meeting: &Meeting,
    mut ear: HostHarness,
    ask_to_end: impl FnOnce() -> Ending,
) {
    let number = waits(&mut ear).await;
    // With leases; without them, the host would not wait for the answer.
    let mut leases = meeting.stranger().await.hears(&meeting.subjects.answers()).await;
    for _ in 0..2 {
        leases.next().await;
    }
    server.kill();
    let has_ended = ask_to_end();
    server.restart();
    let stranger = meeting.stranger().await;
    is_leaving(meeting, &stranger).await;
    // The keep-alive on the new connection proves that the listener receives cancellations.
    let mut answers = stranger.hears(&meeting.subjects.answers()).await;
    while answers.next().await.status.is_some() {}
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![done("gone")])).await;
    tokio::task::spawn_blocking(has_ended).await.unwrap();
}

#[tokio::test]
async fn a_rust_kit_that_leaves_in_an_outage_answers_what_it_has_after_it() {
    let server = server();
    let meeting = Meeting::at(&server);
    let rust = Rust::start(&meeting);
    let ear = meeting.ear();
    answers_when_its_server_is_back(&server, &meeting, ear, || rust_ends(rust)).await;
}

async fn a_kit_that_leaves_in_an_outage_answers_what_it_has_after_it(language: KitLanguage) {
    let server = server();
    let meeting = Meeting::at(&server);
    let kit = Kit::start(language, &meeting, &[("ORGANISM_BUS_LEASE", "1")]);
    let ear = meeting.ear();
    answers_when_its_server_is_back(&server, &meeting, ear, || program_ends(kit)).await;
}

async fn a_kit_without_any_server_stops_on_request(language: KitLanguage) {
    let (mut reading, writing) = std::io::pipe().unwrap();
    let kit = Kit::spawn(
        language.on_nats("obedient"),
        &[
            ("ORGANISM_BUS_URL", "nats://127.0.0.1:1"),
            ("ORGANISM_NAME", "talk"),
            ("ORGANISM_LISTENER", "tested"),
        ],
        writing.into(),
    );
    // The output of the first attempt proves that the listener handles signals by now.
    let mut said = vec![0];
    reading.read_exact(&mut said).unwrap();
    ends_soon(program_ends(kit));
    reading.read_to_end(&mut said).unwrap();
    let said = String::from_utf8(said).unwrap();
    let expected = format!("{}: asked to end before NATS was reached\n", language.module());
    assert!(said.ends_with(&expected), "{said}");
    assert!(!said.contains("Traceback"), "{said}");
}

async fn is_not_begun(mut ear: HostHarness) {
    let begun = waits(&mut ear).await;
    let waiting = ear.tell("echo to nobody");
    ear.cancel(waiting);
    ear.cancel(begun);
    ear.expect(SinkEvent::Answer(begun, vec![done("gone")])).await;
    let detail = "its caller was gone before it was begun".to_owned();
    ear.expect(SinkEvent::Failed(waiting, AttemptFailure::Refused { detail })).await;
}

#[tokio::test]
async fn a_rust_kit_does_not_begin_a_delivery_that_was_cancelled_in_its_queue() {
    let meeting = Meeting::at(shared());
    let _rust = Rust::start(&meeting);
    is_not_begun(meeting.ear()).await;
}

async fn a_kit_does_not_begin_a_delivery_that_was_cancelled_in_its_queue(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let _kit = Kit::start(language, &meeting, &[]);
    is_not_begun(meeting.ear()).await;
}

each_kit!(
    a_leaving_kit_ignores_discovery_requests
    a_kit_that_leaves_announces_no_new_connection
    a_kit_stops_on_request_while_its_server_is_down
    a_kit_that_leaves_in_an_outage_answers_what_it_has_after_it
    a_kit_does_not_begin_a_delivery_that_was_cancelled_in_its_queue
    a_kit_without_any_server_stops_on_request
);
