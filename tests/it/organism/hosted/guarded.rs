//! An agent that runs in a separate process has a key of its own. These tests check the permissions
//! of the key on servers that `organism nats-config` configured.

use super::super::nats_config::guarded_of;
use super::super::nats_config::probe::{Own, beyond};
use super::super::{say, talk_reply};
use super::{CONFIG, Hosting, TURNS};

fn config() -> String {
    let bare = CONFIG.replace("LIMITS", "").replace("MODEL", "recorded").replace("BUDGET", "");
    bare.replace("url = \"ADDRESS\"", "url = \"ADDRESS\"\nNKEY")
}

const WRITER: Own = Own {
    user: "listener-writer",
    says: &[
        "organism.talk.re.writer.here",
        "organism.talk.re.writer.0123",
        "organism.talk.re.writer.4567.89ab",
        "_INBOX_operator.abc",
    ],
    hears: &[
        "organism.talk.cancel.writer",
        "_INBOX_writer.abc",
        "_INBOX_writer.>",
        "$SRV.PING",
        "$SRV.PING.writer",
        "$SRV.PING.writer.id",
        "$SRV.INFO",
        "$SRV.INFO.writer",
        "$SRV.INFO.writer.id",
        "$SRV.STATS",
        "$SRV.STATS.writer",
        "$SRV.STATS.writer.id",
    ],
    shares: &[("organism.talk.to.writer", "writer")],
    marks: ("organism.talk.re.writer.end", "_INBOX_writer.end"),
};

#[test]
fn an_agent_runs_with_exactly_its_granted_permissions() {
    let guarded = guarded_of(&config(), &[("turns.toml", TURNS)], "");
    let house = &guarded.house;
    let running = house.run();
    // The host does not need the pump's key, which may be missing.
    let own = house.path("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(house.path("nats/listener-writer.nk"), own.join("listener-writer.nk")).unwrap();
    std::fs::rename(house.path("nats"), house.path("pumps")).unwrap();
    let hosting = Hosting::start(house, "host", &["--only", "writer", "--keys", "own"]);
    std::fs::rename(house.path("pumps"), house.path("nats")).unwrap();
    let sent = house.send_text(&say("write"), &[]);
    assert_eq!((sent.code, sent.out), (Some(0), talk_reply("done")), "{}", sent.err);
    drop(hosting);
    assert_eq!(running.stop(), Some(0));
    house.verified();

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(beyond(&guarded, &WRITER)), [""; 0]);

    // With the key of another user, the host refuses to start and reports the reason.
    std::fs::copy(house.path("nats/operator.nk"), own.join("listener-writer.nk")).unwrap();
    let wrong = house.organism(&["host", "--only", "writer", "--keys", "own"]);
    assert_eq!(wrong.code, Some(69), "{wrong:?}");
    assert!(wrong.err.contains("NATS does not let the user of the key"), "{wrong:?}");
    assert!(!wrong.err.contains("hosted here"), "{wrong:?}");
}
