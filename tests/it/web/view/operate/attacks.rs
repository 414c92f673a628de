//! Attacks on the actions of the web view. No attack decides anything.

use super::super::{ViewServer, header};
use super::{PEOPLE, ask, held, hidden, hold, house, operating, own_name};

#[test]
fn a_view_without_a_named_operator_changes_nothing() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let own = own_name();
    let views: [&[&str]; 4] =
        [&[], &["--operate"], &["--operate", "--as", "desk"], &["--as", &own]];
    for arguments in views {
        let view = ViewServer::start(&house, arguments);
        let waiting = view.page("/waiting");
        assert!(!waiting.contains("/operate"), "{arguments:?}: {waiting}");
        for path in ["/operate".to_owned(), format!("/operate/approve?message={message}")] {
            let answer = view.get(&path);
            assert_eq!(answer.status, 403, "{arguments:?} {path}");
            assert!(answer.body.contains("read-only"), "{}", answer.body);
        }
        let answer = view.post("/operate/confirm", &[("token", "x")]);
        assert_eq!(answer.status, 403, "{arguments:?}");
    }
    assert_eq!(held(&house).len(), 1);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn no_forged_confirmation_decides() {
    let house = house();
    let running = house.run();
    let message = hold(&house, "one");
    let view = operating(&house);
    let other = operating(&house);
    let path = view.link("/waiting", "Approve");
    let page = view.page(&path);
    let token = hidden(&page, "token").to_owned();
    let hash = hidden(&page, "hash").to_owned();
    let foreign = other.page(&path);

    let fields = [("token", &*token), ("hash", &*hash)];
    let rebound = format!("rebound.example:{}", view.at.port());
    let same = ("Sec-Fetch-Site", "same-origin");
    let attacks: [(&[(&str, &str)], u16); 7] = [
        (&[("Cookie", ""), same, ("Origin", "null")], 401),
        (&[], 403),
        (&[("Origin", "null")], 403),
        (&[("Origin", "http://rebound.example")], 403),
        (&[("Origin", "null"), ("Sec-Fetch-Site", "cross-site")], 403),
        (&[("Origin", "null"), ("Sec-Fetch-Site", "same-site")], 403),
        (&[("Host", &rebound), same, ("Origin", "null")], 403),
    ];
    for (headers, status) in attacks {
        let answer = view.post_with("/operate/confirm", headers, &fields);
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.body);
    }

    let forged: [&[(&str, &str)]; 5] = [
        &[],
        &[("hash", &hash)],
        &[("token", ""), ("hash", &hash)],
        &[("token", &view.token), ("hash", &hash)],
        &[("token", hidden(&foreign, "token")), ("hash", &hash)],
    ];
    for fields in forged {
        let answer = view.post("/operate/confirm", fields);
        assert_eq!(answer.status, 409, "{fields:?}: {}", answer.body);
    }
    let opened = view.get_with("/operate/confirm", &[same]);
    assert_eq!(opened.status, 405);
    assert!(opened.body.contains("nothing was done now"), "{}", opened.body);
    assert_eq!(view.get_with("/session", &[same]).status, 303);

    let query = format!("/operate/approve?message={message}&hash={}", "0".repeat(64));
    assert_eq!(view.get(&query).status, 409, "a changed payload");
    let fields = [("token", &*token), ("hash", &*"0".repeat(64))];
    let answer = view.post("/operate/confirm", &fields);
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("Another payload"), "{}", answer.body);
    assert_eq!(held(&house).len(), 1, "nothing decided");

    let log = std::fs::read_to_string(house.path("view.log")).unwrap();
    assert!(!log.contains(&token) && !log.contains(&view.token), "{log}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_page_of_an_action_can_be_neither_framed_nor_kept() {
    let house = house();
    let running = house.run();
    hold(&house, "one");
    let view = operating(&house);
    let path = view.link("/waiting", "Approve");
    let shown = view.get(&path);
    let done = view.confirm_page(&shown.body, &[]);
    for answer in [&shown, &done, &view.get("/operate.js"), &view.get("/operate/key")] {
        assert_eq!(answer.status, 200, "{}", answer.body);
        let policy = header(answer, "content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"));
        let expected = [
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ];
        for (name, value) in expected {
            assert_eq!(header(answer, name), Some(value), "{name}");
        }
    }
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_form_that_is_too_long_is_refused() {
    let house = house();
    let running = house.run();
    let view = operating(&house);
    let long = "x".repeat(5 << 20);
    let answer = view.post("/operate/answer", &[("xml", &long)]);
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn what_was_entered_is_not_lost_if_nothing_can_be_done_with_it() {
    let house = house();
    let running = house.run();
    hold(&house, "one");
    let view = operating(&house);
    let page = view.page(&view.link("/waiting", "Refuse"));
    let long = format!("begin {}", "r".repeat(1_000));
    let refused = view.confirm_page(&page, &[("reason", &long), ("note", "a word")]);
    assert_eq!(refused.status, 422, "{}", refused.body);
    for part in ["The reason is too long: the text has 1006 characters", "at most 1000", &long] {
        assert!(refused.body.contains(part), "{part} in {}", refused.body);
    }
    assert_eq!(held(&house).len(), 1, "nothing was recorded");
    let done = view.confirm_page(&page, &[("reason", "no"), ("note", "a word")]);
    assert_eq!(done.status, 200, "the same confirmation: {}", done.body);
    let again = view.confirm_page(&page, &[("note", "once more")]);
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(again.body.contains("once more"), "{}", again.body);

    let question = ask(&house, "who");
    let answer = |text: &str| format!("<pass xmlns=\"{PEOPLE}\">{text}</pass>");
    let check = |text: &str| {
        let xml = answer(text);
        view.post("/operate/answer", &[("message", &question), ("xml", &xml)])
    };
    let pages = ["first", "second"].map(check);
    let [first, second] = pages.map(|page| view.confirm_page(&page.body, &[("note", "mine")]));
    assert_eq!(first.status, 200, "{}", first.body);
    for late in [second, check("second")] {
        assert_eq!(late.status, 409, "{}", late.body);
        assert!(late.body.contains("Nothing waits here"), "{}", late.body);
        assert!(late.body.contains("&gt;second&lt;/pass&gt;"), "{}", late.body);
    }

    house.write("organism.toml", "no config");
    for (path, field) in [("/operate/answer", "xml"), ("/operate/fork", "payload")] {
        let failed = view.post(path, &[("message", &question), (field, "a long text")]);
        assert_eq!(failed.status, 503, "{path}: {}", failed.body);
        assert!(failed.body.contains("a long text"), "{path}: {}", failed.body);
    }
    assert_eq!(running.stop(), Some(0));
}
