//! Listeners on NATS: one connection for all of them, and a host for each.

use std::sync::Arc;

use tokio::runtime;

use super::{Error, Hosted};
use crate::bus::Sink;
use crate::bus::nats::{NatsHost, Options, Wire, fits};
use crate::config::Config;
use crate::nats;
use crate::pump::driver::PumpSink;

pub(super) async fn remotes(
    config: &Config,
    sink: &Arc<PumpSink>,
    runtime: &runtime::Handle,
) -> Result<Vec<Hosted>, Error> {
    let mut hosts: Vec<Hosted> = Vec::new();
    let (Some(servers), false) = (&config.nats, config.remotes.is_empty()) else {
        return Ok(hosts);
    };
    let wire = Wire::open(servers, &format!("organism {}", config.name)).await?;
    fits(wire.client(), config.payload_bytes)?;
    for name in &config.remotes {
        let sink: Arc<dyn Sink> = sink.clone();
        let options = Options::new(config.name.clone(), name.clone());
        let host = NatsHost::start(Arc::clone(&wire), options, sink, runtime.clone()).await?;
        hosts.push((name.clone(), Arc::new(host)));
    }
    // Answers that can never be heard are better missed now than one delivery after another.
    nats::settled(wire.client(), wire.denials()).await;
    match wire.denials().of_hearing(&format!("organism.{}.re.", config.name)) {
        Some(denied) => Err(nats::Error::from(denied).into()),
        None => Ok(hosts),
    }
}
