//! An agent with a lookup tool and a thread of any length, played from a recording in a whole
//! organism.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use organism::agent::PastTurn;
use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome};
use organism::config::{self, Config, ConfigEnvironment};
use organism::envelope::AttemptFailure;
use organism::ids::ThreadId;
use organism::journal::sqlite::JournalReader;
use organism::organism::{NativeHostBuilder, Organism, PreviewInput, due};
use organism::pump::core::{Receipt, Target};
use organism::thread::Fact;
use serde_json::json;

use super::floor::directory;
use super::relay::listener;

const NAMESPACE: &str = "urn:bench:story";
const SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  targetNamespace="urn:bench:story" elementFormDefault="qualified">
  <xs:element name="question" type="xs:string"/>
  <xs:element name="answer" type="xs:string"/>
  <xs:element name="look"><xs:complexType><xs:sequence>
    <xs:element name="query" type="xs:string"/><xs:element name="path" type="xs:string"/>
  </xs:sequence></xs:complexType></xs:element>
  <xs:element name="found" type="xs:string"/></xs:schema>"#;

const THREAD: &str = "sess-story0001";
const QUESTION: &str = r#"<question xmlns="urn:bench:story">Why does the queue grow?</question>"#;
const LOOK: &str = "<thinking>If a < b holds for every consumer, then the backlog can't be older \
    than the slowest one; so look at the lag first.</thinking>\n\nI'll look where the lease is \
    renewed.\n\n<look>\n<query>fn renew(&amp;mut self</query>\n<path>src/queue</path>\n</look>\n";
const ANSWER: &str = "<thinking>That is all there is to know.</thinking>\n\n\
    <answer>The third node was restarted, and its consumer fell behind.</answer>\n";
/// A line in the results of the tool.
const LINE: &str = "src/queue/lease.rs:120: fn renew&lt;T: Clock&gt;(&amp;mut self, now: T)\n";

/// The number of questions in a thread, and of lookups for each question.
#[derive(Debug, Clone, Copy)]
pub struct Plot {
    pub questions: usize,
    pub looks: usize,
}

impl Plot {
    /// Number of messages in the thread. Each question and each lookup adds four messages. For a
    /// question, these are the question, its answer, the turn of the answer and a thought. For a
    /// lookup, these are a turn, a thought, the call and its result.
    pub const fn messages(self) -> usize {
        self.questions * (4 + 4 * self.looks)
    }
}

/// A thread in a journal of its own.
pub struct Story {
    place: PathBuf,
}

impl Story {
    pub fn recorded(name: &str, plot: Plot) -> Self {
        let place = directory(name);
        std::fs::write(place.join("story.xsd"), SCHEMA).unwrap();
        std::fs::write(place.join("recording.toml"), recording(plot)).unwrap();
        let story = Self { place };
        let config = story.config("provider = \"playback\"\nrecording = \"recording.toml\"\n");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(tell(config, plot.questions));
        assert_eq!(story.messages(), plot.messages());
        story
    }

    /// Returns the input from which the prompt of the agent's next turn is rendered.
    pub fn due(&self, model: &str) -> PreviewInput {
        let thread = ThreadId::parse(THREAD).unwrap();
        due(self.config(model), &listener("writer"), &thread).unwrap()
    }

    fn config(&self, model: &str) -> Config {
        let text = format!(
            "[organism]\nname = \"story\"\ndata = \"data\"\nstate = \"state\"\n\
             [limits]\ntokens = 1000000000\n\
             [clients.client]\npeers = [\"writer\"]\n\
             [agents.writer]\ndescription = \"answers questions\"\nschema = \"story.xsd\"\n\
             accepts = [\"question\"]\nfinal = \"answer\"\npeers = [\"code\"]\nmodel = \"m\"\n\
             max_iterations = 100\n\
             [listeners.code]\ndescription = \"looks into the code\"\ncommand = [\"true\"]\n\
             schema = \"story.xsd\"\naccepts = [\"look\"]\nreplies = [\"found\"]\n\
             [models.m]\n{model}"
        );
        let file = self.place.join("story.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = config::load(&file, &surroundings());
        loaded.unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The turns of the thread, in their order.
    pub fn turns(&self) -> Vec<PastTurn> {
        let reader = JournalReader::open(&self.place.join("data")).unwrap();
        let records = reader.tree(&ThreadId::parse(THREAD).unwrap(), None).unwrap();
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let turns = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => PastTurn::read(message.payload.as_str()),
            _ => None,
        });
        turns.collect()
    }

    fn messages(&self) -> usize {
        let reader = JournalReader::open(&self.place.join("data")).unwrap();
        let records = reader.tree(&ThreadId::parse(THREAD).unwrap(), None).unwrap();
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        facts.filter(|fact| matches!(fact, Fact::Accepted { .. })).count()
    }
}

fn surroundings() -> ConfigEnvironment {
    let mut around = ConfigEnvironment::of_process();
    around
        .variables
        .insert("BENCH_KEY".to_owned(), "sk-bench-0123456789abcdef0123456789".to_owned());
    around
}

fn recording(plot: Plot) -> String {
    let each = plot.looks + 1;
    let turns = (1..=plot.questions * each).map(|turn| {
        let text = if turn % each == 0 { ANSWER } else { LOOK };
        json!({ "agent": "writer", "turn": turn, "text": text })
    });
    let turns: Vec<_> = turns.collect();
    toml::to_string(&json!({ "recorded": "made up for the bench", "turn": turns })).unwrap()
}

async fn tell(config: Config, questions: usize) {
    let natives = HashMap::from([(listener("code"), code())]);
    let organism = Organism::start_with(config, natives).await.unwrap();
    for question in 0..questions {
        let target = match question {
            0 => Target::New { suggested: Some(THREAD.to_owned()) },
            _ => Target::Thread { id: THREAD.to_owned() },
        };
        let client = listener("client");
        let sent = organism.handle().submit(&client, target, None, QUESTION.as_bytes()).await;
        let (receipt, mut results) = sent.unwrap();
        assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
        while let Some(done) = results.next().await {
            let done = done.unwrap();
            let answer = done.messages[0].payload.as_str();
            assert!(answer.contains("third node"), "{answer}");
        }
    }
    organism.stop("the story is told").await.unwrap();
}

/// A tool that finds 1 KB for any query.
fn code() -> NativeHostBuilder {
    let found = format!("<found xmlns=\"{NAMESPACE}\">{}</found>", LINE.repeat(13)).into_bytes();
    let answer = move |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        Ok(Outcome { payloads: vec![found.clone()], turn: None, ..Outcome::default() })
    };
    Box::new(move |sink, runtime| -> Arc<dyn Host> {
        Arc::new(NativeHost::new(listener("code"), from_fn(answer), sink, runtime.clone()))
    })
}
