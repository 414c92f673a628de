//! The faults there are, the dice that choose among them, and how often each came up.

use std::fmt;

/// The faults of the simulation, each named after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's submission never reaches the pump.
    SubmissionLost,
    /// It was accepted, and the client is never told.
    ReceiptLost,
    /// The call has its result, and the client is never told.
    ResultLost,
    /// The pump dies with a step decided and not recorded.
    RecordLost,
    /// The pump dies with a step recorded and nothing of it done.
    RecordKept,
    /// The pump dies half way through what follows from a step.
    EffectsCut,
    /// Nothing is appended until there is room.
    DiskFull,
    /// The pump dies between steps.
    Killed,
    /// It dies again as it starts, before its start is on record.
    StartLost,
    /// And after.
    StartKept,
    /// A delivery is lost on its way to the listener, without an error.
    DeliveryLost,
    /// It cannot be handed over.
    Unreachable,
    /// No program runs a listener for a while.
    Absent,
    /// The pump dies with a delivery out that may not be repeated.
    KilledWithSingle,
    /// The pump is frozen, or its machine is suspended.
    Frozen,
    /// A listener is never told that its caller is gone.
    CancelLost,
    /// A listener dies with the work not done.
    DiedBefore,
    /// A listener dies with the work done and the answer not given.
    DiedAfter,
    /// The answer is given and never arrives.
    AnswerLost,
    AnswerTwice,
    /// The attempt was reported as failed, and its answer comes after all.
    AnswerLate,
    /// The answer to an attempt of a pump that has died.
    AnswerOfAnotherRun,
    AnswerGarbled,
    /// Another listener answers the delivery.
    AnswerForged,
    /// Another instance answers, under this delivery's name.
    AnswerStray,
    ClockForward,
    ClockBack,
    /// An operator decides, and the pump never hears of it.
    DecisionLost,
    /// Two operators decide at once.
    DecisionTwice,
    /// An operator approves what they have not looked at.
    WrongHash,
    /// It was decided, and the operator is never told.
    RulingLost,
    /// No person decides until the time limit.
    NobodyDecides,
    /// The pump dies with calls that wait for a person.
    KilledWhileHeld,
    /// An agent's host asks whether its request may leave, and the pump never hears of it.
    ReservationLost,
    /// It may leave, and its host never learns it.
    GrantLost,
    /// A model's stream breaks off.
    StreamCut,
    /// An operator ends a thread in which a model streams.
    StreamCancelled,
    /// The host of a closed stream reports twice what it took.
    ReportTwice,
    /// An agent was sent this before, under the same key, and its client knows so.
    KeyRepeatedToAgent,
    /// And a group.
    KeyRepeatedToGroup,
    /// A key of an earlier request, with another payload.
    KeyReused,
    /// A client writes the envelope itself, with another sender in it.
    SenderForged,
    /// A listener's host submits as if it were a client.
    ListenerSubmits,
    /// An agent writes what only the core writes.
    SystemForged,
    /// A listener answers what the pump of another project handed over.
    AnswerOfAnotherProject,
    /// An operator approves what waits in another project.
    DecisionOfAnotherProject,
}

impl Fault {
    pub const ALL: [Self; 46] = [
        Self::SubmissionLost,
        Self::ReceiptLost,
        Self::ResultLost,
        Self::RecordLost,
        Self::RecordKept,
        Self::EffectsCut,
        Self::DiskFull,
        Self::Killed,
        Self::StartLost,
        Self::StartKept,
        Self::DeliveryLost,
        Self::Unreachable,
        Self::Absent,
        Self::KilledWithSingle,
        Self::Frozen,
        Self::CancelLost,
        Self::DiedBefore,
        Self::DiedAfter,
        Self::AnswerLost,
        Self::AnswerTwice,
        Self::AnswerLate,
        Self::AnswerOfAnotherRun,
        Self::AnswerGarbled,
        Self::AnswerForged,
        Self::AnswerStray,
        Self::ClockForward,
        Self::ClockBack,
        Self::DecisionLost,
        Self::DecisionTwice,
        Self::WrongHash,
        Self::RulingLost,
        Self::NobodyDecides,
        Self::KilledWhileHeld,
        Self::ReservationLost,
        Self::GrantLost,
        Self::StreamCut,
        Self::StreamCancelled,
        Self::ReportTwice,
        Self::KeyRepeatedToAgent,
        Self::KeyRepeatedToGroup,
        Self::KeyReused,
        Self::SenderForged,
        Self::ListenerSubmits,
        Self::SystemForged,
        Self::AnswerOfAnotherProject,
        Self::DecisionOfAnotherProject,
    ];

    /// One time in how many it happens where it can.
    const fn odds(self) -> usize {
        match self {
            Self::RecordLost | Self::RecordKept | Self::EffectsCut => 40,
            Self::Absent | Self::Frozen => 20,
            Self::DiskFull | Self::Killed => 40,
            Self::ClockForward | Self::ClockBack => 20,
            Self::StartLost | Self::StartKept | Self::CancelLost => 6,
            Self::DecisionTwice | Self::WrongHash | Self::NobodyDecides => 6,
            Self::StreamCancelled | Self::ReportTwice => 3,
            Self::KeyRepeatedToAgent | Self::KeyRepeatedToGroup | Self::KeyReused => 3,
            Self::SenderForged | Self::ListenerSubmits => 6,
            Self::AnswerOfAnotherProject | Self::DecisionOfAnotherProject => 3,
            _ => 12,
        }
    }
}

/// Xorshift, 64 bits.
pub struct Dice {
    state: u64,
    /// No faults: they are never rolled for.
    quiet: bool,
    pub tally: Tally,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { state, quiet: seed == 0, tally: Tally::default() }
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from((self.state >> 11) % n as u64).unwrap()
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// From here on everything goes well.
    pub fn be_quiet(&mut self) {
        self.quiet = true;
    }

    /// Whether this goes wrong now; counted when it does.
    pub fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = !self.quiet && self.one_in(fault.odds());
        self.tally.0[fault as usize] += u64::from(strikes);
        strikes
    }
}

/// How often each fault happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally([u64; Fault::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn never(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| self.0[*fault as usize] == 0).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = Fault::ALL.map(|fault| format!("{fault:?} {}", self.0[fault as usize]));
        f.write_str(&each.join(", "))
    }
}
