//! Reopened calls: calls that were open at the fork point in the source of a fork. The fork records
//! copies of their messages with new message ids, and the listeners of these calls continue.

use super::message::NewMessage;
use super::{Core, Step};
use crate::envelope::{Disposition, Message, MessageKind};
use crate::ids::{CallId, ListenerName};
use crate::mutant::mutant;
use crate::system::ErrorCode;
use crate::thread::{
    Fact, Opener, Opening, Record, ReopenedCall, ReopenedCalls, ReopenedKind, Timer,
};

/// Text of the error with which a fork ends a call in a spawned thread. The call was open in the
/// source at the fork point, and the fork does not continue it.
const ENDED: &str = "its thread still ran where the fork begins, and a fork does not go on with it";

impl Core {
    /// Opens in a fork the calls that were open in its source at the fork point. Returns the calls
    /// that a client opened in the source. In the fork, these calls belong to `client`, the client
    /// of the fork. If an operator's message replaces the turn of an agent, `edited` is the call of
    /// this agent, which this method opens but does not continue.
    pub(super) fn reopen(
        &mut self,
        step: &mut Step,
        client: &ListenerName,
        work: ReopenedCalls,
        edited: Option<CallId>,
    ) -> Vec<CallId> {
        let ReopenedCalls { calls, messages, timers, waiting } = work;
        let mut awaited = Vec::new();
        for (message, opening) in messages {
            let opening = opening.map(|opening| for_client(opening, client));
            let is_client = |own: &Opening| matches!(own.opener, Opener::Client { .. });
            if opening.as_ref().is_some_and(is_client) {
                awaited.push(CallId(message.id));
            }
            let is_opening = opening.is_some();
            self.accept_again(step, &message, opening);
            if is_opening {
                self.set_thread_alarm(step, CallId(message.id));
            }
        }

        let handled = calls.iter().flat_map(|call| &call.handled);
        for (message, _) in handled {
            self.dispose(step, *message, Disposition::Handled);
        }
        for (timer, set) in timers {
            self.start_timer(step, timer, set);
        }
        for (call, until) in waiting {
            self.fact(step, Fact::Waiting { call, until });
        }
        for call in &calls {
            self.fact(step, Fact::Reopened(Box::new(call.clone())));
        }
        // The edited turn takes what the call receives here. So none of it starts a delivery.
        self.outcome_call = edited;
        self.continue_reopened(step, &calls, edited);
        self.outcome_call = None;
        awaited
    }

    fn accept_again(&mut self, step: &mut Step, message: &Message, opening: Option<Opening>) {
        let Message { kind, from, to, thread, name, payload, .. } = message;
        let again = NewMessage::new(*kind, from, to, thread, (name, payload));
        let again = again.with_id(message.id).caused_by(message.cause).in_call(message.call);
        let again = match opening {
            Some(opening) => again.opening(opening),
            None => again,
        };
        self.accept(step, again);
    }

    /// Continues each reopened call, starts it again from its request, or fails it, as the call's
    /// `how` states. Skips `edited`, because an operator's message replaces the agent's turn in
    /// that call. Must be called after all calls have been reopened.
    fn continue_reopened(
        &mut self,
        step: &mut Step,
        calls: &[ReopenedCall],
        edited: Option<CallId>,
    ) {
        for ReopenedCall { call, turns, .. } in calls {
            let Some(open) = self.state.call(*call) else { continue };
            let callee = open.callee.clone();
            let thread = open.thread.clone();
            let contract = self.contracts.get(&callee);
            if *turns > 0 && contract.is_some_and(|contract| contract.is_serial()) {
                self.scheduler.hold_thread(&callee, &thread, *call);
            }
        }

        let going_on = calls.iter().filter(|own| Some(own.call) != edited);
        for ReopenedCall { call, how, .. } in going_on {
            match how {
                ReopenedKind::Continued => self.continue_call(step, *call),
                ReopenedKind::Again => self.start_again(step, *call),
                ReopenedKind::Ended if mutant("go-on-with-a-spawned-thread") => {
                    self.start_call(step, *call);
                }
                ReopenedKind::Ended => self.fail(step, *call, ErrorCode::Forked, ENDED),
            }
        }
    }
}

impl Core {
    fn continue_call(&mut self, step: &mut Step, call: CallId) {
        self.count_turn(call);
        if let Some(open) = self.state.call(call) {
            let thread = open.thread.clone();
            self.pick_up_call(step, &thread, call);
        }
    }

    /// Starts a reopened call from its request. If the config no longer has the listener of the
    /// call, sets an alarm that fails the call instead.
    fn start_again(&mut self, step: &mut Step, call: CallId) {
        let callee = self.state.call(call).map(|open| open.callee.clone());
        if callee.is_some_and(|callee| self.contracts.get(&callee).is_some()) {
            self.start_call(step, call);
        } else {
            self.continue_call(step, call);
        }
    }
}

/// Adapts the opening of a call to a fork. If a client opened the call in the source, the returned
/// opening names `client`, the client of the fork, so that `client` gets the result of the call.
/// Otherwise returns `opening` unchanged.
fn for_client(opening: Opening, client: &ListenerName) -> Opening {
    match opening.opener {
        Opener::Client { .. } => {
            let opener = Opener::Client { name: client.clone() };
            Opening { opener, ..opening }
        }
        Opener::Call { .. } => opening,
    }
}

/// Returns the calls that the recorded fork has reopened, with their messages, timers and waits.
pub(super) fn recorded_work(record: &Record) -> ReopenedCalls {
    let mut work = ReopenedCalls::default();
    for fact in &record.facts {
        match fact {
            Fact::Reopened(call) => work.calls.push((**call).clone()),
            Fact::TimerSet { timer, call, fires_at, label, at } => {
                let set = Timer { call: *call, fires_at: *fires_at, label: label.clone(), at: *at };
                work.timers.insert(*timer, set);
            }
            Fact::Waiting { call, until } => work.waiting.push((*call, *until)),
            _ => {}
        }
    }

    let is_again = |message: &Message| {
        let mut messages = work.calls.iter().flat_map(ReopenedCall::messages);
        messages.any(|(own, _)| own == message.id)
    };
    let again = record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, opening, .. } if is_again(message) => {
            debug_assert!(message.kind != MessageKind::Note, "notes are not delivered");
            Some((Message::clone(message), opening.clone()))
        }
        _ => None,
    });
    work.messages = again.collect();
    work
}
