//! Wire format of OpenAI's chat completions API, which many other providers have adopted.

mod calls;
mod read;
mod reasoning_details;
mod sent_calls;
mod write;

pub(super) use write::body;

use super::key::ProviderKey;
use super::remote::{AnswerReader, OpenAiQuirks, WireDialect};

/// OpenAI's wire format for chat completions. `quirks` states how the format of one provider
/// differs from OpenAI's format.
#[derive(Debug)]
pub(super) struct ChatCompletions {
    pub quirks: OpenAiQuirks,
}

impl WireDialect for ChatCompletions {
    fn headers(&self, key: Option<&ProviderKey>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose()))).into_iter().collect()
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(read::OpenAiReader::new(self.quirks))
    }
}
