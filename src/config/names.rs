//! Checks that names are unique, and that named peers and models exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::contract::Role;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::did_you_mean;
use super::members::DeclaredMember;
use super::sections::DeclaredSections;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located, TomlNode, TomlTable, TomlValue};

/// Checks the names of all members, and the names in their declarations. Returns the names of
/// members whose declarations have a problem.
pub(super) fn check(
    sections: &DeclaredSections,
    source: &Arc<ConfigSource>,
    problems: &mut ConfigProblems,
) -> HashSet<String> {
    let members = &sections.members;
    let mut invalid = duplicates(sections, problems);
    someone(sections, source, problems);

    // Of several members of one name, the first counts.
    let roles: HashMap<_, _> =
        members.iter().rev().map(|m| (m.name.value.as_str(), m.role)).collect();
    for member in members {
        let before = problems.len();
        peers(member, &roles, sections, problems);
        models(member, sections, problems);
        entries_once(&member.peers, problems);
        if problems.len() > before {
            invalid.insert(member.name.value.to_string());
        }
    }

    own_clients(sections, problems);
    invalid
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Agent => "an agent",
        Role::Listener => "a listener",
        Role::Client => "a client",
        Role::Human => "a human",
        Role::Workflow => "a workflow",
    }
}

/// Reports each name that several members share. Returns these names. Also returns each name that a
/// member shares with a workflow, which the check of workflows reports.
fn duplicates(sections: &DeclaredSections, problems: &mut ConfigProblems) -> HashSet<String> {
    let mut shared = HashSet::new();
    let mut seen = HashMap::new();
    for member in &sections.members {
        let name = &member.name;
        if sections.workflow_names().any(|workflow| workflow == name.value.as_str()) {
            shared.insert(name.value.to_string());
        }
        if let Some(first) = seen.insert(name.value.as_str(), member) {
            let (line, _) = first.name.place.line_and_column();
            let message = format!("`{}` is already {} (line {line})", name.value, role(first.role));
            let help = "clients, listeners, humans and agents share one set of names; rename one";
            problems.push(
                ConfigProblem::new(ProblemCode::DuplicateName, &name.place, message).help(help),
            );
            shared.insert(name.value.to_string());
        }
    }

    shared
}

/// Reports a problem if the config has no client to send payloads, or no listener to receive them.
/// Reports nothing if some members could not be read, because the missing client or listener may be
/// one of them.
fn someone(sections: &DeclaredSections, source: &Arc<ConfigSource>, problems: &mut ConfigProblems) {
    let members = &sections.members;
    if !sections.unread.is_empty() {
        return;
    }

    let place = SourceRange::start(source);
    if !members.iter().any(|member| member.role == Role::Client) {
        let message = "there is no client, so no payload can be sent";
        let help = "add [clients.desk] with peers = [\"a listener\"]";
        problems.push(ConfigProblem::new(ProblemCode::NoClient, &place, message).help(help));
    }

    if members.iter().all(|member| member.role == Role::Client) {
        let message = "there is no listener and no agent, so no payload can be answered";
        let help = "add [listeners.some-name] or [agents.some-name]";
        problems.push(ConfigProblem::new(ProblemCode::NoListener, &place, message).help(help));
    }
}

/// Checks the peers of `member`. `roles` must contain the role of each member by its name.
fn peers(
    member: &DeclaredMember,
    roles: &HashMap<&str, Role>,
    sections: &DeclaredSections,
    problems: &mut ConfigProblems,
) {
    for peer in &member.peers {
        let name = peer.value.value.as_str();
        let written = &peer.value.written;
        let own = member.name.value.as_str();
        let problem = match roles.get(name) {
            _ if name == own && member.role == Role::Agent => continue,
            _ if name == own => {
                let message = format!("`{own}` is its own peer");
                ConfigProblem::new(ProblemCode::SelfAsPeer, &peer.place, message)
                    .help("only agents may address themselves; take it out of the list")
            }
            Some(Role::Client) => {
                let message = format!("`{written}` is a client, and clients receive nothing");
                ConfigProblem::new(ProblemCode::ClientAsPeer, &peer.place, message)
                    .help("a caller gets the result of its call without being a peer")
            }
            Some(_) => continue,
            None if sections.unread.contains(name) => continue,
            None if sections.workflow_names().any(|workflow| workflow == name) => continue,
            None => {
                let callable = sections.members.iter().filter(|m| m.role != Role::Client);
                let callable = callable.map(|m| m.name.value.as_str());
                let names: Vec<_> = callable.chain(sections.workflow_names()).collect();
                if names.is_empty() {
                    continue;
                }

                let help = did_you_mean(name, names.iter().copied(), || {
                    format!("there are {}", names.join(", "))
                });
                let message = format!("there is no listener or agent `{written}`");
                ConfigProblem::new(ProblemCode::UnknownPeer, &peer.place, message).help(help)
            }
        };

        problems.push(problem);
    }
}

/// Checks the clients that listeners name for their own processes: each client must exist, and no
/// two listeners may name the same client.
fn own_clients(sections: &DeclaredSections, problems: &mut ConfigProblems) {
    let mut taken: HashMap<&str, &str> = HashMap::new();
    for member in &sections.members {
        let Some(client) = &member.client else { continue };
        let name = client.value.value.as_str();
        let written = &client.value.written;

        let clients = sections.members.iter().filter(|m| m.role == Role::Client);
        let names: Vec<_> = clients.map(|m| m.name.value.as_str()).collect();
        if !names.contains(&name) && !sections.unread.contains(name) {
            let help = did_you_mean(name, names.iter().copied(), || {
                format!("add [clients.{written}] with the peers it may send to")
            });
            let message = format!("there is no client `{written}`");
            problems.push(
                ConfigProblem::new(ProblemCode::UnknownClient, &client.place, message).help(help),
            );
        }

        if let Some(other) = taken.insert(name, member.name.value.as_str()) {
            let message = format!("`{written}` is already the client of the listener `{other}`");
            let help = "each listener that sends has a client of its own; add another client";
            problems.push(
                ConfigProblem::new(ProblemCode::DuplicateEntry, &client.place, message).help(help),
            );
        }
    }
}

fn models(member: &DeclaredMember, sections: &DeclaredSections, problems: &mut ConfigProblems) {
    let Some(model) = member.agent.as_ref().and_then(|agent| agent.model.as_ref()) else { return };
    let names: Vec<_> = sections.models.iter().map(|model| model.name.value.as_str()).collect();
    let name = model.value.value.as_str();
    if names.contains(&name) || sections.unread.contains(name) {
        return;
    }

    let help = did_you_mean(name, names.iter().copied(), || {
        if names.is_empty() {
            format!("add [models.{}] with a provider", model.value.written)
        } else {
            format!("there are {}", names.join(", "))
        }
    });

    let message = format!("there is no model `{}`", model.value.written);
    problems.push(ConfigProblem::new(ProblemCode::UnknownModel, &model.place, message).help(help));
}

fn entries_once(list: &[Located<ExpandedText>], problems: &mut ConfigProblems) {
    let entries = list.iter().map(|entry| (&entry.value, &entry.place));
    report_repeated(entries, problems);
}

/// Reports each word that a list contains twice: in `core` of a member, and in `on` of a schedule
/// and of the alerts. Not for stored configs, because earlier versions of the program accepted such
/// lists. A model that occurs twice in `routes` has a meaning: it has twice the share.
pub(super) fn check_word_lists(root: &TomlTable, problems: &mut ConfigProblems) {
    for section in &root.entries {
        let TomlValue::Table(table) = &section.node.value else { continue };
        let lists: Vec<&TomlNode> = match section.key.value.as_str() {
            "alerts" => table.get("on").into_iter().collect(),
            "schedules" => lists_of_members(table, "on"),
            "listeners" | "agents" => lists_of_members(table, "core"),
            _ => continue,
        };

        for list in lists {
            let entries = list.items().iter().filter_map(|item| match &item.value {
                TomlValue::Text(text) if !text.failed => Some((text, &item.place)),
                _ => None,
            });
            report_repeated(entries, problems);
        }
    }
}

/// Returns the value of `key` of each member in the section `table` that has this key.
fn lists_of_members<'t>(table: &'t TomlTable, key: &str) -> Vec<&'t TomlNode> {
    let members = table.entries.iter().filter_map(|member| match &member.node.value {
        TomlValue::Table(keys) => keys.get(key),
        _ => None,
    });
    members.collect()
}

fn report_repeated<'e>(
    entries: impl Iterator<Item = (&'e ExpandedText, &'e SourceRange)>,
    problems: &mut ConfigProblems,
) {
    let mut seen = HashSet::new();
    for (text, place) in entries {
        if !seen.insert(text.value.as_str()) {
            let message = format!("`{}` is in this list twice", text.written);
            let problem = ConfigProblem::new(ProblemCode::DuplicateEntry, place, message);
            problems.push(problem.help("take one of them out"));
        }
    }
}
