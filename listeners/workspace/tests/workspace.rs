//! Tests of the workspace in two ways: called in this process, and as a program through its
//! standard input and output.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what is wanted")]

#[path = "workspace/commands.rs"]
mod commands;
#[path = "workspace/death.rs"]
mod death;
#[path = "workspace/edits.rs"]
mod edits;
#[path = "workspace/escapes.rs"]
mod escapes;
#[path = "workspace/packages.rs"]
mod packages;
#[path = "workspace/previews.rs"]
mod previews;
#[path = "workspace/sets.rs"]
mod sets;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use organism::listener::Preview;
use organism::xml::element::Element;
use tempfile::TempDir;
use workspace::{Options, Workspace, WorkspaceCall};

const ACTIONS: &str = "https://xml-pipeline.org/ns/actions/v1";
const WORKSPACE: &str = "https://xml-pipeline.org/ns/workspace/v1";

/// A workspace for a test: the directory `desk`, with its state in the directory `state` beside it.
struct Room {
    directory: TempDir,
    workspace: Workspace,
    messages: Cell<u32>,
}

impl Room {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("desk")).unwrap();
        let mut options = options(directory.path());
        change(&mut options);
        let workspace = Workspace::open(&directory.path().join("desk"), options).unwrap();
        Self { directory, workspace, messages: Cell::new(0) }
    }

    /// Path of the workspace, without links.
    fn work(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("desk")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.work().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        String::from_utf8(fs::read(self.path(path)).unwrap()).unwrap()
    }

    /// Sends a payload as a new message and returns the answer.
    fn ask(&self, payload: &str) -> String {
        self.messages.set(self.messages.get() + 1);
        self.deliver(&format!("message-{}", self.messages.get()), payload)
    }

    fn deliver(&self, message: &str, payload: &str) -> String {
        self.deliver_approved(message, payload, None)
    }

    /// Delivers a payload that a person has approved with this preview.
    fn deliver_approved(&self, message: &str, payload: &str, approved: Option<&Preview>) -> String {
        let approved_preview = approved.map(Preview::digest);
        let call = WorkspaceCall { message, payload, cancelled: &|| false, approved_preview };
        self.workspace.answer(&call).unwrap()
    }

    /// Returns all files of the workspace with their contents, in order.
    fn files(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        gather(&self.work(), "", &mut found);
        found.sort();
        found
    }
}

fn options(room: &Path) -> Options {
    Options {
        state: room.join("state"),
        supervisor: env!("CARGO_BIN_EXE_workspace").into(),
        shell: "/bin/sh".into(),
        time: Duration::from_secs(20),
        passed: Vec::new(),
        installs: false,
        approved: false,
    }
}

fn gather(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => gather(&entry.path(), &format!("{path}/"), found),
            kind if kind.is_file() => {
                let content = fs::read(entry.path()).unwrap();
                found.push((path, String::from_utf8_lossy(&content).into_owned()));
            }
            _ => found.push((path, "(special)".to_owned())),
        }
    }
}

/// Writes an element of the action vocabulary. `attributes` and `content` are inserted unchanged.
fn action(name: &str, attributes: &str, content: &str) -> String {
    format!("<{name} xmlns=\"{ACTIONS}\" {attributes}>{content}</{name}>")
}

fn own(name: &str, attributes: &str) -> String {
    format!("<{name} xmlns=\"{WORKSPACE}\" {attributes}/>")
}

fn escaped(text: &str) -> String {
    organism::xml::escape::escape_text(text).into_owned()
}

fn replace(path: &str, body: &str) -> String {
    action("proposed_file_replace", &format!("file_path=\"{path}\""), &escaped(body))
}

fn substring(path: &str, old: &str, new: &str) -> String {
    let strings = format!("<new_str>{}</new_str><old_str>{}</old_str>", escaped(new), escaped(old));
    action("str_replace", &format!("path=\"{path}\""), &strings)
}

fn insert(path: &str, line: &str, body: &str) -> String {
    let attributes = format!("file_path='{path}' line_number='{line}' change_summary='x'");
    action("proposed_file_insert", &attributes, &escaped(body))
}

/// Writes several proposals into one payload, a set.
fn set(proposals: &[String]) -> String {
    action("proposed_actions", "summary=\"several\"", &proposals.concat())
}

fn shell(command: &str) -> String {
    action("shell", "id='default' exec_dir='.'", &escaped(command))
}

/// Returns a value from the first element of an answer: the text of the child `what`, or the
/// attribute if `what` is `@attribute`.
fn value_in(answer: &str, what: &str) -> String {
    let element = Element::read(answer).unwrap();
    match what.strip_prefix('@') {
        Some(name) => element.attribute(name).unwrap_or("(none)").to_owned(),
        None => element.child(what).map_or_else(|| "(none)".to_owned(), Element::text),
    }
}

/// Returns the code of an `action-failed`, or the name of any other answer.
fn verdict(answer: &str) -> String {
    match Element::read(answer).unwrap() {
        element if element.local_name() == "action-failed" => value_in(answer, "code"),
        element => element.local_name().to_owned(),
    }
}
