//! Decides the records of one epoch again.

use std::sync::Arc;

use super::report::DecisionDifference;
use crate::config::Config;
use crate::envelope::Payload;
use crate::organism::pump_runtime::with_schedules;
use crate::organism::workflow_runs;
use crate::organism::{Error, WorkflowRuns};
use crate::pump::core::Core;
use crate::pump::core::replay::event_of;
use crate::pump::gate::Gate;
use crate::thread::{Input, Record, State};

/// Result of deciding one record again.
pub(super) enum DecisionOutcome {
    /// The core decides what the record contains.
    Equal,
    /// The input has a payload whose bytes were redacted, so it cannot be processed.
    Redacted,
    Differs(Box<DecisionDifference>),
}

/// The core and the gate of one epoch, as its pump had them.
pub(super) struct EpochDecider {
    core: Core,
    gate: Gate,
    /// The core without its schedules, until the boot of the epoch is decided. No record states
    /// whether a pump ran schedules.
    without_schedules: Option<Core>,
}

impl EpochDecider {
    /// Starts on the state that `folded` has, with a config that has the core's words.
    ///
    /// # Errors
    ///
    /// Fails if the payload of a schedule does not pass the gate.
    pub fn start(config: &Arc<Config>, folded: &Core) -> Result<Self, Error> {
        let core =
            folded.restarted(Arc::new(config.contracts.clone()), config.limits, config.digest);
        let core = core.with_operators(config.operators.clone());

        let WorkflowRuns { config, .. } = workflow_runs::at_start(config, &core);
        let core = core.with_contracts(Arc::new(config.contracts.clone()));
        let gate = Gate::new(Arc::new(config.contracts.clone()), config.schemas.clone());
        let gate = gate.with_payload_bytes(config.payload_bytes);

        let without_schedules = (!config.schedules.is_empty()).then(|| core.clone());
        let core = with_schedules(core, &config, &gate)?;
        Ok(Self { core, gate, without_schedules })
    }

    pub fn state(&self) -> &State {
        self.core.state()
    }

    /// Processes the input of a record again, and compares the result with the record.
    pub fn decide(&mut self, record: &Record) -> DecisionOutcome {
        let outcome = process(&mut self.core, &self.gate, record);
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
    let Some(event) = event_of(record, gate) else {
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
