//! Calls that wait for a person. Every view names their state, each link leads to its own call, and
//! an open page shows decisions that are made elsewhere.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use organism::index::INDEX_LOCK;
use serde_json::json;

use super::super::browser::{PYTHON, chromium, repository};
use super::super::text_of;
use super::{House, approved, ask, held, hold, house, operating};
use crate::nats::is_streamed;
use crate::organism::{numbered, order_config, say, until};

/// The thread of a message.
fn thread_of(house: &House, message: &str) -> String {
    let asked = house.organism(&["message", message, "--json"]).json().remove(0);
    asked["thread"].as_str().unwrap().to_owned()
}

#[test]
fn a_call_that_waits_for_a_person_says_so_in_every_view_of_its_thread() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let question = ask(&house, "left or right?");
    let view = operating(&house);
    for (message, name, state) in
        [(&message, "say", "waits for an approval"), (&question, "question", "waits for an answer")]
    {
        let thread = thread_of(&house, message);
        let path = format!("/threads/{thread}");
        let conversation = view.page(&path);
        // The page's script loads entries with this attribute again.
        let mark = format!("<span class=\"mark\" data-open>{state}</span>");
        assert!(conversation.contains(&mark), "{conversation}");
        let conversation = text_of(&conversation);
        let sequence = text_of(&view.page(&format!("{path}?view=sequence")));
        assert!(sequence.contains(&format!("{name}, {state}")), "{sequence}");
        let page = text_of(&view.page(&format!("/messages/{message}")));
        assert!(page.contains(state), "{page}");
        let shown = house.organism(&["thread", &thread]).out;
        assert!(shown.contains(&format!("{name}  {state}")), "{shown}");
        let report = house.organism(&["message", message]).out;
        assert!(report.contains(state), "{report}");
        for text in [&conversation, &sequence, &page, &shown, &report] {
            assert!(!text.contains("in flight"), "{text}");
        }
    }

    let thread = thread_of(&house, &message);
    let timeline = house.organism(&["thread", &thread, "--json"]).out;
    assert!(timeline.contains("\"hold\":\"approval\""), "{timeline}");
    approved(&house, &message);
    until("it is handled", || {
        let page = text_of(&view.page(&format!("/threads/{thread}?view=sequence")));
        (!page.contains("waits for an approval")).then_some(())
    });
    let timeline = house.organism(&["thread", &thread, "--json"]).out;
    assert!(!timeline.contains("\"hold\":"), "{timeline}");
    assert_eq!(running.stop(), Some(0));
}

/// The head of a thread has boxes for the first ten calls that wait, and counts all of them.
#[test]
fn a_thread_with_many_waiting_calls_names_the_number_of_all() {
    let house = house();
    let running = house.run();
    let thread = "sess-waiting012";
    for number in 1..=12 {
        let at = if number == 1 { "--new" } else { "--thread" };
        let key = number.to_string();
        let sent = house.send_text(&say(&key), &["--no-wait", "--key", &key, at, thread]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
    }
    let view = operating(&house);
    for path in ["", "/tree", "?view=sequence"] {
        let page = view.page(&format!("/threads/{thread}{path}"));
        let head = text_of(page.split("class=\"thread-head\"").nth(1).unwrap());
        assert!(head.contains("waits for an approval, 12 calls"), "{path}: {head}");
        assert!(!head.contains("10 calls"), "{path}: {head}");
        assert_eq!(page.matches("aria-label=\"Waits for a person\"").count(), 10, "{page}");
        let boxes = page.split("id=\"needs-you\"").nth(1).unwrap().split("<dl").next().unwrap();
        assert!(text_of(boxes).contains("2 more calls wait"), "{boxes}");
        assert!(boxes.contains("href=\"/waiting\""), "{boxes}");
    }
    let compared = text_of(&view.page(&format!("/compare?a={thread}&b={thread}")));
    assert!(compared.contains("waits for an approval, 12 calls"), "{compared}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_page_of_one_call_says_when_it_waits_no_longer() {
    let house = house();
    let running = house.run();
    let first = hold(&house, "one");
    let second = hold(&house, "two");
    let view = operating(&house);
    let path = view.link(&format!("/messages/{second}"), "Decide");
    let page = view.page(&path);
    assert!(page.contains(&format!("id=\"call-{second}\"")), "{page}");
    assert!(!page.contains(&first), "{page}");

    let done = view.confirm(&view.link(&path, "Approve"), &[]);
    assert_eq!(done.status, 200, "{}", done.body);
    // Until then, the answer may be that the index lacks records.
    let waits_no_longer = |path: &str| {
        let page = view.get(path);
        (page.status == 200 && page.body.contains("waits no longer")).then_some(())
    };
    until("the index knows it", || waits_no_longer(&path));
    let unknown = "/waiting?call=01234567-89ab-cdef-0123-456789abcdef";
    until("an unknown call does not wait", || waits_no_longer(unknown));
    assert_eq!(view.get("/waiting?call=%3Cb%3E").status, 400);
    assert_eq!(held(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
}

/// While the index lacks records, the call may have been decided already.
#[test]
fn a_page_of_one_call_states_that_the_index_lacks_records() {
    let house = house();
    let running = house.run();
    let call = hold(&house, "one");
    let view = operating(&house);
    let path = format!("/waiting?call={call}");
    until("the index has the call", || (view.get(&path).status == 200).then_some(()));
    assert_eq!(running.stop(), Some(0));
    let note = "later records are missing here";
    until("the index is complete", || (!view.page(&path).contains(note)).then_some(()));

    let lock = File::options().append(true).open(house.data().join(INDEX_LOCK)).unwrap();
    lock.lock().unwrap();
    let running = house.run();
    assert_eq!(house.send_text(&say("two"), &["--no-wait"]).code, Some(3));
    assert!(view.page(&path).contains(note));

    drop(lock);
    until("the index is complete", || (!view.page(&path).contains(note)).then_some(()));
    assert_eq!(running.stop(), Some(0));
}

/// A person who decides sees which request led to the call, on each page that shows the call.
#[test]
fn a_call_that_waits_is_shown_with_the_request_that_led_to_it() {
    let holds = "accepts = [\"work\"]";
    let config = order_config(1).replace(holds, &format!("approval = \"always\"\n{holds}"));
    let house = House::with(&config);
    let running = house.run();
    let sent = house.send_text(&numbered("order", "7"), &["--no-wait", "--new", "sess-request1"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("the call is held", || held(&house).pop());
    let (request, _) = house.messages("order").remove(0);
    let view = operating(&house);

    let approve = until("the call is indexed", || {
        let page = view.page("/waiting");
        page.contains("/operate/approve").then(|| view.link("/waiting", "Approve"))
    });
    let refuse = view.link("/waiting", "Refuse");
    for path in ["/waiting", &approve, &refuse] {
        let page = view.page(path);
        let shown = page.split("<details class=\"started-by\" open>").nth(1).unwrap();
        let shown = shown.split("</details>").next().unwrap();
        assert!(shown.contains(&format!("href=\"/messages/{request}\"")), "{path}: {shown}");
        let text = text_of(&format!("<{shown}"));
        assert!(text.contains("Started by desk: request order to front"), "{path}: {text}");
        assert!(text.contains("n: 7"), "{path}: {text}");
    }

    // The run of an edited fork begins with the action of the operator. First, the edited request
    // itself waits, and then the call to which it led.
    let (work, _) = house.messages("work").remove(0);
    house.write("edit.xml", numbered("order", "8"));
    let forked = house.organism(&["fork", &request.to_string(), "--edit", "edit.xml", "--no-wait"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    let (action, _) = house.messages("operator-action").pop().unwrap();
    for (to, is_request) in [("front", true), ("back", false)] {
        let edited = until("a call of the fork is held", || {
            let mut held = held(&house).into_iter().filter(|call| call["to"] == to);
            held.find(|call| call["message"] != work.to_string())
        });
        let edited = edited["message"].as_str().unwrap();
        let path = format!("/waiting?call={edited}");
        until("it is indexed", || view.page(&path).contains("id=\"call-").then_some(()));
        for path in [&path, &view.link(&path, "Approve")] {
            let page = view.page(path);
            let link =
                format!("Started by <a href=\"/messages/{action}\">an operator's action</a>.");
            assert!(page.contains(&link), "{path}: {page}");
            let has_request = text_of(&page).contains("Request of desk: order to front");
            assert_eq!(has_request, !is_request, "{path}: {page}");
        }
        if is_request {
            approved(&house, edited);
        }
    }
    assert_eq!(running.stop(), Some(0));
}

/// Issue 18: an open page marks the calls on which another person has decided since the page was
/// opened.
#[test]
fn a_browser_marks_calls_that_were_decided_elsewhere() {
    if is_streamed() {
        return;
    }
    // The test that opens every page reports a Chromium that is not found.
    let Some(chromium) = chromium() else { return };
    let house = house();
    let running = house.run();
    let messages = ["one", "two", "three"].map(|text| hold(&house, text));
    let view = operating(&house);

    let mut walk = Command::new(repository().join(PYTHON));
    walk.arg(repository().join("tests/data/web/waiting.py")).stdin(Stdio::piped());
    let mut walk = walk.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut orders = walk.stdin.take().unwrap();
    let [_, call, _] = &messages;
    let thread = thread_of(&house, call);
    let address = view.address();
    let order = json!({"chromium": chromium, "address": address, "call": call, "thread": thread});
    writeln!(orders, "{order}").unwrap();

    // The script names what is to happen, and continues when it has.
    let mut steps = Vec::new();
    for line in BufReader::new(walk.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match &*line {
            "approve" => approved(&house, &messages[1]),
            "hold" => drop(hold(&house, "four")),
            _ => {}
        }
        steps.push(line);
        // The script may have ended with a fault.
        writeln!(orders, "done").ok();
    }
    let mut errors = String::new();
    walk.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(walk.wait().unwrap().success(), "{steps:#?}\n{errors}");
    assert_eq!(steps, ["approve", "hold"]);
    assert_eq!(running.stop(), Some(0));
}
