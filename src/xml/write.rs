//! Writing XML text. (Placeholder until the writer lands.)
use std::borrow::Cow;

pub fn escape_text(text: &str) -> Cow<'_, str> {
    Cow::Owned(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

pub fn escape_attribute(text: &str) -> Cow<'_, str> {
    Cow::Owned(escape_text(text).replace('"', "&quot;").replace('\n', "&#10;"))
}
