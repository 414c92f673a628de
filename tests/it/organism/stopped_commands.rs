//! Signals to a command that has started the organism itself, while other commands are connected.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use organism::ids::Position;
use organism::journal::sqlite::JournalReader;
use organism::limits;
use organism::thread::Fact;

use super::{CONFIG, House, Running, numbered, say, talk_reply, until};

/// A house whose `holder` holds two answers at a time. It releases the answer N when the file
/// `let-go-N` appears.
fn house() -> House {
    let config = CONFIG
        .replace("\"let-go\"]", "\"let-go-{n}\"]")
        .replace("replies = [\"held\"]", "replies = [\"held\"]\ninstances = 2");
    House::with(&config)
}

/// Starts a command that sends `hold` with this number. A signal ends the command. Its output goes
/// to the files `NUMBER.out` and `NUMBER.err`.
fn hold(house: &House, number: &str) -> Running {
    hold_with_signals(house, number, "DEFAULT")
}

/// Starts a command as [`hold`] does. `action` is `DEFAULT`, or `IGNORE` for a command that is to
/// ignore SIGINT and SIGHUP, whatever this process ignores.
fn hold_with_signals(house: &House, number: &str, action: &str) -> Running {
    let mut running = start(house, number, &["send", "-", "--as", "desk"], action);
    let input = running.child.stdin.take();
    input.unwrap().write_all(numbered("hold", number).as_bytes()).unwrap();
    running
}

/// Starts `organism ARGUMENTS` with an open standard input. Its output goes to the files
/// `NAME.out` and `NAME.err`. SIGINT and SIGHUP get the action `action`, as Perl names it.
fn start(house: &House, name: &str, arguments: &[&str], action: &str) -> Running {
    let organism = house.command(arguments);
    let mut command = Command::new("perl");
    command.args(["-e", "$SIG{INT} = $SIG{HUP} = shift; exec @ARGV or die", action]);
    command.arg(organism.get_program()).args(organism.get_args());
    command.current_dir(organism.get_current_dir().unwrap_or(Path::new(".")));
    for (variable, value) in organism.get_envs() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    let file = |kind: &str| File::create(house.path(&format!("{name}.{kind}"))).unwrap();
    command.stdin(Stdio::piped()).stdout(file("out")).stderr(file("err"));
    let child = command.spawn().unwrap();
    Running { child }
}

fn content(house: &House, file: &str) -> String {
    std::fs::read_to_string(house.path(file)).unwrap()
}

/// Waits until `count` deliveries have been handed over.
fn until_handed_over(house: &House, count: usize) {
    until("the deliveries are handed over", || {
        let reader = JournalReader::open(&house.data()).ok()?;
        let records = reader.records(Position(1), reader.last().ok()?).ok()?;
        let facts = records.iter().flat_map(|sealed| &sealed.record.facts);
        let handed_over = facts.filter(|fact| matches!(fact, Fact::HandedOver { .. }));
        (handed_over.count() == count).then_some(())
    });
}

fn until_shown(house: &House, file: &str, text: &str) {
    until(text, || content(house, file).contains(text).then_some(()));
}

/// Waits for the end of a command. Returns its exit code.
fn ended(command: &mut Running) -> Option<i32> {
    until("the command ends", || command.child.try_wait().unwrap()).code()
}

#[test]
fn a_command_that_is_stopped_drains_the_organism_that_it_has_started() {
    let house = house();
    let mut starter = hold(&house, "1");
    until_handed_over(&house, 1);
    let mut other = hold(&house, "2");
    until_handed_over(&house, 2);

    starter.signal("-INT");
    until_shown(&house, "1.err", "stopping on SIGINT");
    house.write("let-go-1", "");
    house.write("let-go-2", "");
    assert_eq!(ended(&mut other), Some(0), "{}", content(&house, "2.err"));
    assert_eq!(content(&house, "2.out"), numbered("held", "2") + "\n");

    let errors = content(&house, "1.err");
    assert_eq!(ended(&mut starter), Some(130), "{errors}");
    let errors = content(&house, "1.err");
    let thread = errors.lines().find_map(|line| line.strip_prefix("thread ")).unwrap();
    let remains = format!(
        "organism: stopped on SIGINT: what has not ended in thread {thread} goes on at the next \
         start; `organism thread {thread}` shows it\n"
    );
    assert!(errors.ends_with(&remains), "{errors}");
    assert_eq!(house.recorded("held"), 2, "both deliveries have ended");
    house.verified();
}

#[test]
fn a_command_that_is_stopped_while_it_waits_for_other_commands_drains_their_calls() {
    let house = house();
    let mut starter = hold(&house, "1");
    until_handed_over(&house, 1);
    let mut other = hold(&house, "2");
    until_handed_over(&house, 2);
    house.write("let-go-1", "");
    until_shown(&house, "1.out", &numbered("held", "1"));

    starter.signal("-TERM");
    until_shown(&house, "1.err", "stopping on SIGTERM");
    house.write("let-go-2", "");
    assert_eq!(ended(&mut other), Some(0), "{}", content(&house, "2.err"));
    assert_eq!(ended(&mut starter), Some(143), "{}", content(&house, "1.err"));
    assert_eq!(house.recorded("held"), 2);
}

#[test]
fn each_result_of_a_directory_is_printed_at_once_though_other_files_wait_for_a_person() {
    let accepts = "accepts = [\"hold\"]";
    let config = CONFIG.replace(accepts, &format!("{accepts}\napproval = \"always\""));
    let house = House::with(&config);
    std::fs::create_dir(house.path("in")).unwrap();
    for number in 0..102 {
        // The first files wait. They are more than the command sends at the same time.
        let text = number.to_string();
        let payload = if number < 32 { numbered("hold", &text) } else { say(&text) };
        house.write(&format!("in/{number:03}.xml"), payload);
    }

    let send = ["send", "--each", "in", "--as", "desk"];
    let mut starter = start(&house, "each", &send, "DEFAULT");
    let results = || content(&house, "each.out").lines().count();
    until("the results of the other files are printed", || (results() == 70).then_some(()));
    starter.signal("-INT");
    let errors = || content(&house, "each.err");
    assert_eq!(ended(&mut starter), Some(130), "{}", errors());
    let summary = "102 files: 70 done, 0 refused, 0 failed, 32 to send again: ";
    assert!(errors().contains(summary), "{}", errors());
    assert!(errors().contains("031.xml: a call waits for an approval"), "{}", errors());
    assert!(content(&house, "each.out").contains(&format!("101.xml: {}", talk_reply("101"))));
    house.verified();
}

/// A house in which each `hold` waits for an approval. The directory `in` has 60 files with `hold`,
/// and then `others` files with `say`. With 60 waiting files, `send --each` sends no further file
/// until one has its result.
fn house_with_held_files(others: usize) -> House {
    let accepts = "accepts = [\"hold\"]";
    let config = CONFIG.replace(accepts, &format!("{accepts}\napproval = \"always\""));
    let house = House::with(&config);
    std::fs::create_dir(house.path("in")).unwrap();
    for number in 0..60 + others {
        let text = number.to_string();
        let payload = if number < 60 { numbered("hold", &text) } else { say(&text) };
        house.write(&format!("in/{number:03}.xml"), payload);
    }
    house
}

/// Waits until all 60 files wait for an approval. Returns the thread of the first file.
fn until_all_held(house: &House) -> String {
    let errors = || content(house, "each.err");
    let hint = ".xml: a call waits for an approval; ";
    until("all files wait", || (errors().matches(hint).count() == 60).then_some(()));
    let errors = errors();
    let first = errors.lines().find(|line| line.starts_with("000.xml")).unwrap();
    first.split([' ', '`']).find(|word| word.starts_with("sess-")).unwrap().to_owned()
}

fn cancel(house: &House, thread: &str) {
    let cancelled = house.organism(&["cancel", thread, "--reason", "for a test"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
}

#[test]
fn files_of_a_directory_take_the_places_of_held_files_that_have_ended() {
    let house = house_with_held_files(4);
    let running = house.run();
    let send = ["send", "--each", "in", "--as", "desk"];
    let mut each = start(&house, "each", &send, "DEFAULT");
    let thread = until_all_held(&house);
    assert_eq!(content(&house, "each.out"), "");

    cancel(&house, &thread);
    let others = || content(&house, "each.out").matches(": <said").count();
    until("the other files have results", || (others() == 4).then_some(()));
    each.signal("-KILL");
    each.child.wait().unwrap();
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn an_error_ends_a_directory_although_files_wait_for_a_person() {
    let house = house_with_held_files(1);
    let running = house.run();
    let send = ["send", "--each", "in", "--as", "desk"];
    let mut each = start(&house, "each", &send, "DEFAULT");
    let thread = until_all_held(&house);

    let config = std::fs::read_to_string(house.path("organism.toml")).unwrap();
    house.write("organism.toml", format!("{config}\n[clients.later]\npeers = [\"echo\"]\n"));
    let reloaded = house.organism(&["reload"]);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    cancel(&house, &thread);

    // The next file is sent with the old config.
    let code = ended(&mut each);
    let errors = content(&house, "each.err");
    assert_eq!(code, Some(75), "{errors}");
    let summary = "61 files: 0 done, 0 refused, 1 failed, 60 to send again: ";
    assert!(errors.contains(summary), "{errors}");
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("organism: ") && last.contains("config"), "{errors}");
    assert_eq!(running.stop(), Some(0));
    house.verified();
}

#[test]
fn a_second_signal_ends_the_command_without_the_rest_of_the_drain() {
    let house = house();
    let mut starter = hold(&house, "1");
    until_handed_over(&house, 1);
    let begun = Instant::now();
    starter.signal("-INT");
    until_shown(&house, "1.err", "stopping on SIGINT");
    starter.signal("-INT");
    assert_eq!(ended(&mut starter), Some(130), "{}", content(&house, "1.err"));
    assert!(begun.elapsed() < limits::DRAIN_TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn a_closed_terminal_drains_and_an_ignored_signal_stops_nothing() {
    for (action, code) in [("DEFAULT", 129), ("IGNORE", 0)] {
        let house = house();
        let mut starter = hold_with_signals(&house, "1", action);
        until_handed_over(&house, 1);
        starter.signal("-HUP");
        if action == "DEFAULT" {
            until_shown(&house, "1.err", "stopping on SIGHUP");
        }
        house.write("let-go-1", "");
        let errors = || content(&house, "1.err");
        assert_eq!(ended(&mut starter), Some(code), "{action}: {}", errors());
        assert_eq!(errors().contains("stopping"), code > 0, "{}", errors());
        assert_eq!(house.recorded("held"), 1);
    }
}

#[test]
fn a_recording_is_completed_when_its_terminal_is_closed() {
    let house = house();
    let mut recorder = start(&house, "record", &["record", "new.toml"], "DEFAULT");
    until_shown(&house, "record.err", "recording");
    let mut sender = hold(&house, "1");
    until_handed_over(&house, 1);
    recorder.signal("-HUP");
    house.write("let-go-1", "");
    assert_eq!(ended(&mut sender), Some(0), "{}", content(&house, "1.err"));
    assert_eq!(ended(&mut recorder), Some(0), "{}", content(&house, "record.err"));
    assert_eq!(house.recorded("held"), 1, "the delivery has ended");
}

#[test]
fn a_signal_to_a_command_that_is_connected_ends_this_command_alone() {
    let house = house();
    let running = house.run();
    let mut connected = hold(&house, "1");
    until_handed_over(&house, 1);
    connected.signal("-INT");
    let ended = until("the command ends", || connected.child.try_wait().unwrap());
    let output = [content(&house, "1.out"), content(&house, "1.err")];
    assert_eq!(ended.signal(), Some(2), "{ended:?}: {output:?}");

    house.write("let-go-1", "");
    assert_eq!(running.stop(), Some(0));
    assert_eq!(house.recorded("held"), 1);
}
