//! An agent elsewhere on servers that `organism nats-config` made: what its key opens.

use super::super::nats_config::{guarded_with, probe, set};
use super::super::{said, say};
use super::{CONFIG, Hosting, TURNS};

fn config() -> String {
    let bare = CONFIG.replace("LIMITS", "").replace("MODEL", "recorded").replace("BUDGET", "");
    bare.replace("url = \"ADDRESS\"", "url = \"ADDRESS\"\nNKEY")
}

#[test]
fn an_agent_works_with_the_rights_it_is_given_and_has_no_others() {
    let guarded = guarded_with(&config(), &[("turns.toml", TURNS)]);
    let house = &guarded.house;
    let running = house.run();
    // The pump's key is not needed there, and may be gone.
    let own = house.path("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(house.path("nats/listener-writer.nk"), own.join("listener-writer.nk")).unwrap();
    std::fs::rename(house.path("nats"), house.path("pumps")).unwrap();
    let hosting = Hosting::start(house, "host", &["--only", "writer", "--keys", "own"]);
    std::fs::rename(house.path("pumps"), house.path("nats")).unwrap();
    let sent = house.send_text(&say("write"), &[]);
    assert_eq!((sent.code, sent.out), (Some(0), said("done")), "{}", sent.err);
    drop(hosting);
    assert_eq!(running.stop(), Some(0));
    house.verified();

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (told, heard) = probe(&guarded, "listener-writer").await;
        let answers = ["organism.talk.re.writer.0123", "organism.talk.re.writer.here"];
        assert_eq!(told, set(&[&answers[..], &["_INBOX_operator.abc"]].concat()));
        let asked = ["$SRV.PING", "$SRV.PING.writer"];
        let own = ["_INBOX_writer.abc", "organism.talk.cancel.writer"];
        assert_eq!(heard, set(&[asked, own].concat()));
    });
}
