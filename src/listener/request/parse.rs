//! Reading a delivery: a frame, or a message with headers. The pump wrote it, so anything
//! unexpected is a fault to stop at.

use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use crate::bus::nats::words;
use crate::clock;
use crate::ids::{CallId, ListenerName, PayloadName, ThreadId};
use crate::nats::HeaderMap;
use crate::xml::element::Element;

use super::super::line::Line;
use super::{Received, Request};

/// Levels of elements in a frame above metadata and payloads: delivery, message.
const LEVELS: usize = 2;

/// As it comes over NATS: of one message the body is the payload, of several a frame.
pub(in crate::listener) fn of_message(
    headers: &HeaderMap,
    body: &[u8],
    listener: &ListenerName,
    line: Rc<dyn Line>,
) -> Result<Request, String> {
    if headers.get(words::MESSAGES).is_some() {
        return request(body, line);
    }
    let head = Head(headers);
    let text = std::str::from_utf8(body).map_err(|e| format!("a payload is not UTF-8: {e}"))?;
    let root = Element::outline(text, 0).ok_or("a payload is not XML")?;
    let (name, payload) = payload(text, &root);
    let seconds: f64 = head.parsed(words::TIMEOUT)?;
    let message = Received {
        id: head.parsed(words::MESSAGE)?,
        kind: "call".to_owned(),
        seq: head.parsed(words::SEQ)?,
        new: true,
        from: head.text(words::FROM)?.to_owned(),
        time: head.text(words::TIME)?.to_owned(),
        name,
        payload,
    };
    Ok(Request {
        listener: listener.clone(),
        thread: ThreadId::parse(head.text(words::THREAD)?).map_err(|e| e.to_string())?,
        call: CallId(head.parsed(words::CALL)?),
        attempt: head.parsed(words::ATTEMPT)?,
        timeout: Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?,
        trace: headers.get(words::TRACE).and_then(|trace| trace.as_str().parse().ok()),
        messages: vec![message],
        line,
    })
}

struct Head<'h>(&'h HeaderMap);

impl<'h> Head<'h> {
    fn text(&self, name: &'static str) -> Result<&'h str, String> {
        let value = self.0.get(name).map(|value| value.as_str());
        value.ok_or_else(|| format!("a delivery without its header `{name}`"))
    }

    fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("`{text}` is no `{name}`"))
    }
}

pub(super) fn request(frame: &[u8], line: Rc<dyn Line>) -> Result<Request, String> {
    let text = std::str::from_utf8(frame).map_err(|e| format!("a frame is not UTF-8: {e}"))?;
    let delivery =
        Element::outline(text, LEVELS).ok_or("a frame is not XML, or beyond the limits of one")?;
    if delivery.local_name() != "delivery" {
        return Err(format!("expected <e:delivery>, got <{}>", delivery.local_name()));
    }
    let messages: Vec<Received> =
        delivery.children().map(|message| received(text, message)).collect::<Result<_, _>>()?;
    if messages.is_empty() {
        return Err("a delivery without a message".to_owned());
    }
    Ok(Request {
        listener: ListenerName::parse(attribute(&delivery, "listener")?)
            .map_err(|e| e.to_string())?,
        thread: ThreadId::parse(attribute(&delivery, "thread")?).map_err(|e| e.to_string())?,
        call: CallId(parsed(&delivery, "call")?),
        attempt: parsed(&delivery, "attempt")?,
        timeout: clock::parse_duration(attribute(&delivery, "timeout")?)
            .ok_or("a timeout that is no duration")?,
        trace: delivery.attribute("traceparent").and_then(|trace| trace.parse().ok()),
        messages,
        line,
    })
}

/// One message of a delivery. Of its metadata only `from` and `time`; the rest is for auditors.
fn received(frame: &str, message: &Element) -> Result<Received, String> {
    let mut parts = message.children();
    let (Some(meta), Some(root), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err("a message that is not metadata and a payload".to_owned());
    };
    let meta = message.read_inner(written(frame, meta)).ok_or("metadata is not XML")?;
    let text = |name: &str| meta.child(name).map(Element::text).unwrap_or_default();
    let (name, payload) = payload(frame, root);
    Ok(Received {
        id: parsed(message, "id")?,
        kind: attribute(message, "kind")?.to_owned(),
        seq: parsed(message, "seq")?,
        new: message.attribute("new").is_some(),
        from: text("from"),
        time: text("time"),
        name,
        payload,
    })
}

/// The name and the bytes of a payload that stands in `frame`.
fn payload(frame: &str, root: &Element) -> (PayloadName, String) {
    (PayloadName::from(&root.name), written(frame, root).to_owned())
}

fn written<'f>(frame: &'f str, element: &Element) -> &'f str {
    frame.get(element.origin.tag.start..element.origin.end).unwrap_or_default()
}

fn attribute<'e>(element: &'e Element, name: &str) -> Result<&'e str, String> {
    element.attribute(name).ok_or_else(|| format!("a frame without its attribute `{name}`"))
}

fn parsed<T: FromStr>(element: &Element, name: &str) -> Result<T, String> {
    let text = attribute(element, name)?;
    text.parse().map_err(|_| format!("`{text}` is no `{name}`"))
}
