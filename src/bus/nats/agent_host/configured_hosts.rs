//! The hosts of one agent in this process. There is one host for each recent config of the agent.
//! Each delivery states the digest of its config, and goes to the host of this config.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::bus::{Delivery, Host};
use crate::ids::{Attempt, CallId, Digest};
use crate::limits;
use crate::locks::locked;

type HostOfConfig = (Digest, Arc<dyn Host>);

/// The hosts of one agent, each with its config. A reload adds a host. The hosts of earlier configs
/// stay, because each delivery must go to the host with the config that was in force when the
/// delivery was handed over. All clones share the hosts.
#[derive(Clone)]
pub struct ConfiguredHosts {
    /// Hosts with their configs, newest config first. Never locked across an await.
    hosts: Arc<Mutex<VecDeque<HostOfConfig>>>,
}

impl ConfiguredHosts {
    pub(super) fn new(config: Digest, host: Arc<dyn Host>) -> Self {
        Self { hosts: Arc::new(Mutex::new(VecDeque::from([(config, host)]))) }
    }

    /// Adds the host of a new config. If there are too many hosts then, removes the host of the
    /// oldest config and returns it; the caller must drain it.
    pub fn add(&self, config: Digest, host: Arc<dyn Host>) -> Option<Arc<dyn Host>> {
        let mut hosts = locked(&self.hosts);
        hosts.push_front((config, host));
        if hosts.len() > limits::AGENT_HOST_CONFIGS_MAX {
            return hosts.pop_back().map(|(_, host)| host);
        }
        None
    }

    /// Passes a delivery to the host of its config. If there is no such host, returns the digest of
    /// the newest config as the error.
    pub(super) fn deliver(&self, config: &str, delivery: Delivery) -> Result<(), Digest> {
        let host = {
            let hosts = locked(&self.hosts);
            let found = hosts.iter().find(|(digest, _)| digest.to_string() == config);
            match (found, hosts.front()) {
                (Some((_, host)), _) => Arc::clone(host),
                (None, newest) => {
                    return Err(newest.map(|(digest, _)| *digest).unwrap_or_default());
                }
            }
        };
        host.deliver(delivery);
        Ok(())
    }

    /// Cancels a delivery at every host, because any of them may have it.
    pub(super) fn cancel(&self, call: CallId, attempt: Attempt) {
        self.hosts().iter().for_each(|host| host.cancel(call, attempt));
    }

    pub(super) fn hosts(&self) -> Vec<Arc<dyn Host>> {
        locked(&self.hosts).iter().map(|(_, host)| Arc::clone(host)).collect()
    }
}
