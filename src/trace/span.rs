//! A span that is over: what was done, when, as part of what, and how it went.

use std::borrow::Cow;

use super::{SpanId, TraceParent};
use crate::clock::Time;

/// One piece of work that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace, and itself in it.
    pub at: TraceParent,
    /// What it is part of; nothing for the first of its trace.
    pub parent: Option<SpanId>,
    pub kind: SpanKind,
    pub name: String,
    pub began: Time,
    pub ended: Time,
    /// What kind of failure it ended with, as one word of a closed list.
    pub error: Option<Cow<'static, str>>,
    /// Never what was said: names, ids and numbers alone.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// On which side of an exchange it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    /// Asks and waits for the answer.
    Client,
    /// Hands something to the bus.
    Producer,
    /// Is handed something by the bus.
    Consumer,
}

/// What an attribute is.
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
    /// Of nothing yet: it began and ended at that time.
    pub fn new(at: TraceParent, kind: SpanKind, name: String, began: Time) -> Self {
        let (parent, error, attributes) = (None, None, Vec::new());
        Self { at, parent, kind, name, began, ended: began, error, attributes }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<AttributeValue>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// As [`Span::with`], where there is such a value.
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
