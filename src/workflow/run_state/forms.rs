//! Carries out goals according to their forms, such as `each` or a loop: what each form starts, and
//! how it uses the results.

use std::collections::BTreeMap;

use crate::ids::ListenerName;
use crate::schema::{XPathDocument, XPathError, XPathValue};
use crate::xml::element::Element;

use super::super::definition::{AskForm, ChooseBranch, EachItem, GoalForm, ItemFailure, Placed};
use super::super::run_definition::RunRules;
use super::super::shapes::labels;
use super::super::view::{ViewEntry, ViewValue, is_text};
use super::{GoalFailure, GoalRun, GoalState, PartResult, RunKind, RunPart, RunStep, WorkflowRun};

impl WorkflowRun<'_> {
    /// Begins the work of a goal. Depending on the goal's form, opens its goal runs, starts the
    /// first member of its loop, or chooses its branch.
    pub(super) fn start_form(&mut self, number: usize) {
        let Some(goal) = self.graph.goal(number) else { return };
        match &goal.form {
            GoalForm::Run(_) | GoalForm::Ask { .. } => self.start_part(number, RunPart::Whole),
            GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => {
                for position in 0..agents.len() {
                    self.start_part(number, RunPart::Agent(position));
                }
            }
            GoalForm::Each(each) => self.start_each(number, each),
            GoalForm::Loop { .. } => self.start_members(number, self.graph.members(number), 1),
            GoalForm::Choose(branches) => self.choose(number, branches, 0),
        }
    }

    /// Takes the first branch of a choice whose condition is true, beginning at `position`. If no
    /// condition is true, skips the goal. If a judge has to decide a condition, returns early, and
    /// the judge's answer later continues the search.
    pub(super) fn choose(&mut self, number: usize, branches: &[ChooseBranch], position: usize) {
        for (position, branch) in branches.iter().enumerate().skip(position) {
            let is_met = match &branch.when {
                Some(condition) => self.judge_condition(number, position, condition),
                None => Ok(Some(true)),
            };
            match is_met {
                Ok(Some(false)) => {}
                Ok(Some(true)) => return self.take_branch(number, branch),
                Ok(None) => return,
                Err(error) => return self.fail(number, GoalFailure::of_expression(&error)),
            }
        }

        self.skip(number);
    }

    pub(super) fn take_branch(&mut self, number: usize, branch: &ChooseBranch) {
        let run = branch.run.iter().filter_map(|id| self.graph.number(&id.value)).collect();
        self.start_members(number, run, self.iteration_of(number));
    }

    fn start_members(&mut self, number: usize, members: Vec<usize>, iteration: u32) {
        let first = members.first().copied();
        if let Some(progress) = self.progress(number) {
            progress.members = members;
            progress.iteration = iteration;
        }
        match first {
            Some(first) => self.start(first, iteration),
            None => self.end(number, None),
        }
    }

    fn start_part(&mut self, number: usize, part: RunPart) {
        let Some(progress) = self.progress(number) else { return };
        let iteration = progress.iteration;
        let kind = RunKind::Work;
        self.start_run(GoalRun { goal: number, iteration, part, attempt: 1, kind });
    }

    /// Opens a thread for a goal run. If the call of the goal run cannot be built, queues the
    /// failure of the goal run.
    pub(super) fn start_run(&mut self, run: GoalRun) {
        let call = self.call(&run);
        let label = self.label(&run);
        let limits = self.limits(&run);
        let Some(progress) = self.progress(run.goal) else { return };
        progress.open.push(run.clone());
        match call {
            Ok(call) => self.steps.push(RunStep::Start { run, label, call, limits }),
            Err(error) => {
                self.unstartable.push_back((run, GoalFailure::of_expression(&error)));
            }
        }
    }

    fn start_each(&mut self, number: usize, each: &EachItem) {
        let view = self.view_with(number, None, &[&each.items.value]);
        let has_text_items = self.state.rules <= RunRules::TextItems;
        let items = view.and_then(|view| view.items(&each.items.value, has_text_items));
        let items = match items {
            Ok(items) => items,
            Err(error) => return self.fail(number, GoalFailure::of_expression(&error)),
        };
        if items.len() > usize::try_from(each.max_items).unwrap_or(usize::MAX) {
            let reason =
                format!("{} items are more than max_items = {}", items.len(), each.max_items);
            return self.fail(number, GoalFailure::new("too-many-items", reason));
        }
        if items.is_empty() {
            return self.end(number, Some(ViewValue::Several(Vec::new())));
        }

        if let Some(progress) = self.progress(number) {
            progress.items = items;
        }
        self.start_items(number, each);
    }

    /// Starts further items of a goal, until `concurrency` items are running or no items are left.
    fn start_items(&mut self, number: usize, each: &EachItem) {
        let most = usize::try_from(each.concurrency).unwrap_or(usize::MAX);
        while let Some(progress) = self.progress(number) {
            if progress.open.len() >= most || progress.next_item >= progress.items.len() {
                return;
            }

            let position = progress.next_item;
            progress.next_item += 1;
            self.start_part(number, RunPart::Item(position));
        }
    }

    /// Handles the result of a part of a goal: of one agent, of one item, or of the whole goal. If
    /// the run ignores failures, a failed part stays without a result.
    pub(super) fn end_part(&mut self, run: &GoalRun, result: PartResult) {
        if self.ignores_failures && matches!(result, PartResult::Failed(_)) {
            return;
        }

        let number = run.goal;
        let Some(goal) = self.graph.goal(number) else { return };
        let position = match run.part {
            RunPart::Whole => 0,
            RunPart::Agent(position) | RunPart::Item(position) => position,
        };

        let Some(progress) = self.progress(number) else { return };
        if matches!(goal.form, GoalForm::All { .. } | GoalForm::First { .. } | GoalForm::Each(_)) {
            progress.results.insert(position, result.clone());
        }
        if matches!(run.part, RunPart::Item(_)) {
            let review = progress.reviews.remove(&position);
            self.keep_reviews(number, review.map(|review| (position, review)));
        }

        match (&goal.form, result) {
            (GoalForm::All { agents, vote: None, .. }, PartResult::Completed(_)) => {
                self.end_all(number, agents);
            }
            (GoalForm::All { agents, vote: Some(by), .. }, _) => {
                self.end_vote(number, agents.len(), by);
            }
            (GoalForm::First { .. }, PartResult::Completed(output)) => {
                self.cancel_rest(number);
                self.finish(number, output);
            }
            (GoalForm::First { agents, .. }, PartResult::Failed(failure)) => {
                if self.result_count(number) == agents.len() {
                    self.fail(number, failure);
                }
            }
            (GoalForm::Each(each), result) => self.end_item(number, each, result),
            (
                GoalForm::Ask { form: AskForm::Verdict { about }, .. },
                PartResult::Completed(answer),
            ) => self.end_verdict(number, about.as_ref(), answer),
            (_, PartResult::Completed(output)) => self.finish(number, output),
            (_, PartResult::Failed(failure)) => self.fail(number, failure),
        }
    }

    fn result_count(&self, number: usize) -> usize {
        match self.goal_state(number) {
            GoalState::Running(progress) => progress.results.len(),
            _ => 0,
        }
    }

    /// Removes and returns the results of the goal's agents or items, by position.
    fn take_results(&mut self, number: usize) -> BTreeMap<usize, PartResult> {
        self.progress(number)
            .map(|progress| std::mem::take(&mut progress.results))
            .unwrap_or_default()
    }

    fn cancel_rest(&mut self, number: usize) {
        let open = self.progress(number).map(|progress| std::mem::take(&mut progress.open));
        self.cancel(open.unwrap_or_default());
    }

    fn end_all(&mut self, number: usize, agents: &[Placed<ListenerName>]) {
        if self.result_count(number) < agents.len() {
            return;
        }

        let outputs = labels(agents).into_iter().zip(self.take_results(number).into_values());
        let outputs = outputs.filter_map(|(name, result)| match result {
            PartResult::Completed(value) => Some(ViewEntry::new(&name, value)),
            PartResult::Failed(_) => None,
        });
        let outputs = outputs.collect();
        self.finish(number, ViewValue::Several(outputs));
    }

    /// Sends the output of the whole goal to the goal's supervisor. If the goal has no supervisor,
    /// accepts the output.
    fn finish(&mut self, number: usize, output: ViewValue) {
        let iteration = self.iteration_of(number);
        let part = RunPart::Whole;
        let kind = RunKind::Work;
        self.supervise(&GoalRun { goal: number, iteration, part, attempt: 1, kind }, output);
    }

    /// Ends a vote once all agents have a result; before that, does nothing. The vote of an agent
    /// is the value of the expression `by` for the agent's output. If more than half of the
    /// `voters` agents gave the same vote, the output of the goal is the first output with this
    /// vote. Otherwise, repeats the vote or fails the goal.
    fn end_vote(&mut self, number: usize, voters: usize, by: &Placed<String>) {
        if self.result_count(number) < voters {
            return;
        }

        let mut votes: Vec<(String, ViewValue)> = Vec::new();
        for result in self.take_results(number).into_values() {
            let PartResult::Completed(output) = result else { continue };
            match self.vote_of(&output, &by.value) {
                Ok(vote) => votes.push((vote, output)),
                Err(error) => return self.fail(number, GoalFailure::of_expression(&error)),
            }
        }

        let agreeing = |vote: &str| votes.iter().filter(|(other, _)| other == vote).count();
        let winner = votes.iter().find(|(vote, _)| agreeing(vote) * 2 > voters);
        match winner.map(|(_, output)| output.clone()) {
            Some(output) => self.finish(number, output),
            None => self.end_without_majority(number, voters, votes.len()),
        }
    }

    /// Ends a vote without a majority, in which `answered` of the `voters` have an output. If all
    /// voters have an output, all vote again, as often as the `retry` setting of the goal allows.
    /// Otherwise, the goal fails, because a voter that failed has no retry left. A run that began
    /// before core version 64 repeats no vote.
    fn end_without_majority(&mut self, number: usize, voters: usize, answered: usize) {
        let can_repeat = self.state.rules > RunRules::TextItems && answered == voters;
        let retry = self.graph.goal(number).map_or(0, |goal| goal.retry);
        if let Some(progress) = self.progress(number)
            && can_repeat
            && progress.repeated_votes < retry
        {
            progress.repeated_votes += 1;
            return self.start_form(number);
        }

        let reason = format!("no output has the votes of more than half of {voters} voters");
        self.fail(number, GoalFailure::new("no-majority", reason));
    }

    fn end_item(&mut self, number: usize, each: &EachItem, result: PartResult) {
        if let (PartResult::Failed(failure), ItemFailure::Stop) = (result, each.on_item_failure) {
            return self.fail(number, failure);
        }

        self.start_items(number, each);
        let Some(progress) = self.progress(number) else { return };
        if progress.results.len() < progress.items.len() {
            return;
        }

        let results = std::mem::take(&mut progress.results);
        let items = std::mem::take(&mut progress.items);
        let mut outputs = Vec::new();
        for (position, result) in results {
            match result {
                PartResult::Completed(value) => {
                    outputs.push(ViewEntry::of_item("item", position, value));
                }
                PartResult::Failed(failure) if each.on_item_failure == ItemFailure::Collect => {
                    let value = failed_item(position, &failure.code, items.get(position));
                    outputs.push(ViewEntry::of_item("failed", position, value));
                }
                PartResult::Failed(_) => {}
            }
        }
        self.end(number, Some(ViewValue::Several(outputs)));
    }

    /// Returns the vote in an output: the value of the expression `by`, evaluated on the output.
    fn vote_of(&self, output: &ViewValue, by: &str) -> Result<String, XPathError> {
        let element = match output {
            ViewValue::Text(text) => Element::local("output").with_text(text.clone()),
            ViewValue::Payload(payload) => (**payload).clone(),
            ViewValue::Several(_) | ViewValue::Elements(_) => Element::local("output"),
        };
        let document = XPathDocument::of_payload(&element)?.joining_texts(self.joins_texts());
        let document = document.refusing_plus_signs(self.refuses_plus_signs());
        document.evaluate(by).map(|value: XPathValue| value.to_text())
    }
}

/// Builds the entry for a failed item in the output of a goal: an element `failed` that contains a
/// copy of the item on which the goal ran. If the item has neither children nor attributes, the
/// element contains only the text of the item.
fn failed_item(position: usize, code: &str, item: Option<&ViewValue>) -> ViewValue {
    let failed = Element::local("failed")
        .with_attribute("n", (position + 1).to_string())
        .with_attribute("code", code);
    ViewValue::Payload(Box::new(match item {
        Some(ViewValue::Payload(item)) if is_text(item) => failed.with_text(item.text()),
        Some(ViewValue::Payload(item)) => failed.with_child((**item).clone()),
        Some(ViewValue::Text(text)) => failed.with_text(text.clone()),
        _ => failed,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::super::definition::examples::{goal, name, placed, workflow};
    use super::super::super::definition::{
        GoalCondition, GoalDefinition, GoalId, GoalTarget, PlaceId, WorkflowDefinition,
    };
    use super::super::super::graph::GoalGraph;
    use super::super::RunEvent;
    use super::*;

    /// Makes the goal `views` of two agents, with one retry.
    fn views(vote: Option<&str>) -> GoalDefinition {
        let agents = vec![placed(name("critic")), placed(name("lead"))];
        let prompt = placed("Judge it.".to_owned());
        let vote = vote.map(|by| placed(by.to_owned()));
        goal("views", GoalForm::All { agents, prompt, vote })
    }

    /// Runs the first goal of `definition`, on which two agents work. Their results are `answers`,
    /// in this order. Returns the steps of the run after the second result.
    fn steps_after(
        definition: &WorkflowDefinition,
        rules: RunRules,
        answers: [&str; 2],
    ) -> Vec<RunStep> {
        let (graph, _) = GoalGraph::new(definition);
        let mut run = WorkflowRun::new(definition, &graph, Element::local("flow"));
        run.set_rules(rules);
        let mut steps = Vec::new();
        for (step, answer) in run.step(RunEvent::Started).into_iter().zip(answers) {
            let RunStep::Start { run: goal_run, .. } = step else { panic!("{step:?}") };
            let output = ViewValue::Text(answer.to_owned());
            steps = run.step(RunEvent::Completed { run: goal_run, output });
        }
        steps
    }

    #[test]
    fn a_run_of_an_earlier_version_repeats_no_vote() {
        let definition = workflow(vec![views(Some("last-line(.)"))]);
        let present = steps_after(&definition, RunRules::Present, ["yes", "no"]);
        let [RunStep::Start { .. }, RunStep::Start { .. }] = present.as_slice() else {
            panic!("{present:?}")
        };
        let earlier = steps_after(&definition, RunRules::TextItems, ["yes", "no"]);
        let [RunStep::Fail { failure, .. }] = earlier.as_slice() else { panic!("{earlier:?}") };
        assert_eq!(failure.code, "no-majority");
    }

    #[test]
    fn a_run_of_an_earlier_version_searches_the_outputs_of_several_agents_as_one_text() {
        let answer = GoalTarget::Agent {
            agent: placed(name("writer")),
            prompt: placed("Write again.".to_owned()),
        };
        let condition = GoalCondition::XPath(placed("has-word(views, 'REVISE')".to_owned()));
        let branch = ChooseBranch {
            when: Some(condition),
            run: vec![placed(GoalId::parse("answer").unwrap())],
            place: PlaceId::default(),
        };
        let definition = workflow(vec![
            views(None),
            goal("pick", GoalForm::Choose(vec![branch])),
            goal("answer", GoalForm::Run(answer)),
        ]);

        let answers = ["It is wrong.\nREVISE", "Fine."];
        let present = steps_after(&definition, RunRules::Present, answers);
        let [RunStep::Start { label, .. }] = present.as_slice() else { panic!("{present:?}") };
        assert_eq!(label, "answer");
        let earlier = steps_after(&definition, RunRules::TextItems, answers);
        assert!(!earlier.iter().any(|step| matches!(step, RunStep::Start { .. })), "{earlier:?}");
    }
}
