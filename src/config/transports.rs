//! Checks that the payloads of an agent fit the transport with which its model writes them. For
//! native tool calls, JSON must be able to express the payloads. If the agent can end a call with
//! plain text or with a JSON report, one of its final payloads must be able to contain a text.

use crate::agent::FinalMode;
use crate::agent::protocol::takes_report;
use crate::contract::Contracts;
use crate::ids::PayloadName;
use crate::model::ToolChoice;
use crate::schema::Schemas;

use super::ActionTransport;
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::members::{DeclaredAgent, DeclaredMember, FormatWord};
use super::sections::DeclaredSections;

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
        if holds_report(member, contracts, schemas) {
            continue;
        }

        let name = &member.name.value;
        let help =
            "a final that is a text, or needs exactly one child that is; or leave `final` out";
        if agent.final_by == FinalMode::Text {
            let message = format!("no final of `{name}` can hold a text as the answer");
            let place = &agent.final_by_place;
            problems.push(ConfigProblem::new(ProblemCode::FinalByText, place, message).help(help));
        }
        if agent.final_format == FormatWord::Json {
            let message = format!("no final of `{name}` can hold a report in JSON");
            let place = &agent.final_format_place;
            problems.push(ConfigProblem::new(ProblemCode::ReportSchema, place, message).help(help));
        }
    }

    notes
}

/// Reports each agent with `tool_choice = "required"` whose model, or a route of this model, has
/// thinking enabled and no `base_url`. Anthropic refuses every request that forces a tool call and
/// enables thinking. A server at a `base_url` may accept such a request.
pub(super) fn check_thinking(sections: &DeclaredSections, problems: &mut ConfigProblems) {
    let named = |name: &str| sections.models.iter().find(|model| model.name.value == name);
    let agents = sections.members.iter().filter_map(|member| member.agent.as_ref());
    for agent in agents.filter(|agent| agent.tool_choice == Some(ToolChoice::Required)) {
        let Some(place) = agent.model.as_ref() else { continue };
        let Some(model) = named(&place.value.value) else { continue };
        let routes = model.routes().iter().filter_map(|route| named(&route.value.value));
        let mut all = std::iter::once(model).chain(routes);
        let refusal = all.find_map(|model| Some((model, model.key_against_forced_calls()?)));
        let Some((thinking, key)) = refusal else { continue };

        let message = format!(
            "`{}` has {key}, and its provider then refuses tool_choice = \"required\"",
            thinking.name.value
        );
        let problem = ConfigProblem::new(ProblemCode::ToolChoice, &place.place, message);
        problems.push(problem.help(format!(
            "write tool_choice = \"auto\" for the agent, or leave {key} out of the model"
        )));
    }
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

/// Whether a final payload of the agent has exactly one place that can take the text of a report.
/// Also returns true if the agent's contract is not known.
fn holds_report(member: &DeclaredMember, contracts: &Contracts, schemas: &Schemas) -> bool {
    let takes = |name: &PayloadName| {
        *name == crate::agent::attempt_completion() || takes_report(&schemas.describe(name))
    };
    let contract = contracts.get(&member.name.value);
    contract.is_none_or(|contract| contract.replies.iter().any(takes))
}
