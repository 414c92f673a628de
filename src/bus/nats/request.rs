//! A delivery as a message: headers, and the payload itself where there is only one.

use std::sync::Arc;

use crate::bus::Delivery;
use crate::envelope::text::{self, DeliveryHead};
use crate::envelope::{Kind, Message};
use crate::nats::{HeaderMap, HeaderName};

use super::words;

pub(super) struct Written {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

pub(super) fn write(delivery: &Delivery) -> Written {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: String| {
        headers.insert(HeaderName::from_static(name), value);
    };
    put(words::CALL, delivery.call.to_string());
    put(words::ATTEMPT, delivery.attempt.to_string());
    put(words::THREAD, delivery.thread.to_string());
    put(words::TIMEOUT, delivery.timeout.as_secs_f64().to_string());
    if let Some(trace) = delivery.trace {
        put(words::TRACE, trace.to_string());
    }
    let body = match delivery.messages.as_slice() {
        [message] if message.kind == Kind::Call && delivery.fresh == 1 => {
            let Message { id, from, seq, time, payload, .. } = &**message;
            put(words::MESSAGE, id.to_string());
            put(words::FROM, from.to_string());
            put(words::SEQ, seq.to_string());
            put(words::TIME, time.to_string());
            payload.as_str().as_bytes().to_vec()
        }
        messages => {
            put(words::MESSAGES, messages.len().to_string());
            frame(delivery).into_bytes()
        }
    };
    Written { headers, body }
}

/// About what a frame says beside each payload, so that its text grows in place.
const FRAMED_BYTES: usize = 400;

/// As processes get it (section 3).
fn frame(delivery: &Delivery) -> String {
    let Delivery { listener, call, thread, attempt, messages, fresh, timeout, trace, .. } =
        delivery;
    let (call, attempt, timeout, trace) = (*call, *attempt, *timeout, *trace);
    let bytes = |message: &Arc<Message>| message.payload.as_str().len() + FRAMED_BYTES;
    let mut out = String::with_capacity(FRAMED_BYTES + messages.iter().map(bytes).sum::<usize>());
    let head = DeliveryHead { listener, call, thread, attempt, timeout, trace };
    text::open_delivery(&mut out, &head);
    let known = messages.len().saturating_sub(*fresh);
    for (index, message) in messages.iter().enumerate() {
        text::write_delivered(&mut out, message, index >= known);
    }
    text::close_delivery(&mut out);
    out
}
