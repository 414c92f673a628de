//! The page of the search agrees with `organism search`, and the page of the calls that wait agrees
//! with `organism approvals` and `organism answer`.

use super::{ViewServer, text_of};
use crate::organism::{CONFIG, House, numbered, say, until};

/// Ids of the messages to which a page links, in the order of the page.
fn linked(page: &str) -> Vec<String> {
    let links = page.split("data-entry href=\"/messages/").skip(1);
    links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn a_search_finds_what_the_command_finds() {
    let house = House::new();
    let running = house.run();
    for n in 0..3 {
        assert_eq!(house.send_text(&say(&format!("number {n}")), &[]).code, Some(0));
    }
    assert_eq!(house.send_text(&numbered("nobody-knows", "1"), &[]).code, Some(65));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let cases: [(&str, &[&str]); 5] = [
        ("words=number", &["number"]),
        ("words=numb*&kind=reply", &["numb*", "--kind", "reply"]),
        ("words=%22number+2%22", &["\"number 2\""]),
        ("from=echo&disposition=recorded", &["--from", "echo", "--disposition", "recorded"]),
        ("words=absent", &["absent"]),
    ];
    for (query, arguments) in cases {
        let found = house.organism(&[&["search", "--json"], arguments].concat()).json();
        let found = found.iter().rev().map(|line| line["id"].as_str().unwrap().to_owned());
        let page = view.page(&format!("/search?{query}"));
        assert_eq!(linked(&page), found.collect::<Vec<_>>(), "{query}");
    }

    let text = text_of(&view.page("/search?kind=refusal"));
    assert!(text.contains("the gate refused nobody-knows of desk: not-in-vocabulary"), "{text}");
    assert!(text.contains("1 of 1, newest first"), "{text}");
    assert!(text_of(&view.page("/search?words=absent")).contains("Nothing matches."));
    assert!(view.page("/search").contains("name=\"words\""));
    for wrong in ["since=yesterdayish", "thread=%3Cx", "words=%2B%2B", "rule=schema-invald"] {
        let answer = view.get(&format!("/search?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(!answer.body.contains("<x`"), "{}", answer.body);
    }
    let missing = view.get("/search?thread=sess-nonesuch");
    assert_eq!(missing.status, 404, "{}", missing.body);
    assert!(text_of(&missing.body).contains("No thread `sess-nonesuch` is on record."));
    let number = linked(&view.page("/search?words=number&kind=reply"));
    let asked = house.organism(&["message", &number[0], "--json"]).json().remove(0);
    let thread = asked["thread"].as_str().unwrap();
    let empty = view.page(&format!("/search?words=absent&thread={thread}"));
    assert!(text_of(&empty).contains("Nothing matches."), "{empty}");
}

#[test]
fn calls_that_wait_are_shown_with_their_bytes_and_their_hash() {
    let config = CONFIG.replacen("[listeners.solo]", "[listeners.solo]\napproval = \"always\"", 1);
    let house = House::with(&config);
    let running = house.run();
    let view = ViewServer::start(&house, &[]);
    assert!(text_of(&view.page("/waiting")).contains("No call waits"));
    for path in ["/waiting", "/refused"] {
        let wrong = view.get(&format!("{path}?skip=-1"));
        assert_eq!(wrong.status, 400, "{path}: {}", wrong.body);
        assert!(text_of(&wrong.body).contains("`-1` is no number of rows"), "{}", wrong.body);
    }

    for n in ["1", "2"] {
        let held = house.send_text(&numbered("ping", n), &["--no-wait"]);
        assert!(matches!(held.code, Some(0 | 3)), "{held:?}");
    }
    let held = house.organism(&["approvals", "--json"]).json();
    assert_eq!(held.len(), 2);
    let ids: Vec<_> = held.iter().map(|call| call["message"].as_str().unwrap()).collect();
    // A page that waited too long for a busy index states this.
    let page = until("the page lists both calls", || {
        Some(view.page("/waiting")).filter(|page| linked(page) == ids)
    });
    let text = text_of(&page);
    for call in &held {
        for key in ["payload", "sha256", "why"] {
            let shown = call[key].as_str().unwrap();
            assert!(text.contains(shown), "{key}: {shown} in {text}");
        }
    }

    let id = held[0]["message"].as_str().unwrap();
    assert_eq!(house.organism(&["refuse", id]).code, Some(0));
    assert_eq!(linked(&view.page("/waiting")), ids[1..]);
    assert_eq!(running.stop(), Some(0));
}
