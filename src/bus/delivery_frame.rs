//! Encodes a delivery as a frame (docs/PROTOCOL.md, section 3). A listener in a child process gets
//! every delivery as a frame. A listener on NATS gets one only if the delivery has messages besides
//! the request.

use crate::envelope::Message;
use crate::envelope::text::{self, DeliveryHead};

use super::{Delivery, DeliveryPreview};

/// Usual number of bytes that a frame needs for a message in addition to its payload. Used to
/// reserve space.
const FRAMED_BYTES_USUAL: usize = 400;

/// Appends the frame of a delivery to `out`. If `remembered` is a number, leaves out that many of
/// the first messages, because the listener remembers them. If `remembered` is `None`, writes all
/// messages.
pub(super) fn write(out: &mut String, delivery: &Delivery, remembered: Option<usize>) {
    let Delivery { listener, call, thread, attempt, messages, fresh, timeout, trace, .. } =
        delivery;
    let asks_preview = delivery.preview == DeliveryPreview::Requested;
    let approved_preview = match delivery.preview {
        DeliveryPreview::Approved(digest) => Some(digest),
        DeliveryPreview::None | DeliveryPreview::Requested => None,
    };
    let call = *call;
    let attempt = *attempt;
    let timeout = *timeout;
    let trace = *trace;
    let skipped = remembered.unwrap_or_default();
    let sent = messages.get(skipped..).unwrap_or_default();
    let bytes = |message: &Message| message.payload.as_str().len() + FRAMED_BYTES_USUAL;
    out.reserve(FRAMED_BYTES_USUAL + sent.iter().map(|message| bytes(message)).sum::<usize>());

    let after = remembered;
    let head = DeliveryHead {
        listener,
        call,
        thread,
        attempt,
        timeout,
        trace,
        after,
        asks_preview,
        approved_preview,
    };
    text::open_delivery(out, &head);
    let known = messages.len().saturating_sub(*fresh);
    for (index, message) in messages.iter().enumerate().skip(skipped) {
        let position = remembered.map(|_| index + 1);
        text::write_delivered(out, message, index >= known, position);
    }

    text::close_delivery(out, &head);
}
