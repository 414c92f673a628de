//! Draws a run as lines that fit into a terminal of any size.

use std::fmt::Write as _;
use std::time::Duration;

use crate::bus::ModelState;
use crate::bus::live::AnswerPart;
use crate::clock::Time;
use crate::envelope::SpendingTotals;
use crate::plural::count;
use crate::thread::Hold;
use crate::workflow::{ActivityKind, GoalPhase, RowKind, RunActivity, RunRow};

use super::super::named_config;
use super::super::render::{RenderOutput, clean, columns, cut, duration};

/// Maximum number of lines of a model's text that the drawing shows for each call.
const TEXT_LINES_MAX: usize = 3;
/// Maximum number of calls in each goal for which the drawing shows the present activity.
const ACTIVITIES_MAX: usize = 4;

/// A drawn line of a run. `is_active` marks a line that shows work in progress. Such lines stay if
/// the terminal is too small for all lines.
struct DrawnLine {
    text: String,
    is_active: bool,
    /// Number of rows of the terminal that the line takes.
    rows: usize,
}

impl DrawnLine {
    fn in_one_row(text: String, is_active: bool) -> Self {
        Self { text, is_active, rows: 1 }
    }
}

/// Settings for drawing the rows of a run on one terminal.
pub struct RunDrawing {
    pub output: RenderOutput,
    /// Maximum number of lines to draw.
    pub height: usize,
}

impl RunDrawing {
    /// Draws the line of a row: its state, counts, time, tokens and money.
    pub fn row(&self, row: &RunRow) -> String {
        let indent = "  ".repeat(row.depth);
        let name = row.name();
        let mut line = format!("{} {indent}{name}  {}", mark(row.phase), row.phase.as_str());
        if let RowKind::Goal(goal) = &row.kind {
            if !goal.waits_for.is_empty() {
                let goals: Vec<_> = goal.waits_for.iter().map(ToString::to_string).collect();
                let _ = write!(line, " for {}", goals.join(", "));
            }
            if goal.iteration > 0 {
                let _ = write!(line, ", pass {}", goal.iteration);
            }
            if goal.parts.1 > 0 {
                let _ = write!(line, ", {} of {}", goal.parts.0, goal.parts.1);
            }
        }

        if row.attempt > 1 {
            let _ = write!(line, ", attempt {}", row.attempt);
        }
        if let Some(time) = row.time {
            let _ = write!(line, "  {}", duration(time));
        }
        line.push_str(&spent_text(&row.spent));
        let has_sums = row.time.is_some() || !row.spent.is_zero();
        if has_sums && row.passes > 1 {
            let _ = write!(line, "  in {} passes", row.passes);
        }
        line
    }

    /// Draws the whole run within the width and the height of the terminal.
    pub fn lines(&self, title: &str, rows: &[RunRow], now: Time) -> Vec<String> {
        let mut drawn = Vec::new();
        for row in rows {
            let line = self.cut(&self.row(row));
            let is_running = row.phase == GoalPhase::Running;
            let text = match row.phase {
                GoalPhase::Failed => self.output.red(&line),
                GoalPhase::Running => self.output.bold(&line),
                GoalPhase::Waiting | GoalPhase::Skipped | GoalPhase::Cancelled => {
                    self.output.dim(&line)
                }
                GoalPhase::Done => line,
            };
            drawn.push(DrawnLine::in_one_row(text, is_running && row.now.is_empty()));
            self.draw_activities(row, now, &mut drawn);
        }

        let mut lines = vec![self.output.bold(&self.cut(title))];
        lines.extend(self.fit(drawn));
        lines.truncate(self.height.max(1));
        lines
    }

    fn draw_activities(&self, row: &RunRow, now: Time, drawn: &mut Vec<DrawnLine>) {
        let indent = "  ".repeat(row.depth + 2);
        for activity in row.now.iter().take(ACTIVITIES_MAX) {
            let line = self.cut(&format!("{indent}{}", clean(&activity_line(activity, now))));
            let is_person = matches!(activity.what, ActivityKind::Person { .. });
            let text = if is_person { self.output.yellow(&line) } else { self.output.cyan(&line) };
            drawn.push(DrawnLine::in_one_row(text, true));
            if let Some(command) = decision_command(activity) {
                drawn.push(self.command_line(&format!("{indent}{}", clean(&command))));
            }
            if let ActivityKind::Model { text, .. } = &activity.what {
                drawn.extend(self.text_lines(&indent, text));
            }
        }
        if let Some(more) = row.now.len().checked_sub(ACTIVITIES_MAX).filter(|more| *more > 0) {
            let text = self.output.dim(&self.cut(&format!("{indent}and {more} more")));
            drawn.push(DrawnLine::in_one_row(text, false));
        }
    }

    /// Draws a command for a person to type. A command that is longer than a row continues on the
    /// next rows of the terminal, so that a person can copy it whole. The command is cut only if it
    /// needs more rows than the terminal has for it.
    fn command_line(&self, line: &str) -> DrawnLine {
        let width = self.output.columns.max(1);
        let rows = columns(line) / width + 1;
        if rows > self.rows_beside_counts() {
            return DrawnLine::in_one_row(self.output.yellow(&self.cut(line)), true);
        }

        // The blank moves the cursor away from the last column. There, clearing the rest of the
        // line would clear the last character, too.
        let end = if columns(line).is_multiple_of(width) { " " } else { "" };
        DrawnLine { text: self.output.yellow(&format!("{line}{end}")), is_active: true, rows }
    }

    /// Returns the last lines of a model's text, wrapped to the width of the terminal.
    fn text_lines(&self, indent: &str, text: &str) -> Vec<DrawnLine> {
        let margin = format!("{indent}┊ ");
        let room = self.output.columns.saturating_sub(margin.chars().count()).max(8);
        let text = clean(text);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<_> = lines.flat_map(|line| super::super::render::wrap(line, room)).collect();
        let from = lines.len().saturating_sub(TEXT_LINES_MAX);
        let shown = lines.iter().skip(from).map(|line| {
            let text = self.output.dim(&self.cut(&format!("{margin}{line}")));
            DrawnLine::in_one_row(text, false)
        });
        shown.collect()
    }

    /// Chooses the lines to show. If `drawn` has too many lines for the terminal, shows the lines
    /// about work in progress and the lines around them, and states how many lines are omitted
    /// above and below.
    fn fit(&self, drawn: Vec<DrawnLine>) -> Vec<String> {
        let rows = |lines: &[DrawnLine]| lines.iter().map(|line| line.rows).sum::<usize>();
        if rows(&drawn) <= self.height.saturating_sub(1) {
            return drawn.into_iter().map(|line| line.text).collect();
        }

        let room = self.rows_beside_counts();
        let fits = |begin: usize, end: usize| drawn.get(begin..end).map_or(0, rows) <= room;
        let all = drawn.len();
        let last_active = drawn.iter().rposition(|line| line.is_active).unwrap_or(all - 1);
        let first_active = drawn.iter().position(|line| line.is_active).unwrap_or(0);
        let mut end = (last_active + 1 + TEXT_LINES_MAX).max(first_active + 1).min(all);
        let mut begin = end;
        while begin > 0 && fits(begin - 1, end) {
            begin -= 1;
        }
        while end < all && fits(begin, end + 1) {
            end += 1;
        }

        let mut lines = Vec::new();
        if begin > 0 {
            lines.push(self.left_out(begin, "above"));
        }
        let chosen = drawn.into_iter().skip(begin).take(end - begin);
        lines.extend(chosen.map(|line| line.text));
        if all > end {
            lines.push(self.left_out(all - end, "below"));
        }
        lines
    }

    /// Returns the number of terminal rows that can show lines of the run if some lines are
    /// omitted. The other rows are one for the title, and two for the counts of omitted lines.
    fn rows_beside_counts(&self) -> usize {
        self.height.saturating_sub(3).max(1)
    }

    fn left_out(&self, lines: usize, side: &str) -> String {
        self.output.dim(&self.cut(&format!("… {} {side}", count(lines, "line"))))
    }

    fn cut(&self, line: &str) -> String {
        // The last column stays free, so that no terminal breaks the line.
        cut(line, self.output.columns.saturating_sub(1).max(1))
    }
}

/// Describes the present activity of a call on one line. If the call waits for a person, the
/// drawing shows the command of [`decision_command`] on the next line.
fn activity_line(activity: &RunActivity, now: Time) -> String {
    let RunActivity { listener, what, .. } = activity;
    match what {
        ActivityKind::Person { hold: Hold::Approval, .. } => {
            format!("{listener} waits for an approval:")
        }
        ActivityKind::Person { hold: Hold::Answer, .. } => {
            format!("waits for an answer of {listener}:")
        }
        ActivityKind::Model { state, since, streams, text, part } => {
            let so_far = so_far(now.since(*since));
            let silent = if *streams { "" } else { ", hosted without the live channel" };
            match state {
                ModelState::Requested(route) => {
                    format!("{listener} waits for {route}, {so_far}{silent}")
                }
                ModelState::Streaming(route) => {
                    let verb = match (part, text.is_empty()) {
                        (AnswerPart::Reasoning, false) => "thinks",
                        _ => "writes",
                    };
                    format!("{listener} {verb} with {route}, {so_far}, not checked yet{silent}")
                }
                ModelState::Delayed(route, until) => {
                    let left = so_far_until(until.since(now));
                    format!("{listener} waits for {route}, which asks for a pause{left}")
                }
                ModelState::Ended => String::new(),
            }
        }
    }
}

/// Returns the command with which a person decides about a call; `None` for a call that does not
/// wait for a person.
fn decision_command(activity: &RunActivity) -> Option<String> {
    let ActivityKind::Person { hold, message, .. } = &activity.what else { return None };
    let verb = hold.command();
    Some(format!("organism {verb} {message}{}", named_config::option()))
}

fn so_far(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn so_far_until(left: Duration) -> String {
    match left.as_secs() {
        0 => String::new(),
        seconds => format!(" of {seconds} s more"),
    }
}

const fn mark(phase: GoalPhase) -> &'static str {
    match phase {
        GoalPhase::Waiting => "·",
        GoalPhase::Running => "▸",
        GoalPhase::Done => "✓",
        GoalPhase::Skipped => "-",
        GoalPhase::Failed => "✗",
        GoalPhase::Cancelled => "⊘",
    }
}

/// Formats tokens and money after two spaces; empty if both are zero.
pub fn spent_text(spent: &SpendingTotals) -> String {
    if spent.is_zero() {
        return String::new();
    }
    let mut text = format!("  {} tokens", spent.tokens);
    if !spent.money.is_zero() {
        let _ = write!(text, "  {}", clean(&spent.money.to_string()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{CurrencyTotals, Money};
    use crate::ids::{ListenerName, ThreadId};
    use crate::workflow::{GoalId, GoalStatus};

    const NOW: Time = Time(60_000_000);

    fn view(columns: usize, height: usize) -> RunDrawing {
        let output = RenderOutput { colour: false, columns, table_columns: columns, full: false };
        RunDrawing { output, height }
    }

    fn spent(tokens: u64, money: u64) -> SpendingTotals {
        SpendingTotals { tokens, money: CurrencyTotals::of(Some("EUR"), Money(money)) }
    }

    fn row(goal: &str, phase: GoalPhase) -> RunRow {
        let goal = GoalId::parse(goal).unwrap();
        let parts = (1, 3);
        let status = GoalStatus {
            goal,
            number: 0,
            depth: 1,
            phase,
            iteration: 2,
            parts,
            waits_for: Vec::new(),
        };
        RunRow {
            kind: RowKind::Goal(status),
            thread: None,
            depth: 1,
            phase,
            attempt: 2,
            passes: 1,
            time: Some(Duration::from_millis(1500)),
            spent: spent(1234, 12_300_000),
            now: Vec::new(),
        }
    }

    fn writing(text: &str) -> RunActivity {
        let what = ActivityKind::Model {
            state: ModelState::Streaming("openai/m-1".to_owned()),
            since: Time(48_000_000),
            streams: true,
            text: text.to_owned(),
            part: AnswerPart::Answer,
        };
        let thread = ThreadId::parse("sess-aaaaaaaa.draft").unwrap();
        RunActivity { thread, listener: ListenerName::parse("writer").unwrap(), what }
    }

    #[test]
    fn a_row_states_attempt_pass_parts_time_tokens_and_cost() {
        let line = view(80, 24).row(&row("draft", GoalPhase::Running));
        let expected =
            "▸   draft  running, pass 2, 1 of 3, attempt 2  1.5 s  1234 tokens  0.0123 EUR";
        assert_eq!(line, expected);
    }

    #[test]
    fn the_screen_in_the_docs_is_what_is_drawn() {
        let goal = |name: &str, phase, (depth, iteration), tenths: u64, tokens, money: u64| {
            let mut row = row(name, phase);
            let RowKind::Goal(status) = &mut row.kind else { panic!("{row:?}") };
            *status = GoalStatus { depth, iteration, parts: (0, 0), ..status.clone() };
            let time = Duration::from_millis(100 * tenths);
            let spent = spent(tokens, 100_000 * money);
            let passes = if name == "outline" { 1 } else { 2 };
            RunRow { depth, attempt: 1, passes, time: Some(time), spent, ..row }
        };
        let mut critique = goal("critique", GoalPhase::Running, (1, 2), 86, 1404, 64);
        let mut now = writing("The second paragraph still claims that a space earns nothing.");
        now.listener = ListenerName::parse("critic").unwrap();
        if let ActivityKind::Model { state, since, .. } = &mut now.what {
            *state = ModelState::Streaming("openai/gpt-5".to_owned());
            *since = Time(57_000_000);
        }
        critique.now = vec![now];
        let rows = [
            goal("outline", GoalPhase::Done, (0, 0), 82, 812, 40),
            goal("improve", GoalPhase::Running, (0, 2), 331, 0, 0),
            goal("draft", GoalPhase::Done, (1, 0), 245, 2904, 127),
            critique,
        ];
        let view = view(80, 24);
        let spent = spent_text(&spent(5120, 23_100_000));
        let title =
            format!("essay  sess-k3v9t2m8  {}{spent}", duration(Duration::from_millis(41_300)));

        let drawn: String =
            view.lines(&title, &rows, NOW).iter().map(|line| format!("    {line}\n")).collect();
        let docs = include_str!("../../../docs/WORKFLOWS.md");
        // In the docs, a comment for the tests of the pages precedes the drawing.
        assert!(docs.contains(&format!("-->\n{drawn}\n")), "{drawn}");
    }

    #[test]
    fn a_running_goal_shows_its_model_since_when_and_the_last_lines_of_its_text() {
        let mut running = row("draft", GoalPhase::Running);
        running.now = vec![writing("one\ntwo\nthree\nfour")];
        let lines = view(80, 24).lines("essay", &[running], NOW);
        let expected = [
            "      writer writes with openai/m-1, 12 s, not checked yet",
            "      ┊ two",
            "      ┊ three",
            "      ┊ four",
        ];
        assert_eq!(lines[2..], expected);
    }

    #[test]
    fn a_pause_a_silent_host_and_a_waiting_person_are_shown() {
        let delayed = ModelState::Delayed("openai/m-1".to_owned(), Time(65_000_000));
        let mut paused = writing("");
        let mut silent = writing("");
        if let ActivityKind::Model { state, .. } = &mut paused.what {
            *state = delayed;
        }
        if let ActivityKind::Model { streams, .. } = &mut silent.what {
            *streams = false;
        }
        let pause = activity_line(&paused, NOW);
        assert_eq!(pause, "writer waits for openai/m-1, which asks for a pause of 5 s more");
        assert!(activity_line(&silent, NOW).ends_with("hosted without the live channel"));

        let message = crate::ids::MessageId(uuid::Uuid::from_u128(7));
        let what = ActivityKind::Person { hold: Hold::Approval, message, since: NOW };
        let held = RunActivity { what, ..silent };
        assert_eq!(activity_line(&held, NOW), "writer waits for an approval:");
        assert_eq!(decision_command(&held), Some(format!("organism approve {message}")));
    }

    #[test]
    fn a_command_for_a_person_is_whole_on_every_terminal_that_has_room_for_it() {
        let message = crate::ids::MessageId(uuid::Uuid::from_u128(7));
        let what = ActivityKind::Person { hold: Hold::Answer, message, since: NOW };
        let waiting = RunActivity { what, ..writing("") };
        let command = format!("      organism answer {message}");
        for (columns, height) in [(80, 24), (58, 24), (40, 12), (20, 12), (80, 8)] {
            let mut rows: Vec<_> =
                (0..60).map(|n| row(&format!("goal-{n}"), GoalPhase::Waiting)).collect();
            rows[30] = row("goal-30", GoalPhase::Running);
            rows[30].now = vec![waiting.clone()];
            let lines = view(columns, height).lines("essay", &rows, NOW);
            let place = format!("{columns}x{height}: {lines:#?}");
            let shown = lines.iter().find(|line| line.trim_end() == command);
            let shown = shown.unwrap_or_else(|| panic!("{place}"));
            let width = super::super::super::render::columns(shown);
            assert_ne!(width % columns, 0, "the last column stays free: {place}");
            let used = lines.len() - 1 + width.div_ceil(columns);
            assert!(used <= height, "{place}");
        }
        let cut = view(12, 4).command_line(&command);
        assert_eq!((cut.rows, cut.text.contains('…')), (1, true));
    }

    #[test]
    fn a_run_fits_into_every_terminal_and_keeps_what_runs_in_sight() {
        for (columns, height) in [(80, 24), (200, 50), (40, 12), (12, 3), (1, 1)] {
            for running in [0, 30, 59] {
                let mut rows: Vec<_> =
                    (0..60).map(|n| row(&format!("goal-{n}"), GoalPhase::Waiting)).collect();
                rows[running] = row(&format!("goal-{running}"), GoalPhase::Running);
                rows[running].now = vec![writing(&"漢字 and words ".repeat(40))];
                let lines = view(columns, height).lines("essay", &rows, NOW);
                let place = format!("{columns}x{height}, {running}: {lines:#?}");
                assert!(lines.len() <= height, "{place}");
                let widest = lines.iter().map(|line| super::super::super::render::columns(line));
                assert!(widest.max() < Some(columns.max(2)), "{place}");
                let is_shown = lines.iter().any(|line| line.contains("writer"));
                assert!(is_shown || columns < 40, "{place}");
            }
        }
    }

    #[test]
    fn nothing_that_a_model_writes_steers_the_terminal() {
        let mut running = row("draft", GoalPhase::Running);
        running.now = vec![writing("\u{1b}[2J\u{9b}31m\r\u{7}\u{202e}hostile")];
        let lines = view(80, 24).lines("essay", &[running], NOW).concat();
        assert!(lines.contains("hostile"), "{lines}");
        assert!(!lines.chars().any(char::is_control), "{lines:?}");
        assert!(!lines.contains('\u{202e}'), "{lines:?}");
    }
}
