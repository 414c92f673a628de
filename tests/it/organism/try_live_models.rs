//! `organism try` with a model that has costs. A server on loopback speaks a provider's wire format
//! (issue 18, 1.6 and 2.2).

use serde_json::{Value as Json, json};

use super::provider::{Provider, ScriptedResponse};
use super::try_threads::trial;
use super::{CommandOutput, House, TALK, say};

/// A config with an agent that has no peers.
const WRITER: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["writer"]

[agents.writer]
schema = "talk.xsd"
accepts = ["say"]
final = "said"
model = "MODEL"
transport = "xml"
attempts = 1

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

const TURNS: &str = r#"
recorded = "for a test"
[[turn]]
agent = "writer"
turn = 1
text = '<said>before</said>'
"#;

/// Number of prompt tokens that the provider states in each answer.
const PROMPT: u64 = 1_000;
const ANSWER: u64 = 100;
const THREADS: usize = 4;

/// Prices per million tokens, one for prompts and one for answers.
const PRICES: &str = "price_in = 2.0\nprice_out = 10.0\ncurrency = \"USD\"";

/// An answer with its usage, in the wire format of chat completions.
fn answer(text: &str) -> ScriptedResponse {
    let choice = json!({"index": 0, "finish_reason": "stop",
        "delta": {"role": "assistant", "content": format!("<said xmlns=\"{TALK}\">{text}</said>")}});
    let usage = json!({"prompt_tokens": PROMPT, "completion_tokens": ANSWER,
        "total_tokens": PROMPT + ANSWER});
    let event = json!({"object": "chat.completion.chunk", "model": "m-1", "choices": [choice],
        "usage": usage});
    let body = format!("data: {event}\n\ndata: [DONE]\n\n");
    let headers = "Content-Type: text/event-stream\r\n".to_owned();
    ScriptedResponse::Status("200 OK", headers, body)
}

/// A house with recorded threads, and a changed config whose writer uses the provider's model.
fn recorded(provider: &Provider, more: &str) -> House {
    let house = House::with(&WRITER.replace("MODEL", "recorded"));
    house.write("turns.toml", TURNS);
    let running = house.run();
    for number in 1..=THREADS {
        let sent = house.send_text(&say("x"), &["--new", &format!("sess-source0{number}")]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    assert_eq!(running.stop(), Some(0));
    // The note of a recorded turn names its model, so another one gets no recorded answer.
    let model = provider.model("live", &format!("max_tokens = 200\n{more}"));
    house.write("live.toml", WRITER.replace("\"MODEL\"", "\"live\"") + &model);
    house
}

fn tried(house: &House, more: &[&str]) -> (CommandOutput, Json) {
    let arguments = ["live.toml", "--threads", "all", "--json"];
    let output = trial(house, &[&arguments[..], more].concat());
    let report = serde_json::from_str(&output.out).unwrap_or_default();
    (output, report)
}

/// The results of the runs, in the order of the threads.
fn results(report: &Json) -> Vec<String> {
    let threads = report["threads"].as_array().unwrap().iter();
    threads.map(|thread| thread["b"]["result"].to_string()).collect()
}

#[test]
fn a_live_model_is_called_within_a_budget_and_its_cost_is_reported() {
    let provider = Provider::start(vec![answer("after")]);
    let house = recorded(&provider, PRICES);
    let (output, report) = tried(&house, &["--tokens", "1000000"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(results(&report).iter().all(|result| result.contains("after")), "{report:#}");
    assert_eq!(provider.requests(), THREADS);

    let calls = THREADS as u64;
    for thread in report["threads"].as_array().unwrap() {
        assert_eq!(thread["a"]["spent"]["money"], 0, "{report:#}");
        assert_eq!(thread["b"]["spent"]["tokens"], PROMPT + ANSWER, "{report:#}");
        assert_eq!(thread["b"]["spent"]["money"], 3_000_000, "{report:#}");
    }
    let total = &report["total"]["b"]["spent"];
    assert_eq!(total["tokens"], calls * (PROMPT + ANSWER), "{report:#}");
    assert_eq!(total["money"], calls * 3_000_000, "{report:#}");
    // The prices of the config, not those of the provider.
    let shown = trial(&house, &["live.toml", "--threads", "all", "--tokens", "1000000"]);
    assert!(shown.out.contains("0.012"), "{shown:?}");
}

#[test]
fn a_live_model_is_not_called_without_a_budget() {
    let provider = Provider::start(vec![answer("after")]);
    let house = recorded(&provider, PRICES);
    let (output, report) = tried(&house, &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(results(&report).iter().all(|result| result.contains("not-recorded")), "{report:#}");
    assert!(results(&report).iter().all(|result| result.contains("--tokens")), "{report:#}");
    assert_eq!(provider.requests(), 0, "{:?}", provider.seen());
}

/// Tokens and money are limits for all threads of a trial together.
#[test]
fn tokens_and_money_bound_all_threads_together() {
    for budget in [["--tokens", "4000"], ["--money", "0.009"]] {
        let provider = Provider::start(vec![answer("after")]);
        let house = recorded(&provider, PRICES);
        let (output, report) = tried(&house, &budget);
        assert_eq!(output.code, Some(1), "{output:?}");
        let results = results(&report);
        let answered = results.iter().filter(|result| result.contains("after")).count();
        let spent = results.iter().filter(|result| result.contains("budget-spent")).count();
        assert_eq!(answered + spent, THREADS, "{budget:?}: {report:#}");
        assert!(answered > 0 && spent > 0, "{budget:?}: {report:#}");
        assert_eq!(provider.requests(), answered, "{budget:?}");
        let total = &report["total"]["b"]["spent"];
        let calls = answered as u64;
        assert_eq!(total["tokens"], calls * (PROMPT + ANSWER), "{report:#}");
        // Each call reserves more than these answers take, so none goes beyond the budget.
        assert!(total["tokens"].as_u64().unwrap() <= 4_000, "{budget:?}: {report:#}");
        assert!(total["money"].as_u64().unwrap() <= 9_000_000, "{budget:?}: {report:#}");
    }
}

/// A trial with a limit of money is refused for a model without a price, because the limit would
/// have no effect.
#[test]
fn money_for_a_model_without_a_price_is_refused() {
    let provider = Provider::start(vec![answer("after")]);
    let house = recorded(&provider, "");
    let (refused, _) = tried(&house, &["--money", "0.50"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("`live` has no price"), "{refused:?}");
    assert_eq!(provider.requests(), 0);
    let (both, _) = tried(&house, &["--money", "0.50", "--tokens", "100000"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

/// A failed model request ends only its own thread, whose result states the failure. The trial goes
/// on.
#[test]
fn a_provider_that_fails_ends_the_thread_and_not_the_trial() {
    let provider = Provider::start(vec![
        ScriptedResponse::error("400 Bad Request", "", "no such model"),
        answer("after"),
    ]);
    let house = recorded(&provider, PRICES);
    let (output, report) = tried(&house, &["--tokens", "1000000"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let results = results(&report);
    assert!(results[0].contains("no such model"), "{report:#}");
    assert!(results[1..].iter().all(|result| result.contains("after")), "{report:#}");
}
