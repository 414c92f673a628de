//! Runs of several agents and items, their failures, and the documents of runs.

use expect_test::expect;
use organism::workflow::*;

use super::script::{agent, agents, check, goal, input, name, played, repeated, text, workflow};

#[test]
fn all_agents_count_and_one_failure_fails_the_goal() {
    let all = || {
        let agents = agents(&["judge", "critic", "judge"]);
        vec![goal("a", GoalForm::All { agents, prompt: text("x"), vote: None })]
    };
    check(
        all(),
        &["a_critic=no"],
        expect![[r#"
        start a_judge
        start a_critic
        start a_judge-2
        complete One(Several([ViewEntry { name: "judge", item: None, value: Text("ok") }, ViewEntry { name: "critic", item: None, value: Text("no") }, ViewEntry { name: "judge-2", item: None, value: Text("ok") }]))
    "#]],
    );
    check(
        all(),
        &["a_judge!timeout"],
        expect![[r#"
        start a_judge
        start a_critic
        start a_judge-2
        cancel a_critic
        cancel a_judge-2
        fail a: timeout
    "#]],
    );
}

#[test]
fn the_first_output_counts_and_the_others_are_cancelled() {
    let first = || {
        let agents = agents(&["optimist", "critic"]);
        vec![goal("a", GoalForm::First { agents, prompt: text("x") })]
    };
    check(
        first(),
        &["a_optimist=yes"],
        expect![[r#"
        start a_optimist
        start a_critic
        cancel a_critic
        complete One(Text("yes"))
    "#]],
    );
    check(
        first(),
        &["a_optimist!timeout", "a_critic=no"],
        expect![[r#"
        start a_optimist
        start a_critic
        complete One(Text("no"))
    "#]],
    );
    check(
        first(),
        &["a_optimist!timeout", "a_critic!refused"],
        expect![[r#"
        start a_optimist
        start a_critic
        fail a: refused
    "#]],
    );
}

#[test]
fn a_vote_needs_a_strict_majority_of_all_voters() {
    let vote = || {
        let agents = agents(&["r", "r", "r", "r"]);
        vec![goal(
            "a",
            GoalForm::All { agents, prompt: text("x"), vote: Some(text("last-line(.)")) },
        )]
    };
    check(
        vote(),
        &["a_r=first\nyes", "a_r-2=no", "a_r-3=YES", "a_r-4=yes"],
        expect![[r#"
        start a_r
        start a_r-2
        start a_r-3
        start a_r-4
        complete One(Text("first\nyes"))
    "#]],
    );
    check(
        vote(),
        &["a_r=yes", "a_r-2=yes", "a_r-3!timeout", "a_r-4=no"],
        expect![[r#"
        start a_r
        start a_r-2
        start a_r-3
        start a_r-4
        fail a: no-majority
    "#]],
    );
}

#[test]
fn a_vote_without_a_majority_is_repeated_as_often_as_retry_allows() {
    let vote = |retry| {
        let agents = agents(&["r", "s"]);
        let by = text("has-word(., 'yes')");
        let form = GoalForm::All { agents, prompt: text("x"), vote: Some(by) };
        vec![GoalDefinition { retry, ..goal("a", form) }]
    };
    check(
        vote(1),
        &["a_r=yes", "a_s=no", "a_r!timeout", "a_r=no", "a_s=no"],
        expect![[r#"
        start a_r
        start a_s
        start a_r
        start a_s
        start a_r
        complete One(Text("no"))
    "#]],
    );
    check(
        vote(1),
        &["a_r=yes", "a_s=no", "a_r=no", "a_s=yes"],
        expect![[r#"
        start a_r
        start a_s
        start a_r
        start a_s
        fail a: no-majority
    "#]],
    );
    check(
        vote(1),
        &["a_r=yes", "a_s!denied", "a_s!denied"],
        expect![[r#"
        start a_r
        start a_s
        start a_s
        fail a: no-majority
    "#]],
    );
}

/// The word of one reviewer is found in the texts of all reviewers. These texts stay separate,
/// although nothing stands between their elements.
#[test]
fn a_loop_goes_on_while_one_of_several_reviewers_writes_the_word() {
    let reviews = |until: &str| {
        let agents = agents(&["critic", "lead"]);
        vec![
            repeated("improve", &["draft", "reviews"], until, 2, LoopEnd::Continue),
            agent("draft", "Write."),
            goal("reviews", GoalForm::All { agents, prompt: text("Review."), vote: None }),
        ]
    };
    for until in [
        "not(has-word(reviews, 'REVISE'))",
        "not(has-word(reviews/*, 'REVISE'))",
        "count(reviews/*[last-line(.) = 'revise']) = 0",
    ] {
        for script in [
            ["reviews_critic_1=It is wrong.\nREVISE", "reviews_lead_1=Fine."],
            ["reviews_critic_1=Fine.", "reviews_lead_1=REVISE"],
        ] {
            let found = played(&workflow(reviews(until)), &script);
            assert!(found.contains("start draft_2\n"), "{until} {script:?}: {found}");
            assert!(!found.contains("start draft_3\n"), "{until} {script:?}: {found}");
        }
    }
}

fn each(on_item_failure: ItemFailure, concurrency: u32, max_items: u32) -> Vec<GoalDefinition> {
    let each = EachItem {
        items: text("plan/task"),
        target: GoalTarget::Agent { agent: name("writer"), prompt: text("Do {{item}}.") },
        max_items,
        concurrency,
        on_item_failure,
        verify: None,
        role: None,
    };
    vec![agent("plan", "x"), goal("study", GoalForm::Each(Box::new(each)))]
}

const PLAN: &str = "plan=<plan><task>a</task><task>b</task><task>c</task></plan>";

#[test]
fn items_run_at_once_as_far_as_concurrency_goes() {
    check(
        each(ItemFailure::Stop, 2, 10),
        &[PLAN, "study_2=two"],
        expect![[r#"
        start plan
        start study_1
        start study_2
        start study_3
        complete One(Several([ViewEntry { name: "item", item: Some(0), value: Text("ok") }, ViewEntry { name: "item", item: Some(1), value: Text("two") }, ViewEntry { name: "item", item: Some(2), value: Text("ok") }]))
    "#]],
    );
}

#[test]
fn a_failed_item_stops_is_skipped_or_collected() {
    for (policy, expected) in [
        (
            ItemFailure::Stop,
            expect![[r#"
            start plan
            start study_1
            start study_2
            start study_3
            cancel study_3
            fail study: timeout
        "#]],
        ),
        (
            ItemFailure::Skip,
            expect![[r#"
            start plan
            start study_1
            start study_2
            start study_3
            complete One(Several([ViewEntry { name: "item", item: Some(0), value: Text("ok") }, ViewEntry { name: "item", item: Some(2), value: Text("ok") }]))
        "#]],
        ),
        (
            ItemFailure::Collect,
            expect![[r#"
            start plan
            start study_1
            start study_2
            start study_3
            complete One(Several([ViewEntry { name: "item", item: Some(0), value: Text("ok") }, ViewEntry { name: "failed", item: Some(1), value: Payload(Element { name: QName { namespace: None, local: "failed" }, attributes: [(QName { namespace: None, local: "n" }, "2"), (QName { namespace: None, local: "code" }, "timeout")], content: [Text("b")], verbatim: None, origin: ElementOrigin { tag: 0..0, end: 0, scope: None } }) }, ViewEntry { name: "item", item: Some(2), value: Text("ok") }]))
        "#]],
        ),
    ] {
        check(each(policy, 3, 10), &[PLAN, "study_2!timeout"], expected);
    }
}

#[test]
fn an_empty_list_completes_and_a_long_one_fails() {
    check(
        each(ItemFailure::Stop, 2, 10),
        &["plan=<plan><x/></plan>"],
        expect![[r#"
        start plan
        complete One(Several([]))
    "#]],
    );
    check(
        each(ItemFailure::Stop, 2, 2),
        &[PLAN],
        expect![[r#"
        start plan
        fail study: too-many-items
    "#]],
    );
}

#[test]
fn the_document_of_a_second_pass_holds_the_first_one() {
    let definition = workflow(vec![
        agent("outline", "Outline {{input/topic}}."),
        repeated("improve", &["draft", "critique"], "false()", 2, LoopEnd::Continue),
        agent("draft", "Write."),
        agent("critique", "Judge {{draft}}."),
    ]);
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    let mut steps = run.step(RunEvent::Started);
    let mut last = String::new();
    for output in ["the outline", "first draft", "REVISE", "second draft"] {
        let Some(RunStep::Start { run: started, .. }) = steps.pop() else {
            panic!("it starts a goal")
        };
        let output = ViewValue::Text(output.to_owned());
        steps = run.step(RunEvent::Completed { run: started, output });
        if let Some(RunStep::Start { call: GoalCall::Agent { document, .. }, .. }) = steps.last() {
            last.clone_from(document);
        }
    }

    expect![[r#"
        <workflow name="test">

        <context>
          <goal id="outline">
        the outline
          </goal>

          <iteration n="1">
            <goal id="draft">
        first draft
            </goal>

            <goal id="critique">
        REVISE
            </goal>
          </iteration>

          <iteration n="2">
            <goal id="draft">
        second draft
            </goal>
          </iteration>
        </context>

        <current-goal id="critique" loop="improve" iteration="2">
        Judge second draft.
        </current-goal>

        </workflow>"#]]
    .assert_eq(&last);
}

#[test]
fn a_result_that_comes_twice_has_no_second_effect() {
    let definition = workflow(vec![agent("a", "x"), agent("b", "x")]);
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    let steps = run.step(RunEvent::Started);
    let Some(RunStep::Start { run: started, .. }) = steps.first() else {
        panic!("it starts a goal")
    };
    let completed =
        RunEvent::Completed { run: started.clone(), output: ViewValue::Text("x".to_owned()) };
    assert_eq!(run.step(completed.clone()).len(), 1);
    assert_eq!(run.step(completed), []);
}
