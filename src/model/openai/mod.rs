//! Chat completions, as OpenAI defined them and many others speak them.

mod calls;
mod read;
mod write;

pub(super) use write::body;

use super::key::Key;
use super::remote::{Dialect, Quirks, Reader};

/// The format, with what is odd about who speaks it.
#[derive(Debug)]
pub(super) struct ChatCompletions {
    pub quirks: Quirks,
}

impl Dialect for ChatCompletions {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose()))).into_iter().collect()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read::Stream::new(self.quirks))
    }
}
