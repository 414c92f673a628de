//! `provider_openai`, `provider_anthropic`: processor time of reading a streamed answer of 2,000
//! tokens, over a socket, in the thread that reads it.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use organism::ids::{ListenerName, ThreadId};
use organism::model::http::{Client, Endpoint, Proxies, Roots, Timeouts};
use organism::model::remote::{Asked, Options, Preset};
use organism::model::{Key, KeySource, Origin, Provider as _, Remote, Request, Role, Said};

use super::figures::{Bench, median};

const TOKENS: usize = 2_000;
const TURNS: u32 = 20;

pub fn openai(bench: &mut Bench) {
    let token = "data: {\"id\":\"chatcmpl-CdZqP5bUYWMWRxgmH3hZvZkW0Pm1w\",\"object\":\
        \"chat.completion.chunk\",\"created\":1763646533,\"model\":\"m-1\",\"service_tier\":\
        \"default\",\"system_fingerprint\":\"fp_560af6e559\",\"choices\":[{\"index\":0,\"delta\":\
        {\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null,\
        \"obfuscation\":\"x4Gd\"}\n\n";
    run(bench, "provider_openai", "openai", &["", token, "data: [DONE]\n\n"]);
}

pub fn anthropic(bench: &mut Bench) {
    let begin = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
        \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    let token = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
        \"delta\":{\"type\":\"text_delta\",\"text\":\" token\"}}\n\n";
    let end = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    run(bench, "provider_anthropic", "anthropic", &[begin, token, end]);
}

/// One HTTP chunk a token, as servers flush them.
fn answer([begin, token, end]: &[&str; 3]) -> Vec<u8> {
    let mut out = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n"
        .to_owned();
    let tokens = std::iter::repeat_n(token, TOKENS);
    for event in std::iter::once(begin).chain(tokens).chain([end]).filter(|e| !e.is_empty()) {
        let _ = write!(out, "{:x}\r\n{event}\r\n", event.len());
    }
    out.push_str("0\r\n\r\n");
    out.into_bytes()
}

fn run(bench: &mut Bench, name: &str, preset: &str, events: &[&str; 3]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = answer(events);
    let turns = TURNS as usize * bench.runs;
    let serving = std::thread::spawn(move || {
        for stream in listener.incoming().take(turns) {
            let mut stream = stream.unwrap();
            let mut request = [0; 8192];
            assert!(stream.read(&mut request).unwrap() > 0);
            stream.write_all(&answer).unwrap();
        }
    });
    let model = Remote::new(options(preset, &url), Client::new(Roots::System, Proxies::none()));
    let request = request();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let value = median(bench.runs, || {
        let before = spent();
        for _ in 0..TURNS {
            let mut bytes = 0;
            let mut hear = |chunk: organism::model::Chunk<'_>| {
                if let organism::model::Chunk::Text(text) = chunk {
                    bytes += text.len();
                }
            };
            runtime.block_on(model.call(&request, &mut hear)).unwrap();
            assert_eq!(bytes, TOKENS * " token".len());
        }
        ((spent() - before) / TURNS).as_secs_f64() * 1e6
    });
    serving.join().unwrap();
    bench.figures.add(name, value, "us CPU", None);
}

/// Processor time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn options(preset: &str, url: &str) -> Options {
    let source = KeySource::Variable("BENCH_KEY".to_owned());
    Options {
        preset: Preset::named(preset).unwrap(),
        model: "m-1".to_owned(),
        endpoint: Endpoint::parse(url, false).unwrap(),
        key: Some(Key::new("sk-bench-0123456789abcdef0123456789", source).unwrap()),
        timeouts: Timeouts::default(),
        asked: Asked::default(),
    }
}

fn request() -> Request {
    let agent = ListenerName::parse("writer").unwrap();
    let thread = ThreadId::parse("sess-0123456789abcdef").unwrap();
    Request {
        origin: Origin { agent, thread, turn: 1 },
        system: "You write.".to_owned(),
        messages: vec![Said::text(Role::User, "Hello.")],
        tools: Vec::new(),
        tool_choice: None,
        one_call: false,
        max_tokens: None,
    }
}
