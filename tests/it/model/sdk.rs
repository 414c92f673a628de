//! Checks that the scripted servers are realistic: the providers' own libraries and this program
//! read the same values from the servers' answers. This program's models also work with a server
//! that was written independently.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use organism::model::{ChatBlock, ChatMessage, ChatRole, ModelRequest, ModelTool, StopReason};
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};

use super::server::{KEY, Script, Server, ask, call, options, remote};
use super::wires::{ANTHROPIC, OPENAI, SIGNATURE, Scene, Stop, Usage, Wire};

/// A program in the Python environment that `.ci/sdks` creates.
fn installed(program: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wanted = std::fs::read(root.join("tests/data/model/sdks.txt")).unwrap();
    let there = std::fs::read(root.join("target/sdks/installed.txt"));
    assert!(
        there.is_ok_and(|there| there == wanted),
        "the providers' Python libraries are not installed; run .ci/sdks (make test does)"
    );
    root.join("target/sdks/bin").join(program)
}

/// Returns the values that the provider's own library reads from each server. One process reads all
/// answers, because loading the library takes longer than reading them.
async fn read_by_sdk(wire: &Wire, servers: &[Server]) -> Vec<Json> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/model/sdk.py");
    let mut command = tokio::process::Command::new(installed("python"));
    command.arg(script).args([wire.preset, KEY]).env("NO_PROXY", "127.0.0.1");
    let output = command.args(servers.iter().map(Server::url)).output().await.unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

fn same_json(ours: &str, theirs: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Json>(text).ok();
    ours == theirs || read(ours).is_some_and(|ours| Some(ours) == read(theirs))
}

fn scenes() -> [Scene; 4] {
    [
        Scene { text: vec!["Hel", "lo, grü", "ße 🦀"], ..Scene::default() },
        Scene {
            reasoning: vec!["Let me ", "think."],
            text: vec!["I look."],
            calls: vec![
                ("call_1", "search", vec!["{\"query\":", "\"a \\\"b\\\" ü\"", "}"]),
                ("call_2", "clock", vec!["{}"]),
            ],
            stop: Stop::Calls,
            usage: Usage::Good,
        },
        Scene { text: vec!["Once upon"], stop: Stop::Length, ..Scene::default() },
        Scene { text: vec!["I"], stop: Stop::Refused, ..Scene::default() },
    ]
}

#[tokio::test]
async fn the_official_libraries_read_the_scripted_streams_and_errors_as_we_do() {
    let scenes = scenes();
    for wire in [OPENAI, ANTHROPIC] {
        let mut servers = Vec::new();
        for scene in &scenes {
            let mut events = (wire.events)(scene);
            events.insert(1, wire.ping.to_owned());
            servers.push(Server::answering(Script::stream(&events)).await);
        }
        servers.extend(failing_servers(&wire).await);

        let mut theirs = read_by_sdk(&wire, &servers).await;
        let errors = theirs.split_off(scenes.len());
        for ((theirs, scene), server) in theirs.iter().zip(&scenes).zip(&servers) {
            read_the_same(&wire, scene, theirs, server).await;
        }
        let statuses: Vec<_> = errors.iter().map(|error| error["status"].as_u64()).collect();
        assert_eq!(statuses, [Some(401), Some(429), Some(529), None], "{errors:?}");
        assert_eq!(errors[3]["error"], true, "{errors:?}");
    }
}

/// Three servers that answer with an error status, and one whose stream ends with an error.
async fn failing_servers(wire: &Wire) -> Vec<Server> {
    let mut servers = Vec::new();
    for status in ["401 Unauthorized", "429 Too Many Requests", "529 Overloaded"] {
        let body = (wire.complaint)("some_error", "words");
        let script = Script::whole(status, "Content-Type: application/json\r\n", &body);
        servers.push(Server::answering(script).await);
    }
    let mut events = (wire.events)(&Scene { text: vec!["Hel", "lo"], ..Scene::default() });
    events.insert(3, (wire.error)("overloaded_error", "words"));
    servers.push(Server::answering(Script::stream(&events)).await);
    servers
}

async fn read_the_same(wire: &Wire, scene: &Scene, theirs: &Json, server: &Server) {
    let (end, heard) = call(&remote(options(wire.preset, &server.url())), &ask("Hello.")).await;
    let end = end.unwrap();
    assert_eq!(theirs["text"], heard.text, "{theirs}");
    assert_eq!(theirs["reasoning"], heard.reasoning, "{theirs}");
    assert_eq!(theirs["stop"], (wire.stop)(scene.stop), "{theirs}");
    let usage = serde_json::json!([end.usage.tokens_in, end.usage.tokens_out]);
    assert_eq!(theirs["usage"], usage, "{theirs}");
    let calls = theirs["calls"].as_array().unwrap();
    assert_eq!(calls.len(), end.calls.len(), "{theirs}");
    for (theirs, ours) in calls.iter().zip(&end.calls) {
        assert_eq!((&theirs[0], &theirs[1]), (&ours.id.clone().into(), &ours.name.clone().into()));
        assert!(same_json(&ours.arguments, theirs[2].as_str().unwrap()), "{theirs}");
    }
    if wire.preset == "anthropic" && !scene.reasoning.is_empty() {
        assert_eq!(theirs["signature"], SIGNATURE);
        assert!(end.own[0].json.contains(SIGNATURE));
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `fakellm`, an independent server for the wire formats of Anthropic and OpenAI, with rules
/// for its answers.
async fn elsewhere(directory: &Path) -> (Ended, u16) {
    let rules = json!({ "rules": [
        { "name": "found", "when": { "tool_result_contains": "found \"it\" <here>" },
          "respond": { "content": "It is there." } },
        { "name": "search", "when": { "tools_include": "search" },
          "respond": { "content": "I look.", "tool_calls": [
              { "name": "search", "arguments": { "query": "a \"b\" ü", "limit": 3 } },
              { "name": "clock", "arguments": {} } ] } },
        { "name": "any", "respond": { "content": "Grüße, <b>you</b> & 🦀" } },
    ] });
    // JSON is valid YAML.
    std::fs::write(directory.join("rules.yaml"), rules.to_string()).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let log = std::fs::File::create(directory.join("log")).unwrap();
    let child = Command::new(installed("fakellm"))
        .args(["serve", "--host", "127.0.0.1", "--config", "rules.yaml", "--port"])
        .arg(port.to_string())
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut child = Ended(child);
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        let log = std::fs::read_to_string(directory.join("log")).unwrap();
        assert_eq!(child.0.try_wait().unwrap(), None, "{log}");
        looks.tick().await;
    }
    (child, port)
}

/// An independent server understands text, parallel calls and their results in the wire formats of
/// Anthropic and OpenAI. It returns results only if it can parse the request.
#[tokio::test]
async fn a_foreign_server_supports_both_formats() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, port) = elsewhere(directory.path()).await;
    // In OpenAI's format, it reports no usage, and no text besides calls.
    for (preset, told, beside) in [("openai-compatible", false, ""), ("anthropic", true, "I look.")]
    {
        let model = remote(options(preset, &format!("http://127.0.0.1:{port}/v1")));
        let (end, heard) = call(&model, &ask("Hello.")).await;
        let end = end.unwrap();
        assert_eq!(heard.text, "Grüße, <b>you</b> & 🦀", "{preset}");
        assert_eq!((end.stop, &*end.calls), (StopReason::Normal, &[][..]), "{preset}");
        assert_eq!(end.usage.estimated, !told, "{preset}: {:?}", end.usage);

        let tool = |name: &str| ModelTool {
            name: name.to_owned(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
        };
        let tools = vec![tool("search"), tool("clock")];
        let mut request =
            ModelRequest { tools, one_call: true, ..ask(&format!("Find it, {preset}.")) };
        let (end, heard) = call(&model, &request).await;
        let end = end.unwrap();
        assert_eq!((&*heard.text, end.stop), (beside, StopReason::Calls), "{preset}");
        let [search, clock] = &end.calls[..] else { panic!("{preset}: {:?}", end.calls) };
        assert_eq!((&*search.name, &*clock.name), ("search", "clock"), "{preset}");
        assert!(same_json(&search.arguments, "{\"query\": \"a \\\"b\\\" ü\", \"limit\": 3}"));
        assert!(same_json(&clock.arguments, "{}") && search.id != clock.id, "{preset}");

        let mut spoken = vec![ChatBlock::Text(heard.text)];
        spoken.extend(end.calls.iter().cloned().map(ChatBlock::Call));
        let results = ["found \"it\" <here>", "noon"].into_iter().zip(&end.calls);
        let results = results.map(|(text, call)| {
            let (id, text) = (call.id.clone(), text.to_owned());
            ChatBlock::Result { id, text, failed: false }
        });
        request.messages.push(ChatMessage { role: ChatRole::Assistant, blocks: spoken }.into());
        request
            .messages
            .push(ChatMessage { role: ChatRole::User, blocks: results.collect() }.into());
        let (end, heard) = call(&model, &request).await;
        assert_eq!((&*heard.text, end.unwrap().calls), ("It is there.", Vec::new()), "{preset}");
    }
}
