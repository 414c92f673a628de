//! Maps a provider's error response to an error of a model call.

use std::time::Duration;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

use super::body::{self, AnswerHead};
use super::{RemoteModel, StreamFault};
use crate::clock::Time;
use crate::limits;
use crate::model::ModelProvider as _;
use crate::model::error::{Error, is_retried_status};
use crate::model::http::HttpResponse;
use crate::shorten::shorten;

const WHOLE_ANSWER: &str = "a whole answer where a stream was asked for: a server or gateway \
                            ignores `stream: true`; let it stream, or name another `base_url`";

const NO_ANSWER: &str = "neither an event stream nor an error (see that `base_url` is the API's \
                         address)";

/// An error as the server reports it.
#[derive(Debug, Default)]
struct ErrorBody {
    message: String,
    /// Type, code and status of the error, such as `rate_limit_error`; empty if the server states
    /// none of them.
    kind: String,
    /// Delay that the error requests. Gemini states it here, and not in a header.
    retry_after: Option<Duration>,
    /// Whether the error is about the model's answer and not about the request: the provider could
    /// not parse the native calls or the JSON that the model wrote.
    is_about_answer: bool,
    /// Whether the document states an error: under the key `error` or `errors`, by a kind of error,
    /// by a message, or by a status such as `failed`.
    is_error: bool,
}

impl RemoteModel {
    /// Returns the error for a response that is no event stream.
    pub(super) async fn no_stream(&self, answer: &mut HttpResponse) -> Error {
        if let Some(coding) = body::coding(answer) {
            let message = format!("its text is compressed ({coding})");
            return self.refused(answer, message.as_bytes());
        }

        let mut body = Vec::new();
        let mut broken = None;
        while body.len() < limits::ERROR_BODY_BYTES_MAX {
            let piece = match answer.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            };
            let room = limits::ERROR_BODY_BYTES_MAX - body.len();
            body.extend(piece.iter().take(room));
        }

        // The part of an error that was read is enough. Anything else with status 200 is an answer
        // whose end is missing.
        match broken {
            Some(broken) if answer.status() == 200 && !shows_cause(&body) => {
                self.failed(broken, body.len())
            }
            _ => self.refused(answer, &body),
        }
    }

    /// Returns the error for a response with status 200 that is compressed. `coding` is the name of
    /// the compression.
    pub(super) fn compressed(&self, coding: &str) -> Error {
        let message = format!(
            "the answer is compressed ({}), although the request refuses compression; switch it \
             off in the server or proxy that compresses",
            self.clean(coding)
        );
        Error::Status { route: self.route(), status: 200, message }
    }

    /// Returns the error for a response that ended before the terminator of its stream.
    pub(super) fn ended(&self, answer: &HttpResponse, head: AnswerHead, bytes: usize) -> Error {
        match head.instead() {
            Some(text) => self.refused(answer, text),
            None if bytes == 0 => Error::Empty { route: self.route(), status: answer.status() },
            None => Error::Cut { route: self.route(), bytes },
        }
    }

    pub(super) fn fault(&self, fault: StreamFault) -> Error {
        let route = self.route();
        match fault {
            StreamFault::Unreadable { detail } => {
                Error::InvalidEvent { route, detail: self.clean(&detail) }
            }
            StreamFault::TooLong => Error::TooLong { route, max: limits::ANSWER_BYTES_MAX },
            StreamFault::Reported { error } => self.stream_error(&error),
        }
    }

    /// Makes a server's text safe for error messages: hides the provider's API key, removes line
    /// breaks, and shortens the text.
    pub(super) fn clean(&self, text: &str) -> String {
        let text = match &self.options.key {
            Some(key) => key.hide_in_server_text(text),
            None => text.to_owned(),
        };

        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let text: String = text.chars().map(visible).collect();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        shorten(&words, limits::ERROR_MESSAGE_CHARS_MAX)
    }

    fn key_source(&self) -> String {
        match (&self.options.key, self.options.preset.key_variable) {
            (Some(key), _) => key.source().to_string(),
            (None, Some(variable)) => format!("nowhere; set {variable} and `api_key_env`"),
            (None, None) => "nowhere; name its variable in `api_key_env`".to_owned(),
        }
    }

    /// Returns the address of the requests.
    fn url(&self) -> String {
        self.clean(&format!("{}{}", self.options.endpoint, self.options.preset.wire.path()))
    }

    fn unknown_model(&self, status: u16, message: String) -> Error {
        let url = self.url();
        let path = self.options.preset.wire.path();
        Error::UnknownModel { route: self.route(), status, url, path, message }
    }

    fn refused(&self, answer: &HttpResponse, body: &[u8]) -> Error {
        let route = self.route();
        let status = answer.status();
        if (300..400).contains(&status) {
            let to = self.clean(answer.header("location").unwrap_or("an address it does not name"));
            return Error::Redirected { route, status, to };
        }

        if body.trim_ascii().is_empty() && status == 200 {
            return Error::Empty { route, status };
        }

        let is_html = looks_like_html(body.trim_ascii_start());
        let error_body = if is_html { ErrorBody::default() } else { parse_error_body(body) };
        let message =
            if is_html { self.clean(&title(body)) } else { self.clean(&error_body.message) };

        let key = || self.key_source();
        let retry_after = retry_after(answer).or(error_body.retry_after);

        match exact_status(status, &error_body) {
            429 => Error::RateLimited { route, message, retry_after },
            503 | 529 => Error::Overloaded { route, status, message, retry_after },
            413 if is_html => Error::Rejected { route, status, message },
            401 if is_html => Error::Denied { route, status, message, key: key() },
            _ if is_html => Error::Html { route, status, url: self.url(), message },
            401 | 403 => Error::Denied { route, status, message, key: key() },
            402 => Error::NoCredit { route, status, message, key: key() },
            404 | 405 => self.unknown_model(status, message),
            400 | 422 if error_body.is_about_answer => Error::UnparsedAnswer { route, message },
            400 | 413 | 422 => Error::Rejected { route, status, message },
            200 if is_whole_answer(body) => {
                Error::NotStreamed { route, detail: WHOLE_ANSWER.to_owned() }
            }
            200 if !error_body.is_error => {
                let text = self.clean(&String::from_utf8_lossy(body));
                Error::NotStreamed { route, detail: format!("{NO_ANSWER}: {text}") }
            }
            200 => self.reported_error(&error_body),
            _ => Error::Status { route, status, message },
        }
    }

    /// Returns the error for an error event within a stream.
    fn stream_error(&self, error: &str) -> Error {
        self.reported_error(&parse_error_body(error.as_bytes()))
    }

    /// Converts an error that a server reported in a response with status 200 to an error of a
    /// model call. If the kind of the error stands for an HTTP status that has an error variant of
    /// its own, such as `RateLimited` for 429, returns this variant. Otherwise, returns
    /// `Error::Stream`.
    fn reported_error(&self, error_body: &ErrorBody) -> Error {
        let route = self.route();
        let status = 200;
        let message = self.clean(&error_body.message);
        let key = || self.key_source();
        let retry_after = error_body.retry_after;
        let stated = status_of_kind(&error_body.kind);
        let equal_status = stated.map(|stated| exact_status(stated, error_body));

        match equal_status {
            Some(402) => Error::NoCredit { route, status, message, key: key() },
            Some(429) => Error::RateLimited { route, message, retry_after },
            Some(503 | 529) => Error::Overloaded { route, status, message, retry_after },
            Some(401 | 403) => Error::Denied { route, status, message, key: key() },
            Some(404) => self.unknown_model(status, message),
            _ if error_body.is_about_answer => Error::UnparsedAnswer { route, message },
            Some(400 | 413 | 422) => Error::Rejected { route, status, message },
            _ => {
                let retried = equal_status.is_none_or(is_retried_status);
                Error::Stream { route, kind: self.clean(&error_body.kind), message, retried }
            }
        }
    }
}

/// Words that the kind of an error may contain, each with the HTTP status that it stands for. If a
/// kind contains several words, the first one in this list decides.
const STATUS_OF_WORDS: &[(&str, u16)] = &[
    ("rate_limit", 429),
    ("overloaded", 503),
    ("api_key", 401),
    ("authentication", 401),
    ("unauthenticated", 401),
    ("unauthorized", 401),
    ("permission", 403),
    ("not_found", 404),
    ("too_large", 413),
    ("invalid", 400),
];

/// Returns the HTTP status that `kind`, the kind of an error, stands for. The first rule that
/// applies decides:
///
/// - A kind about missing credit has the status 402.
/// - A kind that contains an error status as a number, from 400 to 599, has this status.
/// - A kind that contains a known word has the status of this word.
///
/// Returns `None` for any other kind.
fn status_of_kind(kind: &str) -> Option<u16> {
    let kind = kind.to_ascii_lowercase();
    if is_about_credit(&kind) {
        return Some(402);
    }

    let numbers = kind.split(|c: char| !c.is_ascii_digit());
    let number =
        numbers.filter_map(|digits| digits.parse::<u16>().ok()).find(|n| (400..600).contains(n));
    number.or_else(|| {
        let word = STATUS_OF_WORDS.iter().find(|(word, _)| kind.contains(word));
        word.map(|(_, status)| *status)
    })
}

/// Whether the part of a response that was read shows what the response is: an error, a whole
/// answer, an HTML page, or any complete JSON document.
fn shows_cause(body: &[u8]) -> bool {
    let keys = DocumentKeys::read(body);
    let is_complete = || serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let is_html = looks_like_html(body.trim_ascii_start());
    is_html || keys.error.is_some() || keys.is_answer || is_complete()
}

/// Whether the body of a response with status 200 is an answer of a provider in one of the wire
/// formats, and not an error. The end of the body may be missing. An object that is too long to be
/// read completely counts as an answer unless its part that was read has an error.
fn is_whole_answer(body: &[u8]) -> bool {
    let keys = DocumentKeys::read(body);
    let is_long = body.len() >= limits::ERROR_BODY_BYTES_MAX;
    let is_long_object = is_long && body.trim_ascii_start().starts_with(b"{");
    (keys.is_answer || is_long_object) && keys.error.is_none()
}

/// Content of a document, as far as the keys at the top level of its JSON show it.
#[derive(Debug, Default)]
struct DocumentKeys {
    /// Whether a key is one of an answer in one of the wire formats.
    is_answer: bool,
    /// Error under the key `error` or `errors`; null if the end of the value is missing. `None` if
    /// the document has no such error.
    error: Option<Json>,
}

impl DocumentKeys {
    /// Reads the keys of a JSON object whose end may be missing. Any other text has no keys.
    fn read(body: &[u8]) -> Self {
        let mut keys = Self::default();
        let mut json = serde_json::Deserializer::from_slice(body);
        // Where the object is cut, reading fails. The keys before the cut are known then.
        json.deserialize_map(&mut keys).ok();
        keys
    }
}

impl<'de> Visitor<'de> for &mut DocumentKeys {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "choices" | "content" => {
                    // If the list is cut, this value of the flag remains.
                    let was_answer = std::mem::replace(&mut self.is_answer, true);
                    self.is_answer = map.next_value::<Json>()?.is_array() || was_answer;
                }
                "type" => self.is_answer |= map.next_value::<Json>()? == "message",
                "error" | "errors" if self.error.is_none() => {
                    // If the value is cut, null remains.
                    self.error = Some(Json::Null);
                    self.error = first_error(&map.next_value::<Json>()?).cloned();
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn looks_like_html(text: &[u8]) -> bool {
    let head: Vec<u8> = text.iter().take(64).map(u8::to_ascii_lowercase).collect();
    [&b"<!doctype"[..], b"<html", b"<head", b"<body", b"<h1", b"<?xml"]
        .iter()
        .any(|tag| head.starts_with(tag))
}

/// Returns the title of an HTML page. Such a title usually describes the error.
fn title(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let lower = text.to_ascii_lowercase();
    let start = lower.find("<title>").map(|at| at + "<title>".len());
    let end = lower.find("</title>");
    match (start, end) {
        (Some(start), Some(end)) => text.get(start..end).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Returns the HTTP status that describes an error more exactly than its own status `status`:
///
/// - 402 in place of 400 or 429 if the account has no credit left. Anthropic reports this as a
///   defect of the request, and xAI as a rate limit.
/// - 401 in place of 400 if the key is wrong, which Gemini and xAI report as a defect of the
///   request.
///
/// Returns `status` for any other error.
fn exact_status(status: u16, error_body: &ErrorBody) -> u16 {
    let message = error_body.message.to_ascii_lowercase();
    let kind = error_body.kind.to_ascii_lowercase();
    match status {
        400 | 429 if is_about_credit(&kind) || states_missing_credit(&message) => 402,
        400 if states_wrong_key(&message) => 401,
        _ => status,
    }
}

fn is_about_credit(kind: &str) -> bool {
    ["insufficient_quota", "billing", "credit"].iter().any(|word| kind.contains(word))
}

/// Whether a message in lower case states that the account has no credit left.
fn states_missing_credit(message: &str) -> bool {
    ["credit balance is", "used all available credits"].iter().any(|text| message.contains(text))
}

/// Whether a message in lower case states that the provider does not accept the key.
fn states_wrong_key(message: &str) -> bool {
    ["incorrect api key", "invalid api key", "api key not valid", "api key not found"]
        .iter()
        .any(|text| message.starts_with(text))
}

/// Whether the kind of an error says that the provider could not parse the model's answer. Groq
/// reports this as a defect of the request.
fn is_about_answer(kind: &str) -> bool {
    ["tool_use_failed", "json_validate_failed"].iter().any(|word| kind.contains(word))
}

/// Returns the error in the value of a key for errors: the first item of a list, or the value
/// itself. Returns `None` for null and for an empty list.
fn first_error(value: &Json) -> Option<&Json> {
    match value {
        Json::Null => None,
        Json::Array(errors) => errors.first(),
        error => Some(error),
    }
}

/// Parses the body of an error response, which is plain text or JSON. In a JSON list, parses the
/// first item. The error is the value of the key `error`, or the first one of the key `errors`, or
/// the whole JSON if both keys are missing. The message is the error itself if it is a string, or
/// else its `message`, `error_msg` or `detail`. The error of an upstream provider follows in
/// parentheses. The end of a body with one of the two keys may be missing.
fn parse_error_body(body: &[u8]) -> ErrorBody {
    parse_error(body, upstream_error)
}

/// Parses a body as [`parse_error_body`] does. `upstream_of` returns the error of the provider to
/// which the sender of an error forwarded the request.
fn parse_error(body: &[u8], upstream_of: fn(&Json) -> Option<ErrorBody>) -> ErrorBody {
    let keys = DocumentKeys::read(body);
    let has_error = keys.error.is_some();
    let json = match serde_json::from_slice::<Json>(body) {
        Ok(Json::Array(items)) => items.into_iter().next().or(Some(Json::Null)),
        Ok(json) => Some(json),
        Err(_) => keys.error.filter(|error| !error.is_null()),
    };
    let Some(json) = json else {
        let message = String::from_utf8_lossy(body).into_owned();
        return ErrorBody { message, is_error: has_error, ..ErrorBody::default() };
    };

    let inner = ["error", "errors"].into_iter().find_map(|key| first_error(json.get(key)?));
    let error = inner.unwrap_or(&json);
    let text = |key: &str| match error.get(key) {
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Number(number)) => Some(number.to_string()),
        Some(Json::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };

    let upstream = upstream_of(error).unwrap_or_default();
    let message = match error {
        Json::String(text) => text.clone(),
        _ => ["message", "error_msg", "detail"].into_iter().find_map(text).unwrap_or_default(),
    };
    let message = with_detail(message, upstream.message);

    let words = ["type", "code", "error_code", "status"].map(text);
    let mut kinds: Vec<String> = words.into_iter().flatten().collect();
    kinds.dedup();
    let kind = kinds.join(", ");

    let is_text = |key: &str| error.get(key).is_some_and(Json::is_string);
    // The code 0 stands for success.
    let is_named = |key| text(key).is_some_and(|word| word != "0");
    let is_named = ["type", "code", "error_code"].into_iter().any(is_named);
    let is_described = is_text("message") || error.get("detail").is_some();
    let is_failed = text("status").is_some_and(|status| states_failure(&status));
    let is_error = has_error || inner.is_some() || is_named || is_described || is_failed;
    let is_error = is_error || status_of_kind(&kind).is_some();
    ErrorBody {
        message,
        // Another request may go to another upstream provider, so its pause is short.
        retry_after: retry_delay(error)
            .or(upstream.retry_after.map(|pause| pause.min(limits::RETRY_AFTER_MAX))),
        is_about_answer: is_about_answer(&kind) || upstream.is_about_answer,
        kind,
        is_error,
    }
}

/// Returns the error of the provider to which a gateway forwarded the request. The message begins
/// with the name of this provider. `None` if the error states none. OpenRouter puts the response of
/// the provider into its own error, whose message is only `Provider returned error`.
fn upstream_error(error: &Json) -> Option<ErrorBody> {
    let metadata = error.get("metadata")?;
    let raw = match metadata.get("raw")? {
        Json::String(text) => text.trim().to_owned(),
        Json::Null => return None,
        document => document.to_string(),
    };
    if raw.is_empty() || raw.len() > limits::ERROR_BODY_BYTES_MAX {
        return None;
    }

    // An upstream provider is the last one: a body may nest errors to any depth.
    let mut upstream = parse_error(raw.as_bytes(), |_| None);
    if upstream.message.is_empty() {
        upstream.message = raw;
    }
    if let Some(Json::String(name)) = metadata.get("provider_name") {
        upstream.message = format!("{name}: {}", upstream.message);
    }
    Some(upstream)
}

/// Appends a detail in parentheses to a message that does not contain it.
fn with_detail(message: String, detail: String) -> String {
    if message.contains(&detail) {
        message
    } else if message.is_empty() {
        detail
    } else {
        format!("{message} ({detail})")
    }
}

/// Returns the delay that the details of an error request, such as `4.2s` under `retryDelay`.
fn retry_delay(error: &Json) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    seconds(delay.strip_suffix('s')?)
}

/// Whether the status in a document stands for an error, as `error`, `failed` and `failure` do.
fn states_failure(status: &str) -> bool {
    let status = status.to_ascii_lowercase();
    status.starts_with("error") || status.starts_with("fail")
}

/// Returns the delay that the headers of a response request: in milliseconds, in seconds, or as a
/// date. Returns `None` if they request none.
fn retry_after(answer: &HttpResponse) -> Option<Duration> {
    let milliseconds = answer.header("retry-after-ms").and_then(|text| text.trim().parse().ok());
    if let Some(milliseconds) = milliseconds {
        return Some(Duration::from_millis(milliseconds));
    }

    let text = answer.header("retry-after")?.trim();
    if text.parse::<f64>().is_ok() {
        return seconds(text);
    }

    let until = date(text)?;
    // A date is compared with the server's own clock, if the response states its time.
    let now = answer.header("date").and_then(date).unwrap_or_else(Time::now);
    Some(until.since(now))
}

/// Parses a number of seconds. A number that is too large for a duration is the longest pause.
/// Returns `None` for a negative number and for any other text.
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    let longest = (seconds > 0.0).then_some(limits::MODEL_PAUSE_MAX);
    Duration::try_from_secs_f64(seconds).ok().or(longest)
}

/// Parses an HTTP date. Returns `None` if the text is no such date.
fn date(text: &str) -> Option<Time> {
    let found = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Time(found.timestamp().as_microsecond()))
}
