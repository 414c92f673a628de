//! Small workflow definitions, each run by a script of events.

use std::collections::VecDeque;
use std::fmt::Write as _;

use expect_test::Expect;

use organism::contract::Budget;
use organism::ids::ListenerName;
use organism::schema::ShortType;
use organism::workflow::*;
use organism::xml::element::Element;

pub fn placed<T>(value: T) -> Placed<T> {
    Placed::new(value, PlaceId::default())
}

pub fn text(value: &str) -> Placed<String> {
    placed(value.to_owned())
}

pub fn name(value: &str) -> Placed<ListenerName> {
    placed(ListenerName::parse(value).expect("it is a name"))
}

pub fn id(value: &str) -> Placed<GoalId> {
    placed(GoalId::parse(value).expect("it is a goal's name"))
}

pub fn goal(goal: &str, form: GoalForm) -> GoalDefinition {
    GoalDefinition {
        id: id(goal),
        form,
        needs: None,
        context: None,
        output: GoalOutput::Text,
        retry: 0,
        on_failure: None,
        timeout: None,
        budget: Budget::default(),
        budget_place: PlaceId::default(),
        supervision: None,
        roles: None,
    }
}

pub fn agent(goal_id: &str, prompt: &str) -> GoalDefinition {
    let target = GoalTarget::Agent { agent: name("writer"), prompt: text(prompt) };
    goal(goal_id, GoalForm::Run(target))
}

pub fn xpath(expression: &str) -> GoalCondition {
    GoalCondition::XPath(text(expression))
}

pub fn repeated(
    goal_id: &str,
    members: &[&str],
    until: &str,
    max: u32,
    at_max: LoopEnd,
) -> GoalDefinition {
    let members = members.iter().map(|member| id(member)).collect();
    goal(goal_id, GoalForm::Loop { members, until: xpath(until), max, at_max })
}

pub fn workflow(goals: Vec<GoalDefinition>) -> WorkflowDefinition {
    WorkflowDefinition {
        name: name("test"),
        description: String::new(),
        input: WorkflowInput::Types(ShortType::Fields(Vec::new())),
        output: WorkflowOutput::LastGoal,
        peers: Vec::new(),
        on_failure: FailurePolicy::Stop,
        report_to: None,
        timeout: None,
        budget: Budget::default(),
        goals,
    }
}

pub fn input() -> Element {
    Element::read("<test><topic>x</topic></test>").expect("it is one element")
}

/// Runs `play` on a stack that a call for each pass of a long loop would exceed.
pub fn on_small_stack<T: Send>(play: impl FnOnce() -> T + Send) -> T {
    let small = std::thread::Builder::new().stack_size(512 * 1024);
    std::thread::scope(|scope| small.spawn_scoped(scope, play).unwrap().join().unwrap())
}

/// Runs a definition. Each start is answered in order: with `label=output` or `label!code` from the
/// script, or with `ok` if the script has no answer. Returns a list of starts, cancels and the end.
pub fn played(definition: &WorkflowDefinition, script: &[&str]) -> String {
    let (graph, _) = GoalGraph::new(definition);
    let mut run = WorkflowRun::new(definition, &graph, input());
    let mut script: Vec<&str> = script.to_vec();
    let mut open: VecDeque<(GoalRun, String)> = VecDeque::new();
    let mut out = String::new();
    let mut event = Some(RunEvent::Started);
    while let Some(next) = event {
        for step in run.step(next) {
            match step {
                RunStep::Start { run, label, .. } => {
                    let _ = writeln!(out, "start {label}");
                    open.push_back((run, label));
                }
                RunStep::Cancel { run } => {
                    let at = open.iter().position(|(one, _)| *one == run);
                    // A run whose call cannot be made is cancelled without a start.
                    let label = at.and_then(|at| open.remove(at)).map(|(_, label)| label);
                    let _ = writeln!(out, "cancel {}", label.as_deref().unwrap_or("nothing"));
                }
                RunStep::Complete { output } => {
                    let _ = writeln!(out, "complete {output:?}");
                }
                RunStep::Fail { goal, failure, .. } => {
                    let _ = writeln!(out, "fail {goal}: {}", failure.code);
                }
            }
        }

        event = open.pop_front().map(|(run, label)| {
            let fits = |line: &&str| {
                line.strip_prefix(label.as_str()).is_some_and(|rest| rest.starts_with(['=', '!']))
            };
            let line = script.iter().position(fits).map(|at| script.remove(at));
            match line.and_then(|line| line.split_once('!')) {
                Some((_, code)) => {
                    let failure = GoalFailure::new(code, "it failed");
                    RunEvent::Failed { run, failure, is_final: false }
                }
                None => {
                    let output =
                        line.and_then(|line| line.split_once('=')).map_or("ok", |one| one.1);
                    let output = match Element::read(output) {
                        Some(payload) => ViewValue::Payload(Box::new(payload)),
                        None => ViewValue::Text(output.to_owned()),
                    };
                    RunEvent::Completed { run, output }
                }
            }
        });
    }

    out
}

pub fn check(goals: Vec<GoalDefinition>, script: &[&str], expected: Expect) {
    expected.assert_eq(&played(&workflow(goals), script));
}

pub fn agents(names: &[&str]) -> Vec<Placed<ListenerName>> {
    names.iter().map(|one| name(one)).collect()
}
