//! The envelope as text.

use std::time::Duration;

use expect_test::expect;
use organism::clock::Time;
use organism::envelope::text::{
    DeliveryHead, SCHEMA, close_delivery, open_delivery, write_delivered, write_message,
};
use organism::envelope::{Message, MessageKind, NAMESPACE, Payload};
use organism::ids::{Attempt, CallId, Digest, ListenerName, MessageId, PayloadName, ThreadId};
use organism::schema::Schemas;
use organism::xml::scan::{nested, scan};
use uuid::Uuid;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn message(payload: &str) -> Message {
    let id = |n: u128| MessageId(Uuid::from_u128(n));
    Message {
        id: id(1),
        kind: MessageKind::Own,
        from: ListenerName::parse("researcher").unwrap(),
        to: ListenerName::parse("search").unwrap(),
        thread: ThreadId::parse("sess-k3v9t2m8.a_B-1").unwrap(),
        seq: 12,
        cause: Some(id(2)),
        call: Some(CallId(id(3))),
        time: Time::parse("2026-11-20T10:00:00.5Z").unwrap(),
        name: PayloadName::new("u", "a"),
        payload: Payload::new(payload),
    }
}

fn delivery(timeout: Duration) -> String {
    delivery_after(None, timeout)
}

fn delivery_after(after: Option<usize>, timeout: Duration) -> String {
    delivery_with_preview(after, timeout, (false, None))
}

fn delivery_with_preview(
    after: Option<usize>,
    timeout: Duration,
    (asks_preview, approved_preview): (bool, Option<Digest>),
) -> String {
    let (request, fresh) = (message("<a/>"), message("<b xmlns='u'>2</b>"));
    let head = DeliveryHead {
        listener: &request.to,
        call: request.call.unwrap(),
        thread: &request.thread,
        attempt: Attempt { epoch: 1, n: 2 },
        timeout,
        trace: (timeout.subsec_nanos() > 0).then(|| TRACEPARENT.parse().unwrap()),
        after,
        asks_preview,
        approved_preview,
    };
    let mut out = String::new();
    open_delivery(&mut out, &head);
    if after.is_none() {
        write_delivered(&mut out, &request, false, None);
    }
    write_delivered(&mut out, &fresh, true, after.map(|after| after + 1));
    close_delivery(&mut out, &head);
    out
}

#[test]
fn a_message_is_written_as_the_protocol_has_it() {
    let mut out = String::new();
    write_message(&mut out, &message("<a xmlns='u'/>"));
    expect![[r#"<e:message xmlns:e="https://xml-pipeline.org/ns/envelope/v1" id="00000000-0000-0000-0000-000000000001" kind="self" seq="12"><e:meta><e:from>researcher</e:from><e:to>search</e:to><e:thread>sess-k3v9t2m8.a_B-1</e:thread><e:cause>00000000-0000-0000-0000-000000000002</e:cause><e:call>00000000-0000-0000-0000-000000000003</e:call><e:time>2026-11-20T10:00:00.500000Z</e:time></e:meta><a xmlns='u'/></e:message>"#]].assert_eq(&out);
    let mut first = message("<a xmlns='u'/>");
    (first.cause, first.call) = (None, None);
    out.clear();
    write_message(&mut out, &first);
    assert!(!out.contains("cause") && !out.contains("e:call"), "{out}");
}

#[test]
fn a_delivery_is_written_as_the_protocol_has_it() {
    expect![[r#"<e:delivery xmlns:e="https://xml-pipeline.org/ns/envelope/v1" call="00000000-0000-0000-0000-000000000003" attempt="1.2" thread="sess-k3v9t2m8.a_B-1" listener="search" timeout="PT60S"><e:message id="00000000-0000-0000-0000-000000000001" kind="self" seq="12"><e:meta><e:from>researcher</e:from><e:to>search</e:to><e:thread>sess-k3v9t2m8.a_B-1</e:thread><e:cause>00000000-0000-0000-0000-000000000002</e:cause><e:call>00000000-0000-0000-0000-000000000003</e:call><e:time>2026-11-20T10:00:00.500000Z</e:time></e:meta><a/></e:message><e:message id="00000000-0000-0000-0000-000000000001" kind="self" seq="12" new="true"><e:meta><e:from>researcher</e:from><e:to>search</e:to><e:thread>sess-k3v9t2m8.a_B-1</e:thread><e:cause>00000000-0000-0000-0000-000000000002</e:cause><e:call>00000000-0000-0000-0000-000000000003</e:call><e:time>2026-11-20T10:00:00.500000Z</e:time></e:meta><b xmlns='u'>2</b></e:message></e:delivery>"#]].assert_eq(&delivery(Duration::from_secs(60)));
    let traced = format!(" timeout=\"PT0.25S\" traceparent=\"{TRACEPARENT}\"><e:message");
    assert!(delivery(Duration::from_millis(250)).contains(&traced));
}

#[test]
fn a_delivery_names_what_it_builds_on() {
    let partial = delivery_after(Some(1), Duration::from_secs(60));
    assert!(partial.contains(" timeout=\"PT60S\" after=\"1\"><e:message"), "{partial}");
    assert!(partial.contains(" seq=\"12\" new=\"true\" position=\"2\"><e:meta>"), "{partial}");
    assert_eq!(partial.matches("<e:message").count(), 1);
}

#[test]
fn a_request_for_a_preview_has_a_name_of_its_own_and_an_approved_one_is_named() {
    let request = delivery_with_preview(None, Duration::from_secs(5), (true, None));
    assert!(request.starts_with("<e:preview xmlns:e="), "{request}");
    assert!(request.ends_with("</e:message></e:preview>"), "{request}");

    let digest = Digest::of(b"<preview/>");
    let approved = delivery_with_preview(None, Duration::from_secs(5), (false, Some(digest)));
    let named = format!(" timeout=\"PT5S\" approved_preview=\"{digest}\"><e:message");
    assert!(approved.contains(&named), "{approved}");
}

#[test]
fn written_envelopes_are_valid_by_their_schema() {
    let mut schemas = Schemas::default();
    let names = schemas.add_builtin("envelope.xsd", SCHEMA).unwrap();
    let locals: Vec<&str> = names.iter().map(|name| &*name.local).collect();
    assert_eq!(locals, ["delivery", "message", "preview"]);
    let valid = |local: &str, text: &str| {
        schemas.validate(&PayloadName::new(NAMESPACE, local), text.as_bytes())
    };
    for payload in ["<a/>", "<a xmlns='u'><b/></a>", "<a xmlns='u' xmlns:e='v'/>"] {
        let mut out = String::new();
        write_message(&mut out, &message(payload));
        assert_eq!(valid("message", &out), Ok(()), "{out}");
    }
    for timeout in [Duration::from_secs(60), Duration::from_millis(1_250)] {
        assert_eq!(valid("delivery", &delivery(timeout)), Ok(()));
        assert_eq!(valid("delivery", &delivery_after(Some(1), timeout)), Ok(()));
        let request = delivery_with_preview(None, timeout, (true, None));
        assert_eq!(valid("preview", &request), Ok(()));
        let digest = Digest::of(b"<preview/>");
        let approved = delivery_with_preview(None, timeout, (false, Some(digest)));
        assert_eq!(valid("delivery", &approved), Ok(()));
    }
    let mut bare = String::new();
    write_message(&mut bare, &message(""));
    assert!(valid("message", &bare).is_err());
    assert!(valid("delivery", &delivery(Duration::ZERO).replace("1.2", "1")).is_err());
}

/// The envelope sets no default namespace, because that would change the meaning of the payload's
/// names.
#[test]
fn the_envelope_does_not_change_what_a_payload_means() {
    let payload = "<p:a xmlns:p='u'><b/></p:a>";
    let mut out = String::new();
    write_message(&mut out, &message(payload));
    assert!(scan(out.as_bytes()).is_ok());
    let inside = nested(&out, 1);
    assert_eq!(inside[1].text, payload);
    assert_eq!(scan(inside[1].text.as_bytes()).unwrap().name, PayloadName::new("u", "a"));
}
