//! The kill switch over several partitions is sent to the pump of each partition. The page names
//! each pump that cannot be reached.

use organism::ids::ThreadId;
use organism::thread::OperatorPublicKey;
use serde_json::{Value as Json, json};

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

/// Opens a held call in the last partition. Returns the path of the page that approves it.
fn approval_in_last(house: &House) -> String {
    let mut threads = (0..).map(|n: u32| format!("sess-part{n:06}"));
    let is_in_last = |id: &String| ThreadId::parse(id).unwrap().partition(2) == 1;
    let thread = threads.find(is_in_last).unwrap();
    let sent = house.send_text(&numbered("ping", "1"), &["--new", &thread, "--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json().pop().unwrap();
    let message = held["message"].as_str().unwrap();
    let hash = held["sha256"].as_str().unwrap();
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

    let approve = approval_in_last(&house);
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
    let approve = approval_in_last(&house);

    let view = operating(&house);
    let done = view.confirm(&approve, &[]);
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
