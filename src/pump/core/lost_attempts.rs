//! Lost attempts. An attempt is lost if an earlier pump handed it over to a listener, and the
//! journal does not record its end. A lost attempt uses up one permitted attempt of its call. With
//! `attempts = 1`, the listener therefore does not get the call again, and the call ends as
//! `unknown-outcome`.

use super::{Core, Step};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId};
use crate::mutant::mutant;
use crate::thread::{Call, Fact, Input};

impl Core {
    /// Handles a lost attempt, which an earlier pump handed over and whose end the journal does not
    /// record. The attempt uses up one permitted attempt of its call. So a delivery that crashes
    /// its pump is not repeated forever.
    pub(super) fn record_lost_attempt(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        let lost = self.state.call(call).filter(|open| open.handed_over == Some(attempt));
        let Some(open) = lost.filter(|_| self.calls.running(call).is_none()) else { return };
        let listener = open.callee.clone();
        let thread = open.thread.clone();
        let input = Input::Lost { listener: listener.clone(), call, attempt };
        step.begin_record(thread.root(), input);

        let failure =
            AttemptFailure::Lost { detail: "the pump ended before its answer".to_owned() };
        self.fact(step, Fact::AttemptFailed { call, attempt, failure: failure.clone() });
        self.charge_reservation(step, call, attempt);

        let open = self.state.call(call);
        let failures = open.map_or(0, |open| open.failures);
        let request = open.and_then(Call::request).map(|request| &request.name);
        // Without a listener, no further attempt is possible.
        let contract = self.contracts.get(&listener);
        let attempts = contract.map_or(0, |contract| contract.attempts_of(request));

        if failures < attempts || mutant("deliver-what-was-lost") {
            self.pick_up_call(step, &thread, call)
        } else {
            self.fail_exhausted_call(step, call, &listener, &failure)
        }
    }
}
