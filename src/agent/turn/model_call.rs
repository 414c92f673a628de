//! The model call of one turn: its requests, what they take, and its early end.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::agent::heard::{self, Heard};
use crate::agent::protocol::{Reading, Started, feedback};
use crate::bus::ModelState;
use crate::bus::native::HandlerContext;
use crate::envelope::{Failure, Money, NotReserved, Reservation, RouteLimit, RouteTry, Spending};
use crate::limits;
use crate::model::{
    AdmissionFuture, AnswerChunk, CallAdmission, Error, ModelRequest, ModelRoute, ModelTerms,
    StopReason, StreamEnd, TokenUsage,
};
use crate::mutant::mutant;

use super::{Agent, Rendered};

/// What a turn needs of the place where it is taken.
pub trait TurnContext: Sync {
    /// Reserves what the model call may take with its next request. `None`: the pump has stopped.
    fn reserve(
        &self,
        asked: Reservation,
    ) -> impl Future<Output = Option<Result<(), NotReserved>>> + Send;

    /// Returns when nobody wants the outcome any more.
    fn cancelled(&self) -> impl Future<Output = ()> + Send;

    /// The model's answer flows: the time-out of the attempt begins anew.
    fn progress(&self);

    /// What the model call waits for from now on.
    fn model_state(&self, state: ModelState) {
        let _ = state;
    }
}

impl TurnContext for HandlerContext {
    async fn reserve(&self, asked: Reservation) -> Option<Result<(), NotReserved>> {
        Self::reserve(self, asked).await
    }

    async fn cancelled(&self) {
        Self::cancelled(self).await;
    }

    fn progress(&self) {
        self.heartbeat();
    }

    fn model_state(&self, state: ModelState) {
        Self::model_state(self, state);
    }
}

/// A model's text, what was read in it, how it ended, and what all its requests cost.
pub(super) struct Answered {
    pub raw: String,
    pub reading: Reading,
    pub end: StreamEnd,
    pub money: Money,
    /// Requests that failed before it.
    pub tries: Vec<RouteTry>,
}

/// A call that came to no answer, and what its requests took.
pub(super) struct Broken {
    /// `None` where its caller no longer wanted it.
    error: Option<Error>,
    usage: Option<TokenUsage>,
    money: Money,
    tries: Vec<RouteTry>,
}

/// The requests of one model call, each admitted before it leaves.
struct Requests<'a, C> {
    context: &'a C,
    terms: &'a ModelTerms,
    request: &'a ModelRequest,
    heard: Mutex<Heard>,
    /// Requests so far.
    count: AtomicU32,
}

/// Reports progress, but not with every piece of an answer.
struct Progress {
    interval: Duration,
    reported: Instant,
}

impl Progress {
    fn new(timeout: Duration) -> Self {
        let interval = limits::PROGRESS_INTERVAL.min(timeout / 8);
        Self { interval, reported: Instant::now() }
    }

    /// What was received, or an announced pause, is progress. A failure is none.
    fn take(&mut self, chunk: &AnswerChunk<'_>, context: &impl TurnContext) {
        let is_progress = !matches!(chunk, AnswerChunk::Failed(_) | AnswerChunk::Restart);
        if is_progress && self.reported.elapsed() >= self.interval {
            self.reported = Instant::now();
            context.progress();
        }
    }
}

impl<C: TurnContext> Requests<'_, C> {
    /// Held for as long as it takes to keep a piece; never across an await.
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed requests took.
    fn lost(&self) -> Spending {
        let lost = self.heard().lost(self.terms, self.request);
        lost.map_or_else(Spending::default, |(usage, money)| spending(&usage, money))
    }

    /// Counting tokens takes longer than a reservation: what the request cannot exceed is tried
    /// first.
    async fn reserve(&self, route: RouteLimit) -> Option<Result<(), NotReserved>> {
        let request = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let lost = self.lost();
        let reservation = |next: Spending, counted| {
            let route = (route.most < u32::MAX).then(|| route.clone());
            Reservation { spending: lost.plus(next), counted, request, route }
        };

        let uncounted = reservation(self.terms.at_most(self.request), false);
        match self.context.reserve(uncounted).await {
            Some(Err(NotReserved::Spent(_))) => {
                let tokens = self.terms.size(self.request, None).total();
                self.context.reserve(reservation(self.terms.most(tokens), true)).await
            }
            answered => answered,
        }
    }
}

impl<C: TurnContext> CallAdmission for Requests<'_, C> {
    fn admit<'a>(&'a self, route: ModelRoute, name: String, most: u32) -> AdmissionFuture<'a> {
        Box::pin(async move {
            match self.reserve(RouteLimit { route: name, most }).await {
                Some(Ok(())) => {
                    self.context.model_state(ModelState::Requested(route.to_string()));
                    self.heard().begin(route);
                    Ok(())
                }
                Some(Err(NotReserved::Spent(detail))) => Err(Error::NoBudget { detail }),
                Some(Err(NotReserved::Exhausted(detail))) => Err(Error::Exhausted { detail }),
                None => Err(Error::NoPump),
            }
        })
    }
}

impl Agent {
    /// Reads the text as it streams. Ends the stream at once where nobody wants the outcome.
    pub(super) async fn call(
        &self,
        rendered: &Rendered,
        context: &impl TurnContext,
        timeout: Duration,
    ) -> Result<Answered, Broken> {
        let (terms, request) = (&self.options.terms, &rendered.request);
        let (heard, count) = (Mutex::default(), AtomicU32::default());
        let requests = Requests { context, terms, request, heard, count };
        let mut reading = self.protocol.start(&rendered.slots);
        let mut progress = Progress::new(timeout);
        let mut on_chunk = |chunk: AnswerChunk<'_>| {
            progress.take(&chunk, context);
            let mut heard = requests.heard();
            if let Some(state) = heard.changed_state(&chunk) {
                context.model_state(state);
            }
            heard.keep(chunk);
            if matches!(chunk, AnswerChunk::Restart) {
                reading = self.protocol.start(&rendered.slots);
            } else if let Some(text) = heard.unread(limits::READ_AT_ONCE_BYTES) {
                reading.push(text);
            }
        };

        let called = tokio::select! {
            // What is complete counts, even if its caller has just left.
            biased;
            called = self.model.call_admitted(request, &mut on_chunk, &requests) => Some(called),
            () = context.cancelled(), if !mutant("let-the-stream-run") => None,
        };

        context.model_state(ModelState::Ended);
        let mut heard = requests.heard.into_inner().unwrap_or_else(PoisonError::into_inner);
        let error = match called {
            Some(Ok(end)) => {
                if let Some(text) = heard.unread(1) {
                    reading.push(text);
                }
                return self.answered(rendered, heard, reading, end);
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        match &error {
            Some(error) => heard.fail(error),
            None => heard.cancel(),
        }
        let (usage, money) = heard.lost(terms, request).unzip();
        let (money, tries) = (money.unwrap_or_default(), heard.tries());
        Err(Broken { error, usage, money, tries })
    }

    /// The answer is complete. Failed requests before it are charged with it.
    fn answered(
        &self,
        rendered: &Rendered,
        heard: Heard,
        reading: Started<'_>,
        mut end: StreamEnd,
    ) -> Result<Answered, Broken> {
        let terms = &self.options.terms;
        let mut money = terms.cost(&end.route, &end.usage);
        if let Some((usage, lost)) = heard.lost(terms, &rendered.request) {
            end.usage = end.usage.and(Some(usage));
            money = money.plus(lost);
        }
        if heard.is_too_long {
            let error = Error::TooLong { route: end.route, max: limits::TURN_BYTES_MAX };
            let (error, usage, tries) = (Some(error), Some(end.usage), heard.tries());
            return Err(Broken { error, usage, money, tries });
        }
        let reading = reading.finish(&heard.raw, &heard.thoughts, &end);
        let tries = heard.tries();
        Ok(Answered { raw: heard.raw, reading, end, money, tries })
    }

    /// A request that no provider would take is a turn in which nothing was done, and the agent gets
    /// feedback, if it has written anything that is in the request: its next one can differ then.
    /// Any other error fails the attempt.
    pub(super) fn rejected(
        &self,
        rendered: &Rendered,
        broken: Broken,
    ) -> Result<Answered, Failure> {
        let message = broken.error.as_ref().and_then(Error::feedback);
        let message = message.filter(|_| rendered.is_of_own_making());
        let Some(message) = message else { return Err(failure(broken)) };

        let (stop, usage) = (StopReason::Unknown, broken.usage.unwrap_or_default());
        let (calls, own, model) = (Vec::new(), Vec::new(), None);
        let end = StreamEnd { stop, usage, calls, own, route: self.model.route(), model };
        let finding = feedback::rejected(message);
        let (findings, told) = (vec![finding.clone()], vec![finding]);
        let reading = Reading { findings, told, ..Reading::default() };
        let (money, tries) = (broken.money, broken.tries);
        Ok(Answered { raw: String::new(), reading, end, money, tries })
    }
}

fn spending(usage: &TokenUsage, money: Money) -> Spending {
    Spending { tokens: usage.tokens_in.saturating_add(usage.tokens_out), money }
}

fn failure(broken: Broken) -> Failure {
    let Broken { error, usage, money, tries } = broken;
    let spent = spending(&usage.unwrap_or_default(), money);
    let Some(error) = error else {
        let detail = "its caller no longer wants the answer: the model's stream was closed";
        let (reason, detail) = (heard::CANCELLED.to_owned(), detail.to_owned());
        return Failure::Model { reason, detail, spent, passing: false, tries };
    };
    match error.cause() {
        Error::NoBudget { detail } => Failure::Spent { detail: detail.clone() },
        Error::NoPump => Failure::Unreachable { detail: error.to_string() },
        _ => {
            let (reason, detail) = (error.word().to_owned(), error.to_string());
            Failure::Model { reason, detail, spent, passing: error.is_retried(), tries }
        }
    }
}
