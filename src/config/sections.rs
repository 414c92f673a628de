//! From the tree to what was declared: sections and members, before anything is compared.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use crate::contract::TreeLimits;
use crate::limits;

use super::Directories;
use super::file;
use super::http;
use super::keys::{self, SECTIONS, Section, nearest};
use super::members::{Declared, agent, client, human, listener, token};
use super::models::{self, Model};
use super::operators::Operators;
use super::places::{self, NamedDirectory};
use super::problem::{Code, Problem, Problems};
use super::project::{self, Project};
use super::read::Reader;
use super::source::{Place, Source};
use super::storage;
use super::surroundings::Surroundings;
use super::telemetry;
use super::tree::{At, Table, Text, Value};

/// Everything that was declared.
pub(super) struct Sections {
    pub name: Option<String>,
    pub data: Option<At<Text>>,
    pub state: Option<At<Text>>,
    /// `data` or `state` is written but could not be read.
    pub places_unread: bool,
    pub storage: storage::Declared,
    pub http: Option<SocketAddr>,
    pub telemetry: telemetry::Declared,
    pub limits: TreeLimits,
    /// Where `money` of the limits stands.
    pub money: Option<Place>,
    pub payload_bytes: usize,
    /// Clients, listeners, humans and agents, in that order.
    pub members: Vec<Declared>,
    pub models: Vec<Model>,
    pub operators: Operators,
    /// Names of members that could not be read: whoever names one of them made no mistake.
    pub unread: HashSet<String>,
}

impl Sections {
    /// Where the organism `name` with the config `file` keeps its journal: as written, relative to
    /// the config, or in the user's directories.
    pub fn directories(&self, name: &str, file: &Path, around: &Surroundings) -> Directories {
        let directory = file::directory(file, around);
        let given =
            |path: &Option<At<Text>>| path.as_ref().map(|path| directory.join(&path.value.value));
        let project = Project {
            path: project::path_of(file, &around.directory),
            name: name.to_owned(),
            data_parent: self.data.is_none().then(|| around.data_parent()),
            state_parent: self.state.is_none().then(|| around.state_parent()),
        };
        let own = project.directory_name();
        let data = given(&self.data).unwrap_or_else(|| around.data_parent().join(&own));
        let state = given(&self.state).unwrap_or_else(|| around.state_parent().join(&own));
        Directories { project, data, state }
    }
}

/// Judges where the journal lies, and what is kept outside it.
pub(super) fn check_directories(
    sections: &Sections,
    file: &Path,
    around: &Surroundings,
    problems: &mut Problems,
) {
    let Some(name) = &sections.name else { return };
    let Directories { data, state, .. } = sections.directories(name, file, around);
    places::check(
        &NamedDirectory { key: "data", written: sections.data.as_ref(), path: &data },
        &NamedDirectory { key: "state", written: sections.state.as_ref(), path: &state },
        problems,
    );
}

/// Reads every section of `root`.
pub(super) fn read(root: &Table, source: &Arc<Source>, problems: &mut Problems) -> Sections {
    unknown_sections(root, problems);
    let Organism { name, data, state, unread: places_unread } = organism(root, source, problems);
    let storage = storage::read(root, source, problems);
    let http = root.get(keys::HTTP.name).is_some();
    let http = http.then(|| in_section(root, &keys::HTTP, source, problems, http::read)).flatten();
    let telemetry = in_section(root, &keys::TELEMETRY, source, problems, telemetry::read);
    let Limits { tree, money, payload_bytes } = limits_of(root, source, problems);
    let mut declared = Vec::new();
    each(root, &keys::CLIENTS, problems, |name, reader| declared.extend(client(name, reader)));
    each(root, &keys::LISTENERS, problems, |name, reader| declared.extend(listener(name, reader)));
    each(root, &keys::HUMANS, problems, |name, reader| declared.extend(human(name, reader)));
    each(root, &keys::AGENTS, problems, |name, reader| declared.extend(agent(name, reader)));
    let mut models = Vec::new();
    each(root, &keys::MODELS, problems, |name, reader| models.push(models::read(name, reader)));
    let mut operators = Operators::default();
    each(root, &keys::OPERATORS, problems, |name, reader| operators.read(name, reader));
    let unread = unread(root, &declared, &models);
    Sections {
        name,
        data,
        state,
        places_unread,
        storage,
        http,
        telemetry,
        limits: tree,
        money,
        payload_bytes,
        members: declared,
        models,
        operators,
        unread,
    }
}

fn unread(root: &Table, members: &[Declared], models: &[Model]) -> HashSet<String> {
    let is_named =
        |section: &&&Section| section.member.is_some() && section.name != keys::OPERATORS.name;
    let sections = SECTIONS.iter().filter(is_named);
    let tables = sections.filter_map(|section| match &root.get(section.name)?.value {
        Value::Table(table) => Some(table),
        _ => None,
    });
    let mut names: HashSet<_> =
        tables.flat_map(|table| table.entries.iter().map(|e| e.key.value.clone())).collect();
    for member in members {
        names.remove(member.name.value.as_str());
    }
    for model in models {
        names.remove(&model.name.value);
    }
    names
}

fn unknown_sections(root: &Table, problems: &mut Problems) {
    for entry in &root.entries {
        let key = &entry.key;
        if SECTIONS.iter().any(|section| section.name == key.value) {
            continue;
        }
        let help = match nearest(&key.value, SECTIONS.iter().map(|section| section.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let names: Vec<_> = SECTIONS.iter().map(|section| section.name).collect();
                format!("the sections are {}", names.join(", "))
            }
        };
        let message = format!("there is no section `{}`", key.value);
        problems.push(Problem::new(Code::UnknownSection, &key.place, message).help(help));
    }
}

/// The table of a section, with the place of its name.
fn section<'t>(
    root: &'t Table,
    section: &Section,
    problems: &mut Problems,
) -> Option<(&'t Table, Place)> {
    let entry = root.entries.iter().find(|entry| entry.key.value == section.name)?;
    match &entry.node.value {
        Value::Table(table) => Some((table, entry.key.place.clone())),
        _ => {
            let message =
                format!("`{}` must be a section, not {}", section.name, entry.node.kind());
            let header = match section.member {
                None => format!("write [{}]", section.name),
                Some(_) => format!("write [{}.some-name]", section.name),
            };
            problems.push(Problem::new(Code::WrongType, &entry.node.place, message).help(header));
            None
        }
    }
}

/// What `read` makes of a section, or of nothing where it is not written.
pub(super) fn in_section<T>(
    root: &Table,
    of: &'static Section,
    source: &Arc<Source>,
    problems: &mut Problems,
    read: impl FnOnce(&mut Reader<'_>) -> T,
) -> T {
    let empty = Table::default();
    let found = section(root, of, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, Place::start(source)));
    let what = format!("the section `{}`", of.name);
    read(&mut Reader::new(of, table, what, place, problems))
}

/// Calls `read` for each member of a section.
fn each(
    root: &Table,
    of: &Section,
    problems: &mut Problems,
    mut read: impl FnMut(&At<String>, &mut Reader<'_>),
) {
    let Some((table, _)) = section(root, of, problems) else { return };
    let member = of.member.unwrap_or(of.name);
    for entry in &table.entries {
        let name = &entry.key;
        let Value::Table(table) = &entry.node.value else {
            let message = format!("`{}` must be a {member}, not {}", name.value, entry.node.kind());
            let help = format!("write [{}.some-name] and the keys beneath it", of.name);
            let problem = Problem::new(Code::WrongType, &entry.node.place, message);
            problems.push(problem.help(help));
            continue;
        };
        let what = format!("{member} `{}`", name.value);
        read(name, &mut Reader::new(of, table, what, name.place.clone(), problems));
    }
}

/// The section of that name.
struct Organism {
    name: Option<String>,
    data: Option<At<Text>>,
    state: Option<At<Text>>,
    unread: bool,
}

fn organism(root: &Table, source: &Arc<Source>, problems: &mut Problems) -> Organism {
    let empty = Table::default();
    let found = section(root, &keys::ORGANISM, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, Place::start(source)));
    let what = "the section `organism`".to_owned();
    let mut reader = Reader::new(&keys::ORGANISM, table, what, place, problems);
    let name = reader.required_text("name", "\"my-organism\"");
    let name = name.and_then(|name| token(&name.map(|text| text.value), reader.problems));
    let data = reader.text("data");
    let state = reader.text("state");
    let written = |key: &str| table.get(key).is_some();
    let unread = (written("data") && data.is_none()) || (written("state") && state.is_none());
    Organism { name: name.map(|name| name.value.to_string()), data, state, unread }
}

/// The section of that name.
struct Limits {
    tree: TreeLimits,
    money: Option<Place>,
    payload_bytes: usize,
}

fn limits_of(root: &Table, source: &Arc<Source>, problems: &mut Problems) -> Limits {
    let empty = Table::default();
    let found = section(root, &keys::LIMITS, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, Place::start(source)));
    let what = "the section `limits`".to_owned();
    let mut read = Reader::new(&keys::LIMITS, table, what, place, problems);
    let or = TreeLimits::default();
    let depth = u32::try_from(limits::THREAD_DEPTH_CEILING).unwrap_or(u32::MAX);
    let tree = TreeLimits {
        depth: read.count32("depth", depth).unwrap_or(or.depth),
        children: read.count32("children", limits::CHILDREN_CEILING).unwrap_or(or.children),
        threads: read.count32("threads", limits::THREADS_CEILING).unwrap_or(or.threads),
        messages: read.count("messages", limits::MESSAGES_CEILING).unwrap_or(or.messages),
        rounds_failed: read
            .count32("rounds_failed", limits::ROUNDS_FAILED_CEILING)
            .unwrap_or(or.rounds_failed),
        model_calls: read
            .count("model_calls", limits::MODEL_CALLS_CEILING)
            .unwrap_or(or.model_calls),
        tokens: read.count("tokens", limits::TOKENS_CEILING).unwrap_or(or.tokens),
        money: read.money("money"),
        per_request_tokens: read.count("per_request_tokens", limits::TOKENS_CEILING),
        per_request_money: read.money("per_request_money"),
        wall_time: read.duration("wall_time", limits::WALL_TIME_CEILING).unwrap_or(or.wall_time),
    };
    let most = u64::try_from(limits::PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX);
    let bytes = read.count("payload_bytes", most).and_then(|bytes| usize::try_from(bytes).ok());
    let of_tree = tree.money.map(|_| read.place_of("money"));
    let money =
        of_tree.or_else(|| tree.per_request_money.map(|_| read.place_of("per_request_money")));
    Limits { tree, money, payload_bytes: bytes.unwrap_or(limits::PAYLOAD_BYTES_MAX) }
}
