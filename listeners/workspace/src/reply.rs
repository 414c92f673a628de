//! Answers as the elements of `schemas/actions.xsd` and `schema/workspace.xsd`.

use organism::xml::element::Element;
use organism::xml::shape::QName;

use crate::command::{Done, Outcome};
use crate::diff::Diff;
use crate::failure::Failure;
use crate::manifest::Manifest;
use crate::output::Output;
use crate::package::{self, Install};

const ACTIONS: &str = "https://xml-pipeline.org/ns/actions/v1";
const WORKSPACE: &str = "https://xml-pipeline.org/ns/workspace/v1";

pub fn failed(failure: &Failure) -> String {
    actions("action-failed")
        .child(child(ACTIONS, "code").text(failure.code.as_str()))
        .child(child(ACTIONS, "message").text(failure.message.as_str()))
        .to_xml()
}

/// Absent `set`: nothing was changed.
pub fn applied(
    set: Option<u64>,
    summary: Option<&str>,
    undoes: Option<u64>,
    diff: &Diff,
) -> String {
    let mut applied = actions("changes-applied");
    if let Some(set) = set {
        applied = applied.attribute("set", set.to_string());
    }
    applied = summarised(applied, summary, undoes);
    with_diff(ACTIONS, applied, diff).to_xml()
}

pub fn changes(summary: Option<&str>, sets: &[Manifest], diff: &Diff) -> String {
    let mut changes = Element::new(QName::new(Some(WORKSPACE), "workspace-changes"));
    changes = summarised(changes, summary, None);
    for set in sets {
        let told = child(WORKSPACE, "set").attribute("number", set.set.to_string());
        changes = changes.child(summarised(told, set.summary.as_deref(), set.undoes));
    }
    with_diff(WORKSPACE, changes, diff).to_xml()
}

/// `command` is told where the caller has not written it.
pub fn ran(id: Option<&str>, command: Option<&str>, done: &Done) -> String {
    let mut result = actions("command-result");
    if let Some(id) = id {
        result = result.attribute("id", id);
    }
    let (word, code) = match done.outcome {
        Outcome::Exited(code) => ("exited", Some(code)),
        Outcome::TimedOut => ("timed-out", None),
        Outcome::TooMuchOutput => ("too-much-output", None),
        Outcome::Cancelled => ("cancelled", None),
    };
    result = result.attribute("outcome", word);
    if let Some(code) = code {
        result = result.attribute("exit_code", code.to_string());
    }
    result = result.attribute("duration_ms", done.duration.as_millis().to_string());
    if let Some(command) = command {
        result = result.child(child(ACTIONS, "command").text(command));
    }
    result.child(output("stdout", &done.stdout)).child(output("stderr", &done.stderr)).to_xml()
}

pub fn proposed(proposal: &str, language: &str, install: &Install) -> String {
    let mut proposed = actions("install-proposed")
        .attribute("proposal", proposal)
        .attribute("language", language.trim());
    for name in &install.packages {
        proposed = proposed.child(child(ACTIONS, "package").text(name.as_str()));
    }
    let command = package::shown(&install.command);
    proposed.child(child(ACTIONS, "command").text(command)).to_xml()
}

fn actions(name: &str) -> Element {
    child(ACTIONS, name)
}

fn child(namespace: &str, name: &str) -> Element {
    Element::new(QName::new(Some(namespace), name))
}

fn summarised(mut element: Element, summary: Option<&str>, undoes: Option<u64>) -> Element {
    if let Some(summary) = summary {
        element = element.attribute("summary", summary);
    }
    if let Some(undoes) = undoes {
        element = element.attribute("undoes", undoes.to_string());
    }
    element
}

fn with_diff(namespace: &str, mut element: Element, diff: &Diff) -> Element {
    for file in &diff.files {
        let mut told = child(namespace, "file")
            .attribute("path", file.path.as_str())
            .attribute("change", file.word);
        if let Some((added, removed)) = file.lines {
            told = told
                .attribute("added", added.to_string())
                .attribute("removed", removed.to_string());
        }
        element = element.child(told);
    }
    let told = cut(child(namespace, "diff"), diff.is_cut(), diff.bytes as u64);
    element.child(told.text(diff.text.as_str()))
}

fn output(name: &str, output: &Output) -> Element {
    cut(child(ACTIONS, name), output.is_cut(), output.total()).text(output.text())
}

fn cut(element: Element, is_cut: bool, bytes: u64) -> Element {
    match is_cut {
        true => element.attribute("truncated", "true").attribute("bytes", bytes.to_string()),
        false => element,
    }
}
