//! A subscription that outlasts the loss of its permission: while the servers deny it, it is tried
//! again every few seconds.

use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::time::sleep_until;

use super::PumpRpc;
use crate::limits;
use crate::nats::{Message, Subscriber};
use crate::organism::Error;

/// Function that receives the error when the servers deny a subscription, and `None` when they
/// permit it.
type SubscriptionReport = Box<dyn Fn(Option<String>) + Send + Sync>;

/// A subscription of this process. While the servers deny it, [`RenewedSubscription::next`]
/// subscribes again at each [`limits::SUBSCRIBE_RETRY`].
pub(in crate::organism) struct RenewedSubscription {
    rpc: PumpRpc,
    subject: String,
    state: SubscriptionState,
    /// Time of the last attempt to subscribe. Earlier permission errors do not count any more.
    since: Instant,
    /// Number of permission errors of the connection that are known.
    known_errors: u64,
    report: SubscriptionReport,
}

enum SubscriptionState {
    Open(Subscriber),
    /// The servers deny the subscription. The future waits and subscribes again. Its output is the
    /// time of this attempt, and the result.
    ///
    /// Ordering rule: the future is kept here, so that it outlasts [`RenewedSubscription::next`].
    /// Callers often cancel that method, and the servers may take longer to respond than a caller
    /// waits.
    Denied(BoxFuture<'static, (Instant, Result<Subscriber, Error>)>),
}

impl PumpRpc {
    /// Subscribes to `subject`, and again whenever the servers deny it and may permit it later.
    pub(super) async fn subscribe_renewed(
        &self,
        subject: String,
        report: SubscriptionReport,
    ) -> Result<RenewedSubscription, Error> {
        let since = Instant::now();
        // The servers may deny it later; `next` notices this.
        let state = SubscriptionState::Open(self.begin_subscription(subject.clone()).await?);
        report(None);
        let rpc = self.clone();
        Ok(RenewedSubscription { rpc, subject, state, since, known_errors: 0, report })
    }
}

impl RenewedSubscription {
    /// Returns the next message. Returns `None` if the connection is closed for good. May be
    /// cancelled without losing a message or an attempt to subscribe again.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            let denials = self.rpc.transport.denials();
            match &mut self.state {
                SubscriptionState::Open(messages) => tokio::select! {
                    message = messages.next() => return message,
                    () = denials.changed(&mut self.known_errors) => {}
                },
                SubscriptionState::Denied(renewal) => {
                    let (since, renewed) = renewal.await;
                    self.since = since;
                    self.end_renewal(renewed);
                    continue;
                }
            }

            let denied = denials.subscription_denied_since(&self.subject, self.since);
            if let Some(denied) = denied {
                self.since = Instant::now();
                self.deny(denied.to_string());
            }
        }
    }

    fn end_renewal(&mut self, renewed: Result<Subscriber, Error>) {
        match renewed {
            Ok(messages) => {
                tracing::warn!("subscribed to `{}` again", self.subject);
                self.state = SubscriptionState::Open(messages);
                (self.report)(None);
            }
            Err(error) => self.deny(error.to_string()),
        }
    }

    /// Begins to wait for the next attempt to subscribe.
    fn deny(&mut self, error: String) {
        let due = self.since + limits::SUBSCRIBE_RETRY;
        let rpc = self.rpc.clone();
        let subject = self.subject.clone();
        let renewal = async move {
            sleep_until(due.into()).await;
            let since = Instant::now();
            (since, rpc.subscribe(subject).await)
        };
        self.state = SubscriptionState::Denied(renewal.boxed());
        (self.report)(Some(error));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;
    use crate::nats::{NatsCredentials, Options};

    const INFO: &[u8] = b"INFO {\"version\":\"2.12.0\",\"proto\":1,\"max_payload\":65536}\r\n";

    /// Serves one client as a NATS server. Sends a message to each subscription to `members`.
    async fn serve(listener: TcpListener) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.write_all(INFO).await.unwrap();
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
            let words: Vec<_> = line.split_whitespace().collect();
            let response = match words.as_slice() {
                ["PING"] => "PONG\r\n".to_owned(),
                ["SUB", "members", id] => format!("MSG members {id} 2\r\nhi\r\n"),
                _ => String::new(),
            };
            stream.write_all(response.as_bytes()).await.unwrap();
            line.clear();
        }
    }

    /// A member of a group asks for the next announcement, and cancels that every 500 ms.
    #[tokio::test]
    async fn an_attempt_to_subscribe_again_outlasts_callers_that_stop_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _server = tokio::spawn(serve(listener));
        let servers = vec![format!("nats://{address}")];
        let options = Options { servers, credentials: NatsCredentials::Anonymous, ca: None };
        let rpc = PumpRpc::connect(&options, "talk").await.unwrap();

        let (respond, response) = oneshot::channel();
        let renewal = async move { response.await.unwrap() };
        let mut messages = RenewedSubscription {
            rpc: rpc.clone(),
            subject: "members".to_owned(),
            state: SubscriptionState::Denied(renewal.boxed()),
            since: Instant::now(),
            known_errors: 0,
            report: Box::new(|_| {}),
        };
        for _ in 0..3 {
            let received = messages.next().now_or_never();
            assert!(received.is_none(), "the servers have not responded yet");
        }

        let renewed = rpc.begin_subscription("members".to_owned()).await;
        let is_awaited = respond.send((Instant::now(), renewed)).is_ok();
        assert!(is_awaited, "the attempt has ended with its caller");
        let received = messages.next().await.unwrap();
        assert_eq!(&*received.payload, b"hi");
    }
}
