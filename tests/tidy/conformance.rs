//! Checks that every test which starts an organism, or plays its pump, runs on both an embedded
//! journal and a stream. Exceptions are listed, each with its reason.

use std::path::Path;

use crate::nothing;
use crate::tree::{read, rust};

/// Test areas that touch a journal and are left out of `.ci/conformance`, each with its reason.
const ONE_KIND: [(&str, &str); 25] = [
    ("index", "reads journals of both kinds"),
    ("journal", "its own suite runs on both kinds"),
    ("deploy", "starts what the examples say"),
    ("fixtures", "holds journals of both kinds"),
    ("faults::places", "lists the failpoints"),
    ("faults::power", "cuts the power to an embedded journal's disk"),
    ("faults::rot", "flips bits of an embedded journal's file"),
    ("agent::stage", "keeps its records in memory"),
    ("bus::remote", "has no journal"),
    ("organism::blobs", "changes an embedded journal's files"),
    ("organism::cluster", "brings its own servers"),
    ("organism::copies", "changes an embedded journal's files"),
    ("organism::forged_tails", "changes an embedded journal's file"),
    ("organism::losses", "changes an embedded journal's files"),
    ("organism::nats_config", "brings its own servers"),
    ("organism::neighbours", "has two projects with embedded journals"),
    ("organism::partitions", "brings its own servers"),
    ("organism::promote", "moves from one kind to the other"),
    ("organism::proof", "changes an embedded journal's files"),
    ("organism::pumps", "is about JetStream"),
    ("organism::revoked", "brings its own servers"),
    ("organism::snapshots", "changes an embedded journal's files"),
    ("organism::streams", "is about JetStream"),
    ("organism::trial_listeners", "tries listeners on an embedded journal"),
    ("organism::ways_on", "changes an embedded journal's files"),
];

/// Words that show that a file touches a journal.
const SIGNS: [&str; 6] =
    ["House::", "Stage::start(", "World::", "Kept::", "Place::new()", "house()"];

/// The words of the list `name` in `.ci/conformance`.
fn list(name: &str) -> Vec<String> {
    let script = read(".ci/conformance");
    let (_, rest) = script.split_once(&format!("\n{name}=(")).expect("a list");
    let (words, _) = rest.split_once(')').expect("its end");
    words.split_whitespace().map(str::to_owned).collect()
}

/// Module path of the tests in a file.
fn module(path: &str) -> String {
    let path = Path::new(path.trim_start_matches("tests/it/")).with_extension("");
    path.display().to_string().replace('/', "::")
}

#[test]
fn whatever_keeps_a_journal_is_tried_on_both_kinds() {
    let (areas, own) = (list("AREAS"), list("OWN"));
    let begins = |name: &str, with: &str| {
        format!("{name}::").starts_with(with)
            || format!("{name}::").starts_with(&format!("{with}::"))
    };
    let has_own = |name: &str| ONE_KIND.iter().any(|(known, _)| begins(name, known));
    let mut left_out = Vec::new();
    for file in rust().filter(|file| file.path.starts_with("tests/it/")) {
        let name = module(&file.path);
        let is_run =
            areas.iter().any(|area| begins(&name, area)) && !own.iter().any(|o| begins(&name, o));
        let keeps =
            SIGNS.iter().any(|sign| file.code.contains(sign)) && file.code.contains("#[test]");
        if keeps && !is_run && !has_own(&name) {
            left_out
                .push(format!("{} is not in .ci/conformance, nor here with a reason", file.path));
        }
    }
    nothing(left_out, "what starts an organism runs on JetStream too");
    let known = rust().map(|file| file.path.as_str());
    let known: Vec<_> = known.filter(|path| path.starts_with("tests/it/")).collect();
    let once = list("ONCE").into_iter().map(|area| area.trim_end_matches("::").to_owned());
    let exceptions = ONE_KIND.iter().map(|(name, _)| (*name).to_owned()).chain(once);
    let gone = exceptions.filter(|name| {
        let path = format!("tests/it/{}", name.replace("::", "/"));
        !known.iter().any(|known| known.starts_with(&path))
    });
    nothing(gone.collect(), "exceptions for what there is not");
}

#[test]
fn each_area_of_the_pump_that_runs_once_writes_its_records_to_a_stream() {
    let streams = read("tests/it/pump/streams.rs");
    let once = list("ONCE");
    let areas = once.iter().filter_map(|area| area.strip_prefix("pump::"));
    // One takes its journal from the driver, and the other is the list itself.
    let areas = areas.filter(|area| !["control_socket::", "streams::"].contains(area));
    let missing = areas.filter(|area| !streams.contains(&format!("    {area}")));
    nothing(missing.map(str::to_owned).collect(), "the records of each area reach a stream");
}
