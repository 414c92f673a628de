//! Groups parts of a record by call. A record may close thousands of calls, so a reader that needs
//! these parts for each of them must not search the whole record for each of them.

use std::cell::OnceCell;
use std::collections::HashSet;

use super::result::is_result_part;
use super::{Fact, Map, Record};
use crate::envelope::Message;
use crate::ids::{CallId, MessageId};

/// The accepted messages of a record by their cause, and the calls of its failed attempts. Grouped
/// at the first use, because most records close no call.
#[derive(Debug)]
pub struct RecordByCall<'r> {
    record: &'r Record,
    caused: OnceCell<Map<MessageId, Vec<&'r Message>>>,
    failed: OnceCell<HashSet<CallId>>,
}

impl<'r> RecordByCall<'r> {
    pub fn of(record: &'r Record) -> Self {
        Self { record, caused: OnceCell::new(), failed: OnceCell::new() }
    }

    /// Returns the messages whose cause is the request of `call`, in the order of the record.
    pub fn caused_by(&self, call: CallId) -> &[&'r Message] {
        let caused = self.caused.get_or_init(|| {
            let mut caused: Map<_, Vec<_>> = Map::default();
            for message in self.record.accepted_messages() {
                if let Some(cause) = message.cause {
                    caused.entry(cause).or_default().push(message);
                }
            }
            caused
        });
        caused.get(&call.0).map_or(&[], Vec::as_slice)
    }

    /// Returns the messages of the result of `call`, which the record closes, as
    /// [`Record::result_of`] does.
    pub fn result_of(&self, call: CallId) -> impl Iterator<Item = &'r Message> {
        let caused = self.caused_by(call).iter().copied();
        caused.filter(move |message| is_result_part(message, call))
    }

    /// Whether an attempt of `call` failed in the record.
    pub fn has_failed_attempt(&self, call: CallId) -> bool {
        let failed = self.failed.get_or_init(|| {
            let facts = self.record.facts.iter().filter_map(|fact| match fact {
                Fact::AttemptFailed { call, .. } => Some(*call),
                _ => None,
            });
            facts.collect()
        });
        failed.contains(&call)
    }
}
