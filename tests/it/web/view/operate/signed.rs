//! Signed decisions in the web view, with a key like the key of a browser.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use organism::thread::OperatorPublicKey;
use serde_json::Value as Json;

use super::super::{ViewServer, last_record};
use super::{CONFIG, held, hidden, hold, house_with, rows};
use crate::organism::{House, say};

const SCHEME: &str = "organism decision 1\n";

pub(super) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

/// A house whose config names the operators Ana and Ben. Ana has one key for the terminal and one
/// for the browser.
fn signing_house() -> House {
    let [ana, browser, ben] = [1, 2, 3].map(|seed| OperatorPublicKey::of(&key(seed)));
    house_with(&format!(
        "{CONFIG}\n[operators.ana]\nkey = \"{ana}\"\nbrowser_key = \"{browser}\"\n\
         [operators.ben]\nkey = \"{ben}\"\n"
    ))
}

/// Signs the only statement on a page, together with a note, as the page's script does. Returns the
/// public key and the signature.
fn sign(page: &str, key: &SigningKey, note: &str) -> (String, String) {
    let mut signatures = sign_each(page, key, note);
    assert_eq!(signatures.len(), 1, "{page}");
    (OperatorPublicKey::of(key).to_string(), signatures.remove(0))
}

/// Signs all statements on a page, each together with the note. Returns the signatures in the order
/// of the statements on the page.
pub(super) fn sign_each(page: &str, key: &SigningKey, note: &str) -> Vec<String> {
    let statements = page.split("data-statement=\"").skip(1);
    let signatures = statements.map(|rest| {
        let text = rest.split('"').next().unwrap().replace("&quot;", "\"").replace("&amp;", "&");
        let statement = text.strip_prefix(SCHEME).unwrap();
        // The fields keep their order.
        let note = Json::from(note).to_string();
        let signed =
            format!("{SCHEME}{}", statement.replace("\"note\":\"\"", &format!("\"note\":{note}")));
        URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).to_bytes())
    });
    signatures.collect()
}

fn confirm(view: &ViewServer, page: &str, signed: &(String, String), note: &str) -> (u16, String) {
    let (key, signature) = signed;
    let fields = [
        ("token", hidden(page, "token")),
        ("hash", hidden(page, "hash")),
        ("key", key),
        ("signature", signature),
        ("note", note),
    ];
    let answer = view.post("/operate/confirm", &fields);
    (answer.status, answer.body)
}

#[test]
fn a_decision_that_must_be_signed_needs_the_key_of_the_person() {
    let house = signing_house();
    let running = house.run();
    hold(&house, "one");
    let view = ViewServer::start(&house, &["--operate", "--as", "ana"]);
    let page = || view.page(&view.link("/waiting", "Approve"));
    assert!(page().contains("disabled"), "without a key, the button does nothing: {}", page());
    for part in ["organism operator enroll", "Restart the organism", "--sign FILE"] {
        assert!(page().contains(part), "{part} in {}", page());
    }

    // The script shows the warning of the frame if the browser has none of these keys.
    let keys = [1, 2].map(|seed| OperatorPublicKey::of(&key(seed)).to_string()).join(" ");
    let threads = view.page("/threads");
    let warning = threads.split("id=\"key-warning\"").nth(1).unwrap().split("</p>").next().unwrap();
    for part in [" hidden ", "data-operator=\"ana\"", &keys, "href=\"/operate/key\""] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    let reading = ViewServer::start(&house, &[]);
    assert!(!reading.page("/threads").contains("key-warning"), "a reader signs nothing");

    let unsigned = page();
    let answer = confirm(&view, &unsigned, &(String::new(), String::new()), "");
    assert_eq!(answer.0, 403, "{}", answer.1);
    for (seed, what) in [(3, "another operator"), (9, "a stranger")] {
        let page = page();
        let answer = confirm(&view, &page, &sign(&page, &key(seed), ""), "");
        assert_eq!(answer.0, 403, "{what}: {}", answer.1);
        assert!(answer.1.contains("no key of"), "{}", answer.1);
    }

    let changed = page();
    let answer = confirm(&view, &changed, &sign(&changed, &key(2), "yes"), "no");
    assert_eq!(answer.0, 409, "another note: {}", answer.1);
    let [one, other] = [page(), page()];
    let answer = confirm(&view, &other, &sign(&one, &key(2), ""), "");
    assert_eq!(answer.0, 409, "the signature of another page: {}", answer.1);
    assert_eq!(held(&house).len(), 1);

    // The view itself has refused this confirmation, so it remains valid.
    let good = unsigned;
    let (own, signature) = sign(&good, &key(2), "");
    let other_hash = [
        ("token", hidden(&good, "token")),
        ("hash", &*"0".repeat(64)),
        ("key", &own),
        ("signature", &signature),
    ];
    let answer = view.post("/operate/confirm", &other_hash);
    assert!(answer.body.contains("Another payload"), "{}", answer.body);
    let note = "\"quoted\" & <ünï>";
    let answer = confirm(&view, &good, &sign(&good, &key(2), note), note);
    assert_eq!(answer.0, 200, "{}", answer.1);
    assert_eq!(held(&house).len(), 0);
    let decided =
        rows(&house, "SELECT person, reason FROM action WHERE action = 'approve' AND accepted");
    assert_eq!(decided[0]["person"], "ana", "{decided:?}");
    let actions = super::super::text_of(&view.page("/actions"));
    assert!(actions.contains("signed, key "), "{actions}");
    let receipt = super::super::text_of(&answer.1);
    assert!(receipt.contains("Proofsigned, key "), "{receipt}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_decision_that_came_second_is_shown_with_its_operator_on_each_page() {
    let house = signing_house();
    let running = house.run();
    hold(&house, "one");
    let ana = ViewServer::start(&house, &["--operate", "--as", "ana"]);
    let ben = ViewServer::start(&house, &["--operate", "--as", "ben"]);
    let path = ana.link("/waiting", "Approve");
    let [first, second] = [&ana, &ben].map(|view| view.page(&path));
    let (status, body) = confirm(&ana, &first, &sign(&first, &key(1), ""), "");
    assert_eq!(status, 200, "{body}");
    assert_eq!(house.send_text(&say("one"), &["--key", "one"]).code, Some(0));
    let note = "ben came second";
    let (status, body) = confirm(&ben, &second, &sign(&second, &key(3), note), note);
    assert_eq!(status, 409, "{body}");

    let last = last_record(&house);
    for path in [
        "/actions".to_owned(),
        "/threads/sess-organism".to_owned(),
        format!("/threads/sess-organism?at={last}"),
    ] {
        let text = super::super::text_of(&ana.page(&path));
        let person = format!("ben (operator, as {} on ", super::own_name());
        for part in [note, &person, "approve"] {
            assert!(text.contains(part), "{path}: {part} in {text}");
        }
        assert!(!text.contains("signature unproved"), "{path}: {text}");
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_person_who_is_no_operator_opens_no_view_that_acts() {
    let house = signing_house();
    let (shown, code) = super::super::refused_start(&house, &["--operate", "--as", "root"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("neither an operator nor a client"), "{shown}");
}

#[test]
fn a_view_of_an_operator_whose_section_is_gone_says_what_to_start() {
    let house = signing_house();
    let running = house.run();
    hold(&house, "one");
    let view = ViewServer::start(&house, &["--operate", "--as", "ana"]);
    let approve = view.link("/waiting", "Approve");
    let page = view.page(&approve);
    let minutes = "counts for 5 minutes from when this page was opened";
    assert!(page.contains(minutes), "{page}");

    house.write("organism.toml", CONFIG);
    let signed = sign(&page, &key(2), "");
    let confirmed = confirm(&view, &page, &signed, "");
    for (status, body) in [(view.get(&approve).status, view.get(&approve).body), confirmed] {
        assert_eq!(status, 403, "{body}");
        let text = super::super::text_of(&body);
        assert!(text.contains("no section [operators] any more"), "{text}");
        assert!(text.contains("organism serve --operate --as"), "{text}");
    }
    assert_eq!(held(&house).len(), 1, "nothing was decided");

    let (shown, code) = super::super::refused_start(&house, &["--operate", "--as", "ana"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("the config names no [operators]"), "{shown}");
    assert_eq!(running.stop(), Some(0));
}

/// A person whose signature was refused has not proved to be an operator. So no page calls this
/// person an operator, whatever the person requested.
#[test]
fn a_person_whose_decision_was_refused_is_not_called_an_operator() {
    let house = signing_house();
    let running = house.run();
    let message = hold(&house, "one");
    let call = held(&house).pop().unwrap();
    let [hash, thread] = ["sha256", "thread"].map(|key| call[key].as_str().unwrap());
    let refused = house.organism(&["approve", &message, "--hash", hash]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    let cancelled = house.organism(&["cancel", thread]);
    assert_eq!(cancelled.code, Some(65), "{cancelled:?}");
    assert_eq!(running.stop(), Some(0));

    let view = ViewServer::start(&house, &[]);
    let unproved = format!("{} (unproved, on ", super::own_name());
    for (path, times) in [
        ("/actions".to_owned(), 2),
        (format!("/messages/{message}"), 1),
        // The entries of the decisions, and those of their refusals.
        (format!("/threads/{thread}"), 4),
    ] {
        let text = super::super::text_of(&view.page(&path));
        assert_eq!(text.matches(&unproved).count(), times, "{path}: {text}");
        assert!(!text.contains("(operator"), "{path}: {text}");
    }
}
