//! Prints the problems of a config as JSON, or draws them with carets: in colour on a terminal, and
//! in ASCII for other outputs.

use std::fmt;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, NamedSource, SourceCode, SourceSpan, SpanContents, ThemeCharacters,
    ThemeStyles,
};

use crate::config::{ConfigProblem, ConfigProblems};
use crate::plural::count;
use crate::xml::invisible_characters::{is_hidden, visible_json};

use super::CommandExit;
use super::output::has_colours;
use super::render::show_hidden;

/// Width in columns at which a problem of a config is drawn, on a terminal as well as in a file.
const COLUMNS: usize = 80;

/// Prints all problems to stderr and returns the exit code of an invalid config.
pub fn report(problems: &ConfigProblems) -> ExitCode {
    note_problems(problems);
    note!("{}; nothing was started", count(problems.len(), "problem"));
    CommandExit::Config.into()
}

/// Prints all problems to stderr.
pub fn note_problems(problems: &ConfigProblems) {
    let theme = if has_colours(&std::io::stderr()) {
        GraphicalTheme::unicode()
    } else if std::io::stderr().is_terminal() {
        GraphicalTheme::unicode_nocolor()
    } else {
        ascii()
    };

    note_part!("{}", draw(problems, theme));
}

/// Prints all problems as JSON to stdout, and returns the exit code of an invalid config.
pub fn report_json(problems: &ConfigProblems) -> anyhow::Result<ExitCode> {
    let list: Vec<_> = problems.iter().collect();
    let json = serde_json::json!({ "ok": false, "problems": list });
    put_line!("{}", visible_json(&serde_json::to_string_pretty(&json)?));
    Ok(CommandExit::Config.into())
}

/// A problem that is drawn beneath a headline with its location and its code. Characters that could
/// control the terminal are replaced, because the text of the config may be untrusted.
#[derive(Debug)]
struct DrawnProblem<'a> {
    problem: &'a ConfigProblem,
    /// The text that contains the problem. [`covered`] has replaced its hidden and control
    /// characters.
    source: NamedSource<String>,
}

impl<'a> DrawnProblem<'a> {
    fn new(problem: &'a ConfigProblem) -> Self {
        let source = &problem.place.source;
        let source = NamedSource::new(show_hidden(source.name()), covered(source.shown().inner()));
        Self { problem, source }
    }
}

/// Replaces each character that a screen would interpret, reorder or hide. The replacement consists
/// of `?`, `·` or `•` and has as many bytes as the character, so that carets point to the right
/// columns. Keeps line ends, and a byte order mark at the beginning.
fn covered(text: &str) -> String {
    let mut covered = String::with_capacity(text.len());
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let is_line_end = c == '\r' && rest.peek().is_some_and(|(_, next)| *next == '\n');
        let is_mark = c == '\u{feff}' && at == 0;
        match c.len_utf8() {
            _ if !is_hidden(c) || is_line_end || is_mark => covered.push(c),
            2 => covered.push('·'),
            3 => covered.push('•'),
            bytes => covered.push_str(&"?".repeat(bytes)),
        }
    }

    covered
}

impl fmt::Display for DrawnProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_hidden(&self.problem.message))
    }
}

impl std::error::Error for DrawnProblem<'_> {}

impl Diagnostic for DrawnProblem<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let help = self.problem.help.as_deref()?;
        Some(Box::new(show_hidden(help)))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.source.inner().is_empty()).then_some(self)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.problem.place.span.clone();
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
        let read = self.source.read_span(span, before, after)?;
        if (before, after) != (0, 0) {
            return Ok(read);
        }

        let (line, column) = self.problem.place.line_and_column();
        Ok(Box::new(MietteSpanContents::new_named(
            self.source.name().to_owned(),
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
        out.push_str(&format!("{}: {}\n", headline_place(problem), problem.code));
        if handler.render_report(&mut out, &DrawnProblem::new(problem)).is_err() {
            out.push_str(&format!("{}\n", show_hidden(&problem.message)));
        }
        out.push('\n');
    }

    out
}

/// Returns the place of a problem, such as `organism.toml:2:8`. A missing or empty file is its own
/// place, without a line and a column.
fn headline_place(problem: &ConfigProblem) -> String {
    let source = &problem.place.source;
    let name = show_hidden(source.name());
    if source.shown().inner().is_empty() {
        return name.into_owned();
    }

    let (line, column) = problem.place.line_and_column();
    format!("{name}:{line}:{column}")
}

#[cfg(test)]
mod tests {
    use crate::config::{ConfigSource, ProblemCode, SourceRange};

    use super::*;

    #[test]
    fn no_text_of_a_config_controls_the_terminal() {
        let hostile = "a\u{1b}[31m\u{9b}2J\u{202e}";
        let source = ConfigSource::new(format!("{hostile}.toml"), format!("name = {hostile}\r\n"));
        let place = SourceRange::new(&source, 7..8);
        let problem = ConfigProblem::new(ProblemCode::MissingKey, &place, hostile).help(hostile);
        let drawn = draw(&problem.into(), ascii());
        let is_active = |c: &char| *c != '\n' && is_hidden(*c);
        assert_eq!(drawn.chars().find(is_active), None, "{drawn:?}");
        assert!(drawn.contains("name = a?[31m·2J•"), "{drawn}");
        assert!(drawn.contains("help: a\\u{1b}[31m\\u{9b}2J\\u{202e}"), "{drawn}");
    }

    #[test]
    fn a_place_without_a_text_has_no_line() {
        let source = ConfigSource::new("nope.toml".to_owned(), String::new());
        let place = SourceRange::new(&source, 0..0);
        let problem = ConfigProblem::new(ProblemCode::FileMissing, &place, "there is no file");
        let drawn = draw(&problem.into(), ascii());
        assert!(drawn.starts_with("nope.toml: file-missing\n"), "{drawn}");
    }

    #[test]
    fn a_covered_text_keeps_its_bytes_and_its_lines() {
        let text = "\u{feff}a = 1\r\nb\tc\rd \u{e0041}é";
        let shown = covered(text);
        assert_eq!(shown, "\u{feff}a = 1\r\nb\tc?d ????é");
        assert_eq!(shown.len(), text.len());
    }
}
