//! Listeners that are child processes. Frames end with NUL and travel over standard input and
//! output (docs/PROTOCOL.md). Each instance has at most one outstanding delivery.
//!
//! Each instance is one task that owns its child from start to end. Instances share only the state
//! in `dispatch`. This module must not know the contents of payloads: it counts elements and moves
//! bytes.

mod child;
mod child_frames;
pub(crate) mod direct;
mod dispatch;
mod frame;
mod instance;
mod launch;
mod leftover_processes;
mod program;
mod restarts;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinHandle;

use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;
use crate::locks::locked;

use super::{Delivery, Host, Sink};
use dispatch::Dispatch;
pub(crate) use frame::ChildFrame;
pub use launch::{
    START_FAILURE, START_VERB, VERB as LAUNCH_VERB, become_listener, become_program,
    use_this_program,
};
pub(crate) use launch::{direct, spawn_piped};
pub use leftover_processes::{InvalidMark, PUMP_VARIABLE, PumpMark, end_leftovers};
pub use program::{ProgramNotFound, find};
pub use restarts::RestartPolicy;

/// Settings of a process listener.
#[derive(Clone)]
pub struct Options {
    pub listener: ListenerName,
    /// The program and its arguments; [`find`] locates the program.
    pub command: Vec<String>,
    /// Number of processes to run. Each handles one delivery at a time.
    pub instances: u32,
    /// Working directory of the processes. If `None`, they run in the working directory of the
    /// organism.
    pub working_dir: Option<PathBuf>,
    /// Variables to add to the inherited environment. Their values may be secret.
    pub env: Vec<(String, String)>,
    /// Names of variables that the processes must not inherit, because the variables hold secrets.
    pub withheld: Vec<String>,
    pub restarts: RestartPolicy,
    /// Program that launches the listeners' processes and ensures that they end with this process.
    /// If `None`, the launcher is:
    /// - this program, if it has called [`use_this_program`], or
    /// - otherwise, an `organism` program beside this program or on `PATH`.
    pub launcher: Option<PathBuf>,
    /// Identity of the pump for which the processes run. Each process gets it in the environment
    /// variable [`PUMP_VARIABLE`]. If `None`, the host does not set this variable.
    pub pump: Option<PumpMark>,
    /// Maximum time that an instance may still work on its delivery after the call of this delivery
    /// was cancelled.
    pub cancel_grace: Duration,
    /// Maximum time for which deliveries in flight may continue during a drain.
    pub drain_timeout: Duration,
}

/// Omits the environment, because logs must not contain its secrets.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listener, command, instances, .. } = self;
        write!(f, "{listener}: {instances} of {command:?}")
    }
}

impl Options {
    /// Returns settings with one instance and default values.
    pub fn new(listener: ListenerName, command: Vec<String>) -> Self {
        Self {
            listener,
            command,
            instances: limits::INSTANCES_DEFAULT,
            working_dir: None,
            env: Vec::new(),
            withheld: Vec::new(),
            restarts: RestartPolicy::default(),
            launcher: None,
            pump: None,
            cancel_grace: limits::CANCEL_GRACE,
            drain_timeout: limits::DRAIN_TIMEOUT,
        }
    }
}

/// A host that supervises the processes of one listener. Dropping the host kills the processes;
/// [`Host::drain`] lets them finish.
#[derive(Debug)]
pub struct ProcessHost {
    dispatch: Arc<Dispatch>,
    drain_timeout: Duration,
    instances: Mutex<Vec<JoinHandle<()>>>,
}

impl ProcessHost {
    /// Starts every instance on `runtime`. Succeeds even if the program is missing, because the
    /// program may appear later. A missing program is reported by [`Sink::left`], and in the result
    /// of each delivery.
    pub fn start(options: Options, sink: Arc<dyn Sink>, runtime: &runtime::Handle) -> Self {
        let count = options.instances.max(1) as usize;
        let drain_timeout = options.drain_timeout;
        let options = Arc::new(options);
        let listener = options.listener.clone();
        let (dispatch, handles) = Dispatch::new(listener, sink, count);
        let instances = handles
            .into_iter()
            .map(|handle| runtime.spawn(instance::run(Arc::clone(&options), handle)))
            .collect();
        Self { dispatch, drain_timeout, instances: Mutex::new(instances) }
    }

    /// Ends all instances. Each instance that has a delivery may work on it for `patience`.
    async fn end_within(&self, patience: Duration) {
        self.dispatch.drain(patience);
        self.wait_ended().await;
    }

    /// Kills all processes, and returns when they have ended.
    pub(crate) async fn kill(&self) {
        self.dispatch.close();
        self.wait_ended().await;
    }

    async fn wait_ended(&self) {
        let instances = std::mem::take(&mut *locked(&self.instances));
        for instance in instances {
            if let Err(error) = instance.await {
                tracing::error!(%error, "the task of a listener instance panicked");
            }
        }
    }
}

impl Host for ProcessHost {
    fn deliver(&self, delivery: Delivery) {
        self.dispatch.deliver(delivery);
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.dispatch.cancel(call, attempt);
    }

    fn has_left(&self) -> bool {
        self.dispatch.has_left()
    }

    fn report_return(&self) {
        self.dispatch.report_return();
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(self.drain_timeout))
    }

    fn stop(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.end_within(Duration::ZERO))
    }
}

impl Drop for ProcessHost {
    fn drop(&mut self) {
        self.dispatch.close();
    }
}
