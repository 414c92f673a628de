//! A local provider that streams one answer to every request, in the wire format of a real
//! provider.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use serde_json::Value as Json;

/// One wire format: the text before and after all tokens of an answer, and the text before and
/// after each token.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    pub preset: &'static str,
    begin: &'static str,
    token: (&'static str, &'static str),
    end: &'static str,
}

pub const OPENAI: Wire = Wire {
    preset: "openai",
    begin: "",
    token: (
        "data: {\"id\":\"chatcmpl-CdZqP5bUYWMWRxgmH3hZvZkW0Pm1w\",\"object\":\
         \"chat.completion.chunk\",\"created\":1763646533,\"model\":\"m-1\",\"service_tier\":\
         \"default\",\"system_fingerprint\":\"fp_560af6e559\",\"choices\":[{\"index\":0,\"delta\":\
         {\"content\":",
        "},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null,\
         \"obfuscation\":\"x4Gd\"}\n\n",
    ),
    end: "data: [DONE]\n\n",
};

pub const ANTHROPIC: Wire = Wire {
    preset: "anthropic",
    begin: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
        \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    token: (
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{\"type\":\"text_delta\",\"text\":",
        "}}\n\n",
    ),
    end: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
};

/// A local server that answers a given number of requests, each with the same answer.
pub struct Server {
    pub url: String,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Server {
    pub fn start(wire: &Wire, tokens: &[String], requests: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}/v1");
        let answer = wire.answer(tokens);
        let serving = std::thread::spawn(move || {
            for stream in listener.incoming().take(requests) {
                let mut stream = stream.unwrap();
                hear(&mut stream);
                stream.write_all(&answer).unwrap();
            }
        });
        Self { url, address, serving }
    }

    /// Reads the bytes of the answer without parsing them. The time for this is the lower bound for
    /// the figures.
    pub fn read(&self) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut heard = Vec::new();
        assert!(stream.read_to_end(&mut heard).unwrap() > 0);
    }

    /// Waits until all requests are answered.
    pub fn join(self) {
        self.serving.join().unwrap();
    }
}

impl Wire {
    /// Returns the answer as HTTP. Each token is one HTTP chunk, because real servers flush after
    /// each token.
    fn answer(&self, tokens: &[String]) -> Vec<u8> {
        let mut out = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Transfer-Encoding: chunked\r\n\r\n"
            .to_owned();
        let (before, after) = self.token;
        let token = |token: &String| format!("{before}{}{after}", Json::from(token.as_str()));
        let begin = std::iter::once(self.begin.to_owned());
        let events = begin.chain(tokens.iter().map(token)).chain([self.end.to_owned()]);
        for event in events.filter(|event| !event.is_empty()) {
            let _ = write!(out, "{:x}\r\n{event}\r\n", event.len());
        }
        out.push_str("0\r\n\r\n");
        out.into_bytes()
    }
}

/// Reads one request completely. Closing a connection with unread bytes would reset the connection.
fn hear(stream: &mut TcpStream) {
    let (mut heard, mut some) = (Vec::new(), [0; 16 << 10]);
    loop {
        let text = String::from_utf8_lossy(&heard);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return;
            }
        }
        let read = stream.read(&mut some).unwrap();
        assert!(read > 0, "the request ended early");
        heard.extend_from_slice(&some[..read]);
    }
}
