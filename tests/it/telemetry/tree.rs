//! The spans, their parents, and their attributes.

use std::collections::BTreeSet;
use std::process::Command;

use tokio::runtime::Runtime;

use super::{
    CLIENT, CONSUMER, Collector, INTERNAL, Mood, PRODUCER, Span, house, paths, with_collector,
};
use crate::bus::harness::script;
use crate::bus::remote::{Kit, Meeting};
use crate::model::server::{KEY, Script, Server};
use crate::model::wires::{OPENAI, Scene};
use crate::nats::{self, Settings};
use crate::organism::hosted::Hosting;
use crate::organism::{CONFIG, CommandOutput, House, numbered, order_config, say};

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

const PLAN: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
    targetNamespace="urn:example:plan" elementFormDefault="qualified">
  <xs:element name="plan" type="xs:string"/>
</xs:schema>"#;

/// A house with an agent that calls a listener on NATS, and a process that calls another process.
/// `place` sets where the agent runs.
fn nested_agents_house(
    nats: &nats::Server,
    model: &Server,
    collector: &Collector,
    place: &str,
) -> House {
    let config = order_config(1);
    let (_, processes) = config.split_once("[listeners.front]").unwrap();
    let (processes, _) = processes.split_once("[listeners.solo]").unwrap();
    let config = format!(
        r#"
[organism]
name = "talk"
[nats]
url = "{}"
[clients.desk]
peers = ["writer"]
[agents.writer]
model = "live"
schema = "plan.xsd"
accepts = ["plan"]
peers = ["front", "tested"]
prompt = {{ capabilities = "secret-of-the-prompt" }}
{place}
[models.live]
provider = "openai"
model = "m-1"
base_url = "{}"
api_key_env = "LIVE_KEY"
[listeners.tested]
nats = true
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
[listeners.front]{processes}
"#,
        nats.address(),
        model.url(),
    );
    let headers = "headers = { Authorization = \"Bearer ${COLLECTOR_KEY}\" }\nservice = \"desk\"";
    let house = House::settled(&with_collector(&config, collector, headers));
    house.write("plan.xsd", PLAN);
    house.write("plan.xml", "<plan xmlns=\"urn:example:plan\">secret-plan</plan>");
    house
}

fn model() -> (Runtime, Server) {
    let says = |text: &'static str| {
        let events = (OPENAI.events)(&Scene { text: vec![text], ..Scene::default() });
        let named = |event: String| event.replace("\"m-1\"", "\"m-1-2026\"");
        Script::stream(&events.into_iter().map(named).collect::<Vec<_>>())
    };
    let order = "<order xmlns=\"urn:example:talk\"><n>1618033988</n></order>";
    let say = "<say xmlns=\"urn:example:talk\">secret-question</say>";
    let done = "<attempt_completion><result>secret-answer</result></attempt_completion>";
    let busy = Script::whole("503 Busy", "Retry-After: 0\r\n", "{}");
    let runtime = Runtime::new().unwrap();
    let scripts = vec![says(order), says(say), busy, says(done)];
    let server = runtime.block_on(Server::start(scripts));
    (runtime, server)
}

/// Adds the keys of the collector and of the model to the environment of a command.
fn with_keys(command: Command) -> Command {
    let mut command = with_the_collectors(command);
    command.env("LIVE_KEY", KEY);
    command
}

fn with_the_collectors(mut command: Command) -> Command {
    command.env("COLLECTOR_KEY", "secret-of-the-collector");
    command
}

fn one<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("no span {name}: {spans:#?}"));
    assert!(found.next().is_none(), "{name} more than once");
    span
}

/// Returns the spans of a whole tree. With `is_hosted`, the agent of the tree runs in a separate
/// host; without it, in the pump's process.
fn played(is_hosted: bool) -> Vec<Span> {
    let collector = Collector::start(Mood::Takes);
    let nats = nats::Server::start_with(Settings { jetstream: None, more: "" });
    let (_runtime, model) = model();
    let place = if is_hosted { "nats = true" } else { "" };
    let house = nested_agents_house(&nats, &model, &collector, place);
    let meeting = Meeting::of("talk", &nats);
    // With a separate host, this process calls no model.
    let keys = if is_hosted { with_the_collectors } else { with_keys };
    let mut run = keys(house.command(&["run"]));
    run.env("ORGANISM_LOG", "info");
    let (running, traces) = (house.run_with(run), house.path("traces"));
    let variables =
        [("REPLICA", "r"), ("ORGANISM_BUS_LEASE", "1"), ("TRACES", traces.to_str().unwrap())];
    let _kit = Kit::running(&script("replica.py"), &meeting, &variables);
    let host = || with_keys(house.command(&["host", "--only", "writer"]));
    let hosting = is_hosted.then(|| Hosting::of(host(), &house, "host"));
    let mut sending = keys(house.command(&["send", "plan.xml", "--as", "desk"]));
    let sent: CommandOutput = sending.args(["--traceparent", GIVEN]).output().unwrap().into();
    assert_eq!(sent.code, Some(0), "{sent:?} {}", house.log());
    assert!(sent.out.contains("secret-answer"), "{sent:?}");
    if let Some(mut hosting) = hosting {
        hosting.terminate();
        assert_eq!(hosting.ended(), Some(0), "{}", hosting.log());
        assert!(!hosting.log().contains("secret"), "{}", hosting.log());
    }
    assert_eq!(running.stop(), Some(0));
    let spans = collector.spans();
    is_the_whole_tree(&spans, &house);
    hops_are_printed(&house, &model, &spans);
    assert_no_payload_exported(&collector, &house);
    house.verified();
    spans
}

fn is_the_whole_tree(spans: &[Span], house: &House) {
    let agent = "(given) > send writer";
    let turn = format!("{agent} > process writer > invoke_agent writer");
    let expected = [
        agent.to_owned(),
        format!("{agent} > execute_tool order"),
        format!("{agent} > execute_tool order > process front"),
        format!("{agent} > execute_tool order > process front"),
        format!("{agent} > execute_tool order > send back"),
        format!("{agent} > execute_tool order > send back > process back"),
        format!("{agent} > execute_tool say"),
        format!("{agent} > execute_tool say > process tested"),
        format!("{agent} > process writer"),
        format!("{agent} > process writer"),
        format!("{agent} > process writer"),
        turn.clone(),
        turn.clone(),
        turn.clone(),
        format!("{turn} > chat m-1"),
        format!("{turn} > chat m-1"),
        format!("{turn} > chat m-1"),
        format!("{turn} > chat m-1"),
    ];
    assert_eq!(paths(spans), expected, "{}", house.log());
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces, BTreeSet::from(["4bf92f3577b34da6a3ce929d0e0e4736"]));
    assert_eq!(one(spans, "send writer").parent.as_deref(), Some("00f067aa0ba902b7"));
}

#[test]
fn a_whole_tree_is_one_trace_of_calls_deliveries_turns_and_model_calls() {
    let spans = played(false);
    says_what_it_is(&spans);
    assert_eq!(instances(&spans, |_| true).len(), 1);
}

#[test]
fn turns_and_model_calls_in_a_host_of_their_own_are_part_of_their_pumps_trace() {
    let spans = played(true);
    says_what_it_is(&spans);
    let is_hosts = |span: &Span| ["invoke_agent writer", "chat m-1"].contains(&&*span.name);
    let (host, pump) = (instances(&spans, is_hosts), instances(&spans, |span| !is_hosts(span)));
    assert_eq!((host.len(), pump.len()), (1, 1), "{spans:#?}");
    assert_ne!(host, pump);
}

/// Names of the processes that exported the spans for which `which` holds.
fn instances(spans: &[Span], which: impl Fn(&Span) -> bool) -> BTreeSet<&str> {
    spans.iter().filter(|span| which(span)).map(|span| span.instance.as_str()).collect()
}

fn says_what_it_is(spans: &[Span]) {
    let thread = one(spans, "send writer").get("messaging.message.conversation_id").unwrap();
    let check = |span: &Span, kind: u64, expected: &[(&str, &str)]| {
        assert_eq!(span.kind, kind, "{span:?}");
        for (name, value) in expected {
            assert_eq!(span.get(name), Some(*value), "{name} of {span:?}");
        }
    };
    check(
        one(spans, "send back"),
        PRODUCER,
        &[
            ("messaging.system", "organism"),
            ("messaging.destination.name", "back"),
            ("messaging.operation.name", "send"),
            ("messaging.operation.type", "send"),
            ("messaging.message.conversation_id", thread),
            ("organism.sender", "front"),
            ("organism.payload.name", "{urn:example:talk}work"),
        ],
    );
    let call = one(spans, "send back").get("messaging.message.id").unwrap();
    check(
        one(spans, "process back"),
        CONSUMER,
        &[
            ("messaging.system", "organism"),
            ("messaging.destination.name", "back"),
            ("messaging.operation.type", "process"),
            ("messaging.message.id", call),
            ("messaging.message.conversation_id", thread),
            ("organism.attempt", "1.1"),
        ],
    );
    check(
        one(spans, "execute_tool say"),
        INTERNAL,
        &[
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "say"),
            ("gen_ai.tool.type", "function"),
            ("messaging.destination.name", "tested"),
        ],
    );
    for turn in spans.iter().filter(|span| span.name == "invoke_agent writer") {
        check(
            turn,
            INTERNAL,
            &[
                ("gen_ai.operation.name", "invoke_agent"),
                ("gen_ai.agent.name", "writer"),
                ("gen_ai.provider.name", "openai"),
                ("gen_ai.request.model", "m-1"),
                ("gen_ai.conversation.id", thread),
                ("gen_ai.usage.input_tokens", "21"),
                ("gen_ai.usage.output_tokens", "13"),
            ],
        );
    }
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m-1").collect();
    let (failed, answered): (Vec<_>, Vec<_>) = chats.into_iter().partition(|span| span.failed);
    for chat in &answered {
        check(
            chat,
            CLIENT,
            &[
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", "openai"),
                ("gen_ai.request.model", "m-1"),
                ("gen_ai.response.model", "m-1-2026"),
                ("gen_ai.usage.input_tokens", "21"),
                ("gen_ai.usage.output_tokens", "13"),
                ("gen_ai.usage.cache_read.input_tokens", "16"),
                ("server.address", "127.0.0.1"),
            ],
        );
        let reasons = &chat.attributes["gen_ai.response.finish_reasons"]["arrayValue"]["values"];
        assert_eq!(reasons[0]["stringValue"], "stop");
    }
    assert_eq!((failed.len(), answered.len()), (1, 3));
    let busy = [("error.type", "overloaded"), ("http.response.status_code", "503")];
    check(failed[0], CLIENT, &busy);
    assert!(spans.iter().filter(|span| span.name != "chat m-1").all(|span| !span.failed));
}

/// Asserts that the model server, the processes and the listeners on NATS got trace parents, and
/// that each trace parent is a span that the collector has.
fn hops_are_printed(house: &House, model: &Server, spans: &[Span]) {
    let ids = |name: &str| -> BTreeSet<String> {
        let named = spans.iter().filter(|span| span.name == name);
        named.map(|span| span.id.clone()).collect()
    };
    let span = |rest: &str| rest.get(..16).unwrap().to_owned();
    let said = |text: &str| -> BTreeSet<String> {
        text.split("00-4bf92f3577b34da6a3ce929d0e0e4736-").skip(1).map(span).collect()
    };
    assert_eq!(said(&model.requests().concat()), ids("chat m-1"), "providers");
    let log = house.log();
    let traced = log.lines().filter_map(|line| line.split_once("traced ")).map(|(_, rest)| rest);
    let traced = traced.collect::<Vec<_>>().join("\n");
    assert_eq!(said(&traced), &ids("process front") | &ids("process back"), "processes");
    let noted = std::fs::read_to_string(house.path("traces")).unwrap();
    assert_eq!(said(&noted), ids("process tested"), "listeners on NATS");
}

fn assert_no_payload_exported(collector: &Collector, house: &House) {
    let requests = collector.requests();
    assert!(!requests.is_empty());
    for request in &requests {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("authorization: Bearer secret-of-the-collector"), "{head}");
        for said in ["secret", "1618033988", KEY, "<"] {
            assert!(!body.contains(said), "{said}: {body}");
        }
    }
    assert!(!house.log().contains("secret-of-the-collector"));
    let config = house.organism(&["export", "--format", "jsonl"]).out;
    assert!(!config.contains("secret-of-the-collector"));
    for resource in collector.resources() {
        let attributes = resource["attributes"].to_string();
        for part in ["\"service.name\"", "\"desk\"", "\"organism.name\"", "\"talk\""] {
            assert!(attributes.contains(part), "{part}: {attributes}");
        }
    }
}

#[test]
fn a_tree_without_a_trace_begins_one_and_keeps_it_after_a_restart() {
    let collector = Collector::start(Mood::Takes);
    let house = House::with(&with_collector(&order_config(1), &collector, ""));
    let running = house.run();
    let sent = house.send_text(&numbered("order", "7"), &["--new", "sess-abcdefgh"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    let first = collector.spans();
    let begun = [
        "send front",
        "send front > process front",
        "send front > process front",
        "send front > send back",
        "send front > send back > process back",
    ];
    assert_eq!(paths(&first), begun);
    assert_eq!(one(&first, "send front").parent, None);
    // The second process is started for the command and ends with it.
    let sent = house.send_text(&say("more"), &["--thread", "sess-abcdefgh"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let spans = collector.spans();
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    assert!(paths(&spans).contains(&"send front > send echo > process echo".to_owned()));
}

#[test]
fn a_call_that_was_open_at_a_crash_ends_with_its_original_span() {
    let collector = Collector::start(Mood::Takes);
    let house = house(&collector);
    let mut running = house.run();
    let sent = house.send_text(&numbered("hold", "1"), &["--no-wait", "--traceparent", GIVEN]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    drop(running);
    house.write("let-go", "");
    let running = house.run();
    collector.wait_for(1, |span| span.name == "send holder");
    assert_eq!(running.stop(), Some(0));
    let spans = collector.spans();
    let send = one(&spans, "send holder");
    assert_eq!(send.parent.as_deref(), Some("00f067aa0ba902b7"));
    let process = one(&spans, "process holder");
    assert_eq!(
        (process.parent.as_ref(), process.get("organism.attempt")),
        (Some(&send.id), Some("2.1"))
    );
    assert!(send.began <= process.began && process.ended <= send.ended + 1_000_000_000);
}

/// The pump's clock stays ahead of the system clock, which was ahead for a moment.
#[test]
fn the_span_of_a_delivery_has_its_length_although_the_clock_was_ahead() {
    let collector = Collector::start(Mood::Takes);
    let house = house(&collector);
    house.write("skew", "0");
    let mut command = house.command(&["run"]);
    command.env("ORGANISM_CLOCK_SKEW", house.path("skew"));
    let running = house.run_with(command);
    for micros in ["3600000000", "0"] {
        house.write("skew", micros);
        let sent = house.send_text(&say("hello"), &["--traceparent", GIVEN]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));

    let spans = collector.spans().into_iter().filter(|span| span.kind == CONSUMER);
    let seconds: Vec<_> = spans.map(|span| (span.ended - span.began) / 1_000_000_000).collect();
    assert!(seconds.len() >= 2, "{seconds:?}");
    assert!(seconds.iter().all(|seconds| *seconds < 1800), "{seconds:?}");
}

#[test]
fn failures_and_refusals_are_spans_with_the_reason_as_one_word() {
    let collector = Collector::start(Mood::Takes);
    let config = CONFIG
        .replace("command = [\"./player.pl\", \"solo\"]", "command = [\"false\"]\nattempts = 2")
        .replace("\"echo\"]\nschema", "\"echo\"]\ntimeout = \"30s\"\nschema")
        .replace("\"let-go\"]", "\"let-go\"]\ntimeout = \"300ms\"\nattempts = 1");
    let house = House::with(&with_collector(&config, &collector, ""));
    let running = house.run();
    let failed = house.send_text(&numbered("ping", "1"), &["--traceparent", GIVEN]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let late = house.send_text(&numbered("hold", "1"), &["--traceparent", GIVEN]);
    assert_eq!(late.code, Some(1), "{late:?}");
    let refused =
        house.send_text("<say xmlns=\"urn:example:talk\"><no/></say>", &["--traceparent", GIVEN]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    house.write("let-go", "");
    assert_eq!(running.stop(), Some(0));
    let spans = collector.spans();
    let errors = |name: &str| {
        let named = spans.iter().filter(|span| span.name == name);
        named.map(|span| span.get("error.type").unwrap_or("none")).collect::<Vec<_>>()
    };
    assert_eq!(errors("send solo"), ["listener-failed"], "{spans:#?}");
    assert_eq!(errors("send holder"), ["timeout"]);
    assert_eq!(errors("process holder"), ["timeout"]);
    assert_eq!(errors("send"), ["schema-invalid"]);
    let attempts = errors("process solo");
    let known = ["crashed", "unreachable"];
    assert!(attempts.len() == 2 && attempts.iter().all(|e| known.contains(e)), "{attempts:?}");
}

#[test]
fn an_unsampled_trace_is_not_exported() {
    let collector = Collector::start(Mood::Takes);
    let house = House::with(&with_collector(CONFIG, &collector, "sample = 0.0"));
    let running = house.run();
    let unkept = GIVEN.replace("-01", "-00");
    for arguments in [&["--traceparent", unkept.as_str()][..], &[]] {
        let sent = house.send_text(&say("hello"), arguments);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    // The sampling decision at the root of a trace holds for all of it.
    let sent = house.send_text(&say("hello"), &["--traceparent", GIVEN]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(
        paths(&collector.spans()),
        ["(given) > send echo", "(given) > send echo > process echo"]
    );
}
