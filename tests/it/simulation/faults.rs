//! The faults, the random choice among them, and the number of occurrences of each.

use std::fmt;

/// The faults of the simulation, each named after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The client's submission never reaches the pump.
    SubmissionLost,
    /// The submission was accepted, and the response is lost.
    ReceiptLost,
    /// The call has its result, and the message to the client is lost.
    ResultLost,
    /// The pump dies after a step was decided and before it is recorded.
    RecordLost,
    /// The pump dies after a step was recorded and before its effects.
    RecordKept,
    /// The pump dies during the effects of a step.
    EffectsCut,
    /// The disk is full for a while, and nothing is appended meanwhile.
    DiskFull,
    /// The pump dies between steps.
    Killed,
    /// The pump dies again during its start, before the start is recorded.
    StartLost,
    /// The pump dies again after its start is recorded.
    StartKept,
    /// A delivery is lost on its way to the listener without an error.
    DeliveryLost,
    /// A delivery fails with an error.
    Unreachable,
    /// For a while, no program runs the listener.
    Absent,
    /// The pump dies during a delivery that must not be repeated.
    KilledWithSingle,
    /// The pump is frozen, or its machine is suspended.
    Frozen,
    /// The cancellation of a call does not reach the listener.
    CancelLost,
    /// A listener dies before its work is done.
    DiedBefore,
    /// A listener dies after its work is done and before its answer.
    DiedAfter,
    /// The answer is lost.
    AnswerLost,
    AnswerTwice,
    /// The answer to an attempt arrives after the attempt was reported as failed.
    AnswerLate,
    /// An answer to an attempt of a dead pump arrives.
    AnswerOfAnotherRun,
    AnswerGarbled,
    /// Another listener answers the delivery.
    AnswerForged,
    /// An instance of a listener answers a delivery that another instance got.
    AnswerStray,
    ClockForward,
    ClockBack,
    /// The decision of an operator is lost before it reaches the pump.
    DecisionLost,
    /// Two operators decide at the same time.
    DecisionTwice,
    /// An operator approves a hash that differs from the hash of the payload.
    WrongHash,
    /// The decision was made, and the response to the operator is lost.
    RulingLost,
    /// No person decides before the time limit.
    NobodyDecides,
    /// The pump dies with calls that wait for a person.
    KilledWhileHeld,
    /// The reservation request of an agent's host is lost.
    ReservationLost,
    /// The reservation is granted, and the response to the host is lost.
    GrantLost,
    /// The stream of a model breaks off.
    StreamCut,
    /// An operator cancels a thread while a model streams in it.
    StreamCancelled,
    /// The host of a closed stream reports the cost of the stream twice.
    ReportTwice,
    /// A client repeats a request to an agent with the same key, after it got the receipt.
    KeyRepeatedToAgent,
    /// A client repeats a request to a group with the same key, after it got the receipt.
    KeyRepeatedToGroup,
    /// A client repeats a key with another payload.
    KeyReused,
    /// A client submits an envelope that names another sender.
    SenderForged,
    /// A listener's host submits in the name of a client.
    ListenerSubmits,
    /// An agent writes a payload that only the core may write.
    SystemForged,
    /// A listener answers a delivery of another project's pump.
    AnswerOfAnotherProject,
    /// An operator approves a call that waits in another project.
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

    /// Odds of a fault: one in this number of opportunities.
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

/// A generator of random numbers (xorshift, 64 bits) that decides when faults occur.
pub struct Dice {
    state: u64,
    /// Whether faults are off. While faults are off, the generator is not used.
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

    /// Turns all further faults off.
    pub fn be_quiet(&mut self) {
        self.quiet = true;
    }

    /// Whether this fault occurs now. Counts each fault that occurs.
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
