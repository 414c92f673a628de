//! The driver: a pump on a thread of its own, with a journal and a clock.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use organism::bus::native::InlineHost;
use organism::bus::{Delivery, Outcome};
use organism::contract::{Contract, TreeLimits};
use organism::envelope::{Failure, Turn};
use organism::ids::Digest;
use organism::journal::Error;
use organism::organism::control::{self, Desk, Server};
use organism::pump::core::{Core, Target};
use organism::pump::driver::{Handle, Pump};
use organism::thread::Closing;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::world::{World, agent, client, listener, name, word};
use crate::journal::substrate::Kept;

const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    handle: Handle,
    pump: JoinHandle<Result<(), Error>>,
    place: Kept,
}

fn contracts() -> Vec<Contract> {
    vec![
        client("desk", &["thinker", "finder"]),
        agent("thinker", &["plan"], &["answer"], &["finder"]),
        listener("finder", &["look"], &["found"], &[]),
    ]
}

/// `pages`: the most the journal's file may have.
fn start(
    pages: Option<u32>,
    handle: impl Fn(&Delivery) -> Result<Outcome, Failure> + Send + Sync + Clone + 'static,
) -> Running {
    let place = Kept::new();
    let journal = place.open(pages);
    let gate = World::new(contracts()).gate.clone();
    let core = Core::new(gate.contracts.clone(), TreeLimits::default(), Digest::ZERO);
    let mut pump = Pump::new(core, journal, gate);
    for who in ["thinker", "finder"] {
        let host = InlineHost::new(name(who), handle.clone(), pump.sink());
        pump.host(name(who), Arc::new(host));
    }
    let handle = pump.handle();
    let pump = std::thread::spawn(move || pump.run("test"));
    Running { handle, pump, place }
}

impl Running {
    async fn ended(self) -> Result<(), Error> {
        let ended = tokio::task::spawn_blocking(move || self.pump.join().unwrap());
        tokio::time::timeout(PATIENCE, ended).await.expect("the pump goes on for ever").unwrap()
    }
}

fn silent(_: &Delivery) -> Result<Outcome, Failure> {
    Ok(Outcome::default())
}

#[tokio::test]
async fn a_pump_that_waits_for_room_on_the_disk_can_be_stopped() {
    let running = start(Some(1), silent);
    let (desk, large) = (name("desk"), word("look", &"x".repeat(200 << 10)));
    let target = Target::New { suggested: None };
    let submitted = async {
        running
            .handle
            .submit(&desk, target, None, large.as_bytes())
            .await
            .map(|(receipt, _)| receipt)
    };
    let stopped = async { running.handle.stop() };
    let (receipt, ()) = tokio::time::timeout(PATIENCE, async { tokio::join!(submitted, stopped) })
        .await
        .expect("whoever submitted hears of the end");
    assert!(receipt.is_err(), "nothing was recorded: {receipt:?}");
    let ended = running.ended().await;
    assert!(matches!(ended, Err(Error::Full { .. })), "{ended:?}");
}

/// Law 3: what the core writes down for an agent's host passes the gate too.
#[tokio::test]
async fn a_turn_whose_note_is_no_model_turn_is_an_unreadable_answer() {
    let (core, turn) = (organism::system::NAMESPACE, "model-turn");
    let notes = [
        format!("<{turn} xmlns='{core}'><raw>"),
        format!("<{turn} xmlns='{core}'/><ack xmlns='{core}'/>"),
        format!("<ack xmlns='{core}'/>"),
        format!("<{turn} xmlns='urn:other'/>"),
    ];
    for note in notes {
        let answer = word("answer", "a").into_bytes();
        let turn = Turn { note: note.clone(), ..Turn::default() };
        let outcome = Outcome { payloads: vec![answer], turn: Some(turn) };
        let running = start(None, move |_| Ok(outcome.clone()));
        let (desk, plan) = (name("desk"), word("plan", "p"));
        let target = Target::New { suggested: None };
        let submitted = running.handle.submit(&desk, target, None, plan.as_bytes()).await;
        let done = submitted.unwrap().1.remove(0).await.unwrap();
        assert_eq!(done.how, Closing::Failed, "{note}");
        assert!(done.messages[0].payload.as_str().contains("cannot be read"), "{note}");
        running.handle.drain("done").await.unwrap();
        running.ended().await.unwrap();
    }
}

/// An orderly stop waits for everybody who is connected, but not for ever for one who is silent.
#[tokio::test]
async fn a_silent_connection_at_the_door_does_not_hold_up_a_stop() {
    let running = start(None, silent);
    let data = running.place.data();
    let desk = Desk::new(running.handle.clone(), data.clone(), Duration::from_millis(10));
    let path = control::path(&data);
    let server = Server::open(&path, desk).unwrap();
    let mut silent = UnixStream::connect(&path).await.unwrap();
    let mut said = String::new();
    let heard = tokio::time::timeout(PATIENCE, silent.read_to_string(&mut said)).await;
    heard.expect("it is left hanging").unwrap();
    assert!(said.contains("no request came in time"), "{said}");
    let all = tokio::time::timeout(PATIENCE, server.close().all()).await;
    all.expect("the stop waits for it");
    running.handle.stop();
    running.ended().await.unwrap();
}
