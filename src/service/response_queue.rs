//! The queue through which a client gets the responses to one request. The responses come from the
//! pump in this process, or from the connection to a pump elsewhere.

use tokio::sync::mpsc;

use super::ServiceResponse;
use crate::limits;

/// Sends the responses to one request through a bounded queue. If the queue is full because the
/// client does not read, the sender waits.
#[derive(Clone)]
pub struct ResponseSender(mpsc::Sender<Box<ServiceResponse>>);

/// Receives the responses to one request, until every sender is dropped.
// The queue reserves places for 32 items at once. The items are boxed, so that an idle queue is
// small: most connected clients only wait.
pub struct ResponseReceiver(mpsc::Receiver<Box<ServiceResponse>>);

/// The error of [`ResponseSender::send`] after the client has left, that is, after it has dropped
/// the receiver.
#[derive(Debug)]
pub struct ClientLeft;

/// Makes the queue of the responses to one request.
pub fn response_queue() -> (ResponseSender, ResponseReceiver) {
    let (sender, receiver) = mpsc::channel(limits::CONTROL_LINES_MAX);
    (ResponseSender(sender), ResponseReceiver(receiver))
}

impl ResponseSender {
    /// Queues a response. Waits while the queue is full.
    pub async fn send(&self, response: ServiceResponse) -> Result<(), ClientLeft> {
        self.0.send(Box::new(response)).await.map_err(|_| ClientLeft)
    }

    /// Waits until the client has left.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

impl ResponseReceiver {
    /// Returns the next response, or `None` after the last response. Cancel-safe.
    pub async fn recv(&mut self) -> Option<ServiceResponse> {
        self.0.recv().await.map(|response| *response)
    }

    /// Returns the next response if it is already in the queue, and otherwise `None`.
    pub fn try_recv(&mut self) -> Option<ServiceResponse> {
        self.0.try_recv().ok().map(|response| *response)
    }
}
