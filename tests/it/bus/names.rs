//! Answers that name the attempt to which they belong. If an answer names another attempt than the
//! one in progress, the host records the answer as stray.

use std::sync::Arc;
use std::time::Duration;

use organism::bus::process::{Options, ProcessHost};
use organism::envelope::AttemptFailure;
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, attempt, call, done, name, script};

fn listener(how: &str) -> HostHarness {
    let command = ["python3", &script("named.py"), how].map(str::to_owned).into();
    let mut options = Options::new(name("tested"), command);
    options.restarts.backoff_first = Duration::from_millis(1);
    HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, &Handle::current())))
}

/// The second or a later answer to delivery `number`.
fn repeated(number: u32) -> SinkEvent {
    let named = format!("attempt {} at call {} (already answered)", attempt(number), call(number));
    SinkEvent::Stray(named, vec![done(&attempt(number).to_string())])
}

fn answer(number: u32) -> SinkEvent {
    SinkEvent::Answer(number, vec![done(&attempt(number).to_string())])
}

#[tokio::test]
async fn an_answer_that_names_its_delivery_is_taken() {
    let mut ear = listener("good");
    for text in ["first", "second"] {
        let number = ear.tell(text);
        ear.expect(answer(number)).await;
    }
}

#[tokio::test]
async fn a_stale_answer_reaches_no_other_caller_and_the_third_replaces_the_process() {
    let mut ear = listener("stale");
    let mut last = ear.tell("anything");
    ear.expect(answer(last)).await;
    for _ in 0..2 {
        let number = ear.tell("anything");
        ear.expect(repeated(last)).await;
        ear.expect(answer(number)).await;
        last = number;
    }
    let fourth = ear.tell("anything");
    ear.expect(repeated(last)).await;
    match ear.next().await {
        SinkEvent::Failed(number, AttemptFailure::Crashed { detail }) => {
            assert_eq!(number, fourth);
            let first = "gave 3 answers to attempts that it did not have at hand, the last one to";
            let last = format!("attempt {} at call {} (already answered)", attempt(3), call(3));
            assert_eq!(detail, format!("{first} {last}"));
        }
        other => panic!("expected a crash, heard {other:?}"),
    }
    let again = ear.tell("another process");
    ear.expect(answer(again)).await;
}

#[tokio::test]
async fn a_second_answer_of_the_same_name_is_a_stray() {
    let mut ear = listener("twice");
    for text in ["first", "second"] {
        let number = ear.tell(text);
        ear.expect(answer(number)).await;
        ear.expect(repeated(number)).await;
    }
}

#[tokio::test]
async fn an_answer_with_an_unknown_name_is_stray() {
    let mut ear = listener("other");
    let number = ear.tell("anything");
    let named = "attempt 0.0 at call nobody".to_owned();
    ear.expect(SinkEvent::Stray(named, vec![done("other")])).await;
    ear.expect(answer(number)).await;
}
