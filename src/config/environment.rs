//! The variables and directories on which a config depends, as one structure.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::source_text::{ConfigSource, SourceRange};

/// The environment in which a config is read. Tests construct an environment of their own.
#[derive(Debug, Clone, Default)]
pub struct ConfigEnvironment {
    pub variables: BTreeMap<String, String>,
    /// The current directory.
    pub directory: PathBuf,
    /// Absolute path of this user's home directory; `None` if it is unknown.
    pub home: Option<PathBuf>,
    /// Directory of the running executable; `None` if it is unknown.
    pub program_directory: Option<PathBuf>,
}

impl ConfigEnvironment {
    /// Reads the environment of this process. Leaves out variables that are not UTF-8.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };

        let program = std::env::current_exe().ok();
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            directory: current_directory(),
            // Without HOME, the home directory comes from the user database.
            home: std::env::home_dir().filter(|home| home.is_absolute()),
            program_directory: program.and_then(|p| p.parent().map(Path::to_owned)),
        }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns a base directory of this user, as the XDG base directory specification defines it:
    /// the directory that the environment variable `variable` names. If the variable is unset or
    /// contains a relative path, returns `beneath_home` in the home directory. Returns `None` if
    /// the home directory is needed and unknown. The current directory is no substitute, because a
    /// project would then have another journal in each directory.
    fn xdg(&self, variable: &str, beneath_home: &str) -> Option<PathBuf> {
        let given = self.variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        given.or_else(|| Some(self.home.as_ref()?.join(beneath_home)))
    }

    /// Returns the default path of this user's operator key. Returns `None` if this path is in the
    /// home directory, and the home directory is unknown.
    pub fn operator_key(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_CONFIG_HOME", ".config")?.join("organism").join("operator.key"))
    }

    /// Returns the default parent directory of organisms' journals. Returns `None` if this
    /// directory is in the home directory, and the home directory is unknown.
    pub fn data_parent(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_DATA_HOME", ".local/share")?.join("organism"))
    }

    /// Returns the default parent directory of organisms' keys and checkpoints. Returns `None` if
    /// this directory is in the home directory, and the home directory is unknown.
    pub fn state_parent(&self) -> Option<PathBuf> {
        Some(self.xdg("XDG_STATE_HOME", ".local/state")?.join("organism"))
    }
}

/// Returns the path of the current directory. If the variable `PWD` names the current directory,
/// returns the value of `PWD`, which may contain symbolic links. Otherwise, returns the physical
/// path.
fn current_directory() -> PathBuf {
    let physical = std::env::current_dir().unwrap_or_default();
    let named = std::env::var_os("PWD").map(PathBuf::from);
    let is_plain = |path: &PathBuf| {
        let plain = |c| !matches!(c, Component::CurDir | Component::ParentDir);
        path.is_absolute() && path.components().all(plain)
    };

    named.filter(is_plain).filter(|named| is_same(named, &physical)).unwrap_or(physical)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Finds the config file. Tries, in this order: the file `given`, the file that `ORGANISM_CONFIG`
/// names, `./organism.toml`, and the only file that matches `./config/*.toml`.
pub fn locate(given: Option<&Path>, around: &ConfigEnvironment) -> Result<PathBuf, ConfigProblems> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }

    if let Some(path) = around.variable("ORGANISM_CONFIG").filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }

    if around.directory.join("organism.toml").is_file() {
        return Ok("organism.toml".into());
    }

    let found = tomls(&around.directory.join("config"));

    match found.as_slice() {
        [only] => Ok(Path::new("config").join(only)),
        [] => Err(nothing(
            "organism.toml",
            "there is no config: neither `./organism.toml` nor one file `./config/*.toml`",
            "name one with `--config FILE` or ORGANISM_CONFIG, or write one with `organism init`",
        )),
        several => Err(nothing(
            "config",
            &format!("which config? there are several: {}", several.join(", ")),
            "name one with `--config FILE` or ORGANISM_CONFIG",
        )),
    }
}

fn nothing(name: &str, message: &str, help: &str) -> ConfigProblems {
    let place = SourceRange::start(&ConfigSource::new(name, ""));
    ConfigProblem::new(ProblemCode::FileMissing, &place, message).help(help).into()
}

fn tomls(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<_> = names.filter(|name| name.ends_with(".toml")).collect();
    found.sort();
    found
}
