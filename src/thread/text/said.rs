//! What stands in the text of a record, before what was left out is put back in.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::clock::Time;
use crate::contract::Gather;
use crate::envelope::{Disposition, Kind, Turn};
use crate::ids::{Attempt, CallId, Digest, MessageId};
use crate::thread::{Closing, Fact, Input};

#[derive(Deserialize)]
#[serde(bound(deserialize = "SaidInput<'t>: Deserialize<'de>, SaidFact<'t>: Deserialize<'de>"))]
pub struct Text<'t> {
    pub input: SaidInput<'t>,
    pub facts: Vec<SaidFact<'t>>,
}

pub enum SaidInput<'t> {
    Submitted(Box<Submitted<'t>>),
    Outcome(Outcome<'t>),
    Other(Input),
}

pub enum SaidFact<'t> {
    Heard(Heard),
    Disposed(Disposed),
    Accepted(Box<Accepted<'t>>),
    Closed(Closed),
    Other(Box<Fact>),
}

#[derive(Deserialize)]
pub struct Submitted<'t> {
    pub id: MessageId,
    #[serde(borrow)]
    pub client: Cow<'t, str>,
    pub thread: Option<String>,
    pub suggested: Option<String>,
    pub key: Option<String>,
    pub verdict: SaidVerdict,
}

#[derive(Deserialize)]
pub struct Outcome<'t> {
    #[serde(borrow)]
    pub listener: Cow<'t, str>,
    pub call: CallId,
    pub attempt: Attempt,
    pub verdicts: Vec<SaidVerdict>,
    pub turn: Option<Turn>,
}

#[derive(Deserialize)]
pub struct Heard {
    pub call: Option<CallId>,
    pub attempt: Option<Attempt>,
}

#[derive(Deserialize)]
pub struct Disposed {
    pub message: MessageId,
    pub how: Disposition,
}

#[derive(Deserialize)]
pub struct Closed {
    pub call: Option<CallId>,
    pub how: Closing,
}

#[derive(Deserialize)]
pub struct Accepted<'t> {
    pub id: MessageId,
    pub kind: Kind,
    #[serde(borrow)]
    pub from: Cow<'t, str>,
    #[serde(borrow)]
    pub to: Cow<'t, str>,
    #[serde(borrow)]
    pub thread: Option<Cow<'t, str>>,
    pub seq: u64,
    pub cause: Option<MessageId>,
    /// Not there: what the kind says. `null`: none.
    #[serde(default, deserialize_with = "there")]
    pub call: Option<Option<CallId>>,
    pub time: Option<Time>,
    #[serde(borrow)]
    pub name: Cow<'t, str>,
    pub digest: Digest,
    pub length: usize,
    #[serde(borrow)]
    pub opening: Option<SaidOpening<'t>>,
    pub key: Option<String>,
}

fn there<'t, D: serde::Deserializer<'t>>(d: D) -> Result<Option<Option<CallId>>, D::Error> {
    Option::deserialize(d).map(Some)
}

#[derive(Deserialize)]
pub struct SaidOpening<'t> {
    pub by: By,
    #[serde(borrow)]
    pub name: Option<Cow<'t, str>>,
    pub call: Option<CallId>,
    #[serde(borrow)]
    pub thread: Option<Cow<'t, str>>,
    pub group: Option<(CallId, Gather)>,
    #[serde(default)]
    pub forward: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Client,
    Call,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaidVerdict {
    Passed(FactOrDigest),
    Refused(FactOrDigest),
}

pub enum FactOrDigest {
    Fact(usize),
    Digest(Digest),
}

impl<'t> Deserialize<'t> for FactOrDigest {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = FactOrDigest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fact's number or a digest")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<FactOrDigest, E> {
                usize::try_from(number).map(FactOrDigest::Fact).map_err(E::custom)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FactOrDigest, E> {
                Digest::parse(text).map(FactOrDigest::Digest).map_err(E::custom)
            }
        }
        d.deserialize_any(Either)
    }
}

/// An object of one key, which says what its value is.
struct One<T>(PhantomData<T>);

trait Keyed<'t>: Sized {
    fn of<A: MapAccess<'t>>(key: &'t str, map: &mut A) -> Result<Self, A::Error>;
}

impl<'t, T: Keyed<'t>> Visitor<'t> for One<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of one key")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<T, A::Error> {
        let key = map.next_key()?.ok_or_else(|| A::Error::custom("an empty object"))?;
        T::of(key, &mut map)
    }
}

/// What is rare, or written as it is, is read by its own rules.
fn other<'t, T: DeserializeOwned, A: MapAccess<'t>>(key: &str, map: &mut A) -> Result<T, A::Error> {
    let value: &RawValue = map.next_value()?;
    let key = serde_json::to_string(key).map_err(A::Error::custom)?;
    serde_json::from_str(&format!("{{{key}:{value}}}")).map_err(A::Error::custom)
}

impl<'t> Keyed<'t> for SaidInput<'t> {
    fn of<A: MapAccess<'t>>(key: &'t str, map: &mut A) -> Result<Self, A::Error> {
        Ok(match key {
            "submitted" => Self::Submitted(map.next_value()?),
            "outcome" => Self::Outcome(map.next_value()?),
            key => Self::Other(other(key, map)?),
        })
    }
}

impl<'t> Keyed<'t> for SaidFact<'t> {
    fn of<A: MapAccess<'t>>(key: &'t str, map: &mut A) -> Result<Self, A::Error> {
        Ok(match key {
            "heard" => Self::Heard(map.next_value()?),
            "disposed" => Self::Disposed(map.next_value()?),
            "accepted" => Self::Accepted(map.next_value()?),
            "call-closed" => Self::Closed(map.next_value()?),
            key => Self::Other(other(key, map)?),
        })
    }
}

impl<'t> Deserialize<'t> for SaidInput<'t> {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(One(PhantomData))
    }
}

impl<'t> Deserialize<'t> for SaidFact<'t> {
    fn deserialize<D: serde::Deserializer<'t>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(One(PhantomData))
    }
}
