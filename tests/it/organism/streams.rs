//! On JetStream, a project is identified by the id of its journal. A stream that another project
//! began is refused until an operator has adopted it, and hosts of one organism may have different
//! paths.

use std::fs;

use organism::service::{NatsTransport, ServiceRequest, ServiceResponse, response_queue};

use super::{CONFIG, House, Running, numbered, until};
use crate::nats::{Server, Settings, shared};

fn stream(what: &str) -> String {
    format!("streams-{what}-{}", std::process::id())
}

/// A project that does not know the journal of this stream.
fn project(server: &Server, stream: &str, partitions: u32) -> House {
    let address = server.address();
    let project = House::settled(&format!(
        "{CONFIG}\n[journal]\nstore = \"jetstream\"\nstream = \"{stream}\"\n\
         durability = \"synced\"\npartitions = {partitions}\n\n[nats]\nurl = \"{address}\"\n"
    ));
    fs::remove_file(project.stream_note(stream)).unwrap();
    project
}

fn ask(house: &House, number: &str) -> String {
    let sent = house.send_text(&numbered("ping", number), &["--key", number]);
    assert_eq!(sent.code, Some(0), "{sent:?}\n{}", house.log());
    sent.out
}

/// Asserts that `send` and `run` refuse to start the organism, print no result, and name both
/// projects in the error message.
#[track_caller]
fn is_refused(house: &House, stream: &str, journal: &str) {
    house.write("ping.xml", numbered("ping", "9"));
    for command in [&["send", "ping.xml", "--as", "desk", "--key", "1"][..], &["run"]] {
        let refused = house.organism(command);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert_eq!(refused.out, "", "{refused:?}");
        let state = house.state().display().to_string();
        for text in [stream, journal, &state, "organism adopt"] {
            assert!(refused.err.contains(text), "{text}: {refused:?}");
        }
    }
}

/// The recorded payloads of `operator-action`.
fn actions(house: &House) -> Vec<String> {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let actions = exported.into_iter().filter(|line| {
        line["name"].as_str().is_some_and(|name| name.ends_with("}operator-action"))
    });
    actions.map(|line| line["payload"].as_str().unwrap().to_owned()).collect()
}

fn known(house: &House, stream: &str) -> String {
    fs::read_to_string(house.stream_note(stream)).unwrap().trim().to_owned()
}

#[test]
fn a_stream_that_another_project_began_is_refused_until_it_is_adopted() {
    let stream = stream("one");
    let (one, other) = (project(shared(), &stream, 1), project(shared(), &stream, 1));
    let first = ask(&one, "1");
    let journal = one.reader().about().unwrap().journal.to_string();
    assert_eq!(known(&one, &stream), journal);
    is_refused(&other, &stream, &journal);

    let running = one.run();
    is_refused(&other, &stream, &journal);
    let held = other.organism(&["adopt"]);
    assert_eq!(held.code, Some(75), "{held:?}");
    is_refused(&other, &stream, &journal);
    assert_eq!(running.stop(), Some(0));

    other.adopt();
    assert_eq!(ask(&other, "1"), first, "it is the same organism now");
    ask(&other, "2");
    let [action] = &actions(&other)[..] else { panic!("one action") };
    assert!(action.contains("action=\"adopt\""), "{action}");
    let detail = format!("<detail name=\"stream-journal\">{journal}</detail>");
    assert!(action.contains(&detail), "{action}");

    other.adopt();
    assert_eq!(actions(&other).len(), 1, "there is nothing more to adopt");
    ask(&one, "3");
    one.verified();
}

#[test]
fn a_project_of_several_partitions_is_not_answered_by_another_one_of_its_stream() {
    let (server, stream) = (Server::start(), stream("four"));
    let (one, other) = (project(&server, &stream, 4), project(&server, &stream, 4));
    let running = one.run();
    let first = ask(&one, "1");
    let journal = known(&one, &stream);
    is_refused(&other, &stream, &journal);
    let held = other.organism(&["adopt"]);
    assert_eq!(held.code, Some(75), "{held:?}");
    assert_eq!(one.recorded("ping"), 1, "nothing of the other one reached it");
    assert_eq!(running.stop(), Some(0));

    other.adopt();
    let running = other.run();
    assert_eq!(ask(&other, "1"), first, "it is the same organism now");
    assert_eq!(running.stop(), Some(0));
    let [action] = &actions(&other)[..] else { panic!("one action") };
    assert!(action.contains(&journal), "{action}");
}

#[test]
fn a_host_that_was_given_the_id_of_the_journal_takes_part_at_its_first_start() {
    let (server, stream) = (Server::start(), stream("given"));
    let (one, other) = (project(&server, &stream, 4), project(&server, &stream, 4));
    let first = one.run();
    let answer = ask(&one, "1");
    fs::copy(one.stream_note(&stream), other.stream_note(&stream)).unwrap();
    let second = other.run();
    assert_eq!(ask(&other, "1"), answer);
    assert_eq!(first.stop(), Some(0));
    ask(&other, "2");
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn of_two_projects_that_begin_one_stream_at_once_one_is_refused() {
    let (server, stream) = (Server::start(), stream("race"));
    let projects = [project(&server, &stream, 4), project(&server, &stream, 4)];
    let mut runs = projects.each_ref().map(|project| {
        let log = fs::File::create(project.path("log")).unwrap();
        let child = project.command(&["run"]).stderr(log).spawn().unwrap();
        Running { child }
    });
    let loser = until("one of them ends", || {
        let mut ended = runs.iter_mut().enumerate();
        ended.find_map(|(at, run)| Some((at, run.child.try_wait().unwrap()?)))
    });
    let (loser, status) = loser;
    assert_eq!(status.code(), Some(78), "{}", projects[loser].log());
    let winner = &projects[1 - loser];
    until("the other one is ready", || winner.log().contains("is ready").then_some(()));
    ask(winner, "1");
    is_refused(&projects[loser], &stream, &known(winner, &stream));
    let [one, two] = runs;
    let running = if loser == 0 { two } else { one };
    assert_eq!(running.stop(), Some(0));
}

/// Subjects contain only the name of an organism, so both organisms receive each request, and each
/// announcement of a process.
#[tokio::test(flavor = "multi_thread")]
async fn an_organism_answers_no_request_of_another_one_of_its_name() {
    let server = Server::start();
    let (one, two) = (project(&server, "ONE", 2), project(&server, "TWO", 2));
    let running = two.run();
    let log = fs::File::create(one.path("log")).unwrap();
    let child = one.command(&["run"]).stderr(log).spawn().unwrap();
    let mut refused = Running { child };
    let code = until("it ends, or is ready", || match refused.child.try_wait().unwrap() {
        Some(status) => Some(status.code()),
        None => one.log().contains("is ready").then_some(None),
    });
    assert_eq!(code, Some(78), "{}", one.log());
    for part in ["of the name `talk`", "stream TWO", "in ONE", "another `name`", "No journal"] {
        assert!(one.log().contains(part), "{part}: {}", one.log());
    }
    assert_eq!(running.stop(), Some(0));

    // Both have a journal from here on, so neither is refused.
    let first = one.run();
    let second = two.run();
    until("each has warned of the other", || {
        let has_warned = |house: &House| house.log().contains("its processes, are ignored here");
        (has_warned(&one) && has_warned(&two)).then_some(())
    });
    let guest = project(&server, "ONE", 2);
    fs::copy(one.stream_note("ONE"), guest.stream_note("ONE")).unwrap();
    for number in ["1", "2", "3", "4"] {
        ask(&guest, number);
    }
    assert_eq!((one.recorded("ping"), two.recorded("ping")), (4, 0));
    assert!(two.log().contains("the sender of a refused request"), "{}", two.log());
    assert_eq!(first.stop(), Some(0));

    let transport = NatsTransport::connect(&server.options(), "talk", "ONE").await.unwrap();
    let (responses, mut received) = response_queue();
    let request = ServiceRequest::JournalId { partition: 0 };
    transport.send(0, &request, &responses).await.unwrap();
    let Some(ServiceResponse::Unavailable(why)) = received.try_recv() else {
        panic!("no pump of the organism runs");
    };
    assert!(why.detail.contains("the stream TWO"), "{why:?}");
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn a_start_without_jetstream_logs_the_reason_once() {
    let server = Server::start_with(Settings { jetstream: None, more: "" });
    let refused = project(&server, &stream("none"), 1).organism(&["run"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert_eq!(refused.err.matches("JetStream is unavailable").count(), 1, "{refused:?}");
}

/// A host that followed a stream in an earlier version continues, although the id of the journal is
/// stored neither in the state directory of the host nor in the bucket of the stream.
#[test]
fn a_host_that_followed_a_stream_before_ids_were_stored_continues() {
    let (server, stream) = (Server::start(), stream("before"));
    let (one, other) = (project(&server, &stream, 4), project(&server, &stream, 4));
    let running = one.run();
    let first = ask(&one, "1");
    assert_eq!(running.stop(), Some(0));
    let journal = known(&one, &stream);
    fs::remove_file(one.stream_note(&stream)).unwrap();
    let entry = format!("$KV.{stream}-pumps.partitions");
    server.admin().publish(&entry, "{\"partitions\":4}");

    is_refused(&other, &stream, &journal);
    let running = one.run();
    assert_eq!(ask(&one, "1"), first);
    assert_eq!(known(&one, &stream), journal);
    assert_eq!(running.stop(), Some(0));
}
