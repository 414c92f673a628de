//! The programs and frames of docs/PROTOCOL.md, each taken from the page.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::{AttemptFailure, Message, MessageKind, Payload};
use organism::ids::PayloadName;
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, message, name, repository};
use crate::docs::blocks::{block, read};

const PAGE: &str = "docs/PROTOCOL.md";
const CALCULATOR: &str = "urn:example:calculator";
const CORE: &str = "https://xml-pipeline.org/ns/core/v1";

/// Short form of an id on the page. The tests replace it with `ID`.
const CUT_ID: &str = "0197…";
const ID: &str = "01970000-0000-7000-8000-000000000000";

/// Environment variable that makes this test program run as the calculator of the page.
const CHILD: &str = "ORGANISM_TEST_CALCULATOR";

mod calculator {
    include!("../../data/docs/calculator.rs");

    pub fn run() -> std::process::ExitCode {
        main()
    }
}

/// A frame of the page, with full ids, and without the line breaks that the page adds.
fn frame(start: &str) -> String {
    let lines = block(PAGE, start).replace(CUT_ID, ID);
    lines.lines().map(str::trim).fold(String::new(), |mut frame, line| {
        if !frame.is_empty() && !frame.ends_with('>') {
            frame.push(' ');
        }
        frame + line
    })
}

fn request(payload: &str) -> Arc<Message> {
    let mut request = Arc::unwrap_or_clone(message(1, MessageKind::Call, ""));
    request.name = PayloadName::new(CALCULATOR, "add");
    request.payload = Payload::new(payload.to_owned());
    Arc::new(request)
}

fn hosted(command: Vec<String>) -> HostHarness {
    let mut options = Options::new(name("calculator"), command);
    let kit = repository().join("listeners/python").to_str().unwrap().to_owned();
    options.env = vec![("PYTHONPATH".to_owned(), kit)];
    HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

/// The payload in the page's example of a delivery.
fn added() -> String {
    let delivery = frame("<e:delivery ");
    let (_, rest) = delivery.split_once("</e:meta>").unwrap();
    rest.split_once("</e:message>").unwrap().0.to_owned()
}

/// The payload in the page's example of an answer.
fn sum() -> String {
    let answer = block(
        PAGE,
        "<e:answer xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"0197…\" attempt=\"1.1\">\n",
    );
    answer.lines().nth(1).unwrap().trim().to_owned()
}

async fn adds(command: Vec<String>) {
    let mut ear = hosted(command);
    let number = ear.deliver(vec![request(&added())], 1);
    ear.expect(SinkEvent::Answer(number, vec![sum()])).await;
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

fn python_program(folder: &Path, program: &str) -> Vec<String> {
    let path = folder.join("calculator.py");
    std::fs::write(&path, program).unwrap();
    vec!["python3".to_owned(), path.to_str().unwrap().to_owned()]
}

/// Runs, in this folder, the command with which the page tests `./calculator.py`. The command must
/// succeed.
fn passes(folder: &Path, start: &str) {
    let line = block(PAGE, start).replace("./calculator.py", "--timeout 60 python3 calculator.py");
    let mut shell = Command::new("bash");
    let programs = Path::new(env!("CARGO_BIN_EXE_organism")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    shell.args(["-c", &line]).current_dir(folder).env("PATH", path);
    let output = shell.env("PYTHONPATH", repository().join("listeners/python")).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{line}: {shown}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_calculator_in_python_runs_and_passes_the_tests_of_the_page() {
    let folder = TempDir::new().unwrap();
    let program = block(PAGE, "import organism_listener as listener\n");
    adds(python_program(folder.path(), &program)).await;

    std::fs::write(folder.path().join("request.xml"), added()).unwrap();
    std::fs::create_dir(folder.path().join("schema")).unwrap();
    let schema = repository().join("tests/data/docs/calculator.xsd");
    std::fs::copy(schema, folder.path().join("schema/calculator.xsd")).unwrap();
    passes(folder.path(), "organism listener test --payload");
    passes(folder.path(), "organism listener test --schema");
}

#[tokio::test]
async fn the_calculator_in_typescript_runs() {
    if !super::examples::is_there_to_run("TypeScript", "node") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let program = block(PAGE, "import { element, Listener }");
    std::fs::write(folder.path().join("greeter.mts"), program).unwrap();
    super::examples::compile(folder.path());
    let compiled = folder.path().join("greeter.mjs").to_str().unwrap().to_owned();
    adds(vec!["node".to_owned(), compiled]).await;
}

#[test]
fn the_listener_in_bash_is_the_one_that_ships() {
    let shipped = read("listeners/shell-echo/shell-echo");
    let comment = shipped.lines().nth(1).unwrap().to_owned() + "\n";
    assert!(comment.starts_with("# "), "{comment}");
    assert_eq!(block(PAGE, "#!/usr/bin/env bash"), shipped.replacen(&comment, "", 1));
}

/// The page's Rust program compiles, and answers the example of a delivery on the page. The program
/// is compiled into this test executable. To run the program, the test starts the executable again,
/// as a child process.
#[test]
fn the_calculator_in_rust_runs() {
    if std::env::var_os(CHILD).is_some() {
        calculator::run();
        std::process::exit(0);
    }
    let compiled = read("tests/data/docs/calculator.rs");
    assert_eq!(block(PAGE, "use organism::listener::{"), compiled);

    let mut itself = Command::new(std::env::current_exe().unwrap());
    let test = "bus::protocol_page::the_calculator_in_rust_runs";
    itself.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
    let mut child = itself.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    input.write_all(format!("{}\0", frame("<e:delivery ")).as_bytes()).unwrap();
    let mut answer = Vec::new();
    output.read_until(0, &mut answer).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());

    // The harness of the tests has written its own lines before the frame.
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.contains(&format!("call=\"{ID}\" attempt=\"1.1\"")), "{answer}");
    assert!(answer.contains(&sum()), "{answer}");
}

#[tokio::test]
async fn the_handler_that_fans_out_spawns_its_threads_and_waits() {
    let folder = TempDir::new().unwrap();
    let handler = block(PAGE, "@listener.accepts(NS + \"order\")");
    let before = format!(
        "import organism_listener as listener\nNS = \"{{{CALCULATOR}}}\"\n\
         def units_of(request): return [n.text for n in request.payload]\n\
         def work(unit): return listener.element(NS + \"unit\", unit)\n"
    );
    let program = format!("{before}{handler}listener.serve()\n");
    let mut ear = hosted(python_program(folder.path(), &program));

    let mut order = Arc::unwrap_or_clone(request(&format!(
        "<order xmlns=\"{CALCULATOR}\"><n>2</n><n>3</n></order>"
    )));
    order.name = PayloadName::new(CALCULATOR, "order");
    let order = Arc::new(order);
    let number = ear.deliver(vec![order.clone()], 1);
    let SinkEvent::Answer(_, payloads) = ear.next().await else { panic!("expected an answer") };
    assert_eq!(payloads.len(), 3, "{payloads:?}");
    for (payload, part) in payloads.iter().zip(["unit-2", "unit-3", "<c:wait "]) {
        assert!(payload.contains(part), "{payload}");
    }

    let result = |seq, status: &str| {
        let text = format!(
            "<thread-result xmlns=\"{CORE}\" thread_id=\"sess-k3v9t2m8.unit-{seq}\" status=\"{status}\"/>"
        );
        let mut result = Arc::unwrap_or_clone(message(seq, MessageKind::System, ""));
        result.name = PayloadName::new(CORE, "thread-result");
        result.payload = Payload::new(text);
        Arc::new(result)
    };
    let messages = vec![order, result(2, "completed"), result(3, "failed")];
    let again = ear.deliver_again(number, messages, 2);
    let done = format!("<done xmlns=\"{CALCULATOR}\">1</done>");
    let payloads = match ear.next().await {
        SinkEvent::Answer(n, payloads) if n == again => payloads,
        other => panic!("expected an answer, heard {other:?}"),
    };
    assert_eq!(payloads, [done]);
}

/// Command of a listener that answers each delivery with `frame`, after it has replaced the ids in
/// `frame` with the ids of the delivery.
fn answers(frame: &str) -> Vec<String> {
    let program = r#"while IFS= read -r -d '' delivery; do
        case $delivery in '<cancel'*) continue ;; esac
        call=${delivery#* call=\"} attempt=${delivery#* attempt=\"}
        answer=${0//CALL/${call%%\"*}}
        printf '%s\0' "${answer//ATTEMPT/${attempt%%\"*}}"
    done"#;
    let answer = frame.replace(ID, "CALL").replace("attempt=\"1.1\"", "attempt=\"ATTEMPT\"");
    vec!["bash".to_owned(), "-c".to_owned(), program.to_owned(), answer]
}

/// The event that a host reports when a listener answers with this frame.
async fn outcome(frame: &str) -> SinkEvent {
    let mut ear = hosted(answers(frame));
    ear.deliver(vec![request(&added())], 1);
    let event = ear.next().await;
    ear.host.drain().await;
    event
}

/// The answers of the kit in Python to these frames.
fn kit_answers(frames: &[&str]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let program = block(PAGE, "import organism_listener as listener\n");
    let words = python_program(folder.path(), &program);
    let mut python = Command::new(&words[0]);
    python.args(&words[1..]).env("PYTHONPATH", repository().join("listeners/python"));
    let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for frame in frames {
        input.write_all(format!("{frame}\0").as_bytes()).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn the_frames_of_the_protocol_are_those_of_the_kits_and_the_pump() {
    let delivery = frame("<e:delivery ");
    let cancel = frame("<cancel ");
    let answer = frame(
        "<e:answer xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"0197…\" attempt=\"1.1\">\n",
    );
    let remembering = frame(
        "<e:answer xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"0197…\" attempt=\"1.1\"\n",
    );
    let remembering = remembering.replace('…', &sum());
    let missing = frame("<e:missing-memory ");

    // The kit reads the delivery, skips the cancel of an answered call, and writes what the page says.
    let other = "01970000-0000-7000-8000-00000000000f";
    let later = delivery.replace(ID, other).replace(" timeout=", " after=\"1\" timeout=");
    let expected = [remembering.clone(), missing.replace(ID, other)];
    assert_eq!(kit_answers(&[&delivery, &cancel, &later]), expected);

    // The pump takes the answers, and a claim to lack messages of a whole delivery for garbage.
    for frame in [answer, remembering] {
        assert_eq!(outcome(&frame).await, SinkEvent::Answer(1, vec![sum()]), "{frame}");
    }
    let lacking = outcome(&missing).await;
    assert!(matches!(lacking, SinkEvent::Failed(1, AttemptFailure::Garbage { .. })), "{lacking:?}");
}

/// The answer of a program in Python to one frame, and its log.
fn answered(folder: &Path, program: &str, frame: &str) -> (String, String) {
    let command = python_program(folder, program);
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("PYTHONPATH", repository().join("listeners/python"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{frame}\0").as_bytes()).unwrap();
    let mut answer = Vec::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_until(0, &mut answer).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let log = String::from_utf8(output.stderr).unwrap();
    (String::from_utf8(answer).unwrap(), log)
}

#[test]
fn a_kit_answers_the_request_for_a_preview_and_refuses_one_that_it_has_no_handler_for() {
    let folder = TempDir::new().unwrap();
    let delivery = frame("<e:delivery ");
    let messages = &delivery[delivery.find("<e:message").unwrap()..];
    let request =
        frame("<e:preview ").replace('…', messages.strip_suffix("</e:delivery>").unwrap());
    let preview = block(PAGE, "<preview ");
    let answer = |payload: &str| {
        format!(
            "<e:answer xmlns:e=\"https://xml-pipeline.org/ns/envelope/v1\" call=\"{ID}\" \
             attempt=\"1.0\">{payload}</e:answer>\0"
        )
    };

    let acting = "import organism_listener as listener\n\
                  @listener.accepts('{urn:example:calculator}add')\n\
                  def add(request):\n    raise SystemExit('carried out')\n";
    let showing = format!(
        "{acting}@listener.previews\n\
         def show(request):\n    \
         return ' and '.join(['would add ' + request.payload[0].text, request.payload[1].text])\n\
         listener.serve()\n"
    );
    let (given, _) = answered(folder.path(), &showing, &request);
    assert_eq!(given, answer(preview.trim_end()));

    let (given, log) = answered(folder.path(), &format!("{acting}listener.serve()\n"), &request);
    assert_eq!(given, answer(""));
    assert!(log.contains("no preview: this listener has no handler for previews"), "{log}");
}
