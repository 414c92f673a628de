//! The live channel of an organism with several pumps.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use organism::ids::ThreadId;
use organism::journal::HostSignature;
use organism::organism::OrganismClient;
use organism::service::{Error, LiveRequest};
use serde_json::{Value as Json, json};

use super::super::live::{
    LiveTail, OperatorKeyFiles, SECRET, STRANGE_SECRET, other_secret, signing, two_clients,
    with_secrets,
};
use super::super::provider::{Provider, ScriptedResponse};
use super::load::loaded;
use super::{CommandOutput, House, PARTITIONS, PATIENCE, command, config, root, run, say};
use crate::nats::Server;

const AGENT: &str = r#"
[agents.writer]
model = "live"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
"#;

/// Two hosts that run an organism, and a host that has an operator's key and runs no organism.
fn houses(server: &Server, provider: &Provider) -> [House; 3] {
    let config = config(server, PARTITIONS).replace("peers = [\"echo\",", "peers = [\"writer\",");
    let config = format!("{config}{AGENT}{}", provider.model("live", ""));
    let elsewhere = House::settled(&config);
    let keys = OperatorKeyFiles::make(&elsewhere);
    let config = format!("{config}\n{}\n", keys.operators);
    elsewhere.write("organism.toml", &config);
    let houses = [House::settled(&config), House::settled(&config), elsewhere];
    introduce([&houses[0], &houses[1]]);
    houses
}

/// Adds the keys of both hosts to `known_keys` in the config of each host.
fn introduce(houses: [&House; 2]) {
    let keys = houses.map(|house| house.organism(&["key", "show"]).out.trim().to_owned());
    for house in houses {
        let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
        let known = format!("[journal]\nknown_keys = {keys:?}\n");
        house.write("organism.toml", config.replace("[journal]\n", &known));
    }
}

fn write(house: &House, thread: &str) {
    let sent = house.send_text(&say("write"), &["--new", thread, "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn any_host_shows_what_models_write_in_every_partition_and_elsewhere_an_operators_key_does() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let server = Server::start();
    let [one, other, elsewhere] = houses(&server, &provider);
    let running = [run(&one, "0,1"), run(&other, "2,3")];
    let of = |thread: String| {
        move |event: &serde_json::Value| event["live"] == "text" && event["thread"] == *thread
    };

    let [near, far] = [root(2, 0), root(1, 0)];
    let mut all = LiveTail::start(&other, &[]);
    let mut thread = LiveTail::start(&other, &["--thread", &far]);
    write(&one, &far);
    write(&one, &near);
    all.find(of(near));
    all.find(of(far.clone()));
    thread.find_text("word word ");

    let tail = ["tail", "--live", "--json", "-n", "0"];
    for more in [[].as_slice(), &["--sign", "stranger.key"]] {
        let refused = signing(&elsewhere, &[&tail, more].concat()).output().unwrap();
        let refused = CommandOutput::from(refused);
        assert_eq!(refused.code, Some(69), "{refused:?}\n{}\n{}", one.log(), other.log());
        assert!(refused.err.contains("only operators") || refused.err.contains("of no operator"));
    }
    let args = [&tail[..], &["--sign", "ana.key", "--thread", &far]].concat();
    let mut signed = LiveTail::of(signing(&elsewhere, &args));
    signed.find_text("word word ");

    // A stop would wait for the model, which never ends.
    let [_one, mut other] = running;
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    for tail in [all, thread] {
        let ended = tail.end();
        assert_eq!(ended.code, Some(0), "it ends with the organism on its host: {ended:?}");
    }
}

/// Subscribes as a client. Returns the events up to the first one of the kind `last`.
fn watched(house: &House, request: Json, last: &str) -> Result<Vec<Json>, Error> {
    let request: LiveRequest = serde_json::from_value(request).unwrap();
    let config = loaded(house);
    let mut events = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = OrganismClient::open(config).await.unwrap();
        let following = client.follow_live(request, None, |event| {
            let event = serde_json::to_value(event).unwrap();
            let is_last = event["live"] == last;
            events.push(event);
            if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let followed = tokio::time::timeout(PATIENCE, following).await;
        followed.unwrap_or_else(|_| panic!("no event `{last}` came"))
    })?;
    Ok(events)
}

#[test]
fn over_nats_a_client_sees_texts_of_its_own_threads_by_its_secret() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let server = Server::start();
    let config = config(&server, PARTITIONS).replace("peers = [\"echo\",", "peers = [\"writer\",");
    let config = two_clients(&config, "steps = true\n");
    let plain = "[clients.plain]\npeers = [\"writer\"]\nsteps = true\n";
    let config = format!("{config}\n{plain}{AGENT}{}", provider.model("live", ""));
    let [one, other, elsewhere] = [(); 3].map(|()| House::settled(&config));
    let start =
        |house: &House, partitions| house.run_with(with_secrets(command(house, partitions)));
    let running = [start(&one, "0,1"), start(&other, "2,3")];
    one.write("say.xml", say("write"));
    let [of_desk, of_plain] = [root(2, 0), root(1, 0)];
    for (client, thread) in [("desk", &of_desk), ("plain", &of_plain)] {
        let send = ["send", "say.xml", "--as", client, "--no-wait", "--new", thread];
        let sent = one.organism(&send);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }

    let own = json!({"thread": of_desk, "client": "desk", "secret": SECRET});
    let events = watched(&elsewhere, own, "text").unwrap();
    assert_eq!(events[0], json!({"live": "opened", "text": true}));
    assert!(events.iter().all(|event| event["live"] == "opened" || event["thread"] == *of_desk));

    let other = other_secret();
    for (thread, client, secret, why) in [
        (&of_desk, "other", Some(&*other), "has no thread"),
        (&of_desk, "plain", None, "has no thread"),
        (&of_plain, "desk", Some(SECRET), "has no thread"),
        (&of_desk, "desk", Some(STRANGE_SECRET), "nothing proves here"),
        (&of_desk, "desk", None, "nothing proves here"),
    ] {
        let named = json!({"thread": thread, "client": client, "secret": secret});
        let refused = watched(&elsewhere, named, "text").unwrap_err().to_string();
        assert!(refused.contains(why), "{client}, {secret:?}: {refused}");
    }

    // Whoever has the key of the servers can name a client that has no secret.
    let unproved = json!({"thread": of_plain, "client": "plain"});
    let events = watched(&elsewhere, unproved, "model").unwrap();
    assert_eq!(events[0], json!({"live": "opened", "text": false}));

    // A stop would wait for the model, which never ends.
    drop(running);
}

/// Sends a live request over NATS that claims to be granted already, and asserts that the request
/// is refused. Returns the text of the refusal.
fn refusal_of(house: &House, request: &LiveRequest) -> String {
    let request = serde_json::to_value(request).unwrap();
    let refused = watched(house, request, "text").unwrap_err().to_string();
    assert!(refused.contains("unknown-caller"), "{refused}");
    refused
}

#[test]
fn a_pump_takes_no_judgement_of_a_host_that_it_does_not_know() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let server = Server::start();
    let config = config(&server, PARTITIONS).replace("peers = [\"echo\",", "peers = [\"writer\",");
    let config = format!("{config}{AGENT}{}", provider.model("live", ""));
    let [one, other, elsewhere] = [(); 3].map(|()| House::settled(&config));
    let running = [run(&one, "0,1"), run(&other, "2,3")];
    let [near, far] = [root(2, 0), root(1, 0)];

    let mut all = LiveTail::start(&other, &[]);
    write(&one, &far);
    write(&one, &near);

    // A program with the rights of a pump at the servers, and without the key of a known host.
    let claim = json!({"thread": far, "partition": 1, "granted": "text"});
    let mut claim: LiveRequest = serde_json::from_value(claim).unwrap();
    let unsigned = refusal_of(&elsewhere, &claim);
    assert!(unsigned.contains("only operators may see"), "{unsigned}");
    elsewhere.organism(&["key", "show"]);
    claim.host = HostSignature::new(&elsewhere.state(), &claim.judgement("talk")).unwrap();
    assert!(claim.host.is_some());
    let strange = refusal_of(&elsewhere, &claim);
    assert!(strange.contains("does not know that key"), "{strange}");

    // A known key, and a signature for another thread.
    claim.host = HostSignature::new(&one.state(), &claim.judgement("talk")).unwrap();
    let request = serde_json::to_value(&claim).unwrap();
    watched(&elsewhere, request, "text").unwrap();
    claim.host = HostSignature::new(&one.state(), &claim.judgement("talks")).unwrap();
    let another = refusal_of(&elsewhere, &claim);
    assert!(another.contains("wrong or too old"), "of another organism: {another}");
    claim.host = HostSignature::new(&one.state(), &claim.judgement("talk")).unwrap();
    claim.thread = Some(ThreadId::parse(&root(1, 1)).unwrap());
    let another = refusal_of(&elsewhere, &claim);
    assert!(another.contains("wrong or too old"), "{another}");

    let mut refused = BTreeSet::new();
    while refused.len() < 2 {
        let unwatched = all.find(|event| event["live"] == "unwatched");
        let detail = unwatched["detail"].as_str().unwrap();
        assert!(detail.contains("add it to known_keys"), "{detail}");
        refused.insert(unwatched["partition"].as_u64().unwrap());
    }
    assert_eq!(refused, BTreeSet::from([0, 1]));
    all.find(|event| event["live"] == "text" && event["thread"] == *near);
    // A stop would wait for the model, which never ends.
    drop(running);
}

#[test]
fn a_partition_that_nobody_pumps_is_named_until_it_has_a_pump() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let server = Server::start();
    let [one, other, _] = houses(&server, &provider);
    let first = one.run_with(command(&one, "0,1"));
    let mut all = LiveTail::start(&one, &[]);
    let unwatched = all.find(|event| event["live"] == "unwatched" && event["partition"] == 2);
    assert!(unwatched["detail"].as_str().unwrap().contains("no pump"), "{unwatched}");

    let second = run(&other, "2,3");
    let thread = root(2, 0);
    write(&other, &thread);
    all.find(|event| event["live"] == "lost");
    all.find(|event| event["live"] == "text" && event["thread"] == *thread);
    drop((first, second));
}
