//! Finds placeholders in prompts that were written with single braces, and so are plain text.

use super::definition::{GoalForm, GoalTarget, WorkflowDefinition};
use super::template::{self, PromptPart};

/// Returns a warning for each text in a prompt that looks like a placeholder with single braces,
/// such as `{input/topic}`. Only `{{input/topic}}` inserts the value.
pub fn single_braces(definition: &WorkflowDefinition) -> Vec<String> {
    let prompts = definition.goals.iter().filter_map(|goal| Some((goal, prompt_of(&goal.form)?)));
    let mut notes = Vec::new();
    for (goal, prompt) in prompts {
        for path in template::parts(prompt).into_iter().flat_map(|part| paths(part, definition)) {
            notes.push(format!(
                "the prompt of goal `{}` of workflow `{}` holds `{{{path}}}`, which is text: write \
                 `{{{{{path}}}}}` to insert the value",
                goal.id.value, definition.name.value
            ));
        }
    }

    notes
}

fn prompt_of(form: &GoalForm) -> Option<&str> {
    let target = match form {
        GoalForm::All { prompt, .. }
        | GoalForm::First { prompt, .. }
        | GoalForm::Ask { prompt, .. } => return Some(&prompt.value),
        GoalForm::Run(target) => target,
        GoalForm::Each(each) => &each.target,
        GoalForm::Loop { .. } | GoalForm::Choose(_) => return None,
    };
    match target {
        GoalTarget::Agent { prompt, .. } => Some(&prompt.value),
        GoalTarget::Listener { .. } | GoalTarget::Workflow { .. } => None,
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
