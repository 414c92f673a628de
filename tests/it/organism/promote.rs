//! `organism promote` moves an embedded journal to a stream completely, even if the move is
//! interrupted at any point.

use std::os::unix::process::ExitStatusExt as _;

use organism::failpoint;
use serde_json::Value as Json;
use uuid::Uuid;

use super::project::Projects;
use super::{CONFIG, House, numbered, order_config, say, talk_reply, until};
use crate::nats::Server;

/// An organism with an embedded journal and some records.
fn embedded() -> House {
    let house = House::settled(CONFIG);
    let large = "x".repeat(200_000);
    for (text, key) in [(say("one"), "k1"), (say(&large), "k2"), (numbered("ping", "7"), "k3")] {
        let sent = house.send_text(&text, &["--key", key]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let sent = house.send_text(&say(&large), &["--new", "sess-talkhere1", "--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    house
}

/// Changes the config so that the journal is a stream on `server`.
fn is_to_move(house: &House, server: &Server) {
    house.write("organism.toml", moved(server));
}

fn moved(server: &Server) -> String {
    let address = server.address();
    format!(
        "{CONFIG}\n[journal]\nstore = \"jetstream\"\ndurability = \"lazy\"\n\n\
         [nats]\nurl = \"{address}\"\n"
    )
}

/// All records, as `organism export` writes them in each of its two formats.
fn exported(house: &House) -> [String; 2] {
    ["xml", "jsonl"].map(|format| {
        let told = house.organism(&["export", "--format", format]);
        assert_eq!(told.code, Some(0), "{told:?}");
        told.out
    })
}

fn promoted(house: &House) -> Json {
    let told = house.organism(&["promote", "--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    house.verified();
    told.json().remove(0)["promoted"].clone()
}

#[test]
fn a_moved_journal_is_the_same_record_and_its_conversations_go_on() {
    let (house, server) = (embedded(), Server::start());
    house.write("organism.toml", order_config(1));
    let ordered = house.send_text(&numbered("order", "8"), &[]);
    assert_eq!(ordered.code, Some(0), "{ordered:?}");
    let told = house.organism(&["promote"]);
    assert_eq!(told.code, Some(78), "{told:?}");
    assert!(told.err.contains("store = \"jetstream\""), "{told:?}");

    let running = house.run();
    is_to_move(&house, &server);
    let told = house.organism(&["promote"]);
    assert_eq!(told.code, Some(75), "{told:?}");
    assert!(told.err.contains(&format!("process {}", running.child.id())), "{told:?}");
    assert_eq!(running.stop(), Some(0));

    let away = house.path("away");
    std::fs::rename(house.state(), &away).unwrap();
    let told = house.organism(&["promote"]);
    assert_eq!(told.code, Some(5), "{told:?}");
    assert!(!house.state().exists(), "the directory can be moved back");
    std::fs::rename(&away, house.state()).unwrap();

    let before = exported(&house);
    let first = promoted(&house);
    let records = house.reader().last().unwrap().0;
    assert_eq!((&first["records"], &first["published"]), (&records.into(), &records.into()));
    assert_eq!(exported(&house), before);
    assert_eq!(promoted(&house), Json::Null, "there is nothing left to do");

    let sent = house.send_text(&say("two"), &["--thread", "sess-talkhere1"]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("two")), "{}", sent.err);
    let again = house.send_text(&say("one"), &["--key", "k1", "--json"]);
    assert_eq!(again.json()[0]["again"], true, "{again:?}");
    house.verified();
    assert!(exported(&house)[1].starts_with(&before[1]), "what was there stays where it was");

    // Another host reads all records from the stream.
    let other = House::settled(&moved(&server));
    let refused = other.send_text(&say("one"), &["--key", "k1"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("organism adopt"), "{refused:?}");
    other.adopt();
    assert_eq!(other.send_text(&say("one"), &["--key", "k1"]).out, talk_reply("one"));
    other.verified();
    assert!(exported(&other)[1].starts_with(&exported(&house)[1]));

    house.write("organism.toml", CONFIG);
    let refused = house.send_text(&say("three"), &[]);
    assert_ne!(refused.code, Some(0), "nobody goes on with the file alone");
    assert!(refused.err.contains("follows a journal on JetStream"), "{refused:?}");
}

/// A moved project must be adopted before it is promoted. Its journal is in the default directory
/// of its earlier path, or in a directory that the config names.
#[test]
fn a_moved_project_whose_config_already_names_jetstream_is_adopted_and_then_promoted() {
    for has_own_directory in [false, true] {
        let server = Server::start();
        let projects = Projects { house: House::settled(CONFIG) };
        let own = "name = \"talk\"\ndata = \"data\"";
        let in_place = |config: &str| {
            if has_own_directory {
                config.replace("name = \"talk\"", own)
            } else {
                config.to_owned()
            }
        };
        projects.make("one", &in_place(CONFIG));
        assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
        std::fs::rename(projects.house.path("one"), projects.house.path("two")).unwrap();
        std::fs::write(projects.path("two", "organism.toml"), in_place(&moved(&server))).unwrap();

        let refused = projects.organism("two", &["promote"]);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.err.contains("`organism adopt`"), "{refused:?}");
        let adopted = projects.organism("two", &["adopt"]);
        assert_eq!(adopted.code, Some(0), "{adopted:?}");
        assert!(adopted.err.contains("`organism promote` moves this journal"), "{adopted:?}");
        let promoted = projects.organism("two", &["promote"]);
        assert_eq!(promoted.code, Some(0), "{promoted:?}");

        let again = projects.send("two", "first", &["--key", "k"]);
        assert_eq!((again.code, again.out), (Some(0), talk_reply("first")), "{}", again.err);
        let second = projects.organism("two", &["adopt"]);
        assert_eq!(second.code, Some(0), "{second:?}");
        assert!(second.err.contains("no journal to adopt"), "{second:?}");
    }
}

/// The moved project has its journal in a file, and its config names a stream with the journal of
/// another project. Neither journal can be used with this config.
#[test]
fn a_moved_project_is_not_adopted_while_its_stream_holds_the_journal_of_another_project() {
    let server = Server::start();
    let other = House::settled(&moved(&server));
    assert_eq!(other.send_text(&say("mine"), &[]).out, talk_reply("mine"));
    let projects = Projects { house: House::settled(CONFIG) };
    projects.make("one", CONFIG);
    assert_eq!(projects.send("one", "first", &["--key", "k"]).out, talk_reply("first"));
    let before = projects.directories("one");
    std::fs::rename(projects.house.path("one"), projects.house.path("two")).unwrap();
    let config = projects.path("two", "organism.toml");
    std::fs::write(&config, moved(&server)).unwrap();

    let refused = projects.organism("two", &["adopt"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    for part in
        ["the stream ORGANISM-talk holds the journal", "another `name` than that project has"]
    {
        assert!(refused.err.contains(part), "{part}: {refused:?}");
    }
    assert!(before.iter().all(|directory| directory.exists()), "nothing is renamed");
    assert!(projects.directories("two").iter().all(|directory| !directory.exists()));

    let config_with = |stream: &str| moved(&server).replace("[nats]", &format!("{stream}\n[nats]"));
    std::fs::write(&config, config_with("stream = \"OWN\"\npartitions = 2\n")).unwrap();
    let adopted = projects.organism("two", &["adopt"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}");
    assert!(adopted.err.contains("after `partitions = 1` under [journal]"), "{adopted:?}");
    std::fs::write(&config, config_with("stream = \"OWN\"\n")).unwrap();
    let promoted = projects.organism("two", &["promote"]);
    assert_eq!(promoted.code, Some(0), "{promoted:?}");
    let again = projects.send("two", "first", &["--key", "k"]);
    assert_eq!((again.code, again.out), (Some(0), talk_reply("first")), "{}", again.err);
}

#[test]
fn an_interrupted_move_continues_and_no_pump_opens_a_partial_stream() {
    let (house, server) = (embedded(), Server::start());
    let before = exported(&house);
    is_to_move(&house, &server);
    let other = House::settled(&moved(&server));
    // Each run continues where the last one crashed: before it sent a message, or after one more.
    let sending = failpoint::JETSTREAM.repeat(6);
    for (death, place) in sending.into_iter().chain(failpoint::PROMOTION).enumerate() {
        let mut command = house.command(&["promote"]);
        let told = command.env("ORGANISM_FAILPOINT", place).output().unwrap();
        assert_eq!(told.status.signal(), Some(6), "{death}, {place}: {told:?}");
        assert_eq!(exported(&house), before, "{place}");
        if death == 0 {
            // The process died before it noted that the journal on the servers is this one.
            std::fs::remove_file(house.state().join("ORGANISM-talk.organism")).unwrap();
            let refused = house.send_text(&say("two"), &[]);
            assert_eq!(refused.code, Some(65), "{refused:?}");
            assert!(refused.err.contains("`organism promote` moves it there"), "{refused:?}");
        }
        if [3, 8].contains(&death) {
            let refused = other.organism(&["adopt"]);
            assert_eq!(refused.code, Some(65), "{refused:?}");
            assert!(refused.err.contains("organism promote"), "{refused:?}");
        }
    }
    promoted(&house);
    assert_eq!(exported(&house), before);
    other.adopt();
    assert_eq!(other.send_text(&say("one"), &["--key", "k1"]).code, Some(0));
    other.verified();
    assert!(exported(&other)[1].starts_with(&before[1]));
}

/// Puts the journal of the backup `backup` in the place of the present one, or only removes the
/// present one.
fn replace_journal(house: &House, backup: Option<&str>) {
    for entry in std::fs::read_dir(house.data()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with("journal.db") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }

    if let Some(backup) = backup {
        let copy = house.path(&format!("{backup}/data/journal.db"));
        std::fs::copy(copy, house.data().join("journal.db")).unwrap();
    }
}

/// A backup from before the move is restored, beside the state of today or with the state of that
/// time. The stream stays as it is, and the start copies the journal from it.
#[test]
fn an_older_copy_of_a_moved_journal_is_refused_with_the_way_back_to_its_stream() {
    let house = embedded();
    let server = Server::start();
    assert_eq!(house.organism(&["backup", "shorter"]).code, Some(0));
    // The journal goes on in its file, so the first backup lacks records that were acknowledged.
    assert_eq!(house.send_text(&say("later"), &[]).out, talk_reply("later"));
    // The second backup has all records that were moved. Only the epoch of the stream is newer.
    assert_eq!(house.organism(&["backup", "whole"]).code, Some(0));
    // A redaction in one of the copies does not make it another journal.
    let db = rusqlite::Connection::open(house.path("whole/data/journal.db")).unwrap();
    let redact = "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0";
    assert!(db.execute(redact, []).unwrap() > 0);
    drop(db);
    is_to_move(&house, &server);
    promoted(&house);
    assert_eq!(house.send_text(&say("two"), &["--key", "k4"]).out, talk_reply("two"));

    let note = house.state().join("ORGANISM-talk.organism");
    house.write("payload.xml", say("two"));
    let send = &["send", "payload.xml", "--as", "desk"][..];
    let start_is_refused = (send, "`organism promote` completes");
    let move_is_refused =
        (&["promote"][..], "holds an older copy of the journal that is in the stream");
    for (backup, has_note, commands) in [
        ("shorter", true, &[start_is_refused, move_is_refused][..]),
        ("shorter", false, &[start_is_refused]),
        ("whole", false, &[move_is_refused]),
    ] {
        replace_journal(&house, Some(backup));
        if !has_note {
            std::fs::remove_file(&note).unwrap();
        }
        for (command, text) in commands {
            let refused = house.organism(command);
            assert_eq!(refused.code, Some(65), "{backup}: {refused:?}");
            assert!(refused.err.contains(text), "{backup}: {refused:?}");
            assert!(!refused.err.contains("another project"), "{backup}: {refused:?}");
        }

        replace_journal(&house, None);
        let again = house.send_text(&say("two"), &["--key", "k4", "--json"]);
        assert_eq!(again.code, Some(0), "{backup}: {again:?}");
        assert_eq!(again.json()[0]["again"], true, "{backup}: {again:?}");
        house.verified();
    }
}

/// A journal went on in its file after its backup was restored, and its stream went on as well.
/// Each has acknowledged records that the other lacks.
#[test]
fn a_fork_of_a_moved_journal_is_not_taken_for_an_older_copy() {
    let house = embedded();
    let server = Server::start();
    assert_eq!(house.organism(&["backup", "copy"]).code, Some(0));
    is_to_move(&house, &server);
    promoted(&house);
    for text in ["two", "three"] {
        assert_eq!(house.send_text(&say(text), &[]).out, talk_reply(text));
    }

    replace_journal(&house, Some("copy"));
    house.write("organism.toml", CONFIG);
    let accepted = house.organism(&["repair", "--accept-loss"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert_eq!(house.send_text(&say("fork"), &[]).out, talk_reply("fork"));
    let before = exported(&house);

    is_to_move(&house, &server);
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("the stream ORGANISM-talk-0 keeps something else"), "{refused:?}");
    assert!(!refused.err.contains("older copy"), "{refused:?}");
    assert_eq!(exported(&house), before);
}

fn journal_of(house: &House) -> Uuid {
    house.reader().about().unwrap().journal
}

/// Runs commands that must be refused, and checks their texts.
fn are_refused(house: &House, text: &str, commands: &[&[&str]]) {
    for command in commands {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(65), "{command:?}: {refused:?}");
        assert!(refused.err.contains(text), "{command:?}: {refused:?}");
    }
}

#[test]
fn a_command_before_the_move_writes_nothing_to_the_state_or_to_the_servers() {
    let (house, server) = (embedded(), Server::start());
    let journal = journal_of(&house);
    is_to_move(&house, &server);
    house.write("payload.xml", say("two"));
    let send = &["send", "payload.xml", "--as", "desk"][..];
    are_refused(&house, "`organism promote` moves it there", &[&["run"], send, &["repair"]]);
    let note = house.stream_note("ORGANISM-talk");
    assert!(!note.exists());
    let streams = server.admin().ask("STREAM.NAMES", &serde_json::json!({}));
    assert_eq!(streams["total"], 0, "{streams}");

    promoted(&house);
    assert_eq!(house.send_text(&say("two"), &[]).out, talk_reply("two"));
    assert_eq!(std::fs::read_to_string(&note).unwrap().trim(), journal.to_string());
}

#[test]
fn a_move_that_is_killed_at_random_times_continues() {
    let (house, server) = (embedded(), Server::start());
    let before = exported(&house);
    is_to_move(&house, &server);
    let admin = server.admin();
    let stream = "STREAM.INFO.ORGANISM-talk-0";
    for messages in [1, 3, 5] {
        let mut child = house.command(&["promote"]).spawn().unwrap();
        until("so much is there, or all of it", || {
            let info = admin.ask(stream, &serde_json::json!({}));
            let enough = info["state"]["messages"].as_u64() >= Some(messages);
            (enough || child.try_wait().unwrap().is_some()).then_some(())
        });
        // A faster run has reached its end.
        child.kill().ok();
        child.wait().unwrap();
    }
    promoted(&house);
    assert_eq!(exported(&house), before);
    let sent = house.send_text(&say("two"), &["--thread", "sess-talkhere1"]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("two")), "{}", sent.err);
    house.verified();
}

#[test]
fn a_file_is_not_moved_into_several_partitions() {
    let (house, server) = (embedded(), Server::start());
    let before = exported(&house);
    let config = moved(&server).replace("[nats]", "partitions = 4\n\n[nats]");
    house.write("organism.toml", config);
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    for word in ["has 1 partitions and the config says 4", "write `partitions = 1`"] {
        assert!(refused.err.contains(word), "{word}: {refused:?}");
    }
    let stream = server.admin().ask("STREAM.NAMES", &serde_json::json!({}));
    assert_eq!(stream["total"], 0, "nothing was sent: {stream}");
    house.write("organism.toml", CONFIG);
    assert_eq!(exported(&house), before);
    house.verified();
}

#[test]
fn a_foreign_stream_is_left_unchanged() {
    let (house, server) = (embedded(), Server::start());
    let other = House::settled(&moved(&server));
    assert_eq!(other.send_text(&say("mine"), &[]).out, talk_reply("mine"));
    let theirs = exported(&other);
    let before = exported(&house);
    is_to_move(&house, &server);
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("of another project"), "{refused:?}");
    assert_eq!((exported(&house), exported(&other)), (before.clone(), theirs));
    other.verified();
    // Nothing changed here: the organism continues in its file.
    house.write("organism.toml", CONFIG);
    assert_eq!(
        house.send_text(&say("two"), &["--thread", "sess-talkhere1"]).out,
        talk_reply("two")
    );

    // The same holds for the stream of an organism with another name.
    let on_stream =
        |name: &str| moved(&server).replace("[nats]", &format!("stream = \"{name}\"\n\n[nats]"));
    let named = House::settled(&on_stream("Y").replace("\"talk\"", "\"other\""));
    assert_eq!(named.send_text(&say("mine"), &[]).out, talk_reply("mine"));
    house.write("organism.toml", on_stream("Y"));
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.err.contains("of another project"), "{refused:?}");
    assert!(!refused.err.contains("delete the stream"), "{refused:?}");
    named.verified();

    // Without the id of its journal in the bucket, the first message of the stream names its owner.
    server.admin().publish("$KV.Y-pumps.partitions", r#"{"partitions":1}"#);
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    assert!(refused.err.contains("of the organism `other`"), "{refused:?}");
    assert!(!refused.err.contains("delete the stream"), "{refused:?}");

    house.write("organism.toml", on_stream("X"));
    let db = rusqlite::Connection::open(house.data().join("journal.db")).unwrap();
    db.execute("UPDATE step SET time = time + 1 WHERE position = 2", []).unwrap();
    drop(db);
    let refused = house.organism(&["promote"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let stream = server.admin().ask("STREAM.INFO.X-0", &serde_json::json!({}));
    assert!(stream.get("error").is_some(), "a broken journal is sent nowhere");
}
