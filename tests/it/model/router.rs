//! The router: retries, failover, pauses, and adaptive limits. Time is simulated.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use organism::limits;
use organism::model::playback::TurnRecorder;
use organism::model::remote::{AnswerSettings, ProviderPreset};
use organism::model::router::{
    JitterSource, ModelRouter, RateLimiter, RateLimits, RoutedModel, RoutingStrategy,
};
use organism::model::{
    AdmissionFuture, AnswerChunk, CallAdmission, CallFuture, CallPhase, Error, ModelProvider,
    ModelRequest, ModelRoute, OnChunk, SharedModel, StopReason, StreamEnd, TokenUsage,
    WireSettings,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::server::{ReceivedAnswer, ask, call};

/// Behaviour of a scripted model for one call.
#[derive(Debug, Clone)]
enum Act {
    Say(&'static str),
    /// Streams a part of an answer, then breaks off.
    Break(&'static str, fn(ModelRoute) -> Error),
    /// Answers after this time.
    Take(Duration),
    /// Fails after this time.
    Fail(Duration, fn(ModelRoute) -> Error),
}

/// A model with a list of behaviours; the last one is repeated. It records the times of its calls.
#[derive(Debug)]
struct Actor {
    name: &'static str,
    acts: Mutex<VecDeque<Act>>,
    request_times: Mutex<Vec<Instant>>,
    at_once: Mutex<(usize, usize)>,
}

impl Actor {
    fn new(name: &'static str, acts: Vec<Act>) -> Arc<Self> {
        let (acts, asked) = (Mutex::new(acts.into()), Mutex::default());
        Arc::new(Self { name, acts, request_times: asked, at_once: Mutex::default() })
    }

    fn times(&self) -> usize {
        self.request_times.lock().unwrap().len()
    }

    /// Seconds between one call and the next.
    fn gaps(&self) -> Vec<f64> {
        let asked = self.request_times.lock().unwrap();
        asked.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect()
    }

    fn act(&self) -> Act {
        self.request_times.lock().unwrap().push(Instant::now());
        let mut acts = self.acts.lock().unwrap();
        if acts.len() > 1 { acts.pop_front().unwrap() } else { acts[0].clone() }
    }
}

impl ModelProvider for Actor {
    fn call<'a>(&'a self, _: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        Box::pin(async move {
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            let act = self.act();
            let done = match act {
                Act::Say(text) => {
                    on_chunk(AnswerChunk::Text(text));
                    Ok(())
                }
                Act::Break(text, error) => {
                    if !text.is_empty() {
                        on_chunk(AnswerChunk::Text(text));
                    }
                    Err(error(self.route()))
                }
                Act::Take(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                Act::Fail(time, error) => {
                    tokio::time::sleep(time).await;
                    Err(error(self.route()))
                }
            };
            self.at_once.lock().unwrap().0 -= 1;
            done.map(|()| end(self.route()))
        })
    }

    fn route(&self) -> ModelRoute {
        ModelRoute { provider: "scripted".to_owned(), model: self.name.to_owned() }
    }
}

fn end(route: ModelRoute) -> StreamEnd {
    let usage = TokenUsage { tokens_in: 10, tokens_out: 5, ..TokenUsage::default() };
    StreamEnd {
        stop: StopReason::Normal,
        usage,
        calls: Vec::new(),
        own: Vec::new(),
        route,
        settings: None,
        model: None,
    }
}

fn cut(route: ModelRoute) -> Error {
    Error::Cut { route, bytes: 7 }
}

fn limited(route: ModelRoute) -> Error {
    let retry_after = Some(Duration::from_secs(20));
    Error::RateLimited { route, message: String::new(), retry_after }
}

fn limited_for_longer(route: ModelRoute) -> Error {
    let retry_after = Some(Duration::from_secs(30));
    Error::RateLimited { route, message: String::new(), retry_after }
}

fn limited_for_an_hour(route: ModelRoute) -> Error {
    let retry_after = Some(Duration::from_secs(3600));
    Error::RateLimited { route, message: String::new(), retry_after }
}

fn busy(route: ModelRoute) -> Error {
    Error::RateLimited { route, message: String::new(), retry_after: None }
}

fn denied(route: ModelRoute) -> Error {
    Error::Denied { route, status: 401, message: String::new(), key: "the variable X".to_owned() }
}

fn rejected(route: ModelRoute) -> Error {
    Error::Rejected { route, status: 400, message: "too many tools".to_owned() }
}

fn too_long(route: ModelRoute) -> Error {
    Error::TooLong { route, max: limits::ANSWER_BYTES_MAX }
}

fn slow(route: ModelRoute) -> Error {
    Error::Timeout { route, phase: CallPhase::FirstByte, after: Duration::from_secs(1) }
}

fn routed(actor: &Arc<Actor>) -> RoutedModel {
    let model: SharedModel = Arc::<Actor>::clone(actor);
    RoutedModel::new(model, RateLimits::default())
}

fn router(actors: &[&Arc<Actor>], strategy: RoutingStrategy, attempts: u32) -> ModelRouter {
    ModelRouter::new(actors.iter().map(|actor| routed(actor)).collect(), strategy, attempts)
        .seeded(7)
}

async fn call_once(router: &ModelRouter) -> (Result<StreamEnd, Error>, ReceivedAnswer) {
    call(router, &ask("Hello.")).await
}

#[tokio::test(start_paused = true)]
async fn temporary_failures_are_retried_after_a_pause() {
    let actor =
        Actor::new("a", vec![Act::Break("", cut), Act::Break("", slow), Act::Say("Hello.")]);
    let (end, heard) = call_once(&router(&[&actor], RoutingStrategy::Failover, 3)).await;
    assert_eq!(end.unwrap().route.model, "a");
    assert_eq!((heard.text.as_str(), heard.restarts), ("Hello.", 0));
    let gaps = actor.gaps();
    assert_eq!(gaps.len(), 2);
    assert!(gaps[0] <= 0.501 && gaps[1] <= 1.001 && gaps[0] + gaps[1] > 0.0, "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_broke_off_is_void_before_the_next_begins() {
    let actor =
        Actor::new("a", vec![Act::Break("Hel", cut), Act::Break("He", cut), Act::Say("Yes.")]);
    let (end, heard) = call_once(&router(&[&actor], RoutingStrategy::Failover, 3)).await;
    end.unwrap();
    assert_eq!((heard.text.as_str(), heard.restarts), ("Yes.", 2));

    let (broken, whole) =
        (Actor::new("a", vec![Act::Break("Hel", cut)]), Actor::new("b", vec![Act::Say("Yes.")]));
    let (end, heard) = call_once(&router(&[&broken, &whole], RoutingStrategy::Failover, 1)).await;
    assert_eq!(end.unwrap().route.model, "b");
    assert_eq!((heard.text.as_str(), heard.restarts), ("Yes.", 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_attempts_error_is_reported_with_the_number_of_attempts() {
    let actor = Actor::new("a", vec![Act::Break("", cut)]);
    let error = call_once(&router(&[&actor], RoutingStrategy::Failover, 4)).await.0.unwrap_err();
    assert!(matches!(&error, Error::GaveUp { tries: 4, .. }), "{error:?}");
    assert!(matches!(error.cause(), Error::Cut { .. }) && error.is_retried());
    assert!(error.to_string().ends_with("given up after 4 tries"), "{error}");
    assert_eq!(actor.times(), 4);
}

/// F6: a request that one route rejects is tried once on each other route.
#[tokio::test(start_paused = true)]
async fn a_rejected_request_is_tried_on_each_route_once() {
    let (first, second) =
        (Actor::new("a", vec![Act::Break("", rejected)]), Actor::new("b", vec![Act::Say("Yes.")]));
    let (end, _) = call_once(&router(&[&first, &second], RoutingStrategy::Failover, 3)).await;
    assert_eq!(end.unwrap().route.model, "b");
    assert_eq!((first.times(), second.times()), (1, 1));

    let second = Actor::new("b", vec![Act::Break("", rejected)]);
    let error =
        call_once(&router(&[&first, &second], RoutingStrategy::Failover, 3)).await.0.unwrap_err();
    assert_eq!(error.feedback(), Some("too many tools"));
    assert_eq!((first.times(), second.times()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_declining_route_is_skipped_for_another_and_not_retried() {
    let (first, second) = (
        Actor::new("a", vec![Act::Break("", denied)]),
        Actor::new("b", vec![Act::Break("", cut), Act::Say("Yes.")]),
    );
    let (end, _) = call_once(&router(&[&first, &second], RoutingStrategy::Failover, 3)).await;
    assert_eq!(end.unwrap().route.model, "b");
    assert_eq!((first.times(), second.times()), (1, 2));
    let error = call_once(&router(&[&first], RoutingStrategy::Failover, 3)).await.0.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "one try needs no words: {error}");
}

/// The order of the routes decides neither whether a retry may help, nor which reasons are stated.
#[tokio::test(start_paused = true)]
async fn the_error_states_the_reason_of_each_route_in_any_order() {
    let failing = |error| Actor::new("a", vec![Act::Break("", error)]);
    for (first, second, is_retried, has_feedback) in [
        (
            limited_for_an_hour as fn(ModelRoute) -> Error,
            denied as fn(ModelRoute) -> Error,
            true,
            false,
        ),
        (limited_for_an_hour, rejected, true, true),
        (denied, rejected, false, true),
    ] {
        for routes in [[first, second], [second, first]] {
            let routes = routes.map(failing);
            let router = router(&[&routes[0], &routes[1]], RoutingStrategy::Failover, 3);
            let error = call_once(&router).await.0.unwrap_err();
            assert_eq!(error.is_retried(), is_retried, "{error}");
            assert_eq!(error.feedback().is_some(), has_feedback, "{error}");
            let route = || ModelRoute { provider: "scripted".to_owned(), model: "a".to_owned() };
            for reason in [first(route()), second(route())] {
                assert!(error.to_string().contains(&reason.to_string()), "{error}");
            }
            assert!(error.to_string().ends_with("; given up after 2 tries"), "{error}");
        }
    }
}

/// An error after which no attempt on any route can succeed decides also that a retry cannot help.
#[tokio::test(start_paused = true)]
async fn a_final_error_decides_after_the_errors_of_other_routes() {
    let limited = Actor::new("a", vec![Act::Break("", limited)]);
    let too_long = Actor::new("b", vec![Act::Break("", too_long)]);
    for routes in [[&limited, &too_long], [&too_long, &limited]] {
        let router = router(&routes, RoutingStrategy::Failover, 3);
        let error = call_once(&router).await.0.unwrap_err();
        assert_eq!((error.word(), error.is_retried()), ("too-long", false), "{error}");
        let is_limited_first = routes[0].name == "a";
        let reason = "scripted/a: too many requests";
        assert_eq!(error.to_string().contains(reason), is_limited_first, "{error}");
    }
    assert_eq!((limited.times(), too_long.times()), (1, 2));
}

/// If each route has a pause that is too long, no request is sent, and the error states no tries.
#[tokio::test(start_paused = true)]
async fn an_error_without_a_request_states_no_tries() {
    let actors = ["a", "b"].map(|name| Actor::new(name, vec![Act::Break("", limited_for_an_hour)]));
    let router = router(&[&actors[0], &actors[1]], RoutingStrategy::Failover, 3);
    let first = call_once(&router).await.0.unwrap_err().to_string();
    assert!(first.ends_with("; given up after 2 tries"), "{first}");

    let second = call_once(&router).await.0.unwrap_err().to_string();
    assert!(second.contains("scripted/a") && second.contains("scripted/b"), "{second}");
    assert!(!second.contains("given up"), "{second}");
    assert_eq!(actors.map(|actor| actor.times()), [1, 1]);
}

/// A budget that covers this number of further requests.
struct RequestBudget(AtomicU32);

impl CallAdmission for RequestBudget {
    fn admit<'a>(&'a self, _: ModelRoute, _: String, _: u32) -> AdmissionFuture<'a> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        let spent = || Error::NoBudget { detail: "the budget is spent".to_owned() };
        Box::pin(std::future::ready(left.map(drop).map_err(|_| spent())))
    }
}

/// The rejection by one route is feedback for the agent, also if a budget then refuses a retry on
/// the other route.
#[tokio::test(start_paused = true)]
async fn an_error_after_a_refused_retry_states_the_reason_of_each_route() {
    let first = Actor::new("a", vec![Act::Break("", rejected)]);
    let second = Actor::new("b", vec![Act::Break("", cut)]);
    let router = router(&[&first, &second], RoutingStrategy::Failover, 3);
    let budget = RequestBudget(AtomicU32::new(2));
    let request = ask("Hello.");
    let error = router.call_admitted(&request, &mut |_| {}, &budget).await.unwrap_err();
    assert_eq!((error.word(), error.is_retried()), ("cut", false), "{error}");
    assert_eq!(error.feedback(), Some("too many tools"), "{error}");
    assert!(error.to_string().ends_with("; not tried again: the budget is spent"), "{error}");
}

/// The recording of a rejection names the route that rejected the request, even if the error of
/// another route decides whether a retry may help.
#[tokio::test(start_paused = true)]
async fn a_recorded_rejection_names_the_route_that_rejected() {
    let first = Actor::new("a", vec![Act::Break("", rejected)]);
    let second = Actor::new("b", vec![Act::Break("", cut)]);
    let routes: SharedModel = Arc::new(router(&[&first, &second], RoutingStrategy::Failover, 1));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.toml");
    let recorder = Arc::new(TurnRecorder::create(&path, "by a test").unwrap());
    let mut request = ask("Hello.");
    request.origin.turn = 2;
    call(recorder.around(routes).as_ref(), &request).await.0.unwrap_err();

    let recording = std::fs::read_to_string(&path).unwrap();
    assert!(recording.contains("model = \"scripted/a\""), "{recording}");
    assert!(recording.contains("rejected = \"too many tools\""), "{recording}");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_many_routes_is_bounded() {
    let actors: Vec<_> = (0..6).map(|_| Actor::new("a", vec![Act::Break("", denied)])).collect();
    let router = router(&actors.iter().collect::<Vec<_>>(), RoutingStrategy::Failover, 1);
    let text = call_once(&router).await.0.unwrap_err().to_string();
    assert_eq!(text.matches("denied").count(), 1 + limits::OTHER_ROUTES_SHOWN, "{text}");
    assert!(text.ends_with("; 3 more routes failed; given up after 6 tries"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_kept_to_and_other_routes_go_first() {
    let actor = Actor::new("a", vec![Act::Break("", limited), Act::Say("Yes.")]);
    call_once(&router(&[&actor], RoutingStrategy::Failover, 2)).await.0.unwrap();
    assert!(actor.gaps()[0] >= 20.0 && actor.gaps()[0] < 21.0, "{:?}", actor.gaps());

    let (first, second) = (
        Actor::new("a", vec![Act::Break("", limited), Act::Say("Yes.")]),
        Actor::new("b", vec![Act::Say("Yes.")]),
    );
    let router = router(&[&first, &second], RoutingStrategy::Failover, 2);
    let began = Instant::now();
    for _ in 0..5 {
        call_once(&router).await.0.unwrap();
    }
    assert_eq!((first.times(), second.times()), (1, 5), "the first is left alone");
    assert_eq!(Instant::now(), began, "and nobody waits");
    tokio::time::advance(Duration::from_secs(21)).await;
    call_once(&router).await.0.unwrap();
    assert_eq!((first.times(), second.times()), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_an_hour_counts_as_a_refusal() {
    let actor = Actor::new("a", vec![Act::Break("", limited_for_an_hour)]);
    let began = Instant::now();
    let error = call_once(&router(&[&actor], RoutingStrategy::Failover, 3)).await.0.unwrap_err();
    assert!(matches!(error, Error::RateLimited { .. }), "{error}");
    assert_eq!((actor.times(), Instant::now()), (1, began));
}

/// If a provider demands a pause that exceeds the limit, neither the present call nor the next call
/// waits until the pause ends.
#[tokio::test(start_paused = true)]
async fn a_route_that_is_to_be_left_alone_for_an_hour_is_not_waited_for_by_the_next_call() {
    let first = Actor::new("a", vec![Act::Break("", limited_for_an_hour), Act::Say("Yes.")]);
    let router = router(&[&first], RoutingStrategy::Failover, 3);
    let began = Instant::now();
    call_once(&router).await.0.unwrap_err();
    let error = call_once(&router).await.0.unwrap_err();
    let Error::RateLimited { retry_after, .. } = error.cause() else { panic!("{error}") };
    assert_eq!(*retry_after, Some(Duration::from_secs(3600)));
    assert_eq!((first.times(), Instant::now()), (1, began));

    tokio::time::advance(Duration::from_secs(3600)).await;
    call_once(&router).await.0.unwrap();
}

/// Starts a call through the router.
fn calling(router: &Arc<ModelRouter>) -> JoinHandle<Result<StreamEnd, Error>> {
    let router = Arc::clone(router);
    tokio::spawn(async move { call_once(&router).await.0 })
}

/// A model that admits one call at a time.
fn one_at_a_time(actor: &Arc<Actor>) -> RoutedModel {
    let pace = RateLimits { concurrency: 1, tokens_per_minute: None };
    let model: SharedModel = Arc::<Actor>::clone(actor);
    RoutedModel::new(model, pace)
}

#[tokio::test(start_paused = true)]
async fn a_queued_call_is_not_sent_in_a_pause_that_began_meanwhile() {
    let second = Duration::from_secs(1);
    let acts = || vec![Act::Fail(second, limited), Act::Say("Yes.")];
    let actor = Actor::new("a", acts());
    let routes = vec![one_at_a_time(&actor)];
    let router = Arc::new(ModelRouter::new(routes, RoutingStrategy::Failover, 2));
    let calls = [calling(&router), calling(&router)];
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(actor.gaps()[0] >= 21.0 && actor.gaps()[0] < 22.0, "{:?}", actor.gaps());
    assert_eq!(actor.times(), 3);

    // A queued call tries another route at once.
    let actors = [Actor::new("a", acts()), Actor::new("b", vec![Act::Say("Yes.")])];
    let routes = vec![one_at_a_time(&actors[0]), routed(&actors[1])];
    let router = Arc::new(ModelRouter::new(routes, RoutingStrategy::Failover, 2));
    let began = Instant::now();
    let calls = [calling(&router), calling(&router)];
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().route.model, "b");
    }
    assert!(Instant::now() - began < second * 2);
    assert_eq!(actors.map(|actor| actor.times()), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_from_before_a_pause_does_not_end_the_pause() {
    let route = ModelRoute { provider: "p".to_owned(), model: "m".to_owned() };
    let limiter = RateLimiter::new(RateLimits::default());
    let older = limiter.enter(10).await;
    limiter.enter(10).await.failed(&limited(route));
    let until = limiter.rests_until();
    assert!(until.is_some());
    older.succeeded(&TokenUsage::default());
    assert_eq!(limiter.rests_until(), until);
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(limiter.rests_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_pause_fails_if_the_pause_becomes_too_long() {
    let older = Act::Fail(Duration::from_secs(5), limited_for_an_hour);
    let waiting = Act::Fail(Duration::from_secs(1), limited);
    let actor = Actor::new("a", vec![older, waiting, Act::Say("Yes.")]);
    let router = Arc::new(router(&[&actor], RoutingStrategy::Failover, 2));
    let began = Instant::now();
    let calls = [calling(&router), calling(&router)];
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_overload(), "{error}");
    }
    assert!(Instant::now() - began < Duration::from_secs(6));
    assert_eq!(actor.times(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_round_waits_for_each_route_although_all_have_a_pause() {
    let first = Actor::new("a", vec![Act::Break("", limited), Act::Break("", denied)]);
    let second = Actor::new("b", vec![Act::Break("", limited_for_longer), Act::Say("Yes.")]);
    let router = router(&[&first, &second], RoutingStrategy::Failover, 2);
    assert_eq!(call_once(&router).await.0.unwrap().route.model, "b");
    assert_eq!((first.times(), second.times()), (2, 2));
    assert!(second.gaps()[0] >= 30.0 && second.gaps()[0] < 31.0, "{:?}", second.gaps());
}

#[tokio::test(start_paused = true)]
async fn strategies_choose_the_first_route() {
    let actors = ["a", "b", "c"].map(|name| Actor::new(name, vec![Act::Say("Yes.")]));
    let all: Vec<_> = actors.iter().collect();
    for (strategy, expected) in
        [(RoutingStrategy::Failover, "aaaaaa"), (RoutingStrategy::RoundRobin, "abcabc")]
    {
        let router = router(&all, strategy, 1);
        let mut order = String::new();
        for _ in 0..6 {
            order.push_str(&call_once(&router).await.0.unwrap().route.model);
        }
        assert_eq!(order, expected);
    }
    // Slow calls: each goes to the route with the fewest calls.
    let actors =
        ["a", "b", "c"].map(|name| Actor::new(name, vec![Act::Take(Duration::from_secs(5))]));
    let router =
        Arc::new(router(&actors.iter().collect::<Vec<_>>(), RoutingStrategy::LeastLoaded, 1));
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let router = Arc::clone(&router);
            tokio::spawn(async move { call_once(&router).await.0.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(actors.map(|actor| actor.times()), [3, 3, 3]);
}

#[test]
fn pauses_double_up_to_a_bound_and_are_the_same_for_a_seed() {
    let pauses = |seed| (1..=40).map(move |round| JitterSource::seeded(seed).pause(round));
    assert!(pauses(1).eq(pauses(1)));
    assert!(!pauses(1).eq(pauses(2)));
    for round in 1..40 {
        let bound = limits::MODEL_BACKOFF_FIRST * 2u32.saturating_pow(round.min(20) - 1);
        let bound = bound.min(limits::MODEL_BACKOFF_MAX);
        let mut jitter = JitterSource::seeded(u64::from(round));
        let drawn: Vec<_> = (0..1_000).map(|_| jitter.pause(round)).collect();
        assert!(drawn.iter().all(|pause| *pause <= bound), "round {round}");
        let share = |pauses: usize| pauses > 350 && pauses < 650;
        assert!(share(drawn.iter().filter(|pause| **pause < bound / 2).count()), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_made_at_once_than_are_allowed() {
    let actor = Actor::new("a", vec![Act::Take(Duration::from_secs(1))]);
    let model: SharedModel = actor.clone();
    let pace = RateLimits { concurrency: 3, tokens_per_minute: None };
    let router =
        ModelRouter::new(vec![RoutedModel::new(model, pace)], RoutingStrategy::Failover, 1);
    let router = Arc::new(router);
    let began = Instant::now();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let router = Arc::clone(&router);
            tokio::spawn(async move { call_once(&router).await.0.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(actor.at_once.lock().unwrap().1, 3);
    assert_eq!((Instant::now() - began).as_secs(), 4, "ten calls, three at a time");
}

#[tokio::test(start_paused = true)]
async fn the_limit_halves_with_each_refusal_and_grows_with_each_answer() {
    let route = || ModelRoute { provider: "p".to_owned(), model: "m".to_owned() };
    let limiter = RateLimiter::new(RateLimits { concurrency: 16, tokens_per_minute: Some(6_000) });
    let mut permits = Vec::new();
    for _ in 0..16 {
        permits.push(limiter.enter(10).await);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    // All calls failed for the same reason, which counts once.
    for permit in permits.drain(..8) {
        permit.failed(&busy(route()));
    }
    assert_eq!(limiter.allowed(), (8.0, Some(3_000.0)));
    drop(permits);
    tokio::time::advance(Duration::from_secs(1)).await;
    limiter.enter(10).await.failed(&busy(route()));
    assert_eq!(limiter.allowed(), (1.0, Some(1_500.0)), "one was enough to be too many");
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        limiter.enter(10).await.failed(&busy(route()));
    }
    assert_eq!(limiter.allowed(), (1.0, Some(300.0)), "down to a floor");
    // Other failures do not indicate overload.
    limiter.enter(10).await.failed(&cut(route()));
    assert_eq!(limiter.allowed(), (1.0, Some(300.0)));
    for _ in 0..200 {
        tokio::time::advance(Duration::from_secs(60)).await;
        limiter.enter(10).await.succeeded(&TokenUsage::default());
    }
    assert_eq!(limiter.allowed(), (16.0, Some(6_000.0)), "and up to what is configured");
}

#[tokio::test(start_paused = true)]
async fn new_limits_keep_the_pause_the_running_calls_and_what_was_lowered() {
    let limiter = RateLimiter::new(RateLimits { concurrency: 4, tokens_per_minute: Some(6_000) });
    let route = ModelRoute { provider: "p".to_owned(), model: "m".to_owned() };
    let running = limiter.enter(10).await;
    limiter.enter(10).await.failed(&limited(route));
    assert_eq!(limiter.allowed(), (1.0, Some(3_000.0)));

    limiter.set_limits(RateLimits { concurrency: 8, tokens_per_minute: Some(12_000) });
    assert_eq!(limiter.allowed(), (2.0, Some(6_000.0)));
    assert!((limiter.load() - 0.5).abs() < f64::EPSILON, "one call of two runs");
    let rest = limiter.rests_until().unwrap() - Instant::now();
    assert_eq!(rest.as_secs(), 20);

    limiter.set_limits(RateLimits { concurrency: 1, tokens_per_minute: None });
    assert_eq!(limiter.allowed(), (1.0, None));
    let waiting = async { drop(limiter.enter(1_000_000).await) };
    let full = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(full.is_err(), "the call from before the change takes the only place");
    drop(running);
    drop(limiter.enter(1_000_000).await);
}

#[tokio::test(start_paused = true)]
async fn no_more_tokens_are_used_in_a_minute_than_are_allowed() {
    let limiter = RateLimiter::new(RateLimits { concurrency: 64, tokens_per_minute: Some(6_000) });
    let began = Instant::now();
    let used = |tokens| TokenUsage { tokens_in: tokens, tokens_out: 0, ..TokenUsage::default() };
    for _ in 0..12 {
        limiter.enter(1_000).await.succeeded(&used(1_000));
    }
    let took = (Instant::now() - began).as_secs_f64();
    assert!(
        (59.0..62.0).contains(&took),
        "a minute's worth at once, the rest over a minute: {took}"
    );
    // Unused tokens are returned, and excess tokens are charged later.
    tokio::time::advance(Duration::from_secs(60)).await;
    let began = Instant::now();
    for _ in 0..60 {
        limiter.enter(1_000).await.succeeded(&used(10));
    }
    assert_eq!(Instant::now(), began);
    limiter.enter(100).await.succeeded(&used(8_000));
    limiter.enter(100).await.succeeded(&used(100));
    let took = (Instant::now() - began).as_secs_f64();
    assert!((20.0..45.0).contains(&took), "{took}");
    // The call exceeds the limit of a minute, so it waits for a full minute and not for ever.
    let waited = tokio::time::timeout(Duration::from_secs(130), limiter.enter(50_000)).await;
    assert!(waited.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_sent_or_is_refused_gives_its_tokens_back() {
    let route = || ModelRoute { provider: "p".to_owned(), model: "m".to_owned() };
    let limiter = RateLimiter::new(RateLimits { concurrency: 64, tokens_per_minute: Some(6_000) });
    let began = Instant::now();
    drop(limiter.enter(6_000).await);
    let mut permit = limiter.enter(6_000).await;
    permit.mark_sent();
    permit.failed(&denied(route()));
    let mut permit = limiter.enter(6_000).await;
    assert_eq!(Instant::now(), began);

    permit.mark_sent();
    drop(permit);
    drop(limiter.enter(6_000).await);
    assert!(Instant::now() - began >= Duration::from_secs(59), "the provider may have worked");
}

#[tokio::test(start_paused = true)]
async fn a_large_call_is_not_overtaken_by_the_small_calls_that_came_after_it() {
    let pace = RateLimits { concurrency: 64, tokens_per_minute: Some(6_000) };
    let limiter = Arc::new(RateLimiter::new(pace));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for tokens in [6_000, 5_000, 300, 300, 300] {
        let limiter = Arc::clone(&limiter);
        let order = Arc::clone(&order);
        calls.push(tokio::spawn(async move {
            limiter.enter(tokens).await.mark_sent();
            order.lock().unwrap().push(tokens);
        }));
        tokio::task::yield_now().await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [6_000, 5_000, 300, 300, 300]);
}

/// A model for which the config sets a maximum of 5,000 tokens for an answer.
#[derive(Debug)]
struct Bounded(Arc<Actor>);

impl ModelProvider for Bounded {
    fn call<'a>(&'a self, request: &'a ModelRequest, on_chunk: OnChunk<'a>) -> CallFuture<'a> {
        self.0.call(request, on_chunk)
    }

    fn route(&self) -> ModelRoute {
        self.0.route()
    }

    fn settings(&self, route: &ModelRoute) -> Vec<WireSettings> {
        let answer = AnswerSettings { max_tokens: Some(5_000), ..AnswerSettings::default() };
        let wire = ProviderPreset::named("openai-compatible").unwrap().wire;
        let ModelRoute { provider, model } = route.clone();
        vec![WireSettings { provider, model, wire, answer }]
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_the_tokens_of_the_longest_answer_that_the_config_allows() {
    let actor = Actor::new("a", vec![Act::Take(Duration::from_secs(1))]);
    let model: SharedModel = Arc::new(Bounded(Arc::clone(&actor)));
    let pace = RateLimits { concurrency: 64, tokens_per_minute: Some(6_000) };
    let routes = vec![RoutedModel::new(model, pace)];
    let router = Arc::new(ModelRouter::new(routes, RoutingStrategy::Failover, 1));
    let calls = [calling(&router), calling(&router)];
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(actor.at_once.lock().unwrap().1, 1, "6,000 tokens are too few for two answers");
    assert!(actor.gaps()[0] < 2.0, "unused tokens are given back: {:?}", actor.gaps());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_gives_its_place_to_the_next() {
    let limiter =
        Arc::new(RateLimiter::new(RateLimits { concurrency: 1, tokens_per_minute: None }));
    let first = limiter.enter(1).await;
    let waiting = |limiter: &Arc<RateLimiter>| {
        let limiter = Arc::clone(limiter);
        tokio::spawn(async move { drop(limiter.enter(1).await) })
    };
    let (given_up, patient) = (waiting(&limiter), waiting(&limiter));
    tokio::task::yield_now().await;
    given_up.abort();
    drop(first);
    patient.await.unwrap();
    assert!(limiter.load().abs() < f64::EPSILON);
}

/// Two calls wait for one place. The first call is woken when the place becomes free, still lacks
/// tokens, and gives up. The place is not lost: the second call takes it.
#[tokio::test(start_paused = true)]
async fn a_permit_is_not_lost_with_a_waiter_that_gave_up() {
    let limiter =
        Arc::new(RateLimiter::new(RateLimits { concurrency: 1, tokens_per_minute: Some(60) }));
    let first = limiter.enter(50).await;
    let waiting = |tokens| {
        let limiter = Arc::clone(&limiter);
        tokio::spawn(async move { drop(limiter.enter(tokens).await) })
    };
    let large = waiting(60);
    tokio::task::yield_now().await;
    let small = waiting(1);
    tokio::task::yield_now().await;
    first.succeeded(&TokenUsage { tokens_in: 50, ..TokenUsage::default() });
    tokio::task::yield_now().await;
    large.abort();
    let entered = tokio::time::timeout(Duration::from_secs(10), small).await;
    entered.expect("its turn comes though nobody leaves any more").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_models_own_limits_is_reported_while_it_lasts() {
    let actor = Actor::new("slow", vec![Act::Take(Duration::from_secs(9))]);
    let pace = RateLimits { concurrency: 1, tokens_per_minute: None };
    let route = RoutedModel::new(actor.clone(), pace);
    let router = Arc::new(ModelRouter::new(vec![route], RoutingStrategy::default(), 1));
    let first = tokio::spawn({
        let router = Arc::clone(&router);
        async move { call(router.as_ref(), &ask("first")).await }
    });
    tokio::task::yield_now().await;

    let mut reports = 0;
    let request = ask("second");
    let mut count = |chunk: AnswerChunk<'_>| reports += u32::from(chunk == AnswerChunk::Queued);
    assert!(router.call(&request, &mut count).await.is_ok());
    let interval = limits::MODEL_PAUSE_CHECK_INTERVAL.as_secs_f64();
    assert!(f64::from(reports) >= 9.0 / interval - 1.0, "{reports}");
    assert!(first.await.unwrap().0.is_ok());
    assert_eq!(actor.at_once.lock().unwrap().1, 1);
}
