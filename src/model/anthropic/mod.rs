//! Wire format of Anthropic's messages API.

mod opaque_blocks;
mod read;
mod write;

pub(super) use write::{body, max_tokens};

use super::key::ProviderKey;
use super::remote::{AnswerReader, WireDialect};

/// Version of the API's format, sent with each request.
const VERSION: &str = "2023-06-01";

/// Wire format of Anthropic's messages API.
#[derive(Debug)]
pub(super) struct AnthropicFormat;

impl WireDialect for AnthropicFormat {
    fn headers(&self, key: Option<&ProviderKey>) -> Vec<(&'static str, String)> {
        let version = ("anthropic-version", VERSION.to_owned());
        let key = key.map(|key| ("x-api-key", key.expose().to_owned()));
        std::iter::once(version).chain(key).collect()
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(read::AnthropicReader::default())
    }
}
