//! Tests of the program with a crash at every step, and with a full disk. The tests use the
//! program's standard input and output.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use workspace::limits;

use super::{Room, action, insert, own, replace, set, shell, substring, value_in, verdict};

/// The running program, in the directory of a test workspace.
struct Program {
    child: Child,
}

impl Program {
    fn start(room: &Path, failpoint: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspace"));
        command.arg("--state").arg(room.join("state")).arg(room.join("desk"));
        if let Some(place) = failpoint {
            command.env("ORGANISM_FAILPOINT", place);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap() }
    }

    /// Sends a message and returns the answer; `None` if the program died.
    fn ask(&mut self, message: u32, payload: &str) -> Option<String> {
        self.send(message, payload);
        self.answer()
    }

    /// Waits for the next answer; `None` if the program died.
    fn answer(&mut self) -> Option<String> {
        let mut output = BufReader::new(self.child.stdout.as_mut().unwrap());
        let mut frame = Vec::new();
        output.read_until(0, &mut frame).unwrap();
        if frame == b"<heartbeat/>\0" {
            frame.clear();
            output.read_until(0, &mut frame).unwrap();
        }
        let answer = (frame.pop() == Some(0)).then(|| String::from_utf8(frame).unwrap())?;
        let (_, payloads) = answer.split_once('>').unwrap();
        Some(payloads.strip_suffix("</e:answer>").unwrap().to_owned())
    }

    fn send(&mut self, message: u32, payload: &str) {
        let id = format!("0197a000-0000-7000-8000-{message:012}");
        let delivery = format!(
            r#"<e:delivery xmlns:e="https://xml-pipeline.org/ns/envelope/v1" listener="w" thread="sess-k3v9t2m8" call="{id}" attempt="1.1" timeout="PT60S"><e:message id="{id}" kind="call" seq="1" new="true"><e:meta><e:from>desk</e:from><e:to>w</e:to><e:thread>sess-k3v9t2m8</e:thread><e:call>{id}</e:call><e:time>2026-11-20T10:00:00Z</e:time></e:meta>{payload}</e:message></e:delivery>"#
        );
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(delivery.as_bytes()).unwrap();
        input.write_all(b"\0").unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The signal fails only if the program has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn prepared() -> Room {
    let room = Room::new();
    room.write("a", "one\n");
    room.write("b", "two\n");
    room
}

fn change() -> String {
    set(&[
        insert("a", "0", "first\n"),
        substring("b", "two", "second"),
        replace("new/dir/c", "third\n"),
    ])
}

fn made() -> Vec<(String, String)> {
    let files = [("a", "first\none\n"), ("b", "second\n"), ("new/dir/c", "third\n")];
    files.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec()
}

/// Sends a message that requests a set of changes. Crashes the program at every step in turn, and
/// restarts it. The restarted program must find either all changes of the set or none. When the
/// same message is sent again, the set must be made exactly once.
#[test]
fn a_set_is_made_wholly_and_once_wherever_the_process_dies() {
    let mut died = 0;
    let mut all_undone = 0;
    let mut all_done = 0;

    for nth in 1.. {
        let room = prepared();
        let before = room.files();
        let place = format!("workspace-step:{nth}");
        let answer = Program::start(room.directory.path(), Some(&place)).ask(1, &change());
        let is_over = answer.is_some();
        died += u32::from(!is_over);

        // The next process finds all changes, or none.
        let mut next = Program::start(room.directory.path(), None);
        next.ask(7, &own("show-changes", "")).unwrap();
        match room.files() {
            files if files == before => all_undone += 1,
            files if files == made() => all_done += 1,
            files => panic!("half a set after step {nth}: {files:?}"),
        }

        let again = next.ask(1, &change()).unwrap();
        assert_eq!(
            (verdict(&again).as_str(), value_in(&again, "@set").as_str()),
            ("changes-applied", "1")
        );
        assert_eq!(room.files(), made(), "step {nth}");
        assert_eq!(answer.unwrap_or_else(|| again.clone()), again);

        if is_over {
            break;
        }
    }

    assert!(died >= 8 && all_undone >= 7 && all_done >= 2, "{died} {all_undone} {all_done}");
}

#[test]
fn an_undo_is_made_wholly_and_once_wherever_the_process_dies() {
    for nth in 1.. {
        let room = prepared();
        let before = room.files();
        Program::start(room.directory.path(), None).ask(1, &change()).unwrap();
        let place = format!("workspace-step:{nth}");
        let undo = own("undo-changes", "");
        let answer = Program::start(room.directory.path(), Some(&place)).ask(2, &undo);
        let mut next = Program::start(room.directory.path(), None);
        let again = next.ask(2, &undo).unwrap();
        assert_eq!(value_in(&again, "@undoes"), "1", "step {nth}: {again}");
        assert_eq!(room.files(), before, "step {nth}");
        assert!(!room.path("new").exists(), "step {nth}");
        if answer.is_some() {
            assert!(nth > 6, "only {nth} steps");
            break;
        }
    }
}

/// Makes one set more than are stored, so that the oldest is deleted. Crashes the program at every
/// step of the deletion in turn, and restarts it. The restarted program must find the other sets.
#[test]
fn the_other_sets_are_found_wherever_the_process_dies_while_it_deletes_an_old_one() {
    let room = Room::new();
    for number in 1..=limits::SETS_KEPT {
        room.ask(&replace("a", &number.to_string()));
    }

    let state = room.directory.path().join("state/sets");
    for nth in 1.. {
        let place = format!("workspace-forget:{nth}");
        let payload = replace("a", &format!("step {nth}"));
        let answer = Program::start(room.directory.path(), Some(&place)).ask(nth, &payload);
        let mut next = Program::start(room.directory.path(), None);
        let again = next.ask(nth, &payload).unwrap();
        assert_eq!(verdict(&again), "changes-applied", "step {nth}: {again}");
        let shown = next.ask(1_000, &own("show-changes", "")).unwrap();
        assert!(shown.matches("<set ").count() >= limits::SETS_KEPT, "step {nth}: {shown}");
        if answer.is_some() {
            assert!(nth > 2, "only {nth} steps");
            break;
        }
    }
    assert_eq!(fs::read_dir(state).unwrap().count(), limits::SETS_KEPT, "the rest is deleted");
}

/// Crashes the program before and after an installation takes its proposal. Only after that may the
/// command have run.
#[test]
fn an_installation_is_repeated_only_if_its_process_died_before_it_took_the_proposal() {
    for (nth, repeated) in [(1, "command-result"), (2, "interrupted")] {
        let room = Room::new();
        let propose = action("proposed_package_install", "language='rust' package_list='x'", "");
        let name = value_in(&room.ask(&propose), "@proposal");
        let install = own("install-packages", &format!("proposal='{name}'"));
        let place = format!("workspace-install:{nth}");
        let mut first = Program::start(room.directory.path(), Some(&place));
        assert_eq!(first.ask(1, &install), None);

        let mut next = Program::start(room.directory.path(), None);
        let answer = next.ask(1, &install).unwrap();
        assert_eq!(verdict(&answer), repeated, "{answer}");
        assert_eq!(next.ask(1, &install).unwrap(), answer);
        assert_eq!(verdict(&next.ask(2, &install).unwrap()), "unknown-proposal");
    }
}

/// Creates a test workspace with a named pipe. Returns the workspace and the path of the pipe.
fn with_pipe() -> (Room, PathBuf) {
    let room = prepared();
    let fifo = room.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    (room, fifo)
}

#[test]
fn a_command_whose_process_died_is_not_run_again() {
    let (room, fifo) = with_pipe();
    let command = shell("echo ran >> log; echo x > fifo; sleep 1000");
    let mut first = Program::start(room.directory.path(), None);
    first.send(1, &command);
    // Both ends of the pipe are open, so the command is running.
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "x\n");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let answer = Program::start(room.directory.path(), None).ask(1, &command).unwrap();
    assert_eq!(verdict(&answer), "interrupted");
    assert_eq!(room.read("log"), "ran\n");
}

#[test]
fn a_set_whose_command_was_interrupted_changes_nothing_more() {
    let (room, fifo) = with_pipe();
    room.write("kept.txt", "one\n");
    // The change is none, so no set of changes is on record when the command begins.
    let command = shell("echo two > kept.txt; echo x > fifo; sleep 1000");
    let payload = set(&[replace("kept.txt", "one\n"), command]);
    let mut first = Program::start(room.directory.path(), None);
    first.send(1, &payload);
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "x\n");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let answer = Program::start(room.directory.path(), None).ask(1, &payload).unwrap();
    assert_eq!(verdict(&answer), "interrupted");
    assert_eq!(room.read("kept.txt"), "two\n", "the change is not made over the command's");
}

#[test]
fn a_command_ends_with_the_process_that_started_it() {
    let (room, fifo) = with_pipe();
    let mut program = Program::start(room.directory.path(), None);
    // Every process of the command has the pipe open, so end of file proves that all of them have
    // ended.
    program.send(1, &shell("exec 3> fifo; setsid sleep 1000 & sleep 1000 & sleep 1000"));
    let pipe = fs::File::open(&fifo).unwrap();
    program.child.kill().unwrap();
    let rest = std::io::read_to_string(pipe).unwrap();
    assert_eq!(rest, "");
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_that_kills_its_supervisor_is_interrupted_and_leaves_no_process() {
    let (room, fifo) = with_pipe();
    let mut program = Program::start(room.directory.path(), None);
    program.send(1, &shell("exec 3> fifo; (setsid sleep 1000 &); kill -9 $PPID; sleep 1000"));
    let pipe = fs::File::open(&fifo).unwrap();
    let answer = program.answer().unwrap();
    assert_eq!(verdict(&answer), "interrupted", "{answer}");
    assert_eq!(std::io::read_to_string(pipe).unwrap(), "");
    let next = program.ask(2, &shell("echo next")).unwrap();
    assert_eq!(value_in(&next, "stdout"), "next\n", "{next}");
}

#[test]
fn a_handler_of_the_rust_kit_ends_with_its_pump() {
    let (room, fifo) = with_pipe();
    let mut program = Program::start(room.directory.path(), None);
    program.send(1, &shell("exec 3> fifo; sleep 1000"));
    let pipe = fs::File::open(&fifo).unwrap();
    drop(program.child.stdin.take());
    drop(program.child.stdout.take());
    assert_eq!(std::io::read_to_string(pipe).unwrap(), "");
    assert_eq!(program.child.wait().unwrap().code(), Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_has_no_way_to_the_frames_and_the_listeners_environment() {
    use std::os::fd::AsRawFd as _;

    let room = prepared();
    let mut program = Program::start(room.directory.path(), None);
    let pipe = |fd: i32| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let ours = [
        pipe(program.child.stdin.as_ref().unwrap().as_raw_fd()),
        pipe(program.child.stdout.as_ref().unwrap().as_raw_fd()),
    ];
    let listener = program.child.id();
    let script = format!("ls -l /proc/$$/fd; cat /proc/{listener}/environ || echo closed");
    let answer = program.ask(1, &shell(&script)).unwrap();
    let text = value_in(&answer, "stdout");
    assert!(text.contains("pipe:"), "{text}");
    for pipe in ours {
        assert!(!text.contains(pipe.to_str().unwrap()), "{text}");
    }
    // File permissions do not restrict root.
    if !rustix::process::geteuid().is_root() {
        assert!(text.contains("closed"), "{text}");
    }
}

/// A small file system for a test. Exists only if the machine permits this test to mount one.
struct Disk {
    at: PathBuf,
}

impl Disk {
    fn mount(at: PathBuf) -> Option<Self> {
        let arguments = ["-t", "tmpfs", "-o", "size=256k", "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(&at).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self { at })
    }

    /// Fills the disk until only `pages` pages of it are free.
    fn fill(&self, pages: u64) {
        let mut filler = fs::File::create(self.at.join("filler")).unwrap();
        while filler.write_all(&[0; 1024]).is_ok() {}
        let length = filler.metadata().unwrap().len().saturating_sub(pages * 4096);
        filler.set_len(length).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.at).status().ok();
    }
}

#[test]
fn a_full_disk_refuses_a_set_and_leaves_everything_as_it_was() {
    for full in ["desk", "state"] {
        let room = Room::new();
        let Some(disk) = Disk::mount(room.directory.path().join(full)) else {
            let _ = writeln!(std::io::stderr(), "skipped: nothing can be mounted here");
            return;
        };

        room.write("a", "one\n");
        room.write("b", "two\n");
        let files = || {
            let mut files = room.files();
            files.retain(|(path, _)| path != "filler");
            files
        };
        let before = files();

        let mut program = Program::start(room.directory.path(), None);
        // The program needs some disk space to start.
        program.ask(u32::MAX, &own("show-changes", "")).unwrap();

        let mut refused = 0;
        for pages in 0.. {
            disk.fill(pages);
            let answer = program.ask(u32::try_from(pages).unwrap(), &change()).unwrap();
            if verdict(&answer) == "changes-applied" {
                assert_eq!(files(), made());
                break;
            }

            assert_eq!((verdict(&answer).as_str(), files()), ("disk-full", before.clone()));
            refused += 1;
        }
        assert!(refused >= 2, "{full} was never too full");
    }
}
