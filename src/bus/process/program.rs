//! Where a listener's program is.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// No such program in any of the places where one is looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no program `{program}`: {looked}; check the first word of `command`")]
pub struct NotFound {
    pub program: String,
    pub looked: String,
}

/// Finds a program. One written with a slash is taken from the working directory, then from
/// `config_dir`; a bare name is looked for beside the running executable, then in `config_dir`,
/// then along `PATH`.
pub fn find(program: &str, config_dir: Option<&Path>) -> Result<PathBuf, NotFound> {
    let mut directories: Vec<PathBuf> = Vec::new();
    let config_dir = config_dir.map(Path::to_owned);
    if program.contains('/') {
        directories.push(PathBuf::new());
        directories.extend(config_dir);
    } else if !program.is_empty() {
        let beside = std::env::current_exe().ok();
        directories.extend(beside.and_then(|exe| exe.parent().map(Path::to_owned)));
        directories.extend(config_dir);
        let path = std::env::var_os("PATH").unwrap_or_default();
        directories.extend(std::env::split_paths(&path));
    }
    let mut denied = None;
    for candidate in directories.iter().map(|directory| directory.join(program)) {
        match std::fs::metadata(&candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(std::path::absolute(&candidate).unwrap_or(candidate));
            }
            Ok(_) => denied = denied.or(Some(candidate)),
            Err(_) => {}
        }
    }
    let looked = match denied {
        Some(path) => format!("{} is not an executable file", path.display()),
        None if program.contains('/') => "there is no such file".to_owned(),
        None => "not beside organism, not beside the config, not on PATH".to_owned(),
    };
    Err(NotFound { program: program.to_owned(), looked })
}
