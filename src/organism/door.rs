//! The door: how a payload from outside gets in, and its result out, whether the organism runs
//! already or is started for it.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::control::{Ask, Client, Said};
use super::{Error, Organism};
use crate::config::Config;
use crate::envelope::{Disposition, Message, Refusal};
use crate::ids::{CallId, ListenerName, PayloadName, Position, ThreadId};
use crate::journal::sqlite::Reader;
use crate::pump::core::{Receipt, Target};
use crate::pump::driver::Handle;
use crate::thread::{Closing, Fact};

/// What a client hands in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Parcel {
    pub client: ListenerName,
    /// Go on in this thread.
    #[serde(default)]
    pub thread: Option<String>,
    /// Open a new one under this id.
    #[serde(default)]
    pub suggested: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    pub payload: String,
    /// Also wait for the results.
    pub wait: bool,
}

/// What becomes of it: first one of the receipts, then a result for every call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "sent", rename_all = "lowercase")]
pub enum Sent {
    Accepted {
        thread: ThreadId,
        calls: Vec<CallId>,
        /// Its key was used before: this is what was recorded then.
        again: bool,
    },
    Refused {
        refusal: Refusal,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// Not a thread this client may write to; the payload says so.
    NoThread {
        payload: String,
    },
    Result {
        call: CallId,
        how: Closing,
        replies: Vec<Answered>,
    },
}

/// One payload of a result.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answered {
    pub from: ListenerName,
    pub name: PayloadName,
    pub payload: String,
}

impl Answered {
    fn of(message: &Message) -> Self {
        let (from, name) = (message.from.clone(), message.name.clone());
        Self { from, name, payload: message.payload.as_str().to_owned() }
    }
}

/// Where payloads go in.
pub enum Door {
    /// An organism that runs in another process.
    Running(Client),
    /// One started for this occasion.
    Own(Box<Organism>),
}

impl Door {
    /// Finds the running organism of this config, or starts it.
    pub async fn open(config: Config) -> Result<Self, Error> {
        match Client::find(&config.data).await {
            Some(client) => Ok(Self::Running(client)),
            None => Ok(Self::Own(Box::new(Organism::start(config).await?))),
        }
    }

    /// Hands in one parcel; `on_sent` gets what becomes of it as it becomes known.
    pub async fn send(&self, parcel: Parcel, mut on_sent: impl FnMut(Sent)) -> Result<(), Error> {
        match self {
            Self::Running(client) => {
                let mut failed = None;
                let on_line = |said| match said {
                    Said::Sent(sent) => on_sent(sent),
                    Said::Failed(detail) => failed = Some(Error::Control { detail }),
                    Said::Taken => {}
                };
                client.ask(&Ask::Send(parcel), on_line).await?;
                failed.map_or(Ok(()), Err)
            }
            Self::Own(organism) => {
                let (tell, mut told) = mpsc::channel(crate::limits::CONTROL_LINES_MAX);
                let handle = organism.handle();
                let sending = send(&handle, &organism.config().data, parcel, tell);
                let telling = async {
                    while let Some(sent) = told.recv().await {
                        on_sent(sent);
                    }
                };
                tokio::join!(sending, telling).0
            }
        }
    }

    /// Stops what was started here; a running organism goes on.
    pub async fn close(self) -> Result<(), Error> {
        match self {
            Self::Running(_) => Ok(()),
            Self::Own(organism) => organism.stop("the command is done").await,
        }
    }
}

/// Submits a parcel and tells what becomes of it, until it is all told.
pub(super) async fn send(
    handle: &Handle,
    data: &Path,
    parcel: Parcel,
    tell: mpsc::Sender<Sent>,
) -> Result<(), Error> {
    let target = match parcel.thread {
        Some(id) => Target::Thread { id },
        None => Target::New { suggested: parcel.suggested },
    };
    let submitted = handle.submit(&parcel.client, target, parcel.key, parcel.payload.as_bytes());
    let (receipt, results) = submitted.await.map_err(|_| Error::Stopped)?;
    let (sent, known) = match receipt {
        Receipt::Accepted { thread, calls, again } => {
            let known = again.then(|| (thread.clone(), calls.clone()));
            (Sent::Accepted { thread, calls, again }, known)
        }
        Receipt::Refused { refusal, retry_after } => {
            let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
            (Sent::Refused { refusal, retry_after_ms: retry_after.map(millis) }, None)
        }
        Receipt::NoThread { answer } => (Sent::NoThread { payload: answer }, None),
    };
    // Whoever asked may have gone; what was submitted is submitted.
    tell.send(sent).await.ok();
    if !parcel.wait {
        return Ok(());
    }
    for result in results {
        let done = result.await.map_err(|_| Error::Stopped)?;
        let replies = done.messages.iter().map(|message| Answered::of(message)).collect();
        tell.send(Sent::Result { call: done.call, how: done.how, replies }).await.ok();
    }
    if let Some((thread, calls)) = known {
        for call in calls {
            tell.send(recorded(data, &thread, call).await?).await.ok();
        }
    }
    Ok(())
}

/// How often the record is read again for a result that is not there yet.
const RECORD_POLL: Duration = Duration::from_millis(100);

/// The result of a call that was opened earlier, from the record.
async fn recorded(data: &Path, thread: &ThreadId, call: CallId) -> Result<Sent, Error> {
    loop {
        let (path, root) = (data.to_owned(), thread.root());
        let read = move || {
            let reader = Reader::open(&path)?;
            match reader.head(&root)? {
                Some(Position(0)) | None => Ok(Vec::new()),
                Some(head) => reader.walk(head),
            }
        };
        let records = tokio::task::spawn_blocking(read).await.map_err(|_| Error::Stopped)??;
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let mut replies = Vec::new();
        for fact in facts {
            match fact {
                Fact::Accepted { message, opening: None, .. } if message.cause == Some(call.0) => {
                    replies.push((message.id, Answered::of(message)));
                }
                // A result to a client is on record and nothing more.
                Fact::Disposed { message, how } if *how != Disposition::Recorded => {
                    replies.retain(|(id, _)| id != message);
                }
                Fact::CallClosed { call: closed, how } if *closed == call => {
                    let replies = replies.into_iter().map(|(_, answered)| answered).collect();
                    return Ok(Sent::Result { call, how: *how, replies });
                }
                _ => {}
            }
        }
        tokio::time::sleep(RECORD_POLL).await;
    }
}
