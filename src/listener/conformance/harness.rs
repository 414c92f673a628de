//! The program under test, and the host that delivers calls to the program.

use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;
use uuid::Uuid;

use super::further_replica::FurtherReplica;
use super::{ConformanceCheck, tested};
use crate::bus::nats::{self as bus, NatsHost};
use crate::bus::process::{Options, ProcessHost, RestartPolicy};
use crate::bus::{Host, Sink};
use crate::limits;
use crate::listener::NatsEndpoint;
use crate::nats;

/// The connection between the check and the program under test.
#[derive(Debug, Clone)]
pub enum HarnessTransport {
    /// The program is a child process.
    Process,
    /// The program is on NATS. The NATS servers require no passwords.
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
    Nats {
        host: NatsHost,
        wire: Arc<bus::NatsConnection>,
        subjects: bus::ListenerSubjects,
        program: Box<NatsProgram>,
    },
}

/// A program under test on NATS. The program has its own process group, because a wrapper such as
/// `sh -c` or `npx` starts the listener as its child.
pub(super) struct NatsProgram {
    child: Child,
    /// Process group of the child. `None` once the group was killed, because the system may reuse
    /// the group's id after the child's exit was collected.
    group: Option<Pid>,
}

/// Message about an answer that matches no delivery at hand.
const REFUSED_ANSWER: &str = "an answer of it was refused, because no delivery at hand has its \
                              subject: publish one message for each delivery, to its reply \
                              subject, and a sign of life only with its header (12)";

impl TrialHarness {
    /// Starts the program under test with this transport.
    pub async fn set(
        command: &[String],
        transport: &HarnessTransport,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, String> {
        match transport {
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
        let wire = wire.map_err(|e| {
            format!(
                "{e}; this command uses no credentials, and trusts the system's certificate \
                 authorities alone: a plain nats-server on this machine is enough for it"
            )
        })?;
        let subjects = bus::ListenerSubjects::new(&organism, &tested());
        let options = bus::Options::new(organism.clone(), tested());
        let options = bus::Options { starts_replicas: true, ..options };
        let host = NatsHost::start(Arc::clone(&wire), options, sink, Handle::current()).await;
        let host = host.map_err(|e| e.to_string())?;
        let environment = [
            (NatsEndpoint::URL, servers.servers.join(",")),
            (NatsEndpoint::ORGANISM, organism),
            (NatsEndpoint::LISTENER, tested().as_str().to_owned()),
        ];
        let program = Box::new(NatsProgram::start(command, &environment)?);
        Ok(Self::Nats { host, wire, subjects, program })
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
        let Self::Nats { program, .. } = self else { return Ok(()) };
        program.check_running()
    }

    /// Returns an error if the host has refused an answer of the program, because the answer
    /// matches no delivery at hand. Checks only programs on NATS, because a process host reports
    /// such an answer by itself.
    pub fn check_refused_answers(&self) -> Result<(), String> {
        match self {
            Self::Nats { host, .. } if host.refused_answers() > 0 => Err(REFUSED_ANSWER.to_owned()),
            _ => Ok(()),
        }
    }

    /// Subscribes as a further replica of a program on NATS. Returns `None` for a child process.
    pub async fn further_replica(&self) -> Option<Result<FurtherReplica, String>> {
        let Self::Nats { wire, subjects, .. } = self else { return None };
        Some(FurtherReplica::subscribe(wire, subjects).await)
    }

    /// Pauses a program on NATS. Messages that are sent during the pause, such as a delivery and
    /// its cancel message, all reach the program when it continues.
    pub fn pause(&self) {
        if let Self::Nats { program, .. } = self {
            program.signal(Signal::STOP);
        }
    }

    /// Continues a paused program once the server has handled all messages to it. Does not report a
    /// lost connection, because the next delivery then fails and reports it.
    pub async fn resume(&self) {
        if let Self::Nats { wire, program, .. } = self {
            wire.send_and_confirm().await;
            program.signal(Signal::CONT);
        }
    }

    /// Kills the program, and returns when it has ended.
    pub async fn kill(&mut self) {
        match self {
            Self::Process(host) => host.kill().await,
            Self::Nats { program, .. } => program.kill().await,
        }
    }

    /// Ends the program, and waits a limited time for its exit.
    pub async fn end(&mut self) {
        match self {
            Self::Process(host) => host.drain().await,
            Self::Nats { program, .. } => program.end().await,
        }
    }
}

impl NatsProgram {
    fn start(command: &[String], environment: &[(&str, String)]) -> Result<Self, String> {
        let (program, arguments) = command.split_first().ok_or("there is no program")?;
        let variables = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let mut command = Command::new(program);
        for name in WITHHELD_ON_NATS {
            command.env_remove(name);
        }
        let child = command
            .args(arguments)
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("cannot start `{program}`: {e}"))?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, group })
    }

    /// Returns an error if the program has exited.
    fn check_running(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                self.sweep();
                Err(format!("it ended, {status}"))
            }
            Err(error) => Err(format!("it cannot be looked at: {error}")),
        }
    }

    /// Sends a signal to the program and to all other processes of its group.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The signal fails only if all processes of the group have already ended.
            kill_process_group(group, signal).ok();
        }
    }

    /// Sends SIGTERM to the process group of the program, waits a limited time for the program's
    /// exit, and kills the processes that remain in the group.
    async fn end(&mut self) {
        self.signal(Signal::TERM);
        timeout(limits::EXIT_GRACE, self.child.wait()).await.ok();
        self.sweep();
    }

    /// Kills the process group of the program, and waits a limited time for the program's exit.
    async fn kill(&mut self) {
        self.sweep();
        timeout(limits::EXIT_GRACE, self.child.wait()).await.ok();
    }

    /// Kills the process group of the program. Must be called before the exit of the program is
    /// collected, or directly afterwards, because the system may later reuse the group's id.
    fn sweep(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }
}

impl Drop for NatsProgram {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// Environment variables for connections to other servers. The check removes them from the
/// environment of a program on NATS, because the servers of the check require no credentials. The
/// shell of the program's author may export them for a running listener.
const WITHHELD_ON_NATS: [&str; 3] =
    [NatsEndpoint::CREDENTIALS, NatsEndpoint::NKEY, NatsEndpoint::CA];

/// Environment variables that make a program flush its output by itself. The check removes them
/// from the program's environment. Otherwise, if the shell of the program's author sets them, the
/// program could pass the checks. It could then hang in an organism whose config does not set them
/// in `env`.
const FLUSHING: [&str; 1] = ["PYTHONUNBUFFERED"];

/// Returns the settings with which the host runs the tested program as a child process. The
/// settings disable restarts, because a restart would hide an unexpected exit, for which a check
/// must fail.
pub(super) fn options(command: &[String]) -> Options {
    let mut options = Options::new(tested(), command.to_vec());
    options.withheld = FLUSHING.map(str::to_owned).to_vec();
    options.restarts = RestartPolicy { max: 0, ..RestartPolicy::default() };
    options
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::path::Path;

    use super::*;

    /// Starts a shell that runs `sleep` as the tested program. Returns the shell, and a pipe that
    /// `sleep` holds open. The pipe reaches its end when `sleep` has ended, even if the shell ends
    /// at another time.
    fn wrapped(folder: &Path) -> (NatsProgram, File) {
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // The shell starts `sleep` and waits for it.
        let script = "sleep 600 >\"$0\"; :";
        let command = ["sh", "-c", script, pipe.to_str().unwrap()].map(str::to_owned);
        let program = NatsProgram::start(&command, &[]).unwrap();
        // Returns when `sleep` has opened the other end.
        let pipe = File::open(pipe).unwrap();
        (program, pipe)
    }

    #[tokio::test]
    async fn a_program_behind_a_wrapper_gets_the_signals() {
        let folder = tempfile::tempdir().unwrap();
        let (program, mut pipe) = wrapped(folder.path());
        program.signal(Signal::STOP);
        program.signal(Signal::CONT);
        program.signal(Signal::TERM);
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    }

    #[tokio::test]
    async fn a_program_behind_a_wrapper_ends_when_its_trial_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let (program, mut pipe) = wrapped(folder.path());
        program.signal(Signal::STOP);
        drop(program);
        assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    }
}
