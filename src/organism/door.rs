//! The door: how a payload from outside gets in, and its result out, whether the organism runs
//! already or is started for it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::control::{Ask, Client, Said};
use super::matter::Matter;
use super::{Error, Organism};
use crate::config::Config;
use crate::envelope::{Disposition, Message, Refusal};
use crate::ids::{CallId, ListenerName, PayloadName, Position, ThreadId};
use crate::journal;
use crate::journal::sqlite::Reader;
use crate::limits;
use crate::pump::core::{Receipt, Target};
use crate::pump::driver::Handle;
use crate::thread::{Closing, Fact};
use crate::trace::TraceParent;

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
    /// As it came, byte for byte: what is wrong with it is for the gate to say.
    #[serde(with = "in_base64")]
    pub payload: Vec<u8>,
    /// Also wait for the results.
    pub wait: bool,
    /// What it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// Bytes that need not be text, in a line that must be.
pub(super) mod in_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
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
        /// A call of it waits for an approval.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        held: bool,
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
    /// Finds the running organism of this config, or starts it. One that is just starting, or
    /// ending, is waited for.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let patience = Instant::now() + limits::DOOR_PATIENCE;
        loop {
            if let Some(client) = Client::find(&config.data).await {
                return Ok(Self::Running(client));
            }
            match Organism::start(config.clone()).await {
                Err(Error::Journal(journal::Error::Held { .. })) if Instant::now() < patience => {
                    tokio::time::sleep(limits::DOOR_RETRY).await;
                }
                started => return Ok(Self::Own(Box::new(started?))),
            }
        }
    }

    /// Hands in one parcel; `on_sent` gets what becomes of it as it becomes known.
    pub async fn send(&self, parcel: Parcel, mut on_sent: impl FnMut(Sent)) -> Result<(), Error> {
        match self {
            Self::Running(client) => {
                let mut failed = None;
                let mut due = Due::Receipt { wait: parcel.wait };
                let on_line = |said| match said {
                    Said::Sent(sent) => {
                        due.told(&sent);
                        on_sent(sent);
                    }
                    Said::Failed(detail) => failed = Some(Error::Control { detail }),
                    Said::Taken | Said::Ruled(_) => {}
                };
                client.ask(&Ask::Send(parcel), on_line).await.map_err(lost)?;
                match failed {
                    Some(error) => Err(error),
                    None if due.is_nothing() => Ok(()),
                    None => Err(Error::Lost),
                }
            }
            Self::Own(organism) => {
                let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
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

    /// Has something decided; the refusal, where that was not to be.
    pub async fn decide(&self, matter: Matter) -> Result<Option<Refusal>, Error> {
        match self {
            Self::Running(client) => {
                let mut ruled = Err(Error::Lost);
                let on_line = |said| match said {
                    Said::Ruled(refusal) => ruled = Ok(refusal.map(|refusal| *refusal)),
                    Said::Failed(detail) => ruled = Err(Error::Control { detail }),
                    Said::Sent(_) | Said::Taken => {}
                };
                client.ask(&Ask::Decide(matter), on_line).await.map_err(lost)?;
                ruled
            }
            Self::Own(organism) => matter.put_to(&organism.handle()).await,
        }
    }

    /// Stops what was started here; a running organism goes on.
    pub async fn close(self) -> Result<(), Error> {
        match self {
            Self::Running(_) => Ok(()),
            Self::Own(organism) => organism.stop_when_served("the command is done").await,
        }
    }
}

/// What a running organism still owes to a sender.
enum Due {
    Receipt { wait: bool },
    Results(usize),
}

impl Due {
    fn told(&mut self, sent: &Sent) {
        *self = match (&*self, sent) {
            (Self::Receipt { wait: true }, Sent::Accepted { calls, .. }) => {
                Self::Results(calls.len())
            }
            (Self::Results(due), Sent::Result { .. }) => Self::Results(due.saturating_sub(1)),
            _ => Self::Results(0),
        };
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Results(0))
    }
}

/// A socket that breaks is an organism that died.
fn lost(error: Error) -> Error {
    match error {
        Error::Io { .. } => Error::Lost,
        other => other,
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
    let submitted =
        handle.submit_within(parcel.trace, &parcel.client, target, parcel.key, &parcel.payload);
    let (receipt, results) = submitted.await.map_err(|_| Error::Stopped)?;
    let (sent, known) = match receipt {
        Receipt::Accepted { thread, calls, again, held } => {
            let known = again.then(|| (thread.clone(), calls.clone()));
            (Sent::Accepted { thread, calls, again, held }, known)
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
        tokio::time::sleep(limits::TAIL_INTERVAL).await;
    }
}
