//! Tests of listeners whose program or pump ends. If a program with a pump and a launcher is
//! killed, all processes that it has started must end. A listener of the Rust kit must end when its
//! pump closes the pipes. The killed program is this test program, started again for a single test.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use organism::bus::process::{Options, ProcessHost};
use organism::listener::{Listener, Request};

use super::harness::{HostHarness, name};
use crate::organism::until;

/// Environment variable that selects what the started program does.
const PART: &str = "ORGANISM_TEST_PART";

/// Path of the `organism` program of this build.
const ORGANISM: &str = env!("CARGO_BIN_EXE_organism");

/// Starts this program again for a single test. `part` selects what the started program does in
/// this test.
fn again(test: &str, part: &str, directory: &Path, path: &OsStr) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .current_dir(directory)
        .env(PART, part)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ") && !status.contains("State:\tX")
}

/// Hosts one listener until the process is killed, in a program other than `organism`.
fn host_for_ever(launcher: Option<PathBuf>) -> ! {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // A file that exists has its whole content, because `ln` shows it under its name at once.
    let script = "echo $$ > started; ln started listener; exec sleep 1000";
    let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let options = Options { launcher, ..Options::new(name("keeper"), command) };

    let _host =
        HostHarness::hosting(|sink| Arc::new(ProcessHost::start(options, sink, runtime.handle())));
    loop {
        std::thread::park();
    }
}

/// Kills the program after its listener has started. Returns the listener's process id and what
/// the program logged.
fn killed_program(part: &str, path: &OsStr) -> (u32, String) {
    let directory = tempfile::tempdir().unwrap();
    let test = "bus::launch::a_listener_ends_with_the_program_that_has_a_launcher";
    let mut program = again(test, part, directory.path(), path);
    let listener = directory.path().join("listener");
    let pid = until("the listener runs", || std::fs::read_to_string(&listener).ok());

    program.kill().unwrap();
    let log = program.wait_with_output().map(|output| output.stderr);
    (pid.trim().parse().unwrap(), String::from_utf8(log.unwrap()).unwrap())
}

#[test]
fn a_listener_ends_with_the_program_that_has_a_launcher() {
    match std::env::var(PART).as_deref() {
        Ok("named") => host_for_ever(Some(PathBuf::from(ORGANISM))),
        Ok(_) => host_for_ever(None),
        Err(_) => {}
    }

    let tools = tempfile::tempdir().unwrap();
    let with_organism = tools.path().join("bin");
    let without = tools.path().join("empty");
    for directory in [&with_organism, &without] {
        std::fs::create_dir(directory).unwrap();
    }
    std::os::unix::fs::symlink(ORGANISM, with_organism.join("organism")).unwrap();
    let system = std::env::var_os("PATH").unwrap();
    let [with_organism, without] = [with_organism, without].map(|first| {
        let others = std::env::split_paths(&system).filter(|path| !path.join("organism").is_file());
        std::env::join_paths(std::iter::once(first).chain(others)).unwrap()
    });

    for (part, path) in [("named", &without), ("found", &with_organism)] {
        let (listener, log) = killed_program(part, path);
        until("the listener has ended", || (!is_running(listener)).then_some(()));
        assert!(!log.contains("may survive"), "{part}: {log}");
    }

    let (listener, log) = killed_program("found", &without);
    assert!(log.contains("processes of listeners may survive"), "{log}");
    assert!(is_running(listener), "nothing tied the listener to its program");
    Command::new("kill").args(["-KILL", &listener.to_string()]).status().unwrap();
}

/// A listener of the Rust kit whose handler never returns.
fn listener_for_ever() -> ! {
    let handler = |request: &Request| -> Result<(), String> {
        request.heartbeat().map_err(|error| error.to_string())?;
        loop {
            std::thread::park();
        }
    };
    let _ = Listener::new().otherwise(handler).serve();
    panic!("the handler has ended");
}

#[test]
fn a_handler_of_the_rust_kit_ends_with_its_pump() {
    if std::env::var_os(PART).is_some() {
        listener_for_ever();
    }

    let directory = tempfile::tempdir().unwrap();
    let test = "bus::launch::a_handler_of_the_rust_kit_ends_with_its_pump";
    let mut listener = again(test, "kit", directory.path(), "/bin".as_ref());
    let frame = format!("{}\0", super::kit::delivery(&["<stuck/>"]));
    listener.stdin.as_mut().unwrap().write_all(frame.as_bytes()).unwrap();
    let mut seen = Vec::new();
    // The test harness of the started program writes a line of its own.
    BufReader::new(listener.stdout.as_mut().unwrap()).read_until(0, &mut seen).unwrap();
    assert!(seen.ends_with(b"<heartbeat/>\0"), "{}", String::from_utf8_lossy(&seen));

    drop(listener.stdin.take());
    assert_eq!(listener.try_wait().unwrap(), None, "its answer can still be taken");
    drop(listener.stdout.take());
    let status = until("the listener has ended", || listener.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let mut log = String::new();
    listener.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("the pump has ended; this call is given up"), "{log}");
}
