//! An agent's host far from its pump, on the wire: what is said between deliveries and answers.

use std::sync::Arc;

use organism::bus::native::{Context, Handler, NativeHost};
use organism::bus::nats::{Far, Memory, Outpost, Relay};
use organism::bus::{Delivery, Host, Outcome};
use organism::envelope::{Failure, Turn};
use organism::ids::{Digest, Position, ThreadId};
use organism::nats::connect_with;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::ear::{Ear, Heard, name};
use super::remote::{Meeting, RUNTIME, wait};
use crate::nats::shared;

/// A thread of its own for every position.
struct Told;

impl Memory for Told {
    fn thread(&self, thread: &ThreadId, up_to: Position) -> Result<Vec<u8>, String> {
        Ok(format!("{thread} up to {up_to}").into_bytes())
    }
}

/// Says that it works, waits for its caller to go, and says what it was told.
struct Waits {
    relay: Relay,
}

impl Handler for Waits {
    async fn handle(&self, delivery: Delivery, context: Context) -> Result<Outcome, Failure> {
        assert_eq!(delivery.trace.unwrap().to_string(), super::ear::TRACEPARENT);
        let told = String::from_utf8(self.relay.thread(&delivery).await?).unwrap();
        context.heartbeat();
        context.cancelled().await;
        let turn = Some(Turn { note: "<noted/>".to_owned(), ..Turn::default() });
        Ok(Outcome { payloads: vec![format!("<told>{told}</told>").into()], turn })
    }
}

struct Post {
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

fn post(meeting: &Meeting, config: Digest) -> Post {
    let inbox = meeting.subjects.inbox();
    let servers = organism::nats::Options {
        servers: vec![meeting.address.clone()],
        credentials: organism::nats::Credentials::Nobody,
        ca: None,
    };
    wait(async {
        let (client, _) = connect_with(&servers, "a host", Some(&inbox)).await.unwrap();
        let runtime = RUNTIME.handle().clone();
        let relay = Relay::new(client, meeting.subjects.clone(), runtime.clone());
        let handler = Waits { relay: relay.clone() };
        let host = NativeHost::new(name("tested"), handler, Arc::new(relay.clone()), runtime);
        let host: Arc<dyn Host> = Arc::new(host);
        let post = Outpost::open(&meeting.organism, name("tested"), config, relay, host);
        let post = post.await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(post.serve(async {
            stopped.await.ok();
        }));
        Post { stop, served }
    })
}

fn ear(meeting: &Meeting, config: Digest) -> Ear {
    let far = Some(Far { memory: Arc::new(Told), config });
    let options = organism::bus::nats::Options { far, ..meeting.options() };
    Ear::hosting(|sink| Arc::new(meeting.host_with(options, sink)))
}

const TOLD: &str = "<told>sess-k3v9t2m8 up to 1</told>";

#[tokio::test]
async fn a_heartbeat_and_a_cancel_reach_the_other_end() {
    let (meeting, config) = (Meeting::at(shared()), Digest::of(b"one config"));
    let (mut ear, post) = (ear(&meeting, config), post(&meeting, config));
    // Its thread is read for it: what it is given has to be readable.
    assert!(ear.host.reads_journal() && !meeting.ear().host.reads_journal());
    let number = ear.tell("anything");
    ear.expect(Heard::Beat(number)).await;
    ear.cancel(number);
    ear.expect(Heard::Answer(number, vec![TOLD.to_owned()])).await;
    post.stop.send(()).unwrap();
    post.served.await.unwrap();
    ear.host.drain().await;
    assert!(ear.is_quiet());
}
