//! Failures of the process, the power supply, the disk or the directory, tested on the whole
//! product. After each failure, the clients' ledger, the journal and the effects of the listeners
//! must agree.
//!
//! Some tests need tracing or mounting. Where the machine does not permit this, the tests are
//! skipped with a line on standard error.

mod disk;
mod holders;
mod places;
mod power;
mod rooms;
mod rot;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::organism::{House, until};

/// A config with one listener, which answers `ping` with `pong`. An organism with only one listener
/// starts fast.
const SMALL: &str = r#"
[organism]
name = "talk"

[clients.desk]
peers = ["solo"]

[listeners.solo]
command = ["./player.pl", "solo"]
schema = "talk.xsd"
accepts = ["ping"]
replies = ["pong"]
"#;

/// Prints a skipped test directly to standard error, because the test harness hides the output of
/// passed tests.
fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn succeeds(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("`{program}` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{program} {}`: {}", arguments.join(" "), said.trim()))
}

/// A file system for one test. Dropping this value unmounts the file system.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    /// Mounts a file system at `at`. `arguments` are the options of `mount` and the source.
    fn new(arguments: &[&str], at: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).unwrap();
        let arguments: Vec<&str> = arguments.iter().copied().chain(at.to_str()).collect();
        succeeds("mount", &arguments)?;
        Ok(Self { at: at.to_owned() })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A lazy unmount: the file system disappears at once, and is released after its last use.
        let undone = succeeds("umount", &["--lazy", self.at.to_str().unwrap()]);
        assert!(undone.is_ok() || std::thread::panicking(), "{undone:?}");
    }
}

/// Whether this process may trace the system calls of other processes.
fn may_trace() -> Result<(), String> {
    let tampering = ["-f", "-qq", "-e", "inject=fdatasync:error=EIO:when=1", "true"];
    succeeds("strace", &tampering)
}

/// Makes system calls of a running organism fail.
struct Tracer {
    child: Child,
}

impl Tracer {
    fn attach(house: &House, pid: u32, inject: &str) -> Self {
        let log = house.path("strace");
        let stderr = std::fs::File::create(&log).unwrap();
        let child = Command::new("strace")
            .args(["-f", "-p", &pid.to_string(), "-e", &format!("inject={inject}")])
            .args(["-o", house.path("calls").to_str().unwrap()])
            .stderr(stderr)
            .spawn()
            .unwrap();
        let tracer = Self { child };
        until("it is traced", || {
            std::fs::read_to_string(&log).unwrap().contains("attached").then_some(())
        });
        tracer
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // The tracer ends with the traced process, or detaches from it.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
