//! Determines the shapes of the values that expressions in a run can select: the input of the run
//! and the outputs of its goals. A shape states which elements and attributes a value can contain.
//! This module uses only the config, not the values themselves.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::contract::{Contract, Contracts};
use crate::ids::{ListenerName, PayloadName};
use crate::limits;
use crate::schema::Schemas;

use super::definition::{
    AskForm, GoalDefinition, GoalForm, GoalOutput, GoalTarget, Placed, WorkflowDefinition,
    WorkflowInput, WorkflowOutput,
};
use super::expression;
use super::graph::GoalGraph;
use super::run_size::definition_of;
use super::typed_outputs::agents_of;
use super::value_shape::ValueShape;

/// The schemas and the contracts of a config, from which the shapes of values are computed.
pub struct ShapeSource<'a> {
    pub schemas: &'a Schemas,
    /// The contracts of the config; `None` if the contracts are invalid.
    pub contracts: Option<&'a Contracts>,
    /// Definitions of the workflows that goals call. The output of any other workflow has an
    /// unknown shape.
    pub definitions: &'a [&'a WorkflowDefinition],
    /// The shapes computed so far for the outputs of workflows, by the name of the workflow.
    outputs: RefCell<HashMap<ListenerName, ValueShape>>,
}

impl<'a> ShapeSource<'a> {
    pub fn new(
        schemas: &'a Schemas,
        contracts: Option<&'a Contracts>,
        definitions: &'a [&'a WorkflowDefinition],
    ) -> Self {
        Self { schemas, contracts, definitions, outputs: RefCell::default() }
    }

    /// Returns the shape of the document that contains the input of a run and the outputs of all
    /// its goals.
    pub fn document(&self, definition: &WorkflowDefinition) -> ValueShape {
        let goals = definition.goals.iter();
        let goals =
            goals.filter_map(|goal| Some((goal.id.value.as_str().to_owned(), self.goal(goal)?)));
        let input = ("input".to_owned(), self.input(definition));
        ValueShape::Children([input].into_iter().chain(goals).collect())
    }

    pub fn input(&self, definition: &WorkflowDefinition) -> ValueShape {
        match &definition.input {
            WorkflowInput::Types(types) => ValueShape::of_type(types),
            WorkflowInput::Payload(name) => self.payload(&name.value),
        }
    }

    /// Returns the shape of a goal's output; `None` for a goal without an output.
    pub fn goal(&self, goal: &GoalDefinition) -> Option<ValueShape> {
        match &goal.form {
            GoalForm::Run(target) => Some(self.target(goal, target)),
            GoalForm::All { agents, vote: None, .. } => {
                let output = self.output(goal);
                let labels = labels(agents).into_iter().map(|label| (label, output.clone()));
                Some(ValueShape::Children(labels.collect()))
            }
            GoalForm::All { .. } | GoalForm::First { .. } => Some(self.output(goal)),
            GoalForm::Each(each) => {
                let item = self.target(goal, &each.target);
                Some(ValueShape::Children(vec![
                    ("item".to_owned(), item),
                    ("failed".to_owned(), ValueShape::Open),
                ]))
            }
            GoalForm::Ask { form: AskForm::Output, .. } => Some(self.output(goal)),
            GoalForm::Ask { form: AskForm::Verdict { .. }, .. } => {
                let leaf = |name: &str| (name.to_owned(), ValueShape::Leaf);
                Some(ValueShape::Children(vec![leaf("decision"), leaf("text")]))
            }
            GoalForm::Loop { .. } | GoalForm::Choose(_) => None,
        }
    }

    /// Returns the shape of the output that one run of `goal` has if `target` carries it out.
    pub fn target(&self, goal: &GoalDefinition, target: &GoalTarget) -> ValueShape {
        match target {
            GoalTarget::Agent { .. } => self.output(goal),
            GoalTarget::Listener { listener, .. } => self.replies(&listener.value),
            GoalTarget::Workflow { workflow, .. } => self.workflow_output(&workflow.value),
        }
    }

    /// Returns the shape of the reply with which a run of the workflow `name` completes. Computes
    /// it only once for each workflow.
    fn workflow_output(&self, name: &ListenerName) -> ValueShape {
        if let Some(known) = self.outputs.borrow().get(name) {
            return known.clone();
        }

        let shape = self.computed_output(name);
        self.outputs.borrow_mut().insert(name.clone(), shape.clone());
        shape
    }

    /// Computes the shape of the reply with which a run of the workflow `name` completes. Does not
    /// follow the outputs of further workflows that this run calls, because workflows can call each
    /// other in a circle.
    fn computed_output(&self, name: &ListenerName) -> ValueShape {
        let Some(definition) = definition_of(name, self.definitions) else {
            return ValueShape::Open;
        };
        let source = ShapeSource::new(self.schemas, self.contracts, &[]);
        let document = source.document(definition);
        match &definition.output {
            WorkflowOutput::Table(table) => {
                let children = table.iter();
                let children = children
                    .map(|(key, value)| (key.clone(), content_shape(&value.value, &document)));
                ValueShape::Children(children.collect())
            }
            WorkflowOutput::One(expression) => content_shape(&expression.value, &document),
            // A payload becomes a child of the output, also a payload that has only text.
            WorkflowOutput::LastGoal => {
                let (graph, _) = GoalGraph::new(definition);
                match graph.last_output().and_then(|number| graph.goal(number)) {
                    Some(goal)
                        if goal.output == GoalOutput::Text
                            && !agents_of(goal).is_empty()
                            && source.goal(goal).is_some_and(|shape| shape.is_text()) =>
                    {
                        ValueShape::Leaf
                    }
                    _ => ValueShape::Open,
                }
            }
        }
    }

    fn output(&self, goal: &GoalDefinition) -> ValueShape {
        match &goal.output {
            GoalOutput::Text => ValueShape::Leaf,
            GoalOutput::Types(types) => ValueShape::of_type(types),
            GoalOutput::Payload(name) => self.payload(&name.value),
        }
    }

    pub fn payload(&self, name: &PayloadName) -> ValueShape {
        if !self.schemas.contains(name) {
            return ValueShape::Open;
        }

        let description = self.schemas.describe(name);
        let has_no_parts = description.parameters.is_empty() && description.text.is_none();
        if has_no_parts {
            ValueShape::Open
        } else {
            ValueShape::of_parameters(&description.parameters, description.coverage)
        }
    }

    /// Returns one shape for all replies that a listener's contract permits. It has the children
    /// and attributes of all these replies. Returns [`ValueShape::Open`] if the contract is not
    /// known, or if one of the replies may have any content.
    fn replies(&self, listener: &ListenerName) -> ValueShape {
        let contract = self.contracts.and_then(|contracts| contracts.get(listener));
        contract.map_or(ValueShape::Open, |contract| self.replies_of(contract))
    }

    /// Returns one shape for all replies that the contract permits. It has the children and
    /// attributes of all these replies. Returns [`ValueShape::Open`] if one of the replies may have
    /// any content.
    pub fn replies_of(&self, contract: &Contract) -> ValueShape {
        let mut all = Vec::new();
        for reply in &contract.replies {
            match self.payload(reply) {
                ValueShape::Children(children) => all.extend(children),
                ValueShape::Leaf | ValueShape::Boolean | ValueShape::Words(_) => {}
                ValueShape::Open => return ValueShape::Open,
            }
        }

        if all.is_empty() { ValueShape::Leaf } else { ValueShape::Children(all) }
    }
}

/// Returns the shape of the element that contains the value of `expression` in the output of a run.
/// If the value may contain elements, the shape is open, because their names are not known. `root`
/// is the shape of the document from which the expression selects the value.
fn content_shape(expression: &str, root: &ValueShape) -> ValueShape {
    if expression::is_value(expression) || expression::selected(expression, root).is_text() {
        ValueShape::Leaf
    } else {
        ValueShape::Open
    }
}

/// Suffix of the label of a supervisor's thread.
pub const SUPERVISOR_SUFFIX: &str = "_supervisor";
/// Suffix of the label of a judge's thread.
pub const JUDGE_SUFFIX: &str = "_judge";

/// Whether `label` can be the label of a thread that was requested with the label `requested`. If a
/// requested label is already taken, the core appends a number, and shortens the label if it would
/// become too long.
pub fn is_label_of(label: &str, requested: &str) -> bool {
    let is_numbered = || {
        let (base, number) = label.rsplit_once('-')?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.is_empty();
        let is_full = label.len() == limits::LABEL_CHARS_MAX;
        let is_base = base == requested || (is_full && requested.starts_with(base));
        Some(is_number && is_base)
    };
    label == requested || is_numbered().unwrap_or(false) || has_pass(label, requested)
}

/// Whether `label` is the label `requested` with the number of a pass appended, such as `_2`. If
/// `requested` ends with the suffix of a supervisor or a judge, the number stands before this
/// suffix. The core may have appended another number to `label`. Earlier versions gave such labels
/// to the fallback of a loop, although the fallback is in no pass of the loop.
fn has_pass(label: &str, requested: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = label.rsplit_once('-').filter(|(_, number)| is_number(number));
    let unnumbered = numbered.map_or(label, |(base, _)| base);
    let mut suffixes = [SUPERVISOR_SUFFIX, JUDGE_SUFFIX].into_iter();
    let bare = suffixes.find_map(|suffix| {
        Some((unnumbered.strip_suffix(suffix)?, requested.strip_suffix(suffix)?))
    });
    let (label, requested) = bare.unwrap_or((label, requested));
    let rest = label.strip_prefix(requested).and_then(|rest| rest.strip_prefix('_'));
    let pass = rest.map(|rest| rest.split_once('-').map_or(rest, |(pass, _)| pass));
    pass.is_some_and(is_number)
}

/// Returns the labels of agents that run at once. A label is the name of the agent; `-2`, `-3` and
/// so on are appended if a name occurs again.
pub fn labels(agents: &[Placed<ListenerName>]) -> Vec<String> {
    let mut labels = Vec::new();
    for (index, agent) in agents.iter().enumerate() {
        let before = agents.iter().take(index).filter(|other| other.value == agent.value).count();
        labels.push(match before {
            0 => agent.value.to_string(),
            earlier => format!("{}-{}", agent.value, earlier + 1),
        });
    }

    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SchemaCompiler;

    const SCHEMA: &str = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema' \
        targetNamespace='urn:s' xmlns='urn:s' elementFormDefault='qualified'>\
        <xs:complexType name='animal'><xs:sequence><xs:element name='name' type='xs:string'/>\
        </xs:sequence></xs:complexType>\
        <xs:complexType name='dog'><xs:complexContent><xs:extension base='animal'><xs:sequence>\
        <xs:element name='breed' type='xs:string'/></xs:sequence></xs:extension>\
        </xs:complexContent></xs:complexType>\
        <xs:complexType name='plant' abstract='true'><xs:sequence>\
        <xs:element name='height' type='xs:string'/></xs:sequence></xs:complexType>\
        <xs:complexType name='open'><xs:sequence><xs:element name='note' type='xs:string'/>\
        </xs:sequence><xs:anyAttribute processContents='skip'/></xs:complexType>\
        <xs:complexType name='priced'><xs:simpleContent><xs:extension base='xs:string'>\
        <xs:attribute name='currency'/></xs:extension></xs:simpleContent></xs:complexType>\
        <xs:element name='comment'><xs:complexType><xs:sequence>\
        <xs:element name='text' type='xs:string'/><xs:element ref='comment' minOccurs='0'/>\
        </xs:sequence></xs:complexType></xs:element>\
        <xs:element name='line'><xs:complexType><xs:sequence>\
        <xs:element name='fee' type='xs:string'/></xs:sequence></xs:complexType></xs:element>\
        <xs:group name='line'><xs:sequence><xs:element ref='line'/></xs:sequence></xs:group>\
        <xs:element name='r'><xs:complexType><xs:sequence>DEEP\
        <xs:element ref='comment'/><xs:element name='pet' type='animal'/>\
        <xs:element name='plant' type='plant'/><xs:element name='open' type='open'/>\
        <xs:group ref='line'/></xs:sequence></xs:complexType></xs:element>\
        <xs:element name='flower' type='plant'/></xs:schema>";

    /// Elements `a` to `f`, each in the one before it. The element `d` also has an attribute
    /// `unit`.
    fn nested() -> String {
        let mut nested = "<xs:element name='f' type='xs:string'/>".to_owned();
        for name in ["e", "d", "c", "b", "a"] {
            let unit = if name == "d" { "<xs:attribute name='unit'/>" } else { "" };
            let leaf = "<xs:element name='leaf' type='xs:string'/>";
            nested = format!(
                "<xs:element name='{name}'><xs:complexType><xs:sequence>{leaf}{nested}\
                 </xs:sequence>{unit}</xs:complexType></xs:element>"
            );
        }

        nested
    }

    #[test]
    fn a_path_to_parts_that_a_description_leaves_out_may_select_something() {
        let mut schemas = Schemas::default();
        let text = SCHEMA.replace("DEEP", &nested());
        let compiler = &mut SchemaCompiler::default();
        let names = schemas.add_generated(compiler, "s.xsd", &text).unwrap();
        let source = ShapeSource::new(&schemas, None, &[]);
        let is_reported = |payload: &str, path: &str| {
            let name = names.iter().find(|name| &*name.local == payload).unwrap();
            let input = ("input".to_owned(), source.payload(name));
            let root = ValueShape::Children(vec![input]);
            !expression::read(path, &root).missing.is_empty()
        };

        for path in [
            "input/a/b/c/d/e/f",
            "input/a/b/c/d/@unit",
            "input/comment/comment/text",
            "input/pet/breed",
            "input/plant/rings",
            "input/open/@other",
            "input/open/note",
            "input/line/fee",
        ] {
            assert!(!is_reported("r", path), "{path}");
        }
        assert!(!is_reported("flower", "input/petals"));

        for path in [
            "input/typo",
            "input/a/b/typo",
            "input/a/b/c/typo",
            "input/a/b/c/leaf/typo",
            "input/comment/typo",
            "input/open/typo",
            "input/open/note/typo",
        ] {
            assert!(is_reported("r", path), "{path}");
        }
    }

    #[test]
    fn a_label_may_have_a_number_and_be_shorter_for_it() {
        let long = "a".repeat(limits::LABEL_CHARS_MAX);
        let cut = |suffix: &str| {
            format!("{}{suffix}", "a".repeat(limits::LABEL_CHARS_MAX - suffix.len()))
        };
        for (label, requested, expected) in [
            ("read", "read", true),
            ("read-1", "read", true),
            ("read-12", "read", true),
            ("read_2", "read", true),
            ("read_2-1", "read", true),
            ("read_x", "read", false),
            ("by-hand_4_supervisor", "by-hand_supervisor", true),
            ("by-hand_4_supervisor-1", "by-hand_supervisor", true),
            ("route_4_judge", "route_judge", true),
            ("route_4_judge", "route_supervisor", false),
            ("route_x_judge", "route_judge", false),
            ("reader", "read", false),
            ("read-x", "read", false),
            ("rea-1", "read", false),
            (&cut("-1"), &long, true),
            (&cut("-10"), &long, true),
            (&cut("-x"), &long, false),
        ] {
            assert_eq!(is_label_of(label, requested), expected, "{label} {requested}");
        }
    }
}
