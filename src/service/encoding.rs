//! Encoding of requests and responses: a line of JSON after the version of the protocol, such as
//! `organism/2 {"do":"status"}`. The control socket and pumps on NATS use the same lines.
//!
//! A line without a version is of version 1. Both ends refuse every other version: the protocol is
//! internal, and both ends should be the same program.

use serde::{Deserialize, Serialize};

use super::ServiceResponse;

/// Version of requests and responses. Rises with every change that another version could misread.
pub const VERSION: u32 = 2;

/// The version of lines that do not name one.
const UNNAMED_VERSION: u32 = 1;

const MARK: &str = "organism/";

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("it is of version {theirs} of the service protocol")]
    OtherVersion { theirs: u32 },
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a request or a response, without a line end.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = format!("{MARK}{VERSION} ").into_bytes();
    serde_json::to_writer(&mut line, message)?;

    Ok(line)
}

/// Decodes a request or a response of this version.
pub fn decode<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, DecodeError> {
    let (theirs, json) = split(line);
    if theirs != VERSION && !crate::mutant::mutant("take-any-service-version") {
        return Err(DecodeError::OtherVersion { theirs });
    }

    Ok(serde_json::from_slice(json)?)
}

/// Decodes a request, or returns the line that refuses it.
pub fn decode_request<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, Vec<u8>> {
    decode(line).map_err(|error| match error {
        DecodeError::OtherVersion { theirs } => refuse_version(theirs),
        DecodeError::Malformed(error) => {
            let response = ServiceResponse::failed(format_args!("not a request: {error}"));
            encode(&response).expect("plain data is JSON")
        }
    })
}

/// The line that answers a request of another version, in a form that its sender can read.
pub fn refuse_version(theirs: u32) -> Vec<u8> {
    let text = format!(
        "nothing was done: the request is of version {theirs} of the service protocol, and this \
         organism speaks version {VERSION}; use the program that the organism runs with, or \
         restart the organism with this one"
    );
    let response = ServiceResponse::Failed(text);

    // Senders of version 1 read JSON alone. Later ones read the version and nothing else.
    let encoded =
        if theirs == UNNAMED_VERSION { serde_json::to_vec(&response) } else { encode(&response) };
    encoded.expect("plain data is JSON")
}

/// The version of a line, and its JSON.
fn split(line: &[u8]) -> (u32, &[u8]) {
    let unnamed = (UNNAMED_VERSION, line);
    let Some(rest) = line.strip_prefix(MARK.as_bytes()) else { return unnamed };
    let Some(space) = memchr::memchr(b' ', rest) else { return unnamed };
    let (version, json) = rest.split_at(space);
    let version = std::str::from_utf8(version).ok().and_then(|version| version.parse().ok());

    version.map_or(unnamed, |version| (version, json))
}
