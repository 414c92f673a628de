//! Backups that end early, and copies that lack a partition.

use std::path::{Path, PathBuf};
use std::process::Command;

use organism::journal::sqlite::{DATABASE, DirectoryLock};

use super::CommandOutput;
use crate::journal::Place;
use crate::journal::script::{Script, research};

/// Runs the program in the directory `home`.
fn organism(home: &Path, arguments: &[&str]) -> CommandOutput {
    let program = env!("CARGO_BIN_EXE_organism");
    let output = Command::new(program).args(arguments).current_dir(home).output();
    output.unwrap().into()
}

/// The only file of checkpoints in a state directory.
fn checkpoints(state: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(state).unwrap().map(|file| file.unwrap().path());
    let is_checkpoints = |path: &PathBuf| path.extension().is_some_and(|end| end == "checkpoints");
    let files: Vec<_> = files.filter(is_checkpoints).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::read(&files[0]).unwrap()
}

/// No journal of a copy has its name before all partitions are copied. So the directory of an
/// attempt that failed contains no journal, and the attempt can be repeated, but not while another
/// backup writes there. The copy contains the number of partitions, so that a missing one is
/// noticed.
#[test]
fn a_backup_of_partitions_that_fails_names_no_journal_and_can_be_repeated() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let data = place.data();
    let home = data.parent().unwrap();
    let journal = data.join(DATABASE);
    for partition in ["p0", "p1"] {
        std::fs::create_dir_all(home.join("divided").join(partition)).unwrap();
    }
    std::fs::copy(&journal, home.join("divided/p0").join(DATABASE)).unwrap();
    std::fs::write(home.join("divided/p1").join(DATABASE), "no database").unwrap();
    std::fs::write(home.join("divided/project"), "/project/organism.toml\n").unwrap();
    std::fs::write(home.join("divided/partitions"), "2\n").unwrap();

    let backup = ["backup", "copy", "--data", "divided", "--state", "state"];
    let failed = organism(home, &backup);
    assert_eq!(failed.code, Some(65), "{failed:?}");
    for file in [DATABASE, "journal.new"] {
        assert!(!home.join("copy/data/p0").join(file).exists(), "{file}");
    }

    std::fs::copy(&journal, home.join("divided/p1").join(DATABASE)).unwrap();
    // A killed attempt leaves this file.
    std::fs::write(home.join("copy/data/p0/journal.new"), "a part of a copy").unwrap();
    let lock = DirectoryLock::take_state(&home.join("copy/state")).unwrap();
    let second = organism(home, &backup);
    assert_eq!(second.code, Some(75), "{second:?}");
    drop(lock);
    let made = organism(home, &backup);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(made.out.matches("journal      ").count(), 2, "{made:?}");
    assert!(home.join("copy/data/project").exists());
    assert_eq!(checkpoints(&home.join("copy/state")), checkpoints(&place.state()));

    let verified = |is_missing: bool| {
        let verified = organism(home, &["verify", "copy"]);
        let text = "partition 1: this host has no copy of its journal";
        assert_eq!(verified.err.contains(text), is_missing, "{verified:?}");
    };
    verified(false);
    std::fs::remove_dir_all(home.join("copy/data/p1")).unwrap();
    verified(true);
}
