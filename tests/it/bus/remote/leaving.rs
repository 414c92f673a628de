//! Who is leaving is not there any more, and says so by silence; what it holds it still answers.

use std::time::{Duration, Instant};

use organism::nats::RequestErrorKind;
use tokio::time::timeout;

use super::kits::{Rust, told_here};
use super::{Kit, Meeting, PATIENCE, Stranger};
use crate::bus::ear::{Ear, Heard, done};
use crate::nats::{Server, Settings, shared};

/// Waits until a program that was asked to end has.
pub type Ending = Box<dyn FnOnce() + Send>;

fn rust_ends(rust: Rust) -> Ending {
    let thread = rust.ask_to_end();
    Box::new(move || assert_eq!(thread.join().unwrap(), Ok(())))
}

fn python_ends(mut kit: Kit) -> Ending {
    kit.ask_to_end();
    Box::new(move || assert!(kit.ended().success()))
}

/// Nobody takes deliveries any more.
async fn is_leaving(meeting: &Meeting, stranger: &Stranger) {
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "it still takes what is delivered");
        let asked = stranger.0.request(meeting.subjects.deliveries(), "".into());
        // Where somebody takes it, it waits for its turn, and nothing is answered.
        match timeout(Duration::from_millis(100), asked).await {
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => return,
            _ => {}
        }
    }
}

/// A delivery that its handler works at until it is cancelled.
async fn waits(ear: &mut Ear) -> u32 {
    let number = ear.tell("wait");
    ear.expect(Heard::Beat(number)).await;
    number
}

/// `answer` is what it says of a delivery that is cancelled.
pub async fn is_silent_when_asked(
    meeting: &Meeting,
    mut ear: Ear,
    answer: &str,
    ask_to_end: impl FnOnce() -> Ending,
) {
    let number = waits(&mut ear).await;
    let id = told_here(meeting).await["id"].as_str().unwrap().to_owned();
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
    ear.expect(Heard::Answer(number, vec![answer.to_owned()])).await;
    tokio::task::spawn_blocking(has_ended).await.unwrap();
    // Whatever it said has arrived by now; what comes next is ours.
    for (heard, subject) in [(&mut said, &inbox), (&mut announced, &here)] {
        stranger.say(subject, &[], "nothing").await;
        loop {
            let message = heard.next().await;
            // Nobody answers: so says the server.
            if message.status.is_none() {
                assert_eq!(str::from_utf8(&message.payload), Ok("nothing"), "{message:?}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_rust_kit_that_leaves_is_silent_when_it_is_asked() {
    let meeting = Meeting::at(shared());
    let rust = Rust::start(&meeting);
    is_silent_when_asked(&meeting, meeting.ear(), &done("gone"), || rust_ends(rust)).await;
}

#[tokio::test]
async fn a_python_kit_that_leaves_is_silent_when_it_is_asked() {
    let meeting = Meeting::at(shared());
    let kit = Kit::start(&meeting, &[]);
    is_silent_when_asked(&meeting, meeting.ear(), &done("gone"), || python_ends(kit)).await;
}

/// Every new connection is announced, but by those who leave.
pub async fn is_silent_on_a_new_connection(
    server: &Server,
    meeting: &Meeting,
    mut ear: Ear,
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
    // A connection is announced with the first sign of life on it, or before.
    let mut signs = 0;
    while signs < 2 {
        let message = answers.next().await;
        let is_here = message.subject.as_str() == meeting.subjects.here();
        assert!(!is_here || message.status.is_some(), "{message:?}");
        signs += usize::from(!is_here);
    }
    is_leaving(meeting, &stranger).await;
    ear.cancel(number);
    ear.expect(Heard::Answer(number, vec![answer.to_owned()])).await;
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

#[tokio::test]
async fn a_python_kit_that_leaves_announces_no_new_connection() {
    let server = server();
    let meeting = Meeting::at(&server);
    let kit = Kit::start(&meeting, &[("ORGANISM_BUS_LEASE", "1")]);
    let ear = meeting.ear();
    is_silent_on_a_new_connection(&server, &meeting, ear, &done("gone"), || python_ends(kit)).await;
}
