//! Copies of checkpoints in a directory apart from `data` and `state`: their use at a start and in
//! a proof, and failures to write them.

use std::path::PathBuf;

use organism::audit::{self, ProofReport, ProofVerdict, VerifyOptions};
use organism::clock::Time;
use organism::journal::sqlite::{SqliteJournal, back_up};
use organism::journal::{CheckpointCopies, Error, Journal as _, OperatorAcceptance};
use organism::limits::CHECKPOINT_INTERVAL;

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
    assert!(reasons.contains("only the state directory vouches for it"), "{reasons}");
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

/// Checkpoints that were made after a backup prove the backup. The last records of a backup may
/// need such a later checkpoint, because the pump of an idle organism signs its last records only
/// later.
#[test]
fn a_backup_is_proved_beside_checkpoints_that_were_made_after_it() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let mut journal = copied.open(OperatorAcceptance::default()).unwrap();
    let mut more = research(&mut copied.script, "sess-othertree");
    journal.append(&mut more).unwrap();
    let backup = copied.place.home.path().join("backup");
    let (data, state) = (backup.join("data"), backup.join("state"));
    back_up(&copied.place.data(), &copied.place.state(), &data, &state).unwrap();
    let later = more.last().unwrap().time.plus(CHECKPOINT_INTERVAL);
    assert!(journal.checkpoint_if_due(later).unwrap());
    journal.close(Time(0)).unwrap();

    let options = VerifyOptions {
        state: Some(state),
        key_state: Some(copied.place.state()),
        checkpoints: Some(copied.directory()),
        is_backup: true,
        ..VerifyOptions::default()
    };
    let report = audit::verify_with(&data, &options, &mut |_, _| {}).unwrap();
    assert_eq!(report.verdict, ProofVerdict::Proved, "{:?} {:?}", report.broken, report.unproved);
    assert_eq!(report.covered.0, report.records);
}

#[test]
fn a_backup_into_a_directory_with_the_log_of_a_lost_journal_sets_the_log_aside() {
    let mut copied = Copied::new();
    copied.run("sess-firsttree");
    let backup = copied.place.home.path().join("backup");
    let (data, state) = (backup.join("data"), backup.join("state"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("journal.db-wal"), "pages of a lost journal").unwrap();
    back_up(&copied.place.data(), &copied.place.state(), &data, &state).unwrap();
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
