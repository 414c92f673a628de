//! Handlers of the kits that fail on NATS, and the logs of the kits.

use std::fs::File;

use organism::envelope::AttemptFailure;

use super::{Kit, Meeting};
use crate::bus::harness::{HostHarness, SinkEvent};
use crate::bus::kit_language::KitLanguage;
use crate::nats::shared;

/// Sends a request, and asserts that its attempt ends with a crash. Returns the description of the
/// crash.
async fn crash(ear: &mut HostHarness, request: &str) -> String {
    let number = ear.tell(request);
    match ear.next().await {
        SinkEvent::Failed(n, AttemptFailure::Crashed { detail }) if n == number => detail,
        other => panic!("{request}: expected a crash, got {other:?}"),
    }
}

/// The replica has only one worker, so the next delivery is answered only if the failure has not
/// ended this worker.
async fn a_failure_without_a_text_is_a_crashed_attempt_and_the_kit_goes_on(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let mut kit = Kit::start(language, &meeting, &[]);
    let detail = crash(&mut ear, "crash-without-text").await;
    let expected = match language {
        KitLanguage::Python => "WithoutText",
        KitLanguage::TypeScript => "a value without a text was thrown",
    };
    assert_eq!(detail, expected);
    assert_eq!(ear.ask("echo still here").await, "still here");
    let ended = tokio::task::spawn_blocking(move || kit.terminate()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

async fn a_kit_whose_log_has_no_reader_answers_every_delivery(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let (reader, log) = std::io::pipe().unwrap();
    let mut kit = Kit::logging(language, &meeting, log.into());
    drop(reader);
    for _ in 0..2 {
        let detail = crash(&mut ear, "crash into a closed log").await;
        assert!(detail.ends_with("Error: into a closed log"), "{detail}");
    }
    let number = ear.tell("control");
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Garbage { .. }) if *n == number),
        "{failed:?}"
    );
    for _ in 0..2 {
        ear.ask("print into a closed log").await;
    }
    assert_eq!(ear.ask("echo still here").await, "still here");
    let ended = tokio::task::spawn_blocking(move || kit.terminate()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

async fn a_line_that_a_handler_prints_reaches_the_log_before_its_answer(language: KitLanguage) {
    let meeting = Meeting::at(shared());
    let mut ear = meeting.ear();
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = File::options().append(true).open(log.path()).unwrap();
    let _kit = Kit::logging(language, &meeting, file.into());
    ear.ask("print to the log").await;
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "to the log\n");
}

each_kit!(
    a_failure_without_a_text_is_a_crashed_attempt_and_the_kit_goes_on
    a_kit_whose_log_has_no_reader_answers_every_delivery
    a_line_that_a_handler_prints_reaches_the_log_before_its_answer
);
