//! Messages, as Anthropic speaks them.

mod own;
mod read;
mod write;

use super::key::Key;
use super::remote::{Dialect, Options, Reader};
use super::request::Request;

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

    fn body(&self, request: &Request, options: &Options) -> String {
        write::body(request, options)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read::Stream::default())
    }
}
