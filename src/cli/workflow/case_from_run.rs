//! `organism workflow test --from`: writes a test case from a recorded run.

use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use crate::config::{self, ConfigEnvironment, ConfigProblem, ProblemCode};
use crate::organism::{self, CaseWriteError, write_case};
use crate::thread::Record;

use super::super::config_error_carets;
use super::super::exit::{CommandExit, CommandFailure};
use super::super::journal_target::{self, JournalTarget, known};
use super::super::output::put;
use super::super::startup::ConfigArg;

/// Writes a test case for the run in thread `run`. Appends the case to `file`, or prints it if
/// `file` is `None`. `given` is the config file that the command line names.
pub fn write(run: &str, file: Option<&Path>, given: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let thread = known(run)?;
    let given = given.or_else(|| config_of(file?));
    let config = ConfigArg { config: given.clone() }.load_to_read()?;
    let place = JournalTarget { config: given, data: None, state: None };
    journal_target::require_thread(&place, &thread)?;
    let mut records: Vec<Record> = Vec::new();
    for reader in journal_target::readers_of(&place, &thread)? {
        let tree = reader.tree(&thread.root(), None);
        let tree = tree.map_err(|error| journal_target::failed_in(&reader, error))?;
        records.extend(tree.into_iter().map(|sealed| sealed.record));
    }

    let case = write_case(&config, &thread, &records).map_err(|error| match error {
        CaseWriteError::Organism(error) => anyhow::Error::from(error),
        reason => {
            let message = format!("no case is written from {thread}: {reason}");
            CommandFailure::usage(message).into()
        }
    })?;
    let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
    let shown = relative(base, &config.file)?;
    let head = format!("config = {}\n\n", toml::Value::String(shown.display().to_string()));
    let Some(file) = file else {
        put(&format!("{head}{case}"))?;
        return Ok(CommandExit::Done.into());
    };

    let is_new = is_new(file);
    if !is_new {
        let read = config::read_cases(file, &ConfigEnvironment::of_process());
        let (tested, known, problems) = match read {
            Ok((file, problems)) => (Some(file.config), file.cases, problems),
            Err(problems) => (None, Vec::new(), problems),
        };
        let is_known = |name: &str| case.contains(&format!("\nname = \"{name}\"\n"));
        if known.iter().any(|written| is_known(&written.name.text)) {
            let message = format!("{} has a case of this run already", file.display());
            return Err(CommandFailure::usage(message).into());
        }
        // A file without a case may have a config and variables already. It needs no other key.
        let lacks_cases =
            |problem: &ConfigProblem| known.is_empty() && problem.code == ProblemCode::MissingKey;
        if !problems.iter().all(lacks_cases) {
            config_error_carets::report(&problems);
            return Ok(CommandExit::InvalidData.into());
        }
        if let Some(tested) = tested {
            refuse_other_config(file, tested.as_deref(), &config.file)?;
        }
        refuse_invalid_whole(file, &case)?;
    }
    append(file, if is_new { &head } else { "\n" }, &case)?;
    note!("{} has the case; `organism workflow test {}` runs it", file.display(), file.display());
    Ok(CommandExit::Done.into())
}

/// Returns the path of the config that a case file names. Returns `None` if the case file names no
/// config, or if the case file is invalid. The problems of an invalid file are reported later.
fn config_of(file: &Path) -> Option<PathBuf> {
    let (cases, _) = config::read_cases(file, &ConfigEnvironment::of_process()).ok()?;
    cases.config
}

/// Fails if the case file tests another config than `ours`, the config of the recorded run.
fn refuse_other_config(file: &Path, tested: Option<&Path>, ours: &Path) -> anyhow::Result<()> {
    let located = config::locate(tested, &ConfigEnvironment::of_process()).ok();
    let canonical = |path: &Path| std::fs::canonicalize(path).ok();
    let tested = located.as_deref().and_then(canonical);
    if tested.is_some() && tested == canonical(ours) {
        return Ok(());
    }

    let shown = located.unwrap_or_default();
    let message = format!(
        "{} tests {}, and the run is one of {}; write its case to another file",
        file.display(),
        shown.display(),
        ours.display()
    );
    Err(CommandFailure::usage(message).into())
}

/// Fails if the case file would be invalid TOML with `case` appended to it. For example, a file
/// with an empty `case = []` permits no `[[case]]` at its end.
fn refuse_invalid_whole(file: &Path, case: &str) -> anyhow::Result<()> {
    let earlier = std::fs::read_to_string(file).unwrap_or_default();
    let Err(error) = toml::from_str::<toml::Table>(&format!("{earlier}\n{case}")) else {
        return Ok(());
    };

    let reason = error.message();
    let file = file.display();
    let message = format!(
        "a `[[case]]` at the end of {file} would make the file invalid ({reason}); \
         remove an empty `case = []` from it, or write the case to another file"
    );
    Err(CommandFailure::usage(message).into())
}

/// Whether the case file is missing, or has nothing but white space.
fn is_new(file: &Path) -> bool {
    !file.exists() || std::fs::read_to_string(file).is_ok_and(|text| text.trim().is_empty())
}

/// Appends `begin` and then the case to the file.
fn append(file: &Path, begin: &str, case: &str) -> anyhow::Result<()> {
    let failed = |error: std::io::Error| organism::Error::Io {
        context: format!("writing {}", file.display()),
        source: error,
    };
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.create(true).append(true).open(file).map_err(failed)?;
    // A single write, so that another writer cannot split the case.
    opened.write_all(format!("{begin}{case}").as_bytes()).map_err(failed)?;
    opened.sync_all().map_err(failed)?;
    Ok(())
}

/// Returns the path of `file`, relative to the directory `base`.
fn relative(base: &Path, file: &Path) -> anyhow::Result<PathBuf> {
    let base = std::path::absolute(base.join("."))?;
    let file = std::path::absolute(file)?;
    let parts = |path: &Path| -> Vec<String> {
        let parts = path.components().filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let from = parts(&base);
    let to = parts(&file);
    let shared = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = std::iter::repeat_n("..", from.len() - shared);
    Ok(up.chain(to.iter().skip(shared).map(String::as_str)).collect())
}
