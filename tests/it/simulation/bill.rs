//! The provider's own account of the cost of model calls, compared with the recorded charges: each
//! attempt is charged once, with its actual cost, however it ended.

use std::collections::{BTreeMap, BTreeSet};

use organism::envelope::{AttemptFailure, Money, Reservation, Spending};
use organism::ids::{Attempt, CallId};
use organism::thread::{Fact, Input, Record};

/// Reservation for one model call, which is made before the request.
pub const RESERVED: Spending = Spending { tokens: 100, money: Money(1_000) };

/// Cost of the prompt of a model call.
pub const PROMPT: Spending = Spending { tokens: 10, money: Money(100) };

/// Cost of each piece of the answer to a model call.
pub const PIECE: Spending = Spending { tokens: 3, money: Money(70) };

type Place = (CallId, Attempt);

#[derive(Default)]
pub struct Bill {
    /// Cost of each attempt according to the provider, up to the last piece that it sent.
    took: BTreeMap<Place, Spending>,
    reserved: BTreeSet<Place>,
    charged: BTreeMap<Place, Spending>,
    /// Number of attempts that were charged after their call had its result.
    after_the_call: usize,
}

impl Bill {
    /// Sets the cost of an attempt so far, after the provider has sent another piece.
    pub fn took(&mut self, place: Place, so_far: Spending) {
        self.took.insert(place, so_far);
    }

    pub fn after_the_call(&self) -> usize {
        self.after_the_call
    }

    /// Sum of all recorded charges.
    pub fn total(&self) -> Spending {
        self.charged.values().fold(Spending::default(), |sum, one| sum.plus(*one))
    }

    pub fn recorded(&mut self, record: &Record, is_closed: impl Fn(CallId) -> bool) {
        for fact in &record.facts {
            match fact {
                Fact::Reserved { call, attempt, spending, .. } => {
                    assert_eq!(*spending, RESERVED, "reserved for {call}");
                    let is_new = self.reserved.insert((*call, *attempt));
                    assert!(is_new, "one request of {call} is reserved twice");
                }
                Fact::Charged { call, attempt, spending, .. } => {
                    assert_eq!(stated(record), None, "{call} states what it took");
                    assert_eq!(*spending, RESERVED, "the whole reservation of {call}");
                    self.charge((*call, *attempt), *spending);
                }
                Fact::AttemptFailed { call, attempt, failure } => {
                    let Some(spent) = failure.spent() else { continue };
                    assert_eq!(Some(&spent), self.took.get(&(*call, *attempt)), "{call} took");
                    self.after_the_call += usize::from(is_closed(*call));
                    self.charge((*call, *attempt), spent);
                }
                Fact::Used { call, tokens_in, tokens_out, money, .. } => {
                    let Input::Outcome { attempt, .. } = &record.input else {
                        panic!("{call} used something in {:?}", record.input);
                    };
                    let spent = Spending { tokens: tokens_in + tokens_out, money: *money };
                    assert_eq!(Some(&spent), self.took.get(&(*call, *attempt)), "{call} took");
                    self.after_the_call += usize::from(is_closed(*call));
                    self.charge((*call, *attempt), spent);
                }
                _ => {}
            }
        }
    }

    fn charge(&mut self, place: Place, spent: Spending) {
        assert!(self.reserved.contains(&place), "{place:?} is charged and was not reserved");
        let before = self.charged.insert(place, spent);
        assert_eq!(before, None, "{place:?} is charged twice");
    }

    /// Compares the provider's account with the recorded charges after all work has ended. `usage`
    /// is the cost of all trees in the state of the core.
    pub fn verdict(&self, usage: Spending) {
        let charged: BTreeSet<_> = self.charged.keys().copied().collect();
        let free: Vec<_> = self.reserved.difference(&charged).collect();
        assert!(free.is_empty(), "reserved, and charged nothing: {free:?}");
        assert_eq!(usage, self.total(), "what the trees have spent");
    }
}

/// The cost that the input of a record states.
fn stated(record: &Record) -> Option<Spending> {
    match &record.input {
        Input::Failed { failure, .. } => failure.spent(),
        _ => None,
    }
}

/// The reservation for the one request of an attempt.
pub fn reservation() -> Reservation {
    Reservation { spending: RESERVED, counted: true, request: 1, route: None }
}

/// The failure that a host reports for a closed stream.
pub fn cancelled(spent: Spending) -> AttemptFailure {
    let detail = "its caller is gone: the stream was closed".to_owned();
    let (reason, tries) = ("cancelled".to_owned(), Vec::new());
    AttemptFailure::Model { reason, detail, spent, passing: false, tries }
}

/// The failure that a host reports for a stream that broke off.
pub fn cut(spent: Spending) -> AttemptFailure {
    let detail = "the stream broke off".to_owned();
    AttemptFailure::CutShort { detail, spent, retried: true }
}
