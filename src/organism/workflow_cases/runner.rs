//! Carries out the run of a test case: one step at a time, in an order that depends on the case
//! alone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::answer_payloads::{answer_example, answer_payloads};
use super::call_paths::CallPaths;
use super::host::{PendingDeliveries, ScriptedDelivery};
use super::script::CaseScript;
use super::{case_thread, failed, refused};
use crate::bus::Outcome;
use crate::config::{
    CaseFault, CaseInput, CaseTurn, Config, ConfigProblem, ConfigProblems, ProblemCode,
    WorkflowCase, client_of, nearest,
};
use crate::contract::Role;
use crate::envelope::{AttemptFailure, Message, Refusal};
use crate::ids::{CallId, ListenerName, Position};
use crate::journal::sqlite::JournalReader;
use crate::limits;
use crate::organism::Error;
use crate::pump::core::{Receipt, Target};
use crate::pump::driver::{
    CallCompletion, Completions, DeliveryInFlight, Handle, HeldRequest, TimePassage,
};
use crate::thread::{Decision, Fact, Hold};
use crate::workflow::{fit_children, input_payload, is_undo_report};
use crate::xml::element::Element;

pub struct CaseRunner<'a> {
    case: &'a WorkflowCase,
    config: &'a Config,
    handle: Handle,
    pending: PendingDeliveries,
    script: CaseScript<'a>,
    paths: CallPaths<'a>,
    /// Paths of the calls that needed an answer from the test case at the latest step. Each of
    /// these calls was delivered to a listener, or was held for a person. The test case answers in
    /// place of the listener or the person.
    waiting: Vec<String>,
    problems: ConfigProblems,
}

/// Result of waiting until every delivery in flight needs an answer from the test case.
enum RunnerRest {
    /// Every delivery in flight waits for an answer that the test case provides. The field is the
    /// position that the next record will get.
    At(Position),
    /// The time limit has passed while these listeners still work on deliveries.
    Working(BTreeSet<ListenerName>),
}

/// Result of one step of the runner. A step begins when no listener works on a delivery any more.
enum RunnerStep {
    Moved,
    /// The test case gives no answer now. Only the passage of time can continue the run.
    Rests,
    /// A delivery or a held call waits for an answer, but the test case has no answer for it, or
    /// only an invalid one.
    Stuck,
}

/// A call that waits for an answer of the test case.
enum UnansweredCall {
    /// The call waits for a person.
    Held(HeldRequest),
    Delivered(ScriptedDelivery),
}

impl UnansweredCall {
    fn id(&self) -> CallId {
        match self {
            Self::Held(held) => CallId(held.request.id),
            Self::Delivered(pending) => pending.delivery.call,
        }
    }
}

impl<'a> CaseRunner<'a> {
    pub fn new(
        case: &'a WorkflowCase,
        config: &'a Config,
        handle: Handle,
        pending: PendingDeliveries,
    ) -> Self {
        let script = CaseScript::new(&case.answers);
        let paths = CallPaths::new(&config.contracts);
        let problems = ConfigProblems::default();
        Self { case, config, handle, pending, script, paths, waiting: Vec::new(), problems }
    }

    pub fn into_problems(self) -> ConfigProblems {
        self.problems
    }

    /// Gives the answers of the test case to the workflow run until the run has ended. If the run
    /// cannot end, reports why and returns `None`.
    pub async fn carry_out(&mut self) -> Result<Option<CallCompletion>, Error> {
        let Some(mut completed) = self.submit().await? else { return Ok(None) };
        loop {
            let next = match self.rest().await? {
                RunnerRest::At(next) => next,
                RunnerRest::Working(listeners) => {
                    self.report_working(&listeners);
                    return Ok(None);
                }
            };

            if let Some(completion) = take_ended(&mut completed).await {
                self.report_unused();
                return Ok(Some(completion));
            }

            match self.step().await? {
                RunnerStep::Moved => {}
                RunnerStep::Stuck => return Ok(None),
                RunnerStep::Rests => match self.handle.pass_time(next).await? {
                    TimePassage::Passed | TimePassage::Changed => {}
                    TimePassage::NothingScheduled | TimePassage::NotFrozen => {
                        self.report_endless();
                        return Ok(None);
                    }
                },
            }
        }
    }

    /// Submits the input of the test case. If the input is refused, or if no client may call the
    /// workflow, reports this and returns `None`.
    async fn submit(&mut self) -> Result<Option<Completions>, Error> {
        let name = &self.case.workflow;
        let mut workflows = self.config.workflows.iter().map(|workflow| &workflow.definition);
        let definition = workflows.find(|definition| definition.name.value.as_str() == name.text);
        let client = client_of(self.case, self.config);
        let (Some(definition), Some(client)) = (definition, client) else {
            let message = format!("no client of the config may call `{}`", name.text);
            let help = "add it to `peers` of a client, or name the client with `as`";
            self.report(failed(&name.place, message, help));
            return Ok(None);
        };

        let (payload, place) = match &self.case.input {
            CaseInput::Payload(text) => (text.text.trim().to_owned(), &text.place),
            CaseInput::Values { values, place, .. } => {
                let payload = input_payload(&self.config.schemas, definition, values, false)
                    .map_err(|error| Error::Preview { detail: error.to_string() })?;
                (fit_children(&self.config.schemas, payload).to_xml(), place)
            }
        };
        let target = Target::New { suggested: Some(case_thread().to_string()) };
        let submitted = self.handle.submit(&client, target, None, payload.as_bytes()).await;
        let (receipt, completions) = submitted?;
        match receipt {
            Receipt::Accepted { .. } => Ok(Some(completions)),
            Receipt::Refused { refusal, .. } => {
                let help = "`organism workflow show` and `organism schema show` describe the input";
                let message = format!("the input is refused: {refusal}");
                self.report(failed(place, message, help));
                Ok(None)
            }
            Receipt::NoThread { answer } => Err(Error::Preview { detail: answer }),
        }
    }

    /// Waits until every delivery in flight needs an answer from the test case. Gives up after
    /// `limits::CASE_STEP_TIMEOUT` of real time if programs still work on deliveries. The clock of
    /// the run is frozen during this wait.
    async fn rest(&mut self) -> Result<RunnerRest, Error> {
        let mut recorded = self.handle.recorded();
        let begun = Instant::now();
        loop {
            recorded.borrow_and_update();
            let in_flight = self.in_flight().await?;
            let working = self.working(&in_flight.0);
            // A second, equal answer shows that nothing was delivered since the first one.
            if working.is_empty() && self.in_flight().await? == in_flight {
                return Ok(RunnerRest::At(in_flight.1));
            }
            if begun.elapsed() >= limits::CASE_STEP_TIMEOUT {
                return Ok(RunnerRest::Working(working));
            }

            let pause = tokio::time::sleep(Duration::from_millis(5));
            tokio::select! {
                changed = recorded.changed() => changed.map_err(|_| Error::Stopped)?,
                () = pause => {}
            }
        }
    }

    async fn in_flight(&self) -> Result<(Vec<DeliveryInFlight>, Position), Error> {
        Ok(self.handle.deliveries_in_flight().await?)
    }

    /// Returns the listeners that still work on a delivery. A listener works on each of its
    /// deliveries in flight, except those that wait for an answer of the test case.
    fn working(&self, in_flight: &[DeliveryInFlight]) -> BTreeSet<ListenerName> {
        let waiting = self.pending.all();
        let waits = |working: &&DeliveryInFlight| {
            let mut waiting = waiting.iter().map(|pending| &pending.delivery);
            waiting.any(|delivery| {
                delivery.call == working.call && delivery.attempt == working.attempt
            })
        };
        let working = in_flight.iter().filter(|delivery| !waits(delivery));
        working.map(|delivery| delivery.listener.clone()).collect()
    }

    /// Gives the next answer of the test case to the run.
    async fn step(&mut self) -> Result<RunnerStep, Error> {
        let mut waiting = Vec::new();
        for held in self.handle.held_calls().await?.all().await? {
            waiting.push((self.path_of(&held.request)?, UnansweredCall::Held(held)));
        }
        for pending in self.pending.all() {
            let Some(request) = pending.delivery.messages.first().cloned() else { continue };
            waiting.push((self.path_of(&request)?, UnansweredCall::Delivered(pending)));
        }
        waiting.sort_by_cached_key(|(path, _)| (self.script.place_in_file(path), path.clone()));
        for (path, call) in &waiting {
            self.script.reach(path, call.id());
        }
        // An approval takes no answer of the case. The call can take one only after its approval.
        waiting.sort_by_cached_key(|(path, call)| !self.waits_only_for_approval(path, call));

        self.waiting = waiting.iter().map(|(path, _)| path.clone()).collect();
        for (path, call) in &waiting {
            let has_moved = match call {
                UnansweredCall::Held(held) => self.decide(path, held).await?,
                UnansweredCall::Delivered(pending) => self.answer(path, pending).await?,
            };
            if has_moved {
                return Ok(RunnerStep::Moved);
            }
        }
        Ok(if self.problems.is_empty() { RunnerStep::Rests } else { RunnerStep::Stuck })
    }

    /// Whether `call` waits for an approval, and the test case neither denies nor cancels the call.
    fn waits_only_for_approval(&self, path: &str, call: &UnansweredCall) -> bool {
        let UnansweredCall::Held(held) = call else { return false };
        let fault = self.script.fault(path, call.id());
        let is_ended = matches!(fault, Some(CaseFault::Denied | CaseFault::Cancelled));
        held.hold == Hold::Approval && !is_ended
    }

    fn path_of(&mut self, request: &Message) -> Result<String, Error> {
        if self.paths.is_unknown(request) {
            let records = JournalReader::open(&self.config.data)?.tree(&case_thread(), None)?;
            for fact in records.iter().flat_map(|sealed| &sealed.record.facts) {
                if let Fact::Accepted { message, opening: Some(_), .. } = fact {
                    self.paths.name(message);
                }
            }
        }

        Ok(self.paths.name(request))
    }

    /// Answers a delivery that waits at `path`. Returns whether the run can continue with this
    /// answer.
    async fn answer(&mut self, path: &str, pending: &ScriptedDelivery) -> Result<bool, Error> {
        let delivery = &pending.delivery;
        let Some(turn) = self.script.next(path, delivery.call) else {
            self.report_missing(path, delivery.listener.as_str(), &delivery.messages);
            return Ok(false);
        };
        let failure = match turn {
            CaseTurn::Answer(text) => {
                let Some(request) = delivery.messages.first() else { return Ok(false) };
                let listener = &delivery.listener;
                match answer_payloads(self.config, listener, request, &text.text) {
                    Ok(payloads) => {
                        if let Some(refusal) = self.refusal(listener, &payloads) {
                            self.report(refused(path, turn.place(), &refusal));
                            return Ok(false);
                        }
                        self.script.give(path);
                        self.end(
                            pending,
                            Ok(Outcome { payloads, turn: None, ..Outcome::default() }),
                        );
                        return Ok(true);
                    }
                    Err(message) => {
                        let code = ProblemCode::AnswerRefused;
                        self.report(ConfigProblem::new(code, &text.place, message));
                        return Ok(false);
                    }
                }
            }
            CaseTurn::Fault { fault, reason, place } => {
                let detail = reason.clone().unwrap_or_else(|| "injected by the case".to_owned());
                match fault {
                    CaseFault::Timeout => return Ok(false),
                    CaseFault::Cancelled => {
                        self.cancel(&delivery.thread, detail).await?;
                        return Ok(true);
                    }
                    CaseFault::Denied => {
                        let message = format!("the call at `{path}` waits for no approval");
                        let help =
                            "only a call that a person has to approve or answer can be denied";
                        self.report(failed(place, message, help));
                        return Ok(false);
                    }
                    CaseFault::ListenerFailed => AttemptFailure::Crashed { detail },
                    CaseFault::Undeliverable => AttemptFailure::Unreachable { detail },
                    CaseFault::UnknownOutcome => AttemptFailure::Lost { detail },
                    CaseFault::BudgetSpent => AttemptFailure::Spent { detail },
                }
            }
        };

        self.end(pending, Err(failure));
        Ok(true)
    }

    /// Returns why the gate refuses an answer of `listener`. Returns `None` if the gate accepts the
    /// answer, or if `listener` is an agent, because the agent's next turn may correct the answer.
    fn refusal(&self, listener: &ListenerName, payloads: &[Vec<u8>]) -> Option<Refusal> {
        let contract = self.config.contracts.get(listener);
        if contract.is_some_and(|contract| contract.role == Role::Agent) {
            return None;
        }
        let mut checked =
            payloads.iter().map(|payload| self.handle.gated(listener.clone(), payload).payload);
        checked.find_map(Result::err)
    }

    fn end(&self, pending: &ScriptedDelivery, result: Result<Outcome, AttemptFailure>) {
        if let Some(taken) = self.pending.take(pending.delivery.call, pending.delivery.attempt) {
            taken.end(result);
        }
    }

    async fn cancel(&self, thread: &crate::ids::ThreadId, reason: String) -> Result<(), Error> {
        self.handle.cancel(thread.clone(), reason, None).await?.ok();
        Ok(())
    }

    /// Decides on a held call that waits at `path`. Returns whether the run can continue with this
    /// decision.
    async fn decide(&mut self, path: &str, held: &HeldRequest) -> Result<bool, Error> {
        let request = &held.request;
        let turn = self.script.next(path, CallId(request.id));
        let decision = match (turn, held.hold) {
            // Only a question times out here: a call that waits for approval is approved, and times
            // out at its listener.
            (Some(CaseTurn::Fault { fault: CaseFault::Timeout, .. }), Hold::Answer) => {
                return Ok(false);
            }
            (Some(CaseTurn::Fault { fault: CaseFault::Cancelled, reason, .. }), _) => {
                self.cancel(&request.thread, reason.clone().unwrap_or_default()).await?;
                return Ok(true);
            }
            (Some(CaseTurn::Fault { fault: CaseFault::Denied, reason, .. }), _) => {
                Decision::Refuse { reason: reason.clone().unwrap_or_default() }
            }
            (_, Hold::Approval) => {
                let hash = request.payload.digest.to_string();
                Decision::Approve { hash, preview: None }
            }
            (Some(CaseTurn::Answer(text)), Hold::Answer) => {
                let answers = answer_payloads(self.config, &request.to, request, &text.text);
                let payload = match answers.as_deref() {
                    Ok([payload]) => payload.clone(),
                    _ => text.text.trim().as_bytes().to_vec(),
                };
                Decision::Answer(self.handle.gated(request.to.clone(), &payload))
            }
            (Some(CaseTurn::Fault { fault, place, .. }), Hold::Answer) => {
                let message =
                    format!("a question to a person never ends with `{}`", fault.as_str());
                let help = "a question can end with timeout, denied or cancelled";
                self.report(failed(place, message, help));
                return Ok(false);
            }
            // The run does not wait for an answer to its undo report.
            (None, Hold::Answer) if is_undo_report(&request.name.local) => return Ok(false),
            (None, Hold::Answer) => {
                self.report_missing(path, request.to.as_str(), std::slice::from_ref(request));
                return Ok(false);
            }
        };

        let is_answer = matches!(decision, Decision::Answer(_));
        let ruled = self.handle.decide(request.id, decision, None).await?;
        match (ruled, turn) {
            (Ok(()), _) if is_answer => self.script.give(path),
            (Err(refusal), Some(turn)) => {
                self.report(refused(path, turn.place(), &refusal));
                return Ok(false);
            }
            _ => {}
        }
        Ok(true)
    }

    /// Adds a problem, unless it was added before. A problem of a waiting call is found in every
    /// step, as long as the call waits.
    fn report(&mut self, problem: ConfigProblem) {
        let is_same = |known: &ConfigProblem| {
            known.place.span == problem.place.span && known.message == problem.message
        };
        if !self.problems.iter().any(is_same) {
            self.problems.push(problem);
        }
    }

    /// Reports that the test case has no answer, or no further answer, for the call at `path`.
    /// Exception: if the latest message to the call is a `huh`, the core's error message, reports
    /// that the last answer was refused.
    fn report_missing(&mut self, path: &str, listener: &str, messages: &[std::sync::Arc<Message>]) {
        let huh = messages.last().and_then(|message| {
            let payload = Element::read_document(message.payload.as_str())?;
            (payload.local_name() == "huh").then_some(payload)
        });
        let answer = self.script.answer(path);
        if let (Some(huh), Some(last)) = (huh, answer.and_then(|answer| answer.turns.last())) {
            self.report(refused_by_gate(path, last, &huh));
            return;
        }

        let key = if path.contains(['.', '/']) { format!("\"{path}\"") } else { path.to_owned() };
        let (place, message, help) = match answer {
            Some(answer) => {
                let turns = answer.turns.len();
                let message = format!(
                    "`{listener}` is called at `{path}` once more than the case has answers: {turns}"
                );
                let help = format!("write a list: {key} = [\"first\", \"second\"]");
                (&answer.path.place, message, help)
            }
            None => {
                let message =
                    format!("`{listener}` is called at `{path}`, and has no answer there");
                let unused = self.script.unused().map(|(answer, _)| answer.path.text.as_str());
                let unused = unused.filter(|unused| !self.waiting.iter().any(|own| own == unused));
                let help = match nearest(path, unused) {
                    Some(near) => format!("did you mean it by `{near}`, which nothing has taken?"),
                    None => {
                        let example = messages
                            .first()
                            .map(|request| answer_example(self.config, &request.to, request));
                        let example = example.unwrap_or_default();
                        format!(
                            "add {key} = \"{example}\" to [case.answers], or {key} = {{ fail = \
                             \"timeout\" }}"
                        )
                    }
                };
                (&self.case.name.place, message, help)
            }
        };
        let problem = ConfigProblem::new(ProblemCode::AnswerMissing, place, message).help(help);
        self.report(problem);
    }

    /// Reports programs that have not answered within `limits::CASE_STEP_TIMEOUT`.
    fn report_working(&mut self, listeners: &BTreeSet<ListenerName>) {
        let names: Vec<_> = listeners.iter().map(ListenerName::as_str).collect();
        let names = names.join("`, `");
        let seconds = limits::CASE_STEP_TIMEOUT.as_secs();
        let message = format!("`{names}` has not answered within {seconds} s");
        let help = "let its program answer sooner, or take it out of `listeners` and answer for it";
        let place = self.case.listeners.iter();
        let mut place =
            place.filter(|listener| listeners.iter().any(|name| name.as_str() == listener.text));
        let place = place.next().map_or(&self.case.name.place, |listener| &listener.place);
        self.report(failed(place, message, help));
    }

    /// Reports that the run waits, and that neither an answer of the test case nor a time-out ends
    /// the wait.
    fn report_endless(&mut self) {
        let waiting = self.waiting.join("`, `");
        let message = format!("the run waits at `{waiting}`, and no time-out ends that");
        let help = "give the goal, or the person, a timeout; or let the case answer";
        self.report(failed(&self.case.name.place, message, help));
    }

    /// Reports answers of the test case that the run did not use.
    fn report_unused(&mut self) {
        let unused: Vec<_> = self.script.unused().collect();
        for (answer, turn) in unused {
            let path = &answer.path.text;
            let message = format!("nothing has taken this answer at `{path}`");
            let problem = ConfigProblem::new(ProblemCode::AnswerUnused, turn.place(), message);
            self.report(problem.help("take it out, or correct the path"));
        }
    }
}

/// Makes the problem for an agent's answer whose payloads were all refused by the gate.
fn refused_by_gate(path: &str, turn: &CaseTurn, huh: &Element) -> ConfigProblem {
    let texts = |name: &str| {
        let named = huh.children().filter(|child| child.local_name() == name);
        named.map(|child| child.text().trim().to_owned()).collect::<Vec<_>>().join("; ")
    };
    let message = format!("the answer at `{path}` is refused: {}", texts("reason"));
    let next = "correct it, or add the answer of the next turn";
    let help = match texts("expected") {
        expected if expected.is_empty() => next.to_owned(),
        expected => format!("expected: {expected}\n{next}"),
    };
    ConfigProblem::new(ProblemCode::AnswerRefused, turn.place(), message).help(help)
}

/// Takes the completion of the run's call; `None` if the call has not completed yet.
async fn take_ended(completions: &mut Completions) -> Option<CallCompletion> {
    tokio::select! {
        biased;
        completion = completions.next() => completion?.ok(),
        () = std::future::ready(()) => None,
    }
}
