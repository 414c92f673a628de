//! Hostile texts and schemas in a running organism: submitted by a client, answered by a listener
//! and written by a model.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use organism::pump::core::{Receipt, Target};
use organism::thread::Closing;
use serde::Deserialize;
use serde_json::json;

use super::judge;
use super::stage::{Stage, native_bytes};
use crate::campaign::Campaign;
use crate::organism::House;
use crate::organism::kill::torture;

const CANARY: &str = "CANARY-7d1f";
/// Factor by which a verdict may exceed its time limit in this test. The journal, an unoptimized
/// build and other processes slow a verdict down.
const ROOM: f64 = 5.0;

#[derive(Deserialize)]
struct Case {
    file: String,
    class: String,
    expect: String,
    limit_ms: u64,
}

struct Corpus {
    folder: tempfile::TempDir,
    cases: Vec<Case>,
    bait: std::net::TcpListener,
}

impl Corpus {
    fn generate() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bait = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        bait.set_nonblocking(true).unwrap();
        let port = format!("--port={}", bait.local_addr().unwrap().port());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/attacks/generate.py");
        let made = Command::new("python3").arg(script).arg(folder.path()).arg(port).output();
        assert!(made.unwrap().status.success());
        let manifest = std::fs::read_to_string(folder.path().join("MANIFEST.jsonl")).unwrap();
        let cases = manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { folder, cases, bait }
    }

    fn texts(&self) -> Vec<(&Case, Vec<u8>)> {
        let texts = self.cases.iter().filter(|case| case.class != "schema");
        texts.map(|case| (case, self.read(case))).collect()
    }

    fn read(&self, case: &Case) -> Vec<u8> {
        std::fs::read(self.folder.path().join(&case.file)).unwrap()
    }
}

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["calc", "liar", MINDS]

[models.recorded]
provider = "playback"
recording = "recording.toml"

[listeners.calc]
command = ["./player.pl"]
schema = "calc.xsd"
accepts = ["add"]
replies = ["sum"]

[listeners.liar]
command = ["./player.pl"]
schema = ["lie.xsd", "calc.xsd"]
accepts = ["lie"]
replies = ["{urn:org:calc:v1}add"]
"#;

/// A schema of one namespace that declares these elements, all of type string.
fn words(namespace: &str, names: &[&str]) -> String {
    let element = |name: &&str| format!("<xs:element name=\"{name}\" type=\"xs:string\"/>");
    let elements: String = names.iter().map(element).collect();
    format!(
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
         targetNamespace=\"{namespace}\">{elements}</xs:schema>"
    )
}

/// The kinds of senders.
#[derive(Clone, Copy)]
enum SenderKind {
    Client,
    Listener,
    Model,
}

impl SenderKind {
    /// Whether this kind of sender sends the text with this number. In a short run, each kind sends
    /// only some of the texts. All kinds send through the gate, and another test gives every text
    /// to the gate.
    fn sends(self, number: usize) -> bool {
        let is_own = match self {
            Self::Client => number.is_multiple_of(2),
            Self::Listener => !number.is_multiple_of(2),
            Self::Model => number.is_multiple_of(3),
        };
        is_own || torture()
    }
}

/// Returns the text as the turn of a model; `None` if no model can write it.
fn as_turn(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    (text.len() <= 1 << 20 && !text.contains('\0')).then_some(text)
}

fn house(texts: &[(&Case, Vec<u8>)]) -> (House, Vec<String>) {
    let (mut minds, mut sections, mut turns) = (Vec::new(), String::new(), Vec::new());
    let mut schemas = Vec::new();
    for (number, (_, text)) in texts.iter().enumerate() {
        let Some(text) = as_turn(text).filter(|_| SenderKind::Model.sends(number)) else {
            continue;
        };
        let mind = format!("mind{number}");
        sections.push_str(&format!(
            "[agents.{mind}]\nschema = \"{mind}.xsd\"\naccepts = [\"begin\"]\n\
             final = \"finished\"\npeers = [\"calc\"]\nmodel = \"recorded\"\n"
        ));
        schemas
            .push((format!("{mind}.xsd"), words(&format!("urn:{mind}"), &["begin", "finished"])));
        turns.push(json!({ "agent": mind, "turn": 1, "text": text }));
        turns.push(json!({ "agent": mind, "turn": 2, "text": "<finished>done</finished>" }));
        minds.push(mind);
    }
    let quoted: Vec<String> = minds.iter().map(|mind| format!("\"{mind}\"")).collect();
    let house = House::with(&(CONFIG.replace("MINDS", &quoted.join(", ")) + &sections));
    schemas.iter().for_each(|(file, schema)| house.write(file, schema));
    let calc = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/attacks/calc.xsd");
    std::fs::copy(calc, house.path("calc.xsd")).unwrap();
    house.write("lie.xsd", words("urn:lie", &["lie"]));
    let recording = json!({ "recorded": "hostile texts", "turn": turns });
    house.write("recording.toml", toml::to_string(&recording).unwrap());
    (house, minds)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_hostile_text_is_handled_for_every_kind_of_sender() {
    let mut campaign = Campaign::new("hostile texts");
    let corpus = Corpus::generate();
    let texts = corpus.texts();
    let (house, minds) = house(&texts);
    let calc = native_bytes("calc", |_| vec![b"<sum xmlns=\"urn:org:calc:v1\">3</sum>".to_vec()]);
    let lies: Vec<Vec<u8>> = texts.iter().map(|(_, text)| text.clone()).collect();
    let liar = native_bytes("liar", move |delivery| {
        let asked = delivery.messages[0].payload.as_str();
        let (_, number) = asked.split_once('>').unwrap();
        let number: usize = number.split_once('<').unwrap().0.parse().unwrap();
        vec![lies[number].clone()]
    });
    let stage = Stage::start(house, vec![calc, liar]).await;
    let (mut worst, mut wrong) = ((0.0, String::new()), Vec::new());
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for (number, (case, text)) in texts.iter().enumerate() {
        if !SenderKind::Client.sends(number) {
            continue;
        }
        let asked = Instant::now();
        let target = Target::New { suggested: None };
        let (receipt, mut results) = stage.submit("desk", target, text).await;
        let ratio = asked.elapsed().as_secs_f64() * 1000.0 / case.limit_ms as f64;
        if ratio > worst.0 {
            worst = (ratio, case.file.clone());
        }
        let verdict = match receipt {
            Receipt::Accepted { .. } => "accept",
            Receipt::Refused { .. } => "reject",
            Receipt::NoThread { .. } => "no thread",
        };
        *counts.entry(verdict).or_default() += 1;
        if case.expect != "literal" && case.expect != verdict {
            wrong.push(format!("{}: {verdict}", case.file));
        }
        while let Some(done) = results.next().await {
            let done = done.unwrap();
            assert_eq!(done.how, Closing::Completed, "{}", case.file);
        }
    }
    for (number, (case, _)) in texts.iter().enumerate() {
        if !SenderKind::Listener.sends(number) {
            continue;
        }
        let (_, done) = stage.ask("desk", &format!("<lie xmlns=\"urn:lie\">{number}</lie>")).await;
        let expected = if done.how == Closing::Completed { "accept" } else { "reject" };
        if case.expect != "literal" && case.expect != expected {
            wrong.push(format!("{} by a listener: {expected}", case.file));
        }
    }
    for mind in &minds {
        let (_, done) = stage.ask("desk", &format!("<begin xmlns=\"urn:{mind}\">go</begin>")).await;
        if done.how != Closing::Completed {
            wrong.push(format!("{mind}: {:?} {:?}", done.how, done.messages));
        }
    }
    campaign.note(format!(
        "{} by a client or a listener, {} by a model too, {counts:?}; worst {:.2} of its limit ({})",
        texts.len(),
        minds.len(),
        worst.0,
        worst.1
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(worst.0 < ROOM, "{worst:?}");
    assert!(corpus.bait.accept().is_err(), "somebody connected");
    let (house, tally) = stage.end().await;
    campaign.note(format!("{tally:?}"));
    let records = judge::records(&house);
    let leaked = judge::messages(&records).any(|m| m.payload.as_str().contains(CANARY));
    assert!(!leaked, "the contents of a file went into a message");
}

/// `check` judges a config with an odd schema within the time limit, and gives the expected exit
/// code. Other tests cover schema bombs.
#[test]
fn a_config_with_an_odd_schema_without_a_bomb_is_judged_in_time() {
    let mut campaign = Campaign::new("odd schemas");
    let corpus = Corpus::generate();
    let is_odd = |case: &&Case| case.file.ends_with(".xsd") && case.expect != "schema-reject";
    let schemas = corpus.cases.iter().filter(is_odd);
    let (mut worst, mut wrong, mut count) = ((0.0, String::new()), Vec::new(), 0);
    for case in schemas {
        count += 1;
        let house = House::with(&bomb_config(&case.file));
        copy_beside(&corpus, &house);
        let asked = Instant::now();
        let told = house.organism(&["check"]);
        let ratio = asked.elapsed().as_secs_f64() * 1000.0 / case.limit_ms as f64;
        if ratio > worst.0 {
            worst = (ratio, case.file.clone());
        }
        let expected = match case.expect.as_str() {
            "accept" => Some(0),
            _ => told.code.filter(|code| [0, 78].contains(code)),
        };
        if told.code != expected {
            wrong.push(format!("{}: {:?} {}", case.file, told.code, told.err));
        }
        if told.code == Some(78) && !(told.err.clone() + &told.out).contains(".xsd") {
            wrong.push(format!("{}: the file is not named in {}", case.file, told.err));
        }
    }
    campaign.note(format!("{count} schemas; worst {:.2} of its limit ({})", worst.0, worst.1));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(worst.0 < ROOM, "{worst:?}");
    assert!(corpus.bait.accept().is_err(), "somebody connected");
}

#[test]
fn all_schema_bombs_in_one_config_are_all_reported_and_nothing_starts() {
    let mut campaign = Campaign::new("all schema bombs at once");
    let corpus = Corpus::generate();
    let bombs: Vec<&Case> =
        corpus.cases.iter().filter(|case| case.expect == "schema-reject").collect();
    let mut config =
        String::from("[organism]\nname = \"talk\"\n[clients.desk]\npeers = [\"l0\"]\n");
    for (number, case) in bombs.iter().enumerate() {
        config.push_str(&listener(number, &case.file));
    }
    let house = House::with(&config);
    copy_beside(&corpus, &house);
    let asked = Instant::now();
    let told = house.organism(&["run"]);
    let took = asked.elapsed();
    campaign.note(format!("{} in one config: refused after {took:.2?}", bombs.len()));
    assert_eq!(told.code, Some(78), "{told:?}");
    let text = told.err + &told.out;
    for case in &bombs {
        assert!(text.contains(&case.file), "{} is not reported in {text}", case.file);
    }
    assert!(took < Duration::from_secs(60));
    assert!(corpus.bait.accept().is_err(), "somebody connected");
    assert!(!house.data().join("control.sock").exists());
}

fn listener(number: usize, schema: &str) -> String {
    format!(
        "[listeners.l{number}]\ncommand = [\"./player.pl\"]\nschema = \"{schema}\"\n\
         accepts = [\"{{urn:b}}r\"]\n"
    )
}

fn bomb_config(schema: &str) -> String {
    let head = "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [\"l0\"]\n";
    head.to_owned() + &listener(0, schema)
}

fn copy_beside(corpus: &Corpus, house: &House) {
    std::fs::create_dir(house.path("xsd")).unwrap();
    for entry in std::fs::read_dir(corpus.folder.path().join("xsd")).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, house.path("xsd").join(Path::new(from.file_name().unwrap()))).unwrap();
    }
}
