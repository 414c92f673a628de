//! If the config names operators, a decision needs the signature of an operator. A signature is
//! valid once, and for five minutes.

use std::time::Duration;

use ed25519_dalek::SigningKey;
use organism::clock::Time;
use organism::contract::Approval;
use organism::envelope::RefusalRule;
use organism::ids::{CallId, Digest, ThreadId};
use organism::limits;
use organism::thread::{
    Decision, DecisionOrigin, DecisionSignature, DecisionStatement, Fact, Input, OperatorKeys,
    OperatorPublicKey, State,
};
use uuid::Uuid;

use super::world::{World, client, listener, name, word};

/// Id of the world's journal.
const JOURNAL: Uuid = Uuid::from_u128(7);

fn ana() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

fn ben() -> SigningKey {
    SigningKey::from_bytes(&[2; 32])
}

fn operators() -> OperatorKeys {
    let public = |key: SigningKey| OperatorPublicKey::of(&key);
    OperatorKeys::new([(name("ana"), public(ana())), (name("ben"), public(ben()))])
}

/// A world in which all calls to the shell are held, and two operators decide.
fn world() -> World {
    let mut shell = listener("shell", &["run"], &["ran"], &[]);
    shell.approval = Approval::Always;
    let mut world = World::new(vec![client("desk", &["shell"]), shell]);
    world.takes_decisions_of(operators());
    world
}

/// A held call of `desk`, with its thread.
fn held(world: &mut World) -> (ThreadId, CallId) {
    world.open("desk", &word("run", "rm"))
}

fn hash() -> Digest {
    Digest::of(word("run", "rm").as_bytes())
}

fn approval(call: CallId) -> DecisionStatement<'static> {
    let digest = Some(hash());
    let call = Some(call.0);
    DecisionStatement { verb: "approve", call, digest, preview: None, reason: "", note: "" }
}

/// The fields that a signature covers. Tests change them one by one.
struct Signed<'a> {
    key: SigningKey,
    journal: Uuid,
    thread: ThreadId,
    time: Time,
    nonce: u128,
    statement: DecisionStatement<'a>,
}

impl<'a> Signed<'a> {
    fn now(world: &World, thread: &ThreadId, statement: DecisionStatement<'a>) -> Self {
        let (thread, time) = (thread.clone(), world.now);
        Self { key: ana(), journal: JOURNAL, thread, time, nonce: 1, statement }
    }

    fn origin(&self) -> DecisionOrigin {
        let place = (self.journal, self.thread.clone());
        let moment = (self.time, Uuid::from_u128(self.nonce));
        let signature = DecisionSignature::new(&self.key, place, moment, &self.statement);
        let signature = Some(Box::new(signature));
        let note = self.statement.note.to_owned();
        DecisionOrigin { note, signature, ..DecisionOrigin::default() }
    }
}

fn approve(world: &mut World, call: CallId, origin: Option<DecisionOrigin>) -> Result<(), String> {
    let verb = Decision::Approve { hash: hash().to_string(), preview: None };
    told(world.decide_as(call, verb, origin))
}

/// Turns a refusal, which must be `not-signed`, into its text.
fn told(ruling: Result<(), organism::envelope::Refusal>) -> Result<(), String> {
    ruling.map_err(|refusal| {
        assert_eq!(refusal.rule, RefusalRule::NotSigned, "{refusal}");
        refusal.message
    })
}

fn operators_on_record(world: &World) -> Vec<String> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let signed = facts.filter_map(|fact| match fact {
        Fact::Signed { operator, .. } => Some(operator.to_string()),
        _ => None,
    });
    signed.collect()
}

#[test]
fn an_unsigned_decision_changes_nothing_where_there_are_operators() {
    let mut world = world();
    let (thread, call) = held(&mut world);
    let refusal = approve(&mut world, call, None).unwrap_err();
    assert!(refusal.contains("--sign FILE") && refusal.contains("ana, ben"), "{refusal}");
    let refused = world.decide_as(call, Decision::Refuse { reason: String::new() }, None);
    assert!(told(refused).unwrap_err().contains("--sign FILE"));
    assert!(told(world.cancel_as(&thread, None)).unwrap_err().contains("--sign FILE"));

    assert!(world.handed().is_empty(), "it waits on");
    assert!(world.core.state().call(call).unwrap().held.is_some());
    world.check_replay();
}

#[test]
fn two_operators_decide_each_under_their_own_name() {
    let mut world = world();
    for (key, nonce) in [(ana(), 1), (ben(), 2)] {
        let (thread, call) = held(&mut world);
        let signed = Signed { key, nonce, ..Signed::now(&world, &thread, approval(call)) };
        assert_eq!(approve(&mut world, call, Some(signed.origin())), Ok(()));
        world.play("shell", &[word("ran", "done")]);
        assert_eq!(world.result(call), "completed: ran(done)");
    }
    assert_eq!(operators_on_record(&world), ["ana", "ben"]);
    world.check_replay();
}

fn result_text(world: &World, call: CallId) -> String {
    let (_, messages) = &world.results[&call];
    messages.iter().map(|message| message.payload.as_str().to_owned()).collect()
}

#[test]
pub fn a_decision_is_recorded_by_the_operator_whom_its_signature_proves() {
    let mut world = world();
    let (thread, call) = held(&mut world);
    let reason = || "not today".to_owned();
    let unsigned = world.decide_as(call, Decision::Refuse { reason: reason() }, None);
    assert!(told(unsigned).is_err());
    let decision = Decision::Refuse { reason: reason() };
    let refusal = DecisionStatement::decided(call.0, &decision, "").unwrap();
    let signed = Signed::now(&world, &thread, refusal);
    let refused =
        world.decide_as(call, Decision::Refuse { reason: reason() }, Some(signed.origin()));
    assert_eq!(told(refused), Ok(()));
    let result = result_text(&world, call);
    assert!(result.contains("refused by the operator ana: not today"), "{result}");

    let (thread, call) = held(&mut world);
    let cancellation = DecisionStatement::cancel("enough", "");
    let signed = Signed { key: ben(), nonce: 2, ..Signed::now(&world, &thread, cancellation) };
    assert_eq!(told(world.cancel_as(&thread, Some(signed.origin()))), Ok(()));
    let result = result_text(&world, call);
    assert!(result.contains("cancelled by the operator ben: enough"), "{result}");

    let deciders = world.records.iter().filter_map(|record| match &record.input {
        Input::Decided { by, .. } | Input::Cancel { by, .. } => Some(by.to_string()),
        _ => None,
    });
    assert_eq!(deciders.collect::<Vec<_>>(), ["operator", "ana", "ben"]);
    world.check_replay();
}

#[test]
fn a_decision_that_came_second_is_recorded_by_the_operator_whom_its_signature_proves() {
    let mut world = world();
    let (thread, call) = held(&mut world);
    let first = Signed::now(&world, &thread, approval(call));
    assert_eq!(approve(&mut world, call, Some(first.origin())), Ok(()));
    world.play("shell", &[word("ran", "done")]);

    let stranger = SigningKey::from_bytes(&[3; 32]);
    // The last one is the signature that was used already.
    for (key, nonce) in [(ben(), 2), (stranger, 3), (ana(), 1)] {
        let signed = Signed { key, nonce, ..Signed::now(&world, &thread, approval(call)) };
        let verb = Decision::Approve { hash: hash().to_string(), preview: None };
        let refusal = world.decide_as(call, verb, Some(signed.origin())).unwrap_err();
        assert_eq!(refusal.rule, RefusalRule::NotWaiting, "{refusal}");
    }

    let deciders = world.records.iter().filter_map(|record| match &record.input {
        Input::Decided { by, .. } => Some(by.to_string()),
        _ => None,
    });
    assert_eq!(deciders.collect::<Vec<_>>(), ["ana", "ben", "operator", "operator"]);
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let refused = facts.filter_map(|fact| match fact {
        Fact::Refused { sender, .. } => Some(sender.to_string()),
        _ => None,
    });
    assert_eq!(refused.collect::<Vec<_>>(), ["ben", "operator", "operator"]);
    assert_eq!(operators_on_record(&world), ["ana", "ben"]);
    world.check_replay();
}

#[test]
fn a_signature_of_anything_else_is_refused() {
    let mut world = world();
    let (other_thread, other_call) = held(&mut world);
    let (thread, call) = held(&mut world);
    let good = || Signed::now(&world, &thread, approval(call));
    let stranger = SigningKey::from_bytes(&[3; 32]);
    let cases = [
        ("of no operator", Signed { key: stranger, ..good() }),
        ("for another journal", Signed { journal: Uuid::from_u128(8), ..good() }),
        ("for another thread", Signed { thread: other_thread, ..good() }),
        ("changed after", Signed { statement: approval(other_call), ..good() }),
        (
            "changed after",
            Signed { statement: DecisionStatement { verb: "refuse", ..approval(call) }, ..good() },
        ),
        (
            "changed after",
            Signed {
                statement: DecisionStatement { digest: Some(Digest::ZERO), ..approval(call) },
                ..good()
            },
        ),
    ];
    let mut origins: Vec<_> = cases.map(|(why, signed)| (why, signed.origin())).into();
    let tampered = DecisionOrigin { note: "mine".to_owned(), ..good().origin() };
    origins.push(("changed after", tampered));

    for (why, origin) in origins {
        let refusal = approve(&mut world, call, Some(origin)).unwrap_err();
        assert!(refusal.contains(why), "{why}: {refusal}");
    }
    let begun = Decision::Approve { hash: hash().to_string()[..16].to_owned(), preview: None };
    let origin = Signed::now(&world, &thread, approval(call)).origin();
    let refusal = told(world.decide_as(call, begun, Some(origin))).unwrap_err();
    assert!(refusal.contains("the whole hash"), "{refusal}");
    assert!(world.handed().is_empty(), "it waits on");
    assert_eq!(operators_on_record(&world), Vec::<String>::new());
    world.check_replay();
}

#[test]
fn a_signature_holds_for_five_minutes() {
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let mut world = world();
    let (thread, call) = held(&mut world);
    let early = Signed::now(&world, &thread, approval(call));
    world.now = world.now.plus(minutes(5));
    let refusal = approve(&mut world, call, Some(early.origin())).unwrap_err();
    assert!(refusal.contains("holds for 5 minutes"), "{refusal}");

    let now = world.now;
    let ahead = Signed { time: now.plus(minutes(2)), ..early };
    let refusal = approve(&mut world, call, Some(ahead.origin())).unwrap_err();
    assert!(refusal.contains("compare the clocks"), "{refusal}");

    let in_time = Signed { time: now, ..ahead };
    world.now = world.now.plus(minutes(4));
    assert_eq!(approve(&mut world, call, Some(in_time.origin())), Ok(()));
    world.check_replay();
}

#[test]
fn a_signature_is_used_once_also_after_a_restart() {
    let mut world = world();
    let (thread, first) = held(&mut world);
    let statement = DecisionStatement::cancel("enough", "");
    let origin = Signed::now(&world, &thread, statement).origin();
    world.cancel_as(&thread, Some(origin.clone())).unwrap();
    assert!(world.result(first).starts_with("cancelled"));

    world.say("desk", &thread, &word("run", "rm"));
    for _ in 0..2 {
        let refusal = told(world.cancel_as(&thread, Some(origin.clone()))).unwrap_err();
        assert!(refusal.contains("used before"), "{refusal}");
        world.restart();
    }

    world.now = world.now.plus(Duration::from_secs(600));
    let refusal = told(world.cancel_as(&thread, Some(origin))).unwrap_err();
    assert!(refusal.contains("holds for 5 minutes"), "{refusal}");
    world.check_replay();
}

#[test]
fn a_signature_is_judged_by_the_hosts_clock_where_record_time_is_ahead() {
    let mut world = world();
    let (thread, call) = held(&mut world);
    let statement = DecisionStatement::cancel("enough", "");
    let signed = Signed::now(&world, &thread, statement);
    let judged_after = |minutes: u64| {
        let mut origin = signed.origin();
        let at = signed.time.plus(Duration::from_secs(60 * minutes));
        origin.signature.as_mut().unwrap().judged_at = Some(at);
        Some(origin)
    };

    world.now = world.now.plus(Duration::from_secs(1_200));
    let refusal = told(world.cancel_as(&thread, judged_after(6))).unwrap_err();
    assert!(refusal.contains("holds for 5 minutes"), "{refusal}");
    assert_eq!(told(world.cancel_as(&thread, judged_after(1))), Ok(()));
    assert!(world.result(call).starts_with("cancelled"));

    // The clock of the host may be ahead again for one decision, and then right.
    world.say("desk", &thread, &word("run", "rm"));
    let ahead = Signed { nonce: 2, ..Signed::now(&world, &thread, statement) };
    assert_eq!(told(world.cancel_as(&thread, Some(ahead.origin()))), Ok(()));
    world.restart();
    let refusal = told(world.cancel_as(&thread, judged_after(2))).unwrap_err();
    assert!(refusal.contains("used before"), "{refusal}");
    world.check_replay();
}

#[test]
fn many_used_signatures_are_forgotten_when_they_have_expired() {
    let mut state = State::default();
    let mut sign = |nonce: u64, time: Time| {
        let nonce = Uuid::from_u128(u128::from(nonce));
        let fact = Fact::Signed { operator: name("ana"), nonce, time };
        state.apply(&ThreadId::organism(), Time::default(), &fact);
        state.nonces.len()
    };

    let kept = limits::USED_SIGNATURES_KEPT as u64;
    let count = (0..kept).map(|number| sign(number, Time(0))).max();
    assert_eq!(count, Some(limits::USED_SIGNATURES_KEPT));
    let later = Time(0).plus(Duration::from_secs(3600));
    assert_eq!(sign(kept, later), 1, "only the new one is left");
}

#[test]
fn a_signature_that_is_no_operators_is_refused_where_there_are_no_operators() {
    let mut world = world();
    world.takes_decisions_of(OperatorKeys::default());
    let (thread, call) = held(&mut world);
    let signed = Signed::now(&world, &thread, approval(call));
    let refusal = approve(&mut world, call, Some(signed.origin())).unwrap_err();
    assert!(refusal.contains("of no operator"), "{refusal}");
    assert_eq!(approve(&mut world, call, None), Ok(()));
    world.check_replay();
}
