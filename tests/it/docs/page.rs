//! A page as a list of steps. The info string of each code fence states the kind of its step.
//!
//! | fence | step |
//! |---|---|
//! | `LANGUAGE file=NAME` | a file, shown whole |
//! | `LANGUAGE add=NAME` | lines that are added at the end of a file |
//! | `diff edit=NAME` | lines of a file, `-` before those that are replaced and `+` before the new ones |
//! | `console` | commands after `$`, each with its output |
//!
//! With `console`, `exit=N` is the exit code of the last command. `running` states that the last
//! command goes on after the fence. `ended` states that the fence contains the rest of the output
//! of a command that an earlier fence left running. `any-order` and `wrapped` relax the comparison
//! of outputs.

use super::form::Comparison;

/// One fence of a page.
#[derive(Debug)]
pub struct Step {
    /// The heading of level 2 above the step.
    pub chapter: String,
    /// Number of the step's first line on the page, counted from 1.
    pub line: usize,
    pub kind: StepKind,
}

#[derive(Debug)]
pub enum StepKind {
    Write { file: String, text: String },
    Append { file: String, text: String },
    Edit { file: String, old: String, new: String },
    Console(Console),
}

/// Commands and their outputs.
#[derive(Debug, Default)]
pub struct Console {
    pub commands: Vec<ShownCommand>,
    pub exit: i32,
    pub running: bool,
    pub ended: bool,
    pub comparison: Comparison,
}

#[derive(Debug, Default)]
pub struct ShownCommand {
    /// The command; empty if the fence contains the rest of the output of an earlier command.
    pub command: String,
    pub output: String,
    /// Number of the first line of the output on the page, counted from 1.
    pub line: usize,
    pub lines: usize,
}

pub fn console(words: &[&str], lines: &[&str], first: usize) -> Result<Console, String> {
    let mut console = Console::default();
    for word in words {
        match *word {
            "running" => console.running = true,
            "ended" => console.ended = true,
            "any-order" => console.comparison.any_order = true,
            "wrapped" => console.comparison.wrapped = true,
            other => {
                let code = other.strip_prefix("exit=").and_then(|code| code.parse().ok());
                console.exit = code.ok_or_else(|| format!("`{other}` of a console is unknown"))?;
            }
        }
    }

    if console.ended {
        console.commands.push(ShownCommand { line: first, ..ShownCommand::default() });
    }
    let mut is_continued = false;
    for (number, line) in (first..).zip(lines) {
        if let Some(last) = console.commands.last_mut().filter(|_| is_continued) {
            last.command.push('\n');
            last.command.push_str(line.strip_prefix("> ").unwrap_or(line));
            last.line = number + 1;
        } else if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            let line = number + 1;
            console.commands.push(ShownCommand { command, line, ..ShownCommand::default() });
        } else {
            let shown = console.commands.last_mut().ok_or("an output without a command")?;
            shown.output.push_str(line);
            shown.output.push('\n');
            shown.lines += 1;
            continue;
        }
        is_continued = line.ends_with('\\');
    }
    if console.commands.is_empty() {
        return Err("a console without a command".to_owned());
    }
    Ok(console)
}

/// Returns the lines of a diff that do not start with `dropped`, without their first character.
fn side(lines: &[&str], dropped: char) -> String {
    let kept = lines.iter().filter(|line| !line.starts_with(dropped));
    kept.map(|line| line.get(1..).unwrap_or_default().to_owned() + "\n").collect()
}

fn kind(info: &str, lines: &[&str], first: usize) -> Result<StepKind, String> {
    let words: Vec<_> = info.split_whitespace().collect();
    let (language, rest) = words.split_first().ok_or("a fence without a language")?;
    if *language == "console" {
        return console(rest, lines, first).map(StepKind::Console);
    }

    let [setting] = rest else { return Err(format!("`{info}` says no file")) };
    let text: String = lines.iter().map(|line| (*line).to_owned() + "\n").collect();
    match setting.split_once('=') {
        Some(("file", file)) => Ok(StepKind::Write { file: file.to_owned(), text }),
        Some(("add", file)) => Ok(StepKind::Append { file: file.to_owned(), text }),
        Some(("edit", file)) if *language == "diff" => Ok(StepKind::Edit {
            file: file.to_owned(),
            old: side(lines, '+'),
            new: side(lines, '-'),
        }),
        _ => Err(format!("`{info}` is no step")),
    }
}

/// Returns the steps of a page. A code fence that is no step is an error, because no test would run
/// it.
pub fn steps(page: &str) -> Result<Vec<Step>, String> {
    let lines: Vec<_> = page.lines().collect();
    let mut steps = Vec::new();
    let mut chapter = String::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if let Some(heading) = line.strip_prefix("## ") {
            chapter = heading.to_owned();
        }
        if line.starts_with("    ") {
            return Err(format!("line {at}: indented code is no step; write a fence"));
        }

        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<_> = lines[at..].iter().take_while(|line| **line != "```").copied().collect();
        if at + body.len() == lines.len() {
            return Err(format!("line {at}: the fence is not closed"));
        }
        let kind = kind(info, &body, at + 1).map_err(|wrong| format!("line {at}: {wrong}"))?;
        steps.push(Step { chapter: chapter.clone(), line: at, kind });
        at += body.len() + 1;
    }
    Ok(steps)
}

#[test]
fn code_that_would_not_be_carried_out_is_an_error() {
    let wrong = |page: &str| steps(page).unwrap_err();
    assert_eq!(wrong("    $ echo a\n"), "line 1: indented code is no step; write a fence");
    assert_eq!(wrong("```sh\necho a\n```\n"), "line 1: `sh` says no file");
    assert_eq!(wrong("```console\na\n```\n"), "line 1: an output without a command");
    assert_eq!(wrong("```console twice\n$ a\n```\n"), "line 1: `twice` of a console is unknown");
    assert_eq!(wrong("```console\n$ a\n"), "line 1: the fence is not closed");
    assert_eq!(wrong("```\n$ a\n```\n"), "line 1: a fence without a language");
}
