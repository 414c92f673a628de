//! Versions of the texts that models read: the rendered thread, and the fixed texts around it.
//!
//! Each turn records its version. Later programs rebuild the turn's prompt in that version, so the
//! output of a version must never change. The files `tests/data/agent/renderer-N.txt` guard this.

use crate::schema::{DescriptionForm, JsonSchemaForm};
use crate::word_enum::word_enum;

word_enum! {
    /// A version of the prompt renderer and its texts. Records state the version as text, such as
    /// `14`. The prompt of an old turn can be rendered again only if this program has the turn's
    /// version.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum RendererVersion {
        /// Third version of the renderer. It escapes each result as text, so the special characters
        /// of a payload are escaped twice. It shows results in their order of arrival. If the agent
        /// clears its context, the request of the open call is no longer shown.
        V3 = "3",
        /// Fourth version of the renderer. Special characters in the results of actions are escaped
        /// only once, and the results are shown in the order of the actions. The request of the
        /// open call always stays visible.
        V4 = "4",
        /// Fifth version of the renderer. It adds the payload `cancel-thread`, and the attribute
        /// `bound` of `spawn-thread`. A bound thread is cancelled when the call that spawned it
        /// closes.
        V5 = "5",
        /// Sixth version of the renderer. It adds attributes of `spawn-thread` that limit the
        /// spawned thread.
        V6 = "6",
        /// Seventh version of the renderer. It differs from the sixth in one rule: a goal for
        /// another agent in the same thread is shown like any message.
        V7 = "7",
        /// Eighth version of the renderer. It differs from the seventh in two rules. The system
        /// prompt describes each tool and each peer only once. If the payload of a native tool
        /// contains an inner payload, the definition of this tool does not repeat the schemas of
        /// the inner payloads.
        V8 = "8",
        /// Ninth version of the renderer. It differs from the eighth in one rule: the result of a
        /// native call to a group of peers shows the answers of the peers in the order of the
        /// config. Earlier versions show them in the order in which they arrived.
        V9 = "9",
        /// Tenth version of the renderer. It differs from the ninth in six rules:
        /// - A message of the core to another listener, or of another listener to itself, is shown
        ///   like all messages between other listeners.
        /// - If the agent calls a `first` group, the first reply of any peer is the result. A fault
        ///   of one peer is then not shown if another peer has replied.
        /// - An error reply with attributes or child elements is shown as a whole.
        /// - A native call that the core refused has the refusal as its result.
        /// - A native call without an answer has an error as its result.
        /// - With `transport = "xml"`, the system prompt names the elements whose content is any
        ///   XML, in which special characters must be escaped.
        V10 = "10",
        /// Eleventh version of the renderer. It differs from the tenth in two rules:
        /// - A native call that was written without arguments has an empty object as its arguments.
        /// - If another listener calls a `first` group, the first reply of any peer is the result.
        ///   A fault of one peer is then no longer shown if another peer has replied.
        V11 = "11",
        /// Twelfth version of the renderer. It differs from the eleventh in these rules:
        /// - A native call has its own result, even if the same turn also sends the same payload
        ///   into another thread.
        /// - A request whose call ended before the agent took a turn in it is shown.
        /// - A request that waited while the agent cleared its context is not one of the messages
        ///   that the clearing keeps.
        /// - If the agent calls a `first` group, a later reply of another peer of the group is not
        ///   shown.
        /// - If the agent opened a call in this thread from another thread, a result from the core
        ///   is shown as a message of the core. It is not shown as the result of an action.
        /// - The payloads about threads are not offered to an agent without a payload that can be
        ///   sent to a thread.
        /// - The attribute `money` of `spawn-thread` is not mentioned if a model that may be called
        ///   beneath the thread has no price.
        /// - The notice of a turn counts the further requests to the agent in the thread.
        /// - The feedback on a misspelled name of an action states the mistake once.
        /// - A turn without text and without native calls is shown as `(nothing)`, also where the
        ///   native calls of its provider are shown as XML.
        V12 = "12",
        /// Thirteenth version of the renderer. It differs from the twelfth in one rule: the result
        /// of a call contains only the replies and the core's messages to the agent. Other messages
        /// with the call as their cause, such as a peer's own calls and its requests to the agent,
        /// are shown like all other messages of the thread.
        V13 = "13",
        /// Fourteenth version of the renderer. It differs from the thirteenth in two rules:
        /// - The description of a native tool or parameter begins with the XML name if the tool or
        ///   parameter has another name, for example because providers do not permit a character.
        /// - If a schema permits only one value, this value is shown as `exactly` the value instead
        ///   of as a default.
        V14 = "14",
        /// Fifteenth version of the renderer. It differs from the fourteenth in these rules:
        /// - If the first turn of a call was redacted, the request of this call is shown before the
        ///   messages of this turn.
        /// - The result of an action is shown as a plain text if the turn of the action is outside
        ///   the window. Earlier versions did this for replies only. The text names the peer if the
        ///   action was a call to a group of peers.
        /// - The children in a named group of a schema are described like all others.
        /// - The JSON form of a content such as `(a,(a,b)*)` is a list, which keeps the order.
        /// - In the definition of a native tool, a default or fixed value has the JSON type of its
        ///   parameter. If JSON cannot write a fixed number or boolean with the text of the schema,
        ///   the parameter is a string. A parameter for the text of an element has these values,
        ///   too.
        V15 = "15",
    }
}

impl RendererVersion {
    /// Version of the renderer that writes the prompts of new turns.
    pub const CURRENT: Self = Self::V15;

    /// Returns the form of the descriptions of payloads in prompts of this version.
    pub(super) fn description_form(self) -> DescriptionForm {
        if self < Self::V8 {
            DescriptionForm::Early
        } else if self < Self::V15 {
            DescriptionForm::GroupsAsLevels
        } else {
            DescriptionForm::Current
        }
    }

    /// Returns the form of the JSON Schemas of native tools in prompts of this version.
    pub(super) fn json_form(self) -> JsonSchemaForm {
        if self < Self::V8 {
            JsonSchemaForm::Early
        } else if self < Self::V14 {
            JsonSchemaForm::WithoutXmlNames
        } else if self < Self::V15 {
            JsonSchemaForm::WithXmlNames
        } else {
            JsonSchemaForm::Current
        }
    }
}
