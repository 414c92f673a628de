//! The attacker as a provider: a local server that answers each chat completion with the next
//! attack and stores the request.

use std::sync::{Arc, Mutex};

use organism::agent::ActionTransport;
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::script::{Attack, Says, Sight, attack};
use crate::model::server::{STREAM_HEAD, http_chunk, read_request};

/// An attack, and the prompt that the attack answers.
pub struct Played {
    pub attack: Attack,
    pub prompt: Vec<PromptMessage>,
    /// Reasons why a strict provider would reject the prompt.
    pub bad: Vec<String>,
}

/// One message of a prompt as it came over the wire.
#[derive(Debug)]
pub struct PromptMessage {
    pub role: String,
    pub text: String,
}

#[derive(Clone)]
pub struct Attacker {
    pub port: u16,
    played: Arc<Mutex<Vec<Played>>>,
    accepting: Arc<Accepting>,
}

struct Accepting(tokio::task::JoinHandle<()>);

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Attacker {
    pub async fn start(transport: ActionTransport, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let played = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&played);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                tokio::spawn(async move { serve(stream, transport, seed, &log).await });
            }
        });
        Self { port, played, accepting: Arc::new(Accepting(accepting)) }
    }

    pub fn turns(&self) -> usize {
        self.played.lock().unwrap().len()
    }

    /// Stops the server. Returns all attacks so far, in order.
    pub fn played(self) -> Vec<Played> {
        self.accepting.0.abort();
        std::mem::take(&mut *self.played.lock().unwrap())
    }
}

async fn serve(mut stream: TcpStream, way: ActionTransport, seed: u64, log: &Mutex<Vec<Played>>) {
    let Some(request) = read_request(&mut stream).await else { return };
    let body: Json = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (heard, bad) = (prompt_messages(&body), bad(&body));
    let events = {
        let mut played = log.lock().unwrap();
        let number = played.len();
        let attack = attack(way, seed, number, &Sight::of(&heard));
        let events = events(&attack.says, number);
        played.push(Played { attack, prompt: heard, bad });
        events
    };
    let mut answer = STREAM_HEAD.to_vec();
    events.iter().for_each(|event| answer.extend(http_chunk(event.as_bytes())));
    answer.extend(b"0\r\n\r\n");
    // A client may disconnect early; the record shows why.
    stream.write_all(&answer).await.ok();
}

fn prompt_messages(body: &Json) -> Vec<PromptMessage> {
    let text = |content: &Json| match content {
        Json::String(text) => text.clone(),
        Json::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    };
    let messages = body["messages"].as_array().unwrap().iter();
    let heard = messages.map(|message| {
        let role = message["role"].as_str().unwrap().to_owned();
        PromptMessage { role, text: text(&message["content"]) }
    });
    heard.collect()
}

/// Returns the reasons why a strict server would refuse the request: invalid tool names, arguments
/// that are no JSON object, calls without a result, and results without a call.
fn bad(body: &Json) -> Vec<String> {
    let (mut bad, mut owed) = (Vec::new(), Vec::new());
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            let id = &message["tool_call_id"];
            match owed.iter().position(|owed| owed == id) {
                Some(at) => drop(owed.remove(at)),
                None => bad.push(format!("a result of no call: {id}")),
            }
            continue;
        }
        bad.extend(owed.drain(..).map(|id: Json| format!("a call without a result: {id}")));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            owed.push(call["id"].clone());
            let name = call["function"]["name"].as_str().unwrap();
            let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 64 || !name.chars().all(letters) {
                bad.push(format!("a tool called `{name}`"));
            }
            let arguments = call["function"]["arguments"].as_str().unwrap();
            if !serde_json::from_str::<Json>(arguments).is_ok_and(|read| read.is_object()) {
                bad.push(format!("arguments that are no object: {arguments}"));
            }
        }
    }
    bad
}

/// Streams the answer as an OpenAI server does. The usage contains the number of the turn,
/// counted from 1, because a usage of 0 does not count as reported.
fn events(says: &Says, number: usize) -> Vec<String> {
    let chunk = |delta: Json, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": [choice]}))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    if !says.reasoning.is_empty() {
        events.push(chunk(json!({"reasoning_content": says.reasoning}), None));
    }
    let size = if says.text.len() > 10_000 { 8_192 } else { 7 };
    let letters: Vec<char> = says.text.chars().collect();
    let pieces = letters.chunks(size).map(|piece| piece.iter().collect::<String>());
    events.extend(pieces.map(|piece| chunk(json!({"content": piece}), None)));
    for (index, (id, name, arguments)) in says.calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        events.push(chunk(json!({"tool_calls": [call]}), None));
    }
    events.push(chunk(json!({}), Some(says.stop)));
    let usage = json!({"prompt_tokens": number + 1, "completion_tokens": says.tokens});
    events.push(format!("data: {}\n\n", json!({"choices": [], "usage": usage})));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
