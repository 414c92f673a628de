//! Cost of the message path: `make bench`. Each figure is compared with its floor, the cost of the
//! same work without organism.
//!
//! Every figure is the median of several runs. Its floor is measured in the same run, because the
//! disk of a shared machine varies.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench that panics has failed, and its table goes to the terminal"
)]

mod bare;
mod cpu;
mod engine;
mod extract;
mod fair;
mod figures;
mod floor;
mod gate_refuse;
mod growth;
mod hop;
mod index_load;
mod large;
mod memory;
mod mode_process;
#[expect(dead_code, unused_imports, reason = "tests do more with a server")]
#[path = "../it/nats.rs"]
mod nats;
mod open_runs;
mod plain;
mod provider;
mod pumps;
mod relay;
mod remembered;
mod remote;
mod render;
mod start;
mod story;
#[path = "../it/abuse/streams/server.rs"]
mod streams;
mod takeover;
mod turn;
mod turns;
mod waiters;
mod waiting_threads;
mod web_view;
mod wire;
mod workflows;

use std::time::Duration;

use figures::{Bench, Figures};
use floor::Floors;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of runs for each figure; the figure is their median.
const RUNS: usize = 5;
const SECONDS: u64 = 3;

type Figure = (&'static str, fn(&mut Bench));

/// Every figure, in the order of the table. A name on the command line selects the figures whose
/// names contain it.
const FIGURES: [Figure; 55] = [
    ("relay_native_t64", relay::native_t64),
    ("relay_native_t1", relay::native_t1),
    ("relay_process_t64", relay::process_t64),
    ("relay_nats_t1", remote::t1),
    ("relay_nats_t1_synced", remote::t1_synced),
    ("relay_nats_t64", remote::t64),
    ("relay_nats_t64_synced", remote::t64_synced),
    ("relay_nats_pumps", pumps::two),
    ("relay_growth", growth::messages),
    ("relay_growth_threads", growth::threads),
    ("fair_p99", fair::p99),
    ("extract_whole", extract::whole),
    ("extract_bytewise", extract::bytewise),
    ("gate_refuse", gate_refuse::run),
    ("provider_openai", provider::openai),
    ("provider_anthropic", provider::anthropic),
    ("extract_share", provider::extract_share),
    ("turn_overhead", turn::overhead),
    ("prompt_render_1000", render::thousand),
    ("turn_1000", remembered::turn_1000),
    ("tree_1000", remembered::tree_1000),
    ("start_100k", start::hundred_thousand),
    ("start_1m", start::million),
    ("takeover", takeover::ready),
    ("cold_start_check", start::check),
    ("cold_start_run", start::run),
    ("rss_idle", memory::idle),
    ("rss_10k_threads", memory::at_rest),
    ("finished_thread", memory::finished),
    ("waiting_people", waiting_threads::people),
    ("waiting_timers", waiting_threads::timers),
    ("rss_100_streams", memory::streams),
    ("waiters_200", waiters::two_hundred),
    ("agent_1tool", workflows::agent_1tool),
    ("supervisor_4", workflows::supervisor_4),
    ("fanout_100", workflows::fanout_100),
    ("engine", engine::goals),
    ("goals_2000", workflows::goals_2000),
    ("runs_1000", open_runs::memory),
    ("resume_after_kill", open_runs::resume_after_kill),
    ("relay_indexed", relay::indexed),
    ("relay_indexed_half", index_load::half_load),
    ("index_burst", index_load::burst),
    ("relay_live_pages", web_view::relay_live),
    ("large_disk", large::disk),
    ("large_rebuild", large::rebuild),
    ("large_threads", large::threads),
    ("large_thread_page", large::thread),
    ("large_search", large::search),
    ("large_approvals", large::approvals),
    ("large_message", large::message),
    ("large_stats", large::stats),
    ("large_web_pages", web_view::pages),
    ("large_verify", large::verify),
    ("large_start", large::start),
];

fn main() {
    match std::env::args().nth(1).as_deref() {
        // A process listener of the relay is this program again, and so is the idle organism.
        Some("listener") => relay::listen(),
        Some("forwarder") => return bare::forward(),
        Some("pump") => return pumps::pump(),
        Some("rest") => return memory::rest(),
        Some("waiting") => return waiting_threads::wait(),
        Some("open-runs") => return open_runs::open(),
        Some("interrupted") => return open_runs::interrupted(),
        Some("hop") => return hop::measure(),
        Some("index") => return large::make_index(),
        Some("start") => return large::open(),
        Some("snapshot") => return large::make_snapshot(),
        _ => {}
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w));
    let quick = std::env::var_os("BENCH_QUICK").is_some();
    let seconds = std::env::var("BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    let (runs, seconds) = match quick {
        true => (1, seconds.unwrap_or(1)),
        false => (RUNS, seconds.unwrap_or(SECONDS)),
    };
    let span = Duration::from_secs(seconds);
    let mut figures = Figures::new();
    let floors = Floors::measured(&mut figures, runs, span);
    let mut bench = Bench { figures, floors, runs, span, quick };
    for (_, measure) in FIGURES.into_iter().filter(|(name, _)| is_wanted(name)) {
        measure(&mut bench);
    }
    large::remove();
    bench.figures.write();
}
