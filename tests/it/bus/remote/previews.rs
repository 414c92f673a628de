//! Requests for previews have a subject of their own, and only replicas that give previews take
//! requests from this subject.

use organism::envelope::AttemptFailure;
use organism::ids::Digest;

use super::kits::Rust;
use super::{Kit, Meeting};
use crate::bus::harness::{HostHarness, SinkEvent, done};
use crate::bus::kit_language::KitLanguage;
use crate::nats::shared;

/// A payload that states a preview.
fn preview(text: &str) -> String {
    format!("<preview xmlns=\"{}\">{text}</preview>", organism::system::NAMESPACE)
}

/// Checks that a replica previews a call. The replica must perform the call only if the approved
/// preview is still right.
async fn is_shown_and_compared(ear: &mut HostHarness) {
    let number = ear.ask_for_preview("if-shown a");
    let shown = preview("would do if-shown a");
    ear.expect(SinkEvent::Answer(number, vec![shown.clone()])).await;

    let number = ear.tell_approved("if-shown a", Digest::of(shown.as_bytes()));
    ear.expect(SinkEvent::Answer(number, vec![done("a")])).await;

    let number = ear.tell_approved("if-shown a", Digest::of(b"something else"));
    let SinkEvent::Answer(answered, payloads) = ear.next().await else { panic!("an answer") };
    assert_eq!((answered, payloads.len()), (number, 1));
    assert!(payloads[0].contains("stale-preview"), "{payloads:?}");
    assert_eq!(ear.ask("echo on").await, "on");
}

async fn a_replica_shows_a_preview_and_compares_it(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[]);
    is_shown_and_compared(&mut ear).await;
}

#[tokio::test]
async fn a_replica_of_the_rust_kit_shows_a_preview_and_compares_it() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let rust = Rust::start(&meeting);
    is_shown_and_compared(&mut ear).await;
    assert_eq!(rust.ask_to_end().join().unwrap(), Ok(()));
}

#[tokio::test]
async fn a_replica_without_previews_never_gets_a_request_for_one_and_has_not_left() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let asked = ear.ask_for_preview("it");
    let detail = "no replica of it that gives previews is connected to NATS".to_owned();
    ear.expect(SinkEvent::Failed(asked, AttemptFailure::Unreachable { detail })).await;

    let number = ear.tell("it");
    let delivery = deliveries.next().await;
    assert_eq!(&*delivery.payload, b"<do xmlns=\"urn:test\">it</do>", "the first that came");
    stranger.say(&delivery.reply.unwrap(), &[], &done("so")).await;
    ear.expect(SinkEvent::Answer(number, vec![done("so")])).await;
}

#[tokio::test]
async fn a_request_for_a_preview_is_a_frame_of_its_own_name_and_is_remembered_by_nobody() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut requests = stranger.hears(&meeting.subjects.previews()).await;
    let mut deliveries = stranger.hears(&meeting.subjects.deliveries()).await;
    let own = format!("_INBOX_tested.{}", meeting.organism.replace('-', "x"));
    let _own = stranger.hears(&own).await;

    let asked = ear.ask_for_preview("it");
    let request = requests.next().await;
    let frame = std::str::from_utf8(&request.payload).unwrap();
    assert!(frame.starts_with("<e:preview ") && frame.ends_with("</e:preview>"), "{frame}");
    let reply = request.reply.unwrap();
    stranger.say(&reply, &[("Organism-Remembers", &own)], &preview("so")).await;
    ear.expect(SinkEvent::Answer(asked, vec![preview("so")])).await;

    ear.tell_in_call_of_preview("it");
    let delivery = deliveries.next().await;
    assert_eq!(&*delivery.payload, b"<do xmlns=\"urn:test\">it</do>");
}

each_kit!(a_replica_shows_a_preview_and_compares_it);
