//! The XML text of envelopes and deliveries, as `schemas/envelope.xsd` defines it.
//!
//! Envelope elements have the prefix `e`. A default namespace would instead change the meaning of
//! unqualified names in a payload. Ids and names need no escaping, because their types admit no
//! character that XML would escape.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Message, NAMESPACE};
use crate::ids::{Attempt, CallId, Digest, ListenerName, ThreadId};
use crate::trace::TraceParent;

/// The XML schema of `<e:message>` and `<e:delivery>`.
pub const SCHEMA: &str = include_str!("../../schemas/envelope.xsd");

/// Approximate bytes of an envelope; used to reserve buffers.
const ENVELOPE_BYTES_USUAL: usize = 512;

/// The head of a delivery frame. A delivery is one attempt to have a listener handle a call.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryHead<'a> {
    pub listener: &'a ListenerName,
    pub call: CallId,
    pub thread: &'a ThreadId,
    pub attempt: Attempt,
    /// Time from the hand-over of the delivery until its attempt times out.
    pub timeout: Duration,
    pub trace: Option<TraceParent>,
    /// Number of earlier messages of the call that the delivery leaves out, because the listener
    /// remembers them. `None` if the delivery contains all messages of the call.
    pub after: Option<usize>,
    /// Whether the delivery requests a preview: a description of the effect of a call that waits
    /// for a person.
    pub asks_preview: bool,
    /// Digest of the preview that a person approved together with the call; `None` if no preview
    /// was approved.
    pub approved_preview: Option<Digest>,
}

/// Writes a message as a complete document: `<e:message xmlns:e="…" …>`.
pub fn write_message(out: &mut String, message: &Message) {
    out.reserve(message.payload.bytes.len() + ENVELOPE_BYTES_USUAL);
    put(out, format_args!("<e:message xmlns:e=\"{NAMESPACE}\""));
    message_body(out, message, false, None);
}

/// Opens a delivery frame. The caller writes the messages next, and then calls [`close_delivery`].
pub fn open_delivery(out: &mut String, head: &DeliveryHead<'_>) {
    let DeliveryHead { listener, call, thread, attempt, timeout, trace, after, .. } = head;
    put(
        out,
        format_args!(
            "<e:{} xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"{attempt}\" \
             thread=\"{thread}\" listener=\"{listener}\" timeout=\"",
            frame_name(head)
        ),
    );
    duration(out, *timeout);
    if let Some(trace) = trace {
        put(out, format_args!("\" traceparent=\"{trace}"));
    }

    if let Some(after) = after {
        put(out, format_args!("\" after=\"{after}"));
    }

    if let Some(preview) = head.approved_preview {
        put(out, format_args!("\" approved_preview=\"{preview}"));
    }

    out.push_str("\">");
}

/// Writes one message of a delivery. `new` marks a message that the listener has not received
/// before. If the delivery leaves out earlier messages, `position` is the message's position in the
/// call, counted from 1.
pub fn write_delivered(out: &mut String, message: &Message, new: bool, position: Option<usize>) {
    out.reserve(message.payload.bytes.len() + ENVELOPE_BYTES_USUAL);
    out.push_str("<e:message");
    message_body(out, message, new, position);
}

pub fn close_delivery(out: &mut String, head: &DeliveryHead<'_>) {
    put(out, format_args!("</e:{}>", frame_name(head)));
}

/// Returns the name of the frame's element. Preview requests have another element name than calls,
/// so that a program without previews cannot mistake a preview request for a call.
fn frame_name(head: &DeliveryHead<'_>) -> &'static str {
    if head.asks_preview { "preview" } else { "delivery" }
}

/// Writes the rest of a message element, from the attributes of the start tag to the end tag. The
/// caller has already written the beginning of the start tag.
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

/// Writes an XSD duration in seconds, such as `PT60S` or `PT0.25S`.
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
