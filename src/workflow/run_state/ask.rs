//! Questions of a run to people: their payloads, and the effects of the verdicts that people give.

use crate::ids::ListenerName;
use crate::limits;
use crate::schema::XPathError;

use super::super::definition::{GoalId, Placed};
use super::super::questions;
use super::super::verdicts::SupervisorVerdict;
use super::super::view::ViewValue;
use super::{GivenCorrection, GoalCall, GoalFailure, GoalRun, GoalState, WorkflowRun};

impl WorkflowRun<'_> {
    /// Builds the call with which a goal sends its question to the person `human`.
    pub(super) fn question(
        &self,
        run: &GoalRun,
        human: &ListenerName,
        prompt: &Placed<String>,
    ) -> Result<GoalCall, XPathError> {
        let goal = self.graph.goal(run.goal);
        let name = goal.and_then(|goal| questions::question_name(self.definition, goal));
        let name = name.ok_or_else(|| XPathError::Invalid("the goal asks no person".to_owned()))?;
        let document = self.document(run, prompt)?;
        let payload = questions::question(&name, &document);
        Ok(GoalCall::Payload { listener: human.clone(), payload })
    }

    /// Applies `answer`, a person's verdict on the question of the goal `number`. If the verdict is
    /// a correction, the goal `about` runs again. If the verdict cannot be used, the goal `number`
    /// fails.
    pub(super) fn end_verdict(
        &mut self,
        number: usize,
        about: Option<&Placed<GoalId>>,
        answer: ViewValue,
    ) {
        let about = about.and_then(|id| self.graph.number(&id.value));
        match (SupervisorVerdict::read(&answer), about) {
            (Some(SupervisorVerdict::Continue), _) => self.end(number, Some(answer)),
            (Some(SupervisorVerdict::Stop(text)), _) => {
                self.fail(number, GoalFailure::new("stopped", text));
            }
            (Some(SupervisorVerdict::Correct(text)), Some(about)) => {
                self.correct(number, about, text);
            }
            _ => self.fail(number, GoalFailure::new("bad-answer", "it holds no decision")),
        }
    }

    /// Applies the correction `text` of the goal `about`. A person gave this correction in answer
    /// to the question of the goal `asked`. These goals run again, in this order: `about`, then the
    /// goals that depend on `about` and that `asked` needs, and finally `asked`. If `about` was
    /// corrected too often, `asked` fails instead.
    fn correct(&mut self, asked: usize, about: usize, text: String) {
        let reviewed = self.state.reviewed.remove(&about).unwrap_or_default();
        let given = self.state.corrections.entry(about).or_default();
        given.extend(reviewed.into_iter().flat_map(|(position, texts)| {
            let review = Some(position);
            texts.into_iter().map(move |text| GivenCorrection { review, text })
        }));
        given.push(GivenCorrection { review: None, text });

        let by_people = given.iter().filter(|correction| correction.review.is_none()).count();
        if by_people > usize::try_from(limits::CORRECTIONS_CEILING).unwrap_or(usize::MAX) {
            let reason =
                format!("it was corrected more than {} times", limits::CORRECTIONS_CEILING);
            return self.fail(asked, GoalFailure::new("corrections-spent", reason));
        }

        let visible = self.graph.visible(asked);
        let is_between = |goal: &usize| {
            *goal == about || *goal == asked || self.graph.visible(*goal).contains(&about)
        };
        let again: Vec<_> = visible.into_iter().chain([asked]).filter(is_between).collect();
        let iteration = self.iteration_of(asked);
        for goal in &again {
            self.start_over(*goal);
            if *goal != about {
                self.forget_reviews(*goal);
            }
        }

        // A goal outside of lists starts by itself as soon as its dependencies have ended.
        let Some(membership) = self.graph.membership(about) else { return };
        if let Some(progress) = self.progress(membership.owner) {
            let position = progress.members.iter().position(|member| *member == about);
            progress.position = position.unwrap_or(progress.position);
        }
        self.start(about, iteration);
    }

    /// Resets a goal, its members and its fallback to the state "waiting". If one of these goals is
    /// a loop, removes the recorded outputs of its passes.
    fn start_over(&mut self, number: usize) {
        self.set(number, GoalState::Waiting);
        self.state.passes.remove(&number);
        for member in self.graph.members(number).into_iter().chain(self.graph.fallback(number)) {
            self.start_over(member);
        }
    }

    /// Removes the corrections that verifiers and supervisors gave to a goal, because they may be
    /// about items that the goal no longer has. Keeps the corrections by people.
    fn forget_reviews(&mut self, number: usize) {
        self.state.reviewed.remove(&number);
        if let Some(given) = self.state.corrections.get_mut(&number) {
            given.retain(|correction| correction.review.is_none());
        }
    }

    /// Returns the corrections of a goal, oldest first:
    /// - all corrections by people;
    /// - corrections from the reviews at the position `review`, if these reviews ended before a
    ///   correction by a person.
    ///
    /// Returns no corrections if no person has corrected the goal.
    pub(super) fn given_corrections(
        &self,
        number: usize,
        review: usize,
    ) -> impl Iterator<Item = &String> {
        let given = self.state.corrections.get(&number).into_iter().flatten();
        let given = given.filter(move |given| given.review.is_none_or(|own| own == review));
        given.map(|given| &given.text)
    }
}
