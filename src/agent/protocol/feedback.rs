//! Feedback to an agent about a mistake that concerns a whole turn. The agent gets these texts as a
//! `<huh>` payload.

use crate::agent::FinalMode;
use crate::xml::findings::{Finding, TextLocation};

/// Feedback code for a turn that contains no action and no final report.
pub const NO_ACTION: &str = "no-action";
/// Feedback code for an answer that the provider stopped, or may have stopped, before the answer
/// was complete.
pub const TRUNCATED: &str = "truncated";
/// Feedback code for a turn in which the provider or the model declined to answer.
pub const REFUSED: &str = "answer-refused";
/// Feedback code for a request that the provider rejected.
pub const REJECTED: &str = "request-rejected";
/// Feedback code for a native call, if the protocol requires actions to be XML.
pub const NATIVE_CALL: &str = "native-call";
/// Feedback code for an action that the model wrote as XML, if the protocol requires native calls.
pub const XML_CALL: &str = "xml-tool-call";
/// Feedback code for a call of a tool that was not offered.
pub const UNKNOWN_TOOL: &str = "unknown-tool";
/// Feedback code for a progress report of the model. The protocol `xml-final` accepts no progress
/// reports.
pub const PROGRESS: &str = "progress-suppressed";
/// Feedback code for a report in an element whose name does not contain the nonce of the turn.
pub const NONCE: &str = "nonce-mismatch";
pub const SLOT: &str = "slot-mismatch";
/// Feedback code for a final report without an end tag.
pub const FINAL_UNCLOSED: &str = "final-unclosed";
pub const FINAL_TRUNCATED: &str = "final-truncated";
pub const FINAL_FORMAT: &str = "final-format";
pub const FINAL_STATUS: &str = "final-status";
pub const FINAL_EMPTY: &str = "final-empty";
pub const FINAL_NOT_JSON: &str = "final-not-json";
pub const FINAL_INVALID: &str = "final-invalid";

const ANSWER_IN_TEXT: &str =
    "answer in text that holds no action and quotes none, which ends the task";

/// The actions that an agent may take, for feedback on a turn that contains no action.
#[derive(Debug, Clone, Default)]
pub struct AvailableActions {
    pub tools: Vec<String>,
    pub finals: Vec<String>,
    pub by: FinalMode,
}

impl AvailableActions {
    /// Creates feedback that the turn contains no action. The feedback shows how to write an
    /// action.
    pub fn no_action(&self, raw: &str, unknown: &[String]) -> Finding {
        let mut how = Vec::new();
        if !self.tools.is_empty() {
            let tools = tags(&self.tools);
            how.push(format!("call one tool ({tools}) with its parameters as child elements"));
        }

        if !self.finals.is_empty() {
            how.push(format!("end the task with {}", tags(&self.finals)));
        }

        if self.by == FinalMode::Text {
            how.push(ANSWER_IN_TEXT.to_owned());
        }

        let how = if how.is_empty() { "write one action".to_owned() } else { how.join(", or ") };
        let nothing = match unknown {
            _ if raw.trim().is_empty() => "it was empty; ".to_owned(),
            [] => String::new(),
            unknown => format!("none of your actions is called {}; ", tags(unknown)),
        };

        Finding::new(
            NO_ACTION,
            TextLocation::at(raw.as_bytes(), 0),
            format!(
                "the response did not contain a valid XML action: {nothing}{how}, as plain XML \
                 outside of code fences, quotes and <thinking>"
            ),
        )
    }

    /// Creates feedback that the turn contains no native call. `end` is a phrase that explains to
    /// the model how to end the task.
    pub fn no_call(&self, raw: &str, end: &str) -> Finding {
        let nothing = if raw.trim().is_empty() { "it was empty; " } else { "" };
        let call = if self.tools.is_empty() {
            String::new()
        } else {
            format!("call one of the native tools ({}), or ", self.tools.join(", "))
        };

        let text = match self.by {
            FinalMode::Text => format!("{ANSWER_IN_TEXT}, or "),
            FinalMode::Action => String::new(),
        };
        let message = format!(
            "the response did not contain a valid tool call or final report: {nothing}{call}{text}\
             {end}"
        );
        Finding::new(NO_ACTION, TextLocation::at(raw.as_bytes(), 0), message)
    }
}

fn tags(names: &[String]) -> String {
    names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(", ")
}

/// Creates feedback that the provider cut the text at the maximum length.
pub fn truncated(raw: &str) -> Finding {
    Finding::new(
        TRUNCATED,
        TextLocation::at(raw.as_bytes(), raw.len()),
        "the response reached its maximum length and was cut; write less before the action",
    )
}

/// Creates feedback for a turn whose text does not count as the answer to the call. The reason is
/// that this program does not know the stop reason that the provider stated.
pub fn unknown_stop(raw: &str) -> Finding {
    Finding::new(
        TRUNCATED,
        TextLocation::at(raw.as_bytes(), raw.len()),
        "the provider gave an unknown reason for the end of the response, so the text may be cut \
         and does not end the task",
    )
}

/// Creates feedback that the provider rejected the request. The feedback quotes the provider's
/// text.
pub fn rejected(message: &str) -> Finding {
    let message = format!("the provider rejected the request, so nothing was done: {message}");
    Finding::new(REJECTED, TextLocation::default(), message)
}

/// Creates feedback for a turn in which the provider or the model declined to answer.
pub fn refused(raw: &str) -> Finding {
    Finding::new(
        REFUSED,
        TextLocation::at(raw.as_bytes(), raw.len()),
        "the model refused to answer; go on with what you can do, or end the task and say why",
    )
}
