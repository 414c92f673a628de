//! Schedules: planned times, runs, missed times, and times at which no run begins.

use std::time::Duration;

use organism::clock::Time;
use organism::contract::{Contract, MissedPolicy, Role, Schedule, ScheduleTimes};
use organism::ids::{ScheduleName, ThreadId};
use organism::pump::core::{Alarm, Event, Receipt, RetryRuling, Schedules, Standstill, Target};
use organism::thread::{Fact, Input};

use super::world::{RetriedCall, World, agent, client, core, listener, name, names, word};

const MINUTE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(600);

/// A listener that may take longer than the interval of a schedule, and whose call survives some
/// restarts.
fn finder() -> Contract {
    let mut finder = listener("finder", &["look"], &["found"], &[]);
    finder.timeout = 100 * INTERVAL;
    finder.attempts = 10;
    finder
}

fn world() -> World {
    World::new(vec![
        client("desk", &["finder", "thinker"]),
        client("other", &["finder"]),
        finder(),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
    ])
}

fn schedule(of: &str) -> Schedule {
    Schedule {
        name: ScheduleName(name(of)),
        times: ScheduleTimes::Every(INTERVAL),
        client: name("desk"),
        payload: word("look", of),
        missed: MissedPolicy::Once,
        concurrency: 1,
    }
}

/// A world that has just planned this schedule.
fn running(schedule: Schedule) -> World {
    let mut world = world();
    world.restart_scheduled(Some(vec![schedule]));
    world
}

/// Every event of schedules as `schedule event`, with times in minutes since `start`.
fn events(world: &World, start: Time) -> Vec<String> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let texts = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. } if &*message.name.local == "schedule-event" => {
            assert_eq!(message.thread.as_str(), ThreadId::ORGANISM);
            Some(message.payload.as_str())
        }
        _ => None,
    });
    let shown = texts.map(|text| {
        let get = |name: &str| {
            let (_, rest) = text.split_once(&format!(" {name}=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let minutes = |name: &str| {
            let time = Time::parse(&get(name)?)?;
            Some(format!(" {name} {}", time.since(start).as_secs() / 60))
        };
        let plain = |name: &str| Some(format!(" {name} {}", get(name)?));
        [
            get("schedule"),
            get("event").map(|event| format!(" {event}")),
            minutes("due"),
            minutes("until"),
            plain("count"),
            plain("policy"),
            minutes("next"),
        ]
        .into_iter()
        .flatten()
        .collect()
    });
    shown.collect()
}

/// Returns the same events as [`events`], without the first event, which plans the schedule.
fn later(world: &World, start: Time) -> Vec<String> {
    events(world, start).split_off(1)
}

/// Lets `time` pass, and then 100 ms more. In these 100 ms, the pump sends the request of each run
/// that is due.
fn pass(world: &mut World, time: Duration) {
    world.pass(time);
    world.pass(Duration::from_millis(100));
}

fn found(world: &mut World) {
    world.play("finder", &[word("found", "f")]);
}

#[test]
fn a_schedule_sends_its_payload_at_each_of_its_times_in_a_thread_of_its_own() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    assert_eq!(events(&world, start), ["nightly planned next 10"]);
    pass(&mut world, INTERVAL - MINUTE);
    assert!(world.deliveries.is_empty(), "it is not time yet");

    pass(&mut world, MINUTE);
    let first = world.play("finder", &[word("found", "f")]);
    assert_eq!(first.messages[0].from.as_str(), "desk");
    assert_eq!(first.messages[0].payload.as_str(), word("look", "nightly"));
    pass(&mut world, INTERVAL);
    let second = world.play("finder", &[word("found", "f")]);
    assert_ne!(first.thread, second.thread);
    assert!(second.thread.is_root());
    assert_eq!(
        later(&world, start),
        ["nightly started due 10 next 20", "nightly started due 20 next 30"]
    );
}

#[test]
fn a_planned_time_survives_a_restart_and_is_planned_once() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    for _ in 0..3 {
        pass(&mut world, 3 * MINUTE);
        world.restart();
    }
    pass(&mut world, MINUTE);
    found(&mut world);
    assert_eq!(later(&world, start), ["nightly started due 10 next 20"]);
}

#[test]
fn a_time_without_a_pump_is_missed_on_record_and_made_up_once_or_not_at_all() {
    for (policy, runs) in [(MissedPolicy::Once, 1), (MissedPolicy::Skip, 0)] {
        let mut world = running(Schedule { missed: policy, ..schedule("nightly") });
        let start = world.now;
        world.now = world.now.plus(35 * MINUTE);
        world.restart();
        pass(&mut world, Duration::ZERO);
        assert_eq!(world.deliveries.len(), runs, "{policy:?}");
        let word = policy.as_str();
        let missed = format!("nightly missed due 10 until 30 count 3 policy {word} next 40");
        let made_up = "nightly started due 30 next 40".to_owned();
        let expected: Vec<_> =
            std::iter::once(missed).chain((runs == 1).then_some(made_up)).collect();
        assert_eq!(later(&world, start), expected);

        world.deliveries.clear();
        world.restart();
        assert_eq!(later(&world, start), expected, "a further start makes up nothing more");
    }
}

#[test]
fn one_missed_time_has_no_end_and_the_next_times_keep_their_distance() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    world.now = world.now.plus(11 * MINUTE);
    world.restart();
    pass(&mut world, Duration::ZERO);
    found(&mut world);
    pass(&mut world, 9 * MINUTE);
    found(&mut world);
    assert_eq!(
        later(&world, start),
        [
            "nightly missed due 10 count 1 policy once next 20",
            "nightly started due 10 next 20",
            "nightly started due 20 next 30",
        ]
    );
}

#[test]
fn a_time_over_which_the_machine_slept_or_the_clock_was_set_is_missed() {
    for policy in [MissedPolicy::Once, MissedPolicy::Skip] {
        let mut world = running(Schedule { missed: policy, ..schedule("nightly") });
        let start = world.now;
        world.now = world.now.plus(25 * MINUTE);
        world.step(Event::Standstill(Standstill { stood: 25 * MINUTE, stepped: Duration::ZERO }));
        pass(&mut world, Duration::ZERO);
        assert_eq!(world.deliveries.len(), usize::from(policy == MissedPolicy::Once));
        let word = policy.as_str();
        let missed = format!("nightly missed due 10 until 20 count 2 policy {word} next 30");
        assert_eq!(later(&world, start)[0], missed);
    }
}

#[test]
fn a_pump_that_is_a_moment_late_has_missed_nothing() {
    let mut world = running(Schedule { missed: MissedPolicy::Skip, ..schedule("nightly") });
    let start = world.now;
    world.now = world.now.plus(INTERVAL + MINUTE / 2);
    pass(&mut world, Duration::ZERO);
    found(&mut world);
    assert_eq!(later(&world, start), ["nightly started due 10 next 20"]);
}

#[test]
fn a_late_pump_runs_the_latest_of_several_times_and_has_missed_the_others() {
    let often = ScheduleTimes::Every(Duration::from_secs(1));
    let mut world =
        running(Schedule { times: often, missed: MissedPolicy::Skip, ..schedule("nightly") });
    let start = world.now;
    world.now = world.now.plus(Duration::from_millis(5_500));
    pass(&mut world, Duration::ZERO);
    assert_eq!(world.deliveries.len(), 1);
    let events = later(&world, start);
    assert!(events[0].contains("missed") && events[0].contains("count 4"), "{events:?}");
    assert!(events[1].contains("started"), "{events:?}");
    assert_eq!(events.len(), 2);
}

#[test]
fn a_time_that_comes_while_a_run_is_open_is_passed_over_on_record() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    pass(&mut world, INTERVAL);
    let open = world.delivery("finder");
    pass(&mut world, INTERVAL);
    assert!(world.deliveries.is_empty());
    world.answer(&open, &[word("found", "f")]);
    pass(&mut world, INTERVAL);
    found(&mut world);
    assert_eq!(
        later(&world, start),
        [
            "nightly started due 10 next 20",
            "nightly passed-over due 20 next 30",
            "nightly started due 30 next 40",
        ]
    );
}

#[test]
fn a_schedule_has_as_many_runs_at_once_as_it_allows() {
    let mut world = running(Schedule { concurrency: 2, ..schedule("nightly") });
    let start = world.now;
    pass(&mut world, 3 * INTERVAL);
    assert_eq!(world.deliveries.len(), 2);
    found(&mut world);
    pass(&mut world, INTERVAL);
    assert_eq!(world.deliveries.len(), 2);
    assert_eq!(
        later(&world, start)[1..],
        [
            "nightly started due 20 next 30",
            "nightly passed-over due 30 next 40",
            "nightly started due 40 next 50",
        ]
    );
}

/// A run of a schedule ends although a question remains that no open call waits for. Such a
/// question may list the calls that the undo of a failed run did not reach.
#[test]
fn a_question_that_no_open_call_waits_for_keeps_no_run_open() {
    let mut boss = Contract::new(name("boss"), Role::Human);
    boss.accepts = names(&["ask"]);
    let mut thinker = agent("thinker", &["plan"], &["answer"], &["boss"]);
    thinker.timeout = 100 * INTERVAL;
    let mut world = World::new(vec![client("desk", &["thinker"]), thinker, boss]);
    let nightly = Schedule { payload: word("plan", "p"), ..schedule("nightly") };
    world.restart_scheduled(Some(vec![nightly]));
    let start = world.now;

    pass(&mut world, INTERVAL);
    let question = format!("<initial-payload>{}</initial-payload>", word("ask", "q"));
    world.play("thinker", &[core("spawn-thread", "", &question)]);
    pass(&mut world, INTERVAL);
    let first = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(world.core.state().tree(&first.thread).unwrap().held, 1, "it waits for the boss");
    pass(&mut world, INTERVAL);
    world.play("thinker", &[word("answer", "a")]);
    assert_eq!(
        later(&world, start),
        [
            "nightly started due 10 next 20",
            "nightly passed-over due 20 next 30",
            "nightly started due 30 next 40",
        ]
    );
    world.restart();
}

#[test]
fn a_run_that_is_missed_while_an_earlier_one_is_open_is_passed_over() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    pass(&mut world, INTERVAL);
    world.delivery("finder");
    world.now = world.now.plus(INTERVAL);
    world.restart();
    pass(&mut world, Duration::ZERO);
    assert_eq!(
        later(&world, start)[1..],
        ["nightly missed due 20 count 1 policy once next 30", "nightly passed-over due 20 next 30",]
    );
}

#[test]
fn a_run_that_failed_is_over() {
    let mut world = running(Schedule { payload: word("plan", "p"), ..schedule("nightly") });
    pass(&mut world, INTERVAL);
    let thread = world.deliveries[0].thread.clone();
    world.cancel(&thread);
    pass(&mut world, INTERVAL);
    assert_eq!(world.handed(), ["thinker", "thinker"]);
}

/// Neither a further request of the client nor a retry opens a run again that is over, before or
/// after a restart. A request that comes while the run is open keeps it open.
#[test]
fn a_run_that_is_over_is_not_open_again_when_its_thread_continues() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    pass(&mut world, INTERVAL);
    let first = world.play("finder", &[word("found", "f")]);
    assert!(world.core.state().schedules.values().all(|planned| planned.runs.is_empty()));
    world.say("desk", &first.thread, &word("look", "more"));
    world.restart();
    pass(&mut world, INTERVAL);

    let second = world.deliveries.iter().find(|delivery| delivery.thread != first.thread);
    let second = second.expect("the second run begins while the first thread continues");
    let thread = second.thread.clone();
    let message = second.messages[0].id;
    world.cancel(&thread);
    let text = word("look", "nightly");
    let retry = world.retry(&RetriedCall {
        message,
        source: &thread,
        thread: &thread,
        who: "desk",
        to: Some("finder"),
        text: &text,
        key: None,
        again: true,
        unknown: false,
    });
    assert!(matches!(retry, RetryRuling::Retried { .. }), "{retry:?}");
    pass(&mut world, INTERVAL);
    assert_eq!(world.core.state().calls.len(), 3, "the request, the retry and the third run");

    let third = world.core.state().schedules.values().next().unwrap().runs[0].thread.clone();
    let third = world.deliveries.iter().position(|delivery| delivery.thread == third).unwrap();
    let third = world.deliveries.remove(third).unwrap();
    world.say("desk", &third.thread, &word("look", "at once"));
    world.answer(&third, &[word("found", "f")]);
    pass(&mut world, INTERVAL);
    assert_eq!(
        later(&world, start),
        [
            "nightly started due 10 next 20",
            "nightly started due 20 next 30",
            "nightly started due 30 next 40",
            "nightly passed-over due 40 next 50",
        ]
    );
    world.restart();
    world.check_replay();
}

#[test]
pub fn a_schedule_that_leaves_the_config_is_cancelled_and_its_run_goes_on() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    pass(&mut world, INTERVAL);
    world.restart_scheduled(Some(Vec::new()));
    pass(&mut world, 3 * INTERVAL);
    assert_eq!(later(&world, start)[1..], ["nightly cancelled due 20"]);
    assert_eq!(world.core.state().calls.len(), 1, "the run");
    assert_eq!(world.core.state().schedules.len(), 1, "the run counts");

    world.restart_scheduled(Some(Vec::new()));
    world.restart_scheduled(Some(vec![schedule("nightly")]));
    let last = events(&world, start).pop().unwrap();
    assert!(last.starts_with("nightly planned"), "{last}");
    pass(&mut world, INTERVAL);
    let last = events(&world, start).pop().unwrap();
    assert!(last.starts_with("nightly passed-over"), "its run is still open: {last}");
    assert_eq!(world.core.state().calls.len(), 1, "the run");
}

#[test]
fn a_schedule_that_left_the_config_is_forgotten_with_its_last_run() {
    let mut world = running(schedule("nightly"));
    pass(&mut world, INTERVAL);
    world.restart_scheduled(Some(Vec::new()));
    assert_eq!(world.core.state().schedules.len(), 1, "its run is open");
    pass(&mut world, Duration::ZERO);
    let delivery = world.deliveries.pop_front().unwrap();
    world.answer(&delivery, &[word("found", "it")]);
    world.restart_scheduled(Some(Vec::new()));
    assert!(world.core.state().schedules.is_empty());
}

/// Returns a world whose record states that a run is due, but does not contain the run's request
/// yet. Also returns the time at which the schedule was planned.
fn begun(schedule: Schedule) -> (World, Time) {
    let mut world = running(schedule);
    let start = world.now;
    world.now = world.now.plus(INTERVAL);
    let due = world.alarms.iter().copied().min().unwrap();
    world.alarms.clear();
    world.step(Event::Alarm(due.1));
    (world, start)
}

#[test]
fn a_run_that_was_not_sent_ends_on_record_when_its_schedule_leaves_the_config() {
    let (mut world, start) = begun(schedule("nightly"));
    world.restart_scheduled(Some(Vec::new()));
    pass(&mut world, 3 * INTERVAL);
    assert!(world.deliveries.is_empty());
    assert_eq!(later(&world, start)[1..], ["nightly refused due 10", "nightly cancelled due 20"]);
    assert!(world.core.state().schedules.is_empty());
}

#[test]
fn a_run_that_was_not_sent_in_time_is_missed_where_missed_runs_are_skipped() {
    for (missed, late, runs) in [
        (MissedPolicy::Skip, 5 * MINUTE, 0),
        (MissedPolicy::Skip, MINUTE / 2, 1),
        (MissedPolicy::Once, 5 * MINUTE, 1),
    ] {
        let nightly = Schedule { missed, ..schedule("nightly") };
        let (mut world, start) = begun(nightly.clone());
        world.now = world.now.plus(late);
        world.restart_scheduled(Some(vec![nightly]));
        pass(&mut world, Duration::ZERO);
        assert_eq!(world.deliveries.len(), runs, "{missed:?} {late:?}");
        let missed = ["nightly missed due 10 count 1 policy skip"];
        assert_eq!(later(&world, start)[1..], missed[runs..], "{late:?}");
    }
}

#[test]
fn a_pump_without_schedules_leaves_those_on_record_alone() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    world.now = world.now.plus(INTERVAL);
    world.restart_scheduled(None);
    pass(&mut world, 3 * INTERVAL);
    assert_eq!(later(&world, start), Vec::<String>::new());
    assert_eq!(world.core.state().schedules.len(), 1);
}

#[test]
fn changed_times_are_planned_anew_and_their_past_is_not_made_up() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    world.now = world.now.plus(15 * MINUTE);
    let hourly = ScheduleTimes::Every(60 * MINUTE);
    world.restart_scheduled(Some(vec![Schedule { times: hourly, ..schedule("nightly") }]));
    pass(&mut world, MINUTE);
    assert!(world.deliveries.is_empty());
    assert_eq!(later(&world, start), ["nightly planned next 75"]);
}

#[test]
fn another_payload_or_policy_leaves_the_planned_time_as_it_is() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    pass(&mut world, 5 * MINUTE);
    let changed = Schedule {
        payload: word("look", "changed"),
        missed: MissedPolicy::Skip,
        client: name("other"),
        ..schedule("nightly")
    };
    world.restart_scheduled(Some(vec![changed]));
    pass(&mut world, 5 * MINUTE);
    let run = world.play("finder", &[word("found", "f")]);
    assert_eq!(run.messages[0].payload.as_str(), word("look", "changed"));
    assert_eq!(run.messages[0].from.as_str(), "other");
    assert_eq!(later(&world, start), ["nightly started due 10 next 20"]);
}

#[test]
fn a_run_is_sent_once_though_the_pump_dies_before_or_after() {
    let (mut world, start) = begun(schedule("nightly"));
    assert!(world.deliveries.is_empty(), "its request is a record of its own");

    world.restart();
    pass(&mut world, Duration::ZERO);
    assert_eq!(world.deliveries.len(), 1);
    let submitted = |world: &World| {
        let inputs = world.records.iter().map(|record| &record.input);
        inputs.filter(|input| matches!(input, Input::Submitted { .. })).count()
    };
    assert_eq!(submitted(&world), 1);

    world.restart();
    pass(&mut world, Duration::ZERO);
    assert_eq!(submitted(&world), 1);
    assert_eq!(later(&world, start), ["nightly started due 10 next 20"]);
}

#[test]
fn two_schedules_of_one_time_both_run() {
    let mut world = world();
    world.restart_scheduled(Some(vec![schedule("one"), schedule("two")]));
    pass(&mut world, INTERVAL);
    let sent: Vec<_> =
        world.deliveries.iter().map(|d| d.messages[0].payload.as_str().to_owned()).collect();
    assert_eq!(sent, [word("look", "one"), word("look", "two")]);
}

#[test]
fn a_stopping_pump_begins_no_run_and_the_next_one_makes_it_up() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    world.step(Event::Shutdown { reason: "test".to_owned() });
    pass(&mut world, INTERVAL);
    assert!(world.deliveries.is_empty());
    world.restart();
    pass(&mut world, Duration::ZERO);
    assert_eq!(world.deliveries.len(), 1);
    assert_eq!(
        later(&world, start),
        ["nightly missed due 10 count 1 policy once next 20", "nightly started due 10 next 20"]
    );
}

#[test]
fn a_run_waits_while_its_listener_has_too_much_to_do() {
    let finder = Contract { backlog: 1, concurrency: 1, ..finder() };
    let mut world = World::new(vec![client("desk", &["finder"]), finder]);
    world.restart_scheduled(Some(vec![schedule("nightly")]));
    let start = world.now;
    for n in 0..2 {
        world.open("desk", &word("look", &n.to_string()));
    }
    pass(&mut world, INTERVAL + MINUTE);
    assert_eq!(world.deliveries.len(), 1, "{:?}", world.handed());
    assert!(world.busy.len() > 100, "it tries again: {}", world.busy.len());

    found(&mut world);
    found(&mut world);
    pass(&mut world, Duration::from_secs(1));
    let run = world.delivery("finder");
    assert_eq!(run.messages[0].payload.as_str(), word("look", "nightly"));
    assert_eq!(later(&world, start), ["nightly started due 10 next 20"]);
}

#[test]
fn of_several_runs_that_wait_the_oldest_is_tried_and_each_is_sent_in_its_turn() {
    let finder = Contract { backlog: 1, concurrency: 1, ..finder() };
    let mut world = World::new(vec![client("desk", &["finder"]), finder]);
    world.restart_scheduled(Some(vec![Schedule { concurrency: 3, ..schedule("nightly") }]));
    for n in 0..2 {
        world.open("desk", &word("look", &n.to_string()));
    }
    let tried = |world: &World| {
        let alarms = world.alarms.iter();
        alarms.filter(|(_, alarm)| matches!(alarm, Alarm::ScheduledRun { .. })).count()
    };
    pass(&mut world, 3 * INTERVAL + MINUTE);
    assert_eq!(tried(&world), 1, "three runs wait");
    world.restart();
    assert_eq!(tried(&world), 1, "three runs wait");

    for _ in 0..5 {
        found(&mut world);
        pass(&mut world, Duration::from_secs(1));
    }
    let runs = world.core.state().schedules.values().map(|planned| planned.runs.len()).sum();
    assert_eq!((runs, tried(&world)), (0_usize, 0));
    let inputs = world.records.iter().map(|record| &record.input);
    let sent = inputs.filter(|input| matches!(input, Input::Submitted { .. })).count();
    assert_eq!(sent, 5, "two of the client, and three of the schedule");
}

#[test]
pub fn a_refused_request_ends_its_run_on_record() {
    let mut world = running(schedule("nightly"));
    let start = world.now;
    world.now = world.now.plus(INTERVAL);
    let due = world.alarms.iter().copied().min().unwrap();
    world.alarms.clear();
    world.step(Event::Alarm(due.1));
    let run = world.core.state().schedules.values().next().unwrap().runs[0].clone();
    world.step(Event::Submit(Box::new(organism::pump::core::Submission {
        id: run.request,
        client: name("desk"),
        target: Target::New { suggested: Some(run.thread.to_string()) },
        key: None,
        payload: world.gate.check(&name("desk"), b"<look xmlns=\"urn:test:words\"/>"),
        refused_digest: None,
        trace: None,
        begun: None,
    })));
    let events = later(&world, start);
    assert_eq!(events, ["nightly started due 10 next 20", "nightly refused due 10"]);
    assert!(world.core.state().schedules.values().next().unwrap().runs.is_empty());
    world.restart();
    pass(&mut world, INTERVAL);
    found(&mut world);
}

#[test]
fn no_client_takes_the_thread_of_a_run_that_is_still_to_begin() {
    let mut world = running(schedule("nightly"));
    world.now = world.now.plus(INTERVAL);
    let due = world.alarms.iter().copied().min().unwrap();
    world.alarms.clear();
    world.step(Event::Alarm(due.1));
    let thread = world.core.state().schedules.values().next().unwrap().runs[0].thread.clone();
    let target = Target::New { suggested: Some(thread.to_string()) };
    let receipt = world.submit_to("other", target, None, &word("look", "mine"));
    assert!(matches!(receipt, Receipt::Refused { .. }), "{receipt:?}");
    world.restart();
    pass(&mut world, Duration::ZERO);
    assert_eq!(world.delivery("finder").thread, thread);
}

#[test]
fn an_agent_cannot_write_an_event_of_a_schedule() {
    let mut world = world();
    world.open("desk", &word("plan", "p"));
    let forged = core("schedule-event", "schedule=\"nightly\" event=\"planned\"", "");
    world.play("thinker", &[forged]);
    assert_eq!(world.refusals(), ["thinker reserved-name"]);
}

#[test]
fn each_partition_has_its_own_schedules_and_runs_them_in_its_own_threads() {
    let world = world();
    let names: Vec<_> = (0..40).map(|n| format!("s{n}")).collect();
    let schedules: Vec<_> = names.iter().map(|name| schedule(name)).collect();
    let partitions = 4;
    let mut all = 0;

    for partition in 0..partitions {
        let own = Schedules::new(&schedules, &world.gate, (partition, partitions)).unwrap();
        let mut core = organism::pump::core::Core::new(
            world.gate.contracts.clone(),
            Default::default(),
            Default::default(),
        )
        .with_schedules(own);
        let boot = Event::Boot {
            journal: uuid::Uuid::from_u128(7),
            epoch: 1,
            detail: String::new(),
            blobs: Vec::new(),
        };
        let position = organism::ids::Position;
        let mut step = core.step(position(1), world.now, boot);
        let timers = core.state().schedules.clone();
        all += timers.len();
        assert!(timers.keys().all(|name| name.partition(partitions) == partition));

        let later = world.now.plus(INTERVAL);
        let alarms = std::mem::take(&mut step.effects);
        for (at, effect) in alarms.into_iter().enumerate() {
            if let organism::pump::core::Effect::Alarm { alarm, .. } = effect {
                core.step(position(at as u64 + 2), later, Event::Alarm(alarm));
            }
        }
        for planned in core.state().schedules.values() {
            assert_eq!(planned.runs[0].thread.partition(partitions), partition);
        }
    }
    assert_eq!(all, schedules.len());
}
