//! The view of a goal's expressions, and its document.

use crate::schema::XPathError;
use crate::xml::element::{Element, Node};

use super::super::definition::{GoalDefinition, GoalForm, Placed};
use super::super::document::{ContextEntry, GoalDocument, IterationEntry, LoopPass};
use super::super::graph::MemberKind;
use super::super::shapes::{JUDGE_SUFFIX, SUPERVISOR_SUFFIX, labels};
use super::super::template;
use super::super::view::{RunView, ViewEntry, ViewValue};
use super::{GoalRun, GoalState, RunKind, RunPart, WorkflowRun};

impl WorkflowRun<'_> {
    /// The view of a goal: the input, the outputs of the goals that it needs, those of its loop, and
    /// `more`.
    pub(super) fn view_with(
        &self,
        number: usize,
        more: impl IntoIterator<Item = ViewEntry>,
    ) -> Result<RunView, XPathError> {
        let mut seen = self.graph.visible(number);
        seen.extend(self.graph.members(number));
        if let Some(membership) = self.graph.membership(number)
            && matches!(membership.kind, MemberKind::Loop { .. })
        {
            seen.extend(self.graph.members(membership.owner));
        }

        seen.sort_unstable();
        seen.dedup();
        self.view(&seen, more)
    }

    /// The view of a run: that of its goal, and for a verification the output to judge.
    pub(super) fn run_view(&self, run: &GoalRun) -> Result<RunView, XPathError> {
        let item = self.item_of(run).map(|item| ViewEntry::new("item", item.clone()));
        let judged = self.judged(run).filter(|_| run.kind == RunKind::Verify);
        self.view_with(self.subject(run), item.into_iter().chain(judged))
    }

    /// The output that a run judges, under the name of the goal that gave it.
    fn judged(&self, run: &GoalRun) -> Option<ViewEntry> {
        if !matches!(run.kind, RunKind::Verify | RunKind::Supervise) {
            return None;
        }

        let output = self.review(run)?.output.clone()?;
        Some(ViewEntry::new(self.graph.goal(run.goal)?.id.value.as_str(), output))
    }

    /// The entries of the output that a run judges.
    fn judged_entries(&self, run: &GoalRun) -> Vec<ContextEntry> {
        let Some(judged) = self.judged(run) else { return Vec::new() };
        match run.part {
            RunPart::Item(position) => {
                let id = format!("{}[{}]", judged.name, position + 1);
                vec![ContextEntry { id, body: body(&judged.value) }]
            }
            RunPart::Whole | RunPart::Agent(_) => self.entries(run.goal, Some(&judged.value)),
        }
    }

    /// The view of the run's output: every goal.
    pub(super) fn whole_view(&self) -> Result<RunView, XPathError> {
        let all: Vec<_> = (0..self.state.goals.len()).collect();
        self.view(&all, None)
    }

    fn view(
        &self,
        seen: &[usize],
        more: impl IntoIterator<Item = ViewEntry>,
    ) -> Result<RunView, XPathError> {
        let mut entries =
            vec![ViewEntry::new("input", ViewValue::Payload(self.state.input.clone()))];
        for number in seen {
            let goal = self.graph.goal(*number);
            if let (Some(goal), Some(output)) = (goal, self.latest_output(*number)) {
                entries.push(ViewEntry::new(goal.id.value.as_str(), output));
            }
        }

        entries.extend(more);
        RunView::new(&entries).ok_or(XPathError::TooMuchText)
    }

    /// The output of a goal; for a member of a loop that runs again, that of the pass before.
    fn latest_output(&self, number: usize) -> Option<ViewValue> {
        if let Some(output) = self.goal_state(number).output() {
            return Some(output.clone());
        }
        if *self.goal_state(number) == GoalState::Skipped {
            return None;
        }

        let owner = self.graph.membership(number)?.owner;
        let pass = self.state.passes.get(&owner)?.last()?;
        pass.iter().find(|(member, _)| *member == number).map(|(_, output)| output.clone())
    }

    /// The text of a prompt with its expressions filled in. A prompt without any needs no view.
    fn filled(&self, run: &GoalRun, prompt: &Placed<String>) -> Result<String, XPathError> {
        let mut view = None;
        template::fill(&prompt.value, |expression| {
            let view = match &mut view {
                Some(view) => view,
                none => none.insert(self.run_view(run)?),
            };
            view.insert(expression)
        })
    }

    /// The document of one run of a goal.
    pub(super) fn document(
        &self,
        run: &GoalRun,
        prompt: &Placed<String>,
    ) -> Result<GoalDocument, XPathError> {
        let number = self.subject(run);
        let Some(goal) = self.graph.goal(number) else { return Ok(GoalDocument::default()) };
        let mut document = GoalDocument {
            workflow: self.definition.name.value.to_string(),
            goal: goal.id.value.to_string(),
            prompt: self.filled(run, prompt)?,
            corrections: self.corrections(run),
            ..GoalDocument::default()
        };

        let in_loop = self
            .graph
            .membership(number)
            .filter(|membership| matches!(membership.kind, MemberKind::Loop { .. }));
        let same_loop = in_loop.map(|membership| self.graph.members(membership.owner));
        let same_loop = same_loop.unwrap_or_default();
        let shown = self.shown(run, goal);
        for earlier in shown.iter().filter(|earlier| !same_loop.contains(earlier)) {
            document.context.extend(self.entries(*earlier, self.goal_state(*earlier).output()));
        }
        if let Some(membership) = in_loop {
            let owner = self.graph.goal(membership.owner);
            let name = owner.map(|owner| owner.id.value.to_string()).unwrap_or_default();
            document.pass = Some(LoopPass { name, iteration: run.iteration });
            document.iterations =
                self.iterations(membership.owner, &same_loop, goal, run.iteration);
        }

        document.add_judged(self.judged_entries(run));
        if let (RunKind::Supervise, Some(supervision)) = (run.kind, &goal.supervision) {
            document.ask_supervisor(&supervision.supervise);
        }
        Ok(document)
    }

    /// Passes of a loop, the one under way included.
    fn iterations(
        &self,
        owner: usize,
        members: &[usize],
        goal: &GoalDefinition,
        current: u32,
    ) -> Vec<IterationEntry> {
        let is_shown = |member: usize| self.is_named(goal, member);
        let finished = self.state.passes.get(&owner).map(Vec::as_slice).unwrap_or_default();
        let mut iterations = Vec::new();
        for (number, pass) in (1u32..).zip(finished) {
            let shown = pass.iter().filter(|(member, _)| is_shown(*member));
            let entries = shown.flat_map(|(member, output)| self.entries(*member, Some(output)));
            iterations.push(IterationEntry { number, entries: entries.collect() });
        }

        let ended = members.iter().filter(|member| self.goal_state(**member).has_ended());
        let under_way = ended.filter(|member| is_shown(**member));
        let entries =
            under_way.flat_map(|member| self.entries(*member, self.goal_state(*member).output()));
        iterations.push(IterationEntry { number: current, entries: entries.collect() });
        iterations.retain(|iteration| !iteration.entries.is_empty());
        iterations
    }

    /// Goals that the document shows, in the order in which they ended.
    fn shown(&self, run: &GoalRun, goal: &GoalDefinition) -> Vec<usize> {
        let number = self.subject(run);
        let mut visible = self.graph.visible(number);
        if let RunKind::Judge(_) = run.kind {
            // The judge of a loop sees the pass that it judges.
            visible.extend(self.graph.members(number));
            visible.sort_unstable();
        }
        let ended = self.state.ended.iter().copied();
        let is_visible = |one: &usize| visible.binary_search(one).is_ok();
        ended.filter(|one| is_visible(one) && self.is_named(goal, *one)).collect()
    }

    fn is_named(&self, goal: &GoalDefinition, shown: usize) -> bool {
        match &goal.context {
            Some(named) => named.iter().any(|id| self.graph.number(&id.value) == Some(shown)),
            None => true,
        }
    }

    fn entries(&self, number: usize, output: Option<&ViewValue>) -> Vec<ContextEntry> {
        let (Some(goal), Some(output)) = (self.graph.goal(number), output) else {
            return Vec::new();
        };
        let id = &goal.id.value;
        match output {
            ViewValue::Several(runs) => {
                let entries = runs.iter().map(|run| {
                    let label = match run.item {
                        Some(position) => (position + 1).to_string(),
                        None => run.name.clone(),
                    };
                    let code = match &run.value {
                        ViewValue::Payload(failed)
                            if run.item.is_some() && run.name == "failed" =>
                        {
                            failed.attribute("code")
                        }
                        _ => None,
                    };
                    let body =
                        code.map_or_else(|| body(&run.value), |code| format!("failed: {code}"));
                    ContextEntry { id: format!("{id}[{label}]"), body }
                });
                entries.collect()
            }
            value => vec![ContextEntry { id: id.to_string(), body: body(value) }],
        }
    }

    /// The label of a run's thread.
    pub(super) fn label(&self, run: &GoalRun) -> String {
        let Some(goal) = self.graph.goal(self.subject(run)) else { return String::new() };
        let mut label = goal.id.value.to_string();
        let agents = match &goal.form {
            GoalForm::All { agents, .. } | GoalForm::First { agents, .. } => agents.as_slice(),
            _ => &[],
        };
        match run.part {
            RunPart::Whole => {}
            RunPart::Agent(position) => {
                let name = labels(agents).into_iter().nth(position).unwrap_or_default();
                label.push_str(&format!("_{name}"));
            }
            RunPart::Item(position) => label.push_str(&format!("_{}", position + 1)),
        }
        if run.iteration > 0 {
            label.push_str(&format!("_{}", run.iteration));
        }
        match run.kind {
            RunKind::Work | RunKind::Verify => {}
            RunKind::Supervise => label.push_str(SUPERVISOR_SUFFIX),
            RunKind::Judge(_) => label.push_str(JUDGE_SUFFIX),
        }
        label
    }
}

/// An output as text of a document: XML without namespace declarations.
pub(super) fn body(value: &ViewValue) -> String {
    match value {
        ViewValue::Text(text) => text.clone(),
        ViewValue::Payload(payload) => bare(payload).to_xml(),
        ViewValue::Several(runs) => {
            runs.iter().map(|run| body(&run.value)).collect::<Vec<_>>().join("\n")
        }
    }
}

fn bare(element: &Element) -> Element {
    let mut copy = Element::local(element.local_name());
    for (name, value) in &element.attributes {
        copy = copy.with_attribute(&name.local, value.clone());
    }

    let content = element.content.iter().map(|node| match node {
        Node::Text(text) => Node::Text(text.clone()),
        Node::Element(child) => Node::Element(bare(child)),
    });
    copy.content = content.collect();
    copy
}
