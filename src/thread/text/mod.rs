//! The text of a record: the JSON that is hashed and stored. Every message costs one record, so the
//! text is short. It leaves out each value that another part of the record implies, and the reader
//! restores the value.
//!
//! | left out | restored from |
//! |---|---|
//! | position, tree, previous record and its hash, time | stored beside the text, hashed with it |
//! | a message's `thread`, `time` | the record's tree and time |
//! | a `call` message's own `call` | its `id` |
//! | a `cause` that is the call of the input | `"input"` stands in its place |
//! | a `call` that is the message's `cause`, or the call of the input | `"cause"` or `"input"` stands in its place |
//! | an opener's `name`, `thread`, `call` | the message's `from`, `thread`, `cause` |
//! | the `call` and `attempt` of `heard`, the `call` of `call-closed` | the record's input |
//! | the empty parts of a turn | nothing |
//! | the `call` and `agent` of `used`, its tokens and `money` | the record's input and its turn |
//! | the `call` of `handed-over` | the `call` of the message before it |
//! | the `message` of `disposed` | the message before it, or else the call of the input |
//! | the digest in a verdict | the fact to which the verdict refers by its index |
//!
//! A value is written if it differs from the value that the table gives. The text contains only the
//! digest and the length of each payload.
//!
//! Journals of format 2 contain texts that write a `cause`, the `call` of a reply, and the values of
//! the rows about `used`, `disposed` and turns in full. The reader reads both.

mod fast_path;
mod names;
mod read;
mod serde_form;
mod write;

pub use names::InternedNames;
pub use read::{UnreadableRecord, read};
