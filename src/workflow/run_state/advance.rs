//! Advances a run: starts goals, handles their ends, and ends the run.

use std::time::Duration;

use crate::schema::XPathError;

use super::super::definition::{FailurePolicy, GoalCondition, GoalForm, LoopEnd, WorkflowOutput};
use super::super::graph::MemberKind;
use super::super::verdicts::read_judgement;
use super::super::view::ViewValue;
use super::{
    GoalFailure, GoalProgress, GoalRun, GoalState, PartResult, RunKind, RunOutput, RunPart,
    RunStep, WorkflowRun,
};

impl WorkflowRun<'_> {
    /// Starts every goal that can start. Then completes the run, if every goal that is no member of
    /// another goal has ended.
    pub(super) fn advance(&mut self) {
        loop {
            if self.state.is_over {
                return;
            }

            let ready = (0..self.state.goals.len()).find(|number| self.can_start(*number));
            match ready {
                Some(number) => self.start(number, 0),
                None => break,
            }
        }

        let is_top = |number: &usize| self.graph.membership(*number).is_none();
        if (0..self.state.goals.len())
            .filter(is_top)
            .all(|number| self.goal_state(number).has_ended())
        {
            self.complete();
        }
    }

    fn can_start(&self, number: usize) -> bool {
        self.graph.membership(number).is_none()
            && *self.goal_state(number) == GoalState::Waiting
            && self.graph.direct_needs(number).iter().all(|need| self.goal_state(*need).has_ended())
    }

    /// Starts a goal. `iteration` is the present pass of the loop that contains the goal, counted
    /// from 1; 0 outside of a loop.
    pub(super) fn start(&mut self, number: usize, iteration: u32) {
        let progress = GoalProgress { iteration, ..GoalProgress::default() };
        self.set(number, GoalState::Running(Box::new(progress)));
        self.start_form(number);
    }

    /// Handles the output of a goal run.
    pub(super) fn completed(&mut self, run: &GoalRun, output: ViewValue) {
        match run.kind {
            RunKind::Work => self.worked(run, output),
            RunKind::Verify => self.verified(run, output),
            RunKind::Supervise => self.supervised(run, &output),
            RunKind::Judge(position) => self.judgement_came(run.goal, position, &output),
        }
    }

    /// Handles the failure of a goal run. If `is_final` is not set and the goal's `retry` setting
    /// allows another attempt, starts this attempt. Otherwise, the failure of a judge fails the
    /// whole goal, and any other failure fails the agent, item or review. Each agent or item has
    /// its own number of retries.
    pub(super) fn failed(&mut self, run: &GoalRun, failure: GoalFailure, is_final: bool) {
        let retry = self.graph.goal(self.subject(run)).map_or(0, |goal| goal.retry);
        if !is_final && run.attempt <= retry {
            return self.start_run(GoalRun { attempt: run.attempt + 1, ..run.clone() });
        }

        match run.kind {
            RunKind::Work => self.end_part(run, PartResult::Failed(failure)),
            RunKind::Verify | RunKind::Supervise => self.review_failed(run, failure),
            RunKind::Judge(_) => self.fail(run.goal, failure),
        }
    }

    /// Ends the run as failed after its time limit `limit`, and cancels all open goal runs.
    pub(super) fn time_over(&mut self, limit: Duration) {
        let running = |number: &usize| matches!(self.goal_state(*number), GoalState::Running(_));
        let number = (0..self.state.goals.len()).rev().find(running).unwrap_or_default();
        let reason = format!("the time of the run, {} s, is over", limit.as_secs_f64());
        let is_undone = self.definition.on_failure == FailurePolicy::Undo;
        self.stop(number, GoalFailure::new("timeout", reason), is_undone);
    }

    pub(super) fn end(&mut self, number: usize, output: Option<ViewValue>) {
        self.set(number, GoalState::Done(output));
        self.note_end(number);
    }

    pub(super) fn skip(&mut self, number: usize) {
        self.set(number, GoalState::Skipped);
        self.note_end(number);
    }

    /// Continues the goal that waits for the goal `number`, which has ended or was skipped:
    /// - If the goal `number` is a member of a loop or a choice, the next member starts.
    /// - If it is the fallback of a failed goal, this failed goal ends.
    /// - If it is a verifier, or a member of no other goal, nothing happens.
    fn note_end(&mut self, number: usize) {
        let Some(membership) = self.graph.membership(number) else { return };
        match membership.kind {
            MemberKind::Loop { .. } => self.next_of_loop(membership.owner),
            MemberKind::Branch { .. } => self.next_of_branch(membership.owner),
            // The replaced goal has waited for the end of its fallback.
            MemberKind::Fallback => self.skip(membership.owner),
            MemberKind::Verify => {}
        }
    }

    /// Applies the failure policy of a goal that has failed and is not retried. If the run ignores
    /// failures, the goal stays under way instead.
    pub(super) fn fail(&mut self, number: usize, failure: GoalFailure) {
        if self.ignores_failures {
            return;
        }

        self.cancel_open(number);
        let Some(goal) = self.graph.goal(number) else { return };
        match goal.on_failure.as_ref().unwrap_or(&self.definition.on_failure) {
            FailurePolicy::Skip => self.skip(number),
            FailurePolicy::Goal(_) => {
                // The passes of a loop are its own, and its fallback runs in none of them.
                let iteration = match goal.form {
                    GoalForm::Loop { .. } => 0,
                    _ => self.iteration_of(number),
                };
                self.set(number, GoalState::Replaced);
                match self.graph.fallback(number) {
                    Some(fallback) => self.start(fallback, iteration),
                    None => self.skip(number),
                }
            }
            policy => {
                let is_undone = *policy == FailurePolicy::Undo;
                self.stop(number, failure, is_undone);
            }
        }
    }

    pub(super) fn iteration_of(&self, number: usize) -> u32 {
        match self.goal_state(number) {
            GoalState::Running(progress) => progress.iteration,
            _ => 0,
        }
    }

    fn cancel_open(&mut self, number: usize) {
        if let Some(progress) = self.progress(number) {
            let open = std::mem::take(&mut progress.open);
            self.cancel(open);
        }
    }

    /// Cancels the threads of `runs`. Ignores a goal run that has no thread because its call could
    /// not be built.
    pub(super) fn cancel(&mut self, runs: Vec<GoalRun>) {
        let has_thread = |run: &GoalRun| !self.unstartable.iter().any(|(failed, _)| failed == run);
        let runs: Vec<_> = runs.into_iter().filter(has_thread).collect();
        self.steps.extend(runs.into_iter().map(|run| RunStep::Cancel { run }));
    }

    /// Ends the workflow run as failed because of the goal `number`, and cancels all open goal
    /// runs. If `is_undone` is set, the completed calls of the run are undone.
    fn stop(&mut self, number: usize, failure: GoalFailure, is_undone: bool) {
        let Some(goal) = self.graph.goal(number) else { return };
        (0..self.state.goals.len()).for_each(|other| self.cancel_open(other));
        let goal = goal.id.value.clone();
        self.steps.push(RunStep::Fail { goal, failure, is_undone });
        self.state.is_over = true;
    }

    /// Starts the next member of a loop. After the last member, records the outputs of the pass and
    /// judges the loop's condition.
    pub(super) fn next_of_loop(&mut self, number: usize) {
        let Some(goal) = self.graph.goal(number) else { return };
        let GoalForm::Loop { until, .. } = &goal.form else { return };
        let Some(progress) = self.progress(number) else { return };
        let iteration = progress.iteration;
        progress.position += 1;
        if let Some(member) = progress.members.get(progress.position).copied() {
            return self.start(member, iteration);
        }

        let beneath = self.graph.beneath(number);
        let outputs = beneath.iter().filter_map(|member| {
            self.goal_state(*member).output().map(|output| (*member, output.clone()))
        });
        let pass: Vec<_> = outputs.collect();
        self.state.passes.entry(number).or_default().push(pass);
        match self.judge_condition(number, 0, until) {
            Err(error) => self.fail(number, GoalFailure::of_expression(&error)),
            Ok(Some(is_met)) => self.pass_judged(number, is_met),
            // The answer of the judge will decide.
            Ok(None) => {}
        }
    }

    /// Ends or fails a loop, or queues its next pass. `is_met` states whether the loop's condition
    /// is met after the present pass.
    fn pass_judged(&mut self, number: usize, is_met: bool) {
        let Some(goal) = self.graph.goal(number) else { return };
        let GoalForm::Loop { max, at_max, .. } = &goal.form else { return };
        if is_met {
            return self.end(number, None);
        }
        if self.iteration_of(number) < *max {
            return self.next_passes.push_back(number);
        }

        match at_max {
            LoopEnd::Continue => self.end(number, None),
            LoopEnd::Fail => {
                let reason = format!("its condition did not hold after {max} passes");
                self.fail(number, GoalFailure::new("iterations-spent", reason));
            }
        }
    }

    /// Starts the next pass of a loop.
    pub(super) fn start_pass(&mut self, number: usize) {
        let Some(progress) = self.progress(number) else { return };
        progress.iteration += 1;
        progress.position = 0;
        let iteration = progress.iteration;
        let first = progress.members.first().copied();
        // The outputs of earlier passes are in `passes`; this pass has none yet.
        for member in self.graph.beneath(number) {
            self.set(member, GoalState::Waiting);
            self.state.corrections.remove(&member);
            self.state.reviewed.remove(&member);
        }
        if let Some(first) = first {
            self.start(first, iteration);
        }
    }

    /// Handles the answer of a judge about the condition of a loop, or of the branch at `position`.
    fn judgement_came(&mut self, number: usize, position: usize, output: &ViewValue) {
        let Some(is_met) = read_judgement(output) else {
            let failure = GoalFailure::new("bad-answer", "its judge answered neither yes nor no");
            return self.fail(number, failure);
        };
        match self.graph.goal(number).map(|goal| &goal.form) {
            Some(GoalForm::Loop { .. }) => self.pass_judged(number, is_met),
            Some(GoalForm::Choose(branches)) if is_met => {
                if let Some(branch) = branches.get(position) {
                    self.take_branch(number, branch);
                }
            }
            Some(GoalForm::Choose(branches)) => self.choose(number, branches, position + 1),
            _ => {}
        }
    }

    fn next_of_branch(&mut self, number: usize) {
        let Some(progress) = self.progress(number) else { return };
        progress.position += 1;
        let iteration = progress.iteration;
        match progress.members.get(progress.position).copied() {
            Some(member) => self.start(member, iteration),
            None => self.end(number, None),
        }
    }

    /// Evaluates a condition of the goal `number`, and returns its value. If a judge has to decide
    /// the condition, opens a thread for the judge and returns `None`. For a choice, `position` is
    /// the position of the condition's branch.
    pub(super) fn judge_condition(
        &mut self,
        number: usize,
        position: usize,
        condition: &GoalCondition,
    ) -> Result<Option<bool>, XPathError> {
        match condition {
            GoalCondition::XPath(expression) => {
                let expression = expression.value.as_str();
                self.view_with(number, None, &[expression])?.is_true(expression).map(Some)
            }
            GoalCondition::Judge { .. } => {
                let iteration = self.iteration_of(number);
                let kind = RunKind::Judge(position);
                let part = RunPart::Whole;
                self.start_run(GoalRun { goal: number, iteration, part, attempt: 1, kind });
                Ok(None)
            }
        }
    }

    fn complete(&mut self) {
        let output = self.output();
        let step = match output {
            Ok(Some(output)) => RunStep::Complete { output },
            Ok(None) => {
                let reason = "the output of the workflow selects nothing";
                self.without_output(GoalFailure::new("no-output", reason))
            }
            Err(error) => self.without_output(GoalFailure::of_expression(&error)),
        };
        self.steps.push(step);
        self.state.is_over = true;
    }

    fn without_output(&self, failure: GoalFailure) -> RunStep {
        let last = self.definition.goals.last().map(|goal| goal.id.value.clone());
        match last {
            Some(goal) => {
                let is_undone = self.definition.on_failure == FailurePolicy::Undo;
                RunStep::Fail { goal, failure, is_undone }
            }
            None => RunStep::Complete { output: RunOutput::Table(Vec::new()) },
        }
    }

    fn output(&self) -> Result<Option<RunOutput>, XPathError> {
        match &self.definition.output {
            WorkflowOutput::LastGoal => {
                let last = self.graph.last_output();
                let output = last.and_then(|number| self.goal_state(number).output());
                Ok(output.cloned().map(RunOutput::One))
            }
            WorkflowOutput::One(expression) => {
                let view = self.whole_view()?;
                Ok(view.select(&expression.value)?.map(RunOutput::One))
            }
            WorkflowOutput::Table(table) => {
                let view = self.whole_view()?;
                let mut selected = Vec::new();
                for (name, expression) in table {
                    if let Some(value) = view.select(&expression.value)? {
                        selected.push((name.clone(), value));
                    }
                }
                Ok(Some(RunOutput::Table(selected)))
            }
        }
    }
}
