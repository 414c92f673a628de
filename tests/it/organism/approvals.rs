//! `organism approvals`, `approve` and `refuse`: the held calls, and who may decide on them.

pub(super) mod previews;

use std::process::{Child, Stdio};

use organism::ids::Digest;
use organism::journal::sqlite::DATABASE;
use serde_json::{Value as Json, json};

use super::{CommandOutput, House, say, talk_reply, until};

const CONFIG: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["echo"]

[listeners.echo]
command = ["./player.pl", "echo"]
schema = "talk.xsd"
accepts = ["say"]
replies = ["said"]
approval = "always"
"#;

fn house() -> House {
    House::with(CONFIG)
}

fn hash(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

fn held(house: &House) -> Vec<Json> {
    let said = house.organism(&["approvals", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.json()
}

/// Submits a payload with this text. The submission starts a call, which waits for an approval.
/// Returns the message id of the call.
fn hold(house: &House, text: &str) -> String {
    let sent = house.send_text(&say(text), &["--no-wait"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let hint = "a call waits for an approval; `organism approvals --all-from sess-";
    assert!(sent.err.contains(hint), "{sent:?}");
    assert!(sent.err.find("thread sess-") < sent.err.find(hint), "the thread is first: {sent:?}");
    held(house).last().unwrap()["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_held_call_is_shown_approved_by_its_hash_and_then_done() {
    let house = house();
    let running = house.run();
    let mut command = house.command(&["send", "-", "--as", "desk"]);
    house.write("say.xml", say("hello"));
    let file = std::fs::File::open(house.path("say.xml")).unwrap();
    command.stdin(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = command.spawn().unwrap();
    let call = until("it is held", || {
        assert_eq!(sender.try_wait().unwrap(), None, "it was refused");
        held(&house).pop()
    });
    assert_eq!((&call["payload"], &call["to"]), (&say("hello").into(), &"echo".into()));
    assert_eq!(call["sha256"], hash(&say("hello")));
    let id = call["message"].as_str().unwrap();
    let thread = call["thread"].as_str().unwrap();
    let compared = house.organism(&["diff", thread, thread]);
    let status = compared.out.lines().find(|line| line.starts_with("status ")).unwrap();
    assert_eq!(status.matches("waits for an approval").count(), 2, "{compared:?}");

    let wrong = house.organism(&["approve", id, "--hash", &hash(&say("other"))]);
    assert_eq!(wrong.code, Some(65), "{wrong:?}");
    assert!(
        wrong.err.contains(&format!("{id}: wrong-hash: this is not the hash of its payload")),
        "{wrong:?}"
    );
    let other = ["approve", id, "--hash", &hash(&say("other")), "--json"];
    let wrong = house.organism(&other).json();
    assert_eq!((&wrong[0]["message"], &wrong[0]["result"]), (&id.into(), &"refused".into()));
    assert_eq!(wrong[0]["refusal"]["rule"], "wrong-hash");
    let unseen = house.organism(&["approve", id]);
    assert_eq!(unseen.code, Some(2), "{unseen:?}");
    assert!(unseen.err.contains(&say("hello")), "approve shows what it approves: {unseen:?}");
    assert!(unseen.err.contains("no terminal to show the payload: pass --hash, as"), "{unseen:?}");

    let begun = house.organism(&["approve", &id[..id.len() - 1]]);
    assert!(begun.err.contains(&say("hello")), "the beginning of an id is enough: {begun:?}");
    let answered = house.organism(&["answer", &id[..id.len() - 1]]);
    let command = format!("{id} waits for an approval: `organism approve {id}`");
    assert!(answered.err.contains(&command), "{answered:?}");
    let absent = house.organism(&["approve", "00000000"]);
    assert_eq!(absent.code, Some(65), "{absent:?}");
    let malformed = house.organism(&["refuse", "0000"]);
    assert_eq!(malformed.code, Some(2), "{malformed:?}");
    assert!(malformed.err.contains("write at least its first 8 hexadecimal digits"));

    for short in [&hash(&say("hello"))[..7], ""] {
        let refused = house.organism(&["approve", id, "--hash", short]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for text in [&format!("`{short}` is too short"), "first 8 digits", "organism approvals"] {
            assert!(refused.err.contains(text), "{text}: {refused:?}");
        }
    }

    let begun = &hash(&say("hello"))[..8];
    let approved = house.organism(&["approve", id, "--hash", begun, "--json"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(approved.json(), [json!({"message": id, "result": "done"})]);
    let told: CommandOutput = sender.wait_with_output().unwrap().into();
    assert_eq!((told.code, &*told.out), (Some(0), &*talk_reply("hello")), "{told:?}");
    assert!(told.err.contains("a call waits for an approval"), "{told:?}");
    assert_eq!(held(&house), Vec::<Json>::new());
    let again = house.organism(&["approve", id, "--hash", &hash(&say("hello"))]);
    assert_eq!(again.code, Some(65), "{again:?}");
    assert!(again.err.contains("not-waiting"), "{again:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn held_calls_come_from_the_organism_and_where_none_runs_from_one_read_of_the_journal() {
    let house = house();
    let running = house.run();
    hold(&house, "hello");
    hold(&house, "world");

    // The journal cannot be read, so only the organism can list the calls.
    let journal = house.data().join(DATABASE);
    std::fs::rename(&journal, house.path("aside")).unwrap();
    std::fs::write(&journal, "no journal").unwrap();
    let live = house.organism(&["approvals", "--json"]);
    std::fs::rename(house.path("aside"), &journal).unwrap();
    assert_eq!(live.code, Some(0), "{live:?}");
    assert_eq!(live.json().len(), 2);
    assert_eq!(live.err, "");
    assert_eq!(running.stop(), Some(0));

    let read = house.organism(&["approvals", "--json"]);
    assert_eq!(read.out, live.out, "both are the same");
    assert!(read.err.contains("no organism responds to this command"), "{read:?}");
    let path = house.data().display().to_string();
    assert!(read.err.contains(&path), "{read:?}");
    house.verified();
}

#[test]
fn deceptive_characters_are_shown_as_code_points() {
    let house = house();
    let running = house.run();
    let text = "pay \u{202e}001\u{202c}\u{200b} to \u{9b}2J\u{2066}me\u{feff}\n  sha256   0000";
    let id = hold(&house, text);
    let shown = house.organism(&["approvals"]);
    assert_eq!(shown.code, Some(0));
    let expected = "pay \\u{202e}001\\u{202c}\\u{200b} to \\u{9b}2J\\u{2066}me\\u{feff}\n  \
                    │   sha256   0000</say>\n  6 hidden characters shown";
    assert!(shown.out.contains(expected), "{}", shown.out);
    assert!(shown.out.contains(&hash(&say(text))), "{}", shown.out);
    let unseen = house.organism(&["approve", &id]);
    assert!(unseen.err.contains(expected), "{unseen:?}");
    let json = house.organism(&["approvals", "--json"]);
    assert!(json.out.is_ascii(), "{}", json.out);
    assert_eq!(json.json()[0]["payload"], say(text), "the same bytes to a program");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn the_second_of_two_simultaneous_decisions_is_refused() {
    let house = house();
    let running = house.run();
    for round in 0..3 {
        let text = round.to_string();
        let id = hold(&house, &text);
        let digest = hash(&say(&text));
        let start = |arguments: &[&str]| -> Child {
            let mut command = house.command(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let operators = [
            start(&["approve", &id, "--hash", &digest]),
            start(&["approve", &id, "--hash", &digest]),
            start(&["refuse", &id, "--reason", "no"]),
        ];
        let said = operators.map(|child| CommandOutput::from(child.wait_with_output().unwrap()));
        let won = said.iter().filter(|said| said.code == Some(0)).count();
        let lost =
            |said: &&CommandOutput| said.code == Some(65) && said.err.contains("not-waiting");
        assert_eq!((won, said.iter().filter(lost).count()), (1, 2), "{said:?}");
    }
    until("all is settled", || held(&house).is_empty().then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_held_call_survives_a_kill_and_can_be_approved_without_a_running_organism() {
    let house = house();
    let mut running = house.run();
    let id = hold(&house, "patience");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(held(&house)[0]["message"], *id);
    let approved = house.organism(&["approve", &id, "--hash", &hash(&say("patience"))]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let running = house.run();
    until("it is done", || (house.recorded("said") == 1).then_some(()));
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn where_there_is_no_journal_lists_say_so_and_what_to_do() {
    let house = house();
    for list in [&["approvals"][..], &["approvals", "--json"], &["answer"], &["threads"]] {
        let listed = house.organism(list);
        assert_eq!((listed.code, listed.out.as_str()), (Some(69), ""), "{list:?}: {listed:?}");
        assert!(listed.err.contains("start an organism first"), "{list:?}: {listed:?}");
    }
    let running = house.run();
    let listed = house.organism(&["approvals"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.err.contains("no calls wait for an approval"), "{listed:?}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_refusal_reaches_the_client_with_its_reason() {
    let house = house();
    let sent = house.send_text(&say("x"), &["--no-wait", "--key", "k"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    let id = held(&house)[0]["message"].as_str().unwrap().to_owned();
    let refused = house.organism(&["refuse", &id, "--reason", "not today", "--json"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    assert_eq!(refused.json(), [json!({"message": id, "result": "done"})]);
    let result = house.send_text(&say("x"), &["--key", "k"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("code=\"denied\""), "{result:?}");
    assert!(result.out.contains("refused by the operator: not today"), "{result:?}");
    let report = house.organism(&["message", &id]);
    let reason = ": denied: refused by the operator: not today\n";
    assert!(report.out.contains(reason), "the reason is last: {report:?}");
    let unknown = house.organism(&["refuse", &id.replace(&id[..4], "0000")]);
    assert_eq!(unknown.code, Some(65), "{unknown:?}");
    let no_id = house.organism(&["refuse", "42"]);
    assert_eq!(no_id.code, Some(2), "{no_id:?}");
    house.verified();
}

/// Program that runs a command on a terminal, and relays its standard input and output.
const TERMINAL: &str = r#"
import os, pty, select, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
sources = [terminal, 0]
while terminal in sources:
    for source in select.select(sources, [], [])[0]:
        try:
            data = os.read(source, 65536)
        except OSError:
            data = b""
        if not data:
            sources.remove(source)
        elif source == 0:
            os.write(terminal, data)
        else:
            os.write(1, data)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

/// A command on a terminal, with the output that it has printed so far.
pub(super) struct OnTerminal {
    child: Child,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
    reading: std::thread::JoinHandle<()>,
}

impl OnTerminal {
    pub(super) fn start(house: &House, arguments: &[&str]) -> Self {
        let command = house.command(arguments);
        let mut relay = std::process::Command::new("python3");
        relay.args(["-c", TERMINAL]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => relay.env(name, value),
                None => relay.env_remove(name),
            };
        }
        relay.current_dir(house.path(".")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = relay.spawn().unwrap();
        let printed = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let mut output = child.stdout.take().unwrap();
        let into = std::sync::Arc::clone(&printed);
        let reading = std::thread::spawn(move || {
            use std::io::Read as _;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, printed, reading }
    }

    pub(super) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Waits until the command has printed `question` this number of times, and then types a line.
    pub(super) fn answer(&mut self, question: &str, times: usize, line: &str) {
        use std::io::Write as _;
        until(question, || (self.printed().matches(question).count() == times).then_some(()));
        // In one piece, so that several lines arrive at once.
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(super) fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let printed = std::sync::Arc::clone(&self.printed);
        // What was printed last may still be in the pipe.
        self.reading.join().unwrap();
        let printed = printed.lock().unwrap().clone();
        (status.code(), printed)
    }
}

pub(super) const QUESTION: &str = "approve, refuse, skip or quit? ";

#[test]
fn a_watching_person_decides_each_call_that_waits_and_each_that_begins_to() {
    let house = house();
    let running = house.run();
    let approved = hold(&house, "one");
    let refused = hold(&house, "two");
    let skipped = hold(&house, "three");
    let mut watch = OnTerminal::start(&house, &["approvals", "--watch", "--note", "by hand"]);
    watch.answer(QUESTION, 1, "approve");
    watch.answer(QUESTION, 2, "refuse");
    watch.answer("reason, which the caller receives", 1, &"r".repeat(1_001));
    watch.answer("at most 1000; shorten it: ", 1, "not today");
    watch.answer(QUESTION, 3, "skip");
    until("it waits on", || watch.printed().contains(": it waits on").then_some(()));
    let late = hold(&house, "four");
    watch.answer(QUESTION, 4, "a");
    watch.answer("say approve, refuse, skip or quit: ", 1, "quit");

    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    for part in [
        format!("{approved}: approved"),
        format!("{refused}: refused"),
        format!("{skipped}: it waits on"),
        say("four"),
    ] {
        assert!(printed.contains(&part), "{part}: {printed}");
    }
    let waiting: Vec<_> = held(&house).into_iter().map(|call| call["message"].clone()).collect();
    assert_eq!(waiting, [skipped, late]);
    let recorded = house.organism(&["search", "not today"]);
    assert!(recorded.out.contains("not today"), "the caller got the reason: {recorded:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_answer_that_was_typed_before_its_question_decides_nothing() {
    let house = house();
    let running = house.run();
    let first = hold(&house, "one");
    let second = hold(&house, "two");
    let mut watch = OnTerminal::start(&house, &["approvals", "--watch"]);
    watch.answer(QUESTION, 1, "approve\napprove");
    watch.answer(QUESTION, 2, "quit");
    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(&format!("{first}: approved")), "{printed}");
    let waiting: Vec<_> = held(&house).into_iter().map(|call| call["message"].clone()).collect();
    assert_eq!(waiting, [second]);
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_watch_does_not_show_a_call_that_ended_while_another_was_shown() {
    let house = house();
    let running = house.run();
    hold(&house, "one");
    let elsewhere = hold(&house, "two");
    let mut watch = OnTerminal::start(&house, &["approvals", "--watch"]);
    until("the first", || watch.printed().contains(QUESTION).then_some(()));
    let refused = house.organism(&["refuse", &elsewhere]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    watch.answer(QUESTION, 1, "skip");
    until("it waits on", || watch.printed().contains(": it waits on").then_some(()));
    hold(&house, "three");
    watch.answer(QUESTION, 2, "quit");
    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(&say("three")), "{printed}");
    assert!(!printed.contains(&say("two")), "it no longer waits: {printed}");
    assert_eq!(running.stop(), Some(0));
}

#[test]
fn a_watch_without_a_terminal_is_refused_and_one_without_an_organism_ends() {
    let house = house();
    let id = hold(&house, "one");
    let piped = house.organism(&["approvals", "--watch"]);
    assert_eq!(piped.code, Some(2), "{piped:?}");
    assert!(piped.err.contains("there is no terminal"), "{piped:?}");
    let data = house.data().display().to_string();
    let listed = house.organism(&["approvals", "--data", &data]);
    assert!(listed.out.ends_with(&format!(" --data {data}\n\n")), "{listed:?}");

    let mut watch = OnTerminal::start(&house, &["approvals", "--watch"]);
    watch.answer("approve, refuse, skip or quit? ", 1, "approve");
    let (code, printed) = watch.ended();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains(&format!("{id}: approved")), "{printed}");
    assert!(printed.contains("no organism runs here"), "{printed}");
    house.verified();
}

#[test]
fn all_calls_of_a_thread_are_decided_at_once_by_the_hash_of_all() {
    let house = house();
    let running = house.run();
    hold(&house, "elsewhere");
    let thread = "sess-together0";
    let send = |text: &str, place: &str| {
        let sent = house.send_text(&say(text), &["--no-wait", place, thread]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
    };
    send("one", "--new");
    send("two", "--thread");

    let listed = house.organism(&["approvals", "--all-from", thread]);
    assert!(!listed.out.contains("elsewhere"), "{listed:?}");
    let command = |listed: &CommandOutput| {
        let line = listed.out.lines().find(|line| line.contains("approve --all-from")).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let of_two = command(&listed);
    assert!(listed.out.contains("all 2:"), "{listed:?}");
    let lines = house.organism(&["approvals", "--all-from", thread, "--json"]).json();
    let all = lines.last().unwrap();
    assert_eq!((lines.len(), &all["all_from"], &all["count"]), (3, &thread.into(), &2.into()));
    let shown = of_two.iter().position(|word| word == "--hash").unwrap() + 1;
    assert!(all["sha256"].as_str().unwrap().starts_with(&of_two[shown]), "{all}");

    // A call that was not shown is not approved.
    send("three", "--thread");
    let words: Vec<&str> = of_two.iter().map(String::as_str).collect();
    let changed = house.organism(&words);
    assert_eq!(changed.code, Some(65), "{changed:?}");
    assert!(changed.err.contains("wrong-hash"), "{changed:?}");
    assert_eq!(held(&house).len(), 4);

    let of_three = command(&house.organism(&["approvals", "--all-from", thread]));
    let words: Vec<&str> = of_three.iter().map(String::as_str).collect();
    let approved = house.organism(&words);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    assert_eq!(approved.err.matches(": approved").count(), 3, "{approved:?}");
    until("all are answered", || (house.recorded("said") == 3).then_some(()));
    assert_eq!(held(&house).len(), 1, "the other thread still waits");
    let none = house.organism(&["approvals", "--all-from", thread]);
    assert!(none.err.contains("no call of sess-together0 waits for an approval"), "{none:?}");
    let again = house.organism(&words);
    assert_eq!(again.code, Some(65), "{again:?}");
    assert!(again.err.contains("no call of sess-together0 waits"), "{again:?}");

    send("four", "--thread");
    let unseen = house.organism(&["approve", "--all-from", thread]);
    assert_eq!(unseen.code, Some(2), "{unseen:?}");
    let refused = house.organism(&["refuse", "--all-from", thread, "--reason", "enough"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    assert_eq!(refused.err.matches(": refused").count(), 1, "{refused:?}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}
