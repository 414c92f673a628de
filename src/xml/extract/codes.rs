//! The closed list of codes of extraction findings.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $weight:ident),* $(,)?) => {
        /// The code of an extraction finding. An error is a defect that the model gets to see. A
        /// notice explains why a part of the text was ignored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ExtractCode { $($(#[$doc])* $name),* }

        impl ExtractCode {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the code as written in findings, feedback and docs.
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
    /// An action is still open where the text ends or another action begins.
    UnclosedAction "unclosed_action" error,
    UnclosedParam "unclosed_param" error,
    UnknownParam "unknown_param" error,
    /// Text stands between the children of an element.
    UnexpectedText "unexpected_text" error,
    MismatchedClose "mismatched_close" error,
    /// An element contains text in place of child elements, and its close tag follows later.
    MalformedAction "malformed_action" error,
    MalformedTag "malformed_tag" error,
    DuplicateAttribute "duplicate_attribute" error,
    UnboundPrefix "unbound_prefix" error,
    TruncatedOpenTag "truncated_open_tag" error,
    UnclosedReasoning "unclosed_reasoning" error,
    ForgedSystemTag "forged_system_tag" error,
    ParamTooLarge "param_too_large" error,
    TurnTooLarge "turn_too_large" error,
    /// The text has so many unclosed elements that the rest of the text was not parsed.
    TooTangled "too_tangled" error,
    TooDeep "too_deep" error,
    IllegalCharacter "illegal_character" error,
    UnclosedCdata "unclosed_cdata" error,
    /// A closed element has an unknown name. `Extraction::defects` returns this finding only if the
    /// element contains an action.
    UnknownAction "unknown_action" error,
    /// Content that must be strict XML is not well-formed.
    NotWellFormed "not_well_formed" error,
    ActionInReasoning "action_in_reasoning" notice,
    ActionInCodeFence "action_in_code_fence" notice,
    ActionInInlineCode "action_in_inline_code" notice,
    ActionInComment "action_in_comment" notice,
    ActionInCdata "action_in_cdata" notice,
    /// An action stands in quotation marks or on Markdown quote lines.
    ActionInQuotes "action_in_quotes" notice,
    /// A value contains both raw and escaped characters, and is kept as written.
    HalfEscaped "half_escaped" notice,
    OrphanCloseTag "orphan_close_tag" notice,
    /// A close tag ends reasoning whose open tag stood in the prompt.
    ReasoningBegunInPrompt "reasoning_begun_in_prompt" notice,
    NearMissTag "near_miss_tag" notice,
    TagMention "tag_mention" notice,
    /// A root element is in a namespace that the agent does not know.
    UnknownRoot "unknown_root" notice,
}

impl fmt::Display for ExtractCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A finding without line and column. `at` is a byte offset in the turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawFinding {
    pub code: ExtractCode,
    pub at: usize,
    pub message: String,
    /// Whether the finding says that the provider cut the turn off.
    pub is_cut_off: bool,
}

impl RawFinding {
    pub fn new(code: ExtractCode, at: usize, message: impl Into<String>) -> Self {
        Self { code, at, message: message.into(), is_cut_off: false }
    }

    /// Marks the finding as one which says that the provider cut the turn off.
    pub fn about_cut_off(self) -> Self {
        Self { is_cut_off: true, ..self }
    }
}
