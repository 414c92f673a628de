//! Reports about model calls to a client that waits for its tree.

use std::sync::{Arc, OnceLock};

use organism::bus::live::LiveSource;
use organism::bus::native_host::InlineHost;
use organism::bus::{Delivery, ModelState, Outcome, Sink as _};
use organism::envelope::AttemptFailure;
use organism::pump::core::Target;
use organism::pump::driver::CallWaitReason;
use tokio::sync::mpsc;

use super::driver::{Running, start_hosting};
use super::world::{name, word};

/// Returns the reports to a client about the model call of an agent. The agent's host reports that
/// the model streams, then `result`, and then once more that the model streams. Like a host that
/// was killed, it never reports the end of the model call.
async fn reports(result: Result<Outcome, AttemptFailure>) -> Vec<CallWaitReason> {
    let state = Arc::new(OnceLock::new());
    let streaming = || ModelState::Streaming("a/b".to_owned());
    let reported = Arc::clone(&state);
    let Running { handle, pump, place: _place } = start_hosting(None, move |pump| {
        let sink = pump.sink();
        let report = Arc::clone(&sink);
        let handler = move |delivery: &Delivery| {
            let source = LiveSource {
                thread: delivery.thread.clone(),
                agent: delivery.listener.clone(),
                call: delivery.call,
                attempt: delivery.attempt,
            };
            report.model_state(&source, streaming());
            reported.set((Arc::clone(&report), source)).ok();
            result.clone()
        };
        pump.host(name("thinker"), Arc::new(InlineHost::new(name("thinker"), handler, sink)));
    });

    let (sender, mut waits) = mpsc::channel(16);
    let (desk, plan) = (name("desk"), word("plan", "p"));
    let target = Target::New { suggested: None };
    let submitted =
        handle.submit_watched(None, &desk, target, None, plan.as_bytes(), Some(sender)).await;
    submitted.unwrap().1.next().await.unwrap().unwrap();
    let (sink, source) = state.get().unwrap();
    sink.model_state(source, streaming());
    handle.drain("done").await.unwrap();
    handle.stop();
    tokio::task::spawn_blocking(move || pump.join().unwrap()).await.unwrap().unwrap();

    let mut reasons = Vec::new();
    while let Some(wait) = waits.recv().await {
        reasons.push(wait.reason);
    }
    reasons
}

#[tokio::test]
async fn the_end_of_an_attempt_ends_the_wait_for_its_model() {
    let answer = Outcome {
        payloads: vec![word("answer", "a").into_bytes()],
        turn: None,
        ..Outcome::default()
    };
    let failure = AttemptFailure::Garbage { detail: "no answer".to_owned() };
    for result in [Ok(answer), Err(failure)] {
        let reasons = reports(result).await;
        let last = CallWaitReason::Model(ModelState::Ended);
        assert_eq!(reasons.last(), Some(&last), "{reasons:?}");
        assert_eq!(reasons.iter().filter(|reason| **reason == last).count(), 1, "{reasons:?}");
    }
}
