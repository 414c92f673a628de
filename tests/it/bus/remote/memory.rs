//! Tests that a replica receives only the new messages of a call if it remembers the earlier ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use organism::envelope::{AttemptFailure, Message, MessageKind, NAMESPACE};
use organism::nats::Message as Published;
use tempfile::TempDir;

use super::kits::Rust;
use super::{Kit, Meeting, Stranger};
use crate::bus::harness::{HostHarness, SinkEvent, call, done, message};
use crate::bus::kit_language::KitLanguage;
use crate::nats::{Server, Settings, included, shared};

/// Subject on which a replica receives the further deliveries of those calls that it remembers.
fn own_subject(meeting: &Meeting) -> String {
    format!("_INBOX_tested.{}", meeting.organism.replace('-', "x"))
}

/// The first messages of a call: its request, then replies.
fn messages(count: u64) -> Vec<Arc<Message>> {
    let kind = |seq| if seq == 1 { MessageKind::Call } else { MessageKind::Reply };
    (1..=count).map(|seq| message(seq, kind(seq), "count")).collect()
}

/// Answers a delivery as a replica that remembers the call. The answer names `own` as the subject
/// for the next delivery.
async fn answer(stranger: &Stranger, delivery: &Published, own: &str) {
    let reply = delivery.reply.clone().unwrap();
    stranger.say(&reply, &[("Organism-Remembers", own)], &done("so")).await;
}

async fn is_answered(ear: &mut HostHarness, number: u32) {
    ear.expect(SinkEvent::Answer(number, vec![done("so")])).await;
}

/// Makes the replica answer the first delivery of a call, so that the replica remembers the call
/// afterwards.
async fn first_is_remembered(
    meeting: &Meeting,
    ear: &mut HostHarness,
    replica: &Stranger,
    deliveries: &mut super::TestSubscription,
) {
    let number = ear.deliver_again(1, messages(1), 1);
    answer(replica, &deliveries.next().await, &own_subject(meeting)).await;
    is_answered(ear, number).await;
}

fn text(delivery: &Published) -> &str {
    std::str::from_utf8(&delivery.payload).unwrap()
}

fn is_partial(delivery: &Published, after: u32) -> bool {
    text(delivery).contains(&format!(" after=\"{after}\""))
}

fn count_of(delivery: &Published) -> usize {
    text(delivery).matches("<e:message").count()
}

fn header<'d>(delivery: &'d Published, name: &'static str) -> &'d str {
    delivery.headers.as_ref().unwrap().get(name).unwrap().as_str()
}

fn missing_memory(delivery: &Published, of: u32) -> String {
    let attempt = header(delivery, "Organism-Attempt");
    let call = call(of);
    format!("<e:missing-memory xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\"/>")
}

#[tokio::test]
async fn a_replica_that_remembers_gets_only_new_messages_at_its_own_subject() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;

    first_is_remembered(&meeting, &mut ear, &stranger, &mut all).await;
    for (count, after) in [(3, 1), (4, 3)] {
        let number = ear.deliver_again(1, messages(count), usize::try_from(count).unwrap() - after);
        let delivery = own.next().await;
        assert!(is_partial(&delivery, u32::try_from(after).unwrap()), "{}", text(&delivery));
        assert_eq!(count_of(&delivery), usize::try_from(count).unwrap() - after);
        answer(&stranger, &delivery, &own_subject(&meeting)).await;
        is_answered(&mut ear, number).await;
    }

    // A retry: the pump delivers the same messages as new again.
    ear.deliver_again(1, messages(4), 1);
    assert_eq!(count_of(&all.next().await), 4);
}

#[tokio::test]
async fn a_replica_that_is_gone_leaves_the_whole_call_to_the_others_in_the_same_attempt() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    first_is_remembered(&meeting, &mut ear, &stranger, &mut all).await;

    let number = ear.deliver_again(1, messages(2), 1);
    let delivery = all.next().await;
    assert_eq!(count_of(&delivery), 2);
    answer(&stranger, &delivery, &own_subject(&meeting)).await;
    is_answered(&mut ear, number).await;
    ear.host.drain().await;
    assert!(ear.is_quiet(), "the attempt ended once, and the listener has not left");
}

#[tokio::test]
async fn a_replica_that_lacks_a_call_gets_all_of_it_in_the_same_attempt() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;
    first_is_remembered(&meeting, &mut ear, &stranger, &mut all).await;

    let number = ear.deliver_again(1, messages(2), 1);
    let partial = own.next().await;
    stranger.say(&partial.reply.clone().unwrap(), &[], &missing_memory(&partial, 1)).await;
    let complete = all.next().await;
    assert_eq!((count_of(&complete), &complete.reply), (2, &partial.reply));
    stranger.say(&complete.reply.clone().unwrap(), &[], &done("so")).await;
    is_answered(&mut ear, number).await;
    ear.host.drain().await;
    assert!(ear.is_quiet(), "the attempt ended once");
}

#[tokio::test]
async fn a_cancelled_delivery_that_its_replica_lacks_is_not_delivered_again() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;
    first_is_remembered(&meeting, &mut ear, &stranger, &mut all).await;

    let number = ear.deliver_again(1, messages(2), 1);
    let partial = own.next().await;
    ear.host.cancel(call(1), crate::bus::harness::attempt(number));
    stranger.say(&partial.reply.clone().unwrap(), &[], &missing_memory(&partial, 1)).await;
    let detail = "its caller was gone before it was handed over".to_owned();
    ear.expect(SinkEvent::Failed(number, AttemptFailure::Refused { detail })).await;
}

#[tokio::test]
async fn a_replica_that_lacks_a_complete_delivery_has_answered_garbage() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let number = ear.deliver_again(1, messages(2), 1);
    let delivery = all.next().await;
    let other = missing_memory(&delivery, 7);
    stranger.say(&delivery.reply.clone().unwrap(), &[], &other).await;
    let named = format!("attempt 1.1 at call {}", call(7));
    ear.expect(SinkEvent::Stray(named, vec![])).await;

    stranger.say(&delivery.reply.clone().unwrap(), &[], &missing_memory(&delivery, 1)).await;
    let detail = "asks for messages of a delivery that had them all".to_owned();
    ear.expect(SinkEvent::Failed(number, AttemptFailure::Garbage { detail })).await;
}

#[tokio::test]
async fn nothing_is_published_to_a_subject_that_is_no_inbox_of_the_listener() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let other = meeting.subjects.deliveries().replace("tested", "other");
    for elsewhere in [&*other, "_INBOX_tested2.a", "_INBOX_tested.a.b"] {
        let _there = stranger.hears(elsewhere).await;
        let first = ear.deliver(messages(1), 1);
        answer(&stranger, &all.next().await, elsewhere).await;
        is_answered(&mut ear, first).await;
        let number = ear.deliver_again(first, messages(2), 1);
        let delivery = all.next().await;
        assert_eq!(count_of(&delivery), 2, "{elsewhere}");
        answer(&stranger, &delivery, &own_subject(&meeting)).await;
        is_answered(&mut ear, number).await;
    }
}

/// A server that denies publishes to `subjects`. Returns the server, and the file that configures
/// the denial.
fn server_denying(subjects: &str, folder: &TempDir) -> (Server, PathBuf) {
    let users = folder.path().join("users.conf");
    let text = format!(
        "authorization {{ users: [{{ user: all, password: all, permissions: \
         {{ publish: {{ deny: [\"{subjects}\"] }} }} }}] }}\nno_auth_user: all"
    );
    std::fs::write(&users, text).unwrap();
    let more = format!("include \"{}\"\n", included(&users));
    (Server::start_with(Settings { jetstream: None, more: more.leak() }), users)
}

/// Returns how many publishes to replicas the server has denied since `since`.
fn denials(meeting: &Meeting, since: Instant) -> usize {
    let inboxes = format!("{}.", meeting.subjects.inbox());
    meeting.wire.denials().publishes_denied_below(&inboxes, since).len()
}

#[tokio::test]
async fn a_pump_that_may_not_publish_to_replicas_delivers_every_message_until_it_may() {
    let begun = Instant::now();
    let folder = TempDir::new().unwrap();
    let (server, users) = server_denying("_INBOX_tested.>", &folder);
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;

    // The first denial shows that its delivery was lost; afterwards no delivery to a replica is
    // tried.
    for count in 1..=4 {
        let number = ear.deliver_again(1, messages(count), 1);
        let delivery = all.next().await;
        // A delivery with only a request has no frame around it.
        assert!(count == 1 || count_of(&delivery) == usize::try_from(count).unwrap());
        answer(&stranger, &delivery, &own_subject(&meeting)).await;
        is_answered(&mut ear, number).await;
    }
    assert!(ear.is_quiet(), "each attempt ended once");
    assert_eq!(denials(&meeting, begun), 1);

    server.kill();
    std::fs::write(&users, "").unwrap();
    server.restart();
    // The server answers this request after it has processed the earlier subscription.
    let _again = stranger.hears("again").await;
    let number = ear.deliver_again(1, messages(5), 1);
    let delivery = own.next().await;
    assert!(is_partial(&delivery, 4), "{}", text(&delivery));
    answer(&stranger, &delivery, &own_subject(&meeting)).await;
    is_answered(&mut ear, number).await;
}

#[tokio::test]
async fn a_denial_leaves_alone_what_a_handler_has_begun() {
    let folder = TempDir::new().unwrap();
    let (server, _) = server_denying("_INBOX_tested.denied", &folder);
    let meeting = Meeting::at(&server);
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;
    for (of, subject) in [(1, &*own_subject(&meeting)), (2, "_INBOX_tested.denied")] {
        let number = ear.deliver_again(of, messages(1), 1);
        answer(&stranger, &all.next().await, subject).await;
        is_answered(&mut ear, number).await;
    }

    let at_work = ear.deliver_again(1, messages(2), 1);
    let partial = own.next().await;
    let reply = partial.reply.clone().unwrap();
    stranger.say(&reply, &[("Organism-Heartbeat", "1")], "").await;
    ear.expect(SinkEvent::Beat(at_work)).await;
    for of in [2, 3] {
        let number = ear.deliver_again(of, messages(2), 1);
        let delivery = all.next().await;
        assert_eq!(header(&delivery, "Organism-Call"), call(of).to_string());
        stranger.say(&delivery.reply.clone().unwrap(), &[], &done("so")).await;
        is_answered(&mut ear, number).await;
    }
    stranger.say(&reply, &[], &done("so")).await;
    is_answered(&mut ear, at_work).await;
}

#[tokio::test]
async fn a_delivery_whose_replica_is_silent_beyond_its_lease_is_a_crashed_attempt() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let stranger = meeting.stranger().await;
    let mut all = stranger.hears(&meeting.subjects.deliveries()).await;
    let mut own = stranger.hears(&own_subject(&meeting)).await;
    let number = ear.deliver_again(1, messages(1), 1);
    let delivery = all.next().await;
    stranger.say(&meeting.subjects.here(), &[("Organism-Lease", "3")], "").await;
    answer(&stranger, &delivery, &own_subject(&meeting)).await;
    is_answered(&mut ear, number).await;

    let number = ear.deliver_again(1, messages(2), 1);
    let partial = own.next().await;
    assert!(is_partial(&partial, 1), "{}", text(&partial));
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if *n == number),
        "{failed:?}"
    );

    // Later waits of the test need no time limit.
    stranger.say(&meeting.subjects.here(), &[("Organism-Lease", "600")], "").await;
    // The first delivery that any replica gets is the next attempt.
    let number = ear.deliver_again(1, messages(2), 1);
    let complete = all.next().await;
    assert_eq!(count_of(&complete), 2);
    assert_ne!(complete.reply, partial.reply);
    stranger.say(&complete.reply.clone().unwrap(), &[], &done("so")).await;
    is_answered(&mut ear, number).await;
}

/// Delivers a call. Expects a reply that states the number of the call's messages, and how many of
/// them are new.
async fn counts(ear: &mut HostHarness, of: u32, count: u64, fresh: usize) {
    let number = ear.deliver_again(of, messages(count), fresh);
    ear.expect(SinkEvent::Answer(number, vec![done(&format!("{count} {fresh}"))])).await;
}

async fn remembers(meeting: &Meeting, ear: &mut HostHarness) {
    let stranger = meeting.stranger().await;
    let mut answers = stranger.hears(&meeting.subjects.answers()).await;
    counts(ear, 1, 1, 1).await;
    let own = loop {
        let answer = answers.next().await;
        let header = answer.headers.as_ref().and_then(|headers| headers.get("Organism-Remembers"));
        if let Some(subject) = header {
            break subject.to_string();
        }
    };

    // A subscriber to the subject of the replica counts as a responder.
    let mut own = stranger.hears(&own).await;
    counts(ear, 1, 3, 2).await;
    counts(ear, 1, 4, 1).await;
    for after in [1, 3] {
        let delivery = own.next().await;
        assert!(is_partial(&delivery, after), "{}", text(&delivery));
    }
}

async fn a_kit_of_programs_remembers_on_nats(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _kit = Kit::start(language, &meeting, &[]);
    remembers(&meeting, &mut ear).await;
}

#[tokio::test]
async fn the_rust_kit_remembers_on_nats() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _rust = Rust::start(&meeting);
    remembers(&meeting, &mut ear).await;
}

#[tokio::test]
async fn a_replica_that_was_replaced_gets_every_message() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let mut first = Kit::start(KitLanguage::Python, &meeting, &[]);
    counts(&mut ear, 1, 1, 1).await;
    counts(&mut ear, 1, 2, 1).await;
    first.kill();
    let _second = Kit::start(KitLanguage::Python, &meeting, &[]);
    counts(&mut ear, 1, 3, 1).await;
    counts(&mut ear, 1, 4, 1).await;
}

#[tokio::test]
async fn replicas_of_all_kits_share_calls() {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let _kits = KitLanguage::ALL.map(|language| Kit::start(language, &meeting, &[]));
    let _rust = Rust::start(&meeting);
    for of in 1..=20 {
        for count in 1..=5 {
            counts(&mut ear, of, count, 1).await;
        }
    }
}

each_kit!(a_kit_of_programs_remembers_on_nats);
