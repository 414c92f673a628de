//! Listeners on NATS: the setup of the tests, and failures that only NATS can cause.

/// Runs each of these checks with each kit whose listeners are separate programs.
macro_rules! each_kit {
    ($($check:ident)+) => {
        each_kit!(@ python Python: $($check)+);
        each_kit!(@ typescript TypeScript: $($check)+);
    };
    (@ $module:ident $language:ident: $($check:ident)+) => {
        mod $module {
            use crate::bus::kit_language::KitLanguage;
            $(
                #[tokio::test]
                async fn $check() {
                    super::$check(KitLanguage::$language).await;
                }
            )+
        }
    };
}

mod crashes;
mod denied_answers;
mod drain;
mod kits;
pub mod leaving;
mod malformed;
mod memory;
mod order;
mod outages;
mod previews;
mod replicas;
mod strangers;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use futures_util::StreamExt as _;
use organism::bus::nats::{ListenerSubjects, NatsConnection, NatsHost, Options};
use organism::bus::{Delivery, Host, Sink};
use organism::ids::{Attempt, CallId};
use organism::nats::{Client, Message, Subscriber, connect};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::harness::{HostHarness, name, repository};
use super::kit_language::KitLanguage;
use crate::nats::Server;
use crate::organism::PATIENCE;

/// A runtime that all tests share, because connections outlive the runtime of a single test.
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// Runs a future on the shared runtime, and waits for it from any thread.
pub fn wait<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| RUNTIME.block_on(future)).join().unwrap())
}

/// The connection to a server under the unique name of an organism, and the subjects of one
/// listener of this organism.
pub struct Meeting {
    pub organism: String,
    pub address: String,
    pub wire: Arc<NatsConnection>,
    pub subjects: ListenerSubjects,
}

impl Meeting {
    pub fn at(server: &Server) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::of(&format!("test-{}-{count}", std::process::id()), server)
    }

    /// Connects to this server for the organism with this name. Its listener is called `tested`.
    pub fn of(organism: &str, server: &Server) -> Self {
        let organism = organism.to_owned();
        let wire = wait(NatsConnection::open(&server.options(), "test")).unwrap();
        let subjects = ListenerSubjects::new(&organism, &name("tested"));
        Self { organism, address: server.address(), wire, subjects }
    }

    pub fn options(&self) -> Options {
        Options::new(self.organism.clone(), name("tested"))
    }

    pub fn host_with(&self, options: Options, sink: Arc<dyn Sink>) -> NatsHost {
        let runtime = RUNTIME.handle().clone();
        wait(NatsHost::start(self.wire.clone(), options, sink, runtime)).unwrap()
    }

    pub fn ear(&self) -> HostHarness {
        HostHarness::hosting(|sink| Arc::new(self.host_with(self.options(), sink)))
    }

    /// Opens another connection with all permissions.
    pub async fn stranger(&self) -> Stranger {
        let servers = organism::nats::Options {
            servers: vec![self.address.clone()],
            credentials: organism::nats::NatsCredentials::Anonymous,
            ca: None,
        };
        Stranger(connect(&servers, "stranger").await.unwrap())
    }
}

/// A NATS client that knows nothing of organism.
pub struct Stranger(pub Client);

impl Stranger {
    pub async fn hears(&self, subject: &str) -> TestSubscription {
        let heard = self.0.subscribe(subject.to_owned()).await.unwrap();
        // The server has processed the publish when it has answered a later request.
        self.0.request("$SRV.PING.nobody", "".into()).await.unwrap_err();
        TestSubscription(heard)
    }

    pub async fn say(&self, subject: &str, headers: &[(&'static str, &str)], body: &str) {
        let mut map = organism::nats::HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        let body = body.to_owned().into();
        self.0.publish_with_headers(subject.to_owned(), map, body).await.unwrap();
    }
}

/// Publishes a message with these bytes as its headers, which no client library would send. Returns
/// after the server has processed the message.
pub fn publish_headers(server: &str, subject: &str, headers: &str) {
    let mut stream = TcpStream::connect(server.trim_start_matches("nats://")).unwrap();
    let bytes = headers.len();
    let connect = r#"CONNECT {"verbose":false,"headers":true}"#;
    let text = format!("{connect}\r\nHPUB {subject} {bytes} {bytes}\r\n{headers}\r\nPING\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "PONG"), "the server closed the connection");
}

pub struct TestSubscription(Subscriber);

impl TestSubscription {
    pub async fn next(&mut self) -> Message {
        timeout(PATIENCE, self.0.next()).await.expect("nothing was published").unwrap()
    }
}

/// A listener of a kit in a separate process. Dropping this value kills the process.
pub struct Kit(Child);

impl Kit {
    /// Starts the obedient listener of this kit. Returns after it has announced itself.
    pub fn start(language: KitLanguage, meeting: &Meeting, variables: &[(&str, &str)]) -> Self {
        Self::announced(language.on_nats("obedient"), meeting, variables, no_log())
    }

    /// Starts the obedient listener of this kit, which writes to `log`. Returns after it has
    /// announced itself.
    pub fn logging(language: KitLanguage, meeting: &Meeting, log: OwnedFd) -> Self {
        let mut command = language.on_nats("obedient");
        command.env_remove("PYTHONUNBUFFERED");
        Self::announced(command, meeting, &[], log)
    }

    /// Starts a listener of the Python kit. Returns after it has announced itself.
    pub fn running(program: &str, meeting: &Meeting, variables: &[(&str, &str)]) -> Self {
        let mut command = python();
        command.arg(program).env("PYTHONPATH", repository().join("listeners/python"));
        Self::announced(command, meeting, variables, no_log())
    }

    fn announced(
        command: Command,
        meeting: &Meeting,
        variables: &[(&str, &str)],
        log: OwnedFd,
    ) -> Self {
        let here = async {
            let stranger = meeting.stranger().await;
            stranger.hears(&meeting.subjects.here()).await
        };
        let mut here = wait(here);
        let place = [
            ("ORGANISM_BUS_URL", &*meeting.address),
            ("ORGANISM_NAME", &meeting.organism),
            ("ORGANISM_LISTENER", "tested"),
        ];
        let kit = Self::spawn(command, &[&place, variables].concat(), log);
        wait(here.next());
        kit
    }

    /// Starts a listener whose standard output and standard error go to `log`. A listener that
    /// inherited the outputs of the tests would keep them open if a failed test left it behind.
    pub fn spawn(mut command: Command, variables: &[(&str, &str)], log: OwnedFd) -> Self {
        command.envs(variables.iter().copied());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends the stop signal. Returns the exit status.
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        self.ask_to_end();
        self.ended()
    }

    pub fn ask_to_end(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub fn ended(&mut self) -> std::process::ExitStatus {
        self.0.wait().unwrap()
    }

    /// Returns the host together with the process of this kit. The process ends when the host is
    /// dropped.
    pub fn with(self, host: NatsHost) -> impl Host {
        Kept { host, _kit: self }
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        // A process that has exited cannot be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

struct Kept {
    host: NatsHost,
    _kit: Kit,
}

impl Host for Kept {
    fn deliver(&self, delivery: Delivery) {
        self.host.deliver(delivery);
    }
    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.host.cancel(call, attempt);
    }
    fn flush(&self) {
        self.host.flush();
    }
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.host.drain()
    }
}

/// Opens `/dev/null` as the log of a listener. The traceback of a crashed handler must not appear
/// in the output of the tests.
fn no_log() -> OwnedFd {
    File::options().write(true).open("/dev/null").unwrap().into()
}

/// The Python interpreter with nats-py, which `.ci/natspy` installs.
pub fn python() -> Command {
    let python = repository().join("target/natspy/bin/python");
    assert!(python.is_file(), "nats-py is not installed; run .ci/natspy (make test does)");
    Command::new(python)
}
