//! Previews: the listener of a held call shows what the call would do, and the approval names this
//! preview.

use std::time::Duration;

use expect_test::expect;
use organism::bus::DeliveryPreview;
use organism::contract::{Approval, Contract};
use organism::envelope::AttemptFailure;
use organism::ids::{CallId, Digest};
use organism::limits;
use organism::pump::core::{Event, Standstill};
use organism::thread::{CallPreview, Decision, Fact};

use super::world::{World, client, core, listener, word};

const TIME: Duration = Duration::from_secs(5);

fn contracts() -> Vec<Contract> {
    let mut shell = listener("shell", &["run"], &["ran"], &[]);
    shell.approval = Approval::Always;
    shell.previews = Some(TIME);
    shell.concurrency = 2;
    shell.attempts = 1;
    vec![client("desk", &["shell"]), shell]
}

fn world() -> World {
    World::new(contracts())
}

fn preview(text: &str) -> String {
    core("preview", "", text)
}

fn hash(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

fn approve(
    world: &mut World,
    call: CallId,
    text: &str,
    preview: Option<&str>,
) -> Result<(), String> {
    let hash = hash(&word("run", text));
    let preview = preview.map(str::to_owned);
    world.decide(call, Decision::Approve { hash, preview })
}

/// The recorded preview of an open call, or the reason why there is none.
fn shown(world: &World, call: CallId) -> Option<String> {
    match world.core.state().call(call).unwrap().preview.as_deref()? {
        CallPreview::Recorded(note) => Some(note.payload.as_str().to_owned()),
        CallPreview::Missing(reason) => Some(format!("missing: {reason}")),
    }
}

#[test]
fn a_preview_is_no_attempt_and_the_approved_delivery_names_it() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    assert_eq!(request.preview, DeliveryPreview::Requested);
    assert!(request.attempt.is_preview());
    assert_eq!(request.messages.len(), 1);
    world.answer(&request, &[preview("-a")]);

    let digest = Digest::of(preview("-a").as_bytes());
    assert_eq!(approve(&mut world, call, "rm", Some(&digest.to_string())), Ok(()));
    let delivery = world.delivery("shell");
    assert_eq!(delivery.preview, DeliveryPreview::Approved(digest));
    assert_eq!(delivery.attempt.n, 1, "the first attempt");
    world.answer(&delivery, &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
    expect![[r#"
        1 call desk>shell run(rm) [handled]
        2 system core>desk approval-requested [recorded]
        3 note shell>shell preview [recorded]
        4 system core>desk approval-granted [recorded]
        5 reply shell>desk ran(done) [recorded]
    "#]]
    .assert_eq(&world.transcript(&thread));
    let hand_overs = world.records.iter().flat_map(|record| &record.facts);
    let hand_overs = hand_overs.filter(|fact| matches!(fact, Fact::HandedOver { .. }));
    assert_eq!(hand_overs.count(), 1);
    world.check_replay();
}

#[test]
fn an_approval_that_does_not_name_the_recorded_preview_is_refused() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    let digest = hash(&preview("-a"));
    let wrong = Err("wrong-hash".to_owned());
    assert_eq!(approve(&mut world, call, "rm", Some(&digest)), wrong, "before it has come");

    world.answer(&request, &[preview("-a")]);
    for named in [None, Some(hash(&preview("-b"))), Some(hash(&word("run", "rm")))] {
        assert_eq!(approve(&mut world, call, "rm", named.as_deref()), wrong, "{named:?}");
    }
    assert_eq!(world.handed(), Vec::<String>::new(), "nothing is handed over");
    assert_eq!(approve(&mut world, call, "rm", Some(&digest[..8])), Ok(()));
    assert_eq!(world.handed(), ["shell"]);
    world.check_replay();
}

/// The reason for a missing preview states the time-out of the request, also after a reload with
/// another time-out.
#[test]
fn a_missing_preview_names_the_time_that_its_request_had() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    world.delivery("shell");
    let mut patient = contracts();
    patient[1].previews = Some(2 * TIME);
    world.reload(patient);
    world.pass(TIME);
    assert_eq!(shown(&world, call).unwrap(), "missing: shell gave none within 5 s");
    world.check_replay();
}

#[test]
fn without_a_preview_in_time_the_bytes_alone_are_decided_on() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.pass(TIME);
    assert_eq!(shown(&world, call).unwrap(), "missing: shell gave none within 5 s");
    assert_eq!(world.withdrawn, [call]);

    world.answer(&request, &[preview("-a")]);
    assert_eq!(shown(&world, call).unwrap(), "missing: shell gave none within 5 s", "too late");
    assert_eq!(world.refusals(), ["shell stale-attempt"]);
    world.answer(&request, &[preview("-a")]);
    assert_eq!(world.refusals(), ["shell stale-attempt", "shell stale-attempt"], "twice");

    assert_eq!(approve(&mut world, call, "rm", None), Ok(()));
    assert_eq!(world.delivery("shell").preview, DeliveryPreview::None);
    assert!(!world.transcript(&thread).contains("preview"), "{}", world.transcript(&thread));
    world.check_replay();
}

#[test]
fn an_approval_before_the_preview_is_about_the_bytes_and_withdraws_it() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    assert_eq!(approve(&mut world, call, "rm", None), Ok(()));
    assert_eq!(world.withdrawn, [call]);
    let delivery = world.delivery("shell");
    assert_eq!(delivery.preview, DeliveryPreview::None);
    world.answer(&request, &[preview("-a")]);
    assert_eq!(world.refusals(), ["shell stale-attempt"]);
    world.answer(&delivery, &[word("ran", "done")]);
    assert_eq!(world.result(call), "completed: ran(done)");
    world.check_replay();
}

#[test]
fn a_listener_that_fails_at_a_preview_has_lost_no_attempt() {
    let failures: [fn(&mut World, &organism::bus::Delivery); 2] = [
        |world, request| {
            world.fail(request, AttemptFailure::Crashed { detail: "exit 1".to_owned() });
        },
        |world, request| world.not_taken(request),
    ];
    for fail in failures {
        let mut world = world();
        let (_, call) = world.open("desk", &word("run", "rm"));
        let request = world.delivery("shell");
        fail(&mut world, &request);
        assert!(shown(&world, call).unwrap().starts_with("missing: "));
        assert_eq!(approve(&mut world, call, "rm", None), Ok(()));
        // The listener has one attempt.
        world.play("shell", &[word("ran", "done")]);
        assert_eq!(world.result(call), "completed: ran(done)");
        world.check_replay();
    }
}

#[test]
fn only_one_payload_of_the_right_name_and_size_is_a_preview() {
    let large = preview(&"x".repeat(limits::PREVIEW_BYTES_MAX));
    let answers: [&[String]; 6] = [
        &[],
        &[word("ran", "done")],
        &[preview("a"), preview("b")],
        &[core("stale-preview", "", "x")],
        &["<nonsense".to_owned()],
        &[large],
    ];
    for answer in answers {
        let mut world = world();
        let (_, call) = world.open("desk", &word("run", "rm"));
        let request = world.delivery("shell");
        world.answer(&request, answer);
        let reason = shown(&world, call).unwrap();
        assert!(reason.starts_with("missing: "), "{reason}");
        assert_eq!(world.refusals().len(), answer.len(), "each payload is refused on record");
        assert_eq!(approve(&mut world, call, "rm", None), Ok(()));
        assert_eq!(world.handed(), ["shell"]);
        world.check_replay();
    }
}

#[test]
fn a_preview_answers_no_attempt_and_spoils_the_whole_answer() {
    let unknown = "shell not-in-vocabulary";
    let spoiled = "shell call-closed";
    let stale = core("stale-preview", "", "x");
    let answers = [
        (vec![preview("-b")], vec![unknown]),
        (vec![word("ran", "done"), preview("-b")], vec![spoiled, unknown]),
        (vec![stale, word("ran", "done")], vec![unknown, spoiled]),
    ];
    for (answer, refusals) in answers {
        let mut world = world();
        let (_, call) = world.open("desk", &word("run", "rm"));
        let request = world.delivery("shell");
        world.answer(&request, &[core("preview", "", "-a")]);
        assert_eq!(approve(&mut world, call, "rm", Some(&hash(&preview("-a")))), Ok(()));
        world.play("shell", &answer);
        assert_eq!(world.refusals(), refusals);
        assert_eq!(world.result(call), "failed: system-error listener-failed");
        assert_eq!(world.handed(), Vec::<String>::new(), "it is not delivered again");
        world.check_replay();
    }
}

#[test]
fn a_listener_refuses_a_call_whose_preview_holds_no_more() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    assert_eq!(approve(&mut world, call, "rm", Some(&hash(&preview("-a")))), Ok(()));
    world.play("shell", &[core("stale-preview", "", "a is gone")]);
    let result = world.result(call);
    assert!(result.starts_with("failed: ") && result.contains("stale-preview"), "{result}");
    world.check_replay();

    // Without an approved preview, nothing can be stale.
    let (_, call) = world.open("desk", &word("run", "ls"));
    world.delivery("shell");
    assert_eq!(approve(&mut world, call, "ls", None), Ok(()));
    world.play("shell", &[core("stale-preview", "", "a is gone")]);
    assert_eq!(world.result(call), "failed: system-error listener-failed");
    assert_eq!(world.handed(), Vec::<String>::new());
    world.check_replay();
}

/// Plays a call whose approved preview is stale at the second attempt. `repeat` ends the first
/// attempt. Returns the caller's result.
fn stale_after(repeat: impl Fn(&mut World, &organism::bus::Delivery)) -> String {
    let mut two_attempts = contracts();
    two_attempts[1].attempts = 2;
    let mut world = World::new(two_attempts);
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    let digest = Digest::of(preview("-a").as_bytes());
    assert_eq!(approve(&mut world, call, "rm", Some(&digest.to_string())), Ok(()));
    let first = world.delivery("shell");
    repeat(&mut world, &first);
    world.pass(Duration::from_secs(10));

    let second = world.delivery("shell");
    assert_eq!(second.preview, DeliveryPreview::Approved(digest), "a retry is compared");
    world.answer(&second, &[core("stale-preview", "", "a is gone")]);
    world.check_replay();
    let (_, messages) = &world.results[&call];
    messages.iter().map(|message| message.payload.as_str()).collect()
}

#[test]
fn a_stale_preview_after_a_failed_attempt_has_an_unknown_outcome() {
    let crash = |world: &mut World, first: &organism::bus::Delivery| {
        world.fail(first, AttemptFailure::Crashed { detail: "exit 1".to_owned() });
    };
    let lose = |world: &mut World, _: &organism::bus::Delivery| world.restart();
    for result in [stale_after(crash), stale_after(lose)] {
        let unknown = "code=\"unknown-outcome\" retry_allowed=\"false\"";
        assert!(result.contains(unknown), "the first attempt may have had effects: {result}");
        assert!(!result.contains("did nothing"), "{result}");
    }

    // An attempt that no process accepted had no effects.
    let result = stale_after(|world, first| world.not_taken(first));
    assert!(result.contains("code=\"stale-preview\" retry_allowed=\"true\""), "{result}");
}

#[test]
fn a_delivery_after_an_answer_names_no_preview_and_is_never_stale() {
    let mut contracts = contracts();
    contracts[1].peers = client("desk", &["files"]).peers;
    contracts.push(listener("files", &["look"], &["found"], &[]));
    let mut world = World::new(contracts);
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    let digest = Digest::of(preview("-a").as_bytes());
    assert_eq!(approve(&mut world, call, "rm", Some(&digest.to_string())), Ok(()));
    let first = world.delivery("shell");
    assert_eq!(first.preview, DeliveryPreview::Approved(digest));
    world.answer(&first, &[word("look", "x")]);
    world.play("files", &[word("found", "y")]);

    let second = world.delivery("shell");
    assert_eq!(second.preview, DeliveryPreview::None);
    world.answer(&second, &[core("stale-preview", "", "a is gone")]);
    let result = world.result(call);
    assert!(result.contains("unknown-outcome"), "{result}");
    world.check_replay();
}

#[test]
pub fn a_preview_that_was_out_when_the_pump_died_is_requested_again() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let first = world.delivery("shell");
    world.restart();
    let second = world.delivery("shell");
    assert_eq!(second.preview, DeliveryPreview::Requested);
    assert_ne!(second.attempt, first.attempt);
    world.answer(&first, &[preview("-old")]);
    assert_eq!(world.refusals(), ["shell stale-attempt"]);
    world.answer(&second, &[preview("-new")]);

    // One that came is not requested again, and the approval still names it.
    world.restart();
    assert_eq!(world.handed(), Vec::<String>::new());
    assert_eq!(approve(&mut world, call, "rm", None), Err("wrong-hash".to_owned()));
    let digest = hash(&preview("-new"));
    assert_eq!(approve(&mut world, call, "rm", Some(&digest)), Ok(()));
    let delivery = world.delivery("shell");
    assert_eq!(delivery.preview, DeliveryPreview::Approved(Digest::parse(&digest).unwrap()));
    world.check_replay();
}

#[test]
fn a_pump_that_stops_leaves_the_request_for_a_preview_to_the_next_start() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    world.delivery("shell");
    world.step(Event::Shutdown { reason: "update".to_owned() });
    world.pass(2 * TIME);
    assert_eq!(shown(&world, call), None, "nothing is recorded as missing");

    world.restart();
    let request = world.delivery("shell");
    assert_eq!(request.preview, DeliveryPreview::Requested);
    world.answer(&request, &[preview("-a")]);
    assert_eq!(shown(&world, call), Some(preview("-a")));
}

#[test]
fn a_config_that_declares_previews_asks_for_those_of_calls_that_wait_already() {
    let mut world = World::new(without_previews());
    let (_, call) = world.open("desk", &word("run", "rm"));
    assert_eq!(world.handed(), Vec::<String>::new(), "a listener without previews gets nothing");
    world.restart_with(contracts());
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    assert_eq!(shown(&world, call).unwrap(), preview("-a"));
}

fn without_previews() -> Vec<Contract> {
    let mut contracts = contracts();
    contracts[1].previews = None;
    contracts
}

#[test]
fn a_call_whose_approved_preview_nobody_compares_is_not_delivered() {
    for approved_before in [true, false] {
        let mut world = world();
        let calls = ["a", "b", "c"].map(|text| world.open("desk", &word("run", text)).1);
        let call = calls[0];
        let request = world.delivery("shell");
        world.answer(&request, &[preview("-a")]);
        let digest = hash(&preview("-a"));
        // The other calls' previews occupy the listener, so an approved call is not delivered yet.
        if approved_before {
            assert_eq!(approve(&mut world, call, "a", Some(&digest)), Ok(()));
        }
        world.restart_with(without_previews());
        world.pass(Duration::ZERO);
        if !approved_before {
            assert_eq!(approve(&mut world, call, "a", Some(&digest)), Ok(()));
        }

        assert_eq!(world.handed(), Vec::<String>::new());
        let result = world.result(call);
        assert!(result.contains("stale-preview"), "{approved_before}: {result}");
        let (_, messages) = &world.results[&call];
        let text = messages.iter().map(|message| message.payload.as_str()).collect::<String>();
        assert!(text.contains("it was not delivered"), "{text}");

        // The other calls showed no preview, so theirs are approvals of the bytes.
        assert_eq!(approve(&mut world, calls[1], "b", None), Ok(()));
        assert_eq!(world.delivery("shell").preview, DeliveryPreview::None);
        world.check_replay();
    }
}

#[test]
fn a_failed_attempt_is_not_repeated_without_the_approved_preview() {
    let mut two_attempts = contracts();
    two_attempts[1].attempts = 2;
    let mut world = World::new(two_attempts);
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    assert_eq!(approve(&mut world, call, "rm", Some(&hash(&preview("-a")))), Ok(()));
    assert_eq!(world.handed(), ["shell"]);

    let mut dropped = without_previews();
    dropped[1].attempts = 2;
    world.restart_with(dropped);
    world.pass(Duration::ZERO);
    assert_eq!(world.handed(), Vec::<String>::new());
    let result = world.result(call);
    assert!(result.contains("unknown-outcome"), "its first attempt may have had effects: {result}");
    world.check_replay();
}

#[test]
fn a_standstill_extends_the_time_for_a_preview_and_a_heartbeat_does_not() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let (_, other) = world.open("desk", &word("run", "ls"));
    let request = world.delivery("shell");
    let beating = world.delivery("shell");
    let stood = Duration::from_secs(3600);
    world.now = world.now.plus(stood);
    world.step(Event::Standstill(Standstill { stood, stepped: Duration::ZERO }));
    world.pass(Duration::ZERO);
    assert_eq!(shown(&world, call), None, "its time has not passed");
    world.answer(&request, &[preview("-a")]);
    assert_eq!(shown(&world, call).unwrap(), preview("-a"));

    world.step(Event::Heartbeat { call: other, attempt: beating.attempt });
    world.pass(TIME + limits::STANDSTILL_MIN);
    assert_eq!(shown(&world, other).unwrap(), "missing: shell gave none within 5 s");
    world.check_replay();
}

#[test]
fn a_redacted_preview_is_not_approved() {
    let mut world = world();
    let (_, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.answer(&request, &[preview("-a")]);
    let digest = hash(&preview("-a"));
    for payload in world.records.iter_mut().flat_map(|record| record.payloads_mut()) {
        if payload.as_str() == preview("-a") {
            let blank = "\0".repeat(payload.len());
            assert!(payload.restore(&blank));
        }
    }
    world.blind_restart();

    let wrong = Err("wrong-hash".to_owned());
    assert_eq!(approve(&mut world, call, "rm", Some(&digest)), wrong);
    assert_eq!(approve(&mut world, call, "rm", None), wrong);
    assert_eq!(world.handed(), Vec::<String>::new());
    assert_eq!(world.refuse(call, "its preview is gone"), Ok(()));
    std::mem::forget(world);
}

#[test]
fn previews_share_the_capacity_of_their_listener_and_wait_for_it() {
    let mut world = world();
    let calls = ["a", "b", "c"].map(|text| world.open("desk", &word("run", text)).1);
    let first = world.delivery("shell");
    let second = world.delivery("shell");
    assert_eq!((first.call, second.call), (calls[0], calls[1]));
    assert_eq!(world.handed(), Vec::<String>::new(), "two at once");
    world.answer(&first, &[preview("-a")]);
    let third = world.delivery("shell");
    assert_eq!((third.call, third.preview), (calls[2], DeliveryPreview::Requested));

    // An approved call waits for a free place, too.
    assert_eq!(approve(&mut world, calls[0], "a", Some(&hash(&preview("-a")))), Ok(()));
    assert_eq!(world.handed(), Vec::<String>::new());
    world.answer(&third, &[preview("-c")]);
    assert_eq!(world.delivery("shell").call, calls[0]);
    world.check_replay();
}

#[test]
fn the_time_for_a_preview_passes_also_at_a_busy_listener() {
    let mut world = world();
    let calls = ["a", "b", "c"].map(|text| world.open("desk", &word("run", text)).1);
    let first = world.delivery("shell");
    world.pass(TIME);
    assert_eq!(shown(&world, calls[2]).unwrap(), "missing: shell was busy for 5 s");
    world.answer(&first, &[]);
    world.delivery("shell");
    assert_eq!(world.handed(), Vec::<String>::new(), "nothing is left to ask for");
    world.check_replay();
}

#[test]
fn a_call_that_ends_withdraws_its_preview() {
    let mut world = world();
    let (thread, call) = world.open("desk", &word("run", "rm"));
    let request = world.delivery("shell");
    world.cancel(&thread);
    assert_eq!(world.withdrawn, [call]);
    world.answer(&request, &[preview("-a")]);
    assert_eq!(world.refusals(), ["shell stale-attempt"]);

    let (_, call) = world.open("desk", &word("run", "ls"));
    let request = world.delivery("shell");
    assert_eq!(world.refuse(call, "no"), Ok(()));
    assert_eq!(world.withdrawn.last(), Some(&call));
    let gone = AttemptFailure::Crashed { detail: "exit 1".to_owned() };
    world.fail(&request, gone);
    world.check_replay();
}
