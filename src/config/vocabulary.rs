//! Finds conflicts between members of the config: payload names with two meanings, and listeners
//! that forward a payload in a circle.

use std::collections::HashSet;

use crate::contract::{Role, VocabularyError};
use crate::ids::{ListenerName, PayloadName};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::payloads::ResolvedMember;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::Located;

/// Converts a vocabulary error, such as a payload name with two meanings, to a problem. The problem
/// points to the config entry that causes the error.
pub(super) fn problem(error: &VocabularyError, resolved: &[ResolvedMember<'_>]) -> ConfigProblem {
    let of = |name: &ListenerName| resolved.iter().find(|r| r.member.name.value == *name);
    let place_in = |list: &[Located<PayloadName>], name: &PayloadName| {
        list.iter().find(|at| at.value == *name).map(|at| at.place.clone())
    };

    match error {
        VocabularyError::CallOrReply { sender, name } => {
            let member = of(sender);
            let place = member.and_then(|r| place_in(&r.replies, name));
            let is_agent = member.is_some_and(|r| r.member.role == Role::Agent);
            let is_accepted = member.is_some_and(|r| place_in(&r.accepts, name).is_some());
            let help = match (is_agent, is_accepted) {
                (false, _) => {
                    "take it out of `replies`, or write forward = true if its peer's result shall \
                     be its own"
                }
                (true, true) => {
                    "an agent sends itself what it accepts: take another payload for `final`, or \
                     another one for `accepts`"
                }
                (true, false) => {
                    "take another payload for `final`, or drop the peer that accepts it"
                }
            };
            problem_at(ProblemCode::CallOrReply, place, member, error).help(help)
        }
        VocabularyError::TwoAgents { name, second, .. } => {
            let member = of(second);
            let place = member.and_then(|r| place_in(&r.accepts, name));
            let help = "each agent has a payload name of its own; rename one in its schema";
            problem_at(ProblemCode::DuplicatePayload, place, member, error).help(help)
        }
        VocabularyError::AmbiguousLocal { sender, first, second, .. } => {
            let member = of(sender);
            let own = |r: &ResolvedMember<'_>| {
                let lists = [&r.accepts, &r.replies];
                let places = lists.into_iter().flat_map(|list| {
                    [place_in(list, first), place_in(list, second)].into_iter().flatten()
                });
                places.last().unwrap_or_else(|| r.member.peers_place.clone())
            };
            let help = "agents may write names without a namespace, so each must mean one thing: \
                        rename one in its schema, or drop a peer";
            problem_at(ProblemCode::AmbiguousPayload, member.map(own), member, error).help(help)
        }
    }
}

fn problem_at(
    code: ProblemCode,
    place: Option<SourceRange>,
    member: Option<&ResolvedMember<'_>>,
    error: &VocabularyError,
) -> ConfigProblem {
    let place = place.or_else(|| member.map(|r| r.member.name.place.clone()));
    let place = place.unwrap_or_else(|| SourceRange::start(&ConfigSource::new("config", "")));
    ConfigProblem::new(code, &place, error.to_string())
}

/// Reports listeners that forward calls with the same payload name to each other in a circle. A
/// call with this name would never end.
pub(super) fn forward_cycles(resolved: &[ResolvedMember<'_>], problems: &mut ConfigProblems) {
    let mut reported: HashSet<&ListenerName> = HashSet::new();
    for start in resolved.iter().filter(|r| r.contract.forward) {
        for name in &start.replies {
            if reported.contains(&start.contract.name) {
                continue;
            }
            if let Some(cycle) = cycle_from(start, &name.value, resolved) {
                reported.extend(cycle.iter().copied());
                let names: Vec<_> = cycle.iter().map(|name| name.as_str()).collect();
                let first = start.contract.name.as_str();
                let message =
                    format!("{} goes round: {} -> {first}", name.value, names.join(" -> "));
                let help = "take the name out of one listener's `replies`, or the peer out of one";
                problems.push(
                    ConfigProblem::new(ProblemCode::ForwardCycle, &name.place, message).help(help),
                );
            }
        }
    }
}

/// Returns the listeners through which a call with the payload `name` is forwarded, from `start`
/// until the call reaches `start` again. Returns `None` if the call never returns to `start`.
fn cycle_from<'r>(
    start: &'r ResolvedMember<'_>,
    name: &PayloadName,
    resolved: &'r [ResolvedMember<'_>],
) -> Option<Vec<&'r ListenerName>> {
    let mut paths = vec![vec![&start.contract.name]];
    let mut seen = HashSet::new();
    while let Some(path) = paths.pop() {
        let at = resolved.iter().find(|r| path.last() == Some(&&r.contract.name))?;
        if !at.contract.forward || !at.contract.replies.contains(name) {
            continue;
        }
        for peer in &at.contract.peers {
            let next = resolved.iter().find(|r| r.contract.name == *peer);
            let Some(next) = next.filter(|r| r.contract.accepts.contains(name)) else { continue };
            if next.contract.name == start.contract.name {
                return Some(path);
            }
            if seen.insert(&next.contract.name) {
                let mut longer = path.clone();
                longer.push(&next.contract.name);
                paths.push(longer);
            }
        }
    }

    None
}
