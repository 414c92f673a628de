//! Previews of a listener on NATS, with the keys that `nats-config` writes.

use std::os::fd::AsFd as _;

use futures_util::StreamExt as _;
use serde_json::Value as Json;

use super::super::{House, say, talk_reply, until};
use super::{CONFIG, Guarded, guarded_of};
use crate::bus::harness::{repository, script};
use crate::bus::remote::{Kit, python};

const KEYS: &str = "approval = \"always\"\npreviews = true\npreview_timeout = \"1h\"\n";

/// Starts a listener `echo` whose previews show the content of the file `base`. Returns after the
/// listener has announced itself.
fn previewer(guarded: &Guarded) -> Kit {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut here = runtime.block_on(async {
        let spy = guarded.spy().await;
        let here = spy.subscribe("organism.talk.re.echo.here").await.unwrap();
        spy.flush().await.unwrap();
        (spy, here)
    });

    let mut command = python();
    command.arg(script("previewer.py")).env("PYTHONPATH", repository().join("listeners/python"));
    let key = guarded.seed("listener-echo");
    let base = guarded.house.path("base");
    let address = guarded.server.address();
    let variables = [
        ("ORGANISM_BUS_URL", address.as_str()),
        ("ORGANISM_NAME", "talk"),
        ("ORGANISM_LISTENER", "echo"),
        ("ORGANISM_BUS_NKEY", key.to_str().unwrap()),
        ("BASE", base.to_str().unwrap()),
    ];
    let log = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    let kit = Kit::spawn(command, &variables, log);
    runtime.block_on(here.1.next()).expect("it announces itself");
    kit
}

/// Sends a text, which opens a call that is held for an approval. Returns the call. A test can wait
/// for the result later, because `text` is also the key of the submission.
fn hold(house: &House, text: &str) -> Json {
    let sent = house.send_text(&say(text), &["--no-wait", "--key", text]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let held = house.organism(&["approvals", "--json"]).json().pop().unwrap();
    assert_eq!(held["payload"], say(text));
    held
}

fn approve(house: &House, call: &Json) {
    let id = call["message"].as_str().unwrap();
    let hash = call["sha256"].as_str().unwrap();
    let preview = call["preview"]["recorded"]["sha256"].as_str().unwrap();
    let approved = house.organism(&["approve", id, "--hash", hash, "--preview", preview]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
}

#[test]
fn a_listener_on_nats_shows_a_preview_and_refuses_what_it_shows_no_more() {
    let config = CONFIG.replace("[listeners.echo]\n", &format!("[listeners.echo]\n{KEYS}"));
    assert_ne!(config, CONFIG);
    let guarded = guarded_of(&config, &[], "sync_interval: always");
    let house = &guarded.house;
    house.write("base", "one");
    let mut kit = previewer(&guarded);
    let running = house.run();

    let call = hold(house, "hello");
    assert_eq!(call["preview"]["recorded"]["text"], "one", "{call}");
    approve(house, &call);
    let result = house.send_text(&say("hello"), &["--key", "hello"]);
    assert_eq!((result.code, &*result.out), (Some(0), &*talk_reply("hello: one")), "{result:?}");

    let call = hold(house, "again");
    house.write("base", "two");
    approve(house, &call);
    let result = house.send_text(&say("again"), &["--key", "again"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("stale-preview"), "{result:?}");

    // Without a replica, the person decides on the bytes.
    assert!(kit.terminate().success());
    let call = until("a call is held without a listener", || {
        Some(hold(house, "alone")).filter(|call| call["preview"]["missing"].is_object())
    });
    assert!(call["preview"]["missing"]["reason"].as_str().unwrap().contains("took"), "{call}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
