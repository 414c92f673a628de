//! `organism demo` on a copy of this project's sources, and on a copy without the lines that the
//! demo quotes.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::CommandOutput;
use crate::docs::blocks::block;

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn demo(tree: &TempDir) -> CommandOutput {
    let program = Path::new(env!("CARGO_BIN_EXE_organism"));
    let search = program.with_file_name("code-search");
    assert!(search.exists(), "build it first: cargo build -p code-search");
    let mut command = command(tree);
    command.arg(tree.path().join("copy"));
    command.output().unwrap().into()
}

/// The command `organism demo` in this project, with a temporary directory in `tree`.
fn command(tree: &TempDir) -> Command {
    let temporary = tree.path().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command
        .arg("demo")
        .current_dir(project())
        .env("TMPDIR", temporary)
        .env("NO_COLOR", "1")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Number of the first line of a file that contains `text`.
fn line_of(file: &Path, text: &str) -> usize {
    let content = std::fs::read_to_string(file).unwrap();
    1 + content.lines().position(|line| line.contains(text)).unwrap()
}

fn part<'a>(said: &'a CommandOutput, heading: &str) -> &'a str {
    let (_, rest) =
        said.out.split_once(heading).unwrap_or_else(|| panic!("no {heading}: {said:?}"));
    rest.split("\nThe proof").next().unwrap()
}

// O4 O7 O8 T14
#[test]
fn the_demo_shows_everything_it_promises_and_quotes_what_this_run_found() {
    let tree = TempDir::new().unwrap();
    copy(&project().join("src"), &tree.path().join("copy/src"));
    let clock = tree.path().join("copy/src/clock.rs");
    let found = line_of(&clock, "fn now() -> Self");
    let said = demo(&tree);
    assert_eq!(said.code, Some(0), "{said:?}");
    let shown = [
        "The model's turns are recorded.",
        "⚙ → researcher  thread-spawned",
        "│ researcher → search  search",
        "⚙ → researcher  thread-result",
        "✗ researcher  refused: schema-invalid",
        "✗ researcher  refused: not-in-vocabulary",
        "⚙ → researcher  timer-set",
        "⚙ → researcher  timer-fired",
        "the chain and its signed checkpoints are valid",
        " + 0 in flight",
        "Try next",
    ];
    for what in shown {
        assert!(said.out.contains(what), "{what} is not shown:\n{}", said.out);
    }
    // The page shows lines as they are at this width, with the times of another run.
    let untimed = |line: &str| line.trim().split_once("s ").unwrap_or_default().1.to_owned();
    let lines: Vec<_> = said.out.lines().map(untimed).collect();
    for line in block("README.md", "0.004s researcher").lines() {
        let line = untimed(line);
        assert!(lines.contains(&line), "README.md shows `{line}`:\n{}", said.out);
    }

    let answer = part(&said, "\nThe answer");
    assert!(answer.contains(&format!("source: src/clock.rs:{found}")), "{answer}");
    let names_a_place =
        |line: &str| ["--data", "--config", "config "].iter().any(|p| line.contains(p));
    let wide = said.out.lines().find(|line| line.chars().count() > 80 && !names_a_place(line));
    assert_eq!(wide, None);

    // The same lines are at another place in the file, and the answer names the new place.
    let content = std::fs::read_to_string(&clock).unwrap();
    std::fs::write(&clock, format!("//\n//\n//\n{content}")).unwrap();
    let answer = part(&demo(&tree), "\nThe answer").to_owned();
    assert!(answer.contains(&format!("source: src/clock.rs:{}", found + 3)), "{answer}");

    std::fs::remove_file(&clock).unwrap();
    let without = demo(&tree);
    let answer = part(&without, "\nThe answer");
    assert!(!answer.contains("src/clock.rs"), "{answer}");
    assert!(answer.contains("src/limits.rs"), "{answer}");
}

#[test]
fn a_demo_that_does_not_begin_leaves_no_directory() {
    let tree = TempDir::new().unwrap();
    // The second config has no question beside it.
    for (config, code, shown) in
        [("missing.toml", 78, "file-missing"), ("config/essay.toml", 69, "question.xml")]
    {
        let failed = command(&tree).args(["--config", config]).output().unwrap();
        let failed = CommandOutput::from(failed);
        assert_eq!(failed.code, Some(code), "{failed:?}");
        assert!(failed.err.contains(shown), "{failed:?}");
        assert_eq!(std::fs::read_dir(tree.path().join("tmp")).unwrap().count(), 0, "{config}");
    }
}
