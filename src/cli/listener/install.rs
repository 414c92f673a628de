//! `organism listener install`: writes a listener that comes with organism to a directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::new_files::NewFiles;
use super::update;
use crate::config::{self, ConfigEnvironment, in_shell, nearest};
use crate::shipped::{self, ListenerManifest, ShippedListener};
use crate::xml::invisible_characters::visible;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the listener, as `organism listener list` shows it.
    name: String,
    /// Directory to write to. Default: listeners/NAME.
    directory: Option<PathBuf>,
    /// Show how the installed listener differs from the version in this program, and replace the
    /// installed listener if the user confirms this.
    #[arg(long)]
    update: bool,
    /// With `--update`: replace the installed listener without a question to the user.
    #[arg(long, requires = "update")]
    yes: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let listener = shipped::listener(&args.name).ok_or_else(|| unknown(&args.name))?;
    let directory = args.directory.clone();
    let directory = directory.unwrap_or_else(|| Path::new("listeners").join(listener.name));
    if args.update {
        return update::run(listener, &directory, args.yes);
    }

    install(listener, &directory)?;
    Ok(CommandExit::Done.into())
}

fn unknown(name: &str) -> CommandFailure {
    let names: Vec<_> = shipped::LISTENERS.iter().map(|listener| listener.name).collect();
    let near = nearest(name, names.iter().copied());
    let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let text =
        format!("no listener `{name}` comes with organism{hint} (there are {})", names.join(", "));
    CommandFailure::usage(text)
}

fn install(listener: &ShippedListener, directory: &Path) -> anyhow::Result<()> {
    let files = listener.written_files();
    let is_there = |path: &&str| directory.join(path).symlink_metadata().is_ok();
    let existing: Vec<_> = files.iter().map(|file| file.path.as_str()).filter(is_there).collect();
    if !existing.is_empty() {
        return Err(refusal(listener, directory, &existing).into());
    }
    let lines = config_lines(listener, directory)?;

    let mut written = NewFiles::in_directory(directory)?;
    for file in &files {
        written.write(&file.path, &file.text, file.is_executable)?;
    }
    written.keep();

    let listed: Vec<_> = files.iter().map(|file| format!("  {}", file.path)).collect();
    let name = listener.name;
    let version = shipped::VERSION;
    let shown = visible(&directory.display().to_string());
    note!("wrote {name} {version} to {shown}:\n{}", listed.join("\n"));
    if let Some(program) = listener.program {
        note_program(program);
    }
    if listener.config.is_empty() {
        note!(
            "\na program that does not lie beside the kit finds it with this line in its section \
             of a config in this directory:\n"
        );
    } else {
        note!("\nfor a config in this directory:\n");
    }
    put_line!("{}", lines.trim_end());
    Ok(())
}

/// Makes the error for a directory that already has files of the listener. If these files are an
/// installed version of the listener, the error advises an update. Otherwise, the error advises
/// another directory.
fn refusal(listener: &ShippedListener, directory: &Path, existing: &[&str]) -> CommandFailure {
    let name = listener.name;
    let manifest = update::read(&directory.join(shipped::MANIFEST)).ok().flatten();
    let parsed = manifest.map(|text| ListenerManifest::parse(&String::from_utf8_lossy(&text)));
    let is_installed = matches!(parsed, Some(Ok(manifest)) if manifest.name == name);
    let next = if is_installed {
        let word = in_shell(&directory.display().to_string());
        format!("`organism listener install {name} {word} --update` shows what differs")
    } else {
        format!("choose another directory: `organism listener install {name} DIR`")
    };

    let shown = visible(&directory.display().to_string());
    let text = format!("{shown} already has {}; nothing was written. {next}", existing.join(", "));
    CommandFailure::usage(text)
}

/// Prints whether an organism with a config in the current directory would find `program`, which
/// the listener needs besides its own files.
fn note_program(program: &str) {
    let around = ConfigEnvironment::of_process();
    if config::is_program_installed(program, Path::new("."), &around) {
        note!("\nits program `{program}` is installed");
    } else {
        note!(
            "\nits program `{program}` is neither beside the organism executable nor on PATH: \
             `make install` in organism's source installs it"
        );
    }
}

/// Line of a config for a listener in Python that uses the kit, the library for writing listeners.
/// `DIR` stands for the kit's directory. Python resolves a relative directory against the directory
/// of the config.
const KIT_LINE: &str = "env = { PYTHONPATH = \"DIR\" }\n";

/// Returns the config lines for the listener. If the listener is the kit, returns the lines for a
/// listener that uses the kit. The lines contain `directory` as a TOML string. Each `${` in the
/// directory is escaped, because the config would read it as a reference to a variable.
fn config_lines(listener: &ShippedListener, directory: &Path) -> anyhow::Result<String> {
    let lines = if listener.config.is_empty() { KIT_LINE } else { listener.config };
    if !lines.contains("DIR") {
        return Ok(lines.to_owned());
    }

    let shown = visible(&directory.display().to_string());
    let Some(text) = directory.to_str() else {
        let text = format!("a config cannot name {shown}, as it is no UTF-8; nothing was written");
        return Err(CommandFailure::usage(text).into());
    };
    if text.chars().any(char::is_control) || text.contains("$${") {
        let text = format!(
            "a config cannot name {shown}: choose a directory without control characters and \
             without `$${{`; nothing was written"
        );
        return Err(CommandFailure::usage(text).into());
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "$${");
    Ok(lines.replace("DIR", &escaped))
}
