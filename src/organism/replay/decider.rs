//! Computes the records of one epoch again from their recorded inputs, to compare them with the
//! journal.

use std::sync::Arc;

use super::report::DecisionDifference;
use crate::config::Config;
use crate::envelope::Payload;
use crate::organism::pump_runtime::{core_config, gate_of, with_schedules};
use crate::organism::workflow_runs::{self, OpenDefinitions};
use crate::organism::{Error, WorkflowRuns};
use crate::pump::core::replay::{event_of, reload_of};
use crate::pump::core::{Core, CoreConfig, Event};
use crate::pump::gate::{EarlierGates, Gate};
use crate::thread::{Input, Record, State};

/// Result of deciding one record again.
pub(super) enum DecisionOutcome {
    /// The core decides exactly what the record contains.
    Equal,
    /// The input has a payload whose bytes were redacted, so the input cannot be processed again.
    Redacted,
    Differs(Box<DecisionDifference>),
}

/// The core and the gate of one epoch, as its pump had them.
pub(super) struct EpochDecider {
    core: Core,
    gate: Gate,
    /// The core without its schedules. It is kept until the boot of the epoch is decided, because
    /// no record states whether a pump ran schedules.
    without_schedules: Option<Core>,
    /// Gates of earlier configs, for attempts that were in flight at a reload and continue after
    /// it.
    earlier: EarlierGates,
    /// The config of the reload whose record is decided next.
    next: Option<CoreConfig>,
}

impl EpochDecider {
    /// Starts from the state of `folded`. The config must include the core's words.
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

        let without_schedules = (!config.schedules.is_empty()).then(|| core.clone());
        let core = with_schedules(core, &config, &gate)?;
        let earlier = EarlierGates::default();
        Ok(Self { core, gate, without_schedules, earlier, next: None })
    }

    /// Takes the config of a reload, before the record of the reload is decided.
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

    /// Processes the input of a record again, and compares the result with the record.
    pub fn decide(&mut self, record: &Record) -> DecisionOutcome {
        if let Some(config) = self.next.take() {
            return compared(&mut self.core, record, reload_of(record, config));
        }

        let ended = match &record.input {
            Input::Outcome { call, attempt, .. }
            | Input::Failed { call, attempt, .. }
            | Input::NotTaken { call, attempt, .. } => self.earlier.take(*call, *attempt),
            _ => None,
        };
        let gate = ended.as_ref().unwrap_or(&self.gate);
        let outcome = process(&mut self.core, gate, record);
        let Some(mut other) = self.without_schedules.take() else { return outcome };
        if let DecisionOutcome::Differs(_) = outcome
            && matches!(record.input, Input::Boot { .. })
            && let DecisionOutcome::Equal = process(&mut other, &self.gate, record)
        {
            self.core = other;
            return DecisionOutcome::Equal;
        }
        outcome
    }
}

fn process(core: &mut Core, gate: &Gate, record: &Record) -> DecisionOutcome {
    compared(core, record, event_of(record, gate))
}

/// Processes the event of a record, if the event can be rebuilt, and compares the result with the
/// record.
fn compared(core: &mut Core, record: &Record, event: Option<Event>) -> DecisionOutcome {
    let Some(event) = event else {
        if record.payloads().any(Payload::is_redacted) {
            return DecisionOutcome::Redacted;
        }
        return DecisionOutcome::Differs(Box::new(DecisionDifference::of_gate(record)));
    };

    let made = core.step(record.position, record.time, event).into_record();
    match DecisionDifference::between(record, made.as_ref()) {
        None => DecisionOutcome::Equal,
        Some(difference) => DecisionOutcome::Differs(Box::new(difference)),
    }
}
