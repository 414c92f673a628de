//! The public corpus of model turns, played in a whole organism. Each case is the first turn of a
//! separate agent. In its second turn, the agent ends its call with a final payload.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Host, Outcome, Sink};
use organism::config::{self, Config, ConfigEnvironment};
use organism::envelope::MessageKind;
use organism::ids::{ListenerName, ThreadId};
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::thread::{Closing, Fact, Record};
use organism::xml::element::Element;
use serde_json::{Map, Value as Json, json};
use tokio::runtime;

use super::House;

const CASES: &str = include_str!("../../data/llm_stream/cases.jsonl");
/// Local names of payloads that every agent of these tests has.
const TAKEN: [&str; 6] = ["thinking", "think", "reasoning", "begin", "finished", "ran"];

struct Case {
    /// Name of the case, in the form of a listener's name.
    id: String,
    text: String,
    known: Map<String, Json>,
    expect: Json,
}

impl Case {
    fn namespace(&self) -> String {
        format!("urn:example:{}", self.id)
    }

    /// Makes a case; `None` if the vocabulary of an agent cannot express the case, because the case
    /// has names outside of the agent's namespace, reserved names, or several right answers.
    fn of(case: &Json) -> Option<Self> {
        let text = case["text"].as_str().filter(|text| !text.contains("{{"))?;
        let known = case["known_tags"].as_object()?;
        let plain = |name: &String| {
            name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
                && !TAKEN.contains(&name.as_str())
        };
        let reasoning = case["reasoning"].as_array().into_iter().flatten();
        let ours = reasoning.filter_map(Json::as_str).all(|name| TAKEN.contains(&name));
        let expect = &case["expect"];
        let open = expect["mode"] == "repair_or_reject" || !expect["any_of"].is_null();
        if !known.keys().all(plain) || !ours || open || !case["reserved"].is_null() {
            return None;
        }
        let id = case["id"].as_str()?.to_owned();
        Some(Self { id, text: text.to_owned(), known: known.clone(), expect: expect.clone() })
    }

    fn schema(&self) -> String {
        let mut out = format!(
            "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
             targetNamespace=\"{}\" elementFormDefault=\"qualified\">\n",
            self.namespace()
        );
        for word in ["begin", "finished", "ran"] {
            writeln!(out, "<xs:element name=\"{word}\" type=\"xs:string\"/>").unwrap();
        }
        self.known.iter().for_each(|(name, spec)| element(&mut out, name, spec, ""));
        out + "</xs:schema>\n"
    }

    fn config(&self) -> String {
        let (id, namespace) = (&self.id, self.namespace());
        let accepts: Vec<String> =
            self.known.keys().map(|name| format!("\"{{{namespace}}}{name}\"")).collect();
        format!(
            "[agents.{id}]\nschema = \"{id}.xsd\"\naccepts = [\"begin\"]\nfinal = \"finished\"\n\
             peers = [\"{id}-tools\"]\nmodel = \"recorded\"\nmax_actions_per_turn = 20\n\
             [listeners.{id}-tools]\ncommand = [\"./player.pl\"]\nschema = \"{id}.xsd\"\n\
             accepts = [{}]\nreplies = [\"ran\"]\napproval = \"never\"\n\n",
            accepts.join(", ")
        )
    }

    fn turns(&self) -> Vec<Json> {
        let turn =
            |number: u32, text: &str| json!({ "agent": self.id, "turn": number, "text": text });
        vec![turn(1, &self.text), turn(2, "<finished>done</finished>")]
    }

    /// Defects in the records of the thread in which this case ran.
    fn judge(&self, how: Closing, records: &[Record]) -> Vec<String> {
        let facts = || records.iter().flat_map(|record| &record.facts);
        let messages = facts().filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(message),
            _ => None,
        });
        let (mut actions, mut told, mut turns) = (Vec::new(), 0, 0);
        for message in messages {
            let payload = message.payload.as_str();
            if message.kind == MessageKind::Call && message.from.as_str() == self.id {
                let value = value(&Element::read(payload).unwrap());
                actions.push(json!({ "name": &*message.name.local, "value": value }));
            }
            told += u32::from(&*message.name.local == "huh");
            turns += u32::from(&*message.name.local == "model-turn");
        }
        let mut wrong = Vec::new();
        let (expected, got) = (filled(&self.expect["actions"]), Json::Array(actions));
        if expected != got {
            wrong.push(format!("expected {expected}, recorded {got}"));
        }
        let bad = self.expect["errors"].as_array().is_some_and(|errors| !errors.is_empty());
        if bad && told == 0 {
            wrong.push(format!("{} and nothing told", self.expect["errors"]));
        }
        if (how, turns) != (Closing::Completed, 2) {
            wrong.push(format!("ended {how:?} after {turns} turns"));
        }
        wrong.iter().map(|why| format!("{}: {why}", self.id)).collect()
    }
}

/// Writes the declaration of an element from the case's specification. Its children may have any
/// order and number.
fn element(out: &mut String, name: &str, spec: &Json, occurs: &str) {
    let Some(members) = spec.as_object() else {
        return writeln!(out, "<xs:element name=\"{name}\" type=\"xs:string\"{occurs}/>").unwrap();
    };
    let attributes: String = members
        .keys()
        .filter_map(|key| key.strip_prefix('@'))
        .map(|name| format!("<xs:attribute name=\"{name}\" type=\"xs:string\"/>"))
        .collect();
    write!(out, "<xs:element name=\"{name}\"{occurs}><xs:complexType>").unwrap();
    if members.contains_key("#") {
        write!(
            out,
            "<xs:simpleContent><xs:extension base=\"xs:string\">{attributes}\
             </xs:extension></xs:simpleContent>"
        )
        .unwrap();
    } else {
        let children = members.iter().filter(|(key, _)| !key.starts_with('@'));
        write!(out, "<xs:sequence><xs:choice minOccurs=\"0\" maxOccurs=\"unbounded\">").unwrap();
        children.for_each(|(name, spec)| element(out, name, spec, ""));
        write!(out, "</xs:choice></xs:sequence>{attributes}").unwrap();
    }
    writeln!(out, "</xs:complexType></xs:element>").unwrap();
}

/// Replaces each `{}` by an empty text. The corpus writes `{}` for an empty element that may have
/// children.
fn filled(value: &Json) -> Json {
    match value {
        Json::Object(members) if members.is_empty() => json!(""),
        Json::Object(members) => members.iter().map(|(k, v)| (k.clone(), filled(v))).collect(),
        Json::Array(values) => values.iter().map(filled).collect(),
        other => other.clone(),
    }
}

/// Value of an element in the form of the corpus.
fn value(element: &Element) -> Json {
    let mut members: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    for (name, value) in &element.attributes {
        members.entry(format!("@{}", name.local)).or_default().push(json!(value));
    }
    for child in element.children() {
        members.entry(child.local_name().to_owned()).or_default().push(value(child));
    }
    let text = element.own_text();
    let is_leaf = element.children().next().is_none();
    if is_leaf && members.is_empty() {
        return json!(text);
    }
    if is_leaf && !text.is_empty() {
        members.insert("#".to_owned(), vec![json!(text)]);
    }
    let single = |mut values: Vec<Json>| match values.len() {
        1 => values.remove(0),
        _ => Json::Array(values),
    };
    members.into_iter().map(|(name, values)| (name, single(values))).collect()
}

/// Writes a config with all cases.
fn organism(house: &House, cases: &[Case]) -> Config {
    let clients: Vec<String> = cases.iter().map(|case| format!("\"{}\"", case.id)).collect();
    let mut text = format!(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [{}]\n\
         [models.recorded]\nprovider = \"playback\"\nrecording = \"recording.toml\"\n",
        clients.join(", ")
    );
    for case in cases {
        house.write(&format!("{}.xsd", case.id), case.schema());
        text.push_str(&case.config());
    }
    let turns: Vec<Json> = cases.iter().flat_map(Case::turns).collect();
    let recording = json!({ "recorded": "the public corpus of model turns", "turn": turns });
    house.write("recording.toml", toml::to_string(&recording).unwrap());
    house.write("organism.toml", text);
    let mut around = ConfigEnvironment::of_process();
    let place = |name: &str| house.path(name).display().to_string();
    around.variables.insert("XDG_DATA_HOME".to_owned(), place("data"));
    around.variables.insert("XDG_STATE_HOME".to_owned(), place("state"));
    let substrate = crate::nats::substrate(&house.path(""));
    around.variables.extend(substrate.into_iter().map(|(key, value)| (key.to_owned(), value)));
    let loaded = config::load(&house.path("organism.toml"), &around);
    loaded.unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Listeners for the tools of the cases. Each listener confirms every call.
fn tools(cases: &[Case]) -> HashMap<ListenerName, NativeHostBuilder> {
    let native = |case: &Case| -> (ListenerName, NativeHostBuilder) {
        let name = ListenerName::parse(&format!("{}-tools", case.id)).unwrap();
        let reply = format!("<ran xmlns=\"{}\"/>", case.namespace());
        let host = {
            let name = name.clone();
            move |sink: Arc<dyn Sink>, runtime: &runtime::Handle| -> Arc<dyn Host> {
                let outcome = Outcome {
                    payloads: vec![reply.into_bytes()],
                    turn: None,
                    ..Outcome::default()
                };
                let handler = from_fn(move |_| Ok(outcome.clone()));
                Arc::new(NativeHost::new(name, handler, sink, runtime.clone()))
            }
        };
        (name, Box::new(host))
    };
    cases.iter().map(native).collect()
}

async fn play(config: Config, cases: &[Case]) -> Vec<(ThreadId, Closing)> {
    let organism = Organism::start_with(config, tools(cases)).await.unwrap();
    let desk = ListenerName::parse("desk").unwrap();
    let mut ended = Vec::new();
    for case in cases {
        let begin = format!("<begin xmlns=\"{}\">go</begin>", case.namespace());
        let target = Target::New { suggested: None };
        let submitted = organism.handle().submit(&desk, target, None, begin.as_bytes()).await;
        let (receipt, mut results) = submitted.unwrap();
        let Receipt::Accepted { thread, .. } = receipt else { panic!("{}: {receipt:?}", case.id) };
        let done = results.next().await.unwrap().unwrap();
        ended.push((thread, done.how));
    }
    organism.stop("the cases are played").await.unwrap();
    ended
}

// T10 T13 T14 T15
#[test]
fn the_corpus_played_through_the_pump_records_the_actions_and_tells_the_errors() {
    let cases: Vec<Case> =
        CASES.lines().filter_map(|line| Case::of(&serde_json::from_str(line).unwrap())).collect();
    assert!(cases.len() >= 100, "only {} cases can be played", cases.len());
    let house = House::new();
    let config = organism(&house, &cases);
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.unwrap().block_on(play(config, &cases));
    let reader = house.reader();
    let mut wrong = Vec::new();
    for (case, (thread, how)) in cases.iter().zip(ended) {
        let records = reader.tree(&thread, None).unwrap().into_iter();
        let records: Vec<Record> = records.map(|sealed| sealed.record).collect();
        wrong.extend(case.judge(how, &records));
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    house.verified();
}
