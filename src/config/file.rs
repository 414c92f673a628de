//! Reads the files that make up a config.

use std::fmt;
use std::io::{Error, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use crate::{durable_file, limits};

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::keys::nearest;
use super::source_text::{ConfigSource, SourceRange};
use super::tree::{ExpandedText, Located};

/// Advice for a path that leads to no file.
pub(super) const PATH_RULE: &str = "paths are relative to the config's directory";

/// Reads the config's text.
pub(super) fn read(path: &Path, around: &ConfigEnvironment) -> Result<String, ConfigProblems> {
    read_with(path, around, "write a config with `organism init`")
}

/// Reads the config's text as [`read`] does. `instead` is advice on how to write a config file. The
/// error contains this advice if the file is empty, or if the file is missing and no other file has
/// a similar name.
pub(super) fn read_with(
    path: &Path,
    around: &ConfigEnvironment,
    instead: &str,
) -> Result<String, ConfigProblems> {
    let shown = path.display().to_string();
    let nothing = SourceRange::start(&ConfigSource::new(&shown, ""));
    let fail = |code, message: String, help: &str| {
        ConfigProblems::from(ConfigProblem::new(code, &nothing, message).help(help))
    };

    let full = around.directory.join(path);
    if full.is_dir() {
        let message = format!("`{shown}` is a directory");
        return Err(fail(ProblemCode::FileIsDirectory, message, "name the file in it"));
    }

    let bytes = bytes(&full).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let help = near_or(&full, || format!("check the path, or {instead}"));
            fail(ProblemCode::FileMissing, format!("there is no file `{shown}`"), &help)
        }
        ErrorKind::FileTooLarge => {
            let message = format!("`{shown}` cannot be read: {error}");
            let help = "split it: a workflow may have a file of its own";
            fail(ProblemCode::FileUnreadable, message, help)
        }
        ErrorKind::InvalidInput => {
            let message = format!("`{shown}` cannot be read: {error}");
            let help = "give the path of a file; `/dev/stdin` reads standard input";
            fail(ProblemCode::FileUnreadable, message, help)
        }
        _ => {
            let message = format!("`{shown}` cannot be read: {error}");
            fail(ProblemCode::FileUnreadable, message, "check its permissions")
        }
    })?;
    let text = String::from_utf8(bytes).map_err(|error| not_utf8(&shown, &error))?;
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let message = format!("`{shown}` is empty");
        return Err(fail(ProblemCode::FileEmpty, message, instead));
    }

    Ok(text)
}

/// Returns the base directory of the relative paths in a config.
pub(super) fn directory(path: &Path, around: &ConfigEnvironment) -> PathBuf {
    let full = around.directory.join(path);
    let parent = full.parent().map(Path::to_owned).unwrap_or_default();
    parent.canonicalize().unwrap_or(parent)
}

fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limits::CONFIG_BYTES_MAX;
    durable_file::open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("larger than {most} bytes");
        return Err(Error::new(ErrorKind::FileTooLarge, message));
    }

    Ok(bytes)
}

fn not_utf8(shown: &str, error: &std::string::FromUtf8Error) -> ConfigProblems {
    let bytes = error.as_bytes();
    let valid_up_to = error.utf8_error().valid_up_to();
    let is_utf16 = bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]);
    let text: String = bytes.utf8_chunks().next().map(|c| c.valid().to_owned()).unwrap_or_default();

    // The text before the invalid byte serves to find the place. None of it is shown.
    let source = ConfigSource::hidden(shown, text);
    let place = SourceRange::new(&source, valid_up_to..valid_up_to);
    let help = if is_utf16 {
        "this looks like UTF-16; save the file as UTF-8"
    } else {
        "save the file as UTF-8"
    };

    ConfigProblem::new(ProblemCode::FileNotUtf8, &place, format!("`{shown}` is not UTF-8"))
        .help(help)
        .into()
}

/// Returns the advice for a missing file: the question whether the author meant the file with the
/// most similar name in the same directory. If no name is similar enough, returns [`PATH_RULE`].
pub(super) fn near_or_rule(path: &Path) -> String {
    near_or(path, || PATH_RULE.to_owned())
}

fn near_or(path: &Path, otherwise: impl FnOnce() -> String) -> String {
    neighbour(path)
        .map_or_else(otherwise, |near| format!("did you mean `{near}` in the same directory?"))
}

/// Returns the name that is most similar to the name of the file `path`, among the files in the
/// same directory. Returns `None` if no name is similar enough.
fn neighbour(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(path.parent()?).ok()?.filter_map(Result::ok);
    let names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let near = nearest(name, names.iter().map(String::as_str))?;
    // An extension that both names have makes them longer, and would allow more differences.
    let is_similar = match (name.rsplit_once('.'), near.rsplit_once('.')) {
        (Some((stem, end)), Some((other, other_end))) if end == other_end => {
            nearest(stem, [other]).is_some()
        }
        _ => true,
    };
    is_similar.then(|| near.to_owned())
}

/// The reason why a file that the config names cannot be read.
#[derive(Debug)]
pub(super) struct UnreadableFile {
    reason: String,
    /// Advice on what to correct.
    pub help: String,
}

impl UnreadableFile {
    /// Makes the reason from an error that occurred when the file at `path` was read.
    pub fn new(path: &Path, error: &Error) -> Self {
        if path.is_dir() {
            let help = "name the file in it".to_owned();
            return Self { reason: "it is a directory".to_owned(), help };
        }

        let (reason, help) = match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                ("there is no such file".to_owned(), near_or_rule(path))
            }
            ErrorKind::PermissionDenied => {
                (error.to_string(), "check its permissions, and those of its directory".to_owned())
            }
            ErrorKind::InvalidData => {
                ("it is not UTF-8".to_owned(), "save the file as UTF-8".to_owned())
            }
            ErrorKind::FileTooLarge => (error.to_string(), "name a smaller file".to_owned()),
            _ => (error.to_string(), "name a regular file".to_owned()),
        };
        Self { reason, help }
    }
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Reads the file that `named` names. If the file cannot be read, returns `None` and reports a
/// problem with the code `code`. The message contains `noun` and the path of the file.
pub(super) fn named_text(
    named: &Located<ExpandedText>,
    directory: &Path,
    noun: &str,
    code: ProblemCode,
    problems: &mut ConfigProblems,
) -> Option<String> {
    let full = directory.join(&named.value.value);
    match text(&full) {
        Ok(text) => Some(text),
        Err(unreadable) => {
            let written = &named.value.written;
            let message = format!("the {noun} `{written}` cannot be read: {unreadable}");
            let problem = ConfigProblem::new(code, &named.place, message);
            problems.push(problem.help(unreadable.help));
            None
        }
    }
}

/// Reads a file that the config names. If the file cannot be read, `Err` contains the reason.
pub(super) fn text(path: &Path) -> Result<String, UnreadableFile> {
    let bytes = bytes(path).map_err(|error| UnreadableFile::new(path, &error))?;
    let not_text = |_| UnreadableFile::new(path, &ErrorKind::InvalidData.into());
    String::from_utf8(bytes).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_for_an_unreadable_file_fits_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("words.xsd");
        for (error, help) in [
            (ErrorKind::NotFound, PATH_RULE),
            (ErrorKind::PermissionDenied, "check its permissions, and those of its directory"),
            (ErrorKind::InvalidData, "save the file as UTF-8"),
        ] {
            assert_eq!(UnreadableFile::new(&path, &error.into()).help, help);
        }
        let unreadable = text(directory.path()).unwrap_err();
        assert_eq!(unreadable.to_string(), "it is a directory");
        assert_eq!(unreadable.help, "name the file in it");
    }

    #[test]
    fn a_named_pipe_in_place_of_a_file_is_a_problem_and_not_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("words.xsd");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let unreadable = text(&pipe).unwrap_err();
        assert_eq!(unreadable.to_string(), "it is not a regular file");
        assert_eq!(unreadable.help, "name a regular file");

        let around = ConfigEnvironment::of_process();
        let problems = read(&pipe, &around).unwrap_err().to_string();
        assert!(problems.contains("cannot be read: it is not a regular file"), "{problems}");
        let empty = read(Path::new("/dev/null"), &around).unwrap_err().to_string();
        assert!(empty.contains("`/dev/null` is empty"), "{empty}");
    }
}
