//! Questions to people: calls that wait for an answer without a time limit, even across restarts.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Contract, Role, WorkflowQuestion};
use organism::envelope::Refusal;
use organism::ids::{CallId, MessageId, Position};
use organism::limits;
use organism::pump::core::{Effect, Event, Receipt, Submission, Target};
use organism::pump::gate::Checked;
use organism::thread::Hold;
use uuid::Uuid;

use super::world::{World, agent, client, core, fresh, listener, name, names, word, workflow};

fn contracts(patience: Option<Duration>) -> Vec<Contract> {
    let mut boss = Contract::new(name("boss"), Role::Human);
    (boss.accepts, boss.replies, boss.patience) = (names(&["ask"]), names(&["report"]), patience);
    vec![
        client("desk", &["thinker", "boss"]),
        agent("thinker", &["plan"], &["answer"], &["boss", "finder"]),
        listener("finder", &["look"], &["found"], &[]),
        boss,
    ]
}

fn open_question(world: &mut World) -> (organism::ids::ThreadId, CallId, CallId) {
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("ask", "which one")]);
    let calls = world.core.state().trees.values().flat_map(|tree| tree.calls.values());
    let held = calls.filter(|call| call.held.is_some_and(|held| held.hold == Hold::Answer));
    let question = held.map(|call| call.id).next().unwrap();
    (thread, call, question)
}

#[test]
pub fn a_question_waits_for_its_answer_and_both_are_ordinary_payloads() {
    let mut world = World::new(contracts(None));
    let (thread, call, question) = open_question(&mut world);
    world.pass(Duration::from_secs(40 * 24 * 3600));
    world.restart();
    assert_eq!(world.handed(), Vec::<String>::new(), "nobody is handed what a person is asked");
    assert_eq!(world.answer_question(question, "boss", &word("report", "the left one")), Ok(()));
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["report(the left one)"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>boss ask(which one) [handled]
        3 reply boss>thinker report(the left one) [handled]
        4 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn an_answer_that_does_not_pass_the_gate_leaves_the_question_open() {
    let mut world = World::new(contracts(None));
    let (_, _, question) = open_question(&mut world);
    let tries = [
        ("<report", "not-well-formed"),
        (&*word("answer", "not mine to give"), "not-in-vocabulary"),
        (&*core("approval-granted", "", ""), "reserved-name"),
        ("<report xmlns=\"urn:test:words\"/>", "schema-invalid"),
    ];
    for (text, rule) in tries {
        assert_eq!(world.answer_question(question, "boss", text), Err(rule.to_owned()));
    }
    assert_eq!(world.refusals().len(), tries.len(), "and each is on record");
    assert_eq!(world.answer_question(question, "boss", &word("report", "r")), Ok(()));
}

#[test]
fn a_question_whose_bytes_are_gone_from_the_record_can_only_be_refused() {
    let mut world = World::new(contracts(None));
    let (_, _, question) = open_question(&mut world);
    for payload in world.records.iter_mut().flat_map(|record| record.payloads_mut()) {
        if payload.as_str() == word("ask", "which one") {
            let blank = "\0".repeat(payload.len());
            assert!(payload.restore(&blank));
        }
    }
    world.blind_restart();
    let answered = world.answer_question(question, "boss", &word("report", "the left one"));
    assert_eq!(answered, Err("wrong-hash".to_owned()));
    assert_eq!(world.refuse(question, "redacted"), Ok(()));
    assert_eq!(fresh(&world.delivery("thinker")), ["system-error denied"]);
    std::mem::forget(world);
}

#[test]
fn a_question_is_answered_once_by_whom_it_was_put_to() {
    let mut world = World::new(contracts(None));
    let (_, _, question) = open_question(&mut world);
    let waits = |result: Result<(), String>| assert_eq!(result, Err("not-waiting".to_owned()));
    waits(world.answer_question(question, "finder", &word("found", "f")));
    waits(world.answer_question(question, "nobody", &word("report", "f")));
    waits(world.answer_question(CallId(MessageId(Uuid::nil())), "boss", &word("report", "f")));
    waits(world.approve(question, &"0".repeat(64)));
    assert_eq!(world.answer_question(question, "boss", &word("report", "first")), Ok(()));
    waits(world.answer_question(question, "boss", &word("report", "second")));
    waits(world.answer_question(question, "boss", "<rubbish"));
}

#[test]
fn a_question_times_out_only_where_that_is_configured() {
    let mut world = World::new(contracts(Some(Duration::from_secs(60))));
    let (_, call, question) = open_question(&mut world);
    world.restart();
    world.pass(Duration::from_secs(61));
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error timeout"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    let late = world.answer_question(question, "boss", &word("report", "r"));
    assert_eq!(late, Err("not-waiting".to_owned()));
}

#[test]
fn a_person_may_decline_and_a_caller_may_not_wait_any_more() {
    let mut world = World::new(contracts(None));
    let (_, _, question) = open_question(&mut world);
    assert_eq!(world.refuse(question, "ask somebody else"), Ok(()));
    let woken = world.play("thinker", &[word("ask", "again")]);
    assert_eq!(fresh(&woken), ["system-error denied"]);
    let (thread, ..) = open_question(&mut world);
    let calls = world.core.state().tree(&thread).unwrap().calls.len();
    assert_eq!(calls, 2);
    world.cancel(&thread);
    let tree = world.core.state().tree(&thread).unwrap();
    assert_eq!((tree.calls.len(), tree.held), (0, 0));
}

#[test]
fn a_listener_that_becomes_human_gets_questions_and_the_reverse_holds() {
    let mut world = World::new(contracts(None));
    let (_, call, question) = open_question(&mut world);
    let mut later = contracts(None);
    later[3].role = Role::Listener;
    world.restart_with(later);
    world.pass(Duration::ZERO);
    world.delivery("boss");
    world.restart_with(contracts(None));
    world.pass(Duration::ZERO);
    assert_eq!(world.answer_question(question, "boss", &word("report", "r")), Ok(()));
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

/// A world with two clients, an agent that the first client may call, and a person. At most two
/// calls of each client may wait for the person.
fn two_clients() -> World {
    let mut contracts = contracts(None);
    contracts[3].backlog = 2;
    contracts.push(client("other", &["boss"]));
    World::new(contracts)
}

fn ask(world: &mut World, who: &str) -> Receipt {
    world.submit_to(who, Target::New { suggested: None }, None, &word("ask", "which one"))
}

fn is_busy(receipt: &Receipt) -> bool {
    matches!(receipt, Receipt::Refused { refusal, .. } if refusal.rule.as_str() == "busy")
}

#[test]
fn a_client_whose_questions_wait_is_busy_and_no_other_client_is() {
    let mut world = two_clients();
    let (_, question) = world.open("desk", &word("ask", "first"));
    world.open("desk", &word("ask", "second"));
    let Receipt::Refused { refusal, retry_after } = ask(&mut world, "desk") else { panic!() };
    assert_eq!(refusal.rule.as_str(), "busy");
    assert!(refusal.message.contains("2 of your calls to boss"), "{}", refusal.message);
    assert!(retry_after.is_some());
    assert!(!is_busy(&ask(&mut world, "other")), "the room of each client is its own");

    world.restart();
    assert!(is_busy(&ask(&mut world, "desk")), "held calls are counted again after a start");
    assert!(!is_busy(&ask(&mut world, "other")));
    assert!(is_busy(&ask(&mut world, "other")));

    assert_eq!(world.answer_question(question, "boss", &word("report", "r")), Ok(()));
    assert!(!is_busy(&ask(&mut world, "desk")), "an answered question gives its place back");
    assert!(is_busy(&ask(&mut world, "desk")));
}

#[test]
fn questions_of_an_agent_count_for_the_client_of_its_tree() {
    let mut world = two_clients();
    open_question(&mut world);
    open_question(&mut world);
    assert!(is_busy(&ask(&mut world, "desk")));
    assert!(!is_busy(&ask(&mut world, "other")));

    world.open("desk", &word("plan", "p"));
    let busy = world.play("thinker", &[word("ask", "one too many")]);
    let woken = world.delivery("thinker");
    assert_eq!(woken.call, busy.call);
    assert_eq!(fresh(&woken), ["system-error busy"]);
    world.check_replay();
}

/// Calls that wait for people do not fill the backlog for other clients. The test uses a copy of
/// the core without the checks of [`World`], which would read all records after each step.
#[test]
fn calls_that_wait_for_people_leave_other_clients_their_room() {
    // Each submission is held at each of them.
    const PEOPLE: usize = 50;

    let bosses: Vec<String> = (0..PEOPLE).map(|n| format!("boss-{n}")).collect();
    let peers: Vec<&str> = bosses.iter().map(String::as_str).collect();
    let people = peers.iter().map(|who| {
        let mut person = Contract::new(name(who), Role::Human);
        person.accepts = names(&["ask"]);
        person
    });
    let mut contracts: Vec<_> = people.collect();
    contracts.push(client("desk", &peers));
    contracts.push(client("other", &["finder"]));
    contracts.push(listener("finder", &["look"], &["found"], &[]));
    let world = World::new(contracts);
    let mut core = world.core.clone();
    let question = world.gate.check(&name("desk"), word("ask", "x").as_bytes());
    let other = world.gate.check(&name("other"), word("look", "x").as_bytes());
    let mut submit = |n: usize, who: &str, payload: &Result<Checked, Refusal>| {
        let submission = Submission {
            id: MessageId(Uuid::from_u128(n as u128 * 0x9e37_79b9_7f4a_7c15)),
            client: name(who),
            target: Target::New { suggested: None },
            key: None,
            payload: payload.clone(),
            refused_digest: None,
            trace: None,
            begun: None,
        };
        let event = Event::Submit(Box::new(submission));
        let step = core.step(Position(n as u64 + 1), world.now, event);
        let is_accepted = |effect: &Effect| {
            matches!(effect, Effect::Receipt { receipt: Receipt::Accepted { .. }, .. })
        };
        step.effects.iter().any(is_accepted)
    };

    let submissions = limits::IN_FLIGHT_MAX / PEOPLE;
    for n in 1..=submissions {
        assert!(submit(n, "desk", &question), "{n}");
    }
    assert!(submit(submissions + 1, "other", &other));
}

/// Contracts in which the workflow `flow` asks the person `boss` whether to go on: the question is
/// the payload `look`, and the answer is `found`. The request of `flow` is `plan`.
fn asking_workflow() -> Vec<Contract> {
    let mut boss = Contract::new(name("boss"), Role::Human);
    (boss.accepts, boss.replies) = (names(&["ask"]), names(&["report"]));
    let mut flow = workflow("flow", &["plan"], &["answer"], &["boss"]);
    let [question, answer] = ["look", "found"].map(|local| names(&[local]).remove(0));
    flow.questions = vec![WorkflowQuestion { human: name("boss"), question, answer }];
    let other = workflow("other", &["count"], &["counted"], &["boss"]);
    vec![client("desk", &["flow", "other", "boss"]), flow, other, boss]
}

fn held_question(world: &World) -> CallId {
    let calls = world.core.state().trees.values().flat_map(|tree| tree.calls.values());
    let held = calls.filter(|call| call.held.is_some_and(|held| held.hold == Hold::Answer));
    held.map(|call| call.id).next().unwrap()
}

#[test]
fn the_question_of_a_workflow_takes_its_own_answer_alone() {
    let mut world = World::new(asking_workflow());
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[word("look", "go on?")]);
    let question = held_question(&world);
    let refused = world.answer_question(question, "boss", &word("report", "yes"));
    assert_eq!(refused, Err("not-in-vocabulary".to_owned()));
    world.restart();
    assert_eq!(world.answer_question(question, "boss", &word("found", "yes")), Ok(()));
    let woken = world.play("flow", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["found(yes)"]);
    assert_eq!(world.result(call), "completed: answer(a)");

    // An ordinary question takes no answer of a workflow's.
    world.open("desk", &word("ask", "which one"));
    let question = held_question(&world);
    let refused = world.answer_question(question, "boss", &word("found", "yes"));
    assert_eq!(refused, Err("not-in-vocabulary".to_owned()));
    assert_eq!(world.answer_question(question, "boss", &word("report", "yes")), Ok(()));
}

#[test]
fn no_other_sender_puts_the_question_of_a_workflow() {
    let mut world = World::new(asking_workflow());
    let Receipt::Refused { refusal, .. } =
        world.submit_to("desk", Target::New { suggested: None }, None, &word("look", "go on?"))
    else {
        panic!("a client put the question of a workflow");
    };
    assert_eq!(refusal.rule.as_str(), "not-in-vocabulary");
    world.open("desk", &word("count", "c"));
    world.play("other", &[word("look", "go on?")]);
    let woken = world.delivery("other");
    assert!(fresh(&woken)[0].starts_with("huh"), "{:?}", fresh(&woken));
}
