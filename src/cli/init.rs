//! `organism init`: writes a project that runs at once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::config::{self, ConfigEnvironment, ProjectFolders};
use crate::ids::ListenerName;
use crate::limits;
use crate::organism::project;
use crate::shipped::{self, ShippedFile, WrittenFile};

use super::exit::CommandFailure;
use super::new_files::NewFiles;
use super::{CommandExit, config_error_carets};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write an agent with one tool.
    #[arg(long, group = "project")]
    agent: bool,
    /// Write a workflow of a planner, a coder and a reviewer, with questions and approvals.
    #[arg(long, group = "project")]
    crew: bool,
    /// Write one of the workflows that come with organism; `list` lists them.
    #[arg(long, group = "project", value_name = "NAME")]
    workflow: Option<String>,
    /// Directory to write to. It is created if it is missing.
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// A project that `organism init` can write.
struct Project {
    files: Vec<WrittenFile>,
    /// Empty directory to create in the project; `None` if the project has no such directory.
    empty: Option<&'static str>,
    /// Commands that the user is advised to run next, in order.
    next: Vec<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.workflow.as_deref() == Some(LIST) {
        if args.directory != Path::new(".") {
            let directory = config::in_shell(&args.directory.display().to_string());
            let text = format!(
                "`list` writes nothing to a directory; to write a workflow: organism init \
                 --workflow NAME {directory}"
            );
            return Err(CommandFailure::usage(text).into());
        }
        for workflow in shipped::WORKFLOWS {
            put_line!("{:12} {}", workflow.name, workflow.description);
        }
        return Ok(CommandExit::Done.into());
    }

    let project = project_of(&args)?;
    let directory = &args.directory;
    refuse_existing(directory, &project)?;

    let directory_name = directory_name(directory);
    let name = directory_name.as_deref().and_then(organism_name);
    let mut written = NewFiles::in_directory(directory)?;
    let mut final_name = String::new();
    for file in &project.files {
        let mut text = file.text.clone();
        if file.path == CONFIG {
            text = with_name(&text, &name);
            final_name = name_in(&text).unwrap_or_default().to_owned();
        }
        written.write(&file.path, &text, file.is_executable)?;
    }
    if let Some(empty) = project.empty {
        written.create_directory(empty)?;
    }
    written.keep();

    show_written(directory, &project);
    if directory_name.is_none_or(|directory_name| directory_name != final_name) {
        note!(
            "\nthe name of the organism is {final_name}: a name is a lowercase letter, then up to 63 \
             lowercase letters, digits or hyphens; to choose another, change it in {CONFIG} before \
             the first run"
        );
    }
    show_next(directory, &project);
    Ok(CommandExit::Done.into())
}

/// File name of the config in each project.
const CONFIG: &str = "organism.toml";

/// Directory for copies of checkpoints, in the project that `init` writes without options.
const CHECKPOINTS: &str = "checkpoints";

/// Value of `--workflow` with which the command lists the workflows and writes none.
const LIST: &str = "list";

fn project_of(args: &Args) -> anyhow::Result<Project> {
    let run_crew = "organism workflow run crew \
                    --input task=\"A greeting without a name has a comma. Remove it.\"";
    let project_with = |files: &[ShippedFile], empty, next: &str| Project {
        files: files.iter().map(WrittenFile::from).collect(),
        empty,
        next: vec![next.to_owned()],
    };

    if let Some(name) = &args.workflow {
        let workflow = shipped::workflow(name).ok_or_else(|| unknown_workflow(name))?;
        let commands = workflow.commands();
        let next = if commands.is_empty() { vec![run_crew.to_owned()] } else { commands };
        return Ok(Project { files: workflow.written_files(), empty: None, next });
    }

    Ok(if args.agent {
        project_with(shipped::AGENT, None, "organism send question.xml")
    } else if args.crew {
        project_with(shipped::CREW, None, run_crew)
    } else {
        project_with(shipped::GREETER, Some(CHECKPOINTS), "organism send hello.xml")
    })
}

fn unknown_workflow(name: &str) -> CommandFailure {
    let names: Vec<_> = shipped::WORKFLOWS.iter().map(|workflow| workflow.name).collect();
    let near = config::nearest(name, names.iter().copied().chain([LIST]));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let text = format!(
        "no workflow `{name}` comes with organism{hint} (there are {}; `--workflow {LIST}` describes \
         them)",
        names.join(", ")
    );
    CommandFailure::usage(text)
}

/// Refuses a directory that contains a file of the project, so that nothing is overwritten.
fn refuse_existing(directory: &Path, project: &Project) -> anyhow::Result<()> {
    let paths = project.files.iter().map(|file| file.path.as_str()).chain(project.empty);
    // A symbolic link counts as an existing file even if its target is missing.
    let is_there = |path: &&str| directory.join(path).symlink_metadata().is_ok();
    let names: Vec<_> = paths.filter(is_there).collect();
    if names.is_empty() {
        return Ok(());
    }

    let message = format!(
        "{} already has {}; nothing was written, choose an empty directory: \
         organism init some-directory",
        directory.display(),
        names.join(", "),
    );
    Err(CommandFailure::usage(message).into())
}

/// Prints the names of the written files.
fn show_written(directory: &Path, project: &Project) {
    let files = project.files.iter().map(|file| format!("  {}", file.path));
    let empty = project.empty.iter().map(|empty| format!("  {empty}/"));
    let listed: Vec<_> = files.chain(empty).collect();
    note!("wrote to {}:\n{}", directory.display(), listed.join("\n"));
}

/// Prints what keeps the project from running, and the commands that the user can run next.
fn show_next(directory: &Path, project: &Project) {
    // A program may be missing on this machine, or a variable may be set that changes the config.
    let config = directory.join(CONFIG);
    if let Err(problems) = config::load_without_keys(&config, &ConfigEnvironment::of_process()) {
        note!("\nto be done before the first run:");
        config_error_carets::note_problems(&problems);
    }

    let mut commands = Vec::new();
    if directory != Path::new(".") {
        let mut name = directory.display().to_string();
        if name.starts_with('-') {
            name.insert_str(0, "./");
        }
        commands.push(format!("cd {}", config::in_shell(&name)));
    }
    commands.push("organism check".to_owned());
    if has_namesake(directory) {
        let begin = "organism adopt --new    (another project of this name has a journal)";
        commands.push(begin.to_owned());
    }
    commands.extend(project.next.iter().cloned());
    note!("\nnext:\n  {}", commands.join("\n  "));
}

/// Whether the first start of this project needs the option `--new`: the project has no journal
/// yet, but another project with the same name has one.
fn has_namesake(directory: &Path) -> bool {
    let file = directory.join(CONFIG);
    let found = config::directories(&file, &ConfigEnvironment::of_process());
    found.is_ok_and(|ProjectFolders { project, data, .. }| {
        !data.exists() && project::earlier(&project, &data).is_ok_and(|found| !found.is_empty())
    })
}

/// Returns the last component of the directory's path; `None` for the root directory.
fn directory_name(directory: &Path) -> Option<String> {
    let full = std::path::absolute(directory).ok()?;
    // The last part of `.` or `..` is no name.
    let full = full.canonicalize().unwrap_or(full);
    Some(full.file_name()?.to_string_lossy().into_owned())
}

/// Derives the name of the organism from the directory's name. If that is no valid name, keeps its
/// ASCII letters and digits, with hyphens in place of the rest. Returns `None` if nothing is left.
fn organism_name(directory: &str) -> Option<ListenerName> {
    if let Ok(name) = ListenerName::parse(directory) {
        return Some(name);
    }

    let lowercase = directory.to_ascii_lowercase();
    let parts = lowercase.split(|c: char| !c.is_ascii_alphanumeric());
    let mut name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "project-");
    }
    name.truncate(limits::NAME_BYTES_MAX);
    ListenerName::parse(name.trim_end_matches('-')).ok()
}

/// Returns the name of the organism in the config of a project.
fn name_in(config: &str) -> Option<&str> {
    let mut keys = config.lines().filter_map(|line| line.split_once(" = "));
    let (_, value) = keys.find(|(key, _)| matches!(*key, "organism.name" | "name"))?;
    Some(value.trim_matches('"'))
}

/// Returns the config with its organism renamed to `name`.
fn with_name(config: &str, name: &Option<ListenerName>) -> String {
    let Some(name) = name else { return config.to_owned() };
    let mut out = String::new();
    let mut is_named = false;
    for line in config.lines() {
        let key = line.split_once(" = ").map(|(key, _)| key);
        match key {
            Some(key @ ("organism.name" | "name")) if !is_named => {
                out.push_str(&format!("{key} = \"{name}\""));
                is_named = true;
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_with_an_ascii_character_gives_a_name() {
        let long = "A".repeat(limits::NAME_BYTES_MAX + 1);
        let cut = "a".repeat(limits::NAME_BYTES_MAX);
        let cut_at_hyphen = format!("{}_b", "a".repeat(limits::NAME_BYTES_MAX - 1));
        let without_hyphen = "a".repeat(limits::NAME_BYTES_MAX - 1);
        for (directory, expected) in [
            ("hello", Some("hello")),
            ("a--b-", Some("a--b-")),
            ("My-Shop", Some("my-shop")),
            ("Blog", Some("blog")),
            ("my dir_2", Some("my-dir-2")),
            (".hidden", Some("hidden")),
            ("1st", Some("project-1st")),
            ("\u{fc}n\u{ef}", Some("n")),
            (&long, Some(&cut)),
            (&cut_at_hyphen, Some(&without_hyphen)),
            ("\u{8336}", None),
            ("_", None),
        ] {
            let name = organism_name(directory);
            assert_eq!(name.as_ref().map(ListenerName::as_str), expected, "{directory}");
        }
    }

    #[test]
    fn the_config_of_each_project_states_its_name() {
        for files in [shipped::GREETER, shipped::AGENT, shipped::CREW] {
            let config = files.iter().map(WrittenFile::from).find(|file| file.path == CONFIG);
            let config = config.unwrap().text;
            assert!(name_in(&config).is_some_and(|name| ListenerName::parse(name).is_ok()));
            let name = organism_name("other");
            assert_eq!(name_in(&with_name(&config, &name)), Some("other"));
        }
    }
}
