//! Processor time of reading a streamed answer of 2,000 tokens from a socket, measured in the
//! thread that reads.
//!
//! The requests of `provider_openai` and `provider_anthropic` have no prompt, and the text of the
//! answers is ignored. `extract_share` compares reading with and without extraction of actions from
//! the text.

use std::sync::Arc;

use organism::ids::{ListenerName, ThreadId};
use organism::limits;
use organism::model::http::{HttpClient, HttpTimeouts, ProviderEndpoint, ProxyRules, TrustRoots};
use organism::model::remote::{AnswerSettings, Options, ProviderPreset};
use organism::model::{
    AnswerChunk, ChatMessage, ChatRole, KeySource, ModelProvider as _, ModelRequest, ProviderKey,
    RemoteModel, RequestOrigin,
};
use organism::xml::extract::{ActionGrammar, Extractor};
use tokio::runtime::Runtime;

use super::cpu;
use super::figures::{Bench, Class, median, median_of};
use super::turns;
use super::wire::{ANTHROPIC, OPENAI, Server, Wire};

pub const TOKENS: usize = 2_000;
/// Number of turns in a run; the result is their median.
const TURNS: usize = 20;

pub fn openai(bench: &mut Bench) {
    reads(bench, "provider_openai", &OPENAI);
}

pub fn anthropic(bench: &mut Bench) {
    reads(bench, "provider_anthropic", &ANTHROPIC);
}

fn reads(bench: &mut Bench, name: &str, wire: &Wire) {
    let tokens = vec![" token".to_owned(); TOKENS];
    let caller = Caller::new(wire, &tokens, 2 * TURNS * bench.runs);
    let floors = (0..TURNS * bench.runs).map(|_| cpu::micros(|| caller.server.read()));
    let floor = median_of(floors);
    let value = median(bench.runs, || {
        let turns = (0..TURNS).map(|_| {
            cpu::micros(|| {
                let mut bytes = 0;
                caller.call(|text| bytes += text.len());
                assert_eq!(bytes, TOKENS * " token".len());
            })
        });
        median_of(turns)
    });
    caller.server.join();
    bench.figures.add(name, value, "us CPU", Some(floor));
}

/// Cost of turns with extraction of actions, compared with turns without extraction. The two kinds
/// of turns alternate, so that changes in the machine's speed affect both alike.
pub fn extract_share(bench: &mut Bench) {
    let (grammar, tokens) = turns::reply(TOKENS);
    let classes = [OPENAI, ANTHROPIC].map(|wire| {
        let turns = TURNS * bench.runs;
        let caller = Caller::new(&wire, &tokens, 2 * turns);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..turns {
            without.push(cpu::micros(|| caller.keep()));
            with.push(cpu::micros(|| caller.extract(&grammar)));
        }
        caller.server.join();
        let (value, floor) = (median_of(with.into_iter()), median_of(without.into_iter()));
        Class { name: wire.preset.to_owned(), value, floor }
    });
    bench.figures.add_worst("extract_share", "us CPU", &classes, |class| class.value / class.floor);
}

/// A client that calls the model of a local server.
struct Caller {
    server: Server,
    model: RemoteModel,
    request: ModelRequest,
    runtime: Runtime,
}

impl Caller {
    fn new(wire: &Wire, tokens: &[String], turns: usize) -> Self {
        let server = Server::start(wire, tokens, turns);
        let options = options(wire.preset, &server.url);
        let model =
            RemoteModel::new(options, HttpClient::new(TrustRoots::System, ProxyRules::none()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { server, model, request: request(), runtime }
    }

    fn call(&self, mut hear: impl FnMut(&str) + Send) {
        let mut hear = |chunk: AnswerChunk<'_>| {
            if let AnswerChunk::Text(text) = chunk {
                hear(text);
            }
        };
        self.runtime.block_on(self.model.call(&self.request, &mut hear)).unwrap();
    }

    fn keep(&self) {
        let mut raw = String::new();
        self.call(|text| raw.push_str(text));
        assert!(raw.len() > TOKENS);
    }

    fn extract(&self, grammar: &Arc<ActionGrammar>) {
        let (mut raw, mut read) = (String::new(), 0);
        let mut extractor = Extractor::new(Arc::clone(grammar));
        // As agents do it.
        self.call(|text| {
            raw.push_str(text);
            if raw.len() - read >= limits::READ_AT_ONCE_BYTES {
                extractor.push(&raw.as_bytes()[read..]);
                read = raw.len();
            }
        });
        extractor.push(&raw.as_bytes()[read..]);
        assert!(raw.len() > TOKENS);
        assert!(extractor.finish().actions().count() > 0);
    }
}

fn options(preset: &str, url: &str) -> Options {
    let source = KeySource::Variable("BENCH_KEY".to_owned());
    Options {
        preset: ProviderPreset::named(preset).unwrap(),
        model: "m-1".to_owned(),
        endpoint: ProviderEndpoint::parse(url, false).unwrap(),
        key: Some(ProviderKey::new("sk-bench-0123456789abcdef0123456789", source).unwrap()),
        timeouts: HttpTimeouts::default(),
        answer: AnswerSettings::default(),
    }
}

fn request() -> ModelRequest {
    let agent = ListenerName::parse("writer").unwrap();
    let thread = ThreadId::parse("sess-0123456789abcdef").unwrap();
    ModelRequest {
        origin: RequestOrigin { agent, thread, turn: 1, trace: None },
        system: "You write.".to_owned(),
        messages: vec![ChatMessage::text(ChatRole::User, "Hello.").into()],
        tools: Vec::new(),
        tool_choice: None,
        one_call: false,
        max_tokens: None,
        default_max_tokens: None,
    }
}
