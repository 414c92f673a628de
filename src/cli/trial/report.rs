//! The report of `organism try`: the differences, for each thread and in total.

use std::collections::HashSet;

use serde::Serialize;

use crate::audit::{
    RecordedMoment, ThreadTotals, compare_threads, has_equal_finals, listeners_called_anew,
};
use crate::envelope::{Spending, SpendingTotals};
use crate::ids::{ListenerName, Position, ThreadId};
use crate::organism::{JudgeDecision, ResultsJudgement};
use crate::schema::Schemas;
use crate::xml::invisible_characters::visible;

use super::super::diff::{self, FirstDifference};
use super::super::exit::CommandExit;
use super::super::journal_target::JournalTarget;
use super::super::render::{RenderOutput, count, duration, put, put_visible_json, table};

/// Maximum number of changed threads whose first difference the report shows. With `--full`, the
/// report shows the first difference of every changed thread.
const DIFFERENCES_SHOWN: usize = 5;

const EQUAL: &str = "equal";
const DIFFERENT: &str = "different";
const NONE: &str = "none";

/// Kind of difference between a recorded thread and its run in the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum TrialChange {
    /// The final payloads, the events before them and the prompts are equal.
    #[serde(rename = "none")]
    Nothing,
    /// The final payloads are equal, but the events before them or the prompts differ.
    #[serde(rename = "course")]
    Course,
    /// The final payloads differ, and the judge decided that they mean the same.
    #[serde(rename = "wording")]
    Wording,
    #[serde(rename = "finals")]
    Finals,
}

/// A recorded thread that the trial has run again.
#[derive(Debug, Serialize)]
struct TriedThread {
    #[serde(rename = "thread")]
    thread: ThreadId,
    #[serde(rename = "change")]
    change: TrialChange,
    #[serde(rename = "first")]
    first: Option<FirstDifference>,
    /// Number of pairs of prompts that were not compared, because only a limited number of pairs is
    /// compared.
    #[serde(rename = "uncompared_prompts")]
    uncompared: u64,
    /// Decision of the judge; `None` if the final payloads are equal or the trial has no judge.
    #[serde(rename = "judge")]
    judgement: Option<JudgementOutput>,
    #[serde(rename = "a")]
    before: ThreadTotals,
    #[serde(rename = "b")]
    after: ThreadTotals,
}

/// The decision of the judge about a thread.
#[derive(Debug, Serialize)]
struct JudgementOutput {
    /// `equal`, `different`, or `none` if the judge gave no verdict.
    #[serde(rename = "verdict")]
    verdict: &'static str,
    #[serde(rename = "reason")]
    reason: String,
    /// Thread of the judge's call, in the journal of the runs; `None` if the judge was not called.
    #[serde(rename = "thread")]
    thread: Option<ThreadId>,
    #[serde(rename = "spent")]
    spent: Spending,
}

/// Sums over all judgements of the trial.
#[derive(Debug, Default, Serialize)]
struct JudgementSums {
    #[serde(rename = "equal")]
    equal: usize,
    #[serde(rename = "different")]
    different: usize,
    #[serde(rename = "none")]
    none: usize,
    #[serde(rename = "spent")]
    spent: Spending,
}

/// A thread that the trial did not run, with the reason.
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
    /// Listeners that got calls without a recorded result.
    called_anew: HashSet<ListenerName>,
}

/// Sums of spending, model turns, refusals and durations over all threads of a trial. They cover
/// either the recorded threads or the runs of these threads in the trial.
#[derive(Debug, Default, Serialize)]
struct TrialSums {
    #[serde(rename = "spent")]
    spent: SpendingTotals,
    #[serde(rename = "turns")]
    turns: u64,
    #[serde(rename = "refusals")]
    refusals: u64,
    #[serde(rename = "ms")]
    ms: u64,
}

impl TrialReport {
    /// Compares a recorded thread, up to its record at `last`, with its run in the trial. Adds the
    /// result to the report.
    pub fn compare(
        &mut self,
        (recorded, own): (&JournalTarget, &JournalTarget),
        (thread, last): (&ThreadId, Position),
        schemas: &Schemas,
        judgement: Option<ResultsJudgement>,
    ) -> anyhow::Result<()> {
        let up_to = Some(RecordedMoment::Position(last));
        let before = diff::timeline(recorded, thread.as_str(), up_to)?;
        let after = diff::timeline(own, thread.as_str(), None)?;
        self.called_anew.extend(listeners_called_anew(&after, &before));
        let comparison = compare_threads(&before, &after);
        let mut uncompared = 0;
        let first = diff::first_difference(&comparison, recorded, own, &mut uncompared);
        let decision = judgement.as_ref().map(|judgement| judgement.decision);
        let is_same_meaning = decision == Some(JudgeDecision::Equal);
        let change = match (has_equal_finals(&before, &after, schemas), &first) {
            (false, _) if is_same_meaning => TrialChange::Wording,
            (false, _) => TrialChange::Finals,
            (true, Some(_)) => TrialChange::Course,
            (true, None) => TrialChange::Nothing,
        };
        self.tried.push(TriedThread {
            thread: thread.clone(),
            change,
            first,
            uncompared,
            judgement: judgement.map(JudgementOutput::of),
            before: comparison.left,
            after: comparison.right,
        });
        Ok(())
    }

    pub fn add_not_tried(&mut self, thread: &ThreadId, reason: String) {
        self.untried.push(UntriedThread { thread: thread.clone(), reason });
    }

    /// Returns the exit code of the trial, so that a trial can serve as a regression test:
    ///
    /// - `WorkflowFailed` if the final payloads of a thread differ from the recorded ones, and no
    ///   judge has decided that they mean the same.
    /// - Otherwise, `Unavailable` if the trial has not run some of the threads.
    /// - Otherwise, `Done`.
    pub fn exit(&self) -> CommandExit {
        if self.count(TrialChange::Finals) > 0 {
            CommandExit::WorkflowFailed
        } else if self.untried.is_empty() {
            CommandExit::Done
        } else {
            CommandExit::Unavailable
        }
    }

    /// Prints a line for each of the `live` listeners that got no call in the compared threads. The
    /// line makes no statement about the other threads, in which a call may have happened.
    pub fn note_uncalled(&self, live: &[ListenerName]) {
        if self.tried.is_empty() {
            return;
        }

        let untried = self.untried.len();
        for name in live.iter().filter(|name| !self.called_anew.contains(*name)) {
            if untried == 0 {
                note!(
                    "--live {name}: {name} was not called, because no thread of the trial has a \
                     call to it without a recorded result"
                );
            } else {
                note!(
                    "--live {name}: no compared thread has a call to {name} without a recorded \
                     result; {untried} not tried"
                );
            }
        }
    }

    fn count(&self, change: TrialChange) -> usize {
        self.tried.iter().filter(|own| own.change == change).count()
    }

    fn sums(&self, side: fn(&TriedThread) -> &ThreadTotals) -> TrialSums {
        let mut sums = TrialSums::default();
        for totals in self.tried.iter().map(side) {
            sums.spent.add_all(&totals.spent);
            sums.turns += totals.turns;
            sums.refusals += totals.refusals;
            sums.ms += totals.ms;
        }
        sums
    }

    fn judgement_sums(&self) -> Option<JudgementSums> {
        let mut sums = JudgementSums::default();
        let mut judgements = self.tried.iter().filter_map(|own| own.judgement.as_ref()).peekable();
        judgements.peek()?;
        for judgement in judgements {
            match judgement.verdict {
                EQUAL => sums.equal += 1,
                DIFFERENT => sums.different += 1,
                _ => sums.none += 1,
            }
            sums.spent = sums.spent.plus(judgement.spent);
        }
        Some(sums)
    }

    pub fn print(&self, is_json: bool, is_full: bool) -> anyhow::Result<()> {
        if is_json {
            return put_visible_json(&serde_json::json!({
                "threads": self.tried,
                "not_tried": self.untried,
                "total": {
                    "equal": self.count(TrialChange::Nothing),
                    "course": self.count(TrialChange::Course),
                    "wording": self.count(TrialChange::Wording),
                    "finals": self.count(TrialChange::Finals),
                    "not_tried": self.untried.len(),
                    "judge": self.judgement_sums(),
                    "a": self.sums(|own| &own.before),
                    "b": self.sums(|own| &own.after),
                },
            }));
        }

        let output = RenderOutput::stdout(is_full);
        let differences = self.differences(&output);
        let judgements = self.judgements(&output);
        put(&format!("{differences}{judgements}{}", self.rows(&output)))?;
        for UntriedThread { thread, reason } in &self.untried {
            note!("{thread} was not tried: {reason}");
        }
        note!("{}", self.summary());
        Ok(())
    }

    /// Draws the first difference of each changed thread; without `--full`, only for a limited
    /// number of threads. Threads whose final payloads differ come first, unless the judge has
    /// decided that these payloads have the same meaning.
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

    /// Draws the judge's decisions, each with its reason.
    fn judgements(&self, output: &RenderOutput) -> String {
        let judged = self.tried.iter().filter_map(|own| {
            let judgement = own.judgement.as_ref()?;
            let reason = judgement.reason.split_whitespace().collect::<Vec<_>>().join(" ");
            Some(vec![own.thread.to_string(), judgement.verdict.to_owned(), visible(&reason)])
        });
        let rows: Vec<_> = judged.collect();
        if rows.is_empty() {
            return String::new();
        }
        format!("{}\n", table(output, &["thread", "judge", "reason"], &rows))
    }

    fn rows(&self, output: &RenderOutput) -> String {
        let headers = ["thread", "changed", ">cost", ">tokens", ">turns", ">refusals", ">time"];
        let mut rows: Vec<Vec<String>> = self.tried.iter().map(TriedThread::row).collect();
        let before = self.sums(|own| &own.before);
        let after = self.sums(|own| &own.after);
        let money = |sums: &TrialSums| visible(&sums.spent.money.to_string());
        let time = |ms| duration(std::time::Duration::from_millis(ms));
        rows.push(vec![
            "total".to_owned(),
            format!("{} of {}", self.count(TrialChange::Finals), self.tried.len()),
            pair(money(&before), money(&after)),
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
        let wording = match self.count(TrialChange::Wording) {
            0 => String::new(),
            wording => format!("{wording} with finals that mean the same, "),
        };
        format!(
            "{}: {finals} with other finals, {wording}{course} with equal finals after another course, {equal} \
             unchanged{untried}",
            count(self.tried.len() as u64, "thread")
        )
    }
}

impl JudgementOutput {
    fn of(judgement: ResultsJudgement) -> Self {
        let ResultsJudgement { decision, reason, thread, spent } = judgement;
        let verdict = match decision {
            JudgeDecision::Equal => EQUAL,
            JudgeDecision::Different => DIFFERENT,
            JudgeDecision::None => NONE,
        };
        Self { verdict, reason, thread, spent }
    }
}

impl TriedThread {
    fn row(&self) -> Vec<String> {
        let Self { before, after, .. } = self;
        let change = match self.change {
            TrialChange::Nothing => "",
            TrialChange::Course => "course",
            TrialChange::Wording => "wording",
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

/// Formats two values as `before → after`. If they are equal, returns one of them.
fn pair(before: String, after: String) -> String {
    if before == after { before } else { format!("{before} → {after}") }
}
