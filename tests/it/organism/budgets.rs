//! Budgets of tokens and money, from the config to the result that the client sees.

use super::House;

const CONFIG: &str = r#"
[organism]
name = "talk"

[limits]
LIMIT

[clients.desk]
peers = ["writer"]

[agents.writer]
model = "recorded"
schema = "talk.xsd"
accepts = ["say"]
final = "said"
BUDGET

[models.recorded]
provider = "playback"
recording = "turns.toml"
max_tokens = 1000
price_in = 2.0
price_out = 10.0
currency = "EUR"
"#;

const TURNS: &str = r#"
recorded = "for a test"

[[turn]]
agent = "writer"
turn = 1
text = "<thinking>First.</thinking>"
tokens_in = 1000
tokens_out = 100

[[turn]]
agent = "writer"
turn = 2
text = '<said xmlns="urn:example:talk">done</said>'
tokens_in = 1000
tokens_out = 100
"#;

fn writer(limit: &str, budget: &str) -> House {
    let house = House::with(&CONFIG.replace("LIMIT", limit).replace("BUDGET", budget));
    house.write("turns.toml", TURNS);
    house
}

/// O11, F14: a model request that the budget does not cover is not sent. The caller learns which
/// budget is spent, and how much of the budget remains.
#[test]
fn a_spent_budget_of_tokens_or_money_fails_the_call_before_a_model_request() {
    for (limit, budget, told) in [
        ("money = 0.0145", "", "of the 0.0145 of this tree is left"),
        ("", "money = 0.0145", "of the 0.0145 of writer is left"),
        ("tokens = 2500", "", "of the 2500 of this tree are left"),
        ("", "tokens = 2500", "of the 2500 of writer are left"),
        ("tokens = 1100", "", "the next model call may take"),
    ] {
        let house = writer(limit, budget);
        let sent = house.send_text(&super::say("write"), &[]);
        assert_eq!(sent.code, Some(1), "{sent:?}");
        let all = sent.out + &sent.err;
        assert!(all.contains("budget-spent") && all.contains(told), "{limit} {budget}: {all}");
        let turns = house.organism(&["export", "--format", "jsonl"]).out;
        let taken = turns.matches("<model-turn ").count();
        assert_eq!(taken, usize::from(limit != "tokens = 1100"), "{limit} {budget}: {turns}");
        house.verified();
    }
}

#[test]
fn the_cost_of_a_turn_is_recorded_and_shown() {
    let house = writer("money = 1", "tokens = 1000000");
    let sent = house.send_text(&super::say("write"), &["--json"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let exported = house.organism(&["export", "--format", "jsonl"]).out;
    assert_eq!(
        exported.matches("cost=\\\"0.003\\\" currency=\\\"EUR\\\"").count(),
        2,
        "{exported}"
    );
    let thread = sent.json()[0]["thread"].as_str().unwrap().to_owned();
    let shown = house.organism(&["thread", &thread]).out;
    assert!(shown.contains("1000 + 100 tokens  0.003 EU"), "{shown}");
    let checked = house.organism(&["check"]).out;
    assert!(checked.contains("1.00 EUR"), "{checked}");
}
