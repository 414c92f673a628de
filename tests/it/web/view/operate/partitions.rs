//! The kill switch over several partitions is sent to the pump of each partition. The page names
//! each pump that cannot be reached.

use std::fs::File;
use std::time::{Instant, SystemTime};

use organism::ids::ThreadId;
use organism::limits;
use organism::thread::OperatorPublicKey;
use serde_json::{Value as Json, json};

use super::super::live::EventStream;
use super::super::{ViewServer, text_of};
use super::signed::{key, sign_each};
use super::{House, operating};
use crate::nats::Server;
use crate::organism::{Running, numbered, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["solo"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[journal]
store = "jetstream"
durability = "synced"
partitions = 2
"#;

const KILL: &str = "/operate/pause?verb=pause-and-cancel&target=all";
/// Link to pause everything, on the page `/operate`.
const PAUSE: &str = ">Pause all</a>";
const RESUME: &str = "/operate/pause?verb=resume&target=all";

fn house(server: &Server, more: &str) -> House {
    House::settled(&format!("{CONFIG}\n[nats]\nurl = \"{}\"\n{more}", server.address()))
}

/// A house whose calls are held for an approval.
fn held_house(server: &Server, more: &str) -> House {
    let config = CONFIG.replace("[\"pong\"]", "[\"pong\"]\napproval = \"always\"");
    House::settled(&format!("{config}\n[nats]\nurl = \"{}\"\n{more}", server.address()))
}

/// Returns an id of a thread of this partition.
fn thread_in(partition: u32) -> String {
    let mut threads = (0..).map(|n: u32| format!("sess-part{n:06}"));
    threads.find(|id| ThreadId::parse(id).unwrap().partition(2) == partition).unwrap()
}

/// Opens a held call in the last partition. Returns its id and the hash of its payload.
fn held_in_last(house: &House) -> [String; 2] {
    let thread = thread_in(1);
    let sent = house.send_text(&numbered("ping", "1"), &["--new", &thread, "--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json().pop().unwrap();
    ["message", "sha256"].map(|name| held[name].as_str().unwrap().to_owned())
}

/// Returns the path of the page that approves a held call.
fn approval_of([message, hash]: &[String; 2]) -> String {
    format!("/operate/approve?message={message}&hash={hash}")
}

fn run(house: &House, partitions: &str) -> Running {
    house.run_with(house.command(&["run", "--partitions", partitions]))
}

#[test]
fn the_kill_switch_names_the_partition_that_did_not_pause() {
    let server = Server::start();
    let house = house(&server, "");
    let running = run(&house, "0,1");
    let view = operating(&house);
    let page = view.page(KILL);
    assert!(page.contains("in 2 partitions, each of which answers for itself"), "{page}");
    let done = view.confirm_page(&page, &[("note", "stop")]);
    assert_eq!(done.status, 200, "{}", text_of(&done.body));
    let text = text_of(&done.body);
    assert_eq!(text.matches("It is paused. 0 calls are cancelled").count(), 3);
    for partition in [0, 1] {
        let mut links = done.body.split("href=\"").map(|link| link.split('"').next().unwrap());
        let own = format!("?partition={partition}");
        let link = links.find(|link| link.starts_with("/records/") && link.ends_with(&own));
        let record = view.get(link.unwrap()).body;
        assert_eq!(record.matches("The record as JSON").count(), 1, "{record}");
    }
    assert!(text_of(&view.page("/actions")).contains(" of partition 1"));
    for part in ["Receipt", "record ", "Proofunsigned", "Notestop"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let paused =
        until("all is paused", || Some(view.page("/operate")).filter(|page| !page.contains(PAUSE)));
    assert!(!paused.contains("Not paused"), "{paused}");
    let resumed = view.confirm(RESUME, &[]);
    assert_eq!(resumed.status, 200, "{}", text_of(&resumed.body));
    until("nothing is paused", || {
        view.page("/operate").contains("Nothing is paused").then_some(())
    });
    assert_eq!(running.stop(), Some(0));

    let running = run(&house, "1");
    let partly = view.confirm(KILL, &[]);
    assert_eq!(partly.status, 503, "{}", text_of(&partly.body));
    let text = text_of(&partly.body);
    for part in ["1 of 2 partitions did not pause", "0no ", "1It is paused"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let paused = until("the pause is indexed", || {
        Some(text_of(&view.page("/operate"))).filter(|page| page.contains("Not paused: "))
    });
    assert!(paused.contains("Not paused: partition 0."), "{paused}");
    assert!(view.page("/operate").contains(PAUSE), "the other partition can be paused");
    let listed = house.organism(&["threads"]);
    let note = "by operator: all, in 1 of 2 partitions";
    assert!(listed.err.contains(note), "{listed:?}");
    let again = text_of(&view.page("/operate/pause?verb=pause&target=all"));
    assert!(again.contains("Paused in part"), "{again}");
    let paused = house.organism(&["pause", "all", "--json"]);
    let paused: Json = serde_json::from_str(&paused.out).unwrap();
    assert_eq!(paused["partitions"][0]["result"], "failed", "the terminal names it, too: {paused}");
    assert_eq!(paused["partitions"][1]["result"], "unchanged", "{paused}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn each_partition_gets_a_signature_of_its_own() {
    let server = Server::start();
    let [ana, browser] = [1, 2].map(|seed| OperatorPublicKey::of(&key(seed)));
    let operators = format!("[operators.ana]\nkey = \"{ana}\"\nbrowser_key = \"{browser}\"\n");
    let house = held_house(&server, &operators);
    let running = run(&house, "0,1");
    let view = ViewServer::start(&house, &["--operate", "--as", "ana"]);
    let browser = browser.to_string();
    let confirm_page = |page: &str| {
        let signatures = sign_each(page, &key(2), "");
        let mut fields = vec![("key", &*browser)];
        fields.extend(signatures.iter().map(|signature| ("signature", &**signature)));
        (signatures.len(), view.confirm_page(page, &fields))
    };
    let confirm = |path: &str| {
        let page = view.page(path);
        let (signatures, answer) = confirm_page(&page);
        (page, signatures, answer)
    };

    let (_, signatures, done) = confirm(KILL);
    assert_eq!((signatures, done.status), (2, 200), "{}", text_of(&done.body));
    let (_, _, resumed) = confirm(RESUME);
    assert_eq!(resumed.status, 200, "{}", text_of(&resumed.body));

    let approve = approval_of(&held_in_last(&house));
    let [first, second] = [view.page(&approve), view.page(&approve)];
    for (page, status) in [(first, 200), (second, 409)] {
        let (signatures, answer) = confirm_page(&page);
        assert_eq!((signatures, answer.status), (1, status), "{}", text_of(&answer.body));
    }
    assert_eq!(running.stop(), Some(0));
    let query = "SELECT person, signed, accepted FROM action WHERE action = 'approve' \
                 ORDER BY position";
    let rows = house.organism(&["sql", query, "--json", "--partition", "1"]).json();
    let decided = |accepted: u32| json!({ "person": "ana", "signed": 1, "accepted": accepted });
    assert_eq!(rows, [decided(1), decided(0)]);

    let running = run(&house, "1");
    let (page, signatures, partly) = confirm(KILL);
    assert!(page.contains("do not answer, and are not part of this: 0."), "{page}");
    assert_eq!((signatures, partly.status), (1, 503), "{}", text_of(&partly.body));
    assert!(text_of(&partly.body).contains("1 of 2 partitions did not pause"), "{}", partly.body);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_call_is_decided_while_a_lower_partition_has_no_pump() {
    let server = Server::start();
    let house = held_house(&server, "");
    // Afterwards, this host has a journal of each partition.
    assert_eq!(run(&house, "0,1").stop(), Some(0));
    let running = run(&house, "1");
    let held = held_in_last(&house);

    // The command does not wait for the pump that is missing, because another one has the call.
    let begun = Instant::now();
    let wrong = house.organism(&["approve", &held[0], "--hash", &"0".repeat(64)]);
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    assert!(begun.elapsed() < limits::PARTITION_TIMEOUT, "{:?}", begun.elapsed());

    let view = operating(&house);
    let done = view.confirm(&approval_of(&held), &[]);
    assert_eq!(done.status, 200, "{}", text_of(&done.body));
    assert!(text_of(&done.body).contains("Done."), "{}", done.body);

    // Without an organism here, pumps on other hosts may go on.
    assert_eq!(running.stop(), Some(0));
    let page = until("the view notices the end", || {
        let page = view.page("/waiting");
        (!page.contains("id=\"stopped\" role=\"status\" hidden")).then_some(page)
    });
    let text = text_of(&page);
    assert!(text.contains("the pages show what this host has received up to 20"), "{text}");
    assert!(!text.contains("nothing moves"), "{text}");
    let missing = text_of(&view.get("/threads/sess-unknown1").body);
    assert!(missing.contains("Organisms on other hosts may have recorded it"), "{missing}");
}

/// A host that does not follow a partition, or has no copy of it, denies nothing that may be there.
#[test]
fn a_host_denies_nothing_that_may_be_in_records_that_it_lacks() {
    let server = Server::start();
    let house = held_house(&server, "");
    assert_eq!(run(&house, "0,1").stop(), Some(0));
    let running = run(&house, "1");
    let [elsewhere, here] = [0, 1].map(thread_in);

    let refused = |args: &[&str], code: i32, text: &str| {
        let output = house.organism(args);
        assert_eq!(output.code, Some(code), "{args:?}: {output:?}");
        assert!(output.err.contains(text), "{args:?}: {output:?}");
    };
    let old = "no organism on this host follows its stream, and the copy here ends with record ";
    let message = "0192f4a8-7c3d-7a5e-8f21-1d2c3b4a5e6f";
    refused(&["thread", &elsewhere], 69, old);
    refused(&["search", "--thread", &elsewhere], 69, old);
    refused(&["thread", &here], 2, "is on record; ");
    refused(&["message", message], 69, "among the later records of a copy that no organism");
    let own = house.organism(&["thread", "sess-organism"]);
    for partition in ["partition 0\n", "partition 1\n"] {
        assert!(own.out.contains(partition), "{own:?}");
    }
    refused(
        &["threads"],
        0,
        "later records may be missing from this answer: they end with record ",
    );

    let view = operating(&house);
    let denied = |path: &str, status: u16, text: &str| {
        let answer = view.get(path);
        assert_eq!(answer.status, status, "{path}: {}", text_of(&answer.body));
        assert!(text_of(&answer.body).contains(text), "{path}: {}", text_of(&answer.body));
    };
    let message = format!("/messages/{message}");
    for missing in [format!("/threads/{elsewhere}"), message.clone()] {
        denied(
            &missing,
            503,
            "Organisms on other hosts may have recorded it: this host has a copy",
        );
    }
    denied(&format!("/threads/{here}"), 404, "is on record.");
    denied("/threads", 200, "No organism on this host follows partition 0: the pages show");
    denied("/waiting", 200, "as far as this host knows: it lacks records.");
    denied(&format!("/waiting?call={}", &message[10..]), 200, "does not know whether this call");
    denied(KILL, 200, "All calls at which a listener is at work will be cancelled.");
    denied("/operate", 200, "How much work is open is not known");

    // Each partition has a thread of the organism itself.
    let listed = view.page("/threads?organism=on");
    for partition in [0, 1] {
        let own = format!("/threads/sess-organism?partition={partition}");
        assert!(listed.contains(&format!("href=\"{own}\"")), "{own}: {listed}");
        let page = view.page(&own);
        assert!(page.contains(&format!("\"{own}\" aria-current=\"page\"")), "{own}: {page}");
        assert!(page.contains(&format!("/tree?partition={partition}")), "{own}: {page}");
    }
    let starts = |partition: u32| {
        let page = view.page(&format!("/threads/sess-organism?partition={partition}"));
        page.matches(">boot<").count()
    };
    // The index may not have the second start of partition 1 yet.
    until("both starts of partition 1", || (starts(1) == 2).then_some(()));
    assert_eq!(starts(0), 1);
    assert_eq!(view.get("/threads/sess-organism?partition=7").status, 404);

    std::fs::remove_dir_all(house.data().join("p0")).unwrap();
    refused(&["sql", "select 1", "--partition", "0"], 69, "partition 0: this host ");
    until("the view notices the missing copy", || {
        let page = text_of(&view.page("/threads"));
        page.contains("This host has no copy of partition 0: the pages lack its").then_some(())
    });
    denied(&message, 503, "in a partition of which this host has no copy");
    denied("/config?partition=0", 503, "This host has no copy of partition 0");
    assert_eq!(running.stop(), Some(0));
}

/// The same applies to a host whose organism runs, but cannot keep its copies up to date.
#[test]
fn a_host_that_is_cut_off_or_frozen_denies_nothing_and_its_live_pages_state_it() {
    let server = Server::start();
    let house = house(&server, "");
    let running = run(&house, "0,1");
    let thread = thread_in(1);
    let path = format!("/threads/{thread}");
    let view = ViewServer::start(&house, &[]);
    let mut events = EventStream::open(&view, "/live/threads");
    let mut live = |unfollowed: Json| {
        events.find("state", |state| state["running"] == true && state["unfollowed"] == unfollowed);
    };
    let asked = || {
        let output = house.organism(&["thread", &thread]);
        (output.code, view.get(&path).status)
    };
    let [known, unknown] = [(Some(2), 404), (Some(69), 503)];

    live(Json::Null);
    view.page("/threads");
    assert_eq!(asked(), known);
    server.signal("-STOP");
    live(json!([0, 1]));
    assert_eq!(asked(), unknown, "no server is reached");
    let strip = text_of(&view.page("/threads"));
    assert!(strip.contains("follows each of the partitions 0, 1: the pages show its"), "{strip}");
    let listed = house.organism(&["threads"]);
    assert!(listed.err.contains("later records may be missing from this answer"), "{listed:?}");

    server.signal("-CONT");
    live(Json::Null);
    assert_eq!(asked(), known, "the servers are reached again");
    running.signal("-STOP");
    for partition in ["p0", "p1"] {
        let note = File::options().write(true).open(house.data().join(partition).join("followed"));
        note.unwrap().set_modified(SystemTime::now() - limits::COPY_AGE_MAX).unwrap();
    }
    live(json!([0, 1]));
    assert_eq!(asked(), unknown, "the process is frozen");
    running.signal("-CONT");
    live(Json::Null);
    assert_eq!(running.stop(), Some(0));
}
