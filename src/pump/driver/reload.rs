//! Replaces the config of a running pump between two batches of commands: the gate, the hosts, and
//! the config of the core.
//!
//! Ordering rule: the pump first performs the effects of all earlier steps with the earlier hosts,
//! and then replaces the config. All later steps use the new gate and the new hosts.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Handle, Pump, PumpCommand, PumpStopped, PumpUnavailable, WriteObstacle};
use crate::bus::Host;
use crate::envelope::Refusal;
use crate::ids::{Attempt, CallId, Digest, ListenerName};
use crate::journal::Error;
use crate::mutant::mutant;
use crate::pump::core::{
    CallDecision, CoreConfig, Event, OperatorRuling, ReloadRequest, Submission,
};
use crate::pump::gate::{Checked, Gate};
use crate::thread::{Map, OperatorAction};

/// Callback that gets each replaced host after the host's last delivery has ended.
pub(crate) type RetireHost = dyn Fn(Arc<dyn Host>) + Send + Sync;

/// Everything that a pump needs in order to put another config in force.
pub(crate) struct ConfigExchange {
    /// The recorded action, which names the operator.
    pub action: OperatorAction,
    pub core: CoreConfig,
    pub gate: Gate,
    /// Documents of the new config, such as the config file and the schemas, which the journal
    /// stores.
    pub texts: Vec<String>,
    /// All hosts of the new config, including the hosts that stay from the earlier config.
    pub hosts: Vec<(ListenerName, Arc<dyn Host>)>,
    pub retire: Arc<RetireHost>,
    /// Callback that runs after the last delivery under the earlier config, and before the first
    /// delivery under the new config.
    pub switch: Box<dyn FnOnce() + Send>,
}

/// A request to replace the config, with a channel that reports that the reload is durable.
pub(in crate::pump) struct Reload {
    exchange: ConfigExchange,
    done: oneshot::Sender<OperatorRuling>,
    refused: oneshot::Sender<WriteObstacle>,
}

impl Reload {
    /// Refuses the reload because the journal cannot accept records at present.
    pub fn refuse(self, obstacle: WriteObstacle) {
        // The send fails if the requester has left, and then no answer is needed.
        self.refused.send(obstacle).ok();
    }
}

/// A host that a reload has replaced. The host gets no more deliveries, but still works on earlier
/// deliveries.
pub(super) struct RetiringHost {
    host: Arc<dyn Host>,
    in_flight: HashSet<(CallId, Attempt)>,
    retire: Arc<RetireHost>,
}

impl Handle {
    /// Puts another config in force. Returns once the reload is durable. A pump whose journal
    /// accepts no records refuses the reload.
    pub(crate) async fn reload(&self, exchange: ConfigExchange) -> Result<(), PumpUnavailable> {
        let (done, recorded) = oneshot::channel();
        let (refused, refusal) = oneshot::channel();
        let reload = Box::new(Reload { exchange, done, refused });
        self.outbox().send(PumpCommand::Reload(reload)).map_err(|_| PumpStopped)?;

        // The pump drops `done` unused if it refuses the reload.
        if recorded.await.is_ok() {
            return Ok(());
        }
        Err(refusal.await.map_or(PumpUnavailable::Stopped(PumpStopped), PumpUnavailable::Waits))
    }
}

impl Pump {
    /// Carries out the reload that was requested in this batch, if there is one. A pump that drains
    /// or stops ignores the request, because its next start reads the config anyway.
    pub(super) fn reload_if_requested(&mut self) -> Result<(), Error> {
        let Some(reload) = self.reload.take() else { return Ok(()) };
        if self.core.is_draining() || self.waiters.is_stopping() {
            return Ok(());
        }

        let Reload { exchange, done, .. } = *reload;
        let ConfigExchange { action, core, gate, texts, hosts, retire, switch } = exchange;
        let in_flight: Vec<_> = self
            .core
            .deliveries_in_flight()
            .map(|(call, attempt, listener)| (call, attempt, listener.clone()))
            .collect();

        let attempts = in_flight.iter().map(|(call, attempt, _)| (*call, *attempt));
        let attempts = attempts.filter(|_| !mutant("check-by-the-new-schemas"));
        self.gates.replace(gate.clone(), attempts);
        let gate_of = |call, attempt| self.gates.of_attempt(call, attempt);
        let without_result = self.core.check_recorded_again(&gate, gate_of);
        self.has_reloaded = true;
        self.metrics.set_contracts(&gate.contracts);
        self.gate = gate;
        // The host of a turn that waits has ended its delivery.
        let is_at_host = |(call, attempt, _): &(CallId, Attempt, ListenerName)| {
            !self.core.has_waiting_turn(*call, *attempt)
        };
        let (at_hosts, waiting): (Vec<_>, Vec<_>) = in_flight.into_iter().partition(is_at_host);
        self.recorded_turns = waiting.iter().map(|(call, attempt, _)| (*call, *attempt)).collect();
        self.replace_hosts(hosts, &at_hosts, &retire);
        switch();

        let blobs = texts.iter().map(|text| Digest::of(text.as_bytes())).collect();
        self.inputs.extend(texts);
        let ticket = Uuid::now_v7();
        self.waiters.await_ruling(ticket, done);

        let now = self.clock.now();
        let mut position = self.journal.next();
        self.metrics.begins_to_step();
        let request = ReloadRequest { ticket, action, config: core, blobs };
        let event = Event::Reload(Box::new(request));
        let mut steps = vec![self.step(&mut position, now, event)?];
        for call in without_result {
            let event = Event::Searched { call, result: None };
            steps.push(self.step(&mut position, now, event)?);
        }
        self.metrics.record_step();
        self.commit(steps)?;
        self.retire_idle_hosts();
        Ok(())
    }

    fn replace_hosts(
        &mut self,
        hosts: Vec<(ListenerName, Arc<dyn Host>)>,
        in_flight: &[(CallId, Attempt, ListenerName)],
        retire: &Arc<RetireHost>,
    ) {
        let before = std::mem::replace(&mut self.hosts, hosts.into_iter().collect::<Map<_, _>>());
        for (listener, host) in before {
            let now = self.hosts.get(&listener);
            if now.is_some_and(|now| Arc::ptr_eq(now, &host)) {
                continue;
            }
            if let Some(now) = now
                && host.has_left()
            {
                now.report_return();
            }

            let own = in_flight.iter().filter(|(call, attempt, of)| {
                let is_retiring =
                    |retiring: &RetiringHost| retiring.in_flight.contains(&(*call, *attempt));
                *of == listener && !self.retiring.iter().any(is_retiring)
            });
            let in_flight = own.map(|(call, attempt, _)| (*call, *attempt)).collect();
            self.retiring.push(RetiringHost { host, in_flight, retire: Arc::clone(retire) });
        }
    }

    /// Calls `retire` for each replaced host whose deliveries have all ended, and removes the host
    /// from the list.
    fn retire_idle_hosts(&mut self) {
        let is_idle = |retiring: &mut RetiringHost| retiring.in_flight.is_empty();
        for RetiringHost { host, retire, .. } in self.retiring.extract_if(.., is_idle) {
            retire(host);
        }
    }

    /// Returns the replaced host that works on this delivery. Returns `None` if the delivery
    /// belongs to no replaced host.
    pub(super) fn retiring_host(&self, call: CallId, attempt: Attempt) -> Option<&Arc<dyn Host>> {
        let mut retiring = self.retiring.iter();
        let found = retiring.find(|retiring| retiring.in_flight.contains(&(call, attempt)));
        found.map(|retiring| &retiring.host)
    }

    /// Records the end of a delivery to a host that a reload has replaced.
    fn end_at_retiring_host(&mut self, call: CallId, attempt: Attempt) {
        if self.retiring.is_empty() {
            return;
        }

        for retiring in &mut self.retiring {
            retiring.in_flight.remove(&(call, attempt));
        }
        self.retire_idle_hosts();
    }

    /// Releases the earlier gates of attempts whose recorded turns have taken effect.
    pub(super) fn release_gates(&mut self) {
        let Self { core, gates, recorded_turns, .. } = self;
        recorded_turns.retain(|(call, attempt)| {
            let waits = core.has_waiting_turn(*call, *attempt);
            if !waits {
                gates.take_earlier(*call, *attempt);
            }
            waits
        });
    }

    /// Checks the payloads of an event again, and returns the event with the new results. Must be
    /// called for every event after the first reload, because a payload may have passed the gate
    /// just before a reload. The answer to an attempt is checked by the gate under which the
    /// attempt was handed over. All other payloads are checked by the gate in force. Recorded turns
    /// and results that already wait in the core are checked by the reload itself.
    pub(super) fn recheck(&mut self, event: Event) -> Event {
        match event {
            Event::Outcome { listener, call, attempt, payloads, turn, arrived } => {
                self.end_at_retiring_host(call, attempt);
                let gate = match &turn {
                    // The turn may wait in its fork, and a later reload then needs the gate again.
                    Some(turn) if turn.recorded.is_some() => {
                        self.recorded_turns.push((call, attempt));
                        Some(self.gates.of_attempt(call, attempt))
                    }
                    _ => self.gates.take_earlier(call, attempt).map(Arc::new),
                };
                let payloads = match gate {
                    Some(gate) => check_all_again(&gate, &listener, payloads),
                    None => payloads,
                };
                Event::Outcome { listener, call, attempt, payloads, turn, arrived }
            }
            Event::Failed { call, attempt, .. } | Event::NotTaken { call, attempt, .. } => {
                self.end_at_retiring_host(call, attempt);
                self.gates.take_earlier(call, attempt);
                event
            }
            Event::Stray { listener, named, payloads } => {
                let payloads = check_all_again(&self.gate, &listener, payloads);
                Event::Stray { listener, named, payloads }
            }
            Event::Decide(decision) => {
                let gate = &self.gate;
                let CallDecision { ticket, message, decision, origin } = *decision;
                let decision = decision.map_answer(|mut answer| {
                    answer.payload = answer
                        .payload
                        .and_then(|checked| gate.check_again(&answer.listener, &checked));
                    answer
                });
                Event::Decide(Box::new(CallDecision { ticket, message, decision, origin }))
            }
            Event::Searched { call, result } => {
                let result = result.filter(|found| found.passes(&self.gate));
                Event::Searched { call, result }
            }
            Event::Fork(mut order) => {
                if let (Some(request), Some(Ok(checked))) = (&order.action.request, &order.payload)
                {
                    order.payload = Some(self.gate.check_again(&request.sender, checked));
                }
                Event::Fork(order)
            }
            Event::RetryMessage(mut order) => {
                if let Ok(checked) = &order.payload {
                    order.payload = self.gate.check_again(&order.action.sender, checked);
                }
                Event::RetryMessage(order)
            }
            other => other,
        }
    }

    /// Checks a submission again if a reload has happened since its first check. `generation` is
    /// the number of reloads at that check.
    pub(super) fn recheck_submission(&self, submission: &mut Submission, generation: u64) {
        if !self.has_reloaded || generation == self.gates.generation() {
            return;
        }

        if let Ok(checked) = &submission.payload {
            let digest = checked.payload().digest;
            submission.payload = self.gate.check_again(&submission.client, checked);
            submission.refused_digest = submission.payload.is_err().then_some(digest);
        }
    }
}

fn check_all_again(
    gate: &Gate,
    sender: &ListenerName,
    payloads: Vec<Result<Checked, Refusal>>,
) -> Vec<Result<Checked, Refusal>> {
    let payloads = payloads.into_iter();
    payloads.map(|payload| payload.and_then(|own| gate.check_again(sender, &own))).collect()
}
