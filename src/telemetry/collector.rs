//! Sends one export request to the collector and reads the result.

use std::time::Duration;

use serde::Deserialize;

use crate::config::TelemetryConfig;
use crate::limits;
use crate::model::http::{HttpClient, HttpError, HttpResponse, HttpTimeouts, ProviderEndpoint};

/// The collector to which spans are sent.
#[derive(Debug)]
pub(super) struct SpanCollector {
    client: HttpClient,
    endpoint: ProviderEndpoint,
    headers: Vec<(String, String)>,
}

/// Result of an export request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExportVerdict {
    /// The collector accepted the spans, except for `rejected` of them.
    Taken { rejected: u64, why: String },
    /// The collector was unreachable or refused the request temporarily, so a retry may succeed.
    /// `after` is the delay that the collector requests before the retry, if any.
    Later { why: String, after: Option<Duration> },
    /// The collector refused the request because of its size.
    TooLarge,
    /// The collector refused the request, and a retry cannot succeed.
    Never { why: String },
}

const TIMEOUTS: HttpTimeouts = HttpTimeouts {
    connect: limits::COLLECTOR_CONNECT_TIMEOUT,
    first_byte: limits::COLLECTOR_TIMEOUT,
    stall: limits::COLLECTOR_TIMEOUT,
    total: limits::COLLECTOR_TIMEOUT,
};

impl SpanCollector {
    pub fn new(telemetry: &TelemetryConfig) -> Self {
        let headers = telemetry.headers.iter();
        let headers = headers.map(|(name, value)| (name.clone(), value.expose().to_owned()));
        let client = HttpClient::of_system();
        let endpoint = telemetry.endpoint.clone();
        Self { client, endpoint, headers: headers.collect() }
    }

    pub fn address(&self) -> &ProviderEndpoint {
        &self.endpoint
    }

    pub async fn post(&self, body: String) -> ExportVerdict {
        let headers: Vec<(&str, String)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let posted = self.client.post(&self.endpoint, "/v1/traces", &headers, body, TIMEOUTS);
        match posted.await {
            Ok(response) => read_verdict(response).await,
            Err(failed) => ExportVerdict::Later { why: describe(failed), after: None },
        }
    }
}

fn describe(failed: HttpError) -> String {
    match failed {
        HttpError::Connect { host, detail, advice } => {
            let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
            format!("no connection to {host}: {detail}{advice}")
        }
        HttpError::Timeout { phase, after } => format!("{phase} within {after:?}"),
        HttpError::NoResponse { detail, .. } => {
            format!("the server there {detail}; OTLP over HTTP usually has port 4318")
        }
        HttpError::Broken => "the server there does not keep to HTTP/1.1".to_owned(),
    }
}

async fn read_verdict(mut response: HttpResponse) -> ExportVerdict {
    let seconds = response.header("retry-after").and_then(|value| value.trim().parse().ok());
    let after = seconds.map(Duration::from_secs);

    match response.status() {
        200..=299 => partial_success_verdict(&body(&mut response).await),
        413 => ExportVerdict::TooLarge,
        status @ (408 | 429 | 502 | 503 | 504) => {
            ExportVerdict::Later { why: format!("it answers HTTP {status}"), after }
        }
        status => ExportVerdict::Never { why: format!("it answers HTTP {status}") },
    }
}

/// Reads the body of a response until its end or a failure. Ignores a failure, because the body
/// only states how many spans were rejected, and why.
async fn body(response: &mut HttpResponse) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(piece);
        if body.len() > limits::COLLECTOR_ANSWER_BYTES_MAX {
            return Vec::new();
        }
    }

    body
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ExportResponse {
    #[serde(rename = "partialSuccess")]
    partial_success: PartialSuccess,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PartialSuccess {
    #[serde(rename = "rejectedSpans")]
    rejected_spans: JsonCount,
    #[serde(rename = "errorMessage")]
    error_message: String,
}

/// A JSON number, or a JSON string that contains a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonCount {
    Number(u64),
    Text(String),
}

impl Default for JsonCount {
    fn default() -> Self {
        Self::Number(0)
    }
}

fn partial_success_verdict(body: &[u8]) -> ExportVerdict {
    let PartialSuccess { rejected_spans, error_message } =
        serde_json::from_slice::<ExportResponse>(body).unwrap_or_default().partial_success;
    let rejected = match rejected_spans {
        JsonCount::Number(count) => count,
        JsonCount::Text(text) => text.parse().unwrap_or(0),
    };

    let visible = error_message.chars().filter(|c| !c.is_control());
    let why = visible.take(limits::ERROR_MESSAGE_CHARS_MAX).collect();
    ExportVerdict::Taken { rejected, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_would_not_have_is_read_from_its_answer() {
        let of = |body: &str| match partial_success_verdict(body.as_bytes()) {
            ExportVerdict::Taken { rejected, why } => (rejected, why),
            other => panic!("{other:?}"),
        };

        assert_eq!(of(""), (0, String::new()));
        assert_eq!(of("{}"), (0, String::new()));
        assert_eq!(of(r#"{"partialSuccess":{}}"#), (0, String::new()));
        let some = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\nold"}}"#;
        assert_eq!(of(some), (3, "tooold".to_owned()));
        assert_eq!(of(r#"{"partialSuccess":{"rejectedSpans":2}}"#).0, 2);
        assert_eq!(of("<html>").0, 0);
    }
}
