//! The live channel of agents that run in separate processes.

use super::super::live::LiveTail;
use super::super::provider::{Provider, ScriptedResponse};
use super::{Hosting, house_with, say, server};

#[test]
fn a_remote_agent_streams_to_those_who_watch_until_its_host_is_killed() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let models = format!("{}\n[models.recorded]", provider.model("live", ""));
    let server = server();
    let house = house_with(&server, &[("MODEL", "live"), ("[models.recorded]", &models)]);
    let running = house.run();
    let mut host = Hosting::start(&house, "host.log", &["--only", "writer"]);
    let sent = house.send_text(&say("write"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    // The model writes before anybody watches, and goes on.
    provider.sends(1);

    let mut tail = LiveTail::start(&house, &[]);
    let model = tail.find(|event| event["live"] == "model");
    assert_eq!(model["agent"], "writer", "{model}");
    assert_eq!(model["streams"], true, "{model}");
    tail.find_text("word word word ");

    host.kill();
    tail.find_end();
    assert_eq!(running.stop(), Some(0));
}
