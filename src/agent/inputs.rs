//! Inputs of a turn's model request, without the recorded thread. The journal stores these inputs
//! under their digest. The request can be rebuilt from the inputs and the thread, even if the
//! config has changed since the turn.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Digest, ThreadId};
use crate::model::{
    ChatBlock, ChatMessage, ChatRole, ModelRequest, ModelTool, RequestOrigin, ToolChoice,
    WireSettings, plain_body,
};
use crate::mutant::mutant;
use crate::thread::Record;

use super::history::{self, MemoryItem, UnseenMessage, Viewpoint};
use super::protocol::render;
use super::turn_note::PastTurn;
use super::{MemoryScope, RendererVersion};

/// Those inputs of a turn's model request that the journal stores under a digest. The thread is not
/// among them. The rest of the request can be rebuilt from the recorded thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnInputs {
    /// Version of the renderer that wrote the turn's prompt.
    #[serde(rename = "renderer")]
    pub renderer: String,
    #[serde(rename = "memory")]
    pub memory: MemoryScope,
    /// The provider for which the request was rendered. Native calls (tool calls) that came from
    /// this provider were sent as blocks of its API. Native calls from other providers were sent as
    /// XML. `None` if all native calls were sent as XML.
    #[serde(rename = "native", default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    #[serde(rename = "system")]
    pub system: String,
    #[serde(rename = "tools", default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ModelTool>,
    #[serde(rename = "tool_choice", default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    #[serde(rename = "one_call", default, skip_serializing_if = "std::ops::Not::not")]
    pub one_call: bool,
    #[serde(rename = "max_tokens", default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Name of the model that answered.
    #[serde(rename = "model")]
    pub model: String,
    /// Settings that determine the body of the HTTP request. `None` if the request was not sent
    /// over a network.
    #[serde(rename = "settings", default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<WireSettings>,
}

impl TurnInputs {
    /// Encodes the inputs as text for storage in the journal.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("plain data is JSON")
    }

    /// Decodes stored inputs.
    ///
    /// # Errors
    ///
    /// Returns a description of the first defect of the text.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }

    /// Returns the body of the HTTP request for `request`, byte for byte as it was sent.
    pub fn wire(&self, request: &ModelRequest) -> String {
        match &self.settings {
            Some(settings) => settings.body(request),
            None => plain_body(request, &self.model),
        }
    }

    /// Rebuilds the model request of the recorded turn `past`. Returns `None` if this program lacks
    /// the renderer version of that turn.
    pub fn request(
        &self,
        records: &[Record],
        thread: &ThreadId,
        past: &PastTurn,
    ) -> Option<ModelRequest> {
        let view = self.viewpoint(thread, past)?;
        let version = view.version;
        let mut items = history::of(records, &view).items;

        for item in Arc::make_mut(&mut items) {
            if let MemoryItem::ThreadMessage(seen) = item
                && past.left_out.contains(&seen.message.id)
            {
                Arc::make_mut(seen).left_out = true;
            }
        }

        let native = self.native.as_deref();
        let mut messages = render::conversation(&items, &past.agent, native, version);
        if let Some(notice) = &past.notice {
            append_notice(&mut messages, notice.clone());
        }

        let agent = past.agent.clone();
        let thread = thread.clone();
        Some(ModelRequest {
            origin: RequestOrigin { agent, thread, turn: past.turn, trace: None },
            system: self.system.clone(),
            messages,
            tools: self.tools.clone(),
            tool_choice: self.tool_choice,
            one_call: self.one_call,
            max_tokens: self.max_tokens,
            default_max_tokens: None,
        })
    }

    /// Returns the messages of the thread that the prompt of the recorded turn `past` did not show,
    /// although they were recorded before the turn. Returns `None` if this program lacks the
    /// renderer version of the turn.
    pub fn unseen(
        &self,
        records: &[Record],
        thread: &ThreadId,
        past: &PastTurn,
    ) -> Option<Vec<UnseenMessage>> {
        let view = self.viewpoint(thread, past)?;
        Some(history::unseen(records, &view, &past.left_out))
    }

    fn viewpoint<'a>(&self, thread: &'a ThreadId, past: &'a PastTurn) -> Option<Viewpoint<'a>> {
        let version = RendererVersion::parse(&self.renderer)?;
        Some(Viewpoint {
            agent: &past.agent,
            thread,
            call: past.call,
            position: past.position,
            memory: self.memory,
            version,
        })
    }
}

/// Appends `notice` to the end of a turn's request. The notice states the turn's number, the
/// available actions and how to end the call. Requests of later turns do not contain this notice.
pub(super) fn append_notice(messages: &mut Vec<Arc<ChatMessage>>, notice: String) {
    match messages.last_mut().filter(|message| message.role == ChatRole::User) {
        Some(message) => Arc::make_mut(message).blocks.push(ChatBlock::Text(notice)),
        None => messages.push(Arc::new(ChatMessage::text(ChatRole::User, notice))),
    }
}

/// Digests of a model request and of its inputs, with the text of the inputs.
pub(super) struct SentDigests {
    /// Digest of the whole request in the form in which it is sent.
    pub prompt: Digest,
    /// Text of the inputs, which the journal stores under its digest. `None` if the inputs are not
    /// stored.
    pub kept: Option<String>,
    pub inputs: Option<Digest>,
}

impl SentDigests {
    pub fn of(request: &ModelRequest, inputs: &TurnInputs) -> Self {
        if mutant("forget-the-inputs") {
            return Self { prompt: older_digest(request), kept: None, inputs: None };
        }

        let kept = inputs.write();
        let digest = Digest::of(kept.as_bytes());
        let prompt = Digest::of(inputs.wire(request).as_bytes());
        Self { prompt, kept: Some(kept), inputs: Some(digest) }
    }
}

/// Returns the digest of a request as older versions of the program recorded it. These versions did
/// not store the inputs of requests. The digest covers all parts of the request except its
/// settings. In the digested text, a zero byte ends each part; no part contains a zero byte.
pub(super) fn older_digest(request: &ModelRequest) -> Digest {
    let tools = request
        .tools
        .iter()
        .map(|tool| format!("{}\0{}\0{}\0", tool.name, tool.description, tool.parameters));
    let tools: String = tools.collect();
    let one_call = if request.one_call { "one call\0" } else { "" };
    let bounds = format!("{:?}\0{:?}\0{one_call}", request.tool_choice, request.answer_bound());
    let mut parts: Vec<&[u8]> = vec![request.system.as_bytes(), b"\0"];

    for message in &request.messages {
        parts.extend([message.role.as_str().as_bytes(), b"\0"]);
        for block in &message.blocks {
            let fields: &[&str] = match block {
                ChatBlock::Text(text) => &[text],
                ChatBlock::Call(call) => &["\u{1}call", &call.id, &call.name, &call.arguments],
                ChatBlock::Result { id, text, failed: false } => &["\u{1}result", id, text],
                ChatBlock::Result { id, text, failed: true } => &["\u{1}failed", id, text],
                ChatBlock::Own(own) => &["\u{1}own", &own.provider, &own.json],
            };
            parts.extend(fields.iter().flat_map(|field| [field.as_bytes(), b"\0".as_slice()]));
        }
    }

    parts.extend([tools.as_bytes(), bounds.as_bytes()]);
    Digest::of_parts(&parts)
}
