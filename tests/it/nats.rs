//! Real NATS servers for tests. Each server starts on a free port with its own directory, and ends
//! with the test process.

// The bench includes this file, and would resolve the path differently.
#[path = "nats/cluster.rs"]
mod cluster;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use organism::nats::{BlockingClient, NatsCredentials, NatsRequest, Options};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use cluster::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);

/// Path of the server program: the value of `NATS_SERVER`, or else the program that `.ci/nats`
/// installs.
pub fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("NATS_SERVER") {
        return named.into();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = root.join("target/nats/bin/nats-server");
    assert!(installed.is_file(), "no NATS server is installed; run .ci/nats (make test does)");
    installed
}

/// Shell script that runs the server until standard input ends, so that the server also ends when
/// the test crashes.
const KEEPER: &str = r#"
program=$1 config=$2 directory=$3
"$program" --config "$config" >"$directory/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -9 $server 2>/dev/null
wait $server
"#;

/// Additional lines of a server's config.
#[derive(Default, Clone, Copy)]
pub struct Settings {
    /// Lines in the `jetstream` section; `None` disables JetStream.
    pub jetstream: Option<&'static str>,
    pub more: &'static str,
}

/// A running NATS server. Dropping this value kills the server.
pub struct Server {
    home: TempDir,
    settings: Settings,
    /// Whether a config file sets the server's address.
    is_written: bool,
    /// Port that the server chose at its first start and keeps; 0 before that start.
    port: AtomicU16,
    keeper: Mutex<Option<(Child, ChildStdin)>>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(Settings { jetstream: Some(""), more: "" })
    }

    pub fn start_with(settings: Settings) -> Self {
        Self::begin(settings, false)
    }

    /// Starts a server with a complete config file.
    pub fn written(config: &Path) -> Self {
        let more = format!("include \"{}\"\n", included(config));
        Self::begin(Settings { jetstream: None, more: more.leak() }, true)
    }

    fn begin(settings: Settings, is_written: bool) -> Self {
        let home = TempDir::new().unwrap();
        let (port, keeper) = (AtomicU16::new(0), Mutex::new(None));
        let server = Self { home, settings, is_written, port, keeper };
        server.run();
        server
    }

    fn configure(&self) {
        let home = self.home.path().display();
        let port = match self.port() {
            0 => "-1".to_owned(),
            port => port.to_string(),
        };
        let jetstream = self.settings.jetstream.map_or_else(String::new, |within| {
            format!("jetstream {{ store_dir: \"{home}/store\"\n {within} }}")
        });
        let listens = match self.is_written {
            true => String::new(),
            false => format!("server_name: test\nhost: 127.0.0.1\nport: {port}\n"),
        };
        let text = format!(
            "{listens}pid_file: \"{home}/pid\"\nports_file_dir: \"{home}\"\n{jetstream}\n{}\n",
            self.settings.more
        );
        std::fs::write(self.home.path().join("server.conf"), text).unwrap();
    }

    fn run(&self) {
        self.configure();
        let home = self.home.path();
        let mut child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .args([program(), home.join("server.conf"), home.to_owned()])
            .stdin(Stdio::piped())
            // The shell prints each process that it kills.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        *self.keeper.lock().unwrap() = Some((child, input));
        self.port.store(self.wait_for_port(), Ordering::Relaxed);
    }

    fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    fn wait_for_port(&self) -> u16 {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(port) = self.listening() {
                return port;
            }
            assert!(Instant::now() < until, "the server does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn listening(&self) -> Option<u16> {
        let pid = self.pid()?;
        let ports = self.home.path().join(format!("nats-server_{pid}.ports"));
        let ports: Value = serde_json::from_str(&std::fs::read_to_string(ports).ok()?).ok()?;
        let port = ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()?;
        std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(|_| port)
    }

    fn pid(&self) -> Option<String> {
        let pid = std::fs::read_to_string(self.home.path().join("pid")).ok()?;
        Some(pid.trim().to_owned()).filter(|pid| !pid.is_empty())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    pub fn address(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    pub fn options(&self) -> Options {
        Options { servers: vec![self.address()], credentials: NatsCredentials::Anonymous, ca: None }
    }

    /// Kills the server, as `kill -9` does.
    pub fn kill(&self) {
        if let Some((mut keeper, input)) = self.keeper.lock().unwrap().take() {
            drop(input);
            keeper.wait().unwrap();
        }
        // The file names a process that has ended. A server that was stopped has removed the file.
        std::fs::remove_file(self.home.path().join("pid")).ok();
    }

    /// Starts the same server on the same port, with its stored data.
    pub fn restart(&self) {
        self.run();
    }

    /// Copies the stored data while the server does not run.
    pub fn copy_store(&self) -> TempDir {
        let copy = TempDir::new().unwrap();
        copy_directory(&self.home.path().join("store"), &copy.path().join("store"));
        copy
    }

    /// Replaces the stored data by an older copy while the server does not run.
    pub fn put_back(&self, copy: &TempDir) {
        let store = self.home.path().join("store");
        std::fs::remove_dir_all(&store).unwrap();
        copy_directory(&copy.path().join("store"), &store);
    }

    /// Whether the server runs.
    pub fn is_alive(&self) -> bool {
        let pid = self.pid();
        pid.is_some_and(|pid| {
            let probe = Command::new("kill").args(["-0", &pid]).stderr(Stdio::null()).status();
            probe.unwrap().success()
        })
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().unwrap()]).status();
        assert!(sent.unwrap().success());
    }

    pub fn admin(&self) -> Admin {
        Admin::of(&self.options())
    }
}

/// A server whose clients may do everything but subscribe to one subject.
pub struct DenyingServer {
    pub server: Server,
    /// File with the rights of the clients, which the server's config includes.
    rights: TempDir,
}

impl DenyingServer {
    /// Starts a server that denies subscriptions to `denied`.
    pub fn start(jetstream: Option<&'static str>, denied: &str) -> Self {
        let rights = TempDir::new().unwrap();
        write_rights(rights.path(), denied);
        let more = format!("include \"{}\"\n", included(&rights.path().join("rights.conf")));
        let server = Server::start_with(Settings { jetstream, more: more.leak() });
        Self { server, rights }
    }

    /// Makes the running server deny subscriptions to `denied` alone. Returns when the server has
    /// reloaded its config.
    pub fn deny(&self, denied: &str) {
        write_rights(self.rights.path(), denied);
        let reloaded = || self.server.log().matches("Reloaded server configuration").count();
        let before = reloaded();
        self.server.signal("-HUP");
        let until = Instant::now() + PATIENCE;
        while reloaded() == before {
            assert!(Instant::now() < until, "it does not reload:\n{}", self.server.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes a part of a server's config: the clients may do everything but subscribe to `denied`.
fn write_rights(directory: &Path, denied: &str) {
    let text = format!(
        "authorization {{ users: [{{ user: a, password: a, permissions: {{\n\
         publish: {{ allow: [\">\"] }}\n\
         subscribe: {{ allow: [\">\"], deny: [\"{denied}\"] }}\n\
         }} }}] }}\n\
         no_auth_user: a\n"
    );
    std::fs::write(directory.join("rights.conf"), text).unwrap();
}

pub fn copy_directory(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Path of a file for an `include` in the server's config, relative to the directory of this
/// config.
pub fn included(path: &Path) -> String {
    let temporary = std::env::temp_dir();
    let below =
        path.strip_prefix(temporary.canonicalize().unwrap()).or(path.strip_prefix(temporary));
    format!("../{}", below.unwrap().display())
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.keeper.lock().unwrap().is_some() {
            self.kill();
        }
    }
}

/// A shared server, for tests that do not damage it.
pub fn shared() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(Server::start)
}

/// A connection with all permissions that sends raw JetStream requests.
pub struct Admin(BlockingClient);

impl Admin {
    fn of(servers: &Options) -> Self {
        Self(BlockingClient::open(servers, "test").unwrap())
    }

    /// Sends a JetStream request, and waits for at most 1 s. Returns `None` if no response arrives
    /// or the response is an error.
    fn try_ask(&self, what: &str, body: &Value) -> Option<Value> {
        let question = NatsRequest {
            subject: format!("$JS.API.{what}"),
            headers: None,
            body: body.to_string().into_bytes(),
            patience: Duration::from_secs(1),
        };
        let answer: Value = serde_json::from_slice(&self.0.request(question).ok()?).ok()?;
        answer.get("error").is_none().then_some(answer)
    }

    pub fn ask(&self, what: &str, body: &Value) -> Value {
        let question = NatsRequest {
            subject: format!("$JS.API.{what}"),
            headers: None,
            body: body.to_string().into_bytes(),
            patience: PATIENCE,
        };
        serde_json::from_slice(&self.0.request(question).unwrap()).unwrap()
    }

    /// Sends a JetStream request. Panics if no response arrives or the response is an error.
    pub fn must(&self, what: &str, body: &Value) -> Value {
        let answer = self.ask(what, body);
        assert!(answer.get("error").is_none(), "{what}: {answer}");
        answer
    }

    pub fn info(&self, stream: &str) -> Value {
        self.must(&format!("STREAM.INFO.{stream}"), &json!({}))
    }

    pub fn delete(&self, stream: &str) {
        self.must(&format!("STREAM.DELETE.{stream}"), &json!({}));
    }

    /// Publishes a message into the stream that captures its subject.
    pub fn publish(&self, subject: &str, body: &str) -> Value {
        let question = NatsRequest {
            subject: subject.to_owned(),
            headers: None,
            body: body.into(),
            patience: PATIENCE,
        };
        serde_json::from_slice(&self.0.request(question).unwrap()).unwrap()
    }
}

/// Exit code of `verify` for a sound journal: 0 for an embedded journal. With `ORGANISM_TEST_NATS`,
/// the code is 5 (not proved), because `verify` then reads a projection, which alone proves
/// nothing.
pub fn proof_code() -> i32 {
    if is_streamed() { 5 } else { 0 }
}

/// Whether tests put the journals of their organisms on JetStream.
pub fn is_streamed() -> bool {
    std::env::var_os("ORGANISM_TEST_NATS").is_some()
}

/// Returns environment variables that put the journals of all organisms in `directory` on
/// JetStream, so that the same tests check JetStream. Returns none if `ORGANISM_TEST_NATS` is not
/// set. `ORGANISM_TEST_NATS` contains the address of a server, or `own` to start one.
pub fn substrate(directory: &Path) -> Vec<(&'static str, String)> {
    let Ok(wanted) = std::env::var("ORGANISM_TEST_NATS") else { return Vec::new() };
    let address = if wanted == "own" { shared().address() } else { wanted };
    let full = directory.display().to_string();
    let stream: String = full.chars().filter(char::is_ascii_alphanumeric).collect();
    vec![
        ("ORGANISM_JOURNAL__STORE", "jetstream".to_owned()),
        ("ORGANISM_JOURNAL__STREAM", stream),
        ("ORGANISM_JOURNAL__DURABILITY", "synced".to_owned()),
        ("ORGANISM_NATS__URL", address),
        // As the default, except that each start logs what such servers may lose, which no test
        // concerns.
        ("ORGANISM_LOG", "warn,config=info,organism::journal::jetstream=error".to_owned()),
    ]
}

#[test]
fn a_server_ends_with_the_process_that_started_it() {
    let server = Server::start();
    let pid = server.pid().unwrap();
    let alive = || Path::new("/proc").join(&pid).join("exe").exists();
    assert!(alive() || !cfg!(target_os = "linux"));
    server.kill();
    assert!(!alive());
    server.restart();
    let mut greeting = [0; 4];
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"INFO");
}

#[test]
fn a_request_during_a_long_outage_fails_and_does_not_wait_for_ever() {
    let server = Server::start();
    let link = BlockingClient::open(&server.options(), "test").unwrap();
    server.kill();
    let question = |patience| NatsRequest {
        subject: "nobody".to_owned(),
        headers: None,
        body: Vec::new(),
        patience,
    };
    // More bytes than a connection buffers.
    link.request_all(vec![question(Duration::from_millis(1)); 3_000]);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tell.send(link.request(question(Duration::from_millis(100))).is_err())
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true));
}
