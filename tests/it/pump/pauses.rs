//! Pauses: during a pause, nothing is handed over and no time counts. The resume handles the alarms
//! that came due during the pause (issue 18, part 4).

use std::time::Duration;

use ed25519_dalek::SigningKey;
use organism::bus::DeliveryPreview;
use organism::contract::{
    Approval, Contract, MissedPolicy, Role, Schedule, ScheduleTimes, TreeLimits,
};
use organism::envelope::{AttemptFailure, RefusalRule};
use organism::ids::{CallId, ScheduleName, ThreadId};
use organism::limits;
use organism::pump::core::{Alarm, Event, PauseRuling, Standstill};
use organism::thread::{
    Decision, DecisionOrigin, DecisionSignature, DecisionStatement, Fact, Input, OperatorKeys,
    OperatorPublicKey, PauseTarget, PauseVerb, uncounted_at,
};
use uuid::Uuid;

use super::plain_core::PlainCore;
use super::world::{World, agent, client, core, fresh, listener, name, names, word};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

const ALL: PauseTarget = PauseTarget::All;

/// Contracts of an agent, a finder, a person, a shell whose calls are held, and a till whose calls
/// have one attempt.
fn contracts() -> Vec<Contract> {
    let mut boss = Contract::new(name("boss"), Role::Human);
    (boss.accepts, boss.replies) = (names(&["ask"]), names(&["report"]));
    let mut shell = listener("shell", &["run"], &["ran"], &[]);
    (shell.approval, shell.patience) = (Approval::Always, Some(10 * MINUTE));
    shell.previews = Some(5 * MINUTE);
    shell.concurrency = 4;
    let mut till = listener("till", &["count"], &["counted"], &[]);
    till.attempts = 1;
    let mut contracts = vec![
        client("desk", &["thinker", "finder", "shell", "till"]),
        agent("thinker", &["plan", "vote"], &["answer", "ballot"], &["finder", "boss", "till"]),
        listener("finder", &["look"], &["found"], &[]),
        till,
        boss,
        shell,
    ];
    for contract in &mut contracts {
        contract.timeout = 10 * MINUTE;
    }
    contracts
}

fn world() -> World {
    World::new(contracts())
}

fn pause(world: &mut World, target: &PauseTarget) {
    let ruling = world.pause(PauseVerb::Pause, target);
    assert!(matches!(ruling, PauseRuling::Done { .. }), "{ruling:?}");
}

fn resume(world: &mut World, target: &PauseTarget) {
    let ruling = world.pause(PauseVerb::Resume, target);
    assert!(matches!(ruling, PauseRuling::Done { .. }), "{ruling:?}");
}

fn of_listener(who: &str) -> PauseTarget {
    PauseTarget::Listener(name(who))
}

fn look(text: &str) -> String {
    word("look", text)
}

fn spawn(limits: &str) -> String {
    let inner = format!("<initial-payload>{}</initial-payload>", word("vote", "v"));
    core("spawn-thread", &format!("suggested_sub_id=\"child\" {limits}"), &inner)
}

/// Issue 18, 4.2: work in flight finishes, and no new delivery is handed over, whatever is paused.
#[test]
fn work_in_flight_finishes_and_nothing_new_is_handed_over() {
    for case in ["all", "finder", "thread"] {
        let mut world = world();
        let (thread, call) = world.open("desk", &word("plan", "p"));
        let target = match case {
            "all" => ALL,
            "finder" => of_listener("finder"),
            _ => PauseTarget::Thread(thread.clone()),
        };
        let turn = world.delivery("thinker");
        pause(&mut world, &target);
        world.answer(&turn, &[look("a"), look("b")]);
        assert_eq!(world.handed(), Vec::<String>::new(), "{case}");

        world.restart();
        world.pass(24 * HOUR);
        assert_eq!(world.handed(), Vec::<String>::new(), "{case}: after a restart");
        assert_eq!(world.result(call), "none", "{case}: no time-out has fired");

        resume(&mut world, &target);
        world.play("finder", &[word("found", "a")]);
        world.play("finder", &[word("found", "b")]);
        world.play("thinker", &[word("answer", "done")]);
        assert_eq!(world.result(call), "completed: answer(done)", "{case}");
    }
}

/// Issue 18, 4.1: a pause covers a thread with everything beneath it, and nothing beside it.
#[test]
fn what_a_pause_does_not_cover_goes_on() {
    let mut world = world();
    let (paused, _) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn(""), core("wait", "", "")]);
    pause(&mut world, &PauseTarget::Thread(paused));
    world.play("thinker", &[look("beneath")]);
    assert!(world.deliveries.is_empty(), "a thread beneath it is paused, too");

    let (_, other) = world.open("desk", &look("beside"));
    world.play("finder", &[word("found", "f")]);
    assert_eq!(world.result(other), "completed: found(f)");

    let (_, till) = world.open("desk", &word("count", "c"));
    pause(&mut world, &of_listener("finder"));
    world.play("till", &[word("counted", "1")]);
    assert_eq!(world.result(till), "completed: counted(1)");
}

/// Issue 18, 4.2: while a pause keeps back a call, no time counts against the call, even if its
/// listener is absent.
#[test]
fn no_time_counts_against_a_call_that_waits_for_an_absent_listener() {
    let mut world = world();
    let (_, call) = world.open("desk", &look("q"));
    let first = world.delivery("finder");
    world.not_taken(&first);
    pause(&mut world, &of_listener("finder"));
    world.pass(HOUR);
    assert!(world.deliveries.is_empty(), "no probe");
    assert_eq!(world.result(call), "none");

    resume(&mut world, &of_listener("finder"));
    let probe = world.delivery("finder");
    world.not_taken(&probe);
    world.pass(MINUTE);
    assert_eq!(world.result(call), "none", "nine minutes are left");

    let until = world.now.plus(10 * MINUTE);
    while world.now < until {
        while let Some(delivery) = world.deliveries.pop_front() {
            world.not_taken(&delivery);
        }
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.result(call), "failed: system-error undeliverable");
}

/// Issue 18, 4.2: if an attempt in flight fails during a pause, the call is tried again only after
/// the resume.
#[test]
fn a_retry_waits_for_the_resume() {
    let mut world = world();
    world.open("desk", &look("q"));
    let first = world.delivery("finder");
    pause(&mut world, &ALL);
    world.fail(&first, AttemptFailure::Crashed { detail: "gone".to_owned() });
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());

    resume(&mut world, &ALL);
    let second = world.delivery("finder");
    assert!(first.attempt < second.attempt);
}

/// A pause does not stop the time-out of an attempt in flight, because the listener has the work.
#[test]
fn an_attempt_in_flight_keeps_its_own_time_out() {
    let mut world = world();
    let (_, call) = world.open("desk", &look("q"));
    world.delivery("finder");
    pause(&mut world, &ALL);
    world.pass(11 * MINUTE);
    assert_eq!(world.result(call), "failed: system-error timeout");
}

/// Issue 18, 4.2: timers that fall due during a pause fire at the resume, in the order of their
/// times.
#[test]
fn timers_that_fall_due_fire_at_the_resume_in_order() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let timer = |label: &str, after: &str| {
        core("set-timer", &format!("after=\"{after}\" label=\"{label}\""), "")
    };
    let set = [timer("late", "PT9M"), timer("soon", "PT3M"), timer("mid", "PT6M")];
    let wait = core("wait", "", "");
    world.play("thinker", &[set.as_slice(), &[wait]].concat());
    pause(&mut world, &ALL);
    world.pass(5 * MINUTE);
    world.restart();
    world.pass(HOUR);
    let fired = |world: &World| {
        let facts = world.records.iter().flat_map(|record| &record.facts);
        facts.filter(|fact| matches!(fact, Fact::TimerEnded { .. })).count()
    };
    assert_eq!(fired(&world), 0);

    resume(&mut world, &ALL);
    world.pass(Duration::ZERO);
    assert_eq!(fired(&world), 3);
    let woken = fresh(&world.delivery("thinker"));
    let expected = ["timer-fired soon", "timer-fired mid", "timer-fired late"];
    assert_eq!(woken[woken.len() - 3..], expected);
}

/// Issue 18, 4.2: wall time stands still while all work that could continue is paused.
#[test]
fn no_wall_time_counts_during_a_pause() {
    let limits = TreeLimits { wall_time: HOUR, ..TreeLimits::default() };
    let mut world = World::with_limits(contracts(), limits);
    let (thread, call) = world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    world.play("thinker", &[look("q")]);
    let worked = |world: &World| world.core.state().tree(&thread).unwrap().worked(world.now);
    let before = worked(&world);
    world.pass(24 * HOUR);
    world.restart();
    world.pass(24 * HOUR);
    assert_eq!(worked(&world), before);

    resume(&mut world, &of_listener("finder"));
    world.pass(5 * MINUTE);
    assert!(worked(&world) >= 5 * MINUTE, "it runs again");
    world.play("finder", &[word("found", "f")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

/// Rule 5.24: when the wall time of a tree is used up, the calls of the tree end. A pause moves
/// this moment by the duration of the pause.
#[test]
fn the_wall_time_of_a_tree_ends_its_calls_after_a_pause() {
    let limits = TreeLimits { wall_time: HOUR, ..TreeLimits::default() };
    let mut contracts = contracts();
    for contract in &mut contracts {
        contract.timeout = 100 * HOUR;
    }
    let mut world = World::with_limits(contracts, limits);
    let (_, call) = world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    world.play("thinker", &[look("q")]);
    world.pass(24 * HOUR);
    assert_eq!(world.result(call), "none");

    resume(&mut world, &of_listener("finder"));
    world.pass(HOUR / 2);
    assert_eq!(world.result(call), "none");
    world.pass(HOUR);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

/// Issue 18, 4.2: while a pause keeps back a call in a spawned thread, the time of the thread
/// stands still. The time runs again after the resume.
#[test]
fn the_time_of_a_thread_stands_still_during_a_pause() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    world.play("thinker", &[spawn("timeout=\"PT5M\""), core("wait", "", "")]);
    world.play("thinker", &[look("q")]);
    world.pass(HOUR);
    world.restart();
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());

    resume(&mut world, &of_listener("finder"));
    assert_eq!(world.handed(), ["finder"], "there is time left");
    world.pass(6 * MINUTE);
    let woken = fresh(&world.delivery_for("thinker"));
    assert!(woken.iter().any(|text| text.contains("thread-result")), "{woken:?}");
}

/// A pause keeps back one call in a thread. As soon as the call has ended, the time of the thread
/// runs again.
#[test]
fn the_time_of_a_thread_runs_when_nothing_of_it_is_kept_back() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("timeout=\"PT2M\""), core("wait", "", "")]);
    pause(&mut world, &of_listener("boss"));
    world.play("thinker", &[word("ask", "which"), look("q")]);
    world.pass(5 * MINUTE);
    assert_eq!(world.handed(), ["finder"], "still in its thread");

    let calls = world.core.state().trees.values().flat_map(|tree| tree.calls.values());
    let question = calls.filter(|call| call.held.is_some()).map(|call| call.id).next().unwrap();
    world.answer_question(question, "boss", &word("report", "left")).unwrap();
    world.pass(3 * MINUTE);
    assert_eq!(world.result(call), "none", "the spawner learns of it");
    let woken = fresh(&world.delivery_for("thinker"));
    assert!(woken.iter().any(|text| text.contains("thread-result")), "{woken:?}");
}

/// A workflow measures the time of its run itself. Its deliveries state how much of this time does
/// not count, because of a pause or a jump of the clock.
#[test]
fn a_delivery_states_the_time_that_does_not_count() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    let opened = spawn("bound=\"true\" timeout=\"PT5M\"");
    world.play("thinker", &[opened, core("wait", "", "")]);
    world.play("thinker", &[look("q")]);
    world.pass(HOUR);
    world.restart();
    world.now = world.now.plus(3 * HOUR);
    let step = Standstill { stood: Duration::ZERO, stepped: 3 * HOUR };
    world.step(Event::Standstill(step));
    world.pass(HOUR);
    resume(&mut world, &of_listener("finder"));

    world.play("finder", &[word("found", "q")]);
    world.pass(MINUTE);
    world.play("thinker", &[word("ballot", "v")]);
    let woken = world.delivery_for("thinker");
    assert!(fresh(&woken).iter().any(|text| text.contains("thread-result")), "{woken:?}");
    let result = woken.messages.last().unwrap().time;
    let uncounted = uncounted_at(&woken.uncounted, result);
    assert!(uncounted >= 5 * HOUR && uncounted < 5 * HOUR + MINUTE, "{uncounted:?}");
    assert_eq!(uncounted_at(&woken.uncounted, woken.messages[0].time), Duration::ZERO);
}

/// A result comes while a pause keeps back other work of a run. The delivery of the result states
/// how much of the pause has passed before the result. This time does not count.
#[test]
fn a_delivery_during_a_pause_states_the_part_that_has_passed() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    let opened = spawn("bound=\"true\"");
    let wait = core("wait", "for=\"any\"", "");
    world.play("thinker", &[opened.clone(), opened, wait]);
    world.play("thinker", &[look("q")]);
    world.pass(5 * MINUTE);
    world.play("thinker", &[word("ballot", "v")]);

    let woken = world.delivery_for("thinker");
    assert!(fresh(&woken).iter().any(|text| text.contains("thread-result")), "{woken:?}");
    let result = woken.messages.last().unwrap().time;
    let uncounted = uncounted_at(&woken.uncounted, result);
    assert!(uncounted >= 5 * MINUTE && uncounted < 6 * MINUTE, "{uncounted:?}");
}

/// Issue 18, 4.2: during a pause, submissions are accepted and wait.
#[test]
fn submissions_are_accepted_and_wait() {
    let mut world = world();
    pause(&mut world, &ALL);
    let calls: Vec<CallId> = (0..3).map(|n| world.open("desk", &look(&n.to_string())).1).collect();
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());

    resume(&mut world, &ALL);
    for n in 0..3 {
        world.play("finder", &[word("found", &n.to_string())]);
    }
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(world.result(*call), format!("completed: found({n})"));
    }
}

/// Issue 18, 4.2: during a pause, approvals may be decided and do not time out. A call that an
/// approval releases waits for the resume.
#[test]
fn approvals_may_be_decided_and_do_not_time_out() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    world.delivery("shell");
    pause(&mut world, &of_listener("shell"));
    world.pass(HOUR);
    assert_eq!(world.result(call), "none", "the approval has not expired");

    let hash = organism::ids::Digest::of(word("run", "rm").as_bytes()).to_string();
    world.decide(call, Decision::Approve { hash, preview: None }).unwrap();
    world.restart();
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());

    resume(&mut world, &of_listener("shell"));
    world.play("shell", &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
}

#[test]
fn an_approval_that_nobody_decides_expires_after_its_whole_time() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    world.pass(4 * MINUTE);
    pause(&mut world, &ALL);
    world.pass(HOUR);
    resume(&mut world, &ALL);
    world.pass(5 * MINUTE);
    assert_eq!(world.result(call), "none", "a minute is left");
    world.pass(2 * MINUTE);
    assert_eq!(world.result(call), "failed: system-error denied");
}

/// A pause delays the request for a preview, as it delays a delivery. After the resume, the request
/// has its whole time-out.
#[test]
fn no_preview_is_requested_during_a_pause() {
    let mut world = world();
    pause(&mut world, &of_listener("shell"));
    let (_, call) = world.open("desk", &word("run", "rm"));
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());
    assert!(world.core.state().call(call).unwrap().preview.is_none());

    resume(&mut world, &of_listener("shell"));
    let request = world.delivery("shell");
    assert_eq!(request.preview, DeliveryPreview::Requested);
    world.pass(4 * MINUTE);
    assert!(world.core.state().call(call).unwrap().preview.is_none(), "a minute is left");
}

/// During a pause, a run of a schedule begins and waits, as a submission does. At the later times
/// of the schedule, no further run begins.
#[test]
fn the_run_of_a_schedule_waits_for_the_resume() {
    let mut world = world();
    world.restart_scheduled(Some(vec![Schedule {
        name: ScheduleName(name("nightly")),
        times: ScheduleTimes::Every(HOUR),
        client: name("desk"),
        payload: look("nightly"),
        missed: MissedPolicy::Once,
        concurrency: 1,
    }]));
    pause(&mut world, &ALL);
    world.pass(5 * HOUR);
    assert!(world.deliveries.is_empty());
    assert_eq!(world.core.state().calls.len(), 1, "one run has begun");

    resume(&mut world, &ALL);
    world.play("finder", &[word("found", "f")]);
    assert!(world.deliveries.is_empty());
}

/// Issue 18, 4.1: a call that two pauses cover waits until both are resumed.
#[test]
fn a_call_that_two_pauses_cover_waits_for_both() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("plan", "p"));
    pause(&mut world, &of_listener("finder"));
    pause(&mut world, &PauseTarget::Thread(thread.clone()));
    world.play("thinker", &[look("q")]);
    resume(&mut world, &of_listener("finder"));
    world.pass(HOUR);
    assert!(world.deliveries.is_empty(), "its thread is paused");

    world.restart();
    resume(&mut world, &PauseTarget::Thread(thread));
    world.play("finder", &[word("found", "f")]);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_pause_of_what_is_paused_changes_nothing_and_a_resume_of_what_is_not_neither() {
    let mut world = world();
    pause(&mut world, &ALL);
    let records = world.records.len();
    let unchanged = PauseRuling::Unchanged { in_flight: 0 };
    assert_eq!(world.pause(PauseVerb::Pause, &ALL), unchanged);
    assert_eq!(world.pause(PauseVerb::PauseAndCancel, &ALL), unchanged);
    assert_eq!(world.pause(PauseVerb::Resume, &of_listener("finder")), unchanged);
    assert_eq!(world.records.len(), records);
}

#[test]
fn nothing_unknown_is_paused() {
    let mut world = world();
    let records = world.records.len();
    let thread = ThreadId::parse("sess-unknown00").unwrap();
    let organism = ThreadId::organism();
    let unknown = [
        of_listener("finde"),
        of_listener("desk"),
        PauseTarget::Thread(thread),
        PauseTarget::Thread(organism),
    ];
    for target in unknown {
        for verb in [PauseVerb::Pause, PauseVerb::PauseAndCancel, PauseVerb::Resume] {
            assert_eq!(world.pause(verb, &target), PauseRuling::UnknownTarget, "{target}");
        }
    }
    assert_eq!(world.records.len(), records);
}

/// A pause of a listener stays in force while the config lacks the listener, and covers the
/// listener again when the config declares it again.
#[test]
fn a_pause_outlives_its_listener_and_can_be_ended_without_it() {
    let mut world = world();
    pause(&mut world, &of_listener("finder"));
    let without = |name_of: &str| {
        let kept = contracts().into_iter().filter(|contract| contract.name != name(name_of));
        let mut kept: Vec<_> = kept.collect();
        for contract in &mut kept {
            contract.peers.retain(|peer| *peer != name(name_of));
        }
        kept
    };
    world.restart_with(without("finder"));
    world.restart_with(contracts());
    world.open("desk", &look("q"));
    assert!(world.deliveries.is_empty(), "it is still paused");

    world.restart_with(without("finder"));
    resume(&mut world, &of_listener("finder"));
    assert!(world.core.state().pauses.is_empty());
}

/// If the tree of a paused thread has left memory, the pause still holds back later requests of the
/// thread.
#[test]
fn a_thread_at_rest_is_paused() {
    let mut world = world();
    let (thread, _) = world.open("desk", &look("q"));
    world.play("finder", &[word("found", "f")]);
    pause(&mut world, &PauseTarget::Thread(thread.clone()));
    let call = world.say("desk", &thread, &look("again"));
    assert!(world.deliveries.is_empty());

    resume(&mut world, &PauseTarget::Thread(thread));
    world.play("finder", &[word("found", "g")]);
    assert_eq!(world.result(call), "completed: found(g)");
}

#[test]
fn only_so_many_threads_are_paused_and_all_can_always_be() {
    let world = world();
    let request = world.gate.check(&name("desk"), look("q").as_bytes());
    let answer = world.gate.check(&name("finder"), word("found", "f").as_bytes());
    let mut plain = PlainCore::of(&world);
    for n in 0..limits::PAUSES_MAX {
        let thread = plain.submit(&world, "desk", &request).unwrap();
        plain.answer(&world, vec![answer.clone()]);
        let ruling = plain.pause(&world, PauseTarget::Thread(thread));
        assert!(matches!(ruling, PauseRuling::Done { .. }), "{n}: {ruling:?}");
    }

    let thread = plain.submit(&world, "desk", &request).unwrap();
    let PauseRuling::Refused(refusal) = plain.pause(&world, PauseTarget::Thread(thread)) else {
        panic!("one more")
    };
    assert_eq!(refusal.rule, RefusalRule::Busy);
    for target in [of_listener("finder"), ALL] {
        let ruling = plain.pause(&world, target);
        assert!(matches!(ruling, PauseRuling::Done { .. }), "{ruling:?}");
    }
}

fn signed(key: &SigningKey, world: &World, target: &PauseTarget, nonce: u128) -> DecisionOrigin {
    let text = target.to_string();
    let note = "as agreed";
    let statement = DecisionStatement::pause(PauseVerb::Pause, &text, note);
    let place = (Uuid::from_u128(7), target.home());
    let moment = (world.now, Uuid::from_u128(nonce));
    let signature = Some(Box::new(DecisionSignature::new(key, place, moment, &statement)));
    DecisionOrigin { note: note.to_owned(), signature, ..DecisionOrigin::default() }
}

/// If the config names operators, a pause needs the signature of an operator. A signature for
/// another target or another note is refused.
#[test]
fn a_pause_is_recorded_by_the_operator_whom_its_signature_proves() {
    let mut world = world();
    let ana = SigningKey::from_bytes(&[1; 32]);
    let keys = [(name("ana"), OperatorPublicKey::of(&ana))];
    world.takes_decisions_of(OperatorKeys::new(keys));
    world.open("desk", &look("q"));

    let other = signed(&ana, &world, &of_listener("till"), 1);
    let mut noted = signed(&ana, &world, &ALL, 2);
    noted.note = "another note".to_owned();
    for origin in [None, Some(other), Some(noted)] {
        let PauseRuling::Refused(refusal) = world.pause_as(PauseVerb::Pause, &ALL, origin) else {
            panic!("not refused")
        };
        assert_eq!(refusal.rule, RefusalRule::NotSigned, "{refusal}");
        assert!(world.core.state().pauses.is_empty());
    }
    assert_eq!(world.refusals(), vec!["operator not-signed"; 3]);
    let origin = signed(&ana, &world, &ALL, 3);
    let stronger = world.pause_as(PauseVerb::PauseAndCancel, &ALL, Some(origin.clone()));
    assert!(matches!(stronger, PauseRuling::Refused(_)), "it was signed for less: {stronger:?}");

    let ruling = world.pause_as(PauseVerb::Pause, &ALL, Some(origin));
    assert_eq!(ruling, PauseRuling::Done { in_flight: 1 });
    let pause = world.core.state().pauses.iter().next().unwrap();
    assert_eq!((pause.by.as_str(), pause.note.as_str()), ("ana", "as agreed"));
    let record = world.records.last().unwrap();
    let Input::Pause(action) = &record.input else { panic!("{:?}", record.input) };
    assert_eq!(action.by, name("ana"));
    let signature = action.origin.as_ref().unwrap().signature.as_deref().unwrap();
    assert!(signature.holds_for(&record.input, "as agreed"));
}

/// Issue 18, 4.3: after the kill switch no work is in flight. The calls in flight end as cancelled,
/// so that no listener gets one of them twice; all other calls wait for the resume.
#[test]
pub(super) fn after_the_kill_switch_nothing_is_in_flight_and_nothing_is_handed_over_twice() {
    let mut world = world();
    let (_, planned) = world.open("desk", &word("plan", "p"));
    world.play("thinker", &[word("count", "5"), look("q")]);
    let (_, alone) = world.open("desk", &word("count", "6"));
    let deliveries: Vec<_> = world.deliveries.drain(..).collect();
    assert_eq!(deliveries.len(), 3);

    let ruling = world.pause(PauseVerb::PauseAndCancel, &ALL);
    assert_eq!(ruling, PauseRuling::Done { in_flight: 3 });
    world.pass(Duration::ZERO);
    let withdrawn: std::collections::HashSet<_> = world.withdrawn.iter().copied().collect();
    assert_eq!(withdrawn, deliveries.iter().map(|delivery| delivery.call).collect());
    assert_eq!(world.result(alone), "cancelled: system-error cancelled");

    for delivery in &deliveries {
        let reply = if delivery.listener == name("till") { "counted" } else { "found" };
        world.answer(delivery, &[word(reply, "late")]);
    }
    assert_eq!(world.core.handed_over(), 0);
    assert!(world.refusals().iter().all(|rule| !rule.contains("stray")), "late, and refused");
    world.restart();
    world.pass(HOUR);
    assert!(world.deliveries.is_empty());

    resume(&mut world, &ALL);
    let woken = world.delivery("thinker");
    assert!(fresh(&woken).iter().all(|text| text.contains("cancelled")), "{:?}", fresh(&woken));
    world.answer(&woken, &[word("answer", "a")]);
    assert_eq!(world.result(planned), "completed: answer(a)");
    assert!(world.deliveries.is_empty(), "no call is handed over a second time");
}

/// Issue 18, 4.3: if a pump dies between the kill switch and the cancellations, the attempts in
/// flight are lost. A listener with one attempt does not get its call again.
#[test]
fn a_crash_in_the_midst_of_a_kill_switch_hands_nothing_over_twice() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("count", "5"));
    world.delivery("till");
    let ruling = world.pause(PauseVerb::PauseAndCancel, &of_listener("till"));
    assert_eq!(ruling, PauseRuling::Done { in_flight: 1 });
    world.restart();
    world.pass(HOUR);
    assert_eq!(world.result(call), "failed: system-error unknown-outcome");

    resume(&mut world, &of_listener("till"));
    assert!(world.deliveries.is_empty());
}

/// Issue 18, 4.3: a delivery may end between the kill switch and the cancellation. If its call is
/// still open then, the call is cancelled all the same.
#[test]
fn an_attempt_that_ends_before_its_cancellation_is_not_repeated() {
    for end in ["fails", "returned", "calls", "refused"] {
        let mut world = world();
        let (_, call) = world.open("desk", &word("plan", "p"));
        let delivery = world.delivery("thinker");
        let origin = DecisionOrigin { note: "too much".to_owned(), ..DecisionOrigin::default() };
        let ruling = world.pause_as(PauseVerb::PauseAndCancel, &ALL, Some(origin));
        assert_eq!(ruling, PauseRuling::Done { in_flight: 1 });
        match end {
            "fails" => {
                world.fail(&delivery, AttemptFailure::Crashed { detail: "killed".to_owned() });
            }
            "returned" => world.not_taken(&delivery),
            "calls" => world.answer(&delivery, &[look("q")]),
            _ => world.answer(&delivery, &[word("found", "not mine")]),
        }
        world.pass(Duration::ZERO);

        assert_eq!(world.result(call), "cancelled: system-error cancelled", "{end}");
        let (_, messages) = &world.results[&call];
        let text: String = messages.iter().map(|message| message.payload.as_str()).collect();
        assert!(text.contains("cancelled by the operator: too much"), "{text}");
        resume(&mut world, &ALL);
        world.pass(HOUR);
        assert_eq!(world.handed(), Vec::<String>::new(), "{end}");
        world.check_replay();
    }
}

/// A pause that is in force does not set the alarms of all limited calls of a tree again whenever a
/// call of the tree closes.
#[test]
fn closed_calls_set_no_alarms_for_the_calls_beside_them() {
    let mut world = world();
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let limited = vec![spawn("timeout=\"PT5M\""); 3];
    world.play("thinker", &[limited, vec![core("wait", "", "")]].concat());
    assert_eq!(world.deliveries.drain(..).count(), 3);
    let alarms = |world: &World| {
        let set = world.alarms.iter();
        set.filter(|(_, alarm)| matches!(alarm, Alarm::ThreadTime { .. })).count()
    };
    assert_eq!(alarms(&world), 3);

    pause(&mut world, &of_listener("till"));
    for _ in 0..10 {
        world.say("desk", &thread, &look("q"));
        world.play("finder", &[word("found", "f")]);
    }
    assert_eq!(alarms(&world), 3);
    world.pass(6 * MINUTE);
    let woken = fresh(&world.delivery_for("thinker"));
    assert_eq!(woken.iter().filter(|text| text.contains("thread-result")).count(), 3, "{woken:?}");
    assert_eq!(alarms(&world), 0);
}

/// Issue 18, 4.3: the kill switch cancels work in flight even if everything is paused already.
#[test]
fn the_kill_switch_also_cancels_after_a_pause() {
    let mut world = world();
    let (_, call) = world.open("desk", &look("q"));
    let delivery = world.delivery("finder");
    pause(&mut world, &ALL);
    let ruling = world.pause(PauseVerb::PauseAndCancel, &of_listener("finder"));
    assert_eq!(ruling, PauseRuling::Done { in_flight: 1 });
    world.pass(Duration::ZERO);
    assert_eq!(world.withdrawn, [delivery.call]);
    assert_eq!(world.result(call), "cancelled: system-error cancelled");
}

/// If an operator uses the kill switch during another operator's pause, the caller learns the
/// reason of the cancellation, not that of the earlier pause.
#[test]
fn a_cancelled_call_names_the_reason_of_the_kill_switch_and_not_of_an_earlier_pause() {
    for earlier in [ALL, of_listener("finder")] {
        let mut world = world();
        let (_, call) = world.open("desk", &look("q"));
        let noted = |note: &str| {
            Some(DecisionOrigin { note: note.to_owned(), ..DecisionOrigin::default() })
        };
        world.pause_as(PauseVerb::Pause, &earlier, noted("maintenance"));
        let target = of_listener("finder");
        world.pause_as(PauseVerb::PauseAndCancel, &target, noted("it deletes too much"));
        world.pass(Duration::ZERO);

        let (_, messages) = &world.results[&call];
        let text: String = messages.iter().map(|message| message.payload.as_str()).collect();
        assert!(text.contains("cancelled by the operator: it deletes too much"), "{text}");
        let pause = world.core.state().pauses.get(&earlier).unwrap();
        assert_eq!(pause.note, "maintenance", "the earlier pause stays in force");
        world.check_replay();
    }
}
