//! The delay that sixty-four busy producers in one thread cause for calls in another thread.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Host, Outcome};
use organism::config::{self, Config, ConfigEnvironment};
use organism::ids::ListenerName;
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::pump::driver::Handle;

use super::figures::{Bench, median_of};
use super::floor::directory;
use super::relay::{DONE, DONE_SCHEMA, START, listener};

const PRODUCERS: usize = 64;

pub fn p99(bench: &mut Bench) {
    let ran: Vec<_> = (0..bench.runs).map(|_| measure(bench.span)).collect();
    let busy = median_of(ran.iter().map(|(busy, _)| *busy));
    let idle = median_of(ran.iter().map(|(_, idle)| *idle));
    bench.figures.add("fair_p99", busy, "us", Some(idle));
}

/// Returns the 99th percentile of the latency of calls in a thread without producers, in
/// microseconds: first while the producers are busy, then while they are idle.
fn measure(span: Duration) -> (f64, f64) {
    let place = directory("fair");
    let config = config(&place);
    let natives = ["flooded", "stranger"].map(|name| (listener(name), done(name)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let organism = Organism::start_with(config, HashMap::from(natives)).await.unwrap();
        let idle = slow_exchange(&organism.handle(), span).await;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = exchange(&organism.handle(), "producer", None).await;
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                let (handle, thread, stop) = (organism.handle(), thread.clone(), stop.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        exchange(&handle, "producer", Some(thread.clone())).await;
                    }
                })
            })
            .collect();
        let busy = slow_exchange(&organism.handle(), span).await;
        stop.store(true, Ordering::Relaxed);
        for producer in producers {
            producer.await.unwrap();
        }
        organism.stop("the bench is done").await.unwrap();
        (busy, idle)
    })
}

/// Makes calls one after another for the duration `span`. Returns the 99th percentile of their
/// durations, in microseconds.
async fn slow_exchange(handle: &Handle, span: Duration) -> f64 {
    let (began, mut times, mut thread) = (Instant::now(), Vec::new(), None);
    while began.elapsed() < span {
        let start = Instant::now();
        thread = Some(exchange(handle, "client", thread).await);
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

/// Makes one call and waits for its result. Returns the thread of the call.
async fn exchange(handle: &Handle, client: &str, thread: Option<String>) -> String {
    let target = thread.map_or(Target::New { suggested: None }, |id| Target::Thread { id });
    let client = ListenerName::parse(client).unwrap();
    let (receipt, mut results) =
        handle.submit(&client, target, None, START.as_bytes()).await.unwrap();
    let Receipt::Accepted { thread, .. } = receipt else { panic!("not accepted: {receipt:?}") };
    while let Some(done) = results.next().await {
        done.unwrap();
    }
    thread.to_string()
}

fn done(name: &str) -> NativeHostBuilder {
    let listener = listener(name);
    Box::new(move |sink, runtime| -> Arc<dyn Host> {
        let answer = |_: &_| {
            Ok(Outcome {
                payloads: vec![DONE.as_bytes().to_vec()],
                turn: None,
                ..Outcome::default()
            })
        };
        Arc::new(NativeHost::new(listener, from_fn(answer), sink, runtime.clone()))
    })
}

fn config(place: &Path) -> Config {
    std::fs::write(place.join("done.xsd"), DONE_SCHEMA).unwrap();
    let member = |client: &str, name: &str| {
        format!(
            "[clients.{client}]\npeers = [\"{name}\"]\n\
             [listeners.{name}]\ndescription = \"answers\"\ncommand = \"true\"\n\
             schema = \"done.xsd\"\naccepts = [\"start\"]\nreplies = [\"done\"]\n"
        )
    };
    let text = format!(
        "[organism]\nname = \"fair\"\ndata = \"data\"\nstate = \"state\"\n\
         [limits]\nmessages = 10000000\n{}{}",
        member("producer", "flooded"),
        member("client", "stranger"),
    );
    let file = place.join("fair.toml");
    std::fs::write(&file, text).unwrap();
    config::load(&file, &ConfigEnvironment::of_process())
        .unwrap_or_else(|problems| panic!("{problems}"))
}
