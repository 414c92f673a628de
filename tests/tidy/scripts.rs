//! The scripts in `.ci` end with the tests, also after a failure.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::tree::root;

/// A process that a failed test leaves behind holds the standard output of the tests.
#[test]
fn a_recorded_command_ends_although_a_process_that_it_left_holds_its_output() {
    let recorded = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(root().join(".ci/record-output"));
    command.arg(recorded.path()).args(["sh", "-c", "sleep 600 & echo \"  left $!\"; exit 3"]);
    command.stdout(Stdio::piped());
    let recording = command.spawn().unwrap();

    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || sender.send(recording.wait_with_output()));
    let output = output.recv_timeout(Duration::from_secs(60));
    let text = std::fs::read_to_string(recorded.path()).unwrap();
    let left = text.trim().strip_prefix("left ").unwrap();
    assert!(Command::new("kill").arg(left).status().unwrap().success(), "it has ended: {text}");

    let output = output.expect("it waits for the process that is left").unwrap();
    assert_eq!((output.status.code(), &*text), (Some(3), &*format!("  left {left}\n\n")));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
}
