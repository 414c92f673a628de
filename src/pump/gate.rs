//! The gate: every rule a payload must pass, in order, before it is a message.

use std::sync::Arc;

use crate::contract::{Contracts, Meaning};
use crate::envelope::{Payload, Refusal};
use crate::ids::{ListenerName, PayloadName};
use crate::schema::Schemas;
use crate::system::Primitive;

/// The same for every name that is not the sender's to write, unknown or forbidden.
pub const UNIFORM: &str = "this is no payload name of your vocabulary";

/// The gate of one config: contracts and schemas. Cheap to clone; used from many threads.
#[derive(Clone)]
pub struct Gate {
    pub contracts: Arc<Contracts>,
    pub schemas: Schemas,
}

/// A payload that passed every rule that does not depend on the state of threads: only
/// [`Gate::check`] makes one. The pump turns it into an admitted message or refuses it by
/// thread, budget or order.
#[derive(Debug, Clone)]
pub struct Checked {
    name: PayloadName,
    meaning: Meaning,
    payload: Payload,
    /// Set when the meaning is a primitive.
    primitive: Option<Primitive>,
    /// The payload inside a `spawn-thread` or `send-to-thread`, gated under the same sender.
    inner: Option<Box<Checked>>,
}

impl Checked {
    pub fn name(&self) -> &PayloadName {
        &self.name
    }

    pub fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    pub fn primitive(&self) -> Option<&Primitive> {
        self.primitive.as_ref()
    }

    pub fn inner(&self) -> Option<&Checked> {
        self.inner.as_deref()
    }
}
