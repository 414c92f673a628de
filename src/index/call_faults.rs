//! Finds the error message with which the pump's core ended a failed call. Also reads the code and
//! the text of this message, which the index stores.

use std::borrow::Cow;

use crate::envelope::{Message, MessageKind};
use crate::ids::CallId;
use crate::system;
use crate::thread::{Fact, Record};
use crate::xml::scan::attributes;

use super::words;

/// Returns the error message in `record` with which the core ended `call`; `None` if the record has
/// no such message. Skips a `thread-result`, which only reports the end of the call to the thread
/// that waits for it.
pub fn fault_of(record: &Record, call: CallId) -> Option<&Message> {
    let messages = record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(&**message),
        _ => None,
    });
    let thread_result = system::name("thread-result");
    let is_fault = |message: &&Message| {
        message.kind == MessageKind::System
            && message.cause == Some(call.0)
            && message.call != Some(call)
            && message.name != thread_result
    };
    messages.rev().find(is_fault)
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

/// Returns the text of a fault, or [`NO_FAULT`] if the fault contains no text.
pub fn fault_detail(fault: &Message) -> String {
    words::first_words(&fault.payload).unwrap_or_else(|| NO_FAULT.to_owned())
}
