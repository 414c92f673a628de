//! Repairs malformed native calls in requests to a provider, because one such call would make the
//! provider reject the whole conversation. The record keeps the calls unchanged.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::limits;
use crate::model::answer::ToolCall;

/// Name that is sent for a call without a name.
pub(in crate::model) const UNNAMED: &str = "unnamed";

/// Returns the name of the call, limited to a length and to characters that every provider accepts.
pub(in crate::model) fn name(call: &ToolCall) -> Cow<'_, str> {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match call.name.as_str() {
        "" => Cow::Borrowed(UNNAMED),
        name if name.len() <= limits::TOOL_NAME_CHARS_MAX && name.chars().all(is_taken) => {
            Cow::Borrowed(name)
        }
        name => {
            let letters = name.chars().map(|c| if is_taken(c) { c } else { '_' });
            Cow::Owned(letters.take(limits::TOOL_NAME_CHARS_MAX).collect())
        }
    }
}

/// Returns the arguments of the call as a JSON object. Arguments that are no JSON object are
/// wrapped in one. An empty text is wrapped, too: prompts of early renderers contain calls with
/// empty arguments, and a request rebuilt from such a prompt must stay the same.
pub(in crate::model) fn arguments(call: &ToolCall) -> Json {
    let object = serde_json::from_str::<Json>(&call.arguments).ok().filter(Json::is_object);
    object.unwrap_or_else(|| serde_json::json!({ "not_json": call.arguments }))
}

/// Returns the arguments of the call as the JSON text of an object. If the model wrote an object,
/// its text stays unchanged.
pub(in crate::model) fn arguments_text(call: &ToolCall) -> Cow<'_, str> {
    match serde_json::from_str::<Json>(&call.arguments) {
        Ok(Json::Object(_)) => Cow::Borrowed(&call.arguments),
        _ => Cow::Owned(arguments(call).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> ToolCall {
        let name = name.to_owned();
        let arguments = arguments.to_owned();
        ToolCall { id: "call-1".to_owned(), name, arguments }
    }

    #[test]
    fn a_tool_name_is_sent_back_in_characters_that_every_provider_accepts() {
        let cases = [
            ("search", "search"),
            ("", "unnamed"),
            ("../look now", "___look_now"),
            ("look\0\u{202e}", "look__"),
        ];
        for (written, sent) in cases {
            assert_eq!(name(&call(written, "{}")), sent);
        }

        assert_eq!(name(&call(&"a".repeat(65), "{}")), "a".repeat(64));
    }

    #[test]
    fn arguments_go_back_as_an_object_whatever_was_written() {
        let cases = [
            ("{ \"a\" : 1 }", "{ \"a\" : 1 }"),
            ("", "{\"not_json\":\"\"}"),
            ("[1]", "{\"not_json\":\"[1]\"}"),
            ("{\"a\":", "{\"not_json\":\"{\\\"a\\\":\"}"),
        ];
        for (written, sent) in cases {
            assert_eq!(arguments_text(&call("x", written)), sent);
            assert!(arguments(&call("x", written)).is_object());
        }
    }
}
