//! `organism nats-config`: servers on which everybody can do what is theirs and nothing else, tried
//! with every key against everything.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use organism::listener::{Listener, Place, Reply};
use organism::nats::{Client, Credentials, Options, Subscriber, connect};

use super::{House, said, say, until};
use crate::nats::{Server, Settings};

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
"#;

/// A house with its keys and a server that knows them, and one who may do everything.
pub struct Guarded {
    pub house: House,
    server: Server,
}

const SPY: &str = "      { user: spy, password: spy }\n";

pub fn guarded() -> Guarded {
    guarded_with(CONFIG, &[])
}

/// With another config, whose files are these.
pub fn guarded_with(config: &str, files: &[(&str, &str)]) -> Guarded {
    let first = config.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", "");
    let house = House::settled(&first);
    files.iter().for_each(|(name, text)| house.write(name, text));
    let made = house.organism(&["nats-config"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let_a_spy_in(&house);
    let accounts = relative(&house.path("nats/accounts.conf"));
    let more = format!("include \"{accounts}\"\n");
    let settings = Settings { jetstream: Some("sync_interval: always"), more: more.leak() };
    let server = Server::start_with(settings);
    let config = config.replace("ADDRESS", &server.address());
    house.write("organism.toml", config.replace("NKEY", "nkey_file = \"nats/pump.nk\""));
    Guarded { house, server }
}

/// Includes are looked for from where the server's own config stands.
fn relative(path: &Path) -> String {
    let temporary = std::env::temp_dir();
    let below =
        path.strip_prefix(temporary.canonicalize().unwrap()).or(path.strip_prefix(temporary));
    format!("../{}", below.unwrap().display())
}

fn let_a_spy_in(house: &House) {
    let path = house.path("nats/accounts.conf");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("users: [\n", &format!("users: [\n{SPY}"), 1)).unwrap();
}

impl Guarded {
    fn seed(&self, user: &str) -> PathBuf {
        self.house.path(&format!("nats/{user}.nk"))
    }

    async fn connect(&self, credentials: Credentials) -> Result<Client, String> {
        let servers = vec![self.server.address()];
        let options = Options { servers, credentials, ca: None };
        connect(&options, "a test").await.map_err(|error| error.to_string())
    }

    async fn user(&self, user: &str) -> Client {
        self.connect(Credentials::Nkey(self.seed(user))).await.unwrap()
    }

    async fn spy(&self) -> Client {
        let password = organism::nats::Password("spy".to_owned());
        let credentials =
            Credentials::Password { user: "spy".to_owned(), password, variable: None };
        self.connect(credentials).await.unwrap()
    }

    pub fn again(&self, arguments: &[&str]) {
        let made = self.house.organism(&[&["nats-config"], arguments].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        let_a_spy_in(&self.house);
        self.server.signal("-HUP");
    }
}

/// Answers what it is asked, as `echo`, until it is dropped.
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
    assert_eq!(sent.out, said("hello"), "{sent:?}");
    house.verified();
    for (file, mode) in [("nats", 0o700), ("nats/pump.nk", 0o600), ("nats/server.conf", 0o600)] {
        let found = std::fs::metadata(house.path(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    drop(echo.0);
}

/// Everything that might be of use to somebody who has got a listener's key.
fn subjects() -> Vec<String> {
    let mut all: Vec<String> = [
        "organism.talk.to.echo",
        "organism.talk.to.solo",
        "organism.talk.cancel.echo",
        "organism.talk.cancel.solo",
        "organism.talk.re.echo.here",
        "organism.talk.re.echo.0123",
        "organism.talk.re.solo.here",
        "organism.talk.re.solo.0123",
        "organism.talk.to.writer",
        "organism.talk.cancel.writer",
        "organism.talk.re.writer.here",
        "organism.talk.re.writer.0123",
        "organism.talk.pump.0",
        "organism.other.to.echo",
        "organism.journal.ORGANISM-talk.0",
        "$KV.ORGANISM-talk-pumps.0",
        "_INBOX.abc.def",
        "_INBOX_echo.abc",
        "_INBOX_solo.abc",
        "_INBOX_writer.abc",
        "_INBOX_operator.abc",
        "$SRV.PING",
        "$SRV.PING.echo",
        "$SRV.PING.solo",
        "$SRV.STATS.solo",
        "$SRV.PING.writer",
        "$SYS.REQ.SERVER.PING",
        "anything",
    ]
    .map(str::to_owned)
    .into();
    for stream in ["ORGANISM-talk-0", "KV_ORGANISM-talk-pumps"] {
        for verb in [
            "STREAM.INFO",
            "STREAM.CREATE",
            "STREAM.UPDATE",
            "STREAM.DELETE",
            "STREAM.PURGE",
            "STREAM.MSG.GET",
            "STREAM.MSG.DELETE",
            "STREAM.RESTORE",
            "CONSUMER.CREATE",
            "CONSUMER.DURABLE.CREATE",
            "CONSUMER.LIST",
            "DIRECT.GET",
        ] {
            all.push(format!("$JS.API.{verb}.{stream}"));
        }
    }
    all.extend(["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.ACK.a.b.c"].map(str::to_owned));
    all
}

/// A subscription that the server has: what is published from here on is heard.
async fn everything(spy: &Client) -> Subscriber {
    let mut all = spy.subscribe(">").await.unwrap();
    spy.publish("ready", "".into()).await.unwrap();
    all.next().await.unwrap();
    all
}

/// What of all this somebody with `user`'s key gets through to others, and what of it they get to
/// hear.
pub async fn probe(guarded: &Guarded, user: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (spy, key) = (guarded.spy().await, guarded.user(user).await);
    let said: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let mut all = everything(&spy).await;
    for subject in subjects() {
        // With a reply subject that is another's: whoever answers would write in their name.
        let reply = "organism.journal.ORGANISM-talk.0";
        key.publish_with_reply(subject, reply, "probe".into()).await.unwrap();
    }
    let last = match user.strip_prefix("listener-") {
        Some(listener) => format!("organism.talk.re.{listener}.done"),
        None => "$SRV.PING.done".to_owned(),
    };
    key.publish(last, "".into()).await.unwrap();
    key.flush().await.unwrap();
    // Nothing overtakes on one connection: when this one is seen, so is everything before it.
    spy.publish("done", "".into()).await.unwrap();
    let through = Arc::clone(&said);
    tokio::time::timeout(Duration::from_secs(20), async move {
        let mut ends = 0;
        while let Some(message) = all.next().await {
            if &*message.payload == b"probe" {
                through.lock().unwrap().insert(message.subject.to_string());
            }
            ends += usize::from(message.subject.as_str().ends_with("done"));
            if ends == 2 {
                return;
            }
        }
    })
    .await
    .expect("the probe does not end");

    // Who may not hear a subject is told so and goes on.
    let mut listening = Vec::new();
    for subject in subjects().into_iter().chain([">".to_owned(), "organism.>".to_owned()]) {
        listening.push(key.subscribe(subject).await.unwrap());
    }
    let own = format!("_INBOX_{}.end", user.trim_start_matches("listener-"));
    let mut end = key.subscribe(own.clone()).await.unwrap();
    key.flush().await.unwrap();
    let mut heard = BTreeSet::new();
    // Until the subscription is there, an end that comes too early is not heard.
    while end.next().now_or_never().is_none() {
        for subject in subjects().into_iter().filter(|subject| !subject.starts_with("$JS.API")) {
            spy.publish(subject, "word".into()).await.unwrap();
        }
        spy.publish(own.clone(), "".into()).await.unwrap();
        spy.flush().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(1), end.next()).await;
        for subscriber in &mut listening {
            while let Some(Some(message)) = subscriber.next().now_or_never() {
                if &*message.payload == b"word" {
                    heard.insert(message.subject.to_string());
                }
            }
        }
        if ended.is_ok() {
            break;
        }
    }
    let said = said.lock().unwrap().clone();
    (said, heard)
}

pub fn set(subjects: &[&str]) -> BTreeSet<String> {
    subjects.iter().map(|subject| (*subject).to_owned()).collect()
}

#[test]
fn a_listeners_key_opens_what_is_its_own_and_nothing_else() {
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (said, heard) = probe(&guarded, "listener-echo").await;
        let answers = ["organism.talk.re.echo.0123", "organism.talk.re.echo.here"];
        assert_eq!(said, set(&[&answers[..], &["_INBOX_operator.abc"]].concat()));
        let asked = ["$SRV.PING", "$SRV.PING.echo"];
        let own = ["_INBOX_echo.abc", "organism.talk.cancel.echo"];
        assert_eq!(heard, set(&[asked, own].concat()), "deliveries only as one of its queue group");
    });
}

/// Who asks chooses where the answer goes, and no server checks that.
#[test]
fn nobody_is_made_to_write_where_they_are_told_to() {
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let servers = Options {
        servers: vec![guarded.server.address()],
        credentials: Credentials::Nkey(guarded.seed("listener-echo")),
        ca: None,
    };
    let place = Place::new(servers, "talk", organism::ids::ListenerName::parse("echo").unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopped = async { stopped.await.unwrap_or_default() };
    let kit = std::thread::spawn(move || {
        Listener::new().otherwise(|_| Ok::<_, String>(Reply::ack())).serve_at(&place, stopped)
    });
    runtime.block_on(async {
        let spy = guarded.spy().await;
        let mut all = everything(&spy).await;
        let operator = guarded.user("operator").await;
        let own = "_INBOX_operator.told";
        let mut told = operator.subscribe(own).await.unwrap();
        let bad = [
            "organism.journal.ORGANISM-talk.0",
            "$KV.ORGANISM-talk-pumps.0",
            "organism.talk.to.solo",
            "organism.talk.re.solo.0123",
            "_INBOX.of.the.pump",
        ];
        let asking = async {
            loop {
                for reply in bad {
                    let asked =
                        ["$SRV.PING.echo", "$SRV.INFO", "$JS.API.STREAM.INFO.ORGANISM-talk-0"];
                    for asked in asked {
                        operator.publish_with_reply(asked, reply, "".into()).await.unwrap();
                    }
                }
                operator.publish_with_reply("$SRV.PING.echo", own, "".into()).await.unwrap();
                let answer = tokio::time::timeout(Duration::from_millis(200), told.next()).await;
                if let Ok(Some(answer)) = answer {
                    return String::from_utf8(answer.payload.to_vec()).unwrap();
                }
            }
        };
        // One that is asked for on the operator's own inbox is answered, after all the others.
        let answer = tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap();
        assert!(answer.contains("ping_response"), "{answer}");
        spy.publish("end", "".into()).await.unwrap();
        while let Some(message) = all.next().await {
            let subject = message.subject.to_string();
            assert!(!bad.contains(&subject.as_str()), "{subject}: {message:?}");
            if subject == "end" {
                break;
            }
        }
        let (said, _) = probe(&guarded, "operator").await;
        let asked = [
            "$SRV.PING",
            "$SRV.PING.echo",
            "$SRV.PING.solo",
            "$SRV.PING.writer",
            "$SRV.STATS.solo",
        ];
        assert_eq!(said, set(&asked));
    });
    stop.send(()).unwrap();
    kit.join().unwrap().unwrap();
}

#[test]
fn a_key_is_changed_without_a_gap_and_one_that_is_revoked_is_cut_off_at_once() {
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let seed = guarded.seed("listener-echo");
    let old = std::fs::read_to_string(&seed).unwrap();
    guarded.again(&["--renew", "listener-echo"]);
    let kept = guarded.house.path("nats/listener-echo.old.nk");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), old);
    let is_in = |path: &Path| {
        let credentials = Credentials::Nkey(path.to_owned());
        runtime.block_on(guarded.connect(credentials)).is_ok()
    };
    until("the new key opens", || is_in(&seed).then_some(()));
    assert!(is_in(&kept), "and the old one still does");
    let solo = std::fs::read_to_string(guarded.seed("listener-solo")).unwrap();
    let both = ["nats-config", "--revoke", "listener-solo", "--renew", "listener-echo"];
    let twice = guarded.house.organism(&both);
    assert_eq!(twice.code, Some(69), "{twice:?}");
    assert!(twice.err.contains("retire the old key"), "{twice:?}");
    let after = std::fs::read_to_string(guarded.seed("listener-solo")).unwrap();
    assert_eq!(after, solo, "all or nothing");
    let other = CONFIG.replace("\"talk\"", "\"other\"").replace("NKEY", "");
    guarded.house.write("other.toml", other.replace("ADDRESS", "nats://127.0.0.1:4222"));
    let other = guarded.house.organism(&["nats-config", "--config", "other.toml"]);
    assert!(other.err.contains("is that of another organism than `other`"), "{other:?}");
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

#[test]
fn what_is_wrong_is_said_before_anything_is_written() {
    let first = CONFIG.replace("ADDRESS", "nats://127.0.0.1:4222").replace("NKEY", "");
    let house = House::with(&first);
    for (arguments, code, told) in [
        (&["--node", "a=10.0.0.1"][..], 2, "add --tls-cert and --tls-key"),
        (&["--node", "10.0.0.1"], 2, "write --node a=10.0.0.1"),
        (&["--node", "a=127.0.0.1:4222"], 2, "write --node a=10.0.0.1"),
        (&["--node", "a=127.0.0.1", "--node", "a=127.0.0.2"], 2, "a=127.0.0.2 has the name"),
        (&["--revoke", "echo"], 2, "there are pump, operator, listener-echo, listener-solo"),
    ] {
        let told_here = house.organism(&[&["nats-config"], arguments].concat());
        assert_eq!(told_here.code, Some(code), "{told_here:?}");
        assert!(told_here.err.contains(told), "{told_here:?}");
        assert!(!house.path("nats").exists(), "{arguments:?}");
    }
    let embedded = House::new();
    let told = embedded.organism(&["nats-config"]);
    assert_eq!(told.code, Some(78), "{told:?}");
    assert!(told.err.contains("nats = true"), "{told:?}");
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
        "sync_interval: always",
        "cert_file: \"/etc/tls/cert.pem\"",
        "verify: true",
        &format!("\"nats://cluster:{}@10.0.0.1:6222\"", secret.trim()),
        &format!("\"nats://cluster:{}@[fd00::3]:6222\"", secret.trim()),
    ] {
        assert!(second.contains(line), "{line}\n{second}");
    }
    assert!(!second.contains("@10.0.0.2:6222"), "a server is no route to itself");
    // Without a listener, its key is gone too.
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
