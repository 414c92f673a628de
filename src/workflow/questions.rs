//! Questions to people: the payloads that a person gets for a goal, and the payloads that answer
//! them.
//!
//! Like a document for an agent, a question contains the goal's prompt and the outputs of other
//! goals. Each question and each answer is a payload of its own. The gate, which validates every
//! payload, can therefore check whether an answer has the form that its question requires.

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
use super::shapes::SUPERVISOR_SUFFIX;
use super::typed_outputs::{answer_of, goal_name};
use super::undo::LeftCall;
use super::verdicts::{verdict_name, verdict_type};

/// Returns the type of the answer to a goal's question. Returns `None` if a schema file declares
/// the answer, or if the goal has no question.
pub fn answer_type(goal: &GoalDefinition) -> Option<Cow<'_, ShortType>> {
    match (&goal.form, &goal.output) {
        (GoalForm::Ask { form: AskForm::Verdict { about }, .. }, _) => {
            Some(Cow::Owned(verdict_type(about.is_some())))
        }
        (GoalForm::Ask { .. }, GoalOutput::Types(types)) => Some(Cow::Borrowed(types)),
        _ => None,
    }
}

/// Returns the name of the payload that answers the question of a goal.
fn answer_name(definition: &WorkflowDefinition, goal: &GoalDefinition) -> PayloadName {
    let generated = || goal_name(definition, goal.id.value.as_str());
    answer_of(definition, goal).unwrap_or_else(generated)
}

/// Returns the name of the question that a goal sends to a person. This is the goal's own question,
/// or the question to its human supervisor. Returns `None` if the goal sends no question.
pub fn question_name(
    definition: &WorkflowDefinition,
    goal: &GoalDefinition,
) -> Option<PayloadName> {
    let id = goal.id.value.as_str();
    let is_supervised = goal.supervision.as_ref().is_some_and(|supervision| supervision.is_human);
    let local = match goal.form {
        GoalForm::Ask { .. } => id.to_owned(),
        _ if is_supervised => format!("{id}{SUPERVISOR_SUFFIX}"),
        _ => return None,
    };
    Some(PayloadName::new(&questions_namespace(definition), &local))
}

fn questions_namespace(definition: &WorkflowDefinition) -> String {
    format!("{}/questions", definition.namespace())
}

/// Returns every question that the workflow may send to people.
pub fn questions(definition: &WorkflowDefinition) -> Vec<WorkflowQuestion> {
    let of_goals = definition.goals.iter().filter_map(|goal| {
        let question = question_name(definition, goal)?;
        let (human, answer) = match (&goal.form, &goal.supervision) {
            (GoalForm::Ask { human, .. }, _) => (human, answer_name(definition, goal)),
            (_, supervision) => (&supervision.as_ref()?.supervisor, verdict_name()),
        };
        Some(WorkflowQuestion { human: human.value.clone(), question, answer })
    });

    let report = definition.report_to.iter().map(|human| WorkflowQuestion {
        human: human.value.clone(),
        question: report_name(definition),
        answer: goal_name(definition, REPORT),
    });

    of_goals.chain(report).collect()
}

/// Local name of the payload that lists the calls that were not undone, and of a person's answer to
/// this list. No goal may have this name.
pub const REPORT: &str = "undo";

/// Whether a question with this local name is the undo report, which lists the calls that a failed
/// run did not undo.
pub fn is_undo_report(local: &str) -> bool {
    local == REPORT
}

/// Returns the name of the payload that lists the calls that a failed run did not undo.
pub fn report_name(definition: &WorkflowDefinition) -> PayloadName {
    PayloadName::new(&questions_namespace(definition), REPORT)
}

/// Builds the list of calls that were not undone, as a question to a person.
pub fn report(
    definition: &WorkflowDefinition,
    goal: &str,
    failure: &GoalFailure,
    left: &[LeftCall],
) -> Element {
    failure_report(&questions_namespace(definition), REPORT, (goal, failure), left)
}

/// Returns the type of the answer to a [`report`].
pub fn report_answer() -> ShortType {
    let text = ShortField {
        name: "text".to_owned(),
        occurs: FieldCount::AtMostOnce,
        short_type: ShortType::Text,
    };
    ShortType::Fields(vec![text])
}

/// Builds the payload `name`, which is a goal's question to a person. The payload contains the
/// prompt, the outputs of other goals, and the corrections in `document`.
pub fn question(name: &PayloadName, document: &GoalDocument) -> Element {
    let named = |local: &str| Element::new(QName::new(Some(&name.namespace), local));
    let prompt = named("prompt").with_text(trimmed(&document.prompt));
    let mut question = named(&name.local).with_child(prompt);
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
    for correction in &document.corrections {
        question = question.with_child(named("correction").with_text(trimmed(correction)));
    }
    question
}

/// Returns the XSD of the questions of a workflow; `None` if there are none.
pub fn schema(definition: &WorkflowDefinition) -> Option<String> {
    let names = definition.goals.iter().filter_map(|goal| question_name(definition, goal));
    let names: Vec<_> = names.collect();
    let has_report = definition.report_to.is_some();
    if names.is_empty() && !has_report {
        return None;
    }

    let namespace = questions_namespace(definition);
    let failure = failure_type();
    let report: &[_] = if has_report { &[(REPORT, &failure)] } else { &[] };
    let mut text = short_form_xsd(&namespace, report);
    let mut questions = String::new();
    for question in names {
        let name = escape_attribute(&question.local);
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
      <xs:element name="correction" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>
    </xs:sequence>
  </xs:complexType>
"#;
