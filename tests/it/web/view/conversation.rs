//! The pages of a thread and of a message agree with `organism thread` and `organism message`, and
//! show hostile payloads as text.

use organism::ids::MessageId;
use serde_json::Value as Json;

use super::{ViewServer, header, text_of};
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::diff::essay_house;
use crate::organism::{CONFIG, House, numbered, say, until};

/// The thread of the newest tree.
fn newest(house: &House) -> String {
    let listed = house.organism(&["threads", "--json", "--limit", "1"]).json();
    listed[0]["thread"].as_str().unwrap().to_owned()
}

/// Output of `organism thread --json`.
pub fn timeline(house: &House, thread: &str) -> Json {
    house.organism(&["thread", thread, "--json"]).json().remove(0)
}

/// Ids of the messages of a timeline, without those of its subthreads.
pub fn messages(timeline: &Json) -> Vec<String> {
    let items = timeline["items"].as_array().unwrap().iter();
    let ids = items.filter_map(|item| item["message"]["id"].as_str());
    ids.map(str::to_owned).collect()
}

/// Ids of the messages to which the entries of a page link.
pub fn linked(page: &str) -> Vec<String> {
    let links = page.split("data-entry href=\"/messages/").skip(1);
    links.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn each_thread_and_each_message_of_a_run_has_its_page() {
    let house = House::with_orders();
    let running = house.run();
    assert_eq!(house.send_text(&numbered("order", "7"), &[]).code, Some(0));
    let thread = newest(&house);
    let refused = numbered("nobody-knows", "1");
    assert_eq!(house.send_text(&refused, &["--thread", &thread]).code, Some(65));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let shown = timeline(&house, &thread);
    let page = view.page(&format!("/threads/{thread}"));
    assert_eq!(linked(&page), messages(&shown));
    assert!(view.page("/threads").contains(&format!("href=\"/threads/{thread}\"")));
    let text = text_of(&page);
    assert!(text.contains("the gate refused nobody-knows of desk: not-in-vocabulary"), "{text}");

    for id in messages(&shown) {
        let report = house.organism(&["message", &id, "--json"]).json().remove(0);
        let page = view.page(&format!("/messages/{id}"));
        let text = text_of(&page);
        let digests =
            [&report["digest"], &report["record"]["hash"], &report["record"]["head_hash"]];
        for digest in digests {
            assert!(text.contains(digest.as_str().unwrap()), "{digest} in {text}");
        }
        for message in [&report["causes"], &report["caused"]["messages"]] {
            for message in message.as_array().unwrap() {
                let id = message["id"].as_str().unwrap();
                assert!(page.contains(&format!("href=\"/messages/{id}\"")), "{id}");
            }
        }
        assert_eq!(view.get(&format!("/messages/{id}/raw")).body, report["payload"]);
        assert_eq!(view.page(&format!("/messages/{}", &id[..13])), page);
    }

    for path in ["/threads/sess-unknown1", "/threads/x%3Cy", "/messages/12", "/messages/zzzzzzzz"] {
        let missing = view.get(path);
        assert_eq!(missing.status, 404, "{path}");
        assert!(!missing.body.contains("x<y"), "{}", missing.body);
    }
    let unreadable = view.get("/threads/%ff");
    assert_eq!(unreadable.status, 400);
    assert!(unreadable.body.contains("<h1>No such page</h1>"), "{}", unreadable.body);
    let unknown = MessageId(uuid::Uuid::from_u128(7));
    assert_eq!(view.get(&format!("/messages/{unknown}")).status, 404);
    assert_eq!(view.get(&format!("/threads/{thread}?from=x")).status, 400);
}

#[test]
fn the_pages_of_a_thread_lead_to_all_its_messages() {
    let house = House::with_orders();
    let running = house.run();
    assert_eq!(house.send_text(&numbered("order", "7"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let thread = newest(&house);
    let all = messages(&timeline(&house, &thread));
    assert!(all.len() > 2, "{all:?}");

    let view = ViewServer::start(&house, &[]);
    let mut path = format!("/threads/{thread}?limit=1");
    let mut paged = Vec::new();
    for _ in 0..all.len() {
        let page = view.page(&path);
        assert_eq!(linked(&page).len(), 1, "{page}");
        paged.extend(linked(&page));
        let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { break };
        path = next.split('"').next().unwrap().replace("&amp;", "&");
    }
    assert_eq!(paged, all);
    let last = view.page(&format!("/threads/{thread}?limit=1&from=last"));
    assert_eq!(linked(&last), all[all.len() - 1..]);
    assert!(last.contains("rel=\"prev\""), "{last}");
}

/// Output of `organism thread --json` for the thread as it was after a record.
fn timeline_at(house: &House, thread: &str, at: &str) -> Json {
    house.organism(&["thread", thread, "--json", "--at", at]).json().remove(0)
}

/// The pages of an earlier state link to all its messages. The thread has subthreads, whose events
/// do not count as messages of a page.
#[test]
fn the_pages_of_an_earlier_state_lead_to_all_its_messages() {
    let house = essay_house();
    let present = timeline(&house, "sess-essay000");
    let items = present["items"].as_array().unwrap();
    let at = items[items.len() - 2]["position"].to_string();
    let all = messages(&timeline_at(&house, "sess-essay000", &at));
    assert!(all.len() > 4, "{all:?}");

    let view = ViewServer::start(&house, &[]);
    let first = format!("/threads/sess-essay000?at={at}&limit=2");
    let mut paged = Vec::new();
    let mut next = Some(first.clone());
    while let Some(path) = next {
        let page = view.page(&path);
        assert!(linked(&page).len() <= 2, "{page}");
        paged.extend(linked(&page));
        assert!(paged.len() <= all.len(), "{path}: {paged:?}");
        let rest = page.split_once("rel=\"next\" href=\"").map(|(_, rest)| rest);
        next = rest.map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    }
    assert_eq!(paged, all);

    let last = view.page(&format!("{first}&from=last"));
    assert_eq!(linked(&last), all[all.len() - 2..]);
    assert!(last.contains("rel=\"prev\""), "{last}");

    // The command refuses such a record, too.
    let later = view.get("/threads/sess-essay000?at=99999");
    assert_eq!(later.status, 404, "{}", later.body);
    assert!(text_of(&later.body).contains("Record 99999 does not exist yet; the last is "));
    let refused = house.organism(&["thread", "sess-essay000", "--at", "99999"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

/// The link beside a decision leads to the end of the thread as it was before the decision. So even
/// in a long thread, the page shows the call that the decision is about.
#[test]
fn the_thread_before_a_decision_ends_with_the_messages_before_it() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let page = view.page("/threads/sess-booked777");
    let link = page.split("href=\"/threads/sess-booked777?at=").nth(1).unwrap();
    let query = link.split('"').next().unwrap().replace("&amp;", "&");
    let at = query.split('&').next().unwrap();
    let all = messages(&timeline_at(&runs.house, "sess-booked777", at));
    assert!(all.contains(&runs.write), "{all:?}");
    assert!(all.len() > 1, "{all:?}");

    let path = format!("/threads/sess-booked777?at={query}");
    assert_eq!(linked(&view.page(&path)), all);
    let last = view.page(&format!("{path}&limit=1"));
    assert_eq!(linked(&last), all[all.len() - 1..]);
}

#[test]
fn hostile_payloads_are_shown_as_text_and_in_bounded_pages() {
    let config = CONFIG.replacen("[listeners.solo]", "[listeners.solo]\napproval = \"always\"", 1);
    let house = House::with(&config);
    let running = house.run();
    let script = "<script>alert(1)</script><style>*{}</style><img src=x onerror=alert(2)>";
    let payloads = [
        format!("<![CDATA[{script}]]>\u{202e}gpj\u{200b}\u{feff}"),
        "x".repeat(1_000_000),
        "&lt;b&gt;1&lt;/b&gt;\n".repeat(10_000),
    ];
    for payload in &payloads {
        assert_eq!(house.send_text(&say(payload), &[]).code, Some(0));
    }
    // Refused, so that the text stands in a refusal.
    assert_eq!(house.send_text(&say(&format!("{script}\u{202e}")), &[]).code, Some(65));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let listed = house.organism(&["threads", "--json"]).json();
    for tree in &listed {
        let thread = tree["thread"].as_str().unwrap();
        let mut pages = vec![view.page(&format!("/threads/{thread}"))];
        for id in messages(&timeline(&house, thread)) {
            pages.push(view.page(&format!("/messages/{id}")));
            let raw = view.get(&format!("/messages/{id}/raw"));
            assert_eq!(header(&raw, "content-type"), Some("text/plain; charset=utf-8"));
            assert!(header(&raw, "content-disposition").unwrap().starts_with("attachment;"));
        }
        for page in pages {
            assert!(page.len() < 300_000, "{} bytes", page.len());
            for hostile in ["<script>alert", "<style>", "<img", "\u{202e}", "\u{200b}", "\u{feff}"]
            {
                assert!(!page.contains(hostile), "{hostile:?}");
            }
        }
    }

    let first = listed[0]["thread"].as_str().unwrap();
    let text = text_of(&view.page(&format!("/threads/{first}")));
    assert!(text.contains("<script>alert(1)</script>"), "{text}");
    assert!(text.contains("\\u{202e}gpj\\u{200b}\\u{feff}"), "{text}");
}

#[test]
fn a_page_of_long_payloads_is_bounded_and_says_what_it_leaves_out() {
    let house = House::with_echo();
    let running = house.run();
    // Each of these characters is written as its code point, which takes eight.
    let long = say(&"\u{202e}".repeat(4_000));
    assert_eq!(house.send_text(&long, &["--new", "sess-long0001"]).code, Some(0));
    for _ in 0..40 {
        assert_eq!(house.send_text(&long, &["--thread", "sess-long0001"]).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let page = view.page("/threads/sess-long0001");
    assert!(page.len() < organism::limits::WEB_PAGE_BYTES + 200_000, "{} bytes", page.len());
    assert!(text_of(&page).contains("The page is full: "), "{}", page.len());
    assert_eq!(linked(&page), messages(&timeline(&house, "sess-long0001")));
    let last = page.rsplit("href=\"/messages/").next().unwrap().split('"').next().unwrap();
    assert!(view.page(&format!("/messages/{last}")).contains("\\u{202e}\\u{202e}"));
}

#[test]
fn a_deleted_index_is_made_again_while_the_pages_say_so() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("anything"), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let threads = view.page("/threads");
    std::fs::remove_file(house.data().join(organism::index::INDEX_DATABASE)).unwrap();
    let building = view.get("/threads");
    assert_eq!(building.status, 503, "{}", building.body);
    assert!(building.body.contains("The index is being made"), "{}", building.body);
    let again = until("the index is made", || {
        Some(view.get("/threads")).filter(|answer| answer.status == 200)
    });
    // The line with the verdict of the record changes when the proof ends.
    let table = |page: &str| page.split("<p class=\"hint verdict\"").next().unwrap().to_owned();
    assert_eq!(table(&again.body), table(&threads));
}
