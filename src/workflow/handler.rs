//! The handler of a workflow: it answers a delivery with what follows from the messages of the call.
//!
//! The record is the only state. What is remembered of a run between its deliveries is the fold of
//! its messages so far; a run that is not remembered is folded again.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bus::memory::CallMemory;
use crate::bus::native_host::{HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::envelope::Failure;
use crate::ids::{ListenerName, MessageId};

use super::call_fold::{CallFold, RunRequest, RunThreads};
use super::definition::WorkflowDefinition;
use super::graph::GoalGraph;
use super::payloads;
use super::run_state::{GoalFailure, RunState, RunStep};

/// Carries out the runs of one workflow.
pub struct WorkflowHandler {
    definition: WorkflowDefinition,
    /// Listeners whose calls must not be repeated.
    once: HashSet<ListenerName>,
    remembered: Mutex<CallMemory<RememberedRun>>,
}

/// A run after the messages of a delivery.
struct RememberedRun {
    messages: usize,
    last: MessageId,
    state: RunState,
    threads: RunThreads,
}

impl WorkflowHandler {
    pub fn new(definition: WorkflowDefinition, once: HashSet<ListenerName>) -> Self {
        Self { definition, once, remembered: Mutex::default() }
    }

    fn remembered(&self) -> MutexGuard<'_, CallMemory<RememberedRun>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome that follows from the new messages of a delivery.
    fn outcome(&self, delivery: &Delivery) -> Result<Outcome, Failure> {
        let crashed = |detail: &str| Failure::Crashed { detail: detail.to_owned() };
        let messages = delivery.messages.as_slice();
        let known = messages.len().saturating_sub(delivery.fresh);
        let (graph, _) = GoalGraph::new(&self.definition);
        let (mut fold, folded) =
            self.fold(&graph, delivery, known).ok_or_else(|| crashed("the request is no XML"))?;

        let mut requests = Vec::new();
        if folded == 0 {
            let started = fold.start();
            if known == 0 {
                requests.extend(started);
            }
        }
        for (position, message) in messages.iter().enumerate().skip(folded.max(1)) {
            let taken = fold.take(message);
            if position >= known {
                requests.extend(taken);
            }
        }

        if !fold.fits() {
            let reason =
                "its record is of another definition; a run is not continued on a changed one";
            let failure = GoalFailure::new("definition-changed", reason);
            let goal = self.definition.goals.first().map(|goal| goal.id.value.as_str());
            let failed = payloads::failed(&self.definition, goal.unwrap_or_default(), &failure);
            return Ok(Outcome { payloads: vec![failed.into_bytes()], turn: None });
        }

        let is_over = fold.run().is_over();
        let payloads = self.payloads(requests, is_over);
        if !is_over {
            self.remember(delivery, fold);
        }
        Ok(Outcome { payloads, turn: None })
    }

    /// The run before the new messages, and the number of messages in it.
    fn fold<'a>(
        &'a self,
        graph: &'a GoalGraph<'a>,
        delivery: &Delivery,
        known: usize,
    ) -> Option<(CallFold<'a>, usize)> {
        let last = known.checked_sub(1).and_then(|at| delivery.messages.get(at));
        let run = self.remembered().take(delivery.call);
        let is_next = |run: &RememberedRun| {
            run.messages == known && last.is_some_and(|message| message.id == run.last)
        };
        if let Some(RememberedRun { state, threads, .. }) = run.filter(is_next) {
            let parts = (state, threads);
            let fold = CallFold::resumed(&self.definition, graph, &self.once, parts);
            return Some((fold, known));
        }

        let request = delivery.messages.first()?;
        let fold = CallFold::begun(&self.definition, graph, &self.once, request)?;
        Some((fold, 0))
    }

    fn remember(&self, delivery: &Delivery, fold: CallFold<'_>) {
        let Some(last) = delivery.messages.last() else { return };
        let bytes = delivery.messages.iter().map(|message| message.payload.len()).sum();
        let (state, threads) = fold.into_parts();
        let messages = delivery.messages.len();
        let run = RememberedRun { messages, last: last.id, state, threads };
        self.remembered().put(delivery.call, run, bytes);
    }

    /// The payloads of an outcome: the reply alone, or requests and a wait.
    fn payloads(&self, requests: Vec<RunRequest>, is_over: bool) -> Vec<Vec<u8>> {
        let definition = &self.definition;
        let mut payloads = Vec::new();
        for request in requests {
            match request {
                RunRequest::Step(RunStep::Complete { output }) => {
                    return vec![payloads::output(definition, &output).into_bytes()];
                }
                RunRequest::Step(RunStep::Fail { goal, failure, .. }) => {
                    return vec![
                        payloads::failed(definition, goal.as_str(), &failure).into_bytes(),
                    ];
                }
                // The reply ends every thread of the run.
                _ if is_over => {}
                RunRequest::Step(RunStep::Start { label, call, limits, .. }) => {
                    payloads.push(payloads::spawn(&label, &call, limits).into_bytes());
                }
                RunRequest::Step(RunStep::Cancel { .. }) => {}
                RunRequest::CancelThread(thread) => {
                    payloads.push(payloads::cancel(&thread).into_bytes());
                }
            }
        }

        payloads.push(payloads::wait().into_bytes());
        payloads
    }
}

impl NativeHandler for WorkflowHandler {
    async fn handle(&self, delivery: Delivery, _: HandlerContext) -> Result<Outcome, Failure> {
        self.outcome(&delivery)
    }
}
