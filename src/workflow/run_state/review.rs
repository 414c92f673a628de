//! Reviews: what an item's output has to pass before it counts.

use super::super::definition::{GoalForm, ItemCheck};
use super::super::view::{ViewEntry, ViewValue};
use super::context::body;
use super::{
    GoalFailure, GoalRun, GoalState, ItemReview, PartResult, RunKind, RunPart, WorkflowRun,
};

impl<'a> WorkflowRun<'a> {
    /// Takes the output of a run that carries its goal out.
    pub(super) fn worked(&mut self, run: &GoalRun, output: ViewValue) {
        if self.item_check(run).is_none() {
            return self.end_part(run, PartResult::Completed(output));
        }

        if let Some(review) = self.review_mut(run) {
            review.attempt = run.attempt;
            review.output = Some(output);
        }
        self.start_run(GoalRun { kind: RunKind::Verify, attempt: 1, ..run.clone() });
    }

    /// Takes the output of a verification: the item's output counts, or the item runs once more with
    /// the verification as its correction, or it has failed.
    pub(super) fn verified(&mut self, run: &GoalRun, verdict: ViewValue) {
        let Some(check) = self.item_check(run) else { return };
        let item = self.item_of(run).map(|item| ViewEntry::new("item", item.clone()));
        let judged = ViewEntry::new(check.goal.value.as_str(), verdict.clone());
        let view = self.view_with(run.goal, item.into_iter().chain([judged]));
        let is_accepted = view.and_then(|view| view.evaluate(&check.accept.value));
        let is_accepted = match is_accepted {
            Ok(value) => value.is_true(),
            Err(error) => {
                let failure = GoalFailure::of_expression(&error);
                return self.end_part(run, PartResult::Failed(failure));
            }
        };

        let retry = self.graph.goal(run.goal).map_or(0, |goal| goal.retry);
        let Some(review) = self.review_mut(run) else { return };
        let output = review.output.take();
        let attempt = review.attempt;
        if is_accepted {
            let output = output.unwrap_or_else(|| ViewValue::Text(String::new()));
            return self.end_part(run, PartResult::Completed(output));
        }

        review.corrections.push(body(&verdict));
        if attempt <= retry {
            let kind = RunKind::Work;
            return self.start_run(GoalRun { attempt: attempt + 1, kind, ..run.clone() });
        }
        let reason = format!("`{}` did not accept its output", check.goal.value);
        self.end_part(run, PartResult::Failed(GoalFailure::new("not-accepted", reason)));
    }

    /// The failure of a goal whose review has failed.
    pub(super) fn failure_of_review(&self, run: &GoalRun, failure: GoalFailure) -> GoalFailure {
        let reviewer = self.graph.goal(self.subject(run)).map(|goal| goal.id.value.to_string());
        let reason = format!("{}: {}", reviewer.unwrap_or_default(), failure.reason);
        GoalFailure { reason, ..failure }
    }

    /// The check that the output of a run has to pass.
    fn item_check(&self, run: &GoalRun) -> Option<&'a ItemCheck> {
        match &self.graph.goal(run.goal)?.form {
            GoalForm::Each(each) => each.verify.as_ref(),
            _ => None,
        }
    }

    /// The corrections that the document of a run shows.
    pub(super) fn corrections(&self, run: &GoalRun) -> Vec<String> {
        match run.kind {
            RunKind::Work => {
                self.review(run).map(|review| review.corrections.clone()).unwrap_or_default()
            }
            RunKind::Verify => Vec::new(),
        }
    }

    pub(super) fn review(&self, run: &GoalRun) -> Option<&ItemReview> {
        match (self.goal_state(run.goal), run.part) {
            (GoalState::Running(progress), RunPart::Item(position)) => {
                progress.reviews.get(&position)
            }
            _ => None,
        }
    }

    fn review_mut(&mut self, run: &GoalRun) -> Option<&mut ItemReview> {
        let RunPart::Item(position) = run.part else { return None };
        Some(self.progress(run.goal)?.reviews.entry(position).or_default())
    }
}
