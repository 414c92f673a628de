//! The report of `organism try`: what became different, per thread and in total.

use serde::Serialize;

use crate::audit::{ThreadTotals, compare_threads, has_equal_finals};
use crate::envelope::Spending;
use crate::ids::ThreadId;
use crate::schema::Schemas;
use crate::xml::invisible_characters::visible;

use super::super::diff::{self, FirstDifference};
use super::super::exit::CommandExit;
use super::super::journal_target::JournalTarget;
use super::super::render::{RenderOutput, count, duration, put, put_visible_json, table};

/// Changed threads whose first difference is shown without `--full`.
const DIFFERENCES_SHOWN: usize = 5;

/// How much a thread changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum TrialChange {
    /// Nothing changed.
    #[serde(rename = "none")]
    Nothing,
    /// The finals are equal, after another course or other prompts.
    #[serde(rename = "course")]
    Course,
    #[serde(rename = "finals")]
    Finals,
}

/// A thread that ran again.
#[derive(Debug, Serialize)]
struct TriedThread {
    #[serde(rename = "thread")]
    thread: ThreadId,
    #[serde(rename = "change")]
    change: TrialChange,
    #[serde(rename = "first")]
    first: Option<FirstDifference>,
    /// Pairs of prompts that were not compared.
    #[serde(rename = "uncompared_prompts")]
    uncompared: u64,
    #[serde(rename = "a")]
    before: ThreadTotals,
    #[serde(rename = "b")]
    after: ThreadTotals,
}

/// A thread that did not run.
#[derive(Debug, Serialize)]
struct UntriedThread {
    #[serde(rename = "thread")]
    thread: ThreadId,
    #[serde(rename = "reason")]
    reason: String,
}

#[derive(Debug, Default)]
pub struct TrialReport {
    tried: Vec<TriedThread>,
    untried: Vec<UntriedThread>,
}

/// Sums over all threads of one side.
#[derive(Debug, Default, Serialize)]
struct TrialSums {
    #[serde(rename = "spent")]
    spent: Spending,
    #[serde(rename = "turns")]
    turns: u64,
    #[serde(rename = "refusals")]
    refusals: u64,
    #[serde(rename = "ms")]
    ms: u64,
}

impl TrialReport {
    /// Compares a recorded thread with its run.
    pub fn compare(
        &mut self,
        recorded: &JournalTarget,
        own: &JournalTarget,
        thread: &ThreadId,
        schemas: &Schemas,
    ) -> anyhow::Result<()> {
        let before = diff::timeline(recorded, thread.as_str())?;
        let after = diff::timeline(own, thread.as_str())?;
        let comparison = compare_threads(&before, &after);
        let mut uncompared = 0;
        let first = diff::first_difference(&comparison, recorded, own, &mut uncompared);
        let change = match (has_equal_finals(&before, &after, schemas), &first) {
            (false, _) => TrialChange::Finals,
            (true, Some(_)) => TrialChange::Course,
            (true, None) => TrialChange::Nothing,
        };
        self.tried.push(TriedThread {
            thread: thread.clone(),
            change,
            first,
            uncompared,
            before: comparison.left,
            after: comparison.right,
        });
        Ok(())
    }

    pub fn add_not_tried(&mut self, thread: &ThreadId, reason: String) {
        self.untried.push(UntriedThread { thread: thread.clone(), reason });
    }

    /// The exit code, so that a trial serves as a regression test.
    pub fn exit(&self) -> CommandExit {
        if self.count(TrialChange::Finals) > 0 {
            CommandExit::WorkflowFailed
        } else if self.untried.is_empty() {
            CommandExit::Done
        } else {
            CommandExit::Unavailable
        }
    }

    fn count(&self, change: TrialChange) -> usize {
        self.tried.iter().filter(|own| own.change == change).count()
    }

    fn sums(&self, side: fn(&TriedThread) -> &ThreadTotals) -> TrialSums {
        let mut sums = TrialSums::default();
        for totals in self.tried.iter().map(side) {
            sums.spent = sums.spent.plus(totals.spent);
            sums.turns += totals.turns;
            sums.refusals += totals.refusals;
            sums.ms += totals.ms;
        }
        sums
    }

    pub fn print(&self, is_json: bool, is_full: bool) -> anyhow::Result<()> {
        if is_json {
            return put_visible_json(&serde_json::json!({
                "threads": self.tried,
                "not_tried": self.untried,
                "total": {
                    "equal": self.count(TrialChange::Nothing),
                    "course": self.count(TrialChange::Course),
                    "finals": self.count(TrialChange::Finals),
                    "not_tried": self.untried.len(),
                    "a": self.sums(|own| &own.before),
                    "b": self.sums(|own| &own.after),
                },
            }));
        }

        let output = RenderOutput::stdout(is_full);
        put(&visible(&format!("{}{}", self.differences(&output), self.rows(&output))))?;
        for UntriedThread { thread, reason } in &self.untried {
            note!("{thread} was not tried: {reason}");
        }
        note!("{}", self.summary());
        Ok(())
    }

    /// The first differences of the threads that changed, those with other finals first.
    fn differences(&self, output: &RenderOutput) -> String {
        let mut changed: Vec<_> =
            self.tried.iter().filter(|own| own.change != TrialChange::Nothing).collect();
        changed.sort_by_key(|own| own.change != TrialChange::Finals);
        let most = if output.full { usize::MAX } else { DIFFERENCES_SHOWN };
        let mut out: String = changed
            .iter()
            .take(most)
            .filter_map(|own| {
                let first = own.first.as_ref()?;
                let thread = output.bold(own.thread.as_str());
                Some(format!("{thread}: {}", diff::first_text(output, first)))
            })
            .collect();
        if changed.len() > most {
            let more = changed.len() - most;
            out.push_str(&format!("… {more} more changed; --full shows their differences\n\n"));
        }
        out
    }

    fn rows(&self, output: &RenderOutput) -> String {
        let headers = ["thread", "changed", ">cost", ">tokens", ">turns", ">refusals", ">time"];
        let mut rows: Vec<Vec<String>> = self.tried.iter().map(TriedThread::row).collect();
        let before = self.sums(|own| &own.before);
        let after = self.sums(|own| &own.after);
        let time = |ms| duration(std::time::Duration::from_millis(ms));
        rows.push(vec![
            "total".to_owned(),
            format!("{} of {}", self.count(TrialChange::Finals), self.tried.len()),
            pair(before.spent.money.to_string(), after.spent.money.to_string()),
            pair(before.spent.tokens.to_string(), after.spent.tokens.to_string()),
            pair(before.turns.to_string(), after.turns.to_string()),
            pair(before.refusals.to_string(), after.refusals.to_string()),
            pair(time(before.ms), time(after.ms)),
        ]);
        table(output, &headers, &rows)
    }

    fn summary(&self) -> String {
        let finals = self.count(TrialChange::Finals);
        let course = self.count(TrialChange::Course);
        let equal = self.count(TrialChange::Nothing);
        let untried = match self.untried.len() {
            0 => String::new(),
            untried => format!("; {untried} not tried"),
        };
        format!(
            "{}: {finals} with other finals, {course} with equal finals after another course, {equal} \
             unchanged{untried}",
            count(self.tried.len() as u64, "thread")
        )
    }
}

impl TriedThread {
    fn row(&self) -> Vec<String> {
        let Self { before, after, .. } = self;
        let change = match self.change {
            TrialChange::Nothing => "",
            TrialChange::Course => "course",
            TrialChange::Finals => "finals",
        };
        let time = |totals: &ThreadTotals| duration(std::time::Duration::from_millis(totals.ms));
        vec![
            self.thread.to_string(),
            change.to_owned(),
            pair(diff::cost(before), diff::cost(after)),
            pair(before.spent.tokens.to_string(), after.spent.tokens.to_string()),
            pair(before.turns.to_string(), after.turns.to_string()),
            pair(before.refusals.to_string(), after.refusals.to_string()),
            pair(time(before), time(after)),
        ]
    }
}

/// Both sides, or one value if they are the same.
fn pair(before: String, after: String) -> String {
    if before == after { before } else { format!("{before} → {after}") }
}
