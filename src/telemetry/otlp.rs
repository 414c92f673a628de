//! OTLP's JSON encoding. Ids are hexadecimal digits, 64-bit numbers are strings, and enums are
//! numbers.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::clock::Time;
use crate::trace::{AttributeValue, Span, SpanKind};

/// URL of the semantic conventions that define the attribute names of the spans. It ends with the
/// version of the conventions.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// The OTLP resource to which all spans belong.
#[derive(Debug)]
pub(super) struct OtlpResource(Json);

impl OtlpResource {
    pub fn new(service: &str, organism: &str) -> Self {
        let text = |name, text: &str| attribute(name, &AttributeValue::from(text.to_owned()));
        Self(json!([
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &Uuid::now_v7().to_string()),
            text("organism.name", organism),
        ]))
    }
}

/// Encodes one export request.
pub(super) fn request(resource: &OtlpResource, spans: &[Span]) -> String {
    let spans: Vec<_> = spans.iter().map(OtlpSpan::of).collect();
    let scope = json!({ "name": "organism", "version": env!("CARGO_PKG_VERSION") });
    json!({
        "resourceSpans": [{
            "resource": { "attributes": resource.0 },
            "scopeSpans": [{ "scope": scope, "spans": spans, "schemaUrl": SCHEMA_URL }],
            "schemaUrl": SCHEMA_URL,
        }],
    })
    .to_string()
}

#[derive(Serialize)]
struct OtlpSpan<'s> {
    #[serde(rename = "traceId")]
    trace_id: String,
    #[serde(rename = "spanId")]
    span_id: String,
    #[serde(rename = "parentSpanId", skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    /// W3C trace flags, which state that the trace is sampled.
    #[serde(rename = "flags")]
    flags: u8,
    #[serde(rename = "name")]
    name: &'s str,
    #[serde(rename = "kind")]
    kind: u8,
    #[serde(rename = "startTimeUnixNano")]
    start_time_unix_nano: String,
    #[serde(rename = "endTimeUnixNano")]
    end_time_unix_nano: String,
    #[serde(rename = "attributes")]
    attributes: Vec<Json>,
    #[serde(rename = "status", skip_serializing_if = "Option::is_none")]
    status: Option<Json>,
}

impl<'s> OtlpSpan<'s> {
    fn of(span: &'s Span) -> Self {
        let mut attributes: Vec<Json> =
            span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
        let error = span.error.as_ref();
        attributes.extend(
            error.map(|error| attribute("error.type", &AttributeValue::Text(error.clone()))),
        );
        Self {
            trace_id: span.at.trace_id(),
            span_id: span.at.span().to_string(),
            parent_span_id: span.parent.map(|parent| parent.to_string()),
            flags: 1,
            name: &span.name,
            kind: kind(span.kind),
            start_time_unix_nano: nanoseconds(span.began),
            // If the clock was set back meanwhile, the span must not end before its start.
            end_time_unix_nano: nanoseconds(span.ended.max(span.began)),
            attributes,
            status: error.map(|_| json!({ "code": 2 })),
        }
    }
}

fn kind(kind: SpanKind) -> u8 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

fn nanoseconds(time: Time) -> String {
    time.0.max(0).saturating_mul(1_000).to_string()
}

fn attribute(name: &str, value: &AttributeValue) -> Json {
    let text = |text: &Cow<'static, str>| json!({ "stringValue": text });
    let value = match value {
        AttributeValue::Text(own) => text(own),
        AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
        AttributeValue::Flag(flag) => json!({ "boolValue": flag }),
        AttributeValue::Texts(texts) => {
            json!({ "arrayValue": { "values": texts.iter().map(text).collect::<Vec<_>>() } })
        }
    };

    json!({ "key": name, "value": value })
}
