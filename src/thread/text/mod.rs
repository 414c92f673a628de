//! The text of a record: the JSON that is hashed and stored. Every message costs one record, so the
//! text is kept short. If a value is equal to its default in the first table, the text leaves out
//! the value, and the reader restores it.
//!
//! In the tables, *the input* is the input of the record, if that input is an outcome, that is, the
//! payloads that a listener returned for a call. A record with any other input states all values
//! that the tables derive from the input.
//!
//! | part of the text | value | left out if it is equal to |
//! |---|---|---|
//! | message | `thread` | the tree of the record |
//! | message | `time` | the time of the record |
//! | note or system message | `from` | the core |
//! | any other message | `from` | the input's listener |
//! | message without `from` | `kind` | `call` |
//! | message without `from` | `to` | the input's listener |
//! | message without `from` | `cause` | the message that opened the input's call |
//! | message with `from` | `cause` | no cause |
//! | message of the kind `call` | `call` | the call that the message opens |
//! | note without `from` | `call` | the call that the note's `cause` opened |
//! | any other message | `call` | no call |
//! | opener of a call | `name`, `thread`, `call` | the message's `from`, `thread`, `cause` |
//! | `heard`: the outcome arrived | `call`, `attempt` | the input's call and attempt |
//! | `call-closed`: a call ended | `call` | the input's call |
//! | `call-closed` | `how` | `completed` |
//! | `used`: a turn used tokens | `call`, `agent` | the input's call and listener |
//! | `used` | the tokens, `money` | those of the input's turn |
//! | `handed-over`: a call was handed over | `call` | that of the last message before the fact |
//! | `disposed`: a message ended | `message`, `how` | see below |
//! | model turn | any part except the token counts | an empty part |
//!
//! The defaults of a `disposed` fact depend on the messages that stand before the fact in the
//! record. If there are such messages, `message` defaults to the last of them, and `how` to
//! `recorded`. If there are none, `message` defaults to the message that opened the input's call,
//! and `how` to `handled`.
//!
//! The text contains a short form in place of each of these values:
//!
//! | value | short form |
//! |---|---|
//! | a `cause` that opened the input's call, in a message with `from` | `"input"` |
//! | a `call` that the message's `cause` opened | `"cause"` |
//! | a `call` that is the input's call | `"input"` |
//! | the digest in a verdict | the index of the fact to which the verdict refers |
//! | a payload | the digest and the length of the payload |
//!
//! The position, tree and time of the record, and the position and hash of the previous record, are
//! stored beside the text and hashed with it.
//!
//! The tables describe texts of format 4. Texts of format 3 also state the `from`, `to`, `kind` and
//! `cause` of each message, and each `how`. Texts of format 2 also state the `cause` and the `call`
//! of a reply as ids, the `message` of `disposed`, all values of `used`, and the empty parts of a
//! turn. The reader reads all three formats.

mod fast_path;
mod implied_values;
mod names;
mod read;
mod serde_form;
mod write;

pub use names::InternedNames;
pub use read::{UnreadableRecord, read};
