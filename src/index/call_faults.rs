//! Finds the messages that report failures: the core's error message that ended a call, and a
//! workflow's reply about a failed run. Reads from these messages the code and the text that the
//! index stores.

use std::borrow::Cow;

use crate::contract::is_run_failure;
use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;
use crate::limits;
use crate::system;
use crate::thread::RecordByCall;
use crate::xml::element::Element;
use crate::xml::scan::attributes;

use super::words;

/// Returns the error message in the record with which the core ended `call`; `None` if the record
/// has no such message. Skips messages of the type `thread-result`. They only pass on the end of the
/// call to a thread that waits for the call.
pub fn fault_of<'r>(by_call: &RecordByCall<'r>, call: CallId) -> Option<&'r Message> {
    let thread_result = system::name("thread-result");
    let is_fault = |message: &&Message| {
        message.kind == MessageKind::System
            && message.call != Some(call)
            && message.name != thread_result
    };
    by_call.caused_by(call).iter().copied().rfind(is_fault)
}

/// Error text in the index for a failed call whose error message contains no text.
pub const NO_FAULT: &str = "the call ended with this fault";

/// Returns the code of a fault, such as `timeout`. For a fault without a code, returns the local
/// name of its payload.
pub fn fault_word(fault: &Message) -> Cow<'_, str> {
    let attributes = attributes(fault.payload.as_str());
    let code = attributes.into_iter().find(|(name, _)| *name == "code").map(|(_, code)| code);
    code.unwrap_or(Cow::Borrowed(&*fault.name.local))
}

/// Returns the text of a fault, or [`NO_FAULT`] if the fault contains no text. Cuts a long text,
/// and marks the cut.
pub fn fault_detail(fault: &Message) -> String {
    // One more character shows whether the text is longer than the bound.
    let text = words::first_words(&fault.payload, limits::FAULT_CHARS_MAX + 1);
    text.map_or_else(|| NO_FAULT.to_owned(), cut)
}

/// Returns the text of an error without the kind of the error at its beginning: for `crashed:
/// signal 9`, returns `signal 9`. The text is shown beside the kind.
pub fn without_kind<'t>(kind: &str, text: &'t str) -> &'t str {
    let rest = text.strip_prefix(kind).and_then(|rest| rest.strip_prefix(": "));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(text)
}

/// Cuts a text that is longer than [`limits::FAULT_CHARS_MAX`]. The last character of a cut text is
/// `…`.
fn cut(mut text: String) -> String {
    if text.chars().nth(limits::FAULT_CHARS_MAX).is_some() {
        text = text.chars().take(limits::FAULT_CHARS_MAX - 1).collect();
        text.push('…');
    }
    text
}

/// Returns the reply in the record with which a workflow reported that the run `call` failed.
/// Returns `None` if the record has no such reply. Also returns `None` for a run in a subthread: the call
/// that opened this subthread gets the failure as a result.
pub fn failed_run_of<'r>(by_call: &RecordByCall<'r>, call: CallId) -> Option<&'r Message> {
    by_call.result_of(call).find(|message| {
        message.kind == MessageKind::Reply
            && message.thread.is_root()
            && is_run_failure(&message.from, &message.name)
    })
}

/// Returns the code and the text of a failed run. The text consists of the failed goal and the
/// reason. If the reply contains no code, for example because it was redacted, the code is the
/// reply's local name.
pub fn run_fault(reply: &Message) -> (String, String) {
    let report = Element::read(reply.payload.as_str()).filter(|_| !reply.payload.is_redacted());
    let value = |name: &str| {
        let text = report.as_ref()?.child(name)?.text().trim().to_owned();
        (!text.is_empty()).then_some(text)
    };

    let code = value("code").unwrap_or_else(|| reply.name.local.to_string());
    let goal = value("goal").map(|goal| format!("{goal}: ")).unwrap_or_default();
    let reason = value("reason").unwrap_or_else(|| NO_FAULT.to_owned());
    (cut(code), cut(format!("{goal}{reason}")))
}

#[cfg(test)]
mod tests {
    use super::{cut, without_kind};
    use crate::limits;

    #[test]
    fn the_text_of_an_error_does_not_repeat_its_kind() {
        assert_eq!(without_kind("crashed", "crashed: signal 9"), "signal 9");
        assert_eq!(without_kind("lost", "lost: "), "lost: ");
        assert_eq!(without_kind("garbage", "unreadable answer: x"), "unreadable answer: x");
    }

    #[test]
    fn only_a_text_above_the_bound_is_cut_and_states_it() {
        let whole = "ä".repeat(limits::FAULT_CHARS_MAX);
        assert_eq!(cut(whole.clone()), whole);

        let shown = cut(format!("{whole}x"));
        assert_eq!(shown.chars().count(), limits::FAULT_CHARS_MAX);
        assert!(shown.ends_with("ä…"), "{shown}");
    }
}
