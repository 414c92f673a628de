//! Delegation: an agent gives a task to another agent, as often as the first agent's goal allows.

use std::time::Duration;

use organism::contract::{
    Contract, GoalDelegation, GoalRoles, delegate_failed_name, delegate_name, delegate_output_name,
    write_goal, write_goal_request,
};
use organism::envelope::AttemptFailure;
use organism::ids::PayloadName;
use organism::pump::core::RetryRuling;

use super::world::{RetriedCall, World, agent, client, core, fresh, name, word, workflow};

fn delegate_of(goal: &str) -> PayloadName {
    delegate_name(&name("flow"), goal)
}

/// Contracts in which `flow` may send goals to `lead`, `helper` and `other`. `lead` and `helper`
/// may delegate to `helper` in the goal `report`; in the goal `second`, only `lead` may.
fn contracts() -> Vec<Contract> {
    let mut flow = workflow("flow", &["plan"], &["answer"], &["lead", "helper", "other"]);
    let delegation = |agent: &str, goal: &str| GoalDelegation {
        agent: name(agent),
        payload: delegate_of(goal),
        to: name("helper"),
    };
    flow.delegations = vec![
        delegation("lead", "report"),
        delegation("helper", "report"),
        delegation("lead", "second"),
    ];
    vec![
        client("desk", &["flow", "lead", "other"]),
        flow,
        agent("lead", &["ask"], &["report"], &[]),
        agent("helper", &["count"], &["counted"], &[]),
        agent("other", &["look"], &["found"], &[]),
    ]
}

fn goal_of(agent: &str, goal: &str, max: Option<u32>) -> String {
    let roles = GoalRoles { payload: delegate_of(goal), to: name("helper"), max, depth: 2 };
    write_goal_request(&name(agent), "Do.", None, Some(&roles))
}

fn spawn(inner: &str) -> String {
    core("spawn-thread", "", &format!("<initial-payload>{inner}</initial-payload>"))
}

fn wait() -> String {
    core("wait", "for=\"any\"", "")
}

fn delegate(goal: &str, task: &str) -> String {
    format!("<delegate xmlns=\"{}\" role=\"reader\">{task}</delegate>", delegate_of(goal).namespace)
}

fn output(text: &str) -> String {
    let name = delegate_output_name();
    format!("<{0} xmlns=\"{1}\" role=\"reader\">{text}</{0}>", name.local, name.namespace)
}

fn failed() -> String {
    let name = delegate_failed_name();
    format!("<{0} xmlns=\"{1}\"><code>x</code><reason>y</reason></{0}>", name.local, name.namespace)
}

fn completion(text: &str) -> String {
    let namespace = organism::agent::NAMESPACE;
    format!(
        "<attempt_completion xmlns=\"{namespace}\"><result>{text}</result></attempt_completion>"
    )
}

/// A world in which `lead` has a goal that it may delegate `max` times.
fn with_goal(max: u32) -> (World, organism::ids::CallId) {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("plan", "p"));
    world.play("flow", &[spawn(&goal_of("lead", "report", Some(max))), wait()]);
    (world, call)
}

#[test]
fn a_goal_is_delegated_as_often_as_it_says_and_no_more() {
    let (mut world, call) = with_goal(2);
    for reply in [output("one"), failed()] {
        world.play("lead", &[delegate("report", "Read.")]);
        let asked = world.delivery("flow");
        assert_eq!(asked.messages[0].payload.as_str(), delegate("report", "Read."));
        assert_eq!(asked.messages[0].from, name("lead"));
        world.answer(&asked, &[reply]);
    }
    world.restart();

    // Failed delegations count, too.
    world.play("lead", &[delegate("report", "Once more.")]);
    let woken = world.play("lead", &[completion("done")]);
    assert_eq!(fresh(&woken), ["huh delegations-spent"]);
    assert_eq!(world.refusals(), ["lead delegations-spent"]);
    world.play("flow", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    world.check_replay();
}

/// A delegation is not retried, because only its goal can use the result, and only its goal limits
/// the number of delegations.
#[test]
fn the_retry_of_a_delegation_is_refused_with_the_reason() {
    let (mut world, _) = with_goal(2);
    let text = delegate("report", "Read.");
    world.play("lead", std::slice::from_ref(&text));
    let asked = world.delivery("flow");
    world.fail(&asked, AttemptFailure::Refused { detail: "no".to_owned() });
    let thread = asked.thread.root();
    let request = RetriedCall {
        message: asked.call.0,
        source: &thread,
        thread: &thread,
        who: "lead",
        to: Some("flow"),
        text: &text,
        key: None,
        again: true,
        unknown: false,
    };
    let ruling = world.retry(&request);
    let RetryRuling::Refused(refusal) = ruling else { panic!("{ruling:?}") };
    assert!(refusal.message.contains("only the goal can use its result"), "{refusal}");
    world.check_replay();
}

#[test]
fn delegations_of_one_turn_count_one_by_one() {
    let (mut world, _) = with_goal(2);
    world.play("lead", &[1, 2, 3].map(|task| delegate("report", &task.to_string())));
    assert_eq!(world.refusals(), ["lead delegations-spent"]);
    assert_eq!(world.deliveries.len(), 2);
    world.check_replay();
}

#[test]
pub fn what_is_delegated_further_counts_for_the_goal() {
    let (mut world, call) = with_goal(2);
    world.play("lead", &[delegate("report", "Read.")]);
    world.play("flow", &[spawn(&goal_of("helper", "report", None)), wait()]);
    world.play("helper", &[delegate("report", "Read a part.")]);
    world.play("flow", &[output("a part")]);
    world.play("helper", &[delegate("report", "Read another part.")]);
    let woken = world.play("helper", &[completion("read")]);
    assert_eq!(fresh(&woken), ["huh delegations-spent"]);
    world.play("flow", &[output("read")]);
    world.play("lead", &[delegate("report", "Read.")]);
    let woken = world.play("lead", &[completion("done")]);
    assert_eq!(fresh(&woken), ["huh delegations-spent"]);
    assert_eq!(world.refusals(), ["helper delegations-spent", "lead delegations-spent"]);
    world.play("flow", &[word("answer", "a")]);
    assert_eq!(world.result(call), "completed: answer(a)");
    world.check_replay();
}

#[test]
fn each_goal_of_an_agent_is_counted_alone() {
    let (mut world, _) = with_goal(1);
    world.play("lead", &[delegate("report", "Read.")]);
    world.play("flow", &[output("one")]);
    world.play("lead", &[completion("done")]);
    world.play("flow", &[spawn(&goal_of("lead", "report", Some(1))), wait()]);
    world.play("lead", &[delegate("report", "Read.")]);
    assert_eq!(world.refusals(), Vec::<String>::new());
    world.check_replay();
}

#[test]
fn nobody_delegates_out_of_a_goal_with_roles() {
    let refused = |world: &mut World, sender: &str, payload: String| {
        world.play(sender, &[payload]);
        world.refusals()
    };
    // In a call that is no goal.
    let mut world = World::new(contracts());
    world.open("desk", &word("ask", "x"));
    let rule = ["lead not-in-vocabulary"];
    assert_eq!(refused(&mut world, "lead", delegate("report", "Read.")), rule);

    // In a goal without roles, and in one with other roles.
    for goal in [write_goal(&name("lead"), "Do."), goal_of("lead", "second", Some(3))] {
        let mut world = World::new(contracts());
        world.open("desk", &word("plan", "p"));
        world.play("flow", &[spawn(&goal), wait()]);
        assert_eq!(refused(&mut world, "lead", delegate("report", "Read.")), rule);
        world.check_replay();
    }

    // In another thread.
    let (mut world, _) = with_goal(3);
    assert_eq!(
        refused(&mut world, "lead", spawn(&delegate("report", "Read."))),
        ["lead schema-invalid"]
    );

    let world = World::new(contracts());
    let unknown = "<nothing xmlns=\"urn:nowhere\"/>".to_owned();
    let of = |sender: &str, text: &str| {
        let refusal = world.gate.check(&name(sender), text.as_bytes()).unwrap_err();
        (refusal.rule, refusal.message)
    };
    for sender in ["desk", "other", "flow"] {
        assert_eq!(of(sender, &delegate("report", "Read.")), of(sender, &unknown), "{sender}");
    }
    // Nor does anybody but the workflow answer one.
    for sender in ["desk", "other", "lead"] {
        assert_eq!(of(sender, &output("x")), of(sender, &unknown), "{sender}");
    }
}

#[test]
fn a_goal_whose_time_is_over_takes_its_delegations_along() {
    let mut world = World::new(contracts());
    let (_, call) = world.open("desk", &word("plan", "p"));
    let goal = goal_of("lead", "report", Some(3));
    let goal = format!("<initial-payload>{goal}</initial-payload>");
    let goal = core("spawn-thread", "bound=\"true\" timeout=\"PT10S\"", &goal);
    world.play("flow", &[goal, wait()]);
    world.play("lead", &[delegate("report", "Read.")]);
    world.play("flow", &[bound(&goal_of("helper", "report", None)), wait()]);
    let helper = world.delivery("helper");

    world.pass(Duration::from_secs(11));
    assert!(world.withdrawn.contains(&helper.call), "the role works on");
    world.play("flow", &[word("answer", "without it")]);
    assert!(world.result(call).contains("without it"), "{}", world.result(call));
    assert_eq!(world.core.state().in_flight, 0);
    world.check_replay();
}

#[test]
fn a_run_that_is_cancelled_takes_its_delegations_along() {
    let (mut world, call) = with_goal(3);
    world.play("lead", &[delegate("report", "Read.")]);
    world.play("flow", &[bound(&goal_of("helper", "report", None)), wait()]);
    let root = world.delivery("helper").thread.root();
    world.cancel(&root);
    assert!(world.result(call).starts_with("cancelled"), "{}", world.result(call));
    assert_eq!(world.core.state().in_flight, 0);
    world.check_replay();
}

fn bound(inner: &str) -> String {
    let payload = format!("<initial-payload>{inner}</initial-payload>");
    core("spawn-thread", "bound=\"true\"", &payload)
}
