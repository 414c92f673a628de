//! The reason or the note of an operator's action, as an option of a command.

use std::ffi::OsStr;

use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::thread::check_action_text;

/// A text that the journal records whole with an operator's action. A longer text is refused as a
/// wrong command line, because the journal would record only its beginning.
#[derive(Debug, Clone)]
pub struct ActionText(String);

impl ActionText {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl ValueParserFactory for ActionText {
    type Parser = ActionTextParser;

    fn value_parser() -> ActionTextParser {
        ActionTextParser
    }
}

/// Parses an [`ActionText`]. Its errors do not repeat the text, which is long.
#[derive(Debug, Clone, Copy)]
pub struct ActionTextParser;

impl TypedValueParser for ActionTextParser {
    type Value = ActionText;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<ActionText, Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        check_action_text(&text).map_err(|problem| {
            let option = argument.map(|argument| format!("{argument}: ")).unwrap_or_default();
            Error::raw(ErrorKind::ValueValidation, format!("{option}{problem}\n")).with_cmd(command)
        })?;
        Ok(ActionText(text))
    }
}
