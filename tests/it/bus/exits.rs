//! The host notices the end of a listener's process at once, and the kits notice the end of the
//! pump.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::AttemptFailure;
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, done, name};
use super::kit_language::KitLanguage;
use crate::organism::{PATIENCE, until};

/// A listener in `bash` with one child process, which holds the listener's standard output and
/// standard error.
fn with_child(program: &str) -> HostHarness {
    let script = format!("sleep 1000 & read -r -d '' frame; {program}");
    let command = ["bash", "-c", &script].map(str::to_owned).into();
    let mut options = Options::new(name("tested"), command);
    options.restarts.backoff_first = Duration::from_millis(1);
    HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

async fn crash(ear: &mut HostHarness) -> String {
    match ear.next().await {
        SinkEvent::Failed(_, AttemptFailure::Crashed { detail }) => detail,
        other => panic!("expected a crash, heard {other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_ends_has_crashed_although_its_child_holds_its_output() {
    let mut ear = with_child("echo last words >&2; exit 3");
    for _ in 0..2 {
        ear.tell("anything");
        let detail = crash(&mut ear).await;
        assert_eq!(detail, "exited with code 3; last line on standard error: last words");
    }
}

/// The host runs on a single thread, and the standard error of its process never ends. The host
/// must still pass on the answer, although the lines come faster than the log takes them.
#[test]
fn a_process_that_floods_its_standard_error_keeps_no_other_task_from_running() {
    let (answer, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let log = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        let conversation = async {
            let flooded = done("once");
            let program = format!("yes flood >&2 & sleep 0.5; printf '{flooded}\\0'; sleep 1000");
            let mut ear = with_child(&program);
            let number = ear.tell("anything");
            ear.expect(SinkEvent::Answer(number, vec![flooded])).await;
            answer.send(()).unwrap();
        };
        tracing::subscriber::with_default(log, || runtime.block_on(conversation));
    });
    answered.recv_timeout(PATIENCE).expect("an answer beside the flood");
}

/// The last words of a crashed attempt leave out lines that the process wrote during an earlier
/// call. Such lines would mislead, and they belong to another client.
#[tokio::test]
async fn words_before_the_delivery_of_a_crashed_attempt_are_not_its_last_words() {
    let answer = done("once");
    let next = "read -r -d '' frame";
    for end in ["\\n", "", "\\nfull\\n\\nyes\\n"] {
        let later =
            format!("printf 'disk full{end}' >&2; printf '{answer}\\0'; {next}; kill -9 $$");
        let mut ear = with_child(&later);
        let number = ear.tell("anything");
        ear.expect(SinkEvent::Answer(number, vec![answer.clone()])).await;
        ear.tell("anything");
        assert_eq!(crash(&mut ear).await, "killed by signal 9");
    }

    let command = ["bash", "-c", &format!("echo no database >&2; {next}; kill -9 $$")];
    let options = Options::new(name("tested"), command.map(str::to_owned).into());
    let mut ear = HostHarness::hosting(|sink| {
        Arc::new(ProcessHost::start(options, sink, &Handle::current()))
    });
    ear.tell("anything");
    let detail = crash(&mut ear).await;
    assert_eq!(
        detail, "killed by signal 9; last line on standard error: no database",
        "it is about its start"
    );
}

/// A process may write an error between two deliveries, for example when it loses its database, and
/// end at the next delivery. The failure of this delivery names that error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_that_a_process_wrote_while_it_was_idle_are_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let answer = done("once");
    let path = pipe.display();
    let mut ear = with_child(&format!(
        "echo begun >&2; printf '{answer}\\0'; read -r < {path}; echo no database >&2; \
         echo > {path}; read -r -d '' frame; exit 3"
    ));
    let number = ear.tell("anything");
    ear.expect(SinkEvent::Answer(number, vec![answer.clone()])).await;
    std::fs::write(&pipe, "\n").unwrap();
    std::fs::read(&pipe).unwrap();
    ear.tell("anything");
    assert_eq!(
        crash(&mut ear).await,
        "exited with code 3; last line on standard error: no database"
    );
}

/// Control characters in the last words are escaped. Otherwise a carriage return or a bidirectional
/// override could change what a log line shows.
#[tokio::test]
async fn the_last_words_of_a_process_cannot_control_a_terminal() {
    let mut ear = with_child(r"printf 'a\rb\033[2J\342\200\256c\r\n' >&2; exit 3");
    ear.tell("anything");
    let detail = crash(&mut ear).await;
    assert_eq!(
        detail,
        r"exited with code 3; last line on standard error: a\u{d}b\u{1b}[2J\u{202e}c"
    );
}

#[tokio::test]
async fn an_answer_written_just_before_the_end_counts() {
    let answer = done("once");
    for _ in 0..3 {
        let mut ear = with_child(&format!("printf '{answer}\\0'; exit 3"));
        let number = ear.tell("anything");
        ear.expect(SinkEvent::Answer(number, vec![answer.clone()])).await;
    }
}

#[tokio::test]
async fn an_end_within_a_frame_is_described_although_a_child_holds_the_output() {
    let mut ear = with_child("printf '<done'; exit 3");
    ear.tell("anything");
    let detail = crash(&mut ear).await;
    assert_eq!(detail, "5 bytes into an unfinished frame, exited with code 3");
}

/// Starts a listener of a kit as a host does, and sends it one delivery with this text.
fn kit_at_work(language: KitLanguage, text: &str) -> Child {
    let mut kit = language
        .listener("obedient")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let payload = format!("<do xmlns=\"urn:test\">{text}</do>");
    let frame = super::kit::delivery(&[&payload]);
    kit.stdin.as_mut().unwrap().write_all(format!("{frame}\0").as_bytes()).unwrap();
    kit
}

#[test]
fn a_handler_of_a_kit_ends_with_its_pump() {
    for language in KitLanguage::ALL {
        ends_with_its_pump(language);
    }
}

fn ends_with_its_pump(language: KitLanguage) {
    let mut kit = kit_at_work(language, "stuck");
    let mut beat = [0; 13];
    kit.stdout.as_mut().unwrap().read_exact(&mut beat).unwrap();
    assert_eq!(&beat, b"<heartbeat/>\0");
    drop(kit.stdin.take());
    assert_eq!(kit.try_wait().unwrap(), None, "its answer can still be taken");
    drop(kit.stdout.take());
    let status = until("the kit has ended", || kit.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_delivery_at_the_end_of_the_input_is_answered() {
    for language in KitLanguage::ALL {
        let mut kit = kit_at_work(language, "sleep 0.2");
        drop(kit.stdin.take());
        let output = kit.wait_with_output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        assert!(answer.contains(&done("slept")), "{answer}");
        assert_eq!(output.status.code(), Some(0), "{language:?}");
    }
}
