//! A scripted model for every protocol. It replaces the provider for all native calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use organism::agent::ActionTransport;
use organism::model::{
    AnswerChunk, CallFuture, Error, ModelProvider, ModelRequest, ModelRoute, OnChunk, OwnBlock,
    StopReason, StreamEnd, TokenUsage, ToolCall,
};
use serde_json::Value;

use super::setup::schemas;

/// The answer of a model.
#[derive(Debug, Clone)]
pub struct Reply {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
    pub own: Vec<OwnBlock>,
    pub stop: StopReason,
}

pub fn reply(text: &str) -> Reply {
    Reply {
        text: text.to_owned(),
        reasoning: String::new(),
        calls: Vec::new(),
        own: Vec::new(),
        stop: StopReason::Normal,
    }
}

impl Reply {
    /// Adds a native call. The id of the call follows from the position of the call.
    pub fn call(mut self, name: &str, arguments: &str) -> Self {
        let id = format!("call-{}-{name}", self.calls.len() + 1);
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        self.calls.push(ToolCall { id, name, arguments });
        self.stop = StopReason::Calls;
        self
    }

    pub fn stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    pub fn own(mut self, provider: &str, json: &str) -> Self {
        self.own.push(OwnBlock { provider: provider.to_owned(), json: json.to_owned() });
        self
    }
}

/// One turn, valid for any protocol.
#[derive(Clone)]
pub enum Says {
    /// A turn with these actions: tool names with their arguments as JSON.
    Acts(Vec<(&'static str, Value)>),
    /// A turn that completes the task with this report.
    Ends(&'static str),
    /// The provider rejects the request with this text.
    Rejects(&'static str),
    /// The provider states with this text that it could not parse the model's answer.
    Garbles(&'static str),
    /// A turn with exactly this text. `NONCE` in the text stands for the nonce of the turn, and
    /// `EARLIER` stands for the nonce of the first turn.
    Exactly(Reply),
}

/// A model that plays its turns in order and stores the requests.
#[derive(Debug)]
pub struct Scripted {
    transport: ActionTransport,
    provider: String,
    turns: Mutex<VecDeque<Says>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl std::fmt::Debug for Says {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a scripted turn")
    }
}

impl Scripted {
    pub fn new(transport: ActionTransport, turns: Vec<Says>) -> Arc<Self> {
        Self::by("fake", transport, turns)
    }

    pub fn by(provider: &str, transport: ActionTransport, turns: Vec<Says>) -> Arc<Self> {
        let (turns, heard) = (Mutex::new(turns.into()), Mutex::default());
        Arc::new(Self { transport, provider: provider.to_owned(), turns, requests: heard })
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    fn reply(&self, request: &ModelRequest) -> Result<Reply, Error> {
        let says = self.turns.lock().unwrap().pop_front();
        let says = says.unwrap_or_else(|| panic!("a turn too many: {request:#?}"));
        let mut reply = match says {
            Says::Rejects(message) => {
                let (route, message) = (self.route(), message.to_owned());
                return Err(Error::Rejected { route, status: 400, message });
            }
            Says::Garbles(message) => {
                let (route, message) = (self.route(), message.to_owned());
                return Err(Error::UnparsedAnswer { route, message });
            }
            Says::Exactly(reply) => reply,
            Says::Ends(report) => self.ends(report),
            Says::Acts(actions) => self.acts(&actions),
        };
        let earlier = self.requests.lock().unwrap().first().and_then(nonce);
        if let Some(earlier) = earlier {
            reply.text = reply.text.replace("EARLIER", &earlier);
        }
        if let Some(nonce) = nonce(request) {
            reply.text = reply.text.replace("NONCE", &nonce);
        }
        Ok(reply)
    }

    fn acts(&self, actions: &[(&str, Value)]) -> Reply {
        let thinking = "<thinking>Look.</thinking>";
        if self.transport.is_native() {
            return actions
                .iter()
                .fold(reply(thinking), |reply, (name, json)| reply.call(name, &json.to_string()));
        }
        let schemas = schemas();
        let xml = actions.iter().map(|(local, json)| {
            let name = schemas.names().find(|name| &*name.local == *local).unwrap();
            schemas.to_xml(name, &json.to_string()).unwrap()
        });
        reply(&format!("{thinking}{}", xml.collect::<String>()))
    }

    fn ends(&self, report: &str) -> Reply {
        let thinking = "<thinking>Done.</thinking>";
        let text = organism::xml::escape::escape_text(report);
        match self.transport {
            ActionTransport::Xml => reply(&format!(
                "{thinking}<attempt_completion><result>{text}</result></attempt_completion>"
            )),
            ActionTransport::Native => {
                let arguments = serde_json::json!({"result": report}).to_string();
                reply(thinking).call("attempt_completion", &arguments)
            }
            ActionTransport::XmlFinal => {
                reply(&format!("{thinking}<NONCE-FINAL format=\"text\">{text}</NONCE-FINAL>"))
            }
        }
    }
}

/// Returns the nonce in the last text of a request; `None` if this text contains no nonce.
pub fn nonce(request: &ModelRequest) -> Option<String> {
    let last = request.messages.last()?.texts().last()?;
    let (before, _) = last.split_once("-FINAL format")?;
    before.rsplit('<').next().map(str::to_owned)
}

impl ModelProvider for Scripted {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        let reply = self.reply(request);
        self.requests.lock().unwrap().push(request.clone());
        Box::pin(async move {
            let reply = reply?;
            if !reply.reasoning.is_empty() {
                on_chunk(AnswerChunk::Reasoning(&reply.reasoning));
            }
            // One character at a time, because no answer may depend on the chunks.
            let mut rest = reply.text.as_str();
            while let Some(c) = rest.chars().next() {
                let (piece, after) = rest.split_at(c.len_utf8());
                on_chunk(AnswerChunk::Text(piece));
                rest = after;
            }
            let (calls, own, stop) = (reply.calls, reply.own, reply.stop);
            let usage = TokenUsage { tokens_in: 10, tokens_out: 5, ..TokenUsage::default() };
            Ok::<StreamEnd, Error>(StreamEnd {
                stop,
                usage,
                calls,
                own,
                route: self.route(),
                settings: None,
                model: None,
            })
        })
    }

    fn route(&self) -> ModelRoute {
        ModelRoute { provider: self.provider.clone(), model: "scripted".to_owned() }
    }
}
