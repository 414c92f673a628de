//! `organism init`: writes a small organism that passes `organism check` and responds to a payload.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use crate::config::{self, ConfigEnvironment, ProjectFolders};
use crate::ids::ListenerName;
use crate::organism::project;

use super::CommandExit;
use super::exit::CommandFailure;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to write to. It is created if it is missing.
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// One file of the new organism.
struct SeedFile {
    path: &'static str,
    text: &'static str,
    mode: u32,
}

const SEEDS: [SeedFile; 5] = [
    SeedFile { path: "organism.toml", text: include_str!("init/organism.toml"), mode: 0o644 },
    SeedFile { path: "greeter.py", text: include_str!("init/greeter.py"), mode: 0o755 },
    SeedFile { path: "schema/greeter.xsd", text: include_str!("init/greeter.xsd"), mode: 0o644 },
    SeedFile { path: "hello.xml", text: include_str!("init/hello.xml"), mode: 0o644 },
    SeedFile { path: "README.md", text: include_str!("init/README.md"), mode: 0o644 },
];

/// Directory for checkpoint copies of the new organism.
const CHECKPOINTS: &str = "checkpoints";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let paths = SEEDS.iter().map(|seed| seed.path).chain([CHECKPOINTS]);
    let names: Vec<_> = paths.filter(|path| directory.join(path).exists()).collect();
    if !names.is_empty() {
        let message = format!(
            "{} already has {}; nothing was written, choose an empty directory: \
             organism init some-directory",
            directory.display(),
            names.join(", "),
        );
        return Err(CommandFailure::new(CommandExit::Usage, message).into());
    }

    let name = organism_name(directory);
    for seed in &SEEDS {
        write(&directory.join(seed.path), &seed.text.replace("NAME", &name), seed.mode)?;
    }

    let checkpoints = directory.join(CHECKPOINTS);
    std::fs::create_dir(&checkpoints)
        .with_context(|| format!("cannot make {}", checkpoints.display()))?;
    let listed: Vec<_> = SEEDS.iter().map(|seed| format!("  {}", seed.path)).collect();
    note!("wrote to {}:\n{}", directory.display(), listed.join("\n"));
    let go = if directory == Path::new(".") {
        String::new()
    } else {
        format!("  cd {}\n", directory.display())
    };

    let begin = if has_namesake(directory) {
        "  organism adopt --new    (another project of this name has a journal)\n"
    } else {
        ""
    };

    note!("\nnext:\n{go}  organism check\n{begin}  organism send hello.xml");
    Ok(CommandExit::Done.into())
}

/// Whether another project with this name has a journal, so that a start here needs the option for
/// a new journal.
fn has_namesake(directory: &Path) -> bool {
    let file = directory.join("organism.toml");
    let found = config::directories(&file, &ConfigEnvironment::of_process());
    found.is_ok_and(|ProjectFolders { project, data, .. }| {
        !data.exists() && project::earlier(&project, &data).is_ok_and(|found| !found.is_empty())
    })
}

/// Name of the organism, derived from the directory's name if that gives a valid token.
fn organism_name(directory: &Path) -> String {
    let full = std::path::absolute(directory).ok();
    let name = full.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let token = name.and_then(|name| ListenerName::parse(name).ok());
    token.map_or_else(|| "my-organism".to_owned(), |token| token.to_string())
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let say = || format!("cannot write {}", path.display());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(say)?;
    }

    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(say)
}
