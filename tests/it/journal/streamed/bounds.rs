//! Streams that have lost their last records. Four sources can show that the lost records existed:
//! the projection, the state directory, the lease, and the projection of another host. If at least
//! one of them does, no pump becomes leader of the stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use organism::clock::Time;
use organism::ids::{Digest, Position};
use organism::journal::jetstream::{
    self, JoiningHost, MemberId, ProjectionHead, ProjectionReport, RepairSource, StreamJournal,
    StreamRepair,
};
use organism::journal::{Error, Journal as _};
use organism::limits;
use serde_json::json;

use super::Place;
use crate::journal::script::Script;
use crate::nats::Server;
use crate::organism::{PATIENCE, until};

/// Maximum time of a refusal that waits for answers of other hosts.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A closed journal with records up to position `last`.
fn with_records(last: u64) -> Place {
    let place = Place::new();
    append(&place, last);
    place
}

fn append(place: &Place, count: u64) {
    let mut script = Script::default();
    let mut journal = place.open().unwrap();
    for _ in 0..count {
        journal.append(&mut [script.boot(1)]).unwrap();
    }
    journal.close(Time(0)).unwrap();
}

/// Replaces the stream by an older copy, which ends with record `last`.
pub(super) fn cut(place: &Place, last: u64) {
    let (admin, stream, subject) = (place.admin(), place.options.stream(), place.options.subject());
    let info = admin.info(&stream);
    let messages = info["state"]["messages"].as_u64().unwrap();
    let step = format!("{{\"step\":{{\"position\":{},", last + 1);
    let bodies = (1..=messages).map(|seq| super::unfit::body(&admin, &stream, seq));
    let kept: Vec<_> = bodies.take_while(|body| !body.contains(&step)).collect();
    assert!((kept.len() as u64) < messages, "nothing is cut");

    admin.delete(&stream);
    admin.must(&format!("STREAM.CREATE.{stream}"), &info["config"]);
    for body in kept {
        admin.publish(&subject, &body);
    }
}

fn lose_projection(place: &Place) {
    for file in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        std::fs::remove_file(place.data().join(file)).ok();
    }
}

fn lose_state(place: &Place) {
    std::fs::remove_dir_all(place.state()).unwrap();
    std::fs::create_dir_all(place.state()).unwrap();
}

/// Opens the stream, and asserts that opening fails and leaves the stream unchanged. Returns the
/// error.
fn refused(place: &Place) -> Error {
    let (admin, stream) = (place.admin(), place.options.stream());
    let messages = || {
        let info = admin.ask(&format!("STREAM.INFO.{stream}"), &json!({}));
        info["state"]["messages"].as_u64()
    };
    let before = messages();
    let refused = place.open().map(drop).unwrap_err();
    assert_eq!(messages(), before, "a pump that does not lead writes nothing");
    refused
}

fn assert_shorter(refused: &Error, source: &str, more: u64) {
    let text = refused.to_string();
    assert!(matches!(refused, Error::StreamShorter { .. }), "{text}");
    assert!(text.contains(source), "{text}");
    assert!(text.contains(&format!("goes up to record {more}")), "{text}");
    assert!(text.contains("organism repair"), "{text}");
}

#[test]
fn a_stream_that_is_shorter_than_the_projection_gets_no_leader() {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    lose_state(&place);
    let refused = refused(&place);
    assert_shorter(&refused, "the projection in", 7);
    assert!(refused.to_string().contains("ends at record 3"), "{refused}");
}

#[test]
fn a_stream_that_is_shorter_than_the_state_shows_gets_no_leader() {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    lose_projection(&place);
    assert_shorter(&refused(&place), "the watermark in", 7);
}

#[test]
fn a_stream_that_is_shorter_than_the_lease_shows_gets_no_leader() {
    let place = with_records(7);
    cut(&place, 3);
    let other = place.elsewhere();
    assert_shorter(&refused(&other), "the lease in", 7);
    // A refused host passes the bound on.
    assert_shorter(&refused(&place.elsewhere()), "the lease in", 7);
}

#[test]
fn a_lost_stream_is_not_made_anew_where_only_the_lease_knows_of_it() {
    let place = with_records(7);
    place.admin().delete(&place.options.stream());
    let other = place.elsewhere();
    let refused = refused(&other);
    assert_shorter(&refused, "the lease in", 7);
    assert!(refused.to_string().contains("is gone"), "{refused}");
}

#[test]
fn a_renewed_lease_names_the_last_record() {
    let place = Place::new();
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    let hashes = journal.append(&mut [script.boot(1), script.boot(1)]).unwrap();
    let (admin, lease) = (place.admin(), place.options.lease());
    let bucket = format!("STREAM.MSG.GET.KV_{}", place.options.bucket());
    until("the lease names it", || {
        use base64::Engine as _;
        let found = admin.must(&bucket, &json!({ "last_by_subj": lease }));
        let data = found["message"]["data"].as_str().unwrap().to_owned();
        let value = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&value).unwrap();
        let acknowledged = &value["acknowledged"];
        let is_last =
            acknowledged["position"] == 2 && acknowledged["hash"] == hashes[1].to_string();
        assert!(!is_last || acknowledged["seq"] == 3, "{value}");
        is_last.then_some(())
    });
}

/// Another process of the organism. On request, it reports the position of a projection.
struct Member(tokio::runtime::Runtime);

impl Member {
    /// Starts a member that reports the position of a projection and names these other members.
    fn answers(place: &Place, head: ProjectionHead, others: &[&str]) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (servers, subject) = (place.server().options(), place.options.bound_subject());
        let member = MemberId::new();
        let named = others.iter().map(|other| (MemberId::new(), (*other).to_owned()));
        let members = named.chain([(member, "process 7 on attic".to_owned())]).collect();
        let holder = "process 7 on attic".to_owned();
        let report = ProjectionReport { member, holder, projection: Some(head), members };
        let report = serde_json::to_vec(&report).unwrap();
        let (client, mut questions) = runtime.block_on(async {
            let client = organism::nats::connect(&servers, "member").await.unwrap();
            let questions = client.subscribe(subject).await.unwrap();
            client.flush().await.unwrap();
            (client, questions)
        });
        runtime.spawn(async move {
            while let Some(question) = questions.next().await {
                let inbox = question.reply.unwrap();
                client.publish(inbox, report.clone().into()).await.unwrap();
            }
        });
        Self(runtime)
    }
}

fn head(place: &Place) -> ProjectionHead {
    let sealed = place.records().pop().unwrap();
    let journal = place.reader().about().unwrap().journal;
    ProjectionHead { journal, position: sealed.record.position, hash: sealed.hash }
}

#[test]
fn a_stream_that_is_shorter_than_another_hosts_projection_gets_no_leader() {
    let place = with_records(7);
    let head = head(&place);
    cut(&place, 3);
    place.let_lapse();
    let _member = Member::answers(&place, head, &[]);
    assert_shorter(&refused(&place.elsewhere()), "the projection of process 7 on attic", 7);
}

#[test]
fn a_stream_that_was_lost_with_its_bucket_is_not_made_anew_while_a_projection_answers() {
    let place = with_records(7);
    let member = Member::answers(&place, head(&place), &["process 9 on cellar"]);
    place.admin().delete(&place.options.stream());
    place.admin().delete(&format!("KV_{}", place.options.bucket()));
    let begun = Instant::now();
    let refused = refused(&place.elsewhere());
    assert_shorter(&refused, "the projection of process 7 on attic", 7);
    assert!(refused.to_string().contains("no answer from process 9 on cellar"), "{refused}");
    assert!(begun.elapsed() < ANSWER_MAX, "{:?}", begun.elapsed());
    drop(member.0);
}

#[test]
fn another_record_in_another_hosts_projection_is_a_fork_without_a_leader() {
    let place = with_records(7);
    let other = ProjectionHead { hash: Digest::of(b"another"), ..head(&place) };
    let _member = Member::answers(&place, ProjectionHead { position: Position(5), ..other }, &[]);
    let refused = refused(&place.elsewhere());
    assert!(matches!(refused, Error::StreamForked { position: Position(5), .. }), "{refused}");
    assert!(refused.to_string().contains("process 7 on attic"), "{refused}");
}

#[test]
fn a_stream_that_another_host_continued_is_a_fork_without_a_leader() {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    // No reachable place knows more records.
    append(&place.elsewhere(), 9);
    let refused = refused(&place);
    assert!(matches!(refused, Error::StreamForked { position: Position(4), .. }), "{refused}");
    assert!(refused.to_string().contains("the projection in"), "{refused}");
}

fn repair(place: &Place, from: Option<RepairSource>) -> Result<Option<StreamRepair>, Error> {
    let servers = place.server().options();
    jetstream::repair(&servers, &place.options, &place.data(), &place.state(), from)
}

/// Asserts that a repair on this host is refused for a reason with `text`, and changes nothing.
fn assert_other_host_ahead(place: &Place, from: Option<RepairSource>, text: &str) {
    let messages = || place.admin().info(&place.options.stream())["state"]["messages"].as_u64();
    let before = (messages(), place.records().len());
    let refused = repair(place, from).unwrap_err();
    assert!(matches!(refused, Error::OtherHostAhead { .. }), "{from:?}: {refused}");
    assert!(refused.to_string().contains(&place.options.stream()), "{from:?}: {refused}");
    assert!(refused.to_string().contains(text), "{from:?}: {refused}");
    assert_eq!((messages(), place.records().len()), before, "{from:?}");
}

/// Asserts that a repair on this host publishes records 4 to 7 again.
fn assert_published(place: &Place, from: Option<RepairSource>) {
    let published = repair(place, from).unwrap().unwrap();
    assert_eq!(published.from, RepairSource::Projection);
    assert_eq!((published.kept, published.acknowledged), (Position(3), Position(7)));
}

#[test]
fn a_repair_publishes_nothing_while_another_process_has_later_records() {
    let place = with_records(5);
    let behind = place.copy();
    append(&place, 2);
    cut(&place, 3);
    place.let_lapse();
    let _member = Member::answers(&place, head(&place), &[]);
    for from in [None, Some(RepairSource::Projection), Some(RepairSource::Stream)] {
        let text = "process 7 on attic goes up to record 7. Stop the organism there, and run \
                    `organism repair` on that host";
        assert_other_host_ahead(&behind, from, text);
    }
    assert_published(&place, None);
}

#[test]
fn a_repair_waits_for_a_process_that_runs_and_does_not_answer() {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    let _member = Member::answers(&place, head(&place), &["process 9 on cellar"]);
    assert_other_host_ahead(&place, None, "process 9 on cellar did not answer");
}

/// The other host does not run, so it cannot report its later records. A repair publishes the
/// records of this host only if the operator requests it.
#[test]
fn records_of_another_hosts_pump_are_published_again_only_on_request() {
    let place = with_records(3);
    append(&place.elsewhere(), 4);
    place.open().unwrap().close(Time(0)).unwrap();
    cut(&place, 3);
    place.let_lapse();
    let text = "`organism repair --from projection --partitions 0` publishes from here";
    assert_other_host_ahead(&place, None, text);
    assert_published(&place, Some(RepairSource::Projection));

    // The choice of the repair, which is not on record yet, counts for no later records.
    append_offline(&place, 2);
    cut(&place, 8);
    place.let_lapse();
    assert_other_host_ahead(&place, None, text);
    let published = repair(&place, Some(RepairSource::Projection)).unwrap().unwrap();
    assert_eq!((published.kept, published.acknowledged), (Position(8), Position(9)));
}

#[test]
fn a_repair_that_keeps_the_stream_changes_no_host_whose_records_are_all_in_it() {
    let place = with_records(5);
    let behind = place.copy();
    append(&place, 2);
    let empty = place.elsewhere();
    empty.belongs_to(head(&place).journal);
    for host in [&place, &behind, &empty] {
        assert_eq!(repair(host, Some(RepairSource::Stream)).unwrap(), None);
        assert!(!host.data().join("set-aside-1").exists());
    }
    assert_eq!(behind.records().len(), 5);
}

/// Opens the stream as a command that records a repair does, and appends `count` records.
fn append_offline(place: &Place, count: u64) {
    let data = place.data();
    let state = place.state();
    let offline = JoiningHost { is_offline: true, ..JoiningHost::new(&data, &state) };
    let servers = place.server().options();
    let opened = StreamJournal::open_as(&servers, &place.options, &offline, &mut |_| Ok(()));
    let mut journal = opened.unwrap();
    let mut script = Script::default();
    for _ in 0..count {
        journal.append(&mut [script.boot(1)]).unwrap();
    }
    journal.close(Time(0)).unwrap();
}

/// A repair has moved the projection aside, and was interrupted before its record. No pump leads
/// until the repair ends. The repair then moves no later projection, and gives up no later records
/// without the operator's choice, also if their positions are not beyond those of the records that
/// it gives up.
#[test]
fn an_interrupted_repair_admits_no_pump_and_gives_up_nothing_later() {
    for (later, kept) in [(6, 4), (3, 4), (3, 3)] {
        continue_after(later, kept);
    }
}

/// Interrupts a repair that gives up records 4 to 7. Then appends `later` records to the stream,
/// and cuts the stream after record `kept`.
fn continue_after(later: u64, kept: u64) {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    let noted = repair(&place, Some(RepairSource::Stream)).unwrap().unwrap();
    let first = place.data().join("set-aside-1");
    assert_eq!(noted.aside.as_ref(), Some(&first));
    let lost = || std::fs::read(first.join("journal.db")).unwrap();
    let before = lost();

    let refused = refused(&place);
    assert!(matches!(refused, Error::RepairPending { .. }), "{refused}");
    // A kill between the moves of the files leaves the log.
    std::fs::remove_file(first.join("journal.db-wal")).ok();
    std::fs::write(place.data().join("journal.db-wal"), "pages").unwrap();
    assert_eq!(repair(&place, None).unwrap().as_ref(), Some(&noted));
    assert_eq!(std::fs::read(first.join("journal.db-wal")).unwrap(), b"pages");

    append_offline(&place, later);
    assert_eq!(repair(&place, None).unwrap(), Some(noted));
    let end = 3 + later;
    assert_eq!((place.records().len() as u64, lost()), (end, before.clone()));

    cut(&place, kept);
    place.let_lapse();
    let text = format!("ends at record {kept} and lacks acknowledged records up to {end}");
    assert_other_host_ahead(&place, None, &text);
    let text = "End it first: `organism repair`";
    assert_other_host_ahead(&place, Some(RepairSource::Projection), text);
    let chosen = repair(&place, Some(RepairSource::Stream)).unwrap().unwrap();
    assert_eq!((chosen.kept, chosen.acknowledged), (Position(kept), Position(end.max(7))));
    let second = place.data().join("set-aside-2");
    assert_eq!(chosen.aside.as_ref(), Some(&second));
    assert!(second.join("journal.db").exists());
    assert_eq!(lost(), before);

    jetstream::recorded(&place.options, &place.state()).unwrap();
    place.open().unwrap().close(Time(0)).unwrap();
}

/// A repair was interrupted before it moved anything, and the stream has got its records back, for
/// example from another host.
#[test]
fn a_repair_that_moved_nothing_gives_up_nothing_of_a_whole_stream() {
    let place = with_records(7);
    let note = StreamRepair {
        from: RepairSource::Stream,
        kept: Position(3),
        acknowledged: Position(7),
        forked_at: None,
        aside: Some(place.data().join("set-aside-1")),
        has_moved: false,
    };
    let file = place.state().join(format!("{}.repair", place.options.stream()));
    std::fs::write(&file, serde_json::to_vec(&note).unwrap()).unwrap();
    assert!(matches!(refused(&place), Error::RepairPending { .. }));
    assert_eq!(repair(&place, None).unwrap(), None);
    assert!(!file.exists() && !place.data().join("set-aside-1").exists());
    place.open().unwrap().close(Time(0)).unwrap();
}

/// A repair that keeps the stream cannot end once the stream is gone.
#[test]
fn a_projection_is_published_into_a_new_stream_although_another_repair_has_not_ended() {
    let place = with_records(7);
    cut(&place, 3);
    place.let_lapse();
    repair(&place, Some(RepairSource::Stream)).unwrap().unwrap();
    append_offline(&place, 2);
    place.admin().delete(&place.options.stream());
    let published = repair(&place, Some(RepairSource::Projection)).unwrap().unwrap();
    assert_eq!((published.kept, published.acknowledged), (Position(0), Position(5)));
}

/// Stops the server until the lease of the open journal has lapsed.
fn lapse(place: &Place, journal: &mut jetstream::StreamJournal) {
    place.server().kill();
    let begun = Instant::now();
    until("the lease has lapsed", || {
        // An idle pump calls this again and again. No checkpoint is due.
        assert!(!journal.checkpoint_if_due(Time(0)).unwrap());
        (begun.elapsed() >= limits::LEASE_LAPSE).then_some(())
    });
    place.server().restart();
}

/// While the lease of a pump has lapsed, another pump may write records that the servers then lose.
/// If another process reports a later record, the first pump is fenced and writes nothing.
#[test]
fn a_pump_whose_lease_lapsed_writes_nothing_while_another_projection_goes_farther() {
    let place = Place::on(&Arc::new(Server::start()));
    let mut journal = place.open().unwrap();
    let mut script = Script::default();
    journal.append(&mut [script.boot(1)]).unwrap();
    // The connection of the journal may come back later than the server.
    let mut append = |journal: &mut jetstream::StreamJournal| {
        let begun = Instant::now();
        let mut record = [script.boot(1)];
        loop {
            match journal.append(&mut record) {
                Err(Error::Unavailable { .. }) if begun.elapsed() < PATIENCE => {}
                appended => return appended,
            }
        }
    };

    lapse(&place, &mut journal);
    let member = Member::answers(&place, head(&place), &[]);
    append(&mut journal).unwrap();
    assert_eq!(journal.epoch(), 1, "no other process has more, so it goes on");
    drop(member);

    lapse(&place, &mut journal);
    let last = head(&place);
    let farther = ProjectionHead { position: Position(last.position.0 + 1), ..last };
    let _member = Member::answers(&place, farther, &[]);
    let admin = place.admin();
    let messages = || admin.info(&place.options.stream())["state"]["messages"].clone();
    let before = messages();
    let refused = append(&mut journal).unwrap_err();
    assert!(matches!(refused, Error::Fenced { ours: 1, theirs: 2 }), "{refused}");
    assert_eq!(messages(), before, "nothing was written");
}
