//! Runs whose outputs have to pass a review, and runs whose time is limited.

use std::time::Duration;

use expect_test::expect;
use organism::contract::{GoalRoles, delegate_name};
use organism::workflow::*;
use organism::xml::element::Element;

use super::definition;
use super::script::{agent, check, goal, id, input, name, text, workflow};

/// Goals of a workflow. `study` handles each item of `plan`, and `check` has to accept each output.
fn verified(retry: u32, on_item_failure: ItemFailure) -> Vec<GoalDefinition> {
    let each = EachItem {
        items: text("plan/task"),
        target: GoalTarget::Agent { agent: name("writer"), prompt: text("Do {{item}}.") },
        max_items: 10,
        concurrency: 2,
        on_item_failure,
        verify: Some(ItemVerification {
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

/// Collects the document and the label of each goal that these steps start.
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
        ("plan", ViewValue::Payload(Box::new(Element::read(plan).unwrap()))),
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

#[test]
fn a_goal_with_roles_says_which_agent_takes_them_how_often_and_how_deep() {
    let definition = definition("research");
    let (graph, _) = GoalGraph::new(&definition);
    let input = Element::local("research").with_child(Element::local("question").with_text("x"));
    let mut run = WorkflowRun::new(&definition, &graph, input);
    let mut steps = run.step(RunEvent::Started);
    let plan = ViewValue::Payload(Box::new(Element::read("<plan/>").unwrap()));
    let mut seen = Vec::new();
    for output in [plan, of_text("done")] {
        let [RunStep::Start { run: started, label, call, .. }] = steps.as_slice() else {
            panic!("{steps:?}");
        };
        let GoalCall::Agent { roles, .. } = call else { panic!("{call:?}") };
        seen.push((label.clone(), roles.clone()));
        let event = RunEvent::Completed { run: started.clone(), output };
        steps = run.step(event);
    }
    let roles = GoalRoles {
        payload: delegate_name(&name("research").value, "report"),
        to: name("specialist").value,
        max: Some(3),
        depth: 1,
    };
    assert_eq!(seen, [("plan".to_owned(), None), ("report".to_owned(), Some(roles))]);
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
        let output =
            Element::read(output).map(Box::new).map_or_else(|| of_text(output), ViewValue::Payload);
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

/// A goal whose output `lead` judges, with at most one correction.
fn supervised(form: GoalForm) -> GoalDefinition {
    let supervision = Supervision {
        supervisor: name("lead"),
        is_human: false,
        supervise: "Look for gaps.".to_owned(),
        corrections: 1,
    };
    GoalDefinition { supervision: Some(supervision), ..goal("draft", form) }
}

fn by_writer() -> GoalForm {
    GoalForm::Run(GoalTarget::Agent { agent: name("writer"), prompt: text("Write.") })
}

const CONTINUE: &str =
    "draft_supervisor=<verdict><decision>continue</decision><text>Fine.</text></verdict>";
const CORRECT: &str =
    "draft_supervisor=<verdict><decision>correct</decision><text>Say more.</text></verdict>";
const STOP: &str = "draft_supervisor=<verdict><decision>stop</decision></verdict>";

#[test]
fn a_supervised_output_counts_is_corrected_or_fails() {
    check(
        vec![supervised(by_writer())],
        &["draft=one", CORRECT, "draft=two", CONTINUE],
        expect![[r#"
        start draft
        start draft_supervisor
        start draft
        start draft_supervisor
        complete One(Text("two"))
    "#]],
    );
    for (verdicts, code) in [
        (vec![CORRECT, CORRECT], "corrections-spent"),
        (vec![STOP], "stopped"),
        (vec!["draft_supervisor=Fine."], "bad-answer"),
        (vec!["draft_supervisor!timeout"], "timeout"),
    ] {
        let definition = workflow(vec![supervised(by_writer()), agent("next", "x")]);
        let played = super::script::played(&definition, &verdicts);
        assert!(played.ends_with(&format!("fail draft: {code}\n")), "{verdicts:?}: {played}");
    }
}

#[test]
fn a_corrected_goal_has_its_retries_again_and_the_policy_comes_last() {
    let mut first = supervised(by_writer());
    first.retry = 1;
    first.on_failure = Some(FailurePolicy::Skip);
    check(
        vec![first, agent("next", "x")],
        &["draft!timeout", "draft=one", CORRECT, "draft!timeout", "draft=two", STOP],
        expect![[r#"
        start draft
        start draft
        start draft_supervisor
        start draft
        start draft
        start draft_supervisor
        start next
        complete One(Text("ok"))
    "#]],
    );
}

#[test]
fn agents_at_once_are_judged_and_corrected_together() {
    let agents = super::script::agents(&["writer", "critic"]);
    let all = GoalForm::All { agents, prompt: text("Write."), vote: None };
    check(
        vec![supervised(all)],
        &[CORRECT, "draft_critic=no", CONTINUE],
        expect![[r#"
        start draft_writer
        start draft_critic
        start draft_supervisor
        start draft_writer
        start draft_critic
        start draft_supervisor
        complete One(Several([ViewEntry { name: "writer", item: None, value: Text("ok") }, ViewEntry { name: "critic", item: None, value: Text("ok") }]))
    "#]],
    );
}

#[test]
fn a_supervisor_of_items_judges_each_alone_and_after_its_verification() {
    let mut goals = verified(0, ItemFailure::Collect);
    let supervision = supervised(by_writer()).supervision;
    goals[1].supervision = supervision;
    let correct = CORRECT.replace("draft_", "study_2_");
    let go_on = CONTINUE.replace("draft_", "study_1_");
    let stop = STOP.replace("draft_", "study_2_");
    let sound = ["check_1=sound", "check_2=sound", "check_2=sound"];
    let mut script = vec![PLAN, &correct, &go_on, &stop];
    script.extend(sound);
    check(
        goals,
        &script,
        expect![[r#"
        start plan
        start study_1
        start study_2
        start check_1
        start check_2
        start study_1_supervisor
        start study_2_supervisor
        start study_2
        start check_2
        start study_2_supervisor
        complete One(Several([ViewEntry { name: "item", item: Some(0), value: Text("ok") }, ViewEntry { name: "failed", item: Some(1), value: Payload(Element { name: QName { namespace: None, local: "failed" }, attributes: [(QName { namespace: None, local: "n" }, "2"), (QName { namespace: None, local: "code" }, "stopped")], content: [Text("b")], verbatim: None, origin: ElementOrigin { tag: 0..0, end: 0, scope: None } }) }]))
    "#]],
    );
}

// C1
#[test]
fn the_document_of_a_correction_is_that_of_the_golden_file() {
    let prompt = "Review code for bugs and security issues.";
    let mut goals = vec![agent("scan", "Scan."), agent("review", prompt)];
    goals[1].supervision = supervised(by_writer()).supervision;
    let mut definition = workflow(goals);
    definition.name = name("code-review");
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    let correction = "<verdict><decision>correct</decision><text>Focus specifically on SQL \
                      injection in /src/db/. Prioritize this over style issues.</text></verdict>";
    let outputs = [
        of_text("Found 15 Go files in /src/..."),
        of_text("All is well."),
        ViewValue::Payload(Box::new(Element::read(correction).unwrap())),
    ];
    let mut started = Vec::new();
    documents(&run.step(RunEvent::Started), &mut started);
    for output in outputs {
        let (next, _, _) = started.last().cloned().unwrap();
        documents(&run.step(RunEvent::Completed { run: next, output }), &mut started);
    }

    let (_, label, judged) = &started[2];
    assert_eq!(label, "review_supervisor");
    expect![[r#"
        <workflow name="code-review">

        <context>
          <goal id="scan">
        Found 15 Go files in /src/...
          </goal>

          <goal id="review">
        All is well.
          </goal>
        </context>

        <current-goal id="review[supervisor]">
        Review code for bugs and security issues.

        Look for gaps.
        </current-goal>

        </workflow>"#]]
    .assert_eq(judged);
    let (_, label, corrected) = &started[3];
    assert_eq!(label, "review");
    let golden = include_str!("../../data/workflow/correction.xml");
    assert_eq!(format!("{corrected}\n"), golden);
}

fn judge(prompt: &str) -> GoalCondition {
    GoalCondition::Judge { agent: name("judge"), prompt: text(prompt) }
}

#[test]
fn a_judge_decides_when_a_loop_ends() {
    let looped = |max| {
        let members = vec![id("draft")];
        let until = judge("Is {{draft}} done?");
        let form = GoalForm::Loop { members, until, max, at_max: LoopEnd::Fail };
        vec![goal("improve", form), agent("draft", "Write."), agent("end", "x")]
    };
    check(
        looped(3),
        &[
            "improve_1_judge=<judgement>no</judgement>",
            "improve_2_judge=<judgement>yes</judgement>",
        ],
        expect![[r#"
        start draft_1
        start improve_1_judge
        start draft_2
        start improve_2_judge
        start end
        complete One(Text("ok"))
    "#]],
    );
    for (max, answer, code) in [
        (1, "improve_1_judge=<judgement>no</judgement>", "iterations-spent"),
        (3, "improve_1_judge=perhaps", "bad-answer"),
        (3, "improve_1_judge!refused", "refused"),
    ] {
        let played = super::script::played(&workflow(looped(max)), &[answer]);
        assert!(played.ends_with(&format!("fail improve: {code}\n")), "{answer}: {played}");
    }
}

#[test]
fn judges_decide_between_branches_in_order() {
    let branch =
        |when, run: &str| ChooseBranch { when, run: vec![id(run)], place: PlaceId::default() };
    let branches = vec![
        branch(Some(judge("A?")), "a"),
        branch(Some(super::script::xpath("false()")), "b"),
        branch(Some(judge("C?")), "c"),
    ];
    let goals = || {
        let members = ["a", "b", "c"].map(|member| agent(member, "x"));
        [goal("which", GoalForm::Choose(branches.clone()))].into_iter().chain(members).collect()
    };
    let no = "which_judge=<judgement>no</judgement>";
    check(
        goals(),
        &[no, "which_judge=<judgement>yes</judgement>"],
        expect![[r#"
        start which_judge
        start which_judge
        start c
        complete One(Text("ok"))
    "#]],
    );
    check(
        goals(),
        &[no, no],
        expect![[r#"
        start which_judge
        start which_judge
        fail c: no-output
    "#]],
    );
}

#[test]
fn the_passes_of_a_loop_do_not_deepen_the_stack() {
    // Its only member is always skipped, so that no pass waits for anything.
    let never = ChooseBranch {
        when: Some(super::script::xpath("false()")),
        run: vec![id("draft")],
        place: PlaceId::default(),
    };
    let goals = vec![
        super::script::repeated("improve", &["which"], "false()", 4_000, LoopEnd::Continue),
        goal("which", GoalForm::Choose(vec![never])),
        agent("draft", "x"),
        agent("end", "x"),
    ];
    let run = || super::script::played(&workflow(goals), &[]);
    assert_eq!(super::script::on_small_stack(run), "start end\ncomplete One(Text(\"ok\"))\n");
}
