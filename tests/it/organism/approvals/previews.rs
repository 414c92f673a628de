//! Previews of held calls. A preview is shown beside the payload of the call, and each kind of
//! approval names the preview for which it is given.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value as Json;

use super::super::try_threads::trial;
use super::super::{House, say, talk_reply, until};
use super::{OnTerminal, QUESTION, hash, held};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo"]

[listeners.echo]
command = ["./previewer.py"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"
previews = true
preview_timeout = "1h"
"#;

/// Program of a listener whose preview shows the file `base`. The listener refuses a call if that
/// file has changed since the preview. If a file `dies` exists, the next request for a preview
/// kills the process. If a pipe `waits` exists, a preview waits until the pipe is closed. If a file
/// `wrong` exists, the listener answers a request for a preview with a reply.
const LISTENER: &str = r#"#!/usr/bin/env python3
import hashlib, os, re
CORE = 'xmlns="https://xml-pipeline.org/ns/core/v1"'
data = b""
while True:
    while b"\0" not in data:
        more = os.read(0, 65536)
        if not more:
            os._exit(0)
        data += more
    frame, data = data.split(b"\0", 1)
    head = frame.decode().split(">", 1)[0]
    shown = f"<preview {CORE}>{open('base').read()}</preview>"
    approved = re.search('approved_preview="([0-9a-f]+)"', head)
    if not head.startswith(("<e:delivery", "<e:preview")):
        continue
    if head.startswith("<e:preview"):
        open("asked", "a").write("x")
        if os.path.exists("dies"):
            os._exit(1)
        if os.path.exists("waits"):
            open("waits").read()
        answer = '<said xmlns="urn:example:talk"/>' if os.path.exists("wrong") else shown
    elif approved and approved[1] != hashlib.sha256(shown.encode()).hexdigest():
        answer = f"<stale-preview {CORE}>base has changed</stale-preview>"
    else:
        text = re.search("<text>(.*)</text>|>([^<>]*)</say>", frame.decode())
        answer = f'<said xmlns="urn:example:talk">{text[1] or text[2]}</said>'
    os.write(1, answer.encode() + b"\0")
"#;

fn house(base: &str) -> House {
    let house = House::with(CONFIG);
    write_previewer(&house, base);
    house
}

/// Writes `previewer.py`, the program of a listener whose preview shows `base`.
pub fn write_previewer(house: &House, base: &str) {
    house.write("previewer.py", LISTENER);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.path("previewer.py"), executable).unwrap();
    house.write("base", base);
}

/// Makes the next preview wait until the pipe `waits` is closed.
fn stop_previews(house: &House) {
    let made = std::process::Command::new("mkfifo").arg(house.path("waits")).status().unwrap();
    assert!(made.success());
}

fn recorded(call: &Json) -> &str {
    call["preview"]["recorded"]["sha256"].as_str().unwrap_or_else(|| panic!("{call}"))
}

/// Submits a payload with `text`, which is also the key of the submission. The submission starts a
/// call, which is held. Returns the held call. With the key, a test can wait for the result later.
fn hold_with_key(house: &House, text: &str) -> Json {
    let sent = house.send_text(&say(text), &["--no-wait", "--key", text]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    held(house).pop().unwrap()
}

#[test]
fn a_preview_is_shown_and_the_approval_names_it() {
    let house = house("remove \u{202e}a\n  sha256   0000");
    let running = house.run();
    let call = hold_with_key(&house, "hello");
    let id = call["message"].as_str().unwrap();
    let digest = hash(&say("hello"));

    let shown = house.organism(&["approvals"]);
    assert!(shown.out.contains("as echo claims:\n  │ remove \\u{202e}a\n  │   sha256   0000\n"));
    assert!(shown.out.contains(&say("hello")), "the bytes, too: {shown:?}");
    let command = format!("--hash {} --preview {}", &digest[..16], &recorded(&call)[..16]);
    assert!(shown.out.contains(&command), "{shown:?}");

    let unseen = house.organism(&["approve", id]);
    assert!(unseen.err.contains("pass --hash and --preview, as"), "{unseen:?}");
    let unseen = house.organism(&["approve", id, "--hash", &digest]);
    assert_eq!(unseen.code, Some(65), "{unseen:?}");
    assert!(unseen.err.contains("wrong-hash: it has a preview, which the approval must name"));
    let other = hash("other");
    let wrong = house.organism(&["approve", id, "--hash", &digest, "--preview", &other]);
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    let short = house.organism(&["approve", id, "--hash", &digest, "--preview", "12"]);
    assert_eq!(short.code, Some(2), "{short:?}");
    assert!(short.err.contains("`12` is too short for --preview"), "{short:?}");

    let preview = &recorded(&call)[..8];
    let approved = house.organism(&["approve", id, "--hash", &digest, "--preview", preview]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!((result.code, &*result.out), (Some(0), &*talk_reply("hello")), "{result:?}");
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let is_preview = |line: &&Json| line["name"] == "{https://xml-pipeline.org/ns/core/v1}preview";
    let notes: Vec<_> = exported.iter().filter(is_preview).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert_eq!((&notes[0]["kind"], &notes[0]["from"]), (&"note".into(), &"echo".into()));
    assert_eq!(running.stop(), Some(0));
    house.verified();

    // A trial makes no preview, because it has the result of the approved call from the record.
    let tried = trial(&house, &["organism.toml", "--threads", "all"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.err.contains("1 unchanged"), "{tried:?}");
}

#[test]
fn a_call_whose_base_has_changed_since_its_preview_ends_as_stale_preview() {
    let house = house("first");
    let running = house.run();
    let call = hold_with_key(&house, "hello");
    house.write("base", "second");
    let id = call["message"].as_str().unwrap();
    let digest = hash(&say("hello"));
    let approve = ["approve", id, "--hash", &digest, "--preview", recorded(&call)];
    let approved = house.organism(&approve);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("code=\"stale-preview\" retry_allowed=\"true\""), "{result:?}");

    // The answer to the next request for a preview is refused.
    house.write("wrong", "");
    let call = hold_with_key(&house, "other");
    let reason = call["preview"]["missing"]["reason"].to_string();
    assert!(reason.contains("the listener's answer was refused"), "{call}");
    let id = call["message"].as_str().unwrap();
    let approved = house.organism(&["approve", id, "--hash", &hash(&say("other"))]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let result = house.send_text(&say("other"), &["--key", "other"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();

    // A stale preview and a refused one are no differences, as a preview is none.
    let tried = trial(&house, &["organism.toml", "--threads", "all"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.err.contains("2 unchanged"), "{tried:?}");
}

#[test]
fn a_listener_that_dies_at_a_preview_leaves_the_bytes_to_decide_on() {
    let house = house("first");
    house.write("dies", "");
    let running = house.run();
    let call = hold_with_key(&house, "hello");
    std::fs::remove_file(house.path("dies")).unwrap();
    assert_eq!(call["preview"]["missing"]["reason"], "it ended without an answer", "{call}");
    let shown = house.organism(&["approvals"]);
    assert!(shown.out.contains("preview  none came: it ended without an answer"), "{shown:?}");
    assert!(!shown.out.contains("--preview"), "{shown:?}");

    let id = call["message"].as_str().unwrap();
    let approved = house.organism(&["approve", id, "--hash", &hash(&say("hello"))]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!((result.code, &*result.out), (Some(0), &*talk_reply("hello")), "{result:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_preview_that_a_kill_interrupts_is_requested_again() {
    let house = house("first");
    stop_previews(&house);
    let mut running = house.run();
    let sent = house.send_text(&say("hello"), &["--no-wait", "--key", "hello"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let asked = || std::fs::read_to_string(house.path("asked")).unwrap_or_default();
    until("the preview is requested", || (asked() == "x").then_some(()));
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let shown = house.organism(&["approvals"]);
    assert!(shown.out.contains("preview  requested, and not here yet"), "{shown:?}");
    std::fs::remove_file(house.path("waits")).unwrap();
    let running = house.run();
    let call = held(&house).pop().unwrap();
    assert_eq!(call["preview"]["recorded"]["text"], "first", "{call}");
    assert_eq!(asked(), "xx");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_decision_about_all_calls_of_a_thread_names_their_previews() {
    let house = house("first");
    let running = house.run();
    hold_with_key(&house, "hello");
    let thread = held(&house)[0]["thread"].as_str().unwrap().to_owned();
    let list = || house.organism(&["approvals", "--all-from", &thread, "--json"]).json();
    let all = list().last().unwrap()["sha256"].as_str().unwrap().to_owned();
    let call = list()[0].clone();
    let id = call["message"].as_str().unwrap();
    let without = hash(&format!("{id} {}\n", hash(&say("hello"))));
    assert_ne!(all, without);

    let refused = house.organism(&["approve", "--all-from", &thread, "--hash", &without]);
    assert_eq!(refused.code, Some(65), "{refused:?}");
    let approved = house.organism(&["approve", "--all-from", &thread, "--hash", &all]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!((result.code, &*result.out), (Some(0), &*talk_reply("hello")), "{result:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_watching_person_sees_a_call_together_with_its_preview() {
    let house = house("remove a");
    stop_previews(&house);
    let running = house.run();
    let sent = house.send_text(&say("hello"), &["--no-wait", "--key", "hello"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let mut watch = OnTerminal::start(&house, &["approvals", "--watch"]);
    // Opened for writing once the listener reads it, and closed at once.
    std::fs::write(house.path("waits"), "").unwrap();
    watch.answer(QUESTION, 1, "approve");
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!((result.code, &*result.out), (Some(0), &*talk_reply("hello")), "{result:?}");
    assert_eq!(running.stop(), Some(0));
    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("│ remove a"), "{printed}");
    house.verified();
}
