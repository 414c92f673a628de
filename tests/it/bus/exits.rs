//! The end of a listener's process: noticed at once, whatever the process left behind.

use std::sync::Arc;
use std::time::Duration;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::Failure;
use tokio::runtime::Handle;

use super::ear::{Ear, Heard, done, name};

/// A listener in `bash` that keeps one child, which holds its standard output and standard error.
fn with_child(program: &str) -> Ear {
    let script = format!("sleep 1000 & read -r -d '' frame; {program}");
    let command = ["bash", "-c", &script].map(str::to_owned).into();
    let mut options = Options::new(name("tested"), command);
    options.restarts.backoff_first = Duration::from_millis(1);
    Ear::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

async fn crash(ear: &mut Ear) -> String {
    match ear.next().await {
        Heard::Failed(_, Failure::Crashed { detail }) => detail,
        other => panic!("expected a crash, heard {other:?}"),
    }
}

#[tokio::test]
async fn a_process_that_ends_has_crashed_although_its_child_holds_its_output() {
    let mut ear = with_child("echo last words >&2; exit 3");
    for _ in 0..2 {
        ear.tell("anything");
        let detail = crash(&mut ear).await;
        assert_eq!(detail, "exited with code 3; its last words: last words");
    }
}

#[tokio::test]
async fn an_answer_written_just_before_the_end_counts() {
    let answer = done("once");
    let mut ear = with_child(&format!("printf '{answer}\\0'; exit 3"));
    for _ in 0..3 {
        let number = ear.tell("anything");
        ear.expect(Heard::Answer(number, vec![answer.clone()])).await;
    }
}

#[tokio::test]
async fn an_end_within_a_frame_is_described_although_a_child_holds_the_output() {
    let mut ear = with_child("printf '<done'; exit 3");
    ear.tell("anything");
    let detail = crash(&mut ear).await;
    assert_eq!(detail, "exited with code 3, 5 bytes into an unfinished frame");
}

#[tokio::test]
async fn an_answer_of_a_process_that_ended_reaches_no_second_delivery() {
    let answer = done("once");
    let mut ear = with_child(&format!("printf '{answer}\\0{answer}\\0'; exit 3"));
    for number in [ear.tell("first"), ear.tell("second")] {
        ear.expect(Heard::Answer(number, vec![answer.clone()])).await;
    }
    assert!(ear.is_quiet());
}
