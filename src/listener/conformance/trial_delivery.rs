//! The deliveries with which a listener is tested.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::TrialRequest;
use crate::bus::{Delivery, DeliveryPreview};
use crate::clock::Time;
use crate::envelope::{Message, MessageKind, Payload};
use crate::ids::{Attempt, CallId, ListenerName, MessageId, PayloadName, Position, ThreadId};
use crate::system;

/// Returns the name under which the program is tested.
pub(super) fn tested() -> ListenerName {
    ListenerName::parse("listener-under-test").expect("the name is a good one")
}

pub(super) fn new_call() -> CallId {
    CallId(MessageId(Uuid::now_v7()))
}

/// Returns a delivery of a new call.
pub(super) fn delivery(request: &TrialRequest, attempt: Attempt, timeout: Duration) -> Delivery {
    delivery_of_call(new_call(), request, attempt, timeout, 0)
}

/// Returns a delivery of `call`. The delivery contains the request, and then as many failure
/// messages as `results` states. Each failure message reports the time-out of another call, as if
/// the listener had made that call.
pub(super) fn delivery_of_call(
    call: CallId,
    request: &TrialRequest,
    attempt: Attempt,
    timeout: Duration,
    results: u64,
) -> Delivery {
    let listener = tested();
    let thread = ThreadId::organism();
    let message = Message {
        id: call.0,
        kind: MessageKind::Call,
        from: ListenerName::core(),
        to: listener.clone(),
        thread: thread.clone(),
        seq: 1,
        cause: None,
        call: Some(call),
        time: Time::now(),
        name: request.name.clone(),
        payload: Payload::new(request.payload.as_str()),
    };

    let result = |seq| Message {
        id: MessageId(Uuid::now_v7()),
        kind: MessageKind::System,
        seq,
        cause: Some(call.0),
        name: PayloadName::new(system::NAMESPACE, "system-error"),
        payload: Payload::new(format!(
            "<system-error xmlns=\"{}\" code=\"timeout\" retry_allowed=\"true\">the peer did not \
             answer in time</system-error>",
            system::NAMESPACE
        )),
        ..message.clone()
    };
    let results: Vec<_> = (2..2 + results).map(result).map(Arc::new).collect();
    let fresh = results.len().max(1);
    let messages = [Arc::new(message)].into_iter().chain(results).collect();

    let position = Position(1);
    let trace = None;
    let preview = DeliveryPreview::None;
    let source = None;
    let uncounted = Vec::new();
    Delivery {
        listener,
        call,
        thread,
        attempt,
        messages,
        fresh,
        position,
        timeout,
        trace,
        preview,
        source,
        uncounted,
    }
}
