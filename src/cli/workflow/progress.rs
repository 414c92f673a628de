//! The goals of a run while it runs: a tree on a terminal, a line for each change elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::clock::Time;
use crate::ids::{CallId, ListenerName, Position, ThreadId};
use crate::journal::partitions_in;
use crate::journal::sqlite::JournalReader;
use crate::thread::{Fact, Record};
use crate::workflow::{GoalGraph, GoalPhase, GoalStatus, RunWatch, WorkflowDefinition};

/// How a run is shown on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressForm {
    /// The whole tree, drawn again with each change.
    Tree,
    /// One line for each change.
    Lines,
    /// One JSON object for each change, on standard output.
    Json,
    Nothing,
}

/// Follows the record of one run.
pub struct RunProgress<'a> {
    data: &'a Path,
    form: ProgressForm,
    watch: RunWatch<'a>,
    /// The run's thread and call, once it is accepted.
    run: Option<(ThreadId, CallId)>,
    /// Position up to which the journal of each partition was read.
    seen: BTreeMap<u32, Position>,
    goals: Vec<GoalStatus>,
    /// When each goal started, by its place in the file, and how long it took.
    times: BTreeMap<usize, (Time, Option<Duration>)>,
    lines_drawn: usize,
}

impl<'a> RunProgress<'a> {
    /// Begins before the run is submitted, so that no record of it is missed.
    pub fn new(
        data: &'a Path,
        form: ProgressForm,
        (definition, graph): (&'a WorkflowDefinition, &'a GoalGraph<'a>),
        once: &'a HashSet<ListenerName>,
    ) -> Self {
        let last = |path: &PathBuf| {
            JournalReader::open(path).and_then(|reader| reader.last()).unwrap_or(Position(0))
        };
        let journals = partitions_in(data).into_iter();
        let seen = journals.map(|(partition, path)| (partition.unwrap_or_default(), last(&path)));
        Self {
            data,
            form,
            watch: RunWatch::new(definition, graph, once),
            run: None,
            seen: seen.collect(),
            goals: Vec::new(),
            times: BTreeMap::new(),
            lines_drawn: 0,
        }
    }

    pub fn accepted(&mut self, thread: ThreadId, call: CallId) {
        self.run = Some((thread, call));
        self.show_new();
    }

    /// Shows what is recorded since the last look. A journal that cannot be read shows nothing: the
    /// result of the run comes all the same.
    pub fn show_new(&mut self) {
        let Some((thread, call)) = self.run.clone() else { return };
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
                    self.take(&sealed.record, &thread, call);
                }
            }
        }
    }

    fn take(&mut self, record: &Record, thread: &ThreadId, call: CallId) {
        for fact in &record.facts {
            let Fact::Accepted { message, .. } = fact else { continue };
            let is_of_run = message.thread == *thread && message.call == Some(call);
            if is_of_run && message.to != ListenerName::core() {
                self.watch.take(message);
            }
        }

        let goals = self.watch.goals();
        if goals != self.goals {
            self.note_times(&goals, record.time);
            self.show(&goals);
            self.goals = goals;
        }
    }

    fn note_times(&mut self, goals: &[GoalStatus], now: Time) {
        for (place, goal) in goals.iter().enumerate() {
            match (goal.phase, self.times.get_mut(&place)) {
                (GoalPhase::Waiting, _) => {}
                (GoalPhase::Running, Some((_, took))) => *took = None,
                (_, None) => {
                    let took = (goal.phase != GoalPhase::Running).then_some(Duration::ZERO);
                    self.times.insert(place, (now, took));
                }
                (_, Some((started, took))) => {
                    took.get_or_insert(now.since(*started));
                }
            }
        }
    }

    fn show(&mut self, goals: &[GoalStatus]) {
        match self.form {
            ProgressForm::Nothing => {}
            ProgressForm::Tree => {
                let mut out = String::new();
                if self.lines_drawn > 0 {
                    let _ = write!(out, "\x1b[{}A\x1b[J", self.lines_drawn);
                }
                for (place, goal) in goals.iter().enumerate() {
                    out.push_str(&self.line(place, goal));
                    out.push('\n');
                }
                self.lines_drawn = goals.len();
                note_part!("{out}");
            }
            ProgressForm::Lines => {
                for (place, goal) in self.changed(goals) {
                    note!("{}", self.line(place, goal));
                }
            }
            ProgressForm::Json => {
                for (_, goal) in self.changed(goals) {
                    let line = json!({
                        "goal": goal.goal.as_str(),
                        "state": goal.phase.as_str(),
                        "iteration": goal.iteration,
                        "parts_done": goal.parts.0,
                        "parts": goal.parts.1,
                    });
                    put_line!("{line}");
                }
            }
        }
    }

    fn changed<'g>(&self, goals: &'g [GoalStatus]) -> Vec<(usize, &'g GoalStatus)> {
        let is_new = |(place, goal): &(usize, &GoalStatus)| match self.goals.get(*place) {
            Some(before) => before != *goal,
            None => goal.phase != GoalPhase::Waiting,
        };
        goals.iter().enumerate().filter(is_new).collect()
    }

    fn line(&self, place: usize, goal: &GoalStatus) -> String {
        let indent = "  ".repeat(goal.depth);
        let mut line =
            format!("{} {indent}{}  {}", mark(goal.phase), goal.goal, goal.phase.as_str());
        if goal.iteration > 0 {
            let _ = write!(line, ", pass {}", goal.iteration);
        }
        if goal.parts.1 > 0 {
            let _ = write!(line, ", {} of {}", goal.parts.0, goal.parts.1);
        }
        if let Some((_, Some(took))) = self.times.get(&place) {
            let _ = write!(line, "  {:.1} s", took.as_secs_f64());
        }
        line
    }
}

const fn mark(phase: GoalPhase) -> &'static str {
    match phase {
        GoalPhase::Waiting => "·",
        GoalPhase::Running => "▸",
        GoalPhase::Done => "✓",
        GoalPhase::Skipped => "-",
        GoalPhase::Failed => "✗",
    }
}
