//! The transport over the control socket of an organism on this machine. The client sends one line
//! for each request, and the organism sends one line for each response
//! ([`encoding`](super::encoding)). A connection carries one request after another.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::encoding::DecodeError;
use super::handshake::{Handshake, SocketRequest, refusal};
use super::{
    Error, ResponseSender, ServiceRequest, ServiceResponse, announcement, encoding, response_queue,
};
use crate::ids::Digest;
use crate::journal::sqlite::{LockHolder, lock_holder};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;

/// Returns the path of the control socket of the journal in `data`.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// A short name for a socket. If the socket's path is too long for the operating system, the name
/// refers to the socket's directory by an open file descriptor. This directory must therefore stay
/// open as long as the name is used.
struct ShortSocketPath {
    name: PathBuf,
    _directory: Option<File>,
}

impl ShortSocketPath {
    /// Returns a short name for the socket at `path`.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::InvalidFilename`] if the path is too long and the operating
    /// system cannot name the directory by a file descriptor. Also fails if the directory cannot be
    /// opened.
    fn of(path: &Path) -> io::Result<Self> {
        Self::by_descriptor(path, Path::new("/proc/self/fd"))
    }

    /// Returns a short name as [`ShortSocketPath::of`] does. `descriptors` is the directory in which
    /// the operating system shows the open file descriptors of this process, if it does so.
    fn by_descriptor(path: &Path, descriptors: &Path) -> io::Result<Self> {
        let parent = path.parent().filter(|_| path.as_os_str().len() > limits::SOCKET_NAME_BYTES);
        let (Some(parent), Some(socket)) = (parent, path.file_name()) else {
            return Ok(Self { name: path.to_owned(), _directory: None });
        };

        if !descriptors.is_dir() {
            return Err(name_too_long(path));
        }
        let directory = File::open(parent)?;
        let name = descriptors.join(directory.as_raw_fd().to_string()).join(socket);
        Ok(Self { name, _directory: Some(directory) })
    }
}

fn name_too_long(path: &Path) -> io::Error {
    let text = format!(
        "the path of the socket `{}` has {} bytes, and this system takes at most {}; put the \
         journal into a directory with a shorter path (`data` in the config)",
        path.display(),
        path.as_os_str().len(),
        limits::SOCKET_NAME_BYTES
    );
    io::Error::new(io::ErrorKind::InvalidFilename, text)
}

/// Binds a socket. On Linux, the path may be longer than the limit of the operating system.
/// Elsewhere, the error for a longer path has the kind [`io::ErrorKind::InvalidFilename`].
pub fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(&ShortSocketPath::of(path)?.name)
}

#[derive(Clone)]
pub struct SocketTransport {
    data: PathBuf,
    path: PathBuf,
    handshake: Handshake,
    /// Open connections that carry no request at present. Clones of the transport share these
    /// connections.
    idle: Arc<Mutex<Vec<IdleConnection>>>,
}

struct IdleConnection {
    stream: BufReader<UnixStream>,
    since: Instant,
}

/// Progress of a request over its connection.
#[derive(Default)]
struct ExchangeProgress {
    /// Whether the organism may have received a part of the request.
    is_written: bool,
    has_response: bool,
}

impl IdleConnection {
    /// Whether the organism may still read requests from this connection. Can be true although the
    /// organism has just closed the connection.
    fn is_open(&self) -> bool {
        // The organism closes a connection that carries no request for too long.
        let is_fresh = self.since.elapsed() < limits::IDLE_CONNECTION;
        let read = self.stream.get_ref().try_read(&mut [0]);
        is_fresh && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl SocketTransport {
    /// Creates a transport to the organism on the journal in `data`. The transport connects when it
    /// sends the first request.
    pub fn new(data: &Path, handshake: Handshake) -> Self {
        let path = socket_path(data);
        let data = data.to_owned();
        Self { data, path, handshake, idle: Arc::default() }
    }

    /// Connects to the organism that runs on the journal in `data`. Returns `None` if no organism
    /// runs on this journal. Returns [`Error::ForeignSocket`] if the process behind the socket is
    /// not the process that holds the journal.
    pub async fn find(data: &Path, handshake: Handshake) -> Result<Option<Self>, Error> {
        let transport = Self::new(data, handshake);
        Ok(transport.locate().await?.then_some(transport))
    }

    /// Replaces the handshake, which states the project and the config of the sender in each
    /// request. Keeps the open connections.
    #[must_use]
    pub fn with_handshake(self, handshake: Handshake) -> Self {
        Self { handshake, ..self }
    }

    /// Whether an organism accepts requests now. Tests this on an open connection, or on a new one
    /// if none is open. Returns the same errors as [`SocketTransport::find`].
    pub async fn locate(&self) -> Result<bool, Error> {
        self.locate_within(limits::SOCKET_TAKEOVER_TIMEOUT).await
    }

    /// Does the same as [`SocketTransport::locate`], but waits at most for `takeover` if another
    /// process than the holder of the journal serves the socket.
    pub async fn locate_within(&self, takeover: Duration) -> Result<bool, Error> {
        let found = match self.take_idle() {
            Some(connection) => Some(connection),
            None => self.connect(takeover).await?.map(BufReader::new),
        };
        let is_found = found.is_some();
        found.into_iter().for_each(|connection| self.put_idle(connection));
        Ok(is_found)
    }

    fn take_idle(&self) -> Option<BufReader<UnixStream>> {
        let mut idle = locked(&self.idle);
        idle.retain(IdleConnection::is_open);
        idle.pop().map(|idle| idle.stream)
    }

    fn put_idle(&self, stream: BufReader<UnixStream>) {
        locked(&self.idle).push(IdleConnection { stream, since: Instant::now() });
    }

    /// Returns the directory of the journal.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Returns the digest of the running config; `None` if the organism does not respond in time.
    pub async fn running_config(&self) -> Result<Option<Digest>, Error> {
        Ok(self.status().await?.map(|(config, _)| config))
    }

    /// Returns the number of partitions of the running organism; `None` if it has a single pump.
    ///
    /// # Errors
    ///
    /// Fails if the organism does not respond in time.
    pub async fn partitions(&self) -> Result<Option<u32>, Error> {
        let status = self.status().await?;
        let silent = || Error::NoPump { partition: 0, detail: "no response in time".to_owned() };
        status.map(|(_, partitions)| partitions).ok_or_else(silent)
    }

    /// Returns the digest of the running config and the number of partitions. Returns `None` if the
    /// organism does not respond in time.
    async fn status(&self) -> Result<Option<(Digest, Option<u32>)>, Error> {
        // Connects first, with a time limit that lets a foreign socket be reported: the limit of
        // the request is shorter than the wait for a takeover.
        let connecting = limits::SOCKET_TAKEOVER_TIMEOUT + limits::STATUS_TIMEOUT;
        let Ok(located) = timeout(connecting, self.locate()).await else { return Ok(None) };
        located?;

        let (responses, mut received) = response_queue();
        let sending = self.send(&ServiceRequest::Status, &responses);
        let Ok(sent) = timeout(limits::STATUS_TIMEOUT, sending).await else { return Ok(None) };
        sent?;
        match received.try_recv() {
            Some(ServiceResponse::Status { config, partitions }) => Ok(Some((config, partitions))),
            _ => Ok(None),
        }
    }

    /// Sends a request and passes on each response. Returns [`Error::Lost`] if the connection
    /// breaks. If the organism stops responding, returns [`Error::NotReady`] for a query, and
    /// [`Error::Undecided`] for any other request.
    pub async fn send(
        &self,
        request: &ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        match self.send_over_socket(request, responses).await {
            Err(Error::Undecided { detail, .. }) if request.is_query() => {
                Err(Error::NotReady { detail })
            }
            sent => sent,
        }
    }

    async fn send_over_socket(
        &self,
        request: &ServiceRequest,
        responses: &ResponseSender,
    ) -> Result<(), Error> {
        let handshake = self.handshake.clone();
        let framed = SocketRequest { request: request.clone(), handshake, keep: true };
        let mut framed = encoding::encode(&framed).map_err(Error::failed)?;
        framed.push(b'\n');

        if let Some(idle) = self.take_idle() {
            let mut progress = ExchangeProgress::default();
            let ended = self.exchange(idle, &framed, responses, &mut progress).await;
            if matches!(ended, Err(Error::Undecided { .. })) {
                return ended;
            }
            // The organism may have closed the connection just now, and another organism may have
            // started since.
            let is_lost = !progress.has_response && (request.is_query() || !progress.is_written);
            if !is_lost {
                return ended;
            }
        }

        let connection = self.connect_anew().await?;
        self.exchange(connection, &framed, responses, &mut ExchangeProgress::default()).await
    }

    /// Writes a request and passes on its responses.
    async fn exchange(
        &self,
        mut connection: BufReader<UnixStream>,
        request: &[u8],
        responses: &ResponseSender,
        progress: &mut ExchangeProgress,
    ) -> Result<(), Error> {
        let mut patience = limits::SOCKET_SILENCE_FIRST;
        let mut written = 0;
        while let Some(rest) = request.get(written..).filter(|rest| !rest.is_empty()) {
            match timeout(patience, connection.write(rest)).await {
                Ok(Ok(count)) if count > 0 => {
                    progress.is_written = true;
                    written += count;
                }
                Ok(_) => {
                    progress.has_response |= pass_on_reason(&mut connection, responses).await?;
                    return Err(Error::Lost);
                }
                Err(_) => self.probe(&mut patience, limits::SOCKET_PROBE_TIMEOUT).await?,
            }
        }

        let mut line = Vec::new();
        loop {
            line.clear();
            // A read that is interrupted by a probe keeps its bytes in `line`.
            let read = loop {
                match timeout(patience, connection.read_until(b'\n', &mut line)).await {
                    Ok(read) => break read,
                    Err(_) => {
                        let has_response = progress.has_response || !line.is_empty();
                        self.probe(&mut patience, probe_timeout(has_response)).await?;
                    }
                }
            };
            progress.has_response |= !line.is_empty();
            read.map_err(|_| Error::Lost)?;
            let Some(line) = line.strip_suffix(b"\n") else { return Ok(()) };
            let response = encoding::decode(line)?;
            if let Some(refused) = refusal(&response, &self.data, &self.handshake) {
                return Err(refused);
            }
            if matches!(response, ServiceResponse::End) {
                self.put_idle(connection);
                return Ok(());
            }
            // The send fails only if the client has left, which needs no handling.
            responses.send(response).await.ok();
        }
    }

    /// Checks whether the organism still responds to other requests, after there was no response on
    /// a connection for a time:
    /// - If it responds within `limit`, the silent request simply takes long. Doubles `patience`,
    ///   which is the time until the next check.
    /// - If it does not respond, returns an error, because the organism's process is stopped or
    ///   overloaded.
    async fn probe(&self, patience: &mut Duration, limit: Duration) -> Result<(), Error> {
        if timeout(limit, self.wait_for_sign_of_life()).await.is_ok() {
            *patience = (*patience * 2).min(limits::SOCKET_SILENCE_MAX);
            return Ok(());
        }

        let process = match lock_holder(&self.data) {
            LockHolder::Process(pid) => format!("process {pid} holds the journal, and"),
            LockHolder::Hidden | LockHolder::Nobody => "the organism on this host".to_owned(),
        };
        let detail = format!(
            "{process} does not respond; it may be stopped, or too many commands are connected"
        );
        Err(Error::Undecided { detail, failed: false })
    }

    /// Requests the status over a second connection, and waits for any byte of the response. If the
    /// second connection fails or ends, returns at once, because the silent first connection then
    /// ends as well.
    async fn wait_for_sign_of_life(&self) {
        let handshake = self.handshake.clone();
        let status = SocketRequest { request: ServiceRequest::Status, handshake, keep: false };
        let Ok(mut line) = encoding::encode(&status) else { return };
        line.push(b'\n');

        let Ok(Some(mut stream)) = self.connect(limits::SOCKET_TAKEOVER_TIMEOUT).await else {
            return;
        };
        if stream.write_all(&line).await.is_ok() {
            // An error is a sign of life, too.
            stream.read_u8().await.ok();
        }
    }

    /// Makes a new connection. If an organism is starting, waits until this organism has opened its
    /// socket.
    async fn connect_anew(&self) -> Result<BufReader<UnixStream>, Error> {
        let until = Instant::now() + limits::ANNOUNCED_TIMEOUT;
        loop {
            // Ordering rule: the announcement is read before connecting. It ends when the socket
            // exists, so reading it afterwards could miss an organism that has just started.
            let is_announced = announcement::is_announced(&self.data);
            if let Some(stream) = self.connect(limits::SOCKET_TAKEOVER_TIMEOUT).await? {
                return Ok(BufReader::new(stream));
            }
            if !is_announced || Instant::now() >= until {
                return Err(Error::Lost);
            }
            tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
        }
    }

    /// Connects to the socket. If the socket's queue of connections is full, tries again for a
    /// limited time. If another process than the holder of the journal serves the socket, tries
    /// again for the time `takeover`. Returns `None` if no process serves the socket, or if no
    /// process holds the journal.
    async fn connect(&self, takeover: Duration) -> Result<Option<UnixStream>, Error> {
        let until = Instant::now() + limits::ORGANISM_WAIT_TIMEOUT;
        let takeover_end = Instant::now() + takeover;
        loop {
            let connected = match ShortSocketPath::of(&self.path) {
                Ok(address) => UnixStream::connect(&address.name).await,
                Err(error) => Err(error),
            };
            let stream = match connected {
                Ok(stream) => stream,
                Err(error) if is_absent(&error) => return Ok(None),
                // No organism can open a socket with this name, but a command may read the journal.
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidFilename
                        && lock_holder(&self.data) == LockHolder::Nobody =>
                {
                    return Ok(None);
                }
                Err(error) if is_queue_full(&error) => {
                    if Instant::now() >= until {
                        return Err(Error::NotReady { detail: QUEUE_FULL.to_owned() });
                    }
                    tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(Error::io(self.path.display().to_string())(error)),
            };

            let (server, holder) = match (server_of(&stream), lock_holder(&self.data)) {
                _ if mutant("trust-the-socket") => return Ok(Some(stream)),
                // No process holds the journal: the organism behind the socket is ending, or
                // another program created the socket.
                (_, LockHolder::Nobody) => return Ok(None),
                (Some(server), LockHolder::Process(holder)) if holder == server => {
                    return Ok(Some(stream));
                }
                // The server probably runs in another container, where its process id is unknown.
                (None, _) => return Ok(Some(stream)),
                (Some(server), LockHolder::Process(pid)) => (server, format!("process {pid}")),
                (Some(server), LockHolder::Hidden) => (server, "another process".to_owned()),
            };
            // A pump that takes over the journal at this moment causes the mismatch, too.
            if Instant::now() >= takeover_end {
                return Err(Error::ForeignSocket { path: self.path.clone(), server, holder });
            }
            tokio::time::sleep(limits::ORGANISM_WAIT_INTERVAL).await;
        }
    }
}

const QUEUE_FULL: &str =
    "too many commands are connected, or its process is stopped, so it takes no connection";

/// Returns the maximum time to wait for a sign of life when the organism is checked. `has_response`
/// states whether any response to the request has come; if so, the organism may have accepted the
/// request.
fn probe_timeout(has_response: bool) -> Duration {
    if has_response { limits::SOCKET_PROBE_LATER_TIMEOUT } else { limits::SOCKET_PROBE_TIMEOUT }
}

/// Reads the reason for which the organism has closed a connection without taking the request, and
/// sends this reason to `responses`. Returns false if the organism gave no reason, for example
/// because it has ended. Fails if the organism speaks another version of the service protocol.
async fn pass_on_reason(
    connection: &mut BufReader<UnixStream>,
    responses: &ResponseSender,
) -> Result<bool, Error> {
    let mut line = Vec::new();
    let reading = connection.read_until(b'\n', &mut line);
    if !matches!(timeout(limits::SOCKET_REASON_TIMEOUT, reading).await, Ok(Ok(_))) {
        return Ok(false);
    }

    let Some(line) = line.strip_suffix(b"\n") else { return Ok(false) };
    let reason = match encoding::decode(line) {
        Ok(reason @ ServiceResponse::Unavailable(_)) => reason,
        Err(error @ DecodeError::OtherVersion { .. }) => return Err(error.into()),
        Ok(_) | Err(DecodeError::Malformed(_)) => return Ok(false),
    };
    // The send fails only if the client has left, which needs no handling.
    responses.send(reason).await.ok();
    Ok(true)
}

/// Whether the error of a failed connect shows that no process serves the socket, or that the
/// process ended while the connection waited in the socket's queue.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotADirectory, NotFound,
    };
    let has_ended = matches!(error.kind(), ConnectionReset | ConnectionAborted | BrokenPipe);
    has_ended || matches!(error.kind(), NotFound | NotADirectory | ConnectionRefused)
}

/// Whether a connect failed because the socket's queue of connections is full.
fn is_queue_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Returns the id of the process at the other end of a socket; `None` if the operating system does
/// not report it.
fn server_of(stream: &UnixStream) -> Option<u32> {
    let pid = stream.peer_cred().ok()?.pid()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_path_that_no_short_name_replaces_is_refused_with_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("fd");
        let path =
            directory.path().join("x".repeat(limits::SOCKET_NAME_BYTES)).join("control.sock");
        let error = ShortSocketPath::by_descriptor(&path, &missing).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
        let text = error.to_string();
        assert!(text.contains(&format!("`{}`", path.display())), "{text}");
        assert!(text.contains("at most 100; put the journal into a directory"), "{text}");

        let short = Path::new("/data/control.sock");
        let kept = ShortSocketPath::by_descriptor(short, &missing).unwrap();
        assert_eq!(kept.name, short);
    }
}
