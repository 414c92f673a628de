//! Every key that `nats-config` writes, tested against every subject: publishes, subscriptions,
//! queue groups, and forged reply subjects.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use organism::ids::ListenerName;
use organism::listener::{Listener, NatsEndpoint, Reply};
use organism::nats::{Client, NatsCredentials, Options, Subscriber};

use super::super::{PATIENCE, say, talk_reply};
use super::{Guarded, guarded};
use crate::campaign::Campaign;

/// The permissions that one user must have. All other permissions must be denied.
pub struct Own {
    pub user: &'static str,
    pub says: &'static [&'static str],
    pub hears: &'static [&'static str],
    /// Subjects, each with the only queue group in which the user may subscribe to it.
    pub shares: &'static [(&'static str, &'static str)],
    /// A subject on which the user may publish, and a subject to which the user may subscribe. A
    /// message on either subject marks the end of the attempts.
    pub marks: (&'static str, &'static str),
}

const EVERYBODY: [Own; 5] = [
    Own {
        user: "listener-echo",
        says: &[
            "organism.talk.re.echo.here",
            "organism.talk.re.echo.0123",
            "organism.talk.re.echo.4567.89ab",
            "_INBOX_operator.abc",
        ],
        hears: &[
            "organism.talk.cancel.echo",
            "_INBOX_echo.abc",
            "_INBOX_echo.>",
            "$SRV.PING",
            "$SRV.PING.echo",
            "$SRV.PING.echo.id",
            "$SRV.INFO",
            "$SRV.INFO.echo",
            "$SRV.INFO.echo.id",
            "$SRV.STATS",
            "$SRV.STATS.echo",
            "$SRV.STATS.echo.id",
        ],
        shares: &[("organism.talk.to.echo", "echo")],
        marks: ("organism.talk.re.echo.end", "_INBOX_echo.end"),
    },
    Own {
        user: "listener-solo",
        says: &[
            "organism.talk.re.solo.here",
            "organism.talk.re.solo.0123",
            "organism.talk.re.solo.4567.89ab",
            "_INBOX_operator.abc",
        ],
        hears: &[
            "organism.talk.cancel.solo",
            "_INBOX_solo.abc",
            "_INBOX_solo.>",
            "$SRV.PING",
            "$SRV.PING.solo",
            "$SRV.PING.solo.id",
            "$SRV.INFO",
            "$SRV.INFO.solo",
            "$SRV.INFO.solo.id",
            "$SRV.STATS",
            "$SRV.STATS.solo",
            "$SRV.STATS.solo.id",
        ],
        shares: &[("organism.talk.to.solo", "solo")],
        marks: ("organism.talk.re.solo.end", "_INBOX_solo.end"),
    },
    Own {
        user: "operator",
        says: &[
            "$SRV.PING",
            "$SRV.PING.echo",
            "$SRV.PING.echo.id",
            "$SRV.PING.solo",
            "$SRV.PING.solo.id",
            "$SRV.INFO",
            "$SRV.INFO.echo",
            "$SRV.INFO.echo.id",
            "$SRV.INFO.solo",
            "$SRV.INFO.solo.id",
            "$SRV.STATS",
            "$SRV.STATS.echo",
            "$SRV.STATS.echo.id",
            "$SRV.STATS.solo",
            "$SRV.STATS.solo.id",
            "$SRV.PING.writer",
            "$SRV.PING.writer.id",
            "$SRV.INFO.writer",
            "$SRV.INFO.writer.id",
            "$SRV.STATS.writer",
            "$SRV.STATS.writer.id",
        ],
        hears: &["_INBOX_operator.abc", "_INBOX_operator.>"],
        shares: &[],
        marks: ("$SRV.PING.end", "_INBOX_operator.end"),
    },
    Own {
        user: "pump",
        says: &[
            "organism.talk.to.echo",
            "organism.talk.to.solo",
            "organism.talk.to.writer",
            "organism.talk.cancel.echo",
            "organism.talk.cancel.solo",
            "organism.talk.cancel.writer",
            "organism.talk.pump.0",
            "_INBOX.abc",
            "_INBOX.abc.def",
            "_INBOX_echo.abc",
            "_INBOX_solo.abc",
            "$SRV.PING.echo",
            "$SRV.PING.echo.id",
            "$SRV.PING.solo",
            "$SRV.PING.solo.id",
            "$SRV.PING.writer",
            "$SRV.PING.writer.id",
            "organism.journal.ORGANISM-talk.0",
            "$KV.ORGANISM-talk-pumps.0",
            "$KV.ORGANISM-talk-pumps.partitions",
            "$JS.API.STREAM.INFO.ORGANISM-talk-0",
            "$JS.API.STREAM.CREATE.ORGANISM-talk-0",
            "$JS.API.STREAM.MSG.GET.ORGANISM-talk-0",
            "$JS.API.STREAM.INFO.KV_ORGANISM-talk-pumps",
            "$JS.API.STREAM.CREATE.KV_ORGANISM-talk-pumps",
            "$JS.API.STREAM.MSG.GET.KV_ORGANISM-talk-pumps",
        ],
        hears: &[
            "organism.talk.re.echo.here",
            "organism.talk.re.echo.0123",
            "organism.talk.re.echo.4567.89ab",
            "organism.talk.re.solo.here",
            "organism.talk.re.solo.0123",
            "organism.talk.re.solo.4567.89ab",
            "organism.talk.re.writer.here",
            "organism.talk.re.writer.0123",
            "organism.talk.re.writer.4567.89ab",
            "organism.talk.re.>",
            "organism.talk.pump.0",
            "_INBOX.abc",
            "_INBOX.abc.def",
            "_INBOX.>",
        ],
        // A user that may subscribe to a subject may also do so in a queue group.
        shares: &[],
        marks: ("organism.talk.pump.end", "_INBOX.end"),
    },
    Own {
        user: "system",
        says: &["$SYS.REQ.SERVER.PING.VARZ"],
        hears: &["_INBOX.abc", "_INBOX.abc.def", "_INBOX.>"],
        shares: &[],
        marks: ("$SYS.REQ.SERVER.PING.VARZ", "_INBOX.end"),
    },
];

/// Verbs of the JetStream API that take a stream.
const VERBS: [&str; 20] = [
    "STREAM.INFO",
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.MSG.GET",
    "STREAM.MSG.DELETE",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "STREAM.PEER.REMOVE",
    "STREAM.LEADER.STEPDOWN",
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "CONSUMER.INFO",
    "CONSUMER.DELETE",
    "CONSUMER.NAMES",
    "CONSUMER.LIST",
    "CONSUMER.MSG.NEXT",
    "CONSUMER.PAUSE",
    "DIRECT.GET",
];

/// All subjects that the owner of a key might use.
fn subjects() -> Vec<String> {
    let plain = [
        "organism.talk.pump.0",
        "organism.other.to.echo",
        "organism.other.re.echo.0123",
        "organism.other.pump.0",
        "organism.journal.ORGANISM-talk.0",
        "organism.journal.ORGANISM-talk.1",
        "organism.journal.ORGANISM-other.0",
        "$KV.ORGANISM-talk-pumps.0",
        "$KV.ORGANISM-talk-pumps.1",
        "$KV.ORGANISM-talk-pumps.partitions",
        "$KV.ORGANISM-other-pumps.0",
        "_INBOX.abc",
        "_INBOX.abc.def",
        "_INBOX_echo.abc",
        "_INBOX_solo.abc",
        "_INBOX_writer.abc",
        "_INBOX_operator.abc",
        "_INBOX_other.abc",
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE",
        "$JS.ACK.ORGANISM-talk-0.any.1.1.1.1.0",
        "$JS.FC.ORGANISM-talk-0.any.abc",
        "$JS.EVENT.ADVISORY.STREAM.DELETED.ORGANISM-talk-0",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.ACCOUNT.talk.CONNZ",
        "$SYS.REQ.USER.INFO",
        "$SYS.ACCOUNT.talk.CONNECT",
        "anything",
    ];
    let mut all: Vec<String> = plain.map(str::to_owned).into();
    for listener in ["echo", "solo", "writer"] {
        let of = |form: &str| form.replace('@', listener);
        all.extend(
            ["to.@", "cancel.@", "re.@.here", "re.@.0123", "re.@.4567.89ab"]
                .map(|form| of(&format!("organism.talk.{form}"))),
        );
        for verb in ["PING", "INFO", "STATS"] {
            all.extend([format!("$SRV.{verb}.{listener}"), format!("$SRV.{verb}.{listener}.id")]);
        }
    }
    all.extend(["PING", "INFO", "STATS"].map(|verb| format!("$SRV.{verb}")));
    for stream in ["ORGANISM-talk-0", "ORGANISM-talk-1", "KV_ORGANISM-talk-pumps", "OTHER"] {
        all.extend(VERBS.map(|verb| format!("$JS.API.{verb}.{stream}")));
    }
    all
}

/// Subjects with wildcards, and unknown subjects.
const WIDE: [&str; 17] = [
    ">",
    "*",
    "*.>",
    "organism.>",
    "organism.talk.>",
    "organism.talk.to.*",
    "organism.talk.re.>",
    "organism.journal.>",
    "_INBOX.>",
    "_INBOX_echo.>",
    "_INBOX_solo.>",
    "_INBOX_writer.>",
    "_INBOX_operator.>",
    "$JS.>",
    "$KV.>",
    "$SRV.>",
    "$SYS.>",
];

/// Subjects on which a member of a queue group could take messages from other members.
const SHARED: [&str; 5] = [
    "organism.talk.to.echo",
    "organism.talk.to.solo",
    "organism.talk.to.writer",
    "organism.talk.cancel.solo",
    "$SRV.PING",
];
const GROUPS: [&str; 5] = ["echo", "solo", "writer", "q", "thief"];

/// Permissions that the attempts of one user have shown, and the number of attempts.
#[derive(Default)]
struct AttemptResults {
    published: BTreeSet<String>,
    received: BTreeSet<String>,
    shared: BTreeSet<(String, String)>,
    tries: usize,
}

/// Subscribes to everything, and returns when the server has the subscription.
async fn everything(spy: &Client) -> Subscriber {
    let mut all = spy.subscribe(">").await.unwrap();
    let token = spy.new_inbox();
    spy.publish(token.clone(), "".into()).await.unwrap();
    while all.next().await.unwrap().subject.as_str() != token {}
    all
}

/// The subjects on which the messages of this user reach other users.
async fn says(spy: &Client, key: &Client, mark: &str) -> BTreeSet<String> {
    let mut all = everything(spy).await;
    for subject in subjects() {
        key.publish(subject, "probe".into()).await.unwrap();
    }
    // Nothing overtakes on one connection: when this one is seen, so is everything before it.
    key.publish(mark.to_owned(), "end".into()).await.unwrap();
    let mut through = BTreeSet::new();
    let seen = async {
        while let Some(message) = all.next().await {
            match &*message.payload {
                b"probe" => drop(through.insert(message.subject.to_string())),
                b"end" => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.expect("the probe does not end");
    through
}

/// The subscriptions that a user tries, plain and with queue groups.
struct Ears {
    plain: Vec<(String, Subscriber)>,
    shared: Vec<((String, String), Subscriber)>,
    end: Subscriber,
}

impl Ears {
    /// Opens all subscriptions. If a subscription is denied, the server reports the denial and the
    /// connection stays open.
    async fn open(key: &Client, mark: &str) -> Self {
        let (mut plain, mut shared) = (Vec::new(), Vec::new());
        for subject in subjects().into_iter().chain(WIDE.map(str::to_owned)) {
            let subscriber = key.subscribe(subject.clone()).await.unwrap();
            plain.push((subject, subscriber));
        }
        for subject in SHARED {
            for group in GROUPS {
                let subscriber = key.queue_subscribe(subject, group.to_owned()).await.unwrap();
                shared.push(((subject.to_owned(), group.to_owned()), subscriber));
            }
        }
        Self { plain, shared, end: key.subscribe(mark.to_owned()).await.unwrap() }
    }

    /// Publishes a message on every subject, and then the end mark. Returns whether the mark
    /// arrives.
    async fn end_after_publishes(&mut self, spy: &Client, mark: &str) -> bool {
        for subject in subjects() {
            spy.publish(subject, "word".into()).await.unwrap();
        }
        spy.publish(mark.to_owned(), "".into()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(1), self.end.next()).await.is_ok()
    }

    async fn hear(
        mut self,
        spy: &Client,
        mark: &str,
    ) -> (BTreeSet<String>, BTreeSet<(String, String)>) {
        // Before the subscriptions exist, no message arrives.
        while !self.end_after_publishes(spy, mark).await {}
        assert!(self.end_after_publishes(spy, mark).await, "it does not hear what is its own");
        let heard = self
            .plain
            .iter_mut()
            .filter_map(|(subject, ear)| has_word(ear).then(|| subject.clone()));
        let heard = heard.collect();
        let shared =
            self.shared.iter_mut().filter_map(|(share, ear)| has_word(ear).then(|| share.clone()));
        (heard, shared.collect())
    }
}

fn has_word(ear: &mut Subscriber) -> bool {
    let mut has = false;
    // Messages that have arrived are available, whatever was read before.
    while let Some(Some(message)) = tokio::task::unconstrained(ear.next()).now_or_never() {
        has |= &*message.payload == b"word";
    }
    has
}

async fn probe(spy: &Client, key: &Client, (says_end, hears_end): (&str, &str)) -> AttemptResults {
    let said = says(spy, key, says_end).await;
    let (heard, shared) = Ears::open(key, hears_end).await.hear(spy, hears_end).await;
    let subjects = subjects().len();
    let tries = 2 * subjects + WIDE.len() + SHARED.len() * GROUPS.len();
    AttemptResults { published: said, received: heard, shared, tries }
}

fn set(subjects: &[&str]) -> BTreeSet<String> {
    subjects.iter().map(|subject| (*subject).to_owned()).collect()
}

/// Tries all permissions of a user. Asserts that the user has every permission in `own`. Returns
/// the results, and the permissions that the user has beyond `own`.
async fn tried(guarded: &Guarded, spy: &Client, own: &Own) -> (AttemptResults, Vec<String>) {
    let Own { user, says, hears, shares, marks } = own;
    let got = probe(spy, &guarded.user(user).await, *marks).await;
    let shares = shares.iter().map(|(s, g)| ((*s).to_owned(), (*g).to_owned())).collect();
    let hears_all = |(s, _): &&(String, String)| set(hears).contains(s);
    let shared: BTreeSet<_> =
        got.shared.iter().filter(|share| !hears_all(share)).cloned().collect();
    let mut beyond = Vec::new();
    for (what, found, own) in
        [("says", &got.published, set(says)), ("hears", &got.received, set(hears))]
    {
        let more: Vec<_> = found.difference(&own).collect();
        beyond.extend(more.iter().map(|subject| format!("{user} {what} {subject}")));
        let less: Vec<_> = own.difference(found).collect();
        assert!(less.is_empty(), "{user} needs {less:?}");
    }
    let shares: BTreeSet<(String, String)> = shares;
    beyond.extend(shared.difference(&shares).map(|share| format!("{user} shares {share:?}")));
    assert!(shared.is_superset(&shares), "{user} does not share {shares:?}");
    (got, beyond)
}

/// Returns the permissions that a user has beyond `own`.
pub async fn beyond(guarded: &Guarded, own: &Own) -> Vec<String> {
    tried(guarded, &guarded.spy().await, own).await.1
}

#[test]
fn every_key_opens_what_is_its_own_and_nothing_else() {
    let mut report = Campaign::new("every key against everything");
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (mut tries, mut allowed, mut beyond) = (0, 0, Vec::new());
    runtime.block_on(async {
        let spy = guarded.spy().await;
        // A user with all permissions gets every message through, so a missing message means a
        // missing permission.
        let all = probe(&spy, &guarded.spy().await, ("end", "end")).await;
        let missed: Vec<_> =
            subjects().into_iter().filter(|s| !all.published.contains(s)).collect();
        assert!(missed.is_empty(), "the probe does not see {missed:?}");
        assert_eq!(all.received.len(), subjects().len() + WIDE.len());
        assert_eq!(all.shared.len(), SHARED.len() * GROUPS.len());
        for own in EVERYBODY {
            // Each user is in its own account, where another user has all permissions.
            let spy = match own.user {
                "system" => guarded.overseer().await,
                _ => spy.clone(),
            };
            let (got, more) = tried(&guarded, &spy, &own).await;
            beyond.extend(more);
            tries += got.tries;
            allowed += got.published.len() + got.received.len() + got.shared.len();
        }
    });
    report.note(format!(
        "{} keys, {tries} tries: {allowed} were their own, {} beyond",
        EVERYBODY.len(),
        beyond.len()
    ));
    assert!(beyond.is_empty(), "{beyond:#?}");
}

#[test]
fn a_user_without_a_key_of_the_account_can_neither_publish_nor_subscribe() {
    let guarded = guarded();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert!(guarded.connect(NatsCredentials::Anonymous).await.is_err());
        let own = guarded.house.path("stranger.nk");
        std::fs::write(&own, nkeys::KeyPair::new_user().seed().unwrap()).unwrap();
        assert!(guarded.connect(NatsCredentials::Nkey(own)).await.is_err());
        let (spy, other) = (guarded.spy().await, guarded.neighbour().await);
        // In that account, they have all permissions.
        let got = probe(&other, &guarded.neighbour().await, ("end", "end")).await;
        assert_eq!(got.published.len(), subjects().len());
        let (mut here, mut there) = (everything(&spy).await, everything(&other).await);
        for subject in subjects() {
            spy.publish(subject.clone(), "here".into()).await.unwrap();
            other.publish(subject, "there".into()).await.unwrap();
        }
        // Twice, because after the second request the messages of the other side have arrived.
        for _ in 0..2 {
            let sides = [(&spy, &mut here, "here"), (&other, &mut there, "there")];
            for (client, all, own) in sides {
                client.publish("end", "end".into()).await.unwrap();
                loop {
                    let message = all.next().await.unwrap();
                    let what = String::from_utf8_lossy(&message.payload).into_owned();
                    assert!(!["here", "there"].contains(&&*what) || what == own, "{message:?}");
                    if what == "end" {
                        break;
                    }
                }
            }
        }
    });
}

/// A listener of the Rust kit with its key.
struct Kit {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Kit {
    fn start(guarded: &Guarded, listener: &str) -> Self {
        let servers = Options {
            servers: vec![guarded.server.address()],
            credentials: NatsCredentials::Nkey(guarded.seed(&format!("listener-{listener}"))),
            ca: None,
        };
        let place = NatsEndpoint::new(servers, "talk", ListenerName::parse(listener).unwrap());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { stopped.await.unwrap_or_default() };
        let thread = std::thread::spawn(move || {
            let answer = |request: &organism::listener::Request| {
                let text = request.payload();
                let text = text.replace("<say ", "<said ").replace("</say>", "</said>");
                Ok::<_, String>(Reply::raw(text))
            };
            Listener::new().otherwise(answer).serve_at(&place, stopped)
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

/// Subjects to which no sender may make a listener publish a reply.
const BAD: [&str; 12] = [
    "organism.journal.ORGANISM-talk.0",
    "$KV.ORGANISM-talk-pumps.0",
    "organism.talk.to.solo",
    "organism.talk.cancel.solo",
    "organism.talk.re.nobody.0123",
    "organism.talk.pump.7",
    "_INBOX.of.the.pump",
    "_INBOX_echo.abc",
    "$JS.API.STREAM.PURGE.ORGANISM-talk-0",
    "$JS.ACK.ORGANISM-talk-0.any.1.1.1.1.0",
    "$JS.FC.ORGANISM-talk-0.any.abc",
    "$SYS.REQ.SERVER.PING",
];

/// No user can make a listener publish to a chosen subject, although the sender of a request
/// chooses the reply subject and no server checks that choice.
#[test]
fn a_listener_cannot_make_another_publish_to_a_chosen_subject() {
    let mut report = Campaign::new("everything asked with an answer to elsewhere");
    let guarded = guarded();
    let house = &guarded.house;
    let kits = [Kit::start(&guarded, "echo"), Kit::start(&guarded, "solo")];
    let running = house.run();
    assert_eq!(house.send_text(&say("before"), &[]).out, talk_reply("before"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let tries = runtime.block_on(async {
        let spy = guarded.spy().await;
        let mut all = everything(&spy).await;
        let operator = guarded.user("operator").await;
        let mut told = operator.subscribe("_INBOX_operator.told").await.unwrap();
        let (mut tries, mut keys) = (0, Vec::new());
        let users = ["listener-echo", "listener-solo", "operator"];
        for user in users {
            let key = guarded.user(user).await;
            for subject in subjects() {
                for reply in BAD {
                    key.publish_with_reply(subject.clone(), reply, "probe".into()).await.unwrap();
                    tries += 1;
                }
            }
            let own = EVERYBODY.iter().find(|own| own.user == user).unwrap();
            key.publish(own.marks.0, "end".into()).await.unwrap();
            // A connection that is closed loses its unread messages.
            keys.push(key);
        }
        // With a permitted reply subject, every listener answers, after all other requests.
        let asking = async {
            loop {
                let own = "_INBOX_operator.told";
                operator.publish_with_reply("$SRV.PING.echo", own, "".into()).await.unwrap();
                let answer = tokio::time::timeout(Duration::from_millis(200), told.next()).await;
                if let Ok(Some(answer)) = answer {
                    return String::from_utf8(answer.payload.to_vec()).unwrap();
                }
            }
        };
        let answer = tokio::time::timeout(PATIENCE, asking).await.unwrap();
        assert!(answer.contains("ping_response"), "{answer}");
        let mut ends = 0;
        let seen = async {
            while ends < users.len() {
                let message = all.next().await.unwrap();
                ends += usize::from(&*message.payload == b"end");
                // Meanwhile the pump writes its journal and its lease, each with its own headers.
                let of_pump = message.headers.as_ref().is_some_and(|headers| {
                    headers.get("Nats-Expected-Stream").is_some()
                        || headers.get("Nats-Expected-Last-Subject-Sequence").is_some()
                });
                let bad = BAD.contains(&message.subject.as_str()) && !of_pump;
                assert!(!bad, "{message:?}");
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("the probe does not end");
        tries
    });
    report.note(format!("{tries} questions whose answer was to go elsewhere, 0 did"));
    // All other requests still succeed.
    assert_eq!(house.send_text(&say("after"), &[]).out, talk_reply("after"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
    kits.into_iter().for_each(Kit::end);
}
