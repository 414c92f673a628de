//! From the tree to what was declared: sections and members, before anything is compared.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Gather, Role, TreeLimits};
use crate::ids::ListenerName;
use crate::limits;

use super::keys::{self, SECTIONS, Section, nearest};
use super::problem::{Code, Problem, Problems};
use super::read::Reader;
use super::source::{Place, Source};
use super::tree::{At, Table, Text, Value};
use super::{FinalFormat, Memory};

/// A client, a listener or an agent as it was written.
pub(super) struct Declared {
    pub name: At<ListenerName>,
    pub role: Role,
    pub description: String,
    pub schema: Vec<At<Text>>,
    pub accepts: Vec<At<Text>>,
    pub replies: Vec<At<Text>>,
    pub peers: Vec<At<Text>>,
    /// Where `peers` stands, or the member's name.
    pub peers_place: Place,
    pub forward: bool,
    pub gather: Gather,
    pub timeout: Duration,
    pub attempts: u32,
    pub concurrency: u32,
    pub serial_per_thread: bool,
    pub backlog: usize,
    pub actions_per_turn: u32,
    pub process: Option<Process>,
    pub agent: Option<Agent>,
}

/// What only a listener hosted as a child process has.
pub(super) struct Process {
    pub command: Vec<At<Text>>,
    pub env: Vec<(At<String>, At<Text>)>,
    pub instances: u32,
}

/// What only an agent has.
pub(super) struct Agent {
    pub model: Option<At<Text>>,
    pub memory: Memory,
    pub max_iterations: u32,
    pub final_name: Option<At<Text>>,
    pub final_format: FinalFormat,
    pub prompt: Vec<(At<String>, At<Text>)>,
}

/// A model as it was written.
pub(super) struct Model {
    pub name: At<String>,
    pub recording: Option<At<Text>>,
}

/// Everything that was declared.
pub(super) struct Sections {
    pub name: Option<String>,
    pub data: Option<PathBuf>,
    pub state: Option<PathBuf>,
    pub limits: TreeLimits,
    pub payload_bytes: usize,
    /// Clients, listeners and agents, in that order.
    pub members: Vec<Declared>,
    pub models: Vec<Model>,
    /// Names of members that could not be read: whoever names one of them made no mistake.
    pub unread: HashSet<String>,
}

/// Reads every section of `root`.
pub(super) fn read(root: &Table, source: &Arc<Source>, problems: &mut Problems) -> Sections {
    unknown_sections(root, problems);
    let (name, data, state) = organism(root, source, problems);
    let (limits, payload_bytes) = tree_limits(root, source, problems);
    let mut declared = Vec::new();
    each(root, &keys::CLIENTS, problems, |name, reader| declared.extend(client(name, reader)));
    each(root, &keys::LISTENERS, problems, |name, reader| declared.extend(listener(name, reader)));
    each(root, &keys::AGENTS, problems, |name, reader| declared.extend(agent(name, reader)));
    let mut models = Vec::new();
    each(root, &keys::MODELS, problems, |name, reader| models.push(model(name, reader)));
    let unread = unread(root, &declared, &models);
    Sections { name, data, state, limits, payload_bytes, members: declared, models, unread }
}

fn unread(root: &Table, members: &[Declared], models: &[Model]) -> HashSet<String> {
    let sections = SECTIONS.iter().filter(|section| section.member.is_some());
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

fn organism(
    root: &Table,
    source: &Arc<Source>,
    problems: &mut Problems,
) -> (Option<String>, Option<PathBuf>, Option<PathBuf>) {
    let empty = Table::default();
    let found = section(root, &keys::ORGANISM, problems);
    let (table, place) = found.unwrap_or_else(|| (&empty, Place::start(source)));
    let what = "the section `organism`".to_owned();
    let mut reader = Reader::new(&keys::ORGANISM, table, what, place, problems);
    let name = reader.required_text("name", "\"my-organism\"");
    let name = name.and_then(|name| token(&name.map(|text| text.value), reader.problems));
    let path = |text: Option<At<Text>>| text.map(|text| PathBuf::from(text.value.value));
    let data = path(reader.text("data"));
    let state = path(reader.text("state"));
    (name.map(|name| name.value.to_string()), data, state)
}

fn tree_limits(root: &Table, source: &Arc<Source>, problems: &mut Problems) -> (TreeLimits, usize) {
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
        model_calls: read
            .count("model_calls", limits::MODEL_CALLS_CEILING)
            .unwrap_or(or.model_calls),
        tokens: read.count("tokens", limits::TOKENS_CEILING).unwrap_or(or.tokens),
        wall_time: read.duration("wall_time", limits::WALL_TIME_CEILING).unwrap_or(or.wall_time),
    };
    let most = u64::try_from(limits::PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX);
    let bytes = read.count("payload_bytes", most).and_then(|bytes| usize::try_from(bytes).ok());
    (tree, bytes.unwrap_or(limits::PAYLOAD_BYTES_MAX))
}

/// A member's name: one token, not one of the core's.
fn token(name: &At<String>, problems: &mut Problems) -> Option<At<ListenerName>> {
    match ListenerName::parse(&name.value) {
        Ok(value) => Some(At { value, place: name.place.clone() }),
        Err(error) => {
            let help = match tokenized(&name.value) {
                Some(token) => format!("did you mean `{token}`?"),
                None => error.expected.to_owned(),
            };
            let problem = Problem::new(Code::BadName, &name.place, error.to_string());
            problems.push(problem.help(help));
            None
        }
    }
}

/// The nearest text that is a token.
fn tokenized(text: &str) -> Option<String> {
    let good = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let token: String = text.chars().map(good).collect();
    let token = token.trim_matches(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit());
    ListenerName::parse(token).is_ok().then(|| token.to_owned())
}

fn member_name(name: &At<String>, reader: &mut Reader<'_>) -> Option<At<ListenerName>> {
    if [ListenerName::CORE, "organism"].contains(&name.value.as_str()) {
        let message = format!("`{}` is a name of the core", name.value);
        let problem = Problem::new(Code::ReservedName, &name.place, message);
        reader.problem(problem.help("choose another name"));
        return None;
    }
    token(name, reader.problems)
}

fn client(name: &At<String>, read: &mut Reader<'_>) -> Option<Declared> {
    let name = member_name(name, read);
    read.required("peers", "[\"the listeners it may send to\"]");
    let declared = common(Role::Client, name, read);
    if let Some(declared) = declared.as_ref().filter(|d| d.peers.is_empty()) {
        let place = declared.peers_place.clone();
        if place.span != read.place.span {
            read.empty("peers", &place);
        }
    }
    declared
}

/// What all three have; `None` where the name is bad, with every other problem reported.
fn common(role: Role, name: Option<At<ListenerName>>, read: &mut Reader<'_>) -> Option<Declared> {
    let gather = [("all", Gather::All), ("first", Gather::First)];
    let listens = role != Role::Client;
    let description = read.text("description").map(|text| text.value.value).unwrap_or_default();
    let schema = if listens { read.one_or_more("schema") } else { Vec::new() };
    let timeout = listens.then(|| read.duration("timeout", limits::TIMEOUT_CEILING)).flatten();
    let attempts = listens.then(|| read.count32("attempts", limits::ATTEMPTS_CEILING)).flatten();
    let backlog = listens.then(|| read.count("backlog", limits::BACKLOG_CEILING)).flatten();
    let gather = listens.then(|| read.choice("gather", &gather)).flatten();
    let (accepts, replies) = if listens {
        (read.list("accepts"), read.list("replies"))
    } else {
        (Vec::new(), Vec::new())
    };
    let peers = read.list("peers");
    Some(Declared {
        name: name?,
        role,
        description,
        schema,
        accepts,
        replies,
        peers,
        peers_place: read.place_of("peers"),
        forward: false,
        gather: gather.unwrap_or_default(),
        timeout: timeout.unwrap_or(limits::TIMEOUT_DEFAULT),
        attempts: attempts.unwrap_or(limits::ATTEMPTS_DEFAULT),
        concurrency: limits::CONCURRENCY_DEFAULT,
        serial_per_thread: role == Role::Agent,
        backlog: backlog.and_then(|n| usize::try_from(n).ok()).unwrap_or(limits::BACKLOG_DEFAULT),
        actions_per_turn: limits::ACTIONS_PER_TURN_DEFAULT,
        process: None,
        agent: None,
    })
}

/// Both kinds of listener say what they accept, and by which schema.
fn accepting(read: &mut Reader<'_>) {
    read.required("schema", "\"the file that declares its payloads.xsd\"");
    read.required("accepts", "[\"the payloads it takes\"]");
}

fn listener(name: &At<String>, read: &mut Reader<'_>) -> Option<Declared> {
    let name = member_name(name, read);
    read.required("command", "[\"the program\", \"its arguments\"]");
    accepting(read);
    let instances = read.count32("instances", limits::INSTANCES_CEILING);
    let process = Process {
        command: read.one_or_more("command"),
        env: read.free("env"),
        instances: instances.unwrap_or(limits::INSTANCES_DEFAULT),
    };
    let forward = read.flag("forward").unwrap_or_default();
    let serial_per_thread = read.flag("serial_per_thread").unwrap_or_default();
    let common = common(Role::Listener, name, read)?;
    let concurrency = process.instances;
    Some(Declared { forward, serial_per_thread, concurrency, process: Some(process), ..common })
}

fn agent(name: &At<String>, read: &mut Reader<'_>) -> Option<Declared> {
    let name = member_name(name, read);
    accepting(read);
    transport(read);
    let memory = [("thread", Memory::Thread), ("own", Memory::Own)];
    let format = [("text", FinalFormat::Text), ("markdown", FinalFormat::Markdown)];
    let iterations = read.count32("max_iterations", limits::ITERATIONS_CEILING);
    let agent = Agent {
        model: read.required_text("model", "\"one of the models of this file\""),
        memory: read.choice("memory", &memory).unwrap_or_default(),
        max_iterations: iterations.unwrap_or(limits::ITERATIONS_DEFAULT),
        final_name: read.text("final"),
        final_format: read.choice("final_format", &format).unwrap_or_default(),
        prompt: read.free("prompt"),
    };
    let actions = read.count32("max_actions_per_turn", limits::ACTIONS_PER_TURN_CEILING);
    let concurrency = read.count32("concurrency", limits::CONCURRENCY_CEILING);
    let common = common(Role::Agent, name, read)?;
    Some(Declared {
        actions_per_turn: actions.unwrap_or(limits::ACTIONS_PER_TURN_DEFAULT),
        concurrency: concurrency.unwrap_or(limits::CONCURRENCY_DEFAULT),
        agent: Some(agent),
        ..common
    })
}

/// Words the design knows but this version does not have get their own answer.
fn transport(read: &mut Reader<'_>) {
    let words = [("xml", true), ("native", false), ("xml-final", false)];
    if read.choice("transport", &words) == Some(false) {
        let place = read.text("transport").map_or_else(|| read.place.clone(), |t| t.place);
        let message = "this transport is not available yet";
        let problem = Problem::new(Code::NotAvailable, &place, message);
        read.problem(problem.help("write transport = \"xml\", or leave the key out"));
    }
}

fn model(name: &At<String>, read: &mut Reader<'_>) -> Model {
    token(name, read.problems);
    let words = [("playback", true), ("openai", false), ("anthropic", false)];
    let provider = match read.required("provider", "\"playback\"") {
        true => read.choice("provider", &words),
        false => None,
    };
    let recording = match provider {
        Some(true) => read.required_text("recording", "\"turns.recording.xml\""),
        _ => read.text("recording"),
    };
    if provider == Some(false) {
        let place = read.text("provider").map_or_else(|| read.place.clone(), |t| t.place);
        let message = "this provider is not available yet";
        let problem = Problem::new(Code::NotAvailable, &place, message);
        read.problem(problem.help("write provider = \"playback\" and name a recording"));
    }
    Model { name: name.clone(), recording }
}

impl<T> At<T> {
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At { value: f(self.value), place: self.place }
    }
}
