//! The host that answers in a test case in place of a listener or an agent. The host keeps each
//! delivery until the runner of the test case takes the delivery.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::bus::{Delivery, DeliveryPreview, Host, Outcome, Sink};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, ListenerName};
use crate::locks::locked;

/// Deliveries that wait for an answer from the test case, oldest first.
#[derive(Clone, Default)]
pub struct PendingDeliveries(Arc<Mutex<CaseQueue>>);

#[derive(Default)]
struct CaseQueue {
    waiting: Vec<ScriptedDelivery>,
    is_closed: bool,
}

/// A delivery, and the sink that gets the outcome of the delivery.
#[derive(Clone)]
pub struct ScriptedDelivery {
    pub delivery: Delivery,
    sink: Arc<dyn Sink>,
}

impl ScriptedDelivery {
    pub fn end(&self, result: Result<Outcome, AttemptFailure>) {
        let Delivery { listener, call, attempt, .. } = &self.delivery;
        self.sink.ended(listener, *call, *attempt, result);
    }

    fn is(&self, call: CallId, attempt: Attempt) -> bool {
        self.delivery.call == call && self.delivery.attempt == attempt
    }
}

impl PendingDeliveries {
    /// Locks the queue. Never hold the guard while calling a sink, which may block.
    fn queue(&self) -> MutexGuard<'_, CaseQueue> {
        locked(&self.0)
    }

    pub fn all(&self) -> Vec<ScriptedDelivery> {
        self.queue().waiting.clone()
    }

    /// Takes a delivery out of the queue. Returns `None` if the delivery was cancelled and is no
    /// longer in the queue.
    pub fn take(&self, call: CallId, attempt: Attempt) -> Option<ScriptedDelivery> {
        let mut queue = self.queue();
        let at = queue.waiting.iter().position(|pending| pending.is(call, attempt))?;
        Some(queue.waiting.remove(at))
    }

    /// Ends every waiting delivery, and refuses further deliveries.
    pub fn close(&self) {
        let waiting = {
            let mut queue = self.queue();
            queue.is_closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for pending in waiting {
            pending.end(Err(cancelled()));
        }
    }
}

fn cancelled() -> AttemptFailure {
    AttemptFailure::Crashed { detail: "nothing waits for it any more".to_owned() }
}

/// The host of one listener or agent in a test case.
pub struct CaseHost {
    listener: ListenerName,
    sink: Arc<dyn Sink>,
    pending: PendingDeliveries,
}

impl CaseHost {
    pub fn new(listener: ListenerName, sink: Arc<dyn Sink>, pending: PendingDeliveries) -> Self {
        Self { listener, sink, pending }
    }
}

impl Host for CaseHost {
    fn deliver(&self, delivery: Delivery) {
        let call = delivery.call;
        let attempt = delivery.attempt;
        if delivery.preview == DeliveryPreview::Requested {
            let detail = "a case has no previews".to_owned();
            return self.sink.not_taken(&self.listener, call, attempt, detail);
        }

        {
            let mut queue = self.pending.queue();
            if !queue.is_closed {
                let sink = Arc::clone(&self.sink);
                return queue.waiting.push(ScriptedDelivery { delivery, sink });
            }
        }
        let detail = "the case has ended".to_owned();
        self.sink.not_taken(&self.listener, call, attempt, detail);
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        if let Some(pending) = self.pending.take(call, attempt) {
            pending.end(Err(cancelled()));
        }
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.pending.close();
        Box::pin(std::future::ready(()))
    }
}
