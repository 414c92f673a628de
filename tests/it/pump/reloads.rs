//! Reloads: calls that no listener works on follow the config that a reload puts in force, as they
//! do after a start (design 12.3, 6.4).

use std::time::Duration;

use organism::bus::{Delivery, DeliveryPreview};
use organism::contract::{Approval, Contract, Role};
use organism::envelope::AttemptFailure;
use organism::ids::{CallId, Digest};
use organism::pump::core::{Event, PauseRuling};
use organism::thread::{Decision, Hold, PauseTarget, PauseVerb};

use super::world::{World, agent, client, core, listener, name, names, word};

const NOTHING: [&str; 0] = [];

/// Longer than every backoff, and shorter than the time-out of a call.
const WHILE: Duration = Duration::from_secs(10);

fn contracts(approval: Approval) -> Vec<Contract> {
    let mut shell = listener("shell", &["run"], &["ran"], &[]);
    shell.approval = approval;
    shell.concurrency = 1;
    vec![client("desk", &["shell"]), shell]
}

fn run() -> String {
    word("run", "rm")
}

fn crash() -> AttemptFailure {
    AttemptFailure::Crashed { detail: "signal 9".to_owned() }
}

fn approve(world: &mut World, call: CallId) -> Result<(), String> {
    world.approve(call, &Digest::of(run().as_bytes()).to_string())
}

fn waits_for_approval(world: &World, call: CallId) -> bool {
    let held = world.core.state().call(call).and_then(|open| open.held);
    held.is_some_and(|held| held.hold == Hold::Approval)
}

fn pause(world: &mut World, verb: PauseVerb) {
    let ruling = world.pause(verb, &PauseTarget::All);
    assert!(matches!(ruling, PauseRuling::Done { .. }), "{ruling:?}");
}

#[test]
fn a_new_approval_holds_each_call_that_waits_for_its_listener() {
    for case in ["paused", "queued", "absent", "failed"] {
        let mut world = World::new(contracts(Approval::Never));
        let mut other = None;
        match case {
            "paused" => pause(&mut world, PauseVerb::Pause),
            "queued" => {
                world.open("desk", &word("run", "first"));
                other = Some(world.delivery("shell"));
            }
            _ => {}
        }

        let (_, call) = world.open("desk", &run());
        if case == "absent" {
            let returned = world.delivery("shell");
            world.not_taken(&returned);
        }
        if case == "failed" {
            let failed = world.delivery("shell");
            world.fail(&failed, crash());
        }
        assert_eq!(world.handed(), NOTHING, "{case}");

        // The step of the reload has capacity for the call.
        let mut strict = contracts(Approval::Always);
        strict[1].concurrency = 2;
        world.reload(strict);
        assert_eq!(world.handed(), NOTHING, "{case}: in the step of the reload");
        world.pass(WHILE);
        assert!(waits_for_approval(&world, call), "{case}");

        if let Some(other) = &other {
            world.answer(other, &[word("ran", "first")]);
        }
        if case == "paused" {
            pause(&mut world, PauseVerb::Resume);
        }
        world.pass(WHILE);
        assert_eq!(world.handed(), NOTHING, "{case}: it waits for its approval");

        assert_eq!(approve(&mut world, call), Ok(()), "{case}");
        world.play("shell", &[word("ran", "done")]);
        assert_eq!(world.result(call), "completed: ran(done)", "{case}");
        world.check_replay();
    }
}

#[test]
fn a_call_in_flight_goes_on_and_is_held_before_a_further_attempt() {
    for is_taken in [true, false] {
        let mut world = World::new(contracts(Approval::Never));
        let (_, call) = world.open("desk", &run());
        let delivery = world.delivery("shell");
        world.reload(contracts(Approval::Always));
        world.pass(WHILE);
        assert!(!waits_for_approval(&world, call), "its listener has it");

        if is_taken {
            world.fail(&delivery, crash());
        } else {
            world.not_taken(&delivery);
        }
        world.pass(WHILE);
        assert_eq!(world.handed(), NOTHING);
        assert!(waits_for_approval(&world, call));

        assert_eq!(approve(&mut world, call), Ok(()));
        world.play("shell", &[word("ran", "done")]);
        assert_eq!(world.result(call), "completed: ran(done)");
        world.check_replay();
    }
}

#[test]
fn a_call_is_released_when_its_approval_is_no_longer_required() {
    let mut world = World::new(contracts(Approval::Always));
    let (thread, call) = world.open("desk", &run());
    assert!(waits_for_approval(&world, call));
    world.reload(contracts(Approval::Never));
    world.pass(Duration::ZERO);
    assert_eq!(approve(&mut world, call), Err("not-waiting".to_owned()));
    assert!(world.transcript(&thread).contains("approval-granted"), "and says so");
    world.play("shell", &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
    world.check_replay();
}

#[test]
fn a_second_reload_before_the_hold_queues_the_call_again() {
    let mut world = World::new(contracts(Approval::Never));
    pause(&mut world, PauseVerb::Pause);
    let (_, call) = world.open("desk", &run());
    world.reload(contracts(Approval::Always));
    world.reload(contracts(Approval::Never));
    world.pass(WHILE);
    assert!(!waits_for_approval(&world, call));

    pause(&mut world, PauseVerb::Resume);
    world.play("shell", &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
    world.check_replay();
}

/// Contracts of a listener whose calls have this number of attempts.
fn with_attempts(attempts: u32) -> Vec<Contract> {
    let mut contracts = contracts(Approval::Never);
    contracts[1].attempts = attempts;
    contracts
}

/// The error payload of a failed call.
fn error_of(world: &World, call: CallId) -> String {
    let (_, messages) = &world.results[&call];
    messages[0].payload.as_str().to_owned()
}

#[test]
fn a_call_that_has_failed_as_often_as_a_new_config_permits_is_not_delivered_again() {
    for case in ["waits for its retry", "held", "restarted"] {
        let mut world = World::new(with_attempts(10));
        let (_, call) = world.open("desk", &run());
        let first = world.delivery("shell");
        world.fail(&first, crash());
        world.pass(WHILE);
        let second = world.delivery("shell");
        world.fail(&second, crash());
        if case == "held" {
            world.reload(contracts(Approval::Always));
            world.pass(WHILE);
            assert!(waits_for_approval(&world, call));
        }

        match case {
            "restarted" => world.restart_with(with_attempts(1)),
            _ => world.reload(with_attempts(1)),
        }
        assert_eq!(world.handed(), NOTHING, "{case}");
        world.pass(WHILE);
        assert_eq!(world.handed(), NOTHING, "{case}");
        assert_eq!(world.result(call), "failed: system-error listener-failed", "{case}");
        let error = error_of(&world, call);
        let text = "shell failed 2 times, and the config now permits one attempt";
        assert!(error.contains(text), "{case}: {error}");
        world.check_replay();
    }
}

#[test]
fn a_failed_call_that_waits_for_its_listener_ends_with_a_lower_number_of_attempts() {
    let mut world = World::new(with_attempts(10));
    let (_, call) = world.open("desk", &run());
    let failed = world.delivery("shell");
    world.fail(&failed, crash());
    let (_, other) = world.open("desk", &word("run", "other"));
    let running = world.delivery("shell");
    assert_eq!(running.call, other);
    world.pass(WHILE);

    world.reload(with_attempts(1));
    world.answer(&running, &[word("ran", "other")]);
    world.pass(WHILE);
    assert_eq!(world.handed(), NOTHING);
    assert_eq!(world.result(call), "failed: system-error listener-failed");
    assert_eq!(world.result(other), "completed: ran(other)");
    world.check_replay();
}

#[test]
fn a_failed_call_is_delivered_again_if_a_new_config_permits_more_attempts() {
    let mut world = World::new(with_attempts(10));
    let (_, call) = world.open("desk", &run());
    let failed = world.delivery("shell");
    world.fail(&failed, crash());
    world.reload(with_attempts(2));
    world.pass(WHILE);
    world.play("shell", &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
    world.check_replay();
}

/// A person who decides on a call is informed about its failed attempts, and so is the caller.
#[test]
fn a_held_call_names_its_failed_attempts() {
    let mut world = World::new(contracts(Approval::Never));
    let (_, call) = world.open("desk", &run());
    let failed = world.delivery("shell");
    world.fail(&failed, crash());
    world.reload(contracts(Approval::Always));
    world.pass(WHILE);

    let texts = world.records.iter().flat_map(|record| record.payloads());
    let request = texts.map(|p| p.as_str()).find(|text| text.contains("approval-requested"));
    let earlier = "; shell was given this before, and failed once";
    assert!(request.is_some_and(|text| text.contains(earlier)), "{request:?}");
    assert_eq!(world.refuse(call, "no"), Ok(()));
    assert_eq!(world.result(call), "failed: system-error denied");
    let error = error_of(&world, call);
    assert!(error.contains(&format!("refused by the operator: no{earlier}")), "{error}");
    world.check_replay();
}

/// `undeliverable` states that a call had no effect. A call that its listener has handled in part
/// ends with another code.
#[test]
fn a_removed_listener_that_has_handled_a_part_is_not_undeliverable() {
    for (attempts, code) in [(1, "unknown-outcome"), (3, "listener-failed")] {
        let mut first = listener("first", &["look"], &["found"], &["shell"]);
        first.attempts = attempts;
        let mut all = contracts(Approval::Never);
        all[0].peers.push(name("first"));
        let rest = contracts(Approval::Never);
        all.push(first);
        let mut world = World::new(all);
        let (_, call) = world.open("desk", &word("look", "q"));
        world.play("first", &[run()]);
        world.reload(rest);
        world.pass(Duration::ZERO);
        assert_eq!(world.result(call), format!("failed: system-error {code}"));
        let error = error_of(&world, call);
        let text = "first is no longer part of this organism; first has handled a part of this";
        assert!(error.contains(text), "{error}");
        world.check_replay();
    }
}

/// Contracts of a listener with previews, or without them.
fn previewing(previews: Option<Duration>) -> Vec<Contract> {
    let mut contracts = contracts(Approval::Always);
    contracts[1].previews = previews;
    contracts[1].attempts = 2;
    contracts
}

#[test]
fn a_request_for_a_preview_that_waits_is_dropped_with_the_previews() {
    let mut world = World::new(previewing(Some(Duration::from_secs(5))));
    world.open("desk", &word("run", "first"));
    let (_, call) = world.open("desk", &run());
    let first = world.delivery("shell");
    assert_eq!(world.handed(), NOTHING, "the second request waits for the listener");

    world.reload(previewing(None));
    world.answer(&first, &[]);
    assert_eq!(world.handed(), NOTHING, "nothing is left to ask for");
    world.pass(WHILE);
    assert!(waits_for_approval(&world, call));
    assert!(world.core.state().call(call).unwrap().preview.is_none());

    assert_eq!(approve(&mut world, call), Ok(()));
    assert_eq!(world.delivery("shell").preview, DeliveryPreview::None);
    world.check_replay();
}

/// A reload removes the previews of a listener after an approval. If the attempt in flight then
/// fails, it is not repeated, because no further attempt would compare the approved preview.
#[test]
fn a_failed_attempt_is_not_repeated_after_a_reload_without_previews() {
    let mut world = World::new(previewing(Some(Duration::from_secs(5))));
    let (_, call) = world.open("desk", &run());
    let preview = core("preview", "", "-a");
    world.play("shell", std::slice::from_ref(&preview));
    let hash = Digest::of(run().as_bytes()).to_string();
    let preview = Some(Digest::of(preview.as_bytes()).to_string());
    assert_eq!(world.decide(call, Decision::Approve { hash, preview }), Ok(()));

    let delivery = world.delivery("shell");
    world.reload(previewing(None));
    world.fail(&delivery, crash());
    world.pass(WHILE);
    assert_eq!(world.handed(), NOTHING);
    assert_eq!(world.result(call), "failed: system-error unknown-outcome");
    world.check_replay();
}

/// Contracts of the listener `shell` and of an agent that `shell` may call.
fn with_shell(shell: Option<Contract>) -> Vec<Contract> {
    let peers: &[&str] = if shell.is_some() { &["shell", "finder"] } else { &["finder"] };
    let mut contracts = vec![client("desk", peers), agent("finder", &["look"], &["found"], &[])];
    contracts.extend(shell);
    contracts
}

/// Contracts of `shell` as a listener, as a serial listener, and as an agent.
fn kinds_of_shell() -> [Contract; 3] {
    let plain = listener("shell", &["run"], &["ran"], &["finder"]);
    let mut serial = plain.clone();
    serial.serial_per_thread = true;
    [plain, serial, agent("shell", &["run"], &["ran"], &["finder"])]
}

/// The pairs of different kinds, as indices of [`kinds_of_shell`].
const CHANGES: [(usize, usize); 6] = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];

/// Two reloads give the name of a listener to a listener of another kind. The delivery that is in
/// flight meanwhile ends under its own contract, and its call is not continued. Its thread is free.
#[test]
fn a_listener_of_another_kind_does_not_continue_the_calls_of_a_removed_one() {
    for (from, to) in CHANGES {
        for end in ["calls", "fails", "returned", "replies"] {
            let case = format!("{from} to {to}: {end}");
            let mut world = World::new(with_shell(Some(kinds_of_shell()[from].clone())));
            let (thread, call) = world.open("desk", &run());
            let delivery = world.delivery("shell");
            world.reload(with_shell(None));
            world.reload(with_shell(Some(kinds_of_shell()[to].clone())));
            match end {
                "calls" => world.answer(&delivery, &[word("look", "q")]),
                "fails" => world.fail(&delivery, crash()),
                "returned" => world.not_taken(&delivery),
                _ => world.answer(&delivery, &[word("ran", "done")]),
            }
            world.pass(WHILE);
            assert_eq!(world.handed(), NOTHING, "{case}");
            let result = match end {
                "calls" | "fails" => "failed: system-error listener-failed",
                "returned" => "failed: system-error undeliverable",
                _ => "completed: ran(done)",
            };
            assert_eq!(world.result(call), result, "{case}");
            if end != "replies" {
                let error = error_of(&world, call);
                let text = "shell was replaced in a reload by a listener of another kind, which does not continue";
                let has_text = error.contains(text) && error.contains("retry_allowed=\"true\"");
                assert!(has_text, "{case}: {error}");
            }

            let further = world.say("desk", &thread, &run());
            world.pass(WHILE);
            world.play("shell", &[word("look", "q")]);
            let beside = world.say("desk", &thread, &run());
            world.play("finder", &[word("found", "f")]);
            while world.handed().contains(&"shell".to_owned()) {
                let delivery = world.delivery("shell");
                world.answer(&delivery, &[word("ran", "now")]);
            }
            for call in [further, beside] {
                assert_eq!(world.result(call), "completed: ran(now)", "{case}");
            }
            world.check_replay();
        }
    }
}

/// A third reload may remove the other listener as well. A delivery in flight still ends under its
/// own contract: an empty answer of a listener acknowledges its call, and one of an agent does not.
#[test]
fn a_delivery_keeps_its_contract_also_when_the_other_listener_is_removed() {
    for (from, to) in CHANGES {
        let mut world = World::new(with_shell(Some(kinds_of_shell()[from].clone())));
        let (_, call) = world.open("desk", &run());
        let delivery = world.delivery("shell");
        world.reload(with_shell(None));
        world.reload(with_shell(Some(kinds_of_shell()[to].clone())));
        world.reload(with_shell(None));
        world.answer(&delivery, &[]);

        if kinds_of_shell()[from].spends() {
            assert_eq!(world.result(call), "failed: system-error listener-failed", "to {to}");
            let error = error_of(&world, call);
            let has_text = error.contains("shell is no longer part of this organism");
            assert!(has_text && error.contains("retry_allowed=\"false\""), "{error}");
        } else {
            assert!(world.result(call).starts_with("completed: "), "{from} to {to}");
        }
        world.check_replay();
    }
}

/// Whether a call of a replaced listener may have had effects depends on the number of attempts that
/// the listener had, and not on that of the listener which has its name now.
#[test]
fn the_code_for_the_call_of_a_replaced_listener_follows_its_own_attempts() {
    for (attempts, code) in [(1, "unknown-outcome"), (3, "listener-failed")] {
        let [mut plain, mut serial, _] = kinds_of_shell();
        plain.attempts = attempts;
        serial.attempts = 4 - attempts;
        let mut world = World::new(with_shell(Some(plain)));
        let (_, call) = world.open("desk", &run());
        let delivery = world.delivery("shell");
        world.reload(with_shell(None));
        world.reload(with_shell(Some(serial)));
        world.answer(&delivery, &[word("look", "q")]);
        assert_eq!(world.result(call), format!("failed: system-error {code}"));
        world.check_replay();
    }
}

/// A listener that comes back as it was continues its calls.
#[test]
fn a_listener_that_comes_back_continues_its_calls() {
    for shell in kinds_of_shell() {
        let mut world = World::new(with_shell(Some(shell.clone())));
        let (_, call) = world.open("desk", &run());
        let delivery = world.delivery("shell");
        world.reload(with_shell(None));
        world.reload(with_shell(Some(shell)));
        world.answer(&delivery, &[word("look", "q")]);
        world.play("finder", &[word("found", "f")]);
        world.play("shell", &[word("ran", "done")]);
        assert_eq!(world.result(call), "completed: ran(done)");
        world.check_replay();
    }
}

/// An attempt in flight keeps the time-out of its hand-over, and heartbeats of an agent extend it by
/// the same time. The fault states this time.
#[test]
fn an_attempt_in_flight_keeps_its_time_out_over_a_reload() {
    let with_timeout = |shell: &Contract, seconds| {
        let timeout = Duration::from_secs(seconds);
        with_shell(Some(Contract { timeout, ..shell.clone() }))
    };
    let [plain, _, agent] = kinds_of_shell();
    for shell in [plain, agent] {
        let mut world = World::new(with_timeout(&shell, 60));
        let (_, call) = world.open("desk", &run());
        let delivery = world.delivery("shell");
        world.reload(with_timeout(&shell, 5));
        world.pass(Duration::from_secs(50));
        if shell.spends() {
            let (call, attempt) = (delivery.call, delivery.attempt);
            world.step(Event::Heartbeat { call, attempt });
            world.pass(Duration::from_secs(50));
        }
        assert_eq!(world.result(call), "none", "{:?}", shell.role);
        world.pass(Duration::from_secs(15));
        assert_eq!(world.result(call), "failed: system-error timeout", "{:?}", shell.role);
        let error = error_of(&world, call);
        assert!(error.contains("shell did not answer within 60 s"), "{error}");
        world.check_replay();
    }
}

/// A call keeps the limit with which it was held, and its end states this limit.
#[test]
pub fn a_held_call_keeps_its_limit_over_a_reload_and_a_restart() {
    let with_patience = |patience| {
        let mut contracts = contracts(Approval::Always);
        let mut ann = Contract::new(name("ann"), Role::Human);
        ann.accepts = names(&["ask"]);
        ann.replies = names(&["report"]);
        contracts[0].peers.push(name("ann"));
        contracts.push(ann);
        contracts[1].patience = patience;
        contracts[2].patience = patience;
        contracts
    };

    for after in [Some(Duration::from_secs(3600)), None] {
        for restarts in [false, true] {
            let mut world = World::new(with_patience(Some(Duration::from_secs(10))));
            let (thread, call) = world.open("desk", &run());
            let (_, question) = world.open("desk", &word("ask", "which"));
            if restarts {
                world.restart_with(with_patience(after));
            } else {
                world.reload(with_patience(after));
            }
            world.pass(Duration::from_secs(8));
            assert_eq!(world.result(call), "none");
            world.pass(Duration::from_secs(3));

            assert_eq!(world.result(call), "failed: system-error denied");
            let error = error_of(&world, call);
            assert!(error.contains("no person approved it within 10 s"), "{error}");
            assert!(world.transcript(&thread).contains("approval-refused"));
            let error = error_of(&world, question);
            assert!(error.contains("ann did not answer within 10 s"), "{error}");
            world.check_replay();
        }
    }
}

/// The gate accepts a call just before a reload removes the called listener. The core refuses it.
#[test]
fn a_call_to_a_removed_listener_is_refused_although_the_gate_has_accepted_it() {
    let boss = |peers: &[&str]| agent("boss", &["plan"], &["answer"], peers);
    let mut world = World::new(vec![
        client("desk", &["boss"]),
        boss(&["shell"]),
        listener("shell", &["run"], &["ran"], &[]),
    ]);
    let (_, call) = world.open("desk", &word("plan", "p"));
    let Delivery { listener, call: turn, attempt, .. } = world.delivery("boss");
    let payloads = vec![world.gate.check(&listener, run().as_bytes())];
    assert!(payloads[0].is_ok());

    world.reload(vec![client("desk", &["boss"]), boss(&[])]);
    let arrived = Some(world.now);
    world.step(Event::Outcome { listener, call: turn, attempt, payloads, turn: None, arrived });
    assert_eq!(world.refusals(), ["boss not-in-vocabulary"]);
    world.play("boss", &[word("answer", "without it")]);
    assert_eq!(world.result(call), "completed: answer(without it)");
    assert!(world.core.state().calls.is_empty());
    world.check_replay();
}
