//! The live channel of agents that run in separate processes.

use super::super::live::LiveTail;
use super::super::provider::{Provider, ScriptedResponse};
use super::{Hosting, Slow, finish, host_with_key, house_with, say, sending, server};

/// Reads up to the end of a model call. Returns the text of the call.
fn text_of_call(tail: &mut LiveTail) -> String {
    let mut all = String::new();
    loop {
        let event = tail.find(|event| event["live"].is_string());
        match event["live"].as_str() {
            Some("text") => all += event["text"].as_str().unwrap(),
            Some("model") if event["state"] == "ended" => return all,
            _ => {}
        }
    }
}

#[test]
fn a_remote_agents_text_arrives_whole_before_the_end_of_its_call() {
    let words = "word ".repeat(2000);
    let answer = ScriptedResponse::text(&format!("{words}at last"));
    let provider = Provider::start(vec![answer; 60]);
    let models = format!("{}\n[models.recorded]", provider.model("live", ""));
    let server = server();
    let house = house_with(&server, &[("MODEL", "live"), ("[models.recorded]", &models)]);
    let running = house.run();
    let _host = Hosting::start(&house, "host.log", &["--only", "writer"]);
    let mut tail = LiveTail::start(&house, &[]);
    let mut next_text = || {
        let sent = house.send_text(&say("write"), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        text_of_call(&mut tail)
    };

    // The host sends no text until it knows that someone watches, nor after a long pause of the pump.
    let mut whole = 0;
    for _ in 0..60 {
        let text = next_text();
        let is_whole = text.contains(&words) && text.contains("at last");
        whole = if is_whole { whole + 1 } else { 0 };
        if whole == 5 {
            break;
        }
    }
    assert_eq!(whole, 5, "calls in a row whose text arrived whole");
    assert_eq!(running.stop(), Some(0));
}

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
    let mut last_state = model["state"].clone();
    loop {
        let event = tail.find(|event| event["live"] == "model" || event["live"] == "text");
        if event["live"] == "text" {
            break;
        }
        assert_ne!(event["state"], last_state, "a state is reported once: {event}");
        last_state = event["state"].clone();
    }
    tail.find_text("word word word ");

    host.kill();
    tail.find_end();
    assert_eq!(running.stop(), Some(0));
}

/// A killed host does not report the end of its model call. The client learns that its call waits
/// for another host, and no longer that it waits for the model.
#[test]
fn a_client_waits_for_no_model_of_a_killed_host() {
    let server = server();
    let model = Slow::start("never sent");
    let models = model.model();
    let budget = "timeout = \"10s\"";
    let changes = [("MODEL", "live"), ("[models.recorded]", &*models), ("BUDGET", budget)];
    let house = house_with(&server, &changes);
    let running = house.run();
    let mut host = host_with_key(&house, "host.log");
    let sent = sending(&house);
    model.wait_for_requests(1);
    host.kill();

    // The attempt fails after 5 s, and the call only after the next report about the model is due.
    let sent = finish(sent);
    assert!(sent.out.contains("could not be reached within 10 s"), "{sent:?}");
    assert!(sent.err.contains("a call to writer waits for a process that takes it"), "{sent:?}");
    assert!(!sent.err.contains(", 8 s so far"), "{sent:?}");
    let log = house.log();
    let warning = "no replica of writer is connected to NATS: start `organism host`";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert_eq!(running.stop(), Some(0));
}
