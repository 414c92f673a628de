//! The text of a record: the JSON that is hashed and stored. Every message costs one record, so the
//! text is short. The text leaves out each value that another part of the record implies, and the
//! reader restores the value.
//!
//! | left out | restored from |
//! |---|---|
//! | position, tree, previous record and its hash, time | stored beside the text, hashed with it |
//! | a message's `thread`, `time` | the record's tree and time |
//! | in a record of an outcome: the `from` of a note or a system message by the core | `core` |
//! | … the `from` of another message by the outcome's listener | the record's input |
//! | if `from` is left out: a `to` that is the outcome's listener | the record's input |
//! | if `from` is left out: the `kind`, if it is `call` | `call` |
//! | if `from` is left out: a `cause` that is the outcome's call | the input (`null`: no cause) |
//! | if `from` is left out: a note's `call` that is its `cause` | the note's `cause` |
//! | a `call` message's own `call` | its `id` |
//! | a `cause` that is the call of the input | `"input"` stands in its place |
//! | a `call` equal to the `cause` or the call of the input | `"cause"` or `"input"` in its place |
//! | an opener's `name`, `thread`, `call` | the message's `from`, `thread`, `cause` |
//! | the `call` and `attempt` of `heard`, the `call` of `call-closed` | the record's input |
//! | the empty parts of a turn | their absence |
//! | the `call` and `agent` of `used`, its tokens and `money` | the record's input and its turn |
//! | the `call` of `handed-over` | the `call` of the message before it |
//! | the `message` of `disposed` | the message before it, or else the call of the input |
//! | the `how` of `disposed` | `recorded` if a message stands before it, or else `handled` |
//! | the `how` of `call-closed`, if it is `completed` | `completed` |
//! | the digest in a verdict | the fact to which the verdict refers by its index |
//!
//! A value is written if it differs from the value that the table gives. The text contains only the
//! digest and the length of each payload.
//!
//! Texts of format 3 state the `from`, `to`, `kind` and `cause` of each message, and each `how`.
//! Texts of format 2 also state the `cause` and the `call` of a reply as ids, the `message` of
//! `disposed`, and the values in the rows about `used` and turns. The reader reads all three
//! formats.

mod fast_path;
mod implied_values;
mod names;
mod read;
mod serde_form;
mod write;

pub use names::InternedNames;
pub use read::{UnreadableRecord, read};
