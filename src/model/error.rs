//! Errors of model calls, and whether a retry or another route may help.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::answer::ModelRoute;
use crate::limits;

/// Advice for a server that cannot be reached.
const CHECK_SERVER: &str = "see that the server runs and that `base_url` names it";

/// Every way in which a model call can fail. Texts from servers are cut at a maximum length, and
/// contain no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "no turn is recorded for agent `{agent}`, {thread}, turn {turn} in {recording}; \
         record the run again or add the turn"
    )]
    NotRecorded { agent: String, thread: String, turn: u32, recording: String },
    /// A trial found no recorded answer to the prompt of a turn. A trial runs recorded threads
    /// again. This trial cannot get the answer from a model on the network, because it has no
    /// budget.
    #[error(
        "the record has no answer to the prompt of turn {turn} of agent `{agent}`; with --tokens or \
         --money, {route} answers"
    )]
    NotOnRecord { route: ModelRoute, agent: String, turn: u32 },
    /// No connection was made. `advice` is special advice for this failure; `None` if the general
    /// advice applies, which is to check the server and its address.
    #[error("{route}: no connection to {host}: {detail}; {}", advice.unwrap_or(CHECK_SERVER))]
    Connect { route: ModelRoute, host: String, detail: String, advice: Option<&'static str> },
    /// The connection carried no complete head of an HTTP response. `detail` states what the server
    /// did instead. `is_request_sent`: the provider may have read the whole request.
    #[error("{route}: {host} {detail}; {}", CHECK_SERVER)]
    NoResponse { route: ModelRoute, host: String, detail: Cow<'static, str>, is_request_sent: bool },
    #[error(
        "{route}: {phase} within {after:?}; raise `{}` of the model if it needs longer",
        phase.key()
    )]
    Timeout { route: ModelRoute, phase: CallPhase, after: Duration },
    #[error("{route}: too many requests{}{}", after_colon(message), later(*retry_after))]
    RateLimited { route: ModelRoute, message: String, retry_after: Option<Duration> },
    #[error("{route}: overloaded (HTTP {status}){}{}", after_colon(message), later(*retry_after))]
    Overloaded { route: ModelRoute, status: u16, message: String, retry_after: Option<Duration> },
    #[error("{route}: denied (HTTP {status}){}; the key comes from {key}", after_colon(message))]
    Denied { route: ModelRoute, status: u16, message: String, key: String },
    #[error(
        "{route}: the account has no credit or quota left (HTTP {status}){}; the key comes from \
         {key}",
        after_colon(message)
    )]
    NoCredit { route: ModelRoute, status: u16, message: String, key: String },
    /// `url` is the address of the request, and `path` its part that follows the base address.
    #[error(
        "{route}: no such model, or no such address: POST {url} answered HTTP {status}{}; see that \
         `model` is a name that the provider lists, and that `base_url` is the part of the address \
         before `{path}`",
        after_colon(message)
    )]
    UnknownModel {
        route: ModelRoute,
        status: u16,
        url: String,
        path: &'static str,
        message: String,
    },
    #[error("{route}: the request was rejected (HTTP {status}){}", after_colon(message))]
    Rejected { route: ModelRoute, status: u16, message: String },
    #[error("{route}: HTTP {status}{}", after_colon(message))]
    Status { route: ModelRoute, status: u16, message: String },
    #[error(
        "{route}: redirected (HTTP {status}) to {to}, where no key is sent; write the final \
         address as `base_url`"
    )]
    Redirected { route: ModelRoute, status: u16, to: String },
    /// `url` is the address of the request.
    #[error(
        "{route}: an HTML page instead of an answer: POST {url} answered HTTP {status}{}{}",
        after_colon(message),
        advice_on_page(*status)
    )]
    Html { route: ModelRoute, status: u16, url: String, message: String },
    #[error("{route}: an empty answer (HTTP {status})")]
    Empty { route: ModelRoute, status: u16 },
    #[error("{route}: an event that cannot be read: {detail}")]
    InvalidEvent { route: ModelRoute, detail: String },
    /// The response has status 200 and is not an event stream. `detail` states what it is.
    #[error("{route}: {detail}")]
    NotStreamed { route: ModelRoute, detail: String },
    /// The provider reported an error in its answer, or in place of an answer, with status 200.
    /// `kind` is the provider's name of the error, or empty if it has none.
    #[error("{route}: reported an error{}{}", after_colon_or_unnamed(kind), after_colon(message))]
    Stream { route: ModelRoute, kind: String, message: String, retried: bool },
    /// The provider could not parse the model's answer, such as a call of a tool in a wrong form.
    #[error("{route}: could not parse the model's answer{}", after_colon(message))]
    UnparsedAnswer { route: ModelRoute, message: String },
    #[error("the stream of {route} ended after {bytes} bytes without its terminator")]
    Cut { route: ModelRoute, bytes: usize },
    #[error("the answer of {route} is longer than {max} bytes")]
    TooLong { route: ModelRoute, max: usize },
    /// Several routes failed, or one route failed several times. `last` decides whether a retry may
    /// help: the error after which no attempt on any route can succeed. If there is none, the
    /// latest error after which a retry may help, or else the latest error. `others` are the latest
    /// errors of the other routes. `tries` is 0 if no request was sent.
    #[error("{last}{}{}", after_semicolons(others), after_tries(*tries))]
    GaveUp { tries: u32, last: Box<Error>, others: Vec<Error> },
    #[error("{detail}")]
    Exhausted { detail: String },
    #[error("{detail}")]
    NoBudget { detail: String },
    #[error("the pump has stopped")]
    NoPump,
    #[error("{last}; not tried again: {why}")]
    NotRepeated { last: Box<Error>, why: Box<Error> },
}

/// The phase of a model call in which the call timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallPhase {
    Connect,
    FirstByte,
    Stall,
    Total,
}

impl CallPhase {
    /// Returns the config key that sets the time-out of the phase.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Connect => "connect_timeout",
            Self::FirstByte => "first_byte_timeout",
            Self::Stall => "stall_timeout",
            Self::Total => "total_timeout",
        }
    }
}

impl fmt::Display for CallPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::FirstByte => "no answer",
            Self::Stall => "nothing more of the answer",
            Self::Total => "no end of the answer",
        })
    }
}

impl Error {
    /// Whether a retry with the same request may succeed.
    pub fn is_retried(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::NoResponse { .. }
            | Self::Timeout { .. }
            | Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Empty { .. }
            | Self::InvalidEvent { .. }
            | Self::Cut { .. } => true,
            Self::Status { status, .. } | Self::Html { status, .. } => is_retried_status(*status),
            Self::Stream { retried, .. } => *retried,
            Self::UnparsedAnswer { .. } => true,
            Self::GaveUp { last, .. } => last.is_retried(),
            Self::NotRepeated { last, why } => last.is_retried() && why.is_retried(),
            Self::NoPump => true,
            Self::NotRecorded { .. }
            | Self::NotOnRecord { .. }
            | Self::Denied { .. }
            | Self::NoCredit { .. }
            | Self::UnknownModel { .. }
            | Self::Rejected { .. }
            | Self::Redirected { .. }
            | Self::NotStreamed { .. }
            | Self::Exhausted { .. }
            | Self::NoBudget { .. }
            | Self::TooLong { .. } => false,
        }
    }

    /// Whether the call may succeed on another route. A route is a provider with one of its models.
    pub fn is_for_another_route(&self) -> bool {
        let of_this_route = matches!(
            self,
            Self::Denied { .. }
                | Self::NoCredit { .. }
                | Self::UnknownModel { .. }
                | Self::Redirected { .. }
                | Self::Rejected { .. }
                | Self::Exhausted { .. }
                | Self::Status { .. }
                | Self::Html { .. }
                | Self::NotStreamed { .. }
                | Self::Stream { .. }
                | Self::UnparsedAnswer { .. }
        );
        of_this_route || self.is_retried()
    }

    /// Whether this is a rate-limit or overload error.
    pub fn is_overload(&self) -> bool {
        matches!(self.cause(), Self::RateLimited { .. } | Self::Overloaded { .. })
    }

    /// Returns the route that failed, that is, the provider and its model. Returns `None` if the
    /// error belongs to no route, such as an error about a budget.
    pub fn route(&self) -> Option<&ModelRoute> {
        match self.cause() {
            Self::Connect { route, .. }
            | Self::NoResponse { route, .. }
            | Self::Timeout { route, .. }
            | Self::RateLimited { route, .. }
            | Self::Overloaded { route, .. }
            | Self::Denied { route, .. }
            | Self::NoCredit { route, .. }
            | Self::UnknownModel { route, .. }
            | Self::Rejected { route, .. }
            | Self::Status { route, .. }
            | Self::Redirected { route, .. }
            | Self::Html { route, .. }
            | Self::Empty { route, .. }
            | Self::InvalidEvent { route, .. }
            | Self::NotStreamed { route, .. }
            | Self::Stream { route, .. }
            | Self::UnparsedAnswer { route, .. }
            | Self::Cut { route, .. }
            | Self::TooLong { route, .. } => Some(route),
            Self::NotRecorded { .. }
            | Self::NotOnRecord { .. }
            | Self::Exhausted { .. }
            | Self::NoBudget { .. }
            | Self::NoPump
            | Self::GaveUp { .. }
            | Self::NotRepeated { .. } => None,
        }
    }

    /// Whether this program sent the request and then aborted it.
    pub fn is_broken_off(&self) -> bool {
        match self.cause() {
            Self::Timeout { phase, .. } => *phase != CallPhase::Connect,
            Self::TooLong { .. } => true,
            _ => false,
        }
    }

    /// Whether the answer had begun when the request failed: its stream ended early or contained an
    /// event that cannot be read, or a document came in place of the stream.
    pub fn has_stream(&self) -> bool {
        match self.cause() {
            Self::Cut { bytes, .. } => *bytes > 0,
            Self::InvalidEvent { .. } | Self::NotStreamed { .. } => true,
            _ => false,
        }
    }

    /// Whether the request reached the provider, and the connection then ended before any byte of
    /// an answer. The provider may have worked on such a request.
    pub fn is_unanswered(&self) -> bool {
        match self.cause() {
            Self::NoResponse { is_request_sent, .. } => *is_request_sent,
            Self::Cut { bytes, .. } => *bytes == 0,
            Self::Empty { .. } => true,
            _ => false,
        }
    }

    /// Returns the time that the caller must wait before the next request. Returns `None` if the
    /// provider has not stated a waiting time.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause() {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Returns the provider's message if the provider of any route rejected content that the model
    /// had written. The model must see this message. Returns `None` for any other error.
    pub fn feedback(&self) -> Option<&str> {
        match self.rejection()? {
            Self::Rejected { message, .. } | Self::UnparsedAnswer { message, .. } => Some(message),
            _ => None,
        }
    }

    /// Returns the latest error of a route whose provider rejected the request, or the model's
    /// answer to it. `None` if no provider rejected either.
    pub fn rejection(&self) -> Option<&Self> {
        match self {
            Self::Rejected { .. } | Self::UnparsedAnswer { .. } => Some(self),
            Self::GaveUp { last, others, .. } => {
                last.rejection().or_else(|| others.iter().rev().find_map(Self::rejection))
            }
            Self::NotRepeated { last, .. } => last.rejection(),
            _ => None,
        }
    }

    /// Returns the kind of the error as one word from a closed list.
    pub fn word(&self) -> &'static str {
        match self.cause() {
            Self::NotRecorded { .. } => "no-turn",
            // In a trial, the pump ends the call by this word.
            Self::NotOnRecord { .. } => "not-recorded",
            Self::Connect { .. } => "connect",
            Self::Timeout { .. } => "timeout",
            Self::RateLimited { .. } => "rate-limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Denied { .. } => "denied",
            Self::NoCredit { .. } => "no-credit",
            Self::UnknownModel { .. } => "unknown-model",
            Self::Rejected { .. } => "rejected",
            Self::Status { .. } => "status",
            Self::Redirected { .. } => "redirected",
            Self::Html { .. } => "html",
            Self::Empty { .. } => "empty",
            // The list of words is closed, and a stream that cannot be read is the nearest word.
            Self::InvalidEvent { .. } | Self::NotStreamed { .. } => "invalid-event",
            Self::Stream { .. } | Self::UnparsedAnswer { .. } => "stream",
            // The list of words is closed, and a connection that ended is the nearest word.
            Self::Cut { .. } | Self::NoResponse { .. } => "cut",
            Self::TooLong { .. } => "too-long",
            Self::Exhausted { .. } => "exhausted",
            Self::NoBudget { .. } => "budget-spent",
            Self::NoPump => "pump-stopped",
            // These errors always have a cause, so they are never a cause themselves.
            Self::GaveUp { .. } | Self::NotRepeated { .. } => "gave-up",
        }
    }

    /// Returns the HTTP status that this error states; `None` if it states no status.
    pub fn status(&self) -> Option<u16> {
        match self.cause() {
            Self::Overloaded { status, .. }
            | Self::Denied { status, .. }
            | Self::NoCredit { status, .. }
            | Self::UnknownModel { status, .. }
            | Self::Rejected { status, .. }
            | Self::Status { status, .. }
            | Self::Redirected { status, .. }
            | Self::Html { status, .. }
            | Self::Empty { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the underlying error. If the call failed after several attempts, this is the error
    /// that decides whether a retry may help.
    pub fn cause(&self) -> &Self {
        match self {
            Self::GaveUp { last, .. } | Self::NotRepeated { last, .. } => last.cause(),
            error => error,
        }
    }
}

/// Whether a retry may succeed after a response with this HTTP status. Applies only to a status
/// that has no variant of [`Error`] of its own.
pub(super) const fn is_retried_status(status: u16) -> bool {
    status >= 500 || status == 408 || status == 409
}

fn after_colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

fn after_colon_or_unnamed(kind: &str) -> String {
    if kind.is_empty() { " without a name".to_owned() } else { after_colon(kind) }
}

/// Returns the advice for an HTML page with this HTTP status. Empty for a fault of the server.
fn advice_on_page(status: u16) -> &'static str {
    if status >= 500 {
        ""
    } else {
        "; see that `base_url` is the API's address and that no proxy answers in its place"
    }
}

/// Returns the errors of other routes as the end of a text, latest first. If they are many, states
/// only the number of the remaining ones.
fn after_semicolons(others: &[Error]) -> String {
    let (older, shown) = others.split_at(others.len().saturating_sub(limits::OTHER_ROUTES_SHOWN));
    let mut text: String = shown.iter().rev().map(|error| format!("; {error}")).collect();
    match older.len() {
        0 => {}
        1 => text.push_str("; one more route failed"),
        more => text.push_str(&format!("; {more} more routes failed")),
    }
    text
}

/// Returns the number of tries as the end of a text. Empty if no request was sent.
fn after_tries(tries: u32) -> String {
    match tries {
        0 => String::new(),
        1 => "; given up after 1 try".to_owned(),
        tries => format!("; given up after {tries} tries"),
    }
}

fn later(retry_after: Option<Duration>) -> String {
    let after = retry_after.filter(|after| !after.is_zero());
    after.map(|after| format!("; it asks to wait {after:?}")).unwrap_or_default()
}
