//! Reads the prompts of agents from the config.

use std::path::Path;
use std::sync::Arc;

use crate::agent::{FinalFormat, ReportSchema, STANDARD_SECTIONS};
use crate::durable_file;
use crate::ids::Digest;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::keys::nearest;
use super::load::KeyRequirement;
use super::members::{DeclaredAgent, DeclaredMember, FormatWord};
use super::payloads::PayloadResolver;
use super::tree::{ExpandedText, Located};
use super::{AgentSpec, file};

pub(super) fn agents(
    members: &[DeclaredMember],
    payloads: &PayloadResolver,
    (directory, keys): (&Path, KeyRequirement),
    problems: &mut ConfigProblems,
) -> Vec<AgentSpec> {
    let place = (directory, keys == KeyRequirement::Stored);
    let agents = members.iter().filter_map(|m| Some((m, m.agent.as_ref()?)));
    let specs = agents.filter_map(|(member, agent)| {
        let prompt = prompt(agent, place, problems);
        let final_format = final_format(agent, directory, problems);
        Some(AgentSpec {
            name: member.name.value.clone(),
            is_remote: member.nats.is_some(),
            model: agent.model.as_ref()?.value.value.clone(),
            transport: agent.transport,
            memory: agent.memory,
            max_iterations: agent.max_iterations,
            final_name: payloads.final_of(&member.name.value)?,
            final_format,
            final_by: agent.final_by,
            tool_choice: agent.tool_choice,
            notice: agent.notice,
            has_timeout: agent.has_timeout,
            prompt,
        })
    });

    specs.collect()
}

fn final_format(
    agent: &DeclaredAgent,
    directory: &Path,
    problems: &mut ConfigProblems,
) -> FinalFormat {
    let path = match agent.final_format {
        FormatWord::Text => return FinalFormat::Text,
        FormatWord::Markdown => return FinalFormat::Markdown,
        FormatWord::Json => agent.final_schema.as_ref(),
    };

    let Some(path) = path else { return FinalFormat::Text };
    let schema = match file::text(&directory.join(&path.value.value)) {
        Ok(text) => ReportSchema::parse(&text)
            .map_err(|error| (error.to_string(), "write a JSON Schema into this file".to_owned())),
        Err(unreadable) => Err((format!("cannot be read: {unreadable}"), unreadable.help)),
    };

    match schema {
        Ok(schema) => FinalFormat::Json(Arc::new(schema)),
        Err((reason, help)) => {
            let message = format!("the report's schema `{}`: {reason}", path.value.written);
            let problem = ConfigProblem::new(ProblemCode::ReportSchema, &path.place, message);
            problems.push(problem.help(help));
            FinalFormat::Text
        }
    }
}

fn prompt(
    agent: &DeclaredAgent,
    place: (&Path, bool),
    problems: &mut ConfigProblems,
) -> Vec<(String, String)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for (key, value) in &agent.prompt {
        let name = key.value.strip_suffix("_file").unwrap_or(&key.value);
        if !is_section(name) {
            let message = format!("`{name}` cannot be a section of a prompt");
            let help = "sections become tags: a lowercase letter, then letters, digits, - and _";
            problems.push(ConfigProblem::new(ProblemCode::BadName, &key.place, message).help(help));
        } else if let Some(standard) = near_section(name) {
            let message = format!("`{name}` is no standard section, and is nearly `{standard}`");
            let help = format!("write `{standard}`, or give a section of its own another name");
            problems.push(ConfigProblem::new(ProblemCode::BadName, &key.place, message).help(help));
        } else if sections.iter().any(|(known, _)| known == name) {
            let message = format!("the prompt's section `{name}` is written twice");
            let problem = ConfigProblem::new(ProblemCode::WrittenTwice, &key.place, message);
            problems.push(problem.help(format!("keep either `{name}` or `{name}_file`")));
        } else if name == key.value {
            sections.push((name.to_owned(), value.value.value.clone()));
        } else {
            let text = prompt_file(value, place, problems).unwrap_or_default();
            sections.push((name.to_owned(), text));
        }
    }

    sections
}

/// Returns the name of the standard prompt section that is most similar to `name`; `None` if no
/// name is similar enough.
fn near_section(name: &str) -> Option<&'static str> {
    let is_standard = STANDARD_SECTIONS.contains(&name);
    nearest(name, STANDARD_SECTIONS).filter(|_| !is_standard)
}

fn is_section(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(good)
}

/// Reads the file of a prompt. If the file is unreadable or blank, reports a problem and returns
/// `None`. If `is_stored` is true, the file belongs to a stored config and may be blank, because an
/// earlier version of the program accepted blank files.
pub(super) fn prompt_file(
    path: &Located<ExpandedText>,
    (directory, is_stored): (&Path, bool),
    problems: &mut ConfigProblems,
) -> Option<String> {
    let text = file::named_text(path, directory, "prompt", ProblemCode::PromptMissing, problems)?;
    if is_stored || !text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Some(text);
    }

    let message = format!("the prompt `{}` is empty", path.value.written);
    let problem = ConfigProblem::new(ProblemCode::EmptyValue, &path.place, message);
    problems.push(problem.help("write the prompt into this file"));
    None
}

/// Returns the digest of a file's content. An unreadable file counts as empty.
pub(super) fn digest_of(path: &Path) -> Digest {
    Digest::of(&durable_file::read_regular(path).unwrap_or_default())
}
