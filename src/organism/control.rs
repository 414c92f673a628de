//! The door to a running organism: a socket in the journal's directory, for its owner alone.
//!
//! One JSON line asks, JSON lines answer: a receipt, then a result for every call that is
//! waited for. The connection ends when everything is said.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::door::{Parcel, Sent};
use super::matter::{self, Matter};
use super::partitioned::Table;
use super::station::Station;
use super::{Error, kin};
use crate::envelope::Refusal;
use crate::ids::{CallId, ListenerName, MessageId, ThreadId};
use crate::limits;
use crate::pump::driver::Handle;

/// What a command may ask of a running organism.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Ask {
    Send(Parcel),
    Cancel {
        thread: ThreadId,
        by: ListenerName,
        reason: String,
    },
    Decide(Matter),
    /// The results of calls that were accepted before.
    Results {
        thread: ThreadId,
        calls: Vec<CallId>,
    },
    /// In which thread of a partition this call waits for a person.
    Where {
        message: MessageId,
        partition: u32,
    },
}

/// What it answers, a line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    Sent(Sent),
    /// The cancellation is with the pump.
    Taken,
    /// What became of a decision; the refusal, where nothing did.
    Ruled(Option<Box<Refusal>>),
    Where(Option<ThreadId>),
    /// There is no such thread.
    Unknown,
    /// Not everything was said, as the pump of that partition is not there: ask again.
    Gone(Gone),
    Failed(String),
}

/// Why a partition does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    pub detail: String,
    /// Somebody is there, or was until now: the next one is not far.
    pub soon: bool,
    /// Whether what was asked for may have been done is not known.
    pub unsure: bool,
}

/// Where the socket of the journal in `data` is.
pub fn path(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// A name of the socket that the system takes: socket names are short, directories need not be.
/// The directory is kept open as long as its name is used.
struct Address {
    name: PathBuf,
    _directory: Option<File>,
}

impl Address {
    fn of(path: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|_| path.as_os_str().len() > limits::SOCKET_NAME_BYTES);
        let (Some(parent), Some(socket)) = (parent, path.file_name()) else {
            return Ok(Self { name: path.to_owned(), _directory: None });
        };
        let directory = File::open(parent)?;
        let name = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(socket);
        Ok(Self { name, _directory: Some(directory) })
    }
}

/// What answering needs.
#[derive(Clone)]
pub struct Desk {
    pumps: Pumps,
    /// How long a command may take to ask, and to read a line of the answer.
    patience: Duration,
}

/// Whom a command reaches through this socket.
#[derive(Clone)]
enum Pumps {
    One(Station),
    /// Each by its partition, wherever that is pumped.
    Several(Arc<Table>),
}

impl Desk {
    /// The pump behind `handle`, whose journal is in `data`.
    pub fn new(handle: Handle, data: PathBuf, patience: Duration) -> Self {
        Self::of(Station::new(handle, data), patience)
    }

    pub(super) fn of(station: Station, patience: Duration) -> Self {
        Self { pumps: Pumps::One(station), patience }
    }

    pub(super) fn of_several(table: Arc<Table>, patience: Duration) -> Self {
        Self { pumps: Pumps::Several(table), patience }
    }

    async fn answer(&self, ask: Ask, tell: mpsc::Sender<Said>) -> Result<(), Error> {
        match &self.pumps {
            Pumps::One(station) => station.answer(ask, tell).await,
            Pumps::Several(table) => table.answer(ask, tell).await,
        }
    }
}

pub struct Server {
    path: PathBuf,
    accepting: JoinHandle<()>,
    served: mpsc::Receiver<()>,
}

impl Server {
    /// A socket left by a pump that died is replaced: the journal's lock, held by now, says that
    /// nobody else is there.
    pub fn open(path: &Path, desk: Desk) -> io::Result<Self> {
        // Under another name until it is its owner's alone: nobody else connects in between.
        let unready = path.with_extension("new");
        match std::fs::remove_file(&unready) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&Address::of(&unready)?.name)?;
        std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&unready, path)?;
        // Every connection holds an end of this: it closes when all of them are done.
        let (serving, served) = mpsc::channel(1);
        let accepting = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        drop(tokio::spawn(serve(stream, desk.clone(), serving.clone())));
                    }
                    Err(error) => {
                        tracing::warn!("the control socket: {error}");
                        tokio::time::sleep(limits::BACKOFF_FIRST).await;
                    }
                }
            }
        });
        Ok(Self { path: path.to_owned(), accepting, served })
    }

    /// Takes no more connections, and hands over what tells when those it has are done.
    pub fn close(self) -> Served {
        self.accepting.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("the control socket {} stays behind: {error}", self.path.display());
        }
        Served(self.served)
    }
}

/// Connections that were open when the door was closed.
pub struct Served(mpsc::Receiver<()>);

impl Served {
    /// Waits until everybody who was connected has been told everything.
    pub async fn all(mut self) {
        while self.0.recv().await.is_some() {}
    }
}

async fn serve(stream: UnixStream, desk: Desk, _serving: mpsc::Sender<()>) {
    // Looked at now: whoever asks is still there.
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let hosted = pid.is_some_and(kin::is_hosted);
    let (read, write) = stream.into_split();
    let mut write = Teller { write, patience: desk.patience };
    // A client that went away has nobody to tell; what it asked for is done all the same.
    if let Err(error) = answer(read, &mut write, &desk, hosted).await {
        tracing::debug!("a control connection ended early: {error}");
    }
}

/// `hosted`: one of the listeners asks, or something it started.
async fn answer(
    read: OwnedReadHalf,
    write: &mut Teller,
    desk: &Desk,
    hosted: bool,
) -> io::Result<()> {
    let mut line = String::new();
    let mut read =
        tokio::io::AsyncReadExt::take(BufReader::new(read), limits::FRAME_BYTES_MAX as u64);
    // Whoever connects and says nothing, or reads nothing, would hold up an orderly stop.
    let Ok(asked) = timeout(desk.patience, read.read_line(&mut line)).await else {
        return write.say(&Said::Failed("no request came in time".to_owned())).await;
    };
    asked?;
    match serde_json::from_str(&line) {
        Err(error) => write.say(&Said::Failed(format!("not a request: {error}"))).await,
        Ok(Ask::Decide(_)) if hosted => {
            write.say(&Said::Failed(matter::NOT_YOURS.to_owned())).await
        }
        Ok(ask) => pass_on(ask, write, desk).await,
    }
}

/// What is asked for goes on though nobody listens any more.
async fn pass_on(ask: Ask, write: &mut Teller, desk: &Desk) -> io::Result<()> {
    let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
    let asked = desk.clone();
    let answering = tokio::spawn(async move { asked.answer(ask, tell).await });
    while let Some(said) = told.recv().await {
        write.say(&said).await?;
    }
    match answering.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => write.say(&Said::Failed(error.to_string())).await,
        Err(error) => write.say(&Said::Failed(error.to_string())).await,
    }
}

/// Tells a command its answers, for as long as it reads them.
struct Teller {
    write: OwnedWriteHalf,
    patience: Duration,
}

impl Teller {
    async fn say(&mut self, said: &Said) -> io::Result<()> {
        let mut line = serde_json::to_string(said)?;
        line.push('\n');
        timeout(self.patience, self.write.write_all(line.as_bytes())).await?
    }
}

/// A command's end of the socket.
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// `None` where no organism answers at the journal in `data`.
    pub async fn find(data: &Path) -> Option<Self> {
        let client = Self { path: path(data) };
        client.connect().await.ok()?;
        Some(client)
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let address = Address::of(&self.path)?;
        UnixStream::connect(&address.name).await
    }

    /// Asks, and hands over each line of the answer as it comes.
    pub async fn ask(&self, ask: &Ask, mut on_line: impl FnMut(Said)) -> Result<(), Error> {
        let failed = || Error::io(format!("talking to {}", self.path.display()));
        let stream = self.connect().await.map_err(failed())?;
        let (read, mut write) = stream.into_split();
        let strange = |e: serde_json::Error| Error::Control { detail: e.to_string() };
        let mut line = serde_json::to_string(ask).map_err(strange)?;
        line.push('\n');
        write.write_all(line.as_bytes()).await.map_err(failed())?;
        let mut lines = BufReader::new(read).lines();
        while let Some(line) = lines.next_line().await.map_err(failed())? {
            on_line(serde_json::from_str(&line).map_err(strange)?);
        }
        Ok(())
    }
}
