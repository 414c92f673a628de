//! Listeners of all kits open subthreads, wait for them, and read their results.

use organism::envelope::NAMESPACE;
use organism::ids::ThreadId;
use organism::listener::{Listener, Reply, Request, ThreadStatus, TypedPayload};
use organism::system;
use serde::{Deserialize, Serialize};

use super::harness::call;
use super::kit::Served;
use super::kit_language::KitLanguage;
use super::memory::{Kit, KitProcess};

const TALK: &str = "urn:example:talk";

#[derive(Serialize, Deserialize)]
struct Order {
    n: u32,
}

impl TypedPayload for Order {
    const NAMESPACE: &'static str = TALK;
    const NAME: &'static str = "order";
}

#[derive(Serialize, Deserialize)]
struct Work {
    n: u32,
}

impl TypedPayload for Work {
    const NAMESPACE: &'static str = TALK;
    const NAME: &'static str = "work";
}

#[derive(Serialize, Deserialize)]
struct Done {
    n: usize,
}

impl TypedPayload for Done {
    const NAMESPACE: &'static str = TALK;
    const NAME: &'static str = "done";
}

/// Returns a listener that does the same as `tests/data/listeners/fanning.py`.
fn fanning() -> Listener {
    Listener::new().on(|order: Order, request: &Request| {
        if request.results().is_empty() {
            let spawned = (1..=order.n).try_fold(Reply::ack(), |reply, n| {
                reply.spawn(&format!("unit-{n}"), &Work { n })
            })?;
            return Ok(spawned.wait_for_all());
        }
        let results = request.thread_results();
        let done = results.iter().filter(|result| result.status == ThreadStatus::Completed);
        let labels: Vec<_> = done.clone().map(|result| result.thread.label()).collect();
        let numbers = done.clone().map(|result| result.payloads[0].split(['<', '>']).nth(4));
        let expected: Vec<_> = numbers.map(|number| format!("unit-{}", number.unwrap())).collect();
        assert_eq!(labels, expected);
        assert!(done.clone().all(|result| result.new));
        Reply::of(&Done { n: done.count() })
    })
}

fn thread_result(label: &str, status: &str, payload: &str) -> String {
    format!(
        "<c:thread-result xmlns:c=\"{}\" thread_id=\"sess-k3v9t2m8.{label}\" status=\"{status}\">\
         {payload}</c:thread-result>",
        system::NAMESPACE
    )
}

/// Returns the frame of a delivery with its request and the messages `results`. All messages are
/// new.
fn frame(results: &[String]) -> String {
    let message = |seq: usize, kind: &str, payload: &str| {
        format!(
            "<e:message id=\"00000000-0000-0000-0000-00000000000{seq}\" kind=\"{kind}\" \
             seq=\"{seq}\" new=\"true\"><e:meta><e:from>tester</e:from><e:to>tested</e:to>\
             <e:thread>sess-k3v9t2m8</e:thread><e:time>2026-11-20T10:00:00Z</e:time></e:meta>\
             {payload}</e:message>"
        )
    };
    let request = message(1, "call", &format!("<order xmlns=\"{TALK}\"><n>2</n></order>"));
    let results = results.iter().enumerate().map(|(at, text)| message(at + 2, "system", text));
    let results: String = results.collect();
    format!(
        "<e:delivery xmlns:e=\"{NAMESPACE}\" call=\"{}\" attempt=\"1.1\" listener=\"tested\" \
         thread=\"sess-k3v9t2m8\" timeout=\"PT1.5S\">{request}{results}</e:delivery>",
        call(1)
    )
}

/// The payloads in an answer frame.
fn payloads(frame: &str) -> &str {
    let (_, inner) = frame.split_once('>').unwrap();
    inner.strip_suffix("</e:answer>").unwrap()
}

fn fans_out(kit: &mut dyn Kit) {
    kit.say(&frame(&[]));
    let core = system::NAMESPACE;
    let spawn = |n: u32| {
        format!(
            "<c:spawn-thread xmlns:c=\"{core}\" suggested_sub_id=\"unit-{n}\"><c:initial-payload>\
             <work xmlns=\"{TALK}\"><n>{n}</n></work></c:initial-payload></c:spawn-thread>"
        )
    };
    let expected = format!("{}{}<c:wait xmlns:c=\"{core}\" for=\"all\"/>", spawn(1), spawn(2));
    assert_eq!(payloads(&kit.frame()), expected);

    let worked = |n: u32| format!("<worked xmlns=\"{TALK}\"><n>{n}</n></worked>");
    let spawned = |label: &str| {
        let word = format!("<thread-spawned xmlns=\"{core}\" parent_id=\"sess-k3v9t2m8\"");
        format!("{word} assigned_id=\"sess-k3v9t2m8.{label}\"/>")
    };
    let error = format!("<system-error xmlns=\"{core}\" code=\"timeout\" retry_allowed=\"true\"/>");
    kit.say(&frame(&[
        spawned("unit-1"),
        spawned("unit-2"),
        thread_result("unit-2", "completed", &worked(2)),
        thread_result("unit-1", "completed", &worked(1)),
        thread_result("unit-3", "failed", &error),
    ]));
    assert_eq!(payloads(&kit.frame()), format!("<done xmlns=\"{TALK}\"><n>2</n></done>"));
}

#[test]
fn all_kits_open_threads_and_read_their_results() {
    fans_out(&mut Served::start(fanning));
    for language in KitLanguage::ALL {
        fans_out(&mut KitProcess::start(language, "fanning"));
    }
}

#[test]
fn the_rust_kit_sends_to_a_thread_and_waits_for_any() {
    let thread = ThreadId::parse("sess-k3v9t2m8.unit-1").unwrap();
    let reply = Reply::ack().send_to_thread(&thread, &Work { n: 1 }).unwrap().wait_for_any();
    let core = system::NAMESPACE;
    let sent = format!(
        "<c:send-to-thread xmlns:c=\"{core}\" thread_id=\"{thread}\"><work xmlns=\"{TALK}\"><n>1</n>\
         </work></c:send-to-thread>"
    );
    let wait = format!("<c:wait xmlns:c=\"{core}\" for=\"any\"/>");
    assert_eq!(reply.payloads(), [sent, wait]);
}
