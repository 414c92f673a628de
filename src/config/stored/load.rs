//! Loads a stored config.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::ids::{Digest, Position};
use crate::journal;

use super::super::environment::ConfigEnvironment;
use super::super::load::load_stored;
use super::super::{Config, ConfigProblems};
use super::{CONFIG_NAME, StoredConfig};

/// Reason why a stored config cannot be read or loaded.
#[derive(Debug, thiserror::Error)]
pub enum StoredConfigError {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The config cannot be loaded, because it was recorded by an early version of the program.
    /// That version did not yet store configs in a form that can be loaded.
    #[error(
        "the config of the boot at position {position} is not stored in a form that can be loaded: \
         an earlier version recorded it. The journal has the effective config {config} as JSON"
    )]
    NotStored { position: Position, config: Digest },
    #[error("the stored config is of form {version}, which this program does not know; update it")]
    Version { version: u32 },
    #[error("the stored config is damaged: {detail}")]
    Damaged { detail: String },
    #[error("the stored config {config} does not load in this version:\n{problems}")]
    Invalid { config: Digest, problems: ConfigProblems },
    /// The recorded texts no longer result in the recorded effective config. This version of the
    /// program reads the texts in another way than the version that stored them.
    #[error(
        "the stored config {recorded} becomes {loaded} in this version, which reads a config in \
         another way than the version that stored it"
    )]
    Differs { recorded: Digest, loaded: Digest },
    #[error("writing the stored config to {path}: {source}")]
    Io { path: String, source: std::io::Error },
}

impl StoredConfig {
    /// Loads the config for callers that start no organism. Secrets, variables and the programs of
    /// listeners may be missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the loaded effective config differs from the recorded one, or if a text
    /// is missing or damaged.
    pub fn load(&self) -> Result<Config, StoredConfigError> {
        self.extract().map(|extracted| extracted.config)
    }

    /// Loads the config with the same checks as [`StoredConfig::load`], but keeps the files of the
    /// config until the returned value is dropped. Playback models need these files, which include
    /// their recordings.
    pub fn extract(&self) -> Result<ExtractedConfig, StoredConfigError> {
        let mut extracted = self.extract_unproved()?;
        let config = &mut extracted.config;
        let recorded = self.manifest.config;
        // A recording that was not stored changes the digest, and nothing else depends on it.
        if !self.manifest.left_out.is_empty() {
            config.digest = recorded;
        }
        if config.digest != recorded {
            return Err(StoredConfigError::Differs { recorded, loaded: config.digest });
        }

        Ok(extracted)
    }

    /// Loads the config as [`StoredConfig::extract`] does, but does not compare the loaded
    /// effective config with the recorded one.
    fn extract_unproved(&self) -> Result<ExtractedConfig, StoredConfigError> {
        let directory = ScratchDirectory::create()?;
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |source| StoredConfigError::Io { path, source }
        };

        for name in self.directories() {
            let path = directory.0.join(name);
            std::fs::create_dir_all(&path).map_err(failed(&path))?;
        }

        let left_out = self.manifest.left_out.keys();
        let stand_ins = left_out.map(|name| (name.as_str(), "recorded = \"left out\"\n"));
        for (name, text) in self.all_files().chain(stand_ins) {
            let path = directory.0.join(name);
            let parent = path.parent().unwrap_or(&directory.0);
            std::fs::create_dir_all(parent).map_err(failed(parent))?;
            std::fs::write(&path, text).map_err(failed(&path))?;
        }

        let placeholder = |name: &String| (name.clone(), "withheld".to_owned());
        let around = ConfigEnvironment {
            variables: self.manifest.variables.iter().map(placeholder).collect::<BTreeMap<_, _>>(),
            directory: directory.0.clone(),
            home: Some(directory.0.clone()),
            program_directory: None,
        };
        let config = self.manifest.config;
        let loaded = load_stored(Path::new(CONFIG_NAME), &around)
            .map_err(|problems| StoredConfigError::Invalid { config, problems })?;
        Ok(ExtractedConfig { config: loaded, _directory: directory })
    }
}

/// A loaded stored config. Its files are in a private directory, which is removed when this value
/// is dropped.
pub struct ExtractedConfig {
    pub config: Config,
    _directory: ScratchDirectory,
}

/// A private directory that is removed when this value is dropped.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn create() -> Result<Self, StoredConfigError> {
        let path = std::env::temp_dir().join(format!("organism-config-{}", Uuid::now_v7()));
        let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
        let shown = path.display().to_string();
        created.map_err(|source| StoredConfigError::Io { path: shown, source })?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!("could not remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::load::load_for_check;
    use super::*;

    /// A config that earlier versions accepted. This version reports these problems: a goal needs
    /// the output of a goal that runs later, `count` gets a text instead of nodes, the prompt file
    /// is empty, and an agent and a workflow have names that mean something else in `organism
    /// pause`. No alert is raised, a word occurs twice, and a temperature is too high. A workflow
    /// may have a name of the core.
    const EARLIER: &str = r#"
organism.name = "talk"
clients.desk.peers = ["tour"]
alerts = { command = "./no-such-program", on = [] }
models.voice = { provider = "openai", model = "m", api_key_env = "NO_SUCH_KEY" }
models.hot = { provider = "anthropic", model = "m", temperature = 1.5 }
agents.writer = { model = "voice" }
agents.all = { model = "voice", core = ["wait", "wait"] }

[workflows.tour]
input = { topic = "text" }
output = "draft"
[workflows.tour.goals]
improve = { loop = ["draft", "polish"], until = { judge = "writer", prompt = "Good?" }, max = 2 }
draft = { needs = ["polish"], agent = "writer", prompt = "Write about {{input/topic}}." }
polish = { needs = [], agent = "writer", prompt = "Polish {{count('all')}}." }
last = { agent = "writer", prompt_file = "empty.md", money = 1 }

[workflows.sess-abcdefgh]
input = { topic = "text" }
output = "draft"
goals.draft = { agent = "writer", prompt = "Write about {{input/topic}}." }

[workflows.operator]
input = { topic = "text" }
output = "draft"
goals.draft = { agent = "writer", prompt = "Write about {{input/topic}}." }
"#;

    #[test]
    fn a_stored_config_may_have_what_an_earlier_version_accepted() {
        let directory = ScratchDirectory::create().unwrap();
        std::fs::write(directory.0.join(CONFIG_NAME), EARLIER).unwrap();
        std::fs::write(directory.0.join("empty.md"), "\n").unwrap();
        let around = ConfigEnvironment {
            variables: BTreeMap::new(),
            directory: directory.0.clone(),
            home: Some(directory.0.clone()),
            program_directory: None,
        };
        let path = Path::new(CONFIG_NAME);
        let stored = load_stored(path, &around).map(drop).map_err(|found| found.to_string());
        assert_eq!(stored, Ok(()));

        let checked = load_for_check(path, &around).map(drop);
        let problems = checked.unwrap_err().to_string();
        for problem in [
            "`draft` needs `polish`, which runs after it",
            "`count` takes nodes",
            "the prompt `empty.md` is empty",
            "`all` means everything in `organism pause`",
            "`sess-abcdefgh` means a thread in `organism pause`",
            "`on` of the section `alerts` is empty",
            "`wait` is in this list twice",
            "`temperature` of model `hot` is out of range",
        ] {
            assert!(problems.contains(problem), "{problem} in {problems}");
        }
        assert!(!problems.contains("is a name of the core"), "{problems}");

        let priced = EARLIER.replace("empty.md", "full.md");
        std::fs::write(directory.0.join(CONFIG_NAME), priced).unwrap();
        std::fs::write(directory.0.join("full.md"), "Write.").unwrap();
        let problems = load_for_check(path, &around).map(drop).unwrap_err().to_string();
        assert!(problems.contains("`voice` has no price"), "{problems}");
    }
}
