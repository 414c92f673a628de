//! `turn_overhead`: processor time of a complete turn of an agent in a thread of 20 messages,
//! without the pump. The turn reads the thread, renders the prompt, calls the model over a socket,
//! extracts actions from the streamed answer of 2,000 tokens, and writes its note.

use super::cpu;
use super::figures::{Bench, Class, median, median_of};
use super::provider::TOKENS;
use super::story::{Plot, Story};
use super::turns;
use super::wire::{ANTHROPIC, OPENAI, Server};
use organism::agent::TurnServices;
use organism::envelope::{NotReserved, Reservation};

/// A call context without budgets, in which no call is cancelled.
struct Alone;

impl TurnServices for Alone {
    async fn reserve(&self, _: Reservation) -> Option<Result<(), NotReserved>> {
        Some(Ok(()))
    }

    async fn cancelled(&self) {
        std::future::pending().await
    }

    fn progress(&self) {}
}

/// Number of turns in a run; the result is their median.
const TURNS: usize = 20;

pub fn overhead(bench: &mut Bench) {
    let story = Story::recorded("turn", Plot { questions: 1, looks: 4 });
    let tokens = turns::report(TOKENS, "answer");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let classes = [OPENAI, ANTHROPIC].map(|wire| {
        let server = Server::start(&wire, &tokens, 2 * TURNS * bench.runs);
        let due = story.due(&format!(
            "provider = \"{}\"\nmodel = \"m-1\"\nbase_url = \"{}\"\napi_key_env = \"BENCH_KEY\"\n",
            wire.preset, server.url
        ));
        let value = median(bench.runs, || {
            let turns = (0..TURNS).map(|_| {
                cpu::micros(|| {
                    let outcome = runtime.block_on(due.agent.turn(&due.delivery, &Alone)).unwrap();
                    let turn = outcome.turn.unwrap();
                    assert!(turn.findings.is_empty() && turn.note.len() > TOKENS);
                    assert_eq!(outcome.payloads.len(), 2, "a thought and the answer");
                })
            });
            median_of(turns)
        });
        let floor = median_of((0..TURNS * bench.runs).map(|_| cpu::micros(|| server.read())));
        server.join();
        Class { name: wire.preset.to_owned(), value, floor }
    });
    bench.figures.add_worst("turn_overhead", "us CPU", &classes, |class| class.value);
}
