//! The provider's own count of what model calls took, held against what the record charges: each
//! attempt once, and what it took, however it ended.

use std::collections::{BTreeMap, BTreeSet};

use organism::envelope::{Failure, Money, Reservation, Spending};
use organism::ids::{Attempt, CallId};
use organism::thread::{Fact, Input, Record};

/// One model call reserves so much before its request leaves.
pub const RESERVED: Spending = Spending { tokens: 100, money: Money(1_000) };

/// Its prompt takes so much.
pub const PROMPT: Spending = Spending { tokens: 10, money: Money(100) };

/// One more piece of its answer takes so much.
pub const PIECE: Spending = Spending { tokens: 3, money: Money(70) };

type Place = (CallId, Attempt);

#[derive(Default)]
pub struct Bill {
    /// By the provider, up to the last piece that it sent.
    took: BTreeMap<Place, Spending>,
    reserved: BTreeSet<Place>,
    charged: BTreeMap<Place, Spending>,
    /// How many of these were charged when their call had its result already.
    after_the_call: usize,
}

impl Bill {
    /// The provider has sent a piece.
    pub fn took(&mut self, place: Place, so_far: Spending) {
        self.took.insert(place, so_far);
    }

    pub fn after_the_call(&self) -> usize {
        self.after_the_call
    }

    /// Everything that the record charges.
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

    /// Once all work has ended.
    pub fn verdict(&self, usage: Spending) {
        let charged: BTreeSet<_> = self.charged.keys().copied().collect();
        let free: Vec<_> = self.reserved.difference(&charged).collect();
        assert!(free.is_empty(), "reserved, and charged nothing: {free:?}");
        assert_eq!(usage, self.total(), "what the trees have spent");
    }
}

/// The spending that the record's input states.
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

/// A model call whose stream was closed, as its host reports it.
pub fn cancelled(spent: Spending) -> Failure {
    let detail = "its caller is gone: the stream was closed".to_owned();
    let (reason, tries) = ("cancelled".to_owned(), Vec::new());
    Failure::Model { reason, detail, spent, passing: false, tries }
}

/// A model call whose stream broke off.
pub fn cut(spent: Spending) -> Failure {
    let detail = "the stream broke off".to_owned();
    Failure::CutShort { detail, spent, retried: true }
}
