//! Keys of NATS users. Each user has a file with its seed, the text of its private key. The
//! server's config contains the public key.
//!
//! A user has one key or, during a rotation, two: `NAME.nk` and `NAME.old.nk`.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nkeys::{KeyPair, KeyPairType};

use crate::durable_file;

/// A change to the keys of a NATS user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRotation {
    /// Makes a new key. The old key stays valid until it is retired.
    Renew,
    /// Makes the old key invalid.
    Retire,
    /// Makes a new key, and invalidates the old key at once, because it was exposed.
    Revoke,
}

/// Reason why a key cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} does not contain the seed of a user's nkey: {detail}")]
    Seed { path: PathBuf, detail: String },
    #[error("{path} exists: retire or revoke the old key before you create a third one")]
    Twice { path: PathBuf },
    #[error("{path} belongs to another organism than `{organism}`; name another directory")]
    Another { path: PathBuf, organism: String },
}

/// A directory that contains the seeds of NATS users.
pub(super) struct SeedFolder {
    directory: PathBuf,
}

impl SeedFolder {
    pub fn open(directory: &Path) -> Result<Self, KeyError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let directory = directory.to_owned();
        match made {
            Ok(()) => Ok(Self { directory }),
            Err(source) => Err(KeyError::Io { path: directory, source }),
        }
    }

    pub fn path(&self, user: &str) -> PathBuf {
        self.directory.join(format!("{user}.nk"))
    }

    fn old(&self, user: &str) -> PathBuf {
        self.directory.join(format!("{user}.old.nk"))
    }

    /// Whether a user has an old key, which stays valid until it is retired.
    pub fn has_old(&self, user: &str) -> bool {
        self.old(user).exists()
    }

    /// Returns the public keys of a user, the current one first. Makes a key if the user has none.
    pub fn of(&self, user: &str) -> Result<Vec<String>, KeyError> {
        let path = self.path(user);
        let old = self.old(user);
        if !path.exists() {
            make(&path)?;
        }

        let mut keys = vec![public(&path)?];
        // The two are equal if a renewal was interrupted before it made the new key.
        if old.exists() {
            let key = public(&old)?;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }

        Ok(keys)
    }

    /// Refuses a directory that contains the keys of another organism.
    pub fn require_organism(&self, organism: &str) -> Result<(), KeyError> {
        let path = self.directory.join("accounts.conf");
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        if text.contains(&format!("\n  \"{organism}\" {{\n")) {
            Ok(())
        } else {
            Err(KeyError::Another { path, organism: organism.to_owned() })
        }
    }

    /// Returns the users in the written `accounts.conf` that have no seed in this directory: the
    /// names of users with a password, and public keys. A person has added these users, or the
    /// seeds were removed.
    pub fn foreign_users(&self) -> Vec<String> {
        let accounts = std::fs::read_to_string(self.directory.join("accounts.conf"));
        let accounts = accounts.unwrap_or_default();
        // The name of the account before its users may be a keyword, such as `user`.
        let (_, users) = accounts.split_once("users: [").unwrap_or_default();
        let seeds = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let own: Vec<_> = seeds.filter_map(|seed| public(&seed.path()).ok()).collect();
        let lines = users.lines().filter(|line| !line.trim_start().starts_with('#'));
        let is_separator = |c: char| c.is_whitespace() || "{}[],:=\"'".contains(c);
        let words = lines.flat_map(|line| line.split(is_separator));
        let mut words = words.filter(|word| !word.is_empty());
        let mut foreign = Vec::new();
        while let Some(word) = words.next() {
            if ["user", "username", "nkey"].contains(&word) {
                foreign.extend(words.next().map(str::to_owned));
            }
        }

        foreign.retain(|user| !own.contains(user));
        foreign
    }

    pub fn check_rotation(&self, user: &str, rotation: KeyRotation) -> Result<(), KeyError> {
        match rotation {
            KeyRotation::Renew if self.is_renewed(user)? => {
                Err(KeyError::Twice { path: self.old(user) })
            }
            KeyRotation::Renew | KeyRotation::Retire | KeyRotation::Revoke => Ok(()),
        }
    }

    /// Whether a user has an old key, and a new key that the written `accounts.conf` names. If
    /// there is an old key and this is false, the renewal was interrupted. Without `accounts.conf`,
    /// nothing shows that a renewal was interrupted, so it counts as complete.
    fn is_renewed(&self, user: &str) -> Result<bool, KeyError> {
        let path = self.path(user);
        let old = self.old(user);
        if !path.exists() || !old.exists() {
            return Ok(false);
        }

        let key = public(&path)?;
        if key == public(&old)? {
            return Ok(false);
        }

        let accounts = self.directory.join("accounts.conf");
        match std::fs::read_to_string(&accounts) {
            Ok(text) => Ok(text.contains(&key)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(source) => Err(KeyError::Io { path: accounts, source }),
        }
    }

    /// Rotates the key of a user. The caller must have checked with
    /// [`check_rotation`](Self::check_rotation) that the rotation is allowed.
    pub fn rotate(&self, user: &str, rotation: KeyRotation) -> Result<(), KeyError> {
        let path = self.path(user);
        let old = self.old(user);
        let remove = |path: &Path| {
            let removed = durable_file::remove(path);
            removed.map_err(|source| KeyError::Io { path: path.to_owned(), source })
        };

        match rotation {
            KeyRotation::Renew => self.renew(user),
            KeyRotation::Retire => remove(&old),
            // Ordering rule: the old key is removed first. If it were left beside a new key, this
            // would look like an interrupted renewal, and the old key would stay valid.
            KeyRotation::Revoke => {
                remove(&old)?;
                make(&path)
            }
        }
    }

    /// Keeps the key of a user as the old one, and makes a new key. Ends a renewal that was
    /// interrupted, whose old key is the one that the servers accept.
    fn renew(&self, user: &str) -> Result<(), KeyError> {
        let path = self.path(user);
        let old = self.old(user);
        let read = |path: &Path| {
            let found = durable_file::read(path);
            found.map_err(|source| KeyError::Io { path: path.to_owned(), source })
        };

        let current = read(&path)?;
        let kept = read(&old)?;
        // The new key is made, and only `accounts.conf` is not written yet.
        if current.is_some() && kept.is_some() && current != kept {
            return Ok(());
        }

        // Ordering rule: the old key is copied before the new one replaces it, so that at any time
        // one of the two files has the key that the servers accept.
        if let Some(seed) = current {
            write(&old, &seed)?;
        }
        make(&path)
    }

    /// Removes the keys of all listeners that are not named in `users`.
    pub fn only(&self, users: &[&str]) -> Result<(), KeyError> {
        let failed = |source| KeyError::Io { path: self.directory.clone(), source };
        for entry in std::fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(user) = name.strip_suffix(".nk") else { continue };
            let user = user.strip_suffix(".old").unwrap_or(user);
            if user.starts_with("listener-") && !users.contains(&user) {
                let path = entry.path();
                std::fs::remove_file(&path).map_err(|source| KeyError::Io { path, source })?;
            }
        }

        Ok(())
    }

    /// Returns the secret with which the servers of the NATS cluster connect to each other. If
    /// there is none yet, generates and stores one: a NATS seed, which is the text of a private
    /// key.
    pub fn cluster_secret(&self) -> Result<String, KeyError> {
        let path = self.directory.join("cluster.secret");
        let failed = |source| KeyError::Io { path: path.clone(), source };
        if !path.exists() {
            make(&path)?;
        }
        Ok(std::fs::read_to_string(&path).map_err(failed)?.trim().to_owned())
    }
}

/// Writes a new seed to the file `path`, in place of any other seed in this file.
fn make(path: &Path) -> Result<(), KeyError> {
    let seed = KeyPair::new_user().seed();
    let seed = seed.map_err(|e| KeyError::Seed { path: path.to_owned(), detail: e.to_string() })?;
    write(path, format!("{seed}\n").as_bytes())
}

fn write(path: &Path, seed: &[u8]) -> Result<(), KeyError> {
    let written = durable_file::replace_private(path, &path.with_extension("new"), seed);
    written.map_err(|source| KeyError::Io { path: path.to_owned(), source })
}

fn public(path: &Path) -> Result<String, KeyError> {
    let failed = |source| KeyError::Io { path: path.to_owned(), source };
    let seed = std::fs::read_to_string(path).map_err(failed)?;
    let wrong = |detail: String| KeyError::Seed { path: path.to_owned(), detail };
    let pair = KeyPair::from_seed(seed.trim()).map_err(|e| wrong(e.to_string()))?;
    match pair.key_pair_type() {
        KeyPairType::User => Ok(pair.public_key()),
        other => Err(wrong(format!("it is that of another kind, {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::organism::nats_config::rights::SubjectRights;
    use crate::organism::nats_config::server;

    #[test]
    fn an_interrupted_renewal_keeps_the_valid_key_and_is_completed_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SeedFolder::open(directory.path()).unwrap();
        let valid = folder.of("pump").unwrap().remove(0);
        let accounts = directory.path().join("accounts.conf");
        std::fs::write(&accounts, &valid).unwrap();

        // A directory in the place of the file to which the new key is written first.
        let obstacle = directory.path().join("pump.new");
        let renew = || {
            folder.check_rotation("pump", KeyRotation::Renew)?;
            folder.rotate("pump", KeyRotation::Renew)
        };
        std::fs::create_dir(&obstacle).unwrap();
        assert!(renew().is_err());
        assert_eq!(folder.of("pump").unwrap(), [valid.as_str()]);
        std::fs::remove_dir(&obstacle).unwrap();

        renew().unwrap();
        let keys = folder.of("pump").unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys.last(), Some(&valid));
        // `accounts.conf` does not name the new key yet.
        renew().unwrap();
        assert_eq!(folder.of("pump").unwrap(), keys);

        // An earlier version had moved the key away before it made the new one.
        std::fs::remove_file(folder.path("pump")).unwrap();
        renew().unwrap();
        let keys = folder.of("pump").unwrap();
        assert_eq!(keys.last(), Some(&valid));
        std::fs::write(&accounts, keys.join(" ")).unwrap();
        assert!(matches!(renew(), Err(KeyError::Twice { .. })));

        // Without `accounts.conf`, a third key is refused, too.
        std::fs::remove_file(&accounts).unwrap();
        assert!(matches!(renew(), Err(KeyError::Twice { .. })));
        std::fs::create_dir(&accounts).unwrap();
        assert!(matches!(renew(), Err(KeyError::Io { .. })));
        assert_eq!(folder.of("pump").unwrap(), keys);
    }

    #[test]
    fn an_interrupted_revocation_keeps_no_old_key() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SeedFolder::open(directory.path()).unwrap();
        folder.of("pump").unwrap();
        folder.rotate("pump", KeyRotation::Renew).unwrap();
        let keys = folder.of("pump").unwrap();
        assert_eq!(keys.len(), 2);

        // A directory in the place of the file to which the new key is written first.
        let obstacle = directory.path().join("pump.new");
        std::fs::create_dir(&obstacle).unwrap();
        assert!(folder.rotate("pump", KeyRotation::Revoke).is_err());
        assert_eq!(folder.of("pump").unwrap(), keys[..1]);
        std::fs::remove_dir(&obstacle).unwrap();

        folder.rotate("pump", KeyRotation::Revoke).unwrap();
        let revoked = folder.of("pump").unwrap();
        assert_eq!(revoked.len(), 1);
        assert!(!keys.contains(&revoked[0]));
    }

    #[test]
    fn the_name_of_the_organism_is_no_user_and_a_key_without_a_seed_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SeedFolder::open(directory.path()).unwrap();
        for organism in ["user", "username", "nkey"] {
            let keys = folder.of("pump").unwrap();
            let rights = SubjectRights { publish: Vec::new(), subscribe: Vec::new() };
            let users = [("pump".to_owned(), keys.clone(), rights)];
            let accounts = server::accounts(organism, &users);
            std::fs::write(directory.path().join("accounts.conf"), accounts).unwrap();
            assert!(folder.foreign_users().is_empty(), "{organism}: {:?}", folder.foreign_users());

            std::fs::remove_file(folder.path("pump")).unwrap();
            assert_eq!(folder.foreign_users(), keys);
        }
    }
}
