//! If a turn of a fork has the same prompt as a turn of the source, the fork's turn gets the
//! recorded answer. The recorded answers come in the order of the source, and no model is called
//! (issue 18, 1.6).

use organism::ids::{MessageId, Position, ThreadId};
use organism::system;
use organism::thread::Fact;

use super::{CommandOutput, House, Running, numbered, until};

/// A config with an agent that plays a recording, and a listener as its peer.
const AGENT: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["thinker"]

[agents.thinker]
schema = "talk.xsd"
accepts = ["order"]
FINAL
peers = ["solo"]
model = "recorded"
transport = "TRANSPORT"

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]

[models.recorded]
provider = "playback"
recording = "turns.toml"
"#;

/// Recorded turns with two threads at once, a timer, and a wait.
const PARALLEL: &str = r#"
recorded = "for a test"
[[turn]]
agent = "thinker"
turn = 1
reasoning = "Two at once."
text = '<spawn-thread suggested_sub_id="side"><initial-payload><order xmlns="urn:example:talk"><n>2</n></order></initial-payload></spawn-thread>'
[[turn]]
agent = "thinker"
thread = "side"
turn = 1
text = '<ping><n>2</n></ping>'
[[turn]]
agent = "thinker"
thread = "side"
turn = 2
text = '<done><n>2</n></done>'
[[turn]]
agent = "thinker"
turn = 2
text = '<ping><n>1</n></ping>'
[[turn]]
agent = "thinker"
turn = 3
text = '<set-timer after="PT0.2S" label="{{thread-spawned/@assigned_id}}"/>'
[[turn]]
agent = "thinker"
turn = 4
text = '<wait until="all"/>'
[[turn]]
agent = "thinker"
turn = 5
text = '<done><n>5</n></done>'
"#;

/// Recorded turns of an agent that spawns a thread and sets a timer. The timer fires before the
/// thread ends, and the agent then makes a call.
const TIMER_FIRST: &str = r#"
recorded = "for a test"
[[turn]]
agent = "thinker"
turn = 1
text = '<spawn-thread suggested_sub_id="side"><initial-payload><hold xmlns="urn:example:talk"><n>2</n></hold></initial-payload></spawn-thread>'
[[turn]]
agent = "thinker"
turn = 2
text = '<set-timer after="PT0.1S" label="look"/>'
[[turn]]
agent = "thinker"
turn = 3
text = '<wait for="any"/>'
[[turn]]
agent = "thinker"
turn = 4
text = '<ping><n>{{timer-fired/@label}}</n></ping>'
[[turn]]
agent = "thinker"
turn = 5
text = '<wait for="any"/>'
[[turn]]
agent = "thinker"
turn = 6
text = '<done><n>{{held/n}}</n></done>'
"#;

/// Recorded turns of an agent whose timer fires while a call of the agent is open.
const TIMER_BESIDE: &str = r#"
recorded = "for a test"
[[turn]]
agent = "thinker"
turn = 1
text = '<set-timer after="PT0.5S" label="look"/>'
[[turn]]
agent = "thinker"
turn = 2
text = '<hold><n>2</n></hold>'
[[turn]]
agent = "thinker"
turn = 3
text = '<done><n>{{held/n}}</n></done>'
"#;

/// Recorded turns of a conversation of two requests. Each request leads to a native call, and then
/// to a report in the slot of a turn.
const SLOTS: &str = r#"
recorded = "for a test"
[[turn]]
agent = "thinker"
turn = 1
reasoning = "First the tool."
text = ""
stop = "calls"
calls = [{ id = "c1", name = "ping", arguments = '{"n":"1"}' }]
[[turn]]
agent = "thinker"
turn = 2
text = '<{{nonce}}-FINAL format="text">first</{{nonce}}-FINAL>'
[[turn]]
agent = "thinker"
turn = 3
text = '<{{nonce}}-FINAL format="text">second</{{nonce}}-FINAL>'
"#;

/// A recording without any turn.
pub const NO_TURNS: &str = "recorded = \"empty\"\n";

fn house(transport: &str, last: &str, recording: &str) -> House {
    let config = AGENT.replace("TRANSPORT", transport).replace("FINAL", last);
    let house = House::with(&config);
    house.write("turns.toml", recording);
    house
}

fn run(house: &House) -> Running {
    house.run()
}

/// Messages of a thread with this local name, each with its payload.
fn messages(house: &House, thread: &str, local: &str) -> Vec<(MessageId, String)> {
    let thread = ThreadId::parse(thread).unwrap();
    let reader = house.reader();
    let records = reader.records(Position(1), reader.last().unwrap()).unwrap();
    let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
    let named = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, .. }
            if message.thread == thread && &*message.name.local == local =>
        {
            Some((message.id, message.payload.as_str().to_owned()))
        }
        _ => None,
    });
    named.collect()
}

/// Forks at a message. Returns the fork's thread and the output of the command.
fn fork(house: &House, message: MessageId) -> (String, CommandOutput) {
    let forked = house.organism(&["fork", &message.to_string()]);
    let line = forked.err.lines().find_map(|line| line.strip_prefix("thread ")).unwrap();
    (line.split(',').next().unwrap().to_owned(), forked)
}

/// Forks at a request. Asserts that the fork prints `expected`, that the agent sends the same
/// messages as in the source, and that every turn gets its recorded answer. Returns the thread of
/// the fork.
fn forked_alike(house: &House, source: &str, request: MessageId, expected: &str) -> String {
    let (thread, forked) = fork(house, request);
    assert_eq!((forked.code, forked.out.trim_end()), (Some(0), expected), "{forked:?}");
    for local in ["thinking", "ping", "set-timer", "wait"] {
        let alike = |(_, text): (MessageId, String)| text.replace(source, "ROOT");
        let own = messages(house, &thread, local).into_iter();
        let own: Vec<_> = own.map(|(_, text)| text.replace(&*thread, "ROOT")).collect();
        let of_source: Vec<_> = messages(house, source, local).into_iter().map(alike).collect();
        assert_eq!(own, of_source, "{local}");
    }

    let turns = messages(house, source, "model-turn");
    let own = messages(house, &thread, "model-turn");
    assert_eq!(own.len(), turns.len());
    for ((_, own), (id, _)) in own.iter().zip(&turns) {
        assert!(own.contains(&format!(" recorded=\"{id}\"")), "{own}");
        assert!(own.contains(" tokens_in=\"0\" tokens_out=\"0\""), "{own}");
    }
    thread
}

#[test]
fn parallel_work_of_a_fork_meets_where_it_met_in_the_source() {
    let house = house("xml", "final = \"done\"", PARALLEL);
    let running = run(&house);
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let answer = sent.out.trim_end().to_owned();
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let (request, _) = messages(&house, "sess-source01", "order")[0].clone();
    let mut last = String::new();
    for _ in 0..5 {
        last = forked_alike(&house, "sess-source01", request, &answer);
    }
    // A fork of a fork.
    let (again, _) = messages(&house, &last, "order")[0].clone();
    forked_alike(&house, &last, again, &answer);

    // Another request has another prompt, so the model is called, which knows no turn.
    house.write("edit.xml", numbered("order", "9"));
    let edited = house.organism(&["fork", &request.to_string(), "--edit", "edit.xml"]);
    assert!(edited.out.contains("no turn is recorded for agent `thinker`"), "{edited:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A config whose agent may also call `slow`, which replies as soon as the file `let-go` exists.
fn with_slow() -> String {
    let config = AGENT.replace("TRANSPORT", "xml").replace("FINAL", "final = \"done\"");
    let config = config.replace("peers = [\"solo\"]", "peers = [\"solo\", \"slow\"]");
    let slow = "[listeners.slow]\ncommand = [\"./player.pl\", \"slow\", \"let-go\"]\n\
        schema = \"talk.xsd\"\naccepts = [\"hold\"]\nreplies = [\"held\"]\n";
    format!("{config}\n{slow}")
}

/// If a timer fired before a result in the source, it fires before this result in a fork and in a
/// trial, too. So every turn gets its recorded answer.
#[test]
fn a_timer_of_a_fork_fires_before_the_results_that_came_after_it() {
    let house = house("xml", "final = \"done\"", TIMER_FIRST);
    house.write("organism.toml", with_slow());
    let running = run(&house);
    let request = numbered("order", "1");
    let sent = house.send_text(&request, &["--new", "sess-source01", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("the agent waits again", || {
        (messages(&house, "sess-source01", "wait").len() == 2).then_some(())
    });
    house.write("let-go", "");
    until("it is done", || (house.recorded("done") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    std::fs::remove_file(house.path("let-go")).unwrap();
    let tried = house.organism(&["try", "organism.toml", "--threads", "sess-source01"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.err.contains("1 unchanged"), "{tried:?}");

    let running = run(&house);
    let (request, _) = messages(&house, "sess-source01", "order")[0].clone();
    let answer = numbered("done", "2");
    let mut last = String::new();
    for _ in 0..3 {
        last = forked_alike(&house, "sess-source01", request, &answer);
    }
    let (again, _) = messages(&house, &last, "order")[0].clone();
    forked_alike(&house, &last, again, &answer);

    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A fork at a turn takes over a timer that was set before. The timer fires before the result that
/// came after it, as in the source, and the prompt of the next turn shows both in this order.
#[test]
fn a_timer_that_a_fork_takes_over_fires_where_it_fired_in_the_source() {
    let house = house("xml", "final = \"done\"", TIMER_BESIDE);
    house.write("organism.toml", with_slow());
    let running = run(&house);
    let request = numbered("order", "1");
    let sent = house.send_text(&request, &["--new", "sess-source01", "--no-wait"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("the timer fires", || {
        (messages(&house, "sess-source01", "timer-fired").len() == 1).then_some(())
    });
    house.write("let-go", "");
    until("it is done", || (house.recorded("done") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let turns = messages(&house, "sess-source01", "model-turn");
    assert_eq!(turns.len(), 3);
    for (turn, _) in turns {
        let (_, forked) = fork(&house, turn);
        assert_eq!(
            (forked.code, forked.out.trim_end()),
            (Some(0), &*numbered("done", "2")),
            "{forked:?}"
        );
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// The generated label of a root's first subthread.
const GENERATED: &str = "db3426";

#[test]
fn a_generated_label_is_the_same_in_every_run_and_fork() {
    let suggested = " suggested_sub_id=\"side\"";
    let recording = PARALLEL.replace(suggested, "").replace("\"side\"", &format!("{GENERATED:?}"));
    let house = house("xml", "final = \"done\"", &recording);
    let running = run(&house);
    let mut answers = Vec::new();
    for source in ["sess-source01", "sess-source02"] {
        let sent = house.send_text(&numbered("order", "1"), &["--new", source]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        answers.push(sent.out.trim_end().to_owned());
        let (_, spawned) = &messages(&house, source, "thread-spawned")[0];
        let thread = format!("\"{source}.{GENERATED}\"");
        assert!(spawned.contains(&thread), "{spawned}");
    }
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let (request, _) = messages(&house, "sess-source01", "order")[0].clone();
    forked_alike(&house, "sess-source01", request, &answers[0]);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

/// Sends two requests of one conversation. Returns the answers.
fn two_orders(house: &House) -> [String; 2] {
    [["--new", "sess-source01"], ["--thread", "sess-source01"]].map(|more| {
        let sent = house.send_text(&numbered("order", "1"), &more);
        assert_eq!(sent.code, Some(0), "{sent:?}");
        sent.out.trim_end().to_owned()
    })
}

#[test]
fn slots_of_a_fork_have_nonces_of_their_own() {
    let house = house("xml-final", "", SLOTS);
    let running = run(&house);
    let answers = two_orders(&house);
    assert!(answers[0].contains("first") && answers[1].contains("second"), "{answers:?}");
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let requests = messages(&house, "sess-source01", "order");
    let (thread, forked) = fork(&house, requests[0].0);
    assert_eq!((forked.code, forked.out.trim_end()), (Some(0), &*answers[0]), "{forked:?}");
    let sent = house.send_text(&numbered("order", "1"), &["--thread", &thread]);
    assert_eq!((sent.code, sent.out.trim_end()), (Some(0), &*answers[1]), "{sent:?}");
    let (_, forked) = fork(&house, requests[1].0);
    assert_eq!((forked.code, forked.out.trim_end()), (Some(0), &*answers[1]), "{forked:?}");

    let nonce = |text: &str| {
        let start = text.split(" nonce=\"").nth(1).unwrap();
        start.split('"').next().unwrap().to_owned()
    };
    let turns = messages(&house, "sess-source01", "model-turn");
    let own = messages(&house, &thread, "model-turn");
    for ((_, source), (_, own)) in turns.iter().zip(&own) {
        assert_ne!(nonce(source), nonce(own));
        assert!(own.contains(" recorded="), "{own}");
    }
    assert!(own[1].1.contains(&format!("{}-FINAL", nonce(&own[1].1))), "{}", own[1].1);
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn another_prompt_gets_no_recorded_answer() {
    let house = house("xml", "final = \"done\"", PARALLEL);
    let sent = house.send_text(&numbered("order", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let config = AGENT.replace("TRANSPORT", "xml").replace("FINAL", "final = \"done\"");
    let changed = "transport = \"xml\"\n[agents.thinker.prompt]\nidentity = \"You are another.\"";
    house.write("organism.toml", config.replace("transport = \"xml\"", changed));

    let (request, _) = messages(&house, "sess-source01", "order")[0].clone();
    let (thread, forked) = fork(&house, request);
    assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
    let turns = messages(&house, &thread, "model-turn");
    assert!(!turns.is_empty());
    for (_, turn) in turns {
        assert!(!turn.contains(" recorded="), "{turn}");
    }
    let spawned = messages(&house, &thread, "thread-spawned");
    assert!(spawned[0].1.contains(&thread) && spawned[0].1.contains(system::NAMESPACE));
    house.verified();
}

/// A fork of a fork keeps the whole conversation. The second fork may begin at any message of the
/// first fork.
#[test]
fn a_fork_of_a_fork_keeps_the_history_of_the_source() {
    let house = house("xml-final", "", SLOTS);
    let running = run(&house);
    let answers = two_orders(&house);
    assert_eq!(running.stop(), Some(0));

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let (request, _) = messages(&house, "sess-source01", "order")[1].clone();
    let (turn, _) = messages(&house, "sess-source01", "model-turn")[2].clone();
    for place in [request, turn] {
        let (thread, forked) = fork(&house, place);
        assert_eq!((forked.code, forked.out.trim_end()), (Some(0), &*answers[1]), "{forked:?}");
        for (local, root) in [("order", &thread), ("operator-action", &thread), ("fork", &thread)] {
            let (copy, _) = messages(&house, root, local)[0].clone();
            let (_, again) = fork(&house, copy);
            assert_eq!((again.code, again.out.trim_end()), (Some(0), &*answers[1]), "{again:?}");
            assert!(again.err.contains("a fork of sess-source01 at"), "{again:?}");
        }
    }
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// Recorded turns of an agent that calls another agent, which calls a listener.
const CHAIN: &str = r#"
recorded = "for a test"
[[turn]]
agent = "lead"
turn = 1
text = '<order><n>1</n></order>'
[[turn]]
agent = "thinker"
turn = 1
text = '<ping><n>1</n></ping>'
[[turn]]
agent = "thinker"
turn = 2
text = '<done><n>2</n></done>'
[[turn]]
agent = "lead"
turn = 2
text = '<ping><n>2</n></ping>'
[[turn]]
agent = "lead"
turn = 3
text = '<done><n>3</n></done>'
"#;

const LEAD: &str = r#"
[agents.lead]
schema = "talk.xsd"
accepts = ["work"]
final = "done"
peers = ["thinker", "solo"]
model = "recorded"
"#;

pub fn chain() -> House {
    chain_in(House::with)
}

/// Plays the chain of agents in a house that `house` makes from the config.
pub fn chain_in(house: fn(&str) -> House) -> House {
    let config = AGENT.replace("TRANSPORT", "xml").replace("FINAL", "final = \"done\"");
    let config = config.replace("peers = [\"thinker\"]", "peers = [\"lead\"]");
    // Tests that kill the organism lose many attempts.
    let config =
        (config + LEAD).replace("transport = \"xml\"", "transport = \"xml\"\nattempts = 100");
    let house =
        house(&config.replace("accepts = [\"work\"]", "accepts = [\"work\"]\nattempts = 100"));
    house.write("turns.toml", CHAIN);
    house
}

/// A fork at any turn of a run, even of an agent beneath another agent, continues as the source
/// did. No model is called, and no listener gets a delivery.
#[test]
fn a_fork_at_any_turn_has_the_course_of_its_source() {
    let house = chain();
    let run = |house: &House| {
        let mut command = house.command(&["run"]);
        command.env("EFFECTS", house.path("effects"));
        house.run_with(command)
    };
    let effects = || std::fs::read_to_string(house.path("effects")).unwrap_or_default();
    let running = run(&house);
    let sent = house.send_text(&numbered("work", "1"), &["--new", "sess-source01"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(running.stop(), Some(0));
    let done = effects();
    assert_eq!(done.lines().count(), 2);

    house.write("turns.toml", NO_TURNS);
    let running = run(&house);
    let turns = messages(&house, "sess-source01", "model-turn");
    assert_eq!(turns.len(), 5);
    let mut last = String::new();
    for (number, (id, _)) in turns.iter().enumerate() {
        let (thread, forked) = fork(&house, *id);
        assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{number}: {forked:?}");
        let own = messages(&house, &thread, "model-turn");
        assert_eq!(own.len(), turns.len() - number, "{number}");
        for ((_, own), (id, _)) in own.iter().zip(&turns[number..]) {
            assert!(own.contains(&format!(" recorded=\"{id}\"")), "{own}");
        }
        if number == 1 {
            last = thread;
        }
    }

    // A reply of a listener is no place for a fork: the turn before it is.
    let (pong, _) = messages(&house, "sess-source01", "pong")[0].clone();
    let (_, forked) = fork(&house, pong);
    let named = format!("so the fork begins at the turn {} before it", turns[1].0);
    assert!(forked.err.contains(&named), "{forked:?}");
    let edited = house.organism(&["fork", &turns[1].0.to_string(), "--edit", "organism.toml"]);
    assert_eq!(edited.code, Some(65), "what is no payload takes the place of no turn: {edited:?}");

    // A fork of a fork, at each of its turns.
    for (id, _) in messages(&house, &last, "model-turn") {
        let (_, forked) = fork(&house, id);
        assert_eq!((forked.code, &forked.out), (Some(0), &sent.out), "{forked:?}");
    }
    assert_eq!(effects(), done, "no effect happened twice");
    assert_eq!(running.stop(), Some(0));
    house.verified();
    let replayed = house.organism(&["replay"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}
