//! A subscription that outlasts the loss of its permission. While the servers deny the
//! subscription, this process subscribes again every few seconds.

use std::time::Instant;

use async_nats::{Client, Message, SubscribeError, Subscriber};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{BoxStream, StreamExt as _, unfold};
use tokio::time::sleep_until;

use super::{PermissionError, PermissionErrors, flush_and_await_denials};
use crate::limits;

/// Function that receives the error when the servers deny a subscription, and `None` when they
/// permit it.
pub type SubscriptionReport = Box<dyn Fn(Option<String>) + Send + Sync>;

/// Why a subscription could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionFailure {
    #[error(transparent)]
    Denied(PermissionError),
    /// The subject is invalid, or the connection is closed.
    #[error(transparent)]
    Unsent(SubscribeError),
}

/// Subscribes to `subject`, and waits until the servers have processed the subscription. Returns a
/// permission error if the servers deny the subscription.
pub async fn subscribe_checked(
    client: &Client,
    denials: &PermissionErrors,
    subject: String,
) -> Result<Subscriber, SubscriptionFailure> {
    let since = Instant::now();
    let subscribed = client.subscribe(subject.clone()).await;
    let messages = subscribed.map_err(SubscriptionFailure::Unsent)?;
    flush_and_await_denials(client, denials).await;
    match denials.subscription_denied_since(&subject, since) {
        Some(denied) => Err(SubscriptionFailure::Denied(denied)),
        None => Ok(messages),
    }
}

/// A subscription of this process. While the servers deny it, [`RenewedSubscription::next`] tries
/// to subscribe again at intervals of [`limits::SUBSCRIBE_RETRY`].
pub struct RenewedSubscription {
    client: Client,
    denials: PermissionErrors,
    subject: String,
    state: SubscriptionState,
    /// Time of the last attempt to subscribe, or of the last denial if that is later. Earlier
    /// permission errors are ignored.
    since: Instant,
    /// Number of the connection's permission errors that this subscription has already checked.
    known_errors: u64,
    report: SubscriptionReport,
}

enum SubscriptionState {
    Open(Subscriber),
    /// The servers deny the subscription. The future waits and then subscribes again. Its output is
    /// the time of this new attempt, and the attempt's result.
    ///
    /// Ordering rule: the future is kept in this state, so that it continues in the next call of
    /// [`RenewedSubscription::next`]. Callers often cancel that method, and the servers may take
    /// longer to respond than a caller waits.
    Denied(BoxFuture<'static, (Instant, Result<Subscriber, SubscriptionFailure>)>),
    /// The connection is closed for good.
    Closed,
}

impl RenewedSubscription {
    /// Subscribes to `subject`. If the servers deny the subscription, now or later, `next`
    /// subscribes again until they permit it. `denials` are the permission errors of the connection
    /// of `client`.
    pub async fn open(
        client: Client,
        denials: PermissionErrors,
        subject: String,
        report: SubscriptionReport,
    ) -> Result<Self, SubscribeError> {
        let since = Instant::now();
        // The servers may deny it later; `next` notices this.
        let state = SubscriptionState::Open(client.subscribe(subject.clone()).await?);
        report(None);
        Ok(Self { client, denials, subject, state, since, known_errors: 0, report })
    }

    /// Returns a stream of all messages. The stream ends when the connection is closed for good.
    pub fn into_stream(self) -> BoxStream<'static, Message> {
        let next = |mut messages: Self| async move {
            let message = messages.next().await?;
            Some((message, messages))
        };
        unfold(self, next).boxed()
    }

    /// Returns the next message. Returns `None` if the connection is closed for good. May be
    /// cancelled without losing a message or an attempt to subscribe again.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            match &mut self.state {
                SubscriptionState::Open(messages) => tokio::select! {
                    // Messages that arrived before the servers denied the subscription are not
                    // lost.
                    biased;
                    message = messages.next() => return message,
                    () = self.denials.changed(&mut self.known_errors) => {}
                },
                SubscriptionState::Denied(renewal) => {
                    let (since, renewed) = renewal.await;
                    self.since = since;
                    self.end_renewal(renewed);
                    continue;
                }
                SubscriptionState::Closed => return None,
            }

            let denied = self.denials.subscription_denied_since(&self.subject, self.since);
            if let Some(denied) = denied {
                self.since = Instant::now();
                self.deny(denied.to_string());
            }
        }
    }

    fn end_renewal(&mut self, renewed: Result<Subscriber, SubscriptionFailure>) {
        match renewed {
            Ok(messages) => {
                tracing::warn!("subscribed to `{}` again", self.subject);
                self.state = SubscriptionState::Open(messages);
                (self.report)(None);
            }
            Err(SubscriptionFailure::Denied(denied)) => self.deny(denied.to_string()),
            Err(SubscriptionFailure::Unsent(_)) => self.state = SubscriptionState::Closed,
        }
    }

    /// Reports that the servers deny the subscription, and schedules the next attempt to subscribe.
    fn deny(&mut self, error: String) {
        let due = self.since + limits::SUBSCRIBE_RETRY;
        let client = self.client.clone();
        let denials = self.denials.clone();
        let subject = self.subject.clone();
        let renewal = async move {
            sleep_until(due.into()).await;
            let since = Instant::now();
            (since, subscribe_checked(&client, &denials, subject).await)
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
    use crate::nats::{NatsCredentials, Options, connect_with_denials};

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

    /// Cancels three waits for a message while an attempt to subscribe again is under way. The
    /// attempt must continue, and a later wait must return the message of the new subscription.
    #[tokio::test]
    async fn an_attempt_to_subscribe_again_outlasts_callers_that_stop_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _server = tokio::spawn(serve(listener));
        let servers = vec![format!("nats://{address}")];
        let options = Options { servers, credentials: NatsCredentials::Anonymous, ca: None };
        let (client, denials) = connect_with_denials(&options, "talk").await.unwrap();

        let (respond, response) = oneshot::channel();
        let renewal = async move { response.await.unwrap() };
        let mut messages = RenewedSubscription {
            client: client.clone(),
            denials,
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

        let renewed =
            client.subscribe("members".to_owned()).await.map_err(SubscriptionFailure::Unsent);
        let is_awaited = respond.send((Instant::now(), renewed)).is_ok();
        assert!(is_awaited, "the attempt has ended with its caller");
        let received = messages.next().await.unwrap();
        assert_eq!(&*received.payload, b"hi");
    }

    #[tokio::test]
    async fn a_denied_subscription_ends_with_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _server = tokio::spawn(serve(listener));
        let servers = vec![format!("nats://{address}")];
        let options = Options { servers, credentials: NatsCredentials::Anonymous, ca: None };
        let (client, denials) = connect_with_denials(&options, "talk").await.unwrap();
        client.drain().await.unwrap();
        // The client takes no commands any more as soon as its task has ended.
        let unsent = loop {
            match client.subscribe("members".to_owned()).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        };

        let renewal =
            std::future::ready((Instant::now(), Err(SubscriptionFailure::Unsent(unsent))));
        let mut messages = RenewedSubscription {
            client,
            denials,
            subject: "members".to_owned(),
            state: SubscriptionState::Denied(renewal.boxed()),
            since: Instant::now(),
            known_errors: 0,
            report: Box::new(|_| {}),
        };
        assert!(messages.next().await.is_none());
        assert!(messages.next().await.is_none());
    }
}
