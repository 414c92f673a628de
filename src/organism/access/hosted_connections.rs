//! Bounds the connections that hosted processes hold at the control socket, so that neither one
//! listener nor several together can keep operators' commands from connecting.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SocketCaller;
use super::ancestry::ProcessAncestry;
use crate::ids::ListenerName;
use crate::limits;

/// The bounds on the connections of hosted processes: for each listener, and for all hosted
/// processes together.
///
/// The listener of a process is unknown if the process detached itself or belongs to another host.
/// The listener of an ended process is unknown, too; such a process may have given its connection
/// to a child. All processes without a known listener share one bound, as if they belonged to one
/// listener.
pub struct HostedConnections {
    all: Arc<Semaphore>,
    by_listener: HashMap<Option<ListenerName>, Arc<Semaphore>>,
}

impl Default for HostedConnections {
    fn default() -> Self {
        let all = Arc::new(Semaphore::new(limits::HOSTED_CONNECTIONS_MAX));
        Self { all, by_listener: HashMap::new() }
    }
}

impl HostedConnections {
    /// Takes the permits for a connection of `caller`. Fails if the processes of the caller's
    /// listener, or all hosted processes together, already have the maximum number of connections.
    /// A caller of one of these kinds needs no permit, so the returned list is empty:
    ///
    /// - A caller that a program outside this organism started.
    /// - A caller of unknown origin, such as a process in another container. Operators may run
    ///   commands in such a container.
    /// - A caller that this program could not examine. Its connection ends at once.
    pub fn permits(&mut self, caller: &SocketCaller) -> Result<Vec<OwnedSemaphorePermit>, AtBound> {
        let listener = match &caller.ancestry {
            ProcessAncestry::Hosted(listener) => listener.clone(),
            ProcessAncestry::Exited => None,
            ProcessAncestry::Foreign | ProcessAncestry::Unknown | ProcessAncestry::NotExamined => {
                return Ok(Vec::new());
            }
        };

        let bound = || Arc::new(Semaphore::new(limits::LISTENER_CONNECTIONS_MAX));
        let own = Arc::clone(self.by_listener.entry(listener).or_insert_with(bound));
        let all = Arc::clone(&self.all);
        let permits = [own, all].map(Semaphore::try_acquire_owned);
        permits.into_iter().collect::<Result<Vec<_>, _>>().map_err(|_| AtBound)
    }
}

/// Error for a connection beyond the bounds: the processes of one listener, or all hosted processes
/// together, already have the maximum number of connections.
#[derive(Debug)]
pub struct AtBound;

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(ancestry: ProcessAncestry) -> SocketCaller {
        SocketCaller { ancestry, uid: None }
    }

    fn hosted(listener: &str) -> SocketCaller {
        caller(ProcessAncestry::Hosted(Some(ListenerName::parse(listener).unwrap())))
    }

    /// Opens connections in rounds, one for each caller in every round, until the bounds permit no
    /// more. Returns the permits.
    fn flood(
        connections: &mut HostedConnections,
        callers: &[SocketCaller],
    ) -> Vec<Vec<OwnedSemaphorePermit>> {
        let attempts = callers.iter().cycle().take(2 * limits::CONTROL_CONNECTIONS_MAX);
        attempts.filter_map(|caller| connections.permits(caller).ok()).collect()
    }

    #[test]
    fn the_connections_of_one_listener_are_bounded_and_those_of_others_are_not_affected() {
        let flooding = hosted("evil");
        let mut connections = HostedConnections::default();
        let mut open = flood(&mut connections, std::slice::from_ref(&flooding));
        assert_eq!(open.len(), limits::LISTENER_CONNECTIONS_MAX);

        assert!(connections.permits(&hosted("other")).is_ok());
        let operator = connections.permits(&caller(ProcessAncestry::Foreign)).unwrap();
        assert!(operator.is_empty(), "an operator needs no permit");
        open.pop();
        assert!(connections.permits(&flooding).is_ok());
    }

    #[test]
    fn all_hosted_processes_together_leave_places_to_operators() {
        let listeners = ["first", "second", "third"].map(hosted);
        let unknown = [ProcessAncestry::Hosted(None), ProcessAncestry::Exited].map(caller);
        let callers = [&listeners[..], &unknown[..]].concat();
        let mut connections = HostedConnections::default();
        let mut open = flood(&mut connections, &callers);
        assert_eq!(open.len(), limits::HOSTED_CONNECTIONS_MAX);
        assert!(connections.permits(&hosted("fourth")).is_err());

        open.pop();
        assert!(connections.permits(&hosted("fourth")).is_ok(), "a refusal keeps no permit");
    }

    #[test]
    fn processes_without_a_known_listener_share_one_bound() {
        let unknown = [ProcessAncestry::Hosted(None), ProcessAncestry::Exited].map(caller);
        let mut connections = HostedConnections::default();
        let open = flood(&mut connections, &unknown);
        assert_eq!(open.len(), limits::LISTENER_CONNECTIONS_MAX);
    }
}
