//! Live runs that are recorded and played back, models that are listed and tested, and the
//! processes that receive keys.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use organism::ids::ListenerName;
use organism::model::playback::TurnRecorder;
use organism::model::{PlaybackModel, SharedModel};
use serde_json::Value as Json;

use super::server::{KEY, NONCE, Script, Server, ask, call, options, remote};
use super::wires::{ANTHROPIC, OPENAI, Scene, Stop, Usage};
use crate::json_schemas::assert_described;
use crate::organism::{CommandOutput, House};

const SCHEMA: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
    targetNamespace="urn:example:write" elementFormDefault="qualified">
  <xs:element name="write" type="xs:string"/>
</xs:schema>"#;

const WRITE: &str = "<write xmlns=\"urn:example:write\">a poem</write>";

/// An organism with one agent and these models.
pub fn house(models: &str) -> House {
    let config = format!(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [\"writer\"]\n\
         [agents.writer]\nmodel = \"live\"\nschema = \"write.xsd\"\naccepts = [\"write\"]\n\
         attempts = 1\n{models}"
    );
    let house = House::with(&config);
    house.write("write.xsd", SCHEMA);
    house.write("write.xml", WRITE);
    house
}

pub fn run(mut command: Command, variables: &BTreeMap<String, String>) -> CommandOutput {
    tokio::task::block_in_place(|| command.envs(variables).output().unwrap()).into()
}

pub fn answer(text: &'static str) -> Scene {
    let reasoning = vec!["I know one."];
    Scene {
        reasoning,
        text: vec!["<attempt_completion><result>", text, "</result></attempt_completion>"],
        ..Scene::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_recorded_and_plays_the_same() {
    let text = "A \"poem\" with {{braces}} &amp; ü";
    let server = Server::answering(Script::stream(&(OPENAI.events)(&answer(text)))).await;
    let house = house(&format!(
        "[models.live]\nprovider = \"openai\"\nmodel = \"m-1\"\nbase_url = \"{}\"\n\
         api_key_env = \"LIVE_KEY\"\n",
        server.url()
    ));
    let variables = BTreeMap::from([("LIVE_KEY".to_owned(), KEY.to_owned())]);
    house.write("out.toml.part", "another file");
    let live = run(house.command(&["record", "out.toml", "write.xml"]), &variables);
    assert_eq!(live.code, Some(0), "{live:?}");
    assert!(live.out.contains("with {{braces}} &amp; ü"), "{live:?}");
    let other = std::fs::read_to_string(house.path("out.toml.part")).unwrap();
    assert_eq!(other, "another file");
    std::fs::remove_file(house.path("out.toml.part")).unwrap();
    assert!(live.err.contains("1 turn in out.toml"), "{live:?}");
    let recording = std::fs::read_to_string(house.path("out.toml")).unwrap();
    let parts = ["I know one.", "tokens_in = 21", "verbatim = true", "openai/m-1", "live models"];
    for part in parts {
        assert!(recording.contains(part), "{part}: {recording}");
    }
    assert!(!recording.contains(KEY));
    // The command does not overwrite an existing file.
    let again = run(house.command(&["record", "out.toml", "write.xml"]), &variables);
    assert_eq!(again.code, Some(2), "{again:?}");
    // A command that records no turn keeps an existing recording, and creates no new one.
    house.write("refused.xml", "<wrong xmlns=\"urn:example:write\"/>");
    for (out, payload, code) in [
        ("out.toml", "absent.xml", 2),
        ("out.toml", "refused.xml", 65),
        ("new.toml", "refused.xml", 65),
    ] {
        let failed = run(house.command(&["record", out, payload, "--force"]), &variables);
        assert_eq!(failed.code, Some(code), "{failed:?}");
        let kept = std::fs::read_to_string(house.path(out)).ok();
        assert_eq!(kept.as_ref(), Some(&recording).filter(|_| out == "out.toml"), "{failed:?}");
        let names = std::fs::read_dir(house.path("")).unwrap().map(|entry| entry.unwrap().path());
        let unfinished = names.filter(|path| path.extension().is_some_and(|end| end == "part"));
        assert_eq!(unfinished.count(), 0, "{failed:?}");
    }

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let (before, _) = config.split_once("[models.live]").unwrap();
    let played = "[models.live]\nprovider = \"playback\"\nrecording = \"out.toml\"\n";
    house.write("organism.toml", format!("{before}{played}"));
    let again = run(house.command(&["send", "write.xml"]), &BTreeMap::new());
    assert_eq!((again.code, &again.out), (Some(0), &live.out));

    // Four pieces of the answer, after one of reasoning.
    house.write("organism.toml", format!("{before}{played}chunk_delay = \"200ms\"\n"));
    let begun = Instant::now();
    let slow = run(house.command(&["send", "write.xml"]), &BTreeMap::new());
    assert_eq!((slow.code, slow.out), (Some(0), live.out));
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A recorded run of `xml-final` can be played back, although each run has new nonces.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_run_of_xml_final_plays_although_its_nonces_are_others() {
    let says = |text| Script::stream(&(OPENAI.events)(&Scene { text, ..Scene::default() }));
    let first = says(vec!["Let me {{see}}."]);
    let report = "-FINAL format=\"text\">A {{poem}}</";
    let last = says(vec!["Here: <", NONCE, report, NONCE, "-FINAL>"]);
    let server = Server::start(vec![first, last]).await;
    let house = house(&format!(
        "[models.live]\nprovider = \"openai\"\nmodel = \"m-1\"\nbase_url = \"{}\"\n\
         api_key_env = \"LIVE_KEY\"\n",
        server.url()
    ));
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let config = config.replace("attempts = 1\n[", "attempts = 1\ntransport = \"xml-final\"\n[");
    house.write("organism.toml", &config);
    let variables = BTreeMap::from([("LIVE_KEY".to_owned(), KEY.to_owned())]);
    let live = run(house.command(&["record", "out.toml", "write.xml"]), &variables);
    assert_eq!(live.code, Some(0), "{live:?}");
    assert!(live.out.contains("A {{poem}}"), "{live:?}");
    assert_eq!(server.requests().len(), 2);
    let recording = std::fs::read_to_string(house.path("out.toml")).unwrap();
    assert_eq!(recording.matches("{{nonce}}-FINAL").count(), 2, "{recording}");

    let (before, _) = config.split_once("[models.live]").unwrap();
    let played = "[models.live]\nprovider = \"playback\"\nrecording = \"out.toml\"\n";
    house.write("organism.toml", format!("{before}{played}"));
    let again = run(house.command(&["send", "write.xml"]), &BTreeMap::new());
    assert_eq!((again.code, &again.out), (Some(0), &live.out), "{again:?}");
}

/// A rejected request is a turn of the agent, which gets the rejection as feedback. Playback and a
/// trial of the unchanged config repeat it.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_run_with_a_rejected_request_plays_the_same() {
    let says =
        |text| Script::stream(&(OPENAI.events)(&Scene { text: vec![text], ..Scene::default() }));
    let error = (OPENAI.complaint)("invalid_request_error", "too many tools");
    let rejects = Script::whole("400 Bad Request", "Content-Type: application/json\r\n", &error);
    let last = says("<attempt_completion><result>A poem</result></attempt_completion>");
    let server = Server::start(vec![says("Let me see."), rejects, last]).await;
    let house = house(&format!(
        "[models.live]\nprovider = \"openai\"\nmodel = \"m-1\"\nbase_url = \"{}\"\n\
         api_key_env = \"LIVE_KEY\"\n",
        server.url()
    ));
    let variables = BTreeMap::from([("LIVE_KEY".to_owned(), KEY.to_owned())]);
    let live = run(house.command(&["record", "out.toml", "write.xml"]), &variables);
    assert_eq!(live.code, Some(0), "{live:?}");
    assert!(live.err.contains("3 turns in out.toml"), "{live:?}");
    let recording = std::fs::read_to_string(house.path("out.toml")).unwrap();
    assert!(recording.contains("rejected = \"too many tools\""), "{recording}");

    let tried = run(house.command(&["try", "organism.toml", "--threads", "all"]), &variables);
    assert!(tried.err.contains(" 0 with other finals"), "{tried:?}");
    assert_eq!(server.requests().len(), 3);

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let (before, _) = config.split_once("[models.live]").unwrap();
    let played = "[models.live]\nprovider = \"playback\"\nrecording = \"out.toml\"\n";
    house.write("organism.toml", format!("{before}{played}"));
    let again = run(house.command(&["send", "write.xml"]), &BTreeMap::new());
    assert_eq!((again.code, &again.out), (Some(0), &live.out), "{again:?}");
}

/// Checks that playback of a recording restores every part of an answer.
#[tokio::test]
async fn an_answer_with_everything_in_it_plays_as_it_was() {
    let scene = Scene {
        reasoning: vec!["Hm\r\nm '''\u{1}"],
        text: vec!["I ''' look \"\"\" \\ \r\n\u{7f} {{x}}\n"],
        calls: vec![
            ("call_1", "search", vec!["{\"query\": \"'''\"}"]),
            ("call_2", "search", vec!["no JSON"]),
        ],
        stop: Stop::Calls,
        ..Scene::default()
    };
    let directory = tempfile::tempdir().unwrap();
    for wire in [OPENAI, ANTHROPIC] {
        let path = directory.path().join(format!("{}.toml", wire.preset));
        let recorder = std::sync::Arc::new(TurnRecorder::create(&path, "by a test").unwrap());
        let server = Server::answering(Script::stream(&(wire.events)(&scene))).await;
        let live: SharedModel = std::sync::Arc::new(remote(options(wire.preset, &server.url())));
        let mut request = ask("Hello.");
        request.origin.turn = 3;
        let (live_end, live_heard) = call(recorder.around(live).as_ref(), &request).await;
        let played = PlaybackModel::load(&path).unwrap();
        let (end, heard) = call(&played, &request).await;
        let (end, live_end) = (end.unwrap(), live_end.unwrap());
        assert_eq!((heard.text, heard.reasoning), (live_heard.text, live_heard.reasoning));
        assert_eq!(end.calls, live_end.calls);
        assert_eq!(end.own, live_end.own);
        assert_eq!((end.stop, end.usage), (live_end.stop, live_end.usage));
        assert_eq!(end.route.model, format!("{}/m-1", wire.preset));
        // A turn of another root thread has no entry, whether the recording has the same turn or
        // not.
        request.origin.thread = organism::ids::ThreadId::parse("sess-fedcba9876543210").unwrap();
        for turn in [4, 3] {
            request.origin.turn = turn;
            let live = remote(options(wire.preset, &server.url()));
            let live: SharedModel = std::sync::Arc::new(live);
            call(recorder.around(live).as_ref(), &request).await.0.unwrap();
        }
        let so_far = recorder.summary();
        assert_eq!((so_far.turns, so_far.skipped, so_far.failure), (1, 2, None));

        let copy = directory.path().join("copy.toml");
        let recorder = TurnRecorder::create(&copy, "by a test").unwrap().with_models_stated();
        let again: SharedModel = std::sync::Arc::new(played);
        let recording = std::sync::Arc::new(recorder).around(again);
        call(recording.as_ref(), &request).await.0.unwrap();
        let copied = PlaybackModel::load(&copy).unwrap();
        assert_eq!(copied.recorded(), "by a test with played turns");
        assert_eq!(request.origin.agent, ListenerName::parse("writer").unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_with_their_keys_present_or_not() {
    let script = |scene: &Scene| Script::stream(&(OPENAI.events)(scene));
    let uncounted = Scene { usage: Usage::Missing, ..answer("yes") };
    let server = Server::start(vec![script(&answer("yes")), script(&uncounted)]).await;
    let house = house(&format!(
        "[models.live]\nprovider = \"openai-compatible\"\nmodel = \"m-1\"\nbase_url = \"{url}\"\n\
         tokens_per_minute = 1000\n\
         [models.keyless]\nprovider = \"anthropic\"\nmodel = \"m-2\"\napi_key_env = \"NO_SUCH_KEY\"\n\
         [models.either]\nroutes = [\"live\", \"keyless\"]\n\
         [models.named]\nprovider = \"openai-compatible\"\nmodel = \"m-3\"\n\
         base_url = \"{url}\"\napi_key_env = \"NO_SUCH_KEY\"\n\
         [models.local]\nprovider = \"openai\"\nmodel = \"m-4\"\nbase_url = \"{url}\"\n\
         [models.played]\nprovider = \"playback\"\nrecording = \"turns.toml\"\n",
        url = server.url()
    ));
    house.write("turns.toml", "recorded = \"empty\"\n");
    let none = BTreeMap::new();
    let listed = run(house.command(&["models"]), &none);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for part in ["live", "missing", "live, keyless"] {
        assert!(listed.out.contains(part), "{part}: {}", listed.out);
    }
    let tried = run(house.command(&["models", "--try", "--json"]), &none);
    assert_eq!(tried.code, Some(69), "{tried:?}");
    // No remote model here has a maximum for its answers.
    assert_described(&["models", "--json"], &tried.out);
    let lines: Vec<Json> = tried.json();
    let how = |name: &str| {
        let line = lines.iter().find(|line| line["name"] == name).unwrap();
        (line["key_missing"].clone(), line["tried"]["how"].clone())
    };
    assert_eq!(how("live"), (Json::Bool(false), "answered".into()));
    assert_eq!(how("keyless"), (Json::Bool(true), "failed".into()));
    assert_eq!(how("either"), (Json::Bool(false), Json::Null));
    // Keys are judged as at a start: a named key is needed, and a server of one's own needs none.
    assert_eq!(how("named"), (Json::Bool(true), "failed".into()));
    assert_eq!(how("local"), (Json::Bool(false), "answered".into()));
    // A model that must reason first refuses a call for one token.
    assert_eq!(server.body(0)["max_tokens"], 1_024);
    let one = run(house.command(&["models", "live", "--try"]), &none);
    assert_eq!(one.code, Some(0), "{one:?}");
    assert!(one.out.contains("live: answered in"), "{one:?}");
    let live = lines.iter().find(|line| line["name"] == "live").unwrap();
    let counted = live["tried"]["detail"].as_str().unwrap();
    assert!(!counted.contains("estimates"), "{counted}");
    assert!(one.out.contains("; both are estimates"), "{one:?}");
    let played = run(house.command(&["models", "played", "--try"]), &none);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.out.contains("played: not asked, it plays turns.toml\n"), "{played:?}");
    // A model with routes is tested by its routes.
    let routed = run(house.command(&["models", "either", "--try"]), &none);
    assert_eq!(routed.code, Some(69), "{routed:?}");
    for part in
        ["either: tested by its routes live, keyless\n", "live: answered", "keyless: failed"]
    {
        assert!(routed.out.contains(part), "{part}: {routed:?}");
    }
    // The person who runs it gets a note, though.
    let checked = run(house.command(&["check"]), &none);
    assert_eq!(checked.code, Some(0), "a config is often checked elsewhere: {checked:?}");
    for part in ["note: organism.toml:", "key-missing", "NO_SUCH_KEY is not set; set NO_SUCH_KEY"] {
        assert!(checked.err.contains(part), "{part}: {checked:?}");
    }
    let checked = run(house.command(&["check", "--json"]), &none);
    let checked: Json = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(checked["keys_missing"][0]["code"], "key-missing");
}

/// A listener that answers every delivery with the value of its variable `LIVE_KEY`.
const TELLER: &str = r#"import os, sys
inside = sys.stdin.buffer
frame = b""
while byte := inside.read(1):
    if byte == b"\0":
        found = os.environ.get("LIVE_KEY", "no key")
        sys.stdout.write('<write xmlns="urn:example:write">%s</write>\0' % found)
        sys.stdout.flush()
"#;

/// A listener may be a foreign program. It gets the key of a model only if its config section
/// passes on the environment variable that contains the key.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_gets_the_key_of_a_model_only_where_the_config_hands_it_on() {
    let teller = "command = [\"python3\", \"teller.py\"]\nschema = \"write.xsd\"\n\
                  accepts = [\"write\"]\nreplies = [\"write\"]\n";
    let house = House::with(&format!(
        "[organism]\nname = \"talk\"\n[clients.desk]\npeers = [\"other\", \"trusted\"]\n\
         [models.live]\nprovider = \"openai\"\nmodel = \"m\"\napi_key_env = \"LIVE_KEY\"\n\
         [listeners.other]\n{teller}[listeners.trusted]\n{teller}\
         env = {{ LIVE_KEY = \"${{LIVE_KEY}}\" }}\n",
    ));
    house.write("write.xsd", SCHEMA);
    house.write("write.xml", WRITE);
    house.write("teller.py", TELLER);
    let variables = BTreeMap::from([("LIVE_KEY".to_owned(), KEY.to_owned())]);
    let said = run(house.command(&["send", "write.xml"]), &variables);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains(">no key<"), "{said:?}");
    assert_eq!(said.out.matches(KEY).count(), 1, "{said:?}");
}
