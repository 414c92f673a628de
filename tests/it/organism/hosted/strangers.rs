//! Rights and limits of a process with the key of an agent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use organism::bus::nats::ListenerSubjects;
use organism::ids::ListenerName;
use organism::limits;
use organism::nats::{Client, HeaderMap, Message, Request, Subscriber, connect, connect_with};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::super::{House, PATIENCE, Running, talk_reply, until};
use super::{finish, house, sending, server};
use crate::nats::Server;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Records the requests that hosts of the agent `writer` send.
pub struct Asks {
    requests: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

pub fn asks(server: &Server) -> Asks {
    let (runtime, asked) = (runtime(), Arc::new(Mutex::new(Vec::new())));
    let heard = Arc::clone(&asked);
    runtime.block_on(async {
        let client = connect(&server.options(), "spy").await.unwrap();
        let mut all = client.subscribe("organism.talk.re.writer.>").await.unwrap();
        client.flush().await.unwrap();
        tokio::spawn(async move {
            while let Some(message) = all.next().await {
                let headers = message.headers.unwrap_or_default();
                let asked = headers.get("Organism-Ask").map(|what| what.as_str().to_owned());
                heard.lock().unwrap().extend(asked);
            }
        });
    });
    Asks { requests: asked, _runtime: runtime }
}

impl Asks {
    pub fn stop(self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A process that takes the deliveries for the writer and publishes arbitrary messages.
struct Stranger {
    client: Client,
    deliveries: Subscriber,
}

impl Stranger {
    async fn at(server: &Server) -> Self {
        let inbox = Some("_INBOX_writer");
        let (client, _) = connect_with(&server.options(), "stranger", inbox).await.unwrap();
        let subjects = ListenerSubjects::new("talk", &ListenerName::parse("writer").unwrap());
        let deliveries = client.queue_subscribe(subjects.deliveries(), "writer".to_owned());
        let deliveries = deliveries.await.unwrap();
        client.flush().await.unwrap();
        Self { client, deliveries }
    }

    async fn next(&mut self) -> Message {
        timeout(PATIENCE, self.deliveries.next()).await.expect("nothing came").unwrap()
    }

    async fn ask(&self, subject: &str, headers: &[(&'static str, &str)], body: &str) -> Message {
        let mut map = HeaderMap::new();
        headers.iter().for_each(|(name, value)| map.insert(*name, *value));
        let request = Request::new().headers(map).payload(body.to_owned().into());
        self.client.send_request(subject.to_owned(), request).await.unwrap()
    }

    async fn lease(&self, subject: &str, seconds: &str) {
        let mut headers = HeaderMap::new();
        headers.insert("Organism-Lease", seconds);
        let said = self.client.publish_with_headers(subject.to_owned(), headers, "".into());
        said.await.unwrap();
    }

    async fn thread(&self, subject: &str) -> Message {
        self.ask(subject, &[("Organism-Ask", "thread"), ("Organism-Offset", "0")], "").await
    }

    async fn answer(&self, subject: &str, answer: &str) -> Message {
        let size = answer.len().to_string();
        let headers =
            [("Organism-Ask", "answer"), ("Organism-Offset", "0"), ("Organism-Size", &size)];
        self.ask(subject, &headers, answer).await
    }
}

fn code(message: &Message) -> Option<&str> {
    Some(message.headers.as_ref()?.get("Nats-Service-Error-Code")?.as_str())
}

fn text(message: &Message) -> String {
    String::from_utf8(message.payload.to_vec()).unwrap()
}

fn reply(message: &Message) -> String {
    message.reply.as_ref().unwrap().to_string()
}

fn header(message: &Message, name: &'static str) -> String {
    message.headers.as_ref().unwrap().get(name).unwrap().to_string()
}

/// A turn for `delivery` with the text `text`, in the form of an answer.
fn turn(delivery: &Message, text: &str) -> String {
    forged_turn(delivery, text, &[])
}

/// A turn as [`turn`] makes it. Its note has the attributes `forged` in place of its own.
fn forged_turn(delivery: &Message, text: &str, forged: &[(&str, &str)]) -> String {
    let call = header(delivery, "Organism-Call");
    let position = header(delivery, "Organism-Position");
    let mut attributes = BTreeMap::from([
        ("agent", "writer"),
        ("call", &call),
        ("turn", "1"),
        ("iteration", "1"),
        ("position", &position),
        ("transport", "xml"),
        ("provider", "p"),
        ("model", "m"),
        ("renderer", "3"),
        ("stop", "normal"),
        ("tokens_in", "1"),
        ("tokens_out", "1"),
        ("latency_ms", "1"),
    ]);
    attributes.extend(forged.iter().copied());
    let attributes = attributes.iter().map(|(name, value)| format!(" {name}=\"{value}\""));
    let attributes: String = attributes.collect();
    let note = format!(
        "<model-turn xmlns=\"https://xml-pipeline.org/ns/core/v1\"{attributes}>\
         <raw>{text}</raw></model-turn>"
    );
    let payload = format!("<said xmlns=\"urn:example:talk\">{text}</said>");
    let turn = json!({ "note": note, "findings": [], "broken": [], "tokens_in": 1,
        "tokens_out": 1, "spent": null });
    json!({ "outcome": { "payloads": [payload], "turn": turn } }).to_string()
}

fn setting() -> (Server, House, Running, Runtime) {
    let server = server();
    let house = house(&server);
    let running = house.run();
    (server, house, running, runtime())
}

#[test]
fn a_thread_is_sent_only_to_the_host_of_its_open_turn() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let sent = sending(&house);
    runtime.block_on(async {
        let first = stranger.next().await;
        assert!(first.payload.is_empty(), "its memory is the thread: {first:?}");
        let own = reply(&first);
        let told = stranger.thread(&own).await;
        assert!(text(&told).contains(">write</say>") && code(&told).is_none(), "{told:?}");
        let size = header(&told, "Organism-Size");
        assert_eq!(size, told.payload.len().to_string());
        let beyond = [("Organism-Ask", "thread"), ("Organism-Offset", "99999999")];
        assert_eq!(code(&stranger.ask(&own, &beyond, "").await), Some("400"));
        let odd = stranger.ask(&own, &[("Organism-Ask", "everything")], "").await;
        assert_eq!(code(&odd), Some("400"));

        let (pump, _) = own.rsplit_once('.').unwrap();
        for guessed in ["0123456789abcdef0123456789abcdef", "0", "no-token"] {
            let told = stranger.thread(&format!("{pump}.{guessed}")).await;
            assert_eq!((code(&told), text(&told).as_str()), (Some("410"), ""), "{guessed}");
        }
        // After the attempt is given up, another host has the turn.
        stranger.lease(&own, "2").await;
        let second = stranger.next().await;
        stranger.lease(&reply(&second), "60").await;
        assert_eq!(header(&second, "Organism-Attempt").rsplit('.').next(), Some("2"));
        let late = stranger.thread(&own).await;
        assert_eq!((code(&late), text(&late).as_str()), (Some("410"), ""), "{late:?}");
        let reservation = r#"{"tokens":1,"money":0,"counted":true}"#;
        let late = stranger.ask(&own, &[("Organism-Ask", "reserve")], reservation).await;
        assert_eq!(code(&late), Some("410"));

        let done = stranger.answer(&reply(&second), &turn(&second, "done")).await;
        assert_eq!(code(&done), None, "{done:?}");
        let over = stranger.thread(&reply(&second)).await;
        assert_eq!(code(&over), Some("410"));
    });
    let told = finish(sent);
    assert_eq!((told.code, told.out), (Some(0), talk_reply("done")), "{}", told.err);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_transfer_holds_only_the_thread_of_the_turn() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let order = "<order xmlns=\"urn:example:talk\"><n>the-secret-of-the-parent</n></order>";
    let sent = house.send_text(order, &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    runtime.block_on(async {
        let delivery = stranger.next().await;
        let thread = header(&delivery, "Organism-Thread");
        assert!(thread.ends_with(".part"), "{thread}");
        let told = text(&stranger.thread(&reply(&delivery)).await);
        assert!(told.contains(">your part</say>"), "{told}");
        for foreign in ["the-secret-of-the-parent", "planner turn", "<model-turn", "spawn-thread"] {
            assert!(!told.contains(foreign), "{foreign}: {told}");
        }
    });
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_host_is_sent_what_is_new_and_the_whole_thread_if_it_has_that_of_another_journal() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let sent = sending(&house);
    runtime.block_on(async {
        let delivery = stranger.next().await;
        let own = reply(&delivery);
        let whole = stranger.thread(&own).await;
        assert!(text(&whole).contains(">write</say>"), "{whole:?}");
        assert_eq!(header(&whole, "Organism-After"), "0");
        let mark = header(&whole, "Organism-Thread-Mark");
        let position = header(&delivery, "Organism-Position");

        let ask = async |after: &str, mark: &str| {
            let known = [
                ("Organism-Ask", "thread"),
                ("Organism-Offset", "0"),
                ("Organism-After", after),
                ("Organism-Thread-Mark", mark),
            ];
            stranger.ask(&own, &known, "").await
        };
        let rest = ask(&position, &mark).await;
        assert_eq!((text(&rest).as_str(), code(&rest)), ("", None), "{rest:?}");
        assert_eq!(header(&rest, "Organism-After"), position);
        assert_eq!(header(&rest, "Organism-Thread-Mark"), mark);

        // The mark is of another journal or of an earlier run of the pump.
        let other = mark.chars().rev().collect::<String>();
        for (after, mark) in [(&*position, &*other), ("99999999", &*mark), ("1", &*mark)] {
            let told = ask(after, mark).await;
            assert_eq!(text(&told), text(&whole), "{after} {mark}");
            assert_eq!(header(&told, "Organism-After"), "0");
        }
        for (after, mark) in [("x", &*mark), (&*position, "x"), (&*position, "")] {
            assert_eq!(code(&ask(after, mark).await), Some("400"), "{after} {mark}");
        }
        drop(running);
        let running = house.run();
        let delivery = stranger.next().await;
        let own = reply(&delivery);
        let known = [
            ("Organism-Ask", "thread"),
            ("Organism-Offset", "0"),
            ("Organism-After", &*position),
            ("Organism-Thread-Mark", &*mark),
        ];
        let told = stranger.ask(&own, &known, "").await;
        assert_eq!(text(&told), text(&whole), "payloads may have been taken out since that run");

        let done = stranger.answer(&own, &turn(&delivery, "done")).await;
        assert_eq!(code(&done), None, "{done:?}");
        assert_eq!(running.stop(), Some(0));
    });
    assert_eq!(finish(sent).code, Some(75), "its pump stopped while it waited");
    house.verified();
}

#[test]
fn responses_to_an_agent_host_go_to_its_inbox_and_nowhere_else() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let sent = sending(&house);
    runtime.block_on(async {
        let spy = connect(&server.options(), "spy").await.unwrap();
        let mut all = spy.subscribe(">").await.unwrap();
        spy.flush().await.unwrap();
        let delivery = stranger.next().await;
        let own = reply(&delivery);
        let bad = [
            "organism.talk.to.solo",
            "organism.talk.re.solo.here",
            "_INBOX.of.the.pump",
            "_INBOX_",
        ];
        for inbox in bad {
            let mut headers = HeaderMap::new();
            headers.insert("Organism-Ask", "thread");
            headers.insert("Organism-Offset", "0");
            let asked = stranger.client.publish_with_reply_and_headers(
                own.clone(),
                inbox,
                headers,
                "".into(),
            );
            asked.await.unwrap();
        }
        // Later requests are logged later.
        for _ in 0..20 {
            assert_eq!(code(&stranger.thread(&own).await), None);
        }
        stranger.answer(&own, &turn(&delivery, "done")).await;
        spy.publish("end", "".into()).await.unwrap();
        while let Some(message) = timeout(PATIENCE, all.next()).await.unwrap() {
            let subject = message.subject.to_string();
            assert!(!bad.contains(&subject.as_str()), "{message:?}");
            if subject == "end" {
                break;
            }
        }
    });
    assert_eq!(finish(sent).out, talk_reply("done"));
    // Of four refused requests, the third is not logged: somebody may send many.
    assert_eq!(house.log().matches("is not an inbox of this agent").count(), 3, "{}", house.log());
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_turn_whose_note_states_another_turn_is_refused() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let mut answered = |forged: &[(&str, &str)]| {
        let sent = sending(&house);
        runtime.block_on(async {
            let delivery = stranger.next().await;
            let turn = forged_turn(&delivery, "mine", forged);
            assert_eq!(code(&stranger.answer(&reply(&delivery), &turn).await), None);
            let another = forged_turn(&delivery, "ours", forged);
            let refused = stranger.answer(&reply(&delivery), &another).await;
            assert_eq!(code(&refused), Some("410"), "only the same answer is taken again");
        });
        finish(sent)
    };

    let other = "0198a7c2-0000-7000-8000-000000000001";
    let cases = [
        ("agent", "planner", "noted as another's"),
        ("call", other, "noted as another's"),
        ("position", "999999", "its note states position 999999"),
        ("recorded", other, "its note states a recorded answer"),
        ("turn", "-1", "its note states turn -1,"),
        ("iteration", "0", "its note states iteration 0,"),
        ("latency_ms", "soon", "its note states latency_ms soon,"),
    ];
    for (name, value, _) in cases {
        let told = answered(&[(name, value)]);
        assert!(told.out.contains("listener-failed"), "{name}: {told:?}");
    }
    assert_eq!(answered(&[]).out, talk_reply("mine"));

    let noted = super::record(&house);
    let count = |text: &str| noted.iter().filter(|fact| fact.contains(text)).count();
    for (_, _, reason) in cases {
        let expected = cases.iter().filter(|(_, _, other)| *other == reason).count();
        assert_eq!(count(reason), expected, "{reason}: {noted:?}");
    }
    assert_eq!(count("<model-turn "), 1);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_turn_that_is_charged_otherwise_than_its_note_states_is_refused() {
    const PRICED: &str = "\"money\":2000000,\"tokens_out\":1";
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let mut answered = |text: &str, other: &str, noted: &[(&str, &str)]| {
        let sent = sending(&house);
        runtime.block_on(async {
            let delivery = stranger.next().await;
            let turn = forged_turn(&delivery, text, noted);
            let turn = turn.replace("\"tokens_out\":1", other);
            // The response to an answer may be lost, so a correct host sends the answer again.
            let own = reply(&delivery);
            let (first, second) =
                tokio::join!(stranger.answer(&own, &turn), stranger.answer(&own, &turn));
            assert_eq!(code(&first), None);
            assert_eq!(code(&second), None);
        });
        finish(sent)
    };

    let many = u64::MAX.to_string();
    let counts = format!("\"tokens_out\":{many}");
    let costs = format!("\"money\":{many},\"tokens_out\":1");
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("\"tokens_out\":7", &[]),
        (counts.as_str(), &[("tokens_out", many.as_str())]),
        (PRICED, &[]),
        (PRICED, &[("cost", "0.003"), ("currency", "EUR")]),
        (PRICED, &[("cost", "0.002")]),
        (costs.as_str(), &[("cost", "18446744073.709551615"), ("currency", "EUR")]),
    ];
    for (other, noted) in cases {
        let told = answered("mine", other, noted);
        assert!(told.out.contains("listener-failed"), "{other} {noted:?}");
    }
    let priced = answered("mine", PRICED, &[("cost", "0.002"), ("currency", "EUR")]);
    assert_eq!(priced.out, talk_reply("mine"));
    // An answer of this size is parsed by another task, during which it may be sent again.
    let long = "x".repeat(limits::NATS_INLINE_CHECK_BYTES);
    assert_eq!(answered(&long, "\"tokens_out\":1", &[]).out, talk_reply(&long));

    let noted = super::record(&house);
    for reason in [
        "its turn counts 1 + 7 tokens, and its note states 1 + 1",
        "its turn counts 18446744073709551615 tokens and costs 0.00, and at most",
        "its turn counts 2 tokens and costs 18446744073.709551615, and at most",
        "its turn costs 0.002, and its note states 0.00;",
        "its turn costs 0.002, and its note states 0.003;",
        "its turn costs 0.002, and its note states no currency;",
    ] {
        let count = noted.iter().filter(|fact| fact.contains(reason)).count();
        assert_eq!(count, 1, "{reason}: {noted:?}");
    }
    assert!(!house.log().contains("no attempt in flight has this subject"), "{}", house.log());
    assert_eq!(running.stop(), Some(0));
}

/// Answers in forms that no agent sends are refused: payloads without a turn, and partial answers.
#[test]
fn an_answer_that_is_none_of_an_agent_is_not_taken() {
    let (server, house, running, runtime) = setting();
    let mut stranger = runtime.block_on(Stranger::at(&server));
    let sent = sending(&house);
    runtime.block_on(async {
        let own = reply(&stranger.next().await);
        let part = |offset: &'static str, size: &'static str| {
            [("Organism-Ask", "answer"), ("Organism-Offset", offset), ("Organism-Size", size)]
        };
        assert_eq!(code(&stranger.ask(&own, &part("5", "10"), "later").await), Some("409"));
        assert_eq!(code(&stranger.ask(&own, &part("0", "3"), "too long").await), Some("409"));
        let large = stranger.ask(&own, &part("0", "99999999999"), "x").await;
        assert_eq!(code(&large), Some("413"));
        let half = stranger.ask(&own, &part("0", "10"), "a half").await;
        assert_eq!(code(&half), None);
        let payload = "<said xmlns=\"urn:example:talk\">without a turn</said>";
        stranger.client.publish(own, payload.into()).await.unwrap();
    });
    let told = finish(sent);
    assert!(told.out.contains("listener-failed"), "{told:?}");
    until("it is on record", || {
        let noted = super::record(&house);
        noted
            .iter()
            .any(|fact| fact.contains("the answer of the agent cannot be decoded"))
            .then_some(())
    });
    assert_eq!(house.recorded("said"), 0);
    assert_eq!(running.stop(), Some(0));
}
