//! Typed payloads: the XML element of a Rust type, and the encoding of answers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ids::PayloadName;
use crate::xml::escape::escape_attribute;

/// A Rust type for one payload name.
///
/// A field becomes a child element, with `#[serde(rename = "@x")]` an attribute, and with
/// `#[serde(rename = "$text")]` the text of the element.
pub trait TypedPayload: Serialize + DeserializeOwned {
    const NAMESPACE: &'static str;
    /// The local name of the element.
    const NAME: &'static str;
    /// Whether child elements are in the namespace of the element, as with
    /// `elementFormDefault="qualified"` in an XML schema.
    const QUALIFIED: bool = true;

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

    /// Creates an answer with one payload. Fails if `T` has no form in XML, such as a map whose
    /// keys are no XML names.
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

    pub fn payloads(&self) -> &[String] {
        &self.payloads
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

/// The types that a handler may return: `()`, a payload, a list of payloads, or a [`Reply`].
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
