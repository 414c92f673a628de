//! The page that compares two threads agrees with `organism diff`, and shows hostile payloads as
//! text.

use super::{ViewServer, text_of};
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::diff::{essay_house, run_with};
use crate::organism::{House, say};

#[test]
fn a_changed_prompt_stands_before_what_the_model_answered() {
    let house = essay_house();
    let (before, after) = ("hard to please", "easy to please");
    run_with(&house, "organism.toml", before, after);
    let view = ViewServer::start(&house, &[]);

    let choice = view.page("/compare?a=sess-essay000");
    let link = "href=\"/compare?a=sess-essay000&amp;b=sess-essay001\"";
    assert!(choice.contains(link), "{choice}");
    let thread = view.page("/threads/sess-essay000");
    assert!(thread.contains("href=\"/compare?a=sess-essay000\""), "{thread}");

    let page = view.page("/compare?a=sess-essay000&b=sess-essay001");
    assert!(text_of(&page).contains(" in common, 1 difference"), "{page}");
    let (_, first) = page.split_once("First difference").unwrap();
    let (first, rest) = first.split_once("</section>").unwrap();
    assert!(text_of(first).contains("prompt of turn 1 of critic"), "{first}");
    assert!(first.contains(&format!("<del>-You are an editor who is {before}.</del>")), "{first}");
    assert!(first.contains(&format!("<ins>+You are an editor who is {after}.</ins>")), "{first}");
    let rest = text_of(rest);
    for part in ["Equal results", "Cost", "Tokens", "Time", "Turns"] {
        assert!(rest.contains(part), "{part} in {rest}");
    }

    let equal = view.page("/compare?a=sess-essay000&b=sess-essay000");
    assert!(text_of(&equal).contains("The events of both threads are equal: "));
    assert!(!equal.contains("First difference"));
}

#[test]
fn a_thread_that_has_not_ended_has_no_verdict() {
    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    let text = text_of(&view.page("/compare?a=sess-booked777&b=sess-waiting777"));
    assert!(text.contains("B has not ended: the results cannot be compared yet"), "{text}");
    assert!(!text.contains("results are different"), "{text}");
    assert!(text.contains("waiting for a person"), "{text}");
    let diff = runs.house.organism(&["diff", "sess-booked777", "sess-waiting777"]);
    assert!(diff.err.contains("sess-waiting777 has not ended"), "{diff:?}");
}

#[test]
fn hostile_payloads_are_compared_as_text_and_in_bounded_pages() {
    let house = House::with_echo();
    let running = house.run();
    let script = "<script>alert(1)</script>\u{202e}";
    let texts = [
        ("sess-hostile1", format!("<![CDATA[{script}]]>{}", "x".repeat(500_000))),
        ("sess-hostile2", format!("<![CDATA[{script}]]>y")),
        ("sess-siblings", "&lt;b&gt;1&lt;/b&gt;\n".repeat(5_000)),
    ];
    for (thread, text) in &texts {
        assert_eq!(house.send_text(&say(text), &["--new", thread]).code, Some(0));
    }
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    for (left, right) in
        [("hostile1", "hostile2"), ("hostile2", "siblings"), ("siblings", "hostile1")]
    {
        let page = view.page(&format!("/compare?a=sess-{left}&b=sess-{right}"));
        assert!(page.contains("First difference"), "{page}");
        assert!(page.len() < 300_000, "{} bytes", page.len());
        for hostile in ["<script>alert", "\u{202e}"] {
            assert!(!page.contains(hostile), "{hostile:?}");
        }
    }

    for (query, status) in [
        ("a=sess-hostile1&b=sess-unknown1", 404),
        ("a=%3Cb%3E&b=sess-hostile1", 400),
        ("a=sess-hostile1&b=x", 400),
    ] {
        let refused = view.get(&format!("/compare?{query}"));
        assert_eq!(refused.status, status, "{query}: {}", refused.body);
        assert!(!refused.body.contains("<b>"), "{}", refused.body);
    }
}
