//! Conversations that exceed the limits of one request, from the config to the answers that clients
//! get.

use super::{House, say, talk_reply};

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
messages = 4
model_calls = 2
per_request_tokens = 100000

[clients.desk]
peers = ["echo", "writer"]

[clients.errands]
peers = ["echo"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
client = "errands"

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["ping"]
final = "pong"

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

fn house() -> House {
    let house = House::with(CONFIG);
    let turn = |number: u32| {
        format!(
            "[[turn]]\nagent = \"writer\"\nturn = {number}\ntext = '''\n\
             <pong xmlns=\"urn:example:talk\"><n>1</n></pong>'''\n"
        )
    };
    let turns: String = (1..=5).map(turn).collect();
    house.write("turns.toml", format!("recorded = \"for a test\"\n\n{turns}"));
    house
}

#[test]
fn a_conversation_outlives_the_messages_and_model_calls_of_one_request() {
    let house = house();
    let ping = super::numbered("ping", "1");
    let first = house.send_text(&ping, &["--new", "sess-longchat"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    for _ in 0..4 {
        let sent = house.send_text(&ping, &["--thread", "sess-longchat"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(house.recorded("pong"), 5);
    let checked = house.organism(&["check"]).out;
    assert!(checked.contains("100000 tokens each request"), "{checked}");
    house.verified();
}

#[test]
fn a_conversation_of_a_listeners_own_client_ends_with_its_messages() {
    let house = house();
    let send = |client: &str, arguments: &[&str]| {
        house.write("say.xml", say("hello"));
        let all = [&["send", "say.xml", "--as", client], arguments].concat();
        house.organism(&all)
    };
    for (client, thread) in [("desk", "sess-desk0000"), ("errands", "sess-errands0")] {
        for arguments in [["--new", thread], ["--thread", thread]] {
            let sent = send(client, &arguments);
            assert_eq!((sent.code, sent.out.as_str()), (Some(0), talk_reply("hello").as_str()));
        }
    }
    let renewed = send("desk", &["--thread", "sess-desk0000"]);
    assert_eq!(renewed.code, Some(0), "{renewed:?}");
    let spent = send("errands", &["--thread", "sess-errands0"]);
    assert_eq!(spent.code, Some(65), "{spent:?}");
    assert!(spent.err.contains("has used all its messages"), "{spent:?}");
    house.verified();
}
