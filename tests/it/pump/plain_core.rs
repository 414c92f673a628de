//! A core for tests with thousands of steps.

use organism::bus::Delivery;
use organism::envelope::Refusal;
use organism::ids::{MessageId, Position, ThreadId};
use organism::pump::core::{
    Alarm, Core, Effect, Event, OperatorRuling, PauseChange, PauseRuling, Receipt, Submission,
    Target,
};
use organism::pump::gate::Checked;
use organism::thread::{PauseAction, PauseTarget, PauseVerb};
use uuid::Uuid;

use super::world::{World, name};

/// A core without the checks of [`World`]. Those checks would read all records after each step.
pub struct PlainCore {
    pub core: Core,
    position: Position,
    deliveries: Vec<Delivery>,
    pub timer_alarms: usize,
    pause_ruling: Option<PauseRuling>,
}

impl PlainCore {
    /// Returns a core with the state of this world.
    pub fn of(world: &World) -> Self {
        Self {
            core: Core::clone(&world.core),
            position: Position(world.records.len() as u64 + 1),
            deliveries: Vec::new(),
            timer_alarms: 0,
            pause_ruling: None,
        }
    }

    /// Takes a step. Returns the thread of a submission that was accepted.
    pub fn step(&mut self, world: &World, event: Event) -> Option<ThreadId> {
        let step = self.core.step(self.position, world.now, event);
        self.position.0 += u64::from(step.record.is_some());
        let mut opened = None;
        for effect in step.effects {
            match effect {
                Effect::Deliver(delivery) => self.deliveries.push(delivery),
                Effect::Alarm { alarm: Alarm::Timer { .. }, .. } => self.timer_alarms += 1,
                Effect::Alarms(alarms) => self.timer_alarms += alarms.len(),
                Effect::Receipt { receipt: Receipt::Accepted { thread, .. }, .. } => {
                    opened = Some(thread);
                }
                Effect::Ruled { ruling: OperatorRuling::Pause(ruling), .. } => {
                    self.pause_ruling = Some(ruling);
                }
                _ => {}
            }
        }
        opened
    }

    /// Submits a payload into a new thread. Returns the thread, if the submission was accepted.
    pub fn submit(
        &mut self,
        world: &World,
        who: &str,
        payload: &Result<Checked, Refusal>,
    ) -> Option<ThreadId> {
        let id = Uuid::from_u128(u128::from(self.position.0) * 0x9e37_79b9_7f4a_7c15);
        let submission = Submission {
            id: MessageId(id),
            client: name(who),
            target: Target::New { suggested: None },
            key: None,
            payload: payload.clone(),
            refused_digest: None,
            trace: None,
            begun: None,
        };
        self.step(world, Event::Submit(Box::new(submission)))
    }

    /// Answers the last delivery.
    pub fn answer(&mut self, world: &World, payloads: Vec<Result<Checked, Refusal>>) {
        let Delivery { listener, call, attempt, .. } = self.deliveries.pop().unwrap();
        let arrived = Some(world.now);
        self.step(world, Event::Outcome { listener, call, attempt, payloads, turn: None, arrived });
    }

    pub fn pause(&mut self, world: &World, target: PauseTarget) -> PauseRuling {
        let by = name("whoever");
        let action = PauseAction { verb: PauseVerb::Pause, target, by, origin: None };
        self.step(world, Event::Pause(PauseChange { ticket: Uuid::nil(), action }));
        self.pause_ruling.take().unwrap()
    }
}
