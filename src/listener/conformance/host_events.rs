//! The events that a host reports about the program under test.

use tokio::sync::mpsc;

use crate::bus::{Outcome, Sink};
use crate::envelope::AttemptFailure;
use crate::ids::{Attempt, CallId, ListenerName};

/// An event that the host of the check reports about the program under test.
#[derive(Debug)]
pub(super) enum HostEvent {
    Ended(Result<Outcome, AttemptFailure>),
    Heartbeat,
    /// The program sent an answer that does not belong to the delivery in progress.
    Stray(String),
    Left(String),
}

/// Sends the reports of a host to the trial.
pub(super) struct RecordingSink(pub(super) mpsc::UnboundedSender<HostEvent>);

impl RecordingSink {
    fn report(&self, event: HostEvent) {
        // The send fails only if the trial has ended, which needs no handling.
        let _ = self.0.send(event);
    }
}

impl Sink for RecordingSink {
    fn ended(
        &self,
        _: &ListenerName,
        _: CallId,
        _: Attempt,
        result: Result<Outcome, AttemptFailure>,
    ) {
        self.report(HostEvent::Ended(result));
    }

    fn heartbeat(&self, _: &ListenerName, _: CallId, _: Attempt) {
        self.report(HostEvent::Heartbeat);
    }

    fn stray(&self, _: &ListenerName, named: String, _: Vec<Vec<u8>>) {
        self.report(HostEvent::Stray(named));
    }

    fn joined(&self, _: &ListenerName, _: &str) {}

    fn left(&self, _: &ListenerName, detail: &str) {
        self.report(HostEvent::Left(detail.to_owned()));
    }
}
