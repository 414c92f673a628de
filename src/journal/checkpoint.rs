//! Checkpoints: signed statements about the records in a journal at one time. A host keeps them in
//! the journal and also in a file outside the journal. They reveal whether records at the end of
//! the journal are missing, and whether the journal was rewritten.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Time;
use crate::durable_file;
use crate::hex;
use crate::ids::{Digest, Position};
use crate::limits;

use super::Error;
use super::checkpoint_lines::{LastLines, end_of_last_line, visit_lines};
use super::mac::{KeyId, MacKey};
use super::sqlite::make_directory;

/// A signed statement about a journal at one time. Up to `position`, the journal had `count`
/// records and the Merkle root `merkle_root`. The leaves of the Merkle tree are the last records of
/// all trees, in the order in which the trees first appeared. The [`CheckpointFile`] stores each
/// checkpoint as one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checkpoint {
    pub journal: Uuid,
    pub position: Position,
    pub count: u64,
    pub merkle_root: Digest,
    pub time: Time,
    /// Position from which on the pump had verified all records when it signed this checkpoint.
    /// This is the position of the first record after the snapshot from which the pump had started.
    /// `None` if the pump had verified the whole journal.
    #[serde(rename = "proved_from", default, skip_serializing_if = "Option::is_none")]
    pub proved_from: Option<Position>,
    /// Ed25519 public key of the signer, in hexadecimal.
    pub key: String,
    pub signature: String,
}

impl Checkpoint {
    /// Returns the bytes of this checkpoint that its signature covers.
    fn claim(&self) -> Vec<u8> {
        let mut claim = b"organism checkpoint 1\n".to_vec();
        claim.extend_from_slice(self.journal.as_bytes());
        claim.extend_from_slice(&self.count.to_be_bytes());
        claim.extend_from_slice(&self.position.0.to_be_bytes());
        claim.extend_from_slice(&self.time.0.to_be_bytes());
        claim.extend_from_slice(&self.merkle_root.0);
        if let Some(from) = self.proved_from {
            claim.extend_from_slice(b"proved from\n");
            claim.extend_from_slice(&from.0.to_be_bytes());
        }
        claim
    }

    /// Whether the signature covers the content of this checkpoint and is made with the key that
    /// the checkpoint names.
    pub fn is_genuine(&self) -> bool {
        is_signed_by(&self.key, &self.claim(), &self.signature)
    }
}

/// Whether `signature` is a signature of `key` over `signed`. Key and signature are hexadecimal.
pub(super) fn is_signed_by(key: &str, signed: &[u8], signature: &str) -> bool {
    let key = hex::decode(key).and_then(|key| VerifyingKey::from_bytes(&key).ok());
    let signature = hex::decode(signature).map(|bytes| Signature::from_bytes(&bytes));
    key.zip(signature).is_some_and(|(key, signature)| key.verify_strict(signed, &signature).is_ok())
}

/// The host's signing key, from a file that only its owner may read.
#[derive(Debug)]
pub struct CheckpointKey {
    signing: SigningKey,
    is_stored: bool,
}

impl CheckpointKey {
    /// Reads the signing key from the file `key` in the directory `state`. If the file is missing,
    /// creates it with a new key and the mode 0600. If another process creates the file at the same
    /// time, returns the key of that process, because the key in the file is the one of this host.
    pub fn open(state: &Path) -> Result<Self, Error> {
        let key = Self::read_or_generate(state)?;
        if key.is_stored || key.create(state)? {
            return Ok(Self { is_stored: true, ..key });
        }

        let path = state.join("key");
        let gone = || Error::io(key_file(&path))(ErrorKind::NotFound.into());
        Self::read_file(&path)?.ok_or_else(gone)
    }

    /// Reads the signing key as [`CheckpointKey::open`] does. If the file is missing, generates a
    /// key that has no file before [`CheckpointKey::store`]. So a journal that is refused because
    /// the key is missing does not leave another key in its place.
    pub fn read_or_generate(state: &Path) -> Result<Self, Error> {
        if let Some(key) = Self::read_file(&state.join("key"))? {
            return Ok(key);
        }
        Ok(Self { signing: SigningKey::generate(&mut rand_core::OsRng), is_stored: false })
    }

    /// Writes a generated key to its file, and creates the directory `state` if it is missing. Does
    /// nothing if the key has its file. Fails if another process has created the file meanwhile.
    pub fn store(&mut self, state: &Path) -> Result<(), Error> {
        if self.is_stored {
            return Ok(());
        }

        make_directory(state)?;
        if !self.create(state)? {
            let path = state.join("key");
            return Err(Error::io(key_file(&path))(ErrorKind::AlreadyExists.into()));
        }
        self.is_stored = true;
        Ok(())
    }

    /// Whether the key has its file. The key of a host without a file is not known to any record.
    pub fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Creates the key file in `state`. Returns false if the file exists.
    fn create(&self, state: &Path) -> Result<bool, Error> {
        let path = state.join("key");
        let line = format!("{}\n", hex::encode(&self.signing.to_bytes()));
        let created = durable_file::create_whole_private(&path, line.as_bytes());
        created.map_err(Error::io(key_file(&path)))
    }

    /// Reads the signing key from the file `path`. Returns `None` if the file does not exist.
    fn read_file(path: &Path) -> Result<Option<Self>, Error> {
        let failed = |source| Error::io(key_file(path))(source);
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed)?,
        };
        let seed = hex::decode(text.trim()).ok_or_else(|| {
            failed(std::io::Error::new(
                ErrorKind::InvalidData,
                "it is not 64 hexadecimal digits; restore it, or move it away for a new one",
            ))
        })?;
        Ok(Some(Self { signing: SigningKey::from_bytes(&seed), is_stored: true }))
    }

    /// Returns the public key in hexadecimal.
    pub fn public(&self) -> String {
        hex::encode(self.signing.verifying_key().as_bytes())
    }

    /// Returns the key for MACs. It is derived from this signing key.
    pub fn mac(&self) -> MacKey {
        MacKey::derive(self.signing.as_bytes(), &self.public())
    }

    /// Reads the signing key from the file `key` in the directory `state`. Returns `None` if the
    /// file does not exist.
    pub fn read(state: &Path) -> Result<Option<Self>, Error> {
        let path = state.join("key");
        let unreadable = Error::io(format!("{} cannot be read", path.display()));
        let is_present = durable_file::exists(&path).map_err(unreadable)?;
        if is_present { Self::read_file(&path) } else { Ok(None) }
    }

    pub fn sign(&self, mut checkpoint: Checkpoint) -> Checkpoint {
        checkpoint.key = self.public();
        checkpoint.signature = self.sign_bytes(&checkpoint.claim());
        checkpoint
    }

    /// Returns the signature over `bytes`, in hexadecimal.
    pub(super) fn sign_bytes(&self, bytes: &[u8]) -> String {
        hex::encode(&self.signing.sign(bytes).to_bytes())
    }
}

/// Returns a warning if other users can read the signing key in the directory `state`. Returns
/// `None` if only its owner can read it, or if there is no key.
pub fn readable_key_warning(state: &Path) -> Option<String> {
    const OTHERS_READ: u32 = 0o044;
    let path = state.join("key");
    let mode = std::fs::metadata(&path).ok()?.permissions().mode();
    (mode & OTHERS_READ != 0).then(|| {
        let path = path.display();
        format!(
            "other users can read {path}, which signs the checkpoints of this host: run `chmod 600 \
             {path}`, and make another key if one of them may have read it"
        )
    })
}

/// Returns the name of the key file for error messages.
fn key_file(path: &Path) -> String {
    format!("the signing key {}", path.display())
}

/// Public half of a host's signing key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey {
    /// The public key in hexadecimal.
    pub public: String,
    /// Id of the key. Every MAC that the host makes contains this id.
    pub id: String,
    /// Path of the file with the private half of the key.
    pub file: PathBuf,
}

/// Reads the signing key in `state`, the state directory of a host. Creates the directory and the
/// key if they are missing.
pub fn host_key(state: &Path) -> Result<HostKey, Error> {
    make_directory(state)?;
    let public = CheckpointKey::open(state)?.public();
    let id = KeyId::of(&public).to_string();
    Ok(HostKey { public, id, file: state.join("key") })
}

/// The file of checkpoints outside the journal, with one checkpoint as JSON on each line.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
}

impl CheckpointFile {
    pub fn new(state: &Path, journal: Uuid) -> Self {
        Self { path: state.join(format!("{journal}.checkpoints")) }
    }

    /// Returns the checkpoint file at `path`, such as a file of copied checkpoints. The file need
    /// not exist.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns all checkpoints of the file, oldest first. If the file does not exist, returns an
    /// empty list. Ignores an incomplete last line that a crash has left. If another line is
    /// damaged, returns an error that names the first such line and gives advice.
    pub fn read(&self) -> Result<Vec<Checkpoint>, Error> {
        let (lines, damage) = self.read_intact()?;
        self.refuse_damage(damage)?;
        Ok(lines)
    }

    fn refuse_damage(&self, damage: Option<String>) -> Result<(), Error> {
        let Some(damage) = damage else { return Ok(()) };
        Err(Error::io(self.shown())(std::io::Error::other(format!(
            "{damage}: move the file away; the journal itself has its checkpoints \
             (docs/OPERATIONS.md, Repair)"
        ))))
    }

    /// Returns the intact checkpoints of the file, oldest first, and a description of the first
    /// damaged line. The description is `None` if all lines are intact. Like
    /// [`CheckpointFile::read`], ignores an incomplete last line.
    pub fn read_intact(&self) -> Result<(Vec<Checkpoint>, Option<String>), Error> {
        let mut intact = Vec::new();
        let damage = self.visit_intact(&mut |line| intact.push(line))?;
        Ok((intact, damage))
    }

    /// Calls `visit` with each intact checkpoint of the file, oldest first. Holds only one of them
    /// in memory at a time. Returns a description of the first damaged line; `None` if all lines
    /// are intact. Like [`CheckpointFile::read`], ignores an incomplete last line.
    pub fn visit_intact(&self, visit: &mut dyn FnMut(Checkpoint)) -> Result<Option<String>, Error> {
        visit_lines(&self.path, visit).map_err(Error::io(self.shown()))
    }

    /// Returns the lines at the end of the file, at most [`limits::CHECKPOINT_BLOCK_BYTES`]. If
    /// none of them is intact, returns lines before these.
    pub fn last_intact(&self) -> Result<LastLines, Error> {
        let end = LastLines::read(&self.path, limits::CHECKPOINT_BLOCK_BYTES as u64, &mut || {});
        end.map_err(Error::io(self.shown()))
    }

    /// Returns the name of the checkpoint file for error messages.
    fn shown(&self) -> String {
        format!("the checkpoints in {}", self.path.display())
    }

    /// Returns the last checkpoint of the file; `None` if the file contains no checkpoint. Reads
    /// only the end of the file, because the file of an old journal is long.
    ///
    /// # Errors
    ///
    /// Returns an error if a line at the end of the file is damaged. Damage in an earlier line is
    /// not noticed.
    pub fn last(&self) -> Result<Option<Checkpoint>, Error> {
        let end = self.last_intact()?;
        let is_found = end.damage.is_none() && !end.checkpoints.is_empty();
        if is_found || end.from == 0 {
            self.refuse_damage(end.damage)?;
            return Ok(end.checkpoints.into_iter().next_back());
        }

        // The error names the number of the damaged line in the whole file.
        let mut last = None;
        let damage = self.visit_intact(&mut |line| last = Some(line))?;
        self.refuse_damage(damage)?;
        Ok(last)
    }

    /// Removes the checkpoints after `last`. First saves a copy of the whole file under an unused
    /// name. Must be called only if an operator has accepted the loss of the records after `last`.
    pub fn keep_up_to(&self, last: Position) -> std::io::Result<()> {
        let latest = self.last().map_err(std::io::Error::other)?;
        // The positions of the lines rise.
        if latest.is_none_or(|line| line.position <= last) {
            return Ok(());
        }

        self.keep(|line| line.position <= last)
    }

    /// Removes the checkpoints for which `is_kept` is false. First saves a copy of the whole file
    /// under an unused name.
    pub fn keep(&self, is_kept: impl Fn(&Checkpoint) -> bool) -> std::io::Result<()> {
        let lines = self.read().map_err(std::io::Error::other)?;
        let kept: Vec<_> = lines.iter().filter(|line| is_kept(line)).cloned().collect();
        if kept.len() == lines.len() {
            return Ok(());
        }

        let aside = (1..).map(|n: u32| self.path.with_extension(format!("checkpoints.lost-{n}")));
        let aside = aside.into_iter().find(|path| !path.exists()).unwrap_or_default();
        std::fs::copy(&self.path, &aside)?;
        File::open(&aside)?.sync_all()?;
        let rest = Self { path: self.path.with_extension("checkpoints.new") };
        durable_file::remove(&rest.path)?;
        rest.append(&kept)?;
        std::fs::rename(&rest.path, &self.path)
    }

    /// Appends checkpoints durably, one on each line.
    pub fn append(&self, checkpoints: &[Checkpoint]) -> std::io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
        drop_cut_line(&mut file)?;
        let mut lines = String::new();
        for checkpoint in checkpoints {
            lines.push_str(&serde_json::to_string(checkpoint)?);
            lines.push('\n');
        }

        file.write_all(lines.as_bytes())?;
        file.sync_data()
    }
}

/// Removes an incomplete last line, left by a crash or a full disk.
fn drop_cut_line(file: &mut File) -> std::io::Result<()> {
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }

    if last == [b'\n'] {
        return Ok(());
    }

    let whole = end_of_last_line(file)?;
    file.set_len(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a checkpoint at the first record, without a signature.
    fn unsigned() -> Checkpoint {
        Checkpoint {
            journal: Uuid::nil(),
            position: Position(1),
            count: 1,
            merkle_root: Digest::ZERO,
            time: Time(0),
            proved_from: None,
            key: String::new(),
            signature: String::new(),
        }
    }

    #[test]
    fn a_key_that_other_users_can_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert_eq!(readable_key_warning(state), None, "there is none");
        CheckpointKey::open(state).unwrap();
        assert_eq!(readable_key_warning(state), None);

        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(state.join("key"), mode).unwrap();
        let warning = readable_key_warning(state).unwrap();
        assert!(warning.contains("run `chmod 600 "), "{warning}");
    }

    #[test]
    fn a_key_that_another_process_creates_first_is_the_key_of_both() {
        let directory = tempfile::tempdir().unwrap();
        // Both processes have found no key.
        let state = directory.path();
        let [mut first, mut second] =
            [(); 2].map(|()| CheckpointKey::read_or_generate(state).unwrap());
        assert!(!first.is_stored() && !state.join("key").exists());
        first.store(state).unwrap();
        assert_eq!(CheckpointKey::open(state).unwrap().public(), first.public());
        assert!(second.store(state).is_err(), "another key is in the file");
        assert_eq!(CheckpointKey::open(state).unwrap().public(), first.public());
    }

    #[test]
    fn an_error_names_the_damaged_line_of_a_checkpoint_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = CheckpointFile::new(directory.path(), Uuid::nil());
        let line = unsigned();
        file.append(&[line.clone(), line.clone()]).unwrap();
        assert_eq!(file.read().unwrap().len(), 2);

        let mut damaged = OpenOptions::new().append(true).open(file.path()).unwrap();
        damaged.write_all(b"garbage\n\xff\n").unwrap();
        for error in [file.read().unwrap_err().to_string(), file.last().unwrap_err().to_string()] {
            assert!(error.contains("line 3 is damaged at column 1: move the file away"), "{error}");
        }

        file.append(&[line]).unwrap();
        let (intact, damage) = file.read_intact().unwrap();
        assert_eq!(intact.len(), 3);
        assert_eq!(damage.as_deref(), Some("line 3 is damaged at column 1"));
    }

    #[test]
    fn damage_longer_than_a_line_hides_no_line_after_it_and_is_cut_off_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let file = CheckpointFile::new(directory.path(), Uuid::nil());
        let long = vec![b' '; 3 * limits::CHECKPOINT_BLOCK_BYTES];
        std::fs::write(file.path(), [long.as_slice(), b"x\n", &long].concat()).unwrap();
        let line = unsigned();
        file.append(std::slice::from_ref(&line)).unwrap();

        let bytes = std::fs::metadata(file.path()).unwrap().len();
        assert!(bytes < 2 * long.len() as u64, "the incomplete last line is removed: {bytes}");
        assert_eq!(file.last().unwrap(), Some(line));
    }
}
