//! Failures of the environment: crashes, time-outs, malformed answers, and answers without a call.

use std::time::Duration;

use expect_test::expect;
use organism::bus::Delivery;
use organism::clock::Time;
use organism::contract::Contract;
use organism::envelope::{AttemptFailure, BrokenPayload, Spent, Turn};
use organism::pump::core::{Event, Standstill};
use organism::thread::{Fact, Input};
use organism::xml::findings::{Finding, TextLocation};

use super::world::{World, agent, client, core, fresh, listener, name, word, workflow};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
    ]
}

fn world() -> World {
    World::new(contracts())
}

fn crash() -> AttemptFailure {
    AttemptFailure::Crashed { detail: "signal 9".to_owned() }
}

fn failed_attempts(world: &World) -> usize {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    facts.filter(|fact| matches!(fact, Fact::AttemptFailed { .. })).count()
}

/// A standstill of the pump does not count against a listener's time-out. During a standstill, for
/// example on a full disk, the pump delivers nothing and reads no answer.
#[test]
fn time_in_which_the_pump_stood_still_is_not_a_listeners() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.now = world.now.plus(Duration::from_secs(3600));
    let stood = Duration::from_secs(3600);
    world.step(Event::Standstill(Standstill { stood, stepped: Duration::ZERO }));
    world.pass(Duration::from_secs(30));
    world.answer(&delivery, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
}

#[test]
pub fn a_crash_is_tried_again_until_the_attempts_are_used_up() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    let mut attempts = Vec::new();
    for _ in 0..3 {
        assert_eq!(world.result(call), "none");
        let delivery = world.delivery("finder");
        assert_eq!(fresh(&delivery), ["look(q)"], "the same message again");
        attempts.push(delivery.attempt.to_string());
        world.fail(&delivery, crash());
        assert!(world.deliveries.is_empty(), "not before a while");
        world.pass(Duration::from_secs(20));
    }
    assert_eq!(attempts, ["1.1", "1.2", "1.3"]);
    assert_eq!(failed_attempts(&world), 3, "every attempt is on record");
    assert_eq!(world.result(call), "failed: system-error listener-failed");
    expect![[r#"
        1 call desk>finder look(q) [failed]
        2 system core>desk system-error listener-failed [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn an_attempt_that_succeeds_after_crashes_is_as_good_as_the_first() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let first = world.delivery("finder");
    world.fail(&first, crash());
    world.pass(Duration::from_secs(20));
    let second = world.play("finder", &[word("found", "f")]);
    assert_eq!(first.messages[0].id, second.messages[0].id);
    assert_eq!(world.result(call), "completed: found(f)");
}

/// A result that arrives during the backoff waits for the retry. Otherwise each new result would
/// use up an attempt.
#[test]
fn a_result_that_arrives_during_the_backoff_does_not_hasten_the_retry() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    let inner = format!("<initial-payload>{}</initial-payload>", word("look", "aside"));
    let spawn = core("spawn-thread", "suggested_sub_id=\"side\"", &inner);
    world.play("thinker", &[spawn, word("look", "here")]);
    let aside = world.delivery("finder");
    world.play("finder", &[word("found", "here")]);
    let turn = world.delivery("thinker");
    world.fail(&turn, crash());

    world.answer(&aside, &[word("found", "aside")]);
    assert!(world.deliveries.is_empty(), "not before a while");
    world.pass(Duration::from_secs(20));
    let retried = world.delivery("thinker");
    let news = fresh(&retried);
    assert!(news.iter().any(|text| text == "thread-result completed"), "{news:?}");
    world.fail(&retried, crash());
    assert!(world.deliveries.is_empty());

    world.pass(Duration::from_secs(20));
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    world.check_replay();
}

#[test]
fn rubbish_and_refusals_of_a_handler_are_not_tried_again() {
    let failures = [
        AttemptFailure::Garbage { detail: "?".to_owned() },
        AttemptFailure::Refused { detail: "no".to_owned() },
    ];
    for failure in failures {
        let mut world = world();
        let (_, call) = world.open("desk", &word("look", "q"));
        let delivery = world.delivery("finder");
        world.fail(&delivery, failure);
        assert_eq!(world.result(call), "failed: system-error listener-failed");
        let (_, messages) = &world.results[&call];
        let error = messages[0].payload.as_str();
        assert!(error.contains("retry_allowed=\"false\""), "{error}");
        world.pass(Duration::from_secs(60));
        assert!(world.deliveries.is_empty());
    }
}

#[test]
fn an_unreachable_listener_is_undeliverable_in_the_end() {
    let mut contracts = contracts();
    contracts[2].attempts = 1;
    let mut world = World::new(contracts);
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.fail(&delivery, AttemptFailure::Unreachable { detail: "/opt/secret".to_owned() });
    assert_eq!(world.result(call), "failed: system-error undeliverable");
    let (_, messages) = &world.results[&call];
    assert!(!messages[0].payload.as_str().contains("/opt/secret"), "the caller sees no inside");
}

#[test]
fn a_timeout_ends_the_call_and_its_answer_is_late() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.pass(Duration::from_secs(61));
    assert_eq!(world.result(call), "failed: system-error timeout");
    assert_eq!(world.withdrawn, [call]);
    world.answer(&delivery, &[word("found", "f"), word("count", "n")]);
    expect![[r#"
        1 call desk>finder look(q) [expired]
        2 system core>desk system-error timeout [recorded]
        3 reply finder>desk found(f) [late]
        - refused finder call-closed
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// Design 4.24: an agent's `timeout` limits the time without progress, and each heartbeat of the
/// agent counts as progress.
#[test]
fn progress_of_an_agent_extends_its_deadline_by_its_own_time_out() {
    let mut thinker = agent("thinker", &["plan"], &["answer"], &[]);
    thinker.timeout = Duration::from_secs(100);
    let mut world = World::new(vec![client("desk", &["thinker"]), thinker]);
    let (_, call) = world.open("desk", &word("plan", "p"));
    let thinker = world.delivery("thinker");
    for _ in 0..5 {
        world.pass(Duration::from_secs(99));
        let (call, attempt) = (thinker.call, thinker.attempt);
        world.step(Event::Heartbeat { call, attempt });
    }
    world.pass(Duration::from_secs(99));
    assert_eq!(world.result(call), "none", "it makes progress");

    world.pass(Duration::from_secs(2));
    assert_eq!(world.result(call), "failed: system-error timeout");
}

#[test]
fn a_stray_answer_is_recorded_and_changes_nothing_else() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.stray(&delivery, &[word("found", "stale"), word("unknown", "x")]);
    world.stray(&delivery, &[]);
    assert_eq!(world.result(call), "none");
    assert_eq!(
        world.refusals(),
        ["finder stray-answer", "finder not-in-vocabulary", "finder stray-answer"]
    );
    // The instance may have had the attempt, and answered it.
    let named = format!("attempt {} at call {}", delivery.attempt, delivery.call);
    let reason = format!("an answer to {named}, which its instance did not have at hand");
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let mut messages = facts.filter_map(|fact| match fact {
        Fact::Refused { refusal, .. } => Some(refusal.message.clone()),
        _ => None,
    });
    assert_eq!(messages.next_back(), Some(reason));

    world.answer(&delivery, &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
    expect![[r#"
        1 call desk>finder look(q) [handled]
        2 reply finder>desk found(f) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

#[test]
fn a_heartbeat_moves_the_deadline_of_the_current_attempt_only() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.pass(Duration::from_secs(50));
    world.step(Event::Heartbeat { call, attempt: delivery.attempt });
    world.pass(Duration::from_secs(20));
    assert_eq!(world.result(call), "none", "alive");
    let mut other = delivery.attempt;
    other.n += 1;
    world.step(Event::Heartbeat { call, attempt: other });
    world.pass(Duration::from_secs(20));
    assert_eq!(world.result(call), "failed: system-error timeout");
}

/// Informs the core that the host has received the answer to a delivery. The core gets the answer
/// itself later.
fn arrive(world: &mut World, delivery: &Delivery) -> Time {
    let Delivery { listener, call, attempt, .. } = delivery;
    world.core.answer_arrived(listener, *call, *attempt, world.now);
    world.now
}

/// Gives the core an answer to `delivery` that arrived at the time `arrived`.
fn answer_of(world: &mut World, delivery: &Delivery, arrived: Time) {
    let payload = word("found", "f");
    let payloads = vec![world.gate.check(&delivery.listener, payload.as_bytes())];
    let Delivery { listener, call, attempt, .. } = delivery.clone();
    let (turn, arrived) = (None, Some(arrived));
    world.step(Event::Outcome { listener, call, attempt, payloads, turn, arrived });
}

fn recorded_arrival(world: &World) -> Option<Time> {
    world.records.iter().find_map(|record| match &record.input {
        Input::Outcome { arrived, .. } => *arrived,
        _ => None,
    })
}

#[test]
fn an_answer_that_came_in_time_wins_over_a_deadline_that_is_due() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.pass(Duration::from_secs(59));
    let arrived = arrive(&mut world, &delivery);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.result(call), "none", "its answer is on its way");

    answer_of(&mut world, &delivery, arrived);
    assert_eq!(world.result(call), "completed: found(f)");
    assert_eq!(recorded_arrival(&world), Some(arrived));
    world.check_replay();
}

#[test]
fn an_answer_that_came_too_late_stops_no_deadline() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    world.now = world.now.plus(Duration::from_secs(61));
    arrive(&mut world, &delivery);
    world.pass(Duration::ZERO);
    assert_eq!(world.result(call), "failed: system-error timeout");
}

#[test]
fn an_answer_of_another_listener_or_attempt_stops_no_deadline() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    let mut other = delivery.attempt;
    other.n += 1;
    world.core.answer_arrived(&name("counter"), call, delivery.attempt, world.now);
    world.core.answer_arrived(&delivery.listener, call, other, world.now);
    world.pass(Duration::from_secs(61));
    assert_eq!(world.result(call), "failed: system-error timeout");
}

#[test]
fn an_answer_that_is_stepped_before_its_deadline_records_no_arrival() {
    let mut world = world();
    world.open("desk", &word("look", "q"));
    let delivery = world.delivery("finder");
    let arrived = arrive(&mut world, &delivery);
    world.pass(Duration::from_secs(30));
    answer_of(&mut world, &delivery, arrived);
    assert_eq!(recorded_arrival(&world), None);
    world.check_replay();
}

#[test]
fn a_timeout_runs_from_hand_over_and_not_while_a_call_is_out() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("count", "n")]);
    world.pass(Duration::from_secs(59));
    world.play("counter", &[word("counted", "n")]);
    world.pass(Duration::from_secs(59));
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(call), "completed: found(f)");
}

#[test]
fn an_answer_to_an_outdated_attempt_is_refused_visibly() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("look", "q"));
    let first = world.delivery("finder");
    world.fail(&first, crash());
    world.pass(Duration::from_secs(20));
    let second = world.delivery("finder");
    world.answer(&first, &[word("found", "old")]);
    assert_eq!(world.result(call), "none");
    world.answer(&second, &[word("found", "new")]);
    assert_eq!(world.result(call), "completed: found(new)");
    world.answer(&second, &[word("found", "twice")]);
    assert_eq!(world.refusals(), ["finder stale-attempt", "finder stale-attempt"]);
    expect![[r#"
        1 call desk>finder look(q) [handled]
        - refused finder stale-attempt
        2 reply finder>desk found(new) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// Law 4: the caller learns that the listener failed, and the reason is on record.
#[test]
fn a_listener_that_emits_rubbish_has_its_call_ended() {
    let rubbish = [
        "<found",
        "plain text",
        "<found xmlns=\"urn:test:words\"/>",
        "<secret xmlns=\"urn:test:words\"><text>x</text></secret>",
        "<ack xmlns=\"https://xml-pipeline.org/ns/core/v1\"/>",
    ];
    let mut rules = Vec::new();
    for text in rubbish {
        let mut world = world();
        let (_, call) = world.open("desk", &word("look", "q"));
        world.play("finder", &[word("found", "good"), text.to_owned(), word("count", "n")]);
        assert_eq!(world.result(call), "failed: system-error listener-failed", "{text}");
        assert!(world.deliveries.is_empty(), "none of it proceeds");
        rules.extend(world.refusals());
    }
    expect![[r#"
        [
            "finder call-closed",
            "finder not-well-formed",
            "finder call-closed",
            "finder call-closed",
            "finder not-one-root",
            "finder call-closed",
            "finder call-closed",
            "finder schema-invalid",
            "finder call-closed",
            "finder call-closed",
            "finder not-in-vocabulary",
            "finder call-closed",
            "finder call-closed",
            "finder reserved-name",
            "finder call-closed",
        ]
    "#]]
    .assert_eq(&format!("{rules:#?}\n"));
}

/// Section 6: a listener or client cannot forge a payload of the core. The payload is refused, the
/// refusal names its true sender, and the payload is never delivered.
#[test]
fn only_the_core_writes_system_payloads() {
    let forged = core("thread-result", "thread_id=\"sess-x\" status=\"completed\"", "");
    let mut world = world();
    world.submit_to("desk", organism::pump::core::Target::New { suggested: None }, None, &forged);
    world.open("desk", &word("look", "q"));
    world.play("finder", std::slice::from_ref(&forged));
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[forged]);
    assert_eq!(fresh(&world.delivery("thinker")), ["huh reserved-name"]);
    let expected = ["desk reserved-name", "finder reserved-name", "thinker reserved-name"];
    assert_eq!(world.refusals(), expected);
}

/// Law 7: a fault that reaches no receiver causes no further fault.
#[test]
fn a_fault_never_answers_a_fault() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("look", "q"));
    world.play("finder", &[word("count", "n")]);
    let counter = world.delivery("counter");
    world.fail(&counter, AttemptFailure::Garbage { detail: "?".to_owned() });
    let finder = world.delivery("finder");
    assert_eq!(fresh(&finder), ["system-error listener-failed"]);
    world.fail(&finder, AttemptFailure::Garbage { detail: "?".to_owned() });
    assert!(world.deliveries.is_empty(), "nobody is handed anything more");
    expect![[r#"
        1 call desk>finder look(q) [handled]
        2 call finder>counter count(n) [failed]
        3 system core>finder system-error listener-failed [failed]
        4 system core>desk system-error listener-failed [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// T6, T14: excess actions of a turn are refused one by one, in order, each with its reason.
#[test]
fn excess_actions_are_refused_one_by_one() {
    let mut contracts = contracts();
    contracts[1].actions_per_turn = 1;
    let mut world = World::new(contracts);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let thinking = core("thinking", "", "hm");
    world.play("thinker", &[thinking, word("look", "1"), word("look", "2"), word("answer", "3")]);
    world.play("finder", &[word("found", "1")]);
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken), ["found(1)", "huh excess-action", "huh excess-action"]);
    expect![[r#"
        1 call desk>thinker plan(p) [handled]
        2 note thinker>thinker thinking [recorded]
        3 call thinker>finder look(1) [handled]
        - refused thinker excess-action
        4 system core>thinker huh excess-action [in flight]
        - refused thinker excess-action
        5 system core>thinker huh excess-action [in flight]
        6 reply finder>thinker found(1) [in flight]
    "#]]
    .assert_eq(&world.transcript(&thread));
}

/// T10, O2: a turn has at most one final, even if the maximum number of actions is not reached.
#[test]
fn the_second_final_of_a_turn_is_refused() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let thinking = core("thinking", "", "hm");
    world.play("thinker", &[word("answer", "1"), thinking, word("answer", "2")]);
    assert_eq!(world.result(call), "completed: answer(1)");
    assert_eq!(world.refusals(), ["thinker excess-action"]);
    let transcript = world.transcript(&thread);
    assert_eq!(transcript.matches("reply thinker>desk").count(), 1, "{transcript}");
    world.check_replay();
}

/// A run of a workflow replies once.
#[test]
fn the_second_reply_of_a_workflow_is_refused() {
    let mut world =
        World::new(vec![client("desk", &["flow"]), workflow("flow", &["plan"], &["answer"], &[])]);
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[word("answer", "1"), word("answer", "2")]);
    assert_eq!(world.result(call), "completed: answer(1)");
    assert_eq!(world.refusals(), ["flow excess-action"]);
}

/// T11, T15: findings about the turn as a whole share one `huh`. Each broken payload has its own
/// `huh`, at the position of this payload in the turn.
#[test]
fn broken_actions_and_findings_are_fed_back() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let delivery = world.delivery("thinker");
    let place = TextLocation { line: 1, column: 7, ..TextLocation::default() };
    let finding =
        |code: &str| Finding::new(code, place.clone(), "did not contain a valid XML action");
    let broken =
        BrokenPayload { index: 1, attempt: "<look><te".to_owned(), finding: finding("cut-short") };
    let turn = Turn {
        note: core("model-turn", "", ""),
        findings: vec![finding("no-action"), finding("unclosed")],
        broken: vec![broken],
        ..Turn::default()
    };
    world.answer_turn(&delivery, &[word("look", "1"), word("look", "2")], Some(turn));
    for text in ["1", "2"] {
        world.play("finder", &[word("found", text)]);
    }
    let woken = world.delivery("thinker");
    expect![[r#"
        [
            "found(1)",
            "huh malformed-action",
            "found(2)",
            "huh no-action",
        ]
    "#]]
    .assert_eq(&format!("{:#?}\n", fresh(&woken)));
    assert_eq!(world.refusals(), ["thinker malformed-action"]);
}

/// The text of the fault states why the last turn ended without an action, if its note or a refusal
/// states it.
#[test]
fn a_last_turn_that_was_cut_or_refused_says_so() {
    let finding = || Finding::new("json-missing", TextLocation::default(), "`plan` is unexpected");
    let broken = || BrokenPayload { index: 0, attempt: "{}".to_owned(), finding: finding() };
    let cut = "its answer was cut before an action, at its maximum length or because the context \
               window was full; raise max_tokens";
    let cases = [
        (Spent::AfterLastCall, "normal", true, "and its payload was refused: schema-invalid"),
        (Spent::NeverValid, "length", false, cut),
        (Spent::EndedInText, "length", false, cut),
        (Spent::AfterLastCall, "length", true, cut),
        (Spent::NeverValid, "refused", false, "and the model refused to answer"),
        (Spent::NeverValid, "unknown", false, "no turn held a valid action"),
        (Spent::WindowFull, "length", false, "the model's context window is full"),
    ];
    for (spent, stop, is_broken, text) in cases {
        let mut world = world();
        let (_, call) = world.open("desk", &word("plan", "p"));
        let delivery = world.delivery("thinker");
        let note = core("model-turn", &format!("stop=\"{stop}\""), "");
        let broken = if is_broken { vec![broken()] } else { Vec::new() };
        let turn = Turn { note, broken, spent: Some(spent), ..Turn::default() };
        world.answer_turn(&delivery, &[], Some(turn));
        let (_, messages) = &world.results[&call];
        let fault = messages[0].payload.as_str();
        assert!(fault.contains(text), "{spent:?} {stop}: {fault}");
    }

    // A well-formed action shows that the answer was long enough for one.
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    let delivery = world.delivery("thinker");
    let note = core("model-turn", "stop=\"length\"", "");
    let turn = Turn { note, spent: Some(Spent::AfterLastCall), ..Turn::default() };
    world.answer_turn(&delivery, &[word("look", "q")], Some(turn));
    let fault = world.results[&call].1[0].payload.as_str();
    assert!(fault.contains("used up after a call, without a final answer"), "{fault}");
}

/// T12, F14: the call of an agent that has used its last turn fails. The text of the fault depends
/// on how the agent used its turns; there are four texts.
#[test]
fn the_last_turn_spent_is_a_typed_failure() {
    let mut texts = Vec::new();
    for spent in [Spent::NeverValid, Spent::AfterLastCall, Spent::EndedInText, Spent::WindowFull] {
        let mut world = world();
        let (_, call) = world.open("desk", &word("plan", "p"));
        let delivery = world.delivery("thinker");
        let turn = Turn { note: core("model-turn", "", ""), spent: Some(spent), ..Turn::default() };
        let payloads = match spent {
            Spent::NeverValid | Spent::EndedInText => vec![word("vote", "?")],
            Spent::AfterLastCall | Spent::WindowFull => vec![word("look", "q")],
        };
        world.answer_turn(&delivery, &payloads, Some(turn));
        assert!(world.deliveries.is_empty());
        let code = match spent {
            Spent::WindowFull => "budget-spent",
            _ => "iterations-spent",
        };
        assert_eq!(world.result(call), format!("failed: system-error {code}"));
        let (_, messages) = &world.results[&call];
        texts.push(messages[0].payload.as_str().split_once('>').unwrap().1.to_owned());
    }
    expect![[r#"
        [
            "no turn held a valid action, and the last one is used up</system-error>",
            "the last turn is used up after a call, without a final answer</system-error>",
            "the last turn is used up, and it was text without an action; if such text is to be the answer, set final_by = \"text\" for the agent in the config</system-error>",
            "the model's context window is full, and the turn that was to be the last did not end the task</system-error>",
        ]
    "#]]
    .assert_eq(&format!("{texts:#?}\n"));
}
