//! Checks that the payloads of agents fit their transports. JSON must be able to express the
//! payloads of agents with native tool calls. If an agent can end a call with the plain text of a
//! model's answer, one of its final payloads must be able to contain this text.

use crate::agent::FinalMode;
use crate::agent::protocol::takes_report;
use crate::contract::Contracts;
use crate::ids::PayloadName;
use crate::schema::Schemas;

use super::ActionTransport;
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::members::{DeclaredAgent, DeclaredMember};

/// Reports agents whose payloads do not fit the agent's transport. A transport is the form in which
/// a model writes its actions. Returns notes about valid settings that may surprise the user.
pub(super) fn check(
    members: &[DeclaredMember],
    contracts: &Contracts,
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (member, agent) in members.iter().filter_map(|m| Some((m, m.agent.as_ref()?))) {
        if agent.transport.is_native() {
            words(member, agent, contracts, schemas, &mut notes, problems);
        }
        if agent.final_by == FinalMode::Text {
            answer(member, agent, contracts, schemas, problems);
        }
    }

    notes
}

/// Checks that JSON can express all payloads that an agent sends as native tool calls.
fn words(
    member: &DeclaredMember,
    agent: &DeclaredAgent,
    contracts: &Contracts,
    schemas: &Schemas,
    notes: &mut Vec<String>,
    problems: &mut ConfigProblems,
) {
    let Some(contract) = contracts.get(&member.name.value) else { return };
    let peers = contracts.iter().filter(|peer| contract.peers.contains(&peer.name));
    let mut names: Vec<&PayloadName> = peers.flat_map(|peer| &peer.accepts).collect();
    names.extend(&contract.accepts);
    if agent.transport == ActionTransport::Native {
        names.extend(&contract.replies);
    }

    names.sort();
    names.dedup();

    for gap in names.into_iter().flat_map(|name| schemas.gaps(name)) {
        if gap.is_closed() {
            let message =
                format!("`{}` cannot call all of its words natively: {gap}", member.name.value);
            let problem =
                ConfigProblem::new(ProblemCode::NotNative, &agent.transport_place, message);
            problems
                .push(problem.help("write transport = \"xml\", or name the type in the schema"));
        } else {
            notes.push(format!("agent {}: {gap}", member.name.value));
        }
    }
}

/// Checks an agent that can end its call with the plain text of a model's answer. One of the
/// agent's final payloads must have exactly one place for this text.
fn answer(
    member: &DeclaredMember,
    agent: &DeclaredAgent,
    contracts: &Contracts,
    schemas: &Schemas,
    problems: &mut ConfigProblems,
) {
    let Some(contract) = contracts.get(&member.name.value) else { return };
    let takes = |name: &PayloadName| {
        *name == crate::agent::attempt_completion() || takes_report(&schemas.describe(name))
    };

    if !contract.replies.iter().any(takes) {
        let message = format!("no final of `{}` can hold a text as the answer", member.name.value);
        let help =
            "a final that is a text, or needs exactly one child that is; or leave `final` out";
        let problem = ConfigProblem::new(ProblemCode::FinalByText, &agent.final_by_place, message);
        problems.push(problem.help(help));
    }
}
