//! The door to a running organism: a socket in the journal's directory, for its owner alone.
//!
//! One line is the request, lines are the responses ([`encoding`]): a receipt, then a result for every
//! call that is waited for. The connection ends after the last response.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Error;
use super::access::{AccessRules, Caller, Denied};
use super::announcement;
use super::handshake::{self, Handshake, Identity, Request};
use super::partitioned::Table;
use super::station::Station;
use crate::children;
use crate::config::Config;
use crate::envelope::Refusal;
use crate::ids::Digest;
use crate::journal::sqlite::{LockHolder, lock_holder};
use crate::limits;
use crate::mutant::mutant;
use crate::pump::driver::Handle;
use crate::service::encoding::{self, DecodeError};
use crate::service::{ServiceRequest, ServiceResponse, SubmitUpdate};

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
    rules: Arc<AccessRules>,
    /// None where an embedding program asks for itself.
    identity: Option<Arc<Identity>>,
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
        let (pumps, rules) = (Pumps::One(Station::new(handle, data)), Arc::default());
        Self { pumps, rules, identity: None, patience }
    }

    pub(super) fn of(station: Station, config: &Config) -> Self {
        let rules = Arc::new(AccessRules::of(config));
        Self::serving(Pumps::One(station), rules, config)
    }

    pub(super) fn of_several(table: Arc<Table>, config: &Config) -> Self {
        let rules = Arc::clone(&table.rules);
        Self::serving(Pumps::Several(table), rules, config)
    }

    fn serving(pumps: Pumps, rules: Arc<AccessRules>, config: &Config) -> Self {
        let identity = Some(Arc::new(Identity::of(config)));
        Self { pumps, rules, identity, patience: limits::CONTROL_PATIENCE }
    }

    /// Has a refusal recorded, where a pump is here to record it.
    async fn record_denied(&self, denied: &Denied) {
        match &self.pumps {
            Pumps::One(station) => station.record_denied(denied).await,
            Pumps::Several(table) => table.record_denied(denied).await,
        }
    }

    async fn answer(
        &self,
        ask: ServiceRequest,
        tell: mpsc::Sender<ServiceResponse>,
    ) -> Result<(), Error> {
        match &self.pumps {
            Pumps::One(station) => station.answer(ask, tell).await,
            Pumps::Several(table) => table.answer(ask, tell).await,
        }
    }
}

pub struct Server {
    path: PathBuf,
    closing: oneshot::Sender<()>,
    reaping: Option<JoinHandle<()>>,
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
        let (closing, closed) = oneshot::channel();
        tokio::spawn(accept(listener, desk, serving, closed));
        let reaping = children::is_subreaper().then(|| tokio::spawn(reap_orphans()));
        Ok(Self { path: path.to_owned(), closing, reaping, served })
    }

    /// Takes no more connections, and hands over what tells when those it has are done.
    pub fn close(self) -> Served {
        if let Some(reaping) = &self.reaping {
            reaping.abort();
        }
        // First the path: whoever connects up to here is served, and nobody connects later.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("the control socket {} stays behind: {error}", self.path.display());
        }
        self.closing.send(()).ok();
        Served(self.served)
    }
}

/// Serves each connection on a task of its own, until `closed`, and then those that are connected
/// and not accepted yet: their clients take the socket for one that answers.
///
/// A server that is dropped instead, as its pump ended by itself, serves nobody any more: its path
/// is still there, and those who come again and again would keep it for ever.
async fn accept(
    listener: UnixListener,
    desk: Desk,
    serving: mpsc::Sender<()>,
    mut closed: oneshot::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            closed = &mut closed => match closed {
                Ok(()) => break,
                Err(_) => return,
            },
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => drop(tokio::spawn(serve(stream, desk.clone(), serving.clone()))),
            Err(error) => {
                tracing::warn!("the control socket: {error}");
                tokio::time::sleep(limits::BACKOFF_FIRST).await;
            }
        }
    }

    // Not through the runtime, which may not have noticed the last of them yet.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, _)) = listener.accept() {
        let stream = stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream));
        let Ok(stream) = stream else { continue };
        tokio::spawn(serve(stream, desk.clone(), serving.clone()));
    }
}

/// Takes the exit codes of processes that detached themselves from a listener, as they end.
async fn reap_orphans() {
    let mut ended = match signal(SignalKind::child()) {
        Ok(ended) => ended,
        Err(error) => return tracing::warn!("ended orphans stay zombies: {error}"),
    };
    while ended.recv().await.is_some() {
        tokio::task::spawn_blocking(children::reap_orphans).await.ok();
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
    let caller = desk.rules.caller(&stream);
    let (read, write) = stream.into_split();
    let mut write = Teller { write, patience: desk.patience };
    // A client that went away has nobody to tell; what it asked for is done all the same.
    if let Err(error) = answer(read, &mut write, &desk, &caller).await {
        tracing::debug!("a control connection ended early: {error}");
    }
}

async fn answer(
    read: OwnedReadHalf,
    write: &mut Teller,
    desk: &Desk,
    caller: &Caller,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut read =
        tokio::io::AsyncReadExt::take(BufReader::new(read), limits::FRAME_BYTES_MAX as u64);
    // Whoever connects and says nothing, or reads nothing, would hold up an orderly stop.
    let Ok(asked) = timeout(desk.patience, read.read_until(b'\n', &mut line)).await else {
        return write.say(&ServiceResponse::Failed("no request came in time".to_owned())).await;
    };
    asked?;
    let mut request: Request = match encoding::decode(&line) {
        Ok(request) => request,
        Err(DecodeError::OtherVersion { theirs }) => {
            return write.put(encoding::refuse_version(theirs)).await;
        }
        Err(error) => {
            return write.say(&ServiceResponse::Failed(format!("not a request: {error}"))).await;
        }
    };
    if let Err(denied) = desk.rules.judge(caller, &request.ask) {
        // A command that only looks is refused, too; what it then tries is what is on record.
        if !matches!(request.ask, ServiceRequest::Status) {
            desk.record_denied(&denied).await;
        }
        return write.say(&refused(&request.ask, denied.refusal)).await;
    }
    if let Some(answer) = desk.identity.as_ref().and_then(|identity| identity.judge(&request)) {
        return write.say(&answer).await;
    }
    desk.rules.vouch_for(caller, &mut request.ask);
    pass_on(request.ask, write, desk).await
}

/// A refusal in the words that answer this request.
pub(super) fn refused(ask: &ServiceRequest, refusal: Refusal) -> ServiceResponse {
    match ask {
        ServiceRequest::Submit(_) => {
            ServiceResponse::SubmitUpdate(SubmitUpdate::Refused { refusal, retry_after_ms: None })
        }
        ServiceRequest::Decide(_) | ServiceRequest::Cancel { .. } => {
            ServiceResponse::Ruled(Some(Box::new(refusal)))
        }
        ServiceRequest::AwaitResults { .. }
        | ServiceRequest::HeldThread { .. }
        | ServiceRequest::JournalId { .. }
        | ServiceRequest::Status => ServiceResponse::Failed(refusal.to_string()),
    }
}

/// What is asked for goes on though nobody listens any more.
async fn pass_on(ask: ServiceRequest, write: &mut Teller, desk: &Desk) -> io::Result<()> {
    let (tell, mut told) = mpsc::channel(limits::CONTROL_LINES_MAX);
    let asked = desk.clone();
    let answering = tokio::spawn(async move { asked.answer(ask, tell).await });
    while let Some(said) = told.recv().await {
        write.say(&said).await?;
    }
    match answering.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => write.say(&ServiceResponse::Failed(error.to_string())).await,
        Err(error) => write.say(&ServiceResponse::Failed(error.to_string())).await,
    }
}

/// Tells a command its answers, for as long as it reads them.
struct Teller {
    write: OwnedWriteHalf,
    patience: Duration,
}

impl Teller {
    async fn say(&mut self, said: &ServiceResponse) -> io::Result<()> {
        self.put(encoding::encode(said)?).await
    }

    async fn put(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        timeout(self.patience, self.write.write_all(&line)).await?
    }
}

/// The process behind a socket, where the system shows it.
fn server_of(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// A command's end of the socket.
pub struct Client {
    data: PathBuf,
    path: PathBuf,
    handshake: Handshake,
}

impl Client {
    /// `None` where no organism answers at the journal in `data`. [`Error::ForeignSocket`] where
    /// another process does than the one that holds this journal.
    pub async fn find(data: &Path, handshake: Handshake) -> Result<Option<Self>, Error> {
        let client = Self { data: data.to_owned(), path: path(data), handshake };
        let stream = client.connect().await?;
        Ok(stream.map(|_| client))
    }

    /// Where its journal is.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Digest of the config that runs. None where the organism does not say so in time.
    pub async fn running_config(&self) -> Result<Option<Digest>, Error> {
        let mut running = None;
        let asking = self.ask(&ServiceRequest::Status, |said| {
            if let ServiceResponse::Status { config } = said {
                running = Some(config);
            }
        });
        match timeout(limits::STATUS_PATIENCE, asking).await {
            Err(_) => Ok(None),
            Ok(asked) => asked.map(|()| running),
        }
    }

    /// `None` where no holder of the journal answers.
    async fn connect(&self) -> Result<Option<UnixStream>, Error> {
        let mut tries = limits::SOCKET_TRIES;
        loop {
            let address = Address::of(&self.path);
            let connected = match address {
                Ok(address) => UnixStream::connect(&address.name).await,
                Err(error) => Err(error),
            };
            let Ok(stream) = connected else { return Ok(None) };

            let (server, holder) = match (server_of(&stream), lock_holder(&self.data)) {
                _ if mutant("trust-the-socket") => return Ok(Some(stream)),
                // Its organism ends, or no organism made it.
                (_, LockHolder::Nobody) => return Ok(None),
                (Some(server), LockHolder::Process(holder)) if holder == server => {
                    return Ok(Some(stream));
                }
                // In another container, say: there is nothing to compare.
                (None, _) => return Ok(Some(stream)),
                (Some(server), LockHolder::Process(pid)) => (server, format!("process {pid}")),
                (Some(server), LockHolder::Hidden) => (server, "another process".to_owned()),
            };
            // A pump may have taken over from the one that answered.
            tries -= 1;
            if tries == 0 {
                return Err(Error::ForeignSocket { path: self.path.clone(), server, holder });
            }
            tokio::time::sleep(limits::DOOR_RETRY).await;
        }
    }

    /// Connects to the organism that was found, or to the announced one that takes its place:
    /// nothing was handed in yet.
    async fn connect_again(&self) -> Result<UnixStream, Error> {
        let until = Instant::now() + limits::ANNOUNCED_PATIENCE;
        loop {
            // Looked at first: the announcement ends when the socket is there.
            let is_announced = announcement::is_announced(&self.data);
            if let Some(stream) = self.connect().await? {
                return Ok(stream);
            }
            if !is_announced || Instant::now() >= until {
                let gone = io::ErrorKind::ConnectionRefused.into();
                return Err(Error::io(format!("talking to {}", self.path.display()))(gone));
            }
            tokio::time::sleep(limits::DOOR_RETRY).await;
        }
    }

    /// Asks, and hands over each line of the answer as it comes.
    pub async fn ask(
        &self,
        ask: &ServiceRequest,
        mut on_line: impl FnMut(ServiceResponse),
    ) -> Result<(), Error> {
        let failed = || Error::io(format!("talking to {}", self.path.display()));
        let stream = self.connect_again().await?;
        let (read, mut write) = stream.into_split();
        let strange = |e: serde_json::Error| Error::Control { detail: e.to_string() };
        let request = Request { ask: ask.clone(), handshake: self.handshake.clone() };
        let mut line = encoding::encode(&request).map_err(strange)?;
        line.push(b'\n');
        write.write_all(&line).await.map_err(failed())?;
        let mut lines = BufReader::new(read).split(b'\n');
        while let Some(line) = lines.next_segment().await.map_err(failed())? {
            let said = encoding::decode(&line)?;
            if let Some(refused) = handshake::refusal(&said, &self.data, &self.handshake) {
                return Err(refused);
            }
            on_line(said);
        }
        Ok(())
    }
}
