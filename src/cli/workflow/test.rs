//! `organism workflow test`: runs the test cases of case files, and shows the cases in which a run
//! differs from the expectations.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ArgGroup;
use serde_json::json;

use crate::config::{
    self, CaseFile, Config, ConfigEnvironment, ConfigProblem, ConfigProblems, WorkflowCase,
    check_cases,
};
use crate::organism::run_case;

use super::super::config_error_carets;
use super::super::exit::{CommandExit, CommandFailure};
use super::super::startup;
use super::super::stop_signals::watch_stop_signals;
use super::case_from_run;

/// Maximum number of lines that the output for a failed test case shows of each text. `--full`
/// shows all lines.
const SHOWN_LINES: usize = 12;
/// Maximum number of characters that the output for a failed test case shows of each line. `--full`
/// shows all characters.
const SHOWN_CHARS: usize = 400;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("cases").required(true).multiple(true))]
pub struct CaseArgs {
    /// Case files to run. With --from, the one file to which the new case is appended. If --from is
    /// given without a file, the case is printed.
    #[arg(group = "cases", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run nothing: write a case from the run in this thread.
    #[arg(long, value_name = "RUN", group = "cases", conflicts_with_all = ["only", "json"])]
    from: Option<String>,
    /// Config file to use instead of the config that a case file names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run only the cases whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write a JSON object for each case.
    #[arg(long)]
    json: bool,
    /// Show the whole texts of failed cases, as `--json` always does.
    #[arg(long, conflicts_with_all = ["from", "json"])]
    full: bool,
}

pub fn run(args: &CaseArgs) -> anyhow::Result<ExitCode> {
    if let Some(run) = &args.from {
        if args.files.len() > 1 {
            let message = "one case goes into one file; name one, or none";
            return Err(CommandFailure::usage(message).into());
        }
        let file = args.files.first().map(PathBuf::as_path);
        return case_from_run::write(run, file, args.config.clone());
    }

    let mut files = Vec::new();
    for path in &args.files {
        match load(path, args.config.as_deref()) {
            Ok(loaded) => files.push(loaded),
            Err(InvalidCases { problems, exit }) if args.json => {
                config_error_carets::report_json(&problems)?;
                return Ok(exit.into());
            }
            Err(InvalidCases { problems, exit }) => {
                config_error_carets::report(&problems);
                return Ok(exit.into());
            }
        }
    }

    let exit = startup::runtime()?.block_on(run_all(&files, args))?;
    Ok(exit.into())
}

fn stopped() -> anyhow::Error {
    let message = "stopped by a signal; the cases that had not ended are not judged";
    CommandFailure::new(CommandExit::WorkflowFailed, message).into()
}

/// Error for a case file whose cases cannot run, because the file or the config under test has
/// problems. Contains the exit code of the command.
struct InvalidCases {
    problems: ConfigProblems,
    exit: CommandExit,
}

fn load(path: &Path, config: Option<&Path>) -> Result<(CaseFile, Config), InvalidCases> {
    let of_cases = |problems| InvalidCases { problems, exit: CommandExit::InvalidData };
    let of_config = |problems| InvalidCases { problems, exit: CommandExit::Config };
    let mut around = ConfigEnvironment::of_process();
    let (file, mut problems) = config::read_cases(path, &around).map_err(of_cases)?;
    around.variables.extend(file.variables.iter().cloned());
    let config = config::locate(config.or(file.config.as_deref()), &around);
    // Nothing here calls a model, and only some programs of listeners run.
    let config = config.and_then(|path| config::load_for_host(&path, &around, false));
    let config = match config {
        Ok(config) => config,
        Err(_) if !problems.is_empty() => return Err(of_cases(problems)),
        Err(of_file) => return Err(of_config(of_file)),
    };

    problems.also(check_cases(&file.cases, &config));
    problems.sort();
    if problems.is_empty() { Ok((file, config)) } else { Err(of_cases(problems)) }
}

async fn run_all(files: &[(CaseFile, Config)], args: &CaseArgs) -> anyhow::Result<CommandExit> {
    let is_meant = |case: &&WorkflowCase| match &args.only {
        Some(text) => case.name.text.contains(text),
        None => true,
    };
    let mut stop = watch_stop_signals(CommandExit::WorkflowFailed)?;
    let mut counts = (0_usize, 0_usize);
    for (file, config) in files {
        for case in file.cases.iter().filter(is_meant) {
            let begun = Instant::now();
            let interrupted = async {
                stop.wait_for(|stops| *stops).await.ok();
            };
            let problems = run_case(config, case, interrupted).await?;
            let mut problems = problems.ok_or_else(stopped)?;
            problems.sort();
            show(case, problems.clone(), begun.elapsed(), args);
            if problems.is_empty() {
                counts.0 += 1;
            } else {
                counts.1 += 1;
            }
        }
    }

    let (passed, failed) = counts;
    if passed + failed == 0 {
        let message = "no case has such a name; leave out --only to run all";
        return Err(CommandFailure::usage(message).into());
    }
    if !args.json {
        put_line!("{passed} passed, {failed} failed");
    }
    Ok(if failed == 0 { CommandExit::Done } else { CommandExit::WorkflowFailed })
}

fn show(case: &WorkflowCase, problems: ConfigProblems, took: Duration, args: &CaseArgs) {
    let passed = problems.is_empty();
    if args.json {
        let problems: Vec<_> = problems.iter().collect();
        let line = json!({
            "case": case.name.text,
            "file": case.name.place.source.name(),
            "workflow": case.workflow.text,
            "passed": passed,
            "seconds": took.as_secs_f64(),
            "problems": problems,
        });
        return put_line!("{line}");
    }

    let mark = if passed { '✓' } else { '✗' };
    put_line!("{mark} {}  {:.1} s", case.name.text, took.as_secs_f64());
    let shown = |mut problem: ConfigProblem| {
        problem.help = problem.help.map(|help| if args.full { help } else { shortened(&help) });
        problem
    };
    if !passed {
        config_error_carets::note_problems(&problems.into_iter().map(shown).collect());
    }
}

/// Shortens a text to at most [`SHOWN_LINES`] lines of at most [`SHOWN_CHARS`] characters. Appends
/// the number of omitted characters.
fn shortened(text: &str) -> String {
    let cut = |line: &str| line.chars().take(SHOWN_CHARS).collect::<String>();
    let beginning: Vec<_> = text.lines().take(SHOWN_LINES).map(cut).collect();
    let beginning = beginning.join("\n");
    if beginning == text {
        return beginning;
    }

    let left = text.chars().count().saturating_sub(beginning.chars().count());
    format!("{beginning}\n… and {left} characters more; --full shows them")
}
