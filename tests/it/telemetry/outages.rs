//! A collector that is down, slow, full or selective: the organism is not affected, and logs the
//! condition once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use organism::clock::Time;
use organism::config::TelemetryConfig;
use organism::ids::{CallId, MessageId};
use organism::limits;
use organism::model::http::ProviderEndpoint;
use organism::telemetry::SpanExporter;
use organism::trace::{Span, SpanId, SpanKind};

use super::{Collector, Mood, house, with_collector};
use crate::organism::{CONFIG, House, say, talk_reply, until};
use crate::web;

/// Numbers of exported, dropped and rejected spans.
fn counted(house: &House) -> [u64; 3] {
    let page = web::ask(web::address(house), "/metrics").body;
    ["exported", "dropped", "rejected"].map(|outcome| {
        let name = format!("organism_spans_total{{outcome=\"{outcome}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(name.as_str()));
        line.unwrap_or_else(|| panic!("{name}: {page}")).parse().unwrap()
    })
}

fn observed(collector: &Collector) -> House {
    House::with(&with_collector(&web::listening(CONFIG), collector, ""))
}

/// Sends a request and waits for the answer. Returns the duration.
fn exchange(house: &House, text: &str) -> Duration {
    let began = Instant::now();
    let sent = house.send_text(&say(text), &[]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply(text)), "{}", sent.err);
    began.elapsed()
}

#[test]
fn an_unreachable_collector_is_logged_once_and_its_return_too() {
    let collector = Collector::start(Mood::Takes);
    let (port, house) = (collector.port, observed(&collector));
    drop(collector);
    let running = house.run();
    (0..3).for_each(|_| _ = exchange(&house, "hello"));
    until("it is told", || house.log().contains("does not accept spans").then_some(()));
    assert_eq!(counted(&house), [0, 0, 0], "all of them wait");
    let collector = Collector::at(port, Mood::Takes);
    collector.wait_for(6, |_| true);
    until("it is told, too", || house.log().contains("accepts spans again").then_some(()));
    exchange(&house, "again");
    collector.wait_for(8, |_| true);
    until("all are counted", || (counted(&house) == [8, 0, 0]).then_some(()));
    assert_eq!(running.stop(), Some(0));
    for once in ["does not accept spans", "accepts spans again"] {
        assert_eq!(house.log().matches(once).count(), 1, "{}", house.log());
    }
    house.verified();
}

#[test]
fn a_silent_collector_delays_no_request_and_only_briefly_a_stop() {
    let collector = Collector::start(Mood::Hangs);
    let house = house(&collector);
    let running = house.run();
    let slowest = (0..5).map(|_| exchange(&house, "hello")).max().unwrap();
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    until("it is asked", || (collector.connections() > 0).then_some(()));
    let began = Instant::now();
    assert_eq!(running.stop(), Some(0));
    let ending = began.elapsed();
    assert!(ending < Duration::from_secs(9), "{ending:?}");
    assert!(house.log().contains("not exported to"), "{}", house.log());
}

#[test]
fn a_stop_does_not_send_the_spans_of_a_request_under_way_again() {
    let collector = Collector::start(Mood::TakesSlowly);
    let house = house(&collector);
    let running = house.run();
    exchange(&house, "hello");

    collector.wait_for(2, |_| true);
    assert_eq!(running.stop(), Some(0));

    let spans = collector.spans();
    let ids: BTreeSet<_> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "{spans:#?}");
}

#[test]
fn temporarily_rejected_spans_are_sent_again_and_others_are_not() {
    let collector = Collector::start(Mood::Says(503, "Retry-After: 0\r\n"));
    let house = observed(&collector);
    let running = house.run();
    exchange(&house, "hello");
    until("it was asked again", || (collector.requests().len() >= 3).then_some(()));
    collector.feels(Mood::Takes);
    collector.wait_for(2, |_| true);
    collector.feels(Mood::Says(400, ""));
    let asked = collector.requests().len();
    exchange(&house, "hello");
    until("they are given up", || (counted(&house) == [2, 0, 2]).then_some(()));
    assert!(collector.requests().len() <= asked + 2);
    collector.feels(Mood::TakesBut(1));
    exchange(&house, "hello");
    until("one of them is not taken", || (counted(&house)[2] >= 3).then_some(()));
    let logged = |text: &str| house.log().matches(text).count();
    // Regardless of the number of failed attempts.
    for once in ["does not accept spans", "accepts spans again", "later rejections"] {
        assert_eq!(logged(once), 1, "{once}: {}", house.log());
    }

    let logged_for_the = |count: usize, text: &str| {
        until(text, || (logged(text) == count).then_some(()));
    };
    let begin_outage = |count: usize| {
        collector.feels(Mood::Says(503, "Retry-After: 0\r\n"));
        (0..2).for_each(|_| _ = exchange(&house, "hello"));
        logged_for_the(count, "does not accept spans");
        // The batch of a later request has several spans.
        let before = collector.requests().len();
        until("the export is retried", || (collector.requests().len() > before + 1).then_some(()));
    };

    // A rejection does not end an outage. Acceptance does, also after a rejection.
    begin_outage(2);
    collector.feels(Mood::Says(401, ""));
    logged_for_the(2, "later rejections");
    assert_eq!(logged("accepts spans again"), 1, "{}", house.log());
    collector.feels(Mood::Takes);
    exchange(&house, "hello");
    logged_for_the(2, "accepts spans again");

    // The first rejection after an outage is logged, also if spans were accepted before it.
    begin_outage(3);
    collector.feels(Mood::Takes);
    logged_for_the(3, "accepts spans again");
    collector.feels(Mood::Says(401, ""));
    exchange(&house, "hello");
    logged_for_the(3, "later rejections");

    // An outage may end with the acceptance of some spans and the rejection of others.
    begin_outage(4);
    collector.feels(Mood::TakesBut(1));
    logged_for_the(4, "accepts spans again");
    logged_for_the(4, "later rejections");
    assert_eq!(running.stop(), Some(0));
    for each in ["does not accept spans", "accepts spans again", "later rejections"] {
        assert_eq!(logged(each), 4, "{each}: {}", house.log());
    }
}

#[test]
fn a_batch_that_is_too_large_is_sent_in_halves() {
    let collector = Collector::start(Mood::Says(503, "Retry-After: 0\r\n"));
    let house = observed(&collector);
    let running = house.run();
    (0..8).for_each(|_| _ = exchange(&house, "hello"));
    until("all of it is sent at once", || {
        let largest = collector.requests().iter().map(|r| r.matches("\"spanId\"").count()).max();
        (largest == Some(16)).then_some(())
    });
    collector.feels(Mood::TakesUpTo(4_000));
    collector.wait_for(16, |_| true);
    until("all are counted", || (counted(&house) == [16, 0, 0]).then_some(()));
    collector.feels(Mood::TakesUpTo(10));
    exchange(&house, "hello");
    until("what is too much by itself is given up", || {
        (counted(&house) == [16, 0, 2]).then_some(())
    });

    // The batches grow again after the collector has accepted 16 of them.
    collector.feels(Mood::Says(503, "Retry-After: 0\r\n"));
    (0..10).for_each(|_| _ = exchange(&house, "hello"));
    let before = collector.requests().len();
    collector.feels(Mood::Takes);
    until("all are counted", || (counted(&house) == [36, 0, 2]).then_some(()));
    let later = &collector.requests()[before..];
    let sizes: Vec<_> = later.iter().map(|request| request.matches("\"spanId\"").count()).collect();
    let (single, larger) = sizes.split_at(sizes.len() - 2);
    assert!(single.len() >= 16, "{sizes:?}");
    assert!(single.iter().all(|size| *size == 1), "{sizes:?}");
    assert_eq!(larger, [2, 2]);
    assert_eq!(running.stop(), Some(0));
}

/// If the queue overflows while the collector is down, the spans in the queue are exported when the
/// collector is up again. Every span is counted as exported or dropped.
#[tokio::test(flavor = "multi_thread")]
async fn spans_beyond_the_queue_are_dropped_and_counted_and_the_rest_is_exported() {
    let collector = Collector::start(Mood::Says(503, ""));
    let telemetry = TelemetryConfig {
        endpoint: ProviderEndpoint::parse(&collector.url(), false).unwrap(),
        headers: Vec::new(),
        service: "test".to_owned(),
        sample: 1.0,
    };
    let exporter = SpanExporter::start(&telemetry, "talk");
    let (tracer, id) = (exporter.tracer().clone(), MessageId(uuid::Uuid::now_v7()));
    let first = SpanId::of_call(CallId(id));
    let at = tracer.begin(id.0, first).unwrap();
    let handed_in = 3 * limits::SPANS_QUEUED_MAX as u64;
    let began = Instant::now();
    for _ in 0..handed_in {
        let own = at.at(tracer.another(first));
        tracer.enqueue(Span::new(own, SpanKind::Internal, "x".to_owned(), Time(0)));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let counts = Arc::clone(tracer.counts().unwrap());
    let dropped = counts.dropped.get();
    // Spans that are being sent have left the queue.
    let least = handed_in - (limits::SPANS_QUEUED_MAX + 2 * limits::SPANS_SENT_MAX) as u64;
    assert!(dropped >= least, "{dropped}");
    collector.feels(Mood::Takes);
    tokio::task::block_in_place(|| {
        let all = || (counts.exported.get() + dropped == handed_in).then_some(());
        until("the rest is exported", all);
    });
    exporter.stop().await;
    let ids: BTreeSet<_> = collector.spans().into_iter().map(|span| span.id).collect();
    assert_eq!(ids.len() as u64, counts.exported.get());
    assert_eq!(counts.dropped.get(), dropped);
}

#[test]
fn a_stopping_organism_exports_its_last_spans() {
    let collector = Collector::start(Mood::Takes);
    let house = house(&collector);
    let running = house.run();
    exchange(&house, "hello");
    let began = Instant::now();
    assert_eq!(running.stop(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(3));
    assert_eq!(collector.spans().len(), 2, "{}", house.log());
}

#[test]
fn without_a_collector_no_connection_is_opened_and_no_trace_begins() {
    let collector = Collector::start(Mood::Takes);
    let off =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()), ("OTEL_SDK_DISABLED", "true".into())];
    for (config, variables) in [
        (CONFIG.to_owned(), &off[1..]),
        (CONFIG.to_owned(), &off[..]),
        (with_collector(CONFIG, &collector, ""), &off[1..]),
    ] {
        let house = House::with(&config);
        let mut command = house.command(&["run"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let running = house.run_with(command);
        exchange(&house, "hello");
        assert_eq!(running.stop(), Some(0));
        let exported = house.organism(&["export", "--format", "jsonl"]).out;
        assert!(!exported.contains("traced"), "{exported}");
    }
    assert_eq!(collector.connections(), 0);
}

#[test]
fn commands_that_read_the_record_export_no_spans() {
    let collector = Collector::start(Mood::Takes);
    let house = house(&collector);
    exchange(&house, "hello");
    let before = (collector.connections(), collector.spans().len());
    assert_eq!(before.1, 2);
    for command in [&["threads"][..], &["verify"], &["export"], &["search", "hello"], &["check"]] {
        let looked = house.organism(command);
        let expected = if command == ["verify"] { house.proof_code() } else { 0 };
        assert_eq!(looked.code, Some(expected), "{looked:?}");
    }
    assert_eq!((collector.connections(), collector.spans().len()), before);
}

#[test]
fn the_variables_of_opentelemetry_hold_where_the_config_says_nothing() {
    let collector = Collector::start(Mood::Takes);
    let echo = "command = [\"sh\", \"-c\", \"env > env.txt; exec ./player.pl echo\"]";
    let config = CONFIG.replace("command = [\"./player.pl\", \"echo\"]", echo);
    let house = House::with(&config);
    let mut command = house.command(&["run"]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20c2VjcmV0,x-tenant=7")
        .env("OTEL_SERVICE_NAME", "by-variable");
    let running = house.run_with(command);
    exchange(&house, "hello");
    assert_eq!(running.stop(), Some(0));
    let requests = collector.requests();
    let head = requests[0].split_once("\r\n\r\n").unwrap().0;
    assert!(head.contains("authorization: Basic c2VjcmV0\r\nx-tenant: 7"), "{head}");
    assert!(collector.resources()[0].to_string().contains("by-variable"));
    // A listener may use the same collector, but not under the organism's name.
    let environment = std::fs::read_to_string(house.path("env.txt")).unwrap();
    assert!(environment.contains("OTEL_SERVICE_NAME=by-variable"), "{environment}");
    assert!(!environment.contains("c2VjcmV0"), "{environment}");
}
