//! Each code block of each page, carried out by the rules of [`super::blocks`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser as _;
use clap::error::ErrorKind;
use organism::cli::CommandLine;
use tempfile::TempDir;

use super::blocks::{Block, BlockKind, block, blocks, read};
use super::configs::Project;
use super::page::{Step, StepKind, console};
use super::session::Session;

/// The pages, each with the number of its blocks that no test can run.
const PAGES: [(&str, usize); 10] = [
    ("README.md", 1),
    ("docs/CONFIG.md", 0),
    ("docs/PROTOCOL.md", 0),
    ("docs/AGENTS.md", 0),
    ("docs/WORKFLOWS.md", 0),
    ("docs/OPERATIONS.md", 15),
    ("docs/AUDIT.md", 4),
    ("docs/ARCHITECTURE.md", 1),
    ("docs/errors/hosted-process.md", 0),
    ("docs/errors/unknown-caller.md", 0),
];

/// Names of all test functions.
fn tests() -> Vec<String> {
    fn collect(folder: &Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, names);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split("()").next());
            names.extend(functions.map(str::to_owned));
        }
    }
    let mut names = Vec::new();
    for folder in ["src", "tests/it"] {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut names);
    }
    names
}

/// Splits a command in a list of commands into its words. Drops the description of the command, the
/// brackets of optional words, and any pipe or redirection.
fn words(line: &str) -> Vec<String> {
    let line = line.trim_end();
    let command = line.split_once("  ").map_or(line, |(command, _)| command);
    let command = command.split(['|', '>']).next().unwrap_or_default();
    let quoted = command.split('"').enumerate();
    let words = quoted.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_owned()).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Parses a command as the program does. Appends `--help`, so that missing arguments are no error.
fn parse(line: &str) -> Result<(), String> {
    let words = words(line).into_iter().chain(["--help".to_owned()]);
    match CommandLine::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(()),
        Err(error) => Err(format!("`{line}`: {error}")),
    }
}

fn is_part_of(text: &str, file: &str) -> Result<(), String> {
    let whole = read(file);
    let mut rest = whole.lines();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if !rest.any(|other| other.trim() == line.trim()) {
            return Err(format!("{file} has no line `{line}` there"));
        }
    }
    Ok(())
}

/// State of a page while its blocks are carried out.
struct Page {
    session: Session,
    project: Project,
    tests: Vec<String>,
    not_run: BTreeMap<usize, String>,
}

impl Page {
    fn carry_out(&mut self, block: &Block) -> Result<(), String> {
        let kind = block.kind()?;
        let done = match &kind {
            BlockKind::Transcript => {
                let lines: Vec<_> = block.text.lines().collect();
                let mut console = console(&[], &lines, block.line)?;
                // A blank line stands between an output and the next command.
                for shown in &mut console.commands {
                    shown.output.truncate(shown.output.trim_end().len());
                }
                let chapter = String::new();
                let kind = StepKind::Console(console);
                return self.session.carry_out(&Step { chapter, line: block.line, kind });
            }
            BlockKind::Usage => {
                let is_command = |line: &&str| line.starts_with("organism ");
                block.text.lines().filter(is_command).try_for_each(parse)
            }
            BlockKind::PartOf(file) => is_part_of(&block.text, file),
            BlockKind::TestedBy(test) => {
                let is_there = self.tests.contains(test);
                is_there.then_some(()).ok_or_else(|| format!("there is no test `{test}`"))
            }
            BlockKind::NotRun(reason) => {
                self.not_run.insert(block.line, reason.clone());
                Ok(())
            }
            _ => self.project.carry_out(block, &kind),
        };
        done.map_err(|wrong| format!("line {}: {wrong}", block.line))
    }
}

/// Carries out all blocks of a page. Returns the blocks that cannot be run.
fn carry_out(page: &str) -> Result<BTreeMap<usize, String>, Vec<String>> {
    let mut state = Page {
        session: Session::new(),
        project: Project::new(),
        tests: tests(),
        not_run: BTreeMap::new(),
    };
    let blocks = blocks(&read(page));
    let wrong: Vec<_> = blocks.iter().filter_map(|block| state.carry_out(block).err()).collect();
    if wrong.is_empty() { Ok(state.not_run) } else { Err(wrong) }
}

/// Runs a block in a shell, in a directory.
fn run(block: &str, folder: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("bash");
    shell.args(["-euc", block]).current_dir(folder).env_clear().env("PATH", path);
    let output = shell.env("HOME", folder.join("home")).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    shown
}

/// The commands at the head of an example's config, each on one line.
fn head_commands(name: &str) -> Vec<String> {
    let config = read(&format!("config/{name}.toml"));
    let head = config.lines().take_while(|line| line.starts_with('#'));
    let lines: Vec<_> = head.filter_map(|line| line.strip_prefix("#     ")).collect();
    lines.join("\n").replace("\\\n  ", "").lines().map(str::to_owned).collect()
}

/// The README shows the commands at the heads of the configs, unchanged. The tests of
/// `organism::examples` run these commands.
#[test]
fn the_workflows_of_the_readme_are_the_commands_at_the_heads_of_their_configs() {
    let shown = block("README.md", "# A planner, a coder");
    let shown: Vec<_> = shown.lines().filter(|line| !line.starts_with('#')).collect();
    let names = ["crew", "essay", "decision", "code-review", "research", "documents", "booking"];
    assert_eq!(shown, names.map(head_commands).concat());
}

#[test]
fn the_commands_of_the_page_convert_a_schema() {
    let folder = TempDir::new().unwrap();
    let schema = r#"{"title":"order","type":"object","properties":{"item":{"type":"string"}}}"#;
    std::fs::write(folder.path().join("order.schema.json"), schema).unwrap();
    let short = run(&block("docs/CONFIG.md", "organism schema from"), folder.path());
    assert!(short.contains("[payloads.order]") && short.contains("item = \"text?\""), "{short}");
    let written = std::fs::read_to_string(folder.path().join("order.xsd")).unwrap();
    assert!(written.contains("<xs:element name=\"order\">"), "{written}");
}

#[test]
fn the_examples_of_each_page_hold() {
    let mut failed = String::new();
    for (page, expected) in PAGES {
        match carry_out(page) {
            Ok(not_run) => {
                for (line, reason) in &not_run {
                    println!("not run: {page}:{line}: {reason}");
                }
                if not_run.len() != expected {
                    failed +=
                        &format!("{page}: {} blocks are not run: {not_run:#?}\n", not_run.len());
                }
            }
            Err(wrong) => {
                failed += &wrong.iter().map(|one| format!("{page}, {one}\n")).collect::<String>()
            }
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// Every page with code is carried out, here or by another test.
#[test]
fn no_page_of_the_docs_is_forgotten() {
    let own = ["docs/TUTORIAL.md", "docs/LISTENERS.md"];
    let known: Vec<_> = PAGES.iter().map(|(page, _)| *page).chain(own).map(PathBuf::from).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["docs", "docs/errors"].map(|name| std::fs::read_dir(root.join(name)).unwrap());
    for entry in folders.into_iter().flatten() {
        let path = entry.unwrap().path();
        let path = path.strip_prefix(root).unwrap();
        if path.extension().is_some_and(|ending| ending == "md")
            && !known.iter().any(|page| page == path)
        {
            let found = blocks(&read(path.to_str().unwrap()));
            assert!(
                found.is_empty(),
                "no test carries out the code of {}: {found:#?}",
                path.display()
            );
        }
    }
}

#[test]
fn a_command_of_a_list_is_parsed_by_the_program() {
    assert_eq!(parse("organism send FILE               sends a payload"), Ok(()));
    assert_eq!(parse("organism check [--config FILE] [--json]"), Ok(()));
    assert!(parse("organism sned FILE").is_err());
    assert!(parse("organism send --twice FILE").is_err());
}
