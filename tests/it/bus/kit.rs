//! The Rust kit and the shell listener, driven as a host would drive them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::MessageKind;
use organism::ids::PayloadName;
use organism::listener::{IntoReply as _, Listener, Reply, Request, TypedPayload};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::harness::{HostHarness, name, repository};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Add {
    #[serde(rename = "@note", default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    n: Vec<i64>,
}

impl TypedPayload for Add {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "add";
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Sum {
    #[serde(rename = "$text")]
    total: i64,
}

impl TypedPayload for Sum {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "sum";
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Plain {
    text: String,
}

impl TypedPayload for Plain {
    const NAMESPACE: &'static str = "urn:a&b";
    const NAME: &'static str = "plain";
    const QUALIFIED: bool = false;
}

/// A payload with `type` attributes. XML Schema has an attribute of the same name.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kinded {
    #[serde(rename = "@type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(rename = "item")]
    item: KindedItem,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KindedItem {
    #[serde(rename = "@type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(rename = "$text")]
    text: String,
}

impl TypedPayload for Kinded {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "kinded";
}

/// A payload whose schema admits elements and attributes of other namespaces.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Pay {
    #[serde(rename = "@to", default, skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memo: Option<String>,
}

impl TypedPayload for Pay {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "pay";
    const IMPORTED_NAMESPACES: &'static [&'static str] = &["urn:memo"];
}

/// A payload that consists of text.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Words {
    #[serde(rename = "@lang", default, skip_serializing_if = "Option::is_none")]
    lang: Option<String>,
    #[serde(rename = "$text")]
    text: String,
}

impl TypedPayload for Words {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "words";
}

/// A payload whose text is optional.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct MaybeWords {
    #[serde(rename = "$text", default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl TypedPayload for MaybeWords {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "maybe";
}

/// A payload whose schema admits elements of any namespace.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memo: Option<String>,
}

impl TypedPayload for Open {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "open";
    const IMPORTED_NAMESPACES: &'static [&'static str] = &["*"];
}

/// A payload that cannot be written, because a key of its map is no XML name.
#[derive(Debug, Serialize, Deserialize)]
struct Keyed {
    map: std::collections::BTreeMap<String, i64>,
}

impl Default for Keyed {
    fn default() -> Self {
        Self { map: [("no name".to_owned(), 1)].into() }
    }
}

impl TypedPayload for Keyed {
    const NAMESPACE: &'static str = "urn:calc";
    const NAME: &'static str = "keyed";
}

/// A listener that runs on a thread, with the ends of its pipes that a host would hold.
pub struct Served {
    input: UnixStream,
    output: UnixStream,
    thread: JoinHandle<Result<(), String>>,
}

impl Served {
    pub fn start(make: impl FnOnce() -> Listener + Send + 'static) -> Self {
        let (input, theirs_in) = UnixStream::pair().unwrap();
        let (output, theirs_out) = UnixStream::pair().unwrap();
        let thread =
            std::thread::spawn(move || make().serve_on(theirs_in.into(), theirs_out.into()));
        Self { input, output, thread }
    }

    pub fn say(&mut self, frame: &str) {
        self.input.write_all(frame.as_bytes()).unwrap();
        self.input.write_all(b"\0").unwrap();
    }

    pub fn frame(&mut self) -> String {
        let mut frame = Vec::new();
        let mut byte = [0];
        loop {
            self.output.read_exact(&mut byte).unwrap();
            match byte {
                [0] => return String::from_utf8(frame).unwrap(),
                [other] => frame.push(other),
            }
        }
    }

    /// Reads the listener's answer to the delivery of this harness. Returns the payloads.
    fn hear(&mut self) -> String {
        let frame = self.frame();
        let opening = answer_to(CALL, "2.1").replace('>', " remembers=\"true\">");
        let payloads = frame.strip_prefix(&opening);
        let payloads = payloads.and_then(|rest| rest.strip_suffix("</e:answer>"));
        payloads.unwrap_or_else(|| panic!("{frame}")).to_owned()
    }

    pub fn end(self) -> Result<(), String> {
        drop(self.input);
        self.thread.join().unwrap()
    }
}

const CALL: &str = "00000000-0000-0000-0000-000000000001";

/// The opening tag of an answer, as the kits write it.
pub fn answer_to(call: &str, attempt: &str) -> String {
    let namespace = organism::envelope::NAMESPACE;
    format!("<e:answer xmlns:e=\"{namespace}\" call=\"{call}\" attempt=\"{attempt}\">")
}

pub fn delivery(payloads: &[&str]) -> String {
    let messages: String = payloads
        .iter()
        .enumerate()
        .map(|(index, payload)| {
            format!(
                "<e:message id=\"{CALL}\" kind=\"call\" seq=\"{}\" new=\"true\"><e:meta>\
                 <e:from>tester</e:from><e:to>calc</e:to><e:thread>sess-k3v9t2m8</e:thread>\
                 <e:time>2026-11-20T10:00:00Z</e:time></e:meta>{payload}</e:message>",
                index + 1
            )
        })
        .collect();
    format!(
        "<e:delivery xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"{CALL}\" \
         attempt=\"2.1\" listener=\"calc\" thread=\"sess-k3v9t2m8\" timeout=\"PT1.5S\">\
         {messages}</e:delivery>"
    )
}

fn calculator() -> Listener {
    Listener::new()
        .on(|add: Add, _: &Request| {
            let total = add.n.iter().try_fold(0_i64, |sum, n| sum.checked_add(*n));
            total.map(|total| Sum { total }).ok_or("too much to add")
        })
        .on(|plain: Plain, _: &Request| Ok::<_, String>(plain))
        .otherwise(|request: &Request| {
            let names: Vec<_> = request.messages.iter().map(|m| m.name.to_string()).collect();
            Ok::<_, String>(Reply::raw(format!(
                "<saw>{} {} {:?}</saw>",
                names.join(" "),
                request.attempt,
                request.timeout
            )))
        })
}

#[test]
fn a_typed_handler_answers_a_typed_payload() {
    let mut served = Served::start(calculator);
    served
        .say(&delivery(&["<c:add xmlns:c=\"urn:calc\" note='x'><c:n>2</c:n><c:n>3</c:n></c:add>"]));
    assert_eq!(served.hear(), "<sum xmlns=\"urn:calc\">5</sum>");
    served.say(&delivery(&["<add xmlns=\"urn:calc\"><n>20</n></add>"]));
    assert_eq!(served.hear(), "<sum xmlns=\"urn:calc\">20</sum>");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn payloads_reach_a_handler_by_name_and_byte_for_byte() {
    let mut served = Served::start(calculator);
    let odd =
        "<p:plain xmlns:p=\"urn:a&amp;b\"><text>1 &lt; 2 &amp; <![CDATA[<3]]></text></p:plain>";
    served.say(&delivery(&[odd]));
    assert_eq!(
        served.hear(),
        "<p:plain xmlns:p=\"urn:a&amp;b\"><text>1 &lt; 2 &amp; &lt;3</text></p:plain>"
    );
    served.say(&delivery(&["<q/>", "<r xmlns=\"urn:x\"> <r/> </r>"]));
    assert_eq!(served.hear(), "<saw>q {urn:x}r 2.1 1.5s</saw>");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn an_error_of_a_handler_ends_the_listener_with_its_reason() {
    let mut served = Served::start(calculator);
    served.say(&delivery(&[&format!("<add xmlns=\"urn:calc\"><n>{}</n><n>1</n></add>", i64::MAX)]));
    assert_eq!(served.end(), Err("{urn:calc}add: too much to add".to_owned()));
}

/// A payload that does not fit its type is answered with the reason, as a text outside of any
/// payload. Such an answer is not retried, because a retry would fail in the same way.
#[test]
fn a_payload_without_the_fields_of_its_type_is_answered_with_the_reason() {
    let mut served = Served::start(calculator);
    served.say(&delivery(&["<add xmlns=\"urn:calc\"><n>two</n></add>"]));
    let frame = served.frame();
    let text = frame.strip_prefix(&answer_to(CALL, "2.1")).unwrap();
    let reason = "the payload cannot be read: {urn:calc}add does not have the fields of its type: ";
    assert!(text.starts_with(reason), "{text}");
    served.say(&delivery(&["<add xmlns=\"urn:calc\"><n>2</n></add>"]));
    assert_eq!(served.hear(), "<sum xmlns=\"urn:calc\">2</sum>");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn the_attributes_of_xml_schema_are_not_those_of_a_payload() {
    let mut served =
        Served::start(|| Listener::new().on(|kinded: Kinded, _: &Request| Ok::<_, String>(kinded)));
    for instance in [
        "http://www.w3.org/2001/XMLSchema-instance",
        "http://www.w3.org/2001/XMLSchema&#45;instance",
    ] {
        let payload = |own: &str| {
            format!(
                "<kinded xmlns=\"urn:calc\" xmlns:x=\"{instance}\" x:type=\"t\"{own} \
                 x:schemaLocation=\"urn:calc calc.xsd\"><item x:type=\"u\">1 &lt; 2</item></kinded>"
            )
        };
        served.say(&delivery(&[&payload("")]));
        let item = "<item>1 &lt; 2</item></kinded>";
        assert_eq!(served.hear(), format!("<kinded xmlns=\"urn:calc\">{item}"));
        served.say(&delivery(&[&payload(" type=\"own\"")]));
        assert_eq!(served.hear(), format!("<kinded xmlns=\"urn:calc\" type=\"own\">{item}"));
    }
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn elements_and_attributes_of_other_namespaces_are_no_fields() {
    let mut served =
        Served::start(|| Listener::new().on(|pay: Pay, _: &Request| Ok::<_, String>(pay)));
    let to_bob = " to=\"bob\"><amount>5</amount>";
    let foreign = "<z:amount>1000000</z:amount><b><z:amount>1</z:amount></b>";
    let cases = [
        (format!(" z:to=\"mallory\"><memo>m</memo>{foreign}"), "><memo>m</memo>"),
        (format!(" to=\"bob\" z:to=\"mallory\"><amount>5</amount>{foreign}"), to_bob),
        ("><m:memo xmlns:m=\"urn:memo\">m</m:memo>".to_owned(), "><memo>m</memo>"),
        ("><amount xmlns=\"\">7</amount>".to_owned(), "><amount>7</amount>"),
    ];
    for (content, own) in cases {
        let payload = format!("<pay xmlns=\"urn:calc\" xmlns:z=\"urn:z\"{content}</pay>");
        served.say(&delivery(&[&payload]));
        assert_eq!(served.hear(), format!("<pay xmlns=\"urn:calc\"{own}</pay>"), "{payload}");
    }
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn a_type_may_have_fields_of_all_namespaces() {
    let mut served =
        Served::start(|| Listener::new().on(|open: Open, _: &Request| Ok::<_, String>(open)));
    let payload = "<open xmlns=\"urn:calc\"><m:memo xmlns:m=\"urn:m\">m</m:memo></open>";
    served.say(&delivery(&[payload]));
    assert_eq!(served.hear(), "<open xmlns=\"urn:calc\"><memo>m</memo></open>");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn an_optional_text_of_a_payload_is_absent_if_it_is_empty() {
    let mut served = Served::start(|| {
        Listener::new().on(|words: MaybeWords, _: &Request| {
            Ok::<_, String>(Reply::raw(format!("<read>{:?}</read>", words.text)))
        })
    });
    for (rest, read) in [("/>", "None"), ("></maybe>", "None"), ("> </maybe>", "Some(\" \")")] {
        served.say(&delivery(&[&format!("<maybe xmlns=\"urn:calc\"{rest}")]));
        assert_eq!(served.hear(), format!("<read>{read}</read>"), "{rest}");
    }
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn the_text_of_a_payload_may_be_empty_or_blank() {
    let mut served = Served::start(|| {
        Listener::new().on(|words: Words, _: &Request| {
            let lang = words.lang.as_deref().unwrap_or("none");
            Ok::<_, String>(Reply::raw(format!("<read>{lang} [{}]</read>", words.text)))
        })
    });
    let cases = [
        ("/>", "none []"),
        ("></words>", "none []"),
        (" lang=\"a&amp;b\">  </words>", "a&b [  ]"),
        ("><![CDATA[ ]]><!-- no text --> </words>", "none [  ]"),
        (" xml:lang=\"en\">two words</words>", "none [two words]"),
    ];
    for (rest, read) in cases {
        served.say(&delivery(&[&format!("<words xmlns=\"urn:calc\"{rest}")]));
        assert_eq!(served.hear(), format!("<read>{read}</read>"), "{rest}");
    }
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn a_guard_that_keeps_a_call_alive_sends_its_first_heartbeat_at_once() {
    let mut served = Served::start(|| {
        Listener::new().otherwise(|request: &Request| {
            let _alive = request.keep_alive();
            Ok::<_, String>(())
        })
    });
    served.say(&delivery(&["<q/>"]));
    assert_eq!(served.frame(), "<heartbeat/>");
    assert_eq!(served.hear(), "");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn a_guard_with_a_limit_sends_no_heartbeat_after_it() {
    let mut served = Served::start(|| {
        Listener::new().otherwise(|request: &Request| {
            let _alive = request.keep_alive_for(std::time::Duration::ZERO);
            Ok::<_, String>(())
        })
    });
    served.say(&delivery(&["<q/>"]));
    assert_eq!(served.hear(), "");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn the_reason_why_an_answer_cannot_be_sent_is_its_answer() {
    let huge = organism::limits::FRAME_BYTES_MAX;
    let mut served = Served::start(move || {
        Listener::new()
            .otherwise(move |request: &Request| {
                Ok::<_, String>(match request.payload() {
                    "<nul/>" => Reply::raw("<q>a\0b</q>"),
                    "<huge/>" => Reply::raw("x".repeat(huge)),
                    _ => Reply::ack(),
                })
            })
            .on(|_: Sum, _: &Request| Ok::<_, String>(Keyed::default()))
    });
    let unwritable = "{urn:calc}keyed cannot be written as XML";
    let cases = [
        ("<nul/>", "XML cannot contain the character U+0000"),
        ("<huge/>", "it has 16777362 bytes, and a frame has at most 16777216"),
        ("<sum xmlns=\"urn:calc\">1</sum>", unwritable),
    ];
    for (payload, reason) in cases {
        served.say(&delivery(&[payload]));
        let frame = served.frame();
        let text = frame.strip_prefix(&answer_to(CALL, "2.1")).unwrap();
        let start = format!("the answer cannot be sent: {reason}");
        assert!(text.starts_with(&start), "{text}");
        assert!(text.ends_with("</e:answer>"), "{text}");
    }

    served.say(&delivery(&["<q/>"]));
    assert_eq!(served.hear(), "");
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn a_cancel_reaches_a_running_handler_and_is_skipped_after_its_end() {
    let mut served = Served::start(|| {
        Listener::new().otherwise(|request: &Request| {
            request.heartbeat().map_err(|e| e.to_string())?;
            while !request.is_cancelled() {
                std::thread::yield_now();
            }
            Ok::<_, String>(())
        })
    });
    let cancel = format!("<cancel call=\"{CALL}\"/>");
    for _ in 0..2 {
        served.say(&delivery(&["<q/>"]));
        assert_eq!(served.frame(), "<heartbeat/>");
        served.say("<cancel call=\"another\"/>");
        served.say(&cancel);
        assert_eq!(served.hear(), "");
        served.say(&cancel);
    }
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn an_error_of_a_handler_after_a_cancel_is_answered_with_nothing() {
    let mut served = Served::start(|| {
        Listener::new().otherwise(|request: &Request| {
            request.heartbeat().map_err(|e| e.to_string())?;
            while !request.is_cancelled() {
                std::thread::yield_now();
            }
            Err::<(), _>("aborted".to_owned())
        })
    });
    served.say(&delivery(&["<q/>"]));
    assert_eq!(served.frame(), "<heartbeat/>");
    served.say(&format!("<cancel call=\"{CALL}\"/>"));
    assert_eq!(served.frame(), answer_to(CALL, "2.1") + "</e:answer>");

    // The end of the input is no cancel.
    served.say(&delivery(&["<q/>"]));
    assert_eq!(served.frame(), "<heartbeat/>");
    assert_eq!(served.end(), Err("q: aborted".to_owned()));
}

#[test]
fn an_input_that_ends_within_a_frame_is_an_error() {
    let mut served = Served::start(calculator);
    served.input.write_all(b"<add/>\n").unwrap();
    let reason = "cannot read a frame: the input ended within a frame: try a listener with \
                  `organism listener test`";
    assert_eq!(served.end(), Err(reason.to_owned()));

    let mut served = Served::start(calculator);
    served.input.write_all(b"\n").unwrap();
    assert_eq!(served.end(), Ok(()));
}

#[test]
fn a_payload_without_a_handler_is_an_error_with_the_names_that_have_one() {
    let mut served = Served::start(|| {
        let listener = Listener::new().on(|sum: Sum, _: &Request| Ok::<_, String>(sum));
        listener.on(|add: Add, _: &Request| Ok::<_, String>(add))
    });
    served.say(&delivery(&["<q/>"]));
    let reason = "no handler for q, only for {urn:calc}add, {urn:calc}sum";
    assert_eq!(served.end(), Err(reason.to_owned()));

    let reason = "there are no handlers: register them with `on` before `serve`";
    assert_eq!(Served::start(Listener::new).end(), Err(reason.to_owned()));
}

#[test]
fn several_payloads_of_one_type_are_one_answer() {
    let reply = vec![Sum { total: 1 }, Sum { total: 2 }].into_reply().unwrap();
    assert_eq!(
        reply.payloads(),
        ["<sum xmlns=\"urn:calc\">1</sum>", "<sum xmlns=\"urn:calc\">2</sum>"]
    );
    assert_eq!(Sum::payload_name(), PayloadName::new("urn:calc", "sum"));
    assert_eq!(().into_reply().unwrap().payloads(), [""; 0]);
}

#[tokio::test]
async fn the_shell_listener_echoes() {
    let program = repository().join("listeners/shell-echo/shell-echo");
    let options = Options::new(name("tested"), vec![program.to_str().unwrap().to_owned()]);
    let mut ear = HostHarness::hosting(|sink| {
        std::sync::Arc::new(ProcessHost::start(options, sink, &Handle::current()))
    });
    let text = "R&amp;D %s \\0 * `id`";
    let echo = format!(
        "<echo xmlns=\"https://xml-pipeline.org/ns/shell-echo/v1\"><text>{text}</text></echo>"
    );
    let cases = [
        (format!("<text>{text}</text>"), vec![echo.clone()]),
        (format!("<text xmlns=\"urn:x\" >{text}</text >"), vec![echo]),
        // A form that only a parser understands.
        (format!("<e:text xmlns:e=\"urn:x\">{text}</e:text>"), vec![]),
    ];
    for (content, answer) in cases {
        let request = super::harness::message(1, MessageKind::Call, &content);
        let number = ear.deliver(vec![request], 1);
        ear.expect(super::harness::SinkEvent::Answer(number, answer)).await;
    }
}
