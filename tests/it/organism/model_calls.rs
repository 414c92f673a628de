//! Costs of model calls with every kind of end, from the wire of the provider to the record.

use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Instant;

use organism::envelope::{AttemptFailure, Spending};
use organism::ids::Position;
use organism::thread::{Fact, Input, Record};

use super::provider::{Provider, ScriptedResponse, WORD};
use super::{CommandOutput, House, say, until};
use crate::web::page::Page;
use crate::web::view::{ViewServer, text_of};
use crate::web::{address, ask, listening};

pub const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "live"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
"#;

pub const THREAD: &str = "sess-writing0";

/// A house with a writer and these models. `lines` are added to the writer's section.
pub fn house(lines: &str, models: &str) -> House {
    House::with(&format!("{CONFIG}{lines}\n{models}"))
}

pub fn sending(house: &House) -> Child {
    let mut command = house.command(&["send", "-", "--as", "desk", "--new", THREAD]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(say("write").as_bytes()).unwrap();
    child
}

pub fn end(child: Child) -> CommandOutput {
    child.wait_with_output().unwrap().into()
}

pub fn records(house: &House) -> Vec<Record> {
    let reader = house.reader();
    let last = reader.last().unwrap();
    let sealed = reader.records(Position(1), last).unwrap();
    sealed.into_iter().map(|sealed| sealed.record).collect()
}

/// All recorded reservations, in order.
pub fn reserved(records: &[Record]) -> Vec<Spending> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let reserved = facts.filter_map(|fact| match fact {
        Fact::Reserved { spending, .. } => Some(*spending),
        _ => None,
    });
    reserved.collect()
}

/// All recorded charges for model calls that had no result.
pub fn charged(records: &[Record]) -> Vec<Spending> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let charged = facts.filter_map(|fact| match fact {
        Fact::Charged { spending, .. } => Some(*spending),
        _ => None,
    });
    charged.collect()
}

/// Failures of attempts, in order.
pub fn failures(records: &[Record]) -> Vec<AttemptFailure> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let failures = facts.filter_map(|fact| match fact {
        Fact::AttemptFailed { failure, .. } => Some(failure.clone()),
        _ => None,
    });
    failures.collect()
}

/// The only failure of a model call: its reason and its cost.
pub fn broken(records: &[Record]) -> (String, Spending) {
    let failures = failures(records);
    let [AttemptFailure::Model { reason, spent, .. }] = failures.as_slice() else {
        panic!("{failures:?}")
    };
    (reason.clone(), *spent)
}

/// Design 4.25: the reservation is a record of its own, which is durable before the first byte of
/// the answer.
#[test]
fn a_reservation_is_durable_before_its_request_leaves() {
    let provider = Provider::start(vec![ScriptedResponse::Slowly(1, "unread".to_owned())]);
    let house = house("", &provider.model("live", "attempts = 1"));
    let running = house.run();
    let sent = house.send_text(&say("write"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");

    provider.sends(1);
    let records = records(&house);
    let input = |record: &Record| matches!(record.input, Input::Reserved { .. });
    assert!(records.iter().any(input), "{records:#?}");
    drop(running);
}

/// The call of an earlier thread continues in the organism that records, and takes a turn with the
/// same number.
#[test]
fn a_recording_with_a_payload_contains_the_thread_of_this_payload() {
    let answers = ["one", "two"];
    let [first, second] = answers.map(ScriptedResponse::text);
    let provider = Provider::start(vec![ScriptedResponse::Stall(1), first, second]);
    let house = house("", &provider.model("live", ""));
    let mut running = house.run();
    let sent = house.send_text(&say("write"), &["--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    provider.sends(1);
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    house.write("say.xml", say("write"));
    let recorded = house.organism(&["record", "out.toml", "say.xml"]);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let answer = answers.into_iter().find(|answer| recorded.out.contains(answer)).unwrap();
    let recording = std::fs::read_to_string(house.path("out.toml")).unwrap();
    assert_eq!(recording.matches("[[turn]]").count(), 1, "{recording}");
    assert!(recording.contains(&format!(">{answer}<")), "{recording}");
}

/// Design 5.29: a call that is cancelled during its answer is charged, and its stream is closed.
#[test]
fn a_cancelled_call_closes_its_stream_and_is_charged_for_what_it_received() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let sent = sending(&house);
    provider.sends(10);

    assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
    assert_eq!(end(sent).code, Some(1));
    provider.is_left(1);
    assert_eq!(running.stop(), Some(0));

    let records = records(&house);
    let (reason, spent) = broken(&records);
    assert_eq!(reason, "cancelled", "the agent itself ended it, not its host");
    let words = provider.seen().words;
    let received = u64::try_from(9 * WORD.len() / 4).unwrap();
    assert!(spent.tokens > received, "{spent:?} for {words} words and the prompt");
    assert!(spent.tokens < reserved(&records)[0].tokens, "{spent:?}");
    assert_eq!(charged(&records), [], "what it took is known");
    assert_eq!(provider.requests(), 1);
    house.verified();
}

/// If a gateway ignores `stream: true`, the provider has generated the whole answer.
#[test]
fn a_long_whole_answer_in_place_of_a_stream_is_charged() {
    let text = "word ".repeat(4 << 10);
    let answer = format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}]}}"#);
    let headers = "Content-Type: application/json\r\n".to_owned();
    let provider = Provider::start(vec![ScriptedResponse::Status("200 OK", headers, answer)]);
    let house = house("", &provider.model("live", "attempts = 1"));
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let (reason, spent) = broken(&records(&house));
    assert_eq!(reason, "invalid-event");
    assert!(spent.tokens > 0, "{spent:?}");
    assert_eq!(provider.requests(), 1);
    house.verified();
}

/// A cancelled request is neither answered nor failed. The metrics count it with its duration.
#[test]
fn a_cancelled_request_is_counted_in_the_metrics() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(1)]);
    let house = House::with(&listening(&format!("{CONFIG}{}", provider.model("live", ""))));
    let running = house.run();
    let sent = sending(&house);
    provider.sends(1);
    assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
    assert_eq!(end(sent).code, Some(1));
    provider.is_left(1);

    let labels = [("agent", "writer"), ("model", "live")];
    let page = until("the request is counted", || {
        let page = Page::read(&ask(address(&house), "/metrics").body);
        (page.get("organism_model_call_seconds_count", &labels) == 1.0).then_some(page)
    });
    for (outcome, count) in [("answered", 0.0), ("failed", 0.0), ("cancelled", 1.0)] {
        let labels = [&labels[..], &[("outcome", outcome)]].concat();
        assert_eq!(page.get("organism_model_calls_total", &labels), count, "{outcome}");
    }
    assert_eq!(running.stop(), Some(0));
}

/// Design 5.29: if a stream stalls and the agent's time-out ends the call, the call is charged, and
/// its stream is closed.
#[test]
fn a_call_that_times_out_closes_its_stream_and_is_charged_for_what_it_received() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(10)]);
    let house = house("timeout = \"1s\"", &provider.model("live", ""));
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("code=\"timeout\""), "{sent:?}");
    provider.is_left(1);
    assert_eq!(running.stop(), Some(0));

    let (reason, spent) = broken(&records(&house));
    assert_eq!(reason, "cancelled");
    assert!(spent.tokens > u64::try_from(10 * WORD.len() / 4).unwrap(), "{spent:?}");
    house.verified();
}

/// Design 5.30: after the death of the pump, the use of a model call is unknown, and the whole
/// reservation of the call is charged.
#[test]
fn after_the_death_of_the_pump_the_whole_reservation_is_charged_and_shown() {
    let provider =
        Provider::start(vec![ScriptedResponse::Trickle, ScriptedResponse::text("at last")]);
    let prices = "price_in = 3.0\nprice_out = 15.0\ncurrency = \"USD\"";
    let house = house("", &provider.model("live", prices));
    let mut running = house.run();
    let sent = house.send_text(&say("write"), &["--no-wait", "--new", THREAD]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    provider.sends(3);
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let running = house.run();
    until("it is answered", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));

    let records = records(&house);
    let reserved = reserved(&records);
    assert_eq!(charged(&records), [reserved[0]], "of the call whose result is lost");
    assert_eq!(reserved.len(), 2, "{reserved:?}");
    let shown = house.organism(&["thread", THREAD]).out;
    let told = format!("its result is lost: all {} tokens", reserved[0].tokens);
    assert!(shown.contains(&told), "{shown}");

    assert!(!reserved[0].money.is_zero(), "{reserved:?}");
    let view = ViewServer::start(&house, &[]);
    let page = text_of(&view.page(&format!("/threads/{THREAD}")));
    let told = format!("{told} and {} that it had reserved are charged", reserved[0].money);
    assert!(page.contains(&told), "{page}");
    house.verified();
}

/// Design 5.29: if a pump stops during an answer, the agent reports what the model call has used,
/// and only this is charged. The next start repeats the attempt, if attempts are left.
#[test]
fn a_turn_that_a_stop_of_the_pump_interrupts_is_charged_for_what_it_received() {
    let provider =
        Provider::start(vec![ScriptedResponse::Trickle, ScriptedResponse::text("at last")]);
    let house = house("", &provider.model("live", ""));
    let running = house.run();
    let sent = house.send_text(&say("write"), &["--no-wait", "--new", THREAD]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    provider.sends(3);
    assert_eq!(running.stop(), Some(0));
    provider.is_left(1);
    assert_eq!(house.recorded("said"), 0);

    let running = house.run();
    until("it is answered", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    let records = records(&house);
    let failures = failures(&records);
    let [AttemptFailure::CutShort { spent, retried: true, .. }] = failures.as_slice() else {
        panic!("{failures:?}")
    };
    assert!(spent.tokens > 0, "{spent:?}");
    assert!(spent.tokens < reserved(&records)[0].tokens, "{spent:?}");
    assert_eq!(charged(&records), [], "what it took is known");
    house.verified();
}

/// A retry that a budget refuses ends the call with the reason of the last failure. The caller
/// learns how much the failed requests have used, and that a repetition cannot help.
#[test]
fn a_retry_that_a_budget_refuses_states_what_the_failed_requests_have_used() {
    let provider = Provider::start(vec![ScriptedResponse::Stall(10)]);
    let lines = "max_tokens = 1000\nattempts = 5\nstall_timeout = \"200ms\"";
    let house = house("tokens = 6000", &provider.model("live", lines));
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    assert!(provider.requests() > 1, "{}", provider.requests());
    let (reason, spent) = broken(&records(&house));
    assert_eq!(reason, "timeout");
    let used = format!("both numbers contain {} tokens that failed requests", spent.tokens);
    assert!(sent.out.contains("not tried again: "), "{sent:?}");
    assert!(sent.out.contains(&used), "{sent:?}");
    assert!(sent.out.contains("code=\"listener-failed\" retry_allowed=\"false\""), "{sent:?}");
    house.verified();
}

/// The cost of a call that ends early stays spent. So a budget is used up even if every call is
/// cancelled early.
#[test]
fn calls_that_end_early_do_not_spend_a_budget_twice() {
    let provider = Provider::start(vec![ScriptedResponse::Trickle]);
    let models = provider.model("live", "attempts = 1\nmax_tokens = 1000");
    let house = house("[limits]\ntokens = 6000", &models);
    let running = house.run();
    let mut codes = Vec::new();
    for round in 1..=20 {
        let send = ["send", "-", "--as", "desk"];
        let place = if round == 1 { ["--new", THREAD] } else { ["--thread", THREAD] };
        let mut command = house.command(&[&send[..], &place[..]].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(say("write").as_bytes()).unwrap();
        let asked = until("it is asked or refused", || match child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => (provider.requests() == round && provider.seen().words > 0).then_some(true),
        });
        if !asked {
            codes.push(end(child));
            break;
        }
        assert_eq!(house.organism(&["cancel", THREAD]).code, Some(0));
        assert_eq!(end(child).code, Some(1));
        provider.is_left(round);
    }
    let [refused] = codes.as_slice() else { panic!("it never ends: {codes:?}") };
    assert!(refused.out.contains("budget-spent"), "{refused:?}");
    assert_eq!(running.stop(), Some(0));

    let facts = records(&house);
    let spent: u64 =
        failures(&facts).iter().filter_map(AttemptFailure::spent).map(|s| s.tokens).sum();
    assert!(spent <= 6_000, "{spent} tokens");
    assert!(reserved(&facts).len() > 1);
}

/// Design 4.24: a stream that makes progress is not cut at the agent's time-out.
#[test]
fn a_live_stream_is_not_cut_at_the_time_out_of_its_agent() {
    let answer = "<said xmlns=\"urn:example:talk\">after all</said>".to_owned();
    let provider = Provider::start(vec![ScriptedResponse::Slowly(250, answer)]);
    let house = house("timeout = \"3s\"", &provider.model("live", ""));
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert!(sent.out.contains("after all"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(failures(&records(&house)), []);
    assert_eq!(provider.requests(), 1);
}

/// Bytes that arrive while the process stands still come in time, although the stall time-out is over
/// when the process continues.
#[test]
fn an_answer_that_came_while_the_process_stood_still_came_in_time() {
    const CALLS: usize = 4;
    const WORDS: usize = 50;
    let end = "<said xmlns=\"urn:example:talk\">in time</said>".to_owned();
    let provider = Provider::start(vec![ScriptedResponse::Slowly(WORDS, end)]);
    let house = house("", &provider.model("live", "stall_timeout = \"3s\"\nattempts = 1"));
    let running = house.run();
    for _ in 0..CALLS {
        let sent = house.send_text(&say("write"), &["--no-wait"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    until("all answers have begun", || (provider.requests() == CALLS).then_some(()));

    running.signal("-STOP");
    provider.sends(CALLS * WORDS);
    let sent_at = Instant::now();
    until("the stall time-out is over", || (sent_at.elapsed().as_secs() >= 4).then_some(()));
    running.signal("-CONT");

    let ends =
        |record: &Record| matches!(record.input, Input::Outcome { .. } | Input::Failed { .. });
    until("all calls have ended", || {
        (records(&house).iter().filter(|record| ends(record)).count() == CALLS).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    assert_eq!(failures(&records(&house)), []);
    assert_eq!(provider.requests(), CALLS);
}

/// Config of a model with two routes, of which the first one fails.
fn routed(first: &Provider, second: &Provider, more: &str) -> String {
    let models = first.model("first", more) + &second.model("second", more);
    models + "\n[models.live]\nroutes = [\"first\", \"second\"]\n"
}

/// A rejected request goes to the next route at once, and the record shows the routes and the
/// reason.
#[test]
fn a_refused_request_fails_over_at_once_and_the_record_shows_it() {
    for status in ["400 Bad Request", "413 Content Too Large", "422 Unprocessable Entity"] {
        let first =
            Provider::start(vec![ScriptedResponse::error(status, "", "unknown field `tools`")]);
        let second = Provider::start(vec![ScriptedResponse::text("from the second")]);
        let house = house("", &routed(&first, &second, ""));
        let running = house.run();

        let sent = end(sending(&house));
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert!(sent.out.contains("from the second"), "{sent:?}");
        assert_eq!((first.requests(), second.requests()), (1, 1), "{status}");
        let shown = house.organism(&["thread", THREAD]).out;
        assert!(shown.contains("openai-compatible/first-1 failed: rejected"), "{shown}");
        let answered = "answered by openai-compatible/second-1 (m-1)";
        assert!(shown.contains(answered), "{shown}");
        assert_eq!(running.stop(), Some(0));
        house.verified();
    }
}

/// If every route rejects a request, the caller gets the provider's own reason, and no request is
/// repeated.
#[test]
fn a_request_that_no_route_takes_ends_the_call_with_the_providers_reason() {
    let refuses =
        || Provider::start(vec![ScriptedResponse::error("400 Bad Request", "", "no such field")]);
    let (first, second) = (refuses(), refuses());
    let house = house("", &routed(&first, &second, ""));
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(sent.out.contains("no such field"), "{sent:?}");
    assert!(sent.out.contains("code=\"listener-failed\" retry_allowed=\"false\""), "{sent:?}");
    assert_eq!((first.requests(), second.requests()), (1, 1));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Two servers offer the same model of the same provider. The record tells their requests apart,
/// and a fork finds the recorded answer.
#[test]
fn a_turn_records_the_settings_of_the_route_that_answered_although_another_has_its_name() {
    let denies = ScriptedResponse::error("401 Unauthorized", "", "no such key");
    let first = Provider::start(vec![denies]);
    let second = Provider::start(vec![ScriptedResponse::text("from the second")]);
    let one = first.model("first", "max_tokens = 111").replace("first-1", "live-1");
    let two = second.model("second", "max_tokens = 222").replace("second-1", "live-1");
    let routes = "\n[models.live]\nroutes = [\"first\", \"second\"]\n";
    let house = house("", &format!("{one}{two}{routes}"));
    let running = house.run();
    let sent = end(sending(&house));
    assert!(sent.out.contains("from the second"), "{sent:?}");

    let seen = second.seen();
    let sent_body = seen.requests[0].as_str();
    assert!(sent_body.contains("222"), "{sent_body}");
    let prompt = ["prompt", "writer", "--thread", THREAD, "--turn", "1", "--wire"];
    let shown = house.organism(&prompt);
    assert_eq!(shown.out.trim_end(), sent_body, "{shown:?}");

    let (id, _) = house.messages("say").remove(0);
    let forked = house.organism(&["fork", &id.to_string()]);
    assert!(forked.out.contains("from the second"), "{forked:?}");
    assert_eq!((first.requests(), second.requests()), (1, 1), "the fork asks no model");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// If a provider demands a pause that exceeds the limit, the call does not wait for the provider:
/// the call tries the next route, or fails.
#[test]
fn a_retry_after_of_an_hour_is_not_waited_for() {
    let limited =
        ScriptedResponse::error("429 Too Many Requests", "Retry-After: 3600\r\n", "slow down");
    let first = Provider::start(vec![limited.clone()]);
    let second = Provider::start(vec![ScriptedResponse::text("from the second")]);
    let house = house("", &routed(&first, &second, ""));
    let running = house.run();
    let sent = end(sending(&house));
    assert!(sent.out.contains("from the second"), "{sent:?}");
    assert_eq!(running.stop(), Some(0));

    let alone = Provider::start(vec![limited]);
    let house = self::house("", &alone.model("live", ""));
    let running = house.run();
    for _ in 0..2 {
        let sent = house.send_text(&say("write"), &[]);
        assert_eq!(sent.code, Some(1), "{sent:?}");
        assert!(sent.out.contains("too many requests"), "{sent:?}");
        assert!(sent.out.contains("retry_allowed=\"true\""), "it may succeed later: {sent:?}");
    }
    assert_eq!(alone.requests(), 1, "the second call knows of the pause");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Each route gets at most as many requests as the model has attempts. The limit counts the
/// requests of all attempts of the agent's call together.
#[test]
fn a_dead_provider_gets_as_many_requests_as_the_model_has_attempts() {
    let dead =
        || Provider::start(vec![ScriptedResponse::error("500 Internal Server Error", "", "dead")]);
    let (first, second) = (dead(), dead());
    let models = routed(&first, &second, "") + "attempts = 2\n";
    let house = house("attempts = 3", &models);
    let running = house.run();

    let sent = end(sending(&house));
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert_eq!((first.requests(), second.requests()), (2, 2), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    let failures = failures(&records(&house));
    let [AttemptFailure::Model { tries, passing: true, .. }] = failures.as_slice() else {
        panic!("{failures:?}")
    };
    assert_eq!(tries.len(), 4);
    house.verified();
}

/// A model request counts against the limit of requests even if the pump is killed during the
/// request.
#[test]
fn requests_before_the_death_of_a_pump_count() {
    let provider = Provider::start(vec![
        ScriptedResponse::Trickle,
        ScriptedResponse::error("500 Dead", "", "dead"),
    ]);
    let house = house("", &provider.model("live", "attempts = 2"));
    let mut running = house.run();
    let sent = house.send_text(&say("write"), &["--no-wait", "--new", THREAD]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    provider.sends(1);
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    let running = house.run();
    until("the call has failed", || {
        let failures = failures(&records(&house));
        failures.iter().any(|failure| matches!(failure, AttemptFailure::Model { .. })).then_some(())
    });
    assert_eq!(running.stop(), Some(0));
    assert_eq!(provider.requests(), 2);
    house.verified();
}

/// The output contains the reason, and advises a retry only if a retry can help.
#[test]
fn send_prints_the_cause_and_allows_a_retry_only_where_it_can_help() {
    for (answer, cause, retry) in [
        (
            ScriptedResponse::error("401 Unauthorized", "", "wrong key"),
            "denied (HTTP 401): wrong key",
            false,
        ),
        (
            ScriptedResponse::error("402 Payment Required", "", "pay"),
            "no credit or quota left",
            false,
        ),
        (
            ScriptedResponse::error("503 Unavailable", "", "busy"),
            "overloaded (HTTP 503): busy",
            true,
        ),
    ] {
        let provider = Provider::start(vec![answer]);
        let house = house("", &provider.model("live", "attempts = 1"));
        let running = house.run();
        let sent = end(sending(&house));
        assert_eq!(sent.code, Some(1), "{sent:?}");
        assert!(sent.out.contains(cause), "{cause}: {sent:?}");
        assert!(sent.out.contains(&format!("retry_allowed=\"{retry}\"")), "{cause}: {sent:?}");
        assert_eq!(running.stop(), Some(0));
    }
}
