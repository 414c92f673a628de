//! Properties that every kind of host must have, tested with an obedient listener.

use organism::envelope::{AttemptFailure, MessageKind};

use super::harness::{HostHarness, SinkEvent, done, message};

pub mod fixture {
    //! The obedient listener in each kind of host, with short time-outs. A host of processes starts
    //! `instances` of them. The other hosts have three deliveries at once.

    use std::ffi::OsStr;
    use std::sync::Arc;
    use std::time::Duration;

    use organism::bus::native_host::{HandlerContext, NativeHandler, NativeHost};
    use organism::bus::process::{Options, ProcessHost};
    use organism::bus::{Delivery, Host, Outcome, Sink};
    use organism::envelope::AttemptFailure;
    use tokio::runtime::Handle;

    use crate::bus::harness::{done, name};
    use crate::bus::kit_language::KitLanguage;
    use crate::bus::remote::{Kit, Meeting};

    const CANCEL_GRACE: Duration = Duration::from_millis(300);
    const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

    pub fn process(instances: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        process_of(KitLanguage::Python, instances, sink)
    }

    pub fn process_typescript(instances: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        process_of(KitLanguage::TypeScript, instances, sink)
    }

    fn process_of(language: KitLanguage, instances: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        let options = obedient_of(language, instances);
        Arc::new(ProcessHost::start(options, sink, &Handle::current()))
    }

    pub fn obedient() -> Options {
        obedient_of(KitLanguage::Python, 1)
    }

    fn obedient_of(language: KitLanguage, instances: u32) -> Options {
        let listener = language.listener("obedient");
        let text = |word: &OsStr| word.to_str().unwrap().to_owned();
        let words = std::iter::once(listener.get_program()).chain(listener.get_args());
        let mut options = Options::new(name("tested"), words.map(text).collect());
        let variables = listener.get_envs();
        options.env =
            variables.map(|(name, value)| (text(name), text(value.unwrap_or_default()))).collect();
        options.instances = instances;
        options.cancel_grace = CANCEL_GRACE;
        options.drain_timeout = DRAIN_TIMEOUT;
        options.restarts.backoff_first = Duration::from_millis(1);
        options
    }

    pub fn nats(_: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        nats_of(KitLanguage::Python, sink)
    }

    pub fn nats_typescript(_: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        nats_of(KitLanguage::TypeScript, sink)
    }

    fn nats_of(language: KitLanguage, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        let meeting = Meeting::at(crate::nats::shared());
        let kit = Kit::start(language, &meeting, &[("ORGANISM_BUS_WORKERS", "3")]);
        let mut options = meeting.options();
        options.cancel_grace = CANCEL_GRACE;
        options.drain_timeout = DRAIN_TIMEOUT;
        Arc::new(kit.with(meeting.host_with(options, sink)))
    }

    pub fn native(_: u32, sink: Arc<dyn Sink>) -> Arc<dyn Host> {
        let host = NativeHost::new(name("tested"), Obedient, sink, Handle::current());
        Arc::new(host.with_patience(CANCEL_GRACE, DRAIN_TIMEOUT))
    }

    struct Obedient;

    impl NativeHandler for Obedient {
        async fn handle(
            &self,
            delivery: Delivery,
            context: HandlerContext,
        ) -> Result<Outcome, AttemptFailure> {
            let payload = delivery.messages[0].payload.as_str();
            let text = payload.split(['<', '>']).nth(2).unwrap();
            let (word, argument) = text.split_once(' ').unwrap_or((text, ""));
            let answers: Vec<String> = match word {
                "echo" => vec![argument.to_owned()],
                "nothing" => vec![],
                "many" => (0..argument.parse::<u32>().unwrap()).map(|n| n.to_string()).collect(),
                "crash" => panic!("{argument}"),
                "beat" => {
                    (0..argument.parse::<u32>().unwrap()).for_each(|_| context.heartbeat());
                    vec!["beaten".to_owned()]
                }
                "wait" => {
                    context.heartbeat();
                    context.cancelled().await;
                    vec!["gone".to_owned()]
                }
                "stuck" => {
                    context.heartbeat();
                    std::future::pending().await
                }
                "count" => vec![format!("{} {}", delivery.messages.len(), delivery.fresh)],
                other => panic!("no such word: {other}"),
            };
            let payloads = answers.iter().map(|answer| done(answer).into_bytes()).collect();
            Ok(Outcome { payloads, turn: None, ..Outcome::default() })
        }
    }
}

pub async fn a_delivery_is_answered_once(mut ear: HostHarness) {
    let number = ear.tell("echo hello");
    ear.expect(SinkEvent::Answer(number, vec![done("hello")])).await;
    ear.host.drain().await;
    assert!(ear.is_quiet());
}

pub async fn a_handler_sees_every_message_and_which_are_new(mut ear: HostHarness) {
    let messages = vec![
        message(1, MessageKind::Call, "count"),
        message(4, MessageKind::Reply, "one &amp; <b>two</b>"),
        message(5, MessageKind::System, "three"),
    ];
    let number = ear.deliver(messages, 2);
    ear.expect(SinkEvent::Answer(number, vec![done("3 2")])).await;
}

pub async fn an_empty_answer_has_no_payloads(mut ear: HostHarness) {
    let number = ear.tell("nothing");
    ear.expect(SinkEvent::Answer(number, vec![])).await;
}

pub async fn two_payloads_come_in_order(mut ear: HostHarness) {
    let number = ear.tell("many 2");
    ear.expect(SinkEvent::Answer(number, vec![done("0"), done("1")])).await;
}

pub async fn a_thousand_payloads_come_in_order(mut ear: HostHarness) {
    let number = ear.tell("many 1000");
    let expected = (0..1000).map(|n| done(&n.to_string())).collect();
    ear.expect(SinkEvent::Answer(number, expected)).await;
}

pub async fn a_crash_is_retried_and_the_next_delivery_is_served(mut ear: HostHarness) {
    let number = ear.tell("crash all is lost");
    match ear.next().await {
        SinkEvent::Failed(n, failure @ AttemptFailure::Crashed { .. }) if n == number => {
            assert!(failure.is_retried());
            assert!(failure.to_string().contains("all is lost"), "{failure}");
        }
        other => panic!("expected a crash, heard {other:?}"),
    }
    assert_eq!(ear.ask("echo again").await, "again");
}

pub async fn heartbeats_come_before_the_answer(mut ear: HostHarness) {
    let number = ear.tell("beat 2");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.expect(SinkEvent::Beat(number)).await;
    ear.expect(SinkEvent::Answer(number, vec![done("beaten")])).await;
}

pub async fn a_cancelled_handler_may_still_answer(mut ear: HostHarness) {
    let number = ear.tell("wait");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![done("gone")])).await;
}

pub async fn a_handler_deaf_to_cancel_is_stopped_and_the_next_delivery_is_served(
    mut ear: HostHarness,
) {
    let number = ear.tell("stuck");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.cancel(number);
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if *n == number),
        "{failed:?}"
    );
    assert_eq!(ear.ask("echo still here").await, "still here");
}

pub async fn deliveries_run_in_parallel(mut ear: HostHarness) {
    let numbers = [ear.tell("wait"), ear.tell("wait"), ear.tell("wait")];
    for _ in numbers {
        let heard = ear.next().await;
        assert!(
            matches!(heard, SinkEvent::Beat(_)),
            "all three should have begun, heard {heard:?}"
        );
    }
    numbers.iter().for_each(|number| ear.cancel(*number));
    let mut answered = Vec::new();
    for _ in numbers {
        match ear.next().await {
            SinkEvent::Answer(number, _) => answered.push(number),
            other => panic!("expected an answer, heard {other:?}"),
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, numbers);
}

pub async fn what_runs_may_end_when_the_host_is_drained(mut ear: HostHarness) {
    let number = ear.tell("wait");
    ear.expect(SinkEvent::Beat(number)).await;
    let host = ear.host.clone();
    let drained = tokio::spawn(async move { host.drain().await });
    ear.cancel(number);
    ear.expect(SinkEvent::Answer(number, vec![done("gone")])).await;
    drained.await.unwrap();
}

pub async fn what_will_not_end_is_stopped_when_the_host_is_drained(mut ear: HostHarness) {
    let number = ear.tell("stuck");
    ear.expect(SinkEvent::Beat(number)).await;
    ear.host.drain().await;
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Crashed { .. }) if *n == number),
        "{failed:?}"
    );
}

pub async fn nothing_is_taken_after_a_drain(mut ear: HostHarness) {
    ear.host.drain().await;
    let number = ear.tell("echo too late");
    let failed = ear.next().await;
    assert!(
        matches!(&failed, SinkEvent::Failed(n, AttemptFailure::Unreachable { .. }) if *n == number),
        "{failed:?}"
    );
}
