//! Fuzz tests of all parsers that read text, bytes or files from outside. The inputs are nearly
//! valid: small mutations of a checked-in corpus, the same in every run. Stable Rust is enough.
//!
//! `FUZZ_SECONDS` sets the seconds for each target (default: 1). `FUZZ_SEED` sets the seed of the
//! mutations (default: 1). Failing inputs are stored in `target/fuzz/`; copy them into the corpus
//! with the fix, because the corpus always runs first.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics has failed, which is what is wanted"
)]

mod answers;
mod driver;
mod targets;

#[path = "../it/campaign.rs"]
mod campaign;

#[expect(dead_code, reason = "shared with the tests of the gate, which use more of it")]
#[path = "../it/gate/stage.rs"]
mod stage;

use driver::fuzz;

#[test]
fn the_gate_judges_any_bytes_and_what_it_takes_libxml2_takes() {
    let gate = stage::gate();
    assert!(fuzz("gate", &mut |bytes| targets::gate(&gate, bytes)).outcomes > 5);
}

#[test]
fn an_extraction_is_the_same_however_it_is_chunked() {
    let grammar = targets::grammar();
    assert!(fuzz("extract", &mut |bytes| targets::extract(&grammar, bytes)).outcomes > 5);
}

#[test]
fn a_schema_loads_whole_or_says_why_not() {
    let mut loader = targets::Loader::new();
    assert!(fuzz("schema", &mut |bytes| loader.schema(bytes)).outcomes > 5);
}

#[test]
fn a_damaged_journal_is_an_error_and_never_another_story() {
    let mut vault = targets::Vault::new();
    assert!(fuzz("journal", &mut |bytes| vault.journal(bytes)).outcomes > 2);
}

#[test]
fn a_config_is_good_or_has_a_problem() {
    let mut desk = targets::FuzzSetup::new();
    assert!(fuzz("config", &mut |bytes| desk.config(bytes)).outcomes > 5);
}

#[test]
fn an_answer_over_http_is_the_same_however_it_is_cut_and_never_a_part() {
    let mut provider = answers::Provider::new();
    assert!(fuzz("http", &mut |bytes| provider.http(bytes)).outcomes > 5);
}

#[test]
fn the_events_of_a_stream_are_those_of_the_standard_however_it_is_cut() {
    assert!(fuzz("sse", &mut answers::sse).outcomes > 5);
}
