//! Parses a delivery, which is either an XML frame or a NATS message with headers. Only the pump
//! writes deliveries, so every deviation from the expected form is a fatal error.

use std::borrow::Cow;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::bus::nats::header_names;
use crate::clock;
use crate::ids::{CallId, Digest, ListenerName, PayloadName, ThreadId};
use crate::nats::HeaderMap;
use crate::xml::escape::{unescape_attribute, unescape_text};

use super::super::delivery_channel::DeliveryChannel;
use super::{Received, Request};

/// Parses a NATS message that carries one delivery. For a delivery of a single message, the body is
/// the payload of that message. For a delivery of several messages, the body is a frame.
pub(in crate::listener) fn of_message(
    headers: &HeaderMap,
    body: &[u8],
    listener: &ListenerName,
    line: Rc<dyn DeliveryChannel>,
) -> Result<Request, String> {
    if headers.get(header_names::MESSAGES).is_some() {
        return request(body, line);
    }

    let head = DeliveryHeader(headers);
    let text = std::str::from_utf8(body).map_err(|e| format!("a payload is not UTF-8: {e}"))?;
    let (name, payload) = FrameReader::new(text).payload()?;
    let seconds: f64 = head.parsed(header_names::TIMEOUT)?;
    let message = Received {
        id: head.parsed(header_names::MESSAGE)?,
        kind: "call".to_owned(),
        seq: head.parsed(header_names::SEQ)?,
        new: true,
        from: head.text(header_names::FROM)?.to_owned(),
        time: head.text(header_names::TIME)?.to_owned(),
        name,
        payload,
    };

    Ok(Request {
        listener: listener.clone(),
        thread: ThreadId::parse(head.text(header_names::THREAD)?).map_err(|e| e.to_string())?,
        call: CallId(head.parsed(header_names::CALL)?),
        attempt: head.parsed(header_names::ATTEMPT)?,
        timeout: Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?,
        trace: headers.get(header_names::TRACE).and_then(|trace| trace.as_str().parse().ok()),
        asks_preview: false,
        approved_preview: headers
            .get(header_names::APPROVED_PREVIEW)
            .map(|digest| Digest::parse(digest.as_str()).map_err(|e| e.to_string()))
            .transpose()?,
        messages: vec![message],
        after: None,
        line,
    })
}

struct DeliveryHeader<'h>(&'h HeaderMap);

impl<'h> DeliveryHeader<'h> {
    fn text(&self, name: &'static str) -> Result<&'h str, String> {
        let value = self.0.get(name).map(|value| value.as_str());
        value.ok_or_else(|| format!("a delivery without its header `{name}`"))
    }

    fn parsed<T: FromStr>(&self, name: &'static str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("`{text}` is no `{name}`"))
    }
}

pub(super) fn request(frame: &[u8], line: Rc<dyn DeliveryChannel>) -> Result<Request, String> {
    let text = std::str::from_utf8(frame).map_err(|e| format!("a frame is not UTF-8: {e}"))?;
    let mut frame = FrameReader::new(text);
    let (delivery, asks_preview) = frame.open_delivery()?;

    // Most deliveries have one message, and a program may keep the list for a long time.
    let mut messages = Vec::with_capacity(1);
    while let Some(message) = frame.message()? {
        messages.push(message);
    }

    if messages.is_empty() {
        return Err("a delivery without a message".to_owned());
    }

    Ok(Request {
        listener: ListenerName::parse(&attribute(&delivery, "listener")?)
            .map_err(|e| e.to_string())?,
        thread: ThreadId::parse(&attribute(&delivery, "thread")?).map_err(|e| e.to_string())?,
        call: CallId(parsed(&delivery, "call")?),
        attempt: parsed(&delivery, "attempt")?,
        timeout: clock::parse_duration(&attribute(&delivery, "timeout")?)
            .ok_or("a timeout that is no duration")?,
        trace: optional(&delivery, "traceparent")?.and_then(|trace| trace.parse().ok()),
        asks_preview,
        approved_preview: optional(&delivery, "approved_preview")?
            .map(|text| Digest::parse(&text).map_err(|e| e.to_string()))
            .transpose()?,
        messages,
        after: optional(&delivery, "after")?.map(|_| parsed(&delivery, "after")).transpose()?,
        line,
    })
}

/// Parses a frame from front to back. Builds no tree of the frame. Most of a frame consists of
/// payloads, and their bytes are kept unchanged.
struct FrameReader<'f> {
    text: &'f str,
    events: Reader<&'f [u8]>,
}

impl<'f> FrameReader<'f> {
    fn new(text: &'f str) -> Self {
        Self { text, events: Reader::from_str(text) }
    }

    fn event(&mut self) -> Result<Event<'f>, String> {
        self.events.read_event().map_err(|e| format!("a frame is not XML: {e}"))
    }

    fn position(&self) -> usize {
        usize::try_from(self.events.buffer_position()).unwrap_or(usize::MAX)
    }

    /// Reads the start tag of a delivery. Returns the tag, and whether the delivery requests a
    /// preview.
    fn open_delivery(&mut self) -> Result<(BytesStart<'f>, bool), String> {
        match self.event()? {
            Event::Start(start) if start.local_name().as_ref() == "delivery" => Ok((start, false)),
            Event::Start(start) if start.local_name().as_ref() == "preview" => Ok((start, true)),
            other => Err(format!("expected <e:delivery>, got {other:?}")),
        }
    }

    fn open(&mut self, local: &str) -> Result<BytesStart<'f>, String> {
        match self.event()? {
            Event::Start(start) if start.local_name().as_ref() == local => Ok(start),
            other => Err(format!("expected <e:{local}>, got {other:?}")),
        }
    }

    /// Returns the next message; `None` at the end of the delivery.
    fn message(&mut self) -> Result<Option<Received>, String> {
        let message = match self.event()? {
            Event::Start(start) => start,
            Event::End(_) => return Ok(None),
            other => return Err(format!("expected <e:message>, got {other:?}")),
        };

        let (from, time) = self.metadata()?;
        let (name, payload) = self.payload()?;
        match self.event()? {
            Event::End(_) => {}
            other => return Err(format!("expected </e:message>, got {other:?}")),
        }

        Ok(Some(Received {
            id: parsed(&message, "id")?,
            kind: attribute(&message, "kind")?,
            seq: parsed(&message, "seq")?,
            new: optional(&message, "new")?.is_some(),
            from,
            time,
            name,
            payload,
        }))
    }

    /// Reads the metadata of a message. Returns the values of `from` and `time`. Skips all other
    /// fields, which are meant for auditors.
    fn metadata(&mut self) -> Result<(String, String), String> {
        self.open("meta")?;
        let mut from = String::new();
        let mut time = String::new();
        loop {
            match self.event()? {
                Event::Start(start) => match start.local_name().as_ref() {
                    "from" => from = self.content(&start)?,
                    "time" => time = self.content(&start)?,
                    _ => _ = self.skip(&start)?,
                },
                Event::Empty(_) => {}
                Event::End(_) => return Ok((from, time)),
                other => return Err(format!("expected metadata, got {other:?}")),
            }
        }
    }

    /// Returns the text inside the element that `start` opened.
    fn content(&mut self, start: &BytesStart<'_>) -> Result<String, String> {
        let written = self.skip(start)?;
        unescape_text(written)
            .map(Cow::into_owned)
            .ok_or_else(|| format!("`{written}` of metadata is not text"))
    }

    /// Skips the element that `start` opened. Returns the content of the element as written.
    fn skip(&mut self, start: &BytesStart<'_>) -> Result<&'f str, String> {
        let begin = self.position();
        let skipped = self.events.read_to_end(start.name());
        let skipped = skipped.map_err(|e| format!("a frame is not XML: {e}"))?;
        let end = usize::try_from(skipped.end).unwrap_or(usize::MAX);
        Ok(self.text.get(begin..end).unwrap_or_default())
    }

    /// Reads the next payload. Returns its name, and its text exactly as written. The namespace of
    /// the name depends only on the declarations in the payload's root element. Declarations in the
    /// frame around the payload do not count.
    fn payload(&mut self) -> Result<(PayloadName, String), String> {
        let begin = self.position();
        let root = match self.event()? {
            Event::Empty(root) => root,
            Event::Start(root) => {
                self.skip(&root)?;
                root
            }
            other => return Err(format!("expected a payload, got {other:?}")),
        };
        let name = root_name(&root).ok_or("the root of a payload is not XML")?;
        let written = self.text.get(begin..self.position()).unwrap_or_default();
        Ok((name, written.to_owned()))
    }
}

/// Returns the name of a payload from its root element. Returns `None` if the root element has a
/// prefix without a declaration, or malformed attributes.
fn root_name(root: &BytesStart<'_>) -> Option<PayloadName> {
    let written = root.name().into_inner();
    let (prefix, local) = written.split_once(':').unwrap_or(("", written));

    let mut namespace = None;
    for attribute in root.attributes() {
        let attribute = attribute.ok()?;
        let Some(declared) = attribute.key.into_inner().strip_prefix("xmlns") else { continue };
        let is_own = match declared.strip_prefix(':') {
            Some(declared) => declared == prefix,
            None => declared.is_empty() && prefix.is_empty(),
        };
        if is_own {
            namespace = Some(unescape_attribute(&attribute.value)?.into_owned());
        }
    }

    let is_bound = prefix.is_empty() || namespace.is_some();
    is_bound.then(|| PayloadName::new(namespace.as_deref().unwrap_or_default(), local))
}

fn optional(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    let Ok(Some(attribute)) = start.try_get_attribute(name) else { return Ok(None) };
    let value = unescape_attribute(&attribute.value).map(Cow::into_owned);
    value.map(Some).ok_or_else(|| format!("the attribute `{name}` of a frame is not text"))
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<String, String> {
    optional(start, name)?.ok_or_else(|| format!("a frame without its attribute `{name}`"))
}

fn parsed<T: FromStr>(start: &BytesStart<'_>, name: &str) -> Result<T, String> {
    let text = attribute(start, name)?;
    text.parse().map_err(|_| format!("`{text}` is no `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn message(payload: &str, from: &str) -> Result<Option<Received>, String> {
        let meta = format!("<e:from>{from}</e:from><e:time>t</e:time><e:to>b</e:to><e:x/>");
        let attributes = "id=\"01a20012-754f-7101-93dd-219d69ad3685\" kind=\"call\" seq=\"7\"";
        let frame = format!(
            "<e:message {attributes} new=\"true\"><e:meta>{meta}</e:meta>{payload}</e:message>"
        );
        FrameReader::new(&frame).message()
    }

    #[test]
    fn a_payload_is_cut_out_as_it_is_written() {
        let payload = "<p:a xmlns:p='urn:p' n='1'><b>x &amp; y</b><![CDATA[</p:a>]]>\r\n</p:a>";
        let read = message(payload, "a&amp;b").unwrap().unwrap();

        assert_eq!(read.payload, payload);
        assert_eq!(read.name, PayloadName::new("urn:p", "a"));
        assert_eq!((read.from.as_str(), read.time.as_str()), ("a&b", "t"));
        assert_eq!((read.kind.as_str(), read.seq, read.new), ("call", 7, true));
    }

    #[test]
    fn a_payload_with_as_many_declarations_as_are_allowed_is_read() {
        let count = 0..limits::XML_NAMESPACES_MAX;
        let declared: String = count.map(|n| format!(" xmlns:n{n}='u'")).collect();
        let read = message(&format!("<n1:a{declared}/>"), "a").unwrap().unwrap();
        assert_eq!(read.name, PayloadName::new("u", "a"));
    }

    #[test]
    fn a_message_without_its_parts_is_a_fault() {
        for payload in ["", "text", "<a/><b/>", "<p:a/>", "<a><b></a>", "<a"] {
            assert!(message(payload, "a").is_err(), "{payload}");
        }
        assert!(message("<a/>", "&nbsp;").is_err());
        assert!(FrameReader::new("<e:message/>").message().is_err());
        assert!(FrameReader::new("<e:message id='1'><e:other/></e:message>").message().is_err());
    }
}
