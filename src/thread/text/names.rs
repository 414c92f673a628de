//! Interned names. The reader allocates each name once for all records that are read together, and
//! these records share the name.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;

use crate::ids::{IdError, ListenerName, PayloadName, ThreadId};
use crate::thread::Map;

/// The names in records that are read together, each allocated once. Must not be shared between OS
/// threads, because they would contend for the reference counts of the names.
#[derive(Debug, Default)]
pub struct InternedNames {
    listeners: HashSet<ListenerName, foldhash::fast::RandomState>,
    threads: HashSet<ThreadId, foldhash::fast::RandomState>,
    payloads: Map<Box<str>, PayloadName>,
}

impl InternedNames {
    pub fn listener(&mut self, text: &str) -> Result<ListenerName, IdError> {
        known(&mut self.listeners, text, ListenerName::parse)
    }

    pub fn thread(&mut self, text: &str) -> Result<ThreadId, IdError> {
        known(&mut self.threads, text, ThreadId::parse)
    }

    pub fn payload(&mut self, text: &str) -> Result<PayloadName, IdError> {
        if let Some(name) = self.payloads.get(text) {
            return Ok(name.clone());
        }
        let name = PayloadName::parse(text)?;
        self.payloads.insert(text.into(), name.clone());
        Ok(name)
    }
}

fn known<N: Clone + Eq + Hash + Borrow<str>>(
    known: &mut HashSet<N, foldhash::fast::RandomState>,
    text: &str,
    parse: impl FnOnce(&str) -> Result<N, IdError>,
) -> Result<N, IdError> {
    if let Some(name) = known.get(text) {
        return Ok(name.clone());
    }
    let name = parse(text)?;
    known.insert(name.clone());
    Ok(name)
}
