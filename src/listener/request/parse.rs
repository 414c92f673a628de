//! Reading a delivery: a frame, or a message with headers. The pump wrote it, so anything
//! unexpected is a fault to stop at.

use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use quick_xml::name::PrefixDeclaration;

use crate::bus::nats::words;
use crate::clock;
use crate::ids::{CallId, ListenerName, PayloadName, ThreadId};
use crate::nats::HeaderMap;

use super::super::line::Line;
use super::{Received, Request};

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
    let (name, payload) = Frame { text, reader: Reader::from_str(text) }.payload()?;
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
    let mut frame = Frame { text, reader: Reader::from_str(text) };
    let delivery = frame.open("delivery")?;
    let thread = attribute(&delivery, "thread")?;
    let listener = attribute(&delivery, "listener")?;
    let timeout = attribute(&delivery, "timeout")?;
    let mut messages = Vec::new();
    while let Some(message) = frame.message()? {
        messages.push(message);
    }
    if messages.is_empty() {
        return Err("a delivery without a message".to_owned());
    }
    Ok(Request {
        listener: ListenerName::parse(&listener).map_err(|e| e.to_string())?,
        thread: ThreadId::parse(&thread).map_err(|e| e.to_string())?,
        call: CallId(parsed(&delivery, "call")?),
        attempt: parsed(&delivery, "attempt")?,
        timeout: clock::parse_duration(&timeout).ok_or("a timeout that is no duration")?,
        trace: attribute(&delivery, "traceparent").ok().and_then(|trace| trace.parse().ok()),
        messages,
        line,
    })
}

struct Frame<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
}

impl<'a> Frame<'a> {
    fn event(&mut self) -> Result<Event<'a>, String> {
        self.reader.read_event().map_err(|e| format!("a frame is not XML: {e}"))
    }

    fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    fn open(&mut self, local: &str) -> Result<BytesStart<'a>, String> {
        match self.event()? {
            Event::Start(start) if start.local_name().as_ref() == local => Ok(start),
            other => Err(format!("expected <e:{local}>, got {other:?}")),
        }
    }

    /// The next message, or nothing at the end of the delivery.
    fn message(&mut self) -> Result<Option<Received>, String> {
        let message = match self.event()? {
            Event::Start(start) => start,
            Event::End(_) => return Ok(None),
            other => return Err(format!("expected <e:message>, got {other:?}")),
        };
        let (from, time) = self.meta()?;
        let (name, payload) = self.payload()?;
        match self.event()? {
            Event::End(_) => {}
            other => return Err(format!("expected </e:message>, got {other:?}")),
        }
        Ok(Some(Received {
            id: parsed(&message, "id")?,
            kind: attribute(&message, "kind")?,
            seq: parsed(&message, "seq")?,
            new: message.try_get_attribute("new").is_ok_and(|new| new.is_some()),
            from,
            time,
            name,
            payload,
        }))
    }

    /// `from` and `time` of the metadata; the rest is for auditors.
    fn meta(&mut self) -> Result<(String, String), String> {
        self.open("meta")?;
        let (mut from, mut time) = (String::new(), String::new());
        loop {
            match self.event()? {
                Event::Start(start) => {
                    let text = self.reader.read_text(start.name());
                    let text = text.map_err(|e| format!("metadata is not XML: {e}"))?;
                    let text = text.to_string();
                    match start.local_name().as_ref() {
                        "from" => from = text,
                        "time" => time = text,
                        _ => {}
                    }
                }
                Event::End(_) => return Ok((from, time)),
                Event::Empty(_) => {}
                other => return Err(format!("expected metadata, got {other:?}")),
            }
        }
    }

    fn payload(&mut self) -> Result<(PayloadName, String), String> {
        let begin = self.position();
        let name = match self.event()? {
            Event::Empty(start) => root_name(&start)?,
            Event::Start(start) => {
                let skipped = self.reader.read_to_end(start.name());
                skipped.map_err(|e| format!("a payload is not XML: {e}"))?;
                root_name(&start)?
            }
            other => return Err(format!("expected a payload, got {other:?}")),
        };
        let payload = self.text.get(begin..self.position()).unwrap_or_default();
        Ok((name, payload.to_owned()))
    }
}

/// A payload stands alone, so its root declares the namespace it is in.
fn root_name(start: &BytesStart<'_>) -> Result<PayloadName, String> {
    let (local, prefix) = start.name().decompose();
    let wanted = match &prefix {
        Some(prefix) => PrefixDeclaration::Named(prefix.as_ref()),
        None => PrefixDeclaration::Default,
    };
    let mut namespace = String::new();
    for attribute in start.attributes().flatten() {
        if attribute.key.as_namespace_binding() == Some(wanted) {
            namespace = decoded(&attribute)?;
        }
    }
    Ok(PayloadName::new(&namespace, local.as_ref()))
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<String, String> {
    match start.try_get_attribute(name) {
        Ok(Some(attribute)) => decoded(&attribute),
        _ => Err(format!("a frame without its attribute `{name}`")),
    }
}

fn decoded(attribute: &quick_xml::events::attributes::Attribute<'_>) -> Result<String, String> {
    quick_xml::escape::unescape(&attribute.value)
        .map(std::borrow::Cow::into_owned)
        .map_err(|e| format!("an attribute is not XML: {e}"))
}

fn parsed<T: FromStr>(start: &BytesStart<'_>, name: &str) -> Result<T, String> {
    let text = attribute(start, name)?;
    text.parse().map_err(|_| format!("`{text}` is no `{name}`"))
}
