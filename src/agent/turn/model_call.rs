//! The model call of one turn. Sends its requests, reserves their cost, and handles the
//! cancellation of the attempt.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::agent::history::MemoryItem;
use crate::agent::inputs::append_notice;
use crate::agent::protocol::{ParsedTurn, TurnReader, feedback, render};
use crate::agent::stream_buffer::{self, AnswerBuffer};
use crate::bus::ModelState;
use crate::bus::live::AnswerPart;
use crate::bus::native_host::HandlerContext;
use crate::envelope::{
    AttemptFailure, Money, NotReserved, Reservation, RouteLimit, RouteTry, Spending,
};
use crate::limits;
use crate::locks::locked;
use crate::model::{
    AdmissionFuture, AnswerChunk, CallAdmission, Error, ModelRequest, ModelRoute, ModelTerms,
    StopReason, StreamEnd, TokenUsage,
};
use crate::mutant::mutant;

use super::{ModelAgent, RenderedTurn};

/// Services that the process of an agent provides to the agent's turns.
pub trait TurnServices: Sync {
    /// Reserves the maximum cost of the model call's next request. Returns `None` if the pump has
    /// stopped.
    fn reserve(
        &self,
        reservation: Reservation,
    ) -> impl Future<Output = Option<Result<(), NotReserved>>> + Send;

    /// Completes when the attempt is cancelled, or when its host stops.
    fn cancelled(&self) -> impl Future<Output = ()> + Send;

    /// Whether the attempt must end because its host stops. Another host should repeat the attempt.
    fn is_host_stopping(&self) -> bool {
        false
    }

    /// Reports progress of the model's answer. This restarts the time-out of the attempt.
    fn progress(&self);

    /// Reports that the model call has entered a new state.
    fn model_state(&self, state: ModelState) {
        let _ = state;
    }

    /// Sends a part of the model's text to the readers of the live channel.
    fn model_text(&self, part: AnswerPart, text: &str) {
        let _ = (part, text);
    }
}

impl TurnServices for HandlerContext {
    async fn reserve(&self, reservation: Reservation) -> Option<Result<(), NotReserved>> {
        Self::reserve(self, reservation).await
    }

    async fn cancelled(&self) {
        Self::cancelled(self).await;
    }

    fn is_host_stopping(&self) -> bool {
        Self::is_host_stopping(self)
    }

    fn progress(&self) {
        self.heartbeat();
    }

    fn model_state(&self, state: ModelState) {
        Self::model_state(self, state);
    }

    fn model_text(&self, part: AnswerPart, text: &str) {
        Self::model_text(self, part, text);
    }
}

/// The complete answer to a model call: its text, the parsed turn, the summary of the stream, and
/// the cost of all requests of the call.
pub(super) struct ModelAnswer {
    pub raw: String,
    pub reading: ParsedTurn,
    pub end: StreamEnd,
    /// Cost of the requests whose routes have a price; `None` if none of the routes has one.
    pub money: Option<Money>,
    /// Duration of the request that was answered.
    pub latency: Duration,
    /// Earlier requests of the model call, which failed before this answer arrived.
    pub tries: Vec<RouteTry>,
}

/// A model call without an answer, and the cost of its requests.
struct FailedModelCall {
    /// The error with which the model call failed. `None` if the call was cancelled, or if its host
    /// stopped.
    error: Option<Error>,
    usage: Option<TokenUsage>,
    /// Cost of the requests whose routes have a price; `None` if none of the routes has one.
    money: Option<Money>,
    /// Duration of the last request; zero if no request was sent.
    latency: Duration,
    tries: Vec<RouteTry>,
}

/// Admission control for one model call. The cost of each request of the call is reserved before
/// the request is sent.
struct AdmittedRequests<'a, C> {
    agent: &'a ModelAgent,
    rendered: &'a RenderedTurn,
    context: &'a C,
    terms: &'a ModelTerms,
    request: &'a ModelRequest,
    /// Buffer of the answer. Its lock is held only to add one chunk, and never across an await. One
    /// task both admits requests and receives chunks, and would otherwise wait for itself forever.
    buffer: Mutex<AnswerBuffer>,
    /// Number of requests for which a reservation was made.
    count: AtomicU32,
}

/// Reports the progress of an answer, at most once in each interval.
struct ProgressReporter {
    interval: Duration,
    reported: Instant,
}

impl ProgressReporter {
    fn new(timeout: Duration) -> Self {
        let interval = limits::PROGRESS_INTERVAL.min(timeout / 8);
        Self { interval, reported: Instant::now() }
    }

    /// Handles the arrival of a chunk. A chunk is a piece of the answer, or an event of the model
    /// call, such as the failure of a request. Reports progress if the interval has passed since
    /// the last report.
    fn chunk_arrived(&mut self, context: &impl TurnServices) {
        if self.reported.elapsed() >= self.interval {
            self.reported = Instant::now();
            context.progress();
        }
    }
}

impl<C: TurnServices> AdmittedRequests<'_, C> {
    /// Returns usage and cost of the requests that failed so far.
    fn lost(&self) -> Spending {
        let lost = locked(&self.buffer).lost(self.terms, self.request);
        lost.map_or_else(Spending::default, |(usage, money)| spending(&usage, money))
    }

    /// Appends the tokens and the cost of the failed requests to `detail`, which states why a
    /// reservation was refused. The numbers in `detail` already include them.
    fn with_lost(&self, detail: String) -> String {
        let Spending { tokens, money } = self.lost();
        if tokens == 0 {
            return detail;
        }

        let price = if money.is_zero() { String::new() } else { format!(" and {money}") };
        format!(
            "{detail}; both numbers contain {tokens} tokens{price} that failed requests of this \
             model call have used"
        )
    }

    /// Reserves the cost of a request. First reserves an upper bound of the cost, which can be
    /// computed without counting tokens. If the budget does not cover this bound, counts the tokens
    /// and reserves their cost instead. `own_form` is the request as rendered for the route's
    /// provider, or `None` if `self.request` already has this form. Returns `None` if the pump has
    /// stopped.
    async fn reserve(
        &self,
        route: RouteLimit,
        own_form: Option<&ModelRequest>,
    ) -> Option<Result<(), NotReserved>> {
        let sent = own_form.unwrap_or(self.request);
        let request = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let lost = self.lost();
        let reservation = |next: Spending, counted| {
            let route = (route.most < u32::MAX).then(|| route.clone());
            Reservation { spending: lost.plus(next), counted, request, route }
        };

        let uncounted = reservation(self.terms.at_most(sent), false);

        match self.context.reserve(uncounted).await {
            Some(Err(NotReserved::Spent(_))) => {
                let tokens = self.terms.size(sent, None).total();
                self.context.reserve(reservation(self.terms.most(tokens), true)).await
            }
            answered => answered,
        }
    }
}

impl<C: TurnServices> CallAdmission for AdmittedRequests<'_, C> {
    fn admit<'a>(&'a self, route: ModelRoute, name: String, most: u32) -> AdmissionFuture<'a> {
        Box::pin(async move {
            let own_form = self.request_for(&route.provider);
            let limit = RouteLimit { route: name.clone(), most };
            match self.reserve(limit, own_form.as_ref()).await {
                Some(Ok(())) => {
                    // The wait for the new request's answer gets the whole time-out.
                    self.context.progress();
                    self.context.model_state(ModelState::Requested(route.to_string()));
                    locked(&self.buffer).begin(route, name);
                    Ok(())
                }
                Some(Err(NotReserved::Spent(detail))) => {
                    Err(Error::NoBudget { detail: self.with_lost(detail) })
                }
                Some(Err(NotReserved::Exhausted(detail))) => Err(Error::Exhausted { detail }),
                None => Err(Error::NoPump),
            }
        })
    }

    fn request_for(&self, provider: &str) -> Option<ModelRequest> {
        self.agent.request_for(self.rendered, provider)
    }
}

impl ModelAgent {
    /// Renders the request of a turn in the form for `provider`. Returns `None` if the request in
    /// `rendered` can be sent unchanged: it was rendered for `provider`, or all its native calls
    /// are XML.
    pub(super) fn request_for(
        &self,
        rendered: &RenderedTurn,
        provider: &str,
    ) -> Option<ModelRequest> {
        rendered.native.as_ref().filter(|native| *native != provider)?;
        let RenderedTurn { request, remembered, notice, .. } = rendered;
        Some(self.form_for(request, &remembered.items, notice.as_deref(), provider))
    }

    /// Renders a request in the forms for the providers of the agent's routes, except the provider
    /// `first`. `request` has the form for `first`, contains `items`, and ends with `notice`.
    /// Returns no forms if `first` is `None`, because all providers get the same form then. Also
    /// returns no forms if the model has no context window, because their sizes do not matter then.
    pub(super) fn other_forms(
        &self,
        request: &ModelRequest,
        items: &[MemoryItem],
        notice: Option<&str>,
        first: Option<&str>,
    ) -> Vec<ModelRequest> {
        let terms = &self.options.terms;
        let Some(first) = first.filter(|_| terms.window().is_some()) else { return Vec::new() };

        let providers = terms.routes().iter().map(|term| term.route.provider.as_str());
        let others: BTreeSet<_> = providers.filter(|provider| *provider != first).collect();
        let forms = others.into_iter().map(|other| self.form_for(request, items, notice, other));
        forms.collect()
    }

    fn form_for(
        &self,
        request: &ModelRequest,
        items: &[MemoryItem],
        notice: Option<&str>,
        provider: &str,
    ) -> ModelRequest {
        let agent = &self.options.contract.name;
        let version = self.options.version;
        let mut messages = render::conversation(items, agent, Some(provider), version);
        if let Some(notice) = notice {
            append_notice(&mut messages, notice.to_owned());
        }
        ModelRequest { messages, ..request.clone() }
    }

    /// Calls the model, and parses the model's text while the text streams. If the attempt is
    /// cancelled, closes the stream immediately.
    async fn call(
        &self,
        rendered: &RenderedTurn,
        context: &impl TurnServices,
        timeout: Duration,
    ) -> Result<ModelAnswer, FailedModelCall> {
        let terms = &self.options.terms;
        let request = &rendered.request;
        let buffer = Mutex::default();
        let count = AtomicU32::default();
        let agent = self;
        let requests = AdmittedRequests { agent, rendered, context, terms, request, buffer, count };

        let mut reading = rendered.protocol.start(&rendered.slots);
        let mut progress = ProgressReporter::new(timeout);

        let mut on_chunk = |chunk: AnswerChunk<'_>| {
            progress.chunk_arrived(context);
            let mut buffer = locked(&requests.buffer);
            if let Some(state) = buffer.changed_state(&chunk) {
                context.model_state(state);
            }

            match chunk {
                AnswerChunk::Text(text) => context.model_text(AnswerPart::Answer, text),
                AnswerChunk::Reasoning(text) => context.model_text(AnswerPart::Reasoning, text),
                _ => {}
            }

            buffer.keep(chunk);
            if matches!(chunk, AnswerChunk::Restart) {
                reading = rendered.protocol.start(&rendered.slots);
            } else if let Some(text) = buffer.unread(limits::READ_AT_ONCE_BYTES) {
                reading.push(text);
            }
        };

        let called = tokio::select! {
            // A complete answer counts even if the attempt is cancelled at the same time.
            biased;
            called = self.model.call_admitted(request, &mut on_chunk, &requests) => Some(called),
            () = context.cancelled(), if !mutant("let-the-stream-run") => None,
            () = keep_reporting_progress(context, timeout), if self.options.is_bounded_by_model => None,
        };

        context.model_state(ModelState::Ended);
        let mut buffer = requests.buffer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let error = match called {
            Some(Ok(end)) => {
                if let Some(text) = buffer.unread(1) {
                    reading.push(text);
                }
                return self.answered(rendered, buffer, reading, end);
            }
            Some(Err(error)) => Some(error),
            None => None,
        };

        match &error {
            Some(error) => buffer.fail(error),
            None => buffer.cancel(),
        }

        let latency = buffer.latency();
        let (usage, money) = buffer.lost(terms, request).unzip();
        let money = money.flatten();
        let tries = buffer.tries();
        Err(FailedModelCall { error, usage, money, latency, tries })
    }

    /// Completes an answer, and adds usage and cost of the requests that failed before the answer
    /// arrived.
    fn answered(
        &self,
        rendered: &RenderedTurn,
        buffer: AnswerBuffer,
        reading: TurnReader<'_>,
        mut end: StreamEnd,
    ) -> Result<ModelAnswer, FailedModelCall> {
        let terms = &self.options.terms;
        let latency = buffer.latency();
        let mut money = terms.cost(&end.route, buffer.route_name(), &end.usage);
        if let Some((usage, lost)) = buffer.lost(terms, &rendered.request) {
            end.usage = end.usage.and(Some(usage));
            money = stream_buffer::add_costs(money, lost);
        }

        if buffer.is_too_long {
            let error = Error::TooLong { route: end.route, max: limits::TURN_BYTES_MAX };
            let error = Some(error);
            let usage = Some(end.usage);
            let tries = buffer.tries();
            return Err(FailedModelCall { error, usage, money, latency, tries });
        }

        let reading = reading.finish(&buffer.raw, &buffer.thoughts, &end);
        let tries = buffer.tries();
        Ok(ModelAnswer { raw: buffer.raw, reading, end, money, latency, tries })
    }

    /// Calls the model and returns its answer. If the provider rejects a request that contains
    /// earlier output of the agent in this call, returns a turn without actions. The only effect of
    /// this turn is feedback to the agent. Any other failure is an error.
    pub(super) async fn answer(
        &self,
        rendered: &RenderedTurn,
        context: &impl TurnServices,
        timeout: Duration,
    ) -> Result<ModelAnswer, AttemptFailure> {
        match self.call(rendered, context, timeout).await {
            Ok(answered) => Ok(answered),
            Err(broken) if broken.error.is_none() && context.is_host_stopping() => {
                Err(host_stopped(broken))
            }
            Err(broken) => self.rejected(rendered, broken),
        }
    }

    /// Handles a failed model call. If the provider rejected the model's answer, or rejected the
    /// request and the request contains earlier output of the agent in this call, returns a turn
    /// without actions. This turn gives
    /// feedback to the agent, so that the agent's next request can differ. Any other failure is an
    /// error.
    fn rejected(
        &self,
        rendered: &RenderedTurn,
        broken: FailedModelCall,
    ) -> Result<ModelAnswer, AttemptFailure> {
        let message = broken.error.as_ref().and_then(Error::feedback);
        let rejection = broken.error.as_ref().and_then(Error::rejection);
        let is_of_answer = matches!(rejection, Some(Error::UnparsedAnswer { .. }));
        let message = message.filter(|_| is_of_answer || rendered.is_of_own_making());
        let Some(message) = message else { return Err(failure(broken)) };

        let stop = StopReason::Unknown;
        let usage = broken.usage.unwrap_or_default();
        let calls = Vec::new();
        let own = Vec::new();
        let route = rejection.and_then(Error::route).cloned();
        let route = route.unwrap_or_else(|| self.model.route());
        let end = StreamEnd { stop, usage, calls, own, route, settings: None, model: None };
        let reading = ParsedTurn::of_rejection(feedback::rejected(message));
        let FailedModelCall { money, latency, tries, .. } = broken;
        // A rejected request costs nothing.
        let terms = &self.options.terms;
        let money = money.or_else(|| terms.cost(&end.route, None, &TokenUsage::default()));
        Ok(ModelAnswer { raw: String::new(), reading, end, money, latency, tries })
    }
}

/// Returns the failure of a model call whose turn cannot be recorded, because its note would have
/// `bytes` bytes. The usage of the call is charged. `None` if the note is short enough.
pub(super) fn too_long_to_record(answered: &ModelAnswer, bytes: usize) -> Option<AttemptFailure> {
    let max = limits::CORE_PAYLOAD_BYTES_MAX;
    if bytes <= max {
        return None;
    }

    let ModelAnswer { end, money, tries, .. } = answered;
    let too_long = Error::TooLong { route: end.route.clone(), max: limits::ANSWER_BYTES_MAX };
    let detail = format!(
        "{}: the record of its answer would have {bytes} bytes, where {max} is the most",
        end.route
    );
    Some(AttemptFailure::Model {
        reason: too_long.word().to_owned(),
        detail,
        spent: spending(&end.usage, *money),
        passing: false,
        tries: tries.clone(),
    })
}

/// Reports progress at intervals, so that the time-out of the attempt does not end the model
/// call. The time-outs of the model bound each request of the call instead. Never completes.
async fn keep_reporting_progress(context: &impl TurnServices, timeout: Duration) {
    loop {
        tokio::time::sleep(timeout / 4).await;
        context.progress();
    }
}

fn spending(usage: &TokenUsage, money: Option<Money>) -> Spending {
    let tokens = usage.tokens_in.saturating_add(usage.tokens_out);
    Spending { tokens, money: money.unwrap_or_default() }
}

/// Returns the failure of a model call that was aborted because its host stopped. The pump charges
/// the requests of the call, and repeats the attempt.
fn host_stopped(broken: FailedModelCall) -> AttemptFailure {
    let FailedModelCall { usage, money, .. } = broken;
    let spent = spending(&usage.unwrap_or_default(), money);
    let detail = "its host was stopped before the model's answer was complete".to_owned();
    AttemptFailure::CutShort { detail, spent, retried: true }
}

fn failure(broken: FailedModelCall) -> AttemptFailure {
    let FailedModelCall { error, usage, money, tries, .. } = broken;
    let spent = spending(&usage.unwrap_or_default(), money);
    let Some(error) = error else {
        let detail = "its caller no longer wants the answer: the model's stream was closed";
        let reason = stream_buffer::CANCELLED.to_owned();
        let detail = detail.to_owned();
        return AttemptFailure::Model { reason, detail, spent, passing: false, tries };
    };

    match error.cause() {
        Error::NoBudget { detail } => AttemptFailure::Spent { detail: detail.clone() },
        Error::NoPump => AttemptFailure::Unreachable { detail: error.to_string() },
        _ => {
            let reason = error.word().to_owned();
            let detail = error.to_string();
            AttemptFailure::Model { reason, detail, spent, passing: error.is_retried(), tries }
        }
    }
}
