//! The subscriptions of a host to the subjects of its listener. If the task of the connection's
//! client ends, the host subscribes again with a new client.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, SelectAll, select_all, unfold};

use super::Error;
use super::connection::ConnectedClient;
use super::host::NatsShared;
use crate::nats::{Message, RenewedSubscription, SubscriptionReport};

/// The merged messages of all subjects of a listener. The stream ends together with the client that
/// made the subscriptions.
type SubjectMessages = SelectAll<BoxStream<'static, Message>>;

/// The messages of one listener, from the present client of the connection.
struct ListenerMessages {
    shared: Arc<NatsShared>,
    /// Client that made the subscriptions.
    client: Arc<ConnectedClient>,
    messages: SubjectMessages,
}

impl ListenerMessages {
    async fn next(&mut self) -> Message {
        loop {
            if let Some(message) = self.messages.next().await {
                return message;
            }
            self.renew().await;
        }
    }

    /// Subscribes with a new client, because the task of the present client has ended. First
    /// reports that the answers of the listener cannot arrive. This report applies until the
    /// servers have accepted the new subscription.
    async fn renew(&mut self) {
        let listener = &self.shared.options.listener;
        self.shared.set_answers_denied(Some(format!(
            "the connection to NATS for `{listener}` has ended, and is made anew; the log has the \
             reason"
        )));

        loop {
            self.shared.wire.renew(&self.client).await;
            self.client = self.shared.wire.current();
            match self.shared.subscribe(&self.client).await {
                Ok(messages) => {
                    self.messages = messages;
                    return;
                }
                // The task of the new client has ended, too.
                Err(error) => tracing::warn!(%listener, "{error}"),
            }
        }
    }
}

impl NatsShared {
    /// Returns the messages of the listener. The stream does not end.
    ///
    /// # Errors
    ///
    /// [`Error::Subscribe`] if the connection is closed.
    pub(super) async fn messages(self: &Arc<Self>) -> Result<BoxStream<'static, Message>, Error> {
        let client = self.wire.current();
        let messages = self.subscribe(&client).await?;
        let all = ListenerMessages { shared: Arc::clone(self), client, messages };
        let next = |mut all: ListenerMessages| async move {
            let message = all.next().await;
            Some((message, all))
        };
        Ok(unfold(all, next).boxed())
    }

    /// Subscribes to three subjects of the listener: its replies to this pump, its announcements,
    /// and its reports of denied operations. If the servers deny a subscription, repeats this
    /// subscription until the servers permit it. Returns the messages of all three subjects in one
    /// stream.
    async fn subscribe(
        self: &Arc<Self>,
        client: &ConnectedClient,
    ) -> Result<SubjectMessages, Error> {
        let shared = Arc::clone(self);
        let answers_denied = Box::new(move |denied| shared.set_answers_denied(denied));
        let subjects = self.subjects();
        let here = subscribe_to(client, subjects.here(), Box::new(|_| {})).await?;
        let denied = subscribe_to(client, subjects.denied(), Box::new(|_| {})).await?;
        // Ordering rule: this subscription reports that answers can arrive, so it comes last.
        let answers = subjects.answers_to(self.name());
        let answers = subscribe_to(client, answers, answers_denied).await?;
        Ok(select_all([answers, here, denied]))
    }
}

async fn subscribe_to(
    client: &ConnectedClient,
    subject: String,
    report: SubscriptionReport,
) -> Result<BoxStream<'static, Message>, Error> {
    let denials = client.denials().clone();
    let client = client.client().clone();
    let opened = RenewedSubscription::open(client, denials, subject.clone(), report).await;
    let opened = opened.map_err(|e| Error::Subscribe { subject, detail: e.to_string() })?;
    Ok(opened.into_stream())
}
