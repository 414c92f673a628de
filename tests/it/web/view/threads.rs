//! The list of threads agrees with `organism threads`.

use super::{ViewServer, text_of};
use crate::organism::{CONFIG, House, numbered, say, until};

/// The threads in the main table of a page, in the order of the table.
fn listed(page: &str) -> Vec<String> {
    let rows = page.split("<th scope=\"row\">").skip(1);
    rows.map(|row| text_of(&format!("<x>{}", row.split("</th>").next().unwrap()))).collect()
}

/// The threads that the command lists, newest first.
fn threads(house: &House, arguments: &[&str]) -> Vec<String> {
    let listed = house.organism(&[&["threads", "--json"], arguments].concat());
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let threads = listed.json().into_iter().map(|line| line["thread"].as_str().unwrap().to_owned());
    threads.rev().collect()
}

#[test]
fn each_filter_and_each_page_lists_what_the_command_lists() {
    let house = House::with_orders();
    let running = house.run();
    for n in 0..5 {
        assert_eq!(house.send_text(&say(&format!("number {n}")), &[]).code, Some(0));
    }
    assert_eq!(house.send_text(&numbered("order", "7"), &[]).code, Some(0));
    assert_eq!(house.send_text("<say", &[]).code, Some(65));

    let view = ViewServer::start(&house, &[]);
    let cases: [(&str, &[&str]); 8] = [
        ("", &[]),
        ("?words=number", &["number"]),
        ("?words=number+3&status=completed", &["number 3", "--status", "completed"]),
        ("?listener=back", &["--listener", "back"]),
        ("?payload=%7Burn%3Aexample%3Atalk%7Dorder", &["--payload", "{urn:example:talk}order"]),
        ("?since=1h&until=1d", &["--since", "1h", "--until", "1d"]),
        ("?errors=on", &["--errors"]),
        ("?organism=on", &["--all"]),
    ];
    for (query, arguments) in cases {
        assert_eq!(
            listed(&view.page(&format!("/threads{query}"))),
            threads(&house, arguments),
            "{query}"
        );
    }

    let all = threads(&house, &[]);
    let mut path = "/threads?limit=2".to_owned();
    let mut paged = Vec::new();
    for _ in 0..all.len() {
        let page = view.page(&path);
        assert!(listed(&page).len() <= 2);
        paged.extend(listed(&page));
        let Some((_, next)) = page.split_once("rel=\"next\" href=\"") else { break };
        path = next.split('"').next().unwrap().replace("&amp;", "&");
    }
    assert_eq!(paged, all);

    let wrong = view.get("/threads?since=yesterdayish");
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("`yesterdayish` is no time"), "{}", wrong.body);
    assert_eq!(running.stop(), Some(0));
}

/// A page refuses the values that the command refuses. If no thread matches a filter, the page
/// names the filter.
#[test]
fn a_filter_is_on_off_or_refused_and_an_empty_list_states_why() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("hello"), &["--new", "sess-hello001"]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let view = ViewServer::start(&house, &[]);
    let all = threads(&house, &[]);
    for off in ["errors=false", "needs_you=off", "organism=0", "errors="] {
        let page = view.page(&format!("/threads?{off}"));
        assert_eq!(listed(&page), all, "{off}");
        assert!(!page.contains(" checked>"), "{off}: {page}");
    }
    for on in ["organism=true", "organism=on", "organism=1"] {
        assert_eq!(
            listed(&view.page(&format!("/threads?{on}"))),
            threads(&house, &["--all"]),
            "{on}"
        );
    }

    let refused = [
        "/threads?errors=perhaps",
        "/threads?needs_you=2",
        "/threads?cost_over=-1",
        "/threads/sess-hello001?limit=0",
        "/threads/sess-hello001?limit=501",
        "/threads/sess-hello001?limit=many",
    ];
    for path in refused {
        let answer = view.get(path);
        assert_eq!(answer.status, 400, "{path}");
        let value = path.split('=').nth(1).unwrap();
        assert!(text_of(&answer.body).contains(&format!("`{value}`")), "{path}: {}", answer.body);
    }

    for filter in ["errors=on", "since=2099-01-01", "words=absent", "needs_you=on"] {
        let text = text_of(&view.page(&format!("/threads?{filter}")));
        assert!(text.contains("No thread matches these conditions."), "{filter}: {text}");
        assert!(!text.contains("starts one"), "{filter}: {text}");
    }
    let text = text_of(&view.page("/threads?before=0:1"));
    assert!(text.contains("No older threads."), "{text}");
}

#[test]
fn what_waits_for_a_person_stands_first() {
    let config = CONFIG.replacen("[listeners.solo]", "[listeners.solo]\napproval = \"always\"", 1);
    let house = House::with(&config);
    let running = house.run();
    let held = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    assert!(matches!(held.code, Some(0 | 3)), "{held:?}");
    assert_eq!(house.send_text(&say("later"), &[]).code, Some(0));

    let waiting = threads(&house, &["--needs-you"]);
    assert_eq!(waiting.len(), 1);
    let view = ViewServer::start(&house, &[]);
    let page = view.page("/threads");
    assert!(page.contains("Needs you</h2>"), "{page}");
    assert_eq!(listed(&page).first(), waiting.first());
    assert_eq!(listed(&page)[1..], threads(&house, &[]));
    assert_eq!(listed(&view.page("/threads?needs_you=on")), waiting);
    assert!(text_of(&page).contains("2, 1 held"), "{}", text_of(&page));
    assert_eq!(running.stop(), Some(0));
}

/// Every page states that no organism runs, and how many calls wait for a person. Otherwise, a
/// queue on a page would look like a slow listener.
#[test]
fn every_page_states_whether_an_organism_runs_and_how_much_waits() {
    let config = CONFIG.replacen("[listeners.solo]", "[listeners.solo]\napproval = \"always\"", 1);
    let house = House::with(&config);
    let running = house.run();
    let held = house.send_text(&numbered("ping", "1"), &["--no-wait"]);
    assert!(matches!(held.code, Some(0 | 3)), "{held:?}");
    assert_eq!(threads(&house, &["--needs-you"]).len(), 1);

    const PATHS: [&str; 4] = ["/threads", "/listeners", "/refused", "/record"];
    let view = ViewServer::start(&house, &[]);
    for path in PATHS {
        let page = view.page(path);
        assert!(page.contains("id=\"stopped\" role=\"status\" hidden"), "{path}: {page}");
    }
    let page = view.page("/listeners");
    let count = "Waiting <span class=\"count\" id=\"waiting-count\">1</span>";
    assert!(page.contains(count), "{page}");

    assert_eq!(running.stop(), Some(0));
    for path in PATHS {
        until("the view notices the stop", || {
            view.page(path).contains("id=\"stopped\" role=\"status\">").then_some(())
        });
    }
}

#[test]
fn hostile_words_are_shown_as_text() {
    let house = House::with_echo();
    let running = house.run();
    let hostile =
        "<![CDATA[<script>alert(1)</script><img src=x onerror=alert(2)>]]>\u{202e}gpj\u{200b}";
    assert_eq!(house.send_text(&say(hostile), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    for path in ["/threads", "/threads?words=%22%3E%3Cscript%3Ealert(3)%3C/script%3E%E2%80%AE"] {
        let page = view.page(path);
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
        assert!(!page.contains(['\u{202e}', '\u{200b}']) || path.contains("words"), "{page}");
    }
    let page = view.page("/threads");
    assert!(text_of(&page).contains("<script>alert(1)</script>"), "{}", text_of(&page));
    assert!(page.contains("\\u{202e}gpj\\u{200b}"), "{page}");
}
