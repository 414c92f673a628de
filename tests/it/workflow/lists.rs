//! Goals in lists, runs with very many goals or passes, and the order of goals and of their results
//! in documents.

use std::collections::HashSet;

use organism::clock::Time;
use organism::envelope::{Message, MessageKind, Payload};
use organism::ids::{MessageId, PayloadName, ThreadId};
use organism::workflow::*;
use organism::xml::element::Element;
use uuid::Uuid;

use super::script::{
    agent, goal, id, input, name, on_small_stack, placed, played, repeated, text, workflow, xpath,
};

fn branch(when: Option<&str>, run: &str) -> ChooseBranch {
    ChooseBranch { when: when.map(xpath), run: vec![id(run)], place: PlaceId::default() }
}

/// The target of a goal that sends an element to the listener `back`. `expression` selects the
/// element.
fn call(goal_id: &str, expression: &str) -> GoalTarget {
    let payload = Some(placed(PayloadName::new("urn:back", "order")));
    assert!(!goal_id.is_empty());
    GoalTarget::Listener {
        listener: name("back"),
        payload,
        with: Mapping::Element(text(expression)),
    }
}

fn each(items: &str, target: GoalTarget, max_items: u32) -> GoalForm {
    GoalForm::Each(Box::new(EachItem {
        items: text(items),
        target,
        max_items,
        concurrency: 8,
        on_item_failure: ItemFailure::Collect,
        verify: None,
        role: None,
    }))
}

#[test]
fn many_items_whose_call_cannot_be_made_do_not_deepen_the_stack() {
    let form = each("plan/task", call("study", "item/order"), 5_000);
    let plan = format!("plan=<plan>{}</plan>", "<task><x/></task>".repeat(5_000));
    let goals = vec![agent("plan", "x"), goal("study", form)];
    let out = on_small_stack(|| played(&workflow(goals), &[&plan]));
    assert_eq!(out.matches("name: \"failed\", item").count(), 5_000);
    assert!(!out.contains("start study"), "an item started");
}

#[test]
fn items_that_never_began_are_not_cancelled() {
    let mut form = each("plan/task", call("study", "item/order"), 20);
    if let GoalForm::Each(each) = &mut form {
        each.on_item_failure = ItemFailure::Stop;
    }
    let plan = format!("plan=<plan>{}</plan>", "<task><x/></task>".repeat(20));
    let out = played(&workflow(vec![agent("plan", "x"), goal("study", form)]), &[&plan]);
    assert_eq!(out, "start plan\nfail study: bad-expression\n");
}

#[test]
fn many_passes_without_a_goal_to_run_do_not_deepen_the_stack() {
    let goals = vec![
        repeated("again", &["pick"], "false()", 4_000, LoopEnd::Continue),
        goal("pick", GoalForm::Choose(vec![branch(Some("false()"), "never")])),
        agent("never", "x"),
        agent("end", "x"),
    ];
    let out = on_small_stack(|| played(&workflow(goals), &[]));
    assert_eq!(out, "start end\ncomplete One(Text(\"ok\"))\n");
}

#[test]
fn a_choice_waits_for_what_its_members_need() {
    let mut pick = goal("pick", GoalForm::Choose(vec![branch(None, "member")]));
    pick.needs = Some(Vec::new());
    let mut member = agent("member", "x");
    member.needs = Some(vec![id("late")]);
    let mut late = agent("late", "x");
    late.needs = Some(Vec::new());
    let out = played(&workflow(vec![pick, member, agent("end", "x"), late]), &[]);
    assert!(out.starts_with("start late\nstart member\n"), "{out}");
}

/// Plays a run in which open goals are answered in reverse order. Returns the documents that agents
/// get, by label.
fn documents(definition: &WorkflowDefinition, script: &[(&str, &str)]) -> Vec<(String, String)> {
    let (graph, _) = GoalGraph::new(definition);
    let mut run = WorkflowRun::new(definition, &graph, input());
    let mut open = Vec::new();
    let mut found = Vec::new();
    let mut event = Some(RunEvent::Started);
    while let Some(next) = event {
        for step in run.step(next) {
            if let RunStep::Start { run, label, call: GoalCall::Agent { document, .. }, .. } = step
            {
                found.push((label.clone(), document));
                open.push((run, label));
            }
        }
        event = open.pop().map(|(run, label)| {
            let answer = script.iter().find(|(known, _)| *known == label).map(|one| one.1);
            match answer {
                Some("!") => {
                    let failure = GoalFailure::new("timeout", "it failed");
                    RunEvent::Failed { run, failure, is_final: true }
                }
                answer => {
                    let output = ViewValue::Text(answer.unwrap_or("ok").to_owned());
                    RunEvent::Completed { run, output }
                }
            }
        });
    }
    found
}

#[test]
fn entries_of_parallel_goals_stand_in_the_order_of_the_file() {
    let mut second = agent("b", "x");
    second.needs = Some(Vec::new());
    let mut last = agent("c", "x");
    last.needs = Some(vec![id("b"), id("a")]);
    let found = documents(&workflow(vec![agent("a", "x"), second, last]), &[]);
    // `b` has ended before `a`.
    let labels: Vec<_> = found.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["a", "b", "c"]);
    let (_, document) = found.last().expect("c has a document");
    assert!(document.find("id=\"a\"") < document.find("id=\"b\""), "{document}");
}

#[test]
fn a_pass_holds_what_ran_in_branches_and_in_place_of_members() {
    let mut draft = agent("draft", "Write.");
    draft.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
    let goals = vec![
        repeated("improve", &["draft", "fix", "judge"], "false()", 2, LoopEnd::Continue),
        draft,
        agent("by-hand", "Write by hand after {{draft}}{{repair}}."),
        goal("fix", GoalForm::Choose(vec![branch(Some("draft = 'bad'"), "repair")])),
        agent("repair", "Repair {{draft}}."),
        agent("judge", "Judge {{draft}}|{{repair}}|{{by-hand}}."),
        agent("end", "End with {{draft}}|{{repair}}|{{by-hand}}."),
    ];
    let script =
        [("draft_1", "bad"), ("repair_1", "repaired"), ("draft_2", "!"), ("by-hand_2", "own")];
    let found = documents(&workflow(goals), &script);
    let labels: Vec<_> = found.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(
        labels,
        ["draft_1", "repair_1", "judge_1", "draft_2", "by-hand_2", "judge_2", "end"]
    );
    let document = |label: &str| {
        let found = found.iter().find(|(known, _)| known == label);
        found.map(|(_, document)| document.as_str()).unwrap_or_default()
    };
    assert!(document("by-hand_2").contains("\nWrite by hand after repaired.\n"));
    expect_test::expect![[r#"
        <workflow name="test">

        <context>
          <iteration n="1">
            <goal id="draft">
        bad
            </goal>

            <goal id="repair">
        repaired
            </goal>

            <goal id="judge">
        ok
            </goal>
          </iteration>

          <iteration n="2">
            <goal id="by-hand">
        own
            </goal>
          </iteration>
        </context>

        <current-goal id="judge" loop="improve" iteration="2">
        Judge ||own.
        </current-goal>

        </workflow>"#]]
    .assert_eq(document("judge_2"));
    expect_test::expect![[r#"
        <workflow name="test">

        <context>
          <goal id="by-hand">
        own
          </goal>

          <goal id="judge">
        ok
          </goal>
        </context>

        <current-goal id="end">
        End with ||own.
        </current-goal>

        </workflow>"#]]
    .assert_eq(document("end"));
}

#[test]
fn an_input_cannot_choose_where_a_call_goes() {
    for (payload, expected) in [
        ("<hold xmlns='urn:slow'/>", "fail back: unknown-payload\n"),
        (
            "<goal xmlns='https://xml-pipeline.org/ns/workflow/v1/agents/writer'>x</goal>",
            "fail back: unknown-payload\n",
        ),
        ("<order xmlns='urn:other'/>", "fail back: unknown-payload\n"),
        ("<order xmlns='urn:back'/>", "start back\ncomplete One(Text(\"ok\"))\n"),
    ] {
        let definition = workflow(vec![goal("back", GoalForm::Run(call("back", "input/*")))]);
        let (graph, _) = GoalGraph::new(&definition);
        let input = Element::read(&format!("<test>{payload}</test>")).expect("it is one element");
        let mut run = WorkflowRun::new(&definition, &graph, input);
        let mut out = String::new();
        let mut steps = run.step(RunEvent::Started);
        while let Some(step) = steps.pop() {
            match step {
                RunStep::Start { run: started, label, .. } => {
                    out.push_str(&format!("start {label}\n"));
                    let output = ViewValue::Text("ok".to_owned());
                    steps = run.step(RunEvent::Completed { run: started, output });
                }
                RunStep::Complete { output } => out.push_str(&format!("complete {output:?}\n")),
                RunStep::Fail { goal, failure, .. } => {
                    out.push_str(&format!("fail {goal}: {}\n", failure.code));
                }
                RunStep::Cancel { .. } => out.push_str("cancel\n"),
            }
        }
        assert_eq!(out, expected, "{payload}");
    }
}

/// Plays a goal whose input has two `line` elements. Returns the payload that the goal sends to the
/// listener `back`, or the failure of the goal.
fn sent(with: Mapping) -> String {
    let target = GoalTarget::Listener {
        listener: name("back"),
        payload: Some(placed(PayloadName::new("urn:back", "order"))),
        with,
    };
    let definition = workflow(vec![goal("back", GoalForm::Run(target))]);
    let (graph, _) = GoalGraph::new(&definition);
    let lines = "<test><line>A</line><line>B</line></test>";
    let input = Element::read(lines).expect("it is one element");
    let mut run = WorkflowRun::new(&definition, &graph, input);
    match run.step(RunEvent::Started).into_iter().next() {
        Some(RunStep::Start { call: GoalCall::Payload { payload, .. }, .. }) => payload.to_xml(),
        Some(RunStep::Fail { failure, .. }) => format!("{}: {}", failure.code, failure.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_selected_node_becomes_a_child_of_the_payload() {
    let field = |key: &str, expression: &str| {
        sent(Mapping::Fields(vec![(key.to_owned(), text(expression))]))
    };
    assert_eq!(
        field("line", "input/line"),
        "<order xmlns=\"urn:back\"><line>A</line><line>B</line></order>"
    );
    assert_eq!(field("line", "input/nothing"), "<order xmlns=\"urn:back\"/>");
    assert_eq!(
        field("line", "count(input/line)"),
        "<order xmlns=\"urn:back\"><line>2</line></order>"
    );
    assert_eq!(field("@line", "input/line[2]"), "<order xmlns=\"urn:back\" line=\"B\"/>");
}

#[test]
fn an_attribute_and_a_whole_payload_take_one_node() {
    let attribute = Mapping::Fields(vec![("@line".to_owned(), text("input/line"))]);
    assert_eq!(
        sent(attribute),
        "bad-expression: input/line selects 2 nodes, and `@line` takes one"
    );
    let whole = Mapping::Element(text("input/line"));
    assert_eq!(sent(whole), "bad-expression: input/line selects 2 nodes, and a payload is one");
}

#[test]
fn a_context_that_names_a_loop_shows_its_members() {
    let mut end = agent("end", "x");
    end.context = Some(vec![id("improve")]);
    let goals = vec![
        agent("plan", "x"),
        repeated("improve", &["draft", "judge"], "true()", 2, LoopEnd::Continue),
        agent("draft", "x"),
        agent("judge", "x"),
        end,
    ];
    let found = documents(&workflow(goals), &[]);
    let (label, document) = found.last().expect("end has a document");
    assert_eq!(label, "end");
    assert!(document.contains("<goal id=\"draft\">"), "{document}");
    assert!(document.contains("<goal id=\"judge\">"), "{document}");
    assert!(!document.contains("<goal id=\"plan\">"), "{document}");
}

#[test]
fn a_dry_run_follows_the_needs_of_goals() {
    let mut report = agent("report", "Report.");
    report.needs = Some(vec![id("scan")]);
    let mut scan = agent("scan", "Scan.");
    scan.needs = Some(Vec::new());
    let mut beside = agent("beside", "x");
    beside.needs = Some(Vec::new());

    let shown = dry_run(&workflow(vec![report, scan, beside]), &input());
    let titles: Vec<_> = shown.iter().map(|document| document.title.as_str()).collect();
    assert_eq!(titles, ["scan", "report", "beside"]);
    assert!(shown[1].text.contains("[output of scan]"), "{}", shown[1].text);
}

#[test]
fn a_key_with_a_namespace_names_a_child_of_that_namespace() {
    let fields = [
        ("{}town", "input/topic"),
        ("{urn:other}note", "input/topic"),
        ("own", "input/topic"),
        ("@{urn:a}mark", "input/topic"),
    ];
    let fields = fields.map(|(key, value)| (key.to_owned(), text(value)));
    let target = GoalTarget::Listener {
        listener: name("back"),
        payload: Some(placed(PayloadName::new("urn:back", "order"))),
        with: Mapping::Fields(fields.to_vec()),
    };
    let definition = workflow(vec![goal("back", GoalForm::Run(target))]);
    let (graph, _) = GoalGraph::new(&definition);
    let mut run = WorkflowRun::new(&definition, &graph, input());
    let steps = run.step(RunEvent::Started);
    let Some(RunStep::Start { call: GoalCall::Payload { payload, .. }, .. }) = steps.first() else {
        panic!("{steps:?}")
    };
    let children: Vec<_> = payload
        .children()
        .map(|child| (child.name.namespace().to_owned(), child.local_name().to_owned()))
        .collect();
    let pair = |namespace: &str, local: &str| (namespace.to_owned(), local.to_owned());
    assert_eq!(children, [pair("", "town"), pair("urn:other", "note"), pair("urn:back", "own")]);
    let (mark, _) = payload.attributes.first().expect("it has an attribute");
    assert_eq!(mark.namespace(), "urn:a");
}

/// A workflow with the choice `pick` between the goals `short` and `long`, and with the goal
/// `read`, whose fallback is `by-hand`. The definition lists these three goals after `pick` and
/// `read`.
fn chosen() -> WorkflowDefinition {
    let branches = vec![branch(Some("input/topic = 'x'"), "short"), branch(None, "long")];
    let mut read = agent("read", "x");
    read.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
    let mut beside = agent("beside", "x");
    beside.needs = Some(Vec::new());
    workflow(vec![
        read,
        goal("pick", GoalForm::Choose(branches)),
        agent("end", "x"),
        agent("long", "x"),
        agent("short", "x"),
        agent("by-hand", "x"),
        beside,
    ])
}

/// The phases of the goals of [`chosen`]: see [`phases_of`].
fn phases(ends: &[&str]) -> Vec<String> {
    phases_of(&chosen(), ends)
}

/// Plays a run in which one goal run after another ends, as `ends` lists them. Returns the phase of
/// each goal, in the order of the goal tree. An end names the label of an open goal run, with `!`
/// behind it if the goal fails.
fn phases_of(definition: &WorkflowDefinition, ends: &[&str]) -> Vec<String> {
    let (graph, _) = GoalGraph::new(definition);
    let mut run = WorkflowRun::new(definition, &graph, input());
    let mut steps = run.step(RunEvent::Started);
    let mut open = Vec::new();
    for end in ends {
        open.extend(steps.drain(..).filter_map(|step| match step {
            RunStep::Start { run, label, .. } => Some((run, label)),
            _ => None,
        }));
        let wanted = end.trim_end_matches('!');
        let (ended, _) = open.iter().find(|(_, label)| label == wanted).expect("it is open");
        let ended = ended.clone();
        steps = run.step(if end.ends_with('!') {
            let failure = GoalFailure::new("timeout", "it failed");
            RunEvent::Failed { run: ended, failure, is_final: true }
        } else {
            RunEvent::Completed { run: ended, output: ViewValue::Text("ok".to_owned()) }
        });
    }

    let order = graph.depth_first().into_iter();
    let phase = |(number, depth): (usize, usize)| {
        let goal = &graph.goal(number).expect("a goal").id.value;
        format!("{}{goal} {}", "  ".repeat(depth), run.status(number).0.as_str())
    };
    order.map(phase).collect()
}

#[test]
fn members_stand_beneath_their_goals_and_are_skipped_once_they_cannot_start() {
    let expected = [
        "read done",
        "  by-hand skipped",
        "pick running",
        "  short running",
        "  long skipped",
        "end waiting",
        "beside running",
    ];
    assert_eq!(phases(&["read"]), expected);
    let expected = ["read failed", "  by-hand running", "pick waiting", "  short waiting"];
    assert_eq!(phases(&["read!"])[..4], expected);
}

#[test]
fn no_goal_of_a_failed_run_waits_or_runs() {
    let expected = [
        "read done",
        "  by-hand skipped",
        "pick cancelled",
        "  short cancelled",
        "  long skipped",
        "end skipped",
        "beside cancelled",
    ];
    assert_eq!(phases(&["read", "short!"]), expected);
}

#[test]
fn a_verifier_is_cancelled_with_the_goal_whose_items_it_judges() {
    let target = GoalTarget::Agent { agent: name("writer"), prompt: text("Do {{item}}.") };
    let mut form = each("input/topic", target, 10);
    if let GoalForm::Each(each) = &mut form {
        each.verify = Some(ItemVerification { goal: id("check"), accept: text("true()") });
    }
    let mut beside = agent("beside", "x");
    beside.needs = Some(Vec::new());
    let definition = workflow(vec![goal("study", form), agent("check", "x"), beside]);

    let expected = ["study running", "  check waiting", "beside running"];
    assert_eq!(phases_of(&definition, &[]), expected);
    let expected = ["study cancelled", "  check cancelled", "beside cancelled"];
    assert_eq!(phases_of(&definition, &["beside!"]), expected);
}

/// Returns the phase of each goal, as the record of a run shows it. Reads only the request of the
/// run, so the run must end in its first outcome.
fn recorded_phases(definition: &WorkflowDefinition) -> Vec<(String, GoalPhase)> {
    let (graph, _) = GoalGraph::new(definition);
    let once = HashSet::new();
    let mut watch = RunWatch::new(definition, &graph, &once);
    watch.take(&Message {
        id: MessageId(Uuid::from_u128(1)),
        kind: MessageKind::Call,
        from: name("desk").value,
        to: name("test").value,
        thread: ThreadId::parse("sess-abcdefgh").expect("it is a thread"),
        seq: 1,
        cause: None,
        call: None,
        time: Time(0),
        name: PayloadName::new("urn:test", "test"),
        payload: Payload::new("<test><hold xmlns='urn:slow'/></test>"),
    });
    watch.goals().into_iter().map(|goal| (goal.goal.to_string(), goal.phase)).collect()
}

/// The call of a loop's member cannot be made, so the run ends in its first outcome. Both the loop
/// and the member are shown as failed.
#[test]
fn a_loop_is_shown_as_failed_with_the_member_whose_failure_ends_the_run() {
    let definition = workflow(vec![
        repeated("improve", &["back"], "true()", 2, LoopEnd::Continue),
        goal("back", GoalForm::Run(call("back", "input/*"))),
    ]);
    let failed = |goal: &str| (goal.to_owned(), GoalPhase::Failed);
    assert_eq!(recorded_phases(&definition), [failed("improve"), failed("back")]);
}

#[test]
fn a_loop_is_shown_as_failed_with_the_goal_in_place_of_its_member() {
    let mut back = goal("back", GoalForm::Run(call("back", "input/*")));
    back.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
    let definition = workflow(vec![
        repeated("improve", &["back"], "true()", 2, LoopEnd::Continue),
        back,
        goal("by-hand", GoalForm::Run(call("back", "input/*"))),
    ]);
    let failed = |goal: &str| (goal.to_owned(), GoalPhase::Failed);
    let expected = [failed("improve"), failed("back"), failed("by-hand")];
    assert_eq!(recorded_phases(&definition), expected);
}

/// A choice without a fitting branch is skipped, and the run has no output. The failure of this run
/// names its last goal, which is still shown as skipped.
#[test]
fn a_goal_that_was_skipped_is_not_shown_as_failed_if_the_run_has_no_output() {
    let definition = workflow(vec![
        goal("pick", GoalForm::Choose(vec![branch(Some("input/t = 'A'"), "branch")])),
        agent("branch", "x"),
    ]);
    let skipped = |goal: &str| (goal.to_owned(), GoalPhase::Skipped);
    assert_eq!(recorded_phases(&definition), [skipped("pick"), skipped("branch")]);
}

#[test]
fn an_item_without_children_is_the_payload_of_its_call() {
    let definition = |expression: &str| {
        let form = each("plan/order", call("study", expression), 20);
        workflow(vec![agent("plan", "x"), goal("study", form)])
    };
    let plan = "plan=<plan xmlns='urn:back'><order>x</order></plan>";
    let out = played(&definition("item"), &[plan]);
    assert!(out.contains("start study_1\n"), "{out}");

    // Of such an item, only the text stands in the place of its output.
    let out = played(&definition("item/order"), &[plan]);
    assert!(out.contains("name: \"failed\", item"), "{out}");
    assert!(out.contains("\"x\""), "{out}");
    assert!(!out.contains("\"order\""), "{out}");
}
