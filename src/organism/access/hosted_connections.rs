//! Bounds the connections that hosted processes hold at the control socket, so that one listener
//! cannot keep the commands of operators out.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SocketCaller;
use super::ancestry::ProcessAncestry;
use crate::ids::ListenerName;
use crate::limits;

/// The connections of hosted processes, by listener. All processes whose listener is unknown share
/// one bound.
#[derive(Default)]
pub struct HostedConnections(HashMap<Option<ListenerName>, Arc<Semaphore>>);

impl HostedConnections {
    /// Takes the permit for a connection of `caller`. The permit is `None` if `caller` is no hosted
    /// process. Fails if the processes of its listener have the maximum number of connections.
    pub fn permit(
        &mut self,
        caller: &SocketCaller,
    ) -> Result<Option<OwnedSemaphorePermit>, AtBound> {
        let ProcessAncestry::Hosted(listener) = &caller.ancestry else { return Ok(None) };
        let bound = self
            .0
            .entry(listener.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(limits::HOSTED_CONNECTIONS_MAX)));
        Arc::clone(bound).try_acquire_owned().map(Some).map_err(|_| AtBound)
    }
}

/// The processes of a listener have the maximum number of connections.
#[derive(Debug)]
pub struct AtBound;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_one_listener_are_bounded_and_those_of_others_are_not_affected() {
        let caller = |ancestry| SocketCaller { ancestry, uid: None };
        let listener = |name| Some(ListenerName::parse(name).unwrap());
        let flooding = caller(ProcessAncestry::Hosted(listener("evil")));
        let mut connections = HostedConnections::default();
        let mut permits: Vec<_> = std::iter::from_fn(|| connections.permit(&flooding).ok())
            .take(2 * limits::HOSTED_CONNECTIONS_MAX)
            .collect();
        assert_eq!(permits.len(), limits::HOSTED_CONNECTIONS_MAX);

        let other = caller(ProcessAncestry::Hosted(listener("other")));
        assert!(connections.permit(&other).unwrap().is_some());
        let operator = caller(ProcessAncestry::Foreign);
        assert!(connections.permit(&operator).unwrap().is_none(), "it needs no permit");
        permits.pop();
        assert!(connections.permit(&flooding).is_ok());
    }
}
