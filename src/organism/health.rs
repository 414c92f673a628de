//! How an organism is, as far as this process runs it: whether it takes anything in, and its
//! numbers.

use std::sync::Arc;

use tokio::sync::watch;

use super::model_metrics::ModelCounts;
use super::partitioned::{PartitionMap, PartitionStatus};
use crate::clock::Time;
use crate::config::Config;
use crate::ids::ListenerName;
use crate::journal::sqlite::Reader;
use crate::metrics::MetricsPage;
use crate::nats::{Client, State};
use crate::pump::driver::{Counts, Unready, WaitsFor};
use crate::trace::SpanTracer;

/// Numbers of one pump and of what it asks models.
#[derive(Debug, Clone)]
pub(super) struct PumpHealth {
    counts: Arc<Counts>,
    pub models: Arc<ModelCounts>,
}

impl PumpHealth {
    pub fn new(config: &Config, counts: Arc<Counts>) -> Self {
        let models = Arc::new(ModelCounts::new(config, config.near_agents()));
        Self { counts, models }
    }

    /// Deliveries that its pump has handed over at present.
    pub fn under_way(&self) -> u64 {
        self.counts.under_way()
    }

    fn write(&self, page: &mut MetricsPage) {
        self.counts.write(page, Time::now());
        self.models.write(page);
    }
}

/// Tells how a running organism is. Cheap to clone; goes on telling when it has ended.
#[derive(Clone)]
pub struct HealthMonitor {
    name: Arc<str>,
    pumps: WatchedPumps,
    /// Where spans are handed in, if anybody keeps them.
    tracer: SpanTracer,
}

#[derive(Clone)]
enum WatchedPumps {
    One(PumpHealth),
    /// One for each partition that is pumped here now.
    Several(Arc<PartitionMap>),
    /// None: agents are hosted for pumps elsewhere.
    Elsewhere(Arc<HostedHealth>),
}

/// Health of agents that are hosted here.
pub(super) struct HostedHealth {
    pub models: Arc<ModelCounts>,
    /// Each with the agent that it is for.
    pub connections: Vec<(ListenerName, Client)>,
    /// Whether the agents have to stop.
    pub stopped: watch::Receiver<bool>,
}

impl HostedHealth {
    fn lacks(&self) -> Vec<ReadinessProblem> {
        let lack = |what, why| ReadinessProblem { what, why, partition: None };
        let away = self
            .connections
            .iter()
            .filter(|(_, client)| client.connection_state() != State::Connected);
        let away = away.map(|(agent, _)| lack("nats", format!("{agent} is not connected")));
        let leaving = || lack("draining", "it is stopping and takes nothing new".to_owned());
        away.chain(self.stopped.borrow().then(leaving)).collect()
    }
}

/// Reason why an organism accepts no submissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessProblem {
    /// One word of a closed list.
    pub what: &'static str,
    /// A sentence.
    pub why: String,
    /// Where only one partition lacks it.
    pub partition: Option<u32>,
}

impl HealthMonitor {
    pub(super) fn of_one(name: &str, watched: PumpHealth, tracer: &SpanTracer) -> Self {
        Self { name: name.into(), pumps: WatchedPumps::One(watched), tracer: tracer.clone() }
    }

    pub(super) fn of_hosted(name: &str, hosted: HostedHealth, tracer: &SpanTracer) -> Self {
        let pumps = WatchedPumps::Elsewhere(Arc::new(hosted));
        Self { name: name.into(), pumps, tracer: tracer.clone() }
    }

    pub(super) fn of_several(
        name: &Arc<str>,
        table: Arc<PartitionMap>,
        tracer: &SpanTracer,
    ) -> Self {
        let (name, tracer) = (Arc::clone(name), tracer.clone());
        Self { name, pumps: WatchedPumps::Several(table), tracer }
    }

    /// Whether nothing is pumped or stood by for any more, which happens by itself only when it
    /// must.
    pub fn has_ended(&self) -> bool {
        match &self.pumps {
            WatchedPumps::One(watched) => watched.counts.has_ended(),
            WatchedPumps::Elsewhere(_) => false,
            WatchedPumps::Several(table) => table.standings().iter().all(|standing| {
                matches!(standing, PartitionStatus::Foreign | PartitionStatus::Broken(_))
            }),
        }
    }

    /// Everything that keeps it from taking something in. Empty where it is ready.
    pub fn lacks(&self) -> Vec<ReadinessProblem> {
        match &self.pumps {
            WatchedPumps::One(watched) => {
                watched.counts.unready().into_iter().map(|unready| lack(unready, None)).collect()
            }
            WatchedPumps::Several(table) => lacks_of(table),
            WatchedPumps::Elsewhere(hosted) => hosted.lacks(),
        }
    }

    /// Everything that is counted, in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut page = MetricsPage::default();
        let version = env!("CARGO_PKG_VERSION");
        page.gauges("organism_info", "Which organism this is, of which version.")
            .sample(&[("organism", &self.name), ("version", version)], 1);
        page.counters("organism_journal_reads_total", "Reads of the journal's records.")
            .counter(&[], Reader::reads());
        if let Some(counts) = self.tracer.counts() {
            page.counters(
                "organism_spans_total",
                "Spans for the collector, by what became of them.",
            )
            .counter(&[("outcome", "exported")], &counts.exported)
            .counter(&[("outcome", "dropped")], &counts.dropped)
            .counter(&[("outcome", "rejected")], &counts.rejected);
        }
        match &self.pumps {
            WatchedPumps::One(watched) => watched.write(&mut page),
            WatchedPumps::Elsewhere(hosted) => hosted.models.write(&mut page),
            WatchedPumps::Several(table) => {
                for (partition, standing) in table.standings().into_iter().enumerate() {
                    let partition = partition.to_string();
                    page.gauges("organism_partition_pumped", "1 where it is pumped here.").sample(
                        &[("partition", &partition)],
                        u64::from(standing == PartitionStatus::Here),
                    );
                }
                for (partition, watched) in table.watched().iter() {
                    page.label("partition", &partition.to_string());
                    watched.write(&mut page);
                }
            }
        }
        page.into_text()
    }
}

fn lacks_of(table: &PartitionMap) -> Vec<ReadinessProblem> {
    let mut lacks = Vec::new();
    for (partition, standing) in (0..).zip(table.standings()) {
        let here = Some(partition);
        match standing {
            // Whoever pumps it is asked from here.
            PartitionStatus::Foreign | PartitionStatus::Elsewhere(_) => {}
            PartitionStatus::Starting => lacks.push(lack(Unready::Starting, here)),
            PartitionStatus::Leaving => lacks.push(lack(Unready::Draining, here)),
            PartitionStatus::Broken(why) => {
                lacks.push(ReadinessProblem { what: "broken", why, partition: here })
            }
            PartitionStatus::Here => {
                let watched = table.watched().get(&partition).cloned();
                let unready = watched.map(|watched| watched.counts.unready()).unwrap_or_default();
                lacks.extend(unready.into_iter().map(|unready| lack(unready, here)));
            }
        }
    }
    lacks
}

fn lack(unready: Unready, partition: Option<u32>) -> ReadinessProblem {
    let (what, why) = match unready {
        Unready::Starting => ("starting", "the pump has not begun yet"),
        Unready::Waits(WaitsFor::Disk) => ("disk", "the disk is full; it waits for room"),
        Unready::Waits(WaitsFor::Server) => {
            ("journal-server", "the journal's server is away; it waits")
        }
        Unready::Draining => ("draining", "it is stopping and takes nothing new"),
        Unready::Ended => ("pump", "the pump has ended; the log says why"),
    };
    ReadinessProblem { what, why: why.to_owned(), partition }
}
