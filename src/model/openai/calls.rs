//! Assembles native calls from the pieces in which a provider streams them. A native call is a tool
//! call in the form of the provider's API.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits;
use crate::model::answer::{ToolCall, is_whole_json, remove_cut_call};
use crate::model::remote::{AnswerWriter, StreamFault, TextJoiner, TextPiece, check_call_id};

#[derive(Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(rename = "index", borrow, default)]
    index: Option<&'a RawValue>,
    #[serde(rename = "id", borrow, default)]
    id: Option<JsonText<'a>>,
    #[serde(rename = "function", borrow, default)]
    function: Option<FunctionDelta<'a>>,
    #[serde(rename = "extra_content", borrow, default)]
    extra_content: Option<&'a RawValue>,
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
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

impl CallDelta<'_> {
    fn id(&self) -> &str {
        self.id.as_ref().map_or("", |id| &id.0)
    }

    fn name(&self) -> &str {
        let name = self.function.as_ref().and_then(|function| function.name.as_ref());
        name.map_or("", |name| &name.0)
    }

    fn index(&self) -> Option<u64> {
        self.index.and_then(|raw| raw.get().parse().ok())
    }

    /// Returns the text that this piece adds to the arguments of its call. Returns an empty text if
    /// the piece contains no arguments.
    fn arguments(&self) -> Result<TextPiece<'_>, StreamFault> {
        let arguments = self.function.as_ref().and_then(|function| function.arguments);
        arguments.map_or(Ok(TextPiece::default()), text_or_json)
    }
}

/// A native call of an answer, with the data that its provider requires back in later requests.
pub(super) struct AssembledCall {
    pub call: ToolCall,
    /// JSON text of the call's `extra_content`; `None` if the call has none. Gemini keeps the
    /// signature of its reasoning there.
    pub extra_content: Option<String>,
}

#[derive(Default)]
struct PartialCall {
    index: u64,
    call: ToolCall,
    /// Joiner of the pieces of the call's arguments.
    joiner: TextJoiner,
    extra_content: Option<String>,
    /// Whether more than one piece of this call contained a name. If so, a name in a later piece
    /// does not begin another call.
    repeats_name: bool,
}

impl PartialCall {
    /// Whether the piece begins another call, although it has the index of this call or no index.
    /// The first rule that applies decides:
    ///
    /// - A piece with an index and without a name continues this call, whatever its id is: some
    ///   servers give each piece an id of its own.
    /// - If the ids of the piece and this call differ, the piece begins another call. This rule
    ///   does not apply to a piece without an id, nor to a piece with an index if this call has no
    ///   id yet.
    /// - A piece with the same id and an index continues this call.
    /// - If the piece or this call has no name, or if `repeats_name` is true, the piece continues
    ///   this call.
    /// - If this call has no arguments yet, only a piece with another name begins another call.
    /// - If the arguments of this call are complete, a piece with another name or with arguments
    ///   begins another call.
    /// - Any other piece continues this call.
    ///
    /// Names matter because some servers give all calls the same index and no id, or the same id
    /// and no index. `has_arguments` states whether the piece contains arguments other than white
    /// space.
    fn is_followed_by(&self, piece: &CallDelta<'_>, has_arguments: bool) -> bool {
        let Self { call, repeats_name, .. } = self;
        let id = piece.id();
        let is_numbered = piece.index().is_some();
        if is_numbered && piece.name().is_empty() {
            return false;
        }

        if !id.is_empty() && (!is_numbered || !call.id.is_empty()) {
            if id != call.id {
                return true;
            }

            if is_numbered {
                return false;
            }
        }

        if piece.name().is_empty() || call.name.is_empty() || *repeats_name {
            return false;
        }

        let is_another_name = piece.name() != call.name;
        if call.arguments.trim().is_empty() {
            is_another_name
        } else {
            (is_another_name || has_arguments) && is_whole_json(&call.arguments)
        }
    }
}

/// The calls of one answer, ordered by their first pieces.
#[derive(Default)]
pub(super) struct CallAssembler(Vec<PartialCall>);

impl CallAssembler {
    /// Adds a piece of a call. A chunk of the stream contains a list of pieces, and `place` is the
    /// index of the piece in this list.
    pub fn add(
        &mut self,
        piece: &CallDelta<'_>,
        place: usize,
        out: &mut AnswerWriter<'_>,
    ) -> Result<(), StreamFault> {
        let arguments = piece.arguments()?;
        out.count(piece.id().len() + piece.name().len() + arguments.len())?;
        check_call_id(piece.id())?;
        let growing = self.growing(piece, place, !arguments.is_blank())?;
        if growing.call.id.is_empty() {
            piece.id().clone_into(&mut growing.call.id);
        }

        if growing.call.name.is_empty() {
            piece.name().clone_into(&mut growing.call.name);
        }

        growing.call.arguments.push_str(&growing.joiner.push(&arguments));
        if let Some(extra) = piece.extra_content {
            growing.extra_content = Some(extra.get().to_owned());
            out.count(extra.get().len())?;
        }

        Ok(())
    }

    /// Returns the call to which the piece belongs. Begins a new call if the piece continues none.
    fn growing(
        &mut self,
        piece: &CallDelta<'_>,
        place: usize,
        has_arguments: bool,
    ) -> Result<&mut PartialCall, StreamFault> {
        let count = self.0.len();
        let at = match self.continued(piece, place, has_arguments) {
            Some(at) => at,
            None if count >= limits::NATIVE_CALLS_MAX => return Err(StreamFault::TooLong),
            None => {
                let index = piece.index().unwrap_or(u64::try_from(count).unwrap_or(u64::MAX));
                self.0.push(PartialCall { index, ..PartialCall::default() });
                count
            }
        };

        let growing = self.0.get_mut(at).expect("it was found or pushed");
        growing.repeats_name |= !growing.call.name.is_empty() && !piece.name().is_empty();
        Ok(growing)
    }

    /// Returns the place of the call that the piece continues, or `None` if the piece begins a new
    /// call. A piece with an index can continue only the last call with this index. A piece without
    /// an index can continue only the last call of all.
    fn continued(&self, piece: &CallDelta<'_>, place: usize, has_arguments: bool) -> Option<usize> {
        let at = match piece.index() {
            Some(index) => self.0.iter().rposition(|known| known.index == index)?,
            // Two named entries of one list are two calls.
            None if place > 0 && !piece.name().is_empty() => return None,
            None => self.0.len().checked_sub(1)?,
        };
        let known = self.0.get(at)?;
        (!known.is_followed_by(piece, has_arguments)).then_some(at)
    }

    /// Returns the calls of the answer. If `may_be_cut` is true, an incomplete last call is left
    /// out.
    pub fn finish(&mut self, may_be_cut: bool) -> Vec<AssembledCall> {
        let partial = std::mem::take(&mut self.0).into_iter();
        let complete = partial.map(|mut growing| {
            growing.call.arguments.push_str(growing.joiner.finish());
            (growing.call, growing.extra_content)
        });
        let (mut calls, extras): (Vec<_>, Vec<_>) = complete.unzip();
        if may_be_cut {
            remove_cut_call(&mut calls);
        }

        // A call without name and arguments is dropped. A call that lacks only its name is kept,
        // and the model gets an error for it.
        let is_kept = |call: &ToolCall| !call.name.is_empty() || !call.arguments.trim().is_empty();
        let assembled = calls.into_iter().zip(extras).filter(|(call, _)| is_kept(call));

        let numbered = assembled.enumerate().map(|(number, (mut call, extra_content))| {
            if call.id.is_empty() {
                call.id = format!("call-{}", number + 1);
            }
            AssembledCall { call, extra_content }
        });
        numbered.collect()
    }
}

/// Returns the text of a JSON string, or the JSON itself for any other value.
fn text_or_json(raw: &RawValue) -> Result<TextPiece<'_>, StreamFault> {
    match raw.get() {
        "null" => Ok(TextPiece::default()),
        text if text.starts_with('"') => TextPiece::of_json(raw)
            .map_err(|error| StreamFault::Unreadable { detail: error.to_string() }),
        json => Ok(TextPiece::Whole(Cow::Borrowed(json))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names and arguments of the calls that are assembled from these lists of pieces.
    fn assembled(lists: &[&str]) -> Vec<(String, String)> {
        let mut calls = CallAssembler::default();
        let mut ignore = |_: crate::model::answer::AnswerChunk<'_>| {};
        let mut out = AnswerWriter::new(&mut ignore, None);
        for list in lists {
            let pieces: Vec<CallDelta<'_>> = serde_json::from_str(list).unwrap();
            for (place, piece) in pieces.iter().enumerate() {
                calls.add(piece, place, &mut out).unwrap();
            }
        }

        let calls = calls.finish(false).into_iter().map(|assembled| assembled.call);
        calls.map(|call| (call.name, call.arguments)).collect()
    }

    fn expected(calls: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, arguments): &(&str, &str)| ((*name).into(), (*arguments).into());
        calls.iter().map(owned).collect()
    }

    /// Writes a whole call as one piece. `head` is the start of the piece: its index and its id.
    fn whole(head: &str, name: &str, query: &str) -> String {
        let arguments = format!("{{\\\"q\\\":\\\"{query}\\\"}}");
        format!("{{{head}\"function\":{{\"name\":\"{name}\",\"arguments\":\"{arguments}\"}}}}")
    }

    #[test]
    fn whole_calls_without_ids_are_calls_of_their_own() {
        let two = expected(&[("look", "{\"q\":\"a\"}"), ("look", "{\"q\":\"b\"}")]);
        for head in ["", "\"index\":0,", "\"index\":0,\"id\":\"\",", "\"id\":\"\","] {
            let first = whole(head, "look", "a");
            let second = whole(head, "look", "b");
            assert_eq!(assembled(&[&format!("[{first},{second}]")]), two, "{head}");
            let lists = [format!("[{first}]"), format!("[{second}]")];
            assert_eq!(assembled(&[&lists[0], &lists[1]]), two, "{head}");
        }
    }

    #[test]
    fn calls_without_arguments_and_ids_are_calls_of_their_own() {
        let wait = r#"{"index":0,"id":"","function":{"name":"wait","arguments":""}}"#;
        let look = whole("\"index\":0,", "look", "a");
        let both = expected(&[("wait", ""), ("look", "{\"q\":\"a\"}")]);
        assert_eq!(assembled(&[&format!("[{wait}]"), &format!("[{look}]")]), both);

        let unnumbered = r#"{"function":{"name":"wait"}}"#;
        let twice = format!("[{unnumbered},{unnumbered}]");
        assert_eq!(assembled(&[&twice]), expected(&[("wait", ""), ("wait", "")]));
    }

    #[test]
    fn whole_calls_with_the_same_id_and_no_index_are_calls_of_their_own() {
        let first = whole("\"id\":\"call_0\",", "look", "a");
        let second = whole("\"id\":\"call_0\",", "look", "b");
        let two = expected(&[("look", "{\"q\":\"a\"}"), ("look", "{\"q\":\"b\"}")]);
        assert_eq!(assembled(&[&format!("[{first},{second}]")]), two);
        assert_eq!(assembled(&[&format!("[{first}]"), &format!("[{second}]")]), two);

        let wait = r#"{"id":"call_0","function":{"name":"wait","arguments":""}}"#;
        let both = expected(&[("wait", ""), ("look", "{\"q\":\"a\"}")]);
        assert_eq!(assembled(&[&format!("[{wait}]"), &format!("[{first}]")]), both);
    }

    #[test]
    fn a_piece_with_an_index_and_no_name_belongs_to_the_call_of_its_index() {
        let piece = |id: &str, name: &str, arguments: &str| {
            let function = serde_json::json!({ "name": name, "arguments": arguments });
            serde_json::json!([{ "index": 0, "id": id, "function": function }]).to_string()
        };
        let lists =
            [piece("c1", "look", ""), piece("p2", "", "{\"q\":"), piece("p3", "", "\"a\"}")];
        let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
        assert_eq!(assembled(&lists), expected(&[("look", "{\"q\":\"a\"}")]));

        let next = piece("c2", "look", "{}");
        let lists = [&lists[..], &[&next]].concat();
        let two = expected(&[("look", "{\"q\":\"a\"}"), ("look", "{}")]);
        assert_eq!(assembled(&lists), two, "a piece with a name begins another call");
    }

    #[test]
    fn a_piece_of_white_space_begins_no_call() {
        for head in ["\"index\":0,", "", "\"id\":\"call_0\","] {
            let first = whole(head, "look", "a");
            let blank =
                format!("{{{head}\"function\":{{\"name\":\"look\",\"arguments\":\"\\n\"}}}}");
            let lists = [format!("[{first}]"), format!("[{blank}]")];
            let one = expected(&[("look", "{\"q\":\"a\"}\n")]);
            assert_eq!(assembled(&[&lists[0], &lists[1]]), one, "{head}");
        }
    }

    #[test]
    fn a_server_may_repeat_the_name_in_each_piece_of_a_call() {
        for head in ["\"index\":0,", "", "\"id\":\"call_0\","] {
            let piece = |arguments: &str| {
                format!(
                    "[{{{head}\"function\":{{\"name\":\"look\",\"arguments\":\"{arguments}\"}}}}]"
                )
            };
            let pieces = ["", "{\\\"q\\\":", "{}", "}", ""].map(piece);
            let lists: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(assembled(&lists), expected(&[("look", "{\"q\":{}}")]), "{head}");
        }
    }
}
