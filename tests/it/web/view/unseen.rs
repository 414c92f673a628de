//! The page of a prompt states which messages the model did not get.

use super::{ViewServer, text_of};
use crate::organism::{House, TALK};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["order"]
final = "done"
peers = ["echo"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = '<say xmlns="urn:example:talk">hello</say>'

[[turn]]
agent = "writer"
turn = 2
text = '<clear-context keep="1"/>'

[[turn]]
agent = "writer"
turn = 3
text = '<done xmlns="urn:example:talk"><n>1</n></done>'
"#;

#[test]
fn the_page_of_a_prompt_names_what_a_cleared_window_hides() {
    let house = House::with(CONFIG);
    house.write("turns.toml", TURNS);
    let order = format!("<order xmlns=\"{TALK}\"><n>1</n></order>");
    let sent = house.send_text(&order, &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let view = ViewServer::start(&house, &[]);
    let message = |payload: &str| {
        let sql = format!("SELECT id FROM message WHERE payload = '{payload}' LIMIT 1");
        house.organism(&["sql", "--json", &sql]).json()[0]["id"].as_str().unwrap().to_owned()
    };
    let section = |payload: &str| {
        // The prompt names the namespaces of the core.
        let page = view.get(&format!("/messages/{}/prompt", message(payload))).body;
        let text = page.split("id=\"unseen\"").nth(1).unwrap().split("<h2").next().unwrap();
        (page.clone(), text.to_owned())
    };

    let (_, first) = section("say");
    assert!(first.contains("Nothing: the prompt shows every earlier message"), "{first}");
    let (page, last) = section("done");
    let text = text_of(&last);
    for part in ["2 messages: the agent had cleared its window", "model-turn", "say", "cleared"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(last.contains(&format!("/messages/{}", message("say"))), "{last}");
    assert!(page.contains("the record names this digest"), "{page}");
    let page = view.page(&format!("/messages/{}", message("done")));
    assert!(page.contains("#unseen"), "the page of the message leads there: {page}");
}
