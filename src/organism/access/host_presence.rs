//! Lets other processes of this machine see that this process hosts listeners of an organism, and
//! recognizes other processes that do so. Several processes may host listeners of one organism: the
//! processes that share its partitions, trials of its recorded threads, and test cases of its
//! workflows.
//!
//! A process shows which organism it serves by the names of some of its OS threads. Only the
//! process itself can name its OS threads, every process can read the names, and the names
//! disappear with the process. A file or an environment would be no evidence, because a listener
//! could remove or empty it. On systems without `/proc`, no other process is recognized.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;

use super::ancestry::is_exhausted;
use crate::config::{Config, StorageConfig};
use crate::ids::Digest;
use crate::journal::partitions_in;
use crate::organism::project;
use crate::owned_tasks::JoinOnDrop;

/// Number of hexadecimal digits in the name of a thread. With the prefix, the name has 15 bytes,
/// which is the most that Linux keeps.
const DIGITS: usize = 12;

/// Prefix of the names of those threads by which a process shows that it hosts listeners.
const PREFIX: &str = "oh-";

/// While this value exists, other processes can see that this process hosts listeners of an
/// organism.
#[derive(Debug)]
pub struct HostPresence {
    _shown: Vec<ShownName>,
}

/// A thread that does nothing and has a name that other processes can read.
#[derive(Debug)]
struct ShownName {
    /// Sender of a channel on which the thread waits. Dropping the sender ends the thread.
    _held: Sender<()>,
    _thread: JoinOnDrop,
}

impl HostPresence {
    /// Shows that this process hosts listeners of the organism of `config`. A trial also shows the
    /// organisms whose recorded threads it runs. Must be called before the first listener starts.
    pub fn show(config: &Config) -> io::Result<Self> {
        // The shared names are enough for the partitions of a process, which may be many.
        let data = config.own_partition().is_none().then(|| name_of_data(&config.data));
        let recorded = config.trial.iter().flat_map(|trial| &trial.journals);
        let recorded = recorded.map(|journal| name_of_data(journal));
        let names = shared_names(config).into_iter().chain(data).chain(recorded);
        let shown = names.map(ShownName::show).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { _shown: shown })
    }
}

impl ShownName {
    fn show(name: String) -> io::Result<Self> {
        let (held, released) = channel::<()>();
        let (started, is_started) = channel::<()>();
        let run = move || {
            started.send(()).ok();
            // No value is ever sent. The channel closes when the other end is dropped.
            released.recv().ok();
        };

        let thread = Builder::new().name(name).spawn(run)?;
        // A thread has its name once it runs.
        is_started.recv().ok();
        Ok(Self { _held: held, _thread: JoinOnDrop::new(thread) })
    }
}

/// Whether the process `pid` hosts listeners of an organism that one of `names` identifies. False
/// for a process that has exited.
///
/// # Errors
///
/// Fails if there is no free file descriptor or memory to look at the process.
pub fn is_host(pid: i64, names: &[String]) -> io::Result<bool> {
    let unless_exhausted =
        |error: io::Error| if is_exhausted(&error) { Err(error) } else { Ok(false) };
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) => return unless_exhausted(error),
    };
    for thread in threads.flatten() {
        let is_shown = match std::fs::read_to_string(thread.path().join("comm")) {
            Ok(shown) => names.iter().any(|name| name == shown.trim_end()),
            Err(error) => unless_exhausted(error)?,
        };
        if is_shown {
            return Ok(true);
        }
    }

    Ok(false)
}

/// Returns the names that all processes of an organism on one machine share, even if they have
/// different data directories: the name of the project, and the name of the stream on JetStream.
pub fn shared_names(config: &Config) -> Vec<String> {
    let project = name_of_project(&config.project.path);
    let stream = match &config.storage {
        StorageConfig::JetStream { servers, journal } => {
            let mut addresses = servers.servers.clone();
            addresses.sort_unstable();
            let addresses = addresses.join(" ");
            let stream = format!("{} {} {addresses}", journal.organism, journal.stream);
            Some(name_of("stream", stream.as_bytes()))
        }
        StorageConfig::Embedded => None,
    };
    std::iter::once(project).chain(stream).collect()
}

/// Returns the names that identify the organism whose data directory is `data`: the names of the
/// directories of its journals, and the name of the project that `data` belongs to.
pub fn names_of_data(data: &Path) -> Vec<String> {
    let journals = partitions_in(data).into_iter().map(|(_, directory)| directory);
    let directories = journals.chain([data.to_owned()]);
    let project = project::stored(data).ok().flatten();
    let project = project.map(|project| name_of_project(&project));
    directories.map(|directory| name_of_data(&directory)).chain(project).collect()
}

/// Returns the name of the project at `path`. Does not resolve symbolic links: two paths that lead
/// to one file are different projects.
fn name_of_project(path: &Path) -> String {
    name_of("project", path.as_os_str().as_encoded_bytes())
}

/// Returns the name of a data directory or of a journal's directory. Resolves symbolic links, so
/// that all paths to the directory have the same name.
fn name_of_data(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    name_of("data", directory.as_os_str().as_encoded_bytes())
}

fn name_of(kind: &str, identity: &[u8]) -> String {
    let digest = Digest::of_parts(&[kind.as_bytes(), b"\0".as_slice(), identity]).to_string();
    let digits: String = digest.chars().take(DIGITS).collect();
    format!("{PREFIX}{digits}")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_process_is_a_host_while_it_shows_the_name_of_the_organism() {
        let name = name_of("data", Uuid::now_v7().as_bytes());
        let names = [name.clone()];
        let own = i64::from(std::process::id());
        assert!(!is_host(own, &names).unwrap());

        let shown = ShownName::show(name).unwrap();
        assert!(is_host(own, &names).unwrap());
        let another = name_of("data", Uuid::now_v7().as_bytes());
        assert!(!is_host(own, &[another]).unwrap(), "another organism");

        drop(shown);
        // The system may list an ended thread for a moment.
        let waited = Instant::now();
        while is_host(own, &names).unwrap() {
            assert!(waited.elapsed().as_secs() < 30, "the name is still shown");
        }
    }

    #[test]
    fn a_data_directory_has_the_names_of_its_journals_and_of_its_project() {
        let data = tempfile::tempdir().unwrap();
        let project = data.path().join("organism.toml");
        std::fs::write(data.path().join("project"), project.as_os_str().as_encoded_bytes())
            .unwrap();
        let names = names_of_data(data.path());
        assert!(names.contains(&name_of_data(data.path())), "{names:?}");
        assert!(names.contains(&name_of_project(&project)), "{names:?}");
        assert!(names.iter().all(|name| name.len() == 15), "{names:?}");
    }

    #[test]
    fn symbolic_links_are_resolved_for_data_directories_and_not_for_projects() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let link = folder.path().join("b");
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(name_of_data(&path), name_of_data(&link));
        assert_ne!(name_of_project(&path), name_of_project(&link));
    }
}
