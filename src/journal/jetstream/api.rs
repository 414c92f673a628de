//! The API of JetStream: JSON over request and reply.
//!
//! This module knows nothing of records.

use std::time::Duration;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::limits;
use crate::nats::{BlockingClient, HeaderMap, NatsRequest, NoResponse};

/// Error codes of JetStream that callers of this module distinguish.
pub mod code {
    pub const NO_MESSAGE: u32 = 10_037;
    pub const STREAM_NOT_FOUND: u32 = 10_059;
    pub const STREAM_NAME_IN_USE: u32 = 10_058;
    pub const WRONG_LAST_SEQUENCE: u32 = 10_071;
    /// General code of a server that cannot serve a request now, but may serve it later: the
    /// cluster is electing a leader, or JetStream is disabled for the account.
    pub const UNAVAILABLE: u32 = 503;
    /// Error code of a server that is no longer the leader. In this case, the general code in the
    /// response is not [`UNAVAILABLE`].
    pub const NOT_LEADER: u32 = 10_009;
    /// Error codes from accounts, servers and streams that have reached their limits.
    pub const FULL: [u32; 4] = [10_002, 10_023, 10_047, 10_077];
}

/// A client of the JetStream API, on one NATS connection.
#[derive(Debug, Clone)]
pub struct JetStreamApi {
    pub link: Arc<BlockingClient>,
}

/// Why a JetStream request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiFailure {
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    #[error("{description} ({err_code})")]
    Refused { err_code: u32, description: String },
    #[error("the response is not a response of JetStream: {0}")]
    Garbled(String),
}

impl ApiFailure {
    pub fn is(&self, code: u32) -> bool {
        matches!(self, Self::Refused { err_code, .. } if *err_code == code)
    }

    pub fn is_full(&self) -> bool {
        matches!(self, Self::Refused { err_code, .. } if code::FULL.contains(err_code))
    }
}

#[derive(Debug, Deserialize)]
struct ErrorReply {
    #[serde(rename = "error")]
    error: ApiError,
}

#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(rename = "code", default)]
    code: u32,
    #[serde(rename = "err_code", default)]
    err_code: u32,
    #[serde(rename = "description", default)]
    description: String,
}

impl From<ApiError> for ApiFailure {
    fn from(ApiError { code, err_code, description }: ApiError) -> Self {
        // Some errors have no specific number, only the general code.
        let err_code = if err_code == 0 { code } else { err_code };
        let is_full = code::FULL.contains(&err_code);
        let is_passing = code == code::UNAVAILABLE || err_code == code::NOT_LEADER;
        if is_passing && !is_full {
            return Self::NoResponse(NoResponse::Unserved(format!("{description} ({err_code})")));
        }
        Self::Refused { err_code, description }
    }
}

/// A stream, as the server describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct StreamDescription {
    #[serde(rename = "config")]
    pub config: Value,
    #[serde(rename = "created")]
    pub created: String,
    #[serde(rename = "state")]
    pub state: StreamExtent,
    #[serde(rename = "cluster")]
    cluster: Option<StreamCluster>,
}

/// The servers that keep a stream. A single server without a cluster does not name itself in its
/// response.
#[derive(Debug, Clone, Deserialize)]
struct StreamCluster {
    #[serde(rename = "leader")]
    leader: Option<String>,
    #[serde(rename = "replicas", default)]
    replicas: Vec<StreamReplica>,
}

#[derive(Debug, Clone, Deserialize)]
struct StreamReplica {
    #[serde(rename = "name")]
    name: String,
    #[serde(rename = "offline", default)]
    offline: bool,
}

impl StreamDescription {
    /// Returns the names of the servers that keep the stream; `None` for a single server without a
    /// cluster.
    pub fn replica_names(&self) -> Option<Vec<String>> {
        self.replica_names_where(|_| true)
    }

    /// Returns the names of the servers that keep the stream and are online; `None` for a single
    /// server without a cluster.
    pub fn online_replica_names(&self) -> Option<Vec<String>> {
        self.replica_names_where(|replica| !replica.offline)
    }

    fn replica_names_where(&self, counts: impl Fn(&StreamReplica) -> bool) -> Option<Vec<String>> {
        let StreamCluster { leader, replicas } = self.cluster.as_ref()?;
        let counted = replicas.iter().filter(|replica| counts(replica));
        let others = counted.map(|replica| replica.name.clone());
        let all: Vec<_> = leader.iter().cloned().chain(others).collect();
        (!all.is_empty()).then_some(all)
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub struct StreamExtent {
    #[serde(rename = "messages")]
    pub messages: u64,
    #[serde(rename = "first_seq")]
    pub first_seq: u64,
    #[serde(rename = "last_seq")]
    pub last_seq: u64,
}

/// Response to a publish request. If the request was refused, `error` is set, and the sequence
/// number means nothing.
#[derive(Debug, Deserialize)]
struct PublishReply {
    #[serde(rename = "error")]
    error: Option<ApiError>,
    #[serde(rename = "seq", default)]
    seq: u64,
}

/// A message stored in a stream.
#[derive(Debug)]
pub struct StoredMessage {
    pub seq: u64,
    headers: String,
    pub body: Vec<u8>,
}

impl StoredMessage {
    /// Returns the value of the header `name`; `None` if the message does not have this header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

#[derive(Deserialize)]
struct GetReply {
    #[serde(rename = "message")]
    message: EncodedMessage,
}

#[derive(Deserialize)]
struct EncodedMessage {
    #[serde(rename = "seq")]
    seq: u64,
    #[serde(rename = "hdrs", default)]
    hdrs: String,
    #[serde(rename = "data", default)]
    data: String,
}

impl JetStreamApi {
    pub fn info(&self, stream: &str) -> Result<StreamDescription, ApiFailure> {
        self.call(format!("$JS.API.STREAM.INFO.{stream}"), &json!({}))
    }

    pub fn create(&self, stream: &str, config: &Value) -> Result<StreamDescription, ApiFailure> {
        self.call(format!("$JS.API.STREAM.CREATE.{stream}"), config)
    }

    pub fn message(&self, stream: &str, seq: u64) -> Result<StoredMessage, ApiFailure> {
        self.message_within(limits::STREAM_TIMEOUT, stream, seq)
    }

    pub fn message_within(
        &self,
        patience: Duration,
        stream: &str,
        seq: u64,
    ) -> Result<StoredMessage, ApiFailure> {
        let question = get(stream, &json!({ "seq": seq }));
        stored(self.link.request(NatsRequest { patience, ..question }))
    }

    /// Returns the last message of a subject in the stream; `None` if the subject has no message.
    pub fn last(&self, stream: &str, subject: &str) -> Result<Option<StoredMessage>, ApiFailure> {
        match stored(self.link.request(get(stream, &json!({ "last_by_subj": subject })))) {
            Err(failed) if failed.is(code::NO_MESSAGE) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Returns the messages with the numbers `seqs`, in the same order.
    pub fn messages(
        &self,
        stream: &str,
        seqs: impl Iterator<Item = u64>,
    ) -> Result<Vec<StoredMessage>, ApiFailure> {
        let questions = seqs.map(|seq| get(stream, &json!({ "seq": seq }))).collect();
        self.link.request_all(questions).into_iter().map(stored).collect()
    }

    /// Publishes a message on `subject`, which belongs to a stream. Returns the sequence number of
    /// the message in that stream.
    pub fn publish(
        &self,
        subject: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<u64, ApiFailure> {
        self.publish_within(limits::STREAM_TIMEOUT, subject, headers, body)
    }

    /// Publishes as [`JetStreamApi::publish`] does, and waits at most `patience` for the response.
    pub fn publish_within(
        &self,
        patience: Duration,
        subject: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<u64, ApiFailure> {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        let subject = subject.to_owned();
        let headers = Some(map);
        let question = NatsRequest { subject, headers, body, patience };
        let PublishReply { error, seq } = read(&self.link.request(question)?)?;
        error.map_or(Ok(seq), |refusal| Err(refusal.into()))
    }

    fn call<T: DeserializeOwned>(&self, subject: String, body: &Value) -> Result<T, ApiFailure> {
        read(&self.link.request(question(subject, body))?)
    }
}

fn question(subject: String, body: &Value) -> NatsRequest {
    let body = body.to_string().into_bytes();
    NatsRequest { subject, headers: None, body, patience: limits::STREAM_TIMEOUT }
}

fn get(stream: &str, which: &Value) -> NatsRequest {
    question(format!("$JS.API.STREAM.MSG.GET.{stream}"), which)
}

fn read<T: DeserializeOwned>(reply: &[u8]) -> Result<T, ApiFailure> {
    serde_json::from_slice(reply).map_err(|error| match serde_json::from_slice(reply) {
        Ok(ErrorReply { error }) => error.into(),
        Err(_) => ApiFailure::Garbled(error.to_string()),
    })
}

fn stored(reply: Result<Vec<u8>, NoResponse>) -> Result<StoredMessage, ApiFailure> {
    let GetReply { message } = read(&reply?)?;
    let decode = |text: &str| STANDARD.decode(text).map_err(|e| ApiFailure::Garbled(e.to_string()));
    let headers = String::from_utf8_lossy(&decode(&message.hdrs)?).into_owned();
    Ok(StoredMessage { seq: message.seq, headers, body: decode(&message.data)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Error;
    use crate::journal::jetstream::{creation_failed, read_failed};

    #[test]
    fn a_server_that_serves_nothing_now_is_away_and_its_stream_not_called_broken() {
        let api_error = |code: u32, err_code: u32| {
            let error = json!({ "code": code, "err_code": err_code, "description": "why" });
            let answer = json!({ "type": "io.nats.jetstream.api.v1", "error": error });
            read::<StreamDescription>(answer.to_string().as_bytes()).unwrap_err()
        };

        // Two servers between leaders, an account without JetStream, a server without JetStream.
        for (code, err_code) in [(503, 10_008), (500, 10_009), (503, 10_039), (503, 10_076)] {
            let failed = api_error(code, err_code);
            assert_eq!(failed.to_string(), format!("not served now: why ({err_code})"));
            for error in
                [read_failed("it", failed.clone()), creation_failed(String::new(), "it", failed)]
            {
                assert!(matches!(error, Error::Unavailable { .. }), "{error}");
            }
        }

        let failed = api_error(503, 10_023);
        assert!(matches!(read_failed("it", failed), Error::Full { .. }));

        let failed = api_error(400, 10_052);
        assert!(matches!(read_failed("it", failed.clone()), Error::Broken { .. }));
        assert!(matches!(creation_failed(String::new(), "it", failed), Error::UnsafeServer { .. }));
    }
}
