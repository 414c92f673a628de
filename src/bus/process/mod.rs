//! Listeners that are child processes: NUL-delimited frames on their standard input and output
//! (docs/PROTOCOL.md), one outstanding delivery for each instance.
//!
//! Each instance is one task that owns its child, from start to end; `dispatch` is all they
//! share. Must not know what a payload says: it counts elements and moves bytes.

mod child;
mod conversation;
mod dispatch;
mod frame;
mod instance;
mod launch;
mod leftovers;
mod program;
mod restarts;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinHandle;

use crate::ids::{Attempt, CallId, ListenerName};
use crate::limits;

use super::{Delivery, Host, Sink};
use dispatch::Dispatch;
pub use launch::{VERB as LAUNCH_VERB, become_listener, use_this_program};
pub use leftovers::{NoMark, PUMP_VARIABLE, PumpMark, end_leftovers};
pub use program::{NotFound, find};
pub use restarts::Policy;

/// How a process listener is run.
#[derive(Clone)]
pub struct Options {
    pub listener: ListenerName,
    /// The program and its arguments; [`find`] says where the program is looked for.
    pub command: Vec<String>,
    /// Processes to keep; each takes one delivery at a time.
    pub instances: u32,
    /// Where the processes run; the organism's own working directory where not given.
    pub working_dir: Option<PathBuf>,
    /// Added to the environment that is passed through; may hold secrets.
    pub env: Vec<(String, String)>,
    /// Variables that are not passed through: what is secret to others.
    pub withheld: Vec<String>,
    pub restarts: Policy,
    /// The `organism` program, which ties the processes to this one. Where not given it is this
    /// program, if it is the command, or one beside it or on `PATH`.
    pub launcher: Option<PathBuf>,
    /// Marks everything that a process starts as this pump's.
    pub pump: Option<PumpMark>,
    /// How long an instance may stay busy after its caller is gone.
    pub cancel_grace: Duration,
    /// How long outstanding deliveries may run on when the host is drained.
    pub drain_timeout: Duration,
}

/// Without the environment: nobody's log should have its secrets.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listener, command, instances, .. } = self;
        write!(f, "{listener}: {instances} of {command:?}")
    }
}

impl Options {
    /// One instance, and every default.
    pub fn new(listener: ListenerName, command: Vec<String>) -> Self {
        Self {
            listener,
            command,
            instances: limits::INSTANCES_DEFAULT,
            working_dir: None,
            env: Vec::new(),
            withheld: Vec::new(),
            restarts: Policy::default(),
            launcher: None,
            pump: None,
            cancel_grace: limits::CANCEL_GRACE,
            drain_timeout: limits::DRAIN_TIMEOUT,
        }
    }
}

/// A supervised set of like processes. Dropping it kills them; [`Host::drain`] lets them end.
#[derive(Debug)]
pub struct ProcessHost {
    dispatch: Arc<Dispatch>,
    instances: Mutex<Vec<JoinHandle<()>>>,
}

impl ProcessHost {
    /// Starts every instance on `runtime`. A program that is missing shows in
    /// [`Sink::left`] and in every delivery, not here: it may be there later.
    pub fn start(options: Options, sink: Arc<dyn Sink>, runtime: &runtime::Handle) -> Self {
        let count = options.instances.max(1) as usize;
        let options = Arc::new(options);
        let (dispatch, desks) = Dispatch::new(options.listener.clone(), sink, count);
        let instances = desks
            .into_iter()
            .map(|desk| runtime.spawn(instance::run(Arc::clone(&options), desk)))
            .collect();
        Self { dispatch, instances: Mutex::new(instances) }
    }
}

impl Host for ProcessHost {
    fn deliver(&self, delivery: Delivery) {
        self.dispatch.deliver(delivery);
    }

    fn cancel(&self, call: CallId, attempt: Attempt) {
        self.dispatch.cancel(call, attempt);
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.dispatch.drain();
            let instances =
                std::mem::take(&mut *self.instances.lock().unwrap_or_else(PoisonError::into_inner));
            for instance in instances {
                if let Err(error) = instance.await {
                    tracing::error!(%error, "an instance's task ended in a panic");
                }
            }
        })
    }
}

impl Drop for ProcessHost {
    fn drop(&mut self) {
        self.dispatch.close();
    }
}
