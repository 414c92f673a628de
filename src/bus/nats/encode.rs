//! Encodes a delivery as a NATS message: headers, and a body that is a single payload or a frame.

use crate::bus::{Delivery, DeliveryPreview, delivery_frame};
use crate::envelope::{Message, MessageKind};
use crate::nats::{HeaderMap, HeaderName};

use super::header_names;

pub(super) struct EncodedDelivery {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Returns the headers that every delivery has, whatever the kind of its listener: call, attempt,
/// thread and time-out. Adds the trace context if the delivery has one.
pub(super) fn headers(delivery: &Delivery) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: String| {
        headers.insert(HeaderName::from_static(name), value);
    };

    put(header_names::CALL, delivery.call.to_string());
    put(header_names::ATTEMPT, delivery.attempt.to_string());
    put(header_names::THREAD, delivery.thread.to_string());
    put(header_names::TIMEOUT, delivery.timeout.as_secs_f64().to_string());
    if let Some(trace) = delivery.trace {
        put(header_names::TRACE, trace.to_string());
    }

    headers
}

/// Encodes a delivery. If `remembered` is a number, leaves out that many of its first messages,
/// because the receiver remembers them. If `remembered` is `None`, encodes all messages.
pub(super) fn write(delivery: &Delivery, remembered: Option<usize>) -> EncodedDelivery {
    let mut headers = headers(delivery);
    let mut put = |name: &'static str, value: String| {
        headers.insert(HeaderName::from_static(name), value);
    };

    let body = match delivery.messages.as_slice() {
        [message] if is_bare_payload(delivery, message) => {
            let Message { id, from, seq, time, payload, .. } = &**message;
            put(header_names::MESSAGE, id.to_string());
            put(header_names::FROM, from.to_string());
            put(header_names::SEQ, seq.to_string());
            put(header_names::TIME, time.to_string());
            if let DeliveryPreview::Approved(digest) = delivery.preview {
                put(header_names::APPROVED_PREVIEW, digest.to_string());
            }
            payload.as_str().as_bytes().to_vec()
        }
        messages => {
            put(
                header_names::MESSAGES,
                (messages.len() - remembered.unwrap_or_default()).to_string(),
            );
            let mut frame = String::new();
            delivery_frame::write(&mut frame, delivery, remembered);
            frame.into_bytes()
        }
    };

    EncodedDelivery { headers, body }
}

/// Whether the body of the NATS message is the payload alone, without a frame. True for a delivery
/// that contains only the request of its call. However, a request for a preview always has a frame,
/// because the name of the frame distinguishes this request from a call.
fn is_bare_payload(delivery: &Delivery, message: &Message) -> bool {
    let is_request = message.kind == MessageKind::Call && delivery.fresh == 1;
    is_request && delivery.preview != DeliveryPreview::Requested
}
