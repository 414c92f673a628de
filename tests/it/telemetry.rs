//! Spans at a collector: the real command, real listeners, and a real server on loopback.

mod collector;
mod hosts;
mod outages;
mod tree;

use std::collections::BTreeMap;

use crate::organism::{CONFIG, House};
pub use collector::{Collector, Mood, Span};

pub const PRODUCER: u64 = 4;
pub const CONSUMER: u64 = 5;
pub const INTERNAL: u64 = 1;
pub const CLIENT: u64 = 3;

/// Adds a `[telemetry]` section with this collector and the lines `more` to a config.
pub fn with_collector(config: &str, collector: &Collector, more: &str) -> String {
    format!("{config}\n[telemetry]\nendpoint = \"{}\"\n{more}\n", collector.url())
}

pub fn house(collector: &Collector) -> House {
    House::with(&with_collector(CONFIG, collector, ""))
}

/// Returns one path for each span: the names of its ancestors, outermost first, and its own name.
/// The paths are sorted. A path begins with `(given)` if its first span names a parent that is not
/// in `spans`.
pub fn paths(spans: &[Span]) -> Vec<String> {
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "two spans of one id: {spans:#?}");
    let path = |span: &Span| {
        let (mut path, mut at) = (span.name.clone(), span);
        while let Some(parent) = &at.parent {
            let Some(found) = by_id.get(parent.as_str()) else {
                return format!("(given) > {path}");
            };
            assert_eq!(found.trace, at.trace);
            at = found;
            path = format!("{} > {path}", at.name);
        }
        path
    };
    let mut paths: Vec<_> = spans.iter().map(path).collect();
    paths.sort();
    paths
}
