//! Queries on a long journal: `make bench` with 1,000,000 messages, `make bench-large` with ten
//! times as many. Each query runs the real command, including the start of its process, with warm
//! file caches. With `BENCH_JOURNAL=jetstream`, the journal is the projection of a stream.

mod generate;
#[expect(dead_code, reason = "tests do more with records")]
#[path = "../../it/journal/script.rs"]
mod script;
mod streamed;

use std::cell::OnceCell;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use organism::contract::TreeLimits;
use organism::ids::Digest;
use organism::index;
use organism::journal::OperatorAcceptance;
use organism::journal::sqlite::{JournalReader, SqliteJournal};
use organism::pump::ResidentCore;
use organism::pump::core::Core;
use organism::pump::snapshot_maker::SnapshotPlan;
use organism::thread::Fact;

use rusqlite::{Connection, OpenFlags};

use super::figures::{Bench, percentile};
use super::nats::Server;
use generate::LargeJournal;

const MESSAGES: usize = 1_000_000;
const MESSAGES_QUICK: usize = 50_000;
/// Disk space that is needed per message: for the journal, the index, and temporary files while the
/// index is made.
const BYTES_PER_MESSAGE: usize = 3_000;
/// Number of runs of each query.
const QUERIES: usize = 20;
/// Number of words that are searched for in each tenth of the vocabulary, which is sorted by
/// frequency.
const WORDS: usize = 100;

thread_local! {
    /// The journal that all figures of a run share. It is written once.
    static JOURNAL: OnceCell<LargeJournal> = const { OnceCell::new() };
    /// The server of the journal's stream, if the journal is on JetStream.
    static SERVER: OnceCell<Server> = const { OnceCell::new() };
}

fn with_journal<T>(bench: &Bench, measure: impl FnOnce(&LargeJournal) -> T) -> T {
    JOURNAL.with(|journal| measure(journal.get_or_init(|| written(bench))))
}

fn written(bench: &Bench) -> LargeJournal {
    let set = std::env::var("BENCH_MESSAGES").ok().and_then(|text| text.parse().ok());
    let messages = set.unwrap_or(if bench.quick { MESSAGES_QUICK } else { MESSAGES });
    let gigabytes = (messages * BYTES_PER_MESSAGE).div_ceil(1_000_000_000);
    println!("writes {messages} messages; needs up to {gigabytes} GB below target/bench");
    let began = Instant::now();
    let journal = LargeJournal::write(messages);
    let LargeJournal { messages, records, trees, .. } = journal;
    let took = began.elapsed();
    println!("wrote {messages} messages, {records} records, {trees} trees in {took:.0?}");
    if is_streamed() {
        SERVER.with(|server| server.set(streamed::moved(&journal)).ok());
    }
    journal
}

/// Whether the journal is on JetStream.
fn is_streamed() -> bool {
    std::env::var("BENCH_JOURNAL").is_ok_and(|kind| kind == "jetstream")
}

/// Returns the directory of this run's journal, and words of the journal: ten from each tenth of
/// the vocabulary, which is sorted by frequency.
pub fn data_and_words(bench: &Bench) -> (PathBuf, Vec<String>) {
    with_journal(bench, |journal| {
        took(journal, &["threads"]);
        let step = (journal.words.len() / 100).max(1);
        (journal.data(), journal.words.iter().step_by(step).cloned().collect())
    })
}

/// Deletes the journal of this run.
pub fn remove() {
    JOURNAL.with(|journal| {
        if let Some(journal) = journal.get() {
            std::fs::remove_dir_all(&journal.place).unwrap();
        }
    });
}

/// Size of a database file and its write-ahead log, in bytes.
fn bytes(file: &Path) -> f64 {
    let wal = PathBuf::from(format!("{}-wal", file.display()));
    [file, &wal].iter().filter_map(|file| file.metadata().ok()).map(|file| file.len() as f64).sum()
}

/// Adds the bytes of the journal per message, and the share of each component in these bytes.
pub fn disk(bench: &mut Bench) {
    let (size, parts, messages) = with_journal(bench, |journal| {
        let file = journal.data().join("journal.db");
        (bytes(&file), disk_parts(&file), journal.messages as f64)
    });

    bench.figures.add("large_disk", size / messages, "bytes a message", None);
    for (part, bytes) in parts {
        bench.figures.add(part, bytes / messages, "bytes a message", None);
    }
}

/// Returns the size in bytes of each component of a journal.
fn disk_parts(file: &Path) -> [(&'static str, f64); 6] {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sizes = |sql: &str| -> [f64; 3] {
        db.query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).unwrap()
    };

    let columns = "SELECT total(length(payloads)), total(octet_length(body)), \
                   total(length(hash) + length(previous_hash) + coalesce(length(mac), 0)) \
                   FROM step";
    let [payloads, texts, hashes] = sizes(columns);
    let pages = "SELECT total(payload), total(unused), total(pgsize) FROM dbstat";
    let [_, unused, pages_of_steps] = sizes(&format!("{pages} WHERE name = 'step'"));
    let [.., others] = sizes(&format!("{pages} WHERE name <> 'step'"));
    [
        ("large_disk_payloads", payloads),
        ("large_disk_texts", texts),
        ("large_disk_hashes", hashes),
        ("large_disk_columns", pages_of_steps - unused - payloads - texts - hashes),
        ("large_disk_unused", unused),
        ("large_disk_other_tables", others),
    ]
}

/// Adds the speed of making the index, the size of the index relative to the journal, and the peak
/// memory of the process that makes the index.
pub fn rebuild(bench: &mut Bench) {
    let (rate, size, rss) = with_journal(bench, |journal| {
        let file = journal.data().join(index::INDEX_DATABASE);
        std::fs::remove_file(&file).ok();
        let program = std::env::current_exe().unwrap();
        let made = Command::new(program).arg("index").arg(journal.data()).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let size = bytes(&file) / bytes(&journal.data().join("journal.db"));
        (journal.messages as f64 / numbers[0], size, numbers[1])
    });
    bench.figures.add("large_rebuild", rate, "messages/s", None);
    bench.figures.add("large_rebuild_rss", rss, "MB", None);
    bench.figures.add_small("large_index_size", size, "journals");
}

/// Makes the index of a journal. The second argument of the process is the directory of the
/// journal. Prints the duration in seconds and the peak memory in MB.
pub fn make_index() {
    let data = PathBuf::from(std::env::args().nth(2).unwrap());
    let began = Instant::now();
    index::read(&data, &mut |_, _| {}, &mut |_| Ok(())).unwrap();
    let took = began.elapsed().as_secs_f64();
    println!("{took} {}", peak_memory());
}

/// Peak memory of this process in MB.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
    peak.unwrap_or(0.0) / 1e3
}

/// Adds the time and the memory of opening the journal and its state, first without a snapshot and
/// then from a snapshot. Also adds the size of the snapshot, and the time and the memory of making
/// it.
pub fn start(bench: &mut Bench) {
    let figures = with_journal(bench, |journal| {
        let whole = measured(journal, "start");
        let made = measured(journal, "snapshot");
        let size = snapshot_bytes(journal);
        let resumed = measured(journal, "start");
        [
            ("large_start_whole", whole[0], "s"),
            ("large_start_whole_rss", whole[1], "MB"),
            ("large_snapshot", made[0], "s"),
            ("large_snapshot_rss", made[1], "MB"),
            ("large_snapshot_size", size / 1e6, "MB"),
            ("large_start", resumed[0], "s"),
            ("large_start_rss", resumed[1], "MB"),
        ]
    });
    for (figure, value, unit) in figures {
        bench.figures.add_small(figure, value, unit);
    }
}

/// Runs this program in `mode` on the journal. Returns the duration in seconds and the peak memory
/// in MB.
fn measured(journal: &LargeJournal, mode: &str) -> Vec<f64> {
    let program = std::env::current_exe().unwrap();
    let mut measured = Command::new(program);
    measured.arg(mode).arg(journal.data()).arg(journal.state());
    if let Some(address) = SERVER.with(|server| server.get().map(Server::address)) {
        measured.env(streamed::SERVER_ADDRESS, address);
    }
    let text = String::from_utf8(measured.output().unwrap().stdout).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Opens a journal as a pump does. The second and the third argument of the process are the
/// directories of the journal. Prints the duration in seconds and the peak memory in MB.
pub fn open() {
    let [data, state] = directories();
    let began = Instant::now();
    let core = Core::new(Arc::default(), TreeLimits::default(), Digest::ZERO);
    let mut core = ResidentCore::new(core, data.clone());
    // Closing the journal is not measured.
    let (took, trees) = match std::env::var(streamed::SERVER_ADDRESS) {
        Ok(address) => {
            let journal = streamed::open(address, &data, &state, &mut core);
            (began.elapsed(), journal.heads().len())
        }
        Err(_) => {
            let accept = OperatorAcceptance::default();
            let opened = SqliteJournal::open_recovering(&data, &state, None, accept, &mut core);
            let journal = opened.unwrap();
            (began.elapsed(), journal.heads().len())
        }
    };
    assert!(trees > 1);
    println!("{} {}", took.as_secs_f64(), peak_memory());
}

fn directories() -> [PathBuf; 2] {
    [2, 3].map(|at| PathBuf::from(std::env::args().nth(at).unwrap()))
}

/// Makes a snapshot at the last checkpoint of a journal. The second and the third argument of the
/// process are the directories of the journal. Prints the duration in seconds and the peak memory
/// in MB.
pub fn make_snapshot() {
    let [data, state] = directories();
    let reader = JournalReader::open(&data).unwrap();
    let journal = reader.about().unwrap().journal;
    let plan = SnapshotPlan { data, state, journal, records: 1, proof: None };
    let last = reader.checkpoints().unwrap().last().unwrap().position;
    let began = Instant::now();
    assert_eq!(plan.make(last, &|| false).unwrap(), Some(last));
    let took = began.elapsed().as_secs_f64();
    println!("{took} {}", peak_memory());
}

/// Size of the snapshot in bytes.
fn snapshot_bytes(journal: &LargeJournal) -> f64 {
    let entries = std::fs::read_dir(journal.state()).unwrap().map(|entry| entry.unwrap());
    let is_part = |entry: &DirEntry| entry.file_name().to_string_lossy().contains(".snapshot");
    entries.filter(is_part).map(|entry| entry.metadata().unwrap().len() as f64).sum()
}

fn command(journal: &LargeJournal, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_organism"));
    command.args(args).arg("--data").arg(journal.data()).arg("--state").arg(journal.state());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Duration of one run of a command on the journal, in milliseconds.
fn took(journal: &LargeJournal, args: &[&str]) -> f64 {
    let began = Instant::now();
    let code = command(journal, args).status().unwrap().code();
    // A search without a hit exits with 1.
    assert!(matches!(code, Some(0 | 1)), "{args:?}: {code:?}");
    1e3 * began.elapsed().as_secs_f64()
}

/// Adds the duration of a command as a figure: the 95th percentile of its runs, in milliseconds.
fn add_query(bench: &mut Bench, figure: &str, args: &[&str]) {
    let runs = if bench.quick { 5 } else { QUERIES };
    let value = with_journal(bench, |journal| {
        for _ in 0..2 {
            took(journal, args);
        }
        percentile((0..runs).map(|_| took(journal, args)).collect(), 0.95)
    });
    bench.figures.add_small(figure, value, "ms");
}

/// Duration of `threads`: without a filter, with each filter, and with two filters.
pub fn threads(bench: &mut Bench) {
    let (common, rare) = with_journal(bench, |journal| {
        (journal.words[0].clone(), journal.words[journal.words.len() - 1].clone())
    });
    let filters: [(&str, &[&str]); 13] = [
        ("plain", &[]),
        ("status", &["--status", "running"]),
        ("status_common", &["--status", "completed"]),
        ("since", &["--since", "2026-11-21"]),
        ("until", &["--until", "2026-11-21"]),
        ("listener", &["--listener", "mailer"]),
        ("listener_none", &["--listener", "none"]),
        ("agent", &["--agent", "writer"]),
        ("payload_rare", &["--payload", "none"]),
        ("cost_none", &["--cost-over", "1000000"]),
        ("needs_you", &["--needs-you"]),
        ("words_common", &[&common]),
        ("words_rare", &[&rare]),
    ];
    for (figure, args) in filters {
        let args = [&["threads"], args].concat();
        add_query(bench, &format!("large_threads_{figure}"), &args);
    }
    for (figure, more) in [
        ("listener_status", ["--status", "running"]),
        ("listener_until", ["--until", "2026-11-21"]),
    ] {
        let args = [&["threads", "--listener", "mailer"][..], &more].concat();
        add_query(bench, &format!("large_threads_{figure}"), &args);
    }
    add_query(bench, "large_threads_errors", &["threads", "--errors"]);
}

/// Duration of showing the first page of a thread: of a thread of common size, and of the longest
/// one.
pub fn thread(bench: &mut Bench) {
    let samples = with_journal(bench, |journal| journal.samples.clone());
    for (figure, thread) in ["large_thread", "large_thread_long"].into_iter().zip(samples) {
        add_query(bench, figure, &["thread", thread.as_str()]);
    }
}

/// Duration of searches: for frequent to rare words, for a word that does not occur, and for a word
/// within one tree.
pub fn search(bench: &mut Bench) {
    let count = if bench.quick { 5 } else { WORDS };
    let deciles = with_journal(bench, |journal| {
        let size = journal.words.len() / 10;
        took(journal, &["search", &journal.words[0]]);
        let words = journal.words.chunks(size).take(10);
        let p95 = words.map(|words| {
            let chosen = words.iter().step_by((size / count).max(1)).take(count);
            percentile(chosen.map(|word| took(journal, &["search", word])).collect(), 0.95)
        });
        p95.collect::<Vec<_>>()
    });
    for (decile, value) in (1..).zip(deciles) {
        bench.figures.add_small(&format!("large_search_{decile}"), value, "ms");
    }
    add_query(bench, "large_search_no_hit", &["search", "doesnotoccur"]);

    let (word, [common, long]) =
        with_journal(bench, |journal| (journal.words[0].clone(), journal.samples.clone()));
    for (figure, tree) in [("large_search_tree", common), ("large_search_tree_long", long)] {
        add_query(bench, figure, &["search", &word, "--thread", tree.as_str()]);
    }
}

pub fn approvals(bench: &mut Bench) {
    add_query(bench, "large_approvals", &["approvals"]);
    add_query(bench, "large_approvals_all", &["approvals", "--all"]);
}

/// Duration of showing one message from a thread of common size.
pub fn message(bench: &mut Bench) {
    let id = with_journal(bench, |journal| {
        let reader = JournalReader::open(&journal.data()).unwrap();
        let records = reader.tree(&journal.samples[0], None).unwrap();
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let mut ids = facts.filter_map(|fact| match fact {
            Fact::Accepted { message, .. } => Some(message.id),
            _ => None,
        });
        ids.next_back().expect("the tree has messages").to_string()
    });
    add_query(bench, "large_message", &["message", &id]);
}

pub fn stats(bench: &mut Bench) {
    add_query(bench, "large_stats", &["stats", "--by", "agent"]);
    add_query(bench, "large_stats_listener_day", &["stats", "--by", "listener,day"]);
}

/// Speed of `organism verify`.
pub fn verify(bench: &mut Bench) {
    let rate = with_journal(bench, |journal| {
        let began = Instant::now();
        let verified = command(journal, &["verify"]).status().unwrap();
        let took = began.elapsed();
        println!("  verify: {verified}");
        journal.messages as f64 / took.as_secs_f64()
    });
    bench.figures.add("large_verify", rate, "messages/s", None);
}
