//! `organism nats-config`: servers whose users each have exactly their own permissions.

mod durable;
mod lacking;
mod previews;
pub mod probe;
mod tls;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use organism::nats::{Client, NatsCredentials, Options, connect};

use super::{House, say, talk_reply, until};
use crate::nats::{Server, Settings, included};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo", "solo"]

[listeners.echo]
nats = true
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[listeners.solo]
nats = true
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[nats]
url = "ADDRESS"
NKEY

[journal]
store = "jetstream"
replicas = 1
durability = "lazy"
"#;

/// A house with its keys, and a server that knows these keys and a user with all permissions.
pub struct Guarded {
    pub house: House,
    server: Server,
}

const SPY: &str = "      { user: spy, password: spy }\n";
/// Config line of a user with all permissions in the organism's account.
const OVERSEER: &str = "      { user: overseer, password: overseer }\n";
/// Config line of another account on the same server, with a user that has all permissions in that
/// account.
const NEIGHBOURS: &str = "  neighbours { users: [{ user: neighbour, password: neighbour }] }\n";

pub fn guarded() -> Guarded {
    guarded_with("sync_interval: always")
}

/// Creates a house and a server with these settings of JetStream.
fn guarded_with(jetstream: &'static str) -> Guarded {
    guarded_of(CONFIG, &[], jetstream)
}

/// Creates a house with this config and these files, and a server as `nats-config` configures it.
pub fn guarded_of(config: &str, files: &[(&str, &str)], jetstream: &'static str) -> Guarded {
    let first = config.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", "");
    let house = House::settled(&first);
    files.iter().for_each(|(name, text)| house.write(name, text));
    let made = house.organism(&["nats-config"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let_a_spy_in(&house);
    let accounts = included(&house.path("nats/accounts.conf"));
    let more = format!("include \"{accounts}\"\n");
    let settings = Settings { jetstream: Some(jetstream), more: more.leak() };
    let server = Server::start_with(settings);
    let config = config.replace("ADDRESS", &server.address());
    house.write("organism.toml", config.replace("NKEY", "nkey_file = \"nats/pump.nk\""));
    Guarded { house, server }
}

fn let_a_spy_in(house: &House) {
    let path = house.path("nats/accounts.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replacen("users: [\n", &format!("users: [\n{SPY}"), 1);
    let system = "$SYS {\n    users: [\n";
    let text = text.replacen(system, &format!("{system}{OVERSEER}"), 1);
    let text = text.replacen("accounts {\n", &format!("accounts {{\n{NEIGHBOURS}"), 1);
    std::fs::write(&path, text).unwrap();
}

/// Credentials of a user whose password equals the user's name.
fn named(user: &str) -> NatsCredentials {
    let password = organism::nats::NatsPassword(user.to_owned());
    NatsCredentials::Password { user: user.to_owned(), password, variable: None }
}

impl Guarded {
    fn seed(&self, user: &str) -> PathBuf {
        self.house.path(&format!("nats/{user}.nk"))
    }

    async fn connect(&self, credentials: NatsCredentials) -> Result<Client, String> {
        let servers = vec![self.server.address()];
        let options = Options { servers, credentials, ca: None };
        connect(&options, "a test").await.map_err(|error| error.to_string())
    }

    async fn user(&self, user: &str) -> Client {
        self.connect(NatsCredentials::Nkey(self.seed(user))).await.unwrap()
    }

    /// Connects with all permissions in the organism's account.
    async fn spy(&self) -> Client {
        self.connect(named("spy")).await.unwrap()
    }

    async fn overseer(&self) -> Client {
        self.connect(named("overseer")).await.unwrap()
    }

    async fn neighbour(&self) -> Client {
        self.connect(named("neighbour")).await.unwrap()
    }

    /// Changes the file of the accounts, and makes the server load it.
    fn with(&self, change: impl FnOnce(String) -> String) {
        let path = self.house.path("nats/accounts.conf");
        let text = std::fs::read_to_string(&path).unwrap();
        let changed = change(text.clone());
        assert_ne!(changed, text, "nothing was changed");
        std::fs::write(&path, changed).unwrap();
        let reloaded = || self.server.log().matches("Reloaded server configuration").count();
        let before = reloaded();
        self.server.signal("-HUP");
        until("it is taken up", || (reloaded() > before).then_some(()));
    }

    pub fn again(&self, arguments: &[&str]) {
        let made = self.house.organism(&[&["nats-config"], arguments].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let_a_spy_in(&self.house);
        self.server.signal("-HUP");
    }
}

/// A listener `echo` that answers every payload until this value is dropped.
pub struct Echo(tokio::runtime::Runtime);

impl Echo {
    pub fn start(guarded: &Guarded) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = guarded.user("listener-echo").await;
            let asked = client.queue_subscribe("organism.talk.to.echo", "echo".to_owned());
            let mut asked = asked.await.unwrap();
            client.flush().await.unwrap();
            tokio::spawn(async move {
                while let Some(message) = asked.next().await {
                    let text = String::from_utf8(message.payload.to_vec()).unwrap();
                    let answer = text.replace("<say ", "<said ").replace("</say>", "</said>");
                    client.publish(message.reply.unwrap(), answer.into()).await.unwrap();
                }
            });
        });
        Self(runtime)
    }
}

#[test]
fn an_organism_and_its_listeners_work_with_the_rights_they_are_given() {
    let guarded = guarded();
    let house = &guarded.house;
    let echo = Echo::start(&guarded);
    let sent = house.send_text(&say("hello"), &[]);
    assert_eq!(sent.out, talk_reply("hello"), "{sent:?}");
    house.verified();
    for (file, mode) in [("nats", 0o700), ("nats/pump.nk", 0o600), ("nats/server.conf", 0o600)] {
        let found = std::fs::metadata(house.path(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    drop(echo.0);
}

#[test]
fn a_key_is_changed_without_a_gap_and_one_that_is_revoked_is_cut_off_at_once() {
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let seed = guarded.seed("listener-echo");
    let old = std::fs::read_to_string(&seed).unwrap();
    // The first attempt ends before `accounts.conf` is written: a directory is in the place of the
    // file that is to replace it. The next attempt completes the renewal.
    let obstacle = guarded.house.path("nats/accounts.new");
    std::fs::create_dir(&obstacle).unwrap();
    let interrupted = guarded.house.organism(&["nats-config", "--renew", "listener-echo"]);
    assert_ne!(interrupted.code, Some(0), "{interrupted:?}");
    let renewed = std::fs::read_to_string(&seed).unwrap();
    assert_ne!(renewed, old);
    std::fs::remove_dir(&obstacle).unwrap();
    guarded.again(&["--renew", "listener-echo"]);
    assert_eq!(std::fs::read_to_string(&seed).unwrap(), renewed);
    let kept = guarded.house.path("nats/listener-echo.old.nk");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), old);
    let is_in = |path: &Path| {
        let credentials = NatsCredentials::Nkey(path.to_owned());
        runtime.block_on(guarded.connect(credentials)).is_ok()
    };
    until("the new key opens", || is_in(&seed).then_some(()));
    assert!(is_in(&kept), "and the old one still does");
    let solo = std::fs::read_to_string(guarded.seed("listener-solo")).unwrap();
    let both = ["nats-config", "--revoke", "listener-solo", "--renew", "listener-echo"];
    let twice = guarded.house.organism(&both);
    assert_eq!(twice.code, Some(69), "{twice:?}");
    assert!(twice.err.contains("retire or revoke the old key"), "{twice:?}");
    let after = std::fs::read_to_string(guarded.seed("listener-solo")).unwrap();
    assert_eq!(after, solo, "all or nothing");
    let other = CONFIG.replace("\"talk\"", "\"other\"").replace("NKEY", "");
    guarded.house.write("other.toml", other.replace("ADDRESS", "nats://127.0.0.1:4222"));
    let other = guarded.house.organism(&["nats-config", "--config", "other.toml"]);
    assert!(other.err.contains("belongs to another organism than `other`"), "{other:?}");
    let saved = guarded.house.path("saved.nk");
    std::fs::copy(&kept, &saved).unwrap();
    guarded.again(&["--retire", "listener-echo"]);
    until("the old key is good no more", || (!is_in(&saved)).then_some(()));
    assert!(is_in(&seed));

    let held = runtime.block_on(guarded.user("listener-echo"));
    std::fs::copy(&seed, &saved).unwrap();
    let begun = std::time::Instant::now();
    guarded.again(&["--revoke", "listener-echo"]);
    until("whoever has it is put out", || {
        (held.connection_state() != organism::nats::State::Connected).then_some(())
    });
    println!("a revoked key was cut off after {:?}", begun.elapsed());
    assert!(!is_in(&saved) && is_in(&seed));
}

/// If a person adds a user with all permissions, this user can delete the stream. The next
/// `nats-config` removes all users that a person has added, and names them.
#[test]
fn a_user_that_a_person_has_added_is_named_when_it_is_dropped() {
    let guarded = guarded();
    let house = &guarded.house;
    assert_eq!(house.run().stop(), Some(0));
    let deleted = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let spy = guarded.spy().await;
        let subject = "$JS.API.STREAM.DELETE.ORGANISM-talk-0".to_owned();
        spy.request(subject, "".into()).await.unwrap().payload
    });
    let deleted = String::from_utf8_lossy(&deleted).into_owned();
    assert!(deleted.contains("\"success\":true"), "{deleted}");

    let made = house.organism(&["nats-config", "--renew", "pump"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let dropped = "are not in nats: neighbour, spy, overseer; the servers refuse them";
    assert!(made.err.contains(dropped), "{made:?}");
    let again = house.organism(&["nats-config", "--retire", "pump"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(!again.err.contains("added by hand"), "{again:?}");
    assert!(!again.err.contains("no key was retired"), "{again:?}");
    let again = house.organism(&["nats-config", "--retire", "pump", "--renew", "operator"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains("no key was retired of pump: no old key is in nats"), "{again:?}");
    let again = house.organism(&["nats-config", "--renew", "pump", "--retire", "pump"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(!again.err.contains("no key was retired"), "{again:?}");
}

#[test]
fn errors_are_reported_before_anything_is_written() {
    let first = CONFIG.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", "");
    let house = House::settled(&first);
    for (arguments, code, told) in [
        (&["--node", "a=10.0.0.1"][..], 2, "add --tls-cert and --tls-key"),
        (&["--node", "10.0.0.1"], 2, "write for example --node a=10.0.0.1"),
        (&["--node", "a=127.0.0.1:4222"], 2, "write for example --node a=10.0.0.1"),
        (
            &["--node", "a=127.0.0.1", "--node", "a=127.0.0.2"],
            2,
            "have the name or the host of a=127.0.0.2",
        ),
        (
            &["--revoke", "echo"],
            2,
            "the users are pump, operator, system, listener-echo, listener-solo",
        ),
    ] {
        let told_here = house.organism(&[&["nats-config"], arguments].concat());
        assert_eq!(told_here.code, Some(code), "{told_here:?}");
        assert!(told_here.err.contains(told), "{told_here:?}");
        assert!(!house.path("nats").exists(), "{arguments:?}");
    }
    let embedded = House::settled(super::CONFIG);
    let told = embedded.organism(&["nats-config"]);
    assert_eq!(told.code, Some(78), "{told:?}");
    assert!(told.err.contains("nats = true"), "{told:?}");
}

#[test]
fn keys_may_be_named_in_the_config_before_they_are_written() {
    let named = "nkey_file = \"nats/pump.nk\"\nsystem_nkey_file = \"nats/system.nk\"";
    let config = CONFIG.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", named);
    let house = House::settled(&config);
    let told = house.organism(&["check"]);
    assert_eq!(told.code, Some(78), "{told:?}");
    for told in ["`nats/pump.nk` cannot be read", "`nats/system.nk` cannot be read"] {
        assert!(house.organism(&["check"]).err.contains(told), "{told}");
    }
    let made = house.organism(&["nats-config"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let told = house.organism(&["check"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let record = "the stream ORGANISM-talk-0 at nats://127.0.0.1:4222";
    assert!(told.out.split_whitespace().collect::<Vec<_>>().join(" ").contains(record), "{told:?}");
}

#[test]
fn a_cluster_is_three_files_that_name_each_other() {
    let first = CONFIG.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", "");
    let house = House::with(&first);
    let nodes = ["a=10.0.0.1", "b=10.0.0.2", "c=fd00::3"];
    let nodes: Vec<_> = nodes.iter().flat_map(|node| ["--node", node]).collect();
    let tls =
        ["--tls-cert", "/etc/tls/cert.pem", "--tls-key", "/etc/tls/key.pem", "--tls-ca", "/ca"];
    let made = house.organism(&[&["nats-config"], &nodes[..], &tls].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    let read = |name: &str| std::fs::read_to_string(house.path(&format!("nats/{name}"))).unwrap();
    let secret = read("cluster.secret");
    let second = read("server-b.conf");
    for line in [
        "server_name: \"b\"",
        "listen: \"10.0.0.2:4222\"",
        "ping_interval: \"5s\"",
        "ping_max: 2",
        "sync_interval: always",
        "cert_file: \"/etc/tls/cert.pem\"",
        "verify: true",
        &format!("\"nats://cluster:{}@10.0.0.1:6222\"", secret.trim()),
        &format!("\"nats://cluster:{}@[fd00::3]:6222\"", secret.trim()),
    ] {
        assert!(second.contains(line), "{line}\n{second}");
    }
    assert!(!second.contains("@10.0.0.2:6222"), "a server is no route to itself");
    // The key of a listener that the config no longer has is removed, too.
    house.write(
        "organism.toml",
        first
            .replace("[listeners.solo]\nnats = true", "[listeners.sole]\nnats = true")
            .replace("\"solo\"", "\"sole\""),
    );
    assert!(house.path("nats/listener-solo.nk").exists());
    let again = house.organism(&[&["nats-config"], &nodes[..], &tls].concat());
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(!house.path("nats/listener-solo.nk").exists());
    assert!(!read("accounts.conf").contains("solo"));
    assert_eq!(read("cluster.secret"), secret);
}
