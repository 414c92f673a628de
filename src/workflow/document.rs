//! The context document, which is the text that an agent gets as its task for a goal.
//!
//! Only this module writes the markup of the document. It escapes every text and attribute, so that
//! no output of a model can forge a goal or a correction. `docs/WORKFLOWS.md` shows each form of
//! the document.

use std::fmt::Write as _;

use crate::xml::escape::{escape_attribute, escape_text};

/// The context document of one goal, which is the request to the goal's agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoalDocument {
    pub workflow: String,
    /// Outputs of earlier goals, ordered so that each output comes after the outputs on which its
    /// goal depends.
    pub context: Vec<ContextEntry>,
    /// Passes of the loop that contains the goal, including the present pass.
    pub iterations: Vec<IterationEntry>,
    /// Id of the goal that the agent must carry out.
    pub goal: String,
    /// The loop around the goal, with the number of the present pass; `None` outside of a loop.
    pub pass: Option<LoopPass>,
    pub prompt: String,
    /// Corrections of earlier outputs, in the order in which the document lists them.
    pub corrections: Vec<String>,
}

/// The output of one goal, as the document of a later goal shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextEntry {
    /// Id of the goal. If the goal has several outputs, the agent or the item follows in brackets.
    pub id: String,
    pub body: String,
}

/// The outputs of all goals in one pass of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IterationEntry {
    /// Number of the pass, counted from 1.
    pub number: u32,
    pub entries: Vec<ContextEntry>,
}

/// The loop in which a goal runs, and the number of the present pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopPass {
    /// Id of the loop.
    pub name: String,
    /// Number of the pass, counted from 1.
    pub iteration: u32,
}

/// The document for an agent that carries out a delegated task in a role. It contains neither a
/// workflow nor outputs of goals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskDocument {
    pub role: String,
    pub parent_goal: String,
    pub task: String,
    /// Corrections of earlier outputs, in the order in which the document lists them.
    pub corrections: Vec<String>,
}

impl GoalDocument {
    /// Writes the document, without a line break at its end.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = write!(out, "<workflow name=\"{}\">\n\n", escape_attribute(&self.workflow));
        self.write_context(&mut out);
        let _ = write!(out, "<current-goal id=\"{}\"", escape_attribute(&self.goal));
        if let Some(pass) = &self.pass {
            let name = escape_attribute(&pass.name);
            let _ = write!(out, " loop=\"{name}\" iteration=\"{}\"", pass.iteration);
        }
        out.push_str(">\n");
        write_body(&mut out, &self.prompt);
        out.push_str("</current-goal>\n\n");
        if !self.corrections.is_empty() {
            write_correction(&mut out, &self.corrections);
            out.push_str("\n\n");
        }
        out.push_str("</workflow>");
        out
    }

    /// Adds the output that the agent has to judge. The output becomes the last entry of the loop's
    /// present pass, or of the context if the goal is in no loop.
    pub fn add_judged(&mut self, entries: Vec<ContextEntry>) {
        let Some(pass) = self.pass.as_ref().filter(|_| !entries.is_empty()) else {
            return self.context.extend(entries);
        };

        match self.iterations.last_mut().filter(|last| last.number == pass.iteration) {
            Some(current) => current.entries.extend(entries),
            None => self.iterations.push(IterationEntry { number: pass.iteration, entries }),
        }
    }

    /// Turns the document of a goal into the document for the goal's supervisor. `supervise`
    /// describes the faults that the supervisor looks for.
    pub fn ask_supervisor(&mut self, supervise: &str) {
        self.goal.push_str("[supervisor]");
        self.prompt = format!("{}\n\n{supervise}", self.prompt.trim_end());
    }

    fn write_context(&self, out: &mut String) {
        if self.context.is_empty() && self.iterations.is_empty() {
            return;
        }

        out.push_str("<context>\n");
        write_entries(out, &self.context, "  ");
        for (index, iteration) in self.iterations.iter().enumerate() {
            if index > 0 || !self.context.is_empty() {
                out.push('\n');
            }

            let _ = writeln!(out, "  <iteration n=\"{}\">", iteration.number);
            write_entries(out, &iteration.entries, "    ");
            out.push_str("  </iteration>\n");
        }

        out.push_str("</context>\n\n");
    }
}

impl TaskDocument {
    /// Writes the document, without a line break at its end.
    pub fn text(&self) -> String {
        let role = escape_attribute(&self.role);
        let parent = escape_attribute(&self.parent_goal);
        let mut out = format!("<task role=\"{role}\" parent-goal=\"{parent}\">\n");
        write_body(&mut out, &self.task);
        out.push_str("</task>");
        if !self.corrections.is_empty() {
            out.push_str("\n\n");
            write_correction(&mut out, &self.corrections);
        }
        out
    }
}

fn write_entries(out: &mut String, entries: &[ContextEntry], indent: &str) {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }

        let _ = writeln!(out, "{indent}<goal id=\"{}\">", escape_attribute(&entry.id));
        write_body(out, &entry.body);
        let _ = writeln!(out, "{indent}</goal>");
    }
}

/// Writes a `<correction>` element with one paragraph for each correction. Writes no line break at
/// its end.
fn write_correction(out: &mut String, corrections: &[String]) {
    let paragraphs: Vec<_> = corrections.iter().map(|text| trimmed(text)).collect();
    out.push_str("<correction source=\"supervisor\">\n");
    write_body(out, &paragraphs.join("\n\n"));
    out.push_str("</correction>");
}

/// Writes the text of an element without indentation. Writes no line if the text is empty.
fn write_body(out: &mut String, body: &str) {
    let body = trimmed(body);
    if !body.is_empty() {
        out.push_str(&escape_text(&body));
        out.push('\n');
    }
}

/// Returns the text with LF as line ends. Removes blank lines at its start and white space at its
/// end.
pub(super) fn trimmed(body: &str) -> String {
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let body = body.trim_end_matches([' ', '\t', '\n']);
    let mut rest = body;
    while let Some((line, after)) = rest.split_once('\n') {
        if line.contains(|c| c != ' ' && c != '\t') {
            break;
        }
        rest = after;
    }
    rest.to_owned()
}
