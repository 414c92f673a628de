//! Steps that several commands share at their start: they load the config, parse arguments, and
//! make the runtime.

use std::cell::Cell;
use std::io::Read as _;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use tokio::runtime::{self, Runtime};

use crate::children::{self, OrphanReport};
use crate::config::{
    self, Config, ConfigEnvironment, ConfigProblems, ProjectFolders, StorageConfig,
};
use crate::file_limit;
use crate::ids::{Digest, ListenerName};
use crate::io_reason::io_reason;
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;
use crate::organism::{self, project};
use crate::service::handshake::Handshake;

use super::decision::DecisionArgs;
use super::exit::CommandFailure;
use super::organism_reach::{OrganismReach, running_config, running_on};
use super::{CommandExit, config_error_carets, named_config, stderr_queue};

/// Loads the config of a command. Prints all problems of an invalid config, and exits with 78.
pub(super) fn config(given: Option<&Path>) -> anyhow::Result<Config> {
    loaded(given, config::load)
}

/// Returns the storage settings of the journal from the config. Ignores problems in other parts of
/// the config, so that a journal can be verified even if its organism cannot start.
pub(super) fn storage(given: Option<&Path>) -> anyhow::Result<StorageConfig> {
    loaded(given, config::storage)
}

/// A function that loads a config, or a part of it.
type LoadConfig<T> = fn(&Path, &ConfigEnvironment) -> Result<T, ConfigProblems>;

fn loaded<T>(given: Option<&Path>, load: LoadConfig<T>) -> anyhow::Result<T> {
    named_config::remember(given);
    load_or_report(given, load)
}

/// Loads a config that an argument other than `--config` names, such as the changed config of
/// `organism try`.
///
/// If this config does not load, the command ends. The commands that it then recommends to the user
/// name this config with `--config`. Exception: if the command has already loaded the config of its
/// own `--config`, they name that config. If the present config loads, no recommended command names
/// it.
pub(super) fn other_config(path: &Path) -> anyhow::Result<Config> {
    load_or_report(Some(path), config::load_without_keys)
}

fn load_or_report<T>(given: Option<&Path>, load: LoadConfig<T>) -> anyhow::Result<T> {
    load_guarded(given, load).map_err(|found| {
        // The command ends with these problems, so its recommended commands are about this config.
        named_config::remember(given);
        config_error_carets::report(&found);
        CommandFailure::silent(CommandExit::Config).into()
    })
}

/// Loads the config without printing its problems. Also protects this process from other programs,
/// because the process may have read keys.
fn load_guarded<T>(given: Option<&Path>, load: LoadConfig<T>) -> Result<T, ConfigProblems> {
    let around = ConfigEnvironment::of_process();
    let path = config::locate(given, &around);
    let loaded = path.and_then(|path| load(&path, &around));
    hide_memory();
    adopt_orphans();
    // Commands with a config may start an organism, whose listeners take file descriptors.
    file_limit::raise();
    loaded
}

/// Protects the memory and the environment of this process, which may contain secret keys, from
/// other programs of the same user, such as listeners.
pub(super) fn hide_memory() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if mutant("leave-memory-open") {
            return;
        }
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(
                "could not protect the memory of this process from other processes of the same \
                 user: {error}"
            );
        }
    }
}

/// Makes this process the parent of processes that detach themselves from a listener. If init
/// became their parent, this process could not find them.
fn adopt_orphans() {
    if mutant("leave-orphans") {
        return;
    }
    if let Err(error) = children::become_subreaper() {
        tracing::warn!(
            "could not become the subreaper, so processes that detach from their listener are not \
             found: {error}"
        );
    }
}

/// Kills the processes that listeners of this process have detached and left running. Call this
/// function after all organisms have stopped. Further calls end what was detached since.
pub(super) fn end_orphans() {
    let OrphanReport { ended, left, spared } = children::end_orphans();
    if !ended.is_empty() {
        tracing::warn!(
            "ended processes that had detached themselves from their listener: {}",
            ended.join(", ")
        );
    }
    if !left.is_empty() {
        tracing::warn!(
            "could not end processes that had detached themselves from their listener: {}",
            left.join(", ")
        );
    }
    if !spared.is_empty() {
        tracing::warn!(
            "did not end processes that may have detached themselves from their listener, because \
             this process had other children at its start, from which they may come: {}",
            spared.join(", ")
        );
    }
}

/// Finds the directories of the journal that the config names, even if other parts of the config
/// are invalid. A command that only reads a journal does not need these parts.
pub(super) fn directories(given: Option<&Path>) -> anyhow::Result<ProjectFolders> {
    let found = find_directories(given).map_err(|problems| {
        config_error_carets::report(&problems);
        note!("a journal can be named without its config, with --data DIR");
        CommandFailure::silent(CommandExit::Config)
    })?;
    project::check_to_read(&found).map_err(organism::Error::from)?;
    let present = || load_guarded(given, config::load_without_keys).ok();
    note_change(|| running_config(&found).flatten(), || present().map(|config| config.digest));
    Ok(found)
}

/// Finds the directories as [`directories`] does, but prints no note about a changed config. Unlike
/// [`directories`], also accepts directories without a journal if projects with the same name have
/// journals.
pub(super) fn directories_alone(given: Option<&Path>) -> anyhow::Result<ProjectFolders> {
    let found = find_directories(given).map_err(|problems| {
        config_error_carets::report(&problems);
        CommandFailure::silent(CommandExit::Config)
    })?;
    belongs(&found)?;
    Ok(found)
}

/// Finds the directories that the config names. If the config cannot be loaded, finds the
/// directories of the project that was started with this config file, provided that there is only
/// one such project.
fn find_directories(given: Option<&Path>) -> Result<ProjectFolders, ConfigProblems> {
    named_config::remember(given);
    let around = ConfigEnvironment::of_process();
    let file = config::locate(given, &around)?;
    config::directories(&file, &around).or_else(|problems| {
        static ONCE: Once = Once::new();
        let found = project::by_path(&file, &around).ok_or(problems)?;
        let shown = file.display();
        let data = found.data.display();
        ONCE.call_once(|| {
            note!(
                "note: {shown} cannot be loaded (`organism check` shows the reason); the journal \
                 of its project is {data}"
            );
        });
        Ok(found)
    })
}

/// Returns the data directory of the only project that was started with this config file, even if
/// the file now gives the organism another name. Returns `None` if there is no such project, or
/// more than one.
pub(super) fn directory_by_path(given: Option<&Path>) -> Option<PathBuf> {
    let around = ConfigEnvironment::of_process();
    let file = config::locate(given, &around).ok()?;
    Some(project::by_path(&file, &around)?.data)
}

/// Prints a note if the config file has changed since the organism loaded it, or is now invalid.
/// Prints nothing if no organism runs, or if the organism does not respond in time. Only the first
/// call in a process can print a note.
///
/// `running` returns the digest of the running config, or `None` if the digest is unknown.
/// `present` returns the digest of the present config, or `None` if this config is invalid.
fn note_change(running: impl FnOnce() -> Option<Digest>, present: impl FnOnce() -> Option<Digest>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A hosted process gets no digest, and so prints no note.
        let Some(running) = running() else { return };
        match present() {
            Some(now) if now == running => {}
            Some(now) => note!(
                "note: the config has changed since the organism started: the organism runs with \
                 {running}, and the config is now {now}; `organism reload` or a restart puts it in \
                 force"
            ),
            None => note!(
                "note: the config has changed since the organism started, and no longer loads \
                 (`organism check` shows the reason); the organism continues with {running}"
            ),
        }
    });
}

/// Fails if `directories` belong to another project, that is, to a project whose config has another
/// path than the present config. Also fails if `directories` contain a journal that belongs to no
/// project.
fn belongs(directories: &ProjectFolders) -> anyhow::Result<()> {
    project::check(directories).map_err(|error| organism::Error::from(error).into())
}

/// Returns the client in whose name the command sends: the client `given`, or the only client of
/// the config.
pub(super) fn client(config: &Config, given: Option<&str>) -> anyhow::Result<ListenerName> {
    let clients = config.contracts.iter().filter(|c| c.role == crate::contract::Role::Client);
    let clients: Vec<_> = clients.map(|c| c.name.clone()).collect();
    let names = || clients.iter().map(ListenerName::as_str).collect::<Vec<_>>().join(", ");

    match given {
        Some(name) => {
            let found = clients.iter().find(|client| client.as_str() == name);
            found.cloned().ok_or_else(|| {
                let text = format!(
                    "`{name}` is not a client of this config; the clients are: {}",
                    names()
                );
                CommandFailure::usage(text).into()
            })
        }
        None => match clients.as_slice() {
            [only] => Ok(only.clone()),
            _ => {
                let text = format!("pass --as with the client that sends: {}", names());
                Err(CommandFailure::usage(text).into())
            }
        },
    }
}

/// Returns the partitions that the command line selects, or all partitions if it selects none.
/// Fails if a selected partition does not exist.
pub(super) fn partitions(config: &Config, mut selected: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    let all = config.partitions();
    if let Some(beyond) = selected.iter().find(|selected| **selected >= all) {
        let text = format!("no partition {beyond}: the config has {all}, numbered from 0");
        return Err(CommandFailure::usage(text).into());
    }

    if selected.is_empty() {
        selected = (0..all).collect();
    }

    selected.sort_unstable();
    selected.dedup();
    Ok(selected)
}

/// Parses a number of at least 1 from the command line.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a number of at least 1".to_owned())
}

/// Reads a file, or standard input if the path is `-`. Does not check the bytes: the gate refuses
/// invalid bytes, and the refusal is recorded.
pub(super) fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    bytes_or_stdin(path, "`-`")
}

/// Reads a file like [`bytes`]. `stdin` is the argument that stands for standard input, for the
/// error about a missing file.
pub(super) fn bytes_or_stdin(path: &Path, stdin: &str) -> anyhow::Result<Vec<u8>> {
    let is_stdin = path.as_os_str() == "-";
    let shown = if is_stdin { "standard input".into() } else { path.display().to_string() };
    let failed = |error: std::io::Error| {
        CommandFailure::usage(match error.kind() {
            std::io::ErrorKind::NotFound => format!(
                "{shown} cannot be read: there is no such file; name an existing file, or {stdin} \
                 for standard input"
            ),
            _ => format!("{shown} cannot be read: {}", io_reason(&error)),
        })
    };

    let source: Box<dyn std::io::Read> = if is_stdin {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };

    let most = limits::SUBMISSION_BYTES_MAX;
    let mut bytes = Vec::new();
    source.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        let text = format!(
            "{shown} has more than {most} bytes, the most that can be read; a payload may have {} \
             bytes",
            limits::PAYLOAD_BYTES_MAX
        );
        return Err(CommandFailure::new(CommandExit::InvalidData, text).into());
    }

    Ok(bytes)
}

/// The runtime of this command, until [`end_runtime`] is called.
static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

/// Returns the one runtime of this command. All connections of the command share it, because a
/// connection ends with its runtime.
pub(super) fn runtime() -> anyhow::Result<Arc<Runtime>> {
    let mut shared = locked(&RUNTIME);
    if let Some(runtime) = &*shared {
        return Ok(Arc::clone(runtime));
    }
    let runtime = Arc::new(build_runtime(runtime::Builder::new_multi_thread().enable_all())?);
    *shared = Some(Arc::clone(&runtime));
    Ok(runtime)
}

/// Builds a runtime of several OS threads. If the operating system does not start all of the
/// threads, this function ends the process without dropping anything. So call it only before this
/// command has an organism, or anything else that must be removed at its end.
///
/// Tokio panics in this case. While the panic unwinds, it waits for the threads that did start, and
/// these never end. The process therefore ends before the unwinding begins.
pub(super) fn build_runtime(builder: &mut runtime::Builder) -> std::io::Result<Runtime> {
    thread_local! {
        static IS_BUILDING: Cell<bool> = const { Cell::new(false) };
    }

    stderr_queue::add_panic_hook(|panic| {
        if IS_BUILDING.get() {
            end_without_runtime(panic);
        }
        false
    });
    IS_BUILDING.set(true);
    let built = builder.build();
    IS_BUILDING.set(false);
    built
}

fn end_without_runtime(panic: &PanicHookInfo<'_>) -> ! {
    let reason = panic.payload().downcast_ref::<String>().map_or("unknown reason", String::as_str);
    note!("organism: could not start the threads of this command: {reason}");
    stderr_queue::finish();
    std::process::exit(CommandExit::Unavailable as i32);
}

/// Ends all tasks of this command that still run. Waits for blocking tasks for at most
/// [`limits::RUNTIME_END_WAIT`], so that a task that never ends cannot keep the process.
pub(super) fn end_runtime() {
    end_runtime_within(limits::RUNTIME_END_WAIT);
}

fn end_runtime_within(wait: Duration) {
    let runtime = locked(&RUNTIME).take();
    if let Some(runtime) = runtime.and_then(Arc::into_inner) {
        runtime.shutdown_timeout(wait);
    }
}

/// Option that selects the config of an organism.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArg {
    /// Config file. Default: ORGANISM_CONFIG, ./organism.toml, or the only ./config/*.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArg {
    pub fn load(&self) -> anyhow::Result<Config> {
        config(self.config.as_deref())
    }

    /// Loads the config for a process that hosts agents. If `own` is true, this process has NATS
    /// credentials of its own and does not need the credentials of the pump.
    pub fn load_for_host(&self, own: bool) -> anyhow::Result<Config> {
        let load: LoadConfig<Config> = if own {
            |path, around| config::load_for_host(path, around, true)
        } else {
            |path, around| config::load_for_host(path, around, false)
        };

        loaded(self.config.as_deref(), load)
    }

    /// Loads the config for a command that calls no models itself. Keys may be missing: they are
    /// required only if the command starts an organism.
    pub fn load_without_keys(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        belongs(&config.directories())?;
        Ok(config)
    }

    /// Loads the config for a repair of the journal, even if the journal does not belong to a
    /// project yet.
    pub fn load_to_repair(&self) -> anyhow::Result<Config> {
        let config = self.load_unbound()?;
        project::check_to_repair(&config.directories()).map_err(organism::Error::from)?;
        Ok(config)
    }

    /// Loads the config for a command that only reads. Prints a note if the running organism still
    /// uses an earlier config.
    pub fn load_to_read(&self) -> anyhow::Result<Config> {
        let config = self.load_without_keys()?;
        let running = || running_config(&config.directories()).flatten();
        note_change(running, || Some(config.digest));
        Ok(config)
    }

    /// Finds the organism to which the command sends a decision. Finds a running organism even if
    /// the config is invalid.
    pub fn reach(&self, args: &DecisionArgs) -> anyhow::Result<OrganismReach> {
        if let Some(data) = &args.data {
            return running_on(data);
        }

        let given = self.config.as_deref();
        let found = find_directories(given).ok();
        let running = found.and_then(|found| running_config(&found).map(|digest| (found, digest)));
        let Some((directories, digest)) = running else {
            let config = Box::new(self.load_without_keys()?);
            if config.partitions() == 1 {
                project::check_to_read(&config.directories()).map_err(organism::Error::from)?;
            }
            return Ok(OrganismReach::Config { config, is_running: false });
        };

        belongs(&directories)?;
        let loaded = load_guarded(given, config::load_without_keys).ok().map(Box::new);
        note_change(|| digest, || loaded.as_ref().map(|config| config.digest));
        match loaded {
            Some(config) => {
                belongs(&config.directories())?;
                Ok(OrganismReach::Config { config, is_running: true })
            }
            None => {
                let handshake = Handshake::of_project(&directories);
                Ok(OrganismReach::Running { data: directories.data, handshake })
            }
        }
    }

    /// Loads the config as [`ConfigArg::load_without_keys`] does, but does not check that the
    /// directories belong to the project.
    pub fn load_unbound(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_without_keys)
    }

    /// Loads the config for `organism nats-config`. The keys that the config names need not exist
    /// yet, because this command writes them.
    pub fn load_for_servers(&self) -> anyhow::Result<Config> {
        loaded(self.config.as_deref(), config::load_for_servers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocking_task_that_never_ends_does_not_keep_the_process() {
        let (begun, has_begun) = mpsc::channel();
        let (stop, until_stopped) = mpsc::channel::<()>();
        runtime().unwrap().spawn_blocking(move || {
            begun.send(()).unwrap();
            until_stopped.recv().ok();
        });
        has_begun.recv().unwrap();

        end_runtime_within(Duration::from_millis(10));
        assert!(stop.send(()).is_ok(), "the task still waited");
    }
}
