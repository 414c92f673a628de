//! Completes lists of expected children in findings. If a child is missing, the message of libxml2
//! lists children that may come next, but at most ten, and does not state which of them are
//! required.

use super::describe::{PayloadDescription, PayloadParameter};
use crate::xml::element::Element;
use crate::xml::findings::Finding;

/// Maximum number of expected children that a message of libxml2 lists.
const LISTED_MAX: usize = 10;

/// Completes the findings that list several expected children. Adds, to each such finding, the
/// names of the listed children that are required. Leaves out children that may be repeated and
/// already occur, even if a repeated group requires them again. If a list has the maximum length,
/// adds `…` to the list, because further children may be expected. `text` is the text in which the
/// findings were found.
pub(super) fn complete(
    findings: &mut [Finding],
    text: &[u8],
    describe: impl FnOnce() -> PayloadDescription,
) {
    let offers_several = |finding: &&mut Finding| offered(finding).len() > 1;
    let mut findings = findings.iter_mut().filter(offers_several).peekable();
    if findings.peek().is_none() {
        return;
    }

    let description = describe();
    let root = std::str::from_utf8(text).ok().and_then(Element::read_document);

    for finding in findings {
        let required = required_of(&description, root.as_ref(), finding);
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

/// Returns the names of the children that the finding lists, and without which the element is
/// invalid in any case. `root` is the root element of the text; `None` if it cannot be read.
fn required_of(
    description: &PayloadDescription,
    root: Option<&Element>,
    finding: &Finding,
) -> Vec<String> {
    let offered = offered(finding);
    let path = finding.place.path.as_deref().unwrap_or_default();
    let mut steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    // libxml2 reports a missing child at its parent, and an unexpected child at the child itself.
    let is_missing = finding.message.contains("missing child element");
    let unexpected = if is_missing { None } else { steps.pop() };

    let parent = root.and_then(|root| element_at(root, &steps));
    let unexpected = parent.zip(unexpected).and_then(|(parent, step)| child_at(parent, step));
    let is_unexpected = |child: &&Element| unexpected.is_some_and(|own| std::ptr::eq(own, *child));
    let children = parent.into_iter().flat_map(Element::children);
    let earlier: Vec<&Element> = children.take_while(|child| !is_unexpected(child)).collect();

    let mut parameters = &description.parameters;

    for step in steps.iter().skip(1) {
        let name = step.split('[').next().unwrap_or(step);
        let Some(child) = parameters.iter().find(|one| !one.attribute && one.name == name) else {
            return Vec::new();
        };
        parameters = &child.parameters;
    }

    let occurs = |name: &str| earlier.iter().any(|child| child.local_name() == name);
    let is_required = |one: &&PayloadParameter| {
        !one.attribute
            && one.name != "*"
            && one.required
            && !one.alternative
            // Without the parent, it is not known whether the child occurs.
            && (!one.repeated || (parent.is_some() && !occurs(&one.name)))
            && offered.iter().any(|name| name.rsplit('}').next() == Some(&one.name))
    };

    parameters.iter().filter(is_required).map(|one| one.name.clone()).collect()
}

/// Returns the element at the path with these steps. The first step names `root` itself.
fn element_at<'a>(root: &'a Element, steps: &[&str]) -> Option<&'a Element> {
    steps.iter().skip(1).try_fold(root, |parent, step| child_at(parent, step))
}

/// Returns the child to which a step such as `item` or `item[2]` leads.
fn child_at<'a>(parent: &'a Element, step: &str) -> Option<&'a Element> {
    let numbered = step.strip_suffix(']').and_then(|step| step.split_once('['));
    let (name, number) = match numbered {
        Some((name, number)) => (name, number.parse::<usize>().ok()?),
        None => (step, 1),
    };

    parent.children().filter(|child| child.local_name() == name).nth(number.checked_sub(1)?)
}
