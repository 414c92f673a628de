//! Shows the goals of a running workflow: as a tree on a terminal, otherwise one line for each
//! change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::bus::live::LiveEvent;
use crate::clock::Time;
use crate::ids::{CallId, ListenerName, Position, ThreadId};
use crate::journal::partitions_in;
use crate::journal::sqlite::JournalReader;
use crate::workflow::{GoalPhase, RowKind, RunRow, RunTree};

use super::super::output::{has_colours, put_json_line};
use super::super::render::{RenderOutput, duration, put_visible_json};
use super::run_drawing::{RunDrawing, spent_text};
use super::terminal::{self, terminal_size};

/// The form in which the command shows the progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressForm {
    /// A tree of the run's goals, which is drawn again with each change.
    Tree,
    /// One line for each change.
    Lines,
    /// One JSON object for each change, on standard output.
    Json,
    Nothing,
}

/// The progress of one run, which is read from the journal and shown to the user.
pub struct RunProgress<'a> {
    data: &'a Path,
    form: ProgressForm,
    tree: RunTree<'a>,
    workflow: ListenerName,
    view: RunDrawing,
    /// Thread of the run; `None` before the request is accepted and after [`RunProgress::finish`].
    run: Option<ThreadId>,
    /// Position up to which the journal of each partition was read.
    seen: BTreeMap<u32, Position>,
    /// Rows of the run when the command last showed changes. A row shows a goal, a task that an
    /// agent has delegated, or a call that undoes another call.
    rows: Vec<RunRow>,
    is_changed: bool,
    began: Time,
    drawn: Option<Instant>,
}

impl<'a> RunProgress<'a> {
    /// Makes the progress of a run that is not submitted yet. Must be called before the submission,
    /// because the progress shows only records that are appended after this call.
    pub fn new(
        data: &'a Path,
        form: ProgressForm,
        (workflow, tree): (ListenerName, RunTree<'a>),
    ) -> Self {
        let last = |path: &PathBuf| {
            JournalReader::open(path).and_then(|reader| reader.last()).unwrap_or(Position(0))
        };
        let journals = partitions_in(data).into_iter();
        let seen = journals.map(|(partition, path)| (partition.unwrap_or_default(), last(&path)));

        let colour = has_colours(&std::io::stderr());
        let output = RenderOutput { colour, columns: 80, table_columns: 80, full: false };

        Self {
            data,
            form,
            tree,
            workflow,
            view: RunDrawing { output, height: 24 },
            run: None,
            seen: seen.collect(),
            rows: Vec::new(),
            is_changed: false,
            began: Time::now(),
            drawn: None,
        }
    }

    pub fn accepted(&mut self, thread: ThreadId, call: CallId) {
        self.tree.begin(thread.clone(), call);
        self.run = Some(thread);
        self.show_new();
    }

    /// Whether a tree of the run's goals is shown now. The tree shows everything that the goals
    /// wait for, so the caller then prints no messages about waits.
    pub fn has_tree(&self) -> bool {
        self.form == ProgressForm::Tree && !self.rows.is_empty()
    }

    /// Reads the new records and shows what has changed. Skips unreadable journals, because the
    /// result of the run does not depend on them.
    pub fn show_new(&mut self) {
        let Some(thread) = self.run.clone() else { return };
        if self.form == ProgressForm::Nothing {
            return;
        }

        for (partition, path) in partitions_in(self.data) {
            let partition = partition.unwrap_or_default();
            let Ok(reader) = JournalReader::open(&path) else { continue };
            let from = self.seen.get(&partition).copied().unwrap_or(Position(0));
            let Ok(last) = reader.last() else { continue };
            if last <= from {
                continue;
            }

            let Ok(records) = reader.records(Position(from.0 + 1), last) else { continue };
            self.seen.insert(partition, last);
            for sealed in &records {
                if sealed.record.tree == thread.root() {
                    self.is_changed = true;
                    if self.tree.take(&sealed.record) {
                        self.show_changes(sealed.record.time);
                    }
                }
            }
        }
    }

    /// Applies a live event, such as a new state of a model call, to the tree of the run. If the
    /// output is JSON, also prints the event.
    pub fn take_live(&mut self, event: &LiveEvent) {
        self.is_changed |= self.tree.take_live(event);
        if self.form == ProgressForm::Json {
            // A failed write is reported at the end of the command.
            put_visible_json(event).ok();
        }
    }

    fn show_changes(&mut self, now: Time) {
        let rows = self.tree.rows(now);
        if matches!(self.form, ProgressForm::Lines | ProgressForm::Json) {
            for (before, row) in changed(&self.rows, &rows) {
                match self.form {
                    ProgressForm::Json => put_json_line(&json_of(row).to_string()),
                    _ if has_news(before, row) => note!("{}", self.view.row(&finished_only(row))),
                    _ => {}
                }
            }
        }
        self.rows = rows;
    }

    /// Draws the tree if anything has changed since the last drawing, or if a second has passed.
    pub fn draw(&mut self) {
        let is_due = self.drawn.is_none_or(|at| at.elapsed() >= Duration::from_secs(1));
        if self.form != ProgressForm::Tree || self.run.is_none() || !(self.is_changed || is_due) {
            return;
        }

        let now = Time::now();
        self.fit_terminal();
        let mut rows = self.tree.rows(now);
        rows.extend(self.tree.elsewhere());
        let lines = self.view.lines(&self.title(now), &rows, now);
        terminal::draw(&lines, self.view.output.columns);
        self.is_changed = false;
        self.drawn = Some(Instant::now());
    }

    /// Removes the tree from the screen, so that other output can follow.
    pub fn clear(&mut self) {
        // The terminal may have become narrower since the last drawing.
        self.fit_terminal();
        terminal::clear(self.view.output.columns);
        self.is_changed = true;
    }

    /// Leaves the whole tree on the screen, however long it is.
    pub fn finish(&mut self) {
        if self.form != ProgressForm::Tree || self.run.is_none() {
            return;
        }

        self.fit_terminal();
        self.view.height = usize::MAX;
        let now = Time::now();
        let mut rows = self.tree.rows(now);
        rows.iter_mut().for_each(|row| row.now.clear());
        let lines = self.view.lines(&self.title(now), &rows, now);
        terminal::draw(&lines, self.view.output.columns);
        terminal::leave();
        self.run = None;
    }

    fn fit_terminal(&mut self) {
        let (columns, height) = terminal_size();
        self.view.output.columns = columns;
        // One row is left for the cursor, below the tree.
        self.view.height = height.saturating_sub(1).max(1);
    }

    fn title(&self, now: Time) -> String {
        let thread = self.run.as_ref().map(ToString::to_string).unwrap_or_default();
        let time = duration(now.since(self.began));
        format!("{}  {thread}  {time}{}", self.workflow, spent_text(&self.tree.spent()))
    }
}

/// Returns the rows whose state has changed, each with its earlier version, or with `None` if the
/// row is new. Rows that are no longer running come first, the deepest ones first, so that a row
/// comes before the row that contains it. Running rows come last.
fn changed<'r>(before: &'r [RunRow], rows: &'r [RunRow]) -> Vec<(Option<&'r RunRow>, &'r RunRow)> {
    let known: BTreeMap<String, &RunRow> = before.iter().map(|row| (key(row), row)).collect();
    let is_new = |(known, row): &(Option<&RunRow>, &RunRow)| match known {
        // A goal that still waits gets no line when the goals before it change.
        Some(known) if row.phase == GoalPhase::Waiting => known.phase != GoalPhase::Waiting,
        Some(known) => {
            // The step from attempt 0 to attempt 1 is not a change.
            let attempts = (known.attempt.max(1), row.attempt.max(1));
            (known.phase, &known.kind) != (row.phase, &row.kind) || attempts.0 != attempts.1
        }
        None => row.phase != GoalPhase::Waiting,
    };
    let rows = rows.iter().map(|row| (known.get(&key(row)).copied(), row));
    let mut changed: Vec<_> = rows.filter(is_new).collect();
    changed.sort_by_key(|(_, row)| match row.phase {
        GoalPhase::Running => (true, 0),
        _ => (false, usize::MAX - row.depth),
    });
    changed
}

/// Whether the command prints a line for a changed row. True for every row that is not waiting.
/// True also for a waiting row that was running before, because a loop is about to repeat the goal
/// of this row. False for any other waiting row.
fn has_news(before: Option<&RunRow>, row: &RunRow) -> bool {
    let was_running = before.is_some_and(|before| before.phase == GoalPhase::Running);
    row.phase != GoalPhase::Waiting || was_running
}

/// Returns the key that identifies a row among the rows of its run.
fn key(row: &RunRow) -> String {
    match &row.kind {
        RowKind::Goal(goal) => goal.goal.to_string(),
        _ => row.thread.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// Returns a copy of the row for the output. If the row is still running, the copy has no `time`,
/// because the duration is not final.
fn finished_only(row: &RunRow) -> RunRow {
    let is_running = row.phase == GoalPhase::Running;
    let time = row.time.filter(|_| !is_running);
    RunRow { time, ..row.clone() }
}

fn json_of(row: &RunRow) -> serde_json::Value {
    let mut line = match &row.kind {
        RowKind::Goal(goal) => json!({
            "goal": goal.goal.as_str(),
            "state": row.phase.as_str(),
            "iteration": goal.iteration,
            "parts_done": goal.parts.0,
            "parts": goal.parts.1,
            "waits_for": goal.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        RowKind::Delegation { role, agent } => {
            json!({"delegation": role, "agent": agent, "state": row.phase.as_str()})
        }
        RowKind::Undo { listener, payload, is_report: false } => {
            json!({"undo": payload, "listener": listener, "state": row.phase.as_str()})
        }
        RowKind::Undo { listener, payload, .. } => {
            json!({"report": payload, "listener": listener, "state": row.phase.as_str()})
        }
        RowKind::Elsewhere => json!({}),
    };

    let Some(members) = line.as_object_mut() else { return line };
    members.insert("attempt".to_owned(), row.attempt.into());
    members.insert("passes".to_owned(), row.passes.into());
    if let Some(time) = row.time {
        members.insert("seconds".to_owned(), time.as_secs_f64().into());
    }
    if !row.spent.is_zero() {
        members.insert("tokens".to_owned(), row.spent.tokens.into());
        match row.spent.money.sum() {
            Some(money) => members.insert("money".to_owned(), money.to_string().into()),
            None => members.insert("costs".to_owned(), json!(row.spent.money)),
        };
    }
    if let Some(thread) = &row.thread {
        members.insert("thread".to_owned(), thread.as_str().into());
    }

    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::SpendingTotals;
    use crate::workflow::{GoalId, GoalStatus};

    fn row(goal: &str, phase: GoalPhase) -> RunRow {
        let goal = GoalId::parse(goal).unwrap();
        let status = GoalStatus {
            goal,
            number: 0,
            depth: 0,
            phase,
            iteration: 0,
            parts: (0, 0),
            waits_for: Vec::new(),
        };
        RunRow {
            kind: RowKind::Goal(status),
            thread: None,
            depth: 0,
            phase,
            attempt: 1,
            passes: 1,
            time: None,
            spent: SpendingTotals::default(),
            now: Vec::new(),
        }
    }

    #[test]
    fn a_new_pass_of_a_loop_has_lines_for_the_goals_that_end_and_begin() {
        use GoalPhase::{Done, Running, Waiting};

        let rows = |phases: [GoalPhase; 3]| {
            ["draft", "check", "review"]
                .into_iter()
                .zip(phases)
                .map(|(goal, phase)| row(goal, phase))
        };
        let before: Vec<_> = rows([Done, Done, Running]).collect();
        let after: Vec<_> = rows([Running, Waiting, Waiting]).collect();
        let lines = changed(&before, &after).into_iter();
        let lines = lines.filter(|(before, row)| has_news(*before, row));
        let lines: Vec<_> = lines.map(|(_, row)| (key(row), row.phase)).collect();
        assert_eq!(lines, [("review".to_owned(), Waiting), ("draft".to_owned(), Running)]);
    }
}
