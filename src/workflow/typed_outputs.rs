//! Typed outputs of agents' goals: the payloads that answer such goals, and the schema of these
//! payloads.

use std::borrow::Cow;

use crate::contract::TypedAnswer;
use crate::ids::{ListenerName, PayloadName};
use crate::schema::short_form_xsd;

use super::definition::{
    GoalCondition, GoalDefinition, GoalForm, GoalOutput, GoalTarget, Placed, WorkflowDefinition,
};
use super::questions::{REPORT, answer_type, report_answer};
use super::verdicts::{judgement_name, verdict_name};

/// Returns the name of the payload with which an agent answers a goal; `None` if the agent answers
/// with text.
pub fn answer_of(definition: &WorkflowDefinition, goal: &GoalDefinition) -> Option<PayloadName> {
    match &goal.output {
        GoalOutput::Text => None,
        GoalOutput::Types(_) => Some(goal_name(definition, goal.id.value.as_str())),
        GoalOutput::Payload(name) => Some(name.value.clone()),
    }
}

/// Returns the name of the payload with which an agent answers a goal, or with which a person
/// answers the goal's question. Returns `None` if the answer is text.
pub fn generated_answer(
    definition: &WorkflowDefinition,
    goal: &GoalDefinition,
) -> Option<PayloadName> {
    let is_question = matches!(goal.form, GoalForm::Ask { .. });
    let verdict = is_question.then(|| goal_name(definition, goal.id.value.as_str()));
    answer_of(definition, goal).or(verdict)
}

/// Returns the name of the payload that is generated for the goal `id`.
pub fn goal_name(definition: &WorkflowDefinition, id: &str) -> PayloadName {
    PayloadName::new(&namespace(definition), id)
}

fn namespace(definition: &WorkflowDefinition) -> String {
    format!("{}/goals", definition.namespace())
}

/// Returns the agents that carry a goal out.
pub fn agents_of(goal: &GoalDefinition) -> Vec<&ListenerName> {
    let is_agent = |target: &GoalTarget| matches!(target, GoalTarget::Agent { .. });
    match &goal.form {
        GoalForm::Run(target) if is_agent(target) => vec![&target.name().value],
        GoalForm::Each(each) if is_agent(&each.target) => vec![&each.target.name().value],
        GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
            agents.iter().map(|agent| &agent.value).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the typed payloads with which agents of the workflow answer, each with its agent. These
/// are the answers to goals with a typed output, the verdicts of agents that supervise, and the
/// judgements of judges.
pub fn typed_answers(definition: &WorkflowDefinition) -> Vec<TypedAnswer> {
    let mut answers = Vec::new();
    let mut add = |agent: &ListenerName, payload: PayloadName| {
        let answer = TypedAnswer { agent: agent.clone(), payload };
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    };

    for goal in &definition.goals {
        if let Some(payload) = answer_of(definition, goal) {
            agents_of(goal).into_iter().for_each(|agent| add(agent, payload.clone()));
        }
        if let Some(supervision) =
            goal.supervision.as_ref().filter(|supervision| !supervision.is_human)
        {
            add(&supervision.supervisor.value, verdict_name());
        }
        for judge in judges_of(goal) {
            add(judge, judgement_name());
        }
    }
    answers
}

/// Whether any goal of the workflow has a supervisor or a judge. Supervisors answer with verdicts,
/// and judges answer with judgements.
pub fn has_verdicts(definition: &WorkflowDefinition) -> bool {
    definition.goals.iter().any(|goal| goal.supervision.is_some() || has_judge(goal))
}

/// Whether a judge decides a condition of the goal.
pub fn has_judge(goal: &GoalDefinition) -> bool {
    !judges_of(goal).is_empty()
}

/// Returns the judges that decide conditions of the goal.
pub fn judges_of(goal: &GoalDefinition) -> Vec<&ListenerName> {
    let conditions: Vec<&GoalCondition> = match &goal.form {
        GoalForm::Loop { until, .. } => vec![until],
        GoalForm::Choose(branches) => {
            branches.iter().filter_map(|branch| branch.when.as_ref()).collect()
        }
        _ => Vec::new(),
    };
    let judges = conditions.into_iter().filter_map(|condition| match condition {
        GoalCondition::Judge { agent, .. } => Some(&agent.value),
        GoalCondition::XPath(_) => None,
    });
    judges.collect()
}

/// Returns the prompt of the agents that carry a goal out; `None` if no agent carries it out.
pub fn prompt_of(goal: &GoalDefinition) -> Option<&Placed<String>> {
    let target = match &goal.form {
        GoalForm::All { prompt, .. } | GoalForm::First { prompt, .. } => return Some(prompt),
        GoalForm::Run(target) => target,
        GoalForm::Each(each) => &each.target,
        GoalForm::Loop { .. } | GoalForm::Choose(_) | GoalForm::Ask { .. } => return None,
    };
    match target {
        GoalTarget::Agent { prompt, .. } => Some(prompt),
        GoalTarget::Listener { .. } | GoalTarget::Workflow { .. } => None,
    }
}

/// Returns the XSD of the payloads that are generated for goals; `None` if no goal has such a
/// payload.
pub fn goal_schema(definition: &WorkflowDefinition) -> Option<String> {
    let mut elements: Vec<_> = definition
        .goals
        .iter()
        .filter_map(|goal| {
            let of = match &goal.output {
                GoalOutput::Types(types) if !agents_of(goal).is_empty() => Cow::Borrowed(types),
                _ => answer_type(goal)?,
            };
            Some((goal.id.value.as_str(), of))
        })
        .collect();
    if definition.report_to.is_some() {
        elements.push((REPORT, Cow::Owned(report_answer())));
    }
    let elements: Vec<_> = elements.iter().map(|(name, of)| (*name, &**of)).collect();
    (!elements.is_empty()).then(|| short_form_xsd(&namespace(definition), &elements))
}
