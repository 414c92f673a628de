//! Failures that only in-process handlers can cause.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use organism::bus::native_host::{HandlerContext, NativeHandler, NativeHost};
use organism::bus::{Delivery, Outcome};
use organism::envelope::AttemptFailure;
use tokio::runtime::Handle;

use super::harness::{HostHarness, SinkEvent, done, name};

struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        panic!("trodden on");
    }
}

/// A listener that hangs on a payload `mine`, and answers every other payload.
struct Miner;

impl NativeHandler for Miner {
    async fn handle(
        &self,
        delivery: Delivery,
        context: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        if delivery.messages[0].payload.as_str().contains("mine") {
            let _mine = Mine;
            context.heartbeat();
            pending::<()>().await;
        }
        Ok(Outcome { payloads: vec![done("well").into_bytes()], turn: None, ..Outcome::default() })
    }
}

#[tokio::test]
async fn a_handler_that_panics_while_it_is_dropped_ends_its_attempt_and_nothing_else() {
    let mut ear = HostHarness::hosting(|sink| {
        let host = NativeHost::new(name("tested"), Miner, sink, Handle::current());
        Arc::new(host.with_patience(Duration::ZERO, Duration::ZERO))
    });
    let number = ear.tell("mine");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.cancel(number);
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if *n == number),
        "{failed:?}"
    );
    assert_eq!(ear.ask("anything").await, "well");
    let number = ear.tell("mine");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.host.drain().await;
    let failed = ear.next().await;
    assert!(matches!(&failed, SinkEvent::Failed(n, _) if *n == number), "{failed:?}");
}
