//! Builds the view from which the expressions of a goal select values, and the document that the
//! goal's agent or person gets. The `<context>` of the document shows only goals that the goal
//! depends on ([`GoalGraph::visible`](super::super::graph::GoalGraph::visible)).

use std::collections::HashSet;

use crate::schema::{FieldCount, ShortType, XPathError};
use crate::xml::element::{Element, Node};

use super::super::definition::{GoalDefinition, GoalForm, GoalOutput, Placed};
use super::super::document::{ContextEntry, GoalDocument, IterationEntry, LoopPass};
use super::super::expression;
use super::super::graph::MemberKind;
use super::super::shapes::{JUDGE_SUFFIX, SUPERVISOR_SUFFIX, labels};
use super::super::template;
use super::super::view::{RunView, ViewEntry, ViewValue};
use super::{GoalRun, GoalState, RunKind, RunPart, WorkflowRun};

impl WorkflowRun<'_> {
    /// Builds the view of a goal. The view is the XML document from which expressions select
    /// values. It contains the input of the run, the entries `more`, and the outputs of these
    /// goals: the dependencies and the members of the goal, and all goals in the loop around the
    /// goal. An entry is left out if none of `expressions` can select it.
    pub(super) fn view_with(
        &self,
        number: usize,
        more: impl IntoIterator<Item = ViewEntry>,
        expressions: &[&str],
    ) -> Result<RunView, XPathError> {
        let mut seen = self.graph.visible(number);
        seen.extend(self.graph.beneath(number));
        if let Some(owner) = self.graph.loop_of(number) {
            seen.extend(self.graph.beneath(owner));
        }

        seen.sort_unstable();
        seen.dedup();
        let names: Option<Vec<_>> =
            expressions.iter().map(|text| expression::names(text)).collect();
        let Some(names) = names else { return self.view(&seen, true, more) };

        let is_named = |name: &str| names.iter().any(|names| names.contains(name));
        seen.retain(|number| {
            self.graph.goal(*number).is_some_and(|goal| is_named(goal.id.value.as_str()))
        });
        let more = more.into_iter().filter(|entry| is_named(&entry.name));
        self.view(&seen, is_named("input"), more)
    }

    /// Builds the view of a goal run, which extends the view of its goal. If the goal run works on
    /// an item, the view contains the item. If the goal run is a verification, the view contains
    /// the output to judge.
    pub(super) fn run_view(
        &self,
        run: &GoalRun,
        expressions: &[&str],
    ) -> Result<RunView, XPathError> {
        let item = self.item_of(run).map(|item| ViewEntry::new("item", item.clone()));
        let judged = self.judged(run).filter(|_| run.kind == RunKind::Verify);
        self.view_with(self.subject(run), item.into_iter().chain(judged), expressions)
    }

    /// Returns the output that a verifier or supervisor judges in `run`, as an entry of the view.
    /// The name of the entry is the id of the goal that produced the output. Returns `None` if
    /// `run` judges no output, or if there is no output.
    fn judged(&self, run: &GoalRun) -> Option<ViewEntry> {
        if !matches!(run.kind, RunKind::Verify | RunKind::Supervise) {
            return None;
        }

        let output = self.review(run)?.output.clone()?;
        Some(ViewEntry::new(self.graph.goal(run.goal)?.id.value.as_str(), output))
    }

    /// Returns the output that a verifier or supervisor judges in `run`, as entries of the document
    /// that the verifier or supervisor gets. Returns an empty list if `run` judges no output, or if
    /// there is no output.
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

    /// Builds the view from which the output of the whole run is selected. It contains the outputs
    /// of all goals.
    pub(super) fn whole_view(&self) -> Result<RunView, XPathError> {
        let all: Vec<_> = (0..self.state.goals.len()).collect();
        self.view(&all, true, None)
    }

    fn view(
        &self,
        seen: &[usize],
        has_input: bool,
        more: impl IntoIterator<Item = ViewEntry>,
    ) -> Result<RunView, XPathError> {
        let mut entries = Vec::new();
        if has_input {
            let input = ViewValue::Payload(Box::new(self.state.input.clone()));
            entries.push(ViewEntry::new("input", input));
        }
        for number in seen {
            let goal = self.graph.goal(*number);
            if let (Some(goal), Some(output)) = (goal, self.latest_output(*number)) {
                entries.push(ViewEntry::new(goal.id.value.as_str(), output));
            }
        }

        entries.extend(more);
        let view = RunView::new(&entries)?.joining_texts(self.joins_texts());
        Ok(view.refusing_plus_signs(self.refuses_plus_signs()))
    }

    /// Returns the latest output of a goal; `None` if the goal has none. If a goal in a loop has no
    /// output in the present pass, but may still run in this pass, returns its output from the
    /// previous pass.
    fn latest_output(&self, number: usize) -> Option<ViewValue> {
        if let Some(output) = self.goal_state(number).output() {
            return Some(output.clone());
        }
        if matches!(self.goal_state(number), GoalState::Skipped | GoalState::Replaced) {
            return None;
        }

        let owner = self.graph.loop_of(number)?;
        if self.has_turn_passed(number, owner) {
            return None;
        }
        let pass = self.state.passes.get(&owner)?.last()?;
        pass.iter().find(|(member, _)| *member == number).map(|(_, output)| output.clone())
    }

    /// Whether the goal `number` can no longer run in the present pass of the loop `owner`.
    fn has_turn_passed(&self, number: usize, owner: usize) -> bool {
        let mut at = number;
        while let Some(membership) =
            self.graph.membership(at).filter(|membership| membership.owner != owner)
        {
            let is_left_out = match self.goal_state(membership.owner) {
                GoalState::Waiting | GoalState::Replaced => false,
                GoalState::Done(_) | GoalState::Skipped => true,
                GoalState::Running(progress) => {
                    matches!(membership.kind, MemberKind::Branch { .. })
                        && !progress.members.is_empty()
                        && !progress.members.contains(&at)
                }
            };
            if is_left_out {
                return true;
            }
            at = membership.owner;
        }
        false
    }

    /// Returns the text of a prompt. Replaces each placeholder by the value of its expression.
    fn filled(&self, run: &GoalRun, prompt: &Placed<String>) -> Result<String, XPathError> {
        let expressions: Vec<_> = template::expressions(prompt).collect();
        if expressions.is_empty() {
            return Ok(prompt.value.clone());
        }

        let expressions: Vec<_> =
            expressions.iter().map(|expression| expression.value.as_str()).collect();
        let view = self.run_view(run, &expressions)?;
        template::fill(&prompt.value, |expression| view.insert(expression))
    }

    /// Builds the document that an agent or a person gets for a goal run.
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

        let in_loop = self.graph.loop_of(number);
        let same_loop = in_loop.map(|owner| self.graph.beneath(owner)).unwrap_or_default();
        let shown = self.shown(run, goal);
        for earlier in shown.iter().filter(|earlier| !same_loop.contains(earlier)) {
            document.context.extend(self.entries(*earlier, self.goal_state(*earlier).output()));
        }
        if let Some(owner) = in_loop {
            let name = self.graph.goal(owner).map(|owner| owner.id.value.to_string());
            let name = name.unwrap_or_default();
            document.pass = Some(LoopPass { name, iteration: run.iteration });
            document.iterations = self.iterations(owner, &same_loop, goal, run.iteration);
        }

        document.add_judged(self.judged_entries(run));
        if let (RunKind::Supervise, Some(supervision)) = (run.kind, &goal.supervision) {
            document.ask_supervisor(&supervision.supervise);
        }
        Ok(document)
    }

    /// Returns the passes of a loop that the document of a goal shows, including the present pass.
    /// Omits each pass in which no goal has an output to show.
    fn iterations(
        &self,
        owner: usize,
        members: &[usize],
        goal: &GoalDefinition,
        current: u32,
    ) -> Vec<IterationEntry> {
        let is_shown = |member: usize| self.graph.shows(goal, member);
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

    /// Returns the ended goals whose outputs may appear in the document for the goal run `run`.
    /// Each goal comes after its dependencies.
    fn shown(&self, run: &GoalRun, goal: &GoalDefinition) -> Vec<usize> {
        let number = self.subject(run);
        let mut visible: HashSet<_> = self.graph.visible(number).into_iter().collect();
        if let RunKind::Judge(_) = run.kind {
            // The judge of a loop sees the outputs of the pass that it judges.
            visible.extend(self.graph.beneath(number));
        }
        let ended = self.graph.order().iter().copied();
        let ended =
            ended.filter(|number| visible.contains(number) && self.goal_state(*number).has_ended());
        ended.filter(|number| self.graph.shows(goal, *number)).collect()
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
            ViewValue::Payload(answer) if matches!(goal.form, GoalForm::Ask { .. }) => {
                let body = answer_of_person(goal, answer);
                vec![ContextEntry { id: id.to_string(), body }]
            }
            value => vec![ContextEntry { id: id.to_string(), body: body(value) }],
        }
    }

    /// Returns the label of the thread that a goal run opens.
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

/// Writes an output as text of a document. A payload becomes XML without namespace declarations.
pub(super) fn body(value: &ViewValue) -> String {
    match value {
        ViewValue::Text(text) => text.clone(),
        ViewValue::Payload(payload) => bare(payload).to_xml(),
        ViewValue::Several(runs) => {
            runs.iter().map(|run| body(&run.value)).collect::<Vec<_>>().join("\n")
        }
        ViewValue::Elements(copies) => {
            copies.iter().map(|copy| bare(copy).to_xml()).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Writes the answer of a person as text: the value of its only field, or one line for each of
/// several fields. An answer with nested fields or with attributes becomes XML.
fn answer_of_person(goal: &GoalDefinition, answer: &Element) -> String {
    let is_value = |element: &Element| element.children().next().is_none();
    let has_attributes = |element: &Element| !element.attributes.is_empty();
    let is_nested = !answer.children().all(is_value);
    if is_nested || has_attributes(answer) || answer.children().any(has_attributes) {
        return bare(answer).to_xml();
    }

    let has_one_field = match &goal.output {
        GoalOutput::Types(ShortType::Fields(fields)) => {
            matches!(fields.as_slice(), [field] if field.occurs != FieldCount::AnyNumber)
        }
        _ => false,
    };
    if has_one_field || is_value(answer) {
        return answer.children().next().unwrap_or(answer).text();
    }

    let lines = answer.children().map(|field| {
        let text = field.text();
        let separator = if text.contains('\n') { '\n' } else { ' ' };
        format!("{}:{separator}{text}", field.local_name())
    });
    lines.collect::<Vec<_>>().join("\n")
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
