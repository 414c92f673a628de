//! The handler of a workflow: it answers a delivery with what follows from the messages of the
//! call.
//!
//! The record is the only state. What is remembered of a run between its deliveries is the fold of
//! its messages so far; a run that is not remembered is folded again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bus::memory::CallMemory;
use crate::bus::native_host::{HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::envelope::{AttemptFailure, Message};
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
    fn outcome(&self, delivery: &Delivery) -> Result<Outcome, AttemptFailure> {
        let crashed = |detail: &str| AttemptFailure::Crashed { detail: detail.to_owned() };
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
        let mut was_over = false;
        let mut refused_replies = 0;
        for (position, message) in messages.iter().enumerate().skip(folded.max(1)) {
            if fold.run().is_over() {
                was_over |= position == known;
                refused_replies += u32::from(payloads::is_refusal(message));
            }

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

        if was_over {
            return self.refused_reply(messages.get(known..).unwrap_or_default(), refused_replies);
        }

        let is_over = fold.run().is_over();
        let payloads = self.payloads(requests, is_over);
        if !is_over {
            self.remember(delivery, fold);
        }
        Ok(Outcome { payloads, turn: None })
    }

    /// The reply of a run whose reply was refused: that it failed, in a few words. Where this is refused,
    /// too, the call fails.
    fn refused_reply(
        &self,
        fresh: &[Arc<Message>],
        refused: u32,
    ) -> Result<Outcome, AttemptFailure> {
        let refusal = fresh.iter().find_map(|message| payloads::refusal_of(message));
        let (code, detail) = refusal.unwrap_or_default();
        let code = match code.as_str() {
            "" | "too-complex" => "too-large",
            code => code,
        };
        let detail = format!("the reply of the run was refused: {detail}");
        if refused > 1 {
            return Err(AttemptFailure::TooLarge { detail });
        }

        let definition = &self.definition;
        let goal = definition.goals.last().map(|goal| goal.id.value.as_str());
        let failure = GoalFailure::new(code, detail);
        let failed = payloads::failed(definition, goal.unwrap_or_default(), &failure);
        Ok(Outcome { payloads: vec![failed.into_bytes()], turn: None })
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
    async fn handle(
        &self,
        delivery: Delivery,
        _: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        self.outcome(&delivery)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::clock::Time;
    use crate::contract::Budget;
    use crate::envelope::{MessageKind, Payload};
    use crate::ids::{Attempt, CallId, PayloadName, Position, ThreadId};
    use crate::schema::ShortType;
    use crate::system;
    use crate::workflow::{
        FailurePolicy, GoalDefinition, GoalForm, GoalId, GoalOutput, GoalTarget, PlaceId, Placed,
        WorkflowInput, WorkflowOutput,
    };

    fn placed<T>(value: T) -> Placed<T> {
        Placed::new(value, PlaceId::default())
    }

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).unwrap()
    }

    /// A workflow of one goal.
    fn handler() -> WorkflowHandler {
        let agent = placed(name("writer"));
        let prompt = placed("Write.".to_owned());
        let goal = GoalDefinition {
            id: placed(GoalId::parse("draft").unwrap()),
            form: GoalForm::Run(GoalTarget::Agent { agent, prompt }),
            needs: None,
            context: None,
            output: GoalOutput::Text,
            retry: 0,
            on_failure: None,
            timeout: None,
            budget: Budget::default(),
            budget_place: PlaceId::default(),
            supervision: None,
            roles: None,
        };
        let definition = WorkflowDefinition {
            name: placed(name("flow")),
            description: String::new(),
            input: WorkflowInput::Types(ShortType::Fields(Vec::new())),
            output: WorkflowOutput::LastGoal,
            peers: Vec::new(),
            on_failure: FailurePolicy::Stop,
            report_to: None,
            timeout: None,
            budget: Budget::default(),
            goals: vec![goal],
        };
        WorkflowHandler::new(definition, HashSet::new())
    }

    fn message(seq: u64, name: PayloadName, payload: &str) -> Arc<Message> {
        Arc::new(Message {
            id: MessageId(Uuid::from_u128(seq.into())),
            kind: MessageKind::System,
            from: ListenerName::core(),
            to: self::name("flow"),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            seq,
            cause: None,
            call: None,
            time: Time(0),
            name,
            payload: Payload::new(payload),
        })
    }

    fn core(seq: u64, local: &str, attributes: &str, inner: &str) -> Arc<Message> {
        let namespace = system::NAMESPACE;
        let payload = format!("<{local} xmlns=\"{namespace}\" {attributes}>{inner}</{local}>");
        message(seq, system::name(local), &payload)
    }

    fn refused(seq: u64, code: &str) -> Arc<Message> {
        let reason = format!("<reason code=\"{code}\">more than is allowed</reason>");
        core(seq, "huh", &format!("code=\"{code}\""), &reason)
    }

    /// The messages of a run whose only goal has ended.
    fn ended() -> Vec<Arc<Message>> {
        let spawned = "assigned_id=\"sess-aaaaaaaa.draft\" parent_id=\"sess-aaaaaaaa\"";
        let result = "thread_id=\"sess-aaaaaaaa.draft\" status=\"completed\"";
        vec![
            message(1, PayloadName::new("urn:test", "flow"), "<flow/>"),
            core(2, "thread-spawned", spawned, ""),
            core(3, "waiting", "", ""),
            core(4, "thread-result", result, "<report>long</report>"),
        ]
    }

    fn handle(
        handler: &WorkflowHandler,
        messages: &[Arc<Message>],
        fresh: usize,
    ) -> Result<Vec<String>, AttemptFailure> {
        let outcome = handler.outcome(&Delivery {
            listener: name("flow"),
            call: CallId(MessageId(Uuid::from_u128(1))),
            thread: ThreadId::parse("sess-aaaaaaaa").unwrap(),
            attempt: Attempt { epoch: 1, n: 1 },
            messages: messages.to_vec(),
            fresh,
            position: Position(1),
            timeout: Duration::from_secs(1),
            trace: None,
        })?;
        Ok(outcome.payloads.into_iter().map(|one| String::from_utf8(one).unwrap()).collect())
    }

    #[test]
    fn a_run_whose_reply_is_refused_replies_that_it_is_too_large() {
        let handler = handler();
        let mut messages = ended();
        let reply = handle(&handler, &messages, 1).unwrap();
        assert!(reply.concat().contains("<flow-output"), "{reply:?}");

        messages.push(refused(5, "too-large"));
        let reply = handle(&handler, &messages, 1).unwrap().concat();
        assert!(reply.starts_with("<flow-failed"), "{reply}");
        assert!(reply.contains("<code>too-large</code>"), "{reply}");
        assert!(reply.len() < 400, "{reply}");

        messages.push(refused(6, "too-large"));
        let failure = handle(&handler, &messages, 1).unwrap_err();
        assert!(matches!(failure, AttemptFailure::TooLarge { .. }), "{failure:?}");
    }

    #[test]
    fn a_run_that_is_over_waits_for_nothing() {
        let handler = handler();
        let mut messages = ended();
        messages.push(core(5, "budget-warning", "", ""));
        let reply = handle(&handler, &messages, 2).unwrap().concat();
        assert!(reply.contains("<flow-output"), "{reply}");

        let nothing = "code=\"nothing-to-wait-for\" about=\"wait\"";
        messages.push(core(6, "system-error", nothing, "x"));
        let reply = handle(&handler, &messages, 1).unwrap().concat();
        assert!(reply.starts_with("<flow-failed"), "{reply}");
        assert!(!reply.contains("wait"), "{reply}");
    }
}
