//! Runs of the examples that are the sources of forks, and the effects of these runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use organism::ids::ThreadId;

use super::super::{CommandOutput, until};
use super::{Example, THREAD};

/// Approves each waiting call, with the hashes that `organism approvals` lists, until the work has
/// finished. Returns the number of approved calls.
pub fn approve_until(
    is_finished: impl Fn() -> bool,
    organism: impl Fn(&[&str]) -> CommandOutput,
) -> usize {
    let mut approved = 0;
    until("the work has finished", || {
        if is_finished() {
            return Some(());
        }
        let held = organism(&["approvals", "--json"]);
        // Without a journal, no call waits.
        for call in if held.code == Some(0) { held.json() } else { Vec::new() } {
            let (id, hash) = (call["message"].as_str().unwrap(), call["sha256"].as_str().unwrap());
            let preview = call["preview"]["recorded"]["sha256"].as_str();
            let mut arguments = vec!["approve", id, "--hash", hash];
            arguments.extend(preview.into_iter().flat_map(|preview| ["--preview", preview]));
            approved += usize::from(organism(&arguments).code == Some(0));
        }
        None
    });
    approved
}

impl Example {
    /// Runs the commands at the head of the example's file, and approves the calls that wait.
    pub(super) fn run_source(&self) {
        let mut shell = self.shell_command(&self.source_commands());
        let running = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let waiting =
            std::thread::spawn(|| CommandOutput::from(running.wait_with_output().unwrap()));
        if self.has_approvals() {
            let approved =
                approve_until(|| waiting.is_finished(), |arguments| self.organism(arguments));
            assert!(approved > 0);
        }
        let ended = waiting.join().unwrap();
        // The gate refuses some of the invoices.
        let expected = if self.name == "intake" { 65 } else { 0 };
        assert_eq!(ended.code, Some(expected), "{ended:?}");
    }

    /// Whether calls of the run wait for an approval.
    pub(super) fn has_approvals(&self) -> bool {
        self.config().lines().any(|line| line.starts_with("approval = "))
    }

    /// Returns the commands that start the run, from the head of the example's file. A run has one
    /// thread with a known id, except the run of the intake, where each invoice has its own thread.
    fn source_commands(&self) -> String {
        let commands = self.commands();
        match self.name {
            "intake" => commands.replacen(" invoices\n", " invoices --count 12 --broken 10\n", 1),
            "research-desk" => {
                let (_, send) = commands.split_once("organism demo\n").unwrap();
                let tree = concat!("ROOT=", env!("CARGO_MANIFEST_DIR"));
                let send = send.replacen("ROOT=/path/to/project", tree, 1);
                format!("{send} --new {THREAD}")
            }
            "coder" => {
                let (send, others) = commands.split_once("\n  organism approvals").unwrap();
                assert!(others.contains("organism approve ID"), "{others}");
                format!("{send} --new {THREAD}")
            }
            _ => format!("{commands} --new {THREAD}"),
        }
    }

    /// The root threads of the run.
    pub(super) fn roots(&self) -> Vec<ThreadId> {
        // On a busy machine, the index may still be behind the run.
        until("the index has the run", || {
            let listed = self.organism(&["threads", "--json", "--limit", "100"]).json();
            let ids = listed.iter().filter_map(|row| ThreadId::parse(row["thread"].as_str()?).ok());
            let roots: Vec<_> = ids.filter(|id| id.as_str() != ThreadId::ORGANISM).collect();
            (!roots.is_empty()).then_some(roots)
        })
    }

    /// The files that the listeners of the run have written.
    pub(super) fn effects(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut paths: Vec<_> =
            ["try-it", "ledger.jsonl", "books"].map(|path| self.place.path().join(path)).into();
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).unwrap();
                paths.extend(entries.map(|entry| entry.unwrap().path()));
            } else if Path::exists(&path) {
                let content = std::fs::read(&path).unwrap();
                files.insert(path, content);
            }
        }
        files
    }
}
