//! An organism in the test process: a real config, a real journal, and handlers of the test.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use organism::bus::native_host::{NativeHost, from_fn};
use organism::bus::{Delivery, Host, Outcome, Sink};
use organism::config::{self, ConfigEnvironment};
use organism::ids::{ListenerName, ThreadId};
use organism::organism::{NativeHostBuilder, Organism};
use organism::pump::core::{Receipt, Target};
use organism::pump::driver::{CallCompletion, Completions};
use tokio::runtime;

use super::judge;
use crate::organism::House;

pub fn name(text: &str) -> ListenerName {
    ListenerName::parse(text).unwrap()
}

/// Returns a listener of the test that answers every delivery with the result of `answer`.
pub fn native(
    who: &str,
    answer: impl Fn(&Delivery) -> Vec<String> + Send + Sync + 'static,
) -> (ListenerName, NativeHostBuilder) {
    native_bytes(who, move |delivery| {
        answer(delivery).into_iter().map(String::into_bytes).collect()
    })
}

/// Returns a listener of the test as [`native`] does. The answers are bytes, which need not be
/// text.
pub fn native_bytes(
    who: &str,
    answer: impl Fn(&Delivery) -> Vec<Vec<u8>> + Send + Sync + 'static,
) -> (ListenerName, NativeHostBuilder) {
    let listener = name(who);
    let host = {
        let listener = listener.clone();
        move |sink: Arc<dyn Sink>, runtime: &runtime::Handle| -> Arc<dyn Host> {
            let handler = from_fn(move |delivery: &Delivery| {
                Ok(Outcome { payloads: answer(delivery), turn: None, ..Outcome::default() })
            });
            Arc::new(NativeHost::new(listener, handler, sink, runtime.clone()))
        }
    };
    (listener, Box::new(host))
}

pub struct Stage {
    pub house: House,
    pub organism: Organism,
}

impl Stage {
    /// Starts the organism of `house` with these listeners. Writes the schema of the pump's tests
    /// as `words.xsd`.
    pub async fn start(house: House, natives: Vec<(ListenerName, NativeHostBuilder)>) -> Self {
        let words = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
        std::fs::copy(words, house.path("words.xsd")).unwrap();
        let mut around = ConfigEnvironment::of_process();
        let place = |name: &str| house.path(name).display().to_string();
        around.variables.insert("XDG_DATA_HOME".to_owned(), place("data"));
        around.variables.insert("XDG_STATE_HOME".to_owned(), place("state"));
        let substrate = crate::nats::substrate(&house.path(""));
        around.variables.extend(substrate.into_iter().map(|(key, value)| (key.to_owned(), value)));
        let loaded = config::load(&house.path("organism.toml"), &around);
        let config = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
        let natives: HashMap<_, _> = natives.into_iter().collect();
        let organism = Organism::start_with(config, natives).await.unwrap();
        Self { house, organism }
    }

    pub async fn submit(&self, who: &str, target: Target, text: &[u8]) -> (Receipt, Completions) {
        self.organism.handle().submit(&name(who), target, None, text).await.unwrap()
    }

    /// Submits a request into a new thread. Returns the thread and the result of the call.
    pub async fn ask(&self, who: &str, text: &str) -> (ThreadId, CallCompletion) {
        let target = Target::New { suggested: None };
        let (receipt, mut results) = self.submit(who, target, text.as_bytes()).await;
        let Receipt::Accepted { thread, .. } = receipt else { panic!("{text}: {receipt:?}") };
        (thread, results.next().await.unwrap().unwrap())
    }

    /// Measures the latency of `count` requests of a client, one after the other.
    pub async fn waits(&self, who: &str, text: &str, count: usize) -> Waits {
        let mut waits = Vec::with_capacity(count);
        for _ in 0..count {
            let asked = Instant::now();
            self.ask(who, text).await;
            waits.push(asked.elapsed());
        }
        waits.sort_unstable();
        Waits(waits)
    }

    /// Stops the organism and checks every safety property on its records.
    pub async fn end(self) -> (House, organism::audit::ThreadCounts) {
        judge::quiet(&self.house);
        self.organism.stop("the test is over").await.unwrap();
        let tally = judge::assert_house_kept(&self.house);
        (self.house, tally)
    }
}

/// The latencies of a client's requests, in rising order.
pub struct Waits(Vec<Duration>);

impl Waits {
    pub fn part(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}
