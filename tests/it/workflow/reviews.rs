//! Runs whose outputs have to pass a review, and runs whose time ends.

use std::time::Duration;

use expect_test::expect;
use organism::workflow::*;
use organism::xml::element::Element;

use super::definition;
use super::script::{agent, check, goal, id, input, name, text, workflow};

/// Items of `plan` whose outputs `check` has to accept.
fn verified(retry: u32, on_item_failure: ItemFailure) -> Vec<GoalDefinition> {
    let each = EachItem {
        items: text("plan/task"),
        target: GoalTarget::Agent { agent: name("writer"), prompt: text("Do {{item}}.") },
        max_items: 10,
        concurrency: 2,
        on_item_failure,
        verify: Some(ItemCheck {
            goal: id("check"),
            accept: text("last-line(check) = 'sound' and item != 'c'"),
        }),
        role: None,
    };
    let mut study = goal("study", GoalForm::Each(Box::new(each)));
    study.retry = retry;
    vec![agent("plan", "x"), study, agent("check", "Judge {{study}} of {{item}}.")]
}

const PLAN: &str = "plan=<plan><task>a</task><task>b</task></plan>";

#[test]
fn an_item_that_is_not_accepted_runs_again_and_fails_after_its_retries() {
    check(
        verified(1, ItemFailure::Collect),
        &[
            PLAN,
            "check_1=SOUND",
            "check_2=UNSOUND",
            "study_2=again",
            "check_2=Sound.",
            "study_1=one",
            "study_2=two",
        ],
        expect![[r#"
        start plan
        start study_1
        start study_2
        start check_1
        start check_2
        start study_2
        start check_2
        complete One(Several([ViewEntry { name: "item", item: Some(0), value: Text("one") }, ViewEntry { name: "item", item: Some(1), value: Text("two") }]))
    "#]],
    );
    check(
        verified(0, ItemFailure::Stop),
        &[PLAN, "check_1=UNSOUND"],
        expect![[r#"
        start plan
        start study_1
        start study_2
        start check_1
        start check_2
        cancel check_2
        fail study: not-accepted
    "#]],
    );
}

#[test]
fn a_verification_that_fails_is_retried_and_then_fails_its_item() {
    let mut goals = verified(3, ItemFailure::Stop);
    goals[2].retry = 1;
    check(
        goals,
        &["plan=<plan><task>a</task></plan>", "check_1!timeout", "check_1!refused"],
        expect![[r#"
        start plan
        start study_1
        start check_1
        start check_1
        fail study: refused
    "#]],
    );
}

#[test]
fn a_condition_that_is_no_xpath_fails_the_item() {
    let mut goals = verified(0, ItemFailure::Stop);
    let GoalForm::Each(each) = &mut goals[1].form else { panic!("it runs for each item") };
    each.verify.as_mut().unwrap().accept = text("last-line(");
    check(
        goals,
        &["plan=<plan><task>a</task></plan>"],
        expect![[r#"
        start plan
        start study_1
        start check_1
        fail study: bad-expression
    "#]],
    );
}

/// The document of each run that has started, by its label.
fn documents(steps: &[RunStep], into: &mut Vec<(GoalRun, String, String)>) {
    for step in steps {
        let RunStep::Start { run, label, call, .. } = step else { continue };
        let GoalCall::Agent { document, .. } = call else { panic!("{label} is an agent's") };
        into.push((run.clone(), label.clone(), document.clone()));
    }
}

// C5
#[test]
fn the_documents_of_verified_items_are_those_of_the_golden_file() {
    let definition = definition("research");
    let (graph, _) = GoalGraph::new(&definition);
    let question = "May a client forge the sender of a message?";
    let input =
        Element::local("research").with_child(Element::local("question").with_text(question));
    let mut run = WorkflowRun::new(&definition, &graph, input);
    let plan = "<plan><task><role>gate reader</role><find>Where does the gate set the sender?</find>\
                </task>\n<task><role>\"NATS\" reader</role><find>What can a listener publish?</find>\
                </task></plan>";
    let mut outputs = vec![
        ("plan", ViewValue::Payload(Element::read(plan).unwrap())),
        (
            "study_1",
            of_text("The pump stamps the sender from the connection (src/pump/core/step.rs:41)."),
        ),
        ("study_2", of_text("Each listener has subjects of its own (docs/NATS.md:12).")),
        ("check_1", of_text("SOUND")),
        (
            "check_2",
            of_text("There is no docs/NATS.md. Cite the file that states the subjects.\nUNSOUND"),
        ),
        (
            "study_2",
            of_text("A listener publishes only to its own subjects (docs/PROTOCOL.md:12)."),
        ),
        ("check_2", of_text("SOUND")),
    ];

    let mut started = Vec::new();
    documents(&run.step(RunEvent::Started), &mut started);
    let mut open = started.clone();
    while let Some((next, label, _)) = (!open.is_empty()).then(|| open.remove(0)) {
        let Some(at) = outputs.iter().position(|(of, _)| *of == label) else { break };
        let (_, output) = outputs.remove(at);
        let mut more = Vec::new();
        documents(&run.step(RunEvent::Completed { run: next, output }), &mut more);
        open.extend(more.clone());
        started.extend(more);
    }
    assert!(outputs.is_empty(), "{outputs:?}");

    let of = |label: &str, nth: usize| {
        let mut all = started.iter().filter(|(_, one, _)| one == label);
        all.nth(nth).map(|(_, _, document)| document.as_str()).unwrap_or_default()
    };
    let written = format!(
        "== plan\n{}\n== study, item 1\n{}\n== check, item 2\n{}\n== study, item 2, second run \
         after UNSOUND\n{}\n== report\n{}\n",
        of("plan", 0),
        of("study_1", 0),
        of("check_2", 0),
        of("study_2", 1),
        of("report", 0)
    );
    let golden = include_str!("../../data/workflow/research.documents");
    let golden = golden.split("== delegated by report").next().unwrap();
    assert_eq!(written, golden);
}

fn of_text(text: &str) -> ViewValue {
    ViewValue::Text(text.to_owned())
}

#[test]
fn the_time_of_a_run_ends_it_whatever_its_goals_would_do() {
    let mut goals = vec![agent("a", "x"), agent("b", "x")];
    goals[1].needs = Some(Vec::new());
    goals[1].on_failure = Some(FailurePolicy::Skip);
    let definition = workflow(goals);
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    assert_eq!(run.step(RunEvent::Started).len(), 2);
    let steps = run.step(RunEvent::TimeOver { limit: Duration::from_secs(5) });
    let failed = steps.iter().find_map(|step| match step {
        RunStep::Fail { goal, failure, .. } => Some((goal.as_str(), failure.code.as_str())),
        _ => None,
    });
    assert_eq!(failed, Some(("b", "timeout")));
    assert_eq!(steps.iter().filter(|step| matches!(step, RunStep::Cancel { .. })).count(), 2);
    assert!(run.is_over());
}

#[test]
fn a_run_of_a_goal_has_the_limits_of_its_goal_and_a_verification_its_own() {
    let mut goals = verified(0, ItemFailure::Stop);
    goals[1].timeout = Some(Duration::from_secs(60));
    goals[2].budget.tokens = Some(500);
    let definition = workflow(goals);
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    let mut steps = run.step(RunEvent::Started);
    let mut seen = Vec::new();
    for output in ["<plan><task>a</task></plan>", "<found/>", "SOUND"] {
        let Some(RunStep::Start { run: started, label, limits, .. }) = steps.pop() else {
            panic!("it starts a goal")
        };
        seen.push(format!("{label} {:?} {:?}", limits.timeout, limits.budget.tokens));
        let output = Element::read(output).map_or_else(|| of_text(output), ViewValue::Payload);
        steps = run.step(RunEvent::Completed { run: started, output });
    }
    assert_eq!(seen, ["plan None None", "study_1 Some(60s) None", "check_1 None Some(500)"]);
}

#[test]
fn items_that_all_fail_are_collected_however_many_they_are() {
    let task = "<task/>".repeat(600);
    let mut goals = verified(0, ItemFailure::Collect);
    let GoalForm::Each(each) = &mut goals[1].form else { panic!("it runs for each item") };
    each.max_items = 600;
    each.verify = None;
    // No call can be made for any of the items.
    each.target = GoalTarget::Listener {
        listener: name("back"),
        payload: None,
        with: Mapping::Element(text("item/nothing")),
    };
    goals.truncate(2);
    let definition = workflow(goals);
    let plan = format!("plan=<plan>{task}</plan>");
    let played = super::script::played(&definition, &[&plan]);
    assert_eq!(played.matches("bad-expression").count(), 600, "{played}");
}
