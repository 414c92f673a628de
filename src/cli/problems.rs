//! Draws a config's problems: for a terminal in colour, for anything else in plain ASCII, for
//! programs as JSON.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use miette::{GraphicalReportHandler, GraphicalTheme, ThemeCharacters, ThemeStyles};

use crate::config::Problems;

use super::Exit;

/// Width of a drawing, in columns, wherever it goes.
const COLUMNS: usize = 100;

/// Says on stderr everything that is wrong; the exit code is that of a bad config.
pub fn report(problems: &Problems) -> ExitCode {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let theme = match (std::io::stderr().is_terminal(), no_color) {
        (true, false) => GraphicalTheme::unicode(),
        (true, true) => GraphicalTheme::unicode_nocolor(),
        (false, _) => ascii(),
    };
    eprint!("{}", draw(problems, theme));
    Exit::Config.into()
}

/// As [`report`], on stdout, for a program to read.
pub fn report_json(problems: &Problems) -> anyhow::Result<ExitCode> {
    let list: Vec<_> = problems.iter().collect();
    let json = serde_json::json!({ "ok": false, "problems": list });
    println!("{}", serde_json::to_string_pretty(&json)?);
    Ok(Exit::Config.into())
}

fn ascii() -> GraphicalTheme {
    GraphicalTheme { characters: ThemeCharacters::ascii(), styles: ThemeStyles::none() }
}

fn draw(problems: &Problems, theme: GraphicalTheme) -> String {
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(COLUMNS)
        .with_links(false)
        .without_cause_chain()
        .with_context_lines(0);
    let mut out = String::new();
    for problem in problems.iter() {
        let (line, column) = problem.place.line_and_column();
        let name = problem.place.source.name();
        out.push_str(&format!("{name}:{line}:{column}: {}\n", problem.code));
        if handler.render_report(&mut out, problem).is_err() {
            out.push_str(&format!("{}\n", problem.message));
        }
        out.push('\n');
    }
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    out.push_str(&format!("{count} {noun}; nothing was started\n"));
    out
}
