//! The facts from the config that pages need. They are loaded again if a file of the config has
//! changed, or if they are older than [`limits::WEB_CONFIG_AGE`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use super::retry_outlook::RetryPredictor;
use crate::config::{self, Config, ConfigEnvironment};
use crate::contract::Role;
use crate::ids::ListenerName;
use crate::limits;
use crate::locks::locked;
use crate::organism;

/// The values that the web view takes from a config file: the predictor, which states whether
/// retries can succeed, the names of listeners, and the public keys of the person.
#[derive(Debug, Default)]
pub(in super::super) struct ConfigFacts {
    pub predictor: RetryPredictor,
    /// Names of all listeners to which calls can be sent; `None` if the config is not known.
    pub callees: Option<Vec<String>>,
    /// Public keys of the person who uses the view, separated by spaces; `None` if decisions need
    /// no signature.
    pub signing_keys: Option<String>,
}

impl ConfigFacts {
    fn of(config: Config, person: &ListenerName) -> Self {
        let must_sign = !config.operators.is_empty();
        let signing_keys = must_sign.then(|| own_keys(&config, person));
        let contracts = config.contracts.iter().filter(|contract| contract.role != Role::Client);
        let callees = Some(contracts.map(|contract| contract.name.to_string()).collect());
        let predictor = RetryPredictor::of(organism::gate(config).ok());
        Self { predictor, callees, signing_keys }
    }
}

/// Returns the keys of a person in the config, separated by spaces.
pub(super) fn own_keys(config: &Config, person: &ListenerName) -> String {
    let own = config.operators.iter().filter(|(name, _)| name == person);
    let own: Vec<_> = own.map(|(_, key)| key.to_string()).collect();
    own.join(" ")
}

/// The size and the time of the last change of a file; `None` if the file does not exist.
type FileStamp = Option<(u64, SystemTime)>;

/// The [`ConfigFacts`] of the last load, with the time of the load and the files that were read.
#[derive(Debug)]
struct LoadedFacts {
    facts: Arc<ConfigFacts>,
    at: Instant,
    /// The config file, and the files that the config names. Each has the size and the time of
    /// change that it had when the config was loaded.
    files: Vec<(PathBuf, FileStamp)>,
}

impl LoadedFacts {
    fn load(path: PathBuf, person: &ListenerName) -> Self {
        let at = Instant::now();
        let loaded = config::load_without_keys(&path, &ConfigEnvironment::of_process());
        let Ok(config) = loaded else {
            return Self { facts: Arc::default(), at, files: stamps([path]) };
        };
        let named = config.stored.files.keys().map(|name| config.directory.join(name));
        let files = stamps([path].into_iter().chain(named));
        Self { facts: Arc::new(ConfigFacts::of(config, person)), at, files }
    }

    /// Whether the facts may still be used. True if none of `files` has changed, and the facts are
    /// younger than [`limits::WEB_CONFIG_AGE`]. The facts may also depend on files that are not in
    /// `files`. Changes of such files are noticed only when the facts reach this age.
    fn is_current(&self) -> bool {
        let is_same = |(path, known): &(PathBuf, FileStamp)| stamp(path) == *known;
        self.at.elapsed() < limits::WEB_CONFIG_AGE && self.files.iter().all(is_same)
    }
}

fn stamps(paths: impl IntoIterator<Item = PathBuf>) -> Vec<(PathBuf, FileStamp)> {
    let with_stamp = |path: PathBuf| {
        let stamp = stamp(&path);
        (path, stamp)
    };
    paths.into_iter().map(with_stamp).collect()
}

fn stamp(path: &Path) -> FileStamp {
    let file = path.metadata().ok()?;
    Some((file.len(), file.modified().ok()?))
}

/// The facts of a view's config file. All pages of the view share these facts.
#[derive(Debug, Default)]
pub(super) struct SharedConfigFacts {
    /// The result of the last load of the config; `None` before the first load. Lock: held only to
    /// read or replace this result, not while a config is loaded.
    loaded: Mutex<Option<Arc<LoadedFacts>>>,
}

impl SharedConfigFacts {
    /// Returns the facts that were loaded last, even if the files have changed since then. Returns
    /// `None` before the first load.
    pub fn known(&self) -> Option<Arc<ConfigFacts>> {
        self.loaded().map(|loaded| Arc::clone(&loaded.facts))
    }

    fn loaded(&self) -> Option<Arc<LoadedFacts>> {
        locked(&self.loaded).clone()
    }

    /// Returns the [`ConfigFacts`] of the config as it is in the files now. If the config cannot be
    /// loaded, the facts are empty.
    pub async fn current(&self, path: PathBuf, person: ListenerName) -> Arc<ConfigFacts> {
        let known = self.loaded();
        let load = move || match known {
            Some(known) if known.is_current() => known,
            _ => Arc::new(LoadedFacts::load(path, &person)),
        };
        let Ok(loaded) = tokio::task::spawn_blocking(load).await else { return Arc::default() };
        let facts = Arc::clone(&loaded.facts);
        *locked(&self.loaded) = Some(loaded);
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_loaded_again_only_after_a_change_of_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("organism.toml");
        let person = ListenerName::parse("ana").unwrap();
        std::fs::write(&path, "[organism]\nname = \"talk\"\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let shared = SharedConfigFacts::default();
        let load = || runtime.block_on(shared.current(path.clone(), person.clone()));

        let first = load();
        assert!(Arc::ptr_eq(&first, &load()), "the file is the same");
        std::fs::write(&path, "[organism]\nname = \"other\"\n").unwrap();
        let second = load();
        assert!(!Arc::ptr_eq(&first, &second), "the file has changed");
        assert!(Arc::ptr_eq(&second, &shared.known().unwrap()));
    }
}
