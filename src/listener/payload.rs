//! Typed payloads, which are Rust types that stand for XML elements, and the encoding of answers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ids::{Digest, PayloadName};
use crate::system;
use crate::xml::element::Element;
use crate::xml::escape::{escape_attribute, is_xml_char};
use crate::xml::shape::QName;

/// A Rust type for the payloads with one payload name. [`NAMESPACE`](Self::NAMESPACE) and
/// [`NAME`](Self::NAME) form this name.
///
/// Each field of the type becomes a child element of the payload. With `#[serde(rename = "@x")]`, a
/// field becomes an attribute. With `#[serde(rename = "$text")]`, a field becomes the text of the
/// payload's root element, which may be empty or blank. Such a field may be an `Option`, which is
/// `None` if the text is empty.
///
/// Serde writes and reads the fields, with these consequences:
/// - A field that is `None` is written as an empty element, or as an empty attribute. With
///   `#[serde(skip_serializing_if = "Option::is_none")]`, nothing is written.
/// - An infinite `f64` is written as `inf`, and XML Schema requires `INF`. Use a text for such a
///   field.
/// - A child element with attributes and text needs `#[serde(default)]` at its `$text` field, if
///   its text may be empty or blank. Blank text is then read as an empty text.
pub trait TypedPayload: Serialize + DeserializeOwned {
    const NAMESPACE: &'static str;
    /// Local name of the payload's root element.
    const NAME: &'static str;
    /// Whether child elements are in the namespace of the payload's root element, as with
    /// `elementFormDefault="qualified"` in an XML schema.
    const QUALIFIED: bool = true;
    /// Further namespaces whose elements and attributes are fields of the type, such as the
    /// namespaces that the schema imports. Elements and attributes of all other namespaces are
    /// ignored. The entry `"*"` stands for all namespaces, for a type that reads the content of an
    /// `xs:any`. Such a type cannot distinguish two names that differ only in their namespaces.
    const IMPORTED_NAMESPACES: &'static [&'static str] = &[];

    fn payload_name() -> PayloadName {
        PayloadName::new(Self::NAMESPACE, Self::NAME)
    }
}

/// The answer of a handler: zero or more payloads. An answer without payloads acknowledges the
/// call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    payloads: Vec<String>,
}

impl Reply {
    /// Creates an answer without payloads. The caller gets `<ack/>`.
    pub fn ack() -> Self {
        Self::default()
    }

    /// Creates an answer with one payload. Returns an error if `payload` cannot be written as XML,
    /// for example because it contains a map with a key that is no XML name.
    pub fn of<T: TypedPayload>(payload: &T) -> Result<Self, String> {
        Self::ack().and(payload)
    }

    /// Creates an answer with one payload, given as the text of an XML element.
    pub fn raw(element: impl Into<String>) -> Self {
        Self { payloads: vec![element.into()] }
    }

    /// Appends a payload to the answer.
    pub fn and<T: TypedPayload>(mut self, payload: &T) -> Result<Self, String> {
        self.payloads.push(write(payload)?);
        Ok(self)
    }

    /// Appends a payload, given as the text of an XML element.
    #[must_use]
    pub fn and_raw(mut self, element: impl Into<String>) -> Self {
        self.payloads.push(element.into());
        self
    }

    /// Creates the answer for a call whose preview has changed since a person approved the call.
    /// `reason` states the change. A handler that has already changed something must not return
    /// this answer.
    pub fn stale_preview(reason: &str) -> Self {
        Self::raw(core_text(system::STALE_PREVIEW, reason))
    }

    pub fn payloads(&self) -> &[String] {
        &self.payloads
    }

    /// Returns an error if the answer contains a character that XML does not allow. On a pipe, the
    /// character NUL would end the frame.
    pub(super) fn check_characters(&self) -> Result<(), String> {
        let mut characters = self.payloads.iter().flat_map(|payload| payload.chars());
        match characters.find(|c| !is_xml_char(*c)) {
            Some(c) => Err(format!("XML cannot contain the character U+{:04X}", u32::from(c))),
            None => Ok(()),
        }
    }
}

pub(super) fn write<T: TypedPayload>(payload: &T) -> Result<String, String> {
    let tag = if T::QUALIFIED { T::NAME.to_owned() } else { format!("p:{}", T::NAME) };
    let mut text = quick_xml::se::to_string_with_root(&tag, payload)
        .map_err(|e| format!("{} cannot be written as XML: {e}", T::payload_name()))?;
    if !T::NAMESPACE.is_empty() {
        let attribute = if T::QUALIFIED { "xmlns" } else { "xmlns:p" };
        let namespace = escape_attribute(T::NAMESPACE);
        text.insert_str(1 + tag.len(), &format!(" {attribute}=\"{namespace}\""));
    }

    Ok(text)
}

/// A text for a person who must approve or refuse a call. The text shows what the call would do.
/// Two previews are equal if their texts are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview(String);

impl Preview {
    /// Creates a preview. Characters that XML cannot contain are replaced.
    pub fn new(text: &str) -> Self {
        Self(core_text(system::PREVIEW, text))
    }

    /// Returns the digest of the preview's payload. An approval refers to the preview by this
    /// digest.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    pub(super) fn into_reply(self) -> Reply {
        Reply::raw(self.0)
    }
}

/// Returns an XML element with the local name `name` and the content `text`, in the namespace of
/// the system payloads.
fn core_text(name: &str, text: &str) -> String {
    Element::new(QName::new(Some(system::NAMESPACE), name)).with_text(text).to_xml()
}

/// A type that a handler may return: `()`, a payload, a list of payloads, or a [`Reply`].
pub trait IntoReply {
    fn into_reply(self) -> Result<Reply, String>;
}

impl IntoReply for Reply {
    fn into_reply(self) -> Result<Reply, String> {
        Ok(self)
    }
}

impl IntoReply for () {
    fn into_reply(self) -> Result<Reply, String> {
        Ok(Reply::ack())
    }
}

impl<T: TypedPayload> IntoReply for T {
    fn into_reply(self) -> Result<Reply, String> {
        Reply::of(&self)
    }
}

impl<T: TypedPayload> IntoReply for Vec<T> {
    fn into_reply(self) -> Result<Reply, String> {
        self.iter().try_fold(Reply::ack(), Reply::and)
    }
}
