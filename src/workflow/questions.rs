//! Questions to people: what a person is sent for a goal that asks, and what answers it.
//!
//! A question holds the goal's prompt and the outputs that an agent's document would show. Each
//! question and each answer is a payload of its own, so that the gate holds an answer to the form of
//! its question.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::contract::WorkflowQuestion;
use crate::ids::PayloadName;
use crate::schema::{FieldCount, ShortField, ShortType, short_form_xsd};
use crate::xml::element::Element;
use crate::xml::escape::escape_attribute;
use crate::xml::shape::QName;

use super::definition::{AskForm, GoalDefinition, GoalForm, GoalOutput, WorkflowDefinition};
use super::document::{ContextEntry, GoalDocument, trimmed};
use super::payloads::{failure_report, failure_type};
use super::run_state::GoalFailure;
use super::typed_outputs::{answer_of, goal_name};
use super::undo::LeftCall;
use super::verdicts::verdict_type;

/// The answer to a question, as a type; `None` where the form is a payload of a schema.
pub fn answer_type(goal: &GoalDefinition) -> Option<Cow<'_, ShortType>> {
    match (&goal.form, &goal.output) {
        (GoalForm::Ask { form: AskForm::Verdict { about }, .. }, _) => {
            Some(Cow::Owned(verdict_type(about.is_some())))
        }
        (GoalForm::Ask { .. }, GoalOutput::Types(types)) => Some(Cow::Borrowed(types)),
        _ => None,
    }
}

/// The payload that answers the question of a goal.
fn answer_name(definition: &WorkflowDefinition, goal: &GoalDefinition) -> PayloadName {
    let generated = || goal_name(definition, goal.id.value.as_str());
    answer_of(definition, goal).unwrap_or_else(generated)
}

fn questions_namespace(definition: &WorkflowDefinition) -> String {
    format!("{}/questions", definition.namespace())
}

/// Every question that the workflow may put to people.
pub fn questions(definition: &WorkflowDefinition) -> Vec<WorkflowQuestion> {
    let namespace = questions_namespace(definition);
    let asked = definition.goals.iter().filter_map(|goal| {
        let GoalForm::Ask { human, .. } = &goal.form else { return None };
        Some(WorkflowQuestion {
            human: human.value.clone(),
            question: PayloadName::new(&namespace, goal.id.value.as_str()),
            answer: answer_name(definition, goal),
        })
    });
    let report = definition.report_to.iter().map(|human| WorkflowQuestion {
        human: human.value.clone(),
        question: PayloadName::new(&namespace, REPORT),
        answer: goal_name(definition, REPORT),
    });
    asked.chain(report).collect()
}

/// Payload of the list of calls that were not undone, and of its answer. No goal is called so.
pub const REPORT: &str = "undo";

/// Whether a question of this local name is the list of calls that were not undone.
pub fn is_undo_report(local: &str) -> bool {
    local == REPORT
}

/// The list of calls that were not undone, for a person.
pub fn report(
    definition: &WorkflowDefinition,
    goal: &str,
    failure: &GoalFailure,
    left: &[LeftCall],
) -> Element {
    failure_report(&questions_namespace(definition), REPORT, (goal, failure), left)
}

/// The answer to the list.
pub fn report_answer() -> ShortType {
    let of = ShortType::Text;
    let text = ShortField { name: "text".to_owned(), occurs: FieldCount::AtMostOnce, of };
    ShortType::Fields(vec![text])
}

/// The question of a goal: its prompt, and the outputs that its document shows.
pub fn question(definition: &WorkflowDefinition, document: &GoalDocument) -> Element {
    let namespace = questions_namespace(definition);
    let named = |local: &str| Element::new(QName::new(Some(&namespace), local));
    let prompt = named("prompt").with_text(trimmed(&document.prompt));
    let mut question = named(&document.goal).with_child(prompt);
    let output = |entry: &ContextEntry| {
        let output = named("output").with_attribute("goal", entry.id.clone());
        output.with_text(trimmed(&entry.body))
    };
    for entry in &document.context {
        question = question.with_child(output(entry));
    }
    for iteration in &document.iterations {
        for entry in &iteration.entries {
            let number = iteration.number.to_string();
            question = question.with_child(output(entry).with_attribute("iteration", number));
        }
    }
    question
}

/// The XSD of the questions of a workflow; `None` if there are none.
pub fn schema(definition: &WorkflowDefinition) -> Option<String> {
    let asked = definition.goals.iter().filter(|goal| matches!(goal.form, GoalForm::Ask { .. }));
    let asked: Vec<_> = asked.collect();
    let has_report = definition.report_to.is_some();
    if asked.is_empty() && !has_report {
        return None;
    }

    let namespace = questions_namespace(definition);
    let failure = failure_type();
    let report: &[_] = if has_report { &[(REPORT, &failure)] } else { &[] };
    let mut text = short_form_xsd(&namespace, report);
    let mut questions = String::new();
    for goal in asked {
        let name = escape_attribute(goal.id.value.as_str());
        let _ = writeln!(questions, "  <xs:element name=\"{name}\" type=\"q:question\"/>");
    }
    questions.push_str(QUESTION_TYPE);
    if let Some(end) = text.rfind("</xs:schema>") {
        text.insert_str(end, &questions);
    }
    let bound = format!("<xs:schema xmlns:q=\"{}\" ", escape_attribute(&namespace));
    Some(text.replacen("<xs:schema ", &bound, 1))
}

const QUESTION_TYPE: &str = r#"  <xs:complexType name="question">
    <xs:sequence>
      <xs:element name="prompt" type="xs:string"/>
      <xs:element name="output" minOccurs="0" maxOccurs="unbounded">
        <xs:complexType>
          <xs:simpleContent>
            <xs:extension base="xs:string">
              <xs:attribute name="goal" type="xs:string" use="required"/>
              <xs:attribute name="iteration" type="xs:positiveInteger"/>
            </xs:extension>
          </xs:simpleContent>
        </xs:complexType>
      </xs:element>
    </xs:sequence>
  </xs:complexType>
"#;
