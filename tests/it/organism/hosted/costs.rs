//! Costs of the model calls of agents in separate processes.

use super::super::model_calls::{THREAD, broken, charged, end, records, reserved, sending};
use super::super::provider::{Provider, ScriptedResponse};
use super::super::{House, say, until};
use super::{Hosting, Server, house_with, server};

fn house(server: &Server, provider: &Provider, lines: &str) -> House {
    let models = provider.model("live", "max_tokens = 1000") + "\n[models.recorded]";
    house_with(server, &[("MODEL", "live"), ("BUDGET", lines), ("[models.recorded]", &models)])
}

fn host(house: &House, log: &str) -> Hosting {
    Hosting::start(house, log, &["--only", "writer"])
}

/// Design 5.29: if a call of an agent behind NATS is cancelled, the stream of the model call is
/// closed, and the part of the answer that has arrived is charged.
#[test]
fn a_cancelled_call_of_a_hosted_agent_closes_its_stream_and_is_charged_for_what_it_received() {
    let server = server();
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let house = house(&server, &provider, "");
    let running = house.run();
    let _hosting = host(&house, "host");
    let sent = sending(&house);
    provider.sends(10);

    assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
    assert_eq!(end(sent).code, Some(1));
    provider.is_left(1);
    assert_eq!(running.stop(), Some(0));

    let records = records(&house);
    let (reason, spent) = broken(&records);
    assert_eq!(reason, "cancelled", "the agent itself ended it, not its host");
    assert!(spent.tokens > 0 && spent.tokens < reserved(&records)[0].tokens, "{spent:?}");
    house.verified();
}

/// Design 5.30: if the host of an agent dies, the use of the agent's model call is unknown, and the
/// whole reservation is charged.
#[test]
fn after_the_death_of_its_host_a_model_call_is_charged_its_whole_reservation() {
    let server = server();
    let provider =
        Provider::start(vec![ScriptedResponse::Trickle, ScriptedResponse::text("at last")]);
    let house = house(&server, &provider, "");
    let running = house.run();
    let mut doomed = host(&house, "first");
    let sent = sending(&house);
    provider.sends(3);
    let _other = host(&house, "second");
    doomed.kill();

    assert_eq!(end(sent).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let records = records(&house);
    let reserved = reserved(&records);
    assert_eq!(reserved.len(), 2, "{reserved:?}");
    assert_eq!(charged(&records), [reserved[0]]);
    house.verified();
}

/// If the pump stops during a turn, the host closes the turn's stream, because nothing waits for the
/// answer any more.
#[test]
fn a_stop_of_the_pump_closes_the_stream_of_a_hosted_agent() {
    let server = server();
    let provider =
        Provider::start(vec![ScriptedResponse::Trickle, ScriptedResponse::text("at last")]);
    let house = house(&server, &provider, "");
    let running = house.run();
    let _hosting = host(&house, "host");
    let sent = house.send_text(&say("write"), &["--no-wait", "--new", THREAD]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    provider.sends(3);
    assert_eq!(running.stop(), Some(0));
    provider.is_left(1);

    let running = house.run();
    until("it is answered", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    let records = records(&house);
    assert_eq!(charged(&records), [reserved(&records)[0]], "the pump had given the attempt up");
    house.verified();
}

/// Design 4.24: over NATS, a stream that makes progress is not cut at the agent's time-out.
#[test]
fn a_live_stream_of_a_hosted_agent_is_not_cut_at_its_time_out() {
    let server = server();
    let answer = "<said xmlns=\"urn:example:talk\">after all</said>".to_owned();
    let provider = Provider::start(vec![ScriptedResponse::Slowly(250, answer)]);
    let house = house(&server, &provider, "timeout = \"3s\"");
    let running = house.run();
    let _hosting = host(&house, "host");

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains("after all"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(provider.requests(), 1);
}
