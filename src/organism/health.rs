//! Readiness and metrics of the part of an organism that runs in this process.

use std::sync::Arc;

use tokio::sync::watch;

use super::alerts::AlertMetrics;
use super::index_follower::IndexLag;
use super::model_metrics::ModelCounts;
use super::partitioned::{PartitionMap, PartitionStatus};
use crate::config::Config;
use crate::ids::{ListenerName, Position};
use crate::journal::sqlite::JournalReader;
use crate::metrics::MetricsPage;
use crate::nats::{Client, State};
use crate::pump::driver::{PumpMetrics, PumpNotReady, WriteObstacle};
use crate::trace::SpanTracer;

/// Health of one pump: its metrics, and the metrics of its agents' model calls.
#[derive(Debug, Clone)]
pub(super) struct PumpHealth {
    counts: Arc<PumpMetrics>,
    pub models: Arc<ModelCounts>,
    /// Progress of the index of the pump's journal; `None` if this process does not keep this
    /// index.
    pub index: Option<Arc<IndexLag>>,
    /// Counts of the alerts of this pump; `None` if the config has no alerts.
    pub alerts: Option<Arc<AlertMetrics>>,
}

impl PumpHealth {
    pub fn new(config: &Config, counts: Arc<PumpMetrics>) -> Self {
        let models = Arc::new(ModelCounts::new(config, config.local_agents()));
        Self { counts, models, index: None, alerts: None }
    }

    /// Returns the number of deliveries that the pump has in flight.
    pub fn under_way(&self) -> u64 {
        self.counts.under_way()
    }

    /// Returns all reasons why the pump refuses submissions, or why it does not receive the answers
    /// of listeners over NATS.
    fn problems(&self, partition: Option<u32>) -> Vec<ReadinessProblem> {
        let unready = self.counts.unready().into_iter().map(|unready| problem(unready, partition));
        let denied = self.counts.denied_answers().into_iter();
        let denied = denied.map(|why| ReadinessProblem { what: "nats", why, partition });
        unready.chain(denied).collect()
    }

    fn write(&self, page: &mut MetricsPage) {
        self.counts.write(page);
        if let Some(lag) = &self.index {
            lag.write(page);
        }
        if let Some(alerts) = &self.alerts {
            alerts.write(page);
        }
        self.models.write(page);
    }

    /// Returns the metrics of the pump.
    pub fn counts(&self) -> &Arc<PumpMetrics> {
        &self.counts
    }
}

/// Monitor of an organism's health. Cheap to clone. The monitor stays usable after the organism has
/// ended.
#[derive(Clone)]
pub struct HealthMonitor {
    name: Arc<str>,
    pumps: WatchedPumps,
    /// Tracer of this process. The metrics show how many spans the tracer exports.
    tracer: SpanTracer,
}

#[derive(Clone)]
enum WatchedPumps {
    One(PumpHealth),
    /// This process runs the pumps of some partitions. The map states which partitions these are
    /// now.
    Several(Arc<PartitionMap>),
    /// No pump runs here: the process hosts agents for pumps elsewhere.
    Elsewhere(Arc<HostedHealth>),
}

/// Health of the agents that this process hosts for pumps elsewhere.
pub(super) struct HostedHealth {
    pub models: Arc<ModelCounts>,
    /// The connection to NATS of each hosted agent.
    pub connections: Vec<(ListenerName, Client)>,
    /// Turns true when the hosted agents must stop.
    pub stopped: watch::Receiver<bool>,
}

impl HostedHealth {
    fn problems(&self) -> Vec<ReadinessProblem> {
        let problem = |what, why| ReadinessProblem { what, why, partition: None };
        let unconnected = self
            .connections
            .iter()
            .filter(|(_, client)| client.connection_state() != State::Connected);
        let unconnected =
            unconnected.map(|(agent, _)| problem("nats", format!("{agent} is not connected")));
        let leaving = || problem("draining", "it is stopping and takes nothing new".to_owned());
        unconnected.chain(self.stopped.borrow().then(leaving)).collect()
    }
}

/// Reason why an organism refuses submissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadinessProblem {
    /// Kind of the problem, from a fixed list.
    pub what: &'static str,
    /// Explanation of the problem to an operator, in one sentence.
    pub why: String,
    /// The partition that the problem concerns. `None` if the problem concerns the whole organism.
    pub partition: Option<u32>,
}

/// The records before the snapshot from which this run started. The organism verifies these records
/// while it runs, because the start did not verify them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnprovedRecords {
    /// Position of the first record after the snapshot. The start verified all records from this
    /// position on before the pump accepted payloads. A background thread verifies the earlier
    /// records.
    pub proved_from: Position,
    /// Position up to which the organism has verified the records before `proved_from` so far. The
    /// organism verifies these records in ascending order.
    pub proved: Position,
    pub partition: Option<u32>,
}

impl UnprovedRecords {
    fn of(health: &PumpHealth, partition: Option<u32>) -> Option<Self> {
        let (proved_from, proved) = health.counts.unproved()?;
        Some(Self { proved_from, proved, partition })
    }
}

impl HealthMonitor {
    pub(super) fn of_one(name: &str, health: PumpHealth, tracer: &SpanTracer) -> Self {
        Self { name: name.into(), pumps: WatchedPumps::One(health), tracer: tracer.clone() }
    }

    pub(super) fn of_hosted(name: &str, hosted: HostedHealth, tracer: &SpanTracer) -> Self {
        let pumps = WatchedPumps::Elsewhere(Arc::new(hosted));
        Self { name: name.into(), pumps, tracer: tracer.clone() }
    }

    pub(super) fn of_several(name: &Arc<str>, map: Arc<PartitionMap>, tracer: &SpanTracer) -> Self {
        let name = Arc::clone(name);
        let tracer = tracer.clone();
        Self { name, pumps: WatchedPumps::Several(map), tracer }
    }

    /// Whether all pumps and standbys of this process have ended. Without a request to stop, a pump
    /// ends only after a fatal error. Always false for a process that only hosts agents.
    pub fn has_ended(&self) -> bool {
        match &self.pumps {
            WatchedPumps::One(health) => health.counts.has_ended(),
            WatchedPumps::Elsewhere(_) => false,
            WatchedPumps::Several(map) => map.statuses().iter().all(|status| {
                matches!(status, PartitionStatus::Foreign | PartitionStatus::Broken(_))
            }),
        }
    }

    /// Returns all reasons why the organism refuses submissions; an empty list if the organism
    /// accepts submissions.
    pub fn problems(&self) -> Vec<ReadinessProblem> {
        match &self.pumps {
            WatchedPumps::One(health) => health.problems(None),
            WatchedPumps::Several(map) => partition_problems(map),
            WatchedPumps::Elsewhere(hosted) => hosted.problems(),
        }
    }

    /// Returns the records that this run has not verified yet. Empty if this run has verified every
    /// record.
    pub fn unproved(&self) -> Vec<UnprovedRecords> {
        match &self.pumps {
            WatchedPumps::One(health) => UnprovedRecords::of(health, None).into_iter().collect(),
            WatchedPumps::Several(map) => {
                let pumps = map.watched();
                let pumps = pumps.iter();
                pumps.filter_map(|(at, own)| UnprovedRecords::of(own, Some(*at))).collect()
            }
            WatchedPumps::Elsewhere(_) => Vec::new(),
        }
    }

    /// Writes all metrics in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut page = MetricsPage::default();
        let version = env!("CARGO_PKG_VERSION");
        page.gauges(
            "organism_info",
            "Always 1; the labels are the name and version of the organism.",
        )
        .sample(&[("organism", &self.name), ("version", version)], 1);
        page.counters("organism_journal_reads_total", "Reads of the journal's records.")
            .counter(&[], JournalReader::reads());
        if let Some(counts) = self.tracer.counts() {
            page.counters("organism_spans_total", "Spans for the collector, by outcome.")
                .counter(&[("outcome", "exported")], &counts.exported)
                .counter(&[("outcome", "dropped")], &counts.dropped)
                .counter(&[("outcome", "rejected")], &counts.rejected);
        }

        match &self.pumps {
            WatchedPumps::One(health) => health.write(&mut page),
            WatchedPumps::Elsewhere(hosted) => hosted.models.write(&mut page),
            WatchedPumps::Several(map) => {
                for (partition, status) in map.statuses().into_iter().enumerate() {
                    let partition = partition.to_string();
                    page.gauges(
                        "organism_partition_pumped",
                        "1 if this process pumps the partition, else 0.",
                    )
                    .sample(
                        &[("partition", &partition)],
                        u64::from(status == PartitionStatus::Here),
                    );
                }
                for (partition, health) in map.watched().iter() {
                    page.label("partition", &partition.to_string());
                    health.write(&mut page);
                }
            }
        }

        page.into_text()
    }
}

fn partition_problems(map: &PartitionMap) -> Vec<ReadinessProblem> {
    let mut problems = Vec::new();
    for (partition, status) in (0..).zip(map.statuses()) {
        let here = Some(partition);
        match status {
            // Requests for such a partition are passed on to the process that pumps it, so it
            // counts as ready.
            PartitionStatus::Foreign | PartitionStatus::Elsewhere(_) => {}
            PartitionStatus::Starting => problems.push(problem(PumpNotReady::Starting, here)),
            PartitionStatus::Leaving => problems.push(problem(PumpNotReady::Draining, here)),
            PartitionStatus::Waiting { obstacle, why } => {
                let waits = problem(PumpNotReady::Waits(obstacle), here);
                problems.push(ReadinessProblem { why, ..waits });
            }
            PartitionStatus::Broken(why) => {
                problems.push(ReadinessProblem { what: "broken", why, partition: here })
            }
            PartitionStatus::Here => {
                let health = map.watched().get(&partition).cloned();
                problems.extend(health.iter().flat_map(|health| health.problems(here)));
                let denied = map.requests_denied(partition);
                let denied =
                    denied.map(|why| ReadinessProblem { what: "nats", why, partition: here });
                problems.extend(denied);
            }
        }
    }

    problems
}

fn problem(unready: PumpNotReady, partition: Option<u32>) -> ReadinessProblem {
    let (what, why) = match unready {
        PumpNotReady::Starting => ("starting", "the pump has not begun yet"),
        PumpNotReady::Waits(WriteObstacle::Disk) => ("disk", "the disk is full; it waits for room"),
        PumpNotReady::Waits(WriteObstacle::Server) => {
            ("journal-server", "the journal's server is unavailable; the pump waits for it")
        }
        PumpNotReady::Waits(WriteObstacle::Denied) => (
            "journal-server",
            "the journal's server denies writes; the pump waits, and the log names the missing right",
        ),
        PumpNotReady::Draining => ("draining", "it is stopping and takes nothing new"),
        PumpNotReady::Ended => ("pump", "the pump has ended; the log has the reason"),
    };

    ReadinessProblem { what, why: why.to_owned(), partition }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_the_server_denies_is_no_missing_server() {
        let shown = |obstacle| problem(PumpNotReady::Waits(obstacle), None);
        let denied = shown(WriteObstacle::Denied);
        assert_eq!(denied.what, "journal-server");
        assert!(denied.why.contains("denies") && !denied.why.contains("unavailable"), "{denied:?}");
        assert!(shown(WriteObstacle::Server).why.contains("unavailable"));
    }
}
