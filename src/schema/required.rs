//! Adds the names of required children to findings. If a child is missing, the message of libxml2
//! lists all children that may come next, but does not state which of them are required.

use super::describe::{PayloadDescription, PayloadParameter};
use crate::xml::findings::Finding;

/// Adds the names of the required children to each finding that lists several expected children.
pub(super) fn name_required(
    findings: &mut [Finding],
    describe: impl FnOnce() -> PayloadDescription,
) {
    let offers_several = |finding: &&mut Finding| offered(&finding.message).len() > 1;
    let mut findings = findings.iter_mut().filter(offers_several).peekable();
    if findings.peek().is_none() {
        return;
    }

    let description = describe();

    for finding in findings {
        let required = required_of(&description, finding);
        match required.as_slice() {
            [] => {}
            [one] => finding.message.push_str(&format!("; `{one}` is required")),
            several => {
                let names = several.join("`, `");
                finding.message.push_str(&format!("; `{names}` are required"));
            }
        }
    }
}

/// Parses the names in `expected is one of ( a, b )`.
fn offered(message: &str) -> Vec<&str> {
    let listed = message.split_once("expected is one of ( ").map(|(_, rest)| rest);
    let listed = listed.and_then(|rest| Some(rest.split_once(" )")?.0));
    listed.map(|names| names.split(", ").collect()).unwrap_or_default()
}

fn required_of(description: &PayloadDescription, finding: &Finding) -> Vec<String> {
    let offered = offered(&finding.message);
    let path = finding.place.path.as_deref().unwrap_or_default();
    let mut steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    // libxml2 reports a missing child at its parent, and an unexpected child at the child itself.
    if !finding.message.contains("missing child element") {
        steps.pop();
    }

    let mut parameters = &description.parameters;

    for step in steps.iter().skip(1) {
        let name = step.split('[').next().unwrap_or(step);
        let Some(child) = parameters.iter().find(|one| !one.attribute && one.name == name) else {
            return Vec::new();
        };
        parameters = &child.parameters;
    }

    let is_required = |one: &&PayloadParameter| {
        !one.attribute
            && one.name != "*"
            && one.required
            && !one.alternative
            && offered.iter().any(|name| name.rsplit('}').next() == Some(&one.name))
    };

    parameters.iter().filter(is_required).map(|one| one.name.clone()).collect()
}
