//! Checks the parts of native agents' payloads that JSON cannot express.

use crate::contract::Contracts;
use crate::ids::PayloadName;
use crate::schema::Schemas;

use super::ActionTransport;
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::members::{DeclaredAgent, DeclaredMember};

/// Reports problems, and notes valid settings that are worth knowing.
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
    }

    notes
}

/// Checks payloads of native calls that JSON can express only in part.
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
