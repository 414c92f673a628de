//! A connection for callers that wait, from any thread, whether that one runs asynchronous work
//! or not.

use std::sync::mpsc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Request};
use tokio::runtime::Handle;

use super::{Drive, Error, Options, connect};

/// An open connection.
pub struct Link {
    client: Client,
    drive: Drive,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    pub subject: String,
    pub headers: Option<HeaderMap>,
    pub body: Vec<u8>,
    pub patience: Duration,
}

/// What was answered.
pub type Reply = Vec<u8>;

/// There was no answer. Whether the question arrived is not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Away {
    /// Nobody takes such questions, at present or at all.
    #[error("nobody answers at `{0}`")]
    Nobody(String),
    #[error("no answer came: {0}")]
    Silent(String),
}

impl Link {
    /// Connects, under a name that the server shows to those who look after it.
    pub fn open(options: &Options, name: &str) -> Result<Self, Error> {
        let drive = Drive::start().map_err(|source| Error::Threads { source })?;
        let (options, name) = (options.clone(), name.to_owned());
        let (tell, told) = mpsc::sync_channel(1);
        drive.spawn(async move {
            // Whoever asked waits: it is there to be told.
            tell.send(connect(&options, &name).await).ok();
        });
        let detail = || Error::Threads { source: std::io::Error::other("they ended") };
        let client = told.recv().map_err(|_| detail()).flatten()?;
        Ok(Self { client, drive })
    }

    /// What else there is to say over it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What is spawned on it, the connection's thread runs.
    pub fn handle(&self) -> &Handle {
        self.drive.handle()
    }

    /// Of the server that is connected.
    pub fn version(&self) -> String {
        self.client.server_info().version
    }

    /// Bytes of one message, headers included, that the server takes.
    pub fn max_payload(&self) -> usize {
        self.client.server_info().max_payload
    }

    pub fn server(&self) -> String {
        let info = self.client.server_info();
        format!("{}:{}", info.host, info.port)
    }

    /// Whether there is a connection at present, as far as it is known.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    pub fn ask(&self, question: Question) -> Result<Reply, Away> {
        if Handle::try_current().is_ok() {
            let mut replies = self.ask_all(vec![question]);
            return replies.pop().unwrap_or_else(|| Err(ended()));
        }
        self.drive.wait(ask(&self.client, question)).unwrap_or_else(|| Err(ended()))
    }

    /// Asks everything at once and waits for every answer; they come in the order of asking.
    pub fn ask_all(&self, questions: Vec<Question>) -> Vec<Result<Reply, Away>> {
        let asked = questions.into_iter().map(|question| {
            let (tell, told) = mpsc::sync_channel(1);
            let client = self.client.clone();
            self.drive.spawn(async move {
                tell.send(ask(&client, question).await).ok();
            });
            told
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|told| told.recv().unwrap_or_else(|_| Err(ended()))).collect()
    }
}

fn ended() -> Away {
    Away::Silent("the connection's threads ended".to_owned())
}

async fn ask(client: &Client, question: Question) -> Result<Reply, Away> {
    let mut request = Request::new().payload(question.body.into()).timeout(Some(question.patience));
    if let Some(headers) = question.headers {
        request = request.headers(headers);
    }
    let subject = question.subject;
    match client.send_request(subject.clone(), request).await {
        Ok(reply) => Ok(reply.payload.into()),
        Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            Err(Away::Nobody(subject))
        }
        Err(error) => Err(Away::Silent(error.to_string())),
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server()).finish_non_exhaustive()
    }
}
