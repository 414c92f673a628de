//! `organism fork --edit` at the turn of an agent: an operator's message replaces the messages that
//! the agent sent in this turn (issue 18, 1.4; design 11.20).

use organism::ids::{MessageId, ThreadId};
use organism::thread::Fact;

use super::recorded_turns::chain;
use super::{CommandOutput, House, Running, TALK, numbered, until};

/// The turns that the recorded models take after an edit. The edited turn itself is not among them,
/// because no model takes it.
const AFTER: &str = r#"
recorded = "for a test"
[[turn]]
agent = "thinker"
turn = 1
text = '<done><n>{{pong/n}}</n></done>'
[[turn]]
agent = "lead"
turn = 2
text = '<done><n>lead {{done/n}}</n></done>'
"#;

/// Records the turns of a chain of agents, and then gives their models different answers. Returns
/// the ids of the turns, in the order lead, thinker, thinker, lead, lead.
fn recorded() -> (House, Running, Vec<String>) {
    let house = chain();
    let running = house.run_noting();
    let sent = house.send_text(&numbered("work", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    house.write("turns.toml", AFTER);
    let turns = house.messages("model-turn").iter().map(|(id, _)| id.to_string()).collect();
    let running = house.run_noting();
    (house, running, turns)
}

fn edit(house: &House, message: &str, text: &str, more: &[&str]) -> CommandOutput {
    house.write("edit.xml", text);
    house.organism(&[&["fork", message, "--edit", "edit.xml"], more].concat())
}

fn proved(house: &House, running: Running) {
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// Sender and cause of the last message with this local name.
fn origin_of(house: &House, local: &str) -> (String, MessageId) {
    let (id, thread) = house.messages(local).pop().unwrap();
    let records = house.reader().tree(&thread.root(), None).unwrap();
    let mut facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let found = facts.find_map(|fact| match fact {
        Fact::Accepted { message, .. } if message.id == id => Some(std::sync::Arc::clone(message)),
        _ => None,
    });
    let message = found.unwrap();
    (message.from.to_string(), message.cause.unwrap())
}

/// An edited call is sent in the agent's name and caused by the operator's action. Its result goes
/// to the agent.
#[test]
fn an_edited_call_is_the_agents_and_the_operator_caused_it() {
    let (house, running, turns) = recorded();
    let source = house.extent("sess-source01");
    let done = house.effects();
    let edited = edit(&house, &turns[1], &numbered("ping", "7"), &["--live", "solo"]);
    assert_eq!(edited.code, Some(0), "{edited:?}");
    assert_eq!(edited.out, format!("{}\n", numbered("done", "lead 7")), "{edited:?}");
    assert_eq!(house.effects(), done + 1);
    assert_eq!(house.extent("sess-source01"), source, "the source is untouched");

    let (action, _) = house.messages("operator-action").pop().unwrap();
    assert_eq!(origin_of(&house, "ping"), ("thinker".to_owned(), action));
    let (own, fork) = house.messages("ping").pop().unwrap();
    let shown = house.organism(&["thread", fork.as_str()]);
    assert!(shown.out.contains("fork"), "{shown:?}");

    // The message that the turn sent names the turn as well. Without a result on record, its call waits.
    let (ping, _) = house.messages("ping")[0].clone();
    let held = edit(&house, &ping.to_string(), &numbered("ping", "8"), &["--no-wait"]);
    assert_eq!(held.code, Some(0), "{held:?}");
    let held = until("it is held", || {
        let listed = house.organism(&["approvals", "--json"]).json();
        listed.first().cloned()
    });
    assert!(held.to_string().contains("solo"), "{held}");

    // So does the message of the edit. A fork there takes the turn without the edit.
    let without = house.organism(&["fork", &own.to_string()]);
    assert_eq!(without.code, Some(0), "{without:?}");
    let reason =
        format!("{own} is an operator's edit of a turn, which a fork takes without the edit");
    assert!(without.err.contains(&reason), "{without:?}");
    let again = edit(&house, &own.to_string(), &numbered("ping", "9"), &["--no-wait"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(house.effects(), done + 1);
    proved(&house, running);
}

/// An edited final ends the agent's call. All later decisions are made anew.
#[test]
fn an_edited_final_is_the_result_of_the_agents_call() {
    let (house, running, turns) = recorded();
    for turn in [&turns[1], &turns[2]] {
        let edited = edit(&house, turn, &numbered("done", "9"), &[]);
        assert_eq!(edited.code, Some(0), "{edited:?}");
        assert_eq!(edited.out, format!("{}\n", numbered("done", "lead 9")), "{edited:?}");
    }
    // The turn that ended the request of the client.
    let edited = edit(&house, &turns[4], &numbered("done", "10"), &["--json"]);
    assert_eq!(edited.code, Some(0), "{edited:?}");
    assert!(edited.out.contains("<n>10</n>"), "{edited:?}");
    assert_eq!(house.effects(), 2, "no effect happened again");
    proved(&house, running);
}

/// An edit that equals the recorded message gets the recorded results.
#[test]
fn an_edit_with_the_recorded_message_gets_the_recorded_results() {
    let (house, running, turns) = recorded();
    let edited = edit(&house, &turns[3], &numbered("ping", "2"), &["--no-wait", "--json"]);
    assert_eq!(edited.code, Some(0), "{edited:?}");
    let fork = edited.json()[0]["fork"].as_str().unwrap().to_owned();
    let fork = ThreadId::parse(&fork).unwrap();
    until("it has the recorded result", || {
        house.messages("pong").into_iter().any(|(_, thread)| thread == fork).then_some(())
    });
    assert_eq!(house.effects(), 2, "no effect happened again");

    // The turns before the edited one are the history of the fork.
    let compared = house.organism(&["diff", "sess-source01", fork.as_str(), "--json"]);
    let found = compared.json().remove(0);
    assert_eq!(found["first"]["event"]["a"]["message"], turns[3].as_str(), "{found:#}");
    proved(&house, running);
}

#[test]
fn what_cannot_take_the_place_of_a_turn_is_refused_with_a_reason() {
    let (house, running, turns) = recorded();
    let last = |local: &str| house.messages(local).pop().unwrap().0.to_string();
    let core = "xmlns=\"https://xml-pipeline.org/ns/core/v1\"";
    for (message, text, code, expected) in [
        (&turns[1], "<ping>".to_owned(), 65, "not-well-formed"),
        (&turns[1], format!("<ping xmlns=\"{TALK}\"/>"), 65, "n"),
        (&turns[1], numbered("pong", "1"), 65, "not-in-vocabulary"),
        // Its peer is another agent's.
        (&turns[0], numbered("hold", "1"), 65, "not-in-vocabulary"),
        (&turns[1], format!("<wait {core} for=\"all\"/>"), 65, "neither"),
        (&last("pong"), numbered("ping", "7"), 2, "--edit replaces a client's request, or what"),
        (&last("done"), numbered("done", "7"), 2, "the `model-turn` of such a turn"),
    ] {
        let edited = edit(&house, message, &text, &["--no-wait"]);
        assert_eq!(edited.code, Some(code), "{text}: {edited:?}");
        assert!(edited.err.contains(expected), "{text}: {edited:?}");
    }
    let plain = edit(&house, &turns[1], "<ping><n>1</n></ping>", &["--no-wait"]);
    let hint = "is ping, without a namespace (xmlns); write one of these, nearest first:";
    assert!(plain.err.contains(&format!("{hint}\n  {{{TALK}}}ping\n")), "{plain:?}");
    let missing = house.organism(&["fork", &turns[1], "--edit", "missing.xml"]);
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert_eq!(house.effects(), 2, "no effect happened again");
    proved(&house, running);
}

/// After a kill -9 at any step of an edited fork, the fork exists once or not at all. A fork that
/// exists goes on.
#[test]
fn an_edited_turn_survives_kill_9() {
    let (house, running, turns) = recorded();
    assert_eq!(running.stop(), Some(0));
    house.write("edit.xml", numbered("done", "9"));
    for point in ["stepped", "before-append", "after-append", "after-commit"] {
        // The boot of the pump steps and appends, too.
        for nth in 2..=4 {
            let mut command = house.command(&["fork", &turns[1], "--edit", "edit.xml"]);
            command.env("ORGANISM_FAILPOINT", format!("{point}:{nth}"));
            command.output().unwrap();
        }
    }
    let running = house.run_noting();
    until("all forks have ended", || {
        let open = house.organism(&["threads", "--status", "running", "--json"]).json();
        open.first().is_none_or(|page| page["threads"] == serde_json::json!([])).then_some(())
    });
    let all = house.organism(&["threads", "--json"]).out;
    assert!(!all.contains("\"failed\""), "{all}");
    assert_eq!(house.effects(), 2, "no effect happened again");
    proved(&house, running);
}
