//! Duration and processor time of agents and workflows whose models are recordings, in a whole
//! organism with a durable journal.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome};
use organism::config::{self, Config, ConfigEnvironment};
use organism::envelope::AttemptFailure;
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::pump::driver::Handle;
use serde_json::{Value as Json, json};

use super::figures::{Bench, median, percentile};
use super::floor::directory;
use super::hop::spent_micros;
use super::relay::listener;

pub const NAMESPACE: &str = "urn:bench:workflows";
const SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
  targetNamespace="urn:bench:workflows" elementFormDefault="qualified">
  <xs:element name="look" type="xs:string"/>
  <xs:element name="found" type="xs:string"/>
  <xs:element name="items"><xs:complexType><xs:sequence>
    <xs:element name="item" type="xs:string" maxOccurs="unbounded"/>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>"#;

const DELAY: Duration = Duration::from_millis(50);
/// Number of calls that a run makes one after the other.
const CALLS: usize = 60;
const ITEMS: usize = 100;

/// One turn of a recording.
fn turn(agent: &str, thread: &str, turn: usize, text: &str) -> Json {
    json!({ "agent": agent, "thread": thread, "turn": turn, "text": text })
}

fn recording(turns: &[Json]) -> String {
    toml::to_string(&json!({ "recorded": "made up for the bench", "turn": turns })).unwrap()
}

/// Writes the files of a recording. Returns the config lines of a model `m` that plays the
/// recording.
pub fn models_of(place: &Path, turns: &[Json], delay: Duration) -> String {
    std::fs::write(place.join("words.xsd"), SCHEMA).unwrap();
    std::fs::write(place.join("recording.toml"), recording(turns)).unwrap();
    let delay = match delay.as_millis() {
        0 => String::new(),
        delay => format!("chunk_delay = \"{delay}ms\"\n"),
    };
    format!("[models.m]\nprovider = \"playback\"\nrecording = \"recording.toml\"\n{delay}")
}

/// Loads the config of an organism whose model plays these recorded turns, with `delay` before each
/// chunk. `text` is the rest of the config.
pub fn organism_of(place: &Path, turns: &[Json], delay: Duration, text: &str) -> Config {
    let models = models_of(place, turns, delay);
    let text = format!(
        "[organism]\nname = \"flow\"\ndata = \"data\"\nstate = \"state\"\n\
         [limits]\ntokens = 1000000000\nmessages = 10000000\nmodel_calls = 1000000\nchildren = 10000\nthreads = 10000\n{models}{text}"
    );
    let file = place.join("organism.toml");
    std::fs::write(&file, text).unwrap();
    config::load(&file, &ConfigEnvironment::of_process())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

/// Submits `payload` once, in a new thread, and checks that the result contains `expected`.
pub async fn call(handle: &Handle, payload: &str, expected: &str) {
    let target = Target::New { suggested: None };
    let sent = handle.submit(&listener("client"), target, None, payload.as_bytes()).await;
    let (receipt, mut results) = sent.unwrap();
    assert!(matches!(receipt, Receipt::Accepted { .. }), "{receipt:?}");
    while let Some(done) = results.next().await {
        let done = done.unwrap();
        let answer = done.messages[0].payload.as_str();
        assert!(answer.contains(expected), "{answer}");
    }
}

/// Cost of calls that were made one after the other.
struct Taken {
    millis: Vec<f64>,
    cpu_micros: f64,
}

/// Starts the organism, makes one call as a warm-up, and then measures `count` calls.
fn calls(config: Config, natives: Natives, count: usize, payload: &str, expected: &str) -> Taken {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = Organism::start_with(config, natives).await.unwrap();
        let handle = organism.handle();
        call(&handle, payload, expected).await;

        let cpu_before = spent_micros();
        let mut millis = Vec::new();
        for _ in 0..count {
            let begun = Instant::now();
            call(&handle, payload, expected).await;
            millis.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let cpu_micros = spent_micros() - cpu_before;

        organism.stop("the bench is done").await.unwrap();
        Taken { millis, cpu_micros }
    })
}

type Natives = HashMap<organism::ids::ListenerName, NativeHostBuilder>;

/// A listener in this process that answers every request at once.
fn finder() -> Natives {
    let answer = |_: &Delivery| -> Result<Outcome, AttemptFailure> {
        let found = format!("<found xmlns=\"{NAMESPACE}\">it</found>");
        Ok(Outcome { payloads: vec![found.into_bytes()], turn: None, ..Outcome::default() })
    };
    let build: NativeHostBuilder = Box::new(move |sink, runtime| -> Arc<dyn Host> {
        Arc::new(NativeHost::new(listener("finder"), from_fn(answer), sink, runtime.clone()))
    });
    HashMap::from([(listener("finder"), build)])
}

/// Waits `DELAY` with a timer, `delays` times, one after the other. Repeats this, and returns the
/// median of the total durations in milliseconds.
fn millis_of(delays: u32) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    median(CALLS / 4, || {
        let begun = Instant::now();
        runtime.block_on(async {
            for _ in 0..delays {
                tokio::time::timeout(DELAY, std::future::pending::<()>()).await.unwrap_err();
            }
        });
        begun.elapsed().as_secs_f64() * 1e3
    })
}

/// Measures calls with a model that answers at once, and calls with a model that answers after a
/// delay. No delayed call can be faster than `delays_in_a_row` delays one after the other, so this
/// duration is the floor of the delayed calls.
fn add_overhead(
    bench: &mut Bench,
    name: &str,
    delays_in_a_row: u32,
    measured: impl Fn(Duration) -> Vec<f64>,
) {
    let at_once = percentile(measured(Duration::ZERO), 0.5);
    bench.figures.add_small(&format!("{name}_0ms"), at_once, "ms a call");
    let floor = millis_of(delays_in_a_row);
    let delayed = measured(DELAY);
    for (name, share) in [(format!("{name}_p50"), 0.5), (format!("{name}_p95"), 0.95)] {
        let value = percentile(delayed.clone(), share);
        bench.figures.add(&name, value, "ms", Some(floor));
    }
}

/// One agent that calls one tool. The agent takes two turns, one after the other.
pub fn agent_1tool(bench: &mut Bench) {
    let turns =
        [turn("asker", "", 1, "<look>it</look>"), turn("asker", "", 2, "<found>it</found>")];
    let text = "[clients.client]\npeers = [\"asker\"]\n\
        [agents.asker]\nschema = \"words.xsd\"\naccepts = [\"items\"]\nfinal = \"found\"\n\
        peers = [\"finder\"]\nmodel = \"m\"\n\
        [listeners.finder]\ncommand = [\"true\"]\nschema = \"words.xsd\"\naccepts = [\"look\"]\n\
        replies = [\"found\"]\n";
    let request = format!("<items xmlns=\"{NAMESPACE}\"><item>a</item></items>");
    add_overhead(bench, "agent_1tool", 2, |delay| {
        let config = organism_of(&directory("flow"), &turns, delay, text);
        calls(config, finder(), CALLS, &request, "it").millis
    });
}

/// A goal that four agents perform at once, and a supervisor who judges their outputs afterwards.
/// The verdict is streamed in two chunks.
pub fn supervisor_4(bench: &mut Bench) {
    let agents = ["a", "b", "c", "d"];
    let mut turns: Vec<Json> =
        agents.iter().map(|agent| turn(agent, &format!("study_{agent}"), 1, "done")).collect();
    turns.push(turn(
        "lead",
        "study_supervisor",
        1,
        "<verdict><decision>continue</decision></verdict>",
    ));
    let mut text =
        "[clients.client]\npeers = [\"study\"]\n[agents.lead]\nmodel = \"m\"\n".to_owned();
    agents.iter().for_each(|agent| text += &format!("[agents.{agent}]\nmodel = \"m\"\n"));
    text += "[workflows.study]\ninput = { topic = \"text\" }\n[workflows.study.goals]\n\
        study = { all = [\"a\", \"b\", \"c\", \"d\"], prompt = \"Study {{input/topic}}.\", supervisor = \"lead\", \
        supervise = \"Continue.\" }\n";
    let request = request_of("study", "<topic>it</topic>");
    add_overhead(bench, "supervisor_4", 3, |delay| {
        let config = organism_of(&directory("flow"), &turns, delay, &text);
        calls(config, HashMap::new(), CALLS, &request, "done").millis
    });
}

/// Returns the request that starts `workflow`. `content` is the content of its payload.
pub fn request_of(workflow: &str, content: &str) -> String {
    let namespace = format!("https://xml-pipeline.org/ns/workflow/v1/{workflow}");
    format!("<{workflow} xmlns=\"{namespace}\">{content}</{workflow}>")
}

/// A workflow `fan` with its recording and its request.
pub struct Shape {
    pub turns: Vec<Json>,
    pub text: String,
    pub request: String,
    /// Text that the output contains.
    pub expected: String,
}

const FAN: &str = "[clients.client]\npeers = [\"fan\"]\n\
    [agents.worker]\nmodel = \"m\"\nconcurrency = 100\n\
    [workflows.fan]\nschema = \"words.xsd\"\ninput = \"items\"\n";

/// A run with one goal for each of `items` items, at most a hundred at once.
pub fn each_of(items: usize) -> Shape {
    let turns = (1..=items).map(|item| turn("worker", &format!("work_{item}"), 1, "done"));
    let text = format!(
        "{FAN}output = \"count(work/item)\"\n[workflows.fan.goals]\nwork.each = \"input/item\"\n\
         work.agent = \"worker\"\nwork.prompt = \"Do {{{{item}}}}.\"\n\
         work.context = []\nwork.max_items = {items}\nwork.concurrency = {ITEMS}\n"
    );
    let list: String = (0..items).map(|item| format!("<item>{item}</item>")).collect();
    Shape {
        turns: turns.collect(),
        text,
        request: format!("<items xmlns=\"{NAMESPACE}\">{list}</items>"),
        expected: items.to_string(),
    }
}

/// A run of `goals` goals, one after the other.
pub fn chain_of(goals: usize) -> Shape {
    let turns = (1..=goals).map(|goal| turn("worker", &format!("g{goal}"), 1, "done"));
    let mut text = format!("{FAN}[workflows.fan.goals]\n");
    for goal in 1..=goals {
        text += &format!("g{goal} = {{ agent = \"worker\", prompt = \"Do it.\", context = [] }}\n");
    }
    Shape {
        turns: turns.collect(),
        text,
        request: format!("<items xmlns=\"{NAMESPACE}\"><item>a</item></items>"),
        expected: "done".to_owned(),
    }
}

/// Runs a workflow once.
pub fn run_once(config: Config, shape: &Shape) {
    calls(config, HashMap::new(), 0, &shape.request, &shape.expected);
}

/// Processor time of the whole organism per goal in a run of 2,000 items, compared with a run of
/// 200 items.
pub fn goals_2000(bench: &mut Bench) {
    let micros_a_goal = |items: usize, calls_made: usize| {
        let Shape { turns, text, request, expected } = each_of(items);
        let config = organism_of(&directory("flow"), &turns, Duration::ZERO, &text);
        let taken = calls(config, HashMap::new(), calls_made, &request, &expected);
        taken.cpu_micros / (calls_made * items) as f64
    };
    let few = median(bench.runs, || micros_a_goal(200, 5));
    let many = median(bench.runs, || micros_a_goal(2_000, 1));
    bench.figures.add("goals_2000", many, "us CPU", Some(few));
}

/// A run of a workflow with a hundred items at once. Each item is one turn of an agent in a new
/// thread.
pub fn fanout_100(bench: &mut Bench) {
    let Shape { turns, text, request, expected } = each_of(ITEMS);
    let runs = if bench.quick { 2 } else { 10 };
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let mut micros_a_turn = Vec::new();
    let ratio = median(bench.runs, || {
        let config = organism_of(&directory("flow"), &turns, Duration::ZERO, &text);
        let taken = calls(config, HashMap::new(), runs, &request, &expected);
        micros_a_turn.push(taken.cpu_micros / (runs * ITEMS) as f64);
        let elapsed: f64 = taken.millis.iter().sum();
        elapsed * 1e3 / (taken.cpu_micros / cores)
    });
    bench.figures.add_small("fanout_100", ratio, "of CPU/cores");
    let micros = percentile(micros_a_turn, 0.5);
    bench.figures.add("fanout_100_turn", micros, "us CPU a turn", None);
}
