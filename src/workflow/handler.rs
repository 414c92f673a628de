//! The handler of a workflow. It computes the outcome of each delivery of a call from the messages
//! of this call.
//!
//! The journal is the only lasting state: a run continues with the definition that it recorded when
//! it began. The state of a run is cached between deliveries. Without a cached state, the handler
//! computes it again from all messages of the call.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use crate::bus::memory::CallMemory;
use crate::bus::native_host::{self, HandlerContext, NativeHandler};
use crate::bus::{Delivery, Outcome};
use crate::contract::{Contracts, delegated_goal};
use crate::envelope::{AttemptFailure, Message};
use crate::ids::{Digest, ListenerName, MessageId};
use crate::limits;
use crate::locks::locked;
use crate::schema::Schemas;
use crate::system::spawn_thread;

use super::begun_run::{BeginError, RunBasis, definition_changed};
use super::call_fold::{CallFold, RunRequest, RunThreads, UndoSource};
use super::definition::WorkflowDefinition;
use super::delegation;
use super::forked_run::source_definition;
use super::graph::{GoalGraph, GoalIndex};
use super::input::alternate_children;
use super::payloads::{self, BOUND};
use super::questions;
use super::retry_rules::{addressed_once, called_once};
use super::run_clock::UncountedTimes;
use super::run_definition::{
    RetryRecord, RunDefinitions, recorded_definition, recorded_retries, run_rules_of,
    write_run_definition,
};
use super::run_retry::{RunArchive, RunRetry};
use super::run_state::{GoalCall, GoalFailure, RunState, RunStep};
use super::undo::{REPORT_LABEL, UndoRules, UndoStep};

/// The handler that carries out the runs of one workflow.
pub struct WorkflowHandler {
    workflow: ListenerName,
    definitions: RunDefinitions,
    /// Listeners to which a call must not be repeated after a time-out, according to the present
    /// contracts.
    once: HashSet<ListenerName>,
    undo: UndoRules,
    /// The schemas of the present config.
    schemas: Schemas,
    archive: Arc<dyn RunArchive>,
    /// States of runs, cached between deliveries. Each state is boxed, so that the empty entries of
    /// the cache's hash table take little memory. Up to half of the entries are empty.
    remembered: Mutex<CallMemory<Box<RememberedRun>>>,
    /// Cached indexes of goals, by the digest of the definition.
    indexes: Mutex<HashMap<Digest, Arc<GoalIndex>>>,
}

/// The state of a run after a delivery, cached for the next delivery.
struct RememberedRun {
    messages: usize,
    last: MessageId,
    state: RunState,
    threads: RunThreads,
}

/// The definition with which a run continues, and its digest.
struct RunDefinition {
    digest: Digest,
    definition: Arc<WorkflowDefinition>,
    /// Whether a message of the run records the definition.
    is_recorded: bool,
}

/// Why the state of a run cannot be computed from the messages of a delivery.
enum FoldError {
    /// The whole run fails for this reason.
    Failed(GoalFailure),
    /// Only this attempt of the delivery fails for this reason.
    Attempt(AttemptFailure),
}

impl FoldError {
    /// Creates an error that fails only the present attempt of the delivery, because a later
    /// attempt may succeed.
    fn unreadable(detail: String) -> Self {
        Self::Attempt(AttemptFailure::Crashed { detail })
    }

    fn crashed(detail: &str) -> Self {
        Self::unreadable(detail.to_owned())
    }
}

impl From<BeginError> for FoldError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Failed(failure) => Self::Failed(failure),
            BeginError::Unreadable(detail) => Self::unreadable(detail),
        }
    }
}

impl From<GoalFailure> for FoldError {
    fn from(failure: GoalFailure) -> Self {
        Self::Failed(failure)
    }
}

impl WorkflowHandler {
    pub fn new(
        workflow: ListenerName,
        definitions: RunDefinitions,
        contracts: &Contracts,
        schemas: &Schemas,
        archive: Arc<dyn RunArchive>,
    ) -> Self {
        let once = called_once(contracts);
        let undo = UndoRules::new(contracts, schemas);
        let remembered = Mutex::default();
        let indexes = Mutex::default();
        let schemas = schemas.clone();
        Self { workflow, definitions, once, undo, schemas, archive, remembered, indexes }
    }

    fn graph<'a>(&self, digest: Digest, definition: &'a WorkflowDefinition) -> GoalGraph<'a> {
        let mut indexes = locked(&self.indexes);
        if let Some(index) = indexes.get(&digest) {
            return GoalGraph::indexed(definition, Arc::clone(index));
        }

        let (graph, _) = GoalGraph::new(definition);
        indexes.insert(digest, graph.index());
        graph
    }

    /// Computes the outcome that follows from the new messages of a delivery.
    pub fn outcome(&self, delivery: &Delivery) -> Result<Outcome, AttemptFailure> {
        let request = delivery.messages.first();
        if let Some(request) = request.filter(|request| delegated_goal(&request.name).is_some()) {
            return delegation::outcome(delivery, request, &*self.archive);
        }

        match self.follow_up(delivery) {
            Ok(outcome) => Ok(outcome),
            Err(FoldError::Failed(failure)) => Ok(self.failed("", &failure)),
            Err(FoldError::Attempt(failure)) => Err(failure),
        }
    }

    fn follow_up(&self, delivery: &Delivery) -> Result<Outcome, FoldError> {
        let messages = delivery.messages.as_slice();
        let known = messages.len().saturating_sub(delivery.fresh);
        let request = messages.first().ok_or_else(|| FoldError::crashed("it has no request"))?;
        let found = self.definition_of(request, delivery)?;
        let definition = Arc::clone(&found.definition);
        let graph = self.graph(found.digest, &definition);
        let recorded = self.first_recorded_once(messages);
        let basis = RunBasis {
            definition: &definition,
            graph: &graph,
            once: recorded.as_ref().unwrap_or(&self.once),
            undo: Some(self.undo_source(delivery)),
            rules: run_rules_of(messages),
        };
        let (mut fold, folded) = self.fold(basis, delivery, request, known)?;

        let mut requests = Vec::new();
        if folded == 0 {
            let started = fold.start();
            if known == 0 {
                requests.extend(started);
            }
        }
        let mut was_over = false;
        let mut was_settling = false;
        let mut refused_replies = 0;
        for (position, message) in messages.iter().enumerate().skip(folded.max(1)) {
            if position == known {
                was_settling = fold.is_settling();
            }
            let is_over = fold.is_over();
            let taken = fold.take(message);
            if is_over && taken.is_empty() && fold.is_over() {
                was_over |= position == known;
                refused_replies += u32::from(payloads::is_refusal(message));
            }
            // The run has another result after this message, and replies with it.
            if taken.iter().any(|request| !matches!(request, RunRequest::CancelThread(_))) {
                was_over = false;
            }
            if position >= known {
                requests.extend(taken);
            }
        }

        if was_settling {
            for request in fold.cancel_kept_threads() {
                if !requests.contains(&request) {
                    requests.push(request);
                }
            }
        }
        if let Some(problem) = fold.unread() {
            return Err(FoldError::unreadable(problem.to_owned()));
        }
        if !fold.fits() {
            let goal = definition.goals.first().map(|goal| goal.id.value.as_str());
            return Ok(self.failed(goal.unwrap_or_default(), &definition_changed()));
        }

        if was_over && fold.is_over() {
            let fresh = messages.get(known..).unwrap_or_default();
            return self.refused_reply(&definition, fresh, refused_replies);
        }

        // The first payload records the definition, so that each later delivery contains the
        // record, and that a retry of the run finds it.
        let record = self.record_of(&found, &fold, known);
        let outcome = self.outcome_of(&definition, record, requests, fold.run().is_over());
        if !fold.is_over() {
            self.remember(delivery, fold);
        }
        Ok(outcome)
    }

    /// Returns the payload with which the run records its definition and the listeners to which it
    /// must not repeat a call after a time-out. Returns `None` in these cases:
    /// - The run has already recorded its definition, and the run is over.
    /// - The run has already recorded its definition, and its latest recorded listeners are still
    ///   right.
    /// - The run has not recorded its definition, but this is not its first delivery.
    ///
    /// The first `known` messages of the delivery were part of earlier deliveries.
    fn record_of(&self, run: &RunDefinition, fold: &CallFold<'_>, known: usize) -> Option<String> {
        let once = addressed_once(&run.definition, &self.once);
        // Only the first record decides: a run that an earlier version began keeps its rule.
        let retries = RetryRecord { once, is_stop_final: !run.is_recorded };
        let is_due = if run.is_recorded {
            !fold.is_over() && fold.recorded_once() != Some(&retries.once)
        } else {
            // A run that an early version of the program began has no record of its definition.
            known == 0
        };
        is_due.then(|| write_run_definition(run.digest, &retries))
    }

    /// Returns an outcome for a run whose reply the core has refused. The outcome replies with a
    /// failure that states only the reason for the refusal. If the core has already refused this
    /// failure, too, returns an error, which fails the attempt. `refused` is the number of replies
    /// refused so far.
    fn refused_reply(
        &self,
        definition: &WorkflowDefinition,
        fresh: &[Arc<Message>],
        refused: u32,
    ) -> Result<Outcome, FoldError> {
        let refusal = fresh.iter().find_map(|message| payloads::refusal_of(message));
        let failure = payloads::reply_refused(refusal.unwrap_or_default());
        if refused > 1 {
            let detail = failure.reason;
            return Err(FoldError::Attempt(AttemptFailure::TooLarge { detail }));
        }

        let goal = definition.goals.last().map(|goal| goal.id.value.as_str());
        Ok(self.failed(goal.unwrap_or_default(), &failure))
    }

    /// Returns the definition with which the run of this delivery continues.
    fn definition_of(
        &self,
        request: &Message,
        delivery: &Delivery,
    ) -> Result<RunDefinition, FoldError> {
        if let Some(digest) = self.recorded_in(&delivery.messages) {
            let definition = self.definition(digest)?;
            return Ok(RunDefinition { digest, definition, is_recorded: true });
        }

        let is_recorded = false;
        if let Some(digest) = self.retried_definition(request)? {
            let definition = self.definition(digest)?;
            return Ok(RunDefinition { digest, definition, is_recorded });
        }

        if let Some(source) = delivery.source.as_deref().filter(|source| !source.unpinned) {
            let found = source_definition(&*self.archive, &self.workflow, request, source);
            if let Some(digest) = found.map_err(FoldError::unreadable)? {
                let definition = self.definition(digest)?;
                return Ok(RunDefinition { digest, definition, is_recorded });
            }
        }

        let current = self.definitions.current.as_ref().ok_or_else(|| {
            let reason = format!("the config has no workflow `{}` any more", self.workflow);
            GoalFailure::new("definition-missing", reason)
        })?;
        let definition = Arc::clone(&current.definition);
        let digest = current.digest;
        Ok(RunDefinition { digest, definition, is_recorded })
    }

    /// Returns the listeners to which the run must not repeat a call after a time-out, according to
    /// the run's first record of these listeners. That record also applies to earlier messages of
    /// the run. Returns `None` if there is no such record.
    fn first_recorded_once(&self, messages: &[Arc<Message>]) -> Option<HashSet<ListenerName>> {
        let first = messages.iter().find_map(|message| recorded_retries(message, &self.workflow));
        first.map(|record| record.once.into_iter().collect())
    }

    fn undo_source<'a>(&'a self, delivery: &Delivery) -> UndoSource<'a> {
        UndoSource { rules: &self.undo, archive: &*self.archive, up_to: delivery.position }
    }

    fn recorded_in(&self, messages: &[Arc<Message>]) -> Option<Digest> {
        messages.iter().find_map(|message| recorded_definition(message, &self.workflow))
    }

    /// Returns the digest of the definition that the retried run used. Returns `None` if `request`
    /// is no retry, or if the earlier runs recorded no definition.
    fn retried_definition(&self, request: &Message) -> Result<Option<Digest>, FoldError> {
        let mut retry = RunRetry::read(request, &self.workflow).transpose()?;
        if retry.is_none() {
            return Ok(None);
        }

        let thread = self.archive.messages(&request.thread).map_err(FoldError::unreadable)?;
        // Ordering rule: the check for redactions comes after that of the caller, who must not get
        // the ids of other callers' messages. It comes before the walk below, which would give
        // another reason for a redaction.
        if let Some(retry) = &retry {
            retry.earlier_run(request, &thread)?;
            retry.check_unredacted(request.seq, &thread)?;
        }
        let mut request = request;
        let mut run;
        while let Some(earlier) = retry {
            run = earlier.earlier_run(request, &thread)?;
            if let Some(digest) = self.recorded_in(&run.messages) {
                return Ok(Some(digest));
            }
            let Some(opened) = thread.iter().find(|message| message.call == Some(earlier.run))
            else {
                break;
            };
            request = opened;
            retry = RunRetry::read(request, &self.workflow).transpose()?;
        }
        Ok(None)
    }

    fn definition(&self, digest: Digest) -> Result<Arc<WorkflowDefinition>, GoalFailure> {
        if let Some(definition) = self.definitions.of_digest(digest) {
            return Ok(Arc::clone(definition));
        }

        self.archive.definition(digest).map_err(|reason| {
            let reason = format!("the definition {digest} that the run began with: {reason}");
            GoalFailure::new("definition-missing", reason)
        })
    }

    fn failed(&self, goal: &str, failure: &GoalFailure) -> Outcome {
        let failed = payloads::failed(&self.workflow, goal, failure);
        Outcome { payloads: vec![failed.into_bytes()], ..Outcome::default() }
    }

    /// Returns a state of the run, and the number of messages of the delivery that this state
    /// already includes. The caller must apply the remaining messages. If no state is cached, the
    /// returned state is made from the request alone, and the number is 0.
    fn fold<'a>(
        &'a self,
        basis: RunBasis<'a>,
        delivery: &'a Delivery,
        request: &Message,
        known: usize,
    ) -> Result<(CallFold<'a>, usize), FoldError> {
        let undo = self.undo_source(delivery);
        let uncounted = UncountedTimes::Known(&delivery.uncounted);
        let last = known.checked_sub(1).and_then(|at| delivery.messages.get(at));
        let run = locked(&self.remembered).take(&delivery.call);
        let is_next = |run: &RememberedRun| {
            run.messages == known && last.is_some_and(|message| message.id == run.last)
        };
        if let Some(run) = run.filter(|run| is_next(run)) {
            let parts = (run.state, run.threads);
            let fold = CallFold::resumed(basis.definition, basis.graph, basis.once, parts);
            return Ok((fold.with_undo(undo).with_uncounted(uncounted), known));
        }

        let retry = RunRetry::read(request, &self.workflow).transpose()?;
        let thread = match &retry {
            Some(_) => self.archive.messages(&request.thread).map_err(FoldError::unreadable)?,
            None => Vec::new(),
        };
        // The earlier run may have been redacted while this retry was open.
        if let Some(retry) = &retry {
            retry.check_unredacted(request.seq, &thread)?;
        }
        // A retry that has begun goes on, also one that an earlier version of the program began.
        if let Some(retry) = retry.filter(|_| known == 0) {
            retry.check_first(request, &thread)?;
        }
        let fold = basis.begin(request, &thread)?;
        Ok((fold.with_undo(undo).with_uncounted(uncounted), 0))
    }

    fn remember(&self, delivery: &Delivery, fold: CallFold<'_>) {
        let Some(last) = delivery.messages.last() else { return };
        let (state, threads) = fold.into_parts();
        // Keeps the latest run whatever its size. Otherwise, each delivery would fold it again from
        // its first message.
        let bytes = state.kept_bytes().min(limits::REMEMBERED_BYTES_MAX);
        let messages = delivery.messages.len();
        let run = RememberedRun { messages, last: last.id, state, threads };
        locked(&self.remembered).put(delivery.call, Box::new(run), bytes);
    }

    /// Builds an outcome. It begins with `record`, the payload with which the run records its
    /// definition, if there is one. These payloads follow:
    /// - If the run has a result, the reply is the only payload.
    /// - If a person must get a report about calls that were not undone, the request for the thread
    ///   of this report is the only payload.
    /// - Otherwise, the payloads are the requests of the run, usually followed by a `wait` for the
    ///   next event. If the goals of the run are over, requests to open threads for goals are left
    ///   out.
    ///
    /// Each call names its listener. The present config may let another peer accept the payload,
    /// too, and a call of a run must not go to a listener that the definition does not name.
    fn outcome_of(
        &self,
        definition: &WorkflowDefinition,
        record: Option<String>,
        requests: Vec<RunRequest>,
        is_over: bool,
    ) -> Outcome {
        let payloads = record.into_iter().map(String::into_bytes).collect();
        let mut begun = Outcome { payloads, ..Outcome::default() };
        let mut outcome = begun.clone();
        let mut reply = None;
        for request in requests {
            let step = match request {
                RunRequest::Step(step) => *step,
                RunRequest::CancelThread(thread) => {
                    outcome.payloads.push(payloads::cancel(&thread).into_bytes());
                    continue;
                }
                RunRequest::Undo(UndoStep::Failed { goal, failure, left }) => {
                    // The latest failure counts. The reply lists the calls that were not undone.
                    reply = Some(payloads::undone(&self.workflow, goal.as_str(), &failure, &left));
                    continue;
                }
                RunRequest::Undo(UndoStep::Undo { label, listener, payload }) => {
                    let spawn = spawn_thread(&label, &payload.to_xml(), BOUND);
                    outcome.push_call(spawn.into_bytes(), listener);
                    continue;
                }
                RunRequest::Undo(UndoStep::Report { goal, failure, left }) => {
                    let report = questions::report(definition, goal.as_str(), &failure, &left);
                    // The run does not wait for an answer to the report, so the report outlives the
                    // run.
                    let spawn = spawn_thread(REPORT_LABEL, &report.to_xml(), "");
                    match &definition.report_to {
                        Some(human) => begun.push_call(spawn.into_bytes(), human.value.clone()),
                        None => begun.payloads.push(spawn.into_bytes()),
                    }
                    return begun;
                }
            };
            match step {
                RunStep::Complete { output } => {
                    begun.payloads.push(payloads::output(definition, &output).into_bytes());
                    return begun;
                }
                RunStep::Fail { goal, failure, .. } => {
                    begun.payloads.extend(self.failed(goal.as_str(), &failure).payloads);
                    return begun;
                }
                // A goal that became ready in the same delivery in which the run failed starts no
                // more.
                RunStep::Start { .. } if is_over => {}
                RunStep::Start { label, mut call, limits, .. } => {
                    if let GoalCall::Payload { payload, .. } = &mut call {
                        alternate_children(&self.schemas, payload);
                    }
                    let spawn = payloads::spawn(&label, &call, limits);
                    outcome.push_call(spawn.into_bytes(), call.callee().clone());
                }
                RunStep::Cancel { .. } => {}
            }
        }

        if let Some(reply) = reply {
            begun.payloads.push(reply.into_bytes());
            return begun;
        }
        outcome.payloads.push(payloads::wait().into_bytes());
        outcome
    }
}

impl NativeHandler for Arc<WorkflowHandler> {
    async fn handle(
        &self,
        delivery: Delivery,
        _: HandlerContext,
    ) -> Result<Outcome, AttemptFailure> {
        let handler = Self::clone(self);
        native_host::run_blocking(move || handler.outcome(&delivery)).await
    }
}

#[cfg(test)]
mod definition_tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::super::compile::compile;
    use super::super::read_compiled::read_compiled;
    use super::super::run_definition::IdentifiedDefinition;
    use super::*;
    use crate::clock::Time;
    use crate::contract::run_definition_name;
    use crate::envelope::{MessageKind, Payload};
    use crate::ids::{Attempt, CallId, Position, ThreadId};
    use crate::thread::Record;
    use crate::workflow::{GoalForm, GoalTarget, Mapping, PlaceId, Placed};
    use crate::xml::element::Element;
    use crate::xml::scan::scan;
    use crate::xml::shape::QName;

    /// Creates a definition with two goals that agents carry out.
    fn definition(first_goal: &str) -> WorkflowDefinition {
        let goal = |id: &str, need: &str| {
            format!(
                "<goal id=\"{id}\" retry=\"0\">{need}<agent name=\"writer\"><prompt>x</prompt></agent>\
                 <output/><on-failure>stop</on-failure></goal>"
            )
        };
        let text = format!(
            "<workflow xmlns=\"https://xml-pipeline.org/ns/workflow/v1\" name=\"tour\"><description>\
             </description><input type=\"children\"/><output of=\"last-goal\"/><on-failure>stop\
             </on-failure><peer>writer</peer>{}{}</workflow>",
            goal(first_goal, ""),
            goal("last", &format!("<need>{first_goal}</need>")),
        );
        read_compiled(&text).expect("it is a compiled form")
    }

    fn handler(current: Option<WorkflowDefinition>) -> WorkflowHandler {
        let current = current.map(|definition| IdentifiedDefinition {
            digest: compile(&definition).digest,
            definition: Arc::new(definition),
        });
        let definitions = RunDefinitions { current, ..RunDefinitions::default() };
        let contracts = Contracts::default();
        let schemas = Schemas::default();
        let archive = Arc::new(ThreadArchive(None));
        WorkflowHandler::new(name("tour"), definitions, &contracts, &schemas, archive)
    }

    /// An archive with the messages of one thread and nothing else. Without them, every read fails.
    pub struct ThreadArchive(pub Option<Vec<Arc<Message>>>);

    impl RunArchive for ThreadArchive {
        fn messages(&self, _: &ThreadId) -> Result<Vec<Arc<Message>>, String> {
            self.0.clone().ok_or_else(|| "there is no journal".to_owned())
        }

        fn definition(&self, _: Digest) -> Result<Arc<WorkflowDefinition>, String> {
            Err("there is no journal".to_owned())
        }

        fn tree_records(&self, _: Position) -> Result<Vec<Record>, String> {
            Err("there is no journal".to_owned())
        }

        fn handed_over(
            &self,
            _: &HashSet<CallId>,
            _: Position,
            _: Position,
        ) -> Result<HashSet<CallId>, String> {
            Ok(HashSet::new())
        }
    }

    fn name(text: &str) -> ListenerName {
        ListenerName::parse(text).expect("it is a name")
    }

    fn id(number: usize) -> MessageId {
        MessageId(Uuid::from_u128(number as u128 + 1))
    }

    /// Returns the outcome of a delivery whose last `fresh` messages are new.
    fn outcome(
        handler: &WorkflowHandler,
        messages: &[(MessageKind, &str, &str)],
        fresh: usize,
    ) -> Vec<String> {
        let thread = ThreadId::parse("sess-k3v9t2m8").expect("it is a thread");
        let messages = messages.iter().enumerate().map(|(number, (kind, from, payload))| {
            Arc::new(Message {
                id: id(number),
                kind: *kind,
                from: name(from),
                to: name("tour"),
                thread: thread.clone(),
                seq: number as u64 + 1,
                cause: None,
                call: Some(CallId(id(0))),
                time: Time(1),
                name: scan(payload.as_bytes()).expect("it is XML").name,
                payload: Payload::new(*payload),
            })
        });
        let delivery = Delivery {
            listener: name("tour"),
            call: CallId(id(0)),
            thread: thread.clone(),
            attempt: Attempt { epoch: 1, n: 1 },
            messages: messages.collect(),
            fresh,
            position: Position(9),
            timeout: Duration::from_secs(1),
            trace: None,
            preview: crate::bus::DeliveryPreview::None,
            source: None,
            uncounted: Vec::new(),
        };
        let outcome = handler.outcome(&delivery).expect("it answers");
        let texts = outcome.payloads.into_iter().map(String::from_utf8);
        texts.collect::<Result<_, _>>().expect("payloads are UTF-8")
    }

    const REQUEST: &str = "<tour xmlns=\"https://xml-pipeline.org/ns/workflow/v1/tour\"/>";
    const SPAWNED: &str = "<thread-spawned xmlns=\"https://xml-pipeline.org/ns/core/v1\" \
                           assigned_id=\"sess-k3v9t2m8.first\" parent_id=\"sess-k3v9t2m8\"/>";

    fn record_of(definition: &WorkflowDefinition) -> String {
        write_run_definition(
            compile(definition).digest,
            &RetryRecord { is_stop_final: true, ..RetryRecord::default() },
        )
    }

    #[test]
    fn the_first_outcome_of_a_run_begins_with_its_definition() {
        let definition = definition("first");
        let payloads =
            outcome(&handler(Some(definition.clone())), &[(MessageKind::Call, "desk", REQUEST)], 1);
        assert_eq!(payloads[0], record_of(&definition));
        assert!(payloads[1].contains("suggested_sub_id=\"first\""), "{payloads:?}");
        assert_eq!(payloads.len(), 3);
    }

    #[test]
    fn a_run_without_a_recorded_definition_goes_on_with_the_current_one_where_it_fits() {
        let messages =
            [(MessageKind::Call, "desk", REQUEST), (MessageKind::System, "core", SPAWNED)];
        let same = outcome(&handler(Some(definition("first"))), &messages, 1);
        assert_eq!(same, [payloads::wait()]);
        let other = outcome(&handler(Some(definition("other"))), &messages, 1);
        assert!(other[0].contains("<code>definition-changed</code>"), "{other:?}");
    }

    #[test]
    fn a_run_of_an_earlier_version_goes_on_with_the_first_of_several_nodes() {
        let mut definition = definition("first");
        let stop = Placed::new("input/stop".to_owned(), PlaceId::default());
        let with = Mapping::Fields(vec![("@stop".to_owned(), stop)]);
        let listener = Placed::new(name("writer"), PlaceId::default());
        let target = GoalTarget::Listener { listener, payload: None, with };
        definition.goals[0].form = GoalForm::Run(target);

        let request = REQUEST.replace("/>", "><stop>a</stop><stop>b</stop></tour>");
        let outcome_after = |record: &str| {
            let messages = [
                (MessageKind::Call, "desk", request.as_str()),
                (MessageKind::Own, "tour", record),
                (MessageKind::System, "core", SPAWNED),
            ];
            outcome(&handler(Some(definition.clone())), &messages, 2)
        };
        let digest = compile(&definition).digest.to_string();
        let earlier = Element::new(QName::from(&run_definition_name()));
        let earlier = earlier.with_attribute("digest", digest).to_xml();
        let payloads = outcome_after(&earlier);
        assert_eq!(payloads.last(), Some(&payloads::wait()));

        // The present version refuses several nodes, so it opens no thread.
        let failed = outcome_after(&record_of(&definition));
        assert!(failed[0].contains("<code>definition-changed</code>"), "{failed:?}");
    }

    #[test]
    fn a_run_whose_definition_is_missing_fails() {
        let record = record_of(&definition("first"));
        let messages =
            [(MessageKind::Call, "desk", REQUEST), (MessageKind::Own, "tour", record.as_str())];
        for current in [None, Some(definition("other"))] {
            let failed = outcome(&handler(current), &messages, 1);
            assert!(failed[0].contains("<code>definition-missing</code>"), "{failed:?}");
        }
        let failed = outcome(&handler(None), &messages[..1], 1);
        assert!(failed[0].contains("<code>definition-missing</code>"), "{failed:?}");
    }

    #[test]
    fn a_recorded_definition_counts_only_from_the_workflow_itself() {
        let record = write_run_definition(Digest::ZERO, &RetryRecord::default());
        let of_others =
            [(MessageKind::Own, "desk"), (MessageKind::Call, "tour"), (MessageKind::Reply, "tour")];
        for (kind, from) in of_others {
            let messages = [
                (MessageKind::Call, "desk", REQUEST),
                (kind, from, record.as_str()),
                (MessageKind::System, "core", SPAWNED),
            ];
            let payloads = outcome(&handler(Some(definition("first"))), &messages, 1);
            assert_eq!(payloads, [payloads::wait()], "{kind:?} {from}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::definition_tests::ThreadArchive;
    use super::*;
    use crate::clock::Time;
    use crate::contract::{Contract, Role, WORKFLOW_NAMESPACE, retry_name, run_definition_name};
    use crate::envelope::{MessageKind, Payload};
    use crate::ids::{Attempt, CallId, PayloadName, Position, ThreadId};
    use crate::system;
    use crate::thread::{Fact, Input, Opener, Opening, Record, UncountedTotal};
    use crate::workflow::definition::examples::{goal, name, placed, workflow};
    use crate::workflow::undo::label_of;
    use crate::workflow::{
        AskForm, FailurePolicy, GoalCondition, GoalForm, GoalId, GoalOutput, GoalPhase, GoalTarget,
        IdentifiedDefinition, LoopEnd, Mapping, RunRules, compile,
    };

    fn handler(timeout: Option<Duration>) -> WorkflowHandler {
        handler_under(timeout, &Contracts::default())
    }

    /// Creates the handler of a workflow with one goal, which has two attempts.
    fn handler_under(timeout: Option<Duration>, contracts: &Contracts) -> WorkflowHandler {
        let agent = placed(name("writer"));
        let prompt = placed("Write.".to_owned());
        let form = GoalForm::Run(GoalTarget::Agent { agent, prompt });
        handler_of(WorkflowDefinition { timeout, ..definition(form) }, contracts)
    }

    /// Creates the handler of a workflow that undoes its calls after a failure.
    fn undoing_handler(form: GoalForm) -> WorkflowHandler {
        let on_failure = FailurePolicy::Undo;
        let definition = WorkflowDefinition { on_failure, ..definition(form) };
        handler_of(definition, &Contracts::default())
    }

    /// Creates a workflow with one goal, which has two attempts.
    fn definition(form: GoalForm) -> WorkflowDefinition {
        workflow(vec![goal("draft", form)])
    }

    fn handler_of(definition: WorkflowDefinition, contracts: &Contracts) -> WorkflowHandler {
        handler_with(definition, contracts, &Schemas::default())
    }

    fn handler_with(
        definition: WorkflowDefinition,
        contracts: &Contracts,
        schemas: &Schemas,
    ) -> WorkflowHandler {
        let current = IdentifiedDefinition {
            digest: compile(&definition).digest,
            definition: Arc::new(definition),
        };
        let definitions = RunDefinitions { current: Some(current), ..RunDefinitions::default() };
        let archive = Arc::new(ThreadArchive(None));
        WorkflowHandler::new(name("flow"), definitions, contracts, schemas, archive)
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

    /// Returns the messages of a run whose only goal has ended.
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
        handle_with(handler, messages, fresh, &[])
    }

    fn handle_with(
        handler: &WorkflowHandler,
        messages: &[Arc<Message>],
        fresh: usize,
        uncounted: &[UncountedTotal],
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
            preview: crate::bus::DeliveryPreview::None,
            source: None,
            uncounted: uncounted.to_vec(),
        })?;
        Ok(outcome.payloads.into_iter().map(|one| String::from_utf8(one).unwrap()).collect())
    }

    /// Returns the messages of a run whose only goal has ended with `result` after two hours.
    fn ended_late(status: &str, result: &str) -> Vec<Arc<Message>> {
        let mut messages = ended();
        let attributes = format!("thread_id=\"sess-aaaaaaaa.draft\" status=\"{status}\"");
        let result = core(4, "thread-result", &attributes, result);
        let time = Time(1).plus(2 * HOUR);
        messages[3] = Arc::new(Message { time, ..Message::clone(&result) });
        messages
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A pause of an hour and a half before the result of the goal.
    const PAUSED: UncountedTotal =
        UncountedTotal { after: Time(0), total: Duration::from_secs(5_400) };

    #[test]
    fn values_for_a_repeated_group_are_sent_in_turn() {
        let types = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" \
                     targetNamespace=\"urn:test\" elementFormDefault=\"qualified\">\
                     <xs:element name=\"pairs\"><xs:complexType>\
                     <xs:sequence maxOccurs=\"unbounded\">\
                     <xs:element name=\"name\" type=\"xs:string\"/>\
                     <xs:element name=\"value\" type=\"xs:string\"/></xs:sequence>\
                     </xs:complexType></xs:element></xs:schema>";
        let mut schemas = Schemas::default();
        schemas.add_builtin("pairs", types).unwrap();
        let field = |name: &str| (name.to_owned(), placed(format!("input/{name}")));
        let target = GoalTarget::Listener {
            listener: placed(name("keeper")),
            payload: Some(placed(PayloadName::new("urn:test", "pairs"))),
            with: Mapping::Fields(vec![field("name"), field("value")]),
        };
        let definition = definition(GoalForm::Run(target));
        let handler = handler_with(definition, &Contracts::default(), &schemas);
        let values = "<name>a</name><name>b</name><value>1</value><value>2</value>";
        let request = format!("<flow>{values}</flow>");
        let messages = [message(1, PayloadName::new("urn:test", "flow"), &request)];
        let sent = handle(&handler, &messages, 1).unwrap().concat();
        let pairs = "<name>a</name><value>1</value><name>b</name><value>2</value></pairs>";
        assert!(sent.contains(pairs), "{sent}");
    }

    #[test]
    fn the_time_of_a_pause_does_not_count_for_a_run() {
        let messages = ended_late("completed", "<report>long</report>");
        let late = handle(&handler(Some(HOUR)), &messages, 1).unwrap().concat();
        assert!(late.contains("<code>timeout</code>"), "{late}");

        let paused = handle_with(&handler(Some(HOUR)), &messages, 1, &[PAUSED]).unwrap().concat();
        assert!(paused.contains("<flow-output"), "{paused}");
        // A state that was computed from the beginning again is the same.
        let again = handle_with(&handler(Some(HOUR)), &messages, 4, &[PAUSED]).unwrap().concat();
        assert!(again.contains("<flow-output"), "{again}");
    }

    #[test]
    fn a_goal_after_a_pause_gets_the_time_that_its_run_has_left() {
        let messages = ended_late("failed", "<writer-error code=\"crashed\"/>");
        let again = handle_with(&handler(Some(HOUR)), &messages, 1, &[PAUSED]).unwrap().concat();
        assert!(again.contains("suggested_sub_id=\"draft"), "{again}");
        assert!(again.contains("timeout=\"PT1800.000S"), "{again}");
    }

    #[test]
    fn a_retry_takes_over_what_ended_after_a_pause() {
        let handler = handler(Some(HOUR));
        let reply = message(5, PayloadName::new("urn:test", "flow-output"), "<flow-output/>");
        let result = Message { kind: MessageKind::Reply, ..Message::clone(&reply) };
        let messages = ended_late("completed", "<report>long</report>");
        let phase = phase_in_retry(&handler, messages, result, RunRules::Present);
        assert_eq!(phase, GoalPhase::Done);
    }

    /// Returns the phase of the first goal at the beginning of a retry that follows `rules`. The
    /// earlier run has the messages `messages` and the result `result`.
    fn phase_in_retry(
        handler: &WorkflowHandler,
        messages: Vec<Arc<Message>>,
        result: Message,
        rules: RunRules,
    ) -> GoalPhase {
        let (thread, retry) = retried(messages, result);
        let definition = &handler.definitions.current.as_ref().unwrap().definition;
        let (graph, _) = GoalGraph::new(definition);
        let once = &handler.once;
        let basis = RunBasis { definition, graph: &graph, once, undo: None, rules };
        let fold = basis.begin(&retry, &thread).ok().unwrap();
        let (phase, ..) = fold.run().status(0);
        phase
    }

    /// Returns the messages of a thread with one ended run, and the request for a retry of this run.
    /// The run has the messages `messages` and the result `result`.
    fn retried(messages: Vec<Arc<Message>>, result: Message) -> (Vec<Arc<Message>>, Message) {
        let run = CallId(MessageId(Uuid::from_u128(1)));
        let of_run = |(at, message): (usize, Arc<Message>)| {
            let (kind, from) = match at {
                0 => (MessageKind::Call, name("desk")),
                _ => (message.kind, message.from.clone()),
            };
            Arc::new(Message { kind, from, call: Some(run), ..Message::clone(&message) })
        };
        let mut thread: Vec<_> = messages.into_iter().enumerate().map(of_run).collect();
        let cause = Some(run.0);
        let (from, to) = (name("flow"), name("desk"));
        thread.push(Arc::new(Message { from, to, cause, ..result }));
        let request = RunRetry { run, from: None, again: false }.write(&name("flow")).to_xml();
        let retry = message(9, crate::contract::retry_name(&name("flow")), &request);
        let (kind, from) = (MessageKind::Call, name("desk"));
        (thread, Message { kind, from, ..Message::clone(&retry) })
    }

    /// An archive with one record, which has these facts.
    struct RecordArchive(Vec<Fact>);

    impl RunArchive for RecordArchive {
        fn messages(&self, _: &ThreadId) -> Result<Vec<Arc<Message>>, String> {
            Ok(Vec::new())
        }

        fn definition(&self, _: Digest) -> Result<Arc<WorkflowDefinition>, String> {
            Err("there is no definition".to_owned())
        }

        fn tree_records(&self, _: Position) -> Result<Vec<Record>, String> {
            Ok(vec![Record {
                position: Position(1),
                tree: ThreadId::parse("sess-aaaaaaaa").unwrap(),
                previous: Position(0),
                previous_hash: Digest::ZERO,
                time: Time(0),
                input: Input::Boot { detail: String::new() },
                facts: self.0.clone(),
            }])
        }

        fn handed_over(
            &self,
            _: &HashSet<CallId>,
            _: Position,
            _: Position,
        ) -> Result<HashSet<CallId>, String> {
            Ok(HashSet::new())
        }
    }

    /// Returns an archive in which the run `by` has undone the call of the goal `draft`.
    fn archive_with_undo(by: CallId) -> RecordArchive {
        let call = message(20, PayloadName::new("urn:test", "write"), "<write/>");
        let beneath = |label: &str| ThreadId::parse(&format!("sess-aaaaaaaa.{label}")).unwrap();
        let undo = beneath(&label_of(CallId(call.id)));
        let made = Message {
            kind: MessageKind::Call,
            from: name("flow"),
            to: name("writer"),
            thread: beneath("draft"),
            ..Message::clone(&call)
        };
        let opener = Opener::Client { name: name("flow") };
        let opening = Some(Opening { opener, group: None, forward: false });
        let workflow = name("flow");
        RecordArchive(vec![
            Fact::Accepted { message: Arc::new(made), opening, key: None },
            Fact::ThreadOpened { thread: undo, by: workflow, bound: Some(by), allotment: None },
        ])
    }

    /// Returns the phase of the goal `draft` at the beginning of the run that `request` begins. The
    /// run follows `rules`. The run with the number 6 has undone the call of the goal.
    fn phase_after_undo(request: &Message, thread: &[Arc<Message>], rules: RunRules) -> GoalPhase {
        let handler = handler(None);
        let definition = &handler.definitions.current.as_ref().unwrap().definition;
        let (graph, _) = GoalGraph::new(definition);
        let archive = archive_with_undo(CallId(MessageId(Uuid::from_u128(6))));
        let source = UndoSource { rules: &handler.undo, archive: &archive, up_to: Position(1) };
        let once = &handler.once;
        let basis = RunBasis { definition, graph: &graph, once, undo: Some(source), rules };
        basis.begin(request, thread).ok().unwrap().run().status(0).0
    }

    /// Returns the messages of a thread with an ended run, and the request for a retry of this run.
    fn completed_and_retried() -> (Vec<Arc<Message>>, Message) {
        let reply = message(5, PayloadName::new("urn:test", "flow-output"), "<flow-output/>");
        retried(ended(), Message { kind: MessageKind::Reply, ..Message::clone(&reply) })
    }

    fn retry_payload(run: u128) -> Payload {
        let retry =
            RunRetry { run: CallId(MessageId(Uuid::from_u128(run))), from: None, again: false };
        Payload::new(retry.write(&name("flow")).to_xml())
    }

    #[test]
    fn a_retry_runs_a_goal_again_if_another_retry_has_undone_its_call() {
        let (mut thread, retry) = completed_and_retried();
        let other = Message { id: MessageId(Uuid::from_u128(6)), seq: 6, ..retry.clone() };
        thread.push(Arc::new(other.clone()));
        let phase = |rules, thread: &[Arc<Message>]| phase_after_undo(&retry, thread, rules);
        assert_eq!(phase(RunRules::Present, &thread), GoalPhase::Waiting);
        assert_eq!(phase(RunRules::BeforeCore72, &thread), GoalPhase::Done);

        let mut redacted = other.clone();
        assert!(redacted.payload.restore(&"\0".repeat(redacted.payload.len())));
        *thread.last_mut().unwrap() = Arc::new(redacted);
        assert_eq!(phase(RunRules::Present, &thread), GoalPhase::Waiting, "it is not known");

        let unrelated = Message { payload: retry_payload(30), ..other.clone() };
        *thread.last_mut().unwrap() = Arc::new(unrelated);
        assert_eq!(phase(RunRules::Present, &thread), GoalPhase::Done, "of another run");
        *thread.last_mut().unwrap() = Arc::new(Message { from: name("auditor"), ..other });
        assert_eq!(phase(RunRules::Present, &thread), GoalPhase::Done, "of another caller");
        thread.pop();
        assert_eq!(phase(RunRules::Present, &thread), GoalPhase::Done, "no other retry");
    }

    #[test]
    fn a_retry_that_ended_before_its_first_outcome_follows_the_rules_of_its_retry() {
        let (mut thread, retry) = completed_and_retried();
        let number = |number: u128| MessageId(Uuid::from_u128(number));
        thread.push(Arc::new(Message { id: number(6), seq: 6, ..retry.clone() }));
        let ended = CallId(number(7));
        let request = Message { id: ended.0, seq: 7, call: Some(ended), ..retry.clone() };
        thread.push(Arc::new(request));
        let cancelled = core(8, "system-error", "code=\"cancelled\"", "");
        let cause = Some(ended.0);
        let result = Message { to: name("desk"), cause, ..Message::clone(&cancelled) };
        thread.push(Arc::new(result));

        let last = Message { payload: retry_payload(7), ..retry };
        assert_eq!(phase_after_undo(&last, &thread, RunRules::Present), GoalPhase::Waiting);
        assert_eq!(phase_after_undo(&last, &thread, RunRules::BeforeCore72), GoalPhase::Done);
    }

    #[test]
    fn a_retry_of_an_earlier_version_applies_policies_to_failures_after_the_end_of_its_run() {
        let agent = placed(name("writer"));
        let prompt = placed("Write.".to_owned());
        let mut definition = definition(GoalForm::Run(GoalTarget::Agent { agent, prompt }));
        definition.goals[0].on_failure = Some(FailurePolicy::Skip);
        let handler = handler_of(definition, &Contracts::default());
        let phase = |rules| {
            let mut messages = ended();
            let cancelled = "thread_id=\"sess-aaaaaaaa.draft\" status=\"cancelled\"";
            messages[3] = core(5, "thread-result", cancelled, "<system-error code=\"cancelled\"/>");
            let result = core(4, "system-error", "code=\"budget-spent\"", "x");
            phase_in_retry(&handler, messages, Message::clone(&result), rules)
        };
        assert_eq!(phase(RunRules::Present), GoalPhase::Waiting);
        assert_eq!(phase(RunRules::UnhandledFailures), GoalPhase::Skipped);
    }

    #[test]
    fn a_retry_applies_no_policy_because_of_an_output_that_its_run_did_not_handle() {
        let writer = || placed(name("writer"));
        let prompt = || placed("Write.".to_owned());
        let work = GoalForm::Loop {
            members: vec![placed(GoalId::parse("draft").unwrap())],
            until: GoalCondition::XPath(placed("false()".to_owned())),
            max: 1,
            at_max: LoopEnd::Fail,
        };
        let draft = GoalForm::Run(GoalTarget::Agent { agent: writer(), prompt: prompt() });
        let last = GoalForm::Run(GoalTarget::Agent { agent: writer(), prompt: prompt() });
        let goals = [("work", work), ("draft", draft), ("last", last)];
        let mut definition = workflow(goals.map(|(id, form)| goal(id, form)).into());
        definition.goals[0].on_failure = Some(FailurePolicy::Skip);
        let handler = handler_of(definition, &Contracts::default());
        let phase = |result| {
            let mut messages = ended();
            let spawned = "assigned_id=\"sess-aaaaaaaa.draft_1\" parent_id=\"sess-aaaaaaaa\"";
            messages[1] = core(2, "thread-spawned", spawned, "");
            let ended = "thread_id=\"sess-aaaaaaaa.draft_1\" status=\"completed\"";
            messages[3] = core(5, "thread-result", ended, "<report>long</report>");
            let result = core(result, "system-error", "code=\"cancelled\"", "x");
            phase_in_retry(&handler, messages, Message::clone(&result), RunRules::Present)
        };
        assert_eq!(phase(4), GoalPhase::Waiting, "the run has not ended the loop");
        assert_eq!(phase(6), GoalPhase::Skipped, "the run itself has skipped the loop");
    }

    /// Returns the message with which a run records its definition. The sequence number of the
    /// message is `seq`.
    fn recorded(handler: &WorkflowHandler, seq: u64) -> Arc<Message> {
        let payload = handle(handler, &ended()[..1], 1).unwrap().remove(0);
        let record = message(20 + seq, run_definition_name(), &payload);
        let (kind, from) = (MessageKind::Own, name("flow"));
        Arc::new(Message { kind, from, seq, ..Message::clone(&record) })
    }

    /// Returns contracts that allow only one attempt of a call to the agent `writer`.
    fn once_contracts() -> Contracts {
        let writer = Contract { attempts: 1, ..Contract::new(name("writer"), Role::Listener) };
        Contracts::new(vec![writer]).unwrap()
    }

    #[test]
    fn a_later_record_decides_about_later_messages_alone() {
        let before = handler(None);
        let after = handler_under(None, &once_contracts());
        let timed_out = "thread_id=\"sess-aaaaaaaa.draft\" status=\"failed\"";
        let mut messages = ended();
        messages.insert(1, recorded(&before, 1));
        // A delivery begins with the payloads of the run itself.
        messages.insert(4, recorded(&after, 9));
        messages[5] = core(4, "thread-result", timed_out, "<system-error code=\"timeout\"/>");
        let retried = handle(&after, &messages, 2).unwrap().concat();
        assert!(retried.contains("suggested_sub_id=\"draft"), "{retried}");

        messages[5] = core(10, "thread-result", timed_out, "<system-error code=\"timeout\"/>");
        let failed = handle(&after, &messages, 1).unwrap().concat();
        assert!(failed.starts_with("<flow-failed"), "{failed}");
    }

    #[test]
    fn a_run_repeats_a_stopped_workflow_only_if_it_began_before_the_rule() {
        let reply = format!(
            "<leg-failed xmlns=\"{WORKFLOW_NAMESPACE}/leg\"><goal>gate</goal>\
             <code>stopped</code><reason>no</reason></leg-failed>"
        );
        let completed = "thread_id=\"sess-aaaaaaaa.draft\" status=\"completed\"";
        let mut messages = ended();
        messages.insert(1, recorded(&handler(None), 1));
        messages[4] = core(4, "thread-result", completed, &reply);
        let failed = handle(&handler(None), &messages, 1).unwrap().concat();
        assert!(failed.starts_with("<flow-failed"), "{failed}");
        assert!(failed.contains("<code>stopped</code>"), "{failed}");

        let earlier = messages[1].payload.as_str().replace(" stopped=\"final\"", "");
        let payload = Payload::new(earlier);
        messages[1] = Arc::new(Message { payload, ..Message::clone(&messages[1]) });
        let retried = handle(&handler(None), &messages, 1).unwrap().concat();
        assert!(retried.contains("suggested_sub_id=\"draft"), "{retried}");

        // A record that a later version adds to such a run does not change its rule.
        let listed = handle(&handler_under(None, &once_contracts()), &messages, 1).unwrap();
        assert!(listed[0].contains(" once=\"writer\""), "{listed:?}");
        assert!(!listed[0].contains("stopped"), "{listed:?}");
    }

    #[test]
    fn a_run_of_an_earlier_version_judges_the_answer_of_a_person_by_its_name() {
        let human = placed(name("boss"));
        let form = AskForm::Output;
        let mut definition =
            definition(GoalForm::Ask { human, prompt: placed("Why?".to_owned()), form });
        let answer = PayloadName::new("urn:test", "ask-failed");
        definition.goals[0].output = GoalOutput::Payload(placed(answer));
        let handler = handler_of(definition, &Contracts::default());

        let mut messages = ended();
        let completed = "thread_id=\"sess-aaaaaaaa.draft\" status=\"completed\"";
        let answer = "<ask-failed xmlns=\"urn:test\"/>";
        messages[3] = core(4, "thread-result", completed, answer);
        let again = handle(&handler, &messages, 1).unwrap().concat();
        assert!(again.contains("suggested_sub_id=\"draft"), "{again}");

        messages.insert(1, recorded(&handler, 1));
        let output = handle(&handler, &messages, 1).unwrap().concat();
        assert!(output.contains("<flow-output"), "{output}");
    }

    #[test]
    fn a_refused_output_beside_a_dropped_request_begins_the_undo() {
        let agents = ["writer", "editor"].map(|agent| placed(name(agent))).to_vec();
        let prompt = placed("Write.".to_owned());
        let handler = undoing_handler(GoalForm::First { agents, prompt });
        let spawned = |seq: u64, agent: &str| {
            let id = format!("sess-aaaaaaaa.draft_{agent}");
            let attributes = format!("assigned_id=\"{id}\" parent_id=\"sess-aaaaaaaa\"");
            core(seq, "thread-spawned", &attributes, "")
        };
        let result = |seq: u64, agent: &str, status: &str, reply: &str| {
            let id = format!("sess-aaaaaaaa.draft_{agent}");
            let attributes = format!("thread_id=\"{id}\" status=\"{status}\"");
            core(seq, "thread-result", &attributes, reply)
        };

        let mut messages = vec![
            message(1, PayloadName::new("urn:test", "flow"), "<flow/>"),
            spawned(2, "writer"),
            spawned(3, "editor"),
            result(4, "writer", "failed", "<writer-error code=\"crashed\"/>"),
            result(5, "editor", "completed", "<report>long</report>"),
        ];
        let reply = handle(&handler, &messages, 2).unwrap().concat();
        assert!(reply.contains("<flow-output"), "{reply}");

        messages.push(refused(6, "too-large"));
        let failure = handle(&handler, &messages, 1).unwrap_err();
        let is_unread = matches!(failure, AttemptFailure::Crashed { .. });
        assert!(is_unread, "the undo reads the journal, which is missing here: {failure:?}");
    }

    #[test]
    fn the_result_of_an_undo_goes_before_the_refusal_of_a_reply() {
        let listener = placed(name("writer"));
        let with = Mapping::Element(placed("input/none".to_owned()));
        let target = GoalTarget::Listener { listener, payload: None, with };
        let handler = undoing_handler(GoalForm::Run(target));
        let report = "assigned_id=\"sess-aaaaaaaa.undo-report\" parent_id=\"sess-aaaaaaaa\"";
        let messages = [
            message(1, PayloadName::new("urn:test", "flow"), "<flow/>"),
            core(2, "budget-warning", "", ""),
            core(3, "thread-spawned", report, ""),
        ];
        let reply = handle(&handler, &messages, 2).unwrap().concat();
        assert!(reply.contains("<code>bad-expression</code>"), "{reply}");
    }

    #[test]
    fn a_changed_contract_changes_no_decision_on_record() {
        let before = handler(None);
        let after = handler_under(None, &once_contracts());
        let timed_out = "thread_id=\"sess-aaaaaaaa.draft\" status=\"failed\"";
        let mut messages = ended();
        messages.insert(1, recorded(&before, 1));
        messages[4] = core(4, "thread-result", timed_out, "<system-error code=\"timeout\"/>");
        let retried = handle(&before, &messages, 1).unwrap().concat();
        assert!(retried.contains("suggested_sub_id=\"draft"), "{retried}");

        let spawned = "assigned_id=\"sess-aaaaaaaa.draft-1\" parent_id=\"sess-aaaaaaaa\"";
        messages.push(core(5, "thread-spawned", spawned, ""));
        messages.push(core(6, "waiting", "", ""));
        let noted = handle(&after, &messages, 2).unwrap();
        assert!(noted[0].contains(" once=\"writer\""), "{noted:?}");
        assert_eq!(noted[1..], [payloads::wait()]);

        let result = "thread_id=\"sess-aaaaaaaa.draft-1\" status=\"completed\"";
        messages.push(core(7, "thread-result", result, "<report>long</report>"));
        let reply = handle(&after, &messages, 1).unwrap().concat();
        assert!(reply.starts_with("<flow-output"), "{reply}");
    }

    #[test]
    fn a_run_whose_reply_is_refused_replies_that_it_is_too_large() {
        let handler = handler(None);
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
        let handler = handler(None);
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

    #[test]
    fn a_retry_is_refused_as_redacted_only_by_the_caller_of_an_ended_run() {
        let call = |seq: u64, from: &str, text: &str| {
            let name = PayloadName::new("urn:test", "flow");
            let mut call = Message::clone(&message(seq, name, text));
            call.kind = MessageKind::Call;
            call.from = self::name(from);
            call.call = Some(CallId(call.id));
            call
        };
        let run = call(1, "desk", "\0\0\0\0");
        let ack = message(2, system::name("ack"), "<ack/>");
        let ack = Message { to: run.from.clone(), cause: Some(run.id), ..Message::clone(&ack) };
        let code_for = |from: &str, earlier: &[&Message]| {
            let retry = RunRetry { run: CallId(run.id), from: None, again: true };
            let mut request = call(3, from, &retry.write(&name("flow")).to_xml());
            request.name = retry_name(&name("flow"));
            let mut handler = handler(None);
            let earlier = earlier.iter().map(|message| Arc::new(Message::clone(message)));
            handler.archive = Arc::new(ThreadArchive(Some(earlier.collect())));
            match handler.retried_definition(&request) {
                Err(FoldError::Failed(failure)) => failure.code,
                _ => "none".to_owned(),
            }
        };
        assert_eq!(code_for("desk", &[&run, &ack]), "redacted");
        assert_eq!(code_for("desk", &[&run]), "run-not-ended");
        assert_eq!(code_for("other", &[&run, &ack]), "unknown-run");
    }
}
