//! Tests that a listener receives only the new messages of a call if it remembers the earlier ones.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::{AttemptFailure, Message, MessageKind, NAMESPACE};
use organism::limits;
use organism::listener::{Listener, Reply, Request};
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, attempt, call, message, name, script};
use super::kit::Served;
use super::kit_language::KitLanguage;

/// Starts a listener that states in each answer which messages its delivery contained. `how`
/// selects what the listener claims to remember.
fn listener(how: &str, instances: u32) -> HostHarness {
    let command = ["python3", &script("memory.py"), how].map(str::to_owned).into();
    let mut options = Options::new(name("tested"), command);
    options.instances = instances;
    options.restarts.backoff_first = Duration::from_millis(1);
    HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

/// The first messages of a call: the request, then replies.
fn messages(count: u64) -> Vec<Arc<Message>> {
    let kind = |seq| if seq == 1 { MessageKind::Call } else { MessageKind::Reply };
    (1..=count).map(|seq| message(seq, kind(seq), &format!("text {seq}"))).collect()
}

/// The answer to one delivery, which states what the listener received.
#[derive(Debug, PartialEq)]
struct Shown {
    process: u32,
    bytes: usize,
    what: String,
}

async fn shown(ear: &mut HostHarness, number: u32) -> Shown {
    let payload = match ear.next().await {
        SinkEvent::Answer(n, payloads) if n == number => payloads.concat(),
        other => panic!("expected the answer to delivery {number}, got {other:?}"),
    };
    let text = payload.split(['<', '>']).nth(2).unwrap();
    let mut words = text.splitn(3, ' ');
    let mut next = || words.next().unwrap();
    Shown {
        process: next().parse().unwrap(),
        bytes: next().parse().unwrap(),
        what: next().to_owned(),
    }
}

/// Delivers the first call with `count` messages, of which `fresh` are new.
async fn deliver_all(ear: &mut HostHarness, count: u64, fresh: usize) -> Shown {
    let number = ear.deliver_again(1, messages(count), fresh);
    shown(ear, number).await
}

#[tokio::test]
async fn a_process_that_remembers_gets_only_new_messages() {
    let mut ear = listener("always", 1);
    assert_eq!(deliver_all(&mut ear, 1, 1).await.what, "all: 1");
    assert_eq!(deliver_all(&mut ear, 3, 2).await.what, "after 1 at 2,3: 2,3");
    assert_eq!(deliver_all(&mut ear, 4, 1).await.what, "after 3 at 4: 4");
}

#[tokio::test]
async fn a_process_that_does_not_say_that_it_remembers_gets_all_messages() {
    let mut ear = listener("never", 1);
    for (count, all) in [(1, "all: 1"), (2, "all: 1,2"), (3, "all: 1,2,3")] {
        assert_eq!(deliver_all(&mut ear, count, 1).await.what, all);
    }
}

#[tokio::test]
async fn the_bytes_of_a_call_grow_with_its_messages_and_not_with_their_square() {
    let mut ear = listener("always", 1);
    let mut totals = Vec::new();
    let mut total = 0;
    for count in 1..=200 {
        total += deliver_all(&mut ear, count, 1).await.bytes;
        if count % 100 == 0 {
            totals.push(total);
        }
    }
    assert!(totals[1] < totals[0] * 21 / 10, "{totals:?} bytes after 100 and 200 messages");
}

#[tokio::test]
async fn an_instance_that_was_replaced_gets_every_message() {
    let mut ear = listener("always", 1);
    let first = deliver_all(&mut ear, 1, 1).await;

    // A delivery of another call ends the process.
    ear.tell("crash");
    let failed = ear.next().await;
    assert!(matches!(&failed, SinkEvent::Failed(_, AttemptFailure::Crashed { .. })), "{failed:?}");
    let second = deliver_all(&mut ear, 2, 1).await;
    assert_ne!(first.process, second.process);
    assert_eq!(second.what, "all: 1,2");
    assert_eq!(deliver_all(&mut ear, 3, 1).await.what, "after 2 at 3: 3");
}

async fn is_too_large(ear: &mut HostHarness, number: u32) {
    match ear.next().await {
        SinkEvent::Failed(n, AttemptFailure::TooLarge { detail }) if n == number => {
            assert!(detail.contains("a frame has at most 16777216"), "{detail}");
        }
        other => panic!("expected that delivery {number} is too large, got {other:?}"),
    }
}

#[tokio::test]
async fn a_delivery_larger_than_a_frame_fails_and_its_process_continues() {
    let mut ear = listener("forgetful", 1);
    let long = "x".repeat(limits::FRAME_BYTES_MAX * 5 / 9);
    let request = message(1, MessageKind::Call, &long);
    let number = ear.deliver_again(1, vec![Arc::clone(&request)], 1);
    let process = shown(&mut ear, number).await.process;

    // The new message fits into a frame. The process then requests the whole call, which does not.
    let call = vec![request, message(2, MessageKind::Reply, &long)];
    let number = ear.deliver_again(1, call.clone(), 1);
    is_too_large(&mut ear, number).await;

    // A retry has all messages.
    let number = ear.deliver_again(1, call, 2);
    is_too_large(&mut ear, number).await;
    assert_eq!(deliver_all(&mut ear, 1, 1).await.process, process);
}

#[tokio::test]
async fn a_retry_gets_every_message() {
    let mut ear = listener("always", 2);
    deliver_all(&mut ear, 1, 1).await;

    let mut crashing = messages(1);
    crashing.push(message(2, MessageKind::Reply, "crash"));
    ear.deliver_again(1, crashing, 1);
    let failed = ear.next().await;
    assert!(matches!(&failed, SinkEvent::Failed(_, AttemptFailure::Crashed { .. })), "{failed:?}");
    assert_eq!(deliver_all(&mut ear, 2, 1).await.what, "all: 1,2");

    // The delivery was answered, but the pump delivers the same messages as new again.
    assert_eq!(deliver_all(&mut ear, 2, 1).await.what, "all: 1,2");
}

/// Delivers a call again, with an additional message that blocks the process. Returns the number of
/// the attempt.
async fn hold(ear: &mut HostHarness, of: u32, mut messages: Vec<Arc<Message>>) -> u32 {
    messages.push(message(9, MessageKind::Reply, "hold"));
    let number = ear.deliver_again(of, messages, 1);
    ear.expect(SinkEvent::Beat(number)).await;
    number
}

async fn release(ear: &mut HostHarness, of: u32, number: u32) -> Shown {
    ear.host.cancel(call(of), attempt(number));
    shown(ear, number).await
}

#[tokio::test]
async fn of_two_instances_the_one_that_remembers_gets_the_call_and_the_other_all_of_it() {
    let mut ear = listener("always", 2);
    let (first, second) = (hold(&mut ear, 1, vec![]).await, hold(&mut ear, 2, vec![]).await);
    let first = release(&mut ear, 1, first).await;
    let second = release(&mut ear, 2, second).await;
    assert_ne!(first.process, second.process);

    // Both instances are idle, and the second was used last.
    let again = deliver_all(&mut ear, 2, 1).await;
    assert_eq!(again.process, first.process);
    assert!(again.what.starts_with("all: "), "the first message is another one: {again:?}");
    let again = deliver_all(&mut ear, 3, 1).await;
    assert_eq!((again.process, &*again.what), (first.process, "after 2 at 3: 3"));

    // The instance that remembers the first call handles another call.
    let third = ear.tell("anything");
    let third_shown = shown(&mut ear, third).await;
    assert_eq!(third_shown.process, first.process, "it was used last");
    let held = hold(&mut ear, third, messages(1)).await;
    let elsewhere = deliver_all(&mut ear, 4, 1).await;
    assert_eq!((elsewhere.process, &*elsewhere.what), (second.process, "all: 1,2,3,4"));
    assert_eq!(release(&mut ear, third, held).await.process, first.process);

    // The instance still remembers the call, but not its last position.
    assert_eq!(deliver_all(&mut ear, 5, 1).await.process, second.process);
}

#[tokio::test]
async fn a_process_that_lacks_a_call_gets_all_of_it_in_the_same_attempt() {
    let mut ear = listener("forgetful", 1);
    for (count, all) in [(1, "all: 1"), (2, "all: 1,2"), (3, "all: 1,2,3")] {
        assert_eq!(deliver_all(&mut ear, count, 1).await.what, all);
    }
    ear.host.drain().await;
    assert!(ear.is_quiet(), "each delivery ended once");
}

#[tokio::test]
async fn a_process_that_reports_missing_memory_for_a_complete_delivery_has_answered_garbage_and_continues()
 {
    let mut ear = listener("greedy", 1);
    for _ in 0..2 {
        let number = ear.tell("anything");
        let detail = "asks for messages of a delivery that had them all".to_owned();
        ear.expect(SinkEvent::Failed(number, AttemptFailure::Garbage { detail })).await;
    }
}

/// A running listener of a kit, as a test uses it: through the listener's input and output.
pub trait Kit {
    fn say(&mut self, frame: &str);
    fn frame(&mut self) -> String;
}

impl Kit for Served {
    fn say(&mut self, frame: &str) {
        Served::say(self, frame);
    }

    fn frame(&mut self) -> String {
        Served::frame(self)
    }
}

/// A listener of a kit in a separate process.
pub struct KitProcess(pub Child);

impl KitProcess {
    pub fn start(language: KitLanguage, program: &str) -> Self {
        Self::spawn(language.listener(program))
    }

    fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }
}

/// Runs a check with the Rust kit, and with each kit whose listeners are separate programs.
fn with_each_kit(check: fn(&mut dyn Kit)) {
    check(&mut Served::start(counting));
    for language in KitLanguage::ALL {
        check(&mut KitProcess::start(language, "obedient"));
    }
}

impl Drop for KitProcess {
    fn drop(&mut self) {
        // The kit ends when its input is closed.
        drop(self.0.stdin.take());
        self.0.wait().ok();
    }
}

impl Kit for KitProcess {
    fn say(&mut self, frame: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        input.write_all(frame.as_bytes()).unwrap();
        input.write_all(b"\0").unwrap();
    }

    fn frame(&mut self) -> String {
        let output = self.0.stdout.as_mut().unwrap();
        let mut frame = Vec::new();
        let mut byte = [0];
        loop {
            output.read_exact(&mut byte).unwrap();
            match byte {
                [0] => return String::from_utf8(frame).unwrap(),
                [other] => frame.push(other),
            }
        }
    }
}

/// Returns the frame of a delivery of `call`. The frame contains the messages of the call after
/// position `after`, up to position `count`.
fn frame(call: u32, after: Option<u64>, count: u64) -> String {
    let base = after.map(|after| format!(" after=\"{after}\"")).unwrap_or_default();
    let begin = after.map_or(1, |after| after + 1);
    let messages: String = (begin..=count)
        .map(|seq| {
            let position = after.map(|_| format!(" position=\"{seq}\"")).unwrap_or_default();
            format!(
                "<e:message id=\"00000000-0000-0000-0000-000000000001\" kind=\"call\" \
                 seq=\"{seq}\" new=\"true\"{position}><e:meta><e:from>tester</e:from>\
                 <e:to>tested</e:to><e:thread>sess-k3v9t2m8</e:thread>\
                 <e:time>2026-11-20T10:00:00Z</e:time></e:meta>\
                 <do xmlns=\"urn:test\">count</do></e:message>"
            )
        })
        .collect();
    format!(
        "<e:delivery xmlns:e=\"{NAMESPACE}\" call=\"{}\" attempt=\"1.1\" listener=\"tested\" \
         thread=\"sess-k3v9t2m8\" timeout=\"PT1.5S\"{base}>{messages}</e:delivery>",
        call_id(call)
    )
}

fn call_id(number: u32) -> String {
    super::harness::call(number).to_string()
}

fn remembered(call: u32, text: &str) -> String {
    let opening = super::kit::answer_to(&call_id(call), "1.1").replace('>', " remembers=\"true\">");
    format!("{opening}<done xmlns=\"urn:test\">{text}</done></e:answer>")
}

fn missing(call: u32) -> String {
    let call = call_id(call);
    format!("<e:missing-memory xmlns:e=\"{NAMESPACE}\" call=\"{call}\" attempt=\"1.1\"/>")
}

/// A listener that answers with the number of all messages and the number of new ones.
fn counting() -> Listener {
    Listener::new().otherwise(|request: &Request| {
        let new = request.messages.iter().filter(|message| message.new).count();
        let text = format!("{} {new}", request.messages.len());
        Ok::<_, String>(Reply::raw(format!("<done xmlns=\"urn:test\">{text}</done>")))
    })
}

/// Sends `frame` to the listener, and asserts that the listener responds with the frame `answer`.
fn answers(kit: &mut dyn Kit, frame: &str, answer: &str) {
    kit.say(frame);
    assert_eq!(kit.frame(), answer, "{frame}");
}

fn puts_the_remembered_messages_before_the_new_ones(kit: &mut dyn Kit) {
    answers(kit, &frame(1, None, 2), &remembered(1, "2 2"));
    answers(kit, &frame(2, None, 1), &remembered(2, "1 1"));
    answers(kit, &frame(1, Some(2), 3), &remembered(1, "3 1"));
    answers(kit, &frame(1, Some(3), 5), &remembered(1, "5 2"));

    // The delivery is complete again, as after a retry.
    answers(kit, &frame(1, None, 3), &remembered(1, "3 3"));
    answers(kit, &frame(1, Some(3), 4), &remembered(1, "4 1"));
}

fn asks_for_what_it_lacks(kit: &mut dyn Kit) {
    answers(kit, &frame(1, Some(1), 2), &missing(1));
    answers(kit, &frame(1, None, 2), &remembered(1, "2 2"));

    // The kit remembers another position.
    answers(kit, &frame(1, Some(3), 4), &missing(1));
    answers(kit, &frame(1, None, 4), &remembered(1, "4 4"));
}

fn forgets_the_call_that_was_put_in_first_beyond_its_bound(kit: &mut dyn Kit) {
    let most = u32::try_from(limits::REMEMBERED_CALLS_MAX).unwrap();
    for call in 1..=most + 1 {
        answers(kit, &frame(call, None, 1), &remembered(call, "1 1"));
    }
    answers(kit, &frame(1, Some(1), 2), &missing(1));
    answers(kit, &frame(1, None, 2), &remembered(1, "2 2"));
    answers(kit, &frame(most, Some(1), 2), &remembered(most, "2 1"));
}

#[test]
fn all_kits_put_the_remembered_messages_before_the_new_ones() {
    with_each_kit(puts_the_remembered_messages_before_the_new_ones);
}

#[test]
fn all_kits_request_missing_messages() {
    with_each_kit(asks_for_what_it_lacks);
}

#[test]
fn all_kits_bound_what_they_remember() {
    with_each_kit(forgets_the_call_that_was_put_in_first_beyond_its_bound);
}

/// Resident memory of a process in bytes.
#[cfg(target_os = "linux")]
fn resident(process: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kib << 10
}

#[cfg(target_os = "linux")]
#[test]
fn the_kits_of_programs_keep_the_bytes_of_messages_and_not_their_elements() {
    for language in KitLanguage::ALL {
        keeps_bytes_and_not_elements(language);
    }
}

/// Number of calls that a kit remembers in the test of its memory. The elements of one call take
/// about 16 MiB in Python and 5 MiB in Node. The elements of all calls exceed the bound of each kit.
#[cfg(target_os = "linux")]
const BULKY_CALLS: u32 = 8;

#[cfg(target_os = "linux")]
fn keeps_bytes_and_not_elements(language: KitLanguage) {
    let mut command = language.listener("obedient");
    // Node collects garbage when it wants to. With this bound it must, and the kept elements of all
    // calls would not fit.
    command.env("NODE_OPTIONS", "--max-old-space-size=32");
    let mut kit = KitProcess::spawn(command);
    let (elements, most) = match language {
        KitLanguage::Python => (50_000, 100),
        KitLanguage::TypeScript => (12_500, 250),
    };
    let bulk = format!("count{}</do>", "<i k=\"1\"/>".repeat(elements));
    let with_bulk = |frame: String| frame.replace("count</do>", &bulk);
    for call in 1..=BULKY_CALLS {
        answers(&mut kit, &with_bulk(frame(call, None, 1)), &remembered(call, "1 1"));
    }
    let resident = resident(&kit.0);
    assert!(resident < most << 20, "{language:?}: {} MiB", resident >> 20);

    // A kit forgets the call first that was put in first.
    for call in [1, BULKY_CALLS] {
        answers(&mut kit, &frame(call, Some(1), 2), &remembered(call, "2 1"));
    }
}
