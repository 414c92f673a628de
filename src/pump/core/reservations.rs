//! Reservations of model calls. The maximum cost of a model request is recorded before the request
//! is sent, so that the cost is on record even if the call, its host or its pump fails.
//!
//! The record of the actual cost ends the reservation. If the pump or the host has died, no such
//! record can come, and the whole reservation is charged.

use super::event::{Alarm, Effect};
use super::{Core, Step};
use crate::envelope::{NotReserved, Reservation, RouteLimit};
use crate::ids::{Attempt, CallId, ThreadId};
use crate::limits;
use crate::mutant::mutant;
use crate::thread::{Fact, Input, ModelReservation, Tree};

impl Core {
    /// Records the maximum cost of the next request of a model call. Replies with an error if the
    /// request must not be sent.
    pub(super) fn reserve(
        &mut self,
        step: &mut Step,
        call: CallId,
        attempt: Attempt,
        reservation: Reservation,
    ) {
        if reservation.request > 0 && self.is_reserved(call, attempt, reservation.request) {
            // The agent lost the reply to this reservation and requests it again.
            return step.effect(Effect::Reserved { call, attempt, answer: Ok(()) });
        }

        let answer = self.check_reservation(call, attempt, &reservation);
        if answer.is_ok()
            && let Some(running) = self.calls.running(call)
        {
            let agent = running.listener.clone();
            let root = running.thread.root();
            let Reservation { spending, counted, request, route } = reservation;
            let most = route.as_ref().map(|limit| limit.most);
            let route = route.map(|limit| limit.route);

            step.begin_record(root, Input::Reserved { call, attempt, counted, most });
            let reserved =
                Fact::Reserved { call, attempt, agent, spending, request, route, thread: None };
            self.fact(step, reserved);
            self.calls.count_reservation(call);
        }

        step.effect(Effect::Reserved { call, attempt, answer });
    }

    fn is_reserved(&self, call: CallId, attempt: Attempt, request: u32) -> bool {
        let running = self.calls.running(call);
        let tree = running.and_then(|running| self.state.tree(&running.thread));
        let reserved = tree.and_then(|tree| tree.reservation(call, attempt));
        reserved.is_some_and(|reserved| reserved.request == request)
    }

    fn check_reservation(
        &self,
        call: CallId,
        attempt: Attempt,
        reservation: &Reservation,
    ) -> Result<(), NotReserved> {
        self.room_for(call, attempt, reservation).map_err(NotReserved::Spent)?;
        let reserved = self.calls.running(call).map_or(0, |running| running.reservations);
        let most = limits::MODEL_RESERVATIONS_MAX;
        if reserved >= most {
            let detail = format!("this attempt has made all of its {most} reservations");
            return Err(NotReserved::Exhausted(detail));
        }

        let Some(RouteLimit { route, most }) = &reservation.route else { return Ok(()) };
        let requests = self.state.call(call).map_or(&[][..], |open| &open.requests);
        let made = requests.iter().find(|(known, _)| known == route).map_or(0, |(_, made)| *made);
        if made < *most || mutant("retry-in-every-layer") {
            return Ok(());
        }

        let detail = format!("{route}: this model call has made all of its {most} requests");
        Err(NotReserved::Exhausted(detail))
    }

    /// Charges the whole reserved cost of an attempt that ended without a report of its actual
    /// cost.
    pub(super) fn charge_reservation(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        let Some((tree, _)) = &step.record else { return };
        let tree = self.state.trees.get(tree);
        let Some(reserved) = tree.and_then(|tree| tree.reservation(call, attempt)) else { return };
        let ModelReservation { agent, spending, .. } = reserved.clone();
        self.fact(step, Fact::Charged { call, attempt, agent, spending });
    }

    /// Sets an alarm for each reservation of an earlier pump. The alarm charges the reserved cost,
    /// because no report of the actual cost can come any more. Called at boot.
    pub(super) fn look_for_unsettled(&self, step: &mut Step) {
        let reserved = self.state.trees.values().flat_map(Tree::reservations);
        let mut lost: Vec<_> = reserved.map(|lost| (lost.call, lost.attempt)).collect();
        lost.sort();

        for (call, attempt) in lost {
            if !mutant("forget-a-reservation") {
                let alarm = Alarm::Unsettled { call, attempt };
                step.effect(Effect::Alarm { at: step.time, alarm });
            }
        }
    }

    /// Charges the reserved cost of a model call if an earlier pump made the reservation. A
    /// reservation of the current pump is settled when its attempt ends, so this method leaves it
    /// unchanged.
    pub(super) fn charge_unsettled(&mut self, step: &mut Step, call: CallId, attempt: Attempt) {
        if attempt.epoch == self.state.epoch {
            return;
        }

        let is_reserved_in = |tree: &&Tree| tree.reservation(call, attempt).is_some();
        let trees = self.state.trees.iter();
        let root =
            trees.filter(|(_, tree)| is_reserved_in(tree)).map(|(root, _)| root.clone()).next();
        let Some(root): Option<ThreadId> = root else { return };

        step.begin_record(root, Input::Unsettled { call, attempt });
        self.charge_reservation(step, call, attempt);
    }
}
