//! The live channel of several pumps.

use super::super::live::{LiveTail, OperatorKeyFiles, signing};
use super::super::provider::{Provider, ScriptedResponse};
use super::{CommandOutput, House, PARTITIONS, config, root, run, say};
use crate::nats::Server;

const AGENT: &str = r#"
[agents.writer]
model = "live"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
"#;

/// Two hosts that run, and one without an organism of its own, with an operator's key.
fn houses(server: &Server, provider: &Provider) -> [House; 3] {
    let config = config(server, PARTITIONS).replace("peers = [\"echo\",", "peers = [\"writer\",");
    let config = format!("{config}{AGENT}{}", provider.model("live", ""));
    let elsewhere = House::settled(&config);
    let keys = OperatorKeyFiles::make(&elsewhere);
    let config = format!("{config}\n{}\n", keys.operators);
    elsewhere.write("organism.toml", &config);
    [House::settled(&config), House::settled(&config), elsewhere]
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
    signed.child.kill().unwrap();
    signed.child.wait().unwrap();

    // A stop would wait for the model, which never ends.
    drop(running);
}
