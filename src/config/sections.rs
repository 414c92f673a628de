//! Reads and checks each section of the config, and each member: client, listener, human or agent.
//! Later code checks that the sections and members fit together.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::contract::TreeLimits;
use crate::limits;

use super::ProjectFolders;
use super::alerts::{self, DeclaredAlerts};
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::file;
use super::http;
use super::journal_directories::{self, NamedDirectory};
use super::keys::{self, KnownSection, SECTIONS, did_you_mean, nearest};
use super::members::{DeclaredMember, SchemaSource, agent, client, human, listener, token};
use super::models::{self, DeclaredModel};
use super::operators::DeclaredOperators;
use super::project::{self, ProjectPaths};
use super::read::TableReader;
use super::schedules::{self, DeclaredSchedule};
use super::short_types::{self, DeclaredPayloads};
use super::source_text::{ConfigSource, SourceRange};
use super::storage;
use super::telemetry;
use super::tree::{ExpandedText, Located, TomlEntry, TomlTable, TomlValue};

/// All sections and members that the config declares.
pub(super) struct DeclaredSections {
    pub name: Option<String>,
    pub data: Option<Located<ExpandedText>>,
    pub state: Option<Located<ExpandedText>>,
    /// Folders from which any schema may import.
    pub catalogue: Vec<Located<ExpandedText>>,
    /// Whether the config sets `data` or `state` to a value that could not be read.
    pub places_unread: bool,
    pub storage: storage::DeclaredStorage,
    pub http: Option<SocketAddr>,
    pub telemetry: telemetry::DeclaredTelemetry,
    pub alerts: Option<DeclaredAlerts>,
    pub limits: TreeLimits,
    /// Range of the key `money` in the section `[limits]` of the config's text. Without this key,
    /// the range of the key `per_request_money`. `None` if the config sets neither key.
    pub money: Option<SourceRange>,
    pub payload_bytes: usize,
    /// Clients, listeners, humans and agents, in that order.
    pub members: Vec<DeclaredMember>,
    pub models: Vec<DeclaredModel>,
    pub operators: DeclaredOperators,
    pub payloads: DeclaredPayloads,
    pub schedules: Vec<DeclaredSchedule>,
    /// The section of workflows as the config writes it; `None` if the config has no such section.
    pub workflows: Option<TomlEntry>,
    /// The complete config with overrides applied, except for the section of workflows.
    pub root: TomlTable,
    /// Names of members that could not be read. References to these members are not reported as
    /// unknown.
    pub unread: HashSet<String>,
    /// Names of members whose declarations have a problem. The contract of such a member is
    /// unknown. Therefore, the contract is left out, and no other check depends on it. Otherwise,
    /// one mistake would lead to false problems elsewhere.
    pub invalid: HashSet<String>,
}

impl DeclaredSections {
    /// Returns the names of the workflows that the config declares.
    pub fn workflow_names(&self) -> impl Iterator<Item = &str> {
        let entries = match self.workflows.as_ref().map(|section| &section.node.value) {
            Some(TomlValue::Table(table)) => table.entries.as_slice(),
            _ => &[],
        };
        entries.iter().map(|entry| entry.key.value.as_str())
    }

    /// Returns the directories of the organism `name`, whose config is `file`. A relative path in
    /// the config is resolved against the directory of `file`. For a directory that the config does
    /// not set, returns this user's default directory. Returns `None` if a default directory is
    /// needed and the home directory of this user is unknown.
    pub fn directories(
        &self,
        name: &str,
        file: &Path,
        around: &ConfigEnvironment,
    ) -> Option<ProjectFolders> {
        let directory = file::directory(file, around);
        let given = |path: &Option<Located<ExpandedText>>| {
            path.as_ref().map(|path| directory.join(&path.value.value))
        };

        let project = ProjectPaths {
            path: project::path_of(file, &around.directory),
            name: name.to_owned(),
            data_parent: around.data_parent().filter(|_| self.data.is_none()),
            state_parent: around.state_parent().filter(|_| self.state.is_none()),
        };

        let own = project.directory_name();
        let beneath = |parent: &Option<PathBuf>| parent.as_ref().map(|parent| parent.join(&own));
        let data = given(&self.data).or_else(|| beneath(&project.data_parent))?;
        let state = given(&self.state).or_else(|| beneath(&project.state_parent))?;
        Some(ProjectFolders { project, data, state })
    }
}

/// Makes the problem of a config that needs default directories while the home directory of this
/// user is unknown.
pub(super) fn home_missing(source: &Arc<ConfigSource>) -> ConfigProblem {
    let message = "this user has no home directory, where the default `data` and `state` would be";
    let help = "set HOME to an absolute path, or set `data` and `state` under [organism]";
    ConfigProblem::new(ProblemCode::HomeMissing, &SourceRange::start(source), message).help(help)
}

/// Checks the directory of the journal, and the directory of files kept outside the journal.
pub(super) fn check_directories(
    sections: &DeclaredSections,
    source: &Arc<ConfigSource>,
    file: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    let Some(name) = &sections.name else { return };
    let Some(ProjectFolders { data, state, .. }) = sections.directories(name, file, around) else {
        problems.push(home_missing(source));
        return;
    };
    journal_directories::check(
        &NamedDirectory { key: "data", written: sections.data.as_ref(), path: &data },
        &NamedDirectory { key: "state", written: sections.state.as_ref(), path: &state },
        problems,
    );
}

/// Reads every section of the config. `root` is the table that contains the sections. `is_stored`
/// states whether the config comes from a journal.
pub(super) fn read(
    root: &TomlTable,
    source: &Arc<ConfigSource>,
    is_stored: bool,
    problems: &mut ConfigProblems,
) -> DeclaredSections {
    unknown_sections(root, problems);
    let OrganismSection { name, data, state, catalogue, unread: places_unread } =
        organism(root, source, problems);
    let storage = storage::read(root, source, problems);
    let http = root.get(keys::HTTP.name).is_some();
    let http = http.then(|| in_section(root, &keys::HTTP, source, problems, http::read)).flatten();
    let telemetry = in_section(root, &keys::TELEMETRY, source, problems, telemetry::read);
    let alerts = root.get(keys::ALERTS.name).and_then(|_| {
        in_section(root, &keys::ALERTS, source, problems, |reader| alerts::read(reader, is_stored))
    });
    let LimitsSection { tree, money, payload_bytes } = limits_of(root, source, problems);

    let mut declared = Vec::new();
    let payloads = short_types::read(root, is_stored, problems);
    let source_of = match (root.get(keys::WORKFLOWS.name), &payloads.place) {
        (Some(_), _) => SchemaSource::Workflows,
        (None, Some(_)) => SchemaSource::FileOrSection,
        (None, None) => SchemaSource::File,
    };

    let mut invalid = HashSet::new();
    invalid.extend(each(root, &keys::CLIENTS, problems, |name, reader| {
        declared.extend(client(name, reader));
    }));
    invalid.extend(each(root, &keys::LISTENERS, problems, |name, reader| {
        declared.extend(listener(name, source_of, reader));
    }));
    invalid.extend(each(root, &keys::HUMANS, problems, |name, reader| {
        declared.extend(human(name, source_of, reader));
    }));
    invalid.extend(each(root, &keys::AGENTS, problems, |name, reader| {
        declared.extend(agent(name, source_of, reader));
    }));

    let mut models = Vec::new();
    each(root, &keys::MODELS, problems, |name, reader| models.push(models::read(name, reader)));
    let mut operators = DeclaredOperators::default();
    each(root, &keys::OPERATORS, problems, |name, reader| operators.read(name, reader));
    let mut schedules = Vec::new();
    each(root, &keys::SCHEDULES, problems, |name, reader| {
        schedules.push(schedules::read(name, reader));
    });

    let unread = unread(root, &declared, &models);
    DeclaredSections {
        name,
        data,
        state,
        catalogue,
        places_unread,
        storage,
        http,
        telemetry,
        alerts,
        limits: tree,
        money,
        payload_bytes,
        members: declared,
        models,
        operators,
        payloads,
        schedules,
        workflows: None,
        root: TomlTable::default(),
        unread,
        invalid,
    }
}

fn unread(
    root: &TomlTable,
    members: &[DeclaredMember],
    models: &[DeclaredModel],
) -> HashSet<String> {
    let apart =
        [keys::OPERATORS.name, keys::PAYLOADS.name, keys::WORKFLOWS.name, keys::SCHEDULES.name];
    let is_named =
        |section: &&&KnownSection| section.member.is_some() && !apart.contains(&section.name);
    let sections: Vec<&str> =
        SECTIONS.iter().filter(is_named).map(|section| section.name).collect();
    let known = SECTIONS.map(|section| section.name);
    // An unknown section may be one of them, with a misspelled name.
    let is_meant = |name: &str| {
        let near = if known.contains(&name) { Some(name) } else { nearest(name, known) };
        near.is_some_and(|near| sections.contains(&near))
    };
    let entries = root.entries.iter().filter(|entry| is_meant(&entry.key.value));
    let tables = entries.filter_map(|entry| match &entry.node.value {
        TomlValue::Table(table) => Some(table),
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

fn unknown_sections(root: &TomlTable, problems: &mut ConfigProblems) {
    let names = SECTIONS.map(|section| section.name);
    for entry in &root.entries {
        let key = &entry.key;
        if names.contains(&key.value.as_str()) {
            continue;
        }
        let help =
            did_you_mean(&key.value, names, || format!("the sections are {}", names.join(", ")));
        let message = format!("there is no section `{}`", key.value);
        problems
            .push(ConfigProblem::new(ProblemCode::UnknownSection, &key.place, message).help(help));
    }
}

/// Returns the table of a section, with the range of the section's name. If the section is missing,
/// returns `None`. If the section is not a table, reports this and returns `None`.
fn section<'t>(
    root: &'t TomlTable,
    section: &KnownSection,
    problems: &mut ConfigProblems,
) -> Option<(&'t TomlTable, SourceRange)> {
    let entry = root.entries.iter().find(|entry| entry.key.value == section.name)?;
    match &entry.node.value {
        TomlValue::Table(table) => Some((table, entry.key.place.clone())),
        _ => {
            let message =
                format!("`{}` must be a section, not {}", section.name, entry.node.kind());
            let header = match section.member {
                None => format!("write [{}]", section.name),
                Some(_) => format!("write [{}.some-name]", section.name),
            };
            problems.push(
                ConfigProblem::new(ProblemCode::WrongType, &entry.node.place, message).help(header),
            );
            None
        }
    }
}

/// Applies `read` to the table of a section, or to an empty table if the section is missing.
pub(super) fn in_section<T>(
    root: &TomlTable,
    known: &'static KnownSection,
    source: &Arc<ConfigSource>,
    problems: &mut ConfigProblems,
    read: impl FnOnce(&mut TableReader<'_>) -> T,
) -> T {
    let empty = TomlTable::default();
    let found = section(root, known, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, SourceRange::start(source)));
    let what = format!("the section `{}`", known.name);
    read(&mut TableReader::new(known, table, what, place, problems))
}

/// Calls `read` for each member of a section. Returns the names of members whose tables have a
/// problem.
fn each(
    root: &TomlTable,
    known: &KnownSection,
    problems: &mut ConfigProblems,
    mut read: impl FnMut(&Located<String>, &mut TableReader<'_>),
) -> HashSet<String> {
    let mut invalid = HashSet::new();
    let Some((table, _)) = section(root, known, problems) else { return invalid };
    let member = known.member.unwrap_or(known.name);
    for entry in &table.entries {
        let name = &entry.key;
        let TomlValue::Table(table) = &entry.node.value else {
            let message = format!("`{}` must be a {member}, not {}", name.value, entry.node.kind());
            let help = format!("write [{}.some-name] and the keys beneath it", known.name);
            let problem = ConfigProblem::new(ProblemCode::WrongType, &entry.node.place, message);
            problems.push(problem.help(help));
            continue;
        };
        let what = format!("{member} `{}`", name.value);
        let mut reader = TableReader::new(known, table, what, name.place.clone(), problems);
        read(name, &mut reader);
        if reader.has_problem() {
            invalid.insert(name.value.clone());
        }
    }

    invalid
}

struct OrganismSection {
    name: Option<String>,
    data: Option<Located<ExpandedText>>,
    state: Option<Located<ExpandedText>>,
    catalogue: Vec<Located<ExpandedText>>,
    unread: bool,
}

fn organism(
    root: &TomlTable,
    source: &Arc<ConfigSource>,
    problems: &mut ConfigProblems,
) -> OrganismSection {
    let empty = TomlTable::default();
    let found = section(root, &keys::ORGANISM, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, SourceRange::start(source)));
    let what = "the section `organism`".to_owned();
    let mut reader = TableReader::new(&keys::ORGANISM, table, what, place, problems);
    let name = reader.required_text("name", "\"my-organism\"");
    let name = name.and_then(|name| token(&name.map(|text| text.value), reader.problems));
    let data = reader.text("data");
    let state = reader.text("state");
    let catalogue = reader.list("catalogue");
    let written = |key: &str| table.get(key).is_some();
    let unread = (written("data") && data.is_none()) || (written("state") && state.is_none());
    let name = name.map(|name| name.value.to_string());
    OrganismSection { name, data, state, catalogue, unread }
}

struct LimitsSection {
    tree: TreeLimits,
    money: Option<SourceRange>,
    payload_bytes: usize,
}

fn limits_of(
    root: &TomlTable,
    source: &Arc<ConfigSource>,
    problems: &mut ConfigProblems,
) -> LimitsSection {
    let empty = TomlTable::default();
    let found = section(root, &keys::LIMITS, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, SourceRange::start(source)));
    let what = "the section `limits`".to_owned();
    let mut read = TableReader::new(&keys::LIMITS, table, what, place, problems);

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
    LimitsSection { tree, money, payload_bytes: bytes.unwrap_or(limits::PAYLOAD_BYTES_MAX) }
}
