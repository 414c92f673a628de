//! Streams with records that no MAC of a pump covers, or with blanked payloads. No organism starts
//! on such a stream, and nothing is written to it, until an operator has accepted the damage. The
//! acceptance is recorded.

use organism::ids::ThreadId;
use organism::journal::sqlite::{DATABASE, JournalReader};

use super::{House, ask, host, stream};
use crate::journal::streamed::attacks::{
    blanked, forged_behind, messages_of, recreate, without_mac,
};
use crate::nats::{Admin, Server};
use crate::organism::proof::forge as forge_row;
use crate::organism::{Running, numbered, until};

const SUBJECT: &str = "organism.journal.";

/// Starts the organism, sends one request, and stops the organism after the answer.
fn lead(house: &House, number: &str) {
    let running = house.run();
    ask(house, number);
    assert_eq!(running.stop(), Some(0));
}

/// Publishes on the stream a record that no pump wrote.
fn forge(admin: &Admin, house: &House, stream: &str) {
    let reader = house.reader();
    let last = reader.record(reader.last().unwrap()).unwrap().unwrap();
    admin.publish(&format!("{SUBJECT}{stream}.0"), &forged_behind(last, ""));
}

/// Publishes a record that no pump wrote, with a copy of the previous record's MAC. The copy names
/// the key of the host.
fn forge_with_a_mac(admin: &Admin, house: &House, stream: &str) {
    let reader = house.reader();
    let last = reader.record(reader.last().unwrap()).unwrap().unwrap();
    let head = last.mac.expect("the last record of a commit carries a MAC");
    let mac = format!("{{\"mac\":{{\"head\":\"{head}\"}}}}\n\n");
    admin.publish(&format!("{SUBJECT}{stream}.0"), &forged_behind(last, &mac));
}

/// Recreates a partition's stream with changed messages.
fn change(admin: &Admin, stream: &str, partition: u32, change: fn(&str) -> String) {
    let name = format!("{stream}-{partition}");
    let messages = messages_of(admin, &name);
    let messages: Vec<_> = messages.iter().map(|message| change(message)).collect();
    recreate(admin, &name, &format!("{SUBJECT}{stream}.{partition}"), &messages);
}

#[track_caller]
fn is_refused(house: &House, code: i32, way_on: &str) {
    for command in [&["run"][..], &["send", "organism.toml", "--as", "desk"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(code), "{refused:?}");
        assert!(refused.err.contains(way_on), "{refused:?}");
    }
}

#[track_caller]
fn done(house: &House, command: &[&str]) -> String {
    let output = house.organism(command);
    assert_eq!(output.code, Some(0), "{output:?}");
    output.out
}

fn records(house: &House) -> u64 {
    house.reader().last().unwrap().0
}

#[test]
fn a_forged_end_of_a_stream_starts_nothing_until_an_operator_keeps_it_on_record() {
    let server = Server::start();
    let name = stream("forged");
    let (one, other) = (host(&server, &name), host(&server, &name));
    lead(&one, "1");
    let before = records(&one);
    forge(&server.admin(), &one, &name);
    for house in [&one, &other] {
        is_refused(house, 4, "organism repair --accept-key");
    }
    assert_eq!(records(&one), before, "the forged record was written");
    assert_eq!(records(&other), 0, "records before a forged one were written");

    let loss = one.organism(&["repair", "--accept-loss"]);
    assert_eq!(loss.code, Some(2), "{loss:?}");
    let kept = done(&one, &["repair", "--accept-key", "--note", "seen"]);
    let first = before + 1;
    assert!(kept.contains(&format!("records {first} to {first}, without a proof")), "{kept}");
    let again = done(&one, &["repair", "--accept-key"]);
    assert!(again.contains("nothing was recorded"), "{again}");
    lead(&one, "2");
    lead(&other, "3");
    lead(&one, "4");

    let exported = done(&one, &["export"]);
    assert!(exported.contains(&format!("<detail name=\"from\">{first}</detail>")), "{exported}");
    let verified = one.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    let accepted =
        format!("accepted     records {first} to {first}, which no MAC of a pump covers");
    assert!(verified.out.contains(&accepted), "{verified:?}");
}

/// A second forged record with a wrong MAC is refused, although an operator has accepted the first
/// one.
#[test]
fn a_second_forged_record_with_a_wrong_mac_is_refused_as_the_first_one() {
    let server = Server::start();
    let name = stream("again");
    let house = host(&server, &name);
    lead(&house, "1");
    let first = records(&house) + 1;
    for number in 0..2 {
        forge_with_a_mac(&server.admin(), &house, &name);
        is_refused(&house, 4, "organism repair --accept-key");
        let kept = done(&house, &["repair", "--accept-key"]);
        assert!(kept.contains("without a proof"), "{number}: {kept}");
        lead(&house, "2");
    }

    let verified = house.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    assert!(verified.out.contains(&format!("accepted     records {first} to")), "{verified:?}");
}

#[test]
fn a_repair_that_is_killed_before_its_record_has_accepted_nothing() {
    let server = Server::start();
    let name = stream("killed-acceptance");
    let house = host(&server, &name);
    lead(&house, "1");
    let first = records(&house) + 1;
    forge(&server.admin(), &house, &name);
    let mut command = house.command(&["repair", "--accept-key"]);
    let killed = command.env("ORGANISM_FAILPOINT", "epoch-raised").output().unwrap();
    assert_eq!(killed.status.code(), None, "{killed:?}");
    is_refused(&house, 4, "organism repair --accept-key");
    let kept = done(&house, &["repair", "--accept-key"]);
    assert!(kept.contains(&format!("records {first} to {first}, without a proof")), "{kept}");
    lead(&house, "2");
}

/// A forged record at the end of a projection is not published to the stream.
#[test]
fn a_forged_end_of_a_projection_is_not_published() {
    let server = Server::start();
    let name = stream("unpublished");
    let house = host(&server, &name);
    lead(&house, "1");
    let end = || server.admin().info(&format!("{name}-0"))["state"]["last_seq"].clone();
    let before = end();
    forge_row(&house);
    is_refused(&house, 4, "organism repair");
    let refused = house.organism(&["repair"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("organism repair --from stream"), "{refused:?}");
    assert_eq!(end(), before, "the stream changed");
    done(&house, &["repair", "--from", "stream"]);
    lead(&house, "2");
    assert_eq!(house.recorded("pong"), 2);
}

/// A projection without any MAC is not published to a stream that an administrator has deleted.
#[test]
fn a_projection_whose_macs_were_all_removed_is_not_published() {
    let server = Server::start();
    let name = stream("stripped");
    let house = host(&server, &name);
    lead(&house, "1");
    let file = house.data().join("journal.db");
    let database = rusqlite::Connection::open(file).unwrap();
    assert!(database.execute("UPDATE step SET mac = NULL", ()).unwrap() > 0);
    drop(database);
    server.admin().delete(&format!("{name}-0"));

    let refused = house.organism(&["repair"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("no MAC of a pump covers the records"), "{refused:?}");
}

/// The servers let no pump remove a record, so an administrator deletes the stream. `organism
/// repair` then publishes the projection again, without the forged record.
#[test]
fn a_forged_end_of_a_stream_is_taken_out_by_publishing_the_projection_again() {
    let server = Server::start();
    let name = stream("taken-out");
    let house = host(&server, &name);
    lead(&house, "1");
    let before = records(&house);
    forge(&server.admin(), &house, &name);
    is_refused(&house, 4, "organism repair --accept-key");
    server.admin().delete(&format!("{name}-0"));
    done(&house, &["repair"]);
    let kept = house.reader().record(organism::ids::Position(before + 1)).unwrap().unwrap();
    assert!(kept.mac.is_some(), "the forged record is still there");
    lead(&house, "2");
    assert_eq!(house.recorded("pong"), 2);
    let verified = house.organism(&["verify", "--stream"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

/// A host whose journal has two partitions.
fn host_of_two(server: &Server, stream: &str) -> House {
    let house = host(server, stream);
    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    let two = "durability = \"synced\"\npartitions = 2";
    house.write("organism.toml", config.replace("durability = \"synced\"", two));
    house
}

#[test]
fn streams_from_before_macs_start_nothing_until_they_are_adopted_on_record() {
    let server = Server::start();
    let name = stream("before-macs");
    let (one, other) = (host_of_two(&server, &name), host_of_two(&server, &name));
    lead(&one, "1");
    for partition in 0..2 {
        change(&server.admin(), &name, partition, without_mac);
    }
    let log = std::fs::File::create(other.path("log")).unwrap();
    let refused = Running { child: other.command(&["run"]).stderr(log).spawn().unwrap() };
    until("the streams are refused", || {
        (other.log().matches("`organism adopt`").count() >= 2).then_some(())
    });
    drop(refused);
    done(&other, &["adopt", "--note", "from before"]);
    let again = other.organism(&["adopt"]);
    assert!(again.err.contains("no journal to adopt"), "{again:?}");
    lead(&other, "2");
    for partition in 0..2 {
        let data = other.data().join(format!("p{partition}"));
        let reader = JournalReader::open(&data).unwrap();
        assert!(reader.last().unwrap().0 > 0);
        let exported = done(&other, &["export", "--data", data.to_str().unwrap()]);
        let detail = "<detail name=\"without-mac-up-to\">";
        assert_eq!(exported.matches(detail).count(), 1, "{exported}");
    }
    let verified = other.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}

#[test]
fn blanked_payloads_of_a_stream_start_nothing_until_they_are_accepted_on_record() {
    let server = Server::start();
    let name = stream("blanked");
    let (one, other) = (host(&server, &name), host(&server, &name));
    lead(&one, "1");
    change(&server.admin(), &name, 0, blanked);
    is_refused(&other, 4, "organism repair --accept-redaction");
    assert_eq!(records(&other), 0, "blanked payloads were written");
    // The rest of an index with words of the payloads.
    let words = other.data().join("index.db-building-words");
    std::fs::write(&words, "words").unwrap();
    let accepted = done(&other, &["repair", "--accept-redaction", "--note", "privacy"]);
    assert!(accepted.contains("payloads of records"), "{accepted}");
    assert!(!words.exists());
    lead(&other, "2");
    let verified = other.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
    assert!(verified.out.contains("redacted"), "{verified:?}");
}

/// Bytes of a row that was removed from a projection, which stay in unused parts of the file.
const OLD_COPY: &str = "an old copy";

/// Whether the projection of `partition` contains [`OLD_COPY`].
fn has_copy(house: &House, partition: &str) -> bool {
    let data = house.data().join(partition);
    let files = ["", "-wal"].map(|end| data.join(format!("{DATABASE}{end}")));
    let bytes: Vec<u8> =
        files.iter().flat_map(|file| std::fs::read(file).unwrap_or_default()).collect();
    bytes.windows(OLD_COPY.len()).any(|part| part == OLD_COPY.as_bytes())
}

/// Sends a payload into each of the two partitions, and blanks all payloads in the projection.
/// Leaves [`OLD_COPY`] in each projection.
fn lead_and_blank(house: &House) {
    let running = house.run();
    for partition in 0..2 {
        let ids = (0..).map(|number: u32| format!("sess-part{number:06}"));
        let mut fitting = ids.filter(|id| ThreadId::parse(id).unwrap().partition(2) == partition);
        let new = fitting.next().unwrap();
        let sent = house.send_text(&numbered("ping", "1"), &["--new", &new]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));

    for partition in ["p0", "p1"] {
        let file = house.data().join(partition).join(DATABASE);
        let sql =
            "UPDATE step SET payloads = zeroblob(length(payloads)) WHERE length(payloads) > 0";
        let db = rusqlite::Connection::open(file).unwrap();
        assert!(db.execute(sql, ()).unwrap() > 0);
        let copies = format!(
            "PRAGMA secure_delete = OFF; \
             INSERT INTO blob VALUES ('copy', CAST('{OLD_COPY}' AS BLOB)); \
             DELETE FROM blob WHERE digest = 'copy'"
        );
        db.execute_batch(&copies).unwrap();
        drop(db);
        assert!(has_copy(house, partition));
    }
}

/// A payload that is still in the stream is not recorded as taken out, because every other host has
/// it, and copies it. The redaction of another partition is recorded and printed all the same. The
/// operator then takes the payload out of the stream as docs/OPERATIONS.md describes. The file of a
/// projection whose redaction is recorded contains no old copies of rows.
#[test]
fn a_redaction_is_recorded_only_where_the_stream_has_lost_the_payload_too() {
    let server = Server::start();
    let name = stream("blanked-here");
    let house = host_of_two(&server, &name);
    lead_and_blank(&house);
    change(&server.admin(), &name, 0, blanked);
    let last = || JournalReader::open(&house.data().join("p1")).unwrap().last().unwrap();
    let before = last();

    let refused = house.organism(&["repair", "--accept-redaction"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    let accepted = format!("stream       {name}-0\ntaken out    payloads of records ");
    assert!(refused.out.contains(&accepted), "{refused:?}");
    assert!(refused.err.contains(&format!("but not in the stream {name}-1")), "{refused:?}");
    assert!(refused.err.contains("Taking a payload out"), "{refused:?}");
    assert_eq!(last(), before);
    assert_eq!(["p0", "p1"].map(|partition| has_copy(&house, partition)), [false, true]);

    server.admin().delete(&format!("{name}-1"));
    let published = house.organism(&["repair"]);
    assert_eq!(published.code, Some(4), "{published:?}");
    assert!(published.err.contains("`organism repair --accept-redaction`"), "{published:?}");
    let accepted = done(&house, &["repair", "--accept-redaction"]);
    assert!(accepted.contains(&format!("stream       {name}-1\ntaken out ")), "{accepted}");
    assert!(!has_copy(&house, "p1"));
    let ended = done(&house, &["repair"]);
    assert!(ended.contains("published    records 1 to"), "{ended}");
    let verified = house.organism(&["verify", "--stream"]);
    assert!(matches!(verified.code, Some(0 | 5)), "{verified:?}");
}
