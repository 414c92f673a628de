//! Hosts of the listeners and agents on NATS. Each of them has a connection of its own, so that a
//! message with malformed headers from one listener does not interrupt the calls of the others.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::runtime;
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
use crate::nats::{self, SharedRuntime};

pub(super) async fn remotes(
    config: &Config,
    factory: &HostFactory,
) -> Result<Vec<HostedListener>, Error> {
    let HostFactory { sink, runtime, memory, prompts, .. } = factory;
    let remote = remote_agents(config, memory, prompts);
    let Some(servers) =
        config.nats.as_ref().filter(|_| !config.remotes.is_empty() || !remote.is_empty())
    else {
        return Ok(Vec::new());
    };

    let thread = NatsConnection::start_thread()?;
    let listeners = config.remotes.iter().map(|name| (name.clone(), None));
    let hosts = listeners.chain(remote).map(|(name, remote)| {
        let sink: Arc<dyn Sink> = sink.clone();
        let mut options =
            Options { remote_agents: remote, ..Options::new(config.name.clone(), name.clone()) };
        options.partition = config.own_partition();
        options.waits_for_end = options.remote_agents.is_none() && is_ordered(config, &name);
        start(config, (servers, &thread), options, sink, runtime.clone())
    });
    let hosts: Vec<_> = hosts.collect();
    try_join_all(hosts).await
}

/// Connects to the servers, on the thread that all listeners share, and starts the host of one
/// listener or agent.
async fn start(
    config: &Config,
    (servers, thread): (&nats::Options, &Arc<SharedRuntime>),
    options: Options,
    sink: Arc<dyn Sink>,
    runtime: runtime::Handle,
) -> Result<HostedListener, Error> {
    let name = options.listener.clone();
    let called = format!("organism {}, listener {name}", config.name);
    let connection = NatsConnection::open_on(thread, servers, &called).await?;
    check_max_payload(&connection.client(), config.payload_bytes)?;
    let host = NatsHost::start(Arc::clone(&connection), options, sink, runtime).await?;

    // If the servers deny a subscription, answers could never arrive. The start must fail now,
    // instead of one delivery after another.
    let denials = connection.denials();
    nats::flush_and_await_denials(&connection.client(), &denials).await;
    match denials.subscription_denied(&format!("organism.{}.re.", config.name)) {
        Some(denied) => Err(nats::Error::from(denied).into()),
        None => Ok((name, Arc::new(host))),
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
