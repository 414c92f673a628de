//! Hosts of the listeners and agents on NATS. All of them share one connection.

use std::sync::Arc;

use uuid::Uuid;

use super::hosts::HostFactory;
use super::local_agents::RemoteMemorySource;
use super::{Error, HostedListener};
use crate::bus::Sink;
use crate::bus::nats::{
    NatsConnection, NatsHost, Options, PromptConfig, RemoteAgentOptions, check_max_payload,
};
use crate::config::Config;
use crate::ids::ListenerName;
use crate::memory::JournalMemory;
use crate::nats;

pub(super) async fn remotes(
    config: &Config,
    factory: &HostFactory,
) -> Result<Vec<HostedListener>, Error> {
    let HostFactory { sink, runtime, memory, prompts, .. } = factory;
    let remote = remote_agents(config, memory, prompts);
    let mut hosts: Vec<HostedListener> = Vec::new();
    let Some(servers) =
        config.nats.as_ref().filter(|_| !config.remotes.is_empty() || !remote.is_empty())
    else {
        return Ok(hosts);
    };

    let connection = NatsConnection::open(servers, &format!("organism {}", config.name)).await?;
    check_max_payload(connection.client(), config.payload_bytes)?;
    let listeners = config.remotes.iter().map(|name| (name.clone(), None));

    for (name, remote) in listeners.chain(remote) {
        let sink: Arc<dyn Sink> = sink.clone();
        let mut options =
            Options { remote_agents: remote, ..Options::new(config.name.clone(), name.clone()) };
        options.waits_for_end = options.remote_agents.is_none() && is_ordered(config, &name);
        let host = NatsHost::start(Arc::clone(&connection), options, sink, runtime.clone()).await?;
        hosts.push((name, Arc::new(host)));
    }

    // If the servers deny a subscription, answers could never arrive. The start must fail now,
    // instead of one delivery after another.
    nats::flush_and_await_denials(connection.client(), connection.denials()).await;
    match connection.denials().subscription_denied(&format!("organism.{}.re.", config.name)) {
        Some(denied) => Err(nats::Error::from(denied).into()),
        None => Ok(hosts),
    }
}

/// Whether the listener must get its deliveries one after another.
fn is_ordered(config: &Config, listener: &ListenerName) -> bool {
    let contract = config.contracts.get(listener);
    contract.is_some_and(|contract| contract.serial_per_thread || contract.concurrency == 1)
}

/// Returns the agents that run on other machines, each with the settings of its host.
fn remote_agents(
    config: &Config,
    memory: &Arc<JournalMemory>,
    prompts: &PromptConfig,
) -> Vec<(ListenerName, Option<RemoteAgentOptions>)> {
    let run = Uuid::now_v7();
    let remote = |name: ListenerName| {
        let memory = RemoteMemorySource { agent: name.clone(), memory: Arc::clone(memory), run };
        (name, Some(RemoteAgentOptions { memory: Arc::new(memory), config: prompts.clone() }))
    };
    config.remote_agents().map(|spec| remote(spec.name.clone())).collect()
}
