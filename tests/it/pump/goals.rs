//! Goals: payloads that agents accept only from workflows. An agent answers a goal with a separate
//! payload, not with the final payload of its other calls.

use std::time::Duration;

use organism::bus::Delivery;
use organism::contract::{
    Contract, TreeLimits, TypedAnswer, goal_answer, goal_name, write_goal, write_typed_goal,
};
use organism::envelope::{AttemptFailure, Spent, Turn};
use organism::ids::CallId;

use super::world::{World, agent, client, core, fresh, listener, name, names, word, workflow};

/// Contracts in which `flow` may send goals to `writer`, and `writer` ends its other calls with
/// `report`. `desk` and `helper` may call `writer`.
fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["flow", "writer", "helper", "plain"]),
        workflow("flow", &["plan"], &["answer"], &["writer"]),
        agent("writer", &["ask"], &["report"], &["writer"]),
        agent("helper", &["count"], &["counted"], &["writer"]),
        listener("plain", &["look"], &["found"], &["writer"]),
    ]
}

fn goal(document: &str) -> String {
    write_goal(&name("writer"), document)
}

fn completion(text: &str) -> String {
    let namespace = organism::agent::NAMESPACE;
    format!(
        "<attempt_completion xmlns=\"{namespace}\"><result>{text}</result></attempt_completion>"
    )
}

/// The new messages of a delivery as summaries, without the ids of threads.
fn news(delivery: &Delivery) -> Vec<String> {
    let without_ids = |gist: &String| gist.split(" sess-").next().unwrap_or_default().to_owned();
    fresh(delivery).iter().map(without_ids).collect()
}

fn spawn(inner: &str) -> String {
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

// C7
#[test]
fn a_goal_of_a_workflow_is_recorded_and_delivered_byte_for_byte() {
    let documents = [
        "<workflow name=\"w\">\n\n<current-goal id=\"a\">\nWrite.\n</current-goal>\n\n</workflow>",
        "  </goal> &amp; ]]> <!-- x --> <?pi?> \"q\" 'a'\ttab\r\nline  ",
        "caf\u{e9} \u{1f600} \u{2028}",
    ];
    for document in documents {
        let mut world = World::new(contracts());
        let (_, call) = world.open("desk", &word("plan", "p"));
        world.play("flow", &[spawn(&goal(document)), core("wait", "for=\"any\"", "")]);
        let asked = world.delivery("writer");
        let payload = asked.messages[0].payload.as_str();
        assert_eq!(payload, goal(document));
        assert_eq!(organism::contract::read_goal(payload).as_deref(), Some(document));

        world.answer(&asked, &[completion("done")]);
        let woken = world.play("flow", &[word("answer", "a")]);
        assert_eq!(news(&woken), ["thread-spawned", "waiting any", "thread-result completed"]);
        assert_eq!(world.result(call), "completed: answer(a)");
        world.check_replay();
    }
}

#[test]
fn a_goal_of_any_other_sender_is_refused_like_an_unknown_payload() {
    let unknown = "<nothing xmlns=\"urn:nowhere\"/>".to_owned();
    let requests = [("writer", "ask"), ("helper", "count"), ("plain", "look")];
    for (sender, request) in requests {
        for payload in [goal("Do."), spawn(&goal("Do."))] {
            let mut world = World::new(contracts());
            world.open("desk", &word(request, "x"));
            world.play(sender, &[payload]);
            assert_eq!(world.refusals(), [format!("{sender} not-in-vocabulary")]);
        }
    }

    let world = World::new(contracts());
    let of = |sender: &str, text: &str| {
        let refusal = world.gate.check(&name(sender), text.as_bytes()).unwrap_err();
        (refusal.rule, refusal.message)
    };
    for sender in ["desk", "writer", "helper", "plain"] {
        assert_eq!(of(sender, &goal("Do.")), of(sender, &unknown), "{sender}");
    }
}

#[test]
fn a_workflow_sends_goals_only_to_agents_that_are_its_peers() {
    let world = World::new(contracts());
    assert!(world.gate.check(&name("flow"), goal("Do.").as_bytes()).is_ok());
    let other = write_goal(&name("helper"), "Do.");
    assert!(world.gate.check(&name("flow"), other.as_bytes()).is_err());
    let plain = write_goal(&name("plain"), "Do.");
    assert!(world.gate.check(&name("flow"), plain.as_bytes()).is_err());
}

#[test]
fn an_agent_cannot_continue_itself_with_a_goal() {
    let world = World::new(contracts());
    let words = world.gate.contracts.vocabulary(&name("writer")).unwrap();
    assert_eq!(words.meaning(&goal_name(&name("writer"))), None);
}

#[test]
fn the_answer_to_a_goal_ends_no_other_call() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("ask", "x"));
    world.play("writer", &[completion("done")]);
    let woken = world.play("writer", &[word("report", "r")]);
    assert_eq!(fresh(&woken), ["huh not-in-vocabulary"]);
    assert_eq!(world.result(call), "completed: report(r)");
    world.check_replay();
}

/// Contracts in which `writer` answers typed goals of `flow` with `ballot` or `secret`.
fn with_types() -> Vec<Contract> {
    let mut contracts = contracts();
    let answer = |payload| TypedAnswer { agent: name("writer"), payload };
    contracts[1].answers = names(&["ballot", "secret"]).into_iter().map(answer).collect();
    contracts
}

#[test]
fn a_goal_that_names_its_answer_is_answered_by_nothing_else() {
    let mut world = World::new(with_types());
    let (_, call) = world.open("desk", &word("plan", "p"));
    let goal = write_typed_goal(&name("writer"), "Vote.", &names(&["ballot"])[0]);
    world.play("flow", &[spawn(&goal), core("wait", "for=\"any\"", "")]);
    world.play("writer", &[completion("done")]);
    for other in ["report", "secret", "ballot"] {
        let woken = world.play("writer", &[word(other, "x")]);
        assert_eq!(fresh(&woken), ["huh not-in-vocabulary"], "before {other}");
    }
    let woken = world.play("flow", &[word("answer", "a")]);
    assert_eq!(news(&woken), ["thread-spawned", "waiting any", "thread-result completed"]);
    assert_eq!(world.result(call), "completed: answer(a)");
    world.check_replay();
}

/// A typed goal is answered in the last turn of the agent. The wrong answer is refused, and the
/// agent gets no further turn.
#[test]
fn a_last_turn_whose_final_is_refused_ends_the_call() {
    for (answer, status) in [(completion("done"), "failed"), (word("ballot", "x"), "completed")] {
        let mut world = World::new(with_types());
        world.open("desk", &word("plan", "p"));
        let goal = write_typed_goal(&name("writer"), "Vote.", &names(&["ballot"])[0]);
        world.play("flow", &[spawn(&goal), core("wait", "for=\"any\"", "")]);
        let writer = world.delivery("writer");
        let note = core("model-turn", "", "");
        let turn = Turn { note, spent: Some(Spent::AfterLastCall), ..Turn::default() };
        world.answer_turn(&writer, &[answer], Some(turn));
        let woken = world.delivery("flow");
        assert_eq!(news(&woken).last(), Some(&format!("thread-result {status}")));
        let result = woken.messages.last().unwrap().payload.as_str();
        let says = "the last turn is used up, and its payload was refused: not-in-vocabulary";
        assert_eq!(result.contains(says), status == "failed", "{result}");
        world.check_replay();
    }
}

#[test]
fn a_typed_answer_ends_no_other_call() {
    let mut world = World::new(with_types());
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[spawn(&goal("Do.")), core("wait", "for=\"any\"", "")]);
    world.play("writer", &[word("ballot", "x")]);
    let woken = world.play("writer", &[completion("done")]);
    assert_eq!(fresh(&woken), ["huh not-in-vocabulary"]);
    world.play("flow", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");

    let (_, call) = world.open("desk", &word("ask", "x"));
    world.play("writer", &[word("secret", "x")]);
    let woken = world.play("writer", &[word("report", "r")]);
    assert_eq!(fresh(&woken), ["huh not-in-vocabulary"]);
    assert_eq!(world.result(call), "completed: report(r)");
    world.check_replay();
}

#[test]
fn a_typed_answer_that_the_agent_may_also_send_a_peer_is_no_config() {
    let mut contracts = with_types();
    contracts.push(listener("booth", &["ballot"], &["found"], &[]));
    contracts[2].peers.push(name("booth"));
    let errors = organism::contract::Contracts::new(contracts).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("`writer` may both call a peer with"), "{errors:?}");
}

#[test]
fn an_agent_that_no_workflow_names_has_no_answer_to_goals() {
    let world = World::new(contracts());
    let words = |who: &str| world.gate.contracts.vocabulary(&name(who)).unwrap();
    assert!(words("writer").meaning(&goal_answer()).is_some());
    assert_eq!(words("helper").meaning(&goal_answer()), None);
}

#[test]
fn a_workflow_gets_each_refusal_and_continues() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("plan", "p"));
    let refused = write_goal(&name("helper"), "Do.");
    world.play("flow", &[refused, spawn(&goal("Do.")), core("wait", "for=\"all\"", "")]);
    world.play("writer", &[completion("done")]);
    let woken = world.play("flow", &[word("answer", "a")]);
    let told =
        ["huh not-in-vocabulary", "thread-spawned", "waiting all", "thread-result completed"];
    assert_eq!(news(&woken), told);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn an_empty_outcome_of_a_workflow_waits_for_its_threads_and_then_acknowledges() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[spawn(&goal("Do."))]);
    let asked = world.delivery_for("writer");
    world.play("flow", &[]);
    world.answer(&asked, &[completion("done")]);
    world.play("flow", &[]);
    assert_eq!(world.result(call), "completed: ack");
}

/// A world with the contracts of this file, in which each tree has these limits.
fn limited(limits: TreeLimits) -> World {
    let mut contracts = contracts();
    for contract in &mut contracts {
        contract.timeout = 1_000 * HOUR;
    }
    World::with_limits(contracts, limits)
}

const HOUR: Duration = Duration::from_secs(3600);

/// Opens a run that spawns two threads, and ends the first thread. Returns the call of the run and
/// the delivery that reports the end of the thread.
fn half_done(world: &mut World) -> (CallId, Delivery) {
    let (_, call) = world.open("desk", &word("plan", "p"));
    let wait = core("wait", "for=\"any\"", "");
    world.play("flow", &[spawn(&goal("P.")), spawn(&goal("Q.")), wait]);
    let first = world.delivery_for("writer");
    world.delivery_for("writer");
    world.answer(&first, &[completion("done")]);
    (call, world.delivery("flow"))
}

/// Lets time pass in which no alarm fires, as if the next event came first.
fn skip(world: &mut World, time: Duration) {
    world.now = world.now.plus(time);
}

#[test]
fn a_workflow_whose_tree_has_no_messages_left_ends_at_its_next_request() {
    let messages = 11;
    let mut world = limited(TreeLimits { messages, ..TreeLimits::default() });
    let (call, woken) = half_done(&mut world);
    world.answer(&woken, &[core("wait", "for=\"any\"", "")]);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert!(world.deliveries.is_empty());
    world.check_replay();
}

#[test]
fn a_workflow_whose_tree_has_no_time_left_ends_at_its_next_request() {
    let mut world = limited(TreeLimits { wall_time: HOUR, ..TreeLimits::default() });
    let (call, woken) = half_done(&mut world);
    skip(&mut world, 2 * HOUR);
    world.answer(&woken, &[core("wait", "for=\"any\"", "")]);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    assert!(world.deliveries.is_empty());
    world.check_replay();
}

#[test]
fn a_workflow_gets_no_result_that_arrives_after_the_time_of_its_tree() {
    let mut world = limited(TreeLimits { wall_time: HOUR, ..TreeLimits::default() });
    let (_, call) = world.open("desk", &word("plan", "p"));
    let wait = core("wait", "for=\"any\"", "");
    world.play("flow", &[spawn(&goal("P.")), spawn(&goal("Q.")), wait]);
    let first = world.delivery_for("writer");
    world.delivery_for("writer");
    skip(&mut world, 2 * HOUR);
    world.answer(&first, &[completion("done")]);
    assert!(world.deliveries.is_empty());

    world.pass(Duration::ZERO);
    assert_eq!(world.result(call), "failed: system-error budget-spent");
    world.check_replay();
}

#[test]
fn a_workflow_whose_tree_has_nothing_left_may_still_reply() {
    let mut world = limited(TreeLimits { wall_time: HOUR, ..TreeLimits::default() });
    let (call, woken) = half_done(&mut world);
    skip(&mut world, 2 * HOUR);
    world.answer(&woken, &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_workflow_whose_requests_are_all_refused_may_go_on() {
    for request in [word("look", "x"), core("wait", "for=\"any\"", "")] {
        let mut world = World::new(contracts());
        let (_, call) = world.open("desk", &word("plan", "p"));
        for round in 1..=50 {
            assert_eq!(world.result(call), "none", "round {round}");
            world.play("flow", std::slice::from_ref(&request));
        }
        world.play("flow", &[word("answer", "a")]);
        assert_eq!(world.result(call), "completed: answer(a)");
        world.check_replay();
    }
}

#[test]
fn a_workflow_may_go_on_however_many_of_its_threads_fail() {
    let limits = TreeLimits { children: 1_000, ..TreeLimits::default() };
    let mut world = limited(limits);
    let (_, call) = world.open("desk", &word("plan", "p"));
    for _ in 0..200 {
        world.play("flow", &[spawn(&goal("Do.")), core("wait", "for=\"any\"", "")]);
        let failed = world.delivery("writer");
        world.fail(&failed, AttemptFailure::Refused { detail: "no".to_owned() });
    }
    world.play("flow", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
fn a_workflow_may_go_on_however_many_of_its_threads_cannot_be_opened() {
    let mut world = limited(TreeLimits { children: 1, ..TreeLimits::default() });
    let (_, call) = world.open("desk", &word("plan", "p"));
    let wait = core("wait", "for=\"any\"", "");
    world.play("flow", &[spawn(&goal("Do.")), wait.clone()]);
    let failed = world.delivery("writer");
    world.fail(&failed, AttemptFailure::Refused { detail: "no".to_owned() });
    for _ in 0..200 {
        world.play("flow", &[spawn(&goal("Do.")), wait.clone()]);
    }
    let woken = world.play("flow", &[word("answer", "a")]);
    assert_eq!(fresh(&woken), ["system-error limit-reached", "system-error nothing-to-wait-for"]);
    assert_eq!(world.result(call), "completed: answer(a)");
}

#[test]
pub fn a_late_answer_to_a_goal_is_recorded_for_goals_alone() {
    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("ask", "x"));
    let asked = world.delivery("writer");
    world.cancel(&thread);
    world.answer(&asked, &[completion("done")]);
    assert_eq!(world.refusals(), ["writer not-in-vocabulary"]);
    world.check_replay();

    let mut world = World::new(contracts());
    let (thread, _) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[spawn(&goal("Do.")), core("wait", "for=\"any\"", "")]);
    let asked = world.delivery("writer");
    world.cancel(&thread);
    world.answer(&asked, &[completion("done")]);
    assert_eq!(world.refusals(), Vec::<String>::new());
    world.check_replay();
}
