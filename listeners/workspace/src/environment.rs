//! The environment variables of a command. A command gets the variables that it needs, but no
//! secrets of the user who runs the listener.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names of variables that a command inherits from the listener's own environment. If `PATH` is not
/// set there, the command gets a default value. Any other variable that is not set is left out.
const PASSED: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Variables that every command gets. They tell programs that there is no terminal and no person to
/// ask.
const SET: [(&str, &str); 4] =
    [("TERM", "dumb"), ("NO_COLOR", "1"), ("PAGER", "cat"), ("GIT_TERMINAL_PROMPT", "0")];

/// Returns the environment of a command, except the variable `PWD`. `passed` lists the names of
/// further variables that the command inherits from the listener's own environment.
pub fn of(
    passed: &[String],
    shell: &Path,
    value: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    for name in PASSED.iter().copied().chain(passed.iter().map(String::as_str)) {
        all.extend(value(name).map(|value| (name.into(), value)));
    }

    if !all.iter().any(|(name, _)| name == "PATH") {
        all.push(("PATH".into(), PATH_DEFAULT.into()));
    }

    all.extend(SET.iter().map(|(name, value)| (OsStr::new(name).into(), OsStr::new(value).into())));
    all.push(("SHELL".into(), shell.into()));
    all
}
