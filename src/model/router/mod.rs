//! The router: chooses the route of a call, retries, and limits the rate.
//!
//! A call tries its routes in the order of the strategy until one answers. A temporary failure is
//! retried in later rounds, after a backoff. A failure that concerns one provider alone is retried
//! on the other routes. If an answer breaks off, the router sends [`AnswerChunk::Restart`] before
//! the next answer, so that the receiver drops the incomplete text. The router waits only between
//! attempts. Dropping a call ends it immediately.

mod backoff;
mod limiter;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

pub use backoff::JitterSource;
pub use limiter::{CallPermit, RateLimiter, RateLimits};

use super::answer::{AnswerChunk, ModelRoute, StreamEnd};
use super::error::Error;
use super::request::ModelRequest;
use super::{
    CallAdmission, CallFuture, ModelProvider, OnChunk, SharedModel, WireSettings, estimate,
};
use crate::limits;
use crate::locks::locked;
use crate::mutant::mutant;

/// Order in which routes are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RoutingStrategy {
    /// Tries the routes in the order of the config. Tries a route only after the previous route has
    /// failed (failover).
    #[default]
    Failover,
    /// Rotates the routes: each call begins one route further in the list than the previous call.
    RoundRobin,
    /// Begins with the route that has the smallest load relative to its limit.
    LeastLoaded,
}

/// A model and its rate limiter, which all callers share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RoutedModel {
    pub model: SharedModel,
    pub limiter: Arc<RateLimiter>,
}

impl RoutedModel {
    pub fn new(model: SharedModel, pace: RateLimits) -> Self {
        Self { model, limiter: Arc::new(RateLimiter::new(pace)) }
    }
}

/// Several models that can replace each other, or one model with retries.
#[derive(Debug)]
pub struct ModelRouter {
    routes: Vec<RoutedModel>,
    strategy: RoutingStrategy,
    /// Maximum number of rounds in which a call tries its routes.
    attempts: u32,
    next: AtomicUsize,
    /// Source of random delays. All calls share it, so that their delays differ.
    jitter: Mutex<JitterSource>,
}

impl ModelRouter {
    /// Makes a router over `routes`, which must not be empty.
    pub fn new(routes: Vec<RoutedModel>, strategy: RoutingStrategy, attempts: u32) -> Self {
        debug_assert!(!routes.is_empty(), "a router without routes asks nobody");
        let jitter = Mutex::new(JitterSource::of_system());
        Self { routes, strategy, attempts, next: AtomicUsize::new(0), jitter }
    }

    /// Sets the seed of the jitter, so that every run has the same delays.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.jitter = Mutex::new(JitterSource::seeded(seed));
        self
    }

    fn order(&self) -> Vec<&RoutedModel> {
        let mut order: Vec<&RoutedModel> = self.routes.iter().collect();
        match self.strategy {
            RoutingStrategy::Failover => {}
            RoutingStrategy::RoundRobin => {
                let first = self.next.fetch_add(1, Ordering::Relaxed);
                let routes = order.len().max(1);
                order.rotate_left(first % routes);
            }
            // Routes with the same load keep the order of the config.
            RoutingStrategy::LeastLoaded => {
                order.sort_by(|a, b| a.limiter.load().total_cmp(&b.limiter.load()));
            }
        }

        order
    }

    /// Returns the name of a route in reservations and for its price. If two routes have the same
    /// provider and model, a number distinguishes them.
    fn name_of(&self, route: &RoutedModel) -> String {
        let own = route.model.route();
        let namesakes = self.routes.iter().filter(|other| other.model.route() == own);
        let place = namesakes.take_while(|other| !std::ptr::eq(*other, route)).count();
        own.router_name(place)
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
        admission: Option<&dyn CallAdmission>,
    ) -> Result<StreamEnd, Error> {
        let most = self.attempts.max(1);
        let mut trial = CallAttempts {
            request,
            on_chunk,
            admission,
            most,
            order: self.order(),
            untried: Vec::new(),
            is_void: false,
            tries: 0,
            failures: Vec::new(),
        };

        for round in 1..=most {
            if round > 1 {
                let pause = locked(&self.jitter).pause(round - 1);
                tokio::time::sleep(pause).await;
            }

            trial.untried = trial.order.clone();
            while let Some(route) = trial.next_route(round == most).await {
                match trial.ask(route, self.name_of(route)).await {
                    RetryDecision::Answered(end) => return Ok(*end),
                    RetryDecision::Final => return Err(trial.failed_finally()),
                    RetryDecision::NotAdmitted(why) => return Err(trial.not_admitted(why)),
                    RetryDecision::NotHere => trial.remove(route),
                    RetryDecision::Later => trial.skip_in_round(route),
                    RetryDecision::Paused => {}
                }
            }

            if trial.order.is_empty() {
                break;
            }
        }

        Err(trial.gave_up())
    }
}

/// One call with all its attempts on all routes.
struct CallAttempts<'a> {
    request: &'a ModelRequest,
    on_chunk: OnChunk<'a>,
    admission: Option<&'a dyn CallAdmission>,
    /// Maximum number of requests to each route.
    most: u32,
    /// The routes on which an attempt may still succeed, in the order of the strategy.
    order: Vec<&'a RoutedModel>,
    /// The routes of `order` that were not tried in the present round.
    untried: Vec<&'a RoutedModel>,
    /// Whether the receiver has text of an incomplete answer. If so, [`AnswerChunk::Restart`] must
    /// come before the next answer, so that the receiver drops this text.
    is_void: bool,
    tries: u32,
    /// The latest error of each route that failed, in the order in which they happened.
    failures: Vec<RouteFailure<'a>>,
}

/// The latest error of a route in one call.
struct RouteFailure<'a> {
    route: &'a RoutedModel,
    error: Error,
}

enum RetryDecision {
    Answered(Box<StreamEnd>),
    /// A later attempt may succeed, on this route or on another route.
    Later,
    /// No attempt on this route can succeed, but another route may succeed.
    NotHere,
    /// No request was sent, because the provider requested a pause while the call waited for the
    /// limits of the model.
    Paused,
    /// No further attempt can succeed, on whatever route.
    Final,
    /// The budget or the pump admits no further request.
    NotAdmitted(Error),
}

impl<'a> CallAttempts<'a> {
    /// Returns the route to try next in the present round: the first untried route whose provider
    /// has not requested a pause. Returns `None` if no untried route is left. If every untried
    /// route has a pause, there are two cases:
    /// - If another route was tried in this round and a further round follows, returns `None`. The
    ///   next round tries the routes with a pause, too.
    /// - Otherwise, waits until an untried route has no pause, and returns this route.
    async fn next_route(&mut self, is_last_round: bool) -> Option<&'a RoutedModel> {
        loop {
            self.remove_long_pauses();
            let routes = self.untried.iter().map(|route| (route.limiter.rests_until(), *route));
            let (until, route) = routes.min_by_key(|(until, _)| *until)?;
            let Some(until) = until else { return Some(route) };

            let is_other_tried = self.untried.len() < self.order.len();
            if is_other_tried && !is_last_round {
                return None;
            }

            (self.on_chunk)(AnswerChunk::Waiting(&route.model.route(), until));
            // A later response may change a pause, so all pauses are read again after a while.
            let look = Instant::now() + limits::MODEL_PAUSE_CHECK_INTERVAL;
            tokio::time::sleep_until(until.min(look)).await;
        }
    }

    /// Removes each untried route whose pause is longer than the maximum wait. Such a route counts
    /// as failed.
    fn remove_long_pauses(&mut self) {
        let now = Instant::now();
        for route in self.untried.clone() {
            let until = route.limiter.rests_until();
            let rest = until.map_or(Duration::ZERO, |until| until.duration_since(now));
            if rest > limits::RETRY_AFTER_MAX {
                self.record_skipped(route, rest);
                self.remove(route);
            }
        }
    }

    /// Removes a route on which no attempt can succeed.
    fn remove(&mut self, route: &RoutedModel) {
        self.order.retain(|other| !std::ptr::eq(*other, route));
        self.skip_in_round(route);
    }

    /// Leaves out a route in the rest of the present round.
    fn skip_in_round(&mut self, route: &RoutedModel) {
        self.untried.retain(|other| !std::ptr::eq(*other, route));
    }

    /// Records that a route was skipped because its provider had requested a pause.
    fn record_skipped(&mut self, skipped: &'a RoutedModel, rest: Duration) {
        let route = skipped.model.route();
        let message = "it asked to be left alone after an earlier request".to_owned();
        let retry_after = Some(Duration::from_secs(rest.as_secs()));
        let error = Error::RateLimited { route, message, retry_after };
        self.record_failure(skipped, error);
    }

    /// Reports the error of a route, and keeps it as the latest one of this route.
    fn record_failure(&mut self, route: &'a RoutedModel, error: Error) {
        (self.on_chunk)(AnswerChunk::Failed(&error));
        self.failures.retain(|failure| !std::ptr::eq(failure.route, route));
        self.failures.push(RouteFailure { route, error });
    }

    /// Records that an earlier process has made all attempts on a route. Any other error says more.
    fn record_exhausted(&mut self, route: &'a RoutedModel, error: Error) {
        if self.failures.is_empty() {
            self.failures.push(RouteFailure { route, error });
        }
    }

    /// Waits until the limits of a route's model allow the request. Reports the wait repeatedly, so
    /// that the time of the wait does not count as time without progress. Returns `None` if the
    /// provider requests a pause before the limits allow the request.
    async fn permit(&mut self, route: &'a RoutedModel) -> Option<CallPermit<'a>> {
        let limiter = &route.limiter;
        let answer = route.model.answer_bound(self.request);
        let answer = u64::from(answer.unwrap_or(limits::ANSWER_TOKENS_DEFAULT));
        let admitted = limiter.enter(estimate::of_request(self.request).saturating_add(answer));
        let mut admitted = std::pin::pin!(admitted);
        loop {
            let interval = limits::MODEL_PAUSE_CHECK_INTERVAL;
            let permit = tokio::time::timeout(interval, admitted.as_mut()).await.ok();
            if limiter.rests_until().is_some() {
                return None;
            }
            if permit.is_some() {
                return permit;
            }
            (self.on_chunk)(AnswerChunk::Queued);
        }
    }

    async fn ask(&mut self, route: &'a RoutedModel, name: String) -> RetryDecision {
        let Some(mut permit) = self.permit(route).await else { return RetryDecision::Paused };
        if let Some(admission) = self.admission {
            match admission.admit(route.model.route(), name, self.most).await {
                Ok(()) => {}
                Err(error @ Error::Exhausted { .. }) => {
                    self.record_exhausted(route, error);
                    return RetryDecision::NotHere;
                }
                Err(error) => return RetryDecision::NotAdmitted(error),
            }
        }

        if std::mem::take(&mut self.is_void) && !mutant("mix-two-answers") {
            (self.on_chunk)(AnswerChunk::Restart);
        }

        self.tries += 1;
        let mut has_begun = false;
        let on_chunk = &mut self.on_chunk;
        let mut forward = |chunk: AnswerChunk<'_>| {
            // The receiver has no text to drop yet.
            has_begun |= chunk != AnswerChunk::Begun;
            on_chunk(chunk);
        };

        let provider = route.model.route().provider;
        let own_form = self.admission.and_then(|admission| admission.request_for(&provider));
        let request = own_form.as_ref().unwrap_or(self.request);
        permit.mark_sent();
        let called = route.model.call(request, &mut forward).await;
        self.is_void = has_begun;

        match called {
            Ok(end) => {
                permit.succeeded(&end.usage);
                RetryDecision::Answered(Box::new(end))
            }
            Err(error) => {
                permit.failed(&error);
                let decision = worth(&error);
                tracing::info!("{error}");
                self.record_failure(route, error);
                decision
            }
        }
    }

    /// Returns the error of the call after `why`, the reason why no further request is admitted.
    fn not_admitted(self, why: Error) -> Error {
        if self.tries == 0 {
            return why;
        }
        Error::NotRepeated { last: Box::new(self.gave_up()), why: Box::new(why) }
    }

    /// Returns the error of the call after an error that ends it. This error is the latest one, and
    /// decides that a retry of the whole call cannot help.
    fn failed_finally(self) -> Error {
        let latest = self.failures.len().saturating_sub(1);
        self.failed_because_of(latest)
    }

    /// Returns the error of the call after all its attempts. The error that decides whether a retry
    /// of the whole call may help is the latest one after which a retry may help, on whatever
    /// route. If there is none, it is the latest error.
    fn gave_up(self) -> Error {
        let retried = self.failures.iter().rposition(|failure| failure.error.is_retried());
        let latest = self.failures.len().saturating_sub(1);
        self.failed_because_of(retried.unwrap_or(latest))
    }

    /// Returns the error of the call with the errors of all routes. `deciding` is the index of the
    /// failure that decides whether a retry of the whole call may help.
    fn failed_because_of(mut self, deciding: usize) -> Error {
        if self.failures.is_empty() {
            let route = ModelRoute { provider: "router".to_owned(), model: String::new() };
            return Error::Cut { route, bytes: 0 };
        }

        let last = self.failures.remove(deciding).error;
        let others: Vec<_> = self.failures.into_iter().map(|failure| failure.error).collect();
        if self.tries > 1 || !others.is_empty() {
            Error::GaveUp { tries: self.tries, last: Box::new(last), others }
        } else {
            last
        }
    }
}

fn worth(error: &Error) -> RetryDecision {
    let too_long = error.retry_after().is_some_and(|after| after > limits::RETRY_AFTER_MAX);
    match (error.is_retried(), error.is_for_another_route()) {
        (true, _) if !too_long => RetryDecision::Later,
        (_, true) => RetryDecision::NotHere,
        _ => RetryDecision::Final,
    }
}

impl ModelProvider for ModelRouter {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(self.answer(request, on_chunk, None))
    }

    fn call_admitted<'a>(
        &'a self,
        request: &'a ModelRequest,
        on_chunk: OnChunk<'a>,
        admission: &'a dyn CallAdmission,
    ) -> CallFuture<'a> {
        Box::pin(self.answer(request, on_chunk, Some(admission)))
    }

    fn route(&self) -> ModelRoute {
        let first = self.routes.first().map(|route| route.model.route());
        first.unwrap_or_else(|| ModelRoute { provider: "router".to_owned(), model: String::new() })
    }

    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        self.routes.iter().flat_map(|own| own.model.settings(route)).collect()
    }
}
