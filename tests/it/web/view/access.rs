//! Access to the web view: each attack is tried, and none reveals a part of the record.

use std::path::Path;

use super::{ViewServer, header, refused_start};
use crate::organism::{House, say};

const SECRET_WORD: &str = "heliotrope";

/// A journal with one thread that contains [`SECRET_WORD`], and its view.
fn served() -> (House, ViewServer) {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say(SECRET_WORD), &[]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let view = ViewServer::start(&house, &[]);
    assert!(view.page("/threads").contains(SECRET_WORD));
    (house, view)
}

#[test]
fn nothing_is_shown_without_the_token_and_its_cookie() {
    let (_house, view) = served();
    let token = view.token.clone();
    let cookie = format!("organism-view-{}", view.at.port());
    let attempts = [
        ("/threads", vec![("Cookie", String::new())]),
        ("/threads", vec![("Cookie", format!("{cookie}={token}"))]),
        ("/threads", vec![("Cookie", format!("{cookie}="))]),
        ("/threads", vec![("Cookie", String::new()), ("Authorization", format!("Bearer {token}"))]),
        (&*format!("/threads?token={token}"), vec![("Cookie", String::new())]),
        ("/missing", vec![("Cookie", String::new())]),
    ];
    for (path, headers) in attempts {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = view.get_with(path, &headers);
        assert_eq!(answer.status, 401, "{path} {headers:?}");
        assert!(!answer.body.contains(SECRET_WORD) && !answer.body.contains("talk"));
        assert!(answer.body.contains("name=\"token\""), "a field takes the token");
        assert_eq!(header(&answer, "set-cookie"), None);
    }

    for wrong in ["", "x", &token[1..], &format!("{token}x")] {
        let answer = view.open_session(wrong);
        assert_eq!(answer.status, 403, "{wrong}");
        assert_eq!(header(&answer, "set-cookie"), None);
    }

    let opened = view.open_session(&token);
    assert_eq!((opened.status, header(&opened, "location")), (303, Some("/threads")));
    let cookie = header(&opened, "set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
}

#[test]
fn a_rebound_name_a_strange_origin_and_another_site_get_no_page() {
    let (_house, view) = served();
    let port = view.at.port();
    let rebound = format!("rebound.example:{port}");
    let attacks: [&[(&str, &str)]; 8] = [
        &[("Host", &rebound)],
        &[("Host", "192.0.2.1")],
        &[("Host", "")],
        &[("Origin", "http://rebound.example")],
        &[("Origin", "http://localhost:1")],
        &[("Origin", "null")],
        &[("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")],
        &[("Sec-Fetch-Site", "same-site")],
    ];
    for attack in attacks {
        for path in ["/threads", "/view.css", "/missing"] {
            let answer = view.get_with(path, attack);
            assert_eq!(answer.status, 403, "{path} {attack:?}");
            assert!(!answer.body.contains(SECRET_WORD));
        }
    }

    let localhost = format!("localhost:{port}");
    let own = format!("http://{localhost}");
    let granted = view.get_with("/threads", &[("Host", &localhost), ("Origin", &own)]);
    assert_eq!(granted.status, 200);

    // A form of another site that knows the token opens no session in the browser of a person.
    let host = view.at.to_string();
    let form = format!("token={}", view.token);
    let forged: [&[(&str, &str)]; 4] = [
        &[],
        &[("Origin", "null")],
        &[("Origin", "http://rebound.example")],
        &[("Origin", "null"), ("Sec-Fetch-Site", "cross-site")],
    ];
    for headers in forged {
        let headers: Vec<_> = headers.iter().copied().chain([("Host", &*host)]).collect();
        let answer = view.request("POST", "/session", &headers, &form);
        assert_eq!(answer.status, 403, "{headers:?}");
        assert_eq!(header(&answer, "set-cookie"), None);
    }
    let body = "x".repeat(1 << 20);
    let headers = [("Host", &*host), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(view.request("POST", "/session", &headers, &body).status, 413);
}

#[test]
fn no_response_can_be_framed_kept_or_guessed() {
    let (_house, view) = served();
    let host = view.at.to_string();
    let rebound = [("Host", "rebound.example")];
    let responses = [
        view.get("/threads"),
        view.get("/"),
        view.get("/missing"),
        view.get("/view.css"),
        view.get("/view.js"),
        view.get_with("/threads", &[("Cookie", "")]),
        view.get_with("/threads", &rebound),
        view.open_session("wrong"),
        view.open_session(&view.token),
        view.request("DELETE", "/threads", &[("Host", &host)], ""),
    ];
    for response in responses {
        let policy = header(&response, "content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        let expected = [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
        ];
        for (name, value) in expected {
            assert_eq!(header(&response, name), Some(value), "{name}: {}", response.head);
        }
        assert_eq!(header(&response, "access-control-allow-origin"), None);
        assert!(!(response.head + &response.body).contains(&view.token));
    }
}

/// Adds the content of every file beneath a directory to `found`.
fn files(directory: &Path, found: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push(std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn the_token_stands_on_the_terminal_alone() {
    let (house, view) = served();
    // Even with the most detailed log, after each kind of request.
    view.open_session("wrong");
    view.get(&format!("/threads?token={}", "y".repeat(20)));

    let mut texts = Vec::new();
    files(&house.path("."), &mut texts);
    for name in ["cmdline", "environ"] {
        texts.extend(std::fs::read(format!("/proc/{}/{name}", view.pid.trim())));
    }
    assert!(texts.len() > 5);
    for text in texts {
        let found = text.windows(view.token.len()).any(|part| part == view.token.as_bytes());
        assert!(!found, "{}", String::from_utf8_lossy(&text));
    }

    let piped = house.organism(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((piped.code, &*piped.out), (Some(2), ""));
    assert!(piped.err.contains("standard output is no terminal"), "{}", piped.err);
}

#[test]
fn the_view_listens_on_loopback_alone_and_for_a_person_of_the_config() {
    let (house, view) = served();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7717"] {
        let (shown, code) = refused_start(&house, &["--listen", address]);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains("or listen on 127.0.0.1"), "{shown}");
    }
    let (shown, code) = refused_start(&house, &["--listen", &view.at.to_string()]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("--listen names another address"), "{shown}");

    let (shown, code) = refused_start(&house, &["--as", "nobody"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("`nobody` is neither an operator nor a client"), "{shown}");

    assert!(view.page("/threads").contains("viewer, read-only"));
    drop(view);
    let named = ViewServer::start(&house, &["--as", "desk"]);
    assert!(named.page("/threads").contains("desk (client)"));
}
