//! The page about the integrity of the journals. It shows whether records were changed, and whether
//! the pump makes the same decisions again from the recorded inputs. An OS thread in the background
//! performs the checks of `organism verify` and `organism replay`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{grouped, inline, moment, shown, table};
use super::{ViewState, record_entry};
use crate::audit::{ProofReport, ProofVerdict, VerifyOptions, verify_with};
use crate::clock::Time;
use crate::ids::{Digest, Position};
use crate::journal::sqlite::JournalReader;
use crate::journal::{Checkpoint, KeyId, may_have_journal, may_have_journals, partitions_in};
use crate::limits;
use crate::locks::locked;
use crate::organism::replay::{ReplayReport, ReplayVerdict, replay};
use crate::plural::count;
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

impl ProvedRecord {
    /// Whether any of the journals was removed from its directory, or was put back there, since the
    /// verification began.
    fn is_outdated(&self) -> bool {
        let has_changed =
            |journal: &ProvedJournal| may_have_journal(&journal.directory) != journal.was_there;
        self.journals.iter().any(has_changed)
    }
}

#[derive(Debug)]
struct ProvedJournal {
    partition: Option<u32>,
    directory: PathBuf,
    /// Whether the journal was in its directory when the proof began.
    was_there: bool,
    proof: Result<ProofReport, String>,
    replay: Result<ReplayReport, String>,
    /// The last record and the last checkpoints of the journal; `None` if they could not be read.
    evidence: Option<ProofEvidence>,
}

/// The position and the hash of a journal's last record, and the last checkpoints of the journal.
/// With these values, a person can repeat a proof, or compare two proofs.
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
        let checkpoints = reader.last_checkpoints(CHECKPOINTS_SHOWN).ok()?;
        Some(Self { head, hash, checkpoints })
    }
}

impl RecordProver {
    pub fn new(data: PathBuf, options: VerifyOptions) -> Self {
        Self { data, options, state: Mutex::default() }
    }

    /// Begins to prove that all journals are intact, on an OS thread of its own. Does nothing in
    /// these cases:
    ///
    /// - A proof is under way.
    /// - The last proof ended less than [`limits::WEB_PROOF_AGE`] ago, and none of its journals was
    ///   removed or put back since that proof began.
    /// - No proof has ended with a result yet, and no journal exists.
    ///
    /// If the OS thread cannot be started, a later call begins the proof.
    pub fn begin(self: &Arc<Self>) {
        self.begin_on(thread::Builder::new());
    }

    fn begin_on(self: &Arc<Self>, builder: thread::Builder) {
        if !self.claim() {
            return;
        }

        let prover = Arc::clone(self);
        let started = builder.spawn(move || {
            thread_priority::lower(limits::WEB_PROOF_NICENESS, "the proof of the record");
            // A proof that panics must not end all later ones.
            let proved = catch_unwind(AssertUnwindSafe(|| prover.prove_all()));
            prover.end(proved.ok());
        });
        if let Err(error) = started {
            tracing::warn!("could not start a thread for the proof of the record: {error}");
            self.end(None);
        }
    }

    /// Notes the end of a proof. `proved` is its result, or `None` if the proof panicked or could
    /// not be started. The result of the earlier proof then stays.
    fn end(&self, proved: Option<ProvedRecord>) {
        let mut state = locked(&self.state);
        state.is_running = false;
        if let Some(proved) = proved {
            state.last = Some(Arc::new(proved));
        }
    }

    /// If a proof is due and none is under way, notes that a proof is under way, and returns true.
    /// Otherwise, returns false.
    fn claim(&self) -> bool {
        let may_have_journals = may_have_journals(&self.data);
        let mut state = locked(&self.state);
        let is_due = match &state.last {
            // A journal that was proved before may be gone now, which a new proof reports.
            Some(last) => last.is_outdated() || Time::now().since(last.at) >= limits::WEB_PROOF_AGE,
            None => may_have_journals,
        };
        let is_claimed = is_due && !state.is_running;
        state.is_running |= is_claimed;
        is_claimed
    }

    fn prove_all(&self) -> ProvedRecord {
        let journals = self.journals().into_iter();
        let proved = journals.map(|(partition, journal)| self.prove(partition, journal));
        ProvedRecord { journals: proved.collect(), at: Time::now() }
    }

    /// Returns the directories of all present journals, and of journals that the last proof covered
    /// and that are gone now. If no journal is known, returns the directory in which the journal
    /// should be, so that the proof reports the missing journal.
    fn journals(&self) -> Vec<(Option<u32>, PathBuf)> {
        let found = partitions_in(&self.data);
        let mut journals = found.clone();
        journals.retain(|(_, directory)| may_have_journal(directory));
        let last = locked(&self.state).last.clone();
        for known in last.iter().flat_map(|last| &last.journals) {
            if journals.iter().all(|(partition, _)| *partition != known.partition) {
                journals.push((known.partition, known.directory.clone()));
            }
        }
        journals.sort();
        if journals.is_empty() { found } else { journals }
    }

    fn prove(&self, partition: Option<u32>, journal: PathBuf) -> ProvedJournal {
        let was_there = may_have_journal(&journal);
        let last = JournalReader::open(&journal).and_then(|reader| reader.last());
        if last.as_ref().is_ok_and(|last| last.0 > limits::WEB_PROOF_RECORDS) {
            let text = |command: &str| format!("the record is long; `organism {command}` reads it");
            let proof = Err(text("verify"));
            let replay = Err(text("replay"));
            let evidence = ProofEvidence::read(&journal);
            let directory = journal;
            return ProvedJournal { partition, directory, was_there, proof, replay, evidence };
        }
        let proof = verify_with(&journal, &self.options, &mut |_, _| {});
        let replayed = replay(&journal, partition.unwrap_or_default(), &mut |_, _| {});
        ProvedJournal {
            partition,
            proof: proof.map_err(|error| error.to_string()),
            replay: replayed.map_err(|error| error.to_string()),
            evidence: ProofEvidence::read(&journal),
            was_there,
            directory: journal,
        }
    }

    /// Draws the result of the last proof in one line, with a link to the page of the proof.
    /// `heads` contains, for each partition, the present position of its journal's last record.
    /// Begins a proof if there is no result, or if the result is outdated.
    pub fn summary(self: &Arc<Self>, heads: &[(u32, Position)]) -> Markup {
        let last = locked(&self.state).last.clone().filter(|last| !last.is_outdated());
        if last.is_none() {
            self.begin();
        }
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
    let (last, is_running) = {
        let state = locked(&view.prover.state);
        (state.last.clone(), state.is_running)
    };
    let content = html! {
        h1 { "Record" }
        @match last {
            None => {
                p.empty {
                    @if is_running { "The record is being proved." }
                    @else { "The record is not proved yet." }
                    " Load this page again in a moment."
                }
            }
            Some(last) => {
                p {
                    "Checked at " (moment(last.at)) "."
                    @if is_running {
                        " A newer proof is under way. Load this page again in a moment."
                    }
                }
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
                "The holder of the private half of a key can sign another record with it. Compare the \
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
    let rows: Vec<_> = checkpoints.iter().rev().map(row).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn prover(data: &Path, last: Option<ProvedRecord>) -> RecordProver {
        let prover = RecordProver::new(data.to_owned(), VerifyOptions::default());
        locked(&prover.state).last = last.map(Arc::new);
        prover
    }

    fn proved(at: Time, data: &Path, partitions: &[Option<u32>]) -> ProvedRecord {
        let journal = |partition: &Option<u32>| ProvedJournal {
            partition: *partition,
            directory: partition.map_or_else(|| data.to_owned(), |n| data.join(format!("p{n}"))),
            was_there: false,
            proof: Err("proved before".to_owned()),
            replay: Err("replayed before".to_owned()),
            evidence: None,
        };
        ProvedRecord { at, journals: partitions.iter().map(journal).collect() }
    }

    #[test]
    fn a_journal_that_is_gone_is_proved_again_and_not_left_out() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path();
        assert!(!prover(data, None).claim(), "there is no journal yet");
        let young = proved(Time::now(), data, &[None]);
        assert!(!prover(data, Some(young)).claim(), "the last proof is young");

        for partitions in [&[None][..], &[Some(0), Some(1)]] {
            let prover = prover(data, Some(proved(Time(0), data, partitions)));
            assert!(prover.claim(), "{partitions:?}");
            assert!(!prover.claim(), "a proof is under way");
            let found = prover.prove_all();
            let known: Vec<_> = found.journals.iter().map(|journal| journal.partition).collect();
            assert_eq!(known, partitions);
            for journal in &found.journals {
                let text = checked(journal, found.at, None).into_string();
                assert!(!text.contains("no change found"), "{text}");
                assert!(!text.contains("proved before"), "{text}");
            }
        }
    }

    #[test]
    fn a_proof_without_a_thread_is_due_again() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("journal.db"), "").unwrap();
        let prover = Arc::new(prover(place.path(), None));
        // No system has room for this stack.
        prover.begin_on(thread::Builder::new().stack_size(1 << 50));
        assert!(prover.claim());
    }

    #[test]
    fn a_journal_that_goes_before_its_first_proof_is_not_left_out() {
        let place = tempfile::tempdir().unwrap();
        let found = prover(place.path(), None).prove_all();
        let [journal] = found.journals.as_slice() else { panic!("{:?}", found.journals) };
        let text = checked(journal, found.at, None).into_string();
        assert!(!text.contains("no change found"), "{text}");
    }

    #[test]
    fn a_proof_is_due_at_once_if_a_journal_has_gone_or_come_back() {
        let place = tempfile::tempdir().unwrap();
        let data = place.path();
        for is_there in [false, true] {
            if is_there {
                std::fs::write(data.join("journal.db"), "").unwrap();
            }
            for was_there in [false, true] {
                let mut young = proved(Time::now(), data, &[None]);
                young.journals[0].was_there = was_there;
                let is_due = prover(data, Some(young)).claim();
                assert_eq!(is_due, was_there != is_there, "{was_there}, {is_there}");
            }
        }
    }

    #[test]
    fn a_proof_that_panics_keeps_the_last_result() {
        let place = tempfile::tempdir().unwrap();
        let prover = prover(place.path(), Some(proved(Time(0), place.path(), &[None])));
        assert!(prover.claim());
        prover.end(None);
        let state = locked(&prover.state);
        assert!(!state.is_running);
        assert_eq!(state.last.as_ref().map(|last| last.at), Some(Time(0)));
    }
}
