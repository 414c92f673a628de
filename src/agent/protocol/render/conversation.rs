//! Renders a conversation. After each turn of the model come the results of the turn's actions, in
//! the order of the actions. The other messages that precede the next turn follow.
//!
//! A conversation is a sequence of segments. The first segment contains the items before the first
//! turn. Each further segment contains a turn and the items up to the next turn. A segment depends
//! only on its own items, so it does not change while the conversation grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::ListenerName;
use crate::model::{ChatBlock, ChatMessage, ChatRole, ToolCall};
use crate::xml::escape::escape_text;

use super::rendered_message::{RenderedMessage, merged, shown_or_stub};
use crate::agent::RendererVersion;
use crate::agent::history::{MemoryItem, ModelText, RecordedToolCall, ThreadMessage};
use crate::agent::protocol::vocabulary::bare;

/// User message after a turn of the model if there is nothing to show before the next turn or
/// before the end of the conversation.
const GO_ON: &str = "Noted. Go on with one action.";
/// Text in place of the part of a conversation that is outside the window that the agent sees.
const CLEARED: &str = "What came before is no longer shown.";

/// Text in place of a turn in which the model wrote nothing.
const SILENT: &str = "(nothing)";

/// All settings that determine how a conversation is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationForm {
    /// The agent that reads the conversation.
    pub viewer: ListenerName,
    /// The provider for which the conversation is rendered. Native calls (tool calls) that came
    /// from this provider become blocks of its API. Native calls from other providers become XML.
    /// If `None`, all native calls become XML.
    pub provider: Option<String>,
    pub version: RendererVersion,
}

/// A rendered conversation, kept between turns. The next turn reuses all segments before the first
/// changed item, and renders all other segments anew.
#[derive(Debug, Default)]
pub struct RenderedConversation {
    form: Option<ConversationForm>,
    items: Vec<MemoryItem>,
    segments: Vec<RenderedSegment>,
    messages: Vec<Arc<ChatMessage>>,
}

/// End of one segment: the numbers of items, messages and bytes from the beginning of the
/// conversation up to this end.
#[derive(Debug, Clone, Copy, Default)]
struct RenderedSegment {
    /// Number of items up to the end of the segment.
    items: usize,
    /// Number of messages up to the end of the segment.
    messages: usize,
    /// Approximate bytes of the messages up to the end of the segment.
    bytes: usize,
}

impl RenderedConversation {
    /// Returns the approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.end().bytes
    }

    /// Renders the messages of a model request. Roles alternate; the first and the last message
    /// have the role of the user.
    pub fn render(
        &mut self,
        items: &[MemoryItem],
        form: &ConversationForm,
    ) -> Vec<Arc<ChatMessage>> {
        if self.form.as_ref() != Some(form) {
            *self = Self { form: Some(form.clone()), ..Self::default() };
        }
        self.keep_unchanged(items);

        // The first segment has no turn. It may be empty.
        if self.segments.is_empty() {
            self.push(None, until_turn(items), form);
        }
        while let Some((first, rest)) = items_after(items, self.end().items).split_first() {
            let turn = match first {
                MemoryItem::ModelText(turn) => Some(turn),
                _ => None,
            };
            self.push(turn, until_turn(rest), form);
        }
        self.items.extend_from_slice(items_after(items, self.items.len()));
        self.messages.clone()
    }

    /// Drops the first segment that differs from `items`, and all later segments.
    fn keep_unchanged(&mut self, items: &[MemoryItem]) {
        let pairs = self.items.iter().zip(items);
        let same = pairs.take_while(|(kept, item)| kept == item).count();
        let is_unchanged = |segment: &RenderedSegment| {
            segment.items <= same && items.get(segment.items).is_none_or(is_turn)
        };
        while self.segments.last().is_some_and(|last| !is_unchanged(last)) {
            self.segments.pop();
        }

        let RenderedSegment { items, messages, .. } = self.end();
        self.items.truncate(items);
        self.messages.truncate(messages);
    }

    fn end(&self) -> RenderedSegment {
        self.segments.last().copied().unwrap_or_default()
    }

    /// Adds a segment: `turn` as a message of the model, then a user message with the items in
    /// `after`. If `turn` is `None`, the segment is only the user message.
    fn push(
        &mut self,
        turn: Option<&Arc<ModelText>>,
        after: &[MemoryItem],
        form: &ConversationForm,
    ) {
        let answer = SegmentRenderer::new(turn, form).answer(after);
        let turn_message = turn.map(|turn| model_message(turn, form));
        let RenderedSegment { items, bytes, .. } = self.end();
        let messages = turn_message.into_iter().chain([answer]);

        let before = self.messages.len();
        self.messages.extend(messages.map(Arc::new));
        let added = items_after(&self.messages, before).iter().map(|message| bytes_of(message));
        self.segments.push(RenderedSegment {
            items: items + usize::from(turn.is_some()) + after.len(),
            messages: self.messages.len(),
            bytes: bytes + added.sum::<usize>(),
        });
    }
}

/// Returns the items before the first turn.
fn until_turn(items: &[MemoryItem]) -> &[MemoryItem] {
    items.split(is_turn).next().unwrap_or_default()
}

/// Returns all items except the first `count`.
fn items_after<T>(items: &[T], count: usize) -> &[T] {
    items.get(count..).unwrap_or_default()
}

fn is_turn(item: &MemoryItem) -> bool {
    matches!(item, MemoryItem::ModelText(_))
}

fn bytes_of(message: &ChatMessage) -> usize {
    let texts = message.blocks.iter().map(|block| match block {
        ChatBlock::Text(text) | ChatBlock::Result { text, .. } => text.len(),
        ChatBlock::Call(call) => call.name.len() + call.arguments.len(),
        ChatBlock::Own(own) => own.json.len(),
    });
    texts.sum()
}

/// Renders a whole conversation. Earlier rendered segments are not used.
pub fn conversation(
    items: &[MemoryItem],
    viewer: &ListenerName,
    provider: Option<&str>,
    version: RendererVersion,
) -> Vec<Arc<ChatMessage>> {
    let provider = provider.map(str::to_owned);
    let form = ConversationForm { viewer: viewer.clone(), provider, version };
    RenderedConversation::default().render(items, &form)
}

impl ConversationForm {
    /// Whether the native calls (tool calls) of `turn` are rendered as blocks of the provider's
    /// API.
    fn is_native(&self, turn: &ModelText) -> bool {
        self.provider.as_ref() == Some(&turn.provider)
    }
}

/// Returns the turn of a model as a message of the conversation.
fn model_message(turn: &ModelText, form: &ConversationForm) -> ChatMessage {
    let mut blocks = Vec::new();
    if form.is_native(turn) {
        blocks.extend(turn.own.iter().cloned().map(ChatBlock::Own));
        if !turn.raw.trim().is_empty() {
            blocks.push(ChatBlock::Text(turn.raw.clone()));
        }
        blocks.extend(turn.calls.iter().map(|call| native_call(&call.call, form.version)));
    } else {
        let text = as_xml(turn);
        // Providers refuse a message without text. Versions before the twelfth sent one.
        if !text.trim().is_empty() || form.version < RendererVersion::V12 {
            blocks.push(ChatBlock::Text(text));
        }
    }

    if blocks.iter().all(|block| matches!(block, ChatBlock::Own(_))) {
        blocks.push(ChatBlock::Text(SILENT.to_owned()));
    }
    ChatMessage { role: ChatRole::Assistant, blocks }
}

/// Returns a native call in the form of the API of its provider. If the model wrote the call
/// without arguments, the arguments become an empty object. In renderer versions before the
/// eleventh, they stay an empty text.
fn native_call(call: &ToolCall, version: RendererVersion) -> ChatBlock {
    let mut call = call.clone();
    if call.arguments.trim().is_empty() && version >= RendererVersion::V11 {
        "{}".clone_into(&mut call.arguments);
    }
    ChatBlock::Call(call)
}

/// Builder of the user message that follows a turn of the model.
struct SegmentRenderer<'a> {
    form: &'a ConversationForm,
    turn: Option<&'a ModelText>,
    owed: Vec<PendingToolResult<'a>>,
    /// Results of the turn's actions, by the index of the action. Empty if the results are rendered
    /// as blocks of the provider's API.
    results: BTreeMap<usize, Vec<RenderedMessage<'a>>>,
    /// Texts of the user message that are not results of the turn's actions.
    incoming: Vec<String>,
}

struct PendingToolResult<'a> {
    id: &'a str,
    /// Text that is shown if the call has no result.
    silent: &'static str,
    /// Results of the native call in the order of their arrival, each with the index of its action.
    /// A native call to a group has several results, because the call counts as one action for each
    /// peer.
    results: Vec<(Option<usize>, RenderedMessage<'a>)>,
}

impl<'a> SegmentRenderer<'a> {
    fn new(turn: Option<&'a Arc<ModelText>>, form: &'a ConversationForm) -> Self {
        let turn = turn.map(|turn| &**turn);
        let native = turn.filter(|turn| form.is_native(turn));
        let calls = native.into_iter().flat_map(|turn| &turn.calls);
        let owed = calls.map(|call| PendingToolResult {
            id: &call.call.id,
            silent: silence(call, form.version),
            results: Vec::new(),
        });
        let owed = owed.collect();
        Self { form, turn, owed, results: BTreeMap::new(), incoming: Vec::new() }
    }

    /// Makes the user message from `items`. The results of actions come first, in the order of the
    /// actions, and then all other texts.
    fn answer(mut self, items: &'a [MemoryItem]) -> ChatMessage {
        for item in items {
            match item {
                MemoryItem::ThreadMessage(seen) => self.push_message(seen),
                MemoryItem::Cleared => self.incoming.push(CLEARED.to_owned()),
                MemoryItem::ModelText(_) => {}
            }
        }

        let version = self.form.version;
        let owed = self.owed.into_iter().map(|owed| owed.block(version));
        let mut blocks: Vec<ChatBlock> = owed.collect();

        let results = self.results.into_values().flat_map(merged);
        let results = results.map(|shown| shown.block(version));
        let incoming = results.chain(self.incoming).collect::<Vec<_>>().join("\n\n");
        if !incoming.is_empty() {
            blocks.push(ChatBlock::Text(incoming));
        }

        if blocks.is_empty() {
            let otherwise = if self.turn.is_none() { CLEARED } else { GO_ON };
            blocks.push(ChatBlock::Text(otherwise.to_owned()));
        }
        ChatMessage { role: ChatRole::User, blocks }
    }

    fn push_message(&mut self, seen: &'a ThreadMessage) {
        let version = self.form.version;
        let shown = shown_or_stub(seen, &self.form.viewer, version);
        let turn = self.turn.map_or(0, |turn| turn.turn);
        let action = seen.action.filter(|(of_turn, _)| *of_turn == turn);
        let call = seen.native.filter(|(of_turn, _)| *of_turn == turn);
        if let Some(owed) = call.and_then(|(_, at)| self.owed.get_mut(at)) {
            owed.results.push((action.map(|(_, place)| place), shown));
            return;
        }

        match action.filter(|_| version >= RendererVersion::V4) {
            Some((_, place)) => self.results.entry(place).or_default().push(shown),
            None => self.incoming.push(shown.block(version)),
        }
    }
}

impl PendingToolResult<'_> {
    fn block(self, version: RendererVersion) -> ChatBlock {
        let mut placed = self.results;
        if version >= RendererVersion::V9 {
            // The peers of a group are called in the order of the config.
            placed.sort_by_key(|(place, _)| *place);
        }

        let results: Vec<_> = placed.into_iter().map(|(_, shown)| shown).collect();
        let failed = if results.is_empty() {
            // Earlier versions never marked a missing result as failed.
            version >= RendererVersion::V10 && self.silent.starts_with("Error:")
        } else {
            results.iter().all(RenderedMessage::is_failure)
        };
        let mut results = match version {
            RendererVersion::V3 => results,
            _ => merged(results),
        };

        let text = match results.len() {
            0 => self.silent.to_owned(),
            1 => results.remove(0).text(),
            _ => {
                let blocks = results.into_iter().map(|shown| shown.block(version));
                blocks.collect::<Vec<_>>().join("\n\n")
            }
        };

        ChatBlock::Result { id: self.id.to_owned(), text, failed }
    }
}

/// Returns the text for a native call that has no result. If the native call was refused or ended
/// without an answer, the text is an error. Otherwise, the text is `recorded`. In renderer versions
/// before the tenth, the text is an error only for a refused native call.
fn silence(call: &RecordedToolCall, version: RendererVersion) -> &'static str {
    match call.payload {
        Some(_) if call.is_owed && version >= RendererVersion::V10 => {
            "Error: no answer came; the call ended before"
        }
        Some(_) => "recorded",
        None => "Error: nothing came of this call",
    }
}

/// Returns the text of a turn with its native calls written as XML.
fn as_xml(model_text: &ModelText) -> String {
    let mut parts = Vec::new();
    if !model_text.raw.is_empty() || model_text.calls.is_empty() {
        parts.push(model_text.raw.clone());
    }

    for RecordedToolCall { call, payload, .. } in &model_text.calls {
        let refused = || {
            let name = &call.name;
            format!("<{name}>{}</{name}>", escape_text(&call.arguments))
        };
        parts.push(payload.as_deref().map_or_else(refused, bare));
    }

    parts.join("\n")
}
