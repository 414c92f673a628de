//! Copies of checkpoints in a directory apart from `data` and `state`: their use at a start and in
//! a proof, and failures to write them.

use std::path::{Path, PathBuf};

use organism::audit::{self, ProofReport, ProofVerdict, VerifyOptions};
use organism::clock::Time;
use organism::ids::Digest;
use organism::journal::checkpoint::{CheckpointFile, CheckpointKey};
use organism::journal::sqlite::{JournalReader, SqliteJournal, back_up};
use organism::journal::{
    Checkpoint, CheckpointCopies, Error, Journal as _, KeyId, OperatorAcceptance,
};
use organism::limits::{CHECKPOINT_COPIES_END_BYTES, CHECKPOINT_INTERVAL};

use super::Place;
use super::attacks::replace;
use super::script::{Script, research};

/// A journal whose checkpoints are copied to a separate directory.
struct Copied {
    place: Place,
    script: Script,
}

impl Copied {
    fn new() -> Self {
        let copied = Self { place: Place::new(), script: Script::default() };
        std::fs::create_dir(copied.directory()).unwrap();
        copied
    }

    fn directory(&self) -> PathBuf {
        self.place.home.path().join("copies")
    }

    fn file(&self) -> PathBuf {
        let journal = self.place.reader().about().unwrap().journal;
        CheckpointCopies::file_in(&self.directory(), journal)
    }

    fn lines(&self) -> Vec<String> {
        std::fs::read_to_string(self.file()).unwrap().lines().map(str::to_owned).collect()
    }

    fn open(&self, accept: OperatorAcceptance) -> Result<SqliteJournal, Error> {
        let (data, state, copies) = (self.place.data(), self.place.state(), self.directory());
        SqliteJournal::open_with_copies(&data, &state, Some(&copies), accept, &mut |_| Ok(()))
    }

    /// Runs a pump once: opens the journal, appends the records of `tree`, and closes it.
    fn run(&mut self, tree: &str) {
        let mut journal = self.open(OperatorAcceptance::default()).unwrap();
        for group in research(&mut self.script, tree).chunks_mut(3) {
            journal.append(group).unwrap();
        }
        journal.close(Time(0)).unwrap();
    }

    fn verify(&self, checkpoints: Option<PathBuf>) -> ProofReport {
        let state = Some(self.place.state());
        let options = VerifyOptions { state, checkpoints, ..VerifyOptions::default() };
        audit::verify_with(&self.place.data(), &options, &mut |_, _| {}).unwrap()
    }

    /// Makes a backup whose last records no checkpoint covers, and then signs these records in the
    /// journal, as the pump of an idle organism does after a while. Returns the backup's directory.
    fn backed_up(&mut self) -> PathBuf {
        self.run("sess-firsttree");
        let mut journal = self.open(OperatorAcceptance::default()).unwrap();
        let mut more = research(&mut self.script, "sess-othertree");
        journal.append(&mut more).unwrap();
        let backup = self.place.home.path().join("backup");
        let (data, state) = (backup.join("data"), backup.join("state"));
        let copy = back_up(&self.place.data(), &self.place.state(), &data, &state).unwrap();
        copy.finish().unwrap();
        let later = more.last().unwrap().time.plus(CHECKPOINT_INTERVAL);
        assert!(journal.checkpoint_if_due(later).unwrap());
        journal.close(Time(0)).unwrap();
        backup
    }

    fn last_copy(&self) -> Checkpoint {
        CheckpointFile::at(&self.file()).last().unwrap().unwrap()
    }

    /// Restores an earlier copy of the journal and its state.
    fn put_back(&self, earlier: &Place) {
        for (from, to) in
            [(earlier.data(), self.place.data()), (earlier.state(), self.place.state())]
        {
            replace(&from, &to);
        }
    }
}

/// Appends a different tail to an earlier copy of the journal, with a program that has the key.
fn forge(earlier: &Place) {
    let mut journal = earlier.open().unwrap();
    let mut script = Script::default();
    let mut more: Vec<_> = (0..30).map(|_| script.boot(2)).collect();
    journal.append(&mut more).unwrap();
    journal.close(Time(0)).unwrap();
}

#[test]
fn copies_elsewhere_prove_a_record_that_the_state_alone_does_not() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");

    let alone = copied.verify(None);
    assert_eq!(alone.verdict, ProofVerdict::NotProved);
    let reasons = alone.unproved.join("; ");
    assert!(reasons.contains("only the state directory vouches for the journal"), "{reasons}");
    assert!(reasons.contains("`checkpoints` under [journal]"), "{reasons}");

    let proved = copied.verify(Some(copied.directory()));
    assert_eq!(proved.verdict, ProofVerdict::Proved, "{:?}", proved.unproved);
    assert_eq!(proved.copies[0], copied.file());

    let empty = copied.place.home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let unseen = copied.verify(Some(empty));
    assert_eq!(unseen.verdict, ProofVerdict::NotProved);
    assert!(unseen.unproved.join("; ").contains("contains no copy of the checkpoints"));
}

#[test]
fn a_record_that_was_rewritten_with_the_key_starts_nothing_beside_its_copies() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let earlier = copied.place.copy();
    copied.run("sess-othertree");
    forge(&earlier);
    copied.put_back(&earlier);

    assert_eq!(copied.verify(None).verdict, ProofVerdict::NotProved);
    let broken = copied.verify(Some(copied.directory())).broken.unwrap();
    assert!(broken.detail.contains(&copied.file().display().to_string()), "{broken:?}");
    assert!(broken.detail.contains("restore a backup"), "{broken:?}");
    let refused = copied.open(OperatorAcceptance::default()).unwrap_err().to_string();
    assert!(refused.contains(&copied.file().display().to_string()), "{refused}");
    copied.place.open().unwrap();
}

#[test]
fn an_older_journal_with_its_older_state_is_a_loss_and_continues_once_it_is_accepted() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let earlier = copied.place.copy();
    copied.run("sess-othertree");
    let before = copied.lines();
    copied.put_back(&earlier);

    let refused = copied.open(OperatorAcceptance::default()).unwrap_err().to_string();
    assert!(refused.contains("were signed in a checkpoint in"), "{refused}");
    assert!(refused.contains("organism repair --accept-loss"), "{refused}");
    let accept = OperatorAcceptance { loss: true, ..OperatorAcceptance::default() };
    let mut journal = copied.open(accept).unwrap();
    let loss = journal.found().loss.clone();
    assert!(loss.acknowledged > loss.kept, "{loss:?}");
    journal.put_blob(b"config").unwrap();
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();

    let aside = copied.file().with_extension("checkpoints.lost-1");
    let aside = std::fs::read_to_string(aside).unwrap();
    assert_eq!(aside.lines().collect::<Vec<_>>(), before);
    copied.open(OperatorAcceptance::default()).unwrap().close(Time(0)).unwrap();
    let verified = copied.verify(Some(copied.directory()));
    assert_eq!(verified.verdict, ProofVerdict::Proved, "{:?}", verified.unproved);
}

/// Checkpoints that were made after a backup prove the backup.
#[test]
fn a_backup_is_proved_beside_checkpoints_that_were_made_after_it() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let options = VerifyOptions {
        state: Some(backup.join("state")),
        key_state: Some(copied.place.state()),
        checkpoints: Some(copied.directory()),
        is_backup: true,
        ..VerifyOptions::default()
    };
    let report = audit::verify_with(&backup.join("data"), &options, &mut |_, _| {}).unwrap();
    assert_eq!(report.verdict, ProofVerdict::Proved, "{:?} {:?}", report.broken, report.unproved);
    assert_eq!(report.covered.0, report.records);
}

/// Proves a backup as an auditor without the organism's key and config does.
fn audited(backup: &Path, copies: &[PathBuf], keys: &[&str]) -> ProofReport {
    let options = VerifyOptions {
        state: Some(backup.join("state")),
        copies: copies.to_vec(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        is_backup: true,
        ..VerifyOptions::default()
    };
    audit::verify_with(&backup.join("data"), &options, &mut |_, _| {}).unwrap()
}

#[test]
fn a_later_copy_under_the_named_key_covers_the_records_of_a_backup() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let key = copied.last_copy().key;

    let report = audited(&backup, &[copied.file()], &[&key]);
    assert_eq!(report.verdict, ProofVerdict::Proved, "{:?} {:?}", report.broken, report.unproved);
    assert_eq!(report.covered.0, report.records);

    // Without the copy, a public key proves the records up to the last checkpoint in the backup.
    let alone = audited(&backup, &[], &[&key]);
    assert!(alone.covered.0 < alone.records, "{alone:?}");
    let behind = alone.records - alone.covered.0;
    let first = alone.covered.0 + 1;
    let expected = format!("under no key at hand: {behind} records, from {first} on;");
    let reasons = alone.unproved.join("; ");
    assert!(reasons.contains(&expected), "{reasons}");
    assert!(reasons.contains("a public key proves no record behind"), "{reasons}");
    assert!(!reasons.contains("--key HEX"), "{reasons}");
}

/// Writes the lines of a file with copies of checkpoints, and returns the file's path.
fn written(copied: &Copied, name: &str, lines: &[Checkpoint]) -> PathBuf {
    let file = CheckpointFile::at(&copied.place.home.path().join(name));
    file.append(lines).unwrap();
    file.path().to_owned()
}

/// Signs `line` with a new key.
fn signed_by_stranger(copied: &Copied, line: &Checkpoint) -> Checkpoint {
    let other = copied.place.home.path().join("other");
    std::fs::create_dir(&other).unwrap();
    CheckpointKey::open(&other).unwrap().sign(line.clone())
}

/// An attacker signs a copy of the last checkpoint with another key. Such a copy covers the right
/// records, but proves the backup only if the auditor names its key.
#[test]
fn a_later_copy_under_another_key_covers_no_record_of_a_backup() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let last = copied.last_copy();
    let forged = signed_by_stranger(&copied, &last);
    let mut lines = CheckpointFile::at(&copied.file()).read().unwrap();
    lines.pop();
    let alone = written(&copied, "alone", std::slice::from_ref(&forged));
    let beside = written(&copied, "beside", &[lines, vec![forged.clone()]].concat());

    for (copies, keys) in [(&alone, vec![&*last.key]), (&alone, vec![]), (&beside, vec![])] {
        let report = audited(&backup, std::slice::from_ref(copies), &keys);
        assert_eq!(report.verdict, ProofVerdict::NotProved, "{report:?}");
        assert!(report.covered.0 < report.records, "{report:?}");
        assert!(report.unknown_keys.contains(&KeyId::of(&forged.key).to_string()), "{report:?}");
        let reasons = report.unproved.join("; ");
        assert!(reasons.contains("`--key HEX`"), "{reasons}");
        assert!(!reasons.contains("a public key proves no record behind"), "{reasons}");
    }

    // The named key counts, and the report shows it.
    let report = audited(&backup, &[alone], &[&forged.key]);
    assert_eq!(report.verdict, ProofVerdict::Proved, "{report:?}");
    assert!(report.keys.contains(&forged.key), "{:?}", report.keys);
}

#[test]
fn a_later_copy_under_the_key_of_the_last_checkpoint_needs_no_named_key() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let report = audited(&backup, &[copied.file()], &[]);
    assert_eq!(report.verdict, ProofVerdict::Proved, "{report:?}");
    assert_eq!(report.keys.into_iter().collect::<Vec<_>>(), [copied.last_copy().key]);
}

/// A later checkpoint in the state of a backup proves nothing, because a program that can write the
/// backup can also write its state.
#[test]
fn a_later_copy_in_the_state_of_a_backup_covers_no_record() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let last = copied.last_copy();
    let file = CheckpointFile::new(&backup.join("state"), last.journal);
    file.append(std::slice::from_ref(&last)).unwrap();
    let report = audited(&backup, &[], &[&last.key]);
    assert_eq!(report.verdict, ProofVerdict::NotProved, "{report:?}");
    assert!(report.covered.0 < report.records, "{report:?}");
}

/// A key in the state of a backup proves nothing, because a program that can write the backup can
/// also put its own key there.
#[test]
fn a_key_in_a_backup_covers_no_record() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let key = std::fs::read(copied.place.state().join("key")).unwrap();
    std::fs::write(backup.join("state/key"), key).unwrap();
    let report = audited(&backup, &[], &[]);
    assert_eq!(report.verdict, ProofVerdict::NotProved, "{report:?}");
    assert!(report.covered.0 < report.records, "{report:?}");
}

/// The advice does not suggest a retired key to the auditor, because all records that this key
/// signed are proved already.
#[test]
fn an_unknown_key_that_signed_only_proved_records_is_not_advised() {
    let mut copied = Copied::new();
    copied.run("sess-thirdtree");
    let retired = copied.last_copy().key;
    std::fs::remove_file(copied.place.state().join("key")).unwrap();
    let accept = OperatorAcceptance { key: true, ..OperatorAcceptance::default() };
    let mut journal = copied.open(accept).unwrap();
    journal.append(&mut [copied.script.boot(2)]).unwrap();
    journal.close(Time(0)).unwrap();
    let backup = copied.backed_up();
    let lines = JournalReader::open(&backup.join("data")).unwrap().checkpoints().unwrap();
    let present = &lines.last().unwrap().key;
    assert_ne!(&retired, present);

    let report = audited(&backup, &[], &[present]);
    assert!(report.unknown_keys.contains(&KeyId::of(&retired).to_string()), "{report:?}");
    let reasons = report.unproved.join("; ");
    assert!(reasons.contains("a public key proves no record behind"), "{reasons}");
    assert!(!reasons.contains("--key HEX"), "{reasons}");
}

/// A false signature states nothing about the records, so the journal is not at fault.
#[test]
fn a_copy_with_a_false_signature_is_named_as_damaged() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let last = copied.last_copy();
    let stranger = signed_by_stranger(&copied, &last);
    let flipped = if last.signature.starts_with('0') { "1" } else { "0" };
    let flipped =
        Checkpoint { signature: format!("{flipped}{}", &last.signature[1..]), ..last.clone() };
    let swapped = Checkpoint { signature: stranger.signature, ..last.clone() };
    let wrong = Checkpoint { merkle_root: Digest::ZERO, ..last.clone() };

    for (name, line) in [("flipped", flipped), ("swapped", swapped), ("wrong", wrong)] {
        let file = written(&copied, name, &[line]);
        for (is_backup, data) in [(true, backup.join("data")), (false, copied.place.data())] {
            let options = VerifyOptions {
                copies: vec![file.clone()],
                keys: vec![last.key.clone()],
                is_backup,
                ..VerifyOptions::default()
            };
            let report = audit::verify_with(&data, &options, &mut |_, _| {}).unwrap();
            let detail = report.broken.expect("the copy is false").detail;
            assert!(detail.contains("its signature is false"), "{name}: {detail}");
            assert!(detail.contains(&file.display().to_string()), "{name}: {detail}");
            assert!(!detail.contains("restore"), "{name}: {detail}");
        }
    }
}

#[test]
fn a_later_copy_over_other_records_names_its_signer() {
    let mut copied = Copied::new();
    let backup = copied.backed_up();
    let last = copied.last_copy();
    let other = Checkpoint { merkle_root: Digest::ZERO, ..last.clone() };
    let other = signed_by_stranger(&copied, &other);
    let copies = [written(&copied, "other-records", std::slice::from_ref(&other))];
    let broken = audited(&backup, &copies, &[&last.key]).broken.unwrap();
    assert!(broken.detail.contains(&KeyId::of(&other.key).to_string()), "{broken:?}");
    assert!(broken.detail.contains("compare with another copy"), "{broken:?}");
}

#[test]
fn a_single_record_under_no_key_is_counted_as_one() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let mut journal = copied.open(OperatorAcceptance::default()).unwrap();
    journal.append(&mut [copied.script.boot(2)]).unwrap();
    drop(journal);

    let keys = vec![copied.last_copy().key];
    let options = VerifyOptions { keys, ..VerifyOptions::default() };
    let report = audit::verify_with(&copied.place.data(), &options, &mut |_, _| {}).unwrap();
    let reasons = report.unproved.join("; ");
    let expected = format!("under no key at hand: 1 record, from {} on;", report.records);
    assert!(reasons.contains(&expected), "{reasons}");
}

/// A journal that ends before a copied checkpoint lacks its tail. It may be an older backup that is
/// verified as if it were the journal, so the report does not state that records were exchanged.
#[test]
fn a_journal_that_ends_before_a_copy_lacks_its_tail_and_may_be_a_backup() {
    let mut copied = Copied::new();
    let backup = copied.backed_up().join("data");
    copied.run("sess-thirdtree");
    let all = CheckpointFile::at(&copied.file()).read().unwrap();
    let last = JournalReader::open(&backup).unwrap().last().unwrap();
    let broken = |copies: Vec<Checkpoint>| {
        let file = CheckpointFile::at(&copied.place.home.path().join("copy"));
        std::fs::remove_file(file.path()).ok();
        file.append(&copies).unwrap();
        let copies = vec![file.path().to_owned()];
        let options = VerifyOptions { copies, ..VerifyOptions::default() };
        let report = audit::verify_with(&backup, &options, &mut |_, _| {}).unwrap();
        let broken = report.broken.unwrap();
        assert!(broken.detail.contains(&file.path().display().to_string()), "{broken:?}");
        assert!(broken.detail.contains("`organism verify DIR`"), "{broken:?}");
        assert!(!broken.detail.contains("is not the one in the journal"), "{broken:?}");
        broken
    };

    let behind = all.iter().filter(|copy| copy.position > last).cloned().collect();
    let ended = broken(behind);
    assert_eq!(ended.position, last.0 + 1, "{ended:?}");
    assert!(ended.detail.contains("it ends here, but the checkpoint in"), "{ended:?}");

    let unsigned = broken(all);
    assert_eq!(unsigned.position, last.0, "{unsigned:?}");
    assert!(unsigned.detail.contains("over the records up to here is not in"), "{unsigned:?}");
}

#[test]
fn a_backup_into_a_directory_with_the_log_of_a_lost_journal_sets_the_log_aside() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let backup = copied.place.home.path().join("backup");
    let (data, state) = (backup.join("data"), backup.join("state"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("journal.db-wal"), "pages of a lost journal").unwrap();
    let copy = back_up(&copied.place.data(), &copied.place.state(), &data, &state).unwrap();
    copy.finish().unwrap();
    let aside = std::fs::read_to_string(data.join("journal.db.lost-1-wal")).unwrap();
    assert_eq!(aside, "pages of a lost journal");
}

#[test]
fn a_backup_that_was_rewritten_with_the_key_is_broken_beside_later_checkpoints() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let earlier = copied.place.copy();
    copied.run("sess-othertree");
    let mut journal = earlier.open().unwrap();
    let mut script = Script::default();
    let mut more: Vec<_> = (0..100).map(|_| script.boot(2)).collect();
    journal.append(&mut more).unwrap();
    // Without a checkpoint, the table ends before those in the copies.
    drop(journal);

    let options = VerifyOptions {
        state: Some(earlier.state()),
        key_state: Some(copied.place.state()),
        checkpoints: Some(copied.directory()),
        is_backup: true,
        ..VerifyOptions::default()
    };
    let report = audit::verify_with(&earlier.data(), &options, &mut |_, _| {}).unwrap();
    let broken = report.broken.expect("the copies contradict it");
    assert!(broken.detail.contains(&copied.file().display().to_string()), "{broken:?}");
}

#[test]
fn copies_that_lag_are_completed_by_the_next_start() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let first = copied.lines();
    copied.run("sess-othertree");
    let all = copied.lines();
    assert!(all.len() > first.len());
    std::fs::write(copied.file(), format!("{}\n", first.join("\n"))).unwrap();

    let lagging = copied.verify(Some(copied.directory()));
    assert_eq!(lagging.verdict, ProofVerdict::NotProved);
    assert!(lagging.unproved.join("; ").contains("and not up to the last checkpoint"));
    copied.open(OperatorAcceptance::default()).unwrap().close(Time(0)).unwrap();
    assert_eq!(copied.lines(), all);
}

/// Repeats the first line of the copies, so that the file gets longer than the end that a start
/// reads. Returns the lines.
fn lengthen(copied: &Copied) -> Vec<String> {
    let lines = copied.lines();
    let count = 4 * CHECKPOINT_COPIES_END_BYTES as usize / lines[0].len();
    let long = [vec![lines[0].clone(); count], lines].concat();
    std::fs::write(copied.file(), format!("{}\n", long.join("\n"))).unwrap();
    long
}

#[test]
fn a_long_file_of_copies_gets_no_line_again_and_is_compared_as_a_whole() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    copied.run("sess-othertree");
    let long = lengthen(&copied);
    copied.open(OperatorAcceptance::default()).unwrap().close(Time(0)).unwrap();
    assert!(copied.lines() == long, "nothing is copied again");
    let verified = copied.verify(Some(copied.directory()));
    assert_eq!(verified.verdict, ProofVerdict::Proved, "{:?}", verified.unproved);

    // A start that reads every record also compares the copies before the end of the file.
    let first: Checkpoint = serde_json::from_str(&long[0]).unwrap();
    let other = signed_by_stranger(&copied, &Checkpoint { merkle_root: Digest::ZERO, ..first });
    let other = serde_json::to_string(&other).unwrap();
    std::fs::write(copied.file(), format!("{other}\n{}\n", long.join("\n"))).unwrap();
    let refused = copied.open(OperatorAcceptance::default()).unwrap_err().to_string();
    assert!(refused.contains(&copied.file().display().to_string()), "{refused}");
    assert!(copied.verify(Some(copied.directory())).broken.is_some());
}

/// An attacker with the key puts back an earlier journal. The file of copies takes only further
/// lines, and the attacker fills its end with lines that the journal agrees with.
#[test]
fn a_cut_journal_is_refused_whatever_is_appended_to_its_copies() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let earlier = copied.place.copy();
    let kept = copied.lines().pop().unwrap();
    copied.run("sess-othertree");
    let all = std::fs::read_to_string(copied.file()).unwrap();
    copied.put_back(&earlier);

    for filler in [format!("{kept}\n"), "\n".to_owned()] {
        let count = 2 * CHECKPOINT_COPIES_END_BYTES as usize / filler.len();
        std::fs::write(copied.file(), [all.clone(), filler.repeat(count)].concat()).unwrap();
        let refused = copied.open(OperatorAcceptance::default()).unwrap_err().to_string();
        assert!(refused.contains("were signed in a checkpoint in"), "{refused}");
        assert!(copied.verify(Some(copied.directory())).broken.is_some());
    }
}

#[test]
fn a_copy_in_a_long_file_is_compared_in_whatever_order_the_lines_are() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    copied.run("sess-othertree");
    let long = lengthen(&copied);
    let first: Checkpoint = serde_json::from_str(&long[0]).unwrap();
    let other = signed_by_stranger(&copied, &Checkpoint { merkle_root: Digest::ZERO, ..first });
    let other = serde_json::to_string(&other).unwrap();
    let last = long.last().unwrap();
    std::fs::write(copied.file(), format!("{last}\n{other}\n{}\n", long.join("\n"))).unwrap();
    let refused = copied.open(OperatorAcceptance::default()).unwrap_err().to_string();
    assert!(refused.contains("are not those of the checkpoint in"), "{refused}");
}

#[test]
fn an_accepted_loss_takes_every_lost_line_out_of_a_long_file_of_copies() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let earlier = copied.place.copy();
    let kept = copied.lines();
    copied.run("sess-othertree");
    let lost = copied.lines()[kept.len()].clone();
    let count = 4 * CHECKPOINT_COPIES_END_BYTES as usize / lost.len();
    let long = [kept.clone(), vec![lost; count]].concat();
    std::fs::write(copied.file(), format!("{}\n", long.join("\n"))).unwrap();
    copied.put_back(&earlier);

    let accept = OperatorAcceptance { loss: true, ..OperatorAcceptance::default() };
    let mut journal = copied.open(accept).unwrap();
    journal.put_blob(b"config").unwrap();
    journal.append(&mut [Script::default().boot(3)]).unwrap();
    journal.close(Time(0)).unwrap();
    let left = copied.lines();
    assert!(left.starts_with(&kept), "{}", left.len());
    assert!(left.len() < kept.len() + 5, "{}", left.len());
}

#[test]
fn a_directory_that_is_not_there_stops_nothing_and_gets_every_copy_later() {
    let mut copied = Copied::new();
    std::fs::remove_dir(copied.directory()).unwrap();
    copied.run("sess-firsttree");
    let mut journal = copied.open(OperatorAcceptance::default()).unwrap();
    journal.append(&mut research(&mut copied.script, "sess-othertree")).unwrap();
    let counts = journal.copy_metrics().unwrap();
    assert!(counts.waiting > 0, "{counts:?}");
    journal.close(Time(0)).unwrap();

    std::fs::create_dir(copied.directory()).unwrap();
    copied.open(OperatorAcceptance::default()).unwrap().close(Time(0)).unwrap();
    let inside = copied.place.reader().checkpoints().unwrap();
    assert_eq!(copied.lines().len(), inside.len());
    let verified = copied.verify(Some(copied.directory()));
    assert_eq!(verified.verdict, ProofVerdict::Proved, "{:?}", verified.unproved);
}

#[test]
fn a_file_in_the_state_directory_is_no_copy_elsewhere() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let journal = copied.place.reader().about().unwrap().journal;
    let own = CheckpointCopies::file_in(&copied.place.state(), journal);
    let options = VerifyOptions {
        state: Some(copied.place.state()),
        copies: vec![own],
        ..VerifyOptions::default()
    };
    let verified = audit::verify_with(&copied.place.data(), &options, &mut |_, _| {}).unwrap();
    assert_eq!(verified.verdict, ProofVerdict::NotProved);
    assert!(
        verified.unproved.join("; ").contains("not a copy on other storage"),
        "{:?}",
        verified.unproved
    );
}
