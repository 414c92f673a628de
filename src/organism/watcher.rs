//! How an organism is: whether it takes anything in, and its numbers.

use std::sync::Arc;

use super::metered::ModelCounts;
use crate::clock::Time;
use crate::config::Config;
use crate::metrics::Page;
use crate::pump::driver::{Counts, Unready, WaitsFor};

/// Tells how a running organism is. Cheap to clone; goes on telling when it has ended.
#[derive(Debug, Clone)]
pub struct Watcher {
    name: Arc<str>,
    counts: Arc<Counts>,
    models: Arc<ModelCounts>,
}

impl Watcher {
    pub(super) fn new(config: &Config, counts: Arc<Counts>) -> Self {
        let models = Arc::new(ModelCounts::new(config));
        Self { name: config.name.as_str().into(), counts, models }
    }

    pub(super) fn models(&self) -> &Arc<ModelCounts> {
        &self.models
    }

    /// Whether the pump has ended, which it does by itself only when it must not go on.
    pub fn has_ended(&self) -> bool {
        self.counts.has_ended()
    }

    /// Everything that keeps it from taking something in: a word and a sentence each. Empty
    /// where it is ready.
    pub fn unready(&self) -> Vec<(&'static str, &'static str)> {
        self.counts.unready().into_iter().map(told).collect()
    }

    /// Everything that is counted, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        page.gauges("organism_info", "Which organism this is, of which version.")
            .sample(&[("organism", &self.name), ("version", version)], 1);
        self.counts.write(&mut page, Time::now());
        self.models.write(&mut page);
        page.into_text()
    }
}

fn told(unready: Unready) -> (&'static str, &'static str) {
    match unready {
        Unready::Starting => ("starting", "the pump has not begun yet"),
        Unready::Waits(WaitsFor::Disk) => ("disk", "the disk is full; it waits for room"),
        Unready::Waits(WaitsFor::Server) => {
            ("journal-server", "the journal's server is away or has no room; it waits")
        }
        Unready::Draining => ("draining", "it is stopping and takes nothing new"),
        Unready::Ended => ("pump", "the pump has ended; the log says why"),
    }
}
