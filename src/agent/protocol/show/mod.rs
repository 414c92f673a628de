//! The conversation as the model is shown it: its own turns verbatim, everything else in blocks
//! of which none can pass for another.

mod shown;

use std::collections::BTreeMap;

use crate::model::{ChatBlock, ChatMessage, ChatRole};
use crate::xml::escape::escape_text;

use super::vocabulary::bare;
use crate::agent::RendererVersion;
use crate::agent::history::{Item, Seen, Spoken, SpokenCall};
use shown::{Shown, merged, shown_or_stub};

pub use shown::text_of;

/// Stands between two turns of the model where nothing was said to it.
const GO_ON: &str = "Noted. Go on with one action.";
/// Opens a conversation whose beginning is outside the window.
const CLEARED: &str = "What came before is no longer shown.";

/// Stands for a turn in which the model said nothing.
const SILENT: &str = "(nothing)";

/// The messages of a model call, roles alternating, the user's first and last. Native calls and
/// results are blocks where `provider` is who made the calls, and XML otherwise.
pub fn conversation(
    items: &[Item],
    provider: Option<&str>,
    version: RendererVersion,
) -> Vec<ChatMessage> {
    let mut talk = Talk::new(version);
    for item in items {
        match item {
            Item::Spoken(spoken) => talk.speak(spoken, provider),
            Item::Seen(seen) => talk.hear(seen),
            Item::Cleared => talk.heard.push(CLEARED.to_owned()),
        }
    }
    talk.finish()
}

/// A conversation in the making.
struct Talk<'a> {
    version: RendererVersion,
    said: Vec<ChatMessage>,
    /// The last turn, and its native calls, each with what it came to.
    turn: u64,
    owed: Vec<Owed<'a>>,
    /// What came of its actions, by their places, where that is no block of its own.
    results: BTreeMap<usize, Vec<Shown<'a>>>,
    /// What the user's side says besides.
    heard: Vec<String>,
}

struct Owed<'a> {
    id: String,
    /// What is said where nothing came of it.
    silent: &'static str,
    results: Vec<Shown<'a>>,
}

impl<'a> Talk<'a> {
    fn new(version: RendererVersion) -> Self {
        Self {
            version,
            said: Vec::new(),
            turn: 0,
            owed: Vec::new(),
            results: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    fn speak(&mut self, spoken: &Spoken, provider: Option<&str>) {
        let first = self.said.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.turn = spoken.turn;
        let native = provider.is_some_and(|provider| provider == spoken.provider);
        let mut blocks = Vec::new();
        if native {
            blocks.extend(spoken.own.iter().cloned().map(ChatBlock::Own));
            if !spoken.raw.trim().is_empty() {
                blocks.push(ChatBlock::Text(spoken.raw.clone()));
            }
            for call in &spoken.calls {
                blocks.push(ChatBlock::Call(call.call.clone()));
                let silent = silence(call);
                self.owed.push(Owed { id: call.call.id.clone(), silent, results: Vec::new() });
            }
        } else {
            blocks.push(ChatBlock::Text(as_xml(spoken)));
        }
        if blocks.iter().all(|block| matches!(block, ChatBlock::Own(_))) {
            blocks.push(ChatBlock::Text(SILENT.to_owned()));
        }
        self.said.push(ChatMessage { role: ChatRole::Assistant, blocks });
    }

    fn hear(&mut self, seen: &'a Seen) {
        let shown = shown_or_stub(seen, self.version);
        let call = seen.native.filter(|(turn, _)| *turn == self.turn);
        if let Some(owed) = call.and_then(|(_, at)| self.owed.get_mut(at)) {
            owed.results.push(shown);
            return;
        }
        let action = seen.action.filter(|(turn, _)| *turn == self.turn);
        match action.filter(|_| self.version >= RendererVersion::V4) {
            Some((_, place)) => self.results.entry(place).or_default().push(shown),
            None => self.heard.push(shown.block(self.version)),
        }
    }

    /// The user's side has its say: results first, in the order of their calls.
    fn answer(&mut self, otherwise: &str) {
        let version = self.version;
        let mut blocks: Vec<ChatBlock> =
            self.owed.drain(..).map(|owed| owed.block(version)).collect();

        let results = std::mem::take(&mut self.results).into_values().flat_map(merged);
        let results = results.map(|shown| shown.block(version));
        let heard = std::mem::take(&mut self.heard);
        let heard = results.chain(heard).collect::<Vec<_>>().join("\n\n");
        if !heard.is_empty() {
            blocks.push(ChatBlock::Text(heard));
        }
        if blocks.is_empty() {
            blocks.push(ChatBlock::Text(otherwise.to_owned()));
        }
        self.said.push(ChatMessage { role: ChatRole::User, blocks });
    }

    fn finish(mut self) -> Vec<ChatMessage> {
        let first = self.said.is_empty();
        self.answer(if first { CLEARED } else { GO_ON });
        self.said
    }
}

impl Owed<'_> {
    fn block(self, version: RendererVersion) -> ChatBlock {
        let failed = !self.results.is_empty() && self.results.iter().all(Shown::is_failure);
        let mut results = match version {
            RendererVersion::V3 => self.results,
            RendererVersion::V4 => merged(self.results),
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

/// What a call came to that nobody answered.
fn silence(call: &SpokenCall) -> &'static str {
    match call.payload {
        Some(_) => "recorded",
        None => "Error: nothing came of this call",
    }
}

/// A turn as it would have been written without native calls.
fn as_xml(spoken: &Spoken) -> String {
    let mut parts = Vec::new();
    if !spoken.raw.is_empty() || spoken.calls.is_empty() {
        parts.push(spoken.raw.clone());
    }
    for SpokenCall { call, payload } in &spoken.calls {
        let refused = || {
            let name = &call.name;
            format!("<{name}>{}</{name}>", escape_text(&call.arguments))
        };
        parts.push(payload.as_deref().map_or_else(refused, bare));
    }
    parts.join("\n")
}
