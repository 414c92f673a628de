//! `organism listener install`: writes a listener that comes with organism to a directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::super::exit::{CommandExit, CommandFailure};
use super::super::new_files::NewFiles;
use super::update;
use crate::config::nearest;
use crate::shipped::{self, ShippedListener};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the listener, as `organism listener list` shows it.
    name: String,
    /// Directory to write to. Default: listeners/NAME.
    directory: Option<PathBuf>,
    /// Show how the listener in the directory differs from that of this program, and replace it
    /// after a yes.
    #[arg(long)]
    update: bool,
    /// With `--update`: replace without a question.
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
    let hint = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
    let text =
        format!("no listener `{name}` comes with organism{hint}; there are {}", names.join(", "));
    CommandFailure::new(CommandExit::Usage, text)
}

fn install(listener: &ShippedListener, directory: &Path) -> anyhow::Result<()> {
    let files = listener.written_files();
    let is_there = |path: &&str| directory.join(path).symlink_metadata().is_ok();
    let there: Vec<_> = files.iter().map(|file| file.path.as_str()).filter(is_there).collect();
    if !there.is_empty() {
        let shown = directory.display();
        let text = format!(
            "{shown} already has {}; nothing was written. `organism listener install {} {shown} \
             --update` shows what differs",
            there.join(", "),
            listener.name,
        );
        return Err(CommandFailure::new(CommandExit::Usage, text).into());
    }

    let mut written = NewFiles::in_directory(directory)?;
    for file in &files {
        written.write(&file.path, &file.text, file.is_executable)?;
    }
    written.keep();

    let listed: Vec<_> = files.iter().map(|file| format!("  {}", file.path)).collect();
    let name = listener.name;
    let version = shipped::VERSION;
    note!("wrote {name} {version} to {}:\n{}", directory.display(), listed.join("\n"));
    if let Some(program) = listener.program {
        note!("\nits program `{program}` is installed together with organism");
    }
    if !listener.config.is_empty() {
        note!("\nfor a config in this directory:\n");
        put_line!(
            "{}",
            listener.config.replace("DIR", &directory.display().to_string()).trim_end()
        );
    }
    Ok(())
}
