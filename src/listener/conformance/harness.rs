//! The program under test, and the host that delivers to it.

use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;
use uuid::Uuid;

use super::{ConformanceCheck, tested};
use crate::bus::nats::{self as bus, NatsHost};
use crate::bus::process::{Options, ProcessHost, RestartPolicy};
use crate::bus::{Host, Sink};
use crate::limits;
use crate::listener::NatsEndpoint;
use crate::nats;

/// How the program under test is connected.
#[derive(Debug, Clone)]
pub enum HarnessTransport {
    /// As a child process.
    Process,
    /// On NATS, with servers that require no passwords.
    Nats(nats::Options),
}

impl HarnessTransport {
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Self::Nats(_))
    }

    pub(super) fn checks(&self) -> &'static [ConformanceCheck] {
        match self {
            Self::Process => &ConformanceCheck::OF_PROCESSES,
            Self::Nats(_) => &ConformanceCheck::ON_NATS,
        }
    }
}

pub(super) enum TrialHarness {
    Process(ProcessHost),
    Nats { host: NatsHost, wire: Arc<bus::NatsConnection>, child: Child },
}

impl TrialHarness {
    /// Starts the program.
    pub async fn set(
        command: &[String],
        way: &HarnessTransport,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, String> {
        match way {
            HarnessTransport::Process => {
                let options = options(command);
                Ok(Self::Process(ProcessHost::start(options, sink, &Handle::current())))
            }
            HarnessTransport::Nats(servers) => Self::on_nats(command, servers, sink).await,
        }
    }

    async fn on_nats(
        command: &[String],
        servers: &nats::Options,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, String> {
        // Each program gets an organism name of its own, so that no other program can answer.
        let organism = format!("test-{}", Uuid::now_v7());
        let wire = bus::NatsConnection::open(servers, "organism listener test").await;
        let wire = wire.map_err(|e| e.to_string())?;
        let options = bus::Options::new(organism.clone(), tested());
        let host = NatsHost::start(Arc::clone(&wire), options, sink, Handle::current()).await;
        let host = host.map_err(|e| e.to_string())?;
        let (program, arguments) = command.split_first().ok_or("there is no program")?;
        let child = Command::new(program)
            .args(arguments)
            .env(NatsEndpoint::URL, servers.servers.join(","))
            .env(NatsEndpoint::ORGANISM, organism)
            .env(NatsEndpoint::LISTENER, tested().as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("cannot start `{program}`: {e}"))?;
        Ok(Self::Nats { host, wire, child })
    }

    pub fn host(&self) -> &dyn Host {
        match self {
            Self::Process(host) => host,
            Self::Nats { host, .. } => host,
        }
    }

    /// Returns an error if the program has exited. Checks only programs on NATS, because a process
    /// host reports an exit by itself.
    pub fn check_running(&mut self) -> Result<(), String> {
        let Self::Nats { child, .. } = self else { return Ok(()) };
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("it ended, {status}")),
            Err(error) => Err(format!("it cannot be looked at: {error}")),
        }
    }

    /// Stops a program on NATS for a while, so that it gets at one time what is sent meanwhile.
    pub fn pause(&self) {
        if let Self::Nats { child, .. } = self {
            signal(child, Signal::STOP);
        }
    }

    /// Continues the program once the server has everything that was sent.
    pub async fn resume(&self) {
        if let Self::Nats { wire, child, .. } = self {
            // Without a connection, the delivery fails and reports it.
            wire.client().flush().await.ok();
            signal(child, Signal::CONT);
        }
    }

    /// Ends the program, and waits a limited time for its exit.
    pub async fn end(&mut self) {
        match self {
            Self::Process(host) => host.drain().await,
            Self::Nats { child, .. } => {
                signal(child, Signal::TERM);
                timeout(limits::EXIT_GRACE, child.wait()).await.ok();
            }
        }
    }
}

/// Settings of the program as a child process. It is not restarted, so that an exit shows.
pub(super) fn options(command: &[String]) -> Options {
    let mut options = Options::new(tested(), command.to_vec());
    options.restarts = RestartPolicy { max: 0, ..RestartPolicy::default() };
    options
}

fn signal(child: &Child, signal: Signal) {
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(id) = id {
        // The signal fails only if the process has already ended.
        kill_process(id, signal).ok();
    }
}
