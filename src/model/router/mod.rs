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
    /// Takes the routes in turn: each call begins one route further in the list than the previous
    /// call.
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

    /// Returns the name of a route in metrics. If two routes have the same provider and model, a
    /// number distinguishes them.
    fn name_of(&self, route: &RoutedModel) -> String {
        let name = route.model.route().to_string();
        let namesakes = self.routes.iter().filter(|other| other.model.route().to_string() == name);
        let place = namesakes.take_while(|other| !std::ptr::eq(*other, route)).count();
        match place {
            0 => name,
            place => format!("{name}#{}", place + 1),
        }
    }

    async fn answer(
        &self,
        request: &ModelRequest,
        on_chunk: OnChunk<'_>,
        admission: Option<&dyn CallAdmission>,
    ) -> Result<StreamEnd, Error> {
        let most = self.attempts.max(1);
        let tries = 0;
        let mut trial =
            CallAttempts { request, on_chunk, admission, most, is_void: false, tries, last: None };
        let mut order = self.order();

        for round in 0..self.attempts.max(1) {
            if round > 0 {
                let pause = locked(&self.jitter).pause(round);
                tokio::time::sleep(pause).await;
            }
            for route in trial.routes_without_pause(&mut order).await {
                match trial.ask(route, self.name_of(route)).await {
                    RetryDecision::Answered(end) => return Ok(*end),
                    RetryDecision::Final => return Err(trial.gave_up()),
                    RetryDecision::NotAdmitted(why) => return Err(trial.not_admitted(why)),
                    RetryDecision::NotHere => order.retain(|other| !std::ptr::eq(*other, route)),
                    RetryDecision::Later => {}
                }
            }
            if order.is_empty() {
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
    /// Whether the receiver has text of an incomplete answer. If so, [`AnswerChunk::Restart`] must
    /// come before the next answer, so that the receiver drops this text.
    is_void: bool,
    tries: u32,
    last: Option<Error>,
}

enum RetryDecision {
    Answered(Box<StreamEnd>),
    /// A later attempt may succeed, on this route or on another route.
    Later,
    /// No attempt on this route can succeed, but another route may succeed.
    NotHere,
    /// No further attempt can succeed.
    Final,
    /// The budget or the pump admits no further request.
    NotAdmitted(Error),
}

impl CallAttempts<'_> {
    /// Returns the routes whose provider has not requested a pause, or whose pause has ended. If
    /// every route has a pause, waits for the end of the shortest pause and returns only the route
    /// with this pause. A route whose pause is longer than the maximum wait counts as failed, and
    /// is removed from `order`.
    async fn routes_without_pause<'r>(
        &mut self,
        order: &mut Vec<&'r RoutedModel>,
    ) -> Vec<&'r RoutedModel> {
        let now = Instant::now();
        order.retain(|route| {
            let until = route.limiter.rests_until();
            let rest = until.map_or(Duration::ZERO, |until| until.duration_since(now));
            if rest > limits::RETRY_AFTER_MAX {
                self.record_skipped(route.model.route(), rest);
            }
            rest <= limits::RETRY_AFTER_MAX
        });

        let free: Vec<_> =
            order.iter().copied().filter(|r| r.limiter.rests_until().is_none()).collect();
        if !free.is_empty() {
            return free;
        }

        let first = order.iter().copied().min_by_key(|route| route.limiter.rests_until());
        let Some(first) = first else { return Vec::new() };
        let route = first.model.route();

        while let Some(until) = first.limiter.rests_until() {
            (self.on_chunk)(AnswerChunk::Waiting(&route, until));
            let look = Instant::now() + limits::MODEL_PAUSE_CHECK_INTERVAL;
            tokio::time::sleep_until(until.min(look)).await;
        }

        vec![first]
    }

    /// Records that a route was skipped because its provider had requested a pause.
    fn record_skipped(&mut self, route: ModelRoute, rest: Duration) {
        let message = "it asked to be left alone after an earlier request".to_owned();
        let retry_after = Some(Duration::from_secs(rest.as_secs()));
        let error = Error::RateLimited { route, message, retry_after };
        (self.on_chunk)(AnswerChunk::Failed(&error));
        self.last = Some(error);
    }

    /// Waits until the limits of a model allow the request. Reports the wait repeatedly, so that
    /// the time of the wait does not count as time without progress.
    async fn permit<'r>(&mut self, limiter: &'r RateLimiter) -> CallPermit<'r> {
        let answer = u64::from(self.request.answer_bound().unwrap_or_default());
        let admitted = limiter.enter(estimate::of_request(self.request) + answer);
        let mut admitted = std::pin::pin!(admitted);
        loop {
            let interval = limits::MODEL_PAUSE_CHECK_INTERVAL;
            match tokio::time::timeout(interval, admitted.as_mut()).await {
                Ok(permit) => return permit,
                Err(_) => (self.on_chunk)(AnswerChunk::Queued),
            }
        }
    }

    async fn ask(&mut self, route: &RoutedModel, name: String) -> RetryDecision {
        let permit = self.permit(&route.limiter).await;
        if let Some(admission) = self.admission {
            match admission.admit(route.model.route(), name, self.most).await {
                Ok(()) => {}
                Err(error @ Error::Exhausted { .. }) => {
                    self.last.get_or_insert(error);
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
                (self.on_chunk)(AnswerChunk::Failed(&error));
                self.last = Some(error);
                decision
            }
        }
    }

    fn not_admitted(self, why: Error) -> Error {
        match self.last {
            Some(last) if self.tries > 0 => {
                Error::NotRepeated { last: Box::new(last), why: why.to_string() }
            }
            _ => why,
        }
    }

    fn gave_up(self) -> Error {
        match self.last {
            Some(last) if self.tries > 1 => {
                Error::GaveUp { tries: self.tries, last: Box::new(last) }
            }
            Some(last) => last,
            None => {
                let route = ModelRoute { provider: "router".to_owned(), model: String::new() };
                Error::Cut { route, bytes: 0 }
            }
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

    fn settings(&self, route: &ModelRoute) -> Option<WireSettings> {
        self.routes.iter().find_map(|own| own.model.settings(route))
    }
}
