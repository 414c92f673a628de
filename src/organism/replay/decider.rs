//! Recomputes the records of one epoch, which is one run of a pump, from their recorded inputs, and
//! compares the results with the journal.

use std::sync::Arc;

use super::report::DecisionDifference;
use super::zone_rules::zone_of_equal_plans;
use crate::config::Config;
use crate::envelope::Payload;
use crate::organism::pump_runtime::{core_config, gate_of, with_schedules};
use crate::organism::workflow_runs::{self, OpenDefinitions};
use crate::organism::{Error, WorkflowRuns};
use crate::pump::core::replay::{event_of, reload_of};
use crate::pump::core::{Core, CoreConfig, Event};
use crate::pump::gate::{EarlierGates, Gate};
use crate::thread::{Fact, Input, Record, State};

/// Result of recomputing one record from its input.
pub(super) enum DecisionOutcome {
    /// The recomputed record equals the record in the journal.
    Equal,
    /// The input has a payload whose bytes were redacted, so the record cannot be recomputed.
    Redacted,
    /// The record plans a schedule in a time zone, and differs from the recomputed record only in
    /// the times of such schedules. This machine has other rules of the zone than the machine of
    /// the pump had.
    OtherZoneRules {
        zone: String,
    },
    Differs(Box<DecisionDifference>),
}

/// The recomputation of one epoch's records, with the core and the gate that the epoch's pump had.
pub(super) struct EpochDecider {
    core: Core,
    gate: Gate,
    /// Copy of `core` without schedules, for the boot record only; `None` after that record, or if
    /// neither the config nor the record has any. No record states whether the pump ran schedules,
    /// or drained from its boot on. So if `core` does not produce the boot record of the epoch, the
    /// replay tries this copy, and a copy that drains.
    without_schedules: Option<Core>,
    /// Difference of a boot record that only a pump which drains produces. The next record must be
    /// the shutdown, otherwise this difference is reported. `None` at all other times.
    boot_difference: Option<Box<DecisionDifference>>,
    /// Gates that were in force before a reload. They check the answers of attempts that were in
    /// flight at the reload.
    earlier: EarlierGates,
    /// Config of a reload, until the record of this reload is recomputed; `None` at all other
    /// times.
    next: Option<CoreConfig>,
}

impl EpochDecider {
    /// Starts an epoch. The state comes from `folded`, to which all recorded facts before the epoch
    /// were applied. `config` must already have the schemas that `with_core_words` adds.
    ///
    /// # Errors
    ///
    /// Fails if the payload of a schedule does not pass the gate.
    pub fn start(config: &Arc<Config>, folded: &Core) -> Result<Self, Error> {
        let core =
            folded.restarted(Arc::new(config.contracts.clone()), config.limits, config.digest);
        let core = core.with_operators(config.operators.clone());

        let WorkflowRuns { config, .. } =
            workflow_runs::at_start(config, OpenDefinitions::of(core.state()));
        let core = core.with_contracts(Arc::new(config.contracts.clone()));
        let gate = gate_of(&config);

        // A pump that runs schedules cancels those on record that the config no longer has.
        let has_schedules = !config.schedules.is_empty() || !core.state().schedules.is_empty();
        let without_schedules = has_schedules.then(|| core.clone());
        let core = with_schedules(core, &config, &gate)?;
        let earlier = EarlierGates::default();
        Ok(Self { core, gate, without_schedules, boot_difference: None, earlier, next: None })
    }

    /// Adopts the config of a reload. Must be called before the record of the reload is recomputed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`EpochDecider::start`].
    pub fn reload(&mut self, config: &Config) -> Result<(), Error> {
        let gate = gate_of(config);
        self.next = Some(core_config(config, &gate, self.core.has_schedules())?);
        let in_flight = self.core.deliveries_in_flight();
        let in_flight = in_flight.map(|(call, attempt, _)| (call, attempt));
        self.earlier.keep(in_flight, &self.gate, &gate.contracts);
        self.gate = gate;
        Ok(())
    }

    pub fn state(&self) -> &State {
        self.core.state()
    }

    /// Replaces the planned times and runs of all schedules by those of `folded`, the state that
    /// results from the recorded facts. Called after a record with other zone rules, so that the
    /// next records are recomputed from the recorded times.
    pub fn adopt_schedules(&mut self, folded: &State) {
        self.core.adopt_schedules(folded);
    }

    /// Takes the difference of a boot record that only a pump which drains produces, if the shutdown
    /// has not followed.
    pub fn take_boot_difference(&mut self) -> Option<Box<DecisionDifference>> {
        self.boot_difference.take()
    }

    /// Recomputes a record from its input, and compares the result with the record.
    pub fn decide(&mut self, record: &Record) -> DecisionOutcome {
        if let Some(difference) = self.boot_difference.take()
            && !matches!(record.input, Input::Shutdown { .. })
        {
            return DecisionOutcome::Differs(difference);
        }
        if let Some(config) = self.next.take() {
            return compared(&mut self.core, record, reload_of(record, config));
        }
        if matches!(record.input, Input::Boot { .. }) {
            return self.decide_boot(record);
        }

        let ended = match &record.input {
            Input::Outcome { call, attempt, .. }
            | Input::Failed { call, attempt, .. }
            | Input::NotTaken { call, attempt, .. } => self.earlier.take(*call, *attempt),
            _ => None,
        };
        let gate = ended.as_ref().unwrap_or(&self.gate);
        process(&mut self.core, gate, record)
    }

    fn decide_boot(&mut self, record: &Record) -> DecisionOutcome {
        let without_schedules = self.without_schedules.take();
        // Without open work, a drain makes no difference. A pump that drains hands nothing over. It
        // is a command's pump, and runs no schedules.
        let hands_over = record.facts.iter().any(|fact| matches!(fact, Fact::HandedOver { .. }));
        let may_drain = !hands_over && !self.core.left_open().is_empty();
        let draining = may_drain.then(|| {
            let core = without_schedules.as_ref().unwrap_or(&self.core);
            core.clone().draining_from_boot()
        });

        let outcome = process(&mut self.core, &self.gate, record);
        let DecisionOutcome::Differs(difference) = outcome else { return outcome };

        for mut other in without_schedules.into_iter().chain(draining) {
            if let DecisionOutcome::Equal = process(&mut other, &self.gate, record) {
                self.boot_difference = other.drains_from_boot().then_some(difference);
                self.core = other;
                return DecisionOutcome::Equal;
            }
        }
        DecisionOutcome::Differs(difference)
    }
}

fn process(core: &mut Core, gate: &Gate, record: &Record) -> DecisionOutcome {
    compared(core, record, event_of(record, gate))
}

/// Recomputes a record from its event, and compares the result with the record. `event` is `None`
/// if the event cannot be rebuilt.
fn compared(core: &mut Core, record: &Record, event: Option<Event>) -> DecisionOutcome {
    let Some(event) = event else {
        if record.payloads().any(Payload::is_redacted) {
            return DecisionOutcome::Redacted;
        }
        return DecisionOutcome::Differs(Box::new(DecisionDifference::of_gate(record)));
    };

    let made = core.step(record.position, record.time, event).into_record();
    let Some(difference) = DecisionDifference::between(record, made.as_ref()) else {
        return DecisionOutcome::Equal;
    };
    match made.and_then(|made| zone_of_equal_plans(record, &made)) {
        Some(zone) => DecisionOutcome::OtherZoneRules { zone },
        None => DecisionOutcome::Differs(Box::new(difference)),
    }
}
