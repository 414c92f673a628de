//! The conversation of a fork: the history of its source is one line, and the place at which the
//! fork begins is marked.

use super::conversation::{linked, messages, timeline};
use super::{ViewServer, last_record, text_of};
use crate::organism::{CONFIG, House, numbered};

/// A house with a thread of two orders, and with a fork of the thread. The fork begins after the
/// result of the first order and continues with an order of its own.
fn forked_house() -> (House, String) {
    let house = House::with_orders();
    let running = house.run();
    for number in ["1", "2"] {
        let place = if number == "1" { "--new" } else { "--thread" };
        let sent = house.send_text(&numbered("order", number), &[place, "sess-source01"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let (result, _) = house.messages("done").remove(0);
    let forked = house.organism(&["fork", &result.to_string(), "--json"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();
    let sent = house.send_text(&numbered("order", "2"), &["--thread", &fork]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    (house, fork)
}

#[test]
fn a_fork_folds_its_history_and_marks_its_beginning() {
    let (house, fork) = forked_house();
    let view = ViewServer::start(&house, &[]);
    let path = format!("/threads/{fork}");
    let page = view.page(&path);
    let all = messages(&timeline(&house, &fork));
    assert_eq!(linked(&page), all);

    let events = page.split("id=\"live-events\"").nth(1).unwrap();
    let (head, rest) = events.split_once("The fork begins here").unwrap();
    let text = text_of(&format!("<{head}"));
    assert!(text.contains("History: 4 messages of sess-source01, up to record "), "{text}");
    assert!(text.contains("2 messages with which the fork was recorded"), "{text}");
    assert!(!head.contains("<details open"), "{head}");
    let own = organism::organism::operator::this_user().login.unwrap();
    let begins = text_of(&format!("<b>The fork begins here{rest}"));
    assert!(begins.contains(&format!("by {own} (operator")), "{begins}");
    assert!(begins.contains("desk → front order"), "{begins}");
    assert!(!begins.contains("core → core"), "{begins}");

    // The link leads to the source as it was, without its later order.
    let source = head.split("href=\"/threads/sess-source01").nth(1).unwrap();
    let source = format!("/threads/sess-source01{}", source.split('"').next().unwrap());
    let history = view.page(&source);
    assert_eq!(linked(&history), messages(&timeline(&house, "sess-source01"))[..4]);

    // A later page has no head, and a source has none at all.
    let last = view.page(&format!("{path}?from=last&limit=1"));
    assert!(!last.contains("The fork begins here"), "{last}");
    assert!(!view.page("/threads/sess-source01").contains("History:"));
    let last = last_record(&house);
    let past = text_of(&view.page(&format!("{path}?at={last}&from=3&limit=1")));
    assert!(past.contains("Fork of") && past.contains("As it was after record"), "{past}");
    for name in ["sequence", "timeline"] {
        let page = view.page(&format!("{path}?view={name}"));
        assert!(text_of(&page).contains("Fork of"), "{page}");
    }
}

/// The record of a fork contains the decision of a person and a copy of the client's request. The
/// page shows the request as the client wrote it, even if the request names a person in the same
/// form as a report of the core.
#[test]
fn a_fork_at_a_request_shows_the_person_whom_the_request_names() {
    let named = CONFIG.replacen("schema = \"talk.xsd\"", "schema = \"named.xsd\"", 1);
    let house = House::with(&named);
    house.write(
        "named.xsd",
        "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\" xmlns=\"urn:example:named\" \
         targetNamespace=\"urn:example:named\" elementFormDefault=\"qualified\">\
         <xs:complexType name=\"named\"><xs:sequence><xs:element name=\"by\" type=\"xs:string\"/>\
         </xs:sequence></xs:complexType><xs:element name=\"say\" type=\"named\"/>\
         <xs:element name=\"said\" type=\"named\"/></xs:schema>",
    );
    let running = house.run();
    let request = "<say xmlns=\"urn:example:named\"><by>Bob</by></say>";
    let sent = house.send_text(request, &["--new", "sess-named0001"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let (message, _) = house.messages("say").remove(0);
    let forked = house.organism(&["fork", &message.to_string(), "--json"]);
    assert_eq!(forked.code, Some(0), "{forked:?}");
    let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let page = view.page(&format!("/threads/{fork}"));
    let own = organism::organism::operator::this_user().login.unwrap();
    let text = text_of(&page);
    assert_eq!(text.matches("by: Bob").count(), 2, "the request and its result: {text}");
    assert!(text.contains(&format!("by: {own} (operator")), "the report of the fork: {text}");
}
