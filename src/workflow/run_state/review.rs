//! Reviews of an output before it becomes a result: a verifier judges the output first, and then a
//! supervisor.

use super::super::definition::{AskForm, GoalForm, ItemVerification};
use super::super::verdicts::SupervisorVerdict;
use super::super::view::{ViewEntry, ViewValue};
use super::context::body;
use super::{
    GoalFailure, GoalRun, GoalState, OutputReview, PartResult, RunKind, RunPart, WorkflowRun,
};

impl<'a> WorkflowRun<'a> {
    /// Sends the output of a goal run of the kind `Work` to the verifier. If the goal has no
    /// verifier, the output counts as verified.
    pub(super) fn worked(&mut self, run: &GoalRun, output: ViewValue) {
        if self.item_check(run).is_none() {
            return self.passed(run, output);
        }

        if let Some(review) = self.review_mut(run) {
            review.attempt = run.attempt;
            review.output = Some(output);
        }
        self.start_run(GoalRun { kind: RunKind::Verify, attempt: 1, ..run.clone() });
    }

    /// Handles `verdict`, in which a verifier has judged the output of an item. Accepts this
    /// output, runs the item again with `verdict` as a correction, or fails the item.
    pub(super) fn verified(&mut self, run: &GoalRun, verdict: ViewValue) {
        let Some(check) = self.item_check(run) else { return };
        let item = self.item_of(run).map(|item| ViewEntry::new("item", item.clone()));
        let judged = ViewEntry::new(check.goal.value.as_str(), verdict.clone());
        let accept = check.accept.value.as_str();
        let view = self.view_with(run.goal, item.into_iter().chain([judged]), &[accept]);
        let is_accepted = view.and_then(|view| view.is_true(accept));
        let is_accepted = match is_accepted {
            Ok(is_accepted) => is_accepted,
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
            return self.passed(run, output);
        }

        review.corrections.push(body(&verdict));
        if attempt <= retry {
            let kind = RunKind::Work;
            return self.start_run(GoalRun { attempt: attempt + 1, kind, ..run.clone() });
        }
        let reason = format!("`{}` did not accept its output", check.goal.value);
        self.end_part(run, PartResult::Failed(GoalFailure::new("not-accepted", reason)));
    }

    /// Handles an output that a verifier accepted, or that needs no verification. If the output is
    /// that of an item, sends it to the supervisor, who judges each item. Without a supervisor,
    /// accepts it. Any other output becomes the result of its part of the goal, because the
    /// supervisor judges only the output of the whole goal.
    fn passed(&mut self, run: &GoalRun, output: ViewValue) {
        match run.part {
            RunPart::Item(_) => self.supervise(run, output),
            RunPart::Whole | RunPart::Agent(_) => {
                self.end_part(run, PartResult::Completed(output));
            }
        }
    }

    /// Sends the output of an item or of the whole goal to the goal's supervisor. If the goal has
    /// no supervisor, accepts the output.
    pub(super) fn supervise(&mut self, run: &GoalRun, output: ViewValue) {
        let is_supervised =
            self.graph.goal(run.goal).is_some_and(|goal| goal.supervision.is_some());
        let review = self.review_mut(run).filter(|_| is_supervised);
        let Some(review) = review else { return self.count(run, output) };
        review.output = Some(output);
        self.start_run(GoalRun { kind: RunKind::Supervise, attempt: 1, ..run.clone() });
    }

    /// Applies the verdict of a supervisor to the output under review.
    pub(super) fn supervised(&mut self, run: &GoalRun, verdict: &ViewValue) {
        let supervision = self.graph.goal(run.goal).and_then(|goal| goal.supervision.as_ref());
        let (Some(supervision), Some(review)) = (supervision, self.review_mut(run)) else { return };
        let output = review.output.take();
        let supervisor = &supervision.supervisor.value;

        match (SupervisorVerdict::read(verdict), output) {
            (Some(SupervisorVerdict::Continue), Some(output)) => self.count(run, output),
            (Some(SupervisorVerdict::Correct(text)), _)
                if review.corrected < supervision.corrections =>
            {
                review.corrected += 1;
                review.corrections.push(text);
                self.start_corrected(run);
            }
            (Some(SupervisorVerdict::Correct(text)), _) => {
                let most = supervision.corrections;
                let reason = format!("`{supervisor}` corrected it more than {most} times: {text}");
                self.fail_reviewed(run, GoalFailure::new("corrections-spent", reason));
            }
            (Some(SupervisorVerdict::Stop(text)), _) => {
                let reason = format!("`{supervisor}` stopped it: {text}");
                self.fail_reviewed(run, GoalFailure::new("stopped", reason));
            }
            (None | Some(SupervisorVerdict::Continue), _) => {
                let reason = format!("`{supervisor}` gave no verdict");
                self.fail_reviewed(run, GoalFailure::new("bad-answer", reason));
            }
        }
    }

    /// Accepts an output as the final result of an item or of the whole goal.
    fn count(&mut self, run: &GoalRun, output: ViewValue) {
        match run.part {
            RunPart::Item(_) => self.end_part(run, PartResult::Completed(output)),
            RunPart::Whole | RunPart::Agent(_) => self.end(run.goal, Some(output)),
        }
    }

    /// Runs an item or the whole goal again after a correction. The new goal runs have new threads,
    /// and their attempts are counted from 1 again.
    fn start_corrected(&mut self, run: &GoalRun) {
        if let RunPart::Item(_) = run.part {
            let kind = RunKind::Work;
            return self.start_run(GoalRun { attempt: 1, kind, ..run.clone() });
        }

        if let Some(progress) = self.progress(run.goal) {
            progress.results.clear();
            progress.repeated_votes = 0;
        }
        self.start_form(run.goal);
    }

    /// Fails an item or the whole goal, because its output did not pass the review.
    fn fail_reviewed(&mut self, run: &GoalRun, failure: GoalFailure) {
        match run.part {
            RunPart::Item(_) => self.end_part(run, PartResult::Failed(failure)),
            RunPart::Whole | RunPart::Agent(_) => self.fail(run.goal, failure),
        }
    }

    /// Fails the reviewed item or the whole goal, because a verifier or supervisor failed and has
    /// no retries left.
    pub(super) fn review_failed(&mut self, run: &GoalRun, failure: GoalFailure) {
        let reviewer = match run.kind {
            RunKind::Supervise => "its supervisor".to_owned(),
            _ => {
                let verifier = self.graph.goal(self.subject(run));
                verifier.map(|goal| format!("`{}`", goal.id.value)).unwrap_or_default()
            }
        };
        let reason = format!("{reviewer} failed: {}", failure.reason);
        self.fail_reviewed(run, GoalFailure { reason, ..failure });
    }

    /// Returns the verification that the items of the goal must pass; `None` if the goal has no
    /// verification.
    fn item_check(&self, run: &GoalRun) -> Option<&'a ItemVerification> {
        match &self.graph.goal(run.goal)?.form {
            GoalForm::Each(each) => each.verify.as_ref(),
            _ => None,
        }
    }

    /// Returns the corrections that the document of a goal run shows.
    pub(super) fn corrections(&self, run: &GoalRun) -> Vec<String> {
        match run.kind {
            RunKind::Work | RunKind::Supervise => {
                let given = self.given_corrections(run.goal, position_of(run));
                let review = self.review(run).into_iter();
                given.chain(review.flat_map(|review| &review.corrections)).cloned().collect()
            }
            RunKind::Verify | RunKind::Judge(_) => Vec::new(),
        }
    }

    /// Keeps the corrections from `reviews`, the ended reviews of the goal `number`, if a person
    /// can still correct this goal. Each review comes with its position. After a person's
    /// correction, the document of the goal shows the kept corrections again.
    pub(super) fn keep_reviews(
        &mut self,
        number: usize,
        reviews: impl IntoIterator<Item = (usize, OutputReview)>,
    ) {
        let reviews = reviews.into_iter();
        let corrections = reviews.map(|(position, review)| (position, review.corrections));
        let is_corrected = |(_, corrections): &(usize, Vec<String>)| !corrections.is_empty();
        let corrections: Vec<_> = corrections.filter(is_corrected).collect();
        if !corrections.is_empty() && self.is_correctable(number) {
            self.state.reviewed.entry(number).or_default().extend(corrections);
        }
    }

    /// Whether a question lets a person correct the goal.
    fn is_correctable(&self, number: usize) -> bool {
        self.definition.goals.iter().any(|goal| match &goal.form {
            GoalForm::Ask { form: AskForm::Verdict { about: Some(about) }, .. } => {
                self.graph.number(&about.value) == Some(number)
            }
            _ => false,
        })
    }

    pub(super) fn review(&self, run: &GoalRun) -> Option<&OutputReview> {
        match self.goal_state(run.goal) {
            GoalState::Running(progress) => progress.reviews.get(&position_of(run)),
            _ => None,
        }
    }

    fn review_mut(&mut self, run: &GoalRun) -> Option<&mut OutputReview> {
        Some(self.progress(run.goal)?.reviews.entry(position_of(run)).or_default())
    }
}

/// Returns the position of the review to which a goal run belongs: the position of its item or,
/// without an item, 0.
fn position_of(run: &GoalRun) -> usize {
    match run.part {
        RunPart::Item(position) => position,
        RunPart::Whole | RunPart::Agent(_) => 0,
    }
}
