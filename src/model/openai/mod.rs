//! Chat completions, as OpenAI defined them and many others speak them.

mod calls;
mod read;
mod write;

use super::key::Key;
use super::remote::{Dialect, Options, Quirks, Reader};
use super::request::Request;

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

    fn body(&self, request: &Request, options: &Options) -> String {
        write::body(request, options, self.quirks)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read::Stream::new(self.quirks))
    }
}
