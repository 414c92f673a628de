//! Assembles native calls, which are tool calls in the form of the provider's API, from the pieces
//! in which the provider streams them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits;
use crate::model::answer::{StopReason, ToolCall, remove_cut_call};
use crate::model::remote::{AnswerWriter, StreamFault};

#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(rename = "index", borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(rename = "id", borrow, default)]
    id: Option<JsonText<'a>>,
    #[serde(rename = "function", borrow, default)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(rename = "name", borrow, default)]
    name: Option<JsonText<'a>>,
    #[serde(rename = "arguments", borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// A JSON string, borrowed if it contains no escapes.
#[derive(Deserialize)]
pub(super) struct JsonText<'a>(#[serde(borrow)] pub Cow<'a, str>);

#[derive(Default)]
struct PartialCall {
    index: u64,
    call: ToolCall,
}

/// The calls of one answer, ordered by their first pieces.
#[derive(Default)]
pub(super) struct CallAssembler(Vec<PartialCall>);

impl CallAssembler {
    pub fn add(
        &mut self,
        piece: &CallDelta<'_>,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        let id = piece.id.as_ref().map_or("", |id| &id.0);
        let growing = self.growing(index(piece, self.0.len()), id)?;
        if growing.call.id.is_empty() {
            growing.call.id = id.to_owned();
        }

        let Some(function) = &piece.function else { return Ok(()) };
        let name = function.name.as_ref().map_or("", |name| &name.0);
        if growing.call.name.is_empty() {
            growing.call.name = name.to_owned();
        }

        if let Some(arguments) = function.arguments {
            let arguments = text_or_json(arguments)?;
            growing.call.arguments.push_str(&arguments);
            out.count(arguments.len())?;
        }

        out.count(id.len() + name.len())
    }

    /// Returns the native call that the piece with this `index` and `id` continues. This is the
    /// last call with the same index, if its id matches `id`. An empty id matches every id. Without
    /// a matching call, begins a new call. An equal index alone is not enough, because some servers
    /// give all calls the same index.
    fn growing(&mut self, index: u64, id: &str) -> Result<&mut PartialCall, StreamFault> {
        let known = self.0.iter().rposition(|growing| growing.index == index);
        let known = known.filter(|at| {
            let known_id = self.0.get(*at).map_or("", |growing| &growing.call.id);
            id.is_empty() || known_id.is_empty() || known_id == id
        });
        let at = match known {
            Some(at) => at,
            None if self.0.len() >= limits::NATIVE_CALLS_MAX => return Err(StreamFault::TooLong),
            None => {
                self.0.push(PartialCall { index, ..PartialCall::default() });
                self.0.len() - 1
            }
        };

        Ok(self.0.get_mut(at).expect("it was found or pushed"))
    }

    /// Returns the calls of the answer, without a last call that is incomplete.
    pub fn finish(&mut self, stop: StopReason) -> Vec<ToolCall> {
        let mut calls: Vec<_> =
            std::mem::take(&mut self.0).into_iter().map(|growing| growing.call).collect();
        remove_cut_call(&mut calls, stop);

        // A call without name and arguments is dropped. A call that lacks only its name is kept,
        // and the model gets an error for it.
        calls.retain(|call| !call.name.is_empty() || !call.arguments.trim().is_empty());

        for (number, call) in calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call-{}", number + 1);
            }
        }

        calls
    }
}

/// Returns the index of the call to which a piece belongs. A piece without an index begins a new
/// call if it has an id, and otherwise continues the last call.
fn index(piece: &CallDelta<'_>, known: usize) -> u64 {
    let written = piece.index.and_then(|raw| raw.get().parse().ok());
    written.unwrap_or_else(|| {
        let begins = piece.id.as_ref().is_some_and(|id| !id.0.is_empty());
        let at = if begins { known } else { known.saturating_sub(1) };
        u64::try_from(at).unwrap_or(u64::MAX)
    })
}

/// Returns the text of a JSON string, or the JSON itself for any other value.
fn text_or_json(raw: &RawValue) -> Result<Cow<'_, str>, StreamFault> {
    match raw.get() {
        "null" => Ok(Cow::Borrowed("")),
        text if text.starts_with('"') => match serde_json::from_str::<JsonText<'_>>(text) {
            Ok(text) => Ok(text.0),
            Err(error) => Err(StreamFault::Unreadable { detail: error.to_string() }),
        },
        json => Ok(Cow::Borrowed(json)),
    }
}
