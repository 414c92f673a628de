//! Retries in the web view: of one message, of all messages that a filter selects, and of a message
//! whose work could be done twice because of the retry.

use std::io::Write as _;
use std::process::Stdio;

use organism::thread::OperatorPublicKey;
use serde_json::Value as Json;

use super::super::{ViewServer, text_of};
use super::signed::{key, sign_each};
use super::{House, hidden, operating, own_name, rows};
use crate::organism::{numbered, until};

/// A config with listeners that time out until a file lets them answer. The listener `once` must
/// not do its work twice.
pub(super) const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["holder"]

[clients.till]
peers = ["once"]

[listeners.holder]
command = ["./player.pl", "holder", "let-go-{n}"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
timeout = "1s"
instances = 6

[listeners.once]
command = ["./player.pl", "once", "let-go-{n}"]
schema = "talk.xsd"
accepts = ["hold"]
replies = ["held"]
timeout = "1s"
attempts = 1
instances = 6
"#;

/// Sends a request as the client `client`, and waits until the request times out. Returns the id of
/// the request's message.
pub(super) fn time_out(house: &House, client: &str, number: &str) -> String {
    let mut command = house.command(&["send", "-", "--as", client, "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(numbered("hold", number).as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
    let sql = "SELECT id FROM message WHERE payload = 'hold' ORDER BY position DESC LIMIT 1";
    rows(house, sql)[0]["id"].as_str().unwrap().to_owned()
}

/// Lets the listeners answer the request whose number is `number`.
pub(super) fn let_go(house: &House, number: &str) {
    house.write(&format!("let-go-{number}"), "");
}

/// Number of recorded messages whose payload has the local name `payload`.
fn recorded(house: &House, payload: &str) -> u64 {
    let sql = format!("SELECT count(*) AS messages FROM message WHERE payload = '{payload}'");
    rows(house, &sql)[0]["messages"].as_u64().unwrap()
}

fn retried(house: &House) -> Vec<Json> {
    let sql = "SELECT person, reason, signed FROM action WHERE action = 'retry' AND accepted";
    rows(house, sql)
}

fn path(message: &str) -> String {
    format!("/operate/retry?message={message}")
}

#[test]
fn a_failed_message_is_retried_once_and_on_record() {
    let house = House::with(CONFIG);
    let running = house.run();
    let message = time_out(&house, "desk", "1");
    let view = operating(&house);
    let list = text_of(&view.page("/refused"));
    for part in ["Can be retried", "timeout", "desk", "holder", "hold n: 1"] {
        assert!(list.contains(part), "{part} in {list}");
    }
    let [failures, retry] = ["The newest failures", "Can be retried"].map(|part| list.rfind(part));
    assert!(failures < retry, "the newest failures come first: {list}");
    assert!(!list.contains("Nothing failed"), "no person has refused anything: {list}");
    let link = view.link("/refused", "Retry");
    assert_eq!(link, path(&message));
    assert_eq!(view.link(&format!("/messages/{message}"), "Retry"), link);

    let page = view.page(&link);
    for part in ["Retry it", "Earlier attempts", "&lt;n&gt;1&lt;/n&gt;", "same sender"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let page_text = text_of(&page);
    assert!(page_text.contains("The listener may have done this work already."), "{page_text}");
    assert!(page_text.contains("The config allows a repetition: attempts = "), "{page_text}");
    let late = view.page(&link);
    assert_eq!(recorded(&house, "hold"), 1, "a page sends nothing");

    let_go(&house, "1");
    let done = view.confirm_page(&page, &[("note", "it is up again")]);
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.body.contains("Done. It is sent again"), "{}", done.body);
    let receipt = text_of(&done.body);
    for part in ["The new message: ", "desk → holder hold", "it is up again"] {
        assert!(receipt.contains(part), "{part} in {receipt}");
    }
    until("it is answered", || (recorded(&house, "held") > 0).then_some(()));
    let again = view.confirm_page(&page, &[]);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(again.body.contains("Not confirmed"), "a confirmation counts once: {}", again.body);
    let late = view.confirm_page(&late, &[]);
    assert_eq!(late.status, 409, "{}", late.body);
    assert!(late.body.contains("was retried before"), "{}", late.body);
    let late = view.get(&format!("/messages/{message}"));
    assert!(text_of(&late.body).contains("failed"), "the old outcome stays: {}", late.body);

    assert_eq!(recorded(&house, "hold"), 2);
    let actions = retried(&house);
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert!(text_of(&view.page("/actions")).contains("it is up again"));
    until("the list knows it", || {
        view.page("/refused").contains("waits for a retry").then_some(())
    });
    for (message, status) in [("x", 400), ("0123456789abcdef0123456789abcdef", 404)] {
        assert_eq!(view.get(&path(message)).status, status, "{message}");
    }
    let reply = rows(&house, "SELECT id FROM message WHERE payload = 'held' LIMIT 1");
    let reply = view.get(&path(reply[0]["id"].as_str().unwrap()));
    assert_eq!(reply.status, 409);
    assert!(reply.body.contains("it opened no call"), "{}", reply.body);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn two_retries_at_once_send_one_message() {
    let house = House::with(CONFIG);
    let running = house.run();
    let message = time_out(&house, "desk", "1");
    let_go(&house, "1");
    let view = operating(&house);
    let pages = [view.page(&path(&message)), view.page(&path(&message))];
    let mut statuses = std::thread::scope(|scope| {
        let confirm = |page: &String| {
            let view = &view;
            let page = page.clone();
            scope.spawn(move || view.confirm_page(&page, &[]).status)
        };
        let confirming = pages.each_ref().map(confirm);
        confirming.map(|confirming| confirming.join().unwrap())
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    assert_eq!(recorded(&house, "hold"), 2, "one new message");
    assert_eq!(retried(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn work_that_may_be_done_twice_needs_a_confirmation_of_its_own() {
    let house = House::with(CONFIG);
    let running = house.run();
    let [first, second] = ["1", "2"].map(|number| time_out(&house, "till", number));
    time_out(&house, "desk", "3");
    for number in ["1", "2", "3"] {
        let_go(&house, number);
    }
    let view = operating(&house);

    let list = text_of(&view.page("/refused"));
    assert_eq!(list.matches("needs a confirmation of its own: once has").count(), 2, "{list}");
    let all = view.page(&view.link("/refused", "Retry 1 of these 3"));
    let (sent, left_out) = all.split_once("Not among them").unwrap();
    for message in [&first, &second] {
        assert!(!sent.contains(&format!("/messages/{message}")), "{sent}");
        assert!(left_out.contains(&format!("/messages/{message}")), "{left_out}");
    }
    assert!(
        text_of(left_out).contains("Left out: 2 messages whose retry needs a confirmation"),
        "{left_out}"
    );
    let done = view.confirm_page(&all, &[]);
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.body.contains("Done. It is sent again"), "{}", done.body);
    assert_eq!(recorded(&house, "hold"), 4, "the others were left out");

    let expected = view.page(&path(&first));
    let warning = "<p class=\"problem boxed\">To expect: <bdi>needs a confirmation of its own: once has \
                   `attempts = 1`, so a retry needs a confirmation</bdi>.</p>";
    assert!(expected.contains(warning), "{expected}");
    let asked = view.confirm(&path(&first), &[("note", "the printer was off")]);
    assert_eq!(asked.status, 200, "{}", asked.body);
    let warning = "The work may be done a second time.";
    for part in
        ["Nothing was sent", "`attempts = 1`", warning, "Confirm the retry", "the printer was off"]
    {
        assert!(asked.body.contains(part), "{part} in {}", asked.body);
    }
    assert!(text_of(&asked.body).contains("Handed over"), "{}", asked.body);
    assert_eq!(asked.body.matches("class=\"problem").count(), 1, "one warning: {}", asked.body);
    assert_eq!(recorded(&house, "hold"), 4, "nothing was sent");
    let done = view.confirm_page(&asked.body, &[("note", "the printer was off")]);
    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(recorded(&house, "hold"), 5);
    let again = view.confirm_page(&asked.body, &[]);
    assert_eq!(again.status, 409, "{}", again.body);
    assert_eq!(retried(&house).len(), 2);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn all_that_a_filter_selects_is_retried_and_nothing_else() {
    let house = House::with(CONFIG);
    let running = house.run();
    for number in ["1", "2"] {
        time_out(&house, "desk", number);
    }
    let refused = house.send_text("<hold xmlns=\"urn:example:talk\"/>", &[]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    for number in ["1", "2"] {
        let_go(&house, number);
    }
    let view = operating(&house);

    let filtered = "/refused?reason=timeout&listener=holder";
    let list = view.page(filtered);
    assert!(list.contains("Retry these 2"), "{list}");
    let other = text_of(&view.page("/refused?reason=not-well-formed"));
    assert!(other.contains("No request that failed or was refused matches"), "{other}");
    assert_eq!(view.get("/operate/retry-all?reason=not-well-formed").status, 409);
    // As the command, the page takes no misspelt value for one that nothing matches.
    for (query, near) in [("reason=timeuot", "timeout"), ("listener=holdr", "holder")] {
        let unknown = view.get(&format!("/refused?{query}"));
        assert_eq!(unknown.status, 400, "{query}: {}", unknown.body);
        let text = text_of(&unknown.body);
        assert!(text.contains(&format!("did you mean `{near}`?")), "{query}: {text}");
    }

    let link = view.link(filtered, "Retry these 2");
    let [page, second] = [view.page(&link), view.page(&link)];
    let risk = "Of these, 2 messages may have been done already";
    assert!(text_of(&page).contains(risk), "{page}");
    assert_eq!(list.matches("may have been done already").count(), 2, "{list}");
    let done = view.confirm_page(&page, &[("note", "all of them")]);
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(text_of(&done.body).contains("Sent again: 2."), "{}", done.body);
    assert_eq!(recorded(&house, "hold"), 4);
    let (_, receipt) = done.body.split_once("Receipt").unwrap();
    let proof = format!("Proofunsigned, operating system user {}", own_name());
    for part in [&*proof, "Noteall of them"] {
        assert!(text_of(receipt).contains(part), "{part} in {receipt}");
    }
    let records = rows(&house, "SELECT position FROM action WHERE action = 'retry' AND accepted");
    assert_eq!(records.len(), 2, "{records:?}");
    for record in records {
        let link = format!("href=\"/records/{}\"", record["position"]);
        assert!(receipt.contains(&link), "{link} in {receipt}");
    }
    let again = view.confirm_page(&second, &[]);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(!again.body.contains("Receipt"), "nothing was done: {}", again.body);
    assert!(text_of(&again.body).contains("Sent again: 0 of 2."), "{}", again.body);
    assert_eq!(recorded(&house, "hold"), 4, "each was retried once");

    // What the gate refuses again stays in the list, with its reason.
    let page = until("the list knows them", || {
        Some(view.page("/refused")).filter(|page| !page.contains("of these 3"))
    });
    assert!(page.contains("refused again unless the schema of `hold` in the config"), "{page}");
    assert!(!page.contains("/operate/retry-all"), "nothing can be sent: {page}");
    let none = view.get("/operate/retry-all");
    assert_eq!(none.status, 409, "{}", none.body);
    assert!(none.body.contains("would be refused or fail again"), "{}", none.body);
    let done = view.confirm(&view.link("/refused", "Retry"), &[]);
    assert_eq!(done.status, 409, "{}", done.body);
    assert!(done.body.contains("Refused:"), "{}", done.body);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// A retry of all messages leaves out texts that every gate refuses, and texts that are not
/// completely on record. The page states the reason.
#[test]
fn what_can_never_succeed_is_left_out_of_all_with_the_reason() {
    let house = House::with(CONFIG);
    let running = house.run();
    let message = time_out(&house, "desk", "1");
    let_go(&house, "1");
    let long = format!("<hold xmlns=\"urn:example:talk\"><m>{}</m></hold>", "x".repeat(5_000));
    for (text, rule) in [
        ("<hold", "not-well-formed"),
        ("<!DOCTYPE hold><hold xmlns=\"urn:example:talk\"/>", "forbidden"),
        (&long, "schema-invalid"),
    ] {
        let refused = house.send_text(text, &[]);
        assert_eq!(refused.code, Some(65), "{refused:?}");
        assert!(refused.err.contains(rule), "{refused:?}");
    }

    let view = operating(&house);
    let page = view.page("/refused");
    assert!(page.contains("Retry these 1"), "{page}");
    let (possible, others) = page.split_once("Cannot succeed").unwrap();
    assert!(possible.contains(&message), "{possible}");
    let others = text_of(others);
    for part in [
        "every gate refuses this text, whatever the config is: not-well-formed",
        "every gate refuses this text, whatever the config is: forbidden",
        "the record has only the first 4096 bytes",
    ] {
        assert!(others.contains(part), "{part} in {others}");
        assert!(!text_of(possible).contains(part), "{part} in {possible}");
    }
    let filtered = view.page("/refused?reason=forbidden");
    assert!(!filtered.contains("Retry these") && filtered.contains("Cannot succeed"), "{filtered}");
    assert_eq!(view.get("/operate/retry-all?reason=forbidden").status, 409);

    let listed = house.organism(&["retry"]);
    assert!(listed.out.contains(&message) && !listed.out.contains("forbidden"), "{listed:?}");
    assert_eq!(listed.err.matches(": left out: ").count(), 3, "{listed:?}");
    let all = house.organism(&["retry", "--all"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    assert_eq!(retried(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn many_messages_stand_on_several_pages_and_each_can_be_retried() {
    const MESSAGES: usize = 103;
    let house = House::with(CONFIG);
    let running = house.run();
    std::fs::create_dir(house.path("each")).unwrap();
    for number in 0..MESSAGES {
        let text = format!("<hold xmlns=\"urn:example:talk\"><m>{number}</m></hold>");
        house.write(&format!("each/{number:03}.xml"), text);
    }
    let sent = house.organism(&["send", "--as", "desk", "--each", "each"]);
    assert_eq!(sent.code, Some(65), "{sent:?}");

    let view = operating(&house);
    let shown = |page: &str| -> Vec<String> {
        let links = page.split("/operate/retry?message=").skip(1);
        links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let first = view.page("/refused");
    assert_eq!(shown(&first).len(), 100);
    let next = view.link("/refused", "Those after");
    let second = view.page(&next);
    assert_eq!(shown(&second).len(), MESSAGES - 100);
    assert!(second.contains("Those before") && !second.contains("Those after"), "{second}");
    let mut all = [shown(&first), shown(&second)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), MESSAGES, "no message stands on both pages");

    let text = text_of(&second);
    assert!(text.contains("Left out: 3 messages that would be refused or fail again"), "{text}");
    assert!(!second.contains("Retry these"), "{second}");
    for message in shown(&second) {
        let done = view.confirm(&path(&message), &[]);
        assert_eq!(done.status, 409, "the gate refuses it again: {}", done.body);
    }
    assert!(view.page("/refused?skip=999999").contains("No request that failed"));
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_read_only_view_shows_the_commands_and_retries_nothing() {
    let house = House::with(CONFIG);
    let running = house.run();
    let message = time_out(&house, "desk", "1");
    let views: [&[&str]; 3] = [&[], &["--operate"], &["--operate", "--as", "desk"]];
    for arguments in views {
        let view = ViewServer::start(&house, arguments);
        let page = view.page("/refused?reason=timeout");
        let text = text_of(&page);
        assert!(text.contains(&format!("organism retry {message}")), "{text}");
        assert!(text.contains("organism retry --all --reason=timeout"), "{text}");
        assert!(!page.contains("/operate/"), "{arguments:?}: {page}");
        for path in [path(&message), "/operate/retry-all?reason=timeout".to_owned()] {
            let answer = view.get(&path);
            assert_eq!(answer.status, 403, "{arguments:?} {path}");
            assert!(answer.body.contains("read-only"), "{}", answer.body);
        }
        assert_eq!(view.post("/operate/confirm", &[("token", "x")]).status, 403);
    }

    let view = ViewServer::start(&house, &[]);
    let hostile = view.get("/refused?reason=%3Cscript%3E%27%3B+rm&listener=--all");
    assert_eq!(hostile.status, 400, "{}", hostile.body);
    assert!(!hostile.body.contains("<script>'"), "{}", hostile.body);
    let hostile = view.page("/refused?listener=%3Cscript%3E%27%3B+rm");
    assert!(!hostile.contains("<script>'"), "{hostile}");
    assert_eq!(recorded(&house, "hold"), 1);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn each_retry_of_all_has_a_signature_of_its_own() {
    let [ana, browser] = [1, 2].map(|seed| OperatorPublicKey::of(&key(seed)));
    let house = House::with(&format!(
        "{CONFIG}\n[operators.ana]\nkey = \"{ana}\"\nbrowser_key = \"{browser}\"\n"
    ));
    let running = house.run();
    for number in ["1", "2"] {
        time_out(&house, "desk", number);
    }
    for number in ["1", "2"] {
        let_go(&house, number);
    }
    let view = ViewServer::start(&house, &["--operate", "--as", "ana"]);
    let link = view.link("/refused", "Retry these 2");
    let confirm = |page: &str, signatures: &[String]| {
        let browser = browser.to_string();
        let mut fields = vec![("token", hidden(page, "token")), ("key", &browser)];
        fields.extend(signatures.iter().map(|signature| ("signature", &**signature)));
        view.post("/operate/confirm", &fields)
    };

    let page = view.page(&link);
    let signatures = sign_each(&page, &key(2), "");
    assert_eq!(signatures.len(), 2);
    let answer = confirm(&page, &signatures[..1]);
    assert_eq!(answer.status, 403, "one is missing: {}", answer.body);
    let page = view.page(&link);
    let mut signatures = sign_each(&page, &key(2), "");
    signatures.swap(0, 1);
    let answer = confirm(&page, &signatures);
    assert_eq!(answer.status, 409, "each is of another message: {}", answer.body);
    assert_eq!(recorded(&house, "hold"), 2, "nothing was sent");

    let page = view.page(&link);
    let answer = confirm(&page, &sign_each(&page, &key(2), ""));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(text_of(&answer.body).contains("Proofsigned, key "), "{}", answer.body);
    let actions = retried(&house);
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert!(actions.iter().all(|action| action["person"] == "ana"), "{actions:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
