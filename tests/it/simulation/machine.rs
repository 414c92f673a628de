//! The pump as the driver runs it, with a list in place of a journal: it takes steps in groups,
//! appends each group at once, and then carries out the effects in order. The pump can die at each
//! of these points.

use std::time::Duration;

use organism::clock::Time;
use organism::contract::TreeLimits;
use organism::envelope::Spending;
use organism::ids::{CallId, Digest, Position};
use organism::journal::StateRecovery as _;
use organism::pump::ResidentCore;
use organism::pump::core::{Alarm, Core, Effect, Event, Standstill};
use organism::pump::gate::Gate;
use organism::thread::{Call, Hold, PauseTarget, Record};
use uuid::Uuid;

use super::faults::{Dice, Fault};
use super::judge::Judge;
use crate::pump::world::resident;

pub struct Machine {
    pub gate: Gate,
    journal: Uuid,
    core: ResidentCore,
    /// The random numbers that decide when trees at rest leave memory; `None` if trees never leave
    /// memory. Faults use separate random numbers, so a seed gives the same faults in both cases.
    residency: Option<Dice>,
    /// The state that follows from the durable records alone.
    shadow: Core,
    /// The durable records, which survive a crash.
    pub records: Vec<Record>,
    epoch: u32,
    alarms: Vec<(Time, Alarm)>,
    /// Time of the wall clock, which may jump.
    pub wall: Time,
    /// The pump's own time, which never goes back in one process.
    last: Time,
    /// Standstills and changes of the clock that the pump has not detected yet.
    unnoticed: Standstill,
    /// Total time so far that counts for no time-out, kept outside the core.
    uncounted: Duration,
}

/// A group of steps that is not recorded yet.
pub struct Decided {
    effects: Vec<Effect>,
    records: Vec<Record>,
    uncounted: Duration,
}

impl Decided {
    pub fn is_to_be_recorded(&self) -> bool {
        !self.records.is_empty()
    }
}

/// The result of a group of steps.
pub struct Done {
    pub effects: Vec<Effect>,
    /// Whether the pump died after these effects.
    pub dead: bool,
}

impl Machine {
    /// Creates a pump. With `residency`, trees at rest leave memory at random, and starts continue
    /// from snapshots.
    pub fn new(gate: Gate, journal: Uuid, residency: Option<Dice>) -> Self {
        let core = || Core::new(gate.contracts.clone(), TreeLimits::default(), config());
        let (core, shadow) = (in_memory(core(), residency.as_ref()), core());
        let (wall, last) = (Time(1_700_000_000_000_000), Time::default());
        let (records, alarms) = (Vec::new(), Vec::new());
        let (unnoticed, uncounted) = (Standstill::default(), Duration::ZERO);
        let epoch = 0;
        Self {
            gate,
            journal,
            core,
            residency,
            shadow,
            records,
            epoch,
            alarms,
            wall,
            last,
            unnoticed,
            uncounted,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.core.state().calls.is_empty()
    }

    /// Cost of all trees in the state of the core.
    pub fn spent(&mut self) -> Spending {
        self.core.recall_all().unwrap();
        let spent = self.core.state().trees.values().map(|tree| tree.usage.spending());
        spent.fold(Spending::default(), Spending::plus)
    }

    /// Targets of the pauses in force.
    pub fn paused(&self) -> Vec<PauseTarget> {
        self.core.state().pauses.iter().map(|pause| pause.target.clone()).collect()
    }

    pub fn held(&self) -> Vec<(CallId, Hold, Digest)> {
        let open = self.open_calls();
        let held = open
            .iter()
            .filter_map(|call| Some((call.id, call.held?.hold, call.request()?.payload.digest)));
        let mut held: Vec<_> = held.collect();
        held.sort_by_key(|(call, ..)| *call);
        held
    }

    /// The open work, for the message of a failed test.
    pub fn open(&self) -> String {
        let calls = self.open_calls();
        format!("{calls:#?}, due next {:?} at {}", self.next_due(), self.last)
    }

    /// Returns all open calls, also those of trees outside memory.
    fn open_calls(&self) -> Vec<Call> {
        let trees = self.core.state().trees.values();
        let mut open: Vec<_> = trees.flat_map(|tree| tree.open_calls()).cloned().collect();
        self.core.visit_calls_outside(|call| open.push(call.clone())).unwrap();
        open
    }

    /// Rebuilds the core from the durable records. With `residency`, the core continues from a
    /// snapshot after a random number of records.
    fn rebuilt(&mut self) -> ResidentCore {
        let contracts = &self.gate.contracts;
        let core = || Core::new(contracts.clone(), TreeLimits::default(), config());
        let residency = self.residency.as_mut();
        let snapshot = residency.map_or(0, |dice| dice.below(self.records.len() + 1));
        let (earlier, later) = self.records.split_at(snapshot);

        let mut rebuilt = in_memory(core(), self.residency.as_ref());
        if !earlier.is_empty() {
            let mut before = in_memory(core(), self.residency.as_ref());
            earlier.iter().for_each(|record| before.replay(record).unwrap());
            rebuilt.restore(before.into_stored().unwrap()).unwrap();
        }

        later.iter().for_each(|record| rebuilt.replay(record).unwrap());
        rebuilt
    }

    /// Restarts from the durable records until a start succeeds.
    pub fn start(&mut self, dice: &mut Dice, judge: &mut Judge) -> Vec<Effect> {
        loop {
            self.core = self.rebuilt();
            self.core.recall_all().unwrap();
            assert_eq!(self.core.state(), self.shadow.state(), "rebuilt state is live state");
            self.alarms.clear();
            // A new pump continues from the last recorded time.
            self.last = self.core.state().time;
            self.unnoticed = Standstill::default();
            // The journal raises the epoch when it is opened, also if the start fails.
            self.epoch += 1;
            if dice.strikes(Fault::StartLost) {
                continue;
            }
            let (journal, epoch, detail) = (self.journal, self.epoch, "test".to_owned());
            let done = self.group(
                vec![Event::Boot { journal, epoch, detail, blobs: Vec::new() }],
                dice,
                judge,
            );
            if done.dead || dice.strikes(Fault::StartKept) {
                continue;
            }
            return done.effects;
        }
    }

    /// Lets the core process a group of events, and makes the resulting records durable.
    fn group(&mut self, events: Vec<Event>, dice: &mut Dice, judge: &mut Judge) -> Done {
        let decided = self.decide(events);
        if decided.is_to_be_recorded() && dice.strikes(Fault::DiskFull) {
            self.stand_still(Duration::from_secs(dice.below(20) as u64));
        }
        self.commit(decided, dice, judge)
    }

    pub fn decide(&mut self, mut events: Vec<Event>) -> Decided {
        self.last = self.last.max(self.wall);
        if self.unnoticed != Standstill::default() {
            let standstill = std::mem::take(&mut self.unnoticed);
            events.insert(0, Event::Standstill(standstill));
        }
        let mut position = Position(self.records.len() as u64 + 1);
        let (mut effects, mut records) = (Vec::new(), Vec::new());
        for event in events {
            let mut step = self.core.step(position, self.last, event).unwrap();
            effects.append(&mut step.effects);
            if let Some(record) = step.into_record() {
                records.push(record);
                position.0 += 1;
            }
        }
        Decided { effects, records, uncounted: self.uncounted }
    }

    /// Lets time pass while the disk is full. This time counts for no time-out.
    pub fn stand_still(&mut self, time: Duration) {
        self.wall = self.wall.plus(time);
        self.unnoticed.stood += time;
        self.uncounted += time;
    }

    /// Sets the wall clock forward, although no time passes. If the clock is behind the pump's own
    /// time, because it was set back, only the part beyond the pump's time counts as a jump.
    pub fn set_forward(&mut self, by: Duration) {
        let ahead = self.wall.plus(by).since(self.last.max(self.wall));
        self.wall = self.wall.plus(by);
        self.unnoticed.stepped += ahead;
        self.uncounted += ahead;
    }

    /// Makes the records of a group durable. Returns the effects to carry out.
    pub fn commit(&mut self, decided: Decided, dice: &mut Dice, judge: &mut Judge) -> Done {
        let Decided { mut effects, records, uncounted } = decided;
        judge.begin_group();
        if !records.is_empty() {
            if dice.strikes(Fault::RecordLost) {
                return Done { effects: Vec::new(), dead: true };
            }
            self.append(records, uncounted, judge);
            if dice.strikes(Fault::RecordKept) {
                return Done { effects: Vec::new(), dead: true };
            }
        }
        let dead = effects.len() > 1 && dice.strikes(Fault::EffectsCut);
        if dead {
            effects.truncate(dice.below(effects.len()));
        }
        effects.retain_mut(|effect| match effect {
            Effect::Alarm { at, alarm } => {
                self.alarms.push((*at, *alarm));
                false
            }
            Effect::Alarms(alarms) => {
                self.alarms.append(alarms);
                false
            }
            _ => true,
        });
        Done { effects, dead }
    }

    fn append(&mut self, records: Vec<Record>, uncounted: Duration, judge: &mut Judge) {
        let first = self.records.len();
        for record in records {
            self.shadow.replay(&record);
            judge.recorded(&record, uncounted);
            self.records.push(record);
        }
        let [state, shadow] = [&*self.core, &self.shadow].map(Core::state);
        for record in &self.records[first..] {
            let trees = [shadow, state].map(|state| state.trees.get(&record.tree));
            assert_eq!(trees[0], trees[1], "rebuilt state is live state");
        }
        assert_eq!(judge.in_flight(), state.in_flight, "accepted = settled + in flight");
        if self.residency.as_mut().is_some_and(|dice| dice.one_in(2)) {
            self.core.let_rest();
        }
    }

    pub fn now(&self) -> Time {
        self.last.max(self.wall)
    }

    /// Informs the core, as the driver does, of each answer that has arrived and that the core has
    /// not processed yet.
    pub fn notice_arrivals(&mut self, inbox: &[Event]) {
        for event in inbox {
            if let Event::Outcome { listener, call, attempt, arrived: Some(at), .. } = event {
                self.core.answer_arrived(listener, *call, *attempt, *at);
            }
        }
    }

    fn next_due(&self) -> Option<(Time, Alarm)> {
        let alarm = self.alarms.iter().copied().min();
        [alarm, self.core.next_deadline()].into_iter().flatten().min()
    }

    /// Removes and returns the alarm that is due now.
    pub fn due(&mut self) -> Option<Event> {
        let (at, alarm) = self.next_due()?;
        if at > self.now() {
            return None;
        }
        self.alarms.retain(|set| *set != (at, alarm));
        Some(Event::Alarm(alarm))
    }

    /// Lets time pass until an alarm is due.
    pub fn wait(&mut self) {
        if let Some((at, _)) = self.next_due() {
            self.wall = self.wall.max(at);
        }
    }
}

/// Wraps a core. With `residency`, everything that may leave memory leaves it.
fn in_memory(core: Core, residency: Option<&Dice>) -> ResidentCore {
    if residency.is_some() { resident(core) } else { core.into() }
}

fn config() -> Digest {
    Digest::of(b"config")
}
