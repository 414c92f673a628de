//! Payloads of a workflow: its requests and replies, and the payloads that begin the threads of its
//! goals.

use std::fmt::Write as _;

use crate::contract::{RUN_FAILED, WORKFLOW_NAMESPACE, retry_name, write_goal_request};
use crate::envelope::Message;
use crate::ids::{ListenerName, PayloadName, ThreadId};
use crate::schema::{FieldCount, ShortField, ShortType, short_form_xsd};
use crate::system::{self, spawn_thread};
use crate::xml::element::Element;
use crate::xml::escape::{escape_attribute, escape_text};
use crate::xml::shape::QName;

use super::definition::{WorkflowDefinition, WorkflowInput, WorkflowOutput};
use super::retry_rules::may_be_final;
use super::run_state::{GoalCall, GoalFailure, RunLimits, RunOutput};
use super::undo::LeftCall;
use super::view::{ITEM, ViewEntry, ViewValue};

/// Returns the payloads in `result`, a `thread-result` that was parsed from `text`. Parses each
/// payload from its own text. Otherwise, a value such as `c: none` would seem to contain a prefix,
/// because the `thread-result` binds the prefix `c`.
pub(super) fn payloads_of(result: &Element, text: &str) -> Vec<Element> {
    let payloads = result.children().map(|payload| {
        let own = text.get(payload.origin.tag.start..payload.origin.end);
        let own = own.and_then(Element::read_document);
        own.filter(|own| own.name == payload.name).unwrap_or_else(|| payload.clone())
    });
    payloads.collect()
}

/// Returns the name of the payload that begins a run.
pub fn input_name(definition: &WorkflowDefinition) -> PayloadName {
    match &definition.input {
        WorkflowInput::Types(_) => name_of(&definition.name.value, ""),
        WorkflowInput::Payload(name) => name.value.clone(),
    }
}

/// Returns the name of the reply of a run that has completed.
pub fn output_name(workflow: &ListenerName) -> PayloadName {
    name_of(workflow, OUTPUT)
}

/// Returns the name of the reply of a run that has failed.
pub fn failed_name(workflow: &ListenerName) -> PayloadName {
    name_of(workflow, RUN_FAILED)
}

fn name_of(workflow: &ListenerName, suffix: &str) -> PayloadName {
    let namespace = format!("{WORKFLOW_NAMESPACE}/{workflow}");
    PayloadName::new(&namespace, &format!("{workflow}{suffix}"))
}

const OUTPUT: &str = "-output";

/// Returns the XSD of the payloads that do not depend on the definition of the workflow `name`: the
/// replies of runs, and the request for a retry.
pub fn run_schema(name: &ListenerName) -> String {
    let namespace = format!("{WORKFLOW_NAMESPACE}/{name}");
    let failed = format!("{name}{RUN_FAILED}");
    let mut text = short_form_xsd(&namespace, &[(failed.as_str(), &failure_type())]);
    if let Some(end) = text.rfind("</xs:schema>") {
        let retry = format!(
            "  <xs:element name=\"{}\"><xs:complexType><xs:attribute name=\"run\" \
             type=\"xs:string\" use=\"required\"/><xs:attribute name=\"from\" \
             type=\"xs:string\"/><xs:attribute name=\"again\" type=\"xs:boolean\"/>\
             </xs:complexType></xs:element>\n",
            retry_name(name).local
        );
        text.insert_str(end, &format!("{}{retry}", open_element(&format!("{name}{OUTPUT}"), "")));
    }
    text
}

/// Returns the XSD of the payload that begins a run of the workflow, and of the replies of the
/// workflow.
pub fn schema(definition: &WorkflowDefinition) -> String {
    let name = &definition.name.value;
    let failed = format!("{name}{RUN_FAILED}");
    let failure = failure_type();
    let mut elements = vec![(failed.as_str(), &failure)];
    if let WorkflowInput::Types(types) = &definition.input {
        elements.insert(0, (name.as_str(), types));
    }

    let mut text = short_form_xsd(&definition.namespace(), &elements);
    let output = format!("{name}{OUTPUT}");
    let content = match &definition.output {
        WorkflowOutput::Table(table) => {
            let children = table.iter().map(|(child, _)| open_element(child, " minOccurs=\"0\""));
            let children: String = children.collect();
            format!(
                "  <xs:element name=\"{output}\"><xs:complexType><xs:sequence>\n{children}  \
                 </xs:sequence></xs:complexType></xs:element>\n"
            )
        }
        WorkflowOutput::LastGoal | WorkflowOutput::One(_) => open_element(&output, ""),
    };
    if let Some(end) = text.rfind("</xs:schema>") {
        text.insert_str(end, &content);
    }
    text
}

/// Writes the XSD declaration of an element that may contain text and any child elements.
fn open_element(name: &str, occurs: &str) -> String {
    let name = escape_attribute(name);
    format!(
        "  <xs:element name=\"{name}\"{occurs}><xs:complexType mixed=\"true\"><xs:sequence><xs:any \
         minOccurs=\"0\" maxOccurs=\"unbounded\" processContents=\"skip\"/></xs:sequence>\
         </xs:complexType></xs:element>\n"
    )
}

/// Writes the reply with the output of a run.
pub fn output(definition: &WorkflowDefinition, output: &RunOutput) -> String {
    let namespace = definition.namespace();
    let element = |name: &str| Element::new(QName::new(Some(&namespace), name));
    let reply = element(&format!("{}{OUTPUT}", definition.name.value));
    let reply = match output {
        RunOutput::One(value) => with_content(reply, value),
        RunOutput::Table(table) => table.iter().fold(reply, |reply, (name, value)| {
            reply.with_child(with_content(element(name), value))
        }),
    };
    reply.to_xml()
}

/// Makes `value` the content of `element`:
/// - If `value` consists of several entries, each entry becomes a child with the entry's name and
///   the namespace of `element`.
/// - If `value` consists of copied elements, they become children without a change. The only
///   exception is an `item` that contains just text and has no namespace: it gets the namespace of
///   `element`.
fn with_content(element: Element, value: &ViewValue) -> Element {
    match value {
        ViewValue::Text(text) => element.with_text(text.clone()),
        ViewValue::Payload(payload) => element.with_child((**payload).clone()),
        ViewValue::Several(entries) => {
            let namespace = element.name.namespace.clone();
            entries.iter().fold(element, |element, ViewEntry { name, value, .. }| {
                let child = Element::new(QName::new(namespace.as_deref(), name));
                element.with_child(with_content(child, value))
            })
        }
        ViewValue::Elements(copies) => {
            let namespace = element.name.namespace.clone();
            copies.iter().cloned().fold(element, |element, mut copy| {
                let is_text = copy.children().next().is_none();
                if is_text && copy.name == QName::new(None, ITEM) {
                    copy.name.namespace.clone_from(&namespace);
                }
                element.with_child(copy)
            })
        }
    }
}

/// Writes the reply of a run that has failed.
pub fn failed(workflow: &ListenerName, goal: &str, failure: &GoalFailure) -> String {
    let namespace = format!("{WORKFLOW_NAMESPACE}/{workflow}");
    let name = format!("{workflow}{RUN_FAILED}");
    let mut out = format!("<{name} xmlns=\"{}\">", escape_attribute(&namespace));
    for (child, text) in [("goal", goal), ("code", &failure.code), ("reason", &failure.reason)] {
        let _ = write!(out, "<{child}>{}</{child}>", escape_text(text));
    }
    if has_code_of_listener(failure) {
        let _ = write!(out, "<{BY}>{LISTENER}</{BY}>");
    }
    let _ = write!(out, "</{name}>");
    out
}

/// Name of a child in the reply of a failed run. The content [`LISTENER`] states that a listener
/// chose the failure code for its own reply, so that a calling workflow may retry. The child is
/// written only if the code would otherwise forbid the retry.
const BY: &str = "by";
const LISTENER: &str = "listener";

fn has_code_of_listener(failure: &GoalFailure) -> bool {
    failure.is_own_code && may_be_final(&failure.code)
}

/// Whether `reply`, the reply of a failed run, states that a listener chose the failure code.
pub fn states_own_code(reply: &Element) -> bool {
    reply.child(BY).is_some_and(|by| by.text().trim() == LISTENER)
}

/// Whether `message` is the core's refusal of a payload other than a `wait`. The refusal of a
/// `wait` only means that the run had no open thread.
pub fn is_refusal(message: &Message) -> bool {
    let is_wait = || message.payload.as_str().contains(" about=\"wait\"");
    *message.name.namespace == *system::NAMESPACE
        && match &*message.name.local {
            "huh" => true,
            "system-error" => !is_wait(),
            _ => false,
        }
}

/// Returns the code and the reason of the refusal in `message`. Returns `None` if `message` refuses
/// no payload.
pub fn refusal_of(message: &Message) -> Option<(String, String)> {
    let huh = Element::read_document(message.payload.as_str()).filter(|_| is_refusal(message))?;
    let code = huh.attribute("code")?.to_owned();
    let reason = huh.child("reason").map_or_else(|| huh.text(), Element::text);
    let reason = reason.trim().chars().take(REASON_CHARS_MAX).collect();
    Some((code, reason))
}

/// Returns the failure of a run whose reply the core has refused with this code and this reason.
pub fn reply_refused((code, reason): (String, String)) -> GoalFailure {
    let code = match code.as_str() {
        "" | "too-complex" => "too-large",
        code => code,
    };
    GoalFailure::new(code, format!("the reply of the run was refused: {reason}"))
}

/// Maximum length, in characters, of the refusal reason in the reply of a workflow.
const REASON_CHARS_MAX: usize = 400;

/// Writes the reply of a run that undid its calls after a failure. The reply lists `left`, the
/// calls that were not undone.
pub fn undone(
    workflow: &ListenerName,
    goal: &str,
    failure: &GoalFailure,
    left: &[LeftCall],
) -> String {
    let namespace = format!("{WORKFLOW_NAMESPACE}/{workflow}");
    let name = format!("{workflow}{RUN_FAILED}");
    failure_report(&namespace, &name, (goal, failure), left).to_xml()
}

/// Builds the report of a failed run. The report lists `left`, the calls that were not undone.
pub fn failure_report(
    namespace: &str,
    name: &str,
    (goal, failure): (&str, &GoalFailure),
    left: &[LeftCall],
) -> Element {
    let named = |local: &str| Element::new(QName::new(Some(namespace), local));
    let leaf = |local: &str, text: &str| named(local).with_text(text);
    let mut report = named(name)
        .with_child(leaf("goal", goal))
        .with_child(leaf("code", &failure.code))
        .with_child(leaf("reason", &failure.reason));
    if has_code_of_listener(failure) {
        report = report.with_child(leaf(BY, LISTENER));
    }

    for call in left {
        let entry = named(NOT_UNDONE)
            .with_child(leaf("listener", call.listener.as_str()))
            .with_child(leaf("payload", &call.payload))
            .with_child(leaf("thread", call.thread.as_str()))
            .with_child(leaf("call", &call.call.to_string()))
            .with_child(leaf("why", &call.reason));
        report = report.with_child(entry);
    }

    report
}

/// Returns the type of the payload that reports a failed run and the calls that were not undone.
pub fn failure_type() -> ShortType {
    let field =
        |name: &str, occurs, short_type| ShortField { name: name.to_owned(), occurs, short_type };
    let text = |name: &str| field(name, FieldCount::Once, ShortType::Text);
    let call = ["listener", "payload", "thread", "call", "why"].map(text);
    let mut fields = ["goal", "code", "reason"].map(text).to_vec();
    fields.push(field(BY, FieldCount::AtMostOnce, ShortType::Text));
    fields.push(field(NOT_UNDONE, FieldCount::AnyNumber, ShortType::Fields(call.to_vec())));
    ShortType::Fields(fields)
}

const NOT_UNDONE: &str = "not-undone";

/// Attribute of a request for a thread. If the request has this attribute, the core cancels the
/// thread when the call of the workflow's run closes. Otherwise, the thread may outlive the call.
pub const BOUND: &str = " bound=\"true\"";

/// Writes the request for a thread that begins with `call`, the call of a goal. The core cancels
/// the thread when the call of the workflow's run closes.
pub fn spawn(label: &str, call: &GoalCall, limits: RunLimits) -> String {
    let payload = match call {
        GoalCall::Agent { agent, document, answer, roles } => {
            write_goal_request(agent, document, answer.as_ref(), roles.as_ref())
        }
        GoalCall::Payload { payload, .. } => payload.to_xml(),
    };
    let limits = limit_attributes(limits);
    spawn_thread(label, &payload, &format!("{BOUND}{limits}"))
}

fn limit_attributes(limits: RunLimits) -> String {
    let mut out = String::new();
    if let Some(tokens) = limits.budget.tokens {
        let _ = write!(out, " tokens=\"{tokens}\"");
    }
    if let Some(money) = limits.budget.money {
        let _ = write!(out, " money=\"{money}\"");
    }
    if let Some(timeout) = limits.timeout {
        // Rounded up: a thread must not end before the run's time is over.
        let millis = timeout.as_micros().div_ceil(1_000).max(1);
        let _ = write!(out, " timeout=\"PT{}.{:03}S\"", millis / 1_000, millis % 1_000);
    }
    out
}

pub fn cancel(thread: &ThreadId) -> String {
    format!("<c:cancel-thread xmlns:c=\"{}\" thread_id=\"{thread}\"/>", system::NAMESPACE)
}

/// Writes the `wait` that requests the next delivery as soon as a thread has ended.
pub fn wait() -> String {
    format!("<c:wait xmlns:c=\"{}\" for=\"any\"/>", system::NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::is_run_failure;

    #[test]
    fn a_payload_of_a_thread_result_gets_none_of_its_prefixes() {
        let namespace = system::NAMESPACE;
        let own = format!("<a k=\"c:b\">c: none</a><b xmlns:c=\"{namespace}\">c:d</b>");
        for (start, end, expected) in [
            (
                format!("<c:thread-result xmlns:c=\"{namespace}\">"),
                "</c:thread-result>",
                own.clone(),
            ),
            (
                format!("<thread-result xmlns=\"{namespace}\">"),
                "</thread-result>",
                own.replace("<a", &format!("<a xmlns=\"{namespace}\""))
                    .replace("<b", &format!("<b xmlns=\"{namespace}\"")),
            ),
        ] {
            let text = format!("{start}{own}{end}");
            let result = Element::read_document(&text).expect("it is one element");
            let payloads = payloads_of(&result, &text);
            assert_eq!(payloads.iter().map(Element::to_xml).collect::<String>(), expected);
        }
    }

    #[test]
    fn only_the_workflow_itself_reports_its_failed_run() {
        let tour = ListenerName::parse("tour").expect("it is a name");
        let other = ListenerName::parse("other").expect("it is a name");
        assert!(is_run_failure(&tour, &failed_name(&tour)));
        assert!(!is_run_failure(&tour, &output_name(&tour)));
        assert!(!is_run_failure(&tour, &failed_name(&other)));
        assert!(!is_run_failure(&tour, &PayloadName::new("urn:x", "tour-failed")));
        assert!(!is_run_failure(&tour, &crate::contract::delegate_failed_name()));
    }

    #[test]
    fn a_failed_run_states_that_a_listener_chose_a_code_after_which_workflows_do_not_retry() {
        let tour = ListenerName::parse("tour").expect("it is a name");
        let mut schemas = crate::schema::Schemas::default();
        schemas.add_builtin("tour.xsd", run_schema(&tour).leak()).expect("it is a schema");
        for (code, is_own_code, is_stated) in
            [("denied", true, true), ("denied", false, false), ("card-limit", true, false)]
        {
            let failure = GoalFailure { is_own_code, ..GoalFailure::new(code, "no card") };
            let name = failed_name(&tour);
            let written = [failed(&tour, "pay", &failure), undone(&tour, "pay", &failure, &[])];
            for reply in written {
                assert_eq!(schemas.validate(&name, reply.as_bytes()), Ok(()), "{reply}");
                let reply = Element::read(&reply).expect("it is one element");
                assert_eq!(states_own_code(&reply), is_stated, "{code} {is_own_code}");
            }
        }
    }

    #[test]
    fn a_copied_element_keeps_its_namespace_or_has_none() {
        let content = |payload: &str| {
            let payload = Element::read(payload).expect("it is one element");
            let element = Element::new(QName::new(Some("urn:w"), "w-output"));
            with_content(element, &ViewValue::Payload(Box::new(payload))).to_xml()
        };
        assert_eq!(
            content("<a><b>1</b></a>"),
            "<w-output xmlns=\"urn:w\"><a xmlns=\"\"><b>1</b></a></w-output>"
        );
        assert_eq!(
            content("<a xmlns='urn:a'/>"),
            "<w-output xmlns=\"urn:w\"><a xmlns=\"urn:a\"/></w-output>"
        );
    }

    #[test]
    fn a_text_beside_copied_elements_has_the_namespace_of_the_output() {
        let copied = Element::read("<a xmlns='urn:a'><b/></a>").expect("it is one element");
        let text = Element::local(ITEM).with_text("x".to_owned());
        let element = Element::new(QName::new(Some("urn:w"), "w-output"));
        let output = with_content(element, &ViewValue::Elements(vec![text, copied]));
        assert_eq!(
            output.to_xml(),
            "<w-output xmlns=\"urn:w\"><item>x</item><a xmlns=\"urn:a\"><b/></a></w-output>"
        );
    }
}
