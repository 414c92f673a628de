//! A finished span: name, times, parent and result.

use std::borrow::Cow;

use super::{SpanId, TraceParent};
use crate::clock::Time;

/// One finished piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Id of the trace that contains the span, and id of the span.
    pub at: TraceParent,
    /// Parent span; `None` for the first span of a trace.
    pub parent: Option<SpanId>,
    pub kind: SpanKind,
    pub name: String,
    pub began: Time,
    pub ended: Time,
    /// Type of the failure with which the work ended, as one word of a closed list; `None` without
    /// a failure.
    pub error: Option<Cow<'static, str>>,
    /// Attributes. They contain only names, ids and numbers, never contents of payloads.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// Role of this program in the exchange that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    /// Sends a request and waits for the response.
    Client,
    /// Hands a message to the bus.
    Producer,
    /// Receives a message from the bus.
    Consumer,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    Text(Cow<'static, str>),
    Number(u64),
    Flag(bool),
    Texts(Vec<Cow<'static, str>>),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl Span {
    /// Makes a span without a parent. The span begins and ends at `began`.
    pub fn new(at: TraceParent, kind: SpanKind, name: String, began: Time) -> Self {
        let parent = None;
        let error = None;
        let attributes = Vec::new();
        Self { at, parent, kind, name, began, ended: began, error, attributes }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<AttributeValue>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds an attribute as [`Span::with`] does, if there is a value.
    pub fn with_some(self, name: &'static str, value: Option<impl Into<AttributeValue>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub fn of(mut self, parent: Option<SpanId>) -> Self {
        self.parent = parent;
        self
    }
}
