//! Identifiers: one newtype for each kind. An identifier is parsed where it enters the program.
//! After that, it is trusted.
//!
//! This module uses no other module of this crate except `limits`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ring::digest::{self, SHA256};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hex;
use crate::limits;

/// Why a text is not a valid identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {expected}")]
pub struct IdError {
    pub what: &'static str,
    pub text: String,
    pub expected: &'static str,
}

impl IdError {
    fn new(what: &'static str, text: &str, expected: &'static str) -> Self {
        let text = text.chars().take(limits::ID_ECHO_CHARS_MAX).collect();
        Self { what, text, expected }
    }
}

/// A serde visitor that parses an identifier from a borrowed text.
struct Parsed<T>(fn(&str) -> Result<T, IdError>);

impl<T> serde::de::Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an identifier")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.0(text).map_err(E::custom)
    }
}

/// Displays an identifier as the value that it wraps.
macro_rules! displayed_as_inner {
    ($id:ident) => {
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Deserialises an identifier from a text, which `$parse` parses.
macro_rules! read_from_text {
    ($id:ident, $parse:expr) => {
        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(Parsed($parse))
            }
        }
    };
}

/// Serialises an identifier as the text that `Display` writes, and deserialises it with `$parse`.
macro_rules! serialised_as_text {
    ($id:ident, $parse:expr) => {
        impl Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        read_from_text!($id, $parse);
    };
}

/// Id of a message. A message from outside gets a UUIDv7. A message that the pump emits gets a
/// UUIDv5, which is derived from the journal's id, the position of the record, and the number of
/// ids that were already derived for this record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub Uuid);

displayed_as_inner!(MessageId);

impl std::str::FromStr for MessageId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        Uuid::parse_str(text).map(Self).map_err(|_| IdError::new("message id", text, "a UUID"))
    }
}

/// Id of a call: the id of the message that opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub MessageId);

displayed_as_inner!(CallId);

/// Id of a timer. It is derived in the same way as the id of a message that the pump emits
/// ([`MessageId`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimerId(pub Uuid);

displayed_as_inner!(TimerId);

/// A listener's or client's name: one token, `[a-z][a-z0-9-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ListenerName(Arc<str>);

thread_local! {
    /// The core's name. All messages that the core creates on one OS thread share one copy of the
    /// name, which saves memory. Each OS thread has its own copy, so that pumps on different OS
    /// threads do not contend for the reference count.
    static CORE_NAME: ListenerName = ListenerName(ListenerName::CORE.into());
}

impl ListenerName {
    /// Name under which the core writes messages. No listener can have this name.
    pub const CORE: &'static str = "core";

    /// Name under which the journal records an operator's decision that has no signature.
    pub const OPERATOR: &'static str = "operator";

    pub fn parse(text: &str) -> Result<Self, IdError> {
        let mut bytes = text.bytes();
        let starts = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let goes_on = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if starts && goes_on && text.len() <= limits::NAME_BYTES_MAX {
            Ok(Self(text.into()))
        } else {
            Err(IdError::new(
                "name",
                text,
                "a lowercase letter, then up to 63 lowercase letters, digits or hyphens",
            ))
        }
    }

    pub fn core() -> Self {
        CORE_NAME.with(Self::clone)
    }

    /// Returns the name that stands for an operator whose decision has no signature.
    pub fn operator() -> Self {
        Self(Self::OPERATOR.into())
    }

    pub fn is_core(&self) -> bool {
        &*self.0 == Self::CORE
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ListenerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

read_from_text!(ListenerName, ListenerName::parse);

/// A schedule's name: one token in the format of a [`ListenerName`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScheduleName(pub ListenerName);

impl ScheduleName {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the partition whose pump runs this schedule, if the journal has `partitions`
    /// partitions.
    pub fn partition(&self, partitions: u32) -> u32 {
        partition_of(self.as_str(), partitions)
    }
}

displayed_as_inner!(ScheduleName);

/// Id of a thread. A root thread's id is `sess-` and 8 to 59 lowercase alphanumerics; each level
/// beneath the root adds `.label`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ThreadId(Arc<str>);

impl ThreadId {
    pub const ROOT_PREFIX: &'static str = "sess-";
    /// Id of the reserved thread for journal records that belong to no thread tree.
    pub const ORGANISM: &'static str = "sess-organism";

    pub fn organism() -> Self {
        Self(Self::ORGANISM.into())
    }

    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bad = || {
            IdError::new(
                "thread id",
                text,
                "`sess-` and 8 to 59 lowercase letters or digits, then `.label` for each level",
            )
        };

        if text.len() > limits::THREAD_ID_BYTES_MAX {
            return Err(bad());
        }

        let mut parts = text.split('.');
        let root = parts.next().and_then(|r| r.strip_prefix(Self::ROOT_PREFIX)).ok_or_else(bad)?;
        let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = (limits::ROOT_CHARS_MIN..=limits::ROOT_CHARS_MAX).contains(&root.len());
        if !fits || !root.bytes().all(alphanumeric) {
            return Err(bad());
        }

        if parts.all(Self::is_label) { Ok(Self(text.into())) } else { Err(bad()) }
    }

    /// Whether `text` is a valid label of a child thread: `[A-Za-z0-9_-]{1,64}`.
    pub fn is_label(text: &str) -> bool {
        (1..=limits::LABEL_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    }

    /// Returns the id of the child thread with the label `label`. The caller must have checked the
    /// label with [`ThreadId::is_label`].
    pub fn child(&self, label: &str) -> Self {
        debug_assert!(Self::is_label(label));
        Self(format!("{}.{label}", self.0).into())
    }

    pub fn root(&self) -> Self {
        match self.0.split_once('.') {
            Some((root, _)) => Self(root.into()),
            None => self.clone(),
        }
    }

    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('.').map(|(parent, _)| Self(parent.into()))
    }

    /// Returns this thread and the threads above it up to the root, nearest first.
    pub fn upwards(&self) -> impl Iterator<Item = Self> + use<> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// Derives the id of a root thread from a digest. The same digest always gives the same id.
    pub fn root_of(digest: &Digest) -> Self {
        let (head, _) = digest.0.split_first_chunk().expect("a digest has 32 bytes");
        let mut bits = u128::from_be_bytes(*head);
        let mut id = String::from(Self::ROOT_PREFIX);

        for _ in 0..limits::ROOT_CHARS_DERIVED {
            let digit = u32::try_from(bits % 36).unwrap_or_default();
            id.push(char::from_digit(digit, 36).unwrap_or('0'));
            bits /= 36;
        }

        Self(id.into())
    }

    /// Returns the partition of this thread's tree, if the journal has `partitions` partitions. The
    /// partition of a tree never changes.
    pub fn partition(&self, partitions: u32) -> u32 {
        partition_of(&self.root().0, partitions)
    }

    /// Returns the last label of the id, or the whole id of a root thread.
    pub fn label(&self) -> &str {
        self.0.rsplit_once('.').map_or(&*self.0, |(_, label)| label)
    }

    /// Returns the level of this thread beneath its root; 0 for a root thread.
    pub fn depth(&self) -> usize {
        self.0.bytes().filter(|b| *b == b'.').count()
    }

    pub fn is_root(&self) -> bool {
        !self.0.contains('.')
    }

    /// Returns an id with the root `root` and the labels of this id. For example, `sess-a.b.c`
    /// under `sess-x` becomes `sess-x.b.c`. Returns `None` if the new id would be too long.
    pub fn under(&self, root: &Self) -> Option<Self> {
        let labels = self.0.find('.').and_then(|at| self.0.get(at..)).unwrap_or_default();
        let id = format!("{root}{labels}");
        (id.len() <= limits::THREAD_ID_BYTES_MAX).then(|| Self(id.into()))
    }

    /// Returns `text` with every occurrence of this id replaced by the id `other`.
    pub fn replaced_by<'t>(&self, other: &Self, text: &'t str) -> Cow<'t, str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let mut out = String::new();
        let mut copied = 0;
        for (start, found) in text.match_indices(&*self.0) {
            let end = start + found.len();
            let before = text.get(..start);
            let after = text.get(end..);
            let is_longer = before.is_some_and(|before| before.ends_with(is_part))
                || after.is_some_and(|after| after.starts_with(is_part));
            if !is_longer {
                out.push_str(text.get(copied..start).unwrap_or_default());
                out.push_str(&other.0);
                copied = end;
            }
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(text.get(copied..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Whether this thread lies beneath `other`. A thread does not lie beneath itself.
    pub fn is_beneath(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.starts_with('.'))
    }

    /// Whether this thread is `other`, or lies beneath `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        self == other || self.is_beneath(other)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ThreadId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

read_from_text!(ThreadId, ThreadId::parse);

/// Returns the partition that the hash of a text selects.
fn partition_of(text: &str, partitions: u32) -> u32 {
    let digest = Digest::of(text.as_bytes());
    let (head, _) = digest.0.split_first_chunk().expect("a digest has 32 bytes");
    let rest = u64::from_be_bytes(*head) % u64::from(partitions.max(1));
    u32::try_from(rest).unwrap_or_default()
}

/// Name of a payload: `{namespace}local`. Namespaces are compared character by character.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PayloadName {
    pub namespace: Arc<str>,
    pub local: Arc<str>,
}

impl PayloadName {
    pub fn new(namespace: &str, local: &str) -> Self {
        Self { namespace: namespace.into(), local: local.into() }
    }

    /// Parses `{namespace}local`. A name without braces has no namespace.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new("payload name", text, "`{namespace}local`");
        let (namespace, local) = match text.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or_else(bad)?,
            None => ("", text),
        };

        if local.is_empty() || local.contains(['{', '}', ':', ' ']) {
            return Err(bad());
        }

        Ok(Self::new(namespace, local))
    }
}

impl fmt::Display for PayloadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.local)
        } else {
            write!(f, "{{{}}}{}", self.namespace, self.local)
        }
    }
}

serialised_as_text!(PayloadName, PayloadName::parse);

/// Number of an attempt, written `epoch.n`. An attempt is one hand-over of a call to a listener.
/// Each start of the pump raises the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub epoch: u32,
    pub n: u32,
}

impl Attempt {
    /// Returns the attempt number for preview requests of a pump with this epoch. The number is
    /// always `epoch.0`. For an attempt of a call, the part after the epoch is at least 1.
    pub const fn preview(epoch: u32) -> Self {
        Self { epoch, n: 0 }
    }

    pub const fn is_preview(self) -> bool {
        self.n == 0
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.n)
    }
}

impl std::str::FromStr for Attempt {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new("attempt", text, "`epoch.n`");
        let (epoch, n) = text.split_once('.').ok_or_else(bad)?;
        Ok(Self { epoch: epoch.parse().map_err(|_| bad())?, n: n.parse().map_err(|_| bad())? })
    }
}

serialised_as_text!(Attempt, str::parse);

/// Position of a record in the journal, counted from 1 without gaps.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Position(pub u64);

displayed_as_inner!(Position);

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub const ZERO: Self = Self([0; 32]);

    pub fn of(bytes: &[u8]) -> Self {
        Self::finished(digest::digest(&SHA256, bytes))
    }

    /// Returns the digest of the concatenated parts.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut context = digest::Context::new(&SHA256);
        for part in parts {
            context.update(part);
        }
        Self::finished(context.finish())
    }

    fn finished(digest: digest::Digest) -> Self {
        Self(digest.as_ref().try_into().expect("a SHA-256 digest has 32 bytes"))
    }

    /// Returns the digest as 64 hexadecimal digits in ASCII.
    pub fn hex(&self) -> [u8; 64] {
        let mut text = [0u8; 64];
        hex::write_digits(&self.0, &mut text);
        text
    }

    pub fn parse(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::new("digest", text, "64 hexadecimal digits in lower case");
        hex::decode(text).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serialised_as_text!(Digest, Digest::parse);

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares partitions of trees with fixed values. The partition of a tree must never change,
    /// because records are stored by partition.
    #[test]
    fn a_trees_partition_is_for_ever_the_same() {
        for (root, of_4, of_64) in
            [("sess-k3v9t2m8", 1, 57), ("sess-aaaaaaaa", 0, 40), ("sess-00000001", 0, 36)]
        {
            for thread in [root.to_owned(), format!("{root}.research"), format!("{root}.a.b")] {
                let thread = ThreadId::parse(&thread).unwrap();
                let found = [1, 4, 64].map(|partitions| thread.partition(partitions));
                assert_eq!(found, [0, of_4, of_64], "{thread}");
            }
        }

        let derived = ThreadId::root_of(&Digest::of(b"desk\x007"));
        assert_eq!(derived.as_str(), "sess-dlwlenl65wcf1mb2ziwa");
        assert_eq!(ThreadId::parse(derived.as_str()), Ok(derived));
    }
}
