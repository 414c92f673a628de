//! A NATS client for callers that block. Any OS thread may call the client, even a thread that runs
//! asynchronous code.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use async_nats::{Client, HeaderMap, Request};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;

use super::{
    Error, Options, PermissionError, PermissionErrors, SharedRuntime, connect_with_denials,
};
use crate::limits;

/// A NATS connection with a blocking interface.
pub struct BlockingClient {
    client: Client,
    denials: PermissionErrors,
    drive: SharedRuntime,
}

/// A NATS request with the timeout for its response.
#[derive(Debug, Clone)]
pub struct NatsRequest {
    pub subject: String,
    pub headers: Option<HeaderMap>,
    pub body: Vec<u8>,
    pub patience: Duration,
}

/// Body of a response.
pub type ReplyBytes = Vec<u8>;

/// Why a request got no response. The request may or may not have arrived.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoResponse {
    /// No responder subscribes to the subject.
    #[error("no responder at `{0}`")]
    NoResponders(String),
    #[error("no response: {0}")]
    Silent(String),
    /// The servers respond that they do not serve the request at present.
    #[error("not served now: {0}")]
    Unserved(String),
    /// The servers denied the request, or the subscription for its response.
    #[error(transparent)]
    Denied(PermissionError),
}

impl BlockingClient {
    /// Connects to the servers. The monitoring of the servers shows the connection under `name`.
    pub fn open(options: &Options, name: &str) -> Result<Self, Error> {
        let drive = SharedRuntime::start().map_err(|source| Error::Threads { source })?;
        let options = options.clone();
        let name = name.to_owned();
        let (sender, receiver) = mpsc::sync_channel(1);
        drive.spawn(async move {
            // The caller waits for this value, so the receiver exists and the send succeeds.
            sender.send(connect_with_denials(&options, &name).await).ok();
        });
        let detail = || Error::Threads { source: std::io::Error::other("they ended") };
        let (client, denials) = receiver.recv().map_err(|_| detail()).flatten()?;
        Ok(Self { client, denials, drive })
    }

    /// Returns the version of the server that this client is connected to.
    pub fn version(&self) -> String {
        self.client.server_info().version
    }

    /// Returns the maximum bytes of one message that the server accepts, headers included.
    pub fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }

    /// Returns the name of the server that this client is connected to, as the server's config
    /// states it.
    pub fn server_name(&self) -> String {
        self.client.server_info().server_name
    }

    pub fn server(&self) -> String {
        let info = self.client.server_info();
        format!("{}:{}", info.host, info.port)
    }

    /// Whether the client considers the connection up. The client notices a lost server with a
    /// delay.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    pub fn request(&self, question: NatsRequest) -> Result<ReplyBytes, NoResponse> {
        if Handle::try_current().is_ok() {
            let mut replies = self.request_all(vec![question]);
            return replies.pop().unwrap_or_else(|| Err(ended()));
        }
        let response = self.drive.wait(ask(&self.client, &self.denials, question));
        response.unwrap_or_else(|| Err(ended()))
    }

    /// Returns a recent permission error that explains a missing response from `subject`; `None` if
    /// there is no such error.
    pub fn denied(&self, subject: &str) -> Option<PermissionError> {
        let since = Instant::now().checked_sub(limits::NATS_CONNECT_TIMEOUT)?;
        self.denials.request_denied(subject, since)
    }

    /// Sends a request to all subscribers of a subject. The returned receiver gets each response
    /// until the timeout of the request has passed or the receiver is dropped.
    pub fn request_from_all(&self, question: NatsRequest) -> mpsc::Receiver<ReplyBytes> {
        self.gather(question, |_| false)
    }

    /// Sends a request as [`BlockingClient::request_from_all`] does. If the subject has no
    /// subscriber, the returned receiver ends at once.
    pub fn request_from_listeners(&self, question: NatsRequest) -> mpsc::Receiver<ReplyBytes> {
        self.gather(question, |answer| answer.status == Some(async_nats::StatusCode::NO_RESPONDERS))
    }

    fn gather(
        &self,
        question: NatsRequest,
        is_end: fn(&async_nats::Message) -> bool,
    ) -> mpsc::Receiver<ReplyBytes> {
        // Queue: unbounded, because a task of the connection must not block. The timeout bounds the
        // number of responses.
        let (sender, receiver) = mpsc::channel();
        let client = self.client.clone();
        self.drive.spawn(async move {
            let NatsRequest { subject, body, patience, .. } = question;
            let inbox = client.new_inbox();
            let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
            if client.publish_with_reply(subject, inbox, body.into()).await.is_err() {
                return;
            }
            let gather = async {
                while let Some(answer) = answers.next().await {
                    if is_end(&answer) || sender.send(answer.payload.into()).is_err() {
                        return;
                    }
                }
            };
            // Responses after the timeout are dropped.
            tokio::time::timeout(patience, gather).await.ok();
        });
        receiver
    }

    /// Sends all requests concurrently and waits for all responses. The responses have the order of
    /// the requests.
    pub fn request_all(&self, questions: Vec<NatsRequest>) -> Vec<Result<ReplyBytes, NoResponse>> {
        let receivers = questions.into_iter().map(|question| {
            let (sender, receiver) = mpsc::sync_channel(1);
            let client = self.client.clone();
            let denials = self.denials.clone();
            self.drive.spawn(async move {
                sender.send(ask(&client, &denials, question).await).ok();
            });
            receiver
        });
        let receivers: Vec<_> = receivers.collect();
        receivers
            .into_iter()
            .map(|receiver| receiver.recv().unwrap_or_else(|_| Err(ended())))
            .collect()
    }
}

fn ended() -> NoResponse {
    NoResponse::Silent("the connection was closed".to_owned())
}

async fn ask(
    client: &Client,
    denials: &PermissionErrors,
    question: NatsRequest,
) -> Result<ReplyBytes, NoResponse> {
    let patience = question.patience;
    let mut request = Request::new().payload(question.body.into()).timeout(Some(question.patience));
    if let Some(headers) = question.headers {
        request = request.headers(headers);
    }

    let subject = question.subject;
    // Sending blocks, too, when a long outage has filled the client's queue. So a time-out also
    // covers the whole request.
    let sending = tokio::time::timeout(2 * patience, client.send_request(subject.clone(), request));
    let Ok(answer) = sending.await else {
        return Err(NoResponse::Silent("the send queue of the connection is full".to_owned()));
    };

    match answer {
        Ok(reply) => Ok(reply.payload.into()),
        Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            Err(NoResponse::NoResponders(subject))
        }
        Err(error) => {
            // A permission error of this request is younger than the longest time that the client
            // may have waited.
            let since = Instant::now().checked_sub(2 * patience);
            let denied = since.and_then(|since| denials.request_denied(&subject, since));
            Err(denied.map_or_else(|| NoResponse::Silent(error.to_string()), NoResponse::Denied))
        }
    }
}

impl std::fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server()).finish_non_exhaustive()
    }
}
