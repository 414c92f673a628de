//! The recording of `config/research-desk.toml`: every turn parses as intended, including the
//! deliberate mistakes.

use std::path::Path;
use std::sync::Arc;

use expect_test::expect;
use organism::agent::{self, AgentOptions, ModelAgent};
use organism::contract::{Contract, Contracts, Role};
use organism::envelope::MessageKind;
use organism::ids::PayloadName;
use organism::model::PlaybackModel;
use organism::schema::Schemas;
use organism::system;

use super::setup::{RESEARCH_NAMESPACE, delivery, payloads, take};
use super::story::{ROOT, Story, listener, name_of, story_message, thread};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The researcher as `config/research-desk.toml` declares it.
fn options() -> AgentOptions {
    let mut schemas = Schemas::default();
    schemas.add_builtin("core.xsd", system::SCHEMA).unwrap();
    schemas.add_builtin("agent.xsd", agent::SCHEMA).unwrap();
    let mut names = Vec::new();
    for file in [
        "config/research-desk/research-desk.xsd",
        "listeners/code-search/schema/code-search.xsd",
        "listeners/calculator/schema/calculator.xsd",
    ] {
        names.extend(schemas.add_file(&root().join(file)).unwrap());
    }
    let pick = |locals: &[&str]| {
        let picked = names.iter().filter(|name| locals.contains(&&*name.local)).cloned();
        picked.collect::<Vec<PayloadName>>()
    };
    let researcher = Contract {
        accepts: pick(&["question"]),
        replies: pick(&["answer"]),
        peers: vec![listener("search"), listener("calculator")],
        ..Contract::new(listener("researcher"), Role::Agent)
    };
    let search = Contract {
        accepts: pick(&["search", "extract"]),
        ..Contract::new(listener("search"), Role::Listener)
    };
    let calculator = Contract {
        accepts: pick(&["calculate"]),
        ..Contract::new(listener("calculator"), Role::Listener)
    };
    let contracts = Arc::new(Contracts::new(vec![researcher.clone(), search, calculator]).unwrap());
    AgentOptions::new(researcher, contracts, schemas)
}

/// Plays a turn of the demo. Returns the payload names and the findings of the turn, as the gate
/// would report them.
fn played(labels: &str, turn: u32) -> String {
    let options = options();
    let schemas = options.schemas.clone();
    let vocabulary = options.contracts.vocabulary(&listener("researcher")).unwrap().clone();
    let recording = root().join("config/research-desk/recording.toml");
    let model = Arc::new(PlaybackModel::load(&recording).unwrap());
    let place = format!("{ROOT}{labels}");
    let mut story = Story::default();
    let question = format!("<question xmlns=\"{RESEARCH_NAMESPACE}\"><part>?</part></question>");
    let call =
        story.say(story_message("desk", "researcher", MessageKind::Call, &question).within(&place));
    for _ in 1..turn {
        let at = story.position();
        story.turn_in(&place, "researcher", call, at, "earlier");
    }
    let mut delivery = delivery(&story, call);
    delivery.thread = thread(&place);
    let agent = ModelAgent::new(options, model, Arc::new(story));
    let outcome = take(&agent, &delivery).unwrap();
    let mut out = Vec::new();
    for payload in payloads(&outcome) {
        let name = name_of(&payload);
        let known = vocabulary.meaning(&name).is_some();
        let valid = schemas.validate(&name, payload.as_bytes()).is_ok();
        out.push(match (known, valid) {
            (true, true) => name.local.to_string(),
            (true, false) => format!("{} (invalid)", name.local),
            (false, _) => format!("{} (not in the vocabulary)", name.local),
        });
    }
    let turn = outcome.turn.unwrap();
    out.extend(turn.broken.iter().map(|broken| format!("broken: {}", broken.finding)));
    out.extend(turn.findings.iter().map(|finding| format!("told: {finding}")));
    out.join(", ")
}

#[test]
fn every_recorded_turn_of_the_demo_parses_as_expected() {
    let mut story = String::new();
    for (labels, turns) in [("", 9), (".clock", 2)] {
        for turn in 1..=turns {
            story.push_str(&format!("{labels}#{turn}: {}\n", played(labels, turn)));
        }
    }
    expect![[r#"
        #1: thinking, todo-until, spawn-thread
        #2: thinking, search (invalid)
        #3: thinking, search
        #4: thinking, extract
        #5: thinking, say (not in the vocabulary)
        #6: thinking, calculate
        #7: thinking, set-timer
        #8: thinking, wait
        #9: thinking, todo-until, answer
        .clock#1: thinking, search
        .clock#2: thinking, answer
    "#]]
    .assert_eq(&story);
}
