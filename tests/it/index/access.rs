//! Files of an index that another user has created, or that this user may not write.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use organism::index::{INDEX_DATABASE, INDEX_LOCK};
use organism::journal::sqlite::DATABASE;

use super::first_build::researched;
use super::{rows, text};
use crate::journal::Place;
use crate::journal::script::{Script, research};
use crate::organism::{CONFIG, House, until};

/// Id of a user without any permissions. The user need not have an account.
const USER: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives `paths` to the user without permissions, if this process may.
fn give_away(paths: &[PathBuf]) {
    if is_root() {
        paths.iter().for_each(|path| chown(path, Some(USER), Some(USER)).unwrap());
    }
}

/// Denies the owner of the directory the access to a file: root keeps the file, and any other user
/// removes all permissions.
fn deny(path: &Path) {
    let mode = if is_root() { 0o600 } else { 0 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns `command` so that it runs as the user without permissions, if this process is root. A
/// copy of the program is put into `directory`, because that user may not start the program where
/// it was built.
fn as_user(command: &Command, directory: &Path) -> Command {
    let mut program = PathBuf::from(command.get_program());
    let mut prefix = Vec::new();
    if is_root() {
        let copy = directory.join("organism-copy");
        std::fs::copy(program, &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        prefix = vec![format!("--reuid={USER}"), format!("--regid={USER}")];
        prefix.extend(["--clear-groups".to_owned(), "--".to_owned()]);
        prefix.push(copy.to_str().unwrap().to_owned());
        program = PathBuf::from("setpriv");
    }
    let mut changed = Command::new(program);
    changed.args(prefix).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => changed.env(name, value),
            None => changed.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        changed.current_dir(directory);
    }
    changed
}

fn files_of(directory: &Path) -> Vec<PathBuf> {
    let mut files = vec![directory.to_owned()];
    files.extend(std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
    files
}

/// A query by root must not lock out the user of the organism.
#[test]
fn an_index_that_root_makes_belongs_to_the_owner_of_the_journal() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    give_away(&files_of(&place.data()));
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);

    let owner = place.data().join(DATABASE).metadata().unwrap().uid();
    assert!(!is_root() || owner == USER);
    for name in [INDEX_DATABASE, INDEX_LOCK] {
        let file = place.data().join(name).metadata().unwrap();
        assert_eq!(file.uid(), owner, "{name}");
        assert_eq!(file.mode() & 0o777, 0o600, "{name}");
    }
}

/// An index that its owner's user may not open is made again, as a damaged one is.
#[test]
fn an_index_that_may_not_be_opened_is_made_anew() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);
    let home = place.data().parent().unwrap().to_owned();
    give_away(&files_of(&place.data()));
    give_away(&[home.clone(), place.state()]);
    let path = place.data().join(INDEX_DATABASE);
    if is_root() {
        chown(&path, Some(0), Some(0)).unwrap();
    }
    deny(&path);

    let query = super::command(&place, &["sql", "--csv", "SELECT count(*) FROM message"]);
    let answer: Output = as_user(&query, &home).output().unwrap();
    assert_eq!(text(&answer.stdout), "count(*)\r\n10\r\n", "{}", text(&answer.stderr));
    let owner = place.data().join(DATABASE).metadata().unwrap().uid();
    assert_eq!(path.metadata().unwrap().uid(), owner);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
}

/// Where the lock of the index may be written, but not its directory, a command makes a temporary
/// index.
#[test]
fn a_directory_that_may_not_be_written_has_a_temporary_index() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    assert_eq!(rows(&place.data(), "SELECT count(*) FROM message"), ["10"]);
    let home = place.data().parent().unwrap().to_owned();
    give_away(&files_of(&place.data()));
    give_away(&[home.clone(), place.state()]);
    let mode = |mode| {
        std::fs::set_permissions(place.data(), std::fs::Permissions::from_mode(mode)).unwrap();
    };

    mode(0o555);
    let query = super::command(&place, &["sql", "--csv", "SELECT count(*) FROM message"]);
    let answer: Output = as_user(&query, &home).output().unwrap();
    mode(0o755);
    assert_eq!(text(&answer.stdout), "count(*)\r\n10\r\n", "{}", text(&answer.stderr));
}

/// The files of an unfinished build that this user may not open do not prevent another build.
#[test]
fn a_build_whose_files_may_not_be_opened_begins_again() {
    let place = researched();
    let mut killed = super::command(&place, &["sql", "SELECT count(*) FROM message"]);
    killed.env("ORGANISM_FAILPOINT", "index-after-commit").output().unwrap();
    let home = place.data().parent().unwrap().to_owned();
    give_away(&files_of(&place.data()));
    give_away(&[home.clone(), place.state()]);
    let path = place.data().join(format!("{INDEX_DATABASE}-building"));
    if is_root() {
        chown(&path, Some(0), Some(0)).unwrap();
    }
    deny(&path);

    let query =
        super::command(&place, &["sql", "--csv", "SELECT count(*) > 0 AS any FROM message"]);
    let answer: Output = as_user(&query, &home).output().unwrap();
    assert_eq!(text(&answer.stdout), "any\r\n1\r\n", "{}", text(&answer.stderr));
    assert!(!path.exists());
}

/// The log of an organism that may not lock its index names the file that is in the way.
#[test]
fn an_organism_that_may_not_lock_its_index_names_the_lock() {
    let house = House::with(CONFIG);
    assert_eq!(house.run().stop(), Some(0));
    let lock = house.data().join(INDEX_LOCK);
    std::fs::write(&lock, "").unwrap();
    if is_root() {
        let all = house.path(".");
        let owner = format!("{USER}:{USER}");
        let given = Command::new("chown").args(["-R", &owner]).arg(all).status().unwrap();
        assert!(given.success());
        chown(&lock, Some(0), Some(0)).unwrap();
    }
    deny(&lock);

    let running = house.run_with(as_user(&house.command(&["run"]), &house.path(".")));
    until("the log names the lock", || house.log().contains("index.lock").then_some(()));
    let log = house.log();
    let line = log.lines().find(|line| line.contains("index.lock")).unwrap();
    assert!(line.contains("no permission to write"), "{line}");
    assert!(line.contains("delete it together with the index"), "{line}");
    assert_eq!(running.stop(), Some(0));
}
