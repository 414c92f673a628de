//! Checks the directories that a config states for its journal and for the files outside the
//! journal.

use std::path::Path;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::project::path_of;
use super::tree::{ExpandedText, Located};

/// The directory `data` or `state`, with the path as written and the path as resolved.
pub(super) struct NamedDirectory<'a> {
    pub key: &'static str,
    /// The path as the config states it; `None` if the default applies.
    pub written: Option<&'a Located<ExpandedText>>,
    pub path: &'a Path,
}

pub(super) fn check(
    data: &NamedDirectory<'_>,
    state: &NamedDirectory<'_>,
    problems: &mut ConfigProblems,
) {
    for directory in [data, state] {
        check_is_directory(directory, problems);
    }

    let place = state.written.or(data.written).map(|written| &written.place);
    let (Some(place), true) = (place, is_same(data.path, state.path)) else { return };
    let help = "name another directory as `state`: what is kept there proves the journal, and must \
                not be lost or replaced with it";
    let message = "`data` and `state` are one directory";
    problems.push(ConfigProblem::new(ProblemCode::DirectoryShared, place, message).help(help));
}

/// Checks that a path names a directory. The directory may be missing if the first start can create
/// it.
fn check_is_directory(directory: &NamedDirectory<'_>, problems: &mut ConfigProblems) {
    let Some(written) = directory.written else { return };
    let Some(there) = directory.path.ancestors().find(|path| path.exists()) else { return };
    if there.is_dir() {
        return;
    }

    let key = directory.key;
    let named = &written.value.written;
    let message = if there == directory.path {
        format!("`{named}` is a file")
    } else {
        format!("`{named}` lies beneath a file")
    };

    let help =
        format!("name a directory as `{key}`; one that is missing is made at the first start");
    problems
        .push(ConfigProblem::new(ProblemCode::DirectoryIsFile, &written.place, message).help(help));
}

fn is_same(one: &Path, other: &Path) -> bool {
    let normal = |path: &Path| path_of(path, Path::new("/"));
    let resolved = |path: &Path| path.canonicalize().ok();
    normal(one) == normal(other)
        || resolved(one).is_some_and(|one| resolved(other).is_some_and(|other| one == other))
}
