//! Runs: the order of goals, loops and choices.

use expect_test::expect;
use organism::workflow::*;

use super::script::{agent, check, goal, id, name, repeated, text, xpath};

#[test]
fn goals_run_in_the_order_of_the_file() {
    check(
        vec![agent("a", "x"), agent("b", "x")],
        &["b=done"],
        expect![[r#"
        start a
        start b
        complete One(Text("done"))
    "#]],
    );
}

#[test]
fn goals_without_needs_start_at_once() {
    let mut second = agent("b", "x");
    second.needs = Some(Vec::new());
    let mut last = agent("c", "x");
    last.needs = Some(vec![id("a"), id("b")]);
    check(
        vec![agent("a", "x"), second, last],
        &[],
        expect![[r#"
        start a
        start b
        start c
        complete One(Text("ok"))
    "#]],
    );
}

#[test]
fn a_failed_goal_is_retried_and_then_stops_the_run() {
    let mut first = agent("a", "x");
    first.retry = 1;
    check(
        vec![first.clone(), agent("b", "x")],
        &["a!timeout", "a=second"],
        expect![[r#"
        start a
        start a
        start b
        complete One(Text("ok"))
    "#]],
    );
    check(
        vec![first, agent("b", "x")],
        &["a!timeout", "a!timeout"],
        expect![[r#"
        start a
        start a
        fail a: timeout
    "#]],
    );
}

#[test]
fn a_failed_goal_is_skipped_or_replaced_as_its_policy_says() {
    let mut first = agent("a", "x");
    first.on_failure = Some(FailurePolicy::Skip);
    check(
        vec![first, agent("b", "x")],
        &["a!timeout"],
        expect![[r#"
        start a
        start b
        complete One(Text("ok"))
    "#]],
    );

    let mut first = agent("a", "x");
    first.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
    let goals = vec![first, agent("by-hand", "x"), agent("b", "x")];
    check(
        goals,
        &["a!timeout"],
        expect![[r#"
        start a
        start by-hand
        start b
        complete One(Text("ok"))
    "#]],
    );
}

#[test]
fn a_loop_runs_until_its_condition_holds() {
    let goals = vec![
        repeated(
            "improve",
            &["draft", "critique"],
            "last-line(critique) = 'publish'",
            3,
            LoopEnd::Fail,
        ),
        agent("draft", "x"),
        agent("critique", "x"),
        agent("end", "x"),
    ];
    check(
        goals.clone(),
        &["critique_1=REVISE", "critique_2=PUBLISH."],
        expect![[r#"
        start draft_1
        start critique_1
        start draft_2
        start critique_2
        start end
        complete One(Text("ok"))
    "#]],
    );
    check(
        goals,
        &[],
        expect![[r#"
        start draft_1
        start critique_1
        start draft_2
        start critique_2
        start draft_3
        start critique_3
        fail improve: iterations-spent
    "#]],
    );
}

/// An `each` whose list is empty. It ends at once.
fn empty(goal_id: &str) -> GoalDefinition {
    let target = GoalTarget::Agent { agent: name("writer"), prompt: text("x") };
    let each = EachItem {
        items: text("input/none"),
        target,
        max_items: 1,
        concurrency: 1,
        on_item_failure: ItemFailure::Stop,
        verify: None,
        role: None,
    };
    goal(goal_id, GoalForm::Each(Box::new(each)))
}

#[test]
fn a_failed_run_begins_no_further_pass_of_a_loop() {
    let after_first = |goal_id, members: &[&str], max| {
        let mut repeated = repeated(goal_id, members, "false()", max, LoopEnd::Fail);
        repeated.needs = Some(vec![id("a")]);
        repeated
    };
    // In the first pass of `other`, `list` has no output yet, so `late` does not run.
    let branch = ChooseBranch {
        when: Some(xpath("list")),
        run: vec![id("late")],
        place: PlaceId::default(),
    };
    check(
        vec![
            agent("a", "x"),
            after_first("short", &["nothing"], 2),
            empty("nothing"),
            after_first("other", &["pick", "list"], 3),
            goal("pick", GoalForm::Choose(vec![branch])),
            agent("late", "x"),
            empty("list"),
        ],
        &[],
        expect![[r#"
        start a
        fail short: iterations-spent
    "#]],
    );
}

#[test]
fn the_fallback_of_a_loop_runs_in_no_pass() {
    let mut improve = repeated("improve", &["draft"], "false()", 2, LoopEnd::Fail);
    improve.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
    check(
        vec![improve, agent("draft", "x"), agent("by-hand", "x")],
        &[],
        expect![[r#"
        start draft_1
        start draft_2
        start by-hand
        complete One(Text("ok"))
    "#]],
    );
}

#[test]
fn a_loop_that_may_continue_ends_with_its_last_pass() {
    let goals =
        vec![repeated("improve", &["draft"], "false()", 2, LoopEnd::Continue), agent("draft", "x")];
    check(
        goals,
        &["draft_2=last"],
        expect![[r#"
        start draft_1
        start draft_2
        complete One(Text("last"))
    "#]],
    );
}

#[test]
fn a_choice_runs_the_first_branch_that_matches() {
    let branch = |when: Option<&str>, run: &str| ChooseBranch {
        when: when.map(xpath),
        run: vec![id(run)],
        place: PlaceId::default(),
    };
    let choose = |branches: Vec<ChooseBranch>| {
        vec![
            agent("a", "x"),
            goal("choose", GoalForm::Choose(branches)),
            agent("b", "x"),
            agent("c", "x"),
        ]
    };
    let both = vec![branch(Some("a = 'x'"), "b"), branch(None, "c")];
    check(
        choose(both.clone()),
        &["a=x"],
        expect![[r#"
        start a
        start b
        fail c: no-output
    "#]],
    );
    check(
        choose(both),
        &["a=y"],
        expect![[r#"
        start a
        start c
        complete One(Text("ok"))
    "#]],
    );
    let one = vec![branch(Some("a = 'x'"), "b"), branch(Some("a = 'z'"), "c")];
    check(
        choose(one),
        &["a=y"],
        expect![[r#"
        start a
        fail c: no-output
    "#]],
    );
}
