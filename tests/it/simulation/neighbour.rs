//! Another project with the same name and config. It uses the same keys, and its listeners and
//! operators sometimes reach the wrong pump.
//!
//! The core identifies a project by its journal alone. Directories, sockets and streams that two
//! projects share need real files: see `organism::neighbours` and `organism::streams`.

use organism::bus::Delivery;
use organism::ids::{CallId, Digest, MessageId};
use organism::pump::core::{Effect, Event, Submission, Target};
use organism::pump::gate::Gate;
use uuid::Uuid;

use super::faults::Dice;
use super::judge::Judge;
use super::listeners::QUESTIONS;
use super::machine::Machine;
use crate::pump::world::{name, word};

const JOURNAL: Uuid = Uuid::from_u128(8);

pub struct Neighbour {
    /// Deliveries that the listeners of this project handle.
    pub deliveries: Vec<Delivery>,
    /// Calls of this project that wait for a person, with the digests of their payloads.
    pub held: Vec<(CallId, Digest)>,
}

impl Neighbour {
    /// Creates the project, whose pump takes one request of each kind without any fault.
    pub fn new(gate: Gate) -> Self {
        let (mut judge, mut dice) = (Judge::default(), Dice::new(0));
        let mut machine = Machine::new(gate, JOURNAL, None);
        machine.start(&mut dice, &mut judge);
        let submissions = (0..QUESTIONS.len()).map(|at| submission(&machine.gate, at));
        let decided = machine.decide(submissions.collect());
        let done = machine.commit(decided, &mut dice, &mut judge);

        let deliveries = done.effects.into_iter().filter_map(|effect| match effect {
            Effect::Deliver(delivery) => Some(delivery),
            _ => None,
        });
        let deliveries = deliveries.collect();
        let held = machine.held().into_iter().map(|(call, _, digest)| (call, digest)).collect();
        Self { deliveries, held }
    }
}

/// A submission whose key a client of the simulated project also uses.
fn submission(gate: &Gate, at: usize) -> Event {
    let (client, key) = (name("desk"), format!("k{at}"));
    let number = (at as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let id = MessageId(Uuid::from_u128(0x0197_0000_0000_7000_9000_0000_0000_0000 + number));
    let payload = gate.check(&client, word(QUESTIONS[at], "a neighbour").as_bytes());
    let target = Target::New { suggested: None };
    let (key, trace, begun) = (Some(key), None, None);
    let refused_digest = None;
    let submission = Submission { id, client, target, key, payload, refused_digest, trace, begun };
    Event::Submit(Box::new(submission))
}
