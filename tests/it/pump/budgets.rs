//! Budgets of model calls, for a tree and for an agent in the tree. The budgets are checked before
//! each call.

use organism::bus::Delivery;
use organism::contract::{Budget, Contract, TreeLimits};
use organism::envelope::{AttemptFailure, Money, Reservation, RouteLimit, Spending, Turn};
use organism::limits;
use organism::thread::{Fact, WarningStatus};

use super::world::{World, agent, client, core, fresh, listener, reservation, word};

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["finder", "writer"]),
        agent("writer", &["ask"], &["report"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

fn limited(limits: TreeLimits) -> World {
    World::with_limits(contracts(), limits)
}

fn spawn(inner: &str) -> String {
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

/// Opens two threads with a writer in each. Returns the deliveries to the writers.
fn two_writers(world: &mut World) -> [Delivery; 2] {
    world.open("desk", &word("plan", "p"));
    let spawns = [spawn(&word("ask", "1")), spawn(&word("ask", "2"))];
    world.turn("thinker", 10, &[&spawns[..], &[core("wait", "", "")]].concat());
    [world.delivery("writer"), world.delivery("writer")]
}

fn spends(world: &mut World, delivery: &Delivery, tokens: u64, money: Money, payload: &str) {
    let note = core("model-turn", "", "");
    let turn = Turn { note, tokens_in: tokens, money, ..Turn::default() };
    world.answer_turn(delivery, &[payload.to_owned()], Some(turn));
}

/// O11, F14: while a model call runs, no other call can spend the amount that the running call has
/// reserved.
#[test]
fn model_calls_side_by_side_cannot_spend_the_same_twice() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    let free = Money::default();
    assert_eq!(world.reserve(&first, 600, free), Ok(()));
    let said = world.reserve(&second, 600, free).unwrap_err();
    assert_eq!(
        said,
        "the next model call may take 600 tokens, and 390 of the 1000 of this tree are left"
    );
    assert_eq!(world.reserve(&first, 300, free), Ok(()), "another reservation replaces it");
    assert_eq!(world.reserve(&second, 600, free), Ok(()));
    assert_eq!(world.reserve(&first, 391, free).unwrap_err().split(',').count(), 2);
    spends(&mut world, &second, 100, free, &word("report", "r"));
    assert_eq!(world.reserve(&first, 890, free), Ok(()), "what was not taken is free again");
}

/// A reservation may take a whole budget if the tokens of the prompt are counted, and half of the
/// budget if they are estimated. An estimate may be several times too high, and must not cause
/// refusals for other callers.
#[test]
fn an_estimated_prompt_may_take_half_of_a_budget() {
    let mut world = limited(TreeLimits { tokens: 1_010, ..Default::default() });
    let [first, _] = two_writers(&mut world);
    let asked = |tokens, counted| {
        let spending = Spending { tokens, money: Money::default() };
        Reservation { counted, ..reservation(spending) }
    };
    assert!(world.ask_for(&first, asked(496, false)).is_err());
    assert_eq!(world.ask_for(&first, asked(495, false)), Ok(()));
    assert_eq!(world.ask_for(&first, asked(1_000, true)), Ok(()));
}

/// F14: a closed call keeps its reservation until its model has stopped, because a model takes time
/// to stop.
#[test]
fn a_closed_call_keeps_what_it_set_aside_until_its_agent_has_ended() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    let free = Money::default();
    assert_eq!(world.reserve(&first, 900, free), Ok(()));
    world.cancel(&first.thread);
    assert!(world.reserve(&second, 900, free).is_err(), "the first model still speaks");
    spends(&mut world, &first, 20, free, &word("report", "late"));
    assert_eq!(world.reserve(&second, 900, free), Ok(()));
}

/// F14: an answer that broke off is charged, counts as a model call, and is not retried beyond the
/// budget.
#[test]
fn the_cost_of_a_failed_attempt_is_spent() {
    let limits = TreeLimits { tokens: 1_000, model_calls: 3, ..Default::default() };
    let mut world = limited(limits);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let cut = |tokens| AttemptFailure::CutShort {
        detail: "the stream broke off".to_owned(),
        spent: Spending { tokens, money: Money(5) },
        retried: true,
    };
    let thinker = world.delivery("thinker");
    assert_eq!(world.reserve(&thinker, 900, Money::default()), Ok(()));
    world.fail(&thinker, cut(300));
    world.pass(std::time::Duration::from_secs(1));
    let again = world.delivery("thinker");
    let usage = world.core.state().tree(&thread).unwrap().usage;
    assert_eq!((usage.model_calls, usage.tokens, usage.money), (1, 300, Money(5)));
    assert!(world.reserve(&again, 701, Money::default()).is_err());
    assert_eq!(world.reserve(&again, 700, Money::default()), Ok(()));
    world.fail(&again, cut(1));
    world.pass(std::time::Duration::from_secs(5));
    let third = world.delivery("thinker");
    assert_eq!(world.reserve(&third, 1, Money::default()), Ok(()));
    spends(&mut world, &third, 1, Money::default(), &word("plan", "on"));
    world.check_replay();
}

/// Each reservation is a record, so an attempt cannot make records without end.
#[test]
fn an_attempt_makes_a_limited_number_of_reservations() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    let free = Money::default();
    for _ in 0..limits::MODEL_RESERVATIONS_MAX {
        assert_eq!(world.reserve(&first, 1, free), Ok(()));
    }

    let records = world.records.len();
    let refused = world.reserve(&first, 1, free).unwrap_err();
    assert_eq!(refused, "this attempt has made all of its 1000 reservations");
    assert_eq!(world.records.len(), records);
    assert_eq!(world.reserve(&second, 1, free), Ok(()), "another attempt");
    spends(&mut world, &first, 1, free, &word("report", "r"));
    world.check_replay();
}

/// F14: after a failed attempt, another call can reserve the amount that the attempt had reserved.
#[test]
fn a_failed_attempt_gives_back_what_it_had_set_aside() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    assert_eq!(world.reserve(&first, 900, Money::default()), Ok(()));
    world.fail(&first, failed(0));
    assert_eq!(world.reserve(&second, 900, Money::default()), Ok(()));
    let closed = world.reserve(&first, 1, Money::default());
    assert_eq!(closed.unwrap_err(), "the call this would be for is closed");
}

fn failed(tokens: u64) -> AttemptFailure {
    AttemptFailure::Model {
        reason: "cancelled".to_owned(),
        detail: "its caller is gone".to_owned(),
        spent: Spending { tokens, money: Money::default() },
        passing: false,
        tries: Vec::new(),
    }
}

fn spent(world: &World, delivery: &Delivery) -> (u64, u64) {
    let usage = world.core.state().tree(&delivery.thread).unwrap().usage;
    (usage.model_calls, usage.tokens)
}

/// Design 5.29: if an agent's call is closed while its model call still runs, the model call is
/// charged when it ends, with its actual cost.
#[test]
fn a_model_call_that_ends_after_its_call_is_charged_for_what_it_took() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    let before = spent(&world, &first);
    assert_eq!(world.reserve(&first, 900, Money::default()), Ok(()));
    world.cancel(&first.thread);
    world.fail(&first, failed(300));
    assert_eq!(spent(&world, &first), (before.0 + 1, before.1 + 300));
    let own =
        *world.core.state().tree(&first.thread).unwrap().by_agent.get(&first.listener).unwrap();
    assert_eq!(own.tokens, 300, "and to its agent");
    assert!(world.reserve(&second, 700, Money::default()).is_err());
    assert_eq!(world.reserve(&second, 690, Money::default()), Ok(()));
    world.check_replay();
}

/// Design 5.30: an attempt that ends without reported cost, because its host has died, is charged
/// its whole reservation.
#[test]
fn an_attempt_whose_host_died_is_charged_its_whole_reservation() {
    let crashed = || AttemptFailure::Crashed { detail: "its replica is gone".to_owned() };
    let limits = TreeLimits { tokens: 1_000, ..Default::default() };
    let mut contracts = contracts();
    contracts[2].budget = Budget { tokens: Some(1_100), money: None };
    let mut world = World::with_limits(contracts, limits);
    let [first, second] = two_writers(&mut world);
    let before = spent(&world, &first);
    assert_eq!(world.reserve(&first, 400, Money::default()), Ok(()));
    world.fail(&first, crashed());
    assert_eq!(spent(&world, &first), (before.0 + 1, before.1 + 400));

    // The same, if the call was closed before.
    assert_eq!(world.reserve(&second, 500, Money::default()), Ok(()));
    world.cancel(&second.thread);
    world.fail(&second, crashed());
    assert_eq!(spent(&world, &first), (before.0 + 2, before.1 + 900));

    // No turn has reported the cost, and agents with open calls get the warnings.
    assert_eq!(warnings(&world), ["tokens at 1000", "tokens of writer at 1100"]);
    let shown = "core>thinker budget-warning tokens";
    assert!(world.transcript(&first.thread.root()).contains(shown));
    let shown = "core>writer budget-warning tokens";
    assert!(world.transcript(&first.thread).contains(shown));
    world.check_replay();
}

/// The recorded warnings of budgets, each with its limit, and with its status if it was not sent at
/// once.
fn warnings(world: &World) -> Vec<String> {
    let facts = world.records.iter().flat_map(|record| &record.facts);
    let warned = facts.filter_map(|fact| match fact {
        Fact::Warned { budget, limit, status } => {
            let status = match status {
                WarningStatus::Sent => "",
                WarningStatus::Unsent => " unsent",
                WarningStatus::SentLater => " sent later",
            };
            Some(format!("{budget} at {}{status}", limit.unwrap()))
        }
        _ => None,
    });
    warned.collect()
}

/// A budget is nearly used up while no call of an agent is open.
#[test]
fn an_unsent_warning_goes_to_the_next_agent_once() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.turn("thinker", 850, &[word("answer", "a")]);
    assert_eq!(warnings(&world), ["tokens at 1000 unsent"]);

    world.restart();
    world.say("desk", &thread, &word("plan", "more"));
    let woken = world.turn("thinker", 10, &[word("answer", "b")]);
    assert_eq!(fresh(&woken), ["plan(more)", "budget-warning tokens"]);
    world.say("desk", &thread, &word("plan", "last"));
    assert_eq!(fresh(&world.delivery("thinker")), ["plan(last)"]);
    assert_eq!(warnings(&world), ["tokens at 1000 unsent", "tokens at 1000 sent later"]);
}

/// The turn that uses four fifths of a budget ends its own call, or comes after the end of its
/// call. The agent that waits gets the warning.
#[test]
fn a_waiting_agent_is_warned_of_the_last_turn_of_another() {
    for is_late in [false, true] {
        let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
        let [first, second] = two_writers(&mut world);
        assert_eq!(world.reserve(&first, 900, Money::default()), Ok(()));
        if is_late {
            world.cancel(&first.thread);
        }
        spends(&mut world, &first, 800, Money::default(), &word("report", "r"));
        assert_eq!(warnings(&world), ["tokens at 1000"]);

        spends(&mut world, &second, 10, Money::default(), &word("report", "r"));
        let woken = fresh(&world.delivery("thinker"));
        assert!(woken.contains(&"budget-warning tokens".to_owned()), "{woken:?}");
    }
}

#[test]
fn the_agent_that_repeats_a_failed_model_call_is_warned_of_its_cost() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, _] = two_writers(&mut world);
    assert_eq!(world.reserve(&first, 900, Money::default()), Ok(()));
    let spent = Spending { tokens: 800, money: Money::default() };
    let detail = "the stream broke off".to_owned();
    world.fail(&first, AttemptFailure::CutShort { detail, spent, retried: true });
    assert_eq!(warnings(&world), ["tokens at 1000"]);

    world.pass(std::time::Duration::from_secs(1));
    let again = fresh(&world.delivery("writer"));
    assert!(again.contains(&"budget-warning tokens".to_owned()), "{again:?}");
}

/// The warning goes to the call in the thread with the first label among the calls that one step
/// opened, not to the call with the smallest id.
#[test]
fn labels_of_threads_decide_which_of_several_agents_is_warned() {
    let mut contracts = contracts();
    contracts[2].budget = Budget { tokens: Some(500), money: None };
    let mut world = World::new(contracts);
    let (thread, _) = world.open("desk", &word("plan", "p"));
    let spawn = |label: &str| {
        let initial = format!("<initial-payload>{}</initial-payload>", word("ask", label));
        core("spawn-thread", &format!("suggested_sub_id=\"{label}\""), &initial)
    };
    let mut payloads: Vec<_> = ["f", "e", "d", "c", "b", "a"].map(spawn).into();
    payloads.push(core("wait", "", ""));
    world.turn("thinker", 10, &payloads);
    let writer = world.delivery("writer");
    assert_eq!(world.reserve(&writer, 450, Money::default()), Ok(()));
    spends(&mut world, &writer, 450, Money::default(), &word("report", "r"));

    assert_eq!(warnings(&world), ["tokens of writer at 500"]);
    assert!(world.transcript(&thread.child("a")).contains("budget-warning tokens"));
}

#[test]
fn a_changed_budget_has_a_warning_of_its_own() {
    let contracts_with = |tokens| {
        let mut contracts = contracts();
        contracts[1].budget = Budget { tokens: Some(tokens), money: None };
        contracts
    };
    let mut world = World::new(contracts_with(100));
    let (_, call) = world.open("desk", &word("plan", "p"));
    let thinking = || [core("thinking", "", "")];
    world.turn("thinker", 80, &thinking());
    assert_eq!(warnings(&world), ["tokens of thinker at 100"]);

    world.reload(contracts_with(1_000));
    world.turn("thinker", 10, &thinking());
    world.turn("thinker", 700, &thinking());
    assert_eq!(warnings(&world).len(), 1, "790 of 1,000");
    world.turn("thinker", 10, &thinking());
    world.turn("thinker", 10, &thinking());
    assert_eq!(warnings(&world)[1..], ["tokens of thinker at 1000"]);

    // A restart lowers the limit to 900. 810 are used.
    world.restart_with(contracts_with(900));
    world.pass(std::time::Duration::from_secs(1));
    let warned = world.delivery("thinker");
    assert_eq!(fresh(&warned).last().unwrap(), "budget-warning tokens");
    assert_eq!(warnings(&world)[2..], ["tokens of thinker at 900"]);

    // A reload lowers the limit below the use, so the agent gets no further turn.
    world.reload(contracts_with(500));
    world.answer(&warned, &thinking());
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert_eq!(warnings(&world)[3..], ["tokens of thinker at 500 unsent"]);
    world.check_replay();
}

/// Design 5.30: a reservation from before a restart is charged whole to its own tree, before
/// anything else is spent.
#[test]
pub fn a_reservation_of_an_earlier_run_is_charged_whole_after_the_start() {
    let mut world = limited(TreeLimits { tokens: 1_000, ..Default::default() });
    let [first, second] = two_writers(&mut world);
    let before = spent(&world, &first);
    assert_eq!(world.reserve(&first, 400, Money::default()), Ok(()));
    assert_eq!(world.reserve(&second, 300, Money::default()), Ok(()));
    world.cancel(&second.thread);
    world.restart();
    world.pass(std::time::Duration::from_secs(1));
    let again = world.delivery("writer");
    assert_eq!(spent(&world, &first), (before.0 + 2, before.1 + 700));
    assert_eq!(world.reserve(&again, 200, Money::default()), Ok(()));
    world.restart();
    world.pass(std::time::Duration::from_secs(1));
    assert_eq!(spent(&world, &first).1, before.1 + 900, "each once");
    world.check_replay();
}

/// The number of requests on each route is limited over all attempts of a turn, also after a
/// restart.
#[test]
fn requests_of_a_model_call_are_limited_on_each_route_over_all_attempts() {
    let mut world = limited(TreeLimits::default());
    world.open("desk", &word("plan", "p"));
    let free = Spending::default();
    let asked = |route: &str, request| {
        let route = Some(RouteLimit { route: route.to_owned(), most: 2 });
        Reservation { route, request, ..reservation(free) }
    };
    let thinker = world.delivery("thinker");
    assert_eq!(world.ask_for(&thinker, asked("a", 1)), Ok(()));
    assert_eq!(world.ask_for(&thinker, asked("a", 1)), Ok(()), "asked again, it leaves once");
    assert_eq!(world.ask_for(&thinker, asked("b", 2)), Ok(()));
    world.restart();
    world.pass(std::time::Duration::from_secs(1));
    let again = world.delivery("thinker");
    assert_eq!(world.ask_for(&again, asked("a", 1)), Ok(()));
    assert_eq!(
        world.ask_for(&again, asked("a", 2)).unwrap_err(),
        "a: this model call has made all of its 2 requests"
    );
    assert_eq!(world.ask_for(&again, asked("b", 2)), Ok(()));
    spends(&mut world, &again, 1, Money::default(), &word("plan", "on"));
    let next = world.delivery("thinker");
    assert_eq!(world.ask_for(&next, asked("a", 1)), Ok(()), "the next turn is another model call");
    world.check_replay();
}

/// F14: if the budget does not cover an agent's next model call, the agent's own call fails, and
/// its caller gets the reason.
#[test]
fn a_budget_without_room_fails_the_call_before_a_model_request() {
    for (failure, told) in [
        (
            AttemptFailure::Spent { detail: "nothing is left".to_owned() },
            "system-error budget-spent",
        ),
        (
            AttemptFailure::TooLarge { detail: "it does not fit".to_owned() },
            "system-error too-large",
        ),
    ] {
        let mut world = limited(TreeLimits::default());
        let (_, call) = world.open("desk", &word("plan", "p"));
        let thinker = world.delivery("thinker");
        let detail = failure.to_string();
        world.fail(&thinker, failure);
        assert_eq!(world.result(call), format!("failed: {told}"));
        let (_, messages) = &world.results[&call];
        assert!(messages[0].payload.as_str().contains(&detail), "{:?}", messages[0].payload);
        assert!(world.deliveries.is_empty(), "and is not tried again");
    }
}

/// O11: the budget of an agent limits only this agent, in addition to the budget of the tree.
#[test]
fn an_agents_budget_is_within_the_budget_of_the_tree() {
    let mut contracts = contracts();
    contracts[2].budget = Budget { tokens: Some(500), money: None };
    let mut world = World::new(contracts);
    let [first, second] = two_writers(&mut world);
    assert_eq!(world.reserve(&first, 400, Money::default()), Ok(()));
    assert_eq!(
        world.reserve(&second, 200, Money::default()).unwrap_err(),
        "the next model call may take 200 tokens, and 100 of the 500 of writer are left"
    );
    spends(&mut world, &first, 500, Money::default(), &word("look", "q"));
    let first = world.delivery("finder");
    world.answer(&first, &[word("found", "f")]);
    spends(&mut world, &second, 0, Money::default(), &word("report", "r"));
    let woken = world.delivery("thinker");
    let warnings: Vec<_> = world.records.iter().flat_map(|record| record.payloads()).collect();
    let warnings = warnings.iter().filter(|payload| payload.as_str().contains("<budget-warning"));
    let warnings: Vec<_> = warnings.map(|payload| payload.as_str()).collect();
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.contains(r#"budget="tokens" of="writer" used="500" limit="500""#), "{warning}");
    let told: Vec<_> = woken.messages.iter().map(|message| message.payload.as_str()).collect();
    let told = told.join("\n");
    assert!(told.contains("all 500 tokens of writer in this tree are used"), "{told}");
    assert_eq!(world.reserve(&woken, 5_000, Money::default()), Ok(()), "the thinker is free");
}

/// O11: the cost in money is computed from the prices of tokens. A spent budget of money leads to
/// the same warning and the same end as a spent budget of tokens.
#[test]
fn money_is_a_budget_too() {
    let limit = Money::of_units(0.01);
    let mut world = limited(TreeLimits { money: Some(limit), ..Default::default() });
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let thinker = world.delivery("thinker");
    assert_eq!(
        world.reserve(&thinker, 10, Money::of_units(0.02)).unwrap_err(),
        "the next model call may cost 0.02, and 0.01 of the 0.01 of this tree is left"
    );
    assert_eq!(world.reserve(&thinker, 10, limit), Ok(()));
    spends(&mut world, &thinker, 10, Money::of_units(0.008), &word("plan", "on"));
    let warned = world.delivery("thinker");
    assert_eq!(fresh(&warned), ["plan(on)", "budget-warning money"]);
    let warning = warned.messages.last().unwrap().payload.as_str();
    assert!(warning.contains("used=\"0.008\" limit=\"0.01\""), "{warning}");
    spends(&mut world, &warned, 10, Money::of_units(0.003), &word("plan", "on"));
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    let usage = world.core.state().tree(&thread).unwrap().usage;
    assert_eq!(usage.money.to_string(), "0.011", "what was spent is on record, be it too much");
    world.check_replay();
}
