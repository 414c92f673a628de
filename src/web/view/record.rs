//! The page about the integrity of the journals. It shows whether records were changed, and whether
//! the pump makes the same decisions again from the recorded inputs. An OS thread in the background
//! performs the checks of `organism verify` and `organism replay`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{grouped, inline, moment, shown, table};
use super::{ViewState, record_entry};
use crate::audit::amounts::count;
use crate::audit::{ProofReport, ProofVerdict, VerifyOptions, verify_with};
use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Checkpoint, KeyId, may_have_journals, partitions_in};
use crate::limits;
use crate::locks::locked;
use crate::organism::replay::{ReplayReport, ReplayVerdict, replay};
use crate::thread_priority;

const PATH: &str = "/record";
/// Maximum number of checkpoints that the page lists.
const CHECKPOINTS_SHOWN: usize = 20;
/// Number of digits of a key in the list of checkpoints. Above the list, the page shows the whole
/// key.
const KEY_DIGITS: usize = 16;

/// Proves that the journals of a view are intact: checks their hash chains, and repeats the
/// recorded decisions. Only one proof runs at a time.
#[derive(Debug)]
pub(super) struct RecordProver {
    data: PathBuf,
    options: VerifyOptions,
    state: Mutex<ProverState>,
}

#[derive(Debug, Default)]
struct ProverState {
    is_running: bool,
    last: Option<Arc<ProvedRecord>>,
}

/// The results of verifying all journals, and the time at which the verification ended.
#[derive(Debug)]
struct ProvedRecord {
    at: Time,
    journals: Vec<ProvedJournal>,
}

#[derive(Debug)]
struct ProvedJournal {
    partition: Option<u32>,
    proof: Result<ProofReport, String>,
    replay: Result<ReplayReport, String>,
    /// The last record and the checkpoints of the journal; `None` if they could not be read.
    evidence: Option<ProofEvidence>,
}

/// The position and the hash of a journal's last record, and the checkpoints of the journal. With
/// these values, a person can repeat a proof, or compare two proofs.
#[derive(Debug)]
struct ProofEvidence {
    head: Position,
    hash: Digest,
    checkpoints: Vec<Checkpoint>,
}

impl ProofEvidence {
    fn read(journal: &Path) -> Option<Self> {
        let reader = JournalReader::open(journal).ok()?;
        let head = reader.last().ok()?;
        let hash = reader.record(head).ok()??.hash;
        Some(Self { head, hash, checkpoints: reader.checkpoints().ok()? })
    }
}

impl RecordProver {
    pub fn new(data: PathBuf, options: VerifyOptions) -> Self {
        Self { data, options, state: Mutex::default() }
    }

    /// Begins a proof of all journals, on an OS thread of its own. Does nothing if a proof is under
    /// way, if the last proof is younger than [`limits::WEB_PROOF_AGE`], or if no journal exists
    /// yet.
    pub fn begin(self: &Arc<Self>) {
        if !may_have_journals(&self.data) {
            return;
        }

        let mut state = locked(&self.state);
        let is_recent =
            |last: &Arc<ProvedRecord>| Time::now().since(last.at) < limits::WEB_PROOF_AGE;
        if state.is_running || state.last.as_ref().is_some_and(is_recent) {
            return;
        }
        state.is_running = true;
        drop(state);

        let prover = Arc::clone(self);
        std::thread::spawn(move || {
            thread_priority::lower(limits::WEB_PROOF_NICENESS, "the proof of the record");
            // A proof that panics must not end all later ones.
            let proved = catch_unwind(AssertUnwindSafe(|| {
                let journals = partitions_in(&prover.data).into_iter();
                let proved = journals.map(|(partition, journal)| prover.prove(partition, journal));
                ProvedRecord { journals: proved.collect(), at: Time::now() }
            }));
            let mut state = locked(&prover.state);
            state.is_running = false;
            state.last = proved.ok().map(Arc::new);
        });
    }

    fn prove(&self, partition: Option<u32>, journal: PathBuf) -> ProvedJournal {
        let last = JournalReader::open(&journal).and_then(|reader| reader.last());
        if last.as_ref().is_ok_and(|last| last.0 > limits::WEB_PROOF_RECORDS) {
            let text = |command: &str| format!("the record is long; `organism {command}` reads it");
            let proof = Err(text("verify"));
            let replay = Err(text("replay"));
            let evidence = ProofEvidence::read(&journal);
            return ProvedJournal { partition, proof, replay, evidence };
        }
        let proof = verify_with(&journal, &self.options, &mut |_, _| {});
        let replayed = replay(&journal, partition.unwrap_or_default(), &mut |_, _| {});
        ProvedJournal {
            partition,
            proof: proof.map_err(|error| error.to_string()),
            replay: replayed.map_err(|error| error.to_string()),
            evidence: ProofEvidence::read(&journal),
        }
    }

    /// Draws the result of the last proof in one line, with a link to the page of the proof.
    /// `heads` contains, for each partition, the present position of its journal's last record.
    pub fn summary(&self, heads: &[(u32, Position)]) -> Markup {
        let last = locked(&self.state).last.clone();
        let head = |journal: &ProvedJournal| {
            let partition = journal.partition.unwrap_or_default();
            heads.iter().find(|(of, _)| *of == partition).map(|(_, head)| *head)
        };
        html! {
            p.hint.verdict {
                a href=(PATH) { "Record" } ": "
                @match &last {
                    None => { "it is being proved" }
                    Some(last) => {
                        @for (at, journal) in last.journals.iter().enumerate() {
                            @if at > 0 { " " }
                            (checked(journal, last.at, head(journal)))
                        }
                    }
                }
            }
        }
    }
}

/// Draws which records of a journal were checked, and how many newer records were not. Names
/// `organism verify` if the proof is incomplete, and `organism replay` if some recorded decisions
/// were not repeated. `head` is the present position of the journal's last record.
fn checked(journal: &ProvedJournal, at: Time, head: Option<Position>) -> Markup {
    let proof = match &journal.proof {
        Ok(proof) => proof,
        Err(error) => return html! { (of_partition(journal)) "not checked: " (inline(error)) "." },
    };
    let newer = head.map_or(0, |head| head.0.saturating_sub(proof.records));
    let is_replayed =
        matches!(&journal.replay, Ok(replay) if replay.verdict() != ReplayVerdict::Undecided);
    if let Some(broken) = &proof.broken {
        // The proof ends at the break, so records after it are not newer.
        return html! {
            (of_partition(journal)) "checked at " (moment(at)) ", " b.broken { "BROKEN" }
            @if broken.position > 0 { " at record " (grouped(broken.position)) }
            ": " (inline(&broken.detail)) "."
        };
    }

    html! {
        (of_partition(journal))
        "records 1 to " (grouped(proof.records)) " checked at " (moment(at)) ", no change found"
        @if newer > 0 { "; " (count(newer, "newer record")) " not checked yet" }
        "."
        @if proof.verdict == ProofVerdict::NotProved {
            " The proof is incomplete: " code { "organism verify" } " says what is missing."
        }
        @if !is_replayed {
            " Not all decisions were made again: " code { "organism replay" } "."
        }
    }
}

fn of_partition(journal: &ProvedJournal) -> Markup {
    html! { @if let Some(partition) = journal.partition { "partition " (partition) ": " } }
}

fn verdict(journal: &ProvedJournal) -> Markup {
    let partition = journal.partition.map(|n| format!("partition {n} "));
    html! {
        (partition.unwrap_or_default())
        @match &journal.proof {
            Err(error) => { "not proved: " (inline(error)) }
            Ok(proof) => {
                @match proof.verdict {
                    ProofVerdict::Proved => { "proved up to record " (grouped(proof.records)) }
                    ProofVerdict::NotProved => {
                        "not proved up to record " (grouped(proof.records)) ", no change found"
                    }
                    ProofVerdict::Broken => { b.broken { "BROKEN" } }
                }
            }
        }
    }
}

pub(super) async fn show(State(view): State<Arc<ViewState>>) -> Response {
    view.prover.begin();
    let last = locked(&view.prover.state).last.clone();
    let content = html! {
        h1 { "Record" }
        @match last {
            None => {
                p.empty { "The record is being proved. Load this page again in a moment." }
            }
            Some(last) => {
                p { "Checked at " (moment(last.at)) "." }
                @for journal in &last.journals { (self::journal(journal, &view.prover.options)) }
                p.hint {
                    "The same proof at the terminal: " code { "organism verify" } " and "
                    code { "organism replay" } "."
                }
            }
        }
    };
    view.page("Record", PATH, &content)
}

fn journal(journal: &ProvedJournal, options: &VerifyOptions) -> Markup {
    html! {
        @if let Some(partition) = journal.partition { h2 { "Partition " (partition) } }
        @if let Ok(proof) = &journal.proof && proof.verdict == ProofVerdict::Proved {
            p.summary {
                b { (grouped(proof.records)) " of " (grouped(proof.records)) " records unchanged" }
            }
        }
        dl.facts.long {
            div { dt { "Unchanged" } dd { (verdict(journal)) } }
            @if let Some(evidence) = &journal.evidence {
                div {
                    dt { "Head" }
                    dd.digest { (record_entry::link(evidence.head)) ", sha256 " (evidence.hash) }
                }
            }
            @if let Ok(proof) = &journal.proof {
                @if let Some(broken) = &proof.broken {
                    div { dt { "Broken at" } dd { (broken.position) ": " (inline(&broken.detail)) } }
                }
                @for reason in &proof.unproved { div { dt { "Missing" } dd { (inline(reason)) } } }
                div {
                    dt { "Checked" }
                    dd {
                        "each record's SHA-256 with the hash before it, each payload with its digest, \
                         and each checkpoint's Ed25519 signature"
                    }
                }
                // The proof ends at a break, so it has not counted what follows.
                @if proof.broken.is_none() {
                    div { dt { "Redacted" } dd { (count(proof.redacted.len() as u64, "payload")) } }
                    div { dt { "Checkpoints" } dd { (proof.checkpoints) } }
                }
            }
            div { dt { "Decided again" } dd { (replayed(&journal.replay)) } }
        }
        @if let Ok(proof) = &journal.proof { (keys(proof, options)) }
        @if let Some(evidence) = &journal.evidence { (checkpoints(&evidence.checkpoints)) }
    }
}

/// Draws each key that signed checkpoints of a journal: whether the view trusts the key and why,
/// and the command that verifies a copy of the journal with this key alone.
fn keys(proof: &ProofReport, options: &VerifyOptions) -> Markup {
    html! {
        @if !proof.keys.is_empty() {
            h2 { "Keys" }
            p.hint {
                "Whoever has the private half of a key can sign another record with it. Compare the \
                 key with one that you got on another way."
            }
        }
        @for key in &proof.keys {
            dl.facts.long {
                div { dt { "Public key" } dd.digest { (key) } }
                div { dt { "Signed" } dd { (signed_range(proof, key)) } }
                div { dt { "Trusted" } dd { (trust(proof, options, key)) } }
                div {
                    dt { "Check elsewhere" }
                    dd { "with a copy of the record: " code { "organism verify DIR --key " (key) } }
                }
            }
        }
    }
}

/// Draws which checkpoints a key signed.
fn signed_range(proof: &ProofReport, key: &str) -> Markup {
    let since = proof.key_changes.iter().find(|(_, changed)| changed == key);
    html! {
        @if proof.keys.len() == 1 { "every checkpoint" } @else { "some of the checkpoints" }
        @if let Some((position, _)) = since {
            ", the first of them up to " (record_entry::link(*position))
        }
    }
}

/// Draws the reason why the proof trusts a key, or states that the proof does not trust the key.
fn trust(proof: &ProofReport, options: &VerifyOptions, key: &str) -> Markup {
    let is_named = |keys: &[String]| keys.iter().any(|known| known == key);
    html! {
        @if proof.unknown_keys.contains(&KeyId::of(key).to_string()) {
            b.broken { "no" } ": neither the config nor the state of this organism knows this key"
        } @else if is_named(&options.keys) {
            "yes: the only key that this view accepts"
        } @else if is_named(&options.known_keys) {
            "yes: the config names it in " code { "known_keys" }
        } @else {
            "yes: the state of this organism has it, or a record signed by a known key trusts it"
        }
    }
}

/// Draws the newest checkpoints.
fn checkpoints(checkpoints: &[Checkpoint]) -> Markup {
    let row = |checkpoint: &Checkpoint| {
        let key = checkpoint.key.get(..KEY_DIGITS).unwrap_or(&checkpoint.key);
        vec![
            record_entry::link(checkpoint.position),
            moment(checkpoint.time),
            html! { span.digest { (checkpoint.merkle_root) } },
            html! { code title=(checkpoint.key) { (shown(key)) "…" } },
        ]
    };
    let rows: Vec<_> = checkpoints.iter().rev().take(CHECKPOINTS_SHOWN).map(row).collect();
    let headers = ["Up to", "Time", "Root of the Merkle tree", "Signed by key"];
    html! {
        @if !rows.is_empty() {
            h2 { "Checkpoints" }
            (table("The newest checkpoints", &headers, &rows))
        }
    }
}

fn replayed(replay: &Result<ReplayReport, String>) -> Markup {
    let report = match replay {
        Ok(report) => report,
        Err(error) => return html! { "not replayed: " (inline(error)) },
    };
    html! {
        @match report.verdict() {
            ReplayVerdict::Equal => {
                (grouped(report.records)) " of " (grouped(report.records)) " decisions are the same: \
                 the core decides all records as they are"
            }
            ReplayVerdict::Undecided => {
                "no difference; " (grouped(report.folded())) " of " (grouped(report.records))
                " records were not decided again"
            }
            ReplayVerdict::Differs => { b.broken { "DIFFERENT" } }
        }
        @if let Some(difference) = &report.difference {
            " at record " (difference.position.0) ", " (inline(&difference.part)) ": recorded "
            (inline(&difference.recorded)) ", decided " (inline(&difference.decided))
        }
    }
}
