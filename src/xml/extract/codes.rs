//! The closed list of what extraction finds.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $weight:ident),* $(,)?) => {
        /// What was found. An error is a defect the model must hear of; a notice explains why
        /// something was left alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ExtractCode { $($(#[$doc])* $name),* }

        impl ExtractCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The code in findings, feedback and docs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),* }
            }

            pub const fn is_error(self) -> bool {
                match self { $(Self::$name => codes!(@ $weight)),* }
            }
        }
    };
    (@ error) => { true };
    (@ notice) => { false };
}

codes! {
    /// The text ended, or another action began, inside an action.
    UnclosedAction "unclosed_action" error,
    UnclosedParam "unclosed_param" error,
    UnknownParam "unknown_param" error,
    /// Characters between children.
    UnexpectedText "unexpected_text" error,
    MismatchedClose "mismatched_close" error,
    /// Text where children belong, in an element that is closed later.
    MalformedAction "malformed_action" error,
    MalformedTag "malformed_tag" error,
    DuplicateAttribute "duplicate_attribute" error,
    UnboundPrefix "unbound_prefix" error,
    TruncatedOpenTag "truncated_open_tag" error,
    UnclosedReasoning "unclosed_reasoning" error,
    ForgedSystemTag "forged_system_tag" error,
    ParamTooLarge "param_too_large" error,
    TurnTooLarge "turn_too_large" error,
    /// So many unclosed elements that the rest was not read.
    TooTangled "too_tangled" error,
    TooDeep "too_deep" error,
    IllegalCharacter "illegal_character" error,
    UnclosedCdata "unclosed_cdata" error,
    /// A closed element of a name that the agent does not know, with an action in it. Without one
    /// it is refused too, and only the code of the refusal reports it.
    UnknownAction "unknown_action" error,
    /// Content that is read as strict XML, and is none.
    NotWellFormed "not_well_formed" error,
    ActionInReasoning "action_in_reasoning" notice,
    ActionInCodeFence "action_in_code_fence" notice,
    ActionInInlineCode "action_in_inline_code" notice,
    ActionInComment "action_in_comment" notice,
    ActionInCdata "action_in_cdata" notice,
    /// In quotation marks, or on Markdown quote lines.
    ActionInQuotes "action_in_quotes" notice,
    /// A value with raw and escaped characters, which was taken as it stands.
    HalfEscaped "half_escaped" notice,
    OrphanCloseTag "orphan_close_tag" notice,
    NearMissTag "near_miss_tag" notice,
    TagMention "tag_mention" notice,
    /// A root in a namespace that this agent knows nothing of.
    UnknownRoot "unknown_root" notice,
}

impl fmt::Display for ExtractCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A finding before its line and column are known; `at` is a byte of the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFinding {
    pub code: ExtractCode,
    pub at: usize,
    pub message: String,
}

impl RawFinding {
    pub fn new(code: ExtractCode, at: usize, message: impl Into<String>) -> Self {
        Self { code, at, message: message.into() }
    }
}
