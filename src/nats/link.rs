//! A connection for callers that wait, from any thread, whether that one runs asynchronous work
//! or not.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use async_nats::{Client, HeaderMap, Request};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;

use super::{Denials, Denied, Drive, Error, Options, connect_told};
use crate::limits;

/// An open connection.
pub struct Link {
    client: Client,
    denials: Denials,
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
    /// It did not arrive, or its answer cannot.
    #[error(transparent)]
    Denied(Denied),
}

impl Link {
    /// Connects, under a name that the server shows to those who look after it.
    pub fn open(options: &Options, name: &str) -> Result<Self, Error> {
        let drive = Drive::start().map_err(|source| Error::Threads { source })?;
        let (options, name) = (options.clone(), name.to_owned());
        let (tell, told) = mpsc::sync_channel(1);
        drive.spawn(async move {
            // Whoever asked waits: it is there to be told.
            tell.send(connect_told(&options, &name).await).ok();
        });
        let detail = || Error::Threads { source: std::io::Error::other("they ended") };
        let (client, denials) = told.recv().map_err(|_| detail()).flatten()?;
        Ok(Self { client, denials, drive })
    }

    /// What else there is to say over it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What it is not allowed.
    pub fn denials(&self) -> &Denials {
        &self.denials
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

    /// As its config calls it.
    pub fn server_name(&self) -> String {
        self.client.server_info().server_name
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
        let asked = self.drive.wait(ask(&self.client, &self.denials, question));
        asked.unwrap_or_else(|| Err(ended()))
    }

    /// What of `subject` is denied, as far as it is known.
    pub fn denied(&self, subject: &str) -> Option<Denied> {
        let since = Instant::now().checked_sub(limits::NATS_CONNECT_TIMEOUT)?;
        self.denials.of_asking(subject, since)
    }

    /// Asks whoever is there, and hands over answers as they come, for as long as somebody takes
    /// them.
    pub fn ask_everybody(&self, question: Question) -> mpsc::Receiver<Reply> {
        self.gather(question, |_| false)
    }

    /// As [`Link::ask_everybody`]; where nobody listens, no answer is waited for.
    pub fn ask_listeners(&self, question: Question) -> mpsc::Receiver<Reply> {
        self.gather(question, |answer| answer.status == Some(async_nats::StatusCode::NO_RESPONDERS))
    }

    fn gather(
        &self,
        question: Question,
        is_end: fn(&async_nats::Message) -> bool,
    ) -> mpsc::Receiver<Reply> {
        let (tell, told) = mpsc::channel();
        let client = self.client.clone();
        self.drive.spawn(async move {
            let Question { subject, body, patience, .. } = question;
            let inbox = client.new_inbox();
            let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
            if client.publish_with_reply(subject, inbox, body.into()).await.is_err() {
                return;
            }
            let gather = async {
                while let Some(answer) = answers.next().await {
                    if is_end(&answer) || tell.send(answer.payload.into()).is_err() {
                        return;
                    }
                }
            };
            // Who has not answered by then does not.
            tokio::time::timeout(patience, gather).await.ok();
        });
        told
    }

    /// Asks everything at once and waits for every answer; they come in the order of asking.
    pub fn ask_all(&self, questions: Vec<Question>) -> Vec<Result<Reply, Away>> {
        let asked = questions.into_iter().map(|question| {
            let (tell, told) = mpsc::sync_channel(1);
            let (client, denials) = (self.client.clone(), self.denials.clone());
            self.drive.spawn(async move {
                tell.send(ask(&client, &denials, question).await).ok();
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

async fn ask(client: &Client, denials: &Denials, question: Question) -> Result<Reply, Away> {
    let patience = question.patience;
    let mut request = Request::new().payload(question.body.into()).timeout(Some(question.patience));
    if let Some(headers) = question.headers {
        request = request.headers(headers);
    }

    let subject = question.subject;
    // Away for long, a connection takes no more questions: to hand one over may last, too.
    let asked = tokio::time::timeout(2 * patience, client.send_request(subject.clone(), request));
    let Ok(answer) = asked.await else {
        return Err(Away::Silent("the connection takes no more questions".to_owned()));
    };

    match answer {
        Ok(reply) => Ok(reply.payload.into()),
        Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            Err(Away::Nobody(subject))
        }
        Err(error) => {
            // Told since it was asked, with some room for how long it took to give up.
            let since = Instant::now().checked_sub(2 * patience);
            let denied = since.and_then(|since| denials.of_asking(&subject, since));
            Err(denied.map_or_else(|| Away::Silent(error.to_string()), Away::Denied))
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("server", &self.server()).finish_non_exhaustive()
    }
}
