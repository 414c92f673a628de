//! Held calls: the calls that wait for an operator, the operators who may release them, and the
//! events that void an approval.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{Approval, Contract, TreeLimits};
use organism::envelope::AttemptFailure;
use organism::ids::{CallId, Digest, MessageId};
use organism::pump::core::{Event, Receipt, Target};
use organism::thread::{Fact, Hold, Input};
use uuid::Uuid;

use super::world::{NS, World, agent, client, core, fresh, listener, word};

fn contracts(approval: Approval, patience: Option<Duration>) -> Vec<Contract> {
    let mut shell = listener("shell", &["run"], &["ran"], &[]);
    (shell.approval, shell.patience) = (approval, patience);
    vec![
        client("desk", &["thinker", "shell", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["shell", "finder"]),
        listener("finder", &["look"], &["found"], &["shell"]),
        shell,
    ]
}

fn world() -> World {
    World::new(contracts(Approval::Always, None))
}

fn patient(seconds: u64) -> World {
    World::new(contracts(Approval::Always, Some(Duration::from_secs(seconds))))
}

fn run(flag: &str, text: &str) -> String {
    format!("<run xmlns=\"{NS}\" {flag}><text>{text}</text></run>")
}

fn hash(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

/// Calls that wait for an operator.
fn held(world: &World) -> Vec<CallId> {
    let calls = world.core.state().trees.values().flat_map(|tree| tree.calls.values());
    let held = calls.filter(|call| call.held.is_some_and(|held| held.hold == Hold::Approval));
    held.map(|call| call.id).collect()
}

/// Plays a turn in which the thinker calls the shell. The call is held. Returns the thread, the
/// thinker's own call and the held call.
fn held_command(world: &mut World) -> (organism::ids::ThreadId, CallId, CallId) {
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("run", "rm")]);
    let command = held(world)[0];
    (thread, call, command)
}

#[test]
fn a_held_call_continues_once_its_bytes_are_approved() {
    let mut world = world();
    let (thread, call, command) = held_command(&mut world);
    assert_eq!(world.handed(), Vec::<String>::new(), "nothing is handed over");
    assert_eq!(world.approve(command, &hash(&word("run", "rm"))), Ok(()));
    world.play("shell", &[word("ran", "done")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>shell run(rm) [handled]
        3 system core>thinker approval-requested [recorded]
        4 system core>thinker approval-granted [recorded]
        5 reply shell>thinker ran(done) [handled]
        6 reply thinker>desk answer(a) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn the_request_says_what_waits_and_why() {
    let mut world = world();
    let (thread, _, command) = held_command(&mut world);
    let texts = world.records.iter().flat_map(|record| record.payloads());
    let request = texts.map(|p| p.as_str().to_owned()).find(|text| text.contains("requested"));
    let expected = format!(
        "<approval-requested xmlns=\"https://xml-pipeline.org/ns/core/v1\" \
         message_id=\"{command}\" call_id=\"{command}\" listener=\"shell\" sha256=\"{}\" \
         why=\"every call to it needs an approval\"/>",
        hash(&word("run", "rm"))
    );
    assert_eq!(request.unwrap(), expected);
    assert!(world.transcript(&thread).contains("run(rm) [in flight]"));
}

#[test]
fn a_client_gets_a_notice_as_soon_as_its_call_is_held() {
    let mut world = world();
    let target = || Target::New { suggested: None };
    for (text, expected) in [(word("run", "x"), true), (word("look", "x"), false)] {
        for again in [false, true] {
            let receipt = world.submit_to("desk", target(), Some(&text), &text);
            let Receipt::Accepted { again: was, held, .. } = receipt else { panic!("{receipt:?}") };
            assert_eq!((was, !held.is_empty()), (again, expected));
        }
    }
}

#[test]
fn an_approval_holds_for_its_own_bytes_and_says_enough_of_them() {
    let mut world = world();
    let (_, _, command) = held_command(&mut world);
    let right = hash(&word("run", "rm"));
    let last = if right.ends_with('0') { '1' } else { '0' };
    let wrong = [
        hash(&word("run", "ls")),
        String::new(),
        right[..7].to_owned(),
        right.to_uppercase(),
        format!("{right}0"),
        format!("{}{last}", &right[..63]),
        format!(" {right}"),
        "0".repeat(1 << 16),
    ];
    let before = world.refusals().len();
    for hash in &wrong {
        assert_eq!(world.approve(command, hash), Err("wrong-hash".to_owned()), "{hash:.80}");
    }
    assert!(world.refusals()[before..].iter().all(|refusal| refusal == "operator wrong-hash"));
    assert_eq!(world.refusals().len(), before + wrong.len(), "each attempt is on record");
    assert_eq!(world.approve(command, &right[..8]), Ok(()), "eight digits are enough");
    assert_eq!(world.handed(), ["shell"]);
}

#[test]
fn an_approval_is_used_once_and_the_second_operator_is_refused() {
    let mut world = world();
    let (_, call, command) = held_command(&mut world);
    let right = hash(&word("run", "rm"));
    assert_eq!(world.approve(command, &right), Ok(()));
    assert_eq!(world.approve(command, &right), Err("not-waiting".to_owned()), "replayed");
    assert_eq!(world.refuse(command, "no"), Err("not-waiting".to_owned()), "too late");
    assert_eq!(world.handed(), ["shell"], "handed over once");
    world.play("shell", &[word("ran", "done")]);
    assert_eq!(world.approve(command, &right), Err("not-waiting".to_owned()), "it is over");
    world.play("thinker", &[word("run", "rm")]);
    assert_eq!(world.handed(), Vec::<String>::new(), "the same bytes again wait again");
    let again = held(&world)[0];
    assert_eq!(world.refuse(again, "one is enough"), Ok(()));
    assert_eq!(world.approve(again, &right), Err("not-waiting".to_owned()));
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error denied"]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_forged_id_approves_nothing_and_is_on_record() {
    let mut world = world();
    let (thread, call, _) = held_command(&mut world);
    let note = world.records.iter().flat_map(|record| &record.facts).find_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "approval-requested" => {
            Some(CallId(message.id))
        }
        _ => None,
    });
    let unknown = CallId(MessageId(Uuid::from_u128(99)));
    let right = hash(&word("run", "rm"));
    for forged in [unknown, call, note.unwrap()] {
        assert_eq!(world.approve(forged, &right), Err("not-waiting".to_owned()));
        assert_eq!(world.refuse(forged, ""), Err("not-waiting".to_owned()));
    }
    assert_eq!(world.refusals().len(), 6);
    assert_eq!(world.transcript(&thread).matches("refused operator").count(), 2, "the open call");
    assert_eq!(held(&world).len(), 1);
}

// A13
#[test]
fn only_an_operator_can_approve() {
    let mut world = world();
    let (_, _, command) = held_command(&mut world);
    let right = hash(&word("run", "rm"));
    let words = ["approval-granted", "approval-requested", "approval-refused", "operator-action"];
    let forged = words.map(|word| {
        let says = format!("message_id=\"{command}\" sha256=\"{right}\" by=\"operator\"");
        core(word, &says, "")
    });
    // An agent in another thread, a listener, and a client.
    world.open("desk", &word("plan", "another"));
    world.play("thinker", &forged);
    world.open("desk", &word("look", "l"));
    let finder = world.delivery_for("finder");
    world.answer(&finder, &forged);
    for text in &forged {
        let receipt = world.submit_to("desk", Target::New { suggested: None }, None, text);
        let Receipt::Refused { refusal, .. } = receipt else { panic!("{receipt:?}") };
        assert_eq!(refusal.rule.to_string(), "reserved-name");
    }
    let reserved = |who: &str| {
        let line = format!("{who} reserved-name");
        world.refusals().iter().filter(|refusal| **refusal == line).count()
    };
    assert_eq!([reserved("thinker"), reserved("finder"), reserved("desk")], [4, 4, 4]);
    assert!(held(&world).contains(&command), "it waits on");
    assert!(!world.handed().contains(&"shell".to_owned()));
}

#[test]
fn a_refused_call_ends_as_denied_with_the_operators_reason() {
    let mut world = world();
    let (thread, _, command) = held_command(&mut world);
    assert_eq!(world.refuse(command, "not on a Friday"), Ok(()));
    let woken = world.delivery("thinker");
    let error = woken.messages.last().unwrap().payload.as_str();
    assert!(error.contains("code=\"denied\" retry_allowed=\"false\""), "{error}");
    assert!(error.contains("refused by the operator: not on a Friday"), "{error}");
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 call thinker>shell run(rm) [cancelled]
        3 system core>thinker approval-requested [recorded]
        4 system core>thinker approval-refused [recorded]
        5 system core>thinker system-error denied [in flight]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn without_a_time_out_a_call_waits_for_ever_and_its_tree_grows_no_older() {
    let mut world = world();
    let (_, call, command) = held_command(&mut world);
    world.pass(Duration::from_secs(90 * 24 * 3600));
    assert_eq!(held(&world), [command]);
    assert_eq!(world.approve(command, &hash(&word("run", "rm"))), Ok(()));
    world.play("shell", &[word("ran", "done")]);
    world.play("thinker", &[word("answer", "late, but not too late")]);
    assert_eq!(world.result(call), "completed: answer(late, but not too late)");
}

#[test]
fn a_time_out_refuses_and_no_time_of_the_call_runs_before_it_is_handed_over() {
    let mut world = patient(300);
    let (_, call, command) = held_command(&mut world);
    world.pass(Duration::from_secs(299));
    assert_eq!(world.approve(command, &hash(&word("run", "rm"))), Ok(()));
    let delivery = world.delivery("shell");
    world.pass(Duration::from_secs(59));
    world.answer(&delivery, &[word("ran", "in its own time")]);
    world.play("thinker", &[word("run", "again")]);
    let second = held(&world)[0];
    world.pass(Duration::from_secs(301));
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error denied"]);
    let fault = woken.messages.last().unwrap().payload.as_str();
    assert!(fault.contains("no person approved it within 300 s"), "{fault}");
    let late = world.approve(second, &hash(&word("run", "again")));
    assert_eq!(late, Err("not-waiting".to_owned()));
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
pub fn a_restart_keeps_what_is_held_and_what_was_approved() {
    let mut world = patient(300);
    let (_, call, command) = held_command(&mut world);
    world.pass(Duration::from_secs(200));
    world.restart();
    assert_eq!(world.handed(), Vec::<String>::new());
    assert_eq!(held(&world), [command]);
    assert_eq!(world.approve(command, &hash(&word("run", "rm"))), Ok(()), "by id, in any run");
    world.restart();
    let delivery = world.delivery("shell");
    assert_eq!(delivery.attempt.to_string(), "3.1");
    world.fail(&delivery, AttemptFailure::Crashed { detail: "!".to_owned() });
    world.pass(Duration::from_secs(5));
    let retried = world.play("shell", &[word("ran", "at the second attempt")]);
    assert_eq!(retried.attempt.to_string(), "3.2", "a retry needs no new approval");
    world.play("thinker", &[word("run", "again")]);
    world.restart();
    world.pass(Duration::from_secs(301));
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)", "the time-out outlived the restart");
}

#[test]
fn cancelling_the_caller_voids_the_approval() {
    let mut world = world();
    let (thread, call, command) = held_command(&mut world);
    world.cancel(&thread);
    assert_eq!(world.result(call), "cancelled: system-error cancelled");
    let right = hash(&word("run", "rm"));
    assert_eq!(world.approve(command, &right), Err("not-waiting".to_owned()));
    assert_eq!(world.handed(), Vec::<String>::new());
    assert_eq!(world.core.state().tree(&thread).unwrap().held, 0);
}

#[test]
fn a_caller_that_replies_takes_its_held_call_along() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "l"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("run", "rm"));
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("finder", &[word("run", "x")]);
    let nested = held(&world)[0];
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
    world.play("thinker", &[spawn, core("wait", "", "")]);
    world.cancel(&thread);
    let right = hash(&word("run", "x"));
    assert_eq!(world.approve(nested, &right), Err("not-waiting".to_owned()));
    let spawned = held(&world)[0];
    assert_eq!(world.approve(spawned, &hash(&word("run", "rm"))), Ok(()));
    world.play("shell", &[word("ran", "r")]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result completed");
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_caller_out_of_budget_voids_the_approval() {
    let limits = TreeLimits { model_calls: 1, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts(Approval::Always, None), limits);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 5, &[word("run", "rm")]);
    let command = held(&world)[0];
    let right = hash(&word("run", "rm"));
    assert_eq!(world.approve(command, &right), Err("budget-spent".to_owned()));
    assert_eq!(world.handed(), Vec::<String>::new(), "nothing is done that nobody can use");
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert!(world.transcript(&thread).contains("approval-refused"));
}

#[test]
fn a_held_call_has_its_share_of_the_messages_reserved() {
    let limits = TreeLimits { messages: 6, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts(Approval::Always, None), limits);
    let (thread, _) = world.open("desk", &word("run", "one"));
    let right = hash(&word("run", "one"));
    let first = held(&world)[0];
    world.say("desk", &thread, &word("run", "two"));
    let target = Target::Thread { id: thread.to_string() };
    let third = world.submit_to("desk", target, None, &word("look", "three"));
    let Receipt::Refused { refusal, .. } = third else { panic!("{third:?}") };
    assert_eq!(refusal.rule.to_string(), "budget-spent", "four messages, two spoken for");
    assert_eq!(world.approve(first, &right), Ok(()));
}

#[test]
fn a_config_without_approval_releases_calls_and_one_with_approval_holds_them_again() {
    let mut world = world();
    let (thread, call, command) = held_command(&mut world);
    world.restart_with(contracts(Approval::Never, None));
    world.pass(Duration::ZERO);
    let right = hash(&word("run", "rm"));
    assert_eq!(world.approve(command, &right), Err("not-waiting".to_owned()));
    assert!(world.transcript(&thread).contains("approval-granted"), "and says so");
    assert_eq!(world.handed(), ["shell"]);
    world.restart_with(contracts(Approval::Always, None));
    world.pass(Duration::ZERO);
    assert_eq!(world.handed(), Vec::<String>::new(), "no operator has approved it");
    assert_eq!(world.approve(command, &right), Ok(()));
    world.restart();
    world.pass(Duration::ZERO);
    world.play("shell", &[word("ran", "r")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    assert_eq!(world.transcript(&thread).matches("approval-requested").count(), 2);
}

/// Checks for each held call that its state has the reason and the beginning of the hold as the
/// records from `from` on have them. The trees of the calls leave memory first. Returns the number
/// of calls that were delivered before.
fn check_requests(world: &mut World, from: usize) -> usize {
    let calls = held(world);
    world.core.let_rest();
    let mut delivered = 0;
    for call in calls {
        let is_hold = |fact: &Fact| matches!(fact, Fact::Held { call: held, .. } if *held == call);
        let mut records = world.records[from..].iter();
        let record = records.find(|record| record.facts.iter().any(is_hold)).unwrap();
        let mut texts = record.payloads().map(|payload| payload.as_str());
        let request = texts.find(|text| text.contains("approval-requested")).unwrap();

        let open = world.core.open_call(call).unwrap().unwrap();
        assert_eq!(open.call.held.unwrap().since, Some(record.time));
        let reason = open.approval_reason.unwrap();
        assert!(request.contains(&format!(" why=\"{reason}\"")), "{reason}: {request}");
        delivered += usize::from(reason.ends_with("was given this before, and failed once"));
    }
    delivered
}

#[test]
fn a_config_with_a_new_approval_holds_only_calls_that_were_not_begun() {
    let mut free = contracts(Approval::Never, None);
    let mut strict = contracts(Approval::Always, None);
    for contracts in [&mut free, &mut strict] {
        contracts.iter_mut().for_each(|contract| contract.concurrency = 1);
    }
    // Calls to the thinker need approvals, too.
    strict.iter_mut().filter(|c| c.spends()).for_each(|c| c.approval = Approval::Always);
    let mut world = World::new(free.clone());
    let (_, begun) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("run", "handed over")]);
    let (thread, queued) = world.open("desk", &word("run", "in the queue"));
    assert_eq!(world.handed(), ["shell"], "the other waits for its turn");
    let before = world.records.len();
    world.restart_with(strict.clone());
    assert_eq!(world.handed(), Vec::<String>::new());
    world.pass(Duration::ZERO);
    assert_eq!(world.handed(), Vec::<String>::new(), "nor later");
    assert_eq!(held(&world).len(), 2, "what was handed over may be lost, and is held as well");
    let inputs = world.records[before..].iter().filter(|r| matches!(r.input, Input::Held { .. }));
    assert_eq!(inputs.count(), 2, "that they are held is on record");
    assert!(world.transcript(&thread).contains("core>desk approval-requested"));
    assert_eq!(check_requests(&mut world, before), 1, "one call was handed over before");

    world.restart_with(strict);
    world.pass(Duration::ZERO);
    assert_eq!(held(&world).len(), 2, "once is enough");
    assert_eq!(world.transcript(&thread).matches("approval-requested").count(), 1);
    assert_eq!(world.refuse(queued, "no"), Ok(()));
    let left = held(&world)[0];
    assert_eq!(world.approve(left, &hash(&word("run", "handed over"))), Ok(()));
    world.play("shell", &[word("ran", "r")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(begun), "completed: answer(a)", "what was begun goes on");
    assert!(world.result(queued).starts_with("failed"), "{}", world.result(queued));
    world.check_replay();
}

// A13
#[test]
fn for_dangerous_only_a_literal_false_passes_and_always_is_never_loosened() {
    let flags = [("is_dangerous=\"false\"", true), ("is_dangerous=\"False\"", false), ("", false)];
    for (approval, loosened) in [(Approval::Dangerous, true), (Approval::Always, false)] {
        let mut world = World::new(contracts(approval, None));
        for (flag, harmless) in flags {
            world.open("desk", &run(flag, "ls"));
            let passes = harmless && loosened;
            assert_eq!(world.deliveries.pop_front().is_some(), passes, "{approval:?} {flag}");
        }
    }
}

#[test]
fn bytes_that_are_gone_from_the_record_cannot_be_approved() {
    let mut world = world();
    let (_, _, command) = held_command(&mut world);
    for payload in world.records.iter_mut().flat_map(|record| record.payloads_mut()) {
        if payload.as_str() == word("run", "rm") {
            let blank = "\0".repeat(payload.len());
            assert!(payload.restore(&blank));
        }
    }
    let right = hash(&word("run", "rm"));
    let position = world.records.len();
    world.blind_restart();
    assert_eq!(world.approve(command, &right), Err("wrong-hash".to_owned()));
    assert_eq!(world.handed(), Vec::<String>::new());
    assert!(world.records.len() > position);
    std::mem::forget(world);
}

#[test]
fn a_decision_while_draining_is_kept_for_the_next_start() {
    let mut world = world();
    let (_, _, command) = held_command(&mut world);
    world.step(Event::Shutdown { reason: "update".to_owned() });
    assert_eq!(world.approve(command, &hash(&word("run", "rm"))), Ok(()));
    assert_eq!(world.handed(), Vec::<String>::new());
    let decided = world.records.iter().filter(|r| matches!(r.input, Input::Decided { .. }));
    assert_eq!(decided.count(), 1);
    world.restart();
    assert_eq!(world.handed(), ["shell"]);
}
