//! Messages, as Anthropic speaks them.

mod own;
mod read;
mod write;

pub(super) use write::body;

use super::key::Key;
use super::remote::{Dialect, Reader};

/// The version of the format that is asked for.
const VERSION: &str = "2023-06-01";

/// The format.
#[derive(Debug)]
pub(super) struct Messages;

impl Dialect for Messages {
    fn path(&self) -> &'static str {
        "/messages"
    }

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        let version = ("anthropic-version", VERSION.to_owned());
        let key = key.map(|key| ("x-api-key", key.expose().to_owned()));
        std::iter::once(version).chain(key).collect()
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read::Stream::default())
    }
}
