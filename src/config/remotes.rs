//! Finds the listeners on NATS. Reports each listener and agent that is on NATS although the config
//! names no NATS server.

use crate::ids::ListenerName;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::sections::DeclaredSections;

pub(super) fn remotes(
    sections: &DeclaredSections,
    problems: &mut ConfigProblems,
) -> Vec<ListenerName> {
    let mut names = Vec::new();
    for member in &sections.members {
        let Some(place) = &member.nats else { continue };
        if !sections.storage.names_servers() {
            let message = format!("`{}` is on NATS and no server is named", member.name.value);
            let help = "add a section [nats] with url = \"nats://127.0.0.1:4222\"";
            problems.push(ConfigProblem::new(ProblemCode::MissingKey, place, message).help(help));
        }
        if member.agent.is_none() {
            names.push(member.name.value.clone());
        }
    }

    names
}
