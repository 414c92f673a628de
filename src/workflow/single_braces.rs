//! Finds texts that look like placeholders, but are plain text: placeholders with single braces or
//! without their end, and placeholders in a text that is no prompt.

use super::definition::{GoalCondition, GoalForm, GoalTarget, WorkflowDefinition};
use super::template::{self, PromptPart};

/// Returns a warning for each text of a goal that looks like a placeholder, but inserts no value:
/// `{input/topic}` and an unclosed `{{` in a prompt, and any placeholder in `supervise`.
pub fn single_braces(definition: &WorkflowDefinition) -> Vec<String> {
    let mut notes = Vec::new();
    for goal in &definition.goals {
        let whose = format!("of goal `{}` of workflow `{}`", goal.id.value, definition.name.value);
        for prompt in prompts_of(&goal.form) {
            let parts = template::parts(prompt);
            for path in parts.iter().flat_map(|part| paths(*part, definition)) {
                notes.push(format!(
                    "the prompt {whose} holds `{{{path}}}`, which is text: write \
                     `{{{{{path}}}}}` to insert the value"
                ));
            }
            if matches!(parts.last(), Some(PromptPart::Text(text)) if text.contains("{{")) {
                notes.push(format!(
                    "the prompt {whose} holds `{{{{` without `}}}}`, which is text: close it to \
                     insert a value"
                ));
            }
        }

        let supervise = goal.supervision.as_ref().map_or("", |found| found.supervise.as_str());
        for part in template::parts(supervise) {
            if let PromptPart::Expression(path) = part {
                notes.push(format!(
                    "`supervise` {whose} holds `{{{{{path}}}}}`, which is text there: only prompts \
                     insert values"
                ));
            }
        }
    }

    notes
}

fn prompts_of(form: &GoalForm) -> Vec<&str> {
    let target = match form {
        GoalForm::All { prompt, .. }
        | GoalForm::First { prompt, .. }
        | GoalForm::Ask { prompt, .. } => return vec![prompt.value.as_str()],
        GoalForm::Run(target) => target,
        GoalForm::Each(each) => &each.target,
        GoalForm::Loop { until, .. } => return judge_prompt(until).into_iter().collect(),
        GoalForm::Choose(branches) => {
            let conditions = branches.iter().filter_map(|branch| branch.when.as_ref());
            return conditions.filter_map(judge_prompt).collect();
        }
    };
    match target {
        GoalTarget::Agent { prompt, .. } => vec![prompt.value.as_str()],
        GoalTarget::Listener { .. } | GoalTarget::Workflow { .. } => Vec::new(),
    }
}

fn judge_prompt(condition: &GoalCondition) -> Option<&str> {
    match condition {
        GoalCondition::Judge { prompt, .. } => Some(&prompt.value),
        GoalCondition::XPath(_) => None,
    }
}

/// Returns the texts between single braces that look like paths of this workflow: they begin with
/// `input`, `item` or the id of a goal.
fn paths<'p>(part: PromptPart<'p>, definition: &WorkflowDefinition) -> Vec<&'p str> {
    let PromptPart::Text(text) = part else { return Vec::new() };
    let inner = text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0.trim()));
    let is_path = |path: &&str| {
        let is_name = |c: char| c.is_alphanumeric() || "-_./@".contains(c);
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let is_goal = definition.goals.iter().any(|goal| goal.id.value.as_str() == first);
        let is_value = first == "input" || first == "item" || is_goal;
        // A single name in braces may be meant as text, but a path is not.
        path.chars().all(is_name) && is_value && !rest.is_empty()
    };
    inner.filter(is_path).collect()
}
