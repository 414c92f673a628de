//! Credentials without a necessary permission. The error names the missing permission to the
//! operator.

use futures_util::StreamExt as _;
use organism::nats::{HeaderMap, NatsCredentials, Subscriber};
use tokio::runtime::Runtime;

use super::super::{House, Running, say, talk_reply, until};
use super::tls::{Echo, Solo, Way, ask, assert_refused};
use super::{CONFIG, Guarded, guarded, guarded_of};
use crate::bus::kit::delivery;
use crate::bus::kit_language::KitLanguage;

/// A permission of a user.
#[derive(Debug)]
struct Right<'r> {
    user: &'r str,
    /// The operation: `publish` or `subscribe`.
    to: &'r str,
    subject: &'r str,
}

/// Removes a permission while `look` runs.
fn without<T>(guarded: &Guarded, right: &Right<'_>, look: impl FnOnce() -> T) -> T {
    let path = guarded.house.path("nats/accounts.conf");
    let before = std::fs::read_to_string(&path).unwrap();
    guarded.with(|text| {
        let (head, own) = text.split_once(&format!("# {}\n", right.user)).unwrap();
        let (between, list) = own.split_once(&format!("{}: ", right.to)).unwrap();
        // Replaces the permission by a useless one, because the list must not be empty.
        let list = list.replacen(&format!("\"{}\"", right.subject), "\"of.no.use\"", 1);
        format!("{head}# {}\n{between}{}: {list}", right.user, right.to)
    });
    let seen = look();
    guarded.with(|_| before);
    seen
}

/// Starts an organism that must end before it is ready. Returns its exit code and output.
pub fn refused(house: &House) -> (Option<i32>, String) {
    let log = std::fs::File::create(house.path("log")).unwrap();
    let child = house.command(&["run"]).stderr(log).spawn().unwrap();
    let mut running = Running { child };
    let ended = until("it ends", || {
        assert!(!house.log().contains("is ready"), "{}", house.log());
        running.child.try_wait().unwrap()
    });
    (ended.code(), house.log())
}

#[test]
fn a_pump_that_lacks_a_right_it_cannot_do_without_says_which_and_does_not_start() {
    let guarded = guarded();
    let house = &guarded.house;
    let [stream, leases] = ["ORGANISM-talk-0", "KV_ORGANISM-talk-pumps"];
    let api = |verb: &str, stream: &str| format!("$JS.API.{verb}.{stream}");
    // In the order in which a first start needs the permissions.
    let needed = [
        ("subscribe", "_INBOX.>".to_owned()),
        ("publish", api("STREAM.INFO", leases)),
        ("publish", api("STREAM.CREATE", leases)),
        ("publish", api("STREAM.MSG.GET", leases)),
        ("publish", "$KV.ORGANISM-talk-pumps.partitions".to_owned()),
        ("publish", "$KV.ORGANISM-talk-pumps.0".to_owned()),
        ("publish", api("STREAM.INFO", stream)),
        ("publish", api("STREAM.CREATE", stream)),
        ("publish", "organism.journal.ORGANISM-talk.0".to_owned()),
        ("publish", api("STREAM.MSG.GET", stream)),
        ("subscribe", "organism.talk.re.>".to_owned()),
    ];
    for (to, subject) in &needed {
        let right = Right { user: "pump", to, subject };
        let (code, told) = without(&guarded, &right, || refused(house));
        assert_eq!(code, Some(69), "{right:?}: {told}");
        let (_, last) = told.trim_end().rsplit_once("organism: ").unwrap();
        for word in ["pump.nk", to, subject.trim_end_matches('>'), "nats-config"] {
            assert!(last.contains(word), "{right:?}, {word}: {told}");
        }
    }
    // With all permissions, the organism becomes ready.
    assert_eq!(house.run().stop(), Some(0));
}

#[test]
fn a_delivery_that_may_not_be_published_fails_by_what_is_lacking() {
    // No listener takes the delivery, so the call ends with its time-out.
    let config = CONFIG.replace("[listeners.echo]\n", "[listeners.echo]\ntimeout = \"3s\"\n");
    assert_ne!(config, CONFIG);
    let guarded = guarded_of(&config, &[], "sync_interval: always");
    let house = &guarded.house;
    let right = Right { user: "pump", to: "publish", subject: "organism.talk.to.*" };
    without(&guarded, &right, || {
        let running = house.run();
        let told = house.send_text(&say("hello"), &[]);
        assert_eq!(told.code, Some(1), "{told:?}");
        assert_eq!(running.stop(), Some(0));
    });
    for word in ["pump.nk", "publish to `organism.talk.to.echo`", "nats-config"] {
        assert!(house.log().contains(word), "{word}: {}", house.log());
    }
    let record = rusqlite::Connection::open(house.data().join("journal.db")).unwrap();
    let asked = "SELECT count(*) FROM step WHERE body LIKE '%publish to%'";
    let taken_back: u32 = record.query_row(asked, [], |row| row.get(0)).unwrap();
    assert!(taken_back > 0, "what was taken back is on record with its reason");
}

#[test]
fn a_running_pump_that_loses_a_permission_names_it_and_continues_once_it_is_restored() {
    let guarded = guarded();
    let house = &guarded.house;
    let _echo = Echo::start(&way(&guarded, "echo"));
    let running = house.run();
    assert_eq!(ask(house, &say("before"), "1"), talk_reply("before"));
    let subject = "organism.journal.ORGANISM-talk.0";
    let right = Right { user: "pump", to: "publish", subject };
    let waiting = without(&guarded, &right, || {
        let mut command = house.command(&["send", "-", "--as", "desk", "--key", "late"]);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, say("late").as_bytes()).unwrap();
        drop(input);
        until("it says so", || {
            house.log().contains(&format!("publish to `{subject}`")).then_some(())
        });
        child
    });
    let told = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(told.stdout).unwrap(), talk_reply("late"));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

fn way(guarded: &Guarded, listener: &str) -> Way {
    let credentials = NatsCredentials::Nkey(guarded.seed(&format!("listener-{listener}")));
    Way { address: guarded.server.address(), credentials, ca: None }
}

#[test]
fn a_listener_without_permissions_reports_them_and_exits_with_all_kits() {
    let guarded = guarded();
    let house = &guarded.house;
    let kits = [None].into_iter().chain(KitLanguage::ALL.map(Some));
    for kit in kits {
        let listener = if kit.is_some() { "solo" } else { "echo" };
        let user = format!("listener-{listener}");
        let to = format!("organism.talk.to.{listener}");
        let re = format!("organism.talk.re.{listener}");
        let shared = format!("{to} {listener}");
        for (what, subject, told) in
            [("subscribe", &shared, &to), ("publish", &format!("{re}.>"), &re)]
        {
            let right = Right { user: &user, to: what, subject };
            let way = way(&guarded, listener);
            without(&guarded, &right, || match kit {
                None => {
                    let said = Echo::start(&way).refused();
                    assert!(said.contains(told) && said.contains("nats-config"), "{said}");
                }
                Some(language) => {
                    let (code, said) = Solo::start(language, house, &way).refused(house);
                    assert!(said.contains(told), "{right:?}, {told}: {said}");
                    assert_refused((code, said), "nats-config");
                }
            });
        }
    }
}

/// The servers deny a program with a wrong key almost everything. Its log has one line, which names
/// the subject of the deliveries.
#[test]
fn a_kit_with_the_key_of_another_user_names_the_right_to_its_deliveries_alone() {
    let guarded = guarded();
    let way = way(&guarded, "echo");
    for language in KitLanguage::ALL {
        let (code, log) = Solo::start(language, &guarded.house, &way).refused(&guarded.house);
        assert_eq!(log.lines().count(), 1, "{language:?}: {log}");
        let denied = log.to_lowercase().contains("subscription to \"organism.talk.to.solo\"");
        assert!(denied, "{language:?}: {log}");
        let advice = "whether the organism is called talk and this is the key of its listener solo";
        assert_refused((code, log), advice);
    }
}

/// The program ends after its handlers, which may work for hours.
#[test]
fn a_kit_that_loses_the_right_to_its_deliveries_logs_it_before_its_handler_ends() {
    let guarded = guarded();
    let house = &guarded.house;
    let way = way(&guarded, "solo");
    let right =
        Right { user: "listener-solo", to: "subscribe", subject: "organism.talk.to.solo solo" };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for language in KitLanguage::ALL {
        let reply = format!("organism.talk.re.solo.{language:?}");
        let (spy, mut sent) = runtime.block_on(async {
            let spy = guarded.spy().await;
            let sent = spy.subscribe("organism.talk.re.solo.>").await.unwrap();
            spy.flush().await.unwrap();
            (spy, sent)
        });
        let _solo = Solo::start_program("obedient", language, house, &way);
        runtime.block_on(async {
            // The listener announces itself when it has subscribed.
            sent.next().await.unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("Organism-Messages", "1");
            let delivery = delivery(&["<do xmlns=\"urn:test\">stuck</do>"]).into();
            let subject = "organism.talk.to.solo";
            spy.publish_with_reply_and_headers(subject, reply.clone(), headers, delivery)
                .await
                .unwrap();
            while sent.next().await.unwrap().subject.as_str() != reply {}
        });
        without(&guarded, &right, || {
            until("its log names the right", || {
                let log = std::fs::read_to_string(house.path("solo.log")).unwrap();
                log.contains("is the key of its listener solo").then_some(())
            });
        });
    }
}

/// Waits for the next report of a denied operation. Returns the subject and the text of the report.
fn next_report(runtime: &Runtime, reports: &mut Subscriber) -> (String, String) {
    let report = runtime.block_on(reports.next()).expect("a report");
    (report.subject.to_string(), String::from_utf8(report.payload.to_vec()).unwrap())
}

/// Sum of the counts of the records about operations that were denied to a listener.
fn recorded_denials(house: &House, listener: &str) -> u64 {
    let exported = house.organism(&["export", "--format", "jsonl"]).json();
    let payloads = exported.iter().filter_map(|line| line["payload"].as_str());
    let own =
        format!("<listener-denied xmlns=\"{}\" name=\"{listener}\"", organism::system::NAMESPACE);
    let counts = payloads.filter(|payload| payload.starts_with(&own)).map(|payload| {
        let (_, count) = payload.split_once("count=\"").unwrap();
        count.split('"').next().unwrap().parse::<u64>().unwrap()
    });
    counts.sum()
}

#[test]
fn what_a_server_denies_to_a_listener_of_any_kit_is_on_record() {
    let guarded = guarded();
    let house = &guarded.house;
    let running = house.run();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut reports = runtime.block_on(async {
        let spy = guarded.spy().await;
        let reports = spy.subscribe("organism.talk.re.*.denied").await.unwrap();
        spy.flush().await.unwrap();
        reports
    });

    for kit in [None].into_iter().chain(KitLanguage::ALL.map(Some)) {
        let listener = if kit.is_some() { "solo" } else { "echo" };
        let user = format!("listener-{listener}");
        // nats-py reports a denied subject in lowercase letters.
        let subject = match kit {
            Some(KitLanguage::Python) => "$SRV.PING".to_owned(),
            _ => format!("organism.talk.cancel.{listener}"),
        };
        let right = Right { user: &user, to: "subscribe", subject: &subject };
        let way = way(&guarded, listener);
        let expected =
            (format!("organism.talk.re.{listener}.denied"), format!("subscribe {subject}"));
        without(&guarded, &right, || {
            let _rust = kit.is_none().then(|| Echo::start(&way));
            let _other = kit.map(|language| Solo::start(language, house, &way));
            assert_eq!(next_report(&runtime, &mut reports), expected, "{kit:?}");
            if kit == Some(KitLanguage::Python) {
                until("its log names the subject as it used it", || {
                    let log = std::fs::read_to_string(house.path("solo.log")).unwrap();
                    log.contains(&subject).then_some(())
                });
            }
        });
    }

    until("each report is on record", || {
        let counts = [recorded_denials(house, "echo"), recorded_denials(house, "solo")];
        (counts[0] >= 1 && counts[1] >= 2).then_some(())
    });
    let thread = house.organism(&["thread", "sess-organism"]);
    assert!(thread.out.contains("listener-denied"), "{thread:?}");
    assert!(thread.out.contains("subscribe organism.talk.cancel.solo"), "{thread:?}");
    assert!(thread.out.contains("subscribe $SRV.PING"), "{thread:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
