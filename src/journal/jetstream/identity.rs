//! Verifies that a stream belongs to the organism that this host runs. The id of the organism's
//! journal identifies the organism. A host notes this id in its state directory when it creates the
//! journal, or when an operator lets the host take over an existing journal. A host joins only the
//! journal whose id it has noted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use crate::durable_file;
use crate::journal::sqlite::JournalReader;
use crate::journal::{Error, OperatorAcceptance, may_have_journal, partitions_in};
use crate::locks::locked;
use crate::mutant::mutant;
use crate::nats::{self, BlockingClient};

use super::api::JetStreamApi;
use super::{Options, first_message, partition_count};

/// A host that is about to join a journal.
#[derive(Debug, Clone, Copy)]
pub struct JoiningHost<'a> {
    pub data: &'a Path,
    pub state: &'a Path,
    /// Id of the journal that an operator is adopting or moving into the stream; `None` if an
    /// operator does neither.
    pub accepts: Option<Uuid>,
    /// Kinds of damage that an operator accepts in the stream, such as missing MACs.
    pub damage: OperatorAcceptance,
    /// Whether an operator's command opens the journal to record an action, so that no pump starts.
    /// Only then may the host open the journal before a repair of the stream has ended.
    pub is_offline: bool,
}

impl<'a> JoiningHost<'a> {
    pub fn new(data: &'a Path, state: &'a Path) -> Self {
        let damage = OperatorAcceptance::default();
        Self { data, state, accepts: None, damage, is_offline: false }
    }

    /// Returns the id of the journal that this host takes part in; `None` if the host has noted no
    /// id.
    pub(super) fn known(&self, options: &Options) -> Result<Option<Uuid>, Error> {
        known(self.state, options)
    }

    /// Returns an error if this host may not join the journal `theirs`, which is on the server. The
    /// host may join a journal only if it has noted the journal's id, if it already follows the
    /// journal's stream, if it has the journal in a file, or if an operator adopts or moves the
    /// journal.
    pub(super) fn admit(
        &self,
        api: &JetStreamApi,
        options: &Options,
        theirs: Uuid,
    ) -> Result<(), Error> {
        let known = known(self.state, options)?;
        if known == Some(theirs) || self.accepts == Some(theirs) || mutant("trust-any-stream") {
            return Ok(());
        }

        // The host followed the stream before ids were noted.
        if follows(api, options, self.data)? {
            return note(self.state, options, theirs);
        }

        // The move of the journal was interrupted, or a backup from before the move was restored.
        if has_embedded(self.data, theirs)? {
            return Ok(());
        }

        let state = self.state.display().to_string();
        Err(Error::OtherJournal { stream: options.stream.clone(), theirs, known, state })
    }

    /// Chooses the id of the organism's journal. Takes the first id that exists in this order:
    /// - the id of the journal that an operator adopts or moves
    /// - the id that this host has noted
    /// - a new id, which is noted in the state directory before anything is sent to the servers
    ///
    /// Must be called only if the servers store no id yet.
    pub(super) fn begin(&self, options: &Options) -> Result<Uuid, Error> {
        if let Some(accepted) = self.accepts {
            return Ok(accepted);
        }

        if let Some(noted) = known(self.state, options)? {
            return Ok(noted);
        }

        let journal = Uuid::now_v7();
        note(self.state, options, journal)?;
        Ok(journal)
    }

    /// Removes the note about the id `chosen`, which this start has chosen with [`Self::begin`].
    pub(super) fn withdraw(&self, options: &Options, chosen: Uuid) -> Result<(), Error> {
        if known(self.state, options)? != Some(chosen) {
            return Ok(());
        }
        let path = path(self.state, options);
        durable_file::remove(&path).map_err(Error::io(path.display().to_string()))
    }

    /// Returns the journal id for the first message of an empty stream. This is `organism`, the id
    /// of the organism's journal, in one case: the partition is the first one, and the state
    /// directory has no files of this journal. Otherwise, the result is a new id:
    /// - Each further partition has a journal with an id of its own.
    /// - Files of the journal `organism` in the state directory show that an earlier stream of this
    ///   journal was lost.
    pub(super) fn first_id(&self, options: &Options, organism: Uuid) -> Uuid {
        if options.partition == 0 && !self.has_used(organism) { organism } else { Uuid::now_v7() }
    }

    /// Whether the state directory has files of this journal: its checkpoints, or its watermark,
    /// which names the last acknowledged record.
    fn has_used(&self, journal: Uuid) -> bool {
        let Ok(entries) = std::fs::read_dir(self.state) else { return false };
        let id = journal.to_string();
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&id))
    }
}

/// Checks whether this host can join the journal on the server. Returns `None` if the host can
/// join, or if the server has no journal yet. Otherwise, returns the id of the journal on the
/// server.
pub fn foreign(
    servers: &nats::Options,
    options: &Options,
    member: &JoiningHost<'_>,
) -> Result<Option<Uuid>, Error> {
    let api = connect(servers, options)?;
    let Some(theirs) = partition_count::begun(&api, options)? else { return Ok(None) };
    match member.admit(&api, options, theirs) {
        Ok(()) => Ok(None),
        Err(Error::OtherJournal { theirs, .. }) => Ok(Some(theirs)),
        Err(error) => Err(error),
    }
}

/// Refuses the journal on the server if it belongs to another organism. `data` is the directory
/// with the journals of all partitions.
pub fn check(
    servers: &nats::Options,
    options: &Options,
    data: &Path,
    state: &Path,
) -> Result<(), Error> {
    let api = connect(servers, options)?;
    let Some(theirs) = partition_count::begun(&api, options)? else { return Ok(()) };
    let mut refused = JoiningHost::new(data, state).admit(&api, options, theirs);

    for (partition, data) in partitions_in(data) {
        if refused.is_ok() {
            break;
        }
        let options = Options { partition: partition.unwrap_or_default(), ..options.clone() };
        refused = JoiningHost::new(&data, state).admit(&api, &options, theirs);
    }

    refused
}

fn connect(servers: &nats::Options, options: &Options) -> Result<JetStreamApi, Error> {
    let link = BlockingClient::open(servers, &format!("organism {}", options.organism))?;
    Ok(JetStreamApi { link: Arc::new(link) })
}

/// Whether the directory `data` has a projection of the journal in the stream of `options`.
fn follows(api: &JetStreamApi, options: &Options, data: &Path) -> Result<bool, Error> {
    if !may_have_journal(data) {
        return Ok(false);
    }

    let reader = JournalReader::open(data)?;
    if !reader.is_projection()? || partition_count::is_empty(api, options)? {
        return Ok(false);
    }

    Ok(reader.about()?.journal == first_message::first(api, options)?.journal)
}

/// Whether the directory `data` has the journal `journal` in a file that follows no stream.
fn has_embedded(data: &Path, journal: Uuid) -> Result<bool, Error> {
    if !may_have_journal(data) {
        return Ok(false);
    }

    let reader = JournalReader::open(data)?;
    Ok(!reader.is_projection()? && reader.about()?.journal == journal)
}

fn path(state: &Path, options: &Options) -> PathBuf {
    state.join(format!("{}.organism", options.stream))
}

/// Copies the notes about journal ids from the state directory `from` to the state directory `to`.
/// A host that is restored from a backup joins only the journals that these notes name.
pub fn copy_notes(from: &Path, to: &Path) -> Result<(), Error> {
    let io = |path: &Path| Error::io(path.display().to_string());
    if !from.exists() {
        return Ok(());
    }

    for entry in std::fs::read_dir(from).map_err(io(from))? {
        let path = entry.map_err(io(from))?.path();
        let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(is_note)) else {
            continue;
        };
        let bytes = durable_file::read(&path).map_err(io(&path))?.unwrap_or_default();
        let copy = to.join(name);
        let unfinished = copy.with_extension("organism.new");
        durable_file::replace(&copy, &unfinished, &bytes).map_err(io(&copy))?;
    }

    Ok(())
}

fn is_note(extension: &std::ffi::OsStr) -> bool {
    extension == "organism"
}

/// Returns the id of the journal that this host began or adopted in the streams of `options`.
/// Returns `None` if the host has noted no id.
pub fn known(state: &Path, options: &Options) -> Result<Option<Uuid>, Error> {
    let path = path(state, options);
    let bytes = durable_file::read(&path).map_err(Error::io(path.display().to_string()))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let strange = || {
        let detail = "does not hold the id of a journal: move it away and run `organism adopt`";
        Error::ForeignJournal { path: path.display().to_string(), detail: detail.to_owned() }
    };

    let journal = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    journal.map(Some).ok_or_else(strange)
}

/// Notes durably that this host takes part in the journal `journal`.
pub fn note(state: &Path, options: &Options, journal: Uuid) -> Result<(), Error> {
    // Lock: several partitions of a process may note the id at once, and write the same file.
    static NOTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = locked(&NOTING);
    let path = path(state, options);
    let line = format!("{journal}\n");
    let unfinished = path.with_extension("organism.new");
    let noted = durable_file::replace(&path, &unfinished, line.as_bytes());
    noted.map_err(Error::io(path.display().to_string()))
}
