//! The requests of open calls. An alert names the listener and the thread of a call. Both are taken
//! from the request of the call, because a record that ends a call or begins its hold names
//! neither.

use std::collections::BTreeMap;

use crate::envelope::Message;
use crate::ids::{CallId, ListenerName, ThreadId};
use crate::thread::{Input, Record};

/// The request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    pub listener: ListenerName,
    pub thread: ThreadId,
}

impl CallRequest {
    pub fn of(message: &Message) -> Self {
        Self { listener: message.to.clone(), thread: message.thread.clone() }
    }
}

/// A function that finds the request of a call in the journal; returns `None` if the request is not
/// found.
pub type FindRequest<'a> = &'a mut dyn FnMut(&Record, CallId) -> Option<CallRequest>;

/// The requests of the open calls whose opening record has been processed.
#[derive(Debug, Default)]
pub(super) struct OpenRequests(BTreeMap<CallId, CallRequest>);

impl OpenRequests {
    /// Adds the request of the call that `message` opens.
    pub fn add(&mut self, message: &Message) {
        self.0.insert(CallId(message.id), CallRequest::of(message));
    }

    /// Removes the request of a closed call.
    pub fn remove(&mut self, call: CallId) {
        self.0.remove(&call);
    }

    /// Returns the request of a call. Searches the journal with `find` only if the opening record
    /// of the call was not processed here. If the search finds no request, and the input of
    /// `record` is an outcome or a failure of the call, returns the listener of this input and the
    /// root thread of `record`. Otherwise, returns `None`.
    pub fn request_of(
        &self,
        record: &Record,
        call: CallId,
        find: FindRequest<'_>,
    ) -> Option<CallRequest> {
        let known = self.0.get(&call).cloned().or_else(|| find(record, call));
        known.or_else(|| match &record.input {
            Input::Outcome { listener, call: own, .. }
            | Input::Failed { listener, call: own, .. }
                if *own == call =>
            {
                Some(CallRequest { listener: listener.clone(), thread: record.tree.clone() })
            }
            _ => None,
        })
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
