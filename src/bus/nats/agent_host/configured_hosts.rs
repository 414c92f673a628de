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
/// delivery was handed over.
///
/// For each of the newest [`limits::AGENT_HOST_CONFIGS_MAX`] configs, the newest host of the config
/// gets deliveries. Any other host gets no deliveries, and stays until its running deliveries have
/// ended. All clones share the hosts.
#[derive(Clone)]
pub struct ConfiguredHosts {
    /// Hosts with their configs, newest config first. Locked while a delivery is passed to a host.
    /// So a host that is about to get a delivery is not removed as idle. Never locked across an
    /// await.
    hosts: Arc<Mutex<VecDeque<HostOfConfig>>>,
}

impl ConfiguredHosts {
    pub(super) fn new(config: Digest, host: Arc<dyn Host>) -> Self {
        Self { hosts: Arc::new(Mutex::new(VecDeque::from([(config, host)]))) }
    }

    /// Adds the newest host of a config. A reload that changes only secrets keeps the digest of the
    /// config, and the older host with this digest gets no more deliveries. Removes each host that
    /// gets no more deliveries and is idle.
    pub fn add(&self, config: Digest, host: Arc<dyn Host>) {
        let mut hosts = locked(&self.hosts);
        hosts.push_front((config, host));

        let mut newer = Vec::new();
        hosts.retain(|(config, host)| gets_deliveries(&mut newer, *config) || !host.is_idle());
    }

    /// Passes a delivery to the host of the delivery's config. If there is no such host, returns
    /// the digest of the newest config as the error.
    pub(super) fn deliver(&self, config: &str, delivery: Delivery) -> Result<(), Digest> {
        let hosts = locked(&self.hosts);
        let mut newer = Vec::new();
        let found = hosts.iter().find(|(digest, _)| {
            gets_deliveries(&mut newer, *digest) && digest.to_string() == config
        });
        let Some((_, host)) = found else {
            return Err(hosts.front().map(|(digest, _)| *digest).unwrap_or_default());
        };
        host.deliver(delivery);
        Ok(())
    }

    /// Cancels a delivery at every host, because any of the hosts may have the delivery.
    pub(super) fn cancel(&self, call: CallId, attempt: Attempt) {
        self.hosts().iter().for_each(|host| host.cancel(call, attempt));
    }

    pub(super) fn hosts(&self) -> Vec<Arc<dyn Host>> {
        locked(&self.hosts).iter().map(|(_, host)| Arc::clone(host)).collect()
    }
}

/// Whether a host of `config` gets deliveries. `newer` are the configs of newer hosts that get
/// deliveries. If the host gets deliveries, adds `config` to `newer`.
fn gets_deliveries(newer: &mut Vec<Digest>, config: Digest) -> bool {
    let is_next = newer.len() < limits::AGENT_HOST_CONFIGS_MAX && !newer.contains(&config);
    if is_next {
        newer.push(config);
    }
    is_next
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::bus::DeliveryPreview;
    use crate::ids::{ListenerName, MessageId, Position, ThreadId};

    /// A host that drops its deliveries. The host counts as idle if the test has set `is_idle`.
    #[derive(Default)]
    struct FakeHost {
        is_idle: AtomicBool,
    }

    impl Host for FakeHost {
        fn deliver(&self, _: Delivery) {}

        fn cancel(&self, _: CallId, _: Attempt) {}

        fn is_idle(&self) -> bool {
            self.is_idle.load(Ordering::Relaxed)
        }

        fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::ready(()))
        }
    }

    fn delivery() -> Delivery {
        Delivery {
            call: CallId(MessageId(uuid::Uuid::nil())),
            attempt: Attempt { epoch: 1, n: 1 },
            listener: ListenerName::parse("tested").unwrap(),
            thread: ThreadId::organism(),
            messages: Vec::new(),
            fresh: 0,
            position: Position::default(),
            timeout: Duration::ZERO,
            trace: None,
            preview: DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        }
    }

    #[test]
    fn an_outdated_host_gets_nothing_more_and_stays_until_it_is_idle() {
        let most = limits::AGENT_HOST_CONFIGS_MAX;
        let config = |number: usize| Digest::of(&number.to_le_bytes());
        let oldest = Arc::new(FakeHost::default());
        let hosts = ConfiguredHosts::new(config(0), oldest.clone());
        let add = |number| hosts.add(config(number), Arc::new(FakeHost::default()));
        (1..=most).for_each(add);
        assert_eq!(hosts.hosts().len(), most + 1);

        let deliver = |number| hosts.deliver(&config(number).to_string(), delivery());
        assert_eq!(deliver(0), Err(config(most)));
        assert_eq!(deliver(1), Ok(()));

        oldest.is_idle.store(true, Ordering::Relaxed);
        add(most + 1);
        assert_eq!(Arc::strong_count(&oldest), 1);
        assert_eq!(hosts.hosts().len(), most + 1, "the host of the next config is not idle");
    }

    #[test]
    fn hosts_of_the_newest_config_take_no_place_of_earlier_configs() {
        let config = |number: u8| Digest::of(&[number]);
        let hosts = ConfiguredHosts::new(config(0), Arc::new(FakeHost::default()));
        for _ in 0..=limits::AGENT_HOST_CONFIGS_MAX {
            hosts.add(config(1), Arc::new(FakeHost::default()));
        }
        assert_eq!(hosts.deliver(&config(0).to_string(), delivery()), Ok(()));
        assert_eq!(hosts.deliver(&config(2).to_string(), delivery()), Err(config(1)));
    }
}
