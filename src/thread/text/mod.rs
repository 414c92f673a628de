//! The text of a record: the JSON that is hashed and stored. Every message costs one record, so the
//! text is kept short. It leaves out each value that another part of the record implies, and the
//! reader restores the value.
//!
//! An outcome is the input of a record in which a listener returned payloads for a call. A message
//! in the record of an outcome has an implied sender: the core for a note or a system message, and
//! the listener of the outcome for any other message. The rows with a star apply only to messages
//! whose `from` is left out. The fact `heard` states that the outcome arrived, `used` that a turn
//! used tokens, and `disposed` that a message ended.
//!
//! | left out | restored from |
//! |---|---|
//! | position, tree, previous record and its hash, time | stored beside the text, hashed with it |
//! | a message's `thread`, `time` | the record's tree and time |
//! | a message's `from`, if it is the implied sender | the message's kind and the input |
//! | * a `to` that is the listener of the outcome | the input |
//! | * the `kind`, if it is `call` | `call` |
//! | * a `cause` that is the outcome's call | the input (`null`: no cause) |
//! | * a note's `call` that is its `cause` | the note's `cause` |
//! | a `call` message's own `call` | its `id` |
//! | if `from` is stated: a `cause` that is the outcome's call | `"input"` in its place |
//! | a `call` that is the `cause` or the outcome's call | `"cause"` or `"input"` in its place |
//! | an opener's `name`, `thread`, `call` | the message's `from`, `thread`, `cause` |
//! | `heard`: its `call` and `attempt` | the input |
//! | `call-closed`: its `call` | the input |
//! | `call-closed`: its `how`, if it is `completed` | `completed` |
//! | `used`: its `call` and `agent`, its tokens and `money` | the input and its turn |
//! | an empty part of a turn | the part is empty if it is absent |
//! | `handed-over`: its `call` | the `call` of the last message before this fact |
//! | `disposed`: its `message` | the last message before this fact, or else the outcome's call |
//! | `disposed`: its `how` | `recorded` if a message stands before this fact, or else `handled` |
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
