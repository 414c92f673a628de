//! Allotments: limits of a spawned thread, including everything beneath it.

use std::time::Duration;

use organism::contract::{Budget, Contract, Role, TreeLimits};
use organism::envelope::{AttemptFailure, Money, Spending, Turn};
use organism::ids::{CallId, ThreadId};
use organism::thread::Fact;

use super::world::{
    World, agent, client, core, fresh, listener, name, names, reservation, word, workflow,
};

const FREE: Money = Money(0);

fn world_with(limits: TreeLimits) -> World {
    World::with_limits(contracts(), limits)
}

fn contracts() -> Vec<Contract> {
    let mut boss = Contract::new(name("boss"), Role::Human);
    (boss.accepts, boss.replies) = (names(&["count"]), names(&["counted"]));
    let mut contracts = vec![
        client("desk", &["thinker"]),
        agent("thinker", &["plan"], &["answer"], &["writer", "plain"]),
        agent("writer", &["ask"], &["report"], &["finder", "boss"]),
        listener("plain", &["vote"], &["ballot"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
        boss,
    ];
    for contract in &mut contracts {
        contract.timeout = Duration::from_secs(100 * 3600);
    }
    contracts
}

fn world() -> World {
    world_with(TreeLimits::default())
}

fn spawn(label: &str, limits: &str) -> String {
    let inner = format!("<initial-payload>{}</initial-payload>", word("ask", label));
    core("spawn-thread", &format!("suggested_sub_id=\"{label}\" {limits}"), &inner)
}

/// Opens a tree. For each entry of `limits`, the root thread spawns a writer with the limits of the
/// entry. The root thread then waits for all writers.
fn spawned(world: &mut World, limits: &[(&str, &str)]) -> (ThreadId, CallId) {
    let (thread, call) = world.open("desk", &word("plan", "p"));
    let mut outcome: Vec<_> = limits.iter().map(|(label, limits)| spawn(label, limits)).collect();
    outcome.push(core("wait", "", ""));
    world.play("thinker", &outcome);
    (thread, call)
}

fn turn(tokens: u64, money: Money) -> Option<Turn> {
    let note = core("model-turn", "", "");
    Some(Turn { note, tokens_in: tokens, money, ..Turn::default() })
}

fn spent(world: &World, thread: &ThreadId) -> Spending {
    world.core.state().thread(thread).unwrap().allotted.as_ref().unwrap().spent
}

#[test]
fn a_model_call_that_an_allotment_does_not_cover_is_refused_before_it_is_made() {
    let mut world = world();
    let (thread, _) = spawned(&mut world, &[("a", "tokens=\"500\"")]);
    let writer = world.delivery("writer");
    let refused = world.reserve(&writer, 600, FREE).unwrap_err();
    let a = thread.child("a");
    let text = format!(
        "the next model call may take 600 tokens, and 500 of the 500 of thread {a} are left"
    );
    assert_eq!(refused, text);
    assert_eq!(world.reserve(&writer, 500, FREE), Ok(()));
}

#[test]
fn an_allotment_of_money_bounds_what_model_calls_cost() {
    let mut world = world();
    spawned(&mut world, &[("a", "money=\"0.50\"")]);
    let writer = world.delivery("writer");
    assert!(world.reserve(&writer, 1, Money(500_000_001)).is_err());
    assert_eq!(world.reserve(&writer, 1, Money(500_000_000)), Ok(()));
}

/// An amount of money is refused because the model of `writer`, a peer of the spawner, has no
/// price.
#[test]
fn an_amount_of_money_is_refused_where_a_model_has_no_price() {
    let mut contracts = contracts();
    for contract in contracts.iter_mut().filter(|contract| contract.name == name("writer")) {
        contract.has_unpriced_model = true;
    }
    let mut world = World::new(contracts);
    world.open("desk", &word("plan", "p"));
    world.play("thinker", &[spawn("a", "money=\"0\""), spawn("b", "tokens=\"500\"")]);
    assert_eq!(world.refusals(), ["thinker schema-invalid"]);
    let woken = world.delivery("thinker");
    let news = fresh(&woken);
    let news: Vec<_> = news.iter().filter_map(|gist| gist.split(" sess-").next()).collect();
    assert_eq!(news, ["huh schema-invalid", "thread-spawned"]);
    world.check_replay();
}

#[test]
fn spending_counts_against_each_allotment_up_the_tree() {
    let mut world = world();
    let (thread, _) = spawned(&mut world, &[("a", "tokens=\"1000\"")]);
    let a = thread.child("a");
    let b = a.child("b");
    let writer = world.delivery("writer");
    let beneath = [spawn("b", "tokens=\"5000\""), core("wait", "", "")];
    world.answer_turn(&writer, &beneath, turn(300, FREE));
    let deeper = world.delivery("writer");
    assert_eq!(deeper.thread, b);

    let refused = world.reserve(&deeper, 701, FREE).unwrap_err();
    assert!(refused.ends_with(&format!("700 of the 1000 of thread {a} are left")), "{refused}");
    assert_eq!(world.reserve(&deeper, 700, FREE), Ok(()));
    world.answer_turn(&deeper, &[word("report", "r")], turn(650, FREE));
    assert_eq!(spent(&world, &b).tokens, 650);
    assert_eq!(spent(&world, &a).tokens, 950);

    let writer = world.delivery("writer");
    assert!(world.reserve(&writer, 51, FREE).is_err());
    assert_eq!(world.reserve(&writer, 50, FREE), Ok(()));
}

#[test]
fn reservations_beneath_an_allotment_cannot_take_the_same_twice() {
    let mut world = world();
    let (thread, _) = spawned(&mut world, &[("a", "tokens=\"1000\"")]);
    let a = thread.child("a");
    let writer = world.delivery("writer");
    let beneath = [spawn("b", ""), spawn("c", ""), core("wait", "", "")];
    world.answer_turn(&writer, &beneath, turn(0, FREE));
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    assert_eq!(world.reserve(&first, 600, FREE), Ok(()));
    let refused = world.reserve(&second, 600, FREE).unwrap_err();
    assert!(refused.ends_with(&format!("400 of the 1000 of thread {a} are left")), "{refused}");
    assert_eq!(world.reserve(&second, 400, FREE), Ok(()));
}

#[test]
fn two_threads_have_an_allotment_each_and_what_one_leaves_is_free_for_the_other() {
    let limits = TreeLimits { tokens: 1_000, ..TreeLimits::default() };
    let mut world = world_with(limits);
    spawned(&mut world, &[("a", "tokens=\"800\""), ("b", "tokens=\"800\"")]);
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    assert_eq!(world.reserve(&first, 700, FREE), Ok(()));
    let refused = world.reserve(&second, 700, FREE).unwrap_err();
    assert!(refused.ends_with("300 of the 1000 of this tree are left"), "{refused}");
    world.answer_turn(&first, &[word("report", "r")], turn(100, FREE));
    assert_eq!(world.reserve(&second, 800, FREE), Ok(()));
}

#[test]
fn a_thread_without_tokens_fails_and_its_spawner_continues() {
    let mut world = world();
    let (_, call) = spawned(&mut world, &[("a", "tokens=\"500\"")]);
    let writer = world.delivery("writer");
    world.answer_turn(&writer, &[word("look", "q")], turn(500, FREE));
    world.play("finder", &[word("found", "f")]);
    let woken = world.play("thinker", &[word("answer", "a")]);
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result failed");
    let result = woken.messages.last().unwrap().payload.as_str();
    assert!(result.contains("code=\"budget-spent\""), "{result}");
    assert!(result.contains("all 500 tokens of thread"), "{result}");
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
pub fn a_thread_ends_when_its_time_is_over_with_everything_beneath_it() {
    let mut world = world();
    let (thread, call) = spawned(&mut world, &[("a", "timeout=\"PT10M\"")]);
    let writer = world.delivery("writer");
    world.answer(&writer, &[spawn("b", ""), word("look", "q")]);
    world.pass(Duration::from_secs(9 * 60));
    assert_eq!(world.core.state().tree(&thread).unwrap().calls.len(), 4);
    world.pass(Duration::from_secs(2 * 60));
    assert_eq!(world.core.state().tree(&thread).unwrap().calls.len(), 1, "the root goes on");

    let woken = world.delivery_for("thinker");
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result failed");
    let result = woken.messages.last().unwrap().payload.as_str();
    let a = thread.child("a");
    assert!(result.contains("code=\"timeout\""), "{result}");
    assert!(result.contains(&format!("the time of thread {a} is over")), "{result}");

    let send = core("send-to-thread", &format!("thread_id=\"{a}\""), &word("ask", "more"));
    world.answer(&woken, &[send]);
    let told = world.delivery_for("thinker");
    assert_eq!(fresh(&told).last().unwrap(), "system-error budget-spent");
    world.answer(&told, &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

/// If the time of a thread is over, each call in the thread ends with a time-out, whatever the id
/// of the call is. The alarms of all these calls are due at once, and fire in the order of the ids.
#[test]
fn the_end_of_a_threads_time_is_a_time_out_whatever_the_ids_are() {
    for others in 0..8 {
        let mut world = world();
        for _ in 0..others {
            world.open("desk", &word("plan", "other"));
        }
        world.deliveries.clear();
        let (thread, _) = spawned(&mut world, &[("a", "timeout=\"PT10M\"")]);
        let writer = world.delivery("writer");
        world.answer(&writer, &[spawn("b", ""), core("wait", "", "")]);
        world.pass(Duration::from_secs(11 * 60));
        let a = world.transcript(&thread.child("a"));
        assert!(a.contains("system core>thinker system-error timeout"), "{others}: {a}");
        assert!(!a.contains("budget-spent"), "{others}: {a}");
        let result = world.delivery_for("thinker").messages.last().unwrap().payload.clone();
        assert!(result.as_str().contains("code=\"timeout\""), "{others}: {}", result.as_str());
        world.check_replay();
    }
}

#[test]
fn an_outcome_after_the_end_of_a_threads_time_leaves_its_call_to_time_out() {
    let inner = format!("<initial-payload>{}</initial-payload>", word("vote", "v"));
    let vote = core("spawn-thread", "suggested_sub_id=\"a\" timeout=\"PT10M\"", &inner);
    for (who, request) in [("writer", spawn("a", "timeout=\"PT10M\"")), ("plain", vote)] {
        let mut world = world();
        world.open("desk", &word("plan", "p"));
        world.play("thinker", &[request, core("wait", "", "")]);
        let asked = world.delivery(who);
        world.now = world.now.plus(Duration::from_secs(11 * 60));
        world.answer(&asked, &[word("look", "q")]);
        assert!(world.deliveries.is_empty(), "{who}");
        world.pass(Duration::from_secs(1));
        let woken = world.delivery("thinker");
        let result = woken.messages.last().unwrap().payload.as_str();
        assert!(result.contains("code=\"timeout\""), "{who}: {result}");
        world.check_replay();
    }
}

#[test]
fn the_time_of_a_thread_runs_while_a_person_decides() {
    let mut world = world();
    spawned(&mut world, &[("a", "timeout=\"PT10M\"")]);
    world.play("writer", &[word("count", "n")]);
    world.pass(Duration::from_secs(11 * 60));
    let woken = world.delivery("thinker");
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result failed");
}

#[test]
fn the_shortest_time_up_the_tree_ends_a_thread() {
    let mut world = world();
    let (thread, _) = spawned(&mut world, &[("a", "timeout=\"PT10M\"")]);
    let writer = world.delivery("writer");
    world.answer(&writer, &[spawn("b", "timeout=\"PT1M\""), core("wait", "", "")]);
    world.delivery("writer");
    world.pass(Duration::from_secs(61));
    let woken = world.delivery("writer");
    assert_eq!(woken.thread, thread.child("a"));
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result failed");
}

#[test]
fn allotments_survive_a_restart() {
    let mut world = world();
    let limits = "tokens=\"1000\" timeout=\"PT10M\"";
    let (thread, _) = spawned(&mut world, &[("a", limits)]);
    let a = thread.child("a");
    let writer = world.delivery("writer");
    world.answer_turn(&writer, &[word("ask", "on")], turn(300, FREE));
    let writer = world.delivery("writer");
    assert_eq!(world.reserve(&writer, 200, FREE), Ok(()));

    world.restart();
    world.pass(Duration::from_secs(10));
    assert_eq!(spent(&world, &a).tokens, 500, "the reservation of a killed pump is charged");
    let writer = world.delivery("writer");
    assert!(world.reserve(&writer, 501, FREE).is_err());
    assert_eq!(world.reserve(&writer, 500, FREE), Ok(()));
    world.pass(Duration::from_secs(11 * 60));
    assert_eq!(fresh(&world.delivery("thinker")).last().unwrap(), "thread-result failed");
}

#[test]
fn a_turn_that_ends_after_its_call_counts_against_the_allotment() {
    let mut world = world();
    let (thread, _) = spawned(&mut world, &[("a", "tokens=\"1000\" timeout=\"PT10M\"")]);
    let a = thread.child("a");
    let writer = world.delivery("writer");
    assert_eq!(world.ask_for(&writer, reservation(Spending { tokens: 400, money: FREE })), Ok(()));
    world.pass(Duration::from_secs(11 * 60));
    world.answer_turn(&writer, &[word("report", "r")], turn(350, FREE));
    assert_eq!(spent(&world, &a).tokens, 350);
}

#[test]
fn the_record_of_a_reservation_leaves_out_its_thread() {
    for limits in ["", "tokens=\"1000\""] {
        let mut world = world();
        spawned(&mut world, &[("a", limits)]);
        let writer = world.delivery("writer");
        assert_eq!(world.reserve(&writer, 600, FREE), Ok(()));
        let facts = || world.records.iter().flat_map(|record| &record.facts);
        assert!(facts().any(|fact| matches!(fact, Fact::Reserved { thread: None, .. })));
        assert!(!facts().any(|fact| matches!(fact, Fact::Reserved { thread: Some(_), .. })));
        let is_allotted =
            facts().any(|fact| matches!(fact, Fact::ThreadOpened { allotment: Some(_), .. }));
        assert_eq!(is_allotted, !limits.is_empty());
    }
}

#[test]
fn an_allotment_that_is_none_is_refused() {
    let wrong = [
        "tokens=\"0\"",
        "tokens=\"many\"",
        "money=\"-1\"",
        "money=\"1e3\"",
        "timeout=\"-PT1M\"",
        "timeout=\"PT0S\"",
        "timeout=\"P2Y\"",
        "timeout=\"soon\"",
    ];
    for limits in wrong {
        let mut world = world();
        world.open("desk", &word("plan", "p"));
        world.play("thinker", &[spawn("a", limits)]);
        assert_eq!(world.refusals(), ["thinker schema-invalid"], "{limits}");
    }
}

fn contracts_of_run(tokens: Option<u64>) -> Vec<Contract> {
    let budget = Budget { tokens, money: None };
    vec![
        client("desk", &["flow"]),
        Contract { budget, ..workflow("flow", &["plan"], &["answer"], &["writer"]) },
        agent("writer", &["ask"], &["report"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

/// A run of a workflow with a budget of 1,000 tokens, or without a budget. It has opened two
/// threads.
fn run_of_workflow(tokens: Option<u64>) -> (World, CallId) {
    let mut world = World::new(contracts_of_run(tokens));
    let (_, call) = world.open("desk", &word("plan", "p"));
    let bound = |label: &str| spawn(label, "bound=\"true\"");
    world.play("flow", &[bound("a"), bound("b"), core("wait", "for=\"any\"", "")]);
    (world, call)
}

#[test]
fn agents_of_one_run_of_a_workflow_spend_its_budget_together() {
    let (mut world, call) = run_of_workflow(Some(1_000));
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    assert_eq!(world.reserve(&first, 600, FREE), Ok(()));
    let refused = world.reserve(&second, 600, FREE).unwrap_err();
    let expected = "the next model call may take 600 tokens, and 400 of the 1000 of this run of flow \
                    are left";
    assert_eq!(refused, expected);

    // What a thread beneath one of its threads uses counts, too.
    let beneath = [spawn("c", ""), core("wait", "", "")];
    world.answer_turn(&first, &beneath, turn(300, FREE));
    let deeper = world.delivery("writer");
    assert!(world.reserve(&deeper, 701, FREE).is_err());
    world.answer_turn(&deeper, &[word("report", "r")], turn(500, FREE));
    assert!(world.reserve(&second, 201, FREE).is_err());
    assert_eq!(world.reserve(&second, 200, FREE), Ok(()));

    assert_eq!(spent_in_run(&world, call), Some(800));
    world.check_replay();
}

fn spent_in_run(world: &World, call: CallId) -> Option<u64> {
    world.core.state().call(call).map(|run| run.spent_bound.tokens)
}

#[test]
fn a_reservation_counts_in_a_run_that_got_its_budget_after_it() {
    // The pump dies, and the config has a budget at the next start.
    let (mut world, call) = run_of_workflow(None);
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    assert_eq!(world.reserve(&first, 600, FREE), Ok(()));
    assert_eq!(world.reserve(&second, 300, FREE), Ok(()));
    world.restart_with(contracts_of_run(Some(1_000)));
    world.pass(Duration::from_secs(1));
    assert_eq!(spent_in_run(&world, call), Some(900));

    // Records of earlier versions state the thread of some reservations.
    let mut earlier = world.records.clone();
    for fact in earlier.iter_mut().flat_map(|record| &mut record.facts) {
        if let Fact::Reserved { call, thread, .. } = fact {
            *thread = (*call == first.call).then(|| first.thread.clone());
        }
    }
    let rebuilt = world.rebuilt(&earlier);
    assert_eq!(rebuilt.state().call(call).map(|run| run.spent_bound.tokens), Some(900));

    let again = world.delivery("writer");
    assert!(world.reserve(&again, 101, FREE).is_err());
    assert_eq!(world.reserve(&again, 100, FREE), Ok(()));
    world.check_replay();

    // A running pump takes a config with a budget.
    let (mut world, call) = run_of_workflow(None);
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    assert_eq!(world.reserve(&first, 600, FREE), Ok(()));
    world.reload(contracts_of_run(Some(1_000)));
    assert!(world.reserve(&second, 401, FREE).is_err());
    let crashed = AttemptFailure::Crashed { detail: "its replica is gone".to_owned() };
    world.fail(&first, crashed);
    assert_eq!(spent_in_run(&world, call), Some(600));
    world.check_replay();
}

#[test]
fn a_run_whose_tokens_are_used_gets_failures_and_another_run_has_its_own() {
    let (mut world, call) = run_of_workflow(Some(1_000));
    let [first, second] = [world.delivery("writer"), world.delivery("writer")];
    world.answer_turn(&first, &[word("look", "q")], turn(1_000, FREE));
    world.play("finder", &[word("found", "f")]);
    let woken = world.play("flow", &[core("wait", "for=\"any\"", "")]);
    assert_eq!(fresh(&woken).last().unwrap(), "thread-result failed");
    world.answer_turn(&second, &[word("report", "r")], turn(0, FREE));
    world.play("flow", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");

    world.open("desk", &word("plan", "p"));
    world.play("flow", &[spawn("a", "bound=\"true\""), core("wait", "for=\"any\"", "")]);
    let again = world.delivery("writer");
    assert_eq!(world.reserve(&again, 900, FREE), Ok(()));
    world.check_replay();
}
