//! The router: which provider is asked, how often, and how fast.
//!
//! A call is tried on its routes in the order of the strategy until one answers. What may succeed
//! later is tried again in later rounds, after a pause; what another provider may do is tried
//! there. An answer that broke off in the middle is voided by [`Chunk::Restart`] before the next
//! one begins, so that what is heard is of one answer. Waits between tries are the only ones:
//! whoever drops a call ends it at once.

mod limiter;
mod pause;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use limiter::{Limiter, Pace};
pub use pause::Jitter;

use super::answer::{Chunk, End, Route};
use super::error::Error;
use super::request::Request;
use super::{Calling, Model, OnChunk, Provider, estimate};
use crate::limits;

/// In which order routes are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// As they are written: the next only where the one before fails.
    #[default]
    Failover,
    /// Each call begins with the next.
    RoundRobin,
    /// The one with the fewest calls under way, for what it takes, goes first.
    LeastLoaded,
}

/// A model and what it may be burdened with; the same for everybody who asks it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Routed {
    pub model: Model,
    pub limiter: Arc<Limiter>,
}

impl Routed {
    pub fn new(model: Model, pace: Pace) -> Self {
        Self { model, limiter: Arc::new(Limiter::new(pace)) }
    }
}

/// Several models that stand in for each other, or one that is tried again.
#[derive(Debug)]
pub struct Router {
    routes: Vec<Routed>,
    strategy: Strategy,
    /// Rounds over the routes.
    attempts: u32,
    next: AtomicUsize,
    jitter: Mutex<Jitter>,
}

impl Router {
    /// `routes` is not empty.
    pub fn new(routes: Vec<Routed>, strategy: Strategy, attempts: u32) -> Self {
        debug_assert!(!routes.is_empty(), "a router without routes asks nobody");
        let jitter = Mutex::new(Jitter::of_system());
        Self { routes, strategy, attempts, next: AtomicUsize::new(0), jitter }
    }

    /// The same pauses in every run.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.jitter = Mutex::new(Jitter::seeded(seed));
        self
    }

    fn order(&self) -> Vec<&Routed> {
        let mut order: Vec<&Routed> = self.routes.iter().collect();
        match self.strategy {
            Strategy::Failover => {}
            Strategy::RoundRobin => {
                let first = self.next.fetch_add(1, Ordering::Relaxed);
                let routes = order.len().max(1);
                order.rotate_left(first % routes);
            }
            // Among equals, as they are written.
            Strategy::LeastLoaded => {
                order.sort_by(|a, b| a.limiter.load().total_cmp(&b.limiter.load()));
            }
        }
        order
    }

    async fn answer(&self, request: &Request, on_chunk: OnChunk<'_>) -> Result<End, Error> {
        let mut trial = Trial { request, on_chunk, is_void: false, tries: 0, last: None };
        let mut order = self.order();
        for round in 0..self.attempts.max(1) {
            if round > 0 {
                let pause = self.jitter.lock().unwrap_or_else(PoisonError::into_inner).pause(round);
                tokio::time::sleep(pause).await;
            }
            let rested: Vec<_> = rested(&order).await;
            for route in rested {
                match trial.ask(route).await {
                    Asked::Answered(end) => return Ok(*end),
                    Asked::Final => return Err(trial.gave_up()),
                    Asked::NotHere => order.retain(|other| !std::ptr::eq(*other, route)),
                    Asked::Later => {}
                }
            }
            if order.is_empty() {
                break;
            }
        }
        Err(trial.gave_up())
    }
}

/// Those routes that do not want to be left alone; where all do, the first one that no longer
/// does.
async fn rested<'r>(order: &[&'r Routed]) -> Vec<&'r Routed> {
    let free: Vec<_> =
        order.iter().copied().filter(|r| r.limiter.rests_until().is_none()).collect();
    if !free.is_empty() {
        return free;
    }
    let first = order.iter().copied().min_by_key(|route| route.limiter.rests_until());
    if let Some(until) = first.and_then(|route| route.limiter.rests_until()) {
        tokio::time::sleep_until(until).await;
    }
    first.into_iter().collect()
}

/// One call, over all its tries.
struct Trial<'a> {
    request: &'a Request,
    on_chunk: OnChunk<'a>,
    /// Something was handed out that is not part of an answer.
    is_void: bool,
    tries: u32,
    last: Option<Error>,
}

enum Asked {
    Answered(Box<End>),
    /// It may be worth another try, here or elsewhere.
    Later,
    /// Only elsewhere.
    NotHere,
    /// Nowhere.
    Final,
}

impl Trial<'_> {
    async fn ask(&mut self, route: &Routed) -> Asked {
        let answer = u64::from(self.request.max_tokens.unwrap_or_default());
        let permit = route.limiter.enter(estimate::of_request(self.request) + answer).await;
        if std::mem::take(&mut self.is_void) {
            (self.on_chunk)(Chunk::Restart);
        }
        self.tries += 1;
        let mut has_begun = false;
        let on_chunk = &mut self.on_chunk;
        let mut hear = |chunk: Chunk<'_>| {
            has_begun = true;
            on_chunk(chunk);
        };
        let called = route.model.call(self.request, &mut hear).await;
        self.is_void = has_begun;
        match called {
            Ok(end) => {
                permit.succeeded(&end.usage);
                Asked::Answered(Box::new(end))
            }
            Err(error) => {
                permit.failed(&error);
                let asked = worth(&error);
                tracing::info!("{error}");
                self.last = Some(error);
                asked
            }
        }
    }

    fn gave_up(self) -> Error {
        match self.last {
            Some(last) if self.tries > 1 => {
                Error::GaveUp { tries: self.tries, last: Box::new(last) }
            }
            Some(last) => last,
            None => {
                let route = Route { provider: "router".to_owned(), model: String::new() };
                Error::Cut { route, bytes: 0 }
            }
        }
    }
}

fn worth(error: &Error) -> Asked {
    let too_long = error.retry_after().is_some_and(|after| after > limits::RETRY_AFTER_MAX);
    match (error.is_retried(), error.is_for_another_route()) {
        (true, _) if !too_long => Asked::Later,
        (_, true) => Asked::NotHere,
        _ => Asked::Final,
    }
}

impl Provider for Router {
    fn call<'a>(&'a self, request: &'a Request, on_chunk: OnChunk<'a>) -> Calling<'a> {
        Box::pin(self.answer(request, on_chunk))
    }

    fn route(&self) -> Route {
        let first = self.routes.first().map(|route| route.model.route());
        first.unwrap_or_else(|| Route { provider: "router".to_owned(), model: String::new() })
    }
}
