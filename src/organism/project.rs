//! Binds an organism's directories to its project. A project can use the journal, socket or keys of
//! another project only after an operator has adopted them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::access::refuse_hosted_start;
use super::operator;
use super::repair::AcceptedDamage;
use crate::config::{
    Config, ConfigEnvironment, ProjectFolders, ProjectPaths, StorageConfig, directory_name,
    is_directory_of, path_of,
};
use crate::durable_file;
use crate::failpoint::failpoint;
use crate::journal::jetstream::{JoiningHost, StreamContent, identity, stream_content};
use crate::journal::sqlite::{DirectoryLock, JournalReader, is_without_mac, make_directory};
use crate::journal::{self, may_have_journals};
use crate::mutant::mutant;
use crate::service::{OtherProject, is_config_present};
use crate::thread::{ActionDetail, OperatorVerb};

/// File in the data directory that contains the path of the project.
const PROJECT_FILE: &str = "project";
/// File in the state directory that contains the private key.
const KEY_FILE: &str = "key";

/// Reason why the directories of a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    OtherProject(#[from] OtherProject),
    #[error(
        "{} holds a journal that names no project, as journals did before projects had paths, and \
         this config is {}; nothing was changed. `organism adopt` accepts it for this project",
        data.display(), ours.display()
    )]
    NoProject { data: PathBuf, ours: PathBuf },
    #[error(
        "the project {} has no journal yet, and there are journals of organisms of its name:{}\n{}",
        ours.display(), listed(earlier), choice(earlier)
    )]
    Earlier { ours: PathBuf, earlier: Vec<EarlierDirectory> },
    #[error(
        "{} is the journal of the project {}, whose config is still there, and this config is {}; \
         nothing was changed. `organism adopt --from {}` takes the journal away from that project; \
         {} begins a new one for this config",
        data.display(), owner.display(), ours.display(), owner.display(), beginning(*is_beside)
    )]
    Owned {
        data: PathBuf,
        owner: PathBuf,
        ours: PathBuf,
        /// Whether `data` differs from the data directory of the present config. If so, the project
        /// of this config can begin a new journal in the config's data directory.
        is_beside: bool,
    },
    #[error("no journal of {} to adopt; the journals there are:{}", from.display(), listed(earlier))]
    NotEarlier { from: PathBuf, earlier: Vec<EarlierDirectory> },
    #[error(
        "{} exists, so {} cannot be renamed to it: move one of them away",
        to.display(), from.display()
    )]
    Occupied { from: PathBuf, to: PathBuf },
    #[error(
        "{} is the embedded journal {ours}, and the stream {stream} holds the journal {theirs} of \
         another project; nothing was changed. To move the embedded journal to JetStream, give its \
         organism another `name` than that project has, and another `stream` if [journal] names one; or \
         give it another account of the servers. To take part in the stream's journal, name another \
         `data`",
        data.display()
    )]
    ForeignStream { data: PathBuf, ours: Uuid, stream: String, theirs: Uuid },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Journal(#[from] journal::Error),
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

/// A data directory whose organism has the same name as the organism of the present project. The
/// directory belongs to another project, or to no project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierDirectory {
    pub data: PathBuf,
    /// Path of the project that owns the directory. `None` if the directory stores no project path,
    /// because an earlier version of the program made it.
    pub project: Option<PathBuf>,
}

fn listed(earlier: &[EarlierDirectory]) -> String {
    let mut lines = String::new();
    for EarlierDirectory { data, project } in earlier {
        let _ = write!(lines, "\n  {}", data.display());
        match project {
            Some(project) => {
                let remains =
                    if is_config_present(project) { ", whose config is still there" } else { "" };
                let _ = write!(lines, "  of {}{remains}", project.display());
            }
            None => lines.push_str("  of no project, from an earlier version"),
        }
    }

    lines
}

/// Returns advice for a project that has no journal yet, although there are journals of organisms
/// with the name of its organism. `earlier` are the directories of these journals.
fn choice(earlier: &[EarlierDirectory]) -> String {
    let is_owned =
        |directory: &EarlierDirectory| directory.project.as_deref().is_some_and(is_config_present);
    if earlier.iter().all(is_owned) {
        return "`organism adopt --new` begins a journal for this project, beside those of the \
                others, and so does `organism run --new`. `organism adopt --from DIR` takes one of \
                them away from its project"
            .to_owned();
    }

    let how = match earlier {
        [_] => "the only one without further words",
        _ => "with `--from DIR`",
    };

    format!(
        "Where one of them is this project's, from an earlier version or from before it was moved, \
         `organism adopt` takes it over ({how}). Otherwise `organism adopt --new` begins a new \
         journal, and so does `organism run --new`"
    )
}

/// Returns how a user can begin a new journal, as a phrase for the error message about a journal
/// that belongs to another project.
fn beginning(is_beside: bool) -> &'static str {
    if is_beside { "`organism adopt --new`" } else { "another directory as `data`" }
}

/// Checks the directories before a new key is made in them, as [`check_to_read`] does. If the
/// project was moved, a new key would be in the way of its adoption. If there is a key, checks the
/// directories as [`check`] does.
pub fn check_to_make_key(directories: &ProjectFolders) -> Result<(), Error> {
    if durable_file::may_exist(&directories.state.join(KEY_FILE)) {
        check(directories)
    } else {
        check_to_read(directories)
    }
}

/// Checks the directories before the repair of a journal, as [`check_to_read`] does. In contrast to
/// [`check_to_read`], accepts a journal that names no project, because it may be repaired before
/// its adoption.
pub fn check_to_repair(directories: &ProjectFolders) -> Result<(), Error> {
    match check_to_read(directories) {
        Err(Error::NoProject { .. }) => Ok(()),
        other => other,
    }
}

/// Refuses directories that belong to another project. Changes nothing.
pub fn check(directories: &ProjectFolders) -> Result<(), Error> {
    is_bound(directories).map(drop)
}

/// Refuses directories as [`check`] does. Also refuses directories without a journal if other
/// directories contain journals of organisms with the same name as the project's organism. If the
/// project was moved, one of these may be the journal that a command looks for.
pub fn check_to_read(directories: &ProjectFolders) -> Result<(), Error> {
    if is_bound(directories)? {
        return Ok(());
    }
    refuse_earlier(directories)
}

fn refuse_earlier(directories: &ProjectFolders) -> Result<(), Error> {
    let ProjectFolders { project, data, .. } = directories;
    let earlier = earlier(project, data)?;
    if earlier.is_empty() {
        return Ok(());
    }
    Err(Error::Earlier { ours: project.path.clone(), earlier })
}

/// Whether the directories are bound to the project in `directories`. Returns false if they are
/// bound to no project. Fails if they are bound to another project, or contain a journal without a
/// project.
fn is_bound(directories: &ProjectFolders) -> Result<bool, Error> {
    let ProjectFolders { project, data, .. } = directories;
    let ours = project.path.clone();
    // Ordering rule: read before the binding. A project binds a directory before it creates its
    // journal there, so a journal of another project is never taken for one of no project.
    let has_journal = may_have_journals(data);
    match stored(data)? {
        Some(stored) if stored == ours || mutant("trust-any-project") => Ok(true),
        Some(stored) => Err(OtherProject { data: data.clone(), stored, ours }.into()),
        None if has_journal => Err(Error::NoProject { data: data.clone(), ours }),
        None => Ok(false),
    }
}

/// Binds the directories to their project before a start. Does nothing if they are already bound to
/// this project. Fails if [`check`] refuses the directories. Also fails if `anew` is false, a new
/// journal would begin, and journals of organisms with the name of this project's organism exist.
pub fn begin(directories: &ProjectFolders, anew: bool) -> Result<(), Error> {
    // Another project may bind the directories at any moment before the lock is taken, so the
    // binding is read once here.
    if is_bound(directories)? {
        return Ok(());
    }

    failpoint("directory-unbound");
    if !anew {
        refuse_earlier(directories)?;
    }

    let ProjectFolders { project, data, .. } = directories;
    make_directory(data)?;
    // The lock decides between two projects that begin in one directory at the same moment: one of
    // them is refused.
    let _lock = match DirectoryLock::take(data) {
        // Another process of the same project was faster and already runs.
        Err(journal::Error::InUse { .. }) if stored(data)?.is_some() => {
            return check(directories);
        }
        lock => lock?,
    };

    if !is_bound(directories)? {
        store(data, &project.path)?;
    }

    Ok(())
}

/// Finds the default directories of the project whose config is the file `file`. The function is
/// needed if this file cannot be loaded, or if the file now gives the organism another name. A data
/// directory matches if it stores the path of `file` as its project's path. If no directory or more
/// than one directory matches, returns `None`.
pub fn by_path(file: &Path, around: &ConfigEnvironment) -> Option<ProjectFolders> {
    let path = path_of(file, &around.directory);
    let parent = around.data_parent()?;
    let is_ours = |entry: std::io::Result<std::fs::DirEntry>| {
        let data = entry.ok()?.path();
        let own = data.file_name()?.to_str()?;
        let (name, _) = own.rsplit_once('-')?;
        let is_named = directory_name(name, &path) == own;
        let belongs = is_named && stored(&data).ok().flatten().as_ref() == Some(&path);
        belongs.then(|| (name.to_owned(), own.to_owned()))
    };

    let found: Vec<_> = std::fs::read_dir(&parent).ok()?.filter_map(is_ours).collect();
    let [(name, own)] = &found[..] else { return None };

    let state_parent = around.state_parent()?;
    let data = parent.join(own);
    let state = state_parent.join(own);
    let project = ProjectPaths {
        path,
        name: name.clone(),
        data_parent: Some(parent),
        state_parent: Some(state_parent),
    };

    Some(ProjectFolders { project, data, state })
}

/// Finds the data directories from which this project could adopt a journal. They lie beside
/// `data`, the default directory of this project. Each contains a journal of an organism that has
/// the same name as the organism of this project.
pub fn earlier(project: &ProjectPaths, data: &Path) -> Result<Vec<EarlierDirectory>, Error> {
    let mut earlier = Vec::new();
    let Some(parent) = &project.data_parent else { return Ok(earlier) };
    let entries = match std::fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(earlier),
        Err(error) => return Err(io(parent)(error)),
    };

    for entry in entries {
        let found = entry.map_err(io(parent))?.path();
        let name = found.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if found != *data && is_directory_of(name, &project.name) && may_have_journals(&found) {
            earlier.push(EarlierDirectory { project: stored(&found)?, data: found });
        }
    }

    earlier.sort_by(|one, other| one.data.cmp(&other.data));
    Ok(earlier)
}

/// Result of [`adopt`], which lets a project take over the journal of a project at another path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedProject {
    /// Path of the project to which the journal belonged before the adoption. `None` if the
    /// journal's directory stated no project.
    pub before: Option<PathBuf>,
    /// Directories that were renamed, each with its new path.
    pub renamed: Vec<(PathBuf, PathBuf)>,
    /// State directory that was copied, and the path of the copy. The original stays, because other
    /// projects may use it. `None` if no directory was copied.
    pub copied: Option<(PathBuf, PathBuf)>,
    /// Id of the adopted journal if it is on JetStream and was begun by another project or machine;
    /// `None` for any other journal.
    pub stream: Option<Uuid>,
    /// Whether the adopted journal is still in its file, although the config places it on
    /// JetStream. If so, `organism promote` moves it there.
    pub is_unmoved: bool,
}

/// Adopts, for this project, the journal of a project at another path, and records the adoption as
/// an operator's action. Returns `None` if there is nothing to adopt. The function's last action is
/// to store this project's path in the journal's directory. So if an adoption is interrupted, a
/// further call of this function completes the adoption.
///
/// - `from` is the directory of the journal, or the absolute path of the config of the project that
///   has the journal. `from` is required if several journals could be adopted, or if the config of
///   that other project still exists.
/// - `accepted` lists the kinds of damage to accept. Each kind is recorded as a separate action, in
///   the same commit as the adoption. A start would refuse a journal with damage that is not
///   accepted.
pub fn adopt(
    config: &Config,
    from: Option<&Path>,
    accepted: AcceptedDamage,
    note: &str,
) -> Result<Option<AdoptedProject>, super::Error> {
    refuse_hosted_start(config)?;
    let directories = config.directories();
    let ProjectFolders { project, data, state } = &directories;
    let is_here = may_have_journals(data) || stored(data)?.is_some();
    let source = match (is_here, from) {
        (true, None) => data.clone(),
        (is_here, from) => {
            let mut journals = earlier(project, data)?;
            if is_here {
                journals.push(EarlierDirectory { data: data.clone(), project: stored(data)? });
            }
            chosen(journals, from, &project.path)?.unwrap_or_else(|| data.clone())
        }
    };

    let before = stored(&source)?;
    let owner = before.as_ref().filter(|owner| **owner != project.path && is_config_present(owner));
    if let (Some(owner), None, false) = (owner, from, mutant("adopt-from-anybody")) {
        let owner = owner.clone();
        let ours = project.path.clone();
        let is_beside = source != *data;
        return Err(Error::Owned { data: source, owner, ours, is_beside }.into());
    }

    let is_unmoved = is_unmoved(config, &source)?;
    let mut config = config.clone();
    if is_unmoved {
        config.storage = StorageConfig::Embedded;
    }

    let is_ours = before.as_ref() == Some(&project.path) || !may_have_journals(&source);
    // A journal without MACs is adopted whichever project it names.
    let mut partitions = partitions_without_mac(&config)?;
    if !is_ours || foreign_stream(&config)?.is_some() {
        partitions.insert(0);
    }

    if partitions.is_empty() {
        return Ok(None);
    }

    make_directory(&source)?;
    let mut adopted =
        AdoptedProject { before, renamed: Vec::new(), copied: None, stream: None, is_unmoved };
    {
        // If another process holds the journal, the error names that process, and the journal is
        // left to it.
        let _lock = DirectoryLock::take(&source)?;
        // Ordering rule: checked before the first of the two renames, so that the other project
        // does not lose its key to a project that cannot take its journal.
        refuse_occupied(&source, data)?;
        if may_have_journals(&source) {
            take_state(project, state, &mut adopted)?;
        }
        if source != *data {
            rename(&source, data)?;
            adopted.renamed.push((source, data.clone()));
        }
    }

    // The id of the stream's journal may be known only from the state directory that was just taken
    // over.
    adopted.stream = foreign_stream(&config)?;
    for partition in partitions {
        let action = operator::action(OperatorVerb::Adopt, note, details(project, &adopted))?;
        let config = config.of_partition(partition);
        operator::record_offline(&config, adopted.stream, action, accepted)?;
    }

    if let (Some(stream), StorageConfig::JetStream { journal, .. }) =
        (adopted.stream, &config.storage)
    {
        identity::note(state, journal, stream)?;
    }

    store(data, &project.path)?;
    Ok(Some(adopted))
}

/// Whether the config places the journal on JetStream, but the journal in `source` is still a file,
/// which `organism promote` has not moved. Such a journal is adopted as a file.
///
/// # Errors
///
/// Fails if the stream holds a journal of another project, because neither journal can then be used
/// with this config.
fn is_unmoved(config: &Config, source: &Path) -> Result<bool, Error> {
    let StorageConfig::JetStream { journal: options, .. } = &config.storage else {
        return Ok(false);
    };

    // A file that cannot be read is reported by the adoption, which opens the journal.
    let Ok(reader) = JournalReader::open(source) else { return Ok(false) };
    let (Ok(false), Ok(about)) = (reader.is_projection(), reader.about()) else {
        return Ok(false);
    };
    // An interrupted promotion has begun the stream with this journal.
    match foreign_stream(config)?.filter(|theirs| *theirs != about.journal) {
        None => Ok(true),
        Some(theirs) => Err(Error::ForeignStream {
            data: source.to_owned(),
            ours: about.journal,
            stream: options.stream.clone(),
            theirs,
        }),
    }
}

/// Finds the partitions whose journals have records but no MAC. Earlier versions of this program
/// wrote records without MACs.
fn partitions_without_mac(config: &Config) -> Result<BTreeSet<u32>, Error> {
    let mut partitions = BTreeSet::new();
    for partition in 0..config.partitions() {
        let config = config.of_partition(partition);
        let is_without = match &config.storage {
            StorageConfig::Embedded => is_without_mac(&config.data, &config.state)?,
            StorageConfig::JetStream { servers, journal } => {
                stream_content(servers, journal)? == StreamContent::WithoutMac
            }
        };
        if is_without {
            partitions.insert(partition);
        }
    }

    Ok(partitions)
}

/// Returns the id of the journal on JetStream, if another project or machine began that journal.
/// Returns `None` for any other journal.
fn foreign_stream(config: &Config) -> Result<Option<Uuid>, Error> {
    let config = config.of_partition(0);
    let StorageConfig::JetStream { servers, journal } = &config.storage else { return Ok(None) };
    let member = JoiningHost::new(&config.data, &config.state);
    Ok(identity::foreign(servers, journal, &member)?)
}

fn details(project: &ProjectPaths, adopted: &AdoptedProject) -> Vec<ActionDetail> {
    let mut details = Vec::new();
    if let Some(before) = &adopted.before {
        details.push(ActionDetail::new("from", before.display()));
    }

    details.push(ActionDetail::new("to", project.path.display()));
    for (from, to) in &adopted.renamed {
        details.push(ActionDetail::new("renamed", from.display()));
        details.push(ActionDetail::new("to-directory", to.display()));
    }

    if let Some((from, to)) = &adopted.copied {
        details.push(ActionDetail::new("copied", from.display()));
        details.push(ActionDetail::new("to-directory", to.display()));
    }

    if let Some(stream) = adopted.stream {
        details.push(ActionDetail::new("stream-journal", stream));
    }

    details
}

/// Takes over the default state directory of the project that had the journal before. If the path
/// of that project is known, renames its directory to `state`, because no other project uses it. If
/// the path is unknown, an early version of this program made the directory and named it after the
/// organism alone. Such a directory is copied, because it may contain keys of other projects.
fn take_state(
    project: &ProjectPaths,
    state: &Path,
    adopted: &mut AdoptedProject,
) -> Result<(), Error> {
    let Some(parent) = &project.state_parent else { return Ok(()) };
    let from = match &adopted.before {
        Some(path) => parent.join(directory_name(&project.name, path)),
        None => parent.join(&project.name),
    };

    if from == state || !from.exists() {
        return Ok(());
    }

    if adopted.before.is_some() {
        rename(&from, state)?;
        adopted.renamed.push((from, state.to_owned()));
    } else {
        copy(&from, state)?;
        adopted.copied = Some((from, state.to_owned()));
    }

    Ok(())
}

/// Returns the directory in `earlier` that `from` selects: by the path of the directory, or by the
/// path of the project that owns it. If `from` is `None`, returns the only directory in `earlier`,
/// or `None` if `earlier` is empty. Fails if `from` selects no directory, or if `from` is `None`
/// and `earlier` contains several.
fn chosen(
    earlier: Vec<EarlierDirectory>,
    from: Option<&Path>,
    ours: &Path,
) -> Result<Option<PathBuf>, Error> {
    match (from, earlier.as_slice()) {
        (Some(from), _) => {
            let is_meant = |directory: &&EarlierDirectory| {
                directory.data == from || directory.project.as_deref() == Some(from)
            };
            match earlier.iter().find(is_meant) {
                Some(meant) => Ok(Some(meant.data.clone())),
                None => Err(Error::NotEarlier { from: from.to_owned(), earlier }),
            }
        }
        (None, []) => Ok(None),
        (None, [only]) => Ok(Some(only.data.clone())),
        (None, _) => Err(Error::Earlier { ours: ours.to_owned(), earlier }),
    }
}

/// Copies the directory `from` under a temporary name, then renames the copy to `to`. If `to`
/// already contains the private key of `from`, `to` is a complete copy, and nothing is copied.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let is_copied = |name: &str| {
        let ours = std::fs::read(to.join(name)).ok();
        ours.is_some() && ours == std::fs::read(from.join(name)).ok()
    };

    if is_copied(KEY_FILE) {
        return Ok(());
    }

    let unfinished = to.with_extension("copying");

    match std::fs::remove_dir_all(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io(&unfinished)(error));
        }
        _ => {}
    }

    copy_files(from, &unfinished)?;
    rename(&unfinished, to).map_err(|error| match error {
        Error::Occupied { to, .. } => Error::Occupied { from: from.to_owned(), to },
        other => other,
    })
}

fn copy_files(from: &Path, to: &Path) -> Result<(), Error> {
    make_directory(to)?;
    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let entry = entry.map_err(io(from))?;
        let source = entry.path();
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(io(&source))?.is_dir() {
            copy_files(&source, &target)?;
            continue;
        }
        std::fs::copy(&source, &target).map_err(io(&source))?;
        File::open(&target).and_then(|file| file.sync_all()).map_err(io(&target))?;
    }

    File::open(to).and_then(|directory| directory.sync_all()).map_err(io(to))
}

/// Fails if `from` cannot be renamed to `to`, because `to` is another directory and not empty.
fn refuse_occupied(from: &Path, to: &Path) -> Result<(), Error> {
    let is_free = match std::fs::read_dir(to) {
        Ok(mut entries) => entries.next().is_none() || from == to,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(io(to)(error)),
    };
    if is_free {
        return Ok(());
    }

    Err(Error::Occupied { from: from.to_owned(), to: to.to_owned() })
}

fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    if let Some(parent) = to.parent() {
        make_directory(parent)?;
    }

    // The rename replaces an empty directory and fails for any other.
    std::fs::rename(from, to).map_err(|error| match error.kind() {
        std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists => {
            Error::Occupied { from: from.to_owned(), to: to.to_owned() }
        }
        _ => io(from)(error),
    })
}

/// Reads the project path that is stored in a data directory; `None` if the directory contains
/// none.
pub fn stored(data: &Path) -> Result<Option<PathBuf>, Error> {
    let path = data.join(PROJECT_FILE);
    let Some(mut bytes) = durable_file::read(&path).map_err(io(data))? else { return Ok(None) };
    bytes.truncate(bytes.trim_ascii_end().len());
    Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(bytes))))
}

/// Copies the stored project path from the directory `data` to the directory `to`, if `data`
/// contains one. So a journal that is restored from a copy still belongs to the same project.
pub fn copy_stored(data: &Path, to: &Path) -> Result<(), Error> {
    match stored(data)? {
        Some(project) => store(to, &project),
        None => Ok(()),
    }
}

/// Stores the project path: writes a file under a temporary name and renames it, so that a crash
/// leaves either the old path or the new one.
fn store(data: &Path, project: &Path) -> Result<(), Error> {
    let path = data.join(PROJECT_FILE);
    let line = [project.as_os_str().as_bytes(), b"\n"].concat();
    let stored = durable_file::replace(&path, &path.with_extension("new"), &line);
    stored.map_err(io(&path))
}
