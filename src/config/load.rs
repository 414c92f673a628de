//! Loads a config: reads its sections, checks them against each other, and resolves the files and
//! programs that they name.
//!
//! This module has one entry point for each kind of command. Each entry point loads only the parts
//! of the config that its commands need.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::contract::{Contracts, Schedule};
use crate::ids::{Digest, ListenerName};

use super::members::DeclaredMember;
use super::payloads::PayloadResolver;
use super::sections::{self, DeclaredSections};
use super::stored::portable::directory_name;
use super::{
    AgentSpec, AlertsConfig, Config, ConfigEnvironment, ConfigProblems, ConfigSource,
    ConfiguredWorkflow, MissingKeys, ModelSpec, ProcessSpec, ProjectFolders, SourceRange,
    StorageConfig, StoredConfig, agents, budgets, effective, file, keys, members, models, names,
    overrides, program, remotes, schedules, secrets, shipped_listeners, stored, transports, tree,
    undo, withheld, workflows,
};

/// Reads the sections of the config file, with overrides from the environment. Each section is
/// checked separately. `is_stored` states whether the config comes from a journal.
pub(super) fn read(
    path: &Path,
    around: &ConfigEnvironment,
    is_stored: bool,
    problems: &mut ConfigProblems,
) -> Result<(DeclaredSections, Arc<ConfigSource>), ConfigProblems> {
    let text = file::read(path, around)?;
    let shown = path.display().to_string();
    let (mut root, source) = tree::parse(&shown, &text, around, problems)?;
    overrides::apply(&mut root, &source, around, problems);
    let mut sections = sections::read(&root, &source, is_stored, problems);
    sections.workflows = root.take(keys::WORKFLOWS.name);
    sections.root = root;
    Ok((sections, source))
}

/// Returns the journal's directories, even if other parts of the config are invalid. Commands can
/// then read the journal of an organism that cannot start. Returns `Err` if the file does not
/// determine the directories, for example because the organism's name is missing.
pub fn directories(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<ProjectFolders, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, source) = read(path, around, false, &mut problems)?;
    match (&sections.name, sections.places_unread) {
        (Some(name), false) => sections
            .directories(name, path, around)
            .ok_or_else(|| sections::home_missing(&source).into()),
        _ => Err(problems),
    }
}

/// Returns the journal's storage even if other parts of the config are invalid. If the sections
/// about storage are invalid, `Err` contains every problem of the config.
pub fn storage(path: &Path, around: &ConfigEnvironment) -> Result<StorageConfig, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let (sections, _) = read(path, around, false, &mut problems)?;
    let directory = file::directory(path, around);
    storage_of(&sections, &directory, around, &mut problems).ok_or(problems)
}

/// Loads and checks the config at `path`, without starting anything. `Err` contains every problem.
pub fn load(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Needed)
}

/// Loads the config for a command that checks the config, often on a machine where the organism
/// does not run. Therefore, a missing key of a model is no problem. [`Config::keys_missing_here`]
/// returns such keys.
pub fn load_for_check(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Noted)
}

/// Loads the config for a process that only hosts agents, and so needs no programs of listeners. If
/// `own` is true, the process has its own NATS credentials and does not need those of the pump.
/// Keys of models are checked later, when the agents are known.
pub fn load_for_host(
    path: &Path,
    around: &ConfigEnvironment,
    own: bool,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, if own { KeyRequirement::Own } else { KeyRequirement::Host })
}

/// Loads the config for commands that can work without keys, because they only read, or send
/// requests to a running organism. If such a command starts an organism after all, the missing keys
/// are reported then.
pub fn load_without_keys(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Optional)
}

/// Loads the config for `organism nats-config`, which writes configs and keys of servers. Reports
/// neither missing programs of listeners nor keys that the command has yet to write.
pub fn load_for_servers(path: &Path, around: &ConfigEnvironment) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Unwritten)
}

/// Loads a stored config that was written from a journal to files.
pub(super) fn load_stored(
    path: &Path,
    around: &ConfigEnvironment,
) -> Result<Config, ConfigProblems> {
    load_with(path, around, KeyRequirement::Stored)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRequirement {
    Needed,
    /// For the command that checks a config. All keys are needed, but a missing key of a model is
    /// only listed in a note.
    Noted,
    Optional,
    /// For processes that only host agents: keys of models are optional; secrets of clients and the
    /// credentials of the system account are not read.
    Host,
    /// For processes that only host agents and have their own NATS credentials: keys of models are
    /// optional; secrets of clients, the pump's credentials and those of the system account are not
    /// read.
    Own,
    /// For `organism nats-config`: keys of models are optional. Secrets of clients and the pump's
    /// credentials are not read, and the sync settings of the servers are not checked.
    Unwritten,
    /// For stored configs, which contain no secrets: keys of models are optional. Secrets of
    /// clients, credentials, telemetry headers and the certificate authority of NATS are not read,
    /// and the sync settings of the servers are not checked.
    Stored,
}

impl KeyRequirement {
    /// Whether the config is loaded for a process that only hosts agents. Such a process does not
    /// open the journal.
    fn hosts_agents(self) -> bool {
        matches!(self, Self::Host | Self::Own)
    }

    /// Whether the key files, secret files and variables that the config names may be missing.
    fn needs_no_keys(self) -> bool {
        matches!(self, Self::Unwritten | Self::Stored)
    }
}

/// Programs that an organism starts, and the names of listeners that run elsewhere.
struct ConfiguredPrograms {
    processes: Vec<ProcessSpec>,
    alerts: Option<Arc<AlertsConfig>>,
    remotes: Vec<ListenerName>,
}

/// Finds the programs of listeners and of alerts. Reports problems with these programs, such as a
/// missing program, except in three cases that `keys` states: the config is loaded for a process
/// that only hosts agents, for `organism nats-config`, or as a stored config.
fn programs(
    sections: &DeclaredSections,
    directory: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> ConfiguredPrograms {
    let mut own = ConfigProblems::default();
    let processes = program::processes(&sections.members, directory, around, &mut own);
    let alerts = sections.alerts.as_ref();
    let alerts = alerts.map(|alerts| Arc::new(alerts.configured(directory, around, &mut own)));
    if matches!(keys, KeyRequirement::Needed | KeyRequirement::Noted | KeyRequirement::Optional) {
        own.into_iter().for_each(|problem| problems.push(problem));
    }
    let remotes = remotes::remotes(sections, problems);
    ConfiguredPrograms { processes, alerts, remotes }
}

/// Reads and checks the sections of the config. Leaves out the parts that the command does not
/// need, as `keys` states.
fn read_as(
    path: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> Result<DeclaredSections, ConfigProblems> {
    let is_stored = keys == KeyRequirement::Stored;
    let (mut sections, source) = read(path, around, is_stored, problems)?;
    if keys == KeyRequirement::Own || keys.needs_no_keys() {
        sections.storage.forget_whom();
    }

    if keys.hosts_agents() || keys.needs_no_keys() {
        sections.storage.forget_who_asks();
    }

    if is_stored {
        sections.telemetry.forget_headers();
        sections.storage.forget_authority();
    }

    check_sections(&mut sections, &source, path, around, problems);
    if !is_stored {
        members::check_callee_names(&sections.members, problems);
        names::check_word_lists(&sections.root, problems);
        models::check_temperatures(&sections.models, problems);
        transports::check_thinking(&sections, problems);
        sections.storage.check_stream(problems);
    }
    Ok(sections)
}

/// Resolves the storage of the journal. Returns `None` if the organism has no valid name, or if the
/// storage cannot be resolved because of a reported problem.
fn storage_of(
    sections: &DeclaredSections,
    directory: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) -> Option<StorageConfig> {
    let name = sections.name.as_deref()?;
    sections.storage.storage(name, directory, around, problems)
}

/// Checks the sections of a config against each other. Adds to `sections.invalid` the name of each
/// member that shares its name with another member or a workflow, or whose peers or models have a
/// problem.
fn check_sections(
    sections: &mut DeclaredSections,
    source: &Arc<ConfigSource>,
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    sections::check_directories(sections, source, path, around, problems);
    let invalid = names::check(sections, source, problems);
    sections.invalid.extend(invalid);
    budgets::check(sections, problems);
    check_proof(sections, path, around, problems);
}

/// The contracts, workflows and schedules of a config, with all payload names resolved. A contract
/// states which payloads a member accepts and returns, and whom it may address.
struct ResolvedSections {
    /// Contracts of all members and workflows; `None` if they could not be built because of a
    /// problem.
    contracts: Option<Contracts>,
    workflows: Vec<ConfiguredWorkflow>,
    schedules: Vec<Schedule>,
}

/// Resolves all payload names, and builds the contracts, workflows and schedules that use them.
/// `keys` states whether the config is a stored one.
fn resolve(
    sections: &DeclaredSections,
    payloads: &mut PayloadResolver,
    place: (&Path, &ConfigEnvironment),
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> ResolvedSections {
    let is_stored = keys == KeyRequirement::Stored;
    payloads.declare(&sections.payloads, problems);
    let workflows = workflows::read(sections, payloads, (place.0, place.1, is_stored), problems);
    let of_workflows = workflows.contracts((sections, is_stored), payloads, problems);
    let contracts = payloads.contracts(sections, of_workflows, problems);
    if let Some(contracts) = &contracts {
        undo::check(&sections.members, (contracts, is_stored), &payloads.schemas, problems);
    }
    let context = (contracts.as_ref(), is_stored);
    let workflows = workflows.configured(sections, context, payloads, problems);
    let schemas = &payloads.schemas;
    let schedules = schedules::schedules(sections, contracts.as_ref(), schemas, place.0, problems);
    ResolvedSections { contracts, workflows, schedules }
}

/// Checks that the payloads of each agent fit the agent's transport, which is the form in which a
/// model writes its actions. Returns notes about settings that are valid but may surprise the
/// author of the config, including settings of concurrency, of budgets and of models.
fn transport_notes(
    sections: &DeclaredSections,
    contracts: Option<&Contracts>,
    payloads: &PayloadResolver,
    problems: &mut ConfigProblems,
) -> Vec<String> {
    let notes = contracts.map(|contracts| {
        transports::check(&sections.members, contracts, &payloads.schemas, problems)
    });
    let others = concurrency_notes(sections).into_iter().chain(budgets::notes(sections));
    let others = others.chain(models::address_notes(&sections.models));
    notes.into_iter().flatten().chain(others).collect()
}

/// If there are several partitions, returns one note for each member on NATS with `concurrency =
/// 1`. Such a member may have one delivery in flight in each partition, although the author may
/// expect only one in all partitions together.
fn concurrency_notes(sections: &DeclaredSections) -> Vec<String> {
    let partitions = sections.storage.partitions;
    let is_single = |member: &&DeclaredMember| member.nats.is_some() && member.concurrency == 1;
    if partitions == 1 {
        return Vec::new();
    }

    let note = |member: &DeclaredMember| {
        format!(
            "{}: `concurrency = 1` holds in each of the {partitions} partitions, so up to \
             {partitions} deliveries are out at once; one at a time in all needs one partition",
            member.name.value
        )
    };
    sections.members.iter().filter(is_single).map(note).collect()
}

/// Reports a problem if the directory for copies of checkpoints is inside one of the organism's own
/// directories.
fn check_proof(
    sections: &DeclaredSections,
    path: &Path,
    around: &ConfigEnvironment,
    problems: &mut ConfigProblems,
) {
    let own = sections.name.as_ref().and_then(|name| sections.directories(name, path, around));
    if let Some(own) = own {
        sections.storage.proof.check(&own, &file::directory(path, around), problems);
    }
}

fn load_with(
    path: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
) -> Result<Config, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let sections = read_as(path, around, keys, &mut problems)?;
    let directory = file::directory(path, around);

    let mut payloads = PayloadResolver::new((&directory, keys), &sections.catalogue, &mut problems);
    let ResolvedSections { contracts, workflows, schedules } =
        resolve(&sections, &mut payloads, (&directory, around), keys, &mut problems);

    let ConfiguredPrograms { processes, alerts, remotes } =
        programs(&sections, &directory, around, keys, &mut problems);
    let client_secrets = secrets::read(&sections.members, &directory, around, keys, &mut problems);
    let agents = agents::agents(&sections.members, &payloads, (&*directory, keys), &mut problems);

    let mut missing = MissingKeys::default();
    let models = models::specs(&sections, (&directory, keys), around, &mut missing, &mut problems);
    let storage = storage_of(&sections, &directory, around, &mut problems);

    let mut hints = shipped_listeners::notes(&sections.members, &directory);
    let telemetry = sections.telemetry.telemetry(&directory, around, &mut hints, &mut problems);
    let notes = transport_notes(&sections, contracts.as_ref(), &payloads, &mut problems);

    report_unmet(keys, missing.of_pump(&agents, &models), &mut problems);
    let (Some(contracts), Some(name), Some(storage), true) =
        (contracts, &sections.name, storage, problems.is_empty())
    else {
        return Err(problems);
    };

    let parts = (&*agents, &*models, &*workflows, &*schedules);
    let text = effective_text(name, &sections, &contracts, parts, &payloads);
    // Earlier code has reported the problem if there are no such directories.
    let Some(folders) = sections.directories(name, path, around) else { return Err(problems) };

    Ok(Config {
        stored: stored_config(&text, &sections, &mut payloads, (path, &directory, around)),
        withheld: withheld::withheld(&sections, &models, &client_secrets, (&directory, around)),
        name: name.clone(),
        file: path.to_owned(),
        project: folders.project,
        data: folders.data,
        state: folders.state,
        checkpoints: sections.storage.proof.checkpoints(&directory),
        snapshot_records: sections.storage.proof.snapshot_records,
        storage,
        http: sections.http,
        telemetry,
        alerts,
        directory,
        contracts,
        schemas: payloads.schemas,
        processes,
        remotes,
        client_secrets,
        clients_with_steps: with_steps(&sections.members),
        operators: sections.operators.keys(),
        nats: sections.storage.servers(&file::directory(path, around), around),
        agents,
        agent_places: agent_places(&sections.members),
        models,
        workflows,
        schedules,
        runs_schedules: true,
        limits: sections.limits,
        notes: payloads.notes.into_iter().chain(notes).chain(hints).collect(),
        payload_bytes: sections.payload_bytes,
        keys_missing: Arc::new(missing),
        recorder: None,
        trial: None,
        launcher: None,
        digest: Digest::of(text.as_bytes()),
        text,
    })
}

/// Returns the place of each agent's name in the text of the config.
fn agent_places(members: &[DeclaredMember]) -> BTreeMap<ListenerName, SourceRange> {
    let agents = members.iter().filter(|member| member.agent.is_some());
    agents.map(|agent| (agent.name.value.clone(), agent.name.place.clone())).collect()
}

/// Returns the clients that have `steps = true` in the config. They may see the text that models
/// write in the clients' own threads.
fn with_steps(members: &[DeclaredMember]) -> Vec<ListenerName> {
    let clients = members.iter().filter(|member| member.steps);
    clients.map(|client| client.name.value.clone()).collect()
}

/// Adds `unmet`, the problems about missing keys, to `problems` if the command needs all keys. In
/// any case, sorts all problems.
fn report_unmet(keys: KeyRequirement, unmet: ConfigProblems, problems: &mut ConfigProblems) {
    if keys == KeyRequirement::Needed {
        problems.also(unmet);
    }
    problems.sort();
}

/// Returns the config in the form in which the journal stores it.
fn stored_config(
    effective: &str,
    sections: &DeclaredSections,
    payloads: &mut PayloadResolver,
    (path, directory, around): (&Path, &Path, &ConfigEnvironment),
) -> Arc<StoredConfig> {
    let documents = std::mem::take(&mut payloads.documents);
    let rendered = stored::render(sections, documents, directory, around);
    Arc::new(StoredConfig::new(effective, path, rendered))
}

/// The agents, models, workflows and schedules that become part of the effective config.
type EffectiveParts<'a> =
    (&'a [AgentSpec], &'a [ModelSpec], &'a [ConfiguredWorkflow], &'a [Schedule]);

fn effective_text(
    name: &str,
    sections: &DeclaredSections,
    contracts: &Contracts,
    (agents, models, workflows, schedules): EffectiveParts<'_>,
    payloads: &PayloadResolver,
) -> String {
    let effective = effective::EffectiveConfig {
        name,
        limits: &sections.limits,
        payload_bytes: sections.payload_bytes,
        catalogue: sections.catalogue.iter().map(|one| directory_name(&one.value.value)).collect(),
        contracts: contracts.iter().collect(),
        processes: effective::processes(&sections.members),
        agents,
        models: models.iter().map(models::shown).collect(),
        operators: effective::operators(&sections.operators.keys()),
        browser_keys: effective::browser_keys(&sections.operators.keys()),
        clients_with_steps: with_steps(&sections.members),
        schemas: payloads.digests(),
        workflows: effective::workflows(workflows),
        schedules: effective::schedules(schedules),
    };

    effective.text()
}
