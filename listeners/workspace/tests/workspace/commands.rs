//! Tests of commands: their directory, their environment, and their end.

use organism::xml::element::Element;
use workspace::{WorkspaceCall, limits};

use super::{Room, action, escaped, set, shell, substring, value_in, verdict};

// A4 A7
#[test]
fn a_command_runs_as_written_and_its_exit_is_reported() {
    let room = Room::new();
    let cases = [
        ("echo one && echo two >&2", "0", "one\n", "two\n"),
        ("exit 3", "3", "", ""),
        ("kill -9 $$", "137", "", ""),
        ("no-such-program-here", "127", "", "no-such-program-here: not found"),
        ("\nprintf '%s' \"<a> & 'b' \\\"\"\n", "0", "<a> & 'b' \"", ""),
        ("cat", "0", "", ""),
        ("printf 'a\\001\\377b'", "0", "a\u{FFFD}\u{FFFD}b", ""),
        ("# nothing", "0", "", ""),
    ];

    for (command, code, stdout, stderr) in cases {
        let answer = room.ask(&shell(command));
        assert_eq!(value_in(&answer, "@id"), "default");
        assert_eq!(
            (value_in(&answer, "@outcome").as_str(), value_in(&answer, "@exit_code").as_str()),
            ("exited", code),
            "{answer}"
        );
        assert_eq!(value_in(&answer, "stdout"), stdout, "{command}");
        assert!(value_in(&answer, "stderr").contains(stderr), "{answer}");
    }

    let proposed = action(
        "proposed_shell_command",
        "working_directory='.' is_dangerous='false'",
        &escaped("mkdir -p a && cd a && pwd > here"),
    );
    assert_eq!(value_in(&room.ask(&proposed), "@exit_code"), "0");
    assert_eq!(room.read("a/here"), format!("{}\n", room.path("a").display()));
}

#[test]
fn a_command_finds_what_it_needs_and_nothing_of_its_hosts() {
    // The environment of every test contains these variables.
    assert!(std::env::vars().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    let room = Room::with(|options| options.passed = vec!["CARGO_PKG_NAME".to_owned()]);
    let text = value_in(&room.ask(&shell("env")), "stdout");
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).collect();
    names.sort_unstable();
    let known = [
        "CARGO_PKG_NAME",
        "GIT_TERMINAL_PROMPT",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LOGNAME",
        "NO_COLOR",
        "OLDPWD",
        "PAGER",
        "PATH",
        "PWD",
        "SHELL",
        "SHLVL",
        "TERM",
        "TMPDIR",
        "TZ",
        "USER",
        "_",
    ];
    let foreign: Vec<_> = names.iter().filter(|(name, _)| !known.contains(name)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(names.contains(&("CARGO_PKG_NAME", "workspace")) && names.contains(&("TERM", "dumb")));

    if !cfg!(target_os = "linux") {
        return;
    }
    // The environment of the parent process contains nothing else.
    let parents = value_in(&room.ask(&shell("tr '\\0' '\\n' < /proc/$PPID/environ")), "stdout");
    assert!(parents.contains("TERM=dumb") && !parents.contains("CARGO_MANIFEST_DIR"), "{parents}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_that_takes_too_long_is_killed_with_all_it_has_started() {
    use std::time::{Duration, Instant};

    let room = Room::with(|options| options.time = Duration::from_millis(700));
    let script = "trap '' TERM HUP INT
        sleep 1000 & echo $! > pids
        setsid sleep 1000 & echo $! >> pids
        (setsid sh -c 'sleep 1000 & echo $! >> pids; sleep 1000' &)
        echo started
        sleep 1000";
    let begun = Instant::now();
    let answer = room.ask(&shell(script));
    assert_eq!(value_in(&answer, "@outcome"), "timed-out");
    assert_eq!(
        (value_in(&answer, "@exit_code").as_str(), value_in(&answer, "stdout").as_str()),
        ("(none)", "started\n")
    );
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    nothing_is_left(&room);
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_command_leaves_in_the_background_ends_with_it() {
    use std::time::{Duration, Instant};

    let room = Room::new();
    let begun = Instant::now();
    let script = "sleep 1000 & echo $! > pids; setsid sleep 1000 & echo $! >> pids; echo done";
    let answer = room.ask(&shell(script));
    assert_eq!(
        (value_in(&answer, "@exit_code").as_str(), value_in(&answer, "stdout").as_str()),
        ("0", "done\n")
    );
    assert!(begun.elapsed() < Duration::from_secs(15));
    nothing_is_left(&room);
}

/// Asserts that none of the command's processes exists any more.
#[cfg(target_os = "linux")]
fn nothing_is_left(room: &Room) {
    let pids = room.read("pids");
    assert!(pids.lines().count() >= 2, "{pids}");
    for pid in pids.lines() {
        let path = format!("/proc/{pid}/cmdline");
        let command = std::fs::read_to_string(path).unwrap_or_default();
        assert!(!command.contains("sleep"), "{pid} is still there: {command}");
    }
}

#[test]
fn a_caller_that_is_gone_ends_the_command() {
    let room = Room::new();
    let started = || room.path("started").exists();
    let call = WorkspaceCall {
        message: "m",
        payload: &shell("touch started; sleep 1000"),
        cancelled: &started,
        approved_preview: None,
    };
    let answer = room.workspace.answer(&call).unwrap();
    assert_eq!(value_in(&answer, "@outcome"), "cancelled");
}

#[test]
fn long_output_keeps_its_beginning_and_its_end_and_endless_output_is_stopped() {
    let room = Room::new();
    let answer = room.ask(&shell("seq 1 100000; seq 1 20 >&2"));
    let element = Element::read(&answer).unwrap();
    let out = element.child("stdout").unwrap();
    let err = element.child("stderr").unwrap();
    assert_eq!(
        (out.attribute("truncated"), out.attribute("bytes")),
        (Some("true"), Some("588895"))
    );
    assert!(out.text().starts_with("1\n2\n") && out.text().ends_with("99999\n100000\n"));
    assert!(out.text().len() < limits::OUTPUT_BYTES_MAX + 100);
    assert_eq!((err.attribute("truncated"), err.text().lines().count()), (None, 20));
    let answer = room.ask(&shell("yes"));
    assert_eq!(value_in(&answer, "@outcome"), "too-much-output", "{}", &answer[..300]);
    // The characters that escaping expands most still fit.
    let answer = room.ask(&shell("yes '&&&&' | head -c 100000; yes '<<<<' | head -c 100000 >&2"));
    assert!(answer.len() < organism::limits::PAYLOAD_BYTES_MAX, "{}", answer.len());
}

#[test]
fn a_message_that_comes_again_does_not_run_its_command_again() {
    let room = Room::new();
    let command = shell("echo x >> log; wc -l < log");
    let first = room.deliver("m1", &command);
    assert_eq!(room.deliver("m1", &command), first);
    assert_eq!(room.read("log"), "x\n");
    room.deliver("m2", &command);
    assert_eq!(room.read("log"), "x\nx\n");
}

#[test]
fn commands_of_a_set_follow_its_files_and_stop_at_the_first_failure() {
    let room = Room::new();
    room.write("f", "one\n");
    let command = |text: &str| action("proposed_shell_command", "is_dangerous='false'", text);
    let steps =
        [substring("f", "one", "two"), command("cat f"), command("false"), command("touch never")];
    let answer = room.ask(&set(&steps));
    let results = answer.matches("<command-result").count();
    assert_eq!((verdict(&answer).as_str(), results), ("changes-applied", 2), "{answer}");
    assert!(answer.contains("<stdout>two\n</stdout>") && !room.path("never").exists());

    // If the files cannot be changed, no command runs.
    let steps = [substring("f", "none", "x"), command("touch never")];
    assert_eq!(verdict(&room.ask(&set(&steps))), "no-match");
    let many = vec![command("touch never"); limits::SET_COMMANDS_MAX + 1];
    assert_eq!(verdict(&room.ask(&set(&many))), "too-many");
    assert!(!room.path("never").exists());
}
