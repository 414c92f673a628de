//! What an agent is told of a turn in which nothing could be done.

use crate::xml::findings::{Finding, Place};

/// The turn held no action, and nothing that stands in for one.
pub const NO_ACTION: &str = "no-action";
/// The provider stopped the model before it had finished.
pub const TRUNCATED: &str = "truncated";

/// Says that there was no action, and how one is written.
pub fn no_action(raw: &str, tools: &[String], finals: &[String], unknown: &[String]) -> Finding {
    let names = |names: &[String]| {
        names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(", ")
    };
    let mut how = Vec::new();
    if !tools.is_empty() {
        how.push(format!("call one tool ({}) with its parameters as child elements", names(tools)));
    }
    if !finals.is_empty() {
        how.push(format!("end the task with {}", names(finals)));
    }
    let how = if how.is_empty() { "write one action".to_owned() } else { how.join(", or ") };
    let nothing = match unknown {
        _ if raw.trim().is_empty() => "it was empty; ".to_owned(),
        [] => String::new(),
        unknown => format!("none of your actions is called {}; ", names(unknown)),
    };
    Finding::new(
        NO_ACTION,
        Place::at(raw.as_bytes(), 0),
        format!(
            "the response did not contain a valid XML action: {nothing}{how}, as plain XML outside \
             of code fences, quotes and <thinking>"
        ),
    )
}

/// Says that the provider cut the text at its maximum length.
pub fn truncated(raw: &str) -> Finding {
    Finding::new(
        TRUNCATED,
        Place::at(raw.as_bytes(), raw.len()),
        "the response reached its maximum length and was cut; write less before the action",
    )
}
