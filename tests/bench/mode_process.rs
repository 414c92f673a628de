//! Starts this program again in another mode, as a child process. The child process prints the name
//! of a state and waits in this state.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A child process. Dropping this value kills the process.
pub struct ModeProcess {
    pub process: Child,
    lines: BufReader<ChildStdout>,
}

impl ModeProcess {
    pub fn start(mode: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(mode).envs(variables.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits until the process reports `state`.
    pub fn wait_for(&mut self, state: &str) {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), state);
    }

    /// Closes the input of the process, so that the process ends.
    pub fn end(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for ModeProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().unwrap();
    }
}

/// Reports `state`, and keeps the process alive until its input ends.
pub fn stay(state: &str) {
    println!("{state}");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
