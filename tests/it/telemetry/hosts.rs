//! An organism in several processes: a tree has one trace, whichever process pumps it.

use std::collections::BTreeSet;

use super::{Collector, Mood, paths, with_collector};
use crate::nats::{Server, Settings};
use crate::organism::{House, numbered, order_config};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn a_trace_crosses_from_the_host_it_comes_in_to_the_one_that_pumps_it() {
    let collector = Collector::start(Mood::Takes);
    let server = Server::start_with(Settings { jetstream: Some(""), more: "" });
    let address = server.address();
    let config = order_config(1);
    let config = format!(
        "{config}\n[journal]\nstore = \"jetstream\"\npartitions = 2\ndurability = \"lazy\"\n\n\
         [nats]\nurl = \"{address}\"\n"
    );
    let hosts = ["east", "west"].map(|service| {
        House::settled(&with_collector(&config, &collector, &format!("service = \"{service}\"")))
    });
    let running = [0, 1].map(|partition: usize| {
        let partitions = partition.to_string();
        hosts[partition].run_with(hosts[partition].command(&["run", "--partitions", &partitions]))
    });
    // A client sends to both processes, and each forwards to the other if necessary.
    let threads = ["sess-part000001", "sess-part000002", "sess-part000003", "sess-part000004"];
    for (thread, host) in threads.iter().zip([0, 1, 0, 1]) {
        let order = numbered("order", "7");
        let sent = hosts[host].send_text(&order, &["--new", thread, "--traceparent", GIVEN]);
        assert_eq!(sent.code, Some(0), "{sent:?} {}", hosts[host].log());
    }
    for running in running {
        assert_eq!(running.stop(), Some(0));
    }
    let spans = collector.spans();
    let send = "(given) > send front";
    let each = [
        send.to_owned(),
        format!("{send} > process front"),
        format!("{send} > process front"),
        format!("{send} > send back"),
        format!("{send} > send back > process back"),
    ];
    let mut expected: Vec<_> = each.iter().flat_map(|path| vec![path.clone(); 4]).collect();
    expected.sort();
    assert_eq!(paths(&spans), expected);
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 1);
    let services = collector.resources().iter().map(ToString::to_string).collect::<String>();
    assert!(services.contains("\"east\"") && services.contains("\"west\""), "both pumped some");
}
