//! A command whose reader has closed the pipe stops its output, but finishes its work.

use std::io::{PipeReader, Write as _};
use std::process::{Child, Command, Stdio};

use super::kill::torture;
use super::{CONFIG, House, say, talk_reply, until};

/// A pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Exit code of a command whose standard output has no reader. With `all`, the standard error of
/// the command has no reader either.
fn code_unread(mut command: Command, all: bool) -> Option<i32> {
    command.stdout(unread());
    command.stderr(if all { unread() } else { Stdio::null() });
    command.status().unwrap().code()
}

/// Commands to run without a reader. An unused name replaces `NEW` in each.
const COMMANDS: &[&[&str]] = &[
    &["--help"],
    &["help", "send"],
    &["init", "NEW"],
    &["check"],
    &["check", "--json"],
    &["check", "--config", "bad.toml"],
    &["check", "--json", "--config", "bad.toml"],
    &["schema", "validate", "talk.xsd"],
    &["schema", "describe", "talk.xsd"],
    &["schema", "describe", "--json", "talk.xsd"],
    &["schema", "example", "talk.xsd"],
    &["schema", "json", "talk.xsd"],
    &["schema", "validate", "talk.xsd", "good.xml"],
    &["schema", "validate", "talk.xsd", "bad.xml"],
    &["send", "--as", "desk", "good.xml"],
    &["send", "--as", "desk", "--json", "good.xml"],
    &["send", "--as", "desk", "bad.xml"],
    &["threads"],
    &["threads", "--json"],
    &["thread", "sess-first000"],
    &["thread", "sess-first000", "--json"],
    &["thread", "sess-none0000"],
    &["tail", "--no-follow"],
    &["tail", "--no-follow", "--json"],
    &["search", "first"],
    &["search", "nothing of this kind"],
    &["export"],
    &["export", "--format", "jsonl"],
    &["approvals"],
    &["approvals", "--json"],
    &["approve", "00000000-0000-7000-8000-000000000000", "--hash", "00000000"],
    &["refuse", "00000000-0000-7000-8000-000000000000"],
    &["answer"],
    &["prompt", "nobody"],
    &["record", "NEW", "good.xml", "--as", "desk"],
    &["workflow", "show", "nothing"],
    &["workflow", "run", "nothing"],
    &["key", "show"],
    &["nats-config", "--out", "NEW"],
    &["repair"],
    &["models"],
    &["models", "--json"],
    &["backup", "NEW"],
    &["verify"],
    &["verify", "--json"],
    &["cancel", "sess-first000"],
    &["adopt"],
    &["secret", "new"],
    &["secret", "new", "--out", "NEW"],
    &["listener", "test", "--payload", "good.xml", "--timeout", "60", "./player.pl", "echo"],
];

#[test]
fn every_command_ends_as_it_does_where_its_output_is_read() {
    let house = House::new();
    house.write("bad.toml", CONFIG.replace("peers = [\"echo\"]", "peers = [\"nobody\"]"));
    house.write("good.xml", say("hello"));
    house.write("bad.xml", "<say>");
    assert_eq!(
        house.send_text(&say("first"), &["--new", "sess-first000"]).out,
        talk_reply("first")
    );

    let mut names = 0;
    let mut command = |arguments: &[&str]| {
        names += 1;
        let new = format!("new-{names}");
        let arguments = arguments.iter().map(|argument| argument.replace("NEW", &new));
        let arguments: Vec<_> = arguments.collect();
        house.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (number, arguments) in COMMANDS.iter().enumerate() {
        let read = command(arguments).output().unwrap();
        // In a short run, each command is tried in one of the two ways.
        let ways = [false, true].into_iter();
        for all in ways.filter(|all| torture() || *all == number.is_multiple_of(2)) {
            let ended = code_unread(command(arguments), all);
            assert_eq!(ended, read.status.code(), "{arguments:?}, {all}: {read:?}");
        }
    }
}

#[test]
fn a_tail_ends_when_its_reader_goes_away() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say("first"), &[]).out, talk_reply("first"));
    assert_eq!(code_unread(house.command(&["tail"]), false), Some(0));
}

#[test]
fn every_file_of_a_directory_is_sent_although_the_reader_has_gone() {
    let house = House::with_echo();
    std::fs::create_dir(house.path("all")).unwrap();
    for number in 0..70 {
        house.write(&format!("all/{number}.xml"), say(&number.to_string()));
    }
    let each = ["send", "--each", "all", "--as", "desk"];
    assert_eq!(code_unread(house.command(&each), true), Some(0));
    assert_eq!(house.recorded("said"), 70);
}

/// A full pipe, and its reader, which takes nothing.
fn full() -> (Stdio, PipeReader) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let log = writer.try_clone().unwrap();
    // Fills each byte that becomes free, and ends with the reader.
    std::thread::spawn(move || writer.write_all(&vec![b'.'; 4 << 20]));
    (log.into(), reader)
}

/// Checks that an organism that writes its log to `log` starts, serves a client, and stops.
fn runs_with(log: Stdio) {
    let house = House::new();
    let mut run = house.command(&["run"]);
    run.env("ORGANISM_LOG", "debug");
    let mut run: Child = run.stdout(unread()).stderr(log).spawn().unwrap();
    until("its socket is there", || house.data().join("control.sock").exists().then_some(()));
    assert_eq!(house.send_text(&say("hello"), &[]).out, talk_reply("hello"));
    let stopping = Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap();
    assert!(stopping.success());
    assert_eq!(until("it stops", || run.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn a_run_continues_although_the_reader_of_its_log_has_gone() {
    runs_with(unread());
}

#[test]
fn a_run_continues_although_the_reader_of_its_log_takes_nothing() {
    let (log, reader) = full();
    runs_with(log);
    drop(reader);
}

/// A full disk under the output is an error, and a closed reader is not. The work is done in both
/// cases.
#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_an_error_and_the_work_is_done() {
    let house = House::with_echo();
    house.write("good.xml", say("hello"));
    let mut send = house.command(&["send", "--as", "desk", "good.xml"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = send.stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(told.contains("standard output is incomplete"), "{told}");
    assert_eq!(house.recorded("said"), 1);
}

/// If the disk under the output is full, a command does its work, and its error names the standard
/// output. The error cannot be taken for a full disk under the journal.
#[test]
#[cfg(target_os = "linux")]
fn a_command_whose_output_cannot_be_written_names_it_and_does_its_work() {
    let house = House::with_echo();
    assert_eq!(house.send_text(&say(&"hello ".repeat(5_000)), &[]).code, Some(0));
    let ended = |arguments: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = house.command(arguments);
        let ended = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        let notes = String::from_utf8_lossy(&ended.stderr);
        assert!(notes.contains("standard output is incomplete: "), "{arguments:?}: {notes}");
        ended.status.code()
    };

    assert_eq!(ended(&["check"]), Some(69));
    for text in [&["--help"][..], &["--version"], &["threads", "--help"], &["help", "send"]] {
        assert_eq!(ended(text), Some(69), "{text:?}");
    }
    // The whole export is larger than the buffer of the output, and the empty export is smaller.
    assert_eq!(ended(&["export"]), Some(69));
    assert_eq!(ended(&["export", "--until", "2020-01-01"]), Some(69));
    assert_eq!(ended(&["backup", "copy"]), Some(69));
    assert!(house.path("copy/data/journal.db").exists());
    assert!(house.path("copy/state").exists());
}
