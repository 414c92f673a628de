//! Prints the problems of a config: drawn with carets (in colour on a terminal, in ASCII for other
//! outputs), or as JSON.

use std::fmt;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles,
};

use crate::config::{ConfigProblem, ConfigProblems};

use super::CommandExit;

/// Width in columns at which a problem of a config is drawn, on a terminal as well as in a file.
const COLUMNS: usize = 80;

/// Prints all problems to stderr and returns the exit code of an invalid config.
pub fn report(problems: &ConfigProblems) -> ExitCode {
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    note_problems(problems);
    note!("{count} {noun}; nothing was started");
    CommandExit::Config.into()
}

/// Prints all problems to stderr.
pub fn note_problems(problems: &ConfigProblems) {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let theme = match (std::io::stderr().is_terminal(), no_color) {
        (true, false) => GraphicalTheme::unicode(),
        (true, true) => GraphicalTheme::unicode_nocolor(),
        (false, _) => ascii(),
    };

    note_part!("{}", draw(problems, theme));
}

/// Prints all problems as JSON to stdout, and returns the exit code of an invalid config.
pub fn report_json(problems: &ConfigProblems) -> anyhow::Result<ExitCode> {
    let list: Vec<_> = problems.iter().collect();
    let json = serde_json::json!({ "ok": false, "problems": list });
    put_line!("{}", serde_json::to_string_pretty(&json)?);
    Ok(CommandExit::Config.into())
}

/// A problem that is drawn beneath its headline. The headline states the location and the code of
/// the problem.
#[derive(Debug)]
struct DrawnProblem<'a>(&'a ConfigProblem);

impl fmt::Display for DrawnProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for DrawnProblem<'_> {}

impl Diagnostic for DrawnProblem<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.0.place.source.shown().inner().is_empty()).then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.0.place.span.clone();
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(None, span))))
    }
}

/// Returns the source text of the problem, with columns that count characters instead of bytes.
impl SourceCode for DrawnProblem<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let source = &self.0.place.source;
        let read = source.shown().read_span(span, before, after)?;
        if (before, after) != (0, 0) {
            return Ok(read);
        }

        let (line, column) = self.0.place.line_and_column();
        Ok(Box::new(MietteSpanContents::new_named(
            source.name().to_owned(),
            read.data(),
            *read.span(),
            line.saturating_sub(1) as usize,
            column.saturating_sub(1) as usize,
            read.line_count(),
        )))
    }
}

fn ascii() -> GraphicalTheme {
    GraphicalTheme { characters: ThemeCharacters::ascii(), styles: ThemeStyles::none() }
}

fn draw(problems: &ConfigProblems, theme: GraphicalTheme) -> String {
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(COLUMNS)
        .with_links(false)
        .without_cause_chain()
        .with_context_lines(1);
    let mut out = String::new();
    for problem in problems.iter() {
        let (line, column) = problem.place.line_and_column();
        let name = problem.place.source.name();
        out.push_str(&format!("{name}:{line}:{column}: {}\n", problem.code));
        if handler.render_report(&mut out, &DrawnProblem(problem)).is_err() {
            out.push_str(&format!("{}\n", problem.message));
        }
        out.push('\n');
    }

    out
}
