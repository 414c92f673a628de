//! Retries by operators: a retry is a new message of the original sender, and each message is
//! retried once (issue 18, part 3.8).

use std::time::Duration;

use organism::contract::{Contract, Role, TreeLimits};
use organism::envelope::{AttemptFailure, RefusalRule};
use organism::ids::{CallId, MessageId, ThreadId};
use organism::pump::core::{Receipt, RetryRuling, Target};
use uuid::Uuid;

use super::world::{RetriedCall, World, agent, client, core, fresh, listener, word};

/// Contracts of a client, of an agent, and of two listeners. Both the client and the agent may call
/// `finder`, whose calls have one attempt.
fn contracts() -> Vec<Contract> {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.attempts = 1;
    vec![
        client("desk", &["thinker", "finder", "echo"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("echo", &["count"], &["counted"], &[]),
        finder,
    ]
}

fn world() -> World {
    World::new(contracts())
}

fn crashed() -> AttemptFailure {
    AttemptFailure::Refused { detail: "no".to_owned() }
}

/// Opens a call of a client and lets it fail. Returns the thread and the call.
fn failed(world: &mut World) -> (ThreadId, CallId) {
    let (thread, call) = world.open("desk", &word("count", "a"));
    let delivery = world.delivery("echo");
    world.fail(&delivery, crashed());
    assert!(world.result(call).starts_with("failed"), "{}", world.result(call));
    (thread, call)
}

fn say(message: MessageId, thread: &ThreadId) -> RetriedCall<'_> {
    RetriedCall {
        message,
        source: thread,
        thread,
        who: "desk",
        to: Some("echo"),
        text: "",
        key: None,
        again: false,
        unknown: false,
    }
}

fn retried(ruling: RetryRuling) -> (ThreadId, CallId) {
    match ruling {
        RetryRuling::Retried { thread, calls } => (thread, calls[0]),
        other => panic!("{other:?}"),
    }
}

#[test]
pub fn a_message_is_retried_once_also_after_a_restart() {
    let mut world = world();
    let (thread, call) = failed(&mut world);
    let text = word("count", "a");
    let request = RetriedCall { text: &text, ..say(call.0, &thread) };
    let (place, new) = retried(world.retry(&request));
    assert_eq!(place, thread);
    world.play("echo", &[word("counted", "b")]);
    assert_eq!(world.result(new), "completed: counted(b)");
    assert!(world.result(call).starts_with("failed"), "the old result stays");
    let records = world.records.len();

    world.restart();
    let again = world.retry(&request);
    assert!(matches!(again, RetryRuling::AlreadyRetried(retry) if retry == new.0), "{again:?}");
    assert!(world.records.len() <= records + 1, "only the boot is recorded");
    assert!(world.deliveries.is_empty());
    world.check_replay();
}

#[test]
fn work_that_may_have_been_done_needs_a_confirmation() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.fail(&delivery, crashed());
    let text = word("look", "q");
    let request = RetriedCall { text: &text, to: Some("finder"), ..say(call.0, &thread) };
    let records = world.records.len();
    let ruling = world.retry(&request);
    assert!(matches!(&ruling, RetryRuling::Unconfirmed(why) if why.contains("attempts = 1")));
    assert_eq!(world.records.len(), records, "nothing is recorded");
    retried(world.retry(&RetriedCall { again: true, ..request }));
    world.play("finder", &[word("found", "f")]);

    let (thread, call) = failed(&mut world);
    let text = word("count", "a");
    let request = RetriedCall { text: &text, unknown: true, ..say(call.0, &thread) };
    let ruling = world.retry(&request);
    assert!(matches!(&ruling, RetryRuling::Unconfirmed(why) if why.contains("unknown")));
    retried(world.retry(&RetriedCall { again: true, ..request }));
    world.play("echo", &[word("counted", "b")]);
    world.check_replay();
}

/// An agent's failed call is retried in a subthread for the client. The agent has the result of its
/// call already, so the retry neither wakes the agent nor appears in its next delivery.
#[test]
fn the_call_of_an_agent_is_retried_in_a_subthread_for_the_client() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "q")]);
    let delivery = world.delivery("finder");
    let inner = delivery.call;
    world.fail(&delivery, crashed());
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");

    let text = word("look", "q");
    let request = RetriedCall {
        who: "thinker",
        to: Some("finder"),
        text: &text,
        again: true,
        ..say(inner.0, &thread)
    };
    let (place, new) = retried(world.retry(&request));
    assert_eq!(place, thread.child("retry"));
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(new), "completed: found(f)");
    assert!(world.deliveries.is_empty(), "the agent is not woken");

    world.say("desk", &thread, &word("plan", "more"));
    assert_eq!(fresh(&world.delivery("thinker")), ["plan(more)"]);
    world.check_replay();
}

#[test]
fn the_call_of_an_agent_to_itself_is_retried() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let text = word("plan", "own");
    let inner = format!("<initial-payload>{text}</initial-payload>");
    let spawn = core("spawn-thread", "suggested_sub_id=\"me\"", &inner);
    world.play("thinker", &[spawn, core("wait", "", "")]);
    let own = world.delivery("thinker");
    assert_eq!(own.thread, thread.child("me"));
    world.fail(&own, crashed());
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");

    let request = RetriedCall {
        who: "thinker",
        to: Some("thinker"),
        text: &text,
        ..say(own.call.0, &thread)
    };
    let (place, new) = retried(world.retry(&request));
    assert_eq!(place, thread.child("retry"));
    world.play("thinker", &[word("answer", "b")]);
    assert_eq!(world.result(new), "completed: answer(b)");
    world.check_replay();
}

/// A retry renews the counts of a tree at rest, as a request of the client does. So the children of
/// earlier requests do not count against the subthread of a retry.
#[test]
fn calls_of_an_agent_are_retried_whatever_children_their_thread_has_used() {
    let limits = TreeLimits { children: 1, threads: 2, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts(), limits);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("look", "a"), word("look", "b")]);
    let deliveries = [world.delivery("finder"), world.delivery("finder")];
    for delivery in &deliveries {
        world.fail(delivery, crashed());
    }
    world.play("thinker", &[word("answer", "a")]);

    for (delivery, text) in deliveries.iter().zip(["a", "b"]) {
        let text = word("look", text);
        let request = RetriedCall {
            who: "thinker",
            to: Some("finder"),
            text: &text,
            again: true,
            ..say(delivery.call.0, &thread)
        };
        let (_, new) = retried(world.retry(&request));
        world.play("finder", &[word("found", "f")]);
        assert_eq!(world.result(new), "completed: found(f)");
    }
    world.check_replay();
}

#[test]
fn a_retry_passes_the_peers_of_today_and_names_no_taken_thread() {
    let mut world = world();
    let (thread, call) = failed(&mut world);
    let text = word("counted", "a");
    let RetryRuling::Refused(refusal) =
        world.retry(&RetriedCall { text: &text, ..say(call.0, &thread) })
    else {
        panic!("a reply is no call")
    };
    assert_eq!(refusal.rule, RefusalRule::NotInVocabulary);

    let text = word("count", "a");
    let wrong = RetriedCall { to: Some("finder"), text: &text, ..say(call.0, &thread) };
    let RetryRuling::Refused(refusal) = world.retry(&wrong) else { panic!("no peer") };
    assert_eq!(refusal.rule, RefusalRule::NotInVocabulary);

    // A refused submission gets a thread of its own, which must be new.
    let organism = ThreadId::parse(ThreadId::ORGANISM).unwrap();
    let message = MessageId(Uuid::from_u128(77));
    let new = RetriedCall { source: &organism, to: None, text: &text, ..say(message, &thread) };
    let RetryRuling::Refused(refusal) = world.retry(&new) else { panic!("the thread is taken") };
    assert_eq!(refusal.rule, RefusalRule::BadLabel);
    let fresh_thread = ThreadId::parse("sess-retry0001").unwrap();
    let new = RetriedCall { thread: &fresh_thread, ..new };
    let (place, _) = retried(world.retry(&new));
    assert_eq!(place, fresh_thread);
    assert!(matches!(world.retry(&new), RetryRuling::AlreadyRetried(_)));
    world.check_replay();
}

/// The retry of a refused submission uses the submission's key. The client may repeat the
/// submission before or after the retry, and the work is done once in both cases.
#[test]
fn the_retry_of_a_refused_submission_and_its_client_share_a_key() {
    let organism = ThreadId::parse(ThreadId::ORGANISM).unwrap();
    let text = word("count", "a");
    let thread = ThreadId::parse("sess-retry0001").unwrap();
    let message = MessageId(Uuid::from_u128(77));
    let refused = RetriedCall {
        source: &organism,
        to: None,
        text: &text,
        key: Some("k-1"),
        ..say(message, &thread)
    };

    let mut world = world();
    let (place, call) = retried(world.retry(&refused));
    let again = world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &text);
    let Receipt::Accepted { thread: same, calls, again, .. } = again else { panic!("{again:?}") };
    assert_eq!((same, calls, again), (place, vec![call], true));
    world.restart();
    let again = world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &text);
    assert!(matches!(again, Receipt::Accepted { again: true, .. }), "{again:?}");
    // The client was refused twice with this key, and the first retry has used it.
    let second = RetriedCall { message: MessageId(Uuid::from_u128(78)), ..refused };
    let RetryRuling::Refused(refusal) = world.retry(&second) else { panic!("the key is used") };
    assert!(refusal.message.contains("or by a retry"), "{refusal}");
    world.check_replay();

    let mut world = self::world();
    let sent = world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &text);
    assert!(matches!(sent, Receipt::Accepted { again: false, .. }), "{sent:?}");
    let records = world.records.len();
    let RetryRuling::Refused(refusal) = world.retry(&refused) else { panic!("sent again") };
    assert_eq!(refusal.rule, RefusalRule::KeyReused);
    assert!(refusal.message.contains("was sent with the same key since"), "{refusal}");
    assert_eq!(world.records.len(), records, "nothing is recorded");
    // Before core version 73, the refusal was recorded. A replay passes on the recorded refusal.
    let ruling = world.retry_checked(&refused, Err(refusal));
    assert!(matches!(ruling, RetryRuling::Refused(_)), "{ruling:?}");
    assert_eq!(world.records.len(), records + 1, "as in the earlier journal");
    world.check_replay();

    // No confirmation is required, because it would not help.
    let mut world = self::world();
    let text = word("look", "q");
    world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &text);
    let once = RetriedCall { text: &text, ..refused };
    let RetryRuling::Refused(refusal) = world.retry(&once) else { panic!("sent again") };
    assert_eq!(refusal.rule, RefusalRule::KeyReused);
    world.check_replay();

    // Another payload has the key: the retry does without it.
    let mut world = self::world();
    world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &word("count", "b"));
    retried(world.retry(&refused));
    world.check_replay();
}

/// If the key of a submission has expired, a retry of the submission uses the key anew. When the
/// client then repeats the submission, it gets the result of the retry.
#[test]
fn a_retry_uses_an_expired_key_anew() {
    const HOUR: Duration = Duration::from_secs(3600);
    let mut contracts = contracts();
    contracts.iter_mut().filter(|own| own.role == Role::Client).for_each(|own| {
        own.keys_for = Some(HOUR);
    });
    let organism = ThreadId::parse(ThreadId::ORGANISM).unwrap();
    let thread = ThreadId::parse("sess-retry0001").unwrap();
    let text = word("count", "a");
    let refused = RetriedCall {
        source: &organism,
        to: None,
        text: &text,
        key: Some("k-1"),
        ..say(MessageId(Uuid::from_u128(77)), &thread)
    };

    for earlier in ["a", "b"] {
        let mut world = World::new(contracts.clone());
        world.submit_to(
            "desk",
            Target::New { suggested: None },
            Some("k-1"),
            &word("count", earlier),
        );
        world.play("echo", &[word("counted", earlier)]);
        world.pass(2 * HOUR);
        let (place, _) = retried(world.retry(&refused));
        let again = world.submit_to("desk", Target::New { suggested: None }, Some("k-1"), &text);
        let Receipt::Accepted { thread, again, .. } = again else { panic!("{again:?}") };
        assert_eq!((thread, again), (place, true), "{earlier}");
        world.check_replay();
    }
}
