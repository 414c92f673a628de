//! The text of a record: the JSON that is hashed and stored. Every message costs one record, so the
//! text is short. It leaves out each value that another part of the record implies, and the reader
//! restores the value.
//!
//! | left out | restored from |
//! |---|---|
//! | position, tree, previous record and its hash, time | stored beside the text, hashed with it |
//! | a message's `thread`, `time` | the record's tree and time |
//! | a `call` message's own `call` | its `id` |
//! | an opener's `name`, `thread`, `call` | the message's `from`, `thread`, `cause` |
//! | the `call` and `attempt` of `heard`, the `call` of `call-closed` | the record's input |
//! | the `call` of `handed-over` | the `call` of the message before it |
//! | the digest in a verdict | the fact to which the verdict refers by its index |
//!
//! A value is written if it differs from the value that the table gives. The text contains only the
//! digest and the length of each payload.

mod fast_path;
mod names;
mod read;
mod serde_form;
mod write;

pub use names::InternedNames;
pub use read::{UnreadableRecord, read};
