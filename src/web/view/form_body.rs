//! Reads the body of a posted form.

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use tokio::time::timeout;

use super::url_query::UrlQuery;
use crate::limits;

/// Why a form could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormBodyError {
    TooLong,
    /// The client ended or broke the body before it was whole.
    Incomplete,
    /// The body did not arrive within the time limit.
    Late,
}

impl FormBodyError {
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Incomplete => StatusCode::BAD_REQUEST,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Reads a form of at most `bytes_max` bytes. Reads it within a time limit, so that a slow client
/// does not occupy one of the limited number of connections for long.
pub(super) async fn read_form_body(
    body: Body,
    bytes_max: usize,
) -> Result<UrlQuery, FormBodyError> {
    let read = timeout(limits::HTTP_HEAD_TIMEOUT, collect(body, bytes_max));
    let bytes = read.await.map_err(|_| FormBodyError::Late)??;
    Ok(UrlQuery::parse(&String::from_utf8_lossy(&bytes)))
}

async fn collect(body: Body, bytes_max: usize) -> Result<Vec<u8>, FormBodyError> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| FormBodyError::Incomplete)?;
        if chunk.len() > bytes_max - bytes.len() {
            return Err(FormBodyError::TooLong);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(chunks: Vec<Result<&'static str, std::io::Error>>) -> Body {
        Body::from_stream(futures_util::stream::iter(chunks))
    }

    #[tokio::test]
    async fn a_broken_form_is_not_taken_for_a_long_one() {
        let whole = read_form_body(chunks(vec![Ok("a=1"), Ok("&b=2")]), 7).await.unwrap();
        assert_eq!((whole.get("a"), whole.get("b")), (Some("1"), Some("2")));

        let long = read_form_body(chunks(vec![Ok("a=1"), Ok("&b=23")]), 7).await;
        assert_eq!(long, Err(FormBodyError::TooLong));

        let broken = chunks(vec![Ok("a=1"), Err(std::io::ErrorKind::UnexpectedEof.into())]);
        let broken = read_form_body(broken, 7).await;
        assert_eq!(broken, Err(FormBodyError::Incomplete));
    }
}
