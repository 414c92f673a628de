//! `organism operator enroll` writes the key of an operator's browser into the config file, and
//! changes nothing else.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Stdio;

use ed25519_dalek::SigningKey;
use organism::thread::OperatorPublicKey;

use super::{CommandOutput, House};

const CONFIG: &str = r#"# The talk of the town.
[organism]
name = "talk"   # as ever

[clients.desk]
peers = ["solo"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[operators.ana] # the first
key = "ANA"

  [operators.ben]
  key = "BEN" # the second
"#;

fn key(seed: u8) -> String {
    OperatorPublicKey::of(&SigningKey::from_bytes(&[seed; 32])).to_string()
}

fn house() -> House {
    House::with(&CONFIG.replace("ANA", &key(1)).replace("BEN", &key(2)))
}

fn enroll(house: &House, arguments: &[&str]) -> CommandOutput {
    house.organism(&[&["operator", "enroll"], arguments].concat())
}

fn config(house: &House) -> String {
    std::fs::read_to_string(house.path("organism.toml")).unwrap()
}

/// Temporary files that a command has left beside the config.
fn left_behind(house: &House) -> Vec<String> {
    let entries = std::fs::read_dir(house.path(".")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".new")).collect()
}

#[test]
fn a_key_is_written_once_and_everything_else_stays() {
    let house = house();
    let before = config(&house);
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(house.path("organism.toml"), mode).unwrap();

    let done = enroll(&house, &["ben", &key(3)]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in ["ben may sign in the browser", "counts from the next start", "organism run"] {
        assert!(done.err.contains(part), "{part} in {done:?}");
    }
    let line = format!("  browser_key = \"{}\"\n", key(3));
    assert_eq!(config(&house), format!("{before}{line}"));
    let metadata = std::fs::metadata(house.path("organism.toml")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!(house.organism(&["check"]).code, Some(0));

    let again = enroll(&house, &["ben", &key(3)]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("already; nothing was changed"), "{again:?}");
    let other = enroll(&house, &["ben", &key(4)]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.err.contains("--replace"), "{other:?}");
    assert_eq!(config(&house), format!("{before}{line}"));

    let replaced = enroll(&house, &["ben", &key(4), "organism.toml", "--replace"]);
    assert_eq!(replaced.code, Some(0), "{replaced:?}");
    assert!(replaced.err.contains(&format!("no longer with {}", key(3))), "{replaced:?}");
    assert_eq!(config(&house), format!("{before}{}", line.replace(&key(3), &key(4))));
    assert_eq!(left_behind(&house), Vec::<String>::new());
}

#[test]
fn a_key_that_cannot_be_enrolled_changes_nothing_and_says_why() {
    let house = house();
    let before = config(&house);
    let good = key(3);
    let [ana, ben] = [1, 2].map(key);
    for (name, key, expected) in [
        ("anna", &*good, "did you mean `ana`?"),
        ("ana", &good[..good.len() - 1], "has 42 characters"),
        ("ana", &good[8..], "begins with `ed25519:`"),
        ("ana", &*ben, "a key of the operator `ben`"),
        ("ana", &*ana, "the key of `ana` for the terminal"),
    ] {
        let refused = enroll(&house, &[name, key]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(expected), "{expected} in {refused:?}");
    }
    let missing = enroll(&house, &["ana", &good, "organisme.toml"]);
    assert_eq!(missing.code, Some(78), "{missing:?}");
    assert!(missing.err.contains("did you mean `organism.toml`"), "{missing:?}");
    assert_eq!(config(&house), before);

    let without = before.split("[operators.ana]").next().unwrap().to_owned();
    house.write("organism.toml", &without);
    let refused = enroll(&house, &["ana", &good]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("organism operator key"), "{refused:?}");
    house.write("organism.toml", "[organism\n");
    let invalid = enroll(&house, &["ana", &good]);
    assert_eq!(invalid.code, Some(78), "{invalid:?}");
    assert_eq!(config(&house), "[organism\n");
}

#[test]
fn a_file_that_cannot_be_replaced_as_it_is_stays() {
    let house = house();
    let before = config(&house);
    let path = house.path("organism.toml");
    let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    allow(0o444).unwrap();
    let refused = enroll(&house, &["ana", &key(3)]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("is read-only; `chmod u+w"), "{refused:?}");
    allow(0o644).unwrap();

    std::fs::hard_link(&path, house.path("other-name.toml")).unwrap();
    let refused = enroll(&house, &["ana", &key(3), "organism.toml"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("has 2 names (hard links)"), "{refused:?}");
    std::fs::remove_file(house.path("other-name.toml")).unwrap();

    // A file of another user can be made by the system's administrator alone.
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        let refused = enroll(&house, &["ana", &key(3)]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains("belongs to the user 12345"), "{refused:?}");
        let own = std::fs::metadata(house.path("talk.xsd")).unwrap().uid();
        std::os::unix::fs::chown(&path, Some(own), None).unwrap();
    }
    assert_eq!(config(&house), before);

    std::fs::create_dir(house.path("elsewhere")).unwrap();
    std::fs::rename(&path, house.path("elsewhere/real.toml")).unwrap();
    symlink("elsewhere/real.toml", &path).unwrap();
    let done = enroll(&house, &["ana", &key(3)]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(path.is_symlink(), "the link stays");
    let written = std::fs::read_to_string(house.path("elsewhere/real.toml")).unwrap();
    assert!(written.contains(&key(3)), "{written}");
}

#[test]
fn two_commands_at_once_write_both_keys() {
    // Two commands without a lock overwrite each other in about half of all rounds.
    const ROUNDS: u8 = 8;
    let house = house();
    for round in 0..ROUNDS {
        let people = [("ana", key(10 + 2 * round)), ("ben", key(11 + 2 * round))];
        let children = people.each_ref().map(|(name, key)| {
            let mut command = house.command(&["operator", "enroll", name, key, "--replace"]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        });
        for mut child in children {
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
        let written = config(&house);
        for (_, key) in &people {
            assert!(written.contains(key), "{written}");
        }
    }
    assert_eq!(house.organism(&["check"]).code, Some(0));
    assert_eq!(left_behind(&house), Vec::<String>::new());
}
