//! Six scripted listeners and a person, with their contracts.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use organism::bus::Delivery;
use organism::contract::{Approval, Contracts, Gather, Role};
use organism::envelope::{MessageKind, Spending, Turn};
use organism::pump::gate::Gate;
use organism::schema::Schemas;

use super::bill::PROMPT;
use crate::pump::world::{agent, client, core, listener, word};

pub const NAMES: [&str; 6] = ["thinker", "finder", "counter", "voter-a", "voter-b", "shell"];

/// A listener whose actions must not be repeated.
pub const SINGLE: &str = "counter";

/// Time-out of every listener.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A human listener.
pub const PERSON: &str = "boss";

/// Payload names from which clients choose their requests. To be chosen more often, a name is
/// listed several times.
pub const QUESTIONS: [&str; 8] = ["plan", "plan", "plan", "plan", "look", "vote", "run", "ask"];

/// Returns the gate for contracts that gather replies in this way. Each gate is made once, because
/// schemas take long to compile.
pub fn gate(gather: Gather) -> Gate {
    static GATES: LazyLock<[Gate; 2]> =
        LazyLock::new(|| [Gather::All, Gather::First].map(make_gate));
    GATES[usize::from(gather == Gather::First)].clone()
}

fn make_gate(gather: Gather) -> Gate {
    let mut schemas = Schemas::default();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pump/words.xsd");
    schemas.add_file(file.as_ref()).unwrap();
    schemas.add_builtin("core.xsd", organism::system::SCHEMA).unwrap();
    let mut contracts = vec![
        client("desk", &["thinker", "finder", "voter-a", "voter-b", "shell", PERSON]),
        agent(
            "thinker",
            &["plan"],
            &["answer"],
            &["finder", "voter-a", "voter-b", "shell", PERSON],
        ),
        listener("shell", &["run"], &["ran"], &[]),
        listener(PERSON, &["ask"], &["report"], &[]),
        listener("finder", &["look"], &["found"], &["counter"]),
        listener("counter", &["count"], &["counted"], &[]),
        listener("voter-a", &["vote"], &["ballot"], &[]),
        listener("voter-b", &["vote"], &["ballot"], &[]),
    ];
    for contract in &mut contracts {
        contract.gather = gather;
        contract.concurrency = 2;
        contract.timeout = TIMEOUT;
        contract.attempts = if contract.name.as_str() == SINGLE { 1 } else { 2 };
        if contract.name.as_str() == "shell" {
            (contract.approval, contract.patience) =
                (Approval::Always, Some(Duration::from_secs(100)));
        }
        if contract.name.as_str() == PERSON {
            contract.role = Role::Human;
        }
    }
    Gate::new(Arc::new(Contracts::new(contracts).unwrap()), schemas)
}

/// The text of the request that a delivery's call began with.
fn request_text(delivery: &Delivery) -> &str {
    let text = delivery.messages.first().map_or("", |request| request.payload.as_str());
    let inner = text.split_once("<text>").and_then(|(_, rest)| rest.split_once("</text>"));
    inner.map_or("", |(inner, _)| inner)
}

/// Whether the listener of the delivery is an agent.
pub fn is_agent(delivery: &Delivery) -> bool {
    delivery.listener.as_str() == "thinker"
}

/// Returns the answer of a listener. The answer depends only on the content of the delivery, so
/// every attempt gets the same answer. `took` is the cost of an agent's model call.
pub fn script(delivery: &Delivery, took: Spending) -> (Vec<String>, Option<Turn>) {
    let text = request_text(delivery);
    let is_first = delivery.messages.len() == 1;
    let payloads = match delivery.listener.as_str() {
        "thinker" => thinker(delivery, text, is_first),
        "finder" if is_first => vec![word("count", text)],
        "finder" => vec![word("found", text)],
        "counter" => vec![word("counted", text)],
        "shell" => vec![word("ran", text)],
        _ => vec![word("ballot", text)],
    };
    let note = core("model-turn", "", "");
    let (tokens_in, tokens_out) = (PROMPT.tokens, took.tokens.saturating_sub(PROMPT.tokens));
    let turn = Turn { note, tokens_in, tokens_out, money: took.money, ..Turn::default() };
    (payloads, is_agent(delivery).then_some(turn))
}

fn thinker(delivery: &Delivery, text: &str, is_first: bool) -> Vec<String> {
    let last = delivery.messages.last().map(|message| message.kind);
    if !is_first && last == Some(MessageKind::Own) {
        return vec![word("look", text), word("vote", text)];
    }
    if !is_first {
        return vec![word("answer", text)];
    }
    let wait = core("wait", "for=\"all\"", "");
    let style: usize = text.bytes().map(usize::from).sum();
    match style % 8 {
        0 => vec![word("look", text), word("vote", text)],
        1 => vec![core("set-timer", "after=\"PT5S\"", ""), wait],
        2 => vec![word("plan", text)],
        3 => {
            let inner = format!("<initial-payload>{}</initial-payload>", word("look", text));
            vec![core("spawn-thread", "suggested_sub_id=\"side\"", &inner), wait]
        }
        4 => vec![core("thinking", "", ""), word("look", text), "<rubbish".to_owned()],
        5 => vec![word("run", text), word("look", text)],
        6 => vec![word("ask", text), word("run", text)],
        _ => vec![word("answer", text)],
    }
}
