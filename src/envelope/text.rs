//! The envelope as XML text, as section 4 of the design and `schemas/envelope.xsd` have it.
//!
//! The envelope binds the prefix `e` and never a default namespace, which would change what
//! unqualified names in a payload mean. Ids and names are written as they are: their newtypes
//! admit no character that would need escaping.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Message, NAMESPACE};
use crate::ids::{Attempt, CallId, ListenerName, ThreadId};
use crate::trace::TraceParent;

/// The schema of `<e:message>` and `<e:delivery>`.
pub const SCHEMA: &str = include_str!("../../schemas/envelope.xsd");

/// Approximate size of an envelope, for reserving buffers.
const ENVELOPE_BYTES_USUAL: usize = 512;

/// The head of a delivery frame: one attempt to have a listener handle a call.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryHead<'a> {
    pub listener: &'a ListenerName,
    pub call: CallId,
    pub thread: &'a ThreadId,
    pub attempt: Attempt,
    /// Time from hand-over until the attempt times out.
    pub timeout: Duration,
    pub trace: Option<TraceParent>,
    /// Number of messages of the call that the listener remembers and that are left out.
    pub after: Option<usize>,
}

/// Writes a message as a text of its own: `<e:message xmlns:e="…" …>`.
pub fn write_message(out: &mut String, message: &Message) {
    out.reserve(message.payload.bytes.len() + ENVELOPE_BYTES_USUAL);
    put(out, format_args!("<e:message xmlns:e=\"{NAMESPACE}\""));
    message_body(out, message, false, None);
}

/// Opens a delivery frame; messages follow, then [`close_delivery`].
pub fn open_delivery(out: &mut String, head: &DeliveryHead<'_>) {
    let DeliveryHead { listener, call, thread, attempt, timeout, trace, after } = head;
    put(
        out,
        format_args!(
            "<e:delivery xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\" \
             thread=\"{thread}\" listener=\"{listener}\" timeout=\""
        ),
    );
    duration(out, *timeout);
    if let Some(trace) = trace {
        put(out, format_args!("\" traceparent=\"{trace}"));
    }

    if let Some(after) = after {
        put(out, format_args!("\" after=\"{after}"));
    }

    out.push_str("\">");
}

/// Writes one message of a delivery. `new` marks a message that the listener has not been given
/// before. `position` is its position in the call, from 1, if earlier messages are left out.
pub fn write_delivered(out: &mut String, message: &Message, new: bool, position: Option<usize>) {
    out.reserve(message.payload.bytes.len() + ENVELOPE_BYTES_USUAL);
    out.push_str("<e:message");
    message_body(out, message, new, position);
}

pub fn close_delivery(out: &mut String) {
    out.push_str("</e:delivery>");
}

/// From after the tag's name to the end of the element.
fn message_body(out: &mut String, message: &Message, new: bool, position: Option<usize>) {
    let Message { id, kind, from, to, thread, seq, cause, call, time, .. } = message;
    put(out, format_args!(" id=\"{id}\" kind=\"{}\" seq=\"{seq}\"", kind.as_str()));
    if new {
        out.push_str(" new=\"true\"");
    }

    if let Some(position) = position {
        put(out, format_args!(" position=\"{position}\""));
    }

    put(
        out,
        format_args!(
            "><e:meta><e:from>{from}</e:from><e:to>{to}</e:to><e:thread>{thread}</e:thread>"
        ),
    );
    if let Some(cause) = cause {
        put(out, format_args!("<e:cause>{cause}</e:cause>"));
    }

    if let Some(call) = call {
        put(out, format_args!("<e:call>{call}</e:call>"));
    }

    put(out, format_args!("<e:time>{time}</e:time></e:meta>"));
    out.push_str(message.payload.as_str());
    out.push_str("</e:message>");
}

/// An XSD duration in seconds, such as `PT60S` or `PT0.25S`.
fn duration(out: &mut String, duration: Duration) {
    put(out, format_args!("PT{}", duration.as_secs()));
    if duration.subsec_nanos() > 0 {
        let fraction = format!("{:09}", duration.subsec_nanos());
        put(out, format_args!(".{}", fraction.trim_end_matches('0')));
    }
    out.push('S');
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("writing to a string cannot fail");
}
