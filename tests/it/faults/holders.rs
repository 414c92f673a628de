//! Journals that another pump uses, or that have another format or another owner.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use organism::journal::sqlite::DATABASE;
use rusqlite::Connection;

use super::{SMALL, skip, succeeds};
use crate::organism::{CommandOutput, House, numbered};

const NOBODY: u32 = 65_534;

fn ping(house: &House, number: &str) -> CommandOutput {
    house.send_text(&numbered("ping", number), &[])
}

fn pong(number: &str) -> String {
    numbered("pong", number) + "\n"
}

#[test]
fn a_second_pump_is_refused_also_where_the_holder_file_is_gone_or_lies() {
    let house = House::with(SMALL);
    let running = house.run();
    let holder = house.data().join("holder");
    let named = format!("process {}", running.child.id());
    assert!(std::fs::read_to_string(&holder).unwrap().contains(&named));
    for lie in [Some("process 1 on elsewhere"), Some(""), None] {
        match lie {
            Some(lie) => std::fs::write(&holder, lie).unwrap(),
            None => std::fs::remove_file(&holder).unwrap(),
        }
        let refused = house.organism(&["run"]);
        assert_eq!(refused.code, Some(75), "{lie:?}: {refused:?}");
        let by = lie.filter(|lie| !lie.is_empty()).unwrap_or("another process");
        assert!(refused.err.contains(&format!("is in use by {by}")), "{refused:?}");
        assert_eq!(ping(&house, "1").out, pong("1"), "the first one goes on");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn the_lock_file_of_a_dead_pump_blocks_no_start() {
    let house = House::with(SMALL);
    let mut running = house.run();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert!(house.data().join("holder").exists() && house.data().join("control.sock").exists());
    assert_eq!(house.run().stop(), Some(0));
    std::fs::remove_file(house.data().join("holder")).unwrap();
    assert_eq!(house.run().stop(), Some(0));
    house.verified();
}

#[test]
fn a_journal_of_another_format_is_named_and_left_as_it_is() {
    let house = House::with(SMALL);
    assert_eq!(ping(&house, "1").out, pong("1"));
    let path = house.data().join(DATABASE);
    let db = Connection::open(&path).unwrap();
    db.execute("UPDATE meta SET value = '99' WHERE key = 'format'", []).unwrap();
    db.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    for arguments in [&["run"][..], &["verify"], &["threads"], &["export"]] {
        let refused = house.organism(arguments);
        assert_eq!(refused.code, Some(65), "{arguments:?}: {refused:?}");
        let expected = "has format 99; this program reads formats 2 to 4: use the version";
        assert!(refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn a_control_socket_that_was_removed_is_made_again() {
    let house = House::with(SMALL);
    let running = house.run();
    std::fs::remove_file(house.data().join("control.sock")).unwrap();
    // The command waits, because the journal is in use.
    assert_eq!(ping(&house, "1").out, pong("1"));
    assert!(house.log().contains("control.sock was removed; made it again"), "{}", house.log());
    let paused = house.organism(&["pause", "all"]);
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert_eq!(running.stop(), Some(0));
    assert!(!house.data().join("control.sock").exists());
    house.verified();
}

/// An organism that runs as another user. This user cannot start the command where it was built, so
/// the test copies the command.
struct OtherUser {
    house: House,
    program: PathBuf,
    is_root: bool,
}

impl OtherUser {
    fn new() -> Result<Self, String> {
        let house = House::with(SMALL);
        let is_root = std::fs::metadata(house.path("")).unwrap().uid() == 0;
        let program = house.path("organism");
        std::fs::copy(env!("CARGO_BIN_EXE_organism"), &program).unwrap();
        std::fs::create_dir_all(house.data().parent().unwrap()).unwrap();
        let guest = Self { house, program, is_root };
        if is_root {
            guest.own(&guest.house.path(""), NOBODY)?;
            let runs = guest.command(&["--version"]).output().map_err(|e| e.to_string())?;
            if !runs.status.success() {
                return Err(format!(
                    "no process of another user's: {}",
                    CommandOutput::from(runs).err
                ));
            }
        }
        Ok(guest)
    }

    fn own(&self, path: &Path, uid: u32) -> Result<(), String> {
        let owner = format!("{uid}:{uid}");
        succeeds("chown", &["-R", &owner, path.to_str().unwrap()])
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let like = self.house.command(arguments);
        let mut command =
            Command::new(if self.is_root { Path::new("setpriv") } else { self.program.as_path() });
        if self.is_root {
            let id = NOBODY.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(&self.program);
        }
        command.args(like.get_args()).current_dir(like.get_current_dir().unwrap());
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.command(arguments).output().unwrap().into()
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_may_not_be_written_is_named_and_its_journal_can_still_be_read() {
    let guest = match OtherUser::new() {
        Ok(guest) => guest,
        Err(reason) => return skip("directories that are read-only or not ours", &reason),
    };
    let house = &guest.house;
    house.write("p.xml", numbered("ping", "1"));
    let send = ["send", "p.xml", "--as", "desk"];
    let sent = guest.run(&send);
    assert_eq!((sent.code, &sent.out), (Some(0), &pong("1")), "{sent:?}");
    let data = house.data();
    let journal = data.join("journal.db");
    set_mode(&journal, 0o400);
    let refused = guest.run(&send);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    let named = format!("{}: this user may not write", journal.display());
    assert!(refused.err.contains(&named), "{refused:?}");
    // SQLite gives the files beside the journal the mode of the journal.
    assert_eq!(guest.run(&["threads"]).code, Some(0));
    set_mode(&journal, 0o600);
    let refused = guest.run(&send);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    let beside = ["-wal", "-shm"].map(|suffix| data.join(format!("journal.db{suffix}")));
    let named = beside.each_ref().map(|file| format!("{}: this user may not", file.display()));
    assert!(named.iter().any(|named| refused.err.contains(named)), "{refused:?}");
    for file in beside.iter().filter(|file| file.exists()) {
        set_mode(file, 0o600);
    }

    set_mode(&journal, 0);
    for arguments in [&["verify"][..], &send] {
        let refused = guest.run(arguments);
        assert_eq!(refused.code, Some(69), "{arguments:?}: {refused:?}");
        let named = format!("{} cannot be read: Permission denied", journal.display());
        assert!(refused.err.contains(&named), "{arguments:?}: {refused:?}");
    }
    set_mode(&journal, 0o600);

    let key = house.state().join("key");
    set_mode(&key, 0);
    let verified = guest.run(&["verify"]);
    assert_eq!(verified.code, Some(5), "{verified:?}");
    assert!(verified.out.contains("under no key at hand"), "{verified:?}");
    assert!(verified.out.contains("Permission denied"), "{verified:?}");
    set_mode(&key, 0o600);
    let sent = guest.run(&send);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    set_mode(&data, 0o500);
    for file in std::fs::read_dir(&data).unwrap() {
        set_mode(&file.unwrap().path(), 0o400);
    }
    for arguments in [&["run"][..], &send] {
        let refused = guest.run(arguments);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        assert!(refused.err.contains(&data.display().to_string()), "{refused:?}");
        assert!(refused.err.contains("Permission denied"), "{refused:?}");
    }
    for arguments in [&["verify"][..], &["threads"], &["export"]] {
        let read = guest.run(arguments);
        let expected = if arguments == ["verify"] { guest.house.proof_code() } else { 0 };
        assert_eq!(read.code, Some(expected), "{arguments:?}: {read:?}");
    }
}

#[test]
fn a_directory_that_is_not_ours_is_named() {
    let guest = match OtherUser::new() {
        Ok(guest) if guest.is_root => guest,
        Ok(_) => return skip("directories that are not ours", "only root can give one away"),
        Err(reason) => return skip("directories that are not ours", &reason),
    };
    let data = guest.house.data();
    std::fs::create_dir_all(&data).unwrap();
    chown(&data, Some(0), Some(0)).unwrap();
    set_mode(&data, 0o700);
    for arguments in [&["run"][..], &["verify"]] {
        let refused = guest.run(arguments);
        assert_eq!(refused.code, Some(69), "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(&data.display().to_string()), "{arguments:?}: {refused:?}");
    }
}
