//! Writes the workspace's answers as elements of `schemas/actions.xsd` and `schema/workspace.xsd`.

use organism::listener::Reply;
use organism::xml::element::Element;
use organism::xml::shape::QName;

use crate::command::{CommandOutcome, FinishedCommand};
use crate::diff::UnifiedDiff;
use crate::failure::{ActionFailure, FailureCode};
use crate::limits;
use crate::manifest::SetManifest;
use crate::output::CommandOutput;
use crate::package::{self, InstallCommand};

const ACTIONS: &str = "https://xml-pipeline.org/ns/actions/v1";
const WORKSPACE: &str = "https://xml-pipeline.org/ns/workspace/v1";

/// Writes the answer to a call that was not carried out.
pub fn failed(failure: &ActionFailure) -> String {
    if failure.code == FailureCode::StalePreview {
        let payloads = Reply::stale_preview(&failure.message);
        return payloads.payloads().concat();
    }

    actions("action-failed")
        .with_child(child(ACTIONS, "code").with_text(failure.code.as_str()))
        .with_child(child(ACTIONS, "message").with_text(failure.message.as_str()))
        .to_xml()
}

/// Writes the answer `changes-applied`. `set` is the number of the set of changes, or `None` if no
/// file was changed.
pub fn applied(
    set: Option<u64>,
    summary: Option<&str>,
    undoes: Option<u64>,
    diff: &UnifiedDiff,
) -> String {
    let mut applied = actions("changes-applied");
    if let Some(set) = set {
        applied = applied.with_attribute("set", set.to_string());
    }
    applied = summarised(applied, summary, undoes);
    with_diff(ACTIONS, applied, diff).to_xml()
}

pub fn changes(summary: Option<&str>, sets: &[SetManifest], diff: &UnifiedDiff) -> String {
    let mut changes = Element::new(QName::new(Some(WORKSPACE), "workspace-changes"));
    changes = summarised(changes, summary, None);
    let each = sets.iter().map(|set| {
        let child_element = child(WORKSPACE, "set").with_attribute("number", set.set.to_string());
        summarised(child_element, set.summary.as_deref(), set.undoes)
    });

    with_diff(WORKSPACE, with_list(changes, "sets", each), diff).to_xml()
}

/// Writes the answer `command-result`. `command` is `None` if the caller wrote the command itself
/// and so knows it.
pub fn ran(id: Option<&str>, command: Option<&str>, done: &FinishedCommand) -> String {
    let mut result = actions("command-result");
    if let Some(id) = id {
        result = result.with_attribute("id", id);
    }

    let (word, code) = match done.outcome {
        CommandOutcome::Exited(code) => ("exited", Some(code)),
        CommandOutcome::TimedOut => ("timed-out", None),
        CommandOutcome::TooMuchOutput => ("too-much-output", None),
        CommandOutcome::Cancelled => ("cancelled", None),
    };

    result = result.with_attribute("outcome", word);
    if let Some(code) = code {
        result = result.with_attribute("exit_code", code.to_string());
    }

    result = result.with_attribute("duration_ms", done.duration.as_millis().to_string());
    if let Some(command) = command {
        result = result.with_child(child(ACTIONS, "command").with_text(command));
    }

    result
        .with_child(output("stdout", &done.stdout))
        .with_child(output("stderr", &done.stderr))
        .to_xml()
}

pub fn proposed(proposal: &str, language: &str, install: &InstallCommand) -> String {
    let mut proposed = actions("install-proposed")
        .with_attribute("proposal", proposal)
        .with_attribute("language", language.trim());
    for name in &install.packages {
        proposed = proposed.with_child(child(ACTIONS, "package").with_text(name.as_str()));
    }

    let command = package::shown(&install.command);
    proposed.with_child(child(ACTIONS, "command").with_text(command)).to_xml()
}

fn actions(name: &str) -> Element {
    child(ACTIONS, name)
}

fn child(namespace: &str, name: &str) -> Element {
    Element::new(QName::new(Some(namespace), name))
}

fn summarised(mut element: Element, summary: Option<&str>, undoes: Option<u64>) -> Element {
    if let Some(summary) = summary {
        element = element.with_attribute("summary", summary);
    }

    if let Some(undoes) = undoes {
        element = element.with_attribute("undoes", undoes.to_string());
    }

    element
}

fn with_diff(namespace: &str, element: Element, diff: &UnifiedDiff) -> Element {
    let files = diff.files.iter().map(|file| {
        let child_element = child(namespace, "file")
            .with_attribute("path", file.path.as_str())
            .with_attribute("change", file.word);
        match file.lines {
            Some((added, removed)) => child_element
                .with_attribute("added", added.to_string())
                .with_attribute("removed", removed.to_string()),
            None => child_element,
        }
    });

    let element = with_list(element, "files", files);
    let child_element = cut(child(namespace, "diff"), diff.is_cut(), diff.bytes as u64);
    element.with_child(child_element.with_text(diff.text.as_str()))
}

/// Appends as many of `children` as fit into [`limits::LIST_BYTES_MAX`]. If some do not fit, the
/// attribute `count` states the number of all.
fn with_list(
    mut element: Element,
    count: &str,
    children: impl ExactSizeIterator<Item = Element>,
) -> Element {
    let total = children.len();
    let mut bytes = 0;

    for child_element in children {
        bytes += child_element.to_xml().len();
        if bytes > limits::LIST_BYTES_MAX {
            return element.with_attribute(count, total.to_string());
        }
        element = element.with_child(child_element);
    }

    element
}

fn output(name: &str, output: &CommandOutput) -> Element {
    cut(child(ACTIONS, name), output.is_cut(), output.total()).with_text(output.text())
}

fn cut(element: Element, is_cut: bool, bytes: u64) -> Element {
    if !is_cut {
        return element;
    }

    element.with_attribute("truncated", "true").with_attribute("bytes", bytes.to_string())
}
