//! The order of a conversation: the model's own turns, and between them the results in the order of
//! their calls, followed by all other messages.

use std::collections::BTreeMap;

use crate::ids::ListenerName;
use crate::model::{ChatBlock, ChatMessage, ChatRole};
use crate::xml::escape::escape_text;

use super::rendered_message::{RenderedMessage, merged, shown_or_stub};
use crate::agent::RendererVersion;
use crate::agent::history::{MemoryItem, ModelText, RecordedToolCall, ThreadMessage};
use crate::agent::protocol::vocabulary::bare;

/// User message between two turns of the model that have no message between them.
const GO_ON: &str = "Noted. Go on with one action.";
/// First message of a conversation whose beginning is outside the window.
const CLEARED: &str = "What came before is no longer shown.";

/// Text in place of a turn that was empty.
const SILENT: &str = "(nothing)";

/// Renders the messages of a model request for the agent `viewer`. Roles alternate, and the first
/// and the last message are the user's. Native calls of `provider` and their results become blocks;
/// those of other providers become XML.
pub fn conversation(
    items: &[MemoryItem],
    viewer: &ListenerName,
    provider: Option<&str>,
    version: RendererVersion,
) -> Vec<ChatMessage> {
    let mut talk = ConversationBuilder::new(viewer, version);
    for item in items {
        match item {
            MemoryItem::ModelText(model_text) => talk.push_model_turn(model_text, provider),
            MemoryItem::ThreadMessage(seen) => talk.push_message(seen),
            MemoryItem::Cleared => talk.incoming.push(CLEARED.to_owned()),
        }
    }

    talk.finish()
}

/// Builds the messages of a conversation.
struct ConversationBuilder<'a> {
    viewer: &'a ListenerName,
    version: RendererVersion,
    messages: Vec<ChatMessage>,
    /// `seq` of the last turn.
    turn: u64,
    owed: Vec<PendingToolResult<'a>>,
    /// Results of the last turn's actions by the index of the action, if results are not sent as
    /// blocks.
    results: BTreeMap<usize, Vec<RenderedMessage<'a>>>,
    /// All other texts of the next user message.
    incoming: Vec<String>,
}

struct PendingToolResult<'a> {
    id: String,
    /// Text in place of a missing result.
    silent: &'static str,
    results: Vec<RenderedMessage<'a>>,
}

impl<'a> ConversationBuilder<'a> {
    fn new(viewer: &'a ListenerName, version: RendererVersion) -> Self {
        Self {
            viewer,
            version,
            messages: Vec::new(),
            turn: 0,
            owed: Vec::new(),
            results: BTreeMap::new(),
            incoming: Vec::new(),
        }
    }

    fn push_model_turn(&mut self, model_text: &ModelText, provider: Option<&str>) {
        let first = self.messages.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.turn = model_text.turn;
        let native = provider.is_some_and(|provider| provider == model_text.provider);
        let mut blocks = Vec::new();
        if native {
            blocks.extend(model_text.own.iter().cloned().map(ChatBlock::Own));
            if !model_text.raw.trim().is_empty() {
                blocks.push(ChatBlock::Text(model_text.raw.clone()));
            }
            for call in &model_text.calls {
                blocks.push(ChatBlock::Call(call.call.clone()));
                let silent = silence(call);
                self.owed.push(PendingToolResult {
                    id: call.call.id.clone(),
                    silent,
                    results: Vec::new(),
                });
            }
        } else {
            blocks.push(ChatBlock::Text(as_xml(model_text)));
        }

        if blocks.iter().all(|block| matches!(block, ChatBlock::Own(_))) {
            blocks.push(ChatBlock::Text(SILENT.to_owned()));
        }

        self.messages.push(ChatMessage { role: ChatRole::Assistant, blocks });
    }

    fn push_message(&mut self, seen: &'a ThreadMessage) {
        let shown = shown_or_stub(seen, self.viewer, self.version);
        let call = seen.native.filter(|(turn, _)| *turn == self.turn);
        if let Some(owed) = call.and_then(|(_, at)| self.owed.get_mut(at)) {
            owed.results.push(shown);
            return;
        }

        let action = seen.action.filter(|(turn, _)| *turn == self.turn);
        match action.filter(|_| self.version >= RendererVersion::V4) {
            Some((_, place)) => self.results.entry(place).or_default().push(shown),
            None => self.incoming.push(shown.block(self.version)),
        }
    }

    /// Writes the next user message. The results come first, in the order of their calls.
    fn answer(&mut self, otherwise: &str) {
        let version = self.version;
        let mut blocks: Vec<ChatBlock> =
            self.owed.drain(..).map(|owed| owed.block(version)).collect();

        let results = std::mem::take(&mut self.results).into_values().flat_map(merged);
        let results = results.map(|shown| shown.block(version));
        let incoming = std::mem::take(&mut self.incoming);
        let incoming = results.chain(incoming).collect::<Vec<_>>().join("\n\n");
        if !incoming.is_empty() {
            blocks.push(ChatBlock::Text(incoming));
        }

        if blocks.is_empty() {
            blocks.push(ChatBlock::Text(otherwise.to_owned()));
        }

        self.messages.push(ChatMessage { role: ChatRole::User, blocks });
    }

    fn finish(mut self) -> Vec<ChatMessage> {
        let first = self.messages.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.messages
    }
}

impl PendingToolResult<'_> {
    fn block(self, version: RendererVersion) -> ChatBlock {
        let failed =
            !self.results.is_empty() && self.results.iter().all(RenderedMessage::is_failure);
        let mut results = match version {
            RendererVersion::V3 => self.results,
            _ => merged(self.results),
        };

        let text = match results.len() {
            0 => self.silent.to_owned(),
            1 => results.remove(0).text(),
            _ => {
                let blocks = results.into_iter().map(|shown| shown.block(version));
                blocks.collect::<Vec<_>>().join("\n\n")
            }
        };

        ChatBlock::Result { id: self.id, text, failed }
    }
}

/// Text that stands for the missing result of a native call.
fn silence(call: &RecordedToolCall) -> &'static str {
    match call.payload {
        Some(_) => "recorded",
        None => "Error: nothing came of this call",
    }
}

/// The text of a turn with its native calls written as XML.
fn as_xml(model_text: &ModelText) -> String {
    let mut parts = Vec::new();
    if !model_text.raw.is_empty() || model_text.calls.is_empty() {
        parts.push(model_text.raw.clone());
    }

    for RecordedToolCall { call, payload } in &model_text.calls {
        let refused = || {
            let name = &call.name;
            format!("<{name}>{}</{name}>", escape_text(&call.arguments))
        };
        parts.push(payload.as_deref().map_or_else(refused, bare));
    }

    parts.join("\n")
}
