//! The encoding of requests and responses on the control socket and on NATS: one line with the
//! version of the protocol, then JSON. An example is `organism/4 {"do":"status"}`.
//!
//! A line without a version has version 1. Client and organism should be the same program, so each
//! of them refuses every version other than its own.

use serde::{Deserialize, Serialize};

use super::ServiceResponse;
use crate::limits;

/// Version of the service protocol. Must be increased with every change of a request or a response,
/// even if the change only adds a variant or an optional field. A program without the change could
/// not read the variant, and would ignore the field. `tests/it/fixtures/wire_versions.rs` compares
/// the definitions of requests and responses with the version. This test does not notice a change
/// of a type's own `Serialize` or text form.
pub const VERSION: u32 = 4;

/// Version of a line that names no version.
const UNNAMED_VERSION: u32 = 1;

const MARK: &str = "organism/";

#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("it is of version {theirs} of the service protocol")]
    OtherVersion { theirs: u32 },
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a request or a response, without the line feed.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = format!("{MARK}{VERSION} ").into_bytes();
    serde_json::to_writer(&mut line, message)?;

    Ok(line)
}

/// Decodes a request or a response. Fails if its version is not [`VERSION`].
pub fn decode<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, DecodeError> {
    let (theirs, json) = split(line);
    if theirs != VERSION && !crate::mutant::mutant("take-any-service-version") {
        return Err(DecodeError::OtherVersion { theirs });
    }

    Ok(serde_json::from_slice(json)?)
}

/// Decodes a request. On failure, returns the encoded response that refuses the request.
pub fn decode_request<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, Vec<u8>> {
    decode(line).map_err(|error| match error {
        DecodeError::OtherVersion { theirs } => refuse_version(theirs),
        // The control socket reads no further, so the line is cut off.
        DecodeError::Malformed(_) if line.len() >= limits::FRAME_BYTES_MAX => {
            let max = limits::FRAME_BYTES_MAX;
            let response = ServiceResponse::failed(format_args!(
                "nothing was done, because the request has more than {max} bytes; send less in \
                 one request"
            ));
            encode(&response).expect("plain data is JSON")
        }
        DecodeError::Malformed(error) => {
            let response = ServiceResponse::failed(format_args!(
                "nothing was done, because it is not a request of version {VERSION} of the service \
                 protocol ({error}); use the program that the organism runs with, or restart the \
                 organism with this one"
            ));
            encode(&response).expect("plain data is JSON")
        }
    })
}

/// Encodes the response that refuses a request of protocol version `theirs`. For a sender of
/// version 1, the response is plain JSON, because this sender can read nothing else. For any other
/// sender, the response begins with this program's version. From this version, the sender can see
/// that it cannot read the JSON that follows.
pub fn refuse_version(theirs: u32) -> Vec<u8> {
    let text = format!(
        "nothing was done: the request is of version {theirs} of the service protocol, and this \
         organism speaks version {VERSION}; use the program that the organism runs with, or \
         restart the organism with this one"
    );
    let response = ServiceResponse::Failed(text);

    // A sender of version 1 reads plain JSON. A sender of a later version reads the version first,
    // and refuses.
    let encoded =
        if theirs == UNNAMED_VERSION { serde_json::to_vec(&response) } else { encode(&response) };
    encoded.expect("plain data is JSON")
}

/// Splits a line into its version and its JSON.
fn split(line: &[u8]) -> (u32, &[u8]) {
    let unnamed = (UNNAMED_VERSION, line);
    let Some(rest) = line.strip_prefix(MARK.as_bytes()) else { return unnamed };
    let Some(space) = memchr::memchr(b' ', rest) else { return unnamed };
    let (version, json) = rest.split_at(space);
    let version = std::str::from_utf8(version).ok().and_then(|version| version.parse().ok());

    version.map_or(unnamed, |version| (version, json))
}
