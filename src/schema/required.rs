//! Completes lists of expected children in findings. If a child is missing, the message of libxml2
//! lists children that may come next, but at most ten, and does not state which of them are
//! required.

use super::describe::{PayloadDescription, PayloadParameter};
use crate::xml::findings::Finding;

/// Maximum number of expected children that a message of libxml2 lists.
const LISTED_MAX: usize = 10;

/// Completes the findings that list several expected children. Adds, to each such finding, the
/// names of the listed children that are required. If a list has the maximum length, adds `…` to
/// the list, because further children may be expected.
pub(super) fn complete(findings: &mut [Finding], describe: impl FnOnce() -> PayloadDescription) {
    let offers_several = |finding: &&mut Finding| offered(finding).len() > 1;
    let mut findings = findings.iter_mut().filter(offers_several).peekable();
    if findings.peek().is_none() {
        return;
    }

    let description = describe();

    for finding in findings {
        let required = required_of(&description, finding);
        if offered(finding).len() >= LISTED_MAX
            && let Some(list) = finding.message.strip_suffix(" )")
        {
            finding.message = format!("{list}, \u{2026} )");
        }

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

/// Parses the names in `expected is one of ( a, b )` at the end of a finding.
fn offered(finding: &Finding) -> Vec<&str> {
    let is_list = finding.code == "schema-element";
    let list = finding.message.strip_suffix(" )").filter(|_| is_list);
    let listed = list.and_then(|list| list.rsplit_once("expected is one of ( "));
    listed.map(|(_, names)| names.split(", ").collect()).unwrap_or_default()
}

fn required_of(description: &PayloadDescription, finding: &Finding) -> Vec<String> {
    let offered = offered(finding);
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
