//! Locates the program of a listener.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The program was not found in any searched directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no program `{program}`: {looked}; check the first word of `command`")]
pub struct ProgramNotFound {
    pub program: String,
    pub looked: String,
}

/// Returns the path of a program. A name with a slash is used unchanged. A name without a slash is
/// searched beside the running executable, then along `PATH`. The programs of a config are located
/// by `config::program`, which searches more directories.
pub fn find(program: &str) -> Result<PathBuf, ProgramNotFound> {
    let mut denied = None;
    for candidate in candidates(program) {
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
        None if program.contains('/') => "no such file".to_owned(),
        None => "found neither beside `organism` nor on PATH".to_owned(),
    };

    Err(ProgramNotFound { program: program.to_owned(), looked })
}

fn candidates(program: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![PathBuf::from(program)];
    }

    if program.is_empty() {
        return Vec::new();
    }

    let exe = std::env::current_exe().ok();
    let beside = exe.and_then(|exe| exe.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside.into_iter().chain(std::env::split_paths(&path)).map(|d| d.join(program)).collect()
}
