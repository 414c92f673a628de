//! The limit on the number of file descriptors that this process may have open. A command that
//! may start an organism raises its own soft limit to the hard limit, because each process of a
//! listener takes descriptors.
//!
//! The programs that a command starts get the soft limit that the command had before. A program
//! that waits with `select` fails with descriptors above 1,023, and other programs close every
//! descriptor up to the limit at their start.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Environment variable with the soft limit of a program that is started. [`restore`] reads it.
pub const VARIABLE: &str = "ORGANISM_SOFT_FILE_LIMIT";

/// Highest soft limit that macOS accepts, even if its hard limit is higher.
const OPEN_MAX: u64 = 10_240;

/// Soft limit before [`raise`] has raised it; not set if it was not raised.
static ORIGINAL: OnceLock<u64> = OnceLock::new();

/// Returns the soft limit of this process; `None` if there is no limit.
pub fn current() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the soft limit that this process had before [`raise`] raised it; `None` if it was not
/// raised.
pub fn original() -> Option<u64> {
    ORIGINAL.get().copied()
}

/// Raises the soft limit of this process to the hard limit. If the operating system refuses this,
/// the limit remains as it is.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(soft) = current else { return };
    let highest = if cfg!(target_os = "macos") {
        Some(maximum.unwrap_or(OPEN_MAX).min(OPEN_MAX))
    } else {
        maximum
    };
    if highest.is_some_and(|highest| highest <= soft) {
        return;
    }

    // Ordering rule: set before the limit is raised, so that a program that another thread starts
    // at this moment gets the original limit.
    ORIGINAL.get_or_init(|| soft);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: highest, maximum }) {
        tracing::debug!("the limit of open files remains {soft}: {error}");
    }
}

/// Sets the soft limit of this process to the value of [`VARIABLE`], if the variable has one. Call
/// this function in a process that is about to become another program.
pub fn restore() {
    let text = std::env::var(VARIABLE).ok();
    let Some(soft) = text.and_then(|text| text.parse::<u64>().ok()) else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(soft, |maximum| maximum.min(soft)));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
        tracing::debug!("the limit of open files cannot be set to {soft}: {error}");
    }
}
